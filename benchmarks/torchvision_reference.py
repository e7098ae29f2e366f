"""Logits of torchvision's GoogLeNet, stored for the tests of our own: ``python -m benchmarks.torchvision_reference``.

Needs torchvision (the file in the repository is from 0.26.0). Nothing is downloaded: weights are drawn from their names.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
import torchvision

from tests.apps.images.filled import INPUTS, STORE, picture, state


def main(path=STORE):
    arrays = {}
    for transform in (True, False):
        model = torchvision.models.googlenet(
            weights=None, aux_logits=True, transform_input=transform, init_weights=False
        ).eval()
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        model.load_state_dict(state(shapes))
        for name in INPUTS:
            with torch.no_grad():
                arrays[f"{name} {transform}"] = model(picture(name)).numpy()
    np.savez_compressed(path, shapes=json.dumps(shapes), **arrays)
    print(f"torchvision {torchvision.__version__}: wrote {path}")
    for name, logits in arrays.items():
        print(name, logits.shape, f"mean {logits.mean():.4f} deviation {logits.std():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
