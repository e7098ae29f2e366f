"""Paths from a baseline to an input. Each is a value; its integral of gradients is complete.

:class:`Straight` is integrated gradients. :class:`Polyline` runs through points, :class:`Curve` is any function of t,
:class:`Average` is a weighted mean of paths, :func:`stairs` moves feature by feature. A path of your own is any object
with a ``pieces`` method and ``end``.
"""

from ._paths import Average, Curve, Path, Piece, Polyline, Straight
from ._stairs import stairs

__all__ = ["Average", "Curve", "Path", "Piece", "Polyline", "Straight", "stairs"]
