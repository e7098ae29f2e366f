"""Sensitivity(b), or dummy: what the score does not depend on gets nothing.

    F does not depend on feature i   =>   a_i = 0

Section 2.1 of the paper, from Friedman's work on cost sharing. "Does not depend" is said of the function, not of its
code: an input that goes through f - g, where f and g compute the same, is a dummy as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from ..errors import InputError
from ..methods.method import Method
from ..trees import flat
from .evidence import AxiomCase, ExplainedCase, Finding, allowance, explain_case, rounded, same, values_of
from .own_model import HALF, OwnExample, Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

NAME = "sensitivity-b"

RULE = "a feature that the score does not depend on gets nothing"

MOST_NAMED = 8
"""How many dummies a note names, at most."""

UNITS = 4
"""By how many units of rounding a part may change the score and still be taken for a dummy; by none in half precision, where
four units are as much as a feature may be worth."""

DOUBT = 100
"""How many times the change that probes saw an attribution must be to count, where they did see a change of some rounding."""

NAMED_UNITS = 64
"""By how many units of rounding a part that the user calls a dummy may change the score; eight in half precision."""

LINE, PROBE_ROWS = 33, 16
"""How many points between baseline and input have their gradient looked at, and how many at a time."""


def cases() -> SearchStrategy[AxiomCase]:
    """Small networks with inputs that do nothing."""
    from .search_networks import with_dummies

    return with_dummies()


def premise(case: AxiomCase, points: Floats) -> bool:
    """Whether the network's value stays the same when its dummy inputs take random values."""
    other = points.copy()
    other[:, list(case.features)] = np.random.default_rng(2).uniform(-4, 4, (len(points), len(case.features)))
    return same(values_of(case, points)[0], values_of(case, other)[0])


def judge(method: Method, case: AxiomCase) -> Finding:
    """Compare what the method attributes to the dummy inputs with zero."""
    one = explain_case(method, case)["f"]
    names = " and ".join(f"x{i + 1}" for i in case.features)
    return dummy_finding(one, torch.tensor(case.features), f"f does not depend on {names}", "f")


def on_model(method: Method, own: OwnExample) -> Iterator[Trial]:
    """Judge the features that the user calls dummies, or that change the score in no probe."""
    found, how = dummies(own)
    if not found:
        return
    one = own.explain(method)
    names = [own.name_of(dummy.part) for dummy in found]
    note = f"taken for dummies{how}: {', '.join(names[:MOST_NAMED])}{', ...' if len(names) > MOST_NAMED else ''}"
    for dummy in found:
        said = f"the score does not depend on {own.name_of(dummy.part)}{how}"
        finding = dummy_finding(one, torch.tensor([dummy.part]), said, "the model", dummy.missed)
        yield Trial(finding, {"dummy": [dummy.part]}, note)


def dummy_finding(one: ExplainedCase, where: Tensor, said: str, name: str, missed: float = 0.0) -> Finding:
    """What a method attributes to dummies against what it may: its slack, and what the probes may have missed.

    Args:
        one: the attribution.
        where: the positions of the dummies.
        said: the premise in words, for the statement.
        name: what the attribution is of.
        missed: see :class:`Dummy`.
    """
    share, allowed = float(one.values[where].abs().sum()), allowance(one)
    statement = f"{said}; attributed there: {share:.6g}"
    if share > allowed:  # up to what the probes may have missed, it may be no dummy after all
        allowed = allowed + missed if share > allowed + missed else float("nan")
    return Finding(share, allowed, statement, ((name, rounded(one.values)),))


@dataclass(frozen=True)
class Dummy:
    """A part of the input that does nothing, as far as one can tell.

    Attributes:
        part: the number of the part.
        missed: the attribution that the part may deserve without showing in any probe; infinite where probes changed the
            score by some rounding and there is no gradient to tell whether it was more.
    """

    part: int
    missed: float = 0.0


