"""The same function once more, for a worker of its own: with a copy of the model, on the same device or on another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ModelError
from ..functions.call import RunsRows
from ..functions.layer import LayerCall
from ..functions.model_state import modules_of
from ..trees import Leaves
from .torch_function import TorchFunction

Memo = dict[int, Any]
"""What :func:`copy.deepcopy` takes for copied already, by the id of the original."""


@dataclass(frozen=True)
class Elsewhere:
    """A run on another device than that of its points, to which gradients find back by themselves.

    Attributes:
        run: what runs there.
        device: where.
    """

    run: RunsRows
    device: torch.device

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        """The raw outputs, on the other device, for points on their own."""
        with _standing_on(self.device, leaves[0].device):
            return self.run(tuple(leaf.to(self.device) for leaf in leaves), rows.to(self.device))


@contextmanager
def _standing_on(device: torch.device, home: torch.device) -> Iterator[None]:
    """What "the current device" means to a model, and at which precision it runs, is on ``device`` as it is at home."""
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        default = torch.get_default_device()
        if default.type == home.type != "cpu":
            stack.enter_context(device)
        cast = torch.is_autocast_enabled(home.type)
        if device.type != home.type and (cast or torch.is_autocast_enabled(device.type)):
            stack.enter_context(torch.autocast(device.type, torch.get_autocast_dtype(home.type), enabled=cast))
        yield


def replicated(function: TorchFunction, device: torch.device) -> TorchFunction:
    """The same function with a model of its own, so that both can run at the same time.

    On the device of the input the weights are shared, and only the modules around them and their buffers are copied: what
    a forward pass writes to (hooks of a layer, an attribute, a counter) belongs to one worker.

    Args:
        function: what is explained, at home on the device of its inputs.
        device: where the other one runs.

    Raises:
        ModelError: the model cannot be copied, or not to this device.
    """
    home, call = function.inputs[0].device, function.call
    given = [call.model, *([] if function.scorer.function is None else [function.scorer.function])]
    modules = [module for one in given for module in modules_of(one)]
    memo = {id(p): p for m in modules for p in m.parameters()} if device == home else _moved(modules, device)
    models = [_copied(one, memo, device) for one in given]
    if device != home:
        _finish(models, device)

    def here(value: Any) -> Any:
        return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), value)

    call = replace(call, model=models[0], args=here(call.args), kwargs=here(dict(call.kwargs)))
    run: RunsRows = call
    if isinstance(function.run, LayerCall):
        own = tuple(_copy_of(module, memo) for module in function.run.modules)
        run = replace(function.run, call=call, inputs=here(function.run.inputs), modules=own)
    scorer = replace(function.scorer, function=None if len(models) == 1 else models[1])
    return replace(function, run=run if device == home else Elsewhere(run, device), scorer=scorer, call=call)


def _moved(modules: Sequence[nn.Module], device: torch.device) -> Memo:
    """Weights and buffers on another device, so that the copy finds them there and no second one is made at home."""
    where = {tensor.device for m in modules for tensor in m.parameters()}
    if len(where) > 1:
        raise ModelError(
            f"the model lies on {len(where)} devices already ({', '.join(sorted(map(str, where)))}) and cannot be copied to "
            f"{device}. Expected a model on one device for devices=; leave devices= out."
        )
    memo: Memo = {}
    for module in modules:
        for parameter in module.parameters():
            if type(parameter) is nn.Parameter:
                memo[id(parameter)] = nn.Parameter(parameter.detach().to(device), requires_grad=False)
        for buffer in module.buffers():
            if type(buffer) is Tensor:
                memo[id(buffer)] = buffer.detach().to(device)
    return memo


def _copied(model: Callable[..., Any], memo: Memo, device: torch.device) -> Callable[..., Any]:
    try:
        own: Callable[..., Any] = copy.deepcopy(model, memo)
    except Exception as error:
        raise ModelError(
            f"the model ({type(model).__name__}) cannot be copied for the worker on {device}: {error}. Expected a model that "
            "copy.deepcopy copies; leave devices= out, or build it without what cannot be copied."
        ) from error
    kept = {id(module) for module in modules_of(model)}
    shared = [module for module in modules_of(own) if id(module) in kept]
    if shared:
        raise ModelError(
            f"got a function that calls a module ({type(shared[0]).__name__}), which cannot be copied with it for several "
            "workers. Expected an nn.Module, a functools.partial of one, or one of its methods: put what the function does "
            "into the forward of a module, or into target=; or leave devices= out."
        )
    return own


def _finish(models: Sequence[Callable[..., Any]], device: torch.device) -> None:
    """Move what the memo did not hold (scripted modules, other kinds of parameters), and let no weight ask for gradients."""
    for module in [module for model in models for module in modules_of(model)]:
        try:
            module.to(device)
        except Exception as error:
            raise ModelError(
                f"the model ({type(module).__name__}) cannot be moved to {device}: {error}. Expected a module whose "
                ".to(device) works; leave this device out of devices=."
            ) from error
        for parameter in module.parameters():
            parameter.requires_grad_(False)


def _copy_of(module: nn.Module, memo: Memo) -> nn.Module:
    if id(module) not in memo:
        raise ModelError(
            f"the layer ({type(module).__name__}) is not part of what was copied for several devices. Expected a layer inside "
            "the model; leave devices= out."
        )
    own: nn.Module = memo[id(module)]
    return own
