"""Straight lines through a piecewise linear network: their break points, and what the network gives there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from .._trees import Leaves
from ..execute._nodes import Ints
from ..functions._parts import out_of_memory
from ._network import Network
from ._part import Line, Part, Stretch, TooManyError
from ._refusal import NotExactError

MOST = 256
"""Stretches of lines that go through a network side by side."""


@dataclass(frozen=True)
class Limits:
    """How many regions each line may have, and how many bytes the values at break points may take at a time."""

    regions: Ints
    bytes: int


def follow_lines(network: Network, start: Leaves, stop: Leaves, limits: Limits) -> tuple[list[Line | NotExactError], list[int]]:
    """Send straight lines through a network, from points (L, ...) to others, both in float64.

    Where all break points do not fit into memory, lines, and parts of a line, go through one after the other.

    Returns:
        For each line what came of it, and how many points were sent through the network for it.
    """
    count = len(start[0])
    every = [Stretch(line) for line in range(count)]
    waiting = [every[first : first + MOST] for first in range(0, count, MOST)]
    done: list[list[Line]] = [[] for _ in every]
    refused: dict[int, NotExactError] = {}
    rows = [0] * count
    while waiting:
        some = [one for one in waiting.pop() if one.line not in refused]
        if not some:
            continue
        taken = Counter(one.line for part in (some, *waiting) for one in part)
        spare = [limits.regions[s.line] - sum(len(p.t) - 1 for p in done[s.line]) - taken[s.line] + 1 for s in some]
        part = Part(network, start, stop, some, limits.bytes, np.array(spare))
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


def _joined(parts: list[Line]) -> Line:
    """One line of its parts, in order, each of which starts where the one before ends."""
    t = np.concatenate([part.t[:-1] for part in parts] + [parts[-1].t[-1:]])
    return Line(t, torch.cat([part.values[:-1] for part in parts] + [parts[-1].values[-1:]]))


def thinned(line: Line, narrow: float) -> Line:
    """The line without break points that are closer to the one before than so much; the ends stay."""
    kept = [0]
    for i in range(1, len(line.t) - 1):
        if line.t[i] - line.t[kept[-1]] > narrow and line.t[-1] - line.t[i] > narrow:
            kept.append(i)
    index = np.array([*kept, len(line.t) - 1])
    return Line(line.t[index], line.values[torch.as_tensor(index, device=line.values.device)])
