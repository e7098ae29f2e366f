"""Small networks as formulas: a frozen tree of units with a text form that people read and type."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import OptionError

CALLS = {"relu": 1, "linear": 1, "sigmoid": 1, "tanh": 1, "max": 2, "min": 2, "mul": 2}
"""The functions of a formula with their number of arguments; ``linear`` is a unit of its own without an activation."""

KINKED = ("relu", "max", "min")
"""The functions that have no gradient where their argument, or the difference of their two arguments, is zero."""

MOST_CHARACTERS = 10_000
"""The longest formula that is read: longer ones are no small networks, and would take Python's parser too deep."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a formula, counted from 0; ``x1`` in texts is number 0."""

    index: int

    def __str__(self) -> str:
        return f"x{self.index + 1}"


@dataclass(frozen=True, slots=True)
class Affine:
    """A weighted sum of other nodes plus a constant: one linear unit. Made by :func:`affine`, which keeps it in order.

    Attributes:
        terms: pairs of a weight and a node that is not itself a sum; no node twice.
        bias: the constant.
    """

    terms: tuple[tuple[float, Node], ...]
    bias: float = 0.0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.terms, self.bias)))

    def __hash__(self) -> int:  # computed once: units that are shared many times over would be walked as often
        return self._hash


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of :data:`CALLS` of one or two nodes."""

    name: str
    args: tuple[Node, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.args)))

    def __hash__(self) -> int:
        return self._hash


Node = Input | Affine | FunctionCall


def affine(terms: Iterable[tuple[float, Node]], bias: float = 0.0) -> Node:
    """A weighted sum in canonical form: sums inside it are multiplied out, equal nodes collected.

    >>> str(FormulaNetwork(affine([(2.0, affine([(1.0, Input(0))], 1.0)), (1.0, Input(0))])))
    '3*x1 + 2'
    """
    weights: dict[Node, float] = {}
    total = float(bias)
    for weight, node in terms:
        inner, constant = (node.terms, node.bias) if isinstance(node, Affine) else (((1.0, node),), 0.0)
        total += weight * constant
        for factor, part in inner:
            weights[part] = weights.get(part, 0.0) + weight * factor
    # An input with weight 0 stays: it says that the network has this input and does not use it.
    kept = tuple((weight, node) for node, weight in weights.items() if weight or isinstance(node, Input))
    if len(kept) == 1 and kept[0][0] == 1 and total == 0:
        return kept[0][1]
    return Affine(kept, total + 0.0)


def relu(node: Node) -> Node:
    """A node that applies relu to another node."""
    return FunctionCall("relu", (node,))


def walk(node: Node) -> Iterator[Node]:
    """Every distinct node of a formula, each after the nodes that it is made of."""
    seen: set[Node] = set()

    def visit(here: Node) -> Iterator[Node]:
        if here in seen:
            return
        seen.add(here)
        for part in children(here):
            yield from visit(part)
        yield here

    yield from visit(node)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node takes as arguments."""
    if isinstance(node, Affine):
        return tuple(part for _, part in node.terms)
    return node.args if isinstance(node, FunctionCall) else ()


def replaced(node: Node, swap: Mapping[Node, Node]) -> Node:
    """The formula with some nodes replaced by others, and its sums in canonical form again."""
    if node in swap:
        return swap[node]
    if isinstance(node, Affine):
        return affine([(weight, replaced(part, swap)) for weight, part in node.terms], node.bias)
    if isinstance(node, FunctionCall):
        return FunctionCall(node.name, tuple(replaced(part, swap) for part in node.args))
    return node


