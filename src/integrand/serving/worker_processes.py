"""Processes in which jobs run: each can be killed without harm to others, and is there again at once.

The process that serves requests loads the models and forks a :class:`ForkServer`, which does nothing but hold them and fork
workers. A worker shares the memory of the models, so that they are there once. It runs one job after another and sends what
it says: events as lines of JSON, results as bytes that are opened by workers alone. A worker that crashes, or does not stop in
time, is killed and forked anew.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

import torch

from ..errors import IntegrandError, quiet
from .jobs import CANCELLED, LOG, Handler, Job, Workplace
from .room import Store
from .room_files import RoomFiles

GRACE = 1.0
"""Seconds that a job has to stop by itself, when its time is up or nobody waits, before its worker is killed."""

TICK = 0.05
"""Seconds between two looks at whether a job has to be stopped."""

TRIAL_SECONDS = 20.0
"""Seconds in which the first worker must have computed something, or work is done without workers."""

EVENT, RESULT, FILE, FAILURE, END = b"event", b"result", b"file", b"failure", b"end"
"""The kinds of messages from a worker."""

COARSE_STAYS = "The time ended before the exact result was there: what you see is the coarse result."
CRASHED = "The computation crashed. Whoever runs the server finds more in its log."
KILLED = "The computation was killed, perhaps because the server's memory was full. Try a smaller input."
"""What a user reads where a worker was killed, or ended by itself."""

QUIT = b"quit"
"""The message that ends a fork server and its workers."""

TRIAL = None
"""The task that a new server tries its first worker with."""


class WorkerError(IntegrandError):
    """Workers cannot be forked, or cannot compute."""


def workplaces(
    handle: Handler, results: Store[RoomFiles], number: int, *, isolate: bool = True
) -> tuple[list[Workplace], ForkServer | None]:
    """Places to work at: in worker processes where these can be forked, and else in this one, which is logged.

    Args:
        handle: does the tasks.
        results: where results are stored.
        number: of places.
        isolate: whether to use processes at all.
    """
    if not isolate:
        return [InProcess(handle, results)] * number, None
    with suppress(ImportError):
        import_module("integrand.render.figures")  # matplotlib takes a while to import, and every worker would do it anew
    try:
        server = ForkServer(lambda line: _work(line, handle))
        workers = [Worker(server, results) for _ in range(number)]
        try:
            workers[0].try_out()
        except BaseException:
            server.close()
            raise
    except (WorkerError, OSError) as error:
        LOG.warning(
            "requests are computed in the process of the server (%s): a model that crashes ends it, and the limit on seconds "
            "is looked at between two passes of a model only.",
            error,
        )
        return [InProcess(handle, results)] * number, None
    return [*workers], server


@dataclass(frozen=True)
class InProcess:
    """A workplace in this process: what runs ends between two steps only, and a model that crashes ends everything.

    Attributes:
        handle: does the tasks.
        results: where results are stored.
    """

    handle: Handler
    results: Store[RoomFiles]

    def run(self, job: Job) -> None:
        """Run a job to its end."""
        job.keep = lambda outcome: self.results.add(RoomFiles.of(outcome))
        job.run(self.handle)


class Worker:
    """A workplace in a process, forked when the first job comes, and anew after it has crashed or was killed."""

    def __init__(self, server: ForkServer, results: Store[RoomFiles]) -> None:
        self._server, self._results = server, results
        self._pid = 0
        self._line: Connection | None = None

    def try_out(self) -> None:
        """Compute something, as a process cannot that was forked at the wrong moment.

        Raises:
            WorkerError: it failed, or hung.
        """
        trial = Job(TRIAL, seconds=TRIAL_SECONDS)
        self.run(trial)
        if trial.failed is not None:
            raise WorkerError(f"a trial in a forked process failed: {trial.failed}")

    def run(self, job: Job) -> None:
        """Run a job to its end; kills the process where the job does not end by itself."""
        if job.stopped.is_set():
            return
        line = self._ready()
        until, stopping, has_result = time.monotonic() + job.seconds + GRACE, False, False
        try:
            line.send((job.task, job.seconds))
            while time.monotonic() < until:
                if job.stopped.is_set() and not stopping:
                    stopping, until = True, min(until, time.monotonic() + GRACE)
                    line.send(None)
                if not line.poll(TICK):
                    continue
                kind = line.recv_bytes()
                if kind == END:
                    return
                has_result |= kind == RESULT
                self._take(kind, job, line)
        except (EOFError, OSError):
            self._tell_crash(job, self._end())
            return
        self._end()
        if job.stopped.is_set():
            job.fail(CANCELLED)
        elif has_result:
            job.say("kept", message=COARSE_STAYS)
            job.say("done", notes=[])
        else:
            job.fail(job.too_late)

    def _ready(self) -> Connection:
        if self._line is not None and self._line.poll():  # nothing is sent between two jobs: the process has ended
            self._end()
        if self._line is None:
            self._pid, self._line = self._server.fork()
        return self._line

    def _take(self, kind: bytes, job: Job, line: Connection) -> None:
        if kind == EVENT:
            job.put(line.recv_bytes().decode())
        elif kind == FILE:
            job.deliver(line.recv_bytes())
        elif kind == FAILURE:
            job.fail(line.recv_bytes().decode())
        else:
            head = json.loads(line.recv_bytes())
            files = {name: line.recv_bytes() for name in head["files"]}
            source = line.recv_bytes() if head["source"] else None
            self._results.add(RoomFiles(head["code"], head["stem"], files, source), head["key"])

    def _end(self) -> int | None:
        """Kill the process; returns its exit code, or None where that is not known."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        try:
            return self._server.end(self._pid)
        except OSError:  # the server is being closed, and has ended it
            return None

    def _tell_crash(self, job: Job, code: int | None) -> None:
        if job.stopped.is_set() or code is None:
            job.fail(CANCELLED)
            return
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        LOG.error("a worker process ended while it computed (%s); others are not affected.", reason)
        job.fail(KILLED if code == -signal.SIGKILL else CRASHED)


