"""Galleries on stand-ins for explanations: no photo opens another's page, nothing is lost, and no name of a file is too odd."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.faults import Page, QuickExplanation, altered, drawn
from integrand import files
from integrand.apps.images import gallery_run
from integrand.apps.images.gallery_run import TABLE, PhotoJob, page_name, run_many, run_one
from integrand.apps.images.photo_files import key_of, told_apart
from integrand.batch.table import ExplainedTable, parts_of, read_part, write_part
from integrand.errors import FileError, OptionError

RESULT = drawn(4)


class Studio:
    """Makes photos, runs galleries, and counts what is explained."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, list[Path]()
        self.hook: Callable[[Path], None] = lambda file: None

    def photo(self, name: str | bytes, content: bytes) -> Path:
        path = self.folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def explain(self, files: Sequence[Path], tell: object) -> Any:
        found = []
        for file in files:
            found.append(QuickExplanation(file, RESULT))
            self.hook(file)
            self.seen.append(file)
        return found

    def run(self, *photos: Path, out: str = "out", **options: Any) -> int:
        given = {"settings": {"tol": 0.1}} | options
        job = PhotoJob(self.explain, given.pop("settings"), "integrand image", "Photos", together=given.pop("together", 1))
        try:
            run_many(job, photos, self.folder / out, **given)
        except typer.Exit as end:
            return end.exit_code
        return 0

    def index(self, out: str = "out") -> str:
        return (self.folder / out / "index.html").read_text(encoding="utf-8")

    def opened(self, out: str = "out") -> list[tuple[str, str]]:
        """What each card says, and what the page says that it opens."""
        found = []
        for part in self.index(out).split('<article class="card"')[1:]:
            link = Page(part).links[0]
            page = (self.folder / out / link).read_text(encoding="utf-8")
            found.append((part.split('">says ')[1][:8], page.split("<title>says ")[1][:8]))
        return found


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path)


def fails_on(photo: Path) -> Callable[[Path], None]:
    """What fails on one photo."""

    def hook(file: Path) -> None:
        if file == photo:
            raise FileError(f"{file.name} is no photo.")

    return hook


