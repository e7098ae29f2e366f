"""What an integration hands to the engine: values with their certificates, and the nodes and weights behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import CurveCertificate, ExampleCertificate, Status
from ..evaluation.evaluator import Evaluator, has_float64
from ..paths.base import Nodes
from ..quadrature.panel_rules import FEW_FEATURES, estimate, norms_of
from ..sum_errors import STORED, ErrorDraws
from ..trees import on_device
from ..words import number
from .error import Estimate, OpenExample
from .mesh import Mesh, Panels, Split
from .unseen import UnseenChange

DRAWS, FEW_DRAWS_KEPT = 8, 2
"""Draws of what errors may look like that are kept with the values; and where all of them would take much memory."""

DRAWS_BYTES = 64 << 20
"""How much that is, where the user names no limit; of a limit it is a sixteenth at the most."""

KEPT = 0.25
"""Of the caution for few features: what is kept of it for sums, which have a caution of their own."""

HIGHEST = 2.0**14
"""The largest number of an example's draws, as they are stored: well within one byte."""


@dataclass(frozen=True)
class Outcome:
    """Values and certificates of all examples.

    Attributes:
        values: (examples, features), in float64 where the device has it.
        examples: their certificates.
        nodes: the nodes whose weighted terms add up to the values.
        weights: (nodes,) their weights.
        draws: what errors of the values may look like; None where the rule says nothing of them.
    """

    values: Tensor
    examples: list[ExampleCertificate]
    nodes: Nodes
    weights: Floats
    draws: ErrorDraws | None = None


@dataclass(frozen=True)
class Decision:
    """What comes next for an example after a refinement round.

    Attributes:
        one: the example.
        found: the estimate after the round.
        index: which panels of the mesh are its own.
        panels: these panels.
        split: those to halve, if it goes on.
        status: how it ended; None where it goes on.
        needed: evaluations that it would have taken, where the budget ended it.
    """

    one: OpenExample
    found: Estimate
    index: Ints
    panels: Panels
    split: Split = field(default_factory=Split)
    status: Status | None = None
    needed: int | None = None

    def ended(self, status: Status, needed: int | None = None) -> Decision:
        """The same example at its end."""
        return replace(self, status=status, needed=needed)


def relative(error: float, size: float) -> float:
    """An absolute L1 error over the L1 norm; zero over zero is exact, anything else over zero is infinite."""
    if error == 0:
        return 0.0
    return float(error / size) if size > 0 else float(np.inf)


def told(unseen: UnseenChange | None, status: Status | None) -> dict[str, Any]:
    """What a certificate says of changes of the score that no gradient accounts for, as its fields."""
    if unseen is None or status is not (Status.JUMP if unseen.hidden else Status.NOISE):
        return {}
    if unseen.at is None:  # of rounding that every score has there is nothing to say
        return {"unseen": unseen.kind} if unseen.hidden else {}
    return {"unseen": unseen.kind, "jump_at": unseen.at, "jump_size": unseen.size}


def note_of_rounding(allowance: float, residual: float, error: float) -> str:
    """That scores are too coarse for the sum to say anything, where it misses more than the error (all absolute); else ''."""
    if not allowance or abs(residual) <= error:
        return ""
    return f"rounding inside the model moves scores by up to {number(allowance)}, so that the sum cannot tell more"


def visible(variation: float, size: float) -> float | None:
    """How much of the attributions (L1) the score can see, that moves by so much up and down along the path; at most 1."""
    return min(variation / size, 1.0) if size > 0 else None


