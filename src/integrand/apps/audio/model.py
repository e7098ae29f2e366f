"""Models of sound, and why they say what they say: which moments of a recording, or which cells of its spectrogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...api import integrated_gradients
from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import InputError, NonFiniteError, OptionError
from ...functions.target import Score
from ...loading import load_object
from ...words import short_repr, shown
from .resampling import Samples, check_rate
from .result import ExplainedSound, decibels
from .silero import RATE, WINDOW, load_silero
from .sound_baselines import BaselineName, baseline_spectra, baseline_waves
from .sound_files import Sound, as_tensor, sound_of
from .sound_questions import Moment, SoundModel, SoundQuestion, asked_once, question
from .sound_spectrum import (
    BANDS,
    MOST_BANDS,
    CellGrid,
    FromSpectrum,
    ShortTime,
    Spectrogram,
    Through,
    mel_edges,
    window_of,
    windows,
)

Floats = NDArray[np.float64]
Explained = Literal["waveform", "spectrogram"]

SHORT = 0.032
"""Seconds of a window where neither the user nor the model says how long one is: a syllable has about five."""

MOST_WINDOWS, ALL_WINDOWS, SOME_WINDOWS = 4096, 1600, 400
"""The most windows that are told apart; and where the user does not say how long one is, the most in all, and in the part of a
long recording that is explained."""

LONGEST = 120.0
"""The most seconds that are explained at once."""


@dataclass(frozen=True, eq=False)
class SoundSpectrum:
    """A spectrogram as it is given to a model that takes one, where there is no waveform.

    Attributes:
        values: (..., frequencies, frames), without a batch dimension.
        seconds: how long it is.
        frequencies: of each row in Hz, lowest first; None if they are not known.
        name: what it is called.
    """

    values: Tensor
    seconds: float
    frequencies: tuple[float, ...] | None = None
    name: str = "spectrogram"

    __repr__ = short_repr


def load(name: str = "silero", *, device: torch.device | str | None = None, trust: bool = False) -> SoundModel:
    """Load a model of sound.

    Args:
        name: ``silero``, the detector of speech in the package silero-vad; or ``package.module:function`` for one of your own:
            a model, a :class:`SoundModel`, or a function without arguments that makes one.
        device: where to; by default a GPU where torch finds one, for ``silero``.
        trust: whether code of your own may be imported and run.
    """
    if ":" in name:
        found = load_object(name, trust=trust, what="the model")
        model = found if isinstance(found, SoundModel) else SoundModel(_callable(found), name, source=f"your {name}")
    elif name == "silero":
        network, source = load_silero()
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        frame = WINDOW / RATE
        said: dict[str, Any] = {"frame": frame, "label": "speech", "score": "probability", "causal": True, "source": source}
        return SoundModel(network.to(place), "silero-vad", RATE, **said)
    else:
        raise OptionError(f"got the model {shown(name)!r}; expected silero, or package.module:function for one of your own.")
    if device is not None and isinstance(model.module, nn.Module):
        model.module.to(device)
    return model


def explain(
    model: str | SoundModel | Callable[..., Any],
    sound: Sound | SoundSpectrum | str | PathLike[str] | Samples | Tensor,
    baseline: BaselineName | Sound | str | PathLike[str] | Samples | Tensor = "silence",
    *,
    rate: int | None = None,
    explain: Explained = "waveform",
    target: int | str | Moment | None = None,
    score: Score | None = None,
    window: float | None = None,
    bands: int = BANDS,
    transform: Callable[..., Any] | None = None,
    draws: int = 1,
    tol: float = 0.02,
    trust: bool = False,
    **options: Any,
) -> ExplainedSound:
    """Which moments of a sound, or which cells of its spectrogram, made a model say what it says.

    With ``explain="waveform"`` the samples are explained, and summed over windows of time. With ``"spectrogram"`` the features
    are the real and imaginary parts of a short-time Fourier transform, which is undone inside of the explained function; they
    are summed over bands of frequency and windows of time. Both integrate along the same line, and add up to the same change of
    the score. They share it out differently at the edges of windows only: the frames of a transform overlap, and each sample's
    part goes to several of them. For a model that takes spectrograms, ``transform=`` says what it takes: waveforms are then
    explained through it, and cells are those of the model's own input.

    Args:
        model: ``"silero"``; a :class:`SoundModel`; any differentiable function of waveforms (N, n) (with ``transform``, of
            spectrograms); or ``package.module:function``.
        sound: the path of a file, samples of shape (n,) or (channels, n), which are mixed, a :class:`Sound`, or a
            :class:`SoundSpectrum`.
        baseline: ``silence``, ``room`` (a quiet one), ``noise`` (as loud as the sound), ``mean`` (its mean spectrum), or
            another recording. For a spectrogram without a waveform, ``silence`` is zero, and a number or a tensor is taken too.
        rate: samples per second of an array; of a file, those that it is resampled to. A model that says which it takes gets
            them in any case.
        explain: ``waveform`` or ``spectrogram``.
        target: for a model that says something at each moment: a second, or a pair of seconds over which the mean is taken;
            None for the whole sound. For other models, the number or name of an output; None for the one with the most.
        score: ``probability``, ``logit`` or ``log-probability``; None for the model's own.
        window: seconds of a window of time; by default 32 ms, or so much more that there are at most 400 in what is explained.
        bands: into how many bands of frequency cells are summed, equally wide to the ear.
        transform: from waveforms to what the model takes, for a model that takes spectrograms.
        draws: for noise as baseline, how many are averaged.
        tol: the relative error over the windows, or over the cells, to integrate to.
        trust: whether a model that is named by ``package.module:function`` may be imported and run.
        options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        What each window adds, with its error; draws and saves itself.
    """
    if explain not in get_args(Explained):
        raise OptionError(f"got explain={explain!r}; expected 'waveform' or 'spectrogram'.")
    network = _model_of(model, transform, rate, trust)
    given: dict[str, Any] = {"tol": tol, "progress": False} | options
    if isinstance(sound, SoundSpectrum):
        return _explain_spectrum(network, sound, baseline, explain, target, score, window, given)
    heard = sound_of(sound, rate)
    heard = heard.at(network.rate or (check_rate(rate, "rate") if rate is not None else heard.rate))
    x = as_tensor(heard, network.device)
    asked = question(network, x, heard, target, score)
    length = (asked.end - asked.begin) / heard.rate
    if length > LONGEST:
        raise InputError(
            f"{shown(heard.name)}: {length:,.0f} s would be explained at once; expected at "
            f"most {LONGEST:.0f}. Take a part (audio.read(path, start=0, end=60); --start 0 --end 60)"
            + (", or ask for a moment (target=12.5; --at 12.5)." if network.frame else ".")
        )
    times = windows(heard.seconds, _window(window, heard.seconds, network.frame, heard.rate, length))
    part = replace(heard, samples=heard.samples[asked.begin : asked.end])
    waves, words = baseline_waves(baseline, heard, draws=draws)
    case = _Case(asked, part, x, x[:, asked.begin : asked.end], waves[..., asked.begin : asked.end].to(x.device), times)
    maker = _waveform if explain == "waveform" else _cells if network.transform is None else _own_cells
    function, features, start, groups, grid = maker(case, network, baseline, bands)
    found = _integrated(function, features, start, asked, groups, baseline, given)
    spectrum, top = decibels(heard)
    first = int(window_of(np.array([asked.begin / heard.rate]), times)[0])
    notes = heard.notes if not asked.begin else (*heard.notes, _held(asked.begin / heard.rate))
    about = (explain, words, network.source or network.name, grid, found, first, asked.curve, spectrum, top, notes)
    return ExplainedSound(heard.name, heard, heard.seconds, asked.label, asked.when, asked.asked, *about)


class SoundExplainer:
    """Something that explains many sounds, for :func:`integrand.explain_many`.

    >>> explain = SoundExplainer(lambda x: x.square().sum(1), rate=8000, window=0.01)
    >>> explain([np.ones(160, np.float32)])[0].values.round(2).tolist()
    [80.0, 80.0]

    Args:
        model: as in :func:`explain`.
        baseline: likewise.
        options: further ones of :func:`explain`.
    """

    together = 1  # sounds differ in length, so that each is an integral of its own

    def __init__(self, model: str | SoundModel | Callable[..., Any], baseline: Any = "silence", **options: Any) -> None:
        known = {name: options.pop(name, None) for name in ("transform", "rate")}
        self.model = _model_of(model, known["transform"], known["rate"], bool(options.pop("trust", False)))
        self.baseline, self.options = baseline, options | {"rate": known["rate"]}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on beside the sound, for the fingerprint of a table."""
        about = {part.name: getattr(self.model, part.name) for part in fields(self.model) if part.name != "module"}
        return {"model": about, "network": self.model.module, "baseline": self.baseline, "options": self.options}

    def __call__(self, sounds: Sequence[Any]) -> list[ExplainedSound]:
        """A result for each sound."""
        return [explain(self.model, sound, self.baseline, **self.options) for sound in sounds]


