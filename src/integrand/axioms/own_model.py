"""One example of a user's model as the axioms see it: its parts, the cases to try on it, and models wrapped around it."""

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
from ..trees import Leaves, Tensors, Tree, flat, matched, unflat
from .evidence import ExplainedCase, Finding, explain
from .formula_network import network

ROWS = 64
"""How many rows a model is given at a time: enough to be quick, few enough to fit beside a large model."""

HALF = dict.fromkeys((torch.float16, torch.bfloat16), 16.0)
"""How many units of rounding a score may be off by in half precision: the thousand of other precisions would be all of it."""

PAPER = ("relu(relu(x1) - 1 - relu(x2))", "relu(relu(x1 - 1) - relu(x2))")
"""The two networks of the paper that compute the same function (figure 7)."""

ANCHOR = (3.0, 1.0)
"""The input at which the paper compares the two networks of :data:`PAPER`; its baseline is zero."""

MOST_SINGLE = 64
"""Up to this many features each is looked at on its own; more are put into blocks."""

GRID, BLOCKS = 4, 16
"""Images are cut into 4 x 4 patches, other inputs into 16 stretches: few enough to look at every one."""


@dataclass(frozen=True)
class Trial:
    """One case of an axiom on a user's model, and what was found.

    Attributes:
        finding: what was found on the case.
        options: the arguments of :func:`check` that lead to this case again.
        note: what the verdict should say of the case where the axiom is kept.
        x: the input, where it is not the user's own.
        start: the baseline, where it is not the user's own.
    """

    finding: Finding
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    x: Leaves | None = None
    start: Leaves | None = None


