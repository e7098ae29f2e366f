"""Rewrites that keep what a network computes, at every input and not only at those that are tried.

Each rule takes a node and gives others that compute the same; why they do is said with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .formula import Affine, FormulaNetwork, FunctionCall, Node, affine, relu, replaced, walk

Rule = Callable[[Node], Iterator[Node]]

STEPS = (1.0, 0.5, 2.0)
FACTORS = (2.0, 0.5)


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
    """The same from right to left: relu(w relu(z) - s) = relu(w relu(z + c) - w c - s) for c >= 0."""
    for outer, weight, inner, rest in _over_inner(node):
        if outer.bias == 0:
            for step in STEPS:
                moved = relu(affine([(1.0, inner)], step))
                yield relu(affine([(weight, moved), *rest], -weight * step))


def _over_inner(node: Node) -> Iterator[tuple[Affine, float, Node, list[tuple[float, Node]]]]:
    """Where a relu takes w relu(z) + (terms that are never positive) + bias: its sum, w, z and those terms."""
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


def scaled(node: Node) -> Iterator[Node]:
    """relu(z) = relu(a z) / a for a > 0."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        for factor in FACTORS:
            yield affine([(1 / factor, relu(affine([(factor, node.args[0])])))])


def doubled(node: Node) -> Iterator[Node]:
    """relu(z) = relu(z) / 2 + relu(2 z) / 4: one unit as two."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        yield affine([(0.5, node), (0.25, relu(affine([(2.0, node.args[0])])))])


def repeated(node: Node) -> Iterator[Node]:
    """relu(z) = relu(relu(z)), and back."""
    if isinstance(node, FunctionCall) and node.name == "relu":
        yield relu(node)
        if isinstance(node.args[0], FunctionCall) and node.args[0].name == "relu":
            yield node.args[0]


def both_signs(node: Node) -> Iterator[Node]:
    """An identity put in: z = relu(z) - relu(-z)."""
    yield affine([(1.0, relu(node)), (-1.0, relu(affine([(-1.0, node)])))])


def other_side(node: Node) -> Iterator[Node]:
    """The same identity from the other side: relu(z) = z + relu(-z)."""
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
    """The same units in another order."""
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


RULES: dict[str, Rule] = {
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
    """The same with the terms of every sum in one order, so that equal sums are equal."""
    if isinstance(node, Affine):
        terms = sorted(((weight, ordered(part)) for weight, part in node.terms), key=lambda term: (str(term[1]), term[0]))
        return affine(terms, node.bias)
    return FunctionCall(node.name, tuple(map(ordered, node.args))) if isinstance(node, FunctionCall) else node


def equivalents(network: FormulaNetwork, rule: Rule) -> list[FormulaNetwork]:
    """Every network that the rule makes of this one by changing one unit, wherever it stands."""
    out = []
    for node in walk(network.output):
        for other in rule(node):
            made = FormulaNetwork(replaced(network.output, {node: other}), network.inputs)
            if made != network and made not in out:
                out.append(made)
    return out
