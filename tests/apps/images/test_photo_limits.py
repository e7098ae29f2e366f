"""Photos from anybody: what is no photo, or would take too much memory or time, is refused before it is decoded."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, PngImagePlugin

from benchmarks.fuzz_inputs import photo_seeds, photo_trial
from benchmarks.fuzz_inputs import short_run as fuzzed
from integrand.apps.images import photo_files, photo_headers
from integrand.apps.photos import MOST, Photo, as_photo, photos, read
from integrand.apps.retina.fundus import see
from integrand.errors import FileError


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, colour: int = 6, extra: bytes = b"", idat: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", idat) + chunk(b"IEND", b"")


def saved(kind: str, size: tuple[int, int] = (40, 20), mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 77 if mode in ("L", "P") else (200, 100, 50)).save(buffer, kind, **options)
    return buffer.getvalue()


def never(*_: object, **__: object) -> None:
    pytest.fail("a reader of Pillow was asked")


def refused(tmp_path: Path, data: bytes, words: str, name: str = "photo.jpg") -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileError, match=words) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["photo.jpg", "photo.png", "photo"])
def test_an_icon_is_no_photo_whatever_its_ending(tmp_path: Path, name: str) -> None:
    """Its pictures have sizes of their own, which were decoded before any limit was asked."""
    inner = png(12000, 12000, idat=zlib.compress(bytes(1000)))
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
    refused(tmp_path, icon, r"is an icon \(ICO\), which is not read; convert it to PNG or JPEG first", name)


def test_iptc_around_postscript_never_reaches_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", never)
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    fields = [
        (3, 60, b"\1\0"),
        (3, 20, struct.pack(">H", 9)),
        (3, 30, struct.pack(">H", 9)),
        (3, 120, b"\0\1"),
        (8, 10, postscript),
    ]
    iptc = b"".join(struct.pack(">BBBH", 0x1C, *pair, len(body)) + body for *pair, body in fields)
    refused(tmp_path, iptc, "not a picture that is read")


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"icns\0\0\1\0", "an icon"),
        (b"8BPS\0\1", "a Photoshop file"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"SIMPLE  =", "FITS"),
        (b"%!PS-Adobe-3.0", "PostScript"),
        (b"P3 2 2 255 ", "written as text"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, start: bytes, words: str) -> None:
    refused(tmp_path, start + bytes(64), words)


def test_the_worst_photo_within_the_limits_is_converted_in_parts(tmp_path: Path) -> None:
    """389 KB of PNG became 5.2 GB within the limit. Peak memory is held to decoded bytes by holding one part at a time."""
    height, width = photo_files.TILE * 2 + 3, photo_files.TILE * 3 + 5
    rows = zlib.compress(bytes(height * (1 + 4 * width)), 9)
    (tmp_path / "a.png").write_bytes(png(width, height, idat=rows))
    largest = 0
    shrunk = photo_files._Conversion.__call__

    def watched(self: photo_files._Conversion, part: Image.Image) -> np.ndarray:
        nonlocal largest
        largest = max(largest, part.size[0] * part.size[1])
        return shrunk(self, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photo_files._Conversion, "__call__", watched)
        photo = read(tmp_path / "a.png")
    assert photo.pixels.shape == (height, width, 3)
    assert (photo.pixels == 255).all()
    assert 0 < largest <= photo_files.TILE**2


def test_memory_is_counted_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_files, "MEMORY", 100_000)
    kinds = ("PNG", "TIFF", "GIF", "BMP", "PPM", "WEBP", "AVIF", "JPEG")
    files = [saved(kind, (400, 300), "P" if kind == "GIF" else "RGB") for kind in kinds]
    monkeypatch.setattr(photo_files, "_shrunk", never)
    monkeypatch.setattr(photo_files, "_Conversion", never)
    for data in files:
        refused(tmp_path, data, "would take .* GB of memory")


def test_a_progressive_jpeg_counts_its_coefficients(tmp_path: Path) -> None:
    plain, passes = (
        photo_headers.look(saved("JPEG", (160, 80), progressive=many, subsampling=0), "a") for many in (False, True)
    )
    assert (plain.working, passes.working) == (0, 2 * 3 * 160 * 80)
    half = photo_headers.look(saved("JPEG", (160, 80), progressive=True, subsampling=2), "a")
    assert half.working == 3 * 160 * 80


def test_a_jpeg_in_thousands_of_passes_is_refused(tmp_path: Path) -> None:
    data = saved("JPEG", (64, 64), progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    refused(tmp_path, data[:-2] + last * 1000 + b"\xff\xd9", "more than 40 passes")
    refused(tmp_path, data[:2] + b"\xff\xfe\0\2" * 20_000 + data[2:], "more than 10,000 segments")


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (0, 5), (1, 150_000), (150_000, 1)])
def test_sizes_come_from_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, height: int) -> None:
    """Not one of Pillow's readers is asked about a photo that is too large."""
    monkeypatch.setattr(photo_files, "_opened", never)
    large = struct.pack("<HH", min(width, 65535), min(height, 65535))
    words = r"million; up to 200 million|no pixels|100,000 to a side"
    files = {
        "a.png": png(width, height),
        "a.bmp": b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, width, height, 1, 24, 0) + bytes(40),
        "a.ppm": b"P6 # a comment\n%d %d\n255\n" % (width, height),
        "a.tif": b"II*\0\x08\0\0\0\2\0" + struct.pack("<HHIIHHIII", 256, 4, 1, width, 257, 4, 1, height, 0),
    }
    if width * height > MOST:
        files |= {
            "a.gif": b"GIF89a" + large + b"\0\0\0," + bytes(4) + large + b"\0\2\0;",
            "a.webp": b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(4) + (width - 1).to_bytes(3, "little") * 2,
            "a.jpg": b"\xff\xd8\xff\xc2"
            + struct.pack(">HBHHB", 17, 8, height, width, 3)
            + b"\1\x11\0\2\x11\0\3\x11\0"
            + b"\xff\xda\0\3\3",
        }
    for name, data in files.items():
        refused(tmp_path, data, words, name)


