"""Results of texts as JSON, for the tables of many inputs: everything that is needed to draw a result again.

What is read is checked against the dataclasses below (:mod:`integrand.schema`) before anything is made of it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...certificate import Certificate, ExampleCertificate, Promise
from ...errors import FileError, InputError
from ...render.text.tokens import Tokens
from ...schema import Sized, Within, fitted, parsed
from .encoding import Pieces
from .result import Explained, Explanations, Generated

_T = TypeVar("_T")

Place = Annotated[int, Within(0, 2**31)]
"""A number of a character, a token or a column."""

Pair = Annotated[tuple[Place, ...], Sized(2, 2)]
"""Where something begins and ends."""


@dataclass(frozen=True, slots=True)
class StoredChoice:
    """One of the answers that a model could have given, with its probability."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class StoredLine:
    """The tokens of a text with their attributions; the fields are those of :class:`~integrand.render.text.Tokens`."""

    texts: tuple[str, ...]
    values: tuple[float, ...]
    spans: tuple[Pair, ...] | None
    label: str
    score: float
    baseline_score: float
    probability: float | None
    note: str
    certificate: ExampleCertificate | None
    text: str | None
    meaning: str
    choices: tuple[StoredChoice, ...]
    errors: tuple[float, ...] | None
    notes: tuple[str, ...]

    @staticmethod
    def of(line: Tokens) -> StoredLine:
        """The tokens as they are kept."""
        return StoredLine(
            tuple(line.texts),
            tuple(line.values),
            None if line.spans is None else tuple(line.spans),
            line.label,
            line.score,
            line.baseline_score,
            line.probability,
            line.note,
            line.certificate,
            line.text,
            line.meaning,
            tuple(StoredChoice(name, share) for name, share in line.choices),
            None if line.errors is None else tuple(line.errors),
            tuple(line.notes),
        )

    def line(self) -> Tokens:
        """The same tokens, to be drawn."""
        return Tokens(
            self.texts,
            self.values,
            _spans(self.spans),
            label=self.label,
            score=self.score,
            baseline_score=self.baseline_score,
            probability=self.probability,
            note=self.note,
            certificate=self.certificate,
            text=self.text,
            meaning=self.meaning,
            choices=[(one.name, one.share) for one in self.choices],
            errors=self.errors,
            notes=self.notes,
        )


@dataclass(frozen=True, slots=True)
class StoredText:
    """An explained text; the fields are those of :class:`~integrand.text.Explained`."""

    kind: Literal["text"]
    line: StoredLine
    special: tuple[bool, ...]
    parts: tuple[int, ...]
    meta: dict[str, str]

    @staticmethod
    def of(found: Explained) -> StoredText:
        """A result as it is kept."""
        return StoredText("text", StoredLine.of(found.line), found.special, found.parts, found.meta)

    def found(self) -> Explained:
        """The same result."""
        _same("tokens, markers and parts", (len(self.line.texts), len(self.special), len(self.parts)))
        return Explained(self.line.line(), self.special, self.parts, self.meta)


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """Several explained texts that are one input, such as the two sentences whose similarity is explained."""

    kind: Literal["texts"]
    texts: Annotated[tuple[StoredText, ...], Sized(1)]

    @staticmethod
    def of(found: Explanations) -> StoredTexts:
        """A result as it is kept."""
        return StoredTexts("texts", tuple(StoredText.of(one) for one in found))

    def found(self) -> Explanations:
        """The same result."""
        return Explanations(tuple(one.found() for one in self.texts))


