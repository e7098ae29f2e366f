"""Reads files of tensors that may come from anybody: .npy, .npz, .pth, .pt, .bin, .safetensors and .caffemodel.

Nothing in a file is executed, and what it claims is held against the bytes that it has before memory is taken: an archive that
unfolds to more than it may, a shape for which there are no numbers, a tensor that reaches beyond its storage. A pickle is read
twice: first here, by a reader that calls nothing and knows only what a state dict consists of; then by ``torch.load`` with
``weights_only``.
"""

from __future__ import annotations

import io
import math
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

from .errors import FileError, IntegrandError, MissingExtraError
from .files import read_bytes, reading
from .schema import parsed
from .words import byte_size, first_line, shown

LARGEST_TENSORS = 8 << 30
"""The most bytes that a file of tensors may have, and that the tensors in it may have together."""

UNFOLDS = 20
"""How many times the bytes of a file its tensors may have together: by compression, or by several views of the same numbers."""

ALWAYS_UNFOLDS = 256 << 20
"""Tensors that have no more bytes than this together are read however small the file is: zeros compress well."""

DIRECTORY_BYTES = 8 << 20
"""The most bytes of a zip archive's table of contents; torch and numpy write about 100 for a tensor."""

PICKLE_BYTES = 16 << 20
"""The most bytes of the pickle in a .pth file: names, shapes and places of the tensors, without their numbers."""

PICKLE_STEPS = 2_000_000
"""The most steps of that pickle; a state dict takes about 25 for a tensor."""

HEADER_BYTES = 16 << 20
"""The most bytes of the header of a .safetensors file, which holds the names and shapes, and what else there is to know."""

NPY_HEADER_BYTES = 10_000
"""The most bytes of the header of an .npy array, as in numpy."""

DIMENSIONS = 64
"""The most dimensions of an array or a tensor."""

CAFFE_FIELDS = 200_000
"""The most fields of a .caffemodel that are looked at; one of a thousand layers has some 50,000."""

CAFFE_NAME = 1_000
"""The most bytes of the name of a layer in a .caffemodel."""

ENDINGS = (".pth", ".pt", ".bin", ".safetensors", ".npz", ".npy", ".caffemodel")
"""The endings of files of tensors."""


def read_tensors(path: Path, *, what: str) -> Any:
    """What a file of tensors holds, on the CPU: a dict of tensors by name, or what ``torch.save`` was given.

    Args:
        path: the file; its ending says how it is read.
        what: what it was given as, for errors: ``weights``, ``--input``.

    Raises:
        FileError: it is no ordinary file, damaged, larger than it may be, or holds something other than tensors.
    """
    suffix = path.suffix.lower()
    if suffix not in ENDINGS:
        raise FileError(f"{what}: got {shown(str(path))!r}; expected a file that ends in {', '.join(ENDINGS)}.")
    with _one_error(path, what), reading(path, what="tensors") as file:
        size = _size(file, LARGEST_TENSORS)
        if suffix == ".npy":
            return _array(file, size)
        if suffix == ".npz":
            return _arrays(file, size)
        if suffix == ".safetensors":
            _check_header(file, size)
            return _of_safetensors(path)[0]
        if suffix == ".caffemodel":
            return _Caffe(file).layers(size)
        _check_saved(file, size)
        file.seek(0)
        return torch.load(file, weights_only=True, map_location="cpu")


