"""Where a score comes from: attributions summed by element, functional group, ring or your own patterns.

Every table of an :class:`Account` adds up to F(x) - F(x'). Atoms bring half of each of their pairs along. Where groups overlap,
an atom's value is divided equally among the groups that hold it; what all atoms of a group add undivided is given next to it.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...certificate import Certificate
from ...errors import InputError, MissingExtraError, OptionError
from ...files import text_file, write_text
from ...render.certificate_text import trust
from ...render.molecule.molecule_data import AccountLine, element_name, plural
from ...render.notebook import text_table
from ...words import cells, percent, plus_minus, short_repr
from .chemical_groups import FRAGMENTS, joined_rings, ring_name
from .rdkit_signals import ctrl_c_kept
from .result import Floats, MoleculeAttribution

if TYPE_CHECKING:
    from rdkit.Chem import Mol

FLAT = 0.1
"""If the score changes by less than this share of the magnitudes, shares of the change are not given: nearly all cancels."""

MISSED, OTHERS = "not accounted for", "others"

Groups = Mapping[str, Sequence[frozenset[int]]]
"""The atoms of each match, by the name of the group."""

RARE = 12
"""The number of groups with too little support that are named."""

MOST_NAMED = 2
"""The most groups that a sentence names for each direction."""

NOTABLE = 0.25
"""Groups below this share of the strongest one in the same direction are not named in a sentence."""


@dataclass(frozen=True)
class AccountPart:
    """One line of an account.

    Attributes:
        name: the name of an element, a functional group, a ring...
        value: what it adds to the score; in a table these add up to the whole.
        share: its share of F(x) - F(x'), with its sign; None where that is too near to zero for shares to mean something.
        whole: what its atoms add where nothing is divided among groups that overlap.
        count: how often it is there.
        atoms: the numbers of the atoms that belong to it.
        each: where it is there several times and nothing overlaps, what each of them adds.
        error: how far ``value`` and ``whole`` may be off, in units of the score; None where not known.
    """

    name: str
    value: float
    share: float | None
    whole: float
    count: int = 0
    atoms: tuple[int, ...] = ()
    each: tuple[float, ...] = ()
    error: float | None = None

    @property
    def percent(self) -> str:
        """The share as a percentage for people; '' where there is none."""
        return "" if self.share is None else percent(self.share if abs(self.share) > 5e-4 else 0.0)


@dataclass(frozen=True)
class Account:
    """An account of a molecule's score: its parts by kind, element, functional group, ring and pattern.

    Attributes:
        smiles: the molecule.
        label: the output that is explained.
        change: F(x) - F(x'), which every section adds up to.
        share_error: how far any share may be off, by the certificate's error; None where there are no shares.
        sections: by name: ``kind`` (atoms, bonded pairs, other pairs), ``element``, ``group`` (every atom in one), ``functional
            group``, ``ring``, ``ring system``, and ``pattern`` where SMARTS were given.
        notes: what a reader should know.
        absent: names of SMARTS that match nothing in the molecule.
    """

    smiles: str
    label: str
    change: float
    share_error: float | None
    sections: Mapping[str, tuple[AccountPart, ...]]
    notes: tuple[str, ...]
    absent: tuple[str, ...] = ()

    def __getitem__(self, section: str) -> tuple[AccountPart, ...]:
        if section not in self.sections:
            raise InputError(f"got the section {section!r}; expected one of {', '.join(self.sections)}.")
        return self.sections[section]

    def part(self, section: str, name: str) -> AccountPart:
        """One line of the account, by its section and name."""
        for part in self[section]:
            if part.name == name:
                return part
        raise InputError(f"got {name!r}; expected one of {', '.join(part.name for part in self[section])}.")

    def rows(self) -> list[dict[str, Any]]:
        """All lines of the account as one table."""
        return [{"section": name} | vars(part) for name, parts in self.sections.items() for part in parts]

    def told(self) -> list[tuple[str, AccountPart]]:
        """The lines with their sections for people; what the sum misses, the same in all sections, is listed once."""
        every = [(name, part) for name, parts in self.sections.items() for part in parts]
        return [(name, part) for name, part in every if name == "kind" or part.name != MISSED]

    @property
    def sentence(self) -> str:
        """What brings most of the change of the score, and how sure that is, in one line."""
        listed = [part for part in self["group"] if part.name not in (MISSED, OTHERS)]
        most = sorted(listed, key=lambda part: -abs(part.value))[: MOST_NAMED + 1]
        said = ", ".join(
            f"{plural(part.name, part.count)} {plus_minus(part.value, math.nan if part.error is None else part.error)}"
            for part in most
        )
        return f"{self.label} changes by {self.change:+.3g}: {said}."

    def lines(self) -> list[AccountLine]:
        """The lines for people, as :func:`integrand.render.molecule.page` takes them."""
        return [
            AccountLine(
                section,
                part.name,
                part.value,
                part.share,
                error=part.error,
                whole=None if math.isclose(part.whole, part.value, abs_tol=1e-12) else part.whole,
                count=part.count,
                atoms=part.atoms,
                each=part.each,
            )
            for section, part in self.told()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The account as a dictionary for JSON."""
        head = {"smiles": self.smiles, "label": self.label, "change": self.change, "share_error": self.share_error}
        parts = {
            name: [vars(p) | {"atoms": list(p.atoms), "each": list(p.each)} for p in parts]
            for name, parts in self.sections.items()
        }
        return head | {"notes": list(self.notes), "absent": list(self.absent), "sections": parts}

    __repr__ = short_repr
    _repr_html_ = text_table

    def __str__(self) -> str:
        wide = max(len(part.name) for parts in self.sections.values() for part in parts)
        lines = [f"{self.smiles}: {self.label} changes by {self.change:+.4g}"]
        for name, parts in self.sections.items():
            lines += ["", f"by {name}"]
            lines += [f"  {part.name:<{wide}}  {_bounded(part):>18}  {_words(part)}".rstrip() for part in parts]
        return "\n".join([*lines, "", *self.notes])


def account(result: MoleculeAttribution, *, smarts: Mapping[str, str] | None = None) -> Account:
    """Account for the score of a molecule by kind, element, group, functional group, ring and pattern.

    Of the groups every atom is in one: ring systems, functional groups and chains by the names that chemists have for them.
    Functional groups are RDKit's fragment patterns (``rdkit.Chem.Fragments``) with readable names. They overlap, and so do
    fused rings and patterns: the ``value`` of an atom in several is divided equally among them, so that the table adds up;
    ``whole`` is what the group's atoms add undivided.

    Args:
        result: a result of ``explain``.
        smarts: patterns of your own, by name.

    Raises:
        InputError: a pattern that RDKit cannot read.
    """
    mol, values, meant = result.mol, result.per_atom, steady(result)
    patterns = {} if smarts is None else compiled(smarts)
    sections = {"kind": _kinds(result), "element": _parts(values, elements(mol), "")}
    sections["group"] = _parts(values, result.groups, "")
    sections["functional group"] = _parts(values, matches(mol, fragments()), "in no group")
    sections["ring"] = _parts(values, named(mol, map(frozenset, rings(mol))), "in no ring")
    sections["ring system"] = _parts(values, named(mol, joined_rings(rings(mol))), "in no ring")
    if patterns:
        sections["pattern"] = _parts(values, matches(mol, patterns), "in no pattern")
    rest = _rest(result)
    shared = {
        name: tuple(_shared(part, result.change if meant else None) for part in _with_errors(result, (*parts, *rest)))
        for name, parts in sections.items()
    }
    one = result.certificate
    off = one.error * one.magnitude / abs(result.change) if meant else None
    divided = any(_undivided(part) for parts in shared.values() for part in parts)
    there = {part.name for part in sections.get("pattern", [])}
    absent = tuple(name for name in patterns if name not in there)
    notes = _notes(result, off, absent, divided=divided)
    return Account(result.smiles, result.label, result.change, off, shared, notes, absent)


@dataclass(frozen=True)
class Substructure:
    """The attributions of a group of atoms, over the molecules that contain it.

    Attributes:
        name: the name of the group.
        support: how many molecules have it.
        mean: the mean of what all atoms of the group in a molecule add, with half of each of their pairs.
        spread: the standard deviation of what they add.
        low: the lower quartile of what they add.
        high: the upper quartile of what they add.
        speaks_for: the share of the molecules in which it adds something positive.
        per_atom: the mean of what one atom of the group adds; groups of many atoms add more.
        elsewhere: the mean of what one atom outside the group adds in the same molecules; None where there is none.
    """

    name: str
    support: int
    mean: float
    spread: float
    low: float
    high: float
    speaks_for: float
    per_atom: float
    elsewhere: float | None


@dataclass(frozen=True)
class Substructures:
    """Which functional groups or patterns drive a class, over a set of molecules.

    Attributes:
        label: the output that was explained.
        molecules: how many there were.
        least: the support below which groups are left out.
        found: one for each group, those that add most first.
        rare: names of groups that are there, with too little support.
        trusted: how far the numbers can be trusted, in words.
    """

    label: str
    molecules: int
    least: int
    found: tuple[Substructure, ...]
    rare: tuple[str, ...]
    trusted: str = ""

    @property
    def sentence(self) -> str:
        """The groups that raise and lower the score most on average, in one line."""
        up = [one for one in self.found if one.mean > 0][:MOST_NAMED]
        down = [one for one in reversed(self.found) if one.mean < 0][:MOST_NAMED]
        said = [
            f"{word} most by {' and '.join(f'{one.name} ({one.mean:+.2g} in {one.support:,})' for one in rows)}"
            for word, rows in (("raised", up), ("lowered", down))
            if rows
        ]
        sure = f"; {self.trusted}" if self.trusted else ""
        return f"{self.label}, {self.molecules:,} molecule(s): {', '.join(said) or 'no group is common enough to say'}{sure}."

    def __iter__(self) -> Iterator[Substructure]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def rows(self) -> list[dict[str, Any]]:
        """The groups as a table, one row each."""
        return [dict(vars(one)) for one in self.found]

    def to_dict(self) -> dict[str, Any]:
        """The groups as a dictionary for JSON."""
        head = {"label": self.label, "molecules": self.molecules, "least": self.least, "rare": list(self.rare)}
        return head | {"found": self.rows()}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the groups to a file in the format its suffix names: ``.json``, ``.csv`` or ``.txt``."""
        where = Path(path)
        ending = where.suffix.lower()
        if ending == ".json":
            write_text(where, json.dumps(self.to_dict(), indent=1, allow_nan=False))
        elif ending == ".csv":
            with text_file(where) as file:
                writer = csv.DictWriter(file, list(Substructure.__annotations__))
                writer.writeheader()
                writer.writerows(map(cells, self.rows()))
        elif ending == ".txt":
            write_text(where, f"{self}\n")
        else:
            raise OptionError(f"got the ending {where.suffix!r}; expected .json, .csv or .txt.")
        return where

    __repr__ = short_repr
    _repr_html_ = text_table

    def __str__(self) -> str:
        wide = max((len(one.name) for one in self.found), default=5)
        lines = [
            f"{self.molecules:,} molecule(s), {self.label}; groups in at least {self.least}. They overlap: each has all of its "
            "atoms, with half of their pairs.",
            f"  {'group':<{wide}}  molecules      adds    spread  speaks for  per atom  elsewhere",
        ]
        for one in self.found:
            rest = "" if one.elsewhere is None else f"{one.elsewhere:+.2g}"
            lines.append(
                f"  {one.name:<{wide}}  {one.support:>9,}  {one.mean:>+8.3f}  {one.spread:>8.3f}  {one.speaks_for:>10.0%}  "
                f"{one.per_atom:>+8.2g}  {rest:>9}"
            )
        if self.rare:
            named = ", ".join(self.rare[:RARE]) + (f" and {len(self.rare) - RARE} more" if len(self.rare) > RARE else "")
            lines.append(f"In fewer molecules, and left out: {named}. least=1 shows them.")
        elif not self.found:
            lines.append("None of the groups is in these molecules.")
        return "\n".join(lines)


def substructures(
    results: Iterable[MoleculeAttribution], smarts: Mapping[str, str] | None = None, *, least: int = 5
) -> Substructures:
    """Find which groups drive a class, by what each adds over the molecules that contain it.

    Args:
        results: results of ``explain``, all of the same output.
        smarts: patterns by name; by default RDKit's functional groups.
        least: the support that a group needs.
    """
    patterns = fragments() if smarts is None else compiled(smarts)
    gathered: dict[str, list[tuple[float, float, float]]] = {}
    labels, told = set(), []
    for result in results:
        told.append(result.certificate)
        labels.add(result.label)
        for name, rows in matches(result.mol, patterns).items():
            gathered.setdefault(name, []).append(_values(result, sorted(frozenset().union(*rows))))
    if not told:
        raise InputError("got no result; expected at least one.")
    if len(labels) > 1:
        raise InputError(f"got results of {', '.join(sorted(labels))}; expected those of one output.")
    found = [_substructure(name, np.array(values)) for name, values in gathered.items() if len(values) >= least]
    rare = tuple(sorted(name for name, values in gathered.items() if len(values) < least))
    ordered = tuple(sorted(found, key=lambda one: -one.mean))
    return Substructures(labels.pop(), len(told), least, ordered, rare, trust(Certificate(tuple(told))))


def sentence_of(result: MoleculeAttribution, groups: Sequence[AccountPart] | None = None) -> str:
    """What the network says of a molecule, which groups that comes from, and how sure the numbers are, in one line.

    Args:
        result: the molecule.
        groups: what :func:`account_groups` gives, where that is at hand.
    """
    groups = account_groups(result) if groups is None else groups
    up, down = (_strongest(groups, sign) for sign in (1, -1))
    yes = result.score >= 0.5
    if result.scale == "probability":
        because, despite = (up, down) if yes else (down, up)
        reasons = [f"because of {_listed(result, because)}"] if because else []
        reasons += [f"despite {_listed(result, despite[:1])}"] if despite and _matters(despite, because) else []
    else:
        reasons = [f"raised most by {_listed(result, up)}"] if up else []
        reasons += [f"lowered most by {_listed(result, down)}"] if down else []
    why = ", ".join(reasons) or "nothing in it changes that"
    return f"{result.answer}: {why}; {trust(result.certificate)}."


def account_groups(result: MoleculeAttribution) -> list[AccountPart]:
    """What the groups of :func:`~.chemical_groups.chemical_groups` add, the strongest first."""
    return _parts(result.per_atom, result.groups, "")


def _strongest(groups: Sequence[AccountPart], sign: int) -> list[AccountPart]:
    """The few groups that add most in one direction; none that is faint next to the first, or to those of the other one."""
    rows = sorted((part for part in groups if sign * part.value > 0), key=lambda part: -abs(part.value))
    least = NOTABLE * abs(rows[0].value) if rows else 0.0
    largest = max((abs(part.value) for part in groups), default=0.0)
    return [part for part in rows[:MOST_NAMED] if abs(part.value) >= max(least, NOTABLE**2 * largest)]


def _matters(against: Sequence[AccountPart], behind: Sequence[AccountPart]) -> bool:
    return not behind or abs(against[0].value) >= NOTABLE * abs(behind[0].value)


def _listed(result: MoleculeAttribution, parts: Sequence[AccountPart]) -> str:
    """Groups by name; of a ring with several elements, the atom other than carbon that adds most in the same direction."""
    words = []
    for part in parts:
        count = f"{part.count} " if part.count > 1 else ""
        words.append(f"the {count}{plural(part.name, part.count)}{_above_all(result, part)}")
    return " and ".join(words)


def _above_all(result: MoleculeAttribution, part: AccountPart) -> str:
    values = result.per_atom[list(part.atoms)]
    best = part.atoms[int(np.argmax(values * np.sign(part.value)))]
    symbol = result.mol.GetAtomWithIdx(best).GetSymbol()
    others = sum(result.mol.GetAtomWithIdx(i).GetSymbol() == symbol for i in part.atoms)
    if symbol == "C" or others > 1 or part.count > 1 or len(part.atoms) < 5:
        return ""
    return f" (above all its {element_name(result.mol, best)})"


def steady(result: MoleculeAttribution) -> bool:
    """Whether the score changes by enough for shares of the change to mean something."""
    return abs(result.change) >= FLAT * result.magnitude and result.change != 0


def fragments() -> dict[str, Mol]:
    """RDKit's patterns of functional groups, by readable names."""
    return dict(_fragments())


def compiled(smarts: Mapping[str, str]) -> dict[str, Mol]:
    """Compile SMARTS patterns.

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
    """The atoms of each match, by the name of the pattern; patterns without a match are left out."""
    with ctrl_c_kept():
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


def named(mol: Mol, found: Iterable[frozenset[int]]) -> dict[str, list[frozenset[int]]]:
    """The rings by unique names made of what they are called and the numbers of their atoms."""
    return {f"{ring_name(mol, ring)} at {_spoken(ring)}": [ring] for ring in sorted(found, key=sorted)}


def _kinds(result: MoleculeAttribution) -> list[AccountPart]:
    bonded = result.bonds >= 0
    found = [
        ("atoms", result.atoms),
        ("bonded pairs", result.pair_values[bonded]),
        ("other pairs", result.pair_values[~bonded]),
    ]
    return [_part(name, math.fsum(values), count=len(values)) for name, values in found]


def _rest(result: MoleculeAttribution) -> list[AccountPart]:
    """The lines for what belongs to no atom, and for what the sum misses, so that every section adds up to the change."""
    others = [_part(OTHERS, math.fsum(result.others.values()), count=len(result.others))] if result.others else []
    return [*others, _part(MISSED, result.change - result.total)]


def _parts(values: Floats, groups: Groups, outside: str) -> list[AccountPart]:
    """A line for each group; an atom in several groups is divided among them, and atoms in none get a line of their own."""
    held = {name: frozenset().union(*rows) for name, rows in groups.items()}
    times = np.zeros(len(values))
    for atoms in held.values():
        times[list(atoms)] += 1
    found = []
    for name, atoms in held.items():
        where = sorted(atoms)
        whole, divided = math.fsum(values[where]), math.fsum(values[where] / times[where])
        rows = groups[name]
        apart = len(rows) > 1 and sum(map(len, rows)) == len(where) and bool((times[where] == 1).all())
        each = tuple(math.fsum(values[sorted(row)]) for row in rows) if apart else ()
        found.append(AccountPart(name, divided, None, whole, len(rows), tuple(where), each))
    found.sort(key=lambda part: -abs(part.whole))
    left = np.flatnonzero(times == 0).tolist()
    return [*found, *([_part(outside, math.fsum(values[left]), count=len(left), atoms=tuple(left))] if left else [])]


def _part(name: str, value: float, **given: Any) -> AccountPart:
    return AccountPart(name, value, None, value, **given)


def _with_errors(result: MoleculeAttribution, parts: Iterable[AccountPart]) -> list[AccountPart]:
    """The lines with how far they may be off; what the sum misses is known, being the difference of two numbers."""
    rows = list(parts)
    errors = result.sum_errors(part.atoms for part in rows)
    found = []
    for part, error in zip(rows, errors, strict=True):
        off = error if part.atoms else result.sum_error
        found.append(replace(part, error=0.0 if part.name == MISSED else off))
    return found


def _shared(part: AccountPart, change: float | None) -> AccountPart:
    return replace(part, share=None if change is None else part.value / change)


def _bounded(part: AccountPart) -> str:
    """What a part adds, with its error where there is one."""
    return plus_minus(part.value, part.error).replace("−", "-") if part.error else f"{part.value:+.3g}"


def _words(part: AccountPart) -> str:
    times = f"{part.count}×" if part.count > 1 else ""
    return f"{part.percent:>6}  {'  '.join(filter(None, (times, _undivided(part))))}".rstrip()


def _undivided(part: AccountPart) -> str:
    """The undivided sum of a group's atoms in words; '' where it equals the divided one."""
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


@cache
def _fragments() -> tuple[tuple[str, Mol], ...]:
    try:
        from rdkit.Chem import Fragments
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "finding functional groups") from None
    with open(Fragments.defaultPatternFileName, encoding="utf-8") as file:
        cells = [line.split("\t") for line in file if not line.startswith("#")]
    known = {row[0].removeprefix("fr_"): row[2].strip() for row in cells if len(row) > 2}
    return tuple(compiled({FRAGMENTS.get(name, name.replace("_", " ")): smarts for name, smarts in known.items()}).items())


def _spoken(atoms: Iterable[int]) -> str:
    """Numbers in ascending order, with runs written as ranges.

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


def _values(result: MoleculeAttribution, atoms: list[int]) -> tuple[float, float, float]:
    """What the atoms of a group add, what one of them adds on average, and what one of the other atoms adds (NaN if none)."""
    inside = np.zeros(len(result.per_atom), bool)
    inside[atoms] = True
    rest = result.per_atom[~inside]
    return result.per_atom[inside].sum(), result.per_atom[inside].mean(), rest.mean() if len(rest) else np.nan


def _substructure(name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> Substructure:
    added, per_atom, elsewhere = values.T
    low, high = np.quantile(added, [0.25, 0.75]).tolist()
    rest = elsewhere[np.isfinite(elsewhere)]
    return Substructure(
        name,
        len(added),
        float(added.mean()),
        float(added.std(ddof=1)) if len(added) > 1 else 0.0,
        low,
        high,
        float((added > 0).mean()),
        float(per_atom.mean()),
        float(rest.mean()) if len(rest) else None,
    )
