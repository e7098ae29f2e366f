"""The front door: does a method keep an axiom, on a model of yours or on any?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from ..baselines.resolve import Baseline
from ..certificate import AXIOMS, Promise
from ..errors import ModelError, OptionError
from ..functions.layer import Layers, LayerSide
from ..functions.target import Score, Target
from ..methods.method import Method
from ..trees import Tensors, flat
from . import completeness, implementation_invariance, linearity, sensitivity_a, sensitivity_b, symmetry
from .evidence import Finding, rounded
from .own_inputs import CheckLimits, Model, OwnModelQuestion, own_examples
from .own_model import Own, Trial
from .search import Searched, search
from .verdict import Counterexample, Verdict, case_code, method_code, own_code


class Axiom(Searched, Protocol):
    """What the module of an axiom offers."""

    NAME: str
    RULE: str

    def on_model(self, method: Method, own: Own) -> Iterator[Trial]:
        """Cases on the user's model, one by one."""
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
        x: its input, as in :func:`integrand.integrated_gradients`.
        baseline: a single one; zero if not given.
        target: the output to explain.
        score: logit, probability or log-probability.
        args: further positional arguments of the model.
        kwargs: further keyword arguments.
        layer: the submodule whose value is explained instead of x, an embedding for instance.
        layer_side: what the layer gives or gets.
        batched: whether the first dimension of x counts examples.
        groups: integer labels in the structure of one example; each group then counts as a feature, and what is labelled
            -1 as one more. Without them, single numbers do, or blocks of them where there are more than 64. The method is
            told, and explains groups and blocks as such.
        features: numbers of the features (or groups, or blocks) to look at.
        dummy: numbers of those that the score does not depend on, for ``sensitivity-b``; probes see to it that this is so.
        equivalent: another model that computes the same, for ``implementation-invariance``; without one, the model is
            wrapped in ways that provably change nothing.
        examples: how many rows of x to look at.
        moves: single features to move, and pairs to swap, at the most.
        probes: inputs to look for dummies with.
        max_examples: cases that a search tries.
        seed: of everything drawn.
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
    return on_models(method, MODULES[axiom], ask, own_examples(ask, limits), progress)


def _by_search(method: Method, axiom: Axiom, max_examples: int, seed: int, progress: Callable[[int], object] | None) -> Verdict:
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


def on_models(
    method: Method,
    axiom: Axiom,
    ask: OwnModelQuestion,
    owns: Sequence[Own],
    progress: Callable[[int], object] | None = None,
) -> Verdict:
    """An axiom on every example of the user's; the worst case is the counter-example."""
    worst: tuple[Trial, Own] | None = None
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
                if trial.finding.broken and (worst is None or _excess(trial) > _excess(worst[0])):
                    worst = trial, own
        except ModelError as error:
            refused, refusal = refused + 1, str(error)
    notes = [f"it said: {refusal}"] if refused else []
    if not tried and not refused:
        notes.append(_NOTHING[axiom.NAME])
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


def _excess(trial: Trial) -> float:
    return trial.finding.gap / max(trial.finding.allowed, 1e-300)


_NOTHING = {
    "completeness": "there was nothing to try",
    "sensitivity-a": "no single feature changes the score: there was nothing to try",
    "sensitivity-b": "every feature moves the score: there was nothing to try",
    "implementation-invariance": "there was nothing to try",
    "linearity": "there was nothing to try",
    "symmetry": "no two features can be swapped: there was nothing to try",
}
