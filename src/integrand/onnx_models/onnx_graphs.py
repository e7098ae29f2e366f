"""What a network in the ONNX format says of itself: inputs, outputs, operations; and the part of it that some outputs need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import ModelError, OptionError
from ..words import shown
from .onnx_files import onnx_package

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

DOMAINS = ("", "ai.onnx")
"""The names of the domain that the standard operations are in."""

RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split())
"""Operations that draw random numbers."""

STEPS = frozenset(
    "Round Floor Ceil Sign ArgMax ArgMin Equal Greater Less GreaterOrEqual LessOrEqual Hardmax OneHot NonZero "
    "NonMaxSuppression "
    "QuantizeLinear DynamicQuantizeLinear ConvInteger MatMulInteger QLinearConv QLinearMatMul".split()
)
"""Operations whose outputs do not change, or jump, where their inputs change a little: no gradient gets through them."""

Side = int | str | None
"""A side of a shape: a number, the name of one that is free, or None for a free one without a name."""


@dataclass(frozen=True)
class OnnxValue:
    """An input or output of a network.

    Attributes:
        name: as in the file.
        dtype: of its numbers.
        shape: its sides; None where the file does not say.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Side, ...] | None

    def __str__(self) -> str:
        sides = "any shape" if self.shape is None else f"({', '.join('?' if s is None else str(s) for s in self.shape)})"
        return f"{shown(self.name)} {sides} {str(self.dtype).removeprefix('torch.')}"


def inputs_of(model: ModelProto) -> tuple[OnnxValue, ...]:
    """What the network has to be given, in its order; inputs that have a value in the file are left out."""
    given = {tensor.name for tensor in model.graph.initializer}
    given |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    return tuple(_value(info, "input") for info in model.graph.input if info.name not in given)


def outputs_of(model: ModelProto) -> tuple[OnnxValue, ...]:
    """What the network gives, in its order."""
    return tuple(_value(info, "output") for info in model.graph.output)


def _value(info: ValueInfoProto, what: str) -> OnnxValue:
    onnx = onnx_package()
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        words = {"sequence_type": "a sequence", "map_type": "a map", "optional_type": "an optional value"}.get(
            kind or "", "no tensor"
        )
        hint = (
            "Choose another output with output=; a classifier of scikit-learn gives tensors if it is converted with "
            "options={'zipmap': False}."
            if what == "output"
            else "Export the network anew, with tensors alone."
        )
        raise ModelError(f"the {what} {shown(info.name)!r} is {words}; expected a tensor. {hint}")
    tensor = info.type.tensor_type
    try:
        dtype = torch.from_numpy(np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))).dtype
    except (TypeError, KeyError, ValueError):
        names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
        name = names.get(tensor.elem_type, f"number {tensor.elem_type}")
        raise ModelError(f"the {what} {shown(info.name)!r} is of type {name}, which torch has not; expected numbers.") from None
    if not tensor.HasField("shape"):
        return OnnxValue(info.name, dtype, None)
    sides = (side.dim_value if side.dim_value > 0 else side.dim_param or None for side in tensor.shape.dim)
    return OnnxValue(info.name, dtype, tuple(sides))


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """All operations, those of branches, loops and functions among them."""
    graphs: list[GraphProto] = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if not nodes:
            nodes = list(graphs.pop().node)
            continue
        node = nodes.pop(0)
        yield node
        graphs += subgraphs(node)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs inside an operation."""
    return [graph for a in node.attribute for graph in ([a.g] if a.HasField("g") else []) + list(a.graphs)]


def operations_of(model: ModelProto) -> Counter[str]:
    """How often each operation is there; those that are not the standard's have their domain before them."""
    return Counter(n.op_type if n.domain in DOMAINS else f"{n.domain}:{n.op_type}" for n in nodes_of(model))


def check_for_inference(model: ModelProto, name: str) -> None:
    """Refuse what gives something else each time: networks that draw random numbers, or were exported while being trained.

    Raises:
        ModelError: with the operations, and what to do.
    """
    found = operations_of(model)
    drawn = sorted(RANDOM & found.keys())
    if drawn:
        raise ModelError(
            f"{name} draws random numbers ({', '.join(drawn)}); expected a network that gives the same for the same "
            "input. Export "
            "it without them, or with the noise as an input."
        )
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    trained = Counter[str]()
    for node in nodes_of(model):
        mode = next((a.i for a in node.attribute if a.name == "training_mode"), 0)
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in constants:
            mode = bool(onnx_package().numpy_helper.to_array(constants[node.input[2]]).any())
        if node.op_type in ("BatchNormalization", "Dropout") and mode:
            trained[node.op_type] += 1
    if trained:
        raise ModelError(
            f"{name} was exported in training mode ({', '.join(sorted(trained))}); expected a network for inference. Call "
            "model.eval() before it is exported, and export it with training=TrainingMode.EVAL, the default."
        )


def pruned(model: ModelProto, output: str | int | None, name: str) -> ModelProto:
    """The network with one output, or all, and only the operations and tensors that are needed for it. Changes the model.

    Args:
        model: the network.
        output: the name or the place of an output; None keeps all.
        name: of the file, for errors.
    """
    graph, names = model.graph, [info.name for info in model.graph.output]
    if output is not None:
        known = ", ".join(shown(one) for one in names)
        if isinstance(output, int) and not isinstance(output, bool) and -len(names) <= output < len(names):
            output = names[output]
        if output not in names:
            raise OptionError(f"got output {output!r}; {name} has {known}. Expected one of these names, or its place.")
        kept = [info for info in graph.output if info.name == output]
        del graph.output[:]
        graph.output.extend(kept)
    wanted = {info.name for info in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            nodes.append(node)
            wanted |= set(_used(node))
    for field, kept_of in (
        (graph.node, nodes[::-1]),
        (graph.initializer, [tensor for tensor in graph.initializer if tensor.name in wanted]),
        (graph.value_info, []),
        (graph.input, [info for info in graph.input if output is None or info.name in wanted]),
    ):
        copies = list(kept_of)
        del field[:]
        field.extend(copies)
    return model


def _used(node: NodeProto) -> Iterator[str]:
    """The names that an operation uses, those inside its subgraphs among them."""
    yield from node.input
    for graph in subgraphs(node):
        yield from (info.name for info in graph.output)
        for inner in graph.node:
            yield from _used(inner)


def constants_of(model: ModelProto) -> dict[str, TensorProto]:
    """The tensors of the outer graph by name: initializers, and what ``Constant`` operations give."""
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            found[node.output[0]] = value
    return found


def table_rows(model: ModelProto) -> dict[str, int]:
    """For inputs that are places in a table, such as token ids in an embedding: how many rows the smallest such table has."""
    sizes, names = constants_of(model), {value.name: value.name for value in inputs_of(model)}
    found: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type in ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten") and node.input[0] in names:
            names[node.output[0]] = names[node.input[0]]
        if node.op_type == "Gather" and node.input[0] in sizes and node.input[1] in names and sizes[node.input[0]].dims:
            rows = sizes[node.input[0]].dims[0]
            name = names[node.input[1]]
            found[name] = min(found.get(name, rows), rows)
    return found


def opset_of(model: ModelProto) -> int:
    """The version of the standard operations that the network uses; 0 where it uses none of them."""
    return next((entry.version for entry in model.opset_import if entry.domain in DOMAINS), 0)


def named(values: Sequence[OnnxValue]) -> str:
    """Inputs or outputs as text: names, shapes and types."""
    return ", ".join(str(value) for value in values)
