"""Reads questions from files: one per line, with TREC's labels, or the tables of WikiTableQuestions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import FileError, InputError
from ...files import read_bytes
from ...words import shown

TREC = ("description", "entity", "abbreviation", "person", "location", "number")
"""The classes of TREC-6, in the order of the numbers that TREC's files use for them."""

BYTES = 1 << 28
"""The most bytes of a file of questions: millions of them."""

MAX_CELLS = 8_000_000
"""Lines and cells of a file of questions, each of which takes 60 bytes more than its letters."""

LONGEST = 10_000
"""The most characters of a question; one of as many takes two seconds."""

ANSWER = 200
"""An answer with more characters than this is a text: no number and no date is as long."""

ASKED = ("utterance", "question", "questions", "text", "sentence", "query")
"""Headings under which tables have their questions; the first is that of WikiTableQuestions."""

LABELLED = ("class", "label", "type", "category", "answer_type", "target")
"""Headings under which tables have the classes of their questions."""

_FINE = {"DESC": "description", "ENTY": "entity", "ABBR": "abbreviation", "HUM": "person", "LOC": "location", "NUM": "number"}
_LABELLED = re.compile(r"(?:([0-5])|(DESC|ENTY|ABBR|HUM|LOC|NUM):\w+) (.*)")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f]")  # not those of files of old: end of file, escape

TYPES = ("number", "year", "date", "yes-no", "text")
"""The answer types that are learnt. Lists of several types ("Brazil|43") are "mixed", too few to learn."""

OFFICIAL = {"number": "number", "year": "number", "date": "date", "yes-no": "string", "text": "string", "mixed": "mixed"}
"""The official type of each answer type: there, a year is a number, and yes or no is a string."""

_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
_MONTH += r"nov(?:ember)?|dec(?:ember)?)\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_WEEKDAY = r"(?:(?:mon|tues?|wednes|wed|thurs?|fri|satur|sat|sun)(?:day)?\.?,?\s+)?"
_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})"
_ANY_YEAR = r"\d{4}"

_DATE = re.compile(
    rf"{_WEEKDAY}(?:{_MONTH}(?:\s+{_DAY})?(?:\s*,?\s*{_ANY_YEAR})?|{_DAY}\s+{_MONTH}(?:\s*,?\s*{_ANY_YEAR})?"
    rf"|{_ANY_YEAR}[-/]\d{{1,2}}[-/]\d{{1,2}}|\d{{1,2}}[-/]\d{{1,2}}[-/](?:\d{{4}}|\d{{2}}))",
    re.IGNORECASE,
)
_YEARS = re.compile(_YEAR)
_NUMBER = re.compile(
    r"#?[-+−–]?\s*[$€£¥]?\s*(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))"  # 12, 4,541, .5, -$3.2, #4
    r"(?:\s?%|st|nd|rd|th|(?:\s(?:thousand|million|billion))?(?:\s[a-z]+|\s?(?:km|k?m|cm|mm|kg|g|ft|mi|mph|lbs?|[°º]?[CF]))?)"
)
"""Matches a number, an ordinal or a number with a unit; a unit is in small letters: "17 years" but not "2012 Olympics"."""


@dataclass(frozen=True)
class QuestionRecord:
    """The questions of a file, and their classes where the file gives them."""

    questions: tuple[str, ...]
    labels: tuple[str, ...] | None

    def labels_for(self, classes: Sequence[str]) -> tuple[str, ...] | None:
        """The labels if all of them are among these classes (or "mixed", which no network learns), else None."""
        return self.labels if self.labels is not None and set(self.labels) <= {*classes, "mixed"} else None


def read(path: Path) -> QuestionRecord:
    """Read a file of questions.

    Args:
        path: one question per line, each with TREC's label before it or none; or a table, separated by tabs, with a heading
            line that has ``question`` (or ``utterance``) over the questions and, if it likes, ``class`` over their classes, or
            ``targetValue`` over answers that tell them.
    """
    name = shown(str(path))
    return parsed(decoded(read_bytes(path, what="a file with one question per line", most=BYTES), name), name)


