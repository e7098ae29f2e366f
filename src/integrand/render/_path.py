"""The path in numbers: the score along it, and where the attribution mass was collected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._profile import Profile
from ..attribution import Attribution, ExampleCertificate, number
from ..errors import InputError, OptionError
from ._panel import Panel
from ._pixels import Array, photo_pixels
from ._scene import labels_of, photos_of

SHARES = (0.5, 0.9)
"""The shares of the mass whose times are marked."""


@dataclass(frozen=True, slots=True)
class Journey:
    """One path and what is said of it.

    Attributes:
        label: what was explained.
        note: where the mass lies and from where on the score hardly changes, in words.
        certificate: of the example.
        mean: from t = 0 to 1, the pieces of a polyline one after the other, several baselines averaged.
        single: each of several baselines on its own.
        reached: the times up to which :data:`SHARES` of the mass lie.
        thumbnails: pictures along the path with their times as titles.
        times: of the thumbnails.
    """

    label: str
    note: str
    certificate: ExampleCertificate
    mean: Profile
    single: tuple[Profile, ...]
    reached: tuple[float, ...]
    thumbnails: tuple[Panel, ...]
    times: tuple[float, ...]


def journey(
    result: Attribution,
    photo: Any,
    baseline: Any,
    *,
    along: Callable[[float], Any] | None,
    thumbnails: int,
    labels: str | None,
    example: int,
) -> Journey:
    """What is drawn of one path; the options are those of :func:`integrand.render.image.path`."""
    if result.profile is None:
        raise InputError(
            "the result has no profile of its path; expected one of integrated_gradients or path_attribution, which keep the "
            "score and the mass at every point they evaluate"
        )
    if not 0 <= example < len(result.certificate):
        raise OptionError(f"got example={example}; expected 0 to {len(result.certificate) - 1}")
    if thumbnails == 1 or thumbnails < 0:
        raise OptionError(f"got thumbnails={thumbnails!r}; expected 0 for none, or at least 2")
    certificate = result.certificate[example]
    mean, single = joined(result.profile.of(example), certificate)
    reached = tuple(mean.reached(share) for share in SHARES)
    label = labels_of(labels, [certificate.target])[0]
    shown = thumbnails if photo is not None or along is not None else 0
    times = tuple(np.linspace(0, 1, shown).tolist()) if shown else ()
    if times and along is None:
        if single or len(certificate.curves) > 1:
            times = ()  # which of the pieces would it be?
        else:
            photo = photos_of(photo, len(result.certificate))[example]
            along = _line(photo, baseline)
    frames = tuple(_frame(along(t), t) for t in times) if along is not None else ()
    return Journey(label, remarks(mean, certificate, reached), certificate, mean, single, reached, frames, times)


def _line(photo: Array, baseline: Any) -> Callable[[float], Array]:
    end, _ = photo_pixels(photo)
    start = np.zeros_like(end) if baseline is None else photo_pixels(photos_of(baseline, 1)[0])[0]
    if start.shape != end.shape and start.size != 3:
        raise InputError(f"the baseline has {start.shape[:2]} pixels and the photo {end.shape[:2]}; expected as many")
    return lambda t: (1 - t) * start + t * end


def _frame(photo: Any, t: float) -> Panel:
    pixels, note = photo_pixels(photos_of(photo, 1)[0])
    return Panel(f"{t:.2g}", note, np.rint(255 * pixels).astype(np.uint8))


def joined(profile: Profile, certificate: ExampleCertificate) -> tuple[Profile, tuple[Profile, ...]]:
    """The path as one piece from t = 0 to 1, and its parts where it is a mean.

    Args:
        profile: of one example.
        certificate: whose curves say whether pieces follow each other (weight 1 each) or are averaged.
    """
    pieces = np.unique(profile.piece).tolist()
    parts = tuple(_whole(profile.of(int(profile.example[0]), piece=piece)) for piece in pieces)
    if len(parts) == 1:
        return parts[0], ()
    weights = np.array([certificate.curves[piece].weight if certificate.curves else 1 / len(parts) for piece in pieces])
    if np.allclose(weights, 1):
        count = len(parts)
        t = np.concatenate([(k + part.t) / count for k, part in enumerate(parts)])
        score = np.concatenate([part.score for part in parts])
        return _profile(t, score, *(count * np.concatenate([getattr(p, n) for p in parts]) for n in ("slope", "mass"))), ()
    t = np.unique(np.concatenate([part.t for part in parts]))
    columns = [
        np.average([np.interp(t, part.t, getattr(part, name)) for part in parts], axis=0, weights=weights)
        for name in ("score", "slope", "mass")
    ]
    return _profile(t, *columns), parts


def _whole(piece: Profile) -> Profile:
    """A piece from 0 to 1: what a rule without the ends did not see there is as at its first and last point."""
    t, columns = piece.t, (piece.score, piece.slope, piece.mass)
    first, last = int(t[0] > 0), int(t[-1] < 1)
    return _profile(np.r_[[0.0] * first, t, [1.0] * last], *(np.pad(column, (first, last), "edge") for column in columns))


def _profile(t: Array, score: Array, slope: Array, mass: Array) -> Profile:
    none = np.zeros(len(t), np.int64)
    return Profile(none, none, t, score, slope, mass)


def settled(mean: Profile, certificate: ExampleCertificate, within: float = 0.1) -> float:
    """The time from which on the score stays within this share of its change from F(x); NaN if it did not change."""
    far = np.abs(mean.score - certificate.score) > within * abs(certificate.score - certificate.baseline_score)
    if certificate.score == certificate.baseline_score:
        return math.nan
    last = np.flatnonzero(far)
    return float(mean.t[min(last[-1] + 1, len(mean.t) - 1)]) if last.size else 0.0


def remarks(mean: Profile, certificate: ExampleCertificate, reached: tuple[float, ...]) -> str:
    """Where the mass lies and when the score has arrived, in a sentence."""
    if not math.isfinite(reached[0]):
        return "no attribution mass on this path: the score does not change with the input"
    half, most = (number(t, 2) for t in reached)
    arrived = settled(mean, certificate)
    said = f"half of the attribution mass lies before t = {half}, 90% before t = {most}"
    if math.isfinite(arrived) and arrived < 1:
        said += f"; the score is 90% there from t = {number(arrived, 2)} on"
    return said
