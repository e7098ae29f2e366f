"""The question about a row as a value: other methods and other baselines see the same columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import integrand as ig
from integrand.errors import OptionError
from tests.apps.tables.people import CITIES, KINDS, Mixed, encoded, people


def test_a_linear_model_in_closed_form():
    frame = people()
    torch.manual_seed(0)
    model = torch.nn.Linear(7, 1).double().eval()
    asked = ig.tables.TableExplainer.of(model, frame, columns=KINDS).inquiry(frame, row="p3")
    found = asked.compare_methods(methods=["integrated-gradients", "gradient-x-input"])
    x, weights = encoded(frame), model.weight[0].detach()
    parts = weights * (x[3] - x.mean(0))
    expected = [parts[0], parts[1], parts[2:5].sum(), parts[5:].sum()]
    assert found.attributions["integrated gradients"].values[0].tolist() == pytest.approx([float(one) for one in expected])
    assert asked.features == tuple(frame.columns)
    rows = asked.diagnose().rows
    assert [row.name for row in rows] == ["the column means", "the column medians", "20 rows"]
    medians = weights * (x[3] - x.median(0).values)
    assert float(rows[1].attribution.values[0][0]) == pytest.approx(float(medians[0]))


def test_embeddings():
    frame = people()
    torch.manual_seed(0)
    model = Mixed().eval()
    columns = {
        "age": (50.0, 20.0),
        "income": (50_000.0, 12_000.0),
        "city": ig.tables.embedded(CITIES, "city"),
        "smoker": ig.tables.embedded(["no", "yes"], "smoker"),
    }
    explainer = ig.tables.TableExplainer.of(model, frame, columns=columns)
    found = explainer.inquiry(frame, row="p3").compare_methods(methods=["integrated-gradients"])
    expected = explainer.explain(frame, rows="p3").values[0]
    assert np.asarray(found.attributions["integrated gradients"].values[0]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_one_row_has_to_be_named():
    frame = people()
    explainer = ig.tables.TableExplainer.of(torch.nn.Linear(7, 1).eval(), frame, columns=KINDS)
    with pytest.raises(OptionError, match="row='p0'"):
        explainer.inquiry(frame)
