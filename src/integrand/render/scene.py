"""What is drawn of a result, as plain data: panels of pixels or bars, example by example.

:mod:`integrand.render.figures` and :mod:`integrand.render.html` only lay it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import ExampleCertificate
from ..errors import InputError, OptionError
from ..trees import flatten
from ..words import percent
from .image.pixels import Array, laid, mass_limit, photo_pixels, remark, with_aim
from .image.views import VIEWS, Panel, Subject, View, views_of

Others = Mapping[str, Attribution | Tensor | Array]
"""Further attributions to draw next to the result, by name."""


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """The options of :func:`integrand.render.figure` and :func:`integrand.render.report`, which describe them."""

    image: Any = None
    others: Others | None = None
    labels: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    title: str | None = None
    share: float = 0.7
    heatmap: bool = True
    top: int = 16
    most: int = 8
    views: str | View | Sequence[str | View] | None = None
    notice: str = ""
    aim: Any = None

    def __post_init__(self) -> None:
        if self.views is not None:
            views_of(self.views)  # refuses names that are none
        mass_limit(np.zeros(0), self.share)  # refuses a share that makes no sense
        for name, value in (("top", self.top), ("most", self.most)):
            if value < 1:
                raise OptionError(f"got {name}={value!r}; expected at least 1")


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart of the strongest features of one attribution.

    Attributes:
        title: the name of the attribution.
        note: a remark on it, or ''.
        names: the names of the features, strongest first.
        values: the attributions of these features.
        hidden: how many further features there are.
        rest: the sum of the further features' attributions.
    """

    title: str
    note: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    hidden: int
    rest: float


