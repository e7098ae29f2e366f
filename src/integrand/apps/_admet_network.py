"""Chemprop's directed message passing as a function of atom and bond features, and ADMET-AI's ensembles of it."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import FileError, MissingExtraError, ModelError, OptionError

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True, eq=False)
class Directed:
    """Molecules as Chemprop sees them, padded: an edge for each direction of a bond, bond k's two at 2k and 2k + 1.

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
        """What the network takes beside the features."""
        return self.ends, self.back, self.there, self.near


def featurised(mols: Sequence[Mol], device: torch.device) -> Directed:
    """Chemprop's own features of molecules, padded to the largest, and to one edge where no molecule has a bond."""
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
    """What Chemprop's features of atoms and of bonds say, in their order."""
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


def union(atoms: Tensor, edges: Tensor, ends: Tensor, back: Tensor, there: Tensor, near: Tensor) -> SimpleNamespace:
    """One graph of all molecules side by side, under the names that Chemprop's layers read."""
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
    """One network of an ensemble, without what Lightning keeps for training."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.message_passing, self.pool, self.norm = network.message_passing, network.agg, network.bn
        self.head, self.units = network.predictor.ffn, network.predictor.output_transform

    def forward(self, graph: SimpleNamespace) -> Tensor:
        """Logits or, in their own units, quantities, (B, tasks)."""
        hidden = self.norm(self.pool(self.message_passing(graph), graph.batch))
        return self.units(self.head(hidden))  # type: ignore[no-any-return]


class Ensemble(nn.Module):
    """Several networks that answer the same; :data:`SCALES` make one score of their answers.

    Attributes:
        classifies: whether the answers are logits.
    """

    def __init__(self, members: Sequence[Member], *, classifies: bool) -> None:
        super().__init__()
        self.members, self.classifies = nn.ModuleList(members), classifies

    def forward(self, atoms: Tensor, edges: Tensor, ends: Tensor, back: Tensor, there: Tensor, near: Tensor) -> Tensor:
        """The answer of each network, (B, networks, tasks); the arguments are the fields of :class:`Directed`."""
        graph = union(atoms, edges, ends, back, there, near)
        return torch.stack([member(graph) for member in self.members], 1)


def _log_mean(logits: Tensor) -> Tensor:
    """The logarithm of the mean probability, (B,), without rounding small ones to zero."""
    return nn.functional.logsigmoid(logits).logsumexp(1) - math.log(logits.shape[1])


QUANTITY = "quantity"

SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    QUANTITY: lambda answers: answers.mean(1),
    "probability": lambda logits: logits.sigmoid().mean(1),
    "log-probability": _log_mean,
    "logit": lambda logits: _log_mean(logits) - _log_mean(-logits),
}
"""From the answers of networks to one task, (B, networks), to the score of the ensemble, (B,): that of their mean."""


@dataclass(frozen=True)
class Endpoint:
    """What one output of an ensemble predicts.

    Attributes:
        name: as ADMET-AI writes it.
        title: in words.
        units: of a quantity; empty for a probability.
        folder: where the networks are.
        column: which of their outputs it is.
    """

    name: str
    title: str
    units: str
    folder: Path
    column: int


def find_endpoint(name: str) -> Endpoint:
    """By its name, in upper or lower case; the error names those that are near."""
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
    """All that the installed ADMET-AI has networks for."""
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
    """The networks in a folder, in eval mode and frozen, on the processor."""
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


def _resources() -> Path:
    """The data of the package, found without importing it: that loads its web pages' and tables' needs."""
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
