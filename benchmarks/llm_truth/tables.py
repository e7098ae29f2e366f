"""Markdown tables of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]


def share(value: float) -> str:
    """A share in per cent with two or three digits."""
    if not np.isfinite(value):
        return "not finite"
    return f"{100 * value:,.0f}%" if value >= 0.0995 else f"{100 * value:.1f}%" if value >= 0.001 else "< 0.1%"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of a table."""
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    """The values of a field, without rows that do not have it."""
    return np.array([row[name] for row in rows if row.get(name) is not None], dtype=float)


def typical(rows: Sequence[Row], name: str, text: Callable[[float], str] = share, worst: Callable[..., Any] = np.max) -> str:
    """Median and worst of a field."""
    values = column(rows, name)
    return f"{text(float(np.median(values)))} ({text(float(worst(values)))})" if len(values) else ""


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by some fields, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def truth_tables(rows: Iterable[Row]) -> Iterator[str]:
    """Errors of everybody, a table for each start and score."""
    heads = (
        "by",
        "prompts",
        "gradients",
        "seconds",
        "off per feature",
        "off per token",
        "rank correlation of tokens",
        "another top token",
    )
    for (model, start, score), group in grouped(rows, "model", "start", "score").items():
        yield f"\n{model}, {score}, from {start}\n"
        lines = []
        for (who,), part in grouped(group, "who").items():
            changed = len(part) - int(sum(row["same top"] for row in part))
            lines.append(
                (
                    who,
                    len(part),
                    f"{np.median(column(part, 'gradients')):.0f}",
                    f"{np.median(column(part, 'seconds')):.1f}",
                    typical(part, "features"),
                    typical(part, "tokens"),
                    typical(part, "ranks", lambda value: f"{value:.2f}", np.min),
                    f"{changed} of {len(part)}",
                )
            )
        yield from table(heads, lines)


def surely_beyond(row: Row) -> bool:
    """Whether a claim is beyond its tolerance by more than the reference itself may be off."""
    return bool(row["converged"] and row["measured"] - row["doubt"] > row["tol"])


def claim_table(rows: Sequence[Row]) -> Iterator[str]:
    """Claims next to measured errors: how many are beyond their tolerance, and these one by one."""
    heads = ("by", "start", "score", "tol", "claims", "converged", "beyond tol", "surely", "median off", "worst off / tol")
    heads = (*heads, "worst token off / stated")
    lines = []
    for (call, start, score, tol), group in grouped(rows, "call", "start", "score", "tol").items():
        claims = [row for row in group if row["converged"]]
        if not claims:
            lines.append((call, start, score, f"{tol:.0%}", len(group), 0, *[""] * 5))
            continue
        ratios = column(claims, "measured") / tol
        cells = [f"{np.median(ratios) * tol:.2%}", f"{ratios.max():.2f}", f"{column(claims, 'token ratio').max():.1f}"]
        beyond = int((ratios > 1).sum()), sum(map(surely_beyond, claims))
        lines.append((call, start, score, f"{tol:.0%}", len(group), len(claims), *beyond, *cells))
    yield from table(heads, lines)
    late = [row for row in rows if row["converged"] and row["measured"] > row["tol"]]
    yield f"\nClaims beyond their tolerance: {len(late)} of {sum(row['converged'] for row in rows)}"
    yield f"Beyond it by more than the reference may be off: {sum(map(surely_beyond, late))}\n"
    if late:
        names = ("question", "call", "tol", "claimed", "measured", "doubt", "gradients")
        yield from table(
            names,
            (
                [row["question"].replace("|", "·"), row["call"], *(f"{row[n]:.2%}" for n in names[2:6]), row["gradients"]]
                for row in late
            ),
        )


def meaning_table(rows: Iterable[Row], families: Sequence[str]) -> Iterator[str]:
    """Where the decisive word stands."""
    heads = (
        "by",
        "prompts",
        "decisive word first",
        "in the top two",
        *families,
        "its share",
        "share of the first token",
        "seconds",
    )
    lines = []
    for (who,), group in grouped(rows, "who").items():
        good = [row for row in group if row.get("rank") is not None]
        ranks = column(good, "rank")
        if not good:
            lines.append((who, len(group), f"failed: {group[0]['failed']}", *[""] * (len(heads) - 3)))
            continue
        parts = [column([row for row in good if row["family"] == family], "rank") for family in families]
        cells = [share(float((part == 1).mean())) if len(part) else "" for part in parts]
        shares = [share(float(np.median(column(good, name)))) for name in ("share", "first")]
        seconds = f"{np.median(column(good, 'seconds')):.1f}"
        lines.append(
            (who, len(good), share(float((ranks == 1).mean())), share(float((ranks <= 2).mean())), *cells, *shares, seconds)
        )
    yield from table(heads, lines)
