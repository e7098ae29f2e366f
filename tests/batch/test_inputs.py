"""Where inputs come from: loaders, data sets, folders, tables; what cannot be read is one input's problem, and none is lost."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from integrand.batch.inputs import DOUBTFUL, KeyedInput, inputs_of
from integrand.errors import FileError, OptionError


def read(source: Any, **how: Any) -> list[KeyedInput]:
    return list(inputs_of(source, **how)[0])


def keys(source: Any, **how: Any) -> list[str]:
    return [one.key for one in read(source, **how)]


class Numbers(Dataset[torch.Tensor]):
    """Numbers, some of which cannot be read."""

    def __init__(self, count: int, bad: dict[int, Exception] | None = None) -> None:
        self.count, self.bad = count, bad or {}

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        if i in self.bad:
            raise self.bad[i]
        return torch.tensor([float(i)])


class Stream(IterableDataset[int]):
    """Numbers that come one after the other."""

    def __init__(self, count: int, stop: int = -1) -> None:
        self.count, self.stop = count, stop

    def __iter__(self) -> Iterator[int]:
        for i in range(self.count):
            if i == self.stop:
                raise RuntimeError("no more")
            yield i

    def __len__(self) -> int:
        return self.count


def test_anything_that_can_be_gone_through() -> None:
    assert (
        keys(["a", "b"]) == keys(iter("ab")) == keys(torch.rand(2, 3)) == keys(np.ones((2, 1))) == keys(Stream(2)) == ["0", "1"]
    )
    assert keys({"x": 1, 7: 2, "caf\udce9": 3}) == ["x", "7", "caf\\udce9"]
    assert inputs_of(iter("ab"))[1] is None
    assert inputs_of("ab" * 2 and ["a"])[1] == 1
    for wrong in (5, None, torch.tensor(1.0), np.float32(1.0), {"a", "b"}, b"bytes"):
        with pytest.raises(OptionError, match="expected"):
            read(wrong)


def test_an_item_that_cannot_be_read_does_not_end_the_source() -> None:
    data = Numbers(4, {1: IndexError("list index out of range"), 2: OSError("bad disk")})
    found = read(data)
    assert [one.key for one in found] == ["0", "1", "2", "3"]
    assert [one.problem for one in found] == [
        "",
        "it cannot be read (IndexError: list index out of range)",
        "it cannot be read (OSError: bad disk)",
        "",
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [1, 3, None])
def test_a_loader_loses_nothing_where_an_item_fails(workers: int, size: int | None) -> None:
    data = Numbers(8, {4: ValueError("bad")})
    found = read(DataLoader(data, batch_size=size, num_workers=workers))
    assert [one.key for one in found] == [str(i) for i in range(8)]
    assert [one.item is None for one in found] == [i == 4 for i in range(8)]
    assert [one.item.tolist() for one in found if one.item is not None] == [[float(i)] for i in range(8) if i != 4]
    assert "ValueError" in found[4].problem


def test_loaders_of_every_kind() -> None:
    x, y = torch.rand(7, 2), torch.arange(7)
    pairs = read(DataLoader(TensorDataset(x, y), batch_size=3))
    assert [pair.item[1].item() for pair in pairs] == list(range(7))
    assert keys(DataLoader(TensorDataset(x, y), batch_size=3, drop_last=True)) == [str(i) for i in range(6)]
    rows = [{"text": f"t{i}", "x": torch.ones(2) * i} for i in range(5)]
    found = read(DataLoader(rows, batch_size=2), key="text", column="x")  # type: ignore[arg-type]
    assert [(one.key, one.item.tolist()) for one in found] == [(f"t{i}", [i, i]) for i in range(5)]
    for uncollated in (list, tuple):
        found = read(DataLoader(x, batch_size=3, collate_fn=uncollated))  # type: ignore[arg-type]
        assert torch.equal(torch.stack([one.item for one in found]), x)
    assert [one.item.item() for one in read(DataLoader(Stream(5), batch_size=2))] == list(range(5))
    with pytest.raises(FileError, match=r"cannot go on \(RuntimeError: no more\)"):
        read(DataLoader(Stream(5, stop=3), batch_size=2))
    with pytest.raises(OptionError, match="Give the data set itself"):
        read(DataLoader(x, batch_size=3, collate_fn=lambda batch: torch.ones(2)))  # type: ignore[arg-type]
    for shuffling in ({"shuffle": True}, {"sampler": SubsetRandomSampler(range(3))}):
        with pytest.raises(OptionError, match="expected shuffle=False"):
            read(DataLoader(x, **shuffling))  # type: ignore[arg-type]


@pytest.mark.slow
def test_data_sets_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, 1], "more": [[1], [2, 3], []]})
    found = read(data, key="text", column="more", carry=["label"])
    assert [(one.key, one.item, one.columns) for one in found] == [
        ("a", [1], {"label": 1}),
        ("b", [2, 3], {"label": 0}),
        ("c", [], {"label": 1}),
    ]
    assert keys(data.to_iterable_dataset(), key="text") == ["a", "b", "c"]
    with pytest.raises(OptionError, match=r"got a data set with the splits train, test; expected one: data\['train'\]"):
        read(datasets.DatasetDict({"train": data, "test": data}))


def test_a_column_that_some_rows_lack_is_null_there_and_one_that_all_lack_is_refused(tmp_path: Path) -> None:
    """As JSONL is often written: a field that is not known is left out."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b", "label": 1}\n{"text": "c"}\n{"label": 2}\n')
    found = read(file, column="text", carry=["label"])
    assert [(one.item, one.columns.get("label"), bool(one.problem)) for one in found] == [
        ("a", None, False),
        ("b", 1, False),
        ("c", None, False),
        (None, None, True),
    ]
    with pytest.raises(OptionError, match="got the column 'labels', which input 0 does not have; expected one of: text"):
        read(file, column="text", carry=["labels"])


