"""Texts and Hugging Face models: which words made a model say what it says.

Nothing has to be named: the embedding is found, masks and positions go along, markers such as [CLS] stay as they are, padding
gets exactly zero. Every attribution is the sum over a token's embedding, and comes with a certificate.

from integrand import text
print(text.explain(model, tokenizer, "The film was not bad at all."))
text.generated(model, tokenizer, "The capital of France is", max_new_tokens=5).save("why.html")
"""

from .embeddings import BaselineName
from .explaining import explain, generated, similarity
from .generated import Generated
from .result import Explained, Explanations

__all__ = ["BaselineName", "Explained", "Explanations", "Generated", "explain", "generated", "similarity"]
