"""Models side by side as a scene, the data that figure and page draw, as an HTML page, and as the short view of a notebook.

Needs no optional package. Every text of the page is escaped; every picture is inlined.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, OptionError
from ..render.certificate_text import trust
from ..render.escaping import escape
from ..render.glance import GLANCE, Export, badge, export_buttons, glance_script
from ..render.glance import glance as first_screen
from ..render.html import bar_table, document, framed, origin, wide_table
from ..render.image.image_regions import depth_of
from ..render.image.pixels import Array, blend, contribution, grey, heat, mass_limit, onto, photo_pixels, remark
from ..render.image.views import Mark, Panel
from ..render.molecule.molecule_data import Molecule
from ..render.molecule.molecule_drawing import DARK, LIGHT, Look, draw
from ..render.molecule.molecule_svg import standalone
from ..render.scene import Bars, FeatureNames, arrays_of, is_image, photos_of
from ..words import number, percent
from .model_comparison import ModelAnswer, ModelComparison, brief

if TYPE_CHECKING:
    from rdkit.Chem import Mol

STYLE = """
.models{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15.5rem,100%),1fr));gap:1.25rem;margin:0 0 1.25rem}
.models.maps{grid-template-columns:repeat(auto-fit,minmax(min(10.4rem,100%),1fr));gap:.9rem 1.1rem}
.models h3{margin:0 0 .2rem;overflow-wrap:anywhere}
.models .rest{margin:.2rem 0 .5rem}
.models .facts tr{display:grid;grid-template-columns:1fr auto;padding:.5rem 0}
.models .facts :is(th,td){padding:0;white-space:normal}
.models .facts td:nth-child(3){grid-column:1/-1;font-size:.875rem;width:auto}
.likely{font-size:.9375rem}
.likely th{font-weight:400;padding:.15rem .75rem .15rem 0}
.likely td{padding:.15rem 0;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.likely .chosen th,.likely .chosen td{font-weight:650}
.alike{width:auto}
.alike td{font-variant-numeric:tabular-nums;white-space:nowrap}
.wide{margin:0}
.models.drawn{grid-template-columns:repeat(auto-fit,minmax(min(17rem,100%),1fr))}
.drawn .ramp{background:RAMP}
@media(prefers-color-scheme:dark){.drawn .ramp{background:DARK}}
@media(max-width:40rem){.drawn img{max-height:11rem;object-fit:contain}}
""".replace("RAMP", LIGHT.ramp).replace("DARK", DARK.ramp)

READING = (
    (
        "rank correlation",
        "Spearman’s, over all features: 1 if both put them into the same order, 0 if one tells nothing of the other.",
    ),
    ("same sign", "Of the features that matter to either model, the share that both count to the same side."),
    ("cosine", "1 for the same pattern whatever its size, −1 for its opposite."),
    ("size", "The difference of the attributions, added up over the features without signs, in units of the score."),
    ("error", "The errors of the two models’ attributions added up, and the same as a share of the difference."),
)


MARKED = 5
"""The regions of a photo whose numbers are written on it: those that the models differ in most."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One example as it is drawn: the photo, then a map or a set of bars for each model and each difference.

    Attributes:
        index: the number of the example.
        photo: the photo, where there is one.
        titles: the name of each model, then of each difference.
        maps: one panel for each title; empty where bars are drawn.
        bars: one set of bars for each title, all of the same features and on one scale; empty where maps are drawn.
        ends: the least and largest value of the bars.
        drawings: where the maps are of a molecule, each as SVG for light and for dark paper.
    """

    index: int
    photo: Panel | None
    titles: tuple[str, ...]
    maps: tuple[Panel, ...] = ()
    bars: tuple[Bars, ...] = ()
    ends: tuple[float, float] = (0.0, 0.0)
    drawings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelScene:
    """Everything that is drawn of a comparison of models, and how to read its colours or bars."""

    rows: tuple[ModelRow, ...]
    left_out: int
    legend: str


def compose(comparison: ModelComparison, *, share: float = 0.7, top: int = 12, most: int = 4) -> ModelScene:
    """Decide what is drawn of a comparison of models."""
    for name, value in (("top", top), ("most", most)):
        if value < 1:
            raise OptionError(f"got {name}={value!r}; expected at least 1")
    columns = dict(comparison.values) | {f"{one.first} − {one.second}": one.values for one in comparison.differences}
    arrays = {name: arrays_of(values, comparison.batched)[1] for name, values in columns.items()}
    leaves, first = arrays_of(next(iter(columns.values())), comparison.batched)
    shown = range(min(comparison.examples, most))
    if comparison.segments is not None:
        labels = np.asarray(comparison.segments)
        sums = {name: found[0][0] for name, found in arrays.items()}
        rows: tuple[ModelRow, ...] = (_regions(sums, labels, np.asarray(comparison.image), len(comparison.names)),)
        legend = (
            f"All pictures are on one scale of colours, in units of the {comparison.unit}: red where a region speaks for what "
            "is explained, blue where it speaks against it, grey where nothing was compared. In the difference, red is where "
            "the model named first counts more in favour."
        )
    elif comparison.molecule is not None:
        sums = {name: found[0][0] for name, found in arrays.items()}
        rows = (_molecules(sums, comparison.molecule),)
        legend = (
            f"All molecules are on one scale of colours, in units of the {comparison.unit}: red where an atom, with half of "
            "each of its pairs, speaks for what is explained, blue where it speaks against it. In the difference, red is where "
            "the model named first counts more in favour."
        )
    elif is_image(first, comparison.image) and comparison.features is None:
        photos = None if comparison.image is None else photos_of(comparison.image, comparison.examples)
        rows = tuple(_maps(arrays, i, None if photos is None else photos[i], share, len(comparison.names)) for i in shown)
        legend = (
            f"All maps are on one scale of colours, in units of the {comparison.unit}: red where a pixel speaks for what is "
            f"explained, blue where it speaks against it, clipped where the pixels below hold {percent(share)} of all. In the "
            "difference, red is where the model named first counts more in favour."
        )
    elif comparison.image is not None:
        raise InputError(f"got image= for values of shape {first[0].shape}; expected (examples, channels, height, width)")
    else:
        names = FeatureNames(leaves, tuple(array.shape[1:] for array in first), comparison.features)
        rows = tuple(_bars(arrays, i, names, top) for i in shown)
        legend = f"All bars are on one scale, in units of the {comparison.unit}."
    return ModelScene(rows, comparison.examples - len(rows), legend)


def page(comparison: ModelComparison, scene: ModelScene, title: str | None, command: str | None) -> str:
    """The HTML page of a comparison of models."""
    heading = title or " or ".join(map(brief, comparison.names))
    sections = "".join(_example(comparison, row) for row in scene.rows)
    notes = "".join(f'<p class="verdict mixed">{escape(note)}</p>\n' for note in comparison.notes)
    left_out = f"<p>{scene.left_out:d} more examples are not drawn.</p>\n" if scene.left_out else ""
    body = (
        f"{first_screen(comparison.sentence)}{notes}{sections}{left_out}"
        f'<p class="legend">{escape(scene.legend)}</p>\n{_feature_table(comparison)}{_agreement(comparison)}'
    )
    return document(heading, body + origin(comparison.meta, command), style=GLANCE + STYLE, scripts=[glance_script()])


def glance(comparison: ModelComparison) -> str:
    """The short view for notebooks: the sentence, the first example's maps or strongest features, and each error in a line."""
    scene = compose(comparison, top=5, most=1)
    row = scene.rows[0]
    if row.maps:
        pictures = [part for part in (row.photo, *row.maps) if part is not None]
        titles = (*([] if row.photo is None else [""]), *row.titles)
        drawn = "".join(
            f'<div style="display:inline-block;margin:0 .6em .4em 0;vertical-align:top">'
            f"{framed(panel, title or 'input')}</div>".replace("<img", '<img style="width:160px;height:auto"', 1)
            for panel, title in zip(pictures, titles, strict=True)
        )
    else:
        head = "".join(f'<th style="text-align:right;padding:0 .6em">{escape(brief(title))}</th>' for title in row.titles)
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(brief(name, 40))}</th>'
            + "".join(f'<td style="text-align:right;padding:0 .6em">{bars.values[k]:+.3g}</td>' for bars in row.bars)
            + "</tr>"
            for k, name in enumerate(row.bars[0].names)
        )
        drawn = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{cells}</tbody></table>"
    errors = "; ".join(f"{brief(name)}: {trust(one.certificate)}" for name, one in comparison.results.items())
    return f"<div><p><strong>{escape(comparison.sentence)}</strong></p>{drawn}<p>{escape(errors)}</p></div>"


