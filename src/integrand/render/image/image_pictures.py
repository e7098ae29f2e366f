"""Pictures of image attributions: figures with matplotlib, panels as pixels, regions with their sums, and the path.

These are the public functions of :mod:`integrand.render.image`, and what they draw of a path as plain data (:class:`Journey`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...attribution import Attribution
from ...certificate import ExampleCertificate
from ...errors import InputError, MissingExtraError, OptionError
from ...profile import Profile
from ...words import number
from ..scene import Others, PictureOptions, compose, is_image, labels_of, photos_of, sources_of, subjects_of
from .image_regions import Regions, regions_of, with_errors
from .pixels import Array, laid, photo_pixels
from .views import Panel, Subject, View, views_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Views = str | View | Sequence[str | View]
"""One view or several, by name or as functions."""

SHARES = (0.5, 0.9)
"""The shares of the attribution mass whose times are marked on a path."""


def figure(
    result: Attribution,
    photo: Any,
    *,
    views: Views = ("scaled", "heatmap"),
    others: Others | None = None,
    labels: str | Sequence[str] | None = None,
    title: str | None = None,
    share: float = 0.7,
    most: int = 8,
) -> Figure:
    """Draw views of an image's attributions with matplotlib: the photo, then each view of the result and of ``others``.

    Args:
        result: attributions of images, (N, C, H, W) or (C, H, W).
        photo: the photo or photos, as ``image`` in :func:`integrand.render.figure`.
        views: names or values of :data:`VIEWS`, or functions of your own from :class:`Subject` to :class:`Panel`.
        others: further attributions, by name.
        labels: what was explained, one text per example; by default the target's own words.
        title: a heading over everything.
        share: the share of the attribution mass to which brightness and colours are scaled; pixels beyond are clipped.
        most: how many examples are drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from ..figures import draw
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing an attribution") from None
    options = PictureOptions(photo, others, labels, None, title, share, most=most, views=views)
    return draw(compose(result, options))


def figure2(result: Attribution, photo: Any, *, others: Others | None = None, **options: Any) -> Figure:
    """Figure 2 of the paper: the photo with its label and score, and its pixels scaled by the attributions.

    Args:
        result: integrated gradients.
        photo: as in :func:`figure`.
        others: gradients times the image, say, drawn the same way.
        **options: ``labels``, ``title``, ``share`` and ``most`` of :func:`figure`.
    """
    return figure(result, photo, views="scaled", others=others, **options)


def figure3(result: Attribution, photo: Any, *, safe: bool = False, **options: Any) -> Figure:
    """Figure 3 of the paper: the attributions over the grey photo, what raises the score in green, what lowers it in red.

    Args:
        result: integrated gradients.
        photo: as in :func:`figure`.
        safe: red for what raises it and blue for what lowers it instead, as everywhere else, which everybody can tell apart.
        **options: ``others``, ``labels``, ``title``, ``share`` and ``most`` of :func:`figure`.
    """
    return figure(result, photo, views="signed" if safe else "green-red", **options)


def panels(
    result: Attribution,
    photo: Any = None,
    *,
    views: Views = ("scaled", "heatmap"),
    others: Others | None = None,
    share: float = 0.7,
    example: int = 0,
) -> list[Panel]:
    """The views as pixels with their titles and numbers, for pages and other tools. Needs no optional package.

    Args:
        result: attributions of images.
        photo: as in :func:`figure`; without it only ``'heatmap'`` can be drawn.
        views: as in :func:`figure`.
        others: as in :func:`figure`.
        share: as in :func:`figure`.
        example: which one.
    """
    subjects = _subjects(result, photo, others, share, example)
    return [_noted(view(subject), subject) for view in views_of(views) for subject in subjects]


def regions(result: Attribution, photo: Any = None, *, count: int = 50, segments: Any = None, example: int = 0) -> Regions:
    """Sum an image's attributions by region; print the result to read it.

    The regions are superpixels of the photo if scikit-image is installed, rectangles if not or without a photo. Their sums
    add up to the sum of the attributions. On deep networks a sum is a small difference of large numbers, so that it is
    less certain than the picture: ``errors`` says by how much each may be off.

    Args:
        result: attributions of images.
        photo: as in :func:`figure`.
        count: about how many regions.
        segments: regions of your own instead, integers (H, W): organs, objects, lesions.
        example: which one.
    """
    (subject,) = _subjects(result, photo, None, 0.7, example)
    own = None if segments is None else np.asarray(segments)
    found = regions_of(subject.signed, subject.photo, change=subject.change, count=count, segments=own)
    return with_errors(found, result, example)


