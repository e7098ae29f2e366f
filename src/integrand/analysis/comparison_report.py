"""A comparison as a scene, the data that figure and page draw, and as an HTML page.

Needs no optional package. Every text of the page is escaped; every picture is inlined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ..arrays import Floats
from ..errors import InputError, OptionError
from ..render.escaping import escape
from ..render.html import bar_table, document, framed, origin, wide_table
from ..render.image.pixels import Array, contribution, heat, lit, mass_limit, photo_pixels, remark, strength
from ..render.image.views import Panel
from ..render.scene import Bars, FeatureNames, arrays_of, labels_of, photos_of
from ..render.text.word_markup import ink
from .comparison_result import AGREEMENT, Comparison, Scale, correlation_text, cost_text, explained, gap_text, method_table

STYLE = """
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
    """The HTML page of a comparison."""
    heading = scene.title or f"{len(comparison.names)} attribution methods side by side"
    left_out = f"<p>{scene.left_out:d} more examples are not drawn.</p>\n" if scene.left_out else ""
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    body = (
        f'<p class="lead">{escape(explained(comparison))}</p>\n'
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
    """The numbers of a comparison as a piece of HTML for notebooks, with no style but what a table needs."""
    rows = method_table(comparison)
    head = "".join(f'<th style="text-align:right;padding:0 .6em">{escape(title)}</th>' for title in rows[0])
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:right;padding:0 .6em">{escape(part)}</td>' for part in row) + "</tr>"
        for row in rows[1:]
    )
    failed = "".join(f"<li>{escape(name)}: {escape(message)}</li>" for name, message in comparison.failures.items())
    return (
        f"<div><p>{escape(explained(comparison))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{_matrices(comparison)}{f'<p>Gave nothing:</p><ul>{failed}</ul>' if failed else ''}</div>"
    )