@dataclass(frozen=True, slots=True)
class FormulaNetwork:
    """A small network: a formula of its inputs.

    >>> from integrand.axioms import parse
    >>> net = parse("h1 = relu(x1 - 1); relu(h1 - relu(x2))")
    >>> str(net), net.inputs
    ('relu(relu(x1 - 1) - relu(x2))', 2)
    >>> parse(str(net)) == net
    True

    Attributes:
        output: the node that gives its output.
        inputs: how many inputs it takes; by default as many as the formula names.
    """

    output: Node
    inputs: int = 0

    def __post_init__(self) -> None:
        needed = max((node.index + 1 for node in walk(self.output) if isinstance(node, Input)), default=1)
        if self.inputs and self.inputs < needed:
            raise OptionError(f"got inputs={self.inputs}; expected at least {needed}, since the formula uses x{needed}.")
        object.__setattr__(self, "inputs", self.inputs or needed)

    def __str__(self) -> str:
        names = self.names()
        parts = [f"{name} = {_text(node, names, whole=True)}" for node, name in names.items()]
        return "; ".join([*parts, _text(self.output, names, whole=True)])

    def names(self) -> dict[Node, str]:
        """Names ``h1``, ``h2``, ... for units that are used more than once, in the order of their definition."""
        uses: dict[Node, int] = {}
        order = list(walk(self.output))
        for node in order:
            for part in children(node):
                uses[part] = uses.get(part, 0) + 1
        shared = [node for node in order if isinstance(node, FunctionCall) and uses.get(node, 0) > 1]
        return {node: f"h{i + 1}" for i, node in enumerate(shared)}

    @property
    def named(self) -> bool:
        """Whether the formula's text alone tells the number of inputs."""
        return FormulaNetwork(self.output).inputs == self.inputs

    def svg(self) -> str:
        """The network drawn as a graph, as an SVG that needs nothing else."""
        from .formula_network import svg

        return svg(self)

    def drawing(self) -> str:
        """The network drawn with text, for a terminal."""
        from .formula_network import drawing

        return drawing(self)

    def _repr_svg_(self) -> str:
        return self.svg()


def plain(value: float) -> str:
    """A number as one would type it: whole numbers without a decimal point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def parse(text: str, *, inputs: int | None = None) -> FormulaNetwork:
    """Read a formula from text; nothing in it is executed.

    Args:
        text: sums, differences and products of inputs ``x1``, ``x2``, ... and of ``relu``, ``sigmoid``, ``tanh``,
            ``max``, ``min`` and ``linear`` (a unit of its own); units may be named first, separated by ``;``.
        inputs: the number of inputs, where it is more than the formula uses.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        got = f"a text of {len(text)} characters" if isinstance(text, str) else f"a {type(text).__name__}"
        raise OptionError(f"got {got} as formula; expected at most {MOST_CHARACTERS} characters such as 'relu(x1 - 1) - x2'.")
    source = "\n".join(line.strip() for line in text.strip().splitlines())
    try:
        body = ast.parse(source).body
        if not body or not isinstance(body[-1], ast.Expr):
            raise _unreadable(text, "it has no output", "a formula at the end, such as 'h1 = relu(x1); h1 - x2'")
        names: dict[str, Node] = {}
        for statement in body[:-1]:
            _assign(statement, names, text)
        return FormulaNetwork(_node(body[-1].value, names, text), inputs or 0)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise _unreadable(text, f"it cannot be read ({error})", "a formula such as 'relu(x1 - 1) - x2'") from None


def _text(node: Node, names: Mapping[Node, str], *, whole: bool = False) -> str:
    """The text of a node: its name where it has one, unless ``whole`` asks for the formula behind the name."""
    if not whole and node in names:
        return names[node]
    if isinstance(node, Input):
        return str(node)
    if isinstance(node, Affine):
        return _sum(node, names)
    if node.name == "mul":
        return "*".join(_factor(part, names) for part in node.args)
    return f"{node.name}({', '.join(_text(part, names) for part in node.args)})"


def _factor(node: Node, names: Mapping[Node, str]) -> str:
    text = _text(node, names)
    product = isinstance(node, FunctionCall) and node.name == "mul" and node not in names
    return f"({text})" if product or isinstance(node, Affine) else text


