"""Explaining photos one after the other: a page each, a gallery of them, resumed where it was stopped."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...errors import IntegrandError, OptionError
from ...evaluation.progress import Progress as Step
from ...render.certificate_text import sum_note
from ...render.image.gallery import card, gallery_page
from ..command_line import PICTURES, noted, one_line, ready, stamp, write, writing
from .photo_files import place_of
from .result import Explanation

STATE = "progress.json"
"""What is done in a folder, so that the same command goes on where it was stopped."""

FORMAT = 1

Tell = Callable[[Step], None]


@dataclass(frozen=True)
class PhotoJob:
    """What to do with every photo.

    Attributes:
        explain: from a file and somebody to tell to what is known of the photo.
        settings: all that the answer depends on beside the photo: a photo is done again where they differ.
        command: what the user typed.
        title: of the gallery.
        debug: let unexpected errors through, with their traceback.
        views: what a picture shows, by name; the usual if empty.
    """

    explain: Callable[[Path, Tell], Explanation]
    settings: dict[str, Any]
    command: str
    title: str
    debug: bool = False
    views: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """The settings as a short text that differs where they differ."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def run_one(job: PhotoJob, photo: Path, out: Path | None, *, as_json: bool) -> None:
    """Explain one photo; write the file that is asked for, print what was found."""
    where = out or (None if as_json else Path(f"{photo.stem}.html"))
    if where is not None:
        if where.suffix.lower() not in ENDINGS:
            raise OptionError(f"got --out {str(where)!r}; expected a file that ends in {', '.join(ENDINGS)}, or a folder.")
        ready(where.parent)
    with _bar(1) as bar:
        explanation, notes = _explained(job, photo, bar.step(photo.name))
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


ENDINGS = (".html", *PICTURES, ".json", ".safetensors")


def run_many(job: PhotoJob, photos: Sequence[Path], out: Path | None, *, as_json: bool, again: bool) -> None:
    """Explain photos into a gallery; go on after a bad one, and where an earlier run was stopped."""
    gallery = Gallery.at(out or Path("explained"))
    if job.views:
        raise OptionError("got --view for several photos; it is for pictures of one: --out photo.png.")
    ready(gallery.folder)
    state = State.read(gallery.folder)
    names = _page_names(photos)
    try:
        with _bar(len(photos)) as bar:
            for photo in photos:
                entry = None if again else state.done(photo, job.mark)
                if entry is None:
                    entry = _entry(job, photo, gallery.folder / names[photo], bar.step(photo.name))
                    state.put(photo, entry)
                    gallery.write(job, photos, state)
                bar.next()
                if as_json:
                    typer.echo(json.dumps(entry["numbers"] if "numbers" in entry else _failure(photo, entry)))
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command goes on where it was: {job.command}", err=True)
        raise typer.Exit(130) from None
    gallery.write(job, photos, state)
    _summary(photos, state, gallery.index, quiet=as_json)


@dataclass(frozen=True)
class Gallery:
    """Where the pages go.

    Attributes:
        index: the page of all photos.
        folder: those of each.
    """

    index: Path
    folder: Path

    @staticmethod
    def at(out: Path) -> Gallery:
        """A folder with an ``index.html``, or a page of any name with a folder of that name beside it."""
        if out.suffix.lower() in ENDINGS and out.suffix.lower() != ".html":
            raise OptionError(f"got --out {str(out)!r} for several photos; expected a folder, or a page that ends in .html.")
        if out.suffix.lower() != ".html":
            return Gallery(out / "index.html", out)
        return Gallery(out, out.parent if out.name == "index.html" else out.with_suffix(""))

    def write(self, job: PhotoJob, photos: Sequence[Path], state: State) -> None:
        """The page of all photos so far: those of this run, and of earlier ones with the same settings."""
        known = [(str(photo), state.get(photo)) for photo in photos]
        now = {place_of(photo) for photo in photos}
        known += [(place, one) for place, one in state.entries.items() if place not in now and one["mark"] == job.mark]
        entries = [(name, entry) for name, entry in known if entry is not None]
        prefix = "" if self.folder == self.index.parent else f"{self.folder.name}/"
        cards = [entry["card"] | {"link": prefix + entry["page"]} for _, entry in entries if "card" in entry]
        failed = [(name, entry["error"]) for name, entry in entries if "error" in entry]
        meta = {key: str(value) for key, value in job.settings.items() if value is not None and not key.startswith("_")}
        waiting = len(known) - len(entries)
        write(self.index, gallery_page(job.title, cards, failed, waiting=waiting, meta=meta, command=job.command))


