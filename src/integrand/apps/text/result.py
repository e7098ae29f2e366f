"""Results for texts: attributions per token, word, phrase or sentence, and matrices for generated texts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ...batch.rows import Row
from ...certificate import Certificate, ExampleCertificate
from ...errors import FileError, OptionError
from ...files import write
from ...render import text as pictures
from ...render.certificate_text import trust
from ...render.notebook import LOW, notebook_view, said_first
from ...render.text import alignment_grid, grid_page
from ...render.text.alignment_grid import Block, Grid
from ...render.text.tokens import Tokens, is_letter
from ...render.text.word_sentences import capital, number, quoted
from ...words import percent, short_repr, shown
from .encoding import Pieces, trimmed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCE = re.compile(r"(?<![.!?…。！？])[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|\n+|[。！？]")
"""Where a sentence ends: at a full stop or similar sign before a space, and at a line break."""

PHRASE = re.compile(SENTENCE.pattern + r"|[,;:，、；：]+(?=\s|$)|[，、；：]|\s[–—-]+(?=\s)|[)\]”]|\s(?=[(\[“])")
"""Where a phrase ends: at the end of a sentence, and at commas, dashes and brackets."""

SUMS = {"probability": "probabilities", "log-probability": "log-probabilities", "logit": "logits"}
"""What several scores of each scale are called."""

MENTIONED = 3
"""The outputs that are named in a sentence."""

WIDEST = 80
"""Heatmaps with more inputs than this would be too wide to read."""


@dataclass(frozen=True, repr=False)
class Explained:
    """One explained text, with the attribution of each of its tokens.

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
        """The tokens (or words, or phrases) as they are written in the text."""
        return tuple(self.line.texts)

    @property
    def values(self) -> NDArray[np.float64]:
        """The attribution of each token, summed over its embedding, (tokens,)."""
        return np.array(self.line.values, np.float64)

    @property
    def label(self) -> str:
        """The class, answer or score that was explained, in words."""
        return self.line.label

    @property
    def probability(self) -> float | None:
        """The probability of what was explained, at the input; None where there is none."""
        return self.line.probability

    @property
    def certificate(self) -> ExampleCertificate:
        """How far the attributions can be trusted; its error is that of the tokens' sums."""
        assert self.line.certificate is not None
        return self.line.certificate

    @property
    def sentence(self) -> str:
        """What the model said, which words made it so, and how sure the numbers are, in one line."""
        return stripped(self.line.joined(word_groups(self.line))).sentence

    def words(self) -> Explained:
        """The same result with word pieces joined into words, whose values are the sums of their pieces' values."""
        return self.joined(word_groups(self.line))

    def phrases(self) -> Explained:
        """The same result with tokens joined into phrases, up to the next comma, dash, bracket or end of a sentence."""
        return self.joined(self._ended(PHRASE, "phrases"))

    def sentences(self) -> Explained:
        """The same result with tokens joined into sentences."""
        return self.joined(self._ended(SENTENCE, "sentences"))

    def joined(self, groups: Sequence[int | None]) -> Explained:
        """Join neighbouring tokens with the same label of yours into one, with the sum of their values.

        Args:
            groups: a label for each token; None for one that stays alone.
        """
        line = stripped(self.line.joined(list(groups)))
        firsts = [i for i, group in enumerate(groups) if i == 0 or group is None or group != groups[i - 1]]
        special = tuple(self.special[i] for i in firsts)
        return replace(self, line=line, special=special, parts=tuple(self.parts[i] for i in firsts))

    @property
    def answer(self) -> tuple[str, float | None]:
        """What the model said, in short, and how probable it found that; another class may have been explained."""
        if self.line.choices:
            return max(self.line.choices, key=lambda choice: choice[1])
        if self.probability is not None or "pooling" in self.meta:
            return self.label, self.probability
        return f"{self.line.score:.6g}", None  # a regression

    def row(self) -> Row:
        """The result as a row of a table of many texts: by words, whatever it was cut into, and without markers.

        The column ``details`` holds the result itself; :meth:`of_details` makes it again.
        """
        from .stored_text import StoredText, packed

        said, chance = self.answer
        return Row.of(
            self.certificate,
            prediction=said,
            probability=chance,
            target=self.label,
            sentence=self.sentence,
            notes=tuple(self.line.notes),
            details=packed(StoredText.of(self)),
            **_word_columns([self]),
        )

    @staticmethod
    def of_details(details: str | None) -> Explained:
        """The result whose row has this in its column ``details``; a FileError if it is not that of an explained text."""
        return _of_kind(Explained, details)

    def of_part(self, part: int) -> float:
        """The sum of the attributions of the text (part 0) or of its context (part 1)."""
        return float(self.values[np.array(self.parts) == part].sum())

    def _ended(self, ends: re.Pattern[str], what: str) -> list[int | None]:
        """The phrase or sentence that each token belongs to; markers belong to none."""
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
        """The text with coloured words for a terminal; options as in :func:`integrand.render.text.terminal`."""
        return pictures.terminal(self.line, **options)

    def html(self, **options: Any) -> str:
        """One self-contained HTML page with the running sum; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.line, **{"meta": self.meta} | options)

    def figure(self, **options: Any) -> Figure:
        """The text drawn with matplotlib; options as in :func:`integrand.render.text.figure`."""
        return pictures.figure(self.line, **options)

    def show(self, **options: Any) -> Figure:
        """The same figure in a window, or as a file where there is no display; returns it."""
        return _presented(self.figure(**options))

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result to a file in the format its suffix names: ``.html``, ``.json`` or a picture."""
        return pictures.save(self.line, path, **with_meta(path, self.meta, options))

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = short_repr

    def _small_html_(self) -> str:
        return said_first(self, pictures.fragment(self.line))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)


