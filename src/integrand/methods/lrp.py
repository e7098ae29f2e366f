"""LRP: layer-wise relevance propagation, with the epsilon, gamma and alpha-beta rules for layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import NonFiniteError, OptionError
from ..tracing.backward import BARE, WEIGHTED, Handed, Kind, factors, kind_of, no_rule, sweep, vjp
from ..tracing.linear_operations import (
    Points,
    constant_of,
    folded,
    fused,
    halves,
    hand_signed,
    points_of,
    signed_parts,
    without_constant,
)
from ..tracing.program import Operation, Program, Ref, Values
from ..trees import Leaves
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

Shares = list[tuple[int, Tensor]]

BROKEN = {
    "completeness": "relevances sum to F(x), not to its change from a baseline",
    "sensitivity_a": "a score of zero has no relevance to hand back, and a feature of zero gets none",
    "sensitivity_b": "two ways that cancel in the score may be written so that their shares do not",
    "implementation_invariance": "shares depend on which sums the network forms",
    "linearity": "two scores that cancel leave nothing to hand back to either",
    "symmetry": "equal inputs may reach the score through units written differently",
}

GATES = frozenset(
    ("sigmoid hardsigmoid _softmax _safe_softmax softmax rsqrt reciprocal sqrt exp detach gt ge lt le ne eq").split()
)
"""Operations whose results weigh other values; relevance goes to the values that they weigh."""

LARGE = 1e4
"""From this many times the score on, relevances are noted as large: they cancel almost entirely, and four digits are lost."""

LARGE_NOTE = "where a layer's sum is close to zero its parts are blown up; composite= or a larger epsilon keeps them small"

EXPECTED = "Expected sums, products, maxima and pointwise functions. Use integrated gradients, which need no rules."

SCALES = frozenset("mul div neg add sub rsub _to_copy to".split()) | {"sum of terms"}
"""Operations that, with one argument that depends on the input, scale or shift it number by number."""


def stabilised(value: Tensor, epsilon: float) -> Tensor:
    """A denominator moved away from zero by ``epsilon``, on its own side of zero."""
    return value + torch.where(value >= 0, epsilon, -epsilon)


def _check_not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise OptionError(f"got {name}={value!r}; expected a number from 0 on.")


@dataclass(frozen=True)
class Epsilon:
    """The rule that shares relevance in proportion to the contributions, with denominators kept away from zero.

    Attributes:
        epsilon: what is added to the size of a denominator; it takes its share of the relevance away.
    """

    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _check_not_negative("epsilon", self.epsilon)

    def share(self, operation: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Share the relevance that arrived at an operation among its arguments."""
        with torch.no_grad():
            total = without_constant(operation)(points) + constant
        slopes = vjp(operation, points, arrived / stabilised(total, self.epsilon))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class Gamma:
    """The rule in which contributions with the sign of the unit's sum count (1 + gamma)-fold.

    Attributes:
        gamma: by how much more these contributions count.
        epsilon: what is added to the size of a denominator, as in :class:`Epsilon`.
    """

    gamma: float = 0.25
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _check_not_negative("gamma", self.gamma)
        _check_not_negative("epsilon", self.epsilon)

    def share(self, operation: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Share the relevance that arrived at an operation among its arguments."""
        up, down = signed_parts(operation, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        with torch.no_grad():
            positive = operation(points) >= 0  # the unit's own sign, its bias included whether or not that gets a share
        total = up + down + self.gamma * torch.where(positive, up, down)
        share = arrived / stabilised(total, self.epsilon)
        more = (1 + self.gamma) * share
        slopes = hand_signed(operation, points, torch.where(positive, more, share), torch.where(positive, share, more))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class AlphaBeta:
    """The rule that gives positive contributions alpha times the relevance and negative ones -beta times; z+ is (1, 0).

    Attributes:
        alpha: the share of the positive contributions.
        beta: the share of the negative contributions; alpha - beta must be 1.
        epsilon: what is added to the size of a denominator, as in :class:`Epsilon`.
    """

    alpha: float = 2.0
    beta: float = 1.0
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "epsilon"):
            _check_not_negative(name, getattr(self, name))
        if abs(self.alpha - self.beta - 1) > 1e-9:
            raise OptionError(
                f"got alpha={self.alpha} and beta={self.beta}; expected alpha - beta = 1, so that relevance is kept."
            )

    def share(self, operation: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Share the relevance that arrived at an operation among its arguments."""
        up, down = signed_parts(operation, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        to_positive = self.alpha * arrived / stabilised(up, self.epsilon)
        to_negative = -self.beta * arrived / (down - self.epsilon)
        slopes = hand_signed(operation, points, to_positive, to_negative)
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class PositiveWeights:
    """The rule in which positive weights count more than others, whatever they are multiplied by (Montavon et al. 2019).

    Where all that a layer gets is positive, as after rectifiers, ``PositiveWeights(1, gamma)`` is LRP-gamma, and
    ``PositiveWeights(0, 1)`` is z+. Unlike in :class:`Gamma`, the share of the bias is not raised.

    Attributes:
        whole: what all weights are multiplied by.
        positive: what positive weights are multiplied by besides.
        bias: whether the bias keeps its share, where :class:`LRP` lets biases have one.
        epsilon: what is added to the size of a denominator, as in :class:`Epsilon`.
    """

    whole: float = 1.0
    positive: float = 0.25
    bias: bool = True
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("whole", "positive", "epsilon"):
            _check_not_negative(name, getattr(self, name))

    def share(self, operation: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Share the relevance that arrived at an operation among its arguments."""
        bare = without_constant(operation)
        half = halves(bare, points)[0][0]
        with torch.no_grad():
            total = self.whole * bare(points) + self.positive * half(points) + (constant if self.bias else 0)
        share = arrived / stabilised(total, self.epsilon)
        raised = dict(vjp(half, points, self.positive * share))
        slopes = vjp(bare, points, self.whole * share)
        return [(i, points[i] * (slope + raised.get(i, 0))) for i, slope in slopes]


@dataclass(frozen=True)
class Identity:
    """The rule that hands on what arrived, number by number, to the one argument of a layer that changes no shape."""

    def share(self, operation: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Hand the relevance that arrived at an operation to its argument."""
        index = operation.refs[0]
        if len(operation.refs) > 1 or points[index].shape != arrived.shape:
            raise OptionError(
                f"got the rule Identity() for a layer ({operation.module or operation.name}) from shape "
                f"{tuple(points[index].shape)} to {tuple(arrived.shape)}; expected a layer that keeps the shape."
            )
        return [(index, arrived)]


LayerRule = Epsilon | Gamma | AlphaBeta | PositiveWeights | Identity
"""The rules that a layer may have."""


Composite = tuple[tuple[str, LayerRule], ...]
"""Rules for layers, as pairs of a pattern and a rule; the first pattern that matches counts."""

PRESETS: dict[str, Composite] = {
    "epsilon-plus": (("convolution", AlphaBeta(1, 0)), ("*", Epsilon())),
    "epsilon-alpha2-beta1": (("convolution", AlphaBeta(2, 1)), ("*", Epsilon())),
    "epsilon-gamma": (("convolution", Gamma()), ("*", Epsilon())),
}

DEFAULT = Epsilon()


@final
@dataclass(frozen=True)
class LRP(Method):
    """Layer-wise relevance propagation (Bach 2015; Binder 2016).

    Every layer shares its relevance among its inputs in proportion to their contributions, by a rule. Activations
    pass on what they get; a maximum gives it to the winner; sums share it in proportion; of two factors a gate (sigmoid,
    softmax, a norm's scale) gets none, and otherwise each gets half.

    Attributes:
        rule: the rule of layers with weights: :class:`Epsilon`, :class:`Gamma` or :class:`AlphaBeta` (z+ is
            ``AlphaBeta(1, 0)``).
        composite: other rules for some layers: pairs of a pattern and a rule, where the pattern is an operation
            (``convolution``, ``linear``) or a submodule's dotted name with wildcards (``features.*``); or the name of a
            preset: ``epsilon-plus``, ``epsilon-alpha2-beta1``, ``epsilon-gamma``.
        fold: take a batch norm for a part of the layer before it, so that its shift is that layer's bias; else it is a layer
            of its own.
        bias: ``spread`` leaves biases out of the denominators, so that their share goes to the inputs, as in the numbers
            of the paper; ``keep`` lets them have it, and it is missing from the sum. Spreading makes relevances large
            where a bias outweighs what it is added to.
    """

    name: ClassVar[str] = "lrp"
    promises: ClassVar[tuple[Promise, ...]] = promised(**BROKEN)
    rule: LayerRule = DEFAULT
    composite: Composite | str = ()
    bias: Literal["spread", "keep"] = "spread"
    fold: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.composite, str) and self.composite not in PRESETS:
            raise OptionError(
                f"got composite={self.composite!r}; expected one of {', '.join(map(repr, PRESETS))}, or pairs of a "
                "pattern and a rule."
            )
        rules = [self.rule, *(rule for _, rule in self._composite)]
        if not all(isinstance(rule, LayerRule) for rule in rules):
            raise OptionError(
                f"got rules {rules}; expected Epsilon, Gamma or AlphaBeta of integrand.methods, or PositiveWeights or Identity "
                "of integrand.methods.lrp."
            )
        if self.bias not in ("spread", "keep"):
            raise OptionError(f"got bias={self.bias!r}; expected 'spread' or 'keep'.")

    @property
    def _composite(self) -> Composite:
        return PRESETS[self.composite] if isinstance(self.composite, str) else self.composite

    @property
    def sensitive(self) -> bool:
        """True: divisions by sums close to zero make rounding errors grow."""
        return True

    def attribute(self, problem: Problem) -> Attribution:
        """One forward and one backward pass for each example."""
        values = by_operations(problem, lambda program, points, _: self._explain(program, points), problem.starts[:1])
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"relevances overflow with {self!r}: sums close to zero share out many times what they got. Expected a rule "
                "that keeps them small: composite='epsilon-plus' for convolutional networks, or a larger epsilon."
            )
        sizes = values.abs().sum(1) / problem.function.at_input.double().abs().clamp(min=1e-300)
        notes = tuple(
            f"relevances are {size:.1g} times the score: {LARGE_NOTE}" if size > LARGE else "" for size in sizes.tolist()
        )
        rule = str(self.composite or self.rule)
        return problem.dress(Found(values, self.promises, rule, 1, TRACED + 1, compares=False, notes=notes))

    def rule_of(self, operation: Operation) -> LayerRule:
        """The rule for a layer: of the first pattern that matches it, else the default rule."""
        kind = "convolution" if operation.name == "convolution" else "linear"
        for pattern, rule in self._composite:
            if pattern == kind or (operation.module and fnmatchcase(operation.module, pattern)) or pattern == "*":
                return rule
        return self.rule

    def _explain(self, program: Program, points: Leaves) -> Leaves:
        program = fused(folded(program) if self.fold else program)
        self._check_patterns([operation for operation in program.operations if operation.name in WEIGHTED])
        values = program.run(points)
        made_by = {operation.out: operation for operation in program.operations}

        def rule(operation: Operation, arrived: Any) -> Handed:
            return self._share(operation, values, arrived, made_by)

        return sweep(program, program.scores(values), rule, values)

    def _check_patterns(self, layers: list[Operation]) -> None:
        """Refuse a pattern of the user's that no layer matches: a rule that is never used is a mistake."""
        for pattern, _ in () if isinstance(self.composite, str) else self.composite:
            if pattern not in ("convolution", "linear", "*") and not any(
                fnmatchcase(operation.module, pattern) for operation in layers
            ):
                names = (
                    ", ".join(dict.fromkeys(repr(operation.module) for operation in layers if operation.module))
                    or "none with a name"
                )
                raise OptionError(
                    f"got the pattern {pattern!r} in composite=; expected one that matches a layer of the model: {names}. "
                    "Patterns are 'convolution', 'linear' or dotted names with wildcards."
                )

    def _share(self, operation: Operation, values: Values, arrived: Any, made_by: dict[int, Operation]) -> Handed:
        kind = kind_of(operation, values)
        if kind in (Kind.MOVE, Kind.MAX):
            return vjp(operation, values, arrived)
        if kind is Kind.POINTWISE:
            index = operation.refs[0]
            return [(index, arrived.sum_to_size(values[index].shape))]
        if kind is Kind.LINEAR:
            return self._linear(operation, values, arrived)
        if kind is Kind.PRODUCT:
            return _product(operation, values, arrived, made_by)
        if kind is Kind.CUT:
            return []
        if kind is Kind.SOFTMAX:
            raise no_rule(
                self.name, operation, values, do="Expected logits: explain them with score='logit', before the softmax."
            )
        raise no_rule(self.name, operation, values, do=EXPECTED)

    def _linear(self, operation: Operation, values: Values, arrived: Tensor) -> Handed:
        points = points_of(operation, values)
        keeps = self.bias == "keep"
        constant = constant_of(operation, points) if keeps else torch.zeros((), dtype=arrived.dtype, device=arrived.device)
        if operation.name in WEIGHTED:
            return self.rule_of(operation).share(operation, points, arrived, constant)
        if len(points) == 1 and operation.name in SCALES and not keeps:
            index = operation.refs[0]
            return [(index, arrived.sum_to_size(values[index].shape))]
        return Epsilon().share(operation, points, arrived, constant)


def with_constant_factor(operation: Operation, place: int, values: Values) -> Operation:
    """A product with one of its factors, at position ``place``, taken as a constant."""
    args = tuple(values[arg.index].detach() if i == place else arg for i, arg in enumerate(operation.args))
    return replace(operation, args=args)


def _product(operation: Operation, values: Values, arrived: Tensor, made_by: dict[int, Operation]) -> Handed:
    """Share the relevance of a product: all to the signal where the other factor is a gate, else half to each factor."""
    first, second = (operation.args[i].index for i in factors(operation))
    gates = (_is_gate(first, values, made_by), _is_gate(second, values, made_by) or operation.name == "div")
    share = arrived / stabilised(values[operation.out], Epsilon().epsilon)
    slopes: dict[int, Tensor] = {}
    for index, place, weight in ((first, 0, gates), (second, 1, gates)):
        part = 0.5 if weight[0] == weight[1] else 0.0 if weight[place] else 1.0
        if part:
            constant = with_constant_factor(operation, factors(operation)[1 - place], values)
            for i, slope in vjp(constant, values, part * share):
                if i == index:
                    slopes[i] = slope if i not in slopes else slopes[i] + slope
    handed = [(i, values[i] * slope) for i, slope in slopes.items()]
    if isinstance(operation.args[0], Ref) and operation.name in BARE:
        handed += [(i, values[i] * s) for i, s in vjp(operation, values, share) if i == operation.args[0].index]
    return handed


def _is_gate(index: int, values: Values, made_by: dict[int, Operation]) -> bool:
    """Whether a value is the result of a gate, possibly moved or scaled."""
    while index in made_by:
        operation = made_by[index]
        if operation.name in GATES or (operation.name == "pow" and operation.args[1] in (-1, -0.5)):
            return True
        one = len(operation.refs) == 1
        if not one or (kind_of(operation, values) is not Kind.MOVE and without_constant(operation).name not in SCALES):
            return False
        index = operation.refs[0]
    return False
