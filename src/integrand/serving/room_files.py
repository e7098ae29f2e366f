"""Results as the server stores them: pages and code, and sources of pictures as bytes that worker processes open."""

from __future__ import annotations

import asyncio
import io
import pickle
from dataclasses import dataclass, field
from typing import Any

import torch

from .room import RoomResult, json_of

PAGE, PICTURE, NUMBERS = "page.html", "picture.png", "numbers.json"
"""The files of a result; the last two are made when they are first asked for."""

LARGEST_SOURCE = 24 << 20
"""Bytes of a source above which all files are made at once instead: a result of an eye has 20 MB, five methods on one 70."""


@dataclass(eq=False)
class RoomFiles:
    """A result that can be looked at, and taken away as files.

    Attributes:
        code: the lines of Python that give the same.
        stem: the name of files, without their endings.
        files: those that are made, by name.
        source: makes the others: a result of this process, or bytes in which a worker process finds it again.
        turn: held while one of them is made, so that each is made once.
    """

    code: str
    stem: str
    files: dict[str, bytes]
    source: RoomResult | bytes | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, outcome: RoomResult) -> RoomFiles:
        """A result of this process."""
        return cls(outcome.code, outcome.stem, {PAGE: outcome.page.encode()}, outcome)

    @classmethod
    def packed(cls, outcome: RoomResult) -> RoomFiles:
        """A result for another process: its source as bytes, or all files made where that cannot be or is too large."""
        files = {PAGE: outcome.page.encode()}
        source = _source(outcome)
        if source is None:
            files |= {name: made(outcome, name) for name in (PICTURE, NUMBERS)}
        return cls(outcome.code, outcome.stem, files, source)

    @property
    def size(self) -> int:
        """About how many bytes it holds in memory."""
        source = self.source.held if isinstance(self.source, RoomResult) else len(self.source or b"")
        return source + len(self.code) + sum(map(len, self.files.values()))


def made(source: RoomResult | bytes, name: str) -> bytes:
    """A file of a result, made from its source; bytes come from :func:`packed` alone."""
    if isinstance(source, bytes):
        picture, numbers = pickle.loads(source)
    else:
        picture, numbers = source.picture, source.numbers
    return picture() if name == PICTURE else json_of(numbers()).encode()


def _source(outcome: RoomResult) -> bytes | None:
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump((outcome.picture, outcome.numbers))
    except Exception:  # whatever a class says that cannot be pickled
        return None
    return file.getvalue() if file.tell() <= LARGEST_SOURCE else None


class _Pickler(pickle.Pickler):
    """Leaves out models, which no picture needs, and the parts of tensors' memory that are not theirs."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return type(None), ()
        if isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() > value.nbytes:
            return value.detach().clone().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented
