"""Where a score comes from: attributions add up, so they can be added up by whatever a chemist has a name for.

Every table of an :class:`Account` adds up to F(x) - F(x'). Atoms bring half of each of their pairs along. Where groups overlap,
an atom's value is divided equally among the groups that hold it; what all atoms of a group add undivided is given next to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..attribution import percent
from ..errors import InputError
from ._molecule_groups import Groups, compiled, elements, fragments, matches, named, rings, systems
from ._molecule_result import Floats, MoleculeAttribution

__all__ = ["FLAT", "MISSED", "Account", "Part", "account", "compiled", "steady"]

FLAT = 0.1
"""Where the score changes by less than this share of the magnitudes, shares of the change are not given: nearly all cancels."""

MISSED, OTHERS = "not accounted for", "others"


@dataclass(frozen=True)
class Part:
    """One line of an account.

    Attributes:
        name: of an element, a functional group, a ring...
        value: what it adds to the score; in a table these add up to the whole.
        share: of F(x) - F(x'), with its sign; None where that is too near to zero for shares to mean something.
        whole: what its atoms add where nothing is divided among groups that overlap.
        count: how often it is there.
        atoms: that belong to it.
    """

    name: str
    value: float
    share: float | None
    whole: float
    count: int = 0
    atoms: tuple[int, ...] = ()

    @property
    def percent(self) -> str:
        """The share for people; '' where there is none."""
        return "" if self.share is None else percent(self.share if abs(self.share) > 5e-4 else 0.0)


@dataclass(frozen=True)
class Account:
    """Where the score of a molecule comes from.

    Attributes:
        smiles: the molecule.
        label: the output that is explained.
        change: F(x) - F(x'), which every section adds up to.
        share_error: how far any share may be off, by the certificate's error; None where there are no shares.
        sections: by name: ``kind`` (atoms, bonded pairs, other pairs), ``element``, ``functional group``, ``ring``,
            ``ring system``, and ``pattern`` where SMARTS were given.
        notes: what a reader should know.
        absent: names of SMARTS that match nothing in the molecule.
    """

    smiles: str
    label: str
    change: float
    share_error: float | None
    sections: Mapping[str, tuple[Part, ...]]
    notes: tuple[str, ...]
    absent: tuple[str, ...] = ()

    def __getitem__(self, section: str) -> tuple[Part, ...]:
        if section not in self.sections:
            raise InputError(f"got the section {section!r}; expected one of {', '.join(self.sections)}.")
        return self.sections[section]

    def part(self, section: str, name: str) -> Part:
        """One line, by its section and name."""
        for part in self[section]:
            if part.name == name:
                return part
        raise InputError(f"got {name!r}; expected one of {', '.join(part.name for part in self[section])}.")

    def rows(self) -> list[dict[str, Any]]:
        """All lines as one table."""
        return [{"section": name} | vars(part) for name, parts in self.sections.items() for part in parts]

    def told(self) -> list[tuple[str, Part]]:
        """The lines with their sections for people: what the sum misses, which is the same in all, only once."""
        every = [(name, part) for name, parts in self.sections.items() for part in parts]
        return [(name, part) for name, part in every if name == "kind" or part.name != MISSED]

    def lines(self) -> list[tuple[str, str, float, float | None]]:
        """For :func:`integrand.render.molecule.page`: the section, the name, the value and the share of each line."""
        return [(name, f"{part.name} {_undivided(part)}".rstrip(), part.value, part.share) for name, part in self.told()]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        head = {"smiles": self.smiles, "label": self.label, "change": self.change, "share_error": self.share_error}
        parts = {name: [vars(p) | {"atoms": list(p.atoms)} for p in parts] for name, parts in self.sections.items()}
        return head | {"notes": list(self.notes), "absent": list(self.absent), "sections": parts}

    def __str__(self) -> str:
        wide = max(len(part.name) for parts in self.sections.values() for part in parts)
        lines = [f"{self.smiles}: {self.label} changes by {self.change:+.4g}"]
        for name, parts in self.sections.items():
            lines += ["", f"by {name}"]
            lines += [f"  {part.name:<{wide}}  {part.value:>+9.3g}  {_words(part)}".rstrip() for part in parts]
        return "\n".join([*lines, "", *self.notes])


def account(result: MoleculeAttribution, *, smarts: Mapping[str, str] | None = None) -> Account:
    """Where the score of a molecule comes from, by kind, element, functional group, ring and pattern.

    Functional groups are RDKit's fragment patterns (``rdkit.Chem.Fragments``, less ``fr_``). They overlap, and so do fused
    rings and patterns: the ``value`` of an atom in several is divided equally among them, so that the table adds up; ``whole``
    is what the group's atoms add undivided.

    Args:
        result: of ``explain``.
        smarts: patterns of your own, by name.

    Raises:
        InputError: a pattern that RDKit cannot read.
    """
    mol, values, meant = result.mol, result.per_atom, steady(result)
    patterns = {} if smarts is None else compiled(smarts)
    sections = {"kind": _kinds(result), "element": _parts(values, elements(mol), "")}
    sections["functional group"] = _parts(values, matches(mol, fragments()), "in no group")
    sections["ring"] = _parts(values, named(mol, map(frozenset, rings(mol))), "in no ring")
    sections["ring system"] = _parts(values, named(mol, systems(rings(mol))), "in no ring")
    if patterns:
        sections["pattern"] = _parts(values, matches(mol, patterns), "in no pattern")
    rest = _rest(result)
    shared = {
        name: tuple(_shared(part, result.change if meant else None) for part in (*parts, *rest))
        for name, parts in sections.items()
    }
    one = result.certificate
    off = one.error * one.magnitude / abs(result.change) if meant else None
    divided = any(_undivided(part) for parts in shared.values() for part in parts)
    there = {part.name for part in sections.get("pattern", [])}
    absent = tuple(name for name in patterns if name not in there)
    notes = _notes(result, off, absent, divided=divided)
    return Account(result.smiles, result.label, result.change, off, shared, notes, absent)


def steady(result: MoleculeAttribution) -> bool:
    """Whether the score changes by enough for shares of the change to mean something."""
    return abs(result.change) >= FLAT * result.magnitude and result.change != 0


def _kinds(result: MoleculeAttribution) -> list[Part]:
    bonded = result.bonds >= 0
    found = [
        ("atoms", result.atoms),
        ("bonded pairs", result.pair_values[bonded]),
        ("other pairs", result.pair_values[~bonded]),
    ]
    return [_part(name, math.fsum(values), count=len(values)) for name, values in found]


def _rest(result: MoleculeAttribution) -> list[Part]:
    """What belongs to no atom, and what makes every section add up to the change exactly."""
    others = [_part(OTHERS, math.fsum(result.others.values()), count=len(result.others))] if result.others else []
    return [*others, _part(MISSED, result.change - result.total)]


def _parts(values: Floats, groups: Groups, outside: str) -> list[Part]:
    """The value of each group; atoms in several are divided equally among them, and those in none are a line of their own."""
    held = {name: frozenset().union(*rows) for name, rows in groups.items()}
    times = np.zeros(len(values))
    for atoms in held.values():
        times[list(atoms)] += 1
    found = []
    for name, atoms in held.items():
        where = sorted(atoms)
        whole, divided = math.fsum(values[where]), math.fsum(values[where] / times[where])
        found.append(Part(name, divided, None, whole, len(groups[name]), tuple(where)))
    found.sort(key=lambda part: -abs(part.whole))
    left = np.flatnonzero(times == 0).tolist()
    return [*found, *([_part(outside, math.fsum(values[left]), count=len(left), atoms=tuple(left))] if left else [])]


def _part(name: str, value: float, **given: Any) -> Part:
    return Part(name, value, None, value, **given)


def _shared(part: Part, change: float | None) -> Part:
    share = None if change is None else part.value / change
    return Part(part.name, part.value, share, part.whole, part.count, part.atoms)


def _words(part: Part) -> str:
    times = f"{part.count}×" if part.count > 1 else ""
    return f"{part.percent:>6}  {'  '.join(filter(None, (times, _undivided(part))))}".rstrip()


def _undivided(part: Part) -> str:
    """What the atoms add together, where that is something else."""
    return "" if math.isclose(part.whole, part.value, abs_tol=1e-12) else f"({part.whole:+.3g} undivided)"


def _notes(result: MoleculeAttribution, off: float | None, absent: Sequence[str], *, divided: bool) -> tuple[str, ...]:
    shares = (
        f"The score changes by {result.change:+.2g}, little next to attributions of {result.magnitude:.2g} that cancel: shares "
        "of it would say nothing, and are not given."
        if off is None
        else f"Shares are of the change of the score; by the error of the attributions they are good to {percent(off)}."
    )
    groups = (
        "An atom in several groups is divided equally among them, so that every table adds up; 'undivided' is what all atoms "
        "of a group add."
    )
    pairs = ("Atoms bring half of each of their pairs.",) if len(result.ends) else ()
    missing = (f"Not in this molecule: {', '.join(absent)}.",) if absent else ()
    return (shares, *pairs, *((groups,) if divided else ()), *missing)
