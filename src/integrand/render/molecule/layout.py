"""Where the atoms of a molecule are drawn: coordinates with few overlaps and crossings, and what RDKit draws from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rdkit.Chem import Mol

BOND = 1.5
"""The length of a bond in RDKit's drawings, in its unit."""

WIDE_RING = 8
"""Larger rings are drawn better by CoordGen, which folds them, than as circles."""


def laid_out(mol: Mol) -> Mol:
    """A copy with 2D coordinates and wedges, ready to be drawn; coordinates that are 2D already are kept.

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


def _best(mol: Mol) -> Mol:
    """The first layout without overlaps and crossings, else that with the fewest, of those of RDKit and CoordGen."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    best, least = None, 0
    for one in _candidates(mol):
        found = disorder(positions(one), _ends(one))
        if best is None or found < least:
            best, least = one, found
        if not least:
            break
    assert best is not None
    tidy = Chem.Mol(best)
    rdDepictor.NormalizeDepiction(tidy)
    rdDepictor.StraightenDepiction(tidy, -1, True)
    return tidy if np.isfinite(positions(tidy)).all() else best  # what has no bond between heavy atoms has no scale


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


def positions(mol: Mol) -> NDArray[np.float64]:
    """(N, 2): the coordinates of a molecule that is laid out."""
    return np.array(mol.GetConformer().GetPositions(), dtype=np.float64)[:, :2]


def _ends(mol: Mol) -> NDArray[np.int64]:
    found = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def disorder(places: NDArray[np.float64], ends: NDArray[np.int64]) -> int:
    """How hard a layout is to read: atoms on top of each other, and bonds that cross.

    >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    >>> disorder(square, np.array([[0, 1], [2, 3]])), disorder(square, np.array([[0, 2], [1, 3]]))
    (0, 1)
    """
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    unit = float(np.median(apart[ends[:, 0], ends[:, 1]])) if len(ends) else BOND
    close = int((np.triu(apart < 0.5 * unit, 1)).sum())
    return 2 * close + _crossings(places, ends)


def _crossings(places: NDArray[np.float64], ends: NDArray[np.int64]) -> int:
    """How many pairs of bonds without a common atom cross."""
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