class State:
    """What is known of each photo, in a file that is complete at any time."""

    def __init__(self, path: Path, entries: dict[str, dict[str, Any]]) -> None:
        self.path, self.entries = path, entries

    @staticmethod
    def read(folder: Path) -> State:
        """From an earlier run, or nothing; a damaged file counts as nothing."""
        path = folder / STATE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            entries = found["photos"] if found["format"] == FORMAT else {}
        except (OSError, ValueError, KeyError, TypeError):
            entries = {}
        return State(path, entries)

    def done(self, photo: Path, mark: str) -> dict[str, Any] | None:
        """What an earlier run found, if it succeeded with these settings on this very file and its page is there."""
        entry = self.get(photo)
        same = entry is not None and entry["mark"] == mark and entry["file"] == stamp(photo) and "error" not in entry
        return entry if same and entry is not None and (self.path.parent / entry["page"]).is_file() else None

    def get(self, photo: Path) -> dict[str, Any] | None:
        """What is known of a photo."""
        return self.entries.get(place_of(photo))

    def put(self, photo: Path, entry: dict[str, Any]) -> None:
        """Write down what was found."""
        self.entries[place_of(photo)] = entry
        write(self.path, json.dumps({"format": FORMAT, "photos": self.entries}))


def _page_names(photos: Sequence[Path]) -> dict[Path, str]:
    """A page for each photo, named after it; a digest of its place tells those of the same name apart."""
    stems = [photo.stem.lower() for photo in photos]
    out = {}
    for photo in photos:
        alone = stems.count(photo.stem.lower()) == 1 and photo.stem.lower() != "index"
        digest = "" if alone else "-" + hashlib.sha256(place_of(photo).encode()).hexdigest()[:8]
        out[photo] = f"{photo.stem}{digest}.html"
    return out


def _entry(job: PhotoJob, photo: Path, page: Path, tell: Tell) -> dict[str, Any]:
    """Explain a photo and write its page; what went wrong instead, where it did."""
    entry: dict[str, Any] = {"mark": job.mark, "file": stamp(photo), "page": page.name}
    try:
        explanation, notes = _explained(job, photo, tell)
        page_text = explanation.page(command=job.command)
    except IntegrandError as error:
        return entry | {"error": str(error)}
    write(page, page_text)  # a place that cannot be written to is no fault of the photo
    shown = card(
        explanation.result,
        explanation.shown,
        name=explanation.photo.name,
        label=explanation.title,
        link=page.name,
        probability=math.nan if explanation.headline else explanation.answer.probability,
    )
    return entry | {"numbers": explanation.numbers() | {"warnings": notes, "out": str(page)}, "card": shown}


def _explained(job: PhotoJob, photo: Path, tell: Tell) -> tuple[Explanation, list[str]]:
    """The explanation, and what it warned about; whatever goes wrong comes as one line."""
    hint = "Check that the model takes what the preprocessing gives it (--size, --mean, --scale, --order)"
    with noted() as notes, one_line(str(photo), hint, debug=job.debug):
        explanation = job.explain(photo, tell)
    return explanation, notes


def _save(explanation: Explanation, where: Path, job: PhotoJob) -> None:
    options: dict[str, Any] = {"command": job.command} if where.suffix.lower() == ".html" else {}
    if where.suffix.lower() in PICTURES and job.views:
        options = {"views": job.views}
    explanation.save(where, **options)


def _failure(photo: Path, entry: dict[str, Any]) -> dict[str, Any]:
    return {"photo": str(photo), "error": entry["error"]}


def _summary(photos: Sequence[Path], state: State, index: Path, *, quiet: bool) -> None:
    """What came of it; ends with 1 if some photos failed, with 2 if all did."""
    failed = {photo: entry for photo in photos if "error" in (entry := state.get(photo) or {})}
    for photo, entry in failed.items():
        typer.echo(f"not explained: {photo}: {entry['error']}", err=True)
    if not quiet:
        typer.echo(f"explained {len(photos) - len(failed)} of {len(photos)} photos; wrote {index}")
    if failed:
        raise typer.Exit(2 if len(failed) == len(photos) else 1)


class Bar:
    """A progress bar over photos, and over the gradients of the one at hand."""

    def __init__(self, bar: Progress, total: int) -> None:
        self._bar, self._several = bar, total > 1
        self._photos = bar.add_task("photos", total=total, visible=self._several)
        self._steps = bar.add_task("", total=None)

    def step(self, name: str) -> Tell:
        """Somebody to tell about the photo of this name."""
        self._bar.reset(self._steps, total=None, description=name)

        def tell(step: Step) -> None:
            self._bar.update(self._steps, completed=step.gradients, total=max(step.expected, step.gradients))

        return tell

    def next(self) -> None:
        """One photo is done."""
        self._bar.advance(self._photos)


@contextmanager
def _bar(total: int) -> Iterator[Bar]:
    """On a terminal; silence elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Bar(bar, total)
