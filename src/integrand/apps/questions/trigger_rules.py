"""The rules that a network has learnt: which words and phrases trigger which class, over a set of questions.

Section 6.3 of the paper reads such rules off attributions, to find those that hand-written systems had as well ("how many"),
new ones ("total number") and wrong ones (a name that triggers yes or no). Here they are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ...errors import InputError, OptionError
from ...files import write, write_text
from ...words import short_repr
from .result import asked_for

if TYPE_CHECKING:
    from .result import WordAttribution

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
"""The words that hand-written rules go by, for each class.

These are the question word, the word after "how", the noun after "what" or "which" that names the kind, and for yes or no the
auxiliary verb that opens the question. A rule is usual if it holds one of these for its class.
"""

SELDOM = 3
"""A word seen less often than this in training is taken for a name."""

SEEN = ("a word that never came in training", "a word that came once in training", "a word that came twice in training")
"""Descriptions of words seen fewer than :data:`SELDOM` times, by how often they were seen."""

Phrase = tuple[str, ...]

OPENS = ""
"""Put before a phrase, it stands for the questions that open with the phrase; no word is empty."""


class Explains(Protocol):
    """The interface :func:`rules` needs: :class:`integrand.apps.questions.Classifier`, or your own."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        ...

    def explain(self, texts: Sequence[str], *, tol: float, **options: Any) -> list[WordAttribution]:
        """Explain the class that the network gives to each text."""
        ...

    def times_seen(self, word: str) -> int:
        """How often a word was seen in training."""
        ...


