"""The rooms for words: texts and classifiers, and translation with its words linked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..apps import questions, translation
from ..apps import text as texts
from ..apps.questions.result import asked_for
from ..apps.translation.cli import LONGEST
from ..methods.gradients import Gradient, GradientTimesInput
from ..methods.path_methods import IntegratedGradients
from ..render import text as pictures
from ..render.text.tokens import Tokens
from ..words import percent, shortened
from .jobs import Refused
from .room import Asked, FormField, ModelShelf, Room, RoomJob, RoomResult, code_of, compared, diagnosed, png_of, tolerance_field

if TYPE_CHECKING:
    from ..analysis.inquiry import Inquiry

MOST = 2000
"""The most characters of a text: what is longer takes a network more than a few seconds."""


class TextModel(Protocol):
    """A model that puts a text into a class, as the room for words sees it."""

    @property
    def setup(self) -> tuple[str, ...]:
        """The lines of Python that load it."""
        ...

    def answers(self, text: str) -> list[tuple[str, float]]:
        """The classes with their probabilities, surest first."""
        ...

    def explain(self, text: str, job: RoomJob, **options: Any) -> tuple[Tokens, Mapping[str, str], str]:
        """The words with their attributions, how it was made, and the line of Python for it."""
        ...

    def inquiry(self, text: str, target: str | None) -> tuple[Inquiry, str]:
        """The same question for other methods and baselines, and the line of Python for it."""
        ...


@dataclass(frozen=True, eq=False)
class QuestionModel:
    """A classifier of questions."""

    classifier: questions.Classifier

    @property
    def setup(self) -> tuple[str, ...]:
        """The lines of Python that load it."""
        return ("from integrand.apps import questions", "", f"classifier = questions.load({self.classifier.name!r})")

    def answers(self, text: str) -> list[tuple[str, float]]:
        """The classes with their probabilities, surest first."""
        self.classifier.size(text)
        chances = self.classifier.predict([text])[0].probabilities
        return sorted(chances.items(), key=lambda one: -one[1])

    def explain(self, text: str, job: RoomJob, **options: Any) -> tuple[Tokens, Mapping[str, str], str]:
        """The words with their attributions, how it was made, and the line of Python for it."""
        [found] = self.classifier.explain([text], progress=job.tell, **options)
        told = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
        about = {"model": self.classifier.name, "weights": self.classifier.source, "baseline": "all embeddings zero"}
        return found.tokens, about, f"[result] = classifier.explain([{text!r}]{told})"

    def inquiry(self, text: str, target: str | None) -> tuple[Inquiry, str]:
        """The same question for other methods and baselines, and the line of Python for it."""
        told = "" if target is None else f", target={target!r}"
        return self.classifier.inquiry(text, target=target), f"asked = classifier.inquiry({text!r}{told})"


@dataclass(frozen=True, eq=False)
class HuggingFaceModel:
    """A sequence classifier of Hugging Face with its tokenizer."""

    model: Any
    tokenizer: Any
    setup: tuple[str, ...]

    def answers(self, text: str) -> list[tuple[str, float]]:
        """The classes with their probabilities, surest first."""
        import torch

        from ..apps.text.encoding import encode
        from ..apps.text.heads import asked_class
        from ..apps.text.text_run import device_of, fixed_of

        encoded = encode(self.model, self.tokenizer, [text], None, device=device_of(self.model))
        with torch.no_grad():
            logits = self.model(input_ids=encoded.ids, **encoded.given, **fixed_of(self.model)).logits
        [choices] = asked_class(self.model, logits, None, None, None).choices
        return sorted(choices, key=lambda one: -one[1])

    def explain(self, text: str, job: RoomJob, **options: Any) -> tuple[Tokens, Mapping[str, str], str]:
        """The words with their attributions, how it was made, and the line of Python for it."""
        found = texts.explain(self.model, self.tokenizer, text, progress=job.tell, **options).words()
        told = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
        return found.line, found.meta, f"result = text.explain(model, tokenizer, {text!r}{told}).words()"

    def inquiry(self, text: str, target: str | None) -> tuple[Inquiry, str]:
        """The same question for other methods and baselines, and the line of Python for it."""
        told = "" if target is None else f", target={target!r}"
        found = texts.inquiry(self.model, self.tokenizer, text, target=target)
        return found, f"asked = text.inquiry(model, tokenizer, {text!r}{told})"


class WordRoom(Room):
    """A text, and classifiers that say of which kind it is."""

    name = "words"
    title = "Words"

    def __init__(self, models: Mapping[str, Callable[[], TextModel]], *, own: bool = False) -> None:
        self.models = ModelShelf(models)
        names = self.models.names
        self.lead = (
            "Type a text. You see what the network makes of it, and because of which words."
            if own
            else "Type a question. You see what kind of answer the network thinks it wants, and because of which words."
        )
        self.fields = (
            FormField("text", "Text" if own else "Question", "text", most=MOST, needed=True),
            FormField("target", "Explain", "answer", help="What the network says, or another class by its name."),
            FormField("model", "Network", "choice", names[0], names),
            tolerance_field("1%"),
        )
        asked = (
            ("how many medals did Norway win in 1994?", "wtq"),
            ("did charles oakley play more minutes than robert parish?", "wtq"),
            ("Who wrote the novel Emma?", "trec"),
        )
        known = [(text, model) for text, model in asked if model in names]
        self.examples = tuple({"title": shortened(text, 48), "text": text, "model": model} for text, model in known)

    def warm(self) -> None:
        """Load the networks."""
        self.models.load()

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Say what the network makes of the text, and explain it."""
        model, text, target = self.models[asked["model"]], asked["text"], asked.get("target")
        answers = model.answers(text)
        best = f"{answers[0][0]} ({percent(answers[0][1])})" if answers else ""
        job.answers(best, answers[:8], chosen=self._label(target, answers))
        found, about, line = model.explain(text, job, target=target, tol=asked.tol)
        job.show(
            RoomResult(
                found.label,
                found.sentence,
                pictures.page(found, meta=about),
                found.certificate,
                png_of(partial(pictures.figure, found)),
                found.numbers,
                code_of(*model.setup, line, "print(result)"),
                "words",
            )
        )

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on the text."""
        model = self.models[asked["model"]]
        inquiry, line = model.inquiry(asked["text"], asked.get("target"))
        found = inquiry.compare_methods(tol=asked.tol, progress=job.tell)
        code = code_of(*model.setup, line, f"print(asked.compare_methods(tol={asked.tol!r}))")
        job.show(compared(found, code, "words", **inquiry.view, labels=asked_for(inquiry.label)))

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on the text."""
        model = self.models[asked["model"]]
        inquiry, line = model.inquiry(asked["text"], asked.get("target"))
        found = inquiry.diagnose(tol=asked.tol, progress=job.tell)
        code = code_of(*model.setup, line, f"print(asked.diagnose(tol={asked.tol!r}))")
        job.show(diagnosed(found, code, "words", **inquiry.view, label=asked_for(inquiry.label)))

    @staticmethod
    def _label(target: str | None, answers: list[tuple[str, float]]) -> str:
        if target is None:
            return answers[0][0] if answers else ""
        return next((label for label, _ in answers if label.lower() == target.lower()), target)


