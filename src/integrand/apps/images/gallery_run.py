"""``integrand image`` and ``integrand retina`` on files: one photo as a report, many as a gallery that can be resumed."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ...batch.resumable import DAMAGED, ERROR, BatchSummary, BatchTask, explain_each
from ...batch.store import Entry, LineStore
from ...errors import FileError, OptionError
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
from .photo_files import BYTES, place_of
from .result import Explanation

STATE = ".explained.jsonl"
"""The hidden file in a gallery's folder that says what is done, so that the same command goes on where it was stopped, and a
gallery grows with the photos that come later."""

NEW = 0.1
"""The index is written again when there are so many new photos, as a share of those that it shows, with a card or as a failure:
in all, that writes some eleven times the last index, however many photos there are."""

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
        explain: explains the photo in a file, and reports its progress.
        settings: everything that an explanation depends on beside the photo: a photo is done again if they differ.
        command: what the user typed.
        title: the title of the gallery.
        debug: let unexpected errors through, with their traceback.
        views: the views that a picture shows, by name; the default ones if empty.
        notice: what every reader must know; printed below the answers.
    """

    explain: Callable[[Path, Tell], Explanation]
    settings: dict[str, Any]
    command: str
    title: str
    debug: bool = False
    views: tuple[str, ...] = ()
    notice: str = ""

    def explained(self, photo: Path, tell: Tell) -> tuple[Explanation, list[str]]:
        """Explain a photo; also gives the warnings. Whatever goes wrong becomes an error of one line."""
        hint = "Check that the model takes what the preprocessing gives it (--size, --mean, --scale, --order)"
        with noted() as notes, one_line(str(photo), hint, debug=self.debug):
            explanation = self.explain(photo, tell)
        return explanation, notes


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
    explanation, notes = job.explained(photo, bar.tell)
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
    force: bool = False,
    screen: Screen | None = None,
) -> None:
    """Explain photos into a gallery; past photos that fail, and onwards from where an earlier run was stopped.

    Nobody else can write to the gallery meanwhile. Photos count as explained if at the end the index shows them and their pages
    are as they were written.
    """
    screen = screen or Screen(None)
    gallery = Gallery.at(out or Path("explained"))
    check_folder(gallery.folder.parent, f"--out {shown(str(out))!r}", force=force)
    ready(gallery.folder)
    check_place(gallery.index, force=force)
    summary: BatchSummary[Path] = BatchSummary()
    with locked(gallery.index), LineStore.opened(gallery.folder / STATE, job.settings, again=again) as store:
        index = GalleryIndex(gallery, job, photos, store)
        with stoppable(job.command), index.kept_up():
            bar = screen.batch(len(photos), "photos")
            task = PhotoTask(job, gallery.folder, store.mark, bar.tell)
            for outcome in explain_each(task, photos, store, watcher=bar):
                if not outcome.known:
                    if outcome.found is not None:
                        say_resumed(summary, len(photos), "photos")
                    index.add()
                summary.add(outcome)
                if as_json:
                    _print(outcome.item, outcome.error, {} if outcome.found is None else outcome.found.numbers)
                elif outcome.found is not None and not outcome.known:
                    print_line(f"{outcome.item.name}: {outcome.found.sentence}")
        lost, notes = index.finish()
    screen.close()
    for photo, why in lost:
        summary.failed.append((photo, why))
        if as_json:
            _print(photo, why, {})
    say(notes)
    say_failures(summary, str)
    if not as_json:
        if job.notice:
            print_line(job.notice)
        before = f" ({summary.known} done before)" if summary.known else ""
        print_line(f"explained {summary.explained} of {summary.total} photos{before}; wrote {gallery.index}")
    end_with(summary)


def _print(photo: Path, error: str | None, numbers: dict[str, Any]) -> None:
    """Print a line of JSON for a photo."""
    typer.echo(json.dumps(numbers if error is None else {"photo": str(photo), "error": error}))


