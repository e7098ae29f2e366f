"""HTML pages: a scene laid out as one self-contained page, and the parts that all pages share.

Every text passes through :func:`~integrand.render.escaping.escape`, every number through a format that only numbers have, or
the same; every picture is inlined.
"""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from ..certificate import ExampleCertificate
from ..version import generator
from .certificate_text import cancelling, facts, sentence, verdict
from .escaping import escape
from .image.pixels import COLOURS, Array
from .image.views import Mark, Panel
from .scene import Bars, Example, Scene

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A content security policy under which even a faulty page could not load or send anything."""

STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--soft:#5d6671;--paper:#fff;--card:#f5f6f8;--line:#dfe3e8;
--good:#166a3e;--good-bg:#e7f5ed;--bad:#a8460b;--bad-bg:#fdf0e4;--mixed:#7a5c00;--mixed-bg:#fcf5d9;--focus:#175cd3}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4af;--paper:#14171b;--card:#1e2329;--line:#323a43;
--good:#5fd39a;--good-bg:#15302a;--bad:#f2a45f;--bad-bg:#38271a;--mixed:#e3c765;--mixed-bg:#312a14;--focus:#6aa9ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:64rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:clamp(1.6rem,5vw,2.3rem);line-height:1.15;letter-spacing:-.02em;margin:0 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;letter-spacing:-.01em;margin:2.5rem 0 .5rem;overflow-wrap:anywhere}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
h3 span{font-weight:400;color:var(--soft)}
.lead{color:var(--soft);margin:0 0 1.5rem}
.gallery{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(13.5rem,100%),1fr));gap:1rem;margin:0 0 1.5rem}
figure{margin:0;min-width:0}
img{display:block;width:100%;height:auto;border-radius:8px;background:var(--card)}
img.sharp{image-rendering:pixelated}
.marked{position:relative;container-type:inline-size}
.marked span{position:absolute;transform:translate(-50%,-50%);white-space:pre;text-align:center;color:#111;
background:rgb(255 255 255/.75);border-radius:.25em;padding:.05em .25em;
font-size:.7rem;font-size:clamp(.6rem,3.1cqw,.9rem);line-height:1.15;font-weight:650;pointer-events:none}
figcaption{margin-top:.5rem;font-size:.875rem;line-height:1.4;overflow-wrap:anywhere}
figcaption b,figcaption .note{display:block}
figcaption span{color:var(--soft)}
.ramp{display:block;height:.5rem;border-radius:4px;margin-top:.4rem}
.ends{display:flex;justify-content:space-between;font-size:.75rem;font-variant-numeric:tabular-nums}
.verdict{border-radius:8px;padding:.75rem 1rem;margin:0 0 1.25rem}
.verdict.good{background:var(--good-bg)}
.verdict.bad{background:var(--bad-bg)}
.verdict.mixed{background:var(--mixed-bg)}
.status{font-weight:650;display:inline-block}
.status::first-letter{text-transform:uppercase}
.good .status{color:var(--good)}
.bad .status{color:var(--bad)}
.mixed .status{color:var(--mixed)}
.status::after{content:"."}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
th{text-align:left;font-weight:550;padding:.45rem 1rem .45rem 0;vertical-align:top}
td{padding:.45rem 1rem .45rem 0;vertical-align:top;overflow-wrap:anywhere}
.facts tr,.origin tr{border-top:1px solid var(--line)}
.facts th,.origin th{white-space:nowrap}
.facts td:nth-child(2){font-variant-numeric:tabular-nums;white-space:nowrap}
.facts td:nth-child(3),.origin th{color:var(--soft);width:99%}
.origin th{width:1%;font-weight:400}
.bars{table-layout:fixed}
.bars th{width:32%;font-weight:400;overflow-wrap:anywhere}
.bars th,.bars td{padding-top:.15rem;padding-bottom:.15rem}
.bars td:last-child{width:6rem;font-variant-numeric:tabular-nums;text-align:right;padding-right:0}
.track{position:relative;background:linear-gradient(var(--line),var(--line)) center/1px 100% no-repeat;padding:0}
.track i{position:absolute;top:.2rem;bottom:.2rem;border-radius:2px}
details{margin:0 0 1rem}
summary{cursor:pointer;color:var(--soft)}
.curves td{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.curves th{text-align:right}
a{color:var(--focus)}
.aside{border-left:3px solid var(--line);padding:.1rem 0 .1rem 1rem;margin:0 0 1.5rem;font-size:.9375rem}
.aside h3{margin:0 0 .4rem}
.aside p{margin:0 0 .6rem;max-width:46rem}
.aside p:last-child{margin:0}
.rest,.legend{color:var(--soft);font-size:.875rem}
pre{background:var(--card);border-radius:8px;padding:.85rem 1rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.875rem}
.wide{overflow-x:auto;margin:0 0 1.25rem}
@media(max-width:40rem){main{padding-top:1.5rem}
.facts tr{display:grid;grid-template-columns:1fr auto;padding:.5rem 0}.facts th,.facts td{padding:0}
.facts td:nth-child(3){grid-column:1/-1;font-size:.875rem;width:auto}.origin th{white-space:normal}}
""".strip()
"""CSS of every page. It uses the reader's own fonts, so that nothing needs loading."""


