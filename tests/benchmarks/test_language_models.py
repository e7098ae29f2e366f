"""The table of language models: all of it on two layers, never how long something takes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("captum")

from benchmarks import language_model_cases as cases
from benchmarks import language_models as program
from benchmarks.language_models import Cell, Row, error_of, planned, table


def test_a_run_of_the_small_model_and_what_is_written(tmp_path, capsys):
    out = tmp_path / "language.json"
    given = ["--tiny", "--only", "1b", "--tokens", "12", "--who", "integrand", "captum", "reference", "--out", str(out)]
    program.main(given)
    rows = json.loads(out.read_text())
    assert len(rows) == 1 + 2 * 3
    assert not any("failed" in row for row in rows.values())
    for name in rows:
        if "reference" not in name:
            row = rows[name] | error_of(name, rows)
            assert row["error"] <= row.get("claimed", 0.01)
    assert rows["1b 12 16 reference"]["doubt"] < 1e-3
    assert "| 1b 12 16 captum |" in capsys.readouterr().out
    program.main([*given, "--minutes", "0"])  # all there: nothing runs again
    assert json.loads(out.read_text()) == rows


def test_without_time_everything_is_left_out_and_run_the_next_time(tmp_path):
    out = tmp_path / "language.json"
    given = ["--tiny", "--only", "8b", "--tokens", "12", "--outputs", "1", "--who", "integrand", "--out", str(out)]
    program.main([*given, "--minutes", "0"])
    assert all("left out" in row for row in json.loads(out.read_text()).values())
    program.main(given)
    assert all(row["seconds"] > 0 for row in json.loads(out.read_text()).values())


def test_the_plan_has_every_cell_once():
    names = [cell.name for cell in planned(["1b", "8b"], (512, 2048, 8192))]
    assert len(names) == len(set(names)) == 2 * 3 * 2 * 4 + 3 + 1
    assert "8b 2048 1 integrand 5% 8 GB" in names


def test_a_peer_that_takes_long_is_timed_with_less_and_scaled():
    model = cases.llama("tiny", "cpu")
    one = cases.case(model, cases.word_tokenizer(512), 6, 16)
    values, told = program.run_peer(one, Cell("1b", 6, 16, "captum"), seconds=0.1)
    assert sorted(values) == [0, 15]
    assert told["scaled"] == 8
    values, told = program.run_peer(one, Cell("1b", 6, 1, "captum"), seconds=3.0)
    assert not values  # of too few steps there is no error to tell
    assert told["scaled"] == pytest.approx(10)


def test_the_reference_adds_up_to_the_change_of_the_logit():
    model = cases.llama("tiny", "cpu", torch.float32)
    one = cases.case(model, cases.word_tokenizer(512), 6, 2)
    found = cases.by_hand(one, model, [0, 1], 16)
    ids = one.before(1)
    with torch.no_grad():
        change = (model(ids).logits - model(torch.zeros_like(ids)).logits)[0]
    expected = [float(change[5, one.out[0]]), float(change[6, one.out[1]])]
    np.testing.assert_allclose(found.sum(1), expected, rtol=1e-3)
    assert not found[0, 6:].any()


def test_the_table_marks_what_was_scaled():
    row: Row = {"seconds": 1.0, "gb": 2.0, "gradients": 50, "scaled": 8.0}
    assert "| 8b 512 16 captum | 1.00 * | 2.00 | 50 |  |  |" in table({"8b 512 16 captum": row})