def test_a_compressed_profile_of_a_gigabyte_stays_small(tmp_path: Path) -> None:
    squeezed = zlib.compress(bytes(40_000_000), 9)
    bomb = chunk(b"iCCP", b"bomb\0\0" + squeezed)
    text = chunk(b"zTXt", b"Comment\0\0" + squeezed) * 3
    pixels = zlib.compress(bytes(2 * (1 + 4 * 2)))
    (tmp_path / "a.png").write_bytes(png(2, 2, extra=text, idat=pixels))
    assert read(tmp_path / "a.png").pixels.shape == (2, 2, 3)
    (tmp_path / "a.png").write_bytes(png(2, 2, extra=bomb, idat=pixels))
    with pytest.raises(FileError, match="Decompressed data too large"):
        read(tmp_path / "a.png")


def test_a_large_profile_is_not_used(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + bytes(photo_files.PROFILE)
    Image.new("RGB", (4, 4)).save(tmp_path / "a.tif", icc_profile=profile)
    assert read(tmp_path / "a.tif").notes == ("its colour profile could not be used; colours are taken as sRGB",)


def test_an_animation_of_a_hundred_thousand_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pictures are neither decoded nor visited by Pillow, which would go through them one by one."""
    from PIL import GifImagePlugin, PngImagePlugin, TiffImagePlugin

    for reader in (GifImagePlugin.GifImageFile, PngImagePlugin.PngImageFile, TiffImagePlugin.TiffImageFile):
        monkeypatch.setattr(reader, "seek", never)
    frame = chunk(b"fcTL", bytes(26)) + chunk(b"fdAT", bytes(8))
    pixels = zlib.compress(bytes(2 * (1 + 4 * 2)))
    data = png(2, 2, extra=chunk(b"acTL", struct.pack(">II", 90_000, 0)), idat=pixels)
    (tmp_path / "a.png").write_bytes(data[:-12] + frame * 90_000 + data[-12:])
    assert read(tmp_path / "a.png").notes[0] == "the first of 90000 pictures in the file"
    (tmp_path / "a.png").write_bytes(data[:-12] + frame * 110_000 + data[-12:])
    with pytest.raises(FileError, match="more than 200,000 parts"):
        read(tmp_path / "a.png")
    gif = saved("GIF", (4, 4), "P")
    start = gif.index(b",")
    (tmp_path / "a.gif").write_bytes(gif[:start] + gif[start:-1] * 100_000 + b";")
    assert read(tmp_path / "a.gif").notes[0] == "the first of 100000 pictures in the file"
    (tmp_path / "b.gif").write_bytes(gif[:start] + b"!\xfe" + b"\1x" * 300_000 + b"\0" + gif[start:])
    with pytest.raises(FileError, match="more than 200,000 parts before its picture"):
        read(tmp_path / "b.gif")


def directory(tags: int, length: int, order: str = "<") -> bytes:
    """EXIF data or a TIFF with many tags that all hold the same bytes."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, tags)
    entries = b"".join(struct.pack(order + "HHII", 1000 + i, 7, length, 0) for i in range(tags))
    return head + entries + bytes(4)


def test_tags_that_share_their_bytes_are_never_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 tags of a megabyte each in a file of a megabyte: Pillow would hold 60 GB."""
    refused(tmp_path, directory(60_000, 700_000), "tags are larger than the file", "a.tif")
    kinds = ("JPEG", "PNG", "WEBP")
    files = [_with_exif(saved(kind), kind, directory(5_000, 60_000, order)) for kind in kinds for order in "<>"]
    avif = saved("AVIF")
    monkeypatch.setattr(Image.Exif, "load", never)  # nobody parses EXIF data but us
    for data in files:
        (tmp_path / "a").write_bytes(data)
        assert read(tmp_path / "a").pixels.shape == (20, 40, 3)
    claims = directory(60_000, 1_000_000)
    for start in (b"II*\0", b"II\0*"):  # Pillow takes both
        refused(tmp_path, avif + start + claims[4:], "EXIF data claims more than there is", "a.avif")
        refused(tmp_path, avif + start + claims[4:-100], "EXIF data claims more than there is", "a.avif")


def _with_exif(data: bytes, kind: str, exif: bytes) -> bytes:
    if kind == "JPEG":
        return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 8) + b"Exif\0\0" + exif + data[2:]
    if kind == "PNG":
        return data[:33] + chunk(b"eXIf", exif) + data[33:]
    body = data[12:] + b"EXIF" + struct.pack("<I", len(exif)) + exif + b"\0" * (len(exif) % 2)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_read_from_exif_alone(tmp_path: Path, kind: str, order: str) -> None:
    exif = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    (tmp_path / "a").write_bytes(_with_exif(saved(kind), kind, exif))
    photo = read(tmp_path / "a")
    assert photo.pixels.shape == (40, 20, 3)
    assert photo.notes == ("turned upright, as its file says",)


def xmp_of(orientation: int, *, written: str = '<x tiff:Orientation="{}"/>') -> bytes:
    return written.format(orientation).encode()


def exif_of(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def text_of(keyword: str, text: str, *, packed: bool = False, international: bool = False) -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    if international:
        info.add_itxt(keyword, text, zip=packed)
    else:
        info.add_text(keyword, text, zip=packed)
    return info


def profile_of(orientation: int) -> str:
    data = exif_of(orientation)
    return f"\nexif\n{len(data):8}\n" + "\n".join(data.hex()[i : i + 72] for i in range(0, 2 * len(data), 72)) + "\n"


def xmp_text(orientation: int) -> str:
    return xmp_of(orientation).decode()


ROUTES = {
    "JPEG EXIF": lambda n: ("JPEG", {"exif": exif_of(n)}),
    "JPEG XMP": lambda n: ("JPEG", {"xmp": xmp_of(n)}),
    "PNG eXIf": lambda n: ("PNG", {"exif": exif_of(n)}),
    "PNG profile": lambda n: ("PNG", {"pnginfo": text_of("Raw profile type exif", profile_of(n))}),
    "PNG profile, packed": lambda n: ("PNG", {"pnginfo": text_of("Raw profile type exif", profile_of(n), packed=True)}),
    "PNG XMP": lambda n: ("PNG", {"pnginfo": text_of("XML:com.adobe.xmp", xmp_text(n), international=True)}),
    "PNG XMP, packed": lambda n: (
        "PNG",
        {"pnginfo": text_of("XML:com.adobe.xmp", xmp_text(n), packed=True, international=True)},
    ),
    "WebP EXIF": lambda n: ("WEBP", {"exif": exif_of(n)}),
    "WebP XMP": lambda n: ("WEBP", {"xmp": xmp_of(n)}),
    "TIFF 274": lambda n: ("TIFF", {"tiffinfo": {274: n}}),
    "TIFF 700": lambda n: ("TIFF", {"tiffinfo": {700: xmp_of(n, written="<tiff:Orientation>{}</tiff:Orientation>")}}),
    "TIFF 700, large": lambda n: ("TIFF", {"tiffinfo": {700: xmp_of(n)}, "big_tiff": True}),
    "AVIF XMP": lambda n: ("AVIF", {"xmp": xmp_of(n)}),
}
"""Where a file can say how it lies, and how Pillow writes that."""


def checked_with_pillow(path: Path, data: bytes) -> Photo:
    """A photo that is read as Pillow reads and turns it, bit by bit."""
    path.write_bytes(data)
    photo = read(path)
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image)
        np.testing.assert_array_equal(photo.pixels, np.asarray(upright.convert("RGB")))
    return photo


@pytest.mark.parametrize("route", ROUTES)
def test_a_photo_is_turned_wherever_its_file_says_how_it_lies(tmp_path: Path, route: str) -> None:
    pixels = np.kron(np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    for orientation in range(1, 9):
        kind, options = ROUTES[route](orientation)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind, **options)
        photo = checked_with_pillow(tmp_path / "a", buffer.getvalue())
        assert photo.pixels.shape == ((24, 16, 3) if orientation > 4 else (16, 24, 3))
        assert photo.notes == (() if orientation == 1 else ("turned upright, as its file says",))


@pytest.mark.parametrize("exif", [0, 1, 3])
def test_exif_goes_before_xmp_wherever_they_stand(tmp_path: Path, exif: int) -> None:
    """0 stands for EXIF data that says nothing: then XMP counts."""
    said = exif_of(exif)[6:] if exif else directory(1, 4)
    xmp = xmp_of(6)
    segment = b"\xff\xe1" + struct.pack(">H", len(xmp) + 31) + b"http://ns.adobe.com/xap/1.0/\0" + xmp
    jpeg = _with_exif(saved("JPEG"), "JPEG", said)
    after = 4 + struct.unpack_from(">H", jpeg, 4)[0]
    plain = saved("PNG")
    texts = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp), chunk(b"eXIf", said)
    webp = saved("WEBP", exif=b"Exif\0\0" + said, xmp=xmp)
    start = webp.index(b"EXIF")
    turned = webp[:start] + webp[webp.index(b"XMP ") :] + webp[start : webp.index(b"XMP ")]
    buffer = io.BytesIO()
    Image.new("RGB", (40, 20)).save(buffer, "TIFF", tiffinfo={700: xmp, **({274: exif} if exif else {})})
    files = [jpeg[:2] + segment + jpeg[2:], jpeg[:after] + segment + jpeg[after:]]
    files += [plain[:33] + b"".join(texts) + plain[33:], plain[:33] + b"".join(texts[::-1]) + plain[33:]]
    for data in [*files, webp, turned, buffer.getvalue()]:
        assert photo_headers.look(data, "a").orientation == (exif or 6)
        checked_with_pillow(tmp_path / "a", data)


def test_what_says_how_a_photo_lies_is_looked_into_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 texts of a kilobyte that unpack to a megabyte each would take minutes."""
    seen: list[int] = []
    looked = photo_headers._of_profile

    def watched(text: bytes) -> int:
        seen.append(len(text))
        return looked(text)

    monkeypatch.setattr(photo_headers, "_of_profile", watched)
    packed = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n 9\n" + b"0" * 5_000_000, 9))
    data = saved("PNG")
    assert photo_headers.look(data[:33] + packed * 1000 + data[33:], "a").orientation == 1
    assert seen == [2 * photo_headers.PIECE] * photo_headers.LOOKS
    for text in (b"", b"\n", b"\nexif\n", b"\nexif\n 9\nno digits", b"\nexif\n 9\n4", b"\n\n\n\xff\xff"):
        for body in (b"\0" + text, b"\0" + zlib.compress(text)):
            broken = chunk(b"zTXt", b"Raw profile type exif\0" + body)
            assert photo_headers.look(data[:33] + broken + data[33:], "a").orientation == 1


def test_exif_data_that_leads_beyond_all_bounds_says_nothing(tmp_path: Path) -> None:
    for at in (2**64 - 1, 2**63, 2**40):
        exif = b"II+\0\x08\0\0\0" + struct.pack("<Q", at) + bytes(20)
        for kind in ("JPEG", "PNG", "WEBP"):
            (tmp_path / "a").write_bytes(_with_exif(saved(kind), kind, exif))
            assert read(tmp_path / "a").notes == ()


def test_what_is_searched_for_has_no_repetition() -> None:
    """So a search takes as long as a file is long: a repetition takes the square of that, 38 s for 64 KiB of fill bytes."""
    for searched in (photo_headers._MARKER, photo_headers._PASS, photo_headers._XMP):
        assert not set(searched.pattern) & set(b"+*{")


def test_fill_bytes_of_a_jpeg(tmp_path: Path) -> None:
    data = saved("JPEG")
    (tmp_path / "a.jpg").write_bytes(data[:2] + b"\xff" * 60_000 + data[2:])
    (tmp_path / "b.jpg").write_bytes(data)
    np.testing.assert_array_equal(read(tmp_path / "a.jpg").pixels, read(tmp_path / "b.jpg").pixels)
    refused(tmp_path, data[:2] + b"\xff" * 4_000_000 + data[2:], "damaged or cut short")


@pytest.mark.parametrize("progressive", [False, True])
def test_long_runs_within_the_picture_of_a_jpeg_never_reach_pillow(tmp_path: Path, progressive: bool) -> None:
    """Pillow begins each such run again with every 64 KiB: 64 MB of them took 53 s."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", progressive=progressive, restart_marker_blocks=2)
    data = buffer.getvalue()
    (tmp_path / "a.jpg").write_bytes(data)
    restart = data.index(b"\xff\xd1")
    for at in (restart, len(data) - 2):
        for length in (70_000, 300_000):
            (tmp_path / "b.jpg").write_bytes(data[:at] + b"\xff" * length + data[at:] + b"\xff" * length)
            np.testing.assert_array_equal(read(tmp_path / "b.jpg").pixels, read(tmp_path / "a.jpg").pixels)
            assert len(photo_headers.look((tmp_path / "b.jpg").read_bytes(), "b").data) <= len(data) + 2


def test_one_colour_profile_of_a_png_is_unpacked(tmp_path: Path) -> None:
    """A megabyte of small profiles that unpack to a megabyte each took 5 s."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data, bomb = saved("PNG", icc_profile=profile), chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(900_000)))
    end = data.index(b"IDAT") - 4
    many = data[:end] + bomb * 50 + data[end:]
    assert photo_headers.look(many, "a").data == photo_headers.look(data, "a").data


def test_directories_of_an_avif_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that share their 65,535 tags took 4 s."""
    heads = b"".join(b"II*\0" + struct.pack("<I", 80 - 8 * i) for i in range(10))
    data = saved("AVIF") + heads + struct.pack("<H", 30) + struct.pack("<HHII", 1000, 7, 1, 0) * 30 + bytes(4)
    (tmp_path / "a.avif").write_bytes(data)
    assert read(tmp_path / "a.avif").pixels.shape == (20, 40, 3)
    monkeypatch.setattr(photo_headers, "PARTS", 299)
    refused(tmp_path, data, "too much EXIF data", "a.avif")


def test_blocks_of_a_gif_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_headers, "PARTS", 20)
    gif = saved("GIF", (4, 4), "P")
    start = gif.index(b",")
    comment = b"!\xfe" + b"\1x" * 6 + b"\0"
    (tmp_path / "a.gif").write_bytes(gif[:start] + comment * 2 + gif[start:])
    assert read(tmp_path / "a.gif").notes == ("converted from a palette to RGB",)
    refused(tmp_path, gif[:start] + comment * 3 + gif[start:], "more than 20 parts before its picture")
    (tmp_path / "a.gif").write_bytes(gif[:start] + gif[start:-1] * 8 + b";")
    assert read(tmp_path / "a.gif").notes[0] == "the first of 8 pictures in the file"
    (tmp_path / "a.gif").write_bytes(gif[:start] + gif[start:-1] * 30 + b";")
    assert read(tmp_path / "a.gif").notes[0] == "the first of several pictures in the file"


def test_an_animation_of_no_pictures_is_a_picture(tmp_path: Path) -> None:
    data = saved("PNG")
    (tmp_path / "a.png").write_bytes(data[:33] + chunk(b"acTL", bytes(8)) + data[33:])
    assert read(tmp_path / "a.png").notes == ()


def test_a_file_is_read_when_no_other_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else as many files as threads, of half a gigabyte each, lie in memory."""
    held, read_bytes = [], photo_files.read_bytes

    def watched(path: Path, **options: object) -> bytes:
        held.append(photo_files._LOCK.locked())
        return read_bytes(path, **options)

    monkeypatch.setattr(photo_files, "read_bytes", watched)
    (tmp_path / "a.jpg").write_bytes(saved("JPEG"))
    for data, words in ((b"", "is empty"), (b"<svg", "an SVG drawing"), (b"abc", "not a picture")):
        refused(tmp_path, data, words, "b.jpg")
        assert read(tmp_path / "a.jpg").pixels.shape == (20, 40, 3)
    refused(tmp_path, b"", "there is no file|is empty")
    assert held == [True] * 7
    assert not photo_files._LOCK.locked()


def test_what_a_plugin_opens_is_held_to_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        size = (40, 20)

        @classmethod
        def register_heif_opener(cls) -> None:
            Image.register_open("HEIF", lambda *_: Image.new("RGB", cls.size, (9, 9, 9)))

    monkeypatch.setitem(sys.modules, "pillow_heif", Plugin)
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64))
    assert (read(tmp_path / "a.heic").pixels == 9).all()
    monkeypatch.setattr(Plugin, "size", (150_000, 1))
    with pytest.raises(FileError, match="100,000 to a side"):
        read(tmp_path / "a.heic")


