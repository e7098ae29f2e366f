"""``integrand molecule``: molecules as inputs of the batch runner, and what is printed and written of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import typer

from ...attribution_files import example_of
from ...batch.identity import weights_digest
from ...batch.resumable import BatchSummary, BatchTask, explain_each, kept_results
from ...batch.store import Entry, LineStore
from ...errors import ConvergenceWarning, FileError, IntegrandError, MissingExtraError, OptionError, TargetError, quiet
from ...files import fitting
from ...schema import stored
from ...version import version_of
from ...words import shortened
from ..command_line import (
    Screen,
    echo,
    end_with,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    say_failures,
    say_resumed,
    stoppable,
)
from .molecule_files import Record, records
from .molecule_output import MoleculePair, MoleculeWriter, line
from .molgraph import read
from .result import MoleculeAttribution, MoleculeModel, draws_of, kept_draws

if TYPE_CHECKING:
    from rdkit.Chem import Mol

NOTES = 5
"""The most warnings that are printed, and the most molecules that a note names; of thousands there may be many."""

TOGETHER = 16
"""Molecules that a network on graphs explains in one call, and that a kill can cost."""

HEADINGS = 1000
"""The most columns of a table that come back in the output: data sets with descriptors have hundreds."""

FORMAT = 3
"""Version of the entries in the store; those of another version are not used. Since 3, they say what the score is."""


@dataclass(frozen=True)
class MoleculeRequest:
    """The molecules that were asked for; files are read as they come, each time anew.

    Attributes:
        smiles: the molecules that were typed.
        file: a file with more of them.
        column: the heading of the SMILES, if the file is a table.
    """

    smiles: Sequence[str]
    file: Path | None
    column: str | None

    def __iter__(self) -> Iterator[Record]:
        yield from (Record(text.strip()) for text in self.smiles)
        if self.file is not None:
            yield from records(self.file, column=self.column)

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
    """

    explain: Callable[[Sequence[str | Mol]], list[MoleculeAttribution]]
    settings: dict[str, Any]
    writer: MoleculeWriter
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    together: int = 1


class MoleculeTask(BatchTask[Record, MoleculeAttribution]):
    """A molecule as an input of the batch runner: known by its text, put together with others of about as many atoms."""

    stops: ClassVar[tuple[type[IntegrandError], ...]] = (OptionError, TargetError)

    def __init__(self, job: MoleculeJob) -> None:
        self.job, self.together = job, job.together

    def key(self, item: Record) -> str:
        """The SMILES or mol block; the place in the file if there is no molecule to be had: another may have the same text."""
        return item.where if item.problem else item.text

    def name(self, item: Record) -> str:
        """What the file calls the molecule, or what it is."""
        return item.title

    def size(self, item: Record) -> float:
        """The number of atoms."""
        return float(read(item.molecule())[1].GetNumAtoms())

    def explain(self, items: Sequence[Record]) -> list[MoleculeAttribution]:
        """The attributions of molecules; whatever goes wrong becomes an error of one line."""
        # Missed tolerances are said at the end, with the names of the molecules.
        with one_line("the model", debug=self.job.debug), quiet(ConvergenceWarning):
            return self.job.explain([item.molecule() for item in items])

    def pack(self, item: Record, found: MoleculeAttribution) -> Entry:
        """The numbers of an attribution, summed over the features of each atom and pair."""
        return {
            "smiles": found.smiles,
            "label": found.label,
            "model": found.model,
            "notes": list(found.notes),
            "scale": found.scale,
            "units": found.units,
            "atoms": found.atoms.tolist(),
            "ends": found.ends.tolist(),
            "pairs": found.pair_values.tolist(),
            "others": dict(found.others),
            "draws": kept_draws(found.draws),
            "certificate": stored(found.certificate),
        }

    def unpack(self, item: Record, entry: Entry) -> MoleculeAttribution:
        """An attribution in which each atom and pair has a single feature, the sum over all; every value is checked."""
        smiles, mol = read(item.molecule())
        texts = [entry[key] for key in ("label", "model", "scale", "units")]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"got {texts!r} as label, model, scale and units; expected texts.")
        if not isinstance(entry["notes"], list) or not all(isinstance(note, str) for note in entry["notes"]):
            raise TypeError(f"got {entry['notes']!r} as notes; expected texts.")
        ends = [end for pair in entry["ends"] for end in pair]
        if not all(type(end) is int for end in ends):
            raise TypeError("got pairs of something else; expected pairs of numbers of atoms.")
        return MoleculeAttribution(
            smiles,
            mol,
            entry["label"],
            np.array(_numbers(entry["atoms"])).reshape(-1, 1),
            np.array(ends, np.int64).reshape(-1, 2),
            np.array(_numbers(entry["pairs"])).reshape(-1, 1),
            example_of(entry["certificate"]),
            others=dict(zip(entry["others"], _numbers(list(entry["others"].values())), strict=True)),
            model=entry["model"],
            notes=tuple(entry["notes"]),
            scale=entry["scale"],
            units=entry["units"],
            draws=draws_of(entry["draws"], mol.GetNumAtoms()),
        )


def _numbers(values: Any) -> list[float]:
    """The numbers of a list that was read from JSON; an error if there is anything else in it, or something infinite."""
    if not isinstance(values, list) or not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        raise TypeError("got a list with something else than numbers.")
    return [float(value) for value in values]


def settings_of(model: MoleculeModel, how: dict[str, Any]) -> dict[str, Any]:
    """Everything that an attribution depends on beside its molecule: the options, the weights, the versions of the software."""
    try:
        from rdkit import rdBase
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "explaining molecules") from None
    made = {"model": model.name, "source": model.source, "weights": weights_digest(*vars(model).values())}
    return how | made | {"integrand": version_of(), "rdkit": rdBase.rdkitVersion, "format": FORMAT}


