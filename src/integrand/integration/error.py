"""How far off an example is after a refinement round: the best rule, its error estimate, and whether a claim stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..evaluation.evaluator import Evaluated
from ..paths.base import Nodes
from ..quadrature.panel_rules import (
    ROUNDINGS,
    SCORE_ROUNDINGS,
    cell_weights,
    estimate,
    independent,
    interpolation,
    norms_of,
    raising,
    swing,
)
from ..trees import on_device
from .mesh import GroupedPanels, Mesh
from .unseen import UnseenChange

FIRST = 4.0
"""What an estimate from one or two panels is multiplied by, which are little to judge by: unless it is broad."""

BROAD, FEATURES = 64.0, 256
"""Features, of at least so many, that a nested difference must be spread over (its effective number) for claims below 17 nodes:
they tell of each other's errors. What is made to hide something has few."""

HIGHEST = 9
"""The most halvings of a path that its extrapolation is used for (513 nodes)."""

AT_ONCE = 32
"""Nodes of each example that the extrapolation weighs at a time."""

STENCIL = 9
"""Nodes by which the score's change from one node to the next is told, where slopes are taken to be smooth."""

ALL_KINKS = 0.5
"""The last candidate's nested difference over the first one's, from which on gradients have kinks and nothing else."""

BY_CHANCE = 0.5
"""Over the first candidate's error: down to this, another one's is smaller by chance, where gradients have kinks and nothing
else. A rule of higher order is no better there, so that the smaller one of two estimates would be too small."""

MANY = 256
"""Panels, at the most, whose differences are compared with each other."""


FEWEST = 17
"""Nodes on an example's paths below which nothing is claimed but by broad estimates: two panels are little to judge by."""

PLACES = np.modf(1 / np.pi + np.arange(256) * math.sqrt(2))[0]
"""Where claims are looked at: far from all fractions with small denominators, and spread evenly however many are used."""

ENDS_FIRST = PLACES[np.r_[2, 23, 0, 1, 3:23, 24:256]]
"""The same where claims may rest on few nodes: first those near the ends, 0.147 and 0.845, where a polynomial is worst."""

FEW_NODES = 65
"""Nodes on a path up to which any claim is looked at; from then on only those that rest on few independent differences."""

ENOUGH_LOOKS = 64.0
"""Independent differences that no oscillation, and no bump between the nodes, hides from."""

EASY = 0.02
"""Of the tolerance: an error so far below it has come without any effort, and may be that of a function nobody has seen."""

USUAL, THOROUGH, NOTHING = 2, 16, 48
"""Gradients off the grid: usually (twice as many where there are few looks); where a claim came easily, rests on the kinks of
few units, or comes after one that did not hold; where everything is zero."""

SCORES = 16
"""Scores off the grid, which cost a forward pass only, for claims that came easily."""

FEWEST_LOOKS = 8.0
"""Independent differences, or dimensions, below which a function may have kinks and waves that nobody has seen."""

SPARSELY = 16
"""Nodes for each gradient off the grid where there are many nodes, and differences spread over few dimensions."""

MISFIT = 1e-3
"""Of the attributions: what a gradient off the grid must be off by, at the least, to be believed over the estimate."""


ROOM = 0.9
"""Of an error: what rounding to half precision may take up before it is said to be too coarse."""


ELSEWHERE = 0.25
"""Of the attributions: what gradients without kinks are off by wherever one looks, if the nodes are in step with a wave."""


UNSEEN_SHARE = 0.1
"""Share of the attributions that moves the score along the path, below which the score is no witness of them."""

IN_STEP = 2.0
"""Dimensions that nested differences spread over, below which all features move in step; more of them tell of each other."""

MAX_NODES = 1024
"""Nodes of an example up to which its halves are moved: each node takes four forward passes."""


def may_be_broad(features: int, pieces: int) -> bool:
    """Whether estimates over so many features on a path of so many pieces may be told by many features at once."""
    return features >= FEATURES and pieces == 1


