"""silero-vad, a detector of speech (MIT), as a network that can be differentiated through time.

The weights are those of the package ``silero-vad``, a TorchScript file inside its wheel. Its own wrapper keeps the recurrent
state between calls, one window of 32 ms each, without a gradient from one to the next. Here a whole recording is one call, so
that earlier moments get their share of what the network says later; the probabilities are the wrapper's, to rounding.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import FileError, InputError, MissingExtraError, quiet
from ...words import first_line, shown
from .sound_spectrum import magnitude

RATE, WINDOW, CONTEXT = 16_000, 512, 64
"""Samples per second; samples of a window, 32 ms; and those before it that the network sees again."""

WIDTH, ROWS, FRAME, STEP = 128, 129, 256, 128
"""Units of the recurrent layer; rows of its spectrum, and samples of a frame and of a step of it."""

FILE = "silero_vad.jit"
SOURCE = "silero-vad with the weights of the Python package silero-vad {version} (MIT)"

NAMES = {
    "stft.forward_basis_buffer": "spectrum.weight",
    **{f"encoder.{k}.reparam_conv.{part}": f"encoder.{k}.{part}" for k in range(4) for part in ("weight", "bias")},
    **{f"decoder.rnn.{part}_{side}": f"memory.{part}_{side}" for part in ("weight", "bias") for side in ("ih", "hh")},
    **{f"decoder.decoder.2.{part}": f"speech.{part}" for part in ("weight", "bias")},
}
"""What the tensors of the package's file are called here."""


class SileroVad(nn.Module):
    """The 16 kHz network of silero-vad over a whole recording: the logit of speech in each window of 512 samples.

    A recording that is no whole number of windows is filled up with silence, as the package's own wrapper does.
    """

    state: Tensor
    context: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 2 * ROWS, FRAME, stride=STEP, bias=False)
        self.encoder = nn.ModuleList(
            [
                nn.Conv1d(ROWS, 128, 3, padding=1),
                nn.Conv1d(128, 64, 3, stride=2, padding=1),
                nn.Conv1d(64, 64, 3, stride=2, padding=1),
                nn.Conv1d(64, WIDTH, 3, padding=1),
            ]
        )
        self.memory = nn.LSTMCell(WIDTH, WIDTH)
        self.speech = nn.Conv1d(WIDTH, 1, 1)
        self.register_buffer("state", torch.zeros(2, WIDTH), persistent=False)
        self.register_buffer("context", torch.zeros(CONTEXT), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """From waveforms at 16 kHz, (N, n), to logits (N, ceil(n / 512))."""
        return self._heard(x)[0]

    def after(self, x: Tensor) -> SileroVad:
        """The network as it is after it has heard a recording, (1, n) with whole windows; weights are shared."""
        if x.shape[0] != 1 or x.shape[1] % WINDOW:
            raise InputError(f"got a sound of shape {tuple(x.shape)}; expected (1, n) with whole windows of {WINDOW} samples.")
        later = copy.copy(self)
        later._buffers = dict(self._buffers)
        if x.shape[1]:
            with torch.no_grad():
                later.state = self._heard(x)[1][:, 0]
                later.context = x[0, -CONTEXT:].clone()
        return later

    def _heard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, (N, windows), and the state after the last window, (2, N, 128)."""
        rows = len(x)
        filled = functional.pad(x, (0, -x.shape[1] % WINDOW))
        seen = torch.cat([self.context.to(x.dtype).expand(rows, -1), filled], 1).unfold(1, CONTEXT + WINDOW, WINDOW)
        count = seen.shape[1]
        parts = self.spectrum(functional.pad(seen.reshape(rows * count, 1, -1), (0, CONTEXT), mode="reflect"))
        features = magnitude(parts[:, :ROWS], parts[:, ROWS:])
        for layer in self.encoder:
            features = functional.relu(layer(features))
        steps = features.reshape(rows, count, WIDTH)
        hidden, cell = (one.to(x.dtype).expand(rows, -1) for one in self.state)
        out = []
        for k in range(count):
            hidden, cell = self.memory(steps[:, k], (hidden, cell))
            out.append(hidden)
        logits: Tensor = self.speech(functional.relu(torch.stack(out, 2)))[:, 0]
        return logits, torch.stack([hidden, cell])


def load_silero() -> tuple[SileroVad, str]:
    """The network with the weights of the installed package ``silero-vad``, and where they are from, in words.

    The package is found but not imported: importing it sets the number of threads that torch uses.

    Raises:
        MissingExtraError: the package is not installed.
    """
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        raise MissingExtraError("silero-vad", "audio", "detecting speech")
    file = Path(found.origin).parent / "data" / FILE
    network = SileroVad()
    try:
        with quiet(DeprecationWarning):  # of torch.jit itself
            inner = torch.jit.load(str(file), map_location="cpu")._model
        state = {NAMES[name]: value for name, value in inner.state_dict().items()}
        network.load_state_dict(state)
    except Exception as error:
        raise FileError(
            f"{shown(str(file))} is not as expected ({first_line(error)}); expected the network of silero-vad 6. "
            "Install it with: pip install 'silero-vad>=6.2,<7'"
        ) from error
    return network.eval().requires_grad_(False), SOURCE.format(version=_version())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("silero-vad")
    except PackageNotFoundError:
        return "of unknown version"
