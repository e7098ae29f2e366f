"""stories260K, a real Llama that writes small stories, from the files of llama2.c to Hugging Face.

python -m tests.apps.text.stories ../shared/data/language-model ./stories260K       # a folder for integrand text --model
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as tk
import torch
import transformers as hf
from tokenizers import decoders, models, normalizers, processors
from torch import Tensor

MARKS = ("<unk>", "<s>", "</s>")
MAPPED = {"rms_att": "input_layernorm", "wq": "self_attn.q_proj", "wk": "self_attn.k_proj", "wv": "self_attn.v_proj"}
MAPPED |= {"wo": "self_attn.o_proj", "rms_ffn": "post_attention_layernorm"}
MAPPED |= {"w1": "mlp.gate_proj", "w2": "mlp.down_proj", "w3": "mlp.up_proj"}
"""The names of llama2.c and of Hugging Face, in the order of the file."""


def stories(folder: Path) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer."""
    return story_model((folder / "stories260K.bin").read_bytes()), story_tokenizer((folder / "tok512.bin").read_bytes())


def story_model(data: bytes) -> Any:
    """The model, from its weights."""
    width, inner, layers, heads, groups, words, length = struct.unpack("7i", data[:28])
    numbers, at = np.frombuffer(data, np.float32, offset=28), 0
    size = width // heads

    def taken(*shape: int) -> Tensor:
        nonlocal at
        count = int(np.prod(shape))
        found = torch.from_numpy(numbers[at : at + count].copy()).reshape(shape)
        at += count
        return found

    state = {"model.embed_tokens.weight": taken(words, width)}
    keys, shapes = groups * size, {"wo": (width, width), "w2": (width, inner)}
    shapes |= {"rms_att": (width,), "rms_ffn": (width,), "wq": (width, width), "w1": (inner, width), "w3": (inner, width)}
    shapes |= {"wk": (keys, width), "wv": (keys, width)}
    for name, own in MAPPED.items():
        for layer, weight in enumerate(taken(layers, *shapes[name])):
            if name in ("wq", "wk"):  # pairs of numbers that are turned stand side by side there, half a head apart here
                weight = weight.reshape(-1, size // 2, 2, width).transpose(1, 2).reshape(-1, width)
            state[f"model.layers.{layer}.{own}.weight"] = weight
    state["model.norm.weight"] = taken(width)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    config = hf.LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        vocab_size=words,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = hf.LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model.eval()


def story_tokenizer(data: bytes) -> Any:
    """The tokenizer: pairs are merged in the order of the scores of what they make; what is no piece becomes bytes."""
    pieces, at = list(MARKS), 4
    while at < len(data):
        (count,) = struct.unpack("i", data[at + 4 : at + 8])
        piece = data[at + 8 : at + 8 + count].decode("utf-8")
        pieces.append(piece if piece.startswith("<0x") else piece.replace(" ", "▁"))
        at += 8 + count
    pieces = [*MARKS, *pieces[2 * len(MARKS) :]]  # the file has the marks too, spelled otherwise
    names = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in pieces[len(MARKS) :]
        if not piece.startswith("<0x")
        for cut in range(1, len(piece))
        if piece[:cut] in names and piece[cut:] in names
    ]
    tokenizer = tk.Tokenizer(models.BPE(names, merges, unk_token=MARKS[0], byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    roles = dict(zip(("unk_token", "bos_token", "eos_token"), MARKS, strict=True))
    inputs = ["input_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **roles)


if __name__ == "__main__":
    for part in stories(Path(sys.argv[1])):
        part.save_pretrained(sys.argv[2])
