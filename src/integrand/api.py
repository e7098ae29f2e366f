"""The front door: integrated gradients and attribution along any path. Signatures and what they mean, nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Never

import torch

from .attribution import Attribution
from .backends.precision import Precision
from .baselines.path_start import VERY_START, warn_if_early
from .baselines.resolve import Baseline, resolve_baselines
from .certificate import promised
from .engine import EngineOptions, attribute, backend_of, promises_of, warn_if_same, warn_if_still
from .errors import InputError
from .evaluation.path_steering import Steering
from .evaluation.progress import ProgressOption
from .functions.layer import Layers
from .functions.target import Score, Target
from .paths.base import Path, segment
from .paths.steering import Steered
from .quadrature.fixed_rules import Rule
from .trees import Tensors

RuleName = Literal["right", "left", "midpoint", "trapezoid", "simpson", "gauss-legendre"]


def _without_others(function: Callable[..., Any]) -> inspect.Signature:
    """A signature without ``**``."""
    signature = inspect.signature(function)
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    return signature.replace(parameters=named)


def integrated_gradients(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline = None,
    *,
    target: Target = None,
    score: Score = "logit",
    tol: float = 0.01,
    steps: int | None = None,
    rule: RuleName | Rule | None = None,
    layer: Layers | None = None,
    layer_side: Literal["output", "input"] = "output",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    draws: int = 20,
    mask: Tensors | None = None,
    groups: Tensors | None = None,
    create_graph: bool = False,
    max_evaluations: int = 4000,
    memory: int | None = None,
    chunk: int | None = None,
    precision: Precision = "auto",
    devices: Sequence[str | torch.device] | None = None,
    progress: ProgressOption = None,
    tune: bool = False,
    **captum: Never,
) -> Attribution:
    """Integrated gradients of a score, to a tolerance.

    >>> def f(x):  # the paper's first example of saturation
    ...     return 1 - torch.relu(1 - x).sum(1)
    >>> result = integrated_gradients(f, torch.tensor([[2.0]]))
    >>> result.values
    tensor([[1.]])

    Args:
        model: an ``nn.Module`` in eval mode, or any callable of tensors.
        x: one tensor, a tuple of tensors (positional) or a dict of them (keywords), one row per example; or a single
            example, where the model takes no batch dimension.
        baseline: where the path starts, in the structure of x. None means zero; a number fills; a tensor without the
            batch dimension, or with one row, is shared; several baselines average: a tensor with one more dimension in
            front, a list of baselines, or a function of no arguments that draws one (``draws`` times). With ``layer``,
            a model input or a value of the layer (numbers, and None, are values; a tensor that fits both is an input).
        target: the output to explain: an int, one per example, an index tuple for outputs with more dimensions, or a
            function from the output to one score per example. None means the only output, else the top class of x.
            Several outputs of one input are equal rows of x with a list of targets: they share forward passes.
        score: ``logit`` takes outputs as they are; ``probability`` and ``log-probability`` pass them through softmax
            (sigmoid for a single output). Outputs that are probabilities already are refused, since they would pass twice.
        tol: the relative L1 error over the features to integrate to, sum|a - a*| / sum|a*|, for each example.
        steps: a fixed number of gradient evaluations instead; the certificate still says how far off they are.
        rule: with ``steps``, the rule: ``right`` is the paper's equation 3; default ``gauss-legendre``. Or a
            :class:`~integrand.quadrature.Rule` of your own.
        layer: explain the value of a submodule instead of x: its dotted name, the module, or several of them. Token
            ids need this: name the embedding. A module called more than once gives one tensor per
            call; several tensors come as a tuple, in the order of the calls.
        layer_side: what the layer gives (``output``) or gets (``input``).
        args: further positional arguments of the model; what has one entry per example is split with the batch, also
            inside lists, tuples and dicts (tuples of numbers are settings, and stay). A setting that only looks like one
            entry per example is refused, as far as a run on one row shows it; put it into the model with functools.partial.
        kwargs: further keyword arguments, likewise.
        batched: whether the first dimension of x counts examples; found out if not given.
        draws: how many baselines to draw from a function. Torch's own random state is put back afterwards, so that
            draws from it repeat from call to call; give the function a generator of its own if they should not.
        mask: in the structure of one example, True (or 1) for features to explain; the others get zero. The certificate is
            that of all features.
        groups: integer labels, 0, 1, ..., in the structure of one example; the result is one number per group, -1 leaves out.
            The tolerance is then that of the groups' sums, with all that is left out as one more group.
        create_graph: make the values differentiable, for attribution priors.
        max_evaluations: gradient evaluations that one example may take; checks (of the precision, of rounding, of claims),
            and an attempt in a lower precision that is given up, come on top.
        memory: bytes that the run may hold beyond model and result, as far as it can tell: a third for activations, the
            rest for gradients that the adaptive loop keeps and works on. At least one row and one panel are held in any case.
        chunk: rows to run at a time; by default what autograd saves for a row decides, and a model that takes single rows only
            gets them. The first forward pass, which finds the target, runs x as it is, without gradients.
        precision: ``"auto"``: as model and x are, but on a GPU with backward passes in TF32, or all in float16 or TF32, where
            that pays and shifts attributions by two fifths of the tolerance at the most; and a model in half precision as in
            float32, without a copy of its weights, where it could not meet the tolerance otherwise. Or ``"float32"``,
            ``"tf32-backward"``, ``"tf32"``, ``"bfloat16"`` or ``"float16"`` throughout. The shift is measured on the spot, at
            nodes evaluated in both, and counts into the error.
        devices: experimental. One entry per worker among which the steps of one input and the inputs of a batch are shared:
            ``["cuda:0", "cuda:1"]``, or ``["cpu", "cpu"]`` for two workers with half of the cores each. That of x must be
            among them: results are summed there. Each worker has a copy of the model; on the same device it shares the
            weights. The values and the evaluations are those of one worker, to rounding. The pass that ``create_graph``
            adds, and linear regions, run on the device of x alone.
        progress: True or False for a bar (None: on a terminal or in a notebook, after two seconds), or a function of
            :class:`~integrand.Progress`.
        tune: on a CPU, try other numbers of rows and channels last by the clock, on chunks that have to be evaluated anyway,
            and remember the fastest for this model. The values then change in the last digits from call to call; without it the
            same call gives the same bits.
        captum: none. Options of Captum's are refused, with what to write instead.

    Returns:
        Values in the structure of x, with their certificate.
    """
    if captum:
        from .functions.captum_names import option_error

        raise option_error(captum)
    options = EngineOptions.make(
        tol=tol,
        steps=steps,
        rule=rule,
        max_evaluations=max_evaluations,
        memory=memory,
        chunk=chunk,
        draws=draws,
        progress=progress,
        create_graph=create_graph,
        precision=precision,
        devices=devices,
        tune=tune,
    )
    backend = backend_of(x)
    with backend.undisturbed(model, differentiable=create_graph):
        call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
        function = backend.build(model, x, target=target, score=score, **call)
        starts = resolve_baselines(baseline, function, draws)
        pieces = [segment(start, function.inputs, 1 / len(starts)) for start in starts]
        warn_if_same(starts, function)
        meta = {"method": "integrated gradients", "baselines": str(len(starts))}
        result = attribute(function, pieces, options, mask, groups, meta, promised())
        if score != "logit":
            from .baselines.class_signal import warn_if_high

            warn_if_high(result.certificate, function)
        if baseline is None and result.profile is not None:
            t = result.profile.t
            if ((t > 0) & (t < VERY_START)).any():  # most runs have no nodes there
                warn_if_early(result)
        return result


# Editors and help() show the options that there are.
integrated_gradients.__signature__ = _without_others(integrated_gradients)  # type: ignore[attr-defined]


def path_attribution(
    model: Callable[..., Any],
    path: Path | Steered,
    *,
    target: Target = None,
    score: Score = "logit",
    tol: float = 0.01,
    steps: int | None = None,
    rule: RuleName | Rule | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    mask: Tensors | None = None,
    groups: Tensors | None = None,
    create_graph: bool = False,
    max_evaluations: int = 4000,
    memory: int | None = None,
    chunk: int | None = None,
    precision: Precision = "auto",
    devices: Sequence[str | torch.device] | None = None,
    progress: ProgressOption = None,
    tune: bool = False,
) -> Attribution:
    """Attribution along any path, to a tolerance.

    Args:
        model: as in :func:`integrated_gradients`, and so for what is not described here.
        path: a :class:`~integrand.paths.Straight`, :class:`~integrand.paths.Polyline`,
            :class:`~integrand.paths.Curve`, :class:`~integrand.paths.Blur`, :class:`~integrand.paths.Average`, or an object
            of your own with their two methods. Or one that is laid on the way, such as :class:`~integrand.paths.Guided`:
            the certificate counts the gradients that this takes.
        target: the output to explain; None means the only output, else the top class at the end of the path.
        score: logit, probability or log-probability.
        tol: the relative L1 error to integrate to.
        steps: a fixed number of gradient evaluations on each smooth piece of the path instead.
        rule: with ``steps``, the rule.
        args: further positional arguments of the model.
        kwargs: further keyword arguments.
        batched: whether the first dimension counts examples.
        mask: features to explain.
        groups: labels to sum by.
        create_graph: make the values differentiable.
        max_evaluations: gradient evaluations that one example may take.
        memory: bytes that the run may hold.
        chunk: rows to run at a time.
        precision: what the model runs in.
        devices: experimental. One entry per worker; a path that is laid on the way is laid on the device of x.
        progress: a bar or a callback.
        tune: choose the number of rows by the clock.

    Returns:
        Values in the structure of the path's end, with their certificate.
    """
    options = EngineOptions.make(
        tol=tol,
        steps=steps,
        rule=rule,
        max_evaluations=max_evaluations,
        memory=memory,
        chunk=chunk,
        progress=progress,
        create_graph=create_graph,
        precision=precision,
        devices=devices,
        tune=tune,
    )
    if not isinstance(path, Path | Steered):
        raise InputError(
            f"got a {type(path).__name__} as path; expected one of integrand.paths (Straight, Polyline, Curve, Blur, Guided, "
            "Average) or an object with end() and pieces(batched=...), or steer(gradient, batched=...)."
        )
    end = path.end()
    backend = backend_of(end)
    with backend.undisturbed(model, differentiable=create_graph):
        call: dict[str, Any] = {"args": args, "kwargs": kwargs, "batched": batched}
        function = backend.build(model, end, target=target, score=score, **call, what="the path's end")
        meta = {"method": f"path attribution ({type(path).__name__})"}
        steering = Steering(function, memory=memory, chunk=chunk)
        pieces = steering.pieces(path)
        warn_if_still(pieces, function)
        options = replace(options, max_evaluations=steering.rest(max_evaluations))
        return steering.counted(attribute(function, pieces, options, mask, groups, meta, promises_of(path)))
