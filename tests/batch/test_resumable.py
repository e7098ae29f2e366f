"""The batch runner on toy inputs: stopped, resumed, past failures, with changed settings, in order; always the same table."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.batch.resumable import BatchSummary, BatchTask, explain_each, kept_results
from integrand.batch.store import LineStore
from integrand.batch import store as store_module
from integrand.errors import FileError, InputError, OptionError


class Squares(BatchTask[str, int]):
    """The squares of numbers that are written as text; counts its work, and can be stopped or made to fail."""

    stops = (OptionError,)

    def __init__(
        self, *, together: int = 1, stop_at: int = -1, bad: Sequence[str] = (), error: Exception | None = None
    ) -> None:
        self.together, self.stop_at, self.bad = together, stop_at, bad
        self.error = error or InputError("boom")
        self.batches: list[list[str]] = []

    @property
    def explained(self) -> list[str]:
        return [item for batch in self.batches for item in batch]

    def key(self, item: str) -> str:
        return item

    def size(self, item: str) -> float:
        if item == "unreadable":
            raise InputError("got 'unreadable'; expected a number.")
        return float(item)

    def explain(self, items: Sequence[str]) -> list[int]:
        if len(self.explained) == self.stop_at:
            raise KeyboardInterrupt
        if set(items) & set(self.bad):
            raise self.error
        self.batches.append(list(items))
        return [int(item) ** 2 for item in items]

    def pack(self, item: str, found: int) -> dict[str, Any]:
        return {"square": found}

    def unpack(self, item: str, entry: dict[str, Any]) -> int:
        return int(entry["square"])


def table(
    path: Path, task: Squares, items: Sequence[str], *, how: dict[str, Any] | None = None, again: bool = False
) -> list[tuple[str, int | None, str | None]]:
    with LineStore.opened(path, how or {}, again=again) as store:
        return [(outcome.item, outcome.found, outcome.error) for outcome in explain_each(task, items, store)]


MANY = [str(n) for n in (5, 3, 9, 1, 7, 2, 8)]


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("done", range(0, 7))
def test_a_stopped_run_goes_on_and_gives_the_same_table(tmp_path: Path, together: int, done: int) -> None:
    whole = table(tmp_path / "whole", Squares(together=together), MANY)
    assert whole == [(text, int(text) ** 2, None) for text in MANY]
    stopped, resumed = Squares(together=together, stop_at=done // together * together), Squares(together=together)
    with pytest.raises(KeyboardInterrupt):
        table(tmp_path / "store", stopped, MANY)
    assert table(tmp_path / "store", resumed, MANY) == whole
    assert sorted(stopped.explained + resumed.explained) == sorted(MANY)  # every input exactly once
    assert table(tmp_path / "store", last := Squares(), MANY) == whole
    assert last.explained == []


def test_an_error_of_the_machine_in_the_middle_keeps_what_is_done(tmp_path: Path) -> None:
    broken = Squares(bad=["1"], error=RuntimeError("the machine is on fire"))
    with pytest.raises(RuntimeError, match="on fire"):
        table(tmp_path / "store", broken, MANY)
    assert broken.explained == ["5", "3", "9"]
    rest = Squares()
    assert [found for _, found, _ in table(tmp_path / "store", rest, MANY)] == [int(text) ** 2 for text in MANY]
    assert rest.explained == ["1", "7", "2", "8"]


def test_a_failure_is_recorded_once_with_its_message_and_tried_again(tmp_path: Path) -> None:
    path, items = tmp_path / "store", ["4", "unreadable", "6", "2"]
    for _ in range(3):
        with LineStore.opened(path, {}) as store:
            summary: BatchSummary[str] = BatchSummary()
            for outcome in explain_each(Squares(bad=["6"]), items, store):
                summary.add(outcome)
        assert summary.failed == [("unreadable", "got 'unreadable'; expected a number."), ("6", "boom")]
        assert (summary.total, summary.explained, summary.exit_code) == (4, 2, 1)
    text = path.read_text()
    assert text.count("boom") == 1
    assert text.count("expected a number") == 1
    mended = Squares()
    assert table(path, mended, items)[2] == ("6", 36, None)
    assert mended.explained == ["6"]


def test_the_exit_code_says_whether_some_or_all_failed() -> None:
    assert BatchSummary[str]().exit_code == 0
    assert BatchSummary[str](total=2).exit_code == 0
    assert BatchSummary(total=2, failed=[("a", "why")]).exit_code == 1
    assert BatchSummary(total=1, failed=[("a", "why")]).exit_code == 2


def test_an_error_that_no_input_is_to_blame_for_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="tol"):
        table(tmp_path / "store", Squares(bad=["3"], error=OptionError("got tol=-1")), MANY)


def test_of_a_batch_only_the_input_at_fault_fails(tmp_path: Path) -> None:
    task = Squares(together=3, bad=["3"])
    found = table(tmp_path / "store", task, MANY)
    assert [error for _, _, error in found] == [None, "boom", None, None, None, None, None]
    assert task.batches == [["1"], ["2"], ["5", "7", "8"], ["9"]]


def test_other_settings_are_computed_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "store", Squares(), Squares()
    table(path, first, MANY, how={"tol": 0.1})
    table(path, second, MANY, how={"tol": 0.2})
    assert first.explained == second.explained == MANY
    table(path, third := Squares(), MANY, how={"tol": 0.2})
    assert third.explained == []
    table(path, fourth := Squares(), MANY, how={"tol": 0.2}, again=True)
    assert fourth.explained == MANY


def test_lines_of_several_settings_live_in_one_file(tmp_path: Path) -> None:
    for tol in (0.1, 0.2):
        table(tmp_path / "store", Squares(), MANY, how={"tol": tol})
    table(tmp_path / "store", last := Squares(), MANY, how={"tol": 0.1})
    assert last.explained == []


def test_an_interrupted_run_that_does_all_again_leaves_the_old_entries_of_the_rest(tmp_path: Path) -> None:
    table(tmp_path / "store", Squares(), MANY)
    with pytest.raises(KeyboardInterrupt):
        table(tmp_path / "store", Squares(stop_at=2), MANY, again=True)
    with LineStore.opened(tmp_path / "store", {}) as store:
        assert [entry["square"] for entry in store.entries()] == [int(text) ** 2 for text in MANY]
    table(tmp_path / "store", rest := Squares(), MANY)
    assert rest.explained == []


def test_inputs_of_about_the_same_size_go_together_and_come_in_order(tmp_path: Path) -> None:
    task = Squares(together=2)
    found = table(tmp_path / "store", task, MANY)
    assert task.batches == [["1", "2"], ["3", "5"], ["7", "8"], ["9"]]
    assert [item for item, _, _ in found] == MANY


def test_an_input_that_comes_twice_is_explained_once(tmp_path: Path) -> None:
    task = Squares(together=2)
    items = ["3", "1", "3", "3", "2", "1", "2", "2", "3"]  # the last is in another window
    assert table(tmp_path / "store", task, items) == [(text, int(text) ** 2, None) for text in items]
    assert sorted(task.explained) == ["1", "2", "3"]


def test_inputs_are_taken_as_they_are_needed(tmp_path: Path) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[str]:
        for n in range(1_000_000):
            taken.append(n)
            yield str(n)

    with LineStore.opened(None, {}) as store:
        outcomes = explain_each(Squares(together=2), numbers(), store)
        assert next(outcomes).found == 0
    assert len(taken) == 8  # a window: four batches of two


@given(cut=st.integers(0, 400), flip=st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_whatever_a_kill_or_a_bad_disk_leaves_the_table_is_the_same(
    cut: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("kill") / "store"
    whole = table(path, Squares(), MANY)
    left = bytearray(path.read_bytes()[: max(len(path.read_bytes()) - cut, 0)])
    if flip < len(left):
        left[flip] = ord("\n")
    path.write_bytes(left)
    assert table(path, Squares(), MANY) == whole
    assert table(path, last := Squares(), MANY) == whole
    assert last.explained == []


FOREIGN = [b"", b"\n\n", b"{damaged", b"[]\n", b"\x00" * 300, b"x" * 200, b"[" * 100_000 + b"\n", b"somebody's notes\nand more"]


@pytest.mark.parametrize("left", FOREIGN)
def test_what_is_not_ours_is_left_alone(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "store").write_bytes(left)
    assert table(tmp_path / "store", Squares(), ["2"]) == [("2", 4, None)]
    assert (tmp_path / "store").read_bytes().startswith(left)
    assert table(tmp_path / "store", last := Squares(), ["2"]) == [("2", 4, None)]
    assert last.explained == []


def line(key: str, text: str) -> bytes:
    """A line as the store writes it, with any text in the place of an entry."""
    with tempfile.TemporaryFile() as file:
        store = LineStore(file.fileno(), {})
        name = store._name(key)
        return name + store._check(name, text.encode()) + text.encode() + b"\n"


USELESS = ["", "7", "null", "[]", "{}", "[" * 200_000, '{"square": ' * 100_000, "\x00", '{"square": ' + "9" * 5000 + "}"]
USELESS += [f'{{"square": {value}}}' for value in ("null", '"x"', "[]", "{}", "1e999", "NaN")]


@pytest.mark.parametrize("text", USELESS)
def test_an_entry_that_says_nothing_useful_is_made_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "store").write_bytes(line("2", text))
    assert table(tmp_path / "store", task := Squares(), ["2"]) == [("2", 4, None)]
    assert task.explained == ["2"]


def test_an_entry_that_lost_or_changed_a_letter_is_not_used(tmp_path: Path) -> None:
    table(tmp_path / "store", Squares(), ["3", "12"])
    kept = (tmp_path / "store").read_bytes()
    (tmp_path / "store").write_bytes(kept.replace(b"144", b"145"))
    assert table(tmp_path / "store", task := Squares(), ["3", "12"]) == [("3", 9, None), ("12", 144, None)]
    assert task.explained == ["12"]


def test_two_runs_at_once_are_refused_and_change_nothing(tmp_path: Path) -> None:
    table(tmp_path / "store", Squares(), MANY)
    kept = (tmp_path / "store").read_bytes()
    with LineStore.opened(tmp_path / "store", {}):
        for again in (False, True):
            with pytest.raises(FileError, match="is being written by process"):
                table(tmp_path / "store", Squares(), MANY, again=again)
    assert (tmp_path / "store").read_bytes() == kept


def test_a_journal_that_is_mostly_outdated_is_tidied_up(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"not ours\n")
    table(path, Squares(), MANY, how={"tol": 0.1})
    table(path, Squares(), MANY)
    for n in range(12):  # other results of the same inputs
        with LineStore.opened(path, {}) as store:
            store.put({key: {"square": int(key) ** 2, "run": n} for key in MANY})
    most = 2 * len(MANY) * 110
    assert path.stat().st_size < 3 * most
    with LineStore.opened(path, {}, again=True) as store:
        assert path.read_bytes().startswith(b"not ours\n")
        assert [entry["run"] for entry in store.entries()] == [11] * len(MANY)
    for how in ({}, {"tol": 0.1}):
        assert table(path, last := Squares(), MANY, how=how) == [(text, int(text) ** 2, None) for text in MANY]
        assert last.explained == []
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


def test_a_disk_that_is_full_when_a_journal_is_tidied_up_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    with LineStore.opened(path, {}) as store:
        for n in range(9):
            store.put({key: {"square": int(key) ** 2, "run": n} for key in MANY})
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        table(path, last := Squares(), MANY)
    assert last.explained == []
    assert path.read_bytes() == before
    table(path, last := Squares(), MANY)
    assert last.explained == []
    assert len(path.read_bytes()) < len(before) / 5


def test_keys_that_are_not_utf_8(tmp_path: Path) -> None:
    with LineStore.opened(tmp_path / "store", {"weights": "\udcff"}) as store:
        store.put({"caf\udce9": {"place": "caf\udce9"}, "\ud800": {}})
    with LineStore.opened(tmp_path / "store", {"weights": "\udcff"}) as store:
        assert store.get("caf\udce9") == {"place": "caf\udce9"}
        assert store.get("\ud800") == {}
        assert store.get("caf\udcea") is None


def test_a_batch_reaches_the_disk_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync
    with LineStore.opened(tmp_path / "store", {}) as store:
        monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_size), fsync(file)))
        list(explain_each(Squares(together=3), MANY, store))
    size = (tmp_path / "store").stat().st_size
    assert len(synced) == 3  # batches
    assert synced[-1] == size


class Changing(Squares):
    """Squares of inputs that change: an entry holds for the version that it was made of."""

    version = 1

    def about(self, item: str) -> dict[str, Any]:
        return {"version": self.version}

    def is_current(self, item: str, entry: dict[str, Any]) -> bool:
        return bool(entry["version"] == self.version)


def test_an_input_that_changed_is_explained_again(tmp_path: Path) -> None:
    task = Changing()
    table(tmp_path / "store", task, MANY)
    task.version = 2
    table(tmp_path / "store", task, MANY)
    table(tmp_path / "store", task, MANY)
    assert task.explained == [*MANY, *MANY]


def test_what_an_input_was_before_the_work_is_what_counts(tmp_path: Path) -> None:
    class Edited(Changing):
        def explain(self, items: Sequence[str]) -> list[int]:
            self.version += 1  # somebody saves the file while it is being explained
            return super().explain(items)

    task = Edited()
    assert table(tmp_path / "store", task, ["3"]) == [("3", 9, None)]
    table(tmp_path / "store", task, ["3"])
    assert task.explained == ["3", "3"]


def test_results_are_read_in_order_without_those_that_failed(tmp_path: Path) -> None:
    with LineStore.opened(tmp_path / "store", {}) as store:
        task = Squares(bad=["9"])
        list(explain_each(task, MANY, store))
        assert list(kept_results(task, MANY, store)) == [(text, int(text) ** 2) for text in MANY if text != "9"]


class Heard:
    """Somebody who notes what is said."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = 0

    def begin(self, name: str) -> None:
        self.names.append(name)

    def advance(self, count: int) -> None:
        self.done += count


