"""The table: seconds to a measured per-feature error, on one input and on a batch of 16, beside every peer.

python -m benchmarks.speed                                          # all cases that this machine can build
python -m benchmarks.speed --cases googlenet bert --batch 1 16      # some of them
python -m benchmarks.speed --device cuda --minutes 8                # each case gets its share; the next run goes on from there
python -m benchmarks.speed --again integrand                        # measure it anew, keep what the peers took
python -m benchmarks.speed --again --same-steps                     # measure all anew, with the steps that were found before
python -m benchmarks.speed --write-inputs FOLDER                    # for one without scikit-image and RDKit: --inputs FOLDER
python -m benchmarks.speed --replot out/speed/speed.json            # table, summary and pictures once more
python -m benchmarks.speed --tiny                                   # a look at whether it works; no figures

Every competitor with fixed steps gets the fewest steps that reach the error, which its user would have to find by trial, and
its best number of rows at a time. Errors are relative L1 against Gauss-Legendre with many nodes, by hand.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from . import inputs, measure, reference
from .cases import CASES
from .contest import Contest, Settings
from .inputs import Sources
from .peers import NAMED
from .plot import draw
from .store import Results
from .table import summary, table

DEFAULTS = {
    "cuda": {"nodes": 65536, "reference_seconds": 6.0, "limit": 4.0, "patience": 1.5},
    "cpu": {"nodes": 65536, "reference_seconds": 300.0, "limit": 200.0, "patience": 60.0},
}
TINY = {"nodes": 8, "reference_seconds": 10.0, "limit": 1.0, "patience": 1.0, "rounds": 1, "tolerances": [0.2], "batch": [1]}
LEFT_OUT = {"cuda": "efficientnet", "cpu": "resnet50"}
"""One of the two stands for the other there."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(CASES))
    parser.add_argument("--peers", nargs="*", default=list(NAMED), choices=list(NAMED), help="whom to compare with")
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--tolerances", nargs="*", type=float, default=[0.05, 0.01, 0.001])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--inputs", type=Path, help="a folder that --write-inputs wrote")
    parser.add_argument("--write-inputs", type=Path, metavar="FOLDER", help="write photos, molecule and sentence, and stop")
    parser.add_argument("--nodes", type=int, help="of the reference at most")
    parser.add_argument("--reference-seconds", type=float, help="for the last doubling of the reference's nodes")
    parser.add_argument("--checked", type=int, default=1, help="examples of a batch whose error is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, help="seconds in which a peer's steps are looked for, per case and precision")
    parser.add_argument(
        "--patience", type=float, help="seconds of a peer's run; longer ones are timed with fewer steps and scaled"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for everything")
    parser.add_argument("--no-memory", action="store_true", help="on a CPU: no processes that measure peak memory")
    parser.add_argument("--again", nargs="*", metavar="WHO", help="measure anew, all or those named")
    parser.add_argument("--same-steps", action="store_true", help="with --again: keep the steps that peers were found to need")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="out/speed, or out/speed-tiny, unless given")
    parser.add_argument("--replot", type=Path, metavar="JSON", help="draw from this file, and stop")
    parser.add_argument("--tiny", action="store_true", help="few steps and rounds")
    options = parser.parse_args()
    kind = torch.device(options.device).type
    for name, value in (TINY if options.tiny else DEFAULTS[kind]).items():
        if options.tiny or getattr(options, name) is None:
            setattr(options, name, value)
    options.out = options.out or Path("out/speed-tiny" if options.tiny else "out/speed")
    options.cases = options.cases or [key for key in CASES if key != LEFT_OUT[kind]]
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    return Settings(
        options.device,
        Sources(options.data, options.inputs),
        options.out,
        tuple(options.tolerances),
        tuple(options.batch),
        tuple(options.peers),
        options.nodes,
        options.reference_seconds,
        options.checked,
        options.rounds,
        options.limit,
        options.patience,
        memory=not (options.no_memory or options.tiny),
        usual=not options.tiny,
    )


def header(settings: Settings, threads: int) -> dict[str, Any]:
    device = torch.device(settings.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"machine": name, "torch": torch.__version__, "threads": threads}


def hold(key: str, settings: Settings, results: Results, deadline: float) -> None:
    """One case, from building it to the last competitor."""
    start = time.perf_counter()
    try:
        case = CASES[key](max(settings.batches), settings.sources)
    except ImportError as error:
        print(f"{key}: not here: {error}", flush=True)
        return
    found = reference.remembered(
        settings.out / "references" / f"{key}.npz",
        case.rows(settings.checked),
        device=settings.device,
        wanted=0.1 * min(settings.tolerances),
        most=settings.nodes,
        seconds=settings.reference_seconds,
        chunk=64 if settings.device.startswith("cuda") else 8,
    )
    took = time.perf_counter() - start
    print(f"{key}: reference of {found.nodes} nodes in {found.precision}, doubt {found.doubt:.1e}; {took:.1f} s", flush=True)
    contest = Contest(key, case.to(settings.device), found, settings, results)
    if not contest.hold(deadline, lambda line: print(line, flush=True)):
        print(f"{key}: no time for the rest; the next run goes on from here", flush=True)


def tell(content: dict[str, Any], out: Path) -> None:
    """Table, summary and pictures."""
    text = f"{table(content['rows'])}\n\n{summary(content['rows'], content['rates'])}\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "speed.md").write_text(text)
    print(text)
    try:
        print(*draw(content["rows"], out), sep="\n")
    except ImportError as error:
        print(f"no pictures: {error}")


def main() -> None:
    options = parsed()
    warnings.simplefilter("ignore")
    if options.write_inputs:
        print(*inputs.write(options.write_inputs), sep="\n")
        return
    if options.replot:
        tell(json.loads(options.replot.read_text()), options.replot.parent)
        return
    torch.set_num_threads(options.threads)
    settings = settings_of(options)
    results = Results(options.out / "speed.json", header(settings, options.threads))
    if options.again is not None:
        who = options.again or ["integrand", *options.peers]
        results.forget(options.cases, options.batch, options.tolerances, who, steps=not options.same_steps)
    results.content["settings"] = {name: value for name, value in asdict(settings).items() if name not in ("sources", "out")}
    start = time.perf_counter()
    for at, key in enumerate(options.cases):
        left = 60 * options.minutes - (time.perf_counter() - start)
        try:
            hold(key, settings, results, time.perf_counter() + left / (len(options.cases) - at))
        except Exception:  # of one network; the others go on
            print(f"{key}: failed\n{traceback.format_exc()}", flush=True)
        measure.release(torch.device(settings.device))
    results.save()
    print(f"{time.perf_counter() - start:.0f} s\n")
    tell(results.content, options.out)
    print(f"JSON: {results.file}")


if __name__ == "__main__":
    main()
