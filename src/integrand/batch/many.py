"""The runner over many inputs: a few at a time, past those that fail, onwards from where an earlier run was stopped.

:func:`explain_many` is the front door: any source, anything that explains, a folder of Parquet parts. What differs between
photos, molecules and a user's own function is a :class:`BatchTask`; :func:`explain_each` runs one. Inputs go together in the
same way whether or not a run was stopped, so that the table is the same, bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from ..bounded_reading import ChangeRecord
from ..errors import (
    ConvergenceWarning,
    GradientError,
    InputError,
    IntegrandError,
    MissingExtraError,
    OperationError,
    OptionError,
    OutputError,
    RandomnessError,
    RowsError,
    TargetError,
    TrainModeError,
    TrustError,
    quiet,
)
from ..evaluation.progress import in_notebook
from ..files import ready
from ..trees import flatten
from ..words import byte_size, first_line, shown
from .identity import described, digest_of_input, settings_of
from .inputs import Key, KeyedInput, inputs_of
from .rows import KEEPING, MOST_VALUES, Keeping, Row, key_text, rows_of
from .table import FILES, ExplainedTable, KeyIndex, Manifest, TableStore, name_of, short_digest

Item = TypeVar("Item")

LOOKAHEAD = 4
"""Batches that are looked at together where inputs differ in size, to put those of about the same size into one; also what a
kill can cost."""

CALL = 100.0
"""What a call costs beside its inputs, as so many times what an input of average size costs for its size. It lies between two
machines on which questions were timed: 25 on one, over 300 on another with faster arithmetic."""

TOGETHER = 16
"""Inputs that are explained in one call where nothing else is said."""


class BatchTask(ABC, Generic[Item]):
    """What to do with every input. An application is a subclass of a few lines.

    Attributes:
        together: inputs that are explained in one call.
        lookahead: batches that are looked at together, to put inputs of about the same size into one; also what a kill can
            cost. None is :data:`LOOKAHEAD`; 1 where all inputs are of one size.
        stops: errors that no input is to blame for, such as a missing package: they end the run. Any other becomes the failure
            of its input, and the run goes on.
        doubts: errors that end the run as long as no input was ever explained, for then the call is wrong, such as an unknown
            option or a model in train mode. Later they are failures of their inputs, such as a label that the model does not
            have.
    """

    together: int = 1
    lookahead: int | None = None
    stops: ClassVar[tuple[type[BaseException], ...]] = (MissingExtraError, TrustError)
    doubts: ClassVar[tuple[type[BaseException], ...]] = (
        *(OptionError, TargetError, TrainModeError, OutputError, GradientError, RandomnessError, RowsError, OperationError),
        *(TypeError, NameError, AttributeError, ImportError),
    )

    @abstractmethod
    def key(self, item: Item) -> str:
        """What tells an input from all others, the same in every run."""

    def name(self, item: Item) -> str:
        """What to call an input in a progress bar."""
        return self.key(item)

    def digest(self, item: Item) -> str:
        """What tells that an input has changed under its key; empty if that cannot be told."""
        return ""

    def problem(self, item: Item) -> str:
        """Why an input cannot be explained, where that is known from reading it; empty otherwise."""
        return ""

    def size(self, item: Item) -> float:
        """How large an input is, so that inputs of about the same size go together. An error is a failure of the input."""
        return 0.0

    @abstractmethod
    def explain(self, items: Sequence[Item]) -> Sequence[Any]:
        """Explain some inputs in one call; one result for each, in the same order."""

    @abstractmethod
    def row(self, item: Item, found: Any) -> Row:
        """Turn a result into what is kept of it. Errors here, such as a full disk, are no input's fault: they end the run."""

    def columns(self, item: Item) -> Mapping[str, Any]:
        """What an input brings along, whether it can be explained or not."""
        return {}

    def is_current(self, item: Item, read: Callable[[], Row | None]) -> bool:
        """Whether the row of an earlier run, which ``read`` gives, still holds: false if a file of it is gone."""
        return True


