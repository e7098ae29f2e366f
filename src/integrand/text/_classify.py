"""Sequence classifiers: which words speak for a class, or for one class rather than another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError, TargetError
from ..functions import Score
from ._embed import Fill, Slot
from ._encode import Encoded
from ._result import Explained, explained
from ._run import Pick, Runs, fixed_of, integrate, picked

ClassTarget = int | str | Sequence[int | str] | Callable[[Any], Tensor] | None


@dataclass(frozen=True)
class Names:
    """The names of a classifier's outputs.

    Attributes:
        names: by index.
    """

    names: tuple[str, ...]

    @staticmethod
    def of(model: nn.Module, count: int) -> Names:
        """From the model's config; LABEL_0 and so on are what it says where nobody gave names."""
        known: dict[Any, Any] = getattr(getattr(model, "config", None), "id2label", None) or {}
        return Names(tuple(str(known.get(i, known.get(str(i), f"class {i}"))) for i in range(count)))

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
    model: nn.Module,
    tokenizer: Any,
    encoded: Encoded,
    slots: Sequence[Slot],
    logits: Tensor,
    *,
    target: ClassTarget,
    against: int | str | None,
    score: Score | None,
    baseline: Fill | Sequence[Fill],
    tol: float,
    options: dict[str, Any],
) -> tuple[Explained, ...]:
    """Explain a class of each text; see :func:`integrand.text.explain`.

    Args:
        model: the classifier.
        tokenizer: its tokenizer.
        encoded: the texts.
        slots: where they are looked up.
        logits: (N, classes) at the input.
        target: the classes; None for the top ones.
        against: the class to compare with.
        score: the scale; None for the default.
        baseline: the baseline.
        tol: the tolerance.
        options: of the engine.
    """
    how: dict[str, Any] = {"given": encoded.given, "fill": baseline, "tokenizer": tokenizer, "tol": tol, "options": options}
    ids = {"input_ids": encoded.ids}
    meta = {"model": type(model).__name__, "baseline": baseline_words(baseline)}
    if callable(target) and not isinstance(target, Tensor):
        if against is not None or score not in (None, "logit"):
            raise OptionError("got against= or score= with a target function; expected the function to do that itself.")
        runs = Runs(model, lambda output, rows: output, fixed_of(model))
        values, found = integrate(runs, ids, slots, rows={}, target=target, **how)
        trio = zip(encoded.pieces, values, found, strict=True)
        return tuple(explained(p, v, c, label=c.target, probability=None, meta=meta) for p, v, c in trio)
    asked = _asked(model, logits, target, against, score)
    runs = Runs(model, asked.pick, fixed_of(model))
    words = [f"{label} ({asked.scale})" for label in asked.labels]
    values, found = integrate(runs, ids, slots, rows=asked.rows, target=asked.goal, score=asked.engine, words=words, **how)
    meta["score"] = asked.scale
    each = zip(encoded.pieces, values, found, asked.labels, asked.chances, strict=True)
    return tuple(explained(p, v, c, label=label, probability=chance, meta=meta) for p, v, c, label, chance in each)


@dataclass(frozen=True)
class _Asked:
    """What is explained: the score of each text, and how it is called.

    Attributes:
        pick: from the model's output to what the engine scores.
        rows: what it needs to know of each text.
        goal: for the engine, the class of each text, where it gets all of them.
        engine: the engine's scale; ``logit`` where ``pick`` has done everything.
        scale: the scale itself.
        labels: in words.
        chances: the probability of each, where there is one.
    """

    pick: Pick
    rows: dict[str, Tensor]
    goal: list[int] | None
    engine: Score
    scale: Score
    labels: list[str]
    chances: list[float | None]


def _asked(model: nn.Module, logits: Tensor, target: Any, against: int | str | None, score: Score | None) -> _Asked:
    names, many = Names.of(model, logits.shape[1]), logits.shape[1] > 1
    apart = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
    chances = logits.double().sigmoid() if apart else logits.double().softmax(1) if many else None  # None: a regression
    index = _indices(target, names, logits)
    scale: Score = score or ("logit" if chances is None or against is not None else "probability")
    rows, labels = {"index": torch.tensor(index)}, [names.names[i] for i in index]
    sure = [None if chances is None else float(chances[i, k]) for i, k in enumerate(index)]
    if against is None:
        return _Asked(_column if apart else _logits, rows, None if apart or not many else index, scale, scale, labels, sure)
    other = names.find(against)
    if other in index:
        raise TargetError(f"got against={against!r}, which is the explained class itself; expected another one.")
    rows["other"] = torch.full((len(index),), other)
    labels = [f"{label} against {names.names[other]}" for label in labels]
    return _Asked(_Against(scale, apart), rows, None, "logit", scale, labels, [None] * len(index))


def _logits(output: Any, rows: dict[str, Tensor]) -> Any:
    return output.logits if hasattr(output, "logits") else output[0]


def _column(output: Any, rows: dict[str, Tensor]) -> Tensor:
    """The logit of each row's own class, where classes do not exclude each other."""
    return picked(_logits(output, rows), rows["index"], "logit")


@dataclass(frozen=True)
class _Against:
    """The score of each row's class minus that of another one."""

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


def _indices(target: Any, names: Names, logits: Tensor) -> list[int]:
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


def baseline_words(baseline: Fill | Sequence[Fill]) -> str:
    """A baseline in words, for a page."""
    if isinstance(baseline, str):
        known = {"zero": "zero embeddings", "pad": "padding tokens", "mask": "mask tokens", "mean": "the mean embedding"}
        return f"{known.get(baseline, baseline)}, markers kept"
    if isinstance(baseline, int):
        return f"token {baseline}, markers kept"
    if isinstance(baseline, Tensor):
        return "an embedding of the user's, markers kept"
    return "; ".join(baseline_words(one) for one in baseline)
