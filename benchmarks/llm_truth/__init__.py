"""Explanations of a real language model next to dense references, and whether they find the word that decides."""
