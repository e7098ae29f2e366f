"""A comparison as plain text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..words import number, percent, seconds, share_of
from .comparison_result import Comparison, Floats


def text_of(comparison: Comparison) -> str:
    """Tables for a terminal: what each method misses and costs, how alike they are, and who failed."""
    several = comparison.examples > 1
    lines = [f"{question(comparison)}"]
    lines += aligned(_methods(comparison, several), left=(0, 8, 9))
    mean = f", mean of {comparison.examples} examples" if several else ""
    if len(comparison.names) > 1:
        lines += ["", f"rank correlations{mean} (values above the diagonal, magnitudes below)"]
        lines += aligned(_matrix_text(comparison), left=(0, 1))
    if comparison.failures:
        lines += ["", "gave nothing"]
        lines += [f"  {name}: {message}" for name, message in comparison.failures.items()]
    return "\n".join(lines)


def question(comparison: Comparison) -> str:
    """What was explained and by how much the score changes, in words."""
    change = next(iter(comparison.changes.values()))
    if comparison.examples > 1:
        return f"{comparison.examples} examples; F(x) - F(x') from {change.min():.4g} to {change.max():.4g}"
    target = next(iter(comparison.attributions.values())).certificate[0].target
    return f"{target}; F(x) - F(x') = {change[0]:.4g}"


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """One line per method, under a line of titles."""
    return _methods(comparison, comparison.examples > 1)


def _methods(comparison: Comparison, several: bool) -> list[tuple[str, ...]]:
    at_most = " (worst)" if several else ""
    titles = (
        "method",
        f"sum misses{at_most}",
        f"of change{at_most}",
        "gradients",
        "forwards",
        "seconds",
        f"error{at_most}",
        "tolerance",
        "status",
        "no promise of",
    )
    return [titles, *(_line(comparison, name) for name in comparison.names)]


def _line(comparison: Comparison, name: str) -> tuple[str, ...]:
    cost, certificate = comparison.costs[name], comparison.attributions[name].certificate
    gap = comparison.gaps[name]
    states = list(dict.fromkeys(example.status.value for example in certificate))
    return (
        name,
        f"{gap[np.argmax(np.abs(gap))]:+.1e}",
        share_of(float(comparison.relative_gaps[name].max())),
        str(cost.gradients),
        str(cost.forwards),
        seconds(cost.seconds).removesuffix(" s"),
        percent(certificate.error),
        "-" if np.isnan(certificate[0].tol) else percent(certificate[0].tol),
        " / ".join(states),
        ", ".join(comparison.broken[name]) or "-",
    )


def _matrix_text(comparison: Comparison) -> list[tuple[str, ...]]:
    values, sizes = comparison.mean_correlations(), comparison.mean_correlations(magnitudes=True)
    count = len(comparison.names)
    lines = [("", "", *(str(j + 1) for j in range(count)))]
    for i, name in enumerate(comparison.names):
        cells = [cell(values, i, j) if j > i else cell(sizes, i, j) if j < i else "·" for j in range(count)]
        lines.append((str(i + 1), name, *cells))
    return lines


def cell(matrix: Floats, i: int, j: int) -> str:
    """A correlation for people; a dash where there is none.

    >>> cell(np.array([[1.0, -0.004]]), 0, 1), cell(np.array([[np.nan]]), 0, 0)
    ('0.00', '–')
    """
    value = matrix[i, j]
    return "–" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def aligned(rows: Sequence[tuple[str, ...]], *, left: tuple[int, ...]) -> list[str]:
    """Columns of equal width, numbers to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            part.ljust(wide) if k in left else part.rjust(wide) for k, (part, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def misses(comparison: Comparison, name: str, example: int) -> str:
    """What a map adds up to and misses, in words."""
    change, gap = float(comparison.changes[name][example]), float(comparison.gaps[name][example])
    share = float(comparison.relative_gaps[name][example])
    return f"adds up to {number(change + gap, 3)} of {number(change, 3)} (misses {share_of(share)})"


def spent(comparison: Comparison, name: str, example: int) -> str:
    """What a map took and how its run ended, in words."""
    one = comparison.attributions[name].certificate[example]
    work = f"{one.gradients} gradient{'s' * (one.gradients != 1)}" if one.gradients else f"{one.forwards} forwards"
    whole = " for all" if comparison.examples > 1 else ""
    error = "" if one.error == 0 else f", error {percent(one.error)}"
    return f"{work} · {seconds(comparison.costs[name].seconds)}{whole} · {one.status.value}{error}"
