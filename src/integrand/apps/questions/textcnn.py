"""The network of Kim, "Convolutional neural networks for sentence classification" (2014), and the words that it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

PAD, UNKNOWN = 0, 1
"""Rows of the embedding: the padding, which is always zero, and words that the vocabulary does not have."""

SPECIAL = ("<pad>", "<unknown>", "<year>", "<number>")
"""What the vocabulary begins with. Numbers that it does not hold share a row, and so do years."""

_SIGN = r"\u0021-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u007e\u00a1\u00ab\u00bb\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003"
_WORDS = re.compile(
    rf"""
    ['’](?:s|ll|re|ve|d|m|t)(?![^\s{_SIGN}])   # what follows an apostrophe: piotr | 's
    | \d+(?:[.,:]\d+)+                         # numbers with signs in them
    | [^\s{_SIGN}]+(?:-[^\s{_SIGN}]+)*         # words with their hyphens; whatever is no sign is part of one, so that accents
    | [{_SIGN}]                                # and emoji stay whole
    """,
    re.VERBOSE,
)
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d")


@dataclass(frozen=True, slots=True)
class Word:
    """A word and where it stands: ``text[start:end]`` of the question."""

    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """Cut a question into words and signs; every character but white space is in exactly one of them.

    >>> [word.text for word in words_of("in what city did Piotr's last 1st-place finish occur?")]
    ['in', 'what', 'city', 'did', 'Piotr', "'s", 'last', '1st-place', 'finish', 'occur', '?']
    """
    return [Word(match.group(), match.start(), match.end()) for match in _WORDS.finditer(text)]


@dataclass(frozen=True)
class Vocabulary:
    """The words with a row of their own in the embedding, in its order; :data:`SPECIAL` come first.

    Attributes:
        words: in small letters.
    """

    words: tuple[str, ...]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def row(self, word: str) -> int:
        """The row of a word, whatever its case; that of its kind where it has none."""
        found = self.rows.get(word.lower())
        if found is not None and found >= len(SPECIAL):
            return found
        if not any(sign.isdigit() for sign in word):
            return UNKNOWN
        return 2 if _YEAR.fullmatch(word) else 3

    def ids(self, questions: Sequence[Sequence[Word]]) -> Tensor:
        """Rows of the embedding, (questions, longest), the shorter ones padded with :data:`PAD` behind."""
        rows = [[self.row(word.text) for word in words] for words in questions]
        longest = max(map(len, rows), default=0)
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long).reshape(len(rows), longest)


class Head(nn.Module):
    """From embedded words to one number per class: convolutions of several widths, the maximum over time, a linear layer.

    A window counts if a word is in it: so the answer does not depend on how far a question was padded.
    """

    def __init__(self, dim: int, filters: int, widths: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, filters, width, padding=width - 1) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(filters * len(widths), classes)

    def features(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """The strongest answer of each filter anywhere in the question, (N, filters of all widths)."""
        signal, lengths = embedded.transpose(1, 2), mask.sum(1)
        found = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            windows = torch.relu(convolution(signal))
            past = torch.arange(windows.shape[2], device=mask.device) >= (lengths + width - 1)[:, None]
            found.append(windows.masked_fill(past[:, None], 0.0).amax(2))
        return torch.cat(found, 1)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """From (N, L, D) and which of them are words, (N, L), to (N, classes)."""
        out: Tensor = self.linear(self.dropout(self.features(embedded, mask)))
        return out


class TextCNN(nn.Module):
    """Words in, one number per class out; ``embedding`` and ``head`` are the two steps.

    Args:
        words: rows of the embedding; row 0 is padding.
        dim: of the embedding.
        filters: of each width.
        widths: of the convolutions, in words.
        classes: how many.
        dropout: the share of features left out in training.
    """

    def __init__(
        self, words: int, *, dim: int, filters: int, widths: Sequence[int], classes: int, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=PAD)
        self.head = Head(dim, filters, widths, classes, dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """From (N, L) to (N, classes)."""
        out: Tensor = self.head(self.embedding(ids), ids != PAD)
        return out
