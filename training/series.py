"""Train the classifiers and the forecaster of ``integrand series`` on data in the wheel of ``aeon`` (BSD-3), on a CPU.

    pip download --no-deps aeon && unzip aeon-*.whl 'aeon/datasets/data/*'
    MODELS=distributions/integrand-models/src/integrand_models
    python training/series.py gunpoint --data aeon/datasets/data --out $MODELS/series-gunpoint.safetensors
    python training/series.py motions --data aeon/datasets/data --out $MODELS/series-motions.safetensors
    python training/series.py airline --data aeon/datasets/data --out $MODELS/series-airline.safetensors

The classifiers are trained on the official training series and looked at on the official test series, which go into the file as
examples. The forecaster is trained on the months to the end of 1957 and tested on 1958 to 1960, beside the seasonal naive
forecast (the same month of the year before), with and without the growth of the last year. A minute each on one core.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from integrand.apps.series.series_networks import SeasonalForecaster, SeriesFCN

HISTORY, AHEAD, LAST = 36, 12, 108
"""Months that the forecaster sees, months that it forecasts, and months that it is trained on."""

ABOUT = {
    "gunpoint": {
        "folder": "GunPoint",
        "classes": {"1": "gun", "2": "point"},
        "channels": ["hand position"],
        "units": ["standard deviations"],
        "rate": 30.0,
        "undecided": True,
    },
    "motions": {
        "folder": "BasicMotions",
        "classes": {"standing": "standing", "running": "running", "walking": "walking", "badminton": "badminton"},
        "channels": ["acceleration x", "acceleration y", "acceleration z", "rotation x", "rotation y", "rotation z"],
        "units": [""] * 6,
        "rate": 10.0,
        "undecided": False,  # a watch that does not move is on somebody who stands
    },
}


def read_ts(file: Path) -> tuple[Tensor, list[str]]:
    """Series (N, channels, time) and their classes from a ``.ts`` file: dimensions divided by colons, the class last."""
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [line.split(":") for line in lines[lines.index("@data") + 1 :] if line.strip()]
    values = [[[float(value) for value in channel.split(",")] for channel in row[:-1]] for row in rows]
    return torch.tensor(values, dtype=torch.float32), [row[-1].strip().lower() for row in rows]


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """The series a little earlier or later, larger or smaller, so that few examples go a longer way."""
    most = x.shape[2] // 10
    moved = [
        torch.roll(F.pad(one, (most, most), mode="replicate"), int(s), 1)[:, most:-most]
        for one, s in zip(x, torch.randint(-most, most + 1, (len(x),), generator=generator), strict=True)
    ]
    scale = 1 + 0.1 * torch.randn(len(x), x.shape[1], 1, generator=generator)
    return torch.stack(moved) * scale


def classifier(name: str, data: Path, out: Path, epochs: int, noise: float) -> None:
    """Train a classifier and write it with its test series.

    Args:
        name: of the data set.
        data: the folder of the wheel.
        out: where to write.
        epochs: steps of training, each over all series.
        noise: added to the series in training, in standard deviations: without it, the network goes by differences of
            neighbouring values, and attributions cancel from step to step.
    """
    about = ABOUT[name]
    folder, known = data / about["folder"], list(about["classes"])
    (x, y), (tx, ty) = (read_ts(folder / f"{about['folder']}_{part}.ts") for part in ("TRAIN", "TEST"))
    labels, tested = (torch.tensor([known.index(one) for one in part]) for part in (y, ty))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = SeriesFCN(x.shape[1], len(known))
    model.mean.copy_(x.mean((0, 2))[:, None])
    model.scale.copy_(x.std((0, 2))[:, None])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        model.train()
        seen = shifted(x, generator) + noise * model.scale * torch.randn(x.shape, generator=generator)
        loss = F.cross_entropy(model(seen), labels, label_smoothing=0.05)
        if about["undecided"]:  # a constant series, the baseline, says nothing
            still = x.mean(2, keepdim=True).expand(x.shape)
            model.eval()
            loss = loss + 0.2 * F.cross_entropy(model(still), torch.full((len(x), len(known)), 1 / len(known)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
        if epoch % 50 == 49:
            model.eval()
            with torch.no_grad():
                print(
                    epoch + 1, f"loss {loss.item():.3f}, training accuracy {(model(x).argmax(1) == labels).float().mean():.3f}"
                )
    model.eval()
    with torch.no_grad():
        right = (model(tx).argmax(1) == tested).float().mean().item()
    print(f"test accuracy {right:.4f} of {len(tx)}, {sum(p.numel() for p in model.parameters()):,} parameters")
    told = {
        "kind": "classifier",
        "classes": list(about["classes"].values()),
        "channels": about["channels"],
        "units": about["units"],
        "rate": about["rate"],
        "length": x.shape[2],
    }
    examples = {"examples": tx.transpose(1, 2).contiguous(), "labels": tested}
    save(out, model, examples, told)


def forecaster(data: Path, out: Path, epochs: int, near: float, small: float, until: int) -> None:
    """Train the forecaster of monthly passengers and write it with the whole series.

    Args:
        data: the folder of the wheel.
        out: where to write.
        epochs: steps of training, each over all windows.
        near: how strongly the linear part is held to the seasonal naive forecast with growth.
        small: how strongly the hidden layer is held to zero.
        until: months that it is trained on; with fewer than ``LAST``, those between are what settings are compared on.
    """
    with (data / "Airline" / "Airline.csv").open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    series = torch.tensor([float(row["Passengers"]) for row in rows])
    cuts = range(len(series) - HISTORY - AHEAD + 1)
    x = torch.stack([series[i : i + HISTORY] for i in cuts])[..., None]
    y = torch.stack([series[i + HISTORY : i + HISTORY + AHEAD] for i in cuts])
    end = LAST if until < LAST else len(series)
    trained = torch.tensor([i + HISTORY + AHEAD <= until for i in cuts])
    tested = torch.tensor([i + HISTORY >= until and i + HISTORY + AHEAD <= end for i in cuts])
    torch.manual_seed(0)
    model = SeasonalForecaster(HISTORY, AHEAD)
    with torch.no_grad():  # begins as the seasonal naive forecast with the growth of the last year
        for part in (model.linear.weight, model.linear.bias, model.out.weight):
            part.zero_()
        for h in range(AHEAD):
            model.linear.weight[h, HISTORY - 12 + h] = 1.0
            model.linear.weight[h, HISTORY - 24 : HISTORY - 12] -= 1 / 12
    start = model.linear.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        noisy = x[trained] * (1 + 0.02 * torch.randn(x[trained].shape, generator=generator))
        loss = (model(noisy).log() - y[trained].log()).square().mean()
        held = near * (model.linear.weight - start).square().sum()
        held = held + small * sum(part.square().sum() for part in (model.hidden.weight, model.out.weight))
        optimizer.zero_grad()
        (loss + held).backward()
        optimizer.step()
        if epoch % 500 == 499:
            print(epoch + 1, f"loss {loss.item():.5f}")
    model.eval()
    last = x[..., 0]
    naive = last[:, -12:]
    growth = naive * (last[:, -12:].mean(1) / last[:, -24:-12].mean(1))[:, None]
    with torch.no_grad():
        found = {"network": model(x), "seasonal naive": naive, "seasonal naive with growth": growth}
    for name, guess in found.items():
        off = (guess - y)[tested]
        share = (off.abs() / y[tested]).mean().item()
        months = f"{int(tested.sum())} x {AHEAD} months"
        print(f"{name}: mean absolute error {off.abs().mean():.1f} thousand ({share:.1%}) over {months}")
    told = {
        "kind": "forecaster",
        "classes": [],
        "channels": ["passengers"],
        "units": ["thousand"],
        "rate": None,
        "length": HISTORY,
        "horizons": AHEAD,
        "baseline": "trend",
    }
    months = torch.from_numpy(np.array([row["Date"] for row in rows], "datetime64[M]").astype(np.int64))
    save(out, model, {"examples": series[:, None].contiguous(), "months": months}, told)


def save(out: Path, model: nn.Module, examples: dict[str, Tensor], told: dict) -> None:
    """Write weights, examples and what is known of both, in the header."""
    weights = {f"network.{name}": value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights | examples, out, {"about": json.dumps(told)})
    print(f"wrote {out}, {out.stat().st_size:,} bytes")


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*ABOUT, "airline"])
    parser.add_argument("--data", type=Path, required=True, help="the folder aeon/datasets/data of the wheel")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--noise", type=float, default=0.2, help="of a classifier: in training, in standard deviations")
    parser.add_argument("--near", type=float, default=0.02)
    parser.add_argument("--small", type=float, default=0.0005)
    parser.add_argument("--until", type=int, default=LAST, help="of the forecaster: months to train on; 84 compares settings")
    given = parser.parse_args()
    if given.what == "airline":
        forecaster(given.data, given.out, given.epochs or 3000, given.near, given.small, given.until)
    else:
        classifier(given.what, given.data, given.out, given.epochs or 500, given.noise)


if __name__ == "__main__":
    main()
