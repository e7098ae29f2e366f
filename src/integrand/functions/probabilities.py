"""Whether a model's outputs are probabilities already, so that score="probability" would apply softmax or sigmoid twice.

What shows it, in this order: the last operation, as autograd knows it; rows that add up to 1 at several points; and outputs
that go from 0 to 1 and never beyond, however extreme the input is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import OptionError, ScoreWarning, warn
from ..trees import Leaves
from .call import RunsRows
from .layer import LayerCall, uncompiled
from .target import class_dim, main_tensor

if TYPE_CHECKING:
    from ..backends.torch_function import TorchFunction

SQUASHES = {"Sigmoid": "a sigmoid", "Softmax": "a softmax"}
"""Operations, as autograd names them, that give probabilities."""

LOGS = {"LogSigmoid": "the logarithm of a sigmoid", "LogSoftmax": "the logarithm of a softmax"}
"""Operations that give logarithms of probabilities."""

LINEAR = {"Addmm", "Mm", "Bmm", "Addbmm", "Baddbmm", "Mv", "Dot", "Convolution"}
"""Operations that give logits, whatever values they happen to have."""


def refuse_second_squash(function: TorchFunction, outputs: Sequence[Any]) -> None:
    """Refuse to pass outputs through softmax or sigmoid that are probabilities; warn where they only seem to be.

    Args:
        function: what is explained, with a score other than ``logit`` and no target function.
        outputs: the model's raw output(s) at the input.
    """
    here = _class_scores(function, outputs, torch.arange(function.examples)).detach()
    single, unit = here[0].numel() == 1, within_unit(here)
    if not unit and not bool((here <= 0).all()):
        return
    last = _last_operations(function)
    if unit and len(last) == 1 and last <= SQUASHES.keys():
        raise OptionError(_twice(function, f"the model ends in {SQUASHES[last.pop()]}", single))
    # The softmax of a logarithm of a softmax is that softmax: applied twice, it does no harm.
    if len(last) == 1 and last <= ({"LogSigmoid", "LogSoftmax"} if single else {"LogSigmoid"}):
        raise OptionError(_twice(function, f"the model ends in {LOGS[last.pop()]}", single, log=True))
    if not unit or last & LINEAR:
        return
    if adds_up_to_one(here) and all(adds_up_to_one(out) for out in _elsewhere(function, EXTREMES[:2])):
        raise OptionError(_twice(function, "each row lies between 0 and 1 and adds up to 1", single))
    others = [out.flatten() for out in _elsewhere(function, EXTREMES)]
    seen = torch.cat([here.flatten(), *others])
    if len(others) >= ENOUGH and within_unit(seen) and float(seen.min()) < 0.01 and float(seen.max()) > 0.99:
        warn(_twice(function, "they go from 0 to 1 and stay there for extreme inputs", single, seem=True), ScoreWarning)


def squashed(output: Tensor) -> bool:
    """Whether an output, with its graph, comes from a softmax or a sigmoid.

    >>> squashed(torch.ones(2, 3, requires_grad=True).sigmoid()), squashed(torch.ones(2, 3, requires_grad=True).sin())
    (True, False)
    """
    last = last_operations(output)
    return bool(last) and last <= SQUASHES.keys()


def _twice(function: TorchFunction, why: str, single: bool, *, log: bool = False, seem: bool = False) -> str:
    """The message: what was asked for, what the outputs are, and what to pass instead."""
    score, applied = function.scorer.score, "sigmoid" if single else "softmax"
    what = "logarithms of probabilities" if log else "probabilities"
    other = ""
    if (score == "log-probability") != log:
        picked = f"out.{'exp' if log else 'log'}()" if single else f"out[:, k].{'exp' if log else 'log'}()"
        other = f"; for {'the probability' if log else 'their logarithm'} pass target=lambda out: {picked} instead of score="
    return (
        f"got score={score!r}, which passes the outputs through {applied}; but they {'seem to be' if seem else 'are'} {what} "
        f"already ({why}): {'this applies' if seem else 'that would apply'} it twice. Expected logits. Take the outputs as "
        f"they are with score='logit'{other}."
    )


def _class_scores(function: TorchFunction, outputs: Sequence[Any], rows: Tensor) -> Tensor:
    """What the target is in, (N, ...), in the model's raw outputs."""
    seen = function.scorer.seen(outputs, rows)
    return main_tensor(seen[0]) if function.batched else torch.stack([main_tensor(raw) for raw in seen])


