"""Atoms that a network cannot tell apart: identical attributions in different neighbourhoods.

Section 6.5 of the paper found such atoms by looking at attributions, and with them a flaw of the network: with one Weave
module an atom knows its own features and pairs, but not which atoms its neighbours are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, OptionError
from ...render.notebook import text_table
from ...words import short_repr, shown
from .result import Floats, MoleculeAttribution, MoleculeModel

if TYPE_CHECKING:
    from rdkit.Chem import Mol

RTOL = {"float64": 1e-9}
"""The relative difference up to which values count as equal, by precision; :data:`ROUGH` for other precisions."""

ROUGH = 1e-5


@dataclass(frozen=True)
class Alike:
    """Atoms of a molecule that have identical attributions but different neighbourhoods.

    Attributes:
        molecule: its place among the results.
        smiles: the molecule.
        atoms: their numbers.
        value: the attribution that each of them has.
        surroundings: the neighbourhood of each, as SMILES that begins at the atom, with all hydrogens.
        pairs_too: whether the attributions of their pairs are identical as well, so that nothing tells them apart.
    """

    molecule: int
    smiles: str
    atoms: tuple[int, ...]
    value: float
    surroundings: tuple[str, ...]
    pairs_too: bool

    __repr__ = short_repr

    def __str__(self) -> str:
        places: dict[str, list[str]] = {}
        for atom, text in zip(self.atoms, self.surroundings, strict=True):
            places.setdefault(text, []).append(str(atom))
        listed = "; ".join(f"{', '.join(atoms)} in {text}" for text, atoms in places.items())
        return f"{shown(self.smiles)}: {self.value:+.4g} for each of the atoms {listed}" + (
            "; their pairs as well" if self.pairs_too else ""
        )


@dataclass(frozen=True)
class Degenerate:
    """The atoms that a network cannot tell apart, over a set of molecules.

    Attributes:
        found: classes of atoms, molecule by molecule.
        molecules: how many were looked at.
        atoms: how many they have.
        radius: bonds that a neighbourhood reaches.
        rtol: the relative difference up to which values count as identical.
    """

    found: tuple[Alike, ...]
    molecules: int
    atoms: int
    radius: int
    rtol: float

    def __iter__(self) -> Iterator[Alike]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def affected_molecules(self) -> int:
        """The number of molecules that have atoms the network cannot tell apart."""
        return len({one.molecule for one in self.found})

    @property
    def affected_atoms(self) -> int:
        """The number of atoms that the network cannot tell from another one."""
        return sum(len(one.atoms) for one in self.found)

    @property
    def remedy(self) -> str:
        """What to do about such atoms, in words; '' where none were found."""
        if not self.found:
            return ""
        return (
            "These atoms look the same to the network although their neighbourhoods differ: it can learn nothing that needs "
            "the difference. Let atoms see their neighbours (one more convolution, such as a second Weave module), or give "
            "them features that tell the surroundings (partial charge, ring sizes, hybridisation); then look again."
        )

    @property
    def sentence(self) -> str:
        """How many atoms the network cannot tell apart, in one line."""
        sure = f"attributions compared to {self.rtol:g}"
        if not self.found:
            return f"The network tells all atoms apart, in {self.molecules:,} molecule(s) of {self.atoms:,} atoms; {sure}."
        return (
            f"The network cannot tell {self.affected_atoms:,} of {self.atoms:,} atoms ({self.affected_atoms / self.atoms:.0%}) "
            f"from others in other places, in {self.affected_molecules:,} of {self.molecules:,} molecule(s); {sure}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The classes of atoms as a table, one row each."""
        return [dict(vars(one)) for one in self.found]

    def to_dict(self) -> dict[str, Any]:
        """The findings as a dictionary for JSON."""
        head = {"molecules": self.molecules, "atoms": self.atoms, "radius": self.radius, "rtol": self.rtol}
        head |= {"affected_molecules": self.affected_molecules, "affected_atoms": self.affected_atoms}
        rows = [row | {"atoms": list(row["atoms"]), "surroundings": list(row["surroundings"])} for row in self.rows()]
        return head | {"remedy": self.remedy, "found": rows}

    __repr__ = short_repr
    _repr_html_ = text_table

    def __str__(self) -> str:
        how = f"identical to {self.rtol:g}, while what is within {self.radius} bonds of them differs"
        if not self.found:
            return f"None of {self.molecules:,} molecule(s) has atoms with attributions that are {how}."
        share = f"{self.affected_atoms:,} of {self.atoms:,} atoms ({self.affected_atoms / self.atoms:.0%})"
        said = (
            f"{self.affected_molecules:,} of {self.molecules:,} molecule(s) with attributions of atoms that are {how}: {share}."
        )
        more = [f"... and {len(self.found) - 10:,} more classes."] if len(self.found) > 10 else []
        return "\n".join([said, *(f"  {one}" for one in self.found[:10]), *more, self.remedy])


