"""Language models of 4 and 8 bit: integrated with an honest certificate, or refused with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import transformers as hf

from integrand import text
from integrand.apps.text.quantised import mixes_rows
from integrand.backends.checkpointing import NOTE
from integrand.errors import ModelError

from .tiny import bytes_bpe

PROMPT, GOES_ON = "The capital of", " is not bad"
GIVEN: dict[str, Any] = {"continuation": GOES_ON, "baseline": "mean", "score": "logit", "tol": 0.02}


def llama() -> Any:
    """Its sizes are multiples of what kernels take at a time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    marks = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=320, initializer_range=0.15, **sizes, **marks)).eval()


def off(found: Any, model: Any) -> np.ndarray:
    """The relative L1 difference of each output from a model in float64."""
    expected = text.generated(model.double(), bytes_bpe("llama"), PROMPT, **(GIVEN | {"tol": 1e-4})).values
    return np.asarray(np.abs(found.values - expected).sum(1) / np.abs(expected).sum(1))


def with_weights(weights: dict[str, torch.Tensor]) -> Any:
    """The plain model with the numbers that quantised weights stand for."""
    model = llama()
    for name, weight in weights.items():
        model.get_submodule(name).weight = nn.Parameter(weight.detach().clone().float())
    return model.eval()


@pytest.mark.filterwarnings("ignore")  # torchao's own, about enums and libraries for GPUs
@pytest.mark.parametrize("bits", [8, 4])
def test_torchao_weights_alone(bits):
    torchao = pytest.importorskip("torchao.quantization")
    config = torchao.Int8WeightOnlyConfig() if bits == 8 else torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4)
    model = llama()
    torchao.quantize_(model, config)
    found = text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN)
    assert found.certificate.converged
    weights = {
        name: part.weight.dequantize()
        for name, part in model.named_modules()
        if type(getattr(part, "weight", None)).__module__.startswith("torchao")
    }
    assert len(weights) >= 14
    assert all(off(found, with_weights(weights)) <= [one.error for one in found.certificate])
    # What the weights stand for is saved for the backward pass, layer by layer; blocks that are recomputed do without.
    light = text.generated(model, bytes_bpe("llama"), PROMPT, memory=500_000, **GIVEN)
    assert light.certificate[0].note == NOTE
    np.testing.assert_allclose(light.values, found.values, atol=1e-4 * np.abs(found.values).max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bits", [8, 4])
def test_torchao_activations_too(bits):
    torchao = pytest.importorskip("torchao.quantization")
    config = {
        8: torchao.Int8DynamicActivationInt8WeightConfig,
        4: lambda: torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4),
    }[bits]()
    model = llama()
    torchao.quantize_(model, config)
    with pytest.raises(ModelError, match=r"'model\.layers\.0\.self_attn\.q_proj' .* quantise activations too.* weights alone"):
        text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN)


@pytest.fixture
def bitsandbytes(tmp_path) -> Callable[..., Any]:
    """A function that loads the model with bitsandbytes, from a folder as its users do."""
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    llama().save_pretrained(tmp_path)

    def load(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
        config = hf.BitsAndBytesConfig(**options)
        return hf.AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config, dtype=dtype).eval()

    return load


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["fp4", "nf4"])
def test_bitsandbytes_4_bit(bitsandbytes, kind):
    import bitsandbytes as bnb

    given = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_compute_dtype": torch.float32}
    model = bitsandbytes(**given, bnb_4bit_use_double_quant=kind == "nf4")
    layers = {name: part for name, part in model.named_modules() if isinstance(part, bnb.nn.Linear4bit)}
    if next(iter(layers.values())).support_avx512bf16_for_cpu and not torch.cuda.is_available():
        with pytest.raises(
            ModelError, match=r"no gradient.* set module\.support_avx512bf16_for_cpu = False on each Linear4bit"
        ):
            text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN)
    for part in layers.values():
        part.support_avx512bf16_for_cpu = False
    found = text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN)
    assert found.certificate.converged
    dequantise = bnb.functional.dequantize_4bit
    weights = {name: dequantise(part.weight.data, part.weight.quant_state) for name, part in layers.items()}
    assert all(off(found, with_weights(weights)) <= [one.error for one in found.certificate])


@pytest.mark.filterwarnings("ignore")
def test_bitsandbytes_8_bit(bitsandbytes):
    """Activations are rounded to 8 bit and gradients pass that straight through: the values come close to unrounded ones."""
    import bitsandbytes as bnb

    model = bitsandbytes(load_in_8bit=True)
    layers = {name: part for name, part in model.named_modules() if isinstance(part, bnb.nn.Linear8bitLt)}
    assert mixes_rows(model)  # so that rows run one by one
    found = text.generated(model, bytes_bpe("llama"), PROMPT, **(GIVEN | {"tol": 0.05}))

    def weight(part: Any) -> torch.Tensor:
        whole, scale = (part.weight.data, part.weight.SCB) if part.weight.SCB is not None else (part.state.CB, part.state.SCB)
        return torch.as_tensor(whole.float() * scale[:, None] / 127)

    plain = with_weights({name: weight(part) for name, part in layers.items()})
    assert found.certificate.converged
    assert all(off(found, plain) <= [one.error for one in found.certificate])


# ---- without the packages: what marks layers that have no gradient -----------------------------------------------------------


class Linear4bit(nn.Linear):
    """As bitsandbytes has it on a CPU with AVX-512 for bfloat16."""

    support_avx512bf16_for_cpu = True


@pytest.mark.parametrize(("packed", "then"), [(False, "before the model first runs"), (True, "load the model again")])
def test_a_packing_kernel_is_refused(packed, then):
    model = llama()
    layer = model.model.layers[1].mlp.up_proj = Linear4bit(64, 128, bias=False).eval()
    layer.weight.quant_state = type("QuantState", (), {"packing_format_for_cpu": packed})()  # type: ignore
    with pytest.raises(ModelError, match=rf"'model\.layers\.1\.mlp\.up_proj' is a Linear4bit.*no gradient.*{then}"):
        text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN)
    layer.support_avx512bf16_for_cpu = False
    assert text.generated(model, bytes_bpe("llama"), PROMPT, **GIVEN).certificate.converged


def test_integer_kernels_are_refused():
    model = llama()
    kind = type("Linear", (nn.Linear,), {"__module__": "torch.ao.nn.quantized.dynamic.modules.linear"})
    model.lm_head = kind(64, 320)
    with pytest.raises(ModelError, match=r"'lm_head' is a Linear, whose integer kernels have no gradient"):
        text.generated(model.eval(), bytes_bpe("llama"), PROMPT, **GIVEN)
