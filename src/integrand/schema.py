"""What a file says, checked against the annotations of a dataclass before anything is made of it.

The dataclasses are the schema: their annotations say which fields there are, of which types and within which limits
(``Annotated[int, Within(0)]``), and what has a default may be missing. Nothing in a file is ever executed, and what does not
fit is refused with its place, what it is and what was expected.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .errors import FileError
from .words import shown

LONGEST_TEXT = 1 << 20
"""The most characters that one text in a file may have."""

MOST_PARTS = 1 << 23
"""The most values of a JSON text; it could otherwise take 25 times its own size in memory."""

_T = TypeVar("_T")

_Check = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Within:
    """The limits of a number, both ends included.

    Attributes:
        least: the smallest it may be.
        most: the largest it may be.
        known: whether it has to be a finite number; otherwise NaN, for what is not known, passes too.
    """

    least: float = -math.inf
    most: float = math.inf
    known: bool = False

    def __str__(self) -> str:
        if self.least > -math.inf and self.most < 2**53:
            return f" from {self.least:.10g} to {self.most:.10g}"
        return f" from {self.least:.10g} on" if self.least > -math.inf else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Among:
    """The values that a text may have."""

    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sized:
    """How many entries a list or a mapping may have, both ends included."""

    least: int = 0
    most: int = 1 << 62


class _UnfitError(Exception):
    """Something in a file does not fit; the place is completed on the way out."""

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(got, expected)
        self.got, self.expected, self.place = got, expected, ""


def parsed(text: str | bytes, *, what: str, once: bool = True) -> Any:
    """JSON from outside: no name twice in one object, nesting that Python can follow, and not too much of it.

    Args:
        text: the JSON text.
        what: what it is of, for the error.
        once: whether a name that an object has twice is refused; otherwise the last one counts, as for most readers.
    """
    try:
        read = text.decode() if isinstance(text, bytes) else text
        parts = sum(read.count(sign) for sign in "[{,")
        if parts <= MOST_PARTS:
            return json.loads(read, object_pairs_hook=_once if once else None)
    except (ValueError, RecursionError, MemoryError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else shown(str(error))
        raise FileError(f"{what} is not what it should be: {why}. Expected JSON.") from None
    raise FileError(f"{what} has about {parts} values; expected at most {MOST_PARTS}. Split it.")


def fitted(kind: type[_T], value: object, *, what: str) -> _T:
    """A value that came from JSON as what it should be: a dataclass is made of a mapping of its fields.

    >>> fitted(tuple[Annotated[int, Within(0)], ...], [1, 2], what="the file: counts")
    (1, 2)
    >>> fitted(tuple[Annotated[int, Within(0)], ...], [1, "2"], what="the file: counts")
    Traceback (most recent call last):
    integrand.errors.FileError: the file: counts[1] is '2'; expected a whole number from 0 on.

    Args:
        kind: the type: a dataclass, an enumeration (by name), bool, int, float, str, None, Literal, a union, a tuple of any
            length, a dict with texts for keys, or one of these with limits in Annotated.
        value: what JSON holds.
        what: where it is, for the error: the name of a file and of a part of it.

    Raises:
        FileError: it does not fit.
    """
    try:
        return cast(_T, _check_of(cast(Any, kind))(value))
    except _UnfitError as error:
        raise FileError(f"{what}{error.place} is {error.got}; expected {error.expected}.") from None


def stored(value: object) -> Any:
    """A value as JSON holds it, from which :func:`fitted` makes it again: enumerations by name, dataclasses by field."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: stored(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [stored(part) for part in value]
    if isinstance(value, Mapping):
        return {key: stored(part) for key, part in value.items()}
    return value


