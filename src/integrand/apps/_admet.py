"""ADMET-AI's networks, explained: what each atom and bond adds to a predicted property of a molecule.

ADMET-AI (Swanson et al., 2024) predicts absorption, distribution, metabolism, excretion and toxicity with ensembles of five
Chemprop networks, which pass messages along the two directions of each bond. They read the graph only, no descriptors of the
whole molecule, so that atoms and bonds account for all of the score.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._api import integrated_gradients, warn_if_missed
from .._trees import flatten
from ..attribution import Certificate
from ..errors import ConvergenceWarning, OptionError, TargetError, ZeroAttributionWarning
from ..functions import Score
from ._admet_network import (
    QUANTITY,
    SCALES,
    Directed,
    Endpoint,
    Ensemble,
    feature_names,
    featurised,
    find_endpoint,
    load_ensemble,
)
from ._molecule_result import Floats, MoleculeAttribution
from ._molgraph import listed, read
from ._weave_model import OPTIONS, Integrated

if TYPE_CHECKING:
    from rdkit.Chem import Mol

BATCH = 64
"""Molecules that are predicted together."""


@dataclass(frozen=True, eq=False)
class Admet:
    """One endpoint of ADMET-AI.

    Attributes:
        endpoint: what is predicted.
        ensemble: the networks.
        source: where they are from.
    """

    endpoint: Endpoint
    ensemble: Ensemble
    source: str

    @property
    def name(self) -> str:
        """As :func:`integrand.apps.molecules.load` takes it."""
        return f"admet:{self.endpoint.name}"

    @property
    def outputs(self) -> tuple[str]:
        """The endpoint."""
        return (self.endpoint.name,)

    @property
    def label(self) -> str:
        """The endpoint in words, with the units of a quantity."""
        units = self.endpoint.units
        return f"{self.endpoint.title} ({self.endpoint.name}{f', {units}' if units else ''})"

    def predict(self, molecules: Sequence[str | Mol]) -> Floats:
        """What ADMET-AI says of each molecule, (molecules, 1): a probability, or a quantity in its units."""
        mols = [read(one)[1] for one in listed(molecules)]
        found = []
        with torch.no_grad():
            for i in range(0, len(mols), BATCH):
                graphs = featurised(mols[i : i + BATCH], self.device)
                found.append(self._scale(None)(self.ensemble(graphs.atoms, graphs.edges, *graphs.structure)))
        return torch.cat(found).double().cpu().numpy()[:, None]

    def explain(
        self,
        molecules: Sequence[str | Mol],
        *,
        target: str | int | None = None,
        score: Score | None = None,
        tol: float = 0.01,
        columns: bool = False,
        progress: Callable[[int, int], object] | None = None,
        **options: Any,
    ) -> list[MoleculeAttribution]:
        """Integrated gradients of the prediction from the molecule with all features of atoms and bonds zero.

        Args:
            molecules: SMILES, or molecules of RDKit (whose hydrogens are taken off).
            target: the endpoint, or None; it was chosen when the network was loaded.
            score: ``probability`` (the default, the mean over the networks), or ``logit`` or ``log-probability`` of that mean;
                None for quantities.
            tol: the relative error over atoms and bonds to integrate to.
            columns: also keep what each feature of an atom or bond adds. The tolerance and the certificate are then those of
                the features, whose errors add up to at least those of the atoms and bonds.
            progress: called with how many molecules are done, and of how many.
            **options: ``steps``, ``rule``, ``max_evaluations``, ``memory`` and ``chunk``, as in integrated gradients.
        """
        if wrong := sorted(set(options) - set(OPTIONS)):
            raise OptionError(f"got the option {wrong[0]!r}; expected one of {', '.join(OPTIONS)}.")
        if target is not None and str(target).lower() not in (self.endpoint.name.lower(), "0"):
            raise TargetError(f"got the target {target!r} for {self.name}; expected none. Load another endpoint: admet:NAME.")
        asked = {"target": self._scale(score), "tol": tol, "progress": False} | options
        mols = [read(one) for one in listed(molecules)]
        found = []
        for smiles, mol in mols:
            found.append(self._explained(smiles, mol, asked, columns))
            if progress is not None:
                progress(len(found), len(mols))
        warn_if_missed(Certificate(tuple(one.certificate for one in found)))
        return found

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.ensemble.parameters()).device

    def _scale(self, score: Score | None) -> Callable[[Tensor], Tensor]:
        """From the networks' answers, (B, networks, tasks), to the score of the endpoint, (B,)."""
        kinds = [kind for kind in SCALES if (kind == QUANTITY) is not self.ensemble.classifies]
        kind = score or kinds[0]
        if kind not in kinds:
            known = ", ".join(kinds) if self.ensemble.classifies else "none, since this is no probability"
            raise OptionError(f"got score={kind!r} for {self.name}; expected {known}.")
        return lambda answers: SCALES[kind](answers[:, :, self.endpoint.column])

    def _explained(self, smiles: str, mol: Mol, asked: dict[str, Any], columns: bool) -> MoleculeAttribution:
        atoms, bonds, certificate = self._integrated(featurised([mol], self.device), asked, columns)
        names = feature_names() if columns else ((), ())
        return MoleculeAttribution(
            smiles,
            mol,
            self.label,
            atoms,
            np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]).reshape(-1, 2),
            bonds,
            replace(certificate, target=self.endpoint.name),
            atom_columns=names[0],
            pair_columns=names[1],
            model=self.name,
        )

    def _integrated(self, graph: Directed, asked: dict[str, Any], columns: bool) -> Integrated:
        """Attributions of the features of atoms and of bonds, both directions together, or of their sums as one feature."""
        atoms, edges = graph.atoms, graph.edges
        count, bonds = atoms.shape[1], int(graph.near.sum()) // 2
        labels = (torch.arange(count)[:, None], count + torch.arange(edges.shape[1])[:, None] // 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said once, of all molecules
            if not bonds:
                warnings.simplefilter("ignore", ZeroAttributionWarning)  # of the padding
            asked = asked | {"groups": None if columns else labels}
            result = integrated_gradients(self.ensemble, (atoms, edges), args=graph.structure, batched=True, **asked)
        if isinstance(result.values, Tensor):
            of_atoms, of_bonds = (part[0, :, None] for part in result.values.tensor_split([count], 1))
        else:
            of_atoms, of_edges = (leaf[0] for leaf in flatten(result.values, what="values")[1])
            of_bonds = of_edges[0::2] + of_edges[1::2] if bonds else of_edges
        return of_atoms.double().cpu().numpy(), of_bonds[:bonds].double().cpu().numpy(), result.certificate.only


def load_admet(endpoint: str, device: torch.device | str | None = None) -> Admet:
    """The networks of one endpoint, ready to explain.

    Args:
        endpoint: such as ``BBB_Martins``, in upper or lower case.
        device: where to; by default a GPU where torch finds one.
    """
    found = find_endpoint(endpoint)
    ensemble = load_ensemble(found.folder).to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    source = f"ADMET-AI {version('admet-ai')}: {len(ensemble.members)} networks of Chemprop (here {version('chemprop')})"
    return Admet(found, ensemble, source)
