"""Candidates by name: the constructors, with what they need to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._trees import Tensors, flatten
from ..errors import OptionError
from ..functions import Function
from ._advice import FURTHER
from ._constructors import Values, black, blurred, gaussian, mean, spread, uniform, white
from ._settle import Baseline

Candidates = Mapping[str, Baseline | str] | Sequence[str] | None
"""Baselines by name, or names of constructors; None for the usual ones."""


@dataclass(frozen=True)
class Builtins:
    """The constructors by name, for one input."""

    x: Tensors
    low: Values
    high: Values
    draws: int
    seed: int
    batched: bool

    def __call__(self, name: str) -> Baseline:
        """The baseline of a name."""
        noise: dict[str, Any] = {"draws": self.draws, "seed": self.seed, "batched": self.batched}
        makers: dict[str, Callable[[], Baseline]] = {
            "zero": lambda: 0.0,
            "black": lambda: black(self.x, self.low),
            "white": lambda: white(self.x, self.high),
            "mean": lambda: mean(self.x),
            "blurred": lambda: blurred(self.x),
            "uniform": lambda: uniform(self.x, self.low, self.high, **noise),
            "gaussian": lambda: self._gaussian(noise),
        }
        if name not in makers:
            raise OptionError(
                f"got the candidate {name!r}; expected one of {', '.join(makers)}, or a dict of baselines by name."
            )
        return makers[name]()

    def _gaussian(self, noise: dict[str, Any]) -> Tensors:
        """Noise around the middle of the range, with a quarter of it as deviation, cut off at its ends."""
        if not isinstance(self.x, Tensor):
            ends = [float(end) for end in (self.low, self.high)]  # type: ignore[arg-type]
            return gaussian(self.x, (ends[1] - ends[0]) / 4, around=sum(ends) / 2, low=ends[0], high=ends[1], **noise)
        least, most = (spread(end, self.x.detach(), "low and high") for end in (self.low, self.high))
        return gaussian(self.x, (most - least) / 4, around=(least + most) / 2, low=least, high=most, **noise)


def asked_for(candidates: Candidates, x: Tensors, function: Function, make: Builtins) -> dict[str, Callable[[], Baseline]]:
    """What makes each candidate, by name; made one at a time, so that one that cannot be made stops no other."""
    leaves = flatten(x)[1]
    image = len(leaves) == 1 and leaves[0].ndim == 3 + function.batched
    if candidates is None:
        candidates = FURTHER if image else ("zero", "uniform", "gaussian")
    if isinstance(candidates, str):
        candidates = [candidates]
    if not isinstance(candidates, Mapping):
        candidates = {name: name for name in candidates}
    if not candidates:
        raise OptionError("got no candidates; expected at least one, or None for the usual ones.")

    def maker(given: Any) -> Callable[[], Baseline]:
        return (lambda: make(given)) if isinstance(given, str) else (lambda: given)

    return {str(name): maker(given) for name, given in candidates.items()}
