"""Gradients that the adaptive control keeps, in as many slots as the memory budget has room for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..evaluation.chunks import BLOCK_BYTES, STORE_BYTES
from ..evaluation.evaluator import Evaluated, Evaluator, has_float64
from ..evaluation.nodes import Nodes
from ..functions.model_notes import release
from ..quadrature.panel_rules import KAPPA, measure, weighed

SLOT_BLOCK_BYTES = 16 << 20
"""Memory that is taken at a time, unless a block of 64 nodes is more."""


class GradientStore:
    """Slots that hold one evaluated node each, counted by the panels that use them.

    Slots come in blocks, so that a growing store never copies what it holds; each is as large as all before it, so that there
    are few to look into.

    Args:
        features: length of a node's terms.
        capacity: the most slots there will ever be.
        dtype: what terms are kept in.
        device: where they are kept.
    """

    def __init__(self, features: int, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.capacity = capacity
        self.features, self.dtype, self.device = features, dtype, device
        self.block = min(max(64, SLOT_BLOCK_BYTES // (features * dtype.itemsize)), 1024)
        self._blocks: list[Tensor] = []
        self._starts = np.zeros(0, np.int64)
        self.scores = np.zeros(0)
        self.slopes = np.zeros(0)
        self._uses = np.zeros(0, np.int64)
        self._free: list[int] = []
        self.peak = 0

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def room(self) -> int:
        """Slots that can still be taken."""
        return len(self._free) + self.capacity - len(self)

    def take(self, count: int) -> Ints:
        """Slots for new nodes."""
        while count > len(self._free):
            self._grow()
        first = len(self._free) - count
        out = np.array(self._free[first:][::-1], np.int64)
        del self._free[first:]
        self.peak = max(self.peak, len(self) - len(self._free))
        return out

    def _grow(self) -> None:
        old = len(self)
        left = self.capacity - old
        size = min(max(self.block, old), left) if left > 0 else self.block
        block = self._taken(size)
        self._starts = np.append(self._starts, old)
        self._blocks.append(block)
        extra = np.zeros(size)
        self.scores, self.slopes = np.append(self.scores, extra), np.append(self.slopes, extra)
        self._uses = np.append(self._uses, extra.astype(np.int64))
        self._free += list(range(old + size - 1, old - 1, -1))

    def _taken(self, size: int) -> Tensor:
        """Memory for so many slots; recordings of models make room for it."""
        try:
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)
        except torch.OutOfMemoryError:
            release()
            torch.cuda.empty_cache()
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)

    def put(self, slots: Ints, done: Evaluated) -> None:
        """Fill slots with evaluated nodes."""
        terms = done.terms.to(self.device)
        if len(self._blocks) == 1:
            self._blocks[0][torch.as_tensor(slots, device=self.device)] = terms
        else:
            for block, which, inside in self._places(slots):
                block[inside] = terms[which]
        self.scores[slots], self.slopes[slots] = done.scores, done.slopes

    def rows(self, slots: Ints) -> Tensor:
        """The terms in slots of any shape, (*slots, features)."""
        flat = slots.ravel()
        if len(self._blocks) == 1:
            found = self._blocks[0][torch.as_tensor(flat, device=self.device)]
        else:
            found = torch.empty(len(flat), self.features, dtype=self.dtype, device=self.device)
            for block, which, inside in self._places(flat):
                found[which] = block[inside]
        return found.view(*slots.shape, self.features)

    def _places(self, slots: Ints) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each block that holds some of the slots, which of them, and where in the block."""
        number = np.searchsorted(self._starts, slots, side="right") - 1
        for n in np.unique(number):
            which = np.flatnonzero(number == n)
            inside = slots[which] - self._starts[n]
            yield self._blocks[n], *(torch.as_tensor(part, device=self.device) for part in (which, inside))

    def clear(self) -> None:
        """Free all slots."""
        self._uses[:] = 0
        self._free = list(range(len(self) - 1, -1, -1))

    def hold(self, slots: Ints) -> None:
        """Count one more use of each slot."""
        np.add.at(self._uses, slots.ravel(), 1)

    def release(self, slots: Ints) -> None:
        """Count one use less; unused slots are free again."""
        flat = slots.ravel()
        np.add.at(self._uses, flat, -1)
        unused = flat[self._uses[flat] == 0]
        self._free += dict.fromkeys(unused.tolist())  # each once


