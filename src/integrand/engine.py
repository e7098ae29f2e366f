"""The engine: checked options, a function and a path in; evaluations, an integral and an attribution out."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import cast

import numpy as np
import torch
from torch import Tensor

from .attribution import Attribution, columns_of
from .backends import Backend
from .backends.precision import Precision
from .backends.torch_function import TorchFunction
from .certificate import Certificate, ExampleCertificate, Promise, Status, promised
from .errors import ConvergenceWarning, InputError, OptionError, ZeroAttributionWarning, warn
from .evaluation.chunks import CHANNELS_LAST, Chunks
from .evaluation.evaluator import Evaluator
from .evaluation.progress import ProgressOption, Reporter
from .functions.model_notes import notes_at
from .functions.randomness import refuse_randomness
from .integration.adaptive import integrate_to_tolerance
from .integration.certify import Outcome, relative
from .paths.base import Path, Piece
from .paths.guided import STEERED_BREAK
from .paths.steering import Steered
from .quadrature.fixed_rules import RULES, Rule
from .quadrature.panel_rules import FIVE_POINT
from .trees import Leaves, Tensors, add_rows, flat, matched, on_device, unflat
from .version import version_of as version_of

BACKENDS = {"torch": "torch_function"}
"""The module in :mod:`integrand.backends` for each framework, by the name of the package that its tensors come from."""

MOST_REPEATS = 16
"""Calls to compare before a tolerance is said to be missed: a tenth of what was spent, and no more than this."""

PATHS_BREAK = {"symmetry": "only the straight line treats all features alike"}


@dataclass(frozen=True)
class EngineOptions:
    """Everything that says how to integrate, checked; see :func:`integrand.integrated_gradients`."""

    tol: float
    rule: Rule | None
    max_evaluations: int
    memory: int | None
    chunk: int | None
    progress: ProgressOption
    create_graph: bool
    precision: Precision = "auto"
    devices: tuple[torch.device, ...] = ()
    tune: bool = False

    @staticmethod
    def make(
        *,
        tol: float,
        steps: int | None = None,
        rule: str | Rule | None = None,
        max_evaluations: int = 4000,
        memory: int | None = None,
        chunk: int | None = None,
        draws: int = 1,
        progress: ProgressOption = None,
        create_graph: bool = False,
        precision: Precision = "auto",
        devices: Sequence[str | torch.device] | None = None,
        tune: bool = False,
    ) -> EngineOptions:
        """Check the numbers and build the rule."""
        number = isinstance(tol, (int, float, np.integer, np.floating)) and not isinstance(tol, bool)
        if not number or not math.isfinite(tol) or tol <= 0:
            raise OptionError(f"got tol={tol!r}; expected a positive number, the relative error to reach, such as 0.01 for 1%.")
        counts = {"steps": steps, "max_evaluations": max_evaluations, "memory": memory, "chunk": chunk, "draws": draws}
        for name, value in counts.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise OptionError(f"got {name}={value!r}; expected a whole number from 1 on.")
        least = FIVE_POINT.count(2)
        if steps is None and max_evaluations < least:
            raise OptionError(
                f"got max_evaluations={max_evaluations}; expected at least {least} to integrate to a tolerance, or use steps=."
            )
        if create_graph and precision not in ("auto", "float32"):
            raise OptionError(
                f"got precision={precision!r} with create_graph=True; expected float32 for values to differentiate."
            )
        workers: tuple[torch.device, ...] = ()
        if devices is not None:
            from .evaluation.workers import devices_of

            workers = devices_of(devices)
        built = _rule_of(rule, steps)
        return EngineOptions(
            float(tol), built, max_evaluations, memory, chunk, progress, create_graph, precision, workers, bool(tune)
        )


def backend_of(x: object) -> Backend:
    """The backend for a tensor, or for the first of a tuple, list or dict of tensors; PyTorch's for everything else.

    Nothing is imported for a framework whose tensors the user does not pass.

    >>> backend_of({"pixels": torch.zeros(1)}).__name__
    'integrand.backends.torch_function'
    """
    while isinstance(x, (Mapping, tuple, list)) and len(x):
        x = next(iter(x.values() if isinstance(x, Mapping) else x))
    package = type(x).__module__.partition(".")[0]
    return cast("Backend", import_module(f"integrand.backends.{BACKENDS.get(package, BACKENDS['torch'])}"))


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


def promises_of(path: Path | Steered) -> tuple[Promise, ...]:
    """Which axioms a path keeps: what it says itself, or else what all paths of its kind keep."""
    said: tuple[Promise, ...] | None = getattr(path, "promises", None)
    return promised(**PATHS_BREAK if isinstance(path, Path) else STEERED_BREAK) if said is None else said


def attribute(
    function: TorchFunction,
    pieces: Sequence[Piece],
    options: EngineOptions,
    mask: Tensors | None,
    groups: Tensors | None,
    meta: dict[str, str],
    promises: tuple[Promise, ...] = (),
) -> Attribution:
    """Integrate the gradients of a function along a path, and turn the outcome into an attribution."""
    if mask is not None and groups is not None:
        raise OptionError("got both mask= and groups=; expected one of them (label -1 in groups leaves features out).")
    masks = None if mask is None else _checked_masks(mask, function)
    columns, count = None, 0
    if groups is not None:
        columns, count = columns_of(matched(groups, function.tree, what="groups"), function.inputs)
    with ExitStack() as stack:
        evaluator = opened(stack, function, pieces, options, columns)
        stack.enter_context(blaming_baselines(function, _starts(function, pieces)))
        if options.rule is not None:
            outcome = _by_fixed_rule(evaluator, options, options.rule)
        else:
            outcome = integrate_to_tolerance(
                evaluator,
                options.tol,
                max_evaluations=options.max_evaluations,
                memory=options.memory,
                regions=not options.create_graph,
                precision="float32" if options.create_graph else options.precision,
                differentiable=options.create_graph,
            )
        values, examples = outcome.values, tuple(outcome.examples)
        if options.create_graph:
            values = _differentiable(evaluator, outcome)
            examples = _certified_again(evaluator, outcome, values.detach())
    certificate, profile = Certificate(examples, promises), evaluator.profile()
    if missed(certificate):  # as it may be where the model holds a random generator of its own
        refuse_randomness(function, min(max(int(evaluator.gradients.min()) // 10, 1), MOST_REPEATS))
    warn_if_missed(certificate)
    meta |= {"integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    if options.devices:
        meta["devices"] = ", ".join(map(str, options.devices))
    if columns is not None:
        # The column after the groups holds what belongs to none of them: the certificate accounts for all features.
        if not values.detach().any():
            warn_if_zero(tuple(torch.zeros_like(leaf) for leaf in function.inputs), function, pieces, certificate)
        # Half precision is for the features; their sums need not be rounded to it.
        sums = values[:, :count].to(torch.promote_types(function.inputs[0].dtype, torch.float32))
        shown_sums = sums if function.batched else sums[0]
        draws = outcome.draws and outcome.draws.first(count)
        return Attribution(shown_sums, certificate, function.batched, meta, profile=profile, draws=draws)
    leaves = leaves_of(values, evaluator.function)
    warn_if_zero(leaves, function, pieces, certificate)
    shown = leaves if function.batched else tuple(leaf[0] for leaf in leaves)
    draws = outcome.draws
    if masks is not None:
        draws = draws and draws.within(flat([wide[None] for wide in masks])[0])
        shown = tuple(torch.where(wide, leaf, torch.zeros_like(leaf)) for leaf, wide in zip(shown, masks, strict=True))
    return Attribution(function.tree.build(shown), certificate, function.batched, meta, profile=profile, draws=draws)


@contextmanager
def blaming_baselines(function: TorchFunction, starts: Iterable[Leaves]) -> Iterator[None]:
    """A context in which a model that fails at a baseline, and not at the input, raises an error that says so.

    Args:
        function: what is explained.
        starts: the baselines, which are looked at where the model fails.
    """
    try:
        yield
    except Exception as error:
        from .functions.model_failures import refuse_baseline

        refuse_baseline(function, starts, error)
        raise


def _starts(function: TorchFunction, pieces: Sequence[Piece]) -> Iterator[Leaves]:
    """Where each piece of a path starts, for every example."""
    every = torch.arange(function.examples, device=function.inputs[0].device)
    for piece in pieces:
        yield piece.points_at(torch.zeros(len(every), dtype=torch.float64, device=every.device), every)


def opened(
    stack: ExitStack,
    function: TorchFunction,
    pieces: Sequence[Piece],
    options: EngineOptions,
    columns: Tensor | None = None,
    factors: Tensor | None = None,
) -> Evaluator:
    """An evaluator for a function along a path: its chunks, its progress bar and its workers, which end with the stack."""
    chunks = chunks_for(function, options)
    reporter = None
    if options.progress is not None or sys.stderr.isatty():
        reporter = Reporter(options.progress)
        stack.callback(reporter.close)
    evaluator = Evaluator(function, pieces, chunks, reporter, columns, factors)
    if options.tune:
        notes = notes_at(function.call.model, function.inputs, layered=function.layered)
        chunks.tuning = notes.get("tuning") if chunks.tunes else None
        stack.callback(lambda: notes.update(tuning=chunks.tuning or notes.get("tuning")))
    if options.devices:
        from .evaluation.workers import shared_among

        stack.enter_context(shared_among(evaluator, options.devices))
        chunks.lighter = None  # each worker has a model of its own
    return evaluator


def chunks_for(function: TorchFunction, options: EngineOptions) -> Chunks:
    """How many rows to run at a time, by the size of the input and by what the user says."""
    return Chunks.start(
        function.inputs[0].device,
        rows=options.chunk,
        memory=options.memory,
        input_bytes=sum(leaf[0].nbytes for leaf in function.inputs),
        share=max(map(options.devices.count, options.devices), default=1),
        tunes=options.tune,
        layouts=any(leaf.ndim in CHANNELS_LAST for leaf in function.inputs),
    )


def _by_fixed_rule(evaluator: Evaluator, options: EngineOptions, rule: Rule) -> Outcome:
    """The integral by the fixed rule that the user asked for, in full precision unless another one is asked for."""
    from .evaluation.precision_choice import choose_precision
    from .integration.fixed import integrate_fixed

    choose_precision(evaluator, "float32" if options.precision == "auto" else options.precision, options.tol)
    return integrate_fixed(evaluator, rule, options.tol)


def leaves_of(values: Tensor, function: TorchFunction) -> Leaves:
    """Values (examples, features) as tensors in the shapes and dtypes of the explained ones."""
    shapes = [leaf.shape[1:] for leaf in function.inputs]
    return tuple(part.to(leaf.dtype) for part, leaf in zip(unflat(values, shapes), function.inputs, strict=True))


def _differentiable(evaluator: Evaluator, outcome: Outcome) -> Tensor:
    """The weighted sum of an outcome computed once more, with its graph."""
    examples = evaluator.function.examples
    key = np.stack([outcome.nodes.pieces, outcome.nodes.rows, outcome.nodes.t], 1)
    _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
    weights = np.bincount(inverse.ravel(), outcome.weights, len(first))
    nodes = outcome.nodes[first]
    used = weights != 0
    nodes, weights = nodes[np.flatnonzero(used)], weights[used]
    total = torch.zeros(examples, evaluator.features, dtype=torch.float64, device=evaluator.device)
    for index, terms in evaluator.differentiable_at(nodes):
        factor = on_device(weights[index], evaluator.device)[:, None]
        add_rows(total, on_device(nodes.rows[index], evaluator.device), terms * factor)
    return total


SAME = 64
"""Roundings by which values that are computed once more may differ, summed in another order, without anything to say."""

DIFFERS = (
    "with their graph the gradients are not those that were certified: let the model's own backward functions give the same "
    "under torch.enable_grad(), or sums a fixed order (torch.use_deterministic_algorithms)"
)


def _certified_again(evaluator: Evaluator, outcome: Outcome, values: Tensor) -> tuple[ExampleCertificate, ...]:
    """The certificates of an outcome for values that were computed once more: by what they differ, they may be off."""
    moved = (values - outcome.values).double()
    out = []
    for i, one in enumerate(outcome.examples):
        one = replace(one, gradients=int(evaluator.gradients[i]))  # the pass with the graph counts too
        change, size = float(moved[i].abs().sum()), float(values[i].abs().sum())
        if change > SAME * evaluator.epsilon * max(one.magnitude, size):
            error = one.error + relative(change, size)
            status = one.status if not one.converged else Status.CONVERGED if error <= one.tol else Status.BUDGET
            knob, residual = DIFFERS if one.converged else one.knob, one.residual + float(moved[i].sum())
            one = replace(one, error=error, residual=residual, magnitude=size, status=status, knob=knob)
        out.append(one)
    return tuple(out)


def _checked_masks(mask: Tensors, function: TorchFunction) -> Leaves:
    """Which features to show, in the shapes of one example; before anything is integrated, so that a mistake shows at once."""
    out = []
    for part, leaf in zip(matched(mask, function.tree, what="mask"), function.inputs, strict=True):
        shape = leaf.shape[1:]
        other = part[(part != 0) & (part != 1)]
        if other.numel():
            raise InputError(
                f"mask holds {other[0].item()}; expected True (or 1) for features to explain and False (or 0) for the others. "
                "Choose with a comparison, such as mask > 0.5; to weigh features, multiply the values."
            )
        try:
            out.append(part.to(leaf.device, torch.bool).expand(shape))
        except RuntimeError:
            raise InputError(
                f"mask has shape {tuple(part.shape)}; expected {tuple(shape)}, the shape of one example, "
                "or one that broadcasts to it."
            ) from None
    return tuple(out)


def warn_if_same(starts: Sequence[Leaves], function: TorchFunction) -> None:
    """Warn where the input equals every baseline."""
    same = torch.ones(function.examples, dtype=torch.bool)
    for start in starts:
        for a, b in zip(start, function.inputs, strict=True):
            if a.stride(0) == b.stride(0) == 0:  # one row, expanded
                a, b = a[:1], b[:1]
            same &= flat([a == b]).all(1).cpu() if a.shape[0] == b.shape[0] else torch.zeros_like(same)
    if same.any():
        _warn_of_no_distance(same)


def warn_if_still(pieces: Sequence[Piece], function: TorchFunction) -> None:
    """Warn where a path of straight pieces never leaves the input."""
    rows = torch.arange(function.examples, device=function.inputs[0].device)
    still = torch.ones(function.examples, dtype=torch.bool)
    for piece in pieces:
        if piece.straight:
            velocities = piece.at(torch.zeros(len(rows), device=rows.device), rows)[1]
            still &= ~flat([leaf != 0 for leaf in velocities]).any(1).cpu()
        if not piece.straight or not still.any():
            return
    _warn_of_no_distance(still)


def _warn_of_no_distance(same: Tensor) -> None:
    """Warn of the examples, (examples,), whose path has no length."""
    which = same.nonzero().flatten().tolist()
    warn(
        f"the input equals the baseline for example(s) {which[:5]}: every attribution there is zero. Expected a "
        "baseline that differs from the input; choose another one.",
        ZeroAttributionWarning,
    )


def warn_if_zero(
    leaves: Leaves, function: TorchFunction, pieces: Sequence[Piece] = (), certificate: Certificate | None = None
) -> None:
    """Warn where every attribution to a tensor is zero though it changes along the path."""
    why = "the score does not depend on it"
    if certificate is not None and any(example.status is Status.JUMP for example in certificate):
        why = "no gradient reaches it, though the score changes,"
    what, use = "x", "this input (an integer cast or a threshold hides it)"
    if function.layered:
        what, use = "the layer's value", "this value (of values that are computed from each other only the last counts)"
    for i, (name, leaf, value) in enumerate(zip(function.tree.names, leaves, function.inputs, strict=True)):
        if leaf.detach().any():
            continue
        if not _stands_still(pieces, function, i) if pieces else bool(value.any()):
            warn(
                f"every attribution to {what}{name} is exactly zero: {why} along the path from "
                f"baseline to input. Check the target, and that the model uses {use}.",
                ZeroAttributionWarning,
            )


def _stands_still(pieces: Sequence[Piece], function: TorchFunction, i: int) -> bool:
    """Whether the baseline has the same i-th tensor as the input: its attributions are zero by the user's own choice."""
    rows = torch.arange(function.examples, device=function.inputs[i].device)
    return all(
        piece.straight and not piece.at(torch.zeros(len(rows), device=rows.device), rows)[1][i].any() for piece in pieces
    )


def missed(certificate: Certificate) -> list[int]:
    """Examples that did not meet their tolerance, without those that were asked for 100% or more and spent their budget.

    Whoever asks for so much wants the values of a few steps, however far off they are.
    """
    return [i for i, one in enumerate(certificate) if not one.converged and not (one.tol >= 1 and one.status is Status.BUDGET)]


def warn_if_missed(certificate: Certificate) -> None:
    """Warn where a certificate says that its tolerance was not met."""
    examples = missed(certificate)
    if examples:
        first = certificate[examples[0]]
        warn(
            f"the tolerance was not met for {len(examples)} of {len(certificate)} example(s); example {examples[0]}: "
            f"{first.status.value}: {first.remedy}.",
            ConvergenceWarning,
        )
