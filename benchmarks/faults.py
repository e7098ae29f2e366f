"""Runs over many inputs, disturbed in every way: kills, full disks, runs at the same time, replaced inputs, damaged tables.

    python -m benchmarks.faults             # some minutes
    python -m benchmarks.faults --quick     # what the tests run
    python -m benchmarks.faults --only commands --quick

Each case is disturbed, then run again undisturbed: every input must be there once, and the output must be, bit for bit, that
of a run that nothing disturbed. Most cases have stand-ins for models; the runs, their files and their locks are the real ones.
The commands (image, retina, questions, translate, molecule) have their real models, loaded once: each run is a fork. Prints
counts, and exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import torch
import typer

import integrand as ig
from integrand import files
from integrand.apps.images.gallery_run import TABLE, PhotoJob, run_many
from integrand.apps.images.result import grid_sums
from integrand.apps.molecules import molecule_run
from integrand.apps.molecules.molecule_output import MoleculeWriter
from integrand.apps.molecules.molecule_run import MoleculeJob, MoleculeRequest
from integrand.apps.output_table import table_beside
from integrand.batch import many as many_module
from integrand.batch import table as table_module
from integrand.batch.model_explainer import ModelExplainer
from integrand.batch.rows import Row, TableLayout
from integrand.batch.table import MANIFEST, ExplainedTable, parts_of, read_part, write_part
from integrand.errors import IntegrandError
from tests.apps.molecules.attributed import made

SIDE = 8
SETTINGS = {"network": "a stand-in", "tol": 0.01}


class Mean(torch.nn.Module):
    """The mean of each colour."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def drawn(size: int) -> ig.Attribution:
    """Any attribution of a picture."""
    return ig.integrated_gradients(Mean().eval(), torch.rand(1, 3, size, size), target=0)


@dataclass
class QuickExplanation:
    """In place of an explained photo: as much of one as a gallery asks for, made of nothing but the bytes of the file."""

    file: Path
    result: ig.Attribution
    headline: str = ""
    notes: tuple[str, ...] = ()
    answers: tuple[Any, ...] = ()
    notice: str = ""
    view: str = "scaled"
    aim: None = None
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.data = self.file.read_bytes()
        self.photo = types.SimpleNamespace(name=self.file.name, notes=(), digest=hashlib.sha256(self.data).hexdigest())
        self.answer = types.SimpleNamespace(probability=self.data[0] / 255)
        self.title = f"says {hashlib.sha256(self.data).hexdigest()[:8]}"
        self.sentence = f"{self.title}; numbers exact."

    @property
    def shown(self) -> Any:
        size = int(self.result.values.shape[-1])
        seed = int.from_bytes(hashlib.sha256(self.data).digest()[:4], "big")
        return np.random.default_rng(seed).integers(0, 256, (size, size, 3)).astype(np.uint8)

    def numbers(self) -> dict[str, Any]:
        return {"photo": self.file.name, "title": self.title}

    def row(self) -> Row:
        sums, errors = grid_sums(self.result)
        said = {"prediction": self.title, "probability": self.answer.probability, "sentence": self.sentence}
        return Row.of(self.result.certificate.only, **said, attributions=sums, attribution_errors=errors)

    def page(self, command: str, file: str) -> str:
        return f"<!doctype html><title>{self.title}</title><p>{'all about it ' * 200}</p>"


