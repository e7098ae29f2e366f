"""Explaining molecules, a few at a time: on after a bad one, and on where an earlier run was stopped."""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ...engine import version_of
from ...errors import ConvergenceWarning, IntegrandError, MissingExtraError, OptionError, TargetError
from ..command_line import noted, one_line, say
from .molecule_files import Record, records
from .molecule_output import Failure, MoleculeWriter, line
from .molecule_store import MoleculeStore, opened, store_of
from .molgraph import read
from .result import MoleculeAttribution, MoleculeModel

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True)
class MoleculeRequest:
    """The molecules that were asked for; files are read as they come, each time anew.

    Attributes:
        smiles: those that were typed.
        file: where the others are.
        column: of a table.
    """

    smiles: Sequence[str]
    file: Path | None
    column: str | None

    def __iter__(self) -> Iterator[Record]:
        yield from (Record(text.strip()) for text in self.smiles)
        if self.file is not None:
            yield from records(self.file, column=self.column)

    def count(self) -> int:
        """How many there are; an error where there are none, or a file that cannot be read."""
        if not self.smiles and self.file is None:
            raise OptionError("got no molecule; expected SMILES in quotes, or a file of them: --file many.smi.")
        if self.column is not None and self.file is None:
            raise OptionError(f"got --column {self.column!r} without a table; expected --file with it.")
        for text in self.smiles:
            if len(text) < 200 and Path(text).is_file():
                raise OptionError(f"got the file {text!r} for a SMILES; expected --file {text}.")
        return sum(1 for _ in self)


Show = Callable[[Record, MoleculeAttribution], None]
Step = Callable[[str, int], None]

NOTES = 5
"""Warnings that are said, and molecules that are named; of thousands there may be many."""

TOGETHER = 16
"""Molecules that a network on graphs explains at a time, and that a kill can cost."""

ROUNDS = 4
"""So many times that many molecules are looked at to find those of about the same size."""


@dataclass(frozen=True)
class MoleculeJob:
    """What to do with every molecule.

    Attributes:
        explain: from SMILES or molecules of RDKit to their attributions.
        settings: all that these depend on beside the molecule.
        writer: for files and the terminal.
        as_json: print JSON.
        quiet: no progress bar, and no word of what went well.
        debug: let unexpected errors through, with their traceback.
        together: how many molecules are explained at a time.
    """

    explain: Callable[[Sequence[str | Mol]], list[MoleculeAttribution]]
    settings: dict[str, Any]
    writer: MoleculeWriter
    as_json: bool = False
    quiet: bool = False
    debug: bool = False
    together: int = 1

    def windows(self, asked: Iterable[Record]) -> Iterator[list[Record]]:
        """The molecules in order, as many as are looked at in one go."""
        rest = iter(asked)
        while window := list(itertools.islice(rest, self.together * (ROUNDS if self.together > 1 else 1))):
            yield window

    def attributions(self, given: Sequence[str | Mol]) -> list[MoleculeAttribution]:
        """Of some molecules; whatever goes wrong comes as one line."""
        with one_line("the model", debug=self.debug), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said at the end, with the names of the molecules
            return self.explain(given)


def settings_of(model: MoleculeModel, how: dict[str, Any]) -> dict[str, Any]:
    """All that an attribution depends on: the options, the weights, the versions of what computes it."""
    try:
        from rdkit import rdBase
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "explaining molecules") from None
    digest = hashlib.sha256()
    for part in vars(model).values():
        for key, weight in part.state_dict().items() if isinstance(part, nn.Module) else ():
            digest.update(key.encode() + weight.cpu().numpy().tobytes())
    made = {"model": model.name, "source": model.source, "weights": digest.hexdigest()}
    return how | made | {"integrand": version_of(), "rdkit": rdBase.rdkitVersion}


