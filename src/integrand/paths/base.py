"""The paths, each cut into smooth pieces that the quadrature integrates one by one."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import FrameType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..certificate import Promise, promised
from ..errors import InputError, OptionError, quiet
from ..trees import Leaves, Tensors, Tree, flat, flatten, unflat
from ..words import short_repr

At = Callable[[Tensor, Tensor], tuple[Leaves, Leaves]]
"""From times (N,) and rows (N,), row i asking for example ``rows[i]`` at ``t[i]``, to points and velocities (N, ...)."""


@dataclass(frozen=True)
class Piece:
    """A smooth stretch of a path, run through for t from 0 to 1.

    Attributes:
        weight: its share in the attribution.
        at: points and velocities at given times; see :data:`At`.
        points: the points alone, where they are cheaper to have; None otherwise. Without rows, every example at each of
            the times, one time after the other.
        straight: whether the velocity does not depend on t.
        made_of: all tensors, (examples, ...) each, that it depends on: examples with equal rows in them have the same path, and
            several targets of one input then share forward passes. Empty where that cannot be said.
    """

    weight: float
    at: At
    points: Callable[[Tensor, Tensor | None], Leaves] | None = None
    straight: bool = False
    made_of: Leaves = ()

    def points_at(self, t: Tensor, rows: Tensor) -> Leaves:
        """The points alone at times (N,) for examples (N,)."""
        return self.at(t, rows)[0] if self.points is None else self.points(t, rows)


@dataclass(frozen=True)
class Nodes:
    """Points of paths: times ``t`` in [0, 1] on ``pieces`` of the paths of examples ``rows``, (K,) each."""

    t: Floats
    rows: Ints
    pieces: Ints

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, index: Ints) -> Nodes:
        return Nodes(self.t[index], self.rows[index], self.pieces[index])

    def same(self, other: Nodes) -> bool:
        """Whether these are the points of other nodes, in the same order."""
        pairs = ((self.t, other.t), (self.rows, other.rows), (self.pieces, other.pieces))
        return all(np.array_equal(mine, yours) for mine, yours in pairs)


@runtime_checkable
class Path(Protocol):
    """What the engine integrates along.

    A path may say which axioms it keeps, as :func:`integrand.attribution.promised` lists them, in an attribute
    ``promises``. One that does not is taken to keep all but symmetry.
    """

    def end(self) -> Tensors:
        """The input: where the path ends."""
        ...

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """Its smooth pieces. Without a batch dimension, points gain one of size 1."""
        ...


@dataclass(frozen=True, eq=False)
class Straight:
    """The straight line x' + t (x - x'): integrated gradients.

    >>> line = Straight(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]))
    >>> line.pieces(batched=True)[0].at(torch.tensor([0.5]), torch.tensor([0]))[0]
    (tensor([[0.5000, 1.5000]]),)

    Attributes:
        baseline: x', where it starts.
        x: where it ends.
    """

    promises: ClassVar[tuple[Promise, ...]] = promised()
    baseline: Tensors
    x: Tensors

    __repr__ = short_repr

    def __post_init__(self) -> None:
        same_shape("baseline", *flatten(self.baseline, what="baseline"), *flatten(self.x, what="x"))

    def end(self) -> Tensors:
        """The input."""
        return self.x

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """One piece."""
        _, start = flatten(self.baseline, what="baseline")
        _, stop = flatten(self.x, what="x")
        return [segment(batch_of(start, batched), batch_of(stop, batched))]


def segment(start: Leaves, stop: Leaves, weight: float = 1.0) -> Piece:
    """The line between two batches of points."""
    # In half precision times would be off by more than the nodes are apart: only the point itself is rounded.
    pairs = [(_once(a).to(wide(a)), _once(b).to(wide(b))) for a, b in zip(start, stop, strict=True)]

    def rows_of(leaf: Tensor, rows: Tensor) -> Tensor:
        return leaf.expand(len(rows), *leaf.shape[1:]) if leaf.shape[0] == 1 else leaf.index_select(0, rows)

    def points(t: Tensor, rows: Tensor | None) -> Leaves:
        out = []
        for (first, last), leaf in zip(pairs, stop, strict=True):
            share = t.to(last.dtype).reshape(-1, *[1] * (last.ndim - 1))
            if rows is None:
                every = last.expand(leaf.shape)[None]
                found = torch.lerp(first[None], every, share[:, None]).flatten(0, 1)
            else:
                found = torch.lerp(rows_of(first, rows), rows_of(last, rows), share)
            out.append(found.to(leaf.dtype))  # exact at both ends
        return tuple(out)

    def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
        return points(t, rows), tuple(rows_of(last - first, rows) for first, last in pairs)

    return Piece(weight, at, points, straight=True, made_of=(*start, *stop))


def _once(leaf: Tensor) -> Tensor:
    """A batch of equal rows, which one row was expanded to, as that row; others as they are."""
    return leaf[:1] if leaf.ndim and leaf.stride(0) == 0 else leaf


def wide(leaf: Tensor) -> torch.dtype:
    """What to compute a tensor's path in: its own precision, or float32 where that is half."""
    return torch.promote_types(leaf.dtype, torch.float32)


