"""Saving and loading: safetensors for the numbers, JSON in its header for the rest.

Nothing in a file is ever executed, and nothing is made of it before all of it was checked: the header against the dataclasses
below and those of the certificate (:mod:`integrand.schema`), the tensors against the header.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from .attribution import Attribution
from .certificate import Certificate, ExampleCertificate, Promise
from .errors import FileError, InputError, MissingExtraError, OptionError
from .files import reading, replacing, write_text
from .profile import Profile
from .schema import Sized, Within, fitted, parsed, said, stored
from .sum_errors import STORED, ErrorDraws
from .trees import Leaves, Tensors, Tree, flatten
from .words import first_line, shown

FORMAT = 2
"""Version of the file format; a file with a larger number is refused. What has no draws is written as version 1 was."""

LARGEST_HEADER = 100_000_000
"""The most bytes of a header; safetensors reads no larger ones."""

LARGEST_RESULT = 1 << 36
"""The most bytes of a file; one that is larger than the machine's memory is refused in any case."""

MOST_NOTES = 1000
"""The most entries that ``meta`` and ``extras`` may have; all of ``meta`` goes into a page."""

REAL = {"F16", "BF16", "F32", "F64"}
"""The types that attributions may have, by their names in safetensors."""

_KEY = "integrand"
_WRITTEN = "Expected a file written by Attribution.save."
_DRAWS, _SCALE = "draws.draws", "draws.scale"
_PROFILE = {part.name: "I64" if part.name in ("example", "piece") else "F64" for part in dataclasses.fields(Profile)}


@dataclass(frozen=True, slots=True)
class StoredTree:
    """The structure of tensors, as a header has it."""

    kind: Literal["tensor", "tuple", "dict"]
    keys: tuple[str, ...]
    size: Annotated[int, Within(1, 1 << 20)]

    def tree(self, what: str) -> Tree:
        """The same as a tree; refuses one whose parts contradict each other."""
        keys = len(self.keys) if self.kind == "dict" else self.size
        if keys != self.size or len(set(self.keys)) != (self.size if self.kind == "dict" else 0):
            raise FileError(f"{what} has the keys {said(list(self.keys))} for {self.size} tensors; expected one name for each.")
        if self.kind == "tensor" and self.size != 1:
            raise FileError(f"{what} is one tensor with the size {self.size}; expected 1.")
        return Tree(self.kind, self.keys, self.size)

    @classmethod
    def of(cls, value: object, *, what: str) -> StoredTree:
        """The structure of some tensors."""
        tree, _ = flatten(value, what=what)
        return cls(tree.kind, tuple(tree.keys), tree.size)  # type: ignore[arg-type]  # one of the three


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What the header says of a result: everything but its numbers."""

    format: Annotated[int, Within(1, FORMAT)]
    structure: StoredTree
    batched: bool
    meta: Annotated[dict[str, str], Sized(most=MOST_NOTES)]
    certificate: Annotated[tuple[ExampleCertificate, ...], Sized(1)]
    promises: tuple[Promise, ...] = ()
    extras: Annotated[dict[str, StoredTree], Sized(most=MOST_NOTES)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a file before it is read: its type, by its name in safetensors, and its shape."""

    dtype: str
    shape: tuple[int, ...]


