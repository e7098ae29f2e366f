"""What comes back: texts with an attribution per token, and the same by words, phrases and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ...certificate import Certificate, ExampleCertificate
from ...errors import OptionError
from ...render import text as pictures
from ...render.text.tokens import Tokens
from .encoding import Pieces, trimmed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCE = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|\n+|[。！？]")
"""Where a sentence ends: at a full stop or its like with a blank after it, at a line break."""

PHRASE = re.compile(SENTENCE.pattern + r"|[,;:，、；：]+(?=\s|$)|[，、；：]|\s[–—-]+(?=\s)|[)\]”]|\s(?=[(\[“])")
"""Where a phrase ends: there, and at commas, dashes and brackets."""


@dataclass(frozen=True, repr=False)
class Explained:
    """One text and what each of its tokens adds to the score.

    Attributes:
        line: the tokens with their attributions, as pictures take them.
        special: which of them are markers, kept in the baseline: their attribution is exactly zero.
        parts: 0 for tokens of the text, 1 for its context, -1 for markers.
        meta: how it was made, in words.
    """

    line: Tokens
    special: tuple[bool, ...]
    parts: tuple[int, ...]
    meta: dict[str, str]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens (or words, or phrases), as they stand in the text."""
        return tuple(self.line.texts)

    @property
    def values(self) -> NDArray[np.float64]:
        """The attribution of each, summed over its embedding, (tokens,)."""
        return np.array(self.line.values, np.float64)

    @property
    def label(self) -> str:
        """What was explained, in words."""
        return self.line.label

    @property
    def probability(self) -> float | None:
        """Of what was explained, at the input."""
        return self.line.probability

    @property
    def certificate(self) -> ExampleCertificate:
        """How far the attributions can be trusted; its error is that of the tokens' sums."""
        assert self.line.certificate is not None
        return self.line.certificate

    def words(self) -> Explained:
        """Word pieces joined to words. Sums are kept, here and below."""
        return self.joined(word_groups(self.line))

    def phrases(self) -> Explained:
        """Tokens joined up to the next comma, dash, bracket or end of a sentence."""
        return self.joined(self._ended(PHRASE, "phrases"))

    def sentences(self) -> Explained:
        """Tokens joined to sentences."""
        return self.joined(self._ended(SENTENCE, "sentences"))

    def joined(self, groups: Sequence[int | None]) -> Explained:
        """Tokens joined by labels of yours: neighbours of the same label become one, with the sum of their values.

        Args:
            groups: a label for each token; None for one that stays alone.
        """
        line = stripped(self.line.joined(list(groups)))
        firsts = [i for i, group in enumerate(groups) if i == 0 or group is None or group != groups[i - 1]]
        special = tuple(self.special[i] for i in firsts)
        return replace(self, line=line, special=special, parts=tuple(self.parts[i] for i in firsts))

    def of_part(self, part: int) -> float:
        """What one of the texts adds: 0 for the text, 1 for its context."""
        return float(self.values[np.array(self.parts) == part].sum())

    def _ended(self, ends: re.Pattern[str], what: str) -> list[int | None]:
        """The phrase or sentence that each token belongs to; markers stay alone."""
        if self.line.spans is None or self.line.text is None:
            raise OptionError(
                f"the tokenizer does not say where tokens stand in the text, which {what}() needs; expected a fast tokenizer. "
                "Load it with AutoTokenizer.from_pretrained(..., use_fast=True), or give joined() labels of your own."
            )
        cuts = np.array([match.end() for match in ends.finditer(self.line.text)], int)
        count = len(cuts) + 1
        # A token belongs to where its last sign is: a full stop to what it ends. Parts never mix.
        places = [int(np.searchsorted(cuts, end, side="left")) for _, end in self.line.spans]
        return [None if mark else p * count + i for mark, p, i in zip(self.special, self.parts, places, strict=True)]

    def terminal(self, **options: Any) -> str:
        """For a terminal; options as in :func:`integrand.render.text.terminal`."""
        return pictures.terminal(self.line, **options)

    def html(self, **options: Any) -> str:
        """One self-contained page with the running sum; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.line, **{"meta": self.meta} | options)

    def show(self, **options: Any) -> Figure:
        """A matplotlib figure; options as in :func:`integrand.render.text.figure`."""
        return pictures.figure(self.line, **options)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the ending of the path."""
        return pictures.save(self.line, path, **with_meta(path, self.meta, options))

    def __str__(self) -> str:
        return f"{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return pictures.fragment(self.line)