def page(scene: Scene, meta: Mapping[str, str], *, share: float, command: str | None, promised: str = "") -> str:
    """A scene as a self-contained HTML page.

    Args:
        scene: what is drawn.
        meta: how the result was made.
        share: the share of the attribution mass beyond which pixels are clipped, for the explanation.
        command: the command that makes the page again.
        promised: what the method promises, in a sentence.
    """
    several = len(scene.examples) + scene.left_out > 1
    count = f"{len(scene.examples)} of {len(scene.examples) + scene.left_out}" if scene.left_out else str(len(scene.examples))
    heading = scene.title or (f"{count} attributions" if several else scene.examples[0].label)
    sections = "".join(_example(example, several=several, titled=bool(scene.title)) for example in scene.examples)
    left_out = f"<p>{scene.left_out:d} more examples are not drawn.</p>" if scene.left_out else ""
    legend = _legend(share) if scene.examples[0].panels else ""
    said = f'<p class="rest">{escape(promised)}</p>\n' if promised else ""
    return document(heading, f"{sections}{left_out}{legend}{said}{origin(meta, command)}")


def policy(scripts: Sequence[str] = (), *, plays: bool = False) -> str:
    """The content security policy of a page: it may run exactly these scripts, by default none, and load nothing.

    >>> policy() == POLICY, policy(plays=True) == f"{POLICY}; media-src data:"
    (True, True)

    Args:
        scripts: JavaScript of ours.
        plays: whether it may play sound that is part of the page itself.
    """
    heard = f"{POLICY}; media-src data:" if plays else POLICY
    if not scripts:
        return heard
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"{heard}; script-src {allowed}"  # last, since with_script adds to its end


def with_script(page: str, script: str) -> str:
    """A page of :func:`document` that also runs another script of ours, which its policy then names.

    Args:
        page: the page.
        script: JavaScript, to be run last.
    """
    assert not any(mark in script.lower() for mark in ("</script", "<!--"))
    named = policy((script,)).partition("; script-src ")[2]
    head, mark, rest = page.partition('<meta http-equiv="Content-Security-Policy" content="')
    old, quote, rest = rest.partition('"')
    assert quote, "got a page without a policy; expected one of document()"
    new = f"{old} {named}" if "script-src " in old else f"{old}; script-src {named}"
    body, end, tail = rest.rpartition("</body>")
    return f"{head}{mark}{new}{quote}{body}<script>{script}</script>\n{end}{tail}"


def document(heading: str, body: str, *, style: str = "", scripts: Sequence[str] = (), plays: bool = False) -> str:
    """A self-contained HTML page that loads nothing and runs only the scripts it is given.

    Args:
        heading: its title, to be escaped.
        body: HTML under the title.
        style: CSS beyond :data:`STYLE`.
        scripts: JavaScript of ours, to be run once the body is there.
        plays: whether it has sound in it, as data: URLs, to be played.
    """
    assert not any("</script" in text.lower() or "<!--" in text for text in scripts)  # either would end or change the element
    run = "".join(f"<script>{text}</script>\n" for text in scripts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(scripts, plays=plays)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{escape(generator())}">\n'
        f"<title>{escape(heading)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(heading)}</h1>\n{body}\n</main>\n{run}</body>\n</html>\n"
    )


