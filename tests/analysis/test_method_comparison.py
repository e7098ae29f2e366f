"""Methods side by side: what they miss, how they agree, what they cost, and those that fail."""

import inspect
import json
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from integrand import Attribution, Certificate
from integrand.analysis.method_comparison import Settings
from integrand.comparison import DEFAULTS, Comparison, compare
from integrand.errors import (
    ConvergenceWarning,
    InputError,
    ModelError,
    OptionError,
    TargetError,
    TrainModeError,
    ZeroAttributionWarning,
)
from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients, Method, PathMethod

from .conftest import SECONDS, WEIGHTS, Constant, Refuses

COMPLETE = [IntegratedGradients(), GradientTimesInput(), PathMethod()]


def saturated(x):
    return 1 - torch.relu(1 - x[:, 0]) + 0.5 * x[:, 1]


def test_complete_methods_agree_on_a_linear_model(linear):
    x = torch.tensor([[1.0, 1.0, -1.0, 2.0], [2.0, -3.0, 1.0, 1.0]], dtype=torch.float64)
    found = compare(linear, x, methods=COMPLETE)
    for attribution in found.attributions.values():
        assert attribution.values == pytest.approx(x * torch.tensor(WEIGHTS))
    assert found.correlations == pytest.approx(np.ones((2, 3, 3)))
    assert found.magnitude_correlations == pytest.approx(np.ones((2, 3, 3)))
    for gap in found.gaps.values():
        assert gap == pytest.approx([0, 0], abs=1e-12)


def test_gaps_of_a_saturated_score():
    found = compare(saturated, torch.tensor([[2.0, 2.0]]), methods=[IntegratedGradients(), GradientTimesInput(), Gradient()])
    # F goes from 0 to 2; at x the slopes are 0 and 1/2.
    assert {name: float(gap[0]) for name, gap in found.gaps.items()} == pytest.approx(
        {"integrated gradients": 0.0, "gradient x input": -1.0, "gradient": -1.5}, abs=1e-6
    )
    assert found.relative_gaps["gradient x input"].tolist() == [0.5]
    assert found.relative_gaps["gradient"].tolist() == [0.75]
    assert found.changes["gradient"].tolist() == [2.0]


def test_a_gap_where_the_score_does_not_change():
    found = compare(lambda x: x[:, 0] - x[:, 1], torch.ones(1, 2), methods=[Gradient(), Constant()])
    assert found.relative_gaps["gradient"].tolist() == [0.0]
    assert found.relative_gaps["constant"].tolist() == [math.inf]
    assert "all: no change" in str(found)


def test_correlations_by_hand():
    x = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    weights = torch.tensor([1.0, -1.0, 2.0, 8.0])
    found = compare(lambda x: x @ weights, x, methods=[Gradient(), GradientTimesInput()])
    # Gradients 1 -1 2 8 rank 2 1 3 4; times x: 4 -3 4 8 rank 2.5 1 2.5 4.
    ranks = np.array([[2, 1, 3, 4], [2.5, 1, 2.5, 4]])
    assert found.correlations[0, 0, 1] == pytest.approx(np.corrcoef(ranks)[0, 1])
    # Magnitudes 1 1 2 8 rank 1.5 1.5 3 4; 4 3 4 8 rank 2.5 1 2.5 4.
    assert found.magnitude_correlations[0, 0, 1] == pytest.approx(np.corrcoef([[1.5, 1.5, 3, 4], [2.5, 1, 2.5, 4]])[0, 1])


def test_mean_over_examples_leaves_constant_maps_out():
    # The second example's input is zero: gradient times input is zero everywhere.
    x = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.0, 0.0]])
    found = compare(lambda x: x @ torch.tensor([1.0, 2.0, 4.0]), x, 1.0, methods=[Gradient(), GradientTimesInput()])
    assert np.isnan(found.correlations[1, 0, 1])
    assert found.mean_correlations()[0, 1] == pytest.approx(found.correlations[0, 0, 1])


