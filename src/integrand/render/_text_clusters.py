"""What a reader takes for one sign may be several characters: accents, flags, families of emoji. They are not to be cut."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Span = tuple[int, int]

_JOINER = "\u200d"


def clusters(text: str) -> list[Span]:
    r"""Where each sign begins and ends: marks, joiners, skin tones and tags belong to what they follow, flags are pairs.

    A subset of Unicode's extended grapheme clusters (UAX 29): all but the rules for Hangul written in single letters and
    for Indic conjuncts.

    >>> clusters("e\u0301a")
    [(0, 2), (2, 3)]
    >>> len(clusters("\U0001f469\u200d\U0001f4bb\U0001f1ec\U0001f1ed"))
    2
    """
    starts: list[int] = []
    flag = False  # whether the sign before is half a flag
    for i, sign in enumerate(text):
        half = 0x1F1E6 <= ord(sign) <= 0x1F1FF
        before = text[i - 1] if i else ""
        goes_on = bool(before) and (_extends(sign) or _joined(before, sign) or (half and flag) or before + sign == "\r\n")
        if not goes_on:
            starts.append(i)
        flag = half and not (half and flag)
    return list(zip(starts, [*starts, len(text)][1:], strict=True))


def _extends(sign: str) -> bool:
    code = ord(sign)
    tone, tag = 0x1F3FB <= code <= 0x1F3FF, 0xE0020 <= code <= 0xE007F
    return sign in (_JOINER, "\u200c") or tone or tag or unicodedata.category(sign) in ("Mn", "Me", "Mc")


def _joined(before: str, sign: str) -> bool:
    """Whether a joiner ties this picture to what stands before it; letters after a joiner begin anew."""
    return before == _JOINER and unicodedata.category(sign) in ("So", "Sk", "Sm")


def snapped(spans: Sequence[Span], text: str) -> list[Span]:
    """Spans widened to whole signs of the text; empty ones stay empty."""
    found = clusters(text)
    starts, ends = [a for a, _ in found], [b for _, b in found]
    out = []
    for start, end in spans:
        if end <= start or not found:
            out.append((start, start))
            continue
        first = starts[max(0, bisect_right(starts, start) - 1)]
        last = ends[min(len(ends) - 1, bisect_left(ends, end))]
        out.append((first, last))
    return out


def right_to_left(text: str) -> bool:
    r"""Whether a text is read from the right: by its first letter that has a direction, as browsers find it.

    >>> right_to_left("123 \u05e9\u05dc\u05d5\u05dd"), right_to_left("abc \u05d0")
    (True, False)
    """
    return bool(direction(text))


def direction(text: str) -> bool | None:
    r"""True for what is read from the right, False for what is not, None where no letter tells.

    >>> direction("\u05d0"), direction("a"), direction("?!")
    (True, False, None)
    """
    for sign in text:
        kind = unicodedata.bidirectional(sign)
        if kind in ("R", "AL"):
            return True
        if kind == "L":
            return False
    return None


def printable(text: str) -> str:
    r"""A text whose control characters are signs that can be seen, so that a terminal does not obey them.

    >>> printable("a\x1b[31mb")
    'a␛[31mb'
    """
    return "".join(_seen(sign) for sign in text)


def _seen(sign: str) -> str:
    code = ord(sign)
    if code == 0x7F:
        return "\u2421"
    if code < 0x20:
        return " " if sign in "\t\n\r" else chr(0x2400 + code)
    return "\ufffd" if 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 else sign
