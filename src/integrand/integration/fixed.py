"""A fixed rule: a weighted sum of gradients, accumulated as they come."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import CurveCertificate, ExampleCertificate, Status
from ..errors import NonFiniteError
from ..evaluation.checks import check_rows, graphs_outdated_along
from ..evaluation.evaluator import Evaluator, has_float64
from ..evaluation.precision_choice import choose_precision_again
from ..paths.base import Nodes
from ..quadrature.fixed_rules import Rule, between_nodes
from ..quadrature.panel_rules import SCORE_ROUNDINGS, norms_of, raising
from ..sum_errors import ErrorDraws
from ..trees import on_device
from .certify import DRAWS_BYTES, Outcome, no_draws, note_draws, note_of_rounding, path_ends, told, visible
from .unseen import EVERYWHERE, HALF, UNSEEN, UnseenChange, find_unseen


class WeightedSums:
    """Weighted sums of rows, in float64, or in compensated float32 where a device has no float64.

    >>> sums = WeightedSums(1, 1, 1, torch.device("cpu"), wide=False)
    >>> for _ in range(1000): sums.add(slice(0, 1), torch.ones(1, 1), torch.full((1, 1, 1), 0.1))
    >>> f"{sums.total().item():.6f}"
    '100.000000'
    """

    def __init__(self, columns: int, rows: int, features: int, device: torch.device, *, wide: bool | None = None) -> None:
        self.wide = has_float64(device) if wide is None else wide
        dtype = torch.float64 if self.wide else torch.float32
        self._sum = torch.zeros(columns, rows, features, dtype=dtype, device=device)
        self._lost = None if self.wide else torch.zeros_like(self._sum)

    def add(self, rows: slice | Tensor, weights: Tensor, terms: Tensor) -> None:
        """Add terms (steps, rows, features), weighed by (columns, steps), to some rows of the sums."""
        steps = terms.to(self._sum.dtype).flatten(1)
        part = (weights.to(self._sum.dtype) @ steps).unflatten(1, terms.shape[1:])
        if self._lost is None:
            self._sum[:, rows] += part
            return
        corrected = part - self._lost[:, rows]
        total = self._sum[:, rows] + corrected
        self._lost[:, rows] = (total - self._sum[:, rows]) - corrected
        self._sum[:, rows] = total

    def total(self) -> Tensor:
        """The sums, (columns, rows, features)."""
        return self._sum


def contract(evaluator: Evaluator, times: Floats, weights: Floats) -> Tensor:
    """Sum_k weights[k, r] * grad f(path(t_k)) * path'(t_k), for every piece and example, holding one chunk at a time.

    Args:
        evaluator: evaluates gradients.
        times: (steps,) on each piece.
        weights: (steps, columns).

    Returns:
        (columns, pieces, examples, features).
    """
    examples = evaluator.function.examples
    dtype = torch.float64 if has_float64(evaluator.device) else torch.float32
    columns = on_device(weights.T, evaluator.device, dtype)
    out = []
    for number in range(len(evaluator.pieces)):
        sums = WeightedSums(weights.shape[1], examples, evaluator.features, evaluator.device)
        for steps, rows, terms in evaluator.gradients_on_grid(number, times):
            sums.add(rows, columns[:, steps], terms)
            evaluator.tell(0, len(times) * examples * len(evaluator.pieces))
        total = sums.total()
        later = evaluator.multiplies_later(number)
        out.append(total * evaluator.velocity(number).to(total.dtype) if later else total)
    return torch.stack(out, 1)


def integrate_fixed(evaluator: Evaluator, rule: Rule, tol: float) -> Outcome:
    """Apply one rule to every piece of every example's path."""
    examples, pieces = evaluator.function.examples, len(evaluator.pieces)
    embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
    values, differences = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))
    if graphs_outdated_along(evaluator):
        evaluator.forget(np.arange(examples))
        choose_precision_again(evaluator, tol)
        values, differences = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))
    nodes = grid(rule.nodes, pieces, examples)
    if not bool(torch.isfinite(values).all()):
        for _ in evaluator.gradients_at(nodes):
            pass  # once more, looking at every node: this raises with the place
        raise NonFiniteError("the attributions overflow although no gradient does; scale the score or the input down.")
    evaluator.note_precision()
    starts, ends = end_scores(evaluator)
    check_rows(evaluator, ends[-1], np.arange(examples))
    found = FixedSums(evaluator, rule, values, differences, starts, ends)
    evaluator.tell(examples, len(nodes))
    weights = np.tile(np.repeat(rule.weights, examples), pieces) * found.shares[nodes.pieces]
    return Outcome(found.total, found.certificates(tol), nodes, weights, found.draws())


