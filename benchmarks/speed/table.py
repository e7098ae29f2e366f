"""The results as a table, and what they come to."""

from __future__ import annotations

import math
from typing import Any

from .measure import kind
from .store import Row

LEAST = 1e6
"""Bytes of memory below which there is none to speak of."""
HEADS = ("network", "batch", "error", "who", "gradients", "time", "first call", "peak memory", "measured", "claimed", "how")


def table(rows: list[Row]) -> str:
    """Markdown, one line per competitor."""
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for row in sorted(rows, key=_place(rows)):
        lines += shown(row)
    return "\n".join(lines)


def _place(rows: list[Row]) -> Any:
    """Cases in the order in which they were run."""
    order = {key: at for at, key in enumerate(dict.fromkeys(row["key"] for row in rows))}
    return lambda row: (order[row["key"]], row["batch"], row["tol"] is None, -(row["tol"] or 0))


def shown(row: Row) -> list[str]:
    """The lines of one row; ratios are over integrand's."""
    mine = row["who"].get("integrand", {})
    lines = []
    for name, entry in row["who"].items():
        tol = "" if row["tol"] is None else f"{row['tol']:.1%}"
        cells = [f"{row['case']} ({row['weights']})", str(row["batch"]), tol, name]
        if "seconds" not in entry:
            closest = f"{entry['closest'][1]:.2%}" if "closest" in entry else ""
            cells += ["", "", "", "", closest, "", entry.get("failed", "")]
        else:
            first = _seconds(entry["cold"]) if "cold" in entry else ""
            claimed = f"{entry['claimed']:.2%}" if "claimed" in entry else ""
            cells += [_evaluations(entry), _time(entry, mine), first, _memory(entry, mine)]
            cells += [f"{entry['measured']:.2%}{_doubt(row)}", claimed, _how(entry)]
        lines.append(f"| {' | '.join(cells)} |")
    if "limit" in mine:
        cells = [f"{row['case']} ({row['weights']})", str(row["batch"]), f"{row['tol']:.1%}", "arithmetic limit"]
        over = f"integrand takes {mine['seconds'] / mine['limit']:.1f}x as long"
        lines.append(f"| {' | '.join([*cells, '', _seconds(mine['limit']), '', '', '', '', over])} |")
    return lines


def _doubt(row: Row) -> str:
    """What the reference is unsure of, where that matters."""
    doubt = row["reference"]["doubt"]
    return f" ± {doubt:.2%}" if row["tol"] is not None and not doubt <= row["tol"] / 3 else ""


def _evaluations(entry: dict[str, Any]) -> str:
    return f"{entry['gradients']}" + (f" + {entry['forwards']} forwards" if entry.get("forwards") else "")


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _time(entry: dict[str, Any], mine: dict[str, Any]) -> str:
    about = "about " if "timed_steps" in entry else ""
    ratio = f" ({entry['seconds'] / mine['seconds']:.2f}x)" if "seconds" in mine and mine is not entry else ""
    return f"{about}{_seconds(entry['seconds'])}{ratio}"


def _memory(entry: dict[str, Any], mine: dict[str, Any]) -> str:
    if "peak" not in entry:
        return str(entry.get("no_peak", ""))[:60]
    ratio = f" ({entry['peak'] / max(mine['peak'], LEAST):.2f}x)" if "peak" in mine and mine is not entry else ""
    return f"{entry['peak'] / 1e6:,.0f} MB{ratio}"


def _how(entry: dict[str, Any]) -> str:
    """What else was set or chosen."""
    parts = [entry.get(name, "") for name in ("precision", "rule", "rows", "remark")]
    if "timed_steps" in entry:
        parts.append(f"timed with {entry['timed_steps']} of {entry['steps']} steps")
    if entry.get("status", "converged") not in ("converged", "exact"):
        parts.append(entry["status"])
    return ", ".join(part for part in parts if part)


SUMS = (
    "network",
    "batch",
    "Captum's time",
    "Captum's memory",
    "fastest other peer",
    "time over limit",
    "at the largest batch's",
)


def summary(rows: list[Row], rates: dict[str, float]) -> str:
    """Per network and batch, at 1% or nearest to it: what the peers take more, and how far the limit is."""
    tol = min((row["tol"] for row in rows if row["tol"]), key=lambda tol: abs(math.log(tol / 0.01)), default=0.01)
    lines = [f"At {tol:.0%}, over integrand's:", f"| {' | '.join(SUMS)} |", "|" + "---|" * len(SUMS)]
    some = [row for row in sorted(rows, key=_place(rows)) if row["tol"] == tol and "seconds" in row["who"].get("integrand", {})]
    for row in some:
        largest = max((one for one in some if one["key"] == row["key"]), key=lambda one: one["batch"])
        cells = [row["case"], str(row["batch"]), *_peers(row), *_limits(row, largest, rates)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _peers(row: Row) -> tuple[str, str, str]:
    """Captum's time and memory, and the fastest of the others."""
    mine, captum = row["who"]["integrand"], row["who"].get("captum", {})
    time = f"{captum['seconds'] / mine['seconds']:.2f}x" if "seconds" in captum else captum.get("failed", "")
    memory = f"{captum['peak'] / max(mine['peak'], LEAST):.2f}x" if "peak" in captum and "peak" in mine else ""
    others = {
        name: one["seconds"] for name, one in row["who"].items() if "seconds" in one and name not in ("integrand", "captum")
    }
    fastest = min(others, key=lambda name: others[name], default=None)
    return time, memory, "" if fastest is None else f"{fastest} {others[fastest] / mine['seconds']:.2f}x"


def _limits(row: Row, largest: Row, rates: dict[str, float]) -> tuple[str, str]:
    """Time over the limit at the precision used, and at the one that the largest batch used."""
    mine = row["who"]["integrand"]
    used, there = kind(mine["precision"]), kind(largest["who"]["integrand"]["precision"])
    over = mine["seconds"] / mine["limit"]
    return f"{used}: {over:.1f}x", f"{there}: {over * rates[there] / rates[used]:.1f}x"