def path_ends(shares: Floats, starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """F at the baseline and at the input, from the ends of the pieces: each piece of a row starts where the last one ends.

    >>> path_ends(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([2.0, 5.0]))
    (np.float64(0.0), np.float64(5.0))
    >>> path_ends(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    (np.float64(0.5), np.float64(5.0))
    """
    end = ends[-1]
    return end - shares @ (ends - starts), end


def draws_kept(values: Tensor, memory: int | None) -> int:
    """How many draws to keep for values (examples, features): they take a byte each.

    Args:
        values: the values.
        memory: the user's limit in bytes.
    """
    most = DRAWS_BYTES if memory is None else min(DRAWS_BYTES, memory // 16)
    return DRAWS if DRAWS * values.numel() <= most else FEW_DRAWS_KEPT


def no_draws(examples: int, count: int, features: int) -> ErrorDraws:
    """Draws of examples of which nothing is known yet, to be filled in by :func:`note_draws`."""
    return ErrorDraws(torch.zeros(examples, count, features, dtype=STORED), torch.full((examples,), torch.nan).double())


def note_draws(draws: ErrorDraws, examples: Sequence[int], raw: Tensor) -> None:
    """Fill in the draws of some examples.

    Args:
        draws: those of all examples.
        examples: which ones.
        raw: (examples, draws, features), of any size.
    """
    raw = raw if has_float64(raw.device) else raw.cpu()  # nor do such devices have numbers of one byte
    most = raw.abs().amax((1, 2), keepdim=True)
    wide = HIGHEST * (raw / torch.where(most > 0, most, 1.0)).float()
    norm, root = (torch.linalg.vector_norm(wide, order, 2).double().cpu() for order in (1, 2))
    # Draws are as large as errors on average. Sums have a caution of their own, instead of most of that for few features.
    few = FEW_FEATURES * root / norm.clamp_min(1.0)
    size, raised = norm.mean(1), ((1 + few) / (1 + KEPT * few)).mean(1)
    where = torch.as_tensor(examples)
    draws.draws[where] = torch.nan_to_num(wide).to(STORED).cpu()  # the scale says what is not known
    draws.scale[where] = torch.where(size == 0, 0.0, 1 / (size * raised))


def _signs(piece: Ints, start: Floats, width: Floats, count: int) -> Floats:
    """Signs that are drawn for each panel by where it lies: the same ones in every batch, (panels, count), count up to 32."""
    key = (start * 2.0**50).astype(np.uint64) + np.rint(-np.log2(width)).astype(np.uint64) * np.uint64(1 << 52)
    key ^= piece.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # the mixing of splitmix64
        key = (key ^ (key >> np.uint64(30))) * np.uint64(factor)
    bits = (key[:, None] >> np.uint64(32) >> np.arange(count, dtype=np.uint64)) & np.uint64(1)
    return np.asarray(2.0 * bits - 1)


class CertificateWriter:
    """Writes certificates of examples that were refined to their end, and the nodes and weights behind their values.

    Args:
        evaluator: knows the path, and has counted.
        mesh: the panels.
        shares: (pieces,) the weight of each piece.
    """

    def __init__(self, evaluator: Evaluator, mesh: Mesh, shares: Floats) -> None:
        self.evaluator, self.mesh, self.shares = evaluator, mesh, shares

    def certificate(self, end: Decision, tol: float, scores: Floats) -> ExampleCertificate:
        """The certificate of an example.

        Args:
            end: how it ended.
            tol: the tolerance.
            scores: F at start and end of each piece, (2, pieces).
        """
        pieces = len(self.shares)
        one, found, status = end.one, end.found, end.status
        first, last = path_ends(self.shares, *scores)
        nothing = status is Status.CONVERGED and found.size == 0
        error = one.with_rounding(found.error, met=status is Status.CONVERGED)
        if status is Status.JUMP:
            error = max(error, abs(found.residual))
        return self.evaluator.certificate(
            one.example,
            tol,
            score=float(last),
            baseline_score=float(first),
            residual=found.residual,
            magnitude=found.size,
            error=0.0 if nothing else relative(error, found.size),
            status=status,
            rule=f"adaptive {found.rule}" + ("" if found.extrapolated else " panels"),
            needed=end.needed,
            visible=visible(float(self.shares[end.panels.line // self.mesh.examples] @ end.panels.variation), found.size),
            **told(one.unseen, status),
            note="" if one.hidden else note_of_rounding(one.allowance, found.residual, error),
            curves=tuple(self._curve(p, end, *scores[:, p]) for p in range(pieces)) if pieces > 1 else (),
        )

    def _curve(self, piece: int, end: Decision, first: float, last: float) -> CurveCertificate:
        """The certificate of one piece, by the better candidate of the panel rule."""
        best, rule = end.found.candidate, self.mesh.rule
        mine = end.panels[end.panels.line // self.mesh.examples == piece]
        sums = self.mesh.sums[self.mesh.place[end.one.example], piece, 2 * best :]
        missing = float(mine.missing[:, best].sum())
        squares = np.array([(mine.indicators(rule, best, end.one.allowance) ** 2).sum()])
        counted = abs(missing) - (0.0 if end.one.hidden else min(end.one.allowance, abs(missing)))
        error = estimate(rule.candidates[best], *norms_of(sums[1:2]), squares, np.array([counted]))
        share, size = float(self.shares[piece]), float(sums[0].abs().sum())
        nodes = rule.cells * len(mine) + 1
        return CurveCertificate(share, float(first), float(last), -missing, relative(float(error[0]), size), nodes)

    def draw_errors(self, ended: Sequence[Decision], draws: ErrorDraws) -> None:
        """What the errors of examples at their end may look like: the differences on their panels, with random signs."""
        rule, count, panels = self.mesh.rule, draws.draws.shape[1], self.mesh.panels
        index = np.concatenate([end.index for end in ended])
        owner = np.repeat(np.arange(len(ended)), [len(end.index) for end in ended])
        kept = panels.slots[index, 0] >= 0  # of the others, which matter least, nothing is left
        index, owner = index[kept], owner[kept]
        candidates, sizes = np.array([end.found.candidate for end in ended]), np.bincount(owner, minlength=len(ended))
        weights = self._drawn(index, candidates[owner], count)
        inside = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
        at_once = max(1, self.mesh.block_bytes // (len(rule.nodes) * self.evaluator.features * 8))
        order = np.argsort(sizes, kind="stable").tolist()
        while order:
            most = int(sizes[order[-1]])
            block = order[-max(1, at_once // max(most, 1)) :]
            del order[-len(block) :]
            row = np.full(len(ended), -1)
            row[block] = np.arange(len(block))
            mine = np.flatnonzero(row[owner] >= 0)
            slots = np.zeros((len(block), most, len(rule.nodes)), np.int64)
            columns = np.zeros((len(block), most, weights.shape[1], len(rule.nodes)))
            slots[row[owner[mine]], inside[mine]] = panels.slots[index[mine]]
            columns[row[owner[mine]], inside[mine]] = weights[mine]
            raw = self._weighed(slots, columns, at_once)
            both = [part / part.abs().sum((1, 2), keepdim=True).clamp_min(1e-300) for part in raw.split(count, 1)]
            note_draws(draws, [ended[i].one.example for i in block], sum(both[1:], both[0]))
        for i in np.flatnonzero(sizes == 0).tolist():  # memory had no room for any panel: nothing is known of its sums
            draws.scale[ended[i].one.example] = torch.nan

    def _drawn(self, index: Ints, candidates: Ints, count: int) -> Floats:
        """Weights of the nodes of panels for draws of errors, (panels, draws, n); or twice as many.

        By the first candidate's differences, on each part of a panel; and, in the second half, by those of the candidate that
        gave the values, if it is another: where gradients have kinks, that of Simpson's rule may be small by chance.
        """
        rule, panels = self.mesh.rule, self.mesh.panels
        parts = rule.columns[1:2] if rule.parts is None else rule.parts
        line, width = panels.line[index], panels.width[index]
        signs = _signs(line // self.mesh.examples, panels.start[index], width, count * (len(parts) + 1))
        signs = (
            signs.reshape(len(index), count, len(parts) + 1) * (width * self.shares[line // self.mesh.examples])[:, None, None]
        )
        rough = signs[..., :-1] @ parts
        if not candidates.any():
            return np.asarray(rough)
        own = (candidates > 0)[:, None] * rule.columns[2 * candidates + 1]
        return np.concatenate([rough, signs[..., -1:] * own[:, None]], 1)

    def _weighed(self, slots: Ints, weights: Floats, at_once: int) -> Tensor:
        """Nodes in slots (examples, panels, n) times weights (examples, panels, k, n), some panels at a time."""
        shape = (len(slots), weights.shape[2], self.evaluator.features)
        out = torch.zeros(shape, dtype=torch.float64, device=self.mesh.device)
        for first in range(0, slots.shape[1], at_once):
            part = slice(first, first + at_once)
            terms = self.mesh.store.rows(slots[:, part].reshape(len(slots), -1)).to(out.dtype)
            columns = weights[:, part].swapaxes(1, 2).reshape(*shape[:2], -1)
            out += torch.bmm(on_device(columns, self.mesh.device), terms)
        return out

    def weights_used(self, end: Decision) -> tuple[Nodes, Floats]:
        """The nodes and weights that the values are the sum of; ends that neighbouring panels share are listed twice."""
        one, found, panels, rule = end.one, end.found, end.panels, self.mesh.rule
        pieces = len(self.shares)
        if found.extrapolated and one.level is not None and rule.extrapolation is not None:
            fixed = rule.extrapolation(one.level)
            t, piece = np.tile(fixed.nodes, pieces), np.repeat(np.arange(pieces), len(fixed.nodes))
            weights = np.tile(fixed.weights, pieces)
        else:
            t = (panels.start[:, None] + panels.width[:, None] * rule.nodes).ravel()
            piece = np.repeat(panels.line // self.mesh.examples, len(rule.nodes))
            weights = panels.weights[:, found.candidate].ravel()
        nodes, speed = self.mesh.paths.in_t(Nodes(t, np.full(len(t), one.example), piece))
        return nodes, weights * speed * self.shares[piece]
