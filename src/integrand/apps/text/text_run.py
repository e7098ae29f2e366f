"""Runs of a model over texts: where it looks words up, what replaces them in the baseline, and the integration.

Classification, question answering, similarity and generation all ask a :class:`TextQuestion` or call :func:`integrate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...api import integrated_gradients
from ...certificate import Certificate
from ...engine import warn_if_missed
from ...errors import ConvergenceWarning, ModelError, quiet
from ...functions.layer import of_this_thread
from ...functions.target import Score
from .encoding import Encoded, parameters_of
from .quantised import mixes_rows
from .result import Explained, explained
from .text_baselines import Fill, Looked, Slot, baseline_of, baseline_words

Values = NDArray[np.float64]
Pick = Callable[[Any, dict[str, Tensor]], Any]

Known = tuple[Tensor, Tensor, int]
"""Token ids given to the model, the mask of those kept in the baseline, (N, T) each, and their first column in the result."""


@dataclass(frozen=True, eq=False)
class TextQuestion:
    """Texts, the model that reads them, and how to integrate its score.

    Attributes:
        model: the user's.
        tokenizer: its tokenizer.
        encoded: the texts.
        slots: where they are looked up.
        baseline: what words are replaced with, or several such, over which the result is averaged.
        tol: the relative error of the tokens' sums.
        options: further ones of the engine.
    """

    model: nn.Module
    tokenizer: Any
    encoded: Encoded
    slots: Sequence[Slot]
    baseline: Fill | list[Fill]
    tol: float
    options: dict[str, Any]

    def explained(
        self,
        pick: Pick,
        *,
        rows: dict[str, Tensor],
        meta: dict[str, str],
        labels: Sequence[str] | None = None,
        words: Sequence[str] = (),
        chances: Sequence[float | None] | None = None,
        target: Any = None,
        score: Score = "logit",
    ) -> tuple[Explained, ...]:
        """Attribute the score of every text to its tokens.

        Args:
            pick: from the model's output to what is scored.
            rows: what it needs to know of each text.
            meta: how it was made, in words, beyond the model and the baseline.
            labels: what was explained of each text; by default as the engine calls it.
            words: what was explained and on which scale, for the certificates.
            chances: the probability of each, where there is one.
            target: for the engine, where ``pick`` gives logits.
            score: the scale of the engine, where ``pick`` gives logits.
        """
        values, errors, found = integrate(
            TextRun(self.model, pick, fixed_of(self.model)),
            {"input_ids": self.encoded.ids},
            self.slots,
            given=self.encoded.given,
            rows=rows,
            fill=self.baseline,
            tokenizer=self.tokenizer,
            tol=self.tol,
            target=target,
            score=score,
            words=words,
            options=self.options,
        )
        about = {"model": type(self.model).__name__, "baseline": baseline_words(self.baseline)} | meta
        names = [one.target for one in found] if labels is None else labels
        sure = [None] * len(values) if chances is None else chances
        each = zip(self.encoded.pieces, values, errors, found, names, sure, strict=True)
        return tuple(
            explained(pieces, row, one, label=name, probability=chance, meta=about, errors=off)
            for pieces, row, off, one, name, chance in each
        )


@dataclass(frozen=True)
class TextRun:
    """A model as the engine calls it: token ids go in, the scored output comes out.

    Attributes:
        model: the user's model.
        pick: from the model's output, and what belongs to each row, to scores or logits.
        fixed: keywords that are the same for all rows.
        joined: names of inputs of which a row has several, such as the patches of an image, (rows, several, ...); the model
            takes those of all rows along one dimension.
    """

    model: nn.Module
    pick: Pick
    fixed: Mapping[str, Any]
    joined: frozenset[str] = frozenset()

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Any:
        """Run the model on token ids and pick the scored part of its output.

        Args:
            given: masks and token types, a row per text.
            rows: what :attr:`pick` needs to know of each row.
            **ids: ``input_ids``, and ``decoder_input_ids`` where there are some.
        """
        given = {name: value.flatten(0, 1) if name in self.joined else value for name, value in given.items()}
        return self.pick(self.model(**ids, **given, **self.fixed), rows)


def integrate(
    runs: TextRun,
    ids: dict[str, Tensor],
    slots: Sequence[Slot],
    *,
    given: dict[str, Tensor],
    rows: dict[str, Tensor],
    fill: Fill | list[Fill],
    tokenizer: Any,
    tol: float,
    target: Any = None,
    score: Score = "logit",
    words: Sequence[str] = (),
    options: Mapping[str, Any],
) -> tuple[Values, Values, Certificate]:
    """Integrated gradients of a score for every token, summed over the token's embedding.

    Args:
        runs: the model.
        ids: (N, T) token ids by keyword.
        slots: where they are looked up.
        given: masks and the like.
        rows: what the score needs to know of each row.
        fill: the baseline, or several to average.
        tokenizer: knows padding and mask.
        tol: the relative error of the tokens' sums to integrate to.
        target: for the engine, where the model gives logits.
        score: the scale of the engine, where ``pick`` gives logits.
        words: what is explained in each row, for the certificate.
        options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        (N, columns), their errors likewise (NaN where they are not known), and the certificate.
    """
    fills: list[Any] = fill if isinstance(fill, list) else [fill]
    starts = [baseline_of(slots, one, tokenizer) for one in fills]
    asked = question_of(runs, slots, given=given, rows=rows)
    options = {"chunk": 1, **options} if mixes_rows(runs.model) else options
    with quiet(ConvergenceWarning):  # said below, once, with what may help
        result = integrated_gradients(
            x=ids,
            baseline=starts[0] if len(starts) == 1 else starts,
            target=target,
            score=score,
            tol=tol,
            **asked,
            **options,
        )
    assert isinstance(result.values, Tensor)
    certificate = result.certificate
    if words:
        named = tuple(replace(one, target=word) for one, word in zip(certificate, words, strict=True))
        certificate = replace(certificate, examples=named)
    warn_if_missed(certificate)
    errors = result.sums(torch.arange(result.values.shape[1])).errors
    return result.values.detach().double().cpu().numpy(), errors.numpy(), certificate


def question_of(runs: TextRun, slots: Sequence[Slot], *, given: dict[str, Tensor], rows: dict[str, Tensor]) -> dict[str, Any]:
    """What the engine is asked, whatever the method: the model, which of its layers are explained, and the sum of each token.

    Args:
        runs: the model.
        slots: where its tokens are looked up.
        given: masks and the like.
        rows: what the score needs to know of each row.
    """
    labels = tuple(slot.labels[:, None] for slot in slots)
    modules = {id(slot.looked.module): slot.looked.module for slot in slots}
    return {
        "model": runs,
        "layer": list(modules.values()),
        "kwargs": {"given": given, "rows": rows},
        "batched": True,
        "groups": labels[0] if len(labels) == 1 else labels,
    }


def first_look(model: nn.Module, encoded: Encoded) -> tuple[tuple[Slot, ...], Any]:
    """Run the model on the texts as they are, and find where it looks their tokens up.

    Returns the calls of its embedding, and its output.

    A single text runs twice side by side, since the engine will run many rows; the output then has two.
    """
    count = len(encoded.pieces)
    twice = torch.arange(max(count, 2), device=encoded.ids.device) % count
    given = {name: value[twice] for name, value in encoded.given.items()}
    try:
        calls, output = look(model, lambda: model(input_ids=encoded.ids[twice], **given, **fixed_of(model)))
    except ValueError as error:
        if "padding token" not in str(error):
            raise
        raise ModelError(
            f"the model takes no batches: {error} Expected one that knows its padding: set model.config.pad_token_id = "
            "tokenizer.pad_token_id."
        ) from error
    slots = slots_of(calls, [(encoded.ids[twice], encoded.kept[twice], 0)])
    return tuple(slot.rows(count) for slot in slots), output


def fixed_of(model: nn.Module) -> dict[str, Any]:
    """Keyword arguments that make the model return named outputs and keep no cache between calls."""
    wanted = {"return_dict": True, "use_cache": False}
    named = parameters_of(model)
    return {name: value for name, value in wanted.items() if name in named}


def rows_of(output: Any, count: int) -> dict[str, Tensor]:
    """The tensors of a model's output by name, cut to the first ``count`` rows."""
    items = output.items() if hasattr(output, "items") else enumerate(output if isinstance(output, tuple) else (output,))
    return {str(name): value[:count] for name, value in items if isinstance(value, Tensor) and value.ndim}


