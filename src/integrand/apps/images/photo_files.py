"""Reads photos from files: anything Pillow opens, as upright 8-bit RGB."""

from __future__ import annotations

import importlib
import io
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError, InputError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image

_PHOTOS = ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .tif .tiff .avif .heic .heif .jp2 .ppm .pgm .pnm .tga"
ENDINGS = tuple(_PHOTOS.split())
"""The suffixes of files in a folder that are taken for photos."""

MOST = 200_000_000
"""Photos with more pixels than this are refused; they would need gigabytes of memory."""

ENOUGH = 32_000_000
"""Photos with more pixels than this are shrunk by a whole factor; no network looks at more."""

_LOCK = threading.Lock()

_RAW = (".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2", ".raf", ".pef", ".srw")

_TURNS: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a.swapaxes(0, 1)[::-1],
}
"""The transformation that makes a picture upright, by its EXIF orientation."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo as upright RGB pixels, with notes on how it was converted.

    Attributes:
        pixels: (height, width, 3) RGB from 0 to 255, upright.
        name: the name of its file.
        notes: what was done to it: turned, converted, made smaller.
    """

    pixels: NDArray[np.uint8]
    name: str
    notes: tuple[str, ...] = ()


def read(path: str | PathLike[str]) -> Photo:
    """Read a photo: any file that Pillow opens.

    It is turned as its EXIF data says, and colours are converted to 8-bit sRGB: CMYK, 16 bits, palettes, grey, colour
    profiles. What is transparent is laid over white; of several pictures in a file the first is taken. Very large photos
    are made smaller, JPEG while it is decoded. The notes say what was done.

    Raises:
        FileError: for what is not a photo, with the remedy in one line.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "images", "reading photos") from None
    file = Path(path)
    head = _head(file)
    try:
        with _unlimited(Image):
            with Image.open(file) as image:
                _check_size(image, file)
                if image.format == "PNG":
                    image.verify()  # checksums: without them a damaged PNG can come out black, and nothing said
            with Image.open(file) as image:
                pixels, notes = _read(image)
    except FileError:
        raise
    except MemoryError:
        raise FileError(f"{file} does not fit into memory; make it smaller.") from None
    except Exception as error:  # Pillow's readers raise whatever comes up in a damaged file
        raise FileError(_why(file, head, error)) from error
    return Photo(pixels, file.name, tuple(notes))


def as_photo(photo: Photo | NDArray[np.uint8] | str | PathLike[str]) -> Photo:
    """A photo from a file, an array or a :class:`Photo`.

    Args:
        photo: a file, a :class:`Photo`, or RGB bytes, (height, width, 3) of uint8.
    """
    if isinstance(photo, Photo):
        return photo
    if isinstance(photo, (str, PathLike)):
        return read(photo)
    if not isinstance(photo, np.ndarray):
        raise InputError(f"got a {type(photo).__name__} as photo; expected a path, a Photo, or an (H, W, 3) array of bytes.")
    if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3:
        raise InputError(
            f"got an array of {photo.dtype} of shape {photo.shape} as photo; expected RGB bytes, (height, width, 3) of uint8."
        )
    return Photo(np.ascontiguousarray(photo), "photo")


def photos(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    """List all photos among files and folders, each once; folders are searched recursively, in order of names.

    Of a folder, and folders in it, files that end like a picture are taken; hidden ones are left out. A file that is named
    by itself stays in the list whatever it is, so that :func:`read` can say what is wrong with it. Each comes once.
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = _inside(path) if os.path.isdir(path) else [path]
        if not inside:
            raise FileError(f"there is no photo in the folder {path}; expected files that end in {', '.join(ENDINGS)}.")
        for file in inside:
            found.setdefault(place_of(file), file)
    return list(found.values())


def place_of(file: Path) -> str:
    """The path of a file with links resolved, the same for every name of that file."""
    return os.path.realpath(file)


def to_rgb(image: Image.Image) -> tuple[Pixels, list[str]]:
    """The pixels (height, width, 3) of an image in any Pillow mode, and notes on how they were converted."""
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


def _inside(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and (file.is_file() or file.is_symlink())]
    hidden = [file for file in files if any(part.startswith(".") for part in file.relative_to(folder).parts)]
    return sorted(set(files) - set(hidden), key=lambda file: (file.parent, file.name.lower(), file.name))


