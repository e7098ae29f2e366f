"""Many inputs on a Ray cluster, into the same table as on one machine: :func:`explain_dataset`.

Ray Data brings windows of inputs, in order, to a pool of actors. Each actor has made its own model, explains a window as the
local run would, and sends the rows back; the driver writes them, in order, into the same kind of table under the same lock. The
table is the checkpoint: a run may begin on one machine and end on a cluster, or the other way round. An actor or a machine that
is lost costs the windows that it was at, which Ray gives to others; a driver that is lost costs the last seconds, and the same
call goes on.

The package of Ray is imported when it is used (:func:`ray_package`): most users do not have it.
"""

from __future__ import annotations

import inspect
import itertools
import json
import pickle
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .. import errors
from ..bounded_reading import ChangeRecord
from ..errors import FileError, IntegrandError, MissingExtraError, OptionError, quiet
from ..words import first_line, shown
from .identity import digest_of_input, settings_of
from .inputs import Key, KeyedInput, inputs_of
from .many import (
    BatchOutcome,
    BatchSummary,
    CallableTask,
    ManyExplained,
    StopRequest,
    explain_window,
    input_digest,
    made_with,
    stopped_by_signals,
    watching,
    window_size,
)
from .many import BatchWatcher as Watcher
from .rows import KEEPING, Keeping, Row, arrow, key_text
from .table import MANIFEST, ExplainedTable, KeyIndex, Manifest, TableStore, flattened

DEATHS = 3
"""How often the process that explains a window may die before its inputs are explained one by one, to find the deadly one."""

IN_FLIGHT = 2
"""Windows that are given to an actor at a time: the one that it is at, and the next."""


def explain_dataset(
    dataset: Any,
    explain: Callable[..., Any],
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
    actors: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    progress: bool | Watcher | None = None,
    title: str = "",
) -> ManyExplained:
    """Explain many inputs on a Ray cluster into a folder of Parquet parts: the table of :func:`integrand.explain_many`.

    Rows, order, settings and fingerprint are those of a run on one machine, to the last bit if actors have as many threads as
    that (``num_cpus``). Where such a run was stopped, this one goes on, and the other way
    round. Connect to a cluster with ``ray.init(address=...)`` before; without that, Ray starts one on this machine.

    Args:
        dataset: a ``ray.data.Dataset`` of rows, or any source that :func:`integrand.explain_many` takes: that is read on the
            machine of the driver, and needs no further CPU. Files that it names are read by the actors, under the same path.
        explain: as for :func:`integrand.explain_many`, if it can be pickled; or what makes it, once in each actor: a class, or
            a function without arguments, such as ``lambda: questions.load("trec").explain``.
        out: the folder of the table; only the driver writes it, unless attributions are kept in files.
        key: what tells inputs apart: a column, or a function of the row. Needed for a ``ray.data.Dataset``, whose rows have no
            number.
        column: where inputs are rows, the column that is explained. Default: the row as a dict.
        carry: where inputs are rows, further columns that are copied into the table.
        attributions: how attributions are kept, as for :func:`integrand.explain_many`; ``files`` needs a folder that all
            machines share.
        together: inputs that are explained in one call.
        size: how large an input is.
        settings: what else results depend on and ``explain`` does not show.
        retry_failed: explain inputs again that an earlier run could not.
        again: explain all inputs again.
        actors: how many models work at a time, or the least and the most of them, between which Ray chooses by the work.
        num_cpus: CPUs of each actor, which are its threads too.
        num_gpus: GPUs of each actor; 0.5 puts two models onto one.
        progress: as for :func:`integrand.explain_many`.
        title: what the run is about, for the summary page.

    Returns:
        How the run went, and the table.
    """
    if attributions not in KEEPING:
        raise OptionError(f"got attributions={attributions!r}; expected one of {', '.join(KEEPING)}.")
    pool = ActorPool.of(actors, num_cpus, num_gpus)
    ray = ray_package()
    if not ray.is_initialized():
        ray.init()
    rows = isinstance(dataset, ray.data.Dataset)
    if rows and key is None:
        raise OptionError(
            "got a Ray data set and no key=, and its rows have no number; expected the column that tells them apart."
        )
    if not rows:
        _check_travels(dataset, "the source,", "Name a file or a folder, or pass a list.")
    folder = Path(out).absolute()
    maker = Maker.of(explain)
    known = pool.asked(maker, together, size)
    threads = max(1, int(num_cpus))
    job = WorkerJob(maker, folder, known.settings, known.together, size, attributions, retry_failed, threads)
    reading = InputReading(None if rows else dataset, key, column, carry, known.window)
    total = None if rows else inputs_of(dataset)[1]
    manifest = Manifest(made_with(known.settings, known.together, known.window, settings, key), attributions, title)
    start = time.monotonic()
    with (
        TableStore.opened(folder, manifest, again=again) as store,
        stopped_by_signals() as stop,
        watching(progress, total) as watch,
    ):
        deaths = ray.remote(num_cpus=0, label_selector=_here())(_death_register()).remote()
        worker = {"job": job, "known": ray.put(store.snapshot()), "deaths": deaths, "reading": reading}
        with closing(pool.explained(dataset if rows else None, reading, worker)) as found:
            summary = _kept(found, store, watch, stop)
        store.finish()
    return ManyExplained(ExplainedTable.open(folder), summary, time.monotonic() - start)


