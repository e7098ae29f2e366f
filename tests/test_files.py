"""Files that are complete at any moment, whoever writes, is killed, or has planted something; and reading that always ends."""

import errno
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import re
import signal
import stat
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import integrand as ig
from integrand import files
from integrand.errors import FileError
from integrand.words import cell, shown

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, forks and permissions are those of POSIX systems")


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    files.write_text(tmp_path / "page.html", "old")
    with files.replacing(tmp_path / "page.html") as part:
        part.write_text("new")
        assert (tmp_path / "page.html").read_text() == "old"
        assert part.suffix == ".html"  # writers that go by the ending can write to it
    assert (tmp_path / "page.html").read_text() == "new"
    assert _names(tmp_path) == ["page.html"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ValueError("no"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    files.write_text(tmp_path / "page.html", "old")

    def write() -> None:
        with files.replacing(tmp_path / "page.html") as part:
            part.write_text("half of the ne")
            raise error

    with pytest.raises((FileError, type(error))):
        write()
    assert (tmp_path / "page.html").read_text() == "old"
    assert _names(tmp_path) == ["page.html"]


def test_a_full_disk_is_an_error_of_one_line(tmp_path: Path) -> None:
    said = r"page.html cannot be written \(No space left on device\)"
    with pytest.raises(FileError, match=said), files.replacing(tmp_path / "page.html"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_permissions_stay_and_new_files_get_the_usual_ones(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "new", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    files.write_text(tmp_path / "new", "y")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_links_are_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "page.html").symlink_to("precious")
    (tmp_path / "page.html.part").symlink_to("precious")
    files.write_text(tmp_path / "page.html", "page")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "page.html").read_text() == "page"
    assert not (tmp_path / "page.html").is_symlink()


def test_a_pipe_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "page.html")
    with pytest.raises(FileError, match="it is a pipe"):
        files.write_text(tmp_path / "page.html", "page")
    with pytest.raises(FileError, match="Is a directory"):
        files.write_text(tmp_path, "page")


def test_the_longest_name_can_be_written_and_locked(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".html")
    assert len(os.fsencode(path.name)) == files.LONGEST_NAME
    with files.locked(path):
        files.write_text(path, "page")
    assert _names(tmp_path) == [path.name]


def test_many_writers_of_one_file_leave_one_of_their_texts(tmp_path: Path) -> None:
    texts = [str(i) * 100_000 for i in range(10)]
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda text: files.write_text(tmp_path / "page.html", text), texts * 5))
    assert (tmp_path / "page.html").read_text() in texts
    assert _names(tmp_path) == ["page.html"]


def _write_for_ever(path: Path) -> None:
    while True:
        for letter in "ab":
            files.write_text(path, letter * 1_000_000)


