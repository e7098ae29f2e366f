"""``integrand image``: what a network sees in photos, and which pixels its answer is due to."""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import OptionError
from ...render.image.views import VIEWS
from ...version import version_of
from .. import images
from ..command_line import PICTURES, ScoreName, default_device, one_line, stamp, typed, weights_digest
from . import model as networks
from .gallery_run import PhotoJob, run_many, run_one
from .photo_files import photos as listed
from .result import is_named


class PathName(enum.StrEnum):
    """The path of integration from the baseline to the photo."""

    straight = "straight"
    blur = "blur"
    guided = "guided"


class Order(enum.StrEnum):
    """The order of the colour channels in the network's input."""

    RGB = "RGB"
    BGR = "BGR"


class FitName(enum.StrEnum):
    """How a photo is brought to the size of the network's input."""

    crop = "crop"
    stretch = "stretch"
    pad = "pad"


Photos = Annotated[list[Path], typer.Argument(metavar="PHOTO...", help="Photos, or folders of them.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(help=".html, .png, .svg, .pdf, .json or .safetensors; a folder for several. Default: PHOTO.html, explained/."),
]
Tol = Annotated[float, typer.Option(help="The relative error to integrate to.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per photo.")]
Again = Annotated[bool, typer.Option("--again", help="Explain photos again that are done already.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an unexpected error happened.")]
Most = Annotated[int, typer.Option(min=17, help="Gradients that one attribution may take.")]
View = Annotated[list[str] | None, typer.Option(help=f"For pictures, several times: {', '.join(VIEWS)}.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.")]
Route = Annotated[PathName, typer.Option(help="The line from baseline to photo, from blurred to sharp, or by small gradients.")]


def image(
    photo: Photos,
    model: Annotated[
        str,
        typer.Option(
            help="efficientnet-lite0, googlenet, a torchvision or timm name; with --trust package.module:function, ./net.pt2"
        ),
    ] = "efficientnet-lite0",
    trust: Annotated[bool, typer.Option("--trust", help="Run a --model that is code. Only if you trust its source.")] = False,
    weights: Annotated[Path | None, typer.Option(help="Weights for googlenet: BVLC .npz, or torchvision's state dict.")] = None,
    target: Annotated[str | None, typer.Option(help='The class: 281 or "tabby". Default: what the network says.')] = None,
    baseline: Annotated[
        str | None, typer.Option(help=f"{', '.join(images.BASELINES)}; several joined by +; or an image file. Default: black.")
    ] = None,
    path: Route = PathName.straight,
    score: Annotated[ScoreName, typer.Option(help="The scale on which the class is explained.")] = ScoreName.probability,
    tol: Tol = 0.01,
    rival: Annotated[bool, typer.Option(help="Also explain what separates the class from the next one.")] = True,
    out: Out = None,
    view: View = None,
    as_json: Json = False,
    classes: Annotated[Path | None, typer.Option(help="Names of the classes, one per line. Default: ImageNet's.")] = None,
    size: Annotated[str | None, typer.Option(help="What the network takes: 224, or 224,320 (height, width).")] = None,
    mean: Annotated[str | None, typer.Option(help="Subtracted from pixels of 0 to 255: 127, or one per colour.")] = None,
    scale: Annotated[str | None, typer.Option(help="Pixels are divided by it then: 128, or one per colour.")] = None,
    order: Annotated[Order | None, typer.Option(help="The order of the colours.")] = None,
    fit: Annotated[FitName | None, typer.Option(help="How photos become that size.")] = None,
    device: Device = None,
    max_evaluations: Most = 4000,
    again: Again = False,
    debug: Debug = False,
) -> None:
    """Which pixels of a photo made a network say what it says?

    One photo gives a report; several, or a folder, give a gallery that goes on where it was stopped. Ends with 1 if some
    photos could not be explained, with 2 if none could.
    """
    files = listed(photo)
    given: dict[str, Any] = {
        "weights": weights,
        "size": _size(size),
        "mean": _numbers("--mean", mean),
        "scale": _numbers("--scale", scale),
        "order": None if order is None else order.value,
        "fit": None if fit is None else fit.value,
        "classes": classes,
    }
    how: dict[str, Any] = {
        "target": target,
        "baseline": baseline,
        "path": path.value,
        "score": score.value,
        "tol": tol,
        "rival": rival,
        "max_evaluations": max_evaluations,
    }
    with one_line(f"--model {model}", debug=debug):
        network = networks.load(model, device=device or default_device(), trust=trust, **given)
    images.check(network, **how)
    settings = {"model": model, "network": network.source, **given, **how}
    drawn = None if baseline is None or is_named(baseline) else baseline
    settings["_files"] = [stamp(Path(name)) for name in (classes, drawn) if name is not None]
    settings["_code"] = [version_of(), *stamped_code(model), weights_digest(network.module)]
    job = PhotoJob(
        lambda file, tell: images.explain(file, network, progress=tell, **how),
        settings,
        typed(),
        f"What {network.name} saw",
        debug,
        known_views(view),
    )
    run(job, photo, files, out, as_json=as_json, again=again)


def run(job: PhotoJob, named: list[Path], files: list[Path], out: Path | None, *, as_json: bool, again: bool) -> None:
    """Explain one photo as a report; several photos, a folder, or one photo that is written into a folder, as a gallery."""
    into = out is not None and (os.path.isdir(out) or not out.suffix)
    if len(files) == 1 and not os.path.isdir(named[0]) and not into:
        if job.views and (out is None or out.suffix.lower() not in PICTURES):
            raise OptionError(f"got --view without a picture to write; expected --out with {', '.join(PICTURES)}.")
        run_one(job, files[0], out, as_json=as_json)
    else:
        run_many(job, files, out, as_json=as_json, again=again)


def stamped_code(model: str) -> list[str]:
    """A digest of the file that defines a user's own model; empty for a model by name."""
    module = sys.modules.get(model.partition(":")[0]) if ":" in model else None
    file = getattr(module, "__file__", None)
    return [] if file is None else [stamp(Path(file))]


def known_views(names: list[str] | None) -> tuple[str, ...]:
    """Check the names given with --view; an error names the views there are."""
    for name in names or ():
        if name not in VIEWS:
            raise OptionError(f"got --view {name!r}; expected one of {', '.join(VIEWS)}.")
    return tuple(names or ())


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if len(parts) > 2 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise OptionError(f"got --size {text!r}; expected 224, or 224,320 for height and width.")
    return int(parts[0]), int(parts[-1])


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
        if len(found) not in (1, 3):
            raise ValueError
    except ValueError:
        raise OptionError(f"got {name} {text!r}; expected a number, or three for the colours, such as 104,117,123.") from None
    return found if len(found) == 3 else found * 3
