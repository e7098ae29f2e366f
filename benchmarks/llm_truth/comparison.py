"""Errors of everybody next to dense references, and the claims of integrand next to what is true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .explainers import BY_HAND, RIEMANN, Explanation, generated_to, integrand_name, integrand_to
from .gauss_kronrod import Reference
from .language import FIRST, LIKE, LOG_ODDS, LOG_PROBABILITY, MEAN, PROBABILITY, ZERO, Language, Question, by_token
from .libraries import Libraries
from .measures import Floats, rank_correlation, relative_error, same_top
from .prompts import Prompt
from .references import References
from .store import Results
from .stories import story_questions

TOLERANCES = (0.05, 0.01)
SETTINGS = ((LIKE, (LOG_ODDS,)), (MEAN, (LOG_ODDS,)), (FIRST, (LOG_PROBABILITY, PROBABILITY)))
"""Starts, and the scores on their paths."""

MAGNITUDES = "interpreto"
"""A library whose values are magnitudes, and no integral of the score: only their order can be compared."""

QUESTIONS_OF_LIBRARIES = {
    "captum": ("Captum LLMGradientAttribution, 50 steps", LOG_PROBABILITY),
    "flashtrace-gradients": ("FlashTrace's integrated gradients, 20 steps", LOG_PROBABILITY),
    MAGNITUDES: ("interpreto, 10 steps (magnitudes: no error)", LOG_PROBABILITY),
    "inseq": ("inseq, 50 steps", PROBABILITY),
}
"""Libraries with a question of their own about the path from token 0, and its score."""

Row = dict[str, Any]
Setting = tuple[Prompt, str, Question, Reference]


def errors_of(answer: Explanation, exact: Reference, question: Question) -> Row:
    """Errors of an answer."""
    tokens = by_token(exact.values[0], question)
    row: Row = {"gradients": answer.gradients, "seconds": answer.seconds, "doubt": float(exact.doubt[0])}
    row |= {"tokens": relative_error(answer.tokens, tokens), "ranks": rank_correlation(answer.tokens, tokens)}
    row |= {"same top": same_top(answer.tokens, tokens)}
    return row | ({} if answer.features is None else {"features": relative_error(answer.features, exact.values[0])})


def order_of(answer: Explanation, exact: Reference, question: Question) -> Row:
    """The order of an answer that is no integral of the score."""
    row = errors_of(answer, Reference(np.abs(by_token(exact.values[0], question))[None], exact.doubt, exact.nodes), question)
    return {name: row[name] for name in ("gradients", "seconds", "ranks", "same top")}


def claim(call: str, tokens: Floats, measured: float, exact: Reference, question: Question, facts: Row) -> Row:
    """A certificate's claim, and what is true; ``token ratio`` is the worst token's true error over its stated one."""
    off = np.abs(tokens - by_token(exact.values[0], question))
    errors = np.maximum(np.asarray(facts.pop("token errors"), dtype=float), 1e-12)
    beyond = np.maximum(off - exact.doubt[0] * np.abs(exact.values[0]).sum() / len(off), 0.0)
    row = facts | {"call": call, "question": question.name, "measured": measured, "doubt": float(exact.doubt[0])}
    return row | {"token ratio": float((beyond / errors).max())}


def late_questions(claims: Iterable[Row]) -> set[str]:
    """The questions with a claim beyond its tolerance."""
    return {row["question"] for row in claims if row["converged"] and row["measured"] > row["tol"]}


class Comparison:
    """Explanations of SmolLM2 and of stories260K next to dense references.

    Args:
        language: SmolLM2.
        prompts: those that are explained.
        results: where rows are stored.
        references: what answers are compared with.
    """

    def __init__(self, language: Language, prompts: Sequence[Prompt], results: Results, references: References) -> None:
        self.language, self.prompts = language, prompts
        self.results, self.references = results, references

    def settings(self) -> Iterator[Setting]:
        """Everything that is asked about SmolLM2, with what is true."""
        for start, scores in SETTINGS:
            for prompt in self.prompts:
                questions = [self.language.question(prompt, start, score) for score in scores]
                for question, exact in zip(questions, self.references.of(questions), strict=True):
                    yield prompt, start, question, exact

    def errors(self, libraries: Libraries) -> None:
        """Errors of those that run in this process, then of libraries that have one of their own."""
        for _, start, question, exact in self.settings():
            rules = BY_HAND if start != FIRST else [RIEMANN] if question.score == LOG_PROBABILITY else []
            self.explained({"model": "SmolLM2", "start": start, "score": question.score}, question, exact, rules)
        for question, exact in story_questions():
            self.explained({"model": "stories260K", "start": ZERO, "score": question.score}, question, exact, BY_HAND)
        for library in QUESTIONS_OF_LIBRARIES:
            self.library(libraries, library)

    def explained(self, about: Row, question: Question, exact: Reference, rules: Iterable[str]) -> None:
        """Rows of everybody who runs in this process."""
        for who in rules:
            key = f"{question.name} | {who}"
            if self.results.missing("truth", key):
                row = errors_of(BY_HAND[who]()(question), exact, question)
                self.results.put("truth", key, about | {"who": who} | row)
        for tol in TOLERANCES:
            if self.results.missing("truth", f"{question.name} | {integrand_name(tol)}"):
                self.certified(about, question, exact, tol)

    def certified(self, about: Row, question: Question, exact: Reference, tol: float) -> None:
        """The row of integrand, and its claim."""
        answer, key = integrand_to(tol)(question), f"{question.name} | {integrand_name(tol)}"
        row = about | {"who": integrand_name(tol)} | errors_of(answer, exact, question)
        self.results.put("truth", key, row)
        facts = answer.facts | {name: row[name] for name in ("model", "start", "score", "gradients", "seconds")}
        off = row["features"]
        self.results.put("claims", key, claim("integrated_gradients", answer.tokens, off, exact, question, facts))

    def claims(self, *, late: bool) -> None:
        """Claims of both calls that a user has: about all features, and about tokens.

        Args:
            late: only those that were beyond their tolerance when they were stored.
        """
        names = late_questions(self.results.part("claims").values())
        for prompt, start, question, exact in self.settings():
            if late and question.name not in names:
                continue
            about = {"model": "SmolLM2", "start": start, "score": question.score}
            for tol in TOLERANCES:
                if self.results.missing("claims", f"{question.name} | {integrand_name(tol)}"):
                    self.certified(about, question, exact, tol)
                if start != LIKE:
                    self.generated(prompt, about, question, exact, tol)

    def generated(self, prompt: Prompt, about: Row, question: Question, exact: Reference, tol: float) -> None:
        """The claim of ``text.generated``, about tokens."""
        key = f"{question.name} | text.generated, {tol:.0%}"
        if self.results.missing("claims", key):
            tokens, facts = generated_to(self.language, prompt, about["start"], question.score, tol)
            off = relative_error(tokens, by_token(exact.values[0], question))
            self.results.put("claims", key, claim("text.generated", tokens, off, exact, question, facts | about))

    def library(self, libraries: Libraries, name: str) -> None:
        """Rows of a library."""
        who, score = QUESTIONS_OF_LIBRARIES[name]
        questions = {prompt: self.language.question(prompt, FIRST, score) for prompt in self.prompts}
        prompts = [p for p, question in questions.items() if self.results.missing("truth", f"{question.name} | {who}")]
        for prompt, answer in zip(prompts, libraries.answers(name, prompts), strict=False):
            question = questions[prompt]
            (exact,) = self.references.of([question])
            row = (order_of if name == MAGNITUDES else errors_of)(answer, exact, question)
            about = {"model": "SmolLM2", "start": FIRST, "score": score, "who": who}
            self.results.put("truth", f"{question.name} | {who}", about | row)
