"""What a room of the app is: a form, what it does with what was filled in, and results that can be looked at and taken away."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from ..certificate import Certificate, ExampleCertificate
from ..render.certificate_text import grade, plain_words
from ..trees import Tensors, flatten
from ..words import shown
from .jobs import Forgotten, Job, Refused, Stopped

if TYPE_CHECKING:
    from ..analysis.comparison_result import Comparison
    from ..analysis.diagnosis_result import Diagnosis

Kind = Literal["text", "line", "choice", "photo", "molecule", "answer"]
T = TypeVar("T")

ACTIONS = ("explain", "methods", "baselines")
"""What can be asked in a room."""

TOLERANCES = ("20%", "5%", "2%", "1%", "0.1%")
COARSE = 0.2
"""The tolerance of what is shown first, where the whole takes long."""

BREATH = 0.4
"""Seconds for which the processor is left to those who show a coarse result, where that is the same machine."""

DRAWING = threading.Lock()
"""Held while matplotlib draws, which is not made for threads."""

LOADER = "from integrand.loading import load_object"
"""The import of what loads a model that ``package.module:function`` names."""

FIRST_ANSWERS = 5
"""The answers of a network that are listed."""


@dataclass(frozen=True)
class FormField:
    """One thing to fill in.

    Attributes:
        name: its key.
        label: what it is called on the page.
        kind: ``text`` has several lines, ``line`` one; a ``choice`` is one of some; ``photo`` is a file; a ``molecule`` is
            written or drawn; an ``answer`` is one of what the network said, or any other by its name.
        default: what it has at first.
        choices: what can be chosen.
        most: how many characters it may have.
        help: a line below it.
        needed: whether nothing can be done without it.
        first: whether it stands above the button, among what is needed, though it may be left empty.
    """

    name: str
    label: str
    kind: Kind
    default: str = ""
    choices: tuple[str, ...] = ()
    most: int = 200
    help: str = ""
    needed: bool = False
    first: bool = False

    def checked(self, value: object) -> str:
        """A value that was filled in.

        Raises:
            Refused: it is none that the field can have.
        """
        if not isinstance(value, str):
            raise Refused(f"{self.label}: expected a text.")
        text = value.strip()
        if self.needed and not text:
            raise Refused(f"{self.label}: there is nothing here yet.")
        if len(text) > self.most:
            raise Refused(f"{self.label}: this has {len(text):,} characters; up to {self.most:,} are read here.")
        if self.kind == "choice" and text not in self.choices:
            raise Refused(f"{self.label}: got {shown(text)!r}; expected one of {', '.join(self.choices)}.")
        return text

    def described(self) -> dict[str, Any]:
        """The field for the page."""
        return {**vars(self), "choices": list(self.choices)}


def tolerance_field(default: str, *, help: str = "How exact the numbers are to be; more exact takes longer.") -> FormField:
    """The field for the tolerance."""
    return FormField("tol", "Exact to", "choice", default, TOLERANCES, help=help)


@dataclass(frozen=True)
class Asked:
    """What was filled in.

    Attributes:
        values: text by text, as the fields of the room checked them.
        photo: the bytes of the photo, and its name.
    """

    values: Mapping[str, str]
    photo: tuple[bytes, str] | None = None

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def get(self, name: str) -> str | None:
        """A value, or None where nothing was filled in."""
        return self.values.get(name) or None

    @property
    def tol(self) -> float:
        """The tolerance as a share."""
        return float(self["tol"].removesuffix("%")) / 100


@dataclass(frozen=True, eq=False)
class RoomResult:
    """Something to look at.

    Attributes:
        title: what was said, in a few words, for the history.
        page: a self-contained page.
        certificate: how far it can be trusted.
        sentence: what was found, in one line.
        picture: draws it, as the bytes of a PNG; if it can be pickled, as bound methods and partials can, when it is asked for.
        numbers: what JSON can hold; likewise.
        code: the lines of Python that give the same.
        stem: the name of files, without their endings.
        held: bytes that the result holds in memory beside the page: arrays, to be drawn and written on demand.
    """

    title: str
    sentence: str
    page: str
    certificate: Certificate | ExampleCertificate | None
    picture: Callable[[], bytes]
    numbers: Callable[[], Any]
    code: str
    stem: str = "result"
    held: int = 0

    @property
    def trust(self) -> dict[str, str] | None:
        """What the certificate says, in a sentence for anybody."""
        if self.certificate is None:
            return None
        return {"grade": grade(self.certificate), "says": plain_words(self.certificate)}


def png_of(figure: Callable[[], Any]) -> Callable[[], bytes]:
    """A function that draws a figure of matplotlib as the bytes of a PNG."""
    return partial(_png, figure)


def _png(figure: Callable[[], Any]) -> bytes:
    from ..render.figures import png_bytes

    with DRAWING:
        return png_bytes(figure(), dpi=150)


def json_of(numbers: Any) -> str:
    """Numbers as the text of a JSON file."""
    return json.dumps(numbers, indent=1, allow_nan=False)


def bytes_of(values: Iterable[Tensors]) -> int:
    """How many bytes tensors hold."""
    return sum(leaf.numel() * leaf.element_size() for one in values for leaf in flatten(one, what="values")[1])


def compared(found: Comparison, code: str, stem: str, **view: Any) -> RoomResult:
    """A comparison of methods as something to look at."""
    held = bytes_of(one.values for one in found.attributions.values())
    return _side_by_side("methods", found, code, stem, held, view)


def diagnosed(found: Diagnosis, code: str, stem: str, **view: Any) -> RoomResult:
    """A diagnosis of baselines as something to look at."""
    held = 2 * bytes_of(row.attribution.values for row in found.rows)  # and each has its baseline
    return _side_by_side("baselines", found, code, stem, held, view)


def _side_by_side(
    what: str, found: Comparison | Diagnosis, code: str, stem: str, held: int, view: dict[str, Any]
) -> RoomResult:
    picture = png_of(partial(found.figure, **view))
    page = found.report(**view)
    return RoomResult(f"{what} compared", found.sentence, page, None, picture, found.to_dict, code, f"{stem}-{what}", held)


class Room:
    """A part of the app for one kind of input. Those of integrand derive from it; so can yours.

    Attributes:
        name: as in addresses.
        title: on the page.
        lead: what one can do here, in a sentence.
        notice: what every reader must know, in a sentence.
        quick: whether results take a second or so.
        fields: what can be filled in.
        examples: what one can try, each with what it fills in.
    """

    name: str
    title: str
    lead: str
    notice: str = ""
    quick: ClassVar[bool] = True
    fields: tuple[FormField, ...] = ()
    examples: tuple[Mapping[str, str], ...] = ()

    @property
    def actions(self) -> tuple[str, ...]:
        """What can be asked here: those of :data:`ACTIONS` that the room has."""
        return tuple(name for name in ACTIONS if getattr(type(self), name) is not getattr(Room, name))

    def warm(self) -> None:
        """Load what is needed, so that the first user does not wait for it."""

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Explain what was filled in: say what the network answers, and show results."""
        raise NotImplementedError

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set several methods side by side on what was filled in."""
        raise NotImplementedError

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set several baselines side by side on what was filled in."""
        raise NotImplementedError

    def checked(self, given: object, uploads: Store[tuple[bytes, str]]) -> Asked:
        """What was filled in, checked field by field.

        Raises:
            Refused: something is missing, too long, or not to be chosen.
        """
        if not isinstance(given, dict):
            raise Refused("Expected the settings as a JSON object.")
        known = {one.name: one for one in self.fields}
        if strange := sorted(str(name) for name in given if name not in known):
            raise Refused(f"There is no setting called {shown(strange[0])!r} here; there are {', '.join(known)}.")
        values = {name: one.checked(given.get(name, one.default)) for name, one in known.items()}
        photo = None
        for one in self.fields:
            if one.kind == "photo":
                photo = self._photo(values.pop(one.name), uploads)
        return Asked(values, photo)

    def _photo(self, key: str, uploads: Store[tuple[bytes, str]]) -> tuple[bytes, str]:
        for example in self.examples:
            if key and key == example.get("photo"):
                return self.example_photo(key)
        found = uploads.get(key)
        if found is None:
            raise Forgotten("The photo is not here any more: uploads are forgotten after a while. Choose it again.")
        return found

    def example_photo(self, key: str) -> tuple[bytes, str]:
        """The bytes and the name of a photo among the examples."""
        raise Refused(f"There is no example called {shown(key)!r} here.")

    def described(self) -> dict[str, Any]:
        """The room for the page."""
        return {
            "name": self.name,
            "title": self.title,
            "lead": self.lead,
            "notice": self.notice,
            "actions": list(self.actions),
            "fields": [one.described() for one in self.fields],
            "examples": [dict(one) for one in self.examples],
        }


