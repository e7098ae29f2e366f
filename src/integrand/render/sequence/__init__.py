"""Sequence logos: letters as high as their attributions, those that speak against it upside down below the line.

logo = found.logo                        # of a result of integrand.sequences
figure(logo, window=(20, 80))            # matplotlib
page(logo)                               # one self-contained HTML page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, MissingExtraError
from ...files import write
from .logo_data import Logo, Seqlet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Logo", "Seqlet", "figure", "fragment", "page", "save"]

SMALL = 120
"""The letters that a notebook's small view shows, around the strongest stretch."""


def figure(
    logo: Logo,
    *,
    window: tuple[int, int] | None = None,
    hypothetical: bool = False,
    marks: Sequence[tuple[int, int, str]] = (),
    title: str | None = None,
) -> Figure:
    """A logo drawn with matplotlib, in rows of a hundred letters; of more than twelve rows, the strongest stretches.

    Args:
        logo: the sequence.
        window: the positions to draw, start and end as Python counts.
        hypothetical: also draw what other letters would contribute, below.
        marks: stretches to mark with a line and a text, such as known motifs: (start, end, text).
        title: a heading; by default the sentence.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with_letters()
    from .logo_figure import draw

    drawn: Figure = draw(logo, window=window, hypothetical=hypothetical, marks=marks, title=title)
    return drawn


def page(
    logos: Logo | Sequence[Logo],
    *,
    title: str = "Sequences by attribution",
    lead: str = "",
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """Sequences as one self-contained HTML page that loads nothing: the answer in a sentence, the logo, the numbers.

    Args:
        logos: one sequence, which is shown in large, or several, which can be searched and sorted.
        title: the heading of several.
        lead: a remark above several.
        meta: how they were made, name by name.
        command: what makes the page again, to be shown in it.

    Raises:
        MissingExtraError: matplotlib, whose letters these are, is not installed.
    """
    with_letters()
    from . import logo_page

    return logo_page.page(_several(logos), title=title, lead=lead, meta=meta, command=command)


def fragment(logo: Logo) -> str:
    """The strongest part of a logo as an HTML fragment, as notebooks show it."""
    with_letters()
    from .logo_page import window_of
    from .logo_svg import logo_svg

    start, end = window_of(logo, SMALL)
    drawn = logo_svg(logo, start, end, name="logo-small", high=90, label="what each letter contributes", speaks=False)
    style = "<style>.hit{fill:none}.seqlet{fill:#8882}.zero{stroke:#888}svg.logo{width:100%}</style>"
    return f"{style}{drawn}"


def save(logos: Logo | Sequence[Logo], path: str | PathLike[str], numbers: Any = None, **options: Any) -> Path:
    """Write logos to a file in the format its suffix names: a page for several, a page or a picture for one.

    Args:
        logos: one sequence or several.
        path: where to.
        numbers: what a .json file holds, a function of no arguments.
        **options: options of :func:`page` for ``.html``, of :func:`figure` for ``.png``, ``.svg`` and ``.pdf``.
    """
    rows = _several(logos)
    if len(rows) > 1 and Path(path).suffix.lower() in (".png", ".svg", ".pdf"):
        raise InputError(f"got {len(rows)} sequences for a picture; expected one. Several go on a page: .html.")
    return write(
        Path(path),
        options,
        picture=lambda **given: figure(rows[0], **given),
        numbers=numbers or (lambda: None),
        report=lambda **given: page(rows, **given),
    )


def with_letters() -> None:
    """Check that letters can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from . import letter_shapes as _  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "sequences", "drawing a sequence logo") from None


def _several(logos: Logo | Sequence[Logo]) -> list[Logo]:
    rows = [logos] if isinstance(logos, Logo) else list(logos)
    if not rows:
        raise InputError("got no sequence to draw; expected at least one.")
    return rows
