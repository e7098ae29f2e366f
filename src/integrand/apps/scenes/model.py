"""Detectors and segmenters with what is needed to use them: preprocessing, class names, and what they say of a photo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ... import targets
from ...errors import FileError, IntegrandError, ModelError, OptionError, TargetError
from ...loading import load_model, read_state
from ...targets import Detection
from ...targets.mask_target import maps_in
from ...words import first_line, shown
from ..images.class_names import read_classes
from ..images.model import Network
from ..images.photo_files import Photo
from ..images.preprocess import Fit, Order, Preprocess
from .scene_names import CITYSCAPES, COCO

Kind = Literal["boxes", "masks"]

LEAST = 0.5
"""The score from which on FastestDet's candidates are listed as objects; its authors draw those from 0.65 on."""

LONGER = 512
"""The longer side of what ESPNet gets of a photo, unless a size is named. It was trained on streets of 1024 x 512; photos in
which one thing fills the picture it reads better at half that, and in a quarter of the time."""

STEP = 8
"""Sides of what ESPNet gets are multiples of this."""

MEAN = (72.3923111, 82.90893555, 73.15840149)
DEVIATION = (45.3192215, 46.15289307, 44.91483307)
"""Mean and standard deviation of Cityscapes' pixels, blue, green and red, which ESPNet's inputs are normalised by."""

HOMES = {
    "fastestdet": "github.com/dog-qiuqiu/FastestDet (BSD-3), trained on COCO",
    "espnet": "github.com/sacmehta/ESPNet (MIT), trained on Cityscapes",
}
"""Where weights are to be had."""


@dataclass(frozen=True, eq=False)
class SceneNetwork(Network):
    """A detector or a segmenter, ready to be explained; made by :func:`load` or :func:`scene_network`.

    Attributes:
        kind: whether it gives boxes or masks.
        least: the score from which on a detector's candidates are listed.
        by_shape: whether the size of its input follows the photo's shape; ``preprocess.size`` then is that of a square one.
    """

    kind: Kind = "boxes"
    least: float = LEAST
    by_shape: bool = False

    def fitted(self, photo: Photo) -> SceneNetwork:
        """The same network with the size of input that a photo takes."""
        if not self.by_shape:
            return self
        height, width = photo.pixels.shape[:2]
        longer = max(self.preprocess.size)
        sides = (max(STEP, STEP * round(longer * side / max(height, width) / STEP)) for side in (height, width))
        tall, wide = sides
        return replace(self, preprocess=replace(self.preprocess, size=(tall, wide)))

    def detections(self, output: Any) -> list[Detection]:
        """The objects in the first picture of an output, surest first."""
        return targets.detections(output, least=self.least)[0]

    def maps(self, output: Any) -> Tensor:
        """The logits of the classes in the first picture of an output, (classes, h, w)."""
        return maps_in(output)[0]


def load(
    name: str,
    *,
    size: int | tuple[int, int] | None = None,
    mean: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    order: Order | None = None,
    fit: Fit | None = None,
    classes: str | PathLike[str] | Sequence[str] | None = None,
    device: str | torch.device | None = None,
    trust: bool = False,
) -> SceneNetwork:
    """Load a detector or a segmenter by its name.

    Args:
        name: ``fastestdet:weights.pth`` or ``espnet:weights.pth``, with the state dict that their authors publish; with
            ``trust``, ``package.module:function`` for your own, which gives boxes or masks that :mod:`integrand.targets` knows.
        size: height and width of the input; a single number is the longer side for ESPNet, and both sides for others.
        mean: taken from the pixels (0 to 255), a number or one per channel of the network; for your own network.
        scale: that they are then divided by.
        order: the order of the network's channels, ``RGB`` or ``BGR``.
        fit: ``crop``, ``stretch`` or ``pad``.
        classes: class names, as a list or a file with one per line; for your own network.
        device: where to put the weights.
        trust: whether code that a name stands for may run.
    """
    kind, _, path = name.partition(":")
    own = {"mean": mean, "scale": scale, "order": order, "fit": fit, "classes": classes}
    if name.lower().endswith(".onnx"):
        raise OptionError(
            f"got the network {shown(name)!r}; expected fastestdet:weights.pth, espnet:weights.pth or, with --trust, "
            "package.module:function. For an .onnx file, a function that gives integrand.from_onnx(path), or "
            "targets.Candidates made of what it gives; or in Python scenes.scene_network(integrand.from_onnx(path))."
        )
    if kind not in HOMES:
        if "." not in kind and not (kind and path):
            raise OptionError(
                f"got the network {shown(name)!r}; expected fastestdet:weights.pth, espnet:weights.pth, or, with --trust, "
                "package.module:function. Networks that name one class for a photo are explained by integrand image."
            )
        model = load_model(name, trust=trust)
        return scene_network(model, name=name, size=size, device=device, **own)  # type: ignore[arg-type]
    if not path:
        raise OptionError(f"got the network {kind!r} without its weights; expected {kind}:weights.pth, from {HOMES[kind]}.")
    given = [key for key, value in own.items() if value is not None]
    if given:
        raise OptionError(f"got {', '.join(given)} for {kind}, whose preprocessing and classes are known; leave them out.")
    state = read_state(path, what=f"--model {kind}")
    if kind == "fastestdet":
        return _detector(path, state, size, device)
    return _segmenter(path, state, size, device)


