"""Reading formulas, with Python's own parser and without running anything."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

from ..errors import OptionError
from ._formula import CALLS, Affine, Call, Input, Network, Node, affine

LONGEST = 10_000


def parse(text: str, *, inputs: int | None = None) -> Network:
    """Read a formula; nothing in it is executed.

    Args:
        text: sums, differences and products of inputs ``x1``, ``x2``, ... and of ``relu``, ``sigmoid``, ``tanh``,
            ``max``, ``min`` and ``linear`` (a unit of its own); units may be named first, separated by ``;``.
        inputs: the number of inputs, where it is more than the formula uses.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        got = f"a text of {len(text)} characters" if isinstance(text, str) else f"a {type(text).__name__}"
        raise OptionError(f"got {got} as formula; expected at most {LONGEST} characters such as 'relu(x1 - 1) - x2'.")
    source = "\n".join(line.strip() for line in text.strip().splitlines())
    try:
        body = ast.parse(source).body
        if not body or not isinstance(body[-1], ast.Expr):
            raise _unreadable(text, "it has no output", "a formula at the end, such as 'h1 = relu(x1); h1 - x2'")
        names: dict[str, Node] = {}
        for statement in body[:-1]:
            _assign(statement, names, text)
        return Network(_node(body[-1].value, names, text), inputs or 0)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise _unreadable(text, f"it cannot be read ({error})", "a formula such as 'relu(x1 - 1) - x2'") from None


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
            return Call(here.func.id, tuple(_node(part, names, text) for part in here.args))
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
        return Call("mul", (left, right)) if second is None else affine([(second, left)])
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