@dataclass(frozen=True, repr=False)
class Explanations(Sequence[Explained]):
    """Several explained texts, as a sequence.

    Attributes:
        texts: each of them.
    """

    texts: tuple[Explained, ...]

    @property
    def certificate(self) -> Certificate:
        """The certificates of all texts."""
        return Certificate(tuple(one.certificate for one in self.texts))

    @property
    def lines(self) -> list[Tokens]:
        """The texts in the form that :mod:`integrand.render.text` draws."""
        return [one.line for one in self.texts]

    @property
    def sentence(self) -> str:
        """How many texts there are, what was said of each kind, and how sure the numbers are, in one line."""
        counted = Counter(one.label for one in self.texts)
        said = ", ".join(f"{count} {name}" for name, count in counted.most_common(5))
        more = f" and {len(counted) - 5} other answers" if len(counted) > 5 else ""
        return f"{len(self)} texts: {shown(said)}{more}; {trust(self.certificate)}."

    def words(self) -> Explanations:
        """The same results with word pieces joined into words; sums are kept."""
        return Explanations(tuple(one.words() for one in self.texts))

    def phrases(self) -> Explanations:
        """The same results with tokens joined into phrases; sums are kept."""
        return Explanations(tuple(one.phrases() for one in self.texts))

    def sentences(self) -> Explanations:
        """The same results with tokens joined into sentences; sums are kept."""
        return Explanations(tuple(one.sentences() for one in self.texts))

    def row(self) -> Row:
        """All texts as one row of a table, such as the two sentences of a similarity; the certificate is the worst of theirs.

        The column ``details`` holds the result itself; :meth:`of_details` makes it again.
        """
        from .stored_text import StoredTexts, packed

        labels = list(dict.fromkeys(one.label for one in self.texts))
        said = list(dict.fromkeys(one.answer for one in self.texts))
        return Row.of(
            self.certificate,
            prediction=", ".join(name for name, _ in said),
            probability=said[0][1] if len(said) == 1 else None,
            target=", ".join(labels),
            sentence=self.sentence,
            notes=tuple(dict.fromkeys(note for one in self.texts for note in one.line.notes)),
            details=packed(StoredTexts.of(self)),
            **_word_columns(self.texts),
        )

    @staticmethod
    def of_details(details: str | None) -> Explanations:
        """The result whose row has this in its column ``details``; a FileError if it is not that of several texts."""
        return _of_kind(Explanations, details)

    def terminal(self, **options: Any) -> str:
        """The texts for a terminal, one per line; options as in :func:`integrand.render.text.terminal`."""
        return pictures.terminal(self.lines, **options)

    def html(self, **options: Any) -> str:
        """One self-contained HTML page of all texts; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.lines, **{"meta": self.texts[0].meta} | options)

    def figure(self, **options: Any) -> Figure:
        """The texts drawn with matplotlib; options as in :func:`integrand.render.text.figure`."""
        return pictures.figure(self.lines, **options)

    def show(self, **options: Any) -> Figure:
        """The same figure in a window, or as a file where there is no display; returns it."""
        return _presented(self.figure(**options))

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the results to a file in the format its suffix names: ``.html``, ``.json`` or a picture."""
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
        return f"{self.sentence}\n{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = short_repr

    def _small_html_(self) -> str:
        more = f"<p>… {len(self) - 10} more</p>" if len(self) > 10 else ""
        return said_first(self, pictures.fragment(self.lines[:10]) + more)

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)


