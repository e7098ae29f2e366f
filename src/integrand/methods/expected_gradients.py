"""Expected gradients: integrated gradients over many baselines, by sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..evaluation.evaluator import Evaluator
from ..paths.base import Nodes
from ..trees import add_rows
from .method import MOST_POINTS, Found, Method, Problem
from .sampling import Sampled, as_array, because, blocks, check_counts, check_numbers, sample_until

STRATA = 8
"""How many gradients make one sample; their times fall one each into as many equal parts of the path."""

MISSES = "the sum misses more than chance explains: the score jumps, or samples miss where it changes"


@final
@dataclass(frozen=True)
class ExpectedGradients(Method):
    """The mean of gradient times (input - baseline) over random baselines and places between them (Erion et al. 2021).

    The baselines are those that are passed: a list, a stack, or a function that draws them (``draws`` times). What is
    estimated is integrated gradients averaged over just these; with one baseline, integrated gradients. Times are
    stratified: every eight gradients cover the path, and go to baselines without repetition as far as these last.

    Sampling goes on until the error is within ``tol`` of the sum of absolute values. The error holds for about 97% of seeds: it
    is the sum of the standard errors, more where few features matter or all are wrong together, or what the sum misses of
    F(x) - F(x'), if that is more; and one part in as many as there are gradients, for what none of them may have shown.
    Standard errors are in ``extras["standard_error"]``.

    >>> baselines = torch.tensor([[[0.0, 0.0]], [[2.0, 0.0]]])
    >>> ExpectedGradients()(lambda x: x @ torch.tensor([1.0, 2.0]), torch.ones(1, 2), baselines).values
    tensor([[0., 2.]])

    Attributes:
        tol: the relative L1 error to sample to.
        samples: how many gradients one example may take, at most; used in eights.
        seed: the seed of baselines and times, which are the same for every example.
    """

    name: ClassVar[str] = "expected gradients"
    promises: ClassVar[tuple[Promise, ...]] = because(
        promised(), completeness="within the error of the sample", symmetry="within the error of the sample"
    )
    tol: float = 0.05
    samples: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(tol=self.tol)
        check_counts(2 * STRATA, samples=self.samples)
        check_counts(0, seed=self.seed)

    def attribute(self, problem: Problem) -> Attribution:
        """Sample gradients until the error is small enough."""
        evaluator = problem.evaluator()
        score, base = problem.end_scores(evaluator)
        change = torch.as_tensor(score - base, device=problem.device)
        generator = torch.Generator().manual_seed(self.seed)

        def draw(count: int, active: Tensor) -> Iterator[Tensor]:
            for size in blocks(count, max(1, MOST_POINTS // (problem.features * len(active)))):
                yield from _samples(problem, evaluator, size, active, generator)

        def errors(found: Sampled) -> tuple[Tensor, Tensor]:
            """The relative error of each example, and whether the last column, the sum, is off by more than chance."""
            off, chance = (found.mean[:, -1] - change).abs(), found.standard_error[:, -1]
            each = found[:-1]
            return each.error(STRATA, off), off > 5 * chance + 1e-3 * each.mean.abs().sum(1)

        found = sample_until(problem, draw, lambda found: errors(found)[0] <= self.tol, self.samples // STRATA)
        error, missed = errors(found)
        return problem.dress(
            Found(
                found.mean[:, :-1],
                self.promises,
                rule="random baselines, stratified times",
                gradients=evaluator.gradients,
                forwards=evaluator.forwards,
                error=as_array(error),
                tol=self.tol,
                grouped=problem.labels is not None,
                knob="raise samples",
                total=found.mean[:, -1],
                notes=tuple(MISSES if one else "" for one in missed.tolist()),
                extras={"standard_error": found.standard_error[:, :-1]},
            )
        )


def _samples(problem: Problem, evaluator: Evaluator, count: int, examples: Tensor, generator: torch.Generator) -> Tensor:
    """Samples, each the mean over the strata of gradient times velocity, (samples, examples, columns).

    The columns are the features or groups, and the sum over all features as the last.
    """
    drawn = [_strata(len(problem.starts), generator) for _ in range(count)]
    times, pieces = (torch.stack(part).flatten().numpy() for part in zip(*drawn, strict=True))
    few = len(examples)
    nodes = Nodes(times.repeat(few), np.tile(examples.cpu().numpy(), len(times)), pieces.repeat(few))
    place = np.arange(len(nodes)) // (STRATA * few) * few + np.arange(len(nodes)) % few
    total: Tensor | None = None
    for done in evaluator.gradients_at(nodes):
        terms = done.terms.double()
        rows = torch.cat([problem.grouped(terms), terms.sum(1, keepdim=True)], 1)
        if total is None:
            total = rows.new_zeros(count * few, rows.shape[1])
        add_rows(total, torch.as_tensor(place[done.index], device=rows.device), rows)
    assert total is not None
    return (total / STRATA).reshape(count, few, -1)


def _strata(baselines: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A time in each stratum and a baseline for it, (strata,) each."""
    times = (torch.arange(STRATA) + torch.rand(STRATA, generator=generator, dtype=torch.float64)) / STRATA
    decks = [torch.randperm(baselines, generator=generator) for _ in range(-(-STRATA // baselines))]
    order = torch.randperm(STRATA, generator=generator)
    return times, torch.cat(decks)[:STRATA][order]
