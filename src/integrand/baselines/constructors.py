"""Baselines to choose from: made from the input (black, white, its mean colour, blurred, noise) or drawn from data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, OptionError
from ..trees import Leaves, Tensors, Tree, flatten, matched

Values = float | Sequence[float] | Tensor
"""A value in the space of x: a number, one number per channel, or a tensor that broadcasts to x, such as (C, 1, 1)."""


def black(x: Tensors, low: Values = 0.0) -> Tensors:
    """A black image, the paper's baseline for object recognition (section 6.1) and for retinas (6.2).

    Right where black means that nothing is there. Dark things cannot be credited: a pixel that equals its baseline gets
    zero whatever the model makes of it. For text and other embeddings the zero embedding has this part; leave the baseline
    out for it.

    >>> black(torch.ones(3, 1, 2), low=(-2.0, -1.5, -1.0))[:, 0, 0]
    tensor([-2.0000, -1.5000, -1.0000])

    Args:
        x: the input, (C, H, W) or (N, C, H, W); any other shape, tuple or dict of tensors is filled in the same way.
        low: black in the space of x, which for most networks is not 0: (0 - mean) / std. A number, one per channel, or a
            tensor that broadcasts to x.

    Returns:
        A baseline in the structure and shape of x.
    """
    return _each_tensor(x, lambda leaf: filled_like(low, leaf, "low"))


def white(x: Tensors, high: Values = 1.0) -> Tensors:
    """A white image: what black is for dark things on a light ground, such as ink on paper.

    Where things may be dark or light, average the two: ``[black(x), white(x)]``.

    Args:
        x: the input.
        high: white in the space of x, as ``low`` of :func:`black`.

    Returns:
        A baseline in the structure and shape of x.
    """
    return _each_tensor(x, lambda leaf: filled_like(high, leaf, "high"))


def mean(x: Tensors, of: Data | None = None) -> Tensors:
    """The mean colour, of each image itself or of a training set.

    Right where neither black nor white is neutral: it keeps the light of the photo and has no edges. Without ``of``, every
    image has a baseline of its own. For tables, the mean of the training set is the row that says nothing in particular.

    >>> mean(torch.arange(4.0).reshape(1, 2, 2))
    tensor([[[1.5000, 1.5000],
             [1.5000, 1.5000]]])

    Args:
        x: the input.
        of: a training set, as in :func:`drawn`: the baseline is its mean colour (images, of any size) or its mean example
            (anything else).

    Returns:
        A baseline in the structure and shape of x.
    """
    if of is not None:
        return _mean_of(x, of)

    def colour(leaf: Tensor) -> Tensor:
        if leaf.ndim < 3:
            raise InputError(
                f"got x of shape {tuple(leaf.shape)} for its mean colour; expected images, (C, H, W) or (N, C, H, W). For "
                "other inputs pass of=, the training set to take the mean of."
            )
        return leaf.mean((-2, -1), keepdim=True).expand(leaf.shape).clone()

    return _each_tensor(x, colour)


def blurred(x: Tensors, sigma: float | None = None) -> Tensors:
    """The image itself, blurred until what is in it cannot be recognised.

    Right where the question is what the *details* do, and colours and light are to be kept: the baseline is a photo of the
    same scene out of focus. With too little blur the class is still there; :func:`diagnose` shows it.

    Args:
        x: images, (C, H, W) or (N, C, H, W).
        sigma: the standard deviation of the Gaussian in pixels; a tenth of the longer side if not given. The image is
            reflected at its borders.

    Returns:
        A baseline in the structure and shape of x.
    """
    if sigma is not None and not (math.isfinite(sigma) and sigma > 0):
        raise OptionError(f"got sigma={sigma!r}; expected a positive number of pixels, or None for a tenth of the longer side.")

    def blur(leaf: Tensor) -> Tensor:
        if leaf.ndim < 3:
            raise InputError(f"got x of shape {tuple(leaf.shape)} to blur; expected images, (C, H, W) or (N, C, H, W).")
        height, width = leaf.shape[-2:]
        width_of = max(height, width) / 10 if sigma is None else sigma
        wide = torch.promote_types(leaf.dtype, torch.float32)
        down, across = (_blur_matrix(size, width_of).to(leaf.device, wide) for size in (height, width))
        return (down @ leaf.to(wide) @ across.T).to(leaf.dtype)

    return _each_tensor(x, blur)


def time_mean(x: Tensors, *, dim: int = -2) -> Tensors:
    """The mean of a series over its times, channel by channel: a signal that stays where it is on average.

    Right where the question is what the *shape* of a signal does: its level is kept. What a model makes of the level itself
    gets no credit; for that, take zero or another series.

    >>> time_mean(torch.tensor([[1.0, 4.0], [3.0, 6.0]]))
    tensor([[2., 5.],
            [2., 5.]])

    Args:
        x: series, (time, channels) or (N, time, channels).
        dim: the dimension of the times; -1 for (channels, time).

    Returns:
        A baseline in the structure and shape of x.
    """

    def levelled(leaf: Tensor) -> Tensor:
        return leaf.double().mean(_time_of(leaf, dim), keepdim=True).expand(leaf.shape).to(leaf.dtype)

    return _each_tensor(x, levelled)


def trend(x: Tensors, *, times: Tensor | Sequence[float] | None = None, dim: int = -2) -> Tensors:
    """The straight line that fits a series best (least squares), channel by channel.

    Right for series that grow or fall, as forecasters see them: level and growth are kept, and what is explained is all that
    departs from the line, seasons among it. A series that is a straight line has itself as its trend, and nothing to explain.

    >>> trend(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor([[-0.5000],
            [ 2.0000],
            [ 4.5000]])

    Args:
        x: series, (time, channels) or (N, time, channels).
        times: when each value was taken, (time,); by default at equal steps.
        dim: the dimension of the times; -1 for (channels, time).

    Returns:
        A baseline in the structure and shape of x.
    """

    def fitted(leaf: Tensor) -> Tensor:
        wide = leaf.double().movedim(_time_of(leaf, dim), -1)
        count = wide.shape[-1]
        given = torch.arange(count) if times is None else torch.as_tensor(times)
        if given.shape != (count,):
            raise InputError(f"got {tuple(given.shape)} times for {count} values; expected one for each, ({count},).")
        at = given.to(leaf.device, torch.float64)
        at = at - at.mean()
        square = at.square().sum()
        slope = (wide * at).sum(-1, keepdim=True) / (square if float(square) else 1.0)
        line = wide.mean(-1, keepdim=True) + slope * at
        return line.movedim(-1, _time_of(leaf, dim)).to(leaf.dtype)

    return _each_tensor(x, fitted)


def _time_of(leaf: Tensor, dim: int) -> int:
    """The dimension of the times, checked."""
    if not -leaf.ndim <= dim < leaf.ndim:
        raise InputError(
            f"got x of shape {tuple(leaf.shape)} and dim={dim}; expected series, (time, channels) or (N, time, channels). For "
            "(time,) or (N, time) pass dim=-1."
        )
    return dim


def uniform(
    x: Tensors, low: Values = 0.0, high: Values = 1.0, *, draws: int = 10, seed: int = 0, batched: bool | None = None
) -> Tensors:
    """Uniform noise between black and white: several draws, whose attributions average.

    Right where no single colour is neutral: hardly a pixel equals its baseline, so nothing is left out, and averaging leaves
    little of any one draw. Networks are not always indifferent to noise (some see fabric or static in it): check with
    :func:`diagnose`.

    Args:
        x: the input.
        low: the least value, as in :func:`black`.
        high: the largest value, as in :func:`white`.
        draws: how many baselines; each takes an integration of its own.
        seed: the same seed gives the same draws, on every device.
        batched: whether the first dimension of x counts examples, which then share their draws, so that no example's
            answer depends on its neighbours. If not given: with two, four or more dimensions.

    Returns:
        A stack of baselines, (draws, ...) in the structure and shape of x.
    """

    def scaled(noise: Tensor, leaf: Tensor, _: int) -> Tensor:
        least, most = filled_like(low, leaf, "low").double(), filled_like(high, leaf, "high").double()
        if (least > most).any():
            raise OptionError("got a low that is above high; expected low <= high in every channel.")
        return least + (most - least) * noise

    return _noise_draws(x, torch.rand, scaled, draws, seed, batched)


def gaussian(
    x: Tensors,
    scale: Values = 1.0,
    *,
    around: Values | Tensors = 0.0,
    low: Values | None = None,
    high: Values | None = None,
    draws: int = 10,
    seed: int = 0,
    batched: bool | None = None,
) -> Tensors:
    """Gaussian noise: several draws, whose attributions average.

    Around 0 it is right for inputs that were normalised to mean 0 and deviation 1. With ``around=x`` it is the input
    itself, disturbed: a baseline so near explains what small changes do, not what is there.

    Args:
        x: the input.
        scale: the standard deviation in the space of x, as ``low`` of :func:`black`.
        around: the mean: a number, one per channel, a tensor that broadcasts to x, or something in the structure of x.
        low: the least value; noise below is set to it.
        high: the largest value; noise above is set to it.
        draws: how many baselines to draw.
        seed: the same seed gives the same draws, on every device.
        batched: as in :func:`uniform`.

    Returns:
        A stack of baselines, (draws, ...) in the structure and shape of x.
    """
    tree, leaves = _floating(x)
    structured = not isinstance(around, Tensor) and tree.kind != "tensor" and not isinstance(around, (int, float))
    centres: Sequence[Any] = [around] * len(leaves)
    if structured:
        centres = matched(around, tree, what="around")

    def scaled(noise: Tensor, leaf: Tensor, i: int) -> Tensor:
        out = filled_like(centres[i], leaf, "around").double() + filled_like(scale, leaf, "scale").double() * noise
        out = out if low is None else torch.maximum(out, filled_like(low, leaf, "low").double())
        return out if high is None else torch.minimum(out, filled_like(high, leaf, "high").double())

    return _noise_draws(x, torch.randn, scaled, draws, seed, batched)


def filled_like(value: Any, leaf: Tensor, name: str) -> Tensor:
    """A value in the space of x as a tensor like ``leaf``; one number per channel goes along the third dimension from last."""
    try:
        part = torch.as_tensor(value, dtype=leaf.dtype, device=leaf.device).detach()
    except (TypeError, ValueError, RuntimeError):
        raise OptionError(
            f"got {name}={value!r}; expected a number, a sequence of one number per channel, or a tensor that broadcasts to x."
        ) from None
    if not part.isfinite().all():
        raise OptionError(f"got {name} with {part[~part.isfinite()][0].item()}; expected finite numbers.")
    if part.ndim == 1 and leaf.ndim >= 3:
        part = part[:, None, None]
    try:
        return part.expand(leaf.shape).clone()
    except RuntimeError:
        raise InputError(
            f"{name} has shape {tuple(part.shape)}, which does not fit x of shape {tuple(leaf.shape)}; expected a number, one "
            "number per channel, or a tensor that broadcasts to x."
        ) from None


class Data(Protocol):
    """A tensor whose rows are examples, a map-style ``Dataset`` or a sequence: of examples, or of (example, label) pairs."""

    def __len__(self) -> int:
        """How many examples the data holds."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """An example, or a tuple that starts with it."""
        ...


@dataclass(frozen=True)
class Examples:
    """The examples of a data set, without their labels, as a sequence."""

    data: Data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Tensors:
        item = self.data[index]
        if isinstance(item, (tuple, list)) and item:  # an example of several tensors comes as ((a, b), label)
            item = item[0]
        tree, leaves = flatten(item, what=f"example {index} of the data")
        return tree.build([leaf.detach() for leaf in leaves])

    def __iter__(self) -> Iterator[Tensors]:
        return (self[i] for i in range(len(self)))


def examples_of(data: Data) -> Examples:
    """The examples of a data set without their labels; refuses data that cannot be counted or is empty."""
    if isinstance(data, Mapping) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise InputError(
            f"got a {type(data).__name__} as data; expected a tensor whose rows are examples, a map-style Dataset, or a "
            "sequence of examples or (example, label) pairs. Take some from an iterator with list(itertools.islice(data, 100))."
        )
    if (isinstance(data, Tensor) and data.ndim == 0) or not len(data):
        raise InputError("got no examples as data; expected at least one.")
    return Examples(data)


def check_draws(draws: int) -> None:
    """Refuse a number of draws that is not a whole number from 1 on."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise OptionError(f"got draws={draws!r}; expected a whole number from 1 on.")


def drawn(data: Data, draws: int = 10, seed: int = 0, *, like: Tensors | None = None) -> list[Tensors]:
    """Examples of a training set as baselines, whose attributions average.

    The answer is then what sets x apart from what the model usually sees, not from nothing: right where nothing neutral
    exists, as for tables. Some of the draws may be of the explained class; what they share with x gets no credit.

    >>> drawn([(torch.tensor([1.0, 2.0]), "label")], draws=1)
    [tensor([1., 2.])]

    Args:
        data: a tensor whose rows are examples, a map-style ``Dataset`` or a sequence; of examples, or of tuples that start
            with the example, such as (example, label).
        draws: how many examples to draw, without repetition.
        seed: the same seed draws the same examples.
        like: the input x: the draws are checked against its shape and brought to its dtype and device.

    Returns:
        A list of examples, each without a batch dimension and shared by all inputs that are explained.
    """
    check_draws(draws)
    examples = examples_of(data)
    if draws > len(examples):
        raise OptionError(f"got draws={draws} from {len(examples)} examples; expected at most as many as there are.")
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))[:draws].tolist()
    found = [examples[i] for i in order]
    shapes = [[tuple(leaf.shape) for leaf in flatten(one)[1]] for one in found]
    for i, shape in zip(order, shapes, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"example {i} of the data has shape {shape} and example {order[0]} {shapes[0]}; expected the same."
            )
    return found if like is None else [_like_input(one, like) for one in found]


