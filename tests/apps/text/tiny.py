"""Tokenizers trained on a few sentences and real architectures with random weights, made on the spot; and IG by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers as tk
import torch
import transformers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor

SENTENCES = (
    "The film was not bad at all.",
    "A truly terrible and unbelievably boring story, badly told!",
    "Good morning, ladies and gentlemen.",
    "The capital of France is Paris; that of Italy is Rome.",
    "Where is the capital of France?",
    "Unbelievable: they were walking and talking all the night long.",
)
NAMES = {0: "NEGATIVE", 1: "NEUTRAL", 2: "POSITIVE"}


@cache
def wordpiece() -> Any:
    """As BERT has it: lower case, ## for what goes on, [CLS] and [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    signs = sorted({sign for sentence in SENTENCES for sign in sentence.lower() if sign != " "})
    pieces = [
        "the",
        "film",
        "not",
        "bad",
        "good",
        "un",
        "##able",
        "##ably",
        "##ly",
        "walk",
        "##ing",
        "and",
        "capital",
        "is",
        "of",
    ]
    names = dict.fromkeys([*special, *pieces, *signs, *(f"##{sign}" for sign in signs if sign.isalpha())])
    tokenizer = tk.Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))],
    )
    tokenizer.decoder = decoders.WordPiece()
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=inputs, **dict(zip(roles, special, strict=True))
    )


