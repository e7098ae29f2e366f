"""A model's program, made ready to run at nodes and to be gone back through over segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._trees import Leaves
from ..operations import Kind, Program, Step, bound, kind_of, sweep
from ..operations._program import Values
from ..operations._sweep import Handed, no_rule
from ._rules import Workspace, mean_slopes, needs_output, supported

LINEAR = (Kind.MOVE, Kind.LINEAR)

_DO = "Expected sums, products, maxima, softmax and pointwise functions."


@dataclass(frozen=True, eq=False)
class SecantProgram:
    """A program for a fixed number of rows.

    Attributes:
        program: the operations; the last of its inputs says which examples the rows are.
        kinds: what kind of operation each step is, by its place.
        kept: values that going back needs.
        last_use: for each step, the values that nothing after it uses.
        transposes: for each linear step, how it hands back.
        value_bytes: bytes that the kept values of all rows take.
        space: memory to work in.
    """

    program: Program
    kinds: dict[int, Kind]
    kept: frozenset[int]
    last_use: dict[int, list[int]]
    transposes: dict[int, Transpose] = field(repr=False)
    value_bytes: int
    space: Workspace = field(default_factory=Workspace, repr=False)

    @staticmethod
    def prepare(program: Program, leaves: Leaves) -> tuple[SecantProgram, Values]:
        """A program made ready, and all of its values at some inputs.

        Raises:
            OperationError: an operation has no rule.
        """
        rows = program.inputs - 1
        now = bound(program, rows, leaves[-1])
        values = now.run(leaves)
        kinds, kept = {}, set()
        for step in now.steps:
            kind = kinds[step.out] = kind_of(step, values)
            if step.picks or kind in LINEAR:
                continue
            if not supported(step, kind):
                raise no_rule("segment secants", step, values, do=_DO)
            kept |= {*step.refs, step.out} if needs_output(step, kind) else set(step.refs)
        kept.add(program.result)
        scratch = _scratch(values)
        transposes = {s.out: Transpose(s, values, scratch) for s in now.steps if kinds[s.out] in LINEAR and not s.picks}
        size = sum(part.nbytes for i in kept for part in _tensors(values[i]))
        return SecantProgram(program, kinds, frozenset(kept), _last_uses(now), transposes, size), values

    def bind(self, rows: Tensor) -> Bound:
        """The program for some examples."""
        program = self.program
        if any(program.inputs - 1 in step.refs for step in program.steps):
            program = bound(program, program.inputs - 1, rows)
        return Bound(self, program, rows)


@dataclass(frozen=True, eq=False)
class Bound:
    """A program for the examples ``rows``."""

    own: SecantProgram
    program: Program
    rows: Tensor

    def forward(self, points: Leaves) -> Values:
        """Values at nodes, (rows, ...) each; only those that are needed again."""
        values: Values = [*points, self.rows, *[None] * (self.program.size - self.program.inputs)]
        with torch.no_grad():
            for step in self.program.steps:
                values[step.out] = step(values)
                for index in self.own.last_use.get(step.out, ()):
                    if index not in self.own.kept:
                        values[index] = None
        return values

    def scores(self, values: Values) -> Tensor:
        """The scores among the values, (rows,)."""
        return self.program.scores(values)

    def back(self, first: Values, last: Values, shapes: Leaves) -> Leaves:
        """Mean slopes of the scores between two sets of nodes, row by row; ``shapes`` are tensors like the points."""

        def rule(step: Step, arrived: Any) -> Handed:
            kind = self.own.kinds[step.out]
            if kind not in LINEAR:
                with torch.no_grad():
                    return mean_slopes(step, first, last, arrived, kind, self.own.space)
            transpose = self.own.transposes[step.out]
            if transpose.step is not step:
                transpose = Transpose(step, transpose.shapes, transpose.scratch)
            return transpose(arrived)

        seed = torch.ones_like(self.program.scores(first))
        return sweep(self.program, seed, rule, [*shapes, self.rows])[: len(shapes)]


class Transpose:
    """How a linear step hands back: autograd's graph of it, recorded once, without the values that it does not depend on."""

    def __init__(self, step: Step, values: Any, scratch: Tensor) -> None:
        self.step, self.scratch = step, scratch
        self.shapes = {i: _shape(values[i]) for i in step.refs}
        points: dict[int, Any] = {i: self._place(i) for i in step.refs}
        self.leaves = {i: p for i, p in points.items() if isinstance(p, Tensor)}
        with torch.enable_grad():
            out = step(points)
        parts = out if isinstance(out, tuple) else (out,)
        self.edges = [torch.autograd.graph.get_gradient_edge(p) if p.requires_grad else None for p in parts]

    def _place(self, index: int) -> Tensor:
        size, stride, dtype = self.shapes[index]
        return self.scratch.view(dtype).as_strided(size, stride).detach().requires_grad_(True)

    def __call__(self, arrived: Any) -> Handed:
        pairs = arrived.items() if isinstance(arrived, dict) else [(0, arrived)]
        used = [(edge, seed) for slot, seed in pairs if (edge := self.edges[slot]) is not None]
        edges, seeds = [edge for edge, _ in used], [seed for _, seed in used]
        found = torch.autograd.grad(edges, list(self.leaves.values()), seeds, retain_graph=True, allow_unused=True)
        return [(i, g) for i, g in zip(self.leaves, found, strict=True) if g is not None]


Shape = tuple[torch.Size, tuple[int, ...], torch.dtype]


def _shape(value: Any) -> Shape:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, Tensor) else value


def _tensors(value: Any) -> list[Tensor]:
    return [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Tensor)]


def _scratch(values: Values) -> Tensor:
    """Memory that stands for any value in graphs of linear steps; nothing reads it."""
    parts = [part for value in values for part in _tensors(value)]
    widest = max(part.untyped_storage().nbytes() for part in parts)
    return torch.zeros(-(-widest // 16) * 16, dtype=torch.uint8, device=parts[0].device)


def _last_uses(program: Program) -> dict[int, list[int]]:
    seen: set[int] = set()
    out: dict[int, list[int]] = {}
    for step in reversed(program.steps):
        new = [i for i in step.refs if i not in seen]
        seen.update(new)
        out[step.out] = new
    return out
