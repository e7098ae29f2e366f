"""What a photo's bytes say before anything is decoded: its format, its size, and whether decoding it is bounded.

Pillow's readers take a file at its word: they hold every tag of every directory, join comments piece by piece, and follow
chains of pictures to their end. So Pillow gets a copy with the picture and its colours alone; what is beyond limits is refused.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from ...errors import FileError

MOST = 200_000_000
"""Photos with more pixels than this are refused: phones take up to 200 million."""

LONGEST = 100_000
"""Photos with more pixels than this to a side are refused: memory and time go by rows too."""

SCANS = 40
"""JPEGs that draw their picture in more passes than this are refused; a usual progressive one has ten."""

PARTS = 200_000
"""Photos whose file is cut into more parts than this (PNG chunks, TIFF strips, GIF blocks before the picture) are refused.

The pictures of a GIF are counted as far as this number of blocks reaches, all its blocks together.
"""

SEGMENTS = 10_000
"""JPEGs with more segments than this before the picture are refused; one with a large profile has a few hundred."""

LOOKS = 16
"""How many pieces of a file that may say how it lies (EXIF, XMP) are looked into; a usual file has one of each."""

PIECE = 1 << 20
"""How many bytes of such a piece are looked at, unpacked where it is packed."""

_SEGMENTS = {0xE0: (b"JFIF\0",), 0xE2: (b"ICC_PROFILE\0",), 0xEE: (b"Adobe",)}  # of kinds that are not all needed
_MARKER = re.compile(rb"\xff([^\x00\xff])")  # no more than this: ``\xff+`` takes the square of a run's length
_RUN = b"\xff" * (1 << 16)
_FILL = re.compile(rb"\xff+")  # to match at a place, not to search for
_PASS = re.compile(rb"\xff([\xd9\xda])")
_XMP_NAME = b"http://ns.adobe.com/xap/1.0/\0"
_XMP = re.compile(rb"tiff:Orientation(?:=[\"']|>)([1-8])")
_GAP = rb"(?:[ \t\r\n\x0b\x0c]|#[^\r\n]*[\r\n])+"
_PPM = re.compile(rb"P[456]" + _GAP + rb"(\d{1,10})" + _GAP + rb"(\d{1,10})(?:" + _GAP + rb"(\d{1,10}))?")
_TIFFS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_UNREAD = (
    (b"\0\0\1\0", "an icon (ICO)"),
    (b"\0\0\2\0", "a cursor (CUR)"),
    (b"icns", "an icon (ICNS)"),
    (b"8BPS", "a Photoshop file"),
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"\xc5\xd0\xd3\xc6", "a PostScript document"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (b"SIMPLE", "a FITS file"),
    (b"\xd7\xcd\xc6\x9a", "a Windows metafile"),
    (b"DDS ", "a texture (DDS)"),
    (b"qoif", "a QOI picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
    (b"P1", "a Netpbm picture written as text"),
    (b"P2", "a Netpbm picture written as text"),
    (b"P3", "a Netpbm picture written as text"),
)

_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_TIFF_KEPT = {
    *(254, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 292, 293, 317, 320, 322, 323, 324, 325),
    *(332, 338, 339, 347, 512, 513, 514, 519, 520, 521, 529, 530, 531, 532, 34675),
}
"""The tags of a TIFF that say how its pixels are stored and what their colours mean."""


@dataclass(frozen=True)
class PhotoHeader:
    """A photo as Pillow's reader of its format is to have it, and what was found on the way.

    Attributes:
        kind: the name of the format, as Pillow has it.
        data: a file with the picture and its colours, and nothing else where that can be told apart.
        size: width and height; None where only the reader of the format knows.
        orientation: as EXIF numbers it; None where only the reader of the format knows.
        pictures: how many are in the file; None where there are several and nobody has counted.
        working: bytes that decoding needs beside the file and the pixels.
        per_pixel: bytes that decoding needs for each pixel, the pixel included.
    """

    kind: str
    data: bytes
    size: tuple[int, int] | None = None
    orientation: int | None = 1
    pictures: int | None = 1
    working: int = 0
    per_pixel: int = 4


def look(data: bytes, name: str) -> PhotoHeader:
    """Look at a photo's bytes: a :class:`PhotoHeader` of a format that is read, within all limits.

    Args:
        data: all of the file.
        name: what to call it in errors.

    Raises:
        FileError: it is of another format, damaged, or beyond a limit.
    """
    try:
        found = _look(data, name)
    except (struct.error, IndexError):
        raise FileError(f"{name} is cut short or damaged: its header breaks off. Copy or download it again.") from None
    if found.size is not None:
        check_size(*found.size, name)
    return found


def check_size(width: int, height: int, name: str) -> None:
    """Refuse photos with no or too many pixels: a small file can claim any size."""
    if width < 1 or height < 1:
        raise FileError(f"{name} has no pixels ({width}x{height}); expected a photo.")
    if width * height > MOST:
        raise FileError(
            f"{name} has {width}x{height} pixels, {width * height / 1e6:.0f} million; up to {MOST / 1e6:.0f} million are read. "
            "Make it smaller first."
        )
    if max(width, height) > LONGEST:
        raise FileError(f"{name} has {width}x{height} pixels; up to {LONGEST:,} to a side are read. Cut it into parts first.")


def is_heic(data: bytes) -> bool:
    """Whether these bytes are a HEIC photo, which Pillow reads with a plugin only."""
    brands = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
    return data[4:8] == b"ftyp" and data[8:12] in brands and b"avif" not in data[8:64]


def orientation_of(exif: bytes) -> int:
    """The orientation that EXIF data asks for, 1 to 8; 0 if it says nothing, or is damaged."""
    start = 0
    while start < 12 and exif[start : start + 6] == b"Exif\0\0":  # some programs write it twice
        start += 6
    try:
        for tag, kind, _, value in _entries(exif[start : start + PIECE]):
            if tag == 0x0112 and kind == 3:
                found = struct.unpack(("<" if exif[start : start + 2] == b"II" else ">") + "H", value[:2])[0]
                return int(found) if 1 <= found <= 8 else 0
    except (struct.error, ValueError, OverflowError):  # the last: a directory beyond 2**63
        pass
    return 0


def orientation_of_xmp(xmp: bytes) -> int:
    """The orientation that XMP data asks for, 1 to 8; 0 if it says nothing."""
    found = _XMP.search(xmp, 0, PIECE)
    return int(found[1]) if found else 0


@dataclass
class _Upright:
    """What makes a photo upright, collected from all pieces of its file that may say so, as far as :data:`LOOKS` goes.

    Attributes:
        exif: what EXIF data says, 1 to 8; 0 if nothing yet.
        profile: what EXIF data written as text says, which older programs put into PNGs.
        xmp: what XMP data says.
    """

    exif: int = 0
    profile: int = 0
    xmp: int = 0
    _looks: int = 0

    @property
    def orientation(self) -> int:
        """EXIF goes before XMP, wherever in the file they stand; 1, as it is, if neither says anything."""
        return self.exif or self.profile or self.xmp or 1

    def may_look(self) -> bool:
        """Whether one more piece is to be looked into; counts it."""
        self._looks += 1
        return self._looks <= LOOKS

    def see(self, kind: str, piece: bytes) -> None:
        """Look into a piece of a file: ``exif``, ``profile`` or ``xmp``; the first of a kind that says something counts."""
        if not getattr(self, kind):
            setattr(self, kind, {"exif": orientation_of, "profile": _of_profile, "xmp": orientation_of_xmp}[kind](piece))


def _of_profile(text: bytes) -> int:
    """The orientation of EXIF data in hexadecimal after a line of its name and one of its length; 0 if it says nothing."""
    digits = b"".join(text[: 2 * PIECE].split(b"\n", 3)[3:]).translate(None, b" \t\r\n")
    try:
        return orientation_of(bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii")))
    except ValueError:
        return 0


def _look(data: bytes, name: str) -> PhotoHeader:
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg(data, name)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _png(data, name)
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(data, name)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data, name)
    if data[:4] in _TIFFS:
        return _tiff(data, name)
    if data[:2] == b"BM":
        return _bmp(data, name)
    if data[:2] in (b"P4", b"P5", b"P6"):
        return _ppm(data, name)
    if data[4:8] == b"ftyp" and (data[8:12] in (b"avif", b"avis") or b"avif" in data[16:64]):
        _check_directories(data, name)
        return PhotoHeader("AVIF", data, orientation=None, pictures=None, per_pixel=24)
    if is_heic(data):
        _check_directories(data, name)
        return PhotoHeader("HEIF", data, pictures=None, per_pixel=24)
    for start, what in _UNREAD:
        if data.startswith(start):
            raise FileError(f"{name} is {what}, which is not read; convert it to PNG or JPEG first.")
    raise FileError(f"{name} is not a picture that is read; expected a photo: JPEG, PNG, WebP, TIFF, GIF, AVIF. Convert it.")


def _broken(name: str, what: str) -> NoReturn:
    raise FileError(f"{name} is damaged ({what}). Get it again, or convert it to PNG.")


def _too_many(name: str, what: str, most: int) -> NoReturn:
    raise FileError(f"{name} has more than {most:,} {what}, which no photo needs; it would take too long. Convert it to PNG.")


def _jpeg(data: bytes, name: str) -> PhotoHeader:
    """Keep what decodes the picture, and its profile; read its size, orientation and the number of its passes."""
    kept: list[bytes | memoryview] = [b"\xff\xd8"]
    view = memoryview(data)
    at, upright, several, frame = 2, _Upright(), False, b""
    for _ in range(SEGMENTS):
        found = _MARKER.search(data, at, at + (1 << 16))
        if found is None:
            raise FileError(f"{name} begins like a picture but is damaged or cut short; copy or download it again.")
        marker, at = found[1][0], found.end()
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # nothing follows these
            continue
        if marker == 0xD9:
            _broken(name, "there is no picture in it")
        length = struct.unpack_from(">H", data, at)[0]
        body = data[at + 2 : at + length]
        if marker == 0xDA:
            if not frame:
                _broken(name, "it does not say how large it is")
            kept += _without_runs(data, found.end() - 2)
            return _jpeg_of(data, name, kept, frame, body[0], at, (upright.orientation, several))
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = frame or bytes([marker]) + body
        if 0xC0 <= marker <= 0xCF or marker in (0xDB, 0xDD) or body.startswith(_SEGMENTS.get(marker, (b"\xff\xff",))):
            kept += [b"\xff" + found[1], view[at : at + length]]
        elif marker == 0xE1 and body.startswith((b"Exif\0\0", _XMP_NAME)) and upright.may_look():
            upright.see("exif" if body.startswith(b"Exif") else "xmp", body)
        several = several or (marker == 0xE2 and body.startswith(b"MPF\0"))
        at += length
    _too_many(name, "segments before its picture", SEGMENTS)


def _without_runs(data: bytes, at: int) -> Iterator[memoryview]:
    """The passes of a JPEG with long runs of fill bytes left out, which mean nothing.

    Pillow gives its decoder ever more of the file until a run ends, from the start of the run each time.
    """
    view, start = memoryview(data), at
    while (at := data.find(_RUN, start)) >= 0:
        yield view[start : at + 1]
        end = _FILL.match(data, at)
        start = end.end() if end else len(data)
    yield view[start:]


def _jpeg_of(
    data: bytes, name: str, kept: list[bytes | memoryview], frame: bytes, first: int, at: int, said: tuple[int, bool]
) -> PhotoHeader:
    """The header of a JPEG whose picture begins at a place; one in several passes is held as coefficients until the last."""
    _, height, width, parts = struct.unpack_from(">BHHB", frame, 1)
    check_size(width, height, name)
    working = 0
    if frame[0] in (0xC2, 0xC6, 0xCA, 0xCE) or first < parts:
        passes = 1
        for found in _PASS.finditer(data, at):
            passes += found[1] == b"\xda"
            if found[1] == b"\xd9" or passes > SCANS:
                break
        if passes > SCANS:
            _too_many(name, "passes over its picture", SCANS)
        shares = [frame[8 + 3 * i] for i in range(parts)]
        across, down = max((one >> 4 for one in shares), default=1), max((one & 15 for one in shares), default=1)
        working = int(2 * width * height * sum((one >> 4) * (one & 15) for one in shares) / max(1, across * down))
    orientation, several = said
    return PhotoHeader("JPEG", b"".join(kept), (width, height), orientation, None if several else 1, working)


def _png(data: bytes, name: str) -> PhotoHeader:
    """Keep the picture, its palette and its profile, checksums checked: Pillow would give a damaged PNG in black, silently."""
    view = memoryview(data)
    kept: list[bytes | memoryview] = [data[:8]]
    at, upright, pictures, profiles = 8, _Upright(), 1, 0
    for _ in range(PARTS):
        if at + 12 > len(data):
            raise FileError(f"{name} is cut short (it ends before its end mark); copy or download it again.")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"iCCP", b"IDAT", b"IEND"):
            if end > len(data):
                raise FileError(f"{name} is cut short (it ends within its picture); copy or download it again.")
            if zlib.crc32(view[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
                _broken(name, f"a checksum does not fit, in {kind.decode()}")
            profiles += kind == b"iCCP"
            if kind != b"iCCP" or profiles == 1:  # Pillow would unpack each
                kept.append(view[at:end])
        elif kind == b"acTL":
            pictures = struct.unpack_from(">I", data, at + 8)[0] or 1
        elif kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
            _see_png(kind, data[at + 8 : max(at + 8, min(end - 4, at + 8 + 2 * PIECE))], upright)
        if kind == b"IEND":
            size = struct.unpack_from(">II", data, 16)
            return PhotoHeader("PNG", b"".join(kept), (size[0], size[1]), upright.orientation, pictures)
        at = end
    _too_many(name, "parts", PARTS)


def _see_png(kind: bytes, body: bytes, upright: _Upright) -> None:
    """Look into a part of a PNG that may say how the photo lies: EXIF data, or a text of one of two names."""
    keyword = body[:80].partition(b"\0")[0]
    what = "exif" if kind == b"eXIf" else {b"Raw profile type exif": "profile", b"XML:com.adobe.xmp": "xmp"}.get(keyword)
    if what is None or not upright.may_look():
        return
    packed = False
    if what != "exif":
        body = body[len(keyword) + 1 :]
        if kind == b"zTXt":
            packed, body = True, body[1:]
        elif kind == b"iTXt":  # whether it is packed, how, a language, the name in that language, each ended by 0
            packed, body = body[:1] == b"\1", body[2:].partition(b"\0")[2].partition(b"\0")[2]
    with suppress(zlib.error):
        upright.see(what, zlib.decompressobj().decompress(body, 2 * PIECE) if packed else body)


def _gif(data: bytes, name: str) -> PhotoHeader:
    """Keep the first picture; comments and what else comes before it are left out."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    head, control, first, pictures, blocks = data[:at], b"", 0, 0, PARTS
    while at < len(data) and data[at] != 0x3B:
        blocks -= 1
        if blocks < 0:
            break
        if data[at] == 0x21 and data[at + 1 : at + 2] == b"\xf9" and not first:
            control = data[at : at + 8]
        elif data[at] == 0x2C:
            left, top, wide, high, flags = struct.unpack_from("<HHHHB", data, at + 1)
            if not first:
                first, width, height = at, max(width, left + wide), max(height, top + high)
            pictures += 1
            at += 9 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)  # two fewer, as an extension has before its blocks
        elif data[at] != 0x21:
            at += 1
            continue
        at += 2
        while blocks >= 0 and at < len(data) and data[at]:
            at += 1 + data[at]
            blocks -= 1
        at += 1
    if not first and blocks < 0:
        _too_many(name, "parts before its picture", PARTS)
    if not first:
        _broken(name, "there is no picture in it")
    return PhotoHeader("GIF", b"".join([head, control, data[first:]]), (width, height), 1, None if blocks < 0 else pictures)