def said(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


# Nothing mixed up


def test_two_patients_with_photos_of_one_name(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = studio.photo("pat1/left.jpg", b"grade 3"), studio.photo("pat2/left.jpg", b"grade 0")
    for photo in (first, second, first, second):
        assert studio.run(photo) == 0
        assert all(card == page for card, page in studio.opened())
    assert sorted(studio.opened()) == sorted([(said(b"grade 3"),) * 2, (said(b"grade 0"),) * 2])
    assert studio.seen == [first, second]
    assert "pat1/left.jpg" in studio.index()  # which of them a card is of can be seen
    assert "pat2/left.jpg" in studio.index()


def test_the_same_photo_of_two_patients_has_two_cards_that_stay(studio: Studio) -> None:
    first, second = studio.photo("pat1/left.jpg", b"same"), studio.photo("pat2/left.jpg", b"same")
    for photo in (first, second, first, second):
        assert studio.run(photo) == 0
    assert len(set(Page(studio.index()).links)) == 2
    assert studio.seen == [first, second]


def test_other_settings_have_other_pages(studio: Studio) -> None:
    photo = studio.photo("a.png", b"a")
    for tol, out in ((0.1, "out"), (0.2, "other"), (0.1, "out")):
        assert studio.run(photo, settings={"tol": tol}, out=out) == 0
    assert len(studio.seen) == 2
    assert not set(Page(studio.index()).links) & set(Page(studio.index("other")).links)
    with pytest.raises(OptionError, match=r"out/table holds results of another run: got tol 0\.2 \(there: 0\.1\)"):
        studio.run(photo, settings={"tol": 0.2})
    assert studio.opened() == [(said(b"a"), said(b"a"))]


def test_names_of_pages_depend_on_all_that_a_page_shows() -> None:
    names = {page_name(place, file, mark) for place in "ab" for file in "cd" for mark in "ef"}
    assert len(names) == 8
    assert all(len(name) == 37 for name in names)
    assert page_name("a\nb", "c", "d") != page_name("b", "c", "d\na")


def test_a_photo_with_the_old_time_of_change_and_size_is_seen_to_be_another(studio: Studio) -> None:
    photo = studio.photo("a.png", b"one")
    assert studio.run(photo) == 0
    known = photo.stat()
    photo.write_bytes(b"two")
    os.utime(photo, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert studio.run(photo) == 0
    assert studio.opened() == [(said(b"two"), said(b"two"))]
    os.utime(photo)  # only touched
    assert studio.run(photo) == 0
    assert len(studio.seen) == 2


def test_a_photo_that_changes_while_it_is_explained_fails(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    photo, other = studio.photo("a.png", b"one"), studio.photo("b.png", b"b")
    studio.hook = lambda file: photo.write_bytes(b"two") if file == photo else None  # type: ignore[assignment]
    assert studio.run(photo, other) == 1
    assert "a.png changed while it was read" in capsys.readouterr().err
    assert studio.opened() == [(said(b"b"), said(b"b"))]
    studio.hook = lambda file: None
    assert studio.run(photo, other) == 0
    assert studio.opened() == [(said(b"two"), said(b"two")), (said(b"b"), said(b"b"))]


def test_a_card_goes_when_another_photo_takes_the_place(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = studio.photo("a.png", b"a"), studio.photo("b.png", b"b")
    assert studio.run(first, second) == 0
    first.write_bytes(b"somebody else")
    assert studio.run(second) == 0
    assert studio.opened() == [(said(b"b"), said(b"b"))]
    assert "no longer in the gallery, as they or their pages have changed: a.png" in capsys.readouterr().err
    first.unlink()  # moved away: what is shown is still what was explained
    assert studio.run(second) == 0
    assert len(studio.opened()) == 2


def test_a_page_of_any_name(studio: Studio) -> None:
    name = os.fsdecode(b"bad\xff#?\n.html")
    photo = studio.photo("a.png", b"a")
    assert studio.run(photo, out=name) == 0
    assert Page((studio.folder / name).read_text()).links[0].startswith("bad%FF%23%3F%0A/")


# Nothing lost


@pytest.mark.parametrize("how", ["gone", "changed", "a link"])
def test_a_page_that_is_not_as_it_was_is_made_again(studio: Studio, how: str) -> None:
    photos = [studio.photo(f"{name}.png", name.encode()) for name in "ab"]
    assert studio.run(*photos) == 0
    page = studio.folder / "out" / Page(studio.index()).links[0]
    good = page.read_bytes()
    page.unlink()
    if how == "changed":
        page.write_bytes(good + b" ")
    if how == "a link":
        page.symlink_to("index.html")
    assert studio.run(*photos) == 0
    assert studio.seen[2:] == photos[:1]
    assert page.read_bytes() == good


def test_pages_of_earlier_runs_that_are_gone_are_not_linked_to(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = studio.photo("a.png", b"a"), studio.photo("b.png", b"b")
    assert studio.run(first) == 0
    (studio.folder / "out" / Page(studio.index()).links[0]).unlink()
    assert studio.run(second) == 0
    assert studio.opened() == [(said(b"b"), said(b"b"))]
    assert "note: no longer in the gallery, as they or their pages have changed: a.png; explain them" in capsys.readouterr().err
    assert studio.run(first) == 0
    assert len(studio.opened()) == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_a_page_that_vanishes_during_the_run_is_a_failure(
    studio: Studio, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    first, second = studio.photo("a.png", b"a"), studio.photo("b.png", b"b")

    def spoil(file: Path) -> None:
        if file == second:
            (studio.folder / "out" / Page(studio.index()).links[0]).write_bytes(b"")

    studio.hook = spoil
    assert studio.run(first, second, as_json=as_json) == 1
    out, err = capsys.readouterr()
    assert "a.png: its page in" in err
    if as_json:
        assert "gone or changed" in json.loads(out.splitlines()[-1])["error"]
    else:
        assert "explained 1 of 2 photos" in out
    assert studio.opened() == [(said(b"b"), said(b"b"))]
    studio.hook = lambda file: None
    assert studio.run(first, second) == 0
    assert studio.seen == [first, second, first]


def test_an_index_that_does_not_reach_the_disk_is_an_error(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = studio.photo("a.png", b"a")
    write = files.write_bytes

    def short(path: Path, data: bytes) -> None:
        write(path, data[:-1] if path.name == "index.html" else data)

    monkeypatch.setattr(gallery_run, "write_bytes", short)
    with pytest.raises(FileError, match="is not as it was written"):
        studio.run(photo)


def test_a_second_run_on_the_same_gallery_is_refused(studio: Studio) -> None:
    photos = [studio.photo(f"{name}.png", name.encode()) for name in "abc"]
    assert studio.run(photos[0]) == 0
    before = studio.index()
    with files.locked(studio.folder / "out" / "index.html"), pytest.raises(FileError, match="is being written by process"):
        studio.run(photos[1])
    with files.locked(studio.folder / "out" / TABLE), pytest.raises(FileError, match="is being written by process"):
        studio.run(photos[1], out="out.html")  # another index with the same pages
    assert studio.index() == before
    assert studio.seen == photos[:1]


def test_an_error_that_ends_the_run_leaves_an_index_of_what_is_done(studio: Studio) -> None:
    photos = [studio.photo(f"{n:02}.png", b"%d" % n) for n in range(30)]

    def stop(file: Path) -> None:
        if file == photos[25]:
            raise KeyboardInterrupt

    studio.hook = stop
    assert studio.run(*photos) == 130
    assert len(studio.opened()) == 25
    assert "5 are still to come" in studio.index()


@pytest.mark.usefixtures("usual_signals")
def test_a_run_that_is_told_to_end_leaves_what_is_done(studio: Studio) -> None:
    photos = [studio.photo(f"{n}.png", b"%d" % n) for n in range(4)]
    studio.hook = lambda file: os.kill(os.getpid(), signal.SIGTERM) if file == photos[2] else None
    with pytest.raises(SystemExit) as ended:
        studio.run(*photos)
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(studio.opened()) == 2
    studio.hook = lambda file: None
    assert studio.run(*photos) == 0
    assert studio.seen == photos


def test_the_index_is_written_when_a_tenth_is_new(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = [studio.photo(f"{n}.png", b"%d" % n) for n in range(40)]
    written: list[int] = []
    write = files.write_bytes

    def noted(path: Path, data: bytes) -> None:
        if path.name == "index.html":
            written.append(data.count(b'<article class="card"'))
        write(path, data)

    monkeypatch.setattr(gallery_run, "write_bytes", noted)
    assert studio.run(*photos) == 0
    expected = [1]
    while expected[-1] + max(1, -(-expected[-1] // 10)) <= 40:
        expected.append(expected[-1] + max(1, -(-expected[-1] // 10)))
    assert written == [*expected, 40]


def test_state_of_earlier_versions_is_left_alone(studio: Studio) -> None:
    photo = studio.photo("a.png", b"a")
    old = studio.photo("out/progress.json", b'{"format": 1, "photos": {}}')
    assert studio.run(photo) == 0
    assert old.read_bytes() == b'{"format": 1, "photos": {}}'


def test_nothing_is_written_through_links_that_somebody_planted(studio: Studio) -> None:
    photo, precious = studio.photo("a.png", b"a"), studio.photo("precious", b"mine\n")
    (studio.folder / "out").mkdir()
    for name in ("index.html", "index.html.part", page_name(str(photo), "x", "y") + ".part"):
        (studio.folder / "out" / name).symlink_to(precious)
    with pytest.raises(OptionError, match=r"not written by integrand.* --force"):
        studio.run(photo)
    assert studio.run(photo, force=True) == 0
    assert precious.read_bytes() == b"mine\n"


# The table


def test_the_table_has_a_row_for_every_photo_and_says_where_its_page_is(studio: Studio) -> None:
    good, bad = studio.photo("a.png", b"a"), studio.photo("b.png", b"b")
    studio.hook = fails_on(bad)
    assert studio.run(good, bad) == 1
    [first, second] = ExplainedTable.open(studio.folder / "out").rows()
    assert (first.key, first.status, first.prediction) == (
        key_of(good),
        RESULT.certificate.only.status.value,
        f"says {said(b'a')}",
    )
    assert (studio.folder / "out" / str(first.columns["page"])).is_file()
    assert first.attributions.sum() == pytest.approx(float(RESULT.values.sum()), rel=1e-6)
    assert (second.key, second.status, second.columns["page"]) == (key_of(bad), "failed", None)
    assert "b.png is no photo" in str(second.failure)


def test_a_photo_that_failed_is_tried_again_if_it_is_asked_for_or_has_changed(studio: Studio) -> None:
    photos = [studio.photo(f"{name}.png", name.encode()) for name in "abc"]
    photos[2].unlink()
    studio.hook = fails_on(photos[1])
    assert studio.run(*photos) == 1
    studio.hook = lambda file: None
    studio.photo("c.png", b"there now")
    assert studio.run(*photos) == 1
    assert studio.seen == [photos[0], photos[2]]
    assert studio.run(*photos, retry_failed=True) == 0
    assert studio.seen == [photos[0], photos[2], photos[1]]
    assert len(studio.opened()) == 3


def test_photos_that_are_explained_together_are_kept_apart(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    photos = [studio.photo(f"{n:02}.png", b"%d" % n) for n in range(11)]
    studio.hook = fails_on(photos[4])
    assert studio.run(*photos, together=2) == 1
    assert studio.opened() == [(said(b"%d" % n),) * 2 for n in range(11) if n != 4]
    assert [line[:3] for line in capsys.readouterr().out.splitlines()[:-1]] == [f"{n:02}." for n in range(11) if n != 4]
    studio.hook = lambda file: None
    assert studio.run(*photos, together=2, retry_failed=True) == 0
    assert studio.run(*photos) == 0
    assert Counter(studio.seen) == Counter(photos)


@pytest.mark.parametrize("seed", range(2))
def test_no_table_can_write_into_a_page(studio: Studio, seed: int) -> None:
    draw = random.Random(seed)
    photos = [studio.photo(f"{name}.png", name.encode()) for name in "abc"]
    assert studio.run(*photos) == 0
    tags = Page(studio.index()).tags
    [part] = parts_of(studio.folder / "out" / TABLE)
    table = read_part(part)
    for _ in range(8):
        changed = [json.dumps(altered(json.loads(text), draw)) for text in table.column("details").to_pylist()]
        at = table.column_names.index("details")
        write_part(part, table.set_column(at, table.field("details"), [changed]))
        assert studio.run(*photos) == 0
        assert Page(studio.index()).tags <= tags
        assert len(Page(studio.index()).links) == 3


def test_an_unexpected_error_ends_the_run_if_its_traceback_is_asked_for(studio: Studio) -> None:
    def broken(file: Path) -> None:
        raise ZeroDivisionError("somewhere in a model")

    photo = studio.photo("a.png", b"a")
    studio.hook = broken
    with pytest.raises(ZeroDivisionError):
        run_many(PhotoJob(studio.explain, {}, "x", "y", debug=True), [photo], studio.folder / "out")
    assert studio.run(photo, settings={}) == 2
    assert "ZeroDivisionError: somewhere in a model. Check that" in studio.index()


# Names

NAMES = [b"caf\xe9.png", b"\xff\xfe.png", b"x" * 246 + b".png", b"y" * 251 + b".png", "é".encode() * 125 + b".png", b"a\nb.png"]
NAMES += [b"\x1b[2J.png", b"-rf.png", b"index.png", b"index.html", b"Case.png", b"case.png", b"7.png", b"progress.jsonl"]
NAMES += [b"<script>.png", b"a&b;c.png", b" .png", b"%41.png", b"a#b?c.png", b"..png", b"'\".png", "\u202egnp.png".encode()]


def test_no_name_is_too_odd(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    photos = [studio.photo(b"in/" + name, b"%d" % i) for i, name in enumerate(NAMES)]
    os.link(photos[0], studio.folder / "in" / "linked.png")
    photos.append(studio.folder / "in" / "linked.png")
    for _ in range(2):
        assert studio.run(*photos) == 0
        opened = studio.opened()
        assert len(opened) == len(photos)
        assert all(card == page for card, page in opened)
        assert f"explained {len(photos)} of {len(photos)}" in capsys.readouterr().out
    assert len(studio.seen) == len(photos)
    assert len(set(Page(studio.index()).links)) == len(photos)
    index = studio.index()
    assert "caf\\xe9.png" in index
    assert "\x1b" not in index
    assert index.count("<script") == 1  # ours


def test_an_odd_name_that_fails_is_said_and_resumed(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    photos = [studio.photo(b"in/" + name, b"%d" % i) for i, name in enumerate(NAMES)]

    def fail(file: Path) -> None:
        raise ValueError(f"{file} is bad")

    studio.hook = fail
    assert studio.run(*photos) == 2
    out, err = capsys.readouterr()
    assert err.count("not explained: ") == err.count("\n") == 21
    assert f"not explained: {len(photos) - 20} more; the table has the reasons" in err
    assert "\x1b" not in out + err + studio.index()
    studio.hook = lambda file: None
    assert studio.run(*photos) == 2  # they fail again, for all that is known
    assert studio.seen == []
    assert studio.run(*photos, retry_failed=True) == 0
    assert studio.seen == photos


@pytest.mark.parametrize("name", NAMES)
def test_one_photo_of_any_name_has_a_page_by_default(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, name: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = studio.photo(b"in/" + name, b"a")
    monkeypatch.chdir(studio.folder)
    written: list[Path] = []

    def save(explanation: object, where: Path, job: object) -> None:
        files.write_text(where, "page")
        written.append(where)

    monkeypatch.setattr(gallery_run, "_save", save)
    monkeypatch.setattr(gallery_run, "sum_note", lambda one: "")
    run_one(PhotoJob(studio.explain, {}, "x", "y"), photo, None, as_json=False)  # type: ignore[arg-type]
    assert written[0].read_text() == "page"
    assert "\x1b" not in capsys.readouterr().out


def test_files_are_told_apart_by_their_folders() -> None:
    assert told_apart(["/a/x.png"]) == {"/a/x.png": "x.png"}
    assert list(told_apart(["/a/b/x", "/c/b/x", "/x"]).values()) == ["a/b/x", "c/b/x", "/x"]
    assert told_apart([]) == {}


@pytest.mark.parametrize("seed", range(3))
def test_any_paths_are_told_apart(seed: int) -> None:
    draw = random.Random(seed)
    places = list({"/" + "/".join(draw.choices("ab", k=draw.randint(1, 6))) for _ in range(60)})
    names = told_apart(places)
    assert len(set(names.values())) == len(places)


@pytest.mark.parametrize("every", [1, 2])  # photos, of which that one fails
def test_photos_that_fail_do_not_have_the_index_written_for_each(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    photos = [studio.photo(f"{n:03}.png", b"%d" % n) for n in range(50)]
    written: list[Path] = []
    write = files.write_bytes

    def failing(file: Path) -> None:
        if int(file.stem) % every == 0:
            raise FileError(f"{file.name} is no photo.")

    def noted(path: Path, data: bytes) -> None:
        if path.name == "index.html":
            written.append(path)
        write(path, data)

    studio.hook = failing
    monkeypatch.setattr(gallery_run, "write_bytes", noted)
    assert studio.run(*photos) == (2 if every == 1 else 1)
    expected = [1]
    while expected[-1] + max(1, -(-expected[-1] // 10)) <= 50:
        expected.append(expected[-1] + max(1, -(-expected[-1] // 10)))
    assert len(written) == len(expected) + 1
