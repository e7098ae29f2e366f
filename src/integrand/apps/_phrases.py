"""Phrases of adjacent strong words: what they trigger, how often they come, and which of them say the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._rule_sets import Rule

if TYPE_CHECKING:
    from ._question_words import WordAttribution

Phrase = tuple[str, ...]

OPENS = ""
"""Stands before a phrase for the questions that open with it; no word is empty."""


@dataclass
class Trigger:
    """What is gathered for a phrase and a class."""

    rows: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    opens: list[bool] = field(default_factory=list)
    capitals: list[bool] = field(default_factory=list)

    def add(self, row: int, value: float, *, opens: bool, capital: bool) -> None:
        """Count a question, once, with the place where the phrase adds most."""
        if self.rows and self.rows[-1] == row:
            self.values[-1] = max(self.values[-1], value)
            return
        self.rows.append(row)
        self.values.append(value)
        self.opens.append(opens)
        self.capitals.append(capital)

    def opening(self) -> Trigger:
        """Only where it opens the question."""
        at = [i for i, opens in enumerate(self.opens) if opens]
        rows, values, capitals = [self.rows[i] for i in at], [self.values[i] for i in at], [self.capitals[i] for i in at]
        return Trigger(rows, values, [True] * len(at), capitals)


def triggers(found: Sequence[WordAttribution], *, longest: int, strong: float) -> dict[tuple[Phrase, str], Trigger]:
    """The phrases of adjacent strong words, with the class that they trigger."""
    out: dict[tuple[Phrase, str], Trigger] = defaultdict(Trigger)
    for row, one in enumerate(found):
        floor = strong * sum(value for value in one.values if value > 0)
        words = [word.lower() for word in one.words]
        is_strong = [v > 0 and v >= floor and _wordlike(w) for v, w in zip(one.values, words, strict=True)]
        for start in range(len(words)):
            for end in range(start + 1, min(start + longest, len(words)) + 1):
                if not is_strong[end - 1]:
                    break
                capital = any(word[:1].isupper() and word != "I" for word in one.words[max(start, 1) : end])
                value = sum(one.values[start:end])
                out[tuple(words[start:end]), one.label].add(row, value, opens=start == 0, capital=capital)
    return dict(out)


def _wordlike(word: str) -> bool:
    return any(sign.isalnum() for sign in word)


def counts(
    found: Sequence[WordAttribution], truth: Sequence[str], wanted: set[Phrase], *, longest: int
) -> dict[Phrase, dict[str, int]]:
    """How many questions of each class hold each of the phrases; with OPENS before it, how many open with it."""
    out: dict[Phrase, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one, label in zip(found, truth, strict=True):
        words = [word.lower() for word in one.words]
        held = {tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)}
        for phrase in held & wanted:
            out[phrase][label] += 1
            if words[: len(phrase)] == list(phrase):
                out[OPENS, *phrase][label] += 1
    return out


def pruned(rows: Sequence[Rule]) -> list[Rule]:
    """Without phrases that another one says: a longer one as often, or a shorter one as strongly."""
    by_label: dict[str, dict[str, Rule]] = defaultdict(dict)
    for rule in rows:
        by_label[rule.label][rule.phrase] = rule
    gone: set[tuple[str, str]] = set()
    for label, known in by_label.items():
        for rule in known.values():
            for part in _parts(rule.phrase):
                shorter = known.get(part)
                if shorter is None:
                    continue
                if rule.support >= 0.8 * shorter.support:
                    gone.add((label, part))
        for rule in sorted(known.values(), key=lambda r: len(r.phrase)):
            left = [known[p] for p in _parts(rule.phrase) if p in known and (label, p) not in gone]
            if any(_says(shorter, rule) for shorter in left):
                gone.add((label, rule.phrase))
    return [rule for rule in rows if (rule.label, rule.phrase) not in gone]


def _says(shorter: Rule, rule: Rule) -> bool:
    """Whether the shorter phrase says nearly as much and as surely."""
    same = shorter.kind == rule.kind or rule.kind == "suspicious"
    return same and shorter.attribution >= 0.6 * rule.attribution and shorter.precision >= rule.precision - 0.1


def _parts(phrase: str) -> list[str]:
    words = phrase.split(" ")
    pairs = ((i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
    return [" ".join(words[i:j]) for i, j in pairs if j - i < len(words)]


def ordered(rows: Sequence[Rule], classes: Sequence[str], most: int, least: int) -> tuple[Rule, ...]:
    """By class and kind, at most so many of each: those with support first, by what they add in all."""
    out: list[Rule] = []
    for label in classes:
        for kind in ("usual", "new", "suspicious"):
            of = [rule for rule in rows if rule.label == label and rule.kind == kind]
            out += sorted(of, key=lambda r: (r.support >= least, r.attribution * r.support), reverse=True)[:most]
    return tuple(out)
