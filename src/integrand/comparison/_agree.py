"""Whether an attribution answers the question that it is to be measured on."""

from __future__ import annotations

import numpy as np
import torch

from ..attribution import Attribution, ExampleCertificate, number
from ..errors import InputError, NonFiniteError
from ..methods import LRP, Deconvnet, Gradient, GradientTimesInput, GuidedBackprop, Problem, SmoothGrad
from ._ranks import Floats

_PLAIN = (Gradient(), GradientTimesInput(), LRP(), GuidedBackprop(), Deconvnet())
WITHOUT_BASELINE = frozenset(name for method in _PLAIN for name in (method.name, SmoothGrad(method).name))
"""Methods whose values are the same whatever the baseline: any may be asked about."""


def check_question(problem: Problem, attribution: Attribution, *, drawn: bool) -> None:
    """Refuse an attribution of another output, or from another baseline, than the problem's.

    Args:
        problem: what is asked here.
        attribution: what was explained; its certificate says in words which output, and holds F(x) and F(x').
        drawn: whether baselines are drawn by a function, which may draw others each time.
    """
    here, base = _ends(problem)
    if drawn or attribution.meta.get("method") in WITHOUT_BASELINE:
        base = np.full_like(base, np.nan)
    words = problem.function.scorer.words
    own = problem.function.scorer.function is not None
    slack = _slack(problem, attribution)
    wider: Floats | None = None
    for i, one in enumerate(attribution.certificate.examples[: problem.examples]):
        same = own or _is_own(one) or one.target == words[i]
        off = np.array([here[i] - one.score, base[i] - one.baseline_score])
        off = np.nan_to_num(np.abs(off), nan=0.0, posinf=np.inf)
        if same and (off <= slack[i]).all():
            continue
        if same:  # where large terms cancel, rounding is not small beside the score
            wider = 100 * problem.function.rounding() if wider is None else wider
            if (off <= wider[i]).all():
                continue
        raise InputError(_words(i, one, words[i], float(here[i]), float(base[i])))


def _ends(problem: Problem) -> tuple[Floats, Floats]:
    """F(x) and F(x') as asked here; NaN where the baseline is outside the model's domain."""
    try:
        return problem.settled_ends(problem.evaluator())
    except NonFiniteError:
        here = problem.function.at_input.double().cpu().numpy()
        return here, np.full_like(here, np.nan)


def _slack(problem: Problem, attribution: Attribution) -> Floats:
    """By how much scores of one and the same question may differ, (examples,): the coarser of the two precisions decides."""
    epsilon = max(problem.evaluator().epsilon, torch.finfo(problem.function.at_input.dtype).eps)
    theirs = getattr(torch, attribution.certificate[0].precision, None)
    if isinstance(theirs, torch.dtype) and theirs.is_floating_point:
        epsilon = max(epsilon, torch.finfo(theirs).eps)
    return np.asarray(float(np.clip(4e3 * epsilon, 1e-6, 0.2)) * problem.function.scale)


def _is_own(one: ExampleCertificate) -> bool:
    """Whether the user's own function was explained, whose name says little: only its numbers can be compared."""
    return not one.target.startswith(("output [", "the output ("))


def _words(example: int, one: ExampleCertificate, asked: str, here: float, base: float) -> str:
    theirs = f"{one.target} with F(x) = {number(one.score, 6)} and F(x') = {number(one.baseline_score, 6)}"
    from_here = "" if np.isnan(base) else f" and F(x') = {number(base, 6)}"
    return (
        f"got an attribution of {theirs} for example {example}, and a question about {asked} with F(x) = {number(here, 6)}"
        f"{from_here}; expected one and the same. Pass model, x, target=, score= and baseline= as they were for the "
        "attribution; or pass its .values, which cannot be checked, to ask another question on purpose."
    )
