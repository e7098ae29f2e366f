"""What people pass instead of a torch model or a tensor: the error says what to do, and that works when it is pasted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand.errors import InputError, ModelError, OutputError

X = torch.tensor([[0.5, -1.0, 2.0]])
NET = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).eval()


def pasted(message: str, pattern: str, **names: Any) -> Any:
    """What a piece of code in a message gives, evaluated as somebody would paste it."""
    found = re.search(pattern, message)
    assert found, message
    return eval(found[0], {"torch": torch, "numpy": np, **names})


@pytest.fixture(scope="module")
def table() -> tuple[Any, Any]:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    return rows, (rows @ [1.0, -2.0, 0.5] > 0).astype(int)


def test_what_can_be_called_is_not_refused_for_the_names_of_its_methods() -> None:
    class Wrapped:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return (x**2).sum(1)

        predict = get_params = __call__

    assert ig.integrated_gradients(Wrapped(), X).values.sum() == pytest.approx(5.25, rel=0.01)


def test_a_linear_model_of_scikit_learn_is_a_line_of_torch(table: tuple[Any, Any]) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    for model in (linear.LogisticRegression(), linear.Ridge()):
        model.fit(*table)
        with pytest.raises(ModelError, match=f"got a {type(model).__name__} of scikit-learn") as caught:
            ig.integrated_gradients(model, X)
        function = pasted(str(caught.value), r"lambda x: x @ .*x\.dtype\)(?=\.$)", model=model)
        result = ig.integrated_gradients(function, X)
        np.testing.assert_allclose(result.numpy().ravel(), X.numpy().ravel() * model.coef_.ravel(), rtol=1e-5)


def test_what_can_only_be_called_is_sampled(table: tuple[Any, Any]) -> None:
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from integrand.methods import Shapley

    for model in (make_pipeline(StandardScaler(), LogisticRegression()), RandomForestClassifier(3, random_state=0)):
        model.fit(*table)
        with pytest.raises(ModelError, match=r"from integrand\.methods import Shapley") as caught:
            ig.integrated_gradients(model, X)
        result = pasted(str(caught.value), r"Shapley\(\)\(.*\), x\)", model=model, Shapley=Shapley, x=X)
        one = result.certificate.only
        assert float(result.sum()) == pytest.approx(one.score - one.baseline_score, abs=1e-6)
        with pytest.raises(OutputError, match=r"array of numpy, which has no gradient.*Shapley"):
            ig.integrated_gradients(lambda x, model=model: model.predict_proba(x.numpy()), X)


def made_in(package: str, name: str, **members: Any) -> Any:
    """An object as another package has it."""
    return type(name, (), {"__module__": f"{package}.core", **members})()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (made_in("xgboost", "Booster", predict=None), r"Trees have none.*model\.predict\(xgboost\.DMatrix\(x\.numpy\(\)\)\)"),
        (made_in("xgboost", "XGBClassifier", predict_proba=None), r"model\.predict_proba\(x\.numpy\(\)\)"),
        (made_in("lightgbm", "Booster", predict=None), r"model\.predict\(x\.numpy\(\)\)"),
        (
            made_in("keras", "Sequential", __call__=lambda self, x: x),
            r"os\.environ\['KERAS_BACKEND'\] = 'torch' before",
        ),
        (
            made_in("transformers", "TextPipeline", model=1, tokenizer=2),
            r"text\.explain\(pipe\.model, pipe\.tokenizer",
        ),
        (nn.Linear, r"got the class Linear.*Linear\(\.\.\.\)"),
        ({"weight": X}, "load_state_dict"),
        (None, "got None as the model"),
    ],
)
def test_models_of_other_packages(model: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        ig.integrated_gradients(model, X)


def test_a_path_is_loaded_first(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.export.save(torch.export.export(NET, (X,)), path)
    for given in (path, str(path)):
        with pytest.raises(ModelError, match="got the path") as caught:
            ig.integrated_gradients(given, X)  # type: ignore[arg-type]
    loaded = pasted(str(caught.value), r"torch\.export\.load\(path\)\.module\(\)", path=path)
    torch.testing.assert_close(ig.integrated_gradients(loaded, X).values, ig.integrated_gradients(NET, X).values)
    program = torch.export.load(path)
    with pytest.raises(ModelError, match=r"program\.module\(\)") as caught:
        ig.integrated_gradients(program, X)
    assert ig.integrated_gradients(pasted(str(caught.value), r"program\.module\(\)", program=program), X).certificate.converged


def test_numbers_that_are_no_tensors_are_converted_as_the_message_says() -> None:
    numbers = X.numpy().astype(float)
    for given in (numbers, numbers.tolist()):
        for place in ("x", "baseline"):
            with pytest.raises(InputError) as caught:
                ig.integrated_gradients(NET, given if place == "x" else X, given if place == "baseline" else None)
            made = pasted(str(caught.value), r"torch\.(from_numpy|tensor)\(.*?\)(\.float\(\))?(?=\.)", **{place: given})
            torch.testing.assert_close(made, X)
    with pytest.raises(InputError, match=r"torch\.from_numpy\(x\['a'\]\)\.float\(\)"):
        ig.integrated_gradients(NET, {"a": numbers})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"integrand\.text\.explain"):
        ig.integrated_gradients(NET, "a text")  # type: ignore[arg-type]


def test_tables_of_pandas_and_photos_of_pillow() -> None:
    pandas, image = pytest.importorskip("pandas"), pytest.importorskip("PIL.Image")
    table = pandas.DataFrame(X.numpy().astype(float), columns=["a", "b", "c"])
    for given in (table, table.iloc[0]):
        with pytest.raises(InputError) as caught:
            ig.integrated_gradients(NET, given)
        torch.testing.assert_close(pasted(str(caught.value), r"torch\.tensor\(.*?\)\)(\[None\])?(?=;)", x=given), X)
    with pytest.raises(InputError) as caught:
        ig.integrated_gradients(NET, image.new("RGB", (5, 4), (255, 0, 0)))
    photo = pasted(str(caught.value), r"torch\.from_numpy\(.* / 255", x=image.new("RGB", (5, 4), (255, 0, 0)))
    assert photo.shape == (1, 3, 4, 5)
    assert float(photo.max()) == 1


@pytest.mark.parametrize("target", [None, [0, 1, 0]])
def test_a_program_exported_for_one_row_explains_several(target: Any) -> None:
    """As the command line does: the same numbers as the model itself, whose rows are explained together."""
    program = torch.export.export(NET, (X,)).module()
    x = torch.stack([X[0], -X[0], 2 * X[0]])
    found, expected = (ig.integrated_gradients(model, x, target=target, tol=1e-4) for model in (program, NET))
    torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-6)
    assert found.certificate.converged


def test_an_error_of_a_program_that_is_no_matter_of_rows_is_the_users_to_see() -> None:
    program = torch.export.export(NET, (X,)).module()
    with pytest.raises(Exception, match=r"[Gg]uard|shape|size"):
        ig.integrated_gradients(program, torch.randn(2, 5))


def test_sessions_and_files_of_onnx_lead_to_from_onnx():
    onnx = pytest.importorskip("onnx")
    for model in (onnx.ModelProto(), "net.onnx"):
        with pytest.raises(ModelError, match=r"integrand\.from_onnx\("):
            ig.integrated_gradients(model, torch.ones(1, 2))
    session = type("InferenceSession", (), {"__module__": "onnxruntime.capi.onnxruntime_inference_collection"})()
    with pytest.raises(ModelError, match=r"got InferenceSession of onnxruntime.*integrand\.from_onnx\("):
        ig.integrated_gradients(session, torch.ones(1, 2))
