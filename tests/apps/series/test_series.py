"""Series: values against closed forms, sums over windows against a fine reference, and what a user may get wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.apps.series import SeriesExplanation, explain, time_series
from integrand.batch import ExplainedTable
from integrand.errors import InputError, ModelError, OptionError, TargetError, TrainModeError


def linear(coefficients: Tensor) -> nn.Module:
    """A filter over (N, time, channels): each value times its coefficient."""

    class Filter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * coefficients).sum((1, 2))

    return Filter().eval()


@pytest.fixture
def signal() -> Tensor:
    return torch.randn(30, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """A small convolutional classifier of (N, 3, time), as in practice: convolution, batch norm, ReLU, mean."""
    torch.manual_seed(3)
    made = nn.Sequential(
        nn.Conv1d(3, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    return made.double().eval()


@pytest.mark.parametrize("baseline", ["mean", "trend", "zero", 0.5, "other"])
def test_a_filter_gives_each_coefficient_times_the_distance(signal: Tensor, baseline: object) -> None:
    coefficients = torch.linspace(-1, 2, 60).reshape(30, 2).double()
    x, t = signal.numpy(), np.arange(30)
    starts = {
        "mean": np.broadcast_to(x.mean(0), x.shape),
        "trend": np.stack([np.polyval(np.polyfit(t, x[:, c], 1), t) for c in range(2)], 1),
        "zero": np.zeros_like(x),
        0.5: np.full_like(x, 0.5),
        "other": x[::-1].copy(),
    }
    given = starts["other"] if baseline == "other" else baseline
    found = explain(linear(coefficients), signal, given, window=7)
    exact = coefficients.numpy() * (x - starts[baseline])
    assert np.allclose(found.values, exact, atol=1e-10)
    for w, (start, stop) in enumerate(found.windows):
        assert np.allclose(found.window_sums[w], exact[start:stop].sum(0), atol=1e-9)
    assert np.allclose([one.value for one in found.channels.values()], exact.sum(0), atol=1e-9)
    part = found.between(3, 11, "channel 1")
    assert part.value == pytest.approx(exact[3:12, 1].sum(), abs=1e-9)
    assert found.between(3, 11).value == pytest.approx(exact[3:12].sum(), abs=1e-9)


def test_several_baselines_average(signal: Tensor) -> None:
    def model(x: Tensor) -> Tensor:
        return (x**3).sum((1, 2))

    both = explain(model, signal, ["mean", "zero"], tol=1e-6)
    alone = [explain(model, signal, name, tol=1e-6).values for name in ("mean", "zero")]
    assert np.allclose(both.values, np.mean(alone, 0), atol=1e-5)
    assert both.start.name == "mean and zero"


@pytest.mark.parametrize("layout", ["time-channels", "channels-time"])
def test_sums_hold_against_a_fine_reference(network: nn.Module, layout: str) -> None:
    x = torch.randn(48, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inner = x.T if layout == "channels-time" else x

    def model(given: Tensor) -> Tensor:
        return network(given if layout == "channels-time" else given.mT)

    found = explain(model, inner, "zero", layout=layout, classes=["a", "b"], tol=0.02, window=6)
    target = found.label
    # A plain midpoint sum with many nodes over the same network.
    total = torch.zeros(3, 48, dtype=torch.float64)
    nodes = (torch.arange(3000, dtype=torch.float64) + 0.5) / 3000
    points = (nodes[:, None, None] * x.T).requires_grad_()
    score = network(points).softmax(1)[:, ["a", "b"].index(target)].sum()
    (grads,) = torch.autograd.grad(score, points)
    total = (grads.mean(0) * x.T).T
    assert np.abs(found.values - total.numpy()).sum() <= 0.02 * total.abs().sum()
    exact = total.reshape(8, 6, 3).sum(1).numpy()
    within = np.abs(found.window_sums - exact) <= found.window_errors
    assert within.mean() >= 0.9  # claims are for 98% of sums
    assert (np.abs(found.window_sums - exact) <= 3 * found.window_errors).all()
    assert found.certificate.converged


def test_the_attribution_falls_on_a_planted_shapelet() -> None:
    """The score is a matched filter followed by a maximum over time: only where it fires can it get credit."""
    shape = torch.tensor([0.0, 1.0, 2.0, 1.0, -1.0, -2.0, -1.0, 0.0], dtype=torch.float64)
    noise = 0.05 * torch.randn(120, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    noise[70:78] += shape

    class Detector(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            fired = nn.functional.conv1d(x[:, None], shape[None, None])
            return torch.logsumexp(4 * fired[:, 0], 1)

    found = explain(Detector().eval(), noise, "zero", rate=10.0, window=4)
    inside = np.abs(found.values[70:78]).sum() / np.abs(found.values).sum()
    assert inside > 0.9
    part = found.signal.stretch(1)
    assert part is not None
    assert (part.start, part.stop) == (72, 76)  # ten twelfths of the filter's energy
    assert "mostly because of 7.2–7.5 s (+" in found.sentence


def test_classes_sentence_and_scores(network: nn.Module) -> None:
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    how = {"layout": "channels-time", "classes": ["off", "on"], "channels": ["x", "y", "z"], "units": "g", "rate": 20.0}
    found = explain(network, x, "zero", **how)
    chances = network(x[None]).softmax(1)[0].tolist()
    assert found.chances == pytest.approx({"off": chances[0], "on": chances[1]})
    assert found.label == found.prediction == ("on" if chances[1] > chances[0] else "off")
    assert found.sentence.startswith(f"It says '{found.label}' (")
    assert "s of " in found.sentence
    assert "numbers good to" in found.sentence
    other = "off" if found.label == "on" else "on"
    asked = explain(network, x, "zero", target=other, **how)
    assert asked.label == other
    assert asked.sentence.startswith(f"'{other}' gets ")
    assert asked.certificate.target == f"{other} (probability)"
    assert "x is " in found.signal.window_saying(0, 0)
    assert " g and adds " in found.signal.window_saying(0, 0)


def test_one_output_for_two_classes() -> None:
    weights = torch.linspace(-1, 1, 12, dtype=torch.float64)
    x = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(6))

    def model(given: Tensor) -> Tensor:
        return (given * weights).sum(1, keepdim=True)

    up = float(model(x[None]).sigmoid())
    for target in (None, "on", 1):
        found = explain(model, x, "zero", classes=["off", "on"], target=target)
        assert (found.label, found.chances["on"]) == ("on", pytest.approx(up))
        assert found.values.sum() == pytest.approx(up - 0.5, abs=1e-2)
    with wrong("one output, which speaks for 'on'", TargetError):
        explain(model, x, "zero", classes=["off", "on"], target="off")
    scored = explain(model, x, "zero", target=lambda out: 2 * out[:, 0])
    assert scored.sentence.startswith("The score is ")
    assert np.allclose(scored.values[:, 0], (2 * weights * x).numpy())


def test_series_of_different_length_have_results_of_their_own(network: nn.Module) -> None:
    several = [torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (40, 31, 40)]
    found = explain(network, several, "zero", layout="channels-time", tol=1e-3)
    assert [one.values.shape for one in found] == [(40, 3), (31, 3), (40, 3)]
    for one, x in zip(found, several, strict=True):
        alone = explain(network, x, "zero", layout="channels-time", tol=1e-3)
        assert np.abs(one.values - alone.values).sum() <= 3e-3 * np.abs(alone.values).sum()
    stacked = explain(network, torch.stack([several[0], several[2]]), "zero", layout="channels-time")
    assert len(stacked) == 2
    assert repr(stacked).startswith("2 results")


def test_recurrent_networks_and_float32() -> None:
    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.head = nn.GRU(1, 6, batch_first=True), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.gru(x)[0][:, -1])

    found = explain(Recurrent().eval(), np.sin(np.arange(25.0)), layout="time-channels")
    one = found.certificate
    assert one.converged
    assert found.values.sum() == pytest.approx(one.score - one.baseline_score, abs=0.02)


def test_files_and_frames(network: nn.Module, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    frame = pd.DataFrame(x.numpy(), columns=["a", "b", "c"], index=pd.date_range("2026-01-01", periods=30, freq="D"))
    found = explain(network, frame, layout="channels-time", classes=["off", "on"], window="7 D")
    back = found.to_frame()
    assert list(back.columns) == ["a", "b", "c"]
    assert back.index.equals(frame.index)
    assert np.allclose(back.to_numpy(), found.values)
    for name in ("r.html", "r.png", "r.json", "r.csv"):
        assert found.save(tmp_path / name).stat().st_size > 500
    rows = (tmp_path / "r.csv").read_text().splitlines()
    assert len(rows) == 1 + 90
    assert rows[1].startswith("2026-01-01T00:00:00,a,")
    told = json.loads((tmp_path / "r.json").read_text())
    assert np.allclose(told["attributions"], found.values)
    assert sum(map(sum, (one["sums"] for one in told["windows"]))) == pytest.approx(found.values.sum())
    with pytest.raises(OptionError, match=r"expected \.html"):
        found.save(tmp_path / "r.txt")
    assert "2026-01-01 – 2026-0" in str(found)
    assert "<iframe" in found._repr_html_()


def test_many_series_into_a_table(network: nn.Module, tmp_path: Path) -> None:
    import functools

    data = list(torch.randn(5, 3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))
    run = functools.partial(explain, network, baseline="zero", layout="channels-time", classes=["off", "on"])
    found = ig.explain_many(data, run, tmp_path / "table", progress=False)
    assert found.summary.explained == 5
    rows = ExplainedTable.open(tmp_path / "table").arrow(["prediction", "sentence", "attributions"]).to_pylist()
    assert len(rows) == 5
    assert rows[0]["sentence"].startswith("It says")
    assert len(rows[0]["attributions"]) == 20 * 3


def test_other_baselines_and_methods(network: nn.Module) -> None:
    x = torch.randn(3, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    asked = ig.series.inquiry(network, x, layout="channels-time", classes=["off", "on"], window=6)
    diagnosis = asked.diagnose()
    assert {row.name for row in diagnosis.rows} == {"mean", "trend", "zero"}
    compared = asked.compare_methods(methods=["integrated-gradients", "gradient-x-input"])
    assert "gradient x input" in str(compared)


def wrong(message: str, error: type[Exception] = InputError) -> object:
    return pytest.raises(error, match=message)


def test_wrong_layout_says_the_right_one(network: nn.Module) -> None:
    x = torch.randn(40, 3, dtype=torch.float64)
    with wrong(r"cannot take a series as \(batch, time 40, channels 3\).*pass layout='channels-time'"):
        explain(network, x)
    with wrong("mat1 and mat2", RuntimeError):  # no layout helps: the model's own words
        explain(nn.Linear(5, 1).double().eval(), x)


def test_train_mode_is_refused_and_the_model_comes_back(network: nn.Module) -> None:
    x = torch.randn(3, 40, dtype=torch.float64)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    try:
        with wrong("eval", TrainModeError):
            explain(network, x, layout="channels-time")
    finally:
        network.eval()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_bad_inputs(network: nn.Module, signal: Tensor) -> None:
    model = linear(torch.ones(30, 2, dtype=torch.float64))
    holes = signal.clone()
    holes[4:6, 1] = torch.nan
    with wrong(r"gaps: channel 1 has no number at 2 of 30 times \(the first: step 4\).*gaps='interpolate'"):
        explain(model, holes)
    filled = explain(model, holes, gaps="interpolate")
    assert "2 missing values were filled in" in filled.notes[0]
    ends = signal[3, 1].item(), signal[6, 1].item()
    assert filled.series.values[4, 1] == pytest.approx(ends[0] + (ends[1] - ends[0]) / 3)
    assert "at an end by the nearest value" in filled.notes[0]
    holes = signal.clone()
    holes[25:, 1] = torch.nan
    assert explain(model, holes, gaps="interpolate").series.values[25:, 1].tolist() == [signal[24, 1].item()] * 5
    with wrong("infinite"):
        explain(model, torch.where(signal > 1, torch.inf, signal))
    with wrong("constant"):
        explain(model, torch.ones(30, 2, dtype=torch.float64))
    with wrong("a straight line.*baseline='zero'"):
        explain(model, torch.arange(60.0).reshape(30, 2), "trend")
    with wrong("baseline='median'", OptionError):
        explain(model, signal, "median")
    with wrong("baseline of 29 times and 2 channels for a series of 30 and 2"):
        explain(model, signal, signal[1:])
    with wrong("3 names for 2 channels"):
        explain(model, signal, channels=["a", "b", "c"])
    with wrong("the channel 'b'; expected one of channel 0, channel 1"):
        explain(model, signal).between(0, 5, "b")
    with wrong("has no value"):
        explain(model, signal).between(50, 60)
    with wrong("window=0", OptionError):
        explain(model, signal, window=0)
    with wrong("for times in step", OptionError):
        explain(model, signal, window="2 s")
    with wrong("both times= and rate=", OptionError):
        explain(model, signal, rate=2.0, times=range(30))
    pd = pytest.importorskip("pandas")
    dated = pd.DataFrame(signal.numpy(), index=pd.date_range("2024-01-01", periods=30))
    with wrong("rate= for a series that has its own times", OptionError):
        explain(model, dated, rate=2.0)
    with wrong("another series for a series that equals it: there is nothing"):
        explain(model, signal, signal.clone())
    with wrong(r"fails on a series as \(batch, time 30, channels 2\).*\(channel 0, channel 1\) with channels=", ModelError):
        explain(network, signal)
    with wrong("ending '.xlsx'; expected .html, .csv", OptionError):
        explain(model, signal).save("found.xlsx")
    with wrong("expected at least one"):
        explain(model, [])
    with wrong("shape"):
        explain(model, torch.ones(2, 2, 2, 2))
    with wrong("the target 'gun'; expected the number of an output", TargetError):
        explain(model, signal, target="gun")
    with wrong("layout='both'", OptionError):
        explain(model, signal, layout="both")  # type: ignore[arg-type]
    with wrong("3 names of classes for 2 outputs"):
        x = torch.randn(3, 24, dtype=torch.float64)
        explain(network, x, layout="channels-time", classes=["a", "b", "c"])


def test_models_of_other_kinds_and_read_only_arrays() -> None:
    class Ridge:
        pass

    Ridge.__module__ = "sklearn.linear_model"
    with wrong("of scikit-learn as the model", ModelError):
        explain(Ridge(), torch.randn(9))  # type: ignore[arg-type]
    locked = np.arange(6.0)
    locked.flags.writeable = False
    found = explain(lambda x: -(x**2).sum(1), locked, "zero", times=locked)
    assert np.allclose(found.values[:, 0], -(locked**2))
    assert "mostly because of 3–5 (−50" in found.sentence  # why it is so low, not why it is not lower still


def test_a_still_channel_is_named(signal: Tensor) -> None:
    signal[:, 1] = 4.0
    found = explain(linear(torch.ones(30, 2, dtype=torch.float64)), signal)
    assert found.notes == ("channel 1 equals its baseline and can be given nothing.",)
    assert found.channels["channel 1"].value == 0


def test_results_are_plain_data(signal: Tensor) -> None:
    found = explain(linear(torch.ones(30, 2, dtype=torch.float64)), signal)
    assert isinstance(found, SeriesExplanation)
    again = explain(linear(torch.ones(30, 2, dtype=torch.float64)), signal)
    assert np.array_equal(found.values, again.values)  # the same call, the same bits
    assert repr(found) == found.sentence
    same = time_series(found.series)
    assert same is found.series
