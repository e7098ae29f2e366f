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
from ..tracing.kinds import ARITHMETIC, Kind, kind_of, rectifies
from ..tracing.program import Operation, Program, Values
from ..tracing.sweep import Handed, no_rule, sweep, vjp
from ..trees import Leaves
from .gradients import gradient
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

_BREAKS = {
    "completeness": "signals that are dropped at rectifiers are missing from the sum",
    "sensitivity_a": "negative signals are dropped on the way back, and saturated units pass nothing",
    "sensitivity_b": "two ways that cancel in the score need not cancel after signals are dropped",
    "implementation_invariance": "z written as relu(z) - relu(-z) drops other signals",
    "linearity": "the score's negative is not the negative: its signals are dropped",
    "symmetry": "equal inputs may reach the score through units written differently",
}


@dataclass(frozen=True)
class _Rectified(Method, abc.ABC):
    """The gradient, with a rule of its own at rectifiers.

    Attributes:
        others: what to do at activations that are not rectifiers (GELU, sigmoid, ...), for which the rule is not
            defined: ``error``, or ``gradient`` to hand back their gradient, which the certificate then says. (At softmax
            it always is the gradient, and said.)
    """

    others: Literal["error", "gradient"] = "error"

    promises: ClassVar[tuple[Promise, ...]] = promised(**_BREAKS)

    def __post_init__(self) -> None:
        if self.others not in ("error", "gradient"):
            raise OptionError(f"got others={self.others!r}; expected 'error' or 'gradient'.")

    def attribute(self, problem: Problem) -> Attribution:
        """One pass forward and one back for each example."""
        plain: set[str] = set()

        def explain(program: Program, points: Leaves, _: Leaves) -> Leaves:
            return (*self._explain(program, points, plain), *_gradient(program, points))

        values, slopes = by_operations(problem, explain, problem.starts[:1]).tensor_split(2, 1)
        _check_gradient(problem, slopes)
        note = f"plain gradient at {', '.join(sorted(plain))}" if plain else ""
        return problem.dress(
            Found(values, self.promises, gradients=3, forwards=TRACED + 2, compares=False, notes=(note,) * problem.examples)
        )

    def _explain(self, program: Program, points: Leaves, plain: set[str]) -> Leaves:
        values = program.run(points)

        def rule(step: Operation, arrived: Any) -> Handed:
            if rectifies(step):
                return [(step.refs[0], self._at_rectifier(step, values, arrived))]
            if step.name == "detach":
                return []
            kind = kind_of(step, values)
            if kind in _UNDEFINED and not (kind is Kind.POINTWISE and _is_arithmetic(step, values)):
                if self.others == "error":
                    raise no_rule(self.name, step, values, do=_DO)
                plain.add(step.name)
            if kind is Kind.SOFTMAX:
                plain.add(step.name)
            return vjp(step, values, arrived)

        _refuse_thresholds(self, program, values)
        return sweep(program, torch.ones_like(program.scores(values)), rule, values)

    @abc.abstractmethod
    def _at_rectifier(self, step: Operation, values: Values, arrived: Tensor) -> Tensor:
        """What the argument of a rectifier gets."""


_UNDEFINED = (Kind.POINTWISE, Kind.CUT, Kind.CHOICE, Kind.UNKNOWN)
"""Kinds that hold activations and what they are written with; sums, products, maxima and softmax have their gradient."""

_DO = (
    "Expected rectifiers (relu), for which it is defined. Use integrated gradients, or others='gradient' to take the plain "
    "gradient there."
)


def _gradient(program: Program, points: Leaves) -> Leaves:
    values = program.run(points)
    return sweep(program, torch.ones_like(program.scores(values)), lambda s, arrived: vjp(s, values, arrived), values)


def _check_gradient(problem: Problem, slopes: Tensor) -> None:
    """Whether operations, one by one, have the model's gradient; what it does to gradients itself is not seen in them."""
    expected = gradient(problem)
    off = float((slopes - expected).abs().sum()) / (float(expected.abs().sum()) or 1.0)
    if off <= 0.05:
        return
    function = problem.function
    moved = tuple(leaf * (1 + 2 * torch.finfo(leaf.dtype).eps) for leaf in function.inputs)
    noise = gradient(replace(problem, function=replace(function, inputs=moved))) - expected
    if not float((slopes - expected).abs().sum()) <= 100 * float(noise.abs().sum()):  # far from rounding
        raise ModelError(
            f"the gradient of the model is {off:.0%} off the gradient of its operations, one by one. Expected a model that "
            "leaves gradients alone: look for torch.no_grad(), .data, autograd.Function or backward hooks. Use integrated "
            "gradients, which take the model's own gradient."
        )


def _is_arithmetic(step: Operation, values: Values) -> bool:
    """Whether a function of each number is no activation: powers and the like, and bounds that keep a divisor from zero."""
    guards = step.name in ("clamp_min", "clamp") and torch.equal(values[step.out], values[step.refs[0]])
    return guards or step.name in ARITHMETIC


def _refuse_thresholds(method: _Rectified, program: Program, values: Values) -> None:
    """Comparisons are how rectifiers are written by hand; nothing arrives at them, so they are looked for."""
    for step in program.steps:
        cut = not step.picks and step.name != "detach" and kind_of(step, values) is Kind.CUT
        if method.others == "error" and cut:
            raise no_rule(method.name, step, values, do=_DO)


@final
@dataclass(frozen=True)
class GuidedBackprop(_Rectified):
    """Guided back-propagation (Springenberg 2014): at rectifiers, what is negative is dropped, and so is what was off."""

    name: ClassVar[str] = "guided back-propagation"

    def _at_rectifier(self, step: Operation, values: Values, arrived: Tensor) -> Tensor:
        return dict(vjp(step, values, arrived.clamp(min=0)))[step.refs[0]]


@final
@dataclass(frozen=True)
class Deconvnet(_Rectified):
    """DeconvNet (Zeiler and Fergus 2014): rectifiers drop what is negative on the way back, whatever was on."""

    name: ClassVar[str] = "deconvnet"

    def _at_rectifier(self, step: Operation, values: Values, arrived: Tensor) -> Tensor:
        return arrived.clamp(min=0).sum_to_size(values[step.refs[0]].shape)
