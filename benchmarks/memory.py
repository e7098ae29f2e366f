"""Peak memory, each run in a process of its own: flat in the number of steps, or not."""

from __future__ import annotations

import json
import subprocess
import sys

import torch

CASES = [
    ("integrand", "50 steps", {"steps": 50}),
    ("integrand", "1000 steps", {"steps": 1000}),
    ("integrand", "to 1%", {"tol": 0.01}),
    ("integrand", "to 0.3%", {"tol": 0.003}),
    ("integrand", "to 0.3%, memory=400 MB", {"tol": 0.003, "memory": 400_000_000}),
    ("captum", "50 steps", {"n_steps": 50}),
    ("captum", "100 steps", {"n_steps": 100}),
]


def run() -> list[dict[str, object]]:
    rows = []
    print("EfficientNet-Lite0, 224 px, cat, black baseline, probability: peak memory above the loaded model")
    for who, what, options in CASES:
        command = [sys.executable, "-m", "benchmarks.memory", who, json.dumps(options), str(torch.get_num_threads())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row: dict[str, object] = {"who": who, "what": what}
        if done.returncode:
            row["failed"] = f"exit {done.returncode}"
            print(f"  {who:10} {what:24} failed ({row['failed']})", flush=True)
        else:
            row |= json.loads(done.stdout.splitlines()[-1])
            print(
                f"  {who:10} {what:24} {row['peak_mb']:8.0f} MB   {row['gradients']:5d} gradients   {row['seconds']:6.1f} s",
                flush=True,
            )
        rows.append(row)
    flat = {row["what"]: row for row in rows if row["who"] == "integrand"}
    if all("peak_mb" in flat[key] for key in ("50 steps", "1000 steps")):
        ratio = float(flat["1000 steps"]["peak_mb"]) / float(flat["50 steps"]["peak_mb"])  # type: ignore[arg-type]
        print(f"  1000 steps over 50 steps: {ratio:.3f}")
    return rows


def measure(who: str, options: dict[str, float], threads: int) -> None:
    """In the child process: load, explain once, print the peak."""
    import resource
    import time
    import warnings

    import integrand as ig
    from tests.honesty.networks import BLACK, efficientnet, photo

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    model, x = efficientnet(), photo("chelsea")
    with torch.no_grad():
        target = int(model(x).argmax())  # also warms up
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    if who == "integrand":
        result = ig.integrated_gradients(model, x, BLACK, target=target, score="probability", progress=False, **options)
        gradients = result.certificate.gradients
    else:
        from captum.attr import IntegratedGradients

        IntegratedGradients(lambda z: model(z).softmax(1)).attribute(x, BLACK, target=target, **options)
        gradients = int(options["n_steps"])
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    print(json.dumps({"peak_mb": peak, "gradients": gradients, "seconds": seconds}))


if __name__ == "__main__":
    measure(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
