"""Converged answers for the two photos of the benchmark, every feature, stored in half precision.

python -m benchmarks.references      # seconds on a GPU, half an hour on two cores
"""

from __future__ import annotations

import numpy as np
import torch

from tests.honesty.networks import BLACK, efficientnet, photo
from tests.honesty.references import Batch, converge

from .accuracy import PHOTOS, REFERENCE


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    model = efficientnet().to(device).requires_grad_(False)
    found = {}
    for name in PHOTOS:
        x = photo(name).to(device)
        batch = Batch(name, "efficientnet", "probability", x, torch.full_like(x, BLACK))
        values = converge(model, batch, 16384, 64 if device == "cuda" else 8).flatten().cpu().numpy()
        # The largest attribution is far below one: scale to the middle of half precision's range.
        found[name] = (values * 1024).astype(np.float16)
        print(name, np.abs(values).sum(), np.abs(found[name].astype(np.float64) / 1024 - values).sum() / np.abs(values).sum())
    np.savez_compressed(REFERENCE, **found)


if __name__ == "__main__":
    main()
