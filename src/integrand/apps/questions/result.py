"""What a classifier says of a question, and what each of its words adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...certificate import ExampleCertificate
from ...render.text.tokens import Tokens
from .textcnn import Word


@dataclass(frozen=True)
class QuestionAnswer:
    """What the classifier says of a question.

    Attributes:
        label: the most probable class.
        probability: of that class.
        probabilities: of every class.
    """

    label: str
    probability: float
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.2f})"


@dataclass(frozen=True)
class WordAttribution:
    """What each word of a question adds to the score of a class.

    Attributes:
        text: the question.
        words: as it was cut.
        spans: where each word stands in it, (start, end) in characters.
        values: the attribution of each word.
        label: the class that is explained.
        probability: of that class.
        certificate: how far the values can be trusted; its errors are those of the words' sums.
    """

    text: str
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    label: str
    probability: float
    certificate: ExampleCertificate

    @staticmethod
    def of(
        text: str,
        words: Sequence[Word],
        values: Sequence[float],
        label: str,
        probability: float,
        certificate: ExampleCertificate,
    ) -> WordAttribution:
        """From the values of a padded row; what is behind the last word is padding."""
        spans = tuple((word.start, word.end) for word in words)
        kept = tuple(values[: len(words)])
        return WordAttribution(text, tuple(word.text for word in words), spans, kept, label, probability, certificate)

    @property
    def tokens(self) -> Tokens:
        """For the pictures of :mod:`integrand.render.text`."""
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
        )

    def __str__(self) -> str:
        return str(self.tokens)

    def _repr_html_(self) -> str:
        return self.tokens._repr_html_()
