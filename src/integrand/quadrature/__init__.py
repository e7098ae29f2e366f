"""Rules as data, panels that are halved where it pays, and error estimates that are tested on their own."""

from __future__ import annotations

from .fixed_rules import RULES, Rule, gauss_legendre, left, midpoint, right, romberg, simpson, trapezoid

__all__ = ["RULES", "Rule", "gauss_legendre", "left", "midpoint", "right", "romberg", "simpson", "trapezoid"]