def _kept(found: Iterator[WindowResult], store: TableStore, watch: Watcher, stop: StopRequest) -> BatchSummary[KeyedInput]:
    """Write the rows of windows as they come, each key once, and count them."""
    summary: BatchSummary[KeyedInput] = BatchSummary()
    mine = KeyIndex()
    for window in found:
        if window.doubt is not None and not store.holds_results:
            raise window.doubt.error()
        rows = {row.key: row for row in window.rows}
        looked_at: list[tuple[str, dict[str, bool]]] = []
        for key, digest in window.inputs:
            if (twin := mine.get(key)) is not None:
                if all(key != other for other, _ in looked_at):  # it has a row of an earlier window
                    rows.pop(key, None)
                clashes = bool(digest and twin[3] and digest != twin[3])
                looked_at.append((key, {"repeated": True, "clashes": clashes}))
                continue
            mine.add(key, 0, 0, ok=True, digest=digest)
            looked_at.append((key, {"known": key not in rows}))
        store.put(list(rows.values()))
        done = [_outcome(store, rows.get(key), key, how) for key, how in looked_at]
        for one in done:
            summary.add(one)
        watch.advance(len(done), sum(one.failed and not one.repeated for one in done))
        stop.check()
    return summary


def _outcome(store: TableStore, row: Row | None, key: str, how: dict[str, bool]) -> BatchOutcome[KeyedInput]:
    """What became of one input; ``row`` is what this run has found, if it has."""

    def read() -> Row:
        kept = row if row is not None else store.get(key)
        if kept is None:
            raise FileError(f"the row of {shown(key)!r} is not to be found any more; run the same again.")
        return kept

    state = (row.ok, "") if row is not None else store.known(key)
    return BatchOutcome(KeyedInput(key, None), key, read, failed=state is not None and not state[0], **how)


# ---- what travels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maker:
    """What explains inputs, or what makes it in each actor.

    Attributes:
        explain: what the user gave.
        makes: whether it makes what explains.
    """

    explain: Callable[..., Any]
    makes: bool

    @staticmethod
    def of(explain: Callable[..., Any]) -> Maker:
        """Find out which of both it is; an error if it cannot travel."""
        if not callable(explain):
            raise OptionError(f"got explain={explain!r}; expected something that can be called with a list of inputs.")
        makes = isinstance(explain, type)
        if not makes:
            with suppress(ValueError, TypeError):  # built in: it does not say what it takes
                makes = not _takes_one(inspect.signature(explain))
        _check_travels(
            explain,
            "explain=,",
            "Pass what makes it instead, which then runs once in each actor: explain=lambda: load(...).explain, or a class.",
        )
        return Maker(explain, makes)

    def made(self) -> Callable[..., Any]:
        """What explains."""
        found = self.explain() if self.makes else self.explain
        if not callable(found):
            raise OptionError(
                f"explain= made a {type(found).__name__}; expected something that can be called with a list of inputs."
            )
        return found


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _check_travels(thing: object, what: str, remedy: str) -> None:
    """Refuse what cannot be sent to another machine, with what to do instead."""
    try:
        ray_package().cloudpickle.dumps(thing)
    except Exception as error:
        raise OptionError(
            f"got {what} a {type(thing).__name__} that cannot be sent to the actors ({type(error).__name__}: "
            f"{first_line(error)}). {remedy}"
        ) from None


