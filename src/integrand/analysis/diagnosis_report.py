"""A diagnosis as a scene, the data that figure and page draw, and as an HTML page; needs no optional package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..baselines.constructors import filled_like
from ..render.escaping import escape
from ..render.html import bar_table, document, framed, origin, wide_table
from ..render.image.pixels import Array, photo_pixels
from ..render.image.views import Panel
from ..render.scene import Bars
from ..trees import Tensors, flatten
from ..words import share_of
from .comparison_report import STYLE, MethodView
from .comparison_report import compose as side_by_side
from .comparison_result import Comparison, correlation_text
from .diagnosis_result import Diagnosis, DiagnosisRow, plain

DIAGNOSIS_STYLE = """
.pair2{display:grid;grid-template-columns:1fr 2.2fr;gap:.75rem;align-items:start}
.cells{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:1.75rem 2.5rem;margin:0 0 1.5rem}
.cells h3{margin:0 0 .6rem}
.cells img{border:1px solid var(--line)}
.shown{max-width:15rem;margin:0 0 1.5rem}
"""

READING = (
    ("F(x\u2032), p(x\u2032)", "The explained score at the baseline, and the probability of the explained class there."),
    (
        "head start",
        "How much of the rise above chance to that at x is there already. Up to 10% counts as near zero.",
    ),
    ("own top class, confidence", "The class that the model sees in the baseline first, and its probability."),
    (
        "own signal",
        "How sure the model is of its answer at the baseline, as a share of how sure it is at x, by the entropy of all "
        "classes. Above 75% the baseline carries a signal of its own.",
    ),
    ("sum|a|", "The sum of the magnitudes of all attributions. Far above |F(x) \u2212 F(x\u2032)|, most of it cancels."),
    ("agreement", "The mean rank correlation of the attributions with those from the others, over regions of an image."),
    ("error, gradients", "The estimated error of the attributions, and the gradient evaluations that they took."),
)


@dataclass(frozen=True, slots=True)
class DiagnosisCell:
    """One candidate for the baseline, as it is drawn.

    Attributes:
        title: the name of the candidate.
        note: the verdict on it, in a few words.
        thumbnail: the baseline itself, where it can be shown as an image.
        part: the attributions from this baseline.
        lines: the numbers found about it, as texts.
    """

    title: str
    note: str
    thumbnail: Panel | None
    part: Panel | Bars
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiagnosisScene:
    """Everything that is drawn of a diagnosis, a legend of its colours, and the ends of the common scale of bars."""

    title: str
    label: str
    photo: Panel | None
    cells: tuple[DiagnosisCell, ...]
    legend: str
    ends: tuple[float, float] | None = None


def compose(
    diagnosis: Diagnosis,
    image: Any,
    pixels: Callable[[Any], Any] | None,
    label: str | None,
    features: Sequence[str] | None,
    title: str | None,
    signed: bool,
    share: float,
    top: int,
) -> DiagnosisScene:
    """Decide what is drawn of a diagnosis; arguments as in :meth:`Diagnosis.figure`."""
    visible = _visible(diagnosis, pixels)
    if image is None and visible is not None and features is None:
        image = visible(diagnosis.x)
    view = MethodView(image, label, features, None, "each", signed, share, top, 1)
    comparison = Comparison({row.name: row.attribution for row in diagnosis.rows})
    scene = side_by_side(comparison, view)
    if scene.rows[0].bars:  # all are in units of one score; only maps need a scale each to be seen
        scene = side_by_side(comparison, replace(view, scale="common"))
    row = scene.rows[0]
    parts: tuple[Panel | Bars, ...] = (*row.maps, *row.bars)
    cells = tuple(_cell(diagnosis, one, part, visible) for one, part in zip(diagnosis.rows, parts, strict=True))
    return DiagnosisScene(title or "Which baseline?", row.label, row.photo, cells, scene.legend, row.ends)


def numbers(diagnosis: Diagnosis, row: DiagnosisRow) -> tuple[str, ...]:
    """The numbers found about a candidate, as short lines of text."""
    known = not np.isnan(row.probability)
    lines = [f"p of the class {plain(row.probability, '.2g')}" if known else f"F(x') {row.score:.2g}"]
    lines.append(f"head start {share_of(row.head_start)}")
    if row.top is not None:
        lines += [f"sees {diagnosis.names(row.top)} ({row.confidence:.2g})", f"own signal {share_of(row.signal)}"]
    lines += [f"agreement {plain(row.agreement, '.2f')}", f"sum|a| {row.certificate.magnitude:.3g}"]
    if not row.certificate.converged:
        lines.append(row.certificate.status.value)
    return tuple(lines)


def page(diagnosis: Diagnosis, scene: DiagnosisScene, command: str | None) -> str:
    """The HTML page of a diagnosis."""
    question = diagnosis.question().replace(diagnosis.target, scene.label, 1)
    photo = "" if scene.photo is None else f'<div class="shown">{framed(scene.photo, scene.label, scene.photo.note)}</div>\n'
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    kind = "good" if diagnosis.neutral else "bad"
    body = (
        f'<p class="lead">{escape(question)}</p>\n<p class="verdict {kind}">{escape(diagnosis.advice)}</p>\n'
        f"{_failures(diagnosis)}{photo}<section>\n<h2>Baselines and their attributions</h2>\n"
        f'<div class="cells">{"".join(_cell_html(one, scene.ends) for one in scene.cells)}</div>\n'
        f'<p class="legend">{escape(scene.legend)}</p>\n</section>\n'
        f"<section>\n<h2>The numbers</h2>\n{wide_table(_table(diagnosis), 'The baselines in numbers')}"
        "<details><summary>What the columns mean</summary>\n"
        f'<table class="origin"><tbody>\n{reading}</tbody></table></details>\n</section>\n{_agreements(diagnosis)}'
    )
    return document(scene.title, body + origin(diagnosis.meta, command), style=STYLE + DIAGNOSIS_STYLE)


def fragment(diagnosis: Diagnosis) -> str:
    """The table and the advice of a diagnosis as a piece of HTML, for notebooks."""
    return f"<div><p>{escape(diagnosis.question())}</p>{_table(diagnosis)}<p>{escape(diagnosis.advice)}</p></div>"


def _cell(
    diagnosis: Diagnosis, row: DiagnosisRow, part: Panel | Bars, visible: Callable[[Tensors], Array] | None
) -> DiagnosisCell:
    name = f"{row.name} (recommended)" if row.name == diagnosis.recommended else row.name
    thumbnail = None
    if visible is not None:
        drawn = photo_pixels(visible(row.baseline))[0]
        thumbnail = Panel(row.name, "", np.rint(drawn * 255).astype(np.uint8))
    draws = f"{row.draws} draws" if thumbnail is None else f"first of {row.draws} draws"
    return DiagnosisCell(name, row.verdict, thumbnail, part, (*numbers(diagnosis, row), *([draws] if row.draws > 1 else [])))


def _visible(diagnosis: Diagnosis, pixels: Callable[[Any], Any] | None) -> Callable[[Tensors], Array] | None:
    """A function from an input to an image, (H, W, 3) from 0 to 1; None where inputs are no images or a layer was explained."""
    x, values = diagnosis.x, diagnosis.rows[0].attribution.values
    if not isinstance(x, Tensor) or not isinstance(values, Tensor) or x.shape != values.shape:
        return None
    one = x.shape[1:] if diagnosis.rows[0].attribution.batched else x.shape
    if len(one) != 3 or (one[0] not in (1, 3) and pixels is None):
        return None

    def shown(value: Tensors) -> Array:
        leaf = flatten(value)[1][0].detach().reshape(one)
        if pixels is not None:
            found = pixels(leaf)
            return np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, float).reshape(*one[1:], -1)
        low, high = (filled_like(end, leaf, "low and high").double() for end in (diagnosis.low, diagnosis.high))
        scaled = (leaf.double() - low) / torch.where(high == low, torch.ones_like(high), high - low)
        return np.asarray(scaled.clamp(0, 1).permute(1, 2, 0).cpu().numpy(), float)

    return shown


def _cell_html(one: DiagnosisCell, ends: tuple[float, float] | None) -> str:
    lines = "".join(f'<span class="note">{escape(line)}</span>' for line in one.lines)
    if isinstance(one.part, Bars):
        reach = None if ends is None else max(-ends[0], ends[1])
        said = "<br>".join(map(escape, (one.note, *one.lines)))
        return f'<div>{bar_table(replace(one.part, title=one.title), reach=reach)}<p class="rest">{said}</p></div>\n'
    left = f"<figcaption>{lines}</figcaption>"
    if one.thumbnail is not None:
        left = framed(one.thumbnail, "the baseline", *one.lines)
    return (
        f"<div><h3>{escape(one.title)} <span>{escape(one.note)}</span></h3>"
        f'<div class="pair2"><div>{left}</div>{framed(one.part, "its attributions", one.part.note)}</div></div>\n'
    )


def _table(diagnosis: Diagnosis) -> str:
    titles, *rows = diagnosis.table()
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(part)}</td>' for part in row[1:])}</tr>\n" for row in rows
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'{table}\n<p class="rest">* recommended</p>'


def _agreements(diagnosis: Diagnosis) -> str:
    if len(diagnosis.rows) < 2:
        return ""
    found, names = diagnosis.agreements, [row.name for row in diagnosis.rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{correlation_text(found, i, j)}</td>' for j in range(len(names)))}</tr>\n"
        for i, name in enumerate(names)
    )
    table = f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return (
        '<section>\n<h2>Does the answer depend on it?</h2>\n<p class="legend">Rank correlations between the attributions, over '
        "regions of an image or all features.</p>\n"
        f"{wide_table(table, 'Correlations between the attributions')}</section>\n"
    )


def _failures(diagnosis: Diagnosis) -> str:
    return "".join(
        f'<p class="verdict bad">{escape(name)} could not be used: {escape(said)}</p>\n'
        for name, said in diagnosis.failures.items()
    )
