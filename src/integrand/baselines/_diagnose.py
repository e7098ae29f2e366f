"""The paper's advice on baselines as a check."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .._trees import Leaves, Tensors, flatten
from ..attribution import Attribution
from ..errors import ConvergenceWarning, InputError, IntegrandError, OptionError, ZeroAttributionWarning
from ..execute._progress import ProgressOption
from ..functions import Function, Score, Target, build, undisturbed
from ..functions._layer import Layers
from ._advice import advise, recommend
from ._constructors import Values
from ._diagnosis import Diagnosis, Floats, Row
from ._named import Builtins, Candidates, asked_for
from ._settle import Baseline, settle_baselines
from ._signal import Signal, class_probabilities, head_start, own_signal, signal_of

SIDE = 14
"""Agreement is measured over at most so many by so many regions of an image: a pixel more or less is not another answer."""


def diagnose(
    model: Callable[..., Any],
    x: Tensors,
    candidates: Candidates = None,
    *,
    target: Target = None,
    score: Score = "probability",
    tol: float = 0.05,
    low: Values = 0.0,
    high: Values = 1.0,
    draws: int = 5,
    seed: int = 0,
    classes: Sequence[str] | Callable[[int], str] | None = None,
    layer: Layers | None = None,
    layer_side: Literal["output", "input"] = "output",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    max_evaluations: int = 4000,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = None,
) -> Diagnosis:
    """Compare baselines for one input: is the score near zero there, do they carry a signal, does the answer depend on them?

    >>> def model(x):  # two classes; a black image is undecided, a white one is sure of the second
    ...     return torch.stack([0 * x.mean((1, 2, 3)), 8 * x.mean((1, 2, 3))], 1)
    >>> found = diagnose(model, torch.full((1, 1, 4, 4), 0.5), ["black", "white"])
    >>> found.recommended, found["white"].verdict
    ('black', 'score is high, own signal')

    Args:
        model: as in :func:`integrand.integrated_gradients`, and so for what is not described here.
        x: one input, with or without a batch dimension.
        candidates: baselines by name: whatever ``integrated_gradients`` takes as a baseline, or the name of a constructor;
            or a list of such names (``black``, ``white``, ``mean``, ``blurred``, ``uniform``, ``gaussian``, ``zero``). The
            order is that of preference. None means all that make sense for x, in that order.
        target: the output to explain; None means the only output, else the top class of x. A function from the output to
            one score per example is taken as it is, whatever ``score`` says.
        score: logit, probability or log-probability. What a baseline sees is judged by softmax over the outputs in any case
            (sigmoid for a single output, but not with ``logit``).
        tol: the relative L1 error to integrate to.
        low: black in the space of x: a number, one per channel, or a tensor that broadcasts to x.
        high: white.
        draws: how many baselines to draw, of noise and from functions.
        seed: of the noise.
        classes: names of the classes: a sequence, or a function from the number of a class to its name.
        layer: explain the value of a submodule instead of x.
        layer_side: what the layer gives or gets.
        args: further positional arguments of the model.
        kwargs: further keyword arguments.
        batched: whether the first dimension of x counts examples.
        max_evaluations: gradient evaluations that each candidate may take.
        memory: bytes that the run may hold.
        chunk: rows to run at a time.
        progress: a bar or a callback, candidate by candidate.

    Returns:
        A table to print, a recommendation in words, and pictures: see :class:`Diagnosis`.
    """
    from .._api import Options

    options = Options.make(tol, None, None, max_evaluations, memory, chunk, draws, progress, False)
    own = callable(target) and not isinstance(target, Tensor)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs, "layer": layer, "layer_side": layer_side, "batched": batched}
    with undisturbed(model, differentiable=False):
        function = build(model, x, target=target, score="logit" if own else score, **call)
        if function.examples != 1:
            raise InputError(
                f"got {function.examples} examples; expected one, since what is a good baseline differs from input to input. "
                "Ask about each: [diagnose(model, x[i : i + 1]) for i in range(len(x))]."
            )
        asked = asked_for(candidates, x, function, Builtins(x, low, high, draws, seed, function.batched))
        found, failures = _measured(asked, function, options, draws)
    return _judged(found, failures, function, x, (low, high), _names(classes))


@dataclass(frozen=True)
class Measured:
    """What one candidate gives."""

    starts: list[Leaves]
    signal: Signal | None
    attribution: Attribution


def _measured(
    asked: Mapping[str, Callable[[], Baseline]], function: Function, options: Any, draws: int
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Every candidate's attribution and what the model sees in it; and what was said where there is none."""
    from .._api import attribute
    from ..attribution import promised
    from ..paths._paths import segment

    found, failures = {}, {}
    last: IntegrandError | None = None
    for name, make in asked.items():
        try:
            starts = settle_baselines(make(), function, draws)
            pieces = [segment(start, function.inputs, 1 / len(starts)) for start in starts]
            meta = {"method": f"integrated gradients from {name}", "baselines": str(len(starts))}
            with warnings.catch_warnings():  # the table says both, for every candidate
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.simplefilter("ignore", ZeroAttributionWarning)
                attribution = attribute(function, pieces, options, None, None, meta, promised())
            found[name] = Measured(starts, _signal(function, starts), attribution)
        except OptionError:
            raise
        except IntegrandError as error:
            failures[name], last = str(error), error
    if last is not None and not found:
        raise last
    return found, failures


