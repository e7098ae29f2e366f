"""What the server lets in and gives out, asked over the network as anybody could."""

from __future__ import annotations

import asyncio
import base64
import builtins
import contextlib
import io
import multiprocessing
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import integrand as ig
from integrand.errors import OptionError, TrustError
from integrand.serving.room import FormField, Room
from integrand.serving.server import known_rooms, serve_rooms
from integrand.serving.web import Guard
from tests.serving.client import BYTES, JSON, Client, result

ROOT = Path(__file__).resolve().parents[2]
CAT = (ROOT / "examples" / "cat.jpg").read_bytes()


FORK = multiprocessing.get_context("fork")


class Slow(Room):
    """A room in which one waits until one leaves; its semaphores reach into worker processes."""

    name, title, lead = "slow", "Slow", "Waits."
    fields = (FormField("text", "Text", "text", needed=True),)

    def __init__(self):
        self.inside, self.outside = FORK.Semaphore(0), FORK.Semaphore(0)

    def explain(self, asked, job):
        self.inside.release()
        try:
            while asked["text"] != "go":
                job.job.check()
                time.sleep(0.01)
            job.answers("gone")
        finally:
            self.outside.release()


@pytest.fixture
def slow():
    return Slow()


def test_an_answer_is_a_stream_of_events(client):
    answer = client.ask("words", text="how many people live there?")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [one["event"] for one in answer.events if one["event"] != "progress"] == ["answers", "result", "done"]


class TestResults:
    @staticmethod
    def key(client):
        return result(client.ask("words", text="how many people live there?").events)["id"]

    def test_what_is_handed_out(self, client):
        key = self.key(client)
        page, plain, picture, numbers, code = (
            client("GET", f"/results/{key}/{kind}") for kind in ("page", "page.html", "picture.png", "numbers.json", "code.py")
        )
        assert {one.status for one in (page, plain, picture, numbers, code)} == {200}
        assert picture.body[:4] == b"\x89PNG"
        assert numbers.json["tokens"]
        assert b"questions.load('wtq')" in code.body
        assert plain.headers["content-disposition"] == "attachment; filename*=UTF-8''words.html"
        assert b"ResizeObserver" in page.body
        assert b"ResizeObserver(size)" not in plain.body

    def test_a_page_in_the_frame_can_do_nothing_but_run_its_own_scripts(self, client):
        page = client("GET", f"/results/{self.key(client)}/page")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts allow-downloads;")
        assert "allow-same-origin" not in policy
        assert b"default-src &#x27;none&#x27;" in page.body or b"default-src 'none'" in page.body
        assert b"unsafe-eval" not in page.body
        assert b"script-src 'sha256-" in page.body

    def test_what_is_not_there(self, client):
        key = self.key(client)
        for path in (
            "/results/nonsense/page",
            f"/results/{key}/other",
            f"/results/{key}/..%2f..%2fetc%2fpasswd",
            "/results//page",
        ):
            answer = client("GET", path)
            assert answer.status == 404
            assert b"Traceback" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/web.py",
        "/static//etc/passwd",
        "/sketcher/..%2f..%2f__init__.py",
        "/examples/photo/..%2f..%2fetc%2fpasswd",
        "/examples/photo/%2fetc%2fpasswd",
        "/static/frame.js",
        "/etc/passwd",
        "/docs",
        "/openapi.json",
    ],
)
def test_no_path_leads_to_files(client, path):
    answer = client("GET", path)
    assert answer.status == 404
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


