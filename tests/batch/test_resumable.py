"""The batch runner on toy inputs: stopped, resumed, past failures, with changed settings, in order; always the same table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.batch import BatchSummary, BatchTask, DocumentStore, EntryStore, LineStore, explain_each, kept_results
from integrand.errors import FileError, InputError, OptionError

KINDS = ["lines", "document"]


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


def opened(kind: str, path: Path, how: dict[str, Any] | None = None, *, again: bool = False) -> Any:
    if kind == "lines":
        return LineStore.opened(path, how or {}, again=again)
    return Held(DocumentStore(path, how or {}, again=again))


class Held:
    """A store that needs no closing, as a context."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store

    def __enter__(self) -> EntryStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        pass


def table(
    kind: str, path: Path, task: Squares, items: Sequence[str], **options: Any
) -> list[tuple[str, int | None, str | None]]:
    with opened(kind, path, **options) as store:
        return [(outcome.item, outcome.found, outcome.error) for outcome in explain_each(task, items, store)]


MANY = [str(n) for n in (5, 3, 9, 1, 7, 2, 8)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("done", range(0, 7))
def test_a_stopped_run_goes_on_and_gives_the_same_table(tmp_path: Path, kind: str, together: int, done: int) -> None:
    whole = table(kind, tmp_path / "whole", Squares(together=together), MANY)
    assert whole == [(text, int(text) ** 2, None) for text in MANY]
    stopped, resumed = Squares(together=together, stop_at=done // together * together), Squares(together=together)
    with pytest.raises(KeyboardInterrupt):
        table(kind, tmp_path / "store", stopped, MANY)
    assert table(kind, tmp_path / "store", resumed, MANY) == whole
    assert sorted(stopped.explained + resumed.explained) == sorted(MANY)  # every input exactly once
    assert table(kind, tmp_path / "store", last := Squares(), MANY) == whole
    assert last.explained == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_the_machine_in_the_middle_keeps_what_is_done(tmp_path: Path, kind: str) -> None:
    broken = Squares(bad=["1"], error=RuntimeError("the machine is on fire"))
    with pytest.raises(RuntimeError, match="on fire"):
        table(kind, tmp_path / "store", broken, MANY)
    assert broken.explained == ["5", "3", "9"]
    rest = Squares()
    assert [found for _, found, _ in table(kind, tmp_path / "store", rest, MANY)] == [int(text) ** 2 for text in MANY]
    assert rest.explained == ["1", "7", "2", "8"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_recorded_once_with_its_message_and_tried_again(tmp_path: Path, kind: str) -> None:
    path, items = tmp_path / "store", ["4", "unreadable", "6", "2"]
    for _ in range(3):
        with opened(kind, path) as store:
            summary: BatchSummary[str] = BatchSummary()
            for outcome in explain_each(Squares(bad=["6"]), items, store):
                summary.add(outcome)
        assert summary.failed == [("unreadable", "got 'unreadable'; expected a number."), ("6", "boom")]
        assert (summary.total, summary.explained, summary.exit_code) == (4, 2, 1)
    text = path.read_text()
    assert text.count("boom") == 1
    assert text.count("expected a number") == 1
    mended = Squares()
    assert table(kind, path, mended, items)[2] == ("6", 36, None)
    assert mended.explained == ["6"]


def test_the_exit_code_says_whether_some_or_all_failed() -> None:
    assert BatchSummary[str]().exit_code == 0
    assert BatchSummary[str](total=2).exit_code == 0
    assert BatchSummary(total=2, failed=[("a", "why")]).exit_code == 1
    assert BatchSummary(total=1, failed=[("a", "why")]).exit_code == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_no_input_is_to_blame_for_ends_the_run(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OptionError, match="tol"):
        table(kind, tmp_path / "store", Squares(bad=["3"], error=OptionError("got tol=-1")), MANY)


def test_of_a_batch_only_the_input_at_fault_fails(tmp_path: Path) -> None:
    task = Squares(together=3, bad=["3"])
    found = table("lines", tmp_path / "store", task, MANY)
    assert [error for _, _, error in found] == [None, "boom", None, None, None, None, None]
    assert task.batches == [["1"], ["2"], ["5", "7", "8"], ["9"]]


@pytest.mark.parametrize("kind", KINDS)
def test_other_settings_are_computed_again(tmp_path: Path, kind: str) -> None:
    path, first, second = tmp_path / "store", Squares(), Squares()
    table(kind, path, first, MANY, how={"tol": 0.1})
    table(kind, path, second, MANY, how={"tol": 0.2})
    assert first.explained == second.explained == MANY
    table(kind, path, third := Squares(), MANY, how={"tol": 0.2})
    assert third.explained == []
    table(kind, path, fourth := Squares(), MANY, how={"tol": 0.2}, again=True)
    assert fourth.explained == MANY


def test_lines_of_several_settings_live_in_one_file(tmp_path: Path) -> None:
    for tol in (0.1, 0.2):
        table("lines", tmp_path / "store", Squares(), MANY, how={"tol": tol})
    table("lines", tmp_path / "store", last := Squares(), MANY, how={"tol": 0.1})
    assert last.explained == []


def test_an_interrupted_run_that_does_all_again_leaves_the_old_entries_of_the_rest(tmp_path: Path) -> None:
    table("document", tmp_path / "store", Squares(), MANY)
    with pytest.raises(KeyboardInterrupt):
        table("document", tmp_path / "store", Squares(stop_at=2), MANY, again=True)
    assert set(json.loads((tmp_path / "store").read_text())["entries"]) == set(MANY)


def test_inputs_of_about_the_same_size_go_together_and_come_in_order(tmp_path: Path) -> None:
    task = Squares(together=2)
    found = table("lines", tmp_path / "store", task, MANY)
    assert task.batches == [["1", "2"], ["3", "5"], ["7", "8"], ["9"]]
    assert [item for item, _, _ in found] == MANY


def test_an_input_that_comes_twice_is_explained_once(tmp_path: Path) -> None:
    task = Squares(together=2)
    items = ["3", "1", "3", "3", "2", "1", "2", "2", "3"]  # the last is in another window
    assert table("lines", tmp_path / "store", task, items) == [(text, int(text) ** 2, None) for text in items]
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
    whole = table("lines", path, Squares(), MANY)
    left = bytearray(path.read_bytes()[: max(len(path.read_bytes()) - cut, 0)])
    if flip < len(left):
        left[flip] = ord("\n")
    path.write_bytes(left)
    assert table("lines", path, Squares(), MANY) == whole
    assert table("lines", path, last := Squares(), MANY) == whole
    assert last.explained == []


@pytest.mark.parametrize("left", [b"", b"{damaged", b"[]", b'{"format": 1, "entries": []}', b'{"format": 9, "entries": {}}'])
def test_a_damaged_document_counts_as_empty(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "store").write_bytes(left)
    assert table("document", tmp_path / "store", Squares(), ["2"]) == [("2", 4, None)]


class Changing(Squares):
    """Squares of inputs that change: an entry holds for the version that it was made of."""

    version = 1

    def about(self, item: str) -> dict[str, Any]:
        return {"version": self.version}

    def is_current(self, item: str, entry: dict[str, Any]) -> bool:
        return bool(entry["version"] == self.version)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_that_changed_is_explained_again(tmp_path: Path, kind: str) -> None:
    task = Changing()
    table(kind, tmp_path / "store", task, MANY)
    task.version = 2
    table(kind, tmp_path / "store", task, MANY)
    table(kind, tmp_path / "store", task, MANY)
    assert task.explained == [*MANY, *MANY]


def test_what_an_input_was_before_the_work_is_what_counts(tmp_path: Path) -> None:
    class Edited(Changing):
        def explain(self, items: Sequence[str]) -> list[int]:
            self.version += 1  # somebody saves the file while it is being explained
            return super().explain(items)

    task = Edited()
    assert table("lines", tmp_path / "store", task, ["3"]) == [("3", 9, None)]
    table("lines", tmp_path / "store", task, ["3"])
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
    with pytest.raises(FileError, match="cannot be written"):
        DocumentStore(tmp_path / "file" / "store", {}).put("a", {})
