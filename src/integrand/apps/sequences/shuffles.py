"""Shuffled sequences with the same dinucleotides: baselines that say nothing but keep what any sequence of the kind has.

A sequence is a walk over its letters, and its dinucleotides are the steps; a shuffle is another walk that takes the same steps
(Altschul and Erickson 1985). All walks are equally probable here: the last step away from each letter is drawn as a uniform
spanning tree towards the last letter, by loop-erased random walks (Wilson's algorithm, as Kandel et al. 1996 use it), and the
other steps are put into random order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...errors import InputError, OptionError

Rng = np.random.Generator


def dinucleotide_shuffle(sequence: str, count: int = 1, *, seed: int = 0, fixed: str = "") -> list[str]:
    """Shuffle a sequence so that every pair of neighbours comes as often as before; the first and last letters stay.

    Every sequence with the same first letter and the same pairs is equally probable. Shuffle k depends on the sequence, the
    seed and k alone: more shuffles begin with the same ones.

    >>> [sorted(zip(one, one[1:])) == sorted(zip("ACGTACCA", "CGTACCA")) for one in dinucleotide_shuffle("ACGTACCA", 3)]
    [True, True, True]

    Args:
        sequence: letters of any alphabet; capitals and small letters differ.
        count: how many shuffles.
        seed: of the random numbers, 0 or more.
        fixed: letters that stay where they are, such as N: the stretches between them are shuffled, each on its own.

    Raises:
        InputError: the sequence is empty.
        OptionError: count or seed make no sense.
    """
    if not sequence:
        raise InputError("got an empty sequence to shuffle; expected at least one letter.")
    if count < 1 or seed < 0:
        raise OptionError(f"got {count} shuffles with seed {seed}; expected at least one, and a seed of 0 or more.")
    parts = re.split(f"([{re.escape(fixed)}]+)", sequence) if fixed else [sequence]
    made = []
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        made.append("".join(part if i % 2 else _shuffled(part, rng) for i, part in enumerate(parts)))
    return made


def _shuffled(sequence: str, rng: Rng) -> str:
    """One uniformly drawn sequence with the same pairs of neighbours."""
    if len(sequence) < 4:  # nothing can change: two steps have one order only
        return sequence
    names = sorted(set(sequence))
    codes = [names.index(letter) for letter in sequence]
    steps: list[list[int]] = [[] for _ in names]
    for here, there in pairwise(codes):
        steps[here].append(there)
    last = _tree(steps, codes[-1], rng)
    order: list[list[int]] = []
    for here, targets in enumerate(steps):
        rest = list(targets)
        end = last[here]
        if end is not None:
            rest.remove(end)
        drawn = [rest[i] for i in rng.permutation(len(rest))]
        order.append(drawn if end is None else [*drawn, end])
    taken = [0] * len(names)
    walk = [codes[0]]
    for _ in range(len(codes) - 1):
        here = walk[-1]
        walk.append(order[here][taken[here]])
        taken[here] += 1
    return "".join(names[code] for code in walk)


def _tree(steps: Sequence[Sequence[int]], root: int, rng: Rng) -> list[int | None]:
    """The last step away from each letter, so that from every letter they lead to the root: a uniform spanning tree.

    A random walk from a letter is followed until it meets the tree; of each letter that it passed, the step by which it left
    for the last time is kept, which erases its loops.
    """
    chosen: list[int | None] = [None] * len(steps)
    inside = [here == root for here in range(len(steps))]
    for start in range(len(steps)):
        here = start
        while not inside[here]:
            step = steps[here][int(rng.integers(len(steps[here])))]
            chosen[here] = step
            here = step
        here = start
        while not inside[here]:
            inside[here] = True
            step = chosen[here]  # type: ignore[assignment]  # every letter on the walk was left by a step
            here = step
    return chosen
