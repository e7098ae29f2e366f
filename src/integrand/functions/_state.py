"""Running somebody's model and leaving no trace: modes, gradients, statistics, random state are as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, TrainModeError
from ._modules import all_modules, modules_of

SMALL = 1 << 16
"""Buffers up to this size are kept to be put back; larger ones only where a module is in train mode."""


def check_eval_mode(modules: Sequence[nn.Module]) -> None:
    """Refuse train mode where it changes the answer or the model."""
    for root in modules:
        for name, module in root.named_modules():
            reason = _train_mode_reason(module) if module.training else ""
            if reason:
                where = f"its submodule {name!r}" if name else "it"
                raise TrainModeError(
                    f"the model is in train mode and {where} is a {_kind(module)}, which {reason}. "
                    "Expected a model in eval mode: call model.eval() first (and model.train() afterwards if you need it)."
                )


def _kind(module: nn.Module) -> str:
    """The name of a module's class, also after ``torch.jit.script``."""
    return str(getattr(module, "original_name", type(module).__name__))


def _train_mode_reason(module: nn.Module) -> str:
    kind = _kind(module)
    scripted_norm = isinstance(module, torch.jit.ScriptModule) and "BatchNorm" in kind
    if isinstance(module, nn.modules.batchnorm._BatchNorm) or scripted_norm:
        return "mixes the rows of a batch and changes its running statistics"
    # Rates go by many names: p, dropout, drop_prob, attention_dropout.
    rates = [rate for name, rate in vars(module).items() if "drop" in name.lower() and type(rate) is float]
    if "Drop" in kind:
        rate = getattr(module, "p", None)
        rates += [float(rate)] if isinstance(rate, (int, float)) else []
        rates = rates or [1.0]  # not under any name that we know
    return "answers differently each time" if isinstance(module, nn.RReLU) or any(rates) else ""


@contextmanager
def undisturbed(model: Callable[..., Any], *, differentiable: bool = False) -> Iterator[None]:
    """Run a model inside; afterwards it is as it was.

    Inside, gradients are on, parameters do not ask for them (unless ``differentiable``), float32 on a GPU is float32, and
    recurrent networks may be differentiated in eval mode. Afterwards parameters' ``requires_grad``, buffers, torch's
    random state and switches are as before, whatever happened.
    """
    roots = modules_of(model)
    modules = all_modules(roots)
    if any(module.training for module in modules):
        check_eval_mode(roots)
    every = {id(p): p for m in modules for _, p in m._parameters.items() if p is not None}
    parameters = {key: parameter for key, parameter in every.items() if parameter.requires_grad}
    if any(parameter.is_inference() for parameter in parameters.values()):
        raise ModelError(
            "the model was built inside torch.inference_mode(), and its parameters cannot take part in a gradient. Expected "
            "ordinary parameters: build or load the model outside, or explain copy.deepcopy(model)."
        )
    buffers = _kept_buffers(modules)
    cuda = {parameter.device for parameter in every.values() if parameter.is_cuda}
    if torch.cuda.is_initialized():  # also where no module can be seen
        cuda.add(torch.device("cuda", torch.cuda.current_device()))
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(cuda)))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if cuda:
            recurrent = any(isinstance(module, nn.RNNBase) for module in modules)
            stack.enter_context(cuda_in_float32(recurrent=recurrent))
        try:
            if not differentiable:
                for parameter in parameters.values():
                    parameter.requires_grad_(False)
            yield
        finally:
            for parameter in parameters.values():
                parameter.requires_grad_(True)
            for kept in buffers:
                kept.put_back()


@contextmanager
def cuda_in_float32(*, recurrent: bool) -> Iterator[None]:
    """No TF32, which moves attributions of image networks by per cent; and recurrent networks that can be differentiated."""
    cudnn = torch.backends.cudnn
    # cuDNN refuses the backward of a recurrent network in eval mode; PyTorch's own kernels do not.
    options = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic, "allow_tf32": False}
    precision = torch.get_float32_matmul_precision()
    with cudnn.flags(enabled=cudnn.enabled and not recurrent, **options):
        try:
            if precision != "highest":
                torch.set_float32_matmul_precision("highest")
            yield
        finally:
            if precision != "highest":
                torch.set_float32_matmul_precision(precision)


@dataclass(frozen=True)
class Kept:
    """Buffers of one kind: each with its module and name, and what all of them held, one after the other.

    Copied and compared together: a GPU takes as long for one small buffer as for all of them.
    """

    places: list[tuple[nn.Module, str, Tensor]]
    before: Tensor

    @staticmethod
    def of(places: list[tuple[nn.Module, str, Tensor]]) -> Kept:
        """Keep what these hold now."""
        return Kept(places, _together(places))

    @torch.no_grad()
    def put_back(self) -> None:
        """Write back what has changed, and only that: to write to a buffer would invalidate graphs that the user holds."""
        if not torch.equal(_together(self.places), self.before):
            parts = self.before.split([buffer.numel() for _, _, buffer in self.places])
            for (_, _, buffer), part in zip(self.places, parts, strict=True):
                if not torch.equal(buffer.flatten(), part):
                    buffer.copy_(part.view_as(buffer))
        for module, name, buffer in self.places:
            if not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = buffer


def _together(places: list[tuple[nn.Module, str, Tensor]]) -> Tensor:
    return torch.cat([buffer.detach().flatten() for _, _, buffer in places])


def _kept_buffers(modules: Sequence[nn.Module]) -> list[Kept]:
    """Buffers that a forward pass might write to, those of one kind together."""
    kinds: dict[object, list[tuple[nn.Module, str, Tensor]]] = {}
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is None or not (module.training or buffer.numel() <= SMALL):
                continue
            if not buffer.is_meta and not buffer.is_inference() and buffer.layout == torch.strided:
                kinds.setdefault((buffer.device, buffer.dtype), []).append((module, name, buffer))
    return [Kept.of(places) for places in kinds.values()]
