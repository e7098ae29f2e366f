"""Segments of the paths of unfinished examples: each with its two halves, and the sums that they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._evaluate import Evaluated, Evaluator
from ._nodes import Floats, Ints
from ._segments import Spanned, Spans
from ._store import Store

FIRST = 4
"""Families that every piece starts with."""

EACH = 3
"""Attributions that are kept of a family: those of the whole segment and of its halves."""

Run = Callable[[Spans], Iterator[Spanned]]


@dataclass
class Families:
    """A segment and its halves in each row. A line is one piece of one example's path: piece * examples + example.

    With P the attributions of the segment and C those of its halves added up, its value is C + (C - P) / 3.
    """

    line: Ints
    start: Floats
    width: Floats
    slots: Ints  # (families, 3) in the store: whole, first half, second half; -1 where they were let go
    change: Floats  # |C - P|
    missing: Floats  # what the value misses of the change of the score

    @staticmethod
    def none() -> Families:
        """No families."""
        empty, line = np.zeros(0), np.zeros(0, np.int64)
        return Families(line, empty, empty, np.zeros((0, EACH), np.int64), empty, empty)

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, index: Any) -> Families:
        return Families(*(getattr(self, part.name)[index] for part in fields(self)))

    def plus(self, other: Families) -> Families:
        """These and those."""
        return Families(*(np.concatenate([getattr(self, p.name), getattr(other, p.name)]) for p in fields(self)))


class Tree:
    """Families, the store of their attributions, and sums for each place (an unfinished example) and piece.

    Args:
        evaluator: knows the paths.
        store: what attributions are kept in, with room for the first families of one example and four more.
        block_bytes: float64 copies of kept attributions that are worked on at a time.
        run: runs segments.
    """

    def __init__(self, evaluator: Evaluator, store: Store, block_bytes: int, run: Run) -> None:
        self.evaluator, self.run, self.store, self.block_bytes = evaluator, run, store, block_bytes
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        self.device = store.device
        self.families = Families.none()
        self.place: dict[int, int] = {}
        self.sums = torch.zeros(0)

    @property
    def at_once(self) -> int:
        """How many examples there is room for, each with twice the families that it starts with."""
        return max(1, self.store.room // (2 * EACH * FIRST * self.pieces))

    def start(self, examples: Ints) -> dict[int, tuple[Floats, Floats]]:
        """Drop what there was and start the lines of some examples.

        Returns:
            F at the start and at the end of each piece, (pieces,) each, by example.
        """
        self.store.release(self.families.slots[self.families.slots[:, 0] >= 0])
        self.place = {int(example): i for i, example in enumerate(examples)}
        self.sums = torch.zeros(len(examples), self.pieces, 2, self.evaluator.features, dtype=torch.float64, device=self.device)
        lines = np.repeat((examples[None, :] + self.examples * np.arange(self.pieces)[:, None]).ravel(), FIRST)
        start = np.tile(np.arange(FIRST) / FIRST, len(examples) * self.pieces)
        none = np.zeros_like(start)
        fresh = Families(lines, start, none + 1 / FIRST, np.full((len(start), EACH), -1), none, none.copy())
        self.families = Families.none()
        scores = self._restore(fresh)
        self._add(fresh, scores, 1)
        self.families = fresh
        ends = {}
        for example in self.place:
            mine = [np.flatnonzero(lines == example + self.examples * piece) for piece in range(self.pieces)]
            ends[example] = (
                np.array([scores[index[0], 0] for index in mine]),
                np.array([scores[index[-1], 2] for index in mine]),
            )
        return ends

    def refine(self, parents: Ints) -> Ints:
        """Halve both halves of families, as many at a time as there is room for.

        Returns:
            Where each family went that was not halved.
        """
        where = np.arange(len(self.families))
        while len(parents):
            gone = self.families.slots[parents, 0] < 0
            need = np.cumsum(np.where(gone, 4 + EACH, 4))
            if need[-1] > self.store.room:
                self._let_go(int(need[-1]) - self.store.room, parents)
            count = max(1, int(np.searchsorted(need, self.store.room, side="right")))
            moved = self._halve(parents[:count])
            where = np.where(where >= 0, moved[where], -1)
            parents = moved[parents[count:]]
        return where

    def _halve(self, parents: Ints) -> Ints:
        old = self.families[parents]
        lost = np.flatnonzero(old.slots[:, 0] < 0)
        if len(lost):
            part = old[lost]
            self._restore(part)
            old.slots[lost] = part.slots
        scores = np.zeros((len(old), 5))
        steps = np.arange(4)
        begin = (old.start[:, None] + old.width[:, None] * steps / 4).ravel()
        end = (old.start[:, None] + old.width[:, None] * (steps + 1) / 4).ravel()
        fresh = self.store.take(4 * len(old)).reshape(-1, 4)
        for done in self.run(self._spans(begin, end, np.repeat(old.line, 4))):
            self._put(fresh.ravel()[done.index], done)
            row, step = np.divmod(done.index, 4)
            scores[row, step], scores[row, step + 1] = done.before, done.after
        self._add(old, None, -1)
        young = []
        for side in (0, 1):
            slots = np.stack([old.slots[:, 1 + side], fresh[:, 2 * side], fresh[:, 2 * side + 1]], 1)
            half = Families(old.line, old.start + side * old.width / 2, old.width / 2, slots, old.change, old.missing)
            half = half[np.arange(len(half))]  # columns of its own
            self._add(half, scores[:, 2 * side : 2 * side + 3], 1)
            young.append(half)
        self.store.hold(fresh)
        self.store.release(old.slots[:, 0])
        kept = np.ones(len(self.families), bool)
        kept[parents] = False
        self.families = self.families[kept].plus(young[0]).plus(young[1])
        return np.where(kept, np.cumsum(kept) - 1, -1)

    def _spans(self, start: Floats, stop: Floats, line: Ints) -> Spans:
        return Spans(start, stop, line % self.examples, line // self.examples)

    def _put(self, slots: Ints, done: Spanned) -> None:
        self.store.put(slots, Evaluated(done.index, done.before, done.after, done.terms))

    def _restore(self, families: Families) -> Floats:
        """Run segments and their halves, and give them slots; F at their three nodes, (families, 3)."""
        times = families.start[:, None] + families.width[:, None] * np.array([0.0, 0.5, 1.0])
        families.slots[:] = self.store.take(families.slots.size).reshape(families.slots.shape)
        self.store.hold(families.slots)
        scores = np.zeros((len(families), 3))
        first, last = np.array([0, 0, 1]), np.array([2, 1, 2])  # the whole, the first half, the second half
        spans = self._spans(times[:, first].ravel(), times[:, last].ravel(), np.repeat(families.line, EACH))
        for done in self.run(spans):
            self._put(families.slots.ravel()[done.index], done)
            row, which = np.divmod(done.index, EACH)
            scores[row, first[which]], scores[row, last[which]] = done.before, done.after
        return scores

    def _add(self, families: Families, scores: Floats | None, sign: int) -> None:
        """Add families to the sums and measure them; or take them out, where there are no scores."""
        size = max(1, self.block_bytes // (EACH * self.evaluator.features * 8))
        for first in range(0, len(families), size):
            block = slice(first, first + size)
            whole, one, two = self.store.rows(families.slots[block]).double().unbind(1)
            halves = one + two
            change = halves - whole
            value = halves + change / 3
            line = families.line[block]
            places = np.array([self.place[int(e)] for e in line % self.examples]) * self.pieces + line // self.examples
            rows = torch.as_tensor(places, device=self.device)
            self.sums.view(-1, *self.sums.shape[2:]).index_add_(0, rows, torch.stack([value, change], 1), alpha=sign)
            if scores is not None:
                given = value.sum(1).cpu().numpy()
                families.change[block] = change.abs().sum(1).cpu().numpy()
                families.missing[block] = scores[block, 2] - scores[block, 0] - given

    def _let_go(self, count: int, spare: Ints) -> None:
        """Free slots by forgetting the families with the smallest changes (their sums stay)."""
        candidates = np.setdiff1d(np.flatnonzero(self.families.slots[:, 0] >= 0), spare)
        order = candidates[np.argsort(self.families.change[candidates])]
        goal = self.store.room + count
        for index in order:
            if self.store.room >= goal:
                return
            self.store.release(self.families.slots[index])
            self.families.slots[index] = -1

    def remove(self, examples: Ints) -> Ints:
        """Drop finished examples; returns where each remaining family went (-1 for those that are gone)."""
        kept = ~np.isin(self.families.line % self.examples, examples)
        gone = self.families.slots[~kept]
        self.store.release(gone[gone[:, 0] >= 0])
        self.families = self.families[kept]
        return np.where(kept, np.cumsum(kept) - 1, -1)

    def of(self, example: int) -> Ints:
        """The families of an example."""
        return np.flatnonzero(self.families.line % self.examples == example)

    def pooled(self, example: int, shares: Floats) -> Tensor:
        """The sums of an example over its pieces, (2, features): values, and C - P."""
        weights = torch.as_tensor(shares, dtype=self.sums.dtype, device=self.device)
        return torch.einsum("pcd,p->cd", self.sums[self.place[example]], weights)