def dummies(own: OwnExample) -> tuple[list[Dummy], str]:
    """The parts of an example that do nothing, and how that is known, as words to append."""
    rows, moves, step = _probes(own)
    before = own.values(rows)
    unit = torch.finfo(own.x[0].dtype).eps * float(before.abs().max())
    parts = own.looked_at() if own.dummy is None else list(own.dummy)
    effects = {}
    for part in parts:
        where, probe = own.features_of(part), rows.clone()
        probe[:, where] = moves[:, where]
        change = (own.values(probe) - before).abs()
        effects[part] = float(change.max()) if not bool(change.isnan().any()) else float("inf")
    if own.dummy is not None:
        _refuse_false(own, effects, unit)
        return [Dummy(part) for part in parts], ", as you say"
    slopes, most = _slopes(own, rows), 0.0 if own.x[0].dtype in HALF else UNITS * unit + own.input_noise()
    found = []
    for part in parts:
        where = own.features_of(part)
        hidden = 0.0 if slopes is None else float((slopes[:, where] * step[where]).sum(1).max())
        if effects[part] <= most and hidden <= most:
            # What rounding can hide: a slope of some units over the step, times the distance from baseline to input.
            distance = (flat(own.x) - flat(own.start))[0].cpu()[where].abs().double().clamp(min=1.0)
            height = UNITS * unit
            if effects[part]:  # it may be no dummy, and only its gradient says that it is next to one
                height = float("inf") if slopes is None else DOUBT * most
            found.append(Dummy(part, height * float((distance / step[where]).sum())))
    return found, f", as far as {own.probes} probes show"


def _probes(own: OwnExample) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs between baseline and input, the same inputs with every feature moved, and about how far, (features,).

    Features go to the other end and, for every other probe, on by up to their own size, also where both ends are the same.
    """
    generator = torch.Generator().manual_seed(own.seed)
    here, there = flat(own.start).cpu(), flat(own.x).cpu()  # not every device has float64
    own_size = torch.stack([(there - here)[0].abs(), here[0].abs(), there[0].abs()]).max(0).values.double()
    usual = float(own_size[own_size > 0].mean()) if bool((own_size > 0).any()) else 1.0
    least = usual / 10 if own.parts.grouped else 0.0  # a dark pixel moves as far as others of its block
    step = torch.where(own_size > least, own_size, usual)
    mixes = torch.rand(own.probes, len(own.parts) + 1, generator=generator, dtype=torch.float64)
    mixes[: own.probes // 2] = mixes[: own.probes // 2].round()
    share = mixes[:, own.parts.labels].to(here)  # label -1 takes the last column
    swapped = torch.where(share > 0.5, here, there)
    on = 0.25 + 0.75 * torch.rand(share.shape, generator=generator, dtype=torch.float64)
    beyond = ((torch.arange(own.probes) % 2 == 0)[:, None] | (here == there)) * on * step
    device = own.x[0].device
    return (here + share * (there - here)).to(device), (swapped + beyond).to(here).to(device), step


def _refuse_false(own: OwnExample, effects: dict[int, float], unit: float) -> None:
    """Refuse features that the user calls dummies and that change the score."""
    most = (8 if own.x[0].dtype in HALF else NAMED_UNITS) * unit + own.input_noise()
    for part, effect in effects.items():
        if effect > most:
            raise InputError(
                f"got dummy={list(own.dummy or ())}, and moving {own.name_of(part)} moves the score by {effect:.3g}; expected "
                f"features that the score does not depend on. Leave {part} out of dummy=, or leave dummy= out and let probes "
                "look for them."
            )


def _slopes(own: OwnExample, rows: Tensor) -> Tensor | None:
    """Sizes of the score's gradient at probes and between baseline and input, (N, features); None where there is none."""
    here, there = flat(own.start), flat(own.x)
    points = torch.cat([rows, here + torch.linspace(0, 1, LINE).to(here)[:, None] * (there - here)])
    found = []
    for chunk in points.split(PROBE_ROWS):
        leaves = tuple(leaf.detach().requires_grad_() for leaf in own.leaves(chunk))
        try:
            with torch.enable_grad():
                total = own.score(*leaves).sum()
                slopes = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        except RuntimeError:  # a score without a gradient: its values have to do
            return None
        found.append(flat(slopes).detach().abs().cpu().double())
    return torch.cat(found)
