"""Values of columns against closed forms, shap's exact values and plain sums; baselines, kinds of columns and of tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand import tables
from tests.apps.tables.interchanged import Interchanged
from tests.apps.tables.people import CITIES, KINDS, OWNERS, Mixed, by_gauss, encoded, people

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def frame():
    return people()


def network(inputs=7, outputs=1):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)).double().eval()


def by_column(values):
    return torch.zeros(len(values), 4, dtype=torch.float64).index_add(1, OWNERS, values.double()).numpy()


def test_a_linear_model_gives_coefficient_times_distance_from_the_mean():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(3, 5, (30, 4)), columns=list("abcd"))
    model = nn.Linear(4, 1).double()
    found = tables.explain(model, frame)
    want = model.weight.detach().numpy() * (frame - frame.mean()).to_numpy()
    np.testing.assert_allclose(found.values, want, rtol=0, atol=1e-12 * np.abs(want).max())
    assert (found.errors <= 1e-10).all()
    assert found.certificate.converged
    np.testing.assert_allclose(found.base, model(torch.tensor(frame.mean().to_numpy())).item(), rtol=1e-12)


def test_scaled_numbers_give_the_same_as_the_model_with_the_scaling_inside(frame):
    model = nn.Linear(2, 1).double()
    columns = {"age": (50.0, 20.0), "income": (50_000.0, 12_000.0)}
    found = tables.explain(model, frame, columns=columns)
    scale = np.array([20.0, 12_000.0])
    numbers = frame[["age", "income"]].to_numpy()
    want = model.weight.detach().numpy() / scale * (numbers - numbers.mean(0))
    np.testing.assert_allclose(found.values, want, rtol=0, atol=1e-12)
    assert found.cells["income"].tolist() == frame["income"].tolist()  # shown as the table has them
    assert found.baseline_cells["age"] == pytest.approx(frame["age"].mean())


def test_an_additive_model_gives_shaps_exact_values(frame):
    shap = pytest.importorskip("shap")
    offsets = torch.tensor([0.5, -1.0, 2.0, 0.0, 0.0, 0.3, -0.7], dtype=torch.float64)

    def additive(x):
        return torch.sin(2 * x[:, 0]) + x[:, 1] ** 3 + x[:, 2:] @ offsets[2:]

    background = frame.iloc[:12]
    found = tables.explain(additive, frame.iloc[12:20], background, columns=KINDS, tol=1e-6, dtype=torch.float64)
    codes = {"city": list(CITIES), "smoker": ["no", "yes"]}

    def coded(part):
        return np.stack([codes[name].index(v) if name in codes else v for name in part for v in part[name]]).reshape(4, -1).T

    def raw(rows):
        table = pd.DataFrame(rows, columns=list(frame))
        for name, kinds in codes.items():
            table[name] = [kinds[int(code)] for code in table[name]]
        return additive(encoded(table)).numpy()

    masker = shap.maskers.Independent(coded(background), max_samples=100)
    want = shap.explainers.Exact(raw, masker)(coded(frame.iloc[12:20]))
    np.testing.assert_allclose(found.values, want.values, atol=2e-6 * np.abs(want.values).max())
    np.testing.assert_allclose(found.base, want.base_values, atol=1e-9)


def test_one_hot_numbers_come_back_as_one_column(frame):
    model = network()
    found = tables.explain(model, frame, columns=KINDS, tol=1e-5)
    x = encoded(frame)
    [want] = by_gauss(model, [x], [x.mean(0, keepdim=True).expand_as(x)])
    np.testing.assert_allclose(found.values, by_column(want), atol=3e-5)
    assert found.names == ("age", "income", "city", "smoker")
    np.testing.assert_allclose(found.values.sum(1) + found.base, found.scores, atol=1e-4)
    assert found.labels[3] == "p3"


def test_a_table_that_is_encoded_already_is_shown_as_its_columns(frame):
    model = network()
    wide = pd.DataFrame(encoded(frame).numpy(), index=frame.index)
    one = tables.explain(model, frame, columns=KINDS)
    other = tables.explain(model, wide, columns=KINDS, encoded=True)
    np.testing.assert_allclose(other.values, one.values, atol=1e-12)
    assert other.cells["city"].tolist() == frame["city"].tolist()
    np.testing.assert_allclose(other.cells["income"].astype(float), frame["income"], rtol=1e-12)
    given = tables.explain(model, wide, wide.iloc[:3], columns=KINDS, encoded=True)
    np.testing.assert_allclose(given.values, tables.explain(model, frame, frame.iloc[:3], columns=KINDS).values, atol=1e-12)


@pytest.mark.parametrize("order", ["numbers, codes", "codes, numbers", "together"])
def test_embedded_categories_are_summed_to_their_column(frame, order):
    torch.manual_seed(2)
    model = Mixed(order).double().eval()
    columns = {
        "age": (50.0, 20.0),
        "income": (50_000.0, 12_000.0),
        "city": tables.embedded(CITIES, "city"),
        "smoker": tables.embedded(["no", "yes"], "smoker"),
    }
    found = tables.explain(model, frame, columns=columns, takes=order, tol=1e-5, rows=["p4", "p9"])
    numbers = encoded(frame)[:, :2]
    city = model.city(torch.tensor([CITIES.index(one) for one in frame["city"]])).detach()
    smoker = model.smoker(torch.tensor([["no", "yes"].index(one) for one in frame["smoker"]])).detach()
    whole = [numbers, city, smoker]
    x = [part[[4, 9]] for part in whole]
    start = [part.mean(0, keepdim=True).expand_as(one) for part, one in zip(whole, x, strict=True)]
    want = by_gauss(lambda *parts: model.head(torch.cat(parts, 1)), x, start)
    summed = torch.cat([want[0], want[1].sum(1, keepdim=True), want[2].sum(1, keepdim=True)], 1).numpy()
    np.testing.assert_allclose(found.values, summed, atol=3e-5)


def test_columns_that_share_an_embedding(frame):
    model = Mixed(shared=True).double().eval()
    columns = {"age": (50.0, 20.0), "income": (50_000.0, 12_000.0)}
    columns |= {"city": tables.embedded(CITIES, "both"), "smoker": tables.embedded(["no", "yes"], "both")}
    found = tables.explain(model, frame, {"age": 40.0, "income": 3e4, "city": "Oslo", "smoker": "no"}, columns=columns)
    # A row that differs from the baseline in one column has all of its change there.
    same = tables.explain(
        model,
        pd.DataFrame([{"age": 40.0, "income": 3e4, "city": "Oslo", "smoker": "yes"}]),
        {"age": 40.0, "income": 3e4, "city": "Oslo", "smoker": "no"},
        columns=columns,
        tol=1e-4,
    )
    assert np.abs(same.values[0, :3]).max() == 0
    assert same.values[0, 3] == pytest.approx(same.scores[0] - same.base[0], rel=1e-3)
    assert found.certificate.converged


def test_fitted_transformers_of_scikit_learn_are_read(frame):
    pytest.importorskip("sklearn")
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

    model = network()
    with_gaps = frame.copy()
    with_gaps.loc["p3", "age"] = np.nan
    transformer = ColumnTransformer(
        [
            ("age", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("income", make_pipeline(RobustScaler(), MinMaxScaler()), ["income"]),
            ("kinds", OneHotEncoder(), ["city", "smoker"]),
        ]
    ).fit(with_gaps)
    found = tables.explain(model, with_gaps, columns=transformer, tol=1e-5)
    x = torch.tensor(transformer.transform(with_gaps))
    [want] = by_gauss(model, [x], [x.mean(0, keepdim=True).expand_as(x)])
    np.testing.assert_allclose(found.values, by_column(want), atol=3e-5)


def test_dropped_categories_and_unknown_ones(frame):
    from integrand.apps.tables.column_codes import ColumnCodes
    from integrand.apps.tables.data_frames import rows_of_table

    kind = tables.one_hot(CITIES, dropped="Oslo", unknown=True)
    codes = ColumnCodes((("city", kind),))
    some = pd.DataFrame({"city": ["Oslo", "Tromsø", "Rome"]})
    numbers, _ = codes.encode(rows_of_table(some))
    assert numbers.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert kind.decode(numbers[:2]).tolist() == ["Oslo", "Tromsø"]


def test_several_baselines_are_averaged_exactly(frame):
    model = network()
    starts = frame.iloc[:6]
    found = tables.explain(model, frame, starts, columns=KINDS, rows=["p7", "p8"], tol=1e-5)
    x, start = encoded(frame)[[7, 8]], encoded(starts)
    want = sum(by_gauss(model, [x], [one[None].expand_as(x)])[0] for one in start) / 6
    np.testing.assert_allclose(found.values, by_column(want), atol=3e-5)
    assert found.sampling is None
    assert found.base[0] == pytest.approx(model(start).mean().item(), rel=1e-6)


def test_a_sample_knows_how_far_it_is_from_all_rows():
    frame = people(200, seed=3)
    model = network()
    rows = list(frame.index[:20])
    want = tables.explain(model, frame, frame, columns=KINDS, rows=rows, tol=1e-4).values
    within = []
    for seed in range(6):
        found = tables.explain(model, frame, tables.sample(frame, 40, seed=seed), columns=KINDS, rows=rows, tol=1e-3)
        assert found.certificate.converged
        assert (found.sampling > 0).all()
        assert (found.errors >= found.sampling).all()
        within.append(np.abs(found.values - want) <= found.errors)
    # Claimed for 98%; rows share a sample, so that misses come together.
    assert np.mean(within) > 0.9
    # An error that is claimed is no more than a few times as large as those that occur.
    assert np.median(found.errors) < 12 * np.median(np.abs(found.values - want))


def test_the_error_of_a_sample_is_the_same_in_a_sorted_table():
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=400)})
    model = nn.Linear(1, 1).double()
    spread = abs(model.weight.item()) * frame.x.std() / np.sqrt(80) * np.sqrt(1 - 80 / 400)
    found = [
        tables.explain(model, frame, tables.sample(given, 80, seed=seed), rows=[0]).sampling.item()
        for given in (frame, frame.sort_values("x"))
        for seed in range(10)
    ]
    # In closed form the deviation of a mean of 80 of 400 values; ten groups know it to a quarter.
    np.testing.assert_allclose(np.mean(found[:10]), np.mean(found[10:]), rtol=0.3)
    assert 1.5 * spread < np.mean(found[10:]) < 5 * spread


def test_rows_are_named_as_pandas_does(frame):
    model = network()
    found = tables.explain(model, frame, columns=KINDS)
    for rows in (frame.index[:2], pd.Series(["p0", "p1"]), np.arange(len(frame)) < 2, frame.index.isin(["p0", "p1"])):
        assert tables.explain(model, frame, columns=KINDS, rows=rows).labels == ("p0", "p1")
    twice = frame.set_index(pd.MultiIndex.from_arrays([frame.city, frame.index]))
    label = twice.index[3]
    np.testing.assert_allclose(tables.explain(model, twice, columns=KINDS).row(label).values[0], found.values[3])


def test_the_top_class_of_a_row_is_named():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0]})
    model = nn.Linear(1, 3).double()
    with torch.no_grad():
        model.weight[:] = torch.tensor([[0.0], [1.0], [0.5]])
        model.bias.zero_()
    found = tables.explain(model, frame, rows=2, classes=["x", "y", "z"], score="probability")
    assert found.unit == "probability of y"
    assert found.scores[0] == pytest.approx(model(torch.tensor([[4.0]]).double()).softmax(1)[0, 1].item())


def test_columns_that_are_called_as_ours():
    frame = pd.DataFrame({"base value": [1.0, 2.0, 4.0], "a": [0.0, 1.0, 5.0]})
    found = tables.explain(nn.Linear(2, 1).double(), frame)
    shown = found.to_frame()
    np.testing.assert_array_equal(shown["base value"], found.values[:, 0])
    np.testing.assert_array_equal(shown["score"], found.scores)


def test_a_sample_of_everything_leaves_nothing_open(frame):
    model = network()
    found = tables.explain(model, frame, tables.sample(frame, 1000), columns=KINDS, rows=["p1"])
    assert found.sampling is None
    want = tables.explain(model, frame, frame, columns=KINDS, rows=["p1"])
    np.testing.assert_allclose(found.values, want.values, atol=1e-12)


def test_a_row_of_the_table_a_series_and_a_dict_are_the_same_baseline(frame):
    model = network()
    found = [
        tables.explain(model, frame, start, columns=KINDS).values for start in ("p2", frame.loc["p2"], dict(frame.loc["p2"]))
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert np.abs(found[0][2]).max() == 0


def test_the_means_of_another_table(frame):
    model = network()
    found = tables.explain(model, frame.iloc[[0]], tables.mean(frame), columns=KINDS)
    want = tables.explain(model, frame, columns=KINDS, rows="p0")
    np.testing.assert_allclose(found.values, want.values, atol=1e-12)


def test_polars_and_arrays_give_what_pandas_gives(frame):
    polars = pytest.importorskip("polars")
    model = network()
    want = tables.explain(model, frame, columns=KINDS)
    found = tables.explain(model, polars.from_dict({name: frame[name].tolist() for name in frame}), columns=KINDS)
    np.testing.assert_array_equal(found.values, want.values)
    assert found.labels == tuple(range(len(frame)))
    assert found.cells["city"].tolist() == frame["city"].tolist()
    spoken = tables.explain(model, Interchanged(frame.reset_index(drop=True)), columns=KINDS)
    np.testing.assert_array_equal(spoken.values, want.values)
    numbers = frame[["age", "income"]].to_numpy()
    plain = nn.Linear(2, 1).double()
    for table in (numbers, torch.tensor(numbers), frame[["age", "income"]]):
        np.testing.assert_allclose(
            tables.explain(plain, table).values, tables.explain(plain, frame, columns=["age", "income"]).values, atol=1e-9
        )


def test_the_order_of_a_mapping_is_the_models(frame):
    model = nn.Linear(2, 1).double()
    one = tables.explain(model, frame, columns=["income", "age"])
    weights = model.weight.detach().numpy()[0]
    numbers = frame[["income", "age"]].to_numpy()
    np.testing.assert_allclose(one.values, weights * (numbers - numbers.mean(0)), rtol=1e-9, atol=1e-9)


def test_which_output_is_explained(frame):
    two, three = network(outputs=2), network(outputs=3)
    given = {"columns": KINDS, "score": "probability"}
    second = tables.explain(two, frame, **given)
    assert second.unit == "probability of output 1"
    named = tables.explain(two, frame, classes=["stays", "leaves"], target="leaves", **given)
    np.testing.assert_array_equal(named.values, second.values)
    assert named.unit == "probability of leaves"
    with pytest.raises(ig.errors.TargetError, match="3 outputs and 40 rows"):
        tables.explain(three, frame, **given)
    top = tables.explain(three, frame, rows="p5", **given)
    assert top.scores[0] == pytest.approx(three(encoded(frame)[5]).softmax(0).max().item(), rel=1e-6)
    with pytest.raises(ig.errors.TargetError, match=r"got target='goes'.*'stays', 'leaves'"):
        tables.explain(two, frame, classes=["stays", "leaves"], target="goes", **given)


def test_rows_are_explained_alike_in_any_number_at_a_time(frame, monkeypatch):
    model = network()
    whole = tables.explain(model, frame, columns=KINDS)
    monkeypatch.setattr("integrand.apps.tables.model.BATCH", 7)
    parts = tables.explain(model, frame, columns=KINDS)
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-9)
    assert len(parts.certificate) == 40


def test_the_same_call_gives_the_same_bits(frame):
    model = network()
    start = tables.sample(frame, 20)
    one, other = (tables.explain(model, frame, start, columns=KINDS) for _ in range(2))
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.errors, other.errors)


def test_the_partner_of_a_column_is_what_it_acts_with():
    draw = np.random.default_rng(4)
    frame = pd.DataFrame(draw.normal(0, 1, (30, 4)), columns=list("abcd"))

    def model(x):
        return x[:, 0] * x[:, 1] + 0.1 * x[:, 0] * x[:, 2] + torch.sin(x[:, 3])

    found = tables.explain(model, frame, dtype=torch.float64)
    assert found.partner("a") == "b"
    assert found.partner("b") == "a"
    assert found.partner("d") is None
    together = found.interactions(rows=5)
    assert together.converged
    assert tuple(together.numpy().shape) == (5, 4, 4)


def test_many_rows_go_through_the_runner(frame, tmp_path):
    pytest.importorskip("pyarrow")
    model = network()
    explainer = tables.TableExplainer.of(model, frame, columns=KINDS)
    bad = frame.copy()
    bad.loc["p7", "city"] = "Rome"
    done = ig.explain_many(bad, explainer, tmp_path / "out", together=8, progress=False)
    assert (done.explained, done.summary.failed) == (39, 1)
    assert "'Rome'" in done.summary.reasons[0][1]
    rows = {row.key: row for row in done.table.rows()}
    assert [key for key, row in rows.items() if not row.ok] == ["7"]
    want = tables.explain(model, frame, columns=KINDS)
    for place in (3, 38):
        np.testing.assert_allclose(rows[str(place)].attributions, want.values[place], rtol=0, atol=1e-9)
        assert rows[str(place)].features == want.names
    again = ig.explain_many(bad, explainer, tmp_path / "out", together=8, progress=False)
    assert again.summary.known == 39
