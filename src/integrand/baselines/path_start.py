"""The share of the change that happens at the very start of the path from a baseline, and the limits to judge it by."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats
from ..attribution import Attribution
from ..errors import BaselineWarning, warn
from ..profile import Profile
from ..words import percent

VERY_START = 0.01
"""The very start: the first hundredth of the path, from t = 0 on."""

EARLY, MOSTLY_EARLY = 0.25, 0.5
"""Limits of the share of the change that happens there. Above the first, a baseline is not neutral. Above the second,
``integrated_gradients`` warns of zeros that the user has not chosen. They are between what networks have without a norm at zero
(below 15% in the tests, except 39% for one digit of 400) and what stories260K's logits have from zero embeddings (56% to 82%,
``python -m benchmarks.zero_baseline``)."""


def early_shares(profile: Profile, until: float = VERY_START) -> Floats:
    """The share of the change, the integral of ``mass``, that lies before a time on every piece, (examples,).

    Only paths whose nodes gather at the start can have a large share: between nodes the mass is taken to be linear.

    >>> t, mass = np.array([0.0, 0.005, 0.01, 1.0]), np.array([0.0, 200.0, 0.0, 0.0])
    >>> early_shares(Profile(np.zeros(4, int), np.zeros(4, int), t, t, t, mass))
    array([1.])

    Args:
        profile: the points of the paths of examples 0, 1, ....
        until: the time.
    """
    example = profile.example[1:]
    width = np.where((np.diff(profile.example) == 0) & (np.diff(profile.piece) == 0), np.diff(profile.t), 0.0)
    inside = np.clip(until - profile.t[:-1], 0.0, width)
    slope = np.diff(profile.mass) / np.where(width > 0, width, 1.0)
    total = np.bincount(example, width * (profile.mass[1:] + profile.mass[:-1]) / 2, profile.example[-1] + 1)
    early = np.bincount(example, inside * (profile.mass[:-1] + slope * inside / 2), profile.example[-1] + 1)
    return np.asarray(early / np.where(total > 0, total, 1.0))


def description(share: float) -> str:
    """The finding in words."""
    start = f"{percent(share)} of the change happens in the first {VERY_START:.0%} of the path"
    return f"{start}: from this baseline the model hardly sees how large its input is" if share > MOSTLY_EARLY else start


def warn_if_early(result: Attribution) -> None:
    """Warn where most of the change happens at the very start of the path from the default baseline, zero.

    An example that missed its tolerance is warned of already, and its profile may be coarse.

    Args:
        result: an attribution from zeros that the caller has not chosen.
    """
    if result.profile is None or not len(result.profile):
        return
    shares = np.where([example.converged for example in result.certificate], early_shares(result.profile), 0.0)
    examples = np.flatnonzero(shares > MOSTLY_EARLY)
    if len(examples):
        warn(
            f"got no baseline, so that the path starts at zero. For {len(examples)} of {len(shares)} example(s) most of the "
            f"change happens at its very start; example {examples[0]}: {description(shares[examples[0]])}. Layers that divide "
            "by the size of what they see (RMSNorm, LayerNorm) do this, and so do outputs that saturate at once. Use the mean "
            "embedding or a real text as the baseline instead; for other inputs, their mean or real examples. baseline=0 keeps "
            "zeros without this warning; integrand.baselines.diagnose(model, x) compares baselines.",
            BaselineWarning,
        )
