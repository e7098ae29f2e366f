"""Rewrites a network in the ONNX format so that converters understand it: what it means stays, which is checked by running it.

Converters want weights as tensors of the file, while exporters compute some of them on the way (Paddle and Keras put them into
``Constant`` operations; a recurrent network may stack its weights). And what depends on a setting alone is a branch that no
converter needs to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..words import shown
from .onnx_files import onnx_package, tensors_of
from .onnx_graphs import DOMAINS, RANDOM, constants_of, inputs_of, pruned, subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

MOST_ROUNDS = 20
"""How often constants are computed and branches chosen; each round may open the way for the next."""

MOST_FOLDED = 1 << 30
"""The most bytes of constants that are computed beforehand; with more, the network is left as it is."""


def copied(model: ModelProto) -> ModelProto:
    """A copy of a network, to be changed."""
    copy: ModelProto = onnx_package().ModelProto()
    copy.CopyFrom(model)
    return copy


def with_constants(model: ModelProto, constants: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Give some inputs of a network a fixed value; changes the model, and gives the values in the inputs' types.

    Raises:
        InputError: the network has no such input.
    """
    onnx = onnx_package()
    known = {value.name: value for value in inputs_of(model)}
    found = {}
    for name, value in constants.items():
        if name not in known:
            raise InputError(f"constants: got {name!r}; expected inputs of the network: {', '.join(map(shown, known))}.")
        info = next(info for info in model.graph.input if info.name == name)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        found[name] = np.asarray(value, dtype=dtype)
        model.graph.input.remove(info)
        model.graph.initializer.append(onnx.numpy_helper.from_array(found[name], name))
    return found


def simplified(model: ModelProto) -> ModelProto:
    """The network with its constants computed, and branches that depend on nothing but constants chosen. Changes the model."""
    for _ in range(MOST_ROUNDS):
        if not (_fold(model) | _choose(model)):
            break
    return pruned(model, None, "")


def _fold(model: ModelProto) -> bool:
    """Compute what does not depend on the inputs; whether there was anything."""
    onnx, graph = onnx_package(), model.graph
    given = {value.name for value in inputs_of(model)}
    known = {tensor.name for tensor in graph.initializer if tensor.name not in given}
    outputs = {info.name for info in graph.output}
    fixed: list[NodeProto] = []
    for node in graph.node:
        foldable = (
            node.op_type not in RANDOM and node.domain in DOMAINS and not subgraphs(node) and not outputs & set(node.output)
        )
        if foldable and all(not name or name in known for name in node.input):
            fixed.append(node)
            known |= set(node.output)
    if not fixed:
        return False
    inside = {id(node) for node in fixed}
    used = {name for node in graph.node if id(node) not in inside for name in _names(node)}
    made = {name for node in fixed for name in node.output if name} & used
    values = _computed(model, fixed, sorted(made))
    if values is None:
        return False
    gone = {name for node in fixed for name in node.output}
    kept = [node for node in graph.node if not gone & set(node.output)]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in values.items())
    return True


def _computed(model: ModelProto, nodes: list[NodeProto], names: list[str]) -> dict[str, np.ndarray[Any, Any]] | None:
    """The values of some constants, by onnxruntime; None where it cannot, or they are too large."""
    onnx = onnx_package()
    values = {
        node.output[0]: onnx.numpy_helper.to_array(a.t)
        for node in nodes
        if node.op_type == "Constant"
        for a in node.attribute
        if a.name == "value"
    }
    rest = [name for name in names if name not in values]
    if rest:
        import onnxruntime

        needed = {name for node in nodes for name in node.input}
        tensors = [tensor for tensor in model.graph.initializer if tensor.name in needed]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in rest]
        part = onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "constants", [], outputs, tensors), opset_imports=model.opset_import
        )
        part.ir_version = model.ir_version
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
            values |= dict(zip(rest, session.run(rest, {}), strict=True))
        except Exception:  # what cannot be computed beforehand is left to the converter
            return None
    found = {name: values[name] for name in names}
    usable = all(isinstance(value, np.ndarray) and value.dtype.kind in "fiubc" for value in found.values())
    return found if usable and sum(value.nbytes for value in found.values()) <= MOST_FOLDED else None


