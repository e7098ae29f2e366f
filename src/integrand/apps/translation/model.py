"""The translator: translates English to German, and attributes each piece of the translation to the pieces before it.

The baseline is the paper's: zero embeddings, except for the markers at start and end. The translation so far is an input like
the text, so that the probability of each output piece is accounted for in full.
"""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from ...api import integrated_gradients
from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import InputError, IntegrandWarning, MissingExtraError, OptionError, warn
from ...functions.target import ReadOut, Score
from ...render.notebook import ResultList
from ...words import first_line
from ..text.encoding import SEPARATOR, Pieces, check_options, check_texts, listed, trimmed
from ..text.result import Generated
from .result import Alignment, AskedTranslation
from .seq2seq import END, SPECIAL, START, UNKNOWN, Memory, Seq2Seq, load_pieces, search
from .seq2seq import load as load_network

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

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


@dataclass(frozen=True)
class _Words:
    """The score that all pieces of a word come out, one after the other; a number for each row.

    Attributes:
        network: what gives the logits.
        places: (words, longest) where each piece of a word is read; 0 behind the last.
        ids: (words, longest) the pieces themselves.
        real: (words, longest) which of them there are.
        score: ``probability``, the product of the pieces'; ``log-probability``, their sum; or the sum of ``logit``.
    """

    network: _NextPiece
    places: Tensor
    ids: Tensor
    real: Tensor
    score: Score

    @staticmethod
    def of(network: _NextPiece, runs: Sequence[range], ids: Sequence[int], score: Score) -> _Words:
        """The scores of words, given the outputs of each word and the ids of all outputs."""
        longest = max(map(len, runs))
        rows = [[*run, *[run[0]] * (longest - len(run))] for run in runs]
        places = torch.tensor(rows)
        real = torch.tensor([[k < len(run) for k in range(longest)] for run in runs])
        return _Words(network, places, torch.tensor(list(ids))[places], real, score)

    def __call__(self, made: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
        """The score of each row's word, (N,), from what the network makes of each row."""
        high, states = made
        places, ids, real = (part[rows.cpu()].to(high.device) for part in (self.places, self.ids, self.real))
        here = high[torch.arange(len(high), device=high.device)[:, None], places]
        logits = self.network.network.answer(Memory(states, None), here)[0]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        each = (logits if self.score == "logit" else logits.log_softmax(-1)).gather(-1, ids[..., None])[..., 0]
        total = each.masked_fill(~real, 0.0).sum(1)
        return total.exp() if self.score == "probability" else total


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

    together: ClassVar[int] = 1
    """Texts that are explained in one call where there are many: the words of one are a batch of their own."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that a translation depends on beside the text, for the fingerprint of a table."""
        return {"network": self.network, "pieces": "" if self.pieces is None else self.pieces.to_str().encode()}

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

    @overload
    def explain(
        self,
        text: str,
        target: str | None = None,
        *,
        score: Score = "probability",
        tol: float = 0.02,
        beam: int = 5,
        words: bool = False,
        **options: Any,
    ) -> Alignment: ...
    @overload
    def explain(
        self,
        text: Sequence[str],
        target: None = None,
        *,
        score: Score = "probability",
        tol: float = 0.02,
        beam: int = 5,
        words: bool = False,
        **options: Any,
    ) -> list[Alignment]: ...
    def explain(
        self,
        text: str | Sequence[str],
        target: str | None = None,
        *,
        score: Score = "probability",
        tol: float = 0.02,
        beam: int = 5,
        words: bool = False,
        **options: Any,
    ) -> Alignment | list[Alignment]:
        """Attribute each piece, or word, of the translation to those of the text and of the translation before it.

        Args:
            text: in English; or several texts, which are explained one after the other.
            target: the translation to explain, of one text; None for what the translator says.
            score: ``probability`` of each output given what comes before it, its ``log-probability``, or its ``logit``. A
                word's probability is the product of its pieces'; of logits it has the sum.
            tol: the relative error over the pieces to integrate to, for each output piece.
            beam: the width of the beam search, where no target is given.
            words: whether to explain whole words instead of pieces: the score of a word is then one score, that all of its
                pieces come out, and is integrated as one. :meth:`Alignment.words` adds up the pieces' scores instead.
            options: further ones of :func:`integrand.integrated_gradients`: ``steps``, ``rule``, ``max_evaluations``,
                ``memory``, ``chunk``, ``progress``.
        """
        if not isinstance(text, str):
            if target is not None:
                raise OptionError("got target= for several texts; expected it for one. Explain them one by one.")
            how: dict[str, Any] = {"score": score, "tol": tol, "beam": beam, "words": words, **options}
            return ResultList(self.explain(one, **how) for one in listed(text))
        check_options(options)
        ids = self._ids(text)
        if target is None:
            said = self._search(ids, beam)
            if not said:
                raise InputError(f"the translator says nothing to {text!r}; expected a translation. Pass one as target=.")
        else:
            check_texts([target], None)
            said = self.pieces.encode(target).ids[1:-1]
        notes = [self._unknown(text, "text"), self._unknown(target or "", "translation")]
        for note in filter(None, notes):
            warn(note, IntegrandWarning)
        matrix, translation = self._blank(text, ids, said, score)
        runs, starts = matrix.word_runs() if words else ([range(i, i + 1) for i in range(len(matrix))], None)
        result = self.attribution(ids, said, score=score, tol=tol, runs=runs, starts=starts, **options)
        assert isinstance(result.values, Tensor)
        values = result.values.double().cpu().numpy().astype(np.float64)
        matrix = replace(matrix, inputs=replace(matrix.inputs, notes=tuple(filter(None, notes))))
        errors = result.sums(torch.arange(values.shape[1])).errors.double().cpu().numpy().astype(np.float64)
        summed = tuple(len(run) for run in runs) if score == "logit" else ()
        matrix = matrix.by_words(values, result.certificate, summed=summed) if words else replace(matrix, values=values)
        matrix = replace(matrix, errors=errors)
        named = (
            replace(one, target=f"{name.strip() or name!r} ({score if several == 1 else f'sum of {several} logits'})")
            for one, name, several in zip(result.certificate, matrix.outputs, summed or [1] * len(matrix), strict=True)
        )
        whole = replace(matrix, certificate=replace(result.certificate, examples=tuple(named)))
        kept: dict[str, Any] = {"score": score, "beam": beam, "words": words} | {
            name: value for name, value in options.items() if name not in ("steps", "rule")
        }
        asked = AskedTranslation(tol, lambda other: self.explain(text, target, tol=other, **kept))
        return Alignment(text, translation, whole, asked=asked)

    def inquiry(self, text: str, *, output: int = 0) -> Inquiry:
        """What is asked about one piece of a translation, for other methods and baselines: its logit, piece by piece.

        Args:
            text: in English.
            output: which piece of the translation, from 0 on.
        """
        from ...analysis.inquiry import Inquiry

        ids = self._ids(text)
        said = self._search(ids, 5)
        if not 0 <= output < len(said):
            raise OptionError(f"got output={output}; the translation has {len(said)} pieces, numbered from 0 on.")
        inputs, _, spelled = self._inputs(text, said)
        with torch.no_grad():
            x, y = (self.network.embed(torch.tensor([one], device=self.device)) for one in (ids, [START, *said[:output]]))
        start, prefix = torch.zeros_like(x), torch.zeros_like(y)
        start[0, [0, -1]], prefix[0, 0] = x[0, [0, -1]], y[0, 0]
        mean = self.network.embed(torch.arange(END + 1, self.pieces.get_vocab_size(), device=self.device)[None]).mean(1)
        usual = (start.clone(), prefix.clone())
        usual[0][0, 1:-1], usual[1][0, 1:] = mean[0], mean[0]
        count = x.shape[1] + y.shape[1]
        columns = torch.arange(count, device=self.device)[:, None]
        piece, place = said[output], output

        def score(source: Tensor, prefix: Tensor) -> Tensor:
            network = _NextPiece(self.network)
            return network.logits(network(source, prefix), torch.full((len(source),), place))

        return Inquiry(
            score,
            (x, y),
            (start, prefix),
            {"target": piece, "groups": (columns[: x.shape[1]], columns[x.shape[1] :]), "batched": True},
            spelled[output].strip(),
            features=tuple(inputs.texts[:count]),
            candidates={"zero": (start, prefix), "mean piece": usual},
            classes=lambda index: str(self.pieces.id_to_token(index)).replace(MARK, " ").strip(),
        )

    def _blank(self, text: str, ids: Sequence[int], said: Sequence[int], score: Score) -> tuple[Generated, str]:
        """What the matrix of a translation has by pieces, before it is integrated; and the translation as text."""
        inputs, translation, spelled = self._inputs(text, said)
        outputs = (*inputs.texts[-len(said) :], SPECIAL[END])
        matrix = Generated(
            inputs=inputs,
            outputs=outputs,
            spelled=(*spelled, SPECIAL[END]),
            values=np.zeros((len(outputs), len(inputs.texts))),
            reach=tuple(len(ids) + 1 + i for i in range(len(outputs))),
            prompt=len(ids),
            probabilities=tuple(self._probabilities(ids, said)),
            certificate=Certificate(()),
            meta={"model": "LSTM encoder-decoder with attention", "weights": self.source}
            | {"baseline": "zero embeddings, except the markers at start and end", "score": score},
        )
        return matrix, translation

    def attribution(
        self,
        source: Sequence[int],
        said: Sequence[int],
        *,
        score: Score = "probability",
        tol: float = 0.02,
        runs: Sequence[range] | None = None,
        starts: Sequence[int] | None = None,
        **options: Any,
    ) -> Attribution:
        """Integrated gradients of every output, computed as the rows of one batch.

        Args:
            source: pieces of the text, S with markers.
            said: pieces of the translation, T without markers.
            score: as in :meth:`explain`.
            tol: as in :meth:`explain`.
            runs: the output pieces of each row, whose scores are one; each piece on its own if not given.
            starts: the first input piece of each column; each piece on its own if not given.
            options: as in :meth:`explain`.

        Returns:
            Values of shape (T + 1, S + 1 + T), or with words fewer: a row for each output, the end marker included; a column
            for each piece of the text, then the decoder's start marker and the translation. Row i is exactly zero behind
            column S + i.
        """
        with torch.no_grad():
            x, y = (self.network.embed(torch.tensor([ids], device=self.device)) for ids in (source, [START, *said]))
        start, prefix = torch.zeros_like(x[0]), torch.zeros_like(y[0])
        start[[0, -1]], prefix[0] = x[0, [0, -1]], y[0, 0]
        network, ids = _NextPiece(self.network), [*said, END]
        whole = runs is not None and any(len(run) > 1 for run in runs)
        target = ReadOut(_Words.of(network, runs or [], ids, score)) if whole else ReadOut(network.logits, ids)
        places = torch.arange(x.shape[1] + y.shape[1], device=self.device)
        if starts is not None:
            places = torch.searchsorted(torch.tensor(starts, device=self.device), places, right=True) - 1
        rows, columns = len(runs) if runs else len(ids), places[:, None]
        return integrated_gradients(
            network,
            (x.expand(rows, -1, -1), y.expand(rows, -1, -1)),
            (start, prefix),
            target=target,
            score="logit" if whole else score,
            tol=tol,
            batched=True,
            groups=(columns[: x.shape[1]].expand_as(start), columns[x.shape[1] :].expand_as(prefix)),
            **{"progress": False} | options,
        )

    def _unknown(self, text: str, what: str) -> str:
        """Which characters the vocabulary lacks, for which the network reads one placeholder, in a sentence; '' for none."""
        encoded = self.pieces.encode(text)
        spans = [span for span, piece in zip(encoded.offsets, encoded.ids, strict=True) if piece == UNKNOWN]
        said = dict.fromkeys(text[slice(*trimmed(text, *span))] for span in spans)
        lost = [signs for signs in said if any(unicodedata.category(sign) in TELLING for sign in signs)]
        if not lost:
            return ""
        return (
            f"the translator does not know {', '.join(map(repr, lost))} in the {what}, which becomes {SPECIAL[UNKNOWN]}; "
            "expected English, and German out, in Latin letters."
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
