"""What every test shares: one thread per process, and the data that is not shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

# Before any test: two processes of two threads each on two cores are slower than two of one.
torch.set_num_threads(1)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Public data for tests against real models, which is not shipped: a folder next to the clone."""


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """``data("googlenet/synset_words.txt")``: the path of shared data, or a skip that says what is missing."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"needs shared data: {name} is not in {DATA}")
        return path

    return find
