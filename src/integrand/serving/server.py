"""Starts the app: which rooms there are, over which models, at which address."""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import IntegrandError, MissingExtraError, OptionError
from ..evaluation.progress import in_notebook
from ..loading import is_path, load_object
from ..words import shown
from .room import LOADER, Room

if TYPE_CHECKING:
    from ..apps.images.model import Network
    from .web import App

RoomName = Literal["photo", "eye", "words", "translation", "molecule", "table"]
ROOMS: tuple[RoomName, ...] = ("photo", "eye", "words", "translation", "molecule", "table")

Kind = Literal["image", "text", "molecule"]
KINDS: tuple[Kind, ...] = ("image", "text", "molecule")

PORT = 7860
"""The port that is tried first."""

ENDING = 20.0
"""Seconds for which what still runs in this process is waited for when the server ends."""

UNKNOWN_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""What the system says of an address that a name has but this machine does not, such as ::1 without IPv6."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

LOG = logging.getLogger("integrand.serve")


class RunningServer:
    """The app while it runs.

    Attributes:
        url: its address on this machine.
        app: what runs.
    """

    def __init__(self, app: App, sockets: Sequence[socket.socket], url: str) -> None:
        import uvicorn

        self.app, self.url = app, url
        self._sockets = list(sockets)

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                app.close()  # answers that are on their way end, rather than being torn off
                await super().shutdown(sockets)

        config = uvicorn.Config(
            app.asgi,
            http="h11",  # httptools, which "auto" prefers, reads headers without a limit and takes two Host headers
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            limit_concurrency=512,
            h11_max_incomplete_event_size=64 << 10,
            proxy_headers=False,
            ws="none",
        )
        self._server = Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self._server.run(sockets=self._sockets)
        finally:
            self.app.desk.wait(ENDING)  # Python must not end while a thread is inside torch

    def start(self) -> RunningServer:
        """Serve in a thread of its own; comes back when requests are answered."""
        self._thread = threading.Thread(target=self.run, daemon=True, name="integrand-serve")
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._thread.is_alive():
            raise IntegrandError("the server did not start; its log says why.")
        return self

    def close(self) -> None:
        """Stop serving, and end what still runs."""
        self._server.should_exit = True
        self.app.close()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for one in self._sockets:
            one.close()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"integrand serves {', '.join(self.app.rooms)} at {self.url}; close() ends it"

    def _repr_html_(self) -> str:
        from ..render.escaping import escape

        address = escape(self.url)
        return (
            f'<p>integrand: <a href="{address}" target="_blank" rel="noopener">{address}</a></p>'
            f'<iframe src="{address}" title="integrand" style="width:100%;height:48rem;border:0"></iframe>'
        )


def serve(
    model: Any = None,
    *,
    kind: Kind | None = None,
    preprocess: Any = None,
    classes: Sequence[str] | None = None,
    tokenizer: Any = None,
    rooms: Sequence[RoomName] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    prefix: str = "",
    password: str | None = None,
    allow_hosts: Sequence[str] = (),
    seconds: float = 120.0,
    megabytes: float = 32.0,
    queue: int = 32,
    workers: int = 2,
    isolate: bool = True,
    device: str | None = None,
    open: bool = True,
    wait: bool | None = None,
) -> RunningServer:
    """Start the web app: over the networks that integrand knows, or over a model of yours.

    Args:
        model: your model; None for integrand's own. An image classifier (an ``nn.Module`` or function from (N, 3, H, W) to
            scores, or a ``Network``), a sequence classifier of Hugging Face, or a network on molecules with ``explain``.
        kind: what it takes: ``image``, ``text`` or ``molecule``; found out if not given.
        preprocess: for images, an :class:`integrand.apps.images.preprocess.Preprocess`; ImageNet's convention if not given.
        classes: for images, the names of the classes.
        tokenizer: for texts, the model's tokenizer.
        rooms: which rooms to open; all that the installed extras allow if not given. With a model, only its room.
        host: the address to listen at. Only this machine, unless you say otherwise.
        port: the port; 7860, or the next free one, if not given.
        prefix: the path under which a reverse proxy shows the app, such as ``/why``.
        password: what users have to know; nothing if not given.
        allow_hosts: names under which users may address the server, as a reverse proxy passes them on, beside its own. While it
            listens on this machine alone no other goes; else, without any, every name.
        seconds: how long one request may run.
        megabytes: how large a photo may be.
        queue: how many requests may wait; more are told to come again.
        workers: how many requests run at a time, one of them only quick ones.
        isolate: whether requests are computed in processes that are forked from this one, with the model as it is now, and that
            can crash or be killed alone. Where that cannot be, as on a GPU, or with False, they are computed in this process.
        device: where to compute; a GPU where torch finds one.
        open: whether to open a browser.
        wait: whether to serve until Ctrl-C; else the server runs in a thread and the call comes back. None waits, except in a
            notebook.

    Returns:
        The running server; ``close()`` ends it.
    """
    built = _own(model, kind, preprocess, classes, tokenizer) if model is not None else known_rooms(rooms, device=device)
    where: dict[str, Any] = {"host": host, "port": port, "prefix": prefix, "password": password, "allow_hosts": allow_hosts}
    here = serve_rooms(built, **where, seconds=seconds, megabytes=megabytes, queue=queue, workers=workers, isolate=isolate)
    if open:
        webbrowser.open(here.url)
    if wait is False or (wait is None and in_notebook()):
        return here.start()
    here.run()
    return here


