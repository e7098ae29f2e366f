"""The results of the question classifier: its answer, and the attribution of that answer to each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from ...batch.rows import Row
from ...certificate import ExampleCertificate
from ...errors import InputError
from ...functions.target import Score
from ...render import text as pictures
from ...render.notebook import LOW, notebook_view, said_first
from ...render.text.tokens import Tokens
from ...words import percent, shown
from ..text.stored_text import Pair, checked, packed, unpacked

if TYPE_CHECKING:
    from anywidget import AnyWidget

    from .model import Classifier, Word


ASKS_FOR: Mapping[str, str] = {
    "yes-no": "a yes or no",
    "text": "a text",
    "number": "a number",
    "year": "a year",
    "date": "a date",
    "description": "a description",
    "entity": "a thing",
    "abbreviation": "an abbreviation",
    "person": "a person",
    "location": "a place",
}
"""What a question of each class asks for, in people's words."""


def asked_for(label: str) -> str:
    """What a question of a class asks for, in people's words; the class itself where there are none.

    >>> asked_for("yes-no"), asked_for("colour")
    ('a yes or no', 'colour')
    """
    return ASKS_FOR.get(label, label)


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

    @property
    def sentence(self) -> str:
        """What the question asks for, in one line."""
        return f"It asks for {asked_for(self.label)} ({percent(self.probability)})."

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.2f})"


@dataclass(frozen=True, repr=False)
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
        probabilities: the probability of every class.
        errors: the estimated error of each value; none where they are not known.
        notes: what a reader must not miss, such as words that the network never saw.
        explained_by: the classifier, for :meth:`widget`; None in what was read from a table, copied or sent
            elsewhere, or is by another method than integrated gradients.
    """

    text: str
    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    label: str
    probability: float
    certificate: ExampleCertificate
    probabilities: Mapping[str, float] = field(default_factory=dict)
    errors: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    explained_by: Classifier | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"explained_by": None}

    @staticmethod
    def of(
        text: str,
        words: Sequence[Word],
        values: Sequence[float],
        label: str,
        probability: float,
        certificate: ExampleCertificate,
        probabilities: Mapping[str, float] | None = None,
        errors: Sequence[float] = (),
    ) -> WordAttribution:
        """Build the result from the values of a padded row; values after the last word are padding."""
        spans = tuple((word.start, word.end) for word in words)
        kept, off = tuple(values[: len(words)]), tuple(errors[: len(words)])
        names = tuple(word.text for word in words)
        return WordAttribution(text, names, spans, kept, label, probability, certificate, probabilities or {}, off)

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
            meaning=f"asks for {asked_for(self.label)}",
            choices=[(asked_for(name), share) for name, share in self.probabilities.items()],
            errors=self.errors or None,
            notes=self.notes,
        )

    def row(self) -> Row:
        """The result as a row of a table of many questions: what the network said, and what each word adds to the target.

        The column ``details`` holds the result itself; :meth:`of_details` makes it again.
        """
        chances = self.probabilities or {self.label: self.probability}
        said = max(chances, key=chances.__getitem__)
        return Row.of(
            self.certificate,
            prediction=said,
            probability=chances[said],
            target=self.label,
            sentence=self.sentence,
            notes=self.notes,
            features=self.words,
            attributions=np.array(self.values, np.float64),
            attribution_errors=self.errors or None,
            details=packed(StoredQuestion.of(self)),
        )

    @staticmethod
    def of_details(details: str | None) -> WordAttribution:
        """The result whose row has this in its column ``details``; every value is checked.

        Raises:
            FileError: it is not what :meth:`row` writes.
        """
        found: WordAttribution = checked(unpacked(StoredQuestion, details))
        return found

    @property
    def scale(self) -> Score:
        """What is explained of the class: its probability, log-probability or logit, as the certificate names it."""
        named = self.certificate.target.rpartition("(")[2].removesuffix(")")
        return cast(Score, named) if named in get_args(Score) else "probability"

    def html(self, **options: Any) -> str:
        """One self-contained HTML page with the running sum; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.tokens, **options)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result to a file in the format its suffix names: ``.html``, ``.json`` or a picture."""
        return pictures.save(self.tokens, path, **options)

    @property
    def sentence(self) -> str:
        """What the question asks for, because of which words, and how sure the numbers are, in one line."""
        return self.tokens.sentence

    def __str__(self) -> str:
        return str(self.tokens)

    def __repr__(self) -> str:
        return f"{shown(self.text)[:80]!r}: {self.sentence}"

    def _small_html_(self) -> str:
        return said_first(self, self.tokens._repr_html_())

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)

    def widget(self) -> AnyWidget:
        """The page in a notebook, with controls to explain another class, by another method or to another tolerance.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from ..result_widgets import question_widget

        return question_widget(self)


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A :class:`WordAttribution` as JSON holds it, in a row of a table."""

    kind: Literal["question"]
    text: str
    words: tuple[str, ...]
    spans: tuple[Pair, ...]
    values: tuple[float, ...]
    label: str
    probability: float
    certificate: ExampleCertificate
    probabilities: dict[str, float]
    errors: tuple[float, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(found: WordAttribution) -> StoredQuestion:
        """A result as it is kept."""
        return StoredQuestion(
            "question",
            found.text,
            found.words,
            found.spans,
            found.values,
            found.label,
            found.probability,
            found.certificate,
            dict(found.probabilities),
            found.errors,
            found.notes,
        )

    def found(self) -> WordAttribution:
        """The same result; an error if its parts contradict each other."""
        spans = tuple((start, end) for start, end in self.spans)
        if any(self.text[start:end] != word for (start, end), word in zip(spans, self.words, strict=False)):
            raise InputError("a word is not where it should be in the question")
        about = (self.label, self.probability, self.certificate, self.probabilities, self.errors, self.notes)
        made = WordAttribution(self.text, self.words, spans, self.values, *about)
        _ = made.tokens  # which counts them
        return made
