"""Reasons for which a model fails on its input or at the baseline, found by runs on changed inputs after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InputError, IntegrandError, ModelError, OutputError
from ..memory import out_of_memory
from ..trees import Leaves
from .function import Function
from .model_state import modules_of


@dataclass(frozen=True)
class Change:
    """A change of the input after which the model may run.

    Attributes:
        apply: makes the changed tensors.
        expected: what the model expects, in words.
        code: how to write it for one tensor.
    """

    apply: Callable[[Leaves], Leaves]
    expected: str
    code: str


def input_error(model: Callable[..., Any], run: Callable[[Leaves], Any], leaves: Leaves, error: Exception) -> InputError | None:
    """An error that says what to pass instead, for a model that fails on the input and runs on a small change of it.

    Args:
        model: the model.
        run: calls it on tensors.
        leaves: the explained tensors, on which it has failed.
        error: how it failed.
    """
    if isinstance(error, IntegrandError) or out_of_memory(error):
        return None
    for change in _changes(model, leaves):
        try:
            with torch.no_grad():
                run(tuple(leaf.clone() for leaf in change.apply(leaves)))
        except Exception:
            continue
        kinds = " and ".join(dict.fromkeys(f"shape {tuple(leaf.shape)} in {_name(leaf.dtype)}" for leaf in leaves))
        several = "" if len(leaves) == 1 else ", and so for each tensor"
        return InputError(
            f"got x of {kinds}, on which the model fails: {_first_line(error)}. Expected {change.expected}: the model runs on "
            f"that. Pass {change.code}{several}."
        )
    return None


def _changes(model: Callable[..., Any], leaves: Leaves) -> Iterable[Change]:
    """The changes to try: the type of the weights, a dimension for examples, and both."""
    weights = {p.dtype for module in modules_of(model) for p in module.parameters() if p.dtype.is_floating_point}
    kind = next(iter(weights)) if len(weights) == 1 else None
    cast = None
    if kind is not None and any(leaf.dtype.is_floating_point and leaf.dtype != kind for leaf in leaves):
        dtype, name = kind, _name(kind)
        cast = Change(
            lambda leaves: tuple(leaf.to(dtype) if leaf.dtype.is_floating_point else leaf for leaf in leaves),
            f"{name}, the type of its weights",
            f"x.to(torch.{name})",
        )
        yield cast
    if any(not leaf.ndim for leaf in leaves):
        return
    batch = Change(
        lambda leaves: tuple(leaf[None] for leaf in leaves), "a first dimension that counts examples, here of size 1", "x[None]"
    )
    yield batch
    if cast is not None:
        to_weights = cast.apply
        yield Change(
            lambda leaves: batch.apply(to_weights(leaves)), f"{batch.expected}, and {cast.expected}", f"{cast.code}[None]"
        )


def refuse_baseline(function: Function, starts: Iterable[Leaves], error: Exception) -> None:
    """Blame the baseline where the model fails there and runs on the input.

    Args:
        function: what is explained.
        starts: the baselines, (examples, ...) each.
        error: how the model failed, at the baseline or between it and the input.

    Raises:
        ModelError: with the error of the model at the baseline as its cause.
    """
    if out_of_memory(error) or (isinstance(error, IntegrandError) and not isinstance(error, OutputError)):
        return
    if _failure(function, function.inputs) is not None:
        return
    for start in starts:
        reason = _failure(function, start)
        if reason is not None and _failure(function, function.inputs) is None:  # and not from now on anywhere
            raise ModelError(
                f"the model fails at the baseline, and not at x: {_first_line(reason)}. Expected a baseline that the model "
                "takes for an input; some models drop an input that is all zero as padding. Try another one: for pictures a "
                "grey or blurred one (integrand.baselines), or any constant other than zero, such as baseline=0.01."
            ) from reason


def _failure(function: Function, leaves: Leaves) -> Exception | None:
    """The error of a model at some points, one for each example; None where it runs."""
    rows = torch.arange(function.examples, device=function.inputs[0].device)
    try:
        with torch.no_grad():
            function.scores(tuple(leaf.clone() for leaf in leaves), rows)
    except Exception as error:
        return error
    return None


def _first_line(error: Exception) -> str:
    """The name of an exception and the first line of what it says."""
    lines: Sequence[str] = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
