"""The applications of the paper on real models, one package each.

Nothing is imported here: each module needs packages of its own.
"""

from __future__ import annotations
