"""What is refused before any work: what is no text, no tokenizer, no model, or too long."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from ..errors import InputError, ModelError, OptionError, TrainModeError

ENDLESS = 10**9
"""Tokenizers without a limit say that it is some huge number."""


def listed(text: Any, name: str = "text") -> list[Any]:
    """One text or several, as a list."""
    if isinstance(text, str):
        return [text]
    if text is None or isinstance(text, bytes) or not hasattr(text, "__iter__"):
        raise InputError(f"got a {type(text).__name__} as {name}; expected a string, or a list of them.")
    return list(text)


def check_texts(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """Refuse what is no text, or empty."""
    if not texts:
        raise InputError("got no texts; expected at least one.")
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"got {len(texts)} texts and {len(pairs)} contexts; expected one context for each text.")
    for name, many in (("text", texts), ("context", pairs or ())):
        for i, text in enumerate(many):
            if not isinstance(text, str):
                raise InputError(f"{name} {i} is a {type(text).__name__}; expected a string. Decode ids with tokenizer.decode.")
            if not text.strip():
                raise InputError(f"{name} {i} is empty ({text!r}); expected at least one word to explain.")


def check_length(model: nn.Module, tokenizer: Any, count: int, what: str) -> None:
    """Refuse more tokens than the model has positions for."""
    limit = longest(model, tokenizer)
    if limit is not None and count > limit:
        raise InputError(
            f"{what} has {count} tokens; expected at most {limit}, the positions that the model has. Shorten it, or split it "
            "and explain the parts."
        )


def longest(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens the model can take; None where nothing says so."""
    config: Any = getattr(model, "config", None)
    limits = [int(limit) for limit in (getattr(tokenizer, "model_max_length", None),) if limit and limit < ENDLESS]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa and its kin count positions from behind that of the padding.
        tables = [
            m for name, m in model.named_modules() if name.endswith("position_embeddings") and isinstance(m, nn.Embedding)
        ]
        skipped = [table.padding_idx + 1 for table in tables if table.padding_idx is not None]
        limits.append(positions - max(skipped, default=0))
    return min(limits, default=None)


def parameters_of(model: nn.Module) -> set[str]:
    """The names of what the model's forward takes."""
    return set(inspect.signature(model.forward).parameters)


def check_model(model: Any) -> None:
    """Refuse what is no model with embeddings, and train mode, before any work."""
    if not isinstance(model, nn.Module) or not callable(getattr(model, "get_input_embeddings", None)):
        raise ModelError(
            f"got a {type(model).__name__} as model; expected a Hugging Face model (a module with get_input_embeddings()). "
            "Explain other models with integrand.integrated_gradients(model, ids, layer=...)."
        )
    if model.training:
        raise TrainModeError("the model is in train mode; expected eval mode, without dropout: call model.eval() first.")


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse what is no tokenizer."""
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        what = repr(tokenizer) if isinstance(tokenizer, str) else f"a {type(tokenizer).__name__}"
        raise InputError(f"got {what} as tokenizer; expected a Hugging Face one: AutoTokenizer.from_pretrained(name).")


def check_options(options: dict[str, Any]) -> None:
    """Refuse what the engine does not take; ``options`` are those beyond the named ones."""
    known = ("steps", "rule", "max_evaluations", "memory", "chunk", "progress")
    for name in options:
        if name not in known:
            raise OptionError(f"got {name}=; expected one of the named options, or {', '.join(known)}.")
