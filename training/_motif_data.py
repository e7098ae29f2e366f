"""Sequences with motifs at known places: a background like the human genome's, sites drawn from JASPAR's matrices.

A sequence is *bound* if it holds an AP-1 site and a GATA1 site with 4 to 20 letters between them, in either order and on either
strand. The others hold one of the two, or both at least 60 letters apart, or neither. Half of all sequences, bound or not,
also hold a CTCF site, which means nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

LETTERS = "ACGT"
LENGTH = 200
NEAR, FAR = (4, 20), 60
PROFILES = {"AP-1": ("MA0099", 4), "GATA1": ("MA0035", 5), "CTCF": ("MA0139", 2)}
"""The matrices of JASPAR 2024 (CC BY 4.0) by what they are called here: FOS::JUN, GATA1 and CTCF."""

NEXT = np.array(
    [
        [0.327, 0.172, 0.238, 0.263],  # after A
        [0.355, 0.255, 0.050, 0.340],  # after C: G is rare there, as CpG is in genomes of vertebrates
        [0.288, 0.210, 0.254, 0.248],  # after G
        [0.222, 0.204, 0.247, 0.327],  # after T
    ]
)
"""How probable each letter is after another, by hand after the human genome: 41% of G and C, few CpG."""

KINDS = ("none", "AP-1 only", "GATA1 only", "far apart")
"""What sequences hold that are not bound, in equal parts."""


@dataclass(frozen=True)
class Planted:
    """One sequence.

    Attributes:
        letters: such as ``ACGT...``.
        bound: whether it holds the pair.
        kind: ``pair``, or one of :data:`KINDS`.
        sites: name, start (from 0), end and strand of every planted site.
    """

    letters: str
    bound: bool
    kind: str
    sites: tuple[tuple[str, int, int, str], ...]

    def holds(self) -> np.ndarray:
        """Which letters belong to the pair, (L,) of booleans."""
        out = np.zeros(len(self.letters), bool)
        for name, start, end, _ in self.sites:
            if name != "CTCF":
                out[start:end] = True
        return out


def matrices(jaspar: Path) -> dict[str, np.ndarray]:
    """The matrices of :data:`PROFILES` as probabilities, (width, 4), from JASPAR's SQLite file, as PyPI's pyjaspar has it."""
    found = {}
    with sqlite3.connect(f"file:{jaspar}?mode=ro", uri=True) as base:
        for name, (stem, version) in PROFILES.items():
            [(number,)] = base.execute("select ID from MATRIX where BASE_ID = ? and VERSION = ?", (stem, version)).fetchall()
            cells = base.execute("select col, row, val from MATRIX_DATA where ID = ?", (number,)).fetchall()
            counts = np.zeros((max(col for col, _, _ in cells), 4))
            for col, row, value in cells:
                counts[col - 1, LETTERS.index(row)] = value
            found[name] = counts / counts.sum(1, keepdims=True)
    return found


def background(rng: np.random.Generator, count: int, length: int = LENGTH) -> np.ndarray:
    """Letters as numbers 0 to 3, (count, length), each drawn given the one before."""
    steps = NEXT.cumsum(1)
    out = np.zeros((count, length), np.int64)
    out[:, 0] = rng.integers(0, 4, count)
    for i in range(1, length):
        out[:, i] = (rng.random(count)[:, None] > steps[out[:, i - 1]]).sum(1).clip(max=3)
    return out


def planted(rng: np.random.Generator, profiles: Mapping[str, np.ndarray], count: int) -> list[Planted]:
    """So many sequences, half of them bound."""
    rows = background(rng, count)
    made = []
    for i, row in enumerate(rows):
        kind = "pair" if i % 2 == 0 else KINDS[(i // 2) % len(KINDS)]
        names = {"pair": ("AP-1", "GATA1"), "far apart": ("AP-1", "GATA1"), "none": ()}.get(kind, (kind.removesuffix(" only"),))
        sites = []
        for name, start in _places(rng, names, kind, {name: len(one) for name, one in profiles.items()}):
            strand = "+-"[rng.integers(2)]
            drawn = [rng.choice(4, p=column) for column in profiles[name]]
            row[start : start + len(drawn)] = drawn if strand == "+" else [3 - letter for letter in reversed(drawn)]
            sites.append((name, start, start + len(drawn), strand))
        made.append(Planted("".join(LETTERS[k] for k in row), kind == "pair", kind, tuple(sorted(sites, key=lambda s: s[1]))))
    return made


def _places(rng: np.random.Generator, names: tuple[str, ...], kind: str, widths: Mapping[str, int]) -> list[tuple[str, int]]:
    """Where the sites begin; CTCF comes into half of the sequences, wherever there is room."""
    while True:
        order = list(rng.permutation(names)) if names else []
        placed: list[tuple[str, int]] = []
        at = int(rng.integers(5, LENGTH - 40))
        for name in order:
            if placed:
                gap = int(rng.integers(NEAR[0], NEAR[1] + 1)) if kind == "pair" else int(rng.integers(FAR, LENGTH - 40))
                at = placed[-1][1] + widths[placed[-1][0]] + gap
            placed.append((str(name), at))
        if rng.random() < 0.5:
            placed.append(("CTCF", int(rng.integers(5, LENGTH - 25))))
        taken = sorted((start, start + widths[name]) for name, start in placed)
        if all(end <= LENGTH - 5 for _, end in taken) and all(a[1] + 2 <= b[0] for a, b in pairwise(taken)):
            return placed


def one_hot(sequences: list[Planted]) -> np.ndarray:
    """(N, 4, L) of float32."""
    codes = np.array([[LETTERS.index(letter) for letter in one.letters] for one in sequences])
    return np.ascontiguousarray(np.eye(4, dtype=np.float32)[codes].transpose(0, 2, 1))