class Store(Generic[T]):
    """Things that are kept for a while: few enough, small enough, and forgotten when nobody has asked for long.

    Keys cannot be guessed, so that nobody sees what is another's.
    """

    EACH = 1024
    """Bytes that a thing counts for beside its own."""

    def __init__(self, *, size: Callable[[T], int], most_bytes: int, seconds: float) -> None:
        self._items: OrderedDict[str, tuple[float, int, T]] = OrderedDict()
        self._size, self._most, self._seconds = size, most_bytes, seconds
        self._total = 0
        self._lock = threading.Lock()

    def add(self, item: T, key: str = "") -> str:
        """Store an item and return its key, evicting the least recently used ones when full.

        Args:
            item: what to store.
            key: its key, of which an earlier item is replaced; a new one if not given.
        """
        key, size = key or secrets.token_urlsafe(16), self._size(item) + self.EACH
        with self._lock:
            if key in self._items:
                self._total -= self._items.pop(key)[1]
            self._items[key] = (time.monotonic(), size, item)
            self._total += size
            self._forget()
        return key

    def get(self, key: str) -> T | None:
        """The thing of a key, which then counts as new; None where there is none."""
        with self._lock:
            self._forget()
            if key not in self._items:
                return None
            _, size, item = self._items.pop(key)
            self._items[key] = (time.monotonic(), size, item)
            return item

    def drop(self, key: str) -> None:
        """Forget a thing."""
        with self._lock:
            if key in self._items:
                self._total -= self._items.pop(key)[1]

    def sweep(self) -> None:
        """Forget what nobody has asked for long; to be called now and then, as time passes where nobody asks."""
        with self._lock:
            self._forget()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._items.clear()
            self._total = 0

    def __len__(self) -> int:
        with self._lock:
            return len(self._items)

    def _forget(self) -> None:
        now = time.monotonic()
        while self._items:
            when, size, _ = next(iter(self._items.values()))
            if self._total <= self._most and now - when <= self._seconds:
                return
            self._items.popitem(last=False)
            self._total -= size


