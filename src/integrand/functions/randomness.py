"""Whether a model gives the same score each time it is called with the same input, and what is rounding in that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..arrays import Floats
from ..errors import RandomnessError
from ..memory import all_rows
from ..trees import Leaves, flat
from .call import Model
from .function import Function
from .layer import uncompiled
from .model_state import RandomSources, note_draws, only_thread, undisturbed

if TYPE_CHECKING:
    from ..backends.torch_function import TorchFunction

REPEATS = 64
"""Scores to compare with the first ones of a model that draws random numbers: what one in ten shows is missed once in 850."""

FEWEST_CALLS = 8
"""Calls to compare however many examples each of them has: not every example need show it."""


ROUNDED = 4
"""Differences of which each turned out to be rounding, after which no more are looked at."""


def scores_again(function: Function, leaves: Leaves | None = None) -> Floats:
    """The scores at the input once more, or at points near it, as in the user's own batch, (examples,)."""
    points = function.inputs if leaves is None else leaves

    def run(rows: Tensor) -> Tensor:
        # Equal rows stay one row, expanded, which the function need not run as often as there are targets.
        some = (leaf[: len(rows)] if leaf.stride(0) == 0 else leaf.index_select(0, rows) for leaf in points)
        return function.scores(tuple(some), rows)

    with torch.no_grad():
        return torch.cat(all_rows(run, function.examples, points[0].device)).double().cpu().numpy()


