"""A diagnosis as HTML. Every text passes through ``html.escape``; every picture is inlined."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from ..baselines._diagnosis import Diagnosis
from ..comparison._report import STYLE
from ._diagnosis_scene import Cell, Scene
from ._report import bar_table, document, framed, origin
from ._scene import Bars

OWN_STYLE = """
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
    (
        "own top class",
        "What the model sees in the baseline; beyond halfway from chance to certainty a signal of its own.",
    ),
    ("entropy", "Of the classes at the baseline: 1 where all are alike, 0 where one is certain."),
    ("sum|a|", "The sum of the magnitudes of all attributions. Far above |F(x) \u2212 F(x\u2032)|, most of it cancels."),
    ("agreement", "The mean rank correlation of the attributions with those from the others, over regions of an image."),
    ("error, gradients", "The estimated error of the attributions, and the gradient evaluations that they took."),
)


def page(diagnosis: Diagnosis, scene: Scene, command: str | None) -> str:
    """The whole page."""
    question = diagnosis.question().replace(diagnosis.target, scene.label, 1)
    photo = "" if scene.photo is None else f'<div class="shown">{framed(scene.photo, scene.label, scene.photo.note)}</div>\n'
    reading = "".join(f"<tr><th>{escape(name)}</th><td>{escape(meaning)}</td></tr>\n" for name, meaning in READING)
    kind = "good" if diagnosis.neutral else "bad"
    body = (
        f'<p class="lead">{escape(question)}</p>\n<p class="verdict {kind}">{escape(diagnosis.advice)}</p>\n'
        f"{_failures(diagnosis)}{photo}<section>\n<h2>Baselines and their attributions</h2>\n"
        f'<div class="cells">{"".join(_cell(one, scene.ends) for one in scene.cells)}</div>\n'
        f'<p class="legend">{escape(scene.legend)}</p>\n</section>\n'
        f'<section>\n<h2>The numbers</h2>\n<div class="wide">{_table(diagnosis)}</div>\n'
        "<details><summary>What the columns mean</summary>\n"
        f'<table class="origin"><tbody>\n{reading}</tbody></table></details>\n</section>\n{_agreements(diagnosis)}'
    )
    return document(scene.title, body + origin(diagnosis.meta, command), style=STYLE + OWN_STYLE)


def fragment(diagnosis: Diagnosis) -> str:
    """Table and advice as a piece of HTML, for notebooks."""
    return f"<div><p>{escape(diagnosis.question())}</p>{_table(diagnosis)}<p>{escape(diagnosis.advice)}</p></div>"


def _cell(one: Cell, ends: tuple[float, float] | None) -> str:
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
    from ..comparison._text import cell

    found, names = diagnosis.agreements, [row.name for row in diagnosis.rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell(found, i, j)}</td>' for j in range(len(names)))}</tr>\n"
        for i, name in enumerate(names)
    )
    return (
        '<section>\n<h2>Does the answer depend on it?</h2>\n<p class="legend">Rank correlations between the attributions, over '
        "regions of an image or all features.</p>\n"
        f'<div class="wide"><table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>\n</section>\n"
    )


def _failures(diagnosis: Diagnosis) -> str:
    return "".join(
        f'<p class="verdict bad">{escape(name)} could not be used: {escape(said)}</p>\n'
        for name, said in diagnosis.failures.items()
    )
