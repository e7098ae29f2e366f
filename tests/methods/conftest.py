"""Fixtures of the tests of methods."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def shap() -> ModuleType:
    """The package shap, imported by those tests alone that compare with it, since that takes seconds.

    Not compiled by numba, which takes seconds more, for what then runs in milliseconds.
    """
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # of matplotlib, about shap's colours
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        return pytest.importorskip("shap")
