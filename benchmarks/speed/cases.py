"""What is explained: networks, inputs and baselines, the same for everybody.

A case's function takes one tensor of floats, (N, ...), and gives one score per row, so that every peer can take it: images
as they are, texts as their embeddings. Weights are real where they can be had here; otherwise they are drawn with a fixed
seed, and the table says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .inputs import Sources


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: of the network and the input.
        weights: where they are from, in a word.
        model: the network behind the score, in eval mode.
        score: from (N, ...) to (N,).
        x: (N, ...), what is explained.
        baseline: (1, ...).
    """

    name: str
    weights: str
    model: nn.Module
    score: Scored
    x: Tensor
    baseline: Tensor

    def to(self, device: str, dtype: torch.dtype = torch.float32) -> Case:
        """The case on a device, in a precision."""
        self.score.to(device, dtype)
        return replace(self, x=self.x.to(device, dtype), baseline=self.baseline.to(device, dtype))

    def rows(self, count: int) -> Case:
        """The first examples only."""
        return replace(self, x=self.x[:count])

    def afresh(self) -> Case:
        """The same with a copy of the network, of which nobody remembers anything."""
        score = copy.deepcopy(self.score)
        return replace(self, model=score.model, score=score)

    def has(self, *kinds: type[nn.Module]) -> bool:
        """Whether the network has a module of these kinds."""
        return any(isinstance(module, kinds) for module in self.score.modules())


class Scored(nn.Module):
    """The probability or logit of a class, one number per row.

    Args:
        model: gives logits (N, classes), or something that has them.
        target: the class.
        probability: through softmax.
    """

    def __init__(self, model: nn.Module, target: int, *, probability: bool) -> None:
        super().__init__()
        self.model, self.target, self.probability = model, target, probability

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) to (N,)."""
        out = self.model(x)
        logits = out if isinstance(out, Tensor) else out.logits
        return logits.softmax(-1)[:, self.target] if self.probability else logits[:, self.target]


class Embedded(nn.Module):
    """A Hugging Face model that reads embeddings.

    Args:
        model: the model.
        last: take what it says at the last token.
    """

    def __init__(self, model: nn.Module, *, last: bool) -> None:
        super().__init__()
        self.model, self.last = model, last

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, d) to logits (N, classes)."""
        logits: Tensor = self.model(inputs_embeds=x).logits
        return logits[:, -1] if self.last else logits


def _scored(model: nn.Module, x: Tensor, *, probability: bool) -> Scored:
    with torch.no_grad():
        out = model(x[:1])
    logits = out if isinstance(out, Tensor) else out.logits
    return Scored(model, int(logits[0].argmax()), probability=probability)


def _case(name: str, weights: str, model: nn.Module, x: Tensor, baseline: Tensor, *, probability: bool = True) -> Case:
    for parameter in model.parameters():
        parameter.requires_grad_(True)  # as a user has it
    return Case(name, weights, model, _scored(model.eval(), x, probability=probability), x, baseline)


def googlenet(count: int, sources: Sources) -> Case:
    """The paper's network; its weights if the folder has them."""
    from integrand.apps.images.googlenet import BVLC, GoogLeNet, load_bvlc

    file = None if sources.data is None else sources.data / "googlenet" / "bvlc_googlenet_imagenet_f16.npz"
    torch.manual_seed(0)
    real = file is not None and file.is_file()
    model = load_bvlc(str(file)) if real else GoogLeNet(BVLC)
    mean = torch.tensor([104.0, 117.0, 123.0])[:, None, None]
    x = sources.photos(count).flip(1) - mean
    return _case("GoogLeNet", "real" if real else "random", model, x, (-mean)[None].expand(1, *x.shape[1:]))


def efficientnet(count: int, sources: Sources) -> Case:
    """EfficientNet-Lite0 with its ImageNet weights."""
    from tests.honesty.networks import BLACK
    from tests.honesty.networks import efficientnet as load

    x = (sources.photos(count) - 127) / 128
    return _case("EfficientNet-Lite0", "real", load(), x, torch.full((1, 3, 1, 1), BLACK).expand(1, *x.shape[1:]))


def resnet50(count: int, sources: Sources) -> Case:
    """ResNet-50, which needs torchvision, with random weights."""
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    x = (sources.photos(count) / 255 - 0.45) / 0.22
    return _case("ResNet-50", "random", build(weights=None), x, torch.full((1, *x.shape[1:]), -0.45 / 0.22), probability=False)