def picked(logits: Tensor, index: Tensor, score: Score) -> Tensor:
    """The score of each row's own class, (N,), from logits (N, classes)."""
    if score != "logit":
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = wide.softmax(-1) if score == "probability" else wide.log_softmax(-1)
    return logits.gather(-1, index.to(logits.device)[:, None])[:, 0]


def candidates(model: nn.Module) -> list[nn.Module]:
    """The modules that may look tokens up: the input embeddings of model, encoder and decoder, and modules tied to them."""
    found: dict[int, nn.Module] = {}
    owners: list[Any] = [model, *(getattr(model, f"get_{part}", lambda: None)() for part in ("encoder", "decoder"))]
    for owner in owners:
        try:
            module = owner.get_input_embeddings()
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(module, nn.Module):
            found[id(module)] = module
    if not found:
        raise ModelError(
            f"{type(model).__name__}.get_input_embeddings() gives no module; expected the embedding of the words. Explain the "
            "model with integrand.integrated_gradients(model, ids, layer=...)."
        )
    # Tied weights: encoder and decoder may have modules of their own around one table.
    tables = {id(getattr(module, "weight", None)) for module in found.values()} - {id(None)}
    for module in model.modules():
        if id(getattr(module, "weight", None)) in tables and not isinstance(module, nn.Linear):
            found[id(module)] = module
    return list(found.values())


