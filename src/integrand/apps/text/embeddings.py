"""Where a model looks its words up, and what stands there at the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import InputError, ModelError, OptionError

BaselineName = Literal["zero", "pad", "mask", "mean"]
Fill = str | int | Tensor
BASELINES = ("zero", "pad", "mask", "mean")

BLOCK = 4096
"""Rows of the vocabulary at a time, for their mean."""


@dataclass(frozen=True)
class Looked:
    """One call of an embedding in a forward pass.

    Attributes:
        module: the embedding.
        ids: (N, T) what it was called with.
        value: (N, T, D) what it gave.
    """

    module: nn.Module
    ids: Tensor
    value: Tensor


@dataclass(frozen=True)
class Slot:
    """One call of an embedding, as it is explained.

    Attributes:
        looked: the call.
        labels: (T,) the column of each place in the result; -1 for none.
        kept: (N, T), True where the baseline is the same as the input.
    """

    looked: Looked
    labels: Tensor
    kept: Tensor

    def rows(self, count: int) -> Slot:
        """Of the first texts only."""
        looked = Looked(self.looked.module, self.looked.ids[:count], self.looked.value[:count])
        return Slot(looked, self.labels, self.kept[:count])


def candidates(model: nn.Module) -> list[nn.Module]:
    """The modules that may look words up: the model's input embedding, those of its encoder and decoder, and their twins."""
    found: dict[int, nn.Module] = {}
    owners: list[Any] = [model, *(getattr(model, f"get_{part}", lambda: None)() for part in ("encoder", "decoder"))]
    for owner in owners:
        try:
            module = owner.get_input_embeddings()
        except (AttributeError, NotImplementedError):
            continue
        if isinstance(module, nn.Module):
            found[id(module)] = module
    if not found:
        raise ModelError(
            f"{type(model).__name__}.get_input_embeddings() gives no module; expected the embedding of the words. Explain the "
            "model with integrand.integrated_gradients(model, ids, layer=...)."
        )
    # Tied weights: encoder and decoder may have modules of their own around one table.
    tables = {id(getattr(module, "weight", None)) for module in found.values()} - {id(None)}
    for module in model.modules():
        if id(getattr(module, "weight", None)) in tables and not isinstance(module, nn.Linear):
            found[id(module)] = module
    return list(found.values())


def look(model: nn.Module, run: Callable[[], Any]) -> tuple[tuple[Looked, ...], Any]:
    """Run a model once; every call of its embeddings, in order, and what the model gave."""
    calls: list[Looked] = []

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
        if given and isinstance(output, Tensor) and not given[0].dtype.is_floating_point:
            calls.append(Looked(module, given[0].detach().clone(), output.detach().clone()))

    with ExitStack() as stack, torch.no_grad():
        for module in candidates(model):
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        output = run()
    if not calls:
        raise ModelError(
            f"{type(model).__name__} does not call its input embedding with token ids; expected it to look words up there. "
            "Explain the model with integrand.integrated_gradients(model, ids, layer=...)."
        )
    return tuple(calls), output


Known = tuple[Tensor, Tensor, int]
"""The ids of a text that was given to the model, which of them are kept, (N, T) each, and its first column in the result."""


def slots_of(calls: Sequence[Looked], known: Sequence[Known]) -> tuple[Slot, ...]:
    """What each call of an embedding is about; calls with anything else than the texts' ids stay as they are.

    Args:
        calls: from :func:`look`.
        known: the texts, in the order in which the model reads them.
    """
    out: list[Slot] = []
    unread = list(known)
    for call in calls:
        found = next(((one, slot) for one in (*unread, *known) if (slot := _matched(call, *one)) is not None), None)
        if found is None:
            nothing = torch.full(call.ids.shape[1:], -1, device=call.ids.device)
            out.append(Slot(call, nothing, torch.ones_like(call.ids, dtype=torch.bool)))
            continue
        unread = [one for one in unread if one is not found[0]]
        out.append(found[1])
    if all(bool(slot.kept.all()) for slot in out):
        raise ModelError(
            "the model does not look the text's own token ids up in its embedding; expected that it does. Explain it with "
            "integrand.integrated_gradients(model, ids, layer=...)."
        )
    return tuple(out)


