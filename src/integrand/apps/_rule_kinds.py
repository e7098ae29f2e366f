"""Which rules are usual, new or suspicious, by criteria that can be read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["usual", "new", "suspicious"]

_ASKED = "many much long far old tall high big large often fast few deep wide heavy hot"
_AUXILIARIES = "did does do is are was were has have had can could will would"

USUAL: Mapping[str, tuple[str, ...]] = {
    "number": tuple(f"how {word}" for word in _ASKED.split()),
    "year": ("when", "year"),
    "date": ("when", "date", "day", "month"),
    "yes-no": tuple(_AUXILIARIES.split()),
    "text": ("who", "whom", "whose", "where", "which", "what", "why", "name"),
    "person": ("who", "whom", "whose"),
    "location": ("where", "country", "city", "state"),
    "description": ("why", "how do", "how does", "how did", "how can", "how is", "how are", "what does", "what is"),
    "entity": ("what", "which"),
    "abbreviation": ("stand for", "abbreviation", "acronym"),
}
"""What hand-written rules go by: the question word, the word after "how", the noun after "what" or "which" that names the
kind, and for yes or no the auxiliary verb that opens the question. A rule is usual if it holds one of these for its class."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a phrase and the class that it triggers.

    Attributes:
        phrase: its words, in small letters.
        label: the class.
        support: questions that it triggers.
        precision: the share of the questions holding it that are of the class.
        right: the share of the questions that it triggers that are of the class.
        mean: what it adds to the score on average.
        opens: whether it opens the question, nearly always.
        rarest: how often its rarest word came in training.
        named: whether it mostly has capitals inside a sentence.
    """

    phrase: tuple[str, ...]
    label: str
    support: int
    precision: float
    right: float
    mean: float
    opens: bool
    rarest: int
    named: bool

    @property
    def name(self) -> str:
        """What kind of name it is; '' for none."""
        digits = any(sign.isdigit() for word in self.phrase for sign in word)
        return "a number" if digits else "a name" if self.named else ""


SELDOM = 3
"""A word seen less often in training is taken for a name."""


def judge(evidence: Evidence, limits: Mapping[str, float]) -> tuple[Kind, str] | None:
    """The kind of a rule with the reason; None for what is neither supported nor striking.

    Args:
        evidence: what is known of the phrase.
        limits: the criteria; see :func:`integrand.apps.questions.rules`.
    """
    one = evidence
    usual, name = trigger(one.phrase, one.label, opens=one.opens), one.name
    if one.support >= limits["least"]:
        if one.precision < 0.5:
            return "suspicious", f"most questions that hold it, {1 - one.precision:.0%}, are not {one.label}"
        if one.right < limits["precise"]:
            return "suspicious", f"where the network goes by it, it is wrong in {1 - one.right:.0%}"
        if usual:
            return "usual", f"“{usual}”"
        if name:
            return "suspicious", name
        if one.precision < limits["precise"]:
            return "suspicious", f"only {one.precision:.0%} of the questions that hold it are {one.label}"
        return "new", "frequent and precise, without a usual question word"
    if one.mean < limits["striking"] or usual:
        return None
    if name or one.rarest < SELDOM:
        return "suspicious", name or f"rare, with {SEEN[one.rarest]}"
    if one.precision < limits["precise"]:
        return "suspicious", f"rare, and only {one.precision:.0%} of the questions that hold it are {one.label}"
    return None


SEEN = ("a word that never came in training", "a word that came once in training", "a word that came twice in training")
"""By how often it came, below :data:`SELDOM`."""


def trigger(phrase: Sequence[str], label: str, *, opens: bool) -> str:
    """The usual trigger that a phrase holds; '' for none.

    >>> trigger(["how", "many", "people"], "number", opens=True), trigger(["total", "number"], "number", opens=False)
    ('how many', '')
    """
    for usual in USUAL.get(label, ()):
        words = usual.split()
        at = [i for i in range(len(phrase) - len(words) + 1) if list(phrase[i : i + len(words)]) == words]
        if at and (label != "yes-no" or (opens and 0 in at)):
            return usual
    return ""
