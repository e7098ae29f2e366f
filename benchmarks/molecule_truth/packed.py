"""The molecules of a task in a small file, so that a run needs neither RDKit nor its time: features, labels and matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from integrand.apps.molecules.molgraph import ATOM_FEATURES, Graph, graph

from .labels import Example, Task, balanced, explanations
from .message_passing import BONDED

CHARGE = ATOM_FEATURES["full"].index("partial charge")
PARTS = ("test", "valid", "train")


@dataclass(frozen=True)
class Sizes:
    """How many molecules: read, and for each function to train on, to choose the epoch, and to test."""

    pool: int = 326_403
    train: int = 10_000
    valid: int = 500
    test: int = 2_000


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
        return self.those([i for i, one in enumerate(self.examples) if one.scored])

    def those(self, rows: Sequence[int]) -> Part:
        """Some of them."""
        return Part([self.examples[row] for row in rows], [self.graphs[row] for row in rows])


def pack(task: Task, mols: Sequence[Any], sizes: Sizes, path: Path) -> None:
    """Choose, featurise and write the molecules of a task; a smaller share for each part if there are not enough.

    Features are whole numbers but for the partial charge, which is kept to 16 bits; a network is trained on the rounded ones.
    """
    wanted = {"test": sizes.test, "valid": sizes.valid, "train": sizes.train}
    examples = balanced(task, mols, sum(wanted.values()))
    graphs = [graph(one.mol) for one in examples]
    cuts = np.cumsum(list(wanted.values())) * len(examples) // sum(wanted.values())
    atoms, pairs = (np.concatenate([getattr(one, name).numpy() for one in graphs]) for name in ("atoms", "pairs"))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        atoms=atoms.astype(np.int8),
        charge=atoms[:, CHARGE].astype(np.float16),
        pairs=pairs.astype(np.int8),
        ends=np.concatenate([one.ends.numpy() for one in graphs]).astype(np.int16),
        atom_counts=np.array([len(one.atoms) for one in graphs], np.int16),
        pair_counts=np.array([len(one.pairs) for one in graphs], np.int16),
        part=np.searchsorted(cuts, np.arange(len(graphs)), side="right").astype(np.int8),
        label=np.array([one.label for one in examples]),
        **_truth(task, examples),
    )


def _truth(task: Task, examples: Sequence[Example]) -> dict[str, np.ndarray]:
    """Terms of atoms; or the matches: whose, of which pattern, and (K, most atoms) which atoms."""
    if task.regression:
        return {"terms": np.concatenate([one.true for one in examples]).astype(np.float32)}
    most = max(len(one.true) for one in examples)
    found = [
        (row, which, np.pad(match, (0, most - len(match))))
        for row, one in enumerate(examples)
        if one.label > 0.5
        for which, pattern in enumerate(task.patterns)
        for match in pattern.matches(one.mol)
    ]
    rows, patterns, atoms = zip(*found, strict=True)
    return {"match_of": np.array(rows, np.int32), "pattern": np.array(patterns, np.int8), "match": np.packbits(atoms, axis=1)}


def load(task: Task, path: Path, most: Sizes | None = None) -> dict[str, Part]:
    """The parts of a task as :func:`pack` wrote them, or the first molecules of each (``most``)."""
    with np.load(path) as file:
        held = {key: file[key] for key in file.files}
    atoms = torch.from_numpy(held["atoms"]).float()
    atoms[:, CHARGE] = torch.from_numpy(held["charge"]).float()
    pairs, ends = torch.from_numpy(held["pairs"]).float(), torch.from_numpy(held["ends"]).long()
    counts = [held[key].tolist() for key in ("atom_counts", "pair_counts")]
    tables = zip(atoms.split(counts[0]), pairs.split(counts[1]), ends.split(counts[1]), strict=True)
    graphs = [_graph(*one) for one in tables]
    whole = Part(_examples(task, held, counts[0]), graphs)
    rows = {name: np.flatnonzero(held["part"] == i) for i, name in enumerate(PARTS)}
    return {name: whole.those(found[: getattr(most, name) if most else None].tolist()) for name, found in rows.items()}


def _graph(atoms: torch.Tensor, pairs: torch.Tensor, ends: torch.Tensor) -> Graph:
    """Without a molecule; which pair is which bond is not known either, only that it is one."""
    bond = torch.where(pairs[:, BONDED] > 0.5, 0, -1)
    return Graph(None, atoms, pairs, ends, bond)  # type: ignore[arg-type]  # nobody asks for the molecule


def _examples(task: Task, held: dict[str, np.ndarray], counts: list[int]) -> list[Example]:
    labels = held["label"]
    if task.regression:
        terms = np.split(held["terms"].astype(np.float64), np.cumsum(counts)[:-1])
        return [
            Example(None, float(label), true, np.zeros((0, len(true)), bool)) for label, true in zip(labels, terms, strict=True)
        ]
    atoms = np.unpackbits(held["match"], axis=1).astype(bool)
    starts = np.searchsorted(held["match_of"], np.arange(len(counts) + 1))
    out = []
    for row, count in enumerate(counts):
        mine = slice(starts[row], starts[row + 1])
        matches = [atoms[mine][held["pattern"][mine] == which, :count] for which in range(len(task.patterns))]
        ways = explanations(matches, task.every)
        true = ways[-1].astype(np.float64) if len(ways) else np.zeros(count)
        out.append(Example(None, float(labels[row]), true, ways))
    return out
