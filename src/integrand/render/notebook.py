"""Results at a glance: one line of text, a few lines for a terminal, and what notebooks show.

The small view is an HTML fragment with its own inline style: no script, nothing loaded, every text escaped. Where a result has
a page of its own, the notebook shows that page instead (:func:`framed_page`), in a frame that keeps its script apart from the
notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from ..attribution import Attribution
from ..certificate import Certificate, ExampleCertificate
from ..errors import MissingExtraError
from ..trees import flatten
from ..words import byte_size, number, percent, shortened, shown
from .certificate_text import grade, trust
from .escaping import as_srcdoc, escape
from .html import data_url
from .image.pixels import Array, contribution, heat, mass_limit
from .image.whereabouts import Focus, focus_of
from .scene import FeatureNames

ROWS, TOP = 10, 3
"""The examples that are listed, and the features of each."""

THUMBNAIL = 220
"""The width of a picture, in pixels."""

PLACES = (
    ("upper left", "upper centre", "upper right"),
    ("middle left", "centre", "middle right"),
    ("lower left", "lower centre", "lower right"),
)
"""The ninths of a picture, in words."""

TONE = {"good": "#1a7f4b", "mixed": "#8a6a00", "bad": "#b04a0c"}
"""The colours of a certificate's line, which can be read on white and on black."""

TALL, LOW = 700, 560
"""The heights of a frame, in pixels: for pages that begin with a picture, and for those that begin with words. A frame cannot
grow with a page that it is kept apart from; what does not fit scrolls."""

LARGEST = 8_000_000
"""The most characters of a page that a notebook takes in. A notebook holds what it shows, and ten cells of this size make a
file that editors load slowly and GitHub does not show; a photo's page has 1.3 million, one of an eye 5 million."""

SANDBOX = "allow-scripts allow-downloads"
"""What a framed page may do: run its own script and save files. It has an origin of its own, so that it reaches nothing of the
notebook: no cells, no cookies, no kernel."""

T = TypeVar("T")


class ResultList(list[T]):
    """Several results, as a list that shows each of them in a line.

    >>> ResultList(["one", "two"])
    2 results
      [0] one
      [1] two
    """

    def __repr__(self) -> str:
        width = len(str(max(len(self) - 1, 0)))
        lines = [f"  [{i:>{width}}] {shortened(_line_of(one), 84)}" for i, one in enumerate(self[:5])]
        more = [f"  … {len(self) - 5} more"] if len(self) > 5 else []
        return "\n".join([f"{len(self)} result{'s' * (len(self) != 1)}", *lines, *more])

    def _repr_html_(self) -> str:
        drawn = [_small(one) for one in self[:ROWS]]
        more = f"<p>… {len(self) - ROWS} more</p>" if len(self) > ROWS else ""
        return f"<div><p>{len(self)} results</p>{''.join(drawn)}{more}</div>"


def _small(one: object) -> str:
    """The small view of one of many results: a page for each would make a notebook of many megabytes."""
    for name in ("_small_html_", "_repr_html_"):
        if hasattr(one, name):
            return str(getattr(one, name)())
    return f"<p>{escape(_line_of(one))}</p>"


def _line_of(one: object) -> str:
    """A result in one line: its sentence, or the first line of its text."""
    said = getattr(one, "sentence", None)
    return shown(said if isinstance(said, str) else (str(one).splitlines() or [""])[0])


def view(says: str, *pictures: str, certificate: Certificate | ExampleCertificate | None = None, more: str = "") -> str:
    """A result as notebooks show it: the sentence, its pictures, and the certificate in a line.

    Args:
        says: what was found; plain text.
        *pictures: HTML, side by side.
        certificate: how far the numbers can be trusted; left out where the sentence says so.
        more: HTML below.
    """
    drawn = "".join(
        f'<div style="display:inline-block;vertical-align:top;margin:0 .8em .4em 0">{picture}</div>' for picture in pictures
    )
    line = ""
    if certificate is not None and trust(certificate) not in says:
        said = trust(certificate)
        line = f'<p style="margin:.2em 0;color:{TONE[grade(certificate)]}">{escape(said[:1].upper() + said[1:])}.</p>'
    return f'<div><p style="margin:.2em 0 .5em"><strong>{escape(says)}</strong></p>{drawn}{line}{more}</div>'


def framed_page(page: str, *, says: str, height: int = TALL) -> str:
    """A whole page in a frame, as notebooks show it: it works there as in a window of its own, and loads nothing.

    Args:
        page: a self-contained HTML page.
        says: what the frame is called, and what is left where a notebook's viewer takes frames out; plain text.
        height: of the frame, in pixels.
    """
    style = f"width:100%;height:{height:d}px;border:0;border-radius:8px"
    return (
        f'<iframe sandbox="{SANDBOX}" title="{escape(says)}" loading="lazy" style="{style}" '
        f'srcdoc="{as_srcdoc(page)}">{escape(says)}</iframe>'
    )