def serve_rooms(
    rooms: Sequence[Room],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    prefix: str = "",
    password: str | None = None,
    allow_hosts: Sequence[str] = (),
    seconds: float = 120.0,
    megabytes: float = 32.0,
    queue: int = 32,
    workers: int = 2,
    isolate: bool = True,
) -> RunningServer:
    """The app over rooms of any kind, at its address but not yet running; options as in :func:`serve`."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingExtraError("starlette and uvicorn", "serve", "the web app")
    from .web import App, Limits, host_name

    if prefix and (not re.fullmatch(r"(/[\w.~-]+)+", prefix, re.ASCII) or {".", ".."} & set(prefix.split("/"))):
        raise OptionError(
            f"got prefix {prefix!r}; expected a path with a slash at its start and none at its end, such as /why."
        )
    if wild := [name for name in allow_hosts if not re.fullmatch(r"\[[\da-fA-F:.]+\](:\d+)?|[\w.-]+(:\d+)?", name)]:
        raise OptionError(f"got {shown(wild[0])!r} among the names of the server; expected one such as models.example.org.")
    for name, value in (("seconds", seconds), ("megabytes", megabytes), ("queue", queue), ("workers", workers)):
        if not value > 0:
            raise OptionError(f"got {name}={value!r}; expected a number above 0.")
    local = _is_loopback(host)
    own = () if host in ("0.0.0.0", "::") else (f"[{host}]" if ":" in host else host,)
    names = frozenset(map(host_name, (*LOOPBACK, *own, *allow_hosts))) if local or allow_hosts else None
    limits = Limits(float(seconds), int(megabytes * 2**20), int(queue), int(workers))
    frames = "'self' http://localhost:* http://127.0.0.1:*" if local and in_notebook() else "'self'"
    app = App({room.name: room for room in rooms}, limits, password, names, prefix, frames, isolate)
    try:
        sockets, at = _bound(host, port)
    except BaseException:
        app.close()
        raise
    address = f"[{host}]" if ":" in host else "localhost" if host in ("0.0.0.0", "127.0.0.1") else host
    return RunningServer(app, sockets, f"http://{address}:{at}{prefix}/")


def known_rooms(
    rooms: Sequence[str] | None = None,
    *,
    models: Sequence[str] = (),
    kind: Kind | None = None,
    trust: bool = False,
    device: str | None = None,
) -> list[Room]:
    """The rooms over integrand's own networks and over further models that are named by text.

    Args:
        rooms: which; None for all whose packages are installed.
        models: names as ``integrand image``, ``text`` and ``molecule`` take them: ``googlenet``, ``resnet50``, ``./folder`` of
            a Hugging Face classifier, ``weave-w1n2``, ``admet:BBB_Martins``, ``package.module:function``.
        kind: what all of these take; found out for each if not given.
        trust: whether models that are code may run.
        device: where to compute.
    """
    if wrong := [name for name in rooms or () if name not in ROOMS]:
        raise OptionError(f"got the room {wrong[0]!r}; expected some of {', '.join(ROOMS)}.")
    placed: dict[Kind, dict[str, tuple[Callable[[], Any], str]]] = {"image": {}, "text": {}, "molecule": {}}
    for name in models:
        of, label, make, code = _named(name, kind, trust=trust, device=device)
        placed[of][label] = (make, code)
    makers: dict[str, Callable[[], Room]] = {
        "photo": lambda: _photo_room(placed["image"], device),
        "eye": lambda: _eye_room(device),
        "words": lambda: _word_room(placed["text"], device),
        "translation": lambda: _translation_room(device),
        "molecule": lambda: _molecule_room(placed["molecule"], device),
        "table": lambda: _table_room(device),
    }
    asked_for = {"image": "photo", "text": "words", "molecule": "molecule"}
    needed = {*(rooms or ()), *(asked_for[of] for of, named in placed.items() if named)}
    found: list[Room] = []
    missing: list[str] = []
    for name in [one for one in ROOMS if rooms is None or one in needed]:
        try:
            room = makers[name]()
            room.warm()
            found.append(room)
        except (MissingExtraError, ModuleNotFoundError) as error:
            if name in needed:
                raise
            missing.append(f"{name}: {error}")
    for line in missing:
        LOG.warning("left out: %s", line)
    if not found:
        raise OptionError("there is no room to open: " + "; ".join(missing) + ".")
    return found


def _photo_room(further: Mapping[str, tuple[Callable[[], Any], str]], device: str | None) -> Room:
    from ..apps import networks
    from .picture_rooms import PhotoRoom

    usual = networks.DEFAULT
    makers: dict[str, Callable[[], Network]] = {name: make for name, (make, _) in further.items()}
    makers[usual] = partial(networks.load, usual, device=device)
    code = {name: line for name, (_, line) in further.items()} | {usual: f"networks.load({usual!r})"}
    return PhotoRoom(makers, code=code, shown={"cat": partial(_skimage, "chelsea"), "coffee": partial(_skimage, "coffee")})


def _eye_room(device: str | None) -> Room:
    from .picture_rooms import EyeRoom

    return EyeRoom(shown={"retina": partial(_skimage, "retina")}, device=device)


def _word_room(further: Mapping[str, tuple[Callable[[], Any], str]], device: str | None) -> Room:
    from .language_rooms import TextModel, WordRoom

    makers: dict[str, Callable[[], TextModel]] = {name: make for name, (make, _) in further.items()}
    for name in ("wtq", "trec"):
        makers[name] = partial(_question_model, name, device)
    return WordRoom(makers, own=bool(further))


def _question_model(name: str, device: str | None) -> Any:
    from ..apps import questions
    from .language_rooms import QuestionModel

    return QuestionModel(questions.load(name, device))


def _translation_room(device: str | None) -> Room:
    from .language_rooms import TranslationRoom

    return TranslationRoom(device=device)


def _molecule_room(further: Mapping[str, tuple[Callable[[], Any], str]], device: str | None) -> Room:
    from ..apps import molecules
    from .molecule_room import MoleculeRoom

    makers = {name: make for name, (make, _) in further.items()}
    code = {name: line for name, (_, line) in further.items()}
    for name in ("weave-w2n2", "weave-w1n2"):
        makers.setdefault(name, partial(molecules.load, name, device))
        code.setdefault(name, f"molecules.load({name!r})")
    return MoleculeRoom(makers, code=code)


def _table_room(device: str | None) -> Room:
    from .table_room import TableRoom

    return TableRoom(device=device)


@cache
def _skimage(name: str) -> bytes:
    """One of scikit-image's free photos, as the bytes of a JPEG."""
    import io

    from PIL import Image
    from skimage import data

    file = io.BytesIO()
    image = Image.fromarray(getattr(data, name)())
    image.thumbnail((900, 900))
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


