"""Where the nodes of a graph are drawn: distances on paper like those along edges, the same places every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.float64]
Ends = NDArray[np.int64]

ROUNDS = 200
"""The most rounds of moving nodes; small graphs settle after some fifty."""

SETTLED = 1e-4
"""The layout is done when a round lessens its stress by less than this share."""

ROOM = 0.62
"""The least distance of two nodes, in lengths of an edge."""

GAP = 1.0
"""The space between parts that are not connected, in lengths of an edge."""


def layout(count: int, ends: Ends) -> Places:
    """Places of nodes in the plane, (count, 2), with edges of about length 1.

    Each connected part is laid out by stress majorisation (Gansner, Koren and North 2004): distances on paper follow those
    along edges, near ones most. Parts stand next to each other in rows, the largest first. Nothing is drawn at random.

    Args:
        count: how many nodes there are.
        ends: pairs of nodes with an edge between them, (edges, 2).
    """
    parts = components(count, ends)
    out = np.zeros((count, 2))
    if not parts:
        return out
    placed = [_turned(_part(nodes, ends)) for nodes in parts]
    sizes = [np.ptp(one, axis=0) for one in placed]
    wide = max(float(max(size[0] for size in sizes)), float(np.sqrt(sum((size[0] + GAP) * (size[1] + GAP) for size in sizes))))
    x = y = tall = 0.0
    for nodes, one, size in zip(parts, placed, sizes, strict=True):
        if x > 0 and x + size[0] > wide * 1.6:
            x, y, tall = 0.0, y + tall + GAP, 0.0
        out[nodes] = one - one.min(0) + (x, y)
        x, tall = x + float(size[0]) + GAP, max(tall, float(size[1]))
    return out


def components(count: int, ends: Ends) -> list[NDArray[np.int64]]:
    """The connected parts of a graph, the largest first; nodes of each in their order.

    >>> [part.tolist() for part in components(4, np.array([[1, 3]]))]
    [[1, 3], [0], [2]]
    """
    root = np.arange(count)
    neighbours = _neighbours(count, ends)
    seen = np.zeros(count, bool)
    for first in range(count):
        if not seen[first]:
            reached = _reached(first, neighbours)
            seen[reached] = True
            root[reached] = first
    parts = [np.flatnonzero(root == first) for first in np.unique(root)]
    return sorted(parts, key=lambda part: (-len(part), int(part[0])))


def _neighbours(count: int, ends: Ends) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for a, b in ends.tolist():
        if a != b:
            found[a].append(b)
            found[b].append(a)
    return found


def _reached(first: int, neighbours: list[list[int]]) -> list[int]:
    seen, order = {first}, [first]
    for node in order:
        for other in neighbours[node]:
            if other not in seen:
                seen.add(other)
                order.append(other)
    return order


def _part(nodes: NDArray[np.int64], ends: Ends) -> Places:
    """Places of the nodes of one connected part."""
    count = len(nodes)
    if count == 1:
        return np.zeros((1, 2))
    here = np.full(int(nodes.max()) + 1, -1)
    here[nodes] = np.arange(count)
    inside = ends[np.isin(ends, nodes).all(1)]
    apart = _distances(count, _neighbours(count, here[inside]))
    return _pushed_apart(_majorised(apart, _scaled(apart)))


def _distances(count: int, neighbours: list[list[int]]) -> Places:
    """Lengths of the shortest ways between all nodes, (count, count)."""
    out = np.zeros((count, count))
    for first in range(count):
        step = {first: 0}
        order = [first]
        for node in order:
            for other in neighbours[node]:
                if other not in step:
                    step[other] = step[node] + 1
                    order.append(other)
        out[first, list(step)] = list(step.values())
    return out


def _scaled(apart: Places) -> Places:
    """Where to begin: classical multidimensional scaling of the distances, nudged so that no two nodes are in one place."""
    count = len(apart)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centring @ (apart**2) @ centring / 2)
    best = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    best = np.pad(best, ((0, 0), (0, 2 - best.shape[1])))
    # The sign of an eigenvector is not determined: the entry that is largest is positive.
    for column in best.T:
        column *= np.sign(column[np.abs(column).argmax()]) or 1.0
    angle = 2.399963 * np.arange(count)  # the golden angle: no two nodes get the same nudge
    return np.asarray(best + 0.05 * np.stack([np.cos(angle), np.sin(angle)], 1))


def _majorised(apart: Places, places: Places) -> Places:
    """Move nodes until the stress, the squared errors of the distances over their squares, hardly falls any more."""
    weight = 1 / np.where(apart > 0, apart, 1.0) ** 2
    np.fill_diagonal(weight, 0.0)
    whole = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(whole)
    before = np.inf
    for _ in range(ROUNDS):
        between = np.linalg.norm(places[:, None] - places[None], axis=2)
        stress = float((weight * (between - apart) ** 2).sum())
        if before - stress < SETTLED * before and np.isfinite(before):
            break
        before = stress
        ratio = weight * apart / np.where(between > 1e-9, between, 1.0)
        np.fill_diagonal(ratio, 0.0)
        places = inverse @ (np.diag(ratio.sum(1)) - ratio) @ places
    return places


def _pushed_apart(places: Places) -> Places:
    """The same places, with nodes that would overlap moved away from each other."""
    places = places.copy()
    for _ in range(ROUNDS):
        to = places[:, None] - places[None]
        between = np.linalg.norm(to, axis=2)
        close = (between < ROOM) & ~np.eye(len(places), dtype=bool)
        if not close.any():
            break
        lacking = np.where(close, (ROOM * 1.02 - between) / 2, 0.0)
        places += (to / np.maximum(between, 1e-9)[..., None] * lacking[..., None]).sum(1) / np.maximum(close.sum(1), 1)[:, None]
    return places


def _turned(places: Places) -> Places:
    """The same places, turned so that they are wider than tall."""
    if len(places) < 2:
        return places
    middle = places - places.mean(0)
    _, vectors = np.linalg.eigh(middle.T @ middle)
    turned = middle @ vectors[:, ::-1]
    for column in turned.T:
        column *= np.sign(column[np.abs(column).argmax()]) or 1.0
    return np.asarray(turned)
