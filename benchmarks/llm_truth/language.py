"""A language model's next token as a function of embeddings, and the questions that everybody is asked about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .gauss_kronrod import Reference, integral
from .measures import Floats
from .prompts import Prompt

MEAN, END, FIRST, LIKE, ZERO = "mean embedding", "end token", "token 0", "another prompt", "zero"
"""Where paths start; all but the other prompt put the same vector in place of each token. Token 0 is <|endoftext|>: what Captum
takes where no baseline is given, the unknown token that inseq takes, and what FlashTrace's authors suggest."""

LOG_ODDS, LOG_PROBABILITY, PROBABILITY, LOGIT = "log-odds", "log-probability", "probability", "logit"

CHUNK = 32
"""Nodes in a forward pass of the reference."""


class NextToken(nn.Module):
    """Logits of the next token, from embeddings."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, embeddings: Tensor) -> Tensor:
        """(N, T, width) to (N, vocabulary)."""
        return cast("Tensor", self.model(inputs_embeds=embeddings, use_cache=False, logits_to_keep=1).logits[:, -1])


@dataclass(frozen=True)
class Question:
    """What is asked of an explainer.

    Attributes:
        name: what it is stored by.
        network: from embeddings to logits.
        x: the embeddings of the prompt, (1, T, width).
        start: the embeddings of the baseline.
        token: the next token that is explained.
        other: the token that it is compared with, for log-odds.
        score: the scale.
    """

    name: str
    network: NextToken
    x: Tensor
    start: Tensor
    token: int
    other: int
    score: str

    def of(self, logits: Tensor) -> Tensor:
        """The score from logits, (N, vocabulary) to (N,)."""
        if self.score == LOG_ODDS:
            return logits[:, self.token] - logits[:, self.other]
        scale = {LOGIT: lambda x: x, PROBABILITY: lambda x: x.softmax(1), LOG_PROBABILITY: lambda x: x.log_softmax(1)}
        return cast("Tensor", scale[self.score](logits)[:, self.token])

    def __call__(self, embeddings: Tensor) -> Tensor:
        """The score, (N, T, width) to (N,)."""
        return self.of(self.network(embeddings))

    def terms(self, times: Floats) -> Floats:
        """Gradient times step at some times, (n, T * width)."""
        return gradient_terms([self], times)[:, 0]

    def change(self) -> float:
        """The score at the prompt less that at the baseline."""
        with torch.no_grad():
            return float(self(self.x) - self(self.start))


class Language:
    """A model, its tokenizer, and questions about prompts."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer, self.network = model, tokenizer, NextToken(model)

    def ids(self, text: str) -> Tensor:
        """Token ids, (1, T)."""
        return cast("Tensor", self.tokenizer(text, return_tensors="pt").input_ids)

    def token(self, word: str) -> int:
        """The id of a word that is one token."""
        ids = self.tokenizer(word, add_special_tokens=False).input_ids
        if len(ids) != 1:
            raise ValueError(f"got {word!r}, which is {len(ids)} tokens; expected one")
        return int(ids[0])

    def words(self, text: str) -> list[str]:
        """The text of each token."""
        return [self.tokenizer.decode([token]) for token in self.ids(text)[0].tolist()]

    def embedded(self, ids: Tensor) -> Tensor:
        """Embeddings of token ids."""
        return cast("Tensor", self.model.get_input_embeddings()(ids).detach())

    def start(self, prompt: Prompt, name: str) -> Tensor:
        """The start of the path, (1, T, width)."""
        ids = self.ids(prompt.text)
        if name == LIKE:
            other = self.ids(prompt.like)
            if other.shape != ids.shape:
                raise ValueError(f"got {other.shape[1]} tokens in {prompt.like!r}; expected {ids.shape[1]}")
            return self.embedded(other)
        if name in (FIRST, END):
            return self.embedded(torch.full_like(ids, 0 if name == FIRST else self.tokenizer.eos_token_id))
        table = self.model.get_input_embeddings().weight.detach()
        vector = table.mean(0) if name == MEAN else torch.zeros_like(table[0])
        return vector.expand(1, ids.shape[1], -1).clone()

    def question(self, prompt: Prompt, start: str, score: str) -> Question:
        """A question about the next token of a prompt."""
        name = f"{prompt.text} |{prompt.answer} | {start} | {score}".replace("\n", "\\n")
        x = self.embedded(self.ids(prompt.text))
        tokens = self.token(prompt.answer), self.token(prompt.rather_than)
        return Question(name, self.network, x, self.start(prompt, start), *tokens, score)

    def decides(self, prompt: Prompt) -> bool:
        """Whether the word in which a prompt and the one like it differ turns the model's preference around."""
        try:
            ids = torch.cat([self.ids(prompt.text), self.ids(prompt.like)])
            tokens = [self.token(word) for word in (prompt.answer, prompt.rather_than)]
        except (RuntimeError, ValueError):  # not as many tokens, or an answer of several
            return False
        with torch.no_grad():
            odds = self.model(ids, logits_to_keep=1).logits[:, -1, tokens]
        return bool(odds[0, 0] > odds[0, 1] and odds[1, 0] < odds[1, 1])


def gradient_terms(questions: list[Question], times: Floats) -> Floats:
    """Gradient times step of several scores on one path, (n, scores, T * width) in float64."""
    out = []
    for part in torch.tensor(times, dtype=questions[0].x.dtype).split(CHUNK):
        slopes = Slopes(questions[0], part)
        out.append(torch.stack([slopes.terms(question).flatten(1) for question in questions], 1))
    return torch.cat(out).numpy()


class Slopes:
    """Gradients of several scores at the same points of one path, from one forward pass.

    Args:
        question: whose path it is.
        times: where on it.
    """

    def __init__(self, question: Question, times: Tensor) -> None:
        self.step = question.x - question.start
        self.point = (question.start + times[:, None, None] * self.step).requires_grad_()
        self.logits = question.network(self.point)
        self.cache: dict[str, Tensor] = {}

    def terms(self, question: Question) -> Tensor:
        """Gradient times step, (n, T, width); that of a probability is the log-probability's times the probability."""
        if question.score == PROBABILITY:
            chances = question.of(self.logits.detach()).double()
            return chances[:, None, None] * self.terms(replace(question, score=LOG_PROBABILITY))
        key = f"{question.score} {question.token} {question.other}"
        if key not in self.cache:
            score = question.of(self.logits).sum()
            (slope,) = torch.autograd.grad(score, self.point, retain_graph=True)
            self.cache[key] = slope.double() * self.step.double()
        return self.cache[key]


def reference(questions: list[Question], **options: Any) -> Reference:
    """Dense integrals of several scores on one path."""
    return integral(lambda times: gradient_terms(questions, times), **options)


def by_token(values: Floats, question: Question) -> Floats:
    """(T,), the sums over the embeddings."""
    return np.asarray(values).reshape(question.x.shape[1], -1).sum(1)