def _named(name: str, kind: Kind | None, *, trust: bool, device: str | None) -> tuple[Kind, str, Callable[[], Any], str]:
    """A model that is named by text: what it takes, what it is called, what loads it, and the Python for that."""
    if kind is None and (name.startswith(("admet:", "weave-"))):
        kind = "molecule"
    if kind is None and (is_path(name) and Path(name).is_dir()):
        kind = "text"
    given = None
    if ":" in name and not name.startswith(("admet:", "torchvision:", "timm:")) and not is_path(name):
        given = load_object(name, trust=trust, what="--model")
        kind = kind or _kind_of(given)
    kind = kind or "image"
    label = shown(name)
    if kind == "molecule":
        from ..apps import molecules

        if given is not None:
            return kind, label, lambda: _molecule_model(given), _imported(name)
        return kind, label, partial(molecules.load, name, device), f"molecules.load({name!r})"
    if kind == "text":
        return kind, label, lambda: _text_model(name, given, trust=trust, device=device), ""
    from ..apps import networks
    from ..apps.images.model import Network

    if isinstance(given, Network):
        return kind, label, lambda: given, _imported(name)
    options = ", trust=True" if trust else ""
    return kind, label, partial(networks.load, name, device=device, trust=trust), f"networks.load({name!r}{options})"


def _imported(name: str) -> str:
    """The Python that gives what ``package.module:attribute`` names, as the server got it."""
    return f"load_object({name!r}, trust=True)"


def _kind_of(model: Any) -> Kind:
    """What a model takes, by what it is."""
    if isinstance(model, tuple) and len(model) == 2:
        return "text"
    if callable(getattr(model, "explain", None)) and hasattr(model, "outputs"):
        return "molecule"
    if hasattr(model, "config") and hasattr(model, "get_input_embeddings"):
        return "text"
    return "image"


