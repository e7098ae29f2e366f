"""Straight lines sent through a piecewise linear network: their break points, and the linear regions between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..backends.torch_function import TorchFunction
from ..errors import quiet
from ..evaluation.evaluator import Evaluator
from ..memory import out_of_memory
from ..paths.base import Nodes
from ..tracing.program import Operation, Ref
from ..trees import Leaves, on_device
from .region_network import (
    COMPARISONS,
    TRACED,
    NotExactError,
    PiecewiseLinearNetwork,
    kinked,
    network,
    scores_of,
    seeds,
    shares,
    undecided,
    whole,
    whole_output,
    widened,
)

MOST = 256
"""Stretches of lines that go through a network side by side."""


@dataclass(frozen=True)
class RegionLimits:
    """How many regions each line may have, and how many bytes the values at break points may take at a time."""

    regions: Ints
    bytes: int


def follow_lines(
    network: PiecewiseLinearNetwork, start: Leaves, stop: Leaves, limits: RegionLimits
) -> tuple[list[PathLine | NotExactError], list[int]]:
    """Send straight lines through a network, from points (L, ...) to others, both in float64.

    Where all break points do not fit into memory, lines, and parts of a line, go through one after the other.

    Returns:
        For each line what came of it, and how many points were sent through the network for it.
    """
    count = len(start[0])
    every = [Stretch(line) for line in range(count)]
    waiting = [every[first : first + MOST] for first in range(0, count, MOST)]
    done: list[list[PathLine]] = [[] for _ in every]
    refused: dict[int, NotExactError] = {}
    rows = [0] * count
    while waiting:
        some = [one for one in waiting.pop() if one.line not in refused]
        if not some:
            continue
        taken = Counter(one.line for part in (some, *waiting) for one in part)
        spare = [limits.regions[s.line] - sum(len(p.t) - 1 for p in done[s.line]) - taken[s.line] + 1 for s in some]
        part = LinePart(network, start, stop, some, limits.bytes, np.array(spare))
        try:
            found = part.run()
            for i, one in enumerate(some):
                if i in found:
                    done[one.line].append(found[i])
                else:
                    refused[one.line] = NotExactError(f"the line crosses more than {limits.regions[one.line]} linear regions")
        except TooManyError as many:
            waiting += _halves(some, many.middle)
        except NotExactError as error:
            refused |= {one.line: error for one in some}
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            refused |= {one.line: NotExactError("there is not enough memory to follow the line") for one in some}
        for i, one in enumerate(some):
            rows[one.line] += int(part.sent[i])
    return [refused.get(line) or _joined(done[line]) for line in range(count)], rows


def _halves(some: list[Stretch], middle: float) -> list[list[Stretch]]:
    """Two halves of several stretches, or of one; what is first comes last, for the last is taken first."""
    if len(some) > 1:
        return [some[len(some) // 2 :], some[: len(some) // 2]]
    (one,) = some
    return [[Stretch(one.line, middle, one.high)], [Stretch(one.line, one.low, middle)]]


def _joined(parts: list[PathLine]) -> PathLine:
    """One line of its parts, in order, each of which starts where the one before ends."""
    t = np.concatenate([part.t[:-1] for part in parts] + [parts[-1].t[-1:]])
    values = torch.cat([part.values[:-1] for part in parts] + [parts[-1].values[-1:]])
    return PathLine(t, values, np.concatenate([part.unsure for part in parts]))


def thinned(line: PathLine, narrow: float) -> PathLine:
    """The line without break points that are closer to the one before than so much; the ends stay."""
    kept = [0]
    for i in range(1, len(line.t) - 1):
        if line.t[i] - line.t[kept[-1]] > narrow and line.t[-1] - line.t[i] > narrow:
            kept.append(i)
    index = np.array([*kept, len(line.t) - 1])
    return PathLine(line.t[index], line.values[on_device(index, line.values.device)], line.unsure)


BITS = 52
GRID = 2.0**BITS
"""Break points are multiples of 1 / GRID, so that the widths between them are exact and add up to exactly 1."""

CLOSE = 2.0**-47
"""Break points closer than this are one."""

ROUNDS = 100
"""How often to look again for units that overtake others; each time a break point is found, or it ends."""


@dataclass(frozen=True)
class PathLine:
    """What a network gives along a line.

    Attributes:
        t: (P,) the break points, both ends included.
        values: (P, ...) what the network gives there, in float64.
        unsure: (K, 2) stretches where rounding decides on which side of its kink a unit is.
    """

    t: Floats
    values: Tensor
    unsure: Floats


@dataclass(frozen=True)
class Stretch:
    """A line, or a part of it."""

    line: int
    low: float = 0.0
    high: float = 1.0


class TooManyError(Exception):
    """Too many points to hold; with their middle, should they be those of a single stretch."""

    def __init__(self, middle: float) -> None:
        super().__init__(middle)
        self.middle = middle


class LinePart:
    """Stretches of lines on their way through a network.

    Each point has a whole number for a key, (P,) in rising order: which stretch, and t * GRID in the last bits.
    """

    def __init__(
        self, network: PiecewiseLinearNetwork, start: Leaves, stop: Leaves, some: list[Stretch], memory: int, regions: Ints
    ) -> None:
        self.network, self.memory, self.regions = network, memory, regions
        ends = np.array([[one.low, one.high] for one in some])
        self.key: Ints = ((np.arange(len(some))[:, None] << BITS + 1) + (ends * GRID).astype(np.int64)).ravel()
        at = on_device(ends.ravel(), start[0].device)
        line = torch.tensor([one.line for one in some], device=at.device).repeat_interleave(2)
        pairs = enumerate(zip(start, stop, strict=True))
        # Each point is a batch of one, as the program was followed.
        self.values: dict[int, Any] = {i: torch.lerp(a[line], b[line], _along(at, a[0])).unsqueeze(1) for i, (a, b) in pairs}
        self.chosen: dict[int, Operation] = {}
        self.unsure: list[Ints] = [np.zeros((0, 2), np.int64)]  # stretches, by the keys of their ends
        self.sent: Ints = np.full(len(some), 2)  # points of each stretch, also of those that were given up

    @property
    def owner(self) -> Ints:
        """The stretch that each point is on."""
        return np.asarray(self.key >> BITS + 1)

    def run(self) -> dict[int, PathLine]:
        """What the network gives along each stretch, but for those with too many regions."""
        program = self.network.program
        with torch.no_grad(), quiet():  # operations that torch runs row by row
            for number, step in enumerate(program.operations):
                wide = widened(step)
                if kinked(step):
                    self._break(wide)
                if not len(self.key):
                    return {}
                self._check_room(self.key, self.network.bytes[step.out])
                self.values[step.out] = self._apply(wide)
                for index in [*step.refs, step.out]:
                    if self.network.last.get(index, 0) <= number:
                        self.values.pop(index, None)
        t, values, owner = (self.key % (1 << BITS + 1)) / GRID, self.values[program.result], self.owner
        places = {int(i): np.flatnonzero(owner == i) for i in np.unique(owner)}
        unsure = np.concatenate(self.unsure)
        of, ends = unsure[:, 0] >> BITS + 1, (unsure % (1 << BITS + 1)) / GRID
        return {i: PathLine(t[place], values[on_device(place, values.device)], ends[of == i]) for i, place in places.items()}

    def _apply(self, step: Operation) -> Any:
        """What a step gives at every break point."""
        if step.picks:
            return self.values[step.args[0].index][step.args[1]]
        if step.name in COMPARISONS:  # its sides' difference, which can be interpolated; compared when it is used
            self.chosen[step.out] = step
            return _rows(step, self.values, lambda a, b: (a - b,))[0]
        given = {i: self._compared(i) for i in step.refs}
        out = _rows(step, given)
        return out[:1] if isinstance(out, tuple) and kinked(step) else out  # not the places of maxima: they are no numbers

    def _compared(self, index: int) -> Any:
        step = self.chosen.get(index)
        return self.values[index] if step is None else getattr(torch, step.name)(self.values[index], 0)

    def _break(self, step: Operation) -> None:
        """Put in the kinks of a step."""
        for _ in range(ROUNDS):
            if not len(self.key):
                return
            new = self._new(shares(step, self.values, _rows))
            if not len(new):
                near = undecided(step, self.values, _rows, self.network.epsilon)
                if near is not None:
                    index = near.nonzero().flatten().cpu().numpy()
                    index = index[self.owner[index] == self.owner[index + 1]]
                    self.unsure.append(np.stack([self.key[index], self.key[index + 1]], 1))
                return
            every = np.sort(np.concatenate([self.key, new]))
            many = np.bincount(every >> BITS + 1, minlength=len(self.regions)) - 1 > self.regions
            if many.any():
                self._drop(many)
                new = new[~many[new >> BITS + 1]]
            if len(new):
                self._insert(new)
        raise NotExactError(f"the kinks of {step.name!r} lie too close to be told apart")

    def _drop(self, many: NDArray[np.bool_]) -> None:
        """Give up some stretches."""
        kept = np.flatnonzero(~many[self.owner])
        self.key = self.key[kept]

        def only(value: Any) -> Any:
            return tuple(map(only, value)) if isinstance(value, tuple) else value[on_device(kept, value.device)]

        self.values = {index: only(value) for index, value in self.values.items()}

    def _check_room(self, keys: Ints, more: int = 0) -> None:
        """Whether twice all that is held fits at these points, with so many bytes more at each."""
        each = 2 * sum(self.network.bytes[index] for index in self.values) + more
        several = keys[0] >> BITS + 1 != keys[-1] >> BITS + 1
        if (several or len(keys) > 3) and each * len(keys) > self.memory:
            raise TooManyError(float(keys[len(keys) // 2] % (1 << BITS + 1)) / GRID)

    def _new(self, found: list[tuple[Tensor, Tensor]]) -> Ints:
        """Kinks that are not at break points already, (K,), sorted."""
        parts = []
        for stretch, share in found:
            index, place = stretch.cpu().numpy(), share.cpu().numpy()
            inside = self.owner[index] == self.owner[index + 1]  # not from the end of one line to the start of the next
            index, place = index[inside], place[inside]
            parts.append(self.key[index] + np.round((self.key[index + 1] - self.key[index]) * place).astype(np.int64))
        keys, near = np.unique(np.concatenate(parts)), int(CLOSE * GRID)
        left = np.clip(np.searchsorted(self.key, keys, side="right") - 1, 0, len(self.key) - 2)
        keys = keys[(keys - self.key[left] > near) & (self.key[left + 1] - keys > near)]
        return np.asarray(keys[np.diff(keys, prepend=-near - 1) > near])

    def _insert(self, new: Ints) -> None:
        """Put break points in, and interpolate everything there."""
        every = np.concatenate([self.key, new])
        order = np.argsort(every, kind="stable")
        self._check_room(every[order])
        left = np.searchsorted(self.key, new, side="right") - 1
        share = (new - self.key[left]) / (self.key[left + 1] - self.key[left])

        def filled(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(filled, value))
            here, weight, place = (on_device(part, value.device) for part in (left, share, order))
            a, b = value[here], value[here + 1]
            between = torch.where(a == b, a, a + _along(weight, a[0]) * (b - a))  # equal: also where both are infinite
            return torch.cat([value, between])[place]

        self.values = {index: filled(value) for index, value in self.values.items()}
        self.key = every[order]
        self.sent = np.maximum(self.sent, np.bincount(self.owner, minlength=len(self.sent)))


def _along(t: Tensor, like: Tensor) -> Tensor:
    """Times (P,) in a shape that multiplies P values like this one."""
    return t.reshape(-1, *[1] * like.ndim)


def _rows(step: Operation, values: dict[int, Any], function: Callable[..., Any] | None = None) -> Any:
    """Run a step, or another function of its arguments, at every point: values (P, ...) each."""
    refs = step.refs

    def one(*points: Any) -> Any:
        known = dict(zip(refs, points, strict=True))
        if function is None:
            return step(known)
        args, kwargs = _filled(step, known)
        return tuple(function(*args, **kwargs))

    try:
        return torch.func.vmap(one)(*(values[i] for i in refs))
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise NotExactError(
            f"the operation {step.name!r} cannot be run at many points: {str(error).splitlines()[0]}"
        ) from error


def _filled(step: Operation, known: dict[int, Any]) -> tuple[list[Any], dict[str, Any]]:
    """A step's arguments with their values."""

    def value(arg: Any) -> Any:
        return known[arg.index] if isinstance(arg, Ref) else arg

    return [value(arg) for arg in step.args], {name: value(arg) for name, arg in step.kwargs.items()}


