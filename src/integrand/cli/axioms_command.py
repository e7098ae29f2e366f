"""``integrand axioms``: which attribution methods keep which axioms of the paper."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..apps.command_line import (
    ACCURACY,
    EXPERTS,
    NETWORK,
    OUTPUT,
    WHAT,
    Force,
    ScoreName,
    Screen,
    Trust,
    check_name,
    check_place,
    print_line,
    typed,
    working,
)
from ..certificate import AXIOMS
from ..errors import FileError, OptionError
from ..files import write_text
from ..version import generator
from ..words import first_line

if TYPE_CHECKING:
    from rich.text import Text
    from torch import Tensor

    from ..axioms.axiom_table import Step, Table
    from ..axioms.verdict import Verdict
    from ..trees import Tensors


class Format(enum.StrEnum):
    """The format of the table of verdicts."""

    text = "text"
    html = "html"
    json = "json"


_STYLE = {"kept": "green", "broken": "yellow", "promise refuted": "bold red"}


def axioms(
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method to check; may come several times. Default: all.", rich_help_panel=WHAT, metavar="NAME"),
    ] = None,
    axiom: Annotated[
        list[str] | None,
        typer.Option(help=f"An axiom; several times. One of {', '.join(AXIOMS)}.", rich_help_panel=WHAT, metavar="NAME"),
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="With --model: a .pt, .npy, .npz or .safetensors file.", rich_help_panel=WHAT)
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of --input: random numbers, such as 3,224,224.", rich_help_panel=WHAT)
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="With --model: a number, or a file like --input. Default: 0.", rich_help_panel=WHAT)
    ] = None,
    target: Annotated[
        int | None, typer.Option(help="With --model: the output to explain. Default: the top class.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName | None, typer.Option(help="With --model: what is explained. Default: logit.", rich_help_panel=WHAT)
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(min=1, help="Cases that each search tries; with --model, rows.", rich_help_panel=ACCURACY),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="Default: by the ending of --out, else text.", rich_help_panel=OUTPUT)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file to write to.", rich_help_panel=OUTPUT)] = None,
    evidence: Annotated[
        bool,
        typer.Option("--evidence/--no-evidence", help="Print the counter-examples below the table.", rich_help_panel=OUTPUT),
    ] = True,
    force: Force = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="Check this model instead of searching small networks: package.module:function. Put into eval mode.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    trust: Trust = False,
    equivalent: Annotated[
        str | None, typer.Option(help="With --model: another model that computes the same.", rich_help_panel=NETWORK)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", rich_help_panel=EXPERTS)] = 0,
) -> None:
    """Which axioms of the paper does each method keep? With the evidence for every answer.

    Without --model, a search for counter-examples over small networks. With it, checks on a model and input of yours. Ends
    with 1 if a promise of a method was refuted.
    """
    for option, name in (("--model", model), ("--equivalent", equivalent)):
        if name is not None:
            check_name(option, name, "a model in code, such as package.module:function")
    if out is not None:
        check_place(out, force=force)  # before the work, not after it
    with working() as screen:
        with screen.doing("loading"):
            from ..axioms.axiom_table import METHODS, table
            from ..methods import by_name

            options = _on_model(model, input, shape, baseline, target, score, equivalent, seed, trust=trust)
            if examples:
                options["examples" if model else "max_examples"] = examples
            chosen = [by_name(name) for name in method] if method else METHODS
        kind = format or _by_ending(out)
        tell = _told(screen, len(chosen) * len(axiom or AXIOMS))
        found = table(chosen, axioms=axiom or AXIOMS, seed=seed, progress=tell, **options)
    command = typed()
    if kind is Format.html:
        _write(found.html(command=command), out)
    elif kind is Format.json:
        _write(found.json(), out)
    elif out is not None:
        _write(f"{found}\n\n# {generator()}: {command}", out)
    else:
        _show(found, evidence=evidence)
    if found.refuted:
        raise typer.Exit(1)


def _on_model(
    model: str | None,
    input: str | None,
    shape: str | None,
    baseline: str | None,
    target: int | None,
    score: ScoreName | None,
    equivalent: str | None,
    seed: int,
    *,
    trust: bool,
) -> dict[str, Any]:
    """The options that describe a user's model to the table; empty without --model, when small networks are searched."""
    if model is None:
        given = {"--input": input, "--shape": shape, "--baseline": baseline, "--target": target, "--score": score}
        given["--equivalent"] = equivalent
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise OptionError(f"got {', '.join(named)} without --model; expected --model package.module:function.")
        return {}
    if (input is None) == (shape is None):
        raise OptionError("--model needs an input: expected --input x.npy (or .pt, .npz, .safetensors), or --shape 3,224,224.")
    import torch

    from ..loading import load_model

    x: Tensors = load_tensors(input) if input is not None else random_input(shape or "", seed=seed)
    loaded = load_model(model, trust=trust)
    other = None if equivalent is None else load_model(equivalent, trust=trust, what="--equivalent")
    if isinstance(x, torch.Tensor) and shape is not None:
        _try(model, loaded, x, shape)
    return {
        "model": loaded,
        "x": x,
        "baseline": _number(baseline or "0"),
        "target": target,
        "score": (score or ScoreName.logit).value,
        "equivalent": other,
    }


