"""Answers of other libraries, each run in its own interpreter by :mod:`benchmarks.llm_truth.peers`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from tests.apps.text.smollm import smollm_folder

from . import peers
from .explainers import Explanation
from .prompts import Prompt


class Libraries:
    """Other libraries.

    Args:
        pythons: their interpreters by name; those that are not named are looked for in this one.
    """

    def __init__(self, pythons: Mapping[str, str]) -> None:
        self.pythons = pythons

    def answers(self, name: str, prompts: Sequence[Prompt]) -> list[Explanation]:
        """What a library says of prompts; nothing, with a line on stderr, where it does not run."""
        if not prompts:
            return []
        python = self.pythons.get(name.partition("-")[0], sys.executable)
        rows = peers.run(name, python, smollm_folder(), [(prompt.text, prompt.answer) for prompt in prompts])
        if isinstance(rows, str):
            print(f"{name} is left out: {rows}", file=sys.stderr)
            return []
        return [explanation_of(row) for row in rows]


def explanation_of(row: peers.Row) -> Explanation:
    """An answer as a library's process wrote it."""
    features = None if row["features"] is None else np.array(row["features"], dtype=float).ravel()
    return Explanation(np.array(row["tokens"], dtype=float), features, row["gradients"], row["seconds"])
