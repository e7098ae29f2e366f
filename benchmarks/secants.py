"""Segment secants against sampling: evaluations, measured and claimed error, and time, side by side.

python -m benchmarks.secants --out out/bench          # digits and two photos, about 15 minutes on one core
python -m benchmarks.secants --only digits

A segment counts as one gradient, the forwards that it shares with no other as 0.4. Seconds are those of the processor, which
other work on the machine changes less than the clock on the wall; on a GPU they are the clock's.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.execute import _choose
from tests.honesty.honest import relative_error
from tests.honesty.networks import BLACK, efficientnet, photo, trained
from tests.honesty.references import FOLDER, digit_batches

from .accuracy import PHOTOS, REFERENCE

FORWARD = 0.4
TOLERANCES = {"digits": (0.01, 0.001), "photos": (0.01, 0.005, 0.002)}
WAYS = {"sampling": float("inf"), "secants": 0.0}


@contextmanager
def choosing(left: float) -> Iterator[None]:
    """Take secants where sampling is expected to take so many gradients more, however small the model."""
    before, worth = dict(_choose.PAYS), _choose.WORTH
    _choose.PAYS.update({"cpu": left, "cuda": left})  # type: ignore[dict-item]
    _choose.WORTH = 0
    try:
        yield
    finally:
        _choose.PAYS.clear()
        _choose.PAYS.update(before)
        _choose.WORTH = worth


def one(model: nn.Module, x: Tensor, baseline: Any, exact: np.ndarray, tol: float, way: str, **options: Any) -> dict[str, Any]:
    """Explain a batch one way and measure it."""
    clock = time.perf_counter if x.is_cuda else time.process_time
    with choosing(WAYS[way]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some baselines look like digits; some budgets end: the table says so
        start = clock()
        result = ig.integrated_gradients(model, x, baseline, tol=tol, progress=False, **options)
        values = result.values.double().flatten(1).cpu().numpy()
        seconds = clock() - start
    errors = np.array([relative_error(mine, true) for mine, true in zip(values, exact, strict=True)])
    claims = np.array([c.error for c in result.certificate])
    return {
        "way": way,
        "tol": tol,
        "gradients": result.certificate.gradients / len(x),
        "forwards": result.certificate.forwards / len(x),
        "cost": (result.certificate.gradients + FORWARD * result.certificate.forwards) / len(x),
        "used": sum("secants" in c.rule for c in result.certificate),
        "measured": float(errors.max()),
        "claimed": float(claims.max()),
        "measured_over_claimed": float((errors / claims).max()),
        "within": float((errors <= tol).mean()),
        "seconds": seconds,
    }


def digits() -> Iterator[dict[str, Any]]:
    """Two ReLU networks, 25 digits at a time, float64."""
    references = np.load(FOLDER / "digits.npz")
    for batch in digit_batches(torch.float64):
        if batch.network not in ("relu", "cnn"):
            continue
        for tol in TOLERANCES["digits"]:
            for way in WAYS:
                model = trained(batch.network, torch.float64)
                row = one(model, batch.x, batch.baseline, references[batch.name], tol, way, score=batch.score)
                yield {"case": batch.name, **row}


def photos() -> Iterator[dict[str, Any]]:
    """EfficientNet-Lite0 on two photos, probability, black baseline."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = efficientnet().to(device).requires_grad_(False)
    for name in PHOTOS:
        exact = np.load(REFERENCE)[name].astype(np.float64)[None] / 1024  # stored times 1024
        for tol in TOLERANCES["photos"]:
            for way in WAYS:
                yield {"case": name, **one(model, photo(name).to(device), BLACK, exact, tol, way, score="probability")}


PARTS = {"digits": digits, "photos": photos}


def run(parts: list[str]) -> list[dict[str, Any]]:
    """Both ways for each case, and the ratios."""
    rows: list[dict[str, Any]] = []
    print(
        "case                     tol  way      gradients forwards  measured  claimed  worst of claim  used  seconds     ratio"
    )
    for part in parts:
        for row in PARTS[part]():
            ratio = f"{rows[-1]['cost'] / row['cost']:10.2f}" if row["way"] == "secants" else ""
            numbers = f"{row['gradients']:9.0f} {row['forwards']:9.0f}  {row['measured']:8.3%} {row['claimed']:8.3%}"
            rest = f"{row['measured_over_claimed']:15.2f} {row['used']:5d} {row['seconds']:8.1f}"
            print(f"{row['case']:22} {row['tol']:6.2%}  {row['way']:9} {numbers} {rest}   {ratio}", flush=True)
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for secants.json")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), help="parts to run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = run(options.only or list(PARTS))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "secants.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
