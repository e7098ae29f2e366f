"""What explaining a series and explaining a forecast share: baselines by name, windows of time, and the call of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...api import integrated_gradients
from ...attribution import Attribution
from ...baselines.constructors import time_mean, trend
from ...errors import InputError, IntegrandError, ModelError, OptionError
from ...functions.foreign import check_model
from ...functions.model_state import modules_of, undisturbed
from ...functions.target import main_tensor
from ...render.series.time_axis import TimeAxis
from ...words import first_line, shortened, shown
from .series_input import LAYOUTS, Layout, TimeSeries, laid_out, time_series

Numbers = NDArray[np.float64]

NAMES = ("mean", "trend", "zero")
"""The baselines that have a name."""

USUAL_WINDOWS, ALONE = 25, 40
"""About how many windows a series is cut into where nothing is said, and up to how many steps each is a window of its own."""

CALENDAR = {"s": "s", "min": "m", "h": "h", "D": "D", "W": "W", "M": "M", "Y": "Y"}
"""Units of a window on an axis of dates, and numpy's names for them."""

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0, "W": 604800.0}

SAME = 1e-6
"""A series and its baseline are the same if they differ by less than this share of the series' largest value: rounding."""

_WINDOW = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)?\s*([A-Za-z]+)\s*")


@dataclass(frozen=True, eq=False)
class SeriesStart:
    """Where paths start for one series.

    Attributes:
        values: baselines, each (time, channels); several are averaged.
        name: in words.
        notes: what a reader should know of them.
    """

    values: tuple[Numbers, ...]
    name: str
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> Numbers:
        """What is drawn: the mean of the baselines, (time, channels)."""
        out: Numbers = np.mean(self.values, axis=0)
        return out


def start_of(baseline: Any, series: TimeSeries) -> SeriesStart:
    """The baselines of a series.

    Args:
        baseline: ``mean``, ``trend``, ``zero``, a number, another series of the same times and channels, or a list of these.
        series: what is explained.

    Raises:
        InputError: it does not fit the series, or is the series itself.
    """
    several = isinstance(baseline, (list, tuple)) and any(not isinstance(one, (int, float)) for one in baseline)
    parts = list(baseline) if several else [baseline]
    if not parts:
        raise OptionError("got an empty list of baselines; expected at least one.")
    found = [_one(part, series) for part in parts]
    values, names = tuple(one for one, _ in found), [name for _, name in found]
    size = float(np.abs(series.values).max()) or 1.0
    same = [np.abs(series.values - one).max(0) <= SAME * size for one in values]
    if all(one.all() for one in same):
        why = " (it is a straight line)" if "trend" in names else " (it is constant)" if set(names) <= {"mean", "zero"} else ""
        remedy = (
            "another series to compare it with" if "zero" in names else "baseline='zero', or another series to compare it with"
        )
        raise InputError(
            f"got the baseline {', '.join(names)} for a series that equals it{why}: there is nothing to explain. Pass {remedy}."
        )
    still = [series.names[c] for c in np.flatnonzero(np.all(same, axis=0))]
    told = f"{', '.join(still)} {'equals its' if len(still) == 1 else 'equal their'} baseline and can be given nothing."
    return SeriesStart(values, " and ".join(names), (told,) if still else ())


def _one(baseline: Any, series: TimeSeries) -> tuple[Numbers, str]:
    """One baseline, (time, channels), and its name."""
    wide = torch.from_numpy(series.values)
    if isinstance(baseline, str):
        if baseline not in NAMES:
            raise OptionError(
                f"got baseline={baseline!r}; expected one of {', '.join(map(repr, NAMES))}, a number, or another series."
            )
        if baseline == "zero":
            return np.zeros_like(series.values), baseline
        made = time_mean(wide) if baseline == "mean" else trend(wide, times=torch.from_numpy(series.axis.at))
        assert isinstance(made, Tensor)
        return made.numpy().copy(), baseline
    if isinstance(baseline, (int, float)) and not isinstance(baseline, bool):
        return np.full_like(series.values, baseline), f"{baseline:g}"
    frame = type(baseline).__module__.partition(".")[0] in ("pandas", "polars")
    shape = np.shape(baseline) if not frame and not isinstance(baseline, TimeSeries) else ()
    turned = len(shape) == 2 and shape != series.values.shape and shape == series.values.T.shape
    names = list(series.names) if frame and getattr(baseline, "ndim", 2) == 2 else None
    other = time_series(baseline, layout="channels-time" if turned else None, channels=names)
    if other.values.shape != series.values.shape:
        raise InputError(
            f"got a baseline of {len(other)} times and {len(other.names)} channels for a series of {len(series)} and "
            f"{len(series.names)}; expected the same. Cut or resample it."
        )
    return other.values, "another series"


