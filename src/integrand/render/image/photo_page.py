"""The page of one explained photo: what the network said, where that comes from, and how far to trust it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

import numpy as np

from ...attribution import Attribution
from ...errors import InputError
from ...words import number, percent, plus_minus
from ..certificate_text import amount
from ..escaping import escape
from ..glance import GLANCE, Export, badge, export_buttons, glance, glance_script
from ..html import data_url, document, framed, origin
from ..scene import arrays_of
from .image_pictures import SHARES, joined, remarks
from .image_regions import Regions, regions_of, with_errors
from .pixels import Array, contribution, photo_pixels, with_aim
from .viewer import REGIONS, VIEWER, Map, script, sums_of, viewer
from .views import Panel, region_panel
from .whereabouts import Focus, chance, focus_of, photo_sentence

SIDES = 4
"""How many regions are listed that speak for one class against another, and against it."""

FIRST = 3
"""How many answers show at once; the others unfold."""

STYLE = """
:is(h1,.says)::first-letter{text-transform:uppercase}
.frames{--tall:min(58vh,36rem);--wide:calc(var(--tall)*var(--ratio,1));display:grid;gap:.75rem 1.25rem;align-items:start;
grid-template:"photo answer said" auto "photo answer rule" auto "photo answer how" 1fr/
minmax(0,var(--wide)) minmax(0,var(--wide)) minmax(12rem,1fr)}
.frames>.viewer{display:contents}
.frames .look{grid-area:answer}
.frames .side{grid-area:how}
.frames .seen{grid-area:photo}
.frames .seen img{max-width:var(--wide)}
.frames .said-all{grid-area:said}
.frames .rule{grid-area:rule;margin:0;font-size:.875rem;color:var(--soft)}
.steps{table-layout:fixed}
.chances.steps th{width:5.5rem}
.chances.steps td:nth-child(2){width:auto;vertical-align:middle}
.seen figcaption{color:var(--soft)}
.chances{margin:0 0 .5rem;font-size:.9375rem}
.chances th{font-weight:400;overflow-wrap:anywhere;padding:.1rem .5rem 0 0;border:0;width:auto}
.chances td{padding:.1rem 0 0;text-align:right;font-variant-numeric:tabular-nums;width:4.2rem}
.chances .bar td{padding:.1rem 0 .35rem;text-align:left;width:auto}
.chances i{display:block;height:.35rem;border-radius:3px;background:var(--focus);min-width:1px}
.chances .other i{opacity:.45}
.chances .asked :is(th,td){font-weight:650}
.chances .point{color:var(--focus)}
.said-all h2{font-size:.875rem;font-weight:400;color:var(--soft);margin:0 0 .15rem;letter-spacing:0}
.said-all details{margin:0 0 .5rem;font-size:.875rem}
.said-all p{margin:0 0 .6rem;font-size:.875rem;color:var(--soft)}
.scroll{max-height:24rem;overflow:auto;margin:0 0 .75rem}
.scroll:focus-visible{outline:3px solid var(--focus)}
.regions{margin:0}
.regions tr{border-top:1px solid var(--line)}
.regions thead tr{border:0}
.regions tbody td:first-child{color:var(--soft);width:2rem}
.regions tbody th{font-weight:400}
.regions :is(th,td){padding-right:.75rem;overflow-wrap:break-word}
.regions :is(th,td):last-child{padding-right:.25rem}
.regions td{white-space:nowrap}
.regions td,.regions thead th:nth-child(n+3){text-align:right;font-variant-numeric:tabular-nums}
.notes{margin:0 0 1.5rem;padding-left:1.2rem;color:var(--soft);font-size:.9375rem}
.path img{background:#fff}
.aim{max-width:46rem}
.versus{display:grid;grid-template-columns:minmax(0,26rem) minmax(0,1fr);gap:1rem 2rem}
.versus h3{margin-top:0}
.versus ul{margin:0 0 1rem;padding:0;list-style:none;font-variant-numeric:tabular-nums}
@media(max-width:64rem){.frames{grid-template:"photo answer" auto "said how" auto "rule how" 1fr/minmax(0,1fr) minmax(0,1fr)}}
@media(max-width:40rem){.frames{--tall:45vh;gap:.5rem .75rem;
grid-template:"photo said" auto "answer answer" auto "rule rule" auto "how how" auto/7rem minmax(0,1fr)}
.notice~.glance .frames{--tall:38vh}.frames .seen img{max-height:8rem;width:auto;max-width:100%}
.seen figcaption,.said-all h2{display:none}.chances{font-size:.875rem;margin:0}.chances .bar td{padding-bottom:.15rem}
.said-all details{margin:0}.versus{grid-template-columns:minmax(0,1fr)}.regions{font-size:.8125rem}}
""".strip()

NOTICE = """
.notice{position:sticky;top:0;z-index:2;margin:0 0 .6rem;padding:.4rem .75rem;border-radius:8px;background:var(--bad-bg);
color:var(--ink);font-size:.9375rem;border-left:4px solid var(--bad)}
@media(max-width:40rem){.notice{font-size:.8125rem;padding:.3rem .6rem}}
""".strip()
"""CSS of a notice that stays at the top of a page."""

AIM = (
    "Every pixel has a number: how much of the score it accounts for, on the way from the baseline to the photo. Pixels with a "
    "positive number speak for the answer, others against it. The numbers add up, so that a region has one too.",
    "The outlined area is the smallest smooth one that holds half of what speaks for the answer: pixels are taken in the order "
    "of their positive numbers, averaged with their neighbours, until half of the sum of all positive numbers is inside. How "
    "far that half may be off follows from the error of all numbers. Much of what speaks against the answer lies there too: in "
    "most networks neighbouring pixels nearly cancel, and the regions say what is left.",
)

UNSUMMED = (
    "Every pixel has a number. The method that gave them does not promise that they add up to the change of the score: those "
    "with a positive number speak for the answer as this method sees it, others against it, and the sum over a region is no "
    "share of the score."
)
"""What takes the place of the first paragraph for methods that are not complete."""

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
    place: Literal["path", "more"] = "more"


@dataclass(frozen=True, slots=True)
class PageRival:
    """A second class, and the attribution of what speaks for the first one against it.

    Attributes:
        first: the label of the explained class.
        second: the label of the other class.
        result: the attribution of score(first) - score(second), of the same photo.
        says: a remark on it, in a sentence; '' for nothing beyond the certificate.
        baseline: what the path starts from, in words.
    """

    first: str
    second: str
    result: Attribution
    says: str = ""
    baseline: str = "the baseline"


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
        says: the answer in one sentence; by default made of the label, its place in the photo and the certificate.
        rank: the place of the label among all answers, 1 for the surest; by default its place in ``top``.
        top: labels with their probabilities, in the order of the page.
        ordered: whether these are the steps of a scale, all of which show, by the part of their names before a colon.
        stated: the label in ``top`` that is marked; by default the one that is explained.
        rule: how the stated one comes about, in a sentence.
        notice: what every reader must know before anything else, in a sentence that stays on top.
        view: the view that shows first, one of :data:`integrand.render.image.viewer.SHOWN`.
        others: further attributions (C, h, w) to choose in the viewer, by name.
        rival: a second class, and what speaks for the label against it.
        pictures: further pictures, such as the score along the path.
        regions: the parts of the photo with their sums; superpixels if not given.
        notes: how the photo was changed when it was read.
        preprocessing: how the network's input was made of it, in words.
        meta: how it was made, beyond what the attribution says.
        command: the command that makes the page again.
        share: where the slider for clipping starts.
        aim: the pixels of what is explained, (h, w) bool, where it is a part of the photo, such as a box or a mask.
        aim_name: what that is, such as "the box".
        heading: what stands over ``top``.
        reading: further paragraphs on how to read the page.
    """

    label: str
    photo: Array
    main: Attribution
    name: str = ""
    network: str = "the network"
    score_name: str = "the score"
    title: str = ""
    says: str = ""
    rank: int | None = None
    top: Sequence[tuple[str, float]] = ()
    ordered: bool = False
    stated: str = ""
    rule: str = ""
    notice: str = ""
    view: str = "outlines"
    others: Mapping[str, Array | Map] = field(default_factory=dict)
    rival: PageRival | None = None
    pictures: Sequence[PagePicture] = ()
    regions: Regions | None = None
    notes: Sequence[str] = ()
    preprocessing: str = ""
    meta: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    share: float = 0.7
    aim: Array | None = None
    aim_name: str = ""
    heading: str = "What the network said"
    reading: Sequence[str] = ()


def image_page(data: ImagePage) -> str:
    """The page of one photo: a single HTML file that loads nothing, with every text escaped."""
    certificate, values = data.main.certificate.only, values_of(data.main, "main")
    focus, found = focus_of(values, certificate), data.regions
    if found is None:
        photo = photo_pixels(data.photo, values.shape[1:])[0]
        found = with_errors(regions_of(contribution(values), photo, change=_change(data.main), count=REGIONS), data.main)
    sections = (
        "" if data.rival is None else _rival(data, data.rival, found),
        _regions(data, found),
        _path(data),
        _pictures(data, "more", "Further pictures"),
        _reading(data),
    )
    body = _paragraph(data.notice, "notice") + _first(data, focus, found)
    body += "".join(f"<section>\n{text}</section>\n" for text in sections if text)
    made = {"photo": data.name, "network": data.network, "preprocessing": data.preprocessing, **data.main.meta, **data.meta}
    body += origin({key: value for key, value in made.items() if value}, data.command or None)
    style = f"{GLANCE}{VIEWER}{STYLE}{NOTICE}{PLOT_STYLE}"
    return document(data.title or data.label, body, style=style, scripts=(glance_script(), script()))


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


def _change(result: Attribution) -> float:
    example = result.certificate.only
    return example.score - example.baseline_score


def _first(data: ImagePage, focus: Focus, found: Regions) -> str:
    """The first screen: the sentence, the certificate, the photo, the answer on it, and what else the network said."""
    height, width = data.photo.shape[:2]
    name = data.name or "the photo"
    photo = with_aim(np.rint(255 * photo_pixels(data.photo)[0]).astype(np.uint8), data.aim)
    sharp = ' class="sharp"' if max(height, width) < 112 else ""
    seen = (
        f'<figure class="seen"><img{sharp} width="{width}" height="{height}" alt="{escape(name)}, as the network got it" '
        f'src="{data_url(photo)}"><figcaption>{escape(name)}, as {escape(data.network)} got it</figcaption></figure>\n'
    )
    frames = (
        f'<div class="frames" style="--ratio:{width / height:.4f}">\n{seen}{_answers(data)}{_look(data, focus, found)}</div>\n'
    )
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in data.notes)
    listed = f'<ul class="notes">\n{notes}</ul>\n' if notes else ""
    return glance(data.says or _says(data, focus), frames, badges=badge(data.main.certificate.only)) + listed


