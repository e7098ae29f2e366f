"""The app as a program of the web: its addresses, and everything that keeps it safe.

One request is one job: its answer is a stream of lines, and whoever closes the connection ends the job. Nothing is written to
disk. Pages of results are shown in frames that can neither reach the app nor load anything.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import IntegrandError
from ..loading import shipped
from ..render.html import STYLE, with_script
from ..version import version_of
from ..words import shown
from .jobs import LOG, UNEXPECTED, Busy, Desk, Forgotten, Job, Refused
from .room import Asked, Room, RoomJob, RoomResult, Store
from .room_files import NUMBERS, PAGE, PICTURE, RoomFiles, made
from .worker_processes import workplaces

SETTINGS = 64 << 10
"""The most bytes of what is filled into a form."""

KEPT_UPLOADS, KEPT_RESULTS = 256 << 20, 64 << 20
"""The most bytes of uploads, and of results, that are kept in memory."""

UPLOAD_SECONDS, RESULT_SECONDS = 15 * 60.0, 60 * 60.0
"""Seconds after which what nobody has asked for is forgotten."""

SWEEP = 30.0
"""Seconds between two looks for that."""

SENDING, AT_ONCE = 60, 4
"""Seconds that a request may take to arrive, and the uploads of full size whose bytes may be in memory while they arrive."""

WRONG_SECONDS, WRONG_AT_ONCE = 1.0, 32
"""Seconds for which the answer to a wrong password is held back, and the answers that are at a time; others go at once."""

APP_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; form-action 'none'; base-uri 'none'"
)
"""What the app's own page may do: load from where it comes from, and nothing else."""

FRAME_POLICY = "sandbox allow-scripts allow-downloads"
"""What a result's page may do beyond its own policy, which lets it load nothing: run its scripts, and save files."""

