"""Inputs to try a network from an .onnx file on: drawn from a seed, in the shapes that the file names, or the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, ModelError
from ..words import shown
from .onnx_graphs import OnnxValue, Side, inputs_of, table_rows

if TYPE_CHECKING:
    from onnx import ModelProto

SEED = 0
"""Of the random numbers, so that the same file is always compared on the same inputs."""

SEVERAL = 3
"""Rows of the larger sample: more than one, and no size that a network has by accident as often as 2."""

PICTURES = (224, 64, 32, 320, 640)
SEQUENCES = (16, 64, 224, 512, 576, 1024, 4096, 16000, 3, 1)
"""Sizes that are tried for free sides: until onnxruntime takes them."""

MAX_DRAWN = 1 << 28
"""Numbers of an input that is drawn: 2 GiB in float64."""

Sample = dict[str, Tensor]


@dataclass(frozen=True)
class RowAxes:
    """Where the rows of a batch are in each input.

    Attributes:
        axes: by name of the input, the axis along which rows lie; inputs without one are missing.
        fixed: how many rows the file fixes; None where their number is free.
    """

    axes: Mapping[str, int]
    fixed: int | None

    def take(self, sample: Sample, rows: slice) -> Sample:
        """Some rows of a sample; inputs without rows as they are."""
        return {name: self._of(name, value, rows) for name, value in sample.items()}

    def _of(self, name: str, value: Tensor, rows: slice) -> Tensor:
        if name not in self.axes:
            return value
        index = [slice(None)] * value.ndim
        index[self.axes[name]] = rows
        return value[tuple(index)]


def row_axes(inputs: Sequence[OnnxValue]) -> RowAxes:
    """Find the rows: the first side of the first input, and what has the same name, or no name and no other place for it."""
    first = inputs[0].shape if inputs else None
    if not first:
        return RowAxes({inputs[0].name: 0} if inputs and first is None else {}, None)
    batch = first[0]
    axes: dict[str, int] = {}
    for value in inputs:
        shape = value.shape or ()
        if not shape:
            continue
        if value is inputs[0] or shape[0] == batch or (not isinstance(batch, int) and not isinstance(shape[0], int)):
            axes[value.name] = 0
        elif not isinstance(batch, int):
            free = [i for i, side in enumerate(shape) if side == batch or side is None]
            axes |= {value.name: free[0]} if free else {}
    return RowAxes(axes, batch if isinstance(batch, int) else None)


def drawn_samples(model: ModelProto, axes: RowAxes, given: Any) -> Iterator[Sample]:
    """Samples with several rows, one after the other, until one can be run; only one where the user gives all inputs.

    Args:
        model: the network.
        axes: where its rows are.
        given: the user's own inputs: a tensor or array for the first one, a tuple in their order, or a dict by name.
    """
    inputs, tables = inputs_of(model), table_rows(model)
    own = given_inputs(inputs, given)
    rows = axes.fixed or SEVERAL
    pictures = bool(inputs[0].shape) and len(inputs[0].shape or ()) == 4 and inputs[0].dtype.is_floating_point
    free = any(value.name not in own and _free(value, axes) for value in inputs)
    tried = 0
    for positive in (False, True):
        for size in ((*PICTURES, *SEQUENCES) if pictures else SEQUENCES) if free else (0,):
            sizes = _known(inputs, own)
            generator = torch.Generator().manual_seed(SEED)
            yield {
                value.name: own[value.name]
                if value.name in own
                else _drawn(value, axes.axes.get(value.name), rows, size, sizes, tables.get(value.name), positive, generator)
                for value in inputs
            }
            tried += 1


def given_inputs(inputs: Sequence[OnnxValue], given: Any) -> Sample:
    """What the user gave as a sample, by name of the input.

    Raises:
        InputError: a name that the network does not have, too many inputs, or something that is no tensor.
    """
    if given is None:
        return {}
    names = [value.name for value in inputs]
    if not isinstance(given, Mapping):
        items = given if isinstance(given, (tuple, list)) else (given,)
        if len(items) > len(names):
            raise InputError(f"sample: got {len(items)} inputs; the network has {len(names)}: {', '.join(map(shown, names))}.")
        given = dict(zip(names, items, strict=False))
    found: Sample = {}
    for name, value in given.items():
        if name not in names:
            raise InputError(f"sample: got {name!r}; expected inputs of the network: {', '.join(map(shown, names))}.")
        if not isinstance(value, (Tensor, np.ndarray, np.generic, int, float, bool)):
            raise InputError(f"sample: got a {type(value).__name__} for {name!r}; expected a tensor or an array.")
        found[name] = torch.as_tensor(value).detach().cpu().to(inputs[names.index(name)].dtype)
    return found


def _free(value: OnnxValue, axes: RowAxes) -> bool:
    row = axes.axes.get(value.name)
    return value.shape is None or any(i != row and not isinstance(side, int) for i, side in enumerate(value.shape))


def _known(inputs: Sequence[OnnxValue], own: Sample) -> dict[str, int]:
    """The sizes of named sides, from the inputs that the user gave."""
    sides = (zip(value.shape or (), own[value.name].shape, strict=False) for value in inputs if value.name in own)
    return {side: size for pairs in sides for side, size in pairs if isinstance(side, str)}


def _drawn(
    value: OnnxValue,
    row: int | None,
    rows: int,
    size: int,
    sizes: Mapping[str, int],
    table: int | None,
    positive: bool,
    generator: torch.Generator,
) -> Tensor:
    sides: tuple[Side, ...] = (None, None) if value.shape is None else value.shape

    def length(i: int, side: Side) -> int:
        if i == row:
            return rows
        if isinstance(side, int):
            return side
        return sizes.get(side, size) if side is not None else size

    shape = [length(i, side) for i, side in enumerate(sides)]
    if math.prod(shape) > MAX_DRAWN:
        raise ModelError(
            f"the input {shown(value.name)!r} has the shape {tuple(shape)}; expected at most {MAX_DRAWN:,} numbers, on which "
            "the conversion can be checked. Export the network with a smaller input."
        )
    if value.dtype.is_floating_point:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (drawn.abs() if positive else drawn).to(value.dtype)
    if value.dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=value.dtype)
    if value.dtype == torch.bool or table is None:  # masks and settings; and how much of a row there is
        return torch.full(shape, max(size, 1) if "len" in value.name.lower() else 1).to(value.dtype)
    return torch.randint(0, table, shape, generator=generator).to(value.dtype)
