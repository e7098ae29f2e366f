"""The scene laid out as one HTML page. Every text passes through ``html.escape``; every picture is inlined."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from html import escape

from ..attribution import ExampleCertificate
from ._certificate import cancelling, facts, sentence, verdict
from ._panel import Mark, Panel
from ._pixels import COLOURS
from ._png import data_url
from ._scene import Bars, Example, Scene
from ._style import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Even a mistake in the page could not load or send anything."""


def page(scene: Scene, meta: Mapping[str, str], *, share: float, command: str | None, promised: str = "") -> str:
    """The whole page.

    Args:
        scene: what is drawn.
        meta: how the result was made.
        share: the share of the attribution mass beyond which pixels are clipped, for the explanation.
        command: what makes the page again.
        promised: what the method promises, in a sentence.
    """
    several = len(scene.examples) + scene.left_out > 1
    count = f"{len(scene.examples)} of {len(scene.examples) + scene.left_out}" if scene.left_out else str(len(scene.examples))
    heading = scene.title or (f"{count} attributions" if several else scene.examples[0].label)
    sections = "".join(_example(example, several=several, titled=bool(scene.title)) for example in scene.examples)
    left_out = f"<p>{scene.left_out} more examples are not drawn.</p>" if scene.left_out else ""
    legend = _legend(share) if scene.examples[0].panels else ""
    said = f'<p class="rest">{escape(promised)}</p>\n' if promised else ""
    return document(heading, f"{sections}{left_out}{legend}{said}{origin(meta, command)}")


def policy(scripts: Sequence[str] = ()) -> str:
    """What a page may do: run exactly these scripts, which is none by default, and load nothing.

    >>> policy() == POLICY
    True
    """
    if not scripts:
        return POLICY
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"{POLICY}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def document(heading: str, body: str, *, style: str = "", scripts: Sequence[str] = ()) -> str:
    """A page that loads nothing and runs nothing but the scripts that it is given.

    Args:
        heading: its title, to be escaped.
        body: HTML under the title.
        style: CSS beyond :data:`STYLE`.
        scripts: JavaScript of ours, to be run once the body is there.
    """
    assert not any("</script" in text.lower() or "<!--" in text for text in scripts)  # either would end or change the element
    run = "".join(f"<script>{text}</script>\n" for text in scripts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(scripts)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(heading)}</h1>\n{body}\n</main>\n{run}</body>\n</html>\n"
    )


def _example(example: Example, *, several: bool, titled: bool) -> str:
    certificate = example.certificate
    title = f"<h2>{escape(example.label)}</h2>\n" if several or titled else ""
    drawn = _gallery(example) if example.panels else "".join(map(bar_table, example.bars))
    table = fact_table(certificate)
    if several:  # what the numbers mean need not be read once per example
        table = f"<details><summary>Certificate</summary>\n{table}</details>\n"
    lead = f'<p class="lead">{escape(sentence(certificate))}</p>'
    return f"<section>\n{title}{lead}\n{drawn}\n{verdict(certificate)}\n{cancelling(certificate)}{table}</section>\n"


