"""What kind of answer a question has, told from the answer itself.

WikiTableQuestions comes with the answers of its training questions but not with their types. The official files of the
test questions do name types: number, date, string, and mixed for lists of several kinds. :func:`answer_type` derives finer
ones from the answer; :data:`OFFICIAL` maps them back.
"""

from __future__ import annotations

import re

__all__ = ["OFFICIAL", "TYPES", "answer_type"]

TYPES = ("number", "year", "date", "yes-no", "text")
"""The classes that the answers support. Lists of several kinds ("Brazil|43") are "mixed", too few to learn."""

OFFICIAL = {"number": "number", "year": "number", "date": "date", "yes-no": "string", "text": "string", "mixed": "mixed"}
"""Officially a year is a number, and yes or no is a string."""

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
"""A number, an ordinal or one with a unit; a unit is a word in small letters: "17 years" but not "2012 Olympics"."""


def answer_type(answer: str) -> str:
    """One of :data:`TYPES`, or "mixed".

    >>> [answer_type(text) for text in ("4,541", "2004", "June 18", "Yes", "17 years", "Bangkok, Thailand", "Brazil|43")]
    ['number', 'year', 'date', 'yes-no', 'number', 'text', 'mixed']
    """
    parts = [_part(part.strip()) for part in answer.split("|")]
    if len(set(parts)) == 1:
        return parts[0]
    # A list is what all of it can be called: "1999|12" are numbers.
    official = {OFFICIAL[part] for part in parts}
    return {"number": "number", "string": "text"}[official.pop()] if len(official) == 1 else "mixed"


def _part(text: str) -> str:
    if text.lower() in {"yes", "no", "true", "false"}:
        return "yes-no"
    for kind, pattern in (("year", _YEARS), ("date", _DATE), ("number", _NUMBER)):
        if pattern.fullmatch(text):
            return kind
    return "text"
