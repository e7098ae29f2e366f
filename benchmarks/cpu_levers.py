"""What might make gradients cheaper on a CPU, each alone: torch.compile, and backward passes in bfloat16.

python -m benchmarks.cpu_levers                 # some minutes on two cores; needs a C++ compiler for torch.compile

Networks with their trained weights: EfficientNet-Lite0 on a photo, and the TREC question classifier, a TextCNN, on a question.
Times are of one forward and backward pass of so many rows, the least of several, side by side; "first" is what the first call
takes beside that, which a single explanation of some hundred gradients has to earn back. Errors are of gradient times velocity,
relative L1 against float32: of a node, and of the mean over all nodes of a path.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

ROWS, NODES, ROUNDS = 8, 64, 5
Context = Callable[[], Any]


@contextmanager
def coarse_products() -> Iterator[None]:
    """Convolutions and products of float32 in bfloat16, where oneDNN has kernels for that on this CPU."""
    parts = [torch.backends.mkldnn.conv, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [part.fp32_precision for part in parts]
    for part in parts:
        part.fp32_precision = "bf16"
    try:
        yield
    finally:
        for part, precision in zip(parts, before, strict=True):
            part.fp32_precision = precision


def gradients(score: Callable[[Tensor], Tensor], points: Tensor, backward: Context = nullcontext) -> Tensor:
    """Of a score at points, a few rows at a time."""
    out = []
    for some in points.split(ROWS):
        leaf = some.clone().requires_grad_(True)
        total = score(leaf).sum()
        with backward():
            out.append(torch.autograd.grad(total, leaf)[0])
    return torch.cat(out)


def networks() -> Iterator[tuple[str, nn.Module, Tensor, Tensor]]:
    """Networks with scores, an input and a baseline."""
    from .speed.inputs import Sources
    from .speed.networks import NETWORKS

    case = NETWORKS["efficientnet0"](1, Sources())[0]
    yield "EfficientNet-Lite0", case.score, case.x, case.baseline
    from integrand.apps.questions.model import load

    question = load("trec")
    ids = question.ids(["What is the capital of France ?"])
    with torch.no_grad():
        x = question.module.embedding(ids)
        target = int(question.module(ids).argmax())
    yield "TextCNN", Asked(question.module.head, ids != 0, target), x, torch.zeros_like(x)


class Asked(nn.Module):
    """The logit of one class of a question, from its embedded words.

    Args:
        head: of the network.
        mask: of the words, (1, L).
        target: the class.
    """

    def __init__(self, head: nn.Module, mask: Tensor, target: int) -> None:
        super().__init__()
        self.head, self.mask, self.target = head, mask, target

    def forward(self, embedded: Tensor) -> Tensor:
        """(N, L, D) to (N,)."""
        logits: Tensor = self.head(embedded, self.mask.expand(len(embedded), -1))
        return logits[:, self.target]


class Autocast(nn.Module):
    """A score under autocast to bfloat16: how fast such a backward pass could be, if its forward pass were allowed as well.

    Args:
        score: of rows.
    """

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score

    def forward(self, rows: Tensor) -> Tensor:
        """(N, ...) to (N,)."""
        with torch.autocast("cpu", torch.bfloat16):
            scores: Tensor = self.score(rows)
        return scores.float()


def off(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().sum() / expected.abs().sum())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    print(f"{torch.get_num_threads()} threads, {ROWS} rows at a time\n")
    print(
        "| network | lever | ms a gradient | times as fast | first call, s | node off | integrated off |\n" + "|---" * 7 + "|"
    )
    for name, score, x, baseline in networks():
        score.eval().requires_grad_(False)
        times = ((torch.arange(NODES) + 0.5) / NODES).view(-1, *[1] * (x.ndim - 1))
        points, velocity = baseline + times * (x - baseline), x - baseline
        exact = gradients(score, points) * velocity
        compiled = torch.compile(score, dynamic=False)
        levers: dict[str, tuple[Callable[[Tensor], Tensor], Context]] = {
            "float32": (score, nullcontext),
            "torch.compile": (compiled, nullcontext),
            "backward in bfloat16": (score, coarse_products),
            "bfloat16 throughout": (Autocast(score), nullcontext),
        }
        first, least, found = {}, {}, {}
        for lever, (run, backward) in levers.items():
            start = time.perf_counter()
            gradients(run, points[:ROWS], backward)
            first[lever] = time.perf_counter() - start
            found[lever] = gradients(run, points, backward) * velocity
        for _ in range(ROUNDS):
            for lever, (run, backward) in levers.items():
                start = time.perf_counter()
                gradients(run, points[: 2 * ROWS], backward)
                least[lever] = min(least.get(lever, 9e9), (time.perf_counter() - start) / (2 * ROWS))
        for lever in levers:
            node = sum(off(a, b) for a, b in zip(found[lever], exact, strict=True)) / NODES
            print(
                f"| {name} | {lever} | {1e3 * least[lever]:.1f} | {least['float32'] / least[lever]:.2f} | "
                f"{first[lever] - ROWS * least[lever]:.1f} | {node:.3%} | {off(found[lever].mean(0), exact.mean(0)):.3%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
