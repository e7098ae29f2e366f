"""Softmax and sigmoid are never applied twice in silence; logits are never taken for probabilities."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import integrand as ig
from integrand import integrated_gradients
from integrand.errors import OptionError, ScoreWarning
from tests.by_hand import X, line_integral, net

SCORES = ["probability", "log-probability"]

QUIET = "ignore::integrand.errors.BaselineWarning"
"""Baselines are not what these are about."""


def classes(x: Tensor) -> Tensor:
    return net()(x)


def single(x: Tensor) -> Tensor:
    return net(1)(x)


# Models that end in a softmax or sigmoid

ENDINGS = {
    "module": nn.Sequential(net(), nn.Softmax(1)),
    "function": lambda x: classes(x).softmax(1),
    "exp of log": lambda x: classes(x).log_softmax(1).exp(),
    "by hand": lambda x: classes(x).exp() / classes(x).exp().sum(1, keepdim=True),
    "mean of two": lambda x: (classes(x).softmax(1) + classes(2 * x).softmax(1)) / 2,
    "moved": lambda x: classes(x).softmax(1).unsqueeze(2).transpose(1, 2).reshape(len(x), 4),
    "in half": lambda x: classes(x).softmax(1).half(),
    "labels": lambda x: classes(x).sigmoid(),
    "labels side by side": lambda x: torch.stack([single(x)[:, 0].sigmoid(), single(2 * x)[:, 0].sigmoid()], 1),
    "some classes": lambda x: classes(x).softmax(1)[:, 1:],
    "dict": lambda x: {"logits": classes(x).softmax(1)},
    "compiled": torch.compile(nn.Sequential(net(), nn.Softmax(1)), backend="eager"),
    "labels in log": lambda x: F.logsigmoid(classes(x)),
    "one output": lambda x: single(x).sigmoid(),
    "one number": lambda x: single(x).sigmoid()[:, 0],
    "one class of a softmax": lambda x: classes(x).softmax(1)[:, 2],
    "one output in log": lambda x: F.logsigmoid(single(x)),
    "one class in log": lambda x: classes(x).log_softmax(1)[:, 2],
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("model", ENDINGS.values(), ids=ENDINGS.keys())
def test_probabilities_are_refused_with_what_to_do(model, score):
    with pytest.raises(OptionError, match=rf"got score='{score}'.*already \(.*twice\. Expected logits\..*score='logit'"):
        integrated_gradients(model, X, target=None, score=score)


@pytest.mark.parametrize("model", ["module", "one output"])
def test_the_advice(model):
    """As they are, and their logarithm; against a loop by hand."""
    run = ENDINGS[model]
    with pytest.raises(OptionError) as caught:
        integrated_gradients(run, X, score="log-probability")
    assert f"target=lambda out: {'out[:, k]' if model == 'module' else 'out'}.log() instead of score=" in str(caught.value)
    k = None if model == "one output" else 1
    plain = integrated_gradients(run, X, target=k, score="logit", tol=1e-4)
    logs = integrated_gradients(run, X, target=lambda out: out.log() if k is None else out[:, k].log(), tol=1e-4)
    for row in range(2):
        score = lambda v: run(v[None])[0, k or 0]  # noqa: E731
        exact = line_integral(score, [X[row]], [0 * X[row]])[0]
        torch.testing.assert_close(plain.values[row].double(), exact, rtol=1e-3, atol=1e-4)
        exact = line_integral(lambda v, score=score: score(v).log(), [X[row]], [0 * X[row]])[0]
        torch.testing.assert_close(logs.values[row].double(), exact, rtol=1e-3, atol=1e-4)
    logs = integrated_gradients(ENDINGS["one output in log"], X, target=lambda out: out.exp(), tol=1e-4)
    whole = integrated_gradients(single, X, score="probability", tol=1e-4)
    torch.testing.assert_close(logs.values, whole.values, rtol=1e-3, atol=1e-4)


def test_positions_and_pixels():
    """Classes are the last dimension of (rows, positions, classes), the second of images (rows, classes, H, W)."""
    words = lambda x: (x[:, None] * torch.tensor([[1.0], [2.0]])).softmax(2)  # noqa: E731
    pixels = lambda x: (x[:, :, None, None] * torch.ones(2, 2)).softmax(1)  # noqa: E731
    for model, target in ((words, (0, 1)), (pixels, (1, 0, 0))):
        with pytest.raises(OptionError, match="twice"):
            integrated_gradients(model, X, target=target, score="probability")


def test_without_a_batch_dimension():
    with pytest.raises(OptionError, match="twice"):
        integrated_gradients(lambda x: (x @ torch.ones(3, 2)).softmax(0), X[0], score="probability", target=1)


@pytest.mark.parametrize("layer", ["0", "1", "2"])
def test_layers(layer):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3), nn.Softmax(1)).eval()
    with pytest.raises(OptionError, match="twice"):
        integrated_gradients(model, X, layer=layer, target=0, score="probability")
    words = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 3), nn.Softmax(1))
    with pytest.raises(OptionError, match="twice"):
        integrated_gradients(words, torch.tensor([[1, 2]]), layer="0", target=0, score="probability")


def test_other_calls():
    model = ENDINGS["module"]
    for call in (
        lambda: ig.path_attribution(model, ig.Straight(0 * X, X), target=0, score="probability"),
        lambda: ig.methods.GradientTimesInput()(model, X, target=0, score="probability"),
        lambda: ig.integrated_hessians(model, X, target=0, score="probability"),
        lambda: ig.baselines.diagnose(model, X[:1], target=0),
    ):
        with pytest.raises(OptionError, match="twice"):
            call()


SLOPE = torch.tensor([1.0, 2.0, 3.0])

SEEM = {
    "by hand": lambda x: 1 / (1 + (-x @ SLOPE).exp()),
    "the other class": lambda x: 1 - (x @ SLOPE).sigmoid(),
    "mean of two": lambda x: ((x @ SLOPE).sigmoid() + (2 * x @ SLOPE + 1).sigmoid()) / 2,
    "labels, clamped": lambda x: torch.stack([x @ SLOPE, 1 - x @ SLOPE], 1).sigmoid().clamp(1e-6, 1 - 1e-6),
}


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("model", SEEM.values(), ids=SEEM.keys())
def test_what_only_seems_to_be_a_probability_is_warned_of(model):
    with pytest.warns(ScoreWarning, match=r"they seem to be probabilities already \(they go from 0 to 1.*score='logit'"):
        integrated_gradients(model, X, score="probability")


# Logits


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("score", SCORES)
def test_logits_between_zero_and_one(score):
    """Whatever the values at the input: the last operation gives logits."""
    for seed in range(20):
        torch.manual_seed(seed)
        for outputs in (1, 2, 3):
            model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, outputs)).eval()
            with torch.no_grad():
                model[2].weight *= 0.2
                model[2].bias.copy_(torch.full((outputs,), 0.5))
            with torch.no_grad():
                assert ((model(X) > 0) & (model(X) < 1)).all()
            integrated_gradients(model, X, target=0 if outputs > 1 else None, score=score, steps=9, tol=1e9)


UNIT = {
    "logits that add up to one": lambda x: x,
    "linear, and adding up to one": lambda x: x @ torch.eye(3),
    "relu": lambda x: x.relu(),
    "sum of squares": lambda x: (x**2).sum(1),
    "cosine": lambda x: x.sum(1).cos() / 2 + 0.4,
    "tanh": lambda x: x.sum(1).tanh(),
    "small and bounded": lambda x: 0.3 + 0.2 * x.sum(1).tanh(),
    "zeros": lambda x: 0 * x,
    "log-softmax, which softmax leaves as it is": lambda x: x.log_softmax(1),
}


@pytest.mark.filterwarnings(QUIET, "ignore::integrand.errors.ZeroAttributionWarning")
@pytest.mark.parametrize("model", UNIT.values(), ids=UNIT.keys())
@pytest.mark.parametrize("x", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]], ids=str)
def test_no_false_alarm(model, x):
    """A warning is an error here."""
    x = torch.tensor([x])
    target = 0 if model(x).ndim == 2 else None
    found = integrated_gradients(model, x, 0.1, target=target, score="probability", steps=9, tol=1e9)
    expected = model(x)[0].sigmoid() if target is None else model(x)[0].softmax(0)[0]
    assert found.certificate[0].score == pytest.approx(float(expected))


def test_a_target_function_is_taken_as_it_is():
    found = integrated_gradients(ENDINGS["module"], X, target=lambda out: out[:, 1])
    assert found.certificate[0].score == pytest.approx(float(ENDINGS["module"](X)[0, 1].detach()))


def test_ordinary_logits_cost_no_further_call():
    calls = []
    model = net()
    path = ig.Straight(0 * X, 5 * X)
    options: dict[str, Any] = {"target": 0, "score": "probability", "steps": 8, "tol": 1e9}
    ig.path_attribution(lambda x: (calls.append(x.requires_grad), model(x))[1], path, **options)
    assert calls.count(False) == 2  # at x, and at both ends of the path
