"""What the estimate costs on real networks: gradients to 1% and to 5%, of this version and of another one.

python -m benchmarks.claims --write before.json       # with one version; some minutes on two cores
python -m benchmarks.claims --against before.json     # with another

GoogLeNet and EfficientNet-Lite0 on photos, MiniLM on pairs of sentences, Weave on molecules, a translator and a speech
detector, all with trained weights; BERT-base with random ones. What is not at hand (``../shared/data`` for GoogLeNet,
packages) is left out. A forward pass counts 0.4 gradients.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import integrand as ig

from .speed.inputs import Missing, Sources
from .speed.networks import NETWORKS
from .speed.peers import integrand

TOLERANCES = (0.01, 0.05)
FORWARD = 0.4
INPUTS = {"googlenet": 2, "efficientnet0": 2, "weave": 20, "minilm": 8, "translator": 2, "bert": 1, "silero": 4}


def networks(data: Path, tol: float) -> Iterator[tuple[str, list[ig.ExampleCertificate]]]:
    """The certificates of each network."""
    for name, count in INPUTS.items():
        try:
            cases = NETWORKS[name](count, Sources(data))
        except Missing as error:
            print(f"{name} is left out: {error}")
            continue
        yield name, [example for case in cases for example in integrand(case, tol).certificate]


def _with_change(value: float, before: float | None) -> str:
    """Two cells: a number, and the one before with the change."""
    return f"{value:.1f} | " + ("" if before is None else f"{before:.1f} ({value / before - 1:+.1%})")


def main() -> None:
    """Run, print, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--write", type=Path, help="where to write what was found")
    parser.add_argument("--against", type=Path, help="what another version wrote")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before = json.loads(options.against.read_text()) if options.against else {}
    measured: dict[str, dict[str, float]] = {}
    print("| network | tol | inputs | gradients | before | with forward passes | before | converged | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tol in TOLERANCES:
        start = time.perf_counter()
        for name, certificates in networks(options.data, tol):
            took, start = time.perf_counter() - start, time.perf_counter()
            gradients = float(np.mean([example.gradients for example in certificates]))
            cost = gradients + FORWARD * float(np.mean([example.forwards for example in certificates]))
            measured[f"{name} {tol:g}"] = {"gradients": gradients, "cost": cost}
            previous = before.get(f"{name} {tol:g}", {})
            columns = [_with_change(gradients, previous.get("gradients")), _with_change(cost, previous.get("cost"))]
            good = sum(example.converged for example in certificates)
            print(f"| {name} | {tol:.0%} | {len(certificates)} | {' | '.join(columns)} | {good} | {took:.0f} |", flush=True)
    if options.write:
        options.write.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