def windows_of(window: Any, axis: TimeAxis) -> tuple[tuple[int, int], ...]:
    """Windows of time as (start, stop) in steps, in order and without gaps.

    >>> windows_of(2, TimeAxis.steps(5)), windows_of("1 Y", TimeAxis.dates_of(["1959-11", "1959-12", "1960-01"]))
    (((0, 2), (2, 4), (4, 5)), ((0, 2), (2, 3)))

    Args:
        window: a number of steps; a text with a unit, such as ``"0.5 s"``, ``"7 D"`` or ``"1 M"``; or None, which makes about
            25 of them, or one for each step of a short series.
        axis: the times.

    Raises:
        OptionError: it is none of these.
    """
    count = len(axis)
    if window is None:
        window = 1 if count <= ALONE else -(-count // USUAL_WINDOWS)
    if isinstance(window, (int, np.integer)) and not isinstance(window, bool) and window >= 1:
        return tuple((start, min(start + int(window), count)) for start in range(0, count, int(window)))
    expected = "expected a number of steps from 1 on, or a length with a unit, such as '0.5 s', '12 h', '7 D', '1 M' or '1 Y'"
    found = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    if found is None or found[2] not in CALENDAR:
        raise OptionError(f"got window={window!r}; {expected}.")
    size, unit = float(found[1] or 1), found[2]
    if size <= 0:
        raise OptionError(f"got window={window!r}; {expected}.")
    return _runs(_bins(size, unit, axis, window))


def _bins(size: float, unit: str, axis: TimeAxis, window: str) -> Any:
    """The number of the window that each step is in."""
    if unit in SECONDS and (axis.dates is None or size != int(size)):
        if axis.dates is None and axis.unit != "s":
            raise OptionError(
                f"got window={window!r} for times in {axis.unit or 'no unit'}; expected a number of steps. With rate=, or with "
                "dates as times, a length of time will do."
            )
        return np.floor((axis.at - axis.at[0]) / (size * SECONDS[unit]) + 1e-9)
    if axis.dates is None or size != int(size):
        raise OptionError(f"got window={window!r}; expected whole months or years, and dates as times.")
    if unit in SECONDS:  # from midnight of the first day on, not from a Thursday of 1970
        inside = (axis.dates - axis.dates[0].astype("datetime64[D]")).astype("timedelta64[us]").astype(np.int64)
        return inside // int(size * SECONDS[unit] * 1e6)
    return axis.dates.astype(f"datetime64[{CALENDAR[unit]}]").astype(np.int64) // int(size)


def _runs(bins: Any) -> tuple[tuple[int, int], ...]:
    cuts = [0, *(np.flatnonzero(np.diff(bins)) + 1).tolist(), len(bins)]
    return tuple(pairwise(cuts))


def place_of(model: Callable[..., Any], series: TimeSeries) -> tuple[torch.dtype, torch.device]:
    """The type of number and the device that a model computes with; those of the series where it has no weights."""
    weights = (weight for module in modules_of(model) for weight in module.parameters() if weight.is_floating_point())
    first = next(weights, None)
    if first is not None:
        return first.dtype, first.device
    return series.dtype or torch.float32, series.device or torch.device("cpu")


def integrated(
    model: Callable[..., Any], several: Sequence[TimeSeries], starts: Sequence[SeriesStart], layout: Layout, **options: Any
) -> Attribution:
    """Integrate for series of one length, a row each; says so where the model takes another layout.

    Args:
        model: what is explained.
        several: the series.
        starts: the baselines of each, equally many.
        layout: how the model takes them.
        **options: of :func:`integrand.integrated_gradients`.
    """
    dtype, device = place_of(model, several[0])
    rows = torch.stack([one.tensor(layout, dtype=dtype, device=device) for one in several])
    baselines = [
        torch.stack([laid_out(torch.from_numpy(start.values[k]), layout).to(device, dtype) for start in starts])
        for k in range(len(starts[0].values))
    ]
    given: Any = baselines[0] if len(baselines) == 1 else baselines
    with layout_told(model, several[0], layout, options):
        return integrated_gradients(model, rows, given, batched=True, **options)


@contextmanager
def layout_told(model: Callable[..., Any], series: TimeSeries, layout: Layout, options: Mapping[str, Any]) -> Iterator[None]:
    """Where a model fails on a series that it would take in another layout, an error that says which."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError) as error:
        if isinstance(error, (ModelError, OptionError)):
            raise
        hint = _other_layout(model, series, layout, options)
        if not hint:
            if isinstance(error, (IntegrandError, torch.OutOfMemoryError)):
                raise
            raise ModelError(
                f"the model fails on a series as {_shape(series, layout)} ({first_line(error)}), and on any other layout; "
                "expected the channels that it was trained on, as many times, and its layout. Choose among the channels "
                f"({shortened(', '.join(map(shown, series.names)), 200)}) with channels=[...]."
            ) from error
        raise InputError(
            f"the model cannot take a series as {_shape(series, layout)} ({first_line(error)}); it can take "
            f"{_shape(series, hint)}: pass layout={hint!r}."
        ) from error


def _shape(series: TimeSeries, layout: Layout) -> str:
    sizes = {"time": len(series), "channels": len(series.names)}
    return "(batch, " + ", ".join(f"{name} {sizes[name]}" for name in layout.split("-")) + ")"


def _other_layout(model: Callable[..., Any], series: TimeSeries, layout: Layout, options: Mapping[str, Any]) -> Layout | None:
    """Another layout in which the model runs, if there is one."""
    dtype, device = place_of(model, series)
    for other in LAYOUTS:
        if other == layout or (other == "time" and len(series.names) > 1):
            continue
        try:
            output_of(model, series.tensor(other, dtype=dtype, device=device)[None], options)
        except Exception:  # whatever a model says to a shape that it does not take
            continue
        return other
    return None


def output_of(model: Callable[..., Any], rows: Tensor, options: Mapping[str, Any]) -> Tensor:
    """The model's output as a tensor, without gradients; a model that has to be in eval mode is refused if it is not.

    Args:
        model: what is explained.
        rows: inputs, a row each.
        options: those of the explanation, with further arguments of the model.
    """
    check_model(model)
    with undisturbed(model), torch.no_grad():
        return main_tensor(model(rows, *options.get("args", ()), **(options.get("kwargs") or {}))).detach().cpu().double()
