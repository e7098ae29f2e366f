"""Questions in files: one per line, with TREC's labels, or the tables of WikiTableQuestions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import FileError
from ._answers import TYPES, answer_type

__all__ = ["TREC", "Asked", "read"]

TREC = ("description", "entity", "abbreviation", "person", "location", "number")
"""The classes of TREC-6, in the order of the numbers that stand for them."""

_FINE = {"DESC": "description", "ENTY": "entity", "ABBR": "abbreviation", "HUM": "person", "LOC": "location", "NUM": "number"}
_LABELLED = re.compile(r"(?:([0-5])|(DESC|ENTY|ABBR|HUM|LOC|NUM):\w+) (.*)")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f]")  # not those of files of old: end of file, escape


@dataclass(frozen=True)
class Asked:
    """Questions, and the class of each where the file tells."""

    questions: tuple[str, ...]
    labels: tuple[str, ...] | None

    def labels_for(self, classes: Sequence[str]) -> tuple[str, ...] | None:
        """The labels, if they are of these classes ("mixed", which no network learns, is let through)."""
        return self.labels if self.labels is not None and set(self.labels) <= {*classes, "mixed"} else None


def read(path: Path) -> Asked:
    """Read a file of questions.

    Args:
        path: a table with a column ``utterance``, separated by tabs, whose ``targetValue`` tells the class; or one question per
            line, each with TREC's label before it or none.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror or error}); expected a file with one question per line."
        ) from None
    return parsed(decoded(raw, str(path)), str(path))


def decoded(raw: bytes, name: str) -> str:
    """Bytes as text: UTF-8, or else Latin-1, in which TREC is written; what has control characters is no text."""
    if _CONTROLS.search(raw):
        raise FileError(f"{name} is no text; expected one question per line. Save it as text, in UTF-8.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parsed(text: str, name: str) -> Asked:
    """Questions from the text of a file; see :func:`read`."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if lines and "utterance" in lines[0].split("\t"):
        return _table(lines, name)
    labelled = [_LABELLED.fullmatch(line) for line in lines]
    if lines and all(labelled):
        rows = [match.groups() for match in labelled if match is not None]
        labels = tuple(_FINE[fine] if fine else TREC[int(coarse)] for coarse, fine, _ in rows)
        return Asked(tuple(question for _, _, question in rows), labels)
    if not lines:
        raise FileError(f"{name} holds no question; expected one per line.")
    return Asked(tuple(line.strip() for line in lines), None)


def _table(lines: Sequence[str], name: str) -> Asked:
    head = lines[0].split("\t")
    rows = [line.split("\t") for line in lines[1:]]
    bad = next((i for i, row in enumerate(rows) if len(row) != len(head)), None)
    if bad is not None:
        raise FileError(f"{name}: line {bad + 2} has {len(rows[bad])} columns; expected {len(head)}, as the heading has.")
    if not rows:
        raise FileError(f"{name} holds a heading but no question.")
    questions = tuple(row[head.index("utterance")] for row in rows)
    if "targetValue" not in head:
        return Asked(questions, None)
    labels = tuple(answer_type(row[head.index("targetValue")]) for row in rows)
    assert set(labels) <= {*TYPES, "mixed"}
    return Asked(questions, labels)
