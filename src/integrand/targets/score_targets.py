"""Targets in vectors and logits: similarity to an embedding, one class against another, a span of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import OptionError, TargetError
from ..functions.target import Settled, main_tensor
from .callable_target import CallableTarget, class_index, class_words

SpanScale = Literal["logit", "log-probability"]

LONGEST = 30
"""The longest answer, in tokens, that is considered when a question answering model chooses one."""

EMBEDDINGS = ("embeddings", "sentence_embedding", "image_embeds", "text_embeds", "pooler_output")
"""Under which names outputs have embeddings."""


@dataclass(frozen=True, eq=False)
class SimilarityTarget(CallableTarget):
    """The cosine of the angle between a model's embedding and another one; made by :func:`similarity`."""

    reference: Tensor
    name: str = "the reference"

    def settle(self, output: Any, examples: int) -> Settled:
        """Check the reference against the embedding at the input."""
        width = _embedding(output).shape[1]
        reference = self.reference.detach().reshape(-1, self.reference.shape[-1] if self.reference.ndim else 1)
        if reference.shape[1] != width or len(reference) not in (1, examples):
            raise TargetError(
                f"got a reference of shape {tuple(self.reference.shape)}; expected ({width},), as the model's embedding has, "
                f"or ({examples}, {width}), one for each example."
            )
        if not bool(reference.abs().sum(1).gt(0).all()):
            raise TargetError("got a reference of zeros, to which nothing is similar; expected an embedding.")
        every = reference.expand(examples, width)

        def cosine(raw: Any, rows: Tensor) -> Tensor:
            vectors = _embedding(raw)
            return torch.nn.functional.cosine_similarity(vectors, every.to(vectors)[rows.to(vectors.device)], dim=1)

        return Settled(cosine, (f"cosine similarity to {self.name}",) * examples)


def similarity(reference: Tensor, *, name: str = "the reference") -> SimilarityTarget:
    """How similar the model's embedding is to another one: the cosine of the angle between them.

    Args:
        reference: (D,), or (N, D) with one for each example.
        name: what it is the embedding of, for the words in the certificate.
    """
    if not isinstance(reference, Tensor) or not reference.is_floating_point() or reference.ndim not in (1, 2):
        raise TargetError(
            f"got a reference of type {type(reference).__name__}; expected an embedding, a tensor (D,) or (N, D)."
        )
    return SimilarityTarget(reference, name)


@dataclass(frozen=True)
class AgainstTarget(CallableTarget):
    """The lead of one class over another; made by :func:`against`."""

    label: int | None
    other: int | None
    names: tuple[str, ...] = ()

    def settle(self, output: Any, examples: int) -> Settled:
        """Decide which classes: the surest ones at the input where none are given."""
        scores = main_tensor(output).detach()
        if scores.ndim != 2 or scores.shape[1] < 2:
            raise TargetError(
                f"targets.against: the model gives shape {tuple(scores.shape)}; expected (N, classes), two or more."
            )
        for one in (self.label, self.other):
            if one is not None and not 0 <= one < scores.shape[1]:
                raise TargetError(f"got class {one}; expected 0 to {scores.shape[1] - 1}.")
        first = scores.argmax(1) if self.label is None else torch.full((examples,), self.label, device=scores.device)
        others = scores.scatter(1, first[:, None], -torch.inf).argmax(1)
        second = others if self.other is None else torch.full_like(others, self.other)
        if bool((first == second).any()):
            raise TargetError(f"got class {int(first[first == second][0])} against itself; expected two classes.")

        def lead(raw: Any, rows: Tensor) -> Tensor:
            found = main_tensor(raw)
            own = rows.to(found.device)
            both = [found.gather(1, which.to(found.device)[own][:, None])[:, 0] for which in (first, second)]
            return both[0] - both[1]

        pairs = zip(first.tolist(), second.tolist(), strict=True)
        return Settled(lead, tuple(f"{class_words(a, self.names)} against {class_words(b, self.names)}" for a, b in pairs))


def against(label: int | str | None = None, other: int | str | None = None, *, names: Sequence[str] = ()) -> AgainstTarget:
    """Why it is one class and not another: the difference of their outputs, which softmax leaves as it is.

    Args:
        label: the class, by number or, with ``names``, by name; the surest at the input if not given.
        other: the class it is compared with; the surest other one at the input if not given.
        names: of the classes, for the words in the certificate.
    """
    first, second = (None if one is None else class_index(one, names) for one in (label, other))
    return AgainstTarget(first, second, tuple(names))


