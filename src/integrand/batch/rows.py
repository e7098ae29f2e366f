"""What is kept of one input: a row of the table, and how rows become Arrow tables with the same columns in every part.

Every application's result has a method ``row()`` that gives a :class:`Row`; :func:`rows_of` makes rows of any result. Columns
are the same for all of them, so that one query, one summary and one export serve photos, words, molecules and numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..attribution import Attribution
from ..certificate import Certificate, ExampleCertificate, Status
from ..errors import InputError, MissingExtraError, OptionError
from ..sum_errors import ErrorDraws
from ..trees import flatten
from ..words import finite, shortened

if TYPE_CHECKING:
    import pyarrow as pa

Keeping = Literal["auto", "values", "lists", "files", "none"]
"""How attributions are kept; see :func:`integrand.explain_many`."""

KEEPING = ("auto", "values", "lists", "files", "none")

FAILED = "failed"
"""The status of an input that could not be explained; all other statuses are those of certificates."""

MOST_VALUES = 4096
"""Inputs with more features have their attributions in a file beside the table, unless something else is asked for."""

MAX_BITS = 4096
"""Bits of a whole number that is written in decimals."""

Column = bool | int | float | str | None
"""A value of a column that the input brought along."""


def key_text(key: str) -> str:
    r"""A key as the table holds it: halves of characters, as names of files may have them, are written out.

    >>> key_text("caf\udce9"), key_text("café")
    ('caf\\udce9', 'café')
    """
    return key if key.isascii() else key.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Row:
    """What is known of one input, as a row of the table. What is not known is None.

    Attributes:
        key: tells the input from all others.
        prediction: what the model said.
        probability: the probability that the model gave it.
        target: what was explained, in words.
        score: F(x), the explained score at the input.
        baseline_score: F(x'), at the baseline.
        error: the estimated relative error of the attributions.
        tol: the tolerance that was asked for.
        residual: what the sum of the attributions misses.
        magnitude: the sum of their sizes.
        status: how the integration ended; :data:`FAILED` if there is no result.
        evaluations: gradient evaluations.
        forwards: evaluations of the score alone.
        sentence: the answer in one line.
        notes: what a reader must not miss.
        failure: why the input could not be explained.
        features: the name of each feature that has an attribution: a word, an atom, a column.
        attributions: the attribution of each, as an array; of any shape where features have no names.
        attribution_errors: the estimated error of each.
        groups: names of larger parts over which attributions were added up, such as the functional groups of a molecule.
        group_sums: the sum of each.
        attribution_file: the file with all attributions, relative to the folder of the table.
        details: everything else that an application needs to draw the result again, as JSON.
        input_digest: a digest of the input, which tells that it was changed under the same key.
        columns: what else the input brought along, by the name of the column.
        whole: the attribution of this input with all that belongs to it, for a file of its own; never in the table itself.
    """

    key: str = ""
    prediction: str | None = None
    probability: float | None = None
    target: str | None = None
    score: float | None = None
    baseline_score: float | None = None
    error: float | None = None
    tol: float | None = None
    residual: float | None = None
    magnitude: float | None = None
    status: str = FAILED
    evaluations: int = 0
    forwards: int = 0
    sentence: str | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None
    features: tuple[str, ...] | None = None
    attributions: Any = None
    attribution_errors: tuple[float, ...] | None = None
    groups: tuple[str, ...] | None = None
    group_sums: tuple[float, ...] | None = None
    attribution_file: str | None = None
    details: str | None = None
    input_digest: str = ""
    columns: Mapping[str, Column] = field(default_factory=dict)
    whole: Attribution | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the input was explained."""
        return self.failure is None

    @staticmethod
    def failed(key: str, why: str, **known: Any) -> Row:
        """The row of an input that could not be explained.

        Args:
            key: tells the input from all others.
            why: the reason, with what to do about it.
            **known: further fields of the row.
        """
        return Row(key, failure=why, status=FAILED, **known)

    @staticmethod
    def of(certificate: ExampleCertificate | Certificate, **known: Any) -> Row:
        """A row with what a certificate says; over several examples (the words of a translation), the worst of it.

        Args:
            certificate: of the input's attributions.
            **known: further fields of the row, which count more than the certificate's.
        """
        examples = [certificate] if isinstance(certificate, ExampleCertificate) else list(certificate)
        if not examples:
            raise InputError("got a certificate of no example; expected at least one.")
        worst = max(examples, key=_badness)
        alone = len(examples) == 1
        said: dict[str, Any] = {
            "target": worst.target if alone else None,
            "score": worst.score if alone else None,
            "baseline_score": worst.baseline_score if alone else None,
            "error": worst.error,
            "tol": worst.tol,
            "residual": worst.residual if alone else None,
            "magnitude": math.fsum(one.magnitude for one in examples),
            "status": worst.status.value,
            "evaluations": sum(one.gradients for one in examples),
            "forwards": sum(one.forwards for one in examples),
        }
        return Row(**said | known)


def _badness(example: ExampleCertificate) -> tuple[bool, float]:
    error = example.error if math.isfinite(example.error) else math.inf
    return not example.converged, error / example.tol if example.tol else error


COLUMN_NAMES = tuple(part.name for part in fields(Row) if part.name not in ("columns", "whole"))
"""The columns of every table, in their order; those that inputs bring along come after them."""

STATUSES = (*(status.value for status in Status), FAILED)
"""The values of the column ``status``."""


def rows_of(results: object, count: int) -> list[Row]:
    """The rows of what explained some inputs.

    Args:
        results: an :class:`~integrand.Attribution` with an example for each input, or a sequence with one result for each: an
            Attribution of one example, the result of an application, a :class:`Row`, or a mapping with fields of a row.
        count: how many inputs there were.
    """
    if isinstance(results, Attribution):
        _check_count(len(results.certificate), count)
        return [attribution_row(results, i) for i in range(count)]
    if isinstance(results, (str, bytes, Mapping)) or not isinstance(results, Sequence):
        raise OptionError(
            f"explain gave a {type(results).__name__}; expected an integrand.Attribution with one example for each of the "
            f"{count} inputs, or a list with one result for each."
        )
    _check_count(len(results), count)
    return [_row_of(one) for one in results]


def _check_count(got: int, count: int) -> None:
    if got != count:
        raise OptionError(f"explain gave {got} results for {count} inputs; expected one for each, in the same order.")


def _row_of(found: object) -> Row:
    if isinstance(found, Row):
        return _checked(found)
    if isinstance(found, Attribution):
        _check_count(len(found.certificate), 1)
        return attribution_row(found, 0)
    if callable(ask := getattr(found, "row", None)):
        row = ask()
        if isinstance(row, Row):
            return _checked(row)
    if isinstance(found, Mapping):
        return _row_of_mapping(found)
    raise OptionError(
        f"explain gave a {type(found).__name__} for an input; expected an integrand.Attribution, a result of integrand.apps, "
        "an integrand.batch.Row, or a dict with columns of one."
    )


def _checked(row: Row) -> Row:
    """A row whose status is known, and says the same as whether there is a failure: who reads the table goes by either."""
    if row.status not in STATUSES or row.ok == (row.status == FAILED):
        raise OptionError(
            f"explain gave status={row.status!r} with failure={shortened(repr(row.failure), 60)}; expected one of "
            f"{', '.join(STATUSES[:-1])} without a failure, or {FAILED!r} with one."
        )
    return row


_TEXTS = ("prediction", "target", "status", "sentence", "failure", "attribution_file", "details")
_LISTS = {"notes": str, "features": str, "groups": str, "attribution_errors": float, "group_sums": float}


def _row_of_mapping(found: Mapping[Any, Any]) -> Row:
    """A row of columns that a user's function gave, each as its column holds it."""
    known = set(COLUMN_NAMES) - {"key", "input_digest"}
    ours: dict[str, Any] = {"status": FAILED if found.get("failure") else Status.EXACT.value}
    for name in known & found.keys():
        if (value := found[name]) is None or (name == "failure" and value == ""):
            continue
        try:
            if name == "attributions":
                ours[name] = _numbers(value)
            elif name in _LISTS:
                if isinstance(value, (str, bytes)):
                    raise TypeError("a single text")
                ours[name] = tuple(_LISTS[name](one) for one in value)
            else:
                ours[name] = str(value) if name in _TEXTS else (int if name in ("evaluations", "forwards") else float)(value)
        except (TypeError, ValueError, RuntimeError):
            many = {str: "a list of texts", float: "a list of numbers"}
            what = "numbers" if name == "attributions" else many[_LISTS[name]] if name in _LISTS else "a number"
            raise OptionError(f"explain gave {name}={shortened(repr(value), 60)}; expected {what}.") from None
    columns = {key_text(str(name)): plain(value) for name, value in found.items() if name not in known}
    check_columns(columns)
    return _checked(Row(**ours, columns=columns))


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    """Numbers as an array: of float64 if they are such an array or tensor, of float32 otherwise."""
    wide = str(getattr(values, "dtype", "")).endswith("float64")
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    return np.asarray(values, np.float64 if wide else np.float32)


def plain(value: Any) -> Any:
    """A value of a column: numbers of numpy and torch as Python has them, everything that is no number as text."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return hex(value)  # in decimals, Python refuses to write it
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def check_columns(names: Iterable[str]) -> None:
    """Refuse names for the columns that inputs bring along which the table has of its own."""
    for name in set(names) & set(COLUMN_NAMES):
        raise OptionError(
            f"got a column {name!r}, which the table has of its own; give it another name: carry={{{name!r}: 'own_{name}'}} "
            f"for one of the source, 'own_{name}' for one that explain gives."
        )


def attribution_row(found: Attribution, index: int, **known: Any) -> Row:
    """The row of one example of an :class:`~integrand.Attribution`.

    Args:
        found: the attribution.
        index: which of its examples.
        **known: further fields of the row.
    """
    _, leaves = flatten(found.values, what="values")
    own = [(leaf[index] if found.batched else leaf).detach().cpu() for leaf in leaves]
    own = [leaf if leaf.dtype.itemsize >= 4 else leaf.float() for leaf in own]
    values = own[0].numpy() if len(own) == 1 else np.concatenate([leaf.numpy().reshape(-1) for leaf in own])
    return Row.of(found.certificate[index], **{"attributions": values, "whole": example_of(found, index)} | known)


def example_of(found: Attribution, index: int) -> Attribution:
    """One example of an attribution, as an attribution of its own."""
    if len(found.certificate) == 1:
        return found
    tree, leaves = flatten(found.values, what="values")
    draws, profile = found.draws, None if found.profile is None else found.profile.of(index)
    return Attribution(
        tree.build([leaf[index : index + 1] for leaf in leaves]),
        Certificate((found.certificate[index],), found.certificate.promises),
        meta=found.meta,
        profile=None if profile is None else replace(profile, example=np.zeros_like(profile.example)),
        draws=None if draws is None else ErrorDraws(draws.draws[index : index + 1], draws.scale[index : index + 1]),
    )


# ---- rows as Arrow tables ----------------------------------------------------------------------------------------------------


def arrow() -> Any:
    """The package pyarrow; an error that names the extra if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "batch", "a table of many inputs") from None
    return pa


