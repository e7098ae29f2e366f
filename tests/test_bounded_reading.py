"""Files of others: what a few bytes stand for is bounded, and a file that changes while it is read is told."""

from __future__ import annotations

import csv
import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

import integrand as ig
from integrand import bounded_reading
from integrand.apps.audio import sound_files
from integrand.apps.graphs.graph_files import MAX_IDENTITIES, parsed_graph, read_graph
from integrand.apps.questions import question_files
from integrand.apps.sequences.sequence_files import read_fasta
from integrand.apps.series import series_files
from integrand.apps.series.series_files import read_series
from integrand.apps.tables.data_frames import read_table
from integrand.batch import parquet_files
from integrand.batch.inputs import source_of
from integrand.bounded_reading import ChangedFileError, FileVersion, RowLines, TextLines, UnpackError, bounded_bytes
from integrand.cli.run_command import read_job
from integrand.errors import FileError, InputError


def peak_of(call: Callable[[], object]) -> int:
    """Bytes that Python's objects took at most during a call."""
    tracemalloc.start()
    try:
        call()
    except FileError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def ones(items: list[object]) -> list[dict[str, object]]:
    return [{"attributions": [1.0]} for _ in items]


def rows(path: Path) -> list[tuple[object, str]]:
    return [(row, why) for row, why, _ in source_of(path).each()]


# ---- packed text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "read"),
    [("a.csv.gz", rows), ("a.jsonl.gz", rows), ("a.fa.gz", lambda path: list(read_fasta(path))), ("b.csv.gz", read_series)],
)
def test_a_packed_file_unpacks_to_a_multiple_of_its_size(
    name: str, read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.1 MB of .csv.gz took 6 GB: one line of 3 GB, or a row of 63 million cells."""
    monkeypatch.setattr(bounded_reading, "FREE", 1 << 16)
    (tmp_path / name).write_bytes(gzip.compress(b">a,b\n" + b"0" * 8_000_000))
    with pytest.raises(FileError, match="unpacks to more than 200 times its size"):
        read(tmp_path / name)
    assert peak_of(lambda: read(tmp_path / name)) < 4_000_000


def test_lines_and_rows_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = TextLines(io.StringIO("short\n" + "x" * 25 + "\nnext\n", newline=""), 10)
    assert next(lines) == "short\n"
    with pytest.raises(csv.Error, match="more than 10 characters"):
        next(lines)
    assert list(lines) == ["next\n"]
    assert lines.ended
    monkeypatch.setattr(bounded_reading, "MAX_CELLS", 5)
    table = RowLines(io.StringIO("1,2,3,4,5\n" + "," * 5 + "\nlast\n", newline=""), ",")
    found = csv.reader(table)
    assert next(found) == list("12345")
    table.begin()
    with pytest.raises(csv.Error, match="more than 5 cells"):
        next(found)
    table.begin()
    assert next(found) == ["last"]


def test_a_line_of_a_table_that_is_too_long_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextLines.__init__, "__defaults__", (1000,))
    monkeypatch.setattr("integrand.bounded_reading.MAX_ROW", 1000)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n" + "x" * 5000 + ",1\n3,4\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": "' + "x" * 5000 + '"}\n{"a": 2}\n')
    for name in ("a.csv", "a.jsonl"):
        good, bad, last = rows(tmp_path / name)
        assert good[1] == last[1] == ""
        assert "more than 1,000 characters" in bad[1]


# ---- Parquet -----------------------------------------------------------------------------------------------------------------


def test_rows_that_share_a_text_are_counted_before_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 KB whose 256 rows share one text of 8 MiB took 2 GB."""
    monkeypatch.setattr(parquet_files, "MAX_ROW", 1 << 20)
    pq.write_table(pa.table({"a": ["x" * (1 << 18)] * 256, "b": [["y" * 1000] * 3] * 256}), tmp_path / "a.parquet")
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0

    def count() -> None:
        nonlocal most
        for row, why, _ in source_of(tmp_path / "a.parquet").each():
            assert not why
            assert len(row["a"]) == 1 << 18
            assert row["b"] == ["y" * 1000] * 3
            most = max(most, pool.bytes_allocated() - before)

    assert peak_of(count) < 4 << 20  # all would be 64 MiB
    assert most < 4 << 20
    monkeypatch.setattr(parquet_files, "MAX_ROW", 1 << 17)
    assert {why for _, why in rows(tmp_path / "a.parquet")} == {"it takes 259 KiB; expected at most 128 KiB"}


def test_lists_of_zeros_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 KB took 1.4 GB."""
    monkeypatch.setattr(parquet_files, "FREE_GROUP", 1 << 20)
    pq.write_table(pa.table({"a": [np.zeros(1 << 16)] * 8}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with pytest.raises(UnpackError, match="200 times its size"):
        rows(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": pa.array([b"\0" * 4096] * 9999, pa.binary(4096))}), tmp_path / "a.parquet")
    with pytest.raises(UnpackError, match="200 times its size"):
        rows(tmp_path / "a.parquet")


def test_parquet_rows_are_what_arrow_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where texts are read as dictionaries, and batches are halved."""
    cells = [{"id": i, "text": f"t{i % 7}", "in": {"a": [str(i), None], "b": b"raw"}, "map": [("k", i)]} for i in range(600)]
    kinds = pa.schema(
        {
            "id": pa.int64(),
            "text": pa.large_string(),
            "in": pa.struct({"a": pa.list_(pa.string()), "b": pa.binary()}),
            "map": pa.map_(pa.string(), pa.int64()),
        }
    )
    table = pa.Table.from_pylist(cells, kinds)
    table = table.append_column("kind", table["text"].cast(pa.string()).dictionary_encode())
    table = table.append_column("number", table["id"].dictionary_encode())
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=250)
    expected = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows(tmp_path / "a.parquet") == [(row, "") for row in expected]
    monkeypatch.setattr(parquet_files, "MAX_ROW", 2000)
    monkeypatch.setattr(parquet_files, "FREE_GROUP", 10_000)
    assert rows(tmp_path / "a.parquet") == [(row, "") for row in expected]


