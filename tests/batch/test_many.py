"""The runner over many inputs: stopped, resumed, past failures, with changed inputs, in order; always the same table."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import integrand as ig
from integrand.batch import (
    BatchSummary,
    BatchTask,
    ExplainedTable,
    Manifest,
    ModelExplainer,
    Row,
    TableStore,
    explain_each,
    many,
)
from integrand.batch.many import explain_window, windows
from integrand.batch.rows import rows_of
from integrand.errors import FileError, InputError, MissingExtraError, OptionError, TargetError


class Squares(BatchTask[str]):
    """The squares of numbers that are written as text; counts its work, and can be stopped or made to fail."""

    def __init__(
        self, *, together: int = 1, stop_at: int = -1, bad: Sequence[str] = (), error: BaseException | None = None
    ) -> None:
        self.together, self.stop_at, self.bad = together, stop_at, bad
        self.error = error or InputError("boom")
        self.batches: list[list[str]] = []
        self.version = ""

    @property
    def explained(self) -> list[str]:
        return [item for batch in self.batches for item in batch]

    def key(self, item: str) -> str:
        return item

    def digest(self, item: str) -> str:
        return self.version

    def size(self, item: str) -> float:
        if item == "unreadable":
            raise InputError("got 'unreadable'; expected a number.")
        return 100.0 + float(item)  # not so different that small ones would go by themselves

    def explain(self, items: Sequence[str]) -> list[int]:
        if len(self.explained) == self.stop_at:
            raise KeyboardInterrupt
        if set(items) & set(self.bad):
            raise self.error
        self.batches.append(list(items))
        return [int(item) ** 2 for item in items]

    def row(self, item: str, found: int) -> Row:
        return Row(status="exact", score=float(found), prediction=str(len(self.batches[-1])))


def run(
    folder: Path, task: Squares, items: Any, *, again: bool = False, **how: Any
) -> list[tuple[str, float | None, str | None]]:
    with TableStore.opened(folder, Manifest({}), again=again) as store:
        found = [(one.item, one.row.score, one.row.failure) for one in explain_each(task, items, store, **how)]
        store.finish()
    return found


def summed(folder: Path, task: Squares, items: Sequence[str], **how: Any) -> BatchSummary[str]:
    with TableStore.opened(folder, Manifest({})) as store:
        summary: BatchSummary[str] = BatchSummary()
        for outcome in explain_each(task, items, store, **how):
            summary.add(outcome)
    return summary


def same(one: Path, other: Path) -> bool:
    """Whether two tables are the same: all rows, in order, all columns, all bits."""
    tables = [ExplainedTable.open(folder).arrow().combine_chunks() for folder in (one, other)]
    return bool(tables[0].equals(tables[1], check_metadata=True))


MANY = [str(n) for n in (5, 3, 9, 1, 7, 2, 8)]


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("done", [0, 1, 4, 6])
def test_a_stopped_run_goes_on_and_gives_the_same_table(tmp_path: Path, together: int, done: int) -> None:
    items = [str(n) for n in range(20, 0, -1)] + MANY
    whole = run(tmp_path / "whole", Squares(together=together), items)
    assert [score for _, score, _ in whole] == [int(text) ** 2 for text in items]
    stopped = Squares(together=together, stop_at=done * together)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", stopped, items)
    resumed = Squares(together=together)
    assert run(tmp_path / "out", resumed, items) == whole
    assert same(tmp_path / "whole", tmp_path / "out")
    assert run(tmp_path / "out", last := Squares(), items) == whole
    assert last.explained == []


def test_a_failure_is_a_row_that_stays_until_it_is_tried_again(tmp_path: Path) -> None:
    items = ["4", "unreadable", "6", "2"]
    for _ in range(2):
        summary = summed(tmp_path, task := Squares(bad=["6"]), items)
        assert summary.reasons == [("unreadable", "got 'unreadable'; expected a number."), ("6", "boom")]
        assert (summary.total, summary.explained, summary.failed, summary.exit_code) == (4, 2, 2, 1)
    assert task.explained == []
    assert run(tmp_path, mended := Squares(), items)[2] == ("6", None, "boom")
    assert mended.explained == []
    assert run(tmp_path, mended, items, retry_failed=True)[2] == ("6", 36, None)
    assert mended.explained == ["6"]
    assert [row.status for row in ExplainedTable.open(tmp_path).rows()].count("failed") == 1


def test_a_stored_success_beats_a_failure(tmp_path: Path) -> None:
    run(tmp_path, Squares(), MANY)
    found = run(tmp_path, Squares(bad=["9"]), MANY, again=True)
    assert found[2] == ("9", None, "boom")
    assert all(row.ok for row in ExplainedTable.open(tmp_path).rows())


def test_the_exit_code_says_whether_some_or_all_failed() -> None:
    assert BatchSummary[str]().exit_code == 0
    assert BatchSummary[str](total=2).exit_code == 0
    assert BatchSummary[str](total=2, failed=1).exit_code == 1
    assert BatchSummary[str](total=1, failed=1).exit_code == 2


@pytest.mark.parametrize(
    "error", [RuntimeError("the machine is on fire"), MemoryError("no room"), torch.OutOfMemoryError("no room")]
)
@pytest.mark.parametrize("together", [1, 3])
def test_of_a_batch_only_the_input_at_fault_fails(tmp_path: Path, together: int, error: Exception) -> None:
    task = Squares(together=together, bad=["3"], error=error)
    found = run(tmp_path, task, MANY)
    assert [why for _, _, why in found] == [
        None,
        f"{type(error).__name__}: {error}",
        None,
        None,
        None,
        None,
        None,
    ]
    assert sorted(task.explained) == sorted(set(MANY) - {"3"})


@pytest.mark.parametrize("error", [OptionError("got tol=-1"), TargetError("got target 12"), TypeError("got total=1")])
def test_a_mistake_in_the_call_ends_the_run_and_one_in_an_input_does_not(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error), match="got t"):
        run(tmp_path / "call", Squares(together=2, bad=MANY, error=error), MANY)
    run(tmp_path / "call", Squares(), MANY[:1])  # no result is there that would not go with this one
    why = many._why(error)
    whole = run(tmp_path / "input", Squares(together=2, bad=["3", "8"], error=error), MANY)
    assert [said for _, _, said in whole if said] == [why] * 2
    run(tmp_path / "one", Squares(bad=["8"], error=error), MANY[:6])
    assert run(tmp_path / "one", Squares(bad=["8"], error=error), MANY)[-1] == ("8", None, why)  # alone, at the end


def test_what_no_input_is_to_blame_for_always_ends_the_run(tmp_path: Path) -> None:
    run(tmp_path, Squares(), MANY[:3])
    with pytest.raises(MissingExtraError):
        run(tmp_path, Squares(bad=["7"], error=MissingExtraError("it", "batch", "this")), MANY)
    assert run(tmp_path, rest := Squares(), MANY)[-1] == ("8", 64, None)
    assert rest.explained == ["7", "2", "8"]


def test_too_few_results_are_said(tmp_path: Path) -> None:
    class Short(Squares):
        def explain(self, items: Sequence[str]) -> list[int]:
            return super().explain(items)[1:]

    with pytest.raises(OptionError, match="got 0 results for 1 inputs; expected one for each"):
        run(tmp_path, Short(together=2), MANY)


def test_inputs_of_about_the_same_size_go_together_and_come_in_order(tmp_path: Path) -> None:
    found = run(tmp_path, task := Squares(together=2), MANY)
    assert task.explained == sorted(MANY)
    assert {len(batch) for batch in task.batches} == {1, 2}
    assert [item for item, _, _ in found] == MANY


@pytest.mark.parametrize("together", [1, 2])
def test_an_input_that_comes_twice_is_explained_once(tmp_path: Path, together: int) -> None:
    items = ["3", "1", "3", "3", "2", "1", "2", "2", "3", "5", "5"]  # some of them in another window
    task = Squares(together=together)
    assert run(tmp_path, task, items) == [(text, int(text) ** 2, None) for text in items]
    assert sorted(task.explained) == ["1", "2", "3", "5"]
    summary = summed(tmp_path, task, items)
    assert (summary.total, summary.known, summary.repeated, summary.clashes) == (11, 4, 7, [])


def test_two_inputs_with_one_key_are_named(tmp_path: Path) -> None:
    found = ig.explain_many(
        ["a", "b", "a", "c", "d"], lengths, tmp_path, key=lambda text: text if text < "c" else "a", progress=False
    )
    assert found.summary.repeated == 3
    assert found.summary.clashes == ["a", "a"]
    assert "left out, as another input has its key: a" in repr(found)
    assert [(row.key, row.prediction) for row in found.table.rows()] == [("a", "a"), ("b", "b")]


def test_inputs_are_taken_as_they_are_needed(tmp_path: Path) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[str]:
        for n in range(1_000_000):
            taken.append(n)
            yield str(n)

    def stopping(texts: list[str]) -> list[dict[str, Any]]:
        if len(taken) > 2:
            raise MissingExtraError("enough", "batch", "this")
        return lengths(texts)

    stopping.settings = {}  # type: ignore[attr-defined]
    with TableStore.opened(tmp_path, Manifest({})) as store:
        assert next(explain_each(Squares(together=2), numbers(), store)).row.score == 0
    assert len(taken) == 2 * many.LOOKAHEAD  # a window
    taken.clear()
    with pytest.raises(MissingExtraError, match="enough"):
        ig.explain_many(numbers(), stopping, tmp_path / "one size", together=2, progress=False)
    assert len(taken) == 4  # inputs of one size: no more than go together


def test_an_input_that_changed_is_explained_again(tmp_path: Path) -> None:
    task = Squares()
    for version in ("one", "one", "two" * 30, "two" * 30):
        task.version = version
        run(tmp_path, task, MANY)
    assert task.explained == [*MANY, *MANY]


def test_what_an_input_was_before_the_work_is_what_counts(tmp_path: Path) -> None:
    class Edited(Squares):
        def explain(self, items: Sequence[str]) -> list[int]:
            self.version += "x"  # somebody saves the file while it is being explained
            return super().explain(items)

    task = Edited()
    task.version = "x"
    for _ in range(2):
        assert run(tmp_path, task, ["3"]) == [("3", 9, None)]
    assert task.explained == ["3", "3"]


class Heard:
    """Somebody who notes what is said."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = self.failed = 0

    def begin(self, name: str) -> None:
        self.names.append(name)

    def advance(self, count: int, failed: int = 0) -> None:
        self.done += count
        self.failed += failed


