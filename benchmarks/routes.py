"""What other paths cost, and whether their answers survive a rounding of the photo: ``python -m benchmarks.routes``.

EfficientNet-Lite0's probability for three photos of scikit-image, from black, to 5% and 1%. The last columns move every pixel
of the input by one rounding and lay the path again: a path that is steered by gradients may go elsewhere.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from skimage import data
from torch import Tensor

import integrand as ig
from integrand.apps import networks
from integrand.paths import Blur, Guided

PHOTOS = ("chelsea", "coffee", "rocket")

ROUTES: Mapping[str, Callable[[Tensor, Tensor], Any]] = {
    "straight": ig.Straight,
    "blur": lambda _, x: Blur(x),
    "guided (2 steps, 7 anchors)": Guided,
    "guided (16 steps, no anchors)": lambda black, x: Guided(black, x, steps=16, anchors=0),
}


def moved(x: Tensor) -> Tensor:
    """The same photo, off by a rounding."""
    sign = torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return x * (1 + torch.finfo(x.dtype).eps * sign)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tol", type=float, nargs="+", default=[0.05, 0.01], help="tolerances to integrate to")
    parser.add_argument("--photos", nargs="+", default=PHOTOS, help="names in skimage.data")
    options = parser.parse_args()
    network = networks.load("efficientnet-lite0")
    for photo in options.photos:
        x = network.preprocess(getattr(data, photo)())
        black = ig.baselines.black(x, low=network.preprocess.low)
        target = int(network.module(x).argmax())
        straight = ig.integrated_gradients(network.module, x, black, target=target, score="probability", tol=0.05).values
        for name, route in ROUTES.items():
            results = [
                ig.path_attribution(
                    network.module, route(black, x), target=target, score="probability", tol=tol, max_evaluations=20000
                )
                for tol in options.tol
            ]
            first = results[0].values
            again = ig.path_attribution(
                network.module, route(black, moved(x)), target=target, score="probability", tol=options.tol[0]
            ).values
            row = {
                "photo": photo,
                "path": name,
                **{f"gradients to {tol:.0%}": r.certificate.gradients for tol, r in zip(options.tol, results, strict=True)},
                "start": round(results[0].certificate.only.baseline_score, 5),
                "correlation with straight": _correlation(first, straight),
                "after a rounding, correlation": _correlation(first, again),
                "in squares of 32": _correlation(_squares(first), _squares(again)),
            }
            print(json.dumps(row), flush=True)


def _correlation(a: Tensor, b: Tensor) -> float:
    return round(float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]), 3)


def _squares(values: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool2d(values.sum(1), 32)


if __name__ == "__main__":
    main()