def test_a_text_of_parquet_that_is_no_utf_8_is_a_problem_of_its_row(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"caf\xe9", b"more"], pa.binary())
    pq.write_table(pa.table({"a": raw.view(pa.string())}), tmp_path / "a.parquet")
    assert [why for _, why in rows(tmp_path / "a.parquet")] == ["", "it has letters that are not UTF-8", ""]


# ---- others ------------------------------------------------------------------------------------------------------------------


def test_a_graph_without_features_is_small() -> None:
    """0.43 MB with 30,000 nodes took 3.6 GB."""
    with pytest.raises(FileError, match="have no features"):
        parsed_graph({"nodes": [{"id": i} for i in range(MAX_IDENTITIES + 1)], "edges": []}, "g.json")


@pytest.mark.parametrize("value", ["9" * 309, "9" * 4000, "1e999", "NaN"])
def test_numbers_of_a_graph_that_no_float_holds(value: str, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(f'{{"nodes": [{{"id": 1, "x": [{value}]}}], "edges": []}}')
    with pytest.raises(FileError, match="node 0 has no list x"):
        read_graph(tmp_path / "g.json")


@pytest.mark.parametrize("x", ["5", '"ab"', "true", "null", "{}"])
def test_features_of_a_graph_that_are_no_list(x: str, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(f'{{"nodes": [{{"id": 1, "x": {x}}}], "edges": []}}')
    with pytest.raises(FileError, match="node 0 has no list x of numbers"):
        read_graph(tmp_path / "g.json")


def test_sound_is_mixed_in_blocks_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.95 MB of FLAC, 599 s of 8 channels at 192 kHz, took 4.4 GB."""
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (10_000, 3)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", noise, 8000, "FLOAT")
    whole = sound_files.read(tmp_path / "a.wav")
    assert np.array_equal(whole.samples, noise.mean(1, dtype=np.float64).astype(np.float32))
    monkeypatch.setattr(sound_files, "BLOCK", 300)
    assert np.array_equal(sound_files.read(tmp_path / "a.wav").samples, whole.samples)
    assert np.array_equal(sound_files.read(tmp_path / "a.wav", channel=2).samples, noise[:, 1])
    for name, value in (("MAX_FRAMES", 9_999), ("MAX_SAMPLES", 29_999)):
        with monkeypatch.context() as patch:
            patch.setattr(sound_files, name, value)
            with pytest.raises(FileError, match=r"3 channel.*at 8,000 samples.*Take a part"):
                sound_files.read(tmp_path / "a.wav")
            assert len(sound_files.read(tmp_path / "a.wav", start=0, end=0.5).samples) == 4000


def test_a_series_is_held_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """134 KB of .csv.gz took 1.6 GB: each cell was a text of its own."""
    (tmp_path / "a.csv").write_text(
        "t," + ",".join(f"c{i}" for i in range(50)) + "\n" + "".join(f"{i}" + ",0.5" * 50 + "\n" for i in range(2000))
    )
    assert peak_of(lambda: read_series(tmp_path / "a.csv", channels=["c3"])) < 2_000_000
    monkeypatch.setattr(series_files, "MAX_VALUES", 99)
    with pytest.raises(FileError, match="or 99 values"):
        read_series(tmp_path / "a.csv")


@pytest.mark.parametrize("line", ['{"t": 1, "x": %s}', '{"t": %s, "x": 1}'])
def test_numbers_of_a_series_that_no_float_holds(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line % ("9" * 400) + "\n")
    with pytest.raises(InputError, match="expected a number"):
        read_series(tmp_path / "a.jsonl")


def test_a_job_copies_no_mappings(tmp_path: Path) -> None:
    """443 bytes took 169 MB, each further line ten times as much."""
    lines = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40))]
    (tmp_path / "job.yaml").write_text("\n".join(lines))
    with pytest.raises(FileError, match="<<"):
        read_job(tmp_path / "job.yaml")


def test_a_table_with_a_cell_for_each_byte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"," * 10_000 + b"\n" + b"1\n" * 10_000)
    with pytest.raises(FileError, match="10,001 columns and 10,002 lines"):
        read_table(tmp_path / "a.csv")


def test_keys_and_columns_of_four_thousand_digits_do_not_end_a_run(tmp_path: Path) -> None:
    items = [{"id": 10**5000, "x": 1}, {"id": 2, "x": 10**6000}]
    made = ig.explain_many(items, ones, tmp_path / "t", key="id", carry=["x"])
    assert made.explained == 2
    assert hex(10**5000) in made.table.arrow(["key"])["key"].to_pylist()


# ---- files that change, and what is no file ----------------------------------------------------------------------------------


def test_what_was_read_is_compared_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    state = path.stat()

    def overwrite() -> None:
        with bounded_bytes(path, what="text") as file:
            assert file.read() == b"one\ntwo\n"
            path.write_text("one\nnew\n")  # the same size, in place, and as old as before
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    with pytest.raises(ChangedFileError, match=r"a\.txt changed while it was read"):
        overwrite()
    with bounded_bytes(path, what="text"):
        path.touch()
        os.utime(path, ns=(1, 1))  # as it was read
    with bounded_bytes(path, what="text"):
        path.rename(tmp_path / "b.txt")  # was read as a whole
    version = FileVersion()
    with bounded_bytes(tmp_path / "b.txt", what="text", version=version):
        pass
    (tmp_path / "b.txt").write_text("other")
    with pytest.raises(ChangedFileError), bounded_bytes(tmp_path / "b.txt", what="text", version=version):
        pass


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("how", ["overwritten", "cut", "replaced"])
def test_inputs_that_change_are_never_lost_without_a_word(name: str, how: str, tmp_path: Path) -> None:
    """Of 3,000 rows, a file that was overwritten left "336 of 336 inputs explained"."""

    def write(path: Path, value: int) -> None:
        count = 5000  # more than is read ahead
        if name == "a.parquet":
            pq.write_table(pa.table({"id": range(count), "x": [value] * count}), path, row_group_size=50)
        elif name == "a.csv":
            path.write_text("id,x\n" + "".join(f"{i},{value}\n" for i in range(count)))
        else:
            path.write_text("".join(f'{{"id": {i}, "x": {value}}}\n' for i in range(count)))

    write(tmp_path / name, 1)
    write(tmp_path / f"new{name}", 2)

    def explain(items: list[object]) -> list[dict[str, object]]:
        if (tmp_path / f"new{name}").exists():
            if how == "overwritten":
                (tmp_path / name).write_bytes((tmp_path / f"new{name}").read_bytes()[:9000])
            elif how == "cut":
                os.truncate(tmp_path / name, 100)
            else:
                (tmp_path / f"new{name}").rename(tmp_path / name)
            (tmp_path / f"new{name}").unlink(missing_ok=True)
        return ones(items)

    with pytest.raises(FileError, match=r"changed while it was read|cannot be read"):
        ig.explain_many(tmp_path / name, explain, tmp_path / "table", key="id", together=50)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl.gz"])
def test_a_pipe_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(FileError, match="is a pipe"):
        list(source_of(tmp_path / name).each())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with one part."""
    ig.explain_many(["a", "b"], ones, tmp_path / "table")
    return tmp_path / "table"


def forged(part: Path, name: str, values: pa.Array, *, metadata: bool = True) -> None:
    """Put another column into a part."""
    found = pq.read_table(part)
    schema = found.schema
    kind = pa.field(name, values.type)
    found = found.set_column(schema.get_field_index(name), kind, values)
    pq.write_table(found if metadata else found.replace_schema_metadata(None), part)


FORGERIES = {
    "no key": lambda part: forged(part, "key", pa.array([None, "b"])),
    "a number for a key": lambda part: forged(part, "key", pa.array([1, 2])),
    "a list for a status": lambda part: forged(part, "status", pa.array([["exact"], None])),
    "no shape": lambda part: forged(part, "status", pa.array(["exact", "exact"]), metadata=False),
    "no text": lambda part: forged(part, "sentence", pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_part_is_taken_for_what_it_is(forgery: str, table: Path) -> None:
    FORGERIES[forgery](table / "part-000001.parquet")
    found = ig.batch.ExplainedTable.open(table)
    for use in (lambda: list(found.rows()), found.summary, lambda: found.csv(table.parent / "a.csv")):
        with pytest.raises(FileError, match=r"part-000001.parquet cannot be read"):
            use()


def test_a_part_takes_no_more_than_its_size_allows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 KB whose 60 rows share a text took 3.6 GB."""
    monkeypatch.setattr(parquet_files, "FREE_GROUP", 1 << 20)
    part = table / "part-000001.parquet"
    whole = pa.concat_tables([pq.read_table(part)] * 30)
    place = whole.schema.get_field_index("sentence")
    pq.write_table(whole.set_column(place, "sentence", pa.array(["x" * (1 << 18)] * 60)), part)
    with pytest.raises(FileError, match="200 times its size"):
        list(ig.batch.ExplainedTable.open(table).rows())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_part_is_refused_at_once(table: Path) -> None:
    (table / "part-000001.parquet").unlink()
    os.mkfifo(table / "part-000001.parquet")
    found = ig.batch.ExplainedTable.open(table)
    uses = (
        lambda: list(found.rows()),
        lambda: len(found),
        found.summary,
        lambda: ig.explain_many(["a", "b"], ones, table),
    )
    for use in uses:
        with pytest.raises(FileError, match="is a pipe"):
            use()


def test_memory_that_runs_out_while_a_file_is_read_is_a_file_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise MemoryError

    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    soundfile.write(tmp_path / "a.wav", np.zeros(100), 8000)
    monkeypatch.setattr(csv, "reader", full)
    monkeypatch.setattr(parquet_files, "_rows", full)
    monkeypatch.setattr(sound_files, "_mixed", full)
    for read, name in ((rows, "a.csv"), (rows, "a.parquet"), (sound_files.read, "a.wav")):
        with pytest.raises(FileError, match="does not fit into memory"):
            read(tmp_path / name)


def test_a_file_of_empty_questions_is_not_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n" * (question_files.MAX_CELLS + 1))
    with pytest.raises(FileError, match="lines and cells"):
        question_files.read(tmp_path / "a.txt")
    assert peak_of(lambda: question_files.read(tmp_path / "a.txt")) < 20_000_000


def test_a_footer_that_contradicts_itself_does_not_end_the_process(tmp_path: Path) -> None:
    """Arrow ends it where such a file is asked for what it says of a column; found by changing bytes at random."""
    code = """
import io, random, sys
import pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from integrand.batch.inputs import source_of
from integrand.errors import FileError
buffer, chance, path = io.BytesIO(), random.Random(0), Path(sys.argv[1])
pq.write_table(pa.table({"id": range(50), "l": [[1.0, 2.0]] * 50, "s": [{"a": ["x"]}] * 50}), buffer)
for _ in range(40):
    data = bytearray(buffer.getvalue())
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    try:
        list(source_of(path).each())
    except FileError:
        pass
print("alive")
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n", done.stderr
