"""Digits that nothing was tuned on: does the estimate hold there as well?

The constants of the estimate were chosen while looking at the first digits after the training set and at the photos of
``tests/honesty``; these are the digits after those.
"""

from __future__ import annotations

from typing import Any

import torch

import integrand as ig
from tests.honesty.honest import Claim, relative_error, summary
from tests.honesty.networks import digits, trained
from tests.honesty.references import NETWORKS, SCORES, Batch, converge

FIRST, COUNT, TOLERANCES = 1600, 40, (0.05, 0.01)


def run() -> list[dict[str, Any]]:
    x = digits()[0][FIRST : FIRST + COUNT]
    rows: list[dict[str, Any]] = []
    for network in NETWORKS:
        claims: dict[float, list[Claim]] = {tol: [] for tol in TOLERANCES}
        for score in SCORES:
            model = trained(network, torch.float64).requires_grad_(False)
            batch = Batch(network, network, score, x.double(), torch.zeros_like(x).double())
            exact = converge(model, batch, 2048 if network in {"gelu", "lstm"} else 8192, 2048).numpy()
            for tol in TOLERANCES:
                result = ig.integrated_gradients(trained(network), x, score=score, tol=tol)
                for i, c in enumerate(result.certificate):
                    error = relative_error(result.values[i].double().numpy(), exact[i])
                    claims[tol].append(Claim(f"{network}-{score}[{i}]", tol, c.converged, c.error, error, c.gradients))
        for tol, found in claims.items():
            print(f"  {network:5} tol {tol:.0%}: {summary(found)}", flush=True)
            rows += [{"case": c.name, "tol": tol, "measured": c.measured, "claimed": c.claimed} for c in found]
    return rows
