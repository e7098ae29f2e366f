"""Work that people wait for: a bounded queue, a few places where jobs run, and jobs that can be stopped at any moment."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import IntegrandError, collected
from ..evaluation.progress import Progress
from ..memory import out_of_memory
from ..words import finite

LOG = logging.getLogger("integrand.serve")

BEAT = 10.0
"""Seconds after which a waiting reader gets a sign of life, so that proxies keep the connection."""

TELL = 0.15
"""Seconds between two reports of progress: eyes do not see more."""

UNEXPECTED = "Something went wrong on the server that nobody foresaw; whoever runs it finds the reason in its log."
"""What a user reads of an error that nobody foresaw."""

CANCELLED = "Cancelled."
NO_MEMORY = "This does not fit into the server's memory. Try a smaller input."


class Stopped(BaseException):
    """Raised inside a computation whose user has gone, or whose time is up.

    No Exception: methods that go on after a failure, as a comparison does, must not go on after this.
    """


class Busy(Exception):
    """So many jobs wait that another one would not be done in time."""


class Refused(Exception):
    """A request that cannot be met, for a reason in the user's words."""


class Forgotten(Refused):
    """A request about something that was here and is not any more."""


def _keep_nothing(outcome: Any) -> str:
    raise TypeError("got a result of a job that keeps none; pass keep= to Job")


