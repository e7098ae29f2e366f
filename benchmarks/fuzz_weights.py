"""Feeds damaged and hostile files of weights, tensors and class names to what reads them.

python -m benchmarks.fuzz_weights [--cases 4000] [--seed 0]

Each case runs in a process of its own with limits on memory and time. Counted are files that were read, clean errors (those of
``integrand.errors``), unclean ones, files that took more memory or time than they may, and files that ran code: some of them
hold pickles that create a folder. Exits with 1 unless the last three counts are 0.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import nn

from integrand.apps.images import model as networks
from integrand.apps.images.class_names import read_classes
from integrand.apps.molecules.weave import Weave, read_weave, write_weave
from integrand.cli.axioms_command import load_tensors
from integrand.errors import IntegrandError
from integrand.loading import read_state
from integrand.tensor_files import ALWAYS_UNFOLDS

MEMORY = 2 * ALWAYS_UNFOLDS + (256 << 20)
"""How much memory a case may take beyond what Python and torch have: the contents, a copy of them, and the reader itself."""

BOMB = MEMORY
"""The size of zeros that compress to a thousandth."""

SECONDS = 20
"""How long a case may compute; honest files of the size of the cases take some milliseconds."""

PIECES = (b"0", b"9" * 30, b"-", b"(" * 500, b"[" * 500, b"\x80\x02", b"cos\nsystem\n", b"R", b"b", b"s", b"\x86", b"Q")
"""What is put into files: digits, brackets, steps of pickles."""

TWOS = b"\x80\x02)q\0" + b"h\0h\0\x86q\0" * 64
LISTS = b"\x80\x02]q\0" + b"]h\0ah\0aq\0" * 64
"""Starts of pickles: a tuple, or a list, of two that are the same, and so on, 64 times: 2**64 to whoever goes through it."""

READ, CLEAN, UNCLEAN, OVER = range(4)
WORDS = {READ: "read", CLEAN: "clean errors", UNCLEAN: "unclean errors", OVER: "over the limits"}


class Bait:
    """Creates a folder when it is unpickled."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.where),)


