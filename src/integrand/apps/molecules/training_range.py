"""What kinds of molecules a network was trained on, and what of a molecule it never saw.

A network gives a number for anything. For a metal complex, a peptide of hundreds of atoms or an ion that no training molecule
resembled, that number is a guess, and so is every explanation of it; the notes made here say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdkit.Chem import Mol

RARE = 1e-4
"""The share of training molecules below which something was hardly ever seen."""

EDGE = 1e-3
"""The share of training molecules that are smaller, and that are larger, than the range of sizes that is stated."""

KINDS = {
    "element": "the element {name}",
    "ion": "{name}",
    "valence": "{name}",
    "ring": "a ring of {name} atoms",
    "parts": "{name} separate parts, such as a salt has",
}
"""What is counted over training molecules, and how it is said."""

Traits = frozenset[tuple[str, str]]
"""What a molecule has, as pairs of a kind in :data:`KINDS` and a name."""


@dataclass(frozen=True)
class TrainingRange:
    """What the molecules had that a network was trained on.

    Attributes:
        molecules: how many there were.
        sizes: how many heavy atoms all but the smallest and the largest thousandth had.
        counts: how many of them had each trait, by kind and name; those of none are not in it.
    """

    molecules: int
    sizes: tuple[int, int]
    counts: Mapping[str, Mapping[str, int]]

    @staticmethod
    def of(molecules: Iterable[Mol]) -> TrainingRange:
        """Count over training molecules."""
        sizes: list[int] = []
        found: Counter[tuple[str, str]] = Counter()
        for mol in molecules:
            sizes.append(mol.GetNumHeavyAtoms())
            found.update(traits(mol))
        sizes.sort()
        cut = int(EDGE * len(sizes))
        counts = {kind: {name: n for (of, name), n in sorted(found.items()) if of == kind} for kind in KINDS}
        return TrainingRange(len(sizes), (sizes[cut], sizes[-1 - cut]), counts)

    def notes(self, mol: Mol) -> tuple[str, ...]:
        """What of a molecule training molecules never or hardly ever had, in words; nothing where all of it is usual."""
        never: list[str] = []
        hardly: list[str] = []
        said: set[str] = set()
        for kind, name in sorted(traits(mol), key=lambda one: (list(KINDS).index(one[0]), one[1])):
            if kind in ("ion", "valence") and _element(name) in said:  # an unknown element says it all
                continue
            count = self.counts[kind].get(name, 0)
            if count < RARE * self.molecules:
                (hardly if count else never).append(KINDS[kind].format(name=name) + (f" (in {count})" if count else ""))
                said |= {name} if kind == "element" else {_element(name)} if kind == "ion" else set()
        low, high = self.sizes
        size = mol.GetNumHeavyAtoms()
        many = f"{self.molecules:,} training molecules"
        out = [f"none of the {many} had {_listed(never)}"] if never else []
        out += [f"hardly any of the {many} had {_listed(hardly)}"] if hardly else []
        if not low <= size <= high:
            atoms = "heavy atom" if size == 1 else "heavy atoms"
            out.append(f"it has {size} {atoms}; of the {many}, {1 - 2 * EDGE:.1%} had {low} to {high}")
        if not out:
            return ()
        return (f"The network was not trained on molecules like this one: {'; '.join(out)}. Its answer may mean nothing.",)


# fmt: off
PCBA_588342 = TrainingRange(
    molecules=263_709,
    sizes=(10, 58),
    counts={
        "element": {
            "C": 263709, "N": 259192, "O": 252188, "S": 122995, "Cl": 42359, "F": 36808, "Br": 11907, "P": 963, "I": 89,
            "As": 32, "B": 22, "Si": 5, "H": 3, "Hg": 1, "Nd": 1, "Se": 1, "Zn": 1,
        },
        "ion": {
            "N+": 17011, "O-": 15737, "N-": 78, "Cl3+": 74, "B-": 17, "S+": 8, "S-": 8, "P+": 4, "H+": 1, "Nd3+": 1,
            "Zn2+": 1,
        },
        "valence": {
            "C with 4 bonds": 263709, "N with 3 bonds": 258219, "O with 2 bonds": 252075, "S with 2 bonds": 81593,
            "S with 6 bonds": 51418, "Cl with 1 bond": 42289, "F with 1 bond": 36808, "Br with 1 bond": 11907,
            "P with 5 bonds": 955, "S with 4 bonds": 821, "I with 1 bond": 89, "As with 5 bonds": 32,
            "B with 3 bonds": 5, "Si with 4 bonds": 5, "P with 3 bonds": 4, "H with 1 bond": 2, "Hg with 2 bonds": 1,
            "Se with 2 bonds": 1,
        },
        "ring": {
            "3": 4008, "4": 1081, "5": 159994, "6": 257361, "7": 7193, "8": 468, "9": 11, "10": 14, "11": 6, "12": 61,
            "13": 10, "14": 62, "15": 60, "16": 22, "17": 5, "18": 43, "19": 3, "21": 3, "22": 2, "23": 2, "24": 5,
            "25": 2, "27": 1, "28": 1, "30": 2, "32": 1, "33": 2, "34": 1, "36": 1,
        },
        "parts": {
            "2": 289, "3": 1,
        },
    },
)
"""The 263,709 molecules of the training scaffolds of PCBA-588342, counted by ``training/molecule_range.py``."""
# fmt: on


def traits(mol: Mol) -> Traits:
    """What a molecule has: its elements, charged atoms, unusual numbers of bonds, sizes of rings, and how many parts.

    >>> from rdkit import Chem
    >>> sorted(traits(Chem.MolFromSmiles("C[NH3+].[Cl-]")))[:4]
    [('element', 'C'), ('element', 'Cl'), ('element', 'N'), ('ion', 'Cl-')]
    """
    from rdkit import Chem

    found = set()
    for atom in mol.GetAtoms():
        symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
        found.add(("element", symbol))
        if charge:
            found.add(("ion", f"{symbol}{abs(charge) if abs(charge) > 1 else ''}{'+' if charge > 0 else '-'}"))
        else:
            bonds = atom.GetTotalValence()
            found.add(("valence", f"{symbol} with {bonds} bond{'s' if bonds != 1 else ''}"))
    found |= {("ring", str(len(ring))) for ring in mol.GetRingInfo().AtomRings()}
    parts = len(Chem.GetMolFrags(mol))
    return frozenset(found | ({("parts", str(parts))} if parts > 1 else set()))


def _element(name: str) -> str:
    return name.partition(" ")[0].rstrip("+-0123456789")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
