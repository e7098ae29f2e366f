"""Which candidate to take, and why, in words.

The rules:

1. A baseline is *neutral* if the explained class is as good as absent there (a head start of at most 10%: no more than a
   tenth of the rise from chance to p(x) is there already), if it carries no signal of its own (its top class is not even
   halfway from chance to certainty), and if it explains anything at all.
2. Of the neutral candidates, the first in the order given is recommended: by default black, as in the paper. Where none is
   neutral, the one that stays closest to both limits.
3. The answer depends on the baseline if two neutral candidates (where there are none: any two) rank the regions of the
   input differently, with a rank correlation below 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..attribution import percent
from ._diagnosis import Floats, Row
from ._signal import HIGH

ALIKE, APART = 0.8, 0.5
"""Rank correlations: from the first on the answer is the same, below the second it is another one."""

FURTHER = ("black", "white", "mean", "blurred", "uniform", "gaussian")


def recommend(rows: Sequence[Row]) -> Row:
    """The candidate to take."""
    return next((row for row in rows if row.neutral), min(rows, key=lambda row: row.charge))


def advise(rows: Sequence[Row], agreements: Floats, here: float, names: Callable[[int], str], *, images: bool) -> str:
    """The recommendation in words.

    Args:
        rows: the candidates.
        agreements: rank correlations between them, (rows, rows).
        here: the probability of the explained class at x; NaN where it is not known.
        names: from a class to its name.
        images: whether the input is an image, to which further candidates belong.
    """
    best = recommend(rows)
    neutral = [row for row in rows if row.neutral]
    if best.neutral:
        only = f"the only one of {len(rows)} candidates" if len(neutral) == 1 else f"the first of {len(neutral)} candidates"
        only = "" if len(rows) == 1 else f" It is {only} that {'is' if len(neutral) == 1 else 'are'} neutral."
        said = [f"Take {best.name}: {_at(best, here, names)}.{only}"]
        rejected = [f"{row.name} ({_against(row, names)})" for row in rows if not row.neutral]
        said += [f"Not neutral: {'; '.join(rejected)}."] if rejected else []
    else:
        said = _none(rows, best, here, names, images=images)
    said.append(_depends(rows, agreements, neutral, "regions" if images else "features"))
    missed = [row.name for row in rows if not row.certificate.converged]
    said += [f"The tolerance was not met from {_listed(missed)}: look at the errors first."] if missed else []
    return " ".join(filter(None, said))


def _at(row: Row, here: float, names: Callable[[int], str]) -> str:
    """What a baseline scores and sees."""
    if math.isnan(row.probability):
        share = "" if math.isnan(row.share) else f", {percent(row.share)} of F(x)"
        scored = f"the score there is {row.score:.2g}{share}"
    else:
        scored = f"the explained class has probability {row.probability:.2g} there and {here:.2g} at x"
    return scored if row.top is None else f"{scored}, and its own top class, {names(row.top)}, has {row.confidence:.2g}"


def _against(row: Row, names: Callable[[int], str]) -> str:
    """What speaks against a candidate."""
    if row.empty:
        return "every attribution is zero: the score does not change from there to x"
    reasons = []
    if not row.near_zero:
        what = f"the score there is {row.score:.2g}, {percent(row.share)} of F(x)"
        reasons.append(what if math.isnan(row.probability) else f"the explained probability there is {row.probability:.2g}")
    if row.speaks and row.top is not None and (row.near_zero or row.confidence > row.probability + 1e-3):
        reasons.append(f"the model sees {names(row.top)} in it, with probability {row.confidence:.2g}")
    return " and ".join(reasons)


def _none(rows: Sequence[Row], best: Row, here: float, names: Callable[[int], str], *, images: bool) -> list[str]:
    """What to say where no candidate is neutral."""
    said = [f"No candidate is neutral: {'; '.join(f'{row.name}: {_against(row, names)}' for row in rows)}."]
    if best.empty:
        return [*said, "Choose baselines that differ from x."]
    closest = f"{best.name} comes closest" if len(rows) > 1 else ""
    if not math.isnan(best.probability) and best.head_start > HIGH:
        closest += f"{', but ' if closest else ''}attributions from it explain only the change from {best.probability:.2g} "
        closest += f"to {here:.2g}, not what makes the class"
    said += [f"{closest[0].upper()}{closest[1:]}."] if closest else []
    left = [name for name in FURTHER if images and name not in {row.name for row in rows}]
    pairs = "an average such as [black(x), white(x)], " if images else ""
    return [
        *said,
        f"Try {', '.join(left)}{', ' if left else ''}{pairs}or draws of the training set (integrand.baselines.drawn).",
    ]


def _depends(rows: Sequence[Row], agreements: Floats, neutral: Sequence[Row], parts: str) -> str:
    """Whether the answer depends on the choice, among the neutral candidates or else among all."""
    chosen = [i for i, row in enumerate(rows) if not row.empty and (row.neutral or not neutral)]
    pairs = [(float(agreements[i, j]), i, j) for k, i in enumerate(chosen) for j in chosen[k + 1 :]]
    pairs = [pair for pair in pairs if not np.isnan(pair[0])]
    if not pairs:
        return ""
    whose = "neutral candidates" if neutral else "candidates"
    lowest, i, j = min(pairs)
    if lowest >= ALIKE:
        return (
            f"The answer does not depend on the choice: the {whose} rank the {parts} of x alike (rank correlations from "
            f"{lowest:.2f} on)."
        )
    both = f"{rows[i].name} and {rows[j].name} rank the {parts} of x"
    if lowest >= APART:
        return f"The answer depends on the choice to some extent: {both} somewhat differently (rank correlation {lowest:.2f})."
    average = f"average the neutral ones ({_listed([rows[k].name for k in chosen])})" if neutral else "average several"
    return (
        f"The answer depends on the choice: {both} differently (rank correlation {lowest:.2f}). Say with the picture which "
        f"baseline it is from, or {average}: those in a list average."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