@dataclass(frozen=True, repr=False)
class Explanations(Sequence[Explained]):
    """Several texts, explained.

    Attributes:
        texts: each of them.
    """

    texts: tuple[Explained, ...]

    @property
    def certificate(self) -> Certificate:
        """Of all texts."""
        return Certificate(tuple(one.certificate for one in self.texts))

    @property
    def lines(self) -> list[Tokens]:
        """As pictures take them."""
        return [one.line for one in self.texts]

    def words(self) -> Explanations:
        """Word pieces joined to words, with sums kept; likewise :meth:`phrases` and :meth:`sentences`."""
        return Explanations(tuple(one.words() for one in self.texts))

    def phrases(self) -> Explanations:
        """Tokens joined to phrases."""
        return Explanations(tuple(one.phrases() for one in self.texts))

    def sentences(self) -> Explanations:
        """Tokens joined to sentences."""
        return Explanations(tuple(one.sentences() for one in self.texts))

    def terminal(self, **options: Any) -> str:
        """For a terminal, a line each; options as in :func:`integrand.render.text.terminal`."""
        return pictures.terminal(self.lines, **options)

    def html(self, **options: Any) -> str:
        """One self-contained page; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.lines, **{"meta": self.texts[0].meta} | options)

    def show(self, **options: Any) -> Figure:
        """A matplotlib figure; options as in :func:`integrand.render.text.figure`."""
        return pictures.figure(self.lines, **options)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the ending of the path."""
        return pictures.save(self.lines, path, **with_meta(path, self.texts[0].meta, options))

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Explained: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explained | Explanations:
        return Explanations(self.texts[index]) if isinstance(index, slice) else self.texts[index]

    def __iter__(self) -> Iterator[Explained]:
        return iter(self.texts)

    def __str__(self) -> str:
        return f"{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return pictures.fragment(self.lines)


def word_groups(line: Tokens) -> list[int | None]:
    """The word that each token belongs to, as :meth:`Tokens.joined` finds them; blanks belong to what follows."""
    counts = replace(line, values=[1.0] * len(line.texts)).joined().values
    words: list[int | None] = [word for word, count in enumerate(counts) for _ in range(round(count))]
    for i in reversed(range(len(words) - 1)):
        real = line.spans is None or line.spans[i + 1][0] < line.spans[i + 1][1]
        if not line.texts[i].strip() and real:
            words[i] = words[i + 1]
    return words


def stripped(line: Tokens) -> Tokens:
    """Words without the blanks that tokenizers count to them."""
    spans = line.spans
    if spans is not None and line.text is not None:
        spans = [trimmed(line.text, start, end) for start, end in spans]
    return replace(line, texts=[text.strip() or text for text in line.texts], spans=spans)


def with_meta(path: str | PathLike[str], meta: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """Options of a page say how it was made; pictures and numbers take none of that."""
    return {"meta": meta} | options if Path(path).suffix.lower() == ".html" else options


def explained(
    pieces: Pieces,
    values: NDArray[np.float64],
    certificate: ExampleCertificate,
    *,
    label: str,
    probability: float | None,
    meta: dict[str, str],
    note: str = "",
) -> Explained:
    """One text with what the engine found for it.

    Args:
        pieces: its tokens.
        values: (columns,) the attributions of its row of the batch.
        certificate: theirs.
        label: what was explained.
        probability: of it.
        meta: how it was made.
        note: something to say below the text.
    """
    columns = np.array(pieces.columns)
    assert not np.delete(values, columns).any()  # padding is the same in the baseline
    line = Tokens(
        pieces.texts,
        values[columns].tolist(),
        pieces.spans,
        label=label,
        score=certificate.score,
        baseline_score=certificate.baseline_score,
        probability=probability,
        note=note,
        certificate=certificate,
        text=None if pieces.spans is None else pieces.text,
    )
    return Explained(line, pieces.special, pieces.parts, meta)
