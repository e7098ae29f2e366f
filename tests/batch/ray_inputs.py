"""Inputs for tests on a Ray cluster that kill whoever explains them, and what explains them."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from integrand.batch import ModelExplainer, Row

FEATURES = 12


def network() -> nn.Module:
    """A small network, the same in every process."""
    draws = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
    for weight in model.parameters():
        weight.data = torch.randn(weight.shape, generator=draws) / weight.shape[-1] ** 0.5
    return model.eval().requires_grad_(False)


class Numbers:
    """Explains rows with numbers, and does what they say."""

    together = 4

    def __init__(self, tol: float = 1e-5) -> None:
        self._explain = ModelExplainer(network(), target=1, tol=tol)
        self.settings = dict(self._explain.settings)

    @staticmethod
    def size(row: Mapping[str, Any]) -> float:
        """How many numbers it has."""
        return len(row["x"])

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """The rows of the table."""
        for row in rows:
            do(row.get("deed"), Path(row["mark"]) if row.get("mark") else None)
            if row.get("bad"):
                raise ValueError(f"a bad input: {row['id']}")
        return self._explain([torch.tensor(row["x"], dtype=torch.float32) for row in rows])


def do(deed: str | None, mark: Path | None) -> None:
    """Kill somebody: always, or the first time, of which a file is the mark."""
    if not deed or (mark is not None and mark.exists()):
        return
    if mark is not None:
        mark.touch()
    if deed == "driver":
        told = mark.with_suffix(".pid") if mark is not None else Path()
        while not told.exists() or not told.read_text():
            time.sleep(0.01)
        os.kill(int(told.read_text()), signal.SIGKILL)
        time.sleep(60)  # until Ray ends what belonged to it
    if deed == "machine":
        os.kill(os.getppid(), signal.SIGKILL)  # the raylet
    os.kill(os.getpid(), signal.SIGKILL)


def make() -> Numbers:
    """What explains, made in each actor."""
    return Numbers()


def wrong() -> Numbers:
    """What explains, with an option that makes no sense."""
    return Numbers(tol=-1.0)


def rows(count: int, deeds: Mapping[int, str] | None = None, marks: Path | None = None) -> list[dict[str, Any]]:
    """Rows of numbers, two of them bad; some with a deed, of which a file is the mark."""
    draws = random.Random(7)
    found = []
    for i in range(count):
        deed = (deeds or {}).get(i, "")
        row = {"id": f"r{i:04d}", "x": [draws.gauss(0, 1) for _ in range(FEATURES)], "bad": i in (9, 41), "label": i % 3}
        found.append(row | {"deed": deed, "mark": str(marks / f"{deed}-{i}") if deed and marks is not None else ""})
    return found


def write(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Rows as a file, with a line in it that is no row."""
    lines = [json.dumps(row) for row in found]
    path.write_text("\n".join([*lines[:20], "no JSON", *lines[20:]]) + "\n", encoding="utf-8")
