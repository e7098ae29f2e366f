"""Question answering: which words of question and context make the model answer where it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import OptionError, TargetError
from ..functions import Score
from ._ask import Ask
from ._encode import Pieces
from ._result import Explained
from ._run import picked

Part = Literal["start", "end", "span"]
PARTS = ("start", "end", "span")

LONGEST = 30
"""Tokens of an answer, at most, where the model is asked for one."""


@dataclass(frozen=True)
class _Place:
    """How sure the model is of where an answer starts, ends, or both."""

    part: Part
    score: Score

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        scores = []
        for end in ("start", "end"):
            if self.part in (end, "span"):
                logits = output[f"{end}_logits"]
                # Padding takes no part in the softmax, so that a text's score does not depend on its neighbours.
                logits = logits.masked_fill(~rows["real"].to(logits.device), float("-inf"))
                scores.append(picked(logits, rows[end], self.score))
        if len(scores) == 1:
            return scores[0]
        return scores[0] * scores[1] if self.score == "probability" else scores[0] + scores[1]


def answers(ask: Ask, found: dict[str, Tensor], *, target: Any, part: Part, score: Score | None) -> tuple[Explained, ...]:
    """Explain where each answer is; see :func:`integrand.text.explain`.

    Args:
        ask: the model, questions and contexts.
        found: the model's output at the input, ``start_logits`` and ``end_logits``.
        target: the answers, as texts; None for what the model says.
        part: what of the answer is explained.
        score: the scale.
    """
    if part not in PARTS:
        raise OptionError(f"got part={part!r}; expected one of {', '.join(map(repr, PARTS))}.")
    scale: Score = score or "probability"
    questions = ask.encoded.pieces
    wanted = [target] * len(questions) if target is None or isinstance(target, str) else list(target)
    if len(wanted) != len(questions):
        raise TargetError(f"got {len(wanted)} answers for {len(questions)} questions; expected one for each.")
    each = enumerate(zip(questions, wanted, strict=True))
    places = [_best(pieces, found, i) if text is None else _said(pieces, text) for i, (pieces, text) in each]
    pairs = list(zip(questions, places, strict=True))
    rows = {
        "start": torch.tensor([pieces.columns[a] for pieces, (a, _) in pairs]),
        "end": torch.tensor([pieces.columns[b] for pieces, (_, b) in pairs]),
        "real": ask.encoded.mask,
    }
    labels = [_text(pieces, a, b) for pieces, (a, b) in pairs]
    chances = _Place(part, "probability")({name: value.double() for name, value in found.items()}, rows).tolist()
    return ask.explained(
        _Place(part, scale),
        rows=rows,
        labels=labels,
        words=[f"{part} of {label!r} ({scale})" for label in labels],
        chances=chances,
        meta={"score": f"{scale} of the answer's {part}"},
    )


def _best(pieces: Pieces, found: dict[str, Tensor], row: int) -> tuple[int, int]:
    """The first and last token of the best answer within the context (within the text, where there is no context)."""
    columns = list(pieces.columns)
    start = found["start_logits"][row].double().cpu()[columns]
    end = found["end_logits"][row].double().cpu()[columns]
    context = 1 if 1 in pieces.parts else 0
    inside = torch.tensor([part == context for part in pieces.parts])
    both = start[:, None] + end[None]
    apart = torch.arange(len(columns))[None] - torch.arange(len(columns))[:, None]
    both[(apart < 0) | (apart >= LONGEST) | ~inside[:, None] | ~inside[None]] = float("-inf")
    best = int(both.argmax())
    return best // len(columns), best % len(columns)


def _said(pieces: Pieces, text: str) -> tuple[int, int]:
    """The tokens of an answer that the user names."""
    if pieces.spans is None:
        raise OptionError(
            "got an answer and a tokenizer that does not say where tokens stand; expected a fast tokenizer. Load it with "
            "AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    context = 1 if 1 in pieces.parts else 0
    first = min(span[0] for span, part in zip(pieces.spans, pieces.parts, strict=True) if part == context)
    at = pieces.text.find(text, first)
    if not text or at < 0:
        raise TargetError(f"got the answer {text!r}, which is not in the context; expected words of it, spelled as there.")
    inside = [
        i
        for i, ((a, b), part) in enumerate(zip(pieces.spans, pieces.parts, strict=True))
        if part == context and a < at + len(text) and b > at
    ]
    return inside[0], inside[-1]


def _text(pieces: Pieces, first: int, last: int) -> str:
    if pieces.spans is None:
        return " ".join(pieces.texts[first : last + 1])
    return pieces.text[pieces.spans[first][0] : pieces.spans[last][1]]
