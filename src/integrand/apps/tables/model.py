"""``explain``: which columns of a table made a model say what it says of each row.

A :class:`TableExplainer` binds a model to its columns and its baseline. It encodes rows as the model takes them, integrates all
of them in one call, and adds up what belongs to a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from ...batch.rows import Row
from ...certificate import Certificate
from ...errors import BaselineWarning, InputError, OptionError, TargetError, ZeroAttributionWarning, quiet
from ...functions.foreign import check_model
from ...functions.model_state import check_eval_mode, modules_of
from ...functions.target import Score, Target
from .background_rows import StartRows, start_rows
from .column_codes import ColumnCodes, codes_given
from .data_frames import TableRows, rows_of_records, rows_of_table
from .model_entry import ModelEntry, Takes, torch_model
from .result import TableExplanation
from .start_groups import StartGroups, merged

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

BATCH = 512
"""Rows that are integrated in one call, so that memory does not grow with the table."""

SOME = 20
"""The rows over whose average a row is explained where baselines are compared."""


def explain(
    model: Any,
    frame: Any,
    baseline: Any = "mean",
    *,
    columns: Any = None,
    rows: Any = None,
    target: Target | str = None,
    score: Score = "logit",
    classes: Sequence[str] | None = None,
    encoded: bool = False,
    takes: Takes = "numbers, codes",
    dtype: torch.dtype | None = None,
    tol: float = 0.01,
    **options: Any,
) -> TableExplanation:
    """Attribute what a model says of rows of a table to its columns, by integrated gradients, to a tolerance.

    Args:
        model: an ``nn.Module`` in eval mode (Lightning's and Keras 3's on torch among them), a function of tensors, a fitted
            skorch net, or a fitted pipeline of scikit-learn that ends in one.
        frame: a DataFrame of pandas or polars, anything else with ``__arrow_c_stream__`` or ``__dataframe__``, or an array.
        baseline: ``"mean"``: the column means of the frame; the label of a row; a row, as a dict or Series; or a table of rows,
            over which is averaged (expected gradients). :func:`mean` and :func:`sample` make one of another table.
        columns: how the columns become what the model takes, in its order. None: all are numbers, as they are. A list: the
            columns that are. A mapping from names to kinds: None, ``(mean, scale)``, a list of categories for one-hot, or
            :func:`number`, :func:`one_hot`, :func:`embedded`. Or a fitted transformer of scikit-learn.
        rows: the labels of the rows to explain, as in ``frame.loc``; None for all.
        target: the output: its number, its name in ``classes``, or a function of the output. None: the only output; the second
            of two; of more, the top one, where one row is explained.
        score: ``logit`` takes outputs as they are; ``probability`` and ``log-probability`` pass them through softmax or
            sigmoid.
        classes: names of the outputs.
        encoded: whether the frame holds the model's numbers already: they are shown as the columns that they stand for.
        takes: for models with embeddings: ``"numbers, codes"``, ``"codes, numbers"``, or ``"together"`` in one tensor.
        dtype: of the numbers that the model gets; by default that of its weights, or torch's own where it has none.
        tol: the relative error over the columns of a row to integrate to.
        **options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        A value for each row and column, with its error, and a certificate for each row.
    """
    explainer = TableExplainer.of(
        model,
        frame,
        baseline,
        columns=columns,
        target=target,
        score=score,
        classes=classes,
        encoded=encoded,
        takes=takes,
        dtype=dtype,
        tol=tol,
        **options,
    )
    return explainer.explain(frame, rows=rows)


@dataclass(frozen=True, eq=False)
class TableExplainer:
    """A model with its columns and its baseline; made by :meth:`of`.

    It explains tables (:meth:`explain`) and, for :func:`integrand.explain_many`, lists of rows as dicts.

    Attributes:
        model: from the model's tensors to its output.
        codes: how columns become these.
        starts: where paths begin.
        target: the output to explain.
        score: logit, probability or log-probability.
        classes: names of the outputs.
        encoded: whether tables hold the model's numbers already.
        takes: how the model takes numbers and rows of embeddings.
        dtype: of the numbers that the model gets; None for that of its weights.
        tol: the relative error to integrate to.
        options: further ones of :func:`integrand.integrated_gradients`.
        evaluate: whether the model runs in eval mode meanwhile, whatever mode it is in, as skorch runs it.
    """

    model: Callable[..., Any]
    codes: ColumnCodes
    starts: StartRows
    target: Target | str = None
    score: Score = "logit"
    classes: tuple[str, ...] = ()
    encoded: bool = False
    takes: Takes = "numbers, codes"
    dtype: torch.dtype | None = None
    tol: float = 0.01
    options: Mapping[str, Any] = field(default_factory=dict)
    evaluate: bool = False

    together = BATCH
    """Rows that are explained in one call where there are many; see :func:`integrand.explain_many`."""

    @staticmethod
    def of(
        model: Any,
        frame: Any,
        baseline: Any = "mean",
        *,
        columns: Any = None,
        target: Target | str = None,
        score: Score = "logit",
        classes: Sequence[str] | None = None,
        encoded: bool = False,
        takes: Takes = "numbers, codes",
        dtype: torch.dtype | None = None,
        tol: float = 0.01,
        **options: Any,
    ) -> TableExplainer:
        """Bind a model to the columns of a table and to a baseline; arguments as in :func:`explain`."""
        if takes not in get_args(Takes):
            raise OptionError(f"got takes={takes!r}; expected one of {', '.join(map(repr, get_args(Takes)))}.")
        for name in ("groups", "layer", "mask", "batched"):
            if name in options:
                raise OptionError(
                    f"got {name}=, which columns= decides here; leave it out, or use integrand.integrated_gradients."
                )
        module, steps, evaluate = torch_model(model)
        check_model(module)
        if steps is not None and columns is not None:
            raise OptionError("got columns= and a pipeline that has its own; expected one of them.")
        table = rows_of_table(frame)
        codes = codes_given(steps if columns is None else columns, table, together=takes == "together", encoded=encoded)
        table = codes.decode(table) if encoded else table
        starts = start_rows(baseline, table, codes, encoded=encoded)
        if starts.mean and len(starts.rows) == 1:
            raise InputError(
                "got one row and baseline='mean', which is that row; expected more rows to take the means of. Pass the whole "
                "frame with rows=, or baseline=tables.mean(training_frame)."
            )
        named = tuple(str(name) for name in classes or ())
        return TableExplainer(module, codes, starts, target, score, named, encoded, takes, dtype, tol, options, evaluate)

    def explain(self, frame: Any, *, rows: Any = None, progress: Any = None) -> TableExplanation:
        """Explain rows of a table.

        Args:
            frame: the table.
            rows: the labels of the rows to explain; None for all.
            progress: as in :func:`integrand.integrated_gradients`.
        """
        table = rows_of_table(frame)
        table = self.codes.decode(table) if self.encoded else table
        chosen = table if rows is None else table.take(table.places(rows))
        # The mean row has its class like any other, and the base value is always told; among several rows may be the baseline.
        usual = (BaselineWarning, *([ZeroAttributionWarning] if len(chosen) > 1 else []))
        with self._ready(), quiet(*usual):
            entry = self._entry
            start = self._start(entry)
            target, words = self._target(entry, chosen)
            parts = []
            for begin in range(0, len(chosen), BATCH):
                some = chosen.take(range(begin, min(begin + BATCH, len(chosen))))
                options = {**self.options, **({} if progress is None else {"progress": progress})}
                how = {"target": target, "score": self.score, "tol": self.tol, **options}
                parts.append(merged(entry, entry.tensors(some), start, how))
        values, errors, sampling = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("values", "errors", "sampling")
        )
        certificates = tuple(example for one in parts for example in one.certificate)
        shown_as = f"{words} ({self.score})" if self.score != "logit" and words else words
        named = tuple(replace(one, target=shown_as or one.target) for one in certificates)
        return TableExplanation(
            names=self.codes.names,
            labels=chosen.labels,
            cells={name: chosen.column(name) for name in self.codes.names},
            values=values,
            errors=errors,
            sampling=sampling if self.starts.drawn_from else None,
            certificate=Certificate(named, parts[0].certificate.promises),
            output=words,
            score=self.score,
            baseline=self.starts.words,
            baseline_cells=self._baseline_cells(),
            explained_by=self,
        )

    def __call__(self, items: list[Mapping[str, Any]]) -> list[Row]:
        """Explain rows that are dicts, as :func:`integrand.explain_many` hands them over; one row of its table for each."""
        found = self.explain(rows_of_records(items), progress=False)
        return found.table_rows()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that a result depends on beside its row, for the fingerprint of a table."""
        numbers, codes = self.codes.encode(self.starts.rows)
        hidden = ("progress", "memory", "devices")
        return {
            "model": self.model,
            "columns": repr(self.codes.parts),
            "baseline": [numbers, codes],
            "mean": self.starts.mean,
            "target": self.target,
            "score": self.score,
            "classes": self.classes,
            "takes": self.takes,
            "dtype": str(self.dtype),
            "tol": self.tol,
        } | {name: value for name, value in self.options.items() if name not in hidden}

    def interactions(self, frame: Any, *, tol: float = 0.02, starts: int = 8, **options: Any) -> Any:
        """Which columns act together, by integrated Hessians: (rows, columns, columns), with certificates of their own.

        Args:
            frame: the rows.
            tol: the relative error to integrate to.
            starts: where there are more baselines than this, so many of them, evenly spread: the matrix takes far more work.
            **options: further ones of :func:`integrand.integrated_hessians`.
        """
        from ...analysis import integrated_hessians

        rows = rows_of_table(frame)
        with self._ready():
            entry = self._entry
            start = self._start(entry).fewer(starts)
            target, _ = self._target(entry, rows)
            given = {"target": target, "score": self.score, "tol": tol, "progress": False} | options
            x = entry.tensors(rows)
            return integrated_hessians(
                entry.model,
                entry.given(x),
                start.baselines(len(rows)),
                groups=entry.groups(x),
                layer=entry.layers,
                batched=True,
                **given,
            )

    def inquiry(self, frame: Any, *, row: Any = None) -> Inquiry:
        """What is asked about a row, for other methods and baselines, column by column.

        ``inquiry(...).diagnose()`` compares the column means and medians and the average over some rows as baselines;
        ``.compare_methods()`` other methods. Where the baseline is not the column means, it is the only candidate.

        Args:
            frame: the table.
            row: the label of the row; may be left out where there is one.
        """
        from ...analysis.inquiry import Inquiry

        table = rows_of_table(frame)
        table = self.codes.decode(table) if self.encoded else table
        chosen = table if row is None else table.take(table.places(row)[:1])
        if len(chosen) > 1:
            raise OptionError(f"got {len(chosen)} rows; expected the label of one: row={chosen.labels[0]!r}.")
        with self._ready():
            entry = self._entry
            x = entry.tensors(chosen)
            target, words = self._target(entry, chosen)
            start, all_rows = self._start(entry), entry.values(entry.tensors(self.starts.rows))
            groups = entry.groups(x)
        call: dict[str, Any] = {"target": target, "score": self.score, "groups": groups, "batched": True}
        call |= {} if entry.layers is None else {"layer": entry.layers}
        candidates: dict[str, Any] = {self.starts.words: start.baselines(1)}
        if self.starts.mean:
            middle = StartGroups(tuple(leaf.median(0, keepdim=True).values for leaf in all_rows))
            several = StartGroups(all_rows).fewer(SOME)
            candidates |= {"the column medians": middle.baselines(1), f"{several.count} rows": several.baselines(1)}
        label = f"{words} ({self.score})" if self.score != "logit" and words else words or "the score"
        return Inquiry(
            entry.model,
            entry.given(x),
            start.baselines(1),
            call,
            label,
            features=self.codes.names,
            candidates=candidates,
        )

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Eval mode for as long as it takes, where the model's own framework would see to that; else it has to be in it.

        Raises:
            TrainModeError: it is not; told before the model is called, which would change its running statistics.
        """
        if not self.evaluate:
            check_eval_mode(modules_of(self.model))
        modules = [one for root in modules_of(self.model) for one in root.modules()] if self.evaluate else []
        before = [one.training for one in modules]
        try:
            for one in modules:
                one.training = False
            yield
        finally:
            for one, was in zip(modules, before, strict=True):
                one.training = was

    @property
    def _entry(self) -> ModelEntry:
        return ModelEntry.of(self.model, self.codes, self.takes, self.dtype)

    def _start(self, entry: ModelEntry) -> StartGroups:
        found = entry.values(entry.tensors(self.starts.rows))
        if self.starts.mean:
            found = tuple(leaf.double().mean(0, keepdim=True).to(leaf.dtype) for leaf in found)
        return StartGroups(found, self.starts.drawn_from)

    def _baseline_cells(self) -> Mapping[str, Any]:
        """What the baseline has in each column, for people: a mean, a category, or nothing where there are several."""
        rows = self.starts.rows
        if not self.starts.mean:
            return {name: rows.column(name)[0] for name in self.codes.names} if len(rows) == 1 else {}
        numeric = {name for name, part in self.codes.parts if type(part).__name__ == "NumberColumn"}
        found: dict[str, Any] = {}
        for name, part in self.codes.parts:
            if name in numeric:
                found[name] = float((part.encode(rows.column(name), name, rows.labels)[:, 0] * part.scale + part.mean).mean())  # type: ignore[union-attr]
        return found

    def _target(self, entry: ModelEntry, rows: TableRows) -> tuple[Target, str]:
        """The output to explain, and what it is called."""
        asked = self.target
        if callable(asked):
            return asked, getattr(asked, "__name__", "score").replace("<lambda>", "score")
        outputs = entry.outputs(rows.take(range(min(len(rows), 2))))
        if isinstance(asked, str):
            if asked not in self.classes:
                known = ", ".join(map(repr, self.classes)) or "none are named: pass classes=[...]"
                raise TargetError(f"got target={asked!r}; expected a number, or one of the classes: {known}.")
            asked = self.classes.index(asked)
        if outputs is None or not isinstance(asked, (int, np.integer, type(None))):
            return asked, ""
        if self.classes and len(self.classes) not in (outputs, 2 if outputs == 1 else outputs):
            raise OptionError(f"got {len(self.classes)} classes for {outputs} outputs; expected a name for each.")
        if asked is None and outputs == 2:
            asked = 1
        if asked is None and outputs > 2:
            if len(rows) > 1:
                raise TargetError(
                    f"the model has {outputs} outputs and {len(rows)} rows are explained; expected target=, the one output "
                    "that all of them are explained for: its number, or its name in classes."
                )
            asked = entry.top(rows)
        place = 0 if asked is None else int(asked)
        if outputs == 1 and asked is not None and place == 0 and len(self.classes) == 2:
            first, second = self.classes
            raise TargetError(
                f"got the target {first!r}, and the model has one output, which speaks for {second!r}; expected that, or none. "
                f"What speaks for {second!r} speaks against {first!r}, with the sign turned."
            )
        if outputs == 1:
            # One output is the score of the second of two classes, or of the only one.
            return (None if asked is None or (place == 1 and len(self.classes) == 2) else place), (self.classes or ("",))[-1]
        return place, self.classes[place] if 0 <= place < len(self.classes) else f"output {place}"
