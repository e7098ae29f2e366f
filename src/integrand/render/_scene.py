"""What is drawn, as data: panels of pixels or bars, example by example. The figure and the page only lay it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._trees import flatten
from ..attribution import Attribution, ExampleCertificate
from ..errors import InputError, OptionError
from ._pixels import Array, contribution, heat, lit, mass_limit, photo_pixels, remark, strength

Others = Mapping[str, Attribution | Tensor | Array]
"""Further attributions to draw next to the result, by name."""


@dataclass(frozen=True, slots=True)
class Options:
    """What :func:`integrand.render.figure` and :func:`integrand.render.report` take; described there."""

    image: Any = None
    others: Others | None = None
    labels: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    title: str | None = None
    share: float = 0.7
    heatmap: bool = True
    top: int = 16
    most: int = 8

    def __post_init__(self) -> None:
        mass_limit(np.zeros(0), self.share)  # refuses a share that makes no sense
        for name, value in (("top", self.top), ("most", self.most)):
            if value < 1:
                raise OptionError(f"got {name}={value!r}; expected at least 1")


@dataclass(frozen=True, slots=True)
class Panel:
    """One square of an image's row.

    Attributes:
        title: what it shows.
        note: what to know of it, or ''.
        pixels: (H, W, 3) uint8.
        limit: for a heat map, the score at the ends of its colours.
    """

    title: str
    note: str
    pixels: Array
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """The strongest features of one attribution.

    Attributes:
        title: whose attribution.
        note: what to know of it, or ''.
        names: of the features, strongest first.
        values: their attributions.
        hidden: how many further features there are.
        rest: what those add up to.
    """

    title: str
    note: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    hidden: int
    rest: float


@dataclass(frozen=True, slots=True)
class Example:
    """One example: its label, its certificate, and either panels or bars."""

    label: str
    certificate: ExampleCertificate
    panels: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is drawn of a result."""

    title: str
    examples: tuple[Example, ...]
    left_out: int


def compose(result: Attribution, options: Options) -> Scene:
    """Decide what is drawn of a result."""
    leaves, arrays = arrays_of(result.values, result.batched)
    count = len(result.certificate)
    if any(len(array) != count for array in arrays):
        raise InputError(
            f"the values hold {len(arrays[0])} examples but the certificate {count}; expected one certificate per example"
        )
    sources = {result.meta.get("method", "attribution"): arrays}
    sources |= {name: _other(name, value, result, arrays) for name, value in (options.others or {}).items()}
    labels = labels_of(options.labels, [example.target for example in result.certificate])
    shown = range(min(count, options.most))
    panels: list[tuple[Panel, ...]] = [()] * len(shown)
    bars: list[tuple[Bars, ...]] = [()] * len(shown)
    if _is_image(arrays, options):
        photos = [None] * count if options.image is None else photos_of(options.image, count)
        panels = [_panels(sources, i, photos[i], options) for i in shown]
    elif options.image is not None:
        raise InputError(f"got image= for values of shape {arrays[0].shape}; expected (examples, channels, height, width)")
    else:
        names = Names(leaves, tuple(array.shape[1:] for array in arrays), options.features)
        bars = [_bars(sources, i, names, options.top) for i in shown]
    examples = tuple(Example(labels[i], result.certificate[i], panels[i], bars[i]) for i in shown)
    return Scene(options.title or "", examples, count - len(examples))


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.to(torch.float64) if value.is_floating_point() else value
        array: Array = value.numpy()
        return array
    return np.asarray(value)


def arrays_of(values: object, batched: bool) -> tuple[tuple[str, ...], list[Array]]:
    """The leaves with their names, each with a leading dimension that counts examples."""
    tree, leaves = flatten(values, what="values")
    names = tree.keys or (("",) if tree.kind == "tensor" else tuple(f"input {i}" for i in range(tree.size)))
    return tuple(map(str, names)), [_array(leaf) if batched else _array(leaf)[None] for leaf in leaves]


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


def labels_of(given: str | Sequence[str] | None, targets: Sequence[str]) -> Sequence[str]:
    """One label per example: those given, else the targets in words."""
    if given is None:
        return targets
    labels = [given] if isinstance(given, str) else [str(label) for label in given]
    if len(labels) != len(targets):
        raise OptionError(f"got {len(labels)} labels for {len(targets)} examples; expected one each")
    return labels


def _is_image(arrays: list[Array], options: Options) -> bool:
    if len(arrays) != 1 or options.features is not None:
        return False
    return arrays[0].ndim == 4 or (arrays[0].ndim == 3 and options.image is not None)


def _panels(sources: dict[str, list[Array]], i: int, photo: Array | None, options: Options) -> tuple[Panel, ...]:
    rows = {name: arrays[0][i] if arrays[0].ndim == 4 else arrays[0][i][None] for name, arrays in sources.items()}
    if photo is None:
        return tuple(_heat(name, row, options.share) for name, row in rows.items())
    main, first = next(iter(rows.items()))
    pixels, note = photo_pixels(photo, first.shape[1:])
    panels = [Panel("", note, np.rint(pixels * 255).astype(np.uint8))]
    for name, row in rows.items():
        values = strength(row)
        note = remark(contribution(row)) or "brighter = stronger"
        panels.append(Panel(name, note, lit(pixels, values, mass_limit(values, options.share))))
    if options.heatmap:
        panels.append(_heat(f"{main}, signed", first, options.share, "red raises, blue lowers the score"))
    return tuple(panels)


def _heat(title: str, row: Array, share: float, hint: str = "") -> Panel:
    values = contribution(row)
    limit = mass_limit(values, share)
    return Panel(title, remark(values) or hint, heat(values, limit), limit)


def photos_of(image: Any, count: int) -> list[Array]:
    """One photo per example."""
    several = isinstance(image, (list, tuple))
    photos = [_array(photo) for photo in image] if several else [_array(image)]
    if not several and photos[0].ndim == 4:
        photos = list(photos[0])
    if len(photos) != count:
        raise InputError(f"image holds {len(photos)} photos for {count} examples; expected one each, as a list or (N, C, H, W)")
    return photos


@dataclass(frozen=True, slots=True)
class Names:
    """Names of features: given, or made from their place. Given for the first dimension only, the rest is summed."""

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


def _bars(sources: dict[str, list[Array]], i: int, names: Names, top: int) -> tuple[Bars, ...]:
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
