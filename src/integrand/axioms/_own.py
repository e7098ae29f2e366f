"""The user's own model: one example of it, with what the axioms ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._trees import Leaves, flat, unflat
from ..errors import InputError
from ..methods import Method
from ._evidence import Explained, Finding, explain
from ._parts import Parts
from ._wrappers import BothSigns, Mirrored, PaperPair, Random, Sum, as_input

ROWS = 64
"""Probes that are run at a time."""

HALF = dict.fromkeys((torch.float16, torch.bfloat16), 16.0)
"""Units of rounding that a score may be off by in half precision, where the thousand of the others would be all of it."""


@dataclass(frozen=True)
class Trial:
    """One case on a user's model.

    Attributes:
        finding: how it was judged.
        options: of :func:`check`, that lead to it again.
        note: what a kept verdict should say of it.
        x: the input, where it is not the user's own.
        start: the baseline, likewise.
    """

    finding: Finding
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    x: Leaves | None = None
    start: Leaves | None = None


@dataclass(frozen=True)
class Own:
    """One example of a user's model.

    Attributes:
        score: its score as a function of its tensors.
        x: the input, (1, ...) each.
        start: the baseline, likewise.
        parts: what counts as a feature.
        others: further outputs, by name.
        equals: what the user says computes the same.
        dummy: parts that the user says do nothing.
        chosen: parts to look at; all, if not given.
        moves: inputs with a single feature moved, at the most, of each kind.
        probes: inputs to look for dummies with.
        seed: of what is drawn.
    """

    score: nn.Module
    x: Leaves
    start: Leaves
    parts: Parts
    others: Sequence[tuple[str, nn.Module]] = ()
    equals: nn.Module | None = None
    dummy: Sequence[int] | None = None
    chosen: Sequence[int] | None = None
    moves: int = 4
    probes: int = 16
    seed: int = 0
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def explain(
        self, method: Method, model: nn.Module | None = None, *, x: Leaves | None = None, start: Leaves | None = None
    ) -> Explained:
        """An attribution of the score, or of a module in its place, here or elsewhere: a value for each part.

        Features in no part count as one more, the last, so that the values account for all of the score.
        """
        point, base = as_input(x or self.x), as_input(start or self.start)
        if model is not None or x is not None:
            return explain(method, model or self.score, point, base, self._groups())
        if repr(method) not in self._made:  # the same for every axiom
            self._made[repr(method)] = explain(method, self.score, point, base, self._groups())
        return self._made[repr(method)]  # type: ignore[no-any-return]

    def _groups(self) -> Any:
        """The part of every feature, for a method; None where each is its own."""
        if not self.parts.grouped:
            return None
        labels = unflat(self.parts.whole()[None].to(self.x[0].device), [leaf.shape[1:] for leaf in self.x])
        return as_input(tuple(label[0] for label in labels))

    def features_of(self, part: int) -> Tensor:
        """The places of a part's features."""
        return self.parts.where(part)

    def name_of(self, part: int) -> str:
        """A part's name."""
        return self.parts.names[part]

    def leaves(self, rows: Tensor) -> Leaves:
        """Rows of all features, (N, features), as the model takes them."""
        shaped = unflat(rows, [leaf.shape[1:] for leaf in self.x])
        return tuple(part.to(leaf.dtype) for part, leaf in zip(shaped, self.x, strict=True))

    def values(self, rows: Tensor, model: nn.Module | None = None) -> Tensor:
        """Scores at rows of features, (N,) in float64."""
        with torch.no_grad():
            found = [(model or self.score)(*self.leaves(part)) for part in rows.split(ROWS)]
        return torch.cat(found).double().cpu()

    def looked_at(self) -> list[int]:
        """The parts to look at."""
        there = {int(label) for label in self.parts.labels.unique()}  # labels may leave numbers out
        return [part for part in (range(len(self.parts)) if self.chosen is None else self.chosen) if part in there]

    def noise(self) -> float:
        """By how much scores may differ by rounding alone: of the score, and of what cancels in it."""
        if "noise" not in self._made:
            generator = torch.Generator().manual_seed(self.seed)
            here, there, eps = flat(self.start), flat(self.x), torch.finfo(self.x[0].dtype).eps
            share = torch.rand(4 * self.probes, here.shape[1], generator=generator, dtype=torch.float64).to(here)
            rows = torch.cat([here, there, here + share * (there - here)])
            sign = (torch.randint(0, 2, rows.shape, generator=generator) * 2 - 1).to(rows)
            values = self.values(rows)
            nearby = self.values(rows + sign * eps * float(rows.abs().max() or 1.0))
            moved = 8 * float((values - nearby).abs().max())
            # A score that jumps is no score that rounds: what rounding does is of the size of what is rounded.
            self._made["shaken"] = min(moved, 64 * eps * max(float(values.abs().max()), float(rows.abs().max())))
            size = HALF.get(self.x[0].dtype, 1e3) * eps * float(values[:2].abs().max())
            self._made["noise"] = size + moved
        return float(self._made["noise"])

    def shaken(self) -> float:
        """The share of the noise that comes from rounding the input."""
        self.noise()
        return float(self._made["shaken"])

    def wobble(self, method: Method) -> float:
        """By how much an attribution may differ in all when its input is rounded differently: four times what was seen."""
        one, generator = self.explain(method), torch.Generator().manual_seed(self.seed)
        gaps = []
        for _ in range(2):
            moved = []
            for leaf in self.x:
                sign = (torch.randint(0, 2, leaf.shape, generator=generator) * 2 - 1).to(leaf)
                moved.append(leaf + sign * torch.finfo(leaf.dtype).eps * (float(leaf.abs().max()) or 1.0))
            gaps.append(float((self.explain(method, x=tuple(moved)).values - one.values).abs().sum()))
        return 4 * max(gaps)

    def single_moves(self) -> Iterator[tuple[int, Leaves, Leaves]]:
        """Inputs and baselines that differ in one part: it alone arrives, or it alone is missing; largest effects first."""
        here, there = flat(self.start), flat(self.x)
        parts = [part for part in self.looked_at() if bool((here != there)[0, self.features_of(part)].any())]
        if not parts:
            return
        for base, other, arrives in ((here, there, True), (there, here, False)):
            rows = base.repeat(len(parts), 1)
            for k, part in enumerate(parts):
                where = self.features_of(part)
                rows[k, where] = other[0, where]
            effects = (self.values(rows) - self.values(base)).abs()
            for k in effects.argsort(descending=True)[: self.moves].tolist():
                if effects[k] > self.noise():
                    ends = (rows[k : k + 1], base) if arrives else (base, rows[k : k + 1])
                    yield parts[k], self.leaves(ends[0]), self.leaves(ends[1])

    def equivalents(self) -> Iterator[tuple[str, nn.Module]]:
        """What computes the same as the score: the user's own, else wrappers that provably do."""
        if self.equals is not None:
            self._agree(self.equals)
            yield "the equivalent model", self.equals
            return  # that is what was asked
        yield "its inputs as relu(z) - relu(-z)", BothSigns(self.score, self.x)
        span = (flat(self.x) - flat(self.start))[0].abs()
        order, whole = span.argsort(descending=True).cpu(), self.parts.whole()
        apart = order[(whole[order] != whole[order[0]]) & (span.cpu()[order] > 0)]  # within a part the two would cancel
        if len(apart):
            first, second = int(order[0]), int(apart[0])
            ends = self.values(torch.cat([flat(self.x), flat(self.start)]))
            size = float((ends[0] - ends[1]).abs()) or 1.0
            pair = PaperPair(self.score, self.x, self.start, (first, second), size)
            yield f"itself + {size:.4g} (f - g) of the paper's pair, on features {first} and {second}", pair

    def _agree(self, other: nn.Module) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        share = torch.cat([torch.zeros(1), torch.ones(1), torch.rand(14, generator=generator)])[:, None].to(flat(self.x))
        rows = flat(self.start) + share * (flat(self.x) - flat(self.start))
        gap = float((self.values(rows) - self.values(rows, other)).abs().max())
        # Two ways to compute the same round differently: ten times what one way does on its own.
        if gap > 10 * self.noise():
            raise InputError(
                f"the equivalent model differs from the model by {gap:.3g} between baseline and input; expected models that "
                "compute the same up to rounding."
            )

    def sums(self) -> Iterator[tuple[str, nn.Module, nn.Module, tuple[float, float]]]:
        """Another score, its weighted sum with this one, and the weights."""
        weights = (2.0, -1.5)
        ends = self.values(torch.cat([flat(self.x), flat(self.start)]))
        size = float((ends[0] - ends[1]).abs()) or 1.0
        line = Random(self.x, self.start, size, torch.Generator().manual_seed(self.seed))
        for name, other in [*self.others, ("a random linear function", line)]:
            yield name, other, Sum(self.score, other, weights), weights

    def mirrored(self) -> Iterator[tuple[int, int, nn.Module, Leaves, Leaves]]:
        """Pairs of parts, the score made symmetric in them, and an input and a baseline where both are alike."""
        here, there = flat(self.start), flat(self.x)
        change = (there - here)[0].abs()
        parts = [part for part in self.looked_at() if bool(change[self.features_of(part)].any())]
        if self.chosen is None:
            parts.sort(key=lambda part: -float(change[self.features_of(part)].sum()))
        pairs = [
            (a, b) for i, a in enumerate(parts) for b in parts[i + 1 :] if len(self.features_of(a)) == len(self.features_of(b))
        ]
        for first, second in pairs[: self.moves]:
            order = torch.arange(there.shape[1])
            one, two = self.features_of(first), self.features_of(second)
            order[one], order[two] = two, one
            order = order.to(there.device)
            x, start = ((rows + rows[:, order]) / 2 for rows in (there, here))
            if not torch.equal(x, start):
                yield first, second, Mirrored(self.score, order), self.leaves(x), self.leaves(start)
