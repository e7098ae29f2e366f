"""Pictures of image attributions: the views of the paper and others, regions with their numbers, and the path itself.

>>> import numpy as np, torch, integrand as ig
>>> from integrand.render.image import panels, regions
>>> photo = np.zeros((4, 4, 3), np.uint8)
>>> result = ig.integrated_gradients(lambda x: x.sum((1, 2, 3)), torch.ones(1, 3, 4, 4))
>>> [panel.title for panel in panels(result, photo, views=("scaled", "heatmap"))]
['integrated gradients', 'integrated gradients, signed']
>>> found = regions(result, count=4)  # rectangles, for want of a photo
>>> found.sums.tolist(), found.total
([12.0, 12.0, 12.0, 12.0], 48.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .image_regions import Regions
from .views import VIEWS, Heatmap, Mark, Outlines, Overlay, Panel, Scaled, Signed, Subject, Superpixels, View

if TYPE_CHECKING:
    from .image_pictures import figure, figure2, figure3, panels, path, regions

__all__ = [
    "VIEWS",
    "Heatmap",
    "Mark",
    "Outlines",
    "Overlay",
    "Panel",
    "Regions",
    "Scaled",
    "Signed",
    "Subject",
    "Superpixels",
    "View",
    "figure",
    "figure2",
    "figure3",
    "panels",
    "path",
    "regions",
]


def __getattr__(name: str) -> Any:
    """Import the drawing functions when they are first used: they need the scene, which itself needs the views here."""
    if name in __all__:
        from . import image_pictures

        return getattr(image_pictures, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
