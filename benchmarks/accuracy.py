"""EfficientNet-Lite0 on photos: measured per-feature error against evaluations, and time at equal measured error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import integrand as ig
from tests.honesty.honest import relative_error
from tests.honesty.networks import BLACK, efficientnet, photo

from .child import in_a_process

PHOTOS = {"chelsea": "cat", "coffee": "coffee"}
REFERENCE = Path(__file__).with_name("references.npz")
"""Every feature of the two converged answers (16,384 midpoints), made by `python -m benchmarks.references`."""

TOLERANCES = (0.1, 0.05, 0.02, 0.01, 0.005)
STEPS = (25, 50, 100, 150, 200, 250, 300, 350, 400)
CAPTUM = {"captum Gauss-Legendre": "gausslegendre", "captum right Riemann (the paper)": "riemann_right"}
GOAL = 0.01


def run() -> dict[str, Any]:
    found = {label: _photo(name, label) for name, label in PHOTOS.items()}
    for label, rows in found.items():
        _print(label, rows)
    return found


def _photo(name: str, label: str) -> dict[str, Any]:
    from captum.attr import IntegratedGradients

    model, x = efficientnet(), photo(name)
    exact = np.load(REFERENCE)[name].astype(np.float64) / 1024  # stored times 1024
    with torch.no_grad():
        target = int(model(x).argmax())
    captum = IntegratedGradients(lambda z: model(z).softmax(1))

    def error(values: Tensor) -> float:
        return relative_error(values.detach().double().flatten().numpy(), exact)

    curves: dict[str, list[dict[str, float]]] = {"integrand": []}
    for tol in TOLERANCES:
        start = time.perf_counter()
        result = ig.integrated_gradients(model, x, BLACK, target=target, score="probability", tol=tol)
        only = result.certificate.only
        row = {"tol": tol, "gradients": only.gradients, "claimed": only.error, "measured": error(result.values)}
        curves["integrand"].append(row | {"seconds": time.perf_counter() - start})
        print(f"  {label}: tol {tol:.1%}: {only.gradients} gradients, measured {row['measured']:.2%}", flush=True)
    for who, method in CAPTUM.items():
        curves[who] = []
        for steps in STEPS:
            values = captum.attribute(x, BLACK, target=target, n_steps=steps, method=method, internal_batch_size=8)
            curves[who].append({"gradients": steps, "measured": error(values)})
    return {"curves": curves, "equal": _equal_error(name, curves)}


def _equal_error(name: str, curves: dict[str, Any]) -> dict[str, Any]:
    """Seconds to the same measured error, with the steps that Captum needs for it, taking turns, the best of two each.

    ``captum`` is the call as a user would write it, all steps in one batch. Where that does not fit into memory, it is the
    call that the user would try next, ``internal_batch_size=50``.
    """
    within = [row for row in curves["captum Gauss-Legendre"] if row["measured"] <= GOAL]
    steps = int(within[0]["gradients"]) if within else max(STEPS)
    plain: dict[str, Any] = {"n_steps": steps}
    contestants = {
        "integrand": ("integrand", {"tol": GOAL}),
        "captum": ("captum", plain),
        "captum in chunks of 8": ("captum", plain | {"internal_batch_size": 8}),
    }
    found: dict[str, Any] = {"captum_steps": steps}
    for _ in range(2):
        for label, (who, options) in contestants.items():
            row = in_a_process(who, name, options)
            if "failed" in row and who == "captum":
                found["captum_plain"] = row["failed"]
                options["internal_batch_size"] = 50
                row = in_a_process(who, name, options)
            found[label] = min(found.get(label, float("inf")), row["seconds"])
    return found


def _print(label: str, rows: dict[str, Any]) -> None:
    print(f"\n{label}: EfficientNet-Lite0, 224 px, probability, black baseline")
    print("  integrand   tol      gradients   measured   claimed   seconds")
    for row in rows["curves"]["integrand"]:
        numbers = f"{row['gradients']:9d}   {row['measured']:8.2%}   {row['claimed']:7.2%}   {row['seconds']:7.1f}"
        print(f"              {row['tol']:<6.1%}   {numbers}")
    for who in CAPTUM:
        line = "  ".join(f"{row['gradients']}: {row['measured']:.2%}" for row in rows["curves"][who])
        print(f"  {who}: {line}")
    equal = rows["equal"]
    if "captum_plain" in equal:
        print(f"  captum, {equal['captum_steps']} steps in one batch: {equal['captum_plain']}; timed in batches of 50")
    for label in ("captum", "captum in chunks of 8"):
        print(
            f"  to {GOAL:.0%} measured: integrand {equal['integrand']:.1f} s, {label} ({equal['captum_steps']} steps) "
            f"{equal[label]:.1f} s: {equal[label] / equal['integrand']:.1f}x"
        )


def plot(found: dict[str, Any], path: Path) -> Path:
    """Measured error against gradient evaluations, one panel per photo."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True)
    styles = {
        "integrand": ("#0072B2", "o"),
        "captum Gauss-Legendre": ("#D55E00", "s"),
        "captum right Riemann (the paper)": ("#999999", "^"),
    }
    for axis, (label, rows) in zip(np.atleast_1d(axes), found.items(), strict=True):
        for who, curve in rows["curves"].items():
            colour, marker = styles[who]
            x, y = [r["gradients"] for r in curve], [100 * r["measured"] for r in curve]
            axis.loglog(x, y, color=colour, marker=marker, markersize=4, label=who)
        axis.axhline(1, color="black", linewidth=0.6, linestyle=":")
        axis.set_title(label)
        axis.set_xlabel("gradient evaluations")
        axis.set_xticks([25, 50, 100, 200, 400], ["25", "50", "100", "200", "400"])
        axis.minorticks_off()
    np.atleast_1d(axes)[0].set_ylabel("measured error over the features, %")
    np.atleast_1d(axes)[0].set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    np.atleast_1d(axes)[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    return path
