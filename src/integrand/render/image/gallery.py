"""A page that links to the pages of many explained photos, with a summary, and can be searched, filtered and sorted."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote

import numpy as np

from ...attribution import Attribution
from ...certificate import Status
from ...words import percent
from ..escaping import escape
from ..glance import GLANCE, Entry, collection, glance_script
from ..html import data_url, document, origin
from .photo_page import NOTICE, values_of
from .pixels import Array, photo_pixels, with_aim
from .viewer import DRAWN
from .views import Subject
from .whereabouts import chance

SIDE = 144
"""The longest side of a thumbnail in pixels, small enough that a page of hundreds opens."""

UNKNOWN_ERROR = 1e6
"""Where an error that is not known stands among others when photos are sorted: beyond all."""

CLASSES = 12
"""How many classes the summary names."""

STYLE = """
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(18rem,100%),1fr));gap:1.25rem;margin:0 0 1.5rem}
.card{background:var(--card);border-radius:10px;overflow:hidden;position:relative;display:flex;flex-direction:column}
.card:hover{outline:2px solid var(--line)}
.card:focus-within{outline:3px solid var(--focus)}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:2px}
.pair img{border-radius:0;aspect-ratio:1;object-fit:cover}
.words{padding:.7rem .9rem .85rem;display:grid;gap:.15rem;font-size:.875rem}
.words a,.words b{color:var(--ink);text-decoration:none;font-size:1rem;font-weight:600;outline:0;overflow-wrap:anywhere}
.words a::after{content:"";position:absolute;inset:0}
.words span,.words p{color:var(--soft);overflow-wrap:anywhere}
.words p{margin:0}
.words .good{color:var(--good)}
.words .bad{color:var(--bad)}
.counts{margin:0 0 .75rem;padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:.35rem .5rem;font-size:.875rem}
.counts li{background:var(--card);border-radius:999px;padding:.15rem .7rem;overflow-wrap:anywhere}
.counts span{color:var(--soft);font-variant-numeric:tabular-nums}
.bad-files th{min-width:12rem;max-width:45vw;overflow-wrap:break-word}
.bad-files td{overflow-wrap:break-word}
.bad-files tr{border-top:1px solid var(--line)}
@media(max-width:40rem){.bad-files,.bad-files :is(tbody,tr,th,td){display:block;max-width:none}.bad-files th{padding-bottom:0}
.bad-files td{padding-top:0}}
""".strip()


class Card(TypedDict):
    """One photo's entry in the gallery, as plain data that can be written to JSON and read again."""

    name: str
    label: str
    link: str
    photo: str
    answer: str
    says: str
    notice: str
    error: float | None
    probability: float | None
    status: str
    good: bool
    detail: str


def card(
    result: Attribution,
    photo: Array,
    *,
    name: str,
    label: str,
    link: str = "",
    probability: float = math.nan,
    says: str = "",
    notice: str = "",
    view: str = "outlines",
    share: float = 0.7,
    aim: Array | None = None,
) -> Card:
    """Make the gallery entry of one explained photo, with thumbnails.

    Args:
        result: the attribution of the photo, of one example.
        photo: what the network saw, (H, W, 3) uint8.
        name: the name of its file.
        label: what the network said.
        link: the path of its page, relative to the gallery's own; '' for none.
        probability: the probability of the label; NaN where there is none.
        says: the answer in one sentence.
        notice: what every reader must know before anything else; it stands at the top of the page.
        view: how the answer is drawn, a name of :data:`integrand.render.image.VIEWS`.
        share: the share of the attribution mass below full brightness, in views that have one.
        aim: the pixels of what is explained, (h, w) bool, where it is a part of the photo: a line goes around them.
    """
    example = result.certificate.only
    values = values_of(result, "result")
    pixels = photo_pixels(photo, values.shape[1:])[0]
    drawn = with_aim(DRAWN[view](Subject("", values, pixels, share)).pixels, aim)
    exact = example.status is Status.EXACT
    return Card(
        name=name,
        label=label,
        link=link,
        photo=data_url(thumbnail(with_aim(np.rint(255 * pixels).astype(np.uint8), aim))),
        answer=data_url(thumbnail(drawn)),
        says=says,
        notice=notice,
        error=float(example.error) if math.isfinite(example.error) else None,
        probability=probability if math.isfinite(probability) else None,
        status=example.status.value,
        good=example.converged,
        detail="" if exact else f"error {percent(example.error)} (asked for {percent(example.tol)})",
    )


