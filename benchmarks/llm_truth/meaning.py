"""Where decisive words rank, by library and by where paths start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import integrand as ig

from .decisive import chosen
from .explainers import Explanation, integrand_to
from .language import END, FIRST, LIKE, LOG_ODDS, MEAN, ZERO, Language
from .libraries import Libraries
from .measures import rank_of, share_of
from .prompts import Prompt
from .store import Results

LIBRARIES = {
    "captum": "Captum LLMGradientAttribution",
    "inseq": "inseq",
    "interpreto": "interpreto",
    "flashtrace": "FlashTrace (attention flow)",
}
BLOCK = 20
"""Prompts for a library at a time: they are stored when all of them are there."""

UNRELATED = "an unrelated prompt"
Row = dict[str, Any]
Pair = tuple[str, Prompt]


def pair_key(prompt: Prompt, who: str) -> str:
    """The name of a row."""
    return f"{prompt.text} |{prompt.answer} | {prompt.like} | {who}"


class Meaning:
    """Ranks of decisive words.

    Args:
        language: SmolLM2.
        results: where rows are stored.
        count: pairs of prompts.
    """

    def __init__(self, language: Language, results: Results, count: int) -> None:
        self.language, self.results = language, results
        self.pairs = chosen(language.decides, count)

    def measure(self, libraries: Libraries, long: int) -> None:
        """Ranks by libraries and from another prompt for all pairs, from made-up baselines for some."""
        self.integrand(self.pairs, (LIKE,))
        for name in LIBRARIES:
            self.library(libraries, name)
        self.integrand(self.pairs[:long], (MEAN, END, FIRST, UNRELATED, ZERO))

    def integrand(self, pairs: Sequence[Pair], starts: Sequence[str]) -> None:
        """Rows of integrand."""
        for pair in pairs:
            for start in starts:
                key = pair_key(pair[1], start)
                if self.results.missing("meaning", key):
                    self.results.put("meaning", key, self.row(pair, start))

    def library(self, libraries: Libraries, name: str) -> None:
        """Rows of a library."""
        who = LIBRARIES[name]
        pairs = [pair for pair in self.pairs if self.results.missing("meaning", pair_key(pair[1], who))]
        for first in range(0, len(pairs), BLOCK):
            block = pairs[first : first + BLOCK]
            answers = libraries.answers(name, [prompt for _, prompt in block])
            if not answers:
                return
            for (family, prompt), answer in zip(block, answers, strict=True):
                row = {"family": family, "who": who} | self.standing(prompt, answer)
                self.results.put("meaning", pair_key(prompt, who), row)

    def row(self, pair: Pair, start: str) -> Row:
        """The row of integrand, to 5%, from a start."""
        family, prompt = pair
        about = {"family": family, "who": f"integrand, 5%, from {start}"}
        if start == UNRELATED:
            fitting = [other for kind, other in self.pairs if kind != family and self.as_long(prompt, other)]
            if not fitting:
                return about | {"failed": "no prompt of another kind is as long"}
            question = self.language.question(replace(prompt, like=fitting[0].text), LIKE, LOG_ODDS)
        else:
            question = self.language.question(prompt, start, LOG_ODDS)
        try:
            return about | self.standing(prompt, integrand_to(0.05)(question))
        except ig.errors.IntegrandError as error:
            return about | {"failed": type(error).__name__}

    def as_long(self, prompt: Prompt, other: Prompt) -> bool:
        """Whether two prompts have as many tokens."""
        return self.language.ids(prompt.text).shape == self.language.ids(other.text).shape

    def standing(self, prompt: Prompt, answer: Explanation) -> Row:
        """Where the decisive word stands."""
        ids, other = self.language.ids(prompt.text)[0], self.language.ids(prompt.like)[0]
        places = (ids != other).nonzero().flatten().tolist()
        row: Row = {"rank": rank_of(places, answer.tokens), "share": share_of(places, answer.tokens)}
        row |= {"first": share_of([0], answer.tokens), "gradients": answer.gradients, "seconds": answer.seconds}
        return row | ({"converged": answer.facts["converged"]} if answer.facts else {})
