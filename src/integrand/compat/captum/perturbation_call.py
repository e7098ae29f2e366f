"""What Captum's perturbation classes are asked, in this package's terms: features by mask, and any kind of output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import InputError, OptionError
from ...evaluation.progress import Progress
from ...functions.model_state import undisturbed
from ...functions.target import Target, main_tensor
from ...methods.method import Found, Problem, open_problem
from ...methods.sampling import Players
from ...methods.shapley import Shapley
from ...trees import Leaves, Tensors, flat, flatten
from .captum_call import CaptumProblem
from .certified_class import CertifiedClass
from .reference_classes import repeated_args

Explain = Callable[[Problem, Players], Found]
"""From a problem with one score per example and its features, to what was found."""


class PerturbationClass(CertifiedClass):
    """A method that scores inputs with some features at the baseline, and needs no gradients.

    Args:
        forward_func: the model, or any function of tensors.
    """

    def _bar(self, shown: bool) -> AttributionBar | None:
        return AttributionBar(self.get_name()) if shown else None


@dataclass(frozen=True)
class PlainModel:
    """A model that takes floating point tensors in place of any others, and gives tensors in place of numbers.

    Attributes:
        model: the model.
        kinds: what to make of its first arguments.
    """

    model: Callable[..., Any]
    kinds: tuple[torch.dtype, ...]

    def __call__(self, *args: Any) -> Any:
        """The model's output; whole numbers become floating point numbers, which can be compared."""
        out = self.raw(*args)
        return out.double() if isinstance(out, Tensor) and not out.dtype.is_floating_point else out

    def raw(self, *args: Any) -> Any:
        """The model's output with its own dtype, that of a number being Python's."""
        count = len(self.kinds)
        out = self.model(*(arg.to(kind) for arg, kind in zip(args[:count], self.kinds, strict=True)), *args[count:])
        if isinstance(out, torch.futures.Future):
            raise InputError(
                "the model returns a Future; expected a tensor or a number. FeatureAblation and ShapleyValueSampling explain "
                "such models with attribute_future."
            )
        return number_as_tensor(out)


def number_as_tensor(out: Any) -> Any:
    """An output that is a number as a tensor of Python's precision; any other output as it is."""
    numbers = {int: torch.int64, float: torch.float64}
    return torch.tensor(out, dtype=numbers[type(out)]) if type(out) in numbers else out


@dataclass(frozen=True)
class EmptyInputs:
    """A model that is called without those of its inputs that hold no numbers.

    Attributes:
        model: the model.
        leaves: all its inputs.
    """

    model: Callable[..., Any]
    leaves: Leaves

    @property
    def kept(self) -> list[int]:
        """Which inputs hold any numbers."""
        return [i for i, leaf in enumerate(self.leaves) if leaf.numel()]

    def __call__(self, *args: Any) -> Any:
        """The output for the inputs that hold numbers, and further arguments; the others have as many rows."""
        count, parts = len(self.kept), iter(args)
        rows, before = len(args[0]), len(self.leaves[self.kept[0]])
        filled = [
            next(parts) if leaf.numel() else leaf.new_zeros(rows if len(leaf) == before else len(leaf), *leaf.shape[1:])
            for leaf in self.leaves
        ]
        return self.model(*filled, *args[count:])

    def picked(self, given: Any) -> Any:
        """What belongs to the inputs that hold numbers, of a tuple with one part for each input."""
        fits = isinstance(given, tuple) and len(given) == len(self.leaves)
        return tuple(given[i] for i in self.kept) if fits else given


class AttributionBar:
    """A progress bar on the terminal, as Captum shows one.

    Args:
        name: what is computed.
    """

    def __init__(self, name: str) -> None:
        self._words = f"{name} attribution"
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        """Show where the run stands; a bar that is full is closed, and the next one begins anew."""
        done = progress.gradients >= progress.expected
        if self._bar is None:
            try:
                from tqdm import tqdm
            except ImportError:
                if done:
                    print(f"{self._words}: 100%", file=sys.stderr)
                return
            self._bar = tqdm(total=progress.expected, desc=self._words)
        self._bar.total = progress.expected
        self._bar.update(progress.gradients - self._bar.n)
        if done:
            self._bar.close()
            self._bar = None


