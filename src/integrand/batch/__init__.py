"""Many inputs: explained a few at a time, kept as they come, resumed where an earlier run was stopped.

:func:`~integrand.batch.resumable.explain_each` is the runner. What differs between photos, eyes and molecules is a
:class:`~integrand.batch.resumable.BatchTask`; where results are kept is an :class:`~integrand.batch.store.EntryStore`.
"""

from __future__ import annotations

from .resumable import BatchOutcome, BatchSummary, BatchTask, BatchWatcher, explain_each, kept_results
from .store import EntryStore, LineStore, fingerprint

__all__ = [
    "BatchOutcome",
    "BatchSummary",
    "BatchTask",
    "BatchWatcher",
    "EntryStore",
    "LineStore",
    "explain_each",
    "fingerprint",
    "kept_results",
]