_PICTURE = re.compile("data:image/png;base64,[A-Za-z0-9+/]+={0,2}")


def card_of(data: Any) -> Card:
    """A gallery entry that was read from a file, with every value checked, so that no file can write into the page.

    Raises:
        KeyError, TypeError, ValueError: it is not as :func:`card` makes it.
    """
    name, label, link, detail, says, notice = (
        _text(data[key]) for key in ("name", "label", "link", "detail", "says", "notice")
    )
    photo, answer = (_text(data[key]) for key in ("photo", "answer"))
    for address in (photo, answer):
        if not _PICTURE.fullmatch(address):
            raise ValueError(f"got a picture that begins {address[:40]!r}; expected a PNG as a data URL.")
    status = Status(data["status"])
    return Card(
        name=name,
        label=label,
        link=link,
        photo=photo,
        answer=answer,
        says=says,
        notice=notice,
        error=_number(data["error"], "error", math.inf),
        probability=_number(data["probability"], "probability", 1.0),
        status=status.value,
        good=status in (Status.CONVERGED, Status.EXACT),
        detail=detail,
    )


def _number(value: Any, what: str, most: float) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= most or math.isinf(value):
        raise ValueError(f"got the {what} {value!r}; expected a number from 0 to {most:g}, or None.")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got a {type(value).__name__}; expected a text.")
    return value


def gallery_page(
    title: str,
    cards: Sequence[Card],
    failed: Sequence[tuple[str, str]] = (),
    *,
    waiting: int = 0,
    meta: Mapping[str, str] | None = None,
    command: str | None = None,
) -> str:
    """The gallery as an HTML page: a summary, a card per photo, then the files that failed. It loads nothing.

    Args:
        title: the heading.
        cards: the entries of the photos, in the order of the page.
        failed: files that could not be explained, with the reason.
        waiting: how many photos are still to come.
        meta: how they were made.
        command: the command that makes the page again.
    """
    notices = "".join(
        f'<p class="notice">{escape(text)}</p>\n' for text in dict.fromkeys(one["notice"] for one in cards) if text
    )
    body = f'{notices}<p class="says">{escape(summary(cards, failed, waiting=waiting))}</p>\n'
    body += collection(_entries(cards), summary=_counts(cards), noun="photo") if cards else ""
    body += _failed(failed) + origin(meta or {}, command)
    return document(title, body, style=f"{GLANCE}{STYLE}{NOTICE}", scripts=(glance_script(),))


def summary(cards: Sequence[Card], failed: Sequence[tuple[str, str]] = (), *, waiting: int = 0) -> str:
    """How many photos were explained, failed or are still to come, in a sentence or two.

    >>> summary([], [("a.jpg", "not an image")], waiting=2)
    'No photo explained. 1 file failed and is listed at the end. 2 are still to come.'
    """
    short = sum(not one["good"] for one in cards)
    said = f"{len(cards) or 'No'} photo{'s' * (len(cards) > 1)} explained"
    if cards:
        said += ", all to the tolerance" if not short else f", {len(cards) - short} of them to the tolerance"
    doubtful = min((one for one in cards if one["probability"] is not None), key=_sure, default=None)
    if doubtful is not None and len(cards) > 1:
        said += f". Least certain: {doubtful['name']} ({doubtful['label']}, {chance(_sure(doubtful))})"
    if failed:
        said += f". {len(failed)} file{'s failed and are' if len(failed) > 1 else ' failed and is'} listed at the end"
    if waiting:
        said += f". {waiting} {'are' if waiting > 1 else 'is'} still to come"
    return said + "."


