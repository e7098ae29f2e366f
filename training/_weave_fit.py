"""How a Weave network is trained, on any labels, and how well it tells them apart."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from _weave_data import Packed
from torch import Tensor

from integrand.apps.molecules.molgraph import ATOM_FEATURES, Batch, Features, Graph
from integrand.apps.molecules.weave import MaskedNorm, Weave

Task = Literal["classification", "regression"]
Judge = Callable[[Any], float]
Maker = Callable[[int, int, int], torch.nn.Module]
"""Makes a network of the same call as :class:`Weave` with a ``head`` whose last layer is linear, from the number of features of
atoms and of pairs and of numbers that come out."""

NEUTRAL_ROWS = 32  # molecules of each batch that are also shown with all features zero


@dataclass(frozen=True)
class Settings:
    """How a network is made and trained.

    Attributes:
        task: logits of one or several labels, or their values.
        modules: Weave modules.
        hidden: features between modules.
        depth: features of atoms of which histograms are made.
        dense: widths of the layers on the molecule.
        dropout: behind those layers.
        epochs: times through the molecules.
        batch: molecules of a step.
        rate: of AdamW at its highest.
        decay: of the weights.
        balance: 1: actives weigh as much as inactives, all together; 0: as they come. Logits are shifted back afterwards.
        neutral: weight of the loss that holds the molecule of zeros at the prior.
        moving: the share of the epochs after which the statistics of the norms stay as they are; 1: they follow to the end.
        alike: molecules of a batch have about the same size, so that there is little padding. A network without norms learns
            less from such batches: what they have in common is their size.
        seed: of the weights and the order.
    """

    task: Task = "classification"
    modules: int = 2
    hidden: int = 64
    depth: int = 128
    dense: tuple[int, ...] = (256, 64)
    dropout: float = 0.25
    epochs: int = 30
    batch: int = 1024
    rate: float = 2e-3
    decay: float = 0.01
    balance: float = 0.5
    neutral: float = 0.1
    moving: float = 0.5
    alike: bool = True
    seed: int = 0

    def fresh(self, features: Features, tasks: int) -> Weave:
        """A network with random weights."""
        sizes: dict[str, Any] = {"hidden": self.hidden, "depth": self.depth, "dense": self.dense, "dropout": self.dropout}
        return Weave(features, self.modules, tasks=tasks, **sizes)


def fit(
    graphs: Sequence[Graph],
    labels: Tensor | np.ndarray | Sequence[float],
    *,
    task: Task = "classification",
    seed: int = 0,
    device: str | torch.device = "cpu",
    valid: tuple[Sequence[Graph], Tensor | np.ndarray | Sequence[float]] | None = None,
    make: Maker | None = None,
    **settings: Any,
) -> Any:
    """Train a network on any labels.

    Args:
        graphs: molecules to learn from, all with the same set of features, which is then the network's.
        labels: (M,) or (M, tasks): 0 and 1, or numbers.
        task: whether the labels are classes or values; values are standardised, and the network gives them in their own unit.
        seed: of the weights and the order.
        device: where to train, and where the network stays.
        valid: molecules and labels on which the best epoch is chosen (by ROC-AUC, or the squared error); else the last.
        make: another network than a Weave network.
        settings: of :class:`Settings`, such as ``modules=2, hidden=32, epochs=30, batch=64, rate=2e-3``.

    Returns:
        The network, in eval mode, frozen.
    """
    chosen = Settings(**{"batch": 64, "hidden": 32, "depth": 64, "dense": (128, 32), **settings, "task": task, "seed": seed})
    features: Features = next(name for name, names in ATOM_FEATURES.items() if len(names) == graphs[0].atoms.shape[1])
    judge = None
    if valid is not None:
        others, truth = Packed.of(valid[0]).to(device), _columns(valid[1])
        judge = lambda net: _quality(predict(net, others), truth.numpy(), task)  # noqa: E731
    data = Packed.of(graphs).to(device)
    return train(data, _columns(labels), torch.arange(len(graphs)), features, chosen, judge, make)


def train(
    data: Packed,
    labels: Tensor,
    rows: Tensor,
    features: Features,
    settings: Settings,
    judge: Judge | None = None,
    make: Maker | None = None,
) -> Any:
    """A network that learnt some rows of the data, as it was after the epoch that the judge liked best.

    Args:
        data: on the device to train on.
        labels: (M, tasks).
        rows: which molecules to learn from.
        features: of the data.
        settings: all else.
        judge: the higher, the better; asked after each epoch of the second half.
        make: another network than a Weave network.
    """
    torch.manual_seed(settings.seed)
    device, tasks = data.atoms.device, labels.shape[1]
    net = make(data.atoms.shape[1], data.pairs.shape[1], tasks) if make else settings.fresh(features, tasks)
    net = net.to(device).train()
    aim = Aim.of(labels[rows], settings).to(device)
    steps = settings.epochs * -(-len(rows) // settings.batch)
    optimizer = torch.optim.AdamW(net.parameters(), settings.rate, weight_decay=settings.decay, fused=device.type == "cuda")
    shape = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: _shape(k / steps))
    on_device, best, kept = labels.to(device), -math.inf, None
    for epoch in range(settings.epochs):
        settle(net, fixed=epoch >= settings.moving * settings.epochs)
        for chosen in batches(data.atom_counts, rows, settings.batch, alike=settings.alike):
            batch = data.batch(chosen)
            loss = aim.loss(net(*batch.tensors), on_device[chosen.to(device)])
            loss = loss + settings.neutral * (nothing(net, batch) - aim.neutral).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shape.step()
        if judge is not None and 2 * (epoch + 1) >= settings.epochs:
            found = judge(net.eval())
            if found > best:
                best, kept = found, copy.deepcopy(net.state_dict())
    if kept is not None:
        net.load_state_dict(kept)
    aim.unscale(net)
    return net.eval().requires_grad_(False)


@dataclass(frozen=True, eq=False)
class Aim:
    """What the raw outputs are held to: weighted logits, or standardised values.

    Attributes:
        task: which of the two.
        weight: (tasks,) how much more an active counts than an inactive.
        mean: (tasks,) of the values.
        scale: (tasks,) of the values.
        neutral: (tasks,) what is said of the molecule of zeros: the prior.
    """

    task: Task
    weight: Tensor
    mean: Tensor
    scale: Tensor
    neutral: Tensor

    @staticmethod
    def of(labels: Tensor, settings: Settings) -> Aim:
        """From the labels of training."""
        mean, scale = labels.mean(0), labels.std(0).clamp_min(1e-8)
        if settings.task == "regression":
            return Aim("regression", torch.ones_like(mean), mean, scale, torch.zeros_like(mean))
        prior = mean.clamp(1e-4, 1 - 1e-4)
        weight = ((1 - prior) / prior) ** settings.balance
        return Aim("classification", weight, mean, scale, torch.logit(prior) + weight.log())

    def to(self, device: torch.device) -> Aim:
        """On a device."""
        return Aim(self.task, *(value.to(device) for value in (self.weight, self.mean, self.scale, self.neutral)))

    def loss(self, out: Tensor, labels: Tensor) -> Tensor:
        """Of raw outputs, (B, tasks)."""
        if self.task == "regression":
            return F.mse_loss(out, (labels - self.mean) / self.scale)
        weights = torch.where(labels > 0.5, self.weight, 1.0)
        return (F.binary_cross_entropy_with_logits(out, labels, reduction="none") * weights).sum() / weights.sum()

    @torch.no_grad()
    def unscale(self, net: Any) -> None:
        """Let the network give values in their own unit, or logits at the frequency of the actives."""
        last: torch.nn.Linear = net.head[-1]
        if self.task == "regression":
            last.weight *= self.scale[:, None]
            last.bias.mul_(self.scale).add_(self.mean)
        else:
            last.bias -= self.weight.log()


def settle(net: torch.nn.Module, *, fixed: bool) -> None:
    """Train mode, later on with the statistics of the norms fixed.

    Batches hold molecules of one size, whose statistics are not those of all molecules: the network has to get used to
    the ones that it will be used with.
    """
    net.train()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm1d | MaskedNorm):
            module.train(not fixed)


def nothing(net: torch.nn.Module, batch: Batch) -> Tensor:
    """What the network says of some molecules with all features zero, the baseline of attributions: (rows, tasks)."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()  # statistics of zeros are not those of molecules
    some = (tensor[:NEUTRAL_ROWS] for tensor in (batch.atoms * 0, batch.pairs * 0, *batch.tensors[2:]))
    out: Tensor = net(*some)
    for module, mode in modes:
        module.training = mode
    return out