@dataclass(frozen=True)
class PerturbationCall:
    """A call of one of Captum's perturbation classes.

    Attributes:
        problem: the model, its inputs and baselines in floating point.
        labels: the feature of every number, from 0 on; (1, ...) each, or (examples, ...) where examples have different masks.
        features: how many features there are: the largest number in the masks, and one more.
        kinds: the dtypes of the attributions.
        index: the target as an index into each example's output; empty where it is none.
        outputs: the shape of the output for each example, after the target; for an ``aggregate``, the shape of the output.
        aggregate: whether the output is one for the whole batch, which is then one example.
        rows: rows to run at a time; chosen here if None.
        progress: the bar that is shown, if any.
        output_kind: the dtype of the output, where it was looked at.
        empty: the inputs that hold no numbers, if there are any.
    """

    problem: CaptumProblem
    labels: Leaves
    features: int
    kinds: tuple[torch.dtype, ...]
    index: tuple[int, ...]
    outputs: tuple[int, ...]
    aggregate: bool
    rows: int | None
    progress: AttributionBar | None
    output_kind: torch.dtype | None = None
    empty: EmptyInputs | None = None

    @staticmethod
    def of(
        model: Callable[..., Any],
        inputs: Any,
        baselines: Any,
        target: Any,
        further: Any,
        feature_mask: Any,
        perturbations_per_eval: int,
        bar: AttributionBar | None,
    ) -> PerturbationCall:
        """Settle what Captum leaves open, with one run of the model at the inputs."""
        empty = EmptyInputs(model, inputs) if isinstance(inputs, tuple) and any(not leaf.numel() for leaf in inputs) else None
        if empty is not None and empty.kept:
            model, inputs, baselines, feature_mask = empty, *map(empty.picked, (inputs, baselines, feature_mask))
        several = perturbations_per_eval
        if isinstance(several, bool) or not isinstance(several, int) or several < 1:
            raise OptionError(f"got perturbations_per_eval={several!r}; expected a whole number from 1 on.")
        asked = CaptumProblem.of(model, inputs, baselines, target, further)
        plain = PlainModel(asked.model, tuple(leaf.dtype for leaf in asked.end))
        ends, starts = (tuple(map(_floating, side)) for side in (asked.end, asked.start))
        problem = replace(asked, model=plain, end=ends, start=starts)
        index = target if isinstance(target, tuple) else (target,) if isinstance(target, int) else ()
        outputs, aggregate, kind = _outputs(problem, target, index)
        labels = labels_of(feature_mask, ends)
        if aggregate and (several > 1 or any(len(mask) > 1 for mask in labels)):
            raise OptionError(
                f"got perturbations_per_eval={several} and masks of {[len(mask) for mask in labels]} rows for a model that "
                "gives one output for the whole batch; expected perturbations_per_eval=1 and one mask for all examples."
            )
        kinds = tuple(leaf.dtype if leaf.dtype.is_floating_point else torch.float32 for leaf in asked.end)
        features = max(int(mask.max()) for mask in labels if mask.numel()) + 1
        rows = several * len(ends[0]) if several > 1 else None
        return PerturbationCall(problem, labels, features, kinds, index, outputs, aggregate, rows, bar, kind, empty)

    @property
    def examples(self) -> int:
        """How many rows the inputs have."""
        return len(self.problem.end[0])

    def attribution(self, explain: Explain) -> Attribution:
        """The attribution of a single output, with a certificate."""
        if int(np.prod(self.outputs)) != 1:
            raise OptionError(
                f"the output has shape {self.outputs} per example; expected one number for a result with a certificate. Pass "
                "target, the index of an output."
            )
        found = [part for call in self._alike() for part in call._answers(explain)]
        if len(found) == 1:
            return replace(found[0], values=self.built([self._rows(leaf) for leaf in _leaves(found[0])]))
        leaves = [torch.cat(parts) for parts in zip(*map(_leaves, found), strict=True)]
        certificate = Certificate(tuple(one for part in found for one in part.certificate), found[0].certificate.promises)
        return replace(found[0], values=self.built(leaves), certificate=certificate, extras={})

    def values(self, explain: Explain) -> Leaves:
        """The attributions of all outputs, (examples, outputs, ...) each; for an aggregate, (1, outputs, ...)."""
        found = []
        for call in self._alike():
            answers = [list(map(self._rows, _leaves(one))) for one in call._answers(explain)]
            found.append([torch.stack(parts, 1) for parts in zip(*answers, strict=True)])
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    def by_output(self, leaf: Tensor) -> Tensor:
        """Attributions (examples, outputs, ...) with the dimensions of the outputs; an aggregate has no examples in front."""
        shape = (self.outputs or (1,)) if self.aggregate else (self.examples, *self.outputs)
        return leaf.reshape(*shape, *leaf.shape[2:])

    def built(self, leaves: Any, kind: torch.dtype | None = None) -> Tensors:
        """Tensors in the structure of the inputs; of the dtypes of the attributions, or all of one kind."""
        made = [leaf.to(kind or own) for leaf, own in zip(leaves, self.kinds, strict=True)]
        if self.empty is None:
            return self.problem.tree.build(made)
        lead = made[0].shape[: made[0].ndim - self.problem.end[0].ndim + 1]
        parts = iter(made)
        return tuple(next(parts) if leaf.numel() else made[0].new_zeros(*lead, *leaf.shape[1:]) for leaf in self.empty.leaves)

    def only(self, i: int) -> PerturbationCall:
        """The call for one example."""

        def row(value: Tensor) -> Tensor:
            return value[i : i + 1]

        problem, count = self.problem, self.examples
        target: Any = problem.target
        if isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1):
            target = target[i : i + 1]
        args = tuple(row(arg) if isinstance(arg, Tensor) and arg.ndim and len(arg) == count else arg for arg in problem.args)
        one = replace(problem, end=tuple(map(row, problem.end)), start=tuple(map(row, problem.start)), target=target, args=args)
        labels = tuple(row(mask) if len(mask) > 1 else mask for mask in self.labels)
        return replace(self, problem=one, labels=labels)

    @contextmanager
    def opened(self, target: Target) -> Iterator[tuple[Problem, Players]]:
        """The problem of one output, and its features as players, all of which take part."""
        problem = self.problem
        x, start = problem.tree.build(problem.end), problem.tree.build(problem.start)
        call: dict[str, Any] = {"args": problem.args, "batched": not self.aggregate, "target": target}
        with open_problem(
            problem.model, x, start, groups=None, chunk=self.rows, progress=self.progress or False, **call
        ) as opened:
            ends = problem.end
            masks = [
                mask.expand(len(x) if self.aggregate else 1, *mask.shape[1:]) for mask, x in zip(self.labels, ends, strict=True)
            ]
            labels = flat([mask[None] for mask in masks])[0] if self.aggregate else flat(masks)[0]
            every = torch.arange(self.features, device=opened.device)
            yield opened, Players(labels.to(opened.device), every, self.features)

    def _alike(self) -> list[PerturbationCall]:
        """Calls whose examples share a mask: this one, or one for each example."""
        return [self] if all(len(mask) == 1 for mask in self.labels) else [self.only(i) for i in range(self.examples)]

    def _answers(self, explain: Explain) -> list[Attribution]:
        """One attribution for each output."""
        found = []
        for target in self._targets():
            with self.opened(target) as (problem, players):
                found.append(problem.dress(explain(problem, players)))
        return found

    def _targets(self) -> list[Target]:
        count = int(np.prod(self.outputs))
        if count == 1 and not self.aggregate:
            return [self.problem.target]

        def picked(k: int) -> Callable[[Any], Tensor]:
            def pick(out: Any) -> Tensor:
                if self.aggregate:
                    return selected(out, self.index, rows=False).reshape(-1)[k]
                chosen = selected(out, self.index, rows=True)
                return chosen.reshape(len(chosen), -1)[:, k]

            return pick

        return [picked(k) for k in range(count)]

    def _rows(self, leaf: Tensor) -> Tensor:
        return leaf[:1] if self.aggregate else leaf


