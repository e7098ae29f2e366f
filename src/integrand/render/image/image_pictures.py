"""Pictures of image attributions: the views of the paper and others, regions with their numbers, and the path itself.

>>> import numpy as np, torch, integrand as ig
>>> photo = np.zeros((4, 4, 3), np.uint8)
>>> result = ig.integrated_gradients(lambda x: x.sum((1, 2, 3)), torch.ones(1, 3, 4, 4))
>>> [panel.title for panel in panels(result, photo, views=("scaled", "heatmap"))]
['integrated gradients', 'integrated gradients, signed']
>>> found = regions(result, count=4)  # rectangles, for want of a photo
>>> found.sums.tolist(), found.total
([12.0, 12.0, 12.0, 12.0], 48.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...attribution import Attribution
from ...errors import InputError, MissingExtraError, OptionError
from ..scene import Others, PictureOptions, compose, is_image, photos_of, sources_of, subjects_of
from .image_regions import Regions, regions_of
from .panel import Panel, Subject, View
from .path_pictures import journey
from .pixels import laid
from .views import views_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Views = str | View | Sequence[str | View]
"""One view or several, by name or as values."""


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
        result: of images, (N, C, H, W) or (C, H, W).
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
    """The pictures as pixels with their words and numbers, for pages and other tools. Needs no optional package.

    Args:
        result: of images.
        photo: as in :func:`figure`; without it only ``'heatmap'`` can be drawn.
        views: as in :func:`figure`.
        others: as in :func:`figure`.
        share: as in :func:`figure`.
        example: which one.
    """
    subjects = _subjects(result, photo, others, share, example)
    return [_noted(view(subject), subject) for view in views_of(views) for subject in subjects]


def _noted(panel: Panel, subject: Subject) -> Panel:
    """With what there is to know where the photo is of another size than the attributions."""
    said = "" if subject.photo is None else laid(subject.values.shape[1:], subject.photo.shape[:2])
    return replace(panel, note="; ".join(filter(None, (panel.note, said)))) if said else panel


def regions(result: Attribution, photo: Any = None, *, count: int = 50, segments: Any = None, example: int = 0) -> Regions:
    """Add an image's attributions up by region; print the answer to read it.

    The regions are superpixels of the photo if scikit-image is installed, rectangles if not or without a photo. Their sums
    add up to the sum of the attributions. On deep networks a sum is a small difference of large numbers, so that it is
    less certain than the picture: what the sum of all misses of F(x) - F(x') gives an idea of by how much.

    Args:
        result: of images.
        photo: as in :func:`figure`.
        count: about how many regions.
        segments: regions of your own instead, integers (H, W): organs, objects, lesions.
        example: which one.
    """
    (subject,) = _subjects(result, photo, None, 0.7, example)
    own = None if segments is None else np.asarray(segments)
    return regions_of(subject.signed, subject.photo, change=subject.change, count=count, segments=own)


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
    """Draw what the integration saw on its path: the score from baseline to input, and where the integral comes from.

    A score that rises early and then stays, with little mass at the end, is saturation: gradients at the input alone would
    have missed what matters.

    Args:
        result: of :func:`integrand.integrated_gradients` or :func:`integrand.path_attribution`, which keep a profile.
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
        from .path_pictures import draw_path
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a path") from None
    return draw_path(drawn)


def _subjects(result: Attribution, photo: Any, others: Others | None, share: float, example: int) -> list[Subject]:
    """One example of every attribution, ready to be drawn."""
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
    return subjects_of(sources, example, pixels, certificate.score - certificate.baseline_score, share)[0]
