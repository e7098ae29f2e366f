"""Texts and Hugging Face models: :mod:`integrand.apps.text` under a shorter name."""

from .apps.text import BaselineName, Explained, Explanations, Generated, compare, explain, generated, inquiry, similarity

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
