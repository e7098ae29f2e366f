"""Sensitivity-n: do sums of attributions go with what removing those features does to the score?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from .._files import write
from .._trees import Tensors
from ..attribution import Attribution
from ..baselines import Baseline
from ..errors import MissingExtraError, OptionError
from ..functions import Score, Target
from ._plain import finite
from ._ranks import Floats, mean_over_examples
from ._removal import CAUTION, Removal, at_least, removing
from ._settings import Settings
from ._text import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class SensitivityN:
    """For several n, the correlation over subsets of n features between their attributions' sum and the score they take along.

    Mind :attr:`caution`.

    Attributes:
        sizes: n, the number of features (or groups) removed together, (sizes,).
        correlations: Pearson's, (examples, sizes); NaN where sums or scores do not vary, as when everything is removed.
        errors: standard errors of the correlations by the jackknife, (examples, sizes); 0 where all subsets were tried.
        counts: how many subsets were tried of each size, (sizes,).
        complete: whether those were all there are, (sizes,).
        units: how many features, or groups, there are.
        seed: of the subsets.
        targets: what was explained, one text per example.
    """

    sizes: NDArray[np.int64]
    correlations: Floats
    errors: Floats
    counts: NDArray[np.int64]
    complete: NDArray[np.bool_]
    units: int
    seed: int
    targets: tuple[str, ...]

    caution = CAUTION

    @property
    def mean(self) -> Floats:
        """Correlations averaged over the examples where they are known, (sizes,)."""
        return mean_over_examples(self.correlations)

    def __str__(self) -> str:
        rows = [("n", "subsets", *(f"[{i}] {target}" for i, target in enumerate(self.targets)))]
        for k, n in enumerate(self.sizes):
            found = [
                "–" if math.isnan(r) else f"{r:.3f} ± {e:.3f}"
                for r, e in zip(self.correlations[:, k], self.errors[:, k], strict=True)
            ]
            rows.append((str(n), f"{self.counts[k]}{' (all)' if self.complete[k] else ''}", *found))
        head = (
            f"sensitivity-n of {self.units} features: correlation of sums of attributions with what removal does to the score"
        )
        unknown = ["–: sums or scores do not vary, so that there is no correlation"] * bool(np.isnan(self.correlations).any())
        return "\n".join([head, *aligned(rows, left=()), *unknown, CAUTION])

    __repr__ = __str__

    def figure(
        self, *, name: str = "attribution", others: Mapping[str, SensitivityN] | None = None, title: str | None = None
    ) -> Figure:
        """Draw the correlations over n with their standard errors, one panel per example, with the caution under it.

        Args:
            name: what the curve is called.
            others: further ones of the same examples, by name.
            title: a heading.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        found = {name: self} | dict(others or {})
        for other, one in found.items():
            if len(one.targets) != len(self.targets):
                raise OptionError(f"others[{other!r}] has {len(one.targets)} example(s); expected {len(self.targets)}.")
        try:
            from ._plots import draw_sensitivity
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing sensitivity-n") from None
        return draw_sensitivity(found, title)

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write ``.json``, or a picture: ``.png``, ``.svg`` or ``.pdf`` with the options of :meth:`figure`."""
        return write(FilePath(path), options, picture=self.figure, numbers=self.to_dict)

    def to_dict(self) -> dict[str, Any]:
        """The numbers for JSON; what is NaN becomes None."""
        out: dict[str, Any] = {
            "sizes": self.sizes,
            "correlations": self.correlations,
            "standard_errors": self.errors,
            "subsets": self.counts,
            "all_subsets": self.complete,
            "units": self.units,
            "seed": self.seed,
            "targets": list(self.targets),
            "caution": CAUTION,
        }
        return {name: finite(value) for name, value in out.items()}


def sensitivity_n(
    model: Callable[..., Any],
    x: Tensors,
    attribution: Attribution | Tensors,
    baseline: Baseline = None,
    *,
    sizes: Sequence[int] | None = None,
    subsets: int = 100,
    seed: int = 0,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    **settings: Unpack[Settings],
) -> SensitivityN:
    """Whether sums of attributions go with what removing those features does to the score (Ancona et al., 2018).

    For random subsets of n features: the correlation between the sum of their attributions and F(x) - F(x without them).
    It is 1 for every n where the model is linear and the method complete. What it measures is the model as much as the
    method: inputs with features missing are unlike what the network was trained on, "missing" means set to the baseline,
    and on a model with interactions no attribution reaches 1 for every n.

    >>> import torch
    >>> weights = torch.tensor([3.0, 2.0, -1.0])
    >>> found = sensitivity_n(lambda x: x @ weights, torch.ones(1, 3), weights[None], sizes=[1, 2])
    >>> found.correlations.round(6).tolist()
    [[1.0, 1.0]]

    Args:
        model: an ``nn.Module`` in eval mode, or any callable of tensors.
        x: the input.
        attribution: a result, or values in the structure of x; with ``groups``, one number per group will do. A result
            has to be of the same target, score and baseline as asked here; plain values cannot be checked.
        baseline: what features are set to; zero if not given. Scores of several baselines are averaged.
        sizes: the n to try; by default up to ten from 1 to four fifths of the features, evenly spaced in their logarithm.
        subsets: how many subsets of each size to draw, at least 3; all of them where there are no more.
        seed: of the subsets. Examples share them.
        target: the output to explain; None means the only output, else the top class of x.
        score: logit, probability or log-probability.
        groups: integer labels in the structure of one example: what is removed together; -1 always stays.
        **settings: how the model is called; see :class:`Settings`.
    """
    at_least("subsets", subsets, 3)
    with removing(model, x, baseline, target, score, groups, **settings) as removal:
        values = removal.values_of(attribution)
        chosen = _sizes(sizes, removal.units)
        generator = np.random.default_rng(seed)
        count = len(values)
        whole = removal.scores(np.arange(count), lambda rows: np.zeros((len(rows), removal.units), bool))
        removal.check_rows(whole)
        noise = removal.noise(whole)
        found, errors, counts, complete = [], [], [], []
        for n in chosen:
            members = _subsets(removal.units, n, subsets, generator)
            every = math.comb(removal.units, n) == len(members)
            drops = whole[:, None] - _without(removal, members)
            sums = values[:, members].sum(2)
            pairs = [correlated(sums[i], drops[i], noise=float(noise[i])) for i in range(count)]
            found.append([r for r, _ in pairs])
            errors.append([e * (not every) for _, e in pairs])
            counts.append(len(members))
            complete.append(every)
        words = removal.problem.function.scorer.words
    shaped = np.array(found).T, np.array(errors).T, np.array(counts), np.array(complete)
    return SensitivityN(np.array(chosen), *shaped, removal.units, seed, words)


def _sizes(given: Sequence[int] | None, units: int) -> list[int]:
    if given is None:
        most = max(1, int(0.8 * units))
        return sorted({round(n) for n in np.geomspace(1, most, 10)})
    chosen = [at_least("sizes", n, 1) for n in given]
    if not chosen or max(chosen) > units:
        raise OptionError(f"got sizes={list(given)!r}; expected at least one number from 1 to {units}, the number of features.")
    return chosen


def _subsets(units: int, n: int, wanted: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The members of subsets, (subsets, n): all of them where there are no more than wanted."""
    if math.comb(units, n) <= wanted:
        return np.array(list(itertools.combinations(range(units), n)))
    return np.stack([generator.choice(units, n, replace=False, shuffle=False) for _ in range(wanted)])