@dataclass(frozen=True)
class ExplainedPhoto:
    """What is kept of a photo.

    Attributes:
        place: where its file is, links followed.
        file: the SHA-256 of its file.
        page: the name of its own page.
        sum: the SHA-256 of that page.
        numbers: the explanation for a program, as ``--json`` prints it.
        card: the photo in the gallery.
        html: its own page; empty if it is on disk already.
    """

    place: str
    file: str
    page: str
    sum: str
    numbers: dict[str, Any]
    card: Card
    html: bytes = b""

    @staticmethod
    def read(entry: Entry, mark: str) -> ExplainedPhoto:
        """What an entry of the journal says, each value checked.

        Args:
            entry: as it was read.
            mark: the fingerprint of the settings.

        Raises:
            KeyError, TypeError, ValueError: the entry is not as :meth:`PhotoTask.pack` makes it.
        """
        place, file, page, total = (entry[key] for key in ("place", "file", "page", "sum"))
        if not isinstance(place, str) or not _DIGEST.fullmatch(file) or not _DIGEST.fullmatch(total):
            raise ValueError(f"got the place {place!r} with the digests {file!r} and {total!r}.")
        if page != page_name(place, file, mark):
            raise ValueError(f"got the page {page!r}, which is not that of {place!r}.")
        if not isinstance(entry["numbers"], dict):
            raise TypeError(f"got a {type(entry['numbers']).__name__} as numbers; expected a dict.")
        return ExplainedPhoto(place, file, page, total, finite(entry["numbers"]), card_of(entry["card"]))

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        return str(self.numbers.get("sentence") or self.numbers.get("title") or "")

    def has_page(self, folder: Path) -> bool:
        """Whether the page of the photo is in a folder, as it was written."""
        return stamp(folder / self.page) == self.sum


_DIGEST = re.compile("[0-9a-f]{64}")


def page_name(place: str, file: str, mark: str) -> str:
    """The name of a photo's page: a digest of all that the page depends on, so that no two photos ever share one.

    The place is among it, not the name of the file alone: two patients may have the same photo under the same name.

    Args:
        place: where the photo is, links followed.
        file: the SHA-256 of its file.
        mark: the fingerprint of the settings.
    """
    known = json.dumps([file, mark, place])
    return f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.html"