def _choose(model: ModelProto) -> bool:
    """Put the branch of each ``If`` whose condition is constant in its place; whether there was any."""
    onnx, graph = onnx_package(), model.graph
    constants = constants_of(model)
    nodes: list[NodeProto] = []
    chosen = 0
    for node in graph.node:
        if node.op_type != "If" or node.input[0] not in constants:
            nodes.append(node)
            continue
        yes = bool(onnx.numpy_helper.to_array(constants[node.input[0]]).any())
        branch = next(a.g for a in node.attribute if a.name == ("then_branch" if yes else "else_branch"))
        inner, tensors = _inlined(branch, f"integrand_if_{chosen}_{node.output[0]}_", list(node.output))
        nodes += inner
        graph.initializer.extend(tensors)
        chosen += 1
    if chosen:
        del graph.node[:]
        graph.node.extend(nodes)
    return bool(chosen)


def _inlined(branch: GraphProto, prefix: str, outputs: list[str]) -> tuple[list[NodeProto], list[TensorProto]]:
    """The operations and tensors of a branch under names of their own; its results under the names that they have outside."""
    onnx = onnx_package()
    own = {name for node in branch.node for name in node.output if name} | {tensor.name for tensor in branch.initializer}
    names = {name: prefix + name for name in own}
    nodes = []
    for node in branch.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename(copy, names)
        nodes.append(copy)
    tensors = []
    for tensor in branch.initializer:
        renamed = onnx.TensorProto()
        renamed.CopyFrom(tensor)
        renamed.name = names[tensor.name]
        tensors.append(renamed)
    for info, name in zip(branch.output, outputs, strict=True):
        nodes.append(onnx.helper.make_node("Identity", [names.get(info.name, info.name)], [name]))
    return nodes, tensors


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename what an operation takes and gives, also inside its subgraphs, but not what these define themselves."""
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for graph in subgraphs(node):
        own = {name for inner in graph.node for name in inner.output} | {tensor.name for tensor in graph.initializer}
        own |= {info.name for info in graph.input}
        left = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            _rename(inner, left)
        for info in graph.output:
            info.name = left.get(info.name, info.name)


def _names(node: NodeProto) -> set[str]:
    """The names that an operation uses, those inside its subgraphs among them."""
    found = set(node.input)
    for graph in subgraphs(node):
        found |= {info.name for info in graph.output}
        for inner in graph.node:
            found |= _names(inner)
    return found


def freed_rows(model: ModelProto) -> ModelProto | None:
    """A copy of a network for one row in which ``Reshape`` no longer insists on one; None if none of them does.

    A shape such as (1, 1000) becomes (-1, 1000), and (1, -1) becomes (0, -1): as many rows as there are. Whether that is
    what the network means is found out by running it.
    """
    onnx = onnx_package()
    copy = copied(model)
    constants, added = constants_of(copy), list["TensorProto"]()
    for node in copy.graph.node:
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] not in constants:
            continue
        if any(a.name == "allowzero" and a.i for a in node.attribute):
            continue
        shape = onnx.numpy_helper.to_array(constants[node.input[1]])
        if shape.ndim != 1 or shape.size < 2 or shape[0] != 1:
            continue
        free = np.array([0 if (shape < 0).any() else -1, *shape[1:]], dtype=np.int64)
        added.append(onnx.numpy_helper.from_array(free, f"integrand_rows_{len(added)}"))
        node.input[1] = added[-1].name
    copy.graph.initializer.extend(added)
    return copy if added else None


def in_double(model: ModelProto) -> ModelProto:
    """A copy of a network in float64 throughout: its tensors, its inputs and outputs, and what it casts to."""
    onnx = onnx_package()
    kinds = onnx.TensorProto
    lower = (kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16)
    copy = copied(model)
    for tensor in tensors_of(copy):
        if tensor.data_type in lower:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    graphs = [copy.graph]
    while graphs:
        graph = graphs.pop()
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type in lower:
                info.type.tensor_type.elem_type = kinds.DOUBLE
        for node in graph.node:
            graphs += subgraphs(node)
            _doubled(node, lower)
    return copy


def _doubled(node: NodeProto, lower: tuple[int, ...]) -> None:
    """Let an operation give float64 where it would give less by itself."""
    onnx = onnx_package()
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in lower:
            attribute.i = onnx.TensorProto.DOUBLE
    if node.op_type == "Constant" and any(a.name in ("value_float", "value_floats") for a in node.attribute):
        old = node.attribute[0]
        value = np.asarray(old.f if old.name == "value_float" else list(old.floats), dtype=np.float64)
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1))))