def bar_of(problem: Problem) -> Callable[[Progress], None] | None:
    """The bar of a problem, if it has one."""
    return problem.progress if callable(problem.progress) else None


def exact_shapley(problem: Problem, players: Players, tol: float) -> Found:
    """Shapley values by the method of that name: exactly where there are few features, else to a tolerance."""
    return spread(Shapley(tol=tol).found(problem, players), players)


def spread(found: Found, players: Players) -> Found:
    """Values of features, (examples, width), for all numbers of each feature."""
    wide = {name: extra[:, players.labels] for name, extra in found.extras.items() if extra.ndim == 2}
    values, total = found.values[:, players.labels], found.values.sum(1)
    return replace(found, values=values, total=total, extras=wide, grouped=False, knob="raise n_samples")


def _leaves(found: Attribution) -> Leaves:
    return flatten(found.values, what="values")[1]


def _floating(leaf: Tensor) -> Tensor:
    return leaf if leaf.dtype.is_floating_point else leaf.double()


def selected(out: Any, index: Any, *, rows: bool) -> Tensor:
    """The entry of an output that a target names: in each row, or in the output as a whole."""
    tensor = main_tensor(out)
    return tensor[(slice(None), *index)] if rows or (index and tensor.ndim) else tensor


def _outputs(problem: CaptumProblem, target: Any, index: tuple[int, ...]) -> tuple[tuple[int, ...], bool, torch.dtype | None]:
    """The shape of the output for each example after the target, whether it is one for the whole batch instead, its dtype."""
    if target is not None and not isinstance(target, (int, tuple)):
        return (), False, None
    with undisturbed(problem.model), torch.no_grad():
        out = _output(problem, 1)
        examples = len(problem.end[0])
        rows = out.ndim > len(index) and out.shape[0] == examples
        if rows and examples == 1:  # one row may be that of the example or that of the batch: two examples tell
            try:
                rows = _output(problem, 2).shape[:1] == (2,)
            except Exception:
                rows = False  # a model for one example at a time
    if rows:
        try:
            return tuple(selected(out, index, rows=True).shape[1:]), False, out.dtype
        except IndexError:
            return (), False, None  # refused with a message by what picks it
    try:
        return tuple(selected(out, index, rows=False).shape), True, out.dtype
    except IndexError as error:
        raise InputError(
            f"got target={target!r} for an output of shape {tuple(out.shape)}; expected an index within it, or None."
        ) from error


