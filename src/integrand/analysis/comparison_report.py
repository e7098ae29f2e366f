"""A comparison as HTML. Every text passes through ``html.escape``; every picture is inlined."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from ..render.html import bar_table, document, framed, origin
from ..render.image.pixels import heat
from .comparison_figure import ComparisonRow, ComparisonScene, titles
from .comparison_result import AGREEMENT, Comparison, Floats
from .comparison_text import cell, misses, question, spent, table

STYLE = """
.wide{overflow-x:auto;margin:0 0 1.25rem}
.numbers{font-size:.8125rem}
.numbers th,.numbers td{padding-right:.7rem}
.numbers td{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.numbers thead th{text-align:right;vertical-align:bottom}
.numbers tbody tr{border-top:1px solid var(--line)}
.numbers tbody th{min-width:8rem;overflow-wrap:anywhere}
.numbers th:first-child,.numbers td:last-child,.numbers th:last-child{text-align:left}
.numbers td:last-child{white-space:normal;min-width:13rem;overflow-wrap:normal;color:var(--soft)}
.matrix{width:auto;font-variant-numeric:tabular-nums}
.matrix td{text-align:center;padding:.35rem .5rem;min-width:3.2rem;border:1px solid var(--paper)}
.matrix thead th{text-align:center;padding:.2rem}
.matrix tbody th{font-weight:400;white-space:nowrap}
.pair{display:flex;flex-wrap:wrap;gap:.5rem 3rem}
.side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(19rem,100%),1fr));gap:0 2rem}
"""

READING = (
    ("sum misses", "The sum of a method\u2019s attributions minus F(x) \u2212 F(x\u2032). Zero is what completeness asks for."),
    ("of change", "The same without its sign, as a share of |F(x) \u2212 F(x\u2032)|."),
    ("gradients, forwards, seconds", "What the method took for all examples; seconds as measured in this run."),
    ("error", "How far the values are from the method\u2019s own definition, as estimated; 0 where nothing was approximated."),
    ("no promise of", "Axioms of the paper that the method is known to break on some models, not that it did so here."),
)


def page(comparison: Comparison, scene: ComparisonScene, command: str | None) -> str:
    """The whole page."""
    heading = scene.title or f"{len(comparison.names)} attribution methods side by side"
    left_out = f"<p>{scene.left_out} more examples are not drawn.</p>\n" if scene.left_out else ""
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    body = (
        f'<p class="lead">{escape(question(comparison))}</p>\n'
        f"{''.join(_example(comparison, row) for row in scene.rows)}{left_out}"
        f'<p class="legend">{escape(scene.legend)}</p>\n'
        f"<section>\n<h2>What each misses and costs</h2>\n{_table(comparison)}"
        "<details><summary>What the columns mean</summary>\n"
        f'<table class="origin"><tbody>\n{reading}</tbody></table></details>\n'
        f"</section>\n{_correlations(comparison)}{_failures(comparison)}"
    )
    meta = dict(comparison.meta) | {name: comparison.settings[name] for name in comparison.names if name in comparison.settings}
    return document(heading, body + origin(meta, command), style=STYLE)


def fragment(comparison: Comparison) -> str:
    """The numbers as a piece of HTML, for notebooks; it brings no style of its own but what a table needs."""
    rows = table(comparison)
    head = "".join(f'<th style="text-align:right;padding:0 .6em">{escape(title)}</th>' for title in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:right;padding:0 .6em">{escape(part)}</td>' for part in row) + "</tr>"
        for row in rows[1:]
    )
    failed = "".join(f"<li>{escape(name)}: {escape(message)}</li>" for name, message in comparison.failures.items())
    return (
        f"<div><p>{escape(question(comparison))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{_matrices(comparison)}{f'<p>Gave nothing:</p><ul>{failed}</ul>' if failed else ''}</div>"
    )


def _example(comparison: Comparison, row: ComparisonRow) -> str:
    title = f"<h2>{escape(row.label)}</h2>\n" if comparison.examples > 1 or row.photo is None else ""
    notes = [(misses(comparison, name, row.index), spent(comparison, name, row.index)) for name in comparison.names]
    if row.bars:
        reach = None if row.ends is None else max(-row.ends[0], row.ends[1])
        bars = "".join(
            f'<div>{bar_table(bar, reach=reach)}<p class="rest">{"<br>".join(map(escape, note))}</p></div>\n'
            for bar, note in zip(row.bars, notes, strict=True)
        )
        return f'<section>\n{title}<div class="side">{bars}</div></section>\n'
    panels = framed(row.photo, row.label, f"score {row.score:.3g}", row.photo.note) if row.photo is not None else ""
    for panel, name, note in zip(row.maps, titles(comparison), notes, strict=True):
        panels += framed(panel, name, *note, panel.note)
    return f'<section>\n{title}<div class="gallery">{panels}</div></section>\n'


def _table(comparison: Comparison) -> str:
    titles_, *rows = table(comparison)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles_)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(part)}</td>' for part in row[1:])}</tr>\n" for row in rows
    )
    return f'<div class="wide"><table class="numbers"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def _correlations(comparison: Comparison) -> str:
    if len(comparison.names) < 2:
        return ""
    mean = f"Averaged over {comparison.examples} examples. " if comparison.examples > 1 else ""
    return (
        f'<section>\n<h2>Rank correlations</h2>\n<p class="legend">{mean}{escape(AGREEMENT)}</p>\n'
        f"{_matrices(comparison)}</section>\n"
    )


def _matrices(comparison: Comparison) -> str:
    if len(comparison.names) < 2:
        return ""
    values = _matrix("Rank correlations of values", comparison.mean_correlations(), titles(comparison))
    sizes = _matrix("of magnitudes", comparison.mean_correlations(magnitudes=True), titles(comparison))
    return f'<div class="pair"><div class="wide">{values}</div><div class="wide">{sizes}</div></div>\n'


def _matrix(title: str, found: Floats, names: list[str]) -> str:
    colours = heat(found, 1.0)
    head = "".join(f"<th>{j + 1}</th>" for j in range(len(found)))
    body = ""
    for i, name in enumerate(names):
        cells = ""
        for j in range(len(found)):
            background = "#dddddd" if math.isnan(found[i, j]) else "#" + bytes(np.asarray(colours[i, j])).hex()
            ink = "#fff" if abs(found[i, j]) > 0.6 else "#1c2128"
            cells += f'<td style="background:{background};color:{ink}">{cell(found, i, j)}</td>'
        body += f"<tr><th>{escape(name)}</th>{cells}</tr>\n"
    head = f"<thead><tr><th></th>{head}</tr></thead>"
    return f'<h3>{escape(title)}</h3>\n<table class="matrix">{head}<tbody>\n{body}</tbody></table>'


def _failures(comparison: Comparison) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>\n" for name, said in comparison.failures.items())
    return (
        f'<section>\n<h2>Gave nothing</h2>\n<table class="origin"><tbody>\n{rows}</tbody></table></section>\n' if rows else ""
    )