def test_no_field_reads_or_writes_a_file(client, tmp_path):
    """A path in every field of every room: it is taken for a text, or refused."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret words")
    photo = {"photo": client.upload(b"no photo", str(secret))}
    for room in client("GET", "/api/rooms").json["rooms"]:
        needed = {one["name"]: "C" for one in room["fields"] if one["needed"]} | {"tol": "20%"}
        for field in room["fields"]:
            if field["kind"] != "text":  # what is translated or classified is a text, whatever it says
                values = needed | (photo if "photo" in needed else {}) | {field["name"]: str(secret)}
                assert b"the secret words" not in client.ask(room["name"], **values).body
    assert secret.read_text() == "the secret words"
    assert list(tmp_path.iterdir()) == [secret]


class TestUploads:
    def test_a_photo_is_taken_and_forgotten_when_told(self, client):
        key = client.upload(CAT)
        assert client("DELETE", f"/api/uploads/{key}").status == 200
        answer = client.ask("photo", photo=key)
        assert (answer.status, answer.json["message"][:27]) == (410, "The photo is not here any m")

    def test_nothing_is_written(self, small, monkeypatch):
        """While photos are read and explained, no file is opened for writing by anybody in the server or its workers."""
        written, opened, low = FORK.SimpleQueue(), builtins.open, os.open

        def opening(file, mode="r", *rest, **more):
            if set(mode) & set("wax+"):
                written.put(str(file))
            return opened(file, mode, *rest, **more)

        def opening_low(path, flags, *rest, **more):
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                written.put(str(path))
            return low(path, flags, *rest, **more)

        monkeypatch.setattr(builtins, "open", opening)
        monkeypatch.setattr(io, "open", opening)
        monkeypatch.setattr(os, "open", opening_low)
        with serve_rooms([small], port=0).start() as here:
            client = Client(here.url)
            key = client.upload(CAT, "secret-cat.jpg")
            found = result(client.ask("small", photo=key, tol="20%").events)
            for kind in ("page", "page.html", "picture.png", "numbers.json"):
                assert client("GET", f"/results/{found['id']}/{kind}").status == 200
        assert not [name for name in all_of(written) if "matplotlib" not in name]

    def test_an_empty_one(self, client):
        answer = client("POST", "/api/uploads", b"", **BYTES)
        assert (answer.status, answer.json["message"][:18]) == (422, "The photo is empty")

    def test_one_that_never_arrives(self, slow, monkeypatch):
        monkeypatch.setattr("integrand.serving.web.SENDING", 0.2)
        with serve_rooms([slow], port=0).start() as here:
            client = Client(here.url)
            for path, kind in (("api/uploads", "application/octet-stream"), ("api/slow/explain", "application/json")):
                with socket.create_connection((client.host, client.port), timeout=20) as line:
                    head = (f"POST /{path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", "Content-Length: 9", "", "x")
                    line.sendall("\r\n".join(head).encode())
                    assert line.recv(64)[:12] == b"HTTP/1.1 408"

    def test_senders_who_dawdle_hold_up_nobody(self, slow):
        """Uploads of which a byte has arrived; another is answered before any of them ends."""
        with serve_rooms([slow], port=0).start() as here, contextlib.ExitStack() as lines:
            for _ in range(10):
                lines.enter_context(begun_upload(here, b"x", 1000))
            wait_until(lambda: here.app.arriving == 10)
            assert Client(here.url).upload(CAT)

    def test_bytes_that_arrive_have_a_limit_together(self, slow, monkeypatch):
        monkeypatch.setattr("integrand.serving.web.AT_ONCE", 1)
        with serve_rooms([slow], port=0, megabytes=1000 / 2**20).start() as here:
            client = Client(here.url)
            with begun_upload(here, b"x" * 600, 1000) as line:
                wait_until(lambda: here.app.arriving == 600)
                full = client("POST", "/api/uploads", b"x" * 600, **BYTES)
                assert (full.status, full.headers["retry-after"]) == (429, "5")
                assert client("POST", "/api/uploads", b"x" * 400, **BYTES).status == 200
                line.sendall(b"x" * 400)
                assert line.recv(64)[:12] == b"HTTP/1.1 200"
            wait_until(lambda: here.app.arriving == 0)

    def test_what_is_too_large(self, client, server):
        most = server.app.limits.upload
        answer = client("POST", "/api/uploads", b"x" * (most + 1), **BYTES)
        assert (answer.status, answer.json["message"][:22]) == (413, "The photo is too large")

    def test_more_than_was_announced_is_not_read(self, client, server):
        """A body in pieces, without a length: reading ends at the limit."""
        with socket.create_connection((client.host, client.port), timeout=20) as line:
            line.sendall(
                b"POST /api/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            piece = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
            sent = 0
            try:
                for _ in range(200):
                    line.sendall(piece)
                    sent += 65536
            except OSError:
                pass  # the server has hung up
            line.settimeout(20)
            try:
                head = line.recv(64)
            except OSError:
                head = b""
        assert head[:12] in (b"HTTP/1.1 413", b"")
        assert sent >= server.app.limits.upload or not head

    def test_names_are_only_names(self, client):
        answer = client("POST", "/api/uploads", CAT, **BYTES, X_File_Name="..%2F..%2Fetc%2F%3Cb%3E%0d%0aSet-Cookie.jpg")
        assert "/" not in answer.json["name"]
        assert "\n" not in answer.json["name"]
        assert answer.headers["set-cookie"] is None


class TestForm:
    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"[" * 5000, b'{"text": NaN}', b"\xff\xfe"])
    def test_what_is_no_form(self, client, body):
        answer = client("POST", "/api/words/explain", body, **JSON)
        assert answer.status in (400, 422)
        assert "message" in answer.json

    @pytest.mark.parametrize(
        "body",
        [rb'{"smiles": "how many \ud83d people"}', rb'{"\udc00": "x"}', rb'{"smiles": ["\ud83d"]}', b'{"smiles": "\xff"}'],
    )
    def test_half_a_character(self, client, body):
        answer = client("POST", "/api/molecule/explain", body, **JSON)
        assert answer.status == 400
        assert "half of a character" in answer.json["message"]

    def test_a_form_that_is_too_long(self, client):
        assert client("POST", "/api/words/explain", b" " * 70_000, **JSON).status == 413

    def test_rooms_and_actions_that_are_not_there(self, client):
        for path in ("/api/words/warm", "/api/words/__init__", "/api/nothing/explain", "/api/words/checked"):
            assert client("POST", path, {}, **JSON).status == 404
        assert client("GET", "/api/words/explain").status == 405

    def test_errors_are_sentences(self, client):
        for room, values in (("molecule", {"smiles": "C1CC"}), ("words", {"text": "how?", "target": "nonsense"})):
            [said] = [one for one in client.ask(room, **values).events if one["event"] == "failed"]
            assert "Traceback" not in said["message"]
            assert "/" + "site-packages" not in said["message"]
            assert len(said["message"]) < 400


class TestForeign:
    """What other sites can do through a visitor's browser: nothing."""

    def test_requests_of_other_sites(self, client):
        for headers in (
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
        ):
            answer = client("POST", "/api/words/explain", {"text": "how many?"}, **JSON, **headers)
            assert answer.status == 403

    def test_forms_without_a_preflight(self, client):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert client("POST", "/api/words/explain", b'{"text": "how many?"}', Content_Type=kind).status == 415
            assert client("POST", "/api/uploads", CAT, Content_Type=kind).status == 415

    def test_no_other_origin_may_read(self, client):
        for path in ("/", "/api/rooms", "/health"):
            answer = client("GET", path, Origin="https://evil.example")
            assert answer.headers["access-control-allow-origin"] is None
            assert "frame-ancestors" in answer.headers["content-security-policy"]

    def test_a_name_that_was_pointed_at_this_machine(self, client):
        answer = client("GET", "/api/rooms", Host="evil.example")
        assert answer.status == 421
        assert client("GET", "/api/rooms", Host=f"127.0.0.1:{client.port}").status == 200
        assert client("GET", "/api/rooms", Host="LOCALHOST").status == 200
        assert client("GET", "/api/rooms", Host="[::1]:80").status == 200
        assert client("GET", "/api/rooms", Host="[::1].evil").status == 421

    def test_two_names_at_once(self, client, server):
        """Refused by the parser, and by the app under any other parser."""
        with socket.create_connection((client.host, client.port), timeout=20) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
            assert line.recv(64)[:12] == b"HTTP/1.1 400"
        names = [(b"host", b"localhost"), (b"host", b"evil.example")]
        assert awaited(status_of(server.app.asgi, headers=names)) == 400

    def test_headers_end_at_a_limit(self, client, server):
        """With h11 they do; httptools, which uvicorn prefers where it is installed, has no limit."""
        assert server._server.config.http == "h11"
        with socket.create_connection((client.host, client.port), timeout=20) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
            with contextlib.suppress(OSError):  # the server has hung up
                for _ in range(64):
                    line.sendall(b"x" * 65536)
            with contextlib.suppress(OSError):
                assert line.recv(64)[:12] in (b"HTTP/1.1 400", b"")


