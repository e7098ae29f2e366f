"""What is asked of a model of sound: which output, at which moment, and which part of the recording that depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import InputError, TargetError
from ...functions.model_state import undisturbed
from ...functions.target import Score, main_tensor
from ...words import short_repr
from .sound_files import Sound

Floats = NDArray[np.float64]
Moment = float | tuple[float, float]

MEMORY = 8.0
"""Seconds before an asked moment that are explained with it, for recurrent models: what was before is held as it was heard."""


@dataclass(frozen=True, eq=False)
class SoundModel:
    """A model of sound, and what has to be known of it to explain what it says.

    Attributes:
        module: from waveforms (N, n), or from what ``transform`` makes of them, to outputs.
        name: what it is called.
        rate: the samples per second that it takes; None for any.
        transform: from waveforms (N, n) to spectrograms (N, ..., frequencies, frames), for a model that takes those. It has to
            be differentiable if waveforms are to be explained.
        classes: the names of its outputs.
        frame: for a model that says something at each moment, (N, frames): the seconds from one output to the next.
        label: for such a model, what its outputs speak for.
        score: the scale that is explained: ``probability`` passes outputs through a sigmoid (of several classes, softmax).
        causal: whether an output depends on nothing that comes later. What does is not computed then.
        source: where it is from, in words.
    """

    module: Callable[..., Any]
    name: str = "your model"
    rate: int | None = None
    transform: Callable[..., Any] | None = None
    classes: tuple[str, ...] = ()
    frame: float | None = None
    label: str = "output"
    score: Score = "logit"
    causal: bool = False
    source: str = ""

    __repr__ = short_repr

    @property
    def device(self) -> torch.device:
        """The device that its weights are on."""
        tensors = [*self.module.parameters(), *self.module.buffers()] if isinstance(self.module, nn.Module) else []
        return tensors[0].device if tensors else torch.device("cpu")

    def outputs(self, x: Tensor) -> Tensor:
        """What the model gives for a waveform, (1, n), or for a spectrogram, without gradients."""
        given = x if self.transform is None or x.ndim > 2 else self.transform(x)
        with undisturbed(self.module), torch.no_grad():
            return main_tensor(self.module(given)).detach()


@dataclass(frozen=True, eq=False)
class SoundQuestion:
    """What is asked of a model: which of its outputs, of which part of the sound.

    Attributes:
        module: what is called; for a recurrent model, as it is after what came before.
        label: what is explained.
        when: for which moment, in words.
        asked: that moment in seconds; None for all, or for models that answer once.
        begin: the first sample of the part that is explained.
        end: the sample after the last.
        target: what :func:`integrand.integrated_gradients` takes.
        score: likewise.
        curve: what the model says over time.
    """

    module: Callable[..., Any]
    label: str
    when: str
    asked: tuple[float, float] | None
    begin: int
    end: int
    target: Any
    score: Score
    curve: Floats | None = None

    __repr__ = short_repr


@dataclass(frozen=True)
class FrameMean:
    """The mean of some outputs over time as a score: from (N, frames) to (N,).

    Attributes:
        first: the first output.
        last: the one after the last.
        score: the scale on which the mean is taken.
    """

    first: int
    last: int
    score: Score

    def __call__(self, output: Any) -> Tensor:
        """One score for each row."""
        found = main_tensor(output)[:, self.first : self.last]
        if self.score == "probability":
            found = found.sigmoid()
        elif self.score == "log-probability":
            found = nn.functional.logsigmoid(found)
        return found.mean(1)


def question(
    network: SoundModel, x: Tensor, heard: Sound, target: int | str | Moment | None, score: Score | None
) -> SoundQuestion:
    """What is asked, after the model was run once."""
    outputs = network.outputs(x)
    if network.frame is None:
        return asked_once(network, outputs, target, score, x.shape[1])
    if outputs.ndim != 2 or len(outputs) != 1:
        raise InputError(f"the model gives {tuple(outputs.shape)} for one sound; expected (1, frames), since it has a frame.")
    count, frame, scale = outputs.shape[1], network.frame, score or network.score
    first, last, when = _frames(target, count, frame, heard)
    curve = outputs[0].double()
    curve = curve.sigmoid() if scale == "probability" else nn.functional.logsigmoid(curve) if scale != "logit" else curve
    module, begin, end = network.module, 0, x.shape[1]
    each = round(frame * heard.rate)
    if network.causal:
        end = min(end, last * each)
        remembered = getattr(module, "after", None)
        if remembered is not None and target is not None and first * frame > MEMORY:
            begin = (first - round(MEMORY / frame)) * each
            module = remembered(x[:, :begin])
    shift = begin // each
    moment = None if target is None else (first * frame, min(last * frame, heard.seconds))
    about = (begin, end, FrameMean(first - shift, last - shift, scale), scale, curve.cpu().numpy())
    return SoundQuestion(module, network.label, when, moment, *about)


def _frames(target: object, count: int, frame: float, heard: Sound) -> tuple[int, int, str]:
    """From which output to which, and when that is, in words."""
    seconds = heard.seconds
    if target is None:
        return 0, count, f"on average over {seconds:.3g} s"
    ends = target if isinstance(target, (tuple, list)) else (target,)
    good = all(isinstance(one, (int, float)) and not isinstance(one, bool) and math.isfinite(one) for one in ends)
    if not good or len(ends) not in (1, 2):
        raise TargetError(f"got target={target!r}; expected a second, such as 1.4, or a pair of them, such as (1.2, 1.6).")
    low, high = float(ends[0]), float(ends[-1])
    if low < 0 or low >= seconds or high > seconds + frame or (len(ends) == 2 and high <= low):
        asked = "-".join(f"{one:g}" for one in ends)
        since = f" Seconds count from the beginning of the part, at {heard.start:g} s of the recording." if heard.start else ""
        raise TargetError(
            f"got {asked} s of a sound of {seconds:.3g} s; expected a moment, or a stretch, from 0 to {seconds:.3g} s.{since}"
        )
    first = min(count - 1, int(low / frame + 1e-9))
    if len(ends) == 1:
        return first, first + 1, f"at {low:.3g} s"
    last = max(first + 1, min(count, math.ceil(high / frame - 1e-9)))
    return first, last, f"from {low:.3g} to {high:.3g} s"


def asked_once(network: SoundModel, outputs: Tensor, target: object, score: Score | None, samples: int) -> SoundQuestion:
    """What is asked of a model that answers once for a whole sound."""
    if outputs.ndim == 0 or outputs.ndim > 2 or len(outputs) != 1:
        raise InputError(
            f"the model gives {tuple(outputs.shape)} for one sound; expected (1, classes) or (1,). If it says something "
            "at each moment, pass SoundModel(model, frame=seconds)."
        )
    count = outputs.numel()
    scale = score or network.score
    index = _output(target, network.classes, count, int(outputs.reshape(-1).argmax()))
    label = network.classes[index] if index < len(network.classes) else network.label if count == 1 else f"output {index}"
    return SoundQuestion(network.module, label, "", None, 0, samples, None if outputs.ndim == 1 else index, scale)


def _output(target: object, classes: Sequence[str], count: int, best: int) -> int:
    """The number of an output."""
    if target is None:
        return best
    if isinstance(target, str) and target in classes:
        return classes.index(target)
    text = str(target).strip()
    if text.isdigit() and int(text) < count:
        return int(text)
    names = f", or one of {', '.join(map(str, classes[:10]))}" if classes else ""
    raise TargetError(f"got target={target!r}; expected the number of an output, 0 to {count - 1}{names}.")
