"""``integrand image`` and ``integrand retina`` on files: one photo as a report, many as a gallery that can be resumed."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from ...batch import BatchSummary, BatchTask, DocumentStore, explain_each
from ...batch.store import Entry
from ...errors import OptionError
from ...evaluation.progress import Progress
from ...files import ready, write_text, writing
from ...render.certificate_text import sum_note
from ...render.image.gallery import Card, card, gallery_page
from ..command_line import PICTURES, batch_bar, end_with, noted, one_line, say_failures, stamp, stoppable
from .photo_files import place_of
from .result import Explanation

STATE = "progress.json"
"""The file in a gallery's folder that says what is done, so that the same command continues where it was stopped."""

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
    """

    explain: Callable[[Path, Tell], Explanation]
    settings: dict[str, Any]
    command: str
    title: str
    debug: bool = False
    views: tuple[str, ...] = ()

    def explained(self, photo: Path, tell: Tell) -> tuple[Explanation, list[str]]:
        """Explain a photo; also gives the warnings. Whatever goes wrong becomes an error of one line."""
        hint = "Check that the model takes what the preprocessing gives it (--size, --mean, --scale, --order)"
        with noted() as notes, one_line(str(photo), hint, debug=self.debug):
            explanation = self.explain(photo, tell)
        return explanation, notes


def run_one(job: PhotoJob, photo: Path, out: Path | None, *, as_json: bool) -> None:
    """Explain one photo, write the file that is asked for, and print what was found."""
    where = out or (None if as_json else Path(f"{photo.stem}.html"))
    if where is not None:
        if where.suffix.lower() not in ENDINGS:
            raise OptionError(f"got --out {str(where)!r}; expected a file that ends in {', '.join(ENDINGS)}, or a folder.")
        ready(where.parent)
    with batch_bar(1, "photos") as bar:
        bar.begin(photo.name)
        explanation, notes = job.explained(photo, bar.tell)
    notes += filter(None, [sum_note(explanation.result.certificate.only)])
    replaced = where is not None and where.exists()
    if where is not None:
        with writing(where):
            _save(explanation, where, job)
    if as_json:
        typer.echo(json.dumps(explanation.numbers() | {"warnings": notes, "out": None if where is None else str(where)}))
        return
    typer.echo(str(explanation))
    for note in (*explanation.notes, *notes):
        typer.echo(f"note: {note}")
    typer.echo(f"{'replaced' if replaced else 'wrote'} {where}")


def run_many(job: PhotoJob, photos: Sequence[Path], out: Path | None, *, as_json: bool, again: bool) -> None:
    """Explain photos into a gallery; past photos that fail, and onwards from where an earlier run was stopped."""
    gallery = Gallery.at(out or Path("explained"))
    if job.views:
        raise OptionError("got --view for several photos; it is for pictures of one: --out photo.png.")
    ready(gallery.folder)
    store = DocumentStore(gallery.folder / STATE, job.settings, name="photos", again=again)
    summary: BatchSummary[Path] = BatchSummary()
    with stoppable(job.command), batch_bar(len(photos), "photos") as bar:
        task = PhotoTask(job, gallery.folder, page_names(photos), bar.tell)
        for outcome in explain_each(task, photos, store, watcher=bar):
            summary.add(outcome)
            if not outcome.known:
                gallery.write(job, photos, store)
            if as_json:
                failure = {"photo": str(outcome.item), "error": outcome.error}
                typer.echo(json.dumps(failure if outcome.found is None else outcome.found.numbers))
    gallery.write(job, photos, store)
    say_failures(summary, str)
    if not as_json:
        typer.echo(f"explained {summary.explained} of {summary.total} photos; wrote {gallery.index}")
    end_with(summary)


@dataclass(frozen=True)
class ExplainedPhoto:
    """What is kept of a photo.

    Attributes:
        numbers: the explanation for a program, as ``--json`` prints it.
        card: the photo in the gallery.
        page: the HTML of its own page; empty if it is on disk already.
    """

    numbers: dict[str, Any]
    card: Card
    page: str = ""


@dataclass(frozen=True)
class PhotoTask(BatchTask[Path, ExplainedPhoto]):
    """A photo as an input of the batch runner: known by its place, current as long as the file and its page are there.

    Attributes:
        job: how to explain a photo.
        folder: where the pages go.
        pages: the file name of each photo's page.
        tell: takes reports of the gradients of the photo at hand.
    """

    job: PhotoJob
    folder: Path
    pages: Mapping[Path, str]
    tell: Tell

    def key(self, item: Path) -> str:
        """The place of the file, links followed."""
        return place_of(item)

    def name(self, item: Path) -> str:
        """The name of the file."""
        return item.name

    def about(self, item: Path) -> Entry:
        """The state of the file, and the name of its page."""
        return {"file": stamp(item), "page": self.pages[item]}

    def is_current(self, item: Path, entry: Entry) -> bool:
        """Whether the photo has not been changed since, and its page is still there."""
        return bool(entry["file"] == stamp(item) and (self.folder / entry["page"]).is_file())

    def explain(self, items: Sequence[Path]) -> list[ExplainedPhoto]:
        """Explain photos one by one, and draw their pages."""
        return [self._explain(item) for item in items]

    def _explain(self, photo: Path) -> ExplainedPhoto:
        explanation, notes = self.job.explained(photo, self.tell)
        shown = card(
            explanation.result,
            explanation.shown,
            name=explanation.photo.name,
            label=explanation.title,
            link=self.pages[photo],
            probability=math.nan if explanation.headline else explanation.answer.probability,
        )
        numbers = explanation.numbers() | {"warnings": notes, "out": str(self.folder / self.pages[photo])}
        return ExplainedPhoto(numbers, shown, explanation.page(command=self.job.command))

    def pack(self, item: Path, found: ExplainedPhoto) -> Entry:
        """Write the page; the numbers and the card are kept in the store."""
        write_text(self.folder / self.pages[item], found.page)
        return {"numbers": found.numbers, "card": found.card}

    def unpack(self, item: Path, entry: Entry) -> ExplainedPhoto:
        """The numbers and the card from the store."""
        return ExplainedPhoto(entry["numbers"], entry["card"])


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

    def write(self, job: PhotoJob, photos: Sequence[Path], store: DocumentStore) -> None:
        """Write the index: the photos of this run as far as they are done, and those of earlier runs with the same settings."""
        known = [(str(photo), store.entries.get(place_of(photo))) for photo in photos]
        now = {place_of(photo) for photo in photos}
        known += [(place, one) for place, one in store.entries.items() if place not in now and one["mark"] == store.mark]
        entries = [(name, entry) for name, entry in known if entry is not None]
        prefix = "" if self.folder == self.index.parent else f"{self.folder.name}/"
        cards = [entry["card"] | {"link": prefix + entry["page"]} for _, entry in entries if "card" in entry]
        failed = [(name, entry["error"]) for name, entry in entries if "error" in entry]
        meta = {key: str(value) for key, value in job.settings.items() if value is not None and not key.startswith("_")}
        waiting = len(known) - len(entries)
        write_text(self.index, gallery_page(job.title, cards, failed, waiting=waiting, meta=meta, command=job.command))


def page_names(photos: Sequence[Path]) -> dict[Path, str]:
    """The file name of each photo's page: the photo's own, with a digest of its place where several photos share a name."""
    counts = Counter(photo.stem.lower() for photo in photos)
    out = {}
    for photo in photos:
        alone = counts[photo.stem.lower()] == 1 and photo.stem.lower() != "index"
        digest = "" if alone else "-" + hashlib.sha256(place_of(photo).encode()).hexdigest()[:8]
        out[photo] = f"{photo.stem}{digest}.html"
    return out


def _save(explanation: Explanation, where: Path, job: PhotoJob) -> None:
    options: dict[str, Any] = {"command": job.command} if where.suffix.lower() == ".html" else {}
    if where.suffix.lower() in PICTURES and job.views:
        options = {"views": job.views}
    explanation.save(where, **options)