@dataclass(frozen=True)
class BatchOutcome(Generic[Item]):
    """What became of one input.

    Attributes:
        item: the input.
        key: what tells it from all others.
        read: gives its row; that of an earlier run is read when it is asked for.
        failed: whether it could not be explained.
        known: whether an earlier run had looked at it.
        repeated: whether its key was that of an earlier input of this run, with whose row it goes.
        clashes: whether that earlier input was another one.
    """

    item: Item
    key: str
    read: Callable[[], Row]
    failed: bool = False
    known: bool = False
    repeated: bool = False
    clashes: bool = False

    @property
    def row(self) -> Row:
        """Its row in the table."""
        return self.read()


@dataclass
class BatchSummary(Generic[Item]):
    """How a run went so far.

    Attributes:
        total: inputs that were looked at.
        known: those of them that an earlier run had explained.
        failed: how many could not be explained.
        reasons: the first of them, each with the reason.
        repeated: inputs whose key an earlier one had.
        left_out: those of them that are other inputs than the earlier one, which was explained: the table has nothing of them.
        clashes: keys that two different inputs have, the first of them.
        missed: inputs of this run whose tolerance was not met.
    """

    NAMED: ClassVar[int] = 1000
    """The most failures that are held in memory; the table has all."""

    total: int = 0
    known: int = 0
    failed: int = 0
    reasons: list[tuple[Item, str]] = field(default_factory=list)
    repeated: int = 0
    left_out: int = 0
    clashes: list[str] = field(default_factory=list)
    missed: int = 0

    def add(self, outcome: BatchOutcome[Item]) -> None:
        """Count one more input."""
        self.total += 1
        self.repeated += outcome.repeated
        self.left_out += outcome.clashes and not outcome.failed
        if outcome.clashes and len(self.clashes) < self.NAMED:
            self.clashes.append(outcome.key)
        if outcome.failed:
            self.failed += 1
            if len(self.reasons) < self.NAMED:
                self.reasons.append((outcome.item, outcome.row.failure or ""))
        elif outcome.known:
            self.known += 1
        elif not outcome.repeated:
            self.missed += outcome.row.status not in ("converged", "exact")

    @property
    def explained(self) -> int:
        """Inputs that have a result."""
        return self.total - self.failed

    @property
    def exit_code(self) -> int:
        """For a command: 0 if every input was explained, 1 if some were, 2 if none was."""
        return 0 if not self.failed else 1 if self.explained else 2


class BatchWatcher(Protocol):
    """Somebody who wants to know how far a run is, such as a progress bar."""

    def begin(self, name: str) -> None:
        """Work on the input of this name, and those in a batch with it, begins."""
        ...

    def advance(self, count: int, failed: int = 0) -> None:
        """So many more inputs are done with, and so many of them failed."""
        ...


class _Nobody:
    def begin(self, name: str) -> None:
        pass

    def advance(self, count: int, failed: int = 0) -> None:
        pass


def explain_each(
    task: BatchTask[Item],
    items: Iterable[Item],
    store: TableStore,
    *,
    watcher: BatchWatcher | None = None,
    retry_failed: bool = False,
    stop: StopRequest | None = None,
) -> Iterator[BatchOutcome[Item]]:
    """Explain inputs that the store does not hold yet, and give the outcome of every one, in order.

    Rows are added in the order of the inputs, some batches at a time, so that after a stop at any moment the same call goes on
    with what is missing, in the same batches.

    Args:
        task: what to do with an input.
        items: the inputs; taken from as needed, never all at once.
        store: where rows are kept, and where those of earlier runs are looked for.
        watcher: told how far the run is.
        retry_failed: explain inputs again that an earlier run could not.
        stop: looked at after every input; from :func:`stopped_by_signals`.

    Yields:
        One outcome for each input.
    """
    watch = watcher or _Nobody()
    mine = KeyIndex()
    for window in windows(task, items):
        for outcome in _explain_window(task, window, store, watch, mine, retry_failed):
            yield outcome
            if stop is not None:
                stop.check()


