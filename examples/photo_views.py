"""Every picture of one photo: ``python examples/photo_views.py --photo coffee``.

The class probability of a network from black to the photo, to 1%: all views, the path with its thumbnails, the
regions as a table, and what other baselines would have said.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from explain_photo import load_photo

import integrand as ig
from integrand.apps import images, networks
from integrand.render import image


def main() -> None:
    """Read the options, explain the photo, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("--photo", default="coffee", help="an image file, or a name in skimage.data")
    parser.add_argument("--tol", type=float, default=0.01, help="the error to integrate to (default: 0.01, which is 1%%)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder to write to (default: out)")
    parser.add_argument("--model", default="efficientnet-lite0", help="a network, as in integrand image")
    parser.add_argument("--weights", help="its weights, where it has none of its own")
    options = parser.parse_args()

    network = networks.load(options.model, weights=options.weights)
    found = images.explain(load_photo(options.photo), network, tol=options.tol, rival=False)
    print(found)
    print(image.regions(found.result, found.shown, count=40))

    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / Path(options.photo).stem
    drawn = {"views": tuple(image.VIEWS), "others": None}
    print("wrote", found.save(f"{stem}-views.png", **drawn))
    path = image.path(found.result, found.shown, labels=found.answer.label)
    path.savefig(f"{stem}-path.png", bbox_inches="tight", pad_inches=0.15)
    print("wrote", f"{stem}-path.png")

    preprocess = network.preprocess
    ends = {"low": preprocess.low, "high": preprocess.high}
    diagnosis = ig.baselines.diagnose(network.module, found.x, target=found.answer.index, classes=network.label, **ends)
    print(diagnosis)
    shown = {"image": found.shown, "pixels": preprocess.pixels, "label": found.answer.label}
    print("wrote", diagnosis.save(f"{stem}-baselines.png", **shown))


if __name__ == "__main__":
    main()
