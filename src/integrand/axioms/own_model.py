"""Parts of an input that do nothing: told by probes, of the score and of its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..backends.torch_function import TorchFunction
from ..errors import InputError
from ..methods.method import Method
from ..trees import Leaves, flat, unflat
from .evidence import ExplainedCase, Finding, explain
from .feature_parts import Parts
from .formula_network import network

UNITS = 4
"""Units of rounding of the score by which a part may move it and still be taken for a dummy; none in half precision, where
four are a feature's worth."""

DOUBT = 100
"""How many times what was seen an attribution must be, where the score did move by some rounding."""

NAMED = 64
"""By which one that the user names may; eight in half precision."""

LINE, PROBE_ROWS = 33, 16
"""Points between baseline and input whose gradient is looked at, and how many at a time."""


@dataclass(frozen=True)
class Dummy:
    """A part that does nothing, as far as one can tell.

    Attributes:
        part: its number.
        missed: an attribution that it may have and still not show in any probe; infinite where the probes moved the score
            by some rounding and there is no gradient to tell whether it was more.
    """

    part: int
    missed: float = 0.0


def dummies(own: Own) -> tuple[list[Dummy], str]:
    """The parts that do nothing, and how that is known."""
    rows, moves, step = _probes(own)
    before = own.values(rows)
    unit = torch.finfo(own.x[0].dtype).eps * float(before.abs().max())
    parts = own.looked_at() if own.dummy is None else list(own.dummy)
    effects = {}
    for part in parts:
        where, moved = own.features_of(part), rows.clone()
        moved[:, where] = moves[:, where]
        change = (own.values(moved) - before).abs()
        effects[part] = float(change.max()) if not bool(change.isnan().any()) else float("inf")
    if own.dummy is not None:
        _refuse_false(own, effects, unit)
        return [Dummy(part) for part in parts], ", as you say"
    slopes, most = _slopes(own, rows), 0.0 if own.x[0].dtype in HALF else UNITS * unit + own.shaken()
    found = []
    for part in parts:
        where = own.features_of(part)
        hidden = 0.0 if slopes is None else float((slopes[:, where] * step[where]).sum(1).max())
        if effects[part] <= most and hidden <= most:
            # What rounding can hide: a slope of some units over the step, times the way from baseline to input.
            way = (flat(own.x) - flat(own.start))[0].cpu()[where].abs().double().clamp(min=1.0)
            height = UNITS * unit
            if effects[part]:  # it may be no dummy, and only its gradient says that it is next to one
                height = float("inf") if slopes is None else DOUBT * most
            found.append(Dummy(part, height * float((way / step[where]).sum())))
    return found, f", as far as {own.probes} probes show"


def _probes(own: Own) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs between baseline and input, the same with every feature moved, and by about how much, (features,).

    Features go to the other end and, for every other probe, on by up to their own size, also where both ends are the same.
    """
    generator = torch.Generator().manual_seed(own.seed)
    here, there = flat(own.start).cpu(), flat(own.x).cpu()  # not every device has float64
    own_size = torch.stack([(there - here)[0].abs(), here[0].abs(), there[0].abs()]).max(0).values.double()
    usual = float(own_size[own_size > 0].mean()) if bool((own_size > 0).any()) else 1.0
    least = usual / 10 if own.parts.grouped else 0.0  # a dark pixel moves as far as others of its block
    step = torch.where(own_size > least, own_size, usual)
    mixes = torch.rand(own.probes, len(own.parts) + 1, generator=generator, dtype=torch.float64)
    mixes[: own.probes // 2] = mixes[: own.probes // 2].round()
    share = mixes[:, own.parts.labels].to(here)  # label -1 takes the last column
    swapped = torch.where(share > 0.5, here, there)
    on = 0.25 + 0.75 * torch.rand(share.shape, generator=generator, dtype=torch.float64)
    beyond = ((torch.arange(own.probes) % 2 == 0)[:, None] | (here == there)) * on * step
    device = own.x[0].device
    return (here + share * (there - here)).to(device), (swapped + beyond).to(here).to(device), step


def _refuse_false(own: Own, effects: dict[int, float], unit: float) -> None:
    """Named dummies that do something."""
    most = (8 if own.x[0].dtype in HALF else NAMED) * unit + own.shaken()
    for part, effect in effects.items():
        if effect > most:
            raise InputError(
                f"got dummy={list(own.dummy or ())}, and moving {own.name_of(part)} moves the score by {effect:.3g}; expected "
                f"features that the score does not depend on. Leave {part} out of dummy=, or leave dummy= out and let probes "
                "look for them."
            )


def _slopes(own: Own, rows: Tensor) -> Tensor | None:
    """Sizes of the score's gradient at probes and between baseline and input, (N, features); None where there is none."""
    here, there = flat(own.start), flat(own.x)
    points = torch.cat([rows, here + torch.linspace(0, 1, LINE).to(here)[:, None] * (there - here)])
    found = []
    for chunk in points.split(PROBE_ROWS):
        leaves = tuple(leaf.detach().requires_grad_() for leaf in own.leaves(chunk))
        try:
            with torch.enable_grad():
                total = own.score(*leaves).sum()
                slopes = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        except RuntimeError:  # a score without a gradient: its values have to do
            return None
        found.append(flat(slopes).detach().abs().cpu().double())
    return torch.cat(found)


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
    ) -> ExplainedCase:
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
            yield name, other, WeightedSum(self.score, other, weights), weights

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


