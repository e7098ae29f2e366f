"""Sums that are written as several operations, as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ._kinds import MOVES, WEIGHTED
from ._program import Program, Ref, Step


class Sum:
    """A chain of sums, differences and constant factors: one function of the values that go into it.

    Args:
        steps: the operations, in order; the last gives the result.
        refs: the values that they take from outside.
        bare: whether constants that are added are left out.
    """

    def __init__(self, steps: tuple[Step, ...], refs: tuple[int, ...], *, bare: bool = False) -> None:
        self.steps, self.refs, self.bare = steps, refs, bare

    def __call__(self, *points: Tensor) -> Tensor:
        out = self._at(points)
        if self.bare:
            with torch.no_grad():
                constant = self._at([torch.zeros_like(p) for p in points])
            out = less(out, constant)
        return out

    def _at(self, points: Any) -> Tensor:
        known: dict[int, Any] = dict(zip(self.refs, points, strict=True))
        for step in self.steps:
            known[step.out] = step(known)
        out: Tensor = known[self.steps[-1].out]
        return out

    def without_constant(self) -> Sum:
        """The same sum without the constants in it."""
        return Sum(self.steps, self.refs, bare=True)


def fused(program: Program) -> Program:
    """The program with chains of sums, differences and constant factors as one step, named ``sum of terms``.

    Someone who writes relu(a) - 1 - relu(b) means one unit with three terms, not a difference of a difference. What is
    added to a layer is that layer's bias, and stays with it: kernels differ in where they add it.
    """
    made_by = {step.out: step for step in program.steps}
    biased: dict[int, bool] = {}
    uses = Counter(ref for step in program.steps for ref in all_refs(step))
    chains: dict[int, tuple[Step, ...]] = {}
    for step in program.steps:
        if not is_part(step):
            continue
        inner = [chains[i] for i in step.refs if i in chains and uses[i] == 1 and not biased.get(i)]
        chains[step.out] = (*(part for chain in inner for part in chain), step)
        sources = {i for part in chains[step.out] for i in part.refs} - {part.out for part in chains[step.out]}
        biased[step.out] = len(sources) == 1 and _from_layer(min(sources), made_by)
    absorbed = {part.out for chain in chains.values() for part in chain[:-1]}
    steps = []
    for step in program.steps:
        if step.out in absorbed:
            continue
        chain = chains.get(step.out, ())
        steps.append(step if len(chain) < 2 else _sum(step, chain))
    return Program(program.inputs, steps, program.result)


def _from_layer(index: int, made_by: dict[int, Step]) -> bool:
    """Whether a value is what a layer gave, in another place or shape."""
    while index in made_by and made_by[index].name in MOVES and len(made_by[index].refs) == 1:
        index = made_by[index].refs[0]
    return index in made_by and made_by[index].name in WEIGHTED


def _sum(last: Step, chain: tuple[Step, ...]) -> Step:
    own = {part.out for part in chain}
    refs = tuple(dict.fromkeys(i for part in chain for i in part.refs if i not in own))
    return replace(last, name="sum of terms", function=Sum(chain, refs), args=tuple(map(Ref, refs)), kwargs={})


def all_refs(step: Step) -> list[int]:
    """The arguments that depend on the input, as often as they are used."""
    return [leaf.index for leaf in pytree.tree_leaves((step.args, dict(step.kwargs))) if isinstance(leaf, Ref)]


def is_part(step: Step) -> bool:
    """Sums and differences, and factors that are constant."""
    if step.name in ("add", "sub", "rsub", "neg"):
        return True
    if len(all_refs(step)) != 1 or step.kwargs.get("rounding_mode") is not None:
        return False
    return step.name == "mul" or (step.name == "div" and isinstance(step.args[0], Ref))


def less(value: Tensor, constant: Tensor) -> Tensor:
    """A value without the constant that was added to it; nothing is left of it where that is infinite (a mask)."""
    return torch.where(constant.isfinite(), value - constant, 0)
