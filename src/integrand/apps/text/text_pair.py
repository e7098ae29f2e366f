"""Two classifiers, or more, on one text: what each word adds in each of them, whatever pieces their tokenizers make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...analysis.model_comparison import ModelAnswer, ModelComparison
from ...arrays import Floats
from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import OptionError, TargetError
from ...functions.target import Score
from ...render.text.word_sentences import quoted
from ...words import percent
from .result import Explained
from .text_tasks import Baseline, explain

LISTED = 5
"""The answers of each model that are kept."""

BESIDE = "signs beside the words"
"""What is called so that belongs to no word, such as spaces at the end."""


def compare(
    text: str,
    models: Mapping[str, tuple[Any, Any]],
    *,
    target: int | str | Mapping[str, int | str] | None = None,
    score: Score | None = None,
    baseline: Baseline = "zero",
    tol: float = 0.01,
    **options: Any,
) -> ModelComparison:
    """Explain one class of several classifiers on the same text, and in which words their reasons differ.

    Each model reads the text with its own tokenizer. Attributions add up, so those of its pieces are summed over the same
    words of the text: the smallest stretches that no tokenizer's word crosses.

    Args:
        text: the text.
        models: two or more by name, each a classifier and its tokenizer, as :func:`integrand.text.explain` takes them.
        target: the class to explain, by name or number, or a mapping from the models' names to theirs. None means the surest
            class of the first model; in the others it is found by its name.
        score: ``probability`` by default, ``log-probability`` or ``logit``.
        baseline: what words are replaced with where the path starts, as in :func:`integrand.text.explain`.
        tol: the relative error of the tokens' attributions to integrate each model to.
        **options: as in :func:`integrand.text.explain`.

    Returns:
        The comparison; ``values`` and ``difference`` are by word, (1, words), and ``features`` are the words.

    Raises:
        OptionError: there are fewer than two models, they have no class of the same name, or give scores in other units.
    """
    if not isinstance(text, str):
        raise OptionError(f"got a {type(text).__name__} as the text; expected one text to compare the models on.")
    if not isinstance(models, Mapping) or len(models) < 2:
        raise OptionError("expected two or more models by name: {'one': (model, tokenizer), 'other': (model, tokenizer)}.")
    if isinstance(target, Mapping) and set(target) != set(models):
        raise OptionError(f"got targets for {sorted(map(str, target))}; expected one for each model: {sorted(models)}.")
    how: dict[str, Any] = {"score": score, "baseline": baseline, "tol": tol, **options}
    found: dict[str, Explained] = {}
    for name, (model, tokenizer) in models.items():
        first = next(iter(found.values()), None)
        chosen = target[name] if isinstance(target, Mapping) else target
        told = chosen is not None or first is None
        try:
            aim = chosen if told or first is None else first.label
            found[name] = explain(model, tokenizer, text, target=aim, **how).words()
        except TargetError as error:
            if told or first is None:
                raise
            raise OptionError(
                f"the first model says {first.label!r}, and {name!r} has no class of that name; expected a class that all "
                f"know. Name it in each: target={{... , {name!r}: 'its name'}}."
            ) from error
        _check_alike(found)
    spans = shared_words([one.line.spans or () for one in found.values()])
    beside = any(_sums(one, spans)[-1] for one in found.values())
    words = [*_named([text[start:end] for start, end in spans]), *([BESIDE] if beside else [])]
    meta = {"text": text, "method": "integrated gradients", "tolerance": percent(tol), "baseline": str(baseline)}
    return ModelComparison(
        {name: _by_word(one, spans, len(words)) for name, one in found.items()},
        {name: (_answer(one),) for name, one in found.items()},
        _unit(next(iter(found.values()))),
        features=words,
        meta=meta | {name: f"{type(models[name][0]).__name__}, {one.label}" for name, one in found.items()},
        notes=tuple(f"{name}: {note}" for name, one in found.items() for note in one.line.notes),
    )


def shared_words(spans: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The smallest stretches of a text that no word of any model crosses.

    >>> shared_words([[(0, 3), (4, 7), (7, 8)], [(0, 3), (4, 8)]])
    [(0, 3), (4, 8)]

    Args:
        spans: for each model, where its words begin and end; empty spans are left out.
    """
    out: list[tuple[int, int]] = []
    for start, end in sorted((start, end) for each in spans for start, end in each if start < end):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _check_alike(found: Mapping[str, Explained]) -> None:
    """Refuse what cannot be aligned or subtracted: tokens without places in the text, and scores in other units."""
    (first, one), (name, other) = next(iter(found.items())), list(found.items())[-1]
    if other.line.spans is None:
        raise OptionError(
            f"the tokenizer of {name!r} does not say where tokens stand in the text, by which words are compared; expected a "
            "fast tokenizer. Load it with AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    if _unit(one) != _unit(other):
        raise OptionError(
            f"the score of {first!r} is a {_unit(one)} and that of {name!r} a {_unit(other)}; a difference needs both in the "
            "same units. Pass score='logit', which takes the outputs of both as they are."
        )


def _unit(one: Explained) -> str:
    return one.meta.get("score", "output")


def _sums(one: Explained, spans: Sequence[tuple[int, int]]) -> Floats:
    """The values of each stretch of the text, and last of what belongs to none."""
    out = np.zeros(len(spans) + 1)
    starts = [start for start, _ in spans]
    for (start, end), value in zip(one.line.spans or (), one.line.values, strict=True):
        out[int(np.searchsorted(starts, start, side="right")) - 1 if start < end else -1] += value
    return out


def _by_word(one: Explained, spans: Sequence[tuple[int, int]], count: int) -> Attribution:
    values = torch.from_numpy(_sums(one, spans)[None, :count])
    return Attribution(values, Certificate((one.certificate,)), meta=dict(one.meta))


def _named(words: Sequence[str]) -> list[str]:
    """The words in quotation marks, those that come more than once with which of them it is.

    >>> _named(["to", "be", "or", "to"])
    ["'to' (1)", "'be'", "'or'", "'to' (2)"]
    """
    often, so_far = Counter(words), Counter[str]()
    out = []
    for word in words:
        so_far[word] += 1
        out.append(quoted(word) + (f" ({so_far[word]})" if often[word] > 1 else ""))
    return out


def _answer(one: Explained) -> ModelAnswer:
    score, choices = one.certificate.score, sorted(one.line.choices, key=lambda choice: -choice[1])
    if _unit(one) != "probability" or not choices:
        return ModelAnswer(one.label, score, score, one.label)
    return ModelAnswer(choices[0][0], choices[0][1], score, one.label, tuple(choices[:LISTED]))
