"""What a model's head is asked: the class of a text, the position of an answer, the similarity of two sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import ModelError, OptionError, TargetError
from ...functions.target import Score, main_tensor
from ...render.text.word_sentences import quoted
from .encoding import Pieces
from .result import Explained
from .text_run import Pick, TextQuestion, picked

Part = Literal["start", "end", "span"]
PARTS = ("start", "end", "span")

LONGEST = 30
"""The longest answer, in tokens, that is considered when the model chooses one."""

ClassTarget = int | str | Sequence[int | str] | Callable[[Any], Tensor] | None

Pooling = Literal["mean", "first", "last", "max"] | Callable[[Any, Tensor], Tensor]
POOLINGS = ("mean", "first", "last", "max")


def answers(
    ask: TextQuestion, found: dict[str, Tensor], *, target: Any, part: Part, score: Score | None
) -> tuple[Explained, ...]:
    """Explain the position of each answer; see :func:`integrand.text.explain`.

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
    sure = _Place(part, "probability")({name: value.double() for name, value in found.items()}, rows).tolist()
    each_one = ask.explained(
        _Place(part, scale),
        rows=rows,
        labels=labels,
        words=[f"{part} of {label!r} ({scale})" for label in labels],
        chances=sure,
        meta={"score": f"{scale} of the answer's {part}"},
    )
    return tuple(replace(one, line=replace(one.line, meaning=f"answers {quoted(one.label)}")) for one in each_one)


@dataclass(frozen=True)
class ClassLabels:
    """The names of a classifier's outputs.

    Attributes:
        names: by index.
    """

    names: tuple[str, ...]

    @staticmethod
    def of(model: nn.Module, count: int) -> ClassLabels:
        """The class names of the model's config, which are LABEL_0 and so on where nobody gave any."""
        known: dict[Any, Any] = getattr(getattr(model, "config", None), "id2label", None) or {}
        return ClassLabels(tuple(str(known.get(i, known.get(str(i), f"class {i}"))) for i in range(count)))

    def find(self, target: Any) -> int:
        """The index of a class, by number or name (case does not matter)."""
        count = len(self.names)
        if isinstance(target, bool) or not isinstance(target, int | str):
            raise TargetError(
                f"got target {target!r} of type {type(target).__name__}; expected a class by number or name, one per text, or "
                "a function from the model's output to one score per text."
            )
        if isinstance(target, int):
            if not 0 <= target < count:
                raise TargetError(f"got target {target}, out of range; expected 0 to {count - 1}, or one of {self._listed()}.")
            return target
        lower = [name.lower() for name in self.names]
        if lower.count(target.lower()) == 1:
            return lower.index(target.lower())
        if target.isdecimal():
            return self.find(int(target))
        near = get_close_matches(target.lower(), lower, n=3)
        hint = f" Did you mean {', '.join(repr(self.names[lower.index(n)]) for n in near)}?" if near else ""
        raise TargetError(f"got target {target!r}, which the model does not have; expected one of {self._listed()}.{hint}")

    def _listed(self) -> str:
        shown = ", ".join(map(repr, self.names[:12]))
        return shown + (f" and {len(self.names) - 12} more" if len(self.names) > 12 else "")


def classes(
    ask: TextQuestion, logits: Tensor, *, target: ClassTarget, against: int | str | None, score: Score | None
) -> tuple[Explained, ...]:
    """Explain the class of each text; see :func:`integrand.text.explain`.

    Args:
        ask: the classifier and the texts.
        logits: (N, classes) at the input.
        target: the classes; None for the top ones.
        against: the class to compare with.
        score: the scale; None for the default.
    """
    if callable(target) and not isinstance(target, Tensor):
        if against is not None or score not in (None, "logit"):
            raise OptionError("got against= or score= with a target function; expected the function to do that itself.")
        return ask.explained(lambda output, rows: output, rows={}, target=target, meta={})
    asked = asked_class(ask.model, logits, target, against, score)
    found = ask.explained(
        asked.pick,
        rows=asked.rows,
        target=asked.goal,
        score=asked.engine,
        labels=asked.labels,
        words=[f"{label} ({asked.unit})" for label in asked.labels],
        chances=asked.chances,
        meta={"score": asked.unit},
    )
    pairs = zip(found, asked.choices, strict=True)
    return tuple(replace(one, line=replace(one.line, choices=choices)) for one, choices in pairs)


@dataclass(frozen=True)
class Pooled:
    """One vector per sentence from a model's output.

    Attributes:
        pooling: the mean over the tokens, the first or last of them, their maximum, or a function of the output and the
            mask (N, T).
    """

    pooling: Pooling

    def __post_init__(self) -> None:
        if not callable(self.pooling) and self.pooling not in POOLINGS:
            names = ", ".join(map(repr, POOLINGS))
            raise OptionError(f"got pooling={self.pooling!r}; expected one of {names}, or a function of output and mask.")

    def __call__(self, output: Any, mask: Tensor) -> Tensor:
        """The sentence vectors, (N, D), from a model's output for tokens with a mask (N, T)."""
        if callable(self.pooling):
            return self.pooling(output, mask)
        states = _states(output, mask)
        real = mask.to(states.device).bool()[..., None]
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        if self.pooling == "mean":
            return torch.where(real, wide, 0).sum(1) / real.sum(1)
        if self.pooling == "max":
            return torch.where(real, wide, -torch.inf).amax(1)
        places = torch.arange(real.shape[1], device=wide.device)[None, :, None]
        at = torch.where(real, places, real.shape[1]).amin(1) if self.pooling == "first" else (real * places).amax(1)
        return wide[torch.arange(len(wide), device=wide.device), at[:, 0]]


