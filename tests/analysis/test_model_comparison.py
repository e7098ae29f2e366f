"""Two models on one input: the difference in closed form, its error, refusals that help, and pages that are safe."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand.analysis import ModelComparison
from integrand.errors import ModelError, OptionError

A, B = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1.0, 3.0, 0.0])
X = torch.tensor([[1.0, 2.0, 4.0], [-1.0, 0.0, 2.0]])


def first(x: torch.Tensor) -> torch.Tensor:
    return x @ A


def second(x: torch.Tensor) -> torch.Tensor:
    return x @ B


@pytest.fixture(scope="module")
def curved() -> ModelComparison:
    """Two small classifiers, one of them smooth."""
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    two = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    options: dict[str, Any] = {"score": "probability", "classes": ["cat", "dog", "owl"], "features": list("abcd")}
    return ig.compare_models({"one": one, "two": two}, torch.randn(1, 4), **options)


def test_linear_models_differ_by_their_weights_times_the_input() -> None:
    found = ig.compare_models({"first": first, "second": second}, X)
    assert torch.equal(found.difference, X * (A - B))  # type: ignore[arg-type]
    apart = found.differences[0]
    np.testing.assert_allclose(apart.size, (X * (A - B)).abs().sum(1).numpy(), rtol=1e-6)
    assert found.unit == "output"
    np.testing.assert_allclose(found.agreement.rank_correlation[0], -np.sqrt(0.75))  # ranks (2.5, 1, 2.5) and (2, 3, 1)
    one, two = (X * A).numpy(), (X * B).numpy()
    cosine = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    np.testing.assert_allclose(found.agreement.cosine, cosine, rtol=1e-6)
    np.testing.assert_allclose(found.agreement.same_sign, [1 / 3, 1 / 2])  # of row 2, a feature that is 0 in both is left out


def test_the_same_model_twice_gives_the_same_reasons() -> None:
    found = ig.compare_models([first, first], X[:1])
    assert found.names == ("first", "first #2")
    assert "for the same reasons" in found.sentence


def test_the_error_of_the_difference_is_the_sum_of_both(curved: ModelComparison) -> None:
    parts = [one.certificate.only.error * one.certificate.only.magnitude for one in curved.results.values()]
    assert curved.differences[0].error[0] == pytest.approx(sum(parts))


def test_the_difference_is_within_its_error_of_a_far_finer_one() -> None:
    torch.manual_seed(1)
    models = {name: nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double().eval() for name in "ab"}
    x = 3 * torch.randn(2, 5, dtype=torch.float64)
    rough, fine = (ig.compare_models(models, x, tol=tol) for tol in (0.05, 1e-6))
    off = (rough.difference - fine.difference).abs().sum(1).numpy()  # type: ignore[operator]
    assert (off <= rough.differences[0].error + fine.differences[0].error).all()


def test_the_top_class_of_the_first_model_is_explained_in_all() -> None:
    swap = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    found = ig.compare_models({"plain": lambda x: x @ swap, "turned": lambda x: x @ swap.flip(0)}, torch.tensor([[3.0, 1.0]]))
    assert [found.answers[name][0].label for name in found.names] == ["class 0", "class 1"]
    assert [found.answers[name][0].score for name in found.names] == [3.0, 1.0]
    assert torch.equal(found.difference, torch.tensor([[3.0, -1.0]]))  # type: ignore[arg-type]
    assert "plain says class 0 (3), turned says class 1 (3); compared for class 0" in found.sentence


def test_models_that_give_probabilities_are_taken_as_they_are() -> None:
    weights = torch.tensor([[1.0, -1.0], [0.5, 0.2]])
    models = {"logits": lambda x: x @ weights, "probabilities": lambda x: (x @ weights).softmax(1)}
    found = ig.compare_models(models, torch.tensor([[1.0, 2.0]]), score="probability", tol=1e-4)
    torch.testing.assert_close(found.difference, torch.zeros(1, 2), atol=1e-4, rtol=0)
    with pytest.raises(OptionError, match=r"'probabilities' gives probabilities.*score='probability'"):
        ig.compare_models(models, torch.tensor([[1.0, 2.0]]))


def test_tuples_dicts_and_single_examples_keep_their_structure() -> None:
    both = ig.compare_models([lambda a, b: a[:, 0] * b[:, 0], lambda a, b: a[:, 0] + b[:, 0]], (X[:, :1], X[:, 1:2]))
    assert isinstance(both.difference, tuple)
    assert [len(part) for part in both.difference] == [2, 2]
    named = ig.compare_models([lambda a, b: a[:, 0] + b[:, 0], lambda a, b: a[:, 0] - b[:, 0]], {"a": X[:, :1], "b": X[:, 1:2]})
    assert torch.equal(named.difference["b"], 2 * X[:, 1:2])  # type: ignore[call-overload, index]
    alone = ig.compare_models([lambda x: (x**2).sum(), lambda x: x.sum()], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(alone.difference, torch.tensor([0.0, 2.0]))


def test_three_models_are_compared_with_the_first() -> None:
    found = ig.compare_models({"a": first, "b": second, "c": lambda x: x.sum(1)}, X[:1])
    assert [one.second for one in found.differences] == ["b", "c"]
    with pytest.raises(OptionError, match=r"differences\[0\] is with 'b'"):
        _ = found.difference
    assert "least alike" in found.sentence


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        ([first], {}, "two or more"),
        (first, {}, "two or more"),
        ({"a": lambda x: x, "b": lambda x: x[:, :2]}, {}, r"target=\{'a': 0, 'b': 0\}"),
        ({"a": first, "b": second}, {"target": {"a": None}}, "one for each model"),
        ({"a": lambda x: x, "b": lambda x: 2 * x}, {"classes": ["one"]}, "expected 3, one for each output"),
    ],
)
def test_what_cannot_be_compared_is_refused(models: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ig.compare_models(models, X[:1], **options)


def test_outputs_of_other_shapes_are_compared_where_the_user_says_which() -> None:
    found = ig.compare_models({"a": lambda x: x, "b": lambda x: x[:, :2] * 2}, X[:1], target={"a": 2, "b": 1})
    assert torch.equal(found.difference, torch.tensor([[0.0, -4.0, 4.0]]))  # type: ignore[arg-type]


def test_a_model_of_another_input_is_refused_with_a_wrapper_that_works() -> None:
    large = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
    small = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    x = torch.randn(1, 1, 4, 4)
    with pytest.raises(ModelError, match=r"'small' does not take this x.*lambda x: model\(torch.nn.functional.interpolate"):
        ig.compare_models({"large": large, "small": small}, x)
    wrapped = lambda x: small(torch.nn.functional.interpolate(x, size=(2, 2)))  # noqa: E731
    assert ig.compare_models({"large": large, "small": wrapped}, x).converged


def test_it_says_in_one_line_what_the_models_say_and_how_sure_the_numbers_are(curved: ModelComparison) -> None:
    assert "\n" not in curved.sentence
    assert "one" in curved.sentence
    assert "%" in curved.sentence
    assert "difference good to" in curved.sentence
    assert len(repr(curved)) < 500
    assert len(repr(curved.differences[0])) < 500


def test_it_saves_itself(curved: ModelComparison, tmp_path: Any) -> None:
    for ending in ("html", "png", "json", "csv"):
        curved.save(tmp_path / f"both.{ending}")
    rows = list(csv.DictReader((tmp_path / "both.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["feature"] for row in rows] == list("abcd")
    assert float(rows[0]["one"]) - float(rows[0]["two"]) == pytest.approx(float(rows[0]["one − two"]), abs=1e-6)
    said = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))
    assert said["models"]["one"]["answers"][0]["likely"][0]["label"] in ("cat", "dog", "owl")
    assert curved.sentence in (tmp_path / "both.html").read_text(encoding="utf-8").replace("&#x27;", "'")
    with pytest.raises(OptionError, match="ending"):
        curved.save(tmp_path / "both.txt")


def test_hostile_names_are_text_in_pages_and_no_formulas_in_tables(tmp_path: Any) -> None:
    bad = '=1+1<img src=x onerror="alert(1)">'
    names = {bad: lambda x: x, f"{bad}2": lambda x: 2 * x}
    found = ig.compare_models(names, X[:1], features=[bad, bad, bad], classes=[bad, bad, bad])
    for text in (found.page(), found._repr_html_()):
        assert "<img src=x" not in text
    found.save(tmp_path / "both.csv")
    table = list(csv.reader((tmp_path / "both.csv").read_text(encoding="utf-8").splitlines()))
    assert not any(text.startswith("=") for row in table for text in row)


def test_pictures_are_drawn_on_one_scale() -> None:
    x = torch.rand(1, 3, 8, 8)
    found = ig.compare_models({"a": lambda x: x.sum((1, 2, 3)), "b": lambda x: 3 * x.sum((1, 2, 3))}, x, image=x)
    from integrand.analysis.model_comparison_page import compose

    row = compose(found).rows[0]
    assert len({panel.limit for panel in row.maps}) == 1
    assert row.titles == ("a", "b", "a − b")
    assert found.figure().get_size_inches()[0] > 4
    assert "in the" in found.sentence
