"""The page of molecules: what the network says, a large drawing next to bars of its groups, linked; details below.

Several molecules can be sorted, filtered and searched, with a summary on top. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ...certificate import Certificate, ExampleCertificate
from ...words import percent, plus_minus
from ..certificate_text import grade, sentence, trust
from ..escaping import escape
from ..glance import GLANCE, Entry, Export, badge, collection, export_buttons, glance, glance_script, said, saying
from ..html import document, origin
from ..text.word_markup import STYLE as TEXT
from ..text.word_markup import number
from .molecule_data import AccountLine, Molecule, element_name, plural
from .molecule_drawing import DARK, LIGHT, Drawing, Look, pairs_line, shown_pairs
from .molecule_svg import SvgMark, SvgSheet, bond_name, inline, pair_name

GROUP = "group"
"""The kind of account that stands beside the drawing: each atom is in one of its lines."""

MOST_ROWS = 40
"""Pairs that are not bonds get at most this many bars; the sum of the rest stands below."""

MOST_CELLS = 40
"""Molecules with more atoms than this have no matrix on the page."""

MANY = 30
"""Pages of more molecules than this leave out what takes most room: the matrix, and the bars of pairs."""

LONG = (900, 1.7)
"""Drawings that are wider than this, in pixels and in heights, take the whole width of the page."""

DRIVERS, LEAST_CERTAIN = 4, 5
"""The most groups in each direction, and the most molecules, that the summary of many molecules names."""

SHADES = 8
"""The number of shades of each sign in the matrix."""

RUNNING = "\n".join(rule for rule in TEXT.split("@media(max-width")[0].splitlines() if rule.startswith((".run", ".key")))
"""The parts of the text pages' CSS that molecules use: running sums and the colour scale."""

TINY = 0.01
"""If all values are below this, their bars are labelled in a smaller unit."""


@cache
def style() -> str:
    """CSS of a page of molecules, in the colours of light and of dark paper."""
    text = resources.files(__package__).joinpath("molecule.css").read_text(encoding="utf-8")
    colours = {
        "DARK_RAMP": DARK.ramp,
        "RAMP": LIGHT.ramp,
        "DARK_FOR": DARK.lines[1],
        "DARK_AGAINST": DARK.lines[0],
        "FOR": LIGHT.lines[1],
        "AGAINST": LIGHT.lines[0],
    }
    for name, colour in colours.items():
        text = text.replace(name, colour)
    return f"{RUNNING}\n{GLANCE}\n{text}"