PAPER = ("relu(relu(x1) - 1 - relu(x2))", "relu(relu(x1 - 1) - relu(x2))")
"""The paper's two networks that compute the same (figure 7)."""

ANCHOR = (3.0, 1.0)
"""Where it looks at them; the baseline is at zero."""


class Scored(nn.Module):
    """One example's score as a function of its tensors alone, (N, ...) each, to (N,)."""

    def __init__(self, function: TorchFunction, row: int) -> None:
        super().__init__()
        self.function = function
        self.row = row
        if isinstance(function.call.model, nn.Module):
            self.model = function.call.model  # so that its mode and its parameters are looked after
        self.training = False  # of this module alone: the user's stays as it is

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        rows = torch.full((len(leaves[0]),), self.row, device=leaves[0].device)
        return self.function.scores(leaves, rows)


class _Around(nn.Module):
    """A module around a score."""

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score
        self.training = False

    def inner(self, leaves: Leaves) -> Tensor:
        """The score itself."""
        return cast(Tensor, self.score(*leaves))


class BothSigns(_Around):
    """The score of relu(z) - relu(-z), which is z, also in rounding.

    Features that are zero at the input, where relu has no gradient, are left as they are.
    """

    def __init__(self, score: nn.Module, like: Leaves) -> None:
        super().__init__(score)
        self.split = [(leaf != 0).to(leaf.dtype) for leaf in like]

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        pairs = zip(leaves, self.split, strict=True)
        return self.inner(tuple(on * (F.relu(leaf) - F.relu(-leaf)) + (1 - on) * leaf for leaf, on in pairs))


class PaperPair(_Around):
    """The score plus a multiple of f - g of the paper's two networks, applied to two features: plus zero.

    Attributes:
        features: their places among all features.
        starts: their values at the baseline, where the networks see (0, 0).
        spans: from there to the input, where they see (3, 1).
        size: the multiple.
    """

    def __init__(self, score: nn.Module, x: Leaves, start: Leaves, features: tuple[int, int], size: float) -> None:
        super().__init__(score)
        self.features, self.size = list(features), size
        here, there = flat(start)[0, self.features].double(), flat(x)[0, self.features].double()
        self.register_buffer("starts", here)
        self.register_buffer("factors", torch.tensor(ANCHOR, dtype=torch.float64, device=here.device) / (there - here))
        self.first, self.second = (network(text).to(here.device) for text in PAPER)
        self.first.training = self.second.training = False

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        out = self.inner(leaves)
        rows = torch.stack([flat(leaves)[:, i] for i in self.features], 1).double()
        seen = (rows - cast(Tensor, self.starts)) * cast(Tensor, self.factors)
        nothing = cast(Tensor, self.first(seen) - self.second(seen))
        return out + self.size * nothing.to(out.dtype)


class WeightedSum(_Around):
    """A weighted sum of two scores."""

    def __init__(self, score: nn.Module, other: nn.Module, weights: tuple[float, float]) -> None:
        super().__init__(score)
        self.other, self.weights = other, weights

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        first, second = self.inner(leaves), cast(Tensor, self.other(*leaves))
        return self.weights[0] * first + self.weights[1] * second.to(first.dtype)


class Random(nn.Module):
    """A linear function of the features, of about a given size at the input."""

    def __init__(self, x: Leaves, start: Leaves, size: float, generator: torch.Generator) -> None:
        super().__init__()
        span = flat(x)[0] - flat(start)[0]
        weight = torch.randn(len(span), generator=generator, dtype=torch.float64).to(span)
        weight = weight * (size / (float((weight * span).abs().sum()) or 1.0))
        self.register_buffer("weight", weight[None])
        self.training = False

    def forward(self, *leaves: Tensor) -> Tensor:
        """Its values."""
        return F.linear(flat(leaves), cast(Tensor, self.weight)).squeeze(1)


class Mirrored(_Around):
    """F(x) + F(x with features swapped)."""

    def __init__(self, score: nn.Module, order: Tensor) -> None:
        super().__init__(score)
        self.register_buffer("order", order)

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        rows = flat(leaves).index_select(1, cast(Tensor, self.order))
        swapped = unflat(rows, [leaf.shape[1:] for leaf in leaves])
        parts = tuple(part.to(leaf.dtype) for part, leaf in zip(swapped, leaves, strict=True))
        return self.inner(leaves) + self.inner(parts)


def as_input(leaves: Leaves) -> Any:
    """What a method takes: one tensor as it is, several as a tuple."""
    return leaves[0] if len(leaves) == 1 else leaves