def path(
    result: Attribution,
    photo: Any = None,
    *,
    baseline: Any = None,
    along: Callable[[float], Any] | None = None,
    thumbnails: int = 6,
    labels: str | None = None,
    example: int = 0,
) -> Figure:
    """Draw what the integration saw along its path: the score from baseline to input, and where the integral comes from.

    A score that rises early and then stays, with little mass at the end, is saturation: gradients at the input alone would
    have missed what matters.

    Args:
        result: a result of :func:`integrand.integrated_gradients` or :func:`integrand.path_attribution`, which keep a profile.
        photo: the photo, drawn in thumbnails along the straight line from the baseline; for other paths give ``along``.
        baseline: the baseline as a photo; black if not given.
        along: the photo at time t, for paths that are not straight.
        thumbnails: how many; 0 for none.
        labels: what was explained; by default the target's own words.
        example: which one.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawn = journey(result, photo, baseline, along=along, thumbnails=thumbnails, labels=labels, example=example)
    try:
        from ..figures import draw_path
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a path") from None
    return draw_path(drawn)


@dataclass(frozen=True, slots=True)
class Journey:
    """What is drawn of one path, as plain data.

    Attributes:
        label: what was explained.
        note: where the mass lies and from when on the score hardly changes, in words.
        certificate: the certificate of the example.
        mean: the profile from t = 0 to 1: the pieces of a polyline one after the other, several baselines averaged.
        single: the profile from each of several baselines on its own.
        reached: the times up to which :data:`SHARES` of the mass lie.
        thumbnails: pictures along the path with their times as titles.
        times: the times of the thumbnails.
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
    """Collect what is drawn of one path; the options are those of :func:`integrand.render.image.path`."""
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


def joined(profile: Profile, certificate: ExampleCertificate) -> tuple[Profile, tuple[Profile, ...]]:
    """The profile of the whole path over t from 0 to 1, and those of its parts where it is an average over baselines.

    Args:
        profile: the profile of one example.
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
    if not weights.sum():  # as shares of either sign can: there is no mean by them
        weights = np.ones(len(parts))
    t = np.unique(np.concatenate([part.t for part in parts]))
    columns = [
        np.average([np.interp(t, part.t, getattr(part, name)) for part in parts], axis=0, weights=weights)
        for name in ("score", "slope", "mass")
    ]
    return _profile(t, *columns), parts


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


def _noted(panel: Panel, subject: Subject) -> Panel:
    """The panel with a remark where the photo and the attributions differ in size."""
    said = "" if subject.photo is None else laid(subject.values.shape[1:], subject.photo.shape[:2])
    return replace(panel, note="; ".join(filter(None, (panel.note, said)))) if said else panel


def _subjects(result: Attribution, photo: Any, others: Others | None, share: float, example: int) -> list[Subject]:
    """One example of the result and of each of ``others``, ready to be drawn on its photo."""
    _, sources = sources_of(result, others)
    arrays = next(iter(sources.values()))
    if not is_image(arrays, photo):
        raise InputError(
            f"got values of shape {arrays[0].shape}; expected those of images, (examples, channels, height, width)"
        )
    count = len(result.certificate)
    if not 0 <= example < count:
        raise OptionError(f"got example={example}; expected 0 to {count - 1}")
    if not (math.isfinite(share) and 0 < share <= 1):
        raise OptionError(f"got share={share!r}; expected a share of the attribution mass, above 0 and at most 1")
    pixels = None if photo is None else photos_of(photo, count)[example]
    certificate = result.certificate[example]
    return subjects_of(sources, example, pixels, certificate.score - certificate.baseline_score, share, result)[0]


def _line(photo: Array, baseline: Any) -> Callable[[float], Array]:
    end, _ = photo_pixels(photo)
    start = np.zeros_like(end) if baseline is None else photo_pixels(photos_of(baseline, 1)[0])[0]
    if start.shape != end.shape and start.size != 3:
        raise InputError(f"the baseline has {start.shape[:2]} pixels and the photo {end.shape[:2]}; expected as many")
    return lambda t: (1 - t) * start + t * end


def _frame(photo: Any, t: float) -> Panel:
    pixels, note = photo_pixels(photos_of(photo, 1)[0])
    return Panel(f"{t:.2g}", note, np.rint(255 * pixels).astype(np.uint8))


def _whole(piece: Profile) -> Profile:
    """The profile of one piece, extended to t = 0 and 1 with its first and last values where the rule has no nodes there."""
    t, columns = piece.t, (piece.score, piece.slope, piece.mass)
    first, last = int(t[0] > 0), int(t[-1] < 1)
    return _profile(np.r_[[0.0] * first, t, [1.0] * last], *(np.pad(column, (first, last), "edge") for column in columns))


def _profile(t: Array, score: Array, slope: Array, mass: Array) -> Profile:
    none = np.zeros(len(t), np.int64)
    return Profile(none, none, t, score, slope, mass)