def _says(data: ImagePage, focus: Focus) -> str:
    """The sentence of the page, where none is given; only a first-ranked label is called the network's answer."""
    place = next((i + 1 for i, (label, _) in enumerate(data.top) if label == data.label), None)
    sure = math.nan if place is None else data.top[place - 1][1]
    # The last one of the list may be there only because it is explained.
    rank = data.rank or (None if place == len(data.top) > 1 else place)
    return photo_sentence(data.label, focus, data.main.certificate.only, probability=sure, rank=rank)


def _answers(data: ImagePage) -> str:
    """What the network said, with probabilities: all steps of a scale, else the surest, and the explained one in any case."""
    example = data.main.certificate.only
    if not data.top:
        said = f"{data.score_name[:1].upper()}{data.score_name[1:]}: {number(example.score, 3)}."
        return f'<div class="said-all"><p>{escape(said)}</p></div>\n{_paragraph(data.rule, "rule")}'
    rows = [(label, _answer(data, label, sure)) for label, sure in data.top]
    first = list(rows) if data.ordered else rows[:FIRST]
    first += [row for row in rows[FIRST:] if row not in first and row[0] == data.label]
    rest = [row for row in rows if row not in first]
    head = f'<div class="said-all"><h2>{escape(data.heading)}</h2>\n'
    more = f"<details><summary>{len(rest)} more</summary>\n{_table(rest)}</details>\n" if rest else ""
    kind = "chances steps" if data.ordered else "chances"
    return f"{head}{_table(first, kind)}{more}</div>\n{_paragraph(data.rule, 'rule')}"


