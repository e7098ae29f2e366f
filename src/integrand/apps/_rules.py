"""Which words and phrases trigger which class, over a whole set of questions: the rules that a network has learnt.

Section 6.3 of the paper reads such rules off attributions, to find those that hand-written systems had as well ("how many"),
new ones ("total number") and wrong ones (a name that triggers yes or no). Here they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InputError
from ._phrases import OPENS, Phrase, Trigger, counts, ordered, pruned, triggers
from ._rule_kinds import Evidence, Kind, judge
from ._rule_sets import Rule, Rules

if TYPE_CHECKING:
    from ._question_words import WordAttribution

__all__ = ["Explains", "Kind", "Rule", "Rules", "rules"]


class Explains(Protocol):
    """What :func:`rules` needs: :class:`integrand.apps.questions.Classifier`, or something like it."""

    @property
    def classes(self) -> tuple[str, ...]:
        """What is told apart."""
        ...

    def explain(self, texts: Sequence[str], *, tol: float, **options: Any) -> list[WordAttribution]:
        """Explain the class that each text is given."""
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
    """Which words and phrases trigger which class, and which of these rules are usual, new or suspicious.

    A word is strong in a question if it holds a share of at least ``strong`` of what speaks for the class there. A phrase,
    of up to ``longest`` adjacent strong words, triggers the class that the network gives to the question.

    - suspicious: most questions that hold it are of another class; or the network is right in less than a share of
      ``precise`` of those where it goes by it; or it is a name (digits, capitals inside a sentence); or it is not usual and
      its precision is below ``precise``. Below a support of ``least``: a name, a word seen less than three times in training
      or an imprecise phrase that adds ``striking`` or more to the score on average.
    - usual: it holds a question word that hand-written rules for the class go by, from a short list
      (:data:`~integrand.apps._rule_kinds.USUAL`).
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
    truth = [one.label for one in found] if labels is None else list(labels)
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
    )


def _rule(
    phrase: Phrase,
    label: str,
    one: Trigger,
    counted: Mapping[Phrase, Mapping[str, int]],
    found: Sequence[WordAttribution],
    truth: Sequence[str],
    classifier: Explains,
    limits: Mapping[str, float],
) -> Rule | None:
    """The rule of a phrase; None where there is too little to it."""
    holding, first = counted[phrase], sum(one.opens) >= 0.9 * len(one.rows)
    opens = first and holding.get(label, 0) < limits["precise"] * sum(holding.values())
    if opens:  # a rule about the first words of a question
        one, holding = one.opening(), counted[OPENS, *phrase]
    support, held = len(one.rows), sum(holding.values())
    known = Evidence(
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
    return Rule(" ".join(phrase), label, *judged, support, held, known.precision, known.right, known.mean, opens, examples)
