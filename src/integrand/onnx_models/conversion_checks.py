"""Is a converted network the one in the file? Compared with onnxruntime: its outputs, and what its gradients add up to.

A converter may misread an operation, which shows in the outputs; or cut a gradient on its way, which does not. So both are
checked: outputs on samples, and gradients by the theorem that the whole package rests on. Along a line, the integral of the
converted network's gradients must be the change of onnxruntime's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, MissingExtraError, ModelError
from ..words import first_line
from .onnx_files import LARGEST_MESSAGE
from .onnx_graphs import OnnxValue, inputs_of, outputs_of
from .onnx_samples import SEED, RowAxes, Sample, drawn_samples

if TYPE_CHECKING:
    from onnx import ModelProto

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How far outputs may be apart, relative to the largest of them, by the lowest precision among inputs and outputs. Sums in
another order made at most 3e-5 in float32 on the networks of docs/onnx.md. Files with float64 may hold float32 inside."""

GRADIENT_TOLERANCE = 0.02
"""How far the integral of gradients may be from the change of onnxruntime's output, relative to that change. What is further
off may be wrong, or have many kinks on the line: a finite difference in float64 tells."""

LENGTHS = (0.05, 0.5, 2.0)
"""Lengths of the line in standard deviations of the sample, tried until the output changes by more than rounding does."""

NODES = 8
"""Gauss-Legendre nodes on the line."""

STEPS_IN_DOUBLE = (1e-6, 1e-7, 1e-8)
"""Steps of finite differences in float64, in standard deviations of the sample. The largest may have a kink of a deep network
inside, the smallest loses digits: the nearest of them counts, and a wrong gradient is near to none."""

STEP_TOLERANCE = 1e-3
"""How far the gradient may be from that finite difference, relative to it."""

CLEAR = 30.0
"""By how many times the change of the output along the line has to exceed what the two programs differ by."""

Run = Callable[[Sample], list[Tensor]]
"""A network, from inputs by name to its outputs in their order."""


