"""The translator: translates English to German, and attributes each piece of the translation to the pieces before it.

The baseline is the paper's: zero embeddings, except for the markers at start and end. The translation so far is an input like
the text, so that the probability of each output piece is accounted for in full.
"""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api import integrated_gradients
from ...attribution import Attribution
from ...errors import InputError, IntegrandWarning, MissingExtraError, OptionError, warn
from ...functions.target import ReadOut, Score
from ...words import first_line
from ..text.encoding import SEPARATOR, Pieces, check_options, check_texts, trimmed
from ..text.result import Generated
from .result import Alignment
from .seq2seq import END, SPECIAL, START, UNKNOWN, Memory, Seq2Seq, load_pieces, search
from .seq2seq import load as load_network

SOURCE = "integrand's own, trained on Tatoeba, a sample of WMT and phrases of our own by training/translation.py"
MARK = "▁"
"""The character that stands for the space before a word in the vocabulary."""

TELLING = ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "So")
"""Unicode categories of letters, numbers and symbols; a vocabulary may lack punctuation without losing meaning."""


@dataclass(frozen=True)
class _NextPiece:
    """The network in two parts: all output positions share the first; the second, the vocabulary's logits, runs per position.

    Attributes:
        network: the translator's.
    """

    network: Seq2Seq

    def __call__(self, source: Tensor, prefix: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's states for each position of the prefix, and the encoder's states, from embeddings of both."""
        memory = self.network.encode(source)
        return self.network.follow(memory, prefix)[0], memory.states

    def logits(self, made: tuple[Tensor, Tensor], places: Tensor) -> Tensor:
        """The logits of the piece after each of ``places`` (N,), (N, vocabulary)."""
        high, states = made
        here = high[torch.arange(len(high), device=high.device), places.to(high.device)][:, None]
        return self.network.answer(Memory(states, None), here)[0][:, 0]


@dataclass(frozen=True, eq=False)
class Translator:
    """A network that translates English to German. :func:`load` makes one.

    Attributes:
        network: from source pieces and target prefix to logits of the next piece.
        pieces: its vocabulary, a ``tokenizers.Tokenizer``.
        source: where the weights are from.
    """

    network: Seq2Seq
    pieces: Any
    source: str = SOURCE

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return self.network.pieces.weight.device

    def translate(self, text: str, *, beam: int = 5) -> str:
        """The most likely translation found by beam search.

        Args:
            text: in English.
            beam: how many beginnings are kept; 1 is greedy search.
        """
        return str(self.pieces.decode(self._search(self._ids(text), beam)))

    def explain(
        self,
        text: str,
        target: str | None = None,
        *,
        score: Score = "probability",
        tol: float = 0.02,
        beam: int = 5,
        **options: Any,
    ) -> Alignment:
        """Attribute each piece of the translation to the pieces of the text and of the translation before it.

        Args:
            text: in English.
            target: the translation to explain; None for what the translator says.
            score: ``probability`` of each output piece given what comes before it, its ``log-probability`` (those of a word's
                pieces add up to the word's) or its ``logit``.
            tol: the relative error over the pieces to integrate to, for each output piece.
            beam: the width of the beam search, where no target is given.
            options: further ones of :func:`integrand.integrated_gradients`: ``steps``, ``rule``, ``max_evaluations``,
                ``memory``, ``chunk``, ``progress``.
        """
        check_options(options)
        ids = self._ids(text)
        if target is None:
            said = self._search(ids, beam)
            if not said:
                raise InputError(f"the translator says nothing to {text!r}; expected a translation. Pass one as target=.")
        else:
            check_texts([target], None)
            said = self.pieces.encode(target).ids[1:-1]
        self._warn_unknown(text, "text")
        if target is not None:
            self._warn_unknown(target, "translation")
        result = self.attribution(ids, said, score=score, tol=tol, **options)
        inputs, translation, spelled = self._inputs(text, said)
        outputs = [*inputs.texts[-len(said) :], SPECIAL[END]]
        words = [f"{piece!r} ({score})" for piece in outputs]
        named = tuple(replace(one, target=word) for one, word in zip(result.certificate, words, strict=True))
        assert isinstance(result.values, Tensor)
        matrix = Generated(
            inputs=inputs,
            outputs=tuple(outputs),
            spelled=(*spelled, SPECIAL[END]),
            values=result.values.double().cpu().numpy().astype(np.float64),
            reach=tuple(len(ids) + 1 + i for i in range(len(outputs))),
            prompt=len(ids),
            probabilities=tuple(self._probabilities(ids, said)),
            certificate=replace(result.certificate, examples=named),
            meta={"model": "LSTM encoder-decoder with attention", "weights": self.source}
            | {"baseline": "zero embeddings, except the markers at start and end", "score": score},
        )
        return Alignment(text, translation, matrix)

    def attribution(
        self, source: Sequence[int], said: Sequence[int], *, score: Score = "probability", tol: float = 0.02, **options: Any
    ) -> Attribution:
        """Integrated gradients of every output piece, computed as the rows of one batch.

        Args:
            source: pieces of the text, S with markers.
            said: pieces of the translation, T without markers.
            score: as in :meth:`explain`.
            tol: as in :meth:`explain`.
            options: as in :meth:`explain`.

        Returns:
            Values of shape (T + 1, S + 1 + T): a row for each output, the end marker included; a column for each piece of the
            text, then the decoder's start marker and the translation. Row i is exactly zero behind column S + i.
        """
        with torch.no_grad():
            x, y = (self.network.embed(torch.tensor([ids], device=self.device)) for ids in (source, [START, *said]))
        start, prefix = torch.zeros_like(x[0]), torch.zeros_like(y[0])
        start[[0, -1]], prefix[0] = x[0, [0, -1]], y[0, 0]
        rows, columns = y.shape[1], torch.arange(x.shape[1] + y.shape[1], device=self.device)[:, None]
        network = _NextPiece(self.network)
        return integrated_gradients(
            network,
            (x.expand(rows, -1, -1), y.expand(rows, -1, -1)),
            (start, prefix),
            target=ReadOut(network.logits, [*said, END]),
            score=score,
            tol=tol,
            batched=True,
            groups=(columns[: x.shape[1]].expand_as(start), columns[x.shape[1] :].expand_as(prefix)),
            **{"progress": False} | options,
        )

    def _warn_unknown(self, text: str, what: str) -> None:
        """Warn of characters that the vocabulary lacks: the network reads one placeholder for all of them."""
        encoded = self.pieces.encode(text)
        spans = [span for span, piece in zip(encoded.offsets, encoded.ids, strict=True) if piece == UNKNOWN]
        said = dict.fromkeys(text[slice(*trimmed(text, *span))] for span in spans)
        lost = [signs for signs in said if any(unicodedata.category(sign) in TELLING for sign in signs)]
        if lost:
            warn(
                f"the translator does not know {', '.join(map(repr, lost))} in the {what}, which becomes "
                f"{SPECIAL[UNKNOWN]}; expected English, and German out, in Latin letters.",
                IntegrandWarning,
            )

    def _ids(self, text: str) -> list[int]:
        check_texts([text], None)
        return [int(i) for i in self.pieces.encode(text).ids]

    @torch.no_grad()
    def _search(self, ids: Sequence[int], beam: int) -> list[int]:
        if isinstance(beam, bool) or not isinstance(beam, int) or beam < 1:
            raise OptionError(f"got beam={beam!r}; expected a whole number from 1 on.")
        return search(self.network, torch.tensor([ids], device=self.device), beam=beam)[0]

    @torch.no_grad()
    def _probabilities(self, ids: Sequence[int], said: Sequence[int]) -> list[float]:
        """The probability of each output piece, given the pieces before it."""
        source, target = (torch.tensor([row], device=self.device) for row in (ids, [START, *said, END]))
        chances = self.network(source, target[:, :-1]).double().softmax(-1).gather(2, target[:, 1:, None])
        return [float(chance) for chance in chances[0, :, 0]]

    def _inputs(self, text: str, said: Sequence[int]) -> tuple[Pieces, str, list[str]]:
        """All input pieces as one sequence, the translation as text, and the text of each of its pieces."""
        encoded = self.pieces.encode(text)
        spans = [trimmed(text, a, b) for a, b in encoded.offsets]
        spans[-1] = (len(text), len(text))
        names = [text[a:b] or name for (a, b), name in zip(spans, encoded.tokens, strict=True)]
        whole = text + SEPARATOR
        first = len(whole)
        names.append(SPECIAL[START])
        spans.append((first, first))
        spelled = [str(self.pieces.id_to_token(i)).replace(MARK, " ") for i in said]
        for shown in spelled:
            here = len(whole)
            whole += shown.lstrip() if here == first else shown
            spans.append(trimmed(whole, here, len(whole)))
            names.append(shown.strip() or shown)
        special = [*(bool(mark) for mark in encoded.special_tokens_mask), True, *(False for _ in said)]
        parts = [-1 if mark else int(i > len(encoded.ids)) for i, mark in enumerate(special)]
        ids = (*encoded.ids, START, *said)
        pieces = Pieces(tuple(names), tuple(spans), whole, tuple(special), tuple(parts), tuple(range(len(ids))), ids)
        return pieces, whole[first:], spelled


def load(device: torch.device | str | None = None) -> Translator:
    """Load the translator onto a device, by default a GPU where torch finds one."""
    if importlib.util.find_spec("safetensors") is None:
        raise MissingExtraError("safetensors", "models", "translating")
    pieces, network = load_pieces(), load_network().requires_grad_(False)
    pieces.encode_special_tokens = True  # "</s>" in a text is no marker
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        network = network.to(torch.device(place))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what torch says to a device that it has not
        told = first_line(error)
        raise OptionError(
            f"got device {str(place)!r} ({told}); expected one that torch has here, such as cpu or cuda."
        ) from None
    return Translator(network, pieces)
