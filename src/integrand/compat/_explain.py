"""Integrated gradients by the front door; without the multiplication by input minus baseline, the mean gradient.

Dividing attributions by x - x' would lose every feature with x = x', and a path with a velocity of ones would be held to a
completeness that it does not have. So this goes to the engine's seam, ``contract``, with ones for the velocity: one
weighted sum of gradients and its embedded difference, which estimates the error of what is returned. Completeness is still
used where it holds: on a straight line the mean gradient times x - x' sums to the change of the score.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._api import Options, _warn_if_zero, integrated_gradients, version_of, warn_if_missed
from .._trees import Leaves, flat, unflat
from ..attribution import Attribution, Certificate, ExampleCertificate, Status
from ..baselines import settle_baselines
from ..execute import Evaluator, Nodes, contract
from ..execute._checks import check_rows
from ..execute._memory import Chunks
from ..execute._nodes import Floats
from ..execute._outcome import relative
from ..execute._progress import Reporter
from ..functions import undisturbed
from ..paths import Piece
from ..paths._paths import segment
from ..quadrature import Rule, gauss_legendre
from ..quadrature._panels import spread
from ._problem import How, Problem

PANEL, MOST = 16, 2048
"""Steps to start with and to end with, where a tolerance is asked for."""


def explain(problem: Problem, how: How) -> Attribution:
    """Integrate, and certify."""
    if not how.multiply:
        return _mean_gradients(problem, how)
    return integrated_gradients(
        problem.model,
        problem.tree.build(problem.end),
        problem.tree.build(problem.start),
        target=problem.target,
        tol=how.tol,
        steps=how.n_steps,
        rule=how.rule,
        layer=how.layers or None,
        layer_side=how.side,
        args=problem.args,
        batched=True,
        create_graph=how.create_graph,
        chunk=how.chunk,
    )


def _mean_gradients(problem: Problem, how: How) -> Attribution:
    """The mean gradient of each feature, with a certificate of its own error."""
    options = Options.make(how.tol, how.n_steps, how.rule, MOST, None, how.chunk, 1, None, False)
    with undisturbed(problem.model):
        function = problem.function(how)
        [start] = settle_baselines(problem.tree.build(problem.start), function, 1)
        reporter = Reporter(None)
        chunks = Chunks.start(function.inputs[0].device, rows=how.chunk, memory=None)
        evaluator = Evaluator(function, [_unit(segment(start, function.inputs))], chunks, reporter)
        try:
            values, certificate = _integrate(evaluator, start, options.rule, how.tol)
        finally:
            reporter.close()
    parts = unflat(values, [leaf.shape[1:] for leaf in function.inputs])
    leaves = tuple(part.to(leaf.dtype) for part, leaf in zip(parts, function.inputs, strict=True))
    _warn_if_zero(leaves, function)
    warn_if_missed(certificate)
    meta = {"method": "mean gradient", "integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    return Attribution(function.tree.build(leaves), certificate, True, meta)


def _unit(line: Piece) -> Piece:
    """The same points, with ones for the velocity."""

    def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
        points, velocities = line.at(t, rows)
        return points, tuple(map(torch.ones_like, velocities))

    return Piece(1.0, at, straight=True, made_of=line.made_of)


def _integrate(evaluator: Evaluator, start: Leaves, given: Rule | None, tol: float) -> tuple[Tensor, Certificate]:
    """Apply the given rule, or Gauss-Legendre's on twice as many panels until the estimates are within the tolerance."""
    examples = evaluator.function.examples
    rows, zeros = np.arange(examples), np.zeros(examples, np.int64)
    before = evaluator.scores_at(Nodes(np.zeros(examples), rows, zeros))
    after = evaluator.scores_at(Nodes(np.ones(examples), rows, zeros))
    check_rows(evaluator, after, rows)
    rule = given or _panels(1)
    while True:
        embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
        values, differences = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))[:, 0]
        certificate = Certificate(tuple(_certify(evaluator, start, rule, (before, after), values, differences, tol)))
        if given is not None or len(rule) >= MOST or certificate.converged:
            return values, certificate
        rule = _panels(2 * len(rule) // PANEL)


def _panels(count: int) -> Rule:
    """Gauss-Legendre's rule on each of some equal parts: it costs nothing to make, unlike one of a thousand nodes."""
    one = gauss_legendre(PANEL)
    assert one.embedded is not None
    nodes = (np.arange(count)[:, None] + one.nodes).ravel() / count
    return Rule(one.name, nodes, np.tile(one.weights, count) / count, np.tile(one.embedded, count) / count)


def _certify(
    evaluator: Evaluator,
    start: Leaves,
    rule: Rule,
    scores: tuple[Floats, Floats],
    values: Tensor,
    differences: Tensor,
    tol: float,
) -> list[ExampleCertificate]:
    """Score, residual and magnitude are those of the mean gradients times x - x'; the error is that of what is returned."""
    velocity = (flat(evaluator.function.inputs) - flat(start)).to(values.dtype)
    products = values * velocity

    def floats(tensor: Tensor) -> Floats:
        return tensor.double().cpu().numpy()

    missing = floats(products.sum(1)) - (scores[1] - scores[0])
    reach, magnitudes, sizes = floats(velocity.abs().amax(1)), floats(products.abs().sum(1)), floats(values.abs().sum(1))
    raised = floats(differences.abs().sum(1) * spread(differences))
    certificates = []
    for i, (before, after) in enumerate(zip(*scores, strict=True)):
        # Errors of e in the gradients make the sum miss at most |e| times the longest way: the sum's miss bounds |e| below.
        least = abs(missing[i]) / reach[i] if reach[i] > 0 else 0.0
        error = relative(max(raised[i], least), sizes[i]) if rule.embedded is not None else float("nan")
        done = error <= tol
        certificates.append(
            evaluator.certificate(
                i,
                tol,
                score=float(after),
                baseline_score=float(before),
                residual=float(missing[i]),
                magnitude=float(magnitudes[i]),
                error=error,
                status=Status.CONVERGED if done else Status.BUDGET,
                rule=rule.name,
                needed=None if done or not np.isfinite(error) else int(np.ceil(len(rule) * error / tol)),
            )
        )
    return certificates