class Reference:
    """The network as onnxruntime runs it, on the CPU.

    Args:
        model: the network.
        path: where it was read from, for files that are too large for one message.
        fixed: inputs that always have the same value.
    """

    def __init__(self, model: ModelProto, path: str | None, fixed: Mapping[str, np.ndarray[Any, Any]]) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtraError("onnxruntime", "onnx", "comparing a converted network with onnxruntime") from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = torch.get_num_threads()
        large = model.ByteSize() > LARGEST_MESSAGE
        if large and path is None:
            raise InputError(
                "the model has more than 2 GB, which onnxruntime takes as a file alone; pass its path, or check=False."
            )
        self.version = f"onnxruntime {onnxruntime.__version__}"
        self.outputs = [value.name for value in outputs_of(model)]
        self.inputs = [value.name for value in inputs_of(model) if value.name not in fixed]
        self.fixed = dict(fixed)
        try:
            self.session = onnxruntime.InferenceSession(
                path if large else model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ModelError(
                f"onnxruntime cannot load the network ({first_line(error)}). Expected one that onnxruntime runs, to "
                "compare with; "
                "check=False leaves the comparison out."
            ) from error

    def __call__(self, sample: Sample) -> list[Tensor]:
        """Run it; what onnxruntime raises comes as it is."""
        found = self.session.run(
            self.outputs, {**self.fixed, **{name: sample[name].detach().cpu().numpy() for name in self.inputs}}
        )
        return [torch.as_tensor(np.asarray(value)) for value in found]


@dataclass(frozen=True)
class SampleRun:
    """A sample and what onnxruntime gives for it.

    Attributes:
        one: the sample with one row, or with as many as the file fixes.
        reference: what onnxruntime gives for it.
        several: a sample with several rows; None where inputs have no rows.
        of_several: what onnxruntime gives for each row of it, put together.
        together: whether onnxruntime takes several rows at once.
        independent: whether rows do not depend on each other; None where that is not known.
    """

    one: Sample
    reference: list[Tensor]
    several: Sample | None = None
    of_several: list[Tensor] | None = None
    together: bool = False
    independent: bool | None = None


def tried(reference: Reference, model: ModelProto, axes: RowAxes, given: Any) -> SampleRun:
    """Find a sample that onnxruntime can run, and run it: one row, and several.

    Raises:
        InputError: onnxruntime takes none of the samples.
    """
    said = ""
    for sample in drawn_samples(model, axes, given):
        several = sample if axes.fixed is None and axes.axes else None
        one = sample if several is None else axes.take(sample, slice(0, 1))
        try:
            found = reference(one)
        except Exception as error:
            said = said or first_line(error)
            continue
        if not all(bool(torch.isfinite(value).all()) for value in found if value.is_floating_point()):
            said = said or "its outputs are not finite"
            continue
        if axes.fixed == 1:
            several = _repeated(sample, model, axes)
        return SampleRun(one, found) if several is None else _with_rows(reference, axes, one, several, found)
    names = ", ".join(str(value) for value in inputs_of(model))
    raise InputError(
        f"onnxruntime runs the network on none of the samples that were tried ({said}); it takes {names}. Pass "
        "sample=, an input "
        "that it does take: a tensor, a tuple of them, or a dict by name; a dict may leave inputs out."
    )


def _repeated(sample: Sample, model: ModelProto, axes: RowAxes) -> Sample | None:
    """For a network that is fixed to one row: three rows all the same, for the converted one may take them."""
    generator = torch.Generator().manual_seed(SEED + 1)
    found = {}
    for name, value in sample.items():
        if name in axes.axes and value.is_floating_point():
            more = [value + torch.randn(value.shape, generator=generator).to(value.dtype) for _ in range(2)]
            found[name] = torch.cat([value, *more], dim=axes.axes[name])
        elif name in axes.axes:
            found[name] = torch.cat([value] * 3, dim=axes.axes[name])
        else:
            found[name] = value
    return found


def _with_rows(reference: Reference, axes: RowAxes, one: Sample, several: Sample, first: list[Tensor]) -> SampleRun:
    """Run several rows: together if onnxruntime takes them so, and each by itself."""
    count = max(value.shape[axes.axes[name]] for name, value in several.items() if name in axes.axes)
    try:
        rows = [first, *(reference(axes.take(several, slice(i, i + 1))) for i in range(1, count))]
    except Exception:
        return SampleRun(one, first)
    single = [_joined(column) for column in zip(*rows, strict=True)]
    if any(value is None for value in single):
        return SampleRun(one, first)
    alone = [value for value in single if value is not None]
    if axes.fixed is not None:
        return SampleRun(one, first, several, alone)
    try:
        found = reference(several)
    except Exception:
        return SampleRun(one, first, several, alone)
    same = difference(found, alone) <= TOLERANCES[lowest(found)]
    return SampleRun(one, first, several, alone if same else found, True, same)


def _joined(values: Sequence[Tensor]) -> Tensor | None:
    """The outputs of single rows as one; along the axis that has one entry, the first such; None without any."""
    first = values[0]
    axis = next((i for i, side in enumerate(first.shape) if side == 1), None)
    if axis is None or any(value.shape != first.shape for value in values):
        return None
    return torch.cat(list(values), dim=axis)


def lowest(values: Sequence[Tensor | OnnxValue]) -> torch.dtype:
    """The floating type of the lowest precision among some tensors; float32 where there is none."""
    found = [value.dtype for value in values if value.dtype in TOLERANCES]
    return max(found, key=lambda dtype: TOLERANCES[dtype], default=torch.float32)


def difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of outputs, relative to the largest magnitude of the output that it is in; inf for other shapes.

    >>> difference([torch.tensor([1.0, 4.0])], [torch.tensor([1.0, 5.0])])
    0.2
    """
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if not b.numel():
            continue
        a, b = a.detach().cpu().to(torch.float64), b.to(torch.float64)
        off = (a - b).abs()
        off[(a == b) | (a.isnan() & b.isnan())] = 0
        scale = float(b.nan_to_num(0, 0, 0).abs().max()) or 1.0
        value = float(off.max()) / scale
        worst = max(worst, value if value == value else float("inf"))
    return worst


@dataclass(frozen=True)
class GradientCheck:
    """Whether the gradients with respect to one input can be relied on.

    Attributes:
        name: of the input.
        off: by how much the integral of gradients misses the change of onnxruntime's output along a line, relative to it; None
            where the output did not change clearly, so that nothing could be said.
        right: whether the gradients are those of the network.
        exact: by how much the gradient misses a finite difference in float64; None where that was not needed, or not possible.
        still: whether the output did not change at all.
        flat: whether all gradients were zero, or there were none.
    """

    name: str
    off: float | None
    right: bool = True
    exact: float | None = None
    still: bool = False
    flat: bool = False


class GradientLine:
    """A random line from a sample along one input, and a random sum of the outputs along it.

    Args:
        trial: the sample.
        name: of the input.
    """

    def __init__(self, trial: SampleRun, name: str) -> None:
        generator = torch.Generator().manual_seed(SEED + 2)
        self.name, self.trial, self.start = name, trial, trial.one[name]
        spread = float(self.start.double().std()) if self.start.numel() > 1 else 0.0
        self.velocity = torch.randn(self.start.shape, generator=generator, dtype=torch.float64) * (spread or 1.0)
        self.weights = [
            torch.randn(value.shape, generator=generator, dtype=torch.float64) / (float(value.double().abs().max()) or 1.0)
            if value.is_floating_point()
            else None
            for value in trial.reference
        ]

    def at(self, t: float, dtype: torch.dtype | None = None) -> Sample:
        """The sample at a place of the line; with a type, all floating inputs in it."""
        moved = {**self.trial.one, self.name: self.start.double() + t * self.velocity}
        return {
            name: value.to(dtype or self.trial.one[name].dtype) if value.is_floating_point() else value
            for name, value in moved.items()
        }

    def score(self, outputs: Sequence[Tensor]) -> Tensor:
        """The sum of outputs, in float64."""
        parts = [(w * out.double()).sum() for w, out in zip(self.weights, outputs, strict=True) if w is not None]
        return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)

    def slope(self, run: Run, t: float, dtype: torch.dtype | None = None) -> float | None:
        """The derivative of the score along the line, by the network's gradient; None if no gradient reaches the input."""
        sample = self.at(t, dtype)
        point = sample[self.name].clone().requires_grad_(True)
        value = self.score(run({**sample, self.name: point}))
        if not value.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(value, point, allow_unused=True)
        if gradient is None or not bool(gradient.any()):
            return None
        return float((gradient.double() * self.velocity).sum())


def check_gradients(
    run: Run, reference: Reference, trial: SampleRun, inputs: Sequence[OnnxValue], doubled: Callable[[], Run]
) -> list[GradientCheck]:
    """Check the gradients with respect to each floating input by itself.

    Args:
        run: the converted network.
        reference: the network in onnxruntime.
        trial: the sample.
        inputs: of the network.
        doubled: makes the same conversion in float64, for networks with too many kinks on the line.
    """
    made: list[Run] = []

    def once() -> Run:
        if not made:
            made.append(doubled())
        return made[0]

    lines = [GradientLine(trial, value.name) for value in inputs if trial.one[value.name].is_floating_point()]
    return [_checked_line(run, reference, line, once) for line in lines]


def _checked_line(run: Run, reference: Reference, line: GradientLine, doubled: Callable[[], Run]) -> GradientCheck:
    changed = False
    for length in LENGTHS:
        low, high = reference(line.at(0.0)), reference(line.at(length))
        if [value.shape for value in low] != [value.shape for value in high]:
            continue
        changed |= any(not torch.equal(a, b) for a, b in zip(low, high, strict=True))
        change = float(line.score(high) - line.score(low))
        with torch.no_grad():
            ends = ((line.at(0.0), low), (line.at(length), high))
            noise = sum(abs(float(line.score(run(at)) - line.score(outputs))) for at, outputs in ends)
        if not np.isfinite(change) or abs(change) <= CLEAR * noise or abs(change) < 1e-12:
            continue
        nodes, shares = np.polynomial.legendre.leggauss(NODES)
        slopes = [line.slope(run, length * (float(node) + 1) / 2) for node in nodes]
        total = sum(float(share) / 2 * length * slope for share, slope in zip(shares, slopes, strict=True) if slope is not None)
        off, flat = abs(total - change) / abs(change), all(slope is None for slope in slopes)
        if flat or off <= GRADIENT_TOLERANCE:
            return GradientCheck(line.name, off, right=not flat, flat=flat)
        exact = _exact(doubled, line)
        return GradientCheck(line.name, off, right=exact is not None and exact <= STEP_TOLERANCE, exact=exact)
    return GradientCheck(line.name, None, still=not changed)


def _exact(doubled: Callable[[], Run], line: GradientLine) -> float | None:
    """By how much the gradient misses a finite difference in float64, relative to it; None where that cannot be had.

    Between kinks, which are many on a line through a deep network, a step in float64 finds none.
    """
    try:
        run = doubled()
        slope = line.slope(run, 0.0, torch.float64)
        with torch.no_grad():
            ends = [[float(line.score(run(line.at(t, torch.float64)))) for t in (-h, h)] for h in STEPS_IN_DOUBLE]
    except Exception:  # an operation that has no float64, or insists on float32
        return None
    if slope is None:
        return float("inf")
    changes = [(high - low) / (2 * h) for (low, high), h in zip(ends, STEPS_IN_DOUBLE, strict=True)]
    return min(abs(slope - change) / max(abs(change), 1e-30) for change in changes)
