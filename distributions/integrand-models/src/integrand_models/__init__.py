"""Weights, vocabularies, class names, model cards and a sketcher for molecules, for the applications of integrand.

Each file is under the licence of what it was made from; the distribution's ``NOTICE.md`` says which.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["names", "path"]

_FOLDER = Path(__file__).resolve().parent
_SUFFIXES = (".js", ".json", ".md", ".safetensors", ".txt")


def names() -> tuple[str, ...]:
    """The names of all files that :func:`path` knows, sorted."""
    return tuple(sorted(file.name for file in _FOLDER.iterdir() if file.suffix in _SUFFIXES))


def path(name: str) -> Path:
    """Where a file of this distribution is installed.

    Args:
        name: one of :func:`names`, such as ``retina.safetensors``, or its model card, ``retina.md``.

    Raises:
        FileNotFoundError: there is no file of that name.
    """
    if name not in names():
        raise FileNotFoundError(f"integrand_models has no file {name!r}; expected one of {', '.join(names())}.")
    return _FOLDER / name
