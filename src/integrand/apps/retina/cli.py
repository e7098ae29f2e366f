"""``integrand retina``: the grade of a fundus photo, and the evidence for it."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from ...version import version_of
from ..command_line import (
    EXPERTS,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    Tol,
    Verbose,
    default_device,
    one_line,
    typed,
    working,
)
from ..images.cli import Again, Out, PhotoRequest, Photos, View, known_views


class Start(enum.StrEnum):
    """The baseline, where the path of integration starts."""

    blurred = "blurred"
    black = "black"
    retina = "retina"
    average = "average"


def retina(
    photo: Photos,
    target: Annotated[
        str | None,
        typer.Option(
            help='What is explained: referable, any, healthy, or a grade, 1 to 4, "or worse". Default: its own.',
            rich_help_panel=WHAT,
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
    device: Device = None,
    baseline: Annotated[
        Start,
        typer.Option(
            help="The eye blurred, in black, in the retina's median colour, or all three averaged.", rich_help_panel=EXPERTS
        ),
    ] = Start.blurred,
    debug: Debug = False,
) -> None:
    """Grade diabetic retinopathy in fundus photos, 0 to 4, and show what speaks for it. Not a medical device.

    One photo gives a report; several, or a folder, give a gallery and a table that go on where they were stopped. Ends with 1
    if some photos could not be explained, with 2 if none could.
    """
    wanted = {"as_json": as_json, "verbose": verbose, "again": again, "retry_failed": retry_failed, "force": force}
    asked = PhotoRequest.of(photo, out, known_views(view), **wanted)
    with working() as screen:
        with screen.loading(), one_line("the grader", debug=debug):
            from ...batch.identity import weights_digest
            from .. import retina as grading
            from ..images.gallery_run import PhotoJob
            from ..images.result import packed

            grader = grading.load(device or default_device())
        if target is not None:
            grader.find(target)
        how = {"target": target, "baseline": baseline.value, "tol": tol, "max_evaluations": max_evaluations}
        job = PhotoJob(
            lambda files, tell: grader.examine_photos(files, progress=tell, **how),  # type: ignore[arg-type]
            {"network": grader.network.source, **how},
            typed(),
            "Graded eyes",
            debug,
            asked.views,
            grading.NOTICE,
            {"integrand": version_of(), "weights": weights_digest(grader.network.module)},
            packed(grader.network),
        )
        asked.run(job, screen)