@dataclass(frozen=True)
class OwnExample:
    """One example of a user's model, and the cases of the axioms that can be tried on it.

    Attributes:
        score: the score of the example as a function of its tensors.
        x: the tensors of the input, (1, ...) each.
        start: the tensors of the baseline, (1, ...) each.
        parts: what counts as a feature.
        others: scores of further outputs of the model, by name.
        equals: the model that the user says computes the same.
        dummy: numbers of the parts that the user says do nothing.
        chosen: numbers of the parts to look at; all, if not given.
        moves: how many single parts to move, and pairs to swap, at most.
        probes: how many inputs to look for dummy parts with.
        seed: the seed of what is drawn.
    """

    score: nn.Module
    x: Leaves
    start: Leaves
    parts: FeatureParts
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
        """An attribution with a value for each part: of the score or of a model in its place, at x and start or elsewhere.

        Features in no part count as one more, the last, so that the values account for all of the score.
        """
        point, base = as_input(x or self.x), as_input(start or self.start)
        if model is not None or x is not None:
            return explain(method, model or self.score, point, base, self._groups())
        if repr(method) not in self._made:  # the same for every axiom
            self._made[repr(method)] = explain(method, self.score, point, base, self._groups())
        return self._made[repr(method)]  # type: ignore[no-any-return]

    def _groups(self) -> Any:
        """The part of every feature as labels for ``groups=``; None where each feature is a part of its own."""
        if not self.parts.grouped:
            return None
        labels = unflat(self.parts.whole()[None].to(self.x[0].device), [leaf.shape[1:] for leaf in self.x])
        return as_input(tuple(label[0] for label in labels))

    def features_of(self, part: int) -> Tensor:
        """The positions of a part's features among all features."""
        return self.parts.where(part)

    def name_of(self, part: int) -> str:
        """The name of a part, for messages."""
        return self.parts.names[part]

    def leaves(self, rows: Tensor) -> Leaves:
        """Rows of all features, (N, features), in the shapes and dtypes that the model takes."""
        shaped = unflat(rows, [leaf.shape[1:] for leaf in self.x])
        return tuple(part.to(leaf.dtype) for part, leaf in zip(shaped, self.x, strict=True))

    def values(self, rows: Tensor, model: nn.Module | None = None) -> Tensor:
        """Scores at rows of features, (N,) in float64."""
        with torch.no_grad():
            found = [(model or self.score)(*self.leaves(part)) for part in rows.split(ROWS)]
        return torch.cat(found).double().cpu()

    def looked_at(self) -> list[int]:
        """The numbers of the parts to look at: those the user chose, else all."""
        there = {int(label) for label in self.parts.labels.unique()}  # labels may leave numbers out
        return [part for part in (range(len(self.parts)) if self.chosen is None else self.chosen) if part in there]

    def noise(self) -> float:
        """By how much two scores may differ from rounding alone, of the score itself and of what cancels inside the model."""
        if "noise" not in self._made:
            generator = torch.Generator().manual_seed(self.seed)
            here, there, eps = flat(self.start), flat(self.x), torch.finfo(self.x[0].dtype).eps
            share = torch.rand(4 * self.probes, here.shape[1], generator=generator, dtype=torch.float64).to(here)
            rows = torch.cat([here, there, here + share * (there - here)])
            sign = (torch.randint(0, 2, rows.shape, generator=generator) * 2 - 1).to(rows)
            values = self.values(rows)
            nearby = self.values(rows + sign * eps * float(rows.abs().max() or 1.0))
            change = 8 * float((values - nearby).abs().max())  # what a few dozen probes show, with a margin
            # A change far above the precision is a jump of the score, not rounding of its input.
            self._made["input_noise"] = min(change, 64 * eps * max(float(values.abs().max()), float(rows.abs().max())))
            size = HALF.get(self.x[0].dtype, 1e3) * eps * float(values[:2].abs().max())
            self._made["noise"] = size + change
        return float(self._made["noise"])

    def input_noise(self) -> float:
        """The part of :meth:`noise` that comes from rounding the input."""
        self.noise()
        return float(self._made["input_noise"])

    def rounding_change(self, method: Method) -> float:
        """By how much an attribution may differ in all when its input is rounded otherwise: four times what two tries show."""
        one, generator = self.explain(method), torch.Generator().manual_seed(self.seed)
        gaps = []
        for _ in range(2):
            rounded_input = []
            for leaf in self.x:
                sign = (torch.randint(0, 2, leaf.shape, generator=generator) * 2 - 1).to(leaf)
                rounded_input.append(leaf + sign * torch.finfo(leaf.dtype).eps * (float(leaf.abs().max()) or 1.0))
            gaps.append(float((self.explain(method, x=tuple(rounded_input)).values - one.values).abs().sum()))
        return 4 * max(gaps)

    def single_feature_moves(self) -> Iterator[tuple[int, Leaves, Leaves]]:
        """Inputs and baselines that differ in one part, which alone is at x or alone at the baseline; largest effects first."""
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
        """Models that compute the same as the score, by name: the user's equivalent one, else wrappers that provably do."""
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
        """Refuse an equivalent model whose scores differ from the model's by more than rounding."""
        generator = torch.Generator().manual_seed(self.seed)
        share = torch.cat([torch.zeros(1), torch.ones(1), torch.rand(14, generator=generator)])[:, None].to(flat(self.x))
        rows = flat(self.start) + share * (flat(self.x) - flat(self.start))
        gap = float((self.values(rows) - self.values(rows, other)).abs().max())
        # Two models that compute the same round differently: allow ten times what one of them shows on its own.
        if gap > 10 * self.noise():
            raise InputError(
                f"the equivalent model differs from the model by {gap:.3g} between baseline and input; expected models that "
                "compute the same up to rounding."
            )

    def weighted_sums(self) -> Iterator[tuple[str, nn.Module, nn.Module, tuple[float, float]]]:
        """Other scores, each with its name, the weighted sum of the score and it, and the weights."""
        weights = (2.0, -1.5)
        ends = self.values(torch.cat([flat(self.x), flat(self.start)]))
        size = float((ends[0] - ends[1]).abs()) or 1.0
        line = RandomLinear(self.x, self.start, size, torch.Generator().manual_seed(self.seed))
        for name, other in [*self.others, ("a random linear function", line)]:
            yield name, other, WeightedSum(self.score, other, weights), weights

    def symmetrised(self) -> Iterator[tuple[int, int, nn.Module, Leaves, Leaves]]:
        """Pairs of parts, with the score made symmetric in them, and an input and a baseline where the two are alike."""
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
                yield first, second, Symmetrised(self.score, order), self.leaves(x), self.leaves(start)


