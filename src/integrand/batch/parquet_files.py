"""Parquet files of others, read within limits: a few bytes of such a file may stand for any number of values.

Texts are read as the file has them, each different one once, so that memory is bounded by what the file unpacks to; what rows
take is added up before they become objects of Python.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bounded_reading import MAX_ROW, changed, check_ratio, file_stamp
from ..errors import FileError
from ..files import reading
from ..words import byte_size, first_line, shown
from .rows import arrow

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 256
"""Rows that are read at a time."""

FREE_GROUP = 256 << 20
"""Bytes that a group of rows, or a part of a table, may take in any case: writers make groups of some 100 MB."""

OBJECT = 64
"""Bytes that a list or a dict takes besides what it holds."""

WIDE = 64
"""Bytes of a value of a fixed size from which on all of a group are counted: hashes and decimal numbers have 16 or 32."""


@dataclass(frozen=True)
class OpenParquet:
    """An open Parquet file.

    Attributes:
        file: of Arrow; texts in it are dictionaries.
        schema: of its columns, without these dictionaries.
        size: bytes of the file.
        name: what it is called, for errors.
    """

    file: pa.parquet.ParquetFile
    schema: pa.Schema
    size: int
    name: str

    def rows(self) -> Iterator[tuple[Any, str]]:
        """The rows as dicts, and what is wrong with those that cannot be had."""
        for group, size in enumerate(self._group_sizes()):
            for batch in self.file.iter_batches(BLOCK if size <= FREE_GROUP else 1, row_groups=[group], use_threads=False):
                yield from _rows(batch, self.schema)

    def whole(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, or some of their columns."""
        self._group_sizes(columns)
        table = self.file.read(None if columns is None else list(columns), use_threads=False)
        check_ratio(sum(map(_decoded_size, table.columns)), self.size, self.name, free=FREE_GROUP)
        table.validate(full=True)  # texts in UTF-8, too
        return table.cast(
            arrow().schema([self.schema.field(column) for column in table.column_names], metadata=self.schema.metadata)
        )

    def _group_sizes(self, columns: Sequence[str] | None = None) -> list[int]:
        """Bytes that each group of rows takes at once: unpacked, and with values in lists, which one row may have all of."""
        metadata = self.file.metadata
        leaves = _leaves(metadata)
        lists = [i for i, leaf in enumerate(leaves) if leaf.max_repetition_level]
        if columns is not None:
            lists = [i for i in lists if leaves[i].path.partition(".")[0] in columns]
        for i in lists:  # where the footer contradicts itself this is an error of Arrow; to ask for the column ends the process
            self.file.scan_contents([leaves[i].path])
        sizes = []
        for group in range(metadata.num_row_groups):
            about = metadata.row_group(group)
            fixed = sum(leaf.length for leaf in leaves if leaf.length > WIDE and not leaf.max_repetition_level)
            values = sum(max(8, leaves[i].length) * about.column(i).num_values for i in lists)
            sizes.append(about.total_byte_size + fixed * about.num_rows + values)
            check_ratio(sizes[-1], self.size, self.name, free=FREE_GROUP)
        return sizes


@contextmanager
def parquet_file(path: Path, *, what: str = "a Parquet file", advice: str = "", same: bool = False) -> Iterator[OpenParquet]:
    """Open a Parquet file.

    Args:
        path: the file; a pipe, a device or a folder is refused.
        what: what is expected in it, for errors.
        advice: what to do about an error.
        same: raise an error at the end if the path leads to another file by then, or to one that was written to.
    """
    pa = arrow()
    name = shown(str(path))
    with reading(path, what=what) as opened:
        state = os.fstat(opened.fileno())
        try:
            metadata = pa.parquet.read_metadata(opened)
            schema = pa.parquet.ParquetFile(opened, metadata=metadata).schema_arrow
            texts = [leaf.path for leaf in _leaves(metadata) if leaf.physical_type == "BYTE_ARRAY"]
            # Read ahead, parts come through threads of Arrow, which let go of their buffers when they please: while Python is
            # shutting down, that aborts the process after its work is done.
            how = {"page_checksum_verification": True, "pre_buffer": False}
            with pa.parquet.ParquetFile(opened, metadata=metadata, read_dictionary=texts, **how) as file:
                yield OpenParquet(file, schema, state.st_size, name)
        except FileError:
            raise
        except MemoryError:
            raise FileError(f"{name} does not fit into memory; expected {what} with smaller groups of rows.") from None
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise FileError(f"{name} cannot be read ({first_line(error)}); expected {what}.{advice}") from None
    if same and path.exists() and file_stamp(path.stat()) != file_stamp(state):
        raise changed(path)


def parquet_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """The rows of a Parquet file as dicts, and what is wrong with those that cannot be had."""
    with parquet_file(path, same=True) as opened:
        yield from opened.rows()


def row_count(path: Path) -> int:
    """Number of rows of a Parquet file."""
    with parquet_file(path) as opened:
        return int(opened.file.metadata.num_rows)


def _rows(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[Any, str]]:
    """The rows of a batch; where it is too large, or has a text that is none, those of its halves."""
    count = batch.num_rows
    size = sum(map(_decoded_size, batch.columns))
    why = f"it takes {byte_size(size)}; expected at most {byte_size(MAX_ROW)}"
    if size <= MAX_ROW:
        try:
            yield from ((row, "") for row in batch.cast(schema).to_pylist())
            return
        except UnicodeDecodeError:
            why = "it has letters that are not UTF-8"
    if count == 1:
        yield None, why
        return
    yield from _rows(batch.slice(0, count // 2), schema)
    yield from _rows(batch.slice(count // 2), schema)


def _decoded_size(column: pa.Array | pa.ChunkedArray) -> int:
    """Bytes that the values of a column take: a text wherever it is meant, eight for a value, more for a list or an object."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_decoded_size, column.chunks))
    kind = column.type
    if pa.types.is_dictionary(kind):
        try:
            lengths = pa.compute.binary_length(column.dictionary)
        except pa.ArrowNotImplementedError:  # a user's categories, which are no texts
            return int(column.nbytes)
        return 8 * len(column) + int(pa.compute.sum(lengths.take(column.indices)).as_py() or 0)
    if pa.types.is_map(kind):
        return OBJECT * len(column) + _decoded_size(column.keys) + _decoded_size(column.items)
    if pa.types.is_nested(kind):
        parts = column.flatten()
        return OBJECT * len(column) + (sum(map(_decoded_size, parts)) if pa.types.is_struct(kind) else _decoded_size(parts))
    return max(int(column.nbytes), 8 * len(column))


def _leaves(metadata: Any) -> list[Any]:
    """The columns of a file, those inside lists and objects too."""
    return [metadata.schema.column(i) for i in range(len(metadata.schema))]