def begun_upload(here, data, length):
    """A connection that has sent the first bytes of an upload."""
    client = Client(here.url)
    line = socket.create_connection((client.host, client.port), timeout=30)
    head = (
        "POST /api/uploads HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {BYTES['Content-Type']}",
        f"Content-Length: {length}",
    )
    line.sendall("\r\n".join((*head, "", "")).encode() + data)
    return line


def wait_until(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def awaited(coroutine):
    """The result of a coroutine, run in a thread of its own: this one may have the event loop of Playwright."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result(timeout=60)


async def status_of(app, closed=None, **scope):
    """The status with which an app answers a request without a body, whose connection is closed by an event."""
    answers, parts = [], [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        if parts:
            return parts.pop()
        await (closed or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        answers.append(message)

    await app({"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": [], **scope}, receive, send)
    return answers[0]["status"]


def knows(password):
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


def test_a_flood_of_wrong_passwords_holds_up_nobody(monkeypatch):
    """As many answers as there are places are held back; a right password, a typo and the places of who hung up do not wait."""
    monkeypatch.setattr("integrand.serving.web.WRONG_SECONDS", 3600.0)
    monkeypatch.setattr("integrand.serving.web.WRONG_AT_ONCE", 3)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def flood():
        guard, closed = Guard(app, password="right", hosts=None), asyncio.Event()
        right, wrong = ([(b"authorization", knows(text).encode())] for text in ("right", "wrong"))
        waiting = [asyncio.create_task(status_of(guard, closed, headers=wrong)) for _ in range(3)]
        while guard.waiting < 3:
            await asyncio.sleep(0)
        assert await asyncio.wait_for(status_of(guard, headers=right), 30) == 200
        assert await asyncio.wait_for(status_of(guard, headers=wrong), 30) == 401
        assert not any(task.done() for task in waiting)
        closed.set()
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert guard.waiting == 0

    awaited(flood())


def test_a_password(slow, monkeypatch):
    monkeypatch.setattr("integrand.serving.web.WRONG_SECONDS", 0.2)
    with serve_rooms([slow], port=0, password="olé:42").start() as here:
        client = Client(here.url)
        for path in ("/", "/api/rooms", "/static/app.js", "/results/x/page", "/health"):
            answer = client("GET", path)
            assert (answer.status, answer.headers["www-authenticate"][:5]) == (401, "Basic")

        begun = time.monotonic()
        assert client("GET", "/", Authorization=knows("wrong")).status == 401
        assert time.monotonic() - begun > 0.15
        assert client("GET", "/", Authorization="Basic %%%").status == 401
        assert client("GET", "/", Authorization="Basic \xe9\xe9").status == 401
        assert client("GET", "/", Authorization="Bearer x").status == 401
        assert client("GET", "/", Authorization=knows("olé:42")).status == 200
        # The drawing board's frame has no origin and so no password; its files are public.
        assert client("GET", "/sketcher/sketcher.js").status == 200
        assert client("POST", "/sketcher/sketcher.js", b"").status == 401


def test_behind_a_proxy_with_a_prefix(slow):
    """Whether the proxy takes the prefix off or leaves it."""
    with serve_rooms([slow], port=0, prefix="/why", allow_hosts=["models.example"]).start() as here:
        client = Client(here.url)
        assert here.url.endswith("/why/")
        for path in ("/why/", "/", "/why/static/app.js", "/static/app.js", "/why/api/rooms", "/api/rooms"):
            assert client("GET", path, Host="models.example").status == 200
        moved = client("GET", "/why")
        assert (moved.status, moved.headers["location"]) == (307, "/why/")
        page = client("GET", "/why/").body.decode()
        assert 'href="/' not in page
        assert 'src="/' not in page


def test_a_full_queue_and_who_leaves(slow):
    with serve_rooms([slow], port=0, queue=1, workers=1).start() as here:
        client = Client(here.url)
        first = client.begin("slow", text="stay")
        assert slow.inside.acquire(timeout=10)
        second = client.begin("slow", text="stay")
        until = time.monotonic() + 10
        while client("GET", "/health").json["waiting"] != 1:
            assert time.monotonic() < until
        full = client.ask("slow", text="go")
        assert (full.status, full.headers["retry-after"]) == (429, "5")
        for one in (first, second):  # closes the tab
            one.sock.shutdown(socket.SHUT_RDWR)
            one.close()
        assert slow.outside.acquire(timeout=10)
        answer = client.ask("slow", text="go")
        assert [one["event"] for one in answer.events][-2:] == ["answers", "done"]


def test_a_room_offers_what_it_has(slow):
    with serve_rooms([slow], port=0).start() as here:
        client = Client(here.url)
        assert client("GET", "/api/rooms").json["rooms"][0]["actions"] == ["explain"]
        assert client.ask("slow", "methods", text="go").status == 404


def test_time_is_limited(slow):
    with serve_rooms([slow], port=0, seconds=0.1).start() as here:
        answer = Client(here.url).ask("slow", text="stay")
        assert "longer than 0.1 seconds" in answer.events[-1]["message"]


def test_it_listens_on_this_machine_only(server):
    [found] = server._sockets
    assert found.getsockname()[0] == "127.0.0.1"


def test_headers_of_everything(client):
    for path in ("/", "/static/app.js", "/static/app.css", "/api/rooms", "/nothing", "/health"):
        headers = client("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["server"] is None
        assert headers["set-cookie"] is None


def test_the_drawing_board_may_connect_to_nothing(client):
    policy = client("GET", "/sketcher/sketcher.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'self';")
    assert not {"connect-src", "allow-same-origin", "allow-popups", "allow-top-navigation"} & set(
        policy.replace(";", " ").split()
    )


def test_the_page_names_no_other_host(client):
    for path in ("/", "/static/app.js", "/static/app.css", "/sketcher/sketcher.html", "/sketcher/sketcher.js"):
        text = client("GET", path).body.decode()
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text
        assert "//cdn" not in text


def test_the_server_asks_nobody(rooms, monkeypatch):
    """While rooms work, the server and its workers connect to this machine alone, and look up no other name."""
    asked, connect, lookup = FORK.SimpleQueue(), socket.socket.connect, socket.getaddrinfo

    def connecting(self, address):
        asked.put(str(address[0]))
        return connect(self, address)

    def looking(host, *rest, **more):
        asked.put(str(host))
        return lookup(host, *rest, **more)

    monkeypatch.setattr(socket.socket, "connect", connecting)
    monkeypatch.setattr(socket, "getaddrinfo", looking)
    with serve_rooms([rooms[name] for name in ("words", "molecule", "translation")], port=0).start() as here:
        client = Client(here.url)
        for room, text in (("words", "how many?"), ("molecule", "CCO"), ("translation", "good")):
            for action in ("explain", "methods", "baselines"):
                field = "smiles" if room == "molecule" else "text"
                result(client.ask(room, action, tol="20%", **{field: text}).events)
    hosts = set(all_of(asked))
    assert hosts
    assert hosts <= {"localhost", "127.0.0.1", "::1"}


def all_of(queue):
    items = []
    while not queue.empty():
        items.append(queue.get())
    return items


class TestStart:
    @pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")  # of a network that was never trained
    def test_a_folder_of_hugging_face(self, monkeypatch, tmp_path):
        from tests.apps.text.tiny import classifier

        model, tokenizer = classifier("bert")
        model.float().save_pretrained(tmp_path / "mine")
        tokenizer.save_pretrained(tmp_path / "mine")
        monkeypatch.chdir(tmp_path)
        [room] = known_rooms(["words"], models=["./mine"])
        assert room.models.names == ("./mine", "wtq", "trec")
        with serve_rooms([room], port=0).start() as here:
            said = Client(here.url).ask("words", text="a good film", model="./mine").events
            code = Client(here.url)("GET", f"/results/{result(said)['id']}/code.py").body.decode()
        assert {one["label"] for one in said[0]["choices"]} == set(model.config.id2label.values())
        names = {}
        exec(compile(code, "code.py", "exec"), names)
        assert names["result"].label == said[0]["choices"][0]["label"]

    def test_models_come_from_the_command_line_only_and_code_only_if_trusted(self, monkeypatch, tmp_path):
        (tmp_path / "loaded_model.py").write_text("raise SystemExit('ran')\n")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(TrustError, match="--trust"):
            known_rooms(["photo"], models=["loaded_model:make"])

    def test_a_model_from_the_users_code(self, monkeypatch, tmp_path):
        (tmp_path / "colour_model.py").write_text(
            "import torch\n\ndef make():\n"
            "    return torch.nn.Sequential(torch.nn.AvgPool2d(56), torch.nn.Flatten(), torch.nn.Linear(48, 4))\n"
        )
        monkeypatch.chdir(tmp_path)
        [room] = known_rooms(["photo"], models=["colour_model:make"], trust=True)
        assert room.networks.names == ("colour_model:make", "efficientnet-lite0")
        assert room.networks["colour_model:make"].outputs == 4

    def test_the_code_of_a_model_from_the_users_code_loads_it(self, monkeypatch, tmp_path):
        """A network on molecules and a pair of model and tokenizer, each named as package.module:attribute."""
        (tmp_path / "heavy_model.py").write_text(
            "from integrand.apps.molecules import GraphModel\nfrom tests.apps.text.tiny import classifier\n\n"
            "def heavy(atoms, pairs, ends, there, near):\n    return atoms.sum((1, 2))[:, None]\n\n"
            "model = GraphModel(heavy, 'simple', ('atoms',), logits=False)\n\n"
            "def pair():\n    return classifier('bert')\n"
        )
        monkeypatch.chdir(tmp_path)
        found = known_rooms(["molecule"], models=["heavy_model:model", "heavy_model:pair"], trust=True, kind=None)
        assert [room.name for room in found] == ["words", "molecule"]
        with serve_rooms(found, port=0).start() as here:
            client = Client(here.url)
            said = client.ask("molecule", smiles="CCO", model="heavy_model:model").events
            names = {}
            exec(compile(client("GET", f"/results/{result(said)['id']}/code.py").body, "code.py", "exec"), names)
            numbers = client("GET", f"/results/{result(said)['id']}/numbers.json").json
        assert names["result"].atoms.tolist() == [1.0, 1.0, 1.0]
        assert names["result"].to_dict()["score"] == numbers["score"]
        assert found[0].models["heavy_model:pair"].setup[-1] == "model, tokenizer = load_object('heavy_model:pair', trust=True)"

    def test_rooms_that_are_not_there(self):
        with pytest.raises(OptionError, match="got the room 'kitchen'"):
            known_rooms(["kitchen"])

    def test_options(self, slow):
        with pytest.raises(OptionError, match="prefix"):
            serve_rooms([slow], prefix="why/")
        with pytest.raises(OptionError, match="prefix"):
            serve_rooms([slow], prefix="/why now/{x}")
        with pytest.raises(OptionError, match="prefix"):
            serve_rooms([slow], prefix="/a/../b")
        with pytest.raises(OptionError, match="among the names"):
            serve_rooms([slow], allow_hosts=["*"])
        with pytest.raises(OptionError, match="queue"):
            serve_rooms([slow], queue=0)

    def test_a_model_opens_its_room(self):
        found = known_rooms(["words"], models=["weave-w1n2"])
        assert [room.name for room in found] == ["words", "molecule"]

    def test_names_of_hosts(self, slow):
        for host, allowed, good, bad in (
            ("127.0.0.1", ["Example.org:8443"], "example.org", "evil.example"),
            ("0.0.0.0", ["good.org"], "good.org", "evil.example"),
            ("0.0.0.0", [], "any.example", None),
        ):
            with serve_rooms([slow], host=host, port=0, allow_hosts=allowed).start() as here:
                client = Client(f"http://127.0.0.1:{here._sockets[0].getsockname()[1]}")
                assert client("GET", "/health", Host=good).status == 200
                assert bad is None or client("GET", "/health", Host=bad).status == 421

    def test_it_is_said_that_everybody_can_come_in(self, slow, monkeypatch, capsys):
        from integrand.cli.serve_command import PASSWORD, serve

        monkeypatch.setattr("integrand.serving.server.known_rooms", lambda *_, **__: [slow])
        monkeypatch.setattr("integrand.serving.server.RunningServer.run", lambda self: self.close())
        for host, password, said in (("0.0.0.0", None, True), ("127.0.0.1", None, False), ("0.0.0.0", "x", False)):
            monkeypatch.delenv(PASSWORD, raising=False) if password is None else monkeypatch.setenv(PASSWORD, password)
            serve(host=host, open_browser=False)
            assert ("there is no password" in capsys.readouterr().err) == said

    def test_an_empty_password(self, monkeypatch):
        from integrand.cli.serve_command import PASSWORD, _password

        monkeypatch.setenv(PASSWORD, "  ")
        with pytest.raises(OptionError, match="is set, but empty"):
            _password(None)

    def test_localhost_is_all_of_its_addresses(self, slow, monkeypatch):
        """Whichever of them a browser tries first, no other program can be there."""
        lookup, addresses = socket.getaddrinfo, ("127.0.0.2", "127.0.0.3", "192.0.2.1")  # the last is not ours
        found = [lookup(name, 0, type=socket.SOCK_STREAM)[0] for name in addresses]

        def both(host, port, **more):
            return [(*one[:4], (one[4][0], port)) for one in found]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        here = serve_rooms([slow], host="localhost", port=0)
        names = [one.getsockname() for one in here._sockets]
        assert [name for name, _ in names] == list(addresses[:2])
        assert len({port for _, port in names}) == 1
        here.close()

    def test_on_windows_no_other_program_takes_the_port(self, slow, monkeypatch):
        monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
        here = serve_rooms([slow], port=0, isolate=False)
        assert here._sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not here._sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        here.close()

    def test_closing_what_never_ran_frees_the_port(self, slow):
        here = serve_rooms([slow], port=0)
        port = here._sockets[0].getsockname()[1]
        here.close()
        serve_rooms([slow], port=port).close()

    def test_a_port_that_is_taken(self, slow, server):
        port = server._sockets[0].getsockname()[1]
        with pytest.raises(OptionError, match="cannot listen"):
            serve_rooms([slow], port=port)

    def test_in_python_over_a_model_of_ones_own(self):
        import torch

        model = torch.nn.Sequential(torch.nn.AvgPool2d(56), torch.nn.Flatten(), torch.nn.Linear(48, 2)).eval()
        with ig.serve(model, classes=["dark", "bright"], port=0, open=False, wait=False) as here:
            client = Client(here.url)
            [room] = client("GET", "/api/rooms").json["rooms"]
            assert room["name"] == "photo"
            said = client.ask("photo", photo=client.upload(CAT)).events
            assert {one["label"] for one in said[0]["choices"]} == {"dark", "bright"}
            assert here.url in here._repr_html_()
        with pytest.raises(ConnectionRefusedError):
            client("GET", "/health")

    def test_kinds(self):
        with pytest.raises(OptionError, match="kind"):
            ig.serve(lambda x: x, kind="sound", open=False, wait=False)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="tokenizer"):
            ig.serve(lambda x: x, kind="text", open=False, wait=False)
        with pytest.raises(OptionError, match="explain and inquiry"):
            ig.serve(lambda x: x, kind="molecule", open=False, wait=False)
