"""Dinucleotide shuffles: the same pairs exactly, every sequence equally probable, the same from run to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from integrand.errors import InputError, OptionError
from integrand.sequences import dinucleotide_shuffle


def pairs(sequence: str) -> Counter[tuple[str, str]]:
    return Counter(pairwise(sequence))


def walks(left: Counter[tuple[str, str]], walk: str) -> Iterator[str]:
    """Every sequence that begins like this and uses up the pairs that are left."""
    if not left:
        yield walk
    for pair in list(left):
        if pair[0] == walk[-1]:
            yield from walks(left - Counter([pair]), walk + pair[1])


@pytest.mark.parametrize("letters", ["ACGT", "ACGU", "ACDEFGHIKLMNPQRSTVWY", "AC"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 17, 300])
def test_pairs_and_ends_stay_exactly(letters: str, length: int) -> None:
    rng = np.random.default_rng(length)
    sequence = "".join(rng.choice(list(letters), length))
    made = dinucleotide_shuffle(sequence, 5, seed=3)
    assert all(pairs(one) == pairs(sequence) for one in made)
    assert {(one[0], one[-1], len(one)) for one in made} == {(sequence[0], sequence[-1], length)}
    assert length < 300 or len({sequence, *made}) == 6


@pytest.mark.parametrize("sequence", ["ACAGACGAGCA", "AABABBAAB", "ACGTACCATGA"])
def test_all_sequences_with_the_same_pairs_are_equally_probable(sequence: str) -> None:
    possible = sorted(set(walks(pairs(sequence), sequence[0])))
    assert len(possible) > 5
    draws = 400 * len(possible)
    found = Counter(dinucleotide_shuffle(sequence, draws, seed=1))
    assert set(found) == set(possible)  # all of them, and no other
    expected = draws / len(possible)
    chi = sum((found[one] - expected) ** 2 / expected for one in possible)
    free = len(possible) - 1
    assert chi < free + 4 * np.sqrt(2 * free)  # four standard deviations of the chi-squared distribution


def test_shuffles_depend_on_the_seed_and_their_number_alone() -> None:
    sequence = "ACGGTCATTTGACCGATAGCATTAGC" * 3
    three = dinucleotide_shuffle(sequence, 3, seed=7)
    assert dinucleotide_shuffle(sequence, 5, seed=7)[:3] == three
    assert dinucleotide_shuffle(sequence, 3, seed=8) != three
    assert len(set(three)) == 3


def test_fixed_letters_stay_where_they_are() -> None:
    sequence = "ACGTTGCAACGTGCANNNNACTGGTCATCGANTTAGCATTAC"
    for one in dinucleotide_shuffle(sequence, 10, seed=0, fixed="N-"):
        assert [i for i, letter in enumerate(one) if letter == "N"] == [15, 16, 17, 18, 31]
        assert pairs(one) == pairs(sequence)
        assert pairs(one[:15]) == pairs(sequence[:15])


def test_what_makes_no_sense() -> None:
    with pytest.raises(InputError, match="empty sequence to shuffle"):
        dinucleotide_shuffle("")
    with pytest.raises(OptionError, match="got 0 shuffles"):
        dinucleotide_shuffle("ACGT", 0)
    with pytest.raises(OptionError, match="seed -1"):
        dinucleotide_shuffle("ACGT", 1, seed=-1)