@dataclass(frozen=True, slots=True)
class MethodView:
    """The options of :meth:`Comparison.figure` and :meth:`Comparison.report`; described there."""

    image: Any = None
    labels: str | Sequence[str] | None = None
    features: Sequence[str] | None = None
    title: str | None = None
    scale: Scale = "each"
    signed: bool = False
    share: float = 0.7
    top: int = 12
    most: int = 4

    def __post_init__(self) -> None:
        mass_limit(np.zeros(0), self.share)  # refuses a share that makes no sense
        if self.scale not in get_args(Scale):
            raise OptionError(f"got scale={self.scale!r}; expected 'each' (every map by its own mass) or 'common'.")
        for name, value in (("top", self.top), ("most", self.most)):
            if value < 1:
                raise OptionError(f"got {name}={value!r}; expected at least 1")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One example of a comparison, as it is drawn.

    Attributes:
        index: the number of the example.
        label: what was explained.
        score: the score at the input.
        photo: the photo, where there is one.
        maps: one panel per method; empty where bars are drawn.
        bars: one set of bars per method, all of the same features; empty where maps are drawn.
        ends: the least and largest value of bars on a common scale; None where each has its own.
    """

    index: int
    label: str
    score: float
    photo: Panel | None
    maps: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ComparisonScene:
    """Everything that is drawn of a comparison, and a legend of its colours."""

    title: str
    rows: tuple[ComparisonRow, ...]
    left_out: int
    legend: str


def compose(comparison: Comparison, view: MethodView) -> ComparisonScene:
    """Decide what is drawn of a comparison, by the options in ``view``."""
    sources = {name: arrays_of(one.values, one.batched) for name, one in comparison.attributions.items()}
    leaves, first = next(iter(sources.values()))
    arrays = {name: found for name, (_, found) in sources.items()}
    certificate = next(iter(comparison.attributions.values())).certificate
    count = comparison.examples
    labels = labels_of(view.labels, [example.target for example in certificate])
    shown = range(min(count, view.most))
    image = (
        len(first) == 1 and view.features is None and (first[0].ndim == 4 or (first[0].ndim == 3 and view.image is not None))
    )
    if not image and view.image is not None:
        raise InputError(f"got image= for values of shape {first[0].shape}; expected (examples, channels, height, width)")
    rows: list[ComparisonRow] = []
    photos = photos_of(view.image, count) if view.image is not None else None
    names = None if image else FeatureNames(leaves, tuple(array.shape[1:] for array in first), view.features)
    for i in shown:
        if names is not None:
            bars, ends = _bars(arrays, i, names, view)
            rows.append(ComparisonRow(i, labels[i], certificate[i].score, None, (), bars, ends))
        else:
            photo, maps = _maps(arrays, i, None if photos is None else photos[i], view)
            rows.append(ComparisonRow(i, labels[i], certificate[i].score, photo, maps))
    return ComparisonScene(
        view.title or "", tuple(rows), count - len(rows), _legend(view, maps=image, lit_up=photos is not None)
    )


def titles(comparison: Comparison) -> list[str]:
    """The names of the methods, each with the number of its column in the correlations."""
    return [f"{i + 1}  {name}" for i, name in enumerate(comparison.names)]


def _example(comparison: Comparison, row: ComparisonRow) -> str:
    title = f"<h2>{escape(row.label)}</h2>\n" if comparison.examples > 1 or row.photo is None else ""
    notes = [(gap_text(comparison, name, row.index), cost_text(comparison, name, row.index)) for name in comparison.names]
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
    titles_, *rows = method_table(comparison)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles_)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(part)}</td>' for part in row[1:])}</tr>\n" for row in rows
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return wide_table(table, "What each method misses and costs")


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
    both = wide_table(values, "Correlations of values") + wide_table(sizes, "Correlations of magnitudes")
    return f'<div class="pair">{both}</div>\n'


def _matrix(title: str, found: Floats, names: list[str]) -> str:
    colours = heat(found, 1.0)
    head = "".join(f"<th>{j + 1}</th>" for j in range(len(found)))
    body = ""
    for i, name in enumerate(names):
        cells = ""
        for j in range(len(found)):
            background = "#dddddd" if math.isnan(found[i, j]) else "#" + bytes(np.asarray(colours[i, j])).hex()
            cells += f'<td style="background:{background};color:{ink(background)}">{correlation_text(found, i, j)}</td>'
        body += f"<tr><th>{escape(name)}</th>{cells}</tr>\n"
    head = f"<thead><tr><th></th>{head}</tr></thead>"
    return f'<h3>{escape(title)}</h3>\n<table class="matrix">{head}<tbody>\n{body}</tbody></table>'


def _failures(comparison: Comparison) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>\n" for name, said in comparison.failures.items())
    return (
        f'<section>\n<h2>Gave nothing</h2>\n<table class="origin"><tbody>\n{rows}</tbody></table></section>\n' if rows else ""
    )


def _maps(
    arrays: dict[str, list[Array]], i: int, photo: Array | None, view: MethodView
) -> tuple[Panel | None, tuple[Panel, ...]]:
    rows = {name: found[0][i] if found[0].ndim == 4 else found[0][i][None] for name, found in arrays.items()}
    signed = view.signed or photo is None
    values = {name: contribution(row) if signed else strength(row) for name, row in rows.items()}
    together = mass_limit(np.concatenate([value.ravel() for value in values.values()]), view.share)
    limits = {name: together if view.scale == "common" else mass_limit(value, view.share) for name, value in values.items()}
    drawn, pixels = None, None
    if photo is not None:
        pixels, note = photo_pixels(photo, next(iter(rows.values())).shape[1:])
        drawn = Panel("", note, np.rint(pixels * 255).astype(np.uint8))
    panels = []
    for name, value in values.items():
        limit = limits[name]
        if signed or pixels is None:
            panels.append(Panel(name, remark(value) or "red raises, blue lowers", heat(value, limit), limit))
        else:
            said = remark(contribution(rows[name]))
            note = said if said == "all zero" else "; ".join(filter(None, (f"full brightness from {limit:.2g} on", said)))
            panels.append(Panel(name, note, lit(pixels, value, limit)))
    return drawn, tuple(panels)


def _bars(
    arrays: dict[str, list[Array]], i: int, names: FeatureNames, view: MethodView
) -> tuple[tuple[Bars, ...], tuple[float, float] | None]:
    rows = {name: names.row(found, i) for name, found in arrays.items()}
    # Methods differ in units, so what counts is a feature's share of its method's attribution, in the method that rates
    # it highest: otherwise what only one of them sees would not be drawn.
    shares = []
    for row in rows.values():
        size = np.where(np.isfinite(row), np.abs(row), 0.0)
        shares.append(size / (size.sum() or 1.0))
    order = np.argsort(-np.max(shares, axis=0), kind="stable")
    keep, rest = order[: view.top], order[view.top :]
    shown = tuple(names[int(k)] for k in keep)
    bars = tuple(
        Bars(name, remark(row), shown, tuple(row[keep].tolist()), len(rest), float(row[rest].sum()))
        for name, row in rows.items()
    )
    if view.scale == "each":
        return bars, None
    drawn = np.nan_to_num(np.array([bar.values for bar in bars]), nan=0.0, posinf=0.0, neginf=0.0)
    return bars, (min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0))


def _legend(view: MethodView, *, maps: bool, lit_up: bool) -> str:
    each = view.scale == "each"
    if not maps:
        return (
            "Bars of each method are on a scale of their own: lengths can be compared within a method, not between methods."
            if each
            else "All bars are on one common scale."
        )
    what = "Brightness: magnitudes of a pixel's attributions, summed over its colours"
    if view.signed or not lit_up:
        what = (
            "Colour: a pixel's attributions summed with their signs, red where they raise the score, blue where they lower it"
        )
    beyond = f"clipped where the pixels below hold {100 * view.share:.3g}% of the attribution"
    whose = "of that map: every map is on a scale of its own" if each else "of all maps together: they are on one common scale"
    return f"{what}; {beyond} {whose}."
