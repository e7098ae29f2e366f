"""What every method shares: the call, the problem that it is asked, and turning its numbers into an attribution."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..attribution import Attribution, group_sums
from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import Baseline, resolve_baselines
from ..certificate import Certificate, Promise, Status, final_status
from ..engine import blaming_baselines, warn_if_missed, warn_if_same
from ..errors import NonFiniteError
from ..evaluation.checks import check_rows
from ..evaluation.chunks import Chunks
from ..evaluation.evaluator import Evaluator
from ..evaluation.progress import ProgressOption, Reporter
from ..functions.layer import Layers
from ..functions.model_state import undisturbed
from ..functions.randomness import scores_again
from ..functions.target import Score, Target
from ..memory import Halving, in_chunks
from ..paths.base import Nodes, segment
from ..trees import Leaves, Tensors, flat, flatten, matched, unflat
from ..version import version_of

T = TypeVar("T")

MAX_ROUNDING = 0.1
"""Values whose sum misses more than this share of their magnitude are not called exact: rounding has made them up."""

SCORE_ROUNDINGS = 16.0
"""Roundings of the larger end score that the change of the score may have where all values are zero."""

ROUNDING_SEEDS = (1, 2)
"""Runs with other rounding: of a tie, one of them may fall to the same side."""

MOST_POINTS = 4 << 20
"""How many numbers the points of one chunk may hold where no memory was measured: 32 MB in float64, safe on any device."""


class Method(abc.ABC):
    """A way to attribute a score to features: a frozen value with one call.

    A method of your own is a frozen dataclass that derives from this one, names itself, says what it promises, and fills
    in :meth:`attribute`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What people call the method; a class variable will do."""

    @property
    @abc.abstractmethod
    def promises(self) -> tuple[Promise, ...]:
        """What the method promises of each axiom; a class variable will do."""

    @final
    def __call__(
        self,
        model: Callable[..., Any],
        x: Tensors,
        baseline: Baseline = None,
        *,
        target: Target = None,
        score: Score = "logit",
        layer: Layers | None = None,
        layer_side: Literal["output", "input"] = "output",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        batched: bool | None = None,
        draws: int = 20,
        groups: Tensors | None = None,
        memory: int | None = None,
        chunk: int | None = None,
        progress: ProgressOption = None,
    ) -> Attribution:
        """Explain a score; arguments as in :func:`integrand.integrated_gradients`.

        Args:
            model: an ``nn.Module`` in eval mode, or any callable of tensors.
            x: the input.
            baseline: what x is compared with; zero if not given. Methods without a baseline use it only for the
                completeness gap in the certificate.
            target: the output to explain.
            score: logit, probability or log-probability.
            layer: explain the value of a submodule instead of x.
            layer_side: whether to explain the output of the layer or its input.
            args: further positional arguments of the model.
            kwargs: further keyword arguments of the model.
            batched: whether the first dimension of x counts examples.
            draws: how many baselines to draw from a function.
            groups: integer labels in the structure of one example; the result is one number per group. For
                :class:`Shapley` and :class:`Lime` the groups are the players.
            memory: bytes that the run may hold, where the method can tell.
            chunk: rows to run at a time.
            progress: a bar or a callback.
        """
        call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
        room: dict[str, Any] = {"memory": memory, "chunk": chunk, "progress": progress}
        with (
            open_problem(model, x, baseline, target=target, score=score, groups=groups, draws=draws, **call, **room) as problem,
            blaming_baselines(problem.function, problem.starts),
        ):
            result = self.attribute(problem)
            if result.certificate[0].status is Status.EXACT and (self.sensitive or problem.half):
                result = _with_rounding(result, [self.attribute(problem.at_rounded_input(seed)) for seed in ROUNDING_SEEDS])
                warn_if_missed(result.certificate)
        return dataclasses.replace(result, meta=result.meta | {"method": self.name, "settings": repr(self)})

    @property
    def sensitive(self) -> bool:
        """Whether rounding errors may grow, so that they are measured by a second run at an input rounded differently."""
        return False

    @abc.abstractmethod
    def attribute(self, problem: Problem) -> Attribution:
        """The attribution of a problem; :meth:`Problem.dress` turns numbers into one."""


@dataclass(frozen=True)
class Problem:
    """What a method is asked: a function and its input, the baselines, and how much memory there is.

    Attributes:
        function: the function that is explained; its ``inputs`` are the input.
        starts: the baselines, (examples, ...) each.
        labels: the group of every feature, in the structure of one example, where the user gave groups.
        memory: bytes that the run may hold.
        chunk: rows to run at a time.
        progress: a bar or a callback to tell of the progress.
        ends: the scores at the input and at the baselines (their mean), (examples,) each, where they are known already.
        rounded: seed of the other rounding in a run that measures rounding; 0 in the run itself.
    """

    function: TorchFunction
    starts: tuple[Leaves, ...]
    labels: Leaves | None = None
    memory: int | None = None
    chunk: int | None = None
    progress: ProgressOption = False
    ends: tuple[Floats, Floats] | None = None
    rounded: int = 0

    @property
    def examples(self) -> int:
        """How many examples are explained."""
        return self.function.examples

    @property
    def features(self) -> int:
        """How many numbers one example has, over all its tensors."""
        return sum(leaf[0].numel() for leaf in self.function.inputs)

    @property
    def device(self) -> torch.device:
        """The device that the input is on."""
        return self.function.inputs[0].device

    @property
    def half(self) -> bool:
        """Whether the model computes in half precision."""
        return any(torch.finfo(leaf.dtype).bits < 32 for leaf in self.function.inputs) or torch.is_autocast_enabled(
            self.device.type
        )

    def at_rounded_input(self, seed: int) -> Problem:
        """The problem at an input that differs in the last digit of every number."""
        generator = torch.Generator().manual_seed(seed)
        inputs = []
        for leaf in self.function.inputs:
            sign = (torch.randint(0, 2, leaf.shape, generator=generator) * 2 - 1).to(leaf)
            inputs.append(leaf * (1 + torch.finfo(leaf.dtype).eps * sign))
        scores = torch.as_tensor(scores_again(self.function, tuple(inputs))).to(self.function.at_input)
        function = dataclasses.replace(self.function, inputs=tuple(inputs), at_input=scores)
        return dataclasses.replace(self, function=function, ends=None, rounded=seed)

    def evaluator(self) -> Evaluator:
        """An evaluator of gradients and scores on the lines from the baselines to the input; piece i starts at baseline i."""
        inputs = self.function.inputs
        input_bytes = sum(leaf[0].nbytes for leaf in inputs)
        chunks = Chunks.start(self.device, rows=self.chunk, memory=self.memory, input_bytes=input_bytes)
        pieces = [segment(start, inputs, 1 / len(self.starts)) for start in self.starts]
        return Evaluator(self.function, pieces, chunks, Reporter(self.progress))

    def chunked(self, count: int, run: Callable[[Tensor], T]) -> Iterator[tuple[Tensor, T]]:
        """Call ``run`` with the row numbers from 0 to ``count`` - 1, as many at a time as fit in memory."""
        size = self.chunk or max(1, min(1024, MOST_POINTS // self.features))

        def some(part: slice) -> tuple[Tensor, T]:
            index = torch.arange(part.start, part.stop, device=self.device)
            return index, run(index)

        return in_chunks(some, slice(0, count), Halving(size))

    def grouped(self, rows: Tensor) -> Tensor:
        """Rows of features, (N, features), summed by the user's groups, (N, groups); unchanged without groups."""
        if self.labels is None:
            return rows
        shapes = [leaf.shape[1:] for leaf in self.function.inputs]
        return group_sums(unflat(rows, shapes), self.labels, batched=True)

    def dress(self, found: Found) -> Attribution:
        """The numbers of a method as an attribution in the structure of x, with a certificate."""
        evaluator = self.evaluator()
        score, base = self._end_scores_or_nan(evaluator, found)
        values = found.values if found.grouped else self.grouped(found.values)
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"the attributions hold {values[~torch.isfinite(values)][0].item()}; expected finite numbers. Look for "
                "overflow, log of 0 or division by 0 in the model, or choose another baseline."
            )
        # Completeness is asked of all features, also of those that belong to no group.
        total = (found.values.double().sum(1) if found.total is None else found.total.double()).cpu().numpy()
        size = values.double().abs().sum(1).cpu().numpy()
        residual = total - (score - base)
        error = np.broadcast_to(found.error, self.examples)
        if np.isnan(found.tol) and all(promise.kept for promise in found.promises if promise.axiom == "completeness"):
            # The exact values would miss nothing: what the sum misses is rounding.
            scale = size if found.scale is None else found.scale.double().cpu().numpy()
            rounding = SCORE_ROUNDINGS * evaluator.epsilon * np.maximum(abs(score), abs(base))
            nothing = np.where(abs(residual) > rounding, np.inf, 0.0)  # values that are all zero may have lost what they were
            error = np.fmax(error, np.divide(abs(residual), scale, out=nothing, where=scale > 0))
        examples = []
        for i in range(self.examples):
            one = evaluator.certificate(
                i,
                found.tol,
                score=float(score[i]),
                baseline_score=float(base[i]),
                residual=float(residual[i]),
                magnitude=float(size[i]),
                error=float(error[i]),
                status=found.status_of(i),
                rule=found.rule,
                knob=found.knob,
                note=found.notes[i] if found.notes else "",
            )
            gradients, forwards = (int(np.broadcast_to(n, self.examples)[i]) for n in (found.gradients, found.forwards))
            examples.append(dataclasses.replace(one, gradients=gradients, forwards=one.forwards + forwards))
        meta = {"integrand": version_of(), "torch": torch.__version__, "rule": found.rule, "baselines": str(len(self.starts))}
        extras = {name: self._shaped(extra, found.grouped) for name, extra in found.extras.items()}
        certificate = Certificate(tuple(examples), found.promises)
        warn_if_missed(certificate)
        if found.compares:
            warn_if_same(self.starts, self.function)
        return Attribution(self._shaped(values, self.labels is not None), certificate, self.function.batched, meta, extras)

    def _end_scores_or_nan(self, evaluator: Evaluator, found: Found) -> tuple[Floats, Floats]:
        """The scores at input and baseline; NaN at a baseline outside the model's domain, for methods that do not use it."""
        try:
            return self.end_scores(evaluator)
        except NonFiniteError:
            if found.compares:
                raise
            here = self.function.at_input.double().cpu().numpy()
            return here, np.full_like(here, np.nan)

    def end_scores(self, evaluator: Evaluator) -> tuple[Floats, Floats]:
        """The scores at the input and, on average, at the baselines, (examples,) each; refuses a model that mixes rows."""
        if self.ends is not None:
            return self.ends
        examples = np.arange(self.examples)
        rows = np.tile(examples, len(self.starts) + 1)
        pieces = np.repeat([*range(len(self.starts)), 0], self.examples)
        at = np.repeat([0.0] * len(self.starts) + [1.0], self.examples)
        scores = evaluator.scores_at(Nodes(at, rows, pieces)).reshape(len(self.starts) + 1, self.examples)
        check_rows(evaluator, scores[-1], examples)
        return self.function.at_input.double().cpu().numpy(), scores[:-1].mean(0)

    def _shaped(self, rows: Tensor, grouped: bool) -> Tensors:
        """Rows, (examples, features), in the structure of x; rows per example or per group keep their shape."""
        function = self.function
        if grouped or rows.ndim == 1:
            out = rows.to(function.inputs[0].dtype)
            return out if function.batched else out[0]
        leaves = unflat(rows, [leaf.shape[1:] for leaf in function.inputs])
        parts = [part.to(leaf.dtype) for part, leaf in zip(leaves, function.inputs, strict=True)]
        return function.tree.build(parts if function.batched else [part[0] for part in parts])


