"""A real language model, stories260K: what it writes is attributed to what it read, and all outputs share forward passes."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("transformers")

from integrand import text
from integrand.backends.checkpointing import NOTE

from .stories import stories
from .tiny import by_hand

PROMPT = "Once upon a time, there was a little girl named"
GOES_ON = " Lily. She loved to play outside in the park. One day, she saw a"


@pytest.fixture(scope="module")
def story(data) -> tuple[Any, Any]:
    data("language-model/tok512.bin")
    return stories(data("language-model/stories260K.bin").parent)


def test_it_writes_a_story(story):
    model, tokenizer = story
    ids = tokenizer(PROMPT, return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=24, do_sample=False)[0]
    assert tokenizer.decode(written, skip_special_tokens=True) == PROMPT + GOES_ON
    assert tokenizer("naï")["input_ids"][-2:] == tokenizer.convert_tokens_to_ids(["<0xC3>", "<0xAF>"])  # bytes


def test_every_output_adds_up(story):
    model, tokenizer = story
    found = text.generated(model, tokenizer, PROMPT, max_new_tokens=16, baseline="mean")
    assert found.outputs[:3] == (" Lily", ".", " She")
    assert found.certificate.converged
    for i, one in enumerate(found.certificate):
        assert abs(found.values[i].sum() - (one.score - one.baseline_score)) <= one.error * one.magnitude
        assert not found.values[i, found.prompt + i :].any()
        assert found.probabilities[i] == pytest.approx(one.score, rel=1e-5)


def test_values_are_those_of_a_plain_loop(story):
    model, tokenizer = copy.deepcopy(story[0]).double(), story[1]
    found = text.generated(model, tokenizer, PROMPT, continuation=" Lily. She", baseline="mean", tol=1e-4)
    table = model.get_input_embeddings()
    ids = torch.tensor([found.inputs.ids])
    end = table(ids).detach()
    start = table.weight.detach().mean(0).expand_as(end).clone()
    start[:, 0] = end[:, 0]  # the mark at the beginning is kept
    for i, output in enumerate(tokenizer(" Lily. She", add_special_tokens=False)["input_ids"][-3:]):
        at = found.prompt - 1 + i

        def score(points: list[Any], at: int = at, output: int = output) -> Any:
            return model(inputs_embeds=points[0]).logits[:, at].softmax(-1)[:, output]

        expected = by_hand(score, [end], [start])[0].numpy()
        assert np.abs(found.values[i] - expected).sum() <= 2e-4 * np.abs(expected).sum()


def test_sixteen_outputs_take_one_forward_pass_at_each_node(story):
    model, tokenizer = story
    ids = tokenizer(PROMPT, return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :]
    rows: list[int] = []
    logits: list[int] = []
    handles = [
        model.model.register_forward_hook(lambda _, __, out: rows.append(len(out[0]) if torch.is_grad_enabled() else 0)),
        model.lm_head.register_forward_hook(lambda _, __, out: logits.append(out.shape[0] * out.shape[1])),
    ]
    try:
        found = text.generated(model, tokenizer, PROMPT, continuation=written.tolist(), baseline="mean", steps=8, tol=1e9)
    finally:
        for handle in handles:
            handle.remove()
    assert sum(rows) == 8
    assert [one.gradients for one in found.certificate] == [8] * 16
    # Two rows of a few tokens to see that the model does not look ahead; then one number per output and word at the most.
    assert max(logits) <= 2 * ids["input_ids"].shape[1]
    assert max(logits[1:]) == 16


class CopiesNoticed(TorchDispatchMode):
    """Notes operations that make a whole weight once more, in any precision."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights = {id(part): part.numel() for part in model.parameters() if part.ndim == 2}
        self.made: list[str] = []
        self.held: list[weakref.ref[Tensor]] = []
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and compare what it gets and gives."""
        out = func(*args, **(kwargs or {}))
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        places = {leaf.untyped_storage().data_ptr() for leaf in given}
        sizes = [self.weights[id(leaf)] for leaf in given if id(leaf) in self.weights]
        for leaf in pytree.tree_leaves(out):
            new = isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in places
            if new and leaf.numel() in sizes and "embedding" not in str(func):
                self.made.append(str(func))
                self.held = [one for one in self.held if one() is not None] + [weakref.ref(leaf)]
                self.most = max(self.most, len(self.held))
        return out


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_second_copy_of_the_weights(story, dtype):
    model, tokenizer = copy.deepcopy(story[0]).to(dtype), story[1]
    with CopiesNoticed(model) as noticed:
        model.model.layers[0].mlp.up_proj.weight.double()
    assert noticed.made == ["aten._to_copy.default"]
    with CopiesNoticed(model) as noticed:
        text.generated(model, tokenizer, PROMPT, max_new_tokens=2, baseline="mean", tol=0.1)
    # A CPU multiplies float32 only: one weight at a time is made float32 there, and let go.
    assert noticed.most <= (0 if dtype == torch.float32 else 1)


def test_a_continuation_of_ids(story):
    model, tokenizer = story
    ids = tokenizer(" Lily. She", add_special_tokens=False)["input_ids"]
    named = text.generated(model, tokenizer, PROMPT, continuation=ids, baseline="mean", tol=0.05)
    again = text.generated(model, tokenizer, PROMPT, continuation=torch.tensor(ids), baseline="mean", tol=0.05)
    assert named.outputs[-2:] == (".", " She")
    np.testing.assert_array_equal(named.values, again.values)


def test_little_memory(story):
    """Blocks are recomputed, for all outputs of one forward pass, and the numbers stay."""
    model, tokenizer = story
    given: dict[str, Any] = {"max_new_tokens": 4, "baseline": "mean", "score": "logit"}
    plain = text.generated(model, tokenizer, PROMPT, **given)
    light = text.generated(model, tokenizer, PROMPT, memory=300_000, **given)
    assert {one.note for one in light.certificate} == {NOTE}
    assert not any(one.note for one in plain.certificate)
    np.testing.assert_allclose(light.values, plain.values, atol=1e-4 * np.abs(plain.values).max())


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
def test_in_bfloat16_it_is_within_what_it_claims(story):
    model, tokenizer = story
    half = copy.deepcopy(model).bfloat16()
    given: dict[str, Any] = {"max_new_tokens": 6, "baseline": "mean", "score": "logit"}
    found = text.generated(half, tokenizer, PROMPT, tol=0.05, **given)
    wide = text.generated(half.float(), tokenizer, PROMPT, tol=1e-3, **given)
    off = np.abs(found.values - wide.values).sum(1) / np.abs(wide.values).sum(1)
    assert found.outputs == wide.outputs
    assert all(off <= [one.error + 1e-3 for one in found.certificate])
