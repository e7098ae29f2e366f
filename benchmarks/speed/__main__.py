"""The table: seconds to a measured per-feature error on real inputs, beside Captum and PAIR's saliency.

python -m benchmarks.speed                                           # all networks that this machine can build
python -m benchmarks.speed --cases googlenet minilm                  # some of them
python -m benchmarks.speed --device cuda --minutes 6                 # each gets its share; the next run goes on from there
python -m benchmarks.speed --write-inputs FOLDER --cases googlenet   # for a machine without packages: --inputs FOLDER
python -m benchmarks.speed --steps-from h200.json --inputs-per-row 4 # with the steps that a faster machine found
python -m benchmarks.speed --again                                   # time all again, with the steps that were found before
python -m benchmarks.speed --replot out/speed/speed.json             # table and pictures once more
python -m benchmarks.speed --replot a.json b.json --out FOLDER       # of several runs on one machine, as one
python -m benchmarks.speed --tiny                                    # a look at whether it works; no figures

References are kept in the folder ``references`` beside the JSON file, by network and input; copy it to another machine
together with the file for --steps-from.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from . import inputs, measure
from .contest import Contest, Settings
from .inputs import COUNT, Missing, Sources
from .networks import NEEDS, NETWORKS, RANDOM
from .peers import NAMED
from .plot import draw
from .reference import Effort
from .store import Results
from .table import told

DEFAULTS = {
    "cuda": {"reference_seconds": 30.0, "chunk": 128, "limit": 20.0, "patience": 0.2, "rounds": 2},
    "cpu": {"reference_seconds": 300.0, "chunk": 8, "limit": 200.0, "patience": 10.0, "rounds": 2},
}
TINY = {"nodes": 64, "reference_seconds": 10.0, "limit": 3.0, "patience": 0.2, "rounds": 1, "inputs_per_row": 2}
RANDOM_COUNT = 4
"""Inputs of networks with random weights, which are much alike."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--peers", nargs="*", default=list(NAMED), choices=list(NAMED), help="whom to compare with")
    parser.add_argument("--tolerances", nargs="*", type=float, default=[0.05, 0.01])
    parser.add_argument("--inputs-per-row", type=int, help=f"{COUNT}, or {RANDOM_COUNT} where weights are random, unless given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="weights, photos and questions")
    parser.add_argument("--speech", type=Path, help="a recording, 16 kHz; pysptk's unless given")
    parser.add_argument("--inputs", type=Path, help="a folder that --write-inputs wrote")
    parser.add_argument("--write-inputs", type=Path, metavar="FOLDER", help="write what --cases need, and stop")
    parser.add_argument(
        "--steps-from", nargs="+", type=Path, default=[], metavar="JSON", help="of another machine, whose steps are used"
    )
    parser.add_argument("--nodes", type=int, default=4096, help="of the reference")
    parser.add_argument("--reference-seconds", type=float, help="for one reference; fewer nodes where it would take longer")
    parser.add_argument("--chunk", type=int, help="rows at a time of the references and trials")
    parser.add_argument("--limit", type=float, help="seconds in which steps are looked for, per input and peer")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--patience", type=float, help="seconds of a peer's run; longer ones have fewer steps and are scaled")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for everything")
    parser.add_argument("--again", action="store_true", help="time all again; steps, errors and references stay")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="out/speed, or out/speed-tiny, unless given")
    parser.add_argument("--replot", nargs="+", type=Path, metavar="JSON", help="draw from these files, and stop")
    parser.add_argument("--tiny", action="store_true", help="two inputs, few nodes, one round")
    options = parser.parse_args()
    kind = torch.device(options.device).type
    for name, value in (DEFAULTS[kind] | (TINY if options.tiny else {})).items():
        if name in (TINY if options.tiny else ()) or getattr(options, name) is None:
            setattr(options, name, value)
    if options.replot and not options.out:
        options.out = options.replot[0].parent
    options.out = options.out or Path("out/speed-tiny" if options.tiny else "out/speed")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    effort = Effort(0.01 * min(options.tolerances), options.nodes, options.reference_seconds, options.chunk)
    sources = Sources(options.data, options.inputs, options.speech, options.out / "made")
    measured = {"limit": options.limit, "rounds": options.rounds, "patience": options.patience}
    return Settings(
        options.device, sources, options.out, tuple(options.tolerances), tuple(options.peers), effort=effort, **measured
    )


