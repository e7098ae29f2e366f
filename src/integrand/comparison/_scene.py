"""What is drawn of a comparison, as data: one map or one set of bars per method and example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ..errors import InputError, OptionError
from ..render._pixels import Array, contribution, heat, lit, mass_limit, photo_pixels, remark, strength
from ..render._scene import Bars, Names, Panel, arrays_of, labels_of, photos_of
from ._comparison import Comparison, Scale


@dataclass(frozen=True, slots=True)
class View:
    """What :meth:`Comparison.figure` and :meth:`Comparison.report` take; described there."""

    image: Any = None
    labels: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    title: str | None = None
    scale: Scale = "each"
    signed: bool = False
    share: float = 0.7
    top: int = 12
    most: int = 4

    def __post_init__(self) -> None:
        mass_limit(np.zeros(0), self.share)  # refuses a share that makes no sense
        if self.scale not in get_args(Scale):
            raise OptionError(f"got scale={self.scale!r}; expected 'each' (every map by its own mass) or 'common'.")
        for name, value in (("top", self.top), ("most", self.most)):
            if value < 1:
                raise OptionError(f"got {name}={value!r}; expected at least 1")


@dataclass(frozen=True, slots=True)
class Row:
    """One example.

    Attributes:
        index: which example.
        label: what was explained.
        score: its score.
        photo: the photo, where there is one.
        maps: one panel per method, or
        bars: one set of bars per method, all of the same features.
        ends: the least and largest value of bars on a common scale; None where each has its own.
    """

    index: int
    label: str
    score: float
    photo: Panel | None
    maps: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is drawn, and what to know of its colours."""

    title: str
    rows: tuple[Row, ...]
    left_out: int
    legend: str


def compose(comparison: Comparison, view: View) -> Scene:
    """Decide what is drawn."""
    sources = {name: arrays_of(one.values, one.batched) for name, one in comparison.attributions.items()}
    leaves, first = next(iter(sources.values()))
    arrays = {name: found for name, (_, found) in sources.items()}
    certificate = next(iter(comparison.attributions.values())).certificate
    count = comparison.examples
    labels = labels_of(view.labels, [example.target for example in certificate])
    shown = range(min(count, view.most))
    image = (
        len(first) == 1 and view.features is None and (first[0].ndim == 4 or (first[0].ndim == 3 and view.image is not None))
    )
    if not image and view.image is not None:
        raise InputError(f"got image= for values of shape {first[0].shape}; expected (examples, channels, height, width)")
    rows: list[Row] = []
    photos = photos_of(view.image, count) if view.image is not None else None
    names = None if image else Names(leaves, tuple(array.shape[1:] for array in first), view.features)
    for i in shown:
        if names is not None:
            bars, ends = _bars(arrays, i, names, view)
            rows.append(Row(i, labels[i], certificate[i].score, None, (), bars, ends))
        else:
            photo, maps = _maps(arrays, i, None if photos is None else photos[i], view)
            rows.append(Row(i, labels[i], certificate[i].score, photo, maps))
    return Scene(view.title or "", tuple(rows), count - len(rows), _legend(view, maps=image, lit_up=photos is not None))


def titles(comparison: Comparison) -> list[str]:
    """Names with the numbers that the columns of the correlations go by."""
    return [f"{i + 1}  {name}" for i, name in enumerate(comparison.names)]


def _maps(arrays: dict[str, list[Array]], i: int, photo: Array | None, view: View) -> tuple[Panel | None, tuple[Panel, ...]]:
    rows = {name: found[0][i] if found[0].ndim == 4 else found[0][i][None] for name, found in arrays.items()}
    signed = view.signed or photo is None
    values = {name: contribution(row) if signed else strength(row) for name, row in rows.items()}
    together = mass_limit(np.concatenate([value.ravel() for value in values.values()]), view.share)
    limits = {name: together if view.scale == "common" else mass_limit(value, view.share) for name, value in values.items()}
    drawn, pixels = None, None
    if photo is not None:
        pixels, note = photo_pixels(photo, next(iter(rows.values())).shape[1:])
        drawn = Panel("", note, np.rint(pixels * 255).astype(np.uint8))
    panels = []
    for name, value in values.items():
        limit = limits[name]
        if signed or pixels is None:
            panels.append(Panel(name, remark(value) or "red raises, blue lowers", heat(value, limit), limit))
        else:
            said = remark(contribution(rows[name]))
            note = said if said == "all zero" else "; ".join(filter(None, (f"full brightness from {limit:.2g} on", said)))
            panels.append(Panel(name, note, lit(pixels, value, limit)))
    return drawn, tuple(panels)


def _bars(
    arrays: dict[str, list[Array]], i: int, names: Names, view: View
) -> tuple[tuple[Bars, ...], tuple[float, float] | None]:
    rows = {name: names.row(found, i) for name, found in arrays.items()}
    # Methods differ in units, so what counts is a feature's share of its method's attribution, in the method that rates
    # it highest: otherwise what only one of them sees would not be drawn.
    shares = []
    for row in rows.values():
        size = np.where(np.isfinite(row), np.abs(row), 0.0)
        shares.append(size / (size.sum() or 1.0))
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    keep, rest = order[: view.top], order[view.top :]
    shown = tuple(names[int(k)] for k in keep)
    bars = tuple(
        Bars(name, remark(row), shown, tuple(row[keep].tolist()), len(rest), float(row[rest].sum()))
        for name, row in rows.items()
    )
    if view.scale == "each":
        return bars, None
    drawn = np.nan_to_num(np.array([bar.values for bar in bars]), nan=0.0, posinf=0.0, neginf=0.0)
    return bars, (min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0))


def _legend(view: View, *, maps: bool, lit_up: bool) -> str:
    each = view.scale == "each"
    if not maps:
        return (
            "Bars of each method are on a scale of their own: lengths can be compared within a method, not between methods."
            if each
            else "All bars are on one common scale."
        )
    what = "Brightness: magnitudes of a pixel's attributions, summed over its colours"
    if view.signed or not lit_up:
        what = (
            "Colour: a pixel's attributions summed with their signs, red where they raise the score, blue where they lower it"
        )
    beyond = f"clipped where the pixels below hold {100 * view.share:.3g}% of the attribution"
    whose = "of that map: every map is on a scale of its own" if each else "of all maps together: they are on one common scale"
    return f"{what}; {beyond} {whose}."
