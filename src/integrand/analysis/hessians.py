"""Integrated Hessians: which features act together, to a tolerance, with a certificate of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import Baseline, resolve_baselines
from ..certificate import Status, final_status
from ..engine import version_of, warn_if_same
from ..errors import ConvergenceWarning, InputError, ModelError, OptionError, warn
from ..evaluation.checks import check_rows
from ..evaluation.chunks import Chunks
from ..evaluation.evaluator import Evaluator
from ..evaluation.progress import ProgressOption, Reporter
from ..functions.layer import Layers
from ..functions.model_state import undisturbed
from ..functions.randomness import scores_again
from ..functions.target import Score, Target
from ..integration.adaptive import refine_until_done
from ..paths.base import Nodes, segment
from ..quadrature.log_kronrod import LOG_KRONROD
from ..trees import Tensors, flatten, unflat
from .hessian_kinks import find_kinks
from .hessian_panels import BLOCK_BYTES, FoundInteractions, HessianIntegral, HessianMesh, InteractionLimits
from .hessian_products import Curvature, Softened, twice_differentiable
from .interaction_result import InteractionCertificate, Interactions
from .interaction_rows import Features, InteractionRows, choose


def integrated_hessians(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline = None,
    *,
    features: Features = None,
    groups: Tensors | None = None,
    target: Target = None,
    score: Score = "logit",
    tol: float = 0.01,
    smooth: float | None = None,
    layer: Layers | None = None,
    layer_side: Literal["output", "input"] = "output",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    draws: int = 20,
    max_evaluations: int = 10_000,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = None,
) -> Interactions:
    """Feature interactions by Integrated Hessians (Janizek, Sturmfels, Lee 2021), to a tolerance.

    Integrated gradients of integrated gradients: entry (i, j) is the part of feature i's attribution that is due to feature j.
    The matrix is symmetric, and its rows add up to the integrated gradients.

    >>> result = integrated_hessians(lambda x: x[:, 0] * x[:, 1], torch.tensor([[2.0, 3.0]]))
    >>> result.values
    tensor([[[1.5000, 1.5000],
             [1.5000, 1.5000]]])

    Args:
        model: as in :func:`integrand.integrated_gradients`, and so for what is not described here. It is differentiated
            twice; attention runs by plain matrix products meanwhile. Half precision is refused: second derivatives in it
            are noise.
        x: one tensor, a tuple or a dict of tensors, one row per example; or a single example.
        baseline: where the path starts; several average.
        features: the features whose rows are wanted: a list of indices (ints where examples are flat, index tuples
            otherwise; where x has several tensors, a tensor's key or number comes first), or a boolean mask in the structure
            of one example. Without it every feature has a row, where there are at most 64.
        groups: integer labels in the structure of one example; the result is one number per pair of groups, and what
            happens within a group is its entry with itself. -1 leaves out.
        target: the output to explain.
        score: logit, probability or log-probability.
        tol: the relative L1 error over the returned numbers to integrate to, for each example.
        smooth: explain the model with softplus(x, beta=smooth) in the place of relu (likewise leaky_relu, relu6, hardtanh).
            Kinks are found one by one and counted without it; it is the way out where there are too many of them. The larger,
            the closer to the model, and the more evaluations.
        layer: explain the value of a submodule instead of x.
        layer_side: what the layer gives (``output``) or gets (``input``).
        args: further positional arguments of the model.
        kwargs: further keyword arguments.
        batched: whether the first dimension of x counts examples.
        draws: how many baselines to draw from a function.
        max_evaluations: points on the path that one example may take. Each costs a gradient and a Hessian-vector product
            for every row (and one more, where rows do not hold all features).
        memory: bytes that the run may hold: a third for activations, the rest for matrices of panels.
        chunk: points to run at a time; chosen by measurement if not given.
        progress: a bar or a callback.

    Returns:
        Rows against all features, in the structure of x with one more dimension in front of each example's; or pairs of groups.
    """
    _check(tol, smooth, max_evaluations, memory, chunk, draws)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
    with ExitStack() as stack:
        stack.enter_context(undisturbed(model))
        stack.enter_context(twice_differentiable())
        function = build(model, x, target=target, score=score, **call)
        _refuse_half(model, function)
        rows = choose(features, groups, function)
        starts = resolve_baselines(baseline, function, draws)
        warn_if_same(starts, function)
        plain = function.at_input.double().cpu().numpy()
        softened = None if smooth is None else stack.enter_context(Softened(float(smooth)))
        if softened is not None:
            function = _softer(function, softened)
        reporter = Reporter(progress)
        stack.callback(reporter.close)
        input_bytes = sum(leaf[0].nbytes for leaf in function.inputs)
        chunks = Chunks.start(function.inputs[0].device, rows=chunk, memory=memory, input_bytes=input_bytes)
        pieces = [segment(start, function.inputs, 1 / len(starts)) for start in starts]
        run = _Run(Curvature(Evaluator(function, pieces, chunks, reporter), rows), len(starts), smooth, plain)
        return run(InteractionLimits(tol, max_evaluations, BLOCK_BYTES if memory is None else memory // 3))


def _check(tol: float, smooth: float | None, max_evaluations: int, memory: int | None, chunk: int | None, draws: int) -> None:
    for name, value, what in (("tol", tol, "the relative error to reach, such as 0.01"), ("smooth", smooth, "such as 10")):
        if value is None and name == "smooth":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise OptionError(f"got {name}={value!r}; expected a positive number, {what}.")
    counts = {"max_evaluations": max_evaluations, "memory": memory, "chunk": chunk, "draws": draws}
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1):
            raise OptionError(f"got {name}={count!r}; expected a whole number from 1 on.")
    least = 2 * len(LOG_KRONROD.nodes)
    if max_evaluations < least:
        raise OptionError(f"got max_evaluations={max_evaluations}; expected at least {least}, two panels of points.")


def _refuse_half(model: Callable[..., Any], function: TorchFunction) -> None:
    """Second derivatives in half precision are noise, and so would be any estimate of their error."""
    used = [leaf.dtype for leaf in function.inputs] + [function.at_input.dtype]
    used += [parameter.dtype for parameter in model.parameters()] if isinstance(model, nn.Module) else []
    kind = function.inputs[0].device.type
    used += [torch.get_autocast_dtype(kind)] if torch.is_autocast_enabled(kind) else []
    half = [dtype for dtype in used if dtype in (torch.float16, torch.bfloat16)]
    if half:
        raise InputError(
            f"got a model or input in {str(half[0]).removeprefix('torch.')}; expected float32 or float64: second derivatives "
            "in half precision are noise. Use model.float() and x.float(), outside torch.autocast."
        )


def _softer(function: TorchFunction, softened: Softened) -> TorchFunction:
    """The same function with scores as the smooth model gives them."""
    softened.replaced = 0
    scores = scores_again(function)
    if not softened.replaced:
        raise ModelError(
            f"got smooth={softened.beta:g}, but the model calls none of relu, leaky_relu, relu6 and hardtanh (code compiled by "
            "torch.jit does not show its calls). Expected a model with kinks to smooth: leave smooth= out, or replace the "
            "activation in the model."
        )
    return replace(function, at_input=torch.as_tensor(scores, device=function.at_input.device).to(function.at_input.dtype))


@dataclass(frozen=True)
class _Run:
    """One call: what runs the model, and what is known of it."""

    curvature: Curvature
    baselines: int
    smooth: float | None
    plain: np.ndarray[Any, np.dtype[np.float64]]

    def __call__(self, limits: InteractionLimits) -> Interactions:
        evaluator, rows = self.curvature.evaluator, self.curvature.rows
        examples = evaluator.function.examples
        shares = np.full(self.baselines, 1 / self.baselines)
        every, pieces = np.arange(examples), np.arange(self.baselines)
        # All in one go: x then runs among other rows than in the user's batch, which shows whether rows influence each other.
        times = np.repeat([0.0, 1.0], examples * self.baselines)
        nodes = Nodes(times, np.tile(every, 2 * self.baselines), np.tile(np.repeat(pieces, examples), 2))
        ends = evaluator.scores_at(nodes).reshape(2, self.baselines, examples)
        check_rows(evaluator, ends[1, 0], every)
        integral = HessianIntegral(HessianMesh(self.curvature, shares), limits)
        refine_until_done(integral, [])
        found = integral.done | find_kinks(evaluator, rows, shares, integral.linear, limits)
        evaluator.tell(examples, int(evaluator.gradients.sum()))
        stop, start = ends[1, 0], ends[0].mean(0)
        certificates = tuple(
            self._certificate(e, found[e], float(stop[e]), float(start[e]), limits.tol) for e in range(examples)
        )
        _warn_if_missed(certificates)
        return self._dressed([found[e] for e in range(examples)], certificates)

    def _certificate(
        self, example: int, found: FoundInteractions, score: float, baseline: float, tol: float
    ) -> InteractionCertificate:
        evaluator, rows = self.curvature.evaluator, self.curvature.rows
        values = found.values
        attributions = rows.picked(found.attributions[None])[0]
        square = values[:, : len(rows)] if rows.labels is not None else values[:, list(rows.places)]
        magnitude = float(values.abs().sum())
        row_gap = float((values.sum(1) - attributions).abs().sum())
        asymmetry = float((square - square.T).abs().sum()) / 2
        error, status = max(found.error, row_gap, asymmetry), found.status
        if status is Status.CONVERGED and error > tol * magnitude:
            status = Status.JUMP
        relative = 0.0 if error == 0 else (error / magnitude if magnitude else math.inf)
        status, relative = final_status(status, relative)
        return InteractionCertificate(
            score=score,
            baseline_score=baseline,
            model_score=float(self.plain[example]),
            row_gap=row_gap,
            asymmetry=asymmetry,
            magnitude=magnitude,
            error=relative,
            tol=tol,
            gradients=int(evaluator.gradients[example]),
            products=int(self.curvature.products[example]),
            forwards=int(evaluator.forwards[example]) + 1,
            status=status,
            rule=found.rule,
            precision=evaluator.precision,
            target=evaluator.function.scorer.words[example],
            smooth=self.smooth,
            kinks=found.kinks,
        )

    def _dressed(self, found: list[FoundInteractions], certificates: tuple[InteractionCertificate, ...]) -> Interactions:
        evaluator, rows = self.curvature.evaluator, self.curvature.rows
        function = evaluator.function
        values = torch.stack([one.values for one in found])
        attributions = rows.picked(torch.stack([one.attributions for one in found])).to(evaluator.dtype)
        outside = None
        shaped: Tensors
        if rows.labels is not None:
            whole = values.to(evaluator.dtype)
            shaped, outside = whole[:, :, : len(rows)], whole[:, :, len(rows)]
        else:
            shaped = function.tree.build(_shaped(values, rows, function))
        if not function.batched:
            tree, parts = flatten(shaped)
            shaped, attributions = tree.build([part[0] for part in parts]), attributions[0]
            outside = None if outside is None else outside[0]
        meta = {"method": "integrated hessians", "baselines": str(self.baselines), "integrand": version_of()}
        meta |= {"torch": torch.__version__, "rule": certificates[0].rule}
        shapes = tuple(tuple(leaf.shape[1:]) for leaf in function.inputs)
        return Interactions(
            shaped, attributions, certificates, rows.names, rows.places, shapes, outside, function.batched, meta
        )


def _shaped(values: Tensor, rows: InteractionRows, function: TorchFunction) -> list[Tensor]:
    """Columns in the shapes of x: (examples, rows, ...) each."""
    parts = unflat(values.flatten(0, 1), [leaf.shape[1:] for leaf in function.inputs])
    pairs = zip(parts, function.inputs, strict=True)
    return [part.unflatten(0, (-1, len(rows))).to(leaf.dtype) for part, leaf in pairs]


def _warn_if_missed(certificates: Sequence[InteractionCertificate]) -> None:
    missed = [i for i, example in enumerate(certificates) if not example.converged]
    if missed:
        first = certificates[missed[0]]
        warn(
            f"the tolerance was not met for {len(missed)} of {len(certificates)} example(s); example {missed[0]}: "
            f"{first.status.value}: {first.remedy}.",
            ConvergenceWarning,
        )
