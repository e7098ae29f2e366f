"""Photos, molecules, questions and class lists, mutated by chance: each must be read, or refused by an error of ours.

    python -m benchmarks.fuzz_inputs                       # 40,000 files; ten minutes
    python -m benchmarks.fuzz_inputs --count 500 --seed 7
    python -m benchmarks.fuzz_inputs --worst               # what the largest photos and molecules within the limits take

Prints how many were read and refused, and exits with 1 if one of them ended otherwise, took more memory than is promised, or
more time than a person waits. Children are forked: Unix only.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from integrand.errors import IntegrandError
from integrand.words import shown

Seed = tuple[str, bytes]
"""The ending of a file, and what is in it."""

Trial = Callable[[str, bytes], str]
"""Reads a file with an ending and a content; gives ``read`` or ``refused``, and raises what must not be raised."""

COUNT = 40_000
SECONDS = 20
"""The longest time that one file may take."""

GIGABYTES = 1.6
"""The most memory that reading may add to a process: the photo's limit, its pixels, and what libraries take."""

TOGETHER = 200
"""Files that one child reads."""


def photo_seeds() -> list[Seed]:
    """Small photos of every format that is read, and of some that are not."""
    from PIL import Image, ImageCms, PngImagePlugin

    pixels = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)
    image = Image.fromarray(np.kron(pixels, np.ones((2, 2, 1), np.uint8)))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a photo"
    xmp = b'<x:xmpmeta tiff:Orientation="6"/>'
    packed, plain = PngImagePlugin.PngInfo(), PngImagePlugin.PngInfo()
    packed.add_itxt("XML:com.adobe.xmp", xmp.decode(), zip=True)
    packed.add_text("Raw profile type exif", f"\nexif\n  99\n{exif.tobytes().hex()}\n", zip=True)
    plain.add_text("Raw profile type exif", f"\nexif\n  99\n{exif.tobytes().hex()}\n")
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    alpha = image.copy()
    alpha.putalpha(128)
    deep = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100)
    frames = {"save_all": True, "append_images": [image.rotate(90), image.rotate(180)]}
    made = [
        (image, "JPEG", {"exif": exif, "icc_profile": profile}),
        (image, "JPEG", {"progressive": True}),
        (image.convert("CMYK"), "JPEG", {}),
        (image, "PNG", {"exif": exif, "icc_profile": profile}),
        (alpha, "PNG", {}),
        (deep, "PNG", {}),
        (image.quantize(16), "PNG", {"transparency": 3}),
        (image, "PNG", frames),
        (image, "WEBP", {"exif": exif}),
        (alpha, "WEBP", {"lossless": True}),
        (image, "WEBP", frames),
        (image, "GIF", frames),
        (image, "BMP", {}),
        (image, "TIFF", {"exif": exif}),
        (alpha, "TIFF", {"compression": "tiff_lzw"}),
        (deep, "TIFF", {"compression": "tiff_deflate"}),
        (image.convert("1"), "TIFF", {"compression": "group4"}),
        (image, "TIFF", {"compression": "jpeg"}),
        (image, "TIFF", frames),
        (image, "AVIF", {"exif": exif}),
        (image, "PPM", {}),
        (image.resize((16, 16)), "ICO", {}),
        (image, "JPEG2000", {}),
        (image, "JPEG", {"xmp": xmp}),
        (image, "PNG", {"pnginfo": packed}),
        (image, "PNG", {"pnginfo": plain}),
        (image, "WEBP", {"xmp": xmp}),
        (image, "TIFF", {"tiffinfo": {700: xmp}}),
    ]
    found = []
    for one, kind, options in made:
        buffer = io.BytesIO()
        one.save(buffer, kind, **options)
        found.append((".jpg", buffer.getvalue()))
    jpeg, gif = found[0][1], found[11][1]
    runs = [jpeg[:2] + b"\xff" * 60_000 + jpeg[2:], jpeg[:2] + b"\xff" * 200_000 + jpeg[2:]]
    runs += [jpeg[:2] + (b"\xff" * 9000 + b"\x01") * 9 + jpeg[2:], jpeg[:2] + b"\xff\xfe\0\2" * 9000 + jpeg[2:]]
    runs.append(jpeg[:-40] + b"\xff" * 300_000 + jpeg[-40:])
    start = gif.index(b"\x21\xf9")
    runs.append(gif[:start] + (b"\x21\xfe" + b"\1x" * 9000 + b"\0") * 9 + gif[start:])
    runs.append(b"P6" + b"# 1\n" * 9000 + b"2 2 255\n" + bytes(12))
    return found + [(".jpg", one) for one in runs]


