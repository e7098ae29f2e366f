"""The explanation of a photo as an HTML page, and as numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from ...attribution import Attribution
from ...render import image
from ...render.certificate_text import sum_note
from ...render.image.photo_page import ImagePage, PageRival, image_page, values_of
from ...render.image.viewer import REGIONS, STRONGEST, Map
from ...words import finite

if TYPE_CHECKING:
    from .result import Explanation

SHOWN = 5
"""The number of answers listed on a page."""


def page(explanation: Explanation, *, command: str | None, file: str | None = None, **told: Any) -> str:
    """The explanation of a photo as one self-contained HTML page; see :meth:`Explanation.page`.

    Args:
        explanation: what is shown.
        command: the command that makes it again.
        file: where the photo is.
        **told: attributes of :class:`~integrand.render.image.photo_page.ImagePage` that are not the usual ones.
    """
    result, answer, rival = explanation.result, explanation.answer, explanation.rival
    stated = next((one.label for one in explanation.answers if one.index == explanation.stated), "")
    baseline = f"the baseline ({explanation.baseline})"
    # A long headline is cut after its first part, which the sentence need not say again.
    title, said = explanation.title.partition(";")[0], explanation.sentence
    again = said.removeprefix(f"{title}; ")
    said = said if again == said else again[:1].upper() + again[1:]
    data = ImagePage(
        label=answer.label,
        title=title,
        says=said,
        photo=explanation.shown,
        main=result,
        name=explanation.photo.name,
        network=explanation.network.name,
        score_name=f"the {explanation.unit or explanation.score} of “{answer.label}”",
        top=_top(explanation),
        ordered=explanation.ordered,
        stated=stated,
        rule=explanation.rule,
        notice=explanation.notice,
        view=explanation.view,
        others={"gradient × image": _map(explanation.gradient)},
        rival=None if rival is None else PageRival(answer.label, rival.answer.label, rival.result, baseline=baseline),
        regions=image.regions(result, explanation.shown, count=REGIONS),
        notes=explanation.notes,
        preprocessing=str(explanation.network.preprocess),
        meta={
            **({} if file is None else {"file": file}),
            "baseline": explanation.baseline,
            "path": explanation.path,
            "weights": explanation.network.source,
        },
        command=command or "",
        aim=explanation.aim,
    )
    return image_page(dataclasses.replace(data, **told))


def _top(explanation: Explanation) -> list[tuple[str, float]]:
    """The most probable answers, and the explained one if it is not among them; all steps of a scale."""
    shown = list(explanation.answers if explanation.ordered else explanation.answers[:SHOWN])
    if explanation.answer not in shown and not explanation.headline:
        shown.append(explanation.answer)
    return [(one.label, one.probability) for one in shown if not math.isnan(one.probability)]


def _map(result: Attribution) -> Map:
    return Map(
        values_of(result, "gradient"), "The gradient at the photo alone, times the photo: it need not add up to anything."
    )


def numbers(explanation: Explanation) -> dict[str, Any]:
    """The explanation without the pixels, as a dictionary for JSON."""
    found = image.regions(explanation.result, explanation.shown, count=REGIONS)
    rival, focus = explanation.rival, explanation.focus
    said: dict[str, Any] = {
        "photo": explanation.photo.name,
        "network": explanation.network.name,
        "weights": explanation.network.source,
        "preprocessing": str(explanation.network.preprocess),
        "title": explanation.title,
        "sentence": explanation.sentence,
        "notice": explanation.notice,
        "rule": explanation.rule,
        "explained": _answer(explanation.answer),
        "score": explanation.score,
        "unit": explanation.unit or explanation.score,
        "baseline": explanation.baseline,
        "path": explanation.path,
        "answers": [_answer(one) for one in (explanation.answers if explanation.ordered else explanation.answers[:SHOWN])],
        "certificate": _certificate(explanation.result),
        "sum_note": sum_note(explanation.result.certificate.only),
        "focus": {
            "share": finite(focus.share),
            "error": finite(focus.off),
            "against": finite(focus.against),
            "area": focus.area,
            "places": focus.places,
        },
        "regions": [
            {
                "place": found.place(int(k)),
                "sum": finite(found.sums[k]),
                "error": finite(found.errors[k]),
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
    return {"index": answer.index, "label": answer.label, "probability": finite(answer.probability)}


def _certificate(result: Attribution) -> dict[str, Any]:
    one = result.certificate.only
    found = {key: finite(value) for key, value in dataclasses.asdict(one).items()}
    return found | {"status": one.status.value, "converged": one.converged, "remedy": one.remedy, "curves": len(one.curves)}