def test_the_watcher_hears_of_every_input(tmp_path: Path) -> None:
    items = ["3", "unreadable", "1", "2", "2"]
    heard = [Heard(), Heard()]
    for one in heard:
        run(tmp_path, Squares(together=2), items, watcher=one)
    assert heard[0].names[0] == "1"
    assert heard[1].names == []
    assert [(one.done, one.failed) for one in heard] == [(5, 1), (5, 1)]


def test_a_window_alone_gives_the_same_rows(tmp_path: Path) -> None:
    run(tmp_path, task := Squares(together=2), MANY)
    kept = list(ExplainedTable.open(tmp_path).rows())
    alone = [row for window in windows(task, MANY) for row in explain_window(task, {one: one for one in window}).values()]
    assert alone == kept


# ---- explain_many ------------------------------------------------------------------------------------------------------------


def lengths(texts: list[str]) -> list[dict[str, Any]]:
    return [{"prediction": text, "score": float(len(text)), "attributions": [1.0] * len(text)} for text in texts]


def test_rows_without_a_column_say_that_one_is_to_be_named(tmp_path: Path) -> None:
    def texts(items: list[Any]) -> list[dict[str, Any]]:
        if not all(isinstance(item, str) for item in items):
            raise InputError("got a dict as a text; expected a text.")
        return lengths(items)

    rows = [{"id": i, "text": "a" * i} for i in (1, 2)]
    with pytest.raises(OptionError, match=r"got a dict as a text.*column= says which one is explained of id, text\."):
        ig.explain_many(rows, texts, tmp_path / "out", progress=False)
    assert ig.explain_many(rows, texts, tmp_path / "out", column="text", progress=False).summary.explained == 2