def _from_input(function: TorchFunction) -> tuple[RunsRows, Leaves]:
    """The model from its own input on, and that input; from the explained layer on where the input is whole numbers."""
    run = function.run
    if isinstance(run, LayerCall) and all(leaf.dtype.is_floating_point for leaf in run.inputs):
        return run.call, run.inputs
    return run, function.inputs


def _last_operations(function: TorchFunction) -> set[str]:
    """The last operations of the model at the first example; empty where they cannot be seen."""
    run, leaves = _from_input(function)
    first = tuple(leaf[:1].detach().clone().requires_grad_() for leaf in leaves)
    rows = torch.zeros(1, dtype=torch.long, device=first[0].device)
    try:
        with torch.enable_grad(), uncompiled():
            return last_operations(_class_scores(function, run(first, rows), rows))
    except Exception:  # a model that takes as many rows as x has, and no others
        return set()


EXTREMES = (1.0, 3.0, -3.0, 30.0, -30.0, 1000.0, -1000.0)
"""How far from zero to look at the outputs: factors of the input with noise of its size."""

ENOUGH = 4
"""Points among these that a model must take to be judged by them: at least one is then extreme on either side."""


def _elsewhere(function: TorchFunction, scales: Sequence[float]) -> Iterator[Tensor]:
    """Outputs of the first example at other inputs: x and noise, scaled; points that the model does not take are left out."""
    run, leaves = _from_input(function)
    if function.layered and run is function.run:
        return  # values of a layer that no input may lead to
    generator = torch.Generator().manual_seed(0)
    rows = torch.zeros(1, dtype=torch.long, device=leaves[0].device)
    for scale in scales:
        noise = [torch.randn(leaf[:1].shape, generator=generator).to(leaf) for leaf in leaves]
        sizes = [float(leaf[:1].abs().max()) or 1.0 for leaf in leaves]
        points = tuple(scale * (x[:1] + size * more) for x, size, more in zip(leaves, sizes, noise, strict=True))
        try:
            with torch.no_grad():
                out = _class_scores(function, run(points, rows), rows)
        except Exception:
            continue
        if bool(out.isfinite().all()):
            yield out


def within_unit(tensor: Tensor) -> bool:
    """Whether all of an output, (N, ...), lies between 0 and 1."""
    return bool(((tensor >= 0) & (tensor <= 1 + _rounding(tensor))).all())


def adds_up_to_one(tensor: Tensor) -> bool:
    """Whether every row of an output, (N, ...), is a distribution over several classes: from 0 to 1, and 1 in all, to rounding.

    >>> adds_up_to_one(torch.tensor([[0.5, 0.25, 0.25]])), adds_up_to_one(torch.tensor([[0.5, 0.25, 0.5]]))
    (True, False)
    """
    if tensor[0].numel() == 1 or not within_unit(tensor):
        return False
    return bool(((tensor.double().sum(class_dim(tensor)) - 1).abs() <= _rounding(tensor)).all())


def _rounding(tensor: Tensor) -> float:
    """By how much a sum of probabilities may miss 1."""
    return max(1e-5, 8 * torch.finfo(tensor.dtype).eps)


MOVES = frozenset(
    (
        "View UnsafeView Reshape ReshapeAlias Squeeze Unsqueeze Select Slice Transpose T Permute Expand Clone ToCopy Alias "
        "Index IndexSelect Gather Split SplitWithSizes Unbind AsStrided"
    ).split()
)
"""Operations, as autograd names them, that pass numbers on as they are."""

GATHERS = {"Cat", "Stack"}
"""Those that put several tensors side by side."""


def last_operations(tensor: Tensor) -> set[str]:
    """The operations that an output comes from, as autograd names them, behind those that only move numbers.

    >>> x = torch.ones(2, 3, requires_grad=True)
    >>> last_operations(x.softmax(1)[:, 1]), last_operations((2 * x).sum(1))
    ({'Softmax'}, {'Sum'})
    """
    found, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        name = re.sub(r"Backward\d*$", "", node.name())
        if name in MOVES:
            waiting.append(node.next_functions[0][0])
        elif name in GATHERS:
            waiting += [one for one, _ in node.next_functions]
        else:
            found.add(name)
    return found