@cache
def script() -> str:
    """The JavaScript that links drawings and bars, and switches views."""
    text = resources.files(__package__).joinpath("molecule.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"  # a block, so that no name leaves it


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

    def bounded(self, value: float, error: float | None) -> str:
        """A value with its error, in the unit.

        >>> PageUnit().bounded(0.09693, 0.0103), PageUnit().bounded(-2.0, None)
        ('+0.097 ± 0.011', '−2')
        """
        scale = 10.0**-self.power
        return self.write(value) if not error else plus_minus(value * scale, error * scale)

    def __str__(self) -> str:
        return f"×10{str(self.power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}" if self.power else ""


@dataclass(frozen=True)
class PageRow:
    """One bar: the key of the mark or atoms that it lights, its name, its value, and further cells as (value, shown)."""

    key: str
    name: str
    value: float
    cells: tuple[tuple[object, str], ...] = ()


@dataclass(frozen=True)
class Shown:
    """One molecule of a page with what is known about it.

    Attributes:
        molecule: the molecule.
        k: its place on the page.
        certificate: how far its values can be trusted.
        account: what parts of it add.
        note: on the account.
        many: whether there are too many molecules for all details.
    """

    molecule: Molecule
    k: int
    certificate: ExampleCertificate | None = None
    account: Sequence[AccountLine] = ()
    note: str = ""
    many: bool = False

    @property
    def anchor(self) -> str:
        """The prefix of the ids of its elements."""
        return f"m{self.k}"

    @property
    def name(self) -> str:
        """What it is called where there are others."""
        named = self.molecule.is_name(self.molecule.title)
        return self.molecule.title if named else f"Molecule {self.k + 1}"

    @property
    def unit(self) -> PageUnit:
        """The power of ten of its numbers."""
        return PageUnit.of(_reach(self.molecule))

    @property
    def groups(self) -> list[AccountLine]:
        """The lines of the account that stand beside the drawing."""
        return [line for line in self.account if line.kind == GROUP]

    @property
    def change(self) -> float | None:
        """F(x) - F(x'), where shares of it say something."""
        one = self.molecule
        if one.score is None or one.baseline_score is None or not any(line.share is not None for line in self.account):
            return None
        return (one.score - one.baseline_score) or None

    def text(self, value: float, error: float | None = None) -> str:
        """A value with its error, its unit and its share of the change, in words."""
        unit = f" {self.unit}".rstrip()
        said = f"({self.unit.bounded(value, error)}){unit}" if unit and error else self.unit.bounded(value, error) + unit
        return said + (f", {_per_cent(value / self.change)} of the change" if self.change else "")


def build(
    rows: Sequence[Molecule],
    title: str | None,
    lead: str,
    notes: Sequence[str],
    certificates: Sequence[ExampleCertificate | None],
    accounts: Sequence[Sequence[AccountLine]],
    meta: Mapping[str, str] | None,
    command: str | None,
) -> str:
    """The page of molecules as HTML; see :func:`integrand.render.molecule.page`."""
    sheet = SvgSheet()
    many = len(rows) > MANY
    shown = [
        Shown(
            molecule,
            k,
            certificates[k] if certificates else None,
            accounts[k] if accounts else (),
            notes[k] if notes else "",
            many,
        )
        for k, molecule in enumerate(rows)
    ]
    if len(rows) == 1:
        one = shown[0]
        heading = title if title and one.molecule.is_name(title) else one.molecule.name
        about = f'<p class="rest">{escape(lead)}</p>\n' if lead else ""
        body = f'<section id="m0" data-molecule>\n{_section(one, sheet)[0]}</section>\n{about}'
    else:
        heading = title or f"{len(rows)} molecules"
        body = _several(shown, sheet, lead)
    body += origin(meta or {}, command)
    return document(heading, body, style=f"{style()}\n{sheet.css()}", scripts=(glance_script(), script()))


def _section(one: Shown, sheet: SvgSheet) -> tuple[str, Drawing]:
    """Everything about one molecule: the first screen, then details."""
    molecule, anchor = one.molecule, one.anchor
    drawn, drawing = inline(molecule, sheet, anchor, lambda mark: _mark_says(one, mark))
    width, height = drawing.canvas.size
    panes = (_figure(one, drawn, drawing), _groups(one))
    badges = badge(one.certificate) if one.certificate else ""
    first = glance(_says(one), *panes, badges=badges, heed=molecule.notes)
    long = " long" if width > LONG[0] and width > LONG[1] * height else ""
    top = f"{_smiles(molecule)}{first}"
    return f'<div class="molecule{long}" data-sayings>\n{top}</div>\n{_details(one, sheet)}', drawing


def _says(one: Shown) -> str:
    molecule = one.molecule
    if molecule.sentence:
        return molecule.sentence
    score = "" if molecule.score is None else f" {molecule.score:.3g}"
    head = molecule.answer or f"{molecule.label}{score}"
    return f"{head}. " * bool(head) + (sentence(one.certificate) if one.certificate else _summed(molecule))


def _summed(molecule: Molecule) -> str:
    if molecule.score is None or molecule.baseline_score is None:
        return f"Its parts add up to {number(molecule.total)}."
    return f"From {molecule.baseline_score:.3g} to {molecule.score:.3g}; its parts add up to {number(molecule.total)}."


def _smiles(molecule: Molecule) -> str:
    if not molecule.smiles:
        return ""
    button = '<button type="button" data-copy>Copy</button>'
    return f'<p class="smiles"><code>{escape(molecule.smiles)}</code><span class="tools">{button}</span></p>\n'


def _mark_says(one: Shown, mark: SvgMark) -> str:
    """What an atom, bond or arc says when it is pointed at."""
    molecule, error = one.molecule, one.molecule.error
    if mark.key[0] != "a":
        what = "bond" if mark.key[0] == "b" else "pair without a bond"
        return f"{what} {mark.name}: {one.text(mark.value, error)}"
    i = int(mark.key[1:])
    own = float(molecule.atoms[i])
    text = (
        f"{element_name(molecule.mol, i)} {mark.name}: {one.text(mark.value, molecule.errors[i] if molecule.errors else error)}"
    )
    if molecule.pairs.any():
        text += f"; itself {one.unit.write(own)}, half its pairs {one.unit.write(mark.value - own)}"
    group = next((line.name for line in one.groups if i in line.atoms), "")
    return text + (f"; part of: {group}" if group else "")


def _figure(one: Shown, drawn: str, drawing: Drawing) -> str:
    """The drawing with its switches and its scale of colours."""
    molecule, anchor = one.molecule, one.anchor
    pairs = bool(molecule.pairs.any())
    switch = (
        '<button type="button" data-view="" aria-pressed="true">Atoms</button>'
        '<button type="button" data-view="pairs" aria-pressed="false">Atoms and pairs</button>'
    )
    boxes = '<label><input type="checkbox" data-toggle="numbered">numbers</label>'
    boxes += '<label><input type="checkbox" data-toggle="zoomed">larger</label>'
    tools = f'<div class="tools switch">{switch if pairs else ""}{boxes}</div>\n'
    scale = _scale(one, molecule.folded.limit, "halves", "each atom with half of its pairs" if pairs else "each atom")
    scale += _scale(one, molecule.limit, "apart", pairs_line(molecule, Look(pairs="arcs"), molecule.limit)) if pairs else ""
    sheet = f'<div class="sheet" style="--wide:{drawing.canvas.size[0]:d}px">{drawn}</div>'
    picture = f'<div class="picture look" id="{anchor}picture">{sheet}\n{scale}</div>\n'
    prompt = "Point at or touch an atom, a bond or a bar; arrow keys move on."
    return f'<figure class="drawn">{tools}{picture}{said(prompt)}{_exports(one)}</figure>\n'


def _exports(one: Shown) -> str:
    anchor, file = one.anchor, _file_name(one.name if one.molecule.title else "molecule")
    exports = [Export("png", f"{anchor}picture", f"{file}.png"), Export("svg", f"{anchor}svg", f"{file}.svg")]
    exports.append(Export("csv", f"{anchor}atoms", f"{file}-atoms.csv", "Atoms as CSV"))
    if one.groups:
        exports.append(Export("csv", f"{anchor}groups", f"{file}-groups.csv", "Groups as CSV"))
    return export_buttons(*exports)


def _file_name(name: str) -> str:
    """A name of a file for a molecule: letters, digits and dashes.

    >>> _file_name("Aspirin (acid)/x")
    'aspirin-acid-x'
    """
    parts = "".join(sign if sign.isalnum() else " " for sign in name.lower()).split()
    return "-".join(parts)[:60] or "molecule"


def _scale(one: Shown, limit: float, kind: str, about: str) -> str:
    """The scale of colours of a view."""
    molecule, unit = one.molecule, one.unit
    of = f" {unit}".rstrip()
    against, towards = ("against", "for") if molecule.scale == "probability" else ("lowers it", "raises it")
    low, high = (f"{against} {unit.write(-limit)}{of}", f"{unit.write(limit)}{of} {towards}") if limit else ("all zero", "")
    key = f'<p class="key"><span>{escape(low)}</span><span class="ramp"></span><span>{escape(high)}</span></p>'
    return f'<div class="scale {kind}">{key}<p class="rest">{escape(about[:1].upper() + about[1:])}</p></div>\n'


def _groups(one: Shown) -> str:
    """Bars of the groups beside the drawing; of the atoms' elements' place where there is no account."""
    lines = one.groups
    if not lines:
        return ""
    unit, low, high = one.unit, min(0.0, *(line.value for line in lines)), max(0.0, *(line.value for line in lines))
    rows = "".join(_group_row(one, k, line, low, high) for k, line in enumerate(lines))
    heads = ("group", "times", "", "adds", "error", "of the change", "atoms")
    head = "".join(f'<th scope="col"{_unread(name)}>{name}</th>' for name in heads)
    total = math.fsum(line.value for line in lines)
    of = f" {unit}".rstrip()
    missed = "" if one.change is None else f" of {unit.write(_change(one.molecule))}{of}"
    note = f"Each atom is in one group, with half of its pairs. Together {unit.write(total)}{of}{missed}."
    table = f'<table class="bars groups" id="{one.anchor}groups"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
    title = escape(f"What its groups add{f', in {one.molecule.units}' if one.molecule.units else ''}{of}")
    return f'<div class="side"><h3>{title}</h3>\n{table}\n<p class="rest">{escape(note)}</p></div>\n'


def _unread(name: str) -> str:
    """Attributes of a heading: that of the bars has no text and is not for CSV."""
    return "" if name else ' data-csv="no" aria-label="bar"'


def _change(molecule: Molecule) -> float:
    return (molecule.score or 0.0) - (molecule.baseline_score or 0.0)


def _group_row(one: Shown, k: int, line: AccountLine, low: float, high: float) -> str:
    reach = (high - low) or 1.0
    zero, ends = -low / reach, sorted((0.0, line.value / reach))
    left, wide = 100 * (zero + ends[0]), 100 * (ends[1] - ends[0])
    bar = f'<i class="{_sign(line.value)}" style="left:{left:.3g}%;width:{wide:.3g}%"></i>'
    if line.error:
        off = line.error / reach
        start, end = (min(1.0, max(0.0, zero + line.value / reach + sign * off)) for sign in (-1, 1))
        bar += f'<b style="left:{100 * start:.3g}%;width:{100 * (end - start):.3g}%"></b>'
    times = f' <span class="times">× {line.count:d}</span>' if line.count > 1 else ""
    share = "" if line.share is None else _per_cent(line.share)
    cells = (
        f'<th scope="row" data-value="{escape(line.name)}">{escape(line.name)}{times}</th><td hidden>{line.count:d}</td>'
        f'<td class="track" data-csv="no" style="--zero:{100 * zero:.3g}%">{bar}</td>'
        f'<td data-value="{line.value:.17g}">{one.unit.bounded(line.value, line.error)}</td>'
        f'<td hidden data-value="{"" if line.error is None else repr(line.error)}"></td>'
        f'<td data-value="{"" if line.share is None else repr(line.share)}">{share}</td>'
        f'<td hidden data-value="{" ".join(map(str, line.atoms))}"></td>'
    )
    marked = " ".join(f"{one.anchor}a{i}" for i in line.atoms)
    return f'<tr id="{one.anchor}g{k}" data-marks="{marked}"{saying(_group_says(one, line), reachable=False)}>{cells}</tr>\n'


def _group_says(one: Shown, line: AccountLine) -> str:
    name = f"{line.count} {plural(line.name, line.count)}" if line.count > 1 else line.name
    each = f"; one by one {', '.join(map(one.unit.write, line.each))}" if 1 < len(line.each) <= 6 else ""
    atoms = f"; {len(line.atoms)} atoms" if len(line.atoms) > 1 else ""
    return f"{name}: {one.text(line.value, line.error)}{atoms}{each}"


def _details(one: Shown, sheet: SvgSheet) -> str:
    """What stands below the first screen: running sum, atoms, pairs, accounts, the matrix."""
    molecule = one.molecule
    parts = [("How it adds up to the score", _running(molecule), not one.many)]
    parts.append((f"All {len(molecule.atoms)} atoms", _atom_chart(one), False))
    parts += [("Bonds and other pairs", found, False)] if not one.many and (found := _pair_charts(one)) else []
    rest = [line for line in one.account if line.kind != GROUP]
    if rest:
        note = f'<p class="rest">{escape(one.note)}</p>\n' if one.note else ""
        parts.append(("By element, functional group and ring", f"{note}{_account_table(one, rest)}", False))
    if molecule.pairs.any() and 1 < len(molecule.atoms) <= MOST_CELLS and not one.many:
        parts.append(("Atom by atom, as a matrix", _matrix(molecule, sheet), False))
    return "".join(
        f'<details class="more" data-sayings{" open" * opened}><summary>{escape(name)}</summary>\n{body}</details>\n'
        for name, body, opened in parts
    )


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
        return f'<tr class="{"end" if kind == "at" else ""}"><th scope="row">{escape(name)}</th>{cells}</tr>\n'

    rows = row("nothing: F(x′)" if molecule.baseline_score is not None else "nothing", start, start, "at", "")
    for (name, value), a, b in zip(molecule.parts, ends, ends[1:], strict=False):
        rows += row(name, a, b, _sign(value), number(value))
    if molecule.score is not None and molecule.baseline_score is not None:
        rows += row("the model: F(x)", score, score, "at", f"off {number(float(f'{ends[-1] - score:.1g}'))}")
    return f'<table class="run"><tbody>\n{rows}</tbody></table>\n'


def _atom_chart(one: Shown) -> str:
    """A bar for each atom with half of its pairs, strongest first; what is itself's and what is its pairs' in figures."""
    molecule, unit = one.molecule, one.unit
    rows = []
    for i, name in enumerate(molecule.names):
        own, whole = float(molecule.atoms[i]), float(molecule.per_atom[i])
        group = next((line.name for line in one.groups if i in line.atoms), "")
        error = (molecule.errors[i] if molecule.errors else molecule.error) or 0.0
        off = f"± {unit.write(error)[1:]}" if error else ""
        figures = ((own, unit.write(own)), (whole - own, unit.write(whole - own)), (error, off), (group, group))
        rows.append(PageRow(f"a{i}", name, whole, figures))
    heads = ("atom", "adds", "itself", "half its pairs", "error", "group")
    return f"{said('')}{_chart(one, f'{one.anchor}atoms', rows, heads)}"


def _pair_charts(one: Shown) -> str:
    """Bars of bonds, other pairs and everything else, on one scale, strongest first."""
    molecule = one.molecule
    bonds = [PageRow(f"b{k}", bond_name(molecule, k), float(molecule.bonds[k])) for k in range(len(molecule.ends))]
    pairs = [PageRow(f"p{i}-{j}", pair_name(molecule, i, j), value) for i, j, value in molecule.far]
    others = [PageRow(f"o{k}", name, value) for k, (name, value) in enumerate(molecule.others)]
    arcs = len(shown_pairs(molecule, molecule.limit))
    most = max(MOST_ROWS, arcs)  # every arc has its bar
    named = (("Bonds", bonds, None), ("Pairs without a bond", pairs, most), ("Others", others, None))
    charts = "".join(
        f"<div><h3>{name} <span>{len(rows)}, in sum {one.unit.write(math.fsum(row.value for row in rows))}</span></h3>\n"
        f"{_chart(one, f'{one.anchor}{name.split()[0].lower()}', rows, (name.lower(), 'adds'), limit)}</div>\n"
        for name, rows, limit in named
        if rows and any(row.value for row in rows)
    )
    return f'{said("")}<div class="columns">{charts}</div>\n' if charts else ""


def _reach(molecule: Molecule) -> float:
    """The largest magnitude among the bars."""
    return max(molecule.limit, molecule.folded.limit, max((abs(value) for _, value in molecule.others), default=0.0))


def _chart(one: Shown, name: str, rows: Sequence[PageRow], heads: Sequence[str], most: int | None = None) -> str:
    """A table of bars, strongest first."""
    unit, reach = one.unit, _reach(one.molecule) or 1.0
    ordered = sorted(rows, key=lambda row: -abs(row.value))
    shown = ordered[:most]
    body = "".join(_bar(row, one.anchor, reach, unit) for row in shown)
    rest = math.fsum(row.value for row in ordered[len(shown) :])
    more, of = len(rows) - len(shown), f" {unit}".rstrip()
    left = f'<p class="rest">and {more} more, adding up to {unit.write(rest)}{of}</p>' if more else ""
    titles = (heads[0], "", *(f"{head}{of}" if head != "group" else head for head in heads[1:]))
    head = "".join(f'<th scope="col"{_unread(title)}>{title}</th>' for title in titles)
    table = f'<table class="bars" id="{name}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<div class="rows" tabindex="0" role="region" aria-label="{escape(heads[0])}">{table}</div>{left}\n'


def _bar(row: PageRow, anchor: str, reach: float, unit: PageUnit) -> str:
    name = escape(row.name)
    bar = f'<i class="{_sign(row.value)}" style="width:{50 * abs(row.value) / reach:.3g}%"></i>'
    cells = f'<td data-value="{row.value:.6g}">{unit.write(row.value)}</td>'
    for value, text in row.cells:
        given = f"{value:.6g}" if isinstance(value, float) else str(value)
        cells += f'<td data-value="{escape(given)}">{escape(text)}</td>'
    marked = f' data-marks="{anchor}{row.key}"' if row.key[0] != "o" else ""
    return f'<tr{marked}><th scope="row">{name}</th><td class="track" data-csv="no">{bar}</td>{cells}</tr>\n'


def _sign(value: float) -> str:
    return "p" if value > 0 else "n"


def _account_table(one: Shown, lines: Sequence[AccountLine]) -> str:
    """A table of the parts of a molecule by kind, with their shares of the change where given."""
    shares = any(line.share is not None for line in lines)
    rows, last = "", None
    for line in lines:
        first = escape(line.kind) if line.kind != last else ""
        times = f" × {line.count}" if line.count > 1 else ""
        whole = "" if line.whole is None else f" ({number(line.whole)} undivided)"
        cells = f"<td>{escape(f'{line.name}{times}{whole}')}</td><td>{PageUnit().bounded(line.value, line.error)}</td>"
        cells += f"<td>{_per_cent(line.share)}</td>" if shares else ""
        marked = f' data-marks="{" ".join(f"{one.anchor}a{i}" for i in line.atoms)}"' if line.atoms and not one.many else ""
        rows += f'<tr class="{"first" * bool(first)}"{marked}><th scope="row">{first}</th>{cells}</tr>\n'
        last = line.kind
    head = f"<thead><tr><td></td><td></td><th>adds</th>{'<th>of the change of the score</th>' * shares}</tr></thead>"
    return f'<table class="accounts">{head}<tbody>\n{rows}</tbody></table>\n'


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
    ends = " ".join(f"{i}-{j}" for i, j in molecule.ends)
    picture = (
        f'<svg class="cells" data-count="{count}" data-ends="{ends}" viewBox="0 0 {count + 2} {count + 2}" role="img" '
        'aria-label="Matrix of atoms">'
        f"{shapes}{grid}{before}{above}</svg>"
    )
    about = "Atoms on the diagonal, pairs of atoms off it, each in both of its places."
    return f'<p class="rest">{about}</p>\n{said("Point at a cell.")}{picture}'


def _shade(level: int, sheet: SvgSheet) -> str:
    light, dark = (f"stroke:{paper.area(level / SHADES)}" for paper in (LIGHT, DARK))
    return sheet.name((light, dark))


# ---- Many molecules


def _several(shown: Sequence[Shown], sheet: SvgSheet, lead: str) -> str:
    """Many molecules: a summary, then cards that open to all about one."""
    told = [one.certificate for one in shown if one.certificate is not None]
    whole = Certificate(tuple(told)) if told else None
    drivers = _drivers(shown)
    panes = [pane for pane in (_class_table(shown), _driver_table(shown, drivers)) if pane]
    noted: dict[str, list[str]] = {}
    for one in shown:
        for note in one.molecule.notes:
            noted.setdefault(note, []).append(one.name)
    heed = [
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}: {note}" for note, names in noted.items()
    ]
    heed = heed if len(heed) <= 3 else [*heed[:3], f"and {len(heed) - 3} more notes, each with its molecule."]
    summary = glance(_all_says(shown, drivers, whole), *panes, badges=badge(whole) if whole else "", heed=heed)
    summary += f'<p class="rest">{escape(lead)}</p>\n' if lead else ""
    names = sorted(range(len(shown)), key=lambda k: shown[k].name.lower())
    cards = [_card(one, sheet, names.index(one.k)) for one in shown]
    return collection(cards, summary=summary, noun="molecule")