def _example(comparison: ModelComparison, row: ModelRow) -> str:
    title = f"<h2>Example {row.index:d}</h2>\n" if comparison.examples > 1 else ""
    said = [_said(comparison, row.index, k) for k in range(len(row.titles))]
    if not row.maps:
        reach = max(-row.ends[0], row.ends[1])
        parts = "".join(f"<div>{bar_table(bars, reach=reach)}{words}</div>" for bars, words in zip(row.bars, said, strict=True))
        return f'<section>\n{title}<div class="models">{parts}</div></section>\n'
    if row.drawings:
        drawn = zip(row.drawings, row.maps, row.titles, said, strict=True)
        parts = "".join(f"<div>{_drawn(pair, panel, name)}{words}</div>" for pair, panel, name, words in drawn)
        return f'<section>\n{title}<div class="models drawn">{parts}</div></section>\n'
    pictures = "" if row.photo is None else framed(row.photo, "the photo", row.photo.note)
    pictures += "".join(framed(panel, name, panel.note) for panel, name in zip(row.maps, row.titles, strict=True))
    answers = "".join(f"<div><h3>{escape(name)}</h3>\n{words}</div>" for name, words in zip(row.titles, said, strict=True))
    part = f"maps{row.index:d}"
    buttons = export_buttons(Export("png", part, "models.png", "Save the pictures as PNG"))
    shown = f'<div class="models maps" id="{part}">{pictures}</div>\n'
    return f'<section>\n{title}{shown}<div class="models">{answers}</div>\n{buttons}</section>\n'


