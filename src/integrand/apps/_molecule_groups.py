"""Groups of a molecule's atoms that chemists have names for: elements, functional groups, rings, patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Groups = Mapping[str, Sequence[frozenset[int]]]
"""Atoms of each match, by the name of the group."""


def fragments() -> dict[str, Mol]:
    """RDKit's patterns of functional groups, by their names without ``fr_``."""
    return dict(_fragments())


@cache
def _fragments() -> tuple[tuple[str, Mol], ...]:
    try:
        from rdkit.Chem import Fragments
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "finding functional groups") from None
    with open(Fragments.defaultPatternFileName, encoding="utf-8") as file:
        cells = [line.split("\t") for line in file if not line.startswith("#")]
    return tuple(compiled({row[0].removeprefix("fr_"): row[2].strip() for row in cells if len(row) > 2}).items())


def compiled(smarts: Mapping[str, str]) -> dict[str, Mol]:
    """Patterns ready to match.

    Raises:
        InputError: a pattern that RDKit cannot read.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "matching SMARTS") from None
    if not isinstance(smarts, Mapping):
        raise InputError(f"got a {type(smarts).__name__} as patterns; expected a dict, such as {{'acid': 'C(=O)[OH]'}}.")
    found = {}
    with rdBase.BlockLogs():
        for name, text in smarts.items():
            pattern = Chem.MolFromSmarts(text) if isinstance(text, str) else None
            if pattern is None or not pattern.GetNumAtoms():
                raise InputError(
                    f"got the pattern {name!r}: {text!r}, which RDKit cannot read; expected SMARTS such as 'C(=O)O'."
                )
            found[str(name)] = pattern
    return found


def matches(mol: Mol, patterns: Mapping[str, Mol]) -> dict[str, list[frozenset[int]]]:
    """The atoms of each match, by the name of the pattern; patterns that are not there are left out."""
    found = {name: mol.GetSubstructMatches(pattern, maxMatches=100_000) for name, pattern in patterns.items()}
    return {name: [frozenset(match) for match in rows] for name, rows in found.items() if rows}


def elements(mol: Mol) -> dict[str, list[frozenset[int]]]:
    """The atoms of each element."""
    found: dict[str, list[frozenset[int]]] = {}
    for atom in mol.GetAtoms():
        found.setdefault(atom.GetSymbol(), []).append(frozenset([atom.GetIdx()]))
    return found


def rings(mol: Mol) -> list[tuple[int, ...]]:
    """The atoms of each ring of the smallest set of smallest rings."""
    return [tuple(ring) for ring in mol.GetRingInfo().AtomRings()]


def systems(found: Iterable[Sequence[int]]) -> Iterator[frozenset[int]]:
    """Rings that share atoms, joined."""
    joined: list[set[int]] = []
    for ring in found:
        touching = [system for system in joined if system & set(ring)]
        joined = [system for system in joined if not system & set(ring)] + [set(ring).union(*touching)]
    yield from map(frozenset, joined)


def named(mol: Mol, found: Iterable[frozenset[int]]) -> dict[str, list[frozenset[int]]]:
    """Each ring by a name of its own: its SMILES and its atoms."""
    from rdkit import Chem

    return {f"{Chem.MolFragmentToSmiles(mol, sorted(ring))} at {_spoken(ring)}": [ring] for ring in sorted(found, key=sorted)}


def _spoken(atoms: Iterable[int]) -> str:
    """Numbers with their runs joined.

    >>> _spoken([5, 3, 4, 9])
    '3-5,9'
    """
    runs: list[list[int]] = []
    for atom in sorted(atoms):
        if runs and atom == runs[-1][1] + 1:
            runs[-1][1] = atom
        else:
            runs.append([atom, atom])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
