"""Inputs that a language model takes besides its tokens, such as an image: the same in every forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import IntegrandError, ModelError, OptionError
from ...memory import out_of_memory
from ...words import first_line
from .encoding import parameters_of

OWN: tuple[str, ...] = ("inputs", "input_ids", "inputs_embeds", "attention_mask", "position_ids", "cache_position")
OWN += ("past_key_values", "labels", "encoder_outputs", "logits_to_keep", "num_logits_to_keep", "rope_deltas")
OWN += ("return_dict", "return_dict_in_generate")
"""Names in ``generate=`` that follow from the text, or that change the form of the output; refused."""

WRITING = ("tokenizer", "assistant_tokenizer", "trust_remote_code", "use_model_defaults")
"""Options that ``generate`` of transformers takes from its ``**kwargs``, and that are no fields of its configuration."""

USUAL = {*OWN, "self", "kwargs", "use_cache", "output_attentions", "output_hidden_states"}
"""Parameters of ``forward`` that every language model has, or that this package sets."""


@dataclass(frozen=True)
class ModelInputs:
    """Inputs of a model besides the tokens of one prompt.

    Attributes:
        tensors: by keyword, as the model takes them with one prompt; the first dimension counts prompts, images or patches.
        constants: numbers and flags.
        prompt: the number of tokens of the prompt where the text is continued; 0 for encoder-decoders.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    prompt: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Their keywords."""
        return (*self.tensors, *self.constants)

    def along(self, length: int) -> dict[str, Tensor]:
        """The tensors for one text: the prompt and what follows it, ``length`` tokens in all."""
        return {name: self._grown(name, value, length) for name, value in self.tensors.items()}

    def by_row(self, length: int, count: int) -> dict[str, Tensor]:
        """The tensors for ``count`` texts of a length: (count, ...), each row the whole tensor of one text."""
        return {name: value[None].expand(count, *value.shape) for name, value in self.along(length).items()}

    def _grown(self, name: str, value: Tensor, length: int) -> Tensor:
        """Token types of the prompt continued as the model's own ``generate`` continues them; other tensors unchanged."""
        if not self.prompt or name not in ("token_type_ids", "mm_token_type_ids"):
            return value
        last = value[:, -1:] if name == "token_type_ids" else torch.zeros_like(value[:, -1:])
        return torch.cat([value, last.expand(-1, length - value.shape[1])], 1)


def model_inputs(model: nn.Module, generate: Mapping[str, Any], ids: Tensor, *, continued: bool) -> ModelInputs:
    """The inputs of the model among the options of ``generate``; what cannot go into every forward pass is refused.

    Args:
        model: the language model.
        generate: the user's options of ``model.generate``.
        ids: the prompt, (1, T).
        continued: whether the outputs are appended to the prompt, as by all models but encoder-decoders.
    """
    named = inspect.signature(model.forward).parameters
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in named.values())
    tensors: dict[str, Tensor] = {}
    constants: dict[str, Any] = {}
    for name, value in generate.items():
        if _for_writing(model, name) or value is None:
            continue
        got = f"got {name!r} in generate="
        if name not in named and not anything:
            raise OptionError(
                f"{got}, which is not an option of model.generate and not an input of {type(model).__name__}.forward; expected "
                "one of these. Look for a typo."
            )
        if isinstance(value, bool | int | float | str):
            constants[name] = value
        elif not isinstance(value, Tensor) or not value.ndim:
            raise OptionError(
                f"{got}, as a {type(value).__name__}; expected a tensor that can be repeated for several texts at a time, as "
                "a processor gives with return_tensors='pt'. Pass it so, or leave it out."
            )
        elif continued and name not in ("token_type_ids", "mm_token_type_ids") and _by_token(value, ids):
            raise OptionError(
                f"{got}, with a number for each of the prompt's {ids.shape[1]} tokens; expected an input that stays the same "
                "while the text grows. Leave it out."
            )
        else:
            tensors[name] = value.to(ids.device)
    return ModelInputs(tensors, constants, ids.shape[1] if continued else 0)


@contextmanager
def naming_inputs(model: nn.Module, inputs: ModelInputs) -> Iterator[None]:
    """A context in which a failure of the model says which inputs it was given, and which further ones it takes."""
    try:
        yield
    except Exception as error:
        if not inputs.names or isinstance(error, IntegrandError) or out_of_memory(error):
            raise
        more = [name for name in parameters_of(model) if name not in USUAL and name not in inputs.names]
        hint = f" It also takes {', '.join(more)}." if more else ""
        raise ModelError(
            f"{type(model).__name__} fails on the prompt with {', '.join(inputs.names)} in generate=: {type(error).__name__}: "
            f"{first_line(error)} Expected all inputs that belong to these, and their placeholders in the prompt, as the "
            f"model's processor makes them.{hint}"
        ) from error


def _for_writing(model: nn.Module, name: str) -> bool:
    """Whether an option only concerns how ``generate`` chooses tokens."""
    writing = {*inspect.signature(model.generate).parameters, *WRITING}  # type: ignore[arg-type]
    config: Any = getattr(model, "generation_config", None)
    return name in writing or (name not in parameters_of(model) if config is None else hasattr(config, name))


def _by_token(value: Tensor, ids: Tensor) -> bool:
    return not value.is_floating_point() and value.ndim == 2 and value.shape == ids.shape