def test_a_tile_larger_than_the_picture(tmp_path: Path) -> None:
    tags = [(256, 10), (257, 10), (258, 8), (259, 8), (262, 1), (277, 1), (322, 60_000), (323, 60_000), (324, 0), (325, 8)]
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    refused(tmp_path, b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + body + bytes(64), "tiles are larger than the picture")


def test_run_lengths_and_odd_ranges_which_pillow_decodes_in_python(tmp_path: Path) -> None:
    bmp = b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 9999, 9999, 1, 8, 1) + bytes(40)
    refused(tmp_path, bmp, "compressed BMP")
    refused(tmp_path, b"P6 9999 9999 254\n" + bytes(10), "do not go to 255 or 65535")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(FileError, match="is a pipe; expected a photo in an ordinary file"):
        read(tmp_path / "a.jpg")
    with pytest.raises(FileError, match="there is no photo"):
        photos([tmp_path])
    for device in ("/dev/zero", "/dev/urandom"):
        with pytest.raises(FileError, match="is a device"):
            read(device)


def test_files_that_are_too_large_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.jpg").open("wb") as file:
        file.truncate(photo_files.BYTES + 1)  # a hole: it takes no space on the disk
    with pytest.raises(FileError, match="a photo of at most 512 MiB"):
        read(tmp_path / "a.jpg")