def _drawn(pair: tuple[str, str], panel: Panel, title: str) -> str:
    """A drawn molecule as a figure that is light or dark as the page is, with its scale of colours."""
    light, dark = (f"data:image/svg+xml;base64,{base64.b64encode(one.encode()).decode()}" for one in pair)
    height, width, _ = panel.pixels.shape
    ends = f"<span>−{panel.limit:.2g}</span><span>0</span><span>+{panel.limit:.2g}</span>" if panel.limit else ""
    scale = f'<span class="ramp"></span><span class="ends">{ends}</span>' if ends else ""
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img width="{width}" height="{height}" alt="{escape(title)}" src="{light}"></picture>'
        f"<figcaption><b>{escape(title)}</b>{scale}</figcaption></figure>"
    )


def _said(comparison: ModelComparison, i: int, k: int) -> str:
    """What is said under the k-th map or set of bars of example i: the model's answers and its badge, or of a difference."""
    if k >= len(comparison.names):
        words = f"{comparison.differences[k - len(comparison.names)].trust}, in units of the {comparison.unit}"
        return f'<p class="rest">{escape(words[:1].upper() + words[1:])}.</p>'
    name = comparison.names[k]
    return _answer(comparison, comparison.answers[name][i]) + badge(comparison.results[name].certificate[i])


