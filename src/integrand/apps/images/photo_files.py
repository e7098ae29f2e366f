"""Reads photos from files of the usual formats, within limits of size, memory and time, as upright 8-bit RGB."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError, InputError, MissingExtraError, quiet
from ...files import digest_of, read_bytes, unheard
from ...words import short_repr, shown
from .photo_headers import PhotoHeader, check_size, is_heic, look, orientation_of, orientation_of_xmp

if TYPE_CHECKING:
    from PIL import Image

_PHOTOS = ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .tif .tiff .avif .heic .heif .ppm .pgm .pnm"
ENDINGS = tuple(_PHOTOS.split())
"""The suffixes of files in a folder that are taken for photos."""

BYTES = 1 << 29
"""The most bytes that the file of a photo may have."""

MEMORY = 1_450_000_000
"""The most bytes that the file of a photo, its decoder and its pixels may take together; what follows adds 0.1 GB at most."""

ENOUGH = 32_000_000
"""Photos with more pixels than this are shrunk by a whole factor; no network looks at more."""

UNREADABLE = "unreadable"
"""The digest of a photo that cannot be read."""

TILE = 1024
"""The side of the squares, in pixels, in which a decoded photo is converted, so that no second copy of all of it is needed."""

PROFILE = 1 << 22
"""Colour profiles with more bytes than this are not used; those of printers have up to three million."""

_READERS = {
    "JPEG": "PIL.JpegImagePlugin",
    "PNG": "PIL.PngImagePlugin",
    "WEBP": "PIL.WebPImagePlugin",
    "GIF": "PIL.GifImagePlugin",
    "BMP": "PIL.BmpImagePlugin",
    "TIFF": "PIL.TiffImagePlugin",
    "AVIF": "PIL.AvifImagePlugin",
    "PPM": "PIL.PpmImagePlugin",
}
"""The formats that are read, and what reads them. None of them holds files of other formats, as icons and IPTC records do."""

_LOCK = threading.Lock()  # one photo at a time, its file included, so that the bound on memory is one for all threads

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
        digest: SHA-256 of the bytes of its file, in hexadecimal; empty if it comes from no file.
    """

    pixels: NDArray[np.uint8]
    name: str
    notes: tuple[str, ...] = ()
    digest: str = field(default="", kw_only=True)

    __repr__ = short_repr


def read(path: str | PathLike[str]) -> Photo:
    """Read a photo: JPEG, PNG, WebP, TIFF, GIF, BMP, AVIF, HEIC (with pillow-heif) or Netpbm, whatever its file is called.

    It is turned as its EXIF or XMP data says, and colours are converted to 8-bit sRGB: CMYK, 16 bits, palettes, grey, colour
    profiles. What is transparent is laid over white; of several pictures in a file the first is taken. Very large photos
    are made smaller, JPEG while it is decoded. The notes say what was done. The file is read once, and may have as many bytes
    as :data:`BYTES` says; how many pixels it has (:data:`~integrand.apps.photos.MOST`), and how much memory it takes
    (:data:`MEMORY`), is known before it is decoded.

    Raises:
        FileError: for what is not a photo, or is beyond a limit, with the remedy in one line.
    """
    _check_installed()
    file = Path(path)
    name = shown(str(file))
    with _LOCK:
        return _photo(_contents(file, name), name, file.name)


def read_data(data: bytes, name: str) -> Photo:
    """Read a photo from the bytes of its file, as :func:`read` does; nothing is written anywhere.

    Args:
        data: the bytes, whatever the format.
        name: what the photo is called, in messages too; its ending does not matter.
    """
    _check_installed()
    said = shown(name)
    with _LOCK:
        if len(data) > BYTES:
            raise FileError(f"{said} has {len(data):,} bytes; expected a photo of at most {BYTES:,}.")
        return _photo(_checked(data, said, Path(name).suffix), said, name)


def _check_installed() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtraError("Pillow", "images", "reading photos") from None


def _photo(data: bytes, name: str, title: str) -> Photo:
    """A photo from the bytes of its file; ``name`` is for messages."""
    digest = hashlib.sha256(data).hexdigest()
    try:
        header = look(data, name)
        del data  # the header has what is needed of it
        with quiet(), _without_complaints(header.kind), _opened(header, name) as image:
            pixels, notes = _read(image, header, name)
    except FileError:
        raise
    except MemoryError:
        raise FileError(f"{name} does not fit into memory; make it smaller.") from None
    except Exception as error:  # Pillow's readers raise whatever comes up in a damaged file
        raise FileError(_why(name, error)) from error
    return Photo(pixels, title, tuple(notes), digest=digest)


