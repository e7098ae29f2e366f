"""What results are turned into: sentences, frames, shap's Explanation, files, pictures."""

from __future__ import annotations

import csv
import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from integrand import tables
from integrand.errors import InputError, OptionError
from tests.apps.tables.people import KINDS, people

pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, 1)).double().eval()
    return tables.explain(model, people(), columns=KINDS, score="probability", classes=["leaves"])


def test_a_sentence_names_what_mattered_most_and_its_error(found):
    said = found.sentence_of("p5")
    strongest = found.names[int(np.abs(found.values[5]).argmax())]
    assert said.startswith("Row p5: probability of leaves 0.")
    assert strongest in said
    assert "±" in said
    assert said.endswith("%.")
    assert str(found.row("p5")).splitlines()[0] == said
    assert "Over 40 rows" in found.sentence
    assert repr(found) == found.sentence


def test_frames_and_shap(found):
    frame = found.to_frame()
    assert list(frame.columns) == ["age", "income", "city", "smoker", "base value", "score"]
    assert frame.index.tolist() == list(found.labels)
    np.testing.assert_allclose(frame[list(found.names)].sum(axis=1) + frame["base value"], frame["score"], atol=1e-3)
    shap = pytest.importorskip("shap")
    explanation = found.to_shap()
    assert isinstance(explanation, shap.Explanation)
    np.testing.assert_array_equal(explanation.values, found.values)
    np.testing.assert_array_equal(explanation.base_values, found.base)
    assert explanation.feature_names == list(found.names)
    assert explanation[3].data[2] == found.cells["city"][3]


def test_shaps_own_plots_take_it(found):
    shap = pytest.importorskip("shap")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    from integrand.errors import quiet

    explanation = found.to_shap()
    with quiet():
        for plot in (shap.plots.bar, shap.plots.beeswarm, shap.plots.heatmap):
            plot(explanation, show=False)
            pyplot.close("all")
        shap.plots.waterfall(explanation[0], show=False)
        shap.plots.scatter(found.take(range(20)).to_shap()[:, "age"], show=False)
        pyplot.close("all")


def test_files_of_every_kind(found, tmp_path):
    pytest.importorskip("matplotlib")
    found.save(tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 160
    assert (rows[5]["row"], rows[5]["column"]) == ("p1", "income")
    assert float(rows[5]["value"]) == found.values[1, 1]
    assert float(rows[5]["error"]) == found.errors[1, 1]
    found.save(tmp_path / "all.json")
    read = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert read["rows"][3]["columns"][2]["cell"] == found.cells["city"][3]
    assert read["rows"][3]["columns"][2]["value"] == found.values[3, 2]
    for name in ("bar", "heatmap", "beeswarm"):
        assert found.save(tmp_path / f"{name}.png", picture=name).stat().st_size > 5000
    found.save(tmp_path / "one.svg", picture="waterfall", row="p3", most=2)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "integrand" in text
    from integrand.files import made_here

    assert all(made_here(tmp_path / name) for name in ("all.csv", "all.json", "bar.png", "one.svg"))
    with pytest.raises(OptionError, match="expected one of waterfall, bar"):
        found.save(tmp_path / "x.png", picture="pie")
    with pytest.raises(OptionError, match="for pages and pictures"):
        found.save(tmp_path / "x.csv", most=3)


def test_pictures_are_figures_and_options_are_checked(found):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    assert isinstance(found.dependence("age", by="city"), Figure)
    assert isinstance(found.dependence("city", by="age"), Figure)
    assert isinstance(found.waterfall("p1", most=1), Figure)
    with pytest.raises(OptionError, match="there are 40 rows"):
        found.waterfall()
    with pytest.raises(InputError, match="no row with the label 'p99'"):
        found.waterfall("p99")
    with pytest.raises(OptionError, match="got the column 'height'"):
        found.dependence("height")
    with pytest.raises(OptionError, match="got most=0"):
        found.bar(most=0)
    with pytest.raises(OptionError, match="got by='age'"):
        found.heatmap(by="age")


def test_a_copy_has_its_numbers_but_not_the_model(found):
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy.values, found.values)
    assert copy.sentence == found.sentence
    with pytest.raises(InputError, match="model is not at hand"):
        copy.partner("age")
    assert "<svg" in copy._small_html_()


def test_texts_of_a_table_do_no_harm(tmp_path):
    import pandas as pd

    name, cell = "<script>alert(1)</script>", "=1+1"
    frame = pd.DataFrame({name: [1.0, 2.0, 3.0], "b": [cell, "x", cell]}, index=["<b>", "q", "r"])
    found = tables.explain(nn.Linear(3, 1), frame, columns={name: None, "b": [cell, "x"]})
    page = found.html(by=False)
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    found.save(tmp_path / "t.csv")
    assert "'=1+1" in (tmp_path / "t.csv").read_text(encoding="utf-8")


def test_a_value_within_its_error_is_no_reason():
    """From a sample of baselines values are uncertain: what may be zero is not said to be why."""
    trained = tables.load("diabetes")
    found = trained.explain(tables.sample(trained.frame, 50), rows=[3])
    unsure = [
        name for name, value, error in zip(found.names, found.values[0], found.errors[0], strict=True) if abs(value) <= error
    ]
    assert "bmi" in unsure
    assert not any(f"{name} is " in found.sentence for name in unsure)
    assert "(on average over 50 rows drawn from 442: " in found.sentence
    assert "(at row 5: 130)" in trained.explain(5, rows=3).sentence
    assert "(at row 5: 130)" in trained.explain(trained.frame.loc[5], rows=3).sentence


def test_columns_that_move_nothing_are_not_named():
    import pandas as pd
    import torch

    model = torch.nn.Linear(2, 1).double()
    some = pd.DataFrame({"a": [1.0, 2.0, 4.0], "still": [3.0, 3.0, 3.0]})
    said = tables.explain(model, some).sentence
    assert said.startswith("Over 3 rows, a (")
    assert "moves the score the most" in said
    assert "still" not in said
    assert tables.explain(model, some.assign(a=1.0)).sentence.startswith("Over 3 rows, no column moves the score by more than")