SKETCHER_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
"""What the drawing board for molecules may do: load its own files, in a frame without an origin."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=()",
    "Cache-Control": "no-store",
}

LIBRARY = "openchemlib.js"
"""What the drawing board for molecules draws with, a file of ``integrand-models``."""

CHALLENGE = 'Basic realm="integrand", charset="UTF-8"'

TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
}


@dataclass(frozen=True)
class Limits:
    """How much one user may ask of the server.

    Attributes:
        seconds: how long one request may run.
        upload: the most bytes of a photo.
        queue: how many requests may wait.
        workers: how many run at a time.
    """

    seconds: float = 120.0
    upload: int = 32 << 20
    queue: int = 32
    workers: int = 2


@dataclass(frozen=True)
class RoomAction:
    """An action of a room, with what a user filled in.

    Attributes:
        room: its name.
        name: of the action.
        asked: what was filled in.
    """

    room: str
    name: str
    asked: Asked


@dataclass(frozen=True)
class ResultFile:
    """A file of a result to be made.

    Attributes:
        source: what it is made from.
        name: of the file.
    """

    source: RoomResult | bytes
    name: str


@dataclass(eq=False)
class App:
    """The app over some rooms.

    Attributes:
        rooms: by name, in the order of the page.
        limits: how much one user may ask.
        password: what a user has to know, if anything.
        hosts: the names under which the server may be addressed; None for any.
        prefix: the path under which a reverse proxy shows the app, such as ``/why``.
        frames: who may show the app in a frame, as a content security policy says it.
        isolate: whether to compute in processes of their own, where these can be forked.
    """

    rooms: Mapping[str, Room]
    limits: Limits = field(default_factory=Limits)
    password: str | None = None
    hosts: frozenset[str] | None = None
    prefix: str = ""
    frames: str = "'self'"
    isolate: bool = True

    def __post_init__(self) -> None:
        self.arriving = 0
        self.uploads: Store[tuple[bytes, str]] = Store(
            size=lambda one: len(one[0]), most_bytes=KEPT_UPLOADS, seconds=UPLOAD_SECONDS
        )
        self.results: Store[RoomFiles] = Store(size=lambda one: one.size, most_bytes=KEPT_RESULTS, seconds=RESULT_SECONDS)
        places, self.forks = workplaces(self.handle, self.results, self.limits.workers, isolate=self.isolate)
        self.desk = Desk(places, queue=self.limits.queue)
        routes: list[BaseRoute] = [
            Route("/", self.index),
            Route("/static/{name}", self.static),
            Route("/sketcher/{name}", self.sketcher),
            Route("/api/rooms", self.list_rooms),
            Route("/api/uploads", self.upload, methods=["POST"]),
            Route("/api/uploads/{key}", self.forget, methods=["DELETE"]),
            Route("/api/{room}/{action}", self.ask, methods=["POST"]),
            Route("/examples/{room}/{name}", self.example),
            Route("/results/{key}/{kind}", self.result),
            Route("/health", self.health),
        ]
        if self.prefix:  # whether the proxy takes the prefix off or not
            within = Router(routes=list(routes), redirect_slashes=False)
            routes = [Route(self.prefix, self.to_index), Mount(self.prefix, within), *routes]
        guard = Middleware(Guard, password=self.password, hosts=self.hosts, prefix=self.prefix)
        handlers = {Exception: self.failed, 404: self.missing, 405: self.missing}
        self.asgi = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=self.lifespan)
        self.asgi.router.redirect_slashes = False  # the address that it would lead to is not always that of the proxy

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """What is open while the app runs; what is too old is forgotten also where nobody asks."""

        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP)
                self.uploads.sweep()
                self.results.sweep()

        sweeping = asyncio.create_task(sweep())
        yield
        sweeping.cancel()
        self.close()

    def handle(self, task: RoomAction | ResultFile, job: Job) -> None:
        """Do what a user asked for. Runs in a worker process where there are any."""
        if isinstance(task, RoomAction):
            getattr(self.rooms[task.room], task.name)(task.asked, RoomJob(job))
        else:
            job.deliver(made(task.source, task.name))

    def close(self) -> None:
        """End what runs, and forget what is stored."""
        self.desk.close()
        if self.forks is not None:
            self.forks.close()
        self.uploads.clear()
        self.results.clear()

    async def index(self, request: Request) -> Response:
        """The page."""
        return Response(_file("static", "index.html"), headers=self._framed(APP_POLICY), media_type=TYPES[".html"])

    async def to_index(self, request: Request) -> Response:
        """The page, for whoever leaves out the slash at the end, without which its links would lead elsewhere."""
        return RedirectResponse(f"{self.prefix}/", headers=HEADERS)

    async def static(self, request: Request) -> Response:
        """A part of the page."""
        return _asset("static", request.path_params["name"], ("app.js", "app.css", "icon.svg"))

    async def sketcher(self, request: Request) -> Response:
        """A part of the molecule sketcher, which runs in a frame of its own."""
        found = _asset("sketcher", request.path_params["name"], _sketcher_files())
        found.headers.update(self._framed(SKETCHER_POLICY))
        return found

    async def list_rooms(self, request: Request) -> Response:
        """What there is: rooms, their forms and examples."""
        return _json(
            {
                "version": version_of(),
                "rooms": [room.described() for room in self.rooms.values()],
                "upload": self.limits.upload,
                "sketcher": bool(_sketcher_files()),
            }
        )

    async def health(self, request: Request) -> Response:
        """Whether the server lives, and how busy it is."""
        running, waiting = self.desk.busy
        return _json({"running": running, "waiting": waiting, "uploads": len(self.uploads), "results": len(self.results)})

    async def upload(self, request: Request) -> Response:
        """Take a photo into memory; gives a key by which it can be asked about."""
        if request.headers.get("content-type", "") != "application/octet-stream":
            return _refused("Expected the bytes of a photo as application/octet-stream.", 415)
        try:
            data = await self._body(request, self.limits.upload)
        except Busy:
            return _busy()
        except TimeoutError:
            return _refused("The photo took too long to arrive. Try again, or make it smaller first.", 408)
        if data is None:
            most = self.limits.upload / 2**20
            return _refused(f"The photo is too large: up to {most:.3g} MB are taken here. Make it smaller first.", 413)
        if not data:
            return _refused("The photo is empty: 0 bytes. Choose it again.", 422)
        name = unquote(request.headers.get("x-file-name", "photo"))[:200]
        name = shown(name.replace("\\", "/").rpartition("/")[2]) or "photo"
        return _json({"upload": self.uploads.add((data, name)), "name": name})

    async def _body(self, request: Request, most: int) -> bytes | None:
        """The body of a request, read no further than a limit; None for more.

        What counts is the bytes that have arrived, so that senders who dawdle take no place from others.

        Raises:
            Busy: bodies that are arriving hold as much memory as they may.
            TimeoutError: the body took too long.
        """
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            return None
        body = bytearray()
        try:
            async with asyncio.timeout(SENDING):
                async for part in request.stream():
                    if len(body) + len(part) > most:
                        return None
                    if self.arriving + len(part) > AT_ONCE * self.limits.upload:
                        raise Busy
                    self.arriving += len(part)
                    body += part
        except ClientDisconnect:
            return None
        finally:
            self.arriving -= len(body)
        return bytes(body)

    async def forget(self, request: Request) -> Response:
        """Forget an uploaded photo."""
        self.uploads.drop(request.path_params["key"])
        return _json({})

    async def ask(self, request: Request) -> Response:
        """Explain something, or compare methods or baselines on it: a stream of events, one line of JSON each."""
        room, action = self.rooms.get(request.path_params["room"]), request.path_params["action"]
        if room is None or action not in room.actions:
            return await self.missing(request, Exception())
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _refused("Expected the settings as application/json.", 415)
        try:
            data = await self._body(request, SETTINGS)
        except Busy:
            return _busy()
        except TimeoutError:
            return _refused("The request took too long to arrive. Try again.", 408)
        if data is None:
            return _refused("That is too much text.", 413)
        try:
            settings = json.loads(data)
            json.dumps(settings, ensure_ascii=False).encode()  # JSON can spell half a surrogate, which is no text
            asked = room.checked(settings, self.uploads)
        except UnicodeError:
            return _refused("The text has half of a character in it, or bytes that are no UTF-8. Copy it again.", 400)
        except (ValueError, RecursionError):
            return _refused("Expected the settings as a JSON object.", 400)
        except Refused as error:
            return _refused(str(error), 410 if isinstance(error, Forgotten) else 422)
        quick = room.quick and action == "explain"
        job = Job(RoomAction(room.name, action, asked), quick=quick, seconds=self.limits.seconds)
        try:
            self.desk.take(job)
        except Busy:
            return _busy()
        return StreamingResponse(
            job.events(), media_type="application/x-ndjson", headers={**_headers(), "X-Accel-Buffering": "no"}
        )

    async def example(self, request: Request) -> Response:
        """A photo among the examples of a room, to show what it is."""
        room, name = self.rooms.get(request.path_params["room"]), request.path_params["name"]
        if room is None or all(name != one.get("photo") for one in room.examples):
            return await self.missing(request, Exception())
        return Response(room.example_photo(name)[0], media_type="image/jpeg", headers=_headers())

    async def result(self, request: Request) -> Response:
        """A result: its page, its picture, its numbers, or the code that gives the same."""
        key, kind = request.path_params["key"], request.path_params["kind"]
        stored = self.results.get(key)
        if stored is None or kind not in ("page", "code.py", PAGE, PICTURE, NUMBERS):
            return Response(
                "This result is not here any more. Go back and ask again.", 404, headers=_headers(), media_type="text/plain"
            )
        if kind == "page":  # in the frame
            framed = await run_in_threadpool(with_script, stored.files[PAGE].decode(), _file("static", "frame.js"))
            return Response(framed, headers=self._framed(FRAME_POLICY), media_type=TYPES[".html"])
        if kind == "code.py":
            headers = {**_headers(FRAME_POLICY), "Content-Disposition": "inline"}
            return Response(stored.code, headers=headers, media_type="text/plain; charset=utf-8")
        try:
            data = await self._file_of(stored, kind, key)
        except Busy:
            return _busy()
        except Refused as error:
            return _refused(str(error), 503)
        ending = kind.rpartition(".")[2]
        name = quote(f"{stored.stem}.{ending}")
        headers = {**_headers(FRAME_POLICY), "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(data, headers=headers, media_type=TYPES[f".{ending}"])

    async def _file_of(self, stored: RoomFiles, name: str, key: str) -> bytes:
        """A file of a result: made once, as a job like any other.

        Raises:
            Busy: the queue is full.
            Refused: it could not be made.
        """
        async with stored.turn:
            if name not in stored.files:
                assert stored.source is not None
                job = Job(ResultFile(stored.source, name), seconds=self.limits.seconds)
                self.desk.take(job)
                async for _ in job.events():
                    pass
                if job.file is None:
                    raise Refused(job.failed or UNEXPECTED)
                stored.files[name] = job.file
                if {PICTURE, NUMBERS} <= stored.files.keys():
                    stored.source = None
                self.results.add(stored, key)
            return stored.files[name]

    def _framed(self, policy: str) -> dict[str, str]:
        """The headers of a page that may be shown in a frame, by whom it may be; that holds for all frames around it."""
        return _headers(f"{policy}; frame-ancestors {self.frames}")

    async def missing(self, request: Request, error: Exception) -> Response:
        """The answer where there is nothing."""
        return _refused("There is nothing here.", getattr(error, "status_code", 404))

    async def failed(self, request: Request, error: Exception) -> Response:
        """The answer to what nobody foresaw; the reason goes to the log, never to the page."""
        if isinstance(error, IntegrandError):
            return _refused(str(error), 422)
        LOG.error("a request failed", exc_info=error)
        return _refused(UNEXPECTED, 500)


class Guard:
    """Lets requests through that come from the app itself, to a name the server has, by somebody who knows the password."""

    def __init__(self, app: ASGIApp, *, password: str | None, hosts: frozenset[str] | None, prefix: str = "") -> None:
        self.app = app
        self.prefix = prefix
        self.waiting = 0
        self.hosts = hosts
        self.digest = None if password is None else hashlib.sha256(password.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._refused(request)
        # The drawing board's frame has no origin, and so no password; its files are the same for everybody.
        open_to_all = request.method == "GET" and scope["path"].removeprefix(self.prefix).startswith("/sketcher/")
        if refused is None and self.digest is not None and not open_to_all and not self._knows(request):
            if "authorization" in request.headers and self.waiting < WRONG_AT_ONCE:
                self.waiting += 1
                try:
                    await _closed(receive, WRONG_SECONDS)
                finally:
                    self.waiting -= 1
            refused = _refused("A password is needed here.", 401, {"WWW-Authenticate": CHALLENGE})
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        """The refusal of requests that other sites send through a visitor's browser; None for all others."""
        host, *further_hosts = request.headers.getlist("host") or [""]
        if further_hosts:
            return _refused("Expected one Host header, and got several.", 400)
        if self.hosts is not None and host_name(host) not in self.hosts:  # a foreign name that was pointed at this machine
            known = ", ".join(sorted(self.hosts))
            return _refused(f"This server is called {known}; start it with --allow-host to let it be called otherwise.", 421)
        if request.method in ("GET", "HEAD"):
            return None
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        foreign = site not in (None, "same-origin", "none")
        if site is None and origin is not None:
            foreign = host_name(origin.partition("://")[2]) != host_name(host)
        return _refused("Requests from other sites are not answered.", 403) if foreign else None

    def _knows(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            password = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
        except ValueError:  # no base64, or no UTF-8 in it
            return False
        assert self.digest is not None
        told = hashlib.sha256(password.encode()).digest()
        return kind.lower() == "basic" and hmac.compare_digest(told, self.digest)


def host_name(host: str) -> str:
    """A host without its port, in small letters.

    >>> host_name("Example.org:8443"), host_name("[::1]:80"), host_name("[::1]"), host_name("[::1].evil")
    ('example.org', '[::1]', '[::1]', '[::1].evil')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and (port.isdecimal() or not port) else host.lower()


async def _closed(receive: Receive, seconds: float) -> None:
    """Wait until a connection is closed, for some seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass


def _headers(policy: str = "default-src 'none'; frame-ancestors 'none'") -> dict[str, str]:
    return {**HEADERS, "Content-Security-Policy": policy}


def _json(content: Any) -> Response:
    return JSONResponse(content, headers=_headers())


def _refused(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"message": message}, status, headers={**_headers(), **(headers or {})})


