"""What is explained: networks, inputs and baselines, the same for everybody.

A case's function takes one tensor of floats, (N, ...), and gives one score per row, so that every peer can take it: images
as they are, texts as their embeddings. Weights are real where they can be had here; otherwise they are drawn with a fixed
seed, and the table says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


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
    score: nn.Module
    x: Tensor
    baseline: Tensor

    def to(self, device: str, dtype: torch.dtype = torch.float32) -> Case:
        """The case on a device, in a precision."""
        self.score.to(device, dtype)
        return Case(self.name, self.weights, self.model, self.score, self.x.to(device, dtype), self.baseline.to(device, dtype))

    def rows(self, count: int) -> Case:
        """The first examples only."""
        return Case(self.name, self.weights, self.model, self.score, self.x[:count], self.baseline)


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


def photos(size: int, count: int) -> Tensor:
    """Scikit-image's photos, cropped and turned, (count, 3, size, size) in 0..255; the same photos every time."""
    from skimage import data, transform

    names = ("chelsea", "coffee", "astronaut", "rocket")
    out = []
    for i in range(count):
        pixels = getattr(data, names[i % len(names)])()
        side = min(pixels.shape[:2])
        shift = (i // len(names)) * 7
        square = pixels[shift:side, (pixels.shape[1] - side) // 2 :][: side - shift, : side - shift]
        small = transform.resize(square, (size, size), anti_aliasing=True) * 255
        out.append(torch.tensor(small if i // len(names) % 2 == 0 else small[:, ::-1].copy()).permute(2, 0, 1))
    return torch.stack(out).float()


def googlenet(count: int, data: Path | None) -> Case:
    """The paper's network; its weights if the folder has them."""
    from integrand.apps.googlenet import BVLC, GoogLeNet, load_bvlc

    file = None if data is None else data / "googlenet" / "bvlc_googlenet_imagenet_f16.npz"
    torch.manual_seed(0)
    model = load_bvlc(file) if file is not None and file.is_file() else GoogLeNet(BVLC)
    mean = torch.tensor([104.0, 117.0, 123.0])[:, None, None]
    x = photos(224, count).flip(1) - mean
    return _case(
        "GoogLeNet",
        "real" if file is not None and file.is_file() else "random",
        model,
        x,
        (-mean)[None].expand(1, *x.shape[1:]),
    )


def efficientnet(count: int, data: Path | None) -> Case:
    """EfficientNet-Lite0 with its ImageNet weights."""
    from tests.honesty.networks import BLACK
    from tests.honesty.networks import efficientnet as load

    x = (photos(224, count) - 127) / 128
    return _case("EfficientNet-Lite0", "real", load(), x, torch.full((1, 3, 1, 1), BLACK).expand(1, *x.shape[1:]))


def resnet50(count: int, data: Path | None) -> Case:
    """ResNet-50, which needs torchvision, with random weights."""
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    x = (photos(224, count) / 255 - 0.45) / 0.22
    return _case("ResNet-50", "random", build(weights=None), x, torch.full((1, *x.shape[1:]), -0.45 / 0.22), probability=False)


def vit(count: int, data: Path | None) -> Case:
    """ViT-B/16 with random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    x = photos(224, count) / 127.5 - 1
    return _case("ViT-B/16", "random", model, x, torch.full((1, *x.shape[1:]), -1.0), probability=False)


def _tokens(model: nn.Module, count: int, length: int, words: int) -> Tensor:
    ids = torch.randint(words, (count, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        vectors: Tensor = model.get_input_embeddings()(ids)  # type: ignore[operator]
    return vectors


def bert(count: int, data: Path | None, length: int = 128) -> Case:
    """BERT-base as a classifier, random weights spread as widely as trained ones."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_labels=2, initializer_range=0.05)).eval()
    x = _tokens(model, count, length, model.config.vocab_size)
    return _case(f"BERT-base, {length} tokens", "random", Embedded(model, last=False), x, torch.zeros(1, *x.shape[1:]))


def gpt2(count: int, data: Path | None, length: int = 512) -> Case:
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


def translator(count: int, data: Path | None) -> Case:
    """The LSTM translator: "good morning ladies and gentlemen", the second word of its translation."""
    from integrand.apps._seq2seq import START, load, load_pieces

    model, pieces = load(), load_pieces()
    ids = torch.tensor([pieces.encode("good morning ladies and gentlemen").ids])
    said = torch.tensor([[START, *[one for one in pieces.encode("Guten").ids if one > START + 1]]])
    with torch.no_grad():
        x, prefix = model.embed(ids).repeat(count, 1, 1), model.embed(said)
    x = x * torch.linspace(1, 0.9, count)[:, None, None]
    baseline = torch.zeros(1, *x.shape[1:])
    baseline[:, [0, -1]] = x[:1, [0, -1]]
    return _case("LSTM translator", "real", Said(model, prefix), x, baseline)


CASES: dict[str, Callable[[int, Path | None], Case]] = {
    "googlenet": googlenet,
    "efficientnet": efficientnet,
    "resnet50": resnet50,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    "translator": translator,
}


def spread(values: Tensor, expected: np.ndarray[Any, Any]) -> float:
    """The largest relative L1 error over examples."""
    found = values.detach().double().flatten(1).cpu().numpy()
    return float((np.abs(found - expected).sum(1) / np.abs(expected).sum(1)).max())
