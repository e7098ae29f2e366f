"""``integrand molecule``: molecules as inputs of the batch runner, and what is printed and written of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import typer

from ...batch.identity import digest_of_input, weights_digest
from ...batch.many import BatchOutcome, BatchSummary, BatchTask, explain_each, stopped_by_signals
from ...batch.rows import COLUMN_NAMES, Row
from ...batch.table import Manifest, TableStore
from ...bounded_reading import ChangeRecord, FileVersion
from ...errors import FileError, InputError, IntegrandError, MissingExtraError, OptionError
from ...version import version_of
from ...words import shortened
from ..command_line import (
    Screen,
    echo,
    end_with,
    first_few,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    say_failures,
    say_others,
    say_resumed,
    stoppable,
)
from ..output_table import carried_names, clear, output_table
from .molecule_files import Record, records
from .molecule_output import Failure, MoleculePair, MoleculeWriter, line
from .molecule_row import result_of
from .molgraph import atom_count
from .result import MoleculeAttribution, MoleculeModel

if TYPE_CHECKING:
    from rdkit.Chem import Mol

HEADINGS = 1000
"""The most columns of a table that come back in the output: data sets with descriptors have hundreds."""

FORMAT = 4
"""Version of what a row's ``details`` hold; tables of another version are not added to."""

OURS = (*COLUMN_NAMES, "smiles", "name")
"""The columns that every table of molecules has; those of the input come after them."""


@dataclass(frozen=True)
class MoleculeRequest:
    """The molecules that were asked for; files are read as they come, each time anew.

    Attributes:
        smiles: the molecules that were typed.
        file: a file with more of them.
        column: the heading of the SMILES, if the file is a table.
        version: of the file, when it was first read.
    """

    smiles: Sequence[str]
    file: Path | None
    column: str | None
    version: FileVersion = field(default_factory=FileVersion, compare=False)

    def __iter__(self) -> Iterator[Record]:
        yield from (Record(text.strip()) for text in self.smiles)
        if self.file is not None:
            yield from records(self.file, column=self.column, version=self.version)

    def survey(self) -> tuple[int, tuple[str, ...]]:
        """How many molecules there are, and the headings of what the file says of them.

        Raises:
            OptionError, FileError: there are none, or the file cannot be read.
        """
        if not self.smiles and self.file is None:
            raise OptionError("got no molecule; expected SMILES in quotes, or a file of them: --file many.smi.")
        if self.column is not None and self.file is None:
            raise OptionError(f"got --column {self.column!r} without a table; expected --file with it.")
        for text in self.smiles:
            if len(text) < 200 and Path(text).is_file():
                raise OptionError(f"got the file {text!r} for a SMILES; expected --file {text}.")
        count = 0
        headings: dict[str, None] = {}
        for count, record in enumerate(self, 1):  # noqa: B007, read at the end
            if len(headings) < HEADINGS:
                headings |= dict.fromkeys(name for name, _ in record.columns)
        return count, tuple(headings)[:HEADINGS]


@dataclass(frozen=True)
class MoleculeJob:
    """What to do with every molecule, as the command line has it.

    Attributes:
        explain: gives the attributions of SMILES or molecules of RDKit.
        settings: everything that an attribution depends on beside its molecule.
        writer: for files and the terminal.
        as_json: print JSON.
        quiet: no progress bar, and no word of what went well.
        verbose: print all figures.
        debug: let unexpected errors through, with their traceback.
        together: how many molecules are explained in one call.
        title: what the run is about, for the table's summary.
    """

    explain: Callable[[Sequence[str | Mol]], list[MoleculeAttribution]]
    settings: dict[str, Any]
    writer: MoleculeWriter
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    together: int = 1
    title: str = ""


class UnexpectedError(Exception):
    """An error of a model that ``--debug`` lets through: it ends the run, and its cause is shown with the traceback."""


