"""The page of a text that was written word by word: choose a word of it, or read the whole matrix of outputs by inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...certificate import Certificate
from ..escaping import escape
from ..glance import GLANCE, Export, badge, export_buttons, glance, glance_script, said
from ..html import document, fact_table, origin
from .alignment_grid import GRID, Grid, table
from .tokens import Tokens
from .word_markup import RAMP, STYLE, limit_of, words_html
from .word_page import key, running_table
from .word_sentences import number, verdict

BY_WORD = """
.chosen{display:flex;flex-wrap:wrap;gap:.35rem;margin:0 0 .25rem;border:0;padding:0;min-width:0}
.chosen legend{color:var(--soft);font-size:.875rem;padding:0 0 .35rem}
.chosen input{position:absolute;opacity:0;pointer-events:none}
.chosen label{border:1px solid var(--line);border-radius:8px;padding:.15rem .6rem;font-size:1.125rem;cursor:pointer}
.chosen label:hover{border-color:var(--soft)}
.chosen input:checked+label{border-color:var(--focus);box-shadow:inset 0 0 0 1px var(--focus);font-weight:650}
.chosen input:focus-visible+label{outline:3px solid var(--focus);outline-offset:2px}
.chosen .pane{display:none;order:1;flex:0 0 100%;min-width:0}
.chosen input:checked+label+.pane{display:block}
@media(hover:hover){.chosen:has(label:hover) .pane{display:none}.chosen label:hover+.pane.pane{display:block}}
.pane .large{margin:.25rem 0 0}
.pane .large.so-far{font-size:1.05rem}
.pane .of{color:var(--soft);font-size:.8125rem;margin:.35rem 0 0}
@media(min-width:40.01rem){.pane .key{display:none}}
.outputs>details:not([open])>:not(summary){display:none}
.outputs>details{border-top:1px solid var(--line);padding:.35rem 0;margin:0}
""".strip()


def page(
    grid: Grid,
    lines: Sequence[Tokens],
    *,
    heading: str,
    says: str,
    certificate: Certificate,
    own: int,
    meta: Mapping[str, str],
    command: str | None = None,
    notes: Iterable[str] = (),
    called: tuple[str, str] = ("the text", "the output so far"),
) -> str:
    """One self-contained HTML page: a chosen output with the words that made it, the matrix, and the details of each output.

    Args:
        grid: the matrix.
        lines: each output as a line of coloured words.
        heading: what was written.
        says: what is to be said of it, in one sentence.
        certificate: how far the numbers can be trusted, output by output.
        own: how many of each line's tokens are the user's own text, and not written by the model.
        meta: how it was made.
        command: what makes the page again, to be shown in it.
        notes: what a reader must not miss.
        called: what the user's own text and the written one are called.
    """
    first = glance(says, _by_word(grid, lines, own, called), badges=badge(certificate), heed=notes)
    saves = export_buttons(Export("png", "matrix", "matrix.png"), Export("csv", "matrix", "matrix.csv"))
    prompt = said("Point at a cell, touch it, or use the arrow keys, to read it in words.")
    limit = grid.limit
    ramp = f'<span class="ramp" style="background:linear-gradient(to right,{",".join(RAMP)})"></span>'
    scale = f'<p class="key"><span>{escape(number(-limit))}</span>{ramp}<span>{escape(number(limit))}</span></p>\n'
    matrix = f"<div data-sayings>\n{table(grid, name='matrix')}{prompt}</div>\n{scale}"
    return document(
        heading,
        f"{first}{matrix}{saves}{_about()}{_each(lines)}{origin(meta, command)}",
        style=f"{GLANCE}\n{STYLE}\n{GRID}\n{BY_WORD}",
        scripts=(glance_script(),),
    )


def _by_word(grid: Grid, lines: Sequence[Tokens], own: int, called: tuple[str, str]) -> str:
    """Every output to choose from; the words that speak for the chosen one show below. Needs no JavaScript."""
    best = int(grid.blocks[0].values.max(1).argmax()) if grid.blocks[0].values.size else 0
    parts = []
    for i, tokens in enumerate(lines):
        chosen = " checked" if i == best else ""
        name = f'<bdi dir="auto">{escape(grid.rows[i], directed=True)}</bdi>'
        parts.append(
            f'<input type="radio" name="output" id="output-{i}"{chosen}><label for="output-{i}">{name}</label>\n'
            f'<div class="pane" data-sayings>\n{_pane(grid, i, tokens, own, called)}</div>\n'
        )
    legend = "<legend>Point at a word, or choose it, to see what it comes from</legend>"
    return f'<fieldset class="chosen">{legend}\n{"".join(parts)}</fieldset>\n'


def _pane(grid: Grid, i: int, tokens: Tokens, own: int, called: tuple[str, str]) -> str:
    limit = limit_of([tokens])
    pieces = [piece for piece in tokens.pieces if not piece.marker]
    text = [piece for piece in pieces if piece.tokens[0] < own]
    written = [piece for piece in pieces if piece.tokens[0] >= own]
    score = f": {escape(grid.named[i])}" if grid.named else ""
    out = f'<p class="of">from {escape(called[0])}{score}</p>\n'
    out += f'<p class="line large">{words_html(tokens, limit, pieces=text)}</p>\n'
    if written:
        shown = words_html(tokens, limit, pieces=written)
        out += f'<p class="of">from {escape(called[1])}</p>\n<p class="line large so-far">{shown}</p>\n'
    return out + said("Point at a word, or touch it, to read its number.") + key()


def _about() -> str:
    text = (
        "A row for each output, a column for each input. Red speaks for the output, blue against it. Along a row, the cells "
        "and the score without any words, F(x′), add up to the model's score, F(x)."
    )
    return f"<details><summary>How to read the matrix</summary>\n<p>{text}</p></details>\n"


def _each(lines: Sequence[Tokens]) -> str:
    """Each output's words, running sum and certificate, folded away."""
    parts = []
    for tokens in lines:
        line = f'<div data-sayings>\n<p class="line">{words_html(tokens)}</p>\n{said("")}</div>\n'
        note = f'<p class="rest">{escape(tokens.note)}</p>\n' if tokens.note else ""
        facts = "" if tokens.certificate is None else fact_table(tokens.certificate)
        parts.append(
            f"<details><summary><bdi>{escape(verdict(tokens))}</bdi></summary>\n{line}{note}{running_table(tokens)}{facts}</details>\n"
        )
    return f'<section class="outputs">\n<h2>Output by output</h2>\n{"".join(parts)}</section>\n'
