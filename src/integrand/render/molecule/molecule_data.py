"""A molecule as every picture takes it: its attributions, and the coordinates at which it is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InputError
from ...words import short_repr

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Array = NDArray[np.float64]

BOND = 1.5
"""The length of a bond in RDKit's drawings, in RDKit's unit."""

WIDE_RING = 8
"""Rings with more atoms than this are laid out by CoordGen, which folds them, rather than as circles."""


SPELLING = {"Sulfur": "sulphur", "Aluminum": "aluminium", "Cesium": "caesium"}
"""Names of elements where RDKit spells them otherwise."""

LONG_TITLE = 200
"""A title of so many characters that is the beginning of the SMILES is that, cut, and no name."""

SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
RAISED = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class AccountLine:
    """What a part of a molecule adds, as a line of a page.

    Attributes:
        kind: what it is a part by: "element", "group", "ring system"...
        name: its name for people.
        value: what it adds.
        share: its share of the change of the score; None where shares say nothing.
        error: how far the value may be off at most; None where not known.
        whole: what its atoms add where other parts overlap with it; None where none does.
        count: how often it is there.
        atoms: the numbers of its atoms.
        each: what each of several adds.
    """

    kind: str
    name: str
    value: float
    share: float | None = None
    error: float | None = None
    whole: float | None = None
    count: int = 1
    atoms: tuple[int, ...] = ()
    each: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Molecule:
    """A molecule with the attributions of its atoms and pairs of atoms.

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
        smiles: the molecule as text, to be shown and copied.
        answer: what the network says, in a few words: "Active (85%)".
        sentence: the answer, what it comes from and how sure that is, in one line.
        scale: what the score is: "probability", "logit", or '' for a quantity.
        units: those of a quantity, where they are known.
        error: how far any sum of attributions may be off at most; None where not known.
        errors: how far each atom with half of its pairs may be off; empty where not known.
        notes: what a reader must not miss.
    """

    mol: Mol
    atoms: Array
    pairs: Array
    others: Sequence[tuple[str, float]] = ()
    title: str = ""
    label: str = ""
    score: float | None = None
    baseline_score: float | None = None
    smiles: str = ""
    answer: str = ""
    sentence: str = ""
    scale: str = ""
    units: str = ""
    error: float | None = None
    errors: Sequence[float | None] = ()
    notes: Sequence[str] = ()

    __repr__ = short_repr

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
    def name(self) -> str:
        """The molecule's name for people; its formula where it has none other than its SMILES."""
        return self.title if self.is_name(self.title) else self.formula

    def is_name(self, title: str) -> bool:
        """Whether a title is more than the SMILES, or the beginning of a long one.

        Args:
            title: what the molecule is called.
        """
        return bool(title) and title != self.smiles and not (len(title) >= LONG_TITLE and self.smiles.startswith(title))

    @cached_property
    def formula(self) -> str:
        """The molecular formula, with small digits: C₉H₈O₄."""
        from rdkit.Chem.rdMolDescriptors import CalcMolFormula

        text, charge = re.fullmatch(r"(.*?)([+-]\d*)?", str(CalcMolFormula(_counted(self.mol)))).groups()  # type: ignore[union-attr]
        return text.translate(SMALL) + ((charge[1:] + charge[0]).translate(RAISED) if charge else "")

    @cached_property
    def folded(self) -> Molecule:
        """The same molecule with each atom's half of its pairs in the atom, and no pairs."""
        return replace(self, atoms=self.per_atom, pairs=np.zeros_like(self.pairs))

    @cached_property
    def layout(self) -> Mol:
        """The molecule with coordinates and wedges, ready to be drawn."""
        return laid_out(self.mol)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Each atom's element and number, such as C0."""
        return tuple(f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in self.mol.GetAtoms())

    @cached_property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The two atoms of each bond, smaller number first, in the order of RDKit's bonds."""
        found = ((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in self.mol.GetBonds())
        return tuple((min(ends), max(ends)) for ends in found)

    @cached_property
    def bonds(self) -> Array:
        """The attribution of each bonded pair, (bonds,), in the order of RDKit's bonds."""
        return np.array([self.pairs[i, j] for i, j in self.ends], dtype=np.float64)

    @cached_property
    def far(self) -> tuple[tuple[int, int, float], ...]:
        """The pairs that have an attribution but no bond, as (i, j, value) with i < j."""
        bonded = set(self.ends)
        found = ((int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(self.pairs, 1)), strict=True))
        return tuple((i, j, float(self.pairs[i, j])) for i, j in found if (i, j) not in bonded)

    @cached_property
    def per_atom(self) -> Array:
        """Each atom's attribution plus half of that of each of its pairs, (N,); their sum is that of all atoms and pairs."""
        return np.asarray(self.atoms + self.pairs.sum(1) / 2)

    @cached_property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """The sums over atoms, bonds, other pairs and, where there are any, the others, by name and in this order."""
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
        """The magnitude that gets the strongest colour: that of the strongest atom or pair; 0 where all are zero."""
        return float(max(np.abs(self.atoms).max(), np.abs(self.pairs).max()))

    def numbers(self) -> dict[str, Any]:
        """The molecule's attributions and scores as a dictionary for JSON."""
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


def element_name(mol: Mol, atom: int) -> str:
    """The name of an atom's element, such as ``sulphur``."""
    from rdkit.Chem import GetPeriodicTable

    name = str(GetPeriodicTable().GetElementName(mol.GetAtomWithIdx(atom).GetAtomicNum()))
    return SPELLING.get(name, name.lower())


