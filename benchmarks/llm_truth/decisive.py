"""Pairs of prompts that differ in one word, which decides the next one: where attributions should see it.

A pair counts if the model prefers the one answer after the one prompt and the other answer after the other: then the word in
which they differ is what decides for this model, whatever people think of the sentence.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from .prompts import Prompt

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow",
    "Egypt": "Cairo",
    "England": "London",
    "Greece": "Athens",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Cuba": "Havana",
    "Sweden": "Stockholm",
    "Peru": "Lima",
    "Portugal": "Lisbon",
}
CAPITAL_PROMPTS = ("The capital of {} is", "The government of {} is in the city of", "Last year we flew to {} and visited")

NAMES = ("Anna", "Mary", "John", "Tom", "Peter", "Emma", "Jack", "Lucy", "David", "Sarah", "Paul", "Kate", "Mark", "Lisa")
NAME_PROMPTS = (
    "My name is {}. People call me",
    "I met {} today. I like",
    "{} and I went to school. The teacher saw",
    "Dear {}, how are you? Your friend misses you,",
)

SUBJECTS = (
    ("key", "keys"),
    ("dog", "dogs"),
    ("car", "cars"),
    ("book", "books"),
    ("girl", "girls"),
    ("letter", "letters"),
    ("student", "students"),
    ("door", "doors"),
    ("tree", "trees"),
    ("teacher", "teachers"),
)
PLACES = ("the cabinet", "the garden", "the house", "the door", "the old man", "the city", "the river")
AGREEMENT_PROMPTS = ("The {} near {}", "The {} of {}", "I know that the {} behind {}")
VERBS = ((" is", " are"), (" was", " were"), (" has", " have"))

POLARITY_PROMPTS = (
    "I {} this film. It was so",
    "I {} this book. It is really",
    "We {} the food there. It was",
    "They {} the hotel because it was very",
    "He {} his new job. It makes him feel",
    "She {} the music. She finds it",
    "I never {} him. He is",
    "My friends {} the party, it was so",
)
POLARITY_VERBS = (("love", "hate"), ("loved", "hated"), ("enjoy", "dislike"), ("liked", "hated"), ("praised", "disliked"))
NEGATION_PROMPTS = (
    "The shop is {} open. It is",
    "The water is {} cold. It is",
    "It is {} true. The statement is",
    "He is {} rich. In fact he is",
    "The test was {} easy. It was",
    "The soup is {} hot. It is",
    "She is {} happy. She feels",
    "The answer is {} right. It is",
)
NEGATION_WORDS = (("not", "very"), ("not", "really"), ("never", "always"), ("hardly", "truly"))
NEGATION_ANSWERS = (
    (" closed", " open"),
    (" warm", " cold"),
    (" false", " true"),
    (" poor", " rich"),
    (" hard", " easy"),
    (" cold", " hot"),
    (" sad", " happy"),
    (" wrong", " right"),
)
POLARITY_ANSWERS = ((" good", " bad"), (" great", " boring"), (" beautiful", " ugly"), (" nice", " mean"), (" fun", " bad"))


def capitals() -> Iterator[Prompt]:
    """Countries and their capitals."""
    for form in CAPITAL_PROMPTS:
        for first, second in itertools.permutations(CAPITALS, 2):
            answers = f" {CAPITALS[first]}", f" {CAPITALS[second]}"
            yield Prompt(form.format(first), *answers, form.format(second), first)


def names() -> Iterator[Prompt]:
    """Names that come again."""
    for form in NAME_PROMPTS:
        for first, second in itertools.permutations(NAMES, 2):
            yield Prompt(form.format(first), f" {first}", f" {second}", form.format(second), first)


def agreement() -> Iterator[Prompt]:
    """Verbs that agree with a noun some words earlier."""
    for form, place, forms, verbs in itertools.product(AGREEMENT_PROMPTS, PLACES, SUBJECTS, VERBS):
        for this, other in ((0, 1), (1, 0)):
            texts = form.format(forms[this], place), form.format(forms[other], place)
            yield Prompt(texts[0], verbs[this], verbs[other], texts[1], forms[this])


def negations() -> Iterator[Prompt]:
    """Words that turn a sentence around."""
    contrasts = [(form, words, POLARITY_ANSWERS) for form in POLARITY_PROMPTS for words in POLARITY_VERBS]
    flipped = [(positive, negative) for positive, negative in POLARITY_ANSWERS]
    for form, (positive, negative), _ in contrasts:
        for good, bad in flipped:
            yield Prompt(form.format(positive), good, bad, form.format(negative), positive)
            yield Prompt(form.format(negative), bad, good, form.format(positive), negative)
    for form, (denied, affirmed) in zip(NEGATION_PROMPTS, NEGATION_ANSWERS, strict=True):
        for no, yes in NEGATION_WORDS:
            yield Prompt(form.format(no), denied, affirmed, form.format(yes), no)
            yield Prompt(form.format(yes), affirmed, denied, form.format(no), yes)


FAMILIES: dict[str, Callable[[], Iterator[Prompt]]] = {
    "capitals": capitals,
    "copied names": names,
    "agreement": agreement,
    "negations": negations,
}


def chosen(accepts: Callable[[Prompt], bool], count: int) -> list[tuple[str, Prompt]]:
    """Prompts of all families in turn, the same every time.

    Args:
        accepts: whether the model decides the pair by the word in question.
        count: how many in all, an equal part from each family as far as it has them.
    """
    parts = []
    for family, make in FAMILIES.items():
        candidates = list(make())
        random.Random(0).shuffle(candidates)
        parts.append(list(itertools.islice(((family, p) for p in candidates if accepts(p)), -(-count // len(FAMILIES)))))
    return interleaved(parts)[:count]


def interleaved(parts: Sequence[Sequence[tuple[str, Prompt]]]) -> list[tuple[str, Prompt]]:
    """The first of each part, the second of each, and so on."""
    return [item for group in itertools.zip_longest(*parts) for item in group if item is not None]
