"""The converters from ONNX to torch, onnx2pytorch and onnx2torch, imported without torchvision.

Both ask for torchvision, for four operations of detectors alone, and import it with everything else. It has to match torch's
build exactly, and is often missing or broken. So their modules that import it get a stand-in, which looks for the real one
when such an operation is run. ``sys.modules`` never holds the stand-in: whoever imports torchvision gets the real one, or its
own error.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.metadata
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from ..errors import IntegrandError, MissingExtraError, ModelError, quiet
from ..words import first_line

if TYPE_CHECKING:
    from onnx import ModelProto

ConverterName = Literal["onnx2pytorch", "onnx2torch"]

CONVERTERS: tuple[ConverterName, ...] = ("onnx2pytorch", "onnx2torch")
"""In the order in which they are tried: the first knows more operations, recurrent networks and branches among them."""

INSTALL = "pip install --no-deps onnx2pytorch onnx2torch"
"""How the converters are installed; with their dependencies, pip would bring torchvision, and with it perhaps another torch."""

_LOCK = threading.RLock()
_REAL_IMPORT = builtins.__import__


class TorchvisionStandIn:
    """Stands for torchvision, or something in it, and looks for the real one when it is called.

    Args:
        path: what it stands for: ``torchvision.ops.nms``.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> TorchvisionStandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return TorchvisionStandIn(f"{self._path}.{name}")

    def real(self) -> Any:
        """What it stands for."""
        place, _, name = self._path.rpartition(".")
        try:
            return getattr(importlib.import_module(place), name)
        except Exception as error:  # a torchvision for another torch raises RuntimeError
            raise ModelError(
                f"the network uses an operation that needs {self._path}, which is not to be had here ({first_line(error)}). "
                "Install the torchvision that belongs to this torch, or export the network without that operation."
            ) from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the real one."""
        args = tuple(a.real() if isinstance(a, TorchvisionStandIn) else a for a in args)
        return self.real()(*args, **{k: v.real() if isinstance(v, TorchvisionStandIn) else v for k, v in kwargs.items()})


def _importing(name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0) -> Any:
    """Python's ``__import__`` for modules of the converters: all as ever, but for torchvision."""
    if level == 0 and name.partition(".")[0] == "torchvision":
        return TorchvisionStandIn(name if fromlist else "torchvision")
    return _REAL_IMPORT(name, globals, locals, fromlist or (), level)


class _WithoutTorchvision(MetaPathFinder, Loader):
    """Finds the modules of a converter, and lets them import a stand-in for torchvision; all other modules are left alone."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """For modules of the converter, with a loader of ours."""
        if name.partition(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
            return spec
        spec.loader = _PatchedLoader(spec.loader)
        return spec


class _PatchedLoader(Loader):
    """Runs a module's code with an ``__import__`` of its own, which only the code of this module sees."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importing}
        exec(self.loader.get_code(module.__name__), module.__dict__)

    def __getattr__(self, name: str) -> Any:  # what tools ask a loader for: source, data
        return getattr(self.loader, name)


def converter_package(name: ConverterName) -> Any:
    """A converter's package; imported without torchvision, unless the user has imported it already.

    Raises:
        MissingExtraError: it is not installed; the error says how to do it without torchvision.
    """
    with _LOCK:
        if name in sys.modules:
            return sys.modules[name]
        if not _there(name):
            raise _missing([name])
        finder = _WithoutTorchvision(name)
        sys.meta_path.insert(0, finder)
        try:
            with quiet():
                return importlib.import_module(name)
        except BaseException:
            for one in [one for one in sys.modules if one.partition(".")[0] == name]:
                del sys.modules[one]  # half of a package
            raise
        finally:
            sys.meta_path.remove(finder)


def installed(wanted: Sequence[ConverterName]) -> list[ConverterName]:
    """Those of some converters that are installed.

    Raises:
        MissingExtraError: none of them is.
    """
    found = [name for name in wanted if _there(name)]
    if not found:
        raise _missing(wanted)
    return found


def _there(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _missing(wanted: Sequence[str]) -> MissingExtraError:
    error = MissingExtraError(wanted[0], "onnx", "converting an ONNX network")
    error.msg = (
        f"converting an ONNX network needs {' or '.join(wanted)}, and {'neither' if len(wanted) > 1 else 'it'} is "
        f"{'' if len(wanted) > 1 else 'not '}installed. Install them with: {INSTALL} (--no-deps, since they ask for "
        "torchvision, "
        "which is not needed); what else they use comes with: pip install 'integrand[onnx]'"
    )
    error.args = (error.msg,)
    return error


def version_of(name: str) -> str:
    """A converter with its version."""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return name


def convert(name: ConverterName, model: ModelProto) -> nn.Module:
    """Convert a network, in eval mode and without gradients of its weights; what a converter raises comes as it is.

    Args:
        name: of the converter.
        model: the network; converters change it, so that they get a copy.
    """
    package = converter_package(name)
    copy = type(model)()
    copy.CopyFrom(model)
    with quiet():
        found: nn.Module = package.ConvertModel(copy) if name == "onnx2pytorch" else package.convert(copy)
    return with_plain_norms(found.eval().requires_grad_(False))


class PlainNorm(nn.Module):
    """Batch normalisation for inference, written out: a product and a sum.

    torch's own (2.13, on the CPU) gives a wrong gradient for a single row whose gradient comes through ``flatten(2)`` and
    ``transpose(1, 2)``, as it does between a convolutional and a recurrent or attending part of a network: the gradient's
    first stride is then not the one that the kernel counts on.

    Args:
        norm: torch's module, in eval mode; its tensors are taken over under their names.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps = norm.eps
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C, ...)."""
        mean, var = self.get_buffer("running_mean"), self.get_buffer("running_var")
        scale = torch.rsqrt(var + self.eps)
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        sides = (1, -1, *(1,) * (x.ndim - 2))
        return x * scale.reshape(sides) + shift.reshape(sides)


def with_plain_norms(network: nn.Module) -> nn.Module:
    """A network whose batch normalisations are written out; changes it."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            lazy = isinstance(child, LazyModuleMixin)  # without statistics of its own: it gets them when it runs
            if isinstance(child, _BatchNorm) and not lazy and child.running_mean is not None:
                setattr(module, name, PlainNorm(child))
    return network


def reason(name: ConverterName, error: BaseException, model: ModelProto) -> str:
    """Why a converter failed, in a line; for onnx2torch with all operations that it has no rule for."""
    said = first_line(error)
    if name == "onnx2torch" and isinstance(error, NotImplementedError):
        missing = _without_rule(model)
        if missing:
            return f"has no rule for {', '.join(missing)}"
    marker = "Conversion not implemented for op_type="
    if marker in said:
        return f"has no rule for {said.partition(marker)[2].rstrip('.')}"
    if isinstance(error, IntegrandError):
        return said
    return f"{type(error).__name__}: {said}"


def _without_rule(model: ModelProto) -> list[str]:
    from .onnx_graphs import DOMAINS

    get = converter_package("onnx2torch").node_converters.get_converter
    versions = {entry.domain: entry.version for entry in model.opset_import}
    missing = set()
    for node in model.graph.node:
        try:
            get(domain=node.domain, operation_type=node.op_type, version=versions.get(node.domain, 1))
        except Exception:
            missing.add(node.op_type if node.domain in DOMAINS else f"{node.domain}:{node.op_type}")
    return sorted(missing)