@dataclass
class GalleryCase:
    """Photos into a gallery."""

    folder: Path
    count: int
    size: int = SIDE
    delay: float = 0.0
    together: int = 1
    hook: Callable[[Path], None] | None = None
    photos: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        inside = self.folder / "photos"
        for i in range(self.count):
            place = inside / f"patient{i // 2}"
            place.mkdir(parents=True, exist_ok=True)
            (place / ("left.png", "right.png")[i % 2]).write_bytes(b"%c photo %d" % (i % 256, i))
            self.photos.append(place / ("left.png", "right.png")[i % 2])
        self.result = drawn(self.size)

    def explain(self, files: Sequence[Path], tell: object) -> Any:
        found = []
        for file in files:
            found.append(QuickExplanation(file, self.result))
            time.sleep(self.delay)
            if self.hook is not None:
                self.hook(file)
        return found

    def run(self, out: Path, *, photos: Sequence[Path] | None = None, again: bool = False, as_json: bool = False) -> int:
        job = PhotoJob(self.explain, SETTINGS, "integrand image", "Photos", together=self.together)
        return ended(lambda: run_many(job, photos or self.photos, out, as_json=as_json, again=again))

    def made(self, out: Path) -> dict[str, bytes]:
        """What is in the output: the files, and the rows of the table, whatever parts they are in."""
        found = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} if out.exists() else {}
        if self.entries(out):
            rows = ExplainedTable.open(out).arrow().to_pylist()
            found[TABLE] = json.dumps(sorted(rows, key=lambda row: str(row["key"])), indent=1).encode()
        return found

    def entries(self, out: Path) -> list[str]:
        """The inputs that are kept, each as often as it is."""
        parts = parts_of(out / TABLE) if (out / TABLE).exists() else []
        rows = [row for part in parts for row in read_part(part, ["key", "failure"]).to_pylist()]
        return [row["key"] for row in rows if row["failure"] is None]

    def inputs(self) -> list[str]:
        return [str(photo) for photo in self.photos]

    def whole(self, out: Path, good: dict[str, bytes]) -> str:
        """What is wrong with an output at any moment: links that lead nowhere, pages that are not what they should be."""
        found = self.made(out)
        links = Page(found.get("index.html", b"").decode()).links
        if lost := [link for link in links if link not in found]:
            return f"the index links to {lost}"
        pages = {name: data for name, data in found.items() if name[0] != "." and name not in ("index.html", TABLE)}
        return "".join(f"{name} is another page. " for name, data in pages.items() if good.get(name) != data)


