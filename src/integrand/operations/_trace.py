"""From a function to its program."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from .._trees import Leaves
from ..errors import IntegrandError, ModelError
from ..functions import Function
from ..functions._modules import modules_of
from ..functions._parts import out_of_memory
from ._apart import table
from ._program import Program, Ref, Step


def trace(function: Function, rows: Tensor) -> Program:
    """The program that computes the scores of some examples at the input.

    Raises:
        ModelError: the model cannot be followed, or does something else when it is.
    """
    leaves = tuple(leaf.index_select(0, rows) for leaf in function.inputs)

    def scores(*points: Tensor) -> Tensor:
        return function.scores(points, rows)

    names = _parameter_names(function.call.model)
    with _plain_kernels():
        program = _program(_graph(scores, leaves), len(leaves), names)
    if any(step.name.startswith("mkldnn_rnn") for step in program.steps):  # a whole recurrent layer in one kernel
        with _plain_kernels(), _without_onednn():
            program = _program(_graph(scores, leaves), len(leaves), names)
    expected = function.at_input.index_select(0, rows.to(function.at_input.device))
    found = program.scores(program.run(leaves))
    slack = 1e3 * torch.finfo(expected.dtype).eps * max(1.0, float(function.scale[rows.tolist()].max()))
    if found.shape != expected.shape or not bool(((found - expected).abs() <= slack).all()):
        raise ModelError(
            f"the model gives {expected.tolist()[:3]} and its operations, followed one by one, give {found.tolist()[:3]}. "
            "Expected a model that does the same each time, without writing into views of its own tensors."
        )
    return program


def _graph(scores: Callable[..., Tensor], leaves: Leaves) -> fx.GraphModule:
    points = tuple(leaf.detach().clone() for leaf in leaves)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's tracer warns about its own internals
        try:
            try:
                return make_fx(torch.func.functionalize(scores), decomposition_table=table())(*points)
            except RuntimeError as error:  # what is written to a tensor outside cannot be functionalised
                if out_of_memory(error):
                    raise
                return make_fx(scores, decomposition_table=table())(*points)
        except IntegrandError:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            raise ModelError(
                f"the operations of the model cannot be followed ({type(error).__name__}: {str(error).splitlines()[0]}). "
                "Expected a model whose Python code does not branch on, or convert to numbers, what it computes from x "
                "(.item(), float(t), if t > 0, numpy). Methods that need only gradients or scores take any model."
            ) from error


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Run attention as plain operations, not as one fused kernel."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with sdpa_kernel(SDPBackend.MATH):
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _without_onednn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # switching it off warns about Intel GPUs
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _parameter_names(model: Callable[..., Any]) -> dict[int, str]:
    """From a parameter's memory to the submodule that holds it."""
    names: dict[int, str] = {}
    for root in modules_of(model):
        for module_name, module in root.named_modules():
            for parameter in module.parameters(recurse=False):
                if not isinstance(parameter, torch.nn.UninitializedParameter):
                    names.setdefault(parameter.untyped_storage().data_ptr(), module_name)
    return names


def _program(graph: fx.GraphModule, inputs: int, names: dict[int, str]) -> Program:
    """Constants folded, what the score does not depend on left out."""
    known: dict[fx.Node, Any] = {}
    steps: list[Step] = []
    result: Any = None
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            known[node] = Ref(len(known))
        elif node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(graph)
        elif node.op == "output":
            result = known[node.args[0]] if isinstance(node.args[0], fx.Node) else None
        else:
            args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
            function, name = _functional(node.target)
            step = Step(inputs + len(steps), name, function, tuple(args), kwargs, _module(args, names))
            if step.refs:
                steps.append(step)
                known[node] = Ref(step.out)
            else:
                with torch.no_grad():
                    known[node] = step([])
    if not isinstance(result, Ref):
        raise ModelError(
            "the score does not depend on what is explained: following the model's operations from x never reaches it. "
            "Check the target, and look for .detach().numpy(), torch.tensor(...) or .item() in the model."
        )
    return Program(inputs, _used(steps, result.index), result.index)


def _used(steps: list[Step], result: int) -> list[Step]:
    wanted, kept = {result}, []
    for step in reversed(steps):
        if step.out in wanted:
            wanted.update(step.refs)
            kept.append(step)
    return kept[::-1]


def _module(args: Any, names: dict[int, str]) -> str:
    tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor) and leaf.numel()]
    found = (names.get(t.untyped_storage().data_ptr(), "") for t in tensors)
    return next((name for name in found if name), "")


def _functional(target: Any) -> tuple[Callable[..., Any], str]:
    """An operation and its name; one that writes in place is replaced by the one that does not."""
    if target is operator.getitem:
        return target, "getitem"
    name = target.overloadpacket.__name__
    if name.endswith("_") and not name.startswith("__") and hasattr(torch.ops.aten, name[:-1]):
        return getattr(torch.ops.aten, name[:-1]), name[:-1]
    return target, name
