"""The web app: drop a photo, type a sentence, paste a molecule, pick a row of a table, and look.

:func:`serve` starts it, as ``integrand serve`` does: over the networks that integrand knows, or over a model of yours. Nothing
of this is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import loaded_on_use

if TYPE_CHECKING:
    from .server import RunningServer, serve
else:
    __getattr__, __dir__ = loaded_on_use(__name__, {"RunningServer": "server", "serve": "server"})

__all__ = ["RunningServer", "serve"]
