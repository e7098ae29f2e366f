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
from ._ask import Ask
from ._result import Explained
from ._run import Pick, picked

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
    ask: Ask, logits: Tensor, *, target: ClassTarget, against: int | str | None, score: Score | None
) -> tuple[Explained, ...]:
    """Explain a class of each text; see :func:`integrand.text.explain`.

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
    asked = _asked(ask.model, logits, target, against, score)
    return ask.explained(
        asked.pick,
        rows=asked.rows,
        target=asked.goal,
        score=asked.engine,
        labels=asked.labels,
        words=[f"{label} ({asked.scale})" for label in asked.labels],
        chances=asked.chances,
        meta={"score": asked.scale},
    )


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
