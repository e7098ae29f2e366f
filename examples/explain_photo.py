"""Explain what an image classifier sees in a photo: ``python examples/explain_photo.py --photo cat.jpg``.

The class probability of EfficientNet-Lite0, explained from a black image to the photo. Writes a picture and a page, and
prints the certificate. ``integrand image cat.jpg`` does the same, and more.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from skimage import data

from integrand.apps import images, networks
from integrand.apps.photos import Photo, read


def load_photo(name: str) -> Photo:
    """A file, or a photo of scikit-image by its name."""
    if Path(name).exists():
        return read(name)
    if name in data.__all__ and callable(getattr(data, name)):
        return Photo(getattr(data, name)(), name)
    sys.exit(f"there is no file {name!r} and no photo of that name in skimage.data; try --photo chelsea")


def main() -> None:
    """Read the options, explain the photo, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("--photo", default="chelsea", help="an image file, or a name in skimage.data (default: a cat)")
    parser.add_argument("--tol", type=float, default=0.01, help="the error to integrate to (default: 0.01, which is 1%%)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder to write to (default: out)")
    options = parser.parse_args()

    photo = load_photo(options.photo)
    explanation = images.explain(photo, networks.load("efficientnet-lite0"), tol=options.tol)
    print(explanation)

    options.out.mkdir(parents=True, exist_ok=True)
    stem = "cat" if options.photo == "chelsea" else Path(options.photo).stem
    command = shlex.join(["python", "examples/explain_photo.py", *sys.argv[1:]])
    print("wrote", explanation.save(options.out / f"{stem}.png"))
    print("wrote", explanation.save(options.out / f"{stem}.html", command=command))


if __name__ == "__main__":
    main()
