"""The answer of a check: a verdict, its counter-example, and lines of Python that bring the counter-example back."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ..certificate import Promise
from ..methods.method import Method
from ..render.escaping import escape
from ..words import short_repr
from .evidence import AxiomCase, listed
from .formula import FormulaNetwork


class NoCodeError(Exception):
    """Raised for a value that no expression can name."""


def code_of(value: Any, imports: set[str]) -> str:
    """A Python expression for a value: a method with the settings that differ from its defaults, a function, a plain value.

    Args:
        value: the value to write as code.
        imports: import lines; those that the expression needs are added.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        imports.add(_import_line(kind))
        settings = []
        for field in dataclasses.fields(value):
            own = getattr(value, field.name)
            if field.init and not (field.default is not dataclasses.MISSING and own == field.default):
                settings.append(f"{field.name}={code_of(own, imports)}")
        return f"{kind.__qualname__}({', '.join(settings)})"
    if isinstance(value, FunctionType):
        imports.add(_import_line(value))
        return value.__qualname__
    if isinstance(value, (list, tuple)):
        inner = ", ".join(code_of(part, imports) for part in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise NoCodeError(repr(value))


def method_code(method: Method) -> tuple[str, set[str]]:
    """An expression for a method and the imports it needs; ``method`` where it has no expression."""
    imports: set[str] = set()
    try:
        return code_of(method, imports), imports
    except NoCodeError:
        return "method", set()


def case_code(method: Method, case: AxiomCase) -> str:
    """Python that builds the networks, the input and the baseline of a case from a search, and prints the attributions."""
    expression, imports = method_code(method)
    wanted = sorted(imports | {"from integrand.axioms import network", "import torch"}, key=lambda line: line.split()[1])
    lines = _placeholder_comment(expression) + wanted
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


def own_code(method: Method, axiom: str, options: Mapping[str, Any]) -> str:
    """Python that calls ``check`` so that it meets a case on the user's model; objects without an expression go by name."""
    expression, imports = method_code(method)
    given = []
    for name, value in options.items():
        try:
            text = code_of(value, set())
        except NoCodeError:
            text = name
        given.append(f"{name}={text}")
    lines = [*_placeholder_comment(expression), *sorted(imports | {"from integrand.axioms import check"})]
    call = ", ".join([expression, repr(axiom), "model", "x", "baseline", *given])
    return "\n".join([*lines, f"verdict = check({call})  # model, x, baseline: yours", "print(verdict)"])


@dataclass(frozen=True)
class Counterexample:
    """A case in which a method breaks an axiom.

    Attributes:
        networks: the small networks, by name; empty where the model is the user's.
        x: the input, one example flattened.
        baseline: the baseline, one example flattened.
        attributions: the attributions at stake, by name.
        statement: what should hold and what does.
        gap: by how much the axiom is missed.
        allowed: the gap that errors and rounding could explain.
        code: a few lines of Python that bring the case back.
    """

    networks: tuple[tuple[str, FormulaNetwork], ...]
    x: tuple[float, ...]
    baseline: tuple[float, ...]
    attributions: tuple[tuple[str, tuple[float, ...]], ...]
    statement: str
    gap: float
    allowed: float
    code: str

    __repr__ = short_repr

    def __str__(self) -> str:
        lines = [f"{name} = {net}" if name != "sum" else f"their sum = {net}" for name, net in self.networks]
        lines.append(f"at x = {listed(self.x)}, baseline {listed(self.baseline)}")
        lines += [f"attributions of {name}: {listed(values)}" for name, values in self.attributions]
        lines.append(f"{self.statement} (errors and rounding explain {self.allowed:.2g})")
        return "\n".join(lines)

    def drawing(self) -> str:
        """The networks of the counter-example drawn with text, for a terminal."""
        return "\n\n".join(f"{name} = {net}\n{net.drawing()}" for name, net in self.networks)

    def as_dict(self) -> dict[str, Any]:
        """The counter-example as plain values, for JSON."""
        return {
            "networks": {name: str(net) for name, net in self.networks},
            "x": list(self.x),
            "baseline": list(self.baseline),
            "attributions": {name: list(values) for name, values in self.attributions},
            "statement": self.statement,
            "gap": self.gap,
            "allowed": self.allowed,
            "code": self.code,
        }

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<figure>{net.svg()}<figcaption><b>{escape(name)}</b><code>{escape(str(net))}</code></figcaption></figure>"
            for name, net in self.networks
        )
        rows = [("x", self.x), ("baseline", self.baseline), *((f"a({name})", values) for name, values in self.attributions)]
        table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(listed(values))}</td></tr>" for name, values in rows)
        return (
            f'<div class="nets">{figures}</div><table class="origin"><tbody>{table}</tbody></table>'
            f"<p>{escape(self.statement)} (errors and rounding explain {self.allowed:.2g}).</p>"
            f"<pre><code>{escape(self.code)}</code></pre>"
        )