def scene_network(
    model: Callable[..., Any],
    *,
    name: str = "your network",
    size: int | tuple[int, int] | None = None,
    mean: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    order: Order | None = None,
    fit: Fit | None = None,
    classes: str | PathLike[str] | Sequence[str] | None = None,
    device: str | torch.device | None = None,
) -> SceneNetwork:
    """A detector or segmenter of yours with what is needed to use it; it is run once on a grey picture to see which it is.

    Args:
        model: an ``nn.Module``, or any function, from (N, 3, H, W) to boxes or masks as :mod:`integrand.targets` knows them.
        name: what it is called.
        size: height and width of its input; 320 x 320 if not given.
        mean: taken from the pixels (0 to 255); 0 if not given.
        scale: that they are then divided by; 255 if not given.
        order: the order of its channels, RGB if not given.
        fit: how a photo becomes that size; ``stretch`` if not given.
        classes: class names, as a list or a file with one per line.
        device: where to put the weights.
    """
    sides = (size, size) if isinstance(size, int) else size or (320, 320)
    preprocess = Preprocess(sides, _three(mean, 0.0), _three(scale, 255.0), order=order or "RGB", fit=fit or "stretch")
    module = _placed(model, device)
    grey = preprocess.colour((128.0, 128.0, 128.0)).expand(3, *sides)[None].contiguous()
    try:
        with torch.no_grad():
            output = module(grey if device is None else grey.to(device))
    except IntegrandError:
        raise
    except Exception as error:
        raise ModelError(
            f"{shown(name)} fails on an input of shape {tuple(grey.shape)}: {first_line(error)}. Expected a network of "
            "pictures; give the height and width that it takes with size= (--size)."
        ) from error
    kind = _kind(name, output)
    names = None if classes is None else read_classes(classes)
    assumed = [key for key, value in (("size", size), ("mean", mean), ("scale", scale)) if value is None]
    notes = (f"the preprocessing is assumed: {preprocess}. Check it against how the network was trained",) if assumed else ()
    return SceneNetwork(name, module, preprocess, names, "given", notes, kind=kind, least=targets.LEAST)


def _kind(name: str, output: Any) -> Kind:
    for kind, read in (("boxes", targets.detections), ("masks", maps_in)):
        try:
            read(output)
        except (TargetError, IntegrandError):
            continue
        return kind  # type: ignore[return-value]
    raise ModelError(
        f"{shown(name)} gives a {type(output).__name__} in which there are neither boxes nor maps; expected what torchvision's "
        "or Hugging Face's detectors and segmenters give, targets.Candidates, or a tensor (N, classes, height, width)."
    )


def _detector(path: str, state: dict[str, Tensor], size: int | tuple[int, int] | None, device: Any) -> SceneNetwork:
    from .fastestdet import FastestDet

    if size not in (None, 352, (352, 352)):
        raise OptionError(f"got size {size} for FastestDet, which was trained on 352 x 352; leave it out.")
    module = _filled(FastestDet(), state, path, "fastestdet")
    preprocess = Preprocess((352, 352), (0.0,) * 3, (255.0,) * 3, order="BGR", fit="stretch")
    source = f"{Path(path).name}, from {HOMES['fastestdet']}"
    return SceneNetwork("FastestDet", _placed(module, device), preprocess, tuple(COCO), source, outputs=len(COCO))


def _segmenter(path: str, state: dict[str, Tensor], size: int | tuple[int, int] | None, device: Any) -> SceneNetwork:
    from .espnet import ESPNet

    module = _filled(ESPNet(len(CITYSCAPES)), state, path, "espnet")
    sides = (size or LONGER,) * 2 if not isinstance(size, tuple) else size
    if any(side % STEP or side < 8 * STEP for side in sides):
        raise OptionError(f"got size {size} for ESPNet; expected multiples of {STEP}, from {8 * STEP} on: 512, or 256,512.")
    scale = tuple(255 * one for one in DEVIATION)
    preprocess = Preprocess(sides, MEAN, scale, order="BGR", fit="stretch")
    source = f"{Path(path).name}, from {HOMES['espnet']}"
    known = (tuple(CITYSCAPES), source, (), len(CITYSCAPES))
    return SceneNetwork(
        "ESPNet", _placed(module, device), preprocess, *known, kind="masks", by_shape=not isinstance(size, tuple)
    )


def _filled(module: nn.Module, state: dict[str, Tensor], path: str, kind: str) -> nn.Module:
    """A network with its weights; an error names what does not fit."""
    # Counters of training steps, which files of older versions of torch do not have, are no weights.
    own = {key: value for key, value in module.state_dict().items() if not key.endswith("num_batches_tracked")}
    state = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    missing, further = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    other = [key for key in own.keys() & state.keys() if own[key].shape != state[key].shape]
    for what, some in (("has no", missing), ("also has", further), ("has another shape of", sorted(other))):
        if some:
            raise FileError(
                f"{shown(path)!r} {what} {some[0]!r}{f' and {len(some) - 1} more' if len(some) > 1 else ''}; expected the "
                f"state dict of {kind}, from {HOMES[kind]}."
            )
    module.load_state_dict(state, strict=False)
    return module.requires_grad_(False)


def _placed(module: Callable[..., Any], device: Any) -> Callable[..., Any]:
    if not isinstance(module, nn.Module):
        return module
    return module.eval() if device is None else module.eval().to(device)


def _three(value: float | Sequence[float] | None, usual: float) -> tuple[float, ...]:
    if value is None or isinstance(value, (int, float)):
        return (usual if value is None else float(value),) * 3
    return tuple(map(float, value))
