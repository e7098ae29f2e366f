"""Runs over many inputs that are killed, out of disk space, at the same time, or have their inputs and tables changed.

A few of each disturbance here; ``python -m benchmarks.faults`` has all of them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def disturbed(*options: str) -> str:
    """What the benchmark says, which runs in a process of its own, for it forks."""
    command = [sys.executable, "-m", "benchmarks.faults", "--quick", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 wrong" in done.stdout
    return done.stdout


@pytest.mark.slow
def test_whatever_happens_the_next_run_makes_the_output_of_an_undisturbed_one() -> None:
    disturbed()


@pytest.mark.slow
def test_commands_killed_at_random_moments_make_the_table_of_an_undisturbed_run() -> None:
    pytest.importorskip("skimage")
    pytest.importorskip("rdkit")
    said = disturbed("--only", "commands")
    kills = next(line for line in said.splitlines() if line.startswith("commands with their models: "))
    assert int(kills.split()[-2]) >= 30