def _verdict(molecule: Molecule) -> str:
    """The class that a molecule is put into, without its probability; '' for a quantity."""
    return molecule.answer.rpartition(" (")[0] if molecule.scale == "probability" else ""


def _card(one: Shown, sheet: SvgSheet, place: int) -> Entry:
    molecule, anchor = one.molecule, one.anchor
    inside, drawing = _section(one, sheet)
    width, height = drawing.canvas.size
    picture = (
        f'<svg class="mini" viewBox="0 0 {width} {height}" aria-hidden="true"><use href="#{anchor}halves"/>'
        f'<use href="#{anchor}bones"/></svg>'
    )
    score = "" if molecule.score is None else f" {molecule.score:.3g}"
    answer = molecule.answer or (f"{molecule.label}{score}" if molecule.label else f"sum {number(molecule.total)}")
    doubt = one.certificate is not None and grade(one.certificate) == "bad"
    sure = f'<span class="doubt">{escape(trust(one.certificate))}</span>' if doubt and one.certificate else ""
    summary = f"<summary>{picture}<b>{escape(one.name)}</b><span>{escape(answer)}</span>{sure}</summary>"
    body = f'<details class="one" id="{anchor}" data-molecule>{summary}\n<h2>{escape(one.name)}</h2>\n{inside}</details>\n'
    groups = " ".join(line.name for line in one.groups)
    kinds = {"class": verdict} if (verdict := _verdict(molecule)) else {}
    if one.certificate is not None:
        kinds["numbers"] = "not good enough" if doubt else "good"
    return Entry(body, " ".join((one.name, molecule.smiles, answer, groups)), kinds, _orders(one, place))


