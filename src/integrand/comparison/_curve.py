"""What a deletion or an insertion curve is: scores along an order of features, and their areas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._files import write
from ..errors import MissingExtraError, OptionError
from ._plain import finite
from ._ranks import Floats
from ._removal import CAUTION
from ._text import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

By = Literal["value", "magnitude"]
Kind = Literal["deletion", "insertion"]


@dataclass(frozen=True, repr=False, eq=False)
class PerturbationCurve:
    """Scores while features go from the input to the baseline (deletion) or come back from it (insertion).

    An area says nothing by itself: set it against those of random orders, which are measured along. And mind
    :attr:`caution`.

    Attributes:
        kind: ``deletion`` or ``insertion``.
        fractions: the share of features (or groups) that have been deleted, or inserted, (points,) from 0 to 1.
        scores: the score at each of them, (examples, points).
        random: the same in random orders, (orders, examples, points).
        units: how many features, or groups, there are.
        by: whether the largest values or the largest magnitudes come first.
        seed: of the random orders, and of the order among equals.
        targets: what was explained, one text per example.
        noise: by how much scores differ for no reason but rounding, (examples,); infinite where x is the
            baseline.
    """

    kind: Kind
    fractions: Floats
    scores: Floats
    random: Floats
    units: int
    by: By
    seed: int
    targets: tuple[str, ...]
    noise: Floats | None = None

    caution = CAUTION

    @property
    def relative(self) -> Floats:
        """Scores on a scale where everything removed is 0 and nothing removed is 1, (examples, points).

        NaN where removing everything does not change the score, but for rounding.
        """
        return self._relative(self.scores)

    @property
    def areas(self) -> Floats:
        """The area under the relative curve by the trapezoid rule, (examples,): low for a good deletion, high for insertion.

        Not bounded by 0 and 1: a score may rise above F(x) or fall below F(x').
        """
        return _area(self.fractions, self.relative)

    @property
    def random_areas(self) -> Floats:
        """The same for each random order, (orders, examples)."""
        return _area(self.fractions, self._relative(self.random))

    @property
    def ahead_of(self) -> Floats:
        """The share of random orders whose area is worse, (examples,); those that are as good count half."""
        sign = 1 if self.kind == "deletion" else -1
        worse = sign * (self.random_areas - self.areas)
        share = ((worse > 0) + 0.5 * (worse == 0)).mean(0)
        return np.where(np.isnan(self.areas), np.nan, share)

    def _relative(self, scores: Floats) -> Floats:
        first, last = self.scores[:, :1], self.scores[:, -1:]
        empty, full = (last, first) if self.kind == "deletion" else (first, last)
        change = full - empty
        out: Floats = np.divide(scores - empty, change, out=np.full(scores.shape, np.nan), where=np.abs(change) > self._still)
        return out

    @property
    def _still(self) -> Floats:
        """How large a difference is none, (examples, 1)."""
        return np.zeros((len(self.scores), 1)) if self.noise is None else self.noise[:, None]

    def _without_area(self, example: int) -> str:
        """Why an example has no area, in words; '' where it has one."""
        if not np.isnan(self.areas[example]):
            return ""
        every = np.concatenate([self.scores[None], self.random])[:, example]
        if np.ptp(every) <= self._still[example, 0]:
            return (
                f"[{example}] nothing changes: the score is {every[0, 0]:.4g} whatever is removed. Choose a baseline that "
                "differs from x, and a score that depends on it."
            )
        return (
            f"[{example}] nothing changes from end to end: F(x) = F(x') = {every[0, 0]:.4g}, so that there is no scale for an "
            "area. Look at scores, or choose another baseline."
        )

    def __str__(self) -> str:
        rows = [("", "area", "random orders", "ahead of")]
        for i, target in enumerate(self.targets):
            if np.isnan(self.areas[i]):
                rows.append((f"[{i}] {target}", "none", "none", "-"))
                continue
            chance = self.random_areas[:, i]
            spread = f"{chance.mean():.3f} ({chance.min():.3f} to {chance.max():.3f})"
            rows.append((f"[{i}] {target}", f"{self.areas[i]:.3f}", spread, f"{100 * self.ahead_of[i]:.0f}%"))
        wanted = "low" if self.kind == "deletion" else "high"
        head = (
            f"{self.kind} curve of {self.units} features in {len(self.fractions) - 1} steps, largest {self.by} first; "
            f"a {wanted} area is what it asks for, beside those of {len(self.random)} random orders"
        )
        still = [words for i in range(len(self.targets)) if (words := self._without_area(i))]
        return "\n".join([head, *aligned(rows, left=(0,)), *still, CAUTION])

    __repr__ = __str__

    def figure(
        self, *, name: str = "attribution", others: Mapping[str, PerturbationCurve] | None = None, title: str | None = None
    ) -> Figure:
        """Draw the curve over the band of the random orders, one panel per example, with the caution under it.

        Args:
            name: what the curve is called.
            others: further curves of the same kind and examples, by name.
            title: a heading.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        curves = {name: self} | dict(others or {})
        for other, curve in curves.items():
            if curve.kind != self.kind or len(curve.scores) != len(self.scores):
                raise OptionError(
                    f"others[{other!r}] is a {curve.kind} curve of {len(curve.scores)} example(s); expected {self.kind} and "
                    f"{len(self.scores)}, as this one."
                )
        try:
            from ._plots import draw_curves
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing a curve") from None
        return draw_curves(curves, title)

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write ``.json``, or a picture: ``.png``, ``.svg`` or ``.pdf`` with the options of :meth:`figure`."""
        return write(FilePath(path), options, picture=self.figure, numbers=self.to_dict)

    def to_dict(self) -> dict[str, Any]:
        """The numbers for JSON; what is NaN becomes None."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "fractions": self.fractions,
            "scores": self.scores,
            "random": self.random,
            "areas": self.areas,
            "random_areas": self.random_areas,
            "ahead_of": self.ahead_of,
            "units": self.units,
            "by": self.by,
            "seed": self.seed,
            "targets": list(self.targets),
            "caution": CAUTION,
        }
        return {name: finite(value) for name, value in out.items()}


def _area(fractions: Floats, curves: Floats) -> Floats:
    width = np.diff(fractions)
    out: Floats = ((curves[..., 1:] + curves[..., :-1]) / 2 * width).sum(-1)
    return out