def find_degenerate(
    found: MoleculeModel | Sequence[MoleculeAttribution],
    molecules: Sequence[str | Mol] | None = None,
    *,
    radius: int = 2,
    rtol: float | None = None,
    **options: Any,
) -> Degenerate:
    """Find atoms that get identical attributions although their neighbourhoods differ.

    Atoms are compared by the attributions of their own features, one by one where the results have them. Symmetric atoms of a
    molecule have the same neighbourhood and are not reported; nor are atoms that add exactly nothing. "Identical" is not what
    the certificate allows: two atoms that the network cannot tell apart have the same error too, and differ by rounding only.
    A model that has a method ``double`` is run in float64, where a coincidence is out of the question.

    Args:
        found: a model, or results of its ``explain``.
        molecules: SMILES or molecules, with a model.
        radius: how many bonds a neighbourhood reaches.
        rtol: the relative difference up to which values are identical; by default 1e-9 in float64, 1e-5 otherwise.
        options: options of the model's ``explain``.
    """
    if radius < 0 or (rtol is not None and not rtol > 0):
        raise OptionError(f"got radius={radius}, rtol={rtol}; expected bonds from 0 on and a small positive number.")
    results = _results(found, molecules, options)
    limit = rtol or max(RTOL.get(one.certificate.precision, ROUGH) for one in results)
    classes = [alike for i, one in enumerate(results) for alike in _classes(i, one, radius, limit)]
    return Degenerate(tuple(classes), len(results), sum(len(one.atoms) for one in results), radius, limit)


def neighbourhoods(mol: Mol, radius: int) -> list[int]:
    """A number for each atom that is equal for atoms whose surroundings look the same up to ``radius`` bonds.

    Looked at are elements, charges, hydrogens, aromaticity, rings and bonds, round by round, as fingerprints do; stereo is not.
    """
    kinds = _numbered(
        (a.GetAtomicNum(), a.GetFormalCharge(), a.GetTotalNumHs(), a.GetDegree(), a.GetIsAromatic(), a.IsInRing())
        for a in mol.GetAtoms()
    )
    for _ in range(radius):
        kinds = _numbered(
            (kinds[a.GetIdx()], *sorted((str(b.GetBondType()), kinds[b.GetOtherAtomIdx(a.GetIdx())]) for b in a.GetBonds()))
            for a in mol.GetAtoms()
        )
    return kinds


def _results(
    found: MoleculeModel | Sequence[MoleculeAttribution], molecules: Sequence[str | Mol] | None, options: dict[str, Any]
) -> list[MoleculeAttribution]:
    if isinstance(found, Sequence):
        if molecules is not None or options:
            raise OptionError("got results and also molecules or options; expected results alone, or a model and molecules.")
        results = list(found)
    elif molecules is None:
        raise InputError("got a model without molecules; expected some to look at.")
    else:
        precise = getattr(found, "double", None)
        results = (found if precise is None else precise()).explain(molecules, **options)
    if not results:
        raise InputError("got no result; expected at least one.")
    return results


def _classes(place: int, result: MoleculeAttribution, radius: int, rtol: float) -> Iterator[Alike]:
    around = neighbourhoods(result.mol, radius)
    for atoms in _same(result.atom_features, rtol):
        if len({around[i] for i in atoms}) > 1 and result.atom_features[atoms[0]].any():
            around_each = tuple(_surroundings(result.mol, i, radius) for i in atoms)
            value = float(result.atoms[atoms[0]])
            yield Alike(place, result.smiles, tuple(atoms), value, around_each, _pairs_too(result, atoms, rtol))


def _same(rows: Floats, rtol: float) -> list[list[int]]:
    """The indices of rows that are equal up to ``rtol`` of the largest entry, in classes of at least two."""
    left, found = list(range(len(rows))), []
    while left:
        first = rows[left[0]]
        near = np.abs(rows[left] - first).max(1, initial=0.0) <= rtol * np.abs(first).max(initial=0.0)
        found.append([i for i, same in zip(left, near, strict=True) if same])
        left = [i for i, same in zip(left, near, strict=True) if not same]
    return [atoms for atoms in found if len(atoms) > 1]


def _pairs_too(result: MoleculeAttribution, atoms: Sequence[int], rtol: float) -> bool:
    """Whether the pairs of all these atoms have the same attributions, in any order."""
    of_each = [_ordered(result.pair_features[(result.ends == atom).any(1)]) for atom in atoms]
    first = of_each[0]
    limit = rtol * np.abs(first).max(initial=0.0)
    return all(one.shape == first.shape and bool((np.abs(one - first) <= limit).all()) for one in of_each[1:])


def _ordered(rows: Floats) -> Floats:
    """The rows sorted by their sums, an order that rounding cannot change."""
    return rows[np.argsort(rows.sum(1), kind="stable")]


def _numbered(keys: Iterator[Any]) -> list[int]:
    seen: dict[Any, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def _surroundings(mol: Mol, atom: int, radius: int) -> str:
    from rdkit import Chem

    bonds = list(Chem.FindAtomEnvironmentOfRadiusN(mol, radius, atom, enforceSize=False))
    ends = {end for b in bonds for end in (mol.GetBondWithIdx(b).GetBeginAtomIdx(), mol.GetBondWithIdx(b).GetEndAtomIdx())}
    return str(Chem.MolFragmentToSmiles(mol, sorted(ends | {atom}), bonds, rootedAtAtom=atom, allHsExplicit=True))