def plural(name: str, count: int) -> str:
    """The name of a group that is there so often.

    >>> plural("methoxy group", 2), plural("fused ring of 9 atoms", 2), plural("ether", 1)
    ('methoxy groups', 'fused rings of 9 atoms', 'ether')
    """
    if count == 1:
        return name
    for word in (" of ", " with ", " ("):
        head, found, rest = name.partition(word)
        if found:
            return f"{head}s{found}{rest}"
    return name if name.endswith("s") else f"{name}s"


def _counted(mol: Mol) -> Mol:
    """A copy that knows its hydrogens, though its valences may be beyond what RDKit allows."""
    from rdkit import Chem

    copy = Chem.Mol(mol)
    copy.UpdatePropertyCache(strict=False)
    return copy


def laid_out(mol: Mol) -> Mol:
    """A copy of a molecule with 2D coordinates and wedges, ready to be drawn; 2D coordinates it has already are kept.

    Atoms and bonds keep their numbers; hydrogens that only show a stereo centre come after them.
    """
    from rdkit import Chem
    from rdkit.Chem import rdDepictor
    from rdkit.Chem.Draw import rdMolDraw2D

    copy = Chem.Mol(mol)
    if copy.GetNumConformers() and not copy.GetConformer().Is3D():
        rdDepictor.NormalizeDepiction(copy, canonicalize=0)
    else:
        copy = _best(copy)
    copy.UpdatePropertyCache(strict=False)  # what was read without a check of valences is drawn too
    Chem.FastFindRings(copy)
    try:
        return rdMolDraw2D.PrepareMolForDrawing(copy, forceCoords=False)
    except (Chem.KekulizeException, Chem.AtomKekulizeException):
        return rdMolDraw2D.PrepareMolForDrawing(copy, kekulize=False, forceCoords=False)


def positions(mol: Mol) -> NDArray[np.float64]:
    """The 2D coordinates of the atoms of a laid-out molecule, (N, 2)."""
    return np.array(mol.GetConformer().GetPositions(), dtype=np.float64)[:, :2]


def disorder(places: NDArray[np.float64], ends: NDArray[np.int64]) -> int:
    """How hard a layout is to read: a count of overlapping atoms and crossing bonds.

    >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    >>> disorder(square, np.array([[0, 1], [2, 3]])), disorder(square, np.array([[0, 2], [1, 3]]))
    (0, 1)
    """
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    unit = float(np.median(apart[ends[:, 0], ends[:, 1]])) if len(ends) else BOND
    close = int((np.triu(apart < 0.5 * unit, 1)).sum())
    return 2 * close + _crossings(places, ends)


def _numbers(values: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    """A read-only float64 copy of values, checked to have a shape and to be finite."""
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


def _best(mol: Mol) -> Mol:
    """The first layout of RDKit and CoordGen without overlaps and crossings, else the one with the fewest."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    best, least = None, 0
    for one in _candidates(mol):
        if not is_laid_out(one):
            continue
        found = disorder(positions(one), _ends(one))
        if best is None or found < least:
            best, least = one, found
        if not least:
            break
    if best is None:
        raise InputError("got a molecule for which no layout was found; expected one that can be drawn. Draw a part of it.")
    tidy = Chem.Mol(best)
    rdDepictor.NormalizeDepiction(tidy)
    rdDepictor.StraightenDepiction(tidy, -1, True)
    return tidy if is_laid_out(tidy) else best  # what has no bond between heavy atoms has no scale


def is_laid_out(mol: Mol) -> bool:
    """Whether atoms have places that are numbers and not all the same, as CoordGen gives them to hundreds of rings in a row."""
    places = positions(mol)
    return bool(np.isfinite(places).all()) and (len(places) < 2 or bool(np.ptp(places) > 0))


def _candidates(mol: Mol) -> Iterator[Mol]:
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    ways: list[Callable[[Mol], object]] = [
        lambda copy: rdDepictor.Compute2DCoords(copy, forceRDKit=True),
        _with_coordgen,
        lambda copy: rdDepictor.Compute2DCoords(copy, forceRDKit=True, useRingTemplates=True),
    ]
    Chem.FastFindRings(mol)
    if max(map(len, mol.GetRingInfo().AtomRings()), default=0) > WIDE_RING:
        ways[:2] = ways[1::-1]
    for way in ways:
        copy = Chem.Mol(mol)
        way(copy)
        yield copy


def _with_coordgen(mol: Mol) -> None:
    from rdkit.Chem import rdDepictor

    with rdDepictor.UsingCoordGen(True):  # RDKit knows no other way to choose; puts back what the user had set
        rdDepictor.Compute2DCoords(mol)


def _ends(mol: Mol) -> NDArray[np.int64]:
    found = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _crossings(places: NDArray[np.float64], ends: NDArray[np.int64]) -> int:
    """The number of pairs of bonds that cross without sharing an atom."""
    if len(ends) < 2:
        return 0
    a, b = places[ends[:, 0]], places[ends[:, 1]]

    def side(p: NDArray[np.float64], q: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
        """On which side of each line p to q each point r lies, (lines, points)."""
        along, to = (q - p)[:, None], r[None] - p[:, None]
        return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])

    parted = (side(a, b, a) * side(a, b, b)) < 0
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((2, 3))
    return int(np.triu(parted & parted.T & ~shared, 1).sum())
