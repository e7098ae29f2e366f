"""The rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from . import image_networks, other_networks, text_networks
from .cases import Case, batch_of
from .inputs import Sources

NETWORKS: dict[str, Callable[[int, Sources], list[Case]]] = {
    "googlenet": image_networks.googlenet,
    "resnet50": image_networks.resnet50,
    "efficientnet0": partial(image_networks.efficientnet, 0),
    "efficientnet1": partial(image_networks.efficientnet, 1),
    "efficientnet2": partial(image_networks.efficientnet, 2),
    "minilm": text_networks.minilm,
    "trec": text_networks.trec,
    "stories": text_networks.stories,
    "translator": other_networks.translator,
    "weave": other_networks.weave,
    "silero": other_networks.silero,
    "vit": image_networks.vit,
    "bert": text_networks.bert,
    "gpt2": text_networks.gpt2,
}
"""From a number of inputs to as many cases."""
RANDOM = ("vit", "bert", "gpt2")
"""Sizes whose trained weights are not to be had."""
NEEDS: dict[str, tuple[str, ...]] = {
    "googlenet": ("photos", "googlenet"),
    "resnet50": ("photos", "resnet50"),
    "efficientnet0": ("photos", "efficientnet0"),
    "efficientnet1": ("photos", "efficientnet1"),
    "efficientnet2": ("photos", "efficientnet2"),
    "minilm": ("minilm", "pairs"),
    "trec": ("minilm", "trec"),
    "stories": ("stories",),
    "translator": ("sentences",),
    "weave": ("molecules",),
    "silero": ("speech",),
    "vit": ("photos",),
    "bert": (),
    "gpt2": (),
}
"""The files that each reads, see :mod:`benchmarks.speed.inputs`."""


def batch(key: str, count: int, sources: Sources) -> Case:
    """A batch of one network's inputs, for programs that explain several at once."""
    return batch_of(NETWORKS[key](count, sources), count)
