"""The page of an explained sound: a player, and over one axis what each window adds, the waveform and the spectrogram."""

from __future__ import annotations

import base64
import math
from functools import cache
from importlib import resources

import numpy as np

from ...files import fitting
from ...words import number, plus_minus, shown
from ..escaping import escape
from ..glance import GLANCE, Export, badge, export_buttons, glance, glance_script, said, saying
from ..html import data_url, document, origin
from .sound_picture import SoundPicture, colour_of, frequency, span, spectrum_pixels

STYLE = """
.listen{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;margin:.25rem 0 .75rem}
.listen audio{width:min(30rem,100%);height:2.5rem}
.sound{position:relative;margin:0 0 1.5rem 3.25rem}
.sound .layer{position:relative;margin:0 0 .35rem}
.sound .layer>svg,.sound .layer>img{display:block;width:100%;border-radius:4px;background:var(--card)}
.sound .layer>img{height:10rem;image-rendering:pixelated}
.sound .name{position:absolute;right:100%;top:0;bottom:0;width:3.1rem;margin-right:.2rem;display:flex;flex-direction:column;
justify-content:space-between;text-align:right;font-size:.6875rem;line-height:1.1;color:var(--soft);
font-variant-numeric:tabular-nums}
.sound .over{position:absolute;inset:0;width:100%;height:100%}
.sound .over rect{fill:transparent;outline:none}
.live .sound .over rect{cursor:pointer}
.sound .over rect.saying{fill:rgb(127 127 127/.22);stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke}
.sound .over rect:focus-visible{stroke:var(--focus);stroke-width:3}
.sound .over .asked{fill:none;pointer-events:none;
stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3;vector-effect:non-scaling-stroke}
.sound .head{position:absolute;top:0;bottom:0;width:2px;margin-left:-1px;background:var(--focus);pointer-events:none}
html:not(.live) .head{display:none}
.sound .seconds{position:relative;height:1.2rem;font-size:.75rem;color:var(--soft);font-variant-numeric:tabular-nums}
.sound .seconds span{position:absolute;white-space:nowrap;transform:translateX(-50%)}
.sound .seconds span:first-child{transform:none}
.sound .seconds span:last-child{transform:translateX(-100%)}
.sound .plain{display:none!important}
#overlay:not(:checked)~.sound .plain{display:block!important}
#overlay:not(:checked)~.sound .laid{display:none}
.show{font-size:.875rem;color:var(--soft)}
.rule{stroke:var(--soft);stroke-width:1;vector-effect:non-scaling-stroke}
.off{stroke:var(--ink);stroke-width:1;opacity:.6;vector-effect:non-scaling-stroke}
.says-so{fill:none;stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke}
.parts td,.parts th{padding-top:.15rem;padding-bottom:.15rem;font-variant-numeric:tabular-nums}
.parts button{font:inherit;font-size:.8125rem;color:var(--ink);background:var(--paper);border:1px solid var(--line);
border-radius:8px;padding:.1rem .6rem;cursor:pointer;min-height:1.75rem;white-space:nowrap}
html:not(.live) .parts .hear{display:none}
@media(max-width:40rem){.sound{margin-left:2.6rem}.sound .name{width:2.45rem}.sound .layer>img{height:8rem}
.parts button{min-height:2.5rem}}
""".strip()
"""CSS of this page, beyond that of every page."""

BARS, WAVE, CURVE = 90, 90, 44
"""The heights of the layers, in pixels: what windows add, the waveform, and what the model says over time."""

WIDE = 1000.0
"""The width of the layers in their own unit; they are stretched to that of the page."""

POINTS = 1000
"""The most columns in which a waveform is drawn, each from its lowest to its highest sample."""

CLEAR = 0.16
"""The share of the axis before its end in which no second is written: that of two numbers such as "138 s" on a phone."""

STRONGEST = 8
"""The windows that are listed as the strongest."""

KEYS = "Point at a moment, or use the arrow keys. Click or press Enter to hear it."


@cache
def sound_script() -> str:
    """The JavaScript of the page."""
    text = resources.files(__package__).joinpath("sound.js").read_text(encoding="utf-8")
    return '"use strict";\n{\n' + text + "}\n"