def _answer(comparison: ModelComparison, answer: ModelAnswer) -> str:
    def amount(value: float) -> str:
        return percent(value) if comparison.unit == "probability" else number(value, 3)

    listed = list(answer.likely) or [(answer.label, answer.value)]
    if all(label != answer.explained for label, _ in listed):
        listed.append((answer.explained, answer.score))
    rows = "".join(
        f'<tr class="{"chosen" if label == answer.explained else "other"}"><th>{escape(label)}</th>'
        f"<td>{escape(amount(value))}</td></tr>\n"
        for label, value in listed
    )
    return f'<table class="likely"><tbody>\n{rows}</tbody></table>\n'


def _feature_table(comparison: ModelComparison) -> str:
    """The regions of a photo or the atoms of a molecule in numbers, those that differ most first; '' where there are none."""
    if comparison.segments is None and comparison.molecule is None:
        return ""
    what = "regions" if comparison.molecule is None else "atoms"
    rows = comparison.table()
    last = f"{comparison.differences[0].first} − {comparison.differences[0].second}"
    rows.sort(key=lambda row: -abs(row[last]))
    head = "".join(f"<th>{escape(title)}</th>" for title in rows[0])
    body = "".join(f"<tr>{''.join(_cell(name, value) for name, value in row.items())}</tr>\n" for row in rows)
    table = f'<table id="{what}" class="alike"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return (
        f"<details><summary>All {len(rows)} {what} in numbers, those that differ most first</summary>\n"
        f"{export_buttons(Export('csv', what, f'{what}.csv'))}"
        f"{wide_table(table, f'The {what} in numbers')}</details>\n"
    )


def _cell(name: str, value: Any) -> str:
    if name == "feature":
        return f"<th>{escape(value)}</th>"
    if not np.isfinite(value):
        return "<td>not known</td>"
    return f'<td data-value="{value!r}">{f"{value:.1g}" if name.startswith("error of ") else f"{value:+.3g}"}</td>'


def _agreement(comparison: ModelComparison) -> str:
    """How alike the models are, as a table with a line for each pair and example."""
    titles = ("", "rank correlation", "same sign", "cosine", "size", "error")
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    rows = ""
    for one in comparison.differences:
        for i in range(min(comparison.examples, 20)):
            which = f"{one.first} − {one.second}" + (f", example {i}" if comparison.examples > 1 else "")
            found, share = one.agreement, one.relative_error[i]
            texts = (
                f"{found.rank_correlation[i]:.2f}",
                percent(float(found.same_sign[i])),
                f"{found.cosine[i]:.2f}",
                number(float(one.size[i]), 3),
                f"{number(float(one.error[i]), 2)} ({percent(float(share)) if np.isfinite(share) else 'no difference'})",
            )
            rows += f"<tr><th>{escape(which)}</th>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>\n"
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    table = f'<table class="alike"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
    return (
        f"<section>\n<h2>How alike they are</h2>\n{wide_table(table, 'How alike they are')}"
        "<details><summary>What the columns mean</summary>\n"
        f'<table class="origin"><tbody>\n{reading}</tbody></table></details></section>\n'
    )


def _maps(arrays: dict[str, list[Array]], i: int, photo: Array | None, share: float, models: int) -> ModelRow:
    """The heat maps of one example, all on one scale of colours, over the grey photo where there is one."""
    rows = {name: contribution(found[0][i] if found[0].ndim == 4 else found[0][i][None]) for name, found in arrays.items()}
    pixels, note, shown = None, "", rows
    if photo is not None:
        pixels, note = photo_pixels(photo, next(iter(rows.values())).shape)
    limit = mass_limit(np.concatenate([row.ravel() for row in list(shown.values())[:models]]), share)
    panels = []
    for name, row in rows.items():
        if pixels is None:
            panels.append(Panel(name, remark(row), heat(row, limit), limit))
            continue
        fine = onto(row, pixels.shape)
        opacity = np.clip(np.abs(np.where(np.isfinite(fine), fine, 0.0)) / (limit or 1.0), 0, 1)
        drawn = blend(0.35 + 0.65 * grey(pixels), heat(fine, limit) / 255, 0.9 * opacity)
        panels.append(Panel(name, remark(row), drawn, limit))
    photo_panel = None if pixels is None else Panel("", note, np.rint(pixels * 255).astype(np.uint8))
    return ModelRow(i, photo_panel, tuple(rows), tuple(panels))


