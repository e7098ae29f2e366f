"""Colours of every kind to 8-bit sRGB."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]


def to_rgb(image: Image.Image) -> tuple[Pixels, list[str]]:
    """Pixels (height, width, 3) of an image in any mode of Pillow's, and notes on what was converted."""
    if image.mode.startswith("I") or image.mode == "F":
        return _deep(np.asarray(image), image.mode)
    image, notes = _laid_on_white(_upright_ink(image))
    image, more = _in_srgb(image)
    notes += more
    if image.mode != "RGB":
        names = {"1": "black and white", "L": "grey", "P": "a palette"}
        notes.append(f"converted from {names.get(image.mode, image.mode)} to RGB")
        image = image.convert("RGB")
    return np.asarray(image), notes


def _deep(values: NDArray[Any], mode: str) -> tuple[Pixels, list[str]]:
    """Grey with more than 8 bits: 16-bit or 32-bit integers, or floating point numbers."""
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("it holds NaN or infinity")
    low, high = float(numbers.min()), float(numbers.max())
    notes = []
    if mode.startswith("I;16"):
        top = 65535.0
    elif mode == "F" and low >= 0 and high <= 1:
        top = 1.0
    elif low >= 0 and high <= 65535:
        top = 255.0 if high <= 255 else 65535.0
    else:
        numbers, top = numbers - low, max(high - low, 1e-300)
        notes.append(f"values from {low:.6g} to {high:.6g} were stretched to black and white")
    kind = "floating point" if mode == "F" else "16-bit" if top == 65535.0 else "32-bit"
    notes.insert(0, f"converted from {kind} grey to 8-bit RGB")
    if top == 65535.0 and high < 4096:
        notes.append(f"the brightest pixel is {high:.0f} of 65535: if the file holds 12 bits or fewer, stretch it first")
    grey = np.rint(numbers * (255 / top)).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1), notes


def _laid_on_white(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Without transparency."""
    from PIL import Image

    if image.mode in {"LA", "La", "PA", "RGBA", "RGBa"} or "transparency" in image.info:
        profile: bytes = image.info.get("icc_profile") or b""
        straight = image.convert("RGBA")
        white = Image.new("RGBA", straight.size, (255, 255, 255, 255))
        flat = Image.alpha_composite(white, straight).convert("RGB")
        if _space(profile) == "RGB":
            flat.info["icc_profile"] = profile
        clear = bool((np.asarray(straight)[..., 3] < 255).any())
        return flat, ["what is transparent was laid over white"] if clear else []
    return image, []


def _upright_ink(image: Image.Image) -> Image.Image:
    """CMYK in JPEG: Adobe's files, which say so, hold it inverted; Pillow takes all of them for Adobe's."""
    from PIL import ImageChops

    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        inverted = ImageChops.invert(image)
        inverted.info = dict(image.info)
        return inverted
    return image


def _space(profile: bytes) -> str:
    """The colour space that a profile is for, which its header names."""
    return profile[16:20].decode("latin-1").strip()


def _in_srgb(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Colours as the profile in the file means them; as they are where there is none, or it cannot be used."""
    profile: bytes = image.info.get("icc_profile") or b""
    spaces = {"RGB": "RGB", "CMYK": "CMYK", "L": "GRAY"}
    if image.mode != "LAB" and (not profile or image.mode not in spaces):
        return image, []
    if image.mode != "LAB" and spaces[image.mode] != _space(profile):
        return image, [f"its colour profile is for {_space(profile)}, and was not used"]
    try:
        from PIL import ImageCms

        srgb = ImageCms.createProfile("sRGB")
        own: Any = ImageCms.createProfile("LAB") if image.mode == "LAB" else ImageCms.ImageCmsProfile(io.BytesIO(profile))
        name = "Lab" if image.mode == "LAB" else ImageCms.getProfileDescription(own).strip()
        if "srgb" in name.lower():
            return image, []
        converted = ImageCms.profileToProfile(image, own, srgb, outputMode="RGB")
    except Exception:  # a damaged profile, or Pillow without littlecms
        return image, ["its colour profile could not be used; colours are taken as sRGB"]
    assert converted is not None
    return converted, [f"converted from the colour profile {name!r} to sRGB"]
