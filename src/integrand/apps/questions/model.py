"""The question classifier: Kim's network (2014), the words it reads, and the attributions of its answers to them.

The baseline is the question with all embeddings zero; a word's attribution is the sum over its embedding.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...attribution import Attribution
from ...errors import InputError, OptionError, TargetError
from ...functions.target import Score
from ...loading import shipped
from ...methods.method import Method
from ...render.notebook import ResultList
from ...schema import parsed
from ...tensor_files import read_safetensors
from ...words import first_line, shown
from ..result_widgets import method_note
from .question_files import check_length
from .result import QuestionAnswer, WordAttribution

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

ModelName = Literal["wtq", "trec"]

SOURCES = {
    "wtq": "integrand's own, trained on WikiTableQuestions (CC BY-SA 4.0) by training/questions.py",
    "trec": "integrand's own, trained on TREC-6 (MIT) by training/questions.py",
}

BATCH = 256
"""The number of questions that are explained in one batch."""

PAD, UNKNOWN = 0, 1
"""Rows of the embedding: padding, which is always zero, and words that the vocabulary does not have."""

SPECIAL = ("<pad>", "<unknown>", "<year>", "<number>")
"""The first entries of the vocabulary. Numbers that it does not have share a row, and so do years."""

TELLING = ("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "So", "Sk")
"""Unicode categories of signs that make a word: letters, emoji and other pictures."""

COMMON = 100
"""How many of the most frequent words of the training questions are looked for in a question: all but 1 in 10,000 hold one."""

_SIGN = r"\u0021-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u007e\u00a1\u00ab\u00bb\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003"
_WORDS = re.compile(
    rf"""
    ['’](?:s|ll|re|ve|d|m|t)(?![^\s{_SIGN}])   # what follows an apostrophe: piotr | 's
    | \d+(?:[.,:]\d+)+                         # numbers with signs in them
    | [^\s{_SIGN}]+(?:-[^\s{_SIGN}]+)*         # words with their hyphens; whatever is no sign is part of one, so that accents
    | [{_SIGN}]                                # and emoji stay whole
    """,
    re.VERBOSE,
)
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d")


@dataclass(frozen=True, eq=False)
class Classifier:
    """A network that classifies what a question asks for; made by :func:`load`.

    Attributes:
        name: the name of the model.
        module: from rows of the embedding, (N, L), to one number per class, (N, classes).
        vocabulary: the words that it knows.
        seen: how often each of them came in the training questions.
        classes: what it tells apart.
        source: where the weights are from.
    """

    name: str
    module: TextCNN
    vocabulary: Vocabulary
    seen: tuple[int, ...]
    classes: tuple[str, ...]
    source: str

    together: ClassVar[int] = BATCH
    """Questions that are explained in one call where there are many; see :func:`integrand.explain_many`."""

    lookahead: ClassVar[int] = 16
    """Batches that are formed of questions that are looked at together: some half a minute of work on a core, and nearly as
    little padding as if all questions of a data set were sorted by length first."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that an answer depends on beside the question, for the fingerprint of a table."""
        words = "\n".join((*self.vocabulary.words, "", *map(str, self.seen)))
        return {"model": self.name, "network": self.module, "words": words.encode(), "classes": self.classes}

    def size(self, text: str) -> float:
        """The number of words of a question, so that questions of about the same length are explained together.

        Raises:
            InputError: it has no word, or is too long to be a question.
        """
        words = _words(text)
        check_length(text, "the question")
        return float(len(words))

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return self.module.embedding.weight.device

    def ids(self, texts: Sequence[str]) -> Tensor:
        """The network's input for questions: rows of its embedding, (N, L), padded with 0 at the end."""
        return self.vocabulary.ids([_words(text) for text in _listed(texts)]).to(self.device)

    def predict(self, texts: Sequence[str] | str) -> list[QuestionAnswer]:
        """Classify each question."""
        found: list[list[float]] = []
        with torch.no_grad():
            for part in _parts(_listed(texts)):
                found += self.module(self.ids(part)).double().softmax(1).tolist()
        return [self._answer(row) for row in found]

    def _answer(self, row: Sequence[float]) -> QuestionAnswer:
        best = max(range(len(row)), key=row.__getitem__)
        return QuestionAnswer(self.classes[best], row[best], dict(zip(self.classes, row, strict=True)))

    def find(self, target: str | int) -> int:
        """The index of a class, given its name or number.

        Raises:
            TargetError: there is no such class.
        """
        text = str(target).strip().lower()
        if text in self.classes:
            return self.classes.index(text)
        if text.isdigit() and int(text) < len(self.classes):
            return int(text)
        near = difflib.get_close_matches(text, self.classes, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise TargetError(f"got the target {target!r}; expected one of {', '.join(self.classes)}.{hint}")

    def attribution(
        self,
        texts: Sequence[str] | str,
        *,
        target: str | int | Sequence[str | int] | None = None,
        score: Score = "probability",
        tol: float = 0.01,
        method: Method | None = None,
        **options: Any,
    ) -> Attribution:
        """Integrated gradients of a class from the all-zero embedding, summed over the embedding, for all questions at once.

        Args:
            texts: the questions.
            target: the class to explain, or one for each question; None is what the network says of each.
            score: ``probability`` of the class, its ``log-probability`` or its ``logit``.
            tol: the relative error over the words to integrate to.
            method: what attributes instead of integrated gradients; has a tolerance of its own, where it has one.
            options: further ones of :func:`integrand.integrated_gradients`, or of a call of the method.

        Returns:
            Values of shape (N, L): one per word, and exactly 0 for the padding, which the sums and errors of the
            certificate count too.
        """
        ids = self.ids(_listed(texts))
        mask = ids != PAD
        with torch.no_grad():
            embedded = self.module.embedding(ids)
            outputs = self._targets(target, len(ids)) if target is not None else self.module(ids).argmax(1).tolist()
        words = torch.arange(ids.shape[1], device=ids.device)[:, None]
        named: dict[str, Any] = {"target": outputs, "score": score, "tol": tol, "groups": words, "progress": False}
        asked = named | options | {"args": (mask,), "batched": True}
        if method is None:
            return integrated_gradients(self.module.head, embedded, **asked)
        return method(self.module.head, embedded, **{name: value for name, value in asked.items() if name != "tol"})

    def explain(
        self,
        texts: Sequence[str] | str,
        *,
        target: str | int | Sequence[str | int] | None = None,
        score: Score = "probability",
        tol: float = 0.01,
        batch: int = BATCH,
        **options: Any,
    ) -> list[WordAttribution]:
        """Find which words made the network answer as it does, for each question, in batches of similar length.

        Args:
            texts: the questions.
            target: as in :meth:`attribution`.
            score: as in :meth:`attribution`.
            tol: as in :meth:`attribution`.
            batch: how many questions are explained at a time.
            options: further ones of :meth:`attribution`.
        """
        asked = _listed(texts)
        words = [_words(text) for text in asked]
        answers = self.predict(asked)
        outputs = [self.find(one.label) for one in answers] if target is None else self._targets(target, len(asked))
        order = sorted(range(len(asked)), key=lambda i: len(words[i]))
        found: dict[int, WordAttribution] = {}
        for rows in _parts(order, batch):
            given: dict[str, Any] = {"target": [outputs[i] for i in rows], "score": score, "tol": tol}
            result = self.attribution([asked[i] for i in rows], **given | options)
            errors = result.sums(torch.arange(result.numpy().shape[1])).errors.tolist()
            for i, values, off, certificate in zip(rows, result.numpy().tolist(), errors, result.certificate, strict=True):
                label = self.classes[outputs[i]]
                named = replace(certificate, target=f"{label} ({score})")
                chances = answers[i].probabilities
                known = off if all(map(math.isfinite, off)) else ()
                found[i] = WordAttribution.of(asked[i], words[i], values, label, chances[label], named, chances, known)
        method: Method | None = options.get("method")
        told = () if method is None else (method_note(method),)
        by = self if method is None else None
        return ResultList(replace(found[i], notes=(*self.notes(asked[i]), *told), explained_by=by) for i in range(len(asked)))

    def inquiry(self, text: str, *, target: str | int | None = None) -> Inquiry:
        """What is asked about a question, for other methods and baselines: the logit of a class, word by word.

        Args:
            text: the question.
            target: the class; None for what the network says.
        """
        from ...analysis.inquiry import Inquiry

        ids = self.ids([text])
        weights = self.module.embedding.weight.detach()
        output = self._targets(target, 1)[0] if target is not None else self.find(self.predict([text])[0].label)
        embedded = weights[ids]
        words = torch.arange(ids.shape[1], device=ids.device)[:, None]
        candidates = {"zero": 0.0, "mean word": weights[UNKNOWN + 1 :].mean(0), "unknown word": weights[UNKNOWN]}
        return Inquiry(
            self.module.head,
            embedded,
            torch.zeros_like(embedded),
            {"target": output, "args": (ids != PAD,), "groups": words, "batched": True},
            self.classes[output],
            features=tuple(word.text for word in _words(text)),
            candidates={
                name: one.expand_as(embedded) if isinstance(one, Tensor) else torch.zeros_like(embedded)
                for name, one in candidates.items()
            },
            classes=self.classes.__getitem__,
        )

    def notes(self, text: str) -> tuple[str, ...]:
        """What in a question the network never saw, so that its answer may mean nothing; nothing for usual questions.

        A name or two that it does not know are usual. Most words unknown, none of the words that training questions are made
        of, or signs of another script are not: it answers all the same.
        """
        words = [word.text for word in _words(text) if _telling(word.text)]
        unknown = [word for word in words if self.vocabulary.row(word) == UNKNOWN]
        told = f"The network does not know {_named(unknown)}"
        asks = "It was trained on questions in English."
        if len(unknown) == len(words):
            if words:
                return (f"The network knows none of these words: its answer means nothing. {asks}",)
            return (f"There is no word in this: the network's answer means nothing. {asks}",)
        if 2 * len(unknown) > len(words):
            return (f"{told}, {len(unknown)} of {len(words)} words: its answer may mean nothing. {asks}",)
        if len(words) > 2 and not any(word.lower() in self._common for word in words):
            return (f"Not one of the usual words of a question is in this: the answer may mean nothing. {asks}",)
        strange = [word for word in unknown if _foreign(word)]
        return (f"The network does not know {_named(strange)}, and takes it for any unknown word.",) if strange else ()

    @cached_property
    def _common(self) -> frozenset[str]:
        words = (word for word in self._counts if any(map(str.isalpha, word)))
        return frozenset(sorted(words, key=lambda word: -self._counts[word])[:COMMON])

    def _targets(self, target: str | int | Sequence[str | int], count: int) -> list[int]:
        if isinstance(target, str | int):
            return [self.find(target)] * count
        if len(target) != count:
            raise TargetError(f"got {len(target)} targets for {count} questions; expected one, or one for each.")
        return [self.find(one) for one in target]

    @cached_property
    def _counts(self) -> dict[str, int]:
        return dict(zip(self.vocabulary.words, self.seen, strict=True))

    def times_seen(self, word: str) -> int:
        """How often a word occurs in the training questions."""
        return self._counts.get(word.lower(), 0)


def load(name: ModelName | str = "wtq", device: torch.device | str | None = None) -> Classifier:
    """Load a classifier onto a device, by default a GPU where torch finds one.

    Args:
        name: ``wtq``: the type of the answer, number, year, date, yes-no or text. ``trec``: what the question is about,
            description, entity, abbreviation, person, location or number.
        device: where to.
    """
    if name not in SOURCES:
        raise OptionError(f"got the model {name!r}; expected one of {', '.join(SOURCES)}.")
    path = shipped(f"questions-{name}.safetensors", "classifying questions")
    found, header = read_safetensors(path, what="a question classifier")
    weights = {key: value.float() for key, value in found.items()}
    classes, settings, seen = (parsed(header.get(key, ""), what=path.name) for key in ("classes", "settings", "seen"))
    rows, dim = weights["embedding.weight"].shape
    module = TextCNN(rows, dim=dim, filters=settings["filters"], widths=settings["widths"], classes=len(classes))
    module.load_state_dict(weights)
    frozen = _placed(module.eval().requires_grad_(False), device or ("cuda" if torch.cuda.is_available() else "cpu"))
    words = Vocabulary(tuple(header["words"].split("\n")))
    return Classifier(name, frozen, words, tuple(seen), tuple(classes), SOURCES[name])


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its position: ``text[start:end]`` of the question."""

    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """Split a question into words and punctuation; every character but white space is in exactly one of them.

    >>> [word.text for word in words_of("in what city did Piotr's last 1st-place finish occur?")]
    ['in', 'what', 'city', 'did', 'Piotr', "'s", 'last', '1st-place', 'finish', 'occur', '?']
    """
    return [Word(match.group(), match.start(), match.end()) for match in _WORDS.finditer(text)]


@dataclass(frozen=True)
class Vocabulary:
    """The words that have a row in the embedding, in its order; :data:`SPECIAL` come first.

    Attributes:
        words: in small letters.
    """

    words: tuple[str, ...]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The embedding row of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def row(self, word: str) -> int:
        """The embedding row of a word, ignoring case; for a word without one, the row of its kind."""
        found = self.rows.get(word.lower())
        if found is not None and found >= len(SPECIAL):
            return found
        if not any(sign.isdigit() for sign in word):
            return UNKNOWN
        return 2 if _YEAR.fullmatch(word) else 3

    def ids(self, questions: Sequence[Sequence[Word]]) -> Tensor:
        """The embedding rows of questions, (questions, longest), with shorter questions padded with :data:`PAD` at the end."""
        rows = [[self.row(word.text) for word in words] for words in questions]
        longest = max(map(len, rows), default=0)
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long).reshape(len(rows), longest)


class TextCNN(nn.Module):
    """The network: an ``embedding`` of the words, then a ``head`` with one output per class.

    Args:
        words: rows of the embedding; row 0 is padding.
        dim: the size of the embedding.
        filters: the number of filters of each width.
        widths: the widths of the convolutions, in words.
        classes: the number of classes.
        dropout: the share of features left out in training.
    """

    def __init__(
        self, words: int, *, dim: int, filters: int, widths: Sequence[int], classes: int, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=PAD)
        self.head = Head(dim, filters, widths, classes, dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, classes) from embedding rows (N, L)."""
        out: Tensor = self.head(self.embedding(ids), ids != PAD)
        return out


class Head(nn.Module):
    """From embedded words to one logit per class: convolutions of several widths, the maximum over time, a linear layer.

    A window counts if a word is in it: so the answer does not depend on how far a question was padded.
    """

    def __init__(self, dim: int, filters: int, widths: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, filters, width, padding=width - 1) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(filters * len(widths), classes)

    def features(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """The largest activation of each filter over the question, (N, filters of all widths)."""
        signal, lengths = embedded.transpose(1, 2), mask.sum(1)
        found = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            windows = torch.relu(convolution(signal))
            past = torch.arange(windows.shape[2], device=mask.device) >= (lengths + width - 1)[:, None]
            found.append(windows.masked_fill(past[:, None], 0.0).amax(2))
        return torch.cat(found, 1)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Logits (N, classes) from embedded words (N, L, D) and the mask of real words (N, L)."""
        out: Tensor = self.linear(self.dropout(self.features(embedded, mask)))
        return out


def _listed(texts: Sequence[str] | str) -> list[str]:
    asked = [texts] if isinstance(texts, str) else list(texts)
    if not asked:
        raise InputError("got no question; expected at least one.")
    return asked


def _words(text: str) -> list[Word]:
    if not isinstance(text, str):
        raise InputError(f"got a {type(text).__name__} as a question; expected a text.")
    found = words_of(text)
    if not found:
        raise InputError(f"got the question {text!r}, which has no word; expected a text.")
    return found


def _telling(word: str) -> bool:
    """Whether a word says something: letters, emoji and the like; numbers and punctuation are read in any language."""
    return any(unicodedata.category(sign) in TELLING for sign in word) and not any(map(str.isdigit, word))


def _foreign(word: str) -> bool:
    """Whether a word has signs that are no Latin letters, such as those of another script, or emoji."""
    return any(unicodedata.category(sign) in TELLING and "LATIN" not in unicodedata.name(sign, "") for sign in word)


def _named(words: Sequence[str], most: int = 5) -> str:
    """Words in quotation marks, the first of them if there are many."""
    quoted = [f"“{shown(word)[:40]}”" for word in dict.fromkeys(words)]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def _parts(items: list[Any], size: int = BATCH) -> list[list[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _placed(module: TextCNN, device: torch.device | str) -> TextCNN:
    try:
        return module.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what torch says to a device that it has not
        said = first_line(error)
        raise OptionError(
            f"got device {str(device)!r} ({said}); expected one that torch has here, such as cpu or cuda."
        ) from error
