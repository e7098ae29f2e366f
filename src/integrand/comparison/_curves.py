"""Deletion and insertion curves: how the score moves while features are taken out, or put in, the strongest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from .._trees import Tensors
from ..attribution import Attribution
from ..baselines import Baseline
from ..errors import MissingExtraError, OptionError
from ..functions import Score, Target
from ._files import save
from ._plain import finite
from ._ranks import Floats
from ._removal import CAUTION, Removal, at_least, removing
from ._settings import Settings
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
    """

    kind: Kind
    fractions: Floats
    scores: Floats
    random: Floats
    units: int
    by: By
    seed: int
    targets: tuple[str, ...]

    caution = CAUTION

    @property
    def relative(self) -> Floats:
        """Scores on a scale where everything removed is 0 and nothing removed is 1, (examples, points).

        NaN where removing everything does not change the score.
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
        out: Floats = np.divide(scores - empty, change, out=np.full(scores.shape, np.nan), where=change != 0)
        return out

    def __str__(self) -> str:
        rows = [("", "area", "random orders", "ahead of")]
        for i, target in enumerate(self.targets):
            chance = self.random_areas[:, i]
            spread = f"{chance.mean():.3f} ({chance.min():.3f} to {chance.max():.3f})"
            rows.append((f"[{i}] {target}", f"{self.areas[i]:.3f}", spread, f"{100 * self.ahead_of[i]:.0f}%"))
        wanted = "low" if self.kind == "deletion" else "high"
        head = (
            f"{self.kind} curve of {self.units} features in {len(self.fractions) - 1} steps, largest {self.by} first; "
            f"a {wanted} area is what it asks for, beside those of {len(self.random)} random orders"
        )
        return "\n".join([head, *aligned(rows, left=(0,)), CAUTION])

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
        return save(self, FilePath(path), options)

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


def deletion_curve(
    model: Callable[..., Any],
    x: Tensors,
    attribution: Attribution | Tensors,
    baseline: Baseline = None,
    *,
    steps: int = 20,
    orders: int = 10,
    by: By = "value",
    seed: int = 0,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    **settings: Unpack[Settings],
) -> PerturbationCurve:
    """How the score falls while features are set to the baseline, those with the largest attribution first.

    What it measures is the model as much as the method: inputs with features missing are unlike what the network was
    trained on, so that a poor curve may come of a poor attribution or of a model that behaves oddly off its data, and
    nothing here tells which. "Missing" means set to the baseline, which is a choice of its own. Random orders are measured
    along, since an area means nothing alone.

    >>> import torch
    >>> weights = torch.tensor([3.0, 2.0, 1.0])
    >>> curve = deletion_curve(lambda x: x @ weights, torch.ones(1, 3), weights[None], steps=3)
    >>> curve.scores.tolist()
    [[6.0, 3.0, 1.0, 0.0]]

    Args:
        model: an ``nn.Module`` in eval mode, or any callable of tensors.
        x: the input.
        attribution: a result, or values in the structure of x; with ``groups``, one number per group will do, and
            numbers per feature are added up. Order among equals is random.
        baseline: what features are set to; zero if not given. Scores of several baselines are averaged.
        steps: how many times features are removed, in equal parts.
        orders: how many random orders to measure along.
        by: ``value``: what raises the score most goes first; ``magnitude``: what matters most, whatever its sign.
        seed: of the random orders.
        target: the output to explain; None means the only output, else the top class of x.
        score: logit, probability or log-probability.
        groups: integer labels in the structure of one example: what is removed together (for an image, the same label for
            all colours of a pixel: ``torch.arange(H * W).reshape(H, W)``); -1 always stays.
        **settings: how the model is called; see :class:`Settings`.
    """
    with removing(model, x, baseline, target, score, groups, **settings) as removal:
        return _curve("deletion", removal, attribution, steps, orders, by, seed)


def insertion_curve(
    model: Callable[..., Any],
    x: Tensors,
    attribution: Attribution | Tensors,
    baseline: Baseline = None,
    *,
    steps: int = 20,
    orders: int = 10,
    by: By = "value",
    seed: int = 0,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    **settings: Unpack[Settings],
) -> PerturbationCurve:
    """How the score rises while features go from the baseline to the input, those with the largest attribution first.

    What it measures is the model as much as the method, as with :func:`deletion_curve`: an input that is mostly baseline is
    nothing the network was trained on, and the baseline is a choice of its own.

    >>> import torch
    >>> weights = torch.tensor([3.0, 2.0, 1.0])
    >>> curve = insertion_curve(lambda x: x @ weights, torch.ones(1, 3), weights[None], steps=3)
    >>> curve.scores.tolist()
    [[0.0, 3.0, 5.0, 6.0]]

    Args:
        model: as in :func:`deletion_curve`, and so for what is not described here.
        x: the input.
        attribution: a result, or values in the structure of x, or one number per group.
        baseline: where features come from; zero if not given.
        steps: how many times features are inserted, in equal parts.
        orders: how many random orders to measure along.
        by: ``value`` or ``magnitude``.
        seed: of the random orders.
        target: the output to explain.
        score: logit, probability or log-probability.
        groups: what is inserted together.
        **settings: how the model is called; see :class:`Settings`.
    """
    with removing(model, x, baseline, target, score, groups, **settings) as removal:
        return _curve("insertion", removal, attribution, steps, orders, by, seed)


def _curve(
    kind: Kind, removal: Removal, attribution: Attribution | Tensors, steps: int, orders: int, by: By, seed: int
) -> PerturbationCurve:
    at_least("steps", steps, 1)
    at_least("orders", orders, 1)
    if by not in get_args(By):
        raise OptionError(f"got by={by!r}; expected 'value' or 'magnitude'.")
    generator = np.random.default_rng(seed)
    values = removal.values_of(attribution)
    counts = np.unique(np.rint(np.linspace(0, removal.units, min(steps, removal.units) + 1)).astype(np.int64))
    first = _measured(kind, removal, _places(np.abs(values) if by == "magnitude" else values, generator), counts)
    whole = first[:, 0] if kind == "deletion" else first[:, -1]
    removal.check_rows(whole)
    chance = [_measured(kind, removal, _places(np.zeros_like(values), generator), counts) for _ in range(orders)]
    words = removal.problem.function.scorer.words
    return PerturbationCurve(kind, counts / removal.units, first, np.stack(chance), removal.units, by, seed, words)


def _places(values: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
    """The place of every unit in its example's order, largest first, equal ones shuffled, (examples, units)."""
    order = np.lexsort((generator.random(values.shape), -values), axis=-1)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(values.shape[1])[None], 1)
    return places


def _measured(kind: Kind, removal: Removal, places: NDArray[np.int64], counts: NDArray[np.int64]) -> Floats:
    """Scores after so many units of each example's order, (examples, points)."""
    examples = np.repeat(np.arange(len(places)), len(counts))
    steps = np.tile(counts, len(places))

    def removed(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        changed: NDArray[np.bool_] = places[examples[rows]] < steps[rows, None]
        return changed if kind == "deletion" else ~changed

    return removal.scores(examples, removed).reshape(len(places), len(counts))


def _area(fractions: Floats, curves: Floats) -> Floats:
    width = np.diff(fractions)
    out: Floats = ((curves[..., 1:] + curves[..., :-1]) / 2 * width).sum(-1)
    return out