@dataclass(eq=False)
class Job:
    """One request of a user, from the moment it is asked to its last event.

    Attributes:
        task: what is to be done, as data that can be sent to another process.
        quick: whether it takes a second or so, and need not wait for those that take longer.
        seconds: how long it may run.
        keep: stores a result, and returns its key.
        file: the bytes that the job was to make, if it was to make a file.
        failed: why nothing came of the job, in words.
    """

    task: Any
    quick: bool = True
    seconds: float = 120.0
    keep: Callable[[Any], str] = _keep_nothing
    file: bytes | None = None
    failed: str | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    begun: float = math.nan
    _lines: deque[str] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: Callable[[], object] | None = None
    _told: float = -math.inf

    def say(self, kind: str, **about: Any) -> None:
        """Tell the user something: an event with a kind and what JSON can hold."""
        self.put(json.dumps({"event": kind, **finite(about)}, allow_nan=False) + "\n")

    def put(self, line: str) -> None:
        """Pass on an event that is a line of JSON already."""
        with self._lock:
            self._lines.append(line)
            wake = self._wake
        if wake is not None:
            wake()

    def deliver(self, data: bytes) -> None:
        """Hand over the file that the job was to make."""
        self.file = data

    def check(self) -> None:
        """Go on only if somebody waits and there is time.

        Raises:
            Stopped: nobody does, or there is none.
        """
        if self.stopped.is_set() or self.late:
            raise Stopped

    @property
    def late(self) -> bool:
        """Whether the job has run for longer than it may."""
        return time.monotonic() - self.begun > self.seconds

    def tell(self, progress: Progress) -> None:
        """Report how far an integration is, as its ``progress=`` callback; ends it if nobody waits any more."""
        self.check()
        now = time.monotonic()
        if now - self._told < TELL:
            return
        self._told = now
        known = max(progress.expected, progress.gradients)
        self.say("progress", gradients=progress.gradients, expected=known, error=progress.error)

    def stop(self) -> None:
        """End the job at its next step."""
        self.stopped.set()

    async def events(self) -> AsyncIterator[str]:
        """The events as lines of JSON, until the job has ended; who stops reading stops the job."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:  # the server is being closed
                self.stop()

        self._wake = wake
        try:
            while True:
                news.clear()
                over = self.ended.is_set()
                with self._lock:
                    lines = list(self._lines)
                    self._lines.clear()
                for line in lines:
                    yield line
                if over and not lines:
                    return
                if not over and not lines:
                    try:
                        await asyncio.wait_for(news.wait(), BEAT)
                    except TimeoutError:
                        yield "\n"
        finally:
            self.stop()

    def run(self, handle: Handler) -> None:
        """Do the work, and say how it ended."""
        self.begun = time.monotonic()
        try:
            if self.stopped.is_set():
                return
            with collected() as notes:
                handle(self.task, self)
            self.say("done", notes=notes)
        except Stopped:
            self.fail(CANCELLED if self.stopped.is_set() else self.too_late)
        except (IntegrandError, Refused) as error:
            self.fail(str(error))
        except BaseException as error:  # a model that exits must not take the thread with it
            if out_of_memory(error):
                self.fail(NO_MEMORY)
            else:
                LOG.exception("a job failed")
                self.fail(UNEXPECTED)
        finally:
            self.end()

    @property
    def too_late(self) -> str:
        """The message to the user of a job that took too long."""
        return f"Stopped: it took longer than {self.seconds:g} seconds, which is the limit here."

    def fail(self, message: str) -> None:
        """Say why nothing comes of the job."""
        self.failed = message
        self.say("failed", message=message)

    def end(self) -> None:
        """Let readers know that nothing more will be said."""
        self.ended.set()
        if self._wake is not None:
            self._wake()


Handler = Callable[[Any, Job], None]
"""Does a task, and says and keeps what comes of it through its job."""


class Workplace(Protocol):
    """A place where one job runs at a time."""

    def run(self, job: Job) -> None:
        """Run a job to its end, within its time and no longer than somebody waits."""
        ...


class Desk:
    """A bounded queue before a few workplaces; one of them takes quick jobs only, so that these never wait for long."""

    def __init__(self, places: Sequence[Workplace], *, queue: int = 32) -> None:
        self._waiting: deque[Job] = deque()
        self._most, self._workers = queue, len(places)
        self._news = threading.Condition()
        self._closed = False
        self._running: set[Job] = set()
        self._threads = [
            threading.Thread(
                target=self._serve, args=(place, len(places) > 1 and k == 0), daemon=True, name=f"integrand-desk-{k}"
            )
            for k, place in enumerate(places)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, job: Job) -> None:
        """Put a job into the queue.

        Raises:
            Busy: the queue is full.
        """
        with self._news:
            self._drop_stopped()
            if self._closed or len(self._waiting) >= self._most:
                raise Busy
            self._waiting.append(job)
            self._tell_places()
            self._news.notify_all()

    @property
    def busy(self) -> tuple[int, int]:
        """How many jobs run, and how many wait."""
        with self._news:
            self._drop_stopped()
            return len(self._running), len(self._waiting)

    def close(self) -> None:
        """Stop all jobs and let the threads end."""
        with self._news:
            self._closed = True
            for job in (*self._waiting, *self._running):
                job.stop()
                job.end()  # so that readers go now, and not when a pass of a model is over
            self._drop_stopped()
            self._news.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the threads of a closed desk have ended, for some seconds at most; returns whether they have."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _tell_places(self) -> None:
        """Tell everybody who has to wait how many are before them, those that run included."""
        for place, job in enumerate(self._waiting):
            before = sum(other.quick or not job.quick for other in list(self._waiting)[:place])
            threads = self._workers if job.quick else max(self._workers - 1, 1)
            if before + len(self._running) >= threads:
                job.say("waiting", before=before + len(self._running))

    def _drop_stopped(self) -> None:
        for job in [job for job in self._waiting if job.stopped.is_set()]:
            self._waiting.remove(job)
            job.end()

    def _next(self, quick: bool) -> Job | None:
        self._drop_stopped()
        for job in self._waiting:
            if job.quick or not quick:
                self._waiting.remove(job)
                return job
        return None

    def _serve(self, place: Workplace, quick: bool) -> None:
        while True:
            with self._news:
                while not self._closed and (job := self._next(quick)) is None:
                    self._news.wait()
                if self._closed:
                    return
                assert job is not None
                self._running.add(job)
                self._tell_places()
            try:
                place.run(job)
            except Exception:
                LOG.exception("a job could not be run")
                job.fail(UNEXPECTED)
            finally:
                job.end()
                with self._news:
                    self._running.discard(job)