def _sum(node: Affine, names: Mapping[Node, str]) -> str:
    parts = []
    for weight, part in node.terms:
        sign = "-" if math.copysign(1, weight) < 0 else "+"
        factor = "" if abs(weight) == 1 else f"{plain(abs(weight))}*"
        parts.append((sign, factor + _factor(part, names)))
    if node.bias or not parts:
        constant = ("-" if node.bias < 0 else "+", plain(abs(node.bias)))
        # 1 - relu(1 - x1) reads better than -relu(-x1 + 1) + 1.
        parts.insert(0 if parts and parts[0][0] == "-" and node.bias > 0 else len(parts), constant)
    first, *rest = parts
    return ("-" if first[0] == "-" else "") + first[1] + "".join(f" {sign} {text}" for sign, text in rest)


def _assign(statement: ast.stmt, names: dict[str, Node], text: str) -> None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
        raise _unreadable(text, f"{ast.unparse(statement)!r} is no unit", "'name = formula' before the last one")
    if target.id in CALLS or _input(target.id) is not None or target.id in names:
        raise _unreadable(text, f"the name {target.id!r} is taken", "a new name such as h1")
    names[target.id] = _node(statement.value, names, text)


def _input(name: str) -> int | None:
    digits = name[1:]
    return int(digits) - 1 if name[:1] == "x" and digits.isascii() and digits.isdigit() and digits[0] != "0" else None


def _node(here: ast.expr, names: Mapping[str, Node], text: str) -> Node:
    if isinstance(here, ast.Constant) and isinstance(here.value, (int, float)) and not isinstance(here.value, bool):
        return affine((), _finite(float(here.value), text))
    if isinstance(here, ast.Name):
        index = _input(here.id)
        if here.id in names:
            return names[here.id]
        if index is None or index >= 1000:
            known = ", ".join(["x1, x2, ...", *names])
            raise _unreadable(text, f"{here.id!r} is not known", f"one of {known}")
        return Input(index)
    if isinstance(here, ast.UnaryOp) and isinstance(here.op, (ast.USub, ast.UAdd)):
        return affine([(-1.0 if isinstance(here.op, ast.USub) else 1.0, _node(here.operand, names, text))])
    if isinstance(here, ast.BinOp):
        return _operation(here, _node(here.left, names, text), _node(here.right, names, text), text)
    if isinstance(here, ast.Call) and isinstance(here.func, ast.Name) and not here.keywords:
        wanted = CALLS.get(here.func.id)
        if wanted == len(here.args):
            return FunctionCall(here.func.id, tuple(_node(part, names, text) for part in here.args))
        if wanted:
            raise _unreadable(text, f"{here.func.id} got {len(here.args)} argument(s)", str(wanted))
    functions = ", ".join(name for name in CALLS if name != "mul")
    raise _unreadable(text, f"{ast.unparse(here)!r} is not part of a formula", f"+, -, *, numbers, inputs and {functions}")


def _operation(here: ast.BinOp, left: Node, right: Node, text: str) -> Node:
    if isinstance(here.op, (ast.Add, ast.Sub)):
        return affine([(1.0, left), (1.0 if isinstance(here.op, ast.Add) else -1.0, right)])
    first, second = _constant(left), _constant(right)
    if isinstance(here.op, ast.Mult):
        if first is not None:
            return affine([(first, right)])
        return FunctionCall("mul", (left, right)) if second is None else affine([(second, left)])
    if isinstance(here.op, ast.Div) and second:
        return affine([(1 / second, left)])
    raise _unreadable(text, f"{ast.unparse(here)!r} is not part of a formula", "+, -, * and division by a number")


def _constant(node: Node) -> float | None:
    return node.bias if isinstance(node, Affine) and not node.terms else None


def _finite(value: float, text: str) -> float:
    if not math.isfinite(value):
        raise _unreadable(text, f"it holds {value}", "finite numbers")
    return value


def _unreadable(text: str, got: str, expected: str) -> OptionError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return OptionError(f"got the formula {shown!r}: {got}; expected {expected}.")
