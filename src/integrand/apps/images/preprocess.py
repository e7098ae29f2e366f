"""Preprocessing: from a photo to the input of a network, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InputError, MissingExtraError, OptionError

if TYPE_CHECKING:
    from PIL import Image

    from .photo_files import Photo

Order = Literal["RGB", "BGR"]
Fit = Literal["crop", "stretch", "pad"]
Resample = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing a network was trained with: ``input = (pixel - mean) / scale`` per channel, pixels 0 to 255.

    Attributes:
        size: (height, width) that the network takes.
        mean: subtracted per channel, in the order of the network's channels.
        scale: the divisor per channel, in the same order.
        order: the order of the network's channels.
        fit: ``crop`` takes the middle of the photo in the shape of ``size``, ``stretch`` all of it, out of proportion,
            ``pad`` all of it with black around.
        crop: the share of the shorter side that ``crop`` keeps.
        resample: how pixels are interpolated; both average over what a pixel covers where the photo gets smaller.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    order: Order = "RGB"
    fit: Fit = "crop"
    crop: float = 1.0
    resample: Resample = "bilinear"

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise OptionError(f"got size {self.size}; expected a height and a width, such as 224 or (224, 224).")
        for name, values in (("mean", self.mean), ("scale", self.scale)):
            if len(values) != 3 or not all(map(math.isfinite, values)):
                raise OptionError(f"got {name} {values}; expected three numbers, one per channel, for pixels from 0 to 255.")
        if min(self.scale) <= 0:
            raise OptionError(f"got scale {self.scale}; expected numbers above 0.")
        if max(self.scale) < 0.99:
            raise OptionError(
                f"got scale {self.scale}, which makes inputs larger than pixels from 0 to 255 are; expected mean and scale for "
                "such pixels. Multiply both by 255 if they are for 0 to 1."
            )
        for name, value, known in (
            ("order", self.order, ("RGB", "BGR")),
            ("fit", self.fit, ("crop", "stretch", "pad")),
            ("resample", self.resample, ("bilinear", "bicubic")),
        ):
            if value not in known:
                raise OptionError(f"got {name} {value!r}; expected one of {', '.join(known)}.")
        if not 0 < self.crop <= 1:
            raise OptionError(f"got crop {self.crop}; expected the share of the shorter side to keep, above 0 and up to 1.")

    def __str__(self) -> str:
        fits = {"crop": "the middle of the photo", "stretch": "the whole photo stretched", "pad": "the whole photo on black"}
        part = fits[self.fit]
        if self.fit == "crop" and self.crop < 1:
            part += f" ({self.crop:.3g} of the shorter side)"
        mean, scale = (_numbers(values) for values in (self.mean, self.scale))
        return f"{part}, resized to {self.size[0]}x{self.size[1]}, as {self.order} (pixel - {mean}) / {scale}"

    def shown(self, photo: Photo | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The part of a photo that the network sees, (H, W, 3) RGB, resized with antialiasing.

        Args:
            photo: a photo, or its pixels, (height, width, 3) RGB from 0 to 255.
        """
        try:
            from PIL import Image
        except ImportError:
            raise MissingExtraError("Pillow", "images", "resizing photos") from None
        pixels = np.asarray(getattr(photo, "pixels", photo))
        if pixels.ndim != 3 or pixels.shape[-1] != 3 or pixels.dtype != np.uint8 or not pixels.size:
            raise InputError(
                f"got pixels of shape {pixels.shape} and dtype {pixels.dtype}; expected (height, width, 3) in uint8, as "
                "integrand.apps.photos.read gives them."
            )
        if pixels.shape[:2] == self.size and (self.crop == 1 or self.fit != "crop"):
            return np.array(pixels)
        how = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[self.resample]
        fits = {"crop": self._cropped, "stretch": self._stretched, "pad": self._padded}
        if self.fit == "crop":
            pixels = _central(pixels)
        return np.array(fits[self.fit](Image.fromarray(np.ascontiguousarray(pixels)), how))

    def _cropped(self, image: Image.Image, how: Any) -> Image.Image:
        """Resize the image so that the central crop has the size wanted, then cut it, rounding as torchvision does."""
        (height, width), (tall, wide) = self.size, (image.height, image.width)
        rows, columns = round(height / self.crop), round(width / self.crop)
        if rows * wide >= columns * tall:  # the height decides
            columns = max(columns, rows * wide // tall)
        else:
            rows = max(rows, columns * tall // wide)
        top, left = round((rows - height) / 2), round((columns - width) / 2)
        return image.resize((columns, rows), how).crop((left, top, left + width, top + height))

    def _stretched(self, image: Image.Image, how: Any) -> Image.Image:
        return image.resize((self.size[1], self.size[0]), how)

    def _padded(self, image: Image.Image, how: Any) -> Image.Image:
        height, width = self.size
        share = min(height / image.height, width / image.width)
        rows, columns = max(1, round(image.height * share)), max(1, round(image.width * share))
        canvas = image.resize((width, height)).point(lambda _: 0)  # black, in the image's own mode
        canvas.paste(image.resize((columns, rows), how), ((width - columns) // 2, (height - rows) // 2))
        return canvas

    def __call__(self, photo: Photo | NDArray[np.uint8]) -> Tensor:
        """The network's input for a photo, (1, 3, H, W)."""
        return self.input(self.shown(photo))

    def input(self, pixels: NDArray[Any]) -> Tensor:
        """The network's input for pixels as :meth:`shown` gives them.

        Args:
            pixels: (H, W, 3) or (N, H, W, 3), RGB from 0 to 255.

        Returns:
            (1, 3, H, W) or (N, 3, H, W), float32.
        """
        values = torch.from_numpy(np.array(pixels, dtype=np.float32))
        values = (values if values.ndim == 4 else values[None]).permute(0, 3, 1, 2)
        ordered = values if self.order == "RGB" else values.flip(1)
        return ((ordered - _column(self.mean)) / _column(self.scale)).contiguous()

    def pixels(self, x: Tensor) -> NDArray[np.float64]:
        """Map inputs back to pixels: (..., 3, H, W) to (..., H, W, 3) RGB from 0 to 1, clipped."""
        values = x.detach().cpu().double() * _column(self.scale).double() + _column(self.mean).double()
        ordered = values if self.order == "RGB" else values.flip(-3)
        return np.asarray((ordered / 255).clamp(0, 1).movedim(-3, -1).numpy())

    def colour(self, rgb: tuple[float, float, float]) -> Tensor:
        """A colour with components from 0 to 255 as network input, (3, 1, 1)."""
        return self.input(np.array(rgb, dtype=np.float32)[None, None])[0]

    @property
    def low(self) -> Tensor:
        """Black as network input, (3, 1, 1)."""
        return self.colour((0, 0, 0))

    @property
    def high(self) -> Tensor:
        """White as network input, (3, 1, 1)."""
        return self.colour((255, 255, 255))


def _column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None, None]


def _numbers(values: tuple[float, ...]) -> str:
    words = [f"{value:.6g}" for value in values]
    return words[0] if len(set(words)) == 1 else f"({', '.join(words)})"


def _central(pixels: NDArray[np.uint8], most: int = 8) -> NDArray[np.uint8]:
    """The middle of a very long photo, which is all that a crop can reach; resizing the rest would fill memory."""
    height, width = pixels.shape[:2]
    rows, columns = min(height, most * width), min(width, most * height)
    top, left = (height - rows) // 2, (width - columns) // 2
    return pixels[top : top + rows, left : left + columns]
