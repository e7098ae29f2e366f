"""Handing examples over to their linear regions, where sampling would take longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import IntegrandError
from ._choose import regions_worth
from ._evaluate import Evaluator
from ._judge import Step

if TYPE_CHECKING:
    from ..exact import Exact


class Handover:
    """What becomes of examples that are not sampled to the end.

    Linear regions are tried after an example's second wave, once, and its panels stay: where they are refused, it is sampled
    on.

    Args:
        evaluator: knows the paths, and counts.
        tol: the tolerance.
        limit: gradient evaluations that one example may take.
        memory: the user's limit in bytes.
        allowed: whether anything may be handed over.
    """

    def __init__(self, evaluator: Evaluator, tol: float, limit: int, memory: int | None, *, allowed: bool) -> None:
        self.evaluator, self.tol, self.limit, self.memory = evaluator, tol, limit, memory
        self.linear = allowed  # until a trial finds that nothing is

    def exact(self, steps: Sequence[Step]) -> tuple[dict[int, Exact], set[int]]:
        """Integrate those of some unfinished examples that are piecewise linear along few regions.

        Returns:
            What was found, and all that were tried.
        """
        if not self.linear or self.evaluator.runner.low:
            return {}, set()
        budget = {step.one.example: self._regions(step) for step in steps}
        budget = {example: regions for example, regions in budget.items() if regions}
        if not budget:
            return {}, set()
        floors = {step.one.example: step.one.floor for step in steps}
        found = self._integrated(budget)
        # Where it is doubtful to more than the tolerance which region a gradient belongs to, sampling may still settle it;
        # where rounding alone exceeds the tolerance, it cannot.
        good = {e: one for e, one in found.items() if one.certificate.converged or _coarse(floors[e], one)}
        self.linear = bool(good)
        return good, set(budget)

    def _regions(self, step: Step) -> int:
        return regions_worth(self.evaluator, self.tol, self.limit, step.one, step.verdict, step.panels)

    def _integrated(self, budget: dict[int, int]) -> dict[int, Exact]:
        from ..exact import Exact, integrate_exactly  # which needs the evaluator: not while this package is imported

        try:
            found = integrate_exactly(self.evaluator, self.tol, budget=budget, memory=self.memory)
        except (IntegrandError, RuntimeError, MemoryError):  # sampling can do without, or says it in the model's own words
            return {}
        return {example: one for example, one in found.items() if isinstance(one, Exact)}


def _coarse(floor: float, exact: Exact) -> bool:
    """Whether rounding, an absolute error, exceeds the tolerance of a certificate."""
    return bool(floor > exact.certificate.tol * exact.certificate.magnitude)
