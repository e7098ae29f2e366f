"""The result of comparing methods: gaps, costs and rank correlations, and all of it as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from ..arrays import Floats
from ..attribution import Attribution
from ..errors import MissingExtraError
from ..files import write, write_text
from ..trees import flat, flatten
from ..words import finite, number, percent, seconds, share_of, short_repr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["each", "common"]

AGREEMENT = (
    "Methods that agree can be wrong together, and a method that stands alone can be right. Correlations say how alike the "
    "maps are, not which of them is true to the model."
)


def ranks(row: Floats) -> Floats:
    """The ranks of numbers, from 1 on; equal numbers share the mean of their ranks, and one NaN makes all ranks NaN.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    if np.isnan(row).any():
        return np.full(len(row), np.nan)
    _, inverse, counts = np.unique(row, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = (last - (counts - 1) / 2)[inverse.reshape(-1)]
    return shared


def rank_correlations(rows: Floats) -> Floats:
    """Spearman's rank correlation between every two of n rows of features, (n, features) to (n, n).

    NaN where a row is constant or holds NaN: such a row has no order to agree with.

    >>> rank_correlations(np.array([[1.0, 2.0, 3.0], [-1.0, -8.0, -9.0], [5.0, 5.0, 5.0]])).round(9).tolist()
    [[1.0, -1.0, nan], [-1.0, 1.0, nan], [nan, nan, nan]]
    """
    places = np.stack([ranks(row) for row in rows])
    centred = places - places.mean(1, keepdims=True)
    size = np.sqrt((centred**2).sum(1, keepdims=True))
    unit = np.divide(centred, size, out=np.full_like(centred, np.nan), where=size > 0)
    found: Floats = np.clip(unit @ unit.T, -1, 1)
    np.fill_diagonal(found, np.where(np.isnan(np.diagonal(found)), np.nan, 1.0))
    return found


def mean_over_examples(matrices: Floats) -> Floats:
    """The mean of matrices over the first dimension, leaving out NaN; NaN where all are."""
    known = ~np.isnan(matrices)
    count = known.sum(0)
    total = np.where(known, matrices, 0.0).sum(0)
    out: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return out


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method cost, over all examples.

    Attributes:
        gradients: gradient evaluations, each a forward and a backward pass.
        forwards: forward passes without a backward pass.
        seconds: as measured, on this machine and in this run.
    """

    gradients: int
    forwards: int
    seconds: float


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Several methods on one question, by name and in the order in which they were asked.

    Attributes:
        attributions: the attribution of each method.
        failures: the error message of each method that failed.
        seconds: the time that each method took.
        settings: each method with all its settings, those that failed too.
        meta: how the comparison was made, all strings.
    """

    attributions: Mapping[str, Attribution]
    failures: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that did not fail: the rows and columns of the correlations."""
        return tuple(self.attributions)

    @property
    def examples(self) -> int:
        """How many examples were explained."""
        return len(next(iter(self.attributions.values())).certificate)

    @cached_property
    def _flat_values(self) -> dict[str, Tensor]:
        """Every attribution as (examples, features) in float64."""
        out = {}
        for name, one in self.attributions.items():
            leaves = flatten(one.values, what="values")[1]
            out[name] = flat([leaf if one.batched else leaf[None] for leaf in leaves]).detach().double().cpu()
        return out

    @cached_property
    def changes(self) -> dict[str, Floats]:
        """The change of the score, F(x) - F(x'), per example and method: methods may choose a baseline of their own."""
        return {
            name: np.array([example.score - example.baseline_score for example in one.certificate])
            for name, one in self.attributions.items()
        }

    @cached_property
    def gaps(self) -> dict[str, Floats]:
        """The completeness gap of each method per example: the sum of its attributions minus F(x) - F(x')."""
        return {name: self._flat_values[name].sum(1).numpy() - self.changes[name] for name in self.names}

    @cached_property
    def relative_gaps(self) -> dict[str, Floats]:
        """The completeness gap as a share of the score's change; infinite where the score does not change and the sum does."""
        out = {}
        for name in self.names:
            gap, change = np.abs(self.gaps[name]), np.abs(self.changes[name])
            out[name] = np.where(gap == 0, 0.0, np.divide(gap, change, out=np.full_like(gap, np.inf), where=change > 0))
        return out

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """The cost of each method: gradients, forward passes and seconds."""
        return {
            name: Cost(one.certificate.gradients, one.certificate.forwards, self.seconds.get(name, math.nan))
            for name, one in self.attributions.items()
        }

    @cached_property
    def broken(self) -> dict[str, tuple[str, ...]]:
        """The axioms that each method does not promise to keep."""
        return {name: one.certificate.broken for name, one in self.attributions.items()}

    @cached_property
    def correlations(self) -> Floats:
        """Spearman's rank correlations between the attributions of every two methods, (examples, methods, methods).

        NaN for a map that is constant. Rows and columns are in the order of :attr:`names`.
        """
        return self._correlated(magnitudes=False)

    @cached_property
    def magnitude_correlations(self) -> Floats:
        """Rank correlations between magnitudes of attributions: whether methods agree on what matters, whatever the sign."""
        return self._correlated(magnitudes=True)

    def mean_correlations(self, *, magnitudes: bool = False) -> Floats:
        """Rank correlations averaged over the examples, (methods, methods); NaN is left out of the mean."""
        return mean_over_examples(self.magnitude_correlations if magnitudes else self.correlations)

    def _correlated(self, *, magnitudes: bool) -> Floats:
        rows = [self._flat_values[name].numpy() for name in self.names]
        stack = np.stack([np.abs(row) for row in rows] if magnitudes else rows, 1)
        return np.stack([rank_correlations(example) for example in stack])

    @property
    def sentence(self) -> str:
        """How many methods add up to the change of the score, and which are most alike, in one line."""
        off = [name for name in self.names if float(np.max(self.relative_gaps[name])) > 0.05]
        sums = "the sums of all are within 5% of the change" if not off else f"the sums of {len(off)} miss more than 5% of it"
        found = np.where(np.eye(len(self.names), dtype=bool), np.nan, self.mean_correlations())
        alike = ""
        if not np.isnan(found).all():
            i, j = np.unravel_index(np.nanargmax(found), found.shape)
            alike = f"; most alike: {self.names[i]} and {self.names[j]} (rank correlation {found[i, j]:.2f})"
        failed = f"; {len(self.failures)} gave nothing" if self.failures else ""
        return f"{len(self.names)} method{'s' * (len(self.names) != 1)} on {explained(self)}: {sums}{alike}{failed}"

    def __str__(self) -> str:
        return comparison_text(self)

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        from .comparison_report import fragment

        return fragment(self)

    def figure(
        self,
        *,
        image: Any = None,
        labels: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        title: str | None = None,
        scale: Scale = "each",
        signed: bool = False,
        share: float = 0.7,
        top: int = 12,
        most: int = 4,
    ) -> Figure:
        """Draw the methods side by side, with what each misses and took under it, and their rank correlations.

        Args:
            image: the photo or photos, as in :func:`integrand.render.figure`. Its pixels are then lit by the strength of
                their attributions; without it, or with ``signed``, heat maps are drawn.
            labels: what was explained, one text per example; by default the target's own words.
            features: names for bars, as in :func:`integrand.render.figure`.
            title: a heading over everything.
            scale: ``each`` map is scaled by its own mass, since a gradient and an attribution have different units; or
                all by a ``common`` limit. The picture says which.
            signed: heat maps even where there is a photo.
            share: the share of the attribution mass beyond which colours and brightness are clipped.
            top: how many features get a bar: those with the largest share of any method's attribution.
            most: how many examples are drawn.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from .comparison_report import MethodView, compose

        try:
            from .comparison_figure import draw
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing a comparison") from None
        return draw(self, compose(self, MethodView(image, labels, features, title, scale, signed, share, top, most)))

    def report(
        self,
        path: str | PathLike[str] | None = None,
        *,
        image: Any = None,
        labels: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        title: str | None = None,
        scale: Scale = "each",
        signed: bool = False,
        share: float = 0.7,
        top: int = 12,
        most: int = 4,
        command: str | None = None,
    ) -> str:
        """The comparison as one self-contained HTML page, which is returned and, with a path, written.

        The page loads nothing from anywhere and runs no script; every text in it is escaped. Needs no optional package.

        Args:
            path: where to write it to.
            image: the photo or photos, as in :meth:`figure`; so for all that is not described here.
            labels: what was explained, one text per example.
            features: names for bars.
            title: the heading.
            scale: ``each`` or ``common``.
            signed: heat maps even where there is a photo.
            share: the share of the attribution mass beyond which colours are clipped.
            top: how many features get a bar.
            most: how many examples are drawn.
            command: the command that makes the page again, to be shown in it.
        """
        from .comparison_report import MethodView, compose, page

        scene = compose(self, MethodView(image, labels, features, title, scale, signed, share, top, most))
        text = page(self, scene, command)
        if path is not None:
            write_text(FilePath(path), text)
        return text

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write the comparison: ``.html`` is a report, ``.png``, ``.svg`` and ``.pdf`` a picture, ``.json`` the numbers.

        Args:
            path: where to; the ending decides what is written. JSON holds everything but the maps themselves, which
                ``comparison.attributions[name].save`` keeps.
            **options: for pictures and reports, what :meth:`figure` and :meth:`report` take.
        """
        return write(FilePath(path), options, picture=self.figure, numbers=self.to_dict, report=self.report)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain lists and dicts for JSON; what is NaN or infinite becomes None."""
        methods = {}
        for name, one in self.attributions.items():
            cost = self.costs[name]
            methods[name] = {
                "settings": self.settings.get(name, ""),
                "gap": self.gaps[name],
                "relative_gap": self.relative_gaps[name],
                "score_change": self.changes[name],
                "status": [example.status.value for example in one.certificate],
                "error": np.array([example.error for example in one.certificate]),
                "gradients": cost.gradients,
                "forwards": cost.forwards,
                "seconds": cost.seconds,
                "no_promise_of": list(self.broken[name]),
            }
        found = {
            "methods": methods,
            "failures": dict(self.failures),
            "names": list(self.names),
            "rank_correlations": self.correlations,
            "rank_correlations_of_magnitudes": self.magnitude_correlations,
            "mean_rank_correlations": self.mean_correlations(),
            "mean_rank_correlations_of_magnitudes": self.mean_correlations(magnitudes=True),
            "meta": dict(self.meta),
        }
        out: dict[str, Any] = finite(found)
        return out


def comparison_text(comparison: Comparison) -> str:
    """A comparison as tables for a terminal: what each method misses and costs, how alike they are, and which failed."""
    several = comparison.examples > 1
    lines = [explained(comparison)]
    lines += aligned(method_table(comparison), left=(0, 8, 9))
    mean = f", mean of {comparison.examples} examples" if several else ""
    if len(comparison.names) > 1:
        lines += ["", f"rank correlations{mean} (values above the diagonal, magnitudes below)"]
        lines += aligned(_matrix_text(comparison), left=(0, 1))
    if comparison.failures:
        lines += ["", "gave nothing"]
        lines += [f"  {name}: {message}" for name, message in comparison.failures.items()]
    return "\n".join(lines)


def explained(comparison: Comparison) -> str:
    """What was explained and by how much the score changes, in words."""
    change = next(iter(comparison.changes.values()))
    if comparison.examples > 1:
        return f"{comparison.examples} examples; F(x) - F(x') from {change.min():.4g} to {change.max():.4g}"
    target = next(iter(comparison.attributions.values())).certificate[0].target
    return f"{target}; F(x) - F(x') = {change[0]:.4g}"


def method_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """What each method misses and costs as texts: a row of titles, then one row per method."""
    at_most = " (worst)" if comparison.examples > 1 else ""
    titles = (
        "method",
        f"sum misses{at_most}",
        f"of change{at_most}",
        "gradients",
        "forwards",
        "seconds",
        f"error{at_most}",
        "tolerance",
        "status",
        "no promise of",
    )
    return [titles, *(_method_row(comparison, name) for name in comparison.names)]


def correlation_text(matrix: Floats, i: int, j: int) -> str:
    """A correlation with two decimals; a dash where it is NaN.

    >>> correlation_text(np.array([[1.0, -0.004]]), 0, 1), correlation_text(np.array([[np.nan]]), 0, 0)
    ('0.00', '–')
    """
    value = matrix[i, j]
    return "–" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def aligned(rows: Sequence[tuple[str, ...]], *, left: tuple[int, ...]) -> list[str]:
    """Rows of texts as lines with columns of equal width; the columns in ``left`` are aligned left, others right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            part.ljust(wide) if k in left else part.rjust(wide) for k, (part, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def gap_text(comparison: Comparison, name: str, example: int) -> str:
    """What the attributions of a method add up to and what they miss of the score's change, in words."""
    change, gap = float(comparison.changes[name][example]), float(comparison.gaps[name][example])
    share = float(comparison.relative_gaps[name][example])
    return f"adds up to {number(change + gap, 3)} of {number(change, 3)} (misses {share_of(share)})"


def cost_text(comparison: Comparison, name: str, example: int) -> str:
    """What the attributions of a method cost and how its run ended, in words."""
    one = comparison.attributions[name].certificate[example]
    work = f"{one.gradients} gradient{'s' * (one.gradients != 1)}" if one.gradients else f"{one.forwards} forwards"
    whole = " for all" if comparison.examples > 1 else ""
    error = "" if one.error == 0 else f", error {percent(one.error)}"
    return f"{work} · {seconds(comparison.costs[name].seconds)}{whole} · {one.status.value}{error}"


def _method_row(comparison: Comparison, name: str) -> tuple[str, ...]:
    cost, certificate = comparison.costs[name], comparison.attributions[name].certificate
    gap = comparison.gaps[name]
    states = list(dict.fromkeys(example.status.value for example in certificate))
    return (
        name,
        f"{gap[np.argmax(np.abs(gap))]:+.1e}",
        share_of(float(comparison.relative_gaps[name].max())),
        str(cost.gradients),
        str(cost.forwards),
        seconds(cost.seconds).removesuffix(" s"),
        percent(certificate.error),
        "-" if np.isnan(certificate[0].tol) else percent(certificate[0].tol),
        " / ".join(states),
        ", ".join(comparison.broken[name]) or "-",
    )


def _matrix_text(comparison: Comparison) -> list[tuple[str, ...]]:
    values, sizes = comparison.mean_correlations(), comparison.mean_correlations(magnitudes=True)
    count = len(comparison.names)
    lines = [("", "", *(str(j + 1) for j in range(count)))]
    for i, name in enumerate(comparison.names):
        cells = [
            correlation_text(values, i, j) if j > i else correlation_text(sizes, i, j) if j < i else "·" for j in range(count)
        ]
        lines.append((str(i + 1), name, *cells))
    return lines
