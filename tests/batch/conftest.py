"""What the tests of runs over many inputs share."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def hasty_disk() -> Iterator[None]:
    """Wait for no disk: that is slow, and no kill of a process can tell."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", int)
        yield