def fact_table(certificate: ExampleCertificate) -> str:
    """All that is known of one example, line by line with what it means."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(meaning)}</td></tr>\n"
        for name, value, meaning in facts(certificate)
    )
    return f'<table class="facts"><tbody>\n{rows}</tbody></table>\n{_curves(certificate)}'


def _curves(certificate: ExampleCertificate) -> str:
    if not certificate.curves:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("weight", "F(start)", "F(end)", "sum misses", "error", "gradients"))
    rows = "".join(
        f"<tr><td>{curve.weight:.3g}</td><td>{curve.start_score:.4g}</td><td>{curve.end_score:.4g}</td>"
        f"<td>{curve.residual:+.1e}</td><td>{100 * curve.error:.2g}%</td><td>{curve.gradients}</td></tr>\n"
        for curve in certificate.curves
    )
    table = f'<table class="curves"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
    return f"<details><summary>Each of the {len(certificate.curves)} curves</summary>\n{table}</details>\n"


def _gallery(example: Example) -> str:
    return f'<div class="gallery">{"".join(_panel(panel, example) for panel in example.panels)}</div>'


def _panel(panel: Panel, example: Example) -> str:
    if panel.title:
        return framed(panel, panel.title, panel.note)
    return framed(panel, example.label, "; ".join(filter(None, (f"score {example.certificate.score:.3g}", panel.note))))


def framed(panel: Panel, title: str, *notes: str) -> str:
    """A panel with a title and notes under it, all escaped."""
    sharp = ' class="sharp"' if max(panel.pixels.shape) < 112 else ""
    height, width, _ = panel.pixels.shape
    lines = "".join(f'<span class="note">{escape(note)}</span>' for note in (*notes, *panel.lines))
    image = f'<img{sharp} width="{width}" height="{height}" alt="{escape(title)}" src="{data_url(panel.pixels)}">'
    if panel.marks:
        image = f'<div class="marked">{image}{"".join(_mark(mark, width, height) for mark in panel.marks)}</div>'
    return f"<figure>{image}<figcaption><b>{escape(title)}</b>{lines}{_scale(panel)}</figcaption></figure>"


def _mark(mark: Mark, width: int, height: int) -> str:
    """A text on the picture, at its place whatever the size of the picture."""
    place = f"left:{100 * mark.x / width:.1f}%;top:{100 * mark.y / height:.1f}%"
    return f'<span style="{place}">{escape(mark.text)}</span>'


def _scale(panel: Panel) -> str:
    if not panel.limit:
        return ""
    low, high = ("≤ ", "≥ ") if panel.clipped else ("", "+")
    return (
        f'<span class="ramp" style="background:linear-gradient(to right,{",".join(panel.colours)})"></span>'
        f'<span class="ends"><span>{low}−{panel.limit:.2g}</span><span>0</span><span>{high}{panel.limit:.2g}</span></span>'
    )


def bar_table(bars: Bars, *, reach: float | None = None) -> str:
    """Bars with their title; ``reach`` is the value of the longest bar there is room for, their own if not given."""
    finite = [abs(value) for value in bars.values if math.isfinite(value)]
    reach = reach or max(finite, default=0.0) or 1.0
    rows = "".join(_bar(name, value, reach) for name, value in zip(bars.names, bars.values, strict=True))
    rest = f'<p class="rest">and {bars.hidden} more, adding up to {bars.rest:+.2g}</p>' if bars.hidden else ""
    note = f" <span>{escape(bars.note)}</span>" if bars.note else ""
    return f'<h3>{escape(bars.title)}{note}</h3>\n<table class="bars"><tbody>\n{rows}</tbody></table>{rest}\n'


def _bar(name: str, value: float, reach: float) -> str:
    size = 50 * abs(value) / reach if math.isfinite(value) else 0.0
    left, colour = (50.0, COLOURS[-1]) if value > 0 else (50 - size, COLOURS[0])
    bar = f'<i style="left:{left:.2f}%;width:{size:.2f}%;background:{colour}"></i>'
    text = f"{value:+.3g}" if math.isfinite(value) else str(value)
    return f'<tr><th>{escape(name)}</th><td class="track">{bar}</td><td>{escape(text)}</td></tr>\n'


def _legend(share: float) -> str:
    return (
        '<p class="legend">The brightness of each pixel is scaled by the magnitudes of its attributions, summed over its '
        f"colours. Pixels below full brightness hold {100 * share:.3g}% of all attribution; the few beyond are clipped. In a "
        "signed map a pixel\u2019s attributions are summed with their signs, in units of the score; grey is unknown.</p>\n"
    )


def origin(meta: Mapping[str, str], command: str | None) -> str:
    """How something was made, as a section of the page."""
    rows = "".join(f"<tr><th>{escape(str(key))}</th><td>{escape(str(value))}</td></tr>\n" for key, value in meta.items())
    table = f'<table class="origin"><tbody>\n{rows}</tbody></table>\n' if rows else ""
    again = f"<p>Made with</p>\n<pre><code>{escape(command)}</code></pre>\n" if command else ""
    return f"<section>\n<h2>How it was made</h2>\n{table}{again}</section>" if table or again else ""