def refuse_random_draws(function: TorchFunction, sources: RandomSources) -> None:
    """Refuse a model that may have drawn random numbers, and whose scores depend on them, before anything is integrated.

    A model that draws and does not use it, or that seeds its generator in each call, is let through.

    Args:
        function: what is explained.
        sources: what its model may have drawn from, and something did draw from.
    """
    if not only_thread() and not _draws(function, sources):
        return  # another thread did
    calls = max(FEWEST_CALLS, -(-REPEATS // function.examples))
    refuse_randomness(function, 1)
    first = sources.state()
    refuse_randomness(function, 1)
    if sources.state() == first:
        return  # each call leaves the generator in the same state: it is seeded inside
    refuse_randomness(function, calls - 2, halfway=True)


QUIET = 4
"""Forward passes during one of which, it is hoped, no other thread draws from numpy's or Python's generator."""


def _draws(function: TorchFunction, sources: RandomSources) -> bool:
    """Whether it is the model that draws, beside other threads that may; noted if torch's generators have to be put back."""
    for _ in range(QUIET):
        before = sources.state()
        with DrawsNoticed() as noticed, uncompiled():
            try:
                scores_again(function)
            except Exception:  # what fails the second time is not looked at again
                note_draws()
                raise
        if noticed.drawn:
            note_draws()
            return True
        if sources.state()[1] == before[1]:  # neither numpy's generator, nor Python's, nor one that the model holds
            return False
    return True


@contextmanager
def noticing_draws() -> Iterator[None]:
    """Call a user's function inside that may draw from torch's generators: they are then put back after the call."""
    if only_thread():  # they are in any case
        yield
        return
    with DrawsNoticed() as noticed:
        yield
    if noticed.drawn:
        note_draws()


class DrawsNoticed(TorchDispatchMode):
    """A context that notices whether this thread draws from torch's own generators, whatever other threads do.

    Attributes:
        drawn: whether it has.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and look at what kind it is."""
        kwargs = kwargs or {}
        if not self.drawn and torch.Tag.nondeterministic_seeded in func.tags:
            names, usual = [one.name for one in func._schema.arguments], func._schema.arguments
            given = {one.name: one.default_value for one in usual if one.has_default_value()}
            given |= dict(zip(names, args, strict=False)) | kwargs
            # Attention and recurrent layers may draw, but do so only for dropout.
            rates = [given.get(name, True) for name in ("dropout_p", "dropout", "train", "training")]
            self.drawn = given.get("generator") is None and all(rate not in (0, False) for rate in rates)
        return func(*args, **kwargs)


def refuse_randomness(function: TorchFunction, calls: int, *, halfway: bool = False) -> None:
    """Refuse a model whose scores change when it is called again with the same input.

    Args:
        function: what is explained.
        calls: how often to call it again.
        halfway: call it with half of the input in turn, where a score may show more than it does at the input, as a
            probability that is 1 to rounding.
    """
    points: list[tuple[Leaves, Floats]] = [(function.inputs, function.at_input.double().cpu().numpy())]
    if halfway:
        half = tuple(leaf * 0.5 for leaf in function.inputs)
        try:
            points.append((half, scores_again(function, half)))
        except Exception:  # half of the input is nothing that the model takes
            points = points[:1]
    rounded = 0
    for call in range(calls):
        leaves, first = points[call % len(points)]
        again = scores_again(function, leaves)
        change = np.abs(again - first)
        for i in np.flatnonzero(change > rounding_between_calls(function)).tolist():
            if change[i] <= 100 * _epsilon(function) * _cancelling(function, leaves, i):
                continue
            if not _by_rounding(function, leaves, i, float(change[i])):
                raise RandomnessError(
                    f"two identical calls give {first[i]:.6g} and {again[i]:.6g} for example {i}; expected the same score each "
                    "time. Turn off dropout and sampling in the model: model.eval() does so for nn.Dropout, "
                    "F.dropout(x, training=self.training) for the function; or draw the random numbers once, outside of the "
                    "model, and pass them through kwargs=."
                )
            rounded += 1
            if rounded == ROUNDED:
                return


def rounding_between_calls(function: Function) -> Floats:
    """By how much a score may differ from call to call, as far as rounding goes, (examples,)."""
    return np.asarray(float(np.clip(4e3 * _epsilon(function), 1e-6, 0.2)) * function.scale)


SHRINKS = 1e-3
"""A difference that is due to rounding shrinks by more than this in float64: by 2**-29 from float32. Others do not."""


def _by_rounding(function: TorchFunction, leaves: Leaves, example: int, change: float) -> bool:
    """Whether identical calls differ by rounding alone, as sums in no fixed order do: in float64 they then hardly differ."""
    try:
        with in_float64(function.call.model):
            found = [scores_again(function, leaves)[example] for _ in range(8)]
    except Exception:  # an operation that knows no float64
        return False
    return bool(max(found) - min(found) <= SHRINKS * change)


def _epsilon(function: Function) -> float:
    """The coarsest rounding that the scores have been through, as far as can be seen."""
    used = [function.at_input.dtype, *(leaf.dtype for leaf in function.inputs)]
    device = function.inputs[0].device.type
    if torch.is_autocast_enabled(device):
        used.append(torch.get_autocast_dtype(device))
    return max(torch.finfo(dtype).eps for dtype in used)


def _cancelling(function: TorchFunction, leaves: Leaves, example: int) -> float:
    """The sum of |x * dF/dx| at a point: where it is large beside F, sums in no fixed order, as on a GPU, show in F."""
    rows = torch.arange(function.examples, device=leaves[0].device)  # the user's own batch, as F was found
    here = tuple(leaf.detach().clone() for leaf in leaves)
    _, gradients = function.value_and_grad(here, rows)
    return float((flat(here).detach() * flat(gradients))[example].abs().sum())


class InFloat64(TorchDispatchMode):
    """A context in which everything is computed in float64, whatever dtype the model, its weights and its input have.

    Tells rounding from difference. In float64 what is written in place to a weight, a buffer or an input is lost, and
    operations that have no float64 raise.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation on float64 copies of what it gets, and ask it for float64 where it would give less."""
        given = {name: torch.float64 if _less(value) else value for name, value in (kwargs or {}).items()}
        args, given = pytree.tree_map_only(Tensor, _widened, (args, given))
        return pytree.tree_map_only(Tensor, _widened, func(*args, **given))


SUMS = re.compile("mm|mv|dot|conv|sum|mean|var|norm|attention|avg_pool|rnn|lstm|gru|index_add|scatter")
"""The operations of torch that add numbers up, in an order that may depend on how many rows there are."""


class SumsRounded(TorchDispatchMode):
    """A context in which the terms and the result of every sum and matrix product change by one rounding at random.

    Of terms that cancel within one sum only their own rounding is left: the result is next to zero.

    Args:
        seed: of the directions.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and change its terms and its result if it adds up."""
        if func._schema.is_mutable or not SUMS.search(func._schema.name.removeprefix("aten::")):
            return func(*args, **(kwargs or {}))
        args, kwargs = pytree.tree_map_only(Tensor, self._rounded, (args, kwargs or {}))
        return pytree.tree_map_only(Tensor, self._rounded, func(*args, **kwargs))

    def _rounded(self, result: Tensor) -> Tensor:
        if not result.is_floating_point() or result.layout != torch.strided:
            return result
        up = torch.randint(0, 2, result.shape, generator=self.generator, dtype=torch.int8).to(result.device, result.dtype)
        return result * (1 + torch.finfo(result.dtype).eps * (2 * up - 1))


def _less(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype != torch.float64


def _widened(tensor: Tensor) -> Tensor:
    return tensor.double() if _less(tensor.dtype) else tensor


@contextmanager
def in_float64(model: Model) -> Iterator[None]:
    """A context in which a model runs in float64 and without gradients, and after which it is as it was."""
    # Buffers that the model replaces would stay in float64.
    with undisturbed(model), torch.no_grad(), InFloat64(), uncompiled():
        yield