@dataclass(frozen=True)
class SpanTarget(CallableTarget):
    """A stretch of tokens; made by :func:`span`, which says what its attributes mean."""

    start: int | None
    end: int | None
    tokens: tuple[int, ...] | None
    what: SpanScale | None

    def settle(self, output: Any, examples: int) -> Settled:
        """Decide where the answer is, or which tokens the model says there."""
        items = dict(output.items()) if isinstance(output, Mapping) else {}
        if isinstance(items.get("start_logits"), Tensor) and isinstance(items.get("end_logits"), Tensor):
            return self._answer(items["start_logits"].detach(), items["end_logits"].detach(), examples)
        return self._tokens(main_tensor(output).detach(), examples)

    def _place(self, value: int, length: int) -> int:
        if not 0 <= value < length:
            raise TargetError(f"got position {value}; the model gives positions 0 to {length - 1}.")
        return value

    def _answer(self, starts: Tensor, ends: Tensor, examples: int) -> Settled:
        """The sum of the start's and the end's score of an answer."""
        if self.tokens is not None:
            raise TargetError("got tokens for a model that answers by a start and an end; expected a span alone.")
        length, scale = starts.shape[1], self.what or "logit"
        both = starts[:, :, None] + ends[:, None, :]
        allowed = torch.ones(length, length, dtype=torch.bool, device=starts.device).triu().tril(LONGEST - 1)
        if self.start is not None:
            allowed[torch.arange(length) != self._place(self.start, length)] = False
        if self.end is not None:
            allowed[:, torch.arange(length) != self._place(self.end, length)] = False
        if self.start is not None and self.end is not None:
            allowed[self.start, self.end] = self.end >= self.start
        if not allowed.any():
            raise TargetError(
                f"got a span from {self.start} to {self.end}; expected an end that does not come before the start."
            )
        best = both.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)
        places = torch.stack([best // length, best % length], 1)

        def score(raw: Any, rows: Tensor) -> Tensor:
            total: list[Tensor] = []
            for column, name in enumerate(("start_logits", "end_logits")):
                logits = raw[name] if scale == "logit" else raw[name].log_softmax(1)
                own = places.to(logits.device)[rows.to(logits.device), column]
                total.append(logits.gather(1, own[:, None])[:, 0])
            return total[0] + total[1]

        return Settled(score, tuple(f"answer from token {a} to {b} ({scale} of both ends)" for a, b in places.tolist()))

    def _tokens(self, logits: Tensor, examples: int) -> Settled:
        """The sum of what tokens have at a stretch of positions."""
        if logits.ndim != 3:
            raise TargetError(
                f"targets.span: the model gives shape {tuple(logits.shape)}; expected start_logits and end_logits, or logits "
                "(N, positions, vocabulary)."
            )
        start = self._place(self.start or 0, logits.shape[1])
        end = self._place(logits.shape[1] - 1 if self.end is None else self.end, logits.shape[1])
        if end < start:
            raise TargetError(f"got a span from {start} to {end}; expected an end that does not come before the start.")
        said = logits[:, start : end + 1].argmax(2)
        if self.tokens is not None:
            if len(self.tokens) != end + 1 - start or not all(0 <= one < logits.shape[2] for one in self.tokens):
                raise TargetError(
                    f"got {len(self.tokens)} tokens for positions {start} to {end}; expected {end + 1 - start}, each from 0 to "
                    f"{logits.shape[2] - 1}."
                )
            said = torch.tensor(self.tokens, device=logits.device).expand(examples, -1)
        scale = self.what or "log-probability"

        def score(raw: Any, rows: Tensor) -> Tensor:
            part = main_tensor(raw)[:, start : end + 1]
            part = part if scale == "logit" else part.log_softmax(2)
            return part.gather(2, said.to(part.device)[rows.to(part.device)][:, :, None]).sum((1, 2))

        which = "the model's own tokens" if self.tokens is None else "the tokens"
        return Settled(score, (f"{scale} of {which} at positions {start} to {end}",) * examples)


def span(
    start: int | None = None,
    end: int | None = None,
    *,
    tokens: Sequence[int] | None = None,
    what: SpanScale | None = None,
) -> SpanTarget:
    """A stretch of tokens: the answer of a question answering model, or what a language model says at some positions.

    Of a model with ``start_logits`` and ``end_logits``, the sum of both ends' logits; where an end is not given, the model's
    own best answer. Of one with logits (N, positions, vocabulary), the sum of the tokens' log-probabilities; the logits at a
    position are what the model says there, which in a model that writes is the next token.

    Args:
        start: the first position.
        end: the last position, which belongs to the span.
        tokens: one for each position; what the model says at the input if not given.
        what: ``logit`` or ``log-probability``; the default differs as said.
    """
    if what not in (None, *get_args(SpanScale)):
        raise OptionError(f"got what={what!r}; expected 'logit' or 'log-probability'.")
    first, last = (None if place is None else _whole(place, "a position of a token") for place in (start, end))
    said = None if tokens is None else tuple(_whole(one, "the number of a token") for one in tokens)
    return SpanTarget(first, last, said, what)


def _whole(value: Any, what: str) -> int:
    """A whole number from 0 on, of whatever type: Python's, numpy's, or a tensor with one."""
    try:
        found = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        found = -1
    if found < 0:
        raise TargetError(f"got {value!r} as {what}; expected a whole number, from 0 on.")
    return found


def _embedding(raw: Any) -> Tensor:
    """The embedding in an output, (N, D)."""
    items = dict(raw.items()) if isinstance(raw, Mapping) else {}
    found = next((items[name] for name in EMBEDDINGS if isinstance(items.get(name), Tensor)), None)
    vectors = main_tensor(raw) if found is None else found
    if vectors.ndim != 2:
        raise TargetError(
            f"targets.similarity: the model gives shape {tuple(vectors.shape)}; expected one embedding for each row, (N, D). "
            "Pool it in a function around the model."
        )
    return vectors
