"""Relevances of a few small networks by zennit, stored for the tests of our own LRP.

pip install --no-deps zennit==0.5.1 && python -m benchmarks.zennit_references

zennit imports torchvision, for two classes that are not used here. Where torchvision cannot be imported, a stand-in with
empty classes of that name takes its place.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import torch
from torch import nn

from tests.methods.zennit_networks import BIASES, COMPOSITES, EPSILON, NETWORKS, RULES, STORE, Join, drawn

try:
    import torchvision  # noqa: F401
except Exception:  # missing, or built for another torch
    for name in ("torchvision", "torchvision.models", "torchvision.models.resnet", "torchvision.models.vgg"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("Bottleneck", "BasicBlock"):
        setattr(sys.modules["torchvision.models.resnet"], name, type(name, (nn.Module,), {}))
    sys.modules["torchvision.models"].resnet = sys.modules["torchvision.models.resnet"]
    sys.modules["torchvision"].models = sys.modules["torchvision.models"]

import zennit.rules as rules
from zennit.attribution import Gradient
from zennit.canonizers import SequentialMergeBatchNorm
from zennit.composites import EpsilonAlpha2Beta1, EpsilonPlus, LayerMapComposite, layer_map_base
from zennit.types import Convolution, Linear

TARGET = 1


def composite_of(name, bias):
    """Zennit's composite for one of our rules or presets."""
    zeros = {"zero_params": ["bias"]} if bias == "spread" else {}
    extras = {"canonizers": [SequentialMergeBatchNorm()]}
    small = {"stabilizer": EPSILON, **zeros}
    if name in COMPOSITES:
        kind = EpsilonPlus if name == "epsilon-plus" else EpsilonAlpha2Beta1
        return kind(epsilon=EPSILON, **small, **extras, layer_map=[(Join, rules.Norm(stabilizer=EPSILON))])
    rule = {
        "epsilon": lambda: rules.Epsilon(EPSILON, **zeros),
        "epsilon 0.1": lambda: rules.Epsilon(0.1, **zeros),
        "gamma 0.25": lambda: rules.Gamma(0.25, **small),
        "gamma 1": lambda: rules.Gamma(1.0, **small),
        "alpha2 beta1": lambda: rules.AlphaBeta(2.0, 1.0, **small),
        "alpha1 beta0": lambda: rules.AlphaBeta(1.0, 0.0, **small),
        "z+": lambda: rules.ZPlus(**small),
    }[name]()
    layers = [((Linear, Convolution), rule), (Join, rules.Norm(stabilizer=EPSILON)), *layer_map_base(EPSILON)]
    return LayerMapComposite([((kind,) if isinstance(kind, type) else kind, hook) for kind, hook in layers], **extras)


def main() -> None:
    found = {}
    for name in NETWORKS:
        net, x = drawn(name)
        found[f"{name}/x"] = x.numpy()
        found |= {f"{name}/weights/{key}": value.numpy() for key, value in net.state_dict().items()}
        for rule in (*RULES, *COMPOSITES):
            for bias in BIASES:
                with Gradient(model=net, composite=composite_of(rule, bias)) as attributor:
                    _, relevance = attributor(x, lambda out: out * nn.functional.one_hot(torch.tensor(TARGET), 3))
                found[f"{name}/{rule}/{bias}"] = relevance.detach().numpy()
    np.savez_compressed(STORE, **found)
    print(f"{STORE}: {len(found)} arrays, {STORE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
