"""A real example that needs no code: Zachary's karate club, and a graph convolutional network that tells its two sides apart.

In 1977 Zachary described how 34 members of a karate club split into two, one with the instructor (Mr. Hi) and one with the
club's officer. The weight of an edge is the number of contexts in which two members met outside of the club. The network
knows the side of these two only, and who met whom; see the model card, ``karate.md`` in the distribution ``integrand-models``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import FileError
from ...files import read_bytes
from ...loading import shipped
from ...tensor_files import read_safetensors
from .graph_files import StoredGraph, parsed_graph
from .graph_inputs import geometric

CLASSES = ("Mr. Hi", "Officer")
HIDDEN = 8
PURPOSE = "explaining the karate club"


class KarateNetwork(nn.Module):
    """Two graph convolutions (Kipf and Welling 2017) with edge weights: which side each member is on.

    Args:
        members: how many there are; each has one feature, its identity.
        hidden: the width between the two.
    """

    def __init__(self, members: int = 34, hidden: int = HIDDEN) -> None:
        super().__init__()
        layers = geometric("nn")
        self.first = layers.GCNConv(members, hidden)
        self.second = layers.GCNConv(hidden, len(CLASSES))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, (members, 2)."""
        hidden = torch.tanh(self.first(x, edge_index, edge_weight))
        out: Tensor = self.second(hidden, edge_index, edge_weight)
        return out


@cache
def _held() -> Any:
    raw = read_bytes(shipped("karate.json", PURPOSE, extra="graphs"), what="the karate club", most=1 << 20)
    return json.loads(raw)


def karate_club() -> StoredGraph:
    """The club as a graph: features are identities, ``edge_weight`` how many contexts two members met in."""
    return replace(parsed_graph(_held(), "karate.json"), notes=())  # identities are meant


def karate_network() -> KarateNetwork:
    """The trained network, in eval mode."""
    network = KarateNetwork()
    file = shipped("karate.safetensors", PURPOSE, extra="graphs")
    state, _ = read_safetensors(file, what="the karate club's network")
    try:
        network.load_state_dict(state)
    except RuntimeError:
        raise FileError(
            f"{file.name} of the installed integrand-models is not the network of this integrand; expected a version that "
            "belongs to it. Install it with: pip install --upgrade 'integrand[graphs]'"
        ) from None
    return network.eval().requires_grad_(False)
