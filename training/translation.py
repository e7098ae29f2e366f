r"""Train the English to German translator: LSTM with attention over word pieces (``integrand.apps.translation.seq2seq``).

    python training/translation.py --data DATA --dictionary de-en --out first.safetensors
    python training/translation.py --data DATA --dictionary de-en --start first.safetensors --out translation.safetensors \
        --steps 380 --tokens 3200 --rate 4e-4 --dropout 0.15 --looks 1
    python training/translation.py --data DATA --measure

DATA holds ``tatoeba50k/deu.txt`` and ``opennmt10k``; the dictionary is ``/usr/share/trans/de-en`` of Debian's ``trans-de-en``.
The first command needs a GPU, eight minutes of an H200; the second goes on with short sentences, a quarter of an hour on one
core; the third prints BLEU and chrF of the weights that are shipped. Settings are compared on held-out validation sentences
(``--select``), test sentences are looked at in the end. The pieces go beside the weights (``translation.json``), the
measurements into the weights' header and onto the screen. Needs ``tokenizers``, ``safetensors`` and ``sacrebleu``.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import math
import multiprocessing
import random
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _translation_data import Pair, Variants, everyday, hold_out, read_dictionary, read_news, read_tatoeba, without
from _translation_measure import SAMPLES, Weights, measure, network, padded, report, translate
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.apps.translation.seq2seq import END, PAD, SPECIAL, START, WEIGHTS, Seq2Seq
from integrand.loading import shipped

SHARE = {"tatoeba": 2.0, "example": 3.0, "everyday": 0.0, "news": 1.5, "phrase": 0.3, "word": 0.3}
"""How often one epoch shows the pairs of each source: sentences more often than entries of the dictionary."""

POLISH = {
    "tatoeba": 1.0,
    "example": 1.0,
    "everyday": 25.0,
    "news": 0.1,
    "phrase": 0.0,
    "word": 0.0,
    "common": 1.0,
    "framed": 0.1,
}
"""The same, when training goes on from given weights: short sentences, and words that are common in them."""

TRIED: tuple[dict[str, float], ...] = ({"dropout": 0.3}, {"dropout": 0.2})
"""What was compared on the validation sentences, for 1,500 steps: 0.2 was ahead; the default is for more steps than that."""

Settings = dict[str, float]
Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Corpus:
    """What is trained on, what settings are chosen by, and what is measured."""

    train: list[Pair]
    validation: dict[str, list[Pair]]
    test: dict[str, list[Pair]]


@dataclass(frozen=True)
class Files:
    """The weights to go on from, if any, and where the new ones go."""

    start: Path | None
    out: Path


def read(data: Path, dictionary: Path | None, *, seed: int) -> Corpus:
    """All sources; no text that is validated or tested on is left in what is trained on."""
    rest, validation, test = hold_out(read_tatoeba(data / "tatoeba50k" / "deu.txt"), share=0.02, seed=seed)
    train, news, last = (read_news(data / "opennmt10k", part) for part in ("train", "val", "test"))
    words = [] if dictionary is None else read_dictionary(dictionary)
    validation = without(validation, test)
    kept = without(rest + words + train + everyday(), validation + test + news + last)
    return Corpus(kept, {"tatoeba": validation, "news": news[:600]}, {"tatoeba": test, "news": last})


def learn_pieces(texts: list[str], size: int) -> Tokenizer:
    """A vocabulary for both languages; punctuation and digits stand alone."""
    pieces = Tokenizer(models.BPE(unk_token=SPECIAL[1]))
    quotes = {"[‘’‚´`]": "'", "[“”„«»]": '"', "–": "-", r"\s+": " "}
    swap = [normalizers.Replace(_pattern(old), new) for old, new in quotes.items()]
    pieces.normalizer = normalizers.Sequence([normalizers.NFC(), *swap, normalizers.Strip()])
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    pieces.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(SPECIAL), limit_alphabet=150, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    markers = [(SPECIAL[START], START), (SPECIAL[END], END)]
    pieces.post_processor = processors.TemplateProcessing(f"{SPECIAL[START]} $A {SPECIAL[END]}", special_tokens=markers)
    return pieces


def _pattern(text: str) -> object:
    from tokenizers import Regex

    return Regex(text)


class Batches:
    """Epochs of padded batches, made ahead by other processes.

    Args:
        variants: the texts of each epoch.
        pieces: the vocabulary.
        tokens: how many source and target pieces a batch has, padding included.
        skip: the chance that two pieces of a source are not merged: rare words are then met in parts, too.
    """

    def __init__(self, variants: Variants, pieces: Tokenizer, *, tokens: int, skip: float = 0.1) -> None:
        self.variants, self.tokens = variants, tokens
        self.pieces, self.split = pieces, Tokenizer.from_str(pieces.to_str())
        self.split.model.dropout = skip

    def epoch(self, seed: int) -> list[Batch]:
        """Batches of (source, lengths, target), rows of like length together, in random order."""
        texts = self.variants.epoch(seed)
        source = [e.ids for e in self.split.encode_batch_fast([a for a, _ in texts])]
        target = [e.ids for e in self.pieces.encode_batch_fast([b for _, b in texts])]
        rng = random.Random(seed)
        rows = [i for i in range(len(texts)) if len(source[i]) <= 100 and 2 < len(target[i]) <= 100]
        rows.sort(key=lambda i: (len(target[i]), len(source[i]), rng.random()))
        batches: list[list[int]] = [[]]
        wide = high = 0
        for i in rows:
            wide, high = max(wide, len(source[i])), max(high, len(target[i]))
            if (wide + high) * (len(batches[-1]) + 1) > self.tokens:
                batches.append([])
                wide, high = len(source[i]), len(target[i])
            batches[-1].append(i)
        rng.shuffle(batches)
        return [(*padded([source[i] for i in batch]), padded([target[i] for i in batch])[0]) for batch in batches]

    def __call__(self, *, seed: int, workers: int) -> Iterator[Batch]:
        """Batches without end."""
        global _maker
        _maker = self  # what the other processes inherit
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            ahead = deque(pool.submit(_make, seed + i) for i in range(workers + 1))
            while True:
                seed += 1
                ahead.append(pool.submit(_make, seed + workers))
                yield from ahead.popleft().result()


_maker: Batches | None = None


def _make(seed: int) -> list[Batch]:
    assert _maker is not None
    return _maker.epoch(seed)


def step(model: Seq2Seq, batch: Batch, device: str) -> Tensor:
    """The smoothed loss of one batch."""
    source, lengths, target = (torch.from_numpy(part) for part in batch)
    source, target = source.to(device, non_blocking=True), target.to(device, non_blocking=True)
    with torch.autocast(device, torch.bfloat16):
        logits = model(source, target[:, :-1], lengths)
    wanted = target[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1).float(), wanted, ignore_index=PAD, label_smoothing=0.1)


def train(model: Seq2Seq, batches: Iterator[Batch], settings: Settings, *, device: str) -> Iterator[tuple[int, Weights]]:
    """So many times, evenly: the number of steps of Adam, and the running average of the weights, in half precision."""
    average = copy.deepcopy(model)
    steps, looks, rate = int(settings["steps"]), int(settings["looks"]), settings["rate"]
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01, fused=device == "cuda")
    shape = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / min(400, steps / 10)) * _cosine(k / steps))
    model.train()
    start, pieces, losses = time.time(), 0, []
    for k, batch in zip(range(1, steps + 1), batches, strict=False):
        loss = step(model, batch, device)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        shape.step()
        with torch.no_grad():
            decay = min(0.999, k / (k + 10))
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        pieces += batch[0].size + batch[2].size
        losses.append(loss.detach())
        if k % 250 == 0 or k == steps:
            mean = float(torch.stack(losses).mean())
            losses.clear()
            spent = time.time() - start
            print(f"step {k}: loss {mean:.3f}, {spent:.0f} s, {pieces / spent:.0f} pieces/s", flush=True)
        if k * looks // steps > (k - 1) * looks // steps:
            yield k, {name: t.half().cpu().contiguous() for name, t in average.state_dict().items()}


def _cosine(share: float) -> float:
    return 0.02 + 0.49 * (1 + math.cos(math.pi * min(share, 1.0)))


def selected(batches: Iterator[Batch], pieces: Tokenizer, corpus: Corpus, settings: Settings, files: Files) -> Weights:
    """The weights that were best on the validation sentences, by the sum of BLEU, while one network was trained."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(int(settings["seed"]))
    model = Seq2Seq(vocabulary=len(pieces.get_vocab()), hidden=int(settings["hidden"]), dropout=settings["dropout"])
    if files.start is not None:
        model.load_state_dict(load_file(files.start))
    best: tuple[float, Weights] = (-1.0, {})
    for k, weights in train(model.to(device), batches, settings, device=device):
        found = measure(network(weights, device), pieces, corpus.validation, beam=1)
        print(f"step {k}: {json.dumps(found)}", flush=True)
        best = max(best, (found["tatoeba BLEU"] + found["news BLEU"], weights), key=lambda one: one[0])
        save_file(best[1], files.out)
    return best[1]