def windows(task: BatchTask[Item], items: Iterable[Item]) -> Iterator[list[Item]]:
    """Split the inputs, in order, into lists of as many as are looked at together to form batches."""
    rest = iter(items)
    while window := list(itertools.islice(rest, window_size(task))):
        yield window


def window_size(task: BatchTask[Any]) -> int:
    """How many inputs are looked at together to form batches. Their rows are written together, too."""
    return task.together * ((task.lookahead or LOOKAHEAD) if task.together > 1 else 1)


def plan(task: BatchTask[Item], new: Mapping[str, Item]) -> tuple[list[list[str]], dict[str, str]]:
    """Group inputs of about the same size into batches.

    Args:
        task: knows how large inputs are, and how many go together.
        new: the inputs by their keys.

    Returns:
        The keys of each batch, small inputs first; and by key, why some inputs cannot be explained.
    """
    sizes: dict[str, float] = {}
    failed: dict[str, str] = {}
    for key, item in new.items():
        if why := task.problem(item):
            failed[key] = why
            continue
        try:
            sizes[key] = task.size(item)
        except task.stops:
            raise
        except Exception as error:
            failed[key] = _why(error)
    order = sorted(sizes, key=lambda key: sizes[key])
    ends = ends_of_batches([sizes[key] for key in order], task.together)
    return [order[start:end] for start, end in itertools.pairwise([0, *ends])], failed


def ends_of_batches(sizes: Sequence[float], most: int) -> list[int]:
    """Where batches end that take the least time, if all inputs of one take as long as the largest of it.

    Without this, the few largest of the inputs that are looked at would make a whole batch as large as they are.

    >>> ends_of_batches([8] * 60 + [37] * 4, 64), ends_of_batches([8] * 5, 2)
    ([60, 64], [2, 4, 5])

    Args:
        sizes: how large the inputs are, in ascending order.
        most: the most of them in a batch.
    """
    if not sizes or sizes[0] == sizes[-1]:
        return [*range(most, len(sizes), most), len(sizes)] if sizes else []
    call = CALL * float(np.mean(sizes))
    least, begins = np.zeros(len(sizes) + 1), [0] * (len(sizes) + 1)
    counts = np.arange(len(sizes), 0, -1)
    for end in range(1, len(sizes) + 1):
        first = max(0, end - most)
        costs = least[first:end] + counts[len(sizes) - end + first :] * sizes[end - 1]
        begins[end] = first + int(costs.argmin())
        least[end] = costs.min() + call
    ends = [len(sizes)]
    while begins[ends[-1]]:
        ends.append(begins[ends[-1]])
    return ends[::-1]


@dataclass(frozen=True)
class Failed:
    """In place of a result: why there is none.

    Attributes:
        why: the reason, for the row of the input.
        doubt: the error, if it may be a mistake in the call rather than one in the input.
    """

    why: str
    doubt: BaseException | None = None


def explain_batch(task: BatchTask[Item], items: Sequence[Item]) -> list[Any]:
    """Explain inputs together; if that fails, one by one, so that only those fail that are at fault.

    Args:
        task: what to do with an input.
        items: the inputs.

    Returns:
        One result for each, or a :class:`Failed`.
    """
    try:
        with quiet(ConvergenceWarning):  # the status of the row says it
            found = list(task.explain(items))
        if len(found) != len(items):
            raise OptionError(f"got {len(found)} results for {len(items)} inputs; expected one for each, in the same order.")
        return found
    except task.stops:
        raise
    except Exception as error:
        if len(items) == 1:
            return [Failed(_why(error), error if isinstance(error, task.doubts) else None)]
        del error  # with all that its frames hold: after lack of memory, that much less
    return [explain_batch(task, [item])[0] for item in items]


