"""Question classification (section 6.3 of the paper): what a question asks for, and which words tell so.

    classifier = questions.load("wtq")                    # number, year, date, yes-no or text
    print(classifier.predict(["how many people live there?"])[0])        # number (0.99)
    print(classifier.explain(["how many people live there?"])[0])        # how(+0.42) many(+0.38) ...
    print(questions.rules(classifier, many_questions))    # which words and phrases trigger which class

The networks are Kim's (2014) with weights of our own: see the model card, ``questions.md`` in the distribution
``integrand-models``. The baseline is the question with all embeddings zero; a word's attribution is the sum over its embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .model import Classifier, load
    from .result import QuestionAnswer as Answer
    from .result import WordAttribution
    from .trigger_rules import Rules, rules
    from .trigger_rules import TriggerRule as Rule
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "Answer": "result:QuestionAnswer",
            "Classifier": "model",
            "Rule": "trigger_rules:TriggerRule",
            "Rules": "trigger_rules",
            "WordAttribution": "result",
            "load": "model",
            "rules": "trigger_rules",
        },
    )

__all__ = [
    "Answer",
    "Classifier",
    "Rule",
    "Rules",
    "WordAttribution",
    "load",
    "rules",
]