def molecule_seeds() -> list[Seed]:
    """Small files of molecules of every kind."""
    from rdkit import Chem

    smiles = ["CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)C(=O)O", "F/C=C/Cl", "[Na+].[Cl-]", "c1ccc2[nH]ccc2c1", "[13CH4]", "C1CC1.N"]
    text = "".join(f"{one} molecule {i}\n" for i, one in enumerate(smiles)).encode()
    table = ("id,smiles,note\n" + "".join(f'{i},{one},"a, b"\n' for i, one in enumerate(smiles))).encode()
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(one), forceV3000=i % 2 == 1) for i, one in enumerate(smiles)]
    records = "".join(f"{block}> <ID>\nm{i}\n\n$$$$\n" for i, block in enumerate(blocks)).encode()
    found = [(".smi", text), (".csv", table), (".tsv", table.replace(b",", b"\t")), (".sdf", records)]
    found += [(".smi", text.decode().encode("utf-16")), (".csv", b"\xef\xbb\xbf" + table)]
    return found + [(f"{ending}.gz", gzip.compress(data, mtime=0)) for ending, data in found]


def question_seeds() -> list[Seed]:
    """Small files of questions of every kind."""
    plain = b"how many people live there?\nwho won in 1994?\nis it \xc3\xa9t\xc3\xa9 yet?\n"
    trec = b"NUM:count How many ?\nHUM:ind Who won ?\n"
    table = b"id\tutterance\tcontext\ttargetValue\nn1\twho?\tc\tBrazil|43\nn2\twhen?\tc\tJune 18, 2004\n"
    table += b"n3\thow many?\tc\t-$4,541.5 million\n"
    return [(".txt", plain), (".label", trec), (".tsv", table)]


def class_seeds() -> list[Seed]:
    """Small lists of classes."""
    return [
        (".txt", b"tench, Tinca tinca\ngoldfish\ngreat white shark\n"),
        (".json", b'{"0": ["n01440764", "tench"], "1": "fish"}'),
    ]


def photo_trial(folder: Path) -> Trial:
    """Reads a photo."""
    from integrand.apps.photos import read

    def trial(ending: str, data: bytes) -> str:
        (folder / f"photo{ending}").write_bytes(data)
        pixels = read(folder / f"photo{ending}").pixels
        assert pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8  # noqa: PT018
        return "read"

    return trial


def molecule_trial(folder: Path) -> Trial:
    """Reads a file of molecules, and makes graphs of the first of them."""
    from integrand.apps.molecules.molecule_files import records
    from integrand.apps.molecules.molgraph import graph, read

    def trial(ending: str, data: bytes) -> str:
        (folder / f"many{ending}").write_bytes(data)
        said = "refused"
        for record in islice(records(folder / f"many{ending}"), 20):
            assert shown(record.title) == record.title
            try:
                graph(read(record.molecule())[1])
                said = "read"
            except IntegrandError as error:
                if len(str(error)) > 2000:
                    raise ValueError("an error of many pages") from error
        return said

    return trial


def question_trial(folder: Path) -> Trial:
    """Reads a file of questions."""
    from integrand.apps.questions.question_files import read

    def trial(ending: str, data: bytes) -> str:
        (folder / f"asked{ending}").write_bytes(data)
        assert read(folder / f"asked{ending}").questions
        return "read"

    return trial


def class_trial(folder: Path) -> Trial:
    """Reads a list of classes."""
    from integrand.apps.images.class_names import read_classes

    def trial(ending: str, data: bytes) -> str:
        (folder / f"classes{ending}").write_bytes(data)
        read_classes(folder / f"classes{ending}")
        return "read"

    return trial


KINDS: dict[str, tuple[Callable[[], list[Seed]], Callable[[Path], Trial], float]] = {
    "photos": (photo_seeds, photo_trial, 0.6),
    "molecules": (molecule_seeds, molecule_trial, 0.25),
    "questions": (question_seeds, question_trial, 0.1),
    "classes": (class_seeds, class_trial, 0.05),
}
"""For each kind of file its seeds, what reads it, and its share of all files."""