@contextmanager
def open_problem(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline,
    *,
    groups: Tensors | None,
    draws: int = 20,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = False,
    **call: Any,
) -> Iterator[Problem]:
    """A context with the problem to explain; it restores the model when it closes. ``call`` goes to :func:`build`."""
    with undisturbed(model):
        function = build(model, x, **call)
        starts = resolve_baselines(baseline, function, draws)
        labels = None if groups is None else matched(groups, function.tree, what="groups")
        if labels is not None:
            group_sums(function.inputs, labels, batched=True)  # refuses labels that do not fit
        yield Problem(function, tuple(starts), labels, memory, chunk, progress)


@dataclass(frozen=True)
class Found:
    """The numbers that a method found, before :meth:`Problem.dress` makes an attribution of them.

    Attributes:
        values: (examples, features), or (examples, groups) where ``grouped``.
        promises: what the method promises.
        rule: how the values were computed, in words.
        gradients: gradient evaluations, one number for all examples or one for each.
        forwards: forward evaluations, one number for all examples or one for each.
        error: estimated relative L1 error against the method's own definition, per example; 0 where it is exact.
        tol: the tolerance that was asked for, where values were sampled.
        grouped: whether the values are one number per group already.
        compares: whether the method compares the input with the baseline.
        knob: what to raise where the tolerance was not met.
        total: (examples,) the sum over all features, where the values leave some out.
        scale: (examples,) the sum of the magnitudes that ``total`` adds up, where the values are not in units of the score.
        notes: what the certificate should say besides, one text per example.
        extras: further (examples, features or groups) or (examples,) tensors.
    """

    values: Tensor
    promises: tuple[Promise, ...]
    rule: str = "as defined"
    gradients: int | Ints = 0
    forwards: int | Ints = 0
    error: float | Floats = 0.0
    tol: float = float("nan")
    grouped: bool = False
    compares: bool = True
    knob: str = "draw more samples"
    total: Tensor | None = None
    scale: Tensor | None = None
    notes: tuple[str, ...] = ()
    extras: dict[str, Tensor] = field(default_factory=dict)

    def status_of(self, example: int) -> Status:
        """The status of an example: exact where nothing was sampled, else whether the error is within the tolerance."""
        if np.isnan(self.tol):
            return Status.EXACT
        error = np.atleast_1d(np.asarray(self.error, float))
        return Status.CONVERGED if error[example % len(error)] <= self.tol else Status.BUDGET