def explain_window(
    task: BatchTask[Item],
    new: Mapping[str, Item],
    watch: BatchWatcher | None = None,
    *,
    digests: Mapping[str, str] | None = None,
    proven: bool = False,
) -> dict[str, Row]:
    """Explain inputs in batches of about the same size; their rows by their keys, in the order of the inputs.

    It depends on nothing but the task and the inputs: another process, or another machine, gives the same bits.

    Args:
        task: what to do with an input.
        new: the inputs by their keys.
        watch: told how far it is.
        digests: of the inputs, where they are known already.
        proven: whether the task has explained any input before: ``task.doubts`` are failures of inputs then.
    """
    watch = watch or _Nobody()
    if digests is None:  # before the work, during which a file may change
        digests = {key: input_digest(task, item) for key, item in new.items()}
    batches, failed = plan(task, new)

    def signed(key: str, row: Row) -> Row:
        return _signed(row, key, digests[key], task.columns(new[key]))

    rows = {key: signed(key, Row.failed(key, why)) for key, why in failed.items()}
    watch.advance(len(failed), len(failed))
    for batch in batches:
        watch.begin(task.name(new[batch[0]]))
        found = explain_batch(task, [new[key] for key in batch])
        proven = proven or not all(isinstance(one, Failed) for one in found)
        if not proven and (doubt := next((one.doubt for one in found if one.doubt is not None), None)) is not None:
            raise doubt
        for key, one in zip(batch, found, strict=True):
            rows[key] = signed(key, Row.failed(key, one.why) if isinstance(one, Failed) else task.row(new[key], one))
        watch.advance(len(batch), sum(isinstance(one, Failed) for one in found))
    return {key: rows[key] for key in new}


def input_digest(task: BatchTask[Item], item: Item) -> str:
    """What tells that an input has changed under its key, as the table holds it; empty if that cannot be told."""
    try:
        return short_digest(task.digest(item))
    except Exception:  # a file that cannot be read, a picture that is cut off: explaining it will say so
        return ""


def _signed(row: Row, key: str, digest: str, columns: Mapping[str, Any]) -> Row:
    signed = Row.__new__(Row)  # dataclasses.replace takes ten times as long: more than all else that is done for a row here
    vars(signed).update(vars(row), key=key, input_digest=digest, columns={**columns, **row.columns}, whole=None)
    return signed


def _explain_window(
    task: BatchTask[Item],
    window: Sequence[Item],
    store: TableStore,
    watch: BatchWatcher,
    mine: KeyIndex,
    retry_failed: bool,
) -> list[BatchOutcome[Item]]:
    """Explain what the store does not hold of some inputs; the outcome of each, in order."""
    new: dict[str, Item] = {}
    digests: dict[str, str] = {}
    looked_at: list[tuple[Item, str, dict[str, bool]]] = []
    for item in window:
        key = key_text(task.key(item))
        digest = input_digest(task, item)
        if (twin := mine.get(key)) is not None:
            watch.advance(1)
            looked_at.append((item, key, {"repeated": True, "clashes": bool(digest and twin[3] and digest != twin[3])}))
            continue
        mine.add(key, 0, 0, ok=True, digest=digest)
        state = store.known(key)
        holds = state is not None and (not digest or not state[1] or digest == state[1])
        if holds and state is not None and not state[0]:
            holds = not retry_failed
        elif holds:
            holds = task.is_current(item, lambda key=key: store.get(key))  # type: ignore[misc]
        if not holds:
            new[key], digests[key] = item, digest
        else:
            watch.advance(1, int(state is not None and not state[0]))
        looked_at.append((item, key, {"known": holds}))
    rows = explain_window(task, new, watch, digests=digests, proven=store.holds_results) if new else {}
    if rows:
        store.put(list(rows.values()))

    def outcome(item: Item, key: str, how: dict[str, bool]) -> BatchOutcome[Item]:
        if (row := rows.get(key)) is not None:  # no need to read it from the part where it may be by now
            return BatchOutcome(item, key, lambda: row, failed=not row.ok, **how)
        state = store.known(key)
        return BatchOutcome(item, key, lambda: _kept(store, key), failed=state is not None and not state[0], **how)

    return [outcome(*one) for one in looked_at]


