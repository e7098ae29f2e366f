"""An interactive view of a photo's attributions: HTML whose script draws on a canvas and sums regions.

Outlines and regions are found in Python and travel as run lengths, with what each says when it is pointed at. Without
JavaScript the first view shows as a picture. The numbers travel as half-precision floats, whose relative error of 0.05% is a
tenth of what the eye can tell, with the exact total beside them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ...errors import InputError, OptionError
from ...words import percent, plus_minus
from ..escaping import escape
from ..html import data_url
from .image_regions import Regions, regions_of, spread
from .image_regions import share as of_change
from .pixels import (
    UNKNOWN,
    Array,
    colour_table,
    contribution,
    laid,
    mass_limit,
    onto,
    photo_pixels,
    remark,
    rgb,
    strength,
    with_aim,
)
from .views import DIMMED, PALE, PAPER, SAFE, TINT, VIEWS, Overlay, Signed, Subject, Superpixels, View
from .whereabouts import Focus, focus_of

MOST = 640 * 640
"""Maps with more pixels than this are summed in blocks before they go into a page, which would otherwise be too heavy."""

REGIONS = 40
"""About how many regions a photo is divided into."""

STRONGEST = 8
"""How many regions are numbered, strongest first."""

SHOWN = {
    "outlines": "outlined",
    "regions": "regions",
    "scaled": "scaled photo",
    "signed": "signs on grey",
    "green-red": "green and red",
    "heatmap": "heat map",
    "overlay": "overlay",
    "photo": "photo",
}
"""The views a reader can choose from, with the names shown to them."""

# Pixels are averaged in squares of the reader's choice here, not by the view.
DRAWN: dict[str, View] = {**VIEWS, "overlay": Overlay(smooth=0.0), "regions": Superpixels(REGIONS, STRONGEST)}
SIGNS = {"both": "both", "positive": "only positive", "negative": "only negative"}

SIDES = {1: "pixels", 4: "squares of 4", 8: "squares of 8", 16: "squares of 16"}
"""The squares in which a reader can sum neighbouring pixels, which often cancel."""

MEANINGS = {
    "outlines": "The smallest smooth area that holds half of what raises the score.",
    "regions": "Regions of like colour: red ones raise the score, blue ones lower it, by what their pixels add up to.",
    "scaled": "Each pixel of the photo is as bright as its attribution is strong, whatever its sign.",
    "signed": "Red pixels raise the score, blue ones lower it, over the photo in grey.",
    "green-red": "The paper's colours, in which red means the opposite: green pixels raise the score, red ones lower it.",
    "heatmap": "Red pixels raise the score, blue ones lower it, white ones do neither.",
    "overlay": "Red pixels raise the score, blue ones lower it, over the photo.",
}

VIEWER = """
.viewer{display:grid;gap:.6rem;margin:0}
.look,.side{min-width:0}
.stage{position:relative;max-width:calc(var(--tall,36rem)*var(--ratio,1));border-radius:8px;overflow:hidden;background:#000;line-height:0}
.stage img{border-radius:0}
.stage canvas{display:none;width:100%;height:auto;cursor:crosshair;outline-offset:-3px;touch-action:manipulation}
.stage canvas.sharp{image-rendering:pixelated}
.stage canvas.selecting{touch-action:none}
.stage canvas:focus-visible{outline:3px solid #fff;box-shadow:inset 0 0 0 5px #000}
.live .stage canvas{display:block}
.live .stage img,.live .still,.viewer:not(.live) :is(.controls,.reading,.buttons,.meaning,.scale){display:none}
.mark{position:absolute;pointer-events:none;outline:2px solid #fff;box-shadow:0 0 0 3px #000,inset 0 0 0 1px #000}
.scale .ramp{border:1px solid var(--line);height:.7rem}
.scale .ends{color:var(--soft)}
.controls fieldset{border:0;margin:0 0 .8rem;padding:0;min-width:0;display:flex;flex-wrap:wrap;gap:.35rem}
.controls fieldset[hidden],.buttons [hidden],.mark[hidden]{display:none}
.controls legend,.slide span{float:left;width:100%;padding:0;margin:0 0 .3rem;font-size:.875rem;color:var(--soft)}
.controls fieldset label{position:relative;display:inline-flex}
.controls input[type=radio]{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;cursor:pointer}
.controls fieldset span{padding:.3rem .75rem;border:1px solid var(--line);border-radius:999px;font-size:.875rem;
line-height:1.35}
.controls input:hover+span{border-color:var(--soft)}
.controls input:checked+span{background:var(--ink);color:var(--paper);border-color:var(--ink)}
.controls input:focus-visible+span{outline:3px solid var(--focus);outline-offset:2px}
.slide{display:block}
.slide output{color:var(--ink);font-variant-numeric:tabular-nums}
.slide input{display:block;width:100%;margin:0;accent-color:var(--focus);height:1.75rem}
.reading{margin:.4rem 0 0;min-height:2.7rem;font-size:.9375rem;line-height:1.4;font-variant-numeric:tabular-nums}
.more{margin:0 0 .5rem;font-size:.875rem}
.more[open]>summary{margin-bottom:.6rem}
.slide[hidden]{display:none}
.buttons{margin:0 0 .5rem;display:flex;flex-wrap:wrap;gap:.5rem}
.buttons button{font:inherit;font-size:.875rem;color:var(--ink);background:none;border:1px solid var(--line);border-radius:8px;
padding:.3rem .6rem;cursor:pointer}
.buttons button:hover{border-color:var(--soft)}
.buttons button:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
.buttons button[aria-pressed=true]{background:var(--ink);color:var(--paper)}
.buttons .touch{display:none}
@media(any-pointer:coarse){.buttons .touch{display:block}.controls fieldset span{padding:.5rem .85rem}}
.meaning,.still{color:var(--soft);font-size:.875rem;margin:.2rem 0 0}
@media(forced-colors:active){.controls input:checked+span{forced-color-adjust:none}}
""".strip()
"""CSS of the interactive view."""


@dataclass(frozen=True, slots=True)
class Map:
    """An attribution shown in the viewer.

    Attributes:
        values: (C, h, w); another grid than the photo's is laid over it in blocks.
        about: what its score is and what raising it means, in a sentence.
        focus: where the evidence lies, which is outlined; found in the values if not given.
        sums: what each region adds up to, (regions,); found in the values if not given.
        errors: the error of each of these sums, (regions,); None where they are not known.
        change: F(x) - F(x'), what complete attributions add up to.
    """

    values: Array
    about: str = ""
    focus: Focus | None = None
    sums: Array | None = None
    errors: Array | None = None
    change: float = math.nan


@cache
def script() -> str:
    """The JavaScript of all viewers on a page, to be included once."""
    parts = (resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("paint.js", "viewer.js"))
    return '"use strict";\n{\n' + "\n".join(parts) + "}\n"  # a block, so that no name leaves it


def viewer(
    photo: Array,
    maps: Mapping[str, Array | Map],
    *,
    share: float = 0.7,
    label: str = "",
    view: str = "scaled",
    found: Regions | None = None,
    file: str = "explained",
    aim: Array | None = None,
    aim_name: str = "",
) -> str:
    """A photo with its attributions as an HTML fragment, for a page that includes :func:`script`.

    Args:
        photo: (H, W, 3) uint8, or what :func:`photo_pixels` takes.
        maps: attributions (C, h, w) by name; the first one shows.
        share: where the slider for clipping starts, as a share of the attribution mass.
        label: what is explained, for readers who do not see the picture.
        view: the first view, one of :data:`SHOWN`.
        found: the regions of the photo; superpixels if not given.
        file: what files that a reader saves are called, without an ending.
        aim: the pixels of what is explained, (h, w) bool, where it is a part of the photo: a yellow line goes around them.
        aim_name: what that is, such as "the box".
    """
    read = {name: value if isinstance(value, Map) else Map(np.asarray(value)) for name, value in maps.items()}
    if not read:
        raise InputError("got no maps to look at; expected at least one attribution of (channels, height, width)")
    if view not in SHOWN:
        raise OptionError(f"got view={view!r}; expected one of {', '.join(map(repr, SHOWN))}")
    for name, one in read.items():
        if one.values.ndim != 3 or not one.values.size:
            raise InputError(f"the map {name!r} has shape {one.values.shape}; expected (channels, height, width)")
    first = next(iter(read.values()))
    pixels = photo_pixels(np.asarray(photo), first.values.shape[1:])[0]
    height, width = pixels.shape[:2]
    for name, one in read.items():
        laid(one.values.shape[1:], (height, width), what=f"the photo under {name!r}")  # refuses other proportions
    still = with_aim(_still(pixels, first, view, share), aim)
    said = "" if aim is None else f"Yellow: {aim_name or 'what is explained'}."
    meaning = " ".join(filter(None, (MEANINGS.get(view, ""), said)))
    found = regions_of(contribution(first.values), pixels, change=first.change, count=REGIONS) if found is None else found
    about = f"Attributions of {label or next(iter(read))} on the photo"
    data = _data(pixels, read, found) | _aimed(aim, pixels, said)
    keys = "Arrow keys read a region or a pixel, with shift ten pixels on; Enter starts and ends a rectangle; Escape clears it."
    return (
        f'<div class="viewer" data-viewer style="--ratio:{width / height:.4f}">\n<div class="look"><div class="stage">'
        f'<img width="{width}" height="{height}" alt="{escape(about)}" src="{data_url(still)}">'
        f'<canvas id="picture" data-part="canvas" class="{"sharp" if max(width, height) < 112 else "smooth"}" tabindex="0" '
        f'role="application" aria-roledescription="picture" aria-label="{escape(about)}. {keys}"></canvas>'
        '<span class="mark" data-part="mark" hidden></span></div>\n'
        '<div class="scale"><span class="ramp" data-part="ramp"></span><span class="ends" data-part="ends"></span></div>\n'
        '<p class="reading"><output data-part="reading"></output></p>\n'
        '<p class="meaning" data-part="meaning"></p>\n'
        f'<p class="still">{escape(meaning)} With JavaScript this picture has controls.</p></div>\n'
        f'<div class="side">\n{_controls(list(read), share, view)}\n<p class="buttons">'
        '<button type="button" class="touch" data-part="select" aria-pressed="false">Mark a rectangle</button>'
        '<button type="button" data-part="clear" hidden>Clear the rectangle</button>'
        f'<button type="button" data-export="png" data-part="picture" data-file="{escape(file)}.png">Save PNG</button>'
        f'<button type="button" data-part="svg" data-file="{escape(file)}.svg">Save SVG</button></p>\n</div>\n'
        f'<script type="application/json" data-part="data">{_json(data)}</script>\n</div>\n'
    )


def blocks(values: Array, side: int) -> Array:
    """Sums over blocks of ``side`` x ``side`` pixels, (h, w) to (h/side, w/side) rounded up; unchanged for side 1.

    Attributions add up, so that a coarser map loses detail and nothing else.

    >>> blocks(np.arange(6.0).reshape(2, 3), 2).tolist()
    [[8.0, 7.0]]
    """
    if side == 1:
        return values
    rows = np.add.reduceat(values, np.arange(0, values.shape[0], side), axis=0)
    out: Array = np.add.reduceat(rows, np.arange(0, values.shape[1], side), axis=1)
    return out


def _still(pixels: Array, first: Map, view: str, share: float) -> Array:
    """The first view as a still picture, for readers without JavaScript."""
    mass_limit(np.zeros(0), share)  # refuses a share that makes no sense
    if view == "photo":
        out: Array = np.rint(pixels * 255).astype(np.uint8)
        return out
    return DRAWN[view](Subject("", first.values, pixels, share, first.change)).pixels


def _controls(names: list[str], share: float, view: str) -> str:
    views = _choice("view", "Look at it as", SHOWN, view)
    more = _choice("map", "Attribution", dict(enumerate(names)), 0)
    more += _choice("side", "Added up in", SIDES, 1) + _choice("sign", "Sign", SIGNS, "both")
    slide = (
        '<label class="slide"><span>Pixels below full strength hold <output data-part="share"></output> of the '
        "attribution</span>"
        f'<input type="range" name="share" min="1" max="100" step="1" value="{100 * share:g}"></label>\n'
    )
    sides = '<p class="meaning" data-part="sides"></p>\n'
    return (
        f'<form class="controls" data-part="controls" autocomplete="off">\n{views}'
        f'<details class="more"><summary>More ways to look</summary>\n{more}{slide}{sides}</details>\n</form>'
    )


def _choice(field: str, legend: str, options: Mapping[Any, str], chosen: object) -> str:
    """A row of buttons of which one is pressed."""
    buttons = "".join(
        f'<label><input type="radio" name="{field}" value="{escape(str(value))}"{" checked" if value == chosen else ""}>'
        f"<span>{escape(text)}</span></label>"
        for value, text in options.items()
    )
    hidden = " hidden" if len(options) < 2 else ""
    return f'<fieldset data-choice="{field}"{hidden}><legend>{escape(legend)}</legend>{buttons}</fieldset>\n'


def _data(pixels: Array, maps: Mapping[str, Map], found: Regions) -> dict[str, Any]:
    height, width = pixels.shape[:2]
    ends = {"signed": SAFE, "green-red": PAPER}
    return {
        "width": width,
        "height": height,
        "photo": _base64(np.rint(pixels * 255).astype(np.uint8)),
        "colours": colour_table().tolist(),
        "ends": {name: [(255 * rgb(colour)).tolist() for colour in pair] for name, pair in ends.items()},
        "dim": Signed().dim,
        "dimmed": DIMMED,
        "pale": PALE,
        "tint": TINT,
        "opacity": Overlay(smooth=0.0).opacity,
        "unknown": [UNKNOWN] * 3,
        "meanings": MEANINGS,
        "labels": runs(onto(found.labels, (height, width))),
        "regions": [_place(found, k) for k in range(len(found))],
        "numbered": STRONGEST,
        "maps": [_packed(name, one, (height, width)) | _told(one, found, (height, width)) for name, one in maps.items()],
    }


def _aimed(aim: Array | None, pixels: Array, said: str) -> dict[str, Any]:
    """What is explained, for the script: the area that a line goes around, and what the line means."""
    return {} if aim is None else {"aim": runs(onto(aim, pixels.shape)), "aimed": said}


def runs(labels: Array) -> list[int]:
    """A map of labels from 0 as lengths of runs along its rows: label, length, label, length, and so on.

    >>> runs(np.array([[0, 0], [0, 3]]))
    [0, 3, 3, 1]
    """
    flat = labels.ravel().astype(int)
    starts = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]])
    out: list[int] = np.stack([flat[starts], np.diff(np.r_[starts, flat.size])], 1).ravel().tolist()
    return out


def _place(found: Regions, region: int) -> list[float]:
    """The middle of a region, as shares of the picture's width and height."""
    (row, column), (height, width) = found.centres[region], found.labels.shape
    return [round(float((column + 0.5) / width), 4), round(float((row + 0.5) / height), 4)]


def _told(one: Map, found: Regions, photo: tuple[int, int]) -> dict[str, Any]:
    """The outlined area and the regions of a map, with what each says when it is pointed at."""
    focus = focus_of(one.values) if one.focus is None else one.focus
    sums = sums_of(one.values, found) if one.sums is None else one.sums
    order = np.argsort(-np.where(np.isfinite(sums), np.abs(sums), -1.0), kind="stable").tolist()
    inside = onto(focus.inside, photo)
    outside = "Outside the line." if inside.any() else ""
    return {
        "inside": runs(inside),
        "focus": [f"{outside} {focus.details}".strip(), f"Inside the line. {focus.details}", focus.details],
        "sums": [float(value) if math.isfinite(value) else None for value in sums],
        "order": order,
        "says": [region_words(found, k, order.index(k) + 1, one, sums) for k in range(len(found))],
    }


def sums_of(values: Array, found: Regions) -> Array:
    """What the regions of a photo add up to in another map, (regions,)."""
    fine = spread(contribution(values), found.labels.shape)
    out: Array = np.bincount(found.labels.ravel(), fine.ravel(), minlength=len(found))
    return out


def region_words(found: Regions, region: int, rank: int, one: Map, sums: Array) -> str:
    """What a region says when it is pointed at: its number, its place, its sum with the error, its share and its area."""
    value, error = float(sums[region]), math.nan if one.errors is None else float(one.errors[region])
    part = of_change(value / one.change) if one.change else ""
    more = f", {part} of the change" if part else ""
    if abs(value) <= error:  # a share of it would say nothing
        more = ", which may as well be zero"
    area = percent(found.areas[region] / found.labels.size)
    return f"Region {rank}, {found.place(region)}: {plus_minus(value, error)}{more}; {area} of the picture."


def _packed(name: str, one: Map, photo: tuple[int, int]) -> dict[str, Any]:
    """A map packed for the script: exact in its total, to 0.05% in each pixel."""
    signed, size = contribution(one.values), strength(one.values)
    grain = math.ceil(math.sqrt(signed.size / MOST))
    signed, size = blocks(signed, grain), blocks(size, grain)
    top = float(np.max(size, where=np.isfinite(size), initial=0.0))
    # A power of two, so that scaling rounds nothing; the largest comes just below 2**15, half a float16's range.
    unit = 2.0 ** (math.frexp(top)[1] - 15) if top else 1.0
    total = float(signed[np.isfinite(signed)].sum())
    return {
        "name": name,
        "about": one.about,
        "remark": "; ".join(filter(None, (remark(signed), laid(one.values.shape[1:], photo)))),
        "width": signed.shape[1],
        "height": signed.shape[0],
        "grain": grain,
        "unit": unit,
        "total": total if math.isfinite(total) else None,
        "signed": _base64(_halves(signed / unit)),
        "strength": _base64(_halves(size / unit)),
    }


def _halves(values: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # infinities stay, and are drawn as unknown
        out: Array = values.astype("<f2")
    return out


def _base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _json(data: object) -> str:
    """JSON text that cannot close the script element it stands in, nor open another element or a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
