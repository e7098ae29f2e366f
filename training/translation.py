r"""Train the English to German translator: LSTM with attention over word pieces (``integrand.apps.translation.seq2seq``).

    python training/translation.py --data DATA --seed 1 --out 1.safetensors
    python training/translation.py --data DATA --pieces 1.json --seed 2 --dropout 0.3 --out 2.safetensors
    python training/translation.py --data DATA --pieces 1.json --seed 3 --dropout 0.4 --out 3.safetensors
    python training/translation.py --data DATA --pieces 1.json --seed 4 --rate 2e-3 --out 4.safetensors
    python training/translation.py --data DATA --distil [1-4].safetensors --out distilled.tsv
    python training/translation.py --data DATA --pieces 1.json --distilled distilled.tsv --seed 11 --dropout 0.25 --steps 4500 \
        --out student.safetensors
    python training/translation.py --data DATA --distilled distilled.tsv --start student.safetensors --polish --seed 21 \
        --dropout 0.15 --rate 4e-4 --steps 1100 --tokens 6400 --looks 2 --out translation.safetensors
    python training/translation.py --data DATA --measure

DATA holds ``tatoeba50k/deu.txt`` and ``opennmt10k``. Four networks are trained; together they translate the sentences they were
trained on, and the same with a word exchanged; a student learns from the sources and from these translations, and then goes on
with short sentences. All but the last command want a GPU: together they take nine minutes of an H200 if networks are trained
side by side. The last prints BLEU and chrF of the weights in ``integrand-models``. Weights are chosen by validation sentences;
only ``--measure`` looks at test sentences. The vocabulary goes beside the weights (``translation.json``), settings and
validation into the weights' header. Needs ``tokenizers``, ``safetensors`` and ``sacrebleu``.
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
from _translation_data import Pair, Swaps, Variants, everyday, hold_out, key, read_distilled, read_news, read_tatoeba, without
from _translation_measure import SAMPLES, Ensemble, Weights, measure, network, padded, report, translate
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.apps.translation.seq2seq import END, PAD, SPECIAL, START, WEIGHTS, Seq2Seq
from integrand.loading import shipped

SPLIT = 0
"""The seed by which sentences are held out and the vocabulary is learned, whatever ``--seed`` says."""

SHARE = {"tatoeba": 2.0, "news": 1.5, "everyday": 3.0, "distilled": 1.0, "framed": 0.12}
"""How often one epoch shows the pairs of each source."""

POLISH = {"tatoeba": 1.0, "news": 0.1, "everyday": 12.0, "distilled": 0.4, "framed": 0.15}
"""The same for ``--polish``: short sentences."""

Settings = dict[str, float]
Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Corpus:
    """What is trained on, what settings are chosen by, and what is measured."""

    train: list[Pair]
    validation: dict[str, list[Pair]]
    test: dict[str, list[Pair]]
    held: list[Pair]


@dataclass(frozen=True)
class Files:
    """The weights to go on from, if any, and where the new ones go."""

    start: Path | None
    out: Path


def read(data: Path, distilled: Path | None) -> Corpus:
    """All sources; no text that is validated or tested on is left in what is trained on."""
    rest, validation, test = hold_out(read_tatoeba(data / "tatoeba50k" / "deu.txt"), share=0.02, seed=SPLIT)
    train, news, last = (read_news(data / "opennmt10k", part) for part in ("train", "val", "test"))
    made = [] if distilled is None else read_distilled(distilled)
    validation = without(validation, test)
    held = validation + test + news + last
    kept = without(rest + train + everyday() + made, held)
    return Corpus(kept, {"tatoeba": validation, "news": news[:600]}, {"tatoeba": test, "news": last}, held)


def distil(teachers: list[Path], corpus: Corpus, *, seed: int, device: str) -> list[tuple[str, str]]:
    """What is trained on, and its sentences with a word exchanged, as several networks translate it together."""
    pieces = Tokenizer.from_file(str(teachers[0].with_suffix(".json")))
    model = Ensemble([network(load_file(path), device) for path in teachers])
    print(json.dumps({"all": measure(model, pieces, corpus.validation, beam=1)}), flush=True)
    rng, swaps = random.Random(seed), Swaps()
    held = {key(p.english) for p in corpus.held}
    texts = dict.fromkeys(p.english for p in corpus.train if p.kind in ("tatoeba", "news") and len(p.english) < 250)
    short = [text for text in texts if len(text) < 60]
    new = dict.fromkeys(other for text in short for other in (swaps(text, rng), swaps(text, rng)) if other)
    asked = list(texts | {text: None for text in new if key(text) not in held})
    said = translate(model, pieces, asked, beam=4, rows=1500)
    return [(a, b) for a, b in zip(asked, said, strict=True) if b and 0.4 < len(b) / len(a) < 2.5]


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
    model.train()
    start, pieces, losses, share = time.time(), 0, [], 0.0
    for k, batch in zip(range(1, steps + 1), batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, k / min(400, steps / 10)) * _cosine(share)
        loss = step(model, batch, device)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            decay = min(0.999, k / (k + 10))
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        pieces += batch[0].size + batch[2].size
        losses.append(loss.detach())
        before, share = share, max(k / steps, (time.time() - start) / 60 / settings["minutes"])
        if k % 250 == 0 or share >= 1:
            mean = float(torch.stack(losses).mean())
            losses.clear()
            spent = time.time() - start
            print(f"step {k}: loss {mean:.3f}, {spent:.0f} s, {pieces / spent:.0f} pieces/s", flush=True)
        if int(min(share, 1.0) * looks) > int(before * looks):
            yield k, {name: t.half().cpu().contiguous() for name, t in average.state_dict().items()}
        if share >= 1:
            break


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
    parser.add_argument("--distilled", type=Path, help="translations by other networks, to be trained on, too")
    parser.add_argument("--distil", type=Path, nargs="+", help="weights that together translate what is trained on; to --out")
    parser.add_argument("--pieces", type=Path, help="the vocabulary; learned anew without it")
    parser.add_argument("--out", type=Path, default=Path("translation.safetensors"), help="where the weights go")
    parser.add_argument("--start", type=Path, help="go on from these weights; their pieces lie beside them")
    parser.add_argument("--polish", action="store_true", help="with short sentences, above all")
    parser.add_argument(
        "--measure",
        type=Path,
        nargs="?",
        const=shipped(WEIGHTS, "measuring"),
        help="only measure weights on the test sentences (the shipped ones)",
    )
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--hidden", type=int, default=496)
    parser.add_argument("--dropout", type=float, default=0.35)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=3100)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many; the rate falls accordingly")
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--looks", type=int, default=3, help="how often the validation sentences are translated")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if importlib.util.find_spec("sacrebleu") is None:  # before minutes of training, not after them
        parser.error("there is no sacrebleu, by which translations are measured: pip install sacrebleu")
    return options


def main() -> None:
    """Measure weights, translate what is trained on, or train a network."""
    options = parsed()
    corpus = read(options.data, options.distilled)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.measure:
        return report(options.measure, corpus.test, device=device)
    if options.distil:
        pairs = distil(options.distil, corpus, seed=options.seed, device=device)
        lines = [f"{english}\t{german}\n" for english, german in pairs]
        options.out.write_text("".join(lines), encoding="utf-8")
        return print(f"wrote {options.out}, {len(lines)} pairs", flush=True)
    print({part: len(pairs) for part, pairs in (corpus.validation | {"train": corpus.train}).items()}, flush=True)
    variants = Variants(corpus.train, POLISH if options.polish else SHARE, corpus.held)
    known = options.start.with_suffix(".json") if options.start else options.pieces
    if known:
        pieces = Tokenizer.from_file(str(known))
    else:
        pieces = learn_pieces([text for pair in variants.epoch(SPLIT) for text in pair], options.vocabulary)
    pieces.save(str(options.out.with_suffix(".json")), pretty=False)
    batches = Batches(variants, pieces, tokens=options.tokens)(seed=1000 * options.seed, workers=options.workers)
    first = next(batches)  # the other processes start before CUDA does
    print(f"{len(pieces.get_vocab())} pieces, first batch {first[0].shape}", flush=True)
    settings = {name: value for name, value in vars(options).items() if isinstance(value, (int, float)) and name != "polish"}
    best = selected(batches, pieces, corpus, settings, Files(options.start, options.out))
    model = network(best, device)
    found = measure(model, pieces, corpus.validation)
    print(json.dumps(settings | found), flush=True)
    for text, said in zip(SAMPLES, translate(model, pieces, list(SAMPLES)), strict=True):
        print(f"    {text} -> {said}", flush=True)
    save_file(best, options.out, metadata={"settings": json.dumps(settings), "validation": json.dumps(found)})
    print(f"wrote {options.out} ({options.out.stat().st_size / 1e6:.1f} MB)", flush=True)
    return None


if __name__ == "__main__":
    main()