@dataclass(frozen=True, eq=False)
class _Case:
    """The part of a sound that is explained: samples (1, n), baselines (draws, 1, n), and the windows of the whole sound."""

    asked: SoundQuestion
    part: Sound
    whole: Tensor
    x: Tensor
    waves: Tensor
    times: Floats

    @property
    def start(self) -> float:
        """When the part begins, in seconds."""
        return self.asked.begin / self.part.rate

    def grid(self, edges: Floats, *, hertz: bool = True) -> tuple[CellGrid, CellGrid]:
        """The cells of the whole sound, and those of the part."""
        ends = np.array([self.start, self.start + self.part.seconds - 0.5 / self.part.rate])
        low, high = window_of(ends, self.times)
        return CellGrid(self.times, edges, hertz), CellGrid(self.times[low : high + 2], edges, hertz)


_Made = tuple[Callable[..., Any], Tensor, Tensor, Tensor, CellGrid]


def _waveform(case: _Case, network: SoundModel, baseline: object, bands: int) -> _Made:
    """Samples as features, summed by window."""
    function = case.asked.module if network.transform is None else Through(network.transform, case.asked.module)
    whole, part = case.grid(np.array([0.0, case.part.rate / 2]))
    moments = case.start + np.arange(case.x.shape[1]) / case.part.rate
    return function, case.x, case.waves, torch.as_tensor(window_of(moments, part.times)), whole