def parsed() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of tatoeba50k and opennmt10k")
    parser.add_argument("--dictionary", type=Path, help="Ding's de-en; without it the two others alone are trained on")
    parser.add_argument("--out", type=Path, default=Path("translation.safetensors"), help="where the weights go")
    parser.add_argument(
        "--start", type=Path, help="go on from these weights, with short sentences; their pieces lie beside them"
    )
    parser.add_argument("--select", action="store_true", help="compare settings on the validation sentences instead")
    parser.add_argument(
        "--measure",
        type=Path,
        nargs="?",
        const=shipped(WEIGHTS, "measuring"),
        help="only measure weights on the test sentences (the shipped ones)",
    )
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--hidden", type=int, default=496)
    parser.add_argument("--dropout", type=float, default=0.25)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=12800)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--looks", type=int, default=8, help="how often the validation sentences are translated")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if importlib.util.find_spec("sacrebleu") is None:  # before minutes of training, not after them
        parser.error("there is no sacrebleu, by which translations are measured: pip install sacrebleu")
    return options


def main() -> None:
    """Measure weights, compare settings, or train the network that is shipped."""
    options = parsed()
    corpus = read(options.data, options.dictionary, seed=options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.measure:
        return report(options.measure, corpus.test, device=device)
    print({part: len(pairs) for part, pairs in (corpus.validation | {"train": corpus.train}).items()}, flush=True)
    variants = Variants(corpus.train, POLISH if options.start else SHARE)
    if options.start:
        pieces = Tokenizer.from_file(str(options.start.with_suffix(".json")))
    else:
        pieces = learn_pieces([text for pair in variants.epoch(options.seed) for text in pair], options.vocabulary)
    pieces.save(str(options.out.with_suffix(".json")), pretty=False)
    batches = Batches(variants, pieces, tokens=options.tokens)(seed=options.seed, workers=options.workers)
    first = next(batches)  # the other processes start before CUDA does
    print(f"{len(pieces.get_vocab())} pieces, first batch {first[0].shape}", flush=True)
    settings = {name: value for name, value in vars(options).items() if isinstance(value, (int, float)) and name != "select"}
    for change in TRIED if options.select else ({},):
        best = selected(batches, pieces, corpus, settings | change, Files(options.start, options.out))
        model = network(best, device)
        print(json.dumps(settings | change | measure(model, pieces, corpus.validation)), flush=True)
        for text, said in zip(SAMPLES, translate(model, pieces, list(SAMPLES)), strict=True):
            print(f"    {text} -> {said}", flush=True)
        if not options.select:
            test = measure(model, pieces, corpus.test)
            print(json.dumps({"test": test}), flush=True)
            save_file(best, options.out, metadata={"settings": json.dumps(settings), "test": json.dumps(test)})
            print(f"wrote {options.out} ({options.out.stat().st_size / 1e6:.1f} MB)", flush=True)
    return None


if __name__ == "__main__":
    main()
