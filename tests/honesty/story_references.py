"""Attributions of a real language model from zero embeddings, far finer than any result: ``stories_at_zero.npz``.

python -m tests.honesty.story_references ../shared/data/language-model        # a quarter of an hour on one core
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.apps.text.stories import stories

from .attacks import singular_reference

STORED = Path(__file__).with_name("stories_at_zero.npz")
PROMPTS = (
    "Peter and his sister built a",
    "A dragon came to the castle and the king said",
    "Lily and Tom went to the",
    "The dog was very",
    "He opened the box and saw",
    'Mom said, "You must',
)


@dataclass(frozen=True)
class StoryCase:
    """A prompt, which of the likeliest next tokens is explained, and from where.

    Attributes:
        prompt: the text.
        rank: 0 for the likeliest next token.
        score: logit or probability.
        first: whether the first token is at the baseline what it is at the input; the others are zero.
    """

    prompt: str
    rank: int
    score: str
    first: bool

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.prompt} | {self.rank} | {self.score} | {'first token' if self.first else 'all zero'}"


CASES = tuple(
    StoryCase(prompt, rank, score, first)
    for prompt in PROMPTS
    for rank, score, first in (
        (0, "logit", True),
        (0, "probability", True),
        (1, "probability", True),
        (0, "logit", False),
        (0, "probability", False),
    )
)


class NextToken(nn.Module):
    """Logits of the next token, from embeddings."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, embeddings: Tensor) -> Tensor:
        """(N, T, width) to (N, vocabulary)."""
        return self.model(inputs_embeds=embeddings).logits[:, -1]  # type: ignore[no-any-return]


def load(folder: Path, dtype: torch.dtype) -> tuple[NextToken, Any]:
    """The model in a precision, and its tokenizer."""
    model, tokenizer = stories(folder)
    return NextToken(model.to(dtype).requires_grad_(False)), tokenizer


def points(network: NextToken, tokenizer: Any, case: StoryCase) -> tuple[Tensor, Tensor, int]:
    """Input, baseline, (1, T, width) each, and the token that is explained."""
    ids = tokenizer(case.prompt, return_tensors="pt").input_ids
    x = network.model.get_input_embeddings()(ids)
    baseline = torch.zeros_like(x)
    if case.first:
        baseline[:, 0] = x[:, 0]
    return x, baseline, int(network(x)[0].argsort(descending=True)[case.rank])


def main() -> None:
    """Compute the references."""
    network, tokenizer = load(Path(sys.argv[1]), torch.float64)
    out = {}
    for case in CASES:
        x, baseline, token = points(network, tokenizer, case)

        def score(rows: Tensor, token: int = token, probability: bool = case.score == "probability") -> Tensor:
            logits = network(rows)
            return (logits.softmax(1) if probability else logits)[:, token]

        out[case.key] = singular_reference(score, x, baseline).astype(np.float32)
        print(case.key, f"{np.abs(out[case.key]).sum():.4g}", flush=True)
    np.savez_compressed(STORED, **out)


if __name__ == "__main__":
    main()