def test_tables_in_memory() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"id": list(range(300)), "text": [f"t{i}" for i in range(300)]}
    for table in (pandas.DataFrame(columns, index=range(300, 0, -1)), pa.table(columns)):
        found, total = inputs_of(table, key="id", column="text")
        assert total == 300
        assert [(one.key, one.item) for one in found] == [(str(i), f"t{i}") for i in range(300)]


# ---- keys --------------------------------------------------------------------------------------------------------------------


def test_a_column_of_pandas_is_read_by_place_whatever_its_labels() -> None:
    pandas = pytest.importorskip("pandas")
    chosen = pandas.Series(["a", "b", "c", "d"])[[3, 1]]
    assert [(one.key, one.item, one.problem) for one in read(chosen)] == [("0", "d", ""), ("1", "b", "")]


def test_an_input_without_a_key_is_told_apart_from_all_others() -> None:
    rows = [
        {"id": 1, "x": 5},
        {"x": 6},
        {"id": None, "x": 7},
        {"id": float("nan"), "x": 8},
        {"id": "", "x": 9},
        {"id": "2", "x": 4},
    ]
    found = read(rows, key="id", column="x")
    assert [one.key for one in found] == ["1", *(f"input {i} of the source" for i in range(1, 5)), "2"]
    assert [bool(one.problem) for one in found] == [False, True, True, True, True, False]
    assert "its key cannot be told (ZeroDivisionError" in read([1, 0], key=lambda item: 1 / item)[1].problem
    assert keys(torch.tensor([3, 4]), key=lambda one: one) == ["3", "4"]


def test_a_column_that_no_input_has_is_a_mistake_in_the_call() -> None:
    rows: list[dict[str, Any]] = [{"text": "a"}] * 10
    with pytest.raises(OptionError, match=r"got the column 'txt', which input 0 does not have; expected one of: text"):
        read(rows, column="txt")
    late = [{"other": 1}] * 5 + [{"text": "a"}]
    assert [bool(one.problem) for one in read(late, column="text")] == [True] * 5 + [False]
    with pytest.raises(OptionError):
        read([{"other": 1}] * DOUBTFUL + [{"text": "a"}], column="text")
    with pytest.raises(OptionError, match="expected one of: a str"):
        read(["text"], column="text")


# ---- files -------------------------------------------------------------------------------------------------------------------