def batches(counts: Tensor, rows: Tensor, batch: int, *, alike: bool = True) -> list[Tensor]:
    """All rows in a random order, with ``alike`` molecules of about the same size together, so that there is little padding."""
    order = rows[torch.randperm(len(rows))]
    if not alike:
        return [chosen for chosen in order.split(batch) if len(chosen) > 1]
    alike = [part[counts[part].argsort()] for part in order.split(batch * 20)]
    cut = [chosen for part in alike for chosen in part.split(batch)]
    return [cut[i] for i in torch.randperm(len(cut)).tolist() if len(cut[i]) > 1]  # batch-norm needs two


@torch.no_grad()
def predict(net: torch.nn.Module, data: Packed, rows: Tensor | None = None, batch: int = 2048) -> np.ndarray:
    """What the network, in eval mode, says of some molecules: (rows, tasks)."""
    chosen = torch.arange(len(data)) if rows is None else rows
    order = data.atom_counts[chosen].argsort()
    found = torch.cat([net(*data.batch(chosen[part]).tensors).float().cpu() for part in order.split(batch)])
    out = torch.empty_like(found)
    out[order] = found
    return out.numpy()


def roc_auc(score: np.ndarray, label: np.ndarray) -> float:
    """The chance that an active scores above an inactive; ties count half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    actives = label > 0.5
    n = int(actives.sum())
    return float((rank[actives].sum() - n * (n + 1) / 2) / (n * (len(label) - n)))


def average_precision(score: np.ndarray, label: np.ndarray) -> float:
    """The area under the precision-recall curve as a sum of steps, one per different score."""
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(label[order] > 0.5)
    last = np.append(np.diff(score[order]) != 0, True)  # of each run of equal scores
    precision = hits[last] / (np.flatnonzero(last) + 1)
    return float((precision * np.diff(hits[last], prepend=0)).sum() / hits[-1])


def _quality(found: np.ndarray, truth: np.ndarray, task: Task) -> float:
    if task == "regression":
        return -float(np.square((found - truth) / truth.std(0)).mean())
    return float(np.mean([roc_auc(found[:, i], truth[:, i]) for i in range(truth.shape[1])]))


def _columns(labels: Tensor | np.ndarray | Sequence[float]) -> Tensor:
    return torch.as_tensor(np.asarray(labels), dtype=torch.float32).reshape(len(labels), -1)


def _shape(share: float) -> float:
    """Of the rate: up in the first twentieth, then down as a cosine."""
    return min(1.0, 20 * share + 0.01) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
