"""Requests in worker processes: a crash, a hang or a kill ends one request, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from integrand.serving import worker_processes
from integrand.serving.jobs import NO_MEMORY
from integrand.serving.room import FormField, Room, RoomResult, png_of
from integrand.serving.room_files import NUMBERS, PAGE, PICTURE, RoomFiles, made
from integrand.serving.server import serve_rooms
from integrand.serving.worker_processes import COARSE_STAYS, CRASHED, KILLED
from tests.serving.client import Client, result
from tests.serving.test_web import FORK, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


DRAWN = FORK.Value("i", 0)
"""How often a picture was drawn, in any process."""


def drawn():
    with DRAWN.get_lock():
        DRAWN.value += 1
    return b"picture"


def a_result(picture=bytes, numbers=dict, **options):
    return RoomResult("title", "sentence", "<p>page</p>", None, picture, numbers, "print()", **options)


def hang(*_):
    """Compute for ever without a moment in which Python could stop it."""
    sum(range(10**15))


class Rough(Room):
    """A room that does to its process what the text says."""

    name, title, lead = "rough", "Rough", "Crashes."
    fields = (FormField("text", "Text", "text", needed=True),)
    quick = False

    def __init__(self):
        self.inside, self.let_go = FORK.Semaphore(0), FORK.Semaphore(0)
        DRAWN.value = 0

    def explain(self, asked, job):
        text = asked["text"]
        if text == "crash":
            faulthandler.disable()  # of pytest, which would print where
            ctypes.string_at(0)
        elif text == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif text == "leave":
            os._exit(3)
        elif text == "hang":
            job.answers("hangs")
            hang()
        elif text == "coarse":
            job.show(a_result(), final=False)
            hang()
        elif text == "wait":
            self.inside.release()
            self.let_go.acquire()
        elif text == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        elif text == "pid":
            job.answers(str(os.getpid()))
        elif text == "picture":
            job.show(a_result(drawn))
        elif text == "slow picture":
            job.show(a_result(partial(hang, 0)))
        elif text == "bound":
            job.show(a_result(lambda: drawn(), lambda: {"a": 1}))


@pytest.fixture
def rough():
    return Rough()


@contextlib.contextmanager
def served(room, **options):
    with serve_rooms([room], port=0, **options).start() as here:
        assert here.app.forks is not None
        yield here, Client(here.url)


def last(client, text):
    return client.ask("rough", text=text).events[-1]


@pytest.mark.parametrize(
    ("text", "message"), [("crash", CRASHED), ("leave", CRASHED), ("killed", KILLED), ("memory", NO_MEMORY)]
)
def test_a_crash_ends_one_request(rough, text, message, caplog):
    with served(rough, workers=1) as (_, client):
        assert last(client, text) == {"event": "failed", "message": message}
        assert last(client, "pid")["event"] == "done"


def test_a_crash_beside_another_request(rough):
    """Of two requests at a time, one that crashes does nothing to the other."""
    with served(rough, workers=3) as (_, client), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(last, client, "wait")
        assert rough.inside.acquire(timeout=30)
        assert last(client, "crash")["message"] == CRASHED
        rough.let_go.release()
        assert waiting.result(timeout=30)["event"] == "done"


def test_the_time_is_held_where_nothing_can_be_interrupted(rough, monkeypatch):
    monkeypatch.setattr(worker_processes, "GRACE", 0.1)
    with served(rough, workers=1, seconds=0.3) as (_, client):
        assert "longer than 0.3 seconds" in last(client, "hang")["message"]
        first, kept, done = (one for one in client.ask("rough", text="coarse").events if one["event"] != "waiting")
        assert (first["event"], kept["message"], done["event"]) == ("result", COARSE_STAYS, "done")
        assert client("GET", f"/results/{first['id']}/page.html").body == b"<p>page</p>"
        assert last(client, "pid")["event"] == "done"


def test_who_leaves_frees_the_worker_where_nothing_can_be_interrupted(rough, monkeypatch):
    monkeypatch.setattr(worker_processes, "GRACE", 0.1)
    with served(rough, workers=1) as (_, client):
        with contextlib.closing(client.begin("rough", text="hang")) as line, line.getresponse() as answer:
            assert b"hangs" in answer.readline()
        assert last(client, "pid")["event"] == "done"


def test_a_worker_that_ended_between_two_requests(rough):
    with served(rough, workers=1) as (_, client):
        pid = client.ask("rough", text="pid").events[0]["said"]
        os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: client.ask("rough", text="pid").events[0].get("said", pid) != pid)


def test_all_processes_end_with_the_server(rough):
    with served(rough, workers=1) as (here, client):
        pids = [int(client.ask("rough", text="pid").events[0]["said"]), here.app.forks._pid]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_port_is_free_when_its_server_is_closed_though_a_later_one_runs(rough):
    with served(rough) as (_, client), served(Rough()):
        pass
    with served(rough) as (here, client):
        later = serve_rooms([Rough()], port=0)
        here.close()
        with pytest.raises(ConnectionRefusedError):
            client("GET", "/health")
        later.close()


class TestFiles:
    """Pictures and numbers: made by workers within the limits, once each."""

    def test_a_picture_is_drawn_once_however_many_ask(self, rough):
        with served(rough) as (_, client), ThreadPoolExecutor(8) as pool:
            key = result(client.ask("rough", text="picture").events)["id"]
            assert DRAWN.value == 0
            answers = list(pool.map(lambda _: client("GET", f"/results/{key}/picture.png"), range(16)))
            assert {(one.status, one.body) for one in answers} == {(200, b"picture")}
            assert DRAWN.value == 1

    def test_a_picture_waits_its_turn(self, rough):
        with served(rough, workers=1, queue=1) as (here, client), ThreadPoolExecutor(2) as pool:
            key = result(client.ask("rough", text="picture").events)["id"]
            busy = pool.submit(last, client, "wait")
            assert rough.inside.acquire(timeout=30)
            waiting = pool.submit(last, client, "pid")
            wait_until(lambda: here.app.desk.busy == (1, 1))
            full = client("GET", f"/results/{key}/picture.png")
            assert (full.status, full.headers["retry-after"]) == (429, "5")
            rough.let_go.release()
            assert {busy.result(30)["event"], waiting.result(30)["event"]} == {"done"}
            assert client("GET", f"/results/{key}/picture.png").status == 200

    def test_a_picture_has_its_time(self, rough, monkeypatch):
        monkeypatch.setattr(worker_processes, "GRACE", 0.1)
        with served(rough, seconds=0.3) as (_, client):
            key = result(client.ask("rough", text="slow picture").events)["id"]
            late = client("GET", f"/results/{key}/picture.png")
            assert late.status == 503
            assert "longer than 0.3 seconds" in late.json["message"]

    def test_what_cannot_be_sent_is_made_at_once(self, rough):
        with served(rough) as (_, client):
            key = result(client.ask("rough", text="bound").events)["id"]
            assert DRAWN.value == 1
            assert client("GET", f"/results/{key}/picture.png").body == b"picture"
            assert client("GET", f"/results/{key}/numbers.json").json == {"a": 1}
            assert DRAWN.value == 1

    def test_a_source_holds_no_model_and_no_foreign_memory(self):
        large = torch.zeros(1 << 20)
        packed = RoomFiles.packed(a_result(bytes, partial(dict, part=large[:2].tolist, model=torch.nn.Linear(1000, 1000))))
        assert packed.size < 10_000
        views = RoomFiles.packed(a_result(partial(total, large[:2])))
        assert views.size < 10_000
        assert made(views.source, PICTURE) == b"0.0"

    def test_what_is_too_large_is_made_at_once(self, monkeypatch):
        monkeypatch.setattr("integrand.serving.room_files.LARGEST_SOURCE", 1000)
        packed = RoomFiles.packed(a_result(partial(total, torch.zeros(1000))))
        assert packed.source is None
        assert set(packed.files) == {PAGE, PICTURE, NUMBERS}

    def test_figures_are_drawn_from_their_source(self):
        from matplotlib.figure import Figure

        packed = RoomFiles.packed(a_result(png_of(Figure)))
        assert isinstance(packed.source, bytes)
        assert made(packed.source, PICTURE)[:4] == b"\x89PNG"


def total(values):
    return str(float(values.sum())).encode()


def failing():
    raise OSError(errno.EAGAIN, "no more processes")


class TestWithoutWorkers:
    def test_in_this_process_if_told(self, rough):
        with serve_rooms([rough], port=0, isolate=False).start() as here:
            client = Client(here.url)
            assert client.ask("rough", text="pid").events[0]["said"] == str(os.getpid())
            key = result(client.ask("rough", text="bound").events)["id"]
            assert client("GET", f"/results/{key}/picture.png").body == b"picture"
            assert client("GET", f"/results/{key}/numbers.json").json == {"a": 1}

    @pytest.mark.parametrize("why", ["a GPU", "another system", "a fork that fails", "a trial that hangs"])
    def test_in_this_process_where_nothing_can_be_forked(self, rough, monkeypatch, caplog, why):
        if why == "a GPU":
            monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        elif why == "another system":
            monkeypatch.setattr(sys, "platform", "darwin")
        elif why == "a fork that fails":
            fork, me = os.fork, os.getpid()
            monkeypatch.setattr(os, "fork", lambda: fork() if os.getpid() == me else failing())
        else:
            monkeypatch.setattr(worker_processes, "TRIAL_SECONDS", 0.1)
            monkeypatch.setattr(worker_processes, "GRACE", 0.1)
            monkeypatch.setattr(worker_processes, "_try", hang)
        with serve_rooms([rough], port=0).start() as here:
            assert Client(here.url).ask("rough", text="pid").events[0]["said"] == str(os.getpid())
        assert "computed in the process of the server" in caplog.text


SCRIPT = """
    import signal, sys, torch
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    from integrand.serving import server
    from integrand.serving.room import FormField, Room

    class Busy(Room):
        name, title, lead = "rough", "Busy", "Computes."
        fields = (FormField("text", "Text", "text"),)

        def explain(self, asked, job):
            job.answers("begun")
            x = torch.ones(400, 400)
            while True:
                job.job.check()
                for _ in range(20):
                    x = (x @ x).tanh()

    server.known_rooms = lambda *_, **__: [Busy()]
    from integrand.cli import main
    sys.argv = ["integrand", "serve", "--no-open", *sys.argv[1:]]
    main()
"""


@contextlib.contextmanager
def busy_command(*options):
    """``integrand serve`` in a process group of its own, while it computes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), "--port", str(port), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as server:
        try:
            assert "Ctrl-C ends it" in server.stdout.readline()
            begun = Client(f"http://localhost:{port}").begin("rough", text="x")
            with contextlib.closing(begun), begun.getresponse() as answer:
                assert b"begun" in answer.readline()
                yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["--isolate", "--no-isolate"])
def test_ctrl_c_while_something_is_computed(how):
    with busy_command(how) as server:
        os.killpg(server.pid, signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 130
    assert "Traceback" not in errors
    assert "terminate" not in errors


def test_nothing_outlives_a_server_that_is_killed():
    with busy_command() as server:
        server.kill()
        server.wait()

        def alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, 0)
                return True

        wait_until(lambda: not alive())
