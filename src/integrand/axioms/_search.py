"""The search for a counter-example: Hypothesis draws small networks and shrinks what breaks an axiom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import MissingExtraError, ModelError
from ..methods import Method
from ._evidence import Case, Finding
from ._kinks import smooth
from ._network import Floats, evaluate

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

SHRINKS = 200
"""Cases that are judged, at the most, to make a counter-example smaller."""


class Searched(Protocol):
    """What the search needs of an axiom's module."""

    def cases(self) -> SearchStrategy[Case]:
        """Instances of the axiom."""
        ...

    def premise(self, case: Case, points: Floats) -> bool:
        """Whether what a case takes for granted is true at random points."""
        ...

    def judge(self, method: Method, case: Case) -> Finding:
        """One case judged."""
        ...


@dataclass
class Tally:
    """What a search has seen.

    Attributes:
        tried: cases judged before the first that broke the axiom, that one included.
        undecided: of these, those where the certificates cannot tell.
        refused: cases that the method has no rule for.
        refusal: what it said of the last one.
        shrinks: cases judged after.
    """

    tried: int = 0
    undecided: int = 0
    refused: int = 0
    refusal: str = ""
    shrinks: int = 0
    found: dict[Case, Finding | None] = field(default_factory=dict)
    broken: bool = False


def search(
    method: Method,
    axiom: Searched,
    *,
    max_examples: int,
    seed: int,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tally, Case | None]:
    """Look for a case that breaks an axiom, and for the smallest of its kind.

    Args:
        method: what is tried.
        axiom: the module of the axiom.
        max_examples: cases to try.
        seed: of the draws.
        progress: told how many cases were tried.
    """
    try:
        import hypothesis
        from hypothesis.errors import NoSuchExample, Unsatisfiable
    except ImportError:
        raise MissingExtraError("hypothesis", "axioms", "searching for counter-examples") from None
    tally = Tally()

    def breaks(case: Case) -> bool:
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


def _judged(method: Method, axiom: Searched, case: Case, tally: Tally) -> Finding | None:
    """The finding, or None for a case that does not count."""
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


def same(first: Floats, second: Floats) -> bool:
    """Equal to rounding, for premises."""
    return bool(np.allclose(first, second, rtol=1e-9, atol=1e-9))


def values_of(case: Case, points: Floats) -> list[Any]:
    """The values of every network of a case at points."""
    return [evaluate(net, points)[0] for _, net in case.networks]