def _kept(store: TableStore, key: str) -> Row:
    row = store.get(key)
    if row is None:
        raise IntegrandError(f"the row of {shown(key)!r} is not to be found any more; run the same again.")
    return row


def _why(error: Exception) -> str:
    """What is kept of an error: its message if it is ours, its kind and first line otherwise."""
    return str(error) if isinstance(error, IntegrandError) else f"{type(error).__name__}: {first_line(error)}"


# ---- the front door ----------------------------------------------------------------------------------------------------------


class CallableTask(BatchTask[KeyedInput]):
    """Anything that explains a list of inputs, as a task.

    Attributes:
        folder: where files with attributions go.
        keep: how attributions are kept.
    """

    def __init__(
        self,
        explain: Callable[[list[Any]], Any],
        folder: Path,
        *,
        together: int | None = None,
        size: Callable[[Any], float] | None = None,
        keep: Keeping = "auto",
    ) -> None:
        if not callable(explain):
            raise OptionError(f"got explain={explain!r}; expected something that can be called with a list of inputs.")
        self._explain, self._size = explain, size or offered(explain, "size")
        self.lookahead = LOOKAHEAD if (found := offered(explain, "lookahead")) is None else found
        if not isinstance(self.lookahead, int) or self.lookahead < 1:
            raise OptionError(f"got lookahead={found!r} of what explains; expected a number of batches, at least 1.")
        self.lookahead = 1 if self._size is None else self.lookahead
        self.together: int = together if together is not None else offered(explain, "together") or TOGETHER
        if not isinstance(self.together, int) or self.together < 1:
            raise OptionError(f"got together={together!r}; expected how many inputs are explained in one call, at least 1.")
        self.folder, self.keep = folder, keep

    def key(self, item: KeyedInput) -> str:
        """The key that the source gave it."""
        return item.key

    def digest(self, item: KeyedInput) -> str:
        """A digest of what is explained, and of what the input brings along: both are in its row."""
        return digest_of_input((item.item, item.columns) if item.columns else item.item)

    def problem(self, item: KeyedInput) -> str:
        """What the source found wrong with it."""
        return item.problem

    def size(self, item: KeyedInput) -> float:
        """As the user says it, or what explains: ``explain.size``."""
        return 0.0 if self._size is None else float(self._size(item.item))

    def explain(self, items: Sequence[KeyedInput]) -> list[Row]:
        """The rows of some inputs."""
        given = [item.item for item in items]
        try:
            return rows_of(self._explain(given), len(items))
        except InputError as error:
            if not given or not all(map(_is_record, given)):
                raise
            names = ", ".join(shown(str(name)) for name in given[0])
            raise OptionError(f"{error} Inputs are whole rows here: column= says which one is explained of {names}.") from error

    def columns(self, item: KeyedInput) -> Mapping[str, Any]:
        """What the input brought along."""
        return item.columns

    def row(self, item: KeyedInput, found: Row) -> Row:
        """The row, with its attributions in a file beside the table if they are large."""
        large = found.attributions is not None and np.size(found.attributions) > MOST_VALUES
        if self.keep == "none":
            return replace(found, attributions=None, attribution_errors=None)
        if self.keep == "files" or (self.keep == "auto" and large):
            return _in_file(found, f"{item.key} {input_digest(self, item)}", self.folder, asked=self.keep == "files")
        return found


def _is_record(item: object) -> bool:
    """Whether an input is a row of a table with words in it, rather than something for a model."""
    plain = (str, int, float, type(None))
    values = list(item.values()) if isinstance(item, Mapping) else []
    return any(isinstance(value, str) for value in values) and all(isinstance(value, plain) for value in values)