@dataclass(frozen=True)
class ExplainFacts:
    """What the driver has to know of what explains inputs.

    Attributes:
        settings: what results depend on, from :func:`~integrand.batch.identity.settings_of`.
        together: inputs that are explained in one call.
        window: inputs that are looked at together to form batches.
    """

    settings: Mapping[str, Any]
    together: int
    window: int


@dataclass(frozen=True)
class StopNotice:
    """An error that ends the run, as it travels: errors of other packages may not be there where they are read.

    Attributes:
        kind: the name of the class in ``integrand.errors``.
        said: its message.
    """

    kind: str
    said: str

    @staticmethod
    def of(error: Exception, where: str) -> StopNotice:
        """The notice of an error.

        Args:
            error: what was raised.
            where: what was done, for errors that are not ours.
        """
        if isinstance(error, IntegrandError):
            return StopNotice(type(error).__name__, str(error))
        return StopNotice("IntegrandError", f"{where} ({type(error).__name__}: {first_line(error)}).")

    def error(self) -> IntegrandError:
        """The error again."""
        kind = getattr(errors, self.kind, IntegrandError)
        found: IntegrandError = kind.__new__(kind)  # the constructors of some take other arguments than a message
        found.args = (self.said,)
        return found


@dataclass(frozen=True)
class WindowResult:
    """What an actor found of a window.

    Attributes:
        inputs: the key and the digest of every input, in order.
        rows: the rows of those that were explained; the others have one from before.
        doubt: an error that ends the run if no input before was ever explained.
        stop: an error that ends the run.
    """

    inputs: tuple[tuple[str, str], ...] = ()
    rows: tuple[Row, ...] = ()
    doubt: StopNotice | None = None
    stop: StopNotice | None = None


@dataclass(frozen=True)
class InputWindow:
    """Inputs that are looked at together to form batches.

    Attributes:
        inputs: the inputs, in order.
        repeated: the places of those whose key an earlier one has.
        stop: an error in reading, which ends the run.
    """

    inputs: tuple[KeyedInput, ...] = ()
    repeated: frozenset[int] = frozenset()
    stop: StopNotice | None = None


@dataclass(frozen=True)
class InputReading:
    """How inputs are read.

    Attributes:
        source: where they are from; None for rows of a Ray data set.
        key: what tells inputs apart.
        column: the column that is explained.
        carry: columns that are copied into the table.
        window: inputs of a window.
    """

    source: Any
    key: Key
    column: str | None
    carry: Sequence[str] | Mapping[str, str]
    window: int

    def windows(self, _: object = None) -> Iterator[Any]:
        """Read the source; one block with one window at a time, as the local run forms them."""
        seen = KeyIndex()
        try:
            inputs, _total = inputs_of(self.source, key=self.key, column=self.column, carry=self.carry)
            change = ChangeRecord()
            each = change.until_changed(inputs)
            while window := tuple(itertools.islice(each, self.window)):
                repeated = frozenset(i for i, one in enumerate(window) if not _first(seen, one.key))
                yield _block(InputWindow(window, repeated))
            change.check()
        except Exception as error:
            yield _block(InputWindow(stop=StopNotice.of(error, "the inputs cannot be read")))

    def window_of(self, block: Any) -> InputWindow:
        """The window in a block: pickled, or the rows of a Ray data set."""
        if self.source is not None:
            found: InputWindow = pickle.loads(block.column(0)[0].as_py())
            return found
        rows = rows_of_block(block)
        seen = KeyIndex()
        inputs = []
        for row, one in zip(rows, inputs_of(rows, key=self.key, column=self.column, carry=self.carry)[0], strict=True):
            if one.problem:  # its key is its place, which here is the place in the window
                one = replace(one, key=f"without key {digest_of_input({**row})}")
            inputs.append(one)
        return InputWindow(tuple(inputs), frozenset(i for i, one in enumerate(inputs) if not _first(seen, one.key)))


