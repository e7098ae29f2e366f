"""``integrand audio``: which moments of a recording made a model say what it says."""

from __future__ import annotations

import enum
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...words import shown
from ..command_line import (
    EXPERTS,
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    Tol,
    Trust,
    Verbose,
    check_name,
    check_out,
    figures,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    typed,
    working,
)

if TYPE_CHECKING:
    from .result import ExplainedSound
    from .sound_questions import SoundModel

ENDINGS = (".html", *PICTURES, ".csv", ".json")
SHOWN = 5
"""The windows that are printed: the strongest."""


class Features(enum.StrEnum):
    """What is explained of a sound."""

    waveform = "waveform"
    spectrogram = "spectrogram"


class SoundScale(enum.StrEnum):
    """The scale on which it is explained."""

    probability = "probability"
    logit = "logit"


def audio(
    sound: Annotated[Path, typer.Argument(metavar="FILE", help="A recording: WAV, FLAC, Ogg, MP3, AIFF.", show_default=False)],
    at: Annotated[
        str | None,
        typer.Option(
            help="For a model that says something at each moment: a second, 1.4, or a stretch, 1.2-1.6. Default: all of it.",
            rich_help_panel=WHAT,
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="For other models: the number or name of the output. Default: the one with the most.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        Features, typer.Option(help="Moments only (waveform), or moments and frequencies.", rich_help_panel=WHAT)
    ] = Features.waveform,
    window: Annotated[
        str | None,
        typer.Option(
            help="How long a window is: 32ms, 0.1s. Default: 32 ms, more for long recordings.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    score: Annotated[
        SoundScale | None,
        typer.Option(
            help="The scale on which it is explained. Default: the model's, probability for silero.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        float | None,
        typer.Option(min=0, help="Read the recording from this second on.", rich_help_panel=WHAT, show_default=False),
    ] = None,
    end: Annotated[
        float | None, typer.Option(min=0, help="Read it up to this second.", rich_help_panel=WHAT, show_default=False)
    ] = None,
    channel: Annotated[
        int | None,
        typer.Option(min=1, help="One channel, from 1. Default: all of them mixed.", rich_help_panel=WHAT, show_default=False),
    ] = None,
    tol: Tol = 0.02,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page to listen to (.html), a picture (.png, .svg, .pdf), numbers (.csv, .json).",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    force: Force = False,
    model: Annotated[
        str,
        typer.Option(
            help="silero, a detector of speech; or package.module:function for your own, with --trust.",
            rich_help_panel=NETWORK,
        ),
    ] = "silero",
    rate: Annotated[
        int | None,
        typer.Option(
            help="Samples per second that your own model takes. Default: those of the file.",
            rich_help_panel=NETWORK,
            show_default=False,
        ),
    ] = None,
    trust: Trust = False,
    device: Device = None,
    baseline: Annotated[
        str,
        typer.Option(
            help="silence, room (a quiet one), noise (as loud), mean (the mean spectrum), or another recording.",
            rich_help_panel=EXPERTS,
        ),
    ] = "silence",
    bands: Annotated[
        int, typer.Option(min=1, max=128, help="Bands of frequency, for a spectrogram.", rich_help_panel=EXPERTS)
    ] = 24,
    debug: Debug = False,
) -> None:
    """Which moments of a recording made a model say what it says? A detector of speech, or a model of yours."""
    check_name("--model", model, "silero, or package.module:function")
    check_out(out, ENDINGS, force=force)
    if at is not None and target is not None:
        raise OptionError("got --at and --target; expected one of them: --at for a moment, --target for an output.")
    asked = _moment(at) if at is not None else target
    length = None if window is None else _seconds(window)
    with working() as screen, noted() as notes:
        with screen.loading(), one_line("the model", debug=debug):
            from . import explain as explained
            from . import load, read

            network = load(model, device=device, trust=trust)
        if rate is not None and network.rate is not None and rate != network.rate:
            raise OptionError(
                f"got --rate {rate} for {network.name}, which takes {network.rate:,} samples per second; leave it out: "
                "recordings are resampled by themselves."
            )
        heard = read(sound, rate=rate or network.rate, start=start, end=end, channel=channel)
        asked = _checked(asked, network)
        bar = screen.batch(1)
        bar.begin(heard.name)
        how: dict[str, Any] = {"explain": explain.value, "target": asked, "score": score and score.value, "window": length}
        how |= {"bands": bands, "tol": tol, "max_evaluations": max_evaluations, "progress": bar.tell}
        with one_line(shown(heard.name), "the model takes waveforms (N, samples)", debug=debug):
            found = explained(network, heard, baseline, **how)
        if out is not None:
            with screen.doing(f"writing {out.name}"):
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    _report(found, as_json=as_json, verbose=verbose)
    say([*found.notes, *notes])
    if out is not None:
        print_line(f"wrote {out}", err=True)


def _report(found: ExplainedSound, *, as_json: bool, verbose: bool) -> None:
    """Print the answer."""
    if as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
        return
    print_line(headline_of(found))
    lines = str(found).splitlines()[1 : 1 + SHOWN]
    strongest = [line for line in lines if not line.startswith("  note:")]
    if strongest:
        print_shown("\n".join(strongest))
    if verbose:
        print_shown(figures(found.certificate))


def _checked(asked: Any, network: SoundModel) -> Any:
    """What is asked for, if the model can be asked it."""
    if network.frame is None and not isinstance(asked, str | None):
        raise OptionError("got --at for a model that answers once for the whole sound; expected --target, or neither.")
    if network.frame is not None and isinstance(asked, str):
        raise OptionError(
            f"got --target {shown(asked)!r} for {network.name}, which says one thing at each moment; expected --at, such as "
            "--at 1.4."
        )
    return asked


def _moment(text: str) -> float | tuple[float, float]:
    """A second, or a pair of them: ``1.4``, ``1.2-1.6``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*s?\s*(?:[-–:]\s*(\d+(?:\.\d*)?|\.\d+)\s*s?\s*)?", text)
    if found is None:
        raise OptionError(f"got --at {shown(text)!r}; expected a second, such as 1.4, or a stretch, such as 1.2-1.6.")
    return float(found[1]) if found[2] is None else (float(found[1]), float(found[2]))


def _seconds(text: str) -> float:
    """A length of time: ``32ms``, ``0.1s``, ``0.1``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|)\s*", text)
    if found is None or not float(found[1]) > 0:
        raise OptionError(f"got --window {shown(text)!r}; expected a length of time, such as 32ms or 0.1s.")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)
