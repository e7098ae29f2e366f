"""Do attributions find the motifs that were planted? By the network that is shipped, on sequences that it has not seen.

    python -m benchmarks.motifs                        # 50 bound sequences, three seeds, some minutes on one core
    python -m benchmarks.motifs --count 20 --seeds 0   # quicker

Letters of sequences that the network calls bound are ranked by what a method gives them; those of the planted AP-1 and GATA1
sites should come first. Letters of the CTCF site that half of the sequences hold count as wrong: it means nothing. AUROC is the
share of pairs of a right and a wrong letter in which the right one is first (chance: 0.5), AUPR the mean precision over right
ones (chance: their share, 0.08). Sites are drawn from matrices in which some positions say little, so that 1 is out of reach.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from integrand import methods, sequences
from integrand.sequences import SequenceModel, dinucleotide_shuffle

sys.path.append(str(Path(__file__).resolve().parents[1] / "training"))

Scores = Callable[[str], np.ndarray]


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """The share of pairs of a right and a wrong one in which the right one is higher; ties count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    right = int(truth.sum())
    return float((ranks[truth].sum() - right * (right + 1) / 2) / (right * (len(truth) - right)))


def aupr(scores: np.ndarray, truth: np.ndarray) -> float:
    """Average precision: the mean, over the right ones, of the share of right ones among those that are at least as high."""
    order = np.argsort(-scores, kind="stable")
    found = truth[order]
    return float((np.cumsum(found) / np.arange(1, len(found) + 1))[found].mean())


def rankings(model: SequenceModel, shuffles: int, tol: float) -> dict[str, Scores]:
    """By name, what each method gives the letters of a sequence, (L,)."""

    def ours(**how: object) -> Scores:
        return lambda text: model.explain(text, hypothetical=False, tol=tol, **how).values  # type: ignore[arg-type]

    def columns(text: str) -> Tensor:
        return torch.tensor(model.alphabet.encoded(text), dtype=torch.float32)

    def gradient(text: str) -> Tensor:
        x = columns(text)[None].requires_grad_()
        (slope,) = torch.autograd.grad(model.module(x).sum(), x)
        return slope[0]

    def times_input(text: str) -> np.ndarray:
        return (gradient(text) * columns(text)).sum(0).numpy()

    def corrected(text: str) -> np.ndarray:
        slope = gradient(text)
        return ((slope - slope.mean(0)) * columns(text)).sum(0).numpy()

    def deeplift(text: str) -> np.ndarray:
        starts = [columns(one) for one in dinucleotide_shuffle(text, shuffles)]
        x = columns(text)[None].expand(len(starts), -1, -1).contiguous()
        found = methods.DeepLift()(model.module, x, torch.stack(starts), batched=True)
        return found.numpy().sum(1).mean(0)

    def by_any_letter(text: str) -> np.ndarray:
        found = model.explain(text, shuffles=shuffles, tol=tol)
        return np.ptp(found.hypothetical, 0)  # type: ignore[no-any-return, arg-type, type-var]

    def without_sign(text: str) -> np.ndarray:
        return np.abs(ours(shuffles=shuffles)(text))

    rng = np.random.default_rng(0)
    return {
        f"integrated gradients, {shuffles} shuffles": ours(shuffles=shuffles),
        f"... without signs, {shuffles} shuffles": without_sign,
        f"... range of hypothetical ones, {shuffles} shuffles": by_any_letter,
        "integrated gradients, uniform": ours(baseline="uniform"),
        "integrated gradients, zero, corrected": ours(baseline="zero"),
        "integrated gradients, zero, as it is": ours(baseline="zero", correct=False),
        f"DeepLift (rescale), {shuffles} shuffles": deeplift,
        "gradient x input": times_input,
        "gradient x input, corrected": corrected,
        "saliency (largest magnitude of the gradient)": lambda text: gradient(text).abs().amax(0).numpy(),
        "random": lambda text: rng.random(len(text)),
    }


def run(seed: int, count: int, shuffles: int, tol: float) -> dict[str, dict[str, float]]:
    """Measure every method on new sequences that are bound, and that the network calls so."""
    from _motif_data import planted  # lies in training/, which is no package

    model = sequences.load("motifs", device="cpu")
    made = planted(np.random.default_rng([seed, 2]), model.motifs, 4 * count)
    chosen = [one for one in made if one.bound and float(model.outputs(one.letters)) > 0][:count]
    found = {}
    for name, score in rankings(model, shuffles, tol).items():
        begun = time.monotonic()
        each = [(score(one.letters), one) for one in chosen]
        spent = time.monotonic() - begun
        decoys = [float(values[a:b].mean()) for values, one in each for site, a, b, _ in one.sites if site == "CTCF"]
        sites = [float(values[one.holds()].mean()) for values, one in each]
        found[name] = {
            "auroc": float(np.mean([auroc(values, one.holds()) for values, one in each])),
            "aupr": float(np.mean([aupr(values, one.holds()) for values, one in each])),
            "ctcf_over_sites": float(np.mean(decoys) / np.mean(sites)),
            "seconds": spent / len(each),
        }
        print(f"seed {seed}  {name:50s} " + "  ".join(f"{key} {value:.3f}" for key, value in found[name].items()), flush=True)
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="sequences of each seed")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--shuffles", type=int, default=20)
    parser.add_argument("--tol", type=float, default=0.05)
    parser.add_argument("--out", type=Path, help="JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = [run(seed, options.count, options.shuffles, options.tol) for seed in options.seeds]
    print(f"\n{len(runs)} times {options.count} sequences\n")
    print("| method | AUROC | AUPR | CTCF over sites | seconds |\n|---|---|---|---|---|")
    for name in runs[0]:
        cells = []
        for key in ("auroc", "aupr", "ctcf_over_sites"):
            values = [one[name][key] for one in runs]
            cells.append(f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})")
        print(f"| {name} | {' | '.join(cells)} | {np.mean([one[name]['seconds'] for one in runs]):.2g} |")
    if options.out is not None:
        options.out.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