@dataclass(frozen=True)
class TableLayout:
    """The types of those columns that are not the same in every table. They widen as rows come that need it.

    Attributes:
        shape: the shape of every input's attributions, which are then kept as lists of a fixed size.
        ragged: whether attributions are kept as lists of any size; with neither, there are none yet.
        wide: whether attributions are kept in float64.
        columns: by name, the type of each column that inputs bring along: ``bool``, ``int64``, ``double`` or ``string``; empty
            as long as it holds nothing.
    """

    shape: tuple[int, ...] | None = None
    ragged: bool = False
    wide: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)

    def holding(self, rows: Sequence[Row], keep: Keeping) -> TableLayout:
        """The layout that holds these rows too.

        Args:
            rows: what is to be written.
            keep: how attributions are kept.
        """
        found = self
        for row in rows:
            columns = {
                name: kind for name, value in row.columns.items() if (kind := _type_of(value)) or name not in found.columns
            }
            own = TableLayout(columns=columns)
            if row.attributions is not None:
                values = np.asarray(row.attributions)
                fixed = (
                    row.features is None and keep in ("auto", "values") and values.size > 0
                )  # Parquet has no lists of size 0
                own = TableLayout(tuple(values.shape) if fixed else None, not fixed, values.dtype == np.float64, columns)
            found = found.union(own)
        return found

    def union(self, other: TableLayout) -> TableLayout:
        """The layout that holds the rows of both."""
        if self == other:
            return self
        fixed = [one.shape for one in (self, other) if one.shape is not None]
        ragged = self.ragged or other.ragged or len(set(fixed)) > 1
        columns = dict(self.columns)
        for name, kind in other.columns.items():
            columns[name] = _wider(columns.get(name, ""), kind)
        return TableLayout(fixed[0] if fixed and not ragged else None, ragged, self.wide or other.wide, columns)

    @staticmethod
    def read(schema: pa.Schema) -> TableLayout:
        """The layout of a part that was written."""
        kind = schema.field("attributions").type
        text = (schema.metadata or {})[b"integrand.shape"].decode()
        shape = tuple(int(part) for part in text.split(",") if part) if text not in ("", "any") else None
        others = json.loads((schema.metadata or {})[b"integrand.columns"])
        return TableLayout(shape, text == "any", str(kind.value_type) == "double", others)

    def schema(self) -> pa.Schema:
        """The columns of the table and their types."""
        pa = arrow()
        values = pa.float64() if self.wide else pa.float32()
        kinds: dict[str, Any] = {
            "evaluations": pa.int64(),
            "forwards": pa.int64(),
            "notes": pa.list_(pa.string()),
            "features": pa.list_(pa.string()),
            "groups": pa.list_(pa.string()),
            "group_sums": pa.list_(pa.float64()),
            "attribution_errors": pa.list_(pa.float64()),
            "attributions": pa.list_(values) if self.shape is None else pa.list_(values, math.prod(self.shape)),
        }
        doubles = ("probability", "score", "baseline_score", "error", "tol", "residual", "magnitude")
        kinds |= dict.fromkeys(doubles, pa.float64())
        known = {"bool": pa.bool_(), "int64": pa.int64(), "double": pa.float64()}
        parts = [pa.field(name, kinds.get(name, pa.string()), nullable=name != "key") for name in COLUMN_NAMES]
        parts += [pa.field(name, known.get(kind, pa.string())) for name, kind in self.columns.items()]
        shape = "any" if self.ragged else "" if self.shape is None else ",".join(map(str, self.shape)) or ","
        return pa.schema(parts, metadata={"integrand.shape": shape, "integrand.columns": json.dumps(dict(self.columns))})

    def cast(self, table: pa.Table, names: Sequence[str] | None = None) -> pa.Table:
        """A part that was written before the layout became this one, or some of its columns."""
        schema = self.schema()
        if names is not None:
            schema = arrow().schema([schema.field(name) for name in names], metadata=schema.metadata)
        if table.schema.equals(schema, check_metadata=True):
            return table
        pa = arrow()
        columns = []
        for part in schema:
            have = table.column(part.name) if part.name in table.column_names else pa.nulls(table.num_rows, part.type)
            if have.type == part.type:
                pass
            elif have.null_count == len(have):
                have = pa.nulls(len(have), part.type)
            elif pa.types.is_string(part.type):  # not Arrow's own: a value has one text, whatever the column held before
                have = pa.array([_as_type(value, "string") for value in have.to_pylist()], part.type)
            else:
                have = have.cast(part.type, safe=False)  # whole numbers past 2**53 are rounded, as in a part of one run
            columns.append(have)
        return pa.Table.from_arrays(columns, schema=schema)

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Rows that this layout holds, as an Arrow table."""
        pa = arrow()
        schema = self.schema()
        arrays = []
        for part in schema:
            name = part.name
            if name == "attributions":
                values: list[Any] = [None if row.attributions is None else _flat(row.attributions) for row in rows]
            elif name in _LISTS:
                clean = _text if _LISTS[name] is str else finite
                values = [_each(getattr(row, name), clean) for row in rows]
            elif name in COLUMN_NAMES:
                clean = _text if pa.types.is_string(part.type) else finite
                values = [None if (value := getattr(row, name)) is None else clean(value) for row in rows]
            else:
                values = [_as_type(row.columns.get(name), self.columns[name]) for row in rows]
            arrays.append(pa.array(values, part.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def rows(self, table: pa.Table) -> list[Row]:
        """The rows of an Arrow table with this layout."""
        found = []
        attributions = self._arrays(table.column("attributions")) if "attributions" in table.column_names else None
        rest = table if attributions is None else table.drop_columns(["attributions"])
        for i, values in enumerate(rest.to_pylist()):
            known = {name: values.pop(name) for name in COLUMN_NAMES if name in values}
            for name in _LISTS:
                if known.get(name) is not None:
                    known[name] = tuple(known[name])
            known["notes"] = known.get("notes") or ()
            found.append(Row(**known, attributions=None if attributions is None else attributions[i], columns=values))
        return found

    def _arrays(self, column: pa.ChunkedArray) -> list[np.ndarray[Any, Any] | None]:
        """The attributions of each row, without a Python number for every one of them."""
        found: list[np.ndarray[Any, Any] | None] = []
        for chunk in column.chunks:
            flat, begin = chunk.flatten().to_numpy(zero_copy_only=False), 0
            for length in chunk.value_lengths().to_pylist() if self.shape is None else _lengths(chunk, math.prod(self.shape)):
                if length is None:
                    found.append(None)
                    continue
                own = flat[begin : begin + length].copy()
                found.append(own if self.shape is None else own.reshape(self.shape))
                begin += length
        return found


def _lengths(chunk: Any, size: int) -> list[int | None]:
    return [size if valid else None for valid in chunk.is_valid().to_pylist()]


def _text(value: str) -> str:
    """A text as Arrow takes it, without halves of characters."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _each(values: Sequence[Any] | None, clean: Callable[[Any], Any]) -> list[Any] | None:
    return None if values is None else [clean(value) for value in values]


def _flat(values: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(values).reshape(-1)


def _type_of(value: Column) -> str:
    """The type of a column that holds a value; empty if the value does not tell."""
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int64" if abs(int(value)) < 2**63 else "string"
    return "double" if isinstance(value, (float, np.floating)) else "string"


def _wider(one: str, other: str) -> str:
    """The type of a column that holds values of both types: numbers are numbers, all else is text."""
    if not one or not other or one == other:
        return one or other
    return "double" if {one, other} == {"int64", "double"} else "string"


def _as_type(value: Any, kind: str) -> Column:
    """A value as a column of this type holds it."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return None
    if kind == "bool":
        return bool(value)
    if kind == "int64":
        return int(value)
    if kind == "double":
        return float(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(
            int(number) if number.is_integer() and abs(number) < 2**53 else number
        )  # 5 and 5.0 have one text, whichever the column held before
    return _text(value) if isinstance(value, str) else str(value)
