"""Several workers for one run (``devices=``, experimental): a thread each, on devices of their own or on a share of the cores.

Chunks are handed to whichever worker is free, and what comes of them is handed on in order, on the device of the input: the
sums are those of one worker, to rounding. Whatever is thread-local in torch is in a worker as in the caller.
"""

from __future__ import annotations

import contextvars
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from ..backends.precision import PrecisionMode
from ..backends.replica import replicated
from ..backends.torch_function import TorchFunction
from ..errors import OptionError
from ..functions.layer import uncompiled
from ..functions.model_state import PROCESS, all_modules, keeping_random_state, modules_of, needed_switches
from ..memory import cut, in_chunks, out_of_memory
from ..paths.base import Piece
from .chunks import Chunks
from .runner import Runner

if TYPE_CHECKING:
    from .evaluator import Evaluator


@dataclass(frozen=True)
class ThreadState:
    """What is thread-local in torch, as it was in the caller."""

    grad: bool
    inference: bool
    default: torch.device
    casts: tuple[tuple[str, torch.dtype, bool], ...]
    cache: bool
    cuda: int | None
    streams: tuple[torch.cuda.Stream, ...]

    @staticmethod
    def now(devices: set[torch.device]) -> ThreadState:
        """The state of the thread that asks, as far as it matters on some devices."""
        kinds = sorted({"cpu", *(device.type for device in devices)})
        casts = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]
        cuda = [device for device in devices if device.type == "cuda"]
        return ThreadState(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_device(),
            tuple(cast for cast in casts if cast[2]),
            torch.is_autocast_cache_enabled(),
            torch.cuda.current_device() if cuda else None,
            tuple(torch.cuda.current_stream(device) for device in cuda),
        )

    @contextmanager
    def state(self) -> Iterator[None]:
        """The same state in another thread."""
        with ExitStack() as stack:
            for stream in self.streams:
                stack.enter_context(torch.cuda.stream(stream))
            if self.cuda is not None:
                stack.enter_context(torch.cuda.device(self.cuda))
            if self.default.type != "cpu":
                stack.enter_context(self.default)
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype, enabled in self.casts:
                stack.enter_context(torch.autocast(kind, dtype, enabled, self.cache))
            yield


T = TypeVar("T")
Run = Callable[[slice], T]
"""Evaluates a slice of the nodes."""

AHEAD = 2
"""Chunks handed out for each worker: one that runs and one that waits, so that no worker waits for sums to be taken."""


def devices_of(devices: Sequence[str | torch.device] | None) -> tuple[torch.device, ...]:
    """The workers' devices, checked; none if the option was not given."""
    if devices is None:
        return ()
    if isinstance(devices, (str, torch.device)) or not isinstance(devices, Sequence) or not devices:
        raise OptionError(
            f"got devices={devices!r}; expected a list with one entry per worker, such as ['cuda:0', 'cuda:1'], or "
            "['cpu', 'cpu'] for two workers that share the cores."
        )
    return tuple(map(_device, devices))


def _device(entry: str | torch.device) -> torch.device:
    if not isinstance(entry, (str, torch.device)):
        raise OptionError(f"got {entry!r} in devices=; expected names such as 'cuda:0' or 'cpu', or torch.device.")
    try:
        # A device without an index is the current one of its kind; this asks for it, and for whether it is there.
        found = torch.empty(0, device=entry).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise OptionError(
            f"got {str(entry)!r} in devices=, which cannot be used here ({reason}); expected among others "
            f"{', '.join(['cpu', *cuda])}."
        ) from None
    if found.type == "meta":
        raise OptionError("got 'meta' in devices=, which holds no numbers; expected a device that computes, such as 'cpu'.")
    return found


@dataclass(frozen=True)
class _Ran(Generic[T]):
    """What came of a chunk in a worker: one result, or none where memory ran out."""

    part: slice
    done: tuple[T, ...] = ()
    error: Exception | None = None

    def shrink(self, chunks: Chunks) -> None:
        """Make chunks smaller than this one, if they are not; a single row is tried again as it is, alone."""
        rows = self.part.stop - self.part.start
        if self.error is not None and 1 < rows <= chunks.size:
            chunks.shrink(rows, self.error)


