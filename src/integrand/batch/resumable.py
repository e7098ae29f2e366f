"""The resumable runner: inputs one after the other, past those that fail, onwards from where an earlier run was stopped.

The steps are apart from each other, so that they can be spread out: :func:`windows` reads ahead a little, :func:`plan` groups
what is not done yet into batches, :func:`explain_batch` explains one batch and depends on nothing but the task (it can run in
another process), and :func:`explain_each` keeps the results and gives them in the order of the inputs.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from ..errors import FileError, IntegrandError
from ..words import shown
from .store import Entry, EntryStore

Item = TypeVar("Item")
Found = TypeVar("Found")

ERROR = "error"
"""The field of an entry that says why its input could not be explained."""

DAMAGED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
"""What reading an entry may raise that is not as it was written; its input is then explained again."""

LOOKAHEAD = 4
"""Batches that are read ahead, to put inputs of about the same size together."""


class BatchTask(ABC, Generic[Item, Found]):
    """What to do with every input. An application is a subclass of a few lines.

    Attributes:
        together: inputs that are explained in one call, and that a kill can cost.
        stops: errors that no input is to blame for, such as an unknown option: they end the run. Any other
            :class:`~integrand.errors.IntegrandError` is recorded as the failure of its input, and the run goes on.
    """

    together: int = 1
    stops: ClassVar[tuple[type[IntegrandError], ...]] = ()

    @abstractmethod
    def key(self, item: Item) -> str:
        """What tells an input from all others, the same in every run."""

    def name(self, item: Item) -> str:
        """What to call an input in a progress bar."""
        return self.key(item)

    def size(self, item: Item) -> float:
        """How large an input is, so that inputs of about the same size go together. An error is a failure of the input."""
        return 0.0

    @abstractmethod
    def explain(self, items: Sequence[Item]) -> Sequence[Found]:
        """Explain some inputs in one call; one result for each, in the same order."""

    @abstractmethod
    def pack(self, item: Item, found: Found) -> Entry:
        """Turn a result into what is kept of it. Errors here, such as a full disk, are no input's fault: they end the run."""

    @abstractmethod
    def unpack(self, item: Item, entry: Entry) -> Found:
        """Turn what is kept into the result again; an error of :data:`DAMAGED` if the entry is not as it was written."""

    def about(self, item: Item) -> Entry:
        """Facts about an input that are kept whether it could be explained or not."""
        return {}

    def is_current(self, item: Item, entry: Entry) -> bool:
        """Whether an entry of an earlier run still holds: false if the input has changed since."""
        return True


@dataclass(frozen=True)
class BatchOutcome(Generic[Item, Found]):
    """What became of one input.

    Attributes:
        item: the input.
        found: its result as it is read from the store, so that it is the same whether or not a run was stopped; None if the
            input could not be explained.
        error: why it could not be explained; None if it was.
        known: whether an earlier run had explained it.
    """

    item: Item
    found: Found | None
    error: str | None = None
    known: bool = False


@dataclass
class BatchSummary(Generic[Item]):
    """How a run went so far.

    Attributes:
        total: inputs that were looked at.
        known: those of them that an earlier run had explained.
        failed: those that could not be explained, each with the reason, in order.
    """

    total: int = 0
    known: int = 0
    failed: list[tuple[Item, str]] = field(default_factory=list)

    def add(self, outcome: BatchOutcome[Item, Found]) -> None:
        """Count one more input."""
        self.total += 1
        self.known += outcome.known
        if outcome.error is not None:
            self.failed.append((outcome.item, outcome.error))

    @property
    def explained(self) -> int:
        """Inputs that have a result."""
        return self.total - len(self.failed)

    @property
    def exit_code(self) -> int:
        """For a command: 0 if every input was explained, 1 if some were, 2 if none was."""
        return 0 if not self.failed else 1 if self.explained else 2


class BatchWatcher(Protocol):
    """Somebody who wants to know how far a run is, such as a progress bar."""

    def begin(self, name: str) -> None:
        """Work on the input of this name, and those in a batch with it, begins."""
        ...

    def advance(self, count: int) -> None:
        """So many more inputs are done with: explained, failed, or known from before."""
        ...


class _Nobody:
    def begin(self, name: str) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


def explain_each(
    task: BatchTask[Item, Found], items: Iterable[Item], store: EntryStore, *, watcher: BatchWatcher | None = None
) -> Iterator[BatchOutcome[Item, Found]]:
    """Explain inputs that the store does not hold yet, and give the outcome of every one, in order.

    Results and failures are in the store before the next batch begins: after a stop at any moment, the same call continues
    with what is missing. Inputs that failed are tried again.

    Args:
        task: what to do with an input.
        items: the inputs; taken from as needed, never all at once.
        store: where results are kept, and where those of earlier runs are looked for.
        watcher: told how far the run is.

    Yields:
        One outcome for each input.
    """
    watch = watcher or _Nobody()
    mine: set[bytes] = set()
    for window in windows(task, items):
        yield from _explain_window(task, window, store, watch, mine)