class MoleculeTask(BatchTask[Record]):
    """A molecule as an input of the batch runner: known by its text, put together with others of about as many atoms.

    Attributes:
        job: what to do with a molecule.
        lasting: whether the table is what was asked for, so that what the file says of a molecule counts as part of it.
    """

    stops: ClassVar[tuple[type[BaseException], ...]] = (*BatchTask.stops, UnexpectedError)

    def __init__(self, job: MoleculeJob, *, lasting: bool = False) -> None:
        self.job, self.together, self.lasting = job, job.together, lasting
        self._names = carried_names(job.writer.headings, OURS)

    def key(self, item: Record) -> str:
        """The SMILES; of a mol block its name and a digest; the place in the file if there is no molecule to be had."""
        if item.problem:
            return item.where  # another may have the same text
        return f"{item.name} {digest_of_input(item.text)}".strip() if item.block else item.text

    def name(self, item: Record) -> str:
        """What the file calls the molecule, or what it is."""
        return item.title

    def digest(self, item: Record) -> str:
        """Of the molecule; with what the file says of it where that is kept, too."""
        return digest_of_input((item.text, item.problem, *((item.name, item.columns) if self.lasting else ())))

    def problem(self, item: Record) -> str:
        """Why there is no molecule to be had."""
        return item.problem

    def size(self, item: Record) -> float:
        """The number of atoms."""
        return atom_count(item.molecule())

    def explain(self, items: Sequence[Record]) -> list[Row]:
        """The rows of molecules; whatever goes wrong becomes an error of one line."""
        try:
            with one_line("the model", debug=self.job.debug):
                return [found.row() for found in self.job.explain([item.molecule() for item in items])]
        except IntegrandError:
            raise
        except Exception as error:  # --debug was given
            raise UnexpectedError from error

    def row(self, item: Record, found: Row) -> Row:
        """The row as it is."""
        return found

    def columns(self, item: Record) -> Mapping[str, Any]:
        """The molecule, its name, and what else the file says of it; what would be there twice is there once."""
        own = {"smiles": None if item.block else item.text, "name": item.name or None}
        said = {name: value for name, value in item.columns if name in self._names}
        same = {name for name, value in said.items() if value.strip() == own.get(name.lower())}
        return own | {self._names[name]: value for name, value in said.items() if name not in same}

    def is_current(self, item: Record, read: Callable[[], Row | None]) -> bool:
        """Whether a result can be had from the row of an earlier run; not asked where the table itself is the output."""
        if self.lasting:
            return True
        try:
            row = read()
            return row is not None and bool(self.result(item, row))
        except InputError:
            return False

    def result(self, item: Record, row: Row) -> MoleculeAttribution:
        """The result of a molecule from its row.

        Raises:
            InputError: the row is not as it was written.
        """
        return result_of(row, item.molecule())


def settings_of(model: MoleculeModel, how: dict[str, Any]) -> dict[str, Any]:
    """Everything that an attribution depends on beside its molecule: the options, the weights, the versions of the software."""
    try:
        from rdkit import rdBase
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "explaining molecules") from None
    made = {"model": model.name, "source": model.source, "weights": weights_digest(*vars(model).values())}
    used = {"integrand": version_of(), "torch": torch.__version__.partition("+")[0], "rdkit": rdBase.rdkitVersion}
    return how | made | used | {"format": FORMAT}


@contextmanager
def opened_table(job: MoleculeJob, out: Path | None, *, folder: bool, again: bool) -> Iterator[TableStore]:
    """Open the table of a run: ``out`` itself, one beside it, or a temporary one where nothing is to be kept.

    Args:
        job: what the rows are made with.
        out: the folder or file that was asked for; None to print only.
        folder: whether it is a folder.
        again: find nothing that an earlier run has kept.
    """
    manifest = Manifest(job.settings, title=job.title)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="integrand-") as name, TableStore.opened(Path(name), manifest) as store:
            yield store
        return
    with output_table(out, manifest, folder=folder, again=again) as store:
        yield store


