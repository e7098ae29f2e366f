"""What every method shares: one call, one problem, one way to dress what comes out."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..attribution import Attribution, group_sums
from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import Baseline, resolve_baselines
from ..certificate import Certificate, Promise, Status
from ..engine import version_of, warn_if_missed, warn_if_same
from ..errors import NonFiniteError
from ..evaluation.checks import check_rows
from ..evaluation.chunks import Chunks
from ..evaluation.evaluator import Evaluator
from ..evaluation.nodes import Nodes
from ..evaluation.progress import ProgressOption, Reporter
from ..functions.layer import Layers
from ..functions.model_state import undisturbed
from ..functions.target import Score, Target
from ..memory import out_of_memory
from ..paths.base import segment
from ..trees import Leaves, Tensors, flat, flatten, matched, unflat

T = TypeVar("T")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_POINTS = 4 << 20
"""Numbers in the points of one chunk, at the most, where nothing has been measured."""


class Method(abc.ABC):
    """A way to attribute a score to features: a frozen value with one call.

    A method of your own is a frozen dataclass that derives from this one, names itself, says what it promises, and fills
    in :meth:`attribute`.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What people call it; a class variable will do."""

    @property
    @abc.abstractmethod
    def promises(self) -> tuple[Promise, ...]:
        """What it says of each axiom; likewise."""

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
            baseline: what it is compared with; zero if not given. Methods without a baseline use it only for the
                completeness gap in the certificate.
            target: the output to explain.
            score: logit, probability or log-probability.
            layer: explain the value of a submodule instead of x.
            layer_side: what the layer gives or gets.
            args: further positional arguments of the model.
            kwargs: further keyword arguments.
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
        with settled(model, x, baseline, target=target, score=score, groups=groups, draws=draws, **call, **room) as problem:
            result = self.attribute(problem)
            if result.certificate[0].status is Status.EXACT and (self.sensitive or problem.half):
                result = _with_rounding(result, self.attribute(problem.moved()))
        return dataclasses.replace(result, meta=result.meta | {"method": self.name, "settings": repr(self)})

    @property
    def sensitive(self) -> bool:
        """Whether rounding may grow on the way, so that it is measured: by a second run, from an input moved by a rounding."""
        return False

    @abc.abstractmethod
    def attribute(self, problem: Problem) -> Attribution:
        """The attribution of a settled problem; :meth:`Problem.dress` turns numbers into one."""


@dataclass(frozen=True)
class Problem:
    """What a method is asked: a function, where it is compared with, and how much room there is.

    Attributes:
        function: what is explained; its ``inputs`` are the input.
        starts: the baselines, (examples, ...) each.
        labels: the group of every feature, in the structure of one example, where the user gave groups.
        memory: bytes that the run may hold.
        chunk: rows to run at a time.
        progress: whom to tell.
        ends: the scores at the input and at the baselines (their mean), (examples,) each, where they are known already.
    """

    function: TorchFunction
    starts: tuple[Leaves, ...]
    labels: Leaves | None = None
    memory: int | None = None
    chunk: int | None = None
    progress: ProgressOption = False
    ends: tuple[Floats, Floats] | None = None

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return self.function.examples

    @property
    def features(self) -> int:
        """How many numbers one example has, over all its tensors."""
        return sum(leaf[0].numel() for leaf in self.function.inputs)

    @property
    def device(self) -> torch.device:
        """Where the input is."""
        return self.function.inputs[0].device

    @property
    def half(self) -> bool:
        """Whether the model computes in half precision."""
        return any(torch.finfo(leaf.dtype).bits < 32 for leaf in self.function.inputs) or torch.is_autocast_enabled(
            self.device.type
        )

    def moved(self) -> Problem:
        """The same problem at an input that is off by a rounding."""
        generator = torch.Generator().manual_seed(0)
        inputs = []
        for leaf in self.function.inputs:
            sign = (torch.randint(0, 2, leaf.shape, generator=generator) * 2 - 1).to(leaf)
            inputs.append(leaf * (1 + torch.finfo(leaf.dtype).eps * sign))
        scores = torch.as_tensor(self.function.again(tuple(inputs))).to(self.function.at_input)
        function = dataclasses.replace(self.function, inputs=tuple(inputs), at_input=scores)
        return dataclasses.replace(self, function=function, ends=None)

    def evaluator(self) -> Evaluator:
        """Gradients and scores on the lines from the baselines to the input, in chunks; piece i starts at baseline i."""
        inputs = self.function.inputs
        row_bytes = sum(leaf[0].nbytes for leaf in inputs)
        chunks = Chunks.start(self.device, rows=self.chunk, memory=self.memory, row_bytes=row_bytes)
        pieces = [segment(start, inputs, 1 / len(self.starts)) for start in self.starts]
        return Evaluator(self.function, pieces, chunks, Reporter(self.progress))

    def chunked(self, count: int, run: Callable[[Tensor], T]) -> Iterator[tuple[Tensor, T]]:
        """Call ``run`` with the numbers 0, 1, ... of rows to make and evaluate, as many at a time as there is room for."""
        size = self.chunk or max(1, min(1024, MOST_POINTS // self.features))
        chunks = Chunks(size, 1, 1, settled=True)
        start = 0
        while start < count:
            index = torch.arange(start, min(start + chunks.size, count), device=self.device)
            try:
                done = run(index)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                chunks.shrink(len(index), error)
                continue
            yield index, done
            start += len(index)

    def grouped(self, rows: Tensor) -> Tensor:
        """Rows of features, (N, features), summed by the user's groups, (N, groups); as they are without groups."""
        if self.labels is None:
            return rows
        shapes = [leaf.shape[1:] for leaf in self.function.inputs]
        return group_sums(unflat(rows, shapes), self.labels, batched=True)

    def dress(self, found: Found) -> Attribution:
        """Values and what is known of them as an attribution, in the user's structure."""
        evaluator = self.evaluator()
        score, base = self._known_ends(evaluator, found)
        values = found.values if found.grouped else self.grouped(found.values)
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"the attributions hold {values[~torch.isfinite(values)][0].item()}; expected finite numbers. Look for "
                "overflow, log of 0 or division by 0 in the model, or choose another baseline."
            )
        # Completeness is asked of all features, also of those that belong to no group.
        total = (found.values.double().sum(1) if found.total is None else found.total.double()).cpu().numpy()
        size = values.double().abs().sum(1).cpu().numpy()
        examples = []
        for i in range(self.examples):
            one = evaluator.certificate(
                i,
                found.tol,
                score=float(score[i]),
                baseline_score=float(base[i]),
                residual=float(total[i] - (score[i] - base[i])),
                magnitude=float(size[i]),
                error=float(np.broadcast_to(found.error, self.examples)[i]),
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

    def _known_ends(self, evaluator: Evaluator, found: Found) -> tuple[Floats, Floats]:
        """The scores at both ends; NaN at a baseline outside the model's domain, for methods that make no use of it."""
        try:
            return self.settled_ends(evaluator)
        except NonFiniteError:
            if found.compares:
                raise
            here = self.function.at_input.double().cpu().numpy()
            return here, np.full_like(here, np.nan)

    def settled_ends(self, evaluator: Evaluator) -> tuple[Floats, Floats]:
        """F at the input and, on average, at the baselines; rows that influence each other are found here."""
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
        """(examples, features) in the user's structure; what is per example or per group loses only the batch dimension."""
        function = self.function
        if grouped or rows.ndim == 1:
            out = rows.to(function.inputs[0].dtype)
            return out if function.batched else out[0]
        leaves = unflat(rows, [leaf.shape[1:] for leaf in function.inputs])
        parts = [part.to(leaf.dtype) for part, leaf in zip(leaves, function.inputs, strict=True)]
        return function.tree.build(parts if function.batched else [part[0] for part in parts])


def _with_rounding(result: Attribution, again: Attribution) -> Attribution:
    """An exact result with its rounding: three times what a rounding of the input changes, relative, per example."""
    first, second = (flat(_rows(one)).double() for one in (result, again))
    change, size = (first - second).abs().sum(1).tolist(), first.abs().sum(1).tolist()
    examples = []
    for one, other, off, whole in zip(result.certificate, again.certificate, change, size, strict=True):
        gradients, forwards = one.gradients + other.gradients, one.forwards + other.forwards
        error = 3 * off / whole if whole else 0.0
        examples.append(dataclasses.replace(one, error=error, gradients=gradients, forwards=forwards))
    return dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, examples=tuple(examples)))