def _busy() -> Response:
    return _refused("Many people are asking at this moment. Try again in a little while.", 429, {"Retry-After": "5"})


@cache
def _file(folder: str, name: str) -> str:
    return resources.files(__package__).joinpath(folder, name).read_text(encoding="utf-8")


@cache
def _data(folder: str, name: str) -> bytes:
    if name == LIBRARY:
        return shipped(name, "drawing molecules").read_bytes()
    if name == "app.css":  # the colours and fonts of all pages, and what only the app has
        return f"{STYLE}\n{_file(folder, name)}".encode()
    return resources.files(__package__).joinpath(folder, name).read_bytes()


@cache
def _sketcher_files() -> tuple[str, ...]:
    """The files of the drawing board for molecules; none where the library for it is not installed."""
    try:
        shipped(LIBRARY, "drawing molecules")
    except IntegrandError:
        return ()
    return ("sketcher.html", "sketcher.js", LIBRARY)


def _asset(folder: str, name: str, known: Sequence[str]) -> Response:
    """A file of the package; only those that are named, so that no path leads elsewhere."""
    if name not in known:
        return _refused("There is nothing here.", 404)
    media = TYPES["." + name.rpartition(".")[2]]
    return Response(_data(folder, name), media_type=media, headers={**_headers(APP_POLICY), "Cache-Control": "no-cache"})
