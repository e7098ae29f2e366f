"""Tables: which columns made a model say what it says of a row, with an error for every value.

found = tables.explain(model, frame, columns={"age": (47.1, 14.2), "sex": ["female", "male"]}, rows=[17])
print(found)                                     # Row 17: 0.93 ..., mostly because age is 61 (+0.21 ± 0.002) ...
found.waterfall(); found.to_shap()               # pictures, and a shap.Explanation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .background_rows import mean, sample
    from .column_codes import embedded, number, one_hot
    from .model import TableExplainer, explain
    from .result import TableExplanation
    from .trained_tables import load
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "TableExplainer": "model",
            "TableExplanation": "result",
            "embedded": "column_codes",
            "explain": "model",
            "load": "trained_tables",
            "mean": "background_rows",
            "number": "column_codes",
            "one_hot": "column_codes",
            "sample": "background_rows",
        },
    )

__all__ = ["TableExplainer", "TableExplanation", "embedded", "explain", "load", "mean", "number", "one_hot", "sample"]