def _cells(case: _Case, network: SoundModel, baseline: object, bands: int) -> _Made:
    """Real and imaginary parts as features of a model of waveforms, summed by band and window."""
    transform, samples = ShortTime.near(case.part.rate), case.x.shape[1]
    if case.times[1] - case.times[0] < transform.hop / case.part.rate - 1e-9:
        raise OptionError(
            f"got window={case.times[1] - case.times[0]:.3g} s for a spectrogram with a frame every "
            f"{transform.hop / case.part.rate:.3g} s; expected at least that."
        )
    frequencies = transform.frequencies(case.part.rate)
    whole, part = case.grid(mel_edges(case.part.rate / 2, bands, case.part.rate / transform.size))
    moments = case.start + np.arange(transform.frames(samples)) * transform.hop / case.part.rate
    groups = part.labels(frequencies, np.minimum(moments, case.start + case.part.seconds)).expand(2, -1, -1)
    spectra = baseline_spectra(baseline, case.x, case.whole, transform)
    starts = [transform.forward(wave) for wave in case.waves] if spectra is None else [spectra]
    function = FromSpectrum(case.asked.module, transform, samples)
    return function, transform.forward(case.x), torch.stack(starts), groups, whole


def _own_cells(case: _Case, network: SoundModel, baseline: object, bands: int) -> _Made:
    """The cells of what a model takes as features, summed by band and window."""
    assert network.transform is not None
    with torch.no_grad():
        features = network.transform(case.x)
        starts = [_mean_over_time(features)] if baseline == "mean" else [network.transform(wave) for wave in case.waves]
    frequencies = getattr(network.transform, "frequencies", None)
    moments = None
    if isinstance(network.transform, Spectrogram):
        moments = np.arange(features.shape[-1]) * network.transform.transform.hop / case.part.rate
    labels, edges = _rows(features, frequencies, bands)
    whole, part = case.grid(edges, hertz=frequencies is not None)
    if moments is None:
        moments = (np.arange(features.shape[-1]) + 0.5) / features.shape[-1] * case.part.seconds
    groups = part.labels(labels, case.start + np.minimum(moments, case.part.seconds)).expand(features.shape[1:])
    return case.asked.module, features, torch.stack(starts), groups, whole


