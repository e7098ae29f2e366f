"""The Shapley value of the game in which features move from the baseline to the input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import OptionError
from ..evaluation.progress import Progress
from .method import MOST_POINTS, Found, Method, Problem
from .sampling import (
    HELD,
    Players,
    Sampled,
    as_array,
    because,
    blocks,
    check_counts,
    check_numbers,
    coalition_scores,
    hold,
    movers,
    players_of,
    sample_until,
)


@final
@dataclass(frozen=True)
class Shapley(Method):
    """The Shapley-Shubik value: what moving a feature from the baseline to the input changes, averaged over all orderings.

    The players are the features, or the groups of ``groups=``. Features labelled -1 are no players: they stay as they are
    in x, and F(x') in the certificate is that of the baseline with these features of x, so that the sum still accounts
    for all of F(x) - F(x'). With several baselines the game is the mean of theirs.

    Few players are solved exactly, from every coalition. More are sampled: orderings in antithetic pairs (an ordering and
    its reverse) until the error is within ``tol`` of the sum of absolute values. The error holds for about 97% of seeds: it
    is the sum of the standard errors, more where few players matter or all are wrong together, and one part in as many as
    there are orderings for what none of them may have shown. Each ordering telescopes, so sampled values are complete as
    well. Standard errors are in ``extras["standard_error"]``.

    >>> def both(x):
    ...     return x[:, 0] * x[:, 1] + x[:, 2]
    >>> Shapley()(both, torch.tensor([[2.0, 3.0, 1.0]])).values
    tensor([[3., 3., 1.]])

    Attributes:
        tol: the relative L1 error to sample to.
        orderings: how many orderings may be sampled, at most; each takes a forward pass per player and baseline.
        exact: the number of players up to which every coalition is evaluated, 2**players of them.
        seed: the seed of the orderings, which are the same for every example.
    """

    name: ClassVar[str] = "shapley"
    promises: ClassVar[tuple[Promise, ...]] = because(promised(), symmetry="within the error, where orderings are sampled")
    tol: float = 0.05
    orderings: int = 1000
    exact: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(tol=self.tol)
        check_counts(4, orderings=self.orderings)
        check_counts(0, exact=self.exact, seed=self.seed)
        if self.exact > 24:
            raise OptionError(f"got exact={self.exact}; expected at most 24 players, which is 16 million coalitions.")

    def attribute(self, problem: Problem) -> Attribution:
        """Shapley values from all coalitions where players are few, else from sampled orderings."""
        players = players_of(problem)
        held = hold(problem, players)
        notes = () if held is problem else (HELD,) * problem.examples
        found = self.found(held, players)
        return held.dress(dataclasses.replace(found, grouped=problem.labels is not None, notes=notes))

    def found(self, problem: Problem, players: Players) -> Found:
        """The values of given players, (examples, width)."""
        few = players.count <= max(self.exact, 1)
        found = _from_coalitions(problem, players) if few else self._from_orderings(problem, players)
        return dataclasses.replace(found, promises=self.promises)

    def _from_orderings(self, problem: Problem, players: Players) -> Found:
        evaluator = problem.evaluator()
        ends = tuple(torch.as_tensor(end, device=problem.device) for end in problem.end_scores(evaluator))
        generator, moves = torch.Generator().manual_seed(self.seed), movers(problem, players)

        def draw(count: int, active: Tensor) -> Iterator[Tensor]:
            for pairs in blocks(count, max(1, MOST_POINTS // (2 * players.count * len(active)))):
                ranks = torch.stack([torch.randperm(players.count, generator=generator) for _ in range(pairs)])
                both = torch.stack([ranks, players.count - 1 - ranks], 1).flatten(0, 1).to(problem.device)
                values = marginals(problem, players, both, active, (ends[1][active], ends[0][active]))
                yield from values.unflatten(0, (pairs, 2)).mean(1).where(moves[active], 0.0)

        def enough(found: Sampled) -> Tensor:
            return found.error(2) <= self.tol

        found = sample_until(problem, draw, enough, self.orderings // 2)
        each = 2 * (players.count - 1) * len(problem.starts)
        return Found(
            players.spread(found.mean),
            self.promises,
            rule="orderings in antithetic pairs",
            forwards=found.spent * each + evaluator.forwards,
            error=as_array(found.error(2)),
            tol=self.tol,
            knob="raise orderings",
            extras={"standard_error": players.spread(found.standard_error)},
        )


def marginals(
    problem: Problem,
    players: Players,
    ranks: Tensor,
    examples: Tensor,
    ends: tuple[Tensor, Tensor],
    tell: Callable[[Progress], None] | None = None,
) -> Tensor:
    """What each player changes in each ordering, (orderings, examples, players).

    Args:
        problem: the problem that is explained.
        players: the players and the numbers that they move.
        ranks: (orderings, players) the place of each player in each ordering.
        examples: the numbers of the examples.
        ends: the scores of these examples with no player and with every player at the input.
        tell: whom to tell of scores as they come.
    """
    orderings, steps = len(ranks), players.count - 1

    def coalitions(index: Tensor) -> Tensor:
        return ranks[index // steps] < (index % steps + 1)[:, None]

    scores = coalition_scores(problem, players, coalitions, orderings * steps, examples, tell)
    between = scores.unflatten(0, (orderings, steps))
    first, last = (end.expand(orderings, 1, -1) for end in ends)
    changes = torch.cat([first, between, last], 1).diff(dim=1)
    return changes.gather(1, ranks[:, :, None].expand(-1, -1, len(examples))).movedim(1, 2)


def _from_coalitions(problem: Problem, players: Players) -> Found:
    """The Shapley values by their definition, from the scores of all coalitions."""
    n, device = players.count, problem.device
    bits = torch.arange(n, device=device)
    every = torch.arange(problem.examples, device=device)
    members = (torch.arange(2**n, device=device)[:, None] >> bits) & 1
    scores = coalition_scores(problem, players, lambda index: (index[:, None] >> bits) & 1 == 1, 2**n, every)
    weights = [1 / (n * math.comb(n - 1, size)) for size in range(n)]
    share = torch.tensor([*weights, 0.0], dtype=torch.float64, device=device)[members.sum(1)]
    values = torch.stack([_mean_change(scores, share, members[:, i] == 0) for i in range(n)], 1)
    values = values.where(movers(problem, players), 0.0)
    extras = {"standard_error": torch.zeros_like(players.spread(values))}
    return Found(players.spread(values), (), rule="all coalitions", forwards=2**n * len(problem.starts), extras=extras)


def _mean_change(scores: Tensor, share: Tensor, out: Tensor) -> Tensor:
    """The weighted mean of what a player changes by joining, over the coalitions that it is ``out`` of.

    The coalitions with the player are in the same order as those without.
    """
    return (share[out, None] * (scores[~out] - scores[out])).sum(0)