def page(picture: SoundPicture, *, command: str | None = None) -> str:
    """A sound as one self-contained HTML page.

    Args:
        picture: what is drawn.
        command: what makes the page again, to be shown in it.
    """
    body = glance(picture.sentence, badges=badge(picture.certificate), heed=())
    body += "".join(f'<p class="rest">{escape(note[:1].upper() + note[1:])}</p>\n' for note in picture.notes)
    body += f'<section data-sayings data-sound aria-label="The sound">\n{_player(picture)}{_layers(picture)}</section>\n'
    body += _strongest(picture) + _all_windows(picture) + _reading(picture)
    body += origin(picture.meta, command)
    heading = picture.title
    return document(heading, body, style=GLANCE + STYLE, scripts=(glance_script(), sound_script()), plays=bool(picture.wav))


def _player(picture: SoundPicture) -> str:
    """The player, which works without JavaScript, and where a window is read."""
    if not picture.wav:
        return said(KEYS.replace(" Click or press Enter to hear it.", ""))
    coded = base64.b64encode(picture.wav).decode("ascii")
    label = escape(f"{picture.title}, {picture.seconds:.3g} s")
    audio = f'<audio controls preload="auto" aria-label="{label}" src="data:audio/wav;base64,{coded}"></audio>'
    around = (
        '<div class="tools"><button type="button" data-hear="window">Hear this window</button>'
        '<button type="button" data-hear="around">with ¼ s around</button></div>'
    )
    return f'<div class="listen">{audio}\n{around}</div>\n{said(KEYS)}'


def _layers(picture: SoundPicture) -> str:
    """All layers over one axis of time, with a window to point at over them."""
    layers = [_layer(_bars(picture), _ends(picture))]
    if picture.samples is not None:
        layers.append(_layer(_wave(picture), ("", "wave", "")))
    laid, plain = spectrum_pixels(picture), spectrum_pixels(picture, overlay=False)
    toggle = ""
    if laid is not None and plain is not None:
        about = "Spectrogram, coloured by what " + ("each cell adds" if picture.cells is not None else "each window adds")
        images = f'<img class="laid" alt="{about}" src="{data_url(laid)}">'
        images += f'<img class="plain" alt="Spectrogram" src="{data_url(plain)}">'
        top = frequency(picture.top) if picture.top else "high"
        layers.append(_layer(images, (top, "", "0 Hz" if picture.top else "low")))
        label = '<label class="show" for="overlay">colours on the spectrogram</label>'
        toggle = f'<input type="checkbox" id="overlay" checked> {label}\n'
    if picture.curve is not None and len(picture.curve) > 1:
        layers.append(_layer(_curve(picture), _curve_ends(picture)))
    body = "".join(layers)
    return (
        f'{toggle}<div class="sound" id="sound">\n<div class="over-all">{body}</div>\n{_over(picture)}{_axis(picture)}</div>\n'
    )


def _layer(inside: str, ends: tuple[str, str, str]) -> str:
    names = "".join(f"<span>{escape(one)}</span>" for one in ends)
    return f'<div class="layer"><div class="name" aria-hidden="true">{names}</div>{inside}</div>\n'


def _svg(height: int, inside: str, about: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDE:g} {height}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(about)}">{inside}</svg>'
    )


def _x(seconds: float, picture: SoundPicture) -> str:
    return f"{WIDE * seconds / picture.seconds:.2f}"


def _reach(picture: SoundPicture) -> tuple[float, float]:
    """The lowest and the highest that a bar reaches, zero among them, with a little room."""
    values = np.nan_to_num(picture.values)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    room = 0.08 * (high - low) or 1.0
    return low - room * (low < 0), high + room * (high > 0)


def _bars(picture: SoundPicture) -> str:
    """What each window adds, as bars with their errors."""
    low, high = _reach(picture)
    span_ = (high - low) or 1.0

    def y(value: float) -> float:
        return BARS * (high - max(low, min(high, value))) / span_

    parts = []
    for k, (value, error) in enumerate(zip(picture.values, picture.errors, strict=True)):
        if not value or not math.isfinite(value):
            continue
        left, right = float(_x(picture.times[k], picture)), float(_x(picture.times[k + 1], picture))
        top, bottom = sorted((y(value), y(0.0)))
        fill = colour_of(value, picture.limit)
        gap = 0.08 * (right - left)
        parts.append(
            f'<rect x="{left + gap:.2f}" y="{top:.2f}" width="{right - left - 2 * gap:.2f}" height="{bottom - top:.2f}" '
            f'fill="{fill}"/>'
        )
        if math.isfinite(error) and error > 0:
            x = (left + right) / 2
            parts.append(f'<path class="off" d="M{x:.2f} {y(value - error):.2f}V{y(value + error):.2f}"/>')
    line = f'<path class="rule" d="M0 {y(0.0):.2f}H{WIDE:g}"/>'
    return _svg(BARS, "".join(parts) + line, f"What each window adds to {picture.label}, from {low:.2g} to {high:.2g}")


