"""The search for a counter-example: Hypothesis draws small networks and shrinks what breaks an axiom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ..errors import MissingExtraError, ModelError
from ..methods.method import Method
from .evidence import AxiomCase, Finding, smooth
from .formula import Affine, FormulaNetwork, FunctionCall, Input, Node, affine, relu, replaced, walk
from .formula_network import Floats, evaluate
from .rewrites import RULES, bias_inward, equivalents, ordered

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

SHRINKS = 200
"""Cases that are judged, at the most, to make a counter-example smaller."""


class Searched(Protocol):
    """What the search needs of an axiom's module."""

    def cases(self) -> SearchStrategy[AxiomCase]:
        """Instances of the axiom."""
        ...

    def premise(self, case: AxiomCase, points: Floats) -> bool:
        """Whether what a case takes for granted is true at random points."""
        ...

    def judge(self, method: Method, case: AxiomCase) -> Finding:
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


def values_of(case: AxiomCase, points: Floats) -> list[Any]:
    """The values of every network of a case at points."""
    return [evaluate(net, points)[0] for _, net in case.networks]


Draw = st.DrawFn
Values = tuple[float, ...]

INPUTS = 3

# The first is what a search shrinks to.
WEIGHTS = st.sampled_from((0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 0.0, -3.0, 0.0, 1.0))
FACTORS = st.sampled_from((1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0))
FORWARD = st.sampled_from((1.0, 2.0, 0.5, 3.0))
BIASES = st.sampled_from((0.0, -1.0, 1.0, -0.5, 0.5, -2.0, 2.0))
VALUES = st.sampled_from((1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, 2.5, 0.0))
STARTS = st.sampled_from((0.0, 0.0, 0.0, 1.0, -1.0, 0.5, 2.0))


@st.composite
def sums(draw: Draw, nodes: Sequence[Node]) -> Node:
    """A weighted sum of some of the nodes."""
    terms = [(draw(WEIGHTS), node) for node in nodes]
    return affine([(weight, node) for weight, node in terms if weight], draw(BIASES))


def rectified(node: Node) -> Node:
    """A relu unit; one that takes a constant is a constant."""
    return affine((), max(node.bias, 0.0)) if isinstance(node, Affine) and not node.terms else relu(node)


@st.composite
def formulas(draw: Draw, inputs: Sequence[int]) -> Node:
    """A network with up to two hidden layers of up to three relu units; rarely one with max or min."""
    layer: list[Node] = [Input(i) for i in inputs]
    for _ in range(draw(st.integers(0, 2))):
        layer = draw(st.lists(sums(layer).map(rectified), min_size=1, max_size=3))
    if draw(st.integers(0, 7)) == 7:
        layer = [FunctionCall(draw(st.sampled_from(("max", "min"))), (draw(sums(layer)), draw(sums(layer))))]
    out = draw(sums(layer))
    return rectified(out) if draw(st.booleans()) else out


@st.composite
def pairs(draw: Draw, inputs: Sequence[int]) -> tuple[Node, Node]:
    """Two networks that compute the same, one made from the other by one or two rewrites."""
    if draw(st.booleans()):
        first = draw(formulas(inputs))
        second = draw(_rewritten(first))
    else:  # the shape of the paper's pair, which formulas seldom have
        nodes = [Input(i) for i in inputs]
        inner, other = relu(draw(sums(nodes))), draw(sums(nodes).map(rectified))
        first = relu(affine([(draw(FORWARD), inner), (-draw(FORWARD), other)], -draw(FORWARD)))
        moved = next(iter(bias_inward(first)), None)
        assume(moved is not None)  # equal units were merged into one
        second = moved or first
    if draw(st.booleans()):
        second = draw(_rewritten(second))
    assume(first != second)
    return first, second


@st.composite
def _rewritten(draw: Draw, node: Node) -> Node:
    options = equivalents(FormulaNetwork(node, INPUTS), RULES[draw(st.sampled_from(sorted(RULES)))])
    assume(options)
    return draw(st.sampled_from(options)).output


@st.composite
def places(draw: Draw) -> tuple[Values, Values]:
    """An input and a baseline."""
    return tuple(draw(VALUES) for _ in range(INPUTS)), tuple(draw(STARTS) for _ in range(INPUTS))


def _moves(node: Node, x: Values, baseline: Values, times: Sequence[float] = (0, 0.35, 0.8, 1)) -> bool:
    """Whether a network does something between two points: where all its units are off, all methods agree."""
    start = np.array(baseline)
    line = start + np.array(times)[:, None] * (np.array(x) - start)
    return bool(np.ptp(evaluate(FormulaNetwork(node, INPUTS), line)[0]) > 1e-9)