def test_another_option_is_told_as_that_and_nothing_else(tmp_path: Path) -> None:
    def texts(items: list[str], tol: float = 0.01) -> list[dict[str, Any]]:
        return lengths(items)

    ig.explain_many(["a"], texts, tmp_path, progress=False)
    with pytest.raises(OptionError, match=r"got explain\.options\.tol 0\.05 \(there: nothing\)\. Expected"):
        ig.explain_many(["a"], functools.partial(texts, tol=0.05), tmp_path, progress=False)


def test_a_bad_label_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = [(torch.rand(3), label) for label in (0, 1, 12, 1)]
    explain = ModelExplainer(torch.nn.Linear(3, 2).eval(), target_of=lambda pair: pair[1])
    found = ig.explain_many(data, explain, tmp_path, progress=False)
    assert [row.ok for row in found.table.rows()] == [True, True, False, True]
    assert "12" in found.summary.reasons[0][1]
    assert found.summary.reasons[0][0].item is None  # not held: it may be large


def test_a_source_that_breaks_keeps_what_is_done_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "LOOKAHEAD", 8)

    def broken(at: int) -> Iterator[str]:
        for i in range(40):
            if i == at:
                raise RuntimeError("no more")
            yield f"text {i}"

    with pytest.raises(RuntimeError, match="no more"):
        ig.explain_many(broken(21), lengths, tmp_path / "out", together=2, size=len, progress=False)
    assert len(ExplainedTable.open(tmp_path / "out")) == 16
    found = ig.explain_many(broken(-1), lengths, tmp_path / "out", together=2, size=len, progress=False)
    ig.explain_many(broken(-1), lengths, tmp_path / "whole", together=2, size=len, progress=False)
    assert found.summary.known == 16
    assert same(tmp_path / "out", tmp_path / "whole")


