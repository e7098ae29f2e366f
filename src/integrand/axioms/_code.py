"""Lines of Python that bring a counter-example back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from ..methods import Method
from ._evidence import Case


class NotSpelled(Exception):
    """A value that code cannot name."""


def spelled(value: Any, imports: set[str]) -> str:
    """An expression for a value: a method with the settings that differ from the defaults, a function, plain values.

    Args:
        value: what to spell.
        imports: gains what the expression needs.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        imports.add(_imported(kind.__module__, kind.__qualname__))
        settings = []
        for field in dataclasses.fields(value):
            own = getattr(value, field.name)
            if field.init and not (field.default is not dataclasses.MISSING and own == field.default):
                settings.append(f"{field.name}={spelled(own, imports)}")
        return f"{kind.__qualname__}({', '.join(settings)})"
    if isinstance(value, FunctionType):
        imports.add(_imported(value.__module__, value.__qualname__))
        return value.__qualname__
    if isinstance(value, (list, tuple)):
        inner = ", ".join(spelled(part, imports) for part in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise NotSpelled(repr(value))


def _imported(module: str, name: str) -> str:
    if not name.isidentifier() or module == "__main__":
        raise NotSpelled(name)
    parts = module.split(".")
    while parts[-1].startswith("_"):  # a private module: what it holds is public one level up
        parts.pop()
    return f"from {'.'.join(parts)} import {name}"


def method_code(method: Method) -> tuple[str, set[str]]:
    """An expression for a method and the imports it needs; ``method`` where it cannot be spelled."""
    imports: set[str] = set()
    try:
        return spelled(method, imports), imports
    except NotSpelled:
        return "method", set()


def case_code(method: Method, case: Case) -> str:
    """The networks, the point and the attributions of a case from a search."""
    expression, imports = method_code(method)
    wanted = sorted(imports | {"from integrand.axioms import network", "import torch"}, key=lambda line: line.split()[1])
    lines = _hint(expression) + wanted
    for name, net in case.networks:
        inputs = "" if net.named else f", inputs={net.inputs}"
        lines.append(f'{_variable(name)} = network("{net}"{inputs})')
    lines.append(f"x, baseline = torch.tensor([{list(case.x)}]).double(), torch.tensor([{list(case.baseline)}]).double()")
    models = ", ".join(_variable(name) for name, _ in case.networks)
    if case.weights:
        first, second, total = (f"{expression}({_variable(name)}, x, baseline).values" for name, _ in case.networks)
        u, v = case.weights
        both = f"{u!r} * {first} {'+' if v >= 0 else '-'} {abs(v)!r} * {second}"
        return "\n".join([*lines, f"print({total})  # of the sum", f"print({both})  # the same sum of theirs"])
    if len(case.networks) == 1:
        return "\n".join([*lines, f"print({expression}({models}, x, baseline).values)"])
    return "\n".join([*lines, f"for model in ({models}):", f"    print({expression}(model, x, baseline).values)"])


def _variable(name: str) -> str:
    return "total" if name == "sum" else name


def own_code(method: Method, axiom: str, options: Mapping[str, Any]) -> str:
    """The call of ``check`` that leads to a case on the user's model; what is theirs goes by its own name."""
    expression, imports = method_code(method)
    given = []
    for name, value in options.items():
        try:
            text = spelled(value, set())
        except NotSpelled:
            text = name
        given.append(f"{name}={text}")
    lines = [*_hint(expression), *sorted(imports | {"from integrand.axioms import check"})]
    call = ", ".join([expression, repr(axiom), "model", "x", "baseline", *given])
    return "\n".join([*lines, f"verdict = check({call})  # model, x, baseline: yours", "print(verdict)"])


def _hint(expression: str) -> list[str]:
    return ["# method: the one that you checked"] if expression == "method" else []
