"""Molecules as graphs: the atom and pair features of Kearnes et al., "Molecular graph convolutions" (2016)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InputError, MissingExtraError, OptionError
from .rdkit_signals import ctrl_c_kept

if TYPE_CHECKING:
    from rdkit.Chem import Mol

F = TypeVar("F", bound=Callable[..., Any])

Features = Literal["full", "simple"]
Floats = NDArray[np.float32]

ATOMS = 500
"""Molecules with more heavy atoms than this are refused: a chain of as many takes ten seconds on a core, one of 2000 ninety."""

PAIRS = 5000
"""Molecules with more pairs of atoms within :data:`REACH` than this, or twice as many bonds, are refused; 500 atoms of a
peptide have 1,300 pairs."""

LONGEST = 10_000
"""SMILES with more characters than this are refused before RDKit reads them."""

REACH = 2
"""Pairs of atoms further apart than this many bonds are left out (N2)."""

_ELEMENTS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F", 15: "P", 16: "S", 17: "Cl", 35: "Br", 53: "I"}
_TYPES = tuple(f"atom {name}" for name in (*_ELEMENTS.values(), "metal"))
_BONDS = ("single", "double", "triple", "aromatic")
_RINGS = range(3, 9)
_DISTANCES = range(1, 8)
_HYBRIDS = ("sp", "sp2", "sp3")

ATOM_FEATURES: dict[Features, tuple[str, ...]] = {
    "full": (
        *_TYPES,
        *("chirality R", "chirality S", "formal charge", "partial charge"),
        *(f"rings of {size}" for size in _RINGS),
        *_HYBRIDS,
        *("donor", "acceptor", "aromatic"),
    ),
    "simple": _TYPES,
}
"""A name for every column of the atoms' features."""

PAIR_FEATURES: dict[Features, tuple[str, ...]] = {
    "full": (*(f"bond {kind}" for kind in _BONDS), *(f"distance <= {d}" for d in _DISTANCES), "same ring"),
    "simple": (*(f"bond {kind}" for kind in _BONDS), *(f"distance <= {d}" for d in _DISTANCES)),
}
"""A name for every column of the pairs' features."""

_ATOM = {name: column for column, name in enumerate(ATOM_FEATURES["full"])}
_PAIR = {name: column for column, name in enumerate(PAIR_FEATURES["full"])}
_METALS = {3, 4, *range(11, 14), *range(19, 32), *range(37, 51), *range(55, 85), *range(87, 119)}
_BOND_COLUMNS = {kind.upper(): _PAIR[f"bond {kind}"] for kind in _BONDS}
_HYBRID_COLUMNS = {name.upper(): _ATOM[name] for name in _HYBRIDS}
_COLUMN_OF_ELEMENT = dict.fromkeys(_METALS, _ATOM["atom metal"]) | {
    number: _ATOM[f"atom {name}"] for number, name in _ELEMENTS.items()
}