def _ends(picture: SoundPicture) -> tuple[str, str, str]:
    low, high = _reach(picture)
    return (f"+{number(high, 2)}" if high > 0 else "0", "adds", number(low, 2).replace("-", "−") if low < 0 else "0")


def _wave(picture: SoundPicture) -> str:
    """The waveform, each window in the colour of what it adds."""
    samples = np.asarray(picture.samples, float)
    loudest = float(np.abs(samples).max()) or 1.0
    parts = []
    for k in range(len(picture.values)):
        first, last = (round(edge * picture.rate) for edge in picture.times[k : k + 2])
        part = samples[first : max(last + 1, first + 2)]  # one more, so that neighbours touch
        if not len(part):
            continue
        columns = max(1, min(len(part), round(POINTS / len(picture.values)), 200))
        pieces = np.array_split(part, columns)
        xs = [float(_x((first + len(part) * (i + 0.5) / columns) / picture.rate, picture)) for i in range(columns)]
        if columns == 1:
            xs, pieces = [0.0, 0.0], [pieces[0], pieces[0]]
        xs[0], xs[-1] = float(_x(picture.times[k], picture)), float(_x(picture.times[k + 1], picture))
        tops = [WAVE / 2 * (1 - 0.96 * float(piece.max()) / loudest) for piece in pieces]
        feet = [WAVE / 2 * (1 - 0.96 * float(piece.min()) / loudest) + 0.6 for piece in pieces]
        up = " ".join(f"{x:.2f},{y:.1f}" for x, y in zip(xs, tops, strict=True))
        down = " ".join(f"{x:.2f},{y:.1f}" for x, y in zip(reversed(xs), reversed(feet), strict=True))
        parts.append(f'<polygon points="{up} {down}" fill="{colour_of(picture.values[k], picture.limit)}"/>')
    return _svg(WAVE, "".join(parts), "Waveform, coloured by what each window adds")


def _curve_range(picture: SoundPicture) -> tuple[float, float]:
    curve = np.asarray(picture.curve, float)
    low, high = float(curve.min()), float(curve.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1)


def _curve_ends(picture: SoundPicture) -> tuple[str, str, str]:
    low, high = _curve_range(picture)
    return number(high, 2), picture.label[:9], number(low, 2)


def _curve(picture: SoundPicture) -> str:
    """What the model says over time, as steps."""
    assert picture.curve is not None
    low, high = _curve_range(picture)
    count = len(picture.curve)
    heights = [CURVE * (0.06 + 0.88 * (high - float(value)) / (high - low)) for value in picture.curve]
    steps = "".join(f"H{WIDE * k / count:.2f}V{y:.2f}" for k, y in enumerate(heights))
    inside = f'<path class="says-so" d="M0 {heights[0]:.2f}{steps}H{WIDE:g}"/>'
    return _svg(CURVE, inside, f"What the model says over time: {picture.label}, from {low:.2g} to {high:.2g}")


def _over(picture: SoundPicture) -> str:
    """Windows to point at, over all layers, and the playhead."""
    parts = []
    for k in range(len(picture.values)):
        left, right = float(_x(picture.times[k], picture)), float(_x(picture.times[k + 1], picture))
        text = picture.saying(k) + _cells_of(picture, k)
        parts.append(
            f'<rect x="{left:.2f}" y="0" width="{right - left:.2f}" height="100" role="button" aria-label="{escape(text)}" '
            f'data-start="{picture.times[k]:.6g}" data-end="{picture.times[k + 1]:.6g}"{saying(text)}/>'
        )
    if picture.asked is not None:
        left, right = (float(_x(one, picture)) for one in picture.asked)
        parts.append(
            f'<rect class="asked" x="{left:.2f}" y="0.4" width="{max(right - left, 1):.2f}" height="99.2" aria-hidden="true"/>'
        )
    svg = (
        f'<svg class="over" viewBox="0 0 {WIDE:g} 100" preserveAspectRatio="none" role="group" '
        f'aria-label="Windows of time">{"".join(parts)}</svg>\n'
    )
    return svg + (f'<div class="head" data-seconds="{picture.seconds:.6g}"></div>\n' if picture.wav else "")


def _cells_of(picture: SoundPicture, k: int) -> str:
    """The strongest band of a window, in words; '' where bands are not told apart."""
    if picture.cells is None or picture.edges is None or picture.cell_errors is None or not picture.values[k]:
        return ""
    band = int(np.argmax(np.abs(np.nan_to_num(picture.cells[:, k]))))
    value, error = float(picture.cells[band, k]), float(picture.cell_errors[band, k])
    return f"; of that {plus_minus(value, error)} at {_band(picture, band)}" if value else ""


