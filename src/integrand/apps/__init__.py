"""The applications of the paper: real networks, photos and pictures, one module each.

Nothing is imported here: each module needs packages of its own.
"""

from __future__ import annotations
