"""The small networks that a search draws, and rewrites that keep what a network computes.

Needs Hypothesis. A rewrite rule takes a node and gives others that compute the same at every input, not only at those that
are tried; the docstring of each says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from .evidence import AxiomCase
from .formula import Affine, FormulaNetwork, FunctionCall, Input, Node, affine, relu, replaced, walk
from .formula_network import evaluate

Draw = st.DrawFn
Numbers = tuple[float, ...]
RewriteRule = Callable[[Node], Iterator[Node]]

INPUTS = 3
"""How many inputs a drawn network may take: one more than the pairs that most axioms speak of."""

# A search shrinks to the first value; values that appear several times are drawn more often.
WEIGHTS = st.sampled_from((0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 0.0, -3.0, 0.0, 1.0))
FACTORS = st.sampled_from((1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0))
FORWARD = st.sampled_from((1.0, 2.0, 0.5, 3.0))
BIASES = st.sampled_from((0.0, -1.0, 1.0, -0.5, 0.5, -2.0, 2.0))
VALUES = st.sampled_from((1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, 2.5, 0.0))
STARTS = st.sampled_from((0.0, 0.0, 0.0, 1.0, -1.0, 0.5, 2.0))

STEPS = (1.0, 0.5, 2.0)
SCALES = (2.0, 0.5)
"""What rewrites shift a bias and scale a unit by: powers of two, which round nothing."""


@st.composite
def sums(draw: Draw, nodes: Sequence[Node]) -> Node:
    """Draw a weighted sum of some of the nodes."""
    terms = [(draw(WEIGHTS), node) for node in nodes]
    return affine([(weight, node) for weight, node in terms if weight], draw(BIASES))


def rectified(node: Node) -> Node:
    """A relu unit of a node; the relu of a constant is a constant."""
    return affine((), max(node.bias, 0.0)) if isinstance(node, Affine) and not node.terms else relu(node)


@st.composite
def formulas(draw: Draw, inputs: Sequence[int]) -> Node:
    """Draw a network with up to two hidden layers of up to three relu units; rarely one with max or min."""
    layer: list[Node] = [Input(i) for i in inputs]
    for _ in range(draw(st.integers(0, 2))):
        layer = draw(st.lists(sums(layer).map(rectified), min_size=1, max_size=3))
    if draw(st.integers(0, 7)) == 7:
        layer = [FunctionCall(draw(st.sampled_from(("max", "min"))), (draw(sums(layer)), draw(sums(layer))))]
    out = draw(sums(layer))
    return rectified(out) if draw(st.booleans()) else out


@st.composite
def pairs(draw: Draw, inputs: Sequence[int]) -> tuple[Node, Node]:
    """Draw two networks that compute the same, one made from the other by one or two rewrites."""
    if draw(st.booleans()):
        first = draw(formulas(inputs))
        second = draw(_rewritten(first))
    else:  # the shape of the paper's pair, which formulas seldom have
        nodes = [Input(i) for i in inputs]
        inner, other = relu(draw(sums(nodes))), draw(sums(nodes).map(rectified))
        first = relu(affine([(draw(FORWARD), inner), (-draw(FORWARD), other)], -draw(FORWARD)))
        rewritten = next(iter(bias_inward(first)), None)
        assume(rewritten is not None)  # None where equal units were merged into one
        second = rewritten or first
    if draw(st.booleans()):
        second = draw(_rewritten(second))
    assume(first != second)
    return first, second


@st.composite
def endpoints(draw: Draw) -> tuple[Numbers, Numbers]:
    """Draw an input and a baseline."""
    return tuple(draw(VALUES) for _ in range(INPUTS)), tuple(draw(STARTS) for _ in range(INPUTS))


@st.composite
def one_network(draw: Draw) -> AxiomCase:
    """Draw any network, input and baseline."""
    x, baseline = draw(endpoints())
    node = draw(formulas(range(INPUTS)))
    assume(_responds(node, x, baseline))
    return _trimmed_case([("f", node)], x, baseline)


@st.composite
def one_feature_moves(draw: Draw) -> AxiomCase:
    """Draw a network with an input and a baseline that differ in one feature, and in the score."""
    x, baseline = draw(endpoints())
    feature = draw(st.integers(0, INPUTS - 1))
    start = (*x[:feature], baseline[feature], *x[feature + 1 :])
    node = draw(formulas(range(INPUTS)))
    assume(_responds(node, x, start, (0, 1)))
    return _trimmed_case([("f", node)], x, start, (feature,))


@st.composite
def equivalent(draw: Draw) -> AxiomCase:
    """Draw two networks that compute the same, with an input and a baseline."""
    x, baseline = draw(endpoints())
    first, second = draw(pairs(range(INPUTS)))
    assume(_responds(first, x, baseline))
    return _trimmed_case([("f", first), ("g", second)], x, baseline)


@st.composite
def with_dummies(draw: Draw) -> AxiomCase:
    """Draw a network with inputs that do nothing: it leaves them out, or they go through f - g of an equivalent pair."""
    x, baseline = draw(endpoints())
    if draw(st.booleans()):
        features: tuple[int, ...] = (draw(st.integers(0, INPUTS - 1)),)
        node = lively = draw(formulas([i for i in range(INPUTS) if i not in features]))
    else:
        lively, second = draw(pairs((0, 1)))
        node = affine([(1.0, whole(lively)), (-1.0, whole(second))])
        features = tuple(sorted({part.index for part in walk(lively) if isinstance(part, Input)}))
        if draw(st.booleans()):
            node = affine([(1.0, node), (1.0, whole(draw(formulas((2,)))))])
    assume(features and _responds(lively, x, baseline))
    return _trimmed_case([("f", node)], x, baseline, features)


def whole(node: Node) -> Node:
    """A network as part of a larger one: a sum at its end stays a unit of its own."""
    return FunctionCall("linear", (node,)) if isinstance(node, Affine) else node


@st.composite
def weighted_sums(draw: Draw) -> AxiomCase:
    """Draw two networks and their weighted sum, which holds both of them unchanged."""
    x, baseline = draw(endpoints())
    weights = draw(FACTORS), draw(FACTORS)
    f, g = draw(formulas(range(INPUTS))), draw(formulas(range(INPUTS)))
    assume(_responds(f, x, baseline) and _responds(g, x, baseline))
    total = affine([(weights[0], whole(f)), (weights[1], whole(g))])
    return _trimmed_case([("f", f), ("g", g), ("sum", total)], x, baseline, weights=weights)


@st.composite
def symmetric(draw: Draw) -> AxiomCase:
    """Draw a network that does not change when x1 and x2 are swapped, with x1 = x2 in the input and in the baseline."""
    x, baseline = draw(endpoints())
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
    assume(_responds(node, x, baseline))
    return _trimmed_case([("f", node)], x, baseline, (0, 1))


def bias_inward(node: Node) -> Iterator[Node]:
    """The paper's pair: relu(w relu(z) - c - s) = relu(w relu(z - c/w) - s) for w > 0, c >= 0, s >= 0.

    For z >= c/w both inner values are equal. For z < c/w the left argument is below -s and the right one is -s, neither
    above zero, so that both are zero.
    """
    for outer, weight, inner, rest in _over_inner(node):
        if outer.bias < 0:
            moved = relu(affine([(1.0, inner)], outer.bias / weight))
            yield relu(affine([(weight, moved), *rest]))


def bias_outward(node: Node) -> Iterator[Node]:
    """The reverse of :func:`bias_inward`: relu(w relu(z) - s) = relu(w relu(z + c) - w c - s) for c >= 0."""
    for outer, weight, inner, rest in _over_inner(node):
        if outer.bias == 0:
            for step in STEPS:
                moved = relu(affine([(1.0, inner)], step))
                yield relu(affine([(weight, moved), *rest], -weight * step))


def scaled(node: Node) -> Iterator[Node]:
    """relu(z) = relu(a z) / a for a > 0."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        for factor in SCALES:
            yield affine([(1 / factor, relu(affine([(factor, node.args[0])])))])