@dataclass
class MoleculeCase:
    """Molecules into a table of Parquet parts, and from there into a file; both count."""

    folder: Path
    count: int
    delay: float = 0.0
    hook: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.file = self.folder / "many.smi"
        self.smiles = ["C" * (1 + i % 7) + "O" * (1 + i // 7) for i in range(self.count)]
        self.file.write_text("".join(f"{smiles} m{i}\n" for i, smiles in enumerate(self.smiles)))

    def explain(self, given: Sequence[Any]) -> list[Any]:
        time.sleep(self.delay)
        if self.hook is not None:
            self.hook()
        return [made(smiles) for smiles in given]

    def run(self, out: Path, *, again: bool = False) -> int:
        asked = MoleculeRequest([], self.file, None)
        job = MoleculeJob(self.explain, SETTINGS, MoleculeWriter({}, {}, "integrand molecule"), quiet=False, together=2)

        def go() -> None:
            files.ready(out)
            molecule_run.run(job, asked, asked.survey()[0], out / "values.csv", again=again, keep=True)

        return ended(go)

    def made(self, out: Path) -> dict[str, bytes]:
        """What is in the output: the file, and the rows of the table beside it."""
        found = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} if out.exists() else {}
        return found | {"rows": repr([str(row) for row in self.rows(out)]).encode()}

    def rows(self, out: Path) -> list[Any]:
        """The rows of the table, in order."""
        place = table_beside(out / "values.csv")
        return list(ExplainedTable.open(place).rows()) if (place / "_manifest.json").exists() else []

    def entries(self, out: Path) -> list[str]:
        """The inputs that are kept, each as often as it is."""
        return [row.key for row in self.rows(out) if row.ok]

    def inputs(self) -> list[str]:
        return list(dict.fromkeys(self.smiles))

    def whole(self, out: Path, good: dict[str, bytes]) -> str:
        """What is wrong with an output at any moment: a table that is not all there."""
        found = self.made(out).get("values.csv")
        return "" if found in (None, good["values.csv"]) else "the table is another one"


class Small(torch.nn.Module):
    """A network of no great size that fails for some inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x == 7).any()):
            raise ValueError("seven is not known here")
        found: torch.Tensor = self.layers(x)
        return found


@dataclass
class TableCase:
    """Rows of numbers into a table with ``explain_many``; some fail, and a column that comes along changes its type."""

    folder: Path
    count: int
    keep: Any = "auto"
    delay: float = 0.0

    def __post_init__(self) -> None:
        draw = np.random.default_rng(0)
        self.rows = [
            {
                "id": f"n\udce9 {i}",
                "x": draw.random(4) if i % 5 else np.full(4, 7.0),
                "own": (i, None, 2.5, "text")[min(i // 3, 3)],
            }
            for i in range(self.count)
        ]
        self.explain = ModelExplainer(Small().eval(), target=0, tol=1e-3)

    def run(self, out: Path, *, again: bool = False) -> int:
        def slowly() -> Iterator[dict[str, Any]]:
            for row in self.rows:
                time.sleep(self.delay)
                yield row

        def go() -> None:
            how: dict[str, Any] = {"key": "id", "column": "x", "carry": ["own"], "attributions": self.keep}
            with mock.patch.object(table_module, "PART_SECONDS", 0.0), mock.patch.object(many_module, "LOOKAHEAD", 1):
                ig.explain_many(slowly(), self.explain, out, **how, together=2, again=again, progress=False)

        return ended(go)

    def made(self, out: Path) -> dict[str, bytes]:
        """The rows, in the order of their keys (to do all again changes the order of parts), and the files beside them."""
        if not self.entries(out):
            return {}
        found = {"rows": told(out)}
        files = sorted((out / "_attributions").glob("*.safetensors"))
        return found | {path.name: ig.Attribution.load(path).values.numpy().tobytes() for path in files}

    def entries(self, out: Path) -> list[str]:
        """The inputs that are kept, each as often as it is."""
        parts = parts_of(out) if out.exists() else []
        return [key for part in parts for key in read_part(part, ["key"]).column("key").to_pylist()]

    def inputs(self) -> list[str]:
        return [row["id"].replace("\udce9", "\\udce9") for row in self.rows]

    def whole(self, out: Path, good: dict[str, bytes]) -> str:
        """What is wrong with an output at any moment: rows of inputs that are none, and parts that cannot be read."""
        return "" if set(self.entries(out)) <= set(self.inputs()) else "there are rows of other inputs"


def told(out: Path) -> bytes:
    """All that is in a table, as text: its columns and their types, and every row, in the order of their keys."""
    table = ExplainedTable.open(out).arrow()
    rows = sorted(table.to_pylist(), key=lambda row: str(row["key"]))
    return "\n".join([str(table.schema), *map(repr, rows)]).encode()


@dataclass
class CommandCase:
    """A command with its real model, loaded once, on a few inputs."""

    name: str
    given: list[str]
    delay: float = 0.0
    seconds: float = 0.0
    ending: int = 0

    def run(self, out: Path, *, again: bool = False) -> int:
        def go() -> None:
            from integrand.cli.app import app

            code = app([self.name, *self.given, "--out", str(out), *(["--again"] if again else [])], standalone_mode=False)
            if code:
                raise typer.Exit(code)

        return ended(go)

    def made(self, out: Path) -> dict[str, bytes]:
        """The rows of the table, and the names of the pages: these tell how long it took."""
        if not self.entries(out):
            return {}
        return {path.name: b"" for path in out.glob("*.html")} | {"rows": told(out)}

    def entries(self, out: Path) -> list[str]:
        """The inputs that are kept, each as often as it is."""
        place = next((one for one in (out, out / "table") if (one / MANIFEST).exists()), None)
        parts = [] if place is None else parts_of(place)
        return [key for part in parts for key in read_part(part, ["key"]).column("key").to_pylist()]

    def inputs(self) -> list[str]:
        return self._inputs

    def whole(self, out: Path, good: dict[str, bytes]) -> str:
        """What is wrong with an output at any moment: rows of inputs that are none."""
        return "" if set(self.entries(out)) <= set(self._inputs) else "there are rows of other inputs"

    def begin(self, out: Path) -> None:
        """Run it once, undisturbed: that loads the model, and tells the inputs; once more tells how long it takes."""
        self.ending = self.run(out)
        assert self.ending in (0, 1), self.name
        self._inputs = sorted(set(self.entries(out)))
        start = time.monotonic()
        in_child(lambda: self.run(out.with_name(out.name + "-timed")))
        self.seconds = time.monotonic() - start


Case = GalleryCase | MoleculeCase | TableCase | CommandCase


class Page(HTMLParser):
    """The links of a page, and the kinds of tags that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[tuple[str, ...]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add((tag, *(name for name, _ in attrs)))
        self.links += [(value or "").removeprefix("./") for name, value in attrs if tag == "a" and name == "href"]


def ended(run: Callable[[], None]) -> int:
    """The exit code of a command; whatever is not an error of the package, or an exit, is raised."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            run()
        except typer.Exit as end:
            return end.exit_code
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 2
        except KeyboardInterrupt:
            return 130
        except IntegrandError:
            return 2
    return 0


# ---- faults -----------------------------------------------------------------------------------------------------------------


class Trap:
    """Does something at the n-th call of what writes files; from then on at every call, if it is to last."""

    def __init__(self, at: int, act: Callable[[], None], *, lasting: bool = False) -> None:
        self.at, self.act, self.lasting, self.calls = at, act, lasting, 0
        self.met: set[str] = set()

    def __enter__(self) -> Trap:
        self.stack = contextlib.ExitStack()
        calls = ((os, "write"), (os, "fsync"), (os, "replace"), (os, "open"), (os, "unlink"), (Path, "write_bytes"))
        for owner, name in (*calls, (pq, "write_table")):
            self.stack.enter_context(mock.patch.object(owner, name, self._trapped(getattr(owner, name), name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def sprung(self) -> bool:
        return self.calls >= self.at

    def _trapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def trapped(*given: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at or (self.lasting and self.calls > self.at):
                self.met.add(name)
                if name in ("write", "write_bytes"):  # half of it is written
                    call(given[0], bytes(given[1])[: len(given[1]) // 2])
                elif name == "write_table":
                    call(*given, **options)
                    given[1].flush()
                    os.ftruncate(given[1].fileno(), given[1].tell() // 2)
                self.act()
            return call(*given, **options)

        return trapped


def in_child(run: Callable[[], int], *, after: float | None = None, by: int = signal.SIGKILL) -> int | None:
    """Run in another process, which gets a signal after some seconds; gives its exit code, None if it was killed."""
    child = os.fork()
    if not child:
        code = 99
        try:
            code = run()
        finally:
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(child, by)
    status = os.waitpid(child, 0)[1]
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Faults:
    """All disturbances of one case, each followed by an undisturbed run."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.number = case, folder, 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        out = self.new()
        if isinstance(case, CommandCase):
            case.begin(out)
        else:
            assert case.run(out) == 0
        self.good = case.made(out)
        assert sorted(case.entries(out)) == sorted(case.inputs())

    @property
    def named(self) -> str:
        return self.case.name if isinstance(self.case, CommandCase) else type(self.case).__name__

    def new(self) -> Path:
        self.number += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"out{self.number}"

    def check(self, what: str, out: Path, *, once: bool = True) -> None:
        """After a disturbance: nothing is half there, and the same command makes all of it."""
        self.counts[what] += 1
        problem = self.case.whole(out, self.good)
        code = self.case.run(out)
        found = self.case.made(out)
        if code != getattr(self.case, "ending", 0):
            problem += f"the next run ends with {code}. "
        if found != self.good:
            apart = sorted(name for name in {*found, *self.good} if found.get(name) != self.good.get(name))
            problem += f"the next run differs in {', '.join(apart)}. "
        entries = self.case.entries(out)
        if set(entries) != set(self.case.inputs()) or (once and len(entries) != len(set(entries))):
            problem += f"{len(entries)} entries of {len(set(entries))} inputs, not {len(self.case.inputs())}. "
        if problem:
            self.wrong.append(f"{self.named}, {what}: {problem}")

    def kills(self, step: int = 1) -> None:
        """Killed at every step-th call that opens, writes, syncs or renames a file."""
        for at in range(1, 100_000, step):
            out = self.new()

            def die() -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            def go(at: int = at, out: Path = out) -> int:
                with Trap(at, die):
                    return self.case.run(out)

            if in_child(go) is not None:
                return
            self.check("killed at a call", out)

    def random_kills(self, count: int, draw: random.Random, longest: float = 0.1) -> None:
        """Killed at random moments, several times over the same output."""
        self.case.delay = 0.002
        for _ in range(count):
            out = self.new()
            for _ in range(draw.randint(1, 4)):
                killed = in_child(lambda out=out: self.case.run(out), after=draw.uniform(0, longest))  # type: ignore[misc]
                self.counts["kills at random"] += killed is None
            self.check("killed at random", out)
        self.case.delay = 0.0

    def signals(self, count: int, draw: random.Random, longest: float) -> None:
        """Asked to end, by the system or with Ctrl-C, at random moments."""
        for number in (signal.SIGTERM, signal.SIGINT):
            for _ in range(count):
                out = self.new()
                code = in_child(lambda out=out: self.case.run(out), after=draw.uniform(0, longest), by=number)  # type: ignore[misc]
                if code not in (None, 0, 1, 128 + number):
                    self.wrong.append(f"{signal.Signals(number).name}: ended with {code}")
                self.check(signal.Signals(number).name, out)

    def refusals(self, step: int = 1) -> None:
        """The system refuses every step-th call, once or from then on, when the disk is new, or holds a good output."""
        done = self.new()
        assert self.case.run(done) == 0
        for number in (errno.ENOSPC, errno.EIO):
            for lasting in (False, True):
                for before in (False, True):
                    for at in range(1, 100_000, step):
                        out = self.new()
                        if before:
                            shutil.copytree(done, out)

                        def refuse(number: int = number) -> None:
                            raise OSError(number, os.strerror(number))

                        with Trap(at, refuse, lasting=lasting) as trap:
                            code = self.case.run(out, again=before)
                        if not trap.sprung:
                            break
                        if code == 0 and lasting and trap.met != {"unlink"}:  # that of the lock, when all is done, is no loss
                            self.wrong.append(f"refused at {at}, lasting, and ended with 0")
                        if before and not lasting and self.case.made(out).keys() < self.good.keys():
                            self.wrong.append(f"refused at {at}: a good output is gone")
                        self.check(
                            f"{errno.errorcode[number]}{', lasting' * lasting}{', before' * before}", out, once=not before
                        )

    def small_disks(self, step: int) -> None:
        """No file may grow beyond so many bytes: what the system does, not what we pretend it does."""
        largest = max(map(len, self.good.values())) + 200_000
        for limit in range(0, largest, step):
            out = self.new()

            def go(limit: int = limit, out: Path = out) -> int:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
                return self.case.run(out)

            code = in_child(go)
            self.check("a file too large", out)
            if code == 0:
                return

    def at_once(self, count: int, together: int = 3) -> None:
        """Several runs into one output, each again until it is let in."""
        self.case.delay = 0.001
        for _ in range(count):
            out, running = self.new(), set()
            for _ in range(together):
                child = os.fork()
                if not child:
                    code = 2
                    while code == 2:
                        code = self.case.run(out)
                        time.sleep(0.002)
                    os._exit(code)
                running.add(child)
            codes = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in running]
            if set(codes) != {getattr(self.case, "ending", 0)}:
                self.wrong.append(f"{self.named}, at once: ended with {codes}")
            self.check("at once", out)
        self.case.delay = 0.0


def shards(case: GalleryCase, folder: Path, good: dict[str, bytes], wrong: list[str]) -> None:
    """Two runs, each with half of the photos, into one gallery at the same time."""
    out, running = folder / "shards", []
    case.delay = 0.001
    for part in (case.photos[::2], case.photos[1::2]):
        child = os.fork()
        if not child:
            while (code := case.run(out, photos=part)) == 2:
                time.sleep(0.002)
            os._exit(code)
        running.append(child)
    codes = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in running]
    case.delay = 0.0
    links = Page((out / "index.html").read_text()).links
    if any(codes) or sorted(links) != sorted(Page(good["index.html"].decode()).links):
        wrong.append(f"two shards: ended with {codes}, {len(links)} of {len(case.photos)} photos in the index")