def rules(
    classifier: Explains,
    questions: Sequence[str],
    labels: Sequence[str] | None = None,
    *,
    tol: float = 0.05,
    longest: int = 4,
    strong: float = 0.15,
    least: int = 5,
    precise: float = 0.75,
    striking: float = 0.25,
    most: int = 20,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> Rules:
    """Find which words and phrases trigger which class, and which of these rules are usual, new or suspicious.

    A word is strong in a question if it holds a share of at least ``strong`` of what speaks for the class there. A phrase,
    of up to ``longest`` adjacent strong words, triggers the class that the network gives to the question.

    - suspicious: most questions that hold it are of another class; or the network is right in less than a share of
      ``precise`` of those where it goes by it; or it is a name (digits, capitals inside a sentence); or it is not usual and
      its precision is below ``precise``. Below a support of ``least``: a name, a word seen less than three times in training
      or an imprecise phrase that adds ``striking`` or more to the score on average.
    - usual: it holds a question word that hand-written rules for the class go by, from a short list
      (:data:`~integrand.apps.questions.trigger_rules.USUAL`).
    - new: the rest, which has that support and precision.

    A phrase is left out where a longer one has nearly all of its support, or a shorter one says nearly as much.

    Args:
        classifier: what :func:`integrand.apps.questions.load` gives, or something like it.
        questions: texts.
        labels: the true class of each, for the precision; by default what the network says.
        tol: the relative error to integrate each attribution to.
        longest: words of a phrase.
        strong: the share of the positive attribution that makes a word strong.
        least: the support that a rule needs.
        precise: the precision that it needs.
        striking: the attribution at which something rare is worth a look.
        most: rules of each class and kind that are kept.
        progress: called with how many questions are done, and of how many.
        options: further ones of :meth:`Classifier.explain`.
    """
    if labels is not None and len(labels) != len(questions):
        raise InputError(f"got {len(labels)} labels for {len(questions)} questions; expected one for each.")
    found: list[WordAttribution] = []
    for i in range(0, len(questions), 1024):
        found += classifier.explain(questions[i : i + 1024], tol=tol, **options)
        if progress is not None:
            progress(len(found), len(questions))
    if not found:
        raise InputError("got no question; expected at least one.")
    apart = tuple(one.text for one in found if one.notes)
    if len(apart) == len(found):
        raise InputError(f"got no question that the network can read, such as {apart[0][:80]!r}. {found[0].notes[0]}")
    truth = [one.label for one in found] if labels is None else list(labels)
    truth = [label for label, one in zip(truth, found, strict=True) if not one.notes]
    found = [one for one in found if not one.notes]
    evidence = triggers(found, longest=longest, strong=strong)
    holding = counts(found, truth, {phrase for phrase, _ in evidence}, longest=longest)
    limits = {"strong": strong, "longest": longest, "least": least, "precise": precise, "striking": striking, "tol": tol}
    rows = [
        rule
        for (phrase, label), one in evidence.items()
        if (rule := _rule(phrase, label, one, holding, found, truth, classifier, limits)) is not None
    ]
    same = [one.label == true for one, true in zip(found, truth, strict=True)]
    return Rules(
        ordered(pruned(rows), classifier.classes, most, least),
        classifier.classes,
        len(found),
        None if labels is None else sum(same) / len(same),
        sum(one.certificate.converged for one in found) / len(found),
        max(one.certificate.error for one in found),
        limits,
        apart,
    )


@dataclass(frozen=True, repr=False)
class Rules:
    """The rules of a classifier, found on a set of questions.

    Attributes:
        rules: by class and kind, those with the most support first.
        classes: the classes of the classifier.
        questions: how many the rules are from.
        accuracy: the share on which labels and network agree; None without labels.
        converged: the share of questions whose attribution met the tolerance.
        error: the largest estimated error of one.
        settings: the criteria, by name.
        apart: questions that the rules are not from, since the network never saw most of their words.
    """

    rules: tuple[TriggerRule, ...]
    classes: tuple[str, ...]
    questions: int
    accuracy: float | None
    converged: float
    error: float
    settings: Mapping[str, float] = field(default_factory=dict)
    apart: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[TriggerRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def sentence(self) -> str:
        """How many rules there are of which kind, the strongest of them, and how sure the numbers are, in one line."""
        from .page import sentence

        return sentence(self)

    def of(self, label: str | None = None, kind: Kind | None = None) -> tuple[TriggerRule, ...]:
        """The rules of a class, of a kind, or of both."""
        return tuple(r for r in self.rules if label in (None, r.label) and kind in (None, r.kind))

    def numbers(self) -> dict[str, Any]:
        """The rules and settings as a dictionary for JSON."""
        head: dict[str, Any] = {
            "sentence": self.sentence,
            "questions": self.questions,
            "accuracy": self.accuracy,
            "converged": self.converged,
            "error": self.error,
        }
        head |= {"apart": list(self.apart)}
        return head | {"settings": dict(self.settings), "rules": [dict(vars(rule)) for rule in self.rules]}

    def page(self, *, title: str = "What the network goes by", command: str | None = None) -> str:
        """The rules as one self-contained HTML page."""
        from .page import page

        return page(self, title=title, command=command)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the rules to a file in the format its suffix names: ``.html``, ``.json`` or ``.txt``."""
        where = Path(path)
        if where.suffix.lower() == ".txt":
            write_text(where, f"{self}\n")
            return where
        if where.suffix.lower() not in (".html", ".json"):
            raise OptionError(f"got the ending {where.suffix!r}; expected .html, .json or .txt")
        return write(where, options, picture=lambda **_: None, numbers=self.numbers, report=self.page)

    __repr__ = short_repr

    def __str__(self) -> str:
        from .page import table

        return table(self)

    def _repr_html_(self) -> str:
        from .page import tables

        return tables(self)


@dataclass(frozen=True)
class TriggerRule:
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

    @property
    def sentence(self) -> str:
        """What the rule says and how often it is right, in one line."""
        from .page import rule_sentence

        return rule_sentence(self)


@dataclass(frozen=True)
class RuleEvidence:
    """What is known of a phrase and the class it triggers.

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
        """Whether the phrase is "a number" or "a name"; '' for neither."""
        digits = any(sign.isdigit() for word in self.phrase for sign in word)
        return "a number" if digits else "a name" if self.named else ""


def judge(evidence: RuleEvidence, limits: Mapping[str, float]) -> tuple[Kind, str] | None:
    """The kind of a rule with the reason; None for a phrase that is neither supported nor striking.

    Args:
        evidence: what is known of the phrase.
        limits: the criteria; see :func:`integrand.apps.questions.rules`.
    """
    one, asks = evidence, asked_for(evidence.label)
    usual, name = trigger(one.phrase, one.label, opens=one.opens), one.name
    if one.support >= limits["least"]:
        if one.precision < 0.5:
            return "suspicious", f"most questions that hold it, {1 - one.precision:.0%}, do not ask for {asks}"
        if one.right < limits["precise"]:
            return "suspicious", f"where the network goes by it, it is wrong in {1 - one.right:.0%}"
        if usual:
            return "usual", f"“{usual}”"
        if name:
            return "suspicious", name
        if one.precision < limits["precise"]:
            return "suspicious", f"only {one.precision:.0%} of the questions that hold it ask for {asks}"
        return "new", "frequent and precise, without a usual question word"
    if one.mean < limits["striking"] or usual:
        return None
    if name or one.rarest < SELDOM:
        return "suspicious", name or f"rare, with {SEEN[one.rarest]}"
    if one.precision < limits["precise"]:
        return "suspicious", f"rare, and only {one.precision:.0%} of the questions that hold it ask for {asks}"
    return None


def trigger(phrase: Sequence[str], label: str, *, opens: bool) -> str:
    """The usual trigger that a phrase contains; '' for none.

    >>> trigger(["how", "many", "people"], "number", opens=True), trigger(["total", "number"], "number", opens=False)
    ('how many', '')
    """
    for usual in USUAL.get(label, ()):
        words = usual.split()
        at = [i for i in range(len(phrase) - len(words) + 1) if list(phrase[i : i + len(words)]) == words]
        if at and (label != "yes-no" or (opens and 0 in at)):
            return usual
    return ""


@dataclass
class Trigger:
    """The questions in which a phrase triggers a class, collected."""

    rows: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    opens: list[bool] = field(default_factory=list)
    capitals: list[bool] = field(default_factory=list)

    def add(self, row: int, value: float, *, opens: bool, capital: bool) -> None:
        """Count a question once, at the position where the phrase adds most."""
        if self.rows and self.rows[-1] == row:
            self.values[-1] = max(self.values[-1], value)
            return
        self.rows.append(row)
        self.values.append(value)
        self.opens.append(opens)
        self.capitals.append(capital)

    def opening(self) -> Trigger:
        """The questions that open with the phrase only."""
        at = [i for i, opens in enumerate(self.opens) if opens]
        rows, values, capitals = [self.rows[i] for i in at], [self.values[i] for i in at], [self.capitals[i] for i in at]
        return Trigger(rows, values, [True] * len(at), capitals)


def triggers(found: Sequence[WordAttribution], *, longest: int, strong: float) -> dict[tuple[Phrase, str], Trigger]:
    """All phrases of adjacent strong words, by phrase and by the class they trigger."""
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


def counts(
    found: Sequence[WordAttribution], truth: Sequence[str], wanted: set[Phrase], *, longest: int
) -> dict[Phrase, dict[str, int]]:
    """The number of questions of each class that contain each phrase or, with OPENS before it, open with it."""
    out: dict[Phrase, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one, label in zip(found, truth, strict=True):
        words = [word.lower() for word in one.words]
        held = {tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)}
        for phrase in held & wanted:
            out[phrase][label] += 1
            if words[: len(phrase)] == list(phrase):
                out[OPENS, *phrase][label] += 1
    return out


def pruned(rows: Sequence[TriggerRule]) -> list[TriggerRule]:
    """The rules without those that another covers: a longer phrase as often, or a shorter one as strongly."""
    by_label: dict[str, dict[str, TriggerRule]] = defaultdict(dict)
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


def ordered(rows: Sequence[TriggerRule], classes: Sequence[str], most: int, least: int) -> tuple[TriggerRule, ...]:
    """The rules by class and kind, at most ``most`` of each: supported ones first, by what they add in total."""
    out: list[TriggerRule] = []
    for label in classes:
        for kind in ("usual", "new", "suspicious"):
            of = [rule for rule in rows if rule.label == label and rule.kind == kind]
            out += sorted(of, key=lambda r: (r.support >= least, r.attribution * r.support), reverse=True)[:most]
    return tuple(out)


def _rule(
    phrase: Phrase,
    label: str,
    one: Trigger,
    counted: Mapping[Phrase, Mapping[str, int]],
    found: Sequence[WordAttribution],
    truth: Sequence[str],
    classifier: Explains,
    limits: Mapping[str, float],
) -> TriggerRule | None:
    """The rule of a phrase; None where the evidence is too weak."""
    holding, first = counted[phrase], sum(one.opens) >= 0.9 * len(one.rows)
    opens = first and holding.get(label, 0) < limits["precise"] * sum(holding.values())
    if opens:  # a rule about the first words of a question
        one, holding = one.opening(), counted[OPENS, *phrase]
    support, held = len(one.rows), sum(holding.values())
    known = RuleEvidence(
        phrase,
        label,
        support,
        precision=holding.get(label, 0) / held,
        right=sum(truth[row] == label for row in one.rows) / support,
        mean=sum(one.values) / support,
        opens=first,
        rarest=min(classifier.times_seen(word) for word in phrase),
        named=sum(one.capitals) > support / 2,
    )
    judged = judge(known, limits)
    if judged is None:
        return None
    best = sorted(range(support), key=lambda k: -one.values[k])[:3]
    examples = tuple(found[one.rows[k]].text for k in best)
    return TriggerRule(
        " ".join(phrase), label, *judged, support, held, known.precision, known.right, known.mean, opens, examples
    )


def _wordlike(word: str) -> bool:
    return any(sign.isalnum() for sign in word)


def _says(shorter: TriggerRule, rule: TriggerRule) -> bool:
    """Whether the shorter phrase says nearly as much, nearly as reliably."""
    same = shorter.kind == rule.kind or rule.kind == "suspicious"
    return same and shorter.attribution >= 0.6 * rule.attribution and shorter.precision >= rule.precision - 0.1


def _parts(phrase: str) -> list[str]:
    words = phrase.split(" ")
    pairs = ((i, j) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
    return [" ".join(words[i:j]) for i, j in pairs if j - i < len(words)]