def test_the_digest_is_that_of_the_bytes_that_were_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved("PNG")
    (tmp_path / "a.png").write_bytes(data)
    looked = photo_headers.look

    def swapped(found: bytes, name: str) -> photo_headers.PhotoHeader:
        (tmp_path / "a.png").write_bytes(saved("PNG", (3, 3)))  # somebody replaces it in between
        return looked(found, name)

    monkeypatch.setattr(photo_files, "look", swapped)
    photo = read(tmp_path / "a.png")
    assert photo.digest == hashlib.sha256(data).hexdigest()
    assert photo.pixels.shape == (20, 40, 3)
    assert see(photo).photo.digest == photo.digest
    assert as_photo(photo.pixels).digest == Photo(photo.pixels, "x").digest == ""


def test_pillows_limit_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads keep the limit that they have while photos are read."""
    (tmp_path / "a.jpg").write_bytes(saved("JPEG"))
    limit, seen, done = Image.MAX_IMAGE_PIXELS, set(), threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(Image.MAX_IMAGE_PIXELS)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(50):
        read(tmp_path / "a.jpg")
    done.set()
    thread.join()
    assert seen == {limit}
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert read(tmp_path / "a.jpg").pixels.shape == (20, 40, 3)
    refused(tmp_path, saved("TIFF", compression="tiff_lzw"), "more pixels than Pillow reads of its format", "a.tif")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are text there")
def test_names_that_are_no_text_or_obeyed_by_terminals(tmp_path: Path) -> None:
    names = [b"caf\xe9.jpg", b"cat\x1b[2J.jpg", b"line\nbreak.jpg", b"\xe2\x80\xaegpj.exe.jpg", b"x" * 251 + b".jpg"]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(saved("JPEG"))
    found = photos([tmp_path])
    assert sorted(os.fsencode(path.name) for path in found) == sorted(names)
    for path in found:
        photo = read(path)
        assert photo.name == path.name
        path.write_bytes(b"no photo")
        with pytest.raises(FileError) as caught:
            read(path)
        said = str(caught.value)
        assert said.isprintable()
        said.encode("utf-8")
    with pytest.raises(FileError, match=r"\\x1b\[2J"):
        read(tmp_path / "none\x1b[2J.jpg")
    with pytest.raises(FileError, match=r"cannot be read|there is no file"):
        read(tmp_path / "nul\0.jpg")


def test_a_panorama_is_framed_within_memory() -> None:
    eye = see(np.full((400, 30_000, 3), 90, np.uint8))  # its square would have 900 million pixels
    assert eye.photo.pixels.shape == (512, 512, 3)
    assert eye.inside.any()


def test_what_fuzzing_makes_is_a_photo_or_one_of_our_errors(tmp_path: Path) -> None:
    assert fuzzed(photo_seeds(), photo_trial(tmp_path), count=250, seed=1) == []


def test_the_terminal_hears_nothing_of_libtiff(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It writes to standard error by itself."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(
        buffer, "TIFF", compression="tiff_lzw"
    )
    data = bytearray(buffer.getvalue())
    data[100:1000] = b"\xff" * 900
    (tmp_path / "a.tif").write_bytes(data)
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path / "a.tif")
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"