def store_of(out: Path) -> Path:
    """The file that keeps what is done: one for all endings, so that a page becomes a table without computing again."""
    return out.with_name(fitting(out.stem, ".progress.jsonl"))


def run(
    job: MoleculeJob,
    asked: MoleculeRequest,
    total: int,
    out: Path | None,
    *,
    again: bool = False,
    keep: bool = False,
    screen: Screen | None = None,
) -> None:
    """Explain all molecules, print them and write the file; exit with 1 if some failed, with 2 if all did.

    The file is written from what is kept, in a second pass over the molecules: either all of them that were explained are in
    it, or it is left as it was, and the exit code is 1. What is kept is removed once the file has all molecules.

    Args:
        job: what to do with a molecule.
        asked: the molecules.
        total: how many they are.
        out: the file to write; None to print only.
        again: use nothing that an earlier run has kept.
        keep: what is done stays beside the file, for another file of the same name with another ending or more molecules.
        screen: where bars are drawn.
    """
    screen = screen or Screen(None)
    task = MoleculeTask(job)
    summary: BatchSummary[Record] = BatchSummary()
    missed: list[str] = []
    seen = SeenMolecules(asked)
    written, problem = 0, ""
    with noted() as notes, LineStore.opened(None if out is None else store_of(out), job.settings, again=again) as store:
        with stoppable(job.writer.command):
            for outcome in explain_each(task, seen.first(), store, watcher=screen.batch(total, "molecules")):
                if not outcome.known and outcome.found is not None:
                    say_resumed(summary, total, "molecules")
                summary.add(outcome)
                if outcome.found is not None:
                    _show(job, outcome.item, outcome.found, alone=total == 1, known=outcome.known, kept=out is not None)
                    missed += [] if outcome.found.certificate.converged else [outcome.item.title]
        problem = "" if summary.total == total else seen.changed(min(total, summary.total))
        if out is not None and summary.explained and not problem:
            results = kept_results(task, seen.again(), store)
            with screen.doing(f"writing {out.name}"):
                written, problem = _written(job.writer, out, results, summary)
        store.spent = not (keep or problem or summary.failed)
    screen.close()
    off = f"not as exact as asked for: {len(missed)} of {total} molecules ({', '.join(_first(missed))})"
    off += "; allow more work with --max-evaluations, or ask for less with --tol"
    say([*_first(notes), *([off] if missed else [])])
    say_failures(summary, lambda record: record.name or record.where or shortened(record.text, 80))
    if problem:
        print_line(problem if out is None else f"not written: {out}: {problem}", err=True)
        raise typer.Exit(1)
    if written and not job.quiet:
        before = f" ({summary.known} done before)" if summary.known else ""
        print_line(f"explained {written} of {total} molecule(s){before}; wrote {out}", err=True)
    end_with(summary)


def _written(
    writer: MoleculeWriter, out: Path, results: Iterator[MoleculePair], summary: BatchSummary[Record]
) -> tuple[int, str]:
    """Write the file; gives how many molecules are in it, or why it was left as it was."""
    problem = ""

    def checked() -> Iterator[MoleculePair]:
        nonlocal problem
        count = 0
        try:
            for count, pair in enumerate(results, 1):  # noqa: B007, read after the loop
                yield pair
            if count < summary.explained:
                raise FileError(f"{count} results were found of {summary.explained}; run the same command again.")
        except FileError as error:  # in reading: what goes wrong in writing is not caught
            problem = str(error)
            raise

    try:
        return writer.write(out, checked(), summary.failed), ""
    except FileError:
        if not problem:
            raise
        return 0, problem


class SeenMolecules:
    """Molecules that are read twice from the same file, which somebody may replace meanwhile."""

    BYTES = 8
    """The bytes that are remembered of each molecule."""

    def __init__(self, asked: MoleculeRequest) -> None:
        self._asked = asked
        self._seen = bytearray()

    def first(self) -> Iterator[Record]:
        """The molecules, each remembered."""
        for record in self._asked:
            self._seen += self._digest(record)
            yield record

    def again(self) -> Iterator[Record]:
        """The same molecules.

        Raises:
            FileError: they are not the same any more.
        """
        place = 0
        for record in self._asked:
            if self._seen[place : place + self.BYTES] != self._digest(record):
                raise FileError(self.changed(place // self.BYTES))
            yield record
            place += self.BYTES
        if place < len(self._seen):
            raise FileError(self.changed(place // self.BYTES))

    def changed(self, same: int) -> str:
        """What to say if the molecules are the same up to this number only."""
        name = "what was asked for" if self._asked.file is None else self._asked.file.name
        return (
            f"{name} changed while it was read, from molecule {same + 1} on. What is done is kept: the same command explains "
            "what is there now."
        )

    def _digest(self, record: Record) -> bytes:
        text = "\n".join(
            (record.text, record.name, record.where, record.problem, *(cell for pair in record.columns for cell in pair))
        )
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=self.BYTES).digest()


def _first(words: Sequence[str]) -> list[str]:
    return [*words[:NOTES], *([f"and {len(words) - NOTES} more"] if len(words) > NOTES else [])]


def _show(job: MoleculeJob, record: Record, one: MoleculeAttribution, *, alone: bool, known: bool, kept: bool) -> None:
    """Print a molecule: as JSON, in full if it is the only one, or in one line."""
    if job.as_json:
        echo(json.dumps(job.writer.numbers(record, one), allow_nan=False))
    elif job.quiet and kept:
        return
    elif alone:
        print_shown(job.writer.terminal(record, one, verbose=job.verbose))
    elif not (known and kept):
        print_line(line(record, one))