class FixedSums:
    """What a fixed rule gives, and what is known about it.

    Args:
        evaluator: has evaluated the gradients.
        rule: the rule.
        values: its sums, (pieces, examples, features).
        differences: by how much they differ from those of a coarser rule, likewise.
        starts: F at the start of each piece, (pieces, examples).
        ends: F at its end.
    """

    def __init__(
        self, evaluator: Evaluator, rule: Rule, values: Tensor, differences: Tensor, starts: Floats, ends: Floats
    ) -> None:
        self.evaluator, self.rule, self.values, self.differences = evaluator, rule, values, differences
        self.starts, self.ends = starts, ends
        self.shares = np.array([piece.weight for piece in evaluator.pieces])
        share = on_device(self.shares, values.device).to(values.dtype)[:, None, None]
        self.total, self.difference = (values * share).sum(0), (differences * share).sum(0)
        if evaluator.shift is not None and evaluator.shift.corrections is not None:
            self.total = self.total + evaluator.shift.corrections.to(self.total)
        self.sizes = self.total.abs().sum(-1).double().cpu().numpy()
        self.residual = values.sum(-1).double().cpu().numpy() - (ends - starts)  # of each piece, before any correction
        half = evaluator.epsilon > HALF
        # Two scores, each off by half a unit in the last place.
        self.allowances = evaluator.epsilon * evaluator.function.scale if half else np.zeros(len(self.sizes))
        self.floors = evaluator.epsilon * self.sizes
        if half:  # gradients may cancel along the path, their rounding does not
            self.floors = evaluator.gradient_rounding() * np.maximum(evaluator.mass(), self.sizes)

    def draws(self) -> ErrorDraws | None:
        """What errors may look like: one draw, the difference to the coarser rule; None without such a rule."""
        if self.rule.embedded is None:
            return None
        examples, features = self.total.shape
        out = no_draws(examples, 1, features)
        at_once = max(1, DRAWS_BYTES // (8 * features))  # copies are made of what is noted
        for first in range(0, examples, at_once):
            part = self.difference[first : first + at_once, None]
            note_draws(out, range(first, first + len(part)), part)
        return out

    def errors(self) -> Floats:
        """Relative L1 errors, (examples,)."""
        missed = np.maximum(np.abs(self.shares @ self.residual), self.gaps())
        known = self.rule.embedded is not None
        found = _errors(self.total[None], self.difference[None], missed[None], known, self.floors, self.allowances)[0]
        return np.asarray(found + self.evaluator.precision_shift() / np.maximum(self.sizes, 1e-300))

    def variation(self) -> Floats:
        """What the score moves by from node to node, up and down, (examples,)."""
        seen, examples = self.evaluator.profile(), len(self.sizes)
        ends = np.abs(self.shares) @ np.abs(self.ends - self.starts)
        if seen is None:
            return np.asarray(ends)
        joined = (np.diff(seen.example) == 0) & (np.diff(seen.piece) == 0)
        moves = np.abs(self.shares)[seen.piece[1:]] * np.abs(np.diff(seen.score)) * joined
        return np.asarray(np.maximum(np.bincount(seen.example[1:], moves, examples), ends))

    def gaps(self) -> Floats:
        """What slopes miss of the score's change from node to node, the root of summed squares, (examples,).

        By straight lines, or by a polynomial through the nodes around, whichever is closer: what neither accounts for, nor a
        slope between those at both nodes, happens where no node is.
        """
        seen, steps = self.evaluator.profile(), len(self.rule)
        shape = (len(self.sizes), len(self.shares), steps)
        if seen is None or len(seen.t) != math.prod(shape):
            return np.zeros(len(self.sizes))  # some nodes were looked at twice: in another precision
        scores, slopes = seen.score.reshape(shape), seen.slope.reshape(shape)
        known = np.isfinite(slopes).all((1, 2), keepdims=True)  # sums of large numbers may overflow where each of them does not
        slopes = np.where(known, slopes, 0.0)
        along = np.concatenate([self.starts.T[..., None], scores, self.ends.T[..., None]], 2)
        width = np.diff(self.rule.nodes, prepend=0.0, append=1.0)
        sides = np.stack([slopes[..., np.r_[0, :steps]], slopes[..., np.r_[:steps, steps - 1]]])
        rise = np.diff(along)
        given = np.stack([width * sides.mean(0), slopes @ between_nodes(self.rule).T])
        between = np.clip(rise, *(width * side for side in (sides.min(0), sides.max(0))))
        slack = SCORE_ROUNDINGS * self.evaluator.rounding * np.abs(along).max(2, keepdims=True)
        least = np.minimum(np.abs(rise - given).min(0), np.abs(rise - between))
        beyond = np.where(known, np.maximum(least - slack, 0.0), 0.0)
        return np.asarray(np.linalg.norm((beyond * self.shares[:, None]).reshape(len(beyond), -1), axis=1))

    def unseen(self, errors: Floats, tol: float) -> dict[int, UnseenChange]:
        """What examples do that miss far more of the change of the score than their gradients account for."""
        changes, roots = norms_of(self.difference)
        missed = np.abs(self.shares @ self.residual) - self.allowances
        odd = np.flatnonzero((errors > tol) & (missed > UNSEEN * changes * raising(changes, roots)))
        if not len(odd) or self.evaluator.runner.mode.low_scores:
            return {}
        found = find_unseen(self.evaluator, odd, self.shares, ends=np.stack([self.starts, self.ends]), gradients=False)
        # Rounding at both ends cannot account for more: the rule's weights do not fit, as those of Riemann sums at a kink.
        return {i: change for i, change in found.items() if change.hidden or missed[i] <= EVERYWHERE * change.size}

    def certificates(self, tol: float) -> list[ExampleCertificate]:
        """One for each example."""
        error = self.errors()
        unseen = self.unseen(error, tol)
        steps, pieces = len(self.rule), len(self.shares)
        needed = np.where(np.isfinite(error), np.ceil(steps * pieces * error / tol), 0)
        first, last = path_ends(self.shares, self.starts, self.ends)
        missed = self.total.sum(-1).double().cpu().numpy() - (last - first)
        own = None
        if pieces > 1:
            floors, known = self.evaluator.epsilon * norms_of(self.values)[0], self.rule.embedded is not None
            own = _errors(self.values, self.differences, self.residual, known, floors, self.allowances)
        curves = _curves(self.shares, self.starts, self.ends, self.residual, own, steps)
        moves = self.variation().tolist()
        rows = zip(*(part.tolist() for part in (last, first, missed, self.sizes, error, needed)), strict=True)
        out = []
        for i, (score, start, missing, size, wrong, count) in enumerate(rows):
            change = unseen.get(i)
            status = Status.CONVERGED if wrong <= tol else Status.BUDGET
            if change is not None:
                status = Status.JUMP if change.hidden else Status.NOISE
            elif status is Status.BUDGET and self.floors[i] > tol * size:
                status = Status.NOISE
            out.append(
                self.evaluator.certificate(
                    i,
                    tol,
                    score=score,
                    baseline_score=start,
                    residual=missing,
                    magnitude=size,
                    error=wrong,
                    status=status,
                    rule=self.rule.name,
                    needed=int(count) if status is Status.BUDGET and count else None,
                    visible=visible(moves[i], size),
                    note=note_of_rounding(float(self.allowances[i]), missing, wrong * size),
                    curves=curves[i] if curves else (),
                    **told(change, status),
                )
            )
        return out


def grid(times: Floats, pieces: int, examples: int) -> Nodes:
    """Every example at every time on every piece."""
    steps = len(times)
    rows = np.tile(np.arange(examples), pieces * steps)
    return Nodes(np.tile(np.repeat(times, examples), pieces), rows, np.repeat(np.arange(pieces), steps * examples))


def end_scores(evaluator: Evaluator) -> Floats:
    """F at the start and at the end of each piece, (2, pieces, examples), from forward passes."""
    # An example's start and end side by side, so that no chunk is the user's own batch: see check_rows.
    shape = (len(evaluator.pieces), evaluator.function.examples, 2)
    piece, place, t = (axis.ravel() for axis in np.indices(shape))
    both = evaluator.scores_at(Nodes(t.astype(np.float64), place, piece))
    return np.moveaxis(both.reshape(shape), 2, 0)


def end_scores_in_full(evaluator: Evaluator, examples: Ints) -> Floats:
    """F at the ends of the pieces of some examples in full precision, (2, pieces, examples); what is known is not evaluated."""
    out = np.zeros((2, len(evaluator.pieces), len(examples)))
    out[1, -1] = evaluator.function.at_input.double().cpu().numpy()[examples]
    if evaluator.shift is not None and evaluator.shift.starts is not None:
        out[0, 0] = evaluator.shift.starts[examples]
        return out
    side, piece, place = (axis.ravel()[: -len(examples)] for axis in np.indices(out.shape))
    out[side, piece, place] = evaluator.scores_at(Nodes(side.astype(np.float64), examples[place], piece))
    return out


def _curves(
    shares: Floats, starts: Floats, ends: Floats, residual: Floats, own: Floats | None, steps: int
) -> list[tuple[CurveCertificate, ...]]:
    """The certificates of each example's pieces, where there are several."""
    if own is None:
        return []
    weights = np.broadcast_to(shares[:, None], own.shape)
    columns = np.stack([weights, starts, ends, residual, own], -1).swapaxes(0, 1).tolist()
    return [tuple(CurveCertificate(w, a, b, r, e, steps) for w, a, b, r, e in rows) for rows in columns]


def _errors(values: Tensor, differences: Tensor, residual: Floats, known: bool, floors: Floats, allowances: Floats) -> Floats:
    """Relative L1 errors, (pieces, examples); never below the rounding of the gradients.

    Args:
        values: (pieces, examples, features).
        differences: by how much they differ from those of a coarser rule.
        residual: what they miss of the change of the score, (pieces, examples).
        known: whether there is such a rule.
        floors: what rounding of gradients leaves, (examples,), or of each piece.
        allowances: what may be missed because scores are rounded, (examples,).
    """
    if not known:
        return np.full(residual.shape, np.nan)
    sizes, roots = norms_of(values)
    changes, change_roots = norms_of(differences)
    # What the sum misses is a lower bound; with few features the error behind it can be several times as large.
    missed = np.maximum(np.abs(residual) - allowances, 0.0)
    errors = np.maximum(changes * raising(changes, change_roots), missed * raising(sizes, roots))
    ratio = np.maximum(errors, floors) / np.where(sizes > 0, sizes, 1.0)
    return np.where(sizes > 0, ratio, np.where(errors == 0, 0.0, np.inf))
