"""The result of an explained translation: German words by English words, with sums, pictures and certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...batch.rows import Row
from ...certificate import Certificate
from ...errors import FileError
from ...files import write
from ...render.notebook import LOW, notebook_view, said_first
from ...render.text import alignment_grid, grid_page
from ...render.text.alignment_grid import Grid
from ...render.text.tokens import Tokens
from ...render.text.word_sentences import quoted
from ...words import short_repr, shown
from ..text.result import Generated

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class AskedTranslation:
    """How a translation was explained, so that it can be explained again.

    Attributes:
        tol: the tolerance.
        explain: explains the same to another one.
    """

    tol: float
    explain: Callable[[float], Alignment]

    def words(self) -> AskedTranslation:
        """The same, by words that add up their pieces' scores."""
        return AskedTranslation(self.tol, lambda tol: self.explain(tol).words())


@dataclass(frozen=True, repr=False)
class Alignment:
    """An explained translation: each output's attributions to the text and to the translation so far, by pieces or words.

    Attributes:
        text: what was translated.
        translation: what came out, or was given.
        matrix: outputs by inputs, with markers; see :class:`integrand.text.Generated`.
        asked: how it was explained, for :meth:`widget`; None in what was read from a table, copied or sent elsewhere.
    """

    text: str
    translation: str
    matrix: Generated
    asked: AskedTranslation | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"asked": None}

    @property
    def source(self) -> tuple[str, ...]:
        """The pieces (or words) of the text, without markers."""
        return self.matrix.tokens[1 : self.matrix.prompt - 1]

    @property
    def prefix(self) -> tuple[str, ...]:
        """The pieces (or words) of the translation that are inputs of later ones."""
        return self.matrix.tokens[self.matrix.prompt + 1 :]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The explained output pieces (or words) in order; the last is the end marker."""
        return tuple(name.strip() or name for name in self.matrix.outputs)

    @property
    def from_source(self) -> NDArray[np.float64]:
        """What the text adds to each output, (outputs, source); markers, kept in the baseline, add exactly nothing."""
        return self.matrix.values[:, 1 : self.matrix.prompt - 1]

    @property
    def from_prefix(self) -> NDArray[np.float64]:
        """What the translation so far adds to each output, (outputs, prefix).

        A word's own column holds what its first piece adds to its later pieces.
        """
        return self.matrix.values[:, self.matrix.prompt + 1 :]

    @property
    def certificate(self) -> Certificate:
        """A certificate for each output: row i of both matrices together adds up to F(x) - F(x')."""
        return self.matrix.certificate

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability of each output, given those before it."""
        return self.matrix.probabilities

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must not miss, such as signs that the translator does not know."""
        return self.matrix.notes

    @property
    def sentence(self) -> str:
        """What the translation is, which words it mostly comes from, and how sure the numbers are, in one line."""
        return f"{shown(quoted(self.text))} becomes {shown(quoted(self.translation))}: {self.matrix.origins()}."

    @property
    def lines(self) -> list[Tokens]:
        """One line of coloured words for each output, in the form that :mod:`integrand.render.text` draws."""
        return self.matrix.lines

    def row(self) -> Row:
        """The translation as a row of a table of many: what each word of the text adds to all words of it together.

        Added up over the words of the translation, attributions are those of the sum of their scores (integrated gradients are
        linear, and all words have the same path). Of probabilities that is how many words come out as they are, as expected if
        each is given those before it. The groups say what the text and the translation so far add: together they make up the
        change of that sum. ``probability`` is that of the whole translation. Error and status are those of the worst word.
        ``details`` holds the whole matrix; :meth:`of_details` makes the result again.
        """
        from ..text.stored_text import StoredGrid, packed

        kept = StoredGrid.of(self.matrix, kind="translation", text=self.text, written=self.translation)
        said = {"prediction": self.translation, "sentence": self.sentence, "details": packed(kept)}
        return self.matrix.summed_row(called=("the text", "the translation so far"), **said)

    @staticmethod
    def of_details(details: str | None) -> Alignment:
        """The result whose row has this in its column ``details``; a FileError if it is not that of a translation."""
        from ..text.stored_text import StoredGrid, checked, unpacked

        kept = unpacked(StoredGrid, details)
        if kept.kind != "translation":
            raise FileError(f"the column details holds a result of the kind {kept.kind}; expected a translation.")
        return Alignment(kept.text, kept.written, checked(kept))

    @property
    def line(self) -> Tokens:
        """The text as one line of coloured words: each with what it adds to all words of the translation together."""
        found = self.matrix.line
        names = [*list(found.texts)[:-1], "(the translation so far)"]
        several = len(self.matrix)
        return replace(
            found,
            texts=names,
            text=self.text,
            label=self.translation,
            meaning=f"becomes {quoted(self.translation)}",
            note=f"What a word adds is added up over the {several} words of the translation, its end included.",
        )

    def shares(self) -> NDArray[np.float64]:
        """Each source piece's share of the positive attributions to an output, (outputs, source); rows add up to 1."""
        positive = np.clip(self.from_source, 0, None)
        total = positive.sum(1, keepdims=True)
        out: NDArray[np.float64] = positive / np.where(total > 0, total, 1.0)
        return out

    def words(self) -> Alignment:
        """The same result with pieces joined into words on both sides; a word's score is the sum of its pieces' scores.

        A sum of probabilities is no probability, and is called a sum wherever it is shown; ``explain(..., words=True)``
        explains the word's own probability instead, the product of its pieces'.
        """
        return replace(self, matrix=self.matrix.words(), asked=None if self.asked is None else self.asked.words())

    @property
    def grid(self) -> Grid:
        """The heatmap of outputs by source and prefix."""
        found = self.matrix.grid("the text", "the translation so far")
        return replace(found, rows=(*found.rows[:-1], "(end)"))  # in place of the marker

    def terminal(self, *, colour: bool = True, width: int | None = None) -> str:
        """The heatmap as a table for a terminal.

        Args:
            colour: 24-bit colours.
            width: in letters; that of the terminal if not given. What is wider goes on below.
        """
        lead = shown(f"{self.text} → {self.translation}")
        return f"{lead}\n{alignment_grid.terminal(self.grid, colour=colour, width=width)}"

    def html(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained page: each word with the words it comes from, the heatmap, running sums and certificates.

        Args:
            title: the heading; by default the translation.
            command: what makes the page again, to be shown in it.
        """
        return grid_page.page(
            self.grid,
            self.lines,
            heading=title or self.translation,
            says=self.sentence,
            certificate=self.certificate,
            own=self.matrix.prompt,
            meta=self.matrix.meta,
            command=command,
            notes=self.notes,
            called=("the text", "the translation so far"),
        )

    def figure(self, *, title: str | None = None) -> Figure:
        """The heatmap drawn with matplotlib.

        Args:
            title: a heading; by default text and translation.
        """
        return alignment_grid.figure(self.grid, title=f"{self.text} → {self.translation}" if title is None else title)

    def show(self, *, title: str | None = None) -> Figure:
        """The same figure in a window, or as a file where there is no display; returns it."""
        drawn = self.figure(title=title)
        from ...render.figures import present

        return present(drawn, "integrand-translation")

    def numbers(self) -> dict[str, Any]:
        """The attributions, scores and certificates as a dictionary for JSON."""
        before = [max(reach - self.matrix.prompt - 1, 0) for reach in self.matrix.reach]
        rows = []
        for i, line in enumerate(self.lines):
            told, kept = line.numbers(), ("score", "baseline_score", "sum", "certificate")
            one = {"text": self.outputs[i], "probability": self.probabilities[i]} | {name: told[name] for name in kept}
            one["from_text"] = _named(self.source, self.from_source[i])
            one["from_translation"] = _named(self.prefix[: before[i]], self.from_prefix[i, : before[i]])
            rows.append(one)
        return {"text": self.text, "translation": self.translation, "outputs": rows, "meta": self.matrix.meta}

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the suffix of the path; options of :meth:`html` or :meth:`figure`."""
        return write(Path(path), options, picture=self.figure, numbers=self.numbers, report=self.html)

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = short_repr

    def _small_html_(self) -> str:
        return said_first(self, alignment_grid.fragment(self.grid))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)

    def widget(self) -> AnyWidget:
        """The page in a notebook, with a control to explain the translation to another tolerance.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from ..result_widgets import alignment_widget

        return alignment_widget(self)


def _named(names: Sequence[str], values: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Names with their values, as a list because words may repeat."""
    return [{"text": name, "value": float(value)} for name, value in zip(names, values, strict=True)]
