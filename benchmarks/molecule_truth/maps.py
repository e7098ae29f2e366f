"""A number per atom from a network on molecular graphs, by integrated gradients and by what it is compared with."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.apps.molecules.molgraph import Batch, Graph, collate
from integrand.errors import ConvergenceWarning
from integrand.methods import GradientTimesInput

from .labels import Floats

ALONE = ", atoms alone"
METHODS = ("integrated gradients", "gradient x input")
NAMES = (*METHODS, *(name + ALONE for name in METHODS), "random map")
AT_ONCE = {"cpu": 100, "cuda": 500}
"""Molecules of one call: a GPU has nothing to do with few of them."""


@dataclass(frozen=True, eq=False)
class Maps:
    """Maps of one molecule.

    Attributes:
        values: (N,) a number per atom by method.
        gradients: evaluations that integrated gradients took.
        converged: whether they are within the tolerance.
    """

    values: dict[str, Floats]
    gradients: int
    converged: bool


def maps_of(net: nn.Module, graphs: Sequence[Graph], *, tol: float, seed: int, device: str = "cpu") -> list[Maps]:
    """Maps of the network's only output, with all-zero features as the baseline; in the order of the graphs.

    In float64 on a GPU, where sums over pairs come in any order: in float32, two calls then differ visibly where a logit is
    next to zero, which integrated gradients take for randomness.
    """
    dtype = torch.float32 if device == "cpu" else torch.float64
    net = copy.deepcopy(net).to(device, dtype)
    order = np.argsort([len(one.atoms) for one in graphs], kind="stable")  # little padding
    found: dict[int, Maps] = {}
    rng = np.random.default_rng(seed)
    together = AT_ONCE[torch.device(device).type]
    for start in range(0, len(order), together):
        rows = order[start : start + together]
        part = [graphs[row] for row in rows]
        for row, one in zip(rows, _batch(net, part, collate(part).to(device), dtype, tol, rng), strict=True):
            found[int(row)] = one
    return [found[row] for row in range(len(graphs))]


def _batch(
    net: nn.Module, graphs: Sequence[Graph], batch: Batch, dtype: torch.dtype, tol: float, rng: np.random.Generator
) -> Iterator[Maps]:
    call = {"args": (batch.ends, batch.there, batch.near), "groups": groups_of(batch), "batched": True}
    x = (batch.atoms.to(dtype), batch.pairs.to(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted instead
        integrated = ig.integrated_gradients(net, x, tol=tol, progress=False, **call)
    by_name = dict(zip(METHODS, (integrated, GradientTimesInput()(net, x, progress=False, **call)), strict=True))
    numbers = {name: result.values.double().cpu().numpy() for name, result in by_name.items()}
    for row, one in enumerate(graphs):
        values = {"random map": rng.standard_normal(len(one.atoms))}
        for name, rows in numbers.items():
            atoms = rows[row, : len(one.atoms)]
            pairs = rows[row, batch.atoms.shape[1] :][: len(one.pairs)]
            values |= {name: per_atom(atoms, pairs, one.ends.numpy()), name + ALONE: atoms}
        certificate = integrated.certificate[row]
        yield Maps(values, certificate.gradients, certificate.converged)


def groups_of(batch: Batch) -> tuple[Tensor, Tensor]:
    """A group for each atom and one for each pair, so that the tolerance is that of their sums over features."""
    atoms, pairs = (torch.arange(rows.shape[1])[:, None].expand(rows.shape[1:]) for rows in (batch.atoms, batch.pairs))
    return atoms, pairs + len(atoms)


def per_atom(atoms: Floats, pairs: Floats, ends: np.ndarray) -> Floats:
    """(N,) each atom with half of each of its pairs."""
    out = atoms.copy()
    for side in (0, 1):
        np.add.at(out, ends[:, side], pairs / 2)
    return out