def test_the_watcher_hears_of_every_input(tmp_path: Path) -> None:
    first, second = Heard(), Heard()
    items = ["3", "unreadable", "1", "2", "2"]
    with LineStore.opened(tmp_path / "store", {}) as store:
        list(explain_each(Squares(together=2), items, store, watcher=first))
        list(explain_each(Squares(together=2), items, store, watcher=second))
    assert first.names == ["1", "3"]
    assert second.names == []
    assert first.done == second.done == len(items)


def test_a_place_that_cannot_be_written_to_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"), LineStore.opened(tmp_path / "file" / "store", {}):
        pass


@pytest.mark.parametrize("left", [1, 40, 70, 90])
def test_a_line_that_a_kill_tore_does_not_hide_the_sound_one_before_it(tmp_path: Path, left: int) -> None:
    path = tmp_path / "store"
    for n in range(2):
        with LineStore.opened(path, {}) as store:
            store.put({"3": {"square": 9, "run": n, "about": "x" * 200}})
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:-left])
    for _ in range(2):  # the first run ends the torn line, the second finds it with an end
        with LineStore.opened(path, {}) as store:
            assert (store.get("3") or {}).get("run") == (1 if left == 1 else 0)
    assert table(path, task := Squares(), ["3"]) == [("3", 9, None)]
    assert task.explained == []


