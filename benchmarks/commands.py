"""How long a person waits for each command: until its first output, and until it is done.

    python -m benchmarks.commands                   # all of them, with the photos of scikit-image: two minutes
    python -m benchmarks.commands --only help       # those whose name contains the text

Each command runs once as it would in a terminal (on a pseudo-terminal, so that bars are drawn), in an empty folder. Times are
of the machine that it runs on: compare only those of one run, or of two runs on one idle machine.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMANDS: dict[str, list[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "usage error": ["image", "--no-such-option"],
    "image --help": ["image", "--help"],
    "photo": ["image", "cat.png", "--out", "cat.html"],
    "eye": ["retina", "eye.png", "--out", "eye.html"],
    "question": ["questions", "did charles oakley play more minutes than robert parish?"],
    "questions page": ["questions", "who wrote hamlet?", "how many people live in paris?", "--out", "questions.html"],
    "rules": ["rules", "questions.tsv", "--out", "rules.html"],
    "translation": ["translate", "good morning ladies and gentlemen"],
    "translation page": ["translate", "good morning ladies and gentlemen", "--out", "translation.html"],
    "molecule": ["molecule", "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1", "--out", "molecule.html"],
}
"""What is run, by name: the arguments of ``integrand``."""


@dataclass(frozen=True)
class Waited:
    """How long one command took, in seconds, and how it ended."""

    first: float
    total: float
    status: int
    said: str


def inputs(folder: Path) -> None:
    """The files that the commands read."""
    from PIL import Image
    from skimage import data

    Image.fromarray(data.chelsea()).save(folder / "cat.png")
    Image.fromarray(data.retina()).save(folder / "eye.png")
    asked = ["who wrote hamlet?", "how many people live in paris?", "where is the eiffel tower?", "what is a quark?"]
    classes = ["human", "number", "location", "description"]
    rows = ["question\tclass", *(f"{text}\t{name}" for text, name in zip(asked, classes, strict=True))]
    (folder / "questions.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def run(arguments: list[str], folder: Path) -> Waited:
    """Run one command on a pseudo-terminal and note when it first said something."""
    master, slave = pty.openpty()
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "integrand.cli", *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=folder, close_fds=True
    )
    os.close(slave)
    said, first = b"", 0.0
    for part in _output(master):
        first = first or time.perf_counter() - started
        said += part
    status = process.wait()
    os.close(master)
    return Waited(first, time.perf_counter() - started, status, said.decode(errors="replace"))


def _output(master: int) -> Iterator[bytes]:
    while True:
        select.select([master], [], [])
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end was closed
            return
        if not part:
            return
        yield part


def main() -> None:
    """Run the commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only commands whose name contains this")
    parser.add_argument("--keep", type=Path, help="a folder to leave the written files in")
    parser.add_argument("--verbose", action="store_true", help="print what each command said")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        inputs(folder)
        print("| command | first output | done | exit |\n|---|---|---|---|")
        for name, arguments in COMMANDS.items():
            if options.only in name:
                waited = run(arguments, folder)
                print(f"| {name} | {waited.first:.1f} s | {waited.total:.1f} s | {waited.status} |", flush=True)
                if options.verbose:
                    print(waited.said)


if __name__ == "__main__":
    main()