LITTLE = 1 << 10
"""Features of all examples together up to which the sums are taken on a CPU: it has done them before a GPU is asked."""


@dataclass
class Panels:
    """Panels, one row each. A line is one piece of one example's path: piece * examples + example."""

    line: Ints
    start: Floats
    width: Floats
    slots: Ints  # (panels, 5) in the store; -1 where the nodes were let go
    trapezoid: Floats
    simpson: Floats
    missing_t: Floats
    missing_s: Floats
    weights: Floats  # (panels, 2, 5)

    @staticmethod
    def none() -> Panels:
        """No panels."""
        empty, line = np.zeros(0), np.zeros(0, np.int64)
        return Panels(line, empty, empty, np.zeros((0, 5), np.int64), empty, empty, empty, empty, np.zeros((0, 2, 5)))

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, index: Any) -> Panels:
        return Panels(*[column[index] for column in _columns(self)])

    def plus(self, other: Panels) -> Panels:
        """These and those."""
        return Panels(*map(np.concatenate, zip(_columns(self), _columns(other), strict=True)))

    def missing(self, rule: str) -> Floats:
        """What each panel misses of the change of the score, signed."""
        return self.missing_t if rule == "trapezoid" else self.missing_s

    def indicators(self, rule: str) -> Floats:
        """The nested difference as an error, or what the panel misses of the score if that is more."""
        norm = self.trapezoid if rule == "trapezoid" else self.simpson
        return np.asarray(np.maximum(KAPPA[rule] * norm, np.abs(self.missing(rule))))


_columns = attrgetter(*(field.name for field in fields(Panels)))


@dataclass(frozen=True)
class Grouped:
    """Panels, those of each example together: what is asked of each example is asked of all at once.

    Attributes:
        order: which panels of the table they are.
        panels: they themselves.
        examples: whose they are, each once.
        starts: where those of each example start.
        squares: for each rule, squared indicators times the weight of the piece.
        missing: for each rule, what they miss of the change of the score, times that weight.
    """

    order: Ints
    panels: Panels
    examples: Ints
    starts: Ints
    squares: dict[str, Floats]
    missing: dict[str, Floats]

    @staticmethod
    def of(panels: Panels, examples: int, shares: Floats) -> Grouped:
        """The panels of a table of so many examples, with the weight of each piece."""
        order = np.argsort(panels.line % examples, kind="stable")
        panels = panels[order]
        piece, owner = np.divmod(panels.line, examples)
        new = np.ones(len(owner), bool)
        new[1:] = owner[1:] != owner[:-1]
        starts = np.flatnonzero(new)
        weight = shares[piece]
        squares = {rule: (weight * panels.indicators(rule)) ** 2 for rule in KAPPA}
        missing = {rule: weight * panels.missing(rule) for rule in KAPPA}
        return Grouped(order, panels, owner[starts], starts, squares, missing)

    @cached_property
    def parts(self) -> dict[int, slice]:
        """The panels of each example."""
        return dict(
            zip(self.examples.tolist(), map(slice, self.starts.tolist(), [*self.starts[1:].tolist(), None]), strict=True)
        )


@dataclass(frozen=True)
class _Divided:
    """Panels that are all halved equally often: which, how often, and the slots of the nodes on what becomes of them."""

    at: Ints
    depth: int
    slots: Ints  # (panels, 4 * 2**depth + 1)

    @staticmethod
    def of(at: Ints, depth: int, before: Ints) -> _Divided:
        """With the nodes that are there already, of all panels (panels, 5), in their places."""
        slots = np.full((len(at), 4 * 2**depth + 1), -1, np.int64)
        slots[:, :: 2**depth] = before[at]
        return _Divided(at, depth, slots)

    def parts(self, line: Ints, start: Floats, width: Floats) -> tuple[Ints, Floats, Floats, Ints]:
        """Lines, starts, widths and slots of the new panels."""
        count = 2**self.depth
        inside = 4 * np.arange(count)[:, None] + np.arange(5)
        starts = start[self.at, None] + width[self.at, None] * np.arange(count) / count
        slots = self.slots[:, inside].reshape(-1, 5)
        return np.repeat(line[self.at], count), starts.ravel(), np.repeat(width[self.at] / count, count), slots