def _first(seen: KeyIndex, key: str) -> bool:
    """Whether a key is a new one; it is not any more then."""
    if seen.get(key) is not None:
        return False
    seen.add(key, 0, 0, ok=True, digest="")
    return True


def rows_of_block(block: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table of Ray's, with the values that a file would give; tensors as arrays of numpy."""
    columns = {name: _values(block.column(name)) for name in block.column_names}
    return [{name: values[i] for name, values in columns.items()} for i in range(block.num_rows)]


def _values(column: Any) -> list[Any]:
    if isinstance(column.type, arrow().ExtensionType):
        return [value for chunk in column.chunks for value in chunk.to_numpy(zero_copy_only=False)]
    found: list[Any] = column.to_pylist()
    return found


def _block(thing: object) -> Any:
    pa = arrow()
    return pa.table({"pickled": pa.array([pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)], pa.large_binary())})


# ---- in the actors -----------------------------------------------------------------------------------------------------------


def _death_register() -> type:
    """What counts how often each window was begun, and each input where that is done one by one; an actor of its own.

    Ray sends a class that a function makes by its contents, so that the actor need not import this package, and torch with it.
    """

    class Register:
        def __init__(self) -> None:
            self.begun: dict[str, int] = {}

        def begin(self, name: str) -> int:
            before = self.begun.get(name, 0)
            self.begun[name] = before + 1
            return before

        def end(self, name: str) -> None:
            self.begun.pop(name, None)

    return Register


@dataclass(frozen=True)
class WorkerJob:
    """What every actor is to do.

    Attributes:
        maker: makes what explains.
        folder: where the table is, and the files of attributions.
        settings: what results depend on: the same in every actor.
        together: inputs that are explained in one call.
        size: how large an input is.
        keep: how attributions are kept.
        retry_failed: explain inputs again that an earlier run could not.
        threads: of each actor.
    """

    maker: Maker
    folder: Path
    settings: Mapping[str, Any]
    together: int
    size: Callable[[Any], float] | None
    keep: Keeping
    retry_failed: bool
    threads: int


class WindowExplainer:
    """Explains windows; there is one in each actor. What goes wrong travels as a result, so that Ray tries nothing again."""

    def __init__(self, job: WorkerJob, known: Any, deaths: Any, reading: InputReading) -> None:
        self._job, self._deaths, self._reading = job, deaths, reading
        self._stop: StopNotice | None = None
        try:
            self._known: KeyIndex = ray_package().get(known)
            torch.set_num_threads(job.threads)
            explain = job.maker.made()
            _check_same(job.settings, settings_of(explain))
            self._task = CallableTask(explain, job.folder, together=job.together, size=job.size, keep=job.keep)
        except Exception as error:
            self._stop = StopNotice.of(error, f"what explains the inputs cannot be made on {_host()}")

    def __call__(self, block: Any) -> Any:
        """The result of one window, as a block of one row."""
        if self._stop is not None:
            return _block(WindowResult(stop=self._stop))
        try:
            window = self._reading.window_of(block)
            return _block(WindowResult(stop=window.stop) if window.stop else self._result(window))
        except Exception as error:
            return _block(WindowResult(stop=StopNotice.of(error, f"the rows cannot be made on {_host()}")))

    def _result(self, window: InputWindow) -> WindowResult:
        task = self._task
        inputs = tuple((key_text(one.key), input_digest(task, one)) for one in window.inputs)
        new = {
            key: window.inputs[i]
            for i, (key, digest) in enumerate(inputs)
            if i not in window.repeated and not self._holds(key, digest)
        }
        digests = {key: digest for i, (key, digest) in enumerate(inputs) if i not in window.repeated}
        rows, doubt = self._explained(new, digests) if new else ({}, None)
        if any(row.attribution_file for row in rows.values()) and not (task.folder / MANIFEST).is_file():
            raise FileError(
                f"{shown(str(task.folder))}, where files of attributions go, is not that of the table on {_host()}; expected a "
                "folder that all machines share. Choose one, or keep attributions in the table: attributions='lists'."
            )
        return WindowResult(inputs, tuple(rows.values()), doubt)

    def _holds(self, key: str, digest: str) -> bool:
        """Whether there is a row of an earlier run that still holds."""
        found = self._known.get(key)
        if found is None:
            return False
        ok, before = found[2:]
        same = not digest or not before or digest == before
        return same and (ok or not self._job.retry_failed)

    def _explained(self, new: dict[str, KeyedInput], digests: dict[str, str]) -> tuple[dict[str, Row], StopNotice | None]:
        """The rows of new inputs, and a doubt whether the call is right; the driver knows if any was ever explained."""
        name = f"window {next(iter(new))}"
        doubt = None
        if self._begin(name) < DEATHS:
            try:
                rows = explain_window(self._task, new, digests=digests)
            except self._task.doubts as error:
                doubt = StopNotice.of(error, "")  # type: ignore[arg-type]
                rows = explain_window(self._task, new, digests=digests, proven=True)
        else:
            rows = {key: self._alone(key, one, digests) for key, one in new.items()}
        self._deaths.end.remote(name)
        return rows, doubt

    def _alone(self, key: str, one: KeyedInput, digests: dict[str, str]) -> Row:
        """The row of an input of a window at which process after process has died."""
        if self._begin(key):
            row = Row.failed(
                key,
                f"the process that explains it dies of it (the last time on {_host()}): no memory is left, or the model's "
                "own code crashes. Give actors more memory, or look at this input.",
            )
            return replace(row, input_digest=digests[key], columns=one.columns)
        row = explain_window(self._task, {key: one}, digests=digests, proven=True)[key]
        self._deaths.end.remote(key)
        return row

    def _begin(self, name: str) -> int:
        """How often this was begun before and not ended: somebody has died of it."""
        ray = ray_package()
        try:
            return int(ray.get(self._deaths.begin.remote(name)))
        except ray.exceptions.RayError:  # nobody counts any more
            return 0