class Dynamic(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def seeds(folder: Path, bait: Path, *, quick: bool = False) -> dict[str, bytes]:
    """Honest and hostile files by name; the ending says how they are read. Programs and bombs take long: not if ``quick``."""
    torch.manual_seed(0)
    state = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)).state_dict()
    arrays = {name: value.numpy() for name, value in state.items()}
    found = {f"honest{ending}": saved(state, ending) for ending in (".pth", ".safetensors")}
    found["older.pth"] = saved(state, ".pth", zipped=False)
    for name, save in (("stored.npz", np.savez), ("packed.npz", np.savez_compressed)):
        file = io.BytesIO()
        save(file, **arrays)
        found[name] = file.getvalue()
    file = io.BytesIO()
    np.save(file, arrays["0.weight"])
    found["honest.npy"] = file.getvalue()
    found["names.txt"] = "\n".join(["# names", "n01440764 tench, Tinca tinca", "Käfer", "a b"]).encode()
    write_weave(Weave("simple", 1, hidden=4, depth=4, dense=(4,)), folder / "weave.safetensors")
    found["weave.safetensors"] = (folder / "weave.safetensors").read_bytes()
    for name, later in (("honest.caffemodel", False), ("later.caffemodel", True)):
        found[name] = caffe_file({f"{layer}/{part}": array for layer, part, array in caffe_layers(arrays)}, later=later)
    if quick:
        return found | dict(hostile(found, bait))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(Dynamic(), torch.rand(1, 3, 8, 8)).save(folder / "script.pt2")
        torch.export.save(torch.export.export(Dynamic(), (torch.rand(1, 3, 8, 8),)), folder / "program.pt2")
    for name in ("script.pt2", "program.pt2"):
        found[name] = (folder / name).read_bytes()
    program = {".pt": pickled(bait), "pickle": pickled(bait), "weights_config": pickled(bait)}
    found["program_payload.pt2"] = rezipped(found["program.pt2"], program)
    found["bomb.npz"] = zipped({"a.npy": npy((BOMB // 4,)) + bytes(BOMB)})
    found["bomb.pth"] = rezipped(found["honest.pth"], {"data/0": bytes(BOMB)})
    return found | dict(hostile(found, bait))


def pickled(bait: Path) -> bytes:
    return pickle.dumps({"a": Bait(bait)}, protocol=2)


def saved(state: Any, ending: str, *, zipped: bool = True) -> bytes:
    """A state dict as the bytes of a file."""
    if ending == ".safetensors":
        return bytes(safetensors_bytes(state))
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def hostile(honest: dict[str, bytes], bait: Path) -> Iterator[tuple[str, bytes]]:
    """Files that run code if they are loaded without care, or claim more than they have."""
    payload = pickled(bait)
    yield "payload.pth", payload
    yield "zipped.pth", rezipped(honest["honest.pth"], {"data.pkl": payload})
    yield "behind.pth", honest["older.pth"][:0x2A] + payload + honest["older.pth"][0x2A:]
    objects = io.BytesIO()
    np.save(objects, np.array([Bait(bait)], dtype=object), allow_pickle=True)
    yield "objects.npy", objects.getvalue()
    yield "objects.npz", zipped({"a.npy": objects.getvalue()})
    yield "nested.pth", rezipped(honest["honest.pth"], {"data.pkl": hash_bomb()})
    yield "set.pth", rezipped(honest["honest.pth"], {"data.pkl": TWOS + b"c__builtin__\nset\n]K\0h\0\x86a\x85R."})
    yield "counter.pth", rezipped(honest["honest.pth"], {"data.pkl": TWOS + b"ccollections\nCounter\n(]K\0h\0\x86atR."})
    puny = b"\x80\x02c_codecs\nencode\nX" + struct.pack("<I", 3 << 20) + "é".encode() * (3 << 19) + b"X\x08\0\0\0punycode\x86R."
    yield "codec.pth", rezipped(honest["honest.pth"], {"data.pkl": puny})
    older = honest["older.pth"]
    yield "keys.pth", older[: older.rindex(b"\x80\x02")] + LISTS + b"]h\0a."
    yield "wide.pth", rezipped(honest["honest.pth"], {"data.pkl": tensor_pickle(108, (10**6, 10**6), (0, 0))})
    yield "outside.pth", rezipped(honest["honest.pth"], {"data.pkl": tensor_pickle(108, (10**4,), (1,))})
    yield (
        "allocates.pth",
        rezipped(honest["honest.pth"], {"data.pkl": b"\x80\x02c__builtin__\nbytearray\n\x8a\x05\0\0\0\0\x10\x85R."}),
    )
    for number, shape in enumerate([(10**12,), (1 << 62, 4), (-1,), (0, 10**30), (1,) * 70, (10**30,)]):
        yield f"claims{number}.npy", npy(shape)
    yield "deep.npy", npy_header("(" * 5000)
    for number, header in enumerate(["[" * 100_000, '{"a":' * 100_000, json.dumps(tensor_header((1 << 62, 4)))]):
        yield f"header{number}.safetensors", struct.pack("<Q", len(header)) + header.encode()
    settings = json.dumps({"features": "simple", "modules": 10**9, "hidden": 10**9, "depth": 4, "dense": [4], "tasks": 1})
    for number, text in enumerate(["[" * 100_000, settings, settings.replace(str(10**9), "64")]):
        yield f"weave{number}.safetensors", bytes(safetensors_bytes({"a": torch.zeros(1)}, {"settings": text}))
    for number, claim in enumerate(hostile_blobs()):
        yield f"blob{number}.caffemodel", caffe_field(100, caffe_field(1, b"a") + caffe_field(7, claim))
    blob = caffe_field(7, caffe_blob(np.ones(2, "f4"), later=True))
    yield "twice.caffemodel", 2 * caffe_field(100, caffe_field(1, b"a") + blob)
    yield "nameless.caffemodel", caffe_field(100, blob)
    yield "name.caffemodel", caffe_field(100, caffe_field(1, b"a" * 10**6) + blob)
    yield "group.caffemodel", b"\x0b" * 10_000
    yield "endless.caffemodel", b"\xff" * 10_000
    yield "long.caffemodel", b"\x12" + varint(1 << 62)
    yield "fields.caffemodel", b"\x08\0" * (1 << 20)
    yield "binary.txt", bytes(range(256))
    yield "large.txt", b"a\n" * (5 << 20)


def hostile_blobs() -> Iterator[bytes]:
    """Blobs of caffe that claim what they do not have."""
    numbers = caffe_field(5, bytes(8))
    for shape in ((10**12,), (1 << 62, 4), ((1 << 64) - 1,), (0, 1 << 62), (1,) * 70 + (2,), (3,), (0,)):
        yield numbers + caffe_field(7, caffe_field(1, b"".join(map(varint, shape))))
    yield caffe_field(7, caffe_field(1, b"".join(map(varint, (0, 1 << 62)))))
    yield caffe_field(7, caffe_field(1, b"\1" * 10**5)) + numbers
    yield numbers + caffe_field(8, bytes(8)) + caffe_field(7, caffe_field(1, b"\x03"))
    yield b"".join(caffe_field(i, 1 << 31) for i in range(1, 5)) + numbers
    yield (varint(5 << 3 | 5) + bytes(4)) * 2 + caffe_field(7, caffe_field(1, b"\x02"))


def caffe_layers(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Weights and biases of a state dict, as layer, part and array."""
    for name, array in arrays.items():
        layer, _, part = name.rpartition(".")
        if part in ("weight", "bias"):
            yield layer, part, array


def caffe_file(arrays: dict[str, np.ndarray], *, later: bool) -> bytes:
    """A .caffemodel with arrays named ``layer/weight`` and ``layer/bias``: as caffe wrote it in 2014, or later."""
    layers: dict[str, list[np.ndarray]] = {}
    for name, array in arrays.items():
        layers.setdefault(name.rpartition("/")[0], []).append(array)
    found = caffe_field(1, b"a network")
    for name, blobs in layers.items():
        coded = b"".join(caffe_field(7 if later else 6, caffe_blob(blob, later=later)) for blob in blobs)
        kind = caffe_field(2, b"Convolution") if later else caffe_field(5, 4)
        found += caffe_field(100 if later else 2, caffe_field(1 if later else 4, name.encode()) + kind + coded)
    return found


def caffe_blob(array: np.ndarray, *, later: bool) -> bytes:
    """An array as caffe keeps it: of any shape, or of four sides with ones in front."""
    data = caffe_field(5, np.asarray(array, "<f4").tobytes())
    if later:
        return data + caffe_field(7, caffe_field(1, b"".join(map(varint, array.shape))))
    sides = (1,) * (4 - array.ndim) + array.shape
    return b"".join(caffe_field(i, side) for i, side in enumerate(sides, 1)) + data


def caffe_field(number: int, value: int | bytes) -> bytes:
    """A field of a message in protobuf's format."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def npy(shape: tuple[int, ...]) -> bytes:
    """The header of an array, without numbers."""
    return npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n")


def tensor_header(shape: tuple[int, ...]) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}


def tensor_pickle(count: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A pickle of one tensor with any shape and strides, over storage 0 of ``count`` floats."""

    def ints(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", value) for value in values) + b"t"

    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ" + struct.pack("<i", count) + b"tQ"
    tail = b"\x89ccollections\nOrderedDict\n)RtRs."
    return b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + ints(shape) + ints(stride) + tail


def hash_bomb() -> bytes:
    """A dict whose key is a tuple of a tuple of ..., each twice: its hash takes 2**64 steps."""
    return TWOS + b"}h\0Ns."


def zipped(entries: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def rezipped(data: bytes, changed: dict[str, bytes]) -> bytes:
    """An archive with other contents for entries whose names end so."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for name in entries:
        for ending, other in changed.items():
            entries[name] = other if name.endswith(ending) else entries[name]
    return zipped(entries)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Damage a file: bits, bytes, numbers, pieces moved, cut or doubled."""
    found = bytearray(data[: 1 << 20])
    for _ in range(chance.choice((0, 1, 1, 2, 4, 16))):
        if not found:
            break
        place = chance.randrange(len(found))
        kind = chance.randrange(8)
        if kind == 0:
            found[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[place] = chance.randrange(256)
        elif kind == 2:
            found[place : place + chance.choice((2, 4, 8))] = chance.choice((b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7))
        elif kind == 3:
            del found[place:]
        elif kind == 4:
            del found[place : place + chance.randrange(64)]
        elif kind == 5:
            found[place:place] = found[chance.randrange(len(found)) :][: chance.randrange(64)]
        elif kind == 6:
            found[place:place] = chance.choice(PIECES)
        else:  # where archives have their table of contents
            found[max(0, len(found) - 1 - chance.randrange(100))] = chance.randrange(256)
    return bytes(found)


def rezipped_mutation(data: bytes, chance: random.Random) -> bytes:
    """An archive of which one entry is damaged, so that the damage is not stopped by a checksum."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            name = chance.choice([entry for entry in names if entry.endswith(("data.pkl", ".npy"))] or names)
            return rezipped(data, {name: mutated(archive.read(name), chance)})
    except (zipfile.BadZipFile, EOFError, ValueError, IndexError):
        return mutated(data, chance)


def reader_of(name: str) -> Callable[[Path], Any]:
    if name.endswith(".txt"):
        return read_classes
    if name.startswith("weave"):
        return read_weave
    if name.endswith(".pt2"):
        return lambda path: networks.load(path)
    if name.endswith(".npy"):
        return lambda path: load_tensors(str(path))
    if name.endswith(".caffemodel"):
        return read_state
    return read_both


def read_both(path: Path) -> None:
    """As weights and as an input."""
    try:
        read_state(path)
    except IntegrandError:
        load_tensors(str(path))
        raise
    load_tensors(str(path))


def attempt(read: Callable[[Path], Any], path: Path) -> int:
    """Read a file in a process of its own; how that ended."""
    child = os.fork()
    if child == 0:
        ended = UNCLEAN
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            signal.alarm(3 * SECONDS)
            warnings.simplefilter("error")
            ended = outcome(read, path)
        finally:
            os._exit(ended)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return OVER if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) else UNCLEAN
    return os.WEXITSTATUS(status)


def outcome(read: Callable[[Path], Any], path: Path) -> int:
    try:
        read(path)
        return READ
    except MemoryError:
        return OVER
    except IntegrandError as error:
        cause = error.__cause__
        return OVER if isinstance(cause, MemoryError) or "allocate memory" in str(cause) else CLEAN
    except Exception as error:
        print(f"{path.name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return UNCLEAN


def cases(folder: Path, bait: Path, count: int, seed: int, *, quick: bool = False) -> Iterator[tuple[str, bytes]]:
    """Every file as it is, then damaged ones."""
    files = seeds(folder, bait, quick=quick)
    yield from files.items()
    chance = random.Random(seed)
    small = [name for name, data in files.items() if len(data) < 1 << 20]
    for _ in range(count):
        name = chance.choice(small)
        archive = files[name].startswith(b"PK") and chance.random() < 0.6
        yield name, (rezipped_mutation if archive else mutated)(files[name], chance)


def run(count: int, seed: int, keep: Path | None = None) -> dict[str, int]:
    """Run all cases; the counts by what became of them."""
    found: collections.Counter[str] = collections.Counter(dict.fromkeys([*WORDS.values(), "executed"], 0))
    with tempfile.TemporaryDirectory() as name:
        folder, bait = Path(name), Path(name) / "bait"
        for file, data in cases(folder, bait, count, seed):
            path = folder / file
            path.write_bytes(data)
            ended = attempt(reader_of(file), path)
            found[WORDS.get(ended, WORDS[UNCLEAN])] += 1
            executed = bait.exists()
            if executed:
                bait.rmdir()
                found["executed"] += 1
            if (executed or ended > CLEAN) and keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{sum(found.values())}-{ended}-{file}").write_bytes(data)
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for files that were not handled well")
    options = parser.parse_args()
    found = run(options.cases, options.seed, options.keep)
    for word, count in found.items():
        print(f"{count:7,} {word}")
    sys.exit(any(found[word] for word in (WORDS[UNCLEAN], WORDS[OVER], "executed")))


if __name__ == "__main__":
    main()