class Mesh:
    """Panels, the store of their nodes, and their sums for each place (an unfinished example) and piece.

    Args:
        evaluator: evaluates new nodes.
        memory: the user's limit in bytes, two fifths of which are for kept gradients; None for the usual one.
        least: slots that must be there in any case.
    """

    def __init__(self, evaluator: Evaluator, memory: int | None, least: int) -> None:
        self.evaluator = evaluator
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        here = has_float64(evaluator.device) and evaluator.features * self.examples > LITTLE
        self.device = evaluator.device if here else torch.device("cpu")
        store_bytes = STORE_BYTES if memory is None else 2 * memory // 5
        block = BLOCK_BYTES.get(self.device.type, BLOCK_BYTES["cpu"])
        self.block_bytes = block if memory is None else min(block, memory // 32)
        capacity = max(store_bytes // (evaluator.features * evaluator.dtype.itemsize), least)
        self.store = GradientStore(evaluator.features, capacity, evaluator.dtype, self.device)
        self.panels = Panels.none()
        self.sums = torch.zeros(0, self.pieces, 4, evaluator.features, dtype=torch.float64, device=self.device)
        self.place = np.full(self.examples, -1, np.int64)
        self.witness = np.full(self.examples * self.pieces, -1, np.int64)  # slots, where evaluated at the start

    def admit(self, examples: Ints) -> None:
        """Give examples a place among the sums."""
        if not len(examples):
            return
        free = np.ones(len(self.sums), bool)
        free[self.place[self.place >= 0]] = False
        places = np.flatnonzero(free)
        more = len(examples) - len(places)
        if more > 0:
            places = np.concatenate([places, len(self.sums) + np.arange(more)])
            self.sums = torch.cat([self.sums, self.sums.new_zeros(more, *self.sums.shape[1:])])
        self.place[examples] = places = places[: len(examples)]
        self.sums[torch.as_tensor(places, device=self.device)] = 0

    def refine(self, parents: Ints, depths: Ints, fresh: Ints, first: int, witness: float | None = None) -> Ints:
        """Halve panels so many times over, and start the lines of fresh examples; evaluate what that needs, all at once.

        Args:
            parents: panels to halve.
            depths: how many times each: once makes two panels of it, twice four.
            fresh: examples to start.
            first: how many times the whole line is halved for that.
            witness: a time off the grid, to be evaluated with the start of a line, if given.

        Returns:
            Where each panel went that was not halved.
        """
        old = self.panels[parents]
        lines, count = self._lines(fresh), len(fresh) * self.pieces
        line, depth = np.concatenate([old.line, lines]), np.concatenate([depths, np.full(count, first)])
        start, width = np.concatenate([old.start, np.zeros(count)]), np.concatenate([old.width, np.ones(count)])
        before = np.concatenate([old.slots, np.full((count, 5), -1)])
        groups = [_Divided.of(at, d, before) for d in sorted(set(depth.tolist())) for at in [np.flatnonzero(depth == d)]]
        self._evaluate(groups, line, start, width, lines if witness is not None else lines[:0], witness or 0.0)
        for group in groups:
            mine = group.at[group.at < len(old)]
            if len(mine):
                self._subtract(group.slots[: len(mine), :: 2**group.depth], old[mine])
        parts = [group.parts(line, start, width) for group in groups]
        all_lines, starts, widths, slots = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.store.hold(slots)
        children = Panels(all_lines, starts, widths, slots, *self._sum(slots, widths, all_lines))
        self.store.release(old.slots[old.slots[:, 0] >= 0])
        kept = np.ones(len(self.panels), bool)
        kept[parents] = False
        self.panels = self.panels[kept].plus(children)
        return np.cumsum(kept) - 1

    def _evaluate(
        self, groups: list[_Divided], line: Ints, start: Floats, width: Floats, witnessed: Ints, witness: float
    ) -> None:
        """Evaluate the nodes that have no slot yet, and the witnesses of some lines, and give them one."""
        times, lines = [], []
        for group in groups:
            new, steps = group.slots < 0, group.slots.shape[1] - 1
            times.append((start[group.at, None] + width[group.at, None] * np.arange(steps + 1) / steps)[new])
            lines.append(np.broadcast_to(line[group.at, None], new.shape)[new])
        t, where = np.concatenate([*times, np.full(len(witnessed), witness)]), np.concatenate([*lines, witnessed])
        taken = self.store.take(len(t))
        self.witness[witnessed] = mine = taken[len(t) - len(witnessed) :]
        self.store.hold(mine)
        for group, mine in zip(groups, np.split(taken, np.cumsum([len(part) for part in times]))[:-1], strict=True):
            group.slots[group.slots < 0] = mine
        for done in self.evaluator.gradients_at(Nodes(t, where % self.examples, where // self.examples)):
            self.store.put(taken[done.index], done)

    def _blocks(self, count: int) -> Iterator[slice]:
        """Slices of so many panels, each small enough to be measured at a time."""
        size = max(1, self.block_bytes // (5 * self.evaluator.features * 8))
        return (slice(first, first + size) for first in range(0, count, size))

    def _add(self, line: Ints, sums: Tensor, sign: int) -> None:
        rows = torch.as_tensor(self.place[line % self.examples] * self.pieces + line // self.examples, device=self.device)
        self.sums.view(-1, *self.sums.shape[2:]).index_add_(0, rows, sums, alpha=sign)

    def _subtract(self, slots: Ints, old: Panels) -> None:
        """Take the share of panels out of the sums, just as it was put in."""
        for block in self._blocks(len(slots)):
            sums = weighed(self.store.rows(slots[block]), old.weights[block], old.width[block], torch.float64)
            self._add(old.line[block], sums, -1)

    def _sum(self, slots: Ints, widths: Floats, line: Ints) -> list[Any]:
        """Apply the panel rules and add what they give to the sums.

        Returns:
            What they say about the panels: the columns of :class:`Panels` from ``trapezoid`` on.
        """
        said = []
        for block in self._blocks(len(slots)):
            here = slots[block]
            found = measure(
                self.store.rows(here), self.store.scores[here], self.store.slopes[here], widths[block], torch.float64
            )
            self._add(line[block], found.sums, 1)
            said.append((found.trapezoid, found.simpson, found.missing_t, found.missing_s, found.weights))
        return [np.concatenate(column) for column in zip(*said, strict=True)]

    def let_go(self, count: int, spare: Ints) -> None:
        """Free slots by forgetting the nodes of the panels with the smallest indicators (their sums stay).

        Args:
            count: how many slots to gain.
            spare: panels that must keep theirs.
        """
        candidates = np.flatnonzero(self.panels.slots[:, 0] >= 0)
        candidates = np.setdiff1d(candidates, spare)
        order = candidates[np.argsort(self.panels.indicators("trapezoid")[candidates])]
        goal = self.store.room + count
        for index in order:
            if self.store.room >= goal:
                return
            self.store.release(self.panels.slots[index])
            self.panels.slots[index] = -1

    def remove(self, examples: Ints) -> Ints:
        """Drop finished examples; returns where each remaining panel went (-1 for those that are gone)."""
        if not len(examples):
            return np.arange(len(self.panels))
        over = np.zeros(self.examples, bool)
        over[examples] = True
        kept = ~over[self.panels.line % self.examples]
        gone, lines = self.panels.slots[~kept], self._lines(examples)
        witnesses = self.witness[lines]
        self.store.release(np.concatenate([gone[gone[:, 0] >= 0].ravel(), witnesses[witnesses >= 0]]))
        self.witness[lines] = -1
        self.panels = self.panels[kept]
        self.place[examples] = -1
        return np.where(kept, np.cumsum(kept) - 1, -1)

    def _lines(self, examples: Ints) -> Ints:
        """The lines of examples, by piece."""
        return (examples + self.examples * np.arange(self.pieces)[:, None]).ravel()

    def pooled(self, places: Ints, shares: Floats) -> Tensor:
        """The sums of some places over their pieces, (places, 4, features)."""
        rows = torch.as_tensor(places, device=self.device)
        if self.pieces == 1:
            sums = self.sums[:, 0].index_select(0, rows)
            return sums if shares[0] == 1 else sums * float(shares[0])
        weights = torch.as_tensor(shares, dtype=self.sums.dtype, device=self.device)
        return torch.einsum("apcd,p->acd", self.sums, weights).index_select(0, rows)
