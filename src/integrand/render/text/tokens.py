"""Tokens with their attributions, in the form that every picture of a text takes."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...certificate import ExampleCertificate
from ...errors import InputError, OptionError
from ...words import finite, short_repr

NAN = math.nan

_MARKS = ("▁", "Ġ")
"""The characters that tokenizers put before the first piece of a word."""

Span = tuple[int, int]

_JOINER = "\u200d"


@dataclass(frozen=True)
class Tokens:
    """A text in tokens, with the attribution of each token.

    Attributes:
        texts: the tokens: words, or word pieces.
        values: the attribution of each; one that is not finite is marked as such, and nothing adds up then.
        spans: the position of each in the text, (start, end) in characters; (i, i) for a marker that is not in the text. None
            where that is not known.
        label: what the model said, in words.
        score: F(x).
        baseline_score: F(x'): where the running sum begins.
        probability: the probability of the label.
        note: a remark shown below the text.
        certificate: how far the values can be trusted.
        text: the text itself, which is then shown as it is, gaps included. Needs ``spans``.
        meaning: what the label says in the reader's words, to follow "it": "asks for a number".
        choices: everything that the model could have said, each in the reader's words with its probability.
        errors: the estimated error of each value, where it is known.
        notes: what a reader must not miss, such as words that the model never saw.
    """

    texts: Sequence[str]
    values: Sequence[float]
    spans: Sequence[Span] | None = None
    label: str = ""
    score: float = NAN
    baseline_score: float = NAN
    probability: float | None = None
    note: str = ""
    certificate: ExampleCertificate | None = None
    text: str | None = None
    meaning: str = ""
    choices: Sequence[tuple[str, float]] = ()
    errors: Sequence[float] | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        values = tuple(float(value) for value in self.values)
        spans = None if self.spans is None else tuple((int(start), int(end)) for start, end in self.spans)
        object.__setattr__(self, "texts", tuple(map(str, self.texts)))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "spans", spans)
        if len(values) != len(self.texts):
            raise InputError(f"got {len(values)} values for {len(self.texts)} tokens; expected one for each.")
        if spans is not None and len(spans) != len(self.texts):
            raise InputError(f"got {len(spans)} spans for {len(self.texts)} tokens; expected one for each.")
        if self.text is not None and spans is None:
            raise InputError("got a text without spans; expected where each token stands in it, (start, end) in characters.")
        if self.errors is not None and len(self.errors) != len(self.texts):
            raise InputError(f"got {len(self.errors)} errors for {len(self.texts)} tokens; expected one for each.")
        ends = [end for _, end in spans or ()]
        if self.text is not None and ends and max(ends) > len(self.text):
            raise InputError(f"got a span that ends at {max(ends)} in a text of {len(self.text)} characters.")

    @property
    def total(self) -> float:
        """The sum of the tokens' attributions; NaN where one of them is not finite."""
        return math.fsum(self.values) if all(map(math.isfinite, self.values)) else NAN

    @property
    def start(self) -> float:
        """Where the running sum begins: F(x'), or 0 where it is not known."""
        return self.baseline_score if math.isfinite(self.baseline_score) else 0.0

    @property
    def running(self) -> tuple[float, ...]:
        """The running sum: F(x') first, then the sum after each token. Tokens whose value is not finite add nothing."""
        known = [value if math.isfinite(value) else 0.0 for value in self.values]
        return tuple(math.fsum([self.start, *known[:k]]) for k in range(len(known) + 1))

    @property
    def missed(self) -> float:
        """How far the sum is off: the end of the running sum minus F(x). NaN where F(x) is not known."""
        return self.running[-1] - self.score

    @cached_property
    def pieces(self) -> tuple[TextPiece, ...]:
        """The pieces to draw: each token with the gap before it. Tokens that share a character (half an emoji each) are one."""
        if self.spans is None:
            shown = _without_spans(self.texts)
            return tuple(
                TextPiece(gap, text, v, (i,)) for i, ((gap, text), v) in enumerate(zip(shown, self.values, strict=True))
            )
        return _with_spans(self, snapped(self.spans, self.text) if self.text is not None else list(self.spans))

    @property
    def tail(self) -> str:
        """The part of the text after the last token."""
        return (
            "" if self.text is None else self.text[max((end for _, end in snapped(self.spans or (), self.text)), default=0) :]
        )

    def joined(self, groups: Sequence[int | None] | None = None) -> Tokens:
        """Join word pieces into words; a word's value is the sum of its pieces' values, so the total stays the same.

        Args:
            groups: the word that each token belongs to (tokenizers call it ``word_ids``); None for one that stands alone.
                Neighbours of the same number are joined. By default pieces are joined that touch in the text and are both
                of letters or digits; without spans, as the marks of word pieces say (``##ing``, ``▁word``, ``Ġword``).
        """
        if groups is not None and len(groups) != len(self.texts):
            raise OptionError(f"got {len(groups)} groups for {len(self.texts)} tokens; expected one for each.")
        goes_on = [False] * len(self.texts)
        for i in range(1, len(self.texts)):
            if groups is not None:
                goes_on[i] = groups[i] is not None and groups[i] == groups[i - 1]
            else:
                goes_on[i] = _touching(self, i) if self.spans is not None else _continues(self.texts, i)
        starts = [i for i, on in enumerate(goes_on) if not on]
        runs = [range(a, b) for a, b in zip(starts, [*starts, len(goes_on)][1:], strict=True)]
        spans = None if self.spans is None else [_hull([self.spans[i] for i in run]) for run in runs]
        values = [_sum([self.values[i] for i in run]) for run in runs]
        errors = None if self.errors is None else [_sum([self.errors[i] for i in run]) for run in runs]  # at worst they add up
        return replace(self, texts=[_word(self, run) for run in runs], values=values, spans=spans, errors=errors)

    def numbers(self) -> dict[str, Any]:
        """The tokens, scores and certificate as a dictionary for JSON; numbers that are not finite become null."""
        spans: Sequence[Span | None] = self.spans if self.spans is not None else [None] * len(self.texts)
        rows = [
            {"text": text, "value": finite(value), "span": None if span is None else list(span)}
            for text, value, span in zip(self.texts, self.values, spans, strict=True)
        ]
        if self.errors is not None:
            rows = [row | {"error": finite(error)} for row, error in zip(rows, self.errors, strict=True)]
        out: dict[str, Any] = {"text": self.text, "label": self.label, "probability": finite(self.probability)}
        out |= {"sentence": self.sentence, "tokens": rows}
        if self.choices:
            out["choices"] = [{"text": name, "probability": finite(chance)} for name, chance in self.choices]
        out |= {"notes": list(self.notes)} if self.notes else {}
        out |= {"score": finite(self.score), "baseline_score": finite(self.baseline_score), "sum": finite(self.total)}
        if self.certificate is not None:
            one = self.certificate
            out["certificate"] = {"status": one.status.value, "error": finite(one.error), "tol": finite(one.tol)}
            out["certificate"] |= {"residual": finite(one.residual), "gradients": one.gradients, "target": one.target}
        return out | ({"note": self.note} if self.note else {})

    __repr__ = short_repr

    @property
    def sentence(self) -> str:
        """What the model said, which words made it so, and how sure the numbers are, in one line."""
        from .word_sentences import sentence

        return sentence(self)

    def __str__(self) -> str:
        from .word_markup import line

        return line(self, colour=False)

    def _repr_html_(self) -> str:
        from .word_markup import fragment

        return fragment([self])


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One piece of a text to draw: the gap before it, the text shown, its value and the tokens it stands for."""

    gap: str
    shown: str
    value: float
    tokens: tuple[int, ...]
    marker: bool = False


def is_letter(sign: str) -> bool:
    """Whether a character is part of a word: a letter, a digit, an accent or a joiner."""
    import unicodedata

    return bool(sign) and (sign.isalnum() or unicodedata.category(sign)[0] == "M" or sign in "\u200c\u200d_")


def clusters(text: str) -> list[Span]:
    r"""The (start, end) of each visible character: marks, joiners and skin tones belong to what they follow, flags are pairs.

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


def snapped(spans: Sequence[Span], text: str) -> list[Span]:
    """Spans widened to whole visible characters of the text; empty spans stay empty."""
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
    r"""Whether a text is read from right to left, decided by its first letter with a direction, as browsers do.

    >>> right_to_left("123 \u05e9\u05dc\u05d5\u05dd"), right_to_left("abc \u05d0")
    (True, False)
    """
    return bool(direction(text))


def direction(text: str) -> bool | None:
    r"""True for a text that is read from right to left, False for left to right, None where no letter decides.

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
    r"""The text with control characters replaced by visible symbols, so that a terminal does not obey them.

    >>> printable("a\x1b[31mb")
    'a␛[31mb'
    """
    return "".join(_seen(sign) for sign in text)


def _with_spans(tokens: Tokens, spans: list[Span]) -> tuple[TextPiece, ...]:
    out: list[TextPiece] = []
    at = 0
    for i, ((start, end), text, value) in enumerate(zip(spans, tokens.texts, tokens.values, strict=True)):
        if end <= start:  # a marker, such as [CLS], is not in the text
            out.append(TextPiece(" " if out else "", text, value, (i,), marker=True))
            continue
        if start < at and out and not out[-1].marker:
            last = out[-1]
            more = "" if tokens.text is None else tokens.text[at:end]
            out[-1] = TextPiece(last.gap, last.shown + more, _sum([last.value, value]), (*last.tokens, i))
        else:
            start = max(start, at)
            between = " " * (start > at) if tokens.text is None else tokens.text[at:start]
            gap = between or (" " if out and out[-1].marker else "")
            out.append(TextPiece(gap, text if tokens.text is None else tokens.text[start:end], value, (i,)))
        at = max(at, end)
    return tuple(out)


def _without_spans(texts: Sequence[str]) -> list[tuple[str, str]]:
    """For tokens without spans: the gap before each token, and the text shown for it."""
    out = []
    for i, text in enumerate(texts):
        on = i > 0 and _continues(texts, i)
        out.append(("" if on or i == 0 else " ", _bare(text, on)))
    return out


def _bare(text: str, on: bool) -> str:
    shown = text[2:] if on and text.startswith("##") else text.lstrip("".join(_MARKS))
    return shown or text


def _continues(texts: Sequence[str], i: int) -> bool:
    """Whether token i continues the word before it, judged by the marks of word pieces."""
    if texts[i].startswith("##"):
        return len(texts[i]) > 2
    marked = any(text.startswith(_MARKS) for text in texts)
    special = [text.startswith(("<", "[")) and text.endswith((">", "]")) for text in (texts[i - 1], texts[i])]
    return marked and not texts[i].startswith(_MARKS) and not any(special)


def _touching(tokens: Tokens, i: int) -> bool:
    assert tokens.spans is not None
    (a, b), (c, d) = tokens.spans[i - 1], tokens.spans[i]
    if b <= a or d <= c:
        return False
    if c < b:  # both are parts of one sign
        return True
    text = tokens.text
    left, right = (tokens.texts[i - 1][-1:], _bare(tokens.texts[i], True)[:1]) if text is None else (text[b - 1], text[c])
    return c == b and is_letter(left) and is_letter(right)


def _hull(spans: Sequence[Span]) -> Span:
    real = [span for span in spans if span[1] > span[0]] or [spans[0]]
    return min(a for a, _ in real), max(b for _, b in real)


def _word(tokens: Tokens, run: range) -> str:
    if tokens.spans is not None and tokens.text is not None:
        start, end = _hull([tokens.spans[i] for i in run])
        return tokens.text[start:end] or tokens.texts[run[0]]
    if len(run) == 1:
        return tokens.texts[run[0]]
    return "".join(tokens.texts[i] if i == run[0] else _bare(tokens.texts[i], True) for i in run)


def _sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else NAN


def _extends(sign: str) -> bool:
    code = ord(sign)
    tone, tag = 0x1F3FB <= code <= 0x1F3FF, 0xE0020 <= code <= 0xE007F
    return sign in (_JOINER, "\u200c") or tone or tag or unicodedata.category(sign) in ("Mn", "Me", "Mc")


def _joined(before: str, sign: str) -> bool:
    """Whether a joiner ties this symbol to the one before it; letters after a joiner begin a new character."""
    return before == _JOINER and unicodedata.category(sign) in ("So", "Sk", "Sm")


def _seen(sign: str) -> str:
    code = ord(sign)
    if code == 0x7F:
        return "\u2421"
    if code < 0x20:
        return " " if sign in "\t\n\r" else chr(0x2400 + code)
    turns = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # the reading direction of all that follows
    return "\ufffd" if turns or 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 else sign