def test_a_torn_line_does_not_have_the_sound_one_tidied_away(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(line("3", '{"square": 9, "about": "%s"}' % ("x" * 3000)) + line("3", '{"square": 9}')[:-4])
    assert table(path, task := Squares(), ["3"]) == [("3", 9, None)]
    assert task.explained == []
    assert path.read_bytes().startswith(line("3", '{"square": 9, "about": "%s"}' % ("x" * 3000)))


def test_a_line_that_is_too_long_is_passed_by_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LONGEST_LINE", 1000)
    monkeypatch.setattr(store_module, "BLOCK", 64)
    path, long = tmp_path / "store", line("4", '{"square": "%s"}' % ("9" * 5000))
    table(path, Squares(), ["3"])
    for n in range(9):  # most of it becomes outdated
        with LineStore.opened(path, {}) as store:
            store.put({"3": {"square": 9, "run": n, "about": "x" * 800}})
    path.write_bytes(long + path.read_bytes() + long[:-1])
    assert table(path, task := Squares(), ["3", "4"]) == [("3", 9, None), ("4", 16, None)]
    assert task.explained == ["4"]
    assert path.read_bytes().count(long) == 2
    assert path.stat().st_size < 3 * len(long)  # tidied up
    assert table(path, last := Squares(), ["3", "4"]) == [("3", 9, None), ("4", 16, None)]
    assert last.explained == []


def test_an_entry_that_would_be_passed_by_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LONGEST_LINE", 1000)
    with LineStore.opened(tmp_path / "store", {}) as store:
        store.put({"1": {"about": "x" * 900}})
        with pytest.raises(FileError, match="a result takes 1078 bytes; expected at most 1000"):
            store.put({"2": {"about": "x" * 1000}})
    with LineStore.opened(tmp_path / "store", {}) as store:
        assert store.get("1") == {"about": "x" * 900}
        assert store.get("2") is None


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_a_planted_journal_that_is_one_large_hole_takes_little_memory(tmp_path: Path) -> None:
    with (path := tmp_path / "store").open("wb") as file:
        file.truncate(512 << 20)  # it takes no room on the disk
    code = (
        "import resource, sys; from pathlib import Path; from integrand.batch.store import LineStore\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)\n"
        "with LineStore.opened(Path(sys.argv[1]), {}) as store:\n"
        "    store.put({'1': {}})\n"
        "    print(store.get('1'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout == "{}\n", done.stderr


def test_a_journal_that_cannot_be_read_is_said_to_be_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    table(path, Squares(), ["3"])

    def broken(file: object) -> Iterator[object]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
        yield

    whole = store_module._lines
    for calls in (0, 1):  # when it is tidied up, and when it is indexed
        left = [whole] * calls
        monkeypatch.setattr(store_module, "_lines", lambda file: (left.pop() if left else broken)(file))  # noqa: B023
        with pytest.raises(FileError, match=r"store cannot be read \(Input/output error\)"):
            table(path, Squares(), ["3"])


def test_results_are_read_once_each(tmp_path: Path) -> None:
    class CountingStore(LineStore):
        read = 0

        def get(self, key: str) -> dict[str, Any] | None:
            self.read += 1
            return super().get(key)

    with tempfile.TemporaryFile() as file:
        store = CountingStore(file.fileno(), {})
        list(explain_each(task := Squares(), MANY, store))
        store.read = 0
        assert len(list(kept_results(task, MANY, store))) == len(MANY)
        assert store.read == len(MANY)


@pytest.mark.parametrize("together", [1, 2])
def test_an_input_that_comes_twice_in_a_run_was_not_done_before_it(tmp_path: Path, together: int) -> None:
    items = ["3", "1", "3", "3", "2", "1", "2", "2", "3", "5", "5"]
    for count in (0, len(items)):
        with LineStore.opened(tmp_path / "store", {}) as store:
            found = list(explain_each(Squares(together=together), items, store))
        assert sum(outcome.known for outcome in found) == count
    with LineStore.opened(tmp_path / "store", {}) as store:
        found = list(explain_each(Squares(together=together), ["4", *items, "4"], store))
    assert [outcome.item for outcome in found if not outcome.known] == ["4", "4"]
    with LineStore.opened(tmp_path / "store", {}, again=True) as store:
        assert not any(outcome.known for outcome in explain_each(Squares(together=together), items, store))
