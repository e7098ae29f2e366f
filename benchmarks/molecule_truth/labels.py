"""Functions of molecules whose atoms' contributions are known, and molecules on which to learn them."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FILE = "pcba_588342.csv.gz"
MOST_MATCHES = 8
"""Molecules with more matches are left out: every set of them is an explanation, and there are 2^n - 1 sets."""


@dataclass(frozen=True)
class Pattern:
    """A substructure."""

    name: str
    smarts: str

    @cached_property
    def query(self) -> Any:
        """For RDKit."""
        from rdkit import Chem

        return Chem.MolFromSmarts(self.smarts)

    def matches(self, mol: Any) -> Bools:
        """(matches, N) the atoms of each match; of two matches on the same atoms one counts."""
        found = mol.GetSubstructMatches(self.query)
        out = np.zeros((len(found), mol.GetNumAtoms()), bool)
        for row, atoms in zip(out, found, strict=True):
            row[list(atoms)] = True
        return out


@dataclass(frozen=True)
class Task:
    """What a network learns: a label made of substructures, or Crippen's logP where there are none.

    Attributes:
        name: for the table.
        patterns: the substructures.
        every: whether all of them make the label true, or any.
    """

    name: str
    patterns: tuple[Pattern, ...] = ()
    every: bool = True

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return not self.patterns

    @property
    def unit(self) -> str:
        """What the attributions are scored by."""
        return "Kendall tau" if self.regression else "AUROC"


@dataclass(frozen=True, eq=False)
class Example:
    """A molecule with its label and what made it.

    Attributes:
        mol: RDKit's molecule, heavy atoms; None if the example was read from a packed file.
        label: the number to learn, or 0 and 1.
        true: (N,) the atoms' terms, which add up to the label; or 1 for atoms of a match if the label is true, else 0.
        ways: (ways, N) the sets of atoms that explain a true label, each enough by itself; the last is all of them.
    """

    mol: Any = field(repr=False)
    label: float
    true: Floats
    ways: Bools

    @property
    def scored(self) -> bool:
        """Whether an order of the atoms can be right or wrong: not all are equally true."""
        return bool(np.ptp(self.true) > 0)


BENZENE = Pattern("benzene", "c1ccccc1")
FLUORINE = Pattern("fluoride", "[FX1]")
CARBONYL = Pattern("carbonyl", "[CX3]=O")
ALKANE = Pattern("unbranched alkane", "[R0;D2,D1][R0;D2][R0;D2,D1]")
PRIMARY_AMINE = Pattern("amine", "[NX3;H2]")
ALIPHATIC_ETHER = Pattern("ether", "[OD2](C)C")
PHENYL = Pattern("benzene", "[cX3]1[cX3H][cX3H][cX3H][cX3H][cX3H]1")
AMINE = Pattern("amine", "[NX3;!$(N*=[O,S,N,P]);!$(N#*);!$(Na)]")
ETHER = Pattern("ether", "[OX2;!$(O[#6]=[O,S,N])]([#6])[#6]")
SULPHONYL = Pattern("sulphonyl", "S(=O)=O")
PYRIDINE = Pattern("pyridine", "c1ccncc1")

TASKS = {
    "benzene": Task("benzene", (BENZENE,)),
    "logic7": Task("logic 7: fluoride AND carbonyl", (FLUORINE, CARBONYL)),
    "logic8": Task("logic 8: unbranched alkane AND carbonyl", (ALKANE, CARBONYL)),
    "logic10": Task("logic 10: amine AND ether AND benzene", (PRIMARY_AMINE, ALIPHATIC_ETHER, PHENYL)),
    "crippen": Task("Crippen logP"),
    "and3": Task("amine AND ether AND benzene, wider patterns", (AMINE, ETHER, BENZENE)),
    "or2": Task("sulphonyl OR pyridine", (SULPHONYL, PYRIDINE), every=False),
}
"""The tasks and patterns of Sanchez-Lengeling et al. (NeurIPS 2020; ``graph_attribution/tasks.py`` of
google-research/graph-attribution), on other molecules; the last two are our own. Of the assay's molecules 0.3% have all three
patterns of logic 10; every other combination that counts occurs in 1% or more."""

PUBLISHED_TASKS = ("benzene", "logic7", "logic8", "logic10", "crippen")


def crippen_terms(mol: Any) -> Floats:
    """(N,) Wildman and Crippen's terms of the heavy atoms, those of a hydrogen added to its atom: they sum to MolLogP."""
    from rdkit import Chem
    from rdkit.Chem import rdMolDescriptors

    full = Chem.AddHs(mol)  # keeps the order and puts the hydrogens last; without them their terms would be missing
    terms = [logp for logp, _ in rdMolDescriptors._CalcCrippenContribs(full)]
    out = np.array(terms[: mol.GetNumAtoms()], np.float64)
    for atom in list(full.GetAtoms())[len(out) :]:
        out[atom.GetNeighbors()[0].GetIdx()] += terms[atom.GetIdx()]
    return out