def test_a_source_that_grows_shrinks_turns_and_changes(tmp_path: Path) -> None:
    calls: list[str] = []

    def explain(texts: list[str]) -> list[dict[str, Any]]:
        calls.extend(texts)
        return lengths(texts)

    explain.settings = {"how": "by length"}  # type: ignore[attr-defined]
    data = {str(i): f"text {i}" for i in range(9)}
    for change, expected in [
        ({}, list(data.values())),
        ({"9": "new"}, ["new"]),
        (dict(reversed(data.items())), []),
        ({"3": "another text"}, ["another text"]),
    ]:
        calls.clear()
        found = ig.explain_many({**data, **change}, explain, tmp_path, progress=False)
        assert calls == expected
    calls.clear()
    ig.explain_many({"4": data["4"]}, explain, tmp_path, progress=False)
    assert (calls, len(found.table)) == ([], 10)  # rows of inputs that are not asked for stay
    assert {row.key: row.prediction for row in found.table.rows()}["3"] == "another text"


def test_what_a_row_carries_counts_as_its_input(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "one", "label": 1}, {"id": "b", "text": "two", "label": 2}]
    for label, carry in ((1, ["label"]), (5, ["label"]), (5, {"label": "truth"})):
        rows[0]["label"] = label
        found = ig.explain_many(rows, lengths, tmp_path, key="id", column="text", carry=carry, progress=False)
    kept = found.table.arrow().to_pylist()
    assert [(row["label"], row["truth"]) for row in kept] == [(None, 5), (None, 2)]
    with pytest.raises(OptionError, match=r"give it another name: carry=\{'target': 'own_target'\}"):
        ig.explain_many([{"target": 1}], lengths, tmp_path / "other", carry=["target"], progress=False)
    with pytest.raises(OptionError, match=r"expected a list of columns: carry=\['label'\]"):
        ig.explain_many(rows, lengths, tmp_path / "other", carry="label", progress=False)


def test_an_explanation_that_changes_its_kind_midway_fails_those_inputs_only(tmp_path: Path) -> None:
    def odd(texts: list[str]) -> Any:
        if "odd" in texts:
            return None if len(texts) == 1 else lengths(texts)[1:]
        return lengths(texts)

    found = ig.explain_many(["a", "odd", "b"], odd, tmp_path, together=2, progress=False)
    assert [row.ok for row in found.table.rows()] == [True, False, True]
    assert "explain gave a NoneType" in found.summary.reasons[0][1]


@pytest.mark.parametrize("keep", ["auto", "values", "lists", "files", "none"])
def test_attributions_are_kept_as_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Any) -> None:
    monkeypatch.setattr(many, "MOST_VALUES", 2)
    torch.manual_seed(0)
    data = torch.rand(5, 3)
    explain = ModelExplainer(torch.nn.Linear(3, 2).eval(), target=0)
    rows = list(ig.explain_many(data, explain, tmp_path, attributions=keep, progress=False).table.rows())
    plain = ig.integrated_gradients(explain.model, data, target=0, progress=False).values
    for i, row in enumerate(rows):
        if keep in ("auto", "files"):
            values = ig.Attribution.load(tmp_path / str(row.attribution_file)).values[0]
            torch.testing.assert_close(values, plain[i])
        assert (row.attributions is None) == (keep in ("auto", "files", "none"))
    if keep == "files":
        (tmp_path / str(rows[2].attribution_file)).unlink()
        again = ig.explain_many(data, explain, tmp_path, attributions=keep, progress=False)
        assert again.summary.known == 4
        assert [row.key for row in again.table.rows() if not (tmp_path / str(row.attribution_file)).exists()] == []
    with pytest.raises(OptionError, match=r"got attributions='all'; expected one of auto"):
        ig.explain_many(data, explain, tmp_path, attributions="all")  # type: ignore[arg-type]


