"""ig.from_onnx: a network in the ONNX format as a torch module, compared with onnxruntime before it is handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ..errors import GradientError, InputError, ModelError, OptionError, quiet
from ..words import percent, shown
from .conversion_checks import (
    TOLERANCES,
    GradientCheck,
    Reference,
    Trial,
    check_gradients,
    difference,
    lowest,
    tried,
)
from .converters import CONVERTERS, ConverterName, convert, installed, reason, version_of
from .onnx_files import onnx_package, read_onnx
from .onnx_graphs import (
    STEPS,
    OnnxValue,
    check_for_inference,
    inputs_of,
    named,
    operations_of,
    opset_of,
    outputs_of,
    pruned,
    table_rows,
)
from .onnx_preparation import copied, freed_rows, in_double, simplified, with_constants
from .onnx_samples import RowAxes, Sample, row_axes

if TYPE_CHECKING:
    from onnx import ModelProto


LINE = "its change along a line"
FINITE = "finite differences in float64"


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
            found = outputs_from(self.network, self.provenance.inputs, sample)
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
            what = f"no {', '.join(map(repr, missing))}" if missing else f"{len(args)} inputs by place and {sorted(kwargs)} by name"
            raise InputError(
                f"got {what}; the network takes {named(self.provenance.inputs)}. Pass inputs that are not explained with args= or "
                "kwargs=."
            )
        sample, count = {}, None
        for value in self.provenance.inputs:
            x = given[value.name]
            if not isinstance(x, Tensor):
                raise InputError(f"got a {type(x).__name__} for {value.name!r}; expected a tensor: {value}.")
            sample[value.name] = x if x.dtype == value.dtype or x.is_floating_point() else x.to(value.dtype)
            axis = self._axes.axes.get(value.name)
            if axis is not None and x.ndim > axis and count is None:
                count = x.shape[axis]
        for name, axis in self._axes.axes.items():
            x = sample[name]
            if count is not None and x.ndim > axis and x.shape[axis] == 1 and count > 1:
                sample[name] = x.expand(*x.shape[:axis], count, *x.shape[axis + 1 :])
        return sample, count

    def _in_steps(self, sample: Sample, count: int, step: int) -> list[Tensor]:
        """Run as many rows at a time as the file is for, the last ones filled up with copies."""
        parts: list[list[Tensor]] = []
        for start in range(0, count, step):
            here = self._axes.take(sample, slice(start, start + step))
            there = min(step, count - start)
            if there < step:
                here = {name: self._filled(name, x, step) for name, x in here.items()}
            found = outputs_from(self.network, self.provenance.inputs, here)
            self._check_count(found)
            found = [x[None] if step == 1 and not x.ndim else x for x in found]
            if found[0].shape[0] != step:
                raise ModelError(
                    f"the network takes {step} row(s) at a time and gives {tuple(found[0].shape)} for them; expected a row for each. "
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
                f"the converted network gives {len(found)} outputs; the file has {named(self.provenance.outputs)}. Choose one with "
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


def from_onnx(
    source: str | PathLike[str] | bytes | ModelProto,
    *,
    converter: Literal["auto", "onnx2pytorch", "onnx2torch"] = "auto",
    output: str | int | None = None,
    constants: Mapping[str, Any] | None = None,
    check: bool | Literal["outputs"] = True,
    sample: Any = None,
    tolerance: float | None = None,
) -> OnnxModel:
    """A network in the ONNX format as a torch module that can be explained, compared with onnxruntime on the spot.

    Both converters are tried, onnx2pytorch first. What one makes is taken if it gives what onnxruntime gives, with one row and
    with several, and if its gradients add up to the change of onnxruntime's output along a line: an output can be right and
    its gradient cut. What was measured is in the module's ``provenance``, which it also prints.

    Args:
        source: the path of an .onnx file, its bytes, or what ``onnx.load`` gives. Nothing in it is executed but its operations;
            large tensors may lie in files of its own folder.
        converter: ``onnx2pytorch`` or ``onnx2torch`` alone, or whichever converts.
        output: the name or place of the output to keep, with only the operations that it needs; None keeps all.
        constants: inputs that are settings, by name, such as ``{"sr": 16000}``: the network is made for these values, and no
            longer has these inputs. Branches that depend on them alone are chosen.
        check: whether to compare with onnxruntime; ``outputs`` leaves out the gradients.
        sample: inputs to compare on, such as the x that is to be explained: a tensor, a tuple in the inputs' order, or a dict by
            name, which may leave some out. Without, they are drawn from a seed.
        tolerance: the largest difference from onnxruntime, relative to the largest output; by default 1e-4 for float32,
            1e-6 for float64 and 0.02 for float16.

    Returns:
        The module, in eval mode and frozen: inputs in their order or by name; the output, or a tuple of them.

    Raises:
        FileError: it is no .onnx file, or a damaged one.
        ModelError: neither converter makes the same network of it; with what each says.
        GradientError: outputs are the same, but not the gradients.
        MissingExtraError: packages are missing; with how to install them.
    """
    if converter != "auto" and converter not in CONVERTERS:
        raise OptionError(f"got converter {converter!r}; expected auto, {' or '.join(CONVERTERS)}.")
    if tolerance is not None and not 0 < tolerance < float("inf"):
        raise OptionError(f"got tolerance {tolerance!r}; expected a number above 0, such as 1e-3.")
    onnx_package()
    wanted = installed(CONVERTERS if converter == "auto" else (converter,))
    model, name = read_onnx(source)
    if model.functions:
        model = onnx_package().inliner.inline_local_functions(model)
    original = pruned(model, output, name)
    model = copied(original)
    fixed = with_constants(model, constants or {})
    check_for_inference(model, name)
    inputs = inputs_of(model)
    if not inputs:
        raise ModelError(f"{name} takes no input; expected a network of one input at least.")
    path = fspath(source) if isinstance(source, (str, PathLike)) else None
    reference = Reference(original, path, fixed) if check else None
    return _Conversion(model, name, inputs, reference, check is True, sample, tolerance).best(wanted)


@dataclass(frozen=True)
class _Refused:
    """Why a conversion is not taken: in words, and whether it is for its gradient alone."""

    said: str
    gradient: bool = False


@dataclass
class _Conversion:
    """One call of :func:`from_onnx`."""

    model: ModelProto
    name: str
    inputs: tuple[OnnxValue, ...]
    reference: Reference | None
    gradients: bool
    sample: Any
    tolerance: float | None

    def best(self, wanted: Sequence[ConverterName]) -> OnnxModel:
        """The first conversion without a flaw, or else the first that runs one row at a time."""
        self.axes = row_axes(self.inputs)
        self.trial = None if self.reference is None else tried(self.reference, self.model, self.axes, self.sample)
        refused: dict[str, _Refused] = {}
        single: OnnxModel | None = None
        for converter in wanted:
            for model in self._forms():
                found = self._attempt(converter, model)
                if isinstance(found, _Refused):
                    refused[converter] = found  # the last: of the simplest form
                elif found.provenance.rows == 1 and self.axes.axes:
                    single = single or found
                else:
                    return found
        if single is not None:
            return single
        raise self._neither(refused)

    def _forms(self) -> Iterator[ModelProto]:
        """The network in the forms that are given to converters: as it is, simplified, and for any number of rows."""
        yield self.model
        simple = simplified(copied(self.model))
        yield simple
        if self.axes.fixed == 1 and self.trial is not None and self.trial.several is not None:
            for model in (self.model, simple):
                free = freed_rows(model)
                if free is not None:
                    yield free

    def _attempt(self, converter: ConverterName, model: ModelProto) -> OnnxModel | _Refused:
        try:
            network = self._network(converter, model)
        except Exception as error:
            return _Refused(reason(converter, error, model))
        about = OnnxProvenance(
            self.name, version_of(converter), self.model.producer_name, opset_of(self.model), self.inputs, outputs_of(self.model)
        )
        if self.trial is None or self.reference is None:
            return OnnxModel(network, replace(about, rows=self.axes.fixed), self.axes)
        return self._compared(network, about, converter, model)

    def _compared(
        self, network: nn.Module, about: OnnxProvenance, converter: ConverterName, model: ModelProto
    ) -> OnnxModel | _Refused:
        assert self.trial is not None and self.reference is not None
        run = partial(outputs_from, network, self.inputs)
        tolerance = self.tolerance or TOLERANCES[lowest([*self.trial.reference, *self.inputs])]
        try:
            with torch.no_grad():
                off = difference(run(self.trial.one), self.trial.reference)
        except Exception as error:
            return _Refused(f"converts it, and fails when it runs ({reason(converter, error, self.model)})")
        if off > tolerance:
            return _Refused(f"converts it to another network: its output is {_far(off)} from {self.reference.version}'s")
        rows, off, notes = self._rows(run, off, tolerance)
        checks = self._gradients(run, converter, model) if self.gradients else []
        wrong = [one for one in checks if not one.right]
        if wrong:
            return _Refused(self._cut(wrong[0]), gradient=True)
        known = [(one.off, LINE) if one.exact is None else (one.exact, FINITE) for one in checks if one.off is not None]
        gradient, by = max(known, default=(None, ""))
        about = replace(
            about,
            reference=self.reference.version,
            difference=off,
            tolerance=tolerance,
            gradient=gradient,
            gradient_by=by,
            rows=rows,
            notes=(*notes, *self._gradient_notes(checks)),
        )
        return OnnxModel(network, about, self.axes)

    def _gradients(
        self, run: Callable[[Sample], list[Tensor]], converter: ConverterName, model: ModelProto
    ) -> list[GradientCheck]:
        assert self.trial is not None and self.reference is not None

        def doubled() -> Callable[[Sample], list[Tensor]]:
            return partial(outputs_from, self._network(converter, in_double(model)), self.inputs)

        return check_gradients(run, self.reference, self.trial, self.inputs, doubled)

    def _network(self, converter: ConverterName, model: ModelProto) -> nn.Module:
        network = convert(converter, _separate_outputs(model) if converter == "onnx2torch" else model)
        if converter == "onnx2pytorch" and hasattr(network, "onnx_model"):
            del network.onnx_model.graph.initializer[:]  # it keeps them as buffers
        return network

    def _rows(self, run: Callable[[Sample], list[Tensor]], off: float, tolerance: float) -> tuple[int | None, float, list[str]]:
        """How many rows the converted network takes, tried with several; the largest difference by now; and remarks."""
        trial, fixed = self.trial, self.axes.fixed
        assert trial is not None
        if trial.several is None or trial.of_several is None:
            if fixed is None and self.axes.axes:
                return 1, off, ["it runs one row at a time: onnxruntime takes no more, or its outputs have no rows"]
            if fixed is not None and fixed > 1:
                return fixed, off, [f"the file is for {fixed} rows at a time, and runs so"]
            return fixed, off, []
        try:
            with torch.no_grad():
                more = difference(run(trial.several), trial.of_several)
        except Exception:
            more = float("inf")
        if more <= tolerance:
            notes = ["the file is for one row; converted, it takes any number (compared with three)"] if fixed == 1 else []
            if trial.independent is False:
                notes.append("its rows depend on each other in onnxruntime too: the first side of its input is no batch of examples")
            return None, max(off, more), notes
        why = "the file is for one row" if fixed == 1 else "converted, it takes no more" if trial.together else "it takes no more"
        return 1, off, [f"it runs one row at a time: {why}"]

    def _gradient_notes(self, checks: Sequence[GradientCheck]) -> list[str]:
        notes = []
        if self.gradients and not checks:
            tables = ", ".join(map(shown, table_rows(self.model)))
            hint = f" such as that of the embedding of {tables}" if tables else ""
            notes.append(f"no input has a gradient, so that none was checked: explain the output of a layer{hint} (layer=)")
        for one in checks:
            if one.still:
                notes.append(f"the output did not change with {shown(one.name)}, in onnxruntime either")
            elif one.off is None:
                notes.append(f"the gradient of {shown(one.name)} could not be checked: the output hardly changed on the sample; pass sample=")
        return notes

    def _cut(self, check: GradientCheck) -> str:
        steps = sorted(STEPS & operations_of(self.model).keys())
        of = f"; the network has operations without one: {', '.join(steps)}" if steps else ""
        if check.flat:
            return f"gives the same outputs, but no gradient reaches the input {shown(check.name)!r}{of}"
        if check.exact is not None:
            return (
                f"gives the same outputs, but not the gradient of the input {shown(check.name)!r}: in float64 it is "
                f"{_percent(check.exact)} off a finite difference, and along a line its integral is {_percent(check.off or 0.0)} off "
                f"the change of the output{of}"
            )
        return (
            f"gives the same outputs, but not the gradient of the input {shown(check.name)!r}: along a line, its integral is "
            f"{_percent(check.off or 0.0)} off the change of the output{of}"
        )

    def _neither(self, refused: Mapping[str, _Refused]) -> ModelError:
        reasons = "; ".join(f"{version_of(name)} {one.said}" for name, one in refused.items())
        other = sorted(op for op in operations_of(self.model) if ":" in op)
        own = f" It uses operations beyond ONNX's own: {', '.join(map(shown, other))}." if other else ""
        if refused and any(one.gradient for one in refused.values()):
            return GradientError(
                f"{self.name} has no gradient that can be relied on: {reasons}.{own} Expected a network whose output changes smoothly "
                "with its input: export it without quantisation and up to its scores (output=), not up to labels; "
                "check='outputs' takes it as it is. integrand.methods.Shapley needs no gradient."
            )
        return ModelError(
            f"{self.name} cannot be converted to torch: {reasons}.{own} Expected a network that onnx2pytorch or onnx2torch knows all "
            "operations of. Export it in simpler operations (another opset, without post-processing), keep a part of it with "
            "output=, or load the original in torch; integrand.methods.Shapley explains what can only be called, such as a "
            "session of onnxruntime."
        )


def _separate_outputs(model: ModelProto) -> ModelProto:
    """A copy in which every output is that of an operation of its own: onnx2torch gives all outputs of an operation, or none."""
    if len(model.graph.output) < 2:
        return model
    copy = copied(model)
    for i, info in enumerate(copy.graph.output):
        copy.graph.node.append(onnx_package().helper.make_node("Identity", [info.name], [f"integrand_output_{i}"]))
        info.name = f"integrand_output_{i}"
    return copy


def _percent(value: float) -> str:
    return percent(value) if value >= 1e-3 else f"{100 * value:.2g}%"


def _far(off: float) -> str:
    return "of another shape, or not finite, and far" if off == float("inf") else f"{off:.1e} (relative to the largest)"