def _case(
    nodes: Sequence[tuple[str, Node]], x: Values, baseline: Values, features: Values = (), weights: Values = ()
) -> AxiomCase:
    """A case without the inputs that nothing takes and nobody speaks of."""
    used = {node.index for _, root in nodes for node in walk(root) if isinstance(node, Input)}
    kept = sorted(used | {int(i) for i in features})
    renamed: dict[Node, Node] = {Input(old): Input(new) for new, old in enumerate(kept)}
    return AxiomCase(
        tuple((name, FormulaNetwork(replaced(node, renamed), len(kept))) for name, node in nodes),
        tuple(x[i] for i in kept),
        tuple(baseline[i] for i in kept),
        tuple(kept.index(int(i)) for i in features),
        weights,
    )


@st.composite
def one_network(draw: Draw) -> AxiomCase:
    """Any network, input and baseline."""
    x, baseline = draw(places())
    node = draw(formulas(range(INPUTS)))
    assume(_moves(node, x, baseline))
    return _case([("f", node)], x, baseline)


@st.composite
def one_feature_moves(draw: Draw) -> AxiomCase:
    """Any network; input and baseline differ in one feature, and the score differs."""
    x, baseline = draw(places())
    feature = draw(st.integers(0, INPUTS - 1))
    start = (*x[:feature], baseline[feature], *x[feature + 1 :])
    node = draw(formulas(range(INPUTS)))
    assume(_moves(node, x, start, (0, 1)))
    return _case([("f", node)], x, start, (feature,))


@st.composite
def equivalent(draw: Draw) -> AxiomCase:
    """Two networks that compute the same."""
    x, baseline = draw(places())
    first, second = draw(pairs(range(INPUTS)))
    assume(_moves(first, x, baseline))
    return _case([("f", first), ("g", second)], x, baseline)


@st.composite
def with_dummies(draw: Draw) -> AxiomCase:
    """A network with inputs that do nothing: that it leaves out, or that go through f - g of an equivalent pair."""
    x, baseline = draw(places())
    if draw(st.booleans()):
        features: tuple[int, ...] = (draw(st.integers(0, INPUTS - 1)),)
        node = lively = draw(formulas([i for i in range(INPUTS) if i not in features]))
    else:
        lively, second = draw(pairs((0, 1)))
        node = affine([(1.0, whole(lively)), (-1.0, whole(second))])
        features = tuple(sorted({part.index for part in walk(lively) if isinstance(part, Input)}))
        if draw(st.booleans()):
            node = affine([(1.0, node), (1.0, whole(draw(formulas((2,)))))])
    assume(features and _moves(lively, x, baseline))
    return _case([("f", node)], x, baseline, features)


def whole(node: Node) -> Node:
    """A network as one unit of another: a sum at its end stays a unit of its own."""
    return FunctionCall("linear", (node,)) if isinstance(node, Affine) else node


@st.composite
def weighted_sums(draw: Draw) -> AxiomCase:
    """Two networks and their weighted sum, each of the two as it was inside it."""
    x, baseline = draw(places())
    weights = draw(FACTORS), draw(FACTORS)
    f, g = draw(formulas(range(INPUTS))), draw(formulas(range(INPUTS)))
    assume(_moves(f, x, baseline) and _moves(g, x, baseline))
    total = affine([(weights[0], whole(f)), (weights[1], whole(g))])
    return _case([("f", f), ("g", g), ("sum", total)], x, baseline, weights=weights)


@st.composite
def symmetric(draw: Draw) -> AxiomCase:
    """A network that does not notice when x1 and x2 are swapped, at x1 = x2 and a baseline of which the same is true."""
    x, baseline = draw(places())
    x, baseline = (x[0], x[0], x[2]), (baseline[0], baseline[0], baseline[2])
    assume(x[0] != baseline[0])
    if draw(st.booleans()):  # symmetric as a function: its halves are written differently
        half, other = draw(pairs(range(INPUTS)))
    else:
        half = other = draw(formulas(range(INPUTS)))
    mirror = replaced(other, {Input(0): Input(1), Input(1): Input(0)})
    if half == other:  # units that are symmetric themselves come out as one
        half, mirror = ordered(half), ordered(mirror)
    node = affine([(1.0, half), (1.0, mirror)], draw(BIASES))
    if draw(st.booleans()):
        node = rectified(node)
    assume(_moves(node, x, baseline))
    return _case([("f", node)], x, baseline, (0, 1))
