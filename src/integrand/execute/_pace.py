"""How large waves are."""

from __future__ import annotations

from dataclasses import dataclass

from ._evaluate import Evaluator

FREE, FREE_SMALL, SMALL = 136, 4352, 1 << 15
"""Rows that a GPU runs in hardly more time than one; those of networks with few features, which are small mostly; how few."""


@dataclass(frozen=True)
class Pace:
    """How far a wave goes before it is judged.

    Attributes:
        first: how many times a path is halved at first.
        deepest: how many times a panel is halved at the most, where a wave costs more than its nodes and the plan says so.
        aim: what plans aim for, over the tolerance: a little below, so that the last wave is not missed by a hair.
    """

    first: int
    deepest: int
    aim: float

    @staticmethod
    def of(evaluator: Evaluator) -> Pace:
        """Few nodes at first where smooth networks need no more; a GPU takes as long for a few rows as for dozens."""
        if evaluator.device.type == "cpu":
            return Pace(1, 1, 0.99)
        lines = evaluator.function.examples * len(evaluator.pieces)
        free = FREE if evaluator.features > SMALL else FREE_SMALL
        return Pace(2 if 17 * lines <= free else 1, 3, 0.97)

    def depth(self, waves: int, *, kinked: bool) -> int:
        """How many times a panel may be halved after so many waves.

        Two panels are little to plan by, and where gradients turn out smooth the plan was for far too many.
        """
        return self.deepest if waves and kinked else 1