class TranslationRoom(Room):
    """An English text, its German translation, and which words each German word comes from."""

    name = "translation"
    title = "Translation"
    lead = "Type an English sentence. You see it in German; choose a German word to see which words it comes from."

    def __init__(self, *, device: str | None = None) -> None:
        self.translators = ModelShelf({"translator": partial(translation.load, device)})
        self.fields = (
            FormField("text", "English", "text", most=min(MOST, LONGEST, 300), needed=True),
            FormField("output", "For methods and baselines, the piece", "line", "1", most=4, help="Counted from 1 on."),
            tolerance_field("2%"),
        )
        known = ("good morning ladies and gentlemen", "I have lost my keys.", "The weather is beautiful today.")
        self.examples = tuple({"title": text, "text": text} for text in known)

    def warm(self) -> None:
        """Load the translator."""
        self.translators.load()

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Translate the text, and explain every word."""
        translator, text = self.translators["translator"], asked["text"]
        said = translator.translate(text)
        job.answers(said)
        found = translator.explain(text, tol=asked.tol, words=True, progress=job.tell)
        line = f"result = translator.explain({text!r}, tol={asked.tol!r}, words=True)"
        job.show(
            RoomResult(
                found.translation,
                found.sentence,
                found.html(),
                found.certificate,
                png_of(found.figure),
                found.numbers,
                code_of(*_TRANSLATOR, line, "print(result)"),
                "translation",
            )
        )

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on one piece of the translation: those that need no rule for each operation of an LSTM."""
        inquiry, line = self._inquiry(asked)
        methods = (IntegratedGradients(tol=asked.tol), GradientTimesInput(), Gradient())
        found = inquiry.compare_methods(methods=methods, progress=job.tell)
        chosen = f"[IntegratedGradients(tol={asked.tol!r}), GradientTimesInput(), Gradient()]"
        code = code_of(
            "from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients",
            *_TRANSLATOR,
            line,
            f"print(asked.compare_methods(methods={chosen}))",
        )
        job.show(compared(found, code, "translation", **inquiry.view, labels=inquiry.label))

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on one piece of the translation."""
        inquiry, line = self._inquiry(asked)
        found = inquiry.diagnose(tol=asked.tol, progress=job.tell)
        code = code_of(*_TRANSLATOR, line, f"print(asked.diagnose(tol={asked.tol!r}))")
        job.show(diagnosed(found, code, "translation", **inquiry.view, label=inquiry.label))

    def _inquiry(self, asked: Asked) -> tuple[Inquiry, str]:
        place = asked["output"]
        if not place.isdecimal() or not int(place):
            raise Refused(f"The piece of the translation: got {place!r}; expected a number from 1 on.")
        output = int(place) - 1
        found = self.translators["translator"].inquiry(asked["text"], output=output)
        return found, f"asked = translator.inquiry({asked['text']!r}, output={output})"


_TRANSLATOR = ("from integrand.apps import translation", "", "translator = translation.load()")
