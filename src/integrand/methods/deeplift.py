"""DeepLift: discrete gradients between the input and the baseline, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import NonFiniteError, OptionError
from ..tracing.kinds import Kind, kind_of, smallest
from ..tracing.program import Operation, Program, Values
from ..tracing.rewriting import fused
from ..tracing.signed import NUMBER_BY_NUMBER, by_sign, hand_signed, points_of, signed_parts, without_constant
from ..tracing.sweep import Handed, no_rule, product, secant, sweep, vjp
from ..trees import Leaves
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

_BREAKS = {
    "sensitivity_b": "two ways that cancel in the score may be written so that their discrete gradients do not",
    "implementation_invariance": "the chain rule does not hold for discrete gradients",
    "symmetry": "equal inputs may reach the score through units written differently",
}


@final
@dataclass(frozen=True)
class DeepLift(Method):
    """DeepLift (Shrikumar 2017): every nonlinearity is replaced by its slope between baseline and input.

    A pointwise function hands back (f(a) - f(a')) / (a - a'); a product of two values that both depend on the input (an
    attention, a gate) the mean of the other factor's two values, which is exact; softmax is exp(z - log sum exp z), taken
    apart; a maximum gives its change to the winner. So it is complete on all of these.

    Attributes:
        rule: ``rescale``, or ``reveal-cancel``, which treats the positive and the negative contributions to a
            nonlinearity apart.
    """

    name: ClassVar[str] = "deeplift"
    promises: ClassVar[tuple[Promise, ...]] = promised(**_BREAKS)
    rule: Literal["rescale", "reveal-cancel"] = "rescale"

    def __post_init__(self) -> None:
        if self.rule not in ("rescale", "reveal-cancel"):
            raise OptionError(f"got rule={self.rule!r}; expected 'rescale' or 'reveal-cancel'.")

    @property
    def sensitive(self) -> bool:
        """Differences of close numbers, and sums close to zero, make rounding grow."""
        return True

    def attribute(self, problem: Problem) -> Attribution:
        """One pass forward at the input and at each baseline, and one back."""
        values = by_operations(problem, self._explain, problem.starts)
        count = len(problem.starts)
        return problem.dress(Found(values, self.promises, rule=self.rule, gradients=count, forwards=TRACED + 4 * count - 2))

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

        def rule(step: Operation, arrived: Any) -> Handed:
            kind = kind_of(step, here)
            if reveal is not None and kind is Kind.POINTWISE:
                return reveal.at_nonlinearity(step, arrived)
            if reveal is not None and any(isinstance(part, SignedPair) for part in slots(arrived).values()):
                done = reveal.at_sum(step, arrived, kind)
                if done is not None:
                    return done
                arrived = reveal.collapse(step.out, arrived)
            return rescale(step, here, there, arrived, kind)

        slopes = sweep(program, torch.ones_like(program.scores(here)), rule, here)
        if reveal is not None:
            slopes = tuple(reveal.collapse(i, slope) for i, slope in enumerate(slopes))
        return tuple(slope * (a - b) for slope, a, b in zip(slopes, points, start, strict=True))


def rescale(step: Operation, here: Values, there: Values, arrived: Any, kind: Kind) -> Handed:
    """What each argument of a step gets by the rescale rule, with its extensions to other operations."""
    if step.name == "detach":
        return [(step.refs[0], arrived)]  # keeps gradients from passing, not changes
    if kind in (Kind.MOVE, Kind.LINEAR, Kind.CHOICE):  # a choice that is the same at both ends
        return vjp(step, here, arrived)
    if kind is Kind.POINTWISE:
        index = step.refs[0]
        slopes = arrived * secant(step, here, there)
        return [(index, slopes.sum_to_size(here[index].shape))]
    if kind is Kind.PRODUCT:
        return product(step, here, there, arrived)
    if kind is Kind.MAX:
        return _maximum(step, here, there, arrived)
    if kind is Kind.CUT:
        return []  # the same at both ends
    if kind is Kind.SOFTMAX:
        return [(step.refs[0], softmax_slopes(step, here, there, arrived))]
    raise no_rule("deeplift", step, here, do=_DO)


_DO = (
    "Expected sums, products, maxima, softmax and pointwise functions. Use integrated gradients, which need no rules, or "
    "write the operation in terms of those."
)


def _refuse_jumps(program: Program, here: Values, there: Values) -> None:
    """Comparisons, indices and integers hand nothing back, so what is used of them must be the same at both ends."""
    made_by = {step.out: step for step in program.steps}
    for step in program.steps:
        if step.picks or kind_of(step, here) is Kind.CUT:
            continue
        for i in step.refs:
            jumps = isinstance(here[i], Tensor) and not (here[i].dtype.is_floating_point or here[i].is_complex())
            if jumps and not torch.equal(here[i], there[i]):
                maker = made_by[i]
                maker = made_by[maker.args[0].index] if maker.picks else maker
                named = step if kind_of(step, here) is Kind.CHOICE else maker
                raise no_rule("deeplift", named, here, do=f"What {maker.name!r} gives jumps between baseline and x. {_DO}")


def _maximum(step: Operation, here: Values, there: Values, arrived: Any) -> Handed:
    """A rise goes to what is largest at the input, a fall to what was largest at the baseline (and so for minima)."""
    seed = arrived[0] if isinstance(arrived, dict) else arrived
    now, then = ((v[0] if isinstance(v, tuple) else v) for v in (here[step.out], there[step.out]))
    between = torch.minimum(now, then) if smallest(step) else torch.maximum(now, then)
    rise, fall = (
        ({0: part} if isinstance(arrived, dict) else part) for part in (seed * (between - then), seed * (now - between))
    )
    risen, fallen = dict(vjp(step, here, rise)), dict(vjp(step, there, fall))
    handed = []
    for i in step.refs:
        change = here[i] - there[i]
        share = risen[i] + fallen[i]
        handed.append((i, torch.where(change == 0, 0, share / torch.where(change == 0, 1, change))))
    return handed


def softmax_slopes(step: Operation, here: Values, there: Values, arrived: Tensor) -> Tensor:
    """What log sum exp z, log softmax z = z - log sum exp z, and softmax z = exp(log softmax z) hand back to z.

    The change of log sum exp is a weighted mean of changes: with L the logarithmic mean of two numbers, (u - v) / log(u / v),
    it is the sum over j of (z_j - z'_j) L(e_j, e'_j) / L(s, s'), where e = exp(z) and s is their sum.
    """
    index = step.refs[0]
    dim: Any = step.args[1]
    a, b = here[index], there[index]
    if step.name == "logsumexp" and not (len(step.args) > 2 and step.args[2]):
        for d in sorted(d % a.ndim for d in ([dim] if isinstance(dim, int) else dim)):
            arrived = arrived.unsqueeze(d)
    top = torch.maximum(a, b).amax(dim, keepdim=True)
    a, b = (z - torch.where(top.isfinite(), top, 0) for z in (a, b))  # the same shift at both ends; near zero are more digits
    sa, sb = a.logsumexp(dim, keepdim=True), b.logsumexp(dim, keepdim=True)
    weights = (_log_mean(a, b) - _log_mean(sa, sb)).exp().nan_to_num(0)  # masked: -inf at both ends
    if step.name == "logsumexp":
        return arrived * weights
    if "log" not in step.name:
        arrived = arrived * _log_mean(a - sa, b - sb).exp().nan_to_num(0)
    out = arrived - weights * arrived.sum(dim, keepdim=True)
    return torch.where(a.isfinite() | b.isfinite(), out, 0).to(a.dtype)


def _log_mean(u: Tensor, v: Tensor) -> Tensor:
    """The logarithm of the logarithmic mean of exp(u) and exp(v)."""
    apart = (u - v).abs()
    return torch.maximum(u, v) + torch.where(apart == 0, 0, (-torch.expm1(-apart) / apart).log())


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
    """The rule, with the values at the input and at the baseline.

    Args:
        program: the model.
        here: its values at the input.
        there: its values at the baseline.
    """

    def __init__(self, program: Program, here: Values, there: Values) -> None:
        self.here, self.there = here, there
        self.made_by = {step.out: step for step in program.steps}

    def parts(self, index: int) -> tuple[Tensor, Tensor]:
        """The positive and the negative part of a value's change: of its terms where it is a sum, else by its sign."""
        step = self.made_by.get(index)
        kind = None if step is None else kind_of(step, self.here)
        if step is not None and kind is Kind.LINEAR and not _passes(step):
            return signed_parts(step, self._changes(step))
        if step is not None and step.picks:
            whole = self.made_by[step.args[0].index]
            if kind_of(whole, self.here) is Kind.MOVE:
                up, down = (whole(dict(zip(whole.refs, side, strict=True)))[step.args[1]] for side in self._sides(whole))
                return up, down
        elif step is not None and kind in (Kind.MOVE, Kind.LINEAR):
            bare = without_constant(step)
            up, down = (bare(dict(zip(step.refs, side, strict=True))) for side in self._sides(step))
            return torch.maximum(up, down), torch.minimum(up, down)
        change = self.here[index] - self.there[index]
        return change.clamp(min=0), change.clamp(max=0)

    def at_nonlinearity(self, step: Operation, arrived: Any) -> Handed:
        """The effect of each part, averaged over which of the two comes first."""
        seed = self.collapse(step.out, arrived)
        index = step.refs[0]
        base = self.there[index]
        up, down = self.parts(index)
        with torch.no_grad():
            at = {(u, d): step({index: base + u * up + d * down}) for u in (0, 1) for d in (0, 1)}
        by_up = ((at[1, 0] - at[0, 0]) + (at[1, 1] - at[0, 1])) / 2
        by_down = ((at[0, 1] - at[0, 0]) + (at[1, 1] - at[1, 0])) / 2
        # A part of no size has no effect; its slope multiplies nothing.
        slopes = (
            torch.where(part == 0, 0, by / torch.where(part == 0, 1, part)) for part, by in ((up, by_up), (down, by_down))
        )
        return [(index, SignedPair(*((seed * slope).sum_to_size(base.shape) for slope in slopes)))]

    def at_sum(self, step: Operation, arrived: Any, kind: Kind) -> Handed | None:
        """Where terms meet, each gets the multiplier of its sign; None where the step is neither sum nor move."""
        if kind is Kind.LINEAR and not _passes(step):
            return hand_signed(step, self._changes(step), arrived.positive, arrived.negative)
        if kind is Kind.MOVE:
            sides = [dict(vjp(step, self.here, _side(arrived, positive=side))) for side in (True, False)]
            return [(index, SignedPair(part, sides[1][index])) for index, part in sides[0].items()]
        if kind is Kind.LINEAR:
            index = step.refs[0]
            with torch.no_grad():
                factor = without_constant(step)({index: torch.ones_like(self.here[index])})
            # A negative factor turns positive contributions into negative ones.
            seeds = (
                torch.where(factor < 0, *pair)
                for pair in ((arrived.negative, arrived.positive), (arrived.positive, arrived.negative))
            )
            return [(index, SignedPair(*(dict(vjp(step, self.here, seed))[index] for seed in seeds)))]
        return None

    def collapse(self, index: int, arrived: Any) -> Any:
        """One multiplier for the whole of a value's change, by its sign."""
        if isinstance(arrived, dict):
            return {slot: _by_sign(part, self.here[index][slot], self.there[index][slot]) for slot, part in arrived.items()}
        return _by_sign(arrived, self.here[index], self.there[index])

    def _sides(self, step: Operation) -> list[tuple[Tensor, ...]]:
        """The positive and the negative parts of a step's arguments."""
        return list(zip(*(self.parts(i) for i in step.refs), strict=True))

    def _changes(self, step: Operation) -> dict[int, Tensor]:
        return {i: a - self.there[i] for i, a in points_of(step, self.here).items()}


def slots(arrived: Any) -> dict[int, Any]:
    """What arrived at each output of a step."""
    return arrived if isinstance(arrived, dict) else {0: arrived}


def _side(arrived: Any, *, positive: bool) -> Any:
    if isinstance(arrived, dict):
        return {slot: _side(part, positive=positive) for slot, part in arrived.items()}
    if not isinstance(arrived, SignedPair):
        return arrived
    return arrived.positive if positive else arrived.negative


def _by_sign(arrived: Any, here: Tensor, there: Tensor) -> Any:
    return by_sign(here - there, arrived.positive, arrived.negative) if isinstance(arrived, SignedPair) else arrived


def _passes(step: Operation) -> bool:
    """Whether a linear step adds nothing up: one value, scaled or shifted by constants number by number."""
    return len(step.refs) == 1 and step.name in NUMBER_BY_NUMBER
