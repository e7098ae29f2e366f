"""Runs over many inputs, disturbed in every way: kills, full disks, runs at the same time, replaced inputs, damaged journals.

    python -m benchmarks.faults             # some minutes
    python -m benchmarks.faults --quick     # what the tests run: seconds

Each case is disturbed, then run again undisturbed: every input must be there once, and the output must be, byte for byte, that
of a run that nothing disturbed. Models are stand-ins; the runs, their files and their locks are the real ones. Prints counts,
and exits with 1 if anything failed.
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
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import typer

import integrand as ig
from integrand import files
from integrand.apps.images.gallery_run import TABLE, PhotoJob, run_many
from integrand.apps.images.result import grid_sums
from integrand.apps.molecules import molecule_run
from integrand.apps.molecules.molecule_output import MoleculeWriter
from integrand.apps.molecules.molecule_run import MoleculeJob, MoleculeRequest, table_of
from integrand.batch.rows import Row
from integrand.batch.store import LineStore
from integrand.batch.table import ExplainedTable, parts_of, read_part
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
        place = table_of(out / "values.csv")
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


Case = GalleryCase | MoleculeCase


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
        except IntegrandError:
            return 2
    return 0


def kept(path: Path, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of all lines of a journal that are not damaged, but for failures; also of lines that are outdated."""
    with tempfile.TemporaryFile() as empty:
        store = LineStore(empty.fileno(), settings)
    for line in path.read_bytes().splitlines() if path.exists() else []:
        name, check, text = line[:48], line[48:64], line[64:]
        if name.startswith(store.mark[:16].encode()) and store._check(name, text) == check:
            entry = json.loads(text)
            if "error" not in entry:
                yield entry


# ---- faults -----------------------------------------------------------------------------------------------------------------


