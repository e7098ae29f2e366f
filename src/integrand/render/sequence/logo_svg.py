"""Sequence logos as SVG whose columns name themselves: letters are outlines, scaled to their values."""

from __future__ import annotations

from collections.abc import Sequence

from ..escaping import escape
from ..glance import saying
from .letter_shapes import outline_svg
from .logo_data import Logo, Seqlet, letter_colour
from .logo_layout import PlacedLetter, contribution_letters, extent, hypothetical_letters

COLUMN = 10
"""The width of a column in the units of the drawing; a page stretches them as it likes."""

LEAST = 0.4
"""Letters that are lower than this many pixels are left out: nobody sees them."""


def logo_svg(
    logo: Logo,
    start: int,
    end: int,
    *,
    name: str,
    high: int,
    label: str,
    hypothetical: bool = False,
    speaks: bool = True,
) -> str:
    """A logo as an SVG element that can be stretched sideways.

    Args:
        logo: the sequence.
        start: the first position that is drawn, from 0.
        end: the one after the last.
        name: the ``id`` of the element, by which it is saved.
        high: its height in pixels.
        label: what it shows, for those who hear the page.
        hypothetical: draw hypothetical contributions.
        speaks: whether columns say their numbers when they are pointed at or reached by keyboard.
    """
    letters = (hypothetical_letters if hypothetical else contribution_letters)(logo, start, end)
    low, top = extent(letters)
    scale = (high - 4) / (top - low)
    zero = 2 + top * scale
    shapes = sorted({one.letter for one in letters if (one.high - one.low) * scale >= LEAST})
    defs = "".join(f'<path id="{escape(name)}-{escape(shape)}" d="{outline_svg(shape)}"/>' for shape in shapes)
    columns: dict[int, list[str]] = {i: [] for i in range(start, end)}
    for one in letters:
        tall = (one.high - one.low) * scale
        if tall >= LEAST:
            columns[one.position].append(_letter(one, name, logo.alphabet, start, zero, scale))
    body = []
    for i, parts in columns.items():
        x = COLUMN * (i - start)
        hit = f'<rect class="hit" x="{x}" y="0" width="{COLUMN}" height="{high}"/>'
        says = saying(logo.says(i)) if speaks else ""
        mark = f' id="p{i + 1}"' if speaks else ""
        body.append(f'<g class="col"{mark}{says}>{hit}{"".join(parts)}</g>')
    shades = "" if hypothetical else _shades(logo.seqlets, start, end, high)
    line = f'<line class="zero" x1="0" x2="{COLUMN * (end - start)}" y1="{zero:.2f}" y2="{zero:.2f}"/>'
    return (
        f'<svg class="logo" id="{escape(name)}" xmlns="http://www.w3.org/2000/svg" role="group" aria-label="{escape(label)}" '
        f'viewBox="0 0 {COLUMN * (end - start)} {high}" preserveAspectRatio="none" height="{high}">'
        f"<defs>{defs}</defs>{shades}{''.join(body)}{line}</svg>\n"
    )


def overview_svg(logo: Logo, start: int, end: int, *, high: int = 48) -> str:
    """All positions as bars in the width that there is, to see where something is.

    Args:
        logo: the sequence.
        start: the first position that is drawn, from 0.
        end: the one after the last.
        high: the height in pixels.
    """
    values = [float(v) for v in logo.values[start:end]]
    low, top = min(0.0, *values), max(0.0, *values)
    scale = (high - 2) / ((top - low) or 1.0)
    zero = 1 + top * scale
    bars = "".join(f"M{i} {zero:.2f}v{-v * scale:.2f}h1V{zero:.2f}z" for i, v in enumerate(values) if abs(v) * scale >= 0.2)
    shades = _shades(logo.seqlets, start, end, high, column=1)
    return (
        f'<svg class="overview" data-overview xmlns="http://www.w3.org/2000/svg" aria-hidden="true" viewBox="0 0 {end - start} '
        f'{high}" preserveAspectRatio="none" height="{high}">{shades}<path class="bars-all" d="{bars}"/>'
        f'<rect class="seen" x="0" y="0" width="0" height="{high}"/></svg>\n'
    )


def _letter(one: PlacedLetter, name: str, alphabet: str, start: int, zero: float, scale: float) -> str:
    """A letter in its column; those below the line stand on their heads."""
    tall = (one.high - one.low) * scale
    x = COLUMN * (one.position - start) + 0.04 * COLUMN
    top = zero - one.high * scale
    up = one.high > 0
    place = f"translate({x:.1f} {top if up else top + tall:.2f}) scale({0.92 * COLUMN:.1f} {tall if up else -tall:.2f})"
    faint = ' opacity=".5"' if one.masked else ""
    fill = letter_colour(one.letter, alphabet)
    return f'<use href="#{escape(name)}-{escape(one.letter)}" transform="{place}" fill="{fill}"{faint}/>'


def _shades(seqlets: Sequence[Seqlet], start: int, end: int, high: int, *, column: int = COLUMN) -> str:
    """Seqlets as shaded stretches."""
    return "".join(
        f'<rect class="seqlet" x="{column * (max(one.start, start) - start)}" y="0" '
        f'width="{column * (min(one.end, end) - max(one.start, start))}" height="{high}"/>'
        for one in seqlets
        if one.start < end and one.end > start
    )