@dataclass(frozen=True)
class PhotoTask(BatchTask[Path, ExplainedPhoto]):
    """A photo as an input of the batch runner: known by its place, current as long as the file and its page are as they were.

    Attributes:
        job: how to explain a photo.
        folder: where the pages go.
        mark: the fingerprint of the settings.
        tell: takes reports of the gradients of the photo at hand.
    """

    job: PhotoJob
    folder: Path
    mark: str
    tell: Tell

    def key(self, item: Path) -> str:
        """The place of the file, links followed."""
        return place_of(item)

    def name(self, item: Path) -> str:
        """The name of the file."""
        return item.name

    def about(self, item: Path) -> Entry:
        """The place of the file."""
        return {"place": place_of(item)}

    def is_current(self, item: Path, entry: Entry) -> bool:
        """Whether the photo and its page are, byte for byte, what they were."""
        known = ExplainedPhoto.read(entry, self.mark)
        return known.place == place_of(item) and known.file == stamp(item, most=BYTES) and known.has_page(self.folder)

    def explain(self, items: Sequence[Path]) -> list[ExplainedPhoto]:
        """Explain photos one by one, and draw their pages."""
        return [self._explain(item) for item in items]

    def _explain(self, photo: Path) -> ExplainedPhoto:
        place = place_of(photo)
        explanation, notes = self.job.explained(photo, self.tell)
        file = explanation.photo.digest  # of the very bytes that were explained
        if file != stamp(photo, most=BYTES):
            raise FileError(f"{photo} changed while it was read; expected one that stays as it is. Run the command again.")
        page = page_name(place, file, self.mark)
        with one_line(str(photo), debug=self.job.debug):
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
            )
            html = explanation.page(command=self.job.command, file=str(photo)).encode("utf-8", "replace")
            numbers = finite(explanation.numbers()) | {"sentence": headline_of(explanation), "warnings": notes}
        return ExplainedPhoto(place, file, page, hashlib.sha256(html).hexdigest(), numbers, shown_as, html)

    def pack(self, item: Path, found: ExplainedPhoto) -> Entry:
        """Write the page; what else there is, is kept in the store."""
        write_bytes(self.folder / found.page, found.html)
        return {key: value for key, value in vars(found).items() if key != "html"}

    def unpack(self, item: Path, entry: Entry) -> ExplainedPhoto:
        """The numbers and the card from the store."""
        found = ExplainedPhoto.read(entry, self.mark)
        return replace(found, numbers=found.numbers | {"file": str(item), "out": str(self.folder / found.page)})


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
    """The page that shows all photos: of this run as far as they are done, and of earlier ones with the same settings."""

    def __init__(self, gallery: Gallery, job: PhotoJob, photos: Sequence[Path], store: LineStore) -> None:
        self._gallery, self._job, self._store = gallery, job, store
        self._photos = {place_of(photo): photo for photo in photos}
        self._new = self._shown = 0
        self._sound: dict[str, str] = {}
        self._files: dict[str, str] = {}

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
        self._sound.clear()
        self._files.clear()
        page, lost, gone = self._write()
        if read_bytes(self._gallery.index, what="the page that was written", most=len(page)) != page:
            raise FileError(f"{self._gallery.index} is not as it was written; check the disk, and run the command again.")
        why = f"its page in {self._gallery.folder} is gone or changed; the same command makes it again"
        others = [shown(Path(place).name) for place in gone if place not in self._photos]
        named = ", ".join([*others[:NAMED], *([f"{len(others) - NAMED} more"] if len(others) > NAMED else [])])
        said = f"no longer in the gallery, as they or their pages have changed: {named}; explain them again to have them back"
        return [(photo, why) for photo in lost], [said] if others else []

    def _write(self) -> tuple[bytes, list[Path], list[str]]:
        """Write the page, of photos whose own pages are as they were written.

        Returns:
            The page; the photos of this run that are neither on it nor known to have failed; the places of all photos that are
            not on it, as their own pages are gone or changed.
        """
        found, failed, gone = self._known()
        places = [place for place in self._photos if place in found]
        places += [place for place in found if place not in self._photos]
        names = told_apart(places)
        cards = [_card(found[place].card, names[place], self._gallery.prefix + found[place].page) for place in places]
        missed = [(str(self._photos.get(place, place)), why) for place, why in failed.items()]
        waiting = [photo for place, photo in self._photos.items() if place not in found and place not in failed]
        job = self._job
        meta = {key: str(value) for key, value in job.settings.items() if value is not None and not key.startswith("_")}
        text = gallery_page(job.title, cards, missed, waiting=len(waiting), meta=meta, command=job.command)
        write_bytes(self._gallery.index, page := text.encode("utf-8", "replace"))
        self._new, self._shown = 0, len(cards) + len(missed)  # both are new when they come, so both are shown
        return page, waiting, gone

    def _known(self) -> tuple[dict[str, ExplainedPhoto], dict[str, str], list[str]]:
        """What the journal says, by the places of photos: explained, or why not; and those whose pages are gone or changed."""
        found: dict[str, ExplainedPhoto] = {}
        failed: dict[str, str] = {}
        gone: list[str] = []
        for entry in self._store.entries():
            with suppress(*DAMAGED):
                if ERROR in entry:
                    place, why = entry["place"], entry[ERROR]
                    failed |= {place: why} if isinstance(place, str) and isinstance(why, str) else {}
                    continue
                one = ExplainedPhoto.read(entry, self._store.mark)
                if self._is_sound(one) and not self._is_outdated(one):
                    found[one.place] = one
                else:
                    gone.append(one.place)
        return found, failed, gone

    def _is_outdated(self, one: ExplainedPhoto) -> bool:
        """Whether another photo is now where one of an earlier run was; those of this run have just been looked at."""
        if one.place not in self._photos and one.place not in self._files:
            self._files[one.place] = stamp(Path(one.place), most=BYTES)
        return self._files.get(one.place, "") not in ("", one.file)

    def _is_sound(self, one: ExplainedPhoto) -> bool:
        """Whether a photo's page is as it was written; looked at once before the end."""
        if self._sound.get(one.page) != one.sum and one.has_page(self._gallery.folder):
            self._sound[one.page] = one.sum
        return self._sound.get(one.page) == one.sum


def _card(known: Card, name: str, link: str) -> Card:
    copy = known.copy()
    copy["name"], copy["link"] = name, link
    return copy


def told_apart(places: Sequence[str]) -> dict[str, str]:
    """What to call files: their names, with as many of their folders as tell them apart.

    >>> list(told_apart(["/a/pat1/left.jpg", "/a/pat2/left.jpg", "/a/pat2/right.jpg"]).values())
    ['pat1/left.jpg', 'pat2/left.jpg', 'right.jpg']
    """
    depth = dict.fromkeys(places, 1)
    while True:
        names = {place: shown(Path(*Path(place).parts[-depth[place] :]).as_posix()) for place in places}
        counts = Counter(names.values())
        alike = [place for place in places if counts[names[place]] > 1 and depth[place] < len(Path(place).parts)]
        if not alike:
            return names
        for place in alike:
            depth[place] += 1


def _save(explanation: Explanation, where: Path, job: PhotoJob) -> None:
    options: dict[str, Any] = {"command": job.command} if where.suffix.lower() == ".html" else {}
    if where.suffix.lower() in PICTURES and job.views:
        options = {"views": job.views}
    explanation.save(where, **options)
