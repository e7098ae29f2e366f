"""A fixed rule: a weighted sum of gradients, accumulated as they come."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import CurveCertificate, Status
from ..errors import NonFiniteError
from ..evaluation.checks import check_rows, graphs_outdated_along
from ..evaluation.evaluator import Evaluator, has_float64
from ..evaluation.precision_choice import choose_precision_again
from ..paths.base import Nodes
from ..quadrature.fixed_rules import Rule
from ..quadrature.panel_rules import norms_of, raising
from .certify import Outcome, path_ends


class Sums:
    """Weighted sums of rows, in float64, or in compensated float32 where a device has no float64.

    >>> sums = Sums(1, 1, 1, torch.device("cpu"), wide=False)
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
    columns = torch.as_tensor(weights.T, dtype=dtype, device=evaluator.device)
    out = []
    for number in range(len(evaluator.pieces)):
        sums = Sums(weights.shape[1], examples, evaluator.features, evaluator.device)
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
    starts, ends = end_scores(evaluator)
    check_rows(evaluator, ends[-1], np.arange(examples))
    shares = np.array([piece.weight for piece in evaluator.pieces])
    share = torch.as_tensor(shares, device=values.device).to(values.dtype)[:, None, None]
    residual = values.sum(-1).double().cpu().numpy() - (ends - starts)  # of each piece, before any correction
    known = rule.embedded is not None
    total = (values * share).sum(0)
    if evaluator.shift is not None and evaluator.shift.corrections is not None:
        total = total + evaluator.shift.corrections.to(total)
    total_error = _errors(total[None], (differences * share).sum(0)[None], (shares @ residual)[None], known, evaluator.epsilon)[
        0
    ]
    total_error = total_error + evaluator.precision_shift() / np.maximum(total.abs().sum(-1).double().cpu().numpy(), 1e-300)
    own = _errors(values, differences, residual, known, evaluator.epsilon) if pieces > 1 else None
    sizes = total.abs().sum(-1).double().cpu().numpy()
    first, last = path_ends(shares, starts, ends)
    needed = np.where(np.isfinite(total_error), np.ceil(len(rule) * pieces * total_error / tol), 0)
    missed = total.sum(-1).double().cpu().numpy() - (last - first)
    rows = zip(*(part.tolist() for part in (last, first, missed, sizes, total_error, needed)), strict=True)
    curves = _curves(shares, starts, ends, residual, own, len(rule))
    certificates = [
        evaluator.certificate(
            i,
            tol,
            score=score,
            baseline_score=start,
            residual=missing,
            magnitude=size,
            error=error,
            status=Status.CONVERGED if error <= tol else Status.BUDGET,
            rule=rule.name,
            needed=None if error <= tol or not count else int(count),
            curves=curves[i] if curves else (),
        )
        for i, (score, start, missing, size, error, count) in enumerate(rows)
    ]
    evaluator.tell(examples, len(nodes))
    return Outcome(total, certificates, nodes, np.tile(np.repeat(rule.weights, examples), pieces) * shares[nodes.pieces])


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


def _errors(values: Tensor, differences: Tensor, residual: Floats, known: bool, epsilon: float) -> Floats:
    """Relative L1 errors, (pieces, examples); never below the rounding of the gradients."""
    if not known:
        return np.full(residual.shape, np.nan)
    sizes, roots = norms_of(values)
    changes, change_roots = norms_of(differences)
    # What the sum misses is a lower bound; with few features the error behind it can be several times as large.
    errors = np.maximum(changes * raising(changes, change_roots), np.abs(residual) * raising(sizes, roots))
    ratio = np.maximum(errors / np.where(sizes > 0, sizes, 1.0), epsilon)
    return np.where(sizes > 0, ratio, np.where(errors == 0, 0.0, np.inf))