def _table(rows: Sequence[tuple[str, str]], kind: str = "chances") -> str:
    return f'<table class="{kind}"><tbody>\n{"".join(row for _, row in rows)}</tbody></table>\n'


def _answer(data: ImagePage, label: str, sure: float) -> str:
    """A row for an answer: a step of a scale with its bar beside it, another one with the bar below."""
    asked = label == (data.stated or data.label)
    kind, spoken = ("asked", ' aria-current="true"') if asked else ("other", "")
    bar = f'<i style="width:{100 * _within(sure):.2f}%"></i>'
    row, chances = (
        f'<tr class="{kind}"{spoken}><th scope="row" title="{escape(label)}">',
        f"<td>{escape(chance(sure))}</td></tr>\n",
    )
    if data.ordered:
        mark = '<span class="point" aria-hidden="true">▸ </span>' if asked else ""
        return f"{row}{mark}{escape(label.partition(':')[0])}</th><td>{bar}</td>{chances}"
    below = f'<tr class="bar {kind}" aria-hidden="true"><td colspan="2">{bar}</td></tr>\n'
    return f"{row}{escape(label)}</th>{chances}{below}"


def _within(chance: float) -> float:
    return min(max(chance, 0.0), 1.0) if math.isfinite(chance) else 0.0


def _look(data: ImagePage, focus: Focus, found: Regions) -> str:
    example = data.main.certificate.only
    about = f"In units of {data.score_name}: from the baseline to the photo it goes from "
    about += f"{number(example.baseline_score, 3)} to {number(example.score, 3)}."
    method = data.main.meta.get("method", "attribution")
    if method in data.others:
        raise InputError(f"others holds {method!r}, the name of the main attribution; expected other names")
    main = Map(values_of(data.main, "main"), about, focus, found.sums, found.errors, _change(data.main))
    maps: dict[str, Array | Map] = {method: main, **data.others}
    if data.rival is not None:
        first, second, result = data.rival.first, data.rival.second, data.rival.result
        between = f"In units of score({first}) − score({second}): positive speaks for {first}, negative for {second}."
        values = values_of(result, "rival")
        area, sums = focus_of(values, result.certificate.only), sums_of(values, found)
        errors = with_errors(replace(found, sums=sums), result).errors
        maps[f"{first} against {second}"] = Map(values, between, area, sums, errors, _change(result))
    file = f"{PurePath(data.name).stem or 'photo'}-explained"
    return viewer(
        data.photo,
        maps,
        share=data.share,
        label=data.label,
        view=data.view,
        found=found,
        file=file,
        aim=data.aim,
        aim_name=data.aim_name,
    )


