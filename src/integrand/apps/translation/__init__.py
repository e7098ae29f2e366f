"""Translation (section 6.4 of the paper): from English to German, and which source words contributed to each German word.

    translator = translation.load()
    translator.translate("good morning ladies and gentlemen")         # 'Guten Morgen, meine Damen und Herren!'
    alignment = translator.explain("good morning ladies and gentlemen").words()
    print(alignment)                                                  # a row for each German word
    alignment.save("alignment.html")

The network is an LSTM encoder-decoder with attention, with weights of our own: see the model card, ``translation.md`` in the
distribution ``integrand-models``. The baseline is the paper's: zero embeddings, except for the markers at start and end. The
translation so far is an input like the text, so that the probability of each output piece is accounted for in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .model import Translator, load
    from .result import Alignment
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "Alignment": "result",
            "Translator": "model",
            "load": "model",
        },
    )

__all__ = [
    "Alignment",
    "Translator",
    "load",
]
