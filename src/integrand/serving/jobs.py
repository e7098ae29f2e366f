"""Work that people wait for: a bounded queue, a few threads, and jobs that can be stopped at any moment."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import IntegrandError, collected
from ..evaluation.progress import Progress
from ..words import finite

LOG = logging.getLogger("integrand.serve")

BEAT = 10.0
"""Seconds after which a waiting reader gets a sign of life, so that proxies keep the connection."""

TELL = 0.15
"""Seconds between two reports of progress: eyes do not see more."""

UNEXPECTED = "Something went wrong on the server, through no fault of yours; whoever runs it finds the reason in its log."
"""What a user reads of an error that nobody foresaw."""


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


@dataclass(eq=False)
class Job:
    """One request of a user, from the moment it is asked to its last event.

    Attributes:
        work: what is to be done; it gets the job, to say what it finds and to ask whether it should go on.
        quick: whether it takes a second or so, and need not wait for those that take longer.
        seconds: how long it may run.
    """

    work: Callable[[Job], None]
    quick: bool = True
    seconds: float = 120.0
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    begun: float = math.nan
    _events: deque[dict[str, Any]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: Callable[[], object] | None = None
    _told: float = -math.inf

    def say(self, kind: str, **about: Any) -> None:
        """Tell the user something: an event with a kind and what JSON can hold."""
        with self._lock:
            self._events.append({"event": kind, **finite(about)})
            wake = self._wake
        if wake is not None:
            wake()

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
                    lines = [json.dumps(event, allow_nan=False) + "\n" for event in self._events]
                    self._events.clear()
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

    def run(self) -> None:
        """Do the work, and say how it ended. Runs in a thread of the :class:`Desk`."""
        self.begun = time.monotonic()
        try:
            if self.stopped.is_set():
                return
            with collected() as notes:
                self.work(self)
            self.say("done", notes=notes)
        except Stopped:
            late = f"Stopped: it took longer than {self.seconds:g} seconds, which is the limit here."
            self.say("failed", message="Cancelled." if self.stopped.is_set() else late)
        except (IntegrandError, Refused) as error:
            self.say("failed", message=str(error))
        except MemoryError:
            self.say("failed", message="This does not fit into the server's memory. Try a smaller input.")
        except BaseException:  # a model that exits must not take the thread with it
            LOG.exception("a job failed")
            self.say("failed", message=UNEXPECTED)
        finally:
            self.end()

    def end(self) -> None:
        """Let readers know that nothing more will be said."""
        self.ended.set()
        if self._wake is not None:
            self._wake()


class Desk:
    """Threads that take jobs from one bounded queue; one of them takes quick jobs only, so that these never wait for long."""

    def __init__(self, *, workers: int = 2, queue: int = 32) -> None:
        self._waiting: deque[Job] = deque()
        self._most, self._workers = queue, workers
        self._news = threading.Condition()
        self._closed = False
        self._running: set[Job] = set()
        for k in range(workers):
            quick = workers > 1 and k == 0
            threading.Thread(target=self._serve, args=(quick,), daemon=True, name=f"integrand-worker-{k}").start()

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
            self._drop_stopped()
            self._news.notify_all()

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

    def _serve(self, quick: bool) -> None:
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
                job.run()
            finally:
                with self._news:
                    self._running.discard(job)
