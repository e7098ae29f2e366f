"""One network on one task: trained, explained, scored; and the table of all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from integrand.apps.molecules.molgraph import collate

from .labels import TASKS, Task
from .maps import NAMES, maps_of
from .message_passing import MessagePassing, bonds_only
from .packed import Part
from .published import NETWORKS as PUBLISHED_NETWORKS
from .published import figures
from .scores import aurocs, scores

sys.path.append(str(Path(__file__).resolve().parents[2] / "training"))

SETTINGS: dict[str, dict[str, Any]] = {
    "weave": {"modules": 2, "hidden": 32, "depth": 64, "dense": (128, 32), "dropout": 0.1}
    | {"epochs": 15, "batch": 128, "moving": 1.0},
    "message passing": {"rounds": 3, "hidden": 64, "dense": (64,), "dropout": 0.0}
    | {"epochs": 20, "batch": 64, "rate": 1e-3, "alike": False},
}
OF_MESSAGES = ("rounds", "hidden", "dense", "dropout")
"""Settings of the message-passing network itself; the others are of its training."""
TOL = 0.01
COLUMNS = {"tau": "Kendall tau", "all": "AUROC, all matches", "best": "AUROC, best set"}
PUBLISHED_HEAD = f"published IG ({' / '.join(PUBLISHED_NETWORKS)})"


def learnt(task: Task, network: str, parts: dict[str, Part], seed: int, device: str, settings: dict[str, Any]) -> nn.Module:
    """A network that was trained on the function."""
    from _weave_fit import fit  # lies in training/, which is no package

    train, valid = parts["train"], parts["valid"]
    kind = "regression" if task.regression else "classification"
    given: dict[str, Any] = {"task": kind, "seed": seed, "device": device, "valid": (valid.graphs, valid.labels)}
    chosen = SETTINGS[network] | settings
    if network == "message passing":
        own = {name: chosen.pop(name) for name in OF_MESSAGES if name in chosen}
        given["make"] = partial(_messages, own)
    net: nn.Module = fit(train.graphs, train.labels, **given, **chosen)
    return net


def _messages(own: dict[str, Any], atoms: int, bonds: int, tasks: int) -> nn.Module:
    return MessagePassing(atoms, bonds, tasks=tasks, **own)


@torch.no_grad()
def quality(net: nn.Module, task: Task, part: Part, device: str) -> float:
    """Of the network itself: R2, or AUROC over molecules."""
    rows = [part.graphs[i : i + 200] for i in range(0, len(part.graphs), 200)]
    said = torch.cat([net(*collate(some).to(device).tensors)[:, 0].double().cpu() for some in rows]).numpy()
    if task.regression:
        return float(1 - np.square(part.labels - said).mean() / part.labels.var())
    return float(aurocs(said, part.labels[None] > 0.5)[0])


def measure(
    key: str,
    parts: dict[str, Part],
    seed: int,
    network: str = "weave",
    *,
    part: str = "test",
    device: str = "cpu",
    **settings: Any,
) -> dict[str, Any]:
    """Train a network and score its maps: one cell of the table, with the scores of each method."""
    task, start = TASKS[key], time.perf_counter()
    if network == "message passing":
        parts = {name: replace(one, graphs=bonds_only(one.graphs)) for name, one in parts.items()}
    net = learnt(task, network, parts, seed, device, settings)
    trained, own = time.perf_counter() - start, quality(net, task, parts[part], device)
    asked = parts[part].scored()
    maps = maps_of(net, asked.graphs, tol=TOL, seed=seed, device=device)
    found: dict[str, dict[str, float]] = {}
    for name in NAMES:
        each = [scores(one.values[name], true) for one, true in zip(maps, asked.examples, strict=True)]
        found[name] = {unit: float(np.mean([one[unit] for one in each])) for unit in each[0]}
    return {
        "task": key,
        "network": network,
        "seed": seed,
        "part": part,
        "molecules": len(maps),
        "quality": own,
        "converged": float(np.mean([one.converged for one in maps])),
        "gradients": float(np.mean([one.gradients for one in maps])),
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - start, 1)},
        "settings": settings,
        "scores": found,
    }


def table(cells: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line for each function, network and way to score it, a column for each method."""
    head = f"| function | network | its own | score | {' | '.join(NAMES)} | {PUBLISHED_HEAD} |"
    lines = [head, "|" + " --- |" * (len(NAMES) + 5)]
    for key, network in dict.fromkeys((cell["task"], cell["network"]) for cell in _sorted(cells)):
        mine, task = [cell for cell in cells if (cell["task"], cell["network"]) == (key, network)], TASKS[key]
        own = f"{'R2' if task.regression else 'AUROC'} {_spread([cell['quality'] for cell in mine])}"
        for unit in mine[0]["scores"][NAMES[0]]:
            found = [_spread([cell["scores"][name][unit] for cell in mine]) for name in NAMES]
            known = figures(key, NAMES[0]) if unit != "all" else ""
            lines.append(f"| {task.name} | {network} | {own} | {COLUMNS[unit]} | {' | '.join(found)} | {known} |")
    return "\n".join(lines)


def _sorted(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    tasks, networks = list(TASKS), list(SETTINGS)
    return sorted(cells, key=lambda cell: (tasks.index(cell["task"]), networks.index(cell["network"]), cell["seed"]))


def facts(cells: Sequence[dict[str, Any]]) -> str:
    """What the cells have in common, in words."""
    counts = {key: {cell["molecules"] for cell in cells if cell["task"] == key} for key in TASKS}
    scored = ", ".join(f"{key} {min(found)}" for key, found in counts.items() if found)
    took = [cell["gradients"] for cell in cells]
    kept = [cell["converged"] for cell in cells]
    seeds = {len([c for c in cells if (c["task"], c["network"]) == (cell["task"], cell["network"])]) for cell in cells}
    return (
        f"{len(cells)} networks, {' or '.join(map(str, sorted(seeds)))} of each kind. Molecules scored: {scored}. Integrated "
        f"gradients took {min(took):.0f} to {max(took):.0f} gradients per molecule (means), and {min(kept):.1%} of the "
        f"molecules or more converged. Seconds in all: {sum(cell['seconds']['all'] for cell in cells):.0f}."
    )


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(set(values)) > 1 else "")