class Scored(nn.Module):
    """The score of one example as a module of its tensors alone, (N, ...) each, to (N,)."""

    def __init__(self, function: TorchFunction, row: int) -> None:
        super().__init__()
        self.function = function
        self.row = row
        if isinstance(function.call.model, nn.Module):
            self.model = function.call.model  # so that its mode and its parameters are looked after
        self.training = False  # of this module alone: the user's stays as it is

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores at rows of tensors, (N,)."""
        rows = torch.full((len(leaves[0]),), self.row, device=leaves[0].device)
        return self.function.scores(leaves, rows)


class _WrappedScore(nn.Module):
    """The base of modules that compute something from a score."""

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score
        self.training = False

    def inner(self, leaves: Leaves) -> Tensor:
        """The score that is wrapped, at some tensors."""
        return cast(Tensor, self.score(*leaves))


class BothSigns(_WrappedScore):
    """The score with every feature z replaced by relu(z) - relu(-z), which is z to the last digit.

    Features that are zero at the input, where relu has no gradient, are left as they are.
    """

    def __init__(self, score: nn.Module, like: Leaves) -> None:
        super().__init__(score)
        self.split = [(leaf != 0).to(leaf.dtype) for leaf in like]

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores at rows of tensors, (N,)."""
        pairs = zip(leaves, self.split, strict=True)
        return self.inner(tuple(on * (F.relu(leaf) - F.relu(-leaf)) + (1 - on) * leaf for leaf, on in pairs))


class PaperPair(_WrappedScore):
    """The score plus a multiple of f - g of the paper's two networks, applied to two features: plus zero.

    Attributes:
        features: the positions of the two features among all features.
        starts: the values of the two at the baseline, where the networks see (0, 0).
        factors: what scales the two so that the networks see (3, 1) at the input.
        size: the multiple of f - g.
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
        """The scores at rows of tensors, (N,)."""
        out = self.inner(leaves)
        rows = torch.stack([flat(leaves)[:, i] for i in self.features], 1).double()
        seen = (rows - cast(Tensor, self.starts)) * cast(Tensor, self.factors)
        nothing = cast(Tensor, self.first(seen) - self.second(seen))
        return out + self.size * nothing.to(out.dtype)


class WeightedSum(_WrappedScore):
    """A weighted sum of two scores."""

    def __init__(self, score: nn.Module, other: nn.Module, weights: tuple[float, float]) -> None:
        super().__init__(score)
        self.other, self.weights = other, weights

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores at rows of tensors, (N,)."""
        first, second = self.inner(leaves), cast(Tensor, self.other(*leaves))
        return self.weights[0] * first + self.weights[1] * second.to(first.dtype)


class RandomLinear(nn.Module):
    """A random linear function of the features, of about a given size at the input."""

    def __init__(self, x: Leaves, start: Leaves, size: float, generator: torch.Generator) -> None:
        super().__init__()
        span = flat(x)[0] - flat(start)[0]
        weight = torch.randn(len(span), generator=generator, dtype=torch.float64).to(span)
        weight = weight * (size / (float((weight * span).abs().sum()) or 1.0))
        self.register_buffer("weight", weight[None])
        self.training = False

    def forward(self, *leaves: Tensor) -> Tensor:
        """The values of the linear function at rows of tensors, (N,)."""
        return F.linear(flat(leaves), cast(Tensor, self.weight)).squeeze(1)