def doubled(node: Node) -> Iterator[Node]:
    """relu(z) = relu(z) / 2 + relu(2 z) / 4: one unit as two."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        yield affine([(0.5, node), (0.25, relu(affine([(2.0, node.args[0])])))])


def repeated(node: Node) -> Iterator[Node]:
    """relu(z) = relu(relu(z)), in both directions."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        yield relu(node)
        if isinstance(node.args[0], FunctionCall) and node.args[0].name == "relu":
            yield node.args[0]


def both_signs(node: Node) -> Iterator[Node]:
    """Insert an identity: z = relu(z) - relu(-z)."""
    yield affine([(1.0, relu(node)), (-1.0, relu(affine([(-1.0, node)])))])


def other_side(node: Node) -> Iterator[Node]:
    """The identity relu(z) = z + relu(-z)."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        yield affine([(1.0, node.args[0]), (1.0, relu(affine([(-1.0, node.args[0])])))])


def split(node: Node) -> Iterator[Node]:
    """One linear layer as two: a sum of which a part is summed first, in a unit of its own."""
    if isinstance(node, Affine) and node.terms:
        for count in {1, len(node.terms)}:
            inner = FunctionCall("linear", (affine(node.terms[:count], node.bias),))
            yield affine([(1.0, inner), *node.terms[count:]])


def merged(node: Node) -> Iterator[Node]:
    """Two linear layers as one: linear(z) = z."""
    if isinstance(node, FunctionCall) and node.name == "linear":
        yield node.args[0]


def permuted(node: Node) -> Iterator[Node]:
    """The terms of a sum, or the two arguments of a function, in reverse order."""
    if isinstance(node, Affine) and len(node.terms) > 1:
        yield Affine(node.terms[::-1], node.bias)
    if isinstance(node, FunctionCall) and node.name in ("max", "min", "mul"):
        yield FunctionCall(node.name, node.args[::-1])


def unfolded(node: Node) -> Iterator[Node]:
    """max(a, b) = a + relu(b - a) = b + relu(a - b), and min(a, b) = a - relu(a - b) = b - relu(b - a)."""
    if isinstance(node, FunctionCall) and node.name in ("max", "min"):
        sign = 1.0 if node.name == "max" else -1.0
        for one, other in (node.args, node.args[::-1]):
            above, below = (other, one) if sign > 0 else (one, other)
            yield affine([(1.0, one), (sign, relu(affine([(1.0, above), (-1.0, below)])))])


RULES: dict[str, RewriteRule] = {
    rule.__name__: rule
    for rule in (
        bias_inward,
        bias_outward,
        repeated,
        scaled,
        doubled,
        both_signs,
        other_side,
        split,
        merged,
        permuted,
        unfolded,
    )
}


def ordered(node: Node) -> Node:
    """A formula with the terms of every sum sorted, so that equal sums compare equal."""
    if isinstance(node, Affine):
        terms = sorted(((weight, ordered(part)) for weight, part in node.terms), key=lambda term: (str(term[1]), term[0]))
        return affine(terms, node.bias)
    return FunctionCall(node.name, tuple(map(ordered, node.args))) if isinstance(node, FunctionCall) else node


def equivalents(network: FormulaNetwork, rule: RewriteRule) -> list[FormulaNetwork]:
    """Every network that the rule makes of a network by rewriting one unit, wherever it stands."""
    out = []
    for node in walk(network.output):
        for other in rule(node):
            made = FormulaNetwork(replaced(network.output, {node: other}), network.inputs)
            if made != network and made not in out:
                out.append(made)
    return out


@st.composite
def _rewritten(draw: Draw, node: Node) -> Node:
    options = equivalents(FormulaNetwork(node, INPUTS), RULES[draw(st.sampled_from(sorted(RULES)))])
    assume(options)
    return draw(st.sampled_from(options)).output


def _responds(node: Node, x: Numbers, baseline: Numbers, times: Sequence[float] = (0, 0.35, 0.8, 1)) -> bool:
    """Whether a network's value changes on the line from the baseline to x: where all its units are off, all methods agree."""
    start = np.array(baseline)
    line = start + np.array(times)[:, None] * (np.array(x) - start)
    return bool(np.ptp(evaluate(FormulaNetwork(node, INPUTS), line)[0]) > 1e-9)


def _trimmed_case(
    nodes: Sequence[tuple[str, Node]], x: Numbers, baseline: Numbers, features: Numbers = (), weights: Numbers = ()
) -> AxiomCase:
    """A case without the inputs that no network takes and the axiom does not speak of."""
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


def _over_inner(node: Node) -> Iterator[tuple[Affine, float, Node, list[tuple[float, Node]]]]:
    """Matches of relu(w relu(z) + terms that are never positive + bias): the outer sum, w, z and those terms."""
    if not (isinstance(node, FunctionCall) and node.name == "relu"):
        return
    outer = node.args[0]
    if not isinstance(outer, Affine):
        outer = Affine(((1.0, outer),))
    for i, (weight, part) in enumerate(outer.terms):
        rest = [term for k, term in enumerate(outer.terms) if k != i]
        falling = all(w <= 0 and isinstance(other, FunctionCall) and other.name in ("relu", "sigmoid") for w, other in rest)
        if weight > 0 and isinstance(part, FunctionCall) and part.name == "relu" and falling:
            yield outer, weight, part.args[0], rest
