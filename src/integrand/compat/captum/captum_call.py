"""Captum's arguments in this package's terms: inputs, baselines, target, additional_forward_args."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...api import RuleName
from ...backends.torch_function import TorchFunction, build
from ...errors import InputError, OptionError
from ...functions.call import ModelCall
from ...functions.layer import LayerCall
from ...functions.model_state import undisturbed
from ...functions.target import Target, main_tensor, make_scorer
from ...trees import Leaves, Tensors, Tree, flatten

Inputs = Tensor | tuple[Tensor, ...]
Baselines = float | Tensor | tuple[float | Tensor, ...] | None
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

    def scores(self, *points: Leaves) -> list[Tensor]:
        """The explained output at some values of the inputs, (N,) each.

        Args:
            points: tensors of the inputs' shapes. Without a target, the first of them decide which class is explained.
        """
        examples = self.end[0].shape[0]
        call = ModelCall(self.model, self.tree, examples, True, self.args, copies=True)
        rows = torch.arange(examples, device=self.end[0].device)
        with undisturbed(self.model):
            outputs = [call(leaves, rows) for leaves in points]
            scorer = make_scorer(self.target, "logit", outputs[0], examples, batched=True)
            return [scorer(output, rows) for output in outputs]

    def delta(self, attributions: object) -> Tensor:
        """What attributions sum to, minus F(inputs) - F(baselines), for each example.

        F(baselines) is the model's own, as in Captum: where an input reaches the output past a layer, the layer's
        attributions do not account for all of it, and this says so.
        """
        with torch.no_grad():
            ends, starts = self.scores(self.end, self.start)
        examples = len(ends)
        leaves = [leaf for leaf in pytree.tree_leaves(attributions) if isinstance(leaf, Tensor)]
        if not leaves or any(leaf.ndim == 0 or leaf.shape[0] != examples for leaf in leaves):
            shapes = [tuple(leaf.shape) for leaf in leaves]
            raise InputError(f"got attributions of shapes {shapes}; expected {examples} rows each, one per example.")
        total = torch.stack([leaf.detach().double().reshape(examples, -1).sum(1).to(ends.device) for leaf in leaves]).sum(0)
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
    """A tensor with one index is one for all examples; an index from the end becomes a function of the output.

    None is the only output that there is, as in Captum, never the top class.
    """
    if target is None:
        return ()
    if isinstance(target, Tensor) and target.numel() == 1:
        target = target.item()
    parts = target if isinstance(target, tuple) else (target,)
    if not any(isinstance(part, int) and part < 0 for part in parts):
        return target  # type: ignore[no-any-return]

    def picked(output: Any) -> Tensor:
        return main_tensor(output)[(slice(None), *parts)]

    picked.__name__ = f"output{list(parts)}"
    return picked