class Symmetrised(_WrappedScore):
    """A score made symmetric: F(x) + F(x with two parts swapped)."""

    def __init__(self, score: nn.Module, order: Tensor) -> None:
        super().__init__(score)
        self.register_buffer("order", order)

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores at rows of tensors, (N,)."""
        rows = flat(leaves).index_select(1, cast(Tensor, self.order))
        swapped = unflat(rows, [leaf.shape[1:] for leaf in leaves])
        parts = tuple(part.to(leaf.dtype) for part, leaf in zip(swapped, leaves, strict=True))
        return self.inner(leaves) + self.inner(parts)


def as_input(leaves: Leaves) -> Any:
    """Tensors in the form that a method takes them: a single one as it is, several as a tuple."""
    return leaves[0] if len(leaves) == 1 else leaves


@dataclass(frozen=True)
class FeatureParts:
    """The features of an example by the part that they belong to: a group, a block or a single number.

    Attributes:
        labels: (features,) the part of each feature, -1 for none.
        names: the names of the parts, for messages.
        grouped: whether a part may have several features, so that methods are to explain parts.
    """

    labels: Tensor
    names: tuple[str, ...]
    grouped: bool = True

    def __len__(self) -> int:
        return len(self.names)

    def where(self, part: int) -> Tensor:
        """The positions of the features of a part."""
        return (self.labels == part).nonzero().flatten()

    def whole(self) -> Tensor:
        """The labels without -1: features that belong to no part make up one more, the last."""
        return torch.where(self.labels < 0, len(self), self.labels)


def parts_of(leaves: Leaves, tree: Tree, groups: Tensors | None) -> FeatureParts:
    """The parts of an example: the user's groups, else every feature, or blocks of features where there are many.

    Args:
        leaves: the tensors of one example, (1, ...) each.
        tree: the structure that the tensors come in.
        groups: integer labels in the structure of one example.
    """
    if groups is not None:
        labels = matched(groups, tree, what="groups")
        if any(label.dtype.is_floating_point or label.dtype == torch.bool for label in labels):
            raise InputError(f"groups has dtype {labels[0].dtype}; expected integers, -1 for features to leave out.")
        wide = flat([label.expand(leaf.shape[1:])[None] for label, leaf in zip(labels, leaves, strict=True)])[0].cpu()
        return FeatureParts(wide.long(), tuple(f"group {i}" for i in range(int(wide.max()) + 1)))
    if sum(leaf[0].numel() for leaf in leaves) <= MOST_SINGLE:
        names = [name for suffix, leaf in zip(tree.names, leaves, strict=True) for name in _entries(suffix, leaf)]
        return FeatureParts(torch.arange(len(names)), tuple(names), grouped=False)
    blocks, names = [], []
    for suffix, leaf in zip(tree.names, leaves, strict=True):
        own = _blocks(leaf[0])
        blocks.append((own + len(names)).flatten())
        names += [f"block {i} of x{suffix}" for i in range(int(own.max()) + 1)]
    return FeatureParts(torch.cat(blocks), tuple(names))


def _entries(suffix: str, leaf: Tensor) -> list[str]:
    """The names of the single numbers of one tensor, such as ``x[2, 0]``."""
    if leaf[0].ndim == 0:
        return [f"x{suffix}"]
    places = torch.ones_like(leaf[0], device="cpu").nonzero().tolist()
    return [f"x{suffix}[{', '.join(map(str, place))}]" for place in places]


def _blocks(row: Tensor) -> Tensor:
    """Block labels for one example: the patches of an image over all its colours, or equal stretches of any other input."""
    if row.ndim == 3 and min(row.shape[1:]) >= 2 * GRID:
        down, across = (torch.arange(size) * GRID // size for size in row.shape[1:])
        return (down[:, None] * GRID + across).expand(row.shape)
    count = row.numel()
    return (torch.arange(count) * min(BLOCKS, count) // count).reshape(row.shape)
