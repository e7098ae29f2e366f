"""``integrand molecule``: which atoms and bonds a network's prediction for a molecule is due to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import OptionError
from ...words import number, percent
from ..command_line import (
    NETWORK,
    OUTPUT,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Tol,
    Verbose,
    check_folder,
    check_name,
    check_out,
    default_device,
    figures,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    typed,
    working,
)

ENDINGS = (".html", ".svg", ".png", ".csv", ".json", ".sdf")
PICTURES = (".svg", ".png")
COMPARED = (".html", ".png", ".svg", ".pdf", ".json", ".csv")
"""What the file of a comparison of networks may end in."""

STRONGEST = 5
"""How many of the atoms that networks differ in most are printed."""

Smiles = Annotated[list[str] | None, typer.Argument(metavar="SMILES", help="Molecules, in quotes.", show_default=False)]
File = Annotated[
    Path | None,
    typer.Option(help="Molecules: .smi, .csv, .tsv or .sdf, or these with .gz.", show_default=False, rich_help_panel=WHAT),
]


def molecule(
    smiles: Smiles = None,
    file: File = None,
    column: Annotated[
        str | None,
        typer.Option(help="The heading of the SMILES in a table. Default: smiles or so.", rich_help_panel=WHAT),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The output to explain, where a model has several.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName | None, typer.Option(help="Default: probability.", show_default=False, rich_help_panel=WHAT)
    ] = None,
    smarts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SMARTS",
            help="Account by this pattern too; several times.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), numbers (.csv, .json, .sdf), with a table's own columns first; for one: .svg, .png. "
            "A folder: a table of Parquet files, a row for each molecule.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Write the numbers of atoms into a .svg or .png.", rich_help_panel=OUTPUT)
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, and no word of what went well.", rich_help_panel=OUTPUT)
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Explain molecules again that are done already.", rich_help_panel=OUTPUT)
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the table of what is done beside the output: another ending, or more, then takes no time.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    retry_failed: RetryFailed = False,
    force: Force = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="weave-w2n2 (the default), weave-w1n2, these with -simple, or admet:ENDPOINT (admet:BBB_Martins). "
            "Twice, to compare two networks on one molecule.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Which atoms and bonds made a network say what it says of a molecule?

    If it is stopped, what is done is kept beside the output, and the same command goes on where it was.
    """
    names = model or ["weave-w2n2"]
    for name in names:
        check_name("--model", name, "the name of a network, such as weave-w2n2")
    _check_apart(file, out)
    how: dict[str, Any] = {"target": target, "score": None if score is None else score.value, "tol": tol}
    how["max_evaluations"] = max_evaluations
    if len(names) > 1:
        if file is not None or len(smiles or []) != 1:
            given = "a file" if file is not None else f"{len(smiles or [])} molecules"
            raise OptionError(
                f"got {len(names)} networks for {given}; expected one "
                'molecule to compare them on: integrand molecule "CCO" --model weave-w2n2 --model weave-w1n2.'
            )
        if smarts or numbers or keep or again or retry_failed:
            raise OptionError(
                "got --smarts, --numbers, --keep, --again or --retry-failed with two networks; they are for one. Leave them "
                "out."
            )
        check_out(out, COMPARED, force=force)
        asked_for = PairRequest((smiles or [""])[0], names, out, as_json=as_json, verbose=verbose, quiet=quiet, debug=debug)
        asked_for.run(how, device)
        return
    [name] = names
    folder = _is_folder(out, force=force)
    if not folder:
        check_out(out, ENDINGS, force=force)
    if numbers and (out is None or out.suffix.lower() not in PICTURES):
        raise OptionError("got --numbers without a picture; expected --out with a file that ends in .svg or .png.")
    with working(quiet=quiet) as screen:
        with screen.doing("looking at the molecules"):
            from .molecule_run import MoleculeJob, MoleculeRequest, run, settings_of

            patterns, asked = _patterns(smarts or []), MoleculeRequest(smiles or [], file, column)
            total, headings = asked.survey()
        if out is not None and out.suffix.lower() in PICTURES and total > 1:
            raise OptionError(f"got --out {str(out)!r} for {total} molecules; expected .html, .csv, .json or .sdf.")
        with screen.loading(), one_line(f"--model {name}", debug=debug):
            from .. import molecules
            from .molecule_output import MoleculeWriter

            network = molecules.load(name, device or default_device())
        together = getattr(network.explain, "together", 1)
        meta = {"model": network.name, "weights": network.source, "baseline": "all features of atoms and bonds zero"}
        job = MoleculeJob(
            lambda given: network.explain(given, **how),
            settings_of(network, how) | {"together": together},
            MoleculeWriter(patterns, meta | {"tolerance": f"{tol:g}"}, typed(), numbers, headings),
            as_json=as_json,
            quiet=quiet,
            verbose=verbose,
            debug=debug,
            together=together,
            title=f"{'molecules' if file is None else file.name}: {network.name}",
        )
        run(job, asked, total, out, folder=folder, again=again, keep=keep, retry_failed=retry_failed, screen=screen)


