"""Converged answers for the networks of the corpus, computed once and stored as a sample of features.

    python -m tests.honesty.references digits      # 3 minutes on one core
    python -m tests.honesty.references photos      # 2 minutes on a GPU, 2 hours on two cores

Written independently of the engine: a plain loop over a fine grid in this file, in float64 for the small networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .networks import BLACK, digits, efficientnet, noise_image, photo, trained

FOLDER = Path(__file__).parent
NETWORKS = ("relu", "cnn", "gelu", "lstm")
SCORES = ("logit", "probability")
DIGITS = 25
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "retina")
SAMPLE = 3000
"""Features of a photo that are kept, out of 150,528."""


@dataclass(frozen=True)
class Batch:
    """Inputs of one network that share the kind of score and of baseline."""

    name: str
    network: str
    score: str
    x: Tensor
    baseline: Tensor


def digit_batches(dtype: torch.dtype) -> Iterator[Batch]:
    """25 digits that were not trained on, for each network, score, and a blank or noisy baseline."""
    images = digits()[0][1500 : 1500 + DIGITS].to(dtype)
    noise = torch.tensor(np.random.default_rng(7).uniform(0, 1, images.shape), dtype=dtype)
    for network in NETWORKS:
        for score in SCORES:
            for kind, baseline in (("blank", torch.zeros_like(images)), ("noise", noise)):
                yield Batch(f"{network}-{score}-{kind}", network, score, images, baseline)


def photo_batches() -> Iterator[Batch]:
    """Photos, one by one, for each score and a black or noisy baseline."""
    for number, name in enumerate(PHOTOS):
        x = photo(name)
        for score in SCORES:
            for kind, baseline in (("black", torch.full_like(x, BLACK)), ("noise", noise_image(number))):
                yield Batch(f"{name}-{score}-{kind}", "efficientnet", score, x, baseline)


def sampled_features() -> np.ndarray:
    """The features of a photo that are kept."""
    return np.sort(np.random.default_rng(1).choice(3 * 224 * 224, SAMPLE, replace=False))


def converge(model: Callable[[Tensor], Tensor], batch: Batch, nodes: int, chunk: int) -> Tensor:
    """Integrated gradients by the midpoint rule on a fine grid, one example after the other, float64 sums."""
    out = []
    for x, baseline in zip(batch.x, batch.baseline, strict=True):
        with torch.no_grad():
            target = int(model(x[None]).argmax())
        total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        times = (torch.arange(nodes, dtype=torch.float64, device=x.device) + 0.5) / nodes
        for t in times.split(chunk):
            share = t.to(x.dtype).view(-1, *[1] * x.ndim)
            points = (baseline + share * (x - baseline)).requires_grad_(True)
            output = model(points)
            output = output.softmax(1) if batch.score == "probability" else output
            total += torch.autograd.grad(output[:, target].sum(), points)[0].double().sum(0)
        out.append(total / nodes * (x - baseline).double())
    return torch.stack(out)


def main(what: str) -> None:
    """Compute and store one set of references."""
    found = {}
    if what == "digits":
        for batch in digit_batches(torch.float64):
            smooth = batch.network in {"gelu", "lstm"}
            model = trained(batch.network, torch.float64).requires_grad_(False)
            found[batch.name] = converge(model, batch, 4096 if smooth else 16384, 2048).numpy()
            print(batch.name, flush=True)
    else:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = efficientnet().to(device).requires_grad_(False)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        for batch in photo_batches():
            moved = Batch(batch.name, batch.network, batch.score, batch.x.to(device), batch.baseline.to(device))
            values = converge(model, moved, 16384, 64 if device == "cuda" else 8)
            found[batch.name] = values.flatten(1)[0].cpu().numpy()[sampled_features()].astype(np.float32)
            print(batch.name, flush=True)
    np.savez_compressed(FOLDER / f"{what}.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1])
