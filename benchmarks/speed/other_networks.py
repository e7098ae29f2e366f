"""The translator, the Weave network and the detector of speech: each input has a network of its own around shared weights."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor, nn

from .cases import Case, Probabilities, Scored
from .image_networks import as_a_user_has_it
from .inputs import Sources


class Said(nn.Module):
    """The translator's logits at the last place of a given prefix, (N, S, embedding) to (N, vocabulary)."""

    def __init__(self, model: nn.Module, prefix: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("prefix", prefix)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        given: Any = self.prefix
        out: Tensor = self.model(x, given.expand(len(x), -1, -1))[:, -1]
        return out


def translator(count: int, sources: Sources) -> list[Case]:
    """The LSTM translator: the probability of a piece of its translation, given those before it."""
    from integrand.apps.translation.seq2seq import load

    found = sources.read("sentences")
    model = as_a_user_has_it(load())
    out = []
    for i, label in enumerate(found["labels"][:count]):
        ids, said = torch.as_tensor(found[f"source{i}"])[None], torch.as_tensor(found[f"prefix{i}"])[None]
        with torch.no_grad():
            x, prefix = model.embed(ids), model.embed(said)  # type: ignore[operator]
            baseline = torch.zeros_like(x)
            baseline[:, [0, -1]] = x[:, [0, -1]]
            network = Probabilities(Said(model, prefix)).eval()
            top = int(network(x)[0].argmax())
        out.append(Case("LSTM translator", "real", Scored(network, top), x, baseline, str(label)))
    return out


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


def weave(count: int, sources: Sources) -> list[Case]:
    """The Weave network with two modules: the logit of a molecule, from features of zero."""
    from integrand.apps.molecules.weave import load_weave

    found = sources.read("molecules")
    model = as_a_user_has_it(load_weave(device="cpu"))
    out = []
    for i, label in enumerate(found["labels"][:count]):
        graph = {name: torch.as_tensor(found[f"{name}{i}"]) for name in ("atoms", "pairs", "ends", "there", "near")}
        x = torch.cat([graph["atoms"].flatten(1), graph["pairs"].flatten(1)], 1)
        network = Scored(Woven(model, graph).eval(), 0)
        out.append(Case("Weave W2N2", "real", network, x, torch.zeros_like(x), str(label), kinked=True))
    return out


class Heard(nn.Module):
    """Silero's detector of speech on one window, (N, 512) to (N,).

    The detector is recurrent: it also takes the 64 samples before the window and its state after them. Both are what the
    recording up to there gives, and are held constant along the path, so that a window explains its own probability.

    Args:
        model: the 16 kHz network inside of silero-vad's TorchScript file. Its wrapper keeps state and context between
            calls, which would make a score depend on the calls before it; the network itself takes them as arguments.
        context: (1, 64).
        state: (2, 1, 128).
    """

    context: Tensor
    state: Tensor

    def __init__(self, model: nn.Module, context: Tensor, state: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("context", context)
        self.register_buffer("state", state)

    def forward(self, x: Tensor) -> Tensor:
        """The probability that the window has speech."""
        rows = len(x)
        given = torch.cat([self.context.expand(rows, -1), x], 1)
        out: Tensor = self.model(given, self.state.expand(-1, rows, -1).contiguous())[0]
        return out[:, 0]


QUIET = 1e-3
"""The noise of a quiet room, as a part of full scale. The detector takes the size of a spectrum, which has no gradient at
exactly zero: integrand says so, and other methods give NaN."""


def silero(count: int, sources: Sources) -> list[Case]:
    """silero-vad on windows of a recording: the probability of speech, from a quiet room."""
    found = sources.read("speech")
    whole = torch.jit.load(io.BytesIO(found["code"].tobytes()), map_location="cpu").eval()
    model = whole._model
    quiet = QUIET * torch.randn(1, 512, generator=torch.Generator().manual_seed(0))
    out = []
    for i, label in enumerate(found["labels"][:count]):
        x, context, state = (torch.as_tensor(found[name][i]) for name in ("windows", "contexts", "states"))
        score = Scored(Heard(model, context[None], state).eval())
        out.append(Case("silero-vad", "real", score, x[None], quiet, str(label), kinked=True))
    return out
