"""Explaining photos one after the other: a page each, a gallery of them, resumed where it was stopped."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..apps.images import Explanation
from ..errors import IntegrandError, IntegrandWarning, OptionError
from ..execute import Progress as Step
from ..render._gallery import card, gallery_page

STATE = "progress.json"
"""What is done in a folder, so that the same command goes on where it was stopped."""

FORMAT = 1

Tell = Callable[[Step], None]


@dataclass(frozen=True)
class Job:
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


def run_one(job: Job, photo: Path, out: Path | None, *, as_json: bool) -> None:
    """Explain one photo; write the file that is asked for, print what was found."""
    where = out or (None if as_json else Path(f"{photo.stem}.html"))
    if where is not None and where.suffix.lower() not in ENDINGS:
        raise OptionError(f"got --out {str(where)!r}; expected a file that ends in {', '.join(ENDINGS)}.")
    with _bar(1) as bar:
        explanation, notes = _explained(job, photo, bar.step(photo.name))
    if where is not None:
        _save(explanation, where, job)
    if as_json:
        typer.echo(json.dumps(explanation.numbers() | {"warnings": notes, "out": None if where is None else str(where)}))
        return
    typer.echo(str(explanation))
    _say([*explanation.notes, *notes])
    typer.echo(f"wrote {where}")


PICTURES = (".png", ".svg", ".pdf")
ENDINGS = (".html", *PICTURES, ".json", ".safetensors")


def run_many(job: Job, photos: Sequence[Path], out: Path | None, *, as_json: bool, again: bool) -> None:
    """Explain photos into a folder with a gallery; go on after a bad one, and where an earlier run was stopped."""
    folder = out or Path("explained")
    if folder.suffix.lower() in ENDINGS:
        folder = folder.with_suffix("") if folder.name != "index.html" else folder.parent
    folder.mkdir(parents=True, exist_ok=True)
    state = State.read(folder)
    names = _page_names(photos)
    try:
        with _bar(len(photos)) as bar:
            for photo in photos:
                entry = None if again else state.done(photo, job.mark)
                if entry is None:
                    entry = _entry(job, photo, folder / names[photo], bar.step(photo.name))
                    state.put(photo, entry)
                    _write(folder / "index.html", gallery(job, photos, state))
                bar.next()
                if as_json:
                    typer.echo(json.dumps(entry["numbers"] if "numbers" in entry else _failure(photo, entry)))
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command goes on where it was: {job.command}", err=True)
        raise typer.Exit(130) from None
    _write(folder / "index.html", gallery(job, photos, state))
    _summary(photos, state, folder, quiet=as_json)


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
        entry = self.entries.get(str(photo.resolve()))
        same = entry is not None and entry["mark"] == mark and entry["file"] == _stamp(photo) and "error" not in entry
        return entry if same and entry is not None and (self.path.parent / entry["page"]).is_file() else None

    def put(self, photo: Path, entry: dict[str, Any]) -> None:
        """Write down what was found."""
        self.entries[str(photo.resolve())] = entry
        _write(self.path, json.dumps({"format": FORMAT, "photos": self.entries}))


def _stamp(photo: Path) -> list[int]:
    try:
        known = photo.stat()
    except OSError:
        return []
    return [known.st_size, known.st_mtime_ns]


def _write(path: Path, text: str) -> None:
    """Write a file so that it is never half there."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _page_names(photos: Sequence[Path]) -> dict[Path, str]:
    """A page for each photo, named after it; a digest of its place tells those of the same name apart."""
    stems = [photo.stem.lower() for photo in photos]
    out = {}
    for photo in photos:
        alone = stems.count(photo.stem.lower()) == 1 and photo.stem.lower() != "index"
        digest = "" if alone else "-" + hashlib.sha256(str(photo.resolve()).encode()).hexdigest()[:8]
        out[photo] = f"{photo.stem}{digest}.html"
    return out


def _entry(job: Job, photo: Path, page: Path, tell: Tell) -> dict[str, Any]:
    """Explain a photo and write its page; what went wrong instead, where it did."""
    entry: dict[str, Any] = {"mark": job.mark, "file": _stamp(photo), "page": page.name}
    try:
        explanation, notes = _explained(job, photo, tell)
        _write(page, explanation.page(command=job.command))
    except IntegrandError as error:
        return entry | {"error": str(error)}
    shown = card(
        explanation.result,
        explanation.shown,
        name=explanation.photo.name,
        label=explanation.title,
        link=page.name,
        probability=math.nan if explanation.headline else explanation.answer.probability,
    )
    return entry | {"numbers": explanation.numbers() | {"warnings": notes, "out": str(page)}, "card": shown}


def _explained(job: Job, photo: Path, tell: Tell) -> tuple[Explanation, list[str]]:
    """The explanation, and what it warned about; whatever goes wrong comes as one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IntegrandWarning)
        hint = "Check that the model takes what the preprocessing gives it (--size, --mean, --scale, --order)"
        with one_line(str(photo), hint, debug=job.debug):
            explanation = job.explain(photo, tell)
    return explanation, [str(warning.message) for warning in caught]


@contextmanager
def one_line(where: str, hint: str = "", *, debug: bool) -> Iterator[None]:
    """Turn what goes wrong inside, in a user's model for instance, into one line that says where."""
    try:
        yield
    except (IntegrandError, KeyboardInterrupt):
        raise
    except Exception as error:
        if debug:
            raise
        said = (str(error).strip() or "no message").splitlines()[0]
        rest = f"{hint}; " if hint else ""
        raise IntegrandError(f"{where}: {type(error).__name__}: {said}. {rest}--debug shows where it happened.") from error


def _save(explanation: Explanation, where: Path, job: Job) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"command": job.command} if where.suffix.lower() == ".html" else {}
    if where.suffix.lower() in PICTURES and job.views:
        options = {"views": job.views}
    explanation.save(where, **options)


def _failure(photo: Path, entry: dict[str, Any]) -> dict[str, Any]:
    return {"photo": str(photo), "error": entry["error"]}


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def gallery(job: Job, photos: Sequence[Path], state: State) -> str:
    """The page of all photos so far."""
    known = [(photo, state.entries[str(photo.resolve())]) for photo in photos if str(photo.resolve()) in state.entries]
    cards = [entry["card"] for _, entry in known if "card" in entry]
    failed = [(str(photo), entry["error"]) for photo, entry in known if "error" in entry]
    meta = {key: str(value) for key, value in job.settings.items() if value is not None}
    return gallery_page(job.title, cards, failed, waiting=len(photos) - len(known), meta=meta, command=job.command)


def _summary(photos: Sequence[Path], state: State, folder: Path, *, quiet: bool) -> None:
    """What came of it; ends with 1 if some photos failed, with 2 if all did."""
    failed = {photo: entry for photo in photos if "error" in (entry := state.entries[str(photo.resolve())])}
    for photo, entry in failed.items():
        typer.echo(f"not explained: {photo}: {entry['error']}", err=True)
    if not quiet:
        typer.echo(f"explained {len(photos) - len(failed)} of {len(photos)} photos; wrote {folder / 'index.html'}")
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
