"""A plain message-passing network on atoms and bonds, to stand beside the Weave networks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from integrand.apps.molecules.molgraph import PAIR_FEATURES, Graph

NAMES = PAIR_FEATURES["full"]
BONDED = NAMES.index("distance <= 1")
KEPT = [column for column, name in enumerate(NAMES) if not name.startswith("distance")]
"""The features of bonds: their kind, and whether a ring holds them."""

ATOMS = 16.0
"""What sums over atoms are divided by, for all molecules alike."""


def bonds_only(graphs: Sequence[Graph]) -> list[Graph]:
    """The same molecules with bonds as their only pairs, and without the features that say how far apart atoms are."""
    return [_bonds(one) for one in graphs]


def _bonds(one: Graph) -> Graph:
    near = one.pairs[:, BONDED] > 0.5
    return replace(one, pairs=one.pairs[near][:, KEPT], ends=one.ends[near], bond=one.bond[near])


class MessagePassing(nn.Module):
    """Rounds of messages along bonds, a sum over atoms, dense layers.

    A message to an atom is a ReLU layer of its neighbour's state and the bond's features; the new state is the old one plus a
    ReLU layer of the old one and the sum of messages. There is no norm; the sum over atoms is divided by a constant, so that
    dense layers get numbers of about one.

    Args:
        atoms: features of atoms.
        bonds: features of bonds.
        hidden: the width of states and messages.
        rounds: of messages.
        dense: widths of the layers on the molecule.
        dropout: behind those layers.
        tasks: how many numbers come out.
    """

    def __init__(
        self,
        atoms: int,
        bonds: int,
        *,
        hidden: int = 64,
        rounds: int = 3,
        dense: tuple[int, ...] = (64,),
        dropout: float = 0.1,
        tasks: int = 1,
    ) -> None:
        super().__init__()
        self.start = nn.Linear(atoms, hidden)
        self.messages = nn.ModuleList(nn.Linear(hidden + bonds, hidden) for _ in range(rounds))
        self.updates = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(rounds))
        widths = (hidden, *dense)
        layers = [(nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout)) for a, b in itertools.pairwise(widths)]
        self.head = nn.Sequential(*(layer for group in layers for layer in group), nn.Linear(widths[-1], tasks))

    def forward(self, atoms: Tensor, bonds: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        """(B, tasks) from (B, N, features), (B, P, features), (B, P, 2) and what is not padding, (B, N) and (B, P)."""
        state = torch.relu(self.start(atoms)) * there.unsqueeze(2)
        for message, update in zip(self.messages, self.updates, strict=True):
            heard = torch.zeros_like(state)
            for to, come in ((0, 1), (1, 0)):
                sender = state.gather(1, _wide(ends[..., come], state))
                said = torch.relu(message(torch.cat([sender, bonds], 2))) * near.unsqueeze(2)
                heard = heard.scatter_add(1, _wide(ends[..., to], state), said)
            state = (state + torch.relu(update(torch.cat([state, heard], 2)))) * there.unsqueeze(2)
        out: Tensor = self.head(state.sum(1) / ATOMS)
        return out


def _wide(places: Tensor, state: Tensor) -> Tensor:
    """(B, P) as (B, P, width)."""
    return places.unsqueeze(2).expand(-1, -1, state.shape[2])