def _band(picture: SoundPicture, band: int) -> str:
    assert picture.edges is not None
    low, high = (float(one) for one in picture.edges[band : band + 2])
    return f"{frequency(low)} to {frequency(high)}" if picture.top else f"rows {low:.0f} to {high:.0f}"


def _axis(picture: SoundPicture) -> str:
    """Seconds under the layers."""
    step = next((one for one in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60) if picture.seconds / one <= 7), 120.0)
    marks = [k * step for k in range(int(picture.seconds / step) + 1)]
    clear = max(0.5 * step, CLEAR * picture.seconds)
    marks = [one for one in marks if picture.seconds - one > clear or one == 0]
    spans = "".join(f'<span style="left:{100 * one / picture.seconds:.2f}%">{one:g} s</span>' for one in marks)
    return f'<div class="seconds" aria-hidden="true">{spans}<span style="left:100%">{picture.seconds:.3g} s</span></div>\n'


def _strongest(picture: SoundPicture) -> str:
    """The windows that add or take the most, each to be heard."""
    order = [int(k) for k in np.argsort(-np.abs(np.nan_to_num(picture.values)), kind="stable")[:STRONGEST] if picture.values[k]]
    if not order:
        return ""
    rows = "".join(_row(picture, k) for k in order)
    bands = "<th>most of it at</th>" if picture.cells is not None else ""
    hear = "<th class='hear'></th>" if picture.wav else ""
    return (
        f'<h2>The strongest moments</h2>\n<table class="parts"><thead><tr><th>when</th><th>adds</th>{bands}{hear}</tr></thead>'
        f"<tbody>\n{rows}</tbody></table>\n"
    )


def _row(picture: SoundPicture, k: int) -> str:
    start, end = (float(one) for one in picture.times[k : k + 2])
    adds = plus_minus(float(picture.values[k]), float(picture.errors[k]))
    band = ""
    if picture.cells is not None:
        band = f"<td>{escape(_band(picture, int(np.argmax(np.abs(np.nan_to_num(picture.cells[:, k]))))))}</td>"
    label = f"Hear {span(start, end)} with a quarter of a second around"
    hear = (
        f'<td class="hear"><button type="button" data-hear="around" data-start="{start:.6g}" data-end="{end:.6g}" '
        f'aria-label="{escape(label)}">Hear</button></td>'
    )
    return f"<tr><td>{span(start, end)}</td><td>{escape(adds)}</td>{band}{hear if picture.wav else ''}</tr>\n"


def _all_windows(picture: SoundPicture) -> str:
    """Every window with its number, to be saved as CSV."""
    rows = "".join(
        f'<tr><td data-value="{a:.6g}">{a:.3f}</td><td data-value="{b:.6g}">{b:.3f}</td>'
        f'<td data-value="{float(value)!r}">{escape(plus_minus(float(value), float(error)))}</td>'
        f'<td data-value="{float(error)!r}">{float(error):.1g}</td></tr>\n'
        for a, b, value, error in zip(picture.times[:-1], picture.times[1:], picture.values, picture.errors, strict=True)
    )
    head = "<thead><tr><th>start</th><th>end</th><th>adds</th><th>error</th></tr></thead>"
    stem = shown(picture.title).rpartition(".")[0] or "sound"
    buttons = export_buttons(
        Export("csv", "windows", fitting(stem, "-windows.csv"), "Save CSV"),
        Export("png", "sound", fitting(stem, ".png"), "Save picture"),
    )
    table = f'<table class="parts" id="windows">{head}<tbody>\n{rows}</tbody></table>'
    return f"{buttons}<details><summary>All {len(picture.values)} windows</summary>\n{table}</details>\n"


def _reading(picture: SoundPicture) -> str:
    """How to read the picture."""
    cells = (
        "Cells of the spectrogram are coloured by what they add; their sums over the frequencies are the bars. Frames of the "
        "transform overlap, so that what a window adds reaches a little beyond its edges."
        if picture.cells is not None
        else "Samples were explained, so that nothing is known of single frequencies: the spectrogram has the colour of its "
        "window. With --explain spectrogram each cell has its own."
    )
    asked = " The dashed box is the moment that is explained." if picture.asked is not None else ""
    return (
        '<p class="legend">Red raises the score, blue lowers it; colours are full at '
        f"{number(picture.limit, 2)} for a window. Thin lines on the bars are errors.{asked} {escape(cells)}</p>\n"
    )
