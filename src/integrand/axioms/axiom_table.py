"""The table of every method against every axiom, as text, JSON and an HTML page with the evidence behind each cell."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..baselines.resolve import Baseline
from ..certificate import AXIOMS
from ..errors import OptionError
from ..functions.layer import Layers, LayerSide
from ..functions.target import Score, Target
from ..methods.deeplift import DeepLift
from ..methods.expected_gradients import ExpectedGradients
from ..methods.gradients import Gradient, GradientTimesInput
from ..methods.guided_backprop import Deconvnet, GuidedBackprop
from ..methods.lime import Lime
from ..methods.lrp import LRP
from ..methods.method import Method
from ..methods.path_methods import IntegratedGradients, PathMethod
from ..methods.shapley import Shapley
from ..methods.smoothgrad import SmoothGrad
from ..render.escaping import escape
from ..render.html import POLICY, STYLE
from ..trees import Tensors
from ..version import generator, version_of
from ..words import short_repr
from .checking import MODULES, CheckLimits, Model, OwnModelQuestion, check, check_examples, own_examples
from .verdict import Verdict

METHODS: tuple[Method, ...] = (
    IntegratedGradients(tol=1e-4),
    PathMethod(tol=1e-4),
    ExpectedGradients(),
    Shapley(),
    Gradient(),
    GradientTimesInput(),
    SmoothGrad(),
    Deconvnet(),
    GuidedBackprop(),
    DeepLift(),
    LRP(),
    Lime(),
)
"""The methods that the paper compares, and ours. Integrals are a hundred times more exact than by default, so that an
integration error is not mistaken for a broken axiom."""

SHORT_VERDICTS = {
    "broken": "broken",
    "promise refuted": "REFUTED",
    "undecided": "?",
    "refused": "-",
    "nothing to try": "-",
}

Judge = Callable[[Method, str, Callable[[int], object]], Verdict]
"""From a method, the name of an axiom and a function that is told how many cases were tried, to a verdict."""

PAGE_STYLE = """
.grid{overflow-x:auto;margin:0 0 1.5rem}
.grid table{font-size:.875rem}
.grid th,.grid td{padding:.5rem .6rem;border-top:1px solid var(--line);white-space:nowrap}
.grid thead th{border-top:0;font-weight:550;white-space:normal;vertical-align:bottom}
.grid tbody th{font-weight:500}
.cell{display:inline-block;border-radius:6px;padding:.1rem .5rem;color:inherit;text-decoration:none}
.cell.kept{background:var(--good-bg);color:var(--good)}
.cell.broken{background:var(--bad-bg);color:var(--bad)}
.cell.refuted{background:#b3261e;color:#fff;font-weight:650}
.cell.open{color:var(--soft)}
a.cell:hover{text-decoration:underline}
.nets{display:flex;flex-wrap:wrap;gap:1.5rem;margin:0 0 1rem}
.nets figcaption code{color:var(--soft)}
ul.rest{padding-left:1.2rem}
:target{outline:2px solid var(--soft);outline-offset:.4rem;border-radius:4px}
.evidence{border-top:1px solid var(--line);padding-top:.25rem}
.evidence summary{padding:.35rem 0}
.evidence summary b{color:var(--ink)}
dl{margin:0}dt{font-weight:550}dd{margin:0 0 .6rem;color:var(--soft)}
""".strip()


@dataclass(frozen=True)
class Step:
    """How far the making of a table has got.

    Attributes:
        method: the method at work.
        axiom: the axiom at work.
        done: how many cells are filled.
        cells: how many cells the table has.
        tried: how many cases were tried so far in the cell at work.
    """

    method: str
    axiom: str
    done: int
    cells: int
    tried: int


@dataclass(frozen=True)
class Table:
    """Verdicts of every method (rows) on every axiom (columns).

    Attributes:
        verdicts: one tuple per method, one verdict per axiom.
        axioms: the columns.
        where: what the methods were tried on: small networks or the user's model.
        meta: how the table was made, all strings.
    """

    verdicts: tuple[tuple[Verdict, ...], ...]
    axioms: tuple[str, ...]
    where: str
    meta: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, at: tuple[str, str]) -> Verdict:
        """The verdict on a pair of a method (its name or its code) and an axiom."""
        for row in self.verdicts:
            for verdict in row:
                if at[0] in (verdict.method, verdict.settings) and verdict.axiom == at[1]:
                    return verdict
        names = ", ".join(repr(row[0].settings) for row in self.verdicts)
        raise OptionError(f"got {at!r}; expected one of the methods {names} and one of the axioms {', '.join(self.axioms)}.")

    @property
    def refuted(self) -> tuple[Verdict, ...]:
        """The verdicts in which a counter-example breaks what the method promises."""
        return tuple(verdict for row in self.verdicts for verdict in row if verdict.refuted)

    __repr__ = short_repr

    def __str__(self) -> str:
        """The table as text, and the counter-examples below it."""
        head = ["method", *self.axioms]
        rows = [[row[0].settings, *map(_cell, row)] for row in self.verdicts]
        widths = [max(len(line[k]) for line in [head, *rows]) for k in range(len(head))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in [head, *rows]
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        lines += ["", _legend(self.where)]
        for row in self.verdicts:
            for verdict in row:
                if verdict.counterexample is not None:
                    lines += ["", f"{verdict.settings}, {verdict.axiom}: {verdict.sentence}"]
                    lines.append(textwrap.indent(str(verdict.counterexample), "  "))
        return "\n".join(lines)

    def json(self) -> str:
        """All verdicts, with their counter-examples, as a JSON document."""
        rows = [verdict.as_dict() for row in self.verdicts for verdict in row]
        whole = {"axioms": self.axioms, "where": self.where, "meta": self.meta, "verdicts": rows}
        return json.dumps(whole, indent=2, allow_nan=False)

    def html(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained page: the table, and behind each cell its evidence, with the networks drawn.

        Args:
            title: the heading.
            command: the command that makes the page again, to be shown in it.
        """
        return page(self, title=title, command=command)

    def _repr_html_(self) -> str:
        return grid(self, linked=False)


def table(
    methods: Sequence[Method] | None = None,
    *,
    axioms: Sequence[str] = AXIOMS,
    model: Model | None = None,
    x: Tensors | None = None,
    baseline: Baseline = None,
    target: Target = None,
    score: Score = "logit",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    layer: Layers | None = None,
    layer_side: LayerSide = "output",
    batched: bool | None = None,
    groups: Tensors | None = None,
    dummy: Sequence[int] | None = None,
    equivalent: Model | None = None,
    examples: int = 4,
    moves: int = 4,
    probes: int = 16,
    max_examples: int = 100,
    seed: int = 0,
    progress: Callable[[Step], object] | None = None,
) -> Table:
    """Try every method on every axiom: by search, or on a model of yours.

    Args:
        methods: values of :mod:`integrand.methods`; all of the paper's, if not given.
        axioms: names from :data:`AXIOMS`.
        model: None to search among small networks; else as in :func:`check`, and so for what follows.
        x: the input of the model.
        baseline: a single baseline; zero if not given.
        target: the output to explain.
        score: logit, probability or log-probability.
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        layer: the submodule whose value is explained instead of x, an embedding for instance.
        layer_side: whether to explain the output of the layer or its input.
        batched: whether the first dimension of x counts examples.
        groups: integer labels in the structure of one example; each group then counts as one feature.
        dummy: numbers of the features that the score does not depend on.
        equivalent: another model that computes the same function.
        examples: how many rows of x to look at.
        moves: how many single features to move, and pairs to swap, at most.
        probes: how many inputs to look for dummy features with.
        max_examples: how many cases each search tries.
        seed: the seed of everything that is drawn.
        progress: a function that is told of every :class:`Step`.
    """
    chosen = tuple(METHODS if methods is None else methods)
    unknown = [axiom for axiom in axioms if axiom not in MODULES]
    if not chosen or not axioms or unknown:
        got = f"axioms={unknown}" if unknown else ("no methods" if not chosen else "no axioms")
        raise OptionError(f"got {got}; expected at least one method and names from {', '.join(map(repr, AXIOMS))}.")
    if (model is None) != (x is None):
        raise OptionError("got only one of model and x; expected both, to check a model, or neither, for a search.")
    judge = _judge_by_search(max_examples, seed)
    if model is not None and x is not None:
        given = tuple(args), dict(kwargs or {})
        ask = OwnModelQuestion(model, x, baseline, target, score, *given, batched, groups, equivalent, layer, layer_side)
        judge = _judge_own_model(ask, CheckLimits(None, dummy, examples, moves, probes, seed))
    cells = [(method, axiom) for method in chosen for axiom in axioms]
    found = [judge(*cell, _progress_of_cell(progress, *cell, done, len(cells))) for done, cell in enumerate(cells)]
    rows = [tuple(found[i : i + len(axioms)]) for i in range(0, len(found), len(axioms))]
    meta = {"integrand": version_of(), "torch": torch.__version__, "seed": str(seed)}
    if model is None:
        meta["cases to try"] = str(max_examples)
    return Table(tuple(rows), tuple(axioms), found[0].where, meta)


def page(table: Table, *, title: str | None, command: str | None) -> str:
    """The HTML page of a table: the grid, what each axiom asks, the evidence, and how the table was made."""
    heading = title or f"Methods and axioms on {table.where}"
    axioms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(MODULES[name].RULE)}</dd>" for name in table.axioms)
    again = f"<p>Made with</p><pre><code>{escape(command)}</code></pre>" if command else ""
    origin = "".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in table.meta.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{escape(generator())}">\n'
        f"<title>{escape(heading)}</title>\n<style>{STYLE}\n{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(heading)}</h1>\n<p class="lead">{escape(_lead(table))}</p>\n{grid(table)}\n'
        f"<section><h2>What they ask</h2><dl>{axioms}</dl></section>\n"
        f"<section><h2>The evidence</h2>\n{''.join(_evidence_html(i, row) for i, row in enumerate(table.verdicts))}</section>\n"
        f'<section><h2>How it was made</h2><table class="origin"><tbody>{origin}</tbody></table>{again}</section>\n'
        "</main>\n</body>\n</html>\n"
    )


