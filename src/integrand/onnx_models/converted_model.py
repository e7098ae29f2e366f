"""A network from an .onnx file as a torch module, and what is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ModelError, quiet
from ..words import shown
from .onnx_graphs import OnnxValue, named
from .onnx_samples import RowAxes, Sample


@dataclass(frozen=True)
class OnnxProvenance:
    """Where a converted network is from, and how near it is to what onnxruntime computes.

    Attributes:
        file: the path it was read from, or ``the bytes``, ``the model``.
        converter: with its version.
        producer: what wrote the file, as it says itself.
        opset: the version of ONNX's operations that it uses.
        inputs: names, shapes and types of what it takes.
        outputs: and of what it gives.
        reference: what it was compared with, with its version; None where it was not compared.
        difference: the largest difference from it, relative to the largest output; None where it was not compared.
        tolerance: the largest difference that was allowed.
        gradient: how far off its gradients are, relatively, for the input where they are most; None where that was not, or
            could not be, checked.
        gradient_by: what they were compared with: the change of onnxruntime's output along a line, which has to be their
            integral; or, where too many kinks are on the line, a finite difference of the converted network in float64.
        rows: how many rows it runs at a time; None for any number.
        notes: what else there is to know.
    """

    file: str
    converter: str
    producer: str
    opset: int
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    reference: str | None = None
    difference: float | None = None
    tolerance: float | None = None
    gradient: float | None = None
    gradient_by: str = ""
    rows: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def compared(self) -> str:
        """How near it is to onnxruntime, in a sentence."""
        if self.reference is None or self.difference is None:
            return "not compared with onnxruntime"
        gradients = "" if self.gradient is None else f"; its gradients within {self.gradient:.1e} of {self.gradient_by}"
        return f"within {self.difference:.1e} of {self.reference}, relative to the largest output{gradients}"

    def __str__(self) -> str:
        by = f", written by {shown(self.producer)}" if self.producer else ""
        lines = [
            f"{self.file} (opset {self.opset}{by}), converted by {self.converter}",
            f"takes {named(self.inputs)}",
            f"gives {named(self.outputs)}",
            self.compared,
            *self.notes,
        ]
        return "\n".join(lines)


class OnnxModel(nn.Module):
    """A network from an .onnx file: takes its inputs in their order or by name, and gives its output, or a tuple of them.

    It is for inference: weights are frozen, and ``train()`` changes nothing.

    Args:
        network: what a converter made of it.
        provenance: where it is from.
        axes: where the rows of its inputs are.

    Attributes:
        provenance: where it is from, and how near it is to what onnxruntime computes.
    """

    def __init__(self, network: nn.Module, provenance: OnnxProvenance, axes: RowAxes) -> None:
        super().__init__()
        self.network = network
        self.provenance = provenance
        self._axes = axes
        super().train(False)

    def train(self, mode: bool = True) -> OnnxModel:
        """Change nothing: an .onnx file holds a network for inference."""
        return self

    def __repr__(self) -> str:
        return f"OnnxModel({self.provenance})"

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Run the network.

        Args:
            args: inputs in their order; those with rows have as many as the first, or one for all.
            kwargs: inputs by name.

        Returns:
            The output, or a tuple of outputs in their order.
        """
        sample, count = self._bound(args, kwargs)
        step = self.provenance.rows
        if step is None or count is None or count == step:
            found = self._run(sample)
            self._check_count(found)
        else:
            found = self._in_steps(sample, count, step)
        return found[0] if len(found) == 1 else tuple(found)

    def _bound(self, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> tuple[Sample, int | None]:
        """The inputs by name, in the file's types of whole numbers, each with a row for every row; and how many rows."""
        names = [value.name for value in self.provenance.inputs]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        unknown = [name for name in kwargs if name not in names]
        missing = [name for name in names if name not in given]
        if unknown or missing or len(args) > len(names) or len(given) < len(args) + len(kwargs):
            what = (
                f"no {', '.join(map(repr, missing))}"
                if missing
                else f"{len(args)} inputs by place and {sorted(kwargs)} by name"
            )
            raise InputError(
                f"got {what}; the network takes {named(self.provenance.inputs)}. Pass inputs that are not explained "
                "with args= or "
                "kwargs=."
            )
        sample, count = {}, None
        for value in self.provenance.inputs:
            x = given[value.name]
            if not isinstance(x, Tensor):
                raise InputError(f"got a {type(x).__name__} for {value.name!r}; expected a tensor: {value}.")
            sample[value.name] = x if x.dtype == value.dtype or x.is_floating_point() else x.to(value.dtype)
            axis = self._axes.axes.get(value.name)
            self._check_shape(value, x, axis)
            if axis is not None and x.ndim > axis and count is None:
                count = x.shape[axis]
        for name, axis in self._axes.axes.items():
            x = sample[name]
            if count is not None and x.ndim > axis and x.shape[axis] == 1 and count > 1:
                sample[name] = x.expand(*x.shape[:axis], count, *x.shape[axis + 1 :])
        return sample, count

    @staticmethod
    def _check_shape(value: OnnxValue, x: Tensor, axis: int | None) -> None:
        """Refuse what onnxruntime refuses: another number of sides, or another size of one that the file fixes.

        Sides of 1 are left out: rows may lie there, and many conversions take several.
        """
        sides = x.shape if value.shape is None else value.shape
        fixed = (isinstance(side, int) and side > 1 and i != axis for i, side in enumerate(sides))
        if len(sides) != x.ndim or any(own and a != b for own, a, b in zip(fixed, sides, x.shape, strict=True)):
            more = " Put a row in front: x[None]." if len(sides) == x.ndim + 1 else ""
            raise InputError(f"got {value.name!r} of shape {tuple(x.shape)}; expected {value}.{more}")

    def _run(self, sample: Sample) -> list[Tensor]:
        """Run the converted network; where it fails for a type of numbers, say which the file has."""
        try:
            return outputs_from(self.network, self.provenance.inputs, sample)
        except RuntimeError as error:
            wrong = [value for value in self.provenance.inputs if sample[value.name].dtype != value.dtype]
            if not wrong or ("dtype" not in str(error) and "scalar type" not in str(error)):
                raise
            kind = str(wrong[0].dtype).removeprefix("torch.")
            raise InputError(
                f"got {wrong[0].name!r} in {str(sample[wrong[0].name].dtype).removeprefix('torch.')}; the network is in "
                f"{kind}. Pass x.to(torch.{kind})."
            ) from error

    def _in_steps(self, sample: Sample, count: int, step: int) -> list[Tensor]:
        """Run as many rows at a time as the file is for, the last ones filled up with copies."""
        parts: list[list[Tensor]] = []
        for start in range(0, count, step):
            here = self._axes.take(sample, slice(start, start + step))
            there = min(step, count - start)
            if there < step:
                here = {name: self._filled(name, x, step) for name, x in here.items()}
            found = self._run(here)
            self._check_count(found)
            found = [x[None] if step == 1 and not x.ndim else x for x in found]
            if found[0].shape[0] != step:
                raise ModelError(
                    f"the network takes {step} row(s) at a time and gives {tuple(found[0].shape)} for them; expected "
                    "a row for each. "
                    f"Pass one input at a time, with target=lambda out: ... and batched=False."
                )
            parts.append([x[:there] if x.ndim and x.shape[0] == step else x for x in found])
        return [
            torch.cat(column) if column[0].ndim and column[0].shape[0] in (step, count % step) else column[0]
            for column in (list(c) for c in zip(*parts, strict=True))
        ]

    def _filled(self, name: str, x: Tensor, step: int) -> Tensor:
        axis = self._axes.axes.get(name)
        if axis is None:
            return x
        last = x.narrow(axis, x.shape[axis] - 1, 1)
        return torch.cat([x, *[last] * (step - x.shape[axis])], dim=axis)

    def _check_count(self, found: Sequence[Tensor]) -> None:
        if len(found) != len(self.provenance.outputs):
            raise ModelError(
                f"the converted network gives {len(found)} outputs; the file has {named(self.provenance.outputs)}. "
                "Choose one with "
                "output=."
            )


def outputs_from(network: nn.Module, inputs: Sequence[OnnxValue], sample: Sample) -> list[Tensor]:
    """Run a converted network, and give its outputs as a flat list."""
    with quiet():  # converters warn of how they trace and copy, which is nobody's concern here
        found: Any = network(*(sample[value.name] for value in inputs))
    return list(_flat(found))


def _flat(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, (list, tuple)):
        return [tensor for part in found for tensor in _flat(part)]
    raise ModelError(f"the converted network gives a {type(found).__name__}; expected tensors.")
