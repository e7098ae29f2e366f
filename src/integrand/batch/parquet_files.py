"""Parquet files of others, read within limits: a few bytes of such a file may stand for any number of values.

Texts are read as the file has them, each different one once, so that memory is bounded by what the file unpacks to; what rows
take is added up before they become objects of Python.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def parquet_file(
    path: Path, *, what: str = "a Parquet file", advice: str = "", same: bool = False
) -> Iterator[tuple[pa.parquet.ParquetFile, pa.Schema]]:
    """Open a Parquet file whose groups of rows unpack to no more than their size allows.

    Gives the file, in which texts are dictionaries, and the schema that it has without these.

    Args:
        path: the file; a pipe, a device or a folder is refused.
        what: what is expected in it, for errors.
        advice: what to do about an error.
        same: raise an error at the end if the path leads to another file by then, or to one that was written to.
    """
    pa = arrow()
    with reading(path, what=what) as opened:
        before = os.fstat(opened.fileno())
        try:
            metadata = pa.parquet.read_metadata(opened)
            for group in range(metadata.num_row_groups):
                packed = sum(column.total_compressed_size for column in _chunks(metadata, group))
                check_ratio(_taken(metadata, group), min(packed, before.st_size), shown(str(path)), free=FREE_GROUP)
            schema = pa.parquet.ParquetFile(opened, metadata=metadata).schema_arrow
            texts = [column.path for column in _leaves(metadata) if column.physical_type == "BYTE_ARRAY"]
            # Read ahead, parts come through threads of Arrow, which let go of their buffers when they please: while Python is
            # shutting down, that aborts the process after its work is done.
            how = {"page_checksum_verification": True, "pre_buffer": False}
            with pa.parquet.ParquetFile(opened, metadata=metadata, read_dictionary=texts, **how) as file:
                yield file, schema
        except FileError:
            raise
        except MemoryError:
            raise FileError(
                f"{shown(str(path))} does not fit into memory; expected {what} with smaller groups of rows."
            ) from None
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise FileError(f"{shown(str(path))} cannot be read ({first_line(error)}); expected {what}.{advice}") from None
    if same and path.exists() and file_stamp(path.stat()) != file_stamp(before):
        raise changed(path)


def parquet_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """The rows of a Parquet file as dicts, and what is wrong with those that cannot be had."""
    with parquet_file(path, same=True) as (file, schema):
        for group in range(file.num_row_groups):
            size = BLOCK if _taken(file.metadata, group) <= FREE_GROUP else 1
            for batch in file.iter_batches(size, row_groups=[group], use_threads=False):
                yield from _rows(batch, schema)


def row_count(path: Path) -> int:
    """Number of rows of a Parquet file."""
    with parquet_file(path) as (file, _):
        return int(file.metadata.num_rows)


def read_whole(
    file: pa.parquet.ParquetFile, schema: pa.Schema, columns: Sequence[str] | None, *, size: int, name: str
) -> pa.Table:
    """All rows of an open file, which must not take more than its size allows.

    Args:
        file: the file.
        schema: of its columns, from :func:`parquet_file`.
        columns: which of them; None for all.
        size: bytes of the file.
        name: what it is called, for the error.
    """
    table = file.read(None if columns is None else list(columns), use_threads=False)
    check_ratio(sum(map(_decoded_size, table.columns)), size, name, free=FREE_GROUP)
    table.validate(full=True)  # texts in UTF-8, too
    return table.cast(arrow().schema([schema.field(column) for column in table.column_names], metadata=schema.metadata))


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


def _taken(metadata: Any, group: int) -> int:
    """Bytes that a group of rows takes at once: what it unpacks to, and values in lists, which a row may have all of."""
    size = 0
    for chunk, leaf in zip(_chunks(metadata, group), _leaves(metadata), strict=True):
        width = leaf.length if leaf.length > WIDE else 8 if leaf.max_repetition_level else 0
        size += max(chunk.total_uncompressed_size, width * chunk.num_values)
    return size


def _chunks(metadata: Any, group: int) -> list[Any]:
    columns = metadata.row_group(group)
    return [columns.column(i) for i in range(columns.num_columns)]


def _leaves(metadata: Any) -> list[Any]:
    return [metadata.schema.column(i) for i in range(len(metadata.schema))]
