"""Models of skorch, Lightning and Keras 3 on torch, real tables with their networks, and TabPFN where it is at hand."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from integrand import tables
from integrand.apps.tables.column_codes import ColumnCodes
from integrand.apps.tables.data_frames import rows_of_table
from integrand.errors import ModelError, quiet
from tests.apps.tables.people import KINDS, by_gauss, encoded, people

pytest.importorskip("pandas")


def hidden():
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2))


def test_a_skorch_net_is_explained_as_it_predicts():
    skorch = pytest.importorskip("skorch")
    frame = people()[["age", "income"]]
    x = ((frame - frame.mean()) / frame.std()).to_numpy().astype(np.float32)
    net = skorch.NeuralNetClassifier(hidden, criterion=nn.CrossEntropyLoss, max_epochs=2, verbose=0, train_split=None)
    with pytest.raises(ModelError, match="skorch that is not fitted"):
        tables.explain(net, frame)
    torch.manual_seed(0)
    net.fit(x, (x[:, 0] > 0).astype(np.int64))
    net.module_.train()
    columns = {name: (frame[name].mean(), frame[name].std()) for name in frame}
    found = tables.explain(net, frame, columns=columns, score="probability")
    assert net.module_.training  # left as it was
    np.testing.assert_allclose(found.scores, torch.as_tensor(net.forward(x)).softmax(1)[:, 1], atol=1e-5)
    np.testing.assert_allclose(found.values.sum(1), found.scores - found.base, atol=2e-3)


def test_a_pipeline_that_ends_in_a_skorch_net_brings_its_columns():
    skorch = pytest.importorskip("skorch")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    frame = people()[["age", "income"]].astype(np.float32)
    net = skorch.NeuralNetRegressor(nn.Linear(2, 1), max_epochs=1, verbose=0, train_split=None)
    pipeline = make_pipeline(StandardScaler(), net).fit(frame, frame[["age"]].to_numpy().copy())
    found = tables.explain(pipeline, frame)
    np.testing.assert_allclose(found.scores, pipeline.predict(frame)[:, 0], rtol=1e-4)
    weights = net.module_.weight.detach().numpy()[0] / pipeline[0].scale_
    np.testing.assert_allclose(found.values, weights * (frame - frame.mean()), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="a pipeline that has its own"):
        tables.explain(pipeline, frame, columns=["age", "income"])


def test_a_lightning_module():
    with quiet():
        lightning = pytest.importorskip("lightning")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1))

        def forward(self, x):
            return self.layers(x)

    frame = people()
    model = Lit().double().eval()
    found = tables.explain(model, frame, columns=KINDS, rows=["p3"], tol=1e-4)
    x = encoded(frame)
    [want] = by_gauss(model.layers, [x[3:4]], [x.mean(0, keepdim=True)])
    assert found.values[0, 0] == pytest.approx(want[0, 0].item(), rel=1e-3)
    np.testing.assert_allclose(found.values[0].sum(), found.scores[0] - found.base[0], rtol=1e-3)


KERAS = """
import numpy as np, pandas as pd, torch
import keras
from integrand import tables
keras.utils.set_random_seed(0)
layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((3,)), *layers])
frame = pd.DataFrame(np.random.default_rng(0).normal(0, 1, (9, 3)), columns=list("abc"))
found = tables.explain(model, frame, tol=1e-3)
said = model.predict(frame.to_numpy(), verbose=0)[:, 0]
assert found.certificate.converged, found.certificate
assert np.allclose(found.scores, said, atol=1e-5), (found.scores, said)
first, second = (layer for layer in model.layers if layer.weights)
w, b, v = (one.value.detach().double() for one in (*first.weights, second.weights[0]))
x = torch.tensor(frame.to_numpy()); start = x.mean(0)
t, weights = np.polynomial.legendre.leggauss(40)
total = 0
for time, weight in zip((t + 1) / 2, weights / 2):
    inner = torch.tanh((start + time * (x - start)) @ w + b)
    total = total + weight * ((1 - inner**2) * v[:, 0]) @ w.T * (x - start)
assert np.abs(found.values - total.numpy()).max() < 2e-3 * np.abs(found.values).sum(1).max()
print("as it should be")
"""


def test_a_keras_model_on_torch():
    if importlib.util.find_spec("keras") is None:  # importing it here would choose a backend for all other tests
        pytest.skip("needs Keras 3: make test installs it")
    done = subprocess.run(
        [sys.executable, "-c", KERAS],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.strip().endswith("as it should be"), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["breast-cancer", "diabetes"])
def test_the_shipped_tables(name):
    pytest.importorskip("sklearn")
    pytest.importorskip("integrand_models")
    trained = tables.load(name)
    rows = list(trained.held_out[:25])
    found = trained.explain(rows=rows)
    assert found.certificate.converged
    every = ColumnCodes(tuple(trained.columns.items()))
    numbers = torch.as_tensor(every.encode(rows_of_table(trained.frame))[0])
    module = copy.deepcopy(trained.module).double()
    [want] = by_gauss(
        lambda x: torch.sigmoid(module(x)) if name == "breast-cancer" else module(x),
        [numbers[rows]],
        [numbers.mean(0, keepdim=True).expand(len(rows), -1)],
    )
    summed = (
        torch.zeros(len(rows), len(every.names), dtype=torch.float64).index_add(1, torch.tensor(every.owners), want).numpy()
    )
    off = np.abs(found.values - summed)
    assert (off.sum(1) <= 0.012 * np.abs(summed).sum(1)).all()  # 1% was asked for
    assert (off <= found.errors + 1e-5 * np.abs(summed).max()).mean() > 0.95  # claimed for 98%


def test_the_shipped_networks_are_worth_something():
    metrics = pytest.importorskip("sklearn.metrics")
    pytest.importorskip("integrand_models")
    from integrand.apps.tables.trained_tables import table_data

    for name, judge, least in (("breast-cancer", metrics.roc_auc_score, 0.98), ("diabetes", metrics.r2_score, 0.4)):
        trained, (frame, wanted) = tables.load(name), table_data(name)
        rows = list(trained.held_out)
        said = trained.explain(rows=rows, tol=0.1, score="logit").scores
        assert judge(wanted.to_numpy()[rows], said) > least
        assert len(frame) > 3 * len(rows)


def test_tabpfn_with_fixed_context_rows():
    from benchmarks.tabpfn_query import QueryRows, package_logits, package_model, read_weights, weights_file

    file = weights_file()
    if file is None:
        pytest.skip("needs TabPFN v1: its folder is not on PYTHONPATH (benchmarks/tabpfn_query.py says how to get it)")
    pytest.importorskip("sklearn")
    from integrand.apps.tables.trained_tables import table_data

    frame, wanted = table_data("breast-cancer")
    state, config = read_weights(file)
    context, labels = frame.to_numpy()[:60], wanted.to_numpy()[:60]
    network = QueryRows(state, config["nhead"], context, labels).eval()
    queries = frame.to_numpy()[60:70]
    with quiet():
        theirs = package_logits(package_model(state, config), network, context, labels, queries)
    ours = network(torch.tensor(queries, dtype=torch.float32)).detach()
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=1e-3)
    found = tables.explain(network, frame, tables.mean(frame.iloc[:60]), rows=[60, 61], dtype=torch.float32)
    assert found.certificate.converged
    np.testing.assert_allclose(found.values.sum(1), found.scores - found.base, atol=0.01 * np.abs(found.values).sum())
