"""stories260K from zero embeddings, the paper's baseline: questions, and references that refine down to t = 1e-40."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tests.apps.text.stories import stories
from tests.honesty.story_references import CASES, STORED

from .gauss_kronrod import Reference
from .language import ZERO, NextToken, Question

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "language-model"
"""Where ``stories260K.bin`` and ``tok512.bin`` are."""


def story_questions(folder: Path = DATA) -> Iterator[tuple[Question, Reference]]:
    """Logits and probabilities of the likeliest next token, all embeddings zero at the start."""
    model, tokenizer = stories(folder)
    network, stored = NextToken(model.requires_grad_(False)), np.load(STORED)
    for case in CASES:
        if case.first:
            continue
        x = model.get_input_embeddings()(tokenizer(case.prompt, return_tensors="pt").input_ids).detach()
        with torch.no_grad():
            token = int(network(x)[0].argsort(descending=True)[case.rank])
        name = f"stories260K: {case.prompt} | {tokenizer.decode([token])} | {ZERO} | {case.score}"
        values = stored[case.key].astype(np.float64)
        yield Question(name, network, x, torch.zeros_like(x), token, token, case.score), Reference(values[None], np.zeros(1), 0)
