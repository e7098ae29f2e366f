"""The table: seconds to a measured per-feature error, on one input and on a batch of 16, beside every peer.

python -m benchmarks.speed                                          # all cases that this machine can build
python -m benchmarks.speed --cases googlenet bert --batch 1 16      # some of them
python -m benchmarks.speed --device cuda --data FOLDER --out out/speed
python -m benchmarks.speed --tiny                                   # a look at whether it works; no figures

Every competitor with fixed steps gets the fewest steps that reach the error, which its user would have to find by trial, and
its best number of rows at a time. Errors are relative L1 against Gauss-Legendre with many nodes in float64, by hand.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from pathlib import Path
from typing import Any

import torch

from . import measure
from .cases import CASES, Case, spread
from .peers import PEERS, integrand

NODES = {"cuda": 16384, "cpu": 2048}
"""Of the reference; on a CPU one hour is not spent on it."""


def row_of(case: Case, tol: float, expected: Any, options: argparse.Namespace) -> dict[str, Any]:
    """All competitors on one case at one tolerance."""
    device = case.x.device
    found: dict[str, Any] = {"case": case.name, "weights": case.weights, "batch": len(case.x), "tol": tol}
    runs: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    result = integrand(case, tol)
    one = result.certificate
    measured = spread(result.values[: len(expected)], expected)
    steps["integrand"] = {
        "gradients": sum(each.gradients for each in one),
        "forwards": sum(each.forwards for each in one),
        "measured": measured,
        "claimed": max(each.error for each in one),
        "rule": one[0].rule,
    }
    runs["integrand"] = lambda: integrand(case, tol)
    for peer in PEERS:
        if peer.name not in options.peers:
            continue
        try:
            reached = options.reached.setdefault((case.name, peer.name), {})
            if not reached:
                reached.update(measure.fewest(peer, case, expected, options.tolerances, options.limit))
            if tol not in reached:
                steps[peer.name] = {"failed": f"not within {peer.most} steps or {options.limit:.0f} s"}
                continue
            count, error = reached[tol]
            chunk = measure.best_chunk(peer, case, count)
        except Exception as error:  # a peer that cannot take the model is a finding, not a crash
            steps[peer.name] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}
            continue
        steps[peer.name] = {"gradients": count * len(case.x), "measured": error, "chunk": chunk}
        runs[peer.name] = lambda peer=peer, count=count, chunk=chunk: peer.run(case, count, chunk)
    costs = measure.timed(runs, device, options.rounds)
    for name, cost in costs.items():
        steps[name] |= {"seconds": cost.seconds, "peak": cost.peak}
    limit = steps["integrand"]["gradients"] * measure.operations(case) / options.rate
    return found | {"who": steps, "limit_seconds": limit}


def shown(row: dict[str, Any]) -> str:
    """A row as lines of a table; ratios are over integrand's."""
    mine = row["who"]["integrand"]
    lines = []
    for name, cost in row["who"].items():
        start = f"| {row['case']} ({row['weights']}) | {row['batch']} | {row['tol']:.1%} | {name} |"
        if "failed" in cost:
            lines.append(f"{start} | | | | | {cost['failed']} |")
            continue
        time, memory = cost["seconds"] / mine["seconds"], cost["peak"] / max(mine["peak"], 1.0)
        peak = f"{cost['peak'] / 1e6:.0f} MB ({memory:.2f}x)" if cost["peak"] == cost["peak"] else ""
        claimed = f"{cost['claimed']:.2%}" if "claimed" in cost else ""
        numbers = f" {cost['gradients']} | {cost['seconds'] * 1e3:.1f} ms ({time:.2f}x) | {peak} | {cost['measured']:.2%} |"
        lines.append(f"{start}{numbers} {claimed} |")
    lines.append(f"| | | | arithmetic limit | | {row['limit_seconds'] * 1e3:.1f} ms | | | |")
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--peers", nargs="*", default=[peer.name for peer in PEERS], help="whom to compare with")
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--tolerances", nargs="*", type=float, default=[0.05, 0.01, 0.001])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--nodes", type=int, help="of the reference")
    parser.add_argument("--checked", type=int, default=1, help="examples of a batch whose error is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one trial after which a peer gets no more steps")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    parser.add_argument("--tiny", action="store_true", help="few steps and rounds")
    options = parser.parse_args()
    if options.tiny:
        options.nodes, options.rounds, options.tolerances, options.batch = 256, 1, [0.05], [1]
    options.nodes = options.nodes or NODES[options.device.split(":")[0]]
    options.reached = {}
    return options


def main() -> None:
    options = parsed()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    options.rate = measure.rate(device)
    found: dict[str, Any] = {"machine": name, "torch": torch.__version__, "threads": options.threads, "rate": options.rate}
    print(
        f"{name}, torch {torch.__version__}, {options.threads} threads, {options.rate / 1e12:.2f} TFLOP/s in float32",
        flush=True,
    )
    heads = ("network", "batch", "error", "who", "gradients", "time", "peak memory", "measured", "claimed")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    rows: list[dict[str, Any]] = []
    for key in options.cases:
        for batch in options.batch:
            try:
                case = CASES[key](batch, options.data)
            except ImportError as error:
                print(f"| {key} | | | not here: {error} |", flush=True)
                break
            chunk = 256 if device.type == "cuda" else 8
            expected, doubt = measure.reference(case, options.device, options.nodes, chunk, min(options.checked, batch))
            case = case.to(options.device)
            for tol in options.tolerances:
                row = row_of(case, tol, expected, options) | {"reference": doubt}
                rows.append(row)
                print(shown(row), flush=True)
                (options.out / "speed.json").write_text(json.dumps(found | {"rows": rows}, indent=1))
    print(f"JSON: {options.out / 'speed.json'}")


if __name__ == "__main__":
    main()
