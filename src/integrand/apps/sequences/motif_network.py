"""The network that is shipped: does a stretch of DNA hold an AP-1 site with a GATA1 site close by?

It is small and of the usual kind: convolutions over one-hot letters, pooling, convolutions over what was found, the maximum
over places. Its training set is made by a script, so that it is known which letters matter.
"""

from __future__ import annotations

from torch import Tensor, nn


class MotifNetwork(nn.Module):
    """One logit from one-hot DNA, (N, 4, L) to (N, 1), for any L of at least 60 letters.

    Args:
        filters: of each of the two layers of convolutions.
        width: letters that a filter of the first layer sees.
        pool: places of the first layer of which the strongest goes on.
        reach: pooled places that a filter of the second layer sees: 44 letters with those of the first layer's edges.
        hidden: units between the maximum over all places and the logit.
        dropout: the share of features left out in training.
    """

    def __init__(
        self, *, filters: int = 64, width: int = 15, pool: int = 4, reach: int = 9, hidden: int = 32, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.motifs = nn.Conv1d(4, filters, width, padding=width // 2)
        self.pool = nn.MaxPool1d(pool)
        self.pairs = nn.Conv1d(filters, filters, reach, padding=reach // 2)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(filters, hidden)
        self.logit = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The logit that the pair is there, (N, 1), from (N, 4, L)."""
        found = self.pool(self.motifs(x).relu())
        pairs = self.pairs(self.dropout(found)).relu().amax(2)
        out: Tensor = self.logit(self.hidden(self.dropout(pairs)).relu())
        return out