def _try(name: str, model: Any, x: Tensor, shape: str) -> None:
    """Run a model once on an input of the shape that was typed; if it fails, report its error in one line."""
    import torch

    try:
        with torch.no_grad():
            model(x)
    except Exception as error:
        said = first_line(error)
        raise OptionError(
            f"got --shape {shape}, and {name} fails on an input of shape {tuple(x.shape)}: {said}. Expected the shape of one "
            "example, without the batch."
        ) from error


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return load_tensors(text, what="--baseline")


def _by_ending(out: Path | None) -> Format:
    endings = {".html": Format.html, ".htm": Format.html, ".json": Format.json}
    return Format.text if out is None else endings.get(out.suffix.lower(), Format.text)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text)
        return
    write_text(out, text + ("" if text.endswith("\n") else "\n"))
    print_line(f"wrote {out}", err=True)


def _told(screen: Screen, cells: int) -> Callable[[Step], object]:
    """The function that shows how many cells of the table are done, and which comes next."""
    bar = screen.batch(cells)
    done = 0

    def tell(step: Step) -> None:
        nonlocal done
        bar.begin(f"{step.method}, {step.axiom}")
        bar.advance(step.done - done)
        done = step.done

    return tell


def _show(found: Table, *, evidence: bool) -> None:
    """Print the table in colours and, if wanted, the counter-examples below it."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console()
    grid = Grid(
        "method", *(_HEADS.get(axiom, axiom) for axiom in found.axioms), title=f"On {found.where}", title_justify="left"
    )
    names = [row[0].method for row in found.verdicts]
    for row in found.verdicts:
        grid.add_row(row[0].method if names.count(row[0].method) == 1 else row[0].settings, *map(_cell, row))
    console.print(grid)
    console.print(Text(_LEGEND, style="dim"))
    if evidence:
        for verdict in (verdict for row in found.verdicts for verdict in row if verdict.counterexample is not None):
            console.print()
            console.print(Text(f"{verdict.settings}: {verdict.sentence}", style=_STYLE.get(verdict.word, "")))
            console.print(Text("\n".join("  " + line for line in str(verdict.counterexample).splitlines())))
        if any(verdict.counterexample for row in found.verdicts for verdict in row):
            console.print(Text(f"\n{_CODE}", style="dim"))
    if found.refuted:
        refuted = ", ".join(f"{verdict.settings} {verdict.axiom}" for verdict in found.refuted)
        console.print(Text(f"\nPromises refuted: {refuted}", style="bold red"))


_HEADS = {
    "completeness": "complete",
    "sensitivity-a": "sens. (a)",
    "sensitivity-b": "sens. (b)",
    "implementation-invariance": "invariant",
    "linearity": "linear",
    "symmetry": "symmetric",
}
"""Headings of the columns by axiom, short enough for a terminal of 80 columns."""

_CODE = "Python that brings each of these back is in the page and in the data: --out table.html, or --format json (code)."

_LEGEND = "kept 100: none of 100 cases broke it.  *: though the method does not promise it.  ?: errors too large to tell."


def _cell(verdict: Verdict) -> Text:
    from rich.text import Text

    words = {"undecided": "?", "refused": "no rule", "nothing to try": "nothing to try"}
    if verdict.kept:
        star = "" if verdict.promise is None or verdict.promise.kept else " *"
        return Text(f"kept {verdict.tried}{star}", style="green")
    return Text(words.get(verdict.word, verdict.word), style=_STYLE.get(verdict.word, "dim"))


def load_tensors(text: str, *, what: str = "--input") -> Tensors:
    """Load tensors from a .pt, .npy, .npz or .safetensors file; several arrays become a dict by their names."""
    path, endings = Path(text), (".npy", ".npz", ".pt", ".pth", ".safetensors")
    if path.suffix.lower() not in endings:
        raise OptionError(f"got {what} {text!r}; expected a file that ends in {', '.join(endings)}.")
    if not path.exists():
        raise FileError(f"{what}: there is no file {text!r}; expected tensors to explain.")
    from ..tensor_files import read_tensors

    return _alone(read_tensors(path, what=what))


def _alone(found: Any) -> Tensors:
    from ..trees import flatten

    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    tree, leaves = flatten(found, what="what the file holds")
    return tree.build(leaves)


def random_input(shape: str, *, seed: int = 0) -> Tensor:
    """Draw one example from a normal distribution, with a shape such as ``3,224,224``; the same seed gives the same example."""
    import torch

    try:
        sizes = tuple(int(part) for part in shape.split(","))
        if min(sizes) < 1:
            raise ValueError
    except ValueError:
        raise OptionError(f"got --shape {shape!r}; expected the shape of one example, such as 3,224,224.") from None
    return torch.randn(1, *sizes, generator=torch.Generator().manual_seed(seed))
