"""ig.from_onnx: converts a network in the ONNX format, and compares it with onnxruntime before it is handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ..errors import GradientError, ModelError, OptionError
from ..words import percent, shown
from .conversion_checks import (
    TOLERANCES,
    GradientCheck,
    Reference,
    check_gradients,
    difference,
    lowest,
    tried,
)
from .converted_model import OnnxModel, OnnxProvenance, outputs_from
from .converters import CONVERTERS, ConverterName, convert, installed, reason, version_of
from .onnx_files import onnx_package, read_onnx
from .onnx_graphs import (
    STEPS,
    OnnxValue,
    check_for_inference,
    inputs_of,
    operations_of,
    opset_of,
    outputs_of,
    pruned,
    table_rows,
)
from .onnx_preparation import copied, freed_rows, in_double, simplified, with_constants
from .onnx_samples import Sample, row_axes

if TYPE_CHECKING:
    from onnx import ModelProto

LINE = "its change along a line"
FINITE = "finite differences in float64"


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
        sample: inputs to compare on, such as the x that is to be explained: a tensor, a tuple in the inputs' order, or a dict
            by name, which may leave some out. Without, they are drawn from a seed.
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
        model = import_module("onnx.inliner").inline_local_functions(model)  # which onnx itself does not import
    original = pruned(model, output, name)
    model = copied(original)
    fixed = with_constants(model, constants or {})
    check_for_inference(model, name)
    inputs = inputs_of(model)
    if not inputs:
        raise ModelError(f"{name} takes no input; expected a network of one input at least.")
    path = fspath(source) if isinstance(source, (str, PathLike)) else None
    reference = Reference(original, path, fixed) if check else None
    return _OnnxConversion(model, name, inputs, reference, check is True, sample, tolerance).best(wanted)


@dataclass(frozen=True)
class _NotTaken:
    """Why a conversion is not taken: in words, and whether it is for its gradient alone."""

    said: str
    gradient: bool = False


@dataclass
class _OnnxConversion:
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
        refused: dict[str, _NotTaken] = {}
        single: OnnxModel | None = None
        for converter in wanted:
            for model in self._forms():
                found = self._attempt(converter, model)
                if isinstance(found, _NotTaken):
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

    def _attempt(self, converter: ConverterName, model: ModelProto) -> OnnxModel | _NotTaken:
        try:
            network = self._network(converter, model)
        except Exception as error:
            return _NotTaken(reason(converter, error, model))
        about = OnnxProvenance(
            self.name,
            version_of(converter),
            self.model.producer_name,
            opset_of(self.model),
            self.inputs,
            outputs_of(self.model),
        )
        if self.trial is None or self.reference is None:
            return OnnxModel(network, replace(about, rows=self.axes.fixed), self.axes)
        return self._compared(network, about, converter, model)

    def _compared(
        self, network: nn.Module, about: OnnxProvenance, converter: ConverterName, model: ModelProto
    ) -> OnnxModel | _NotTaken:
        assert self.trial is not None
        assert self.reference is not None
        run = partial(outputs_from, network, self.inputs)
        tolerance = self.tolerance or TOLERANCES[lowest([*self.trial.reference, *self.inputs])]
        try:
            with torch.no_grad():
                off = difference(run(self.trial.one), self.trial.reference)
        except Exception as error:
            return _NotTaken(f"converts it, and fails when it runs ({reason(converter, error, self.model)})")
        if off > tolerance:
            return _NotTaken(f"converts it to another network: its output is {_far(off)} from {self.reference.version}'s")
        rows, off, notes = self._rows(run, off, tolerance)
        checks = self._gradients(run, converter, model) if self.gradients else []
        wrong = [one for one in checks if not one.right]
        if wrong:
            return _NotTaken(self._cut(wrong[0]), gradient=True)
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
        assert self.trial is not None
        assert self.reference is not None

        def doubled() -> Callable[[Sample], list[Tensor]]:
            return partial(outputs_from, self._network(converter, in_double(model)), self.inputs)

        return check_gradients(run, self.reference, self.trial, self.inputs, doubled)

    def _network(self, converter: ConverterName, model: ModelProto) -> nn.Module:
        network = convert(converter, _separate_outputs(model) if converter == "onnx2torch" else model)
        proto: Any = getattr(network, "onnx_model", None)
        if proto is not None:
            del proto.graph.initializer[:]  # onnx2pytorch keeps them as buffers
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
                notes.append(
                    "its rows depend on each other in onnxruntime too: the first side of its input is no batch of examples"
                )
            return None, max(off, more), notes
        why = (
            "the file is for one row" if fixed == 1 else "converted, it takes no more" if trial.together else "it takes no more"
        )
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
                notes.append(
                    f"the gradient of {shown(one.name)} could not be checked: the output hardly changed on the "
                    "sample; pass sample="
                )
        return notes

    def _cut(self, check: GradientCheck) -> str:
        steps = sorted(STEPS & operations_of(self.model).keys())
        of = f"; the network has operations without one: {', '.join(steps)}" if steps else ""
        if check.flat:
            return f"gives the same outputs, but no gradient reaches the input {shown(check.name)!r}{of}"
        if check.exact is not None:
            return (
                f"gives the same outputs, but not the gradient of the input {shown(check.name)!r}: in float64 it is "
                f"{_percent(check.exact)} off a finite difference, and along a line its integral is "
                f"{_percent(check.off or 0.0)} off "
                f"the change of the output{of}"
            )
        return (
            f"gives the same outputs, but not the gradient of the input {shown(check.name)!r}: along a line, its integral is "
            f"{_percent(check.off or 0.0)} off the change of the output{of}"
        )

    def _neither(self, refused: Mapping[str, _NotTaken]) -> ModelError:
        reasons = "; ".join(f"{version_of(name)} {one.said}" for name, one in refused.items())
        other = sorted(op for op in operations_of(self.model) if ":" in op)
        own = f" It uses operations beyond ONNX's own: {', '.join(map(shown, other))}." if other else ""
        if refused and any(one.gradient for one in refused.values()):
            return GradientError(
                f"{self.name} has no gradient that can be relied on: {reasons}.{own} Expected a network whose output "
                "changes smoothly "
                "with its input: export it without quantisation and up to its scores (output=), not up to labels; "
                "check='outputs' takes it as it is. integrand.methods.Shapley needs no gradient."
            )
        return ModelError(
            f"{self.name} cannot be converted to torch: {reasons}.{own} Expected a network that onnx2pytorch or "
            "onnx2torch knows all "
            "operations of. Export it in simpler operations (another opset, without post-processing), keep a part of it with "
            "output=, or load the original in torch; integrand.methods.Shapley explains what can only be called, such as a "
            "session of onnxruntime."
        )


def _separate_outputs(model: ModelProto) -> ModelProto:
    """A copy in which every output has an operation of its own: onnx2torch gives all outputs of an operation, or none."""
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
