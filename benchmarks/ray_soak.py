"""A Ray cluster whose actors, machines and drivers are killed at random, again and again: the table stays that of one machine.

    python -m benchmarks.ray_soak --seconds 600 --seed 1

Each round begins a new table, kills at random moments (an actor, a machine that is replaced, a driver that is started again)
until the run ends, and compares the table with that of one machine, bit for bit. Ends with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from integrand import explain_many
from integrand.batch import ExplainedTable
from tests.batch import ray_inputs
from tests.batch.ray_cluster import ROOT, cluster, environment

JOB = """
source: {source}
key: id
carry: [label]
explain: {{function: "benchmarks.ray_soak:make"}}
out: {out}
ray: {{actors: {actors}}}
"""


class SlowNumbers(ray_inputs.Numbers):
    """As in the tests, a little slower: there has to be time for kills."""

    def __call__(self, rows: list[dict[str, object]]) -> list[object]:
        time.sleep(0.03)
        return super().__call__(rows)


def make() -> SlowNumbers:
    return SlowNumbers()


def machines(folder: str) -> dict[int, bool]:
    """The raylets of the cluster in a folder by their process numbers, and whether each is that of the head."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        words = told(place / "cmdline").split(b"\0")
        socket = next((word for word in words if word.startswith(b"--raylet_socket_name=")), b"")
        if folder.encode() in socket:
            found[int(place.name)] = socket.endswith(b"/raylet")
    return found


def actors(folder: str) -> list[int]:
    """The processes of the cluster in a folder that explain inputs."""
    places = [place for place in Path("/proc").glob("[0-9]*") if told(place / "cmdline").startswith(b"ray::MapWorker")]
    parents = {place: told(place / "stat").rpartition(b")")[2].split()[1:2] for place in places}
    mine = {str(pid).encode() for pid in machines(folder)}
    return [int(place.name) for place, parent in parents.items() if parent and parent[0] in mine]


def told(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def kill(deed: str, draws: random.Random, folder: str) -> bool:
    """Kill an actor or a machine of the cluster in a folder, never the head; whether there was somebody."""
    everybody = actors(folder) if deed == "actor" else [pid for pid, head in machines(folder).items() if not head]
    if not everybody:
        return False
    try:
        os.kill(draws.choice(sorted(everybody)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def one_round(address: str, folder: str, source: Path, out: Path, actors: int, draws: random.Random) -> Counter[str]:
    """One table, with somebody killed every few seconds; how often whom."""
    job = out.with_suffix(".yaml")
    job.write_text(JOB.format(source=source, out=out, actors=actors), encoding="utf-8")
    words = [sys.executable, "-m", "integrand.cli", "run", str(job), "--trust", "--ray", address]
    done: Counter[str] = Counter()
    while True:
        driver = subprocess.Popen(
            words, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while True:
            try:
                _, notes = driver.communicate(timeout=draws.uniform(2, 20))
                break
            except subprocess.TimeoutExpired:
                deed = draws.choice(["actor", "actor", "machine", "driver"])
                if deed == "driver":
                    driver.kill()
                    driver.communicate()
                    done[deed] += 1
                    break
                done[deed] += kill(deed, draws, folder)
        if driver.returncode == 1:  # two inputs are bad
            return done
        if driver.returncode != -signal.SIGKILL:
            raise SystemExit(f"the driver ended with {driver.returncode}: {notes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--inputs", type=int, default=1200)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draws = random.Random(asked.seed)
    place = Path(tempfile.mkdtemp(prefix="ig-soak-"))
    try:
        source = place / "numbers.jsonl"
        ray_inputs.write(source, ray_inputs.rows(asked.inputs))
        wanted = explain_many(source, make(), place / "local", key="id", carry=["label"]).table
        begun, total, rounds = time.monotonic(), Counter[str](), 0
        folder = tempfile.mkdtemp(prefix="ig-ray-", dir="/tmp")
        with cluster(asked.actors, folder) as address:
            while time.monotonic() - begun < asked.seconds:
                out = place / f"round{rounds}"
                total += one_round(address, folder, source, out, asked.actors, draws)
                found = ExplainedTable.open(out)
                if found.manifest != wanted.manifest or not found.arrow().equals(wanted.arrow(), check_metadata=True):
                    raise SystemExit(f"round {rounds}: the table in {out} is not that of one machine ({wanted.folder})")
                shutil.rmtree(out)
                rounds += 1
                print(f"{rounds} tables of {len(wanted)} rows, all as on one machine; killed: {dict(total)}", flush=True)
    except BaseException:
        print(f"tables are in {place}", file=sys.stderr)
        raise
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
