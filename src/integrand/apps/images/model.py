"""Image classifiers with what is needed to use them: preprocessing, class names, and where they come from."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import IntegrandError, MissingExtraError, ModelError, OptionError
from ...functions.target import main_tensor
from ...loading import is_path
from ...words import first_line, short_repr, shown
from . import class_names, sources
from .class_names import IMAGENET_CLASSES, imagenet
from .preprocess import Fit, Order, Preprocess
from .sources import ENDINGS, ONNX, Exported, Source

DEFAULT = "efficientnet-lite0"
"""The network that is used unless another is named."""


@dataclass(frozen=True, eq=False)
class Network:
    """An image classifier, ready to be explained.

    Attributes:
        name: as it was asked for.
        module: (N, 3, H, W) to one score per class; in eval mode.
        preprocess: from a photo to its input.
        classes: the names of its outputs, synonyms set apart by commas; None where they are not known.
        source: where network and weights are from, in words.
        notes: what was assumed, and what else there is to know.
        outputs: how many classes it has; None where the output does not say.
    """

    name: str
    module: Callable[..., Any]
    preprocess: Preprocess
    classes: tuple[str, ...] | None
    source: str
    notes: tuple[str, ...] = ()
    outputs: int | None = None

    __repr__ = short_repr

    def label(self, index: int) -> str:
        """The short name of a class, or ``class 281`` where names are not known."""
        return class_names.label(self.classes, index)

    def find(self, text: str) -> int:
        """The class that a text names: ``281``, ``tabby``, ``Tabby cat``. A TargetError lists similar names.

        A name or synonym goes before words of one, and these before any other part; it must be the only one of its kind.
        """
        return class_names.find(self.classes, text, outputs=self.outputs)

    @property
    def device(self) -> torch.device:
        """The device that the weights are on, and that inputs have to be on."""
        if isinstance(self.module, nn.Module):
            for tensor in (*self.module.parameters(), *self.module.buffers()):
                return tensor.device
        return torch.device("cpu")


def load(
    name: str | PathLike[str] = DEFAULT,
    *,
    weights: str | PathLike[str] | None = None,
    size: int | tuple[int, int] | None = None,
    mean: float | Sequence[float] | None = None,
    scale: float | Sequence[float] | None = None,
    order: Order | None = None,
    fit: Fit | None = None,
    crop: float | None = None,
    classes: str | PathLike[str] | Sequence[str] | None = None,
    device: str | torch.device | None = None,
    trust: bool = False,
) -> Network:
    """Load a network by its name.

    Args:
        name: ``efficientnet-lite0``; ``googlenet``; a name of torchvision or timm, where they are installed (``resnet50``,
            ``torchvision:resnet50``, ``timm:vit_base_patch16_224``); an .onnx file; with ``trust``,
            ``package.module:function`` for your own (it is imported, from the current folder too), or the path of a TorchScript
            or ``torch.export`` file. But for ``net.onnx``, a text without a folder in it is a name and never a file:
            ``./net.pt2`` is one.
        weights: a state dict to load into the network (.pth, .safetensors; for BVLC's GoogLeNet .caffemodel or .npz), or the
            name of a set of torchvision's (``IMAGENET1K_V1``).
        size: height and width of the input, where the network does not say or takes others.
        mean: taken from the pixels (0 to 255), a number or one per channel of the network.
        scale: that they are then divided by.
        order: the order of the network's channels, ``RGB`` or ``BGR``.
        fit: ``crop``, ``stretch`` or ``pad``.
        crop: the share of the shorter side that ``crop`` keeps.
        classes: class names, as a list or a file with one per line.
        device: where to put the weights.
        trust: whether a network that is code may run: ``package.module:function``, TorchScript, ``torch.export``, and what
            timm loads from places of anybody (``timm:hf_hub:``). Without it, these raise a
            :class:`~integrand.errors.TrustError`; nobody is asked.

    Returns:
        The network; its ``source`` and ``notes`` say what was used and what was assumed.
    """
    text = fspath(name)
    found = _found(name, None if weights is None else fspath(weights), trust=trust)
    own = {"mean": _three(mean), "scale": _three(scale), "order": order, "fit": fit, "crop": crop}
    own["size"] = (size, size) if isinstance(size, int) else size
    given: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
    if found.fixed is not None and given.get("size", found.fixed) != found.fixed:
        raise OptionError(
            f"got size {given['size']}; {text} was exported for {found.fixed}. Leave size out, or export it again."
        )
    preprocess = replace(found.preprocess, **given)
    module = _placed(found.module, device)
    outputs = _tried(text, module, preprocess)
    names, of_names = _named(found, classes, outputs)
    notes = (*found.notes, *_about(found, preprocess, given), *of_names)
    if found.rows and isinstance(module, nn.Module) and not _takes_two(module, preprocess):
        module = Exported(module, 1)
        notes = (*notes, "the file takes one row at a time, and runs so; one for any number of rows would be faster")
    return Network(text, module, preprocess, names, found.source, notes, outputs)


def network_of(
    model: Callable[..., Any],
    *,
    preprocess: Preprocess | None = None,
    classes: str | PathLike[str] | Sequence[str] | None = None,
    name: str = "your network",
) -> Network:
    """A classifier of yours as a network with what is needed to use it; it is run once on a black picture.

    Args:
        model: an ``nn.Module``, or any function, from (N, 3, H, W) to one score per class.
        preprocess: from a photo to its input; by ImageNet's convention if not given.
        classes: class names, as a list or a file with one per line.
        name: what it is called.
    """
    source = sources.Source(model, preprocess or sources.IMAGENET, "given", assumed=preprocess is None)
    module = _placed(model, None)
    outputs = _tried(name, module, source.preprocess)
    names, of_names = _named(source, classes, outputs)
    notes = (*_about(source, source.preprocess, {}), *of_names)
    return Network(name, module, source.preprocess, names, "given", notes, outputs)


def _found(name: str | PathLike[str], weights: str | None, *, trust: bool) -> Source:
    """Load the network from the source that its name stands for."""
    place, _, rest = (name if isinstance(name, str) else "").partition(":")
    if place == "torchvision" and rest:
        return sources.torchvision(rest, weights)
    if place == "timm" and rest:
        return sources.timm(rest, weights, trust=trust)
    if place in ("fastestdet", "espnet") and rest:
        raise OptionError(
            f"got the network {shown(place)!r}, which finds boxes or masks; expected one that names a class for a photo. "
            f"Explain it with: integrand scene PHOTO --model {shown(str(name))} (in Python: integrand.apps.scenes)"
        )
    if Path(name).suffix.lower() == ONNX:  # data, by any name
        return sources.of_onnx(Path(name), weights)
    if not isinstance(name, str) or is_path(name):
        return sources.from_file(Path(name), weights, trust=trust)
    plain = name.lower().replace("_", "-")
    if plain == "efficientnet-lite0":
        return sources.efficientnet_lite0(weights)
    if plain == "googlenet":
        return sources.googlenet(weights)
    if Path(name).suffix.lower() in ENDINGS:
        raise OptionError(
            f"got the network {shown(name)!r}, the name of a file; expected a path, which has a folder in it: ./{name}"
        )
    if rest:
        return sources.own(name, weights, trust=trust)
    return _by_package(name, weights)


def _by_package(name: str, weights: str | None) -> Source:
    models, timm = sources.package("torchvision.models"), sources.package("timm")
    if models is not None and name in models.list_models(module=models):
        return sources.torchvision(name, weights)
    if timm is not None and timm.is_model(name):
        return sources.timm(name, weights)
    known = [DEFAULT, "googlenet", *(models.list_models(module=models) if models is not None else ())]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    away = [package for package, there in (("torchvision", models), ("timm", timm)) if there is None]
    hints = [f" Near: {', '.join(near)}."] if near else []
    hints += [f" Not installed: {' and '.join(away)}."] if away else []
    hints += [f" The file of that name is ./{shown(name)}."] if Path(name).exists() else []
    raise OptionError(
        f"there is no network {shown(name)!r}; expected {DEFAULT}, googlenet, a name of torchvision or timm, "
        f"package.module:function, an .onnx file, or the path of a TorchScript or torch.export file.{''.join(hints)}"
    )


def _three(value: float | Sequence[float] | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    return (float(value),) * 3 if isinstance(value, (int, float)) else tuple(map(float, value))


def _placed(module: Callable[..., Any], device: str | torch.device | None) -> Callable[..., Any]:
    """The module in eval mode, on the device asked for."""
    if not isinstance(module, nn.Module):
        return module
    try:
        return module.eval() if device is None else module.eval().to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        said = first_line(error)
        raise OptionError(
            f"got device {str(device)!r} ({said}); expected one that torch has here, such as cpu or cuda."
        ) from error


def _black(module: Callable[..., Any], preprocess: Preprocess, rows: int) -> Tensor:
    """Black pictures, (rows, 3, H, W), on the network's device and in its precision."""
    x = preprocess.low.expand(3, *preprocess.size)[None].repeat(rows, 1, 1, 1)
    weight = next(module.parameters(), None) if isinstance(module, nn.Module) else None
    return x if weight is None else x.to(weight.device, weight.dtype if weight.is_floating_point() else x.dtype)


def _takes_two(module: nn.Module, preprocess: Preprocess) -> bool:
    """Whether a network from a file takes more than one row; it may be fixed to the batch it was traced with."""
    try:
        with torch.no_grad():
            return len(main_tensor(module(_black(module, preprocess, 2)))) == 2
    except Exception:
        return False


def _tried(name: str, module: Callable[..., Any], preprocess: Preprocess) -> int:
    """Run the network once on a black picture, so that a mismatch is found now; returns the number of its outputs."""
    x = _black(module, preprocess, 1)
    try:
        with torch.no_grad():
            output = main_tensor(module(x))
    except IntegrandError:
        raise
    except Exception as error:
        said = first_line(error)
        raise ModelError(
            f"{name} fails on an input of shape {tuple(x.shape)}: {said}. Expected a network of pictures; give the height and "
            "width that it takes with size= (--size); a network of grey pictures needs a wrapper that takes three channels."
        ) from error
    if output.ndim != 2 or len(output) != 1:
        maps = " Masks are explained by integrand scene, or in Python with targets.mask(class)." if output.ndim == 4 else ""
        raise ModelError(
            f"{name} gives {tuple(output.shape)} for one picture; expected (1, classes): one score per class.{maps}"
        )
    return int(output.shape[1])


def _named(
    found: Source, classes: str | PathLike[str] | Sequence[str] | None, outputs: int
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The class names, and remarks on where they come from."""
    if classes is not None:
        names = class_names.read_classes(classes)
        if len(names) != outputs:
            raise OptionError(
                f"classes: got {len(names)} names; the network has {outputs} outputs. Expected one name for each."
            )
        return names, ()
    if found.classes is not None and len(found.classes) == outputs:
        return found.classes, ()
    if outputs == IMAGENET_CLASSES:
        assumed = "1000 outputs: the names of ImageNet's classes are assumed; give classes= (--classes) if they are others"
        try:
            return imagenet(), (assumed,)
        except MissingExtraError as error:
            return None, (f"{error}; or give the names with classes= (--classes)",)
    return None, ("the names of the classes are not known; give classes= (--classes) for them",)


def _about(found: Source, preprocess: Preprocess, given: dict[str, Any]) -> tuple[str, ...]:
    """Remarks on the preprocessing that the user should know."""
    if found.assumed and not {"mean", "scale"} <= given.keys():
        told = f" (you gave {', '.join(sorted(given))})" if given else ""
        return (f"the preprocessing is assumed: {preprocess}{told}. Check it against how the network was trained",)
    return (f"preprocessing as you gave it: {preprocess}",) if given else ()
