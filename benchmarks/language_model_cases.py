"""Llama-size models with random weights for :mod:`benchmarks.language_models`, explained by hand and by peers."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor

SIZES: dict[str, dict[str, Any]] = {
    "1b": {  # Llama-3.2-1B
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "8b": {  # Llama-3.1-8B
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 512,
        "tie_word_embeddings": True,
    },
}
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
FILL = 0
"""The token of the baseline: inseq takes the unknown one, so everybody does."""


@dataclass(frozen=True)
class LanguageCase:
    """A model with a text to explain.

    Attributes:
        model: in bfloat16.
        tokenizer: a word for every token.
        prompt: the ids of the prompt.
        out: the ids that the model writes after it.
    """

    model: Any
    tokenizer: Any
    prompt: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def text(self) -> str:
        """The prompt in words."""
        return self.words(self.prompt)

    def words(self, ids: tuple[int, ...]) -> str:
        """Ids as text."""
        return " ".join(self.tokenizer.convert_ids_to_tokens(list(ids)))

    def before(self, output: int) -> Tensor:
        """The ids that the model reads before an output, (1, T)."""
        return torch.tensor([[*self.prompt, *self.out[:output]]], device=self.model.device)


def llama(size: str, device: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Llama of a size with random weights, made where it is to run."""
    import transformers as hf

    marks = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    config = hf.LlamaConfig(
        **SIZES[size],
        **marks,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        attn_implementation="sdpa",
    )
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = hf.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