def decoded(raw: bytes, name: str) -> str:
    """Decode bytes as UTF-8, or else as Latin-1, in which TREC is written; bytes with control characters are refused."""
    if _CONTROLS.search(raw):
        raise FileError(f"{name} is no text; expected one question per line. Save it as text, in UTF-8.")
    if (count := raw.count(b"\n") + raw.count(b"\t")) > MAX_CELLS:
        raise FileError(f"{name} has {count:,} lines and cells; expected at most {MAX_CELLS:,}. Split it.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def check_length(text: str, name: str) -> None:
    """Refuse a question that is too long to be one."""
    if len(text) > LONGEST:
        raise InputError(
            f"{name} has {len(text):,} characters; expected a question of at most {LONGEST:,}. Is it one question per line?"
        )


def parsed(text: str, name: str) -> QuestionRecord:
    """Parse the text of a file into questions; see :func:`read`. Some may be too long to be explained, or empty."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    head = [part.strip().lower() for part in lines[0].split("\t")] if lines else []
    if any(part in ASKED for part in head) and (len(head) > 1 or len(lines) > 1):
        return _table(lines, name)
    if len(lines) > 1 and len(head) > 1 and all(line.count("\t") == len(head) - 1 for line in lines):
        raise FileError(
            f"{name} is a table of {len(head)} columns without a heading that says which holds the questions; expected one "
            f"question per line, or a first line with {ASKED[1]!r} over that column, and {LABELLED[0]!r} over that of classes."
        )
    labelled = [_LABELLED.fullmatch(line) for line in lines]
    if lines and all(labelled):
        rows = [match.groups() for match in labelled if match is not None]
        labels = tuple(_FINE[fine] if fine else TREC[int(coarse)] for coarse, fine, _ in rows)
        return QuestionRecord(tuple(question for _, _, question in rows), labels)
    if not lines:
        raise FileError(f"{name} holds no question; expected one per line.")
    return QuestionRecord(tuple(line.strip() for line in lines), None)


def answer_type(answer: str) -> str:
    """The type of an answer: one of :data:`TYPES`, or "mixed".

    >>> [answer_type(text) for text in ("4,541", "2004", "June 18", "Yes", "17 years", "Bangkok, Thailand", "Brazil|43")]
    ['number', 'year', 'date', 'yes-no', 'number', 'text', 'mixed']
    """
    parts = [_part(part.strip()) for part in answer.split("|")]
    if len(set(parts)) == 1:
        return parts[0]
    # A list is what all of it can be called: "1999|12" are numbers.
    official = {OFFICIAL[part] for part in parts}
    return {"number": "number", "string": "text"}[official.pop()] if len(official) == 1 else "mixed"


def _table(lines: Sequence[str], name: str) -> QuestionRecord:
    """The questions of a table with a heading; a single column with one, such as "question", is a table too."""
    head = [part.strip() for part in lines[0].split("\t")]
    rows = [line.split("\t") for line in lines[1:]]
    bad = next((i for i, row in enumerate(rows) if len(row) != len(head)), None)
    if bad is not None:
        raise FileError(f"{name}: line {bad + 2} has {len(rows[bad])} columns; expected {len(head)}, as the heading has.")
    if not rows:
        raise FileError(f"{name} holds a heading but no question.")
    lower = [part.lower() for part in head]
    asked = next(part for part in ASKED if part in lower)
    questions = tuple(row[lower.index(asked)] for row in rows)
    if "targetValue" in head:
        labels = tuple(answer_type(row[head.index("targetValue")]) for row in rows)
        assert set(labels) <= {*TYPES, "mixed"}
        return QuestionRecord(questions, labels)
    column = next((lower.index(part) for part in LABELLED if part in lower), None)
    return QuestionRecord(questions, None if column is None else tuple(row[column].strip() for row in rows))


def _part(text: str) -> str:
    if text.lower() in {"yes", "no", "true", "false"}:
        return "yes-no"
    if len(text) > ANSWER:
        return "text"
    for kind, pattern in (("year", _YEARS), ("date", _DATE), ("number", _NUMBER)):
        if pattern.fullmatch(text):
            return kind
    return "text"
