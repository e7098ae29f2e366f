"""``integrand series``: which stretches of a signal made a model say what it says, or forecast what it forecasts."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...files import writing
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
    ScoreName,
    Tol,
    Trust,
    Verbose,
    check_name,
    check_out,
    default_device,
    figures,
    noted,
    one_line,
    only_model,
    print_line,
    print_shown,
    say,
    typed,
    working,
)

if TYPE_CHECKING:
    from .series_input import TimeSeries
    from .shipped_models import SeriesModel

ENDINGS = (".html", *PICTURES, ".json", ".csv")

SHIPPED = ("gunpoint", "motions", "airline")
"""The models that come with integrand-models, each with series to try it on."""


class SeriesLayout(enum.StrEnum):
    """How a model takes a series after the batch dimension."""

    time_channels = "time-channels"
    channels_time = "channels-time"
    time = "time"


class GapsName(enum.StrEnum):
    """What is done where values are missing."""

    refuse = "refuse"
    interpolate = "interpolate"


def series(
    data: Annotated[
        str,
        typer.Argument(
            metavar="SERIES",
            help="A table (.csv, .tsv, .jsonl, .parquet) with a row for each time; or an example: gunpoint, motions, airline.",
        ),
    ],
    row: Annotated[int, typer.Option(min=0, help="Which example: its row in the official test set.", rich_help_panel=WHAT)] = 0,
    time: Annotated[
        str | None, typer.Option(help="The column with the times. Default: the first, if it has dates.", rich_help_panel=WHAT)
    ] = None,
    channels: Annotated[
        str | None, typer.Option(help="The columns that the model takes, in its order: a,b,c.", rich_help_panel=WHAT)
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Values in a second, if there is no column of times.", rich_help_panel=WHAT)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The class or the output to explain. Default: the top one.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName | None, typer.Option(help="The scale on which a class is explained.", rich_help_panel=WHAT)
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(help="Of a forecaster: 3, or 1,3,6, or 1-12, all, sum, mean; counted from 1.", rich_help_panel=WHAT),
    ] = None,
    channel: Annotated[
        str | None, typer.Option(help="Of a forecaster of several channels: which one.", rich_help_panel=WHAT)
    ] = None,
    window: Annotated[
        str | None, typer.Option(help='What is added up: steps, or a length: 5, "0.5 s", "7 D", "1 M".', rich_help_panel=WHAT)
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Where paths start: mean, trend, zero, a number, or a file with another series.", rich_help_panel=WHAT
        ),
    ] = None,
    gaps: Annotated[GapsName, typer.Option(help="Where values are missing.", rich_help_panel=WHAT)] = GapsName.refuse,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json, .csv).", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    force: Force = False,
    model: Annotated[
        list[str] | None,
        typer.Option(help="gunpoint, motions, airline, or your own: package.module:function.", rich_help_panel=NETWORK),
    ] = None,
    trust: Trust = False,
    classes: Annotated[
        str | None, typer.Option(help="Names of your model's classes, in its order: a,b,c.", rich_help_panel=NETWORK)
    ] = None,
    layout: Annotated[SeriesLayout | None, typer.Option(help="How your model takes a series.", rich_help_panel=NETWORK)] = None,
    device: Device = None,
    unit: Annotated[str, typer.Option(help="Of your model's output, such as kW.", rich_help_panel=EXPERTS)] = "",
    debug: Debug = False,
) -> None:
    """Which stretches of a signal made a model say what it says? Which past values made its forecast?"""
    check_out(out, ENDINGS, force=force)
    named = _model_name(data, model)
    asked: dict[str, Any] = {"window": _window(window), "tol": tol, "max_evaluations": max_evaluations}
    with working() as screen:
        with screen.loading(), one_line("the model", debug=debug):
            known, network = _loaded(named, trust, device or default_device())
        with screen.doing("reading the series"):
            given = _read(data, known, row, time, channels, rate, gaps.value)
            start = _baseline(baseline, time, channels, gaps.value)
        if start is not None:
            asked["baseline"] = start
        bar = screen.batch(1)
        bar.begin(data)
        asked["progress"] = bar.tell
        forecasts = horizon is not None or (known is not None and known.kind == "forecaster")
        _check_given(forecasts, target, score, channel, classes, layout, unit, known)
        with noted() as notes, one_line("the model", debug=debug):
            found: Any
            own = {"layout": _value(layout)} if known is None else {}
            if forecasts:
                asked |= {"horizon": _horizon(horizon), **({} if channel is None else {"channel": _channel(channel)})}
                found = _forecast(known, network, given, **asked, **({"scale": unit or None} if known is None else {}), **own)
            else:
                asked |= {"target": target, **({} if score is None else {"score": score.value})}
                names = (
                    {} if known is not None else {"classes": _listed(classes, "--classes") if classes else None, "scale": unit}
                )
                found = _explained(known, network, given, **asked, **names, **own)
        if out is not None:
            with screen.doing("writing"), writing(out):
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    if as_json:
        typer.echo(json.dumps(found.numbers(), allow_nan=False))
    else:
        _show(found, verbose, known, row if data in SHIPPED else None)
    say([*found.notes, *notes])
    if out is not None:
        print_line(f"wrote {out}", err=True)


def _forecast(known: SeriesModel | None, network: Any, given: TimeSeries, **asked: Any) -> Any:
    """The explanation of a forecast, by a shipped model or the user's own."""
    if known is not None:
        return known.forecast(given, **asked)
    from .model import forecast

    return forecast(network, given, **asked)


