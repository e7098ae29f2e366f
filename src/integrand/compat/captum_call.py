"""Captum's arguments in this package's terms, and its mean gradients (``multiply_by_inputs=False``).

Dividing attributions by x - x' would lose every feature with x = x', and a path with a velocity of ones would be held to a
completeness that it does not have. So the gradients themselves are integrated, by the same adaptive loop or fixed rule as
everything else, and the error is that of what is returned. Completeness is still used where it holds: on a straight line the
mean gradient times x - x' sums to the change of the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..api import RuleName, integrated_gradients
from ..arrays import Floats
from ..attribution import Attribution
from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import resolve_baselines
from ..certificate import Certificate, ExampleCertificate, Status
from ..engine import EngineOptions, leaves_of, opened, version_of, warn_if_missed, warn_if_zero
from ..errors import InputError, OptionError
from ..evaluation.checks import check_rows
from ..evaluation.evaluator import Evaluator
from ..functions.call import ModelCall
from ..functions.layer import LayerCall
from ..functions.model_state import undisturbed
from ..functions.target import Target, main_tensor, make_scorer
from ..integration.adaptive import integrate_to_tolerance
from ..integration.certify import relative
from ..integration.fixed import contract
from ..paths.base import Nodes, Piece, segment
from ..quadrature.fixed_rules import Rule
from ..quadrature.panel_rules import norms_of, raising
from ..trees import Leaves, Tensors, Tree, flat, flatten


def explain(problem: CaptumProblem, how: CaptumOptions) -> Attribution:
    """Integrate, and certify."""
    if not how.multiply:
        return _mean_gradients(problem, how)
    return integrated_gradients(
        problem.model,
        problem.tree.build(problem.end),
        problem.tree.build(problem.start),
        target=problem.target,
        tol=how.tol,
        steps=how.n_steps,
        rule=how.rule,
        layer=how.layers or None,
        layer_side=how.side,
        args=problem.args,
        batched=True,
        create_graph=how.create_graph,
        chunk=how.chunk,
    )


def _mean_gradients(problem: CaptumProblem, how: CaptumOptions) -> Attribution:
    """The mean gradient of each feature along the line, with a certificate of its own error."""
    options = EngineOptions.make(tol=how.tol, steps=how.n_steps, rule=how.rule, chunk=how.chunk)
    with ExitStack() as stack:
        stack.enter_context(undisturbed(problem.model))
        function = problem.function(how)
        [start] = resolve_baselines(problem.tree.build(problem.start), function, 1)
        line = segment(start, function.inputs)
        if options.rule is None:
            values, certificate = _to_tolerance(stack, function, line, start, options)
        else:
            values, certificate = _by_rule(opened(stack, function, [_unit(line)], options), start, options.rule, how.tol)
    leaves = leaves_of(values, function)
    warn_if_zero(leaves, function)
    warn_if_missed(certificate)
    meta = {"method": "mean gradient", "integrand": version_of(), "torch": torch.__version__, "rule": certificate[0].rule}
    return Attribution(function.tree.build(leaves), certificate, True, meta)


def _to_tolerance(
    stack: ExitStack, function: TorchFunction, line: Piece, start: Leaves, options: EngineOptions
) -> tuple[Tensor, Certificate]:
    """Mean gradients by the engine's adaptive loop: gradients times the longest distance that a feature of x moves.

    Errors of e in what is integrated then make the sum miss at most |e| of the change of the score, as the loop expects.
    """
    velocity = flat(function.inputs) - flat(start)
    reach = velocity.abs().amax(1)
    reach = torch.where(reach > 0, reach, 1.0)
    evaluator = opened(stack, function, [line], options, factors=reach.to(torch.promote_types(reach.dtype, torch.float32)))
    limit = options.max_evaluations
    outcome = integrate_to_tolerance(evaluator, options.tol, max_evaluations=limit, memory=None, regions=False)
    values = outcome.values / reach.to(outcome.values.dtype)[:, None]
    magnitudes = (values * velocity).abs().sum(1).tolist()
    examples = zip(outcome.examples, magnitudes, strict=True)
    return values, Certificate(tuple(replace(one, magnitude=magnitude) for one, magnitude in examples))


def _unit(line: Piece) -> Piece:
    """The points of a line, with ones for the velocity."""

    def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
        points, velocities = line.at(t, rows)
        return points, tuple(map(torch.ones_like, velocities))

    return Piece(1.0, at, straight=True, made_of=line.made_of)


def _by_rule(evaluator: Evaluator, start: Leaves, rule: Rule, tol: float) -> tuple[Tensor, Certificate]:
    """Mean gradients by a fixed rule, with ones for the velocity."""
    examples = evaluator.function.examples
    rows, zeros = np.arange(examples), np.zeros(examples, np.int64)
    before = evaluator.scores_at(Nodes(np.zeros(examples), rows, zeros))
    after = evaluator.scores_at(Nodes(np.ones(examples), rows, zeros))
    check_rows(evaluator, after, rows)
    embedded = rule.weights if rule.embedded is None else rule.weights - rule.embedded
    values, differences = contract(evaluator, rule.nodes, np.stack([rule.weights, embedded], 1))[:, 0]
    return values, Certificate(tuple(_certify(evaluator, start, rule, (before, after), values, differences, tol)))


def _certify(
    evaluator: Evaluator,
    start: Leaves,
    rule: Rule,
    scores: tuple[Floats, Floats],
    values: Tensor,
    differences: Tensor,
    tol: float,
) -> list[ExampleCertificate]:
    """Score, residual and magnitude are those of the mean gradients times x - x'; the error is that of what is returned."""
    velocity = (flat(evaluator.function.inputs) - flat(start)).to(values.dtype)
    products = values * velocity

    def floats(tensor: Tensor) -> Floats:
        return tensor.double().cpu().numpy()

    missing = floats(products.sum(1)) - (scores[1] - scores[0])
    reach, magnitudes, sizes = floats(velocity.abs().amax(1)), floats(products.abs().sum(1)), floats(values.abs().sum(1))
    changes, roots = norms_of(differences)
    raised = changes * raising(changes, roots)
    certificates = []
    for i, (before, after) in enumerate(zip(*scores, strict=True)):
        # Errors of e in the gradients make the sum miss at most |e| times the longest distance, which bounds |e| below.
        least = abs(missing[i]) / reach[i] if reach[i] > 0 else 0.0
        error = relative(max(raised[i], least), sizes[i]) if rule.embedded is not None else float("nan")
        done = error <= tol
        certificates.append(
            evaluator.certificate(
                i,
                tol,
                score=float(after),
                baseline_score=float(before),
                residual=float(missing[i]),
                magnitude=float(magnitudes[i]),
                error=error,
                status=Status.CONVERGED if done else Status.BUDGET,
                rule=rule.name,
                needed=None if done or not np.isfinite(error) else int(np.ceil(len(rule) * error / tol)),
            )
        )
    return certificates