def _signal(function: Function, starts: Sequence[Leaves]) -> Signal | None:
    """What the model sees at starting points of the one example."""
    rows = torch.zeros(1, dtype=torch.long, device=function.inputs[0].device)
    side = None
    if not function.scorer.index and function.scorer.score != "logit":
        side = int(function.again()[0] >= (0.5 if function.scorer.score == "probability" else math.log(0.5)))
    return signal_of([class_probabilities(function, start, rows) for start in starts], side=side)


def _judged(
    found: Mapping[str, Measured],
    failures: Mapping[str, str],
    function: Function,
    x: Tensors,
    ends: tuple[Values, Values],
    names: Callable[[int], str],
) -> Diagnosis:
    """Rows, recommendation and advice."""
    from ..comparison._ranks import rank_correlations

    at_x = _signal(function, [function.inputs])
    here = math.nan if at_x is None else at_x.probability
    agreements = rank_correlations(np.stack([regions(one.attribution) for one in found.values()]))
    rows = []
    for i, (name, one) in enumerate(found.items()):
        others = np.delete(agreements[i], i)
        known = others[~np.isnan(others)]
        rows.append(_row(name, one, at_x, function, float(known.mean()) if len(known) else math.nan))
    first = next(iter(found.values())).attribution
    leaves = flatten(first.values, what="values")[1]
    images = len(leaves) == 1 and leaves[0].ndim == 3 + first.batched
    certificate = first.certificate[0]
    return Diagnosis(
        rows=tuple(rows),
        recommended=recommend(rows).name,
        advice=advise(rows, agreements, here, names, images=images),
        score=certificate.score,
        target=certificate.target,
        probability=here,
        chance=math.nan if at_x is None else at_x.chance,
        agreements=agreements,
        x=x,
        low=ends[0],
        high=ends[1],
        names=names,
        failures=failures,
        meta={key: text for key, text in first.meta.items() if key not in ("method", "baselines")},
    )


def _row(name: str, one: Measured, at_x: Signal | None, function: Function, agreement: float) -> Row:
    certificate, signal = one.attribution.certificate[0], one.signal
    start = one.starts[0] if function.batched else tuple(leaf[0] for leaf in one.starts[0])
    base, here = certificate.baseline_score, certificate.score
    # Where no probability of the explained output is known, the paper's "near zero" can only be measured beside F(x).
    ahead = abs(base) / abs(here) if here else (0.0 if base == 0 else math.inf)
    if signal is not None and at_x is not None and not math.isnan(signal.probability):
        ahead = head_start(signal.probability, at_x.probability, signal.chance)
    classes = signal or Signal(math.nan, 0, math.nan, math.nan, 2)
    return Row(
        name=name,
        baseline=function.tree.build(start),
        draws=len(one.starts),
        score=base,
        probability=classes.probability,
        head_start=ahead,
        top=None if signal is None else signal.top,
        confidence=classes.confidence,
        entropy=classes.entropy,
        signal=0.0 if signal is None else own_signal(signal.confidence, signal.chance),
        agreement=agreement,
        attribution=one.attribution,
    )


def regions(attribution: Attribution) -> Floats:
    """Attributions to compare: of an image the sums over at most 14 by 14 regions, of anything else all of them."""
    leaves = [leaf.detach().double().cpu() for leaf in flatten(attribution.values, what="values")[1]]
    leaves = leaves if not attribution.batched else [leaf[0] for leaf in leaves]
    if len(leaves) > 1 or leaves[0].ndim != 3:
        return torch.cat([leaf.reshape(-1) for leaf in leaves]).numpy()
    total = leaves[0].sum(0).numpy()
    for axis in (0, 1):
        size = total.shape[axis]
        edges = np.unique(np.linspace(0, size, min(size, SIDE) + 1).astype(int)[:-1])
        total = np.add.reduceat(total, edges, axis=axis)
    return np.asarray(total.reshape(-1), float)


def _names(classes: Sequence[str] | Callable[[int], str] | None) -> Callable[[int], str]:
    if classes is None:
        return "class {}".format
    return classes if callable(classes) else lambda index: str(classes[index])