def _explained(known: SeriesModel | None, network: Any, given: TimeSeries, **asked: Any) -> Any:
    """The explanation of a series, by a shipped model or the user's own."""
    if known is not None:
        return known.explain(given, **asked)
    from .model import explain

    return explain(network, given, **asked)


def _show(found: Any, verbose: bool, known: SeriesModel | None, row: int | None) -> None:
    print_shown(str(found))
    truth = known.examples[row][1] if known is not None and row is not None else ""
    if truth:
        print_line(f"  The test set says: {truth}.")
    examples = found.explanations if hasattr(found, "explanations") else (found,)
    for one in examples if verbose else ():
        print_shown(f"{one.certificate.target}\n{figures(one.certificate)}")


def _model_name(data: str, model: Sequence[str] | None) -> str:
    """The model that was asked for; that of an example where none was."""
    if model:
        return only_model(model, "gunpoint, motions, airline or package.module:function")
    if data in SHIPPED:
        return data
    raise OptionError(
        f"got no --model for {data!r}; expected one of {', '.join(SHIPPED)}, or your own as package.module:function. Try an "
        f"example without a model: integrand series {SHIPPED[0]} --row 3."
    )


def _loaded(name: str, trust: bool, device: str) -> tuple[SeriesModel | None, Any]:
    """A shipped model, or the user's own."""
    if ":" in name:
        from ...loading import load_model

        found: Any = load_model(name, trust=trust)
        return None, found.to(device) if hasattr(found, "parameters") and hasattr(found, "to") else found
    from .shipped_models import load

    known = load(name, device=device)  # type: ignore[arg-type]  # whatever was typed; it says what it expected
    return known, known.module


def _read(
    data: str, known: SeriesModel | None, row: int, time: str | None, channels: str | None, rate: float | None, gaps: Any
) -> TimeSeries:
    """The series that is explained."""
    from .series_files import read_series
    from .shipped_models import load

    check_name("SERIES", data, "the name of a file, or of an example")
    if data in SHIPPED and not Path(data).exists():
        if time or channels or rate:
            raise OptionError("got --time, --channels or --rate with an example; expected them with a file. Leave them out.")
        source = known if known is not None and known.name == data else load(data)  # type: ignore[arg-type]
        return source.example(row)
    names = None if channels is None else _listed(channels, "--channels")
    if rate is None and known is not None and time is None:
        found = read_series(Path(data), channels=names, gaps=gaps)
        plain = found.axis.unit == "step" and known.rate is not None
        return read_series(Path(data), channels=names, gaps=gaps, rate=known.rate) if plain else found
    return read_series(Path(data), time=time, channels=names, rate=rate, gaps=gaps)


def _baseline(given: str | None, time: str | None, channels: str | None, gaps: Any) -> Any:
    """A baseline by name, a number, or the series in a file."""
    from .series_run import NAMES

    if given is None or given in NAMES:
        return given
    try:
        return float(given)
    except ValueError:
        pass
    if not Path(given).exists():
        raise OptionError(f"got --baseline {given!r}; expected {', '.join(NAMES)}, a number, or a file with another series.")
    from .series_files import read_series

    names = None if channels is None else _listed(channels, "--channels")
    return read_series(Path(given), time=time, channels=names, gaps=gaps)


def _check_given(
    forecasts: bool,
    target: str | None,
    score: Any,
    channel: str | None,
    classes: str | None,
    layout: Any,
    unit: str,
    known: SeriesModel | None,
) -> None:
    """Refuse what does not go together."""
    if forecasts and (target is not None or score is not None or classes is not None):
        raise OptionError("got --target, --score or --classes for a forecast; expected --horizon. Leave them out.")
    if forecasts and known is not None and known.kind != "forecaster":
        raise OptionError(f"got --horizon for {known.name}, which classifies; expected it for a forecaster. Leave it out.")
    if not forecasts and channel is not None:
        raise OptionError("got --channel without --horizon; expected it for a forecaster. --channels names the columns.")
    if known is not None and (classes is not None or layout is not None or unit):
        raise OptionError(f"got --classes, --layout or --unit for {known.name}, which has its own. Leave them out.")


def _listed(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"got {option} {text!r} with an empty name; expected names with commas between them: a,b,c.")
    return names


def _window(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.strip().isdigit() else text


def _channel(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _value(layout: SeriesLayout | None) -> Any:
    return None if layout is None else layout.value


def _horizon(text: str | None) -> Any:
    """Horizons as they are typed: a number, several, a range, or a word.

    >>> _horizon("3"), _horizon("1,6"), _horizon("2-4"), _horizon("sum")
    (3, [1, 6], [2, 3, 4], 'sum')
    """
    if text is None:
        return "all"
    wanted = text.strip().lower()
    if wanted in ("all", "sum", "mean"):
        return wanted
    found: list[int] = []
    for part in wanted.split(","):
        ends = part.strip().split("-")
        if len(ends) > 2 or not all(end.strip().isdigit() and len(end) < 7 for end in ends):
            raise OptionError(f"got --horizon {text!r}; expected 3, or 1,3,6, or 1-12, or all, sum or mean.")
        found += range(int(ends[0]), int(ends[-1]) + 1)
    return found[0] if len(found) == 1 else found
