"""Captum's ``DeepLift``, ``DeepLiftShap``, ``GradientShap`` and ``LRP``."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...attribution import Attribution
from ...errors import InputError, OptionError
from ...functions.target import Target
from ...methods import deeplift as deeplift_method
from ...methods import lrp as lrp_method
from ...methods.expected_gradients import ExpectedGradients
from ...methods.method import Found, Problem, open_problem
from ...methods.sampling import Sampled, as_array
from ...trees import Leaves, flat, flatten
from .attribution_class import GradientClass
from .captum_call import Baselines, CaptumProblem, Inputs
from .certified_class import CertifiedClass, by_method
from .path_classes import InputsT

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
"""Layers that a rule makes a difference to; pools and norms have no weights that it could change."""

Custom = Callable[..., tuple[Tensor, ...]]
"""From multipliers, or multipliers, inputs, or multipliers, inputs and baselines, to attributions; tuples of tensors each."""


class CaptumDeepLift(CertifiedClass, GradientClass, name="DeepLift"):
    """DeepLift with the rescale rule: every nonlinearity is replaced by its slope between baseline and input.

    Args:
        model: the model; functions and products in its forward method count as its modules do.
        multiply_by_inputs: whether multipliers are multiplied by ``inputs - baselines``.
        eps: accepted for Captum's sake, and not used: slopes between values that are closer than rounding are derivatives.
    """

    def __init__(self, model: nn.Module, multiply_by_inputs: bool = True, eps: float = 1e-10) -> None:
        super().__init__(model)
        self.model = model
        self.eps = eps
        self._multiply_by_inputs = multiply_by_inputs

    def has_convergence_delta(self) -> bool:
        """True: contributions sum to the change of the output."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether multipliers are multiplied by ``inputs - baselines``."""
        return self._multiply_by_inputs

    def attribute(
        self,
        inputs: InputsT,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: object = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: Custom | None = None,
    ) -> Any:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: what the inputs are compared with, as in :meth:`IntegratedGradients.attribute`.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            return_convergence_delta: also return what the sum of the attributions misses.
            custom_attribution_func: what to make of the multipliers instead of multiplying them by the difference: a function
                of multipliers; of multipliers and inputs; or of multipliers, inputs and baselines. All are tuples of tensors.

        Returns:
            Attributions in the structure of the inputs; with ``return_convergence_delta``, a pair of these and a tensor
            with sum(attributions) - (F(inputs) - F(baselines)) for each example.
        """
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        values = self._explained(problem, custom_attribution_func).values
        return (values, problem.delta(values)) if return_convergence_delta else values

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Baselines,
        target: Target,
        additional_forward_args: object,
        custom_attribution_func: Custom | None,
    ) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, baselines, target, additional_forward_args)
        return self._explained(problem, custom_attribution_func)

    def _explained(self, problem: CaptumProblem, custom: Custom | None, **options: Any) -> Attribution:
        slopes = custom is not None or not self._multiply_by_inputs
        found = by_method(deeplift_method.DeepLift(multipliers=slopes), problem, **options)
        if custom is None:
            return found
        given = (flatten(found.values, what="values")[1], problem.end, problem.start)
        count = min(len(inspect.signature(custom).parameters), 3)
        made = custom(*given[:count])
        if not isinstance(made, tuple) or [part.shape for part in made] != [leaf.shape for leaf in problem.end]:
            raise OptionError(
                "custom_attribution_func returned something else than a tuple of tensors in the shapes of the inputs; expected "
                f"{[tuple(leaf.shape) for leaf in problem.end]}."
            )
        return dataclasses.replace(found, values=problem.tree.build(made))


class CaptumDeepLiftShap(CaptumDeepLift, name="DeepLiftShap"):
    """DeepLift, averaged over several baselines, which all inputs are compared with.

    Args:
        model: the model.
        multiply_by_inputs: whether multipliers are multiplied by ``inputs - baselines``.
    """

    def __init__(self, model: nn.Module, multiply_by_inputs: bool = True) -> None:
        super().__init__(model, multiply_by_inputs)

    def attribute(  # type: ignore[override]
        self,
        inputs: InputsT,
        baselines: Inputs | Callable[..., Inputs],
        target: Target = None,
        additional_forward_args: object = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: Custom | None = None,
    ) -> Any:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: at least two baselines as the rows of a tensor, or of a tuple of tensors, one for each input; or a
                function that gives them, of no argument or of the inputs.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            return_convergence_delta: also return what the sums of the attributions miss.
            custom_attribution_func: what to make of the multipliers for each pair of an input and a baseline, as in
                :meth:`DeepLift.attribute`.

        Returns:
            Attributions in the structure of the inputs; with ``return_convergence_delta``, a pair of these and a tensor with
            one number for each input and baseline, those of an input next to each other.
        """
        if not return_convergence_delta and custom_attribution_func is None:
            return self._attribution(inputs, baselines, target, additional_forward_args, None).values
        pairs, count = _pairs(self.forward_func, inputs, baselines, target, additional_forward_args)
        found = self._explained(pairs, custom_attribution_func).values
        leaves = [leaf.unflatten(0, (-1, count)).mean(1) for leaf in flatten(found, what="values")[1]]
        values = pairs.tree.build(leaves)
        return (values, pairs.delta(found)) if return_convergence_delta else values

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Any,
        target: Target,
        additional_forward_args: object,
        custom_attribution_func: Custom | None,
    ) -> Attribution:
        if custom_attribution_func is not None:
            raise OptionError(
                "got custom_attribution_func; expected none for a result with a certificate, which is about contributions. "
                "Call attribute."
            )
        rows = _distribution(inputs, baselines)
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        listed = [problem.tree.build([leaf[i] for leaf in rows]) for i in range(len(rows[0]))]
        return self._explained(problem, None, baseline=listed)


