"""What sums claim holds as well, by the rule for results: blocks of digits. ``python -m benchmarks.sums`` has the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import integrand as ig

from .networks import trained
from .references import FOLDER, digit_batches

BLOCKS = torch.arange(64) // 16 * 4 + torch.arange(64) % 8 // 2
"""Four rows of four blocks of 2 x 2 pixels."""


@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize(("options", "usual"), [({"tol": 0.05}, 10.0), ({"steps": 65, "rule": "trapezoid", "tol": 1.0}, 20.0)])
def test_blocks_of_digits(options: dict[str, object], usual: float) -> None:
    """At least 97% of the sums are within their error, none beyond three times it, and the error is of use."""
    references, found = np.load(FOLDER / "digits.npz"), []
    for batch in digit_batches(torch.float32):
        if batch.name.endswith("logit-blank") or batch.name == "cnn-probability-noise":
            result = ig.integrated_gradients(trained(batch.network), batch.x, batch.baseline, score=batch.score, **options)
            sums = result.sums(BLOCKS)
            exact = ig.Attribution(torch.as_tensor(references[batch.name]), result.certificate).sums(BLOCKS).values
            integrated = [one.rule != "linear regions" for one in result.certificate]  # the others are better than references
            claimed, off = sums.errors[integrated].ravel(), (sums.values - exact).abs()[integrated].ravel()
            assert bool(claimed.isfinite().all())
            found.append((batch.network, claimed[claimed > 0], off[claimed > 0]))
            assert not off[claimed == 0].any()  # pixels that are the baseline's
    ratios = torch.cat([off / claimed for _, claimed, off in found])
    assert len(ratios) > 1000
    assert float((ratios <= 1).double().mean()) >= 0.97
    assert float(ratios.max()) <= 3
    kinked = torch.cat([claimed / off for name, claimed, off in found if name in ("relu", "cnn")])
    assert float(kinked.median()) < usual