def test_a_constant_map_is_shown_as_unknown(linear):
    found = compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[Gradient(), Constant()])
    assert np.isnan(found.mean_correlations()[0, 1])
    assert "–" in str(found)
    assert found.to_dict()["rank_correlations"][0][0][1] is None


@pytest.mark.parametrize("error", [ModelError("no rule for aten::fancy"), RuntimeError("no rule for aten::fancy")])
def test_a_method_that_fails_is_listed_and_the_others_go_on(linear, error):
    x = torch.ones(1, 4, dtype=torch.float64)
    found = compare(linear, x, methods=[Refuses(error), Gradient()])
    assert list(found.failures) == ["refuses"]
    assert found.failures["refuses"] == f"{type(error).__name__}: no rule for aten::fancy"
    assert found.names == ("gradient",)
    assert "refuses: " in str(found)
    assert list(found.settings) == ["refuses", "gradient"]


def test_no_method_left(linear):
    with pytest.raises(ModelError, match=r"none of 2 method\(s\).*(?s:.)*one: .*fancy(?s:.)*two: .*fancy"):
        compare(linear, torch.ones(1, 4, dtype=torch.float64), methods={"one": Refuses(), "two": Refuses()})


def test_what_is_wrong_with_the_question_is_raised(linear):
    x = torch.ones(1, 4, dtype=torch.float64)
    with pytest.raises(InputError, match="baseline has shape"):
        compare(linear, x, torch.ones(1, 3, dtype=torch.float64))
    with pytest.raises(TargetError):
        compare(nn.Linear(4, 2).double(), x, target=9)
    with pytest.raises(TrainModeError):
        compare(nn.Sequential(linear, nn.Dropout()).train(), x)
    with pytest.raises(InputError, match="groups has shape"):
        compare(linear, x, groups=torch.zeros(3, dtype=torch.long))
    with pytest.raises(TypeError, match="nonsense"):
        compare(linear, x, nonsense=1)


@pytest.mark.parametrize(
    ("methods", "words"),
    [([], "at least one"), ("gradient", "at least one"), ([Gradient], r"write Gradient\(\)"), ([1], "got 1 among the methods")],
)
def test_methods_that_are_none(linear, methods, words):
    with pytest.raises(OptionError, match=words):
        compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=methods)


def test_settings_tell_two_of_a_class_apart(linear):
    x = torch.ones(1, 4, dtype=torch.float64)
    methods = [IntegratedGradients(), IntegratedGradients(tol=0.1), IntegratedGradients(tol=0.1), Gradient(), Gradient()]
    assert compare(linear, x, methods=methods).names == (
        "integrated gradients",
        "integrated gradients (tol=0.1)",
        "integrated gradients (tol=0.1) #2",
        "gradient",
        "gradient #2",
    )
    named = compare(linear, x, methods={"a": Gradient(), "b": Gradient()})
    assert named.names == ("a", "b")
    assert named.settings == {"a": "Gradient()", "b": "Gradient()"}


def test_defaults_are_methods_and_run_on_a_network():
    assert all(isinstance(method, Method) for method in DEFAULTS)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    found = compare(model, torch.randn(2, 6))
    assert len(found.names) == len(DEFAULTS)
    assert not found.failures
    assert found.relative_gaps["integrated gradients"].max() < 0.01


def test_cost_is_what_the_certificates_say_and_the_clock_measured(linear):
    x = torch.ones(3, 4, dtype=torch.float64)
    found = compare(linear, x, methods=[Gradient(), IntegratedGradients(steps=5)])
    assert found.costs["gradient"].gradients == 3
    assert found.costs["integrated gradients"].gradients == 15
    for name, cost in found.costs.items():
        assert cost.forwards == found.attributions[name].certificate.forwards
        assert cost.seconds == SECONDS


