"""Integrated gradients of piecewise linear scores: one gradient for each linear region of the path, and no quadrature error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import CurveCertificate, ExampleCertificate, Status
from ..errors import IntegrandError
from ..evaluation.checks import noise, score_rounding
from ..evaluation.evaluator import Evaluated, Evaluator, has_float64
from ..functions.target import Scorer
from ..paths.base import Nodes
from ..trees import add_rows, flat, on_device
from .certify import Decision, path_ends, relative, visible
from .region_lines import Finder, LinearRegions
from .region_network import NotExactError, Refusal, whole

EXACT = {"cpu": 48}
"""Gradients on a line, should the error fall with their number, from which on its linear regions are looked for; elsewhere
:data:`EXACT_LATE`."""

EXACT_LATE = 512
"""On a GPU gradients cost little beside following the model's operations one by one."""

SAVES = 12
"""Refinement takes down to a third of the gradients that it would if its error fell with their number, and a region takes as
long as up to six gradients (convolutions in float32; its break points are found in float64)."""

FEW = 64
"""As many regions on a line cost little in any case, and leave no doubt."""

SPARSE = 8
"""At least one in so many numbers that autograd saves is expected to have a kink on the line: in networks that were trained on
digits it is every fourth or fifth. Looking for more regions than are worth it would be for nothing."""


def integrate_regions(
    evaluator: Evaluator, tol: float, limit: int, memory: int | None, steps: Sequence[Decision]
) -> tuple[dict[int, Exact], set[int]]:
    """Integrate those of some unfinished examples with kinks that are piecewise linear along few regions.

    Their panels stay: an example that is refused here is refined on.

    Args:
        evaluator: knows the paths, and counts.
        tol: the tolerance.
        limit: gradients that one example may take.
        memory: the user's limit in bytes.
        steps: what the last refinement round says of the examples.

    Returns:
        What was found, and all examples that were tried.
    """
    budget = {step.one.example: _regions_worth(evaluator, tol, limit, step) for step in steps}
    budget = {example: regions for example, regions in budget.items() if regions}
    if not budget:
        return {}, set()
    floors = {step.one.example: step.one.floor for step in steps}
    try:
        tried = integrate_exactly(evaluator, tol, budget=budget, memory=memory)
    except (IntegrandError, RuntimeError, MemoryError):  # refinement can do without, or says it in the model's own words
        tried = {}
    found = {example: one for example, one in tried.items() if isinstance(one, Exact)}
    # Where it is doubtful to more than the tolerance which region a gradient belongs to, refinement may still find out;
    # where rounding alone exceeds the tolerance, it cannot.
    claimed = {step.one.example for step in steps if step.status is Status.CONVERGED}
    good = {
        e: one
        for e, one in found.items()
        if one.certificate.converged or (e not in claimed and (one.undecided or _exceeds(floors[e], one.certificate)))
    }
    return good, set(budget)


def _exceeds(floor: float, certificate: ExampleCertificate) -> bool:
    """Whether rounding, an absolute error, exceeds the tolerance of a certificate."""
    return bool(floor > certificate.tol * certificate.magnitude)


