"""A real language model from zero embeddings, the paper's baseline for text: its norms turn zero into a singular start."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import integrand as ig

from .honest import Claim, assert_honest, relative_error
from .story_references import CASES, STORED, load, points


def claims(folder: Path, tol: float, *, first: bool) -> list[Claim]:
    """In float64 from zeros but for the first token; in float32 from all zeros, which is harder."""
    network, tokenizer = load(folder, torch.float64 if first else torch.float32)
    references, out = np.load(STORED), []
    for case in CASES:
        if case.first is first:
            x, baseline, token = points(network, tokenizer, case)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = ig.integrated_gradients(network, x, baseline, target=token, score=case.score, tol=tol)
            only = result.certificate.only
            off = relative_error(result.values.double().numpy().ravel(), references[case.key].astype(float))
            out.append(Claim(case.key, tol, only.converged, only.error, off, only.gradients))
    return out


@pytest.mark.parametrize("tol", [0.05, 0.01, 0.001])
def test_zeros_but_for_the_first_token(tol: float, data: Callable[[str], Path]) -> None:
    found = claims(data("language-model/stories260K.bin").parent, tol, first=True)
    assert all(claim.converged for claim in found)
    assert_honest(found, share=0.97, worst=3.0)


@pytest.mark.parametrize("tol", [0.05, 0.01])
def test_all_zeros_in_float32(tol: float, data: Callable[[str], Path]) -> None:
    found = claims(data("language-model/stories260K.bin").parent, tol, first=False)
    assert np.mean([claim.converged and claim.gradients <= 500 for claim in found]) >= 0.9
    assert_honest(found, share=0.97, worst=3.0)
