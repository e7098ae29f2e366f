"""The search for a counter-example: Hypothesis draws small networks and shrinks what breaks an axiom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..arrays import Floats
from ..errors import MissingExtraError, ModelError
from ..methods.method import Method
from .evidence import AxiomCase, Finding, smooth

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

SHRINKS = 200
"""How many cases are judged, at most, to make a counter-example smaller: enough for networks of a few units, and
never the longest part of a search."""


class Searched(Protocol):
    """What the search needs of the module of an axiom."""

    def cases(self) -> SearchStrategy[AxiomCase]:
        """A strategy that draws instances of the axiom."""
        ...

    def premise(self, case: AxiomCase, points: Floats) -> bool:
        """Whether what a case takes for granted holds at the given points, (N, inputs)."""
        ...

    def judge(self, method: Method, case: AxiomCase) -> Finding:
        """Judge whether a method keeps the axiom on one case."""
        ...


@dataclass
class Tally:
    """What a search has seen so far.

    Attributes:
        tried: cases judged before the first that broke the axiom, that one included.
        undecided: how many of those the certificates cannot decide.
        refused: cases that the method has no rule for.
        refusal: the method's message on the last case that it refused.
        shrinks: cases judged after the first that broke the axiom.
        found: the finding on each case; None for one that does not count.
        broken: whether a case has broken the axiom.
    """

    tried: int = 0
    undecided: int = 0
    refused: int = 0
    refusal: str = ""
    shrinks: int = 0
    found: dict[AxiomCase, Finding | None] = field(default_factory=dict)
    broken: bool = False


def search(
    method: Method,
    axiom: Searched,
    *,
    max_examples: int,
    seed: int,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tally, AxiomCase | None]:
    """Look for a case that breaks an axiom, and shrink it to the smallest of its kind.

    Args:
        method: the method to try.
        axiom: the module of the axiom.
        max_examples: how many cases to try.
        seed: the seed of what is drawn.
        progress: a function that is told how many cases were tried.

    Returns:
        What the search has seen, and the smallest case that breaks the axiom; None where none was found.
    """
    try:
        import hypothesis
        from hypothesis.errors import NoSuchExample, Unsatisfiable
    except ImportError:
        raise MissingExtraError("hypothesis", "axioms", "searching for counter-examples") from None
    tally = Tally()

    def breaks(case: AxiomCase) -> bool:
        if case not in tally.found:
            if tally.shrinks >= SHRINKS:
                return False
            tally.found[case] = _judged(method, axiom, case, tally)
            if progress is not None and not tally.broken:
                progress(tally.tried)
        finding = tally.found[case]
        if finding is None:
            hypothesis.reject()
        tally.broken |= finding.broken
        return finding.broken

    settings = hypothesis.settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )
    try:
        case = hypothesis.find(axiom.cases(), breaks, settings=settings, random=Random(seed))
    except (NoSuchExample, Unsatisfiable):
        return tally, None
    return tally, case


def _judged(method: Method, axiom: Searched, case: AxiomCase, tally: Tally) -> Finding | None:
    """The finding on a case; None where it does not count, because the gradient is undefined or the method refuses it."""
    points = np.random.default_rng(1).uniform(-4, 4, (64, len(case.x)))
    assert axiom.premise(case, points), f"a rewrite changed what it should keep: {case}"
    if not smooth(case, method):
        return None
    try:
        finding = axiom.judge(method, case)
    except ModelError as error:
        tally.refused += 1
        tally.refusal = str(error)
        return None
    if tally.broken:
        tally.shrinks += 1
    else:
        tally.tried += 1
        tally.undecided += not finding.decided
    return finding