def _webp(data: bytes, name: str) -> PhotoHeader:
    """Read the size and the orientation; a decoder of WebP holds the canvas three times beside the pixels."""
    kind = data[12:16]
    if kind == b"VP8X":
        size = tuple(1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        size = ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    else:
        size = tuple(side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    at, upright = 12, _Upright()
    for _ in range(PARTS):
        if at + 8 > len(data):
            return PhotoHeader("WEBP", data, (size[0], size[1]), upright.orientation, None, per_pixel=16)
        what, length = struct.unpack_from("<4sI", data, at)
        if what in (b"EXIF", b"XMP ") and upright.may_look():
            upright.see("exif" if what == b"EXIF" else "xmp", data[at + 8 : at + 8 + min(length, PIECE)])
        at += 8 + length + length % 2
    _too_many(name, "parts", PARTS)


def _bmp(data: bytes, name: str) -> PhotoHeader:
    """Read the size; run lengths, which nobody uses for photos and Pillow decodes slowly, are refused."""
    header = struct.unpack_from("<I", data, 14)[0]
    if header == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
        if struct.unpack_from("<I", data, 30)[0] not in (0, 3, 6):
            raise FileError(f"{name} is a compressed BMP, which is not read; convert it to PNG first.")
    return PhotoHeader("BMP", data, (abs(width), abs(height)))


def _ppm(data: bytes, name: str) -> PhotoHeader:
    """Read the size; only 8 and 16 bits in full are decoded fast."""
    found = _PPM.match(data, 0, 1 << 16)
    if found is None:
        _broken(name, "its header says no size")
    if data[:2] != b"P4" and (found[3] is None or int(found[3]) not in (255, 65535)):
        raise FileError(f"{name} is a Netpbm picture whose values do not go to 255 or 65535; convert it to PNG first.")
    return PhotoHeader("PPM", data, (int(found[1]), int(found[2])))


def _tiff(data: bytes, name: str) -> PhotoHeader:
    """Give the TIFF a new directory, at its end, with the tags of its first picture that pixels and colours need."""
    order = "<" if data[:2] == b"II" else ">"
    large = data[2:4] in (b"+\0", b"\0+")
    found = {entry[0]: entry for entry in reversed(list(_entries(data)))}
    if sum(_TIFF_SIZES.get(kind, 1) * count for _, kind, count, _ in found.values()) > len(data) + 4096:
        _broken(name, "its tags are larger than the file")
    one = {tag: _whole(order, found[tag]) for tag in (256, 257, 259, 274, 278, 322, 323) if tag in found}
    width, height = one.get(256, 0), one.get(257, 0)
    check_size(width, height, name)
    if max((found[tag][2] for tag in (273, 279, 324, 325) if tag in found), default=0) > PARTS:
        _too_many(name, "strips or tiles", PARTS)
    tile = one[322] * one[323] if 322 in one and 323 in one else width * min(height, one.get(278, height))
    if tile > max(width * height, 1 << 22):
        _broken(name, "its tiles are larger than the picture")
    deep = 0 if one.get(259, 1) == 1 else max(1, _bits(order, found, data) // 8)  # uncompressed strips are taken as they are
    kept = [found[tag] for tag in sorted(found) if tag in _TIFF_KEPT]
    count, offset = ("Q", "Q") if large else ("H", "I")
    place = len(data) + len(data) % 2
    new = struct.pack(order + count, len(kept))
    for tag, kind, many, value in kept:
        new += struct.pack(order + "HH" + offset, tag, kind, many) + value
    new += struct.pack(order + offset, 0)
    head = data[:8] + struct.pack(order + "Q", place) if large else data[:4] + struct.pack(order + "I", place)
    out = b"".join([head, memoryview(data)[len(head) :], b"\0" * (place - len(data)), new])
    turn = one.get(274, 0)
    turn = turn if 1 <= turn <= 8 else _tiff_xmp(order, found, data) or 1
    return PhotoHeader("TIFF", out, (width, height), turn, 1 if _last(data) else None, tile * deep)


def _tiff_xmp(order: str, found: dict[int, tuple[int, int, int, bytes]], data: bytes) -> int:
    """The orientation that the XMP data of a TIFF asks for; 0 if there is none, or it says nothing."""
    _, kind, count, value = found.get(700, (700, 0, 0, b""))
    if kind not in (1, 2, 7) or count <= len(value):  # too short to say anything
        return 0
    at = struct.unpack(order + ("Q" if len(value) == 8 else "I"), value)[0]
    return orientation_of_xmp(data[at : at + min(count, PIECE)])


def _entries(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The entries of the first directory of a TIFF or of EXIF data: tag, type, count, and the value or where it is."""
    if data[:4] not in _TIFFS:
        raise ValueError("no TIFF")
    order, large = "<" if data[:2] == b"II" else ">", data[2:4] in (b"+\0", b"\0+")
    at = struct.unpack_from(order + "Q", data, 8)[0] if large else struct.unpack_from(order + "I", data, 4)[0]
    count = struct.unpack_from(order + ("Q" if large else "H"), data, at)[0]
    at += 8 if large else 2
    form, step = (order + "HHQ8s", 20) if large else (order + "HHI4s", 12)
    for place in range(at, at + step * min(count, 1 << 16), step):
        yield struct.unpack_from(form, data, place)


def _last(data: bytes) -> bool:
    """Whether the first directory of a TIFF is also the last."""
    order, large = "<" if data[:2] == b"II" else ">", data[2:4] in (b"+\0", b"\0+")
    at = struct.unpack_from(order + "Q", data, 8)[0] if large else struct.unpack_from(order + "I", data, 4)[0]
    count = struct.unpack_from(order + ("Q" if large else "H"), data, at)[0]
    after = at + (8 + 20 * count if large else 2 + 12 * count)
    return not any(data[after : after + (8 if large else 4)])


def _whole(order: str, entry: tuple[int, int, int, bytes]) -> int:
    """The whole number that an entry holds."""
    form = {1: "B", 3: "H", 4: "I", 16: "Q"}.get(entry[1])
    return 0 if form is None else int(struct.unpack_from(order + form, entry[3].ljust(8, b"\0"))[0])


def _bits(order: str, found: dict[int, tuple[int, int, int, bytes]], data: bytes) -> int:
    """The bits of a pixel, all its samples together."""
    if 258 not in found:
        return 1
    _, _, count, value = found[258]
    if count * 2 > len(value):
        at = struct.unpack(order + ("Q" if len(value) == 8 else "I"), value)[0]
        value = data[at : at + 2 * min(count, 64)]
    bits = struct.unpack_from(f"{order}{min(count, len(value) // 2)}H", value)
    samples = max(len(bits), _whole(order, found[277]) if 277 in found else 1)
    return max(bits, default=1) * samples


def _check_directories(data: bytes, name: str) -> None:
    """Refuse EXIF data whose tags are larger than all of it: a reader would hold each, also where the last breaks off."""
    entries = 0
    for start in (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0"):  # Pillow takes the last two for the first two
        at = data.find(start)
        for _ in range(100):
            if at < 0:
                break
            total = 0
            with suppress(struct.error):
                for _, kind, count, _ in _entries((b"II*\0" if start[0] == 0x49 else b"MM\0*") + data[at + 4 : at + PIECE]):
                    entries, total = entries + 1, total + _TIFF_SIZES.get(kind, 1) * count
                    if entries > PARTS or total > (1 << 24):
                        break
            if total > (1 << 24):
                _broken(name, "its EXIF data claims more than there is")
            if entries > PARTS:
                _broken(name, "it has too much EXIF data")
            at = data.find(start, at + 1)
        if at >= 0:
            _broken(name, "it has too much EXIF data")