def kept_results(task: BatchTask[Item, Found], items: Iterable[Item], store: EntryStore) -> Iterator[tuple[Item, Found]]:
    """Read the results of inputs from the store, in order and one at a time; inputs that failed are left out.

    Raises:
        FileError: an input is neither known to have failed, nor has a result that can be read.
    """
    for item in items:
        entry = store.get(task.key(item))
        if entry is not None and ERROR in entry:
            continue
        found = _understood(task, item, entry)
        if found is None:
            raise FileError(f"the result of {shown(task.name(item))} is not to be found any more; run the same command again.")
        yield item, found


def windows(task: BatchTask[Item, Found], items: Iterable[Item]) -> Iterator[list[Item]]:
    """Split the inputs, in order, into lists of as many as are looked at together to form batches."""
    rest = iter(items)
    while window := list(itertools.islice(rest, task.together * (LOOKAHEAD if task.together > 1 else 1))):
        yield window


def plan(task: BatchTask[Item, Found], new: Mapping[str, Item]) -> tuple[list[list[str]], dict[str, str]]:
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
        try:
            sizes[key] = task.size(item)
        except task.stops:
            raise
        except IntegrandError as error:
            failed[key] = str(error)
    order = sorted(sizes, key=lambda key: sizes[key])
    return [order[i : i + task.together] for i in range(0, len(order), task.together)], failed


@dataclass(frozen=True)
class Failed:
    """In place of a result: why there is none."""

    why: str


def explain_batch(task: BatchTask[Item, Found], items: Sequence[Item]) -> list[Found | Failed]:
    """Explain inputs together; if that fails, one by one, so that only those fail that are at fault."""
    try:
        return list(task.explain(items))
    except task.stops:
        raise
    except IntegrandError as error:
        if len(items) == 1:
            return [Failed(str(error))]
        return [explain_batch(task, [item])[0] for item in items]


def _explain_window(
    task: BatchTask[Item, Found], window: Sequence[Item], store: EntryStore, watch: BatchWatcher, mine: set[bytes]
) -> list[BatchOutcome[Item, Found]]:
    """Explain what the store does not hold of some inputs; the outcome of each, in order.

    Args:
        task: what to do with an input.
        window: the inputs.
        store: where results are kept.
        watch: told how far the run is.
        mine: digests of the keys that this run has explained; those of this window are added.
    """
    keys = [task.key(item) for item in window]
    inputs: dict[str, Item] = {}
    for key, item in zip(keys, window, strict=True):
        inputs.setdefault(key, item)  # an input that comes twice is explained once
    known = {key: found for key, item in inputs.items() if (found := _understood(task, item, store.get(key))) is not None}
    new = {key: item for key, item in inputs.items() if key not in known}
    watch.advance(len(window) - len(new))
    batches, failed = plan(task, new)
    if failed:
        store.put({key: task.about(new[key]) | {ERROR: why} for key, why in failed.items()})
        watch.advance(len(failed))
    made: dict[str, Found] = {}
    for batch in batches:
        watch.begin(task.name(new[batch[0]]))
        for key, one in _explain_and_keep(task, {key: new[key] for key in batch}, store).items():
            if isinstance(one, Failed):
                failed[key] = one.why
            else:
                made[key] = one
        watch.advance(len(batch))
    mine |= {_short(key) for key in made}
    results = known | made
    return [
        BatchOutcome(item, None, failed[key])
        if key in failed
        else BatchOutcome(item, results[key], known=_short(key) not in mine)
        for key, item in zip(keys, window, strict=True)
    ]


def _short(key: str) -> bytes:
    """A digest of a key, which may be a whole mol block: many of them are held in memory."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _explain_and_keep(task: BatchTask[Item, Found], items: Mapping[str, Item], store: EntryStore) -> dict[str, Found | Failed]:
    """Explain a batch and keep what comes of it; gives that by the keys of the inputs, as a later run will read it."""
    facts = {key: task.about(item) for key, item in items.items()}  # before the work, during which a file may change
    results: list[Found | Failed] = explain_batch(task, list(items.values()))
    kept: dict[str, Entry] = {}
    for (key, item), one in zip(items.items(), results, strict=True):
        kept[key] = facts[key] | ({ERROR: one.why} if isinstance(one, Failed) else task.pack(item, one))
    store.put(kept)
    found: dict[str, Found | Failed] = {}
    for (key, item), one in zip(items.items(), results, strict=True):
        if isinstance(one, Failed):
            found[key] = one
            continue
        read: Found | Failed = _read_back(task, key, item, store)
        if isinstance(read, Failed):
            store.put({key: facts[key] | {ERROR: read.why}})
        found[key] = read
    return found


def _understood(task: BatchTask[Item, Found], item: Item, entry: Entry | None) -> Found | None:
    """The result in an entry; None if there is no entry, it is that of a failure, or it is of no use any more."""
    if entry is None or ERROR in entry:
        return None
    try:
        return task.unpack(item, entry) if task.is_current(item, entry) else None
    except DAMAGED:
        return None


def _read_back(task: BatchTask[Item, Found], key: str, item: Item, store: EntryStore) -> Found | Failed:
    """The result that was just kept, as a later run will read it; a failure if it would not take it for one."""
    entry = store.get(key)
    if entry is None:
        raise FileError(f"the result of {shown(task.name(item))} was written and cannot be read again; check the disk.")
    try:
        return task.unpack(item, entry)
    except DAMAGED as error:
        return Failed(f"what was found makes no sense ({error})")