def bytes_bpe(kind: str) -> Any:
    """Byte-level BPE as in RoBERTa (<s> and </s> around), T5 (</s> at the end) or GPT-2 (nothing, no padding)."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    # Not trained: the trainer's order of merges is not the same each time.
    grown = ("the", "ing", "Ġcapital", "Ġof", "Ġis", "Ġbad", "Ġfilm", "Ġnot", "Ġand", "Ġt", "ly")
    merges = dict.fromkeys((word[:i], word[i]) for word in grown for i in range(1, len(word)))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = dict.fromkeys([*special, *alphabet, *(a + b for a, b in merges)])
    tokenizer = tk.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(special)
    tokenizer.decoder = decoders.ByteLevel()
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in ("<s>", "</s>")]
    if kind in ("roberta", "t5"):
        one = "<s> $A </s>" if kind == "roberta" else "$A </s>"
        tokenizer.post_processor = processors.TemplateProcessing(single=one, pair=f"{one} $B </s>", special_tokens=marks)
    given: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if kind != "gpt2":
        given |= {"pad_token": "<pad>", "mask_token": "<mask>"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **given)


SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def classifier(kind: str) -> tuple[Any, Any]:
    """A three-class model in float64 and its tokenizer."""
    torch.manual_seed(1)
    shared: dict[str, Any] = {"num_labels": 3, "id2label": NAMES, "label2id": {v: k for k, v in NAMES.items()}}
    if kind == "bert":
        config = hf.BertConfig(
            vocab_size=len(wordpiece()), max_position_embeddings=64, initializer_range=0.3, **SMALL, **shared
        )
        return hf.BertForSequenceClassification(config).double().eval(), wordpiece()
    if kind == "distilbert":
        sizes: dict[str, Any] = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 64}
        config = hf.DistilBertConfig(vocab_size=len(wordpiece()), initializer_range=0.3, **sizes, **shared)
        return hf.DistilBertForSequenceClassification(config).double().eval(), wordpiece()
    if kind == "roberta":
        own = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1, "initializer_range": 0.3}
        config = hf.RobertaConfig(vocab_size=320, max_position_embeddings=66, **own, **SMALL, **shared)
        return hf.RobertaForSequenceClassification(config).double().eval(), bytes_bpe("roberta")
    if kind == "gpt2":
        config = hf.GPT2Config(
            vocab_size=320, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3, pad_token_id=1, **shared
        )
        return hf.GPT2ForSequenceClassification(config).double().eval(), bytes_bpe("llama")
    assert kind == "bart"
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "scale_embedding": True}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64}
    own = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "init_std": 0.3}
    model = hf.BartForSequenceClassification(hf.BartConfig(vocab_size=320, forced_eos_token_id=None, **own, **sizes, **shared))
    return model.double().eval(), bytes_bpe("roberta")


def answerer() -> tuple[Any, Any]:
    """A model that answers questions, in float64."""
    torch.manual_seed(2)
    config = hf.BertConfig(vocab_size=len(wordpiece()), max_position_embeddings=64, initializer_range=0.3, **SMALL)
    return hf.BertForQuestionAnswering(config).double().eval(), wordpiece()


def writer(kind: str) -> tuple[Any, Any]:
    """A language model in float64."""
    torch.manual_seed(3)
    marks: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    if kind == "gpt2":
        config = hf.GPT2Config(vocab_size=320, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3, **marks)
        return hf.GPT2LMHeadModel(config).double().eval(), bytes_bpe("gpt2")
    if kind in ("llama", "gemma"):
        own = {"num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-2, "initializer_range": 0.3}
        own |= {"head_dim": 8} if kind == "gemma" else {}
        made = {"llama": (hf.LlamaConfig, hf.LlamaForCausalLM), "gemma": (hf.GemmaConfig, hf.GemmaForCausalLM)}[kind]
        return made[1](made[0](vocab_size=320, **own, **SMALL, **marks)).double().eval(), bytes_bpe("llama")
    assert kind == "t5"
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "layer_norm_epsilon": 1e-2}
    sizes |= {"feed_forward_proj": "gated-gelu"}  # as in T5 1.1: smooth, so that the loop is exact
    model = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=320, decoder_start_token_id=1, **sizes, **marks))
    return model.double().eval(), bytes_bpe("t5")


EDGES = np.concatenate([[0, 1e-3, 3e-3, 0.01, 0.02, 0.035, 0.05], np.linspace(0.05, 1, 17)[1:]])
"""Parts of the path, narrow near the baseline, where norms are steep."""


def by_hand(score: Callable[[list[Tensor]], Tensor], ends: list[Tensor], starts: list[Tensor], nodes: int = 24) -> list[Tensor]:
    """Integrated gradients of one text through the model's own door for embeddings: a plain loop, summed over dimensions.

    Args:
        score: from embeddings (N, T, D) each, one row per node, to N numbers.
        ends: the embeddings, (1, T, D).
        starts: the baseline.
        nodes: of Gauss-Legendre on each part of the path.
    """
    totals = [torch.zeros(end.shape[1], dtype=torch.float64) for end in ends]
    places, weights = np.polynomial.legendre.leggauss(nodes)
    for a, b in pairwise(EDGES):
        t = torch.tensor(a + (b - a) * (places + 1) / 2)[:, None, None]
        weight = torch.tensor(weights * (b - a) / 2)[:, None, None]
        points = [(start + t * (end - start)).requires_grad_() for start, end in zip(starts, ends, strict=True)]
        gradients = torch.autograd.grad(score(points).sum(), points)
        for total, gradient, end, start in zip(totals, gradients, ends, starts, strict=True):
            total += (weight * gradient * (end - start)).sum((0, 2))
    return totals


def seer(kind: str) -> tuple[Any, Any, str, dict[str, Tensor]]:
    """A language model that also sees, in float64: the model, its tokenizer, a prompt with an image in it, and the image."""
    torch.manual_seed(4)
    tokenizer = bytes_bpe("llama")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    image = tokenizer.convert_tokens_to_ids("<image>")
    marks: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2, "initializer_range": 0.3}
    words: dict[str, Any] = {"vocab_size": 320, "num_key_value_heads": 1, "max_position_embeddings": 64, **SMALL, **marks}
    sight: dict[str, Any] = {"image_size": 16, "patch_size": 8, "initializer_range": 0.3, **SMALL}
    prompt, pixels = "The capital of " + 4 * "<image>" + " is", torch.randn(1, 3, 16, 16, dtype=torch.float64)
    given = {"pixel_values": pixels}
    if kind == "llava":
        both = {"vision_config": hf.CLIPVisionConfig(**sight), "text_config": hf.LlamaConfig(rms_norm_eps=1e-2, **words)}
        config: Any = hf.LlavaConfig(**both, image_token_index=image, vision_feature_layer=-1)
        return hf.LlavaForConditionalGeneration(config).double().eval(), tokenizer, prompt, given
    if kind == "gemma3":
        both = {"vision_config": hf.SiglipVisionConfig(**sight, vision_use_head=False)}
        both |= {"text_config": hf.Gemma3TextConfig(head_dim=8, sliding_window=32, rms_norm_eps=1e-2, **words)}
        config = hf.Gemma3Config(**both, image_token_index=image, image_token_id=image, mm_tokens_per_image=4)
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        given |= {"token_type_ids": (ids == image).long()}  # within an image, tokens see each other both ways
        return hf.Gemma3ForConditionalGeneration(config).double().eval(), tokenizer, prompt, given
    if kind == "idefics3":
        both = {"text_config": hf.LlamaConfig(rms_norm_eps=1e-2, **words)}
        config = hf.Idefics3Config(vision_config=sight, **both, image_token_id=image, scale_factor=1, pad_token_id=1)
        return hf.Idefics3ForConditionalGeneration(config).double().eval(), tokenizer, prompt, {"pixel_values": pixels[None]}
    assert kind == "qwen2-vl"
    turns = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    sight = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}
    both = {"text_config": {**words, "rope_parameters": turns, "rms_norm_eps": 1e-2}, "vision_config": sight}
    config = hf.Qwen2VLConfig(**both, image_token_id=image, vision_start_token_id=5, vision_end_token_id=6)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    given = {"pixel_values": torch.randn(16, 96, dtype=torch.float64), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    given |= {"mm_token_type_ids": (ids == image).int()}
    return hf.Qwen2VLForConditionalGeneration(config).double().eval(), tokenizer, prompt, given