@dataclass(frozen=True)
class Cosine:
    """The cosine similarity of each sentence's vector to another vector."""

    pooled: Pooled

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        """The cosine similarities, (N,)."""
        vectors = self.pooled(output, rows["mask"])
        return nn.functional.cosine_similarity(vectors, rows["other"].to(vectors), dim=1)


@dataclass(frozen=True)
class _Place:
    """The score of an answer's start position, end position, or both."""

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


def _best(pieces: Pieces, found: dict[str, Tensor], row: int) -> tuple[int, int]:
    """The first and last token of the most likely answer in the context, or in the text where there is no context."""
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
    """The first and last token of the answer that the user gave."""
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


@dataclass(frozen=True)
class AskedClass:
    """The explained score of each text, and its description.

    Attributes:
        pick: from the model's output to what the engine scores.
        rows: what it needs to know of each text.
        goal: for the engine, the class of each text, where it gets all of them.
        engine: the engine's scale; ``logit`` where ``pick`` has done everything.
        scale: the scale itself.
        labels: in words.
        chances: the probability of each, where there is one.
        choices: every class with its probability, text by text; nothing where there are no probabilities.
    """

    pick: Pick
    rows: dict[str, Tensor]
    goal: list[int] | None
    engine: Score
    scale: Score
    labels: list[str]
    chances: list[float | None]
    choices: list[list[tuple[str, float]]]

    @property
    def unit(self) -> str:
        """What the score is in units of; the output of a regression, which has no probabilities, is no logit."""
        regression = self.scale == "logit" and "other" not in self.rows and all(chance is None for chance in self.chances)
        return "value" if regression else self.scale


def asked_class(model: nn.Module, logits: Tensor, target: Any, against: int | str | None, score: Score | None) -> AskedClass:
    """The score of a class of each text, for the engine; arguments as in :func:`classes`."""
    names, many = ClassLabels.of(model, logits.shape[1]), logits.shape[1] > 1
    apart = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
    chances = logits.double().sigmoid() if apart else logits.double().softmax(1) if many else None  # None: a regression
    index = _indices(target, names, logits)
    scale: Score = score or ("logit" if chances is None or against is not None else "probability")
    rows, labels = {"index": torch.tensor(index)}, [names.names[i] for i in index]
    sure = [None if chances is None else float(chances[i, k]) for i, k in enumerate(index)]
    shown = [[] for _ in index] if chances is None else [list(zip(names.names, row, strict=True)) for row in chances.tolist()]
    if against is None:
        pick = _column if apart else _logits
        return AskedClass(pick, rows, None if apart or not many else index, scale, scale, labels, sure, shown)
    other = names.find(against)
    if other in index:
        raise TargetError(f"got against={against!r}, which is the explained class itself; expected another one.")
    rows["other"] = torch.full((len(index),), other)
    labels = [f"{label} against {names.names[other]}" for label in labels]
    return AskedClass(_Against(scale, apart), rows, None, "logit", scale, labels, [None] * len(index), shown)


def _logits(output: Any, rows: dict[str, Tensor]) -> Any:
    return output.logits if hasattr(output, "logits") else output[0]


def _column(output: Any, rows: dict[str, Tensor]) -> Tensor:
    """The logit of each row's own class, for models whose classes do not exclude each other."""
    return picked(_logits(output, rows), rows["index"], "logit")


@dataclass(frozen=True)
class _Against:
    """The score of each row's class minus the score of another class."""

    score: Score
    apart: bool

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        logits = _logits(output, rows)
        scale = self.score
        if self.apart and scale != "logit":
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits = wide.sigmoid() if scale == "probability" else torch.nn.functional.logsigmoid(wide)
            scale = "logit"
        return picked(logits, rows["index"], scale) - picked(logits, rows["other"], scale)


def _indices(target: Any, names: ClassLabels, logits: Tensor) -> list[int]:
    count = len(logits)
    if target is None:
        return [int(i) for i in logits.argmax(1)]
    if hasattr(target, "tolist"):  # of a tensor or an array
        target = target.tolist()
    if not isinstance(target, list | tuple):
        return [names.find(target)] * count
    if len(target) != count:
        raise TargetError(f"got {len(target)} targets for {count} texts; expected one for all or one for each.")
    return [names.find(one) for one in target]


def _states(output: Any, mask: Tensor) -> Tensor:
    states = output["last_hidden_state"] if "last_hidden_state" in output else main_tensor(output)
    if states.ndim != 3 or states.shape[:2] != mask.shape:
        raise ModelError(
            f"the model gives shape {tuple(states.shape)} for {tuple(mask.shape)} tokens; expected a vector for every token "
            "(last_hidden_state). Load it with AutoModel, or pass pooling= a function of output and mask."
        )
    return states
