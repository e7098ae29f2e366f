"""Class names: reads them, and finds the class that a text means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from functools import cache
from os import PathLike
from pathlib import Path

from ...errors import FileError, MissingExtraError, OptionError, TargetError
from ...files import read_bytes
from ...loading import shipped
from ...words import shown

IMAGENET_CLASSES = 1000

LIST_BYTES = 8 << 20
"""The most bytes of a list of class names."""

_SYNSET = re.compile(r"^n\d{8}\s+")
"""Matches the WordNet id that some lists have in front of each class name."""


@cache
def imagenet() -> tuple[str, ...]:
    """The 1000 classes of ImageNet in the order of the outputs, each with its synonyms: ``tabby, tabby cat``.

    Raises:
        MissingExtraError: the names are WordNet's, in the distribution ``integrand-models``, and that is not installed.
    """
    return _parse(shipped("imagenet.txt", "naming ImageNet's classes", extra="images").read_text(encoding="utf-8"))


def imagenet_if_installed() -> tuple[str, ...] | None:
    """:func:`imagenet`, or None without ``integrand-models``: networks work without names, by the numbers of the classes."""
    try:
        return imagenet()
    except MissingExtraError:
        return None


def read_classes(classes: str | PathLike[str] | Sequence[str]) -> tuple[str, ...]:
    """Class names from a list, or from a file with one per line, in the order of the outputs.

    Lines that start with ``#`` at the head of the file are comments. Synonyms are set apart by commas.
    """
    if not isinstance(classes, (str, PathLike)):
        names = tuple(map(str, classes))
    else:
        path = Path(classes)
        if not path.exists():
            raise FileError(f"classes: there is no file {shown(str(path))!r}; expected one class name per line.")
        data = read_bytes(path, what="a list of class names, one per line,", most=LIST_BYTES)
        try:
            names = _parse(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise FileError(
                f"classes: {shown(str(path))!r} cannot be read ({error}); expected text, one name per line."
            ) from None
    if not names:
        raise OptionError("classes: got no names; expected one per output of the network.")
    return names


def lemmas(name: str) -> list[str]:
    """The synonyms of one class."""
    return [part.strip() for part in name.split(",") if part.strip()]


def label(classes: Sequence[str] | None, index: int) -> str:
    """The first synonym of a class, or ``class 281`` where there are no names."""
    if classes is None or not 0 <= index < len(classes) or not lemmas(classes[index]):
        return f"class {index}"
    return lemmas(classes[index])[0]


def find(classes: Sequence[str] | None, text: str, *, outputs: int | None = None) -> int:
    """The class that a text names: by number, name or synonym, by words of one, or by a part that only one has.

    Args:
        classes: the names; None where only numbers are known.
        text: what the user wrote; upper and lower case are the same.
        outputs: how many classes there are, where that is known without names.
    """
    wanted = " ".join(text.lower().replace("_", " ").split())
    count = len(classes) if classes is not None else outputs
    if re.fullmatch(r"[+-]?\d{1,18}", wanted, flags=re.ASCII):
        index = int(wanted)
        if index < 0 or (count is not None and index >= count):
            raise TargetError(f"got class {index}; the network has classes 0 to {'?' if count is None else count - 1}.")
        return index
    if not wanted or classes is None:
        problem = "no class was named" if not wanted else f"got the class {text!r}, and the classes have no names here"
        remedy = "give their names with classes=" if classes is None else "its name"
        raise TargetError(f"{problem}; expected a number such as 281, or {remedy}.")
    names = [[lemma.lower() for lemma in lemmas(name)] for name in classes]
    words = set(wanted.split())
    matches: list[Callable[[list[str]], bool]] = [
        lambda own: own[:1] == [wanted],
        lambda own: wanted in own,
        lambda own: any(words <= set(re.split(r"[\s\-']+", lemma)) for lemma in own),
        lambda own: any(wanted in lemma for lemma in own),
    ]
    for matches_class in matches:
        found = [index for index, own in enumerate(names) if matches_class(own)]
        if len(found) == 1:
            return found[0]
        if found:
            raise TargetError(f"{text!r} names {len(found)} classes: {_listed(classes, found)}. Give the number of one.")
    raise TargetError(_unknown(text, wanted, classes, names))


def _parse(text: str) -> tuple[str, ...]:
    lines = text.strip("\r\n").splitlines()
    while lines and lines[0].startswith("#"):
        lines = lines[1:]
    return tuple(_SYNSET.sub("", line.strip()) for line in lines)


def _listed(classes: Sequence[str], found: Sequence[int], most: int = 5) -> str:
    more = ", ..." if len(found) > most else ""
    return ", ".join(f"{index} ({' / '.join(lemmas(classes[index])[:2])})" for index in found[:most]) + more


def _unknown(text: str, wanted: str, classes: Sequence[str], names: Sequence[Sequence[str]]) -> str:
    owner = {lemma: index for index in reversed(range(len(names))) for lemma in names[index]}
    near = [owner[lemma] for lemma in difflib.get_close_matches(wanted, owner, n=8, cutoff=0.6)]
    near = list(dict.fromkeys(near))[:5]
    hint = f" Near: {_listed(classes, near)}." if near else ""
    return f"no class is called {text!r}; expected one of {len(classes)} names, or a number from 0 to {len(classes) - 1}.{hint}"