def offered(explain: object, name: str) -> Any:
    """What something that explains says of itself, such as ``together``: it, or the object whose method it is; else None.

    Args:
        explain: a function, a method, a partial of one, or an object that can be called.
        name: the attribute.
    """
    while isinstance(explain, functools.partial):
        explain = explain.func
    found = getattr(explain, name, None)
    return getattr(getattr(explain, "__self__", None), name, None) if found is None else found


def _in_file(row: Row, name: str, folder: Path, *, asked: bool) -> Row:
    """Write the attributions of a row into a file beside the table; ``Attribution.load`` reads it. Sums stay in the row.

    Args:
        row: of the table.
        name: of the input, other for another input with the same key.
        folder: of the table.
        asked: whether the user wants a file.
    """
    if row.whole is None:
        if asked and row.attributions is not None:
            raise OptionError(
                "got attributions='files' and results that are dicts or rows of your own; expected an integrand.Attribution "
                "for each input, which can be saved. Pass attributions='values'."
            )
        return row
    place = folder / FILES
    if not place.is_dir():
        ready(place)
    file = place / f"{name_of(name).hex()}.safetensors"
    row.whole.save(file)
    summed = np.size(row.attributions) < sum(leaf.numel() for leaf in flatten(row.whole.values)[1])
    kept = row if summed else replace(row, attributions=None, attribution_errors=None)
    return replace(kept, attribution_file=f"{FILES}/{file.name}")


def explain_many(
    source: Any,
    explain: Callable[[list[Any]], Any],
    out: str | Path,
    *,
    key: Key = None,
    column: str | None = None,
    carry: Sequence[str] | Mapping[str, str] = (),
    attributions: Keeping = "auto",
    together: int | None = None,
    size: Callable[[Any], float] | None = None,
    settings: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    again: bool = False,
    progress: bool | BatchWatcher | None = None,
    title: str = "",
) -> ManyExplained:
    """Explain many inputs into a folder of Parquet parts, one row each; the same call goes on where an earlier one was stopped.

    A kill at any moment costs the last few seconds, and the inputs at hand: as many as are explained ``together``, or a few
    times as many where inputs differ in size. An input that cannot be read or explained becomes a row that says why, and the
    run goes on. Rows of runs with other weights, options or versions are never mixed: that is an error that says what differs.

    >>> import tempfile, torch, integrand as ig
    >>> model = torch.nn.Linear(3, 1).eval()
    >>> data = torch.eye(3)
    >>> found = ig.explain_many(data, ig.batch.ModelExplainer(model), tempfile.mkdtemp())
    >>> found.summary.explained, found.table.arrow(["status"]).to_pylist()[0]
    (3, {'status': 'converged'})

    Args:
        source: the inputs: anything to go through, a DataLoader or Dataset of torch, a Hugging Face data set, a mapping from
            keys to inputs, a folder (of files), or a ``.parquet``, ``.csv``, ``.tsv`` or ``.jsonl`` file (of rows).
        explain: takes a list of inputs and gives an :class:`~integrand.Attribution` with an example for each, or a list
            with a result for each: of ``integrand.apps``, an Attribution, or a dict of columns. Usually a
            :class:`~integrand.batch.ModelExplainer`, or a method such as ``questions.load("trec").explain``; options are bound
            with ``functools.partial``. What it is, weights included, goes into the fingerprint of the folder; a ``Path`` that
            is bound counts by what is in its file, a ``str`` by itself.
        out: the folder; made if there is none.
        key: what tells inputs apart: a column, or a function of the input. Default: the place in the source, or the path.
        column: where inputs are rows of a table, the column that is explained. Default: the row as a dict.
        carry: where inputs are rows, further columns that are copied into the table, such as the true label; a mapping
            gives them other names there: ``{"target": "true_target"}``.
        attributions: how attributions are kept: ``values`` as a list of a fixed size, ``lists`` for inputs of different sizes,
            ``files`` in a file beside the table for each input, ``none``. ``auto`` takes files for inputs with more than 4096
            features, and lists of any size where features have names of their own (words, atoms).
        together: inputs that are explained in one call; default ``explain.together`` (or that of the object whose method
            explains), or 16. They share the model's chunks, and
            each stops on its own.
        size: how large an input is, so that inputs of about the same size are explained together; default ``explain.size``.
        settings: what else results depend on and ``explain`` does not show.
        retry_failed: explain inputs again that an earlier run could not; a success takes the place of the failure.
        again: explain all inputs again; a row stays until it is replaced.
        progress: True or False for a bar (None: on a terminal or in a notebook), or an object with ``begin`` and ``advance``.
        title: what the run is about, for the summary page.

    Returns:
        How the run went, and the table.

    Raises:
        FileError: the source cannot be read, or its file changed meanwhile: inputs may be missing. What is done is kept.
    """
    if attributions not in KEEPING:
        raise OptionError(f"got attributions={attributions!r}; expected one of {', '.join(KEEPING)}.")
    folder = Path(out)
    inputs, total = inputs_of(source, key=key, column=column, carry=carry)
    task = CallableTask(explain, folder, together=together, size=size, keep=attributions)
    made = made_with(settings_of(explain), task.together, window_size(task), settings, key)
    summary: BatchSummary[KeyedInput] = BatchSummary()
    start = time.monotonic()
    change = ChangeRecord()
    with (
        TableStore.opened(folder, Manifest(made, attributions, title), again=again) as store,
        stopped_by_signals() as stop,
        watching(progress, total) as watch,
    ):
        each = change.until_changed(inputs)
        for outcome in explain_each(task, each, store, watcher=watch, retry_failed=retry_failed, stop=stop):
            # Not the input itself, which may be large: failures are held until the end.
            summary.add(replace(outcome, item=replace(outcome.item, item=None)) if outcome.failed else outcome)
        store.finish()
    change.check()
    return ManyExplained(ExplainedTable.open(folder), summary, time.monotonic() - start)


