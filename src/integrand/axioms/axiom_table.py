"""Every method against every axiom, with the evidence for each cell."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..baselines.resolve import Baseline
from ..certificate import AXIOMS
from ..engine import version_of
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
from ..trees import Tensors
from .checking import MODULES, check, on_models
from .own_inputs import CheckLimits, Model, OwnModelQuestion, own_examples
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
"""The methods that the paper compares, and ours, integrated more exactly than a picture needs."""

SIGNS = {
    "broken": "broken",
    "promise refuted": "REFUTED",
    "undecided": "?",
    "refused": "-",
    "nothing to try": "-",
}


@dataclass(frozen=True)
class Step:
    """Where a table stands.

    Attributes:
        method: the method at work.
        axiom: the axiom at work.
        done: cells filled.
        cells: cells in all.
        tried: cases tried in this cell.
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
        where: on small networks or on the user's model.
        meta: how it was made, all strings.
    """

    verdicts: tuple[tuple[Verdict, ...], ...]
    axioms: tuple[str, ...]
    where: str
    meta: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, at: tuple[str, str]) -> Verdict:
        """The verdict on a method, by name or by its code, and an axiom."""
        for row in self.verdicts:
            for verdict in row:
                if at[0] in (verdict.method, verdict.settings) and verdict.axiom == at[1]:
                    return verdict
        names = ", ".join(repr(row[0].settings) for row in self.verdicts)
        raise OptionError(f"got {at!r}; expected one of the methods {names} and one of the axioms {', '.join(self.axioms)}.")

    @property
    def refuted(self) -> tuple[Verdict, ...]:
        """The promises that a counter-example breaks."""
        return tuple(verdict for row in self.verdicts for verdict in row if verdict.refuted)

    def __str__(self) -> str:
        """The table, and the counter-examples below it."""
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
        """Everything as JSON."""
        rows = [verdict.as_dict() for row in self.verdicts for verdict in row]
        whole = {"axioms": self.axioms, "where": self.where, "meta": self.meta, "verdicts": rows}
        return json.dumps(whole, indent=2, allow_nan=False)

    def html(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained page: the table, and behind each cell its evidence, with the networks drawn.

        Args:
            title: the heading.
            command: what makes the page again, to be shown in it.
        """
        from .drawings import page

        return page(self, title=title, command=command)

    def _repr_html_(self) -> str:
        from .drawings import grid

        return grid(self, linked=False)


def _cell(verdict: Verdict) -> str:
    if not verdict.kept:
        return SIGNS[verdict.word]
    return f"kept ({verdict.tried})" + ("" if verdict.promise is None or verdict.promise.kept else " *")


def _legend(where: str) -> str:
    return (
        f"On {where}. kept (n): n cases tried, none broke it; *: though the method does not promise it. broken: by the "
        "counter-example below. REFUTED: the method promises it, and the counter-example breaks it. ?: the errors are too "
        "large to tell. -: nothing could be tried."
    )


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
        x: the input.
        baseline: a single one.
        target: the output to explain.
        score: logit, probability or log-probability.
        args: further positional arguments.
        kwargs: further keyword arguments.
        layer: the submodule whose value is explained instead of x, an embedding for instance.
        layer_side: what the layer gives or gets.
        batched: whether the first dimension of x counts examples.
        groups: what counts as a feature.
        dummy: features that do nothing.
        equivalent: a model that computes the same.
        examples: rows of x to look at.
        moves: single features to move, and pairs to swap.
        probes: inputs to look for dummies with.
        max_examples: cases that each search tries.
        seed: of everything drawn.
        progress: told of every :class:`Step`.
    """
    chosen = tuple(METHODS if methods is None else methods)
    unknown = [axiom for axiom in axioms if axiom not in MODULES]
    if not chosen or not axioms or unknown:
        got = f"axioms={unknown}" if unknown else ("no methods" if not chosen else "no axioms")
        raise OptionError(f"got {got}; expected at least one method and names from {', '.join(map(repr, AXIOMS))}.")
    if (model is None) != (x is None):
        raise OptionError("got only one of model and x; expected both, to check a model, or neither, for a search.")
    judge = _judge(max_examples, seed)
    if model is not None and x is not None:
        given = tuple(args), dict(kwargs or {})
        ask = OwnModelQuestion(model, x, baseline, target, score, *given, batched, groups, equivalent, layer, layer_side)
        judge = _judge_on(ask, CheckLimits(None, dummy, examples, moves, probes, seed))
    cells = [(method, axiom) for method in chosen for axiom in axioms]
    found = [judge(*cell, _teller(progress, *cell, done, len(cells))) for done, cell in enumerate(cells)]
    rows = [tuple(found[i : i + len(axioms)]) for i in range(0, len(found), len(axioms))]
    meta = {"integrand": version_of(), "torch": torch.__version__, "seed": str(seed)}
    if model is None:
        meta["cases to try"] = str(max_examples)
    return Table(tuple(rows), tuple(axioms), found[0].where, meta)


Judge = Callable[[Method, str, Callable[[int], object]], Verdict]


def _judge(max_examples: int, seed: int) -> Judge:
    return lambda method, axiom, tell: check(method, axiom, max_examples=max_examples, seed=seed, progress=tell)


def _judge_on(ask: OwnModelQuestion, limits: CheckLimits) -> Judge:
    owns = own_examples(ask, limits)
    return lambda method, axiom, tell: on_models(method, MODULES[axiom], ask, owns, tell)


def _teller(
    progress: Callable[[Step], object] | None, method: Method, axiom: str, done: int, cells: int
) -> Callable[[int], object]:
    if progress is None:
        return lambda tried: None
    progress(Step(method.name, axiom, done, cells, 0))
    return lambda tried: progress(Step(method.name, axiom, done, cells, tried))