def test_kills_leave_a_whole_file_and_the_next_lock_tidies_up(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        writer = context.Process(target=_write_for_ever, args=(path,))
        writer.start()
        while not path.exists():
            time.sleep(0.001)
        time.sleep(0.02)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert path.read_text() in ("a" * 1_000_000, "b" * 1_000_000)
    (tmp_path / ".mine.part").write_text("not ours")
    with files.replacing(tmp_path / "other.html") as part:
        part.write_text("being written")
        with files.locked(path):
            pass
        assert part.exists()
    assert _names(tmp_path) == [".mine.part", "other.html", "page.html"]


HOLD = """
import sys, time
from pathlib import Path
from integrand.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("folder", [False, True])
def test_the_error_says_who_holds_a_lock_and_a_kill_lifts_it(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "values.csv"
    if folder:
        path.mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FileError) as caught, files.locked(path):
            pass
        said = rf"(?s)values\.csv is being written by process {other.pid} on \S+ since \d{{4}}-.* \(-c .*values\.csv\)\. Wait"
        assert re.search(said, str(caught.value)), str(caught.value)
        other.kill()
    with files.locked(path):
        pass
    assert _names(path if folder else tmp_path) == []


def test_only_one_thread_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    inside, most, refused = [0], [0], [0]

    def hold(_: int) -> None:
        try:
            with files.locked(tmp_path / "values.csv"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0002)
                inside[0] -= 1
        except FileError:
            refused[0] += 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, range(400)))
    assert most[0] == 1
    assert refused[0] < 400
    assert _names(tmp_path) == []


def test_a_planted_lock_is_no_way_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".values.csv.lock").symlink_to("precious")
    with pytest.raises(FileError), files.locked(tmp_path / "values.csv"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_other_names_of_a_file_are_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    for name in (".values.csv.lock", "values.jsonl"):
        os.link(tmp_path / "precious", tmp_path / name)
    with pytest.raises(FileError, match=r"\.values\.csv\.lock has other names too"), files.locked(tmp_path / "values.csv"):
        pass
    with pytest.raises(FileError, match=r"values\.jsonl has other names too"), files.appending(tmp_path / "values.jsonl"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_file_that_is_called_like_a_lock_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".values.csv.lock").write_text("my notes on locks")
    with pytest.raises(FileError, match="none of ours"), files.locked(tmp_path / "values.csv"):
        pass
    assert (tmp_path / ".values.csv.lock").read_text() == "my notes on locks"


def test_a_file_that_is_too_large_for_a_digest_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(FileError, match="has 4 TiB; expected a file of at most 1 GiB"):
        files.digest_of(tmp_path / "sparse")


def test_whatever_a_lock_file_says_the_error_has_one_line(tmp_path: Path) -> None:
    lock = tmp_path / ".values.csv.lock"
    said = {"process": 7, "host": "\x1b[2J", "since": "\n", "command": "é" * 10}
    for text in (b"", b"\xff", b"[" * 10_000, b"{}", json.dumps(said).encode()):
        lock.write_bytes(text)
        with lock.open("r+b") as held:
            files._lock(held.fileno())
            with pytest.raises(FileError, match="is being written by") as caught, files.locked(tmp_path / "values.csv"):
                pass
        assert str(caught.value).isprintable()


def test_reading_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(FileError, match=kind):
            files.read_bytes(path, what="text")
    with pytest.raises(FileError, match=r"cannot be read \(No such file or directory\); expected text"):
        files.read_bytes(tmp_path / "nothing", what="text")
    with pytest.raises(FileError, match="cannot be read"):
        files.read_bytes(Path("nul\0"), what="text")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="has 1 TiB; expected text of at most 1 GiB"):
        files.read_bytes(tmp_path / "sparse", what="text")
    (tmp_path / "small").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "small", what="text", most=5) == b"12345"
    with pytest.raises(FileError, match="5 bytes; expected text of at most 4 bytes"):
        files.read_bytes(tmp_path / "small", what="text", most=4)


def test_no_more_memory_is_taken_than_the_file_has(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert files.read_bytes(tmp_path / "small", what="text") == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"12345")
    whole = os.fstat

    def smaller(file: int) -> os.stat_result:
        known = list(whole(file))
        known[stat.ST_SIZE] -= 1
        return os.stat_result(known)

    monkeypatch.setattr(os, "fstat", smaller)
    with pytest.raises(FileError, match="grows while it is read"):
        files.read_bytes(path, what="text")


def test_a_disk_that_fails_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    with (
        pytest.raises(FileError, match=r"cannot be read \(Input/output error\)"),
        files.reading(tmp_path / "small", what="text"),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(gzip.BadGzipFile), files.reading(tmp_path / "small", what="text"):
        raise gzip.BadGzipFile("not gzip")  # what a format's reader says is its caller's to handle


def test_a_new_part_that_somebody_is_about_to_remove_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, refused = files._lock, []

    def taken(file: int) -> None:
        if not refused:
            refused.append(file)
            raise BlockingIOError
        lock(file)

    monkeypatch.setattr(files, "_lock", taken)
    files.write_text(tmp_path / "page.html", "page")
    assert refused
    assert (tmp_path / "page.html").read_text() == "page"


@given(st.text())
def test_what_is_shown_has_nothing_to_obey(text: str) -> None:
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown(text))
    assert shown(shown(text)) == shown(text)
    shown(text).encode()
    assert re.search("[\x00-\x08\x0b-\x1f]", shown(text, lines=True)) is None


@given(st.text())
def test_a_cell_is_never_a_formula(text: str) -> None:
    found = cell(text)
    assert found in (text, f"'{text}")
    try:
        float(found)
    except ValueError:
        assert not found.lstrip().startswith(("=", "+", "-", "@"))


def test_a_text_file_keeps_line_ends_and_replaces_what_is_no_text(tmp_path: Path) -> None:
    with files.text_file(tmp_path / "a.csv") as file:
        assert isinstance(file, io.TextIOBase)
        file.write("a\r\nb\ud800\n")
    assert (tmp_path / "a.csv").read_bytes() == b"a\r\nb?\n"


def test_what_is_appended_is_there_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    with files.appending(path) as file:
        assert files.append(file, b"one\n") == 0
        assert files.append(file, b"two\n") == 4
        write = os.write

        def half(file: int, data: bytes) -> int:
            if len(data) < 4:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(file, data[:3])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(OSError, match="No space"):
                files.append(file, b"three\n")
            patch.setattr(os, "write", lambda file, data: write(file, data[:1]))  # short writes go on
            files.append(file, b"four\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
            with pytest.raises(OSError, match="broken"):
                files.append(file, b"five\n")
    assert path.read_bytes() == b"one\ntwo\nfour\n"


def test_a_line_without_an_end_gets_one_and_nothing_is_cut(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"somebody's notes")
    with files.appending(tmp_path / "journal") as file:
        files.append(file, b"mine\n")
    assert (tmp_path / "journal").read_bytes() == b"somebody's notes\nmine\n"


def test_nothing_is_appended_through_a_link_or_to_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine\n")
    (tmp_path / "link").symlink_to("precious")
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("link", "it is a link"), ("pipe", "is a pipe"), (".", "directory")):
        with pytest.raises(FileError, match=said), files.appending(tmp_path / name):
            pass
    assert (tmp_path / "precious").read_text() == "mine\n"


@given(st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=400))
def test_names_are_made_to_fit_and_stay_apart(stem: str) -> None:
    name = files.fitting(stem, ".progress.jsonl")
    assert len(os.fsencode(name)) <= files.LONGEST_NAME
    assert name.endswith(".progress.jsonl")
    name.encode()  # no letter is cut in two
    assert files.fitting(stem + "x", ".progress.jsonl") != name


def test_a_digest_is_of_what_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.digest_of(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(FileError, match="cannot be read"):
        files.digest_of(tmp_path / "b")


def test_a_disk_that_fails_for_a_folder_is_an_error_and_one_that_cannot_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def failing(number: int) -> None:
        def sync(file: int) -> None:
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(number, os.strerror(number))
            fsync(file)

        monkeypatch.setattr(os, "fsync", sync)

    failing(errno.EINVAL)
    files.write_text(tmp_path / "page.html", "page")
    failing(errno.EIO)
    with pytest.raises(FileError, match="Input/output error"):
        files.write_text(tmp_path / "page.html", "page")


def test_a_name_with_a_nul_is_refused(tmp_path: Path) -> None:
    for use in (
        lambda path: files.write_text(path, "text"),
        files.ready,
        lambda path: ig.explain_many(["a"], pytest.fail, path),
    ):
        with pytest.raises(FileError, match="no NUL"):
            use(tmp_path / "a\0b")


def test_on_windows_who_looks_at_the_old_file_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An indexer, or a browser: to replace an open file is a PermissionError there."""
    place, replace, errors = tmp_path / "a.html", os.replace, [PermissionError(errno.EACCES, "in use")] * 3

    def busy(part: Path, path: Path) -> None:
        if errors:
            raise errors.pop()
        replace(part, path)

    monkeypatch.setattr(files, "_WINDOWS", True)
    monkeypatch.setattr(files, "_TRY_SECONDS", 0)
    monkeypatch.setattr(os, "replace", busy)
    files.write_text(place, "new")
    assert place.read_text() == "new"
    errors += [PermissionError(errno.EACCES, "in use")] * 99
    with pytest.raises(FileError, match="in use"):
        files.write_text(place, "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.skipif(sys.platform == "win32", reason="has no fcntl")
def test_on_macos_the_drive_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    asked: list[int] = []

    def control(file: int, command: int) -> None:
        asked.append(command)
        if len(asked) > 1:
            raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    files.write_text(tmp_path / "a", "text")
    assert asked == [51, 51]  # the file, and its folder, whose file system has no such thing