@dataclass(frozen=True, slots=True)
class Example:
    """One example: its label, its certificate, and either panels or bars.

    ``together`` panels after the first belong side by side, the same view of several attributions; 0 if it does not matter.
    """

    label: str
    certificate: ExampleCertificate
    panels: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()
    together: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is drawn of a result."""

    title: str
    examples: tuple[Example, ...]
    left_out: int
    legend: str = ""


def compose(result: Attribution, options: PictureOptions) -> Scene:
    """Decide what is drawn of a result, and collect it."""
    leaves, sources = sources_of(result, options.others)
    arrays = next(iter(sources.values()))
    count = len(result.certificate)
    labels = labels_of(options.labels, [example.target for example in result.certificate])
    shown = range(min(count, options.most))
    panels: list[tuple[Panel, ...]] = [()] * len(shown)
    bars: list[tuple[Bars, ...]] = [()] * len(shown)
    if is_image(arrays, options.image) and options.features is None:
        photos = [None] * count if options.image is None else photos_of(options.image, count)
        changes = [example.score - example.baseline_score for example in result.certificate]
        rows = [subjects_of(sources, i, photos[i], changes[i], options.share, result) for i in shown]
        panels = [_aimed(_panels(subjects, options, note), options.aim) for subjects, note in rows]
    elif options.image is not None or options.views is not None:
        got = "views=" if options.image is None else "image="
        raise InputError(f"got {got} for values of shape {arrays[0].shape}; expected (examples, channels, height, width)")
    else:
        names = FeatureNames(leaves, tuple(array.shape[1:] for array in arrays), options.features)
        bars = [_bars(sources, i, names, options.top) for i in shown]
    together = len(sources) if options.image is not None and options.views is not None and len(sources) > 1 else 0
    examples = tuple(Example(labels[i], result.certificate[i], panels[i], bars[i], together) for i in shown)
    foot = "\n".join(filter(None, (options.notice, _legend(options.share) if panels[0] else "")))
    return Scene(options.title or "", examples, count - len(examples), foot)


def sources_of(result: Attribution, others: Others | None = None) -> tuple[tuple[str, ...], dict[str, list[Array]]]:
    """The names of the result's input tensors, and the arrays (examples, ...) of each attribution by the method's name."""
    leaves, arrays = arrays_of(result.values, result.batched)
    count = len(result.certificate)
    if any(len(array) != count for array in arrays):
        raise InputError(
            f"the values hold {len(arrays[0])} examples but the certificate {count}; expected one certificate per example"
        )
    sources = {result.meta.get("method", "attribution"): arrays}
    return leaves, sources | {name: _other(name, value, result, arrays) for name, value in (others or {}).items()}


def arrays_of(values: object, batched: bool) -> tuple[tuple[str, ...], list[Array]]:
    """The tensors of a tree of values as arrays with a leading example dimension, and their names."""
    tree, leaves = flatten(values, what="values")
    names = tree.keys or (("",) if tree.kind == "tensor" else tuple(f"input {i}" for i in range(tree.size)))
    return tuple(map(str, names)), [_array(leaf) if batched else _array(leaf)[None] for leaf in leaves]


def labels_of(given: str | Sequence[str] | None, targets: Sequence[str]) -> Sequence[str]:
    """One label per example: those given, else the explained targets in words."""
    if given is None:
        return targets
    labels = [given] if isinstance(given, str) else [str(label) for label in given]
    if len(labels) != len(targets):
        raise OptionError(f"got {len(labels)} labels for {len(targets)} examples; expected one each")
    return labels


def is_image(arrays: list[Array], image: object) -> bool:
    """Whether arrays hold attributions of images: (N, C, H, W), or (N, H, W) with a photo to draw on."""
    return len(arrays) == 1 and (arrays[0].ndim == 4 or (arrays[0].ndim == 3 and image is not None))


def subjects_of(
    sources: Mapping[str, list[Array]],
    i: int,
    photo: Array | None,
    change: float,
    share: float,
    result: Attribution | None = None,
) -> tuple[list[Subject], str]:
    """Example i of every attribution, ready to be drawn on its photo, and a remark on the photo."""
    rows = {name: arrays[0][i] if arrays[0].ndim == 4 else arrays[0][i][None] for name, arrays in sources.items()}
    pixels, note = (None, "") if photo is None else photo_pixels(photo, next(iter(rows.values())).shape[1:])
    for name, row in rows.items():
        if pixels is not None:
            laid(row.shape[1:], pixels.shape[:2], what=f"the photo under {name!r}")  # refuses other proportions
    # The first one is the result itself, which knows the errors of its sums.
    known = [result] + [None] * (len(rows) - 1)
    found = zip(rows.items(), known, strict=True)
    return [Subject(name, row, pixels, share, change, source, i) for (name, row), source in found], note


def photos_of(image: Any, count: int) -> list[Array]:
    """The photos as arrays, one per example."""
    several = isinstance(image, (list, tuple))
    photos = [_array(photo) for photo in image] if several else [_array(image)]
    if not several and photos[0].ndim == 4:
        photos = list(photos[0])
    if len(photos) != count:
        raise InputError(f"image holds {len(photos)} photos for {count} examples; expected one each, as a list or (N, C, H, W)")
    return photos


@dataclass(frozen=True, slots=True)
class FeatureNames:
    """The names of features: given, or made from their indices.

    Names given for the first dimension only stand for the sums over the other dimensions.
    """

    leaves: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    given: Sequence[str] | None

    def __post_init__(self) -> None:
        total, rows = sum(map(math.prod, self.shapes)), self.shapes[0][:1] if len(self.shapes) == 1 else ()
        if self.given is not None and len(self.given) not in (total, *rows):
            either = f"{total}, one per feature" + (f", or {rows[0]}, one per entry of the first dimension" if rows else "")
            raise OptionError(f"got {len(self.given)} names in features=; expected {either}")

    def row(self, arrays: list[Array], i: int) -> Array:
        """The attributions of example i, one number per name."""
        if tuple(array.shape[1:] for array in arrays) != self.shapes:
            raise InputError(
                f"others has {[array.shape[1:] for array in arrays]} features; expected {list(self.shapes)}, as the result"
            )
        flat = np.concatenate([np.asarray(array[i], float).reshape(-1) for array in arrays])
        return flat if self.given is None else flat.reshape(len(self.given), -1).sum(1)

    def __getitem__(self, k: int) -> str:
        if self.given is not None:
            return str(self.given[k])
        sizes = [math.prod(shape) for shape in self.shapes]
        which = int(np.searchsorted(np.cumsum(sizes), k, side="right"))
        leaf, shape = self.leaves[which], self.shapes[which]
        if leaf and sizes[which] == 1:
            return leaf
        index = [int(place) for place in np.unravel_index(k - sum(sizes[:which]), shape)]
        return f"{leaf or 'feature'} {index[0] if len(index) == 1 else index}"


def _legend(share: float) -> str:
    """A sentence on how brightness and colours are scaled."""
    if share == 1:
        return "Brightness and colours are full at the strongest pixel."
    return f"Brightness and colours are scaled to {percent(share)} of the attribution mass; pixels beyond are clipped."


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.to(torch.float64) if value.is_floating_point() else value
        array: Array = value.numpy()
        return array
    return np.asarray(value)


def _other(name: str, value: object, result: Attribution, like: list[Array]) -> list[Array]:
    if isinstance(value, Attribution):
        arrays = arrays_of(value.values, value.batched)[1]
    elif isinstance(value, np.ndarray):
        arrays = [value if result.batched else value[None]]
    else:
        arrays = arrays_of(value, result.batched)[1]
    # A map on another grid than the result's, as from a layer, still fits on the photo.
    if [(a.ndim, len(a)) for a in arrays] != [(a.ndim, len(a)) for a in like]:
        raise InputError(
            f"others[{name!r}] has shape {', '.join(str(a.shape) for a in arrays)}; "
            f"expected as many examples and dimensions as the result, {', '.join(str(a.shape) for a in like)}"
        )
    return arrays


def _panels(subjects: Sequence[Subject], options: PictureOptions, note: str = "") -> tuple[Panel, ...]:
    """The photo, if given, and every view of every attribution; by default figure 2 of the paper and a heat map."""
    main = subjects[0]
    shown = () if main.photo is None else (Panel("", note, np.rint(main.photo * 255).astype(np.uint8)),)
    if options.views is not None:
        return shown + tuple(view(subject) for view in views_of(options.views) for subject in subjects)
    if main.photo is None:
        return tuple(VIEWS["heatmap"](subject) for subject in subjects)
    drawn = tuple(VIEWS["scaled"](subject) for subject in subjects)
    return (*shown, *drawn, VIEWS["heatmap"](main)) if options.heatmap else (*shown, *drawn)


def _aimed(panels: tuple[Panel, ...], aim: Any) -> tuple[Panel, ...]:
    """The panels with a line around what is explained, where that is a part of the picture."""
    if aim is None:
        return panels
    inside = np.asarray(aim)
    for panel in panels:
        if inside.ndim != 2 or inside.dtype != bool:
            raise InputError(f"got aim of shape {inside.shape} and {inside.dtype}; expected bool of (height, width)")
        laid(inside.shape, panel.pixels.shape[:2], what="the picture under aim=")  # refuses other proportions
    return tuple(replace(panel, pixels=with_aim(panel.pixels, inside)) for panel in panels)


def _bars(sources: dict[str, list[Array]], i: int, names: FeatureNames, top: int) -> tuple[Bars, ...]:
    rows = {name: names.row(arrays, i) for name, arrays in sources.items()}
    main = next(iter(rows.values()))
    # Strongest first, what is not finite last.
    order = np.argsort(-np.where(np.isfinite(main), np.abs(main), -1.0), kind="stable")
    keep, rest = order[:top], order[top:]
    shown = tuple(names[int(k)] for k in keep)
    return tuple(
        Bars(name, remark(row), shown, tuple(row[keep].tolist()), len(rest), float(row[rest].sum()))
        for name, row in rows.items()
    )