def notebook_view(result: object, page: Callable[[], str], small: Callable[[], str], *, height: int = TALL) -> str:
    """A result in a notebook: its page in a frame, or the small view where the page is too large or cannot be made here.

    Args:
        result: has a sentence.
        page: makes its page.
        small: makes its small view.
        height: of the frame, in pixels.
    """
    try:
        made = page()
    except MissingExtraError as error:
        return f"{small()}<p>The interactive page is not shown: {escape(error)}.</p>"
    if len(made) > LARGEST:
        size, most = byte_size(len(made)), byte_size(LARGEST)
        told = (
            f"The interactive page has {size}, and a notebook takes in {most}; save(&quot;page.html&quot;) writes it to a file."
        )
        return f"{small()}<p>{told}</p>"
    return framed_page(made, says=_line_of(result), height=height)


def said_first(result: object, drawn: str, certificate: Certificate | ExampleCertificate | None = None) -> str:
    """A fragment that draws a result, with the result's own sentence above it where it has one."""
    said = getattr(result, "sentence", None)
    return view(said, drawn, certificate=certificate) if isinstance(said, str) else drawn


def text_table(result: object) -> str:
    """A result that prints itself as a table, as a notebook shows it: the first lines of that, in even spacing."""
    lines = str(result).splitlines()
    more = f"<p>… {len(lines) - 14} more lines; print() shows them.</p>" if len(lines) > 14 else ""
    return said_first(result, f"<pre>{escape(chr(10).join(lines[:14]))}</pre>{more}")