def _without(removal: Removal, members: NDArray[np.int64]) -> Floats:
    """Scores of every example without each subset, (examples, subsets)."""
    count, tried = removal.problem.examples, len(members)

    def removed(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        out = np.zeros((len(rows), removal.units), bool)
        np.put_along_axis(out, members[rows % tried], True, 1)
        return out

    return removal.scores(np.repeat(np.arange(count), tried), removed).reshape(count, tried)


def correlated(a: Floats, b: Floats, *, noise: float = 0.0) -> tuple[float, float]:
    """Pearson's correlation and its standard error by the jackknife, which asks for no normal numbers; else NaN.

    >>> correlated(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    (1.0, 0.0)

    Args:
        a: (n,) numbers.
        b: (n,) numbers that go with them.
        noise: b does not vary where its spread is no larger.
    """
    count = len(a)
    if count < 2 or a.std() <= 1e-12 * np.abs(a).max() or b.std() <= noise:
        return math.nan, math.nan
    a, b = a - a.mean(), b - b.mean()
    whole = _pearson(a @ a, b @ b, a @ b)
    # Sums without one pair, of numbers that stay centred on the mean of all: leaving it out moves the mean by value / (n - 1).
    rest = count / (count - 1)
    left_out = _pearson(a @ a - rest * a**2, b @ b - rest * b**2, a @ b - rest * a * b)
    spread = (count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()
    return float(whole), float(np.sqrt(spread))


def _pearson(aa: Any, bb: Any, ab: Any) -> Any:
    """From sums of squares and products; NaN where one of them does not vary."""
    size = np.sqrt(np.maximum(aa, 0) * np.maximum(bb, 0))
    known = size > 0
    return np.clip(np.divide(ab, size, out=np.full(np.shape(ab), np.nan), where=known), -1, 1)
