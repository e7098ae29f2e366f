"""The page of molecules: each drawn next to linked bar charts of its parts. Every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ...certificate import ExampleCertificate
from ...words import percent
from ..certificate_text import sentence, verdict
from ..escaping import escape
from ..html import document, fact_table, origin
from ..text.word_markup import STYLE as TEXT
from ..text.word_markup import number
from .molecule_data import Molecule
from .molecule_drawing import DARK, LIGHT, Drawing, Look, pairs_line, shown_pairs
from .molecule_svg import MARKED, SvgSheet, bond_name, inline, pair_name

Account = tuple[str, str, float, float | None]
"""What a part of a molecule adds: its kind, its name, its value, and its share of the change (None: not shown)."""

MOST_ROWS = 40
"""Pairs that are not bonds get at most this many bars; the sum of the rest stands below."""

MOST_CELLS = 40
"""Molecules with more atoms than this have no matrix on the page."""

SHADES = 8
"""The number of shades of each sign in the matrix."""

RUNNING = "\n".join(rule for rule in TEXT.splitlines() if rule.startswith((".run", ".key")))
"""The parts of the text pages' CSS that molecules use: running sums and the colour scale."""

LOOK = Look(legend=False, fill=False)

TINY = 0.01
"""If all values are below this, their bars are labelled in a smaller unit."""

STYLE = (
    """
.molecule{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:1rem 2rem;align-items:start}
.molecule .left{position:sticky;top:1rem;min-width:0}
.molecule figure{position:relative}
.wide{overflow-x:auto}
.wide svg{display:block;width:100%;height:auto}
.sheet{margin:0 auto}
.marks{fill:none;pointer-events:visible;stroke:transparent}
.marks a{outline:none;cursor:pointer}
.marks a:is(.on,:focus-visible) circle{stroke:var(--focus);stroke-width:2.5}
.marks a:is(.on,:focus-visible) path{stroke:var(--focus);stroke-opacity:.45}
.tip{position:absolute;transform:translate(-50%,calc(-100% - 6px));margin:0;padding:.15rem .55rem;border-radius:6px;
background:var(--ink);color:var(--paper);font-size:.8125rem;pointer-events:none;max-width:100%;width:max-content;
font-variant-numeric:tabular-nums}
.molecule .key{margin:.6rem 0 .3rem;max-width:30rem}
.charts{min-width:0}
.charts h3{margin:0 0 .2rem}
.rows{position:relative;max-height:15rem;overflow-y:auto;margin:0 0 1.1rem;border-block:1px solid var(--line);
scrollbar-width:thin}
.rows .bars th{width:36%;white-space:nowrap}
.rows .bars td:last-child{width:5.4rem;padding-right:.4rem;white-space:nowrap}
.rows a{color:inherit;text-decoration:none;display:block}
.rows a:focus-visible{outline:2px solid var(--focus);outline-offset:-2px}
.rows tr:is(.on,:target){background:var(--card);box-shadow:inset 3px 0 var(--focus)}
.rows .bars th{padding-left:.4rem}
.rows td:nth-child(2){position:relative;background:linear-gradient(var(--line),var(--line)) center/1px 100% no-repeat}
.rows i{position:absolute;top:.2rem;bottom:.2rem;border-radius:2px}
.rows .p{left:50%}
.rows .n{right:50%}
.molecule .p{background:FOR}
.molecule .n{background:AGAINST}
.molecule .at{background:var(--ink);transform:translateX(-50%);min-width:3px}
.molecule .run th{width:27%}
.molecule .run td{white-space:nowrap;overflow-wrap:normal}
.molecule .run td:nth-child(n+3){width:6.4rem;font-size:.8125rem;vertical-align:middle}
.molecule .run td:nth-child(4){width:5.4rem}
.accounts{font-variant-numeric:tabular-nums;margin:0 0 1.2rem}
.accounts .first{border-top:1px solid var(--line)}
.accounts th,.accounts td{padding:.2rem 1rem .2rem 0}
.accounts :is(th,td):nth-child(n+3){text-align:right;white-space:nowrap;width:1%}
.accounts thead th{font-weight:400;color:var(--soft)}
.accounts th:first-child{white-space:nowrap;width:1%}
.accounts td:nth-child(2){min-width:6rem;overflow-wrap:break-word}
.cells{width:100%;max-width:44rem;display:block;font-size:.62px}
.cells text{fill:var(--soft);pointer-events:none;text-anchor:end}
.cells .above text{text-anchor:start}
.grid-lines{fill:none;stroke:var(--line);stroke-width:.04}
.matrix{margin-top:1rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(11rem,100%),1fr));gap:.8rem;margin:0 0 1rem}
.cards a{display:flex;flex-direction:column;color:inherit;text-decoration:none;border:1px solid var(--line);
border-radius:8px;padding:.6rem .7rem;font-size:.875rem;line-height:1.35;min-width:0;overflow-wrap:anywhere}
.cards a:is(:hover,:focus-visible){border-color:var(--focus);outline:none}
.cards svg{width:100%;height:8rem;margin-bottom:.4rem}
.cards span{color:var(--soft)}
[data-molecule]{scroll-margin-top:1rem}
.key .ramp{background:RAMP}
@media(prefers-color-scheme:dark){.key .ramp{background:DARK_RAMP}.molecule .p{background:DARK_FOR}
.molecule .n{background:DARK_AGAINST}}
@media(max-width:46rem){.molecule{display:block}.molecule .left{display:contents}
.molecule figure{position:sticky;background:var(--paper);z-index:1;top:0;padding-bottom:.4rem}
.wide{max-height:45vh;overflow-y:auto}
.charts{margin-top:1.5rem}
.accounts{font-size:.8125rem;table-layout:fixed}
.accounts th,.accounts td{padding-right:.5rem}
.accounts :is(th,td):nth-child(n){width:auto;overflow-wrap:break-word;hyphens:auto}
.accounts :is(th,td):nth-child(2){width:40%}
.accounts thead th:nth-child(n+3){white-space:normal;vertical-align:bottom}
.accounts th:first-child{white-space:normal;width:20%}
.rows{max-height:11rem}}
""".strip()
    .replace("DARK_RAMP", DARK.ramp)
    .replace("RAMP", LIGHT.ramp)
    .replace("DARK_FOR", DARK.lines[1])
    .replace("DARK_AGAINST", DARK.lines[0])
    .replace("FOR", LIGHT.lines[1])
    .replace("AGAINST", LIGHT.lines[0])
)
"""CSS of a page of molecules, in the colours of light and of dark paper."""