def _distribution(inputs: Inputs, baselines: Any, *, least: int = 2) -> Leaves:
    """Baselines that do not belong to any input, as rows of one tensor for each input."""
    if callable(baselines) and not isinstance(baselines, Tensor):
        baselines = baselines(inputs) if inspect.signature(baselines).parameters else baselines()
    end = flatten(inputs, what="inputs")[1]
    given = baselines if isinstance(baselines, tuple) else (baselines,)
    tensors = [leaf for leaf in given if isinstance(leaf, Tensor)]
    fits = len(tensors) == len(given) == len(end) and all(a.shape[1:] == b.shape[1:] for a, b in zip(tensors, end, strict=True))
    if not fits or len({len(leaf) for leaf in tensors}) != 1 or len(tensors[0]) < least:
        shapes = [tuple(leaf.shape) if isinstance(leaf, Tensor) else leaf for leaf in given]
        wanted = [("n", *leaf.shape[1:]) for leaf in end]
        raise InputError(
            f"got baselines {shapes} for inputs of shapes {[tuple(leaf.shape) for leaf in end]}; expected {wanted}, with the "
            f"same n for all, {least} or more. For numbers or one baseline per input use DeepLift or IntegratedGradients."
        )
    return tuple(leaf.detach().to(like.dtype) for leaf, like in zip(tensors, end, strict=True))


def _pairs(model: Any, inputs: Any, baselines: Any, target: Any, further: Any) -> tuple[CaptumProblem, int]:
    """Every input with every baseline as an example of its own, and how many baselines there are."""
    rows = _distribution(inputs, baselines)
    count, (tree, end) = len(rows[0]), flatten(inputs, what="inputs")
    examples = len(end[0])
    wide = tree.build([leaf.repeat_interleave(count, 0) for leaf in end])
    starts = tuple(leaf.repeat(examples, *[1] * (leaf.ndim - 1)) for leaf in rows)
    return CaptumProblem.of(model, wide, starts, repeated(target, count), repeated_args(further, examples, count)), count


def repeated(target: Any, count: int) -> Any:
    """A target for ``count`` copies of each example, next to each other."""
    if isinstance(target, Tensor) and target.numel() > 1:
        return target.repeat_interleave(count, 0)
    return [one for one in target for _ in range(count)] if isinstance(target, list) else target


def repeated_args(further: Any, examples: int, count: int) -> Any:
    """Further arguments for ``count`` copies of each example, next to each other; what has no row per example stays."""

    def wide(arg: Any) -> Any:
        rows = isinstance(arg, Tensor) and arg.ndim > 0 and arg.shape[0] == examples
        return arg.repeat_interleave(count, 0) if rows else arg

    return tuple(map(wide, further)) if isinstance(further, tuple) else wide(further)


