"""The networks of the shipped models: a fully convolutional classifier and a forecaster of a seasonal series."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEAST = 1e-3
"""The smallest value whose logarithm the forecaster takes: counts are positive, and points on a path to zero are not."""


class SeriesFCN(nn.Module):
    """The fully convolutional network of Wang, Yan and Oates (2017), narrower: three convolutions and a mean over time.

    Takes (N, channels, time) in the units of the data and gives one logit per class, (N, classes). Batch normalisation makes it
    one of the networks that have to be in eval mode: ``.eval()``.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int, classes: int, *, widths: tuple[int, int, int] = (32, 64, 32)) -> None:
        """Make the layers.

        Args:
            channels: of the series.
            classes: to tell apart.
            widths: channels of the three convolutions.
        """
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, 1))
        self.register_buffer("scale", torch.ones(channels, 1))
        layers: list[nn.Module] = []
        for before, after, size in zip((channels, *widths), widths, (7, 5, 3), strict=False):
            layers += [nn.Conv1d(before, after, size, padding=size // 2), nn.BatchNorm1d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, classes), of series (N, channels, time)."""
        found: Tensor = self.head(self.body((x - self.mean) / self.scale).mean(2))
        return found


class SeasonalForecaster(nn.Module):
    """Forecasts the next values of one seasonal series, in the units of the series.

    Takes (N, time, 1) and gives (N, horizons). Inside, it works with logarithms, from which the mean of the last season is
    taken off: a linear part and a small hidden layer forecast how far each coming value is from that level.
    """

    def __init__(self, length: int, horizons: int, *, season: int = 12, hidden: int = 24) -> None:
        """Make the layers.

        Args:
            length: of the history that it sees.
            horizons: how many values it forecasts.
            season: steps in a season.
            hidden: units of the hidden layer.
        """
        super().__init__()
        self.season = season
        self.linear = nn.Linear(length, horizons)
        self.hidden = nn.Linear(length, hidden)
        self.out = nn.Linear(hidden, horizons, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The next values, (N, horizons), after the histories (N, time, 1)."""
        logs = x[..., 0].clamp_min(LEAST).log()
        level = logs[:, -self.season :].mean(1, keepdim=True)
        centred = logs - level
        ahead: Tensor = self.linear(centred) + self.out(torch.tanh(self.hidden(centred)))
        return (level + ahead).exp()
