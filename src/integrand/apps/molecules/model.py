"""Networks on molecules: loads them by name, and attributes their outputs to atoms and pairs of atoms.

The baseline is the molecule with all features zero. :mod:`integrand.apps.molecules` shows how they are used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...certificate import Certificate, ExampleCertificate
from ...engine import warn_if_missed
from ...errors import ConvergenceWarning, OptionError, OutputError, TargetError, quiet
from ...evaluation.progress import ProgressOption
from ...functions.model_state import undisturbed
from ...functions.target import Score
from ...methods.method import Method
from ...render.notebook import ResultList
from ...sum_errors import ErrorDraws
from ...trees import flatten
from ..result_widgets import method_note
from .molgraph import ATOM_FEATURES, PAIR_FEATURES, Batch, Features, Graph, collate, explained_together, graph, listed, read
from .result import Floats, MoleculeAttribution, MoleculeModel, folded_draws
from .training_range import PCBA_588342, TrainingRange
from .weave import NAMES, load_weave

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from ...analysis.inquiry import Inquiry

SOURCE = "integrand's own, trained on PCBA-588342 (MoleculeNet, MIT) by training/weave.py"

ADMET = "admet:"

BATCH = 64
"""The number of molecules that are explained in one batch."""

TOGETHER = 16
"""Molecules of a data set that are explained in one call."""

OPTIONS = ("chunk", "max_evaluations", "memory", "rule", "steps")
"""The options of :func:`integrand.integrated_gradients` that make sense for a batch of graphs."""

Integrated = tuple[Floats, Floats, ExampleCertificate, ErrorDraws | None]
"""The attributions of one molecule, (atoms, features) and (pairs, features), their certificate, and draws of their errors."""

Network = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def load(name: str = "weave-w2n2", device: torch.device | str | None = None) -> MoleculeModel:
    """Load a network that predicts properties of molecules onto a device, by default a GPU where torch finds one.

    Args:
        name: ``weave-w2n2``, ``weave-w1n2``, or these with ``-simple``: whether a molecule is active in the assay PCBA-588342.
            ``admet:BBB_Martins``: an endpoint of ADMET-AI, by its name; needs the extra ``admet``.
        device: where to.
    """
    if not isinstance(name, str):
        raise OptionError(f"got a {type(name).__name__} as the model; expected its name, such as 'weave-w2n2'.")
    if name.startswith(ADMET):
        from .admet import load_admet

        return load_admet(name.removeprefix(ADMET), device)
    for known in NAMES:
        if name == known:
            network = load_weave(known, device)
            return GraphModel(network, network.features, ("active",), name, SOURCE, seen=PCBA_588342)
    raise OptionError(f"got the model {name!r}; expected one of {', '.join(NAMES)}, or {ADMET} and an endpoint of ADMET-AI.")


@dataclass(frozen=True, eq=False)
class GraphModel:
    """A network on molecular graphs: a Weave network, or a function of your own.

    >>> def heavy(atoms, pairs, ends, there, near):
    ...     return atoms.sum((1, 2))[:, None]
    >>> model = GraphModel(heavy, "simple", ("atoms",), logits=False)
    >>> model.predict(["CCO"])
    array([[3.]])
    >>> model.explain(["CCO"])[0].atoms
    array([1., 1., 1.])

    Attributes:
        network: a function of atoms (B, N, features), pairs (B, P, features), ends (B, P, 2), there (B, N) and near (B, P),
            which gives (B, outputs). The last two say which atoms and pairs are no padding; the padding must not count.
        features: which ones it reads: ``full`` are those of Kearnes et al. (2016), ``simple`` the element, the bond and the
            distance.
        outputs: a name for each number that it gives.
        name: the name of the model.
        source: where it is from.
        logits: whether the outputs are logits of yes or no, each on its own; otherwise they are numbers as they stand.
        seen: what the molecules had that it was trained on, so that results can say what it never saw; None where that is not
            known.
    """

    network: Network
    features: Features = "full"
    outputs: tuple[str, ...] = ("active",)
    name: str = "a network on molecular graphs"
    source: str = "given"
    logits: bool = True
    seen: TrainingRange | None = None

    def __post_init__(self) -> None:
        given: object = self.outputs  # a str has letters, each of which would be the name of an output
        if isinstance(given, str) or not given:
            raise OptionError(f"got outputs={given!r}; expected a name for each number, such as ('active',).")

    def double(self) -> GraphModel:
        """A copy of the model in float64, for comparisons that rounding must not decide."""
        if not isinstance(self.network, nn.Module):
            return self
        return replace(self, network=copy.deepcopy(self.network).double())

    def find(self, target: str | int | None) -> int:
        """The index of an output, given its name or number; None stands for the only output.

        Raises:
            TargetError: there is no such output.
        """
        if target is None and len(self.outputs) == 1:
            return 0
        if isinstance(target, str) and target in self.outputs:
            return self.outputs.index(target)
        if str(target).isdigit() and int(str(target)) < len(self.outputs):
            return int(str(target))
        raise TargetError(f"got the target {target!r}; expected one of {', '.join(self.outputs)}.")

    def predict(self, molecules: Sequence[str | Mol]) -> Floats:
        """Predictions for each molecule, (molecules, outputs): probabilities, or numbers where it gives no logits."""
        graphs = [self._graph(one)[1] for one in listed(molecules)]
        found = np.zeros((len(graphs), len(self.outputs)))
        with torch.no_grad(), undisturbed(self.network):
            for rows in _batches(graphs, 4 * BATCH):
                said = self._checked(self.network(*self._batch([graphs[i] for i in rows]).tensors)).double()
                found[rows] = (said.sigmoid() if self.logits else said).cpu().numpy()
        return found

    @explained_together(TOGETHER)
    def explain(
        self,
        molecules: Sequence[str | Mol],
        *,
        target: str | int | None = None,
        score: Score | None = None,
        tol: float = 0.01,
        columns: bool = False,
        batch: int = BATCH,
        progress: Callable[[int, int], object] | None = None,
        tell: ProgressOption = False,
        method: Method | None = None,
        **options: Any,
    ) -> list[MoleculeAttribution]:
        """Integrated gradients of an output from the molecule with all features zero, in batches of similar size.

        Args:
            molecules: SMILES, or molecules of RDKit (whose hydrogens are taken off).
            target: the output to explain, where there are several: its name or number.
            score: ``probability`` (the default), ``log-probability`` or ``logit``.
            tol: the relative error over atoms and pairs to integrate to.
            columns: also keep what each feature of an atom or pair adds. The tolerance and the certificate are then those of
                the features, whose errors add up to at least those of the atoms and pairs.
            batch: how many molecules are explained at a time.
            progress: called with how many molecules are done, and of how many.
            tell: called with :class:`integrand.Progress` while a batch is integrated; what it raises ends the run.
            method: what attributes instead of integrated gradients; has a tolerance of its own, where it has one.
            options: ``steps``, ``rule``, ``max_evaluations``, ``memory``, ``chunk`` of :func:`integrand.integrated_gradients`.
        """
        if wrong := sorted(set(options) - set(OPTIONS)):
            raise OptionError(f"got the option {wrong[0]!r}; expected one of {', '.join(OPTIONS)}.")
        if batch < 1:
            raise OptionError(f"got batch={batch}; expected a whole number of molecules from 1 on.")
        output = self.find(target)
        asked: dict[str, Any] = {"target": self._score(output, score), "tol": tol, "progress": tell} | options
        asked |= {"method": method}
        drawn = [self._graph(one) for one in listed(molecules)]
        graphs = [one for _, one in drawn]
        found: dict[int, MoleculeAttribution] = {}
        for rows in _batches(graphs, batch):
            for i, values in zip(rows, self._integrated([graphs[i] for i in rows], asked, columns), strict=True):
                found[i] = self._result(*drawn[i], values, output, columns)
            if progress is not None:
                progress(len(found), len(graphs))
        scale = score or ("probability" if self.logits else "")
        known: dict[str, Any] = {"scale": scale, "explained_by": self if method is None else None}
        told = () if method is None else (method_note(method),)
        results = ResultList(replace(found[i], notes=(*found[i].notes, *told), **known) for i in range(len(graphs)))
        warn_if_missed(Certificate(tuple(one.certificate for one in results)))
        return results

    def inquiry(self, molecule: str | Mol, *, target: str | int | None = None) -> Inquiry:
        """What is asked about a molecule, for other methods and baselines: an output of the network, by atoms and pairs.

        Args:
            molecule: a SMILES, or a molecule of RDKit.
            target: the output, where there are several.
        """
        _, one = self._graph(molecule)
        output = self.find(target)
        atoms, pairs, *rest = self._batch([one]).tensors
        return molecule_inquiry(
            self.network,
            (atoms, pairs),
            (torch.arange(atoms.shape[1])[:, None], atoms.shape[1] + torch.arange(pairs.shape[1])[:, None]),
            {"target": output, "args": rest},
            self.outputs[output],
            (one.mol, one.ends.tolist()),
        )

    def _score(self, output: int, score: Score | None) -> Callable[[Tensor], Tensor]:
        """The function from the network's output to the explained score.

        Each output is a yes or no of its own, so a softmax would be wrong.
        """
        kind = score or ("probability" if self.logits else "logit")
        scales: dict[str, Callable[[Tensor], Tensor]] = {"logit": lambda said: said}
        if self.logits:
            scales |= {"probability": torch.sigmoid, "log-probability": nn.functional.logsigmoid}
        if kind not in scales:
            raise OptionError(f"got score={kind!r}; expected one of {', '.join(scales)} for this network.")
        return lambda said: scales[kind](self._checked(said)[:, output])

    def _checked(self, said: Tensor) -> Tensor:
        if said.ndim != 2 or said.shape[1] != len(self.outputs):
            raise OutputError(
                f"the network gave shape {tuple(said.shape)}; expected (molecules, {len(self.outputs)}), a number for each of "
                f"{', '.join(self.outputs)}."
            )
        return said

    def _graph(self, molecule: str | Mol) -> tuple[str, Graph]:
        smiles, mol = read(molecule)
        return smiles, graph(mol, self.features)

    def _batch(self, graphs: Sequence[Graph]) -> Batch:
        weights = self.network.parameters() if isinstance(self.network, nn.Module) else ()
        like = next(iter(weights), torch.zeros(()))
        padded = collate(graphs).to(like.device)
        return replace(padded, atoms=padded.atoms.to(like.dtype), pairs=padded.pairs.to(like.dtype))

    def _integrated(self, graphs: Sequence[Graph], asked: dict[str, Any], columns: bool) -> list[Integrated]:
        """Attributions of each molecule: per feature of atoms and pairs, or summed over the features as one column."""
        atoms, pairs, *rest = self._batch(graphs).tensors
        count = atoms.shape[1]
        labels = (torch.arange(count)[:, None], count + torch.arange(pairs.shape[1])[:, None])
        with quiet(ConvergenceWarning):  # said once, of all molecules
            asked = asked | {"groups": None if columns else labels, "args": rest, "batched": True}
            method: Method | None = asked.pop("method")
            if method is None:
                result = integrated_gradients(self.network, (atoms, pairs), **asked)
            else:
                del asked["tol"]
                result = method(self.network, (atoms, pairs), **asked)
        if isinstance(result.values, Tensor):
            leaves = [part.unsqueeze(2) for part in result.values.split([count, pairs.shape[1]], 1)]
        else:
            leaves = list(flatten(result.values, what="values")[1])
        of_atoms, of_pairs = (leaf.double().cpu().numpy() for leaf in leaves)
        draws = None if columns else result.draws  # the errors of features are those of other sums
        return [
            (
                of_atoms[i, : len(one.atoms)],
                of_pairs[i, : len(one.pairs)],
                result.certificate[i],
                folded_draws(draws, i, len(one.atoms), one.ends.numpy(), count + np.arange(len(one.pairs))),
            )
            for i, one in enumerate(graphs)
        ]

    def _result(self, smiles: str, one: Graph, values: Integrated, output: int, columns: bool) -> MoleculeAttribution:
        atoms, pairs, certificate, draws = values
        return MoleculeAttribution(
            smiles,
            one.mol,
            self.outputs[output],
            atoms,
            one.ends.numpy(),
            pairs,
            replace(certificate, target=self.outputs[output]),
            atom_columns=ATOM_FEATURES[self.features] if columns else (),
            pair_columns=PAIR_FEATURES[self.features] if columns else (),
            model=self.name,
            notes=() if self.seen is None else self.seen.notes(one.mol),
            draws=draws,
        )


def molecule_inquiry(
    network: Callable[..., Any],
    x: tuple[Tensor, Tensor],
    labels: tuple[Tensor, Tensor],
    call: dict[str, Any],
    label: str,
    named: tuple[Mol, Sequence[Sequence[int]]],
) -> Inquiry:
    """What is asked about a molecule whose features are those of atoms and of pairs of atoms.

    Args:
        network: what is explained.
        x: features of atoms, (1, atoms, features), and of pairs, (1, pairs, features).
        labels: which number each row of both is added up to.
        call: the target and further arguments.
        label: what is explained, in words.
        named: the molecule, and the two atoms of each pair.
    """
    from ...analysis.inquiry import Inquiry

    mol, ends = named
    names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in mol.GetAtoms()]
    pairs = [f"{names[i]}–{names[j]}" for i, j in ends]
    count = int(labels[1].max()) + 1 if labels[1].numel() else len(names)
    rest = ["(nothing)"] * (count - len(names) - len(pairs))  # a molecule without a bond is padded to one
    zero = (torch.zeros_like(x[0]), torch.zeros_like(x[1]))
    usual = tuple(part.mean(1, keepdim=True).expand_as(part) for part in x)
    return Inquiry(
        network,
        x,
        zero,
        {**call, "groups": labels, "batched": True},
        label,
        features=(*names, *pairs, *rest),
        candidates={"zero": zero, "mean atom": usual},
    )


def _batches(graphs: Sequence[Graph], size: int) -> list[list[int]]:
    """Indices of graphs in batches of similar size."""
    order = sorted(range(len(graphs)), key=lambda i: (len(graphs[i].atoms), len(graphs[i].pairs)))
    return [order[i : i + size] for i in range(0, len(order), size)]
