"""Segments of images, for methods that turn them on and off and for pictures that add up by region."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import MissingExtraError


def grid(image: Tensor, segments: int) -> Tensor:
    """About so many rectangles, as labels (height, width).

    >>> grid(torch.zeros(3, 2, 4), 2)
    tensor([[0, 0, 1, 1],
            [0, 0, 1, 1]])
    """
    height, width = image.shape[-2:]
    down = min(max(1, round(math.sqrt(segments * height / width))), height)
    across = min(max(1, round(segments / down)), width)
    rows, columns = torch.arange(height) * down // height, torch.arange(width) * across // width
    return rows[:, None] * across + columns


def slic(image: Tensor, segments: int) -> Tensor:
    """About so many segments of like colour, as labels (height, width)."""
    try:
        from skimage.segmentation import slic as segment
    except ImportError:
        purpose = "segmenting an image into superpixels (superpixels='grid' does without)"
        raise MissingExtraError("scikit-image", "superpixels", purpose) from None
    pixels = image.detach().double().cpu()
    span = float(pixels.max() - pixels.min()) or 1.0
    colours = ((pixels - pixels.min()) / span).movedim(0, -1).numpy()
    lab = colours.shape[-1] == 3
    # Lab colours run to 100, others to 1 here.
    found = segment(colours, segments, compactness=10 if lab else 0.1, start_label=0, convert2lab=lab, channel_axis=-1)
    labels: Tensor = torch.as_tensor(found).unique(return_inverse=True)[1]
    # An image without colours that hang together comes out as one segment, which explains nothing.
    return labels if int(labels.max()) or segments == 1 else grid(image, segments)
