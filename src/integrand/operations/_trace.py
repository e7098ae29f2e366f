"""From a function to its program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .._trees import Leaves
from ..errors import IntegrandError, ModelError
from ..functions import Function
from ..functions._layer import uncompiled
from ..functions._modules import modules_of
from ..functions._parts import out_of_memory
from ._follow import NOT_FOLLOWED, follow
from ._program import Program, Step


def trace(function: Function, rows: Tensor, *, open_rows: bool = False, check: bool = True) -> Program:
    """The program that computes the scores of some examples at the input.

    Args:
        function: what is explained.
        rows: the examples.
        open_rows: take the rows as one more input, the last, so that the program serves any as many examples.
        check: see whether the program gives the scores that the model gives; leave it out where this is done elsewhere.

    Raises:
        ModelError: the model cannot be followed, or does something else when it is.
    """
    leaves = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
    count = len(leaves)
    if open_rows:
        leaves = (*leaves, rows)

    def scores(*points: Tensor) -> Tensor:
        return function.scores(points[:count], points[-1] if open_rows else rows)

    names = _parameter_names(function.call.model)
    with _plain_kernels():
        program = _program(scores, leaves, names)
    if any(step.name.startswith("mkldnn_rnn") for step in program.steps):  # a whole recurrent layer in one kernel
        with _plain_kernels(), _without_onednn():
            program = _program(scores, leaves, names)
    if not check:
        return program
    expected = function.at_input.index_select(0, rows.to(function.at_input.device))
    found = program.scores(program.run(leaves))
    if not _close(found, expected, function, rows):
        raise ModelError(
            f"the model gives {expected.tolist()[:3]} and its operations, followed one by one, give {found.tolist()[:3]}. "
            "Expected a model that does the same each time, without numpy, .tolist() or .item() on what it computes from x, "
            "and without writing into tensors of its own."
        )
    return program


def check_at(function: Function, program: Program, leaves: Leaves, rows: Tensor) -> None:
    """Whether a program that was followed at the input also tells the scores elsewhere.

    It does not where the model takes another way there, or turned numbers into constants behind the tracer's back.
    """
    with torch.no_grad():
        expected = function.scores(leaves, rows)
    if not expected.isfinite().all():
        return  # no affair of the operations; methods that need this score say so
    try:
        found: Any = program.scores(program.run(leaves))
    except (RuntimeError, IndexError) as error:
        if out_of_memory(error):
            raise
        found = None
    if found is None or not _close(found, expected, function, rows):
        told = "cannot be run" if found is None else f"give {found.tolist()[:3]}"
        raise ModelError(
            f"away from x the model gives {expected.tolist()[:3]}, and the operations that it does at x {told} there. "
            "Expected the same operations at every input: no branches on, and no numbers or numpy arrays made of, what is "
            "computed from x. Methods that need only gradients or scores take any model."
        )


def _close(found: Tensor, expected: Tensor, function: Function, rows: Tensor) -> bool:
    size = max(1.0, float(function.scale[rows.tolist()].max()), float(expected.abs().max()))
    slack = 10 * torch.finfo(expected.dtype).eps ** 0.5 * size  # fused kernels round otherwise; mistakes are larger
    return found.shape == expected.shape and bool(((found - expected).abs() <= slack).all())


def _program(scores: Callable[..., Tensor], leaves: Leaves, names: dict[int, str]) -> Program:
    """What the score depends on, as steps."""
    points = tuple(leaf.detach().clone() for leaf in leaves)
    with torch.no_grad(), uncompiled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        try:
            try:
                steps, result = follow(torch.func.functionalize(scores), points, names)
            except RuntimeError as error:  # what is written to a tensor outside cannot be functionalised
                if out_of_memory(error) or isinstance(error, IntegrandError):
                    raise
                points = tuple(leaf.detach().clone() for leaf in leaves)
                steps, result = follow(scores, points, names)
        except Exception as error:
            if out_of_memory(error) or isinstance(error, IntegrandError):
                raise
            scores(*points)  # where the model itself fails, with its own words
            raise ModelError(NOT_FOLLOWED.format(f"{type(error).__name__}: {str(error).splitlines()[0]}")) from error
    if result is None:
        raise ModelError(
            "the score does not depend on what is explained: following the model's operations from x never reaches it. "
            "Check the target, and look for .numpy(), torch.tensor(...), .item() or buffers that it writes to in the model."
        )
    return Program(len(leaves), _used(steps, result.index), result.index)


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


def _used(steps: list[Step], result: int) -> list[Step]:
    wanted, kept = {result}, []
    for step in reversed(steps):
        if step.out in wanted:
            wanted.update(step.refs)
            kept.append(step)
    return kept[::-1]