def save(result: Attribution, path: Path, **options: Any) -> Path:
    """Write a result; the ending of the path decides how. See :meth:`Attribution.save`."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        from .render import report

        write_text(path, report(result, **options))
    elif suffix in {".png", ".svg", ".pdf"}:
        from .render import figure

        drawn = figure(result, **options)
        with replacing(path) as part:
            drawn.savefig(part, bbox_inches="tight")
    elif suffix == ".safetensors":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .safetensors file; they are for .html and .png")
        _write(result, path)
    else:
        raise OptionError(f"got the ending {suffix!r}; expected .safetensors for the numbers, .html, .png, .svg or .pdf")
    return path


def load(path: Path) -> Attribution:
    """Read what :func:`save` wrote as ``.safetensors``; anything else is refused with a :class:`FileError` that says why.

    The values are in memory of their own: what happens to the file later does not reach them.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtraError("safetensors", "files", "loading an attribution") from None
    _check_file(path)
    name = shown(str(path))
    try:
        with safe_open(str(path), framework="pt") as file:
            header = _header(name, file.metadata() or {})
            entries = {key: _entry(file.get_slice(key)) for key in file.keys()}  # noqa: SIM118  it is no dict
            parts = _checked(header, entries, name)
            found = {part: tree.build(_read(file, part, tree)) for part, tree in parts.items()}
            profile = _profile(file, header, name) if "profile.t" in entries else None
            draws = _draws(file, name) if _DRAWS in entries else None
    except FileError:
        raise
    except (SafetensorError, OSError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        raise FileError(f"{name} is not an attribution: {shown(str(error)[:200])}. {_WRITTEN}") from error
    extras = {key: found[f"extras.{key}"] for key in header.extras}
    certificate = Certificate(header.certificate, header.promises)
    return Attribution(found["values"], certificate, header.batched, header.meta, extras, profile, draws)


def example_of(row: Mapping[str, Any], *, what: str = "the certificate") -> ExampleCertificate:
    """A certificate from its fields, with the name of its status, as JSON holds them.

    Args:
        row: the fields.
        what: where they are, for the error.

    Raises:
        FileError: they are not those of a certificate.
    """
    return fitted(ExampleCertificate, row, what=what)


def _write(result: Attribution, path: Path) -> None:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import save_file
    except ImportError:
        raise MissingExtraError("safetensors", "files", "saving an attribution") from None
    structure = StoredTree.of(result.values, what="values")
    extras = {name: StoredTree.of(extra, what=name) for name, extra in result.extras.items()}
    version = 1 if result.draws is None else FORMAT
    header = StoredResult(
        version, structure, result.batched, result.meta, tuple(result.certificate), result.certificate.promises, extras
    )
    tensors = _leaves("values", result.values)
    for name, extra in result.extras.items():
        tensors |= _leaves(f"extras.{name}", extra)
    if result.profile is not None:
        tensors |= {f"profile.{name}": torch.from_numpy(getattr(result.profile, name)) for name in _PROFILE}
    if result.draws is not None:
        tensors |= {_DRAWS: result.draws.draws.contiguous(), _SCALE: result.draws.scale.contiguous()}
    text = _text(header, tensors)
    with replacing(path) as part:
        try:
            save_file(tensors, str(part), metadata={_KEY: text})
        except SafetensorError as error:
            raise FileError(f"{shown(str(path))} cannot be written ({first_line(error)}); choose another place.") from error


def _leaves(name: str, values: Tensors) -> dict[str, Tensor]:
    return {f"{name}.{i}": leaf.detach().cpu().contiguous() for i, leaf in enumerate(flatten(values, what=name)[1])}


def _text(header: StoredResult, tensors: Mapping[str, Tensor]) -> str:
    """The header as JSON; what could not be read again is refused before it is written."""
    names = {
        torch.float16: "F16",
        torch.bfloat16: "BF16",
        torch.float32: "F32",
        torch.float64: "F64",
        torch.int64: "I64",
        STORED: "F8_E5M2",
    }
    entries = {name: TensorEntry(names.get(one.dtype, str(one.dtype)), tuple(one.shape)) for name, one in tensors.items()}
    try:
        text = json.dumps(stored(header))
        _checked(fitted(StoredResult, parsed(text, what="its header"), what="the result"), entries, "the result")
    except (FileError, TypeError, ValueError) as error:
        raise InputError(f"this result cannot be saved: {shown(str(error))}") from None
    size = len(json.dumps(text)) + sum(200 + 6 * len(name) for name in tensors)  # quotes are escaped in it
    if size > LARGEST_HEADER:
        raise InputError(
            f"this result cannot be saved: its header takes {size} bytes for {len(header.certificate)} examples; expected at "
            f"most {LARGEST_HEADER}. Save it in parts."
        )
    return text


def _check_file(path: Path) -> None:
    """Refuse what is no ordinary file, or has a size that cannot be: before anything else opens it."""
    name = shown(str(path))
    with reading(path, what="an attribution") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
    most = min(LARGEST_RESULT, _memory())
    if size > most:
        raise FileError(f"{name} has {size} bytes; expected an attribution that fits into memory, of at most {most} bytes.")
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(size - 8, LARGEST_HEADER):
        raise FileError(
            f"{name} is not an attribution: its header has {length} bytes of {size}; expected at most {LARGEST_HEADER} and no "
            f"more than the file. {_WRITTEN}"
        )


def _memory() -> int:
    """The bytes of memory of the machine, where the system says that."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # pragma: no cover  Windows
        return LARGEST_RESULT


def _header(name: str, metadata: Mapping[str, str]) -> StoredResult:
    """What the file says about itself; the version is looked at before anything else is trusted."""
    if _KEY not in metadata:
        raise FileError(f"{name} is a safetensors file but not an attribution. {_WRITTEN}")
    with _explained(f"{name} has a damaged header"):
        header = parsed(metadata[_KEY], what="it")
    version = header.get("format") if isinstance(header, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise FileError(f"{name} has format {said(version)}; this version reads up to {FORMAT}. Update integrand to read it.")
    with _explained(f"{name} has a damaged header"):
        return fitted(StoredResult, header, what="header")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Put the name of the file before an error about a part of it, and what was expected after it."""
    try:
        yield
    except FileError as error:
        raise FileError(f"{what}: {error} {_WRITTEN}") from None


def _entry(tensor: Any) -> TensorEntry:
    return TensorEntry(tensor.get_dtype(), tuple(tensor.get_shape()))


def _checked(header: StoredResult, entries: Mapping[str, TensorEntry], name: str) -> dict[str, Tree]:
    """The structure of values and extras, after every tensor was checked against what the header says."""
    with _explained(f"{name} contradicts itself"):
        parts = {"values": header.structure.tree("structure")}
        parts |= {f"extras.{key}": one.tree(f"extras[{said(key)}]") for key, one in header.extras.items()}
        examples = len(header.certificate)
        if not header.batched and examples != 1:
            raise FileError(f"it has {examples} certificates and no batch dimension; expected one.")
        expected = [f"{part}.{i}" for part, tree in parts.items() for i in range(tree.size)]
        columns = [f"profile.{column}" for column in _PROFILE]
        if entries.keys() & set(columns):
            expected += columns
        if entries.keys() & {_DRAWS, _SCALE}:
            expected += [_DRAWS, _SCALE]
        _same_names(entries, expected)
        for part, tree in parts.items():
            for i in range(tree.size):
                _check_values(f"{part}.{i}", entries[f"{part}.{i}"], examples if header.batched else None)
        if "profile.t" in entries:
            _check_columns(entries, columns)
        if _DRAWS in entries:
            _check_draws(entries, examples, _features(entries, parts["values"], batched=header.batched))
        return parts


def _same_names(entries: Mapping[str, TensorEntry], expected: Sequence[str]) -> None:
    missing, further = [one for one in expected if one not in entries], entries.keys() - set(expected)
    if len(set(expected)) != len(expected):
        raise FileError("two of its parts have tensors of the same name; expected one of each.")
    if missing:
        raise FileError(f"the tensor {said(missing[0])} is not there; expected {len(expected)} tensors.")
    if further:
        raise FileError(f"it has the tensor {said(min(further))}, which nothing says the meaning of; expected no others.")


def _check_values(name: str, entry: TensorEntry, examples: int | None) -> None:
    if entry.dtype not in REAL:
        raise FileError(f"{said(name)} has the type {said(entry.dtype)}; expected one of {', '.join(sorted(REAL))}.")
    if examples is not None and entry.shape[:1] != (examples,):
        raise FileError(f"{said(name)} has shape {entry.shape}; expected {examples} rows, one for each certificate.")
    if not math.prod(entry.shape) or len(entry.shape) > 64:
        raise FileError(f"{said(name)} has shape {entry.shape}; expected at least one number in at most 64 dimensions.")


def _check_columns(entries: Mapping[str, TensorEntry], columns: Sequence[str]) -> None:
    shape = entries["profile.t"].shape
    for name, dtype in zip(columns, _PROFILE.values(), strict=True):
        if len(shape) != 1 or not shape[0] or entries[name] != TensorEntry(dtype, shape):
            one = entries[name]
            raise FileError(
                f"{name} has type {said(one.dtype)} and shape {one.shape}; expected {dtype} and one number for each point, as "
                "many as profile.t has."
            )


def _features(entries: Mapping[str, TensorEntry], tree: Tree, *, batched: bool) -> int:
    """How many values each example has."""
    return sum(math.prod(entries[f"values.{i}"].shape[1 if batched else 0 :]) for i in range(tree.size))


def _check_draws(entries: Mapping[str, TensorEntry], examples: int, features: int) -> None:
    """The draws fit the values: some for each example, with a number for each feature."""
    draws, scale = entries[_DRAWS], entries[_SCALE]
    fits = len(draws.shape) == 3 and draws.shape[1] > 0 and (draws.shape[0], draws.shape[2]) == (examples, features)
    if not fits or draws.dtype != "F8_E5M2":
        found, expected = f"type {said(draws.dtype)} and shape {draws.shape}", f"F8_E5M2 and ({examples}, some, {features})"
        raise FileError(f"{_DRAWS} has {found}; expected {expected}.")
    if scale != TensorEntry("F64", (examples,)):
        raise FileError(f"{_SCALE} has type {said(scale.dtype)} and shape {scale.shape}; expected F64 and ({examples},).")


def _draws(file: Any, name: str) -> ErrorDraws:
    """The draws of errors, whose scale has no sign."""
    found = ErrorDraws(file.get_tensor(_DRAWS).clone(), file.get_tensor(_SCALE).clone())
    with _explained(f"{name} contradicts itself"):
        if bool((found.scale < 0).any()) or not bool(found.draws.float().isfinite().all()):
            raise FileError(f"{_DRAWS} has numbers that no errors have; expected finite ones, and no scale below 0.")
    return found


def _read(file: Any, name: str, tree: Tree) -> Leaves:
    """Some tensors, in memory of their own: safetensors gives views into the file, which change with it."""
    return tuple(file.get_tensor(f"{name}.{i}").clone() for i in range(tree.size))


def _profile(file: Any, header: StoredResult, name: str) -> Profile:
    """The profile, whose indices lead to examples and curves and whose points are in order."""
    found = Profile(*(file.get_tensor(f"profile.{column}").clone().numpy() for column in _PROFILE))
    examples = len(header.certificate)
    with _explained(f"{name} contradicts itself"):
        if not ((found.example >= 0) & (found.example < examples)).all():
            raise FileError(f"profile.example leads beyond the {examples} examples; expected 0 to {examples - 1}.")
        # Where there is one curve only, or a certificate without any, nothing is looked up by piece.
        pieces = np.array([len(one.curves) or np.iinfo(np.int64).max for one in header.certificate])
        if not ((found.piece >= 0) & (found.piece < pieces[found.example])).all():
            raise FileError("profile.piece leads beyond the curves of the certificate; expected the number of one of them.")
        if not ((found.t >= 0) & (found.t <= 1)).all():
            raise FileError("profile.t has times outside of the path; expected 0 to 1.")
        order = np.lexsort((found.t, found.piece, found.example))
        if (order != np.arange(len(order))).any():
            raise FileError("the profile is not sorted; expected its points by example, piece and time.")
    return found
