"""Pictures of texts: words in red, grey and blue by their attributions, and the running sum from F(x') to F(x).

line = Tokens(["how", "many", "?"], [0.5, 0.3, 0.0], label="number", score=0.99, baseline_score=0.19)
print(terminal([line]))              # colours for a terminal, numbers without them
figure([line], running=True)         # matplotlib
page([line], title="Questions")      # one self-contained HTML page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, MissingExtraError
from ...files import write
from . import word_markup, word_page
from .tokens import TextPiece as Piece
from .tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Piece", "Tokens", "figure", "fragment", "page", "save", "terminal"]

Lines = Tokens | Sequence[Tokens]
"""One text or several."""


def terminal(lines: Lines, *, colour: bool = True, detail: bool = False, limit: float | None = None) -> str:
    """Texts for a terminal, one per line, with what the model said in brackets.

    >>> print(terminal(Tokens(["how", "many", "?"], [0.5, -0.25, 0.0], label="number", probability=0.99), colour=False))
    how(+0.5) many(−0.25) ?  [number (99%)]

    Args:
        lines: one text or several.
        colour: 24-bit colours; without them the attributions of all but neutral words are written out.
        detail: a line below each that says what the words add up to.
        limit: the attribution that has the strongest colour; by default that of each text's strongest word.
    """
    return word_markup.lines(_several(lines), colour=colour, detail=detail, limit=limit)


def fragment(lines: Lines, *, limit: float | None = None) -> str:
    """Texts as an HTML fragment with inline styles, as notebooks show it. Everything in it is escaped.

    Args:
        lines: one text or several.
        limit: as in :func:`terminal`.
    """
    return word_markup.fragment(_several(lines), limit=limit)


def page(
    lines: Lines,
    *,
    title: str = "Words by attribution",
    lead: str = "",
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """Texts as one self-contained HTML page that loads nothing: the answer in a sentence, the words, then the details.

    Args:
        lines: one text, which is shown with its answer in large, or several, which can be searched, filtered and sorted.
        title: the heading; that of one text is its answer, if it has one.
        lead: a remark above several texts.
        meta: how they were made, name by name.
        command: what makes the page again, to be shown in it.
    """
    return word_page.page(_several(lines), title=title, lead=lead, meta=meta, command=command)


def figure(lines: Lines, *, running: bool = False, title: str | None = None, limit: float | None = None) -> Figure:
    """Texts drawn with matplotlib, one below the other. Characters that the font lacks, such as emoji, become empty boxes.

    Args:
        lines: one text or several.
        running: also draw each one's running sum, from F(x') word by word to F(x).
        title: a heading over everything.
        limit: as in :func:`terminal`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from .text_figure import draw
    except ImportError:
        raise MissingExtraError("matplotlib", "pictures", "drawing a text") from None
    return draw(_several(lines), running=running, title=title, limit=limit)


def save(lines: Lines, path: str | PathLike[str], **options: Any) -> Path:
    """Write texts to a file in the format its suffix names: ``.html``, ``.json``, or a picture.

    Args:
        lines: one text or several.
        path: where to.
        **options: options of :func:`page` for ``.html``, of :func:`figure` for ``.png``, ``.svg`` and ``.pdf``.
    """
    rows = _several(lines)
    return write(
        Path(path),
        options,
        picture=lambda **given: figure(rows, **given),
        numbers=lambda: [tokens.numbers() for tokens in rows],
        report=lambda **given: page(rows, **given),
    )


def _several(lines: Lines) -> list[Tokens]:
    rows = [lines] if isinstance(lines, Tokens) else list(lines)
    if not rows:
        raise InputError("got no text to draw; expected at least one.")
    return rows
