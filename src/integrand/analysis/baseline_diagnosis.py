"""Diagnosing baselines for one input, by the paper's advice: measure every candidate, then recommend one in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..attribution import Attribution
from ..backends.torch_function import TorchFunction, build
from ..baselines.class_signal import HIGH_HEAD_START, Signal, class_probabilities, head_start, own_signal, signal_of
from ..baselines.constructors import Values, black, blurred, filled_like, gaussian, mean, uniform, white
from ..baselines.path_start import description, early_shares
from ..baselines.resolve import Baseline, resolve_baselines
from ..certificate import promised
from ..engine import EngineOptions, attribute
from ..errors import ConvergenceWarning, InputError, IntegrandError, OptionError, ZeroAttributionWarning, quiet
from ..evaluation.progress import ProgressOption
from ..functions.layer import Layers
from ..functions.model_state import undisturbed
from ..functions.randomness import scores_again
from ..functions.target import Score, Target
from ..memory import all_rows
from ..paths.base import segment
from ..trees import Leaves, Tensors, flatten
from ..words import percent, share_of
from .comparison_result import rank_correlations
from .diagnosis_result import Diagnosis, DiagnosisRow

MOST_REGIONS = 14
"""Agreement is measured over at most 14 x 14 regions of an image, a side of 16 pixels at the usual 224: a pixel more or
less is not another answer."""

Candidates = Mapping[str, Baseline | str] | Sequence[str] | None
"""Candidates for a baseline: baselines by name, or names of constructors; None for the usual ones."""

ALIKE, APART = 0.8, 0.5
"""Rank correlations: from the first on two answers count as the same, below the second as different."""

FOR_IMAGES = ("black", "white", "mean", "blurred", "uniform", "gaussian")
"""The candidates for an image, in the order of preference."""


def diagnose(
    model: Callable[..., Any],
    x: Tensors,
    candidates: Candidates = None,
    *,
    target: Target = None,
    score: Score = "probability",
    tol: float = 0.05,
    low: Values = 0.0,
    high: Values = 1.0,
    draws: int = 5,
    seed: int = 0,
    classes: Sequence[str] | Callable[[int], str] | None = None,
    layer: Layers | None = None,
    layer_side: Literal["output", "input"] = "output",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    groups: Tensors | None = None,
    max_evaluations: int = 4000,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = None,
) -> Diagnosis:
    """Compare baselines for one input: is the score near zero there, do they carry a signal, does the answer depend on them?

    >>> def model(x):  # two classes; a black image is undecided, a white one is sure of the second
    ...     return torch.stack([0 * x.mean((1, 2, 3)), 8 * x.mean((1, 2, 3))], 1)
    >>> found = diagnose(model, torch.full((1, 1, 4, 4), 0.5), ["black", "white"])
    >>> found.recommended, found["white"].verdict
    ('black', 'score is high, own signal')

    Args:
        model: an ``nn.Module`` in eval mode, or any callable, as in :func:`integrand.integrated_gradients`.
        x: one input, with or without a batch dimension.
        candidates: baselines by name: whatever ``integrated_gradients`` takes as a baseline, or the name of a constructor;
            or a list of such names (``black``, ``white``, ``mean``, ``blurred``, ``uniform``, ``gaussian``, ``zero``). The
            order is that of preference. None means all that make sense for x, in that order.
        target: the output to explain; None means the only output, else the top class of x. A function from the output to
            one score per example is taken as it is, whatever ``score`` says.
        score: logit, probability or log-probability. What a baseline sees is judged by softmax over the outputs in any case
            (sigmoid for a single output, but not with ``logit``).
        tol: the relative L1 error to integrate to.
        low: black in the space of x: a number, one per channel, or a tensor that broadcasts to x.
        high: white in the space of x, given in the same way.
        draws: how many baselines to draw, of noise and from functions.
        seed: the seed of the noise.
        classes: names of the classes: a sequence, or a function from the number of a class to its name.
        layer: explain the value of a submodule instead of x.
        layer_side: whether to explain the output of the layer or its input.
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        batched: whether the first dimension of x counts examples.
        groups: integer labels in the structure of one example; attributions are then added up by group, such as the words of
            a sentence.
        max_evaluations: gradient evaluations that each candidate may take.
        memory: bytes that the run may hold.
        chunk: rows to run at a time.
        progress: a bar or a callback, candidate by candidate.

    Returns:
        A table to print, a recommendation in words, and pictures: see :class:`Diagnosis`.
    """
    options = EngineOptions.make(
        tol=tol, max_evaluations=max_evaluations, memory=memory, chunk=chunk, draws=draws, progress=progress
    )
    own = callable(target) and not isinstance(target, Tensor)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
    with undisturbed(model, differentiable=False):
        function = build(model, x, target=target, score="logit" if own else score, **call)
        if function.examples != 1:
            raise InputError(
                f"got {function.examples} examples; expected one, since what is a good baseline differs from input to input. "
                "Ask about each: [diagnose(model, x[i : i + 1]) for i in range(len(x))]."
            )
        asked = asked_for(candidates, x, function, Builtins(x, low, high, draws, seed, function.batched))
        found, failures = _measured(asked, function, options, draws, groups)
        return _judged(found, failures, function, x, (low, high), _names(classes))


@dataclass(frozen=True)
class MeasuredBaseline:
    """What was measured of one candidate: its starting points, what the model sees there, and the attribution from it."""

    starts: list[Leaves]
    signal: Signal | None
    attribution: Attribution


def regions(attribution: Attribution) -> Floats:
    """An attribution as a flat array to rank: sums over at most 14 x 14 regions of an image, all numbers of anything else."""
    leaves = [leaf.detach().double().cpu() for leaf in flatten(attribution.values, what="values")[1]]
    leaves = leaves if not attribution.batched else [leaf[0] for leaf in leaves]
    if len(leaves) > 1 or leaves[0].ndim != 3:
        return torch.cat([leaf.reshape(-1) for leaf in leaves]).numpy()
    total = leaves[0].sum(0).numpy()
    for axis in (0, 1):
        size = total.shape[axis]
        edges = np.unique(np.linspace(0, size, min(size, MOST_REGIONS) + 1).astype(int)[:-1])
        total = np.add.reduceat(total, edges, axis=axis)
    return np.asarray(total.reshape(-1), float)


@dataclass(frozen=True)
class Builtins:
    """The constructors of baselines by name, for one input; called with a name, it makes that baseline."""

    x: Tensors
    low: Values
    high: Values
    draws: int
    seed: int
    batched: bool

    def __call__(self, name: str) -> Baseline:
        """Make the baseline of a name."""
        noise: dict[str, Any] = {"draws": self.draws, "seed": self.seed, "batched": self.batched}
        makers: dict[str, Callable[[], Baseline]] = {
            "zero": lambda: 0.0,
            "black": lambda: black(self.x, self.low),
            "white": lambda: white(self.x, self.high),
            "mean": lambda: mean(self.x),
            "blurred": lambda: blurred(self.x),
            "uniform": lambda: uniform(self.x, self.low, self.high, **noise),
            "gaussian": lambda: self._gaussian(noise),
        }
        if name not in makers:
            raise OptionError(
                f"got the candidate {name!r}; expected one of {', '.join(makers)}, or a dict of baselines by name."
            )
        return makers[name]()

    def _gaussian(self, noise: dict[str, Any]) -> Tensors:
        """Gaussian noise around the middle of the range from ``low`` to ``high``, with a quarter of it as deviation."""
        if not isinstance(self.x, Tensor):
            ends = [float(end) for end in (self.low, self.high)]  # type: ignore[arg-type]
            return gaussian(self.x, (ends[1] - ends[0]) / 4, around=sum(ends) / 2, low=ends[0], high=ends[1], **noise)
        least, most = (filled_like(end, self.x.detach(), "low and high") for end in (self.low, self.high))
        return gaussian(self.x, (most - least) / 4, around=(least + most) / 2, low=least, high=most, **noise)


def asked_for(candidates: Candidates, x: Tensors, function: TorchFunction, make: Builtins) -> dict[str, Callable[[], Baseline]]:
    """Functions that make each candidate, by name: made one at a time, so that a failing one does not stop the others."""
    leaves = flatten(x)[1]
    image = len(leaves) == 1 and leaves[0].ndim == 3 + function.batched
    if candidates is None:
        candidates = FOR_IMAGES if image else ("zero", "uniform", "gaussian")
    if isinstance(candidates, str):
        candidates = [candidates]
    if not isinstance(candidates, Mapping):
        candidates = {name: name for name in candidates}
    if not candidates:
        raise OptionError("got no candidates; expected at least one, or None for the usual ones.")

    def maker(given: Any) -> Callable[[], Baseline]:
        return (lambda: make(given)) if isinstance(given, str) else (lambda: given)

    return {str(name): maker(given) for name, given in candidates.items()}


def recommend(rows: Sequence[DiagnosisRow]) -> DiagnosisRow:
    """The candidate to take: the first neutral one, else the one closest to neutral."""
    return next((row for row in rows if row.neutral), min(rows, key=lambda row: row.charge))


def advise(rows: Sequence[DiagnosisRow], agreements: Floats, here: float, names: Callable[[int], str], *, images: bool) -> str:
    """The recommendation in words.

    Args:
        rows: what was found about each candidate.
        agreements: rank correlations between their attributions, (rows, rows).
        here: the probability of the explained class at x; NaN where it is not known.
        names: from the number of a class to its name.
        images: whether the input is an image, for which there are further candidates to suggest.
    """
    best = recommend(rows)
    neutral = [row for row in rows if row.neutral]
    if best.neutral:
        only = f"the only one of {len(rows)} candidates" if len(neutral) == 1 else f"the first of {len(neutral)} candidates"
        only = "" if len(rows) == 1 else f" It is {only} that {'is' if len(neutral) == 1 else 'are'} neutral."
        said = [f"Take {best.name}: {_found_at(best, here, names)}.{only}"]
        rejected = [f"{row.name} ({_against(row, names)})" for row in rows if not row.neutral]
        said += [f"Not neutral: {'; '.join(rejected)}."] if rejected else []
    else:
        said = _no_neutral_candidate(rows, best, here, names, images=images)
    said.append(_dependence(rows, agreements, neutral, "regions" if images else "features"))
    missed = [row.name for row in rows if not row.certificate.converged]
    said += [f"The tolerance was not met from {_listed(missed)}: look at the errors first."] if missed else []
    return " ".join(filter(None, said))


def _measured(
    asked: Mapping[str, Callable[[], Baseline]], function: TorchFunction, options: Any, draws: int, groups: Tensors | None
) -> tuple[dict[str, MeasuredBaseline], dict[str, str]]:
    """Measure every candidate; those that cannot be used are returned by name with their error message."""
    found, failures = {}, {}
    last: IntegrandError | None = None
    for name, make in asked.items():
        try:
            starts = resolve_baselines(make(), function, draws)
            pieces = [segment(start, function.inputs, 1 / len(starts)) for start in starts]
            meta = {"method": f"integrated gradients from {name}", "baselines": str(len(starts))}
            with quiet(ConvergenceWarning, ZeroAttributionWarning):  # the table says both, for every candidate
                attribution = attribute(function, pieces, options, None, groups, meta, promised())
            found[name] = MeasuredBaseline(starts, _signal(function, starts), attribution)
        except OptionError:
            raise
        except IntegrandError as error:
            failures[name], last = str(error), error
    if last is not None and not found:
        raise last
    return found, failures


def _signal(function: TorchFunction, starts: Sequence[Leaves]) -> Signal | None:
    """The classes that the model sees at starting points of the one example; None where it has no classes."""
    side = None
    if not function.scorer.index and function.scorer.score != "logit":
        side = int(scores_again(function)[0] >= (0.5 if function.scorer.score == "probability" else math.log(0.5)))

    def seen(start: Leaves) -> tuple[Floats, int | None] | None:
        return all_rows(lambda rows: class_probabilities(function, start, rows), 1, function.inputs[0].device)[0]

    return signal_of([seen(start) for start in starts], side=side)


def _judged(
    found: Mapping[str, MeasuredBaseline],
    failures: Mapping[str, str],
    function: TorchFunction,
    x: Tensors,
    ends: tuple[Values, Values],
    names: Callable[[int], str],
) -> Diagnosis:
    """The diagnosis of measured candidates: one row each, the recommendation, and the advice."""
    at_x = _signal(function, [function.inputs])
    here = math.nan if at_x is None else at_x.probability
    agreements = rank_correlations(np.stack([regions(one.attribution) for one in found.values()]))
    rows = []
    for i, (name, one) in enumerate(found.items()):
        others = np.delete(agreements[i], i)
        known = others[~np.isnan(others)]
        rows.append(_row(name, one, at_x, function, float(known.mean()) if len(known) else math.nan))
    first = next(iter(found.values())).attribution
    leaves = flatten(first.values, what="values")[1]
    images = len(leaves) == 1 and leaves[0].ndim == 3 + first.batched
    certificate = first.certificate[0]
    return Diagnosis(
        rows=tuple(rows),
        recommended=recommend(rows).name,
        advice=advise(rows, agreements, here, names, images=images),
        score=certificate.score,
        target=certificate.target,
        probability=here,
        chance=math.nan if at_x is None else at_x.chance,
        agreements=agreements,
        x=x,
        low=ends[0],
        high=ends[1],
        names=names,
        failures=failures,
        meta={key: text for key, text in first.meta.items() if key not in ("method", "baselines")},
    )


def _row(name: str, one: MeasuredBaseline, at_x: Signal | None, function: TorchFunction, agreement: float) -> DiagnosisRow:
    certificate, signal = one.attribution.certificate[0], one.signal
    start = one.starts[0] if function.batched else tuple(leaf[0] for leaf in one.starts[0])
    base, here = certificate.baseline_score, certificate.score
    # Where no probability of the explained output is known, the paper's "near zero" can only be measured beside F(x).
    ahead = abs(base) / abs(here) if here else (0.0 if base == 0 else math.inf)
    if signal is not None and at_x is not None and not math.isnan(signal.probability):
        ahead = head_start(signal.probability, at_x.probability, signal.chance)
    profile = one.attribution.profile
    classes = signal or Signal(math.nan, 0, math.nan, math.nan, 2)
    return DiagnosisRow(
        name=name,
        baseline=function.tree.build(start),
        draws=len(one.starts),
        score=base,
        probability=classes.probability,
        head_start=ahead,
        top=None if signal is None else signal.top,
        confidence=classes.confidence,
        entropy=classes.entropy,
        signal=0.0 if signal is None or at_x is None else own_signal(signal.certainty, at_x.certainty),
        early=0.0 if profile is None else float(early_shares(profile)[0]),
        agreement=agreement,
        attribution=one.attribution,
    )


def _names(classes: Sequence[str] | Callable[[int], str] | None) -> Callable[[int], str]:
    if classes is None:
        return "class {}".format
    return classes if callable(classes) else lambda index: str(classes[index])


def _found_at(row: DiagnosisRow, here: float, names: Callable[[int], str]) -> str:
    """The score at a baseline and the class that the model sees there, in words."""
    if math.isnan(row.probability):
        share = "" if math.isnan(row.share) else f", {percent(row.share)} of F(x)"
        scored = f"the score there is {row.score:.2g}{share}"
    else:
        scored = f"the explained class has probability {row.probability:.2g} there and {here:.2g} at x"
    if row.top is None:
        return scored
    top = f"its top class, {names(row.top)}, has {row.confidence:.2g}"
    return f"{scored}, and the model is {share_of(row.signal)} as sure of its answer there as at x ({top})"


def _against(row: DiagnosisRow, names: Callable[[int], str]) -> str:
    """What speaks against a candidate, in words."""
    if row.empty:
        return "every attribution is zero: the score does not change from there to x"
    reasons = []
    if not row.near_zero:
        what = f"the score there is {row.score:.2g}, {percent(row.share)} of F(x)"
        reasons.append(what if math.isnan(row.probability) else f"the explained probability there is {row.probability:.2g}")
    if row.speaks and row.top is not None and (row.near_zero or row.confidence > row.probability + 1e-3):
        top = f"the model sees {names(row.top)} in it, with probability {row.confidence:.2g}"
        reasons.append(f"{top}, and is {share_of(row.signal)} as sure of its answer as at x")
    reasons += [description(row.early)] if row.sudden else []
    return " and ".join(reasons)


def _no_neutral_candidate(
    rows: Sequence[DiagnosisRow], best: DiagnosisRow, here: float, names: Callable[[int], str], *, images: bool
) -> list[str]:
    """The advice where no candidate is neutral, as sentences."""
    said = [f"No candidate is neutral: {'; '.join(f'{row.name}: {_against(row, names)}' for row in rows)}."]
    if best.empty:
        return [*said, "Choose baselines that differ from x."]
    closest = f"{best.name} comes closest" if len(rows) > 1 else ""
    if not math.isnan(best.probability) and best.head_start > HIGH_HEAD_START:
        closest += f"{', but ' if closest else ''}attributions from it explain only the change from {best.probability:.2g} "
        closest += f"to {here:.2g}, not what makes the class"
    said += [f"{closest[0].upper()}{closest[1:]}."] if closest else []
    left = [name for name in FOR_IMAGES if images and name not in {row.name for row in rows}]
    left += ["an average such as [black(x), white(x)]"] if images else []
    left += ["the mean embedding", "a real text"] if not images and any(row.sudden for row in rows) else []
    others = "".join(f"{one}, " for one in left) + ("or " if left else "")
    return [*said, f"Try {others}draws of the training set (integrand.baselines.drawn)."]


def _dependence(rows: Sequence[DiagnosisRow], agreements: Floats, neutral: Sequence[DiagnosisRow], parts: str) -> str:
    """Whether the answer depends on the choice among the neutral candidates, or else among all, in words."""
    chosen = [i for i, row in enumerate(rows) if not row.empty and (row.neutral or not neutral)]
    pairs = [(float(agreements[i, j]), i, j) for k, i in enumerate(chosen) for j in chosen[k + 1 :]]
    pairs = [pair for pair in pairs if not np.isnan(pair[0])]
    if not pairs:
        return ""
    whose = "neutral candidates" if neutral else "candidates"
    lowest, i, j = min(pairs)
    if lowest >= ALIKE:
        return (
            f"The answer does not depend on the choice: the {whose} rank the {parts} of x alike (rank correlations from "
            f"{lowest:.2f} on)."
        )
    both = f"{rows[i].name} and {rows[j].name} rank the {parts} of x"
    if lowest >= APART:
        return f"The answer depends on the choice to some extent: {both} somewhat differently (rank correlation {lowest:.2f})."
    average = f"average the neutral ones ({_listed([rows[k].name for k in chosen])})" if neutral else "average several"
    return (
        f"The answer depends on the choice: {both} differently (rank correlation {lowest:.2f}). Say with the picture which "
        f"baseline it is from, or {average}: those in a list average."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
