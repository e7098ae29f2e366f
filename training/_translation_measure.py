"""How good a translator is: BLEU and chrF on held-out sentences, as ``training/translation.py`` prints them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _translation_data import Pair, key
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from integrand.apps.translation.seq2seq import PAD, Memory, Seq2Seq, State, search

Weights = dict[str, Tensor]

SAMPLES = (
    "good morning ladies and gentlemen",
    "Good morning, ladies and gentlemen!",
    "I love my dog.",
    "i love my dog",
    "Where is the train station?",
    "where is the train station",
    "The weather is nice today and the children play in the garden.",
    "How are you?",
    "My sister has two cats.",
    "We want to drink coffee and eat cake.",
    "Can you help me?",
    "The book is on the table.",
    "What time is it?",
    "She reads a newspaper every morning.",
    "I don't know what you want.",
    "The old man walks slowly through the city.",
    "Tomorrow we will visit our friends in Berlin.",
    "Thank you very much for your help.",
    "The red car is faster than the blue car.",
    "He has lost his key and cannot open the door.",
)


@dataclass(frozen=True)
class Memories:
    """What the encoders of several networks hand over."""

    each: list[Memory]

    def rows(self, index: Tensor) -> Memories:
        """These rows of it."""
        return Memories([memory.rows(index) for memory in self.each])


class Ensemble:
    """Several networks of one vocabulary as one that ``search`` takes: the mean of their probabilities."""

    def __init__(self, models: list[Seq2Seq]) -> None:
        self.models, self.bias = models, models[0].bias

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Memories:
        """See ``Seq2Seq.encode``."""
        return Memories([model.encode(source, lengths) for model in self.models])

    def decode(self, memory: Memories, prefix: Tensor, state: State | None = None) -> tuple[Tensor, State, Tensor]:
        """Logarithms of the mean probabilities, the states one upon the other, and the first network's weights."""
        found = []
        for i, (model, part) in enumerate(zip(self.models, memory.each, strict=True)):
            mine = None if state is None else tuple(tuple(t[i : i + 1].contiguous() for t in layer) for layer in state)
            found.append(model.decode(part, prefix, mine))
        chances = sum(logits.softmax(-1) for logits, _, _ in found) / len(found)
        lower, upper = (
            tuple(torch.cat(parts) for parts in zip(*layers, strict=True))
            for layers in zip(*(s for _, s, _ in found), strict=True)
        )
        return chances.log(), (lower, upper), found[0][2]


def padded(rows: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of piece numbers as one array, and their lengths."""
    lengths = np.array([len(row) for row in rows])
    array = np.full((len(rows), lengths.max()), PAD)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    return array, lengths


def translate(model: Seq2Seq | Ensemble, pieces: Tokenizer, texts: list[str], *, beam: int = 5, rows: int = 250) -> list[str]:
    """German texts, in float32, rows of like length together."""
    device = model.bias.device
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = [""] * len(texts)
    for i in range(0, len(order), rows):
        part = order[i : i + rows]
        source, lengths = padded([pieces.encode(texts[j]).ids for j in part])
        ids = search(model, torch.from_numpy(source).to(device), torch.from_numpy(lengths), beam=beam)
        for j, row in zip(part, ids, strict=True):
            found[j] = pieces.decode(row)
    return found


def measure(model: Seq2Seq | Ensemble, pieces: Tokenizer, parts: dict[str, list[Pair]], *, beam: int = 5) -> dict[str, float]:
    """BLEU by sacrebleu's defaults: of each pair alone, and of each English text against all its translations."""
    import sacrebleu  # not for --help

    found = {}
    for name, pairs in parts.items():
        said = translate(model, pieces, [p.english for p in pairs], beam=beam)
        found[f"{name} BLEU"] = sacrebleu.corpus_bleu(said, [[p.german for p in pairs]]).score
        found[f"{name} chrF"] = sacrebleu.corpus_chrf(said, [[p.german for p in pairs]]).score
        if name == "tatoeba":
            groups: dict[str, list[str]] = {}
            for p in pairs:
                groups.setdefault(key(p.english), []).append(p.german)
            once = {key(p.english): text for p, text in zip(pairs, said, strict=True)}
            deep = max(map(len, groups.values()))
            references = [[group[i] if i < len(group) else None for group in groups.values()] for i in range(deep)]
            found[f"{name} BLEU, all references"] = sacrebleu.corpus_bleu([once[k] for k in groups], references).score
    return {name: round(value, 2) for name, value in found.items()}


def network(weights: Weights, device: str) -> Seq2Seq:
    """The network as it is shipped, to measure it as such: weights in half precision, arithmetic in single."""
    vocabulary, hidden = len(weights["bias"]), weights["look.project.weight"].shape[0]
    model = Seq2Seq(vocabulary=vocabulary, hidden=hidden).to(device).eval()
    model.load_state_dict(weights)
    return model


def report(weights: Path, parts: dict[str, list[Pair]], *, device: str) -> None:
    """Print what weights give on test sentences, with a beam of 5 and greedily; their pieces lie beside them."""
    model, pieces = network(load_file(weights), device), Tokenizer.from_file(str(weights.with_suffix(".json")))
    for name, pairs in parts.items():
        for beam in (1, 5):
            found = measure(model, pieces, {name: pairs}, beam=beam)
            print(json.dumps({"beam": beam, "pairs": len(pairs)} | found), flush=True)