def places(features: int, pieces: int) -> Floats:
    """Where claims about so many features on a path of so many pieces are looked at, in this order."""
    return np.asarray(ENDS_FIRST if may_be_broad(features, pieces) else PLACES)


@dataclass
class OpenExample:
    """An unfinished example: what its refinement rounds have shown.

    Attributes:
        example: which one.
        rounds: how many rounds it has been through.
        level: log2 of the number of cells, where all panels are equally wide and their nodes at hand; None otherwise.
        history: the relative errors of the extrapolation, round by round.
        last_error: the absolute error after the round before.
        noise: what rounding does to the gradients, absolute L1, however many there are.
        node_noise: what it does to one gradient besides, which averages out over the nodes.
        floor: the error that rounding leaves in any case, absolute L1.
        looks: how many independent differences the estimate rests on.
        spread: the dimensions that these spread over.
        kinked: whether gradients have kinks everywhere.
        suspect: whether a claim of it was refuted between its nodes.
        broad: whether its nested differences are of smooth gradients, on a path of one piece, and spread over many features.
        half: whether the model computes in half precision, whose rounding is not small beside the tolerance.
        measured: whether the noise of half precision was measured against float32.
        allowance: what may be missed of a change of the score without that saying anything about the gradients.
        unseen: what the score does where no gradient flows, once that is known.
    """

    example: int
    rounds: int = 0
    level: int | None = None
    history: list[float] = field(default_factory=list)
    last_error: float = math.inf
    noise: float = 0.0
    node_noise: float = 0.0
    floor: float = 0.0
    looks: float = math.inf
    spread: float = math.inf
    kinked: bool = False
    suspect: bool = False
    broad: bool = False
    half: bool = False
    measured: bool = False
    allowance: float = 0.0
    unseen: UnseenChange | None = None

    @property
    def hidden(self) -> bool:
        """Whether the score is known to change where no gradient flows, so that attributions cannot add up to its change."""
        return self.unseen is not None and self.unseen.hidden

    @property
    def first_caution(self) -> float:
        """What an estimate is multiplied by at first."""
        return FIRST if self.rounds <= 0 and not self.broad else 1.0

    def precise_enough(self, goal: float) -> bool:
        """Whether rounding leaves room for an absolute error."""
        return self.floor <= (ROOM * goal if self.half else goal)

    def target(self, goal: float) -> float:
        """What an estimate has to come down to for an absolute error; to what rounding leaves, if that is more."""
        if not self.precise_enough(goal):
            return self.floor
        return math.sqrt(goal**2 - self.floor**2) if self.half else goal

    def with_rounding(self, error: float, *, met: bool) -> float:
        """An estimate with what rounding leaves, given whether the tolerance was met; the two are independent."""
        if not self.half:
            return max(error, self.floor)
        return math.hypot(error, self.floor) if met else error + self.floor


@dataclass(frozen=True)
class Estimate:
    """An example's best values after a refinement round, and how far off they are.

    Attributes:
        rule: the name of the rule that gave them.
        error: absolute L1 error estimate.
        size: L1 norm of the values.
        values: (features,) in float64.
        residual: sum of the values minus the change of the score.
        candidate: the better one of the panel rule's candidates, by which to refine.
        candidate_error: its error.
    """

    rule: str
    error: float
    size: float
    values: Tensor
    residual: float
    candidate: int
    candidate_error: float

    @property
    def extrapolated(self) -> bool:
        """Whether the values are those of the extrapolation over all panels."""
        return self.rule == "Romberg"


@dataclass(frozen=True)
class Extrapolated:
    """What the extrapolation over all equal panels gives for an example.

    Attributes:
        error: absolute, by the nested difference.
        size: L1 norm of the values.
        values: (features,) in float64.
        residual: sum of the values minus the change of the score.
        gaps: what smooth slopes miss of the score's change from node to node, the root of summed squares.
    """

    error: float
    size: float
    values: Tensor
    residual: float
    gaps: float


