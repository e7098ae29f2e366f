"""The table of many inputs: odd keys, columns that change, kills between any two steps, damage, folders of somebody else's."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.batch import table as table_module
from integrand.batch.rows import COLUMN_NAMES, Row, rows_of
from integrand.batch.table import (
    MANIFEST,
    ExplainedTable,
    KeyIndex,
    Manifest,
    TableStore,
    fingerprint,
    parts_of,
    short_digest,
    tidy,
)
from integrand.errors import FileError, OptionError


def done(key: str, **known: Any) -> Row:
    return Row(**{"key": key, "status": "exact", "score": 1.0} | known)


def written(folder: Path, *windows: Sequence[Row], how: Any = None, again: bool = False) -> ExplainedTable:
    """A table that was written in one run, with a part for each window of rows."""
    with TableStore.opened(folder, Manifest(how or {}), again=again) as store:
        for window in windows:
            store.put(window)
            store.flush()
        store.finish()
    return ExplainedTable.open(folder)


def keys(folder: Path) -> list[str]:
    return [row.key for row in ExplainedTable.open(folder).rows()]


# ---- keys and columns --------------------------------------------------------------------------------------------------------

ODD = [
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "caf\udce9",
    "日本",
    "x" * 1_000_000,
    "=1+1",
    "../..",
    "'; drop",
    " ",
    "é",
    "e\u0301",
    "\n",
]


def test_odd_keys_are_found_again_and_told_apart(tmp_path: Path) -> None:
    written(tmp_path, [done(key, prediction=str(i)) for i, key in enumerate(ODD)])
    with TableStore.opened(tmp_path, Manifest({})) as store:
        assert all(store.known(key) == (True, "") for key in ODD)
        assert [store.get(key).prediction for key in ODD] == [str(i) for i in range(len(ODD))]  # type: ignore[union-attr]
        assert store.known("\ud801") is None
    assert len(set(keys(tmp_path))) == len(ODD)


VALUES = [
    None,
    True,
    False,
    5,
    -7,
    2.5,
    1e300,
    3.0,
    float("nan"),
    float("inf"),
    2**70,
    "x",
    "5",
    "\ud800",
    np.int64(3),
    np.float32(0.1),
]


@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=7), st.randoms())
@settings(max_examples=12, deadline=None)
def test_a_column_that_changes_its_type_is_the_same_wherever_runs_were_stopped(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], draw: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("types")
    rows = [done(str(i), columns={"own": value}) for i, value in enumerate(values)]
    whole = written(folder / "whole", rows).arrow()
    cuts = sorted({draw.randrange(len(rows)) for _ in range(3)} | {0, len(rows)})
    for begin, end in itertools.pairwise(cuts):
        written(folder / "stopped", rows[begin:end])
    found = ExplainedTable.open(folder / "stopped").arrow()
    assert found.equals(whole, check_metadata=True)


def test_large_whole_numbers_in_a_column_that_becomes_one_of_numbers_with_a_point(tmp_path: Path) -> None:
    large = 2**53 + 1
    rows = [done("a", columns={"id": large}), done("b", columns={"id": 0.5})]
    apart, together = written(tmp_path / "apart", rows[:1], rows[1:]), written(tmp_path / "together", rows)
    assert apart.arrow(["id"]).equals(together.arrow(["id"]))
    assert apart.arrow(["id"]).to_pylist() == [{"id": float(large)}, {"id": 0.5}]


def test_a_column_is_text_in_one_way(tmp_path: Path) -> None:
    for i, value in enumerate([5, 2.5, True, None, "x"]):
        written(tmp_path, [done(str(i), columns={"own": value})])
    assert ExplainedTable.open(tmp_path).arrow(["own"]).to_pydict() == {"own": ["5", "2.5", "True", None, "x"]}


ARRAYS = [
    None,
    np.ones(3, np.float32),
    np.arange(3.0),
    np.ones((2, 3), np.float32),
    np.zeros(0, np.float32),
    np.float32(2.0).reshape(()),
    np.array([np.nan, np.inf], np.float32),
]


@pytest.mark.parametrize("order", [(i, (i + step) % 7) for i in range(7) for step in (1, -1)])
def test_attributions_of_any_shape_and_type_come_back(tmp_path: Path, order: tuple[int, ...]) -> None:
    rows = [done(str(i), attributions=ARRAYS[i]) for i in order]
    whole = written(tmp_path / "whole", rows).arrow()
    apart = written(tmp_path / "apart", *([row] for row in rows))
    assert apart.arrow().equals(whole, check_metadata=True) or str(apart.arrow()) == str(whole)  # NaN is not itself
    for row, found in zip(rows, apart.rows(), strict=True):
        if row.attributions is None:
            assert found.attributions is None
        else:
            np.testing.assert_array_equal(found.attributions.reshape(-1), row.attributions.reshape(-1))


def test_one_shape_is_kept_as_a_list_of_a_fixed_size(tmp_path: Path) -> None:
    table = written(tmp_path, [done("a", attributions=np.ones((2, 2), np.float32)), done("b")])
    assert table.arrow().schema.field("attributions").type == pa.list_(pa.float32(), 4)
    assert next(table.rows()).attributions.shape == (2, 2)


def test_after_the_end_all_parts_have_one_schema_that_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    monkeypatch.setattr(table_module, "PART_BYTES", 1)
    rows = [
        done("a", attributions=np.ones(2, np.float32), columns={"own": 1}),
        done("b", attributions=np.ones(3), columns={"own": 2.5, "more": "x"}),
        Row.failed("c", "why", columns={"own": None}),
    ]
    table = written(tmp_path, *([row] for row in rows))
    (tmp_path / "_notes").write_text("passed by")
    assert len(table.parts) == 3
    assert len({pq.read_schema(part).to_string() for part in table.parts}) == 1
    assert pandas.read_parquet(tmp_path)["own"].tolist()[:2] == [1.0, 2.5]
    assert duckdb.sql(f"select key, own, more from '{tmp_path}/*.parquet' order by key").fetchall()[1] == ("b", 2.5, "x")
    assert pyarrow.dataset.dataset(tmp_path).to_table().equals(table.arrow())
    assert table.arrow(["more", "key"]).to_pylist() == [
        {"more": m, "key": k} for m, k in zip([None, "x", None], "abc", strict=True)
    ]
    assert list(table.pandas(["status"]).status) == ["exact", "exact", "failed"]
    with pytest.raises(OptionError, match=r"got the columns \['colour'\]; expected some of key, "):
        table.arrow(["colour"])


@pytest.mark.parametrize("name", ["key", "score", "status"])
def test_a_column_of_the_tables_own_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with TableStore.opened(tmp_path, Manifest({})) as store:
        with pytest.raises(OptionError, match=f"got a column '{name}', which the table has of its own"):
            store.put([done("a"), done("b", columns={name: 1})])
        store.put([done("c")])
    assert keys(tmp_path) == ["c"]


@pytest.mark.parametrize(
    "found",
    [{"status": "failed"}, {"status": "splendid"}, {"status": "converged", "failure": "no"}, Row(prediction="yes")],
)
def test_a_status_that_does_not_go_with_the_failure_is_refused(found: Any) -> None:
    """The run would count the input as explained, and the next one, which reads the table, as failed; or the other way."""
    with pytest.raises(OptionError, match=r"explain gave status='\w+' with failure=.*; expected one of converged"):
        rows_of([found], 1)


def test_an_empty_failure_is_none() -> None:
    [row] = rows_of([{"prediction": "yes", "failure": ""}], 1)
    assert row.ok
    assert row.status == "exact"


def test_dicts_of_a_users_function_become_rows() -> None:
    given = {
        "score": torch.tensor(2.0),
        "attributions": torch.ones(2, dtype=torch.bfloat16),
        "features": ["a", "b"],
        "own": np.int64(3),
    }
    (row,) = rows_of([given], 1)
    assert (row.status, row.score, row.features, row.columns) == ("exact", 2.0, ("a", "b"), {"own": 3})
    assert row.attributions.dtype == np.float32
    assert rows_of([{"attributions": [1, 2]}, {"attributions": np.ones(1)}], 2)[1].attributions.dtype == np.float64
    assert rows_of([{"failure": "no"}], 1)[0].status == "failed"
    for wrong in (
        {"score": "much"},
        {"notes": "one"},
        {"features": 5},
        {"attributions": ["a"]},
        {"evaluations": []},
        {"key": "a"},
    ):
        with pytest.raises(OptionError, match=r"explain gave|got a column 'key'"):
            rows_of([wrong], 1)
    for wrong in ({"a": 1}, "text", None, 5, [None], [5], []):
        with pytest.raises(OptionError, match="explain gave"):
            rows_of(wrong, 1)


# ---- which row counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (Row.failed("a", "why", input_digest="1"), done("a", input_digest="1"), "second"),
        (done("a", input_digest="1"), Row.failed("a", "why", input_digest="1"), "first"),
        (done("a", input_digest="1"), Row.failed("a", "why"), "first"),
        (done("a", input_digest="1"), Row.failed("a", "why", input_digest="2"), "second"),
        (done("a", score=1.0), done("a", score=2.0), "second"),
        (Row.failed("a", "why"), Row.failed("a", "why not"), "second"),
    ],
)
def test_of_two_rows_the_right_one_stays(tmp_path: Path, first: Row, second: Row, kept: str) -> None:
    with TableStore.opened(tmp_path, Manifest({})) as store:
        for row in (first, second):
            store.put([row, done(f"other {row.score}")])
            store.flush()
    table = ExplainedTable.open(tmp_path)
    expected = first if kept == "first" else second
    for _ in range(2):  # as a kill left it, and tidied up
        (found,) = (row for row in table.rows() if row.key == "a")
        assert (found.failure, found.score) == (expected.failure, expected.score)
        assert len(table) == len(list(table.rows())) == table.arrow(["key"]).num_rows
        tidy(tmp_path)


class Stopped(BaseException):
    """In place of a kill."""


@pytest.mark.parametrize("after", [False, True])
def test_a_stop_between_any_two_steps_of_tidying_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    windows = [
        [done("a", columns={"own": 1}), Row.failed("b", "why"), done("c")],
        [done("b", attributions=np.ones(2, np.float32)), done("d", columns={"own": 2.5})],
        [done("e", attributions=np.ones(3, np.float32)), done("a", columns={"own": "x"})],
    ]
    good = written(tmp_path / "good", *windows).arrow()
    steps = {name: getattr(table_module, name) for name in ("write_part", "remove")}
    for stop_at in itertools.count(1):
        folder, calls = tmp_path / str(stop_at), itertools.count(1)

        def stopping(name: str, stop_at: int = stop_at, calls: Iterator[int] = calls) -> Any:
            def step(*given: Any) -> None:
                number = next(calls)
                if number == stop_at and not after:
                    raise Stopped
                steps[name](*given)
                if number == stop_at:
                    raise Stopped

            return step

        with TableStore.opened(folder, Manifest({})) as store:
            for window in windows:
                store.put(window)
                store.flush()
        with monkeypatch.context() as patched:
            for name in steps:
                patched.setattr(table_module, name, stopping(name))
            try:
                tidy(folder)
                break
            except Stopped:
                pass
        table = ExplainedTable.open(folder)
        assert sorted(row.key for row in table.rows()) == sorted(row["key"] for row in good.to_pylist())
        assert written(folder).arrow().sort_by("key").equals(good.sort_by("key"), check_metadata=True)
    assert stop_at > 5


def test_an_interrupt_in_the_middle_of_a_flush_leaves_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table_module.write_part

    def twice(path: Path, table: pa.Table) -> None:
        whole(path, table)
        if path.name == "part-000002.parquet" and not stopped:
            stopped.append(path)
            raise KeyboardInterrupt

    stopped: list[Path] = []
    monkeypatch.setattr(table_module, "write_part", twice)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, *([done(key)] for key in "abc"))
    assert keys(tmp_path) == ["a", "b"]
    assert [pq.read_metadata(part).num_rows for part in parts_of(tmp_path)] == [1, 1]


def test_a_stop_at_any_step_of_adding_a_window_keeps_all_of_it_or_nothing(tmp_path: Path) -> None:
    """Part of a window on the disk would be gone on with in other batches, and end in a table with other last digits."""
    windows = [[done("a"), done("b")], [done("c"), done("d"), done("e")]]
    kept = set()
    for step in itertools.count(1):
        steps, before = itertools.count(1), sys.gettrace()

        def stopped(frame: Any, event: str, _: Any, *, steps: Any = steps, step: int = step) -> Any:
            if frame.f_code is TableStore.put.__code__ and event == "line" and next(steps) == step:
                raise KeyboardInterrupt
            return stopped

        folder = tmp_path / str(step)
        try:
            with TableStore.opened(folder, Manifest({})) as store:
                store.put(windows[0])
                sys.settrace(stopped)
                try:
                    store.put(windows[1])
                finally:
                    sys.settrace(before)
        except KeyboardInterrupt:
            found = "".join(keys(folder))
            assert found in ("ab", "abcde")
            kept.add(found)
        else:
            break
    assert kept == {"ab", "abcde"}


def test_all_again_leaves_each_row_until_it_is_replaced(tmp_path: Path) -> None:
    written(tmp_path, [done("a", score=1.0), done("b", score=1.0)])
    with TableStore.opened(tmp_path, Manifest({}), again=True) as store:
        assert store.known("a") is None
        assert store.get("a") is None
        assert store.holds_results
        store.put([done("a", score=2.0)])
        assert store.get("a") == done("a", score=2.0)
    with TableStore.opened(tmp_path, Manifest({})) as store:
        assert [store.get(key).score for key in "ab"] == [2.0, 1.0]  # type: ignore[union-attr]


def test_rows_are_read_from_any_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableStore, "BLOCK", 3)
    monkeypatch.setattr(table_module, "PART_BYTES", 1)
    rows = [done(str(i), score=float(i), attributions=np.full(2, i, np.float32), notes=("n",) * (i % 3)) for i in range(60)]
    written(tmp_path, *(rows[i : i + 7] for i in range(0, 60, 7)))
    with TableStore.opened(tmp_path, Manifest({})) as store:
        order = [str(i) for i in range(60)] + [str(random.Random(0).randrange(60)) for _ in range(60)]
        for key in order:
            found, row = store.get(key), rows[int(key)]
            assert found is not None
            assert found.attributions.tolist() == row.attributions.tolist()
            assert replace(found, attributions=None) == replace(row, attributions=None)


def test_the_index_is_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyIndex, "RECENT", 20)
    index, known, draw = KeyIndex(), {}, random.Random(0)
    for _ in range(2000):
        key = str(draw.randrange(700))
        known[key] = (draw.randrange(10**9), draw.randrange(2**32), draw.random() < 0.5, f"{draw.getrandbits(64):016x}")
        part, row, ok, digest = known[key]
        index.add(key, part, row, ok=ok, digest=digest)
    assert all(index.get(str(i)) == known.get(str(i)) for i in range(800))


def test_digests_of_any_length_are_told_apart(tmp_path: Path) -> None:
    long = ["", "0" * 64, "0" * 63 + "1", "é" * 20, "\ud800"]
    assert len({short_digest(one) for one in long}) == len(long)
    written(tmp_path, [done(str(i), input_digest=digest) for i, digest in enumerate(long)])
    with TableStore.opened(tmp_path, Manifest({})) as store:
        assert [store.known(str(i)) for i in range(len(long))] == [(True, short_digest(digest)) for digest in long]


# ---- what others do to the folder --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [lambda raw: raw[:-9], lambda raw: b"", lambda raw: b"PAR1" + raw[4:-4][::-1] + b"PAR1"])
def test_a_part_that_cannot_be_read_is_named_and_the_remedy_works(tmp_path: Path, damage: Any) -> None:
    written(tmp_path, [done("a"), done("b")])
    part = tmp_path / "part-000001.parquet"
    part.write_bytes(damage(part.read_bytes()))
    with pytest.raises(FileError, match=r"part-000001\.parquet cannot be read .*Move it away: the same run then"):
        written(tmp_path)
    with pytest.raises(FileError, match=r"part-000001\.parquet cannot be read"):
        len(ExplainedTable.open(tmp_path))
    part.rename(tmp_path / "_damaged")
    written(tmp_path, [done("a"), done("b")])
    assert keys(tmp_path) == ["a", "b"]


def test_a_bit_that_has_fallen_over_is_noticed(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((50, 100)).astype(np.float32)
    table = written(tmp_path, [done(str(i), attributions=one) for i, one in enumerate(values)])
    part = table.parts[0]
    raw = bytearray(part.read_bytes())
    about = pq.read_metadata(part).row_group(0)
    column = next(
        about.column(i) for i in range(about.num_columns) if about.column(i).path_in_schema.startswith("attributions.")
    )
    begin = column.dictionary_page_offset or column.data_page_offset
    raw[begin + column.total_compressed_size // 2] ^= 1
    part.write_bytes(raw)
    with pytest.raises(FileError, match="cannot be read"):
        list(table.rows())


def test_a_parquet_file_of_somebody_elses_is_not_taken_for_a_part(tmp_path: Path) -> None:
    other = pa.table({"key": ["x"]})
    for name, said in (
        ("data.parquet", "no part of a table of ours"),
        ("part-0000001.parquet", "no part"),
        ("part-000001.parquet", "no _man"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(other, folder / name)
        with pytest.raises(FileError, match=said):
            written(folder)
        assert pq.read_table(folder / name).equals(other)
    written(tmp_path / "ours", [done("a")])
    pq.write_table(other, tmp_path / "ours" / "part-000007.parquet")
    with pytest.raises(FileError, match=r"part-000007\.parquet cannot be read"):
        written(tmp_path / "ours")


@pytest.mark.parametrize("how", ["rows", "arrow", "csv", "summary", "count"])
def test_a_table_is_read_whole_while_a_run_begins_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Before any part is read, and after, a run leaves one row for each key, merges parts, and adds a row."""
    folder = tmp_path / "out"
    whole = {str(i) for i in range(6)}
    monkeypatch.setattr(table_module, "tidy", lambda folder: None)
    failed = [Row.failed(key, "why") for key in "12"]
    written(folder, [done("0"), failed[0]], [done("1"), done("2")], [failed[1], done("3")], [done("4"), done("5")])
    monkeypatch.undo()
    read_part, reads, more = table_module.read_part, itertools.count(), itertools.count()

    def disturbed(path: Path, columns: Sequence[str] | None = None) -> Any:
        """Read a part; other processes are at work at first."""
        if next(reads) in when:
            with monkeypatch.context() as now:
                now.setattr(table_module, "read_part", read_part)
                written(folder, [done(f"new {next(more)}")])
        return read_part(path, columns)

    when: set[int] = set()
    for at in range(8):
        when = {at, at + 3}
        reads = itertools.count()
        with monkeypatch.context() as now:
            now.setattr(table_module, "read_part", disturbed)
            table = ExplainedTable.open(folder)
            if how == "rows":
                rows = list(table.rows())
                assert all(row.ok for row in rows)
                found = [row.key for row in rows]
            elif how == "arrow":
                found = table.arrow(["key"])["key"].to_pylist()
            elif how == "csv":
                table.csv(tmp_path / "all.csv", columns=["key"])
                found = (tmp_path / "all.csv").read_text("utf-8-sig").split("\n")[1:-1]
            else:
                count = table.summary().total if how == "summary" else len(table)
                assert 6 <= count <= 6 + next(more)
                continue
        found = [key for key in found if not key.startswith("new")]
        assert (len(found), set(found)) == (6, whole)


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "sub").mkdir()
    written(tmp_path, [done("a")])
    written(tmp_path, [done("b")])
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert keys(tmp_path) == ["a", "b"]


