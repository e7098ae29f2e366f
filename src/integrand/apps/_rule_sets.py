"""A rule, and the rules of a classifier on a set of questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from .._files import write
from ..errors import OptionError
from ._rule_kinds import Kind


@dataclass(frozen=True)
class Rule:
    """A phrase that triggers a class.

    Attributes:
        phrase: words in small letters.
        label: the class.
        kind: ``usual``, ``new`` or ``suspicious``.
        why: the reason for the kind.
        support: questions in which its words are adjacent, each strong, and the network says the class.
        holding: questions that hold the phrase at all; for a phrase that opens the question, those that open with it.
        precision: the share of those whose class it is (by the labels, or where there are none by the network).
        right: the share of the questions that it triggers whose class it is: what the network makes of it in its context.
        attribution: the mean of what the phrase adds to the score, where it triggers.
        opens: whether the rule is about the first words of a question, and counted so: where at least nine of ten of its
            triggers are, and it would not be precise otherwise.
        examples: questions that it triggers, those where it adds most first.
    """

    phrase: str
    label: str
    kind: Kind
    why: str
    support: int
    holding: int
    precision: float
    right: float
    attribution: float
    opens: bool
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """The rules of a classifier on a set of questions.

    Attributes:
        rules: by class and kind, those with the most support first.
        classes: of the classifier.
        questions: how many there were.
        accuracy: the share on which labels and network agree; None without labels.
        converged: the share of questions whose attribution met the tolerance.
        error: the largest estimated error of one.
        settings: the criteria, by name.
    """

    rules: tuple[Rule, ...]
    classes: tuple[str, ...]
    questions: int
    accuracy: float | None
    converged: float
    error: float
    settings: Mapping[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def of(self, label: str | None = None, kind: Kind | None = None) -> tuple[Rule, ...]:
        """The rules of a class, of a kind, or both."""
        return tuple(r for r in self.rules if label in (None, r.label) and kind in (None, r.kind))

    def numbers(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        head = {"questions": self.questions, "accuracy": self.accuracy, "converged": self.converged, "error": self.error}
        return head | {"settings": dict(self.settings), "rules": [dict(vars(rule)) for rule in self.rules]}

    def page(self, *, title: str = "What triggers which class", command: str | None = None) -> str:
        """One self-contained HTML page."""
        from ._rules_page import page

        return page(self, title=title, command=command)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write by the ending of the path: ``.html``, ``.json`` or ``.txt``."""
        where = Path(path)
        if where.suffix.lower() == ".txt":
            where.write_text(f"{self}\n", encoding="utf-8")
            return where
        if where.suffix.lower() not in (".html", ".json"):
            raise OptionError(f"got the ending {where.suffix!r}; expected .html, .json or .txt")
        return write(where, options, picture=lambda **_: None, numbers=self.numbers, report=self.page)

    def __str__(self) -> str:
        from ._rules_page import table

        return table(self)

    def _repr_html_(self) -> str:
        from ._rules_page import tables

        return tables(self)
