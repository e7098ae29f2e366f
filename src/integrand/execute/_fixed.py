"""A fixed rule: a weighted sum of gradients, accumulated as they come."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..attribution import CurveCertificate, Status
from ..quadrature import Rule
from ..quadrature._panels import spread
from ._evaluate import Evaluator, Floats, Ints, Nodes, has_float64
from ._outcome import Outcome, Record, relative


class Sums:
    """Sums of rows by label, in float64, or in compensated float32 where a device has no float64.

    >>> sums = Sums(1, 1, torch.device("cpu"), wide=False)
    >>> for _ in range(1000): sums.add(torch.tensor([0]), torch.full((1, 1), 0.1))
    >>> f"{sums.total().item():.6f}"
    '100.000000'
    """

    def __init__(self, labels: int, features: int, device: torch.device, *, wide: bool | None = None) -> None:
        self.wide = has_float64(device) if wide is None else wide
        dtype = torch.float64 if self.wide else torch.float32
        self._sum = torch.zeros(labels, features, dtype=dtype, device=device)
        self._lost = None if self.wide else torch.zeros_like(self._sum)

    def add(self, labels: Tensor, rows: Tensor) -> None:
        """Add rows (N, features) to the sums of their labels (N,)."""
        if self._lost is None:
            self._sum.index_add_(0, labels, rows.to(self._sum.dtype))
            return
        part = torch.zeros_like(self._sum).index_add_(0, labels, rows.to(self._sum.dtype))
        corrected = part - self._lost
        total = self._sum + corrected
        self._lost = (total - self._sum) - corrected
        self._sum = total

    def total(self) -> Tensor:
        """The sums, (labels, features)."""
        return self._sum


def contract(
    evaluator: Evaluator, nodes: Nodes, weights: Floats, labels: Ints, count: int
) -> tuple[list[Tensor], Floats, Floats]:
    """Sum_k weights[k, r] * grad f(path(t_k)) * path'(t_k), for each label and column r, holding one chunk at a time.

    Returns:
        One (labels, features) tensor per column of the weights, and F and dF/dt at the nodes.
    """
    sums = [Sums(count, evaluator.features, evaluator.device) for _ in range(weights.shape[1])]
    scores, slopes = np.empty(len(nodes)), np.empty(len(nodes))
    for done in evaluator.gradients_at(nodes):
        scores[done.index], slopes[done.index] = done.scores, done.slopes
        where = torch.as_tensor(labels[done.index], device=evaluator.device)
        terms = done.terms.to(torch.float64) if sums[0].wide else done.terms
        for column, total in enumerate(sums):
            factor = torch.as_tensor(weights[done.index, column], device=evaluator.device).to(terms.dtype)
            total.add(where, terms * factor[:, None])
        evaluator.tell(0, len(nodes))
    return [total.total() for total in sums], scores, slopes


def integrate_fixed(evaluator: Evaluator, rule: Rule, tol: float) -> Outcome:
    """Apply one rule to every piece of every example's path."""
    examples, pieces = evaluator.function.examples, len(evaluator.pieces)
    lines, steps = examples * pieces, len(rule)
    # Steps in the outer loop: neighbouring rows of a chunk belong to different examples, as in a user's own batch.
    label = np.tile(np.arange(lines), steps)
    nodes = Nodes(np.repeat(rule.nodes, lines), label % examples, label // examples)
    embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
    columns = np.stack([np.repeat(rule.weights, lines), np.repeat(embedded, lines)], 1)
    (values, differences), _, slopes = contract(evaluator, nodes, columns, label, lines)
    starts, ends = _end_scores(evaluator, lines)
    evaluator.check_rows(ends.reshape(pieces, examples)[-1], np.arange(examples))
    given = np.bincount(label, columns[:, 0] * slopes, lines)
    residual = given - (ends - starts)
    shares = np.array([piece.weight for piece in evaluator.pieces])
    outcome = Lines(examples, shares, starts, ends, residual, steps)
    known = rule.embedded is not None
    return outcome.close(values, differences, rule.name, tol, nodes, columns[:, 0] * shares[nodes.pieces], known=known)


def _end_scores(evaluator: Evaluator, lines: int) -> tuple[Floats, Floats]:
    """F at the start and at the end of each line, from forward passes."""
    examples = evaluator.function.examples
    line = np.arange(lines)
    # Start and end side by side, so that no chunk is the user's own batch: see Evaluator.check_rows.
    both = Nodes(np.tile([0.0, 1.0], lines), np.repeat(line % examples, 2), np.repeat(line // examples, 2))
    scores = evaluator.scores_at(both)
    return scores[::2], scores[1::2]


class Lines:
    """The lines (examples x pieces) of a fixed rule, put together into examples."""

    def __init__(self, examples: int, shares: Floats, starts: Floats, ends: Floats, residual: Floats, steps: int) -> None:
        self.examples = examples
        self.shares = shares
        self.starts, self.ends, self.residual = (a.reshape(len(shares), examples) for a in (starts, ends, residual))
        self.steps = steps

    def close(
        self, values: Tensor, differences: Tensor, rule: str, tol: float, nodes: Nodes, weights: Floats, *, known: bool
    ) -> Outcome:
        """Weigh the pieces, estimate the errors, and write the records."""
        pieces = len(self.shares)
        share = torch.as_tensor(self.shares, device=values.device).to(values.dtype)[:, None, None]
        cube = values.reshape(pieces, self.examples, -1)
        wrong = differences.reshape(pieces, self.examples, -1)
        own = _errors(cube, wrong, self.residual, known)
        total, total_wrong = (cube * share).sum(0), (wrong * share).sum(0)
        residual = (self.residual * self.shares[:, None]).sum(0)
        error = _errors(total[None], total_wrong[None], residual[None], known)[0]
        sizes = total.abs().sum(-1).double().cpu().numpy()
        records = []
        for i in range(self.examples):
            status = Status.CONVERGED if error[i] <= tol else Status.BUDGET
            needed = (
                None if error[i] <= tol or not np.isfinite(error[i]) else int(np.ceil(self.steps * pieces * error[i] / tol))
            )
            curves = tuple(
                CurveCertificate(
                    float(self.shares[p]),
                    float(self.starts[p, i]),
                    float(self.ends[p, i]),
                    float(self.residual[p, i]),
                    float(own[p, i]),
                    self.steps,
                )
                for p in range(pieces if pieces > 1 else 0)
            )
            start, end = path_ends(self.shares, self.starts[:, i], self.ends[:, i])
            numbers = (end, start, float(residual[i]), float(sizes[i]), float(error[i]))
            records.append(Record(*numbers, status, rule, needed, curves=curves))
        return Outcome(total, records, nodes, weights)


def path_ends(shares: Floats, starts: Floats, ends: Floats) -> tuple[float, float]:
    """F at the baseline and at the input, from the ends of the pieces: pieces in a row hand over to each other.

    >>> path_ends(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([2.0, 5.0]))
    (0.0, 5.0)
    >>> path_ends(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    (0.5, 5.0)
    """
    end = float(ends[-1])
    return end - float((shares * (ends - starts)).sum()), end


def _errors(values: Tensor, differences: Tensor, residual: Floats, known: bool) -> Floats:
    """Relative L1 errors, (pieces, examples)."""
    if not known:
        return np.full(residual.shape, np.nan)
    sizes = values.abs().sum(-1).double().cpu().numpy()
    raised = (differences.abs().sum(-1) * spread(differences)).double().cpu().numpy()
    # What the sum misses is a lower bound; with few features the error behind it can be several times as large.
    errors = np.maximum(raised, np.abs(residual) * spread(values).double().cpu().numpy())
    return np.array([[relative(e, s) for e, s in zip(*rows, strict=True)] for rows in zip(errors, sizes, strict=True)])