def header(settings: Settings, threads: int) -> dict[str, Any]:
    device = torch.device(settings.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"machine": name, "torch": torch.__version__, "threads": threads}


def hold(key: str, count: int, settings: Settings, results: Results, known: dict[str, Any], deadline: float) -> None:
    """One network, from building it to the last input."""
    try:
        cases = NETWORKS[key](count, settings.sources)
    except Missing as error:
        print(f"{key}: not here: {error}", flush=True)
        return
    print(f"{key}: {len(cases)} inputs", flush=True)
    contest = Contest(key, cases, settings, results, known)
    if not contest.hold(deadline, lambda line: print(line, flush=True)):
        print(f"{key}: no time for the rest; the next run goes on from here", flush=True)


def tell(content: dict[str, Any], out: Path) -> None:
    """Table and pictures."""
    text = told(content)
    out.mkdir(parents=True, exist_ok=True)
    (out / "speed.md").write_text(text)
    print(text)
    try:
        print(*draw(content["rows"], out), sep="\n")
    except ImportError as error:
        print(f"no pictures: {error}")


def merged(files: list[Path]) -> dict[str, Any]:
    """The rows of several runs, which must be of one machine; of a network that is in two, the later file's."""
    found: dict[str, Any] = {"rows": {}}
    for file in files:
        content = json.loads(file.read_text())
        other = {name for name in ("machine", "torch", "threads") if found.get(name, content.get(name)) != content.get(name)}
        if other:
            raise SystemExit(f"{file} is of another {', '.join(sorted(other))} than the files before it.")
        found = {**content, "rows": found["rows"] | content["rows"]}
    order = [*(key for key in NETWORKS if key in found["rows"]), *(key for key in found["rows"] if key not in NETWORKS)]
    return {**found, "rows": {key: found["rows"][key] for key in order}}


def run(options: argparse.Namespace) -> None:
    """Measure, as long as there is time, and tell."""
    torch.set_num_threads(options.threads)
    settings = settings_of(options)
    results = Results(options.out / "speed.json", header(settings, options.threads))
    if options.again:
        results.forget(options.cases)
    known = merged(options.steps_from)["rows"]
    start = time.perf_counter()
    for at, key in enumerate(options.cases):
        left = 60 * options.minutes - (time.perf_counter() - start)
        count = options.inputs_per_row or (RANDOM_COUNT if key in RANDOM else COUNT)
        try:
            hold(key, count, settings, results, known.get(key, {}), time.perf_counter() + left / (len(options.cases) - at))
        except Exception:  # of one network; the others go on
            print(f"{key}: failed\n{traceback.format_exc()}", flush=True)
        measure.release(torch.device(settings.device))
    results.save()
    print(f"{time.perf_counter() - start:.0f} s\n")
    tell(results.content, options.out)
    print(f"JSON: {results.file}")


def main() -> None:
    options = parsed()
    warnings.simplefilter("ignore")
    if options.write_inputs:
        files = [name for key in options.cases for name in NEEDS[key]]
        print(*inputs.write(options.write_inputs, files, settings_of(options).sources), sep="\n")
    elif options.replot:
        content = merged(options.replot)
        tell(content, options.out)
        if len(options.replot) > 1:
            (options.out / "speed.json").write_text(json.dumps(content, indent=1))
    else:
        if options.inputs:
            inputs.use_packages(options.inputs)
        run(options)


if __name__ == "__main__":
    main()