@dataclass(frozen=True)
class PageUnit:
    """The power of ten in which all bars of a molecule are labelled, so that tiny numbers stay short."""

    power: int = 0

    @classmethod
    def of(cls, largest: float) -> PageUnit:
        """The unit for values up to this magnitude.

        >>> PageUnit.of(0.3), PageUnit.of(0.000525).write(-0.000021), str(PageUnit.of(0.000525))
        (PageUnit(power=0), '−21', '×10⁻⁶')
        """
        return cls(3 * math.floor(math.log10(largest) / 3) if 0 < largest < TINY else 0)

    def write(self, value: float) -> str:
        """A value divided by the unit, as text without the unit."""
        return number(value * 10.0**-self.power)

    def __str__(self) -> str:
        return f"×10{str(self.power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}" if self.power else ""


@dataclass(frozen=True)
class PageRow:
    """One bar: the key it shares with an SVG element, its name, its value, and further HTML attributes for the script."""

    key: str
    name: str
    value: float
    data: str = ""


@cache
def script() -> str:
    """The JavaScript that links drawings and bars."""
    text = resources.files(__package__).joinpath("molecule.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"  # a block, so that no name leaves it


def build(
    rows: Sequence[Molecule],
    title: str | None,
    lead: str,
    notes: Sequence[str],
    certificates: Sequence[ExampleCertificate | None],
    accounts: Sequence[Sequence[Account]],
    meta: Mapping[str, str] | None,
    command: str | None,
) -> str:
    """The page of molecules as HTML; see :func:`integrand.render.molecule.page`."""
    sheet, several = SvgSheet(), len(rows) > 1
    heading = title or (f"{len(rows)} molecules" if several else rows[0].title or "A molecule by attribution")
    drawn = [inline(molecule, sheet, f"m{k}", LOOK) for k, molecule in enumerate(rows)]
    sections = ""
    for k, molecule in enumerate(rows):
        named = several or heading != molecule.title
        head = f"<h2>{escape(molecule.title or f'Molecule {k + 1}')}</h2>\n" if named else ""
        certificate = certificates[k] if certificates else None
        about = _about(molecule, notes[k] if notes else "", certificate)
        parts = _parts(molecule, sheet, accounts[k] if accounts else ())
        look = _look(molecule, *drawn[k], f"m{k}")
        unit = PageUnit.of(_reach(molecule))
        opened = f'<section id="m{k}" data-molecule data-unit="{f" {unit}".rstrip()}">'
        sections += f"{opened}\n{head}{about}{look}{parts}{_trust(certificate)}</section>\n"
    said = f'<p class="lead">{escape(lead)}</p>\n' if lead else ""
    cards = "".join(_card(molecule, k, drawn[k][1]) for k, molecule in enumerate(rows))
    overview = f'<nav class="cards" aria-label="Overview">\n{cards}</nav>\n' if several else ""
    body = f"{said}{overview}{sections}{origin(meta or {}, command)}"
    return document(heading, body, style=f"{RUNNING}\n{STYLE}\n{sheet.css()}", scripts=(script(),))


def _look(molecule: Molecule, drawn: str, drawing: Drawing, anchor: str) -> str:
    """The drawing and the running sum of a molecule, next to its bar charts."""
    left = f'<div class="left">{_figure(molecule, drawn, drawing)}{_running(molecule)}</div>'
    return f'<div class="molecule">{left}\n{_charts(molecule, anchor)}</div>\n'


def _about(molecule: Molecule, note: str, certificate: ExampleCertificate | None) -> str:
    score = "" if molecule.score is None else f" {molecule.score:.3g}"
    said = f"<b>{escape(molecule.label)}{score}</b>. " if molecule.label else ""
    said += escape(sentence(certificate) if certificate else _summed(molecule))
    return f'<p class="lead">{said}</p>\n' + (f"<p>{escape(note)}</p>\n" if note else "")


def _summed(molecule: Molecule) -> str:
    if molecule.score is None or molecule.baseline_score is None:
        return f"Its parts add up to {number(molecule.total)}."
    return f"From {molecule.baseline_score:.3g} to {molecule.score:.3g}; its parts add up to {number(molecule.total)}."


def _trust(certificate: ExampleCertificate | None) -> str:
    if certificate is None:
        return ""
    return f"{verdict(certificate)}\n<details><summary>Certificate</summary>\n{fact_table(certificate)}</details>\n"


def _running(molecule: Molecule) -> str:
    """The running sum from F(x') part by part to F(x).

    It is scaled to the steps, since F(x') may be far larger than they are.
    """
    start = molecule.baseline_score or 0.0
    ends = [start + math.fsum(value for _, value in molecule.parts[:k]) for k in range(len(molecule.parts) + 1)]
    score = ends[-1] if molecule.score is None else molecule.score
    low, high = min(*ends, score), max(*ends, score)

    def row(name: str, a: float, b: float, kind: str, added: str) -> str:
        left, wide = (100 * (value - low) / ((high - low) or 1.0) for value in (min(a, b), low + abs(b - a)))
        bar = f'<i class="{kind}" style="left:{left:.3g}%;width:{wide:.3g}%"></i>'
        cells = f'<td class="way">{bar}</td><td>{added}</td><td>{f"{b:.4g}".replace("-", "−")}</td>'
        return f'<tr class="{"end" if kind == "at" else ""}"><th>{escape(name)}</th>{cells}</tr>\n'

    rows = row("nothing: F(x′)" if molecule.baseline_score is not None else "nothing", start, start, "at", "")
    for (name, value), a, b in zip(molecule.parts, ends, ends[1:], strict=False):
        rows += row(name, a, b, "p" if value > 0 else "n", number(value))
    if molecule.score is not None and molecule.baseline_score is not None:
        rows += row("the model: F(x)", score, score, "at", f"off {number(float(f'{ends[-1] - score:.1g}'))}")
    return f'<h3>What adds up to the score</h3>\n<table class="run"><tbody>\n{rows}</tbody></table>\n'


def _figure(molecule: Molecule, drawn: str, drawing: Drawing) -> str:
    width = drawing.canvas.size[0]
    # Small molecules are not blown up; large ones stay readable and can be scrolled.
    least = f' style="max-width:{round(1.5 * width)}px;min-width:{round(min(0.6 * width, 1400)) if width > 600 else 0}px"'
    arcs = pairs_line(molecule, LOOK, molecule.limit)
    ends = ("against", "for what is explained") if molecule.limit else ("all attributions are zero", "")
    key = (
        f'<p class="key"><span>{ends[0]} {number(-molecule.limit)}</span><span class="ramp"></span>'
        f"<span>{number(molecule.limit)} {ends[1]}</span></p>\n"
    )
    below = f"<figcaption>{key}{escape(arcs[:1].upper() + arcs[1:])}</figcaption>"
    tip = '<p class="tip" role="status" hidden></p>'
    return f'<figure><div class="wide"><div{least} class="sheet">{drawn}</div></div>{tip}{below}</figure>\n'


def _card(molecule: Molecule, k: int, drawing: Drawing) -> str:
    width, height = drawing.canvas.size
    picture = f'<svg viewBox="0 0 {width} {height}" aria-hidden="true"><use href="#m{k}drawn"/></svg>'
    score = "" if molecule.score is None else f" {molecule.score:.3g}"
    said = f"{molecule.label}{score}" if molecule.label else f"sum {number(molecule.total)}"
    return f'<a href="#m{k}">{picture}<b>{escape(molecule.title or f"Molecule {k + 1}")}</b><span>{escape(said)}</span></a>\n'


def _charts(molecule: Molecule, anchor: str) -> str:
    """Bar charts of atoms, bonds, other pairs and everything else, on one scale, strongest first."""
    whole, reach = molecule.per_atom, _reach(molecule)
    unit = PageUnit.of(reach)
    atoms = [
        PageRow(f"a{i}", name, float(molecule.atoms[i]), data=f' data-half="{unit.write(float(whole[i]))}"')
        for i, name in enumerate(molecule.names)
    ]
    bonds = [
        PageRow(f"b{k}", bond_name(molecule, k), float(molecule.bonds[k]), data=f' data-ends="{i}-{j}"')
        for k, (i, j) in enumerate(molecule.ends)
    ]
    pairs = [PageRow(f"p{i}-{j}", pair_name(molecule, i, j), value) for i, j, value in molecule.far]
    others = [PageRow(f"o{k}", name, value) for k, (name, value) in enumerate(molecule.others)]
    most = max(MOST_ROWS, len(shown_pairs(molecule, molecule.limit)))  # every arc has its bar
    named = (("Atoms", atoms, None), ("Bonds", bonds, None), ("Other pairs", pairs, most), ("Others", others, None))
    charts = (_chart(name, rows, anchor, reach or 1.0, unit, limit) for name, rows, limit in named if rows)
    return f'<div class="charts">{"".join(charts)}</div>\n'


def _reach(molecule: Molecule) -> float:
    """The largest magnitude among the bars."""
    return max(molecule.limit, max((abs(value) for _, value in molecule.others), default=0.0))


def _chart(title: str, rows: Sequence[PageRow], anchor: str, reach: float, unit: PageUnit, most: int | None = None) -> str:
    total = math.fsum(row.value for row in rows)
    ordered = sorted(rows, key=lambda row: -abs(row.value))
    shown = ordered[:most]
    bars = "".join(_bar(row, anchor, reach, unit) for row in shown)
    rest = math.fsum(row.value for row in ordered[len(shown) :])
    more, of = len(rows) - len(shown), f" {unit}".rstrip()
    left = f'<p class="rest">and {more} more, adding up to {unit.write(rest)}{of}</p>' if more else ""
    head = f"<h3>{title}{of} <span>{len(rows)}, in sum {unit.write(total)}</span></h3>\n"
    return f'{head}<div class="rows"><table class="bars"><tbody>\n{bars}</tbody></table></div>{left}\n'


def _bar(row: PageRow, anchor: str, reach: float, unit: PageUnit) -> str:
    name, key = escape(row.name), f"{anchor}{row.key}"
    bar = f'<i class="{"p" if row.value > 0 else "n"}" style="width:{50 * abs(row.value) / reach:.3g}%"></i>'
    link = f'<a href="#{key}{MARKED}">{name}</a>'
    return f'<tr id="{key}"{row.data}><th>{link}</th><td>{bar}</td><td>{unit.write(row.value)}</td></tr>\n'


def _parts(molecule: Molecule, sheet: SvgSheet, accounts: Sequence[Account]) -> str:
    """The table of accounts, and for small molecules the matrix of atoms."""
    table = _account_table(accounts) if accounts else ""
    small = molecule.pairs.any() and 1 < len(molecule.atoms) <= MOST_CELLS
    return table + (_matrix(molecule, sheet) if small else "")


def _account_table(accounts: Sequence[Account]) -> str:
    """A table of the parts of a molecule by kind, with their shares of the change where given."""
    shares = any(share is not None for *_, share in accounts)
    rows, last = "", None
    for kind, name, value, share in accounts:
        first = escape(kind) if kind != last else ""
        cells = f"<td>{escape(name)}</td><td>{number(float(value))}</td>"
        cells += f"<td>{_per_cent(share)}</td>" if shares else ""
        rows += f'<tr class="{"first" * bool(first)}"><th>{first}</th>{cells}</tr>\n'
        last = kind
    head = f"<thead><tr><th></th><th></th><th>adds</th>{'<th>of the change of the score</th>' * shares}</tr></thead>"
    return f'<h3>Accounts</h3>\n<table class="accounts">{head}<tbody>\n{rows}</tbody></table>\n'


def _per_cent(share: float | None) -> str:
    return "" if share is None else percent(share if abs(share) >= 5e-4 else 0.0).replace("-", "−")


def _matrix(molecule: Molecule, sheet: SvgSheet) -> str:
    """The matrix of atoms as SVG, one path for all cells of a shade. The names take the room of two cells."""
    count, limit = len(molecule.atoms), molecule.limit
    values = molecule.pairs.copy()
    values[range(count), range(count)] = molecule.atoms
    cells: dict[int, str] = {}
    for i, j in zip(*values.nonzero(), strict=True):
        level = math.ceil(abs(values[i, j]) / limit * SHADES) * (1 if values[i, j] > 0 else -1)
        cells[level] = cells.get(level, "") + f"M{j + 2} {i}h1"  # a line as wide as a cell is shorter than a square
    shapes = "".join(f'<path class="{_shade(level, sheet)}" d="{path}"/>' for level, path in sorted(cells.items()))
    names = "".join(f'<text y="{i}">{escape(name)}</text>' for i, name in enumerate(molecule.names))
    shapes = f'<g transform="translate(0 2.5)">{shapes}</g>'
    grid = f'<path class="grid-lines" d="M2 2h{count}v{count}h-{count}zl{count} {count}"/>'
    before = f'<g transform="translate(1.9 2.7)">{names}</g>'
    above = f'<g class="above" transform="translate(2.7 1.9)rotate(-90)">{names}</g>'
    picture = (
        f'<svg class="cells" data-count="{count}" viewBox="0 0 {count + 2} {count + 2}" role="img" '
        'aria-label="Matrix of atoms">'
        f"{shapes}{grid}{before}{above}</svg>"
    )
    about = "Atoms on the diagonal, pairs of atoms off it, each in both of its places."
    read = f'<p class="rest">{about} <output></output></p>'
    return f'<details class="matrix"><summary>Atom by atom</summary>\n{read}\n{picture}</details>\n'


def _shade(level: int, sheet: SvgSheet) -> str:
    light, dark = (f"stroke:{paper.area(level / SHADES)}" for paper in (LIGHT, DARK))
    return sheet.name((light, dark))
