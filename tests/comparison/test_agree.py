"""Curves refuse an attribution of another question, and say so where nothing changes."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from integrand import Attribution, integrated_gradients
from integrand.comparison import compare, deletion_curve, insertion_curve, sensitivity_n
from integrand.errors import InputError, OptionError, ZeroAttributionWarning
from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients, SmoothGrad

MEASURES = [deletion_curve, insertion_curve, sensitivity_n]


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("measure", MEASURES)
def test_an_attribution_of_another_question_is_refused(net, x, measure):
    result = IntegratedGradients()(net, x, x + 1, target=2)
    asked = {"baseline": x + 1, "target": 2}
    assert measure(net, x, result, **asked).targets == ("output [2] (logit)",) * 2
    for other in ({"target": 1}, {"baseline": None}, {"score": "probability"}, {"baseline": None, "target": None}):
        with pytest.raises(InputError, match=r"got an attribution of output \[2\] \(logit\)") as error:
            measure(net, x, result, **asked | other)
        for word in ("expected", "target=", "score=", "baseline=", ".values"):
            assert word in str(error.value)
    with pytest.raises(InputError, match=r"F\(x\) = "):
        measure(net, x + 0.5, result, **asked | {"baseline": x + 1})
    measure(net, x, result.values)  # plain values cannot be checked


def test_what_may_be_asked_of_an_attribution(net, x, tmp_path):
    # Values that do not depend on a baseline go with any of them.
    for method in (Gradient(), GradientTimesInput(), SmoothGrad(Gradient(), tol=10.0)):
        deletion_curve(net, x, method(net, x, target=1), x + 1, target=1)
    # Scores that a function picks have no words to compare, but numbers.
    result = integrated_gradients(net, x, target=1)
    deletion_curve(net, x, result, target=lambda out: out[:, 1])
    deletion_curve(net, x, integrated_gradients(net, x, target=lambda out: out[:, 1]), target=1)
    with pytest.raises(InputError, match="its own function"):
        deletion_curve(net, x, result, target=lambda out: out[:, 2])
    # Precision and batches change scores by rounding alone; files keep the question.
    deletion_curve(net.double(), x.double(), result, target=1)
    path = result.save(tmp_path / "result.safetensors")
    deletion_curve(net.float(), x, Attribution.load(path), target=1)


def test_baselines_that_are_drawn_differ_from_call_to_call(net, x):
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.randn(2, 6, generator=generator)

    deletion_curve(net, x, integrated_gradients(net, x, draw, target=0, draws=3), draw, target=0, draws=3)
    several = [x + 1, x - 1]
    result = integrated_gradients(net, x, several, target=0)
    deletion_curve(net, x, result, several, target=0)
    with pytest.raises(InputError, match="baseline="):
        deletion_curve(net, x, result, several[0], target=0)


def test_rounding_of_terms_that_cancel_is_no_other_question():
    def model(x):
        return (x * 1e6).sum(1) - 1e6 * x.flip(1).sum(1) + x[:, 0]

    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(2))
    assert deletion_curve(model, x, Gradient()(model, x)).scores.shape[0] == 3


def test_groups_that_stay_do_not_hide_the_baseline(net, x):
    groups = torch.tensor([0, 0, 1, 1, -1, -1])
    result = integrated_gradients(net, x, target=0)
    deletion_curve(net, x, result, target=0, groups=groups)
    with pytest.raises(InputError, match="baseline="):
        deletion_curve(net, x, result, x + 1, target=0, groups=groups)


@pytest.mark.parametrize("measure", [deletion_curve, insertion_curve])
def test_where_nothing_changes_the_curve_says_so(net, x, measure, tmp_path):
    start = torch.cat([x[:1], x[1:] + 1])  # the first example is its own baseline
    found = measure(net, x, x, start, target=0)
    text = str(found)
    assert "nan" not in text
    assert "[0] nothing changes: the score is" in text
    assert "[1] nothing changes" not in text
    assert math.isnan(found.areas[0])
    assert math.isfinite(found.areas[1])
    constant = measure(lambda x: 0 * x[:, 0] + 3, x, x)
    assert "nothing changes: the score is 3 whatever is removed" in str(constant)
    back = measure(lambda x: x[:, 0] - x[:, 1], torch.ones(1, 2), torch.tensor([[1.0, -1.0]]))
    assert "nothing changes from end to end: F(x) = F(x') = 0" in str(back)
    assert "nan" not in str(back)


def test_where_nothing_changes_the_picture_says_so(net, x):
    pytest.importorskip("matplotlib")
    legend = deletion_curve(net, x, x, x, target=0).figure().axes[0].get_legend()
    assert all("no area" in text.get_text() for text in legend.get_texts())


def test_a_change_that_is_rounding_has_no_area():
    x = torch.rand(1, 8, generator=torch.Generator().manual_seed(0))
    found = deletion_curve(lambda x: 1e4 + 0 * x.sum(1) + 1e-3 * (x.sum(1) > 1), x, x)
    assert np.isnan(found.areas).all()
    assert "nothing changes" in str(found)


def test_sensitivity_says_what_a_dash_is(net, x):
    text = str(sensitivity_n(net, x, x, x, target=0, sizes=[1, 2]))
    assert "–: sums or scores do not vary" in text
    assert "nan" not in text


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
