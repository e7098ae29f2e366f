"""The results as tables: what everybody took, what that is over integrand's time, and whether claims held."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from .store import Row

HEADS = ("network", "inputs", "error", "who", "gradients", "time", "measured", "claimed", "time over integrand's", "how")
WHO = {
    "integrand": "integrand",
    "fixed": "Captum, one number of steps for all",
    "saliency": "saliency, one number of steps for all",
    "default": "Captum, 50 steps",
    "oracle": "Captum, the fewest steps for each",
}
AGAINST = ("fixed", "default", "oracle")
SURE = 0.5
"""Of a tolerance: what a reference may be unsure of, where something is judged by it."""
Runs = list[dict[str, Any]]


def told(content: dict[str, Any]) -> str:
    """Everything in Markdown."""
    rows = content["rows"]
    machine = f"{content.get('machine')}, torch {content.get('torch')}, {content.get('threads')} threads"
    parts = [
        f"Measured on {machine}. Median over inputs, with the worst in brackets; ratios with their range.",
        table(rows),
        "A peer's time over integrand's, on the same inputs:",
        ratios(rows),
        "Claims: measured error of every run of integrand over what was asked for:",
        honesty(rows),
        "References and steps:",
        references(rows),
    ]
    return "\n\n".join(parts) + "\n"


def tolerances(rows: dict[str, Row]) -> list[str]:
    """All that were measured, the largest first, as runs name them."""
    names = {run for row in rows.values() for one in row["inputs"].values() for run in one["runs"]}
    return sorted({name.split()[1] for name in names if name.startswith("integrand ")}, key=float, reverse=True)


def runs_of(row: Row, who: str, tol: str) -> Runs:
    """What a competitor took on each input, in the order of the inputs; beside each, integrand's ``mine``."""
    name = "default" if who == "default" else f"{who} {tol}"
    out = []
    for label, one in row["inputs"].items():
        if name in one["runs"] and f"integrand {tol}" in one["runs"]:
            out.append(one["runs"][name] | {"mine": one["runs"][f"integrand {tol}"], "label": label})
    return out


def over(runs: Runs) -> list[float]:
    """Each input's time over integrand's."""
    return [run["seconds"] / run["mine"]["seconds"] for run in runs]


def table(rows: dict[str, Row]) -> str:
    """One line per network, error and competitor."""
    lines = []
    for row in rows.values():
        for tol in tolerances(rows):
            for who in WHO:
                if runs := runs_of(row, who, tol):
                    lines.append(
                        [f"{row['name']} ({row['weights']})", str(len(runs)), f"{float(tol):.0%}", *_cells(row, who, tol, runs)]
                    )
    return markdown(HEADS, lines)


def _cells(row: Row, who: str, tol: str, runs: Runs) -> list[str]:
    about = "about " if any("timed_steps" in run for run in runs) else ""
    ratio = "" if who == "integrand" else _range(over(runs))
    if any(not run.get("reached", True) for run in runs):
        about, ratio = "at least ", f"at least {ratio}"
    return [
        WHO[who],
        _worst(runs, "gradients", lambda n: f"{n:.0f}"),
        about + _worst(runs, "seconds", seconds),
        _worst(runs, "measured", _percent),
        _worst(runs, "claimed", _percent),
        ratio,
        _how(row, who, tol, runs),
    ]


def _how(row: Row, who: str, tol: str, runs: Runs) -> str:
    """What else was set, chosen or found."""
    parts = []
    if who == "integrand":
        parts += sorted({run["precision"] for run in runs})
        parts += [f"{status} on {count}" for status, count in _counted(run["status"] for run in runs) if status not in GOOD]
    if who in ("fixed", "saliency"):
        found = row["fixed"]["captum" if who == "fixed" else who][tol_key(row, who, tol)]
        parts.append(f"within the error on {found['within']} of {found['inputs']}" if found["reached"] else "not reached")
    if who == "oracle" and (missed := sum(not run.get("reached", True) for run in runs)):
        parts.append(f"not reached on {missed}")
    if who == "default" and (shifts := [run["shift"] for run in runs if "shift" in run]):
        parts.append(
            f"TF32 moves it by {_percent(statistics.median(shifts))}, {_percent(min(shifts))} to {_percent(max(shifts))}"
        )
    if chunks := {run["chunk"] for run in runs if "chunk" in run}:
        parts.append(f"{max(chunks)} rows at a time")
    if timed := {run["timed_steps"] for run in runs if "timed_steps" in run}:
        parts.append(f"timed with {min(timed)} steps and scaled")
    return ", ".join(parts)


GOOD = ("converged", "exact")


def tol_key(row: Row, who: str, tol: str) -> str:
    """A tolerance as ``fixed`` names it."""
    return next(key for key in row["fixed"]["captum" if who == "fixed" else who] if float(key) == float(tol))


