"""What is explained, from packages or from files: a machine with a GPU may have neither scikit-image nor RDKit.

python -m benchmarks.speed --write-inputs FOLDER    # where the packages are
python -m benchmarks.speed --inputs FOLDER          # where they are not
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIZE, COUNT = 224, 16
"""Of the photos."""
MOLECULE = "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1"
SENTENCE, SAID = "good morning ladies and gentlemen", "Guten"

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Sources:
    """Where a case finds what it needs.

    Attributes:
        data: a folder with ``googlenet/bvlc_googlenet_imagenet_f16.npz``; None, or without it: random weights.
        inputs: a folder that :func:`write` wrote; None: the inputs are made anew.
    """

    data: Path | None = None
    inputs: Path | None = None

    def photos(self, count: int) -> Tensor:
        """(count, 3, 224, 224) in 0..255; the same photos every time."""
        pixels = self._read("photos")["photos"]
        return torch.tensor(pixels[np.arange(count) % len(pixels)]).float()

    def molecule(self) -> dict[str, Tensor]:
        """The tensors of one molecule's graph by name, one row each."""
        return {name: torch.tensor(array) for name, array in self._read("molecule").items()}

    def sentence(self) -> tuple[Tensor, Tensor]:
        """Piece numbers of an English sentence, (1, S), and of what has been said of its translation, (1, T)."""
        found = self._read("sentence")
        return torch.tensor(found["source"]), torch.tensor(found["prefix"])

    def _read(self, name: str) -> Arrays:
        file = None if self.inputs is None else self.inputs / f"{name}.npz"
        if file is None:
            return MADE[name]()
        if not file.is_file():
            raise ImportError(f"{file} is not there; write it with --write-inputs where the packages are")
        with np.load(file) as arrays:
            return dict(arrays)


def _photos() -> Arrays:
    """Scikit-image's photos, cropped and turned."""
    from skimage import data, transform

    names = ("chelsea", "coffee", "astronaut", "rocket")
    out = []
    for i in range(COUNT):
        pixels = getattr(data, names[i % len(names)])()
        side = min(pixels.shape[:2])
        shift = (i // len(names)) * 7
        square = pixels[shift:side, (pixels.shape[1] - side) // 2 :][: side - shift, : side - shift]
        small = transform.resize(square, (SIZE, SIZE), anti_aliasing=True) * 255
        out.append((small if i // len(names) % 2 == 0 else small[:, ::-1]).transpose(2, 0, 1))
    return {"photos": np.stack(out).round().astype(np.uint8)}


def _molecule() -> Arrays:
    from integrand.apps.molecules.molgraph import collate, graph, parse

    found = collate([graph(parse(MOLECULE))])
    return dict(zip(("atoms", "pairs", "ends", "there", "near"), (one.numpy() for one in found.tensors), strict=True))


def _sentence() -> Arrays:
    from integrand.apps.translation.seq2seq import START, load_pieces

    pieces = load_pieces()
    said = [START, *[one for one in pieces.encode(SAID).ids if one > START + 1]]
    return {"source": np.array([pieces.encode(SENTENCE).ids]), "prefix": np.array([said])}


MADE: dict[str, Callable[[], Arrays]] = {"photos": _photos, "molecule": _molecule, "sentence": _sentence}


def write(folder: Path) -> list[Path]:
    """All inputs as .npz files, 2 MB together."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MADE.items():
        np.savez_compressed(folder / f"{name}.npz", **make())
    return [folder / f"{name}.npz" for name in MADE]
