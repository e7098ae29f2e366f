"""An interactive view of a photo's attributions: HTML whose script draws on a canvas and sums regions.

Without JavaScript the first view shows as a picture. The numbers travel as half-precision floats, whose relative error of
0.05% is a tenth of what the eye can tell, with the exact total beside them.
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
from ..escaping import escape
from ..html import data_url
from .pixels import UNKNOWN, Array, colour_table, contribution, laid, mass_limit, photo_pixels, remark, rgb, strength
from .views import PAPER, SAFE, VIEWS, Overlay, Signed, Subject, View

MOST = 640 * 640
"""Maps with more pixels than this are summed in blocks before they go into a page, which would otherwise be too heavy."""

SHOWN = {
    "scaled": "scaled photo",
    "signed": "signs on grey",
    "green-red": "the paper's green and red",
    "heatmap": "heat map",
    "overlay": "overlay",
    "photo": "photo",
}
"""The views a reader can choose from, with the names shown to them."""

# Pixels are averaged in squares of the reader's choice here, not by the view.
DRAWN: dict[str, View] = {**VIEWS, "overlay": Overlay(smooth=0.0)}
SIGNS = {"both": "both", "positive": "only positive", "negative": "only negative"}

SIDES = {1: "pixels", 4: "squares of 4", 8: "squares of 8", 16: "squares of 16"}
"""The squares in which a reader can sum neighbouring pixels, which often cancel."""

MEANINGS = {
    "scaled": "Each pixel of the photo is as bright as its attribution is strong, whatever its sign.",
    "signed": "Red pixels raise the score, blue ones lower it, over the photo in grey.",
    "green-red": "The paper's colours, in which red means the opposite: green pixels raise the score, red ones lower it.",
    "heatmap": "Red pixels raise the score, blue ones lower it, white ones do neither.",
    "overlay": "Red pixels raise the score, blue ones lower it, over the photo.",
}

VIEWER = """
.viewer{display:grid;grid-template-columns:minmax(0,29rem) minmax(0,1fr);gap:1.25rem 2rem;margin:0}
.look{min-width:0}
.stage{position:relative;border-radius:8px;overflow:hidden;background:#000;line-height:0}
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
.reading{background:var(--card);border-radius:8px;padding:.7rem .9rem;margin:.6rem 0 0;min-height:4.15rem;
font-size:.9375rem;line-height:1.45;font-variant-numeric:tabular-nums}
.buttons{margin:0;display:flex;gap:.5rem}
.buttons button{margin-top:.5rem}
.buttons button{font:inherit;font-size:.875rem;color:var(--ink);background:none;border:1px solid var(--line);border-radius:8px;
padding:.3rem .75rem;cursor:pointer}
.buttons button:hover{border-color:var(--soft)}
.buttons button:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
.buttons button[aria-pressed=true]{background:var(--ink);color:var(--paper)}
.buttons .touch{display:none}
@media(any-pointer:coarse){.buttons .touch{display:block}.controls fieldset span{padding:.5rem .85rem}}
.meaning,.still{color:var(--soft);font-size:.875rem;margin:.4rem 0 0}
@media(max-width:46rem){.viewer{grid-template-columns:minmax(0,1fr)}.stage{max-width:34rem}}
@media(forced-colors:active){.controls input:checked+span{forced-color-adjust:none}}
""".strip()
"""CSS of the interactive view."""


@dataclass(frozen=True, slots=True)
class Map:
    """An attribution shown in the viewer.

    Attributes:
        values: (C, h, w); another grid than the photo's is laid over it in blocks.
        about: what its score is and what raising it means, in a sentence.
    """

    values: Array
    about: str = ""


@cache
def script() -> str:
    """The JavaScript of all viewers on a page, to be included once."""
    parts = (resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("paint.js", "viewer.js"))
    return '"use strict";\n{\n' + "\n".join(parts) + "}\n"  # a block, so that no name leaves it


def viewer(photo: Array, maps: Mapping[str, Array | Map], *, share: float = 0.7, label: str = "", view: str = "scaled") -> str:
    """A photo with its attributions as an HTML fragment, for a page that includes :func:`script`.

    Args:
        photo: (H, W, 3) uint8, or what :func:`photo_pixels` takes.
        maps: attributions (C, h, w) by name; the first one shows.
        share: where the slider for clipping starts, as a share of the attribution mass.
        label: what is explained, for readers who do not see the picture.
        view: the first view, one of :data:`SHOWN`.
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
    still = _still(pixels, first.values, view, share)
    about = f"Attributions of {label or next(iter(read))} on the photo"
    keys = "Arrow keys read a pixel, with shift in steps of ten; Enter starts and ends a region; Escape clears it."
    return (
        '<div class="viewer" data-viewer>\n<div class="look"><div class="stage">'
        f'<img width="{width}" height="{height}" alt="{escape(about)}" src="{data_url(still)}">'
        f'<canvas data-part="canvas" class="{"sharp" if max(width, height) < 112 else "smooth"}" tabindex="0" '
        f'role="application" aria-roledescription="picture" aria-label="{escape(about)}. {keys}"></canvas>'
        '<span class="mark" data-part="mark" hidden></span></div>\n'
        '<div class="scale"><span class="ramp" data-part="ramp"></span><span class="ends" data-part="ends"></span></div>\n'
        '<p class="reading"><output data-part="reading"></output></p>\n'
        '<p class="buttons"><button type="button" class="touch" data-part="select" aria-pressed="false">Mark a region</button>'
        '<button type="button" data-part="clear" hidden>Clear the region</button></p></div>\n'
        f'<div class="side">\n{_controls(list(read), share, view)}\n'
        '<p class="meaning"><span data-part="meaning"></span> <span data-part="sides"></span></p>\n'
        f'<p class="still">{escape(MEANINGS.get(view, ""))} With JavaScript this picture has controls.</p>\n</div>\n'
        f'<script type="application/json" data-part="data">{_json(_data(pixels, read))}</script>\n</div>\n'
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


def _still(pixels: Array, values: Array, view: str, share: float) -> Array:
    """The first view as a still picture, for readers without JavaScript."""
    mass_limit(np.zeros(0), share)  # refuses a share that makes no sense
    if view == "photo":
        out: Array = np.rint(pixels * 255).astype(np.uint8)
        return out
    return DRAWN[view](Subject("", values, pixels, share)).pixels


def _controls(names: list[str], share: float, view: str) -> str:
    choices: list[tuple[str, str, Mapping[Any, str], object]] = [
        ("map", "Attribution", dict(enumerate(names)), 0),
        ("view", "View", SHOWN, view),
        ("side", "Added up in", SIDES, 1),
        ("sign", "Sign", SIGNS, "both"),
    ]
    sets = "".join(
        f"<fieldset{' hidden' if len(options) < 2 else ''}><legend>{legend}</legend>"
        + "".join(
            f'<label><input type="radio" name="{field}" value="{escape(str(value))}"{" checked" if value == chosen else ""}>'
            f"<span>{escape(text)}</span></label>"
            for value, text in options.items()
        )
        + "</fieldset>\n"
        for field, legend, options, chosen in choices
    )
    return (
        f'<form class="controls" data-part="controls" autocomplete="off">\n{sets}'
        '<label class="slide"><span>Pixels below full strength hold <output data-part="share"></output> of the '
        "attribution</span>"
        f'<input type="range" name="share" min="1" max="100" step="1" value="{100 * share:g}"></label>\n</form>'
    )


def _data(pixels: Array, maps: Mapping[str, Map]) -> dict[str, Any]:
    height, width = pixels.shape[:2]
    ends = {"signed": SAFE, "green-red": PAPER}
    return {
        "width": width,
        "height": height,
        "photo": _base64(np.rint(pixels * 255).astype(np.uint8)),
        "colours": colour_table().tolist(),
        "ends": {name: [(255 * rgb(colour)).tolist() for colour in pair] for name, pair in ends.items()},
        "dim": Signed().dim,
        "opacity": Overlay(smooth=0.0).opacity,
        "unknown": [UNKNOWN] * 3,
        "meanings": MEANINGS,
        "maps": [_packed(name, one, (height, width)) for name, one in maps.items()],
    }


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
