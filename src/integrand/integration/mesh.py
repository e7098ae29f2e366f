"""The mesh: the panels of all unfinished examples' paths, what a panel rule gives on them, and the sums that they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..evaluation.evaluator import Evaluated, Evaluator, has_float64
from ..functions.model_notes import release_graphs
from ..paths.base import Nodes
from ..quadrature.panel_rules import KINKED, SKETCH, PanelRule, measure, weighed
from ..trees import add_rows, on_device
from .grading import GradedPaths

STORE_BYTES = 1 << 30
"""Gradients that may be kept, where the user names no limit."""

BLOCK_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
"""Float64 copies of kept gradients that are worked on at a time; on a GPU small parts take as long as large ones."""

SLOT_BLOCK_BYTES = {"cpu": 16 << 20, "cuda": 256 << 20}
"""Memory for kept gradients that is allocated at a time, unless a block of 64 nodes is more; a GPU takes longer for two blocks
than for one."""

LITTLE = 1 << 10
"""Features of all examples together up to which sums are taken on a CPU: it has done them before a GPU is launched."""

NONE: Ints = np.zeros(0, np.int64)
NO_TIMES: Floats = np.zeros(0)


@dataclass(frozen=True)
class Split:
    """Panels to halve: which ones of a mesh, and how many times over each (once makes two panels of it, twice four)."""

    panels: Ints = field(default_factory=lambda: NONE)
    depths: Ints = field(default_factory=lambda: NONE)


@dataclass
class Panels:
    """Panels, one row each. A line is one piece of one example's path: piece * examples + example.

    Attributes:
        line: which line a panel is on, (panels,).
        start: where it starts, (panels,).
        width: how wide it is, (panels,).
        slots: where its nodes are in the store, (panels, n); -1 where they were released.
        norms: L1 norms of nested differences, (panels, candidates).
        missing: what each candidate misses of the change of the score, signed, (panels, candidates).
        gaps: the same beyond rounding, or from node to node (the root of summed squares) if that is more,
            (panels, candidates).
        variation: what the score moves by from node to node, up and down, (panels,).
        masses: L1 norms of the terms at the nodes, (panels, n).
        weights: what the candidates weigh the nodes with, (panels, candidates, n).
        sketch: random projections of the first candidate's differences on parts of the panel, (panels, parts, SKETCH).
    """

    line: Ints
    start: Floats
    width: Floats
    slots: Ints
    norms: Floats
    missing: Floats
    gaps: Floats
    variation: Floats
    masses: Floats
    weights: Floats
    sketch: Floats

    @staticmethod
    def none(rule: PanelRule) -> Panels:
        """No panels, with the columns that a rule needs."""
        empty, nodes, count = np.zeros(0), len(rule.nodes), len(rule.candidates)
        said, parts = np.zeros((0, count)), 0 if rule.parts is None else len(rule.parts)
        slots, sketch = np.zeros((0, nodes), np.int64), np.zeros((0, parts, SKETCH))
        masses, weights = np.zeros((0, nodes)), np.zeros((0, count, nodes))
        return Panels(NONE, empty, empty, slots, said, said, said, empty, masses, weights, sketch)

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, index: Any) -> Panels:
        return Panels(*[column[index] for column in _columns(self)])

    def plus(self, other: Panels) -> Panels:
        """These panels followed by others."""
        return Panels(*map(np.concatenate, zip(_columns(self), _columns(other), strict=True)))

    def indicators(self, rule: PanelRule, candidate: int, allowance: Floats | float = 0.0) -> Floats:
        """The error of each panel by its nested difference, or what it misses of the score if that is more, (panels,).

        What is missed within the allowance says nothing: it is rounding, or the score changes where no gradient flows.
        """
        norms = rule.candidates[candidate].kappa * self.norms[:, candidate]
        return np.asarray(np.maximum(norms, self.gaps[:, candidate] - allowance))

    @property
    def kinked(self) -> bool:
        """Whether gradients have kinks everywhere: the rule for smooth gradients fares little better than the robust one."""
        return bool(self.norms[:, -1].sum() > KINKED * self.norms[:, 0].sum())


_columns = attrgetter(*(part.name for part in fields(Panels)))


@dataclass(frozen=True)
class GroupedPanels:
    """The panels of a mesh, those of each example together: what is asked of each example is asked of all at once.

    Attributes:
        order: which panels of the mesh they are.
        panels: the panels, sorted by example.
        examples: the examples that have panels, each once.
        starts: where the panels of each example start.
        squares: squared indicators times the weight of the piece, (candidates, panels).
        missing: what they miss of the change of the score, times that weight, (candidates, panels).
    """

    order: Ints
    panels: Panels
    examples: Ints
    starts: Ints
    squares: Floats
    missing: Floats

    @staticmethod
    def of(mesh: Mesh, shares: Floats, allowances: Floats | None = None) -> GroupedPanels:
        """Group the panels of a mesh, given the weight of each piece, and what panels of each example may miss, (examples,)."""
        order = np.argsort(mesh.panels.line % mesh.examples, kind="stable")
        panels = mesh.panels[order]
        piece, owner = np.divmod(panels.line, mesh.examples)
        new = np.ones(len(owner), bool)
        new[1:] = owner[1:] != owner[:-1]
        starts = np.flatnonzero(new)
        weight = shares[piece]
        every = range(len(mesh.rule.candidates))
        allowed = 0.0 if allowances is None else allowances[owner]
        squares = np.stack([(weight * panels.indicators(mesh.rule, candidate, allowed)) ** 2 for candidate in every])
        missing = np.stack([weight * panels.missing[:, candidate] for candidate in every])
        return GroupedPanels(order, panels, owner[starts], starts, squares, missing)

    @cached_property
    def parts(self) -> dict[int, slice]:
        """Where the panels of each example are."""
        stops = [*self.starts[1:].tolist(), None]
        return dict(zip(self.examples.tolist(), map(slice, self.starts.tolist(), stops), strict=True))


@dataclass(frozen=True)
class _Divided:
    """Panels that are all halved equally often: which, how often, and the slots of the nodes on what becomes of them."""

    at: Ints
    depth: int
    slots: Ints  # (panels, cells * 2**depth + 1)

    @staticmethod
    def of(at: Ints, depth: int, before: Ints) -> _Divided:
        """With the nodes that are there already, of all panels (panels, n), in their places."""
        slots = np.full((len(at), (before.shape[1] - 1) * 2**depth + 1), -1, np.int64)
        slots[:, :: 2**depth] = before[at]
        return _Divided(at, depth, slots)

    def parts(self, line: Ints, start: Floats, width: Floats) -> tuple[Ints, Floats, Floats, Ints]:
        """Lines, starts, widths and slots of the new panels."""
        count = 2**self.depth
        cells = (self.slots.shape[1] - 1) // count
        inside = cells * np.arange(count)[:, None] + np.arange(cells + 1)
        starts = start[self.at, None] + width[self.at, None] * np.arange(count) / count
        slots = self.slots[:, inside].reshape(-1, cells + 1)
        return np.repeat(line[self.at], count), starts.ravel(), np.repeat(width[self.at] / count, count), slots


class Mesh:
    """Panels, the store of their nodes' gradients, and their sums for each place (an unfinished example) and piece.

    Memory: gradients are kept for the nodes of open panels, up to a budget. When there is no room to go on, panels with the
    smallest errors release their nodes (their share of the sum stays), and are evaluated again should they ever be halved.

    Args:
        rule: the panel rule.
        evaluator: evaluates new nodes.
        memory: the user's limit in bytes, two fifths of which are for kept gradients; None for the usual one.
        halvings: how many times the path of a fresh example is halved before it is judged.
        off_grid: times off the grid whose gradients are kept once they have been evaluated, (k,).
        at_once: whether they are evaluated with the start of a line.
    """

    def __init__(
        self,
        rule: PanelRule,
        evaluator: Evaluator,
        memory: int | None,
        *,
        halvings: int = 1,
        off_grid: Floats = NO_TIMES,
        at_once: bool = True,
    ) -> None:
        self.rule, self.evaluator = rule, evaluator
        self.paths = GradedPaths(evaluator)
        self.halvings, self.off_grid = halvings, off_grid
        self.start_times = off_grid if at_once else NO_TIMES
        self.examples, self.pieces = evaluator.function.examples, len(evaluator.pieces)
        here = has_float64(evaluator.device) and evaluator.features * self.examples > LITTLE
        self.device = evaluator.device if here else torch.device("cpu")
        store_bytes = STORE_BYTES if memory is None else 2 * memory // 5
        block = BLOCK_BYTES.get(self.device.type, BLOCK_BYTES["cpu"])
        self.block_bytes = block if memory is None else min(block, memory // 32)
        # Room for an example: two rounds of nodes on each piece, and its sums (four float64 rows a piece).
        nodes = 2 * rule.cells * 2 ** max(halvings, 1) + halvings + len(self.start_times)
        self.slots_per_example = self.pieces * (nodes + 4 * 8 // evaluator.dtype.itemsize)
        least = self.pieces * nodes + 2 * rule.cells
        capacity = max(store_bytes // (evaluator.features * evaluator.dtype.itemsize), least)
        self.store = GradientStore(evaluator.features, capacity, evaluator.dtype, self.device)
        self.panels = Panels.none(rule)
        columns = len(rule.columns)
        self.sums = torch.zeros(0, self.pieces, columns, evaluator.features, dtype=torch.float64, device=self.device)
        self.place = np.full(self.examples, -1, np.int64)
        self.off_grid_slots = np.full((self.examples * self.pieces, len(off_grid)), -1, np.int64)

    @property
    def source(self) -> Evaluator | GradedPaths:
        """Evaluates nodes in the mesh's own time, which is that of the paths where none of them is graded."""
        return self.paths if self.paths.any_graded else self.evaluator

    def room(self, split: Split) -> int:
        """How many fresh examples there is room for, once some panels are halved."""
        taken = int((self.rule.cells * (2**split.depths - 1)).sum())
        return int(max((self.store.room - taken) // self.slots_per_example, 0))

    def cost(self, split: Split) -> Ints:
        """New nodes of panels that are to be halved, (panels,); those whose nodes were released need all of them."""
        released = self.panels.slots[split.panels, 0] < 0
        return np.asarray(self.rule.cells * 2**split.depths + np.where(released, 1, -self.rule.cells))

    def refine(self, split: Split, fresh: Ints) -> None:
        """Halve panels and start the lines of fresh examples, in as many parts as the memory for gradients asks for."""
        self._admit(fresh)
        while True:
            count = self._fitting(split)
            now = Split(split.panels[:count], split.depths[:count])
            where = self._divide(now, fresh)
            split, fresh = Split(where[split.panels[count:]], split.depths[count:]), NONE
            if not len(split.panels):
                return

    def _admit(self, examples: Ints) -> None:
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
        self.sums[on_device(places, self.device)] = 0

    def _fitting(self, split: Split) -> int:
        """How many of the panels there is room to halve now; nodes of other panels are released first."""
        if not len(split.panels):
            return 0
        for spare in (split.panels, split.panels[:1]):
            want = np.cumsum(self.cost(split))[len(spare) - 1]
            if want > self.store.room:
                self._release(int(want) - self.store.room, spare)
        return max(1, int(np.searchsorted(np.cumsum(self.cost(split)), self.store.room, side="right")))

    def _divide(self, split: Split, fresh: Ints) -> Ints:
        """Halve panels and start the lines of fresh examples, and evaluate the new nodes, all in one go.

        Returns:
            Where each panel went that was not halved.
        """
        old = self.panels[split.panels]
        lines = self._lines(fresh)
        count = len(lines)
        line, depth = np.concatenate([old.line, lines]), np.concatenate([split.depths, np.full(count, self.halvings)])
        start, width = np.concatenate([old.start, np.zeros(count)]), np.concatenate([old.width, np.ones(count)])
        before = np.concatenate([old.slots, np.full((count, len(self.rule.nodes)), -1)])
        groups = [_Divided.of(at, d, before) for d in sorted(set(depth.tolist())) for at in [np.flatnonzero(depth == d)]]
        nodes, slots = self._placed(groups, line, start, width, lines)
        for done in self.source.gradients_at(nodes):
            self.store.put(slots[done.index], done)
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
        kept[split.panels] = False
        self.panels = self.panels[kept].plus(children)
        return np.cumsum(kept) - 1

    def _placed(
        self, groups: list[_Divided], line: Ints, start: Floats, width: Floats, fresh_lines: Ints
    ) -> tuple[Nodes, Ints]:
        """The nodes that have no slot yet, with those off the grid of fresh lines; and the slots that they are given now."""
        times, lines = [], []
        for group in groups:
            new, steps = group.slots < 0, group.slots.shape[1] - 1
            times.append((start[group.at, None] + width[group.at, None] * np.arange(steps + 1) / steps)[new])
            lines.append(np.broadcast_to(line[group.at, None], new.shape)[new])
        extra = len(fresh_lines) * len(self.start_times)
        t = np.concatenate([*times, np.tile(self.start_times, len(fresh_lines))])
        where = np.concatenate([*lines, np.repeat(fresh_lines, len(self.start_times))])
        taken = self.store.take(len(t))
        if extra:
            self.off_grid_slots[fresh_lines] = mine = taken[len(t) - extra :].reshape(len(fresh_lines), -1)
            self.store.hold(mine)
        for group, mine in zip(groups, np.split(taken, np.cumsum([len(part) for part in times]))[:-1], strict=True):
            group.slots[group.slots < 0] = mine
        return Nodes(t, where % self.examples, where // self.examples), taken

    def _blocks(self, count: int) -> Iterator[slice]:
        """Slices of so many panels, each small enough to be weighed at a time."""
        size = max(1, self.block_bytes // (len(self.rule.nodes) * self.evaluator.features * 8))
        return (slice(first, first + size) for first in range(0, count, size))

    def _add(self, line: Ints, sums: Tensor, sign: int) -> None:
        rows = on_device(self.place[line % self.examples] * self.pieces + line // self.examples, self.device)
        add_rows(self.sums.view(-1, *self.sums.shape[2:]), rows, sums if sign > 0 else -sums)

    def _subtract(self, slots: Ints, old: Panels) -> None:
        """Take the share of panels out of the sums, just as it was put in."""
        for block in self._blocks(len(slots)):
            sums = weighed(self.rule, self.store.rows(slots[block]), old.weights[block], old.width[block], torch.float64)
            self._add(old.line[block], sums, -1)

    def _sum(self, slots: Ints, widths: Floats, line: Ints) -> list[Any]:
        """Apply the rule to panels and add what it gives to the sums.

        Returns:
            What the rule says about the panels: the columns of :class:`Panels` from ``norms`` on.
        """
        said = []
        for block in self._blocks(len(slots)):
            here = slots[block]
            scores, slopes = self.store.scores[here], self.store.slopes[here]
            terms, rounding = self.store.rows(here), self.evaluator.rounding
            found = measure(self.rule, terms, scores, slopes, widths[block], torch.float64, rounding=rounding)
            self._add(line[block], found.sums, 1)
            said.append((found.norms, found.missing, found.gaps, found.variation, found.masses, found.weights, found.sketch))
        return [np.concatenate(column) for column in zip(*said, strict=True)]

    def _release(self, count: int, spare: Ints) -> None:
        """Free slots by releasing the nodes of the panels with the smallest indicators (their sums stay).

        Args:
            count: how many slots to gain.
            spare: panels that must keep theirs.
        """
        candidates = np.flatnonzero(self.panels.slots[:, 0] >= 0)
        candidates = np.setdiff1d(candidates, spare)
        order = candidates[np.argsort(self.panels.indicators(self.rule, 0)[candidates])]
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
        extra = self.off_grid_slots[lines]
        self.store.release(np.concatenate([gone[gone[:, 0] >= 0].ravel(), extra[extra >= 0]]))
        self.off_grid_slots[lines] = -1
        self.panels = self.panels[kept]
        self.place[examples] = -1
        return np.where(kept, np.cumsum(kept) - 1, -1)

    def keep_off_grid(self, line: Ints, t: Floats, done: Evaluated) -> None:
        """Keep what came of points off the grid, on some lines, at times that are looked at again; others are passed by."""
        for number, time in enumerate(self.off_grid):
            which = np.flatnonzero((t == time) & (self.off_grid_slots[line, number] < 0))
            if 0 < len(which) <= self.store.room:
                slots = self.store.take(len(which))
                terms = done.terms[on_device(which, done.terms.device)]
                self.store.put(slots, Evaluated(done.index[which], done.scores[which], done.slopes[which], terms))
                self.store.hold(slots)
                self.off_grid_slots[line[which], number] = slots

    def off_grid_slot(self, line: Ints, t: Floats) -> Ints:
        """The slots of points off the grid, -1 where they were not evaluated with their line, (points,)."""
        out = np.full(len(t), -1, np.int64)
        for number, time in enumerate(self.off_grid):
            same = t == time
            out[same] = self.off_grid_slots[line[same], number]
        return out

    def _lines(self, examples: Ints) -> Ints:
        """The lines of examples, by piece."""
        return (examples + self.examples * np.arange(self.pieces)[:, None]).ravel()

    def pooled(self, examples: list[int], shares: Floats) -> Tensor:
        """The sums of some examples over their pieces, (examples, columns, features)."""
        rows = on_device(self.place[examples], self.device)
        if self.pieces == 1:
            sums = self.sums[:, 0].index_select(0, rows)
            return sums if shares[0] == 1 else sums * float(shares[0])
        weights = on_device(shares, self.device, self.sums.dtype)
        return torch.einsum("apcd,p->acd", self.sums, weights).index_select(0, rows)


class GradientStore:
    """Slots that hold the gradient at one evaluated node each, counted by the panels that use them.

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
        block = SLOT_BLOCK_BYTES.get(device.type, SLOT_BLOCK_BYTES["cpu"])
        self.block = min(max(64, block // (features * dtype.itemsize)), 1024)
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
        block = self._allocated(size)
        self._starts = np.append(self._starts, old)
        self._blocks.append(block)
        extra = np.zeros(size)
        self.scores, self.slopes = np.append(self.scores, extra), np.append(self.slopes, extra)
        self._uses = np.append(self._uses, extra.astype(np.int64))
        self._free += list(range(old + size - 1, old - 1, -1))

    def _allocated(self, size: int) -> Tensor:
        """Memory for so many slots; CUDA graphs of models make room for it."""
        try:
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)
        except torch.OutOfMemoryError:
            release_graphs()
            torch.cuda.empty_cache()
            return torch.empty(size, self.features, dtype=self.dtype, device=self.device)

    def put(self, slots: Ints, done: Evaluated) -> None:
        """Fill slots with evaluated nodes."""
        terms = done.terms.to(self.device)
        if len(self._blocks) == 1:
            self._blocks[0][on_device(slots, self.device)] = terms
        else:
            for block, which, inside in self._places(slots):
                block[inside] = terms[which]
        self.scores[slots], self.slopes[slots] = done.scores, done.slopes

    def rows(self, slots: Ints) -> Tensor:
        """The terms in slots of any shape, (*slots, features)."""
        flat = slots.ravel()
        if len(self._blocks) == 1:
            found = self._blocks[0][on_device(flat, self.device)]
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
            yield self._blocks[n], *(on_device(part, self.device) for part in (which, inside))

    def hold(self, slots: Ints) -> None:
        """Count one more use of each slot."""
        np.add.at(self._uses, slots.ravel(), 1)

    def release(self, slots: Ints) -> None:
        """Count one use less; unused slots are free again."""
        flat = slots.ravel()
        np.add.at(self._uses, flat, -1)
        unused = flat[self._uses[flat] == 0]
        self._free += dict.fromkeys(unused.tolist())  # each once
