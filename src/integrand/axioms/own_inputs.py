"""From what a user passes to single examples of their model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..backends.torch_function import TorchFunction, build
from ..baselines.resolve import Baseline, resolve_baselines
from ..errors import InputError, OptionError
from ..functions.layer import Layers, LayerSide
from ..functions.model_state import undisturbed
from ..functions.target import Score, Target, main_tensor
from ..trees import Leaves, Tensors
from .feature_parts import parts_of
from .own_model import Own, Scored

Model = Callable[..., Any]


@dataclass(frozen=True)
class OwnModelQuestion:
    """What the user asks about, as given."""

    model: Model
    x: Tensors
    baseline: Baseline
    target: Target
    score: Score
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batched: bool | None
    groups: Tensors | None
    equivalent: Model | None
    layer: Layers | None = None
    layer_side: LayerSide = "output"

    def options(self) -> dict[str, Any]:
        """Those that are not the default, for the code of a counter-example."""
        given = {
            "target": self.target,
            "score": None if self.score == "logit" else self.score,
            "args": self.args or None,
            "kwargs": self.kwargs or None,
            "batched": self.batched,
            "groups": self.groups,
            "equivalent": self.equivalent,
            "layer": self.layer,
            "layer_side": None if self.layer_side == "output" else self.layer_side,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class CheckLimits:
    """Which features to look at, and how many of everything."""

    features: Sequence[int] | None
    dummy: Sequence[int] | None
    examples: int
    moves: int
    probes: int
    seed: int


def own_examples(ask: OwnModelQuestion, limits: CheckLimits) -> list[Own]:
    """The user's examples, each with its score as a module."""
    function, starts = _settled(ask, ask.model)
    if len(starts) != 1:
        raise InputError(f"got {len(starts)} baselines; expected a single one: the axioms speak of an input and a baseline.")
    target = _target(ask.target, function)
    same = None if ask.equivalent is None else _settled(replace(ask, target=target), ask.equivalent)[0]
    out = []
    for row in range(min(limits.examples, function.examples)):
        x, start = (tuple(leaf[row : row + 1].detach() for leaf in leaves) for leaves in (function.inputs, starts[0]))
        parts = parts_of(x, function.tree, ask.groups)
        for name, chosen in (("features", limits.features), ("dummy", limits.dummy)):
            if any(not 0 <= part < len(parts) for part in chosen or ()):
                raise OptionError(f"got {name}={list(chosen or ())}; expected numbers from 0 to {len(parts) - 1}.")
        own = Own(
            Scored(function, row),
            x,
            start,
            parts,
            others=_other_output(function, row),
            equals=None if same is None else Scored(same, row),
            dummy=limits.dummy,
            chosen=limits.features,
            moves=limits.moves,
            probes=limits.probes,
            seed=limits.seed,
        )
        out.append(own)
    return out


def _settled(ask: OwnModelQuestion, model: Model) -> tuple[TorchFunction, list[Leaves]]:
    with undisturbed(model):
        function = build(
            model,
            ask.x,
            target=ask.target,
            score=ask.score,
            args=ask.args,
            kwargs=ask.kwargs,
            layer=ask.layer,
            layer_side=ask.layer_side,
            batched=ask.batched,
        )
        starts = resolve_baselines(ask.baseline, function, 1)
    wide = [tuple(a.expand_as(b) for a, b in zip(start, function.inputs, strict=True)) for start in starts]
    return function, wide


def _target(target: Target, function: TorchFunction) -> Target:
    """The target that was settled, so that another model is asked for the same."""
    if target is not None or not function.scorer.index:
        return target
    return [tuple(int(column[i]) for column in function.scorer.index) for i in range(function.examples)]


def _other_output(function: TorchFunction, row: int) -> list[tuple[str, nn.Module]]:
    """The strongest other output, where the model has a row of them."""
    scorer = function.scorer
    if len(scorer.index) != 1:
        return []
    with torch.no_grad():
        outputs = function.run(tuple(leaf[row : row + 1] for leaf in function.inputs), torch.tensor([row]))
        found = main_tensor(outputs[0]).reshape(-1)
    for index in found.argsort(descending=True).tolist():
        if index != int(scorer.index[0][row]):
            column = torch.full_like(scorer.index[0], index)
            other = replace(function, scorer=replace(scorer, index=(column,)))
            return [(f"output [{index}]", Scored(other, row))]
    return []