@dataclass(frozen=True, eq=False)
class Polyline:
    """Straight lines through points, from the first to the last.

    Attributes:
        points: at least two, each in the structure of the input.
    """

    points: Sequence[Tensors]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise InputError(f"a polyline got {len(self.points)} point(s); expected at least two, the baseline and the input.")
        trees = [flatten(point, what=f"points[{i}]") for i, point in enumerate(self.points)]
        first_tree, first = trees[-1]
        for i, (tree, leaves) in enumerate(trees):
            same_shape(f"points[{i}]", tree, leaves, first_tree, first)

    def end(self) -> Tensors:
        """The last point."""
        return self.points[-1]

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """One per line; lines of length zero are left out."""
        leaves = [batch_of(flatten(point)[1], batched) for point in self.points]
        pairs = [(a, b) for a, b in pairwise(leaves) if not all(map(torch.equal, a, b))]
        return [segment(a, b) for a, b in pairs or [(leaves[0], leaves[-1])]]


@dataclass(frozen=True, eq=False)
class Curve:
    """Any path given as a function of t in [0, 1].

    >>> x = torch.tensor([[1.0, 3.0]])
    >>> curve = Curve(lambda t: torch.cat([t * x[:, :1], t**2 * x[:, 1:]], 1))
    >>> points, velocities = curve.pieces(batched=True)[0].at(torch.tensor([0.5]), torch.tensor([0]))
    >>> velocities[0]
    tensor([[1., 3.]])

    Attributes:
        function: from a scalar tensor t to a point, in the structure of the input, for the whole batch.
        velocity: its derivative, from t to the same structure; by forward-mode differentiation if not given.
        knots: times where the curve has a corner; it must be smooth in between.
    """

    function: Callable[[Tensor], Tensors]
    velocity: Callable[[Tensor], Tensors] | None = None
    knots: Sequence[float] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        inside = all(0 < k < 1 for k in self.knots)
        if not inside or list(self.knots) != sorted(set(self.knots)):
            raise OptionError(f"got knots={list(self.knots)}; expected increasing times between 0 and 1, ends left out.")

    def end(self) -> Tensors:
        """The point at t = 1."""
        return self.function(torch.tensor(1.0, dtype=torch.float64))

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """One between each two knots."""
        return [Piece(1.0, self._between(a, b, batched)) for a, b in pairwise([0.0, *self.knots, 1.0])]

    def _between(self, first: float, last: float, batched: bool) -> At:
        tree, _ = flatten(self.end(), what="the path's point")
        # At a knot the velocity is either side's: it is asked for just inside, where it is this piece's.
        low = math.nextafter(first, last) if first > 0 else first
        high = math.nextafter(last, first) if last < 1 else last

        def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
            wanted = (first + t.double() * (last - first)).clamp(low, high)
            times, which = torch.unique(wanted, return_inverse=True)
            points, speeds = zip(*(self._point(time, tree, batched) for time in times.cpu()), strict=True)

            def gather(stack: Sequence[Leaves], i: int) -> Tensor:
                return torch.stack([stack[k][i][r] for k, r in zip(which.tolist(), rows.tolist(), strict=True)])

            count = range(len(points[0]))
            return tuple(gather(points, i) for i in count), tuple(gather(speeds, i) * (last - first) for i in count)

        return at

    def _point(self, time: Tensor, tree: Tree, batched: bool) -> tuple[Leaves, Leaves]:
        # The time is handed over as a float64 scalar on the CPU: it takes the dtype and device of what it scales.
        def leaves_of(t: Tensor) -> Leaves:
            return flatten(self.function(t), what="the path's point")[1]

        if self.velocity is None:
            point, speed = forward_mode(leaves_of, (time,), (torch.ones_like(time),))
        else:
            point = leaves_of(time)
            speed_tree, speed = flatten(self.velocity(time), what="the path's velocity")
            same_shape("the path's velocity", speed_tree, speed, tree, point)
        return batch_of(tuple(p.detach() for p in point), batched), batch_of(tuple(s.detach() for s in speed), batched)


@dataclass(frozen=True, eq=False)
class Average:
    """The weighted mean of several paths to the same input.

    Attributes:
        paths: the paths.
        weights: their shares, adding up to 1; equal if not given.
    """

    paths: Sequence[Any]
    weights: Sequence[float] | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError("an average got no paths; expected at least one.")
        for number, path in enumerate(self.paths):
            if not isinstance(path, Path):
                raise InputError(
                    f"path {number} of the average is a {type(path).__name__}; expected one of integrand.paths, or an object "
                    "with end() and pieces(batched=...)."
                )
        if self.weights is not None and (len(self.weights) != len(self.paths) or abs(sum(self.weights) - 1) > 1e-6):
            raise OptionError(
                f"got weights={list(self.weights)} for {len(self.paths)} paths; expected one each, adding up to 1."
            )

    def end(self) -> Tensors:
        """Where the first path ends; all must end there."""
        return self.paths[0].end()  # type: ignore[no-any-return]

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """The pieces of all paths, their weights scaled."""
        tree, first = flatten(self.end())
        shares = [1 / len(self.paths)] * len(self.paths) if self.weights is None else self.weights
        out: list[Piece] = []
        for number, (path, share) in enumerate(zip(self.paths, shares, strict=True)):
            other_tree, other = flatten(path.end())
            same_shape(f"the end of path {number}", other_tree, other, tree, first)
            if any(not torch.allclose(a, b) for a, b in zip(first, other, strict=True)):
                raise InputError(
                    f"path {number} of the average ends at another point than path 0; expected the same input for all."
                )
            out += [replace(piece, weight=float(share) * piece.weight) for piece in path.pieces(batched=batched)]
        return out


