"""Do attributions find the atoms that made a label? Functions of molecules whose atoms' contributions are known.

    python -m benchmarks.molecule_truth --data molecules --packed out/packed            # everything; --device cuda --jobs 8
    python -m benchmarks.molecule_truth --packed out/packed --quick                     # few molecules: no figures to quote
    python -m benchmarks.molecule_truth --data molecules --packed out/packed --pack     # only write the packed files
    python -m benchmarks.molecule_truth --table out/bench/molecule_truth.jsonl          # the table of what is there
    python -m benchmarks.molecule_truth --packed out/packed --part valid --tasks crippen --set neutral=0   # other settings

The folder of ``--data`` holds ``pcba_588342.csv.gz``. From its molecules each function gets its own 10,000 to train on, 500 to
choose the epoch and 2,000 to test; drawn at random, not by scaffold, for what is asked is whether a network that knows the
function can be explained. Half of them are true where there are enough, and the combinations of patterns within a class are
drawn equally often. They are packed into a file per function, after which a run needs no RDKit.

Two kinds of networks learn each function, with three seeds: a small Weave network (two modules, pairs up to two bonds apart),
and a plain message-passing network (three rounds, bonds, sum over atoms). The output is explained (a logit, or logP) against
features of zero. An atom gets what its features get and half of what each of its pairs or bonds gets; ``atoms alone`` leaves
these out.

Crippen's logP is a sum of terms of atoms: Kendall's tau-b between them and the map, a mean over molecules. For labels, the
AUROC of the atoms of matches among all atoms of a molecule with a true label, a mean over molecules: of ``all matches``, where
a map that knows nothing gets 0.5, and of the ``best`` of all sets of matches that make the label true, which is how the
published figures were made (Sanchez-Lengeling et al., NeurIPS 2020; ``published.py``) and where such a map gets more.

Each cell (function, network, seed) is a process of its own and becomes a line of ``--out`` as soon as it is done; the same
command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .cells import SETTINGS, facts, measure, table
from .labels import PUBLISHED_TASKS, TASKS, read
from .packed import Sizes, load, pack

QUICK = Sizes(pool=20_000, train=600, valid=60, test=40)
QUICK_SETTINGS: dict[str, dict[str, Any]] = {
    "weave": {"hidden": 16, "depth": 16, "dense": (32,), "epochs": 10, "batch": 32},
    "message passing": {"hidden": 32, "dense": (32,), "epochs": 10, "batch": 32},
}


def main() -> None:
    options = arguments()
    if options.table:
        return show(lines(options.table))
    sizes = QUICK if options.quick else Sizes()
    if options.data:
        missing = [key for key in options.tasks if not file_of(options.packed, key).exists()]
        mols = read(options.data, sizes.pool) if missing else []
        for key in missing:
            pack(TASKS[key], mols, sizes, file_of(options.packed, key))
            print(f"{file_of(options.packed, key)}: {file_of(options.packed, key).stat().st_size / 1e6:.1f} MB", flush=True)
    if options.pack:
        return None
    if options.cell:
        return one_cell(options, sizes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.out.exists() and not options.out.read_text().endswith("\n"):  # a kill in the middle of a line
        with options.out.open("a") as file:
            file.write("\n")
    done = {name_of(cell) for cell in lines(options.out)}
    seeds = range(1 if options.quick else options.seeds)
    wanted = [f"{key}/{network}/{seed}" for seed in seeds for key in options.tasks for network in options.networks]
    run([name for name in wanted if name not in done], options.jobs)
    return show([cell for cell in lines(options.out) if name_of(cell) in wanted])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with pcba_588342.csv.gz; not needed if the files are packed")
    parser.add_argument("--packed", type=Path, default=Path("out/bench/packed"), help="the folder of the packed files")
    parser.add_argument("--pack", action="store_true", help="write the packed files, and do nothing else")
    parser.add_argument("--quick", action="store_true", help="few molecules and one seed, to see that it works")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=PUBLISHED_TASKS)
    parser.add_argument("--networks", nargs="+", choices=tuple(SETTINGS), default=tuple(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--part", choices=("valid", "test"), default="test", help="which molecules to score on")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other settings of the training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/bench/molecule_truth.jsonl"), help="a line for each cell")
    parser.add_argument("--table", type=Path, help="print the table of such a file, and do nothing else")
    parser.add_argument("--cell", help=argparse.SUPPRESS)  # function/network/seed: what a process of --jobs does
    return parser.parse_args()


def file_of(folder: Path, key: str) -> Path:
    """Where a function's molecules are."""
    return folder / f"{key}.npz"


def name_of(cell: dict[str, Any]) -> str:
    """Function, network and seed."""
    return f"{cell['task']}/{cell['network']}/{cell['seed']}"


def lines(path: Path) -> list[dict[str, Any]]:
    """The finished cells; a line that was cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def one_cell(options: argparse.Namespace, sizes: Sizes) -> None:
    """Measure, and append a line."""
    import torch

    torch.set_num_threads(1)
    key, network, seed = options.cell.split("/")
    settings = {name: ast.literal_eval(value) for name, _, value in (given.partition("=") for given in options.set)}
    if options.quick:
        settings = QUICK_SETTINGS[network] | settings
    parts = load(TASKS[key], file_of(options.packed, key), sizes)
    cell = measure(key, parts, int(seed), network, part=options.part, device=options.device, **settings)
    with options.out.open("a") as file:
        file.write(json.dumps(cell) + "\n")


def run(names: list[str], jobs: int) -> None:
    """Each cell in a process of its own, so many at a time; a cell that fails does not end the others."""
    waiting, running, failed = list(names), dict[str, subprocess.Popen[bytes]](), []
    start = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            running[name] = subprocess.Popen([sys.executable, "-m", __package__, *sys.argv[1:], "--cell", name])
        time.sleep(0.2)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            code = running.pop(name).returncode
            failed += [name] if code else []
            said = f"failed with {code}" if code else "done"
            print(f"{time.perf_counter() - start:.0f} s: {name} {said}", file=sys.stderr, flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}; the same command tries them again", file=sys.stderr)


def show(cells: list[dict[str, Any]]) -> None:
    if cells:
        print(f"{table(cells)}\n\nMeans over molecules; ± is the standard deviation over seeds of the networks' weights.")
        print(facts(cells))
    else:
        print("no finished cells")


if __name__ == "__main__":
    main()
