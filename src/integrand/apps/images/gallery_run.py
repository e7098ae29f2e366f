"""``integrand image`` and ``integrand retina`` on files: one photo as a report, many as a table and a gallery of pages."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from ...batch.many import BatchSummary, BatchTask, explain_each, stopped_by_signals
from ...batch.rows import Row
from ...batch.table import ExplainedTable, Manifest, TableStore
from ...engine import warn_if_missed
from ...errors import FileError, IntegrandError, OptionError
from ...evaluation.progress import Progress
from ...files import fitting, locked, read_bytes, ready, write_bytes
from ...render.certificate_text import sum_note
from ...render.image.gallery import Card, card, card_of, gallery_page
from ...words import finite, shown
from ..command_line import (
    PICTURES,
    Screen,
    check_folder,
    check_place,
    end_with,
    figures,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    say_failures,
    say_resumed,
    stamp,
    stoppable,
)
from .photo_files import BYTES, UNREADABLE, digest_of_photo, file_of, key_of, told_apart
from .result import Explanation

TABLE = "table"
"""The folder in a gallery's that holds the table of its photos: what is done, so that the same command goes on where it was
stopped, and a gallery grows with the photos that come later."""

NEW = 0.1
"""The index is written again when there are so many new photos, as a share of those that it shows, with a card or as a failure:
in all, that writes some eleven times the last index, however many photos there are."""

DRAWN = 8
"""The most photos that a gallery explains in one call: a page takes 0.3 s to draw, ten times what a GPU takes to integrate, and
what a kill costs grows with the number."""

NAMED = 5
"""The most photos that a note names."""

ENDINGS = (".html", *PICTURES, ".json", ".safetensors")
"""What a file with the explanation of one photo may end in."""

Tell = Callable[[Progress], None]
"""Takes reports of how many gradients are computed."""


@dataclass(frozen=True)
class PhotoJob:
    """What to do with every photo, as the command line has it.

    Attributes:
        explain: explains the photos in some files, one explanation for each, and reports its progress.
        settings: what an explanation depends on beside the photo, as pages say it.
        command: what the user typed.
        title: the title of the gallery.
        debug: let unexpected errors through, with their traceback.
        views: the views that a picture shows, by name; the default ones if empty.
        notice: what every reader must know; printed below the answers.
        stamps: what else an explanation depends on and no page says: digests of weights, code and files.
        together: photos that are explained in one call.
    """

    explain: Callable[[Sequence[Path], Tell], Sequence[Explanation]]
    settings: dict[str, Any]
    command: str
    title: str
    debug: bool = False
    views: tuple[str, ...] = ()
    notice: str = ""
    stamps: dict[str, Any] = field(default_factory=dict)
    together: int = 1

    @property
    def manifest(self) -> Manifest:
        """What the table of a gallery is made with: photos with other settings go into another one."""
        return Manifest({**self.settings, "made_with": self.stamps}, "values", self.title)

    def explained(self, photos: Sequence[Path], tell: Tell) -> tuple[list[Explanation], list[str]]:
        """Explain photos; also gives the warnings. Whatever goes wrong becomes an error of one line."""
        hint = "Check that the model takes what the preprocessing gives it (--size, --mean, --scale, --order)"
        with noted() as notes, one_line(", ".join(map(str, photos)), hint, debug=self.debug):
            explanations = list(self.explain(photos, tell))
        if len(photos) > 1:
            notes[:] = [f"of {len(photos)} photos that were explained together: {note}" for note in notes]
        return explanations, notes


def run_one(
    job: PhotoJob,
    photo: Path,
    out: Path | None,
    *,
    as_json: bool = False,
    verbose: bool = False,
    force: bool = False,
    screen: Screen | None = None,
) -> None:
    """Explain one photo, write the file that is asked for, and print what was found."""
    screen = screen or Screen(None)
    where = out or (None if as_json else Path(fitting(photo.stem, ".html")))
    if where is not None:
        if where.suffix.lower() not in ENDINGS:
            raise OptionError(f"got --out {str(where)!r}; expected a file that ends in {', '.join(ENDINGS)}, or a folder.")
        check_place(where, force=force)
    bar = screen.batch(1, "photos")
    bar.begin(photo.name)
    [explanation], notes = job.explained([photo], bar.tell)
    replaced = where is not None and where.exists()
    if where is not None:
        with screen.doing("writing the page" if where.suffix.lower() == ".html" else "writing the file"):
            _save(explanation, where, job)
    screen.close()
    if as_json:
        notes += filter(None, [sum_note(explanation.result.certificate.only)])
        said = {"sentence": headline_of(explanation), "warnings": notes, "out": None if where is None else str(where)}
        typer.echo(json.dumps(explanation.numbers() | said))
        return
    print_shown("\n".join([headline_of(explanation), *explanation.beside]))
    for note in (*explanation.notes, *notes):
        print_line(f"note: {note}")
    if job.notice:
        print_line(job.notice)
    if verbose:
        print_shown(figures(explanation.result.certificate.only))
    print_line(f"{'replaced' if replaced else 'wrote'} {where}")


def run_many(
    job: PhotoJob,
    photos: Sequence[Path],
    out: Path | None,
    *,
    as_json: bool = False,
    again: bool = False,
    retry_failed: bool = False,
    force: bool = False,
    screen: Screen | None = None,
) -> None:
    """Explain photos into a table and a gallery; past photos that fail, and onwards from where an earlier run was stopped.

    Nobody else can write to the gallery meanwhile. Photos count as explained if at the end the index shows them and their pages
    are as they were written.
    """
    screen = screen or Screen(None)
    gallery = Gallery.at(out or Path("explained"))
    check_folder(gallery.folder.parent, f"--out {shown(str(out))!r}", force=force)
    ready(gallery.folder)
    check_place(gallery.index, force=force)
    summary: BatchSummary[Path] = BatchSummary()
    place = gallery.folder / TABLE
    with locked(gallery.index), locked(gallery.folder), TableStore.opened(place, job.manifest, again=again) as store:
        index = GalleryIndex(gallery, job, photos, store)
        with stopped_by_signals() as stop, stoppable(job.command), index.kept_up():
            bar = screen.batch(len(photos), "photos")
            task = PhotoTask(job, gallery.folder, store.manifest.fingerprint, bar.tell)
            for outcome in explain_each(task, photos, store, watcher=bar, retry_failed=retry_failed, stop=stop):
                if not outcome.known:
                    if not outcome.failed:
                        say_resumed(summary, len(photos), "photos")
                    index.add()
                summary.add(outcome)
                if as_json:
                    typer.echo(json.dumps(task.numbers(outcome.item, outcome.row)))
                elif not outcome.known and not outcome.failed:
                    print_line(f"{outcome.item.name}: {outcome.row.sentence}")
        lost, notes = index.finish()
        store.finish()
    screen.close()
    for photo, why in lost:
        summary.failed += 1
        summary.reasons.append((photo, why))
        if as_json:
            typer.echo(json.dumps({"photo": str(photo), "error": why}))
    say(notes)
    say_failures(summary, str)
    if not as_json:
        if job.notice:
            print_line(job.notice)
        before = f" ({summary.known} done before)" if summary.known else ""
        print_line(f"explained {summary.explained} of {summary.total} photos{before}; wrote {gallery.index}, table in {place}")
    end_with(summary)


@dataclass(frozen=True)
class ExplainedPhoto:
    """What a gallery keeps of a photo beside its row, in the column ``details``.

    Attributes:
        page: the name of its own page.
        sum: the SHA-256 of that page.
        numbers: the explanation for a program, as ``--json`` prints it.
        card: the photo in the gallery.
    """

    page: str
    sum: str
    numbers: dict[str, Any]
    card: Card

    @staticmethod
    def read(row: Row | None) -> ExplainedPhoto | None:
        """What a row says, each value checked, so that no table can write into a page; None if it is not as it was written."""
        with suppress(LookupError, TypeError, ValueError, AttributeError, RecursionError):
            entry = json.loads((row and row.details) or "")
            if _PAGE.fullmatch(entry["page"]) and _DIGEST.fullmatch(entry["sum"]) and isinstance(entry["numbers"], dict):
                return ExplainedPhoto(entry["page"], entry["sum"], finite(entry["numbers"]), card_of(entry["card"]))
        return None

    def has_page(self, folder: Path) -> bool:
        """Whether the page of the photo is in a folder, as it was written."""
        return stamp(folder / self.page) == self.sum


_PAGE, _DIGEST = re.compile(r"[0-9a-f]{32}\.html"), re.compile("[0-9a-f]{64}")


def page_name(key: str, file: str, mark: str) -> str:
    """The name of a photo's page: a digest of all that the page depends on, so that no two photos ever share one.

    The place is among it, not the name of the file alone: two patients may have the same photo under the same name.

    Args:
        key: where the photo is, as :func:`key_of` gives it.
        file: the SHA-256 of its file.
        mark: the fingerprint of the settings.
    """
    return f"{hashlib.sha256(json.dumps([file, mark, key]).encode()).hexdigest()[:32]}.html"


class PhotoTask(BatchTask[Path]):
    """A photo as an input of the batch runner: known by its place, current while its file and its page are as they were."""

    def __init__(self, job: PhotoJob, folder: Path, mark: str, tell: Tell) -> None:
        """Begin with nothing explained.

        Args:
            job: how to explain photos.
            folder: where the pages go.
            mark: the fingerprint of the settings.
            tell: takes reports of the gradients of the photos at hand.
        """
        self.together, self.lookahead = min(job.together, DRAWN), 1
        self._job, self._folder, self._mark, self._tell = job, folder, mark, tell

    def key(self, item: Path) -> str:
        """The place of the file."""
        return key_of(item)

    def name(self, item: Path) -> str:
        """The name of the file."""
        return item.name

    def digest(self, item: Path) -> str:
        """A digest of the file."""
        return digest_of_photo(item)

    def is_current(self, item: Path, read: Callable[[], Row | None]) -> bool:
        """Whether the page of the photo is, byte for byte, what it was."""
        known = ExplainedPhoto.read(read())
        return known is not None and known.has_page(self._folder)

    def explain(self, items: Sequence[Path]) -> list[tuple[Explanation, Row, ExplainedPhoto, bytes]]:
        """Explain photos and draw their pages; gives of each its row, what else is kept of it, and the page."""
        try:
            explanations, notes = self._job.explained(items, self._tell)
            return [(one, *self._drawn(item, one, notes)) for item, one in zip(items, explanations, strict=True)]
        except Exception as error:
            if self._job.debug and not isinstance(error, IntegrandError):
                self.stops = (*self.stops, type(error))  # type: ignore[misc]  # it ends the run, with its traceback
            raise

    def _drawn(self, photo: Path, explanation: Explanation, notes: list[str]) -> tuple[Row, ExplainedPhoto, bytes]:
        file = explanation.photo.digest  # of the very bytes that were explained
        if file != stamp(photo, most=BYTES):
            raise FileError(f"{photo} changed while it was read; expected one that stays as it is. Run the command again.")
        page = page_name(key_of(photo), file, self._mark)
        with one_line(str(photo), debug=self._job.debug):
            shown_as = card(
                explanation.result,
                explanation.shown,
                name=explanation.photo.name,
                label=explanation.title,
                link=page,
                probability=math.nan if explanation.headline else explanation.answer.probability,
                says=explanation.sentence,
                notice=explanation.notice,
                view=explanation.view,
                aim=explanation.aim,
            )
            html = explanation.page(command=self._job.command, file=str(photo)).encode("utf-8", "replace")
            numbers = finite(explanation.numbers()) | {"sentence": headline_of(explanation), "warnings": notes}
            row = explanation.row()
        return row, ExplainedPhoto(page, hashlib.sha256(html).hexdigest(), numbers, shown_as), html

    def row(self, item: Path, found: tuple[Explanation, Row, ExplainedPhoto, bytes]) -> Row:
        """Write the page; what else there is, goes into the table."""
        explanation, row, known, html = found
        write_bytes(self._folder / known.page, html)
        with noted() as missed:  # of this photo alone, not of those that were explained with it
            warn_if_missed(explanation.result.certificate)
        warnings = [*missed, *known.numbers["warnings"]]
        details = json.dumps(vars(known) | {"numbers": known.numbers | {"warnings": warnings}})
        return replace(row, notes=(*row.notes, *warnings), details=details, columns={**row.columns, "page": known.page})

    def numbers(self, item: Path, row: Row) -> dict[str, Any]:
        """What a row says, for a program."""
        if (known := ExplainedPhoto.read(row)) is None:
            return {"photo": str(item), "error": row.failure}
        return known.numbers | {"file": str(item), "out": str(self._folder / known.page)}


@dataclass(frozen=True)
class Gallery:
    """Where the pages go.

    Attributes:
        index: the page that shows all photos.
        folder: the folder of the pages of single photos.
    """

    index: Path
    folder: Path

    @staticmethod
    def at(out: Path) -> Gallery:
        """A gallery in a folder with an ``index.html``, or in a page of any name with a folder of that name beside it."""
        if out.suffix.lower() in ENDINGS and out.suffix.lower() != ".html":
            raise OptionError(f"got --out {str(out)!r} for several photos; expected a folder, or a page that ends in .html.")
        if out.suffix.lower() != ".html":
            return Gallery(out / "index.html", out)
        return Gallery(out, out.parent if out.name == "index.html" else out.with_suffix(""))

    @property
    def prefix(self) -> str:
        """What comes before the name of a page in a link from the index."""
        return "" if self.folder == self.index.parent else f"{self.folder.name}/"


class GalleryIndex:
    """The page that shows all photos of the table: of this run as far as they are done, and of earlier ones."""

    def __init__(self, gallery: Gallery, job: PhotoJob, photos: Sequence[Path], store: TableStore) -> None:
        self._gallery, self._job, self._store = gallery, job, store
        self._photos = {key_of(photo): photo for photo in photos}
        self._new = self._shown = 0
        self._checked: dict[str, str] = {}

    def add(self) -> None:
        """One more photo is done: the page is written if enough are new."""
        self._new += 1
        if self._new >= NEW * self._shown:
            self._write()

    @contextmanager
    def kept_up(self) -> Iterator[None]:
        """Write the page also when the run is stopped, or ended by an error, in the block."""
        try:
            yield
        except BaseException:
            with suppress(FileError):  # the first error is the one to be said
                self._write()
            raise

    def finish(self) -> tuple[list[tuple[Path, str]], list[str]]:
        """Look at all pages once more, and write the index for those that are as they were written.

        Returns:
            The photos of this run whose pages are not, with the reason; and notes on those of earlier runs.

        Raises:
            FileError: the index cannot be written, or what is read is not what was written.
        """
        self._checked.clear()
        page, lost, gone = self._write()
        if read_bytes(self._gallery.index, what="the page that was written", most=len(page)) != page:
            raise FileError(f"{self._gallery.index} is not as it was written; check the disk, and run the command again.")
        why = f"its page in {self._gallery.folder} is gone or changed; the same command makes it again"
        others = [shown(Path(key).name) for key in gone if key not in self._photos]
        named = ", ".join([*others[:NAMED], *([f"{len(others) - NAMED} more"] if len(others) > NAMED else [])])
        said = f"no longer in the gallery, as they or their pages have changed: {named}; explain them again to have them back"
        return [(photo, why) for photo in lost], [said] if others else []

    def _write(self) -> tuple[bytes, list[Path], list[str]]:
        """Write the page, of photos whose own pages are as they were written.

        Returns:
            The page; the photos of this run that are neither on it nor known to have failed; the keys of all photos that are
            not on it, as they or their own pages are gone or changed.
        """
        found, failed, gone = self._known()
        keys = [*(key for key in self._photos if key in found), *(key for key in found if key not in self._photos)]
        names = told_apart([str(file_of(key)) for key in keys])
        cards = [found[key].card.copy() for key in keys]
        for one, key, name in zip(cards, keys, names.values(), strict=True):
            one["name"], one["link"] = name, self._gallery.prefix + found[key].page
        missed = [(str(self._photos.get(key, file_of(key))), why) for key, why in failed.items()]
        waiting = [photo for key, photo in self._photos.items() if key not in found and key not in failed]
        job = self._job
        meta = {key: str(value) for key, value in job.settings.items() if value is not None}
        text = gallery_page(job.title, cards, missed, waiting=len(waiting), meta=meta, command=job.command)
        write_bytes(self._gallery.index, page := text.encode("utf-8", "replace"))
        self._new, self._shown = 0, len(cards) + len(missed)  # both are new when they come, so both are shown
        return page, waiting, gone

    def _known(self) -> tuple[dict[str, ExplainedPhoto], dict[str, str], list[str]]:
        """What the table says, by the keys of photos: explained, or why not; and those whose pages are gone or changed."""
        found: dict[str, ExplainedPhoto | None] = {}
        failed: dict[str, str] = {}
        self._store.flush()
        for row in ExplainedTable(self._store.folder, self._store.manifest).rows():
            found.pop(row.key, None)  # of several rows of a photo the last counts
            failed.pop(row.key, None)
            if row.ok:
                one = ExplainedPhoto.read(row)
                found[row.key] = one if one is not None and self._holds(row, one) else None
            else:
                failed[row.key] = row.failure or ""
        known = {key: one for key, one in found.items() if one is not None}
        return known, failed, [key for key in found if key not in known]

    def _holds(self, row: Row, one: ExplainedPhoto) -> bool:
        """Whether a photo's page is as it was written, and no other photo is now where one of an earlier run was.

        Photos of this run have just been looked at. What holds is looked at once before the end.
        """
        if self._checked.get(row.key) != one.sum:
            now = row.input_digest if row.key in self._photos else digest_of_photo(file_of(row.key))
            if not one.has_page(self._gallery.folder) or now not in (row.input_digest, UNREADABLE):
                return False
            self._checked[row.key] = one.sum
        return True


def _save(explanation: Explanation, where: Path, job: PhotoJob) -> None:
    options: dict[str, Any] = {"command": job.command} if where.suffix.lower() == ".html" else {}
    if where.suffix.lower() in PICTURES and job.views:
        options = {"views": job.views}
    explanation.save(where, **options)