def same_shape(what: str, tree: Tree, leaves: Leaves, like_tree: Tree, like: Leaves) -> None:
    """The same structure, shapes, dtypes and devices, or an error that names the difference."""
    if tree != like_tree:
        raise InputError(
            f"{what} is a {tree.kind} with {tree.size} tensor(s); expected the structure of x, a {like_tree.kind} with "
            f"{like_tree.size}."
        )
    for name, leaf, other in zip(tree.names, leaves, like, strict=True):
        if leaf.shape != other.shape:
            raise InputError(f"{what}{name} has shape {tuple(leaf.shape)}; expected {tuple(other.shape)}, the shape of x.")
        if leaf.dtype != other.dtype:
            raise InputError(
                f"{what}{name} has dtype {leaf.dtype}; expected {other.dtype}, the dtype of x. Convert it with .to(x.dtype)."
            )
        if leaf.device != other.device:
            raise InputError(
                f"{what}{name} is on {leaf.device}; expected {other.device}, the device of x. Move it with .to(x.device)."
            )


_FORWARD_MODE = threading.RLock()


def forward_mode(function: Callable[..., Leaves], points: Leaves, velocities: Leaves) -> tuple[Leaves, Leaves]:
    """The values of a function at points, and its derivative along velocities, by forward-mode differentiation.

    Its levels belong to the process, and one that another thread ends takes this thread's derivatives with it: so there is one
    thread at a time.

    >>> values, speeds = forward_mode(lambda x: (x**2,), (torch.tensor([3.0]),), (torch.tensor([2.0]),))
    >>> speeds
    (tensor([12.]),)
    """
    with _FORWARD_MODE, _signals_held():
        _load_forward_mode()
        values, speeds, *_ = torch.func.jvp(function, points, velocities)
        return values, speeds


_SIGNALS = [getattr(signal, name) for name in ("SIGHUP", "SIGTERM", "SIGALRM", "SIGBREAK", "SIGINT") if hasattr(signal, name)]


@contextmanager
def _signals_held() -> Iterator[None]:
    """Handle signals that come meanwhile, such as Ctrl-C, at the end, the second of a kind at once.

    An exception that a handler raises where torch enters or leaves a level leaves that level wrong until the process ends.
    """
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    arrived: dict[int, FrameType | None] = {}

    def hold(number: int, frame: FrameType | None) -> None:
        if number in arrived:
            handlers[number](number, frame)
        arrived[number] = frame

    try:
        for number in _SIGNALS if threading.current_thread() is threading.main_thread() else ():
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, hold)
        yield
    finally:
        for number, handler in handlers.items():  # that of SIGINT last: once it is back, it may end this
            signal.signal(number, handler)
        for number, frame in arrived.items():
            handlers[number](number, frame)


@cache
def _load_forward_mode() -> None:
    """Torch's first forward-mode derivative warns about its own internals; users did nothing that they could change."""
    with quiet():
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.ones(()),))


def batch_of(leaves: Leaves, batched: bool) -> Leaves:
    """One row per example: as they are, or as a batch of one."""
    return leaves if batched else tuple(leaf[None] for leaf in leaves)


MOST_STEPS = 16


def stairs(baseline: Tensors, x: Tensors, *, most: int = MOST_STEPS) -> Polyline:
    """From baseline to x feature by feature, in their order; beyond ``most`` features, block by block.

    Its attributions say how the score changes when the features arrive in this order: complete, but features that
    the model treats alike may get different shares. Shapley-Shubik is the mean over all orders.

    >>> stairs(torch.zeros(1, 2), torch.tensor([[1.0, 3.0]])).points[1]
    tensor([[1., 0.]])

    Args:
        baseline: where it starts, one row per example.
        x: where it ends.
        most: the number of moves at the most.
    """
    tree, stop = flatten(x, what="x")
    start_tree, start = flatten(baseline, what="baseline")
    same_shape("baseline", start_tree, start, tree, stop)
    here, there = flat(start), flat(stop)
    features = there.shape[1]
    moves = min(features, most)
    cuts = [round(i * features / moves) for i in range(moves + 1)]
    shapes = [leaf.shape[1:] for leaf in stop]
    rows = [torch.cat([there[:, :cut], here[:, cut:]], 1) for cut in cuts]
    return Polyline([tree.build(unflat(row, shapes)) for row in rows])
