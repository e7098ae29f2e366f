"""``integrand scene``: why a detector drew a box in a photo, or a segmenter a mask."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import OptionError
from ...version import version_of
from ..command_line import (
    EXPERTS,
    NETWORK,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    Tol,
    Trust,
    Verbose,
    check_name,
    default_device,
    one_line,
    stamp,
    typed,
    working,
)
from ..images.cli import (
    BASELINE_NAMES,
    Again,
    FitName,
    Order,
    Out,
    PhotoRequest,
    Photos,
    View,
    known_views,
    numbers_of,
    size_of,
    stamped_code,
)

EXAMPLES = "fastestdet:weights.pth (boxes) or espnet:weights.pth (masks)"


class SceneNumber(enum.StrEnum):
    """Which number of a box or a mask is explained."""

    score = "score"
    logit = "logit"
    probability = "probability"
    objectness = "objectness"
    left = "left"
    top = "top"
    right = "right"
    bottom = "bottom"
    x = "x"
    y = "y"
    width = "width"
    height = "height"


def scene(
    photo: Photos,
    box: Annotated[
        str | None,
        typer.Option(help="The object: its number, or a class. Default: the surest; all are listed.", rich_help_panel=WHAT),
    ] = None,
    mask: Annotated[str | None, typer.Option(help="The class of the mask. Default: the largest.", rich_help_panel=WHAT)] = None,
    region: Annotated[
        str | None,
        typer.Option(help="Explain the class in this part: LEFT,TOP,RIGHT,BOTTOM in pixels.", rich_help_panel=WHAT),
    ] = None,
    explain: Annotated[
        SceneNumber | None,
        typer.Option(
            help="Which number. Default: the score of a box, the logit of a mask.", show_default=False, rich_help_panel=WHAT
        ),
    ] = None,
    tol: Tol = 0.05,
    max_evaluations: Most = 4000,
    out: Out = None,
    view: View = None,
    as_json: Json = False,
    verbose: Verbose = False,
    again: Again = False,
    retry_failed: RetryFailed = False,
    force: Force = False,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"{EXAMPLES}; with --trust package.module:function.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    trust: Trust = False,
    classes: Annotated[
        Path | None, typer.Option(help="Names of your network's classes, one per line.", rich_help_panel=NETWORK)
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="What the network takes: 512 (espnet: the longer side), or 256,512.", rich_help_panel=NETWORK),
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Subtracted from pixels of 0 to 255; for your own network.", rich_help_panel=NETWORK)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Pixels are divided by it then; for your own network.", rich_help_panel=NETWORK)
    ] = None,
    order: Annotated[Order | None, typer.Option(help="The order of the colours.", rich_help_panel=NETWORK)] = None,
    fit: Annotated[FitName | None, typer.Option(help="How photos become that size.", rich_help_panel=NETWORK)] = None,
    device: Device = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(BASELINE_NAMES)}; several joined by +; or an image file. Default: black.",
            rich_help_panel=EXPERTS,
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Which pixels of a photo made a detector draw a box, or a segmenter a mask?

    One photo gives a report; several, or a folder, give a gallery and a table that go on where they were stopped. Ends with 1
    if some photos could not be explained, with 2 if none could.
    """
    if model is None:
        raise OptionError(
            f"got no --model; expected {EXAMPLES}. Their weights are at github.com/dog-qiuqiu/FastestDet and "
            "github.com/sacmehta/ESPNet."
        )
    check_name("--model", model, EXAMPLES)
    given: dict[str, Any] = {
        "size": _sides(size),
        "mean": numbers_of("--mean", mean),
        "scale": numbers_of("--scale", scale),
        "order": None if order is None else order.value,
        "fit": None if fit is None else fit.value,
        "classes": classes,
    }
    how: dict[str, Any] = {
        "box": box,
        "mask": mask,
        "region": _corners(region),
        "what": None if explain is None else explain.value,
        "baseline": baseline,
        "tol": tol,
        "max_evaluations": max_evaluations,
    }
    wanted = {"as_json": as_json, "verbose": verbose, "again": again, "retry_failed": retry_failed, "force": force}
    asked = PhotoRequest.of(photo, out, known_views(view), **wanted)
    with working() as screen:
        with screen.loading():
            from ...batch.identity import weights_digest
            from .. import scenes
            from ..images.gallery_run import PhotoJob
            from ..images.result import is_named

            with one_line(f"--model {model}", debug=debug):
                network = scenes.load(model, device=device or default_device(), trust=trust, **given)
            scenes.check(network, **how)
        drawn = None if baseline is None or is_named(baseline) else Path(baseline)
        stamps = {
            "integrand": version_of(),
            "weights": weights_digest(network.module),
            "code": stamped_code(model),
            "files": {"digest": [stamp(file) for file in (classes, drawn) if file is not None]},
        }
        job = PhotoJob(
            lambda files, tell: scenes.explain_scenes(files, network, progress=tell, **how),
            {"model": model, "network": network.source, **given, **how},
            typed(),
            f"What {network.name} saw",
            debug,
            asked.views,
            stamps=stamps,
        )
        asked.run(job, screen)


def _sides(text: str | None) -> int | tuple[int, int] | None:
    """One number stays one: what it means is the network's to say."""
    sides = size_of(text)
    return sides if sides is None or (text is not None and set(text) & set(",x")) else sides[0]


def _corners(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise OptionError(
            f"got --region {text!r}; expected LEFT,TOP,RIGHT,BOTTOM in pixels of the photo, such as 0,200,640,420."
        ) from None
    return left, top, right, bottom
