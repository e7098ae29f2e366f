"""The command line, ``integrand``: a thin layer over the public API that imports a command only when it is run."""

from __future__ import annotations

import io
import sys
from contextlib import suppress

from ..errors import IntegrandError, MissingExtraError

__all__ = ["main"]

EXTRAS = {
    "image": "images",
    "retina": "images",
    "scene": "images",
    "questions": "models",
    "rules": "models",
    "translate": "models",
    "text": "text",
    "audio": "audio",
    "molecule": "molecules",
    "sequence": "sequences",
    "table": "tables",
    "series": "series",
    "graph": "graphs",
    "run": "batch",
    "summary": "batch",
    "export": "batch",
    "axioms": "axioms",
    "serve": "serve",
}
"""The extra that brings all that a command needs, the command line among it."""


def _answered(words: list[str]) -> bool:
    """Tell if a command has begun, or help or the version was asked for: with some versions of typer and click, none does."""
    from .app import begun

    return not words or "--help" in words or words[0] == "--version" or bool(begun)


def main() -> None:
    """Run the ``integrand`` command."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a sign, or a name that is no text, must not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from .app import app

        try:
            app()
        except SystemExit as end:
            if not end.code and not _answered(sys.argv[1:]):
                sys.exit("integrand: no command was run: typer and click do not go together. Run: pip install -U typer click")
            raise
        finally:
            sys.stdout.flush()
    except IntegrandError as error:  # bad input is the user's to mend: the message, no traceback
        from ..words import shown

        print(f"integrand: {shown(str(error), lines=True)}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # the disk, or what standard output leads to, is full
        from ..files import unheard
        from ..words import shown

        place = "what is printed" if error.filename is None else shown(str(error.filename))
        print(f"integrand: {place} cannot be written or read ({error.strerror or error}).", file=sys.stderr)
        with suppress(OSError, ValueError), unheard(sys.stdout.fileno()):
            sys.stdout.flush()  # what is left to print must not fail once more
        sys.exit(2)
    except ImportError as error:
        package = error.name or ""
        if package.partition(".")[0] not in {"typer", "rich", "click"}:
            raise
        asked = next((extra for word, extra in EXTRAS.items() if word in sys.argv[1:2]), "cli")
        sys.exit(str(MissingExtraError(package, asked, "the command line")))
    except KeyboardInterrupt:
        print("integrand: stopped", file=sys.stderr)
        sys.exit(130)
