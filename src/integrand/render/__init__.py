"""Pictures and reports of attributions (:func:`figure`, :func:`report`), and what a result says of itself in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..attribution import Attribution
from ..errors import MissingExtraError
from .certificate_text import certificate_table, promises
from .html import page
from .image.views import View
from .notebook import attribution_lines, attribution_sentence, attribution_view
from .scene import Others, PictureOptions, compose

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["attribution_lines", "attribution_sentence", "attribution_view", "certificate_table", "figure", "report", "show"]


def figure(
    result: Attribution,
    *,
    image: Any = None,
    others: Others | None = None,
    labels: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    title: str | None = None,
    share: float = 0.7,
    heatmap: bool = True,
    top: int = 16,
    most: int = 8,
    views: str | View | Sequence[str | View] | None = None,
    notice: str = "",
    aim: Any = None,
) -> Figure:
    """Draw a result with matplotlib.

    Attributions of images, (N, C, H, W) or (C, H, W), are drawn as in figure 2 of the paper: the photo with its label
    and score; the photo again with each pixel scaled by the strength of its attribution, the sum of the magnitudes over
    the colours; the same for every attribution in ``others``; and a heat map of the sums with their signs, in units of
    the score. Anything else becomes a bar chart of its strongest features.

    Args:
        result: what to draw; one row per example.
        image: the photo or photos to draw on: a tensor, array or PIL image of (C, H, W) or (H, W, C), with a leading N
            or as a list for several examples. Integers from 0 to 255 or floats from 0 to 1; other floats are stretched,
            and the picture says so. Without it, only heat maps are drawn.
        others: further attributions to draw next to the result, by name: results, tensors or arrays of the same shape.
        labels: what was explained, one text per example; by default the target's own words.
        features: names for the bars, one per feature, or one per entry of the first dimension (a token, say), whose
            attributions are then summed.
        title: a heading over everything.
        share: the brightest and the most saturated pixels are those beyond this share of the attribution mass. Smaller
            is brighter; 1 scales by the largest pixel.
        heatmap: whether the signed heat map is drawn next to the photo, where ``views`` is not given.
        top: how many features get a bar.
        most: how many examples are drawn; the title says how many there were.
        views: what is drawn next to the photo, of the result and of each of ``others``: names or values of
            :data:`integrand.render.image.VIEWS`, or functions of your own.
        notice: what every reader must know, in a line under everything.
        aim: the pixels of the box or mask that is explained, (H, W) bool: a yellow line goes around them.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .figures import draw
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing an attribution") from None
    options = PictureOptions(image, others, labels, features, title, share, heatmap, top, most, views, notice, aim)
    return draw(compose(result, options))


def show(result: Attribution, **options: Any) -> Figure:
    """Draw a result and let people see it: in a window, or as a file where there is no display, whose name is printed.

    Args:
        result: what to draw.
        **options: as in :func:`figure`.
    """
    drawn = figure(result, **options)
    from .figures import present

    return present(drawn, "integrand-attribution")


def report(
    result: Attribution,
    *,
    image: Any = None,
    others: Others | None = None,
    labels: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    title: str | None = None,
    share: float = 0.7,
    heatmap: bool = True,
    top: int = 16,
    most: int = 8,
    views: str | View | Sequence[str | View] | None = None,
    command: str | None = None,
) -> str:
    """Write a result as one self-contained HTML page: the picture, the certificate in words, how it was made.

    The page loads nothing from anywhere and runs no script; every text in it is escaped. Needs no optional package.

    Args:
        result: what to write about.
        image: as in :func:`figure`.
        others: as in :func:`figure`.
        labels: as in :func:`figure`.
        features: as in :func:`figure`.
        title: the heading; by default the labels.
        share: as in :func:`figure`.
        heatmap: as in :func:`figure`.
        top: as in :func:`figure`.
        most: as in :func:`figure`.
        views: as in :func:`figure`.
        command: the command that makes the page again, to be shown in it.
    """
    scene = compose(result, PictureOptions(image, others, labels, features, title, share, heatmap, top, most, views))
    return page(scene, result.meta, share=share, command=command, promised=promises(result.certificate))
