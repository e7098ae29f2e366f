"""What an explained tensor has to be: floating point, finite, dense, not empty, on one device."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..trees import Leaves, Tree


def check_tensors(tree: Tree, leaves: Leaves, *, what: str, integers: bool = False) -> None:
    """Floating point, finite, not empty, all on one device; ids are fine where a layer is explained."""
    for name, leaf in zip(tree.names, leaves, strict=True):
        if leaf.device != leaves[0].device:
            first = f"{leaves[0].device}, the device of {what}{tree.names[0]}"
            raise InputError(f"{what}{name} is on {leaf.device}; expected {first}.")
        if leaf.is_meta:
            raise InputError(f"{what}{name} is on the meta device, which holds no numbers; expected a tensor with values.")
        if leaf.layout != torch.strided:
            raise InputError(f"{what}{name} has layout {leaf.layout}; expected a dense tensor. Convert it with .to_dense().")
        if leaf.numel() == 0:
            shape = tuple(leaf.shape)
            raise InputError(f"{what}{name} is empty (shape {shape}); expected at least one example and one feature.")
        if not leaf.dtype.is_floating_point:
            if integers and not leaf.dtype.is_complex:
                continue
            raise InputError(_not_floating(f"{what}{name}", leaf))
        bad = (~torch.isfinite(leaf)).nonzero()
        if len(bad):
            place = tuple(bad[0].tolist())
            raise InputError(
                f"{what}{name} holds {leaf[place].item()} at index {place} ({len(bad)} such values); expected finite numbers. "
                "Replace missing values before explaining."
            )


def _not_floating(name: str, leaf: Tensor) -> str:
    if leaf.dtype.is_complex:
        return f"{name} has dtype {leaf.dtype}; expected real floating point. Explain torch.view_as_real({name})."
    return (
        f"{name} has dtype {leaf.dtype}; expected floating point, since a path runs between whole numbers. Convert pixels with "
        f"{name}.float(); for token ids name the embedding with layer=; pass masks and lengths through kwargs=."
    )
