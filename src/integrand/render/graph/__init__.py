"""Pictures of graphs: nodes and edges in red and blue by what they add.

drawing = result.drawing()               # of integrand.graphs
svg(drawing)                             # with names and values where a mouse rests
figure(drawing)                          # with matplotlib
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import MissingExtraError
from .graph_drawing import GraphDrawing, svg_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GraphDrawing", "figure", "svg"]


def svg(drawing: GraphDrawing, *, title: str = "", foot: str = "") -> str:
    """The graph as an SVG file.

    Args:
        drawing: what to draw.
        title: a line above.
        foot: a line below.
    """
    return svg_of(drawing, title=title, foot=foot)


def figure(drawing: GraphDrawing, *, title: str = "", foot: str = "") -> Figure:
    """The graph drawn with matplotlib.

    Args:
        drawing: what to draw.
        title: a line above.
        foot: a line below.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .graph_figure import draw
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a graph") from None
    return draw(drawing, title=title, foot=foot)