@dataclass(frozen=True, repr=False)
class Generated:
    """A generated text, with the attribution of each output token's score to each input token.

    Attributes:
        inputs: the prompt and what was generated after it, token by token (for an encoder-decoder: the text, and the
            decoder's own prefix); the last output token is no input.
        outputs: the output tokens that were explained, as they stand in the text.
        spelled: what each of them adds to the text, blanks included; '' for the later parts of one sign.
        values: (outputs, inputs). Row i adds up to F(x) - F(x') of output i; what comes after it has exactly zero.
        reach: how many inputs come before each output.
        prompt: how many of the inputs are the user's own text, and not generated.
        probabilities: the probability of each output, given what comes before it.
        certificate: one for each output.
        meta: how it was made, in words.
        against: the token that each output is compared with, where there is one.
        summed: of how many tokens' scores the score of each output is the sum; empty where no scores were added up.
        errors: (outputs, inputs), the estimated error of each value; None where they are not known.
    """

    inputs: Pieces
    outputs: tuple[str, ...]
    spelled: tuple[str, ...]
    values: NDArray[np.float64]
    reach: tuple[int, ...]
    prompt: int
    probabilities: tuple[float, ...]
    certificate: Certificate
    meta: dict[str, str]
    against: str | None = None
    summed: tuple[int, ...] = ()
    errors: NDArray[np.float64] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must not miss, such as signs that the model does not know."""
        return self.inputs.notes

    @property
    def tokens(self) -> tuple[str, ...]:
        """The input tokens as they are written in the text."""
        return self.inputs.texts

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, index: int) -> Explained:
        """One output token, explained by the tokens before it."""
        index = range(len(self.outputs))[index]
        reach, one, pieces = self.reach[index], self.certificate[index], self.inputs
        spans = None if pieces.spans is None else pieces.spans[:reach]
        text = None if spans is None else pieces.text[: max(end for _, end in spans)]
        label = self.outputs[index].strip() or repr(self.outputs[index])
        line = Tokens(
            pieces.texts[:reach],
            self.values[index, :reach].tolist(),
            spans,
            label=label if self.against is None else f"{label} against {self.against}",
            score=one.score,
            baseline_score=one.baseline_score,
            probability=self.probabilities[index] if self.against is None else None,
            certificate=one,
            text=text,
            notes=pieces.notes,
            note=capital(self._score(index)) + "." if self._several(index) > 1 else "",
            errors=None if self.errors is None else _known(self.errors[index, :reach]),
        )
        return Explained(line, pieces.special[:reach], pieces.parts[:reach], self.meta)

    @property
    def rows(self) -> tuple[Explained, ...]:
        """Every output token, each explained by the tokens before it."""
        return tuple(self[i] for i in range(len(self)))

    def shares(self) -> NDArray[np.float64]:
        """What the prompt and the generated prefix each add to every output, (outputs, 2)."""
        return np.stack([self.values[:, : self.prompt].sum(1), self.values[:, self.prompt :].sum(1)], 1)

    def row(self) -> Row:
        """The result as a row of a table of many prompts; see :meth:`summed_row`. ``details`` holds the whole matrix.

        :meth:`of_details` makes the result again.
        """
        from .stored_text import StoredGrid, packed

        return self.summed_row(sentence=self.sentence, details=packed(StoredGrid.of(self)))

    @staticmethod
    def of_details(details: str | None) -> Generated:
        """The result whose row has this in its column ``details``; a FileError if it is not that of a generated text."""
        return _of_kind(Generated, details)

    def summed_row(self, *, called: tuple[str, str] = ("the prompt", "the output so far"), **known: Any) -> Row:
        """One row for all outputs: what each word of the user's own text adds to all of them together.

        A column of the matrix is added up. Integrated gradients are linear, and all outputs have the same path: the sum is
        the attribution of the sum of the outputs' scores. Of probabilities that is the number of outputs that come out as
        they are, as expected if each is given those before it; of log-probabilities, that of the whole text. What the output
        so far adds is a group of its own, so that both groups together make up the change of the score. Error and status are
        those of the worst output; errors of words are added up.

        Args:
            called: what the user's own text and the generated prefix are called.
            **known: further fields of the row.
        """
        line, count = self.line, len(self)
        own = range(len(line.texts) - 1)  # the last is the output so far
        total = self.values.sum(0)
        scale = self.meta.get("score", "score")
        said: dict[str, Any] = {
            "prediction": "".join(self.spelled).strip(),
            "probability": math.prod(self.probabilities) if self.against is None else None,
            "target": self.certificate[0].target if count == 1 else f"{SUMS.get(scale, scale)} of {count} outputs, added up",
            "score": line.score,
            "baseline_score": line.baseline_score,
            "residual": math.fsum(one.residual for one in self.certificate),
            "notes": self.notes,
            "features": tuple(line.texts[i] for i in own),
            "attributions": np.array([line.values[i] for i in own], np.float64),
            "attribution_errors": None if line.errors is None else tuple(line.errors[i] for i in own),
            "groups": called,
            "group_sums": (float(total[: self.prompt].sum()), float(total[self.prompt :].sum())),
        }
        return Row.of(self.certificate, **said | known)

    @property
    def line(self) -> Tokens:
        """The user's own text, each word with what it adds to all outputs together; the output so far is a marker at its end.

        Scores, attributions and errors are added up over the outputs; see :meth:`summed_row`.
        """
        starts = self._first_columns()
        pieces = _joined(self.inputs, starts)
        values = np.add.reduceat(self.values.sum(0), starts)
        errors = None if self.errors is None else _known(np.add.reduceat(self.errors.sum(0), starts))
        own = [i for i, start in enumerate(starts) if start < self.prompt and not pieces.special[i]]
        rest = [i for i, start in enumerate(starts) if start >= self.prompt]
        sums = self._together(range(len(self)), values, "".join(self.spelled).strip())
        spans = None if pieces.spans is None else [pieces.spans[i] for i in own]
        end = max((last for _, last in spans or ()), default=0)
        return Tokens(
            [*(pieces.texts[i] for i in own), "(the output so far)"],
            [*(float(values[i]) for i in own), math.fsum(values[i] for i in rest)],
            None if spans is None else [*spans, (end, end)],
            label="".join(self.spelled).strip(),
            score=sums.score,
            baseline_score=sums.baseline_score,
            probability=math.prod(self.probabilities) if self.against is None else None,
            certificate=sums,
            text=None if spans is None else pieces.text[:end],
            note=f"What a word adds is added up over {len(self)} outputs." if len(self) > 1 else "",
            errors=None if errors is None else [*(errors[i] for i in own), math.fsum(errors[i] for i in rest)],
            notes=self.notes,
        )

    def words(self) -> Generated:
        """The same result with tokens joined into words on both sides; a word's score is the sum of its tokens' scores.

        A sum of probabilities is no probability, and is called a sum wherever it is shown. The word's probability is the
        product of its tokens', and its certificate that of the sum. A word's own column shows what its first
        token adds to its later ones; a word that was begun before the chosen outputs stays apart from the rest of it.
        """
        rows, starts = self.word_runs()
        values, errors = (
            None if part is None else np.add.reduceat(np.add.reduceat(part, starts, axis=1), [run[0] for run in rows], axis=0)
            for part in (self.values, self.errors)  # errors add up at worst
        )
        assert values is not None
        named = self._word_names(rows)
        examples = [self._together(run, values[k], named[k]) for k, run in enumerate(rows)]
        counts = tuple(sum(self._several(i) for i in run) for run in rows)
        whole = replace(self.certificate, examples=tuple(examples))
        return replace(self.by_words(values, whole, summed=counts), errors=errors)

    def word_runs(self) -> tuple[list[range], list[int]]:
        """The outputs that make up each word, and the index of each word's first input."""
        firsts = self._first_rows()
        return [range(a, b) for a, b in zip(firsts, [*firsts[1:], len(self)], strict=True)], self._first_columns()

    def by_words(self, values: NDArray[np.float64], certificate: Certificate, *, summed: tuple[int, ...] = ()) -> Generated:
        """The result by words, of values that were added up or integrated by words.

        Args:
            values: (words that came out, words that went in), as :meth:`word_runs` has them.
            certificate: one for each word that came out.
            summed: of how many tokens' scores each word's score is the sum, where they were added up.
        """
        rows, starts = self.word_runs()
        place = np.searchsorted(starts, np.arange(len(self.tokens) + 1), side="right") - 1
        return replace(
            self,
            inputs=_joined(self.inputs, starts),
            outputs=self._word_names(rows),
            spelled=tuple("".join(self.spelled[i] for i in run) or self.outputs[run[0]] for run in rows),
            values=values,
            reach=tuple(int(place[self.reach[run[-1]] - 1]) + 1 for run in rows),
            prompt=int(place[self.prompt - 1]) + 1,
            probabilities=tuple(math.prod(self.probabilities[i] for i in run) for run in rows),
            certificate=certificate,
            summed=summed,
        )

    def _word_names(self, rows: Sequence[range]) -> tuple[str, ...]:
        return tuple(
            self.outputs[run[0]] if len(run) == 1 else "".join(self.spelled[i] for i in run) or self.outputs[run[0]]
            for run in rows
        )

    def _several(self, index: int) -> int:
        """Of how many tokens' scores the score of an output is the sum."""
        return self.summed[index] if self.summed else 1

    def _score(self, index: int) -> str:
        """What the score of an output is, in words, with its value."""
        scale, score, several = self.meta.get("score", "score"), self.certificate[index].score, self._several(index)
        if several == 1:
            return f"{scale} {score:.2g}" if self.against is None else f"{scale} against {self.against}: {number(score)}"
        return f"the {SUMS.get(scale, scale)} of its {several} pieces add up to {score:.2f}"

    @property
    def sentence(self) -> str:
        """What was written, which words it mostly comes from, and how sure the numbers are, in one line."""
        return f"{shown(self.title)}: {self.origins()}."

    def origins(self) -> str:
        """Which words the outputs mostly come from, of which the model was least sure, and how sure the numbers are."""
        real = np.flatnonzero(~np.array(self.inputs.special[: self.prompt]))
        found = {}
        for i, name in enumerate(self.outputs):
            row = self.values[i, real]
            if len(row) and row.max() > 0 and is_letter(name.strip()[:1]):
                found[i] = real[int(row.argmax())]
        best = sorted(found, key=lambda i: -self.values[i, found[i]])[:MENTIONED]
        pairs = [f"{quoted(self.outputs[i])} comes from {quoted(self.tokens[found[i]])}" for i in sorted(best)]
        pairs[1:] = [pair.replace(" comes from ", " from ") for pair in pairs[1:]]
        said = [", ".join(pairs)] if pairs else []
        if self.against is None and len(self) > 1:
            least = min(range(len(self)), key=self.probabilities.__getitem__)
            said.append(f"least sure of {quoted(_seen(self.outputs[least]))} ({percent(self.probabilities[least])})")
        return "; ".join([*said, trust(self.certificate)])

    def _first_rows(self) -> list[int]:
        """The indices of the outputs that begin a word."""
        out = []
        for i, here in enumerate(self.spelled):
            before = next((text for text in reversed(self.spelled[:i]) if text), "")
            follows = i > 0 and self.reach[i] == self.reach[i - 1] + 1
            goes_on = not here or before.isspace() or (is_letter(before[-1:]) and is_letter(here[:1]))
            if not (follows and goes_on):
                out.append(i)
        return out

    def _first_columns(self) -> list[int]:
        """The indices of the inputs that begin a word; no word crosses the end of the prompt or the first output."""
        groups = word_groups(_line(self.inputs))
        cuts = {self.prompt, self.reach[0]}
        return [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1] or i in cuts]

    def _together(self, run: range, values: NDArray[np.float64], word: str) -> ExampleCertificate:
        """The certificate of a sum of outputs over joined inputs: errors add up at worst, and so do the evaluations.

        Sums may cancel, so error and tolerance are put in proportion to what is left of the magnitude.
        """
        parts = [self.certificate[i] for i in run]
        magnitude = float(np.abs(values).sum())
        worst = next((one for one in parts if not one.converged), parts[0])
        return replace(
            worst,
            score=sum(one.score for one in parts),
            baseline_score=sum(one.baseline_score for one in parts),
            residual=sum(one.residual for one in parts),
            magnitude=magnitude,
            error=sum(one.error * one.magnitude for one in parts) / (magnitude or 1.0),
            tol=sum(one.tol * one.magnitude for one in parts) / (magnitude or 1.0),
            gradients=sum(one.gradients for one in parts),
            forwards=sum(one.forwards for one in parts),
            target=self._named(run, parts[0].target, word),
        )

    def _named(self, run: range, target: str, word: str) -> str:
        """What the certificate of a sum says was explained: a sum of probabilities is none."""
        named, scale = target.replace(repr(self.outputs[run[0]]), repr(word), 1), self.meta.get("score", "")
        if len(run) == 1 or not scale:
            return named
        return named.replace(f"({scale})", f"(sum of the {SUMS.get(scale, scale)} of {len(run)} pieces)")

    @property
    def lines(self) -> list[Tokens]:
        """One line of coloured words for each output, in the form that :mod:`integrand.render.text` draws."""
        return [row.line for row in self.rows]

    def grid(self, first: str = "the prompt", then: str = "the output so far") -> Grid:
        """The heatmap of outputs by inputs; markers, which add exactly nothing, are left out.

        Args:
            first: what to call the user's own text.
            then: what to call the generated prefix.
        """
        real = np.flatnonzero(~np.array(self.inputs.special))
        blocks: list[Block] = []
        for name, columns in ((first, real[real < self.prompt]), (then, real[real >= self.prompt])):
            there = columns < np.array(self.reach)[:, None]
            names = tuple(_seen(self.tokens[i]) for i in columns)
            short, errors = "so far" if blocks else name.split()[-1], None if self.errors is None else self.errors[:, columns]
            blocks.append(Block(name, short, names, self.values[:, columns], there, errors))
        starts, ends = (tuple(getattr(one, name) for one in self.certificate) for name in ("baseline_score", "score"))
        named = tuple(self._score(i) for i in range(len(self)))
        return Grid(tuple(_seen(name) for name in self.outputs), tuple(blocks), starts, ends, named)

    @property
    def title(self) -> str:
        """The prompt, the explained outputs, and the token they are compared with, in one line."""
        pieces = self.inputs
        shown = pieces.texts[: self.prompt] if pieces.spans is None else ()
        prompt = " ".join(shown) or pieces.text[: max((end for _, end in (pieces.spans or ())[: self.prompt]), default=0)]
        rather = "" if self.against is None else f" (against {self.against})"
        return f"{prompt} → {''.join(self.spelled).strip()}{rather}"

    def terminal(self, *, colour: bool = True, width: int | None = None) -> str:
        """The heatmap as a table for a terminal, a row for each output.

        Args:
            colour: 24-bit colours.
            width: in letters; that of the terminal if not given. What is wider goes on below.
        """
        return f"{self.title}\n{alignment_grid.terminal(self.grid(), colour=colour, width=width)}"

    def html(self, *, title: str | None = None, command: str | None = None) -> str:
        """One self-contained page: each output with the words it comes from, the heatmap, running sums and certificates.

        Args:
            title: the heading; by default what was written.
            command: what makes the page again, to be shown in it.
        """
        return grid_page.page(
            self.grid(),
            self.lines,
            heading=title or "".join(self.spelled).strip() or self.title,
            says=self.sentence,
            certificate=self.certificate,
            own=self.prompt,
            meta=self.meta,
            command=command,
            notes=self.notes,
            called=("the prompt", "the output so far"),
        )

    def figure(self, *, title: str | None = None) -> Figure:
        """The heatmap drawn with matplotlib; for long texts, a line of coloured words for each output instead.

        Args:
            title: a heading; by default prompt and output.
        """
        head = self.title if title is None else title
        if len(self.tokens) <= WIDEST:
            return alignment_grid.figure(self.grid(), title=head)
        return pictures.figure(self.lines, title=head)

    def show(self, *, title: str | None = None) -> Figure:
        """The same figure in a window, or as a file where there is no display; returns it."""
        return _presented(self.figure(title=title))

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the suffix of the path; options of :meth:`html` or :meth:`figure`."""
        numbers = [line.numbers() for line in self.lines]
        return write(Path(path), options, picture=self.figure, numbers=lambda: numbers, report=self.html)

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = short_repr

    def _small_html_(self) -> str:
        return said_first(self, alignment_grid.fragment(self.grid()))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)


Found = TypeVar("Found")


def _of_kind(kind: type[Found], details: str | None) -> Found:
    """The result of a row, if it is of this kind."""
    from .stored_text import result_of

    found = result_of(details)
    if not isinstance(found, kind):
        raise FileError(f"the column details holds a result of the kind {type(found).__name__}; expected {kind.__name__}.")
    return found


def _word_columns(texts: Sequence[Explained]) -> dict[str, Any]:
    """The columns of a row that are about single words: of one text, or of several one after the other."""
    words = [one.words() for one in texts]
    real = [[i for i, mark in enumerate(one.special) if not mark] for one in words]
    each = list(zip(words, real, strict=True))
    known = all(one.line.errors is not None for one in words)
    return {
        "features": tuple(one.line.texts[i] for one, own in each for i in own),
        "attributions": np.array([one.line.values[i] for one, own in each for i in own], np.float64),
        "attribution_errors": tuple((one.line.errors or ())[i] for one, own in each for i in own) if known else None,
    }


def _presented(figure: Figure) -> Figure:
    from ...render.figures import present

    return present(figure, "integrand-words")


def word_groups(line: Tokens) -> list[int | None]:
    """The index of the word that each token belongs to; a token of spaces belongs to the word after it."""
    counts = replace(line, values=[1.0] * len(line.texts)).joined().values
    words: list[int | None] = [word for word, count in enumerate(counts) for _ in range(round(count))]
    for i in reversed(range(len(words) - 1)):
        real = line.spans is None or line.spans[i + 1][0] < line.spans[i + 1][1]
        if not line.texts[i].strip() and real:
            words[i] = words[i + 1]
    return words


def stripped(line: Tokens) -> Tokens:
    """The words without the spaces that some tokenizers count as part of them."""
    spans = line.spans
    if spans is not None and line.text is not None:
        spans = [trimmed(line.text, start, end) for start, end in spans]
    return replace(line, texts=[text.strip() or text for text in line.texts], spans=spans)


def with_meta(path: str | PathLike[str], meta: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """The options of a page with ``meta`` added; options of pictures and numbers are returned unchanged."""
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
    errors: NDArray[np.float64] | None = None,
) -> Explained:
    """Build the result of one text from its row of the attributions.

    Args:
        pieces: its tokens.
        values: (columns,) the attributions of its row of the batch.
        certificate: the certificate of these attributions.
        label: what was explained.
        probability: the probability of what was explained.
        meta: how it was made.
        note: a remark shown below the text.
        errors: (columns,) the estimated error of each value, NaN where it is not known.
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
        notes=pieces.notes,
        errors=None if errors is None else _known(errors[columns]),
    )
    return Explained(line, pieces.special, pieces.parts, meta)


def _known(errors: NDArray[np.float64]) -> list[float] | None:
    """The errors of a line, if all of them are known."""
    return errors.tolist() if np.isfinite(errors).all() else None


def _line(pieces: Pieces) -> Tokens:
    return Tokens(pieces.texts, [0.0] * len(pieces.texts), pieces.spans, text=None if pieces.spans is None else pieces.text)


def _joined(pieces: Pieces, starts: list[int]) -> Pieces:
    """The pieces joined into words, given the index of each word's first token."""
    labels = np.searchsorted(starts, np.arange(len(pieces.texts)), side="right").tolist()
    line = stripped(_line(pieces).joined(labels))
    kept: dict[str, Any] = {name: tuple(getattr(pieces, name)[i] for i in starts) for name in ("special", "parts", "ids")}
    spans = None if line.spans is None else tuple(line.spans)
    return replace(pieces, texts=tuple(line.texts), spans=spans, columns=tuple(range(len(starts))), **kept)


def _seen(name: str) -> str:
    """The name of a token as shown; a token of spaces is written as in vocabularies."""
    return name.strip() or "▁"
