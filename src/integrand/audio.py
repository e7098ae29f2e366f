"""Sound: :mod:`integrand.apps.audio` under a shorter name."""

from .apps.audio import (
    BaselineName,
    ExplainedSound,
    Sound,
    SoundExplainer,
    SoundModel,
    SoundSpectrum,
    Spectrogram,
    explain,
    load,
    read,
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