class Trap:
    """Does something at the n-th call of what writes files; from then on at every call, if it is to last."""

    def __init__(self, at: int, act: Callable[[], None], *, lasting: bool = False) -> None:
        self.at, self.act, self.lasting, self.calls = at, act, lasting, 0

    def __enter__(self) -> Trap:
        self.stack = contextlib.ExitStack()
        for owner, name in ((os, "write"), (os, "fsync"), (os, "replace"), (os, "open"), (Path, "write_bytes")):
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
                if name in ("write", "write_bytes"):  # half of it is written
                    call(given[0], bytes(given[1])[: len(given[1]) // 2])
                self.act()
            return call(*given, **options)

        return trapped


def in_child(run: Callable[[], int], *, after: float | None = None) -> int | None:
    """Run in another process, killed after some seconds; gives its exit code, None if it was killed."""
    child = os.fork()
    if not child:
        code = 99
        try:
            code = run()
        finally:
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Faults:
    """All disturbances of one case, each followed by an undisturbed run."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.number = case, folder, 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        out = self.new()
        assert case.run(out) == 0
        self.good = case.made(out)
        assert sorted(case.entries(out)) == sorted(case.inputs())

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
        if code:
            problem += f"the next run ends with {code}. "
        if found != self.good:
            apart = sorted(name for name in {*found, *self.good} if found.get(name) != self.good.get(name))
            problem += f"the next run differs in {', '.join(apart)}. "
        entries = self.case.entries(out)
        if set(entries) != set(self.case.inputs()) or (once and len(entries) != len(set(entries))):
            problem += f"{len(entries)} entries of {len(set(entries))} inputs, not {len(self.case.inputs())}. "
        if problem:
            self.wrong.append(f"{type(self.case).__name__}, {what}: {problem}")

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

    def random_kills(self, count: int, draw: random.Random) -> None:
        """Killed at random moments, several times over the same output."""
        self.case.delay = 0.002
        for _ in range(count):
            out = self.new()
            for _ in range(draw.randint(1, 4)):
                in_child(lambda out=out: self.case.run(out), after=draw.uniform(0, 0.1))  # type: ignore[misc]
            self.check("killed at random", out)
        self.case.delay = 0.0

    def refusals(self, step: int = 1) -> None:
        """The system refuses every step-th call, once or from then on, when the disk is new, or holds a good output."""
        for number in (errno.ENOSPC, errno.EIO):
            for lasting in (False, True):
                for before in (False, True):
                    for at in range(1, 100_000, step):
                        out = self.new()
                        if before:
                            assert self.case.run(out) == 0

                        def refuse(number: int = number) -> None:
                            raise OSError(number, os.strerror(number))

                        with Trap(at, refuse, lasting=lasting) as trap:
                            code = self.case.run(out, again=before)
                        if not trap.sprung:
                            break
                        if code == 0 and lasting:
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
            if any(codes):
                self.wrong.append(f"at once: ended with {codes}")
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

        def replace(after: list[str] = after, calls: list[int] = calls) -> None:
            calls[0] += 1
            if calls[0] == 1:
                files.write_text(case.file, "".join(after))

        case.hook = replace
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


# ---- damaged journals -------------------------------------------------------------------------------------------------------

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


def mutated(lines: list[bytes], draw: random.Random) -> bytes:
    """A journal with damage: of bytes, of lines, or of entries whose checksums are made to fit."""
    lines = list(lines)
    with tempfile.TemporaryFile() as empty:
        store = LineStore(empty.fileno(), SETTINGS)
    for _ in range(draw.randint(1, 3)):
        place, kind = draw.randrange(len(lines)), draw.randrange(8)
        line = bytearray(lines[place])
        if kind == 0 and line:
            line[draw.randrange(len(line))] = draw.randrange(256)
        elif kind == 1:
            del line[draw.randrange(len(line) + 1) :]
        elif kind == 2:
            line = bytearray(lines[draw.randrange(len(lines))])
        elif kind == 3:
            line = bytearray(draw.randbytes(draw.randrange(300)))
        else:
            entry: Any = {}
            with contextlib.suppress(ValueError, RecursionError):  # it may have been damaged just now
                entry = json.loads(line[64:])
            text = json.dumps(altered(entry, draw))
            if kind == 7:
                text = draw.choice(("[" * 50_000, '{"card":' * 50_000, "9" * 5000, text[:-1], f"[{text}]"))
            name = bytes(line[:48]).ljust(48, b"0")
            line = bytearray(name + store._check(name, text.encode()) + text.encode() + b"\n")
        lines[place] = bytes(line)
    return b"".join(lines)


def fuzz(case: GalleryCase, folder: Path, count: int, draw: random.Random, wrong: list[str]) -> int:
    """Damaged journals: no error but ours, no page with a tag that is not ours, and the whole output again."""
    out = folder / "fuzzed"
    assert case.run(out) == 0
    state = store_of(out / "values.csv")
    lines, good = state.read_bytes().splitlines(keepends=True), case.made(out)
    ours = set().union(*(Page(data.decode()).tags for name, data in good.items() if name.endswith(".html")))
    ours |= {("table", "class"), ("tbody",), ("tr",), ("th", "scope"), ("td",), ("section",), ("h2",)}
    for number in range(count):
        state.write_bytes(mutated(lines, draw))
        try:
            code = case.run(out)
        except BaseException as error:
            wrong.append(f"journal {number}: {type(error).__name__}: {error}")
            continue
        found = case.made(out)
        tags = set().union(*(Page(data.decode()).tags for name, data in found.items() if name.endswith(".html")))
        links = Page(found["index.html"].decode()).links if "index.html" in found else []
        if (
            code
            or tags - ours
            or not {*good} <= {*found}
            or not {*links} >= {*Page(good.get("index.html", b"").decode()).links}
        ):
            wrong.append(f"journal {number}: ended with {code}, foreign tags {tags - ours}")
    return count


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
    parser.add_argument("--only", choices=("faults", "fuzz", "bytes"), help="one part")
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
            for case in (gallery, table):
                place = folder / type(case).__name__
                found = Faults(case, place)
                found.kills(step=4 if quick else 1)
                found.refusals(step=17 if quick else 1)
                found.small_disks(step=5_000 if quick else 500)
                found.random_kills(2 if quick else 100, draw)
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
            count = 0
            print(f"damaged journals: {count}")
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