def fact_table(certificate: ExampleCertificate) -> str:
    """The certificate of one example as an HTML table, each row with its meaning."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(meaning)}</td></tr>\n"
        for name, value, meaning in facts(certificate)
    )
    return f'<table class="facts"><tbody>\n{rows}</tbody></table>\n{_curves(certificate)}'


def framed(panel: Panel, title: str, *notes: str) -> str:
    """A panel as an HTML figure with a title and notes under it, all escaped."""
    sharp = ' class="sharp"' if max(panel.pixels.shape) < 112 else ""
    height, width, _ = panel.pixels.shape
    lines = "".join(f'<span class="note">{escape(note)}</span>' for note in (*notes, *panel.lines))
    image = f'<img{sharp} width="{width}" height="{height}" alt="{escape(title)}" src="{data_url(panel.pixels)}">'
    if panel.marks:
        image = f'<div class="marked">{image}{"".join(_mark(mark, width, height) for mark in panel.marks)}</div>'
    return f"<figure>{image}<figcaption><b>{escape(title)}</b>{lines}{_scale(panel)}</figcaption></figure>"


def bar_table(bars: Bars, *, reach: float | None = None) -> str:
    """A bar chart as an HTML table with its title; ``reach`` is the value of a full-width bar, by default the largest."""
    finite = [abs(value) for value in bars.values if math.isfinite(value)]
    reach = reach or max(finite, default=0.0) or 1.0
    rows = "".join(_bar(name, value, reach) for name, value in zip(bars.names, bars.values, strict=True))
    rest = f'<p class="rest">and {bars.hidden:d} more, adding up to {bars.rest:+.2g}</p>' if bars.hidden else ""
    note = f" <span>{escape(bars.note)}</span>" if bars.note else ""
    return f'<h3>{escape(bars.title)}{note}</h3>\n<table class="bars"><tbody>\n{rows}</tbody></table>{rest}\n'


def wide_table(table: str, label: str) -> str:
    """A table that may be wider than a phone: it scrolls by itself, with the arrow keys too.

    Args:
        table: HTML.
        label: what it holds, to be escaped; for those who hear the page.
    """
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(label)}">{table}</div>\n'


def origin(meta: Mapping[str, str], command: str | None) -> str:
    """How a result was made, as a section of a page."""
    rows = "".join(f"<tr><th>{escape(str(key))}</th><td>{escape(str(value))}</td></tr>\n" for key, value in meta.items())
    table = f'<table class="origin"><tbody>\n{rows}</tbody></table>\n' if rows else ""
    again = f"<p>Made with</p>\n<pre><code>{escape(command)}</code></pre>\n" if command else ""
    return f"<section>\n<h2>How it was made</h2>\n{table}{again}</section>" if table or again else ""


def png(pixels: Array) -> bytes:
    """Encode pixels, (H, W, 3) uint8, as a PNG file.

    >>> png(np.zeros((2, 2, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    # Each line of a PNG starts with the number of its filter; 0 is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits, RGB, not interlaced
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def data_url(pixels: Array) -> str:
    """Pixels, (H, W, 3) uint8, as a PNG data URL to inline into a page."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _example(example: Example, *, several: bool, titled: bool) -> str:
    certificate = example.certificate
    title = f"<h2>{escape(example.label)}</h2>\n" if several or titled else ""
    drawn = _gallery(example) if example.panels else "".join(map(bar_table, example.bars))
    table = fact_table(certificate)
    if several:  # what the numbers mean need not be read once per example
        table = f"<details><summary>Certificate</summary>\n{table}</details>\n"
    lead = f'<p class="lead">{escape(sentence(certificate))}</p>'
    return f"<section>\n{title}{lead}\n{drawn}\n{verdict(certificate)}\n{cancelling(certificate)}{table}</section>\n"


def _curves(certificate: ExampleCertificate) -> str:
    if not certificate.curves:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("weight", "F(start)", "F(end)", "sum misses", "error", "gradients"))
    rows = "".join(
        f"<tr><td>{curve.weight:.3g}</td><td>{curve.start_score:.4g}</td><td>{curve.end_score:.4g}</td>"
        f"<td>{curve.residual:+.1e}</td><td>{100 * curve.error:.2g}%</td><td>{escape(curve.gradients)}</td></tr>\n"
        for curve in certificate.curves
    )
    table = f'<table class="curves"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
    return (
        f"<details><summary>Each of the {len(certificate.curves)} curves</summary>\n{wide_table(table, 'Curves')}</details>\n"
    )


def _gallery(example: Example) -> str:
    return f'<div class="gallery">{"".join(_panel(panel, example) for panel in example.panels)}</div>'


def _panel(panel: Panel, example: Example) -> str:
    if panel.title:
        return framed(panel, panel.title, panel.note)
    return framed(panel, example.label, "; ".join(filter(None, (f"score {example.certificate.score:.3g}", panel.note))))


def _mark(mark: Mark, width: int, height: int) -> str:
    """A text on a picture, positioned in percent so that it scales with the picture."""
    place = f"left:{100 * mark.x / width:.1f}%;top:{100 * mark.y / height:.1f}%"
    return f'<span style="{place}">{escape(mark.text)}</span>'


def _scale(panel: Panel) -> str:
    if not panel.limit:
        return ""
    low, high = ("≤ ", "≥ ") if panel.clipped else ("", "+")
    return (
        f'<span class="ramp" style="background:linear-gradient(to right,{escape(",".join(panel.colours))})"></span>'
        f'<span class="ends"><span>{low}−{panel.limit:.2g}</span><span>0</span><span>{high}{panel.limit:.2g}</span></span>'
    )


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