def made_with(
    known: Mapping[str, Any], together: int, window: int, settings: Mapping[str, Any] | None, key: Key
) -> dict[str, Any]:
    """Everything that a row depends on beside its input, as the manifest of a table has it.

    Args:
        known: of what explains, from :func:`~integrand.batch.identity.settings_of`.
        together: inputs that are explained in one call.
        window: inputs among which batches are formed: of another number, others would be explained together.
        settings: what the user adds.
        key: what tells inputs apart: with other keys, inputs that are done would come again under new ones.
    """
    named = "the place in the source" if key is None else key if isinstance(key, str) else "a function"
    formed = {"together": together, "window": window, "key": named}
    return {**known, **formed, **({"settings": described(dict(settings))} if settings else {})}


def rows_of_others(count: int) -> str:
    """How many rows of a table are not of inputs of this run, in words."""
    rows = "row is of an input" if count == 1 else "rows are of inputs"
    return f"{count:,} more {rows} of earlier runs (a new folder has none)"


@dataclass(frozen=True, repr=False)
class ManyExplained:
    """How a run over many inputs went.

    Attributes:
        table: the table that it wrote.
        summary: how many inputs were explained, and which failed.
        seconds: how long it took.
    """

    table: ExplainedTable
    summary: BatchSummary[Any]
    seconds: float

    @property
    def explained(self) -> int:
        """Inputs that have a result of their own, or that of an input that is the same."""
        return self.summary.explained - self.summary.left_out

    @property
    def others(self) -> int:
        """Rows of the table that are not of inputs of this run, but of an earlier one whose source had more or others."""
        return len(self.table) - (self.summary.total - self.summary.repeated)

    @property
    def sentence(self) -> str:
        """How the run went, in one line."""
        one = self.summary
        parts = [f"{self.explained:,} of {one.total:,} inputs explained"]
        parts += [f"{one.known:,} of them before"] if one.known else []
        parts += [f"{one.missed:,} not as exactly as asked for"] if one.missed else []
        parts += [f"{one.failed:,} failed (retry_failed=True tries them again)"] if one.failed else []
        parts += [f"{one.left_out:,} left out, as key= gives them that of another input"] if one.left_out else []
        same = one.repeated - one.left_out
        parts += [f"{same:,} had the key of an earlier one"] if same else []
        parts += [rows_of_others(self.others)] if self.others > 0 else []
        files = self.table.parts
        where = f"{shown(str(self.table.folder))} ({byte_size(sum(path.stat().st_size for path in files))})"
        return f"{', '.join(parts)}; {self.seconds:.0f} s; table in {where}."

    def __repr__(self) -> str:
        lines = [self.sentence]
        lines += [f"  failed: {shown(item.key)}: {shown(why)}" for item, why in self.summary.reasons[:5]]
        lines += [f"  and {self.summary.failed - 5:,} more" for _ in [0] if self.summary.failed > 5]
        clashes = self.summary.clashes
        lines += [f"  left out, as another input has its key: {shown(key)}" for key in list(dict.fromkeys(clashes))[:5]]
        return "\n".join(lines)


