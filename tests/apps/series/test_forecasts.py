"""Forecasts: an autoregression in closed form, horizons that share their passes, and the shipped forecaster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.apps.series.model import forecast, horizons_of
from integrand.errors import InputError, OptionError


class Autoregression(nn.Module):
    """x_t = 0.6 x_(t-1) - 0.3 x_(t-2), gone on with for some steps; (N, time) to (N, horizons)."""

    def __init__(self, horizons: int = 4) -> None:
        super().__init__()
        self.horizons, self.passes = horizons, 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += len(x)
        values = [x[:, -2], x[:, -1]]
        for _ in range(self.horizons):
            values.append(0.6 * values[-1] - 0.3 * values[-2])
        return torch.stack(values[2:], 1)


def impulse(horizons: int) -> np.ndarray:
    """What the last two values count for each horizon, (horizons, 2): powers of the companion matrix."""
    step, found, power = np.array([[0.6, -0.3], [1.0, 0.0]]), [], np.eye(2)
    for _ in range(horizons):
        power = step @ power
        found.append([power[0, 1], power[0, 0]])
    return np.array(found)


HISTORY = torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], dtype=torch.float64)


def test_every_lag_of_an_autoregression() -> None:
    found = forecast(Autoregression().eval(), HISTORY)
    exact = np.zeros((4, 8))
    exact[:, -2:] = impulse(4) * (HISTORY[-2:].numpy() - HISTORY.mean().item())
    assert np.allclose(found.values[:, :, 0], exact, atol=1e-10)
    assert found.horizons == (1, 2, 3, 4)
    assert np.allclose(found.forecasts, Autoregression()(HISTORY[None])[0])
    whole = forecast(Autoregression().eval(), HISTORY, horizon="sum")
    assert np.allclose(whole.values[0, :, 0], exact.sum(0), atol=1e-10)
    mean = forecast(Autoregression().eval(), HISTORY, horizon="mean")
    assert np.allclose(mean.values[0, :, 0], exact.mean(0), atol=1e-10)
    third = forecast(Autoregression().eval(), HISTORY, horizon=3)
    assert np.allclose(third.values[0, :, 0], exact[2], atol=1e-10)


def test_horizons_share_forward_passes() -> None:
    class Curved(Autoregression):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.tanh(x)) ** 2

    one, all_ = Curved(12).eval(), Curved(12).eval()
    forecast(one, HISTORY / 4, horizon=5)
    found = forecast(all_, HISTORY / 4)
    assert len(found) == 12
    assert found.certificate.converged
    assert all_.passes < 4 * one.passes  # and not 12 times


@pytest.mark.parametrize("layout", ["time-channels", "channels-time"])
def test_a_channel_of_several(layout: str) -> None:
    weights = torch.randn(3, 2, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Several(nn.Module):  # (N, 6, 2) to (N, 3, 2), or with channels first
        def forward(self, x: Tensor) -> Tensor:
            out = torch.einsum("ntc,hktc->nhk", x.mT if layout == "channels-time" else x, weights)
            return out.mT if layout == "channels-time" else out

    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    given = x.T if layout == "channels-time" else x
    how = {"layout": layout, "channels": ["load", "price"], "units": ["kW", "€"]}
    found = forecast(Several().eval(), given, "zero", channel="price", **how)
    assert np.allclose(found.values, (weights[:, 1] * x).numpy(), atol=1e-10)
    assert found.scale == "€"
    total = forecast(Several().eval(), given, "zero", channel=0, horizon="sum", **how)
    assert np.allclose(total.values[0], (weights[:, 0].sum(0) * x).numpy(), atol=1e-10)
    with pytest.raises(OptionError, match="forecasts 2 channels; expected which one with channel=: load, price"):
        forecast(Several().eval(), given, "zero", **how)


def test_horizons_as_people_ask_for_them() -> None:
    assert horizons_of(range(1, 4), 12) == ((1, 2, 3), "")
    assert horizons_of(slice(10, None), 12) == ((11, 12), "")
    assert horizons_of([12, 1], 12) == ((12, 1), "")
    assert horizons_of("mean", 2) == ((1, 2), "mean")
    for bad in (0, 13, [1, 99], "none", True, [], slice(5, 5), [1.5]):
        with pytest.raises(OptionError, match="expected a number from 1 to 12"):
            horizons_of(bad, 12)  # type: ignore[arg-type]


def test_the_shipped_forecaster_against_a_plain_sum(tmp_path: Path) -> None:
    airline = ig.series.load("airline")
    found = airline.forecast(airline.example(), horizon=[1, 7])
    history = airline.example().cut(108, 144)
    x = torch.from_numpy(history.values).float()
    line = np.polyval(np.polyfit(history.axis.at, history.values[:, 0], 1), history.axis.at)
    start = torch.from_numpy(line[:, None]).float()
    nodes = (torch.arange(2000) + 0.5) / 2000
    for i, horizon in enumerate((1, 7)):
        points = (start + nodes[:, None, None] * (x - start)).requires_grad_()
        (grads,) = torch.autograd.grad(airline.module(points)[:, horizon - 1].sum(), points)
        exact = (grads.mean(0) * (x - start)).numpy()
        assert np.abs(found.values[i] - exact).sum() <= 0.01 * np.abs(exact).sum()
    assert found.rows == ("Jan 1961", "Jul 1961")
    assert found.sentences[1].startswith("The forecast for Jul 1961 is ")
    assert "because of Jul 1960 (+" in found.sentences[1]  # the same month of the year before
    for name in ("f.html", "f.png", "f.json", "f.csv"):
        assert found.save(tmp_path / name).stat().st_size > 500
    lines = (tmp_path / "f.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 36
    assert found.row().features is not None
    assert list(found.to_frame(7).columns) == ["passengers"]
    assert list(found.to_frame().columns) == ["Jan 1961", "Jul 1961"]


def test_the_forecaster_beats_the_seasonal_naive_forecast() -> None:
    airline = ig.series.load("airline")
    series = torch.from_numpy(airline.example().values).float()
    cuts = [i for i in range(97) if i + 36 >= 108]
    x, y = (torch.stack([series[i + a : i + b] for i in cuts]) for a, b in ((0, 36), (36, 48)))
    with torch.no_grad():
        off = (airline.module(x) - y[..., 0]).abs().mean()
    naive = (x[:, -12:, 0] - y[..., 0]).abs().mean()
    assert len(cuts) == 25
    assert off < 0.75 * naive


def test_what_a_forecaster_does_not_take() -> None:
    airline = ig.series.load("airline")
    with pytest.raises(InputError, match="got 20 steps; expected at least 36"):
        airline.forecast(torch.rand(20))
    with pytest.raises(OptionError, match=r"expected forecast\("):
        airline.explain(airline.example())
    with pytest.raises(OptionError, match=r"expected explain\("):
        ig.series.load("gunpoint").forecast(airline.example())
    model = nn.Linear(8, 2).double().eval()
    with pytest.raises(InputError, match=r"it can take.*pass layout='channels-time'"):
        forecast(model, HISTORY, layout="time-channels")
    helped = forecast(model, HISTORY, layout="channels-time")
    assert np.allclose(helped.values, forecast(model, HISTORY).values)


def test_the_axis_goes_on_by_months() -> None:
    axis = ig.series.load("airline").example().axis.extended(2)
    assert [axis.label(i) for i in (143, 144, 145)] == ["Dec 1960", "Jan 1961", "Feb 1961"]


def test_horizons_as_an_array_and_one_that_was_not_asked_for() -> None:
    found = forecast(Autoregression(), torch.arange(6.0) ** 2, horizon=np.array([2, 4]))
    assert found.horizons == (2, 4)
    assert found.to_frame(4).shape == (6, 1)
    with pytest.raises(OptionError, match=r"got horizon=1; expected one of those that were asked for: 2, 4"):
        found.to_frame(1)


def test_one_forecast_of_several_channels_says_what_it_is_taken_for() -> None:
    history = torch.arange(12.0).reshape(6, 2) ** 2

    def model(x: Tensor) -> Tensor:
        return x[:, -2:, 1]

    assert any("taken for channel 0" in note for note in forecast(model, history).notes)
    assert not any("taken for" in note for note in forecast(model, history, channel=1).notes)
