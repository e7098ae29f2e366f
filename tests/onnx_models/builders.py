"""Small networks in the ONNX format, written down operation by operation, and the same in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

KINDS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def made(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[str, Sequence[Any]]],
    outputs: dict[str, tuple[str, Sequence[Any]]],
    tensors: dict[str, Tensor | np.ndarray],
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model; shapes have numbers, names of free sides, or None."""
    infos = [[helper.make_tensor_value_info(n, KINDS[k], s) for n, (k, s) in some.items()] for some in (inputs, outputs)]
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()]
    graph = helper.make_graph(list(nodes), "net", *infos, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


node = helper.make_node


def cnn(rows: Any = "n") -> tuple[onnx.ModelProto, nn.Module]:
    """Convolution, batch normalisation, ReLU, pooling, a linear layer: (N, 3, 8, 8) to (N, 5)."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 5)
    ).eval()
    norm, conv, last = net[1], net[0], net[5]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.running_mean = torch.randn(6) * 0.1
    norm.running_var = torch.rand(6) + 0.5
    tensors = {"cw": conv.weight, "cb": conv.bias, "s": norm.weight, "b": norm.bias, "m": norm.running_mean}
    tensors |= {"v": norm.running_var, "lw": last.weight, "lb": last.bias}
    nodes = [
        node("Conv", ["x", "cw", "cb"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "lw", "lb"], ["y"], transB=1),
    ]
    plain = {name: value.detach().numpy() for name, value in tensors.items()}
    return made(nodes, {"x": ("float32", (rows, 3, 8, 8))}, {"y": ("float32", (rows, 5))}, plain), net


class WordNet(nn.Module):
    """An embedding, a convolution over it, the largest value of each filter, a linear layer: (N, T) to (N, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.conv, self.last = nn.Embedding(40, 7), nn.Conv1d(7, 9, 3), nn.Linear(9, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.last(torch.relu(self.conv(self.words(ids).transpose(1, 2))).amax(2))


def words() -> tuple[onnx.ModelProto, WordNet]:
    torch.manual_seed(1)
    net = WordNet().eval()
    tensors = {"e": net.words.weight, "cw": net.conv.weight, "cb": net.conv.bias, "lw": net.last.weight, "lb": net.last.bias}
    nodes = [
        node("Gather", ["e", "ids"], ["w"], name="words"),
        node("Transpose", ["w"], ["t"], perm=[0, 2, 1]),
        node("Conv", ["t", "cw", "cb"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("ReduceMax", ["r"], ["m"], axes=[2], keepdims=0),
        node("Gemm", ["m", "lw", "lb"], ["y"], transB=1),
    ]
    plain = {name: value.detach().numpy() for name, value in tensors.items()}
    return made(nodes, {"ids": ("int64", ("n", "t"))}, {"y": ("float32", ("n", 3))}, plain), net
