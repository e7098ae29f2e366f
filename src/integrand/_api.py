"""The front door."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ._trees import Leaves, Tensors, flat, matched, unflat
from .attribution import Attribution, Certificate, Promise, columns_of, promised
from .baselines import Baseline, settle_baselines
from .baselines._signal import warn_if_high
from .errors import ConvergenceWarning, InputError, OptionError, ZeroAttributionWarning
from .execute import Evaluator, Outcome, Precision, integrate_fixed, integrate_to_tolerance, settle
from .execute._devices import crowd_of, devices_of, sharing
from .execute._evaluate import LAST
from .execute._memory import Chunks
from .execute._progress import ProgressOption, Reporter
from .execute._remember import known_of
from .execute._steer import Steering
from .functions import Function, Score, Target, build, undisturbed
from .functions._layer import Layers
from .functions._parts import warn
from .paths import Path, Piece, Steered
from .paths._guided import STEERED_BREAK
from .paths._paths import segment
from .quadrature import RULES, Rule

RuleName = Literal["right", "left", "midpoint", "trapezoid", "simpson", "gauss-legendre"]


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
            (sigmoid for a single output).
        tol: the relative L1 error over the features to integrate to, sum|a - a*| / sum|a*|, for each example.
        steps: a fixed number of gradient evaluations instead; the certificate still says how far off they are.
        rule: with ``steps``, the rule: ``right`` is the paper's equation 3; default ``gauss-legendre``. Or a
            :class:`~integrand.quadrature.Rule` of your own.
        layer: explain the value of a submodule instead of x: its dotted name, the module, or several of them. Token
            ids need this: name the embedding. A module called more than once gives one tensor per
            call; several tensors come as a tuple, in the order of the calls.
        layer_side: what the layer gives (``output``) or gets (``input``).
        args: further positional arguments of the model; what has one entry per example is split with the batch, also
            inside lists, tuples and dicts (tuples of numbers are settings, and stay).
        kwargs: further keyword arguments, likewise.
        batched: whether the first dimension of x counts examples; found out if not given.
        draws: how many baselines to draw from a function. Torch's own random state is put back afterwards, so that
            draws from it repeat from call to call; give the function a generator of its own if they should not.
        mask: in the structure of one example, True for features to explain; the others get zero. The certificate is
            that of all features.
        groups: integer labels in the structure of one example; the result is one number per group, -1 leaves out. The
            tolerance is then that of the groups' sums, with all that is left out as one more group.
        create_graph: make the values differentiable, for attribution priors.
        max_evaluations: gradient evaluations that one example may take; checks (of the precision, of rounding, of claims),
            and an attempt in a lower precision that is given up, come on top.
        memory: bytes that the run may hold beyond model and result, as far as it can tell: a third for activations, the
            rest for gradients that the control keeps and works on. At least one row and one panel are held in any case.
        chunk: rows to run at a time; chosen by measurement if not given. The first forward pass, which settles the
            target, runs x as it is, without gradients.
        precision: ``"auto"``: as model and x are, but on a GPU in float16 or TF32 where that pays and moves them by
            two fifths of the tolerance at the most; or ``"float32"``, ``"tf32"``, ``"bfloat16"`` or ``"float16"`` throughout.
            What a precision moves is measured on the spot, at nodes evaluated in both, and counts into the error.
        devices: one entry per worker among which chunks are shared, steps of one input and inputs of a batch alike:
            ``["cuda:0", "cuda:1"]``, or ``["cpu", "cpu"]`` for two workers with half of the cores each. That of x must be
            among them: results are summed there. Each worker has a copy of the model; on the same device it shares the
            weights. The values and the evaluations are those of one worker, to rounding. The pass that ``create_graph``
            adds, and linear regions, run on the device of x alone.
        progress: True or False for a bar (None: on a terminal, after two seconds), or a function of
            :class:`~integrand.execute.Progress`.

    Returns:
        Values in the structure of x, with their certificate.
    """
    options = Options.make(tol, steps, rule, max_evaluations, memory, chunk, draws, progress, create_graph, precision, devices)
    with undisturbed(model, differentiable=create_graph):
        call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
        function = build(model, x, target=target, score=score, **call)
        starts = settle_baselines(baseline, function, draws)
        pieces = [segment(start, function.inputs, 1 / len(starts)) for start in starts]
        warn_if_same(starts, function)
        meta = {"method": "integrated gradients", "baselines": str(len(starts))}
        result = attribute(function, pieces, options, mask, groups, meta, promised())
        warn_if_high(result.certificate, function)
        return result


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
        devices: one entry per worker; a path that is laid on the way is laid on the device of x.
        progress: a bar or a callback.

    Returns:
        Values in the structure of the path's end, with their certificate.
    """
    options = Options.make(tol, steps, rule, max_evaluations, memory, chunk, 1, progress, create_graph, precision, devices)
    if not isinstance(path, Path | Steered):
        raise InputError(
            f"got a {type(path).__name__} as path; expected one of integrand.paths (Straight, Polyline, Curve, Blur, Guided, "
            "Average) or an object with end() and pieces(batched=...), or steer(gradient, batched=...)."
        )
    with undisturbed(model, differentiable=create_graph):
        call: dict[str, Any] = {"args": args, "kwargs": kwargs, "batched": batched}
        function = build(model, path.end(), target=target, score=score, **call, what="the path's end")
        meta = {"method": f"path attribution ({type(path).__name__})"}
        steering = Steering(function, memory=memory, chunk=chunk)
        pieces = steering.pieces(path)
        options = replace(options, max_evaluations=steering.rest(max_evaluations))
        return steering.counted(attribute(function, pieces, options, mask, groups, meta, promises_of(path)))


def promises_of(path: Path | Steered) -> tuple[Promise, ...]:
    """What a path keeps: what it says itself, or else what all of its kind keep."""
    said: tuple[Promise, ...] | None = getattr(path, "promises", None)
    return promised(**PATHS_BREAK if isinstance(path, Path) else STEERED_BREAK) if said is None else said


@dataclass(frozen=True)
class Options:
    """Everything that says how to integrate, checked."""

    tol: float
    rule: Rule | None
    max_evaluations: int
    memory: int | None
    chunk: int | None
    progress: ProgressOption
    create_graph: bool
    precision: Precision = "auto"
    devices: tuple[torch.device, ...] = ()

    @staticmethod
    def make(
        tol: float,
        steps: int | None,
        rule: str | Rule | None,
        max_evaluations: int,
        memory: int | None,
        chunk: int | None,
        draws: int,
        progress: ProgressOption,
        create_graph: bool,
        precision: Precision = "auto",
        devices: Sequence[str | torch.device] | None = None,
    ) -> Options:
        """Check the numbers and build the rule."""
        if isinstance(tol, bool) or not isinstance(tol, (int, float)) or not math.isfinite(tol) or tol <= 0:
            raise OptionError(f"got tol={tol!r}; expected a positive number, the relative error to reach, such as 0.01 for 1%.")
        counts = {"steps": steps, "max_evaluations": max_evaluations, "memory": memory, "chunk": chunk, "draws": draws}
        for name, value in counts.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise OptionError(f"got {name}={value!r}; expected a whole number from 1 on.")
        if steps is None and max_evaluations < 17:
            raise OptionError(
                f"got max_evaluations={max_evaluations}; expected at least 17 to integrate to a tolerance, or use steps=."
            )
        if create_graph and precision not in ("auto", "float32"):
            raise OptionError(
                f"got precision={precision!r} with create_graph=True; expected float32 for values to differentiate."
            )
        built, workers = _rule_of(rule, steps), devices_of(devices)
        return Options(tol, built, max_evaluations, memory, chunk, progress, create_graph, precision, workers)


def _rule_of(rule: str | Rule | None, steps: int | None) -> Rule | None:
    if isinstance(rule, Rule):
        if steps is not None and steps != len(rule):
            raise OptionError(f"got steps={steps} and a rule with {len(rule)} nodes; leave steps out.")
        return rule
    if rule is not None and rule not in RULES:
        raise OptionError(f"got rule={rule!r}; expected one of {', '.join(map(repr, RULES))}, or a Rule.")
    if rule is not None and steps is None:
        raise OptionError(f"got rule={rule!r} without steps=; a fixed rule needs its number of steps, for example steps=50.")
    return None if steps is None else RULES[rule or "gauss-legendre"](int(steps))


PATHS_BREAK = {"symmetry": "only the straight line treats all features alike"}


def attribute(
    function: Function,
    pieces: Sequence[Piece],
    options: Options,
    mask: Tensors | None,
    groups: Tensors | None,
    meta: dict[str, str],
    promises: tuple[Promise, ...] = (),
) -> Attribution:
    """Integrate, and dress the outcome."""
    if mask is not None and groups is not None:
        raise OptionError("got both mask= and groups=; expected one of them (label -1 in groups leaves features out).")
    reporter = Reporter(options.progress)
    chunks = _chunks_for(function, options)
    columns, count = None, 0
    if groups is not None:
        columns, count = columns_of(matched(groups, function.tree, what="groups"), function.inputs)
    evaluator = Evaluator(function, pieces, chunks, reporter, columns)
    workers = ExitStack()
    try:
        workers.enter_context(sharing(evaluator, options.devices))
        if options.rule is not None:
            settle(evaluator, "float32" if options.precision == "auto" else options.precision, options.tol)
            outcome = integrate_fixed(evaluator, options.rule, options.tol)
        else:
            outcome = integrate_to_tolerance(
                evaluator,
                options.tol,
                max_evaluations=options.max_evaluations,
                memory=options.memory,
                handover=not options.create_graph,
                precision="float32" if options.create_graph else options.precision,
            )
        values = outcome.values
        if options.create_graph:
            values = _differentiable(evaluator, outcome)
    finally:
        workers.close()
        reporter.close()
        found = {"bytes": chunks.each, "tuning": chunks.tuning if options.memory is None else None}
        known_of(function).update({name: value for name, value in found.items() if value})
    certificate, profile = Certificate(tuple(outcome.examples), promises), evaluator.profile()
    if options.create_graph:  # the pass with the graph counts too
        spent = evaluator.gradients.tolist()
        certificate = replace(
            certificate, examples=tuple(replace(one, gradients=spent[i]) for i, one in enumerate(certificate))
        )
    warn_if_missed(certificate)
    meta |= {"integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    if options.devices:
        meta["devices"] = ", ".join(map(str, options.devices))
    if columns is not None:
        # The column after the groups holds what belongs to none of them: the certificate accounts for all features.
        if not values.detach().any():
            _warn_if_zero(tuple(torch.zeros_like(leaf) for leaf in function.inputs), function, pieces)
        # Half precision is for the features; their sums need not be rounded to it.
        sums = values[:, :count].to(torch.promote_types(function.inputs[0].dtype, torch.float32))
        shown_sums = sums if function.batched else sums[0]
        return Attribution(shown_sums, certificate, function.batched, meta, profile=profile)
    shapes = [leaf.shape[1:] for leaf in function.inputs]
    leaves = tuple(part.to(leaf.dtype) for part, leaf in zip(unflat(values, shapes), function.inputs, strict=True))
    _warn_if_zero(leaves, function, pieces)
    shown = leaves if function.batched else tuple(leaf[0] for leaf in leaves)
    if mask is not None:
        shown = _masked(shown, mask, function)
    return Attribution(function.tree.build(shown), certificate, function.batched, meta, profile=profile)


def _chunks_for(function: Function, options: Options) -> Chunks:
    """How many rows at a time, by what is known of the model and by what the user says."""
    notes = known_of(function)
    chunks = Chunks.start(
        function.inputs[0].device,
        rows=options.chunk,
        memory=options.memory,
        row_bytes=sum(leaf[0].nbytes for leaf in function.inputs),
        each=notes.get("bytes", 0),
        crowd=crowd_of(options.devices),
        layouts=any(leaf.ndim in LAST for leaf in function.inputs),
    )
    if notes.get("tuning") is not None and options.chunk is None:
        chunks.resume(notes["tuning"])
    return chunks


def _differentiable(evaluator: Evaluator, outcome: Outcome) -> Tensor:
    """The same weighted sum once more, with its graph."""
    examples = evaluator.function.examples
    key = np.stack([outcome.nodes.pieces, outcome.nodes.rows, outcome.nodes.t], 1)
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    weights = np.bincount(inverse.ravel(), outcome.weights, len(first))
    nodes = outcome.nodes[first]
    used = weights != 0
    nodes, weights = nodes[np.flatnonzero(used)], weights[used]
    total = torch.zeros(examples, evaluator.features, dtype=torch.float64, device=evaluator.device)
    for index, terms in evaluator.differentiable_at(nodes):
        factor = torch.as_tensor(weights[index], device=evaluator.device)[:, None]
        total = total.index_add(0, torch.as_tensor(nodes.rows[index], device=evaluator.device), terms * factor)
    return total


def _masked(leaves: Leaves, mask: Tensors, function: Function) -> Leaves:
    masks = matched(mask, function.tree, what="mask")
    out = []
    for leaf, part in zip(leaves, masks, strict=True):
        shape = leaf.shape[1:] if function.batched else leaf.shape
        try:
            wide = part.to(leaf.device, torch.bool).expand(shape)
        except RuntimeError:
            raise InputError(
                f"mask has shape {tuple(part.shape)}; expected {tuple(shape)}, the shape of one example, "
                "or one that broadcasts to it."
            ) from None
        out.append(torch.where(wide, leaf, torch.zeros_like(leaf)))
    return tuple(out)


def warn_if_same(starts: Sequence[Leaves], function: Function) -> None:
    """Warn where the input equals every baseline."""
    same = torch.ones(function.examples, dtype=torch.bool)
    for start in starts:
        for a, b in zip(start, function.inputs, strict=True):
            same &= flat([a == b]).all(1).cpu() if a.shape[0] == b.shape[0] else torch.zeros_like(same)
    if same.any():
        which = same.nonzero().flatten().tolist()
        warn(
            f"the input equals the baseline for example(s) {which[:5]}: every attribution there is zero. Expected a "
            "baseline that differs from the input; choose another one.",
            ZeroAttributionWarning,
        )


def _warn_if_zero(leaves: Leaves, function: Function, pieces: Sequence[Piece] = ()) -> None:
    what, use = "x", "this input (an integer cast or a threshold hides it)"
    if function.layered:
        what, use = "the layer's value", "this value (of values that are computed from each other only the last counts)"
    for i, (name, leaf, value) in enumerate(zip(function.tree.names, leaves, function.inputs, strict=True)):
        if leaf.detach().any():
            continue
        if not _stands_still(pieces, function, i) if pieces else bool(value.any()):
            warn(
                f"every attribution to {what}{name} is exactly zero: the score does not depend on it along the path from "
                f"baseline to input. Check the target, and that the model uses {use}.",
                ZeroAttributionWarning,
            )


def _stands_still(pieces: Sequence[Piece], function: Function, i: int) -> bool:
    """Whether the baseline has the same i-th tensor as the input: its attributions are zero by the user's own choice."""
    rows = torch.arange(function.examples, device=function.inputs[i].device)
    return all(
        piece.straight and not piece.at(torch.zeros(len(rows), device=rows.device), rows)[1][i].any() for piece in pieces
    )


def warn_if_missed(certificate: Certificate) -> None:
    """Warn where a certificate says that its tolerance was not met."""
    missed = [i for i, example in enumerate(certificate) if not example.converged]
    if missed:
        warn(
            f"the tolerance was not met for {len(missed)} of {len(certificate)} example(s); example {missed[0]}: "
            f"{certificate[missed[0]].status.value}: {certificate[missed[0]].remedy}.",
            ConvergenceWarning,
        )


@cache
def version_of() -> str:
    """The installed version of this package."""
    try:
        return version("integrand")
    except PackageNotFoundError:
        return "unknown"