def look(model: nn.Module, run: Callable[[], Any]) -> tuple[tuple[Looked, ...], Any]:
    """Run a model once and record every call of its embeddings, in order; returns the calls and the model's output."""
    calls: list[Looked] = []

    @of_this_thread
    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
        if given and isinstance(output, Tensor) and not given[0].dtype.is_floating_point:
            calls.append(Looked(module, given[0].detach().clone(), output.detach().clone()))

    with ExitStack() as stack, torch.no_grad():
        for module in candidates(model):
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        output = run()
    if not calls:
        raise ModelError(
            f"{type(model).__name__} does not call its input embedding with token ids; expected it to look words up there. "
            "Explain the model with integrand.integrated_gradients(model, ids, layer=...)."
        )
    return tuple(calls), output


def slots_of(calls: Sequence[Looked], known: Sequence[Known]) -> tuple[Slot, ...]:
    """Match each call of an embedding to the text it looks up; calls with other ids are left as they are.

    Args:
        calls: from :func:`look`.
        known: the texts, in the order in which the model reads them.
    """
    out: list[Slot] = []
    unread = list(known)
    for call in calls:
        found = next(((one, slot) for one in (*unread, *known) if (slot := _matched(call, *one)) is not None), None)
        if found is None:
            nothing = torch.full(call.ids.shape[1:], -1, device=call.ids.device)
            out.append(Slot(call, nothing, torch.ones_like(call.ids, dtype=torch.bool)))
            continue
        unread = [one for one in unread if one is not found[0]]
        out.append(found[1])
    if all(bool(slot.kept.all()) for slot in out):
        raise ModelError(
            "the model does not look the text's own token ids up in its embedding; expected that it does. Explain it with "
            "integrand.integrated_gradients(model, ids, layer=...)."
        )
    return tuple(out)


def device_of(model: nn.Module) -> torch.device:
    """The device for token ids: that of the embedding, wherever the rest of the model is."""
    module = candidates(model)[0]
    hook: Any = getattr(module, "_hf_hook", None)  # weights that are loaded only when they are needed
    if getattr(hook, "execution_device", None) is not None:
        return torch.device(hook.execution_device)
    weight = next(module.parameters(), None)
    return torch.device("cpu") if weight is None or weight.is_meta else weight.device


def _matched(call: Looked, ids: Tensor, kept: Tensor, first: int) -> Slot | None:
    """The slot of a call that looks up these ids, also if padded, transposed or shifted by one place; None for other ids."""
    places = torch.arange(first, first + ids.shape[1], device=ids.device)
    length = ids.shape[1]
    if call.ids.shape != ids.shape and call.ids.t().shape == ids.shape:
        call = Looked(call.module, call.ids.t(), call.value.transpose(0, 1))
    if len(call.ids) == len(ids) and torch.equal(call.ids[:, :length], ids):
        more = call.ids.shape[1] - length
        labels = torch.nn.functional.pad(places, (0, more), value=-1)
        return Slot(call, labels, torch.nn.functional.pad(kept, (0, more), value=True))
    if call.ids.shape == ids.shape and torch.equal(call.ids[:, 1:], ids[:, :-1]):
        # A decoder that is fed the text itself, one place later: a token's both places count.
        labels = torch.nn.functional.pad(places[:-1], (1, 0), value=-1)
        return Slot(call, labels, torch.nn.functional.pad(kept[:, :-1], (1, 0), value=True))
    return None