@dataclass(frozen=True, eq=False)
class Graph:
    """One molecule as tensors.

    Attributes:
        mol: the molecule; atoms are in its order.
        atoms: (N, atom features) float32.
        pairs: (P, pair features) float32: unordered pairs up to graph distance :data:`REACH`.
        ends: (P, 2) int64, the two atoms of each pair, the smaller index first.
        bond: (P,) int64, RDKit's index of the bond, -1 for pairs that are not bonds.
    """

    mol: Mol
    atoms: Tensor
    pairs: Tensor
    ends: Tensor
    bond: Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Several molecules, padded to the largest; padding is zero, and its pairs point at atom 0.

    Attributes:
        atoms: (B, N, atom features) float32.
        pairs: (B, P, pair features) float32; P is at least 1, so that ions have a (padded) pair too.
        ends: (B, P, 2) int64.
        there: (B, N) bool, which atoms are real.
        near: (B, P) bool, which pairs are real.
    """

    atoms: Tensor
    pairs: Tensor
    ends: Tensor
    there: Tensor
    near: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """A copy of the batch on another device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The tensors of the batch in the order that the network takes them."""
        return self.atoms, self.pairs, self.ends, self.there, self.near


def parse(smiles: str) -> Mol:
    """Parse a SMILES; an :class:`~integrand.errors.InputError` in one line if RDKit cannot.

    >>> parse("CC(=O)O").GetNumAtoms()
    4
    """
    if not isinstance(smiles, str):
        raise InputError(f"got a {type(smiles).__name__} as SMILES; expected a string such as 'CC(=O)O'.")
    _chem()
    if len(smiles) > LONGEST:
        raise InputError(f"got a SMILES of {len(smiles):,} characters; up to {LONGEST:,} are read. Leave it out, or divide it.")
    quoted = repr(smiles if len(smiles) <= 200 else f"{smiles[:200]}...")
    if strange := re.search(r"[^\x21-\x7e]", (smiles.split(None, 1) or [""])[0]):  # RDKit may leave out what follows it
        raise InputError(
            f"got {quoted} with the sign {strange[0]!r}, which SMILES do not have; expected a SMILES such as 'CC(=O)O', in "
            "plain ASCII."
        )
    mol, said = _parsed(smiles)
    if mol is None:
        raise InputError(f"got {quoted}, which RDKit cannot read ({said}); expected a SMILES such as 'CC(=O)O'.")
    if not mol.GetNumAtoms():
        raise InputError(f"got {quoted}, which has no atoms; expected a SMILES such as 'CC(=O)O'.")
    check_atoms(mol)
    return mol


def check_atoms(mol: Mol) -> None:
    """Refuse a molecule with more than :data:`ATOMS` heavy atoms, or ten times as many with hydrogen."""
    heavy = mol.GetNumHeavyAtoms()
    if heavy > ATOMS or mol.GetNumAtoms() > 10 * ATOMS:
        raise InputError(
            f"got a molecule with {heavy:,} heavy atoms ({mol.GetNumAtoms():,} in all); up to {ATOMS} are explained, as more "
            "take too long. Leave it out, or divide it."
        )
    if mol.GetNumBonds() > 2 * PAIRS:  # those with hydrogen among them
        raise InputError(f"got a molecule with {mol.GetNumBonds():,} bonds; up to {2 * PAIRS:,} are read. Leave it out.")


def listed(molecules: Sequence[str | Mol] | str | Mol) -> list[str | Mol]:
    """One molecule or several as a list; an :class:`~integrand.errors.InputError` where there is none."""
    found = [molecules] if isinstance(molecules, str) or not isinstance(molecules, Iterable) else list(molecules)
    if not found:
        raise InputError("got no molecule; expected at least one.")
    return found


def atom_count(molecule: str | Mol) -> float:
    """How large a molecule is: its heavy atoms.

    >>> atom_count("CCO")
    3.0
    """
    return float(read(molecule)[1].GetNumAtoms())


def explained_together(count: int) -> Callable[[F], F]:
    """Mark a method that explains molecules: :func:`integrand.explain_many` gives it so many at a time, of about one size."""

    def mark(method: F) -> F:
        method.__dict__.update(together=count, size=atom_count)
        return method

    return mark


def read(molecule: str | Mol) -> tuple[str, Mol]:
    """The SMILES and the RDKit molecule, with heavy atoms only, of a SMILES or a molecule.

    Molecules of RDKit are sanitised in a copy: kekulised or read without that, they would get other features than their SMILES.
    """
    if isinstance(molecule, str):
        return molecule, parse(molecule)
    from rdkit import Chem, rdBase

    if not isinstance(molecule, Chem.Mol):
        raise InputError(f"got a {type(molecule).__name__} as a molecule; expected a SMILES or a molecule of RDKit.")
    check_atoms(molecule)
    mol = Chem.Mol(molecule)
    with rdBase.BlockLogs():
        try:
            Chem.SanitizeMol(mol)
            if any(atom.GetAtomicNum() == 1 for atom in mol.GetAtoms()):
                mol = Chem.RemoveHs(mol)
            return Chem.MolToSmiles(mol), mol
        except ValueError as error:  # RDKit's errors of valences and kekulisation among them
            raise InputError(
                f"got a molecule that RDKit cannot sanitise ({error}); expected one with valid valences."
            ) from None


def graph(mol: Mol, features: Features = "full") -> Graph:
    """The features of a molecule as tensors; the molecule itself is not changed.

    Atoms: the element (one of ten, or metal; others have none), R or S, formal charge, Gasteiger's partial charge (0 where
    it is not defined, as in most molecules with covalently bound metals), how many rings of 3 to 8 atoms it is in,
    hybridisation, hydrogen-bond donor and acceptor (RDKit's Lipinski patterns), aromatic. Pairs: the bond, whether the
    graph distance is at most 1, ..., 7, whether one ring holds both. ``simple`` keeps the element, the bond and the distance.

    Args:
        mol: with at least one atom.
        features: which set.
    """
    if features not in ATOM_FEATURES:
        raise OptionError(f"got features {features!r}; expected 'full' or 'simple'.")
    if not mol.GetNumAtoms():
        raise InputError("got a molecule without atoms; expected at least one.")
    own = _chem().Mol(mol)  # charges and stereo labels are written into it
    atoms = _atom_features(own) if features == "full" else _elements(list(own.GetAtoms()))
    pairs, ends, bond = _pair_features(own)
    width = len(PAIR_FEATURES[features])
    return Graph(mol, *map(torch.from_numpy, (atoms, pairs[:, :width].copy(), ends, bond)))


def collate(graphs: Sequence[Graph]) -> Batch:
    """Pad molecules to the largest of them."""
    if not graphs:
        raise InputError("got no graphs; expected at least one molecule.")
    kinds = {(one.atoms.shape[1], one.pairs.shape[1]) for one in graphs}
    if len(kinds) > 1:
        raise InputError(f"got graphs with {sorted(kinds)} atom and pair features; expected the same set for all.")
    most = max(len(one.atoms) for one in graphs)
    pairs = max(1, *(len(one.pairs) for one in graphs))
    return Batch(
        torch.stack([_padded(one.atoms, most) for one in graphs]),
        torch.stack([_padded(one.pairs, pairs) for one in graphs]),
        torch.stack([_padded(one.ends, pairs) for one in graphs]),
        torch.arange(most) < torch.tensor([[len(one.atoms)] for one in graphs]),
        torch.arange(pairs) < torch.tensor([[len(one.pairs)] for one in graphs]),
    )


def _padded(rows: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, 0, 0, length - len(rows)))


def _chem() -> Any:
    try:
        from rdkit import Chem
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "reading molecules") from None
    return Chem


def _parsed(smiles: str) -> tuple[Mol | None, str]:
    """RDKit's molecule, or None and the reason; nothing is logged."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        if not hasattr(rdBase, "CaptureErrorLog"):  # of RDKit before 2026
            return Chem.MolFromSmiles(smiles), "no valid SMILES"
        with rdBase.CaptureErrorLog() as log:
            mol = Chem.MolFromSmiles(smiles)
    try:
        said = log.messages
    except UnicodeDecodeError:  # RDKit shortens what it quotes by bytes, which may divide a sign
        said = ""
    lines = [re.sub(r"^\[[\d:]+\] |SMILES Parse Error: ", "", line) for line in said.splitlines()]
    where = [line.rstrip(":") for line in lines if "around position" in line]
    return mol, (where or lines or [""])[0].split(" for input")[0] or "no valid SMILES"


def _elements(atoms: Sequence[Any]) -> Floats:
    out = np.zeros((len(atoms), len(_TYPES)), np.float32)
    for row, atom in enumerate(atoms):
        column = _COLUMN_OF_ELEMENT.get(atom.GetAtomicNum())
        if column is not None:
            out[row, column] = 1
    return out


def _atom_features(mol: Any) -> Floats:
    from rdkit.Chem import AssignStereochemistry, Lipinski

    AssignStereochemistry(mol)
    atoms = list(mol.GetAtoms())  # once: RDKit's own iteration is slow
    out = np.zeros((len(atoms), len(_ATOM)), np.float32)
    out[:, : len(_TYPES)] = _elements(atoms)
    out[:, _ATOM["formal charge"]] = [atom.GetFormalCharge() for atom in atoms]
    out[:, _ATOM["partial charge"]] = _partial_charges(mol, atoms)
    out[:, _ATOM["aromatic"]] = [atom.GetIsAromatic() for atom in atoms]
    for row, atom in enumerate(atoms):
        hybrid = _HYBRID_COLUMNS.get(atom.GetHybridization().name)
        if hybrid is not None:
            out[row, hybrid] = 1
        if atom.HasProp("_CIPCode") and (label := f"chirality {atom.GetProp('_CIPCode')}") in _ATOM:
            out[row, _ATOM[label]] = 1
    for ring in mol.GetRingInfo().AtomRings():
        if len(ring) in _RINGS:
            out[list(ring), _ATOM[f"rings of {len(ring)}"]] += 1
    for name, pattern in (("donor", Lipinski.HDonorSmarts), ("acceptor", Lipinski.HAcceptorSmarts)):
        with ctrl_c_kept():
            found = mol.GetSubstructMatches(pattern, maxMatches=len(atoms))
        out[[row for (row,) in found], _ATOM[name]] = 1
    return out


def _partial_charges(mol: Any, atoms: Sequence[Any]) -> Floats:
    from rdkit.Chem import rdPartialCharges

    rdPartialCharges.ComputeGasteigerCharges(mol)
    charges = np.array([atom.GetDoubleProp("_GasteigerCharge") for atom in atoms], np.float32)
    return np.where(np.isfinite(charges), charges, np.float32(0))


def _pair_features(mol: Any) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Features (P, 12), ends (P, 2) and RDKit's bond index (P,) of the pairs within :data:`REACH`."""
    distance = _chem().GetDistanceMatrix(mol)
    ends = np.argwhere(np.triu(distance <= REACH, 1)).astype(np.int64)
    if len(ends) > PAIRS:
        raise InputError(
            f"got a molecule with {len(ends):,} pairs of atoms up to {REACH} bonds apart; up to {PAIRS:,} are read."
        )
    count = mol.GetNumAtoms()
    out = np.zeros((len(ends), len(_PAIR)), np.float32)
    bond = np.full(len(ends), -1, np.int64)
    place = np.zeros((count, count), np.int64)
    place[ends[:, 0], ends[:, 1]] = np.arange(len(ends))
    for one in mol.GetBonds():
        begin, end = one.GetBeginAtomIdx(), one.GetEndAtomIdx()
        row = place[min(begin, end), max(begin, end)]
        bond[row] = one.GetIdx()
        kind = _BOND_COLUMNS.get(one.GetBondType().name)
        if kind is not None:
            out[row, kind] = 1
    first = _PAIR["distance <= 1"]
    apart = distance[ends[:, 0], ends[:, 1]]
    out[:, first : first + len(_DISTANCES)] = apart[:, None] <= np.array(_DISTANCES)
    together = np.zeros((count, count), bool)
    for ring in mol.GetRingInfo().AtomRings():
        together[np.ix_(ring, ring)] = True
    out[:, _PAIR["same ring"]] = together[ends[:, 0], ends[:, 1]]
    return out, ends, bond