def test_files_of_inputs_that_changed_or_share_a_key(tmp_path: Path) -> None:
    """Each file is that of the input whose row names it, and no others stay."""
    explain = ModelExplainer(torch.nn.Linear(3, 2).eval(), target=0)

    def values(data: Any, **more: Any) -> list[torch.Tensor]:
        done = ig.explain_many(data, explain, tmp_path, key=lambda x: str(int(x[0])), attributions="files", progress=False)
        rows = list(done.table.rows())
        assert {f"_attributions/{path.name}" for path in (tmp_path / "_attributions").iterdir()} == {
            row.attribution_file for row in rows
        }
        return [ig.Attribution.load(tmp_path / str(row.attribution_file)).values[0] for row in rows]

    one, two = torch.tensor([[0.0, 1, 2], [1, 2, 3], [0, 5, 5]]), torch.tensor([[0.0, 1, 2], [1, 2, 4]])
    for data in (one, two):
        plain = ig.integrated_gradients(explain.model, data[:2], target=0, progress=False).values
        torch.testing.assert_close(torch.stack(values(data)), plain)


def test_sums_stay_in_the_row_beside_the_file_and_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    explain = ModelExplainer(torch.nn.Linear(3, 2).eval(), target=0)

    def summed(items: list[torch.Tensor]) -> list[Row]:
        return [replace(row, attributions=np.array([1.0, 2.0])) for row in rows_of(explain(items), len(items))]

    table = ig.explain_many(torch.rand(2, 3), summed, tmp_path / "sums", attributions="files", progress=False).table
    for row in table.rows():
        assert list(row.attributions) == [1.0, 2.0]  # type: ignore[arg-type]
        assert (table.folder / str(row.attribution_file)).exists()
    with pytest.raises(OptionError, match=r"got attributions='files' and results that are dicts.*attributions='values'"):
        ig.explain_many(["a"], numbers, tmp_path / "dicts", attributions="files", progress=False)


def numbers(texts: list[str]) -> list[dict[str, Any]]:
    return [{"attributions": [1.0, 2.0]} for _ in texts]


@pytest.mark.parametrize("together", [0, -1, 2.5, "3"])
def test_how_many_go_together_is_a_number(tmp_path: Path, together: Any) -> None:
    with pytest.raises(OptionError, match="expected how many inputs are explained in one call, at least 1"):
        ig.explain_many(["a"], lengths, tmp_path, together=together)


