"""``integrand image``: what a network sees in photos, and which pixels its answer is due to."""

from __future__ import annotations

import enum
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ...files import fitting
from ...version import version_of
from ...words import number, percent
from ..command_line import (
    EXPERTS,
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Screen,
    Tol,
    Trust,
    Verbose,
    check_name,
    check_out,
    default_device,
    figures,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    stamp,
    typed,
    working,
)

if TYPE_CHECKING:
    from .gallery_run import PhotoJob

DEFAULT = "efficientnet-lite0"
"""The network that explains photos where none is named: its weights come with integrand-models."""

VIEW_NAMES = ("scaled", "signed", "green-red", "heatmap", "outlines", "regions", "overlay")
"""The views of :data:`integrand.render.image.views.VIEWS`, for the help, which draws nothing."""

BASELINE_NAMES = ("black", "white", "mean", "blurred", "uniform", "gaussian")
"""The baselines of :data:`integrand.apps.images.BASELINES`, for the help, which explains nothing."""


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


Photos = Annotated[list[Path], typer.Argument(metavar="PHOTO", help="Photos, or folders of them.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        help=".html, .png, .svg, .pdf, .json or .safetensors; a folder for several. Default: PHOTO.html, explained/.",
        metavar="FILE",
        rich_help_panel=OUTPUT,
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Explain photos again that are done already.", rich_help_panel=OUTPUT)]
View = Annotated[
    list[str] | None,
    typer.Option(
        help=f"For pictures, several times: {', '.join(VIEW_NAMES)}.",
        metavar="NAME",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]


def image(
    photo: Photos,
    target: Annotated[
        str | None,
        typer.Option(help='The class: 281 or "tabby". Default: what the network says.', rich_help_panel=WHAT),
    ] = None,
    score: Annotated[
        ScoreName, typer.Option(help="The scale on which the class is explained.", rich_help_panel=WHAT)
    ] = ScoreName.probability,
    rival: Annotated[
        bool,
        typer.Option(
            "--rival/--no-rival",
            help="Also explain what separates the class from the next one; takes twice as long.",
            rich_help_panel=WHAT,
        ),
    ] = False,
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
        list[str] | None,
        typer.Option(
            help="efficientnet-lite0 (the default), googlenet, a torchvision or timm name, net.onnx; with "
            "--trust package.module:function, ./net.pt2. Twice, to compare two networks on one photo.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    trust: Trust = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="For googlenet: BVLC's .caffemodel, its arrays as .npz, or torchvision's state dict.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one per line. Default: ImageNet's.", rich_help_panel=NETWORK)
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="What the network takes: 224, or 224,320 (height, width).", rich_help_panel=NETWORK)
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Subtracted from pixels of 0 to 255: 127, or one per colour.", rich_help_panel=NETWORK)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Pixels are divided by it then: 128, or one per colour.", rich_help_panel=NETWORK)
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
    path: Annotated[
        PathName,
        typer.Option(
            help="The line from baseline to photo, from blurred to sharp, or by small gradients.", rich_help_panel=EXPERTS
        ),
    ] = PathName.straight,
    debug: Debug = False,
) -> None:
    """Which pixels of a photo made a network say what it says?

    One photo gives a report; several, or a folder, give a gallery and a table that go on where they were stopped. Ends with 1
    if some photos could not be explained, with 2 if none could.
    """
    names = model or [DEFAULT]
    for name in names:
        check_name("--model", name, f"the name of a network, such as {DEFAULT}")
    given: dict[str, Any] = {
        "weights": weights,
        "size": size_of(size),
        "mean": numbers_of("--mean", mean),
        "scale": numbers_of("--scale", scale),
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
    wanted = {"as_json": as_json, "verbose": verbose, "again": again, "retry_failed": retry_failed, "force": force}
    asked = PhotoRequest.of(photo, out, known_views(view), **wanted)
    if len(names) > 1:
        compare(asked, names, given, how, device=device, trust=trust, debug=debug)
        return
    [name] = names
    with working() as screen:
        with screen.loading():
            from ...batch.identity import weights_digest
            from .. import images
            from . import model as networks
            from .gallery_run import PhotoJob
            from .result import is_named, packed

            with one_line(f"--model {name}", debug=debug):
                network = networks.load(name, device=device or default_device(), trust=trust, **given)
            images.check(network, **how)
            drawn = None if baseline is None or is_named(baseline) else baseline
            stamps = {
                "integrand": version_of(),
                "weights": weights_digest(network.module),
                "code": stamped_code(name),
                "files": {"digest": [stamp(Path(file)) for file in (classes, drawn) if file is not None]},
            }
        job = PhotoJob(
            lambda files, tell: images.explain_photos(files, network, progress=tell, **how),
            {"model": name, "network": network.source, **given, **how},
            typed(),
            f"What {network.name} saw",
            debug,
            asked.views,
            stamps=stamps,
            together=packed(network),
        )
        asked.run(job, screen)


def compare(
    asked: PhotoRequest,
    names: list[str],
    given: dict[str, Any],
    how: dict[str, Any],
    *,
    device: str | None,
    trust: bool,
    debug: bool,
) -> None:
    """Explain one photo with several networks, write what was asked for, and print what they differ in.

    Args:
        asked: the photo, and what is to come of it.
        names: the networks, as ``--model`` names them.
        given: how photos become their inputs, the same for all; weights are for GoogLeNet alone.
        how: what is explained, and how accurately.
        device: where to compute.
        trust: whether a model that is code may run.
        debug: let unexpected errors through, with their traceback.
    """
    where = _compared_at(asked, names, how)
    with working() as screen:
        with screen.loading():
            from .. import images
            from . import model as sources

            networks = {}
            for name in names:
                options = given if name.startswith("googlenet") else given | {"weights": None}
                with one_line(f"--model {name}", debug=debug):
                    networks[name] = sources.load(name, device=device or default_device(), trust=trust, **options)
        bar = screen.batch(1, "photos")
        bar.begin(f"{asked.files[0].name}, {len(names)} networks", len(names))
        picked = {key: how[key] for key in ("target", "baseline", "score", "tol", "max_evaluations")}
        with noted() as notes, one_line(str(asked.files[0]), debug=debug):
            found = images.compare(asked.files[0], networks, progress=bar.tell, **picked)
        if where is not None:
            with screen.doing("writing"):
                found.save(where, **({"command": typed()} if where.suffix.lower() == ".html" else {}))
    if asked.as_json:
        typer.echo(json.dumps(found.numbers() | {"warnings": notes, "out": None if where is None else str(where)}))
        return
    print_line(headline_of(found))
    written = percent if found.unit == "probability" else number
    for name, (answer, *_) in found.answers.items():
        likely = answer.likely[:3] or ((answer.label, answer.value),)
        print_line(f"  {name}: {', '.join(f'{label} ({written(value)})' for label, value in likely)}")
    for note in notes:
        print_line(f"note: {note}")
    if asked.verbose:
        for name, result in found.results.items():
            print_shown(f"{name}\n{figures(result.certificate.only)}")
    print_line(f"wrote {where}")


def _compared_at(asked: PhotoRequest, names: list[str], how: dict[str, Any]) -> Path | None:
    """Check what a comparison of networks cannot do; gives the file that it writes, if any."""
    if len(set(names)) < len(names):
        raise OptionError(f"got --model {names[0]} twice; expected two networks that differ.")
    if asked.many:
        raise OptionError(f"got {len(names)} networks for several photos, or a folder; expected one photo to compare them on.")
    if how["path"] != "straight" or how["rival"] or asked.views:
        raise OptionError("got --path, --rival or --view with two networks; they are for one. Leave them out.")
    where = asked.out or (None if asked.as_json else Path(fitting(f"{asked.files[0].stem}-compared", ".html")))
    check_out(where, (".html", *PICTURES, ".json", ".csv"), force=asked.force)
    return where


@dataclass(frozen=True)
class PhotoRequest:
    """The photos that were asked for, and what is to come of them: checked before anything is loaded.

    Attributes:
        files: the photos.
        out: the file or folder to write; None for the usual one.
        many: whether a gallery is written, rather than the report of one photo.
        views: the views that a picture shows, by name.
        as_json: print JSON.
        verbose: print all figures.
        again: explain photos again that are done already.
        retry_failed: try photos again that an earlier run could not explain.
        force: replace files that integrand did not write, and make folders.
    """

    files: list[Path]
    out: Path | None
    many: bool
    views: tuple[str, ...]
    as_json: bool
    verbose: bool
    again: bool
    retry_failed: bool
    force: bool

    @staticmethod
    def of(named: list[Path], out: Path | None, views: tuple[str, ...], **how: bool) -> PhotoRequest:
        """One photo is a report; several photos, a folder, or one photo that is written into a folder, are a gallery.

        Args:
            named: photos and folders, as they were typed.
            out: as it was typed.
            views: as they were typed.
            **how: the attributes that are yes or no.
        """
        from .photo_files import photos

        files = photos(named)
        into = out is not None and (os.path.isdir(out) or not out.suffix)
        many = len(files) > 1 or os.path.isdir(named[0]) or into
        if views and many:
            raise OptionError("got --view for several photos; it is for pictures of one: --out photo.png.")
        if views and (out is None or out.suffix.lower() not in PICTURES):
            raise OptionError(f"got --view without a picture to write; expected --out with {', '.join(PICTURES)}.")
        return PhotoRequest(files, out, many, views, **how)

    def run(self, job: PhotoJob, screen: Screen) -> None:
        """Explain the photos, write what was asked for, and print what was found."""
        from .gallery_run import run_many, run_one

        if self.many:
            how = {"as_json": self.as_json, "again": self.again, "retry_failed": self.retry_failed, "force": self.force}
            run_many(job, self.files, self.out, screen=screen, **how)
        else:
            how = {"as_json": self.as_json, "verbose": self.verbose, "force": self.force}
            run_one(job, self.files[0], self.out, screen=screen, **how)


def stamped_code(model: str) -> list[str]:
    """A digest of the file that defines a user's own model, by its code or its operations; empty for a model by name."""
    if model.lower().endswith(".onnx"):
        return [stamp(Path(model))]
    module = sys.modules.get(model.partition(":")[0]) if ":" in model else None
    file = getattr(module, "__file__", None)
    return [] if file is None else [stamp(Path(file))]


def known_views(names: list[str] | None) -> tuple[str, ...]:
    """Check the names given with --view; an error names the views there are."""
    for name in names or ():
        if name not in VIEW_NAMES:
            raise OptionError(f"got --view {name!r}; expected one of {', '.join(VIEW_NAMES)}.")
    return tuple(names or ())


def size_of(text: str | None) -> tuple[int, int] | None:
    """Height and width from what was given with --size; one number is both."""
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if len(parts) > 2 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise OptionError(f"got --size {text!r}; expected 224, or 224,320 for height and width.")
    return int(parts[0]), int(parts[-1])


def numbers_of(name: str, text: str | None) -> tuple[float, ...] | None:
    """Three numbers, one for each colour, from what was given with an option; one number is all three."""
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
        if len(found) not in (1, 3):
            raise ValueError
    except ValueError:
        raise OptionError(f"got {name} {text!r}; expected a number, or three for the colours, such as 104,117,123.") from None
    return found if len(found) == 3 else found * 3