def explanations(matches: Sequence[Bools], every: bool) -> Bools:
    """(ways, N) the sets of atoms that make a label true: one or more matches, of each pattern or (not ``every``) of any."""
    if not every:
        matches = [np.concatenate(list(matches))]
    sets = [_unions(found) for found in matches]
    ways = [np.logical_or.reduce(chosen) for chosen in itertools.product(*sets)]
    kept = np.unique(np.array(ways), axis=0) if ways else np.zeros((0, matches[0].shape[1]), bool)
    return np.asarray(kept[np.argsort(kept.sum(1), kind="stable")])


def _unions(matches: Bools) -> list[Bools]:
    """The union of every set of matches that is not empty."""
    sizes = range(1, len(matches) + 1)
    return [np.logical_or.reduce(chosen) for size in sizes for chosen in itertools.combinations(matches, size)]


def example(task: Task, mol: Any) -> Example:
    """The label of a molecule, and what made it."""
    none = np.zeros((0, mol.GetNumAtoms()), bool)
    if task.regression:
        terms = crippen_terms(mol)
        return Example(mol, float(terms.sum()), terms, none)
    ways = explanations([pattern.matches(mol) for pattern in task.patterns], task.every)
    return Example(mol, float(len(ways) > 0), (ways[-1] if len(ways) else np.zeros(none.shape[1])).astype(np.float64), ways)


def read(data: Path, count: int, seed: int = 0) -> list[Any]:
    """So many molecules of the assay, drawn at random."""
    from rdkit import Chem

    with gzip.open(data / FILE, "rt", newline="") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    drawn = np.random.default_rng(seed).permutation(len(smiles))[:count]
    mols = [Chem.MolFromSmiles(smiles[i]) for i in drawn]
    return [mol for mol in mols if mol is not None]


def balanced(task: Task, mols: Sequence[Any], count: int, seed: int = 0) -> list[Example]:
    """So many examples in a random order, half of them true.

    Within the true and the false ones the combinations of patterns that are present are drawn equally often, as far as they
    last: else a network could tell an AND by its rarest part.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(mols))
    if task.regression:
        return [example(task, mols[i]) for i in order[:count]]
    counts = np.array([[len(pattern.matches(mols[i])) for pattern in task.patterns] for i in order])
    present, few = counts > 0, counts.sum(1) <= MOST_MATCHES
    label = present.all(1) if task.every else present.any(1)
    cell = present @ (1 << np.arange(present.shape[1]))
    turn = np.zeros(len(cell), int)
    for one in np.unique(cell):
        turn[cell == one] = np.arange(np.sum(cell == one))
    chosen: list[int] = []
    for value in (False, True):
        rows = np.flatnonzero((label == value) & few)
        chosen += list(rows[np.argsort(turn[rows], kind="stable")][: count // 2])
    return [example(task, mols[order[row]]) for row in rng.permutation(chosen)]