def test_a_row_whose_file_is_gone_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "_attributions").mkdir()
    for name in ("a", "b"):
        (tmp_path / "_attributions" / name).write_bytes(b"")
    written(tmp_path, [done(name, attribution_file=f"_attributions/{name}") for name in ("a", "b")])
    (tmp_path / "_attributions" / "b").unlink()
    with TableStore.opened(tmp_path, Manifest({})) as store:
        assert (store.known("a"), store.known("b")) == ((True, ""), None)


def test_what_a_killed_writer_left_beside_the_table_is_removed(tmp_path: Path) -> None:
    (tmp_path / "_attributions").mkdir()
    (tmp_path / "_attributions" / f".{'0' * 16}.part.safetensors").write_bytes(b"half of it")
    written(tmp_path, [done("a")])
    assert list((tmp_path / "_attributions").iterdir()) == []


def test_two_runs_at_once_are_refused_and_change_nothing(tmp_path: Path) -> None:
    with TableStore.opened(tmp_path, Manifest({})) as store:
        store.put([done("a")])
        with pytest.raises(FileError, match="is being written by process"):
            written(tmp_path, [done("b")])
    assert keys(tmp_path) == ["a"]


def test_a_folder_that_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        written(tmp_path / "file" / "out")
    with pytest.raises(FileError, match=r"has no _manifest\.json"):
        ExplainedTable.open(tmp_path)


