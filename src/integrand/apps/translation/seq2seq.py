"""The translator's network: LSTM encoder, LSTM decoder, attention between them, over word pieces.

The shape is that of the paper's translation network, made small. Attention looks from the decoder's lower layer, and what it
finds goes into the upper layer; a second attention looks from there, and what it finds goes into the answer. So no layer
waits for the answer of an earlier position, and with the target given all positions are computed in one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...errors import FileError, MissingExtraError
from ...files import read_bytes
from ...loading import read_state, shipped
from ...tensor_files import shapes_without_memory
from ...words import first_line

WEIGHTS = "translation.safetensors"
PIECES = "translation.json"
"""The translator's files in the distribution ``integrand-models``."""

VOCABULARY_BYTES = 64 << 20
"""The most bytes of a vocabulary."""

PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
"""The special pieces at the start of the vocabulary: padding, unknown, start and end."""

State = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
"""The hidden and cell states of the decoder's two layers."""


@dataclass(frozen=True)
class Memory:
    """The encoder's states, which the decoder attends to.

    Attributes:
        states: (N, S, hidden).
        blocked: (N, S), True at padding; None where there is none.
    """

    states: Tensor
    blocked: Tensor | None

    def rows(self, index: Tensor) -> Memory:
        """The memory of the given rows of the batch."""
        return Memory(self.states[index], None if self.blocked is None else self.blocked[index])


class Attention(nn.Module):
    """Attention with Luong's "general" score: the softmax-weighted mean of the encoder's states."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(size, size, bias=False)
        self.scale = size**-0.5

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Compute the context (N, T, hidden) and the attention weights (N, T, S) of queries (N, T, hidden)."""
        score = (self.project(query) * self.scale) @ memory.states.transpose(1, 2)
        if memory.blocked is not None:
            score = score.masked_fill(memory.blocked[:, None], float("-inf"))
        weights = score.softmax(-1)
        return weights @ memory.states, weights


class Seq2Seq(nn.Module):
    """The network: from source pieces and a target prefix to the logits of the next piece at every position.

    Args:
        vocabulary: number of pieces, shared by both languages and by the output.
        embedding: size of a piece's vector.
        hidden: size of the decoder's layers, and of the encoder's two directions together.
        dropout: the share of embeddings and layer outputs dropped while training.
    """

    def __init__(self, *, vocabulary: int = 8000, embedding: int = 256, hidden: int = 496, dropout: float = 0.0) -> None:
        super().__init__()
        self.pieces = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.LSTM(embedding, hidden // 2, 2, batch_first=True, bidirectional=True, dropout=dropout)
        self.lower = nn.LSTM(embedding, hidden, batch_first=True)
        self.look = Attention(hidden)
        self.upper = nn.LSTM(2 * hidden, hidden, batch_first=True)
        self.look_again = Attention(hidden)
        self.readout = nn.Linear(2 * hidden, embedding)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.pieces.weight, std=embedding**-0.5)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed piece numbers, (N, L) to (N, L, embedding); attributions are made to these vectors."""
        vectors: Tensor = self.pieces(ids)
        return vectors * math.sqrt(self.pieces.embedding_dim)

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Memory:
        """Encode the source, given as numbers (N, S) or vectors (N, S, embedding).

        Args:
            source: with the markers at both ends, padded at the right.
            lengths: (N,) on the CPU, how much of each row is not padding; None for all.
        """
        x = self.dropout(source if source.is_floating_point() else self.embed(source))
        if lengths is None:
            return Memory(self.dropout(self.encoder(x)[0]), None)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=x.shape[1])
        place = torch.arange(x.shape[1], device=x.device)
        return Memory(self.dropout(states), place >= lengths.to(x.device)[:, None])

    def decode(self, memory: Memory, prefix: Tensor, state: State | None = None) -> tuple[Tensor, State, Tensor]:
        """Decode a prefix, given as numbers (N, T) or vectors (N, T, embedding), from the decoder's state before it.

        Args:
            memory: from ``encode``.
            prefix: what the decoder is given.
            state: after what came before the prefix.

        Returns:
            The logits (N, T, vocabulary), the state after the prefix, and the weights (N, T, S) of the second attention.
        """
        high, after = self.follow(memory, prefix, state)
        logits, weights = self.answer(memory, high)
        return logits, after, weights

    def follow(self, memory: Memory, prefix: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The upper layer's output at each position of the prefix, (N, T, hidden), and the state after it; see ``decode``."""
        y = self.dropout(prefix if prefix.is_floating_point() else self.embed(prefix))
        low, lower = self.lower(y, None if state is None else state[0])
        low = self.dropout(low)
        found, _ = self.look(low, memory)
        high, upper = self.upper(torch.cat([low, found], -1), None if state is None else state[1])
        return self.dropout(high), (lower, upper)

    def answer(self, memory: Memory, high: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, T, vocabulary) and attention weights (N, T, S) from outputs of ``follow``, (N, T, hidden)."""
        found, weights = self.look_again(high, memory)
        features = self.dropout(self.readout(torch.cat([high, found], -1)).tanh())
        return features @ self.pieces.weight.T + self.bias, weights

    def forward(self, source: Tensor, prefix: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits (N, T, vocabulary) of the piece after each position of the prefix.

        Args:
            source: (N, S) numbers, or (N, S, embedding) vectors as from ``embed``.
            prefix: (N, T) numbers or (N, T, embedding) vectors; the start marker, then the target without its end marker.
            lengths: the lengths of the source's rows, see ``encode``.
        """
        return self.decode(self.encode(source, lengths), prefix)[0]


