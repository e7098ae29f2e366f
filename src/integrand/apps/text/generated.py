"""What comes back for generated texts: output tokens by input tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...certificate import Certificate, ExampleCertificate
from ...files import write
from ...render import text as pictures
from ...render.text import alignment_grid as _grid
from ...render.text.alignment_grid import Block, Grid
from ...render.text.tokens import Tokens, is_letter
from .encoding import Pieces
from .result import Explained, stripped, word_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WIDEST = 80
"""Inputs beyond which a heatmap would be too wide to read."""


@dataclass(frozen=True, repr=False)
class Generated:
    """A generated text: what each input token adds to the score of each output token.

    Attributes:
        inputs: the prompt and what was generated after it, token by token (for an encoder-decoder: the text, and the
            decoder's own prefix); the last output token is no input.
        outputs: the output tokens that were explained, as they stand in the text.
        spelled: what each of them adds to the text, blanks included; '' for the later parts of one sign.
        values: (outputs, inputs). Row i adds up to F(x) - F(x') of output i; what comes after it has exactly zero.
        reach: how many inputs come before each output.
        prompt: how many of the inputs are the user's own text, and not generated.
        probabilities: of each output, given what comes before it.
        certificate: one for each output.
        meta: how it was made, in words.
        against: the token that each output is compared with, where there is one.
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

    @property
    def tokens(self) -> tuple[str, ...]:
        """The input tokens."""
        return self.inputs.texts

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, index: int) -> Explained:
        """One output token and what comes before it."""
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
        )
        return Explained(line, pieces.special[:reach], pieces.parts[:reach], self.meta)

    @property
    def rows(self) -> tuple[Explained, ...]:
        """Every output token with what comes before it."""
        return tuple(self[i] for i in range(len(self)))

    def shares(self) -> NDArray[np.float64]:
        """What the prompt and what the generated prefix adds to each output, (outputs, 2)."""
        return np.stack([self.values[:, : self.prompt].sum(1), self.values[:, self.prompt :].sum(1)], 1)

    def words(self) -> Generated:
        """Tokens joined to words on both sides, with sums kept: a word's score is the sum of its tokens' scores.

        Its probability is the product of theirs, and its certificate that of the sum. A word's own column shows what its later
        tokens owe to the first; a word that was begun before the chosen outputs stays apart from the rest of it.
        """
        firsts, starts = self._first_rows(), self._first_columns()
        rows = [range(a, b) for a, b in zip(firsts, [*firsts[1:], len(self)], strict=True)]
        values = np.add.reduceat(np.add.reduceat(self.values, starts, axis=1), firsts, axis=0)
        place = np.searchsorted(starts, np.arange(len(self.tokens) + 1), side="right") - 1
        spelled = tuple("".join(self.spelled[i] for i in run) or self.outputs[run[0]] for run in rows)
        outputs = tuple(self.outputs[run[0]] if len(run) == 1 else word for run, word in zip(rows, spelled, strict=True))
        examples = [self._together(run, values[k], outputs[k]) for k, run in enumerate(rows)]
        return replace(
            self,
            inputs=_joined(self.inputs, starts),
            outputs=outputs,
            spelled=spelled,
            values=values,
            reach=tuple(int(place[self.reach[run[-1]] - 1]) + 1 for run in rows),
            prompt=int(place[self.prompt - 1]) + 1,
            probabilities=tuple(math.prod(self.probabilities[i] for i in run) for run in rows),
            certificate=replace(self.certificate, examples=tuple(examples)),
        )

    def _first_rows(self) -> list[int]:
        """The outputs that begin a word: no part of a sign, nor what follows a blank or, letters both, goes on."""
        out = []
        for i, here in enumerate(self.spelled):
            before = next((text for text in reversed(self.spelled[:i]) if text), "")
            follows = i > 0 and self.reach[i] == self.reach[i - 1] + 1
            goes_on = not here or before.isspace() or (is_letter(before[-1:]) and is_letter(here[:1]))
            if not (follows and goes_on):
                out.append(i)
        return out

    def _first_columns(self) -> list[int]:
        """The inputs that begin a word; none goes on from the prompt to what follows, or into the first output."""
        groups = word_groups(_line(self.inputs))
        cuts = {self.prompt, self.reach[0]}
        return [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1] or i in cuts]

    def _together(self, run: range, values: NDArray[np.float64], word: str) -> ExampleCertificate:
        """The certificate of the sum of some outputs over joined inputs: errors add up at worst, and so does what was spent.

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
            target=parts[0].target.replace(repr(self.outputs[run[0]]), repr(word), 1),
        )

    @property
    def lines(self) -> list[Tokens]:
        """As pictures of texts take them, one for each output, with its running sum."""
        return [row.line for row in self.rows]

    def grid(self, first: str = "the prompt", then: str = "the output so far") -> Grid:
        """As the heatmap takes it: markers, which add exactly nothing, are left out.

        Args:
            first: what to call the user's own text.
            then: what to call the generated prefix.
        """
        real = np.flatnonzero(~np.array(self.inputs.special))
        blocks: list[Block] = []
        for name, columns in ((first, real[real < self.prompt]), (then, real[real >= self.prompt])):
            there = columns < np.array(self.reach)[:, None]
            names = tuple(_seen(self.tokens[i]) for i in columns)
            blocks.append(Block(name, "so far" if blocks else name.split()[-1], names, self.values[:, columns], there))
        starts, ends = (tuple(getattr(one, name) for one in self.certificate) for name in ("baseline_score", "score"))
        return Grid(tuple(_seen(name) for name in self.outputs), tuple(blocks), starts, ends)

    @property
    def title(self) -> str:
        """The prompt and what was explained of the rest, and against which token."""
        pieces = self.inputs
        shown = pieces.texts[: self.prompt] if pieces.spans is None else ()
        prompt = " ".join(shown) or pieces.text[: max((end for _, end in (pieces.spans or ())[: self.prompt]), default=0)]
        rather = "" if self.against is None else f" (against {self.against})"
        return f"{prompt} → {''.join(self.spelled).strip()}{rather}"

    def terminal(self, *, colour: bool = True, width: int | None = None) -> str:
        """A table for a terminal, a row for each output.

        Args:
            colour: 24-bit colours.
            width: in letters; that of the terminal if not given. What is wider goes on below.
        """
        return f"{self.title}\n{_grid.terminal(self.grid(), colour=colour, width=width)}"

    def html(self, *, title: str = "What each output is owed to", command: str | None = None) -> str:
        """One self-contained page: the heatmap, and each output with its running sum and certificate.

        Args:
            title: the heading.
            command: what makes the page again, to be shown in it.
        """
        return _grid.page(self.grid(), self.lines, title=title, lead=self.title, meta=self.meta, command=command)

    def show(self, *, title: str | None = None) -> Figure:
        """The heatmap with matplotlib; of long texts a line for each output, in colours.

        Args:
            title: a heading; by default prompt and output.
        """
        head = self.title if title is None else title
        return _grid.figure(self.grid(), title=head) if len(self.tokens) <= WIDEST else pictures.figure(self.lines, title=head)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the ending of the path; options of :meth:`html` or :meth:`show`."""
        numbers = [line.numbers() for line in self.lines]
        return write(Path(path), options, picture=self.show, numbers=lambda: numbers, report=self.html)

    def __str__(self) -> str:
        return f"{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _grid.fragment(self.grid())


def _line(pieces: Pieces) -> Tokens:
    return Tokens(pieces.texts, [0.0] * len(pieces.texts), pieces.spans, text=None if pieces.spans is None else pieces.text)


def _joined(pieces: Pieces, starts: list[int]) -> Pieces:
    """Tokens joined, given the first of each word."""
    labels = np.searchsorted(starts, np.arange(len(pieces.texts)), side="right").tolist()
    line = stripped(_line(pieces).joined(labels))
    kept: dict[str, Any] = {name: tuple(getattr(pieces, name)[i] for i in starts) for name in ("special", "parts", "ids")}
    spans = None if line.spans is None else tuple(line.spans)
    return replace(pieces, texts=tuple(line.texts), spans=spans, columns=tuple(range(len(starts))), **kept)


def _seen(name: str) -> str:
    """A name to show: a token that is a blank as vocabularies write it."""
    return name.strip() or "▁"
