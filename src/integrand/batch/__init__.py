"""Many inputs: explained a few at a time, kept in a table as they come, resumed where an earlier run was stopped.

:func:`~integrand.batch.many.explain_many` is the front door; :class:`~integrand.batch.table.ExplainedTable` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import loaded_on_use

if TYPE_CHECKING:
    from .many import BatchOutcome, BatchSummary, BatchTask, BatchWatcher, ManyExplained, explain_each, explain_many
    from .model_explainer import ModelExplainer
    from .rows import Row
    from .table import ExplainedTable, Manifest, TableStore
    from .table_summary import TableSummary
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BatchOutcome": "many",
            "BatchSummary": "many",
            "BatchTask": "many",
            "BatchWatcher": "many",
            "ExplainedTable": "table",
            "ManyExplained": "many",
            "Manifest": "table",
            "ModelExplainer": "model_explainer",
            "Row": "rows",
            "TableStore": "table",
            "TableSummary": "table_summary",
            "explain_each": "many",
            "explain_many": "many",
        },
    )

__all__ = [
    "BatchOutcome",
    "BatchSummary",
    "BatchTask",
    "BatchWatcher",
    "ExplainedTable",
    "Manifest",
    "ManyExplained",
    "ModelExplainer",
    "Row",
    "TableStore",
    "TableSummary",
    "explain_each",
    "explain_many",
]