def _molecule_model(model: Any) -> Any:
    if not callable(getattr(model, "explain", None)) or not callable(getattr(model, "inquiry", None)):
        raise OptionError(
            f"got a {type(model).__name__} as a model of molecules; expected one with explain and inquiry, such as "
            "integrand.apps.molecules.GraphModel."
        )
    return model


def _text_model(name: str, given: Any, *, trust: bool, device: str | None) -> Any:
    from .language_rooms import HuggingFaceModel

    if given is None:
        from ..apps.text.cli import Task, load

        model, tokenizer, _ = load(name, Task.classify, device=device, trust=trust)
        lines = (
            "from integrand import text",
            "from transformers import AutoModelForSequenceClassification, AutoTokenizer",
            "",
            f"model = AutoModelForSequenceClassification.from_pretrained({name!r}).eval()",
            f"tokenizer = AutoTokenizer.from_pretrained({name!r})",
        )
        return HuggingFaceModel(model, tokenizer, lines)
    if not isinstance(given, tuple) or len(given) != 2:
        raise OptionError(f"got a {type(given).__name__} from {name}; expected a pair: a Hugging Face model and its tokenizer.")
    setup = ("from integrand import text", LOADER, "", f"model, tokenizer = {_imported(name)}")
    return HuggingFaceModel(given[0], given[1], setup)


def _own(model: Any, kind: Kind | None, preprocess: Any, classes: Sequence[str] | None, tokenizer: Any) -> list[Room]:
    """The room over a model that was passed in Python."""
    if kind is not None and kind not in KINDS:
        raise OptionError(f"got kind={kind!r}; expected one of {', '.join(KINDS)}.")
    kind = kind or ("text" if tokenizer is not None else _kind_of(model))
    if kind == "text":
        from .language_rooms import HuggingFaceModel, WordRoom

        pair = model if isinstance(model, tuple) else (model, tokenizer)
        if pair[1] is None:
            raise OptionError("got a model of texts without its tokenizer; pass tokenizer=.")
        lines = ("from integrand import text", "", "# model and tokenizer: as you passed them to integrand.serve")
        room: Room = WordRoom({"your model": lambda: HuggingFaceModel(pair[0], pair[1], lines)}, own=True)
    elif kind == "molecule":
        from .molecule_room import MoleculeRoom

        name = str(getattr(model, "name", "your model"))
        code = {name: "...  # the model that you passed to integrand.serve"}
        room = MoleculeRoom({name: lambda: _molecule_model(model)}, code=code)
    else:
        room = _own_photo_room(model, preprocess, classes)
    room.warm()
    return [room]


def _own_photo_room(model: Any, preprocess: Any, classes: Sequence[str] | None) -> Room:
    from ..apps.images.model import Network, network_of
    from .picture_rooms import PhotoRoom

    network = model if isinstance(model, Network) else network_of(model, preprocess=preprocess, classes=classes)
    if isinstance(model, Network) and classes is not None:
        network = replace(network, classes=tuple(classes))
    code = {network.name: "...  # the network that you passed to integrand.serve"}
    shown_photos = {"cat": partial(_skimage, "chelsea"), "coffee": partial(_skimage, "coffee")}
    return PhotoRoom({network.name: lambda: network}, code=code, shown=shown_photos if find_spec("skimage") else {})


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int | None) -> tuple[list[socket.socket], int]:
    """Sockets at all addresses of a host, and their port: the given one, or the first free one from 7860 on."""
    tries = [port] if port is not None else [*range(PORT, PORT + 20), 0]
    last: OSError | None = None
    for number in tries:
        try:
            addresses = dict.fromkeys(socket.getaddrinfo(host, number, type=socket.SOCK_STREAM))
        except OSError as error:
            raise OptionError(f"there is no address {shown(host)!r} here ({error}); choose another host= (--host).") from None
        with ExitStack() as opened:
            sockets: list[socket.socket] = []
            for family, kind, proto, _, address in addresses:
                at = sockets[0].getsockname()[1] if sockets else number
                try:
                    sockets.append(opened.enter_context(_listening(family, kind, proto, (address[0], at, *address[2:]))))
                except OSError as error:
                    last = error
                    if error.errno not in UNKNOWN_ADDRESS:
                        break
            else:
                if sockets:
                    opened.pop_all()
                    return sockets, int(sockets[0].getsockname()[1])
    raise OptionError(f"cannot listen at {host}:{port or PORT} ({last}); choose another port= or host= (--port, --host).")


def _listening(family: int, kind: int, proto: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, kind, proto)
    try:
        # On Windows SO_REUSEADDR would let another program take the port, and the passwords that are sent to it.
        listener.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
        listener.bind(address)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener
