"""DeepLift: discrete gradients between the input and the baseline, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import NonFiniteError, OptionError
from ..tracing.backward import Handed, Kind, kind_of, no_rule, product, secant, smallest, sweep, vjp
from ..tracing.linear_operations import NUMBER_BY_NUMBER, by_sign, fused, hand_signed, points_of, signed_parts, without_constant
from ..tracing.program import Operation, Program, Values
from ..trees import Leaves
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

BROKEN = {
    "sensitivity_b": "two ways that cancel in the score may be written so that their discrete gradients do not",
    "implementation_invariance": "the chain rule does not hold for discrete gradients",
    "symmetry": "equal inputs may reach the score through units written differently",
}

EXPECTED = (
    "Expected sums, products, maxima, softmax and pointwise functions. Use integrated gradients, which need no rules, or "
    "write the operation in terms of those."
)


@final
@dataclass(frozen=True)
class DeepLift(Method):
    """DeepLift (Shrikumar 2017): every nonlinearity is replaced by its slope between baseline and input.

    A pointwise function gets the slope (f(a) - f(a')) / (a - a'); a product of two values that both depend on the input (an
    attention, a gate) the mean of the other factor's two values, which is exact; softmax is exp(z - log sum exp z), taken
    apart; a maximum gives its change to the winner. So it is complete on all of these.

    Attributes:
        rule: ``rescale``, or ``reveal-cancel``, which treats the positive and the negative contributions to a
            nonlinearity apart.
        multipliers: give the slopes that the difference of input and baseline is multiplied by, instead of the products.
    """

    name: ClassVar[str] = "deeplift"
    promises: ClassVar[tuple[Promise, ...]] = promised(**BROKEN)
    rule: Literal["rescale", "reveal-cancel"] = "rescale"
    multipliers: bool = False

    def __post_init__(self) -> None:
        if self.rule not in ("rescale", "reveal-cancel"):
            raise OptionError(f"got rule={self.rule!r}; expected 'rescale' or 'reveal-cancel'.")

    @property
    def sensitive(self) -> bool:
        """True: differences of close numbers, and divisions by sums close to zero, make rounding errors grow."""
        return True

    def attribute(self, problem: Problem) -> Attribution:
        """One forward pass at the input and at each baseline, and one backward pass per baseline."""
        both = by_operations(problem, self._explain, problem.starts)
        products, slopes = both.tensor_split(2, 1) if self.multipliers else (both, both)
        count = len(problem.starts)
        forwards = TRACED + 4 * count - 2
        # Completeness is a matter of the products, whichever of the two are wanted.
        total = products.sum(1)
        scale = products.abs().sum(1) if self.multipliers else None
        return problem.dress(Found(slopes, self.promises, self.rule, count, forwards, total=total, scale=scale))

    def _explain(self, program: Program, points: Leaves, start: Leaves) -> Leaves:
        if self.rule == "reveal-cancel":
            program = fused(program)
        here, there = program.run(points), program.run(start)
        if not torch.isfinite(program.scores(there)).all():
            raise NonFiniteError(
                f"the score is {program.scores(there).tolist()} at the baseline; expected finite numbers. Choose a baseline "
                "within the model's domain."
            )
        _refuse_jumps(program, here, there)
        reveal = RevealCancel(program, here, there) if self.rule == "reveal-cancel" else None

        def rule(operation: Operation, arrived: Any) -> Handed:
            kind = kind_of(operation, here)
            if reveal is not None and kind is Kind.POINTWISE:
                return reveal.at_nonlinearity(operation, arrived)
            if reveal is not None and any(isinstance(part, SignedPair) for part in by_output(arrived).values()):
                done = reveal.at_sum(operation, arrived, kind)
                if done is not None:
                    return done
                arrived = reveal.collapse(operation.out, arrived)
            return rescale(operation, here, there, arrived, kind)

        slopes = sweep(program, torch.ones_like(program.scores(here)), rule, here)
        if reveal is not None:
            slopes = tuple(reveal.collapse(i, slope) for i, slope in enumerate(slopes))
        products = tuple(slope * (a - b) for slope, a, b in zip(slopes, points, start, strict=True))
        return (*products, *slopes) if self.multipliers else products


def rescale(operation: Operation, here: Values, there: Values, arrived: Any, kind: Kind) -> Handed:
    """The multiplier that each argument of an operation gets by the rescale rule, extended to products, maxima and softmax."""
    if operation.name == "detach":
        return [(operation.refs[0], arrived)]  # detach blocks gradients, not changes of the value
    if kind in (Kind.MOVE, Kind.LINEAR, Kind.CHOICE):  # a choice that is the same at both ends
        return vjp(operation, here, arrived)
    if kind is Kind.POINTWISE:
        index = operation.refs[0]
        slopes = arrived * secant(operation, here, there)
        return [(index, slopes.sum_to_size(here[index].shape))]
    if kind is Kind.PRODUCT:
        return product(operation, here, there, arrived)
    if kind is Kind.MAX:
        return _maximum(operation, here, there, arrived)
    if kind is Kind.CUT:
        return []  # the same at both ends
    if kind is Kind.SOFTMAX:
        return [(operation.refs[0], softmax_slopes(operation, here, there, arrived))]
    raise no_rule("deeplift", operation, here, do=EXPECTED)


def softmax_slopes(operation: Operation, here: Values, there: Values, arrived: Tensor) -> Tensor:
    """The multipliers of z in log sum exp z, log softmax z = z - log sum exp z, and softmax z = exp(log softmax z).

    The change of log sum exp is a weighted mean of changes: with L the logarithmic mean of two numbers, (u - v) / log(u / v),
    it is the sum over j of (z_j - z'_j) L(e_j, e'_j) / L(s, s'), where e = exp(z) and s is their sum.
    """
    index = operation.refs[0]
    dim: Any = operation.args[1]
    a, b = here[index], there[index]
    if operation.name == "logsumexp" and not (len(operation.args) > 2 and operation.args[2]):
        for d in sorted(d % a.ndim for d in ([dim] if isinstance(dim, int) else dim)):
            arrived = arrived.unsqueeze(d)
    top = torch.maximum(a, b).amax(dim, keepdim=True)
    a, b = (z - torch.where(top.isfinite(), top, 0) for z in (a, b))  # the same shift at both ends; near zero are more digits
    sa, sb = a.logsumexp(dim, keepdim=True), b.logsumexp(dim, keepdim=True)
    weights = (_log_mean(a, b) - _log_mean(sa, sb)).exp().nan_to_num(0)  # masked: -inf at both ends
    if operation.name == "logsumexp":
        return arrived * weights
    if "log" not in operation.name:
        arrived = arrived * _log_mean(a - sa, b - sb).exp().nan_to_num(0)
    out = arrived - weights * arrived.sum(dim, keepdim=True)
    return torch.where(a.isfinite() | b.isfinite(), out, 0).to(a.dtype)


@dataclass(frozen=True)
class SignedPair:
    """One multiplier for the positive contributions to a value, another for the negative ones."""

    positive: Tensor
    negative: Tensor

    def __add__(self, other: Tensor | SignedPair) -> SignedPair:
        if isinstance(other, SignedPair):
            return SignedPair(self.positive + other.positive, self.negative + other.negative)
        return SignedPair(self.positive + other, self.negative + other)

    __radd__ = __add__


class RevealCancel:
    """The reveal-cancel rule on one program, with the values at the input and at the baseline.

    Args:
        program: the traced model.
        here: the values of the program at the input.
        there: the values of the program at the baseline.
    """

    def __init__(self, program: Program, here: Values, there: Values) -> None:
        self.here, self.there = here, there
        self.made_by = {operation.out: operation for operation in program.operations}

    def parts(self, index: int) -> tuple[Tensor, Tensor]:
        """The positive and the negative part of a value's change: over its terms where it is a sum, else by its sign."""
        operation = self.made_by.get(index)
        kind = None if operation is None else kind_of(operation, self.here)
        if operation is not None and kind is Kind.LINEAR and not _adds_nothing_up(operation):
            return signed_parts(operation, self._changes(operation))
        if operation is not None and operation.picks:
            whole = self.made_by[operation.args[0].index]
            if kind_of(whole, self.here) is Kind.MOVE:
                up, down = (whole(dict(zip(whole.refs, side, strict=True)))[operation.args[1]] for side in self._sides(whole))
                return up, down
        elif operation is not None and kind in (Kind.MOVE, Kind.LINEAR):
            bare = without_constant(operation)
            up, down = (bare(dict(zip(operation.refs, side, strict=True))) for side in self._sides(operation))
            return torch.maximum(up, down), torch.minimum(up, down)
        change = self.here[index] - self.there[index]
        return change.clamp(min=0), change.clamp(max=0)

    def at_nonlinearity(self, operation: Operation, arrived: Any) -> Handed:
        """Multipliers at a nonlinearity: the effect of the positive and of the negative part, averaged over their order."""
        seed = self.collapse(operation.out, arrived)
        index = operation.refs[0]
        base = self.there[index]
        up, down = self.parts(index)
        with torch.no_grad():
            at = {(u, d): operation({index: base + u * up + d * down}) for u in (0, 1) for d in (0, 1)}
        by_up = ((at[1, 0] - at[0, 0]) + (at[1, 1] - at[0, 1])) / 2
        by_down = ((at[0, 1] - at[0, 0]) + (at[1, 1] - at[1, 0])) / 2
        # A part of no size has no effect; its slope multiplies nothing.
        slopes = (
            torch.where(part == 0, 0, by / torch.where(part == 0, 1, part)) for part, by in ((up, by_up), (down, by_down))
        )
        return [(index, SignedPair(*((seed * slope).sum_to_size(base.shape) for slope in slopes)))]

    def at_sum(self, operation: Operation, arrived: Any, kind: Kind) -> Handed | None:
        """Multipliers at a sum, where each term gets that of its sign; None where the operation is neither sum nor move."""
        if kind is Kind.LINEAR and not _adds_nothing_up(operation):
            return hand_signed(operation, self._changes(operation), arrived.positive, arrived.negative)
        if kind is Kind.MOVE:
            sides = [dict(vjp(operation, self.here, _side(arrived, positive=side))) for side in (True, False)]
            return [(index, SignedPair(part, sides[1][index])) for index, part in sides[0].items()]
        if kind is Kind.LINEAR:
            index = operation.refs[0]
            with torch.no_grad():
                factor = without_constant(operation)({index: torch.ones_like(self.here[index])})
            # A negative factor turns positive contributions into negative ones.
            seeds = (
                torch.where(factor < 0, *pair)
                for pair in ((arrived.negative, arrived.positive), (arrived.positive, arrived.negative))
            )
            return [(index, SignedPair(*(dict(vjp(operation, self.here, seed))[index] for seed in seeds)))]
        return None

    def collapse(self, index: int, arrived: Any) -> Any:
        """One multiplier for the whole change of a value, chosen by the sign of the change."""
        if isinstance(arrived, dict):
            return {slot: _by_sign(part, self.here[index][slot], self.there[index][slot]) for slot, part in arrived.items()}
        return _by_sign(arrived, self.here[index], self.there[index])

    def _sides(self, operation: Operation) -> list[tuple[Tensor, ...]]:
        """The positive parts of an operation's arguments, and the negative ones."""
        return list(zip(*(self.parts(i) for i in operation.refs), strict=True))

    def _changes(self, operation: Operation) -> dict[int, Tensor]:
        return {i: a - self.there[i] for i, a in points_of(operation, self.here).items()}


def by_output(arrived: Any) -> dict[int, Any]:
    """What arrived at each output of an operation, also where there is only one."""
    return arrived if isinstance(arrived, dict) else {0: arrived}


def _refuse_jumps(program: Program, here: Values, there: Values) -> None:
    """Refuse comparisons, indices and integers that differ between input and baseline: no multiplier passes through them."""
    made_by = {operation.out: operation for operation in program.operations}
    for operation in program.operations:
        if operation.picks or kind_of(operation, here) is Kind.CUT:
            continue
        for i in operation.refs:
            jumps = isinstance(here[i], Tensor) and not (here[i].dtype.is_floating_point or here[i].is_complex())
            if jumps and not torch.equal(here[i], there[i]):
                maker = made_by[i]
                maker = made_by[maker.args[0].index] if maker.picks else maker
                named = operation if kind_of(operation, here) is Kind.CHOICE else maker
                raise no_rule("deeplift", named, here, do=f"What {maker.name!r} gives jumps between baseline and x. {EXPECTED}")


def _maximum(operation: Operation, here: Values, there: Values, arrived: Any) -> Handed:
    """Multipliers at a maximum: a rise goes to what is largest at the input, a fall to what was largest at the baseline."""
    seed = arrived[0] if isinstance(arrived, dict) else arrived
    now, then = ((v[0] if isinstance(v, tuple) else v) for v in (here[operation.out], there[operation.out]))
    between = torch.minimum(now, then) if smallest(operation) else torch.maximum(now, then)
    rise, fall = (
        ({0: part} if isinstance(arrived, dict) else part) for part in (seed * (between - then), seed * (now - between))
    )
    risen, fallen = dict(vjp(operation, here, rise)), dict(vjp(operation, there, fall))
    handed = []
    for i in operation.refs:
        change = here[i] - there[i]
        share = risen[i] + fallen[i]
        handed.append((i, torch.where(change == 0, 0, share / torch.where(change == 0, 1, change))))
    return handed


def _log_mean(u: Tensor, v: Tensor) -> Tensor:
    """The logarithm of the logarithmic mean of exp(u) and exp(v)."""
    apart = (u - v).abs()
    return torch.maximum(u, v) + torch.where(apart == 0, 0, (-torch.expm1(-apart) / apart).log())


def _side(arrived: Any, *, positive: bool) -> Any:
    if isinstance(arrived, dict):
        return {slot: _side(part, positive=positive) for slot, part in arrived.items()}
    if not isinstance(arrived, SignedPair):
        return arrived
    return arrived.positive if positive else arrived.negative


def _by_sign(arrived: Any, here: Tensor, there: Tensor) -> Any:
    return by_sign(here - there, arrived.positive, arrived.negative) if isinstance(arrived, SignedPair) else arrived


def _adds_nothing_up(operation: Operation) -> bool:
    """Whether a linear operation has a single term: one value, scaled or shifted by constants number by number."""
    return len(operation.refs) == 1 and operation.name in NUMBER_BY_NUMBER