def load(weights: str | PathLike[str] | None = None) -> Seq2Seq:
    """Load the network in eval mode, float32, on the CPU; its sizes are read off the weights, by default the shipped ones."""
    weights = shipped(WEIGHTS, "translating") if weights is None else weights
    state = {name: tensor.float() for name, tensor in read_state(weights).items()}
    try:
        (vocabulary, embedding), hidden = state["pieces.weight"].shape, len(state["look.project.weight"])
        sizes = {"vocabulary": vocabulary, "embedding": embedding, "hidden": hidden}
        if shapes_without_memory(lambda: Seq2Seq(**sizes)) != {name: tensor.shape for name, tensor in state.items()}:
            raise ValueError("their shapes do not belong together")
        model = Seq2Seq(**sizes)
        model.load_state_dict(state)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FileError(f"got {str(weights)!r}, which holds other weights than the translator's: {error}") from None
    return model.eval()


def load_pieces(path: str | PathLike[str] | None = None) -> Any:
    """Load the vocabulary (by default the shipped one) as a ``tokenizers.Tokenizer``: ``encode(text).ids``, ``decode(ids)``."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", "models", "translating") from None
    path = shipped(PIECES, "translating") if path is None else path
    if not Path(path).exists():
        raise FileError(f"there is no file {str(path)!r}. Give the vocabulary that belongs to the weights.")
    data = read_bytes(Path(path), what="a vocabulary", most=VOCABULARY_BYTES)
    try:
        return Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # tokenizers raises plain Exceptions
        said = first_line(error)
        raise FileError(f"{str(path)!r} holds no vocabulary ({said}); give that which belongs to the weights.") from error


@torch.no_grad()
def search(
    model: Seq2Seq, source: Tensor, lengths: Tensor | None = None, *, beam: int = 5, limit: int = 100
) -> list[list[int]]:
    """The most likely targets found by beam search, ranked by mean log-probability per piece.

    Args:
        model: in eval mode.
        source: (N, S) piece numbers with markers.
        lengths: the lengths of the source's rows, on the CPU, see ``Seq2Seq.encode``.
        beam: how many prefixes are kept; 1 is greedy search.
        limit: the longest target, in pieces.

    Returns:
        One list of piece numbers per row, without markers.
    """
    n, device = len(source), source.device
    start = torch.arange(n, device=device)[:, None] * beam
    memory = model.encode(source, lengths).rows(torch.arange(n, device=device).repeat_interleave(beam))
    total = torch.full((n, beam), float("-inf"), device=device)
    total[:, 0] = 0.0  # all beams begin alike: only one may branch at first
    done = torch.zeros(n, beam, dtype=torch.bool, device=device)
    size = torch.zeros(n, beam, device=device)
    prefix = torch.full((n * beam, 1), START, device=device)
    state: State | None = None
    for _ in range(limit):
        logits, state, _ = model.decode(memory, prefix[:, -1:], state)
        step = logits[:, 0].float().log_softmax(-1).view(n, beam, -1)
        step[..., [PAD, UNKNOWN, START]] = float("-inf")
        step = step.masked_fill(done[..., None], float("-inf"))
        step[..., PAD] = step[..., PAD].masked_fill(done, 0.0)  # what is finished stays as it is
        sums, sizes = total[..., None] + step, (size + ~done)[..., None]
        _, best = (sums / sizes).flatten(1).topk(beam)
        parent, piece = best // step.shape[-1], best % step.shape[-1]
        total, size = sums.flatten(1).gather(1, best), sizes[..., 0].gather(1, parent)
        rows = (start + parent).flatten()
        prefix = torch.cat([prefix[rows], piece.view(-1, 1)], 1)
        state = _rows(state, rows)
        done = done.gather(1, parent) | (piece == END)
        if done.all():
            break
    mean = (total / size).masked_fill(~done & done.any(1, keepdim=True), float("-inf"))
    chosen = prefix[(start[:, 0] + mean.argmax(1))][:, 1:]
    return [[piece for piece in row if piece not in (PAD, END)] for row in chosen.tolist()]


def _rows(state: State, rows: Tensor) -> State:
    (a, b), (c, d) = state
    return (a[:, rows], b[:, rows]), (c[:, rows], d[:, rows])