@contextmanager
def _without_complaints(kind: str) -> Iterator[None]:
    """Keep libtiff, which writes its complaints about a file to the terminal by itself, from doing so.

    In the main thread only, where commands read: for a moment, nobody in the process can write to standard error.
    """
    if kind != "TIFF" or threading.current_thread() is not threading.main_thread():
        yield
        return
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    with unheard(2):
        yield


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
    by itself stays in the list whatever it is, so that :func:`read` can say what is wrong with it.
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = _inside(path) if os.path.isdir(path) else [path]
        if not inside:
            raise FileError(
                f"there is no photo in the folder {shown(str(path))}; expected files that end in {', '.join(ENDINGS)}."
            )
        for file in inside:
            found.setdefault(place_of(file), file)
    return list(found.values())


def place_of(file: Path) -> str:
    """The path of a file with links resolved, the same for every name of that file."""
    return os.path.realpath(file)


def key_of(file: Path) -> str:
    r"""What tells a file from all others in a table: its place, or an address, file:///..., where that is no proper text.

    >>> key_of(Path("/caf\udce9.png")), file_of("file:///caf%E9.png") == Path("/caf\udce9.png")
    ('file:///caf%E9.png', True)
    """
    place = place_of(file)
    try:
        return place.encode().decode()
    except UnicodeEncodeError:
        return Path(place).as_uri()


def file_of(key: str) -> Path:
    """The file that has a key of :func:`key_of`."""
    address = key.startswith("file://")
    return Path(os.fsdecode(unquote_to_bytes(key.removeprefix("file://")))) if address else Path(key)


def digest_of_photo(file: Path) -> str:
    """What tells that a photo has changed, 16 characters; one that cannot be read has changed when it can be."""
    try:
        return digest_of(file, most=BYTES)[:16]
    except FileError:
        return UNREADABLE


def told_apart(places: Sequence[str]) -> dict[str, str]:
    """What to call files: their names, with as many of their folders as tell them apart.

    >>> list(told_apart(["/a/pat1/left.jpg", "/a/pat2/left.jpg", "/a/pat2/right.jpg"]).values())
    ['pat1/left.jpg', 'pat2/left.jpg', 'right.jpg']
    """
    depth = dict.fromkeys(places, 1)
    while True:
        names = {place: shown(Path(*Path(place).parts[-depth[place] :]).as_posix()) for place in places}
        counts = Counter(names.values())
        alike = [place for place in places if counts[names[place]] > 1 and depth[place] < len(Path(place).parts)]
        if not alike:
            return names
        for place in alike:
            depth[place] += 1


def _inside(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and (file.is_file() or file.is_symlink())]
    hidden = [file for file in files if any(part.startswith(".") for part in file.relative_to(folder).parts)]
    return sorted(set(files) - set(hidden), key=lambda file: (file.parent, file.name.lower(), file.name))


def _contents(file: Path, name: str) -> bytes:
    """The bytes of a file; raises FileError for files that cannot be photos."""
    if os.path.isdir(file):
        raise FileError(f"{name} is a folder; expected a photo. Name the photos in it, or let photos() list them.")
    if not os.path.lexists(file):
        raise FileError(f"there is no file {name}; check the path.")
    if not os.path.exists(file):
        raise FileError(f"{name} is a link that leads nowhere, or to itself; expected a photo.")
    return _checked(read_bytes(file, what="a photo", most=BYTES), name, file.suffix)


def _checked(data: bytes, name: str, suffix: str) -> bytes:
    """The bytes of a photo's file; an error for what is known not to be one."""
    if not data:
        raise FileError(f"{name} is empty (0 bytes); copy or download it again.")
    text = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for kind, there in (
        ("an SVG drawing", text.startswith(b"<svg") or (text.startswith(b"<?xml") and b"<svg" in text)),
        ("a PDF document", text.startswith(b"%pdf")),
        ("a PostScript document", text.startswith(b"%!ps")),
        ("a camera's raw file", suffix.lower() in _RAW),
    ):
        if there:
            raise FileError(f"{name} is {kind}, not a photo; convert it to PNG or JPEG first.")
    if is_heic(data):
        _register_heic(name)
    return data


def _register_heic(name: str) -> None:
    try:
        plugin = importlib.import_module("pillow_heif")
    except ImportError:
        raise FileError(
            f"{name} is a HEIC photo, which Pillow reads with a plugin only: pip install pillow-heif. Or convert it to JPEG."
        ) from None
    plugin.register_heif_opener()


def _opened(header: PhotoHeader, name: str) -> Image.Image:
    """Let the one reader of a format open a photo; ``Image.open`` would try them all, and has a limit that others may set."""
    from PIL import Image

    try:
        if header.kind in _READERS:
            importlib.import_module(_READERS[header.kind])
        reader = Image.OPEN[header.kind][0]
    except (ImportError, KeyError):
        raise FileError(f"{name} is not a picture that this Pillow can read ({header.kind}); convert it to PNG.") from None
    image: Image.Image = reader(io.BytesIO(header.data), "")
    check_size(*image.size, name)
    return image