def _matched(call: Looked, ids: Tensor, kept: Tensor, first: int) -> Slot | None:
    """A call about some ids: as they are, with tokens in front of rows, with padding of the model's own, or one place later."""
    places = torch.arange(first, first + ids.shape[1], device=ids.device)
    length = ids.shape[1]
    if call.ids.shape != ids.shape and call.ids.t().shape == ids.shape:
        call = Looked(call.module, call.ids.t(), call.value.transpose(0, 1))
    if len(call.ids) == len(ids) and torch.equal(call.ids[:, :length], ids):
        more = call.ids.shape[1] - length
        labels = torch.nn.functional.pad(places, (0, more), value=-1)
        return Slot(call, labels, torch.nn.functional.pad(kept, (0, more), value=True))
    if call.ids.shape == ids.shape and torch.equal(call.ids[:, 1:], ids[:, :-1]):
        # A decoder that is fed the text itself, one place later: a token's both places count.
        labels = torch.nn.functional.pad(places[:-1], (1, 0), value=-1)
        return Slot(call, labels, torch.nn.functional.pad(kept[:, :-1], (1, 0), value=True))
    return None


def device_of(model: nn.Module) -> torch.device:
    """Where token ids go: to the embedding, wherever the rest of the model is."""
    module = candidates(model)[0]
    hook: Any = getattr(module, "_hf_hook", None)  # weights that are loaded only when they are needed
    if getattr(hook, "execution_device", None) is not None:
        return torch.device(hook.execution_device)
    weight = next(module.parameters(), None)
    return torch.device("cpu") if weight is None or weight.is_meta else weight.device


def baseline_of(slots: Sequence[Slot], fill: Fill, tokenizer: Any) -> Tensor | tuple[Tensor, ...]:
    """The embeddings at the baseline: markers and padding as they are, every other token replaced.

    Args:
        slots: the calls of the embedding.
        fill: a name, a token id, or a vector.
        tokenizer: knows the ids of padding and mask.
    """
    out = []
    for slot in slots:
        value = slot.looked.value
        vector = _vector(slot.looked, fill, tokenizer)
        out.append(torch.where(slot.kept[..., None], value, vector))
    return out[0] if len(out) == 1 else tuple(out)


def _vector(call: Looked, fill: Fill, tokenizer: Any) -> Tensor:
    """(D,) what replaces a word."""
    value = call.value
    if isinstance(fill, Tensor):
        if fill.shape != value.shape[-1:]:
            expected = tuple(value.shape[-1:])
            raise InputError(f"got a baseline of shape {tuple(fill.shape)}; expected {expected}, one embedding for every word.")
        return fill.detach().to(value)
    if fill == "zero":
        return torch.zeros_like(value[0, 0])
    if fill == "mean":
        return _mean(call).to(value)
    return _embedded(call, torch.tensor([[_token(fill, tokenizer)]], device=call.ids.device))[0, 0]


def _token(fill: str | int, tokenizer: Any) -> int:
    if isinstance(fill, int) and not isinstance(fill, bool):
        if not 0 <= fill < len(tokenizer):
            raise OptionError(f"got baseline={fill}; expected a token id from 0 to {len(tokenizer) - 1}.")
        return fill
    if fill not in ("pad", "mask"):
        names = ", ".join(map(repr, BASELINES))
        raise OptionError(f"got baseline={fill!r}; expected one of {names}, a token id, an embedding, or a list of these.")
    token = getattr(tokenizer, f"{fill}_token_id", None)
    if token is None:
        raise OptionError(
            f"got baseline={fill!r} and a tokenizer without a {fill} token; expected one that has it. Use baseline='zero' or "
            f"'mean', a token id, or set tokenizer.{fill}_token."
        )
    return int(token)


def _embedded(call: Looked, ids: Tensor) -> Tensor:
    with torch.no_grad():
        value: Tensor = call.module(ids)
    return value


def _mean(call: Looked) -> Tensor:
    """The mean over the vocabulary, through the module itself: some scale what they look up."""
    weight: Any = getattr(call.module, "weight", None)
    size = getattr(call.module, "num_embeddings", None) or (0 if weight is None else weight.shape[0])
    if not size:
        raise OptionError(f"got baseline='mean' and a {type(call.module).__name__} that does not say how many words it has.")
    total = torch.zeros_like(call.value[0, 0], dtype=torch.float32)
    for start in range(0, size, BLOCK):
        ids = torch.arange(start, min(start + BLOCK, size), device=call.ids.device)[None]
        total = total + _embedded(call, ids)[0].float().sum(0)
    return total / size