def _counted(values: Any) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return sorted(counts.items())


def ratios(rows: dict[str, Row]) -> str:
    """The three comparisons of each network, with the goals at 1%."""
    heads = ["network", "inputs", "error", *(f"{who}: time" for who in AGAINST), "default: its error"]
    lines = []
    for row in rows.values():
        for tol in tolerances(rows):
            found = {who: runs_of(row, who, tol) for who in AGAINST}
            if any(found.values()):
                cells = [_range(over(runs)) + _goal(row, who, tol, runs) if runs else "" for who, runs in found.items()]
                count = max(len(runs) for runs in found.values())
                errors = _worst(found["default"], "measured", _percent)
                kind = "kinked" if row["kinked"] else "smooth"
                lines.append([f"{row['name']} ({row['weights']}; {kind})", str(count), f"{float(tol):.0%}", *cells, errors])
    return markdown(heads, lines)


def goal(row: Row, who: str) -> float | None:
    """What is aimed for at 1%: a peer's time over integrand's, at least; None where nothing is."""
    if who == "fixed":
        return 8.0
    if who == "default":
        return 1 / 3 if row["kinked"] else 4.0
    return 0.5 if not row["kinked"] else 3.0 if row["image"] else None


def _goal(row: Row, who: str, tol: str, runs: Runs) -> str:
    """Whether the median reaches the goal."""
    aim = goal(row, who)
    if float(tol) != 0.01 or aim is None:
        return ""
    return f", {'meets' if statistics.median(over(runs)) >= aim else 'misses'} {aim:.2g}x"


def honesty(rows: dict[str, Row]) -> str:
    """Of all runs of integrand, how many were further off than asked for, and the worst; where the reference is sure enough."""
    heads = ("error", "network", "runs", "over the tolerance", "over 1.25 of it", "worst", "over their claim", "not judged")
    lines = []
    for tol in tolerances(rows):
        every: Runs = []
        for row in rows.values():
            if runs := runs_of(row, "integrand", tol):
                runs = [run | {"doubt": row["inputs"][run["label"]]["reference"]["doubt"]} for run in runs]
                every += runs
                lines.append([f"{float(tol):.0%}", row["name"], *_held(runs, float(tol))])
        lines.append([f"{float(tol):.0%}", "all", *_held(every, float(tol))])
    return markdown(heads, lines)


def _held(runs: Runs, tol: float) -> list[str]:
    judged = [run for run in runs if run["doubt"] <= SURE * tol]
    left = f"{len(runs) - len(judged)}, for doubt of the reference" if len(judged) < len(runs) else "0"
    if not judged:
        return ["0", "", "", "", "", left]
    worst = max(judged, key=lambda run: run["measured"])
    counts = [sum(run["measured"] > factor * tol for run in judged) for factor in (1.0, 1.25)]
    said = f"{worst['measured'] / tol:.2f} x ({worst['label'][:40]}; reference ± {worst['doubt'] / tol:.2f})"
    return [str(len(judged)), *map(str, counts), said, str(sum(run["measured"] > run["claimed"] for run in judged)), left]


def references(rows: dict[str, Row]) -> str:
    """How sure the references are, how many steps Captum needs, and whether its own answer is that of the plain loop."""
    tols = tolerances(rows)
    heads = ["network", "reference", "doubt", *(f"steps to {float(tol):.0%}" for tol in tols), "Captum's answer is off by"]
    lines = []
    for row in rows.values():
        some = [one for one in row["inputs"].values() if "reference" in one]
        if not some:
            continue
        first = some[0]["reference"]
        cells = [row["name"], f"{first['nodes']} {first['rule']} in {first['precision']}"]
        cells.append(_worst([one["reference"] for one in some], "doubt", _percent))
        for tol in tols:
            found = [one["fewest"].get("captum", {}).get(str(float(tol))) for one in some]
            reached = sorted(steps for steps in found if steps)
            cells.append(f"{statistics.median(reached):.0f} ({reached[0]} to {reached[-1]})" if reached else "")
        agreement = row.get("agreement", {}).get("captum")
        lines.append([*cells, "" if agreement is None else f"{agreement:.0e}"])
    return markdown(heads, lines)


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def seconds(value: float) -> str:
    """In words of three digits."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _percent(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "none"


def _worst(runs: Runs, name: str, shown: Callable[[float], str]) -> str:
    """The median, and the largest in brackets where there are several."""
    values = [run[name] for run in runs if name in run and run[name] == run[name]]
    if not values:
        return ""
    middle = shown(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({shown(max(values))})"


def _range(values: list[float]) -> str:
    middle = f"{statistics.median(values):.2g}x"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2g} to {max(values):.2g})"