def run(
    job: MoleculeJob,
    asked: MoleculeRequest,
    total: int,
    out: Path | None,
    *,
    folder: bool = False,
    again: bool = False,
    keep: bool = False,
    retry_failed: bool = False,
    screen: Screen | None = None,
) -> None:
    """Explain all molecules, print them and write the file or table; exit with 1 if some failed, with 2 if all did.

    A file is written from the table, in a second pass over the molecules: either all of them that were explained are in
    it, or it is left as it was, and the exit code is 1. The table beside it is removed once the file has all molecules.

    Args:
        job: what to do with a molecule.
        asked: the molecules.
        total: how many they are.
        out: the file to write, or the folder for the table; None to print only.
        folder: whether ``out`` is a folder.
        again: use nothing that an earlier run has kept.
        keep: the table stays beside the file, for another file of the same name with another ending or more molecules.
        retry_failed: explain molecules again that an earlier run could not.
        screen: where bars are drawn.
    """
    screen = screen or Screen(None)
    task = MoleculeTask(job, lasting=folder)
    change = ChangeRecord()
    tally = MoleculeTally(task, total, kept=out is not None, retried=retry_failed)
    written, problem = 0, ""
    told = nullcontext() if out is None else stoppable(job.writer.command)  # without it, there is nothing to go on from
    with noted() as notes, opened_table(job, out, folder=folder, again=again) as store:
        with told, stopped_by_signals() as stop, _unwrapped():
            watch = screen.batch(total, "molecules")
            molecules = change.until_changed(asked)
            for outcome in explain_each(task, molecules, store, watcher=watch, retry_failed=retry_failed, stop=stop):
                tally.add(outcome)
        summary = tally.summary
        problem = str(change.error or "")
        if folder or keep:
            store.finish()
        if out is not None and not folder and summary.explained and not problem:
            with screen.doing(f"writing {out.name}"):
                written, problem = _written(task, out, iter(asked), store, summary)
        if out is not None and not folder and not (keep or problem or summary.failed):
            store.flush()
            clear(store.folder)
    screen.close()
    say([*first_few(notes), *tally.notes(folder)])
    say_failures(summary, lambda record: record.name or record.where or shortened(record.text, 80), kept=out is not None)
    if out is not None and folder:
        say_others(out, summary)
    if problem:
        print_line(problem if out is None else f"{out}: {problem}" if folder else f"not written: {out}: {problem}", err=True)
        raise typer.Exit(1)
    if (written or folder) and not job.quiet:
        wrote = f"table in {out}" if folder else f"wrote {out}"
        print_line(f"explained {summary.explained} of {total} molecule(s){tally.before}; {wrote}", err=True)
    end_with(summary)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Let the error of a model through as it was."""
    try:
        yield
    except UnexpectedError as error:
        raise (error.__cause__ or error) from None


class MoleculeTally:
    """Prints molecules as they come, and counts them.

    Attributes:
        summary: how the run went so far.
    """

    def __init__(self, task: MoleculeTask, total: int, *, kept: bool, retried: bool = False) -> None:
        """Begin with nothing.

        Args:
            task: what is done with a molecule.
            total: how many they are.
            kept: whether something is written of them.
            retried: whether failures are tried again, so that what comes first to be explained is not where it stopped.
        """
        self.summary: BatchSummary[Record] = BatchSummary()
        self._task, self._total, self._kept, self._retried = task, total, kept, retried
        self._missed: list[str] = []
        self._new = 0

    def add(self, outcome: BatchOutcome[Record]) -> None:
        """Count a molecule, and print what became of it."""
        new = not (outcome.known or outcome.failed or outcome.repeated)
        if new and not self._new and not self._retried:
            say_resumed(self.summary, self._total, "molecules")
        self._new += new
        self.summary.add(outcome)
        unread = outcome.known and self._task.lasting and not self._task.job.as_json  # of a large table nothing is read twice
        if outcome.failed or unread:
            return
        row = outcome.row
        if row.status not in ("converged", "exact"):
            self._missed.append(outcome.item.title)
        self._show(outcome.item, row, known=outcome.known)

    @property
    def before(self) -> str:
        """How many molecules an earlier run had explained, for the last line; empty if none."""
        known = self.summary.known if self._new else self.summary.explained
        return f" ({known} done before)" if self.summary.known else ""

    def notes(self, folder: bool) -> list[str]:
        """What is to be said of all molecules.

        Args:
            folder: whether the table is the output.
        """
        found = []
        if self._missed:
            off = f"not as exact as asked for: {len(self._missed)} of {self._total} molecules"
            more = "allow more work with --max-evaluations, or ask for less with --tol"
            found.append(f"{off} ({', '.join(first_few(self._missed))}); {more}")
        if folder and self.summary.repeated:
            found.append(
                f"{self.summary.repeated} of {self._total} molecules are there more than once; the table has each once, with "
                "what the file says of the first"
            )
        return found

    def _show(self, record: Record, row: Row, *, known: bool) -> None:
        """Print a molecule: as JSON, in full if it is the only one, or in one line."""
        job = self._task.job
        if job.as_json:
            echo(json.dumps(job.writer.numbers(record, self._task.result(record, row)), allow_nan=False))
        elif job.quiet and self._kept:
            return
        elif self._total == 1:
            print_shown(job.writer.terminal(record, self._task.result(record, row), verbose=job.verbose))
        elif not (known and self._kept):
            print_line(line(record, row))


def _written(
    task: MoleculeTask, out: Path, again: Iterator[Record], store: TableStore, summary: BatchSummary[Record]
) -> tuple[int, str]:
    """Write the file from the table; gives how many molecules are in it, or why it was left as it was."""
    problem = ""
    failed: list[Failure] = []

    def checked() -> Iterator[MoleculePair]:
        nonlocal problem
        count = 0
        try:
            for count, pair in enumerate(_results(task, again, store, failed), 1):  # noqa: B007, read after the loop
                yield pair
            if count < summary.explained:
                raise FileError(f"{count} results were found of {summary.explained}; run the same command again.")
        except FileError as error:  # in reading: what goes wrong in writing is not caught
            problem = str(error)
            raise

    try:
        return task.job.writer.write(out, checked(), failed), ""
    except FileError:
        if not problem:
            raise
        return 0, problem


def _results(task: MoleculeTask, again: Iterator[Record], store: TableStore, failed: list[Failure]) -> Iterator[MoleculePair]:
    """Molecules with their results from the table, in the order of the file; those that failed are added to the list."""
    for record in again:
        row = store.get(task.key(record))
        if row is not None and not row.ok:
            failed.append((record, row.failure or ""))
            continue
        try:
            if row is None:
                raise InputError("there is no row of it")
            found = task.result(record, row)
        except InputError:
            raise FileError(f"the result of {record.title} is not to be found any more; run the same command again.") from None
        yield record, found