def read_safetensors(path: Path, *, what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a ``.safetensors`` file by name, and the texts that its header holds beside them."""
    with _one_error(path, what), reading(path, what="tensors") as file:
        _check_header(file, _size(file, LARGEST_TENSORS))
        return _of_safetensors(path)


def check_weights(path: Path, *, what: str, most: int = LARGEST_TENSORS) -> None:
    """Refuse a file of weights that another library is to read, where :func:`read_tensors` would refuse it.

    Args:
        path: a file in the format of ``torch.save`` or safetensors, by its ending.
        what: what it was given as, for errors.
        most: how many bytes it, and what is in it, may have.
    """
    with _one_error(path, what), reading(path, what="weights") as file:
        size = _size(file, most)
        if path.suffix.lower() == ".safetensors":
            _check_header(file, size)
        else:
            _check_saved(file, size, most)


def archive_names(path: Path, *, what: str) -> list[str] | None:
    """The names of the entries of a zip archive that does not unfold to more than it may; None if the file is no archive."""
    with _one_error(path, what), reading(path, what=what) as file:
        size = _size(file, LARGEST_TENSORS)
        if file.read(4) != b"PK\x03\x04":
            return None
        with _archive(file, size, LARGEST_TENSORS) as archive:
            return archive.namelist()


def read_json(path: Path, *, what: str, most: int) -> Any:
    """Parse a JSON file of at most ``most`` bytes that another library is to read too."""
    return parsed(read_bytes(path, what=what, most=most), what=shown(str(path)), once=False)


@contextmanager
def _one_error(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a damaged file makes its readers raise into one line."""
    try:
        yield
    except IntegrandError:
        raise
    except Exception as error:  # MemoryError, RecursionError and OverflowError among them
        raise FileError(
            f"{what}: {shown(str(path))!r} cannot be read ({first_line(error)}); expected tensors, such as a state dict. Get "
            "the file again, or write it anew with torch.save(model.state_dict(), path)."
        ) from error


class _Damaged(Exception):
    """What is wrong with a file, in words that can stand in brackets."""


def _size(file: IO[bytes], most: int) -> int:
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise _Damaged(f"it has {byte_size(size)}, and at most {byte_size(most)} are read")
    return size


def _check_unfolded(total: int, size: int, most: int = LARGEST_TENSORS) -> None:
    """Refuse a file whose contents take much more memory than it has bytes."""
    if total > min(most, max(ALWAYS_UNFOLDS, UNFOLDS * size)):
        raise _Damaged(f"its {byte_size(size)} would take {byte_size(total)} of memory, which is not what tensors do")


@contextmanager
def _archive(file: IO[bytes], size: int, most: int) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive in the layout that torch and numpy write, after a look at its table of contents.

    There must be exactly one way to read it, since torch has a reader of its own: the table of contents stands right before the
    end, nothing stands behind, and no two entries have the same name.
    """
    _check_directory(file, size)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len({entry.filename.lower() for entry in entries}) != len(entries):  # torch's reader ignores case
            raise _Damaged("two of its entries have the same name")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise _Damaged("an entry is compressed in an unusual way")
        if any(entry.flag_bits & 1 for entry in entries):
            raise _Damaged("an entry is encrypted")
        if any(entry.compress_type == zipfile.ZIP_STORED and entry.file_size != entry.compress_size for entry in entries):
            raise _Damaged("an entry has another size than its table of contents says")
        _check_unfolded(sum(entry.file_size for entry in entries), size, most)
        yield archive


def _check_directory(file: IO[bytes], size: int) -> None:
    """Check where a zip archive's table of contents is, before a library reads it into memory."""
    end = size - 22
    if end < 0:
        raise _Damaged("it is too short for an archive")
    file.seek(max(0, end - 76))
    tail = file.read()[-98:]
    mark, disk, first_disk, here, count, length, start, comment = struct.unpack("<4s4H2LH", tail[-22:])
    if mark != b"PK\x05\x06" or comment or disk or first_disk or here != count:
        raise _Damaged("it does not end as an archive of tensors does")
    if tail[-42:-38] == b"PK\x06\x07":  # archives beyond 4 GiB, or written so that they could be
        place = struct.unpack("<Q", tail[-34:-26])[0]
        end = size - 98
        if place != end or tail[:4] != b"PK\x06\x06":
            raise _Damaged("its table of contents is not where its end says")
        _, count, length, start = struct.unpack("<4Q", tail[24:56])
    if start + length != end:
        raise _Damaged("its table of contents is not where its end says")
    if length > DIRECTORY_BYTES:
        raise _Damaged(f"its table of contents has {byte_size(length)}; at most {byte_size(DIRECTORY_BYTES)} are read")
    file.seek(0)


_NPY = re.compile(
    r"\s*\{\s*'descr':\s*'([<>|=][biufc]\d{1,2})',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([\dL, ]*)\),?\s*\}\s*"
)
"""The header of an .npy array of numbers, as numpy and its kin write it."""


def _arrays(file: IO[bytes], size: int) -> dict[str, Tensor]:
    with _archive(file, size, LARGEST_TENSORS) as archive:
        found = {}
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                raise _Damaged(f"it holds {entry.filename[:80]!r}, which is no array")
            with archive.open(entry) as member:
                found[entry.filename.removesuffix(".npy")] = _array(member, entry.file_size)
        return found


def _array(file: IO[bytes], size: int) -> Tensor:
    """One .npy array, from a stream that has ``size`` bytes."""
    start = file.read(8)
    wide = start[6:7] in (b"\x02", b"\x03")
    if start[:6] != b"\x93NUMPY" or not (wide or start[6:7] == b"\x01"):
        raise _Damaged("it is no array of numpy's")
    length = int.from_bytes(file.read(4 if wide else 2), "little")
    if length > NPY_HEADER_BYTES:
        raise _Damaged(f"the header of an array has {length:,} bytes; at most {NPY_HEADER_BYTES:,} are read")
    header = _NPY.fullmatch(file.read(length).decode("latin-1"))
    if header is None:
        raise _Damaged("an array is not one of numbers; objects and records are not read")
    dtype, shape = np.dtype(header[1]), tuple(int(part.rstrip("L")) for part in header[3].split(",") if part.strip())
    count = math.prod(shape)
    left = size - 8 - (4 if wide else 2) - length
    if len(shape) > DIMENSIONS or count * dtype.itemsize > left:
        raise _Damaged(f"an array of shape {str(shape)[:80]} needs {count * dtype.itemsize:,} bytes, and {left:,} are there")
    data = bytearray(count * dtype.itemsize)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise _Damaged("an array is cut short")
    array = np.frombuffer(data, dtype, count).reshape(shape, order="F" if header[2] == "True" else "C")
    return torch.from_numpy(np.ascontiguousarray(array, dtype.newbyteorder("=")).reshape(shape))


def _check_header(file: IO[bytes], size: int) -> None:
    length = int.from_bytes(file.read(8), "little")
    if length > min(HEADER_BYTES, size - 8):
        raise _Damaged(f"its header has {length:,} bytes; at most {min(HEADER_BYTES, max(size - 8, 0)):,} are read")


def _of_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        from safetensors import safe_open
    except ImportError:
        raise MissingExtraError("safetensors", "files", "reading .safetensors") from None
    with safe_open(str(path), framework="pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""How the value of a field is written in protobuf's format."""

_CAFFE_LAYERS = {2: (4, 6), 100: (1, 7)}
"""Where caffe keeps the layers of a network, by the field of the file: the fields of a layer's name and of its blobs.

Files of 2014, such as BVLC's own, have the first; later ones the second.
"""

_CAFFE_NUMBERS = {5: "<f4", 8: "<f8"}
"""Where caffe keeps the numbers of a blob, and their type."""

_Field = tuple[int, int, int, int]
"""A field in protobuf's format: its number, how it is written, and its value, or where its bytes start and end."""


@dataclass
class _Caffe:
    """Reads the weights of a caffe network, a message in protobuf's format, field by field.

    No field reaches beyond the message that it is in, numbers are read only where a shape asks for as many, and what is no
    weight is passed by unread.

    Attributes:
        file: the ``.caffemodel``.
        seen: how many fields were looked at.
    """

    file: IO[bytes]
    seen: int = 0

    def layers(self, size: int) -> dict[str, Tensor]:
        """The blobs of each layer: ``NAME/weight``, ``NAME/bias``, and ``NAME/2`` and so on where there are more."""
        found: dict[str, Tensor] = {}
        for field_number, kind, start, end in self._fields(0, size):
            if kind == _BYTES and field_number in _CAFFE_LAYERS:
                self._layer(start, end, *_CAFFE_LAYERS[field_number], found)
        if not found:
            raise _Damaged("it holds no layers with weights, as a .caffemodel does")
        return found

    def _layer(self, start: int, end: int, of_name: int, of_blobs: int, found: dict[str, Tensor]) -> None:
        name, blobs = "", []
        for field_number, kind, first, last in self._fields(start, end):
            if kind == _BYTES and field_number == of_name:
                if last - first > CAFFE_NAME:
                    raise _Damaged(f"the name of a layer has {last - first:,} bytes; at most {CAFFE_NAME:,} are read")
                name = self._bytes(first, last).decode()
            elif kind == _BYTES and field_number == of_blobs:
                blobs.append(self._blob(first, last))
        for i, blob in enumerate(blobs):
            key = f"{name}/{('weight', 'bias')[i] if i < 2 else i}"
            if not name or key in found:
                raise _Damaged(f"two of its layers have the name {name[:80]!r}" if name else "a layer with weights has no name")
            found[key] = blob

    def _blob(self, start: int, end: int) -> Tensor:
        sides, shape, parts, kinds = [0, 0, 0, 0], None, [], set()
        for field_number, kind, first, last in self._fields(start, end):
            if kind == _VARINT and field_number in (1, 2, 3, 4):  # num, channels, height, width, as all blobs had once
                sides[field_number - 1] = first
            elif kind == _BYTES and field_number == 7:
                shape = self._shape(first, last)
            elif field_number in _CAFFE_NUMBERS:
                if kind != _BYTES:
                    raise _Damaged("its numbers are not in blocks, as caffe writes them")
                parts.append((first, last))
                kinds.add(_CAFFE_NUMBERS[field_number])
        size = tuple(sides if shape is None else shape)
        dtype, there = np.dtype(min(kinds, default="<f4")), sum(last - first for first, last in parts)
        if len(kinds) > 1 or math.prod(size) * dtype.itemsize != there:
            raise _Damaged(f"a blob of shape {str(size)[:80]} has {there:,} bytes of numbers")
        data = bytearray(there)
        rest = memoryview(data)
        for first, last in parts:
            self.file.seek(first)
            if self.file.readinto(rest[: last - first]) != last - first:  # type: ignore[attr-defined]
                raise _Damaged("it is cut short")
            rest = rest[last - first :]
        return torch.from_numpy(np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False).reshape(size))

    def _shape(self, start: int, end: int) -> list[int]:
        shape: list[int] = []
        for field_number, kind, first, last in self._fields(start, end):
            place, stop = (first, last) if kind == _BYTES else (0, 0)
            if field_number == 1 and kind == _VARINT:
                shape.append(first)
            while field_number == 1 and place < stop and len(shape) <= DIMENSIONS:
                side, place = self._varint(place, stop)
                shape.append(side)
        if len(shape) > DIMENSIONS:
            raise _Damaged(f"a blob has more than {DIMENSIONS} dimensions")
        return shape

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """The fields of the message between two places of the file."""
        place = start
        while place < end:
            self.seen += 1
            if self.seen > CAFFE_FIELDS:
                raise _Damaged(f"it has more than {CAFFE_FIELDS:,} fields")
            tag, place = self._varint(place, end)
            kind, value, last = tag & 7, 0, 0
            if kind in (_VARINT, _BYTES):
                value, place = self._varint(place, end)
            if kind == _BYTES:
                value, last = place, place + value
                place = last
            elif kind in (_FIXED32, _FIXED64):
                place += 4 if kind == _FIXED32 else 8
            elif kind != _VARINT:
                raise _Damaged("it is not what caffe writes")
            if place > end:
                raise _Damaged("it is cut short, or no .caffemodel: a field reaches beyond its end")
            yield tag >> 3, kind, value, last

    def _varint(self, place: int, end: int) -> tuple[int, int]:
        """A whole number in protobuf's format, and the place behind it."""
        coded = self._bytes(place, min(end, place + 10))
        value = 0
        for i, byte in enumerate(coded):
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value, place + i + 1
        raise _Damaged("it is cut short, or no .caffemodel: a number has no end")

    def _bytes(self, start: int, end: int) -> bytes:
        self.file.seek(start)
        found = self.file.read(end - start)
        if len(found) != end - start:
            raise _Damaged("it is cut short")
        return found


def _check_saved(file: IO[bytes], size: int, most: int = LARGEST_TENSORS) -> None:
    """Check what ``torch.save`` wrote: a zip archive, or the older form of several pickles with the numbers behind them."""
    start = file.read(4)
    file.seek(0)
    if start == b"PK\x03\x04":
        with _archive(file, size, most) as archive:
            _check_zipped(archive, size, most)
    elif start[:2] == b"\x80\x02":
        _check_pickled(file, size, most)
    else:
        raise _Damaged("it is not what torch.save writes")


def _check_zipped(archive: zipfile.ZipFile, size: int, most: int) -> None:
    entries = {entry.filename: entry for entry in archive.infolist()}
    folder = next(iter(entries), "").partition("/")[0]  # torch takes that of the first entry
    if f"{folder}/data.pkl" not in entries:
        raise _Damaged("it holds no tensors that torch.save wrote")
    if f"{folder}/constants.pkl" in entries:
        raise _Damaged("it is a TorchScript program, not a file of tensors")
    if entries[f"{folder}/data.pkl"].file_size > PICKLE_BYTES:
        raise _Damaged(f"its pickle is larger than {byte_size(PICKLE_BYTES)}")
    _, pickle = _Pickle(io.BytesIO(archive.read(f"{folder}/data.pkl"))).run()
    for storage in pickle.storages.values():
        entry = entries.get(f"{folder}/data/{storage.key}")
        if entry is None or entry.file_size != storage.bytes:
            there = "nothing is there" if entry is None else f"{entry.file_size:,} are there"
            raise _Damaged(f"storage {storage.key[:80]!r} needs {storage.bytes:,} bytes, and {there}")
    _check_unfolded(pickle.total, size, most)


def _check_pickled(file: IO[bytes], size: int, most: int) -> None:
    head = io.BytesIO(file.read(PICKLE_BYTES))
    for expected in (0x1950A86A20F9469CFC6C, 1001):
        if _Pickle(head).run()[0] != expected:
            raise _Damaged("it is not what torch.save writes")
    _Pickle(head).run()  # about the machine that wrote it
    _, pickle = _Pickle(head).run()
    keys, _ = _Pickle(head).run()
    if not isinstance(keys, list) or not all(isinstance(key, _SCALARS) for key in keys):
        raise _Damaged("its storages have no names")
    if sorted(map(str, keys)) != sorted(pickle.storages):
        raise _Damaged("its storages are not those that its tensors need")
    place = head.tell()
    for key in keys:
        storage = pickle.storages[str(key)]
        file.seek(place)
        count = int.from_bytes(file.read(8), "little", signed=True)
        place += 8 + storage.bytes
        if count * storage.itemsize != storage.bytes or place > size:
            raise _Damaged(f"storage {storage.key[:80]!r} needs {storage.bytes:,} bytes, and not as many are there")
    _check_unfolded(pickle.total, size, most)


@dataclass(frozen=True)
class _Name:
    """A function or a class that a pickle names; it is looked up nowhere."""

    text: str


@dataclass(frozen=True)
class _Storage:
    """The numbers of some tensors: under which key they are kept, how many bytes they have, and how many each of them."""

    key: str
    bytes: int
    itemsize: int


@dataclass(eq=False)
class _PickledDict:
    """A dict of a pickle: whether it holds anything, what does not matter; whether it may still be given something."""

    filled: bool = False
    closed: bool = False


class _PickledTensor:
    """A tensor of a pickle, once its shape was held against its storage."""


_MARK = object()
_SCALARS = (str, bytes, int, float)

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_GIVEN = {"BININT", "BININT1", "BININT2", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "LONG1"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

_ITEMSIZES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16, "Untyped": 1,
}  # fmt: skip
_STORAGES = {
    f"{place}.{name}Storage": size for name, size in _ITEMSIZES.items() for place in ("torch", "torch.cuda", "torch.storage")
}
_DTYPES = {f"torch.{name}": value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_REBUILDS = {f"torch._utils._rebuild_tensor{version}": version for version in ("", "_v2", "_v3")}
_PLAIN = {"collections.OrderedDict", "collections.Counter", "torch.Size", "torch.device", "builtins.complex"}
_PLAIN |= {"builtins.set", "_codecs.encode", "torch._utils._rebuild_parameter"}


@dataclass
class _Pickle:
    """Runs a pickle without calling anything in it, and notes what its tensors claim.

    It knows the steps and the names that a state dict needs, and refuses all others. Keys of dicts must be texts or numbers:
    the hash of nested tuples can take forever.

    Attributes:
        file: where the pickle starts.
        storages: what it found, by key.
        total: how many bytes its tensors have together.
    """

    file: io.BytesIO
    storages: dict[str, _Storage] = field(default_factory=dict)
    total: int = 0
    _stack: list[Any] = field(default_factory=list)
    _memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> tuple[Any, _Pickle]:
        """Run up to its end; gives what it makes."""
        for step, (opcode, given, _) in enumerate(pickletools.genops(self.file)):
            if step > PICKLE_STEPS:
                raise _Damaged(f"its pickle has more than {PICKLE_STEPS:,} steps")
            if opcode.name == "STOP":
                return self._stack.pop(), self
            self._do(opcode.name, given)
        raise _Damaged("its pickle has no end")

    def _do(self, name: str, given: Any) -> None:
        stack = self._stack
        if name in _GIVEN:
            stack.append(given)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[given] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[given])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_SET"):
            stack.append(_PickledDict())
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(self._popped(_TUPLES[name], keep=True))]
        elif name in ("APPEND", "APPENDS"):
            items = self._popped(1) if name == "APPEND" else self._marked()
            self._last(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._popped(2) if name == "SETITEM" else self._marked()
            _check_keys(items[::2])
            found = self._last(_PickledDict)
            if found.closed:
                raise _Damaged("its pickle gives a tensor something to call")
            found.filled = True
        elif name == "GLOBAL":
            stack.append(_named(given))
        elif name == "BINPERSID":
            stack.append(self._storage(*self._popped(1)))
        elif name == "REDUCE":
            function, arguments = self._popped(2)
            stack.append(self._made(function, arguments))
        elif name == "BUILD":
            (state,) = self._popped(1)
            self._last(_PickledDict)
            if not isinstance(state, _PickledDict):
                raise _Damaged("its pickle is not that of a state dict")
        elif not (name == "PROTO" and given == 2):
            raise _Damaged(f"its pickle takes a step ({name}) that tensors do not need")

    def _popped(self, count: int, *, keep: bool = False) -> list[Any]:
        found = self._stack[-count:]
        if len(found) < count or any(item is _MARK for item in found):
            raise _Damaged("its pickle is damaged")
        if not keep:
            del self._stack[-count:]
        return found

    def _marked(self) -> list[Any]:
        found = []
        while self._stack[-1] is not _MARK:
            found.append(self._stack.pop())
        self._stack.pop()
        return found[::-1]

    def _last(self, kind: type[Any]) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise _Damaged("its pickle is not that of a state dict")
        return self._stack[-1]

    def _storage(self, identity: Any) -> _Storage:
        """What stands for the numbers of tensors: ('storage', kind, key, device, count), and a view of it in older files."""
        if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] not in ("storage", b"storage"):
            raise _Damaged("its pickle names something other than storages")
        kind, key, _, count, *view = identity[1:]
        if (
            not isinstance(kind, _Name)
            or kind.text not in _STORAGES
            or not _natural(count)
            or not isinstance(key, (str, bytes, int))
        ):
            raise _Damaged("its pickle names a storage that cannot be")
        found = _Storage(str(key), count * _STORAGES[kind.text], _STORAGES[kind.text])
        if self.storages.setdefault(found.key, found) != found:
            raise _Damaged("its pickle gives a storage two sizes")
        if view and view[0] is not None:
            raise _Damaged("its storages are parts of others, as torch wrote them before 2017; save it anew with torch.save")
        return found

    def _made(self, function: Any, arguments: Any) -> Any:
        """What a function would make of its arguments, as far as that matters here; only functions that are known."""
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise _Damaged("its pickle calls something that is no function")
        name = function.text
        if name in _REBUILDS:
            return self._tensor(_REBUILDS[name], arguments)
        if name == "torch._utils._rebuild_parameter" and len(arguments) == 3 and isinstance(arguments[0], _PickledTensor):
            _check_hooks(arguments[2])
            return arguments[0]
        if name in ("collections.OrderedDict", "builtins.set", "collections.Counter"):
            return _collected(name, arguments)
        if name == "_codecs.encode":  # other codecs than that of bytes can take forever
            if len(arguments) == 2 and isinstance(arguments[0], str) and arguments[1] == "latin1":
                return arguments[0].encode("latin-1")
        elif name in _PLAIN and all(
            isinstance(item, (tuple, list) if name == "torch.Size" else _SCALARS) for item in arguments
        ):
            return function
        raise _Damaged(f"its pickle calls {name[:80]} in a way that tensors do not need")

    def _tensor(self, version: str, arguments: tuple[Any, ...]) -> _PickledTensor:
        if len(arguments) < (4 if not version else 7 if version == "_v3" else 6) or not isinstance(arguments[0], _Storage):
            raise _Damaged("its pickle makes a tensor of something other than a storage")
        storage, offset, shape, stride = arguments[:4]
        itemsize = storage.itemsize
        if version == "_v3":
            dtype = _DTYPES.get(arguments[6].text) if isinstance(arguments[6], _Name) else None
            if dtype is None:
                raise _Damaged("its pickle makes a tensor of an unknown type")
            itemsize = dtype.itemsize
        for sizes in (shape, stride):
            if not isinstance(sizes, tuple) or len(sizes) > DIMENSIONS or not all(map(_natural, sizes)):
                raise _Damaged("its pickle makes a tensor of a shape that cannot be")
        count = math.prod(shape)
        last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if _natural(offset) else math.inf
        if count and (last + 1) * itemsize > storage.bytes:
            raise _Damaged(f"a tensor of shape {str(shape)[:80]} reaches beyond its {storage.bytes:,} bytes")
        self.total += count * itemsize
        if version:
            _check_hooks(arguments[5])
        return _PickledTensor()


