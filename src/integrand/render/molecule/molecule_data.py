"""A molecule with its attributions, as all pictures of molecules take it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InputError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Molecule:
    """A molecule, with what each atom and each pair of atoms adds to a score.

    ``atoms``, the upper triangle of ``pairs`` and ``others`` together add up to ``score - baseline_score``, up to what the
    attribution misses.

    Attributes:
        mol: the molecule, RDKit's; atoms and bonds keep its numbers, which begin at 0.
        atoms: (N,), the attribution of each atom.
        pairs: (N, N), symmetric with a zero diagonal: the attribution of a pair stands at [i, j] and again at [j, i].
        others: what belongs to no atom or pair, named.
        title: the name of the molecule.
        label: what the score is of, in words.
        score: F(x).
        baseline_score: F(x').
    """

    mol: Mol
    atoms: Array
    pairs: Array
    others: Sequence[tuple[str, float]] = ()
    title: str = ""
    label: str = ""
    score: float | None = None
    baseline_score: float | None = None

    def __post_init__(self) -> None:
        count = self.mol.GetNumAtoms()
        if not count:
            raise InputError("got a molecule without atoms; expected at least one atom to draw.")
        object.__setattr__(self, "atoms", _numbers(self.atoms, (count,), "atoms"))
        object.__setattr__(self, "pairs", _numbers(self.pairs, (count, count), "pairs"))
        object.__setattr__(self, "others", tuple((str(name), float(value)) for name, value in self.others))
        _check_symmetric(self.pairs)
        for name, value in (*self.others, ("score", self.score), ("baseline_score", self.baseline_score)):
            if value is not None and not math.isfinite(value):
                raise InputError(f"got {value} for {name!r}; expected a finite number.")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Each atom's element and number, such as C0."""
        return tuple(f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in self.mol.GetAtoms())

    @cached_property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The two atoms of each bond, smaller number first, by RDKit's number of the bond."""
        found = ((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in self.mol.GetBonds())
        return tuple((min(ends), max(ends)) for ends in found)

    @cached_property
    def bonds(self) -> Array:
        """(bonds,): the attribution of each bonded pair, by RDKit's number of the bond."""
        return np.array([self.pairs[i, j] for i, j in self.ends], dtype=np.float64)

    @cached_property
    def far(self) -> tuple[tuple[int, int, float], ...]:
        """The pairs that are not bonds and have an attribution: (i, j, value) with i < j."""
        bonded = set(self.ends)
        found = ((int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(self.pairs, 1)), strict=True))
        return tuple((i, j, float(self.pairs[i, j])) for i, j in found if (i, j) not in bonded)

    @cached_property
    def per_atom(self) -> Array:
        """(N,): each atom's attribution and half of that of each of its pairs; together all atoms and pairs."""
        return np.asarray(self.atoms + self.pairs.sum(1) / 2)

    @cached_property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """What atoms, bonds, other pairs and, where there are any, the others add, in this order."""
        far = math.fsum(value for _, _, value in self.far)
        named = self.others[0][0] if len(self.others) == 1 else "others"
        others = ((named, math.fsum(value for _, value in self.others)),) if self.others else ()
        return (("atoms", math.fsum(self.atoms)), ("bonds", math.fsum(self.bonds)), ("other pairs", far), *others)

    @property
    def total(self) -> float:
        """The sum of all attributions."""
        return math.fsum(value for _, value in self.parts)

    @property
    def limit(self) -> float:
        """The magnitude that has the strongest colour: the largest of an atom or a pair; 0 where all are zero."""
        return float(max(np.abs(self.atoms).max(), np.abs(self.pairs).max()))

    def numbers(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        pairs = [(i, j, value, True) for (i, j), value in zip(self.ends, self.bonds.tolist(), strict=True)]
        pairs += [(i, j, value, False) for i, j, value in self.far]
        return {
            "title": self.title,
            "label": self.label,
            "score": self.score,
            "baseline_score": self.baseline_score,
            "atoms": [{"name": name, "value": value} for name, value in zip(self.names, self.atoms.tolist(), strict=True)],
            "pairs": [{"atoms": [i, j], "bond": bond, "value": value} for i, j, value, bond in pairs],
            "others": dict(self.others),
        }


def _numbers(values: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    """Float64 numbers of a shape, all finite, that nobody else can change."""
    found = np.array(values, dtype=np.float64)
    if found.shape != shape:
        raise InputError(
            f"got {what} of shape {found.shape} for a molecule of {shape[0]} atoms; expected {shape}. "
            "Atoms are those of the molecule as it is, hydrogens only where they are explicit."
        )
    if not np.isfinite(found).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise InputError(f"got {found[place]} in {what} at {list(place)}; expected finite numbers. Look at the certificate.")
    found.flags.writeable = False
    return found


def _check_symmetric(pairs: Array) -> None:
    diagonal = np.flatnonzero(np.diagonal(pairs))
    if len(diagonal):
        i = int(diagonal[0])
        raise InputError(
            f"got {pairs[i, i]:.3g} for the pair of atom {i} with itself; expected zero there. Add it to atoms[{i}]."
        )
    off = np.abs(pairs - pairs.T)
    if off.max(initial=0.0) > 1e-9 * np.abs(pairs).max(initial=0.0):
        i, j = (int(k) for k in np.unravel_index(off.argmax(), off.shape))
        raise InputError(
            f"got {pairs[i, j]:.6g} for the pair {i}, {j} and {pairs[j, i]:.6g} for {j}, {i}; expected a symmetric matrix with "
            "the value of the pair in both places. If each place has a value of its own, draw pairs + pairs.T."
        )
