"""ADMET-AI's networks, explained: what each atom and bond adds to a predicted property of a molecule.

ADMET-AI (Swanson et al., 2024) predicts absorption, distribution, metabolism, excretion and toxicity with ensembles of five
Chemprop networks, which pass messages along the two directions of each bond. They read the graph only, no descriptors of the
whole molecule, so that atoms and bonds account for all of the score.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...certificate import Certificate
from ...engine import warn_if_missed
from ...errors import (
    ConvergenceWarning,
    FileError,
    MissingExtraError,
    ModelError,
    OptionError,
    TargetError,
    ZeroAttributionWarning,
    quiet,
)
from ...evaluation.progress import ProgressOption
from ...functions.target import Score
from ...trees import flatten
from .model import OPTIONS, Integrated, molecule_inquiry
from .molgraph import explained_together, listed, read
from .result import Floats, MoleculeAttribution, folded_draws

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from ...analysis.inquiry import Inquiry

BATCH = 64
"""The number of molecules that are predicted in one batch."""

QUANTITY = "quantity"


@dataclass(frozen=True, eq=False)
class Admet:
    """A model for one endpoint of ADMET-AI.

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
        """The model's name, as :func:`integrand.apps.molecules.load` takes it."""
        return f"admet:{self.endpoint.name}"

    @property
    def outputs(self) -> tuple[str]:
        """The name of the endpoint, as a tuple."""
        return (self.endpoint.name,)

    @property
    def label(self) -> str:
        """The endpoint in words, with the units of a quantity."""
        units = self.endpoint.units
        return f"{self.endpoint.title} ({self.endpoint.name}{f', {units}' if units else ''})"

    def predict(self, molecules: Sequence[str | Mol]) -> Floats:
        """ADMET-AI's prediction for each molecule, (molecules, 1): a probability, or a quantity in its units."""
        mols = [read(one)[1] for one in listed(molecules)]
        found = []
        with torch.no_grad():
            for i in range(0, len(mols), BATCH):
                graphs = featurised(mols[i : i + BATCH], self.device)
                found.append(self._scale(None)(self.ensemble(graphs.atoms, graphs.edges, *graphs.structure)))
        return torch.cat(found).double().cpu().numpy()[:, None]

    @explained_together(1)
    def explain(
        self,
        molecules: Sequence[str | Mol],
        *,
        target: str | int | None = None,
        score: Score | None = None,
        tol: float = 0.01,
        columns: bool = False,
        progress: Callable[[int, int], object] | None = None,
        tell: ProgressOption = False,
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
            tell: called with :class:`integrand.Progress` while a molecule is integrated; what it raises ends the run.
            **options: ``steps``, ``rule``, ``max_evaluations``, ``memory`` and ``chunk``, as in integrated gradients.
        """
        if wrong := sorted(set(options) - set(OPTIONS)):
            raise OptionError(f"got the option {wrong[0]!r}; expected one of {', '.join(OPTIONS)}.")
        if target is not None and str(target).lower() not in (self.endpoint.name.lower(), "0"):
            raise TargetError(f"got the target {target!r} for {self.name}; expected none. Load another endpoint: admet:NAME.")
        asked = {"target": self._scale(score), "tol": tol, "progress": tell} | options
        mols = [read(one) for one in listed(molecules)]
        found = []
        for smiles, mol in mols:
            scale = score or ("probability" if self.ensemble.classifies else "")
            told: dict[str, Any] = {"scale": scale, "units": self.endpoint.units, "explained_by": self}
            found.append(replace(self._explained(smiles, mol, asked, columns), **told))
            if progress is not None:
                progress(len(found), len(mols))
        warn_if_missed(Certificate(tuple(one.certificate for one in found)))
        return found

    def inquiry(self, molecule: str | Mol, *, target: str | int | None = None) -> Inquiry:
        """What is asked about a molecule, for other methods and baselines: the prediction, by atoms and bonds.

        Args:
            molecule: a SMILES, or a molecule of RDKit.
            target: None; the endpoint was chosen when the network was loaded.
        """
        _, mol = read(molecule)
        graph = featurised([mol], self.device)
        labels = (
            torch.arange(graph.atoms.shape[1])[:, None],
            graph.atoms.shape[1] + torch.arange(graph.edges.shape[1])[:, None] // 2,
        )
        call = {"target": self._scale(None), "args": graph.structure}
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        return molecule_inquiry(self.ensemble, (graph.atoms, graph.edges), labels, call, self.label, (mol, ends))

    @property
    def device(self) -> torch.device:
        """The device that the networks are on."""
        return next(self.ensemble.parameters()).device

    def _scale(self, score: Score | None) -> Callable[[Tensor], Tensor]:
        """The function from the networks' outputs, (B, networks, tasks), to the score of the endpoint, (B,)."""
        kinds = [kind for kind in SCALES if (kind == QUANTITY) is not self.ensemble.classifies]
        kind = score or kinds[0]
        if kind not in kinds:
            known = ", ".join(kinds) if self.ensemble.classifies else "none, since this is no probability"
            raise OptionError(f"got score={kind!r} for {self.name}; expected {known}.")
        return lambda answers: SCALES[kind](answers[:, :, self.endpoint.column])

    def _explained(self, smiles: str, mol: Mol, asked: dict[str, Any], columns: bool) -> MoleculeAttribution:
        ends = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()], np.int64)
        ends = ends.reshape(-1, 2)
        atoms, bonds, certificate, draws = self._integrated(featurised([mol], self.device), asked, columns)
        names = feature_names() if columns else ((), ())
        return MoleculeAttribution(
            smiles,
            mol,
            self.label,
            atoms,
            ends,
            bonds,
            replace(certificate, target=self.endpoint.name),
            atom_columns=names[0],
            pair_columns=names[1],
            model=self.name,
            notes=unread_elements(mol),
            draws=folded_draws(draws, 0, len(atoms), ends, len(atoms) + np.arange(len(ends))),
        )

    def _integrated(self, graph: Directed, asked: dict[str, Any], columns: bool) -> Integrated:
        """Attributions of atoms and bonds (both directions together), per feature or summed over the features."""
        atoms, edges = graph.atoms, graph.edges
        count, bonds = atoms.shape[1], int(graph.near.sum()) // 2
        labels = (torch.arange(count)[:, None], count + torch.arange(edges.shape[1])[:, None] // 2)
        padding = () if bonds else (ZeroAttributionWarning,)
        with quiet(ConvergenceWarning, *padding):  # the first is said once, of all molecules
            asked = asked | {"groups": None if columns else labels}
            result = integrated_gradients(self.ensemble, (atoms, edges), args=graph.structure, batched=True, **asked)
        if isinstance(result.values, Tensor):
            of_atoms, of_bonds = (part[0, :, None] for part in result.values.tensor_split([count], 1))
        else:
            of_atoms, of_edges = (leaf[0] for leaf in flatten(result.values, what="values")[1])
            of_bonds = of_edges[0::2] + of_edges[1::2] if bonds else of_edges
        draws = None if columns else result.draws  # the errors of features are those of other sums
        return of_atoms.double().cpu().numpy(), of_bonds[:bonds].double().cpu().numpy(), result.certificate.only, draws


def load_admet(endpoint: str, device: torch.device | str | None = None) -> Admet:
    """Load the networks of one endpoint.

    Args:
        endpoint: such as ``BBB_Martins``, in upper or lower case.
        device: where to; by default a GPU where torch finds one.
    """
    found = find_endpoint(endpoint)
    ensemble = load_ensemble(found.folder).to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    source = f"ADMET-AI {version('admet-ai')}: {len(ensemble.members)} networks of Chemprop (here {version('chemprop')})"
    return Admet(found, ensemble, source)


@dataclass(frozen=True, eq=False)
class Directed:
    """Molecules as Chemprop sees them, padded, with an edge for each direction of a bond: bond k has edges 2k and 2k + 1.

    Attributes:
        atoms: features of the atoms, (B, N, Fv).
        edges: features of the directed edges, (B, M, Fe).
        ends: from which atom to which, (B, M, 2).
        back: the edge of the other direction, (B, M).
        there: which atoms are no padding, (B, N).
        near: which edges are no padding, (B, M).
    """

    atoms: Tensor
    edges: Tensor
    ends: Tensor
    back: Tensor
    there: Tensor
    near: Tensor

    @property
    def structure(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The network's inputs besides the features."""
        return self.ends, self.back, self.there, self.near


def featurised(mols: Sequence[Mol], device: torch.device) -> Directed:
    """Chemprop's features of molecules, padded to the largest, and to one edge where no molecule has a bond."""
    features = _chemprop("featurizers").SimpleMoleculeMolGraphFeaturizer()
    graphs = [features(mol) for mol in mols]
    sizes = [(len(graph.V), len(graph.E)) for graph in graphs]

    def padded(parts: Sequence[Any], dtype: torch.dtype) -> Tensor:
        rows = [torch.as_tensor(part).to(device, dtype) for part in parts]
        least = rows[0].new_zeros(1, *rows[0].shape[1:])
        return nn.utils.rnn.pad_sequence([*rows, least], batch_first=True)[:-1]

    return Directed(
        padded([graph.V for graph in graphs], torch.float32),
        padded([graph.E for graph in graphs], torch.float32),
        padded([graph.edge_index.T for graph in graphs], torch.int64),
        padded([graph.rev_edge_index for graph in graphs], torch.int64),
        padded([torch.ones(atoms) for atoms, _ in sizes], torch.bool),
        padded([torch.ones(edges) for _, edges in sizes], torch.bool),
    )


def feature_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of Chemprop's features of atoms and of bonds, in their order."""
    features = _chemprop("featurizers").SimpleMoleculeMolGraphFeaturizer()
    from rdkit.Chem import BondStereo, ChiralType, GetPeriodicTable

    atom, bond = features.atom_featurizer, features.bond_featurizer
    families: list[tuple[str, dict[Any, int], Callable[[Any], object]]] = [
        ("element", atom.atomic_nums, GetPeriodicTable().GetElementSymbol),
        ("degree", atom.degrees, str),
        ("charge", atom.formal_charges, "{:+d}".format),
        ("chirality", atom.chiral_tags, lambda tag: str(ChiralType.values[tag]).removeprefix("CHI_").lower()),
        ("hydrogens", atom.num_Hs, str),
        ("hybridisation", atom.hybridizations, lambda kind: str(kind).lower()),
    ]
    atoms = [
        f"{name} {word}" for name, known, say in families for word in (*map(say, sorted(known, key=known.__getitem__)), "?")
    ]
    kinds = [f"bond {str(kind).lower()}" for kind in bond.bond_types]
    stereo = [f"stereo {str(BondStereo.values[i]).removeprefix('STEREO').lower()}" for i in bond.stereo]
    return (*atoms, "aromatic", "mass"), ("no bond", *kinds, "conjugated", "in ring", *stereo, "stereo ?")


def unread_elements(mol: Mol) -> tuple[str, ...]:
    """A note on elements that Chemprop has no feature for; what its networks were trained on is not known here.

    >>> unread_elements(read("CCO")[1])
    ()
    """
    known = _chemprop("featurizers").SimpleMoleculeMolGraphFeaturizer().atom_featurizer.atomic_nums
    lost = sorted({atom.GetSymbol() for atom in mol.GetAtoms() if atom.GetAtomicNum() not in known})
    if not lost:
        return ()
    return (f"The network has no feature of its own for {' and '.join(lost)}: its answer may mean nothing.",)


def union(atoms: Tensor, edges: Tensor, ends: Tensor, back: Tensor, there: Tensor, near: Tensor) -> SimpleNamespace:
    """One graph of all molecules side by side, with the attribute names that Chemprop's layers read."""
    atom = there.flatten().cumsum(0).reshape(there.shape) - 1
    edge = near.flatten().cumsum(0).reshape(near.shape) - 1
    index = atom.gather(1, ends.flatten(1)).reshape(ends.shape)
    return SimpleNamespace(
        V=atoms[there],
        E=edges[near],
        edge_index=index[near].T,
        rev_edge_index=edge.gather(1, back)[near],
        batch=there.nonzero()[:, 0],
    )


class Member(nn.Module):
    """One network of an ensemble, without the parts that Lightning needs for training."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.message_passing, self.pool, self.norm = network.message_passing, network.agg, network.bn
        self.head, self.units = network.predictor.ffn, network.predictor.output_transform

    def forward(self, graph: SimpleNamespace) -> Tensor:
        """Logits, or quantities in their own units, (B, tasks)."""
        hidden = self.norm(self.pool(self.message_passing(graph), graph.batch))
        return self.units(self.head(hidden))  # type: ignore[no-any-return]


class Ensemble(nn.Module):
    """Networks that predict the same tasks; :data:`SCALES` combine their outputs into one score.

    Attributes:
        classifies: whether the answers are logits.
    """

    def __init__(self, members: Sequence[Member], *, classifies: bool) -> None:
        super().__init__()
        self.members, self.classifies = nn.ModuleList(members), classifies

    def forward(self, atoms: Tensor, edges: Tensor, ends: Tensor, back: Tensor, there: Tensor, near: Tensor) -> Tensor:
        """The output of each network, (B, networks, tasks); the arguments are the fields of :class:`Directed`."""
        graph = union(atoms, edges, ends, back, there, near)
        return torch.stack([member(graph) for member in self.members], 1)


@dataclass(frozen=True)
class Endpoint:
    """A property that one output of an ensemble predicts.

    Attributes:
        name: as ADMET-AI writes it.
        title: in words.
        units: the units of a quantity; empty for a probability.
        folder: where the networks are.
        column: which of their outputs it is.
    """

    name: str
    title: str
    units: str
    folder: Path
    column: int


def find_endpoint(name: str) -> Endpoint:
    """Find an endpoint by its name, ignoring case; the error suggests similar names."""
    asked = name.strip().lower()
    known = {one.name.lower(): one for one in endpoints()}
    if asked in known:
        return known[asked]
    near = [key for key in known if asked and asked in key] or difflib.get_close_matches(asked, known, cutoff=0.4)
    if near:
        meant = " or ".join(known[key].name for key in near)
        raise OptionError(f"got the endpoint {name!r}; expected one of ADMET-AI's {len(known)}. Did you mean {meant}?")
    raise OptionError(f"got the endpoint {name!r}; expected one of {', '.join(one.name for one in known.values())}.")


@cache
def endpoints() -> tuple[Endpoint, ...]:
    """All endpoints of the installed ADMET-AI."""
    resources = _resources()
    with (resources / "data" / "admet.csv").open(encoding="utf-8", newline="") as file:
        about = {row["id"]: row for row in csv.DictReader(file)}
    found = []
    for folder in sorted((resources / "models").iterdir()):
        for column, name in enumerate(_columns(folder)):
            row = about.get(name, {})
            units = row.get("units", "") if row.get("task_type") == "regression" else ""
            found.append(Endpoint(name, row.get("name", name), units, folder, column))
    return tuple(found)


def load_ensemble(folder: Path) -> Ensemble:
    """Load the networks in a folder, in eval mode and frozen, on the CPU."""
    models = _chemprop("models")
    networks = [models.load_model(path) for path in _files(folder)]
    classifies = {isinstance(network.predictor, _chemprop("nn").BinaryClassificationFFN) for network in networks}
    for network in networks:
        extra = network.predictor.input_dim - network.message_passing.output_dim
        if extra or len(classifies) > 1:
            raise ModelError(
                f"the networks in {folder.name} take {extra} descriptors of the molecule beside its graph; expected those of "
                "admet-ai 2, which take none. Install that version."
            )
    return Ensemble([Member(network) for network in networks], classifies=classifies.pop()).eval().requires_grad_(False)


def _log_mean(logits: Tensor) -> Tensor:
    """The logarithm of the mean probability, (B,), without rounding small ones to zero."""
    return nn.functional.logsigmoid(logits).logsumexp(1) - math.log(logits.shape[1])


SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    QUANTITY: lambda answers: answers.mean(1),
    "probability": lambda logits: logits.sigmoid().mean(1),
    "log-probability": _log_mean,
    "logit": lambda logits: _log_mean(logits) - _log_mean(-logits),
}
"""From the networks' outputs for one task, (B, networks), to the score of the ensemble's mean prediction, (B,)."""


def _resources() -> Path:
    """The package's data folder, found without importing the package, which would load much else."""
    found = find_spec("admet_ai")
    if found is None or found.origin is None:
        raise MissingExtraError("admet-ai", "admet", "explaining ADMET-AI's predictions")
    return Path(found.origin).parent / "resources"


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.pt"))
    if not found:
        raise FileError(f"{folder} has no .pt file; expected the networks of admet-ai 2. Install it anew.")
    return found


def _columns(folder: Path) -> list[str]:
    return list(_chemprop("models.utils").load_output_columns(_files(folder)[0]))


def _chemprop(part: str) -> Any:
    try:
        return import_module(f"chemprop.{part}")
    except ImportError:
        raise MissingExtraError("chemprop", "admet", "explaining ADMET-AI's predictions") from None
