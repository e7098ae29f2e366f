"""Alphabets of DNA, RNA, proteins or of one's own, and sequences as one-hot columns and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...arrays import Floats
from ...errors import InputError, OptionError
from ...words import shortened, shown

GAP = "-"
"""The letter of a column of zeros: padding, of which a network sees nothing."""

LONGEST = 1_000_000
"""The most letters of a sequence."""

NUCLEOTIDES = {
    "R": "AG",
    "Y": "CT",
    "S": "CG",
    "W": "AT",
    "K": "GT",
    "M": "AC",
    "B": "CGT",
    "D": "AGT",
    "H": "ACT",
    "V": "ACG",
    "N": "ACGT",
}
"""The letters of the IUPAC for nucleotides that are not known, and what each may be."""

AMINO_ACIDS = {"B": "DN", "Z": "EQ", "J": "IL", "X": "ACDEFGHIKLMNPQRSTVWY"}
"""Those for amino acids."""

OFF = 1e-4
"""By how much the sum of a one-hot column may differ from 1, since float16 rounds."""


@dataclass(frozen=True)
class Alphabet:
    """The letters of a sequence, in the order of the rows of its one-hot encoding.

    Attributes:
        letters: in capitals, each once.
        name: ``DNA``, ``RNA``, ``protein`` or that of one's own.
        spread: letters that stand for several others, with those: their weight is spread evenly.
        same: letters that mean another one, as U does in DNA.
    """

    letters: str
    name: str = ""
    spread: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.letters)

    @staticmethod
    def of(given: Alphabet | str) -> Alphabet:
        """An alphabet by its name, or of letters: ``Alphabet.of("DNA")``, ``Alphabet.of("ACGT")``.

        Raises:
            OptionError: it is neither a name nor a set of letters.
        """
        if isinstance(given, Alphabet):
            return given
        known = KNOWN.get(str(given).lower())
        if known is not None:
            return known
        letters = str(given)
        if len(letters) < 2 or not letters.isalpha() or letters != letters.upper() or len(set(letters)) < len(letters):
            raise OptionError(
                f"got alphabet={shown(letters)[:60]!r}; expected DNA, RNA, protein, or the letters in the order of the "
                "network's rows, such as 'ACGT': capitals, each once."
            )
        for one in KNOWN.values():
            if set(letters) == set(one.letters):  # another order of known letters: what stands for several stays known
                return Alphabet(letters, one.name, one.spread, one.same)
        return Alphabet(letters, letters)

    def spelled(self, sequence: str) -> str:
        """A sequence in the capitals of this alphabet; masked (small) letters count like others, T and U alike where one is.

        Raises:
            InputError: it is empty, too long, or has a letter that the alphabet does not have.
        """
        if not isinstance(sequence, str):
            raise InputError(f"got a {type(sequence).__name__} as a sequence; expected a text, such as 'ACGT'.")
        if not sequence:
            raise InputError("got an empty sequence; expected at least one letter.")
        if len(sequence) > LONGEST:
            raise InputError(f"got a sequence of {len(sequence):,} letters; expected at most {LONGEST:,}. Cut it into parts.")
        capitals = "".join(self.same.get(letter, letter) for letter in sequence.upper())
        known = {*self.letters, *self.spread, GAP}
        wrong = next((i for i, letter in enumerate(capitals) if letter not in known), None)
        if wrong is not None:
            more = f", {''.join(self.spread)} for several of them" if self.spread else ""
            raise InputError(
                f"got {shown(sequence[wrong])!r} at position {wrong + 1} of the sequence "
                f"{shortened(shown(sequence), 40)!r}; expected letters of {self.name} ({self.letters}{more}, {GAP} for "
                f"padding). {self._hint(capitals, capitals[wrong])}"
            )
        return capitals

    def _hint(self, capitals: str, wrong: str) -> str:
        fits = [one.name for one in KNOWN.values() if set(capitals) <= {*one.letters, *one.spread, *one.same, GAP}]
        if fits:
            return f"It could be {fits[0]}, for which a network on {fits[0]} is needed (alphabet={fits[0]!r})."
        if wrong == "*":
            return "A stop (*) is no letter: take it off."
        unknown = [letter for letter in ("N", "X") if letter in self.spread]  # of proteins, N is asparagine
        return f"Take such letters out, or write {unknown[0]} for them." if unknown else "Take such letters out."

    def encoded(self, sequence: str) -> Floats:
        """One column per letter, (letters of the alphabet, L): one-hot, even shares of several, zeros for padding.

        >>> Alphabet.of("DNA").encoded("AN-").T.tolist()
        [[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]]
        """
        spelled = self.spelled(sequence)
        table = self.columns()
        return np.stack([table[letter] for letter in spelled], 1)

    def columns(self) -> dict[str, Floats]:
        """The column of every letter, (letters of the alphabet,)."""
        each = np.eye(len(self))
        table = dict(zip(self.letters, each, strict=True))
        for letter, may_be in self.spread.items():
            of = [one for one in may_be if one in table]
            if letter not in table and of:
                table[letter] = np.mean([table[one] for one in of], 0)
        table[GAP] = np.zeros(len(self))
        return table

    def decoded(self, columns: Floats) -> str:
        """The letters of one-hot columns, (letters of the alphabet, L).

        Raises:
            InputError: a column is none of :meth:`columns`, nor numbers from 0 to 1 that add up to 1.
        """
        if columns.ndim != 2 or columns.shape[0] != len(self) or not columns.shape[1]:
            raise InputError(
                f"got a one-hot sequence of shape {columns.shape}; expected {len(self)} letters by L positions, (4, L) for "
                "DNA, or (L, 4) with layout='positions-letters'."
            )
        sums = columns.sum(0)
        bad = np.flatnonzero(~(np.isclose(sums, 1, atol=OFF) | (sums == 0)) | (columns < -OFF).any(0))
        if len(bad):
            raise InputError(
                f"the one-hot sequence adds up to {sums[bad[0]]:.4g} at position {bad[0] + 1}; expected 1, or 0 for padding, "
                "and no negative numbers. Check layout= (letters-positions or positions-letters)."
            )
        table = self.columns()
        known = {tuple(np.round(column, 3)): letter for letter, column in reversed(table.items())}
        rest = next((letter for letter in ("N", "X") if letter in self.spread), "?")
        return "".join(known.get(tuple(np.round(column, 3)), rest) for column in columns.T)


KNOWN = {
    "dna": Alphabet("ACGT", "DNA", NUCLEOTIDES, {"U": "T"}),
    "rna": Alphabet("ACGU", "RNA", {k: v.replace("T", "U") for k, v in NUCLEOTIDES.items()}, {"T": "U"}),
    "protein": Alphabet("ACDEFGHIKLMNPQRSTVWY", "protein", AMINO_ACIDS),
}
"""The alphabets that have names."""


def background_of(given: Sequence[float] | None, letters: int) -> Floats:
    """The frequencies of the letters, which add up to 1: even ones if none are given.

    Raises:
        OptionError: they are not as many as the letters, or no frequencies.
    """
    if given is None:
        return np.full(letters, 1 / letters)
    found = np.asarray(given, np.float64)
    if found.shape != (letters,) or not np.isfinite(found).all() or (found < 0).any() or abs(found.sum() - 1) > 1e-3:
        raise OptionError(
            f"got background={np.round(found, 4).tolist()}; expected {letters} frequencies that add up to 1, in the order of "
            "the alphabet's letters."
        )
    return np.asarray(found / found.sum())
