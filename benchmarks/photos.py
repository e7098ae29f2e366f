"""EfficientNet-Lite0 on five photos, two scores, two baselines: what a tolerance costs, and whether it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import integrand as ig
from tests.honesty.honest import relative_error
from tests.honesty.networks import efficientnet
from tests.honesty.references import FOLDER, photo_batches, sampled_features

TOLERANCES = (0.05, 0.01)


def run() -> list[dict[str, Any]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    references, features, model = np.load(FOLDER / "photos.npz"), sampled_features(), efficientnet().to(device)
    rows: list[dict[str, Any]] = []
    print("case                            tol   gradients  measured  claimed   |a|/|F(x)-F(x')|   residual/error")
    for tol in TOLERANCES:
        for batch in photo_batches():
            x, baseline = batch.x.to(device), batch.baseline.to(device)
            result = ig.integrated_gradients(model, x, baseline, score=batch.score, tol=tol, progress=False)
            only = result.certificate.only
            measured = relative_error(result.values.double().flatten().cpu().numpy()[features], references[batch.name])
            row = {
                "case": batch.name,
                "tol": tol,
                "gradients": only.gradients,
                "measured": measured,
                "claimed": only.error,
                "magnitude_over_change": only.magnitude / abs(only.score - only.baseline_score),
                "residual_over_error": abs(only.residual) / (measured * only.magnitude),
            }
            rows.append(row)
            numbers = f"{row['gradients']:9d}  {measured:8.2%}  {only.error:7.2%}   {row['magnitude_over_change']:16.0f}"
            print(f"{batch.name:30}  {tol:4.0%}  {numbers}   {row['residual_over_error']:14.4f}", flush=True)
        mine = [row for row in rows if row["tol"] == tol]
        counts = sorted(row["gradients"] for row in mine)
        worst = max(row["measured"] for row in mine) / tol
        print(f"tol {tol:.0%}: {counts[0]} to {counts[-1]} gradients, worst {worst:.2f} x tol")
    return rows