@dataclass(frozen=True)
class Verdict:
    """The answer of a check: whether a method keeps an axiom.

    Attributes:
        axiom: the name of the axiom.
        rule: what the axiom asks, in a few words.
        method: the method's name.
        settings: the method as code.
        kept: True if nothing broke it; False with a counter-example; None where nothing could be decided.
        tried: how many cases were judged.
        where: what was tried: small networks or the user's model.
        promise: what the method says of this axiom.
        counterexample: the case that broke it; None where nothing did.
        undecided: how many cases the certificates could not decide.
        refused: how many cases the method has no rule for.
        note: what else there is to say, in words.
    """

    axiom: str
    rule: str
    method: str
    settings: str
    kept: bool | None
    tried: int
    where: str
    promise: Promise | None = None
    counterexample: Counterexample | None = None
    undecided: int = 0
    refused: int = 0
    note: str = ""

    @property
    def refuted(self) -> bool:
        """Whether a counter-example breaks what the method promises."""
        return self.kept is False and self.promise is not None and self.promise.kept

    @property
    def code(self) -> str:
        """Python that brings the counter-example back; '' where there is none."""
        return self.counterexample.code if self.counterexample else ""

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        if self.kept is None:
            return "undecided" if self.tried else ("refused" if self.refused else "nothing to try")
        return "kept" if self.kept else ("promise refuted" if self.refuted else "broken")

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        if self.kept:
            said = f"{self.method} keeps {self.axiom} in {_cases(self.tried)} on {self.where}"
            if self.promise is not None and not self.promise.kept:
                said += f", though it does not promise to ({self.promise.why})"
        elif self.kept is None:
            said = f"nothing can be said of {self.method} and {self.axiom} on {self.where}"
        else:
            said = f"{self.method} breaks {self.axiom} on {self.where}"
            if self.refuted:
                said += ", though it promises to keep it"
            elif self.promise is not None and self.promise.why:
                said += f" ({self.promise.why})"
        more = [f"{_cases(self.undecided)} undecided: the error is unknown or too large"] if self.undecided else []
        more += [f"{_cases(self.refused)} refused by the method"] if self.refused else []
        return "; ".join([said, *more, *([self.note] if self.note else [])]) + "."

    __repr__ = short_repr

    def __str__(self) -> str:
        lines = [f"{self.axiom}: {self.rule}", self.sentence]
        if self.counterexample is not None:
            lines += [str(self.counterexample), "", self.counterexample.code]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain values, for JSON."""
        return {
            "axiom": self.axiom,
            "method": self.method,
            "settings": self.settings,
            "kept": self.kept,
            "promised": None if self.promise is None else self.promise.kept,
            "refuted": self.refuted,
            "tried": self.tried,
            "undecided": self.undecided,
            "refused": self.refused,
            "where": self.where,
            "note": self.note,
            "counterexample": None if self.counterexample is None else self.counterexample.as_dict(),
        }

    def _repr_html_(self) -> str:
        tone = "good" if self.kept else "bad"
        shown = "" if self.counterexample is None else self.counterexample._repr_html_()
        return (
            f'<div class="verdict {tone}"><span class="status">{escape(self.word)}</span> {escape(self.sentence)}</div>{shown}'
        )


def _import_line(value: Any) -> str:
    """The line that imports a class or function from the shortest public path to it."""
    name, parts = value.__qualname__, value.__module__.split(".")
    if not name.isidentifier() or parts[0] == "__main__":
        raise NoCodeError(name)
    while len(parts) > 1 and getattr(sys.modules.get(".".join(parts[:-1])), name, None) is value:
        parts.pop()  # the package above exports it
    return f"from {'.'.join(parts)} import {name}"


def _variable(name: str) -> str:
    return "total" if name == "sum" else name


def _placeholder_comment(expression: str) -> list[str]:
    return ["# method: the one that you checked"] if expression == "method" else []


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"
