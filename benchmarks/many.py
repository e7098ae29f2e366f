"""What the benchmarks over many inputs explain: questions of TREC-6, photos, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import integrand as ig
from integrand.apps import questions
from integrand.apps.questions.model import words_of
from integrand.batch.rows import Row

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where the questions and the photos are, beside the repository."""

RESULTS = Path(__file__).with_name("many.json")
"""What was measured, for ``--paper``."""

GRID = 16
"""A photo's attributions are kept as sums over a grid of so many cells each way, as ``integrand image`` keeps them."""

Clock = tuple[float, float]


# ---- what is explained -------------------------------------------------------------------------------------------------------


def trec_questions(count: int, folder: Path = DATA / "questions" / "trec") -> dict[str, str]:
    """So many questions by their keys: those of TREC-6, again and again where it has fewer."""
    texts: list[str] = []
    for name in ("TREC.train.all", "TREC.test.all"):
        lines = (folder / name).read_text(encoding="latin-1").splitlines()
        texts += [text for line in lines if words_of(text := line.partition(" ")[2].strip())]
    return {f"{i:06d}": texts[i % len(texts)] for i in range(count)}


def photo_pixels(count: int, folder: Path = DATA / "photos") -> dict[str, np.ndarray[Any, Any]]:
    """So many photos by their keys, (224, 224, 3): those of a folder and of scikit-image, then mirrored and cropped ones."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("*.jpg"))}
    try:
        import skimage.data as known

        for name in ("astronaut", "chelsea", "coffee", "rocket"):
            found[name] = _central(getattr(known, name)())
    except ImportError:  # those of the folder will do
        pass
    whole = list(found.items())
    for i in range(len(found), count):
        name, pixels = whole[i % len(whole)]
        turn = i // len(whole)  # odd turns are mirrored, later ones cropped further from the edge
        inset = 4 * (turn // 2)
        cut = pixels[inset : 224 - inset, inset : 224 - inset]
        found[f"{name}-{turn}"] = _central(cut[:, ::-1] if turn % 2 else cut)
    return dict(list(found.items())[:count])


def _read(path: Path) -> np.ndarray[Any, Any]:
    from integrand.apps import photos

    return _central(photos.read(path).pixels)


def _central(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from PIL import Image

    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = np.ascontiguousarray(pixels[top : top + side, left : left + side])
    return np.asarray(Image.fromarray(square).resize((224, 224), Image.Resampling.BILINEAR))


class QuestionExplainer:
    """Explains questions with the network for TREC-6: one call of ``integrated_gradients`` for a batch of them.

    Attributes:
        together: questions in a batch.
        tol: the tolerance.
    """

    def __init__(self, *, tol: float = 0.01, together: int = 256, device: str | None = None) -> None:
        self.tol, self.together = tol, together
        self.classifier = questions.load("trec", device)

    @staticmethod
    def size(text: str) -> float:
        """The number of words."""
        return len(words_of(text))

    def found(self, texts: Sequence[str]) -> ig.Attribution:
        """The attributions of some questions."""
        return self.classifier.attribution(texts, tol=self.tol)

    def fields(self, texts: Sequence[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is kept of each: its certificate, and its words with their attributions."""
        found = self.found(texts)
        for text, certificate, values in zip(texts, found.certificate, found.numpy(), strict=True):
            words = [word.text for word in words_of(text)]
            yield certificate, {"features": tuple(words), "attributions": values[: len(words)]}

    def __call__(self, texts: list[str]) -> list[Row]:
        """One row for each question."""
        return [Row.of(certificate, **fields) for certificate, fields in self.fields(texts)]


class PhotoExplainer:
    """Explains photos with a network: one call of ``integrated_gradients`` for a batch of them, then sums over a grid.

    Attributes:
        together: photos in a batch.
        tol: the tolerance.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mean: float = 127.0,
        scale: float = 128.0,
        score: str = "probability",
        tol: float = 0.05,
        together: int = 8,
    ) -> None:
        self.module, self.mean, self.scale, self.score = module, mean, scale, score
        self.tol, self.together = tol, together

    def found(self, photos: Sequence[np.ndarray[Any, Any]]) -> ig.Attribution:
        """The attributions of some photos, from black."""
        device = next(self.module.parameters()).device
        pixels = torch.from_numpy(np.stack(photos)).to(device)
        x = (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.scale
        named: Any = {"score": self.score}
        return ig.integrated_gradients(self.module, x, -self.mean / self.scale, tol=self.tol, progress=False, **named)

    def fields(self, photos: Sequence[np.ndarray[Any, Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is kept of each: its certificate, and its attributions summed over a grid."""
        found = self.found(photos)
        values: Any = found.values
        count, _, height, width = values.shape
        cells = values.sum(1).reshape(count, GRID, height // GRID, GRID, width // GRID).sum((2, 4)).cpu().numpy()
        for certificate, grid in zip(found.certificate, cells, strict=True):
            yield certificate, {"attributions": grid}

    def __call__(self, photos: list[np.ndarray[Any, Any]]) -> list[Row]:
        """One row for each photo."""
        return [Row.of(certificate, **fields) for certificate, fields in self.fields(photos)]


def efficientnet(weights: str | None = None) -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights."""
    from integrand.apps import networks

    module = networks.load("efficientnet-lite0", weights=weights).module
    assert isinstance(module, nn.Module)
    return module