def _rows(result: Attribution) -> list[Tensor]:
    leaves = flatten(result.values, what="values")[1]
    return [leaf if result.batched else leaf[None] for leaf in leaves]


@contextmanager
def settled(
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
    """The problem that a method is asked; while it is open the model is not disturbed. ``call`` goes to :func:`build`."""
    with undisturbed(model):
        function = build(model, x, **call)
        starts = resolve_baselines(baseline, function, draws)
        labels = None if groups is None else matched(groups, function.tree, what="groups")
        if labels is not None:
            group_sums(function.inputs, labels, batched=True)  # refuses labels that do not fit
        yield Problem(function, tuple(starts), labels, memory, chunk, progress)


@dataclass(frozen=True)
class Found:
    """The numbers of a method before they are dressed.

    Attributes:
        values: (examples, features), or (examples, groups) where ``grouped``.
        promises: what the method promises.
        rule: how the values came about.
        gradients: gradient evaluations, one number for all examples or one for each.
        forwards: forward evaluations, likewise.
        error: estimated relative L1 error against the method's own definition, per example; 0 where it is exact.
        tol: the tolerance that was asked for, where values were sampled.
        grouped: whether the values are one number per group already.
        compares: whether the method compares the input with the baseline.
        knob: what to raise where the tolerance was not met.
        total: (examples,) the sum over all features, where the values leave some out.
        notes: what else there is to say, one text per example.
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
    notes: tuple[str, ...] = ()
    extras: dict[str, Tensor] = field(default_factory=dict)

    def status_of(self, example: int) -> Status:
        """Exact where nothing was sampled; else whether the error is within the tolerance."""
        if np.isnan(self.tol):
            return Status.EXACT
        error = np.atleast_1d(np.asarray(self.error, float))
        return Status.CONVERGED if error[example % len(error)] <= self.tol else Status.BUDGET