class WorkerPool:
    """The workers of one run.

    Args:
        runner: the caller's own; the first worker on the device of its inputs has the same model.
        devices: one for each worker.
    """

    def __init__(self, runner: Runner, devices: Sequence[torch.device]) -> None:
        function = runner.function
        self.home, self.devices = function.inputs[0].device, tuple(devices)
        self._runner, self._local, self._caller = runner, threading.local(), ThreadState.now({self.home, *devices})
        others = list(self.devices)
        others.remove(self.home)
        with ExitStack() as stack:
            self._switches(stack, function)
            self._free = deque([(self.home, function), *((device, replicated(function, device)) for device in others)])
            pool = ThreadPoolExecutor(len(self.devices), "integrand", self._enlist)
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            self._pool, self._stack = pool, stack.pop_all()

    def _switches(self, stack: ExitStack, function: TorchFunction) -> None:
        """What holds for the whole process, and must not be switched by two threads at a time."""
        cpus, threads = sum(device.type == "cpu" for device in self.devices), torch.get_num_threads()
        if cpus:
            self._threads = max(1, threads // cpus)
            stack.callback(torch.set_num_threads, threads)  # each thread has its own, but one that starts later the last
        cuda = {device for device in self.devices if device.type == "cuda"}
        if cuda:
            stack.enter_context(keeping_random_state(cuda))
            modules = all_modules(modules_of(function.call.model))
            stack.enter_context(PROCESS.claimed(switches=needed_switches(modules, cuda=True)))
        if function.layered:
            stack.enter_context(uncompiled())

    def _enlist(self) -> None:
        """Make the thread that calls a worker, which has all modules and switches that its caller has."""
        PROCESS.help_another_thread()
        self._local.device, function = self._free.popleft()
        self._local.runner = Runner(function, graphs=False)
        if self._local.device.type == "cpu":
            torch.set_num_threads(self._threads)

    @property
    def runner(self) -> Runner:
        """That of the worker that asks, or the caller's."""
        runner: Runner = getattr(self._local, "runner", self._runner)
        return runner

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what runs, end the threads, and put all switches back."""
        self._stack.close()

    def _work(self, run: Run[T], here: slice, mode: PrecisionMode) -> _Ran[T]:
        self.runner.mode = mode
        try:
            with self._caller.state():
                return _Ran(here, (run(here),))
        except Exception as error:
            if out_of_memory(error):
                error.__traceback__ = None  # whose frames hold what there was no room for
                return _Ran(here, error=error)
            if self._local.device != self.home:
                error.add_note(f"integrand ran a copy of the model on {self._local.device}, one of devices=.")
            raise

    def spread(self, run: Run[T], count: int, chunks: Chunks, step: int | None) -> Iterator[T]:
        """Evaluate nodes on all workers; the first chunk of all, on which sizes are measured, runs alone.

        A chunk that does not fit into memory is tried again in smaller ones, when nothing else runs. After any other error
        nothing runs any more.
        """
        start = 0
        while start < count and not chunks.row_bytes:
            here = cut(start, count, chunks.size, step)
            yield from in_chunks(run, here, chunks, step=step)
            start = here.stop
        size = self._even(count - start, chunks.size)
        flight: deque[Future[_Ran[T]]] = deque()
        # Switched for the process, by the caller: workers who switch it too then put back what they found.
        with self._runner.mode.switched():
            try:
                while start < count or flight:
                    while start < count and len(flight) < AHEAD * len(self.devices):
                        here = cut(start, count, min(size, chunks.size), step)
                        # The mode as it is now: while this waits, the caller may run something else in full precision.
                        mode = self._runner.mode
                        flight.append(self._pool.submit(contextvars.copy_context().run, self._work, run, here, mode))
                        start = here.stop
                    ran = flight[0].result()
                    flight.popleft()  # not before: what is waited for is waited for to the end
                    if ran.error is not None:
                        wait(flight)
                        ran.shrink(chunks)
                        yield from in_chunks(run, ran.part, chunks, step=step)
                    yield from ran.done
            finally:
                wait([future for future in flight if not future.cancel()])

    def _even(self, count: int, size: int) -> int:
        """The size of chunks of at most so many nodes, of which every worker has as many as the others.

        8 for 16 nodes and two workers, but 5 for 20 nodes, instead of 8, 8 and 4.
        """
        parts = len(self.devices) * math.ceil(count / (len(self.devices) * size))
        return math.ceil(count / max(1, parts))


@contextmanager
def shared_among(evaluator: Evaluator, devices: Sequence[torch.device]) -> Iterator[None]:
    """Let workers on some devices share what an evaluator evaluates; a single one, or none, is the caller."""
    home = evaluator.device
    if devices and home not in devices:
        raise OptionError(
            f"got devices={list(map(str, devices))}, but x is on {home}; expected the device of x among them, since results "
            f"are summed there. Move model and x first: model.to({str(devices[0])!r}), x.to({str(devices[0])!r})."
        )
    if len(devices) < 2:
        yield
        return
    evaluator.pieces = _one_at_a_time(evaluator.pieces)
    if evaluator.chunks.tuning is None or not evaluator.chunks.tuning.done:  # a layout that is tried may be refused
        evaluator.chunks.hold()
    with WorkerPool(evaluator.runner, devices) as pool:
        evaluator.workers = pool
        try:
            yield
        finally:
            evaluator.workers = None


def _one_at_a_time(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces, for several threads.

    Those that are not straight run somebody's code, or forward-mode differentiation, whose levels belong to the process.
    """
    lock = threading.Lock()

    def locked(function: Callable[..., Any]) -> Callable[..., Any]:
        def alone(t: Tensor, rows: Tensor | None) -> Any:
            with lock:
                return function(t, rows)

        return alone

    def safe(piece: Piece) -> Piece:
        if piece.straight:
            return piece
        return replace(piece, at=locked(piece.at), points=None if piece.points is None else locked(piece.points))

    return [safe(piece) for piece in pieces]