def _named(given: str) -> _Name:
    """A name that a pickle may hold; that of anything else, such as ``os.system``, is refused before it is looked up."""
    place, _, name = given.partition(" ")
    text = f"{'builtins' if place == '__builtin__' else place}.{name}"
    if not any(text in names for names in (_STORAGES, _REBUILDS, _PLAIN, _DTYPES)):
        raise _Damaged(f"it asks for {text[:80]}, which tensors do not need; nothing of it was run")
    return _Name(text)


def _collected(name: str, arguments: tuple[Any, ...]) -> _PickledDict:
    """A dict or a set that is made of a list."""
    for items in arguments:
        if isinstance(items, list):
            pairs = name == "collections.OrderedDict"
            _check_keys([item[0] if pairs and isinstance(item, (list, tuple)) and item else item for item in items])
        elif not isinstance(items, _PickledDict):
            raise _Damaged("its pickle is not that of a state dict")
    return _PickledDict(filled=bool(arguments))


def _check_hooks(hooks: Any) -> None:
    """A tensor comes with a dict of functions that its gradient would be given to: it must be empty, and stay so."""
    if hooks is not None and (not isinstance(hooks, _PickledDict) or hooks.filled):
        raise _Damaged("its pickle gives a tensor something to call")
    if hooks is not None:
        hooks.closed = True


def _check_keys(keys: list[Any]) -> None:
    if not all(key is None or isinstance(key, _SCALARS) for key in keys):
        raise _Damaged("a dict in it has a key that is neither a text nor a number")


def _natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def shapes_without_memory(make: Callable[[], nn.Module]) -> dict[str, torch.Size]:
    """The shapes of a module's parameters and buffers, of any size, by name: it is made without memory for its numbers.

    For modules whose sizes are read from a file: hold these shapes against the file's before the module is made.
    """
    with torch.device("meta"):
        return {name: value.shape for name, value in make().state_dict().items()}


def only_tensors(found: Any) -> bool:
    """Whether something is a dict of tensors."""
    return isinstance(found, Mapping) and all(isinstance(value, Tensor) for value in found.values())
