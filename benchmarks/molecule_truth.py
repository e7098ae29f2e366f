"""Do attributions find the atoms that made a label? Functions of molecules whose atoms' contributions are known.

    python -m benchmarks.molecule_truth --data molecules            # the table, 3 seeds; on a GPU with --device cuda
    python -m benchmarks.molecule_truth --data molecules --quick    # one seed, few molecules: a minute, no figures to quote
    python -m benchmarks.molecule_truth --data molecules --part valid --tasks crippen --set neutral=0   # to compare settings

The folder holds ``pcba_588342.csv.gz``. Of 120,000 of its molecules, drawn at random, each function gets its own 10,000 to
train a small Weave network (two modules), 500 to choose the epoch and 2,000 to test; drawn at random, not by scaffold, for
what is asked is whether a network that knows the function can be explained. Classes are balanced, and so are the combinations
of patterns within a class. The network's output is explained (a logit, or logP) against features of zero. An atom gets what
its features get and half of what each of its pairs gets; ``atoms alone`` leaves out the pairs.

Crippen's logP is a sum of terms of atoms: Kendall's tau-b between them and the map, a mean over molecules. For labels, the
AUROC of the atoms of matches among all atoms of a molecule with a true label, a mean over molecules: of ``all matches``, where
a map that knows nothing gets 0.5, and of the ``best`` of all sets of matches that make the label true, which is how the
published figures were made (Sanchez-Lengeling et al., NeurIPS 2020) and where such a map gets more.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from integrand.apps.molecules.molgraph import Graph, collate, graph

from ._molecule_truth_labels import TASKS, Example, Task, balanced, read
from ._molecule_truth_maps import NAMES, maps_of
from ._molecule_truth_scores import aurocs, scores

sys.path.append(str(Path(__file__).resolve().parents[1] / "training"))

SETTINGS: dict[str, Any] = {
    "modules": 2,
    "hidden": 32,
    "depth": 64,
    "dense": (128, 32),
    "dropout": 0.1,
    "epochs": 15,
    "batch": 128,
    "moving": 1.0,
}
TOL = 0.01
COLUMNS = {"tau": "Kendall tau", "all": "AUROC, all matches", "best": "AUROC, best set"}
PUBLISHED = "published IG*"
NOTE = (
    "Means over molecules; ± is the standard deviation over seeds of the networks' weights. *Sanchez-Lengeling et al. 2020, "
    "200 steps: other networks and not the same molecules."
)


@dataclass(frozen=True)
class Sizes:
    """How many molecules: read, and for each function to train on, to choose the epoch, and to test."""

    pool: int = 120_000
    train: int = 10_000
    valid: int = 500
    test: int = 2_000


QUICK = Sizes(pool=6_000, train=600, valid=60, test=40)
QUICK_SETTINGS: dict[str, Any] = {"hidden": 16, "depth": 16, "dense": (32,), "epochs": 10, "batch": 32}


@dataclass(frozen=True, eq=False)
class Part:
    """Molecules of one function."""

    examples: list[Example]
    graphs: list[Graph]

    @property
    def labels(self) -> np.ndarray:
        """(M,)."""
        return np.array([one.label for one in self.examples])

    def scored(self) -> Part:
        """Those with true atoms to find."""
        kept = [pair for pair in zip(self.examples, self.graphs, strict=True) if pair[0].scored]
        return Part([one for one, _ in kept], [two for _, two in kept])


def parts_of(task: Task, mols: Sequence[Any], sizes: Sizes) -> dict[str, Part]:
    """Molecules to train on, to choose by and to test on; a smaller share for each if there are not enough."""
    wanted = {"test": sizes.test, "valid": sizes.valid, "train": sizes.train}
    examples = balanced(task, mols, sum(wanted.values()))
    graphs = [graph(one.mol) for one in examples]
    cuts = np.cumsum([0, *wanted.values()]) * len(examples) // sum(wanted.values())
    return {
        name: Part(examples[start:stop], graphs[start:stop])
        for name, start, stop in zip(wanted, cuts[:-1], cuts[1:], strict=True)
    }


def learnt(task: Task, parts: dict[str, Part], seed: int, device: str, settings: dict[str, Any]) -> nn.Module:
    """A network that was trained on the function."""
    from _weave_fit import fit  # lies in training/, which is no package

    train, valid = parts["train"], parts["valid"]
    kind = "regression" if task.regression else "classification"
    given: dict[str, Any] = {"task": kind, "seed": seed, "device": device, "valid": (valid.graphs, valid.labels)}
    return fit(train.graphs, train.labels, **given, **SETTINGS | settings)


@torch.no_grad()
def quality(net: nn.Module, task: Task, part: Part, device: str) -> float:
    """Of the network itself: R2, or AUROC over molecules."""
    rows = [part.graphs[i : i + 200] for i in range(0, len(part.graphs), 200)]
    said = torch.cat([net(*collate(some).to(device).tensors)[:, 0].double().cpu() for some in rows]).numpy()
    if task.regression:
        return float(1 - np.square(part.labels - said).mean() / part.labels.var())
    return float(aurocs(said, part.labels[None] > 0.5)[0])


def measure(
    key: str, parts: dict[str, Part], seed: int, *, part: str = "test", device: str = "cpu", **settings: Any
) -> Iterator[dict[str, Any]]:
    """Train a network and score the maps: a row for each method."""
    task, start = TASKS[key], time.perf_counter()
    net = learnt(task, parts, seed, device, settings)
    trained, own = time.perf_counter() - start, quality(net, task, parts[part], device)
    asked = parts[part].scored()
    maps = maps_of(net, asked.graphs, tol=TOL, seed=seed, device=device)
    facts = {"task": key, "seed": seed, "part": part, "network": own, "molecules": len(maps)} | {
        "converged": float(np.mean([one.converged for one in maps])),
        "gradients": float(np.mean([one.gradients for one in maps])),
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - start, 1)},
    }
    for name in NAMES:
        each = [scores(one.values[name], true) for one, true in zip(maps, asked.examples, strict=True)]
        means = {unit: float(np.mean([one[unit] for one in each])) for unit in each[0]}
        yield facts | {"method": name, "settings": settings, "scores": means}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line for each function and way to score it, a column for each method."""
    lines = [f"| function | network | score | {' | '.join(NAMES)} | {PUBLISHED} |", "|" + " --- |" * (len(NAMES) + 4)]
    for key in dict.fromkeys(row["task"] for row in rows):
        mine, task = [row for row in rows if row["task"] == key], TASKS[key]
        for unit in mine[0]["scores"]:
            networks = [row["network"] for row in mine if row["method"] == NAMES[0]]
            own = f"{'R2' if task.regression else 'AUROC'} {_spread(networks)}"
            found = [_spread([row["scores"][unit] for row in mine if row["method"] == name]) for name in NAMES]
            known = f"{task.published:.3f}" if task.published and unit != "all" else ""
            lines.append(f"| {task.name} | {own} | {COLUMNS[unit]} | {' | '.join(found)} | {known} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(set(values)) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with pcba_588342.csv.gz")
    parser.add_argument("--quick", action="store_true", help="few molecules and one seed, to see that it works")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=("valid", "test"), default="test", help="which molecules to score on")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other settings of the training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/bench/molecule_truth.json"))
    options = parser.parse_args()
    settings = {name: ast.literal_eval(value) for name, _, value in (given.partition("=") for given in options.set)}
    if options.quick:
        settings = QUICK_SETTINGS | settings
    sizes = QUICK if options.quick else Sizes()
    mols, rows = read(options.data, sizes.pool), []
    for key in options.tasks:
        parts = parts_of(TASKS[key], mols, sizes)
        for seed in range(1 if options.quick else options.seeds):
            rows += measure(key, parts, seed, part=options.part, device=options.device, **settings)
            print(f"{key}, seed {seed}: {rows[-1]['seconds']['all']:.0f} s", file=sys.stderr, flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(rows, indent=1))
    print(f"{table(rows)}\n\n{NOTE}")


if __name__ == "__main__":
    main()