def _obstacle() -> str | None:
    """The reason why this process cannot be forked, or None."""
    if sys.platform != "linux":
        return f"processes that share models can be forked on Linux, not on {sys.platform}"
    if torch.cuda.is_initialized() or torch.xpu.is_initialized():
        return "a model is on a GPU, which forked processes cannot use"
    return None


class ForkServer:
    """A process of its own that holds what this one has loaded, and forks workers from it.

    It has one thread and computes nothing, so that forking it is safe at any time, whatever the threads of this process do.

    Args:
        work: what a worker does with its connection; it never comes back.

    Raises:
        WorkerError: this process cannot be forked.
    """

    def __init__(self, work: Callable[[Connection], NoReturn]) -> None:
        if obstacle := _obstacle():
            raise WorkerError(obstacle)
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with control, quiet(DeprecationWarning):  # Python warns of threads; a worker that hangs fails its trial
            self._pid = os.fork()
            if self._pid == 0:
                self._control.close()
                _exit_after(lambda: _serve_forks(control, work))

    def fork(self) -> tuple[int, Connection]:
        """Fork a worker; returns its process id and the connection to it."""
        server_end, worker_end = socket.socketpair()
        with worker_end, self._lock:
            socket.send_fds(self._control, [b"fork"], [worker_end.fileno()])
            pid = self._answer()
        if pid < 0:
            server_end.close()
            raise WorkerError(f"a worker cannot be forked: {os.strerror(-pid)}")
        return pid, Connection(server_end.detach())

    def end(self, pid: int) -> int:
        """Kill a worker, if it still lives, and return its exit code: below 0 for the signal that ended it."""
        with self._lock:
            self._control.send(b"%d" % pid)
            return self._answer()

    def _answer(self) -> int:
        answer = self._control.recv(32)
        if not answer:
            raise WorkerError("the process that forks workers has ended; start the server again")
        return int(answer)

    def close(self) -> None:
        """End all workers and the process itself."""
        with self._lock:
            if self._control.fileno() < 0:
                return
            with suppress(OSError):  # it has ended already
                self._control.send(QUIT)  # its end of the line may be open in another server that was forked later
            self._control.close()
            os.waitpid(self._pid, 0)


