"""Inputs and weights, from packages and data or from files: a machine with a GPU may have no package index at hand.

python -m benchmarks.speed --write-inputs FOLDER --cases googlenet minilm    # where the packages are
python -m benchmarks.speed --inputs FOLDER --cases googlenet minilm          # where they are not
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

COUNT = 20
"""Inputs of each network."""
ROUNDED = ("efficientnet0", "efficientnet1", "efficientnet2", "minilm")
"""Weights whose matrices are written as float16; the table says so."""
PACKAGES = ("captum", "saliency", "efficientnet_lite_pytorch")
"""Packages of Python alone that travel along."""

Arrays = dict[str, np.ndarray[Any, Any]]


class Missing(ImportError):
    """A package or a file that a network needs is not here."""


@dataclass(frozen=True)
class Sources:
    """Where a network finds what it needs.

    Attributes:
        data: the folder with ``googlenet``, ``photos``, ``questions`` and so on.
        inputs: a folder that :func:`write` wrote; None: everything is made anew.
        speech: a recording, 16 kHz, one channel; None: that of the package pysptk.
        cache: a folder for what takes long to make; None: nothing is kept.
    """

    data: Path | None = None
    inputs: Path | None = None
    speech: Path | None = None
    cache: Path | None = None
    _read: dict[str, Arrays] = field(default_factory=dict, repr=False, compare=False)

    def photos(self, count: int) -> tuple[Tensor, list[str]]:
        """(count, 3, 224, 224) in 0..255, and their names; the same photos every time."""
        found = self.read("photos")
        pixels = torch.as_tensor(found["photos"][:count]).float()
        return pixels, [str(name) for name in found["labels"][:count]]

    def read(self, name: str) -> Arrays:
        """The arrays of one file; a copy of the dict, so that entries may be taken out."""
        if name not in self._read:
            if self.inputs is not None:
                self._read[name] = self._load(self.inputs / f"{name}.npz")
            else:
                self._read[name] = self.made(name)
        return dict(self._read[name])

    def made(self, name: str) -> Arrays:
        """From packages and data."""
        from .make_inputs import CACHED, MADE

        file = None if self.cache is None or name not in CACHED else self.cache / f"{name}.npz"
        if file is not None and file.is_file():
            return self._load(file)
        try:
            found = MADE[name](self)
        except (ImportError, FileNotFoundError) as error:
            raise Missing(f"{name}: {error}") from error
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(file, **found)
        return found

    def folder(self, name: str) -> Path:
        """A folder of the data."""
        if self.data is None or not (self.data / name).is_dir():
            raise FileNotFoundError(f"{self.data} has no folder {name}")
        return self.data / name

    @staticmethod
    def _load(file: Path) -> Arrays:
        if not file.is_file():
            raise Missing(f"{file} is not there; write it with --write-inputs where the packages are")
        with np.load(file) as arrays:
            return dict(arrays)


def narrowed(arrays: Arrays) -> Arrays:
    """Matrices and kernels as float16; biases and norms, which may be tiny or large, as they are."""
    return {
        name: array.astype(np.float16) if array.dtype == np.float32 and array.ndim > 1 else array
        for name, array in arrays.items()
    }


def write(folder: Path, names: Iterable[str], sources: Sources) -> list[str]:
    """Write what networks need as .npz files, and the packages beside them; what it came to, in words.

    Args:
        folder: made if it is not there.
        names: of the files.
        sources: with the data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = []
    for name in dict.fromkeys(names):
        try:
            found = sources.made(name)
        except Missing as error:
            said.append(f"left out: {error}")
            continue
        file = folder / f"{name}.npz"
        np.savez_compressed(file, **narrowed(found) if name in ROUNDED else found)
        said.append(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
    return said + [f"{folder / 'packages' / name}: copied" for name in PACKAGES if _copied(name, folder / "packages")]


def _copied(name: str, to: Path) -> bool:
    """Copy a package's Python files; whether it is installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return False
    source = Path(next(iter(spec.submodule_search_locations)))
    shutil.copytree(source, to / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "tests", "testing"))
    return True


def use_packages(folder: Path) -> None:
    """Import from the packages that :func:`write` copied, after those that are installed."""
    packages = str(folder / "packages")
    if Path(packages).is_dir() and packages not in sys.path:
        sys.path.append(packages)