def thumbnail(pixels: Array, side: int = SIDE) -> Array:
    """A picture shrunk to at most ``side`` pixels, (H, W, 3) uint8, by averaging the pixels it replaces.

    >>> thumbnail(np.array([[[0] * 3, [100] * 3]], np.uint8), 1).tolist()
    [[[50, 50, 50]]]
    """
    height, width = pixels.shape[:2]
    scale = max(height, width) / side
    if scale <= 1:
        return pixels
    out: Array = pixels.astype(float)
    for axis, length in enumerate((height, width)):
        edges = np.arange(max(1, round(length / scale))) * length // max(1, round(length / scale))
        counts = np.diff(np.r_[edges, length]).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        out = np.add.reduceat(out, edges, axis=axis) / counts
    small: Array = np.rint(out).astype(np.uint8)
    return small


def _sure(one: Card) -> float:
    """The probability of what the network said; above all others where there is none."""
    return 2.0 if one["probability"] is None else one["probability"]


def _counts(cards: Sequence[Card]) -> str:
    """The classes with how many photos are of each."""
    found = Counter(one["label"] for one in cards).most_common()
    shown = "".join(f"<li>{escape(label)} <span>{count}</span></li>\n" for label, count in found[:CLASSES])
    rest = len(found) - CLASSES
    more = f"<li>{rest} more classes</li>\n" if rest > 0 else ""
    return f'<ul class="counts">\n{shown}{more}</ul>\n' if len(cards) > 1 else ""


def _entries(cards: Sequence[Card]) -> list[Entry]:
    """The cards with what they can be searched for, filtered and sorted by."""
    files, labels = (sorted({one[key].lower() for one in cards}) for key in ("name", "label"))
    at, of = ({name: float(i) for i, name in enumerate(names)} for names in (files, labels))
    accuracy = {True: "to the tolerance", False: "not to the tolerance"}
    return [
        Entry(
            _card(one),
            f"{one['name']} {one['label']} {one['says']}",
            {"class": one["label"], "accuracy": accuracy[one["good"]]},
            {
                "least certain first": _sure(one),
                "least accurate first": -UNKNOWN_ERROR if one["error"] is None else -one["error"],
                "class": of[one["label"].lower()],
                "file": at[one["name"].lower()],
            },
        )
        for one in cards
    ]


def _card(one: Card) -> str:
    name, probability = escape(one["name"]), one["probability"]
    sure = "" if probability is None else f" {chance(probability)}"
    label = f"<b>{escape(one['label'])}</b>"
    if one["link"]:  # relative and quoted, so that no name of a file becomes a scheme or another host
        label = f'<a href="./{escape(quote(os.fsencode(one["link"])))}">{escape(one["label"])}</a>'
    detail = f" <span>{escape(one['detail'])}</span>" if one["detail"] else ""
    says = f"<p>{escape(one['says'])}</p>" if one["says"] else ""
    photos = "".join(
        f'<img alt="{alt}" src="{escape(address)}">'
        for address, alt in ((one["photo"], name), (one["answer"], f"{name}: where the answer comes from"))
    )
    status = f'<div><span class="{"good" if one["good"] else "bad"}">{escape(one["status"])}</span>{detail}</div>'
    status = "" if says and one["good"] else status  # the sentence ends with it
    return (
        f'<div class="pair">{photos}</div><div class="words"><div>{label}{escape(sure)}</div>'
        f"<span>{name}</span>{says}{status}</div>\n"
    )


def _failed(failed: Sequence[tuple[str, str]]) -> str:
    if not failed:
        return ""
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(reason)}</td></tr>\n' for name, reason in failed)
    return f'<section>\n<h2>Not explained</h2>\n<table class="bad-files"><tbody>\n{rows}</tbody></table>\n</section>\n'
