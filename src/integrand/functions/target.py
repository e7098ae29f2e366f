"""From a model's output to one score per row: which output, which entry, logit or probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..errors import OptionError, OutputError, TargetError
from .foreign import no_gradient_in

Score = Literal["logit", "probability", "log-probability"]
"""``logit``: the output as the model gives it. The others pass it through softmax (sigmoid for a single output)."""

Index = int | tuple[int, ...]
Read = Callable[[Any, Tensor], Any]
"""From a raw output and whose row each of its rows is, (N,), to what is read of it."""


@dataclass(frozen=True)
class ReadOut:
    """A target in what each example reads of the output, such as the logits that follow a position of its own.

    What differs by example is then no argument of the model, so that examples that are otherwise the same share forward passes.

    Attributes:
        read: from the model's output to what the target is in.
        target: as for a model that gives that.
    """

    read: Read
    target: Index | Sequence[Index] | None = None


@dataclass(frozen=True)
class Settled:
    """What a target became at the input, and is along the whole path.

    Attributes:
        read: from an output and whose row each of its rows is, (N,), to one score per row, (N,).
        words: what is explained of each example, for people.
        jumps: where such a score can jump and what to explain instead, two halves of a sentence; '' where it cannot.
        remark: what was met at the points of an example's path, in words for its certificate; '' where nothing was.
    """

    read: Read
    words: tuple[str, ...]
    jumps: str = ""
    remark: Callable[[int], str] = lambda example: ""


@runtime_checkable
class Settling(Protocol):
    """A target that looks at the output at the input before it is held fixed: which box, which region, which other class.

    :mod:`integrand.targets` has those that know the outputs of detectors, segmenters and the like.
    """

    def settle(self, output: Any, examples: int) -> Settled:
        """Decide at the input what is explained.

        Args:
            output: the model's raw output at the input, with a row for each example.
            examples: how many there are.
        """
        ...


Target = Index | Sequence[Index] | Tensor | Callable[[Any], Tensor] | ReadOut | Settling | Sequence[Settling] | None


def main_tensor(raw: Any) -> Tensor:
    """The tensor that holds the scores: the output itself, its ``logits``, or the first of a tuple."""
    if isinstance(raw, Tensor):
        return raw
    if isinstance(raw, Mapping) or hasattr(raw, "to_tuple"):
        items = dict(raw.items()) if hasattr(raw, "items") else {}
        if isinstance(items.get("logits"), Tensor):
            logits: Tensor = items["logits"]
            return logits
        tensors = {name: value for name, value in items.items() if isinstance(value, Tensor)}
        if len(tensors) == 1:
            return next(iter(tensors.values()))
        raise OutputError(
            f"the model returns a {type(raw).__name__} with {sorted(items)}; expected 'logits' or a single tensor in it. "
            "Choose with target=lambda out: out['name'][:, 0]."
        )
    if isinstance(raw, (tuple, list)) and raw and isinstance(raw[0], (Tensor, Mapping)):
        return main_tensor(raw[0])
    if type(raw).__module__ == "numpy":
        raise OutputError(no_gradient_in("numpy"))
    raise OutputError(
        f"the model returns a {type(raw).__name__}; expected a tensor, a tuple or dict of tensors, or a Hugging Face output. "
        "Turn it into one score per example with target=lambda out: ..."
    )


def first_tensor(raw: Any) -> Tensor | None:
    """Some tensor of an output, whatever it is; None where there is none."""
    parts = raw.values() if isinstance(raw, Mapping) else raw if isinstance(raw, (list, tuple)) else ()
    if isinstance(raw, Tensor) or not parts:
        return raw if isinstance(raw, Tensor) else None
    found = (first_tensor(part) for part in parts)
    return next((tensor for tensor in found if tensor is not None), None)


@dataclass(frozen=True)
class Scorer:
    """Picks one score per row.

    Attributes:
        examples: number of examples that targets are held for.
        batched: whether outputs have a row per example; else there is one output per row.
        score: logit, probability or log-probability.
        index: for each output dimension after the first, one index per example; empty for a scalar output.
        function: the user's own choice instead, from the raw output to one score per example.
        words: the target of each example, for people.
        read: what each example reads of the output before all this; None for the output itself.
        jumps: where the score can jump by what the target does, and what to explain instead; '' where it cannot.
        remark: what a target met at the points of an example's path, in words; '' where nothing.
    """

    examples: int
    batched: bool
    score: Score
    index: tuple[Tensor, ...]
    function: Callable[[Any], Tensor] | None
    words: tuple[str, ...]
    read: Read | None = None
    jumps: str = ""
    remark: Callable[[int], str] = lambda example: ""

    def seen(self, outputs: Sequence[Any], rows: Tensor) -> Sequence[Any]:
        """The outputs as the target sees them."""
        if self.read is None:
            return outputs
        if self.batched:
            return [self.read(outputs[0], rows)]
        return [self.read(as_batch(raw), rows[i : i + 1])[0] for i, raw in enumerate(outputs)]

    def __call__(self, outputs: Sequence[Any], rows: Tensor) -> Tensor:
        """Scores of shape (N,) from what :class:`Runs` gave."""
        outputs = self.seen(outputs, rows)
        if not self.batched:
            return torch.stack([self._pick(raw, rows[i : i + 1]) for i, raw in enumerate(outputs)])
        return self._pick(outputs[0], rows)

    def _own(self, raw: Any, count: int) -> Any:
        assert self.function is not None
        try:
            return self.function(raw)
        except Exception as error:
            error.add_note(
                f"integrand called the target function with outputs for {count} row(s): points on the paths of {self.examples} "
                "example(s). Expected a function of any number of rows; targets that differ by example go into target=[...]."
            )
            raise

    def _pick(self, raw: Any, rows: Tensor) -> Tensor:
        count = len(rows)
        if self.function is not None:
            return _chosen(self._own(raw, count), count if self.batched else None)
        tensor = main_tensor(raw)
        if not self.batched:
            tensor = tensor[None]
        if tensor.ndim == 0 or tensor.shape[0] != count:
            raise OutputError(
                f"the model returned shape {tuple(tensor.shape)} for {count} rows; expected one row per example. "
                "Reshape it in target=lambda out: ..., or pass batched=False if x is one example without a batch dimension."
            )
        tensor = _normalised(tensor, self.score)
        if not self.index:
            picked = tensor.reshape(count)
        elif self.same is not None:
            picked = tensor
            for index in self.same:  # a view: its backward is much cheaper than that of an index
                picked = picked.select(1, index)
        else:
            # Without waiting for a GPU, which would be idle while it is asked for the backward pass.
            rows, *columns = (i.to(tensor.device, non_blocking=tensor.is_cuda) for i in (rows, *self.index))
            picked = tensor[(torch.arange(count, device=tensor.device), *(column[rows] for column in columns))]
        return picked if self.batched else picked[0]

    @property
    def by_example(self) -> bool:
        """Whether two examples may be scored differently for the same output."""
        return self.read is not None or (bool(self.index) and self.same is None)

    @cached_property
    def same(self) -> tuple[int, ...] | None:
        """The index, if it is the same for all examples."""
        first = tuple(int(column[0]) for column in self.index)
        return first if all(bool((c == i).all()) for c, i in zip(self.index, first, strict=True)) else None


def _normalised(tensor: Tensor, score: Score) -> Tensor:
    if score == "logit":
        return tensor
    tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    if tensor[0].numel() == 1:
        return tensor.sigmoid() if score == "probability" else torch.nn.functional.logsigmoid(tensor)
    dim = class_dim(tensor)
    return tensor.softmax(dim) if score == "probability" else tensor.log_softmax(dim)


def class_dim(tensor: Tensor) -> int:
    """The dimension of classes: the last of (rows, positions, classes), the second of images (rows, classes, H, W)."""
    return -1 if tensor.ndim <= 3 else 1


def _chosen(value: Any, count: int | None) -> Tensor:
    expected = "one number" if count is None else f"{count} numbers, one per example"
    if not isinstance(value, Tensor):
        raise TargetError(f"the target function returned a {type(value).__name__}; expected a tensor of {expected}.")
    if count is None and value.numel() == 1:
        return value.reshape(())
    if count is not None and value.numel() == count and value.ndim in (1, 2) and value.shape[0] == count:
        return value.reshape(count)
    raise TargetError(
        f"the target function returned shape {tuple(value.shape)}; expected {expected}. "
        "Pick or sum the entries of each row inside it, for example target=lambda out: out[:, 1] - out[:, 0]."
    )


def make_scorer(target: Target, score: str, outputs: Sequence[Any], examples: int, *, batched: bool) -> Scorer:
    """Settle the target on the output at the input itself; it is held fixed along the path.

    Args:
        target: what the user asked for; None for the scalar output or the top class of the input, () for the scalar output.
        score: logit, probability or log-probability.
        outputs: the raw output(s) at the input.
        examples: number of examples.
        batched: whether outputs have one row per example.
    """
    if score not in get_args(Score):
        raise OptionError(f"got score={score!r}; expected one of {', '.join(map(repr, get_args(Score)))}.")
    picked = cast(Score, score)
    if isinstance(target, ReadOut):
        read = [target.read(outputs[0], torch.arange(examples))]
        return replace(make_scorer(target.target, score, read, examples, batched=batched), read=target.read)
    if settles(target):
        if score != "logit":
            raise OptionError(f"got score={score!r} with a target that has a scale of its own; say it there, as what=.")
        found = _settled(target, outputs[0] if batched else as_batch(outputs[0]), examples)
        return Scorer(examples, batched, picked, (), None, found.words, found.read, found.jumps, found.remark)
    if callable(target) and not isinstance(target, Tensor):
        if score != "logit":
            raise OptionError(f"got score={score!r} with a target function; apply softmax inside the function instead.")
        name = getattr(target, "__name__", type(target).__name__)
        words = ("its own function" if name == "<lambda>" else f"{name}()",) * examples
        scorer = Scorer(examples, batched, picked, (), target, words)
        scorer(outputs, torch.arange(examples))  # fails here, with a message, if the function does not fit
        return scorer
    if isinstance(target, (list, tuple)) and any(isinstance(one, Settling) for one in target):
        other = next(one for one in target if not isinstance(one, Settling))
        raise TargetError(
            f"got {other!r} beside values of integrand.targets; expected such a value for each example. Explain the "
            "others in a call of their own."
        )
    tensor = main_tensor(outputs[0])
    shape = tuple(tensor.shape[1:]) if batched else tuple(tensor.shape)
    _check_output(tensor, examples, batched=batched)
    indices = _indices(target, tensor if batched else tensor[None], shape, examples)
    if not shape or (not indices and tensor.numel() == examples):
        # A single output may be a regression: it is called a logit only where it is turned into a probability.
        said = "the output" if score == "logit" else f"the output ({score})"
        return Scorer(examples, batched, picked, (), None, (said,) * examples)
    columns = tuple(torch.tensor(column) for column in zip(*indices, strict=True))
    words = tuple(f"output {list(i)} ({score})" for i in indices)
    return Scorer(examples, batched, picked, columns, None, words)


def settles(target: Any) -> bool:
    """Whether a target, or each of several, looks at the output at the input first."""
    several = target if isinstance(target, (list, tuple)) else [target]
    return bool(several) and all(isinstance(one, Settling) for one in several)


def _settled(target: Any, output: Any, examples: int) -> Settled:
    """What a target became at the input; of several, each at its own example, where each scores the rows that are its own."""
    if not isinstance(target, (list, tuple)):
        found: Settled = target.settle(output, examples)
        return found
    if len(target) != examples:
        raise TargetError(f"got {len(target)} targets for {examples} examples; expected one for all or one per example.")
    each = [one.settle(some_rows(output, [i]), 1) for i, one in enumerate(target)]

    def read(raw: Any, rows: Tensor) -> Tensor:
        owners = rows.tolist()
        scores: list[Any] = [None] * len(owners)
        for owner in dict.fromkeys(owners):
            mine = [k for k, one in enumerate(owners) if one == owner]
            own = each[owner].read(some_rows(raw, mine), torch.zeros(len(mine), dtype=torch.long, device=rows.device))
            for k, score in zip(mine, own.unbind(), strict=True):
                scores[k] = score
        return torch.stack(scores)

    jumps = next((one.jumps for one in each if one.jumps), "")
    return Settled(read, tuple(one.words[0] for one in each), jumps, lambda example: each[example].remark(0))


def some_rows(raw: Any, rows: Sequence[int]) -> Any:
    """Some rows of an output that has a row for each example: in tensors, in mappings and tuples of them, in lists."""
    if isinstance(raw, Tensor):
        return raw[list(rows)] if raw.ndim else raw
    if isinstance(raw, Mapping):
        return _of_kind(raw, {name: some_rows(value, rows) for name, value in raw.items()})
    if isinstance(raw, list) or (isinstance(raw, tuple) and raw and isinstance(raw[0], Mapping)):
        return [raw[row] for row in rows]
    if isinstance(raw, tuple):
        parts = [some_rows(part, rows) for part in raw]
        return type(raw)(*parts) if hasattr(raw, "_fields") else tuple(parts)
    return raw


def as_batch(raw: Any) -> Any:
    """The output for one example without a batch dimension as a batch of one."""
    if isinstance(raw, Tensor):
        return raw[None]
    if isinstance(raw, Mapping):
        boxes = raw.get("boxes")
        if isinstance(boxes, Tensor) and boxes.ndim == 2 and "labels" in raw:  # what was found in one picture
            return [raw]
        return _of_kind(raw, {name: as_batch(value) for name, value in raw.items()})
    if isinstance(raw, (list, tuple)) and raw and isinstance(raw[0], Mapping):
        return raw  # one entry per picture already
    if isinstance(raw, tuple):
        parts = [as_batch(part) for part in raw]
        return type(raw)(*parts) if hasattr(raw, "_fields") else tuple(parts)
    return raw


def _of_kind(raw: Mapping[str, Any], parts: dict[str, Any]) -> Any:
    """Parts of a mapping as a mapping of its own type, whose name tells Hugging Face outputs apart; else as a dict."""
    return type(raw)(**parts) if hasattr(raw, "to_tuple") else parts


def _check_output(tensor: Tensor, examples: int, *, batched: bool) -> None:
    if not (tensor.dtype.is_floating_point):
        raise OutputError(
            f"the model's output has dtype {tensor.dtype}; expected floating point scores. "
            "Explain the logits or probabilities, before argmax, round or a cast."
        )
    if tensor.is_meta:
        raise OutputError(
            "the model's output is on the meta device, which holds no numbers; expected a model with its weights."
        )
    if batched and (tensor.ndim == 0 or tensor.shape[0] != examples):
        raise OutputError(
            f"the model returned shape {tuple(tensor.shape)} for a batch of {examples}; expected one row per example. "
            "If x is one example without a batch dimension, pass batched=False; if rows are pooled, explain one at a time."
        )


def _indices(target: Any, tensor: Tensor, shape: tuple[int, ...], examples: int) -> list[tuple[int, ...]]:
    size = int(np.prod(shape)) if shape else 1
    if target is None or (isinstance(target, tuple) and not target):
        if size == 1:
            return []
        if target is None and len(shape) == 1:
            return [(i,) for i in tensor.argmax(1).tolist()]
        index = ", ".join("ijklmnop"[: len(shape)])
        raise TargetError(
            f"no target was given and the output has shape {shape} per example; expected target=({index}), one index per "
            "output dimension, or a function from the output to one score per example."
        )
    if isinstance(target, (Tensor, np.ndarray)):
        target = target.tolist()
    if not isinstance(target, list):
        return [_index(target, shape)] * examples
    if len(target) != examples:
        raise TargetError(f"got {len(target)} targets for {examples} examples; expected one for all or one per example.")
    return [_index(entry, shape) for entry in target]


def _index(entry: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    parts = tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)
    for part in parts:
        if isinstance(part, (bool, np.bool_)) or not isinstance(part, (int, np.integer)):
            raise TargetError(
                f"got target {part!r} of type {type(part).__name__}; expected an int, one int per example, an index tuple, "
                "or a function from the output to one score per example."
            )
    if not shape and parts == (0,):
        return ()
    if 0 < len(parts) < len(shape) and all(size == 1 for size in shape[len(parts) :]):
        parts += (0,) * (len(shape) - len(parts))  # there is nothing else that could be meant
    if len(parts) != len(shape):
        raise TargetError(
            f"got target {entry!r} with {len(parts)} indices; expected {len(shape)} for an output of shape {shape} per example"
            + (" (a scalar output needs no target)." if not shape else "; targets that differ by example go into a list.")
        )
    for part, size in zip(parts, shape, strict=True):
        if not 0 <= part < size:
            raise TargetError(f"got target {entry!r}, out of range; expected 0 to {size - 1} for an output of shape {shape}.")
    return tuple(int(part) for part in parts)
