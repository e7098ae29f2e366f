"""Models of 4 and 8 bit whose layers have no gradient: refused before anything runs, with what to do.

Where weights alone are quantised, layers compute with the numbers that the weights stand for, and their gradients are exact. A
kernel without a gradient would leave only what passes it by, in a transformer the sum of what goes into its blocks.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import ModelError


def refuse_without_gradient(model: nn.Module) -> None:
    """Refuse a model with quantised layers that autograd cannot follow, by the name of the first one."""
    for name, module in model.named_modules():
        for reason in (_packed, _rounds_activations, _integer_kernel):
            why = reason(module)
            if why:
                raise ModelError(f"the model's {name!r} is a {type(module).__name__}, {why}")


def mixes_rows(model: nn.Module) -> bool:
    """Whether rows must run one by one: LLM.int8() computes a feature that is large in any row with more bits in all rows."""
    return any(getattr(getattr(module, "state", None), "threshold", 0.0) for module in model.modules())


def _packed(module: Any) -> str:
    """bitsandbytes, 4 bit, on CPUs with AVX-512 for bfloat16: the first run without gradients packs the weights for good."""
    weight: Any = getattr(module, "weight", None)
    if not getattr(module, "support_avx512bf16_for_cpu", False) or weight is None or weight.device.type != "cpu":
        return ""
    packed = getattr(getattr(weight, "quant_state", None), "packing_format_for_cpu", False)
    again = "load the model again, and before it" if packed else "before the model"
    return (
        "which bitsandbytes runs on this CPU by a kernel that has no gradient. Expected layers that can be differentiated: "
        f"{again} first runs, set module.support_avx512bf16_for_cpu = False on each Linear4bit; or explain it on a GPU."
    )


def _rounds_activations(module: Any) -> str:
    """torchao: weights that come with a way to quantise what they are multiplied by."""
    weight = getattr(module, "weight", None)
    if not type(weight).__module__.startswith("torchao"):
        return ""
    if not any(getattr(weight, name, None) is not None for name in ("act_quant_kwargs", "activation_quantization")):
        return ""
    return (
        "whose weight makes torchao quantise activations too, and that rounding has no gradient. Expected weights alone to be "
        "quantised: Int8WeightOnlyConfig() or IntxWeightOnlyConfig(weight_dtype=torch.int4); or explain the model before it is "
        "quantised."
    )


INTEGER_MODULES = ("torch.ao.nn.quantized", "torch.nn.quantized")
"""Where PyTorch's own quantised layers are defined."""


def _integer_kernel(module: Any) -> str:
    """PyTorch's own dynamic and static quantisation."""
    if not type(module).__module__.startswith(INTEGER_MODULES):
        return ""
    return (
        "whose integer kernels have no gradient. Expected weights alone to be quantised (torchao's Int8WeightOnlyConfig()), or "
        "the model before it is quantised."
    )
