"""Reads .onnx files that may come from anybody: nothing in them runs, and what they claim is held against the bytes they have.

An .onnx file is a message in protobuf's format: a list of operations by name, and tensors. It holds no code. Large tensors may
lie in files beside it, which are read here and nowhere else: by a plain name inside the folder of the file, and no further.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FileError, InputError, IntegrandError, MissingExtraError
from ..files import read_bytes, reading
from ..tensor_files import DIMENSIONS, LARGEST_TENSORS
from ..words import byte_size, first_line, shown

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

LARGEST_MESSAGE = (2 << 30) - 1
"""The most bytes of an .onnx file without the files beside it: protobuf has no larger messages."""

ONNX_FIELDS = 2_000_000
"""The most fields of an .onnx file that are looked at, all but the numbers; a network of 5,000 operations has some 100,000."""

NESTING = 64
"""How deep graphs may lie in one another: the branches of an ``If``, the body of a ``Loop``."""

_WHAT = "an .onnx file"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "leaf", 14: "leaf", 20: "training", 25: "function", 26: "leaf"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value", 14: "leaf", 15: "sparse", 16: "leaf"},
    "node": {5: "attribute", 9: "leaf", 10: "leaf"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 14: "type", 15: "type", 22: "sparse", 23: "sparse"},
    "function": {7: "node", 9: "leaf", 11: "attribute", 12: "value", 14: "leaf"},
    "training": {1: "graph", 2: "graph", 3: "leaf", 4: "leaf"},
    "sparse": {1: "tensor", 2: "tensor"},
    "value": {2: "type", 4: "leaf"},
    "type": {1: "typed", 4: "typed", 5: "typed", 8: "typed", 9: "typed"},
    "typed": {1: "type", 2: "shape"},
    "shape": {1: "leaf"},
    "tensor": {3: "leaf", 13: "leaf", 16: "leaf"},
    "leaf": {},
}
"""Which fields of which messages are messages themselves, in onnx.proto: those are walked through before protobuf makes
objects of them, which take many times the bytes of an empty message."""


def onnx_package() -> Any:
    """The package onnx, or an error that names the extra that brings it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "reading ONNX files") from None
    return onnx


def read_onnx(source: str | PathLike[str] | bytes | ModelProto) -> tuple[ModelProto, str]:
    """A network in the ONNX format, with all its tensors in memory, and a name for it.

    Args:
        source: the path of an .onnx file, its bytes, or what ``onnx.load`` gives, which stays as it is.

    Raises:
        FileError: it is no .onnx file, damaged, larger than it may be, or asks for files that it must not ask for.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        return _checked(model, None, "the model"), "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked(_parsed(bytes(source), "the bytes"), None, "the bytes"), "the bytes"
    if not isinstance(source, (str, PathLike)):
        raise InputError(
            f"got a {type(source).__name__}; expected the path of an .onnx file, its bytes, or the ModelProto that "
            "onnx.load gives."
        )
    path = Path(source)
    name = shown(str(path))
    if path.is_dir():
        raise FileError(f"{name!r} is a folder; expected {_WHAT}.")
    if not path.exists():
        raise FileError(f"there is no file {name!r}; expected {_WHAT}. Check the path.")
    data = read_bytes(path, what=_WHAT, most=LARGEST_MESSAGE)
    return _checked(_parsed(data, name), path.parent, name), name


def _damaged(name: str, why: str) -> FileError:
    return FileError(f"{name} cannot be read as {_WHAT} ({why}). Get the file again, or export the network anew.")


def _parsed(data: bytes, name: str) -> ModelProto:
    onnx = onnx_package()
    if not data:
        raise _damaged(name, "it is empty")
    _walk(data, name)
    try:
        model: ModelProto = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own errors, MemoryError, RecursionError
        raise _damaged(name, first_line(error)) from error
    return model


def _walk(data: bytes, name: str) -> None:
    """Count the fields of all messages, and refuse more of them, or deeper ones, than a network has."""
    left = [(0, len(data), "model", 0)]
    seen = 0
    while left:
        place, end, kind, depth = left.pop()
        inner = _MESSAGES[kind]
        while place < end:
            seen += 1
            if seen > ONNX_FIELDS:
                raise _damaged(name, f"it has more than {ONNX_FIELDS:,} fields")
            tag, place = _varint(data, place, end, name)
            sort = tag & 7
            if sort == _VARINT:
                _, place = _varint(data, place, end, name)
            elif sort == _BYTES:
                length, place = _varint(data, place, end, name)
                if tag >> 3 in inner and length:
                    deeper = depth + (inner[tag >> 3] in ("graph", "type"))
                    if deeper > NESTING:
                        raise _damaged(name, f"its graphs lie more than {NESTING} deep in one another")
                    left.append((place, min(place + length, end), inner[tag >> 3], deeper))
                place += length
            elif sort in (_FIXED32, _FIXED64):
                place += 4 if sort == _FIXED32 else 8
            else:
                raise _damaged(name, "it is not what ONNX writes")
            if place > end:
                raise _damaged(name, "it is cut short: a field reaches beyond its end")


def _varint(data: bytes, place: int, end: int, name: str) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if place + i >= end:
            break
        byte = data[place + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, place + i + 1
    raise _damaged(name, "it is cut short: a number has no end")


def _checked(model: ModelProto, folder: Path | None, name: str) -> ModelProto:
    """A model whose tensors are what they claim, with those of other files read in."""
    if not model.HasField("graph") or not model.graph.node:
        raise _damaged(name, "it holds no operations")
    if not model.opset_import:
        raise _damaged(name, "it does not say which version of the operations it uses")
    try:
        _check_contents(model, folder, name)
    except IntegrandError:
        raise
    except Exception as error:  # whatever a damaged file makes its readers raise
        raise _damaged(name, first_line(error)) from error
    return model


def _check_contents(model: ModelProto, folder: Path | None, name: str) -> None:
    onnx = onnx_package()
    total = 0
    for tensor in tensors_of(model):
        total += _check_tensor(tensor, name)
        if total > LARGEST_TENSORS:
            raise _damaged(name, f"its tensors have more than {byte_size(LARGEST_TENSORS)} together")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _read_beside(tensor, folder, name)
    if not all(isinstance(text, str) for text in _texts(model)):  # bytes, where they are no UTF-8
        raise _damaged(name, "some of its names are no texts")
    model.ir_version = max(model.ir_version, 4)  # before it, tensors had to be inputs too, which onnxruntime never asked for
    if model.ByteSize() <= LARGEST_MESSAGE:
        onnx.checker.check_model(model)


def _texts(model: ModelProto) -> Iterator[object]:
    """The names in a model: of operations, what they take and give, and of the inputs and outputs of graphs."""
    yield model.producer_name
    yield from (entry.domain for entry in model.opset_import)
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        for node in nodes:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield attribute.name
                graphs += ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
        nodes = []
        if graphs:
            graph = graphs.pop()
            nodes = list(graph.node)
            for info in (*graph.input, *graph.output):
                yield info.name
                yield from (side.dim_param for side in info.type.tensor_type.shape.dim)


def tensors_of(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model, those inside operations, subgraphs and functions among them."""
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            yield from _of_node(node, graphs)
    for function in model.functions:
        for node in function.node:
            yield from _of_node(node, graphs)
        while graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for node in graph.node:
                yield from _of_node(node, graphs)