def _mean_of(x: Tensors, data: Data) -> Tensors:
    tree, leaves = _floating(x)
    total: list[Tensor] = []
    examples = examples_of(data)
    for example in examples:
        found, parts = flatten(example, what="an example of the data")
        if found != tree:
            raise InputError(f"the examples of the data are {found}; expected {tree}, the structure of x.")
        # Images may differ in size; their colours can be averaged all the same.
        rows = [part.double().mean((-2, -1), keepdim=True) if part.ndim >= 3 else part.double() for part in parts]
        if total and any(a.shape != b.shape for a, b in zip(total, rows, strict=True)):
            raise InputError("the examples of the data differ in shape; expected one shape, or images with the same channels.")
        total = [a + b for a, b in zip(total, rows, strict=True)] if total else rows
    return tree.build([filled_like(part / len(examples), leaf, "the mean") for part, leaf in zip(total, leaves, strict=True)])


def _blur_matrix(size: int, sigma: float) -> Tensor:
    """A Gaussian blur of a line of pixels as a matrix, (size, size) in float64, cut off at 4 sigma and mirrored at the ends."""
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    at = (torch.arange(size)[:, None] + offsets) % (2 * size)
    at = torch.where(at < size, at, 2 * size - 1 - at)
    rows = (weights / weights.sum()).expand(size, -1)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add(1, at, rows)


