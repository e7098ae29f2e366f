"""The explanation of a photo as an HTML page, and as numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from ...attribution import Attribution
from ...render import image
from ...render.certificate_text import sum_note
from ...render.image.photo_page import ImagePage, PagePicture, PageRival, Region, image_page, values_of
from ...render.image.viewer import Map

if TYPE_CHECKING:
    from .result import Explanation

SHOWN = 5
"""The number of answers listed on a page."""

REGIONS = 40
"""The number of superpixels that a photo is divided into."""

STRONGEST = 8
"""The number of regions in the table."""


def page(explanation: Explanation, *, command: str | None, file: str | None = None) -> str:
    """The explanation of a photo as one self-contained HTML page; see :meth:`Explanation.page`."""
    result, answer = explanation.result, explanation.answer
    found = image.regions(result, explanation.shown, count=REGIONS)
    rival = explanation.rival
    data = ImagePage(
        label=answer.label,
        title=explanation.title,
        question=f"What in {explanation.photo.name} speaks for “{answer.label}”?" if explanation.headline else "",
        rank=None if explanation.headline else explanation.answers.index(answer) + 1,
        photo=explanation.shown,
        main=result,
        name=explanation.photo.name,
        network=explanation.network.name,
        score_name=f"the {explanation.score} of “{answer.label}”",
        top=_top(explanation),
        others={"gradient × image": _map(explanation.gradient)},
        rival=None if rival is None else PageRival(answer.label, rival.answer.label, rival.result),
        pictures=_pictures(explanation),
        regions=[
            Region(found.place(int(k)), float(found.sums[k]), float(found.areas[k] / found.labels.size))
            for k in found.order[:STRONGEST]
        ],
        notes=explanation.notes,
        preprocessing=str(explanation.network.preprocess),
        meta={
            **({} if file is None else {"file": file}),
            "baseline": explanation.baseline,
            "path": explanation.path,
            "weights": explanation.network.source,
        },
        command=command or "",
    )
    return image_page(data)


def _top(explanation: Explanation) -> list[tuple[str, float]]:
    """The most probable answers, and the explained one if it is not among them."""
    shown = list(explanation.answers[:SHOWN])
    if explanation.answer not in shown and not explanation.headline:
        shown.append(explanation.answer)
    return [(one.label, one.probability) for one in shown if not math.isnan(one.probability)]


def _map(result: Attribution) -> Map:
    return Map(
        values_of(result, "gradient"), "The gradient at the photo alone, times the photo: it need not add up to anything."
    )


def _pictures(explanation: Explanation) -> list[PagePicture]:
    """The still pictures of the page: regions and outlines."""
    views = (image.Superpixels(count=REGIONS), image.Outlines())
    regions, outlines = image.panels(explanation.result, explanation.shown, views=views)
    # The table below lists the regions; of the outlines the note says all but what they add up to.
    shown = (dataclasses.replace(regions, lines=()), dataclasses.replace(outlines, lines=outlines.lines[-1:]))
    return [PagePicture(panel.title, panel.note, panel, "regions") for panel in shown]


def numbers(explanation: Explanation) -> dict[str, Any]:
    """The explanation without the pixels, as a dictionary for JSON."""
    found = image.regions(explanation.result, explanation.shown, count=REGIONS)
    rival = explanation.rival
    said: dict[str, Any] = {
        "photo": explanation.photo.name,
        "network": explanation.network.name,
        "weights": explanation.network.source,
        "preprocessing": str(explanation.network.preprocess),
        "title": explanation.title,
        "explained": _answer(explanation.answer),
        "score": explanation.score,
        "baseline": explanation.baseline,
        "path": explanation.path,
        "answers": [_answer(one) for one in explanation.answers[:SHOWN]],
        "certificate": _certificate(explanation.result),
        "sum_note": sum_note(explanation.result.certificate.only),
        "regions": [
            {
                "place": found.place(int(k)),
                "sum": _finite(found.sums[k]),
                "area": float(found.areas[k] / found.labels.size),
                "centre": [int(v) for v in found.centres[k]],
            }
            for k in found.order[:STRONGEST]
        ],
        "rival": None if rival is None else {"answer": _answer(rival.answer), "certificate": _certificate(rival.result)},
        "notes": list(explanation.notes),
        "meta": explanation.result.meta,
    }
    return said


def _answer(answer: Any) -> dict[str, Any]:
    return {"index": answer.index, "label": answer.label, "probability": _finite(answer.probability)}


def _certificate(result: Attribution) -> dict[str, Any]:
    one = result.certificate.only
    found = {key: _finite(value) if isinstance(value, float) else value for key, value in dataclasses.asdict(one).items()}
    return found | {"status": one.status.value, "converged": one.converged, "remedy": one.remedy, "curves": len(one.curves)}


def _finite(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