@dataclass(frozen=True)
class RoomJob:
    """What a room says and shows while it works.

    Attributes:
        job: the job that it works for.
    """

    job: Job

    @property
    def tell(self) -> Callable[..., None]:
        """The callback for ``progress=``, by which a job that nobody waits for is ended."""
        return self.job.tell

    def answers(self, said: str, choices: Sequence[tuple[str, float | None]] = (), *, chosen: str = "") -> None:
        """What the network says, before anything is explained.

        Args:
            said: in a few words.
            choices: its answers with their probabilities, surest first.
            chosen: the one that is explained.
        """
        self.job.check()
        listed = [{"label": label, "probability": chance} for label, chance in choices]
        self.job.say("answers", said=said, choices=listed, chosen=chosen)

    def show(self, outcome: RoomResult, *, final: bool = True) -> None:
        """Show a result.

        Args:
            outcome: what was found.
            final: whether nothing more exact follows.
        """
        key = self.job.keep(outcome)
        said = {"title": outcome.title, "sentence": outcome.sentence, "trust": outcome.trust, "stem": outcome.stem}
        self.job.say("result", id=key, final=final, **said)
        self.job.check()

    def refined(self, explain: Callable[[float], RoomResult], tol: float) -> None:
        """Show a coarse result soon, and one within the tolerance when it is there.

        If the time ends before that, the coarse one stays and is said to be all there is.

        Args:
            explain: explains to a tolerance.
            tol: the tolerance.
        """
        if tol >= COARSE:
            self.show(explain(tol))
            return
        self.show(explain(COARSE), final=False)
        self.job.stopped.wait(BREATH)
        try:
            fine = explain(tol)
        except Stopped:
            if self.job.stopped.is_set():
                raise
            late = f"The time ended before the numbers were exact to {100 * tol:g}%: what you see is the coarse result."
            self.job.say("kept", message=late)
            return
        self.show(fine)


class ModelShelf(Generic[T]):
    """Models by name, each loaded when it is first asked for, and once, however many ask."""

    def __init__(self, loaders: Mapping[str, Callable[[], T]]) -> None:
        self._loaders = dict(loaders)
        self._loaded: dict[str, T] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """What there is, the usual one first."""
        return tuple(self._loaders)

    def load(self) -> None:
        """Load all of them, so that no user waits for it, or is the first to hear what is wrong with one."""
        for name in self._loaders:
            _ = self[name]

    def __getitem__(self, name: str) -> T:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._loaders[name]()
            return self._loaded[name]


def imports_of(code: str, *lines: str) -> tuple[str, ...]:
    """The imports that code needs: some lines, and what loads a model from a user's own module where it does."""
    return (*lines, *((LOADER,) if code.startswith("load_object(") else ()), "")


def code_of(*lines: str) -> str:
    """Lines of Python as a text."""
    return "\n".join(lines) + "\n"
