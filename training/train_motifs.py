r"""Train the network that finds AP-1 sites with GATA1 sites close by, on sequences made here, on a CPU.

    pip download --no-deps pyjaspar && unzip -j pyjaspar-*.whl pyjaspar/data/JASPAR2024.sqlite
    python training/train_motifs.py --jaspar JASPAR2024.sqlite \
        --out distributions/integrand-models/src/integrand_models/motifs.safetensors --examples examples/motifs.fasta

The matrices of the motifs are from JASPAR 2024 (CC BY 4.0) and are kept in the header of the weights, so that more sequences
can be made without it. Four minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from _motif_data import LENGTH, PROFILES, Planted, matrices, one_hot, planted
from safetensors.torch import save_file
from torch import nn

from integrand.apps.sequences.motif_network import MotifNetwork

SIZES = {"training": 80_000, "validation": 2_000, "test": 4_000}
EPOCHS, BATCH, RATE, DECAY = 12, 128, 2e-3, 1e-2
SHOWN = 24
"""Sequences of the test set that are written as examples."""


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """The share of pairs of a true and a false one in which the true one has the higher score; ties count half."""
    ranks = np.empty(len(scores))
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    true = int(truth.sum())
    return float((ranks[truth].sum() - true * (true + 1) / 2) / (true * (len(truth) - true)))


def logits(network: nn.Module, sequences: list[Planted]) -> np.ndarray:
    """What the network gives for each sequence."""
    network.eval()
    with torch.no_grad():
        return np.concatenate([network(part)[:, 0].numpy() for part in torch.from_numpy(one_hot(sequences)).split(500)])


def train(profiles: dict[str, np.ndarray], seed: int) -> tuple[MotifNetwork, dict[str, float]]:
    """Train on new sequences; the network, and what was measured on others."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    sets = {name: planted(rng, profiles, count) for name, count in SIZES.items()}
    x, y = torch.from_numpy(one_hot(sets["training"])), torch.tensor([float(one.bound) for one in sets["training"]])
    network = MotifNetwork()
    steps = EPOCHS * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(EPOCHS):
        network.train()
        begun, total = time.monotonic(), 0.0
        for rows in torch.randperm(len(x)).split(BATCH):
            part = x[rows]
            if torch.rand(()) < 0.5:  # the other strand says the same
                part = part.flip(1, 2)
            loss = loss_of(network(part)[:, 0], y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        truth = np.array([one.bound for one in sets["validation"]])
        found = auroc(logits(network, sets["validation"]), truth)
        print(f"epoch {epoch}: loss {total / len(x):.4f}, validation {found:.4f}, {time.monotonic() - begun:.0f} s", flush=True)
    scores, truth = logits(network, sets["test"]), np.array([one.bound for one in sets["test"]])
    kinds = np.array([one.kind for one in sets["test"]])
    told = {"auroc": auroc(scores, truth), "accuracy": float(((scores > 0) == truth).mean())}
    for kind in sorted(set(kinds) - {"pair"}):
        told[f"auroc against {kind}"] = auroc(scores[(kinds == kind) | truth], truth[(kinds == kind) | truth])
    return network.eval(), told


def fasta(sequences: list[Planted]) -> str:
    """Sequences as FASTA; the heading says where the sites are, counted from 1."""
    lines = []
    for number, one in enumerate(sequences, 1):
        sites = " ".join(f"{name}={start + 1}-{end}{strand}" for name, start, end, strand in one.sites)
        lines += [f">seq{number} {'bound' if one.bound else one.kind.replace(' ', '-')} {sites}".rstrip()]
        lines += [one.letters[i : i + 60] for i in range(0, len(one.letters), 60)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jaspar", type=Path, required=True, help="JASPAR2024.sqlite, as in the package pyjaspar")
    parser.add_argument("--out", type=Path, required=True, help="the weights, .safetensors")
    parser.add_argument("--examples", type=Path, help="a FASTA file with sequences that the network has not seen")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    profiles = matrices(options.jaspar)
    begun = time.monotonic()
    network, told = train(profiles, options.seed)
    print(json.dumps(told, indent=1), f"{time.monotonic() - begun:.0f} s")
    kept = {name: [[round(float(p), 6) for p in column] for column in one] for name, one in profiles.items()}
    header = {
        "alphabet": "ACGT",
        "classes": json.dumps(["not bound", "bound"]),
        "length": str(LENGTH),
        "motifs": json.dumps(kept),
        "sources": json.dumps({name: f"JASPAR 2024 {stem}.{version}" for name, (stem, version) in PROFILES.items()}),
        "measured": json.dumps(told),
    }
    save_file(network.state_dict(), options.out, header)
    if options.examples is not None:
        unseen = planted(np.random.default_rng([options.seed, 1]), profiles, SHOWN)
        options.examples.write_text(fasta(unseen))


if __name__ == "__main__":
    main()