def vit(count: int, sources: Sources) -> Case:
    """ViT-B/16 with random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    x = sources.photos(count) / 127.5 - 1
    return _case("ViT-B/16", "random", model, x, torch.full((1, *x.shape[1:]), -1.0), probability=False)


def _tokens(model: nn.Module, count: int, length: int, words: int) -> Tensor:
    ids = torch.randint(words, (count, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        vectors: Tensor = model.get_input_embeddings()(ids)  # type: ignore[operator]
    return vectors


def bert(count: int, sources: Sources, length: int = 128) -> Case:
    """BERT-base as a classifier, random weights spread as widely as trained ones."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=2, initializer_range=0.05)).eval()
    x = _tokens(model, count, length, model.config.vocab_size)
    return _case(f"BERT-base, {length} tokens", "random", Embedded(model, last=False), x, torch.zeros(1, *x.shape[1:]))


def gpt2(count: int, sources: Sources, length: int = 512) -> Case:
    """A model of GPT-2's size: the logit of the likeliest next token."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(initializer_range=0.05)).eval()
    x = _tokens(model, count, length, model.config.vocab_size)
    baseline = x[:1].mean((0, 1), keepdim=True).expand(1, *x.shape[1:])
    return _case(f"GPT-2, {length} tokens", "random", Embedded(model, last=True), x, baseline, probability=False)


class Said(nn.Module):
    """The translator's logits at the last place of a given prefix."""

    def __init__(self, model: nn.Module, prefix: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("prefix", prefix)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, embedding) to (N, vocabulary)."""
        given: Any = self.prefix
        out: Tensor = self.model(x, given.expand(len(x), -1, -1))[:, -1]
        return out


def translator(count: int, sources: Sources) -> Case:
    """The LSTM translator: "good morning ladies and gentlemen", the second word of its translation."""
    from integrand.apps.translation.seq2seq import load

    model = load()
    ids, said = sources.sentence()
    with torch.no_grad():
        x, prefix = model.embed(ids).repeat(count, 1, 1), model.embed(said)
    x = x * torch.linspace(1, 0.9, count)[:, None, None]
    baseline = torch.zeros(1, *x.shape[1:])
    baseline[:, [0, -1]] = x[:1, [0, -1]]
    return _case("LSTM translator", "real", Said(model, prefix), x, baseline)


class Woven(nn.Module):
    """A Weave network of one graph, whose atoms and pairs come as one row of numbers."""

    ends: Tensor
    there: Tensor
    near: Tensor

    def __init__(self, model: nn.Module, graph: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        self.shapes = graph["atoms"].shape[1:], graph["pairs"].shape[1:]
        for name in ("ends", "there", "near"):
            self.register_buffer(name, graph[name])

    def forward(self, x: Tensor) -> Tensor:
        """(N, atoms x features + pairs x features) to logits (N, 1)."""
        atoms, pairs = x.split([shape.numel() for shape in self.shapes], 1)
        graph = (one.expand(len(x), *one.shape[1:]) for one in (self.ends, self.there, self.near))
        out: Tensor = self.model(atoms.reshape(-1, *self.shapes[0]), pairs.reshape(-1, *self.shapes[1]), *graph)
        return out


def weave(count: int, sources: Sources) -> Case:
    """The Weave network with two modules; a batch is one molecule with its features scaled, since a row is numbers only."""
    from integrand.apps.molecules.weave import load_weave

    graph = sources.molecule()
    x = torch.cat([graph["atoms"].flatten(1), graph["pairs"].flatten(1)], 1).repeat(count, 1)
    x = x * torch.linspace(1, 0.9, count)[:, None]
    return _case("Weave W2N2", "real", Woven(load_weave(device="cpu"), graph), x, torch.zeros_like(x[:1]), probability=False)


CASES: dict[str, Callable[[int, Sources], Case]] = {
    "googlenet": googlenet,
    "efficientnet": efficientnet,
    "resnet50": resnet50,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    "translator": translator,
    "weave": weave,
}


def spread(values: Tensor, expected: np.ndarray[Any, Any]) -> float:
    """The largest relative L1 error over examples."""
    found = values.detach().double().flatten(1).cpu().numpy()
    return float((np.abs(found - expected).sum(1) / np.abs(expected).sum(1)).max())
