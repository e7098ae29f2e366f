"""DeepLift: discrete gradients between the input and the baseline, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from .._trees import Leaves
from ..attribution import Attribution, Promise, promised
from ..errors import NonFiniteError, OptionError
from ..operations import Kind, Program, Step, kind_of, sweep, vjp
from ..operations._kinds import PIECEWISE_LINEAR, smallest
from ..operations._program import Values
from ..operations._sweep import Handed, no_rule
from ._base import Found, Method, Problem, from_each
from ._operated import by_operations
from ._reveal import Both, RevealCancel, slots

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
    attention, a gate) the mean of the other factor's two values, which is exact; softmax is taken apart into exponential,
    sum and quotient; a maximum gives its change to the winner. So it is complete on all of these.

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

    def attribute(self, problem: Problem) -> Attribution:
        """One pass forward at the input and at each baseline, and one back."""
        values = from_each(problem, lambda start: by_operations(problem, self._explain, start))
        count = len(problem.starts)
        return problem.dress(Found(values, self.promises, rule=self.rule, gradients=count, forwards=count))

    def _explain(self, program: Program, points: Leaves, start: Leaves) -> Leaves:
        here, there = program.run(points), program.run(start)
        if not torch.isfinite(program.scores(there)).all():
            raise NonFiniteError(
                f"the score is {program.scores(there).tolist()} at the baseline; expected finite numbers. Choose a baseline "
                "within the model's domain."
            )
        reveal = RevealCancel(program, here, there) if self.rule == "reveal-cancel" else None

        def rule(step: Step, arrived: Any) -> Handed:
            kind = kind_of(step, here)
            if reveal is not None and kind is Kind.POINTWISE:
                return reveal.at_nonlinearity(step, arrived)
            if reveal is not None and any(isinstance(part, Both) for part in slots(arrived).values()):
                done = reveal.at_sum(step, arrived, kind)
                if done is not None:
                    return done
                arrived = reveal.collapse(step.out, arrived)
            return rescale(step, here, there, arrived, kind)

        slopes = sweep(program, torch.ones_like(program.scores(here)), rule, here)
        if reveal is not None:
            slopes = tuple(reveal.collapse(i, slope) for i, slope in enumerate(slopes))
        return tuple(slope * (a - b) for slope, a, b in zip(slopes, points, start, strict=True))


def rescale(step: Step, here: Values, there: Values, arrived: Any, kind: Kind) -> Handed:
    """What each argument of a step gets by the rescale rule, with its extensions to other operations."""
    if kind in (Kind.MOVE, Kind.LINEAR):
        return vjp(step, here, arrived)
    if kind is Kind.POINTWISE:
        index = step.refs[0]
        slopes = arrived * secant(step, here, there)
        return [(index, slopes.sum_to_size(here[index].shape))]
    if kind is Kind.PRODUCT:
        return _product(step, here, there, arrived)
    if kind is Kind.MAX:
        return _maximum(step, here, there, arrived)
    if kind is Kind.SOFTMAX and step.name != "logsumexp":
        return [(step.refs[0], _softmax(step, here, there, arrived))]
    if kind is Kind.CUT and step.name == "detach":
        return []
    raise no_rule("deeplift", step, here, do="Expected sums, products, maxima, softmax and pointwise functions. Use " + _ELSE)


_ELSE = "integrated gradients, which need no rules, or write the operation in terms of those."


def secant(step: Step, here: Values, there: Values) -> Tensor:
    """The slope of a pointwise step between two values, in the shape of its output; the derivative where they are equal."""
    index = step.refs[0]
    a, b = here[index], there[index]
    change = a - b
    size = torch.maximum(a.abs(), b.abs())
    # Near each other, smooth functions are better told by their derivative than by a difference of rounded values.
    limit = torch.finfo(a.dtype).eps ** (1.0 if step.name in PIECEWISE_LINEAR else 0.5)
    close = change.abs() <= limit * size
    middle = torch.where(close, (a + b) / 2, a)
    out = here[step.out]
    (_, slope), *_ = vjp(step, {index: middle.expand(out.shape)}, torch.ones_like(out)) or [(index, torch.zeros_like(out))]
    apart = (out - there[step.out]) / torch.where(close, torch.ones_like(change), change)
    found = torch.where(close, slope.expand(out.shape), apart)
    return torch.where(torch.isfinite(change).expand(out.shape), found, 0)  # masked scores: -inf in both


def _product(step: Step, here: Values, there: Values, arrived: Tensor) -> Handed:
    """Ab - a'b' = (a - a') mean(b, b') + (b - b') mean(a, a'), for every product that is linear in both."""
    middle = {i: (here[i] + there[i]) / 2 for i in step.refs}
    if step.name != "div":
        return vjp(step, middle, arrived)
    above, below = step.args[0].index, step.args[1].index
    inverse = (1 / here[below] + 1 / there[below]) / 2
    # 1/b - 1/b' = -(b - b') / (b b')
    return [
        (above, (arrived * inverse).sum_to_size(middle[above].shape)),
        (below, (-arrived * middle[above] / (here[below] * there[below])).sum_to_size(middle[below].shape)),
    ]


def _maximum(step: Step, here: Values, there: Values, arrived: Any) -> Handed:
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


def _softmax(step: Step, here: Values, there: Values, arrived: Tensor) -> Tensor:
    """Softmax as e / s with e = exp(z) and s their sum; its logarithm as z - log s."""
    index, dim = step.refs[0], step.args[1]
    a, b = here[index], there[index]
    top = torch.maximum(a, b).amax(dim, keepdim=True)  # the same shift at both ends changes nothing
    ea, eb = (a - top).exp(), (b - top).exp()
    sa, sb = ea.sum(dim, keepdim=True), eb.sum(dim, keepdim=True)
    if "log" in step.name:
        to_sum = -arrived.sum(dim, keepdim=True) * _ratio(sa.log() - sb.log(), sa - sb, 1 / sa)
        return arrived + to_sum * _ratio(ea - eb, a - b, ea)
    to_sum = -(arrived * (ea + eb) / 2).sum(dim, keepdim=True) / (sa * sb)
    out: Tensor = (arrived * (1 / sa + 1 / sb) / 2 + to_sum) * _ratio(ea - eb, a - b, ea)
    return out


def _ratio(change: Tensor, over: Tensor, derivative: Tensor) -> Tensor:
    """A difference quotient; the derivative where both are (nearly) the same, 0 where both are -inf."""
    close = over.abs() <= torch.finfo(over.dtype).eps ** 0.5
    found: Tensor = torch.where(close, derivative, change / torch.where(close, torch.ones_like(over), over))
    return torch.where(torch.isfinite(over), found, torch.zeros_like(found))
