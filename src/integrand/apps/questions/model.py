"""Question classification (section 6.3 of the paper): a question in, the kind of its answer and the words that told out.

    classifier = questions.load("wtq")                    # number, year, date, yes-no or text
    print(classifier.predict(["how many people live there?"])[0])        # number (0.99)
    print(classifier.explain(["how many people live there?"])[0])        # how(+0.42) many(+0.38) ...
    print(questions.rules(classifier, many_questions))    # which words and phrases trigger which class

The networks are Kim's (2014) with weights of our own: see the model card, ``questions.md`` in the distribution
``integrand-models``. The baseline is the question with all embeddings zero; a word's attribution is the sum over its embedding.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from ...api import integrated_gradients
from ...attribution import Attribution
from ...errors import InputError, MissingExtraError, OptionError, TargetError
from ...functions.target import Score
from ...loading import shipped
from .result import QuestionAnswer, WordAttribution
from .textcnn import PAD, TextCNN, Vocabulary, Word, words_of

ModelName = Literal["wtq", "trec"]

SOURCES = {
    "wtq": "integrand's own, trained on WikiTableQuestions (CC BY-SA 4.0) by training/questions.py",
    "trec": "integrand's own, trained on TREC-6 (MIT) by training/questions.py",
}

BATCH = 256
"""Questions that are explained together."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """A network that tells what a question asks for. :func:`load` makes one.

    Attributes:
        name: of the model.
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

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.module.embedding.weight.device

    def ids(self, texts: Sequence[str]) -> Tensor:
        """What the network takes: rows of its embedding, (N, L), padded behind with 0."""
        return self.vocabulary.ids([_words(text) for text in _listed(texts)]).to(self.device)

    def predict(self, texts: Sequence[str] | str) -> list[QuestionAnswer]:
        """The class of each question."""
        found: list[list[float]] = []
        with torch.no_grad():
            for part in _parts(_listed(texts)):
                found += self.module(self.ids(part)).double().softmax(1).tolist()
        return [self._answer(row) for row in found]

    def _answer(self, row: Sequence[float]) -> QuestionAnswer:
        best = max(range(len(row)), key=row.__getitem__)
        return QuestionAnswer(self.classes[best], row[best], dict(zip(self.classes, row, strict=True)))

    def find(self, target: str | int) -> int:
        """The output that a target names: a class, or its number.

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
        **options: Any,
    ) -> Attribution:
        """Integrated gradients of a class from the all-zero embedding, summed over the embedding; all questions at once.

        Args:
            texts: the questions.
            target: the class to explain, or one for each question; None is what the network says of each.
            score: ``probability`` of the class, its ``log-probability`` or its ``logit``.
            tol: the relative error over the words to integrate to.
            options: further ones of :func:`integrand.integrated_gradients`.

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
        return integrated_gradients(self.module.head, embedded, args=(mask,), batched=True, **named | options)

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
        """Which words made the network say so, for each question; those of about the same length are explained together.

        Args:
            texts: the questions.
            target: as in :meth:`attribution`.
            score: as in :meth:`attribution`.
            tol: as in :meth:`attribution`.
            batch: how many questions are explained at a time.
            options: further ones of :func:`integrand.integrated_gradients`.
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
            for i, values, certificate in zip(rows, result.numpy().tolist(), result.certificate, strict=True):
                label = self.classes[outputs[i]]
                chance = answers[i].probabilities[label]
                named = replace(certificate, target=f"{label} ({score})")
                found[i] = WordAttribution.of(asked[i], words[i], values, label, chance, named)
        return [found[i] for i in range(len(asked))]

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
        """How often a word came in the training questions."""
        return self._counts.get(word.lower(), 0)


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


def _parts(items: list[Any], size: int = BATCH) -> list[list[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def load(name: ModelName | str = "wtq", device: torch.device | str | None = None) -> Classifier:
    """A classifier, on a device: by default a GPU where torch finds one.

    Args:
        name: ``wtq``: the type of the answer, number, year, date, yes-no or text. ``trec``: what the question is about,
            description, entity, abbreviation, person, location or number.
        device: where to.
    """
    if name not in SOURCES:
        raise OptionError(f"got the model {name!r}; expected one of {', '.join(SOURCES)}.")
    path = shipped(f"questions-{name}.safetensors", "classifying questions")
    try:
        from safetensors import safe_open
    except ImportError:
        raise MissingExtraError("safetensors", "files", "loading a question classifier") from None
    with safe_open(str(path), framework="pt") as file:
        header = file.metadata()
        names = list(file.keys())
        weights = {key: file.get_tensor(key).float() for key in names}
    classes, settings = json.loads(header["classes"]), json.loads(header["settings"])
    rows, dim = weights["embedding.weight"].shape
    module = TextCNN(rows, dim=dim, filters=settings["filters"], widths=settings["widths"], classes=len(classes))
    module.load_state_dict(weights)
    frozen = _placed(module.eval().requires_grad_(False), device or ("cuda" if torch.cuda.is_available() else "cpu"))
    words = Vocabulary(tuple(header["words"].split("\n")))
    return Classifier(name, frozen, words, tuple(json.loads(header["seen"])), tuple(classes), SOURCES[name])


def _placed(module: TextCNN, device: torch.device | str) -> TextCNN:
    try:
        return module.to(torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what torch says to a device that it has not
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OptionError(
            f"got device {str(device)!r} ({said}); expected one that torch has here, such as cpu or cuda."
        ) from error
