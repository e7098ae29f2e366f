"""Sound: which moments of a recording, or which cells of its spectrogram, made a model say what it says.

    found = audio.explain("silero", "speech.flac", target=0.5)    # a detector of speech, at half a second
    print(found)                                                  # Speech 0.98 at 0.5 s, mostly because of ...
    found.save("speech.html")                                     # player, waveform and spectrogram

Any differentiable model of waveforms can be explained, or, with ``transform=``, of spectrograms; what is explained can be
either. See :func:`explain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .model import SoundExplainer, SoundSpectrum, explain, load
    from .result import ExplainedSound
    from .sound_baselines import BaselineName
    from .sound_files import Sound, read
    from .sound_questions import SoundModel
    from .sound_spectrum import Spectrogram
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "BaselineName": "sound_baselines",
            "ExplainedSound": "result",
            "SoundExplainer": "model",
            "Sound": "sound_files",
            "SoundModel": "sound_questions",
            "SoundSpectrum": "model",
            "Spectrogram": "sound_spectrum",
            "explain": "model",
            "load": "model",
            "read": "sound_files",
        },
    )

__all__ = [
    "BaselineName",
    "ExplainedSound",
    "Sound",
    "SoundExplainer",
    "SoundModel",
    "SoundSpectrum",
    "Spectrogram",
    "explain",
    "load",
    "read",
]
