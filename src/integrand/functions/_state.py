"""Running somebody's model and leaving no trace: modes, gradients, statistics, random state are as before."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ..errors import TrainModeError

Model = Callable[..., Any]


def modules_of(model: Model) -> list[nn.Module]:
    """The modules that a callable runs, as far as can be seen: itself, its closure, its object, what it names.

    >>> net = nn.Linear(2, 1)
    >>> modules_of(lambda x: net(x).sigmoid()) == [net]
    True
    """
    found: dict[int, nn.Module] = {}
    seen: set[int] = set()

    def visit(value: object, depth: int) -> None:
        if id(value) in seen or depth > 4:
            return
        seen.add(id(value))
        if isinstance(value, nn.Module):
            found[id(value)] = value
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                visit(part, depth + 1)
        elif inspect.ismethod(value):
            visit(value.__self__, depth + 1)
            visit(value.__func__, depth + 1)
        elif inspect.isfunction(value):
            for part in _reachable(value):
                if isinstance(part, nn.Module) or callable(part):
                    visit(part, depth + 1)
        elif depth == 0 and hasattr(value, "__dict__"):
            for part in vars(value).values():
                if isinstance(part, nn.Module):
                    visit(part, depth + 1)

    visit(model, 0)
    return list(found.values())


def _reachable(function: Any) -> list[object]:
    """What a Python function can see by name: closure cells, defaults, and the globals that it mentions."""
    parts: list[object] = list(function.__defaults__ or ())
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # a cell that is not filled yet
            continue
    names = function.__code__.co_names
    parts += [function.__globals__[name] for name in names if isinstance(function.__globals__.get(name), nn.Module)]
    return parts


def check_eval_mode(modules: list[nn.Module]) -> None:
    """Refuse train mode where it changes the answer or the model."""
    for root in modules:
        for name, module in root.named_modules():
            if not module.training:
                continue
            reason = _train_mode_reason(module)
            if reason:
                where = f"its submodule {name!r}" if name else "it"
                raise TrainModeError(
                    f"the model is in train mode and {where} is a {type(module).__name__}, which {reason}. "
                    "Expected a model in eval mode: call model.eval() first (and model.train() afterwards if you need it)."
                )


def _train_mode_reason(module: nn.Module) -> str:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "mixes the rows of a batch and changes its running statistics"
    dropout = getattr(module, "p", None) if "Drop" in type(module).__name__ else getattr(module, "dropout", None)
    random = isinstance(module, nn.RReLU) or (isinstance(dropout, (int, float)) and dropout > 0)
    if "Drop" in type(module).__name__ and dropout is None:
        random = True  # stochastic depth and its like keep their rate under other names
    return "answers differently each time" if random else ""


@contextmanager
def undisturbed(model: Model, *, differentiable: bool = False) -> Iterator[None]:
    """Run a model inside; afterwards it is as it was.

    Inside, gradients are on, parameters do not ask for them (unless ``differentiable``), and recurrent networks may be
    differentiated in eval mode. Afterwards parameters' ``requires_grad``, buffers of modules in train mode and torch's
    random state are restored, whatever happened.
    """
    modules = modules_of(model)
    check_eval_mode(modules)
    parameters = {id(p): p for m in modules for p in m.parameters() if p.requires_grad}
    buffers = [(b, b.detach().clone()) for m in modules for s in m.modules() if s.training for b in s.buffers(recurse=False)]
    cuda = {p.device for m in modules for p in m.parameters() if p.device.type == "cuda"}
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([d for d in cuda], enabled=True))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if cuda and any(isinstance(s, nn.RNNBase) for m in modules for s in m.modules()):
            # cuDNN refuses the backward of a recurrent network in eval mode; PyTorch's own kernels do not.
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            if not differentiable:
                for parameter in parameters.values():
                    parameter.requires_grad_(False)
            yield
        finally:
            for parameter in parameters.values():
                parameter.requires_grad_(True)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
