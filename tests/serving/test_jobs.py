"""The queue: bounded, fair to quick jobs, and ended by whoever leaves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from integrand import Progress
from integrand.errors import InputError, IntegrandWarning, warn
from integrand.serving.jobs import UNEXPECTED, Busy, Desk, Job, Stopped
from integrand.serving.room import Store
from integrand.serving.worker_processes import InProcess


def awaited(coroutine):
    """What a coroutine gives, run in a thread of its own: this one may have the event loop of Playwright."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def events(job):
    """What a reader gets of a job, to its end."""

    async def read():
        return [json.loads(line) async for line in job.events() if line.strip()]

    return awaited(read())


def desk_of(workers, queue):
    """A desk at which tasks are functions of their jobs."""
    results = Store(size=lambda one: one.size, most_bytes=1 << 20, seconds=60)
    return Desk([InProcess(lambda task, job: task(job), results)] * workers, queue=queue)


@pytest.fixture
def desk():
    found = desk_of(workers=2, queue=2)
    yield found
    found.close()


def test_what_a_job_says_comes_in_order(desk):
    def work(job):
        for k in range(100):
            job.say("step", k=k)

    job = Job(work)
    desk.take(job)
    said = events(job)
    assert [one["k"] for one in said[:-1]] == list(range(100))
    assert said[-1] == {"event": "done", "notes": []}


def test_errors_are_told_in_the_users_words_and_others_are_not(desk, caplog):
    def told(job):
        raise InputError("the photo is empty.")

    def secret(job):
        raise RuntimeError("/etc/secret")

    for work, message in ((told, "the photo is empty."), (secret, UNEXPECTED)):
        job = Job(work)
        desk.take(job)
        assert events(job) == [{"event": "failed", "message": message}]
    assert "/etc/secret" in caplog.text


def test_warnings_become_notes(desk):
    def work(job):
        warn("read this", IntegrandWarning)

    job = Job(work)
    desk.take(job)
    assert events(job) == [{"event": "done", "notes": ["read this"]}]


def test_numbers_that_json_lacks_become_null(desk):
    job = Job(lambda job: job.tell(Progress(1, 0, 5, 3)))
    desk.take(job)
    assert events(job)[0] == {"event": "progress", "gradients": 5, "expected": 5, "error": None}


def test_a_full_queue_says_so_and_forgets_who_left(desk):
    release = threading.Event()
    running = [Job(lambda job: release.wait(20)) for _ in range(2)]
    for job in running:
        desk.take(job)
    until = time.monotonic() + 10
    while desk.busy != (2, 0):
        assert time.monotonic() < until
        time.sleep(0.01)
    waiting = [Job(lambda job: None) for _ in range(2)]
    for job in waiting:
        desk.take(job)
    with pytest.raises(Busy):
        desk.take(Job(lambda job: None))
    waiting[0].stop()
    late = Job(lambda job: job.say("here"))
    desk.take(late)
    release.set()
    assert events(late)[-2:] == [{"event": "here"}, {"event": "done", "notes": []}]
    assert waiting[0].ended.is_set()


def test_a_quick_job_does_not_wait_for_slow_ones():
    desk = desk_of(workers=2, queue=8)
    release = threading.Event()
    slow = [Job(lambda job: release.wait(20), quick=False) for _ in range(2)]
    for job in slow:
        desk.take(job)
    quick = Job(lambda job: None)
    desk.take(quick)
    assert events(quick)[-1]["event"] == "done"
    assert not any(job.ended.is_set() for job in slow)
    release.set()
    desk.close()


def test_a_reader_who_leaves_ends_the_job(desk):
    began, ended = threading.Event(), threading.Event()

    def work(job):
        try:
            while True:
                job.say("step")
                began.set()
                job.tell(Progress(1, 0, 1, 2))
                time.sleep(0.01)
        except Stopped:
            ended.set()
            raise

    job = Job(work)
    desk.take(job)

    async def leave():
        reader = job.events()
        async for _ in reader:
            break
        await reader.aclose()

    awaited(leave())
    assert began.is_set()
    assert ended.wait(10)
    assert job.ended.wait(10)


def test_stopped_is_not_taken_for_a_failure_of_a_method():
    """Comparisons go on after an Exception; they must not go on for somebody who has left."""
    assert not issubclass(Stopped, Exception)


def test_a_job_that_takes_too_long_is_ended(desk):
    def work(job):
        while True:
            job.check()
            time.sleep(0.01)

    job = Job(work, seconds=0.05)
    desk.take(job)
    [said] = events(job)
    assert said["event"] == "failed"
    assert "longer than 0.05 seconds" in said["message"]


def test_a_model_that_exits_does_not_take_the_thread_with_it(caplog):
    desk = desk_of(workers=1, queue=4)

    def leave(job):
        raise SystemExit("enough")

    for _ in range(2):
        job = Job(leave)
        desk.take(job)
        assert events(job)[-1] == {"event": "failed", "message": UNEXPECTED}
    desk.close()
    assert "enough" in caplog.text


def test_who_waits_is_told_for_how_many(desk):
    release = threading.Event()
    slow = [Job(lambda job: release.wait(20), quick=False) for _ in range(2)]
    for job in slow:
        desk.take(job)
    release_later = threading.Timer(0.2, release.set)
    release_later.start()
    assert events(slow[1])[0] == {"event": "waiting", "before": 1}


def test_a_closed_desk_takes_nothing_and_ends_what_runs():
    desk = desk_of(workers=1, queue=1)

    def work(job):
        while True:
            job.check()
            time.sleep(0.01)

    job = Job(work)
    desk.take(job)
    desk.close()
    assert job.ended.wait(10)
    with pytest.raises(Busy):
        desk.take(Job(work))
