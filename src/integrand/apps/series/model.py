"""Explains what any model says of a series, and what it forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from ...batch.rows import example_of
from ...errors import InputError, OptionError, TargetError
from ...evaluation.progress import ProgressOption
from ...functions.probabilities import adds_up_to_one
from ...functions.target import Score, main_tensor
from ...render.notebook import ResultList
from ...words import shown
from .forecast_result import ForecastExplanation
from .result import SeriesExplanation, as_values
from .series_input import Gaps, Layout, TimeSeries, find_channel, laid_out, layout_of, time_series
from .series_run import integrated, layout_told, output_of, place_of, start_of, windows_of

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

Horizon = int | slice | Sequence[int] | np.ndarray[Any, Any] | Literal["all", "sum", "mean"]
"""Which of the coming values: counted from 1, several of them, a slice as Python counts them, or their sum or mean."""

MOST_HORIZONS = 200
"""Horizons that are explained in one call; by hand: a page of more is of no use."""


@overload
def explain(
    model: Callable[..., Any], series: list[Any], baseline: Any = ..., **options: Any
) -> ResultList[SeriesExplanation]: ...


@overload
def explain(model: Callable[..., Any], series: Any, baseline: Any = ..., **options: Any) -> SeriesExplanation: ...


def explain(
    model: Callable[..., Any],
    series: Any,
    baseline: Any = "mean",
    *,
    target: int | str | None = None,
    classes: Sequence[str] | None = None,
    score: Score | None = None,
    channels: Sequence[str] | None = None,
    units: Sequence[str] | str | None = None,
    times: Any = None,
    rate: float | None = None,
    window: int | str | None = None,
    layout: Layout | None = None,
    gaps: Gaps = "refuse",
    scale: str = "",
    tol: float = 0.01,
    progress: ProgressOption = None,
    **options: Any,
) -> SeriesExplanation | ResultList[SeriesExplanation]:
    """Find what each value of a series adds to what a model says of it.

    >>> weights = torch.tensor([[0.0], [1.0], [2.0]])
    >>> found = explain(lambda x: (x * weights).sum((1, 2)), torch.tensor([[5.0], [6.0], [10.0]]))  # the mean is 7
    >>> found.values[1:, 0].round(3).tolist()
    [-1.0, 6.0]

    Args:
        model: a module in eval mode, or any callable, from series with a batch dimension to outputs.
        series: a tensor or an array, (time,) or (time, channels), or (channels, time) if ``layout`` says so; a pandas Series or
            DataFrame, or a polars one, with a row for each time. A list of series, of any lengths, or a tensor with one more
            dimension in front gives a list of results.
        baseline: where paths start: ``mean`` (of each channel over time), ``trend`` (the straight line that fits best),
            ``zero``, a number, another series of the same shape, or a list of these, whose attributions average.
        target: the output that is explained: its number, or the name of a class. None for the only one, or the top class.
        classes: names of the outputs, for a classifier.
        score: ``probability`` of the class, ``log-probability`` or ``logit``, the output as it is. By default the probability
            where classes are named, else the output.
        channels: names of the channels; of a frame, the columns that the model takes, in its order.
        units: of the channels, or one for all.
        times: a number or date for each value, or the name of a frame's column that has them.
        rate: values in a second, instead of times.
        window: what is added up: a number of steps, or a length such as ``"0.5 s"`` or ``"1 M"``. By default some 25 windows.
        layout: how the model takes a series after the batch dimension: ``time-channels``, ``channels-time`` or ``time`` (one
            channel without a dimension of its own). By default as a tensor of the series is: ``time`` for (time,), else
            ``time-channels``.
        gaps: where values are missing, ``refuse`` or ``interpolate``.
        scale: the unit of the output, such as ``thousand``.
        tol: the relative error over all values to integrate to.
        progress: a bar or a callback.
        **options: further ones of :func:`integrand.integrated_gradients`: ``max_evaluations``, ``steps``, ``args``, ...

    Returns:
        The explanation, or a list of them.
    """
    read: dict[str, Any] = {"layout": layout, "channels": channels, "units": units, "times": times, "rate": rate, "gaps": gaps}
    one, given = listed(series)
    if not given:
        raise InputError("got no series; expected at least one.")
    several = [time_series(part, **read) for part in given]
    names = None if classes is None else tuple(map(str, classes))
    asked = score or ("logit" if names is None else "probability")
    chosen = {"target": target_of(target, names), "score": asked, "tol": tol, "progress": progress, **options}
    found: dict[int, SeriesExplanation] = {}
    for rows in _same_shape(several):
        part = [several[i] for i in rows]
        for i, result in zip(rows, _explained(model, part, baseline, layout, window, names, chosen, scale), strict=True):
            found[i] = result
    return found[0] if one else ResultList(found[i] for i in range(len(several)))


def _explained(
    model: Callable[..., Any],
    several: Sequence[TimeSeries],
    baseline: Any,
    layout: str | None,
    window: Any,
    classes: tuple[str, ...] | None,
    options: Mapping[str, Any],
    scale: str,
) -> list[SeriesExplanation]:
    """The explanations of series of one shape."""
    how = layout_of(layout, several[0])
    windows = [windows_of(window, one.axis) for one in several]
    starts = [start_of(baseline, one) for one in several]
    dtype, device = place_of(model, several[0])
    with layout_told(model, several[0], how, options):
        output = output_of(model, torch.stack([one.tensor(how, dtype=dtype, device=device) for one in several]), options)
    said = [said_of(output[i : i + 1], classes, options["target"]) for i in range(len(several))]
    single = classes is not None and output[0].numel() == 1
    result = integrated(model, several, starts, how, **{**options, "target": None if single else options["target"]})
    found = []
    for i, one in enumerate(several):
        label, prediction, chances = said[i]
        alone = example_of(result, i)
        told = f"{label} ({options['score']})" if chances else label
        named = replace(alone.certificate.examples[0], target=told)
        alone = replace(alone, certificate=replace(alone.certificate, examples=(named,)))
        meta = {"baseline": starts[i].name, "layout": how, **alone.meta}
        notes = (*_notes(one, classes), *starts[i].notes)
        parts = (one, starts[i], alone, how, windows[i], label, prediction)
        found.append(SeriesExplanation(*parts, chances=chances, scale=scale, notes=notes, meta=meta))
    return found


def said_of(output: Tensor, classes: Sequence[str] | None, target: Any) -> tuple[str, str, dict[str, float]]:
    """What is explained, what the model says, and the probability of every class, from an output with one row."""
    if classes is None:
        label = "the score" if callable(target) else "the output" if output.numel() == 1 else f"output {target}"
        if target is None and output.numel() > 1:
            label = f"output {int(output.flatten().argmax())}"
        return label, label, {}
    row = output.reshape(-1)
    if len(row) != len(classes):
        if len(row) == 1 and len(classes) == 2:  # one logit for the second of two classes
            if target == 0:
                raise TargetError(
                    f"got the target {classes[0]!r}, and the model has one output, which speaks for {classes[1]!r}; expected "
                    f"that. What speaks for {classes[1]!r} speaks against {classes[0]!r}, with the sign turned."
                )
            up = float(row.sigmoid())
            chances = dict(zip(classes, (1 - up, up), strict=True))
            return classes[1], max(chances, key=chances.__getitem__), chances
        raise InputError(f"got {len(classes)} names of classes for {len(row)} outputs; expected one for each.")
    shares = row if adds_up_to_one(output) else row.softmax(0)
    chances = dict(zip(classes, shares.tolist(), strict=True))
    best = max(chances, key=chances.__getitem__)
    return (best if target is None else classes[target]), best, chances


def target_of(target: int | str | None, classes: Sequence[str] | None) -> Any:
    """The number of an output; a name is looked up among the classes.

    Raises:
        TargetError: there is no such class.
    """
    if not isinstance(target, str):
        if isinstance(target, int) and classes is not None and not 0 <= target < len(classes):
            raise TargetError(f"got the target {target}; expected 0 to {len(classes) - 1}, or one of {', '.join(classes)}.")
        return target
    known = [name.lower() for name in classes or ()]
    if target.strip().lower() in known:
        return known.index(target.strip().lower())
    if target.strip().isdigit():
        return target_of(int(target), classes)
    named = f"one of {', '.join(map(shown, classes))}" if classes else "the number of an output, or classes=[...] to name them"
    raise TargetError(f"got the target {target!r}; expected {named}.")


def forecast(
    model: Callable[..., Any],
    series: Any,
    baseline: Any = "mean",
    *,
    horizon: Horizon = "all",
    channel: str | int | None = None,
    channels: Sequence[str] | None = None,
    units: Sequence[str] | str | None = None,
    times: Any = None,
    rate: float | None = None,
    window: int | str | None = None,
    layout: Layout | None = None,
    gaps: Gaps = "refuse",
    scale: str | None = None,
    tol: float = 0.01,
    progress: ProgressOption = None,
    **options: Any,
) -> ForecastExplanation:
    """Find what each value of a history adds to each forecast value.

    Several horizons of one history share their forward passes.

    Args:
        model: from histories with a batch dimension to the next values: (N, horizons), or with several channels (N, horizons,
            channels), or (N, channels, horizons) where the layout has channels first.
        series: the history, as in :func:`explain`.
        baseline: as in :func:`explain`. With ``trend``, what is explained is how the forecast differs from that after a
            straight line, in the units of the series.
        horizon: which of the coming values: a number, counted from 1; several numbers; a slice, as Python counts; ``all``;
            or the ``sum`` or the ``mean`` of all.
        channel: which channel is forecast, where the model forecasts several.
        channels: as in :func:`explain`.
        units: as in :func:`explain`.
        times: as in :func:`explain`.
        rate: as in :func:`explain`.
        window: as in :func:`explain`.
        layout: as in :func:`explain`.
        gaps: as in :func:`explain`.
        scale: the unit of the forecast; by default that of the channel.
        tol: the relative error over the history to integrate to, for each horizon.
        progress: a bar or a callback.
        **options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        The explanation of all horizons that were asked for.
    """
    read: dict[str, Any] = {"layout": layout, "channels": channels, "units": units, "times": times, "rate": rate, "gaps": gaps}
    history = time_series(series, **read)
    how = layout_of(layout, history)
    start = start_of(baseline, history)
    windows = windows_of(window, history.axis)
    dtype, device = place_of(model, history)
    ends = torch.stack([laid_out(torch.from_numpy(one), how).to(device, dtype) for one in (history.values, *start.values)])
    with layout_told(model, history, how, options):
        ahead = output_of(model, ends, options)
    ahead, which, name = _one_channel(ahead, channel, history, how)
    wanted, joined = horizons_of(horizon, ahead.shape[1])
    targets: Any
    if joined:
        targets = _joined(joined, which, how)
        rows = [history]
    else:
        targets = [h - 1 if which is None else (which, h - 1) if how == "channels-time" else (h - 1, which) for h in wanted]
        rows = [history] * len(wanted)
    result = integrated(model, rows, [start] * len(rows), how, target=targets, tol=tol, progress=progress, **options)
    unit = scale if scale is not None else history.units[find_channel(name, history.names)] if name in history.names else ""
    told = [f"{name}, {joined} of {len(wanted)} ahead"] if joined else [f"{name}, {h} ahead" for h in wanted]
    examples = tuple(replace(one, target=text) for one, text in zip(result.certificate.examples, told, strict=True))
    result = replace(result, certificate=replace(result.certificate, examples=examples))
    meta = {"baseline": start.name, "layout": how, **result.meta}
    notes = (*_notes(history, None), *start.notes)
    if which is None and channel is None and len(history.names) > 1:
        notes = (*notes, f"The model forecasts one channel, which is taken for {shown(name)}; if it is another, pass channel=.")
    values, base = ahead[0].numpy(), ahead[1:].mean(0).numpy()
    return ForecastExplanation(
        history, start, result, how, windows, wanted, joined, name, values, base, scale=unit, notes=notes, meta=meta
    )


def _joined(kind: str, which: int | None, how: Layout) -> Callable[[Any], Tensor]:
    """The sum or the mean of all horizons of a channel, as a score."""

    def score(out: Any) -> Tensor:
        tensor = main_tensor(out)
        if which is not None:
            tensor = tensor[:, which] if how == "channels-time" else tensor[:, :, which]
        added: Tensor = tensor.flatten(1).sum(1) if kind == "sum" else tensor.flatten(1).mean(1)
        return added

    return score


def _one_channel(ahead: Tensor, channel: str | int | None, history: TimeSeries, how: Layout) -> tuple[Tensor, int | None, str]:
    """The forecast of one channel, (rows, horizons), its number in the output if that has channels, and its name."""
    if ahead.ndim == 1:
        ahead = ahead[:, None]
    if ahead.ndim == 2:
        name = history.names[find_channel(channel if channel is not None else 0, history.names)]
        return ahead, None, name
    if ahead.ndim != 3:
        raise InputError(
            f"the model forecasts a tensor of shape {tuple(ahead.shape)}; expected (batch, horizons), or with several channels "
            "(batch, horizons, channels), or (batch, channels, horizons) with layout='channels-time'."
        )
    wide = ahead.mT if how == "channels-time" else ahead
    count = wide.shape[2]
    names = history.names if count == len(history.names) else tuple(f"channel {i}" for i in range(count))
    if channel is None and count > 1:
        raise OptionError(
            f"the model forecasts {count} channels; expected which one with channel=: {', '.join(map(shown, names[:12]))}, or "
            "a number."
        )
    which = find_channel(channel if channel is not None else 0, names)
    return wide[:, :, which], which, names[which]


def horizons_of(horizon: Horizon, count: int) -> tuple[tuple[int, ...], Literal["", "sum", "mean"]]:
    """The horizons that are meant, counted from 1, and whether they are added up.

    >>> horizons_of(3, 12), horizons_of(slice(0, 2), 12), horizons_of("sum", 2)
    (((3,), ''), ((1, 2), ''), ((1, 2), 'sum'))

    Args:
        horizon: as in :func:`forecast`.
        count: how many the model forecasts.

    Raises:
        OptionError: there is no such horizon.
    """
    everything = tuple(range(1, count + 1))
    if isinstance(horizon, np.ndarray):
        horizon = horizon.tolist()
    if horizon == "sum":
        return everything, "sum"
    if horizon == "mean":
        return everything, "mean"
    if horizon == "all":
        found = everything
    elif isinstance(horizon, slice):
        found = everything[horizon]
    elif isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool):
        found = (int(horizon),)
    else:
        found = tuple(horizon) if isinstance(horizon, Sequence | range) and not isinstance(horizon, str) else ()
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in found)
    if not found or not whole or not set(found) <= set(everything):
        raise OptionError(
            f"got horizon={horizon!r}; expected a number from 1 to {count}, several of them, a slice, 'all', 'sum' or 'mean': "
            f"the model forecasts {count}."
        )
    if len(found) > MOST_HORIZONS:
        raise OptionError(f"got {len(found)} horizons; expected at most {MOST_HORIZONS} in one call. Ask for some of them.")
    return tuple(int(one) for one in found), ""


def inquiry(
    model: Callable[..., Any],
    series: Any,
    baseline: Any = "mean",
    *,
    target: int | str | None = None,
    classes: Sequence[str] | None = None,
    window: int | str | None = None,
    layout: Layout | None = None,
    **reading: Any,
) -> Inquiry:
    """What is asked about a series, for other methods and baselines: an output, window by window.

    ``inquiry(...).diagnose()`` compares the baselines mean, trend and zero; ``.compare_methods()`` other methods.

    Args:
        model: as in :func:`explain`.
        series: one series.
        baseline: where the path starts.
        target: the output; None for the top class.
        classes: names of the outputs.
        window: as in :func:`explain`.
        layout: as in :func:`explain`.
        **reading: ``channels``, ``units``, ``times``, ``rate`` and ``gaps``, as in :func:`explain`.
    """
    from ...analysis.inquiry import Inquiry

    one = time_series(series, layout=layout, **reading)
    how = layout_of(layout, one)
    dtype, device = place_of(model, one)

    def tensor(values: Any) -> Tensor:
        return laid_out(torch.from_numpy(values), how).to(device, dtype)[None]

    windows = windows_of(window, one.axis)
    times = np.concatenate([np.full(stop - start, w) for w, (start, stop) in enumerate(windows)])
    many = len(one.names)
    groups = as_values(torch.from_numpy(times)[:, None] * many + torch.arange(many), how)
    candidates = {}
    for name in ("mean", "trend", "zero"):
        try:
            candidates[name] = tensor(start_of(name, one).drawn)
        except InputError:  # a constant series is its own mean
            continue
    x = tensor(one.values)
    label, _, _ = said_of(output_of(model, x, {}), classes, index := target_of(target, classes))
    named = tuple(
        f"{name}, {one.axis.span(*span)}" if many > 1 else one.axis.span(*span) for span in windows for name in one.names
    )
    call: dict[str, Any] = {"target": index, "groups": groups.to(device), "batched": True}
    start = tensor(start_of(baseline, one).drawn)
    name_of = None if classes is None else list(classes).__getitem__
    return Inquiry(model, x, start, call, label, features=named, candidates=candidates, classes=name_of)


def listed(series: Any) -> tuple[bool, list[Any]]:
    """Whether one series is meant, and the series: a list of them, or the rows of a tensor with three dimensions."""
    if isinstance(series, TimeSeries):
        return True, [series]
    if isinstance(series, (list, tuple)) and not all(isinstance(part, (int, float)) for part in series):
        return False, list(series)
    if isinstance(series, (Tensor, np.ndarray)) and series.ndim == 3:
        return False, list(series)
    return True, [series]


def _same_shape(several: Sequence[TimeSeries]) -> list[list[int]]:
    """The numbers of series that can be stacked."""
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(several):
        groups.setdefault((one.values.shape, one.flat, one.dtype, one.device), []).append(i)
    return list(groups.values())


def _notes(series: TimeSeries, classes: Sequence[str] | None) -> tuple[str, ...]:
    """What a reader must not miss of a series."""
    notes = []
    if series.gaps:
        many = "value was" if series.gaps == 1 else "values were"
        notes.append(
            f"{series.gaps:,} missing {many} filled in by straight lines, at an end by the nearest value; what they "
            "add is what the filling adds."
        )
    if len(series.names) > len(series) and not series.flat:
        notes.append(
            f"The series has more channels ({len(series.names)}) than times ({len(series)}); if they are the other way round, "
            "transpose it."
        )
    return tuple(notes)