def _rival(data: ImagePage, rival: PageRival, found: Regions) -> str:
    """Why it is one class and not another: the regions that speak for each, in a picture and as lists."""
    values, change = values_of(rival.result, "rival"), _change(rival.result)
    own = with_errors(replace(found, sums=sums_of(values, found), change=change), rival.result)
    photo = photo_pixels(data.photo, values.shape[1:])[0]
    panel = replace(region_panel(own, photo, rival.first), lines=())
    drawn = framed(panel, f"{rival.first} or {rival.second}", f"red speaks for {rival.first}, blue for {rival.second}")
    ranked = [(i + 1, int(k)) for i, k in enumerate(own.order) if math.isfinite(own.sums[k])]
    lists = "".join(
        _speakers(own, name, [(i, k) for i, k in ranked if sign * own.sums[k] > 0][:SIDES])
        for name, sign in ((rival.first, 1), (rival.second, -1))
    )
    where = f'<p class="rest"><a href="#map={1 + len(data.others)}&amp;view=regions">Look into it in the picture above</a></p>'
    return (
        f"<h2>{escape(f'Why {rival.first} and not {rival.second}')}</h2>\n"
        + _paragraph(preference(rival), "aim")
        + _paragraph(rival.says, "aim")
        + f'<div class="versus">{drawn}<div>{lists}{where}\n'
        + f"{badge(rival.result.certificate.only)}</div></div>\n"
    )


