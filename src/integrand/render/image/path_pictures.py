"""The path in numbers: the score along it, and where the attribution mass was collected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...attribution import Attribution
from ...certificate import ExampleCertificate
from ...errors import InputError, OptionError
from ...profile import Profile
from ...words import number
from ..certificate_text import amount, caption
from ..figures import GREY, INK, WARNING, FigureCell, fitted, plain
from ..scene import labels_of, photos_of
from .panel import Panel
from .pixels import Array, photo_pixels

SHARES = (0.5, 0.9)
"""The shares of the mass whose times are marked."""


@dataclass(frozen=True, slots=True)
class Journey:
    """One path and what is said of it.

    Attributes:
        label: what was explained.
        note: where the mass lies and from where on the score hardly changes, in words.
        certificate: of the example.
        mean: from t = 0 to 1, the pieces of a polyline one after the other, several baselines averaged.
        single: each of several baselines on its own.
        reached: the times up to which :data:`SHARES` of the mass lie.
        thumbnails: pictures along the path with their times as titles.
        times: of the thumbnails.
    """

    label: str
    note: str
    certificate: ExampleCertificate
    mean: Profile
    single: tuple[Profile, ...]
    reached: tuple[float, ...]
    thumbnails: tuple[Panel, ...]
    times: tuple[float, ...]


def journey(
    result: Attribution,
    photo: Any,
    baseline: Any,
    *,
    along: Callable[[float], Any] | None,
    thumbnails: int,
    labels: str | None,
    example: int,
) -> Journey:
    """What is drawn of one path; the options are those of :func:`integrand.render.image.path`."""
    if result.profile is None:
        raise InputError(
            "the result has no profile of its path; expected one of integrated_gradients or path_attribution, which keep the "
            "score and the mass at every point they evaluate"
        )
    if not 0 <= example < len(result.certificate):
        raise OptionError(f"got example={example}; expected 0 to {len(result.certificate) - 1}")
    if thumbnails == 1 or thumbnails < 0:
        raise OptionError(f"got thumbnails={thumbnails!r}; expected 0 for none, or at least 2")
    certificate = result.certificate[example]
    mean, single = joined(result.profile.of(example), certificate)
    reached = tuple(mean.reached(share) for share in SHARES)
    label = labels_of(labels, [certificate.target])[0]
    shown = thumbnails if photo is not None or along is not None else 0
    times = tuple(np.linspace(0, 1, shown).tolist()) if shown else ()
    if times and along is None:
        if single or len(certificate.curves) > 1:
            times = ()  # which of the pieces would it be?
        else:
            photo = photos_of(photo, len(result.certificate))[example]
            along = _line(photo, baseline)
    frames = tuple(_frame(along(t), t) for t in times) if along is not None else ()
    return Journey(label, remarks(mean, certificate, reached), certificate, mean, single, reached, frames, times)


def _line(photo: Array, baseline: Any) -> Callable[[float], Array]:
    end, _ = photo_pixels(photo)
    start = np.zeros_like(end) if baseline is None else photo_pixels(photos_of(baseline, 1)[0])[0]
    if start.shape != end.shape and start.size != 3:
        raise InputError(f"the baseline has {start.shape[:2]} pixels and the photo {end.shape[:2]}; expected as many")
    return lambda t: (1 - t) * start + t * end


def _frame(photo: Any, t: float) -> Panel:
    pixels, note = photo_pixels(photos_of(photo, 1)[0])
    return Panel(f"{t:.2g}", note, np.rint(255 * pixels).astype(np.uint8))


def joined(profile: Profile, certificate: ExampleCertificate) -> tuple[Profile, tuple[Profile, ...]]:
    """The path as one piece from t = 0 to 1, and its parts where it is a mean.

    Args:
        profile: of one example.
        certificate: whose curves say whether pieces follow each other (weight 1 each) or are averaged.
    """
    pieces = np.unique(profile.piece).tolist()
    parts = tuple(_whole(profile.of(int(profile.example[0]), piece=piece)) for piece in pieces)
    if len(parts) == 1:
        return parts[0], ()
    weights = np.array([certificate.curves[piece].weight if certificate.curves else 1 / len(parts) for piece in pieces])
    if np.allclose(weights, 1):
        count = len(parts)
        t = np.concatenate([(k + part.t) / count for k, part in enumerate(parts)])
        score = np.concatenate([part.score for part in parts])
        return _profile(t, score, *(count * np.concatenate([getattr(p, n) for p in parts]) for n in ("slope", "mass"))), ()
    t = np.unique(np.concatenate([part.t for part in parts]))
    columns = [
        np.average([np.interp(t, part.t, getattr(part, name)) for part in parts], axis=0, weights=weights)
        for name in ("score", "slope", "mass")
    ]
    return _profile(t, *columns), parts


def _whole(piece: Profile) -> Profile:
    """A piece from 0 to 1: what a rule without the ends did not see there is as at its first and last point."""
    t, columns = piece.t, (piece.score, piece.slope, piece.mass)
    first, last = int(t[0] > 0), int(t[-1] < 1)
    return _profile(np.r_[[0.0] * first, t, [1.0] * last], *(np.pad(column, (first, last), "edge") for column in columns))


def _profile(t: Array, score: Array, slope: Array, mass: Array) -> Profile:
    none = np.zeros(len(t), np.int64)
    return Profile(none, none, t, score, slope, mass)


def settled(mean: Profile, certificate: ExampleCertificate, within: float = 0.1) -> float:
    """The time from which on the score stays within this share of its change from F(x); NaN if it did not change."""
    far = np.abs(mean.score - certificate.score) > within * abs(certificate.score - certificate.baseline_score)
    if certificate.score == certificate.baseline_score:
        return math.nan
    last = np.flatnonzero(far)
    return float(mean.t[min(last[-1] + 1, len(mean.t) - 1)]) if last.size else 0.0


def remarks(mean: Profile, certificate: ExampleCertificate, reached: tuple[float, ...]) -> str:
    """Where the mass lies and when the score has arrived, in a sentence."""
    if not math.isfinite(reached[0]):
        return "no attribution mass on this path: the score does not change with the input"
    half, most = (number(t, 2) for t in reached)
    arrived = settled(mean, certificate)
    said = f"half of the attribution mass lies before t = {half}, 90% before t = {most}"
    if math.isfinite(arrived) and arrived < 1:
        said += f"; the score is 90% there from t = {number(arrived, 2)} on"
    return said


LEFT, WIDE, RIGHT = 0.85, 6.6, 0.6
HEAD, SCORE, MASS, GAP, FOOT = 0.58, 1.55, 1.15, 0.42, 0.82
THUMB, TALLEST, UNDER = 1.05, 1.5, 0.5
FILL = ("#2b6ca3", "#7fb2d6", "#cfe2f0")
"""The first half of the mass, what comes up to 90%, and the rest."""


def draw_path(journey: Journey) -> Figure:
    """Draw a path."""
    thumbs = max(map(_high, (frame.pixels.shape for frame in journey.thumbnails)), default=0.0)
    top = thumbs + (UNDER if thumbs else 0)
    width, height = LEFT + WIDE + RIGHT, HEAD + top + SCORE + GAP + MASS + FOOT
    figure = FigureCell(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)

    def at(left: float, down: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (down + high) / height, wide / width, high / height))

    title = plain(fitted(journey.label, width, 12, bold=True))
    figure.text(0, 1 - 0.05 / height, title, size=12, weight="bold", color=INK, va="top")
    figure.text(0, 1 - 0.3 / height, plain(fitted(journey.note, width, 8.5)), size=8.5, color=GREY, va="top")
    _thumbnails(journey, at, thumbs)
    score = at(LEFT, HEAD + top, WIDE, SCORE)
    mass = at(LEFT, HEAD + top + SCORE + GAP, WIDE, MASS)
    _score(score, journey)
    _mass(mass, journey)
    _times(score, mass, journey)
    colour = GREY if journey.certificate.converged else WARNING
    said = fitted(caption(journey.certificate), width, 7.5)
    figure.text(0, 0.15 / height, plain(said), size=7.5, color=colour, va="bottom")
    return figure


def _high(shape: tuple[int, ...]) -> float:
    return min(THUMB * shape[0] / shape[1], TALLEST)


def _thumbnails(journey: Journey, at: Any, high: float) -> None:
    """Each over its time; narrower where there are many."""
    count = len(journey.thumbnails)
    for frame, t in zip(journey.thumbnails, journey.times, strict=True):
        wide = min(THUMB, 0.92 * WIDE / (count - 1))
        axes = at(LEFT + t * WIDE - wide / 2, HEAD, wide, high)
        axes.set_anchor("S")
        axes.imshow(frame.pixels, interpolation="bicubic" if max(frame.pixels.shape) >= 112 else "nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(color="#c8cdd3", linewidth=0.6)
        axes.set_xlabel(f"t = {frame.title}", size=7.5, color=GREY, labelpad=3)


def _score(axes: Axes, journey: Journey) -> None:
    certificate, mean = journey.certificate, journey.mean
    for part in journey.single:
        axes.plot(part.t, part.score, color="#b9c0c8", linewidth=0.8)
    dots = "o" if len(mean.t) <= 200 else None
    axes.plot(mean.t, mean.score, color=INK, linewidth=1.6, marker=dots, markersize=1.9)
    low, high = axes.get_ylim()
    ends = {certificate.baseline_score: "F(x′)", certificate.score: "F(x)"}
    if abs(certificate.score - certificate.baseline_score) < 0.15 * (high - low):  # no room for both
        ends = {certificate.score: "F(x)"}
    for value in ends:
        axes.axhline(value, color="#d5dae0", linewidth=0.8, zorder=0)
    axes.set_yticks(list(ends), [f"{name} {number(value, 3)}" for value, name in ends.items()])
    _dress(axes, "score along the path")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], [""] * 5)


def _mass(axes: Axes, journey: Journey) -> None:
    mean = journey.mean
    cuts = [0.0, *(t if math.isfinite(t) else 1.0 for t in journey.reached), 1.0]
    for colour, start, end in zip(FILL, cuts, cuts[1:], strict=False):
        t = np.unique(np.r_[start, mean.t[(mean.t > start) & (mean.t < end)], end])
        axes.fill_between(t, np.interp(t, mean.t, mean.mass), color=colour, linewidth=0)
    axes.plot(mean.t, mean.mass, color=INK, linewidth=0.9)
    most = float(mean.mass.max())
    axes.set_ylim(0, 1.18 * most or 1.0)
    axes.set_yticks(
        [0, most] if most else [0], ["0", f"{most:,.0f}" if 100 <= most < 1e6 else number(most, 2)] if most else ["0"]
    )
    _dress(axes, "attribution mass per t: magnitudes of gradient × step, added up over the features")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nbaseline", "0.25", "0.5", "0.75", "1\ninput"])


def _times(score: Axes, mass: Axes, journey: Journey) -> None:
    """Where the shares of the mass are reached, as lines through both plots."""
    for share, t in zip(SHARES, journey.reached, strict=True):
        if math.isfinite(t):
            for axes in (score, mass):
                axes.axvline(t, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)))
            up: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            mass.annotate(f"{100 * share:g}%", (t, 1), (3, -2), size=7.5, color=INK, va="top", **up)


def _dress(axes: Axes, title: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_title(title, size=8.5, color=GREY, loc="left", pad=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color="#c8cdd3")
    axes.tick_params(length=2.5, color="#c8cdd3", labelsize=7.5, labelcolor=GREY)


PLOT_WIDE, TALL, PLOT_GAP = 640, 150, 46
"""The size of one plot and the room between two, in units of the drawing."""

PLOT = """
.plot{display:block;width:100%;height:auto;max-width:46rem;font-size:13px;overflow:visible}
.plot text{fill:var(--soft)}
.plot .frame{stroke:var(--line);fill:none}
.plot .score{stroke:var(--focus);stroke-width:2.5;fill:none;stroke-linejoin:round}
.plot .mass{fill:var(--focus);opacity:.28}
.plot .share{stroke:var(--soft);stroke-dasharray:3 4}
@media(max-width:40rem){.plot{font-size:19px}}
""".strip()


def path_plot(result: Attribution) -> str:
    """The path of a single example as an SVG element with a caption; '' where no profile of it was kept."""
    if result.profile is None or not len(result.profile):
        return ""
    certificate = result.certificate.only
    mean, _ = joined(result.profile.of(int(result.profile.example[0])), certificate)
    reached = tuple(mean.reached(share) for share in SHARES)
    said = remarks(mean, certificate, reached)
    upper = _curve("score", mean.t, mean.score, 0)
    top = TALL + PLOT_GAP
    lower = _curve("mass", mean.t, mean.mass, top)
    marks = "".join(
        f'<line class="share" x1="{PLOT_WIDE * t:.1f}" x2="{PLOT_WIDE * t:.1f}" y1="{top}" y2="{top + TALL}"/>'
        f"{_before(share, t, top, i)}"
        for i, (share, t) in enumerate(zip(SHARES, reached, strict=True))
        if np.isfinite(t)
    )
    ends = (
        f'<text x="0" y="{top + TALL + 18}">baseline</text>'
        f'<text x="{PLOT_WIDE}" y="{top + TALL + 18}" text-anchor="end">photo</text>'
    )
    caption = f"{said[:1].upper()}{said[1:]}."
    return (
        f'<figure><svg class="plot" viewBox="-2 -22 {PLOT_WIDE + 60} {2 * TALL + PLOT_GAP + 46}" role="img" '
        f'aria-label="{escape(caption)}">{upper}{lower}{marks}{ends}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def _before(share: float, t: float, top: int, row: int) -> str:
    """What lies before a time, beside its line: on the left of it where the right edge is near."""
    x, anchor = (PLOT_WIDE * t - 4, ' text-anchor="end"') if t > 0.75 else (PLOT_WIDE * t + 4, "")
    return f'<text x="{x:.1f}" y="{top}" dy="{1.1 + 1.2 * row:.1f}em"{anchor}>{100 * share:.0f}% before here</text>'


def _curve(kind: str, t: Array, values: Array, top: int) -> str:
    """One plot from t = 0 to 1: a line for the score, an area for the mass."""
    known = np.where(np.isfinite(values), values, 0.0)
    low, high = min(float(known.min()), 0.0), max(float(known.max()), 0.0)
    span = high - low or 1.0
    points = [f"{PLOT_WIDE * x:.1f},{top + TALL * (high - y) / span:.1f}" for x, y in zip(t, known, strict=True)]
    floor = top + TALL * high / span
    if kind == "mass":
        shape = f'<path class="mass" d="M0,{floor:.1f} L{" ".join(points)} L{PLOT_WIDE},{floor:.1f} Z"/>'
    else:
        shape = f'<polyline class="score" points="{" ".join(points)}"/>'
    title = "score" if kind == "score" else "attribution mass, magnitudes collected per step of the path"
    return (
        f'<text x="0" y="{top - 8}">{title}</text>'
        f'<path class="frame" d="M0,{top} V{top + TALL} M0,{floor:.1f} H{PLOT_WIDE}"/>{shape}'
        f'<text x="{PLOT_WIDE + 6}" y="{top + 10}">{amount(high)}</text>'
        f'<text x="{PLOT_WIDE + 6}" y="{top + TALL}">{amount(low)}</text>'
    )
