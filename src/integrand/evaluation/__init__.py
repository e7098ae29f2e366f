"""Scores and gradients at points of paths: fast, within memory, and checked. Nothing here knows of integrals."""
