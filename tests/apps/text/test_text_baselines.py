"""Baselines of texts that are texts themselves, tokens, or functions; every one against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from integrand import text
from integrand.apps.text.encoding import Pieces
from integrand.apps.text.text_baselines import AlignedText
from integrand.errors import InputError, OptionError

from .tiny import by_hand, classifier, writer

PROMPT, LIKE = "The capital of France", "The capital of Italy."


def pieces(words: str) -> Pieces:
    """A text whose tokens are its words, between two markers."""
    texts = ("<s>", *words.split(), "</s>")
    ids = (0, *(int.from_bytes(word.encode()) for word in words.split()), 1)
    marks = (True, *(False for _ in words.split()), True)
    return Pieces(texts, None, words, marks, (0,) * len(ids), tuple(range(len(ids))), ids)


@pytest.mark.parametrize(
    ("mine", "other", "pairs"),
    [
        ("a b c", "a b c", []),
        ("a b c", "a x c", [("b", "x")]),
        ("a b c", "x y z", [("a", "x"), ("b", "y"), ("c", "z")]),
        ("a b c", "a c", [("b", "")]),
        ("a c", "a b c", [("", "b")]),
        ("a b c d", "a x d", [("b c", "x")]),
    ],
)
def test_texts_are_laid_side_by_side(mine: str, other: str, pairs: list[tuple[str, str]]) -> None:
    first, second = pieces(mine), pieces(other)
    aligned = AlignedText.of(first, second)
    assert list(aligned.pairs) == pairs
    assert not aligned.tokens[0]  # markers stay
    assert not aligned.tokens[-1]
    replaced = {name for names, _ in pairs for name in names.split()}
    assert [bool(ids) for ids in aligned.tokens[1:-1]] == [name in replaced for name in mine.split()]
    assert set().union(*aligned.tokens) <= set(second.ids)


def test_a_text_that_shares_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="2 tokens that share nothing with the 3 of 'a b c'"):
        AlignedText.of(pieces("a b c"), pieces("x y"))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma"])
def test_another_prompt_is_the_baseline(kind: str) -> None:
    model, tokenizer = writer(kind)
    ids, other = (tokenizer(words, return_tensors="pt")["input_ids"] for words in (PROMPT, LIKE))
    found = text.generated(model, tokenizer, PROMPT, continuation=" is", score="logit", baseline=LIKE, tol=1e-5)
    out = tokenizer(PROMPT + " is", return_tensors="pt")["input_ids"][0, ids.shape[1] :]
    embed = model.get_input_embeddings()
    if ids.shape == other.shape:
        start = embed(other).detach()
        run = lambda points: model(inputs_embeds=points[0]).logits[:, -1, out[0]]  # noqa: E731
        expected = by_hand(run, [embed(ids).detach()], [start])[0].numpy()
        assert np.abs(found.values[0, : ids.shape[1]] - expected).sum() <= 2e-5 * np.abs(expected).sum()
    shared = [i for i, (a, b) in enumerate(zip(ids[0].tolist(), other[0].tolist(), strict=False)) if a == b]
    assert shared
    assert not found.values[0, shared[:3]].any()  # what both prompts have gets nothing
    assert found.values.any()
    assert repr(LIKE) in found.meta["baseline"]
    again = text.generated(model, tokenizer, PROMPT, continuation=" is", score="logit", baseline=[LIKE, LIKE], tol=1e-5)
    np.testing.assert_allclose(again.values, found.values, atol=1e-4 * np.abs(found.values).sum())


def test_each_text_of_a_batch_is_laid_beside_the_other_text() -> None:
    model, tokenizer = classifier("bert")
    texts = ["the film is good", "the film is not good"]
    both = text.explain(model, tokenizer, texts, target=0, score="logit", baseline="the film is bad", tol=1e-5)
    for words, found in zip(texts, both, strict=True):
        alone = text.explain(model, tokenizer, words, target=0, score="logit", baseline="the film is bad", tol=1e-5)
        np.testing.assert_allclose(found.values, alone.values, atol=1e-4 * np.abs(alone.values).sum())
        told = [name for name, value in zip(found.tokens, found.values, strict=True) if value]
        assert "film" not in told
        assert told


def test_end_tokens_and_functions() -> None:
    model, tokenizer = writer("gpt2")
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    table = model.get_input_embeddings().weight.detach()
    options = {"continuation": " is", "score": "logit", "tol": 1e-5}
    end = text.generated(model, tokenizer, PROMPT, baseline="eos", **options)
    same = text.generated(model, tokenizer, PROMPT, baseline=int(tokenizer.eos_token_id), **options)
    np.testing.assert_array_equal(end.values, same.values)
    half = text.generated(model, tokenizer, PROMPT, baseline=lambda embeddings, _: embeddings / 2, **options)
    out = tokenizer(PROMPT + " is", return_tensors="pt")["input_ids"][0, ids.shape[1]]
    run = lambda points: model(inputs_embeds=points[0]).logits[:, -1, out]  # noqa: E731
    expected = by_hand(run, [table[ids]], [table[ids] / 2])[0].numpy()
    assert np.abs(half.values[0, : ids.shape[1]] - expected).sum() <= 2e-5 * np.abs(expected).sum()
    with pytest.raises(InputError, match=r"gave \(3,\); expected embeddings of shape"):
        text.generated(model, tokenizer, PROMPT, baseline=lambda *_: torch.zeros(3), **options)