def _regions_worth(evaluator: Evaluator, tol: float, limit: int, step: Decision) -> int:
    """How many linear regions an example may have for exact integration to take less time; 0 where it is not tried."""
    one, found = step.one, step.found
    lines, spent = len(evaluator.pieces), int(evaluator.gradients[one.example])
    numbers = evaluator.chunks.row_bytes // evaluator.dtype.itemsize
    if step.status is Status.CONVERGED:  # nothing is saved, but a claim that few kinks stand behind is made sure of
        return min(FEW, (limit - spent) // 2) if lines * numbers <= SPARSE * FEW else 0
    goal = max(tol * found.size, one.floor)
    # At kinks every rule is of first order, whatever the plan hopes for from Simpson's.
    refined = spent * found.error / goal if goal > 0 else math.inf
    if refined < lines * EXACT.get(evaluator.device.type, EXACT_LATE):
        return 0
    budget = int(min(max(refined / SAVES, lines * FEW), (limit - spent) / 2))
    return budget if lines * numbers <= SPARSE * budget else 0


MEMORY = 256 << 20
"""Bytes for the values of a network at break points, where the user names no limit."""

SLACK = 1000.0
"""Roundings by which the model and its operations may differ: what they do differently is far more."""

DOUBTFUL = 32.0
"""How many times more than is usual a region misses whose gradient is not to be believed."""

EDGE = 1e-6
"""How far inside a region's ends that is, as a share of its width."""

COARSEST = 1e-6
"""Rounding beyond which a model cannot be compared with its operations: half precision."""


@dataclass(frozen=True)
class Exact:
    """An example whose integral has no quadrature error.

    Attributes:
        values: (features,) in float64.
        certificate: how large rounding is.
        regions: how many linear regions its paths cross.
        nodes: where the gradients were taken.
        weights: (nodes,) their weights. Empty, like the nodes, for probabilities, where what is added up are no gradients of
            the score.
        undecided: whether rounding decides, over more than the tolerance, on which side of its kink a unit is: gradients in
            that precision are not to be had.
    """

    values: Tensor
    certificate: ExampleCertificate
    regions: int
    nodes: Nodes
    weights: Floats
    undecided: bool = False


def integrate_exactly(
    evaluator: Evaluator, tol: float, *, budget: int | Mapping[int, int], memory: int | None = None
) -> dict[int, Exact | Refusal]:
    """Integrate the examples whose scores are piecewise linear along their straight paths.

    Scores may also be probabilities, or their logarithms, of piecewise linear outputs: these are integrated along each region
    by a rule that is exact to rounding and does not run the model.

    Args:
        evaluator: evaluates gradients; forward and gradient evaluations are counted there, those of refusals too.
        tol: the tolerance for the certificate; rounding may exceed it.
        budget: how many linear regions, each of which takes a gradient, an example's paths may cross; a number for all, or
            one for each example that is to be integrated.
        memory: the user's limit in bytes.

    Returns:
        For each example its integral, or why there is none.
    """
    if isinstance(budget, int):
        budget = dict.fromkeys(range(evaluator.function.examples), budget)
    reason = _impossible(evaluator)
    if reason:
        return {example: Refusal(reason) for example in budget}
    try:
        finder = Finder(evaluator, budget, MEMORY if memory is None else min(MEMORY, memory // 3))
    except NotExactError as error:
        return {example: Refusal(str(error)) for example in budget}
    found, refused = finder.find(list(budget))
    out: dict[int, Exact | Refusal] = {example: Refusal(why) for example, why in refused.items()}
    return out | _RegionSum(evaluator, tol, found).results() if found else out


def _impossible(evaluator: Evaluator) -> str:
    """Why no example can be integrated exactly ('' where some may)."""
    if not all(piece.straight for piece in evaluator.pieces):
        return "the path is not made of straight lines"
    if evaluator.epsilon > COARSEST:
        return f"gradients in {evaluator.precision} are too coarse to be checked region by region"
    if not has_float64(evaluator.device):
        return f"break points need float64, which {evaluator.device} does not have"
    if evaluator.function.scorer.read is not None:
        return "every example reads the output in a way of its own"
    return ""


@dataclass(frozen=True)
class Seeded(Scorer):
    """The outputs times given seeds, added up.

    Attributes:
        seeds: (N, ...), for the rows that the model is run on.
    """

    seeds: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __call__(self, outputs: Sequence[object], rows: Tensor) -> Tensor:
        """One number per row."""
        found = whole(outputs, batched=self.batched)
        return (found * self.seeds.to(found.dtype)).flatten(1).sum(1)


class _RegionSum:
    """Adds up width times gradient, and compares region by region."""

    def __init__(self, evaluator: Evaluator, tol: float, found: Sequence[LinearRegions]) -> None:
        self.evaluator, self.tol, self.found = evaluator, tol, found
        self.examples = list(dict.fromkeys(one.example for one in found))
        parts = [one.nodes for one in found]
        self.nodes = Nodes(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("t", "rows", "pieces")))
        self.first = np.cumsum([0, *map(len, parts)])
        count = len(self.nodes)
        self.scores, self.slopes, self.mass = np.zeros(count), np.zeros(count), np.zeros(count)
        self.values = torch.zeros(len(self.examples), evaluator.features, dtype=torch.float64, device=evaluator.device)
        self.kept: dict[int, Tensor] = {}
        self.noise = dict.fromkeys(self.examples, 0.0)

    def results(self) -> dict[int, Exact | Refusal]:
        """Evaluate, add up and judge."""
        weights, twice = np.zeros(len(self.nodes)), set()
        for one, first in zip(self.found, self.first, strict=False):
            weights[first : first + len(one)] = np.diff(one.t) * self.evaluator.pieces[one.piece].weight
            twice |= {int(first + r) for r in one.looks} | {int(first + len(one) + i) for i in range(len(one.looks))}
        place = {example: i for i, example in enumerate(self.examples)}
        for done in self._evaluated():
            terms = done.terms.double()
            self.scores[done.index], self.slopes[done.index] = done.scores, done.slopes
            self.mass[done.index] = terms.abs().sum(1).cpu().numpy()
            rows = on_device([place[int(e)] for e in self.nodes.rows[done.index]], terms.device)
            add_rows(self.values, rows, terms * on_device(weights[done.index], terms.device)[:, None])
            self.kept |= {int(k): terms[i] for i, k in enumerate(done.index) if int(k) in twice}
        if self.tol < 1e4 * self.evaluator.epsilon:
            rounding = noise(self.evaluator, np.array(self.examples))[0].tolist()
            self.noise = dict(zip(self.examples, rounding, strict=True))
        return {example: self._judged(example, self.values[place[example]], weights) for example in self.examples}

    def _evaluated(self) -> Iterator[Evaluated]:
        if self.found[0].seeds is None:
            return self.evaluator.gradients_at(self.nodes)
        return self._seeded()

    def _seeded(self) -> Iterator[Evaluated]:
        """Gradients of the outputs times the seeds."""
        evaluator, scorer = self.evaluator, self.evaluator.function.scorer
        every = torch.cat([part for one in self.found if one.seeds is not None for part in (one.seeds, one.seeds[one.looks])])
        along = np.concatenate([one.along for one in self.found])

        def evaluate(index: Ints, here: Nodes) -> Evaluated:
            leaves, velocities = evaluator.points(here)
            seeds = every[on_device(index.copy(), every.device)]
            own = Seeded(scorer.examples, scorer.batched, "logit", (), None, scorer.words, seeds=seeds)
            rows = on_device(here.rows, evaluator.device)
            with evaluator.chunks.measuring(len(here)):
                scores, gradients = replace(evaluator.function, scorer=own).value_and_grad(leaves, rows)
            terms = evaluator.added(flat(gradients).to(evaluator.dtype) * flat(velocities))
            evaluator.note_terms(here, along[index], terms)
            return Evaluated(index, scores.double().cpu().numpy(), terms.double().sum(1).cpu().numpy(), terms)

        for done in evaluator.in_chunks(self.nodes, evaluate):
            np.add.at(evaluator.gradients, self.nodes.rows[done.index], 1)
            yield done

    def _judged(self, example: int, values: Tensor, weights: Floats) -> Exact | Refusal:
        mine = [(one, int(first)) for one, first in zip(self.found, self.first, strict=False) if one.example == example]
        regions = sum(len(one) for one, _ in mine)
        try:
            checks = [self._check(one, first) for one, first in mine]
        except NotExactError as error:
            return Refusal(str(error))
        curves = [self._curve(one, first, missing, values) for (one, first), missing in zip(mine, checks, strict=True)]
        certificate = self._certificate(example, values, curves, regions)
        for one, first in mine:
            self._show_kinks(one, first)
        chosen = np.concatenate([np.arange(first, first + len(one)) for one, first in mine])
        chosen = chosen if mine[0][0].seeds is None else chosen[:0]
        unsure = sum(
            float(weights[first : first + len(one)] @ (self.mass[first : first + len(one)] * one.unsure)) for one, first in mine
        )
        undecided = unsure > self.tol * certificate.magnitude
        return Exact(values, certificate, regions, self.nodes[chosen], weights[chosen], undecided)

    def _show_kinks(self, one: LinearRegions, first: int) -> None:
        """Tell the profile where slopes change: just inside a region's ends they are what they are in its middle."""
        if one.seeds is not None:
            return  # only their means over regions are known
        inside = EDGE * np.diff(one.t)
        t = np.concatenate([one.t[:-1] + inside, one.t[1:] - inside])
        scores = np.concatenate([one.scores[:-1], one.scores[1:]])
        slopes, mass = (np.tile(part[first : first + len(one)], 2) for part in (self.slopes, self.mass))
        self.evaluator.note_known(Nodes(t, np.full(len(t), one.example), np.full(len(t), one.piece)), scores, slopes, mass)

    def _check(self, one: LinearRegions, first: int) -> Floats:
        """What each region misses of the score's change, (R,); raises where that, or anything else, is not rounding."""
        part, slack = slice(first, first + len(one)), SLACK * self.evaluator.epsilon
        scale = max(float(self.evaluator.function.scale[one.example]), float(np.abs(one.scores).max()))
        width = np.diff(one.t)
        off = np.abs(self.scores[part] - one.expected)
        missing = width * self.slopes[part] - np.diff(one.scores)
        agree = off <= slack * (scale + one.sizes)
        agree &= np.abs(missing) <= slack * (scale + width * self.mass[part])
        wrong = np.flatnonzero(~agree)  # also where something is not a number
        most = np.maximum(off, np.abs(missing))[wrong]
        if len(wrong) and not most.max() <= 100 * score_rounding(self.evaluator.function)[one.example]:
            at = self.nodes.t[first + wrong[0]]
            raise NotExactError(
                f"the score is not linear around t = {at:.6g} of the path as its operations say: it jumps, its gradient is not "
                "its derivative, or the model does something else there than at x"
            )
        for i, region in enumerate(one.looks):
            here, there = self.kept[first + int(region)], self.kept[first + len(one) + i]
            if float((here - there).abs().sum()) > slack * float(self.mass[first + region] + scale):
                raise NotExactError(
                    f"the gradient changes around t = {self.nodes.t[first + region]:.6g}, where no kink was found"
                )
        return np.asarray(missing)

    def _curve(self, one: LinearRegions, first: int, missing: Floats, values: Tensor) -> CurveCertificate:
        """What is known of one line, with what rounding does to it (absolute L1) for its error."""
        mass = np.diff(one.t) * self.mass[first : first + len(one)]
        doubtful = _doubtful(missing, mass, np.abs(one.scores).max(), self.evaluator.epsilon) | one.unsure
        # Rounding errors of either sign: their sum over N features is 1 / sqrt(N) of the sum of their sizes.
        norm, square = float(values.abs().sum()), float(values.square().sum())
        features = norm**2 / square if square > 0 else 1.0
        error = features**0.5 * np.abs(missing[~doubtful]).sum() + 2 * mass[doubtful].sum()
        share = float(self.evaluator.pieces[one.piece].weight)
        ends = (float(one.scores[0]), float(one.scores[-1]))
        error += 4 * self.evaluator.epsilon * mass.sum()
        return CurveCertificate(share, *ends, float(missing.sum()), float(error), len(one))

    def _variation(self, example: int) -> float:
        """What the score moves by along the paths of an example, up and down."""
        mine = [one for one in self.found if one.example == example]
        return float(sum(self.evaluator.pieces[one.piece].weight * np.abs(np.diff(one.scores)).sum() for one in mine))

    def _certificate(self, example: int, values: Tensor, curves: list[CurveCertificate], regions: int) -> ExampleCertificate:
        shares, starts, stops = (np.array([getattr(c, n) for c in curves]) for n in ("weight", "start_score", "end_score"))
        start, stop = path_ends(shares, starts, stops)
        size = float(values.abs().sum())
        error = max(float(shares @ np.array([curve.error for curve in curves])), self.noise[example])
        error = relative(error, size) if size > 0 else 0.0
        return self.evaluator.certificate(
            example,
            self.tol,
            score=float(stop),
            baseline_score=float(start),
            residual=float(shares @ np.array([curve.residual for curve in curves])),
            magnitude=size,
            error=error,
            status=Status.EXACT if error <= self.tol else Status.NOISE,
            rule="linear regions",
            visible=visible(self._variation(example), size),
            curves=tuple(replace(c, error=relative(c.error, size)) for c in curves) if len(curves) > 1 else (),
            note=f"{regions} linear region" + ("" if regions == 1 else "s"),
        )


def _doubtful(missing: Floats, mass: Floats, scale: float, epsilon: float) -> NDArray[np.bool_]:
    """The regions, (R,), whose gradient seems to be another one's: they miss far more of the score than is usual.

    Where the line hardly moves across a unit's kink, the unit may be on its other side in the model's own precision. That
    shows little in the score, which hardly changes there, but more in the features.
    """
    usual = np.median(np.abs(missing) / np.where(mass > 0, mass, 1.0))
    floor = 4 * np.finfo(np.float64).eps * scale  # of the scores at the break points
    return np.asarray(np.abs(missing) > DOUBTFUL * (max(usual, epsilon) * mass + floor))