def _head(file: Path) -> bytes:
    """The first bytes of a file; raises FileError for files that cannot be photos."""
    if os.path.isdir(file):
        raise FileError(f"{file} is a folder; expected a photo. Name the photos in it, or let photos() list them.")
    if not os.path.exists(file):
        if file.is_symlink():
            raise FileError(f"{file} is a link that leads nowhere, or to itself; expected a photo.")
        raise FileError(f"there is no file {file}; check the path.")
    if not file.is_file():
        raise FileError(f"{file} is not a file that can be read as a whole; expected a photo.")
    try:
        with file.open("rb") as stream:
            head = stream.read(1024)
    except OSError as error:
        raise FileError(f"{file} cannot be opened ({error.strerror or error}); check who may read it.") from None
    if not head:
        raise FileError(f"{file} is empty (0 bytes); copy or download it again.")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for name, there in (
        ("an SVG drawing", text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text)),
        ("a PDF document", text.startswith(b"%pdf")),
        ("a PostScript document", text.startswith((b"%!ps", b"\xc5\xd0\xd3\xc6"))),
        ("a camera's raw file", file.suffix.lower() in _RAW),
    ):
        if there:
            raise FileError(f"{file} is {name}, not a photo; convert it to PNG or JPEG first.")
    if _is_heic(head):
        _register_heic(file)
    return head


def _is_heic(head: bytes) -> bool:
    brands = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
    return head[4:8] == b"ftyp" and head[8:12] in brands and b"avif" not in head[8:64]


def _register_heic(file: Path) -> None:
    try:
        plugin = importlib.import_module("pillow_heif")
    except ImportError:
        raise FileError(
            f"{file} is a HEIC photo, which Pillow reads with a plugin only: pip install pillow-heif. Or convert it to JPEG."
        ) from None
    plugin.register_heif_opener()


@contextmanager
def _unlimited(image: Any) -> Iterator[None]:
    """Lift Pillow's pixel limit, which is below what phones take today, and silence its warnings."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, image.MAX_IMAGE_PIXELS = image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            image.MAX_IMAGE_PIXELS = limit


def _check_size(image: Image.Image, file: Path) -> None:
    """Refuse images with no or too many pixels before anything is decoded: a small file can claim any size."""
    width, height = image.size
    if width < 1 or height < 1:
        raise FileError(f"{file} has no pixels ({width}x{height}); expected a photo.")
    if width * height > MOST:
        raise FileError(
            f"{file} has {width}x{height} pixels, {width * height / 1e6:.0f} million; up to {MOST / 1e6:.0f} million are read. "
            "Make it smaller first."
        )


def _read(image: Image.Image) -> tuple[NDArray[np.uint8], list[str]]:
    """The pixels of an open image, and notes on how they were converted."""
    notes = []
    count = getattr(image, "n_frames", 1)
    if count > 1:
        notes.append(f"the first of {count} pictures in the file")
    size = image.size
    if size[0] * size[1] > ENOUGH and image.format == "JPEG":
        share = (ENOUGH / (size[0] * size[1])) ** 0.5
        image.draft(image.mode, (int(size[0] * share), int(size[1] * share)))
    said = _orientation(image)
    image.load()
    turn = _TURNS.get(_orientation(image))  # asked again: some readers have turned it by now
    pixels, more = to_rgb(image)
    factor = int(np.ceil((pixels.shape[0] * pixels.shape[1] / ENOUGH) ** 0.5))
    if factor > 1:
        from PIL import Image

        pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
    if pixels.shape[0] * pixels.shape[1] < size[0] * size[1]:
        notes.append(f"made smaller from {size[0]}x{size[1]} to {pixels.shape[1]}x{pixels.shape[0]}")
    if said in _TURNS:
        notes.append("turned upright, as its EXIF data says")
    return np.array(pixels if turn is None else turn(pixels), order="C"), notes + more


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF data: the pixels may well be fine
        return 1


def _why(file: Path, head: bytes, error: Exception) -> str:
    """One line on what is wrong with a file, and what to do about it."""
    from PIL import UnidentifiedImageError

    said = " ".join((str(error).strip() or type(error).__name__).split())
    if isinstance(error, UnidentifiedImageError):
        if head[:3] == b"\xff\xd8\xff" or head[:8] == b"\x89PNG\r\n\x1a\n":
            return f"{file} begins like a picture but is damaged or cut short; copy or download it again."
        return f"{file} is not a picture that Pillow can read; expected a photo such as JPEG, PNG, WebP or TIFF. Convert it."
    if "truncated" in said or "Truncated" in said or isinstance(error, EOFError):
        return f"{file} is cut short ({said}); copy or download it again."
    return f"{file} cannot be read ({said}); it is damaged or of an unusual kind. Get it again, or convert it to PNG."


def _deep(values: NDArray[Any], mode: str) -> tuple[Pixels, list[str]]:
    """Convert grey images with more than 8 bits: integers of 16 or 32 bits, or floating point numbers."""
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
    """The image with transparent parts laid over white."""
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
    """Undo the inversion of CMYK JPEGs that are not Adobe's: Pillow inverts all of them, as only Adobe's are."""
    from PIL import ImageChops

    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        inverted = ImageChops.invert(image)
        inverted.info = dict(image.info)
        return inverted
    return image


def _space(profile: bytes) -> str:
    """The colour space of a colour profile, read from its header."""
    return profile[16:20].decode("latin-1").strip()


def _in_srgb(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """The image converted to sRGB by its colour profile; unchanged without a usable profile."""
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
