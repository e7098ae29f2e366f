"""SmoothGrad: any method, averaged over noisy copies of the input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ..attribution import Attribution
from ..backends.torch_function import TorchFunction
from ..certificate import Promise
from ..errors import ConvergenceWarning, NonFiniteError, OptionError, ZeroAttributionWarning, quiet
from ..functions.call import RunsRows
from ..trees import Leaves, add_rows, flat, flatten, unflat
from .gradients import Gradient
from .method import MOST_POINTS, Found, Method, Problem
from .sampling import Sampled, as_array, blocks, check_counts, check_numbers, sample_until

BROKEN = {
    "completeness": "adds up, at best, for the noisy inputs on average and not for x",
    "sensitivity-a": "what noisy inputs get may cancel, or none of them may leave where the score has levelled off",
}

SEVERAL_TENSORS = "noise follows the range of each tensor, so features of two tensors are not treated alike"


@final
@dataclass(frozen=True)
class SmoothGrad(Method):
    """The mean of a method's values over inputs with Gaussian noise (Smilkov et al. 2017).

    The noise of a tensor has a standard deviation of ``sigma`` times its range (largest minus smallest number) in the
    example. It comes in antithetic pairs, plus and minus, which cancel what is linear in it, and is the same for every
    example but for its scale. The target and the baseline stay those of x.

    Sampling goes on until the error is within ``tol`` of the sum of absolute values. The error holds for about 97% of seeds: it
    is the sum of the standard errors, more where few features matter or all are wrong together, one part in as many as
    there are samples for what none of them may have shown, and what the method inside says of its own error. Standard errors
    are in ``extras["standard_error"]``.

    >>> SmoothGrad()(lambda x: (x**2).sum(1), torch.tensor([[1.0, 2.0]])).values  # as without noise: the gradient is linear
    tensor([[2., 4.]])

    Attributes:
        method: the method to run on the noisy inputs.
        sigma: the standard deviation of the noise, relative to the range of the input.
        tol: the relative L1 error to sample to.
        samples: how many noisy inputs per example, at most; used in pairs.
        seed: the seed of the noise.
    """

    method: Method = Gradient()  # noqa: RUF009 - methods are frozen
    sigma: float = 0.15
    tol: float = 0.1
    samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise OptionError(f"got method={self.method!r}; expected a method as a value, such as Gradient().")
        check_numbers(sigma=self.sigma, tol=self.tol)
        check_counts(4, samples=self.samples)
        check_counts(0, seed=self.seed)

    @property
    def name(self) -> str:
        """The name, which includes that of the method that is smoothed."""
        return f"smoothgrad({self.method.name})"

    @property
    def promises(self) -> tuple[Promise, ...]:
        """The promises of the method inside, except for those that noise breaks."""
        inside = self.method.promises
        return tuple(Promise(one.axiom, False, BROKEN[one.axiom]) if one.axiom in BROKEN else one for one in inside)

    def attribute(self, problem: Problem) -> Attribution:
        """Run the method inside on noisy inputs until the error is small enough."""
        noisy = _NoisyRuns(self.method, problem, self.sigma, self.seed)

        def errors(found: Sampled) -> tuple[Tensor, Tensor]:
            own = noisy.inside / found.count
            return found.error(2), torch.where(own == 0, 0.0, own / found.mean.abs().sum(1))

        def enough(found: Sampled) -> Tensor:
            chance, inside = errors(found)
            # Where the method inside is too far off already, more samples do not help once chance adds less than that.
            return (chance + inside <= self.tol) | ((inside > self.tol) & (chance <= inside))

        found = sample_until(problem, noisy.draw, enough, self.samples // 2)
        chance, inside = errors(found)
        return problem.dress(
            Found(
                found.mean,
                self._promises_for(problem.function),
                rule=f"noise of {self.sigma:g} of the range, in antithetic pairs",
                gradients=noisy.gradients,
                forwards=noisy.forwards,
                error=as_array(chance + inside),
                tol=self.tol,
                grouped=problem.labels is not None,
                knob="raise samples, or make the method inside more exact",
                extras={"standard_error": found.standard_error},
            )
        )

    def _promises_for(self, function: TorchFunction) -> tuple[Promise, ...]:
        if len(function.inputs) == 1:
            return self.promises
        return tuple(Promise(one.axiom, False, SEVERAL_TENSORS) if one.axiom == "symmetry" else one for one in self.promises)


class _NoisyRuns:
    """Runs of a method on noisy inputs, and what they cost.

    Attributes:
        inside: the sum over the pairs of the method's own L1 error, (examples,).
        gradients: gradient evaluations of each example.
        forwards: forward evaluations of each example.
    """

    def __init__(self, method: Method, problem: Problem, sigma: float, seed: int) -> None:
        self.method = method
        self.problem = problem
        inputs = problem.function.inputs
        self.scales = [sigma * (flat([leaf]).amax(1) - flat([leaf]).amin(1)).double() for leaf in inputs]
        self.generator = torch.Generator().manual_seed(seed)
        self.inside = torch.zeros(problem.examples, dtype=torch.float64, device=problem.device)
        self.gradients = np.zeros(problem.examples, np.int64)
        evaluator = problem.evaluator()
        self.base = problem.end_scores(evaluator)[1]  # the same for all noise
        self.forwards = evaluator.forwards.copy()

    def draw(self, count: int, active: Tensor) -> Iterator[Tensor]:
        """The method's values for pairs of noisy inputs, (examples, features or groups) each."""
        row = self.problem.features * (len(self.problem.starts) + 2) * len(active)
        for pairs in blocks(count, max(1, MOST_POINTS // (2 * row))):
            yield from self._values(pairs, active)

    def _values(self, pairs: int, active: Tensor) -> Tensor:
        # From one stream in float64, so that neither the block nor the precision changes the noise.
        noise = torch.randn(pairs, self.problem.features, generator=self.generator, dtype=torch.float64)
        rows = active.repeat(2 * pairs)
        problem = self._at(rows, torch.stack([noise, -noise], 1).flatten(0, 1).to(self.problem.device))
        with quiet(ConvergenceWarning, ZeroAttributionWarning):  # the error of the mean accounts for what a single run warns of
            result = self.method.attribute(problem)
        certificate = result.certificate
        own = torch.tensor([one.error * one.magnitude for one in certificate], dtype=torch.float64, device=rows.device)
        add_rows(self.inside, rows, own / 2)
        places = rows.cpu().numpy()
        np.add.at(self.gradients, places, [one.gradients for one in certificate])
        np.add.at(self.forwards, places, [one.forwards for one in certificate])
        values = flat(flatten(result.values, what="values")[1]).double()
        return values.reshape(pairs, 2, len(active), -1).mean(1)

    def _at(self, rows: Tensor, noise: Tensor) -> Problem:
        """The problem at x plus noise: as many copies of some examples as there are rows of noise."""
        function = self.problem.function
        parts = unflat(noise, [leaf.shape[1:] for leaf in function.inputs])
        copies = len(rows) // len(noise)
        inputs = []
        for leaf, part, scale in zip(function.inputs, parts, self.scales, strict=True):
            wide = part.repeat_interleave(copies, 0) * scale[rows].reshape(-1, *[1] * (leaf.ndim - 1))
            inputs.append((leaf.index_select(0, rows).double() + wide).to(leaf.dtype))
        noisy_function = _function_at(function, rows, tuple(inputs))
        starts = tuple(tuple(leaf.index_select(0, rows) for leaf in start) for start in self.problem.starts)
        problem = dataclasses.replace(self.problem, function=noisy_function, starts=starts, progress=False)
        scores = _scores(problem)
        ends = (as_array(scores), self.base[rows.cpu().numpy()])
        return dataclasses.replace(problem, function=dataclasses.replace(noisy_function, at_input=scores), ends=ends)


@dataclass(frozen=True)
class _NoisyRows:
    """A call of the model whose rows are copies of the rows of another call.

    Attributes:
        run: the other call.
        rows: for each row of this call, the number of the row of the other call that it copies.
    """

    run: RunsRows
    rows: Tensor

    def __call__(self, leaves: Leaves, rows: Tensor) -> list[Any]:
        return self.run(leaves, self.rows[rows.to(self.rows.device)])


def _function_at(function: TorchFunction, rows: Tensor, inputs: Leaves) -> TorchFunction:
    """The function at other inputs, each of which belongs to the example of ``function`` that ``rows`` says."""
    here = rows.cpu()
    own = function.scorer
    read, owners = own.read, here.tolist()
    scorer = dataclasses.replace(
        own,
        examples=len(rows),
        index=tuple(column[here.to(column.device)] for column in own.index),
        words=tuple(own.words[i] for i in owners),
        # What a target settled at the inputs, it knows by their numbers, not by those of the copies.
        read=None if read is None else lambda raw, copies: read(raw, here.to(copies.device)[copies]),
        remark=lambda example: own.remark(owners[example]),
    )
    return dataclasses.replace(
        function,
        run=_NoisyRows(function.run, rows),
        scorer=scorer,
        inputs=inputs,
        batched=True,  # of the values that come out; the call knows for itself what the model takes
        scale=function.scale[here.numpy()],
    )


def _scores(problem: Problem) -> Tensor:
    """The scores at the noisy inputs of a problem, (examples,); refuses what is not finite."""
    function = problem.function

    def run(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return function.scores(tuple(leaf.index_select(0, rows) for leaf in function.inputs), rows)

    scores = torch.cat([part for _, part in problem.chunked(len(function.inputs[0]), run)])
    bad = scores[~scores.isfinite()]
    if len(bad):
        raise NonFiniteError(
            f"the score is {bad[0].item()} at an input with noise; expected a finite number. Lower sigma, so that noise does "
            "not leave the model's domain, or look for overflow, log of 0 or division by 0 in the model."
        )
    return scores
