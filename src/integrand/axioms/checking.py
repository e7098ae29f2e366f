"""Checking whether a method keeps an axiom: on the examples of a model of yours, or by a search among small networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import nn

from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import Baseline, resolve_baselines
from ..certificate import AXIOMS, Promise
from ..errors import InputError, ModelError, OptionError
from ..functions.layer import Layers, LayerSide
from ..functions.model_state import undisturbed
from ..functions.target import Score, Target, main_tensor
from ..methods.method import Method
from ..trees import Leaves, Tensors, flat
from . import completeness, implementation_invariance, linearity, sensitivity_a, sensitivity_b, symmetry
from .evidence import Finding, rounded
from .own_model import OwnExample, Scored, Trial, parts_of
from .search import Searched, search
from .verdict import Counterexample, Verdict, case_code, method_code, own_code

NOTHING_TRIED = {
    "completeness": "there was nothing to try",
    "sensitivity-a": "no single feature changes the score: there was nothing to try",
    "sensitivity-b": "every feature moves the score: there was nothing to try",
    "implementation-invariance": "there was nothing to try",
    "linearity": "there was nothing to try",
    "symmetry": "no two features can be swapped: there was nothing to try",
}

Model = Callable[..., Any]
"""An ``nn.Module``, or any function of tensors."""


class Axiom(Searched, Protocol):
    """What the module of an axiom, such as :mod:`integrand.axioms.symmetry`, offers."""

    NAME: str
    RULE: str

    def on_model(self, method: Method, own: OwnExample) -> Iterator[Trial]:
        """Judge cases of the axiom on the user's model, one by one."""
        ...


MODULES: dict[str, Axiom] = {
    module.NAME: cast(Axiom, module)
    for module in (completeness, sensitivity_a, sensitivity_b, implementation_invariance, linearity, symmetry)
}
assert tuple(MODULES) == AXIOMS


