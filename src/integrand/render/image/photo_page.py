"""The page of one explained photo: what the network said, where that comes from, and how far to trust it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...attribution import Attribution
from ...errors import InputError
from ...words import number, percent
from ..certificate_text import amount, cancelling, caption, promises, verdict
from ..escaping import escape
from ..html import data_url, document, fact_table, framed, origin
from ..scene import arrays_of
from .image_pictures import SHARES, joined, remarks
from .pixels import Array, contribution, lit, mass_limit, photo_pixels
from .viewer import VIEWER, Map, blocks, script, viewer
from .views import Panel, Signed, Subject
from .whereabouts import ORDINALS, chance

SQUARES = 16
"""How many squares the longer side is cut into for the pictures of what separates two classes."""

STYLE = """
.chances{margin:0 0 1rem}
.chances th{min-width:6rem;max-width:45vw;font-weight:400;overflow-wrap:break-word}
.chances td:nth-child(2){width:55%}
.chances .asked :is(th,td){font-weight:600}
.chances th,.chances td{padding-top:.2rem;padding-bottom:.2rem;vertical-align:middle}
.chances td:last-child{width:5rem;text-align:right;padding-right:0;font-variant-numeric:tabular-nums}
.chances i{display:block;height:.8rem;border-radius:3px;background:var(--focus);min-width:1px}
.chances tr:not(.asked) i{opacity:.45}
.regions{margin:0 0 1rem}
.regions tr{border-top:1px solid var(--line)}
.regions thead tr{border:0}
.regions tbody th{padding-left:1.5em;text-indent:-1.5em}
.regions .rank{display:inline-block;min-width:1.5em;text-indent:0;color:var(--soft);font-variant-numeric:tabular-nums}
.regions :is(th,td){padding-right:.75rem;overflow-wrap:break-word}
.regions :is(th,td):last-child{padding-right:0}
.regions td,.regions thead th+th{text-align:right;font-variant-numeric:tabular-nums}
.notes{margin:0 0 1.5rem;padding-left:1.2rem;color:var(--soft);font-size:.9375rem}
.path img{background:#fff}
.aim{max-width:46rem}
""".strip()

ASKED = ' class="asked"'

AIM = (
    "Every pixel has a number: how much of the score it accounts for, on the way from the baseline to the photo. "
    "The numbers add up, so that a region has one too."
)

PLOT_WIDE, PLOT_TALL, PLOT_GAP = 640, 150, 46
"""The size of one plot and the gap between two, in SVG units."""

PLOT_STYLE = """
.plot{display:block;width:100%;height:auto;max-width:46rem;font-size:13px;overflow:visible}
.plot text{fill:var(--soft)}
.plot .frame{stroke:var(--line);fill:none}
.plot .score{stroke:var(--focus);stroke-width:2.5;fill:none;stroke-linejoin:round}
.plot .mass{fill:var(--focus);opacity:.28}
.plot .share{stroke:var(--soft);stroke-dasharray:3 4}
@media(max-width:40rem){.plot{font-size:19px}}
""".strip()


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A still picture of the page.

    Attributes:
        title: what it shows.
        note: how to read it, or ''.
        pixels: (H, W, 3) uint8, the bytes of a PNG file, or a panel of :mod:`integrand.render.image`, which brings its scale.
        place: the section it belongs to.
    """

    title: str
    note: str
    pixels: Array | bytes | Panel
    place: Literal["path", "regions", "more"] = "more"


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the photo, with its sum of attributions.

    Attributes:
        name: its name or place, in words.
        total: the sum of its attributions.
        area: its share of the photo's area, 0 to 1, where known.
    """

    name: str
    total: float
    area: float | None = None


@dataclass(frozen=True, slots=True)
class PageRival:
    """A second class, and the attribution of what separates the first class from it.

    Attributes:
        first: the label of the first class.
        second: the label of the second class.
        result: the attribution of score(first) - score(second), of the same photo.
        says: a remark on it, in a sentence; '' for nothing beyond the certificate.
    """

    first: str
    second: str
    result: Attribution
    says: str = ""


@dataclass(frozen=True, slots=True)
class ImagePage:
    """Everything that the page of one photo shows, as plain data.

    Attributes:
        label: what is explained, such as "tabby cat".
        photo: what the network saw, (H, W, 3) uint8.
        main: the attribution, of one example, (1, C, H, W) or (C, H, W).
        name: the name of the photo's file.
        network: the network's name, for readers.
        score_name: the unit of the attributions, such as "probability of tabby cat".
        title: the heading; the label by default.
        question: what the page answers, in a sentence; by default made of the label and its rank.
        rank: the place of the label among all answers, 1 for the surest; by default its place in ``top``.
        top: labels with their probabilities, most likely first.
        others: further attributions (C, h, w) to choose in the viewer, by name.
        rival: a second class, and what separates the label from it.
        pictures: further pictures, such as the score along the path.
        regions: parts of the photo with what they add up to, strongest first.
        notes: how the photo was changed when it was read.
        preprocessing: how the network's input was made of it, in words.
        meta: how it was made, beyond what the attribution says.
        command: the command that makes the page again.
        share: where the slider for clipping starts.
    """

    label: str
    photo: Array
    main: Attribution
    name: str = ""
    network: str = "the network"
    score_name: str = "the score"
    title: str = ""
    question: str = ""
    rank: int | None = None
    top: Sequence[tuple[str, float]] = ()
    others: Mapping[str, Array | Map] = field(default_factory=dict)
    rival: PageRival | None = None
    pictures: Sequence[PagePicture] = ()
    regions: Sequence[Region] = ()
    notes: Sequence[str] = ()
    preprocessing: str = ""
    meta: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    share: float = 0.7


def image_page(data: ImagePage) -> str:
    """The page of one photo: a single HTML file that loads nothing, with every text escaped."""
    example = data.main.certificate.only
    sections = (
        _said(data),
        _look(data),
        "" if data.rival is None else _rival(data, data.rival),
        _path(data),
        _regions(data),
        _pictures(data, "more", "Further pictures"),
        f"<h2>How far the numbers can be trusted</h2>\n{verdict(example)}\n{cancelling(example)}{fact_table(example)}"
        + _paragraph(promises(data.main.certificate), "rest"),
    )
    body = "".join(f"<section>\n{text}</section>\n" for text in sections if text)
    made = {"photo": data.name, "network": data.network, "preprocessing": data.preprocessing, **data.main.meta, **data.meta}
    body += origin({key: value for key, value in made.items() if value}, data.command or None)
    return document(data.title or data.label, body, style=f"{VIEWER}{STYLE}{PLOT_STYLE}", scripts=(script(),))


def path_plot(result: Attribution) -> str:
    """The path of a single example as an SVG element with a caption; '' where the result keeps no profile."""
    if result.profile is None or not len(result.profile):
        return ""
    certificate = result.certificate.only
    mean, _ = joined(result.profile.of(int(result.profile.example[0])), certificate)
    reached = tuple(mean.reached(share) for share in SHARES)
    said = remarks(mean, certificate, reached)
    upper = _curve("score", mean.t, mean.score, 0)
    top = PLOT_TALL + PLOT_GAP
    lower = _curve("mass", mean.t, mean.mass, top)
    marks = "".join(
        f'<line class="share" x1="{PLOT_WIDE * t:.1f}" x2="{PLOT_WIDE * t:.1f}" y1="{top}" y2="{top + PLOT_TALL}"/>'
        f"{_before(share, t, top, i)}"
        for i, (share, t) in enumerate(zip(SHARES, reached, strict=True))
        if np.isfinite(t)
    )
    ends = (
        f'<text x="0" y="{top + PLOT_TALL + 18}">baseline</text>'
        f'<text x="{PLOT_WIDE}" y="{top + PLOT_TALL + 18}" text-anchor="end">photo</text>'
    )
    said = f"{said[:1].upper()}{said[1:]}."
    return (
        f'<figure><svg class="plot" viewBox="-2 -22 {PLOT_WIDE + 60} {2 * PLOT_TALL + PLOT_GAP + 46}" role="img" '
        f'aria-label="{escape(said)}">{upper}{lower}{marks}{ends}</svg>'
        f"<figcaption>{escape(said)}</figcaption></figure>\n"
    )


def values_of(result: Attribution, what: str) -> Array:
    """The attribution of a single photo, (C, H, W); raises InputError for results of other shapes."""
    values = arrays_of(result.values, result.batched)[1]
    if len(values) != 1 or len(values[0]) != 1 or values[0].ndim != 4:
        shapes = ", ".join(str(tuple(array.shape)) for array in values)
        raise InputError(f"{what} has values of shape {shapes}; expected those of one photo, (1, channels, height, width)")
    one: Array = values[0][0]
    return one


def _paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>\n' if text else ""


def _said(data: ImagePage) -> str:
    example = data.main.certificate.only
    what = data.question or _question(data)
    rows = "".join(
        f'<tr{ASKED if label == data.label else ""}><th scope="row">{escape(label)}</th>'
        f'<td><i style="width:{100 * _within(sure):.2f}%"></i></td>'
        f"<td>{escape(chance(sure))}</td></tr>\n"
        for label, sure in data.top
    )
    said = f'<h2>What the network said</h2>\n<table class="chances"><tbody>\n{rows}</tbody></table>\n' if rows else ""
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in data.notes)
    score = f"{data.score_name[:1].upper()}{data.score_name[1:]}: {number(example.score, 3)}."
    return f'<p class="lead">{escape(what)} {escape("" if rows else score)}</p>\n{said}' + (
        f'<ul class="notes">\n{notes}</ul>\n' if notes else ""
    )


def _question(data: ImagePage) -> str:
    """The question that the page answers; only a first-ranked label is called the network's answer."""
    photo = data.name or "this photo"
    place = next((i + 1 for i, (label, _) in enumerate(data.top) if label == data.label), None)
    sure = None if place is None else data.top[place - 1][1]
    # The last one of the list may be there only because it is explained.
    rank = data.rank or (None if place == len(data.top) > 1 else place)
    if rank == 1 or (rank is None and place is None):
        return f"What in {photo} made {data.network} answer “{data.label}”?"
    which = "not the network's first answer"
    if rank is not None:
        which = f"the network's {ORDINALS[rank - 1] if rank <= len(ORDINALS) else f'no. {rank}'} answer"
    return f"What in {photo} speaks for “{data.label}” ({'' if sure is None else f'{chance(sure)}, '}{which})?"


def _within(chance: float) -> float:
    return min(max(chance, 0.0), 1.0) if math.isfinite(chance) else 0.0


def _look(data: ImagePage) -> str:
    example = data.main.certificate.only
    about = f"In units of {data.score_name}: from the baseline to the photo it goes from "
    about += f"{number(example.baseline_score, 3)} to {number(example.score, 3)}."
    method = data.main.meta.get("method", "attribution")
    if method in data.others:
        raise InputError(f"others holds {method!r}, the name of the main attribution; expected other names")
    maps: dict[str, Array | Map] = {method: Map(values_of(data.main, "main"), about), **data.others}
    if data.rival is not None:
        first, second = data.rival.first, data.rival.second
        between = f"In units of score({first}) − score({second}): positive speaks for {first}, negative for {second}."
        maps[f"{first} or {second}"] = Map(values_of(data.rival.result, "rival"), between)
    what = f"Where “{data.label}” comes from"
    return (
        f'<h2 id="look">{escape(what)}</h2>\n'
        f'<p class="aim">{escape(AIM)}</p>\n{viewer(data.photo, maps, share=data.share, label=data.label)}'
    )


def _rival(data: ImagePage, rival: PageRival) -> str:
    certificate = rival.result.certificate.only
    values = values_of(rival.result, "rival")
    side = max(1, math.ceil(max(values.shape[1:]) / SQUARES))
    coarse = blocks(contribution(values), side)[None]
    subject = Subject("difference", coarse, photo_pixels(data.photo, values.shape[1:])[0], data.share)
    drawn = (
        framed(_side(subject, 1), f"for {rival.first}", "the squares that speak for it, as bright as they are strong"),
        framed(_side(subject, -1), f"for {rival.second}", "the same for this one"),
        framed(Signed()(subject), "both", f"red for {rival.first}, blue for {rival.second}"),
    )
    told = f"{_preference(rival)} Pixels are added up in squares of {side} × {side}, since neighbours often cancel."
    return (
        f"<h2>{escape(f'What separates {rival.first} from {rival.second}')}</h2>\n"
        + _paragraph(told, "aim")
        + _paragraph(rival.says, "aim")
        + f'<div class="gallery">{"".join(drawn)}</div>\n{verdict(certificate)}\n'
        + f'<p class="rest">{escape(caption(certificate))}. '
        f'<a href="#map={1 + len(data.others)}&amp;view=signed&amp;side=8">Look into it above</a>.</p>\n'
    )


def _preference(rival: PageRival) -> str:
    """Which of two classes the network prefers, and how the difference of their scores changes along the path."""
    certificate = rival.result.certificate.only
    start, end = certificate.baseline_score, certificate.score
    why = f"To see why it is {rival.first} rather than {rival.second}"
    if end < 0:
        why = f"The network prefers {rival.second}; to see what speaks for {rival.first} and what against it"
    elif end == 0:
        why = f"The network rates {rival.first} and {rival.second} alike; to see what speaks for each"
    moved = "no change"
    if end != start:
        moved = f"a change of {number(abs(end - start), 3)} in favour of {rival.first if end > start else rival.second}"
    return (
        f"{why}, the difference score({rival.first}) − score({rival.second}) is explained. From baseline to photo it goes from "
        f"{number(start, 3)} to {number(end, 3)}, {moved}."
    )


def _side(subject: Subject, sign: int) -> Panel:
    """The photo scaled by the squares of one sign only, on the scale of both signs."""
    assert subject.photo is not None
    values = sign * subject.signed
    return Panel("", "", lit(subject.photo, np.where(values < 0, 0.0, values), mass_limit(values, subject.share)))


def _path(data: ImagePage) -> str:
    drawn = [picture for picture in data.pictures if picture.place == "path"]
    plot = path_plot(data.main) if not drawn and data.main.profile is not None else ""
    told = (
        "The score is followed from the baseline to the photo, and its slope is added up on the way. Where it hardly moves any "
        "more it is saturated: the gradient at the photo alone says little of how the score got there."
    )
    title = "Where on the path it comes from"
    if plot:
        return f"<h2>{title}</h2>\n{_paragraph(told, 'aim')}{plot}"
    return _pictures(data, "path", title, told)


def _pictures(data: ImagePage, place: str, title: str, told: str = "") -> str:
    drawn = "".join(_picture(picture) for picture in data.pictures if picture.place == place)
    kind = "path" if place == "path" else "gallery"
    return f'<h2>{escape(title)}</h2>\n{_paragraph(told, "aim")}<div class="{kind}">{drawn}</div>\n' if drawn else ""


def _picture(picture: PagePicture) -> str:
    if isinstance(picture.pixels, Panel):  # with its scale and its numbers
        return framed(picture.pixels, picture.title, *filter(None, (picture.note,)))
    if isinstance(picture.pixels, bytes):
        address = "data:image/png;base64," + base64.b64encode(picture.pixels).decode("ascii")
    else:
        address = data_url(picture.pixels)
    note = f'<span class="note">{escape(picture.note)}</span>' if picture.note else ""
    return (
        f'<figure><img alt="{escape(picture.title)}" src="{address}">'
        f"<figcaption><b>{escape(picture.title)}</b>{note}</figcaption></figure>"
    )


def _regions(data: ImagePage) -> str:
    drawn = "".join(_picture(picture) for picture in data.pictures if picture.place == "regions")
    if not data.regions and not drawn:
        return ""
    example = data.main.certificate.only
    change = example.score - example.baseline_score
    rows = "".join(_region(i + 1, region, change) for i, region in enumerate(data.regions))
    head = "".join(f'<th scope="col">{name}</th>' for name in ("region", "contributes", "of the change", "area"))
    table = f'<table class="regions"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>\n' if rows else ""
    told = f"What the pixels of a region contribute, added up, against the change of the score, {number(change, 3)}."
    told += " The strongest are numbered." if rows and drawn else ""
    return f"<h2>Regions</h2>\n{_paragraph(told, 'aim')}" + (f'<div class="gallery">{drawn}</div>\n' if drawn else "") + table


def _region(rank: int, region: Region, change: float) -> str:
    """A row of the table of regions, with the region's number in the picture."""
    share = f"{100 * region.total / change:+.0f}%" if change else "–"
    area = "" if region.area is None else percent(region.area)
    return (
        f'<tr><th scope="row"><span class="rank">{rank}</span>{escape(region.name)}</th>'
        f"<td>{region.total:+.3g}</td><td>{escape(share)}</td><td>{escape(area)}</td></tr>\n"
    )


def _before(share: float, t: float, top: int, row: int) -> str:
    """The label at a marked time of the plot, to the left of its line where the right edge is near."""
    x, anchor = (PLOT_WIDE * t - 4, ' text-anchor="end"') if t > 0.75 else (PLOT_WIDE * t + 4, "")
    return f'<text x="{x:.1f}" y="{top}" dy="{1.1 + 1.2 * row:.1f}em"{anchor}>{100 * share:.0f}% before here</text>'


def _curve(kind: str, t: Array, values: Array, top: int) -> str:
    """One plot over t from 0 to 1: a line for the score, a filled area for the mass."""
    known = np.where(np.isfinite(values), values, 0.0)
    low, high = min(float(known.min()), 0.0), max(float(known.max()), 0.0)
    span = high - low or 1.0
    points = [f"{PLOT_WIDE * x:.1f},{top + PLOT_TALL * (high - y) / span:.1f}" for x, y in zip(t, known, strict=True)]
    floor = top + PLOT_TALL * high / span
    if kind == "mass":
        shape = f'<path class="mass" d="M0,{floor:.1f} L{" ".join(points)} L{PLOT_WIDE},{floor:.1f} Z"/>'
    else:
        shape = f'<polyline class="score" points="{" ".join(points)}"/>'
    title = "score" if kind == "score" else "attribution mass, magnitudes collected per step of the path"
    return (
        f'<text x="0" y="{top - 8}">{title}</text>'
        f'<path class="frame" d="M0,{top} V{top + PLOT_TALL} M0,{floor:.1f} H{PLOT_WIDE}"/>{shape}'
        f'<text x="{PLOT_WIDE + 6}" y="{top + 10}">{amount(high)}</text>'
        f'<text x="{PLOT_WIDE + 6}" y="{top + PLOT_TALL}">{amount(low)}</text>'
    )
