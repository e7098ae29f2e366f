"""The table of a command over many inputs: the folder that was asked for, or one beside a file, which is written from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..batch.rows import COLUMN_NAMES
from ..batch.table import MANIFEST, Manifest, TableStore, parts_of
from ..errors import FileError, OptionError
from ..files import fitting, locked, remove
from ..words import shown


def table_beside(out: Path) -> Path:
    """The folder with the table that a file is written from, beside it; one for all endings, so that another is quick.

    >>> table_beside(Path("values.csv")).name
    'values.table'
    """
    return out.with_name(fitting(out.stem, ".table"))


@contextmanager
def output_table(out: Path, manifest: Manifest, *, folder: bool, again: bool) -> Iterator[TableStore]:
    """Open the table of a run. Beside a file, its folder goes where it is empty in the end.

    Args:
        out: what was asked for: the folder of the table, or a file that has one beside it.
        manifest: what the rows are made with.
        folder: whether ``out`` is a folder.
        again: find nothing that an earlier run has kept.

    Raises:
        FileError: the folder cannot be written, or another process has it.
        OptionError: what an earlier run has kept was made with other settings.
    """
    if folder:
        with TableStore.opened(out, manifest, again=again) as store:
            yield store
        return
    place = table_beside(out)
    if place.is_symlink():
        raise FileError(f"{shown(str(place))} cannot be written (it is a link); choose another name for {shown(out.name)}.")
    with locked(out):  # which also removes what a killed run left beside the file
        _check_leftover(place, manifest, again=again)
        try:
            with TableStore.opened(place, manifest, again=again) as store:
                yield store
        finally:
            with suppress(OSError):  # it has something in it
                place.rmdir()


def _check_leftover(place: Path, manifest: Manifest, *, again: bool) -> None:
    """Check that what an earlier run has kept beside its file can be gone on with; with ``--again`` it goes if it cannot."""
    if not (place / MANIFEST).exists():
        return
    try:
        Manifest.read(place).check_same(manifest, place)
    except (OptionError, FileError) as error:
        if not again:
            raise type(error)(f"{error} That folder is what an earlier run kept: --again drops it and begins anew.") from None
        with locked(place):
            clear(place)


def clear(place: Path) -> None:
    """Remove a table; the manifest goes last, so that a kill in between leaves a table with fewer rows."""
    for path in (*parts_of(place), place / MANIFEST):
        remove(path)


def carried_names(headings: Sequence[str], ours: Sequence[str] = COLUMN_NAMES) -> dict[str, str]:
    """What the columns of an input are called in the table: as they are, or ``input_score`` where that is a name of ours.

    Upper and lower case count as the same, as in SQL.

    >>> carried_names(["id", "Score", "input_score"])
    {'id': 'id', 'Score': 'input_Score', 'input_score': 'input_input_score'}

    Args:
        headings: the columns of the input.
        ours: names that the table has already.
    """
    found: dict[str, str] = {}
    taken = set(ours)
    for heading in headings:
        name = heading if heading.strip() else "input_"
        while name.lower() in taken:
            name = f"input_{name}"
        taken.add(name.lower())
        found[heading] = name
    return found