def check(
    method: Method,
    axiom: str,
    model: Model | None = None,
    x: Tensors | None = None,
    baseline: Baseline = None,
    *,
    target: Target = None,
    score: Score = "logit",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    layer: Layers | None = None,
    layer_side: LayerSide = "output",
    batched: bool | None = None,
    groups: Tensors | None = None,
    features: Sequence[int] | None = None,
    dummy: Sequence[int] | None = None,
    equivalent: Model | None = None,
    examples: int = 4,
    moves: int = 4,
    probes: int = 16,
    max_examples: int = 200,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> Verdict:
    """Whether a method keeps an axiom of the paper.

    Without a model, small networks are drawn and shrunk (Hypothesis) in search of a counter-example. With one, the axiom
    is tried on it; nothing is said then of other models. Gaps count only beyond what the certificates' errors and
    rounding explain.

    Args:
        method: a value of :mod:`integrand.methods`, or your own.
        axiom: one of :data:`AXIOMS`.
        model: an ``nn.Module`` in eval mode, or any callable; None to search.
        x: the input of the model, as in :func:`integrand.integrated_gradients`.
        baseline: a single baseline; zero if not given.
        target: the output to explain.
        score: logit, probability or log-probability.
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        layer: the submodule whose value is explained instead of x, an embedding for instance.
        layer_side: whether to explain the output of the layer or its input.
        batched: whether the first dimension of x counts examples.
        groups: integer labels in the structure of one example; each group then counts as a feature, and what is labelled
            -1 as one more. Without groups, every number is a feature, or every block of numbers where there are more
            than 64. The method is told, and explains groups and blocks as such.
        features: numbers of the features (or groups, or blocks) to look at.
        dummy: numbers of the features that the score does not depend on, for ``sensitivity-b``; refused where probes show
            that it does.
        equivalent: another model that computes the same, for ``implementation-invariance``; without one, the model is
            wrapped in ways that provably change nothing.
        examples: how many rows of x to look at.
        moves: how many single features to move, and pairs to swap, at most.
        probes: how many inputs to look for dummy features with.
        max_examples: how many cases a search tries.
        seed: the seed of everything that is drawn.
        progress: a function that is told how many cases were tried.
    """
    value: object = method
    if not isinstance(value, Method):
        got = value.__name__ if isinstance(value, type) else type(value).__name__
        raise OptionError(f"got {got} as method; expected a value of integrand.methods such as DeepLift().")
    if axiom not in MODULES:
        raise OptionError(f"got axiom={axiom!r}; expected one of {', '.join(map(repr, AXIOMS))}.")
    for name, count in {"examples": examples, "moves": moves, "probes": probes, "max_examples": max_examples}.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise OptionError(f"got {name}={count!r}; expected a whole number from 1 on.")
    if model is None:
        if x is not None or equivalent is not None:
            raise OptionError("got x or equivalent without a model; expected a model to check, or neither for a search.")
        return _by_search(method, MODULES[axiom], max_examples, seed, progress)
    if x is None:
        raise OptionError("got a model without x; expected an input to explain it at.")
    given = tuple(args), dict(kwargs or {})
    ask = OwnModelQuestion(model, x, baseline, target, score, *given, batched, groups, equivalent, layer, layer_side)
    limits = CheckLimits(features, dummy, examples, moves, probes, seed)
    return check_examples(method, MODULES[axiom], ask, own_examples(ask, limits), progress)


def check_examples(
    method: Method,
    axiom: Axiom,
    ask: OwnModelQuestion,
    owns: Sequence[OwnExample],
    progress: Callable[[int], object] | None = None,
) -> Verdict:
    """Check an axiom on every example of the user's model; the case that is furthest off is the counter-example."""
    worst: tuple[Trial, OwnExample] | None = None
    tried = undecided = refused = 0
    refusal = ""
    said: dict[str, None] = {}
    for own in owns:
        try:
            for trial in axiom.on_model(method, own):
                tried += 1
                said |= {trial.note: None} if trial.note else {}
                undecided += not trial.finding.decided
                if progress is not None:
                    progress(tried)
                if trial.finding.broken and (worst is None or _times_allowed(trial) > _times_allowed(worst[0])):
                    worst = trial, own
        except ModelError as error:
            refused, refusal = refused + 1, str(error)
    notes = [f"it said: {refusal}"] if refused else []
    if not tried and not refused:
        notes.append(NOTHING_TRIED[axiom.NAME])
    kept = True if tried > undecided else None
    notes += said if worst is None else ()
    verdict = Verdict(
        axiom.NAME,
        axiom.RULE,
        method.name,
        method_code(method)[0],
        kept=kept if worst is None else False,
        tried=tried,
        where="this model",
        promise=_promise(method, axiom),
        undecided=undecided,
        refused=refused,
        note="; ".join(notes),
    )
    if worst is None:
        return verdict
    trial, own = worst
    code = own_code(method, axiom.NAME, ask.options() | trial.options)
    points = (rounded(flat(leaves)[0].cpu()) for leaves in (trial.x or own.x, trial.start or own.start))
    return replace(verdict, counterexample=_counterexample(trial.finding, code, *points))


@dataclass(frozen=True)
class OwnModelQuestion:
    """The model and the question about it, as the user passed them to :func:`check`; the attributes are its arguments."""

    model: Model
    x: Tensors
    baseline: Baseline
    target: Target
    score: Score
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batched: bool | None
    groups: Tensors | None
    equivalent: Model | None
    layer: Layers | None = None
    layer_side: LayerSide = "output"

    def options(self) -> dict[str, Any]:
        """The arguments that differ from their defaults, for the code of a counter-example."""
        given = {
            "target": self.target,
            "score": None if self.score == "logit" else self.score,
            "args": self.args or None,
            "kwargs": self.kwargs or None,
            "batched": self.batched,
            "groups": self.groups,
            "equivalent": self.equivalent,
            "layer": self.layer,
            "layer_side": None if self.layer_side == "output" else self.layer_side,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class CheckLimits:
    """Which features to look at, and how many examples, moves and probes to try; the arguments of :func:`check`."""

    features: Sequence[int] | None
    dummy: Sequence[int] | None
    examples: int
    moves: int
    probes: int
    seed: int


def own_examples(ask: OwnModelQuestion, limits: CheckLimits) -> list[OwnExample]:
    """The first examples of the user's input, each with its score as a module of its own."""
    function, starts = _function_and_baselines(ask, ask.model)
    if len(starts) != 1:
        raise InputError(f"got {len(starts)} baselines; expected a single one: the axioms speak of an input and a baseline.")
    target = _same_target(ask.target, function)
    same = None if ask.equivalent is None else _function_and_baselines(replace(ask, target=target), ask.equivalent)[0]
    out = []
    for row in range(min(limits.examples, function.examples)):
        x, start = (tuple(leaf[row : row + 1].detach() for leaf in leaves) for leaves in (function.inputs, starts[0]))
        parts = parts_of(x, function.tree, ask.groups)
        for name, chosen in (("features", limits.features), ("dummy", limits.dummy)):
            if any(not 0 <= part < len(parts) for part in chosen or ()):
                raise OptionError(f"got {name}={list(chosen or ())}; expected numbers from 0 to {len(parts) - 1}.")
        own = OwnExample(
            Scored(function, row),
            x,
            start,
            parts,
            others=_other_output(function, row),
            equals=None if same is None else Scored(same, row),
            dummy=limits.dummy,
            chosen=limits.features,
            moves=limits.moves,
            probes=limits.probes,
            seed=limits.seed,
        )
        out.append(own)
    return out


def _by_search(method: Method, axiom: Axiom, max_examples: int, seed: int, progress: Callable[[int], object] | None) -> Verdict:
    """Search small networks for a case that breaks the axiom, and say what came of it."""
    tally, case = search(method, axiom, max_examples=max_examples, seed=seed, progress=progress)
    decided = tally.tried - tally.undecided
    verdict = Verdict(
        axiom.NAME,
        axiom.RULE,
        method.name,
        method_code(method)[0],
        kept=True if decided else None,
        tried=tally.tried,
        where="small networks",
        promise=_promise(method, axiom),
        undecided=tally.undecided,
        refused=tally.refused,
        note=f"it said: {tally.refusal}" if tally.refused and not tally.tried else "",
    )
    if case is None:
        return verdict
    finding = tally.found[case]
    assert finding is not None
    found = _counterexample(finding, case_code(method, case), case.x, case.baseline)
    return replace(verdict, kept=False, counterexample=replace(found, networks=case.networks))


def _promise(method: Method, axiom: Axiom) -> Promise | None:
    return next((one for one in method.promises if one.axiom == axiom.NAME), None)


def _counterexample(finding: Finding, code: str, x: tuple[float, ...], baseline: tuple[float, ...]) -> Counterexample:
    return Counterexample((), x, baseline, finding.attributions, finding.statement, finding.gap, finding.allowed, code)


def _times_allowed(trial: Trial) -> float:
    return trial.finding.gap / max(trial.finding.allowed, 1e-300)


def _function_and_baselines(ask: OwnModelQuestion, model: Model) -> tuple[TorchFunction, list[Leaves]]:
    with undisturbed(model):
        function = build(
            model,
            ask.x,
            target=ask.target,
            score=ask.score,
            args=ask.args,
            kwargs=ask.kwargs,
            layer=ask.layer,
            layer_side=ask.layer_side,
            batched=ask.batched,
        )
        starts = resolve_baselines(ask.baseline, function, 1)
    wide = [tuple(a.expand_as(b) for a, b in zip(start, function.inputs, strict=True)) for start in starts]
    return function, wide


def _same_target(target: Target, function: TorchFunction) -> Target:
    """The target in full, where the user left it to the model, so that an equivalent model explains the same output."""
    if target is not None or not function.scorer.index:
        return target
    return [tuple(int(column[i]) for column in function.scorer.index) for i in range(function.examples)]


def _other_output(function: TorchFunction, row: int) -> list[tuple[str, nn.Module]]:
    """The largest output other than the explained one, by name, where the model has a row of outputs."""
    scorer = function.scorer
    if len(scorer.index) != 1:
        return []
    with torch.no_grad():
        outputs = function.run(tuple(leaf[row : row + 1] for leaf in function.inputs), torch.tensor([row]))
        found = main_tensor(outputs[0]).reshape(-1)
    for index in found.argsort(descending=True).tolist():
        if index != int(scorer.index[0][row]):
            column = torch.full_like(scorer.index[0], index)
            other = replace(function, scorer=replace(scorer, index=(column,)))
            return [(f"output [{index}]", Scored(other, row))]
    return []
