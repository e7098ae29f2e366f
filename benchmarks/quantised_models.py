"""Language models of 4 and 8 bit: the error that integrated gradients claim, and that beside the same weights in float64.

python -m benchmarks.quantised_models                          # what is installed of torchao and bitsandbytes
python -m benchmarks.quantised_models --packages FOLDER        # and what lies in a folder (pip install --no-deps --target)

The model is a Llama of four layers with random weights, on a CPU; the logits of three outputs are explained to 2%.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

PROMPT, GOES_ON, TOL = "The capital of France", " is not bad", 0.02


def llama() -> Any:
    """Its sizes are multiples of what kernels take at a time."""
    import transformers as hf

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    marks = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=320, initializer_range=0.15, **sizes, **marks)).eval()


def torchao(name: str, **options: Any) -> Any:
    """The model quantised by a configuration of torchao."""
    import torchao.quantization as ao

    model = llama()
    ao.quantize_(model, getattr(ao, name)(**options))
    return model


def bitsandbytes(dtype: torch.dtype, *, kernel: bool = False, **options: Any) -> Any:
    """The model loaded by way of bitsandbytes; ``kernel`` leaves the one of CPUs on, which has no gradient."""
    import transformers as hf

    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        config = hf.BitsAndBytesConfig(**options)
        model = hf.AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=dtype).eval()
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu") and not kernel:
            module.support_avx512bf16_for_cpu = False
    return model


def dynamic() -> Any:
    """The model with PyTorch's own dynamic quantisation."""
    return torch.ao.quantization.quantize_dynamic(llama(), {nn.Linear}, dtype=torch.qint8)


def plain(model: Any) -> Any:
    """A model in float64 with the numbers that quantised weights stand for."""
    out = llama()
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "support_avx512bf16_for_cpu"):
            from bitsandbytes.functional import dequantize_4bit

            value = dequantize_4bit(weight.data, weight.quant_state)
        elif getattr(weight, "SCB", None) is not None or hasattr(getattr(module, "state", None), "SCB"):
            whole, scale = (weight.data, weight.SCB) if weight.SCB is not None else (module.state.CB, module.state.SCB)
            value = whole.float() * scale[:, None] / 127
        elif type(weight).__module__.startswith("torchao"):
            value = weight.dequantize()
        elif isinstance(module, nn.Linear | nn.Embedding) or type(weight) is nn.Parameter:
            value = weight
        else:
            continue
        out.get_submodule(name).weight = nn.Parameter(value.detach().clone().double())
    return out.double().eval()


WIDE = {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.float32}
CASES: dict[str, Callable[[], Any]] = {
    "torchao, Int8WeightOnlyConfig": lambda: torchao("Int8WeightOnlyConfig"),
    "torchao, IntxWeightOnlyConfig, 4 bit": lambda: torchao("IntxWeightOnlyConfig", weight_dtype=torch.int4),
    "torchao, Int4WeightOnlyConfig": lambda: torchao("Int4WeightOnlyConfig", group_size=32),
    "torchao, Int8DynamicActivationInt8WeightConfig": lambda: torchao("Int8DynamicActivationInt8WeightConfig"),
    "bitsandbytes, 4 bit, as loaded": lambda: bitsandbytes(torch.float32, kernel=True, **WIDE),
    "bitsandbytes, fp4": lambda: bitsandbytes(torch.float32, **WIDE),
    "bitsandbytes, nf4 twice": lambda: bitsandbytes(
        torch.float32, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, **WIDE
    ),
    "bitsandbytes, nf4 in bfloat16": lambda: bitsandbytes(
        torch.bfloat16, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    ),
    "bitsandbytes, 8 bit in float32": lambda: bitsandbytes(torch.float32, load_in_8bit=True),
    "bitsandbytes, 8 bit in float16": lambda: bitsandbytes(torch.float16, load_in_8bit=True),
    "torch, quantize_dynamic": dynamic,
}


def tried(make: Callable[[], Any]) -> str:
    """What came of a model, in a line."""
    from integrand import text
    from integrand.backends.checkpointing import blocks_of, saved_bytes
    from tests.apps.text.tiny import bytes_bpe

    def values(model: Any, tol: float) -> Any:
        given = {"continuation": GOES_ON, "baseline": "mean", "score": "logit"}
        return text.generated(model, bytes_bpe("llama"), PROMPT, tol=tol, **given)

    try:
        model = make()
        found = values(model, TOL)
        true = values(plain(model), 1e-4).values
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    off = np.abs(found.values - true).sum(1) / np.abs(true).sum(1)
    point = model.get_input_embeddings()(torch.arange(8)[None]).detach().requires_grad_()
    held = saved_bytes(lambda: model(inputs_embeds=point, use_cache=False), blocks_of(copy.copy(model)))
    claims, statuses = [one.error for one in found.certificate], {one.status.value for one in found.certificate}
    said = ", ".join(f"{claim:.2%} ({true:.2%})" for claim, true in zip(claims, off, strict=True))
    return f"{', '.join(sorted(statuses))}; claimed (true): {said}; saved {held.plain / 1e6:.1f} or {held.light / 1e6:.1f} MB"


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", help="folder with torchao and bitsandbytes, where they are not installed")
    options = parser.parse_args()
    sys.path += [options.packages] if options.packages else []
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    for name, make in CASES.items():
        print(f"{name:48} {tried(make)}", flush=True)


if __name__ == "__main__":
    main()
