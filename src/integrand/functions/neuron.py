"""One neuron of a layer: its value as a score, and the score with the neuron fed from an input of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, OptionError
from ..trees import Leaves
from .layer import LayerSide, visiting

Selector = int | tuple[int | slice, ...] | Callable[[Any], Tensor]
"""Which neuron: an index after the batch dimension, a tuple of indices and slices, whose neurons are added up, or a function
of what the layer gives."""


@dataclass(frozen=True)
class NeuronReader:
    """A model that gives the value of one neuron, (N,), in place of its output.

    Attributes:
        model: the model that runs the layer.
        layer: the layer; where it runs several times, the last one counts.
        side: whether the neuron is one of those that the layer gives, or gets.
        selector: which neuron.
    """

    model: Callable[..., Any]
    layer: nn.Module
    side: LayerSide
    selector: Selector

    def __call__(self, *args: Any) -> Tensor:
        """The value of the neuron for each row, with its graph."""
        return self.selected(self.values(*args)[0])

    def values(self, *args: Any) -> tuple[Leaves, int]:
        """What the layer gives (or gets) when it runs for the last time, and how often it runs."""
        calls: list[Leaves] = []

        def visit(_: int, __: int, parts: list[Any]) -> list[Any]:
            # Copies, so that an in-place activation after the layer does not write to them.
            calls.append(tuple(part.clone() for part in parts if isinstance(part, Tensor)))
            return parts

        with visiting([self.layer], self.side, visit):
            self.model(*args)
        if not calls or not calls[-1]:
            raise ModelError(
                f"the layer ({type(self.layer).__name__}) was not run, or its {self.side} holds no tensor; expected a "
                "submodule that the forward pass calls. Choose another layer."
            )
        return calls[-1], len(calls)

    def selected(self, values: Leaves) -> Tensor:
        """The chosen neuron of a layer's values (N, ...), (N,)."""
        chosen = self.selector
        picked = _called(chosen, values) if callable(chosen) else self._indexed(values, chosen)
        if not isinstance(picked, Tensor) or picked.shape != values[0].shape[:1]:
            got = f"shape {tuple(picked.shape)}" if isinstance(picked, Tensor) else f"a {type(picked).__name__}"
            raise OptionError(
                f"got neuron_selector={chosen!r}, which selects {got} of the layer's shape {tuple(values[0].shape)}; expected "
                "one number for each row: an index for every dimension after the first, or slices, which are added up."
            )
        return picked

    def weights(self, values: Leaves) -> Leaves:
        """What the selection multiplies each of the layer's values by: ones for neurons that are selected, zeros for others."""
        with torch.enable_grad():
            points = tuple(value.detach().requires_grad_(value.dtype.is_floating_point) for value in values)
            wanted = [point for point in points if point.requires_grad]
            found = iter(torch.autograd.grad(self.selected(points).sum(), wanted, allow_unused=True, materialize_grads=True))
        return tuple(next(found) if point.requires_grad else torch.zeros_like(point) for point in points)

    def _indexed(self, values: Leaves, chosen: int | tuple[int | slice, ...]) -> Tensor:
        if len(values) > 1:
            raise OptionError(
                f"got neuron_selector={chosen!r} for a layer with {len(values)} tensors; expected a function of them, for "
                "example lambda values: values[0][:, 0]."
            )
        index = chosen if isinstance(chosen, tuple) else (chosen,)
        try:
            picked = values[0][(slice(None), *index)]
        except (IndexError, TypeError) as error:
            raise OptionError(
                f"got neuron_selector={chosen!r} for a layer of shape {tuple(values[0].shape)}; expected an index within it, "
                f"without the first dimension, which counts examples ({error})."
            ) from error
        return picked.flatten(1).sum(1) if any(isinstance(part, slice) for part in index) else picked


@dataclass(frozen=True)
class NeuronSplit:
    """A model whose neuron is computed from one input and everything else from another.

    Called with the inputs twice, F(a, b): where both are the same, this is the model. The gradient in a is what passes through
    the neuron, dF/dy dy/dx; that in b is all the rest. So conductance is a part of integrated gradients that are complete.

    Attributes:
        reader: the neuron.
        inputs: how many inputs the model has, before its further arguments.
    """

    reader: NeuronReader
    inputs: int

    def __call__(self, *args: Any) -> Any:
        """The model's output, with the neuron of the first inputs in the place of its own."""
        first, second, further = args[: self.inputs], args[self.inputs : 2 * self.inputs], args[2 * self.inputs :]
        given, count = self.reader.values(*first, *further)
        numbers = iter(given)

        def visit(_: int, call: int, parts: list[Any]) -> list[Any]:
            if call != count - 1:
                return parts
            own = tuple(part for part in parts if isinstance(part, Tensor))
            weights = iter(self.reader.weights(own))
            return [_mixed(part, next(numbers), next(weights)) if isinstance(part, Tensor) else part for part in parts]

        with visiting([self.reader.layer], self.reader.side, visit):
            return self.reader.model(*second, *further)


def _called(chosen: Callable[[Any], Tensor], values: Leaves) -> Tensor:
    """What a function selects; one that adds up all rows is asked for each row alone."""
    picked = chosen(values if len(values) > 1 else values[0])
    if not isinstance(picked, Tensor) or picked.ndim:
        return picked
    rows = (tuple(value[i : i + 1] for value in values) for i in range(len(values[0])))
    return torch.stack([chosen(row if len(row) > 1 else row[0]) for row in rows])


def _mixed(own: Tensor, given: Tensor, weight: Tensor) -> Tensor:
    """The layer's own value, and the given one where the weight is 1; the same number where both are equal."""
    return own + weight * (given - own) if own.dtype.is_floating_point else own
