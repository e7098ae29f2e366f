"""Attributions of molecules with values that the tests choose, and networks whose attributions are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from rdkit import Chem

from integrand.apps.molecules import GraphModel, MoleculeAttribution
from integrand.apps.molecules.weave import Weave
from integrand.certificate import ExampleCertificate, Status

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
CAFFEINE = "Cn1cnc2c1c(=O)n(C)c(=O)n2C"
MOLECULES = (ASPIRIN, CAFFEINE, "C", "CCO", "[Na+].[Cl-]", "c1ccc2ccccc2c1", "CC(C)Cc1ccc(cc1)C(C)C(=O)O", "N#Cc1ccc(F)cc1Br")


def made(
    smiles: str,
    atoms: Sequence[float] | None = None,
    *,
    pairs: Mapping[tuple[int, int], float] | None = None,
    others: Mapping[str, float] | None = None,
    residual: float = 0.0,
    error: float = 0.01,
    label: str = "active",
    columns: int = 1,
    precision: str = "float64",
    seed: int = 0,
) -> MoleculeAttribution:
    """A molecule with these values; random ones, for the pairs in reach too, where none are given."""
    mol = Chem.MolFromSmiles(smiles)
    draw = np.random.default_rng(seed)
    if atoms is None:
        own = draw.normal(size=(mol.GetNumAtoms(), columns))
        ends = np.argwhere(np.triu(Chem.GetDistanceMatrix(mol) <= 2, 1))
        between = draw.normal(size=(len(ends), columns))
    else:
        own = np.array(atoms, float)[:, None]
        ends = np.array(list(pairs or {}), np.int64).reshape(-1, 2)
        between = np.array(list((pairs or {}).values()), float).reshape(-1, 1)
    extra = dict(others or {})
    total = own.sum() + between.sum() + sum(extra.values())
    size = np.abs(own).sum() + np.abs(between).sum() + sum(map(abs, extra.values()))
    known = (0.3 + total - residual, 0.3, residual, float(size), error, 0.01, 50, 2, Status.CONVERGED, "rule", precision, label)
    return MoleculeAttribution(smiles, mol, label, own, ends, between, ExampleCertificate(*known), extra)


@cache
def weave(modules: int, features: str = "simple", seed: int = 0) -> GraphModel:
    """A small network that nobody trained, in float64."""
    torch.manual_seed(seed)
    net = Weave(features, modules, hidden=12, depth=8, dense=(16,)).eval().requires_grad_(False).double()  # type: ignore[arg-type]
    return GraphModel(net, features, name="untrained")  # type: ignore[arg-type]
