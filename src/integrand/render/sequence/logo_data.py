"""A sequence with its attributions, as every picture of it takes it; and what it says in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...arrays import Floats
from ...certificate import ExampleCertificate
from ...errors import InputError
from ...words import number, percent, plus_minus, short_repr, shortened, shown
from ..certificate_text import trust

NAMED, MUCH = 3, 2 / 3
"""The seqlets that a sentence names hold this share of all that pull the same way, and are at most so many."""

CONTRARY = 0.5
"""A seqlet that pulls the other way is named if it is at least this share as strong as the strongest that is named."""

SAME = 0.01
"""A score that moves by less than this share of its strongest seqlet is said to be where it was, by hand."""

LONG = 24
"""Seqlets are cut to this many letters in a sentence."""

COLOURS = {
    "A": "#109648",
    "C": "#255c99",
    "G": "#c87f0a",
    "T": "#d62839",
    "U": "#d62839",
}
"""The usual colours of nucleotides: A green, C blue, G amber, T and U red."""

CHEMISTRY = {
    "#0a8a3c": "GSTYCQN",  # polar; Q and N apart in some schemes
    "#2253c9": "KRH",  # basic
    "#c8201e": "DE",  # acidic
    "#33373d": "AVLIPWFM",  # hydrophobic
}
"""The usual colours of amino acids, by their chemistry."""

OTHER = "#7a828c"


def letter_colour(letter: str, alphabet: str) -> str:
    """The colour of a letter: those of nucleotides in alphabets of four letters, of amino acids by chemistry otherwise.

    >>> letter_colour("G", "ACGT"), letter_colour("G", "ACDEFGHIKLMNPQRSTVWY")
    ('#c87f0a', '#0a8a3c')
    """
    if set(alphabet) <= set(COLOURS):
        return COLOURS.get(letter, OTHER)
    return next((colour for colour, letters in CHEMISTRY.items() if letter in letters), OTHER)


@dataclass(frozen=True, slots=True)
class Seqlet:
    """A stretch of a sequence with what its letters add up to.

    Attributes:
        start: its first letter, counted from 0.
        end: the letter after its last.
        letters: what stands there.
        value: the sum of the attributions.
        error: by how much the integration may be off.
        spread: the standard error of the mean over the baselines, where there are several; NaN where that is not known.
    """

    start: int
    end: int
    letters: str
    value: float
    error: float
    spread: float = math.nan

    @property
    def place(self) -> str:
        """Where it is, counted from 1 with its last letter: ``31-37``."""
        return f"{self.start + 1}–{self.end}" if self.end - self.start > 1 else str(self.end)

    def __str__(self) -> str:
        return f"{shortened(shown(self.letters), LONG)} at {self.place} ({with_errors(self.value, self.error, self.spread)})"


def with_errors(value: float, error: float, spread: float = math.nan) -> str:
    """A value with the error of its integration, and with its standard error over baselines where that is known.

    >>> with_errors(4.123, 0.011, 0.31), with_errors(4.123, 0.011)
    ('+4.123 ± 0.011, baselines ± 0.31', '+4.123 ± 0.011')
    """
    said = plus_minus(value, error)
    return f"{said}, baselines ± {number(spread, 2)}" if math.isfinite(spread) else said


@dataclass(frozen=True, eq=False)
class Logo:
    """A sequence with its attributions.

    Attributes:
        letters: as they were given, small ones too.
        alphabet: in the order of the rows below.
        values: the attribution of each position, (L,).
        errors: by how much the integration may be off in each, (L,).
        spread: standard errors over the baselines, (L,); None for a single one.
        hypothetical: what each letter would get at each position, (letters of the alphabet, L); None if that was not asked for.
        hypothetical_errors: likewise.
        seqlets: the strongest stretches, the strongest first.
        certificate: how far the numbers can be trusted.
        label: what is explained.
        said: what the network says; empty where its outputs have no names.
        probability: how probable that is to the network.
        baseline: what the sequence is compared with, in words.
        name: of the sequence.
        notes: what a reader must not miss.
    """

    letters: str
    alphabet: str
    values: Floats
    errors: Floats
    spread: Floats | None
    hypothetical: Floats | None
    hypothetical_errors: Floats | None
    seqlets: tuple[Seqlet, ...]
    certificate: ExampleCertificate
    label: str = ""
    said: str = ""
    probability: float | None = None
    baseline: str = ""
    name: str = ""
    notes: tuple[str, ...] = field(default=())

    __repr__ = short_repr

    def __post_init__(self) -> None:
        length, each = len(self.letters), [self.values, self.errors]
        each += [one for one in (self.spread,) if one is not None]
        wide = [one for one in (self.hypothetical, self.hypothetical_errors) if one is not None]
        if not length or any(one.shape != (length,) for one in each):
            raise InputError(f"got {', '.join(str(one.shape) for one in each)} for {length} letters; expected one of each")
        if any(one.shape != (len(self.alphabet), length) for one in wide):
            raise InputError(f"got {wide[0].shape} hypothetical values; expected ({len(self.alphabet)}, {length})")
        if any(not 0 <= one.start < one.end <= length for one in self.seqlets):
            raise InputError(f"a seqlet ends beyond the {length} letters of the sequence")

    @property
    def verdict(self) -> str:
        """What the network says, with its probability; or the score, where outputs have no names.

        Also of a score that is explained in comparison with the baseline's.
        """
        if self.said:
            chance = f" ({percent(self.probability)})" if self.probability is not None else ""
            return f"{self.said}{chance}"
        what = self.label or "the output"
        return f"{what} is {number(self.certificate.score, 3)}, {number(self.certificate.baseline_score, 3)} at the baseline"

    @property
    def sentence(self) -> str:
        """What the network says, because of which letters, and how sure the numbers are, in one line."""
        up = self.certificate.score >= self.certificate.baseline_score
        other = self.said != self.label
        if self.said and other:  # it says something else than what is explained: what speaks for either
            named, against = self._strongest(1)[:1], self._strongest(-1)[:1]
            parts = [f"most for {self.label} speaks {_listed(named)}" if named else f"nothing speaks for {self.label}"]
            parts += [f"most against it {_listed(against)}"] if against else []
            return f"{self.verdict}; {', '.join(parts)}; {trust(self.certificate)}."
        move = abs(self.certificate.score - self.certificate.baseline_score)
        if not self.said and self.seqlets and move < SAME * abs(self.seqlets[0].value):
            pulls = [(self._strongest(1)[:1], "raises"), (self._strongest(-1)[:1], "lowers")]
            both = [f"{_listed(named)} {does} it most" for named, does in pulls if named]
            return f"{self.verdict}: {', '.join(both)}; {trust(self.certificate)}."
        way = 1 if up or self.said else -1
        named = self._strongest(way)
        if not named:
            return f"{self.verdict}: no stretch of letters stands out; {trust(self.certificate)}."
        contrary = [one for one in self._strongest(-way)[:1] if abs(one.value) >= CONTRARY * abs(named[0].value)]
        but = f", although {_listed(contrary)} speaks against it" if contrary else ""
        return f"{self.verdict}, mostly because of {_listed(named)}{but}; {trust(self.certificate)}."

    def _strongest(self, way: int) -> list[Seqlet]:
        """The seqlets that hold most of what pulls one way, at most three."""
        mine = [one for one in self.seqlets if one.value * way > 0]
        total, held, chosen = sum(abs(one.value) for one in mine), 0.0, []
        for one in mine[:NAMED]:
            chosen.append(one)
            held += abs(one.value)
            if held >= MUCH * total:
                break
        return chosen

    def says(self, i: int) -> str:
        """What is known of a position, in words: its number, its letter, its value, and what other letters would get."""
        spread = math.nan if self.spread is None else float(self.spread[i])
        text = f"{i + 1} {self.letters[i]}: {with_errors(float(self.values[i]), float(self.errors[i]), spread)}"
        if self.hypothetical is None or self.hypothetical_errors is None:
            return text
        rows = [k for k, letter in enumerate(self.alphabet) if letter != self.letters[i].upper()]
        if len(rows) > 4:  # of twenty letters, those that would do most
            rows = sorted(rows, key=lambda k: -abs(float(self.hypothetical[k, i])))[:4]  # type: ignore[index]
        each = (
            f"{self.alphabet[k]} {plus_minus(float(self.hypothetical[k, i]), float(self.hypothetical_errors[k, i]))}"
            for k in rows
        )
        return f"{text}. In its place: {'; '.join(each)}"


def _listed(seqlets: Sequence[Seqlet]) -> str:
    said = [str(one) for one in seqlets]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
