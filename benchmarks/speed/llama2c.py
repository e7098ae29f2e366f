"""Models and vocabularies of llama2.c: https://github.com/karpathy/llama2.c."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]


def weights(data: bytes) -> tuple[tuple[int, ...], Arrays]:
    """Sizes (width, hidden, layers, heads, key-value heads, vocabulary, length) and weights by Hugging Face's names.

    llama2.c turns neighbouring numbers of a head into each other, Hugging Face those half a head apart: rows of the query
    and key matrices change places.
    """
    dim, hidden, layers, heads, groups, vocabulary, _ = sizes = struct.unpack("7i", data[:28])
    if vocabulary < 0:
        raise ValueError("expected a model whose output matrix is its table of embeddings")
    numbers, at = np.frombuffer(data, dtype="<f4", offset=28), 0

    def take(*shape: int) -> np.ndarray[Any, Any]:
        nonlocal at
        at += int(np.prod(shape))
        return numbers[at - int(np.prod(shape)) : at].reshape(shape).copy()

    def turned(matrix: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        rows = len(matrix)
        return matrix.reshape(count, rows // count // 2, 2, dim).swapaxes(1, 2).reshape(rows, dim)

    narrow = dim * groups // heads
    out = {"model.embed_tokens.weight": take(vocabulary, dim)}
    parts = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (dim, dim),
        "self_attn.k_proj": (narrow, dim),
        "self_attn.v_proj": (narrow, dim),
        "self_attn.o_proj": (dim, dim),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (hidden, dim),
        "mlp.down_proj": (dim, hidden),
        "mlp.up_proj": (hidden, dim),
    }
    for name, shape in parts.items():
        for layer, found in enumerate(take(layers, *shape)):
            if name.endswith(("q_proj", "k_proj")):
                found = turned(found, heads if name.endswith("q_proj") else groups)
            out[f"model.layers.{layer}.{name}.weight"] = found
    out["model.norm.weight"] = take(dim)
    return sizes, out


class Words:
    """A vocabulary of byte pairs.

    Args:
        data: of the file.
        size: tokens.
    """

    def __init__(self, data: bytes, size: int) -> None:
        at, self.scores, self.ids = 4, [], {}
        for number in range(size):
            score, length = struct.unpack_from("<fi", data, at)
            word = data[at + 8 : at + 8 + length]
            at += 8 + length
            self.scores.append(score)
            self.ids.setdefault(word, number)
        self.words = {number: word for word, number in self.ids.items()}

    def encode(self, text: str) -> list[int]:
        """Token numbers, after that of the beginning: single characters, then the best pair joined until there is none."""
        found: list[int] = []
        for character in " " + text:
            letter = character.encode()
            found += [self.ids[letter]] if letter in self.ids else [byte + 3 for byte in letter]
        while True:
            joined = [self.ids.get(self.words[a] + self.words[b]) for a, b in pairwise(found)]
            best = max(
                (i for i, one in enumerate(joined) if one is not None), key=lambda i: self.scores[joined[i]], default=None
            )
            if best is None:
                return [1, *found]
            found[best : best + 2] = [joined[best]]