def _output(problem: CaptumProblem, copies: int) -> Tensor:
    """The model's output for so many copies of the inputs."""
    examples = len(problem.end[0])
    leaves = tuple(leaf.repeat(copies, *[1] * (leaf.ndim - 1)) for leaf in problem.end)
    args = problem.args if copies == 1 else repeated_args(problem.args, examples, copies)
    plain: Any = problem.model
    return main_tensor(plain.raw(*problem.tree.arguments(leaves)[0], *args))


def labels_of(feature_mask: Any, end: Leaves) -> Leaves:
    """The feature of every number, (1, ...) or (examples, ...) each; every number is one where there is no mask."""
    if feature_mask is None:
        sizes = [leaf[:1].numel() for leaf in end]
        firsts = np.cumsum([0, *sizes[:-1]]).tolist()
        return tuple(
            first + torch.arange(size, device=leaf.device).reshape(1, *leaf.shape[1:])
            for first, size, leaf in zip(firsts, sizes, end, strict=True)
        )
    masks = feature_mask if isinstance(feature_mask, tuple) else (feature_mask,)
    if len(masks) != len(end) or not all(isinstance(mask, Tensor) for mask in masks):
        raise InputError(f"got {len(masks)} feature masks for {len(end)} inputs; expected a tensor of whole numbers for each.")
    found = []
    for i, (mask, leaf) in enumerate(zip(masks, end, strict=True)):
        wide = mask.to(leaf.device).reshape((1,) * (leaf.ndim - mask.ndim) + tuple(mask.shape))
        if mask.dtype.is_floating_point or wide.ndim != leaf.ndim or len(wide) not in (1, len(leaf)) or bool((wide < 0).any()):
            raise InputError(
                f"got feature_mask of shape {tuple(mask.shape)} and dtype {mask.dtype} for input {i} of shape "
                f"{tuple(leaf.shape)}; expected whole numbers from 0 on, in that shape or one that broadcasts to it."
            )
        try:
            found.append(wide.expand(len(wide), *leaf.shape[1:]).long())
        except RuntimeError:
            raise InputError(
                f"got feature_mask of shape {tuple(mask.shape)} for input {i} of shape {tuple(leaf.shape)}; expected one that "
                "broadcasts to it."
            ) from None
    return tuple(found)