def test_promises_that_are_not_made(linear):
    found = compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[Gradient(), IntegratedGradients()])
    assert found.broken == {"gradient": ("completeness", "sensitivity-a"), "integrated gradients": ()}
    assert "completeness, sensitivity-a" in str(found)


def test_dicts_and_single_examples():
    def model(a, b):
        return (a * torch.tensor([1.0, 2.0])).sum() + 3 * b.sum()

    x = {"a": torch.tensor([1.0, 1.0]), "b": torch.tensor([2.0])}
    found = compare(model, x, methods=COMPLETE, batched=False)
    for attribution in found.attributions.values():
        assert attribution.values["a"].tolist() == pytest.approx([1.0, 2.0])
        assert attribution.values["b"].tolist() == pytest.approx([6.0])
    assert found.examples == 1
    assert found.correlations.shape == (1, 3, 3)


def test_groups_are_what_is_compared(linear):
    x = torch.ones(1, 4, dtype=torch.float64)
    found = compare(linear, x, methods=COMPLETE, groups=torch.tensor([0, 0, 1, -1]))
    for attribution in found.attributions.values():
        assert attribution.values[0].tolist() == pytest.approx([1.0, 1.0])
    # The feature that is left out had a quarter of the score.
    assert found.gaps["gradient x input"] == pytest.approx([-0.25])
    assert found.gaps["integrated gradients"] == pytest.approx([-0.25])


def test_baselines_are_drawn_once():
    drawn = []

    def draw():
        drawn.append(torch.full((1, 2), float(len(drawn))))
        return drawn[-1]

    def square(x):
        return (x**2).sum(1)

    found = compare(square, torch.full((1, 2), 10.0), draw, methods=COMPLETE, draws=3)
    assert len(drawn) == 3
    # F(x') is 0, 2 and 8 at the three baselines.
    for change in found.changes.values():
        assert change.tolist() == pytest.approx([200 - 10 / 3])


def test_how_the_model_is_called_reaches_every_method():
    def model(x, scale, *, shift):
        return scale * x.sum(1) + shift

    found = compare(model, torch.ones(1, 2), methods=COMPLETE, args=(3.0,), kwargs={"shift": 7.0}, chunk=1)
    assert [one.values.tolist() for one in found.attributions.values()] == [[[3.0, 3.0]]] * 3
    known = set(inspect.signature(Method.__call__).parameters)
    assert set(Settings.__annotations__) <= known
    assert known - set(Settings.__annotations__) == {
        "self", "model", "x", "baseline", "target", "score", "groups", "progress"
    }  # fmt: skip


def test_the_model_is_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    model[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    asked = [parameter.requires_grad for parameter in model.parameters()]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    compare(model, torch.ones(2, 3), lambda: torch.rand(2, 3), methods=[Gradient(), Refuses(), IntegratedGradients()], draws=2)
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [parameter.requires_grad for parameter in model.parameters()] == asked
    assert not any(module._forward_hooks for module in model.modules())


def test_values_of_other_shapes_are_not_set_beside(linear):
    class Odd(Gradient.__mro__[1]):
        name = "odd"
        promises = Gradient.promises

        def attribute(self, problem):
            examples = Gradient().attribute(problem).certificate.examples
            return Attribution(torch.zeros(1, 7), Certificate(examples))

    found = compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[Gradient(), Odd()])
    assert found.failures["odd"] == "InputError: its values have shapes [(1, 7)]; expected [(1, 4)], as those of 'gradient'."


def test_warnings_that_the_user_made_errors_stay_errors():
    methods = [IntegratedGradients(steps=2), Gradient()]  # pytest does that
    with pytest.raises(ConvergenceWarning):
        compare(lambda x: torch.sin(9 * x).sum(1), torch.ones(1, 2), methods=methods)


def test_progress_is_told(linear):
    told = []
    compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[IntegratedGradients()], progress=told.append)
    assert told