def word_tokenizer(size: int) -> Any:
    """A tokenizer with a word of its own for each id."""
    import tokenizers as tk
    import transformers as hf

    names = {name: i for i, name in enumerate(SPECIAL)} | {f"w{i}": i for i in range(len(SPECIAL), size)}
    tokenizer = tk.Tokenizer(tk.models.WordLevel(names, unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.WhitespaceSplit()
    roles = dict(zip(("unk_token", "bos_token", "eos_token", "pad_token"), SPECIAL, strict=True))
    inputs = ["input_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **roles)


def case(model: Any, tokenizer: Any, tokens: int, outputs: int) -> LanguageCase:
    """Random words, and the words that the model writes after them."""
    size, generator = model.config.vocab_size, torch.Generator().manual_seed(tokens)
    prompt = torch.randint(len(SPECIAL), size, (1, tokens), generator=generator).to(model.device)
    with torch.no_grad():
        given = {"max_new_tokens": outputs, "min_new_tokens": outputs, "do_sample": False, "suppress_tokens": [0, 1, 2, 3]}
        whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), **given)[0].tolist()
    return LanguageCase(model, tokenizer, tuple(whole[:tokens]), tuple(whole[tokens:]))


def gradients(model: Any, points: Tensor, length: int, wanted: list[tuple[int, int]]) -> list[Tensor]:
    """The gradients of some logits at embeddings (1, T, D), from one forward pass.

    Args:
        model: any causal language model.
        points: the embeddings.
        length: of the prompt.
        wanted: for each, the number of the output and its token.
    """
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        hidden = model.model(inputs_embeds=points, use_cache=False).last_hidden_state
        places = [length - 1 + output for output, _ in wanted]
        logits = model.lm_head(hidden[:, places])[0]
        scores = [logits[i, token] for i, (_, token) in enumerate(wanted)]
        return [torch.autograd.grad(score, points, retain_graph=i + 1 < len(scores))[0] for i, score in enumerate(scores)]


def by_hand(one: LanguageCase, model: Any, outputs: list[int], nodes: int) -> np.ndarray:
    """Integrated gradients of the logits of some outputs, (outputs, T), by Gauss-Legendre; sums in float64."""
    table, ids = model.get_input_embeddings(), one.before(max(outputs))
    wanted = [(output, one.out[output]) for output in outputs]
    with torch.no_grad():
        end, start = table(ids), table(torch.full_like(ids, FILL))
    total = torch.zeros(len(wanted), ids.shape[1], dtype=torch.float64, device=end.device)
    for place, weight in zip(*np.polynomial.legendre.leggauss(nodes), strict=True):
        point = start + float((place + 1) / 2) * (end - start)
        for row, gradient in enumerate(gradients(model, point, len(one.prompt), wanted)):
            total[row] += weight / 2 * (gradient.double() * (end - start).double()).sum(-1)[0]
    return total.cpu().numpy()


def reference(one: LanguageCase, outputs: list[int], nodes: tuple[int, int]) -> tuple[np.ndarray, float]:
    """The same in float32 with the same weights, by the larger of two numbers of nodes, and by how much the two differ."""
    own = copy.deepcopy(one.model).float()
    with grouped_heads_apart():
        coarse, fine = (by_hand(one, own, outputs, count) for count in nodes)
    return fine, off(coarse, fine)


@contextmanager
def grouped_heads_apart() -> Iterator[None]:
    """Attention whose heads have keys of their own: in float32 only such runs on a GPU without holding all pairs of tokens."""
    from transformers.integrations import sdpa_attention

    before = getattr(sdpa_attention, "use_gqa_in_sdpa", None)
    if before is None:
        yield
        return
    sdpa_attention.use_gqa_in_sdpa = lambda *_, **__: False
    try:
        yield
    finally:
        sdpa_attention.use_gqa_in_sdpa = before


def off(values: np.ndarray, expected: np.ndarray) -> float:
    """The relative L1 error of the worst row; places that only one of them has are left out, being exactly zero."""
    width = min(values.shape[1], expected.shape[1])
    return float((np.abs(values[:, :width] - expected[:, :width]).sum(1) / np.abs(expected).sum(1)).max())


def run_captum(one: LanguageCase, output: int, steps: int, rows: int) -> np.ndarray:
    """Attributions of one output, (1, T), by LayerIntegratedGradients as its users call it."""
    from captum.attr import LayerIntegratedGradients

    def forward(ids: Tensor) -> Tensor:
        logits: Tensor = one.model(input_ids=ids, use_cache=False).logits
        return logits[:, -1]

    ids = one.before(output)
    method = LayerIntegratedGradients(forward, one.model.get_input_embeddings())
    given = {"target": one.out[output], "n_steps": steps, "internal_batch_size": rows}
    found = method.attribute(ids, torch.full_like(ids, FILL), **given)
    return np.asarray(found.detach().double().sum(-1).cpu().numpy())


def run_inseq(one: LanguageCase, outputs: int, steps: int, rows: int) -> np.ndarray:
    """Attributions of the first outputs, (outputs, T), by inseq."""
    import inseq

    model = inseq.load_model(one.model, "integrated_gradients", tokenizer=one.tokenizer)
    given = {"n_steps": steps, "internal_batch_size": rows, "show_progress": False, "attributed_fn": "logit"}
    whole = one.words(one.prompt + one.out[:outputs])
    found = model.attribute(one.text, whole, **given).sequence_attributions[0]
    values = found.target_attributions.double().sum(-1).nan_to_num(0).cpu().numpy()
    return np.asarray(values.T[:, : len(one.prompt) + outputs - 1])


class StandIn:
    """Lets packages that peers import and do not use here (pictures, notebooks) be missing."""

    NAMES = ("matplotlib", "mpl_toolkits", "IPython")

    def __init__(self) -> None:
        self.missing = tuple(name for name in self.NAMES if importlib.util.find_spec(name) is None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """The finder of the import system: an empty module for what is missing."""
        if name.partition(".")[0] not in self.missing:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        """A module that has every name."""
        return MagicMock(name=spec.name, __path__=[], __spec__=spec, __file__="")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def allow_missing_pictures() -> None:
    """Put stand-ins where packages for pictures are missing."""
    sys.meta_path.append(StandIn())  # type: ignore[arg-type]
