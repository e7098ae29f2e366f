"""What comes back for generated texts: output tokens by input tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..attribution import Certificate
from ..render import text as pictures
from ..render.text import Tokens
from ._encode import Pieces
from ._result import Explained, stripped, with_meta, word_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Generated:
    """A generated text: what each input token adds to the score of each output token.

    Attributes:
        inputs: the prompt and what was generated after it, token by token (for an encoder-decoder: the text, and the
            decoder's own prefix); the last output token is no input.
        outputs: the output tokens that were explained, as they stand in the text.
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
        """Input tokens joined to words, with sums kept; outputs stay tokens, since their scores do not add up.

        Generated tokens that an output comes between stay apart: the word was not there yet.
        """
        pieces = self.inputs
        whole = Tokens(
            pieces.texts, [0.0] * len(pieces.texts), pieces.spans, text=None if pieces.spans is None else pieces.text
        )
        groups = word_groups(whole)
        cuts = {self.prompt, *self.reach}
        starts = [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1] or i in cuts]
        labels = [sum(start <= i for start in starts) - 1 for i in range(len(groups))]
        joined = stripped(whole.joined(labels))
        place = {start: word for word, start in enumerate([*starts, len(groups)])}
        return replace(
            self,
            inputs=replace(
                pieces,
                texts=tuple(joined.texts),
                spans=None if joined.spans is None else tuple(joined.spans),
                special=tuple(pieces.special[i] for i in starts),
                parts=tuple(pieces.parts[i] for i in starts),
                columns=tuple(range(len(starts))),
                ids=tuple(pieces.ids[i] for i in starts),
            ),
            values=np.add.reduceat(self.values, starts, axis=1),
            reach=tuple(place[reach] for reach in self.reach),
            prompt=place[self.prompt],
        )

    @property
    def lines(self) -> list[Tokens]:
        """As pictures take them, one for each output."""
        return [row.line for row in self.rows]

    def terminal(self, **options: Any) -> str:
        """For a terminal, a line for each output; options as in :func:`integrand.render.text.terminal`."""
        return pictures.terminal(self.lines, **options)

    def html(self, **options: Any) -> str:
        """One self-contained page; options as in :func:`integrand.render.text.page`."""
        return pictures.page(self.lines, **{"meta": self.meta} | options)

    def show(self, **options: Any) -> Figure:
        """A matplotlib figure; options as in :func:`integrand.render.text.figure`."""
        return pictures.figure(self.lines, **options)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write ``.html``, ``.json`` or a picture, by the ending of the path."""
        return pictures.save(self.lines, path, **with_meta(path, self.meta, options))

    def __str__(self) -> str:
        return f"{self.terminal(colour=False)}\n{self.certificate}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return pictures.fragment(self.lines)
