"""Integrated gradients of GoogLeNet on a folder of photos, from black, with what each sum should be.

python -m benchmarks.googlenet_photos FOLDER --weights bvlc_googlenet.npz --tol 0.05
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import integrand as ig
from integrand.apps import networks, photos


def explained(network, path, tol):
    """One row of the table: what the certificate says, and the sum and scores computed apart from it."""
    x = network.preprocess(photos.read(path))
    black = network.preprocess.low.expand_as(x[0])[None]
    with torch.no_grad():
        before, after = network.module(torch.cat([black, x])).double().softmax(1)
    target = int(after.argmax())
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.ConvergenceWarning)  # the status is in the table
        result = ig.integrated_gradients(network.module, x, black, target=target, score="probability", tol=tol)
    seconds = time.perf_counter() - start
    total, magnitude = float(result.values.double().sum()), float(result.values.double().abs().sum())
    difference = float(after[target] - before[target])
    return {
        "label": network.label(target),
        "probability": float(after[target]),
        "difference": difference,
        "sum": total,
        "misses": abs(total - difference) / magnitude,
        "certificate": result.certificate.only,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", help="as integrand.apps.networks.load takes them for googlenet")
    parser.add_argument("--tol", type=float, default=0.05)
    options = parser.parse_args()
    network = networks.load("googlenet", weights=options.weights)
    print(f"{network.source}; tol {options.tol}\n")
    print("| photo | label | probability | F(x) - F(x') | sum | misses, of the magnitude | error | gradients | status | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for path in photos.photos([options.folder]):
        row = explained(network, path, options.tol)
        known = row["certificate"]
        rows.append(row)
        print(
            f"| {path.stem[:6]} | {row['label']} | {row['probability']:.3f} | {row['difference']:.4f} | {row['sum']:.4f} | "
            f"{row['misses']:.1e} | {known.error:.2%} | {known.gradients} | {known.status.value} | {row['seconds']:.1f} |",
            flush=True,
        )
    spent = [row["certificate"].gradients for row in rows]
    print(f"\n{len(rows)} photos: median probability {np.median([row['probability'] for row in rows]):.3f}; ", end="")
    print(f"{sum(row['certificate'].converged for row in rows)} converged; ", end="")
    print(f"{sum(row['misses'] <= options.tol for row in rows)} sums within tol of the magnitude, ", end="")
    print(f"worst {max(row['misses'] for row in rows):.1e}; gradients: median {np.median(spent):.0f}, most {max(spent)}")


if __name__ == "__main__":
    main()