@dataclass(frozen=True, slots=True)
class StoredPieces:
    """The tokens of a text; the fields are those of ``Pieces``."""

    texts: tuple[str, ...]
    spans: tuple[Pair, ...] | None
    text: str
    special: tuple[bool, ...]
    parts: tuple[int, ...]
    columns: tuple[Place, ...]
    ids: tuple[int, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(pieces: Pieces) -> StoredPieces:
        """The tokens as they are kept."""
        return StoredPieces(
            pieces.texts,
            pieces.spans,
            pieces.text,
            pieces.special,
            pieces.parts,
            pieces.columns,
            pieces.ids,
            pieces.notes,
        )

    def pieces(self) -> Pieces:
        """The same tokens."""
        each = (self.texts, self.special, self.parts, self.columns, self.ids, *([] if self.spans is None else [self.spans]))
        _same("tokens and what is known of each", map(len, each))
        if any(not start <= end <= len(self.text) for start, end in self.spans or ()):
            raise InputError(f"a token ends beyond the {len(self.text)} characters of the text")
        return Pieces(self.texts, _spans(self.spans), self.text, self.special, self.parts, self.columns, self.ids, self.notes)


@dataclass(frozen=True, slots=True)
class StoredGrid:
    """A generated text, or a translation; the fields are those of :class:`~integrand.text.Generated`, and what was said."""

    kind: Literal["generated", "translation"]
    text: str
    written: str
    inputs: StoredPieces
    outputs: Annotated[tuple[str, ...], Sized(1)]
    spelled: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    reach: tuple[Place, ...]
    prompt: Place
    probabilities: tuple[float, ...]
    examples: tuple[ExampleCertificate, ...]
    promises: tuple[Promise, ...]
    meta: dict[str, str]
    against: str | None
    summed: tuple[Place, ...]
    errors: tuple[tuple[float, ...], ...] | None

    @staticmethod
    def of(
        found: Generated, *, kind: Literal["generated", "translation"] = "generated", text: str = "", written: str = ""
    ) -> StoredGrid:
        """A result as it is kept.

        Args:
            found: outputs by inputs.
            kind: what it is.
            text: what was translated.
            written: the translation.
        """
        return StoredGrid(
            kind,
            text,
            written,
            StoredPieces.of(found.inputs),
            found.outputs,
            found.spelled,
            found.values.tolist(),
            found.reach,
            found.prompt,
            found.probabilities,
            found.certificate.examples,
            found.certificate.promises,
            found.meta,
            found.against,
            found.summed,
            None if found.errors is None else found.errors.tolist(),
        )

    def found(self) -> Generated:
        """The same result."""
        outputs = (self.outputs, self.spelled, self.values, self.reach, self.probabilities, self.examples)
        more = [each for each in (self.summed or None, self.errors) if each is not None]
        _same("outputs and what is known of each", map(len, (*outputs, *more)))
        wide = len(self.inputs.texts)
        _same("inputs and values of each output", (wide, *map(len, self.values), *map(len, self.errors or ())))
        if self.prompt > wide or any(not 0 < reach <= wide for reach in self.reach):
            raise InputError(f"an output reaches beyond the {wide} inputs")
        return Generated(
            self.inputs.pieces(),
            self.outputs,
            self.spelled,
            _matrix(self.values),
            self.reach,
            self.prompt,
            self.probabilities,
            Certificate(self.examples, self.promises),
            self.meta,
            self.against,
            self.summed,
            None if self.errors is None else _matrix(self.errors),
        )


def packed(record: object) -> str:
    """One of the dataclasses of this module as JSON, as :func:`integrand.schema.stored` has it, in half the time."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> Any:
    """What JSON does not know, one level deep: enumerations by name, dataclasses by field."""
    if isinstance(value, enum.Enum):
        return value.name
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def unpacked(kind: type[_T], details: str | None, *, what: str = "the column details") -> _T:
    """One of the dataclasses of this module from JSON; every value is checked.

    Args:
        kind: which of them.
        details: the JSON.
        what: where it is, for the error.

    Raises:
        FileError: it is not what it should be.
    """
    if details is None:
        raise FileError(f"{what} has nothing in this row; expected what a result is drawn from.")
    return fitted(kind, parsed(details, what=what), what=what)


def result_of(details: str | None, *, what: str = "the column details") -> Explained | Explanations | Generated:
    """The result that a row of a table was made of, to be drawn again.

    Args:
        details: the column ``details`` of the row.
        what: where it is, for the error.

    Raises:
        FileError: it is not what :meth:`~integrand.text.Explained.row` and its kin write.
    """
    if details is None:
        raise FileError(f"{what} has nothing in this row; expected what a result is drawn from.")
    read = parsed(details, what=what)
    kinds: dict[Any, Any] = {"text": StoredText, "texts": StoredTexts, "generated": StoredGrid}
    told = read.get("kind") if isinstance(read, dict) else None
    kind = kinds.get(told) if isinstance(told, str) else None
    if kind is None:
        raise FileError(f"{what} is of no kind that is known here; expected one of {', '.join(kinds)}.")
    return checked(fitted(kind, read, what=what), what=what)  # type: ignore[no-any-return]


def checked(record: Any, *, what: str = "the column details") -> Any:
    """The result of a record; parts of it that contradict each other are an error of the file."""
    try:
        return record.found()
    except InputError as error:
        raise FileError(f"{what} contradicts itself: {error}") from None


def _same(what: str, counts: Iterable[int]) -> None:
    found = list(counts)
    if len(set(found)) > 1:
        raise InputError(f"got {', '.join(map(str, found))} of {what}; expected as many of each")


def _spans(spans: Iterable[tuple[int, ...]] | None) -> tuple[tuple[int, int], ...] | None:
    return None if spans is None else tuple((start, end) for start, end in spans)


def _matrix(rows: tuple[tuple[float, ...], ...]) -> NDArray[np.float64]:
    return np.array(rows, np.float64).reshape(len(rows), -1)
