"""What sampled methods share: checks of options, players and their coalitions, and sampling until the error is small."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..certificate import Promise
from ..errors import NonFiniteError, OptionError
from ..evaluation.progress import Progress, Reporter
from ..trees import flat, unflat
from .method import Problem

FIRST_LOOK = 16
"""Samples before the first look at their error: from fewer, the standard error is itself too uncertain to stop at."""

DRAWS = 16
"""Sums of the samples with random signs, which are as far from zero as the mean may be from the truth."""

DEVIATIONS = 3.0
"""Standard deviations above the mean L1 norm of these draws: 97% of claims hold (tests/methods/test_expected_gradients.py)."""

HELD = "features labelled -1 keep their values from x, at the baseline too"

Draw = Callable[[int, Tensor], Iterable[Tensor]]
"""From how many samples are wanted next, and for which examples, to each sample's values, (those examples, width)."""


def check_numbers(**options: float) -> None:
    """Refuse options that are not positive finite numbers (``ridge`` and ``sigma`` may be zero)."""
    for name, value in options.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        zero = name in ("ridge", "sigma")
        if not number or value < 0 or (value == 0 and not zero):
            raise OptionError(f"got {name}={value!r}; expected a {'number from 0 on' if zero else 'positive number'}.")


def check_counts(least: int = 1, **options: int) -> None:
    """Refuse options that are not whole numbers from ``least`` on."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise OptionError(f"got {name}={value!r}; expected a whole number from {least} on.")


def because(promises: tuple[Promise, ...], **reasons: str) -> tuple[Promise, ...]:
    """The promises, with reasons added to those that are kept; the keywords are axioms with underscores for dashes."""
    named = {name.replace("_", "-"): why for name, why in reasons.items()}
    return tuple(dataclasses.replace(one, why=named[one.axiom]) if one.kept and one.axiom in named else one for one in promises)


@dataclass(frozen=True)
class Players:
    """The players of a game, each of whom moves some numbers of x from the baseline to the input.

    Attributes:
        labels: (features,) the player of each number, -1 for numbers that nobody moves.
        columns: (players,) the column of each player in the result.
        width: columns of the result; those without a player are zero.
    """

    labels: Tensor
    columns: Tensor
    width: int

    @property
    def count(self) -> int:
        """How many players there are."""
        return len(self.columns)

    def spread(self, values: Tensor) -> Tensor:
        """Values of the players, (N, players), as columns of the result, (N, width)."""
        return values.new_zeros(len(values), self.width).index_copy(1, self.columns, values)


def players_of(problem: Problem) -> Players:
    """The players of a problem: every group where the user gave groups, else every number."""
    if problem.labels is None:
        every = torch.arange(problem.features, device=problem.device)
        return Players(every, every, problem.features)
    width = problem.grouped(torch.zeros(1, problem.features, device=problem.device)).shape[1]  # also refuses invalid labels
    shapes = [leaf.shape[1:] for leaf in problem.function.inputs]
    wide = flat([label.expand(shape)[None] for label, shape in zip(problem.labels, shapes, strict=True)])[0]
    given = wide.to(problem.device, torch.long)
    columns, labels = given.clamp(min=-1).unique(return_inverse=True)
    held = int(columns[0] < 0)
    return Players(labels - held, columns[held:], width)


def hold(problem: Problem, players: Players) -> Problem:
    """The problem with the input's own values in its baselines, for the numbers that no player moves."""
    if not (players.labels < 0).any():
        return problem
    inputs = problem.function.inputs
    held = unflat((players.labels < 0)[None], [leaf.shape[1:] for leaf in inputs])
    starts = tuple(tuple(map(torch.where, held, inputs, start)) for start in problem.starts)
    return dataclasses.replace(problem, starts=starts, ends=None)


