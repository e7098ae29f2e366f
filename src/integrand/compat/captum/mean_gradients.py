"""Integrates as Captum is asked to, and its mean gradients (``multiply_by_inputs=False``).

Dividing attributions by x - x' would lose every feature with x = x', and a path with a velocity of ones would be held to a
completeness that it does not have. So the gradients themselves are integrated, by the same adaptive loop or fixed rule as
everything else, and the error is that of what is returned. Completeness is still used where it holds: on a straight line the
mean gradient times x - x' sums to the change of the score.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...api import integrated_gradients
from ...arrays import Floats
from ...attribution import Attribution
from ...backends.torch_function import TorchFunction
from ...baselines.resolve import resolve_baselines
from ...certificate import Certificate, ExampleCertificate, Status
from ...engine import EngineOptions, leaves_of, opened, version_of, warn_if_missed, warn_if_zero
from ...evaluation.checks import check_rows
from ...evaluation.evaluator import Evaluator
from ...functions.model_state import undisturbed
from ...integration.adaptive import integrate_to_tolerance
from ...integration.certify import relative
from ...integration.fixed import contract
from ...paths.base import Nodes, Piece, segment
from ...quadrature.fixed_rules import Rule
from ...quadrature.panel_rules import norms_of, raising
from ...trees import Leaves, flat
from .captum_call import CaptumOptions, CaptumProblem
from .captum_errors import KNOB


def explain(problem: CaptumProblem, how: CaptumOptions) -> Attribution:
    """Integrate, and certify."""
    found = _integrated(problem, how) if how.multiply else _mean_gradients(problem, how)
    return replace(found, certificate=Certificate(tuple(replace(one, knob=KNOB) for one in found.certificate)))


def _integrated(problem: CaptumProblem, how: CaptumOptions) -> Attribution:
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


def _mean_gradients(problem: CaptumProblem, how: CaptumOptions) -> Attribution:
    """The mean gradient of each feature along the line, with a certificate of its own error."""
    options = EngineOptions.make(tol=how.tol, steps=how.n_steps, rule=how.rule, chunk=how.chunk)
    with ExitStack() as stack:
        stack.enter_context(undisturbed(problem.model))
        function = problem.function(how)
        [start] = resolve_baselines(problem.tree.build(problem.start), function, 1)
        line = segment(start, function.inputs)
        if options.rule is None:
            values, certificate = _to_tolerance(stack, function, line, start, options)
        else:
            values, certificate = _by_rule(opened(stack, function, [_unit(line)], options), start, options.rule, how.tol)
    leaves = leaves_of(values, function)
    warn_if_zero(leaves, function)
    warn_if_missed(certificate)
    meta = {"method": "mean gradient", "integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    return Attribution(function.tree.build(leaves), certificate, True, meta)


def _to_tolerance(
    stack: ExitStack, function: TorchFunction, line: Piece, start: Leaves, options: EngineOptions
) -> tuple[Tensor, Certificate]:
    """Mean gradients by the engine's adaptive loop: gradients times the longest distance that a feature of x moves.

    Errors of e in what is integrated then make the sum miss at most |e| of the change of the score, as the loop expects.
    """
    velocity = flat(function.inputs) - flat(start)
    reach = velocity.abs().amax(1)
    reach = torch.where(reach > 0, reach, 1.0)
    evaluator = opened(stack, function, [line], options, factors=reach.to(torch.promote_types(reach.dtype, torch.float32)))
    limit = options.max_evaluations
    outcome = integrate_to_tolerance(evaluator, options.tol, max_evaluations=limit, memory=None, regions=False)
    values = outcome.values / reach.to(outcome.values.dtype)[:, None]
    magnitudes = (values * velocity).abs().sum(1).tolist()
    examples = zip(outcome.examples, magnitudes, strict=True)
    return values, Certificate(tuple(replace(one, magnitude=magnitude) for one, magnitude in examples))


def _unit(line: Piece) -> Piece:
    """The points of a line, with ones for the velocity."""

    def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
        points, velocities = line.at(t, rows)
        return points, tuple(map(torch.ones_like, velocities))

    return Piece(1.0, at, straight=True, made_of=line.made_of)


def _by_rule(evaluator: Evaluator, start: Leaves, rule: Rule, tol: float) -> tuple[Tensor, Certificate]:
    """Mean gradients by a fixed rule, with ones for the velocity."""
    examples = evaluator.function.examples
    rows, zeros = np.arange(examples), np.zeros(examples, np.int64)
    before = evaluator.scores_at(Nodes(np.zeros(examples), rows, zeros))
    after = evaluator.scores_at(Nodes(np.ones(examples), rows, zeros))
    check_rows(evaluator, after, rows)
    embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
    values, differences = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))[:, 0]
    return values, Certificate(tuple(_certify(evaluator, start, rule, (before, after), values, differences, tol)))


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
    changes, roots = norms_of(differences)
    raised = changes * raising(changes, roots)
    certificates = []
    for i, (before, after) in enumerate(zip(*scores, strict=True)):
        # Errors of e in the gradients make the sum miss at most |e| times the longest distance, which bounds |e| below.
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
