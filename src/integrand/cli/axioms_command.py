"""``integrand axioms``: which attribution methods keep which axioms of the paper."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid
from rich.text import Text
from torch import Tensor

from ..apps.command_line import ScoreName, print_line, typed
from ..axioms.axiom_table import METHODS, Step, Table, table
from ..axioms.verdict import Verdict
from ..certificate import AXIOMS
from ..errors import FileError, OptionError
from ..files import ready, write_text
from ..loading import load_model
from ..methods import by_name
from ..tensor_files import read_tensors
from ..trees import Tensors, flatten
from ..words import first_line


class Format(enum.StrEnum):
    """The format of the table of verdicts."""

    text = "text"
    html = "html"
    json = "json"


_STYLE = {"kept": "green", "broken": "yellow", "promise refuted": "bold red"}


def axioms(
    method: Annotated[list[str] | None, typer.Option(help="A method to check; may come several times. Default: all.")] = None,
    axiom: Annotated[list[str] | None, typer.Option(help=f"An axiom; several times. One of {', '.join(AXIOMS)}.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Check this model instead of searching small networks: package.module:function. Put into eval mode."),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Run the code of --model and --equivalent.")] = False,
    input: Annotated[str | None, typer.Option(help="With --model: a .pt, .npy, .npz or .safetensors file.")] = None,
    shape: Annotated[str | None, typer.Option(help="Instead of --input: random numbers, such as 3,224,224.")] = None,
    baseline: Annotated[str | None, typer.Option(help="With --model: a number, or a file like --input. Default: 0.")] = None,
    target: Annotated[int | None, typer.Option(help="With --model: the output to explain. Default: the top class.")] = None,
    score: Annotated[ScoreName | None, typer.Option(help="With --model: what is explained. Default: logit.")] = None,
    equivalent: Annotated[str | None, typer.Option(help="With --model: another model that computes the same.")] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="Cases that each search tries; with --model, rows.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    format: Annotated[Format | None, typer.Option(help="Default: by the ending of --out, else text.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file to write to.")] = None,
    evidence: Annotated[bool, typer.Option(help="Print the counter-examples below the table.")] = True,
) -> None:
    """Which axioms of the paper does each method keep? With the evidence for every answer.

    Without --model, a search for counter-examples over small networks. With it, checks on a model and input of yours. Ends
    with 1 if a promise of a method was refuted.
    """
    if out is not None:
        ready(out.parent)  # before the work, not after it
    options = _on_model(model, input, shape, baseline, target, score, equivalent, seed, trust=trust)
    if examples:
        options["examples" if model else "max_examples"] = examples
    chosen = [by_name(name) for name in method] if method else METHODS
    kind = format or _by_ending(out)
    with _bar(len(chosen) * len(axiom or AXIOMS)) as tell:
        found = table(chosen, axioms=axiom or AXIOMS, seed=seed, progress=tell, **options)
    command = typed()
    if kind is Format.html:
        _write(found.html(command=command), out)
    elif kind is Format.json:
        _write(found.json(), out)
    elif out is not None:
        _write(str(found), out)
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


def _try(name: str, model: Any, x: torch.Tensor, shape: str) -> None:
    """Run a model once on an input of the shape that was typed; if it fails, report its error in one line."""
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


@contextmanager
def _bar(cells: int) -> Iterator[Callable[[Step], object]]:
    """A progress bar if standard error is a terminal, or none; gives the function that moves it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=cells)
        yield lambda step: bar.update(task, completed=step.done, description=f"{step.method}, {step.axiom}")


def _show(found: Table, *, evidence: bool) -> None:
    """Print the table in colours and, if wanted, the counter-examples below it."""
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
    return _alone(read_tensors(path, what=what))


def _alone(found: Any) -> Tensors:
    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    tree, leaves = flatten(found, what="what the file holds")
    return tree.build(leaves)


def random_input(shape: str, *, seed: int = 0) -> Tensor:
    """Draw one example from a normal distribution, with a shape such as ``3,224,224``; the same seed gives the same example."""
    try:
        sizes = tuple(int(part) for part in shape.split(","))
        if min(sizes) < 1:
            raise ValueError
    except ValueError:
        raise OptionError(f"got --shape {shape!r}; expected the shape of one example, such as 3,224,224.") from None
    return torch.randn(1, *sizes, generator=torch.Generator().manual_seed(seed))