def replaced_photo(case: GalleryCase, folder: Path, wrong: list[str]) -> None:
    """A photo is replaced while it is explained: it fails, and the next run has the new one."""
    photo, out = case.photos[-1], folder / "replaced"
    before = photo.read_bytes()
    case.hook = lambda file: photo.write_bytes(before + b" retouched") if file == photo else None  # type: ignore[assignment]
    code = case.run(out)
    case.hook = None
    if code != 1 or len(Page((out / "index.html").read_text()).links) != len(case.photos) - 1:
        wrong.append(f"a replaced photo: ended with {code}")
    if case.run(out) or f"says {hashlib.sha256(photo.read_bytes()).hexdigest()[:8]}" not in (out / "index.html").read_text():
        wrong.append("a replaced photo: the next run does not have the new one")
    photo.write_bytes(before)


def replaced_molecules(case: MoleculeCase, folder: Path, wrong: list[str]) -> None:
    """The file of molecules is cut, shuffled or longer when it is read again: an old table stays, and the next run is right."""
    before = case.file.read_text()
    lines = before.splitlines(keepends=True)
    for name, after in (("cut", lines[: len(lines) // 2]), ("turned", lines[::-1]), ("longer", [*lines, "CCN new\n"])):
        out, calls = folder / f"replaced-{name}", [0]
        case.run(out)
        table = case.made(out)

        def exchange(after: list[str] = after, calls: list[int] = calls) -> None:
            calls[0] += 1
            if calls[0] == 1:
                files.write_text(case.file, "".join(after))

        case.hook = exchange
        code = case.run(out, again=True)
        case.hook = None
        if code != 1 or case.made(out) != table:
            wrong.append(f"molecules replaced ({name}): ended with {code}, table {'kept' * (case.made(out) == table)}")
        code = case.run(out)
        found = titles((out / "values.csv").read_bytes())
        if code or found != [line.split()[1] for line in after]:
            wrong.append(f"molecules replaced ({name}): the next run ended with {code} and {len(found)} molecules")
        case.file.write_text(before)


def titles(table: bytes) -> list[str]:
    """The molecules of a table, in order, each once."""
    return list(dict.fromkeys(row["title"] for row in csv.DictReader(io.StringIO(table.decode()))))


# ---- damaged tables ---------------------------------------------------------------------------------------------------------

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def values(draw: random.Random) -> Any:
    """Anything that JSON can hold, and what an attacker would try."""
    nested: Any = []
    for _ in range(draw.choice((3, 400))):
        nested = [nested]
    picture = "data:image/png;base64," + base64.b64encode(draw.randbytes(6)).decode()
    known = [None, True, 0, -1, 1, 10**30, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", EVIL, "\ud800", "\x1b[2J"]
    known += [[], {}, [1, "a"], {"a": 1}, nested, f"data:image/png;base64,{EVIL}", f"data:text/html,{EVIL}", picture]
    return draw.choice([*known, "../../etc/passwd.html", "javascript:alert(1)", "0" * 64, "converged", f"{'0' * 32}.html"])


def altered(entry: Any, draw: random.Random) -> Any:
    """An entry with one value replaced, lost, added, or put elsewhere."""
    if isinstance(entry, dict) and entry and draw.random() < 0.9:
        key = draw.choice(sorted(entry))
        kind = draw.randrange(4)
        if kind == 0:
            return {name: value for name, value in entry.items() if name != key}
        if kind == 1:
            return entry | {draw.choice(("error", "link", EVIL, key + "x")): values(draw)}
        return entry | {key: altered(entry[key], draw)}
    if isinstance(entry, list) and entry and draw.random() < 0.8:
        place = draw.randrange(len(entry))
        return [*entry[:place], altered(entry[place], draw), *entry[place + 1 :]]
    return values(draw)


def mutated(part: Path, draw: random.Random) -> None:
    """Give a part other rows, as somebody might who knows how: any value in any column, anything in the details."""
    table = read_part(part)
    layout = TableLayout.read(table.schema)
    rows = layout.rows(table)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(rows))
        name = draw.choice(
            ("details", "details", "key", "prediction", "sentence", "notes", "failure", "target", "features", "status")
        )
        value: Any = str(values(draw))
        if name == "details":
            with contextlib.suppress(ValueError, TypeError, RecursionError):  # it may have been changed just now
                value = json.dumps(altered(json.loads(rows[place].details or "null"), draw))
            value = draw.choice((value, value, value, "[" * 50_000, '{"card":' * 50_000, "9" * 5000, value[:-1], f"[{value}]"))
        rows[place] = replace(rows[place], **{name: (value,) if name in ("notes", "features") else value})
    write_part(part, layout.table(rows))


def damaged(path: Path, draw: random.Random) -> None:
    """Turn some bits of a file, or cut it."""
    raw = bytearray(path.read_bytes())
    if draw.random() < 0.3:
        del raw[draw.randrange(len(raw)) :]
    else:
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def fuzz(case: GalleryCase | MoleculeCase, folder: Path, count: int, draw: random.Random, wrong: list[str]) -> int:
    """Damaged and planted tables: no error but ours, no page with a tag that is not ours, no other results unnoticed."""
    out = folder / f"fuzzed {type(case).__name__}"
    assert case.run(out) == 0
    good, kept = case.made(out), {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    place = next(path.parent for path in kept if path.name == MANIFEST)
    part = parts_of(place)[0]
    ours = set().union(*(Page(data.decode()).tags for name, data in good.items() if name.endswith(".html")))
    ours |= {("table", "class"), ("tbody",), ("tr",), ("th", "scope"), ("td",), ("section",), ("h2",)}
    for number in range(count):
        kind = ("planted", "bits of a part", "bits of the manifest")[number % 3]
        mutated(part, draw) if kind == "planted" else damaged(part if "part" in kind else place / MANIFEST, draw)
        try:
            code = case.run(out)
            found = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
            tags = set().union(*(Page(data.decode()).tags for name, data in found.items() if name.endswith(".html")))
            if tags - ours:
                wrong.append(f"{kind} {number}: ended with {code}, foreign tags {tags - ours}")
            if kind == "bits of a part" and code == 0 and case.made(out) != good:
                wrong.append(f"{kind} {number}: other results, and no word of it")
            if kind == "bits of a part" and code:
                part.unlink()
                if case.run(out) or case.made(out) != good:
                    wrong.append(f"{kind} {number}: without the part, the next run differs")
        except BaseException as error:
            wrong.append(f"{kind} {number}: {type(error).__name__}: {str(error)[:300]}")
        for path in {path for path in out.rglob("*") if path.is_file()} - {*kept}:
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)
    return count


# ---- commands with their models ----------------------------------------------------------------------------------------------

SHARED = Path(__file__).parents[2] / "shared" / "data"


def loaded_once(stack: contextlib.ExitStack) -> None:
    """Let every application load its model once, and write a part after every few inputs: small runs have many parts then."""
    from integrand.apps import molecules, questions, retina, translation
    from integrand.apps.images import model as images
    from integrand.apps.questions import model as questions_model

    for owner in (images, retina, questions, translation, molecules):
        held: dict[str, Any] = {}

        def load(*given: Any, _load: Any = owner.load, _held: dict[str, Any] = held, **options: Any) -> Any:
            name = repr((given, sorted(options.items())))
            if name not in _held:
                _held[name] = _load(*given, **options)
            return _held[name]

        stack.enter_context(mock.patch.object(owner, "load", load))
    stack.enter_context(mock.patch.object(table_module, "PART_SECONDS", 0.0))
    stack.enter_context(mock.patch.object(many_module, "LOOKAHEAD", 2))
    stack.enter_context(mock.patch.object(questions_model, "BATCH", 3))


def explained_once(stack: contextlib.ExitStack) -> None:
    """Let photos be explained by their networks once: what is disturbed is the run, and the networks take seconds a photo."""
    from integrand.apps.images import gallery_run

    held: dict[Path, Any] = {}
    whole = gallery_run.run_many

    def run_many(job: Any, *given: Any, **options: Any) -> Any:
        def explain(files: Sequence[Path], tell: Any) -> list[Any]:
            for file in files:
                time.sleep(0.05)
                if file not in held:
                    held.update({file: job.explain([file], tell)[0]})
            return [held[file] for file in files]

        return whole(replace(job, explain=explain), *given, **options)

    stack.enter_context(mock.patch.object(gallery_run, "run_many", run_many))


def commands(folder: Path) -> list[CommandCase]:
    """The commands that explain many inputs, each with a few that take about a second in all."""
    import skimage.data

    folder.mkdir(parents=True)
    photos = folder / "photos"
    photos.mkdir()
    for name, picture in (("cat", skimage.data.chelsea()), ("coffee", skimage.data.coffee())):
        PIL.Image.fromarray(picture).resize((64, 64)).save(photos / f"{name}.png")
    eyes = folder / "eyes"
    eyes.mkdir()
    PIL.Image.fromarray(skimage.data.retina()).resize((96, 96)).save(eyes / "left.png")
    for place in (photos, eyes):
        (place / "broken.png").write_bytes(b"no picture")  # a row that says so
    asked = [
        "who wrote it",
        "what year was that",
        "how many were there",
        "where is it",
        "is it true",
        "which one won",
        "name the city",
    ]
    (folder / "questions.txt").write_text("\n".join(f"{question} {i}?" for i, question in enumerate(asked * 3)))
    (folder / "texts.txt").write_text("Good morning!\nI am tired.\nThank you.\n")
    smiles = [f"{'C' * i}{tail}" for i in range(1, 9) for tail in ("O", "N", "C(=O)O", "c1ccccc1")]
    (folder / "molecules.smi").write_text("\n".join(smiles))
    few = ["--max-evaluations", "17", "--tol", "0.5"]
    return [
        CommandCase("image", [str(photos), "--no-rival", *few]),
        CommandCase("retina", [str(eyes), *few]),
        CommandCase("questions", [str(folder / "questions.txt"), *few]),
        CommandCase("translate", ["--file", str(folder / "texts.txt"), "--beam", "1", *few]),
        CommandCase("molecule", ["--file", str(folder / "molecules.smi"), *few]),
    ]


KILLS = {"image": 4, "questions": 14, "molecule": 14}
"""How often commands are killed in brief, at least 32 times in all. The runners of eyes and translations are those of photos
and questions, and take longer."""


def disturb_commands(folder: Path, quick: bool, draw: random.Random, wrong: list[str]) -> None:
    """Kills, signals and runs at the same time of the real commands."""
    kills = 0
    with contextlib.ExitStack() as stack:
        loaded_once(stack)
        if quick:
            explained_once(stack)
        for case in commands(folder / "given"):
            if quick and case.name not in KILLS:
                continue
            found = Faults(case, folder / case.name)
            while found.counts["kills at random"] < (KILLS[case.name] if quick else 60):
                found.random_kills(1, draw, case.seconds)
            found.signals(1 if quick else 10, draw, case.seconds)
            found.at_once(5 if not quick else case.name in ("questions", "molecule"))
            kills += found.counts["kills at random"]
            for what, count in found.counts.items():
                print(f"integrand {case.name}, {what}: {count} (undisturbed {case.seconds:.1f} s)")
            wrong += found.wrong
    print(f"commands with their models: {kills} kills")


def bytes_written(count: int, folder: Path) -> tuple[int, int]:
    """What a gallery of so many photos writes in all, and what is there at the end; thumbnails are as large as they get."""
    total = [0]
    write, write_bytes = os.write, Path.write_bytes
    case = GalleryCase(folder / "many", count, size=144)

    def counted(file: int, data: bytes) -> int:
        done = write(file, data)
        total[0] += done
        return done

    def counted_bytes(path: Path, data: bytes) -> int:
        total[0] += len(data)
        return write_bytes(path, data)

    with mock.patch.object(os, "write", counted), mock.patch.object(Path, "write_bytes", counted_bytes):
        assert case.run(folder / "gallery") == 0
    return total[0], sum(path.stat().st_size for path in (folder / "gallery").iterdir())


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument("--only", choices=("faults", "fuzz", "bytes", "commands"), help="one part")
    parser.add_argument("--sync", action="store_true", help="wait for the disk: slow, and no kill of a process can tell")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    quick, draw, wrong = options.quick, random.Random(options.seed), []
    torch.set_num_threads(1)
    hasty = contextlib.nullcontext() if options.sync else mock.patch.object(os, "fsync", int)
    with tempfile.TemporaryDirectory() as name, hasty:
        folder = Path(name).resolve()
        gallery, table = GalleryCase(folder, 2 if quick else 5), MoleculeCase(folder, 5 if quick else 9)
        if options.only in (None, "faults"):
            numbers = [TableCase(folder, 7 if quick else 11), TableCase(folder, 5, keep="files")]
            for case in (gallery, table, *numbers):
                place = folder / f"{type(case).__name__}{getattr(case, 'keep', '')}"
                found = Faults(case, place)
                found.kills(step=(8 if quick else 1))
                found.refusals(step=37 if quick else 1)
                found.small_disks(step=5_000 if quick else 500)
                found.random_kills(2 if quick else 100, draw)
                found.signals(1 if quick else 20, draw, 0.1)
                found.at_once(1 if quick else 20)
                for what, count in found.counts.items():
                    print(f"{type(case).__name__}, {what}: {count}")
                wrong += found.wrong
                if isinstance(case, GalleryCase):
                    shards(case, place, found.good, wrong)
                    replaced_photo(case, place, wrong)
            replaced_molecules(table, folder, wrong)
            print("runs at the same time on two halves; photos and molecules replaced while they were read: looked at")
        if options.only in (None, "fuzz"):
            count = sum(fuzz(case, folder, 15 if quick else 3000, draw, wrong) for case in (gallery, table))
            print(f"damaged and planted tables: {count}")
        if options.only == "commands" or (options.only is None and not quick):
            disturb_commands(folder / "commands", quick, draw, wrong)
        if options.only in (None, "bytes") and not quick:
            for count in (100, 400, 1600):
                total, last = bytes_written(count, folder / str(count))
                print(f"{count} photos: {total / 1e9:.2f} GB written for {last / 1e9:.2f} GB that are there at the end")
    for said in wrong[:20]:
        print(f"WRONG: {said}")
    print(f"{len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