def _orders(one: Shown, place: int) -> dict[str, float]:
    molecule, found = one.molecule, {}
    if molecule.score is not None:
        found = {"highest score first": -molecule.score, "lowest score first": molecule.score}
        if molecule.scale == "probability":
            found["least certain first"] = abs(molecule.score - 0.5)
    if one.certificate is not None and math.isfinite(one.certificate.error):
        found["least accurate first"] = -one.certificate.error
    return found | {"by name": float(place), "largest first": -float(len(molecule.atoms))}


@dataclass(frozen=True)
class Driver:
    """What a group adds on average over the molecules that have it, with the mean of the errors."""

    name: str
    count: int
    mean: float
    error: float


def _drivers(shown: Sequence[Shown]) -> list[Driver]:
    """The groups that at least two molecules have, and a fiftieth of them, by what they add on average."""
    found: dict[str, list[AccountLine]] = {}
    for one in shown:
        for line in one.groups:
            found.setdefault(line.name, []).append(line)
    least = max(2, len(shown) // 50)
    rows = [
        Driver(
            name,
            len(lines),
            math.fsum(line.value for line in lines) / len(lines),
            math.fsum(line.error or 0.0 for line in lines) / len(lines),
        )
        for name, lines in found.items()
        if len(lines) >= least
    ]
    return sorted(rows, key=lambda row: -row.mean)


def _ends(drivers: Sequence[Driver], count: int) -> tuple[list[Driver], list[Driver]]:
    up = [row for row in drivers if row.mean > 0][:count]
    down = [row for row in reversed(drivers) if row.mean < 0][:count]
    return up, down


def _all_says(shown: Sequence[Shown], drivers: Sequence[Driver], whole: Certificate | None) -> str:
    verdicts = [_verdict(one.molecule) for one in shown]
    counts = {name: verdicts.count(name) for name in sorted(set(filter(None, verdicts)))}
    said = [f"{count} {name[:1].lower()}{name[1:]}" for name, count in counts.items()]
    scores = [one.molecule.score for one in shown if one.molecule.score is not None]
    if not said and scores:
        units = f" {shown[0].molecule.units}" if shown[0].molecule.units else ""
        said = [f"{shown[0].molecule.label} from {min(scores):.3g} to {max(scores):.3g}{units}".replace("-", "−")]
    up, down = _ends(drivers, 1)
    moved = [
        f"{word} most by {rows[0].name} ({number(rows[0].mean)} in {rows[0].count})"
        for word, rows in (("raised", up), ("lowered", down))
        if rows
    ]
    parts = [", ".join(said), ", ".join(moved), trust(whole) if whole else ""]
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _driver_table(shown: Sequence[Shown], drivers: Sequence[Driver]) -> str:
    up, down = _ends(drivers, DRIVERS)
    rows = [*up, *reversed(down)]
    if not rows:
        return ""
    unit = PageUnit.of(max(abs(row.mean) for row in rows))
    reach, of = max(abs(row.mean) for row in rows) or 1.0, f" {unit}".rstrip()
    body = "".join(
        f'<tr><th scope="row" data-value="{escape(row.name)}">{escape(row.name)} '
        f'<span class="times">in {row.count:d}</span></th>'
        f'<td class="track" data-csv="no"><i class="{_sign(row.mean)}" style="width:{50 * abs(row.mean) / reach:.3g}%"></i>'
        f'</td><td data-value="{row.mean:.17g}">{unit.bounded(row.mean, row.error)}</td>'
        f'<td hidden data-value="{row.error:.17g}"></td><td hidden>{row.count:d}</td></tr>\n'
        for row in rows
    )
    heads = ("group", "", f"adds on average{of}", "error", "molecules")
    head = "".join(f'<th scope="col"{" hidden" * (k > 2)}{_unread(name)}>{name}</th>' for k, name in enumerate(heads))
    table = f'<table class="bars drivers" id="drivers"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    save = export_buttons(Export("csv", "drivers", "groups.csv", "Groups as CSV"))
    title = f"<h3>What drives it, over {len(shown)} molecules</h3>"
    return f'<div class="side">{title}\n<div class="rows whole">{table}</div>{save}</div>\n'


def _class_table(shown: Sequence[Shown]) -> str:
    """How many molecules are in each class, and the least certain of them."""
    verdicts = [_verdict(one.molecule) for one in shown]
    counts = {name: verdicts.count(name) for name in sorted(set(filter(None, verdicts)))}
    if not counts:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="track whole">'
        f'<i style="left:0;width:{100 * count / len(shown):.3g}%">'
        f"</i></td><td>{count}</td></tr>\n"
        for name, count in counts.items()
    )
    doubtful = sorted(shown, key=lambda one: abs((one.molecule.score or 0.0) - 0.5))[:LEAST_CERTAIN]
    links = ", ".join(
        f'<a href="#{one.anchor}">{escape(one.name)}</a> {percent(one.molecule.score or 0.0)}' for one in doubtful
    )
    labels = {one.molecule.label for one in shown}
    of = f", by the probability of “{escape(labels.pop())}”" if len(labels) == 1 and "" not in labels else ""
    table = f'<table class="bars classes"><tbody>\n{body}</tbody></table>'
    return f'<div class="side"><h3>Classes</h3>\n{table}\n<p class="rest">Least certain{of}: {links}.</p></div>\n'
