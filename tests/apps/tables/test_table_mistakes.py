"""What users get wrong: each error says what was got, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from integrand import tables
from integrand.errors import GradientError, IntegrandError, ModelError, TrainModeError
from tests.apps.tables.people import CITIES, KINDS, Mixed, people

pd = pytest.importorskip("pandas")


def plain(inputs=2):
    return nn.Linear(inputs, 1).double()


def table():
    return pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.5, 0.1, 0.9]})


def with_cell(value):
    frame = table().astype(object)
    frame.loc[1, "b"] = value
    return frame


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tables.explain(plain(), with_cell(None)), r"column 'b' is empty in row 1; expected a number.*missing=0.0"),
        (
            lambda: tables.explain(plain(), with_cell(float("inf"))),
            r"column 'b' is infinite in row 1; expected a finite number.*isfinite",
        ),
        (
            lambda: tables.explain(plain(), with_cell("red")),
            r"column 'b' holds 'red' in row 1; expected a number.*columns=\[\.\.\.\]",
        ),
        (lambda: tables.explain(plain(), table(), columns=["a", "c"]), r"no column 'c'; expected one, and it has 'a', 'b'"),
        (lambda: tables.explain(plain(), table(), columns={"a": 3, "b": None}), r"got columns\['a'\] = 3; expected None for a"),
        (lambda: tables.explain(plain(), table(), columns="a"), r"got columns='a'; expected a list"),
        (lambda: tables.explain(plain(), table(), columns=[]), r"got no columns"),
        (lambda: tables.explain(plain(), table(), columns={"a": (1.0, 0.0), "b": None}), r"scale other than 0"),
        (lambda: tables.explain(plain(), table(), columns={"a": ["x", "x"], "b": None}), r"some are the same"),
        (lambda: tables.explain(plain(3), table()), r"does not take rows as columns= gives them, float64 \(2, 2\).*'a', 'b'"),
        (lambda: tables.explain(plain(), table(), rows=7), r"there is no row 7; expected a number from 0 to 2"),
        (lambda: tables.explain(plain(), table(), rows=[]), r"got no rows"),
        (lambda: tables.explain(plain(), table(), rows=table().a > 9), r"got no rows"),
        (
            lambda: tables.explain(plain(), table(), rows=slice(0, 2)),
            r"got the rows slice\(0, 2, None\).*frame.loc\[a:b\].index",
        ),
        (
            lambda: tables.explain(plain(), table(), classes=["no", "yes"], target="no"),
            r"got the target 'no', and the model has one output, which speaks for 'yes'",
        ),
        (
            lambda: tables.explain(plain(), table().set_index(pd.Index([3, 3, 4])), rows=3),
            r"2 rows have the label 3.*reset_index",
        ),
        (
            lambda: tables.explain(plain(), table().set_index(pd.Index([30, 40, 50])), rows=1),
            r"no row with the label 1.*30, 40, 50",
        ),
        (lambda: tables.explain(plain(), table(), None), r"got baseline=None"),
        (lambda: tables.explain(plain(), table(), "median"), r"baseline='median'.*'mean'"),
        (lambda: tables.explain(plain(), table(), {"a": 1.0}), r"the baseline has no column 'b'"),
        (lambda: tables.explain(plain(), table(), np.zeros((1, 2))), r"the baseline has no column 'a'.*DataFrame\(array"),
        (lambda: tables.explain(plain(), table().a), r"a pandas.Series, one column or one row; expected a table"),
        (lambda: tables.explain(plain(), with_cell(pd.Timestamp("2020-01-02"))), r"holds the time 2020-01-02.*dt\.days"),
        (
            lambda: tables.explain(plain().float(), table() * 1e300),
            r"column 'a' is 1e\+300 in row 0, as the model gets it, which is too large for float32.*\(mean, scale\)",
        ),
        (lambda: tables.explain(plain(), table(), [1, 2]), r"the baseline is a list"),
        (
            lambda: tables.explain(plain(), table().iloc[[0]]),
            r"baseline='mean', which is that row.*tables.mean\(training_frame\)",
        ),
        (lambda: tables.explain(plain(), table(), pd.concat([table()] * 900)), r"2,700 rows as the baseline.*tables.sample"),
        (lambda: tables.explain(plain(), table(), groups=torch.zeros(2)), r"got groups=, which columns= decides"),
        (lambda: tables.explain(plain(), table(), takes="all"), r"got takes='all'"),
        (lambda: tables.explain(plain(), [1, 2]), r"the table is a list; expected a table with named columns"),
        (lambda: tables.explain(plain(), np.zeros(3)), r"array of shape \(3,\)"),
        (lambda: tables.explain(plain(), table().iloc[:0]), r"0 rows and 2 columns"),
        (lambda: tables.explain(plain(), table(), classes=["x", "y", "z"]), r"got 3 classes for 1 outputs"),
        (lambda: tables.explain("model.pt", table()), r"got the path 'model.pt'"),
        (lambda: tables.sample(table(), 0), r"got count=0"),
        (lambda: tables.sample(people(), 3), r"got a sample of 3 of 40 rows; expected at least 4"),
        (lambda: tables.explain(plain(), table()).save("found.xlsx"), r"got the ending '.xlsx'; expected .*\.csv"),
        (lambda: tables.one_hot(["x"], dropped="y"), r"got dropped='y'"),
        (lambda: tables.embedded([], "layer"), r"got no categories"),
        (lambda: tables.embedded(["x"], 3), r"got layer=3"),
        (
            lambda: tables.explain(plain(3), table(), columns={"a": None, "b": None}, encoded=True, rows=0),
            r"does not take rows",
        ),
    ],
)
def test_messages(call, says):
    with pytest.raises(IntegrandError, match=says):
        call()


def test_the_remedies_for_infinite_and_large_numbers_work():
    frame = table()
    frame.loc[1, "b"] = np.inf
    assert len(tables.explain(plain(), frame[np.isfinite(frame["b"])])) == 2
    large = table() * 1e100
    kinds = {"a": (0.0, 1e100), "b": (0.0, 1e100)}
    assert tables.explain(plain().float(), large, columns=kinds).certificate.converged
    assert tables.explain(plain(), large).certificate.converged


def test_dates_name_rows():
    frame = table().set_index(pd.date_range("2020-01-01", periods=3))
    [label] = tables.explain(plain(), frame, rows="2020-01-02").labels
    assert label == pd.Timestamp("2020-01-02")
    with pytest.raises(IntegrandError, match=r"no row with the label 'soon'.*2020-01-01 00:00:00"):
        tables.explain(plain(), frame, rows="soon")


def test_a_category_that_is_not_known():
    frame = people()
    frame.loc["p4", "city"] = "Rome"
    with pytest.raises(IntegrandError, match=r"column 'city' is 'Rome' in row p4; expected one of 'Bergen', 'Oslo', 'Tromsø'"):
        tables.explain(plain(7), frame, columns=KINDS)


def test_a_gap_may_be_filled():
    found = tables.explain(plain(), with_cell(None), columns={"a": None, "b": tables.number(missing=0.1)})
    want = tables.explain(plain(), with_cell(0.1))
    assert found.values.shape == want.values.shape
    assert found.certificate.converged


def test_embeddings_that_are_not_there_or_not_called():
    frame = people()
    columns = {"age": (50.0, 20.0), "income": (50_000.0, 12_000.0), "city": tables.embedded(CITIES, "city")}
    with pytest.raises(IntegrandError, match="got layer='town'"):
        tables.explain(Mixed().double().eval(), frame, columns=columns | {"smoker": tables.embedded(["no", "yes"], "town")})
    model = Mixed().double().eval()
    model.unused = nn.Embedding(2, 4)
    with pytest.raises(ModelError, match="'smoker' is not called"):
        tables.explain(model, frame, columns=columns | {"smoker": tables.embedded(["no", "yes"], "unused")})
    with pytest.raises(ModelError, match=r"called 1 times.*for 2 columns"):
        tables.explain(model, frame, columns=columns | {"smoker": tables.embedded(["no", "yes"], "city")})


def test_a_model_in_train_mode_is_refused():
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    with pytest.raises(TrainModeError):
        tables.explain(model, table())


def test_transformers_that_mix_columns_are_refused():
    pytest.importorskip("sklearn")
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import MinMaxScaler, OrdinalEncoder, StandardScaler

    frame = table()
    with pytest.raises(IntegrandError, match=r"got a PCA in columns=.*Write what it does into the model"):
        tables.explain(plain(), frame, columns=PCA().fit(frame))
    with pytest.raises(IntegrandError, match="StandardScaler that is not fitted"):
        tables.explain(plain(), frame, columns=StandardScaler())
    with pytest.raises(IntegrandError, match="clip=True"):
        tables.explain(plain(), frame, columns=MinMaxScaler(clip=True).fit(frame))
    with pytest.raises(IntegrandError, match=r"OrdinalEncoder.*tables.embedded"):
        tables.explain(plain(), people(), columns=ColumnTransformer([("c", OrdinalEncoder(), ["city"])]).fit(people()))
    with pytest.raises(IntegrandError, match="ColumnTransformer that is not fitted"):
        tables.explain(plain(), frame, columns=ColumnTransformer([("c", StandardScaler(), ["a"])]))


def test_a_model_of_scikit_learn_is_told_apart():
    linear = pytest.importorskip("sklearn.linear_model")
    frame = table()
    with pytest.raises(ModelError, match="got a LinearRegression of scikit-learn"):
        tables.explain(linear.LinearRegression().fit(frame, frame["a"]), frame)


def test_a_forest_inside_a_function_has_no_gradient():
    """A forest runs its trees with scikit-learn's ``Parallel``, which copies the filters for warnings of this package too."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    frame = table()
    forest = ensemble.RandomForestClassifier(n_estimators=2).fit(frame.to_numpy(), frame.a > 1)
    with pytest.raises(GradientError, match="has no gradient"):
        tables.explain(lambda x: torch.tensor(forest.predict_proba(x.detach().numpy())), frame, rows=[0], target=1)


def test_a_model_in_train_mode_is_left_as_it_is():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    before = model[1].running_mean.clone()
    with pytest.raises(TrainModeError, match="BatchNorm1d"):
        tables.explain(model, table())
    assert torch.equal(model[1].running_mean, before)
