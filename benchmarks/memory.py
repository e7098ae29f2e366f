"""Peak memory of EfficientNet-Lite0 runs, each in a process of its own: flat in the number of steps, or not."""

from __future__ import annotations

from typing import Any

from .child import in_a_process

REPEATS = 3
"""Runs of the first two cases; the allocator alone makes single ones differ by several per cent."""

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("integrand", "50 steps", {"steps": 50}),
    ("integrand", "1000 steps", {"steps": 1000}),
    ("integrand", "to 1%", {"tol": 0.01}),
    ("integrand", "to 0.3%", {"tol": 0.003}),
    ("integrand", "to 0.3%, memory=400 MB", {"tol": 0.003, "memory": 400_000_000}),
    ("captum", "50 steps", {"n_steps": 50}),
    ("captum", "100 steps", {"n_steps": 100}),
]


def run() -> list[dict[str, Any]]:
    rows = []
    print("EfficientNet-Lite0, 224 px, cat, black baseline, probability: peak memory above the loaded model")
    for who, what, options in CASES:
        runs = [in_a_process(who, "chelsea", options) for _ in range(REPEATS if "steps" in options else 1)]
        row = {"who": who, "what": what} | sorted(runs, key=lambda run: run.get("peak_mb", 0))[len(runs) // 2]
        rows.append(row)
        if "failed" in row:
            print(f"  {who:10} {what:24} {row['failed']}", flush=True)
            continue
        numbers = f"{row['peak_mb']:8.0f} MB   {row['gradients']:5d} gradients   {row['seconds']:6.1f} s"
        print(f"  {who:10} {what:24} {numbers}", flush=True)
    peaks = {row["what"]: row.get("peak_mb") for row in rows if row["who"] == "integrand"}
    print(f"  1000 steps over 50 steps: {peaks['1000 steps'] / peaks['50 steps']:.3f}")
    return rows