def _read(image: Image.Image, header: PhotoHeader, name: str) -> tuple[NDArray[np.uint8], list[str]]:
    """The pixels of an open image, and notes on how they were converted."""
    notes = []
    count = header.pictures
    if count is None and header.kind in ("WEBP", "AVIF", "HEIF"):
        count = int(getattr(image, "n_frames", 1))
    if count != 1:
        notes.append(f"the first of {'several' if count is None else count} pictures in the file")
    size = image.size
    if size[0] * size[1] > ENOUGH and header.kind == "JPEG":
        share = (ENOUGH / (size[0] * size[1])) ** 0.5
        image.draft(image.mode, (int(size[0] * share), int(size[1] * share)))
    _check_memory(image, header, f"{name} has {size[0]}x{size[1]} pixels")
    turn = header.orientation
    if turn is None:
        turn = orientation_of(image.info.get("exif") or b"") or orientation_of_xmp(image.info.get("xmp") or b"")
    image.load()
    convert = _Conversion(image)
    factor = _factor(*image.size)
    pixels = _shrunk(image, convert, factor)
    if pixels.shape[0] * pixels.shape[1] < size[0] * size[1]:
        notes.append(f"made smaller from {size[0]}x{size[1]} to {pixels.shape[1]}x{pixels.shape[0]}")
    if turn in _TURNS:
        notes.append("turned upright, as its file says")
        pixels = np.array(_TURNS[turn](pixels), order="C")
    return pixels, notes + convert.notes


def _check_memory(image: Image.Image, header: PhotoHeader, what: str) -> None:
    """Refuse photos that would take more than :data:`MEMORY` while they are decoded."""
    single = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2}
    each = single.get(image.mode, 4) if header.per_pixel == 4 else header.per_pixel
    need = len(header.data) + header.working + each * image.size[0] * image.size[1]
    if need > MEMORY:
        raise FileError(
            f"{what} and would take {need / 1e9:.2g} GB of memory as {header.kind}; "
            f"up to {MEMORY / 1e9:.2g} GB are used. Make it smaller, or save it as an ordinary JPEG."
        )