def mutated(seeds: Sequence[Seed], random: np.random.Generator) -> Seed:
    """One of the seeds with a few changes: bytes, numbers, lengths, parts left out, doubled or taken from another seed."""
    ending, data = seeds[random.integers(len(seeds))]
    packed = ending.endswith(".gz") and random.integers(4) > 0
    out = bytearray(gzip.decompress(data) if packed else data)
    for _ in range(random.integers(1, 6)):
        _change(out, seeds[random.integers(len(seeds))][1], random)
    if out.startswith(b"\x89PNG") and random.integers(4) > 0:
        _mend(out)
    return ending, gzip.compress(bytes(out), 1, mtime=0) if packed else bytes(out)


def _mend(out: bytearray) -> None:
    """Give the parts of a PNG checksums that fit, so that more than checksums is tried."""
    at = 8
    while at + 12 <= len(out):
        end = at + 8 + int.from_bytes(out[at : at + 4], "big")
        if end + 4 > len(out):
            return
        out[end : end + 4] = zlib.crc32(out[at + 4 : end]).to_bytes(4, "big")
        at = end + 4


def _change(out: bytearray, other: bytes, random: np.random.Generator) -> None:
    at = int(random.integers(len(out) + 1)) if random.integers(2) else int(random.integers(min(len(out), 128) + 1))
    length = int(2 ** random.uniform(0, 8))
    extreme = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 10_000, 200_000]
    match int(random.integers(8)):
        case 0:
            out[at : at + 1] = bytes([random.integers(256)])
        case 1:
            value, size = extreme[random.integers(len(extreme))], int(random.choice([1, 2, 4, 8]))
            out[at : at + size] = (value % 256**size).to_bytes(size, "little" if random.integers(2) else "big")
        case 2:
            del out[at : at + length]
        case 3:
            out[at:at] = out[at : at + length] * int(random.integers(1, 50))
        case 4:
            start = int(random.integers(len(other) + 1))
            out[at : at + length] = other[start : start + length]
        case 5:
            del out[at:]
        case 6:
            out[at:at] = bytes(random.choice(list(b'\0\n\r\t ,;"<>()[]1Cc\xff\x1b'), length).astype(np.uint8))
        case 7:
            out[at:at] = b"9" * int(random.integers(1, 12))


def attempt(trial: Trial, one: Seed) -> tuple[str, str]:
    """How reading a file ended, and what is wrong with that, if anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = trial(*one)
    except IntegrandError as error:
        text = str(error)
        wrong = "not one line" if "\n" in text else "obeyed by terminals" if shown(text) != text else ""
        wrong = wrong or ("out of memory" if "does not fit into memory" in text else "")
        return "refused", f"{wrong}: {text!r}" if wrong else ""
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return said, ""


def short_run(seeds: Sequence[Seed], trial: Trial, *, count: int, seed: int) -> list[str]:
    """Read so many mutated files in this process; gives what went wrong, each with the number of its file."""
    found = []
    for number in range(count):
        _, wrong = attempt(trial, mutated(seeds, np.random.default_rng([seed, number])))
        found += [f"file {number} of seed {seed}: {wrong}"] if wrong else []
    return found


def _child(kind: str, numbers: range, seed: int, pipe: int, folder: Path) -> None:
    """In a child: read files one by one, and say of each how it ended."""
    import resource
    import signal

    make_seeds, make_trial, _ = KINDS[kind]
    seeds, trial = make_seeds(), make_trial(folder)
    attempt(trial, seeds[0])  # imports
    base = _peak()
    limit = base + int(4e9)
    resource.setrlimit(resource.RLIMIT_AS, (max(limit, _address_space() + int(4e9)),) * 2)
    for number in numbers:
        signal.alarm(SECONDS)
        os.write(pipe, f"{number} ".encode())
        said, wrong = attempt(trial, mutated(seeds, np.random.default_rng([seed, number])))
        signal.alarm(0)
        if not wrong and _peak() - base > GIGABYTES * 1e9:
            wrong = f"took {(_peak() - base) / 1e9:.1f} GB"
        os.write(pipe, f"{said} {wrong.encode('unicode_escape').decode()[:300]}\n".encode())
        if "GB" in wrong:
            return


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def run(kind: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Read so many mutated files of a kind in forked children; gives how they ended, and what went wrong."""
    ended: Counter[str] = Counter()
    wrong: list[str] = []
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        while number < count:
            numbers = range(number, min(number + TOGETHER, count))
            entry, leave = os.pipe()
            child = os.fork()
            if not child:
                os.close(entry)
                _child(kind, numbers, seed, leave, Path(folder))
                os._exit(0)
            os.close(leave)
            with os.fdopen(entry, "r") as pipe:
                lines = pipe.read().split("\n")
            _, status = os.waitpid(child, 0)
            for line in filter(None, lines):
                at, _, rest = line.partition(" ")
                said, _, what = rest.partition(" ")
                number = int(at) + 1
                if not said:
                    said, what = "killed", f"by signal {os.WTERMSIG(status)} (14: more than {SECONDS} s)"
                ended[said] += 1
                wrong += [f"{kind}: file {at} of seed {seed}: {what}"] if what else []
    return ended, wrong


