"""A Ray cluster of two small machines for tests, in a process of its own that ends, with all of it, when its input does.

``with cluster() as address:`` gives its address. A machine that is lost is replaced, as a real cluster does it.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STORE = 100 << 20
"""Bytes of each machine's object store."""


def environment() -> dict[str, str]:
    """What drivers and machines run with: one thread, this clone, no messages to anybody."""
    paths = [str(ROOT), str(ROOT / "src"), str(ROOT / "distributions" / "integrand-models" / "src")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "COV_", "PYTEST"))}
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def cluster(machines: int = 2, folder: str = "") -> Iterator[str]:
    """A cluster with a head that has no CPU, and some machines with one each; its files go into a folder with a short path."""
    folder = folder or tempfile.mkdtemp(prefix="ig-ray-", dir="/tmp")  # sockets have names of at most 107 bytes
    (Path(folder) / "ray").mkdir(exist_ok=True)  # where Ray's Cluster notes its address, in a folder that it does not make
    command = [sys.executable, "-W", "ignore", "-m", "tests.batch.ray_cluster", folder, str(machines)]
    known = environment() | {"RAY_TMPDIR": folder}
    process = subprocess.Popen(command, cwd=ROOT, env=known, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = next((line.split()[1] for line in process.stdout if line.startswith("address ")), "")
        assert address, "the cluster did not start"
        yield address
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Hold the cluster until standard input ends."""
    from ray.cluster_utils import Cluster

    soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    how = {"object_store_memory": STORE, "include_dashboard": False}
    found = Cluster(
        initialize_head=True,
        head_node_args=how
        | {"num_cpus": 0, "temp_dir": sys.argv[1], "_system_config": soon | {"health_check_timeout_ms": 1000}},
    )
    try:
        nodes = [found.add_node(num_cpus=1, **how) for _ in range(int(sys.argv[2]))]
        print("address", found.address, flush=True)
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            for node in [one for one in nodes if not one.remaining_processes_alive()]:
                nodes.remove(node)
                nodes.append(found.add_node(num_cpus=1, **how))
    finally:
        found.shutdown()


if __name__ == "__main__":
    main()