Model = Callable[..., Any]

METHODS: dict[str, RuleName] = {
    "riemann_right": "right",
    "riemann_left": "left",
    "riemann_middle": "midpoint",
    "riemann_trapezoid": "trapezoid",
    "gausslegendre": "gauss-legendre",
}
"""Captum's names of the rules, and ours."""


@dataclass(frozen=True)
class CaptumOptions:
    """How to integrate, and with respect to what.

    Attributes:
        n_steps: gradient evaluations, or None to integrate to the tolerance.
        method: Captum's name of the rule.
        chunk: rows to run at a time.
        multiply: whether gradients are multiplied by input minus baseline.
        tol: the relative error to integrate to, or to warn beyond.
        layers: modules to explain instead of the input.
        side: their output or input.
        create_graph: whether the values can be differentiated.
    """

    n_steps: int | None
    method: str
    chunk: int | None
    multiply: bool
    tol: float = 0.01
    layers: tuple[nn.Module, ...] = ()
    side: Literal["output", "input"] = "output"
    create_graph: bool = False

    @property
    def rule(self) -> RuleName | None:
        """Our name of the rule; None where it is for the tolerance to decide."""
        return None if self.n_steps is None else METHODS[self.method]

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise OptionError(f"got method={self.method!r}; expected one of {', '.join(map(repr, METHODS))}.")
        for name, value in (("n_steps", self.n_steps), ("internal_batch_size", self.chunk)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise OptionError(f"got {name}={value!r}; expected a whole number from 1 on, or None.")
        if self.create_graph and not self.multiply:
            raise OptionError(
                "got create_graph in grad_kwargs with multiply_by_inputs=False; expected one of them. Differentiate the "
                "attributions with multiply_by_inputs=True and divide by inputs - baselines."
            )


@dataclass(frozen=True)
class CaptumProblem:
    """What is explained: a model, where the path starts and ends, and the target.

    Attributes:
        model: what is called, with what is not a tensor among its further arguments filled in.
        tree: the structure of its inputs.
        end: the inputs.
        start: the baselines, each of its input's shape and dtype.
        target: the output to explain.
        args: further arguments.
    """

    model: Model
    tree: Tree
    end: Leaves
    start: Leaves
    target: Target
    args: tuple[Any, ...]

    @staticmethod
    def of(model: Model, inputs: Any, baselines: Any, target: Any, further: Any) -> CaptumProblem:
        """Settle what Captum leaves open."""
        tree, end = flatten(inputs, what="inputs")
        end = tuple(leaf.detach() for leaf in end)
        args = () if further is None else further if isinstance(further, tuple) else (further,)
        model, args = _filled_in(model, len(end), args)
        return CaptumProblem(model, tree, end, _starts(baselines, tree, end), _target(target), args)

    def function(self, how: CaptumOptions) -> TorchFunction:
        """The score as a function of the inputs, or of what layers give or get."""
        return build(
            self.model,
            self.tree.build(self.end),
            target=self.target,
            args=self.args,
            layer=how.layers or None,
            layer_side=how.side,
            batched=True,
        )

    def delta(self, attributions: object) -> Tensor:
        """What attributions sum to, minus F(inputs) - F(baselines), for each example.

        F(baselines) is the model's own, as in Captum: where an input reaches the output past a layer, the layer's
        attributions do not account for all of it, and this says so.
        """
        examples = self.end[0].shape[0]
        call = ModelCall(self.model, self.tree, examples, True, self.args, copies=True)
        rows = torch.arange(examples, device=self.end[0].device)
        with undisturbed(self.model), torch.no_grad():
            outputs = call(self.end, rows)
            scorer = make_scorer(self.target, "logit", outputs, examples, batched=True)
            ends, starts = scorer(outputs, rows), scorer(call(self.start, rows), rows)
        leaves = [leaf for leaf in pytree.tree_leaves(attributions) if isinstance(leaf, Tensor)]
        if not leaves or any(leaf.ndim == 0 or leaf.shape[0] != examples for leaf in leaves):
            shapes = [tuple(leaf.shape) for leaf in leaves]
            raise InputError(f"got attributions of shapes {shapes}; expected {examples} rows each, one per example.")
        total = torch.stack([leaf.detach().double().flatten(1).sum(1).to(ends.device) for leaf in leaves]).sum(0)
        return (total - (ends.double() - starts.double())).to(ends.dtype)

    def by_layer(self, values: Tensors, how: CaptumOptions) -> list[Tensor | tuple[Tensor, ...]]:
        """The tensors of a result, which come in the order of the calls, for each layer in the order given."""
        with undisturbed(self.model):
            run = self.function(how).run
        assert isinstance(run, LayerCall)
        owners = [run.modules[slot[0]] for slot in run.slots]
        found = [tuple(v for v, own in zip(flatten(values)[1], owners, strict=True) if own is layer) for layer in how.layers]
        return [parts[0] if len(parts) == 1 else parts for parts in found]


def wants_graph(grad_kwargs: Mapping[str, Any] | None) -> bool:
    """What ``grad_kwargs`` can ask for; what it can allow is allowed anyway."""
    options = dict(grad_kwargs or {})
    create_graph = bool(options.pop("create_graph", False))
    unknown = set(options) - {"allow_unused", "materialize_grads", "retain_graph"}
    if unknown:
        raise OptionError(f"got grad_kwargs with {sorted(unknown)}; expected create_graph, allow_unused or materialize_grads.")
    return create_graph


def _filled_in(model: Model, inputs: int, args: tuple[Any, ...]) -> tuple[Model, tuple[Any, ...]]:
    """Captum gives each example its row of a tensor, and everything else to all of them as it is.

    The front door splits lists, arrays and dicts too; here they are bound to the model, out of its sight.
    """
    if not any(isinstance(arg, (list, tuple, dict, np.ndarray)) for arg in args):
        return model, args

    def filled_in(*values: Tensor) -> Any:
        tensors = iter(values[inputs:])
        return model(*values[:inputs], *(next(tensors) if isinstance(arg, Tensor) else arg for arg in args))

    return filled_in, tuple(arg for arg in args if isinstance(arg, Tensor))


def _starts(baselines: Any, tree: Tree, end: Leaves) -> Leaves:
    """One baseline for each input, in the space of the inputs also where a layer is explained."""
    if baselines is None or isinstance(baselines, Real):
        given: tuple[Any, ...] = (baselines or 0,) * len(end)
    else:
        given = tuple(baselines) if isinstance(baselines, (tuple, list)) else (baselines,)
    if len(given) != len(end):
        raise InputError(f"got {len(given)} baselines for {len(end)} inputs; expected one for each, a number or a tensor.")
    return tuple(_start(value, leaf, name) for value, leaf, name in zip(given, end, tree.names, strict=True))


def _start(value: Any, like: Tensor, name: str) -> Tensor:
    if isinstance(value, Real):
        number = float(value)
        if not like.dtype.is_floating_point and not number.is_integer():
            raise InputError(f"baselines{name} is {value}; expected a whole number, since inputs{name} has dtype {like.dtype}.")
        return torch.full_like(like, number)
    if not isinstance(value, Tensor):
        raise InputError(f"baselines{name} is a {type(value).__name__}; expected a number or a tensor.")
    if torch.promote_types(value.dtype, like.dtype) != like.dtype:
        raise InputError(f"baselines{name} has dtype {value.dtype}; expected {like.dtype}. Convert it with .to({like.dtype}).")
    if value.ndim in (0, like.ndim) or value.shape == like.shape[1:]:
        try:
            return value.detach().to(like.dtype).expand(like.shape)
        except RuntimeError:
            pass
    raise InputError(
        f"baselines{name} has shape {tuple(value.shape)}; expected {tuple(like.shape)}, that of inputs{name}, or one row of it."
    )


def _target(target: Any) -> Target:
    """A tensor with one index is one for all examples; an index from the end becomes a function of the output."""
    if isinstance(target, Tensor) and target.numel() == 1:
        target = target.item()
    parts = target if isinstance(target, tuple) else (target,)
    if not any(isinstance(part, int) and part < 0 for part in parts):
        return target  # type: ignore[no-any-return]

    def picked(output: Any) -> Tensor:
        return main_tensor(output)[(slice(None), *parts)]

    picked.__name__ = f"output{list(parts)}"
    return picked