def _factor(width: int, height: int) -> int:
    """By which whole factor a picture is to be made smaller."""
    factor = int(np.ceil((width * height / ENOUGH) ** 0.5))
    while -(-width // factor) * -(-height // factor) > max(ENOUGH, 1) and factor < max(width, height):
        factor += 1
    return max(1, factor)


def _tiles(size: tuple[int, int], factor: int = 1) -> Iterator[tuple[int, int, int, int]]:
    """Boxes (left, top, right, bottom) that cover a picture, each a multiple of ``factor`` wide and high but for the last."""
    width, height = size
    across, down = (max(1, side // factor) * factor for side in (TILE * TILE // min(TILE, height), TILE))
    for top in range(0, height, down):
        for left in range(0, width, across):
            yield left, top, min(left + across, width), min(top + down, height)


def _part(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    """A part of a loaded picture, with its palette; unlike ``crop`` this asks no limit of Pillow's."""
    from PIL import Image

    return image.transform((box[2] - box[0], box[3] - box[1]), Image.Transform.EXTENT, box)


def _shrunk(image: Image.Image, convert: _Conversion, factor: int) -> Pixels:
    """The pixels of a loaded picture as RGB, averaged over squares of ``factor``, tile by tile."""
    from PIL import Image

    width, height = image.size
    out = np.empty((-(-height // factor), -(-width // factor), 3), np.uint8)
    for box in _tiles(image.size, factor):
        pixels = convert(_part(image, box))
        if factor > 1:
            pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
        top, left = box[1] // factor, box[0] // factor
        out[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return out


def _why(name: str, error: Exception) -> str:
    """One line on what is wrong with a file, and what to do about it."""
    said = shown(" ".join((str(error).strip() or type(error).__name__).split())[:200])
    if type(error).__name__ == "DecompressionBombError":  # some readers ask Pillow's limit themselves
        return f"{name} has more pixels than Pillow reads of its format (PIL.Image.MAX_IMAGE_PIXELS). Make it smaller first."
    if isinstance(error, SyntaxError):
        return f"{name} begins like a picture but is damaged or cut short ({said}); copy or download it again."
    if "truncated" in said.lower() or isinstance(error, EOFError):
        return f"{name} is cut short ({said}); copy or download it again."
    return f"{name} cannot be read ({said}); it is damaged or of an unusual kind. Get it again, or convert it to PNG."


class _Conversion:
    """Converts a picture to RGB bytes part by part, in the same way for all parts.

    Attributes:
        notes: what is done, once all parts are.
    """

    def __init__(self, image: Image.Image) -> None:
        """Decide what is to be done from all of a loaded picture.

        Args:
            image: in any mode of Pillow.
        """
        self.notes: list[str] = []
        self._deep = image.mode.startswith("I") or image.mode == "F"
        if self._deep:
            self._range(image)
            return
        self._inverted = image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info
        self._clear = image.mode in {"LA", "La", "PA", "RGBA", "RGBa"} or "transparency" in image.info
        profile: bytes = image.info.get("icc_profile") or b""
        mode = "RGB" if self._clear else image.mode
        self._transform = None if self._clear and _space(profile) != "RGB" else self._to_srgb(mode, profile)
        if self._transform is None and mode != "RGB":
            names = {"1": "black and white", "L": "grey", "P": "a palette"}
            self.notes.append(f"converted from {names.get(mode, mode)} to RGB")

    def __call__(self, part: Image.Image) -> Pixels:
        """The pixels (height, width, 3) of a part of the picture."""
        if self._deep:
            grey = np.rint((np.asarray(part).astype(np.float64) - self._low) * (255 / self._top)).astype(np.uint8)
            return np.repeat(grey[..., None], 3, axis=-1)
        if self._inverted:  # Pillow inverts the ink of all CMYK JPEGs, as only Adobe's is
            from PIL import ImageChops

            part = ImageChops.invert(part)
        if self._clear:
            part = self._on_white(part)
        if self._transform is not None:
            from PIL import ImageCms

            part = ImageCms.applyTransform(part, self._transform) or part  # None is for changes in place
        return np.asarray(part if part.mode == "RGB" else part.convert("RGB"))

    def _range(self, image: Image.Image) -> None:
        """What is black and white in grey with more than 8 bits: integers of 16 or 32 bits, or floating point numbers."""
        low, high = np.inf, -np.inf
        for box in _tiles(image.size):
            values = np.asarray(_part(image, box))
            if not np.isfinite(values).all():
                raise ValueError("it holds NaN or infinity")
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        self._low, notes = 0.0, []
        if image.mode.startswith("I;16"):
            self._top = 65535.0
        elif image.mode == "F" and low >= 0 and high <= 1:
            self._top = 1.0
        elif low >= 0 and high <= 65535:
            self._top = 255.0 if high <= 255 else 65535.0
        else:
            self._low, self._top = low, max(high - low, 1e-300)
            notes.append(f"values from {low:.6g} to {high:.6g} were stretched to black and white")
        kind = "floating point" if image.mode == "F" else "16-bit" if self._top == 65535.0 else "32-bit"
        self.notes = [f"converted from {kind} grey to 8-bit RGB", *notes]
        if self._top == 65535.0 and high < 4096:
            self.notes.append(
                f"the brightest pixel is {high:.0f} of 65535: if the file holds 12 bits or fewer, stretch it first"
            )

    def _on_white(self, part: Image.Image) -> Image.Image:
        """A part with what is transparent laid over white."""
        from PIL import Image

        note = "what is transparent was laid over white"
        straight = part.convert("RGBA")
        white = Image.new("RGBA", straight.size, (255, 255, 255, 255))
        if note not in self.notes and bool((np.asarray(straight)[..., 3] < 255).any()):
            self.notes.insert(0, note)
        return Image.alpha_composite(white, straight).convert("RGB")

    def _to_srgb(self, mode: str, profile: bytes) -> Any:
        """What converts to sRGB by a colour profile; None without a usable one."""
        spaces = {"RGB": "RGB", "CMYK": "CMYK", "L": "GRAY"}
        if mode != "LAB" and (not profile or mode not in spaces):
            return None
        if mode != "LAB" and spaces[mode] != _space(profile):
            self.notes.append(f"its colour profile is for {shown(_space(profile))}, and was not used")
            return None
        try:
            from PIL import ImageCms

            if len(profile) > PROFILE:
                raise ValueError("too large")
            srgb = ImageCms.createProfile("sRGB")
            own: Any = ImageCms.createProfile("LAB") if mode == "LAB" else ImageCms.ImageCmsProfile(io.BytesIO(profile))
            name = "Lab" if mode == "LAB" else ImageCms.getProfileDescription(own).strip()
            if "srgb" in name.lower():
                return None
            found = ImageCms.buildTransform(own, srgb, mode, "RGB")
        except Exception:  # a damaged profile, or Pillow without littlecms
            self.notes.append("its colour profile could not be used; colours are taken as sRGB")
            return None
        self.notes.append(f"converted from the colour profile {name[:80]!r} to sRGB")
        return found


def _space(profile: bytes) -> str:
    """The colour space of a colour profile, read from its header."""
    return profile[16:20].decode("latin-1").strip()
