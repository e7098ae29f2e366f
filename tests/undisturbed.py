"""A model with everything that could be disturbed, and whether it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
)


class Model(nn.Module):
    """Everything that could be disturbed: norms, frozen weights, gradients, hooks, buffers, parts in train mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.twice = nn.Linear(5, 5)
        self.skip = nn.Linear(3, 5)
        self.outer = nn.Linear(5, 2)
        self.register_buffer("calls", torch.zeros(()))
        self.norm(torch.randn(8, 5))
        self.eval()
        self.outer.train()
        self.twice.weight.requires_grad_(False)
        self.inner.weight.grad = torch.ones(5, 3)
        self.inner.register_forward_hook(lambda module, args, output: output * 1.0)
        self.outer.register_forward_pre_hook(lambda module, args: None)
        self.outer.register_full_backward_hook(lambda module, inputs, outputs: None)
        self.fail_after: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                raise ValueError("in the middle")
        self.calls = self.calls + 1
        hidden = self.drop(self.norm(self.inner(x)).tanh())
        return self.outer(self.twice(hidden) * self.twice(2 * hidden).tanh() + self.skip(x))


def everything(model: nn.Module) -> dict[str, Any]:
    """All that must not change."""
    state: dict[str, Any] = {
        "random": torch.get_rng_state(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
    }
    state["inference"] = torch.is_inference_mode_enabled()
    for name, parameter in model.named_parameters():
        state[name] = parameter.detach().clone()
        state[name, "wanted"] = parameter.requires_grad
        state[name, "grad"] = (id(parameter.grad), None if parameter.grad is None else parameter.grad.clone())
        state[name, "version"] = parameter._version
    for name, buffer in model.named_buffers():
        state[name] = buffer.clone()
        state[name, "id"] = id(buffer)
    for name, module in model.named_modules():
        state[name, "training"] = module.training
        state[name, "hooks"] = [list(getattr(module, hooks)) for hooks in HOOKS]
    return state


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    before = everything(model)
    yield
    after = everything(model)
    assert before.keys() == after.keys()
    for key, value in before.items():
        torch.testing.assert_close(after[key], value, rtol=0, atol=0, msg=lambda text, key=key: f"{key}: {text}")