def _exit_after(run: Callable[[], object]) -> NoReturn:
    """Run something in a forked process and leave it, without what this process does when it ends."""
    try:
        run()
    except BaseException:
        LOG.exception("a worker ended")
    finally:
        os._exit(1)


def _serve_forks(control: socket.socket, work: Callable[[Connection], NoReturn]) -> NoReturn:
    """Fork workers, and kill them, as the server asks; ends with it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches all processes; the server ends its workers
        signal.signal(number, signal.SIG_IGN)
    _close_connections()
    gc.freeze()  # collecting garbage would copy the pages that are shared
    workers: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(control, 32, 1)
        if not message or message == QUIT:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os._exit(0)
        if files:
            line = Connection(files[0])
            try:
                pid = os.fork()
            except OSError as error:  # no memory, or too many processes
                pid = -(error.errno or 1)
            if pid == 0:
                control.close()
                _exit_after(partial(work, line))
            line.close()
            workers |= {pid} if pid > 0 else set()
            control.send(b"%d" % pid)
        else:
            pid = int(message)
            os.kill(pid, signal.SIGKILL)
            workers.discard(pid)
            control.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _close_connections() -> None:
    """Close what a forked process inherits of the network, which would else stay open when its owner closes it."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # a file, or the folder itself, which is closed again
            connection = socket.socket(fileno=int(name))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.close()
            else:
                connection.detach()


@dataclass(eq=False)
class SentJob(Job):
    """A job as its worker has it: what it says and makes is sent."""

    line: Connection | None = None

    def __post_init__(self) -> None:
        self.keep = self._keep
        self._sending = threading.Lock()

    def put(self, line: str) -> None:
        """Send an event."""
        self._send(EVENT, line.encode())

    def _keep(self, outcome: Any) -> str:
        result, key = RoomFiles.packed(outcome), secrets.token_urlsafe(16)
        blobs = {"source": result.source} if isinstance(result.source, bytes) else {}
        head = {"key": key, "code": result.code, "stem": result.stem, "files": [*result.files], "source": bool(blobs)}
        self._send(RESULT, json.dumps(head).encode(), *result.files.values(), *blobs.values())
        return key

    def fail(self, message: str) -> None:
        """Send why nothing comes of the job."""
        self._send(FAILURE, message.encode(errors="backslashreplace"))

    def deliver(self, data: bytes) -> None:
        """Send the file that the job was to make."""
        self._send(FILE, data)

    def end(self) -> None:
        """Say that nothing more comes."""
        self._send(END)

    def _send(self, *parts: bytes) -> None:
        assert self.line is not None
        with self._sending:
            for part in parts:
                self.line.send_bytes(part)


def _work(line: Connection, handle: Handler) -> NoReturn:
    """Run the jobs that come in, one after another, in a thread that was started here.

    The thread that forked may have had companions, as torch starts them for its own, which are not there any more.
    """
    jobs: SimpleQueue[SentJob] = SimpleQueue()

    def run() -> None:
        while True:
            jobs.get().run(lambda task, job: _try() if task is TRIAL else handle(task, job))

    threading.Thread(target=run, daemon=True).start()
    job: SentJob | None = None
    while True:
        try:
            message = line.recv()
        except (EOFError, OSError):
            os._exit(0)
        if message is not None:
            task, seconds = message
            job = SentJob(task, seconds=seconds, line=line)
            jobs.put(job)
        elif job is not None:
            job.stop()


def _try() -> None:
    """A pass and a backward pass on all threads, which a process cannot do if torch's threads were lost when it was forked."""
    x = torch.ones(512, 512, requires_grad=True)
    (x @ x).tanh().sum().backward()
