"""Molecules for training the Weave networks: features in a small file, a split by scaffolds, and batches on a device."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from integrand.apps.molecules.molgraph import ATOM_FEATURES, PAIR_FEATURES, Batch, Features, Graph, graph, parse
from integrand.errors import InputError

SIDES = ("train", "valid", "test")
CHARGE = ATOM_FEATURES["full"].index("partial charge")
PART = 500  # molecules that a process does at a time


def side_of(scaffold: str) -> int:
    """Which part of the split a scaffold belongs to, 80 : 10 : 10, by a hash: it depends on nothing but the scaffold."""
    share = int.from_bytes(hashlib.sha256(f"0:{scaffold}".encode()).digest()[:8], "big") / 2**64
    return 0 if share < 0.8 else 1 if share < 0.9 else 2


def scaffold_of(mol: object) -> str:
    """The Bemis-Murcko scaffold as SMILES; molecules without a ring share the empty one."""
    from rdkit.Chem.Scaffolds import MurckoScaffold

    return MurckoScaffold.MurckoScaffoldSmiles(mol=mol, includeChirality=False)


def read_assay(path: Path) -> tuple[list[str], list[int]]:
    """SMILES and labels of a (gzipped) CSV: the first two columns."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = list(csv.reader(text.splitlines()))[1:]
    return [row[0] for row in rows], [int(float(row[1])) for row in rows]


@dataclass(frozen=True, eq=False)
class Packed:
    """Many molecules in one long table each for atoms and pairs; batches are cut from it without a loop.

    Attributes:
        atoms: (all atoms, atom features) float32.
        pairs: (all pairs, pair features) float32.
        ends: (all pairs, 2), counted within the molecule.
        atom_counts: (M,), on the CPU, as what follows.
        pair_counts: (M,).
    """

    atoms: Tensor
    pairs: Tensor
    ends: Tensor
    atom_counts: Tensor
    pair_counts: Tensor

    @staticmethod
    def of(graphs: Sequence[Graph]) -> Packed:
        """From graphs with the same set of features."""
        tables = (torch.cat([getattr(one, name) for one in graphs]) for name in ("atoms", "pairs", "ends"))
        counts = (torch.tensor([len(getattr(one, name)) for one in graphs]) for name in ("atoms", "pairs"))
        return Packed(*tables, *counts)

    def __len__(self) -> int:
        return len(self.atom_counts)

    def to(self, device: str | torch.device) -> Packed:
        """The tables on a device; counts stay."""
        return replace(self, atoms=self.atoms.to(device), pairs=self.pairs.to(device), ends=self.ends.to(device))

    def only(self, features: Features) -> Packed:
        """A smaller set of features, whose columns come first in the full one."""
        atoms, pairs = len(ATOM_FEATURES[features]), len(PAIR_FEATURES[features])
        return replace(self, atoms=self.atoms[:, :atoms].contiguous(), pairs=self.pairs[:, :pairs].contiguous())

    def batch(self, rows: Tensor) -> Batch:
        """Some molecules, padded to the largest of them, on the device of the tables.

        Args:
            rows: on the CPU, so that sizes are known without waiting for the device.
        """
        where, there = self._cut(self.atom_counts, self._first_atoms, rows)
        pairs, near = self._cut(self.pair_counts, self._first_pairs, rows)
        found = self.pairs[pairs] * near.unsqueeze(2), self.ends[pairs].long() * near.unsqueeze(2)
        return Batch(self.atoms[where] * there.unsqueeze(2), *found, there, near)

    @cached_property
    def _first_atoms(self) -> Tensor:
        return self.atom_counts.cumsum(0) - self.atom_counts

    @cached_property
    def _first_pairs(self) -> Tensor:
        return self.pair_counts.cumsum(0) - self.pair_counts

    def _cut(self, counts: Tensor, firsts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Where the molecules' rows are in a long table, (rows, most), and which of them are real."""
        most = max(1, int(counts[rows].max()))
        first, own = (values[rows].to(self.atoms.device, non_blocking=True)[:, None] for values in (firsts, counts))
        place = torch.arange(most, device=self.atoms.device)
        inside = place < own
        return torch.where(inside, first + place, 0), inside


def prepare(source: Path, out: Path, jobs: int, limit: int | None = None) -> None:
    """Features of an assay as ``out``, and fingerprints beside it as ``<out>-morgan.npz``."""
    smiles, labels = read_assay(source)
    if limit:
        keep = np.random.default_rng(0).permutation(len(smiles))[:limit]
        smiles, labels = [smiles[i] for i in keep], [labels[i] for i in keep]
    with Pool(jobs) as pool:
        parts = pool.map(_featurised, [smiles[i : i + PART] for i in range(0, len(smiles), PART)], chunksize=1)
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    read = joined.pop("read")
    fixed = {"label": np.array(labels, np.uint8)[read], "side": joined.pop("side")}
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out.with_name(f"{out.stem}-morgan.npz"), bits=joined.pop("morgan"), **fixed)
    np.savez(out, **joined, **fixed)
    print(f"{read.sum()} of {len(smiles)} molecules: {out.stat().st_size / 1e6:.0f} MB", flush=True)


def load(path: Path) -> tuple[Packed, Tensor, Tensor]:
    """The molecules that :func:`prepare` wrote, with full features; their labels; and their part of the split."""
    with np.load(path) as file:
        held = {key: torch.from_numpy(file[key]) for key in file.files}
    atoms = held["atoms"].float()
    atoms[:, CHARGE] = held["charge"].float()
    counts = held["atom_counts"].long(), held["pair_counts"].long()
    return Packed(atoms, held["pairs"].float(), held["ends"], *counts), held["label"].float(), held["side"]


def _featurised(smiles: Sequence[str]) -> dict[str, np.ndarray]:
    """Tables of some molecules; those that RDKit cannot read are left out."""
    from rdkit import RDLogger
    from rdkit.Chem import rdFingerprintGenerator

    RDLogger.DisableLog("rdApp.*")
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    read = np.zeros(len(smiles), bool)
    graphs: list[Graph] = []
    for i, text in enumerate(smiles):
        try:
            graphs.append(graph(parse(text)))
        except InputError:
            continue
        read[i] = True
    packed = {field.name: getattr(Packed.of(graphs), field.name).numpy() for field in fields(Packed)}
    return {
        "atoms": packed["atoms"].astype(np.int8),
        "charge": packed["atoms"][:, CHARGE].astype(np.float16),  # the only one that is no whole number
        "pairs": packed["pairs"].astype(np.int8),
        "ends": packed["ends"].astype(np.int16),
        "atom_counts": packed["atom_counts"].astype(np.int16),
        "pair_counts": packed["pair_counts"].astype(np.int16),
        "side": np.array([side_of(scaffold_of(one.mol)) for one in graphs], np.uint8),
        "morgan": np.stack([np.packbits(generator.GetFingerprintAsNumPy(one.mol)) for one in graphs]),
        "read": read,
    }