# ---- the manifest ------------------------------------------------------------------------------------------------------------


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "tol": 0.1,
        "model": {"network": "Net", "weights": "309b"},
        "uses": {"f": {"code": "abc"}},
        "baseline": {"digest": "12"},
        "odd": float("nan"),
        "classes": {9: "a", 10: "b"},
    }
    written(tmp_path, [done("a")], how=how)
    written(tmp_path, [done("b")], how=json.loads(json.dumps(how)))
    other = how | {
        "tol": 0.2,
        "model": {"network": "Net", "weights": "40"},
        "uses": {"f": {"code": "x"}},
        "baseline": {"digest": "1"},
    }
    with pytest.raises(OptionError) as said:
        written(tmp_path, how=other)
    for part in ("tol 0.2 (there: 0.1)", "other weights of the network", "other code (uses.f)", "other data (baseline)"):
        assert part in str(said.value)
    assert "309b" not in str(said.value)
    with pytest.raises(OptionError, match=r"size 3 \(there: nothing\)"):
        written(tmp_path, how=how | {"size": 3})
    assert keys(tmp_path) == ["a", "b"]


def test_a_run_that_ended_before_its_first_row_does_not_bind_the_next(tmp_path: Path) -> None:
    with pytest.raises(OptionError), TableStore.opened(tmp_path, Manifest({"tol": -1})):
        raise OptionError("got tol=-1")
    written(tmp_path, [done("a")], how={"tol": 0.1})
    assert ExplainedTable.open(tmp_path).manifest.settings == {"tol": 0.1}


DAMAGE: list[tuple[Any, str]] = [
    (b"", "is damaged"),
    (b"[]", "is damaged"),
    (b"{", "is damaged"),
    (b"[" * 100_000, "is damaged"),
    ({"settings": {"tol": 1}}, "not those of its fingerprint"),
    ({"attributions": "anyhow"}, "not what they should be"),
    ({"title": 5}, "not what they should be"),
    ({"format": 2}, "has format 2; expected 1"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_a_damaged_manifest_is_said_to_be_that(tmp_path: Path, damage: Any, said: str) -> None:
    written(tmp_path, [done("a")])
    raw = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).write_bytes(damage if isinstance(damage, bytes) else json.dumps(json.loads(raw) | damage).encode())
    with pytest.raises(FileError, match=said):
        written(tmp_path)
    (tmp_path / MANIFEST).write_bytes(raw)
    written(tmp_path)


def test_fingerprints_do_not_depend_on_the_order_of_settings() -> None:
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_every_column_is_described() -> None:
    assert set(COLUMN_NAMES) <= set((Row.__doc__ or "").replace(":", " ").split())
