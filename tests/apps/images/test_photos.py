"""Photos of every kind: what comes out is checked by value, what does not by the message."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from integrand.apps.images import photo_files as module
from integrand.apps.photos import photos, read
from integrand.errors import FileError, MissingExtraError

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128)


def corners(mode="RGB", size=(40, 20)):
    """Red in the top left, green in the top right, blue in the bottom left, grey in the bottom right; wider than high."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    half = (size[1] // 2, size[0] // 2)
    pixels[: half[0], : half[1]], pixels[: half[0], half[1] :] = RED, GREEN
    pixels[half[0] :, : half[1]], pixels[half[0] :, half[1] :] = BLUE, GREY
    return Image.fromarray(pixels).convert(mode)


def check_corners(pixels, within=2):
    height, width = pixels.shape[:2]
    assert pixels.dtype == np.uint8
    assert pixels.shape == (height, width, 3)
    assert width == 2 * height
    found = [pixels[height // 4, width // 4], pixels[height // 4, -width // 4]]
    found += [pixels[-height // 4, width // 4], pixels[-height // 4, -width // 4]]
    for one, wanted in zip(found, (RED, GREEN, BLUE, GREY), strict=True):
        assert np.abs(one.astype(int) - wanted).max() <= within, (one, wanted)


@pytest.mark.parametrize(
    ("name", "options", "within"),
    [
        ("a.png", {}, 0),
        ("a.bmp", {}, 0),
        ("a.tiff", {}, 0),
        ("a.tiff", {"compression": "tiff_lzw"}, 0),
        ("a.jpg", {"quality": 95}, 4),
        ("a.jpg", {"quality": 95, "progressive": True}, 4),
        ("a.webp", {"lossless": True}, 0),
        ("a.ppm", {}, 0),
        ("A PHOTO ü.PNG", {}, 0),
    ],
)
def test_plain_files(tmp_path, name, options, within):
    corners().save(tmp_path / name, **options)
    photo = read(tmp_path / name)
    assert photo.name == name
    assert photo.notes == ()
    check_corners(photo.pixels, within)


TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""For each orientation of EXIF, how the sensor's picture lies: what EXIF asks for is the inverse."""


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", TURNED)
def test_rotated_photos_are_turned_upright(tmp_path, orientation, ending):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{ending}"
    options = {"lossless": True} if ending == "webp" else {"quality": 95} if ending == "jpg" else {}
    corners().transpose(TURNED[orientation]).save(path, exif=exif, **options)
    photo = read(path)
    check_corners(photo.pixels, 4)
    assert photo.notes == ("turned upright, as its file says",)


def test_an_orientation_that_does_not_exist_is_ignored(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 77
    corners().save(tmp_path / "a.png", exif=exif)
    assert read(tmp_path / "a.png").notes == ()
    corners().save(tmp_path / "b.jpg", exif=b"Exif\x00\x00nonsense", quality=95)
    check_corners(read(tmp_path / "b.jpg").pixels, 4)


def test_cmyk_is_the_same_in_tiff_and_in_adobes_jpeg(tmp_path):
    ink = corners("CMYK")
    assert ink.getpixel((0, 0)) == (0, 255, 255, 0)  # red is no cyan, all magenta, all yellow
    for name, options in (("a.tiff", {}), ("a.jpg", {"quality": 95})):
        ink.save(tmp_path / name, **options)
        photo = read(tmp_path / name)
        check_corners(photo.pixels, 5)
        assert photo.notes == ("converted from CMYK to RGB",)


def test_cmyk_jpeg_that_is_not_adobes_is_not_inverted(tmp_path):
    # Pillow writes ink inverted, with Adobe's marker; the other kind is the same without marker and without inversion
    plain = corners("CMYK").point(lambda value: 255 - value)
    buffer = io.BytesIO()
    plain.save(buffer, "JPEG", quality=95)
    data = buffer.getvalue()
    at = data.index(b"\xff\xee")
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    assert data[at + 4 : at + 9] == b"Adobe"
    (tmp_path / "a.jpg").write_bytes(data[:at] + data[at + 2 + length :])
    check_corners(read(tmp_path / "a.jpg").pixels, 5)


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_sixteen_bits(tmp_path, name):
    values = np.array([[0, 32768, 65535, 257 * 100]], np.uint16)
    Image.fromarray(values).save(tmp_path / name)
    photo = read(tmp_path / name)
    assert photo.pixels.tolist() == [[[0] * 3, [128] * 3, [255] * 3, [100] * 3]]
    assert photo.notes == ("converted from 16-bit grey to 8-bit RGB",)
    Image.fromarray(np.array([[0, 4000]], np.uint16)).save(tmp_path / name)
    assert "brightest pixel is 4000 of 65535" in read(tmp_path / name).notes[1]


def test_32_bits_and_floating_point(tmp_path):
    path = tmp_path / "a.tiff"
    for values, wanted in (
        (np.array([[0, 32768, 65535]], np.int32), [0, 128, 255]),
        (np.array([[0, 128, 255]], np.int32), [0, 128, 255]),
        (np.array([[-1000, 0, 1000]], np.int32), [0, 128, 255]),
        (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
        (np.array([[0, 128, 255]], np.float32), [0, 128, 255]),
        (np.array([[-1, 0, 1]], np.float32), [0, 128, 255]),
        (np.array([[3, 3, 3]], np.float32), [3, 3, 3]),
    ):
        Image.fromarray(values).save(path)
        photo = read(path)
        assert photo.pixels[0, :, 0].tolist() == wanted, values
        assert ("stretched" in " ".join(photo.notes)) == bool((values < 0).any())
    Image.fromarray(np.array([[0, np.nan]], np.float32)).save(path)
    with pytest.raises(FileError, match="NaN"):
        read(path)


def test_sixteen_bits_in_colour(tmp_path):
    """A PNG by hand, since Pillow writes none: one row of two pixels with 16 bits per colour."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = np.array([[32768, 0, 65535], [257, 25700, 65535]], ">u2")
    header, row = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0), zlib.compress(b"\0" + pixels.tobytes())
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", row) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + parts)
    found = read(tmp_path / "a.png").pixels.astype(int)
    assert np.abs(found - [[[128, 0, 255], [1, 100, 255]]]).max() <= 1


def test_palettes_grey_and_black_and_white(tmp_path):
    corners().convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.png")
    photo = read(tmp_path / "a.png")
    check_corners(photo.pixels, 3)
    assert photo.notes == ("converted from a palette to RGB",)
    for mode, note in (("L", "grey"), ("1", "black and white")):
        Image.new(mode, (4, 4), 255).save(tmp_path / "b.png")
        photo = read(tmp_path / "b.png")
        assert (photo.pixels == 255).all()
        assert photo.notes == (f"converted from {note} to RGB",)


def test_what_is_transparent_lies_over_white(tmp_path):
    image = Image.new("RGBA", (3, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (255, 0, 0, 255))
    image.putpixel((2, 0), (0, 0, 0, 128))
    for name in ("a.png", "a.webp", "a.tiff"):
        image.save(tmp_path / name, **({"lossless": True, "exact": True} if name == "a.webp" else {}))
        photo = read(tmp_path / name)
        assert photo.pixels[0, :2].tolist() == [[255] * 3, [255, 0, 0]]
        assert np.abs(photo.pixels[0, 2].astype(int) - 127).max() <= 1  # half black over white
        assert photo.notes == ("what is transparent was laid over white",)
    Image.new("LA", (1, 1), (7, 0)).save(tmp_path / "b.png")
    assert read(tmp_path / "b.png").pixels.tolist() == [[[255] * 3]]
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "c.png", transparency=0)
    assert read(tmp_path / "c.png").pixels.tolist() == [[[255] * 3, [10, 20, 30]]]
    Image.new("RGBA", (2, 2), (1, 2, 3, 255)).save(tmp_path / "d.png")
    assert read(tmp_path / "d.png").notes == ()


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.tiff"])
def test_of_several_pictures_the_first(tmp_path, name):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, GREEN, BLUE)]
    options = {"lossless": True} if name == "a.webp" else {}
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
    photo = read(tmp_path / name)
    assert (photo.pixels == RED).all()
    assert photo.notes[0] == f"the first of {'several' if name == 'a.tiff' else 3} pictures in the file"


def test_colour_profiles(tmp_path):
    lightness, neutral = Image.new("L", (2, 1), 255), Image.new("L", (2, 1), 128)
    lightness.putpixel((1, 0), 0)
    Image.merge("LAB", [lightness, neutral, neutral]).save(tmp_path / "lab.tiff")
    found = read(tmp_path / "lab.tiff").pixels
    assert found[0, 0].min() >= 250
    assert found[0, 1].max() <= 5

    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    corners().save(tmp_path / "srgb.png", icc_profile=srgb)
    photo = read(tmp_path / "srgb.png")
    check_corners(photo.pixels, 0)
    assert photo.notes == ()

    corners().save(tmp_path / "broken.png", icc_profile=srgb[:200])
    photo = read(tmp_path / "broken.png")
    check_corners(photo.pixels, 0)
    assert photo.notes == ("its colour profile could not be used; colours are taken as sRGB",)

    corners("L").save(tmp_path / "other.png", icc_profile=srgb)
    assert "its colour profile is for RGB, and was not used" in read(tmp_path / "other.png").notes


def swapped_profile():
    """sRGB with red and green changed over: the colorants of the profile are, tag by tag."""
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return (
        data.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ").replace(b"s\0R\0G\0B", b"o\0d\0d\0!")
    )


def test_a_profile_is_used(tmp_path):
    profile = swapped_profile()
    name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    Image.new("RGB", (2, 2), RED).save(tmp_path / "a.png", icc_profile=profile)
    photo = read(tmp_path / "a.png")
    if "srgb" in name.lower():
        pytest.fail(f"the profile is still called {name}")
    assert np.abs(photo.pixels.astype(int) - GREEN).max() <= 3
    assert photo.notes[0].startswith("converted from the colour profile")


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_large_photos_are_made_smaller(tmp_path, monkeypatch, name):
    monkeypatch.setattr(module, "ENOUGH", 5_000)
    corners(size=(400, 200)).save(tmp_path / name)
    photo = read(tmp_path / name)
    assert photo.pixels.shape[0] * photo.pixels.shape[1] <= 5_000
    check_corners(photo.pixels, 12)
    height, width = photo.pixels.shape[:2]
    assert photo.notes == (f"made smaller from 400x200 to {width}x{height}",)


def test_huge_photos_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    limit = Image.MAX_IMAGE_PIXELS
    header = b"P6 20000 20000 255\n"  # 400 million pixels in 19 bytes
    (tmp_path / "bomb.ppm").write_bytes(header)
    with pytest.raises(FileError, match=r"400 million; up to 200 million are read\. Make it smaller"):
        read(tmp_path / "bomb.ppm")
    assert limit == Image.MAX_IMAGE_PIXELS
    corners().save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # Pillow's own limit does not stop what ours lets through
    check_corners(read(tmp_path / "a.png").pixels)
    assert Image.MAX_IMAGE_PIXELS == 10


def bad_files(folder):
    """Files that are not photos, with what their message must say."""
    buffer = io.BytesIO()
    corners(size=(200, 100)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    buffer = io.BytesIO()
    corners(size=(200, 100)).save(buffer, "PNG")
    png = buffer.getvalue()
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 64
    contents = {
        "empty.jpg": (b"", "is empty"),
        "text.jpg": (b"this is no photo", "not a picture that is read.*JPEG, PNG, WebP"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "is cut short"),
        "cut.png": (png[: len(png) // 2], "is cut short"),
        "head.jpg": (jpeg[:3], "damaged or cut short"),
        "broken.png": (png[:60] + b"\xff" * 40 + png[100:], "Get it again|download it again"),
        "drawing.svg": (b'<?xml version="1.0"?>\n<svg xmlns="x"></svg>', "is an SVG drawing.*convert"),
        "paper.pdf": (b"%PDF-1.7 ...", "is a PDF document.*convert"),
        "paper.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "is a PostScript document.*convert"),
        "camera.dng": (b"II*\0" + b"\0" * 100, "is a camera's raw file.*convert"),
        "phone.heic": (heic, "pip install pillow-heif"),
        "none.ppm": (b"P6 0 5 255\n", "has no pixels|not a picture|cannot be read"),
    }
    for name, (data, words) in contents.items():
        (folder / name).write_bytes(data)
        yield name, words


def test_what_is_not_a_photo_says_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for name, words in bad_files(tmp_path):
        with pytest.raises(FileError) as caught:
            pytest.fail(f"{name} was read: {read(tmp_path / name)}")
        assert re.search(words, str(caught.value)), caught.value
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match="there is no file"):
        read(tmp_path / "missing.jpg")
    with pytest.raises(FileError, match="is a folder"):
        read(tmp_path)


def test_every_way_to_cut_a_photo_short_is_an_error_or_a_photo(tmp_path):
    """Wherever a file ends, or a byte is wrong, there is no other error than ours."""
    path = tmp_path / "a"
    random = np.random.default_rng(0)
    for kind, options in (
        ("JPEG", {}),
        ("PNG", {}),
        ("GIF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("WEBP", {}),
        ("BMP", {}),
    ):
        buffer = io.BytesIO()
        corners(size=(64, 32)).save(buffer, kind, **options)
        data = buffer.getvalue()
        for trial in range(25):
            broken = bytearray(data[: random.integers(1, len(data))] if trial % 2 else data)
            for _ in range(trial % 5):
                broken[random.integers(0, len(broken))] = random.integers(0, 256)
            path.write_bytes(bytes(broken))
            with contextlib.suppress(FileError):
                assert read(path).pixels.shape[2] == 3


def test_a_heic_plugin_is_used_where_there_is_one(tmp_path, monkeypatch):
    class Plugin:
        registered = 0

        @classmethod
        def register_heif_opener(cls):
            cls.registered += 1

    monkeypatch.setitem(sys.modules, "pillow_heif", Plugin)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 64)
    with pytest.raises(FileError, match="not a picture"):  # since this one opens nothing
        read(tmp_path / "a.heic")
    assert Plugin.registered == 1


def test_without_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"integrand\[images\]"):
        read(tmp_path / "a.png")


def test_folders_are_opened_in_order(tmp_path):
    names = [
        "b.JPG",
        "a.png",
        "notes.txt",
        ".hidden.jpg",
        "._a.png",
        "sub/c.webp",
        "sub/.git/d.jpg",
        "sub/deep/e.tif",
        "z.heic",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    found = [str(path.relative_to(tmp_path)) for path in photos([tmp_path])]
    assert found == ["a.png", "b.JPG", "z.heic", "sub/c.webp", "sub/deep/e.tif"]
    named = photos([tmp_path / "notes.txt", tmp_path / "b.JPG", tmp_path, tmp_path / "missing.jpg"])
    assert [path.name for path in named] == ["notes.txt", "b.JPG", "a.png", "z.heic", "c.webp", "e.tif", "missing.jpg"]
    (tmp_path / "bare").mkdir()
    with pytest.raises(FileError, match="no photo in the folder"):
        photos([tmp_path / "bare"])
