"""Paths from a baseline to an input. Each is a value; its integral of gradients is complete.

:class:`Straight` is integrated gradients. :class:`Polyline` runs through points, :class:`Curve` is any function of t,
:class:`Average` is a weighted mean of paths, :func:`stairs` moves feature by feature, :class:`Blur` goes from a blurred image
to the image. A path of your own is any object with a ``pieces`` method and ``end``. :class:`Guided` is laid on the way, by the
gradients met there; a path of your own that is :class:`Steered` so has a ``steer`` method instead.
"""

from __future__ import annotations

from .base import Average, Curve, Path, Piece, Polyline, Straight, stairs
from .blur import Blur
from .guided import Guided
from .steering import Steered

__all__ = ["Average", "Blur", "Curve", "Guided", "Path", "Piece", "Polyline", "Steered", "Straight", "stairs"]