class Counting(torch.nn.Module):
    """Counts the rows of each call; swings often for large inputs, hardly for small ones."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(x))
        return torch.sin(x * x).sum(1)


def test_inputs_share_the_models_calls_and_each_stops_on_its_own(tmp_path: Path) -> None:
    hard, easy = torch.full((1, 4), 15.0), torch.full((23, 4), 0.05)
    data = torch.cat([hard, easy]).double()
    model = Counting().eval()
    explain = ModelExplainer(model, tol=1e-4, chunk=64)
    rows = list(ig.explain_many(data, explain, tmp_path, progress=False).table.rows())
    assert rows[0].evaluations > 4 * rows[1].evaluations  # the easy ones stopped early
    assert max(model.calls) <= 64
    assert sum(model.calls) / len(model.calls) > 48  # chunks are full, with rows of several inputs
    together = len(model.calls)
    model.calls.clear()
    for one in data:
        ig.integrated_gradients(model, one[None], tol=1e-4, chunk=64, progress=False)
    assert together < len(model.calls) / 2


def test_named_features_have_their_errors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    explain = ModelExplainer(torch.nn.Linear(2, 1).double().eval(), features=["age", "size"], together=3)
    rows = list(ig.explain_many([[1.0, 2.0], np.array([3.0, 4.0]), (5.0, 6.0)], explain, tmp_path, progress=False).table.rows())
    weights = explain.model.weight[0].tolist()
    assert [row.features for row in rows] == [("age", "size")] * 3
    np.testing.assert_allclose(rows[2].attributions, [5 * weights[0], 6 * weights[1]], rtol=1e-9)
    assert rows[2].attributions.dtype == np.float64
    assert all(len(row.attribution_errors or ()) == 2 for row in rows)
    with pytest.raises(OptionError, match="got 3 names for 2 features"):
        ig.explain_many([[1.0, 2.0]], ModelExplainer(explain.model, features="abc"), tmp_path / "other", progress=False)


def test_the_sentence_tells_how_it_went(tmp_path: Path) -> None:
    def picky(texts: list[str]) -> list[dict[str, Any]]:
        if "bad" in texts:
            raise ValueError("not this one")
        return lengths(texts)

    found = ig.explain_many(["a", "bad", "b"], picky, tmp_path, progress=False)
    assert found.sentence.startswith("2 of 3 inputs explained, 1 failed (retry_failed=True tries them again); ")
    assert "failed: 1: ValueError: not this one" in repr(found)
    assert ig.explain_many(["a", "bad", "b"], picky, tmp_path, progress=False).summary.known == 2


# ---- signals, other threads, full disks --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_ends_the_run_with_all_rows_written_and_the_handlers_as_they_were(
    tmp_path: Path, number: int, how: type[BaseException]
) -> None:
    def explain(texts: list[str]) -> list[dict[str, Any]]:
        if "5" in texts and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return lengths(texts)

    sent: list[int] = []
    explain.settings = {}  # type: ignore[attr-defined]
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    with pytest.raises(how) as end:
        ig.explain_many(list(map(str, range(9))), explain, tmp_path / "out", together=1, progress=False)
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)] == before
    if how is SystemExit:
        assert end.value.code == 128 + number  # type: ignore[attr-defined]
    assert len(ExplainedTable.open(tmp_path / "out")) == 5
    for folder in ("out", "whole"):
        ig.explain_many(list(map(str, range(9))), explain, tmp_path / folder, together=1, progress=False)
    assert same(tmp_path / "out", tmp_path / "whole")


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(("number", "how"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_that_somebody_swallows_ends_the_run_at_the_next_input(
    tmp_path: Path, number: int, how: type[BaseException]
) -> None:
    def explain(texts: list[str]) -> list[dict[str, Any]]:
        if "2" in texts:
            with contextlib.suppress(BaseException):  # as Python does where an object is being deleted
                os.kill(os.getpid(), number)
        return lengths(texts)

    with pytest.raises(how):
        ig.explain_many(list(map(str, range(9))), explain, tmp_path, together=1, progress=False)
    assert len(ExplainedTable.open(tmp_path)) == 3


@pytest.mark.usefixtures("usual_signals")
def test_a_run_within_a_run_and_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    def outer(texts: list[str]) -> list[dict[str, Any]]:
        mine = signal.getsignal(signal.SIGTERM)
        ig.explain_many(texts, lengths, tmp_path / f"inner {texts[0]}", progress=False)
        assert signal.getsignal(signal.SIGTERM) is mine
        return lengths(texts)

    outer.settings = {}  # type: ignore[attr-defined]
    ig.explain_many(["a", "b"], outer, tmp_path / "outer", together=1, progress=False)
    ended: list[int] = []
    thread = threading.Thread(
        target=lambda: ended.append(len(ig.explain_many(["a"], lengths, tmp_path / "thread", progress=False).table))
    )
    thread.start()
    thread.join()
    assert ended == [1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are those of Unix")
def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    ig.explain_many(["a"], lengths, tmp_path / "out", progress=False)
    (tmp_path / "out").chmod(0o500)
    try:
        if os.access(tmp_path / "out", os.W_OK):  # the superuser may write anywhere: a child that is not him tries
            child = os.fork()
            if not child:
                code = 1
                try:
                    tmp_path.chmod(0o755)
                    os.seteuid(65534)
                    ig.explain_many(["a", "b"], lengths, tmp_path / "out", progress=False)
                except FileError as error:
                    code = 0 if "cannot be" in str(error) else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        else:
            with pytest.raises(FileError, match="cannot be written"):
                ig.explain_many(["a", "b"], lengths, tmp_path / "out", progress=False)
    finally:
        (tmp_path / "out").chmod(0o700)
    assert len(ig.explain_many(["a", "b"], lengths, tmp_path / "out", progress=False).table) == 2


def test_progress_shows_the_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")

    def half(texts: list[str]) -> list[dict[str, Any]]:
        if "1" in texts:
            raise ValueError("no")
        return lengths(texts)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ig.explain_many(["0", "1", "2"], half, tmp_path, together=1, progress=True)
    said = capsys.readouterr().err
    assert "3/3" in said
    assert "1 failed" in said


def test_another_key_is_another_table(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    ig.explain_many(rows, lengths, tmp_path, column="text", progress=False)
    with pytest.raises(OptionError, match=r'key "id" \(there: "the place in the source"\)'):
        ig.explain_many(rows, lengths, tmp_path, column="text", key="id", progress=False)