LOOKS = 2
"""In so many regions of each line, the widest, the gradient is taken at another place too: it must be the same."""

ELSEWHERE = 0.2113
"""Where in the region that is."""

LINES = 256
"""Lines to follow at a time, at the most."""


@dataclass(frozen=True)
class LinearRegions:
    """The regions of one piece of one example's path.

    Attributes:
        example: which example.
        piece: which piece.
        t: (R + 1,) break points.
        scores: (R + 1,) F there.
        expected: (R,) what is evaluated in the middle of each region has to be: F, or the outputs times the seeds.
        sizes: (R,) how large the numbers are that this is the sum of.
        seeds: (R, ...) what to multiply the outputs by before they are differentiated; None where the score is piecewise
            linear itself.
        along: F at the nodes.
        unsure: (R,) whether rounding decides there on which side of its kink a unit is.
    """

    example: int
    piece: int
    t: Floats
    scores: Floats
    expected: Floats
    sizes: Floats
    seeds: Tensor | None
    along: Floats
    unsure: Bools

    def __len__(self) -> int:
        return len(self.t) - 1

    @property
    def looks(self) -> Ints:
        """The regions to look at twice."""
        return _looks(self.t)

    @property
    def nodes(self) -> Nodes:
        """The middle of each region, and then the second places."""
        widths = np.diff(self.t)
        again = self.t[self.looks] + ELSEWHERE * widths[self.looks]
        times = np.concatenate([self.t[:-1] + widths / 2, again])
        return Nodes(times, np.full(len(times), self.example), np.full(len(times), self.piece))