def _of_node(node: NodeProto, graphs: list[GraphProto]) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("sparse_tensor"):
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        yield from attribute.tensors
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)


def _check_tensor(tensor: TensorProto, name: str) -> int:
    """The bytes of a tensor; an error if its shape is not that of the numbers it has."""
    onnx = onnx_package()
    label = shown(tensor.name)[:80]
    dims = list(tensor.dims)
    if len(dims) > DIMENSIONS or any(side < 0 for side in dims):
        raise _damaged(name, f"the tensor {label!r} has a shape that cannot be")
    count = math.prod(dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        if count != len(tensor.string_data):
            raise _damaged(name, f"the tensor {label!r} of shape {dims[:8]} has {len(tensor.string_data):,} texts")
        return sum(map(len, tensor.string_data))
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except Exception:
        raise _damaged(name, f"the tensor {label!r} is of an unknown type, {tensor.data_type}") from None
    packed = _packed(tensor.data_type)
    needed = count * dtype.itemsize if packed is None else -(-count * packed // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return int(needed)
    if tensor.HasField("raw_data"):
        there = len(tensor.raw_data)
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        stored = len(getattr(tensor, field))
        complex_parts = 2 if dtype.kind == "c" else 1
        there = needed if stored == count * complex_parts or (packed is not None and stored >= needed) else stored
    if there != needed:
        raise _damaged(name, f"the tensor {label!r} of shape {dims[:8]} needs {needed:,} bytes, and {there:,} are there")
    return int(needed)


def _packed(kind: int) -> int | None:
    """How many bits a number of a type has that is smaller than a byte; None for all others."""
    kinds = onnx_package().TensorProto.DataType
    name = next((key for key, value in kinds.items() if value == kind), "")
    return {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}.get(name)


def _read_beside(tensor: TensorProto, folder: Path | None, name: str) -> None:
    """Read a tensor from the file beside the model that it names; that must lie in the model's own folder."""
    onnx = onnx_package()
    entries = {entry.key: entry.value for entry in tensor.external_data}
    label, location = shown(tensor.name)[:80], entries.get("location", "")
    if folder is None:
        raise FileError(
            f"{name} keeps the tensor {label!r} in a file beside it ({shown(location)[:80]!r}); expected a model with all its "
            "tensors. Pass the path of the .onnx file instead, so that it can be found."
        )
    parts = PurePosixPath(location.replace("\\", "/")).parts
    inside = bool(parts) and ".." not in parts and not PurePosixPath(location).is_absolute() and ":" not in location
    if not inside or not (folder / location).resolve().is_relative_to(folder.resolve()):
        raise FileError(
            f"{name} asks for the file {shown(location)[:80]!r} for its tensor {label!r}; expected one in its own "
            "folder. Nothing "
            "outside of it is read. Get the file again, or save it anew with onnx.save."
        )
    path = folder / location
    try:
        offset, length = int(entries.get("offset", 0)), int(entries["length"]) if "length" in entries else None
    except ValueError:
        raise _damaged(name, f"the tensor {label!r} has no place in {shown(location)[:80]!r}") from None
    needed = _check_tensor(tensor, name)
    with reading(path, what=f"tensors of {name}") as file:
        size = os.fstat(file.fileno()).st_size
        if offset < 0 or (length is not None and length != needed) or offset + needed > size:
            raise _damaged(
                name, f"the tensor {label!r} needs {needed:,} bytes, and {shown(location)[:80]!r} does not have them there"
            )
        file.seek(offset)
        tensor.raw_data = file.read(needed)
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.DEFAULT
