"""Tables and the models that take their rows: :mod:`integrand.apps.tables` under a shorter name."""

from .apps.tables import TableExplainer, TableExplanation, embedded, explain, load, mean, number, one_hot, sample

__all__ = ["TableExplainer", "TableExplanation", "embedded", "explain", "load", "mean", "number", "one_hot", "sample"]