def test_text_has_a_line_for_each_method(linear):
    x = torch.tensor([[1.0, 1.0, -1.0, 2.0], [2.0, -3.0, 1.0, 1.0]], dtype=torch.float64)
    lines = str(compare(linear, x, methods=[IntegratedGradients(), Gradient(), Refuses()])).splitlines()
    assert lines[0] == "2 examples; F(x) - F(x') from 0.5 to 13.25"
    assert lines[1].split()[:3] == ["method", "sum", "misses"]
    assert lines[2].startswith("integrated gradients")
    assert lines[3].startswith("gradient ")
    # Gradients add up to 2.25: 1.75 above 0.5, and 11 below 13.25.
    assert "-1.1e+01" in lines[3]
    assert "350%" in lines[3]
    assert lines[-1] == "  refuses: ModelError: no rule for the operation <b>fancy</b>"
    assert str(compare(linear, x[:1], methods=[Gradient()])).startswith("the output; F(x) - F(x') = 0.5\n")


def test_json_holds_the_numbers(linear, tmp_path):
    x = torch.tensor([[1.0, 1.0, -1.0, 2.0]], dtype=torch.float64)
    found = compare(linear, x, methods=[IntegratedGradients(), Gradient(), Constant(), Refuses()])
    read = json.loads(found.save(tmp_path / "found.json").read_text(encoding="utf-8"))
    assert read == found.to_dict()
    assert read["names"] == list(found.names)
    assert read["methods"]["gradient"]["gap"] == found.gaps["gradient"].tolist()
    assert read["methods"]["gradient"]["score_change"] == [0.5]
    assert read["methods"]["gradient"]["no_promise_of"] == ["completeness", "sensitivity-a"]
    assert read["methods"]["gradient"]["seconds"] == found.costs["gradient"].seconds
    assert read["rank_correlations"][0][0][1] == found.correlations[0, 0, 1]
    assert read["mean_rank_correlations_of_magnitudes"][2][2] is None
    assert read["failures"] == dict(found.failures)


def test_saving_asks_for_an_ending_it_knows(linear, tmp_path):
    found = compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[Gradient()])
    with pytest.raises(OptionError, match=r"got the ending '.txt'; expected .html"):
        found.save(tmp_path / "found.txt")
    with pytest.raises(OptionError, match=r"for a \.json file"):
        found.save(tmp_path / "found.json", top=3)


def test_comparisons_can_be_pickled(linear):
    found = compare(linear, torch.ones(1, 4, dtype=torch.float64), methods=[Gradient(), IntegratedGradients()])
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, Comparison)
    assert str(again) == str(found)


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 6, generator=torch.Generator().manual_seed(1))


def test_compare_takes_names(net, x):
    found = compare(net, x, methods=["gradient", IntegratedGradients(), "gradient-x-input"])
    assert found.names == ("gradient", "integrated gradients", "gradient x input")
    own = compare(net, x, methods={"slopes": "gradient"})
    assert own.names == ("slopes",)
    with pytest.raises(OptionError, match="Did you mean 'gradient'"):
        compare(net, x, methods=["gradeint"])
    with pytest.raises(OptionError, match=r"got 3 among the methods; expected values of .* or their names"):
        compare(net, x, methods=[3])
    with pytest.raises(OptionError, match="in a list"):
        compare(net, x, methods="gradient")


def test_an_input_that_is_the_baseline_is_said_once(net, x):
    methods = [IntegratedGradients(), IntegratedGradients(tol=0.1), IntegratedGradients(tol=0.2), GradientTimesInput()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compare(net, x, x, methods=methods)
    assert not found.failures
    same = [one for one in caught if issubclass(one.category, ZeroAttributionWarning)]
    assert len(same) == 1
    assert "equals the baseline" in str(same[0].message)
    assert same[0].filename == __file__
    # And once more for the next comparison; as an error where the user wants one.
    with pytest.warns(ZeroAttributionWarning):
        compare(net, x, x, methods=methods)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroAttributionWarning):
            compare(net, x, x, methods=methods)
