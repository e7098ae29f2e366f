"""Series from pandas, polars, arrays and files: names, times, gaps; what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from integrand.apps.series.result import place_of_time
from integrand.apps.series.series_files import read_series
from integrand.apps.series.series_input import layout_of, time_series
from integrand.apps.series.series_run import windows_of
from integrand.errors import FileError, InputError, OptionError
from integrand.render.series.time_axis import TimeAxis


def test_pandas() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2026-03-01", periods=3, freq="h", tz="Europe/Berlin")
    found = time_series(pd.DataFrame({"b": [1, 2, 3], "a": [4.0, 5.0, 6.0]}, index=index), channels=["a", "b"])
    assert found.names == ("a", "b")
    assert found.values.tolist() == [[4, 1], [5, 2], [6, 3]]
    assert found.axis.label(1) == "2026-03-01 01:00"
    alone = time_series(pd.Series([1.0, 2.0], name="load", index=pd.period_range("2026-01", periods=2, freq="M")))
    assert (alone.names, alone.flat, alone.axis.label(1)) == (("load",), True, "Feb 2026")
    counted = time_series(pd.Series([1.0, 2.0]))
    assert (counted.names, counted.axis.unit) == (("signal",), "step")
    seconds = time_series(pd.Series([1.0, 2.0], index=pd.to_timedelta([0, 500], unit="ms")))
    assert (seconds.axis.at.tolist(), seconds.axis.unit) == ([0.0, 0.5], "s")
    column = pd.DataFrame({"when": pd.to_datetime(["2026-01-01", "2026-01-02"]), "x": [1.0, 2.0]})
    for times in (None, "when"):
        assert time_series(column, times=times).names == ("x",)
    with pytest.raises(InputError, match=r"no numbers, such as city \((object|str)\).*channels="):
        time_series(pd.DataFrame({"x": [1.0], "city": ["Rome"]}))
    with pytest.raises(InputError, match="the column 'y'; expected one of x, city"):
        time_series(pd.DataFrame({"x": [1.0], "city": ["Rome"]}), channels=["y"])


def test_time_zones() -> None:
    """Times are those of the zone's clocks, wherever they come from; where these go back, one is told."""
    pd, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    summer = pd.date_range("2021-06-30", periods=4, freq="h", tz="Europe/Berlin")
    autumn = pd.date_range("2021-10-31", periods=4, freq="h", tz="Europe/Berlin")

    def forms(index):
        column = pd.DataFrame({"when": index, "x": np.arange(4.0)})
        zoned = polars.DataFrame({"when": index.tz_convert("UTC").tz_localize(None).to_numpy(), "x": np.arange(4.0)})
        zoned = zoned.with_columns(polars.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"))
        return (column, {}), (column, {"times": "when"}), (column.set_index("when"), {}), (zoned, {})

    for frame, options in forms(summer):
        assert time_series(frame, **options).axis.label(3) == "2021-06-30 03:00"
    for frame, options in forms(autumn):
        with pytest.raises(InputError, match=r"Europe/Berlin, among which clocks are put back.*tz_convert\('UTC'\)"):
            time_series(frame, **options)
    assert time_series(pd.Series(np.arange(4.0), autumn.tz_convert("UTC"))).axis.even
    axis = time_series(pd.Series(np.arange(4.0), summer)).axis
    assert place_of_time(axis, "2021-06-30T03:00") == 3 * 3600
    assert place_of_time(axis, summer[3].tz_localize(None)) == 3 * 3600
    with pytest.raises(InputError, match="with a time zone"):
        place_of_time(axis, summer[3])


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"t": ["2026-01-01", "2026-01-03"], "x": [1, 2], "y": [3.5, None]}).with_columns(
        pl.col("t").str.to_date()
    )
    with pytest.raises(InputError, match=r"y has no number at 1 of 2 times \(the first: 2026-01-03"):
        time_series(frame)
    found = time_series(frame, channels=["x"])
    assert (found.names, found.values.tolist(), found.axis.at.tolist()) == (("x",), [[1], [2]], [0, 172800])
    assert time_series(pl.Series("load", [1.0, 2.0])).names == ("load",)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0, 2, 1], r"1\.0 comes after 2\.0 \(row 2\)"),
        ([0, 1, 1], "comes twice"),
        (["2026-01-02", "2026-01-01", "2026-01-03"], "comes after 2026-01-02"),
        (["a", "b", "c"], "neither numbers nor dates"),
        ([0, 1], "got 2 times for 3 values"),
        ([0, float("nan"), 2], "not all finite"),
    ],
)
def test_times_that_are_none(times: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        time_series([1.0, 2.0, 3.0], times=times)


def test_uneven_times_are_drawn_where_they_are() -> None:
    axis = TimeAxis.numbers([0.0, 1.0, 4.0, 5.0], "s")
    assert not axis.even
    assert axis.edges.tolist() == [-0.5, 0.5, 2.5, 4.5, 5.5]
    assert TimeAxis.dates_of(["2026-01", "2026-02", "2026-03"]).even  # months count as equal
    ends = TimeAxis.dates_of(["2025-12-31", "2026-01-31", "2026-02-28"]).extended(2)
    assert [ends.label(i) for i in (3, 4)] == ["2026-03-31", "2026-04-30"]
    days = TimeAxis.dates_of(["2026-01-01", "2026-01-02", "2026-01-03"]).extended(1)
    assert days.label(3) == "2026-01-04"
    assert len(TimeAxis.numbers([3.0])) == 1


@pytest.mark.parametrize("unit", ["s", "m", "h", "D", "M", "Y"])
def test_marks_of_an_axis_are_round_and_few(unit: str) -> None:
    start = np.datetime64("1999-11-30T22:10:07")
    for count in (3, 40, 700):
        stamps = (start.astype(f"datetime64[{unit}]") + np.arange(count)).astype("datetime64[us]")
        axis = TimeAxis.dates_of(stamps)
        ticks = axis.ticks(9)
        assert 1 <= len(ticks) <= 10
        places = [place for place, _ in ticks]
        assert places == sorted(places)
        assert all(axis.edges[0] <= place <= axis.edges[-1] for place in places)
        assert len({text for _, text in ticks}) == len(ticks)


def test_windows() -> None:
    days = TimeAxis.dates_of(np.datetime64("2026-01-30") + np.arange(5))
    assert windows_of("1 M", days) == ((0, 2), (2, 5))
    assert windows_of("2 D", TimeAxis.dates_of(np.datetime64("1970-01-01") + np.arange(5))) == ((0, 2), (2, 4), (4, 5))
    seconds = TimeAxis.numbers(np.arange(10) / 4, "s")
    monday = TimeAxis.dates_of(np.datetime64("2021-03-01") + np.arange(10))
    assert windows_of("7 D", monday) == windows_of("1 W", monday) == ((0, 7), (7, 10))
    assert windows_of("0.5 s", seconds) == ((0, 2), (2, 4), (4, 6), (6, 8), (8, 10))
    assert len(windows_of(None, TimeAxis.steps(40))) == 40
    assert len(windows_of(None, TimeAxis.steps(1000))) == 25
    for bad in (0, -1, 1.5, "3x", "s 3", "0 s", True, ""):
        with pytest.raises(OptionError, match="expected a number of steps"):
            windows_of(bad, seconds)
    with pytest.raises(OptionError, match="whole months or years, and dates"):
        windows_of("1 M", seconds)


def test_tables_in_files(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("date,load,temp\n2026-01-01 00:00:00+00:00,1,2\n2026-01-01T01:00Z,3,\n2026-01-01 02:00,5,6\n")
    with pytest.raises(InputError, match="temp has no number at 1 of 3"):
        read_series(file)
    found = read_series(file, gaps="interpolate", units=["kW", "°C"])
    assert found.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (found.names, found.units, found.gaps) == (("load", "temp"), ("kW", "°C"), 1)
    assert found.axis.label(1) == "2026-01-01 01:00"
    assert read_series(file, channels=["load"]).names == ("load",)
    plain = tmp_path / "plain.csv"
    plain.write_text("x\n1\n2\n")
    assert read_series(plain, rate=2.0).axis.at.tolist() == [0.0, 0.5]
    for content, message, error in (
        ("date,x\n2026-01-01,one\n", "got 'one' in the column x, row 1; expected a number", InputError),
        ("date,x\nyesterday,1\n2026-01-01,2\n", "got 'yesterday' in the column date, row 1", InputError),
        ("date,x\n", "no rows", FileError),
        ("date,x\n1,2,3\n", "row 1: it has 3 cells; expected 2", FileError),
        ("", "no heading", FileError),
    ):
        plain.write_text(content)
        with pytest.raises(error, match=message):
            read_series(plain)
    with pytest.raises(InputError, match="--time 'when'; expected one of date, load, temp"):
        read_series(file, time="when")
    with pytest.raises(OptionError, match="--rate, and the file has times"):
        read_series(file, rate=3.0)


def test_tensors_keep_their_type() -> None:
    found = time_series(torch.ones(4, 2, dtype=torch.float64))
    assert found.dtype is torch.float64
    assert time_series(torch.ones(2, 4), layout="channels-time").values.shape == (4, 2)
    assert time_series([1, 2, 3]).flat
    with pytest.raises(InputError, match="got a str as a series"):
        time_series("gunpoint")
    with pytest.raises(InputError, match="at least one time"):
        time_series(np.zeros((0, 2)))
    with pytest.raises(OptionError, match="layout='time' for a series of 2 channels"):
        layout_of("time", found)