def run(job: MoleculeJob, asked: MoleculeRequest, total: int, out: Path | None, *, again: bool) -> None:
    """Explain all molecules; ends with 1 if some failed, with 2 if all did."""
    show = _shower(job, alone=total == 1, kept=out is not None)
    with noted() as notes, opened(None if out is None else store_of(out), job.settings, again=again) as store:
        failed, missed, known = _explain(job, asked, store, total, show)
        worked = total - len(failed)
        if out is not None and worked:
            found = ((record, one) for record in asked if (one := store.get(record)) is not None)
            job.writer.write(out, found, failed)
    off = f"the tolerance was not met for {len(missed)} of {total} molecule(s): {', '.join(_first(missed))}"
    say([*_first(notes), *([off] if missed else [])])
    for record, why in failed:
        typer.echo(f"not explained: {record.name or record.where or record.text}: {why}", err=True)
    if out is not None and worked and not job.quiet:
        done = f" ({known} done before)" if known else ""
        typer.echo(f"explained {worked} of {total} molecule(s){done}; wrote {out}", err=True)
    if failed:
        raise typer.Exit(1 if worked else 2)


def _first(words: Sequence[str]) -> list[str]:
    return [*words[:NOTES], *([f"and {len(words) - NOTES} more"] if len(words) > NOTES else [])]


def _explain(
    job: MoleculeJob, asked: MoleculeRequest, store: MoleculeStore, total: int, show: Show
) -> tuple[list[Failure], list[str], int]:
    """Put all molecules into the store and show them; what failed, what missed the tolerance, how many were done already."""
    failed: list[Failure] = []
    missed: list[str] = []
    known = 0
    try:
        with _bar(total, quiet=job.quiet) as step:
            for window in job.windows(asked):
                new = [record for record in window if store.get(record) is None]
                known += len(window) - len(new)
                step(window[0].title, len(window) - len(new))
                wrong = _fill(job, store, new, step)
                for record in window:
                    if record in wrong:
                        failed.append((record, wrong[record]))
                    elif (one := store.get(record)) is not None:
                        show(record, one)
                        missed += [] if one.certificate.converged else [record.title]
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command goes on where it was: {job.writer.command}", err=True)
        raise typer.Exit(130) from None
    return failed, missed, known


@dataclass(frozen=True)
class Ready:
    """A molecule that can be read: its record, as it is explained, how many atoms it has."""

    record: Record
    molecule: str | Mol
    atoms: int


def _fill(job: MoleculeJob, store: MoleculeStore, new: Sequence[Record], step: Step) -> dict[Record, str]:
    """Explain molecules into the store, those of about the same size together; why some cannot be."""
    wrong, ready = {}, []
    for record in new:
        try:
            molecule = record.molecule()
            ready.append(Ready(record, molecule, read(molecule)[1].GetNumAtoms()))
        except IntegrandError as error:
            wrong[record] = str(error)
            step(record.title, 1)
    ready.sort(key=lambda one: one.atoms)
    for i in range(0, len(ready), job.together):
        rows = ready[i : i + job.together]
        step(rows[0].record.title, 0)
        wrong |= _together(job, store, rows)
        step(rows[-1].record.title, len(rows))
    return wrong


def _together(job: MoleculeJob, store: MoleculeStore, rows: Sequence[Ready]) -> dict[Record, str]:
    """Explain some molecules at a time; where that fails one by one, so that only those fail that are at fault."""
    try:
        found = job.attributions([row.molecule for row in rows])
    except (OptionError, TargetError):  # no molecule is at fault
        raise
    except IntegrandError as error:
        if len(rows) == 1:
            return {rows[0].record: str(error)}
        return {record: why for row in rows for record, why in _together(job, store, [row]).items()}
    for row, one in zip(rows, found, strict=True):
        store.put(row.record, one)
    return {}


def _shower(job: MoleculeJob, *, alone: bool, kept: bool) -> Show:
    """What is printed of a molecule that is done: JSON, all about the only one, or a line where no file keeps it."""

    def show(record: Record, one: MoleculeAttribution) -> None:
        if job.as_json:
            typer.echo(json.dumps(job.writer.numbers(record, one), allow_nan=False))
        elif alone and not (job.quiet and kept):
            typer.echo(job.writer.terminal(record, one))
        elif not kept:
            typer.echo(line(record, one))

    return show


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Step]:
    """A progress bar on a terminal, silence elsewhere; somebody to tell which molecule is worked on, and how many are done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda name, done: bar.update(task, advance=done, description=name[:40])