def movers(problem: Problem, players: Players) -> Tensor:
    """Which players change anything, (examples, players); without the others the score is the same, but for its rounding."""
    there = flat(problem.function.inputs)
    apart = torch.stack([flat(start) != there for start in problem.starts]).any(0)
    played = players.labels >= 0
    counts = torch.zeros(problem.examples, players.count, device=problem.device)
    return counts.index_add(1, players.labels[played], apart[:, played].to(counts)) > 0


def coalition_scores(
    problem: Problem,
    players: Players,
    coalitions: Callable[[Tensor], Tensor],
    count: int,
    examples: Tensor,
    tell: Callable[[Progress], None] | None = None,
) -> Tensor:
    """The mean over the baselines of the score with some players at the input and the others at the baseline.

    Args:
        problem: the problem that is explained.
        players: the players and the numbers that they move.
        coalitions: from numbers of coalitions, (N,), to who is in them, (N, players) booleans, or how far each player is
            from baseline (0) to input (1).
        count: how many coalitions there are.
        examples: the numbers of the examples to score, (E,).
        tell: whom to tell of scores as they come, counted as evaluations.

    Returns:
        The scores, (count, E) in float64.
    """
    inputs = problem.function.inputs
    shapes = [leaf.shape[1:] for leaf in inputs]
    mover_of = players.labels.clamp(min=0)  # numbers that nobody moves are the same at both ends

    def run(index: Tensor) -> Tensor:
        rows = examples[index % len(examples)]
        on = unflat(coalitions(index // len(examples))[:, mover_of], shapes)
        total = torch.zeros(len(rows), dtype=torch.float64, device=problem.device)
        for start in problem.starts:
            pairs = zip(on, inputs, start, strict=True)
            points = tuple(_between(here, b.index_select(0, rows), x.index_select(0, rows)) for here, x, b in pairs)
            with torch.no_grad():
                total += problem.function.scores(points, rows).to(total)
        _check_finite(total, rows)
        return total / len(problem.starts)

    parts, done = [], 0
    for index, part in problem.chunked(count * len(examples), run):
        parts.append(part)
        done += len(index)
        if tell is not None:
            tell(Progress(len(examples), 0, done, count * len(examples)))
    return torch.cat(parts).reshape(count, len(examples))


@dataclass(frozen=True)
class Sampled:
    """The mean of a sample, and how well it is known.

    Attributes:
        mean: (examples, width) in float64.
        standard_error: the standard error of the mean, (examples, width) in float64.
        count: how many samples were taken for each example, (examples,).
        draws: what the error of the mean might as well be, (draws, examples, width); None where it was not kept.
    """

    mean: Tensor
    standard_error: Tensor
    count: Tensor
    draws: Tensor | None = None

    def __getitem__(self, columns: slice) -> Sampled:
        """The same for some of the columns."""
        draws = None if self.draws is None else self.draws[..., columns]
        return Sampled(self.mean[:, columns], self.standard_error[:, columns], self.count, draws)

    @property
    def spent(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """How many samples each example took, as a numpy array."""
        return np.asarray(self.count.cpu().numpy(), np.int64)

    def error(self, evaluations: int, least: Tensor | float = 0.0) -> Tensor:
        """The relative L1 error of each example, (examples,), which holds for 97% of seeds or more.

        The sum of the standard errors is at least the expected L1 error, whatever the distribution. Where features are wrong
        together, or few of them matter, the L1 error varies from seed to seed: draws of it tell by how much. What happens
        less than once in all evaluations may not have been seen, and is in neither: one part in as many is added for that.

        Args:
            evaluations: how many independent evaluations one sample holds.
            least: an L1 error that is known to be there, (examples,).
        """
        error = self.standard_error.sum(1).clamp(min=torch.as_tensor(least, device=self.mean.device))
        if self.draws is not None:
            norms = torch.linalg.vector_norm(self.draws, 1, -1, dtype=torch.float64)
            error = error.maximum((norms.mean(0) + DEVIATIONS * norms.std(0)) * (1 + 2 / self.count))  # few know little of it
        size = self.mean.abs().sum(1)
        return torch.where((error == 0) & (size == 0), 0.0, error / size + 1 / (evaluations * self.count))


def sample_until(problem: Problem, draw: Draw, enough: Callable[[Sampled], Tensor], most: int) -> Sampled:
    """Sample until it is enough for every example, or ``most`` samples are taken; looks after 16, 32, 64, ... samples.

    Examples that have enough are left out from then on, so that the batch an example is in does not matter to it.

    Args:
        problem: the problem that is explained.
        draw: draws independent samples, the same ones whatever examples are asked for.
        enough: from a sample to which examples have enough, (examples,) booleans.
        most: how many samples to take, at most.
    """
    reporter, examples = Reporter(problem.progress), problem.examples
    active, done, goal = torch.arange(examples, device=problem.device), 0, min(FIRST_LOOK, most)
    found: Sampled | None = None
    try:
        while True:
            for values in draw(goal - done, active):
                found = _with_sample(found, values, active, examples)
            done = goal
            assert found is not None
            result = _judgeable(found)
            active = (~enough(result)).nonzero().flatten()
            spent = int(found.count.sum())
            reporter.tell(Progress(examples, examples - len(active), spent, spent + len(active) * min(done, most - done)))
            if not len(active) or done >= most:
                return result
            goal = min(2 * done, most)
    finally:
        reporter.close()


def as_array(tensor: Tensor) -> Floats:
    """A tensor with a number per example as a numpy array, for the certificate."""
    return np.asarray(tensor.double().cpu().numpy())


def blocks(count: int, size: int) -> Iterator[int]:
    """The sizes of blocks that ``count`` things come in: ``size`` each, and at last what is left."""
    for start in range(0, count, size):
        yield min(size, count - start)


def _between(share: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    """``stop`` or ``start`` by a boolean share; for other shares, the point at that share of the line between them."""
    return torch.where(share, stop, start) if share.dtype == torch.bool else torch.lerp(start, stop, share.to(stop.dtype))


def _check_finite(scores: Tensor, rows: Tensor) -> None:
    bad = (~scores.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise NonFiniteError(
            f"the score is {scores[bad[0]].item()} with some features of example {int(rows[bad[0]])} at the input and the "
            "others at the baseline; expected a finite number. Choose a baseline within the model's domain, or look for "
            "overflow, log of 0 or division by 0 in the model."
        )


def _with_sample(found: Sampled | None, values: Tensor, active: Tensor, examples: int) -> Sampled:
    """Add one more sample for some examples (Welford).

    Meanwhile ``standard_error`` holds the sum of squared deviations, and ``draws`` holds sums with random signs, in which each
    sample has the sign against the one before, so that the mean cancels.
    """
    if found is None:
        zero = values.new_zeros(examples, values.shape[1], dtype=torch.float64)
        draws = values.new_zeros(DRAWS, *zero.shape, dtype=torch.float32)
        found = Sampled(zero, zero.clone(), torch.zeros(examples, dtype=torch.long, device=values.device), draws)
    assert found.draws is not None
    before = int(found.count[active[0]])
    signs = (-1) ** before * np.random.default_rng([DRAWS, before // 2]).choice([-1.0, 1.0], DRAWS)
    found.draws[:, active] += torch.as_tensor(signs, device=values.device).float()[:, None, None] * values.float()
    found.count[active] += 1
    off = values.double() - found.mean[active]
    found.mean[active] += off / found.count[active, None]
    found.standard_error[active] += off * (values.double() - found.mean[active])
    return found


def _judgeable(found: Sampled) -> Sampled:
    """Standard errors from sums of squared deviations, and errors of the mean from sums with signs."""
    pairs = (found.count * (found.count - 1))[:, None].double()
    draws = found.draws if found.draws is None else found.draws / pairs.sqrt().float()
    return dataclasses.replace(found, standard_error=(found.standard_error / pairs).sqrt(), draws=draws)