def _rows(features: Tensor, frequencies: Sequence[float] | None, bands: int) -> tuple[Floats, Floats]:
    """Where each row of a model's own spectrogram is, and the edges of the bands that rows are summed into."""
    if features.ndim < 3:
        raise InputError(
            f"the transform gives {tuple(features.shape)}; expected (N, ..., frequencies, frames): frequency before time, and "
            "a row for each sound."
        )
    rows = features.shape[-2]
    if frequencies is not None:
        if len(frequencies) != rows:
            raise InputError(f"the transform has {len(frequencies)} frequencies for {rows} rows; expected one for each.")
        places = np.asarray(frequencies, float)
        return places, mel_edges(float(places[-1]), min(bands, rows), float(np.diff(places).min()) if rows > 1 else 0.0)
    each = -(-rows // MOST_BANDS)
    edges: Floats = np.append(np.arange(0, rows, each), rows).astype(np.float64)
    return np.arange(rows, dtype=np.float64) + 0.5, edges


def _mean_over_time(features: Tensor) -> Tensor:
    return features.mean(-1, keepdim=True).expand_as(features).contiguous()


def _explain_spectrum(
    network: SoundModel,
    given: SoundSpectrum,
    baseline: object,
    explain: Explained,
    target: int | str | Moment | None,
    score: Score | None,
    window: float | None,
    options: dict[str, Any],
) -> ExplainedSound:
    """Explain a spectrogram for which there is no waveform."""
    if explain != "spectrogram":
        raise OptionError("got a spectrogram and explain='waveform'; expected explain='spectrogram': there is no waveform.")
    features = torch.as_tensor(given.values)[None].to(network.device)
    if not given.seconds > 0 or not torch.isfinite(features).all():
        raise InputError("got a spectrogram of no seconds, or with values that are no numbers; expected both to be finite.")
    rows, edges = _rows(features, given.frequencies, BANDS)
    asked = asked_once(replace(network, transform=None), network.outputs(features), target, score, 0)
    frames = features.shape[-1]
    length = window if window is not None else given.seconds / min(frames, SOME_WINDOWS)
    times = windows(given.seconds, _window(length, given.seconds, None, None, given.seconds))
    grid = CellGrid(times, edges, given.frequencies is not None)
    groups = grid.labels(rows, (np.arange(frames) + 0.5) / frames * given.seconds).expand(features.shape[1:])
    start, words = _spectrum_baseline(baseline, features)
    found = _integrated(network.module, features, start, asked, groups, baseline, options)
    drawn = features[0].reshape(-1, *features.shape[-2:])[0].double().cpu().numpy()
    top = 0.0 if given.frequencies is None else float(given.frequencies[-1])
    about = (explain, words, network.source or network.name, grid, found, 0, None, drawn, top, ())
    return ExplainedSound(given.name, None, given.seconds, asked.label, asked.when, None, *about)


def _spectrum_baseline(baseline: object, features: Tensor) -> tuple[Tensor, str]:
    """A baseline of a spectrogram without a waveform, (1, 1, ..., frequencies, frames), and what it is in words."""
    if isinstance(baseline, str) and baseline == "silence":
        return torch.zeros_like(features)[None], "zero"
    if isinstance(baseline, str) and baseline == "mean":
        return _mean_over_time(features)[None], "the mean over time of each row"
    if isinstance(baseline, (int, float, Tensor, np.ndarray)):
        one = torch.as_tensor(baseline, dtype=features.dtype, device=features.device)
        words = "a spectrogram of yours" if one.ndim else f"{float(one):g} everywhere"
        return one.expand_as(features)[None].contiguous(), words
    raise OptionError(
        f"got baseline={baseline!r} for a spectrogram; expected 'silence' (zero), 'mean', a number, or a tensor of its shape."
    )


def _integrated(
    function: Callable[..., Any],
    features: Tensor,
    start: Tensor,
    asked: SoundQuestion,
    groups: Tensor,
    baseline: object,
    options: dict[str, Any],
) -> Attribution:
    """The attribution, one number for each group, with what is explained in words in its certificate."""
    several = start if len(start) > 1 else start[0]
    named: dict[str, Any] = {"target": asked.target, "score": "logit" if callable(asked.target) else asked.score}
    try:
        found = integrated_gradients(
            function, features, several, groups=groups.to(features.device), batched=True, **named, **options
        )
    except NonFiniteError as error:
        if baseline == "silence":
            raise NonFiniteError(
                f"{error} Sizes of a spectrum (a square root, a logarithm) often have no gradient in digital silence: take "
                "baseline='room' (--baseline room), or integrand.audio.Spectrogram for the transform."
            ) from error
        raise
    words = f"{asked.label} {asked.when}".strip() + f" ({asked.score})"
    named_once = Certificate(tuple(replace(one, target=words) for one in found.certificate), found.certificate.promises)
    return replace(found, certificate=named_once)


def _window(window: float | None, seconds: float, frame: float | None, rate: int | None, explained: float) -> float:
    """The seconds of a window, checked; a few doublings of the model's frame where the user does not say.

    Args:
        window: what the user says.
        seconds: how long the sound is.
        frame: the seconds from one output of the model to the next.
        rate: samples per second; None for a spectrogram.
        explained: how long the part is that is explained, which the number of windows goes by.
    """
    if window is None:
        found = frame or SHORT
        while explained / found > SOME_WINDOWS or seconds / found > ALL_WINDOWS:
            found *= 2
        return found
    good = isinstance(window, (int, float)) and not isinstance(window, bool) and math.isfinite(window)
    least = max(seconds / MOST_WINDOWS, 1 / rate if rate else 0.0)
    if not good or window < least * (1 - 1e-9):
        raise OptionError(
            f"got window={window!r} for a sound of {seconds:.3g} s; expected seconds, at least {least:.2g}: 0.032 is 32 ms."
        )
    return float(window)


def _held(start: float) -> str:
    return f"What was before {start:.3g} s is held as the model heard it, and gets no share."


def _model_of(model: object, transform: Callable[..., Any] | None, rate: int | None, trust: bool) -> SoundModel:
    """A model as this module needs it."""
    if isinstance(model, str):
        model = load(model, trust=trust)
    if not isinstance(model, SoundModel):
        own = getattr(model, "__name__", type(model).__name__)
        model = SoundModel(_callable(model), own)
    if transform is not None:
        if not callable(transform):
            raise OptionError(f"got transform={transform!r}; expected a function from waveforms (N, n) to spectrograms.")
        model = replace(model, transform=transform)
    if model.rate is not None:
        check_rate(model.rate, "the model's rate")
    return model


def _callable(found: object) -> Callable[..., Any]:
    if not callable(found):
        raise OptionError(
            f"got a {type(found).__name__} as model; expected 'silero', a SoundModel, or a function of waveforms (N, samples)."
        )
    return cast(Callable[..., Any], found)