class StopRequest:
    """A signal that asked the run to stop, if there was one."""

    def __init__(self) -> None:
        self._number = 0

    def ask(self, number: int, _: object) -> None:
        """Handle the signal: end the block at once."""
        self._number = number
        self.check()

    def check(self) -> None:
        """End the block if a signal asked for it; once more, for where it was asked, the end may have gone unheard."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._number:
            raise SystemExit(128 + self._number)


@contextmanager
def stopped_by_signals() -> Iterator[StopRequest]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that what is done is written; the exit code tells which it was.

    All three are remembered, for Python drops an exception that is raised while an object is being deleted. In the main thread,
    and where nobody else has a say in these signals.
    """
    stop = StopRequest()
    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)]
    mine = threading.current_thread() is threading.main_thread()
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: found for number in wanted if mine and (found := signal.getsignal(number)) in usual}
    for number in before:
        signal.signal(number, stop.ask)
    try:
        yield stop
    finally:
        for number, found in before.items():
            signal.signal(number, found)


@contextmanager
def watching(option: bool | BatchWatcher | None, total: int | None) -> Iterator[BatchWatcher]:
    """The bar of a run, or whoever else watches it.

    Args:
        option: True or False for a bar, None for one on a terminal or in a notebook, or somebody who watches.
        total: how many inputs there are, if that is known.
    """
    if option is not None and not isinstance(option, bool):
        yield option
        return
    if not (option or (option is None and (sys.stderr.isatty() or in_notebook()))):
        yield _Nobody()
        return
    try:
        with quiet():
            from tqdm.auto import tqdm
    except ImportError:  # the bar is a nicety
        yield _Nobody()
        return
    watcher = _TqdmWatcher(functools.partial(tqdm, total=total, unit="input", dynamic_ncols=True))
    try:
        yield watcher
    finally:
        watcher.close()


class _TqdmWatcher:
    """A bar with the rate, the time left and the failures."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make, self._bar = make, make()
        self._begun, self._failed = False, 0

    def begin(self, name: str) -> None:
        if not self._begun and self._bar.n:  # what was done before took no time, and does not count for the rate
            self._bar.leave = False
            self._bar.close()
            self._bar = self._make(initial=self._bar.n)
        self._begun = True
        self._bar.set_description(shown(name)[:30], refresh=False)

    def advance(self, count: int, failed: int = 0) -> None:
        self._failed += failed
        if self._failed:
            self._bar.set_postfix_str(f"{self._failed} failed", refresh=False)
        self._bar.update(count)

    def close(self) -> None:
        self._bar.close()