def grid(table: Table, *, linked: bool = True) -> str:
    """The grid of verdicts as HTML; if ``linked``, each cell leads to its evidence on the page."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.axioms)
    rows = []
    for i, row in enumerate(table.verdicts):
        cells = "".join(f"<td>{_cell_html(verdict, f'#v{i}-{k}' if linked else '')}</td>" for k, verdict in enumerate(row))
        rows.append(f"<tr><th>{escape(row[0].settings)}</th>{cells}</tr>\n")
    return (
        f'<div class="grid"><table><thead><tr><th>method</th>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table></div>'
    )


def _cell(verdict: Verdict) -> str:
    if not verdict.kept:
        return SHORT_VERDICTS[verdict.word]
    return f"kept ({verdict.tried})" + ("" if verdict.promise is None or verdict.promise.kept else " *")


def _legend(where: str) -> str:
    return (
        f"On {where}. kept (n): n cases tried, none broke it; *: though the method does not promise it. broken: by the "
        "counter-example below. REFUTED: the method promises it, and the counter-example breaks it. ?: the errors are too "
        "large to tell. -: nothing could be tried."
    )


def _judge_by_search(max_examples: int, seed: int) -> Judge:
    return lambda method, axiom, tell: check(method, axiom, max_examples=max_examples, seed=seed, progress=tell)


def _judge_own_model(ask: OwnModelQuestion, limits: CheckLimits) -> Judge:
    owns = own_examples(ask, limits)
    return lambda method, axiom, tell: check_examples(method, MODULES[axiom], ask, owns, tell)


def _progress_of_cell(
    progress: Callable[[Step], object] | None, method: Method, axiom: str, done: int, cells: int
) -> Callable[[int], object]:
    if progress is None:
        return lambda tried: None
    progress(Step(method.name, axiom, done, cells, 0))
    return lambda tried: progress(Step(method.name, axiom, done, cells, tried))


def _lead(table: Table) -> str:
    count = len(table.refuted)
    said = "No promise was refuted." if not count else f"{count} promise{'s' if count > 1 else ''} refuted: see the red cells."
    return (
        "Kept means that nothing broke it in as many cases as the cell says; broken comes with a counter-example. "
        f"A star: kept here, though the method does not promise it. {said}"
    )


def _cell_html(verdict: Verdict, link: str) -> str:
    tone = "refuted" if verdict.refuted else {True: "kept", False: "broken", None: "open"}[verdict.kept]
    star = "*" if verdict.kept and verdict.promise is not None and not verdict.promise.kept else ""
    text = f"kept in {verdict.tried}{star}" if verdict.kept else verdict.word
    tip = escape(verdict.sentence)
    if not link:
        return f'<span class="cell {tone}" title="{tip}">{escape(text)}</span>'
    return f'<a class="cell {tone}" href="{link}" title="{tip}">{escape(text)}</a>'


def _evidence_html(i: int, row: tuple[Verdict, ...]) -> str:
    """The evidence on one method as HTML: counter-examples are drawn, other verdicts are a sentence each."""
    drawn, told = [], []
    for k, verdict in enumerate(row):
        if verdict.counterexample is None:
            told.append(f'<li id="v{i}-{k}">{escape(verdict.sentence)}</li>')
            continue
        drawn.append(
            f'<details class="evidence" id="v{i}-{k}" open><summary><b>{escape(verdict.axiom)}</b>: '
            f"{escape(verdict.word)}</summary><p>{escape(verdict.sentence)}</p>{verdict.counterexample._repr_html_()}</details>\n"
        )
    rest = f'<ul class="rest">{"".join(told)}</ul>\n' if told else ""
    return f"<h3>{escape(row[0].settings)} <span>{escape(row[0].method)}</span></h3>\n{rest}{''.join(drawn)}"
