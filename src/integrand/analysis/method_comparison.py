"""Comparing methods: running several of them on one question, and keeping what each gave, missed and cost."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from ..attribution import Attribution
from ..baselines.resolve import Baseline
from ..errors import InputError, ModelError, OptionError, ZeroAttributionWarning, heeded
from ..evaluation.progress import ProgressOption
from ..functions.layer import Layers
from ..functions.model_state import keeping_random_state
from ..functions.randomness import noticing_draws
from ..functions.target import Score, Target
from ..methods import by_name
from ..methods.deeplift import DeepLift
from ..methods.gradients import Gradient, GradientTimesInput
from ..methods.guided_backprop import Deconvnet, GuidedBackprop
from ..methods.lrp import LRP
from ..methods.method import Method, open_problem
from ..methods.path_methods import IntegratedGradients
from ..trees import Tensors, flatten
from ..version import version_of
from .comparison_result import Comparison

DEFAULTS: tuple[Method, ...] = (
    IntegratedGradients(),
    GradientTimesInput(),
    Gradient(),
    DeepLift(),
    LRP(composite="epsilon-plus"),
    GuidedBackprop(),
    Deconvnet(),
)
"""The methods that are compared by default: those that take seconds on an image network."""


def usual_methods(tol: float = 0.01) -> tuple[Method, ...]:
    """The methods of :data:`DEFAULTS`, with integrated gradients to another tolerance."""
    return (IntegratedGradients(tol=tol), *DEFAULTS[1:])


def compare(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline = None,
    *,
    methods: Sequence[Method | str] | Mapping[str, Method | str] | None = None,
    target: Target = None,
    score: Score = "logit",
    groups: Tensors | None = None,
    progress: ProgressOption = None,
    **settings: Unpack[Settings],
) -> Comparison:
    """Explain one score with several methods, and set them side by side.

    A method that fails, because it has no rule for an operation of the model or for any other reason, is listed with its
    message and the others go on. What is wrong with the question itself (the input, the target, a model in train mode) is
    raised at once.

    >>> from integrand.methods import Gradient, IntegratedGradients
    >>> def f(x):
    ...     return 1 - torch.relu(1 - x[:, 0]) + 0.5 * x[:, 1]
    >>> both = compare(f, torch.tensor([[2.0, 2.0]]), methods=[IntegratedGradients(), Gradient()])
    >>> both.gaps["gradient"].tolist()  # slopes 0 and 0.5 against a change of 2
    [-1.5]

    Args:
        model: an ``nn.Module`` in eval mode, or any callable of tensors.
        x: the input.
        baseline: what x is compared with; zero if not given. A function that draws baselines is called once, so that all
            methods get the same ones.
        methods: what to compare: values of :mod:`integrand.methods` or their names (``"gradient"``, as
            :func:`integrand.methods.by_name` has them), or a mapping from names of your own to them. By default the cheap
            ones of :data:`DEFAULTS`.
        target: the output to explain; None means the only output, else the top class of x.
        score: logit, probability or log-probability.
        groups: integer labels in the structure of one example; attributions, correlations and pictures are then of groups.
        progress: a bar or a callback, told about each method in turn.
        **settings: how the model is called; see :class:`Settings`.

    Raises:
        ModelError: no method could explain the model; the message holds what each of them said.
    """
    chosen = _named(methods)
    baseline = same_draws(baseline, settings.get("draws", 20))
    with open_problem(model, x, baseline, target=target, score=score, groups=groups, **settings) as problem:
        words = problem.function.scorer.words  # and the model has been run once, so that the first method is not the cold one
    found: dict[str, Attribution] = {}
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    said: set[str] = set()
    for name, method in chosen.items():
        begun = _synchronised_clock(x)
        try:
            with _saying_once(said):
                result = method(model, x, baseline, target=target, score=score, groups=groups, progress=progress, **settings)
            check_shape(result, found)
        except Warning:  # the user turned warnings into errors, and means it
            raise
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
            continue
        seconds[name] = _synchronised_clock(x) - begun
        found[name] = result
    if not found:
        each = "\n".join(f"  {name}: {message}" for name, message in failures.items())
        raise ModelError(f"none of {len(failures)} method(s) could explain the model; expected at least one to.\n{each}")
    meta = {"integrand": version_of(), "torch": torch.__version__, "score": score, "explained": words[0]}
    settings_of = {name: repr(method) for name, method in chosen.items()}
    return Comparison(found, failures, seconds, settings_of, meta)


class Settings(TypedDict, total=False):
    """How the model is called, as in :func:`integrand.integrated_gradients`: all optional.

    Attributes:
        layer: explain the value of a submodule instead of x.
        layer_side: whether to explain the ``output`` of the layer or its ``input``.
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        batched: whether the first dimension of x counts examples.
        draws: how many baselines to draw from a function.
        memory: bytes that a run may hold, where it can tell.
        chunk: rows to run at a time.
    """

    layer: Layers | None
    layer_side: Literal["output", "input"]
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    batched: bool | None
    draws: int
    memory: int | None
    chunk: int | None


@contextmanager
def _saying_once(said: set[str]) -> Iterator[None]:
    """A context that gives each warning of zero attributions once, not once for every method.

    Args:
        said: the warnings that were given already; new ones are added.
    """

    def first(message: str, category: type[Warning]) -> bool:
        what = message.partition(":")[0]
        new = what not in said
        if issubclass(category, ZeroAttributionWarning):
            said.add(what)
            return new
        return True

    token = heeded.set(first)
    try:
        yield
    finally:
        heeded.reset(token)


def _named(methods: object) -> dict[str, Method]:
    """The methods by name, each name once."""
    if methods is None:
        methods = DEFAULTS
    if not isinstance(methods, (Mapping, list, tuple)) or not methods:
        raise OptionError(
            f"got methods={methods!r}; expected at least one of integrand.methods, or its name, in a list or in a mapping from "
            "names of your own."
        )
    values = list(methods.values()) if isinstance(methods, Mapping) else list(methods)
    values = [by_name(value) if isinstance(value, str) else value for value in values]
    for value in values:
        if not isinstance(value, Method):
            hint = f"; write {value.__name__}() for its defaults" if isinstance(value, type) else ""
            raise OptionError(
                f"got {value!r} among the methods; expected values of integrand.methods, such as IntegratedGradients(), or "
                f"their names, such as 'integrated-gradients'{hint}."
            )
    names = [str(name) for name in methods] if isinstance(methods, Mapping) else _distinct(values)
    return dict(zip(names, values, strict=True))


def _distinct(methods: Sequence[Method]) -> list[str]:
    """A distinct name for each method: its own, with settings other than the defaults and a number where that is needed.

    >>> from integrand.methods import Gradient, IntegratedGradients
    >>> _distinct([IntegratedGradients(), IntegratedGradients(tol=0.1), Gradient(), Gradient()])
    ['integrated gradients', 'integrated gradients (tol=0.1)', 'gradient', 'gradient #2']
    """
    shared = Counter(method.name for method in methods)
    names: list[str] = []
    for method in methods:
        own = _changed_settings(method) if shared[method.name] > 1 else ""
        name = f"{method.name} ({own})" if own else method.name
        copies = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{copies + 1}" if copies else name)
    return names


def _changed_settings(method: Any) -> str:
    """The settings of a method that differ from the defaults of its class, as text."""
    parts = []
    for field in dataclasses.fields(method) if dataclasses.is_dataclass(method) else ():
        value = getattr(method, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if value is not default and repr(value) != repr(default):  # not ==, which for tensors is not one truth
            parts.append(f"{field.name}={value.name if isinstance(value, Method) else repr(value)}")
    return ", ".join(parts)


def same_draws(baseline: Baseline, draws: int) -> Baseline:
    """A function that draws baselines replaced by what it drew, the same for every method."""
    if not callable(baseline) or isinstance(baseline, Tensor):
        return baseline
    cuda = [torch.device("cuda", torch.cuda.current_device())] if torch.cuda.is_initialized() else []
    with keeping_random_state(cuda), noticing_draws():
        return [baseline() for _ in range(draws)]


def check_shape(result: Attribution, found: Mapping[str, Attribution]) -> None:
    """Refuse an attribution of other shapes than those found before: the two cannot be set side by side."""
    for name, other in found.items():
        shapes = [[tuple(leaf.shape) for leaf in flatten(one.values, what="values")[1]] for one in (result, other)]
        if shapes[0] != shapes[1]:
            raise InputError(f"its values have shapes {shapes[0]}; expected {shapes[1]}, as those of {name!r}.")


def _synchronised_clock(x: Tensors) -> float:
    """The time, once the device has finished its work."""
    if any(leaf.is_cuda for leaf in flatten(x, what="x")[1]):
        torch.cuda.synchronize()
    return time.perf_counter()