def thumbnail(pixels: Array, title: str = "", *, width: int = THUMBNAIL) -> str:
    """A picture, (H, W, 3) uint8, with a title under it, for :func:`view`."""
    step = max(1, pixels.shape[1] // (2 * width))
    sharp = ";image-rendering:pixelated" if pixels.shape[1] < width // 2 else ""
    small = np.ascontiguousarray(pixels[::step, ::step])
    under = f'<div style="font-size:85%">{escape(title)}</div>' if title else ""
    return f'<img alt="{escape(title)}" style="width:{width:d}px;height:auto{sharp}" src="{data_url(small)}">{under}'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Texts as a small HTML table; the first ``left`` columns are aligned to the left."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if i < left else "right"};padding:0 .6em">{escape(text)}</{tag}>'
            for i, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class _Rows:
    """The first examples of a result: names of its features, and the attributions of each example, (features,)."""

    names: FeatureNames
    rows: list[Array]
    pictures: list[Array]
    examples: tuple[ExampleCertificate, ...]

    def focus(self, i: int) -> Focus:
        """Where in the picture of example i the evidence lies, as the pages of photos say it."""
        return focus_of(self.pictures[i], self.examples[i])

    def strongest(self, i: int, top: int = TOP) -> list[tuple[str, float]]:
        row = self.rows[i]
        order = np.argsort(-np.where(np.isfinite(row), np.abs(row), -1.0), kind="stable")[:top]
        return [(shortened(self.names[int(k)], 24), float(row[k])) for k in order]

    def said(self, i: int, top: int = TOP) -> str:
        """What mattered most in example i, in a few words."""
        if self.pictures:
            return self.focus(i).told()
        if not np.any(np.nan_to_num(self.rows[i])):
            return "nothing"
        found = ", ".join(f"{name} {value:+.2g}" for name, value in self.strongest(i, top) if value)
        left = len(self.rows[i]) - top
        return found + (f", … {left} more" if left > 0 and top > TOP else "")


def _first_rows(result: Attribution, most: int = ROWS) -> _Rows:
    tree, leaves = flatten(result.values, what="values")
    parts = [(leaf[:most] if result.batched else leaf[None]).detach().cpu() for leaf in leaves]
    arrays = [np.asarray(part.to(torch.float64).numpy(), float) for part in parts]
    keys = tree.keys or (("",) if tree.kind == "tensor" else tuple(f"input {i}" for i in range(tree.size)))
    names = FeatureNames(tuple(map(str, keys)), tuple(array.shape[1:] for array in arrays), None)
    picture = len(arrays) == 1 and arrays[0].ndim == 4 and min(arrays[0].shape[2:]) >= 8
    rows = [names.row(arrays, i) for i in range(len(arrays[0]))]
    return _Rows(names, rows, list(arrays[0]) if picture else [], result.certificate.examples)


def largest_ninth(size: Array) -> str:
    """The ninth of a picture in which the largest sum of some sizes, (H, W), lies, in words."""
    rows, columns = (np.arange(length) * 3 // length for length in size.shape)
    sums = np.bincount((3 * rows[:, None] + columns).ravel(), np.nan_to_num(size).ravel(), 9)
    row, column = divmod(int(sums.argmax()), 3)
    return PLACES[row][column]


def attribution_sentence(result: Attribution) -> str:
    """What a result says, in one line: the score, what mattered most, and how good the numbers are."""
    certificate = result.certificate
    if not len(certificate):
        return "no examples: nothing is known"
    rows = _first_rows(result, 1)
    if len(certificate) > 1:
        count = f"{len(certificate)} examples, {len(rows.rows[0]):,} features each"
        return shown(f"{count}; {trust(certificate)}")
    one = certificate[0]
    change = f"{number(one.score, 3)}, from {number(one.baseline_score, 3)} at the baseline"
    mattered = rows.said(0) if rows.pictures else f"most from {rows.said(0)}"
    return shown(f"{one.target} {change}: {mattered}; {trust(one)}")


def attribution_lines(result: Attribution) -> str:
    """A result in a few lines for a terminal: of several examples, the strongest features of the first ten."""
    said = attribution_sentence(result)
    count = len(result.certificate)
    if count <= 1:
        return shortened(said, 400)
    rows = _first_rows(result)
    width = len(str(count - 1))
    lines = [
        f"[{i:>{width}}] {number(example.score, 3)}: {shortened(_short(rows, i), 31)}{'' if example.converged else ' (!)'}"
        for i, example in enumerate(result.certificate.examples[: len(rows.rows)])
    ]
    more = [f"… {count - len(lines)} more"] if count > len(lines) else []
    return "\n".join([said, *map(shown, lines), *more])


def _short(rows: _Rows, i: int) -> str:
    """What mattered most in example i, for a short line: features without a name by their number alone."""
    if rows.pictures:
        focus = rows.focus(i)
        return f"half in {percent(focus.area)}, {focus.places}" if focus.inside.any() else "nothing"
    return rows.said(i, 2).replace("feature ", "#")


def attribution_view(result: Attribution, details: str) -> str:
    """A result as notebooks show it: what mattered most, and how good the numbers are; the details open.

    Args:
        result: what to show.
        details: HTML of the certificate.
    """
    certificate = result.certificate
    says = attribution_sentence(result)
    more = f'<details><summary style="cursor:pointer">Certificate</summary>{details}</details>'
    if not len(certificate):
        return view(says, more=more)
    rows = _first_rows(result)
    if len(certificate) == 1:
        if rows.pictures:
            values = contribution(rows.pictures[0])
            picture = thumbnail(heat(values, mass_limit(values, 0.7)), "red raises the score, blue lowers it")
        else:
            picture = table(("feature", "attribution"), [(name, f"{v:+.4g}") for name, v in rows.strongest(0, 8)])
            left = len(rows.rows[0]) - 8
            picture += f"<p>… {left:,} more</p>" if left > 0 else ""
        return view(says, picture, certificate=certificate, more=more)
    listed = [
        (str(i), one.target, number(one.score, 3), rows.said(i), trust(one))
        for i, one in enumerate(certificate.examples[: len(rows.rows)])
    ]
    drawn = table(("", "explained", "score", "most from", "accuracy"), listed, left=5)
    drawn += f"<p>… {len(certificate) - len(listed):,} more</p>" if len(certificate) > len(listed) else ""
    return view(says, drawn, certificate=certificate, more=more)


def photo_view(says: str, photo: Array, result: Attribution, label: str, aim: Array | None = None) -> str:
    """An explained photo as notebooks show it: the photo, and the photo with the strongest areas outlined.

    Args:
        says: what was found; plain text.
        photo: what the network saw, (H, W, 3) uint8.
        result: the attributions of one photo.
        label: what is explained.
        aim: the pixels of what is explained, (h, w) bool, where it is a part of the photo: a line goes around them.
    """
    from .image.pixels import with_aim
    from .image.views import Outlines, Subject

    tensor = flatten(result.values, what="values")[1][0]
    values = (tensor[0] if result.batched else tensor).detach().cpu().double().numpy()
    outlined = Outlines()(Subject(label, values, photo / 255))
    seen, drawn = with_aim(photo, aim), with_aim(outlined.pixels, aim)
    pictures = (thumbnail(seen, "what the network saw"), thumbnail(drawn, outlined.note))
    return view(says, *pictures, certificate=result.certificate)