class ErrorEstimator:
    """Estimates the errors of all unfinished examples of a mesh.

    Args:
        mesh: the panels.
        shares: the weight of each piece, (pieces,).
    """

    def __init__(self, mesh: Mesh, shares: Floats) -> None:
        self.mesh, self.rule = mesh, mesh.rule
        self.shares = shares

    def estimates(self, active: list[OpenExample], groups: GroupedPanels) -> list[Estimate]:
        """One estimate per example, in order: that of the best candidate, or of the extrapolation if that is better."""
        examples = [one.example for one in active]
        mine = np.searchsorted(groups.examples, examples)
        pooled = self.mesh.pooled(examples, self.shares)
        sizes, roots = norms_of(pooled)
        smooth = self.mesh.evaluator.smooth
        looks = self._looks(active, groups, sizes[:, 0])
        allowances = np.array([one.allowance for one in active])
        errors, missing = [], []
        for i, candidate in enumerate(self.rule.candidates):
            squares, missed = (np.add.reduceat(part[i], groups.starts)[mine] for part in (groups.squares, groups.missing))
            counted = np.maximum(np.abs(missed) - allowances, 0.0)
            norms, squared = sizes[:, 2 * i + 1], roots[:, 2 * i + 1]
            errors.append(estimate(candidate, norms, squared, squares, counted, looks, smooth=smooth).tolist())
            missing.append(missed.tolist())
        out = []
        extrapolated = self._extrapolated(active, groups, mine)
        for k, one in enumerate(active):
            # Where two are as good as each other, rounding must not decide.
            best = min(range(len(errors)), key=lambda candidate: errors[candidate][k] * (1 + 1e-6 * candidate))
            if one.kinked and errors[best][k] > BY_CHANCE * errors[0][k]:
                best = 0
            one.broad = self._broad(float(sizes[k, 2 * best + 1]), float(roots[k, 2 * best + 1]))
            factor = one.first_caution
            error, size, name = errors[best][k] * factor, float(sizes[k, 2 * best]), self.rule.candidates[best].name
            found = Estimate(name, error, size, pooled[k, 2 * best], -missing[best][k], best, error)
            out.append(self._better(one, found, extrapolated.get(one.example), factor))
        return out

    def _broad(self, norm: float, root: float) -> bool:
        """Whether a nested difference with these L1 and L2 norms is of smooth gradients, and spread over many features."""
        evaluator = self.mesh.evaluator
        many = may_be_broad(evaluator.features, self.mesh.pieces) and norm**2 >= BROAD * root**2
        return evaluator.smooth and many

    def _looks(self, active: list[OpenExample], groups: GroupedPanels, sizes: Floats) -> Floats:
        """How many independent differences each estimate rests on, where gradients have kinks; without end elsewhere."""
        for one, size in zip(active, sizes, strict=True):
            panels = groups.panels[groups.parts[one.example]]
            smooth, rough = panels.norms[:, -1].sum(), panels.norms[:, 0].sum()
            noticeable = rough > ROUNDINGS * self.mesh.evaluator.epsilon * size
            # Bends look like kinks: where the model has none, many features are a better witness than many looks.
            none = self.mesh.evaluator.smooth and may_be_broad(self.mesh.evaluator.features, self.mesh.pieces)
            one.kinked = bool(not none and smooth > ALL_KINKS * rough and noticeable)
            if panels.sketch.size:
                some = np.unique(np.linspace(0, len(panels) - 1, MANY).astype(np.int64))
                count, one.spread = independent(panels.sketch[some].reshape(-1, panels.sketch.shape[-1]))
                one.looks = count * one.spread * len(panels) / len(some)
        return np.array([one.looks if one.kinked else math.inf for one in active])

    def _extrapolated(self, active: list[OpenExample], groups: GroupedPanels, mine: Ints) -> dict[int, Extrapolated]:
        """The extrapolation for examples without kinks whose panels are all equally wide, those of one level together."""
        if self.rule.extrapolation is None:
            return {}
        levels: dict[int, list[int]] = {}
        for one, k, level in zip(active, mine.tolist(), self._levels(groups)[mine].tolist(), strict=True):
            one.level = level if level <= HIGHEST else None
            if one.level is not None and not one.kinked:
                levels.setdefault(level, []).append(k)
        out: dict[int, Extrapolated] = {}
        for level, members in levels.items():
            rule = self.rule.extrapolation(level)
            assert rule.embedded is not None
            columns = np.stack([rule.weights, rule.weights - rule.embedded])
            each = columns.shape[1] * self.mesh.pieces * self.mesh.evaluator.features * 8
            for part in np.array_split(np.array(members), max(1, len(members) * each // max(1, self.mesh.block_bytes))):
                if len(part):
                    out |= self._extrapolate(groups, part, columns)
        return out

    def _levels(self, groups: GroupedPanels) -> Ints:
        """Log2 of the number of cells on each piece of each example whose panels are equal and at hand; else too many."""
        panels, starts = groups.panels, groups.starts
        width = np.minimum.reduceat(panels.width, starts)
        whole = (width == np.maximum.reduceat(panels.width, starts)) & (np.minimum.reduceat(panels.slots[:, 0], starts) >= 0)
        cells = np.rint(np.log2(self.rule.cells / width))
        return np.where(whole, cells, HIGHEST + 1).astype(np.int64)

    def _extrapolate(self, groups: GroupedPanels, members: Ints, columns: Floats) -> dict[int, Extrapolated]:
        """Weigh the nodes of some members of the groups, all of one level, with (2, nodes) weights."""
        panels, store, examples = groups.panels, self.mesh.store, groups.examples[members].tolist()
        index = groups.starts[members, None] + np.arange(self.mesh.pieces * (columns.shape[1] // self.rule.cells))
        order = np.lexsort((panels.start[index], panels.line[index]), axis=1)
        in_order = np.take_along_axis(index, order, 1).reshape(len(examples), self.mesh.pieces, -1)
        slots = panels.slots[in_order]
        nodes = np.concatenate([slots[..., :-1].reshape(*slots.shape[:2], -1), slots[:, :, -1, -1:]], 2)
        total = torch.zeros(len(examples), 2, store.features, dtype=torch.float64, device=store.device)
        for piece, share in enumerate(self.shares):
            for first in range(0, nodes.shape[2], AT_ONCE):
                part = slice(first, first + AT_ONCE)
                terms = store.rows(nodes[:, piece, part]).double()
                total += torch.matmul(on_device(share * columns[:, part], store.device), terms)
        given = (store.slopes[nodes] @ columns[0]) @ self.shares
        rise = (store.scores[nodes[..., -1]] - store.scores[nodes[..., 0]]) @ self.shares
        sizes, roots = norms_of(total)
        errors, gaps = sizes[:, 1] * raising(sizes[:, 1], roots[:, 1]), self._gaps(nodes)
        return {
            e: Extrapolated(float(errors[k]), float(sizes[k, 0]), total[k, 0], float(given[k] - rise[k]), float(gaps[k]))
            for k, e in enumerate(examples)
        }

    def _gaps(self, nodes: Ints) -> Floats:
        """What smooth slopes miss of the score's change from node to node, the root of summed squares, (examples,).

        Args:
            nodes: (examples, pieces, nodes) slots of nodes at equal distances.
        """
        cells, store = nodes.shape[2] - 1, self.mesh.store
        given = store.slopes[nodes] @ (cell_weights(cells, min(cells + 1, STENCIL)).T / cells)
        scores = store.scores[nodes]
        slack = SCORE_ROUNDINGS * self.mesh.evaluator.rounding * np.abs(scores).max(2, keepdims=True)
        missing = np.maximum(np.abs(np.diff(scores, axis=2) - given) - slack, 0.0)
        return np.asarray(np.sqrt(((missing * self.shares[:, None]) ** 2).sum((1, 2))))

    def _better(self, one: OpenExample, found: Estimate, other: Extrapolated | None, factor: float) -> Estimate:
        """The estimate of a candidate, or that of the extrapolation where it is better."""
        if other is None:
            return found
        error = max(other.error * factor, max(abs(other.residual), other.gaps) - one.allowance)
        one.history.append(error / other.size if other.size else 0.0)
        if error >= found.error:
            return found
        return Estimate("Romberg", error, other.size, other.values, other.residual, found.candidate, found.candidate_error)

    def doubling_pays(self, one: OpenExample, tol: float, halvings: int) -> bool:
        """Whether the extrapolation on twice as many nodes is expected to take less than a plan of so many halvings."""
        if one.level is None or one.level >= HIGHEST or len(one.history) < 2 or one.history[-2] == 0:
            return False
        ratio = one.history[-1] / one.history[-2]
        soon = one.history[-1] * ratio <= tol
        return ratio < 0.3 and (soon or ratio < 0.1) and 4 * halvings >= self.mesh.pieces * 2 ** (one.level - 1)


@dataclass(frozen=True)
class Claim:
    """That an example has converged.

    Attributes:
        one: the example.
        found: the estimate.
        index: which panels of the mesh are its own.
    """

    one: OpenExample
    found: Estimate
    index: Ints


@dataclass(frozen=True)
class Refutation:
    """A claim that does not hold.

    Attributes:
        error: the error, as far as it shows (absolute, L1).
        panels: which panels of the mesh to halve.
    """

    error: float
    panels: Ints


class ClaimTest:
    """Points between the nodes of what claims to have converged, and what the panels around them say about them.

    The gradient there is compared with what the nodes around it say it is, by straight lines or by a polynomial, whichever is
    closer; over the width of one cell, that must not be far above the error that is claimed. The score there must be the one
    that scores and slopes at these nodes say. Claims that rest on few nodes must meet more: over the whole path, polynomials
    through the nodes are within the tolerance of the gradients themselves.

    Args:
        mesh: the panels.
        shares: the weight of each piece, (pieces,).
        claims: the examples that claim to have converged.
        tol: the tolerance.

    Attributes:
        nodes: where gradients are to be looked at.
        scored: where scores are.
    """

    def __init__(self, mesh: Mesh, shares: Floats, claims: Sequence[Claim], tol: float) -> None:
        self.mesh, self.shares, self.claims, self.tol = mesh, shares, claims, tol
        self.cells = mesh.rule.cells
        wanted = [(0, 0) if self._too_few(claim) else self._wanted(claim) for claim in claims]
        gradients, pieces = sum(count for count, _ in wanted) * len(shares), len(shares)
        # Each piece elsewhere: several baselines may hide the same thing at the same place.
        every = places(mesh.evaluator.features, pieces)
        times = [np.roll(every, -p * count)[:count] for count, _ in wanted for p in range(pieces)]
        times += [np.roll(every, -count * pieces - p * more)[:more] for count, more in wanted for p in range(pieces)]
        owner = np.tile(np.repeat(np.arange(len(claims)), pieces), 2)
        line = np.array([p * mesh.examples + claim.one.example for claim in claims for p in range(pieces)] * 2, np.int64)
        counts = np.array([len(part) for part in times], np.int64)
        self.t, self.owner, self.line = np.concatenate([np.zeros(0), *times]), np.repeat(owner, counts), np.repeat(line, counts)
        self._place()
        all_nodes = Nodes(self.t, self.line % mesh.examples, self.line // mesh.examples)
        at_hand = np.arange(len(self.t)) < gradients
        slots = mesh.off_grid_slot(self.line, self.t)
        self.index, self.more = np.flatnonzero(self.kept & at_hand & (slots < 0)), np.flatnonzero(self.kept & ~at_hand)
        self.nodes, self.scored = all_nodes[self.index], all_nodes[self.more]
        self.off, self.apart = np.zeros(len(self.t)), np.zeros(len(self.t))
        there = np.flatnonzero(self.kept & at_hand & (slots >= 0))
        if len(there):
            self._compare(there, mesh.store.rows(slots[there]), mesh.store.scores[slots[there]])

    def _place(self) -> None:
        """Find the panel around each point, and where on it that is, in cells."""
        panels = self.mesh.panels
        order = np.lexsort((panels.start, panels.line))
        # Panels cover a line without gaps: the last one that starts before a point holds it.
        before = np.searchsorted(panels.line[order] + panels.start[order], self.line + self.t, side="right") - 1
        self.panel = order[before] if len(order) else before
        self.width = panels.width[self.panel] / self.cells
        self.place = (self.t - panels.start[self.panel]) / self.width
        self.kept: Bools = panels.slots[self.panel, 0] >= 0

    def cancelling(self, claim: Claim) -> bool:
        """Tell whether a claim's attributions may cancel in the score on the path, where no gradient shows it."""
        example, value, evaluator = claim.one, claim.found, self.mesh.evaluator
        cells = self.cells * len(claim.index)
        if evaluator.features == 1 or evaluator.factors is not None or cells > MAX_NODES or example.half or example.unseen:
            return False
        panels = self.mesh.panels
        moves = np.abs(self.shares[panels.line[claim.index] // self.mesh.examples]) @ panels.variation[claim.index]
        easy = value.error <= EASY * self.tol * value.size and cells <= FEW_NODES and not example.broad
        in_step = example.spread < IN_STEP or self._early(claim)  # few nodes tell little of how many directions there are
        return bool(example.suspect or easy or (moves < UNSEEN_SHARE * value.size and in_step))

    def _early(self, claim: Claim) -> bool:
        return bool(self.cells * len(claim.index) + len(self.shares) < FEWEST)

    def _too_few(self, claim: Claim) -> bool:
        return self._early(claim) and (not claim.one.broad or claim.one.suspect)

    def _wanted(self, claim: Claim) -> tuple[int, int]:
        """How many gradients and how many scores to look at on each piece."""
        one, found, pieces = claim.one, claim.found, len(self.shares)
        nodes = self.cells * len(claim.index) / pieces + 1
        error = found.error - float(self.mesh.evaluator.precision_shift()[one.example])
        gradients = scores = 0
        if found.size == 0:
            gradients, scores = NOTHING, SCORES
        elif error <= EASY * self.tol * found.size and nodes <= FEW_NODES:
            gradients, scores = (2 * USUAL, 0) if one.broad and not one.suspect else (THOROUGH, SCORES)
        elif self.mesh.paths.graded(one.example) and nodes <= FEW_NODES:
            gradients = THOROUGH
        elif self._early(claim):
            gradients = USUAL
        elif one.suspect or (one.kinked and one.looks < FEWEST_LOOKS):
            gradients = THOROUGH
        elif nodes <= FEW_NODES and (one.looks < ENOUGH_LOOKS or nodes <= FEWEST):
            gradients = USUAL if one.looks >= FEWEST_LOOKS else 2 * USUAL
        elif one.spread < FEWEST_LOOKS:
            gradients = min(int(nodes) // SPARSELY, THOROUGH)
        return math.ceil(gradients / pieces), math.ceil(scores / pieces)

    def note(self, done: Evaluated) -> None:
        """Take in gradients and scores at some of the nodes, and keep those that will be looked at again."""
        which = self.index[done.index]
        self._compare(which, done.terms, done.scores)
        self.mesh.keep_off_grid(self.line[which], self.t[which], done)

    def note_scores(self, scores: Floats) -> None:
        """Take in the scores at those points where only these are looked at."""
        self.apart[self.more] = self._apart(self.more, scores)

    def _compare(self, which: Ints, terms: Tensor, scores: Floats) -> None:
        device = self.mesh.device
        nodes = self.mesh.store.rows(self.mesh.panels.slots[self.panel[which]]).double()
        weights = np.stack([interpolation(self.cells, place) for place in self.place[which]])
        expected = torch.bmm(on_device(weights, device), nodes)
        far = (terms.to(device, torch.float64)[:, None] - expected).abs().sum(2).amin(1).cpu().numpy()
        self.off[which], self.apart[which] = far * self.width[which], self._apart(which, scores)

    def _apart(self, which: Ints, scores: Floats) -> Floats:
        """How far scores are off what scores and slopes at the two nodes around them say, by a cubic, beyond rounding."""
        store, slots = self.mesh.store, self.mesh.panels.slots[self.panel[which]]
        cell = np.clip(self.place[which].astype(np.int64), 0, self.cells - 1)
        rows, s, width = np.arange(len(cell)), self.place[which] - cell, self.width[which]
        a, b = slots[rows, cell], slots[rows, cell + 1]
        first, rise = store.scores[a], store.scores[b] - store.scores[a]
        begin, end = store.slopes[a] * width, store.slopes[b] * width
        cubic = first + s * (begin + s * (3 * rise - 2 * begin - end + s * (begin + end - 2 * rise)))
        slack = SCORE_ROUNDINGS * self.mesh.evaluator.rounding * (np.abs(first) + np.abs(rise))
        return np.asarray(np.maximum(np.abs(scores - cubic) - slack, 0.0))

    def refuted(self) -> dict[int, Refutation]:
        """The claims that do not hold, by example."""
        out = {c.one.example: Refutation(c.found.error, c.index) for c in self.claims if self._too_few(c)}
        share = np.abs(self.shares[self.line // self.mesh.examples])
        size, error = (np.array([getattr(claim.found, part) for claim in self.claims]) for part in ("size", "error"))
        # A path that starts at a norm may hold another narrow turn, and has hardly any kinks.
        strict = [self.mesh.paths.graded(claim.one.example) and not claim.one.kinked for claim in self.claims]
        bound = np.where(strict, error, np.maximum(4 * error, self.tol * size))[self.owner]
        allowed = np.array([claim.one.allowance for claim in self.claims])[self.owner]
        wrong = (share * self.off > np.maximum(bound, MISFIT * size[self.owner])) | (share * self.apart > bound + allowed)
        everywhere = self._out_of_step(share, size)
        wrong |= everywhere
        soon = self._too_soon(size) & ~wrong
        for k in np.unique(self.owner[wrong | soon]).tolist():
            mine = (wrong | soon) & (self.owner == k)
            seen = float((share * np.maximum(self.off, self.apart))[mine].max())
            if everywhere[mine].any():
                seen = max(seen, float((share * self.off / self.width)[mine].mean()) * len(self.shares))
            self.claims[k].one.suspect |= bool(wrong[mine].any())
            out[self.claims[k].one.example] = Refutation(seen, self._to_halve(self.claims[k], self.panel[mine]))
        return out

    def _too_soon(self, size: Floats) -> Bools:
        """Points of claims from few nodes by which gradients are further than the tolerance from polynomials, on average."""
        early = np.array([self._early(claim) for claim in self.claims], bool)[self.owner]
        scale = np.array([swing(self.cells, place) for place in self.place.tolist()])
        return np.asarray(early & (self.off / self.width > scale * self.tol * size[self.owner]))

    def _out_of_step(self, share: Floats, size: Floats) -> Bools:
        """All points of the examples without kinks whose gradients are off wherever one looks."""
        looked = np.bincount(self.owner, self.off > 0, len(size))
        total = np.bincount(self.owner, share * self.off / self.width, len(size))
        smooth = np.array([not claim.one.kinked for claim in self.claims], bool)
        everywhere = smooth & (total > ELSEWHERE * np.maximum(looked, 1) * size / len(self.shares)) & (looked > 1)
        return np.asarray(everywhere[self.owner])

    def _to_halve(self, claim: Claim, wrong: Ints) -> Ints:
        """All panels while they are equally wide; or those that are at least as wide as the ones where something was found."""
        width = self.mesh.panels.width
        return np.asarray(claim.index[width[claim.index] >= width[wrong].min()])