@dataclass(frozen=True)
class PairRequest:
    """One molecule that several networks are compared on, and what is to come of it.

    Attributes:
        smiles: the molecule.
        names: the networks, as ``--model`` names them.
        out: the file to write, if any.
        as_json: print JSON.
        verbose: print all figures.
        quiet: no progress bar, and no word of what was written.
        debug: let unexpected errors through, with their traceback.
    """

    smiles: str
    names: Sequence[str]
    out: Path | None
    as_json: bool
    verbose: bool
    quiet: bool
    debug: bool

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            again = next(name for name in self.names if self.names.count(name) > 1)
            raise OptionError(f"got --model {again} twice; expected networks that differ.")

    def run(self, how: dict[str, Any], device: str | None) -> None:
        """Explain the molecule with each network, write what was asked for, and print what they differ in."""
        with working(quiet=self.quiet) as screen:
            with screen.loading():
                from .. import molecules

                networks = {}
                for name in self.names:
                    with one_line(f"--model {name}", debug=self.debug):
                        networks[name] = molecules.load(name, device or default_device())
            with screen.doing("comparing"), noted() as notes, one_line(self.smiles, debug=self.debug):
                found = molecules.compare(self.smiles.strip(), networks, **how)
            if self.out is not None:
                with screen.doing("writing"):
                    found.save(self.out, **({"command": typed()} if self.out.suffix.lower() == ".html" else {}))
        if self.as_json:
            out = None if self.out is None else str(self.out)
            typer.echo(json.dumps(found.numbers() | {"warnings": notes, "out": out}))
            return
        print_line(headline_of(found))
        written = percent if found.unit == "probability" else number
        for name, (answer, *_) in found.answers.items():
            print_line(f"  {name}: {answer.label} {written(answer.value)}")
        last = f"{found.differences[0].first} − {found.differences[0].second}"
        for row in sorted(found.table(), key=lambda row: -abs(row[last]))[:STRONGEST]:
            each = ", ".join(f"{name} {row[name]:+.3g}" for name in self.names)
            print_line(f"  {row['feature']}: {each}; difference {row[last]:+.3g} ± {row[f'error of {last}']:.1g}")
        for note in (*found.notes, *notes):
            print_line(f"note: {note}")
        if self.verbose:
            for name, result in found.results.items():
                print_shown(f"{name}\n{figures(result.certificate.only)}")
        if self.out is not None and not self.quiet:
            print_line(f"wrote {self.out}")


def _is_folder(out: Path | None, *, force: bool) -> bool:
    """Whether the output is a folder for the table: an existing one, or a name without an ending. Checks that it may be."""
    if out is None or out.suffix.lower() in ENDINGS:
        return False
    if not out.is_dir() and out.suffix:
        raise OptionError(
            f"got --out {str(out)!r}; expected a file that ends in {', '.join(ENDINGS)}, or a name without an ending for a "
            "folder with the table."
        )
    check_folder(out.parent, f"--out {str(out)!r}", force=force)
    if out.exists() and not out.is_dir():
        raise OptionError(f"got --out {str(out)!r}, which is a file without an ending; expected a folder, or a new name.")
    strange = [path.name for path in out.iterdir() if not path.name.startswith((".", "_"))] if out.is_dir() else []
    if strange and not force and not (out / "_manifest.json").exists():
        raise OptionError(
            f"got --out {str(out)!r}, a folder that holds {min(strange)!r}; expected a new or empty one, or that of an earlier "
            "run, for whatever reads the table reads all files in it. --force puts the table there."
        )
    return True


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
        from .accounting import compiled

        compiled(found)
    return found
