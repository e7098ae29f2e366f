"""Numbers, lists and names as text for people. A leaf: the certificate prints itself with these."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

_OBEYED = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_NOT_SHOWN, _NOT_IN_LINES = re.compile(f"[\t\n{_OBEYED}]"), re.compile(f"[{_OBEYED}]")
"""Characters that a terminal or a page would obey rather than show, and bytes of a file's name that are no text."""


def shown(text: str, *, lines: bool = False) -> str:
    r"""A text that came from outside, such as the name of a file, so that a terminal shows all of it and obeys none of it.

    Args:
        text: what came from outside.
        lines: whether it may have several lines, and tabs.

    >>> print(shown("cat\x1b[2J.jpg"), shown(b"caf\xe9.png".decode(errors="surrogateescape")))
    cat\x1b[2J.jpg caf\xe9.png
    """
    return (_NOT_IN_LINES if lines else _NOT_SHOWN).sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python spells a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shortened(text: str, most: int) -> str:
    """A text cut to at most so many characters, with an ellipsis where it is cut.

    >>> shortened("a long name of a network", 12), shortened("lite0", 12)
    ('a long name…', 'lite0')
    """
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def short_repr(value: object, most: int = 400) -> str:
    """A short text for any result, to be its ``__repr__``: its sentence, the first lines of its own text, or its fields.

    Args:
        value: a dataclass; arrays and tensors in it are told by their shapes, and what holds many things by how many.
        most: the most characters.
    """
    said = getattr(value, "sentence", None)
    if isinstance(said, str):
        return shortened(shown(said), most)
    if type(value).__str__ is not object.__str__:
        text = str(value)
        lines = text.splitlines() or [""]
        kept = "\n".join(shortened(line, 120) for line in lines[:4])
        return shortened(kept, most - 2) + ("\n…" if len(lines) > 4 else "")
    parts = [f"{field.name}={_told(getattr(value, field.name, None))}" for field in dataclasses.fields(value)]  # type: ignore[arg-type]
    return shortened(f"{type(value).__name__}({', '.join(parts)})", most)


def _told(value: Any) -> str:
    """The value of a field in a few words."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__}{tuple(value.shape)}"
    if isinstance(value, (str, bytes)):
        return shortened(repr(value), 60)
    if isinstance(value, (tuple, list, dict, set, frozenset)):
        return shortened(repr(value), 60) if len(value) < 4 and not dataclasses.is_dataclass(value) else f"<{len(value)}>"
    if dataclasses.is_dataclass(value) or callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    return shortened(shown(repr(value)), 60)


def first_line(error: BaseException) -> str:
    r"""The first line of what another package's error says, for a message of ours; the name of its kind if it says nothing.

    >>> first_line(ValueError("no such thing\nand much more")), first_line(KeyError())
    ('no such thing', 'KeyError')
    """
    return shown((str(error).strip() or type(error).__name__).splitlines()[0][:300])


def byte_size(count: int) -> str:
    """A number of bytes for people.

    >>> byte_size(5), byte_size(1536), byte_size(3 << 30), byte_size(1 << 50)
    ('5 bytes', '1.5 KiB', '3 GiB', '1,024 TiB')
    """
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            share = min(count / size, 1e6)
            return f"{share:,.0f} {unit}" if share >= 100 else f"{share:.3g} {unit}"
    return f"{count} bytes"


def cell(text: str) -> str:
    """A text for a cell of a table, so that a spreadsheet does not take it for a formula: those begin with =, +, - or @.

    >>> cell("=1+1"), cell("aspirin"), cell("-0.5")
    ("'=1+1", 'aspirin', '-0.5')
    """
    if not text.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) and not text.startswith(("\t", "\r", "\n")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table whose texts no spreadsheet takes for formulas; see :func:`cell`."""
    return {key: cell(value) if isinstance(value, str) else value for key, value in row.items()}


def number(value: float | None, digits: int = 4) -> str:
    """A number for people."""
    return "?" if value is None else f"{value:.{digits}g}"


def plus_minus(value: float, error: float) -> str:
    """A number with its sign and its error, for people, to as many digits as the error leaves (four at the most).

    The error is rounded up. Where it is not known, that is said.

    >>> plus_minus(0.0314, 0.0037), plus_minus(-1234.5, 31.0), plus_minus(0.0314, math.nan)
    ('+0.031 ± 0.004', '−1,230 ± 40', '+0.031 (error not known)')
    >>> plus_minus(0.5, 1e-9), plus_minus(0.004, 0.03), plus_minus(-2.5e-7, 1.2e-8), plus_minus(math.nan, 0.1)
    ('+0.5000 ± 0.0001', '0.00 ± 0.03', '−2.50e-07 ± 0.12e-07', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    known = math.isfinite(error)
    largest = max(abs(value), error) if known else abs(value)
    power = 0 if largest == 0 or 1e-4 <= largest < 1e6 else math.floor(math.log10(largest))
    value, error, suffix = value / 10.0**power, error / 10.0**power, f"e{power:+03d}" if power else ""
    # The place of the last digit: the value's fourth or second, or the error's first (its second where it begins with 1).
    last = math.floor(math.log10(abs(value))) - (3 if known else 1) if value else -3
    if known and error > 0:
        first = math.floor(math.log10(error))
        last = max(last, first - (error < 1.95 * 10.0**first))
    unit, digits = 10.0**last, max(0, -last)
    rounded = round(value / unit) * unit
    text = f"{rounded:{'+' if rounded else ''},.{digits}f}".replace("-", "−") + suffix
    if not known:
        return f"{text} (error not known)"
    return f"{text} ± {math.ceil(error / unit - 1e-9) * unit:,.{digits}f}{suffix}"


def percent(value: float) -> str:
    """A share as a percentage of any size, for people.

    >>> percent(0.0124), percent(0.114), percent(0.999), percent(1.0), percent(13.08)
    ('1.2%', '11%', '99.9%', '100%', '1308%')
    """
    if math.isnan(value):
        return "unknown"
    if 0.995 <= abs(value) < 1:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.2g}%" if abs(value) < 0.095 else f"{100 * value:.0f}%"


def finite(value: Any) -> Any:
    """Numbers as JSON has them: None for what is NaN or infinite.

    >>> finite({"sizes": [1.0, math.nan]})
    {'sizes': [1.0, None]}
    """
    if hasattr(value, "tolist"):  # an array; numpy itself is not imported here, so that help and errors come at once
        value = value.tolist()
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def share_of(value: float) -> str:
    """A gap as a share of the score's change, for people.

    >>> share_of(0.0), share_of(1e-7), share_of(0.0123), share_of(5.2), share_of(3466.0), share_of(math.inf)
    ('0%', '<0.01%', '1.2%', '520%', '3466 times', 'all: no change')
    """
    if math.isinf(value):
        return "all: no change"
    if 0 < value < 1e-4:
        return "<0.01%"
    if value >= 10:
        return f"{value:.0f} times"
    return f"{100 * value:.2g}%" if value < 0.1 else f"{100 * value:.0f}%"


def seconds(value: float) -> str:
    """A time for people.

    >>> seconds(0.0123), seconds(2.345), seconds(187.2), seconds(math.nan)
    ('0.012 s', '2.3 s', '187 s', '? s')
    """
    return "? s" if math.isnan(value) else f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
