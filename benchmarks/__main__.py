"""Run the benchmarks, print the tables, write them as JSON and the error against evaluations as a plot.

python -m benchmarks --out out/bench                 # everything, about 25 minutes on two cores
python -m benchmarks --only small memory             # some of it
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

from . import accuracy, heldout, memory, photos, small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for bench.json and the plot")
    parser.add_argument("--only", nargs="*", choices=["small", "memory", "accuracy", "photos", "heldout"], help="parts to run")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads, the same for everybody")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bench.json"
    found = json.loads(path.read_text()) if path.exists() and options.only else {}
    found["machine"] = {"python": platform.python_version(), "torch": torch.__version__, "threads": options.threads}
    parts = {"small": small.run, "memory": memory.run, "accuracy": accuracy.run, "photos": photos.run, "heldout": heldout.run}
    for name in options.only or parts:
        print(f"\n## {name}", flush=True)
        found[name] = parts[name]()
        path.write_text(json.dumps(found, indent=1))
    if "accuracy" in found:
        print(f"\nplot: {accuracy.plot(found['accuracy'], options.out / 'error.png')}")
    print(f"JSON: {path}")


if __name__ == "__main__":
    main()
