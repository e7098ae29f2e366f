"""The results of the question classifier: its answer, and the attribution of that answer to each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...certificate import ExampleCertificate
from ...render.notebook import said_first
from ...render.text.tokens import Tokens
from ...words import short_repr

if TYPE_CHECKING:
    from .model import Word


@dataclass(frozen=True)
class QuestionAnswer:
    """The classifier's answer to one question.

    Attributes:
        label: the most probable class.
        probability: the probability of that class.
        probabilities: the probability of every class.
    """

    label: str
    probability: float
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.2f})"


@dataclass(frozen=True)
class WordAttribution:
    """The attribution of a class's score to each word of a question.

    Attributes:
        text: the question.
        words: as it was cut.
        spans: where each word stands in it, (start, end) in characters.
        values: the attribution of each word.
        label: the class that is explained.
        probability: the probability of that class.
        certificate: how far the values can be trusted; its errors are those of the words' sums.
        notes: what a reader must not miss, such as words that the network never saw.
    """

    text: str
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    label: str
    probability: float
    certificate: ExampleCertificate
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(
        text: str,
        words: Sequence[Word],
        values: Sequence[float],
        label: str,
        probability: float,
        certificate: ExampleCertificate,
    ) -> WordAttribution:
        """Build the result from the values of a padded row; values after the last word are padding."""
        spans = tuple((word.start, word.end) for word in words)
        kept = tuple(values[: len(words)])
        return WordAttribution(text, tuple(word.text for word in words), spans, kept, label, probability, certificate)

    @property
    def tokens(self) -> Tokens:
        """The words and their values in the form that :mod:`integrand.render.text` draws."""
        one = self.certificate
        return Tokens(
            self.words,
            self.values,
            self.spans,
            label=self.label,
            score=one.score,
            baseline_score=one.baseline_score,
            probability=self.probability,
            certificate=one,
            text=self.text,
            notes=self.notes,
        )

    __repr__ = short_repr

    def __str__(self) -> str:
        return str(self.tokens)

    def _repr_html_(self) -> str:
        return said_first(self, self.tokens._repr_html_())