def _with_rounding(result: Attribution, others: Sequence[Attribution]) -> Attribution:
    """An exact result with an estimate of its rounding error: three times the most that other rounding changes, relative."""
    first = flat(_rows(result)).double()
    changes = torch.stack([(first - flat(_rows(other)).double()).abs().sum(1) for other in others]).amax(0)
    examples = []
    for i, (one, change, size) in enumerate(
        zip(result.certificate, changes.tolist(), first.abs().sum(1).tolist(), strict=True)
    ):
        counted = (one, *(other.certificate[i] for other in others))
        gradients, forwards = (sum(getattr(each, name) for each in counted) for name in ("gradients", "forwards"))
        error = max(one.error, 3 * change / size) if size else one.error
        status, tol = one.status, one.tol
        if one.error > MAX_ROUNDING:  # which the sum proves; the rest may be a tie that another rounding breaks
            (status, error), tol = final_status(Status.NOISE, error), MAX_ROUNDING
        examples.append(dataclasses.replace(one, error=error, status=status, tol=tol, gradients=gradients, forwards=forwards))
    return dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, examples=tuple(examples)))


def _rows(result: Attribution) -> list[Tensor]:
    leaves = flatten(result.values, what="values")[1]
    return [leaf if result.batched else leaf[None] for leaf in leaves]