def _noise_draws(
    x: Tensors,
    draw: Callable[..., Tensor],
    scaled: Callable[[Tensor, Tensor, int], Tensor],
    draws: int,
    seed: int,
    batched: bool | None,
) -> Tensors:
    """Draws of noise for every tensor of x, made in float64 on the CPU so that device and dtype do not change them."""
    check_draws(draws)
    tree, leaves = _floating(x)
    generator = torch.Generator().manual_seed(seed)
    out = []
    for i, leaf in enumerate(leaves):
        shared = leaf.ndim in (2, *range(4, leaf.ndim + 1)) if batched is None else batched and leaf.ndim > 0
        shape = (1, *leaf.shape[1:]) if shared else tuple(leaf.shape)
        host = leaf.detach().cpu()
        noise = draw(draws, *shape, generator=generator, dtype=torch.float64)
        out.append(torch.stack([scaled(one, host, i) for one in noise]).to(leaf.device, leaf.dtype))
    return tree.build(out)


def _floating(x: Tensors) -> tuple[Tree, Leaves]:
    tree, leaves = flatten(x)
    for name, leaf in zip(tree.names, leaves, strict=True):
        if not leaf.dtype.is_floating_point:
            raise InputError(
                f"x{name} has dtype {leaf.dtype}; expected floating point, since there is no black between whole numbers. "
                "Convert pixels first; for token ids name the embedding with layer= and pass other ids, or 0, as baseline."
            )
    return tree, leaves


def _each_tensor(x: Tensors, make: Callable[[Tensor], Tensor]) -> Tensors:
    tree, leaves = _floating(x)
    return tree.build([make(leaf.detach()) for leaf in leaves])


def _like_input(example: Tensors, like: Tensors) -> Tensors:
    tree, leaves = flatten(like)
    found, parts = flatten(example, what="an example of the data")
    if found != tree:
        raise InputError(f"the examples of the data are {found}; expected {tree}, the structure of x.")
    for part, leaf in zip(parts, leaves, strict=True):
        if part.shape not in (leaf.shape, leaf.shape[1:]):
            raise InputError(
                f"the examples of the data have shape {tuple(part.shape)}; expected {tuple(leaf.shape[1:])} for a batch x, or "
                f"{tuple(leaf.shape)} for one example. Resize them as x was."
            )
    return tree.build([part.to(leaf.device, leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)])
