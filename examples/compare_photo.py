"""Compare attribution methods on a photo: ``python examples/compare_photo.py --photo cat.jpg``.

The logit of EfficientNet-Lite0's top class, from a black image to the photo, by the methods that the paper compares. Writes
a picture, a page and the numbers.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from explain_photo import load_photo

import integrand as ig
from integrand.apps import networks


def main() -> None:
    """Read the options, run the methods, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("--photo", default="chelsea", help="an image file, or a name in skimage.data (default: a cat)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder to write to (default: out)")
    options = parser.parse_args()

    network = networks.load("efficientnet-lite0")
    photo = network.preprocess.shown(load_photo(options.photo))
    x = network.preprocess.input(photo)
    black = ig.baselines.black(x, low=network.preprocess.low)
    target = int(network.module(x).argmax())

    found = ig.compare(network.module, x, black, target=target)
    print(found)

    options.out.mkdir(parents=True, exist_ok=True)
    stem = "cat" if options.photo == "chelsea" else Path(options.photo).stem
    drawn = {"image": photo, "labels": network.label(target)}
    command = shlex.join(["python", "examples/compare_photo.py", *sys.argv[1:]])
    print("wrote", found.save(options.out / f"{stem}-compared.png", **drawn))
    print("wrote", found.save(options.out / f"{stem}-compared.html", **drawn, command=command))
    print("wrote", found.save(options.out / f"{stem}-compared.json"))


if __name__ == "__main__":
    main()