def said(value: object, most: int = 60) -> str:
    """A value from a file in an error message: its beginning, with nothing that a terminal would obey."""
    if isinstance(value, (dict, list)):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value)}" if value else f"an empty {kind.split()[1]}"
    if isinstance(value, str):
        value = value[: most + 1]  # repr of a whole text would take as much again
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**most:
        return "a number of very many digits"
    text = shown(repr(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in pairs:
        if name in found:
            raise ValueError(f"the name {said(name)} comes twice in an object")
        found[name] = part
    return found


@cache
def _check_of(kind: Any) -> _Check:
    """The function that checks and converts values of a type."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _limited(inside[0], inside[1:])
    if origin in (Union, types.UnionType):
        return _union(inside)
    if origin is Literal:
        return _among(inside)
    if origin is tuple:
        return _list(inside)
    if origin is dict:
        return _mapping(inside[1])
    if dataclasses.is_dataclass(kind):
        return _fields(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _member(kind)
    return _SIMPLE[kind]


def _unfit(value: object, expected: str) -> NoReturn:
    raise _UnfitError(said(value), expected)


def _limited(kind: Any, limits: Iterable[Any]) -> _Check:
    """A type with limits: those of numbers, texts among some, or lists that are not empty."""
    base = _check_of(kind)
    for limit in limits:
        if isinstance(limit, Within):
            base = _within(base, limit)
        elif isinstance(limit, Among):
            base = _among(limit.values)
        elif isinstance(limit, Sized):
            base = _sized(base, limit)
    return base


def _within(base: _Check, limit: Within) -> _Check:
    def check(value: Any) -> Any:
        try:
            number = base(value)
        except _UnfitError as error:
            error.expected += str(limit)
            raise
        if number < limit.least or number > limit.most or (limit.known and not math.isfinite(number)):
            kind = "a whole number" if isinstance(number, int) else "a finite number" if limit.known else "a number"
            _unfit(value, f"{kind}{limit}")
        return number

    return check


def _sized(base: _Check, limit: Sized) -> _Check:
    def check(value: Any) -> Any:
        found = base(value)
        if len(found) < limit.least:
            _unfit(value, f"at least {limit.least} of them")
        return found if len(found) <= limit.most else _unfit(value, f"at most {limit.most} of them")

    return check


def _among(values: tuple[Any, ...]) -> _Check:
    expected = "one of " + ", ".join(map(repr, values))

    def check(value: Any) -> Any:
        return value if isinstance(value, str) and value in values else _unfit(value, expected)

    return check


def _union(kinds: tuple[Any, ...]) -> _Check:
    """``X | None``, the only union that files have."""
    (other,) = (kind for kind in kinds if kind is not types.NoneType)
    base = _check_of(other)

    def check(value: Any) -> Any:
        if value is None:
            return None
        try:
            return base(value)
        except _UnfitError as error:
            error.expected += " or null" if not error.place else ""
            raise

    return check


def _list(inside: tuple[Any, ...]) -> _Check:
    assert inside[1:] == (Ellipsis,), inside
    base = _check_of(inside[0])

    def check(value: Any) -> Any:
        if not isinstance(value, list):
            _unfit(value, "a list")
        found = []
        try:
            for part in value:
                found.append(base(part))  # how many there are says where it failed
        except _UnfitError as error:
            error.place = f"[{len(found)}]{error.place}"
            raise
        return tuple(found)

    return check


def _mapping(kind: Any) -> _Check:
    base = _check_of(kind)

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            _unfit(value, "an object")
        found, name = {}, ""
        try:
            for name, part in value.items():
                found[_text(name)] = base(part)
        except _UnfitError as error:
            error.place = f"[{said(name)}]{error.place}"
            raise
        return found

    return check


def _fields(kind: Any) -> _Check:
    """The fields of a dataclass, by its annotations; those with a default may be missing, and there are no others."""
    hints = get_type_hints(kind, include_extras=True)
    checks = {part.name: _check_of(hints[part.name]) for part in dataclasses.fields(kind)}
    needed = {part.name for part in dataclasses.fields(kind) if _has_no_default(part)}

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            _unfit(value, f"an object with the fields {', '.join(checks)}")
        if not value.keys() <= checks.keys():
            name = next(name for name in value if name not in checks)
            known = "only fields that this version knows; update integrand to read what a newer one has written"
            raise _UnfitError(f"an object with the field {said(name)}", known)
        if not needed <= value.keys():
            name = next(name for name in checks if name in needed and name not in value)
            raise _UnfitError(f"an object without the field {name!r}", f"the fields {', '.join(checks)}")
        found, name = {}, ""
        try:
            for name, part in value.items():
                found[name] = checks[name](part)
        except _UnfitError as error:
            error.place = f".{name}{error.place}"
            raise
        return kind(**found)

    return check


def _has_no_default(part: dataclasses.Field[Any]) -> bool:
    return part.default is dataclasses.MISSING and part.default_factory is dataclasses.MISSING


def _member(kind: type[enum.Enum]) -> _Check:
    named = _among(tuple(kind.__members__))
    return lambda value: kind[named(value)]


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _unfit(value, "a whole number")


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        _unfit(value, "a number")
    try:
        return float(value)
    except OverflowError:
        _unfit(value, "a number that fits into 64 bits")


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        _unfit(value, "a text")
    return value if len(value) <= LONGEST_TEXT else _unfit(value, f"a text of at most {LONGEST_TEXT} characters")


_SIMPLE: dict[Any, _Check] = {
    bool: lambda value: value if isinstance(value, bool) else _unfit(value, "true or false"),
    int: _whole,
    float: _number,
    str: _text,
}
