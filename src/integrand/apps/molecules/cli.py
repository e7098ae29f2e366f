"""``integrand molecule``: which atoms and bonds a network's prediction for a molecule is due to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import OptionError
from .. import molecules
from ..command_line import ScoreName, check_out, default_device, one_line, typed
from .accounting import compiled
from .molecule_output import ENDINGS, PICTURES, MoleculeWriter
from .molecule_run import TOGETHER, MoleculeJob, MoleculeRequest, run, settings_of

Smiles = Annotated[list[str] | None, typer.Argument(metavar="SMILES...", help="Molecules, in quotes.", show_default=False)]
File = Annotated[Path | None, typer.Option(help="Molecules: .smi, .csv, .tsv or .sdf, or these with .gz.", show_default=False)]
Model = Annotated[str, typer.Option(help="weave-w2n2, weave-w1n2, these with -simple, or admet:ENDPOINT (admet:BBB_Martins).")]
Smarts = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=SMARTS", help="Account by this pattern too; several times.", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="A page (.html), numbers (.csv, .json, .sdf); for one: .svg, .png.")]


def molecule(
    smiles: Smiles = None,
    file: File = None,
    model: Model = "weave-w2n2",
    target: Annotated[str | None, typer.Option(help="The output to explain, where a model has several.")] = None,
    score: Annotated[ScoreName | None, typer.Option(help="Default: probability.", show_default=False)] = None,
    tol: Annotated[float, typer.Option(help="The relative error to integrate to.")] = 0.01,
    smarts: Smarts = None,
    column: Annotated[str | None, typer.Option(help="The heading of the SMILES in a table. Default: smiles or so.")] = None,
    out: Out = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write the numbers of atoms into a .svg or .png.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per molecule.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, and no word of what went well.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Explain molecules again that are done already.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an unexpected error happened.")] = False,
) -> None:
    """Which atoms and bonds made a network say what it says of a molecule?

    What is done is kept beside the output (NAME.progress.jsonl), and the same command goes on where it was stopped.
    """
    check_out(out, ENDINGS)
    _check_apart(file, out)
    patterns, asked = _patterns(smarts or []), MoleculeRequest(smiles or [], file, column)
    if numbers and (out is None or out.suffix.lower() not in PICTURES):
        raise OptionError("got --numbers without a picture; expected --out with a file that ends in .svg or .png.")
    total = asked.count()
    if out is not None and out.suffix.lower() in PICTURES and total > 1:
        raise OptionError(f"got --out {str(out)!r} for {total} molecules; expected .html, .csv, .json or .sdf.")
    with one_line(f"--model {model}", debug=debug):
        network = molecules.load(model, device or default_device())
    how: dict[str, Any] = {"target": target, "score": None if score is None else score.value, "tol": tol}
    meta = {"model": network.name, "weights": network.source, "baseline": "all features of atoms and bonds zero"}
    job = MoleculeJob(
        lambda given: network.explain(given, **how),
        settings_of(network, how),
        MoleculeWriter(patterns, meta | {"tolerance": f"{tol:g}"}, typed(), numbers),
        as_json=as_json,
        quiet=quiet,
        debug=debug,
        together=TOGETHER if isinstance(network, molecules.GraphModel) else 1,
    )
    run(job, asked, total, out, again=again)


def _check_apart(file: Path | None, out: Path | None) -> None:
    """Check that the output would not overwrite the file of molecules."""
    if file is not None and out is not None and file.exists() and out.exists() and file.samefile(out):
        raise OptionError(
            f"got {str(out)!r} as --file and --out; expected another file to write to, such as values{out.suffix}."
        )


def _patterns(given: Sequence[str]) -> dict[str, str]:
    """Parse the NAME=SMARTS options, and check before the work begins that RDKit can read the patterns."""
    found = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        if not (equals and name.strip() and pattern.strip()):
            raise OptionError(f"got --smarts {text!r}; expected NAME=SMARTS, such as 'ester=C(=O)O[#6]'.")
        if name.strip() in found:
            raise OptionError(f"got --smarts {name.strip()!r} twice; expected a name of its own for each pattern.")
        found[name.strip()] = pattern.strip()
    if found:
        compiled(found)
    return found