def _check_same(expected: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to explain with another version or other weights than the first machine that was asked."""
    there, own = (flattened(json.loads(json.dumps(one, default=str))) for one in (expected, here))
    apart = [name for name in {**there, **own} if there.get(name) != own.get(name)]
    if apart:
        name = apart[0]
        raise OptionError(
            f"what explains the inputs is not the same on all machines: {shown(name)} is {shown(str(own.get(name)))[:40]} on "
            f"{_host()}, and {shown(str(there.get(name)))[:40]} where the run began. Install the same on all."
        )


def _host() -> str:
    return socket.gethostname()


# ---- the pool ----------------------------------------------------------------------------------------------------------------


def ray_package() -> Any:
    """The package of Ray, with its data sets; an error that names the extra if it is not installed."""
    try:
        with quiet():  # it warns of its own options
            import_module("ray.data")
            return import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray", "a run on a cluster") from None


@dataclass(frozen=True)
class ActorPool:
    """Actors with a model each.

    Attributes:
        least: how many there are at least.
        most: how many Ray may start where there is work for them.
        resources: CPUs and GPUs of each, as Ray takes them.
    """

    least: int
    most: int
    resources: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(actors: int | Sequence[int], num_cpus: float, num_gpus: float) -> ActorPool:
        """Check what was asked for."""
        bounds = (actors, actors) if isinstance(actors, int) else tuple(actors)
        if len(bounds) != 2 or not all(isinstance(one, int) for one in bounds) or not 1 <= bounds[0] <= bounds[1]:
            raise OptionError(f"got actors={actors!r}; expected how many, at least 1, or the least and the most: (1, 8).")
        for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
            if not value >= 0:
                raise OptionError(f"got {name}={value!r}; expected how many an actor has, 0 or more.")
        # Ray warns where both are given, and gives an actor with GPUs one CPU of itself.
        only_gpus = bool(num_gpus) and num_cpus == 1
        return ActorPool(*bounds, {"num_gpus": num_gpus} if only_gpus else {"num_cpus": num_cpus, "num_gpus": num_gpus})

    def asked(self, maker: Maker, together: int | None, size: Callable[[Any], float] | None) -> ExplainFacts:
        """Settings of what explains: those that it has where it is made, for an actor may have another version or device."""
        if not maker.makes:
            return _facts(maker, together, size)
        ray = ray_package()
        try:
            asked = ray.remote(**self.resources)(_facts_or_stop).remote(maker, together, size)
            found: ExplainFacts | StopNotice = ray.get(asked)
        except Exception as error:
            raise _ended(error) from error
        if isinstance(found, StopNotice):
            raise found.error()
        return found

    def explained(self, dataset: Any, reading: InputReading, worker: Mapping[str, Any]) -> Generator[WindowResult, None, None]:
        """The results of all windows, in the order of the inputs.

        Args:
            dataset: a Ray data set of rows; None to read a source.
            reading: how inputs are read.
            worker: what each actor is made with.
        """
        with quiet():
            results = self._results(dataset, reading, worker)
            blocks = iter(results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
        try:
            for block in blocks:
                for one in block.column(0).to_pylist():
                    result: WindowResult = pickle.loads(one)
                    if result.stop is not None:
                        raise result.stop.error()
                    yield result
        except (IntegrandError, GeneratorExit):
            raise
        except Exception as error:
            raise _ended(error) from error
        finally:
            blocks.close()  # ends the actors; later, when Ray is shut down, it would start a cluster of its own for that

    def _results(self, dataset: Any, reading: InputReading, worker: Mapping[str, Any]) -> Any:
        """A Ray data set with the result of a window in each row."""
        if dataset is None:
            windows = _read_here(reading)
        else:
            self._check_room()
            windows = dataset.repartition(target_num_rows_per_block=reading.window, strict=True)
        size = {"size": self.least} if self.least == self.most else {"min_size": self.least, "max_size": self.most}
        results = windows.map_batches(
            WindowExplainer,
            fn_constructor_kwargs=dict(worker),
            batch_size=None if dataset is not None else 1,
            batch_format="pyarrow",
            compute=ray_package().data.ActorPoolStrategy(**size, max_tasks_in_flight_per_actor=IN_FLIGHT),
            **self.resources,
        )
        results.context.execution_options.preserve_order = True
        results.context.enable_progress_bars = False
        return results

    def _check_room(self) -> None:
        """Refuse actors that would take all CPUs: none would be left to read the data set, and Ray would wait for ever."""
        there = ray_package().cluster_resources().get("CPU", 0.0)
        taken = self.least * self.resources.get("num_cpus", 1)
        if there and taken + 1 > there:
            raise OptionError(
                f"got {self.least} actors that take {taken:g} of the cluster's {there:g} CPUs; expected one to be left to read "
                f"the data set. Ask for fewer actors, for (1, {self.most}), for a smaller num_cpus=, or start more machines."
            )


def _facts(maker: Maker, together: int | None, size: Callable[[Any], float] | None) -> ExplainFacts:
    explain = maker.made()
    task = CallableTask(explain, Path(), together=together, size=size)
    return ExplainFacts(settings_of(explain), task.together, window_size(task))


def _facts_or_stop(maker: Maker, together: int | None, size: Callable[[Any], float] | None) -> ExplainFacts | StopNotice:
    try:
        return _facts(maker, together, size)
    except Exception as error:
        return StopNotice.of(error, f"what explains the inputs cannot be made on {_host()}")


def _read_here(reading: InputReading) -> Any:
    """A Ray data set with one window in each block, read by one task on the machine of the driver, which takes no CPU."""
    begun = ray_package().data.from_items([{"source": 0}])
    windows = begun.map_batches(reading.windows, batch_size=None, num_cpus=0, label_selector=_here())
    windows.context.target_max_block_size = 1  # Ray puts small blocks together; each is a window, and goes to any actor
    return windows


def _here() -> dict[str, str]:
    """What makes Ray run something on the machine of the driver, without which there is no run."""
    return {"ray.io/node-id": ray_package().get_runtime_context().get_node_id()}


def _ended(error: Exception) -> IntegrandError:
    """What Ray raises, as one line: an error of ours that it wraps, or its first line."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        if isinstance(one, IntegrandError):
            return StopNotice.of(one, "").error()
        seen.append(one)
        one = getattr(one, "cause", None) or one.__cause__
    last = next((one for one in reversed(seen) if str(one).strip()), error)
    return IntegrandError(
        f"Ray could not go on ({type(last).__name__}: {first_line(last)}). What was explained is kept; the same call goes on."
    )