def worst() -> int:
    """Measure the largest photos of each kind that are accepted, and the largest molecules; gives the exit status."""
    from PIL import Image

    large, wide = (16_000, 12_500), {"tiffinfo": {278: 64}, "compression": "tiff_deflate"}
    kinds: list[tuple[str, str, tuple[int, int], dict[str, object]]] = [
        ("RGBA.png", "RGBA", large, {"compress_level": 1}),
        ("16-bit.png", "I;16", large, {"compress_level": 1}),
        ("plain.jpg", "RGB", large, {}),
        ("passes.jpg", "RGB", large, {"progressive": True, "subsampling": 0}),
        ("RGBA.tif", "RGBA", (14_000, 12_700), wide),
        ("floats.tif", "F", (14_000, 12_700), wide),
        ("one-strip.tif", "RGBA", (13_000, 13_000), {"tiffinfo": {278: 13_000}, "compression": "tiff_deflate"}),
        ("uncompressed.ppm", "RGB", (13_300, 13_300), {}),
        ("RGBA.webp", "RGBA", (9500, 9500), {}),
        ("RGBA.avif", "RGBA", (7700, 7700), {"speed": 10}),
    ]
    with tempfile.TemporaryDirectory() as folder:  # what is imported counts for nobody
        photo_trial(Path(folder))(*photo_seeds()[0])
        molecule_trial(Path(folder))(*molecule_seeds()[0])
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, mode, size, options in kinds:
            path = Path(folder) / name
            _in_child(lambda path=path, mode=mode, size=size, options=options: Image.new(mode, size).save(path, **options))
            gigabytes, seconds = _in_child(lambda path=path: photo_of(path))
            over += gigabytes > GIGABYTES
            print(f"{name:17} {path.stat().st_size / 1e6:6.1f} MB: {gigabytes:.2f} GB, {seconds:.1f} s", flush=True)
            path.unlink()
    for name, smiles in (("a chain", "C" * 500), ("a peptide", "NC(C)C(=O)" * 99 + "O")):
        _, seconds = _in_child(lambda smiles=smiles: explained(smiles))
        print(f"{name} of {'500' if name == 'a chain' else '496'} atoms: {seconds:.1f} s", flush=True)
    return 1 if over else 0


def photo_of(path: Path) -> None:
    """Read a photo."""
    from integrand.apps.photos import read

    read(path)


def explained(smiles: str) -> None:
    """Explain a molecule on one core."""
    import torch

    from integrand.apps import molecules

    torch.set_num_threads(1)
    molecules.load("weave-w2n2", "cpu").explain([smiles])


def _in_child(work: Callable[[], object]) -> tuple[float, float]:
    """Gigabytes by which a forked child outgrows this process while something runs in it, and how long that takes."""
    entry, leave = os.pipe()
    child = os.fork()
    if not child:
        try:
            before, start = _peak(), time.perf_counter()
            work()
            os.write(leave, f"{(_peak() - before) / 1e9} {time.perf_counter() - start}".encode())
        except Exception as error:
            os.write(leave, f"nan nan {error}".encode())
        finally:
            os._exit(0)
    os.close(leave)
    with os.fdopen(entry, "r") as pipe:
        said = pipe.read().split()
    os.waitpid(child, 0)
    if said[2:]:
        raise RuntimeError(" ".join(said[2:]))
    return float(said[0]), float(said[1])


def main(count: int = COUNT, seed: int = 0) -> int:
    """Read all kinds of files, print how they ended, and give the exit status."""
    failures = []
    for kind, (_, _, share) in KINDS.items():
        start = time.perf_counter()
        ended, wrong = run(kind, round(share * count), seed)
        failures += wrong
        counts = ", ".join(f"{value:,} {name}" for name, value in sorted(ended.items()))
        print(f"{kind}: {counts}; {len(wrong)} wrong; {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(failures[:50]))
    return 1 if failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help="how many files")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes")
    parser.add_argument("--worst", action="store_true", help="measure the largest files that are accepted instead")
    asked = parser.parse_args()
    sys.exit(worst() if asked.worst else main(asked.count, asked.seed))