def _regions(rows: dict[str, Array], labels: Array, photo: Array, models: int) -> ModelRow:
    """The regions of a photo coloured by their sums, all on one scale; those that differ most have their numbers on them."""
    limit = max(float(np.abs(row[np.isfinite(row)]).max(initial=0.0)) for row in rows.values())
    under = 0.25 + 0.75 * grey(photo / 255)
    opacity = np.where(labels >= 0, 0.62, 0.0)
    strongest = np.argsort(-np.abs(list(rows.values())[models]), kind="stable")[:MARKED]
    depth = depth_of(labels)
    marks = tuple(
        Mark(float(x) + 0.5, float(y) + 0.5, str(int(k) + 1))
        for k in strongest
        for y, x in [np.unravel_index(np.argmax(np.where(labels == k, depth, -1)), depth.shape)]
    )
    panels = []
    for name, row in rows.items():
        pixels = blend(under, heat(row[None], limit)[0][np.maximum(labels, 0)] / 255, opacity)
        for axis in (0, 1):
            pixels[np.diff(labels, axis=axis, append=np.take(labels, [-1], axis)) != 0] = 255
        panels.append(Panel(name, remark(row), pixels, limit, clipped=False, marks=marks))
    return ModelRow(0, Panel("", "", photo), tuple(rows), tuple(panels))


def _molecules(rows: dict[str, Array], mol: Mol) -> ModelRow:
    """A molecule once for each model and difference, its atoms coloured on one scale; other features are not drawn."""
    from PIL import Image  # there, since RDKit needs it

    count = mol.GetNumAtoms()
    drawn = {name: Molecule(mol, np.nan_to_num(row[:count]), np.zeros((count, count))) for name, row in rows.items()}
    limit = max(one.limit for one in drawn.values())
    plain = Look(legend=False, numbers="atoms", limit=limit or None)
    pictures = tuple((standalone(one, plain), standalone(one, replace(plain, dark=True))) for one in drawn.values())
    colours = (LIGHT.areas[0], LIGHT.paper, LIGHT.areas[1])
    panels = []
    for name, one in drawn.items():
        with Image.open(io.BytesIO(draw(one, plain, "png").canvas.png())) as opened:
            pixels = np.asarray(opened.convert("RGB"))
        panels.append(Panel(name, remark(rows[name]), pixels, limit, clipped=False, colours=colours, smooth=True))
    return ModelRow(0, None, tuple(rows), tuple(panels), drawings=pictures)


def _bars(arrays: dict[str, list[Array]], i: int, names: FeatureNames, top: int) -> ModelRow:
    """The strongest features of one example in any model, as bars on one scale."""
    rows = {name: np.asarray(names.row(found, i), float) for name, found in arrays.items()}
    sizes = np.max([np.where(np.isfinite(row), np.abs(row), 0.0) for row in rows.values()], axis=0)
    order = np.argsort(-sizes, kind="stable")
    keep, rest = order[:top], order[top:]
    listed = tuple(names[int(k)] for k in keep)
    bars = tuple(
        Bars(name, remark(row), listed, tuple(row[keep].tolist()), len(rest), float(row[rest].sum()))
        for name, row in rows.items()
    )
    drawn = np.nan_to_num(np.array([one.values for one in bars]), nan=0.0, posinf=0.0, neginf=0.0)
    ends = (min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0))
    return ModelRow(i, None, tuple(rows), (), bars, ends)
