"""Runs over many inputs that are killed, out of disk space, at the same time, or have their inputs and journals changed.

A few of each disturbance here; ``python -m benchmarks.faults`` has all of them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_whatever_happens_the_next_run_makes_the_output_of_an_undisturbed_one() -> None:
    command = [sys.executable, "-m", "benchmarks.faults", "--quick"]  # its own process: it forks
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