class CaptumGradientShap(CertifiedClass, GradientClass, name="GradientShap"):
    """The mean of gradient times (input - baseline) at random places between inputs with noise and random baselines.

    Noise comes from torch's global generator, baselines and places from numpy's, in Captum's order: the same seeds give
    Captum's numbers.

    Args:
        forward_func: the model, or any function of tensors.
        multiply_by_inputs: whether gradients are multiplied by ``inputs - baselines``.
    """

    def __init__(self, forward_func: Callable[..., Any], multiply_by_inputs: bool = True) -> None:
        super().__init__(forward_func)
        self._multiply_by_inputs = multiply_by_inputs

    def has_convergence_delta(self) -> bool:
        """True: on average, attributions sum to the change of the output."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether gradients are multiplied by ``inputs - baselines``."""
        return self._multiply_by_inputs

    def attribute(
        self,
        inputs: InputsT,
        baselines: Inputs | Callable[..., Inputs],
        n_samples: int | None = 5,
        stdevs: float | tuple[float, ...] = 0.0,
        target: Target = None,
        additional_forward_args: object = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            baselines: baselines as the rows of a tensor, or of a tuple of tensors, one for each input; or a function that
                gives them, of no argument or of the inputs.
            n_samples: gradients for each example, or None for as many as a relative error of 5% takes (without noise).
            stdevs: the noise's standard deviation, or one for each input.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            return_convergence_delta: also return what the sums of the samples miss.

        Returns:
            Attributions in the structure of the inputs; with ``return_convergence_delta``, a pair of these and a tensor with
            one number for each sample, those of an example next to each other.
        """
        if n_samples is None:
            if return_convergence_delta:
                raise OptionError("got return_convergence_delta with n_samples=None; expected a number of samples, such as 50.")
            return self._attribution(inputs, baselines, n_samples, stdevs, target, additional_forward_args).values
        found = self._sampled(inputs, baselines, n_samples, stdevs, target, additional_forward_args)
        values = found.attribution.values
        return (values, found.deltas()) if return_convergence_delta else values

    def _attribution(
        self,
        inputs: Inputs,
        baselines: Any,
        n_samples: int | None,
        stdevs: float | tuple[float, ...],
        target: Target,
        additional_forward_args: object,
        tol: float = 0.05,
    ) -> Attribution:
        if n_samples is not None:
            return self._sampled(inputs, baselines, n_samples, stdevs, target, additional_forward_args, tol).attribution
        noisy = any(stdevs) if isinstance(stdevs, tuple) else bool(stdevs)
        if noisy or not self._multiply_by_inputs:
            raise OptionError(
                f"got n_samples=None with stdevs={stdevs} and multiply_by_inputs={self._multiply_by_inputs}; expected a number "
                "of samples where there is noise, or where gradients are not multiplied."
            )
        rows = _distribution(inputs, baselines, least=1)
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        listed = [problem.tree.build([leaf[i] for leaf in rows]) for i in range(len(rows[0]))]
        return by_method(ExpectedGradients(tol=tol), problem, baseline=listed)

    def _sampled(
        self, inputs: Any, baselines: Any, count: int, stdevs: Any, target: Any, further: Any, tol: float = 0.05
    ) -> GradientSamples:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, further)
        rows = _distribution(inputs, baselines, least=1)
        points = ShapPoints.drawn(problem.end, rows, check_count(count), _stdevs(stdevs, problem.end))
        listed = [problem.tree.build([leaf[i] for leaf in rows]) for i in range(len(rows[0]))]
        with open_problem(
            problem.model, problem.tree.build(problem.end), listed, groups=None, target=problem.target, args=problem.args,
            batched=True,
        ) as opened:  # fmt: skip
            return _gradient_samples(opened, points, tol, multiply=self._multiply_by_inputs)


def check_count(count: Any) -> int:
    """A number of samples, or an error."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise OptionError(f"got n_samples={count!r}; expected a whole number from 1 on, or None.")
    return int(count)


def _stdevs(stdevs: Any, end: Leaves) -> tuple[float, ...]:
    given = stdevs if isinstance(stdevs, tuple) else (stdevs,) * len(end)
    if len(given) != len(end) or not all(isinstance(one, float) and one >= 0 for one in given):
        raise OptionError(f"got stdevs={stdevs!r}; expected a float from 0 on, or a tuple of {len(end)}, one for each input.")
    return given


@dataclasses.dataclass(frozen=True)
class ShapPoints:
    """Random points between inputs with noise and baselines, those of an example next to each other.

    Attributes:
        count: how many there are for each example.
        noisy: the inputs with noise, (examples * count, ...) each.
        starts: the baselines, of the same shapes.
        share: how far each point is from baseline to input, (examples * count,).
    """

    count: int
    noisy: Leaves
    starts: Leaves
    share: Tensor

    @staticmethod
    def drawn(end: Leaves, rows: Leaves, count: int, stdevs: Sequence[float]) -> ShapPoints:
        """Draw them as Captum does: baselines of each input, then noise, then places."""
        wide = len(end[0]) * count
        starts = tuple(leaf[torch.as_tensor(np.random.choice(len(leaf), wide), device=leaf.device)] for leaf in rows)
        noisy = []
        for leaf, stdev in zip(end, stdevs, strict=True):
            noise = torch.normal(0, torch.tensor(stdev, device=leaf.device).repeat(wide, *leaf.shape[1:]))
            noisy.append((leaf.repeat_interleave(count, 0) + noise).to(leaf.dtype))
        share = torch.tensor(np.random.uniform(0.0, 1.0, wide), device=end[0].device, dtype=end[0].dtype)
        return ShapPoints(count, tuple(noisy), starts, share)

    def at(self, index: Tensor) -> Leaves:
        """Some of the points, (N, ...) each."""
        out = []
        for high, low in zip(self.noisy, self.starts, strict=True):
            share = self.share[index].to(high.dtype).reshape(-1, *[1] * (high.ndim - 1))
            out.append(share * high[index] + (1 - share) * low[index])
        return tuple(out)

    def apart(self) -> Tensor:
        """Inputs with noise minus baselines, (examples * count, features)."""
        return flat(self.noisy) - flat(self.starts)


@dataclasses.dataclass(frozen=True)
class GradientSamples:
    """The samples of a mean of gradients, and that mean.

    Attributes:
        attribution: the mean.
        samples: (examples * count, features) in float64.
        changes: the change of the output from the baseline of each sample to its input, (examples * count,).
    """

    attribution: Attribution
    samples: Tensor
    changes: Tensor

    def deltas(self) -> Tensor:
        """What the sum of each sample misses, (examples * count,)."""
        return (self.samples.sum(1) - self.changes.double()).to(self.changes.dtype)


def _gradient_samples(problem: Problem, points: ShapPoints, tol: float, *, multiply: bool) -> GradientSamples:
    function, count = problem.function, points.count
    owner = torch.arange(problem.examples, device=problem.device).repeat_interleave(count)

    def run(index: Tensor) -> tuple[Tensor, Tensor]:
        rows = owner[index]
        slopes = flat(function.value_and_grad(points.at(index), rows)[1]).double()
        with torch.no_grad():
            ends = [function.scores(tuple(leaf[index] for leaf in side), rows) for side in (points.noisy, points.starts)]
        return slopes, ends[0] - ends[1]

    parts = [part for _, part in problem.chunked(len(owner), run)]
    slopes, changes = (torch.cat(side) for side in zip(*parts, strict=True))
    samples = slopes * points.apart() if multiply else slopes
    each = samples.unflatten(0, (-1, count))
    spread = each.std(1) / math.sqrt(count) if count > 1 else torch.full_like(each[:, 0], math.nan)
    found = Sampled(each.mean(1), spread, torch.full((problem.examples,), count, device=problem.device))
    attribution = problem.dress(
        Found(
            found.mean,
            ExpectedGradients.promises,
            rule="random baselines and places",
            gradients=count,
            forwards=2 * count,
            error=as_array(found.error(1)),
            tol=tol,
            knob="raise n_samples",
            extras={"standard_error": spread} if count > 1 else {},
        )
    )
    return GradientSamples(attribution, samples, changes)


class CaptumLRP(CertifiedClass, GradientClass, name="LRP"):
    """Layer-wise relevance propagation.

    The rule of a layer is its attribute ``rule``, one of Captum's ``EpsilonRule``, ``GammaRule``, ``Alpha1_Beta0_Rule`` and
    ``IdentityRule``; without one it is the epsilon rule. Biases keep their share, as in Captum.

    Args:
        model: the model; functions and sums in its forward method count as its modules do.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.model = model
        _rules(model)

    def has_convergence_delta(self) -> bool:
        """True: relevances sum to the output, but for what biases and epsilons keep."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """True."""
        return True

    def attribute(
        self,
        inputs: InputsT,
        target: Target = None,
        additional_forward_args: object = None,
        return_convergence_delta: bool = False,
        verbose: bool = False,
    ) -> Any:
        """Attribute the target output to the inputs.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            target: the output to explain, as in :meth:`IntegratedGradients.attribute`.
            additional_forward_args: one further argument of the model, or a tuple of them.
            return_convergence_delta: also return what the sum of the relevances misses of the output.
            verbose: print the rules of layers that have one of their own.

        Returns:
            Relevances in the structure of the inputs; with ``return_convergence_delta``, a pair of these and a tensor with
            F(inputs) - sum(relevances) for each example.
        """
        found = self._attribution(inputs, target, additional_forward_args, verbose)
        if not return_convergence_delta:
            return found.values
        values = cast("Inputs", found.values)
        output = torch.tensor([one.score for one in found.certificate]).to(flatten(values, what="values")[1][0])
        return values, self.compute_convergence_delta(values, output)

    def compute_convergence_delta(self, attributions: Inputs, output: Tensor) -> Tensor:  # type: ignore[override]
        """What relevances miss of the output, for each example.

        Args:
            attributions: relevances, with one row per example.
            output: the output that was explained, with one number per example.
        """
        total = torch.stack([flat([leaf]).double().sum(1) for leaf in flatten(attributions, what="attributions")[1]]).sum(0)
        return (output.flatten().double() - total).to(output.dtype)

    def _attribution(self, inputs: Inputs, target: Target, additional_forward_args: object, verbose: bool) -> Attribution:
        problem = CaptumProblem.of(self.forward_func, inputs, None, target, additional_forward_args)
        rules = _rules(self.model)
        if verbose:
            for pattern, rule in rules:
                print(f"Applied {rule} on layer {pattern.replace('[', '').replace(']', '')}")
        return by_method(lrp_method.LRP(composite=rules, bias="keep", fold=False), problem)


def _rules(model: nn.Module) -> lrp_method.Composite:
    """The rules that layers with weights have by their attribute ``rule``, in our terms."""
    found = []
    for name, module in model.named_modules():
        if getattr(module, "rule", None) is None:
            continue
        rule = _rule(module.rule, name)
        if isinstance(module, WEIGHTED):
            # As a pattern: the bare names "linear" and "convolution" stand for all such layers.
            found.append((f"[{name[0]}]{name[1:]}" if name else "*", rule))
        elif isinstance(rule, lrp_method.Identity):
            raise TypeError(
                f"got IdentityRule as the rule of layer {name!r}, a {type(module).__name__}; expected it on linear layers and "
                "convolutions alone. Leave the rule of other layers out."
            )
    return tuple(found)


def _rule(rule: Any, name: str) -> lrp_method.LayerRule:
    epsilon = float(getattr(rule, "STABILITY_FACTOR", 1e-9))
    kind, bias = type(rule).__name__, not getattr(rule, "set_bias_to_zero", False)
    if kind == "EpsilonRule":
        return lrp_method.Epsilon(epsilon)
    if kind == "GammaRule":
        return lrp_method.PositiveWeights(1.0, float(rule.gamma), bias, epsilon)
    if kind == "Alpha1_Beta0_Rule":
        return lrp_method.PositiveWeights(0.0, 1.0, bias, epsilon)
    if kind == "IdentityRule":
        return lrp_method.Identity()
    raise TypeError(
        f"got a {kind} as the rule of layer {name!r}; expected Captum's EpsilonRule, GammaRule, Alpha1_Beta0_Rule or "
        "IdentityRule."
    )


# Captum's own names, so that one import line is all that changes.
DeepLift = CaptumDeepLift
DeepLiftShap = CaptumDeepLiftShap
GradientShap = CaptumGradientShap
LRP = CaptumLRP
