"""Texts and Hugging Face models: which words made a model say what it says.

Nothing has to be named: the embedding is found, masks and positions are passed along, markers such as [CLS] stay as they are,
and padding gets exactly zero. Every attribution is the sum over a token's embedding, and comes with a certificate.

from integrand import text
print(text.explain(model, tokenizer, "The film was not bad at all."))
text.generated(model, tokenizer, "The capital of France is", max_new_tokens=5).save("why.html")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .result import Explained, Explanations, Generated
    from .text_baselines import BaselineName
    from .text_pair import compare
    from .text_tasks import explain, generated, inquiry, similarity
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BaselineName": "text_baselines",
            "Explained": "result",
            "Explanations": "result",
            "Generated": "result",
            "compare": "text_pair",
            "explain": "text_tasks",
            "generated": "text_tasks",
            "inquiry": "text_tasks",
            "similarity": "text_tasks",
        },
    )

__all__ = [
    "BaselineName",
    "Explained",
    "Explanations",
    "Generated",
    "compare",
    "explain",
    "generated",
    "inquiry",
    "similarity",
]
