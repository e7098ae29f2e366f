"""DeconvNet and guided back-propagation: the gradient with other rules at the rectifiers."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import ModelError, OptionError
from ..tracing.backward import ARITHMETIC, Handed, Kind, kind_of, no_rule, rectifies, sweep, vjp
from ..tracing.program import Operation, Program, Values
from ..trees import Leaves
from .gradients import gradient
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

BROKEN = {
    "completeness": "signals that are dropped at rectifiers are missing from the sum",
    "sensitivity_a": "negative signals are dropped on the way back, and saturated units pass nothing",
    "sensitivity_b": "two ways that cancel in the score need not cancel after signals are dropped",
    "implementation_invariance": "z written as relu(z) - relu(-z) drops other signals",
    "linearity": "the score's negative is not the negative: its signals are dropped",
    "symmetry": "equal inputs may reach the score through units written differently",
}

UNDEFINED = (Kind.POINTWISE, Kind.CUT, Kind.CHOICE, Kind.UNKNOWN)
"""Kinds of operations that may be activations, for which the rule is not defined; other kinds have their gradient."""

EXPECTED = (
    "Expected rectifiers (relu), for which it is defined. Use integrated gradients, or others='gradient' to take the plain "
    "gradient there."
)


@dataclass(frozen=True)
class _Rectified(Method, abc.ABC):
    """The base of methods that take the gradient, but with a rule of their own at rectifiers.

    Attributes:
        others: what to do at activations that are not rectifiers (GELU, sigmoid, ...), for which the rule is not
            defined: ``error``, or ``gradient`` to use their gradient, which the certificate then says. (Softmax always
            gets its gradient, which the certificate says too.)
    """

    others: Literal["error", "gradient"] = "error"

    promises: ClassVar[tuple[Promise, ...]] = promised(**BROKEN)

    def __post_init__(self) -> None:
        if self.others not in ("error", "gradient"):
            raise OptionError(f"got others={self.others!r}; expected 'error' or 'gradient'.")

    def attribute(self, problem: Problem) -> Attribution:
        """One forward and one backward pass by the rule, and one by the plain gradient to check the tracing."""
        plain: set[str] = set()

        def explain(program: Program, points: Leaves, _: Leaves) -> Leaves:
            return (*self._explain(program, points, plain), *_gradient_of_operations(program, points))

        values, slopes = by_operations(problem, explain, problem.starts[:1]).tensor_split(2, 1)
        _check_gradient(problem, slopes)
        note = f"plain gradient at {', '.join(sorted(plain))}, for which the method has no rule" if plain else ""
        return problem.dress(
            Found(values, self.promises, gradients=3, forwards=TRACED + 2, compares=False, notes=(note,) * problem.examples)
        )

    def _explain(self, program: Program, points: Leaves, plain: set[str]) -> Leaves:
        values = program.run(points)

        def rule(operation: Operation, arrived: Any) -> Handed:
            if rectifies(operation):
                return [(operation.refs[0], self._at_rectifier(operation, values, arrived))]
            if operation.name == "detach":
                return []
            kind = kind_of(operation, values)
            if kind in UNDEFINED and not (kind is Kind.POINTWISE and _is_arithmetic(operation, values)):
                if self.others == "error":
                    raise no_rule(self.name, operation, values, do=EXPECTED)
                plain.add(operation.name)
            if kind is Kind.SOFTMAX:
                plain.add(operation.name)
            return vjp(operation, values, arrived)

        _refuse_thresholds(self, program, values)
        return sweep(program, torch.ones_like(program.scores(values)), rule, values)

    @abc.abstractmethod
    def _at_rectifier(self, operation: Operation, values: Values, arrived: Tensor) -> Tensor:
        """What the argument of a rectifier gets in the backward pass."""


@final
@dataclass(frozen=True)
class GuidedBackprop(_Rectified):
    """Guided back-propagation (Springenberg 2014): rectifiers drop negative gradients, and those of inputs that are off."""

    name: ClassVar[str] = "guided back-propagation"

    def _at_rectifier(self, operation: Operation, values: Values, arrived: Tensor) -> Tensor:
        return dict(vjp(operation, values, arrived.clamp(min=0)))[operation.refs[0]]


@final
@dataclass(frozen=True)
class Deconvnet(_Rectified):
    """DeconvNet (Zeiler and Fergus 2014): rectifiers drop negative gradients, whether or not their input is on."""

    name: ClassVar[str] = "deconvnet"

    def _at_rectifier(self, operation: Operation, values: Values, arrived: Tensor) -> Tensor:
        return arrived.clamp(min=0).sum_to_size(values[operation.refs[0]].shape)


def _gradient_of_operations(program: Program, points: Leaves) -> Leaves:
    values = program.run(points)
    return sweep(program, torch.ones_like(program.scores(values)), lambda s, arrived: vjp(s, values, arrived), values)


def _check_gradient(problem: Problem, slopes: Tensor) -> None:
    """Refuse a model whose gradient is not that of its operations: it changes gradients in a way that tracing cannot see."""
    expected = gradient(problem)
    off = float((slopes - expected).abs().sum()) / (float(expected.abs().sum()) or 1.0)
    if off <= 0.05:
        return
    function = problem.function
    nearby = tuple(leaf * (1 + 2 * torch.finfo(leaf.dtype).eps) for leaf in function.inputs)
    noise = gradient(replace(problem, function=replace(function, inputs=nearby))) - expected
    if not float((slopes - expected).abs().sum()) <= 100 * float(noise.abs().sum()):  # far from rounding
        raise ModelError(
            f"the gradient of the model is {off:.0%} off the gradient of its operations, one by one. Expected a model that "
            "leaves gradients alone: look for torch.no_grad(), .data, autograd.Function or backward hooks. Use integrated "
            "gradients, which take the model's own gradient."
        )


def _is_arithmetic(operation: Operation, values: Values) -> bool:
    """Whether a pointwise operation is no activation: a power or the like, or a bound that keeps a divisor from zero."""
    guards = operation.name in ("clamp_min", "clamp") and torch.equal(values[operation.out], values[operation.refs[0]])
    return guards or operation.name in ARITHMETIC


def _refuse_thresholds(method: _Rectified, program: Program, values: Values) -> None:
    """Refuse comparisons, by which rectifiers are written by hand: the backward pass never reaches them by itself."""
    for operation in program.operations:
        cut = not operation.picks and operation.name != "detach" and kind_of(operation, values) is Kind.CUT
        if method.others == "error" and cut:
            raise no_rule(method.name, operation, values, do=EXPECTED)
