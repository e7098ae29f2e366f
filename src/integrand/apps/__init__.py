"""The applications, one package each: those of the paper on real models, and what else people explain.

Nothing is imported here: each module needs packages of its own.
"""

from __future__ import annotations
