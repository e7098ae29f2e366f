"""Stored dense references, so that explanations can be judged again without the hours that they take."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .gauss_kronrod import Reference
from .language import LIKE, Question, reference
from .measures import relative_error

STORED = Path(__file__).with_name("references.npz")
FEW = 8
"""Panels to begin with between two prompts, where paths are smooth."""


class References:
    """A file of references by the names of their questions, in half precision; what that changes is added to their doubt.

    Args:
        file: read if it is there, and written after each new reference.
    """

    def __init__(self, file: Path = STORED) -> None:
        self.file = file
        self.arrays: dict[str, np.ndarray] = dict(np.load(file)) if file.is_file() else {}

    def of(self, questions: list[Question]) -> list[Reference]:
        """The references of some questions on one path."""
        if not all(question.name in self.arrays for question in questions):
            self.add(questions, reference(questions, **({"panels": FEW} if f"| {LIKE} |" in questions[0].name else {})))
        return [self.stored(question.name) for question in questions]

    def add(self, questions: list[Question], dense: Reference) -> None:
        """Store references."""
        for question, values, doubt in zip(questions, dense.values, dense.doubt, strict=True):
            scale = np.abs(values).max()
            self.arrays[question.name] = (values / scale).astype(np.float16)
            rounding = relative_error(self.arrays[question.name] * scale, values)
            self.arrays[f"{question.name} | facts"] = np.array([scale, doubt + rounding, dense.nodes])
        self.file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(self.file, **self.arrays)

    def stored(self, name: str) -> Reference:
        """A reference by name."""
        scale, doubt, nodes = self.arrays[f"{name} | facts"]
        return Reference(self.arrays[name].astype(np.float64)[None] * scale, np.array([doubt]), int(nodes))
