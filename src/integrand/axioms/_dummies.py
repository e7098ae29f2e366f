"""Parts of an input that do nothing: told by probes, of the score and of its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._trees import flat
from ..errors import InputError
from ._own import HALF, Own

UNITS = 4
"""Units of rounding of the score by which a part may move it and still be taken for a dummy; none in half precision, where
four are a feature's worth."""

DOUBT = 100
"""How many times what was seen an attribution must be, where the score did move by some rounding."""

NAMED = 64
"""By which one that the user names may; eight in half precision."""

LINE, ROWS = 33, 16
"""Points between baseline and input whose gradient is looked at, and how many at a time."""


@dataclass(frozen=True)
class Dummy:
    """A part that does nothing, as far as one can tell.

    Attributes:
        part: its number.
        missed: an attribution that it may have and still not show in any probe; infinite where the probes moved the score
            by some rounding and there is no gradient to tell whether it was more.
    """

    part: int
    missed: float = 0.0


def dummies(own: Own) -> tuple[list[Dummy], str]:
    """The parts that do nothing, and how that is known."""
    rows, moves, step = _probes(own)
    before = own.values(rows)
    unit = torch.finfo(own.x[0].dtype).eps * float(before.abs().max())
    parts = own.looked_at() if own.dummy is None else list(own.dummy)
    effects = {}
    for part in parts:
        where, moved = own.features_of(part), rows.clone()
        moved[:, where] = moves[:, where]
        change = (own.values(moved) - before).abs()
        effects[part] = float(change.max()) if not bool(change.isnan().any()) else float("inf")
    if own.dummy is not None:
        _refuse_false(own, effects, unit)
        return [Dummy(part) for part in parts], ", as you say"
    slopes, most = _slopes(own, rows), 0.0 if own.x[0].dtype in HALF else UNITS * unit + own.shaken()
    found = []
    for part in parts:
        where = own.features_of(part)
        hidden = 0.0 if slopes is None else float((slopes[:, where] * step[where]).sum(1).max())
        if effects[part] <= most and hidden <= most:
            # What rounding can hide: a slope of some units over the step, times the way from baseline to input.
            way = (flat(own.x) - flat(own.start))[0].cpu()[where].abs().double().clamp(min=1.0)
            height = UNITS * unit
            if effects[part]:  # it may be no dummy, and only its gradient says that it is next to one
                height = float("inf") if slopes is None else DOUBT * most
            found.append(Dummy(part, height * float((way / step[where]).sum())))
    return found, f", as far as {own.probes} probes show"


def _probes(own: Own) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs between baseline and input, the same with every feature moved, and by about how much, (features,).

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


def _refuse_false(own: Own, effects: dict[int, float], unit: float) -> None:
    """Named dummies that do something."""
    most = (8 if own.x[0].dtype in HALF else NAMED) * unit + own.shaken()
    for part, effect in effects.items():
        if effect > most:
            raise InputError(
                f"got dummy={list(own.dummy or ())}, and moving {own.name_of(part)} moves the score by {effect:.3g}; expected "
                f"features that the score does not depend on. Leave {part} out of dummy=, or leave dummy= out and let probes "
                "look for them."
            )


def _slopes(own: Own, rows: Tensor) -> Tensor | None:
    """Sizes of the score's gradient at probes and between baseline and input, (N, features); None where there is none."""
    here, there = flat(own.start), flat(own.x)
    points = torch.cat([rows, here + torch.linspace(0, 1, LINE).to(here)[:, None] * (there - here)])
    found = []
    for chunk in points.split(ROWS):
        leaves = tuple(leaf.detach().requires_grad_() for leaf in own.leaves(chunk))
        try:
            with torch.enable_grad():
                total = own.score(*leaves).sum()
                slopes = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        except RuntimeError:  # a score without a gradient: its values have to do
            return None
        found.append(flat(slopes).detach().abs().cpu().double())
    return torch.cat(found)