def test_a_folder_gives_its_files_in_order_without_what_is_hidden_or_ours(tmp_path: Path) -> None:
    for name in ("b.png", "a.png", "c/d.png", ".hidden", "c/.x", "out/_manifest.json", "out/part-000001.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "linked").symlink_to(tmp_path / "a.png")
    assert keys(tmp_path) == ["a.png", "b.png", "c/d.png", "linked"]
    assert inputs_of(str(tmp_path))[1] == 4
    (tmp_path / "_manifest.json").write_bytes(b"")
    (tmp_path / "part-000001.parquet").write_bytes(b"")
    assert keys(tmp_path) == ["a.png", "b.png", "c/d.png", "linked"]
    with pytest.raises(FileError, match="is not there"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(FileError, match="has another ending"):
        read(tmp_path / "a.png")


def test_photos_of_a_camera_and_links_are_not_left_out_without_a_word(tmp_path: Path) -> None:
    """Cameras name photos of some colour spaces _MG_0001.jpg and _DSC0001.jpg."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("_MG_0001.jpg", "IMG_0002.jpg"):
        (photos / name).write_text("photo")
    (photos / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (photos / "more").symlink_to(tmp_path, target_is_directory=True)
    assert {one.key: one.problem for one in read(photos)} == {
        "_MG_0001.jpg": "",
        "IMG_0002.jpg": "",
        "gone.jpg": "it is a link to nothing that is there",
        "more": "it is a link to a folder, which is not gone into; give that folder itself",
    }


def test_a_folder_with_names_that_are_no_text(tmp_path: Path) -> None:
    try:
        with open(os.fsencode(tmp_path) + b"/caf\xe9.png", "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    (one,) = read(tmp_path)
    assert one.key == "caf\\udce9.png"
    assert one.item.exists()


def test_tables_of_text(tmp_path: Path) -> None:
    lines = 'id,text\n1,"a, ""b""\nc"\n2,short,too many\n\n3\n4,d\n'
    long = "x" * 200_000
    file = tmp_path / "table.csv"
    file.write_bytes(b"\xef\xbb\xbf" + (lines + f"5,{long}\n").encode() + b"6,caf\xe9\n7,z\x00y\n")
    limit = csv.field_size_limit()
    found = read(file, key="id", column="text")
    assert csv.field_size_limit() == limit
    assert [(one.key, one.item) for one in found if not one.problem] == [
        ("1", 'a, "b"\nc'),
        ("4", "d"),
        ("5", long),
        ("7", "z\x00y"),
    ]
    assert {one.key: one.problem for one in found if one.problem} == {
        "input 1 of the source": "it has 3 cells; expected 2, as the heading has",
        "input 2 of the source": "it has 1 cells; expected 2, as the heading has",
        "input 5 of the source": "it has letters that are not UTF-8; save the file as UTF-8",
    }
    with gzip.open(tmp_path / "table.csv.gz", "wb") as packed:
        packed.write(file.read_bytes())
    assert read(tmp_path / "table.csv.gz", key="id", column="text") == found
    (tmp_path / "utf16.tsv").write_bytes("id\ttext\n1\tä\n".encode("utf-16"))
    assert read(tmp_path / "utf16.tsv", key="id", column="text")[0].item == "ä"


def test_a_quotation_mark_that_is_never_closed_is_said(tmp_path: Path) -> None:
    """As pandas does; the csv module gives the rest of the file as the last cell of a row, which would be explained."""
    file = tmp_path / "table.csv"
    file.write_text('id,text\n1,"a\nb"\n2,"c\n' + "".join(f"{i},d\n" for i in range(3, 100)))
    good, bad = read(file, key="id", column="text")
    assert (good.key, good.item) == ("1", "a\nb")
    assert bad.problem == "a quotation mark in it is never closed, so that the 98 lines to the end are one row"
    file.write_text('id,text\n1,"a"\n2,"b"')  # no new line at the end
    assert [one.problem for one in read(file)] == ["", ""]


def test_tables_of_text_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    for raw, said in ((b"", "has no heading"), (b"a,a\n1,2\n", "has two columns 'a'"), (b"caf\xe9,b\n", "not UTF-8")):
        file.write_bytes(raw)
        with pytest.raises(FileError, match=said):
            read(file)


@pytest.mark.parametrize("cut", [5, 40])
@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl.gz"])
def test_a_packed_file_that_is_cut_off_is_said_after_what_can_be_read(tmp_path: Path, cut: int, ending: str) -> None:
    text = "a,b\n" + "".join(f"{i},{i * 7919 % 997}\n" for i in range(20_000))
    if "json" in ending:
        text = "".join(json.dumps({"a": i, "b": i * 7919 % 997}) + "\n" for i in range(20_000))
    file = tmp_path / f"table{ending}"
    file.write_bytes(gzip.compress(text.encode())[: -cut * 100])
    found = inputs_of(file)[0]
    assert next(found).item["a"] in (0, "0")
    with pytest.raises(FileError, match="cannot be unpacked"):
        list(found)
    file.write_bytes(b"no gzip")
    with pytest.raises(FileError, match="cannot be unpacked"):
        read(file)


def test_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [
        b'\xef\xbb\xbf{"id": 1, "x": [1, {"y": null}]}',
        b"",
        b"{",
        b"[1]",
        b"7",
        b"[" * 100_000,
        b'{"id": 2}',
        b'{"id": "\xff"}',
    ]
    file.write_bytes(b"\r\n".join([*lines, b'{"id": 3, "x": 1}']))
    found = read(file, key="id", column="x")
    assert [one.key for one in found if not one.problem] == ["1", "3"]
    problems = [one.problem for one in found if one.problem]
    assert len(problems) == 6
    for why, said in zip(problems, ("no JSON", "is a list", "is a int", "no JSON", "the column 'x'", "UTF-8"), strict=True):
        assert said in why


def test_parquet_with_nested_columns(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    rows = [{"id": i, "x": {"a": [i, None], "b": b"raw"}} for i in range(600)]
    pq.write_table(pa.Table.from_pylist(rows), file)
    found, total = inputs_of(file, key="id", column="x")
    assert total == 600
    assert [one.item for one in found] == [row["x"] for row in rows]
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="expected a Parquet file"):
        read(file)