class Finder:
    """Finds the regions of examples; those that the model treats alike go through its operations side by side.

    Args:
        evaluator: what is explained, along which pieces.
        budget: the regions that each example may have, on all pieces of its path together.
        memory: bytes for the values at break points.
    """

    def __init__(self, evaluator: Evaluator, budget: Mapping[int, int], memory: int) -> None:
        self.evaluator, self.budget, self.memory = evaluator, budget, memory
        self.pieces = len(evaluator.pieces)
        scorer = evaluator.function.scorer
        self.seeded = scorer.score != "logit"
        # Examples with targets of their own share a program that gives all outputs.
        self.whole = self.seeded or (scorer.function is None and len(set(scorer.words)) > 1)
        self.function: TorchFunction = whole_output(evaluator.function) if self.whole else evaluator.function
        evaluator.forwards += int(self.whole)

    def find(self, examples: Sequence[int]) -> tuple[list[LinearRegions], dict[int, str]]:
        """The regions on all pieces of examples' paths, and why there are none for some examples."""
        found: list[LinearRegions] = []
        refused: dict[int, str] = {}
        groups = self._groups(examples)
        for i, alike in enumerate(groups):
            self.evaluator.forwards[alike[0]] += TRACED
            try:
                net = network(self.function, alike[0])
            except NotExactError as error:  # one model for all: that it is not followed is not found out again for each
                refused |= {example: str(error) for rest in groups[i:] for example in rest}
                break
            size = max(1, self._together() // self.pieces)
            for first in range(0, len(alike), size):
                for example, result in self._through(net, alike[first : first + size]).items():
                    if isinstance(result, NotExactError):
                        refused[example] = str(result)
                    else:
                        found += result
        return found, refused

    def _groups(self, examples: Sequence[int]) -> list[list[int]]:
        """Examples that share a program: all of them, unless something else of theirs than x goes into it."""
        call = self.function.call
        if call.args or call.kwargs or self.function.layered:
            return [[example] for example in examples]
        return [list(examples)]

    def _together(self) -> int:
        """Lines whose ends may be held at a time."""
        return max(1, min(LINES, self.memory // (64 * sum(leaf[0].numel() for leaf in self.function.inputs))))

    def _through(self, net: PiecewiseLinearNetwork, examples: list[int]) -> dict[int, list[LinearRegions] | NotExactError]:
        """What comes of examples that share a program."""
        evaluator = self.evaluator
        rows = torch.tensor(examples, device=evaluator.device)

        def points(t: float) -> Leaves:
            at = torch.full((len(examples),), t, dtype=evaluator.dtype, device=evaluator.device)
            parts = [piece.points_at(at, rows) for piece in evaluator.pieces]
            return tuple(torch.cat(leaves).detach().double() for leaves in zip(*parts, strict=True))

        most = np.array([self.budget[example] for example in examples]) - self.pieces + 1
        limits = RegionLimits(np.tile(most, self.pieces), self.memory)
        lines, spent = follow_lines(net, points(0), points(1), limits)
        out: dict[int, list[LinearRegions] | NotExactError] = {}
        for i, example in enumerate(examples):
            evaluator.forwards[example] += sum(spent[i :: len(examples)])
            try:
                out[example] = self._checked(example, lines[i :: len(examples)])
            except NotExactError as error:
                out[example] = error
        return out

    def _checked(self, example: int, lines: list[PathLine | NotExactError]) -> list[LinearRegions]:
        """The regions of one example's lines, one for each piece."""
        out: list[LinearRegions] = []
        for piece, line in enumerate(lines):
            if isinstance(line, NotExactError):
                raise line
            thin = thinned(line, max(CLOSE, 4 * self.evaluator.epsilon))
            if not bool(thin.values.isfinite().all()):
                raise NotExactError("the outputs are not finite everywhere on the line")
            outputs = thin.values.reshape(len(thin.t), *(self.shape if self.whole else ()))
            if self.seeded:
                found = self._seeded(thin.t, outputs, example, piece)
            else:
                found = _plain(thin.t, self._scores(outputs, example) if self.whole else outputs, example, piece)
            middle = (thin.t[:-1] + thin.t[1:])[:, None] / 2
            unsure = np.any((thin.unsure[:, 0] < middle) & (middle < thin.unsure[:, 1]), axis=1)
            out.append(replace(found, unsure=np.asarray(unsure)))
        if sum(map(len, out)) > self.budget[example]:
            raise NotExactError(f"the lines cross more than {self.budget[example]} linear regions")
        return out

    def _scores(self, outputs: Tensor, example: int) -> Tensor:
        return scores_of(self.evaluator.function.scorer, outputs, example)

    def _seeded(self, t: Floats, outputs: Tensor, example: int, piece: int) -> LinearRegions:
        given, between = seeds(self.evaluator.function.scorer, outputs, example), (outputs[:-1] + outputs[1:]) / 2
        again = torch.lerp(outputs[:-1], outputs[1:], ELSEWHERE)[_looks(t)]
        scores, along = (self._scores(at, example).cpu().numpy() for at in (outputs, torch.cat([between, again])))
        parts = (given * between).flatten(1)
        expected, sizes = parts.sum(1).cpu().numpy(), parts.abs().sum(1).cpu().numpy()
        return LinearRegions(example, piece, t, scores, expected, sizes, given, along, np.zeros(len(t) - 1, bool))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the model's output for one row."""
        function, row = self.function, torch.zeros(1, dtype=torch.long, device=self.evaluator.device)
        with torch.no_grad():
            outputs = function.run(tuple(leaf[:1] for leaf in function.inputs), row)
        return tuple(whole(outputs, batched=function.scorer.batched).shape[1:])


def _plain(t: Floats, at: Tensor, example: int, piece: int) -> LinearRegions:
    """The regions of a line on which the scores themselves are linear."""
    scores = at.cpu().numpy()
    middle = (scores[:-1] + scores[1:]) / 2
    again = (scores[:-1] + ELSEWHERE * np.diff(scores))[_looks(t)]
    along, sure = np.concatenate([middle, again]), np.zeros(len(t) - 1, bool)
    return LinearRegions(example, piece, t, scores, middle, np.abs(middle), None, along, sure)


def _looks(t: Floats) -> Ints:
    """The widest regions."""
    return np.argsort(-np.diff(t), kind="stable")[:LOOKS]