def _speakers(own: Regions, name: str, some: Sequence[tuple[int, int]]) -> str:
    """A list of regions, with their numbers in the picture, that speak for one of two classes."""
    rows = "".join(
        f"<li>{i}: {escape(own.place(k))}, {escape(plus_minus(abs(float(own.sums[k])), float(own.errors[k])))}</li>\n"
        for i, k in some
    )
    return f"<h3>{escape(f'For {name}')}</h3>\n<ul>\n{rows}</ul>\n" if rows else ""


def preference(rival: PageRival) -> str:
    """Why it is one class and not another, from the explained one's side: its lead in the photo and where that comes from."""
    certificate = rival.result.certificate.only
    start, end = certificate.baseline_score, certificate.score
    first, second, empty = rival.first, rival.second, rival.baseline
    lead, before, moved = (number(abs(value), 3) for value in (end, start, end - start))
    if end < 0:
        said = f"It is not {first}: in this photo the network puts {second} ahead by {lead}."
        ahead, behind = second, first
    elif end == 0:
        return f"In this photo the network rates {first} and {second} alike."
    else:
        said = f"In this photo {first} is ahead of {second} by {lead}."
        ahead, behind = first, second
    sign = 1 if end > 0 else -1
    led, gained = sign * start, sign * (end - start)
    if gained > 0 and led <= 0:
        head = f"was behind by {before}" if led < 0 else "was level"
        return f"{said} At {empty} it {head}, so that all of the lead comes from the photo: it speaks for {ahead} by {moved}."
    if gained > 0:
        return f"{said} It was ahead by {before} at {empty} already; the photo speaks for it by a further {moved}."
    if gained == 0:
        return f"{said} So it was at {empty}: on balance the photo speaks for neither."
    return (
        f"{said} But that is not the photo's doing: at {empty}, before anything is seen, it was ahead by {before}. On balance "
        f"the photo speaks for {behind}, by {moved}, and this is what is left of the lead."
    )


def _reading(data: ImagePage) -> str:
    complete = "completeness" not in data.main.certificate.broken
    told = (*(AIM if complete else (UNSUMMED, *AIM[1:])), *data.reading)
    return "<h2>How to read it</h2>\n" + "".join(_paragraph(text, "aim") for text in told)


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


def _regions(data: ImagePage, found: Regions) -> str:
    """All regions as a table that scrolls, strongest first, and can be saved."""
    change = _change(data.main)
    order = [int(k) for k in found.order]
    rows = "".join(_region(i + 1, found, k, change) for i, k in enumerate(order))
    columns = ("no.", "region", "contributes", "error", "of the change", "of the picture")
    head = "".join(f'<th scope="col"{" hidden" * (name == "error")}>{name}</th>' for name in columns)
    table = f'<table class="regions" id="regions"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>\n'
    told = f"What the pixels of a region contribute, added up, in units of {data.score_name}, which changes by "
    told += f"{number(change, 3)}. Regions are patches of like colour; the strongest are numbered in the picture."
    file = f"{PurePath(data.name).stem or 'photo'}-regions.csv"
    return (
        f'<h2>Regions</h2>\n{_paragraph(told, "aim")}<div class="scroll" role="region" aria-label="Regions" tabindex="0">\n'
        f"{table}</div>\n{export_buttons(Export('csv', 'regions', file))}"
    )


def _region(rank: int, found: Regions, region: int, change: float) -> str:
    """A row of the table of regions, with the region's number in the picture; what is saved has all digits."""
    total, error = float(found.sums[region]), float(found.errors[region])
    # Of a sum that may as well be zero no share is told.
    share = total / change if change and not abs(total) <= error else math.nan
    area = float(found.areas[region] / found.labels.size)
    part = f"{100 * share:+.0f}%".replace("-", "−") if math.isfinite(share) else "–"
    return (
        f'<tr><td>{rank}</td><th scope="row">{escape(found.place(region))}</th>'
        f'<td data-value="{total!r}">{escape(plus_minus(total, error))}</td><td hidden data-value="{error!r}"></td>'
        f'<td data-value="{share!r}">{escape(part)}</td><td data-value="{area!r}">{escape(percent(area))}</td></tr>\n'
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
