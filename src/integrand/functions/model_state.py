"""The modules that a callable runs, and running them without leaving a trace.

After a call modes, ``requires_grad``, buffers, torch's random state and its switches are as they were before. Calls from
several threads that run the same model wait for each other.
"""

from __future__ import annotations

import dis
import functools
import inspect
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InPlaceWarning, ModelError, TrainModeError, warn

DEPTH = 5
"""How far to look: a partial of a bound method of an object with a list of modules is this deep."""

MOST = 1000
"""Longer containers hold data, not modules."""

_CONTAINERS = (list, tuple, set, dict)

Generator = np.random.Generator | np.random.RandomState | torch.Generator | random.Random
GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)


def modules_of(model: Callable[..., Any]) -> list[nn.Module]:
    """The modules that a callable runs, as far as can be seen: itself, its closure, its object, what it names.

    >>> net = nn.Linear(2, 1)
    >>> modules_of(lambda x: net(x).sigmoid()) == [net]
    True
    """
    modules = [getattr(value, "_orig_mod", value) for value in _within(model) if isinstance(value, nn.Module)]
    return list({id(module): module for module in modules}.values())  # torch.compile wraps what it calls _orig_mod


def generators_of(model: Callable[..., Any]) -> list[Generator]:
    """The random generators that a callable or one of its modules holds, as far as can be seen.

    >>> own = np.random.default_rng(0)
    >>> generators_of(lambda x: x + own.random()) == [own]
    True
    """
    held = [value for value in _within(model) if isinstance(value, GENERATORS)]
    # By their exact type, which is several times as fast: large models have tens of thousands of attributes.
    held += [value for module in all_modules(modules_of(model)) for value in vars(module).values() if type(value) in GENERATORS]
    return list({id(generator): generator for generator in held}.values())


class RandomSources:
    """The random generators that a model may draw from: torch's, numpy's and Python's own, and those that it holds itself.

    >>> sources = RandomSources(torch.sin)
    >>> before = sources.state()
    >>> sources.state() == before, torch.rand(()).item() and sources.state() == before
    (True, False)
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self._held = generators_of(model)

    def state(self) -> tuple[Any, ...]:
        """Their state, to be compared with that of before."""
        states = [torch.get_rng_state().numpy().tobytes(), *_numpy_state(np.random.get_state()), random.getstate()]
        if torch.cuda.is_initialized():
            states.append(torch.cuda.get_rng_state().numpy().tobytes())
        for generator in self._held:
            if isinstance(generator, torch.Generator):
                states.append(generator.get_state().numpy().tobytes())
            elif isinstance(generator, np.random.Generator):
                states.append(repr(generator.bit_generator.state))
            else:
                states += _numpy_state(generator.get_state()) if hasattr(generator, "get_state") else [generator.getstate()]
        return tuple(states)


def _numpy_state(state: Any) -> list[Any]:
    """What ``numpy.random.get_state`` gives, without arrays."""
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in state]


def _within(model: Callable[..., Any]) -> list[object]:
    """A callable and what it holds or names, each once; modules are not looked into."""
    seen: dict[int, object] = {}  # the objects too, so that no id is used again
    waiting: list[tuple[object, int]] = [(model, 0)]
    for value, depth in waiting:
        if id(value) in seen or depth > DEPTH:
            continue
        seen[id(value)] = value
        if not isinstance(value, (nn.Module, *GENERATORS)):
            waiting += [(part, depth + 1) for part in _parts(value)]
    return list(seen.values())


def all_modules(roots: Iterable[nn.Module]) -> list[nn.Module]:
    """Modules and all that is below them, each once; ``nn.Module.modules`` takes several times as long."""
    found: dict[int, nn.Module] = {}
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if id(module) not in found:
            found[id(module)] = module
            waiting += [child for _, child in module._modules.items() if child is not None]
    return list(found.values())


def _parts(value: object) -> Iterable[object]:
    """What a value holds that might be, or hold, a module that it runs."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if inspect.ismethod(value):
        return [value.__self__, value.__func__]
    if inspect.isfunction(value):
        return _reachable(value)
    if isinstance(value, (Mapping, *_CONTAINERS)):
        parts = value.values() if isinstance(value, Mapping) else value
        return parts if len(value) <= MOST else []
    if isinstance(value, (type, ModuleType, Tensor)):
        return []
    slots = [name for kind in type(value).__mro__ for name in _listed(vars(kind).get("__slots__", ()))]
    held = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]
    # An object's modules, and what it may call; not every object that it knows.
    return [part for part in held if isinstance(part, (nn.Module, *_CONTAINERS, *GENERATORS)) or callable(part)]


def _listed(slots: str | Iterable[str]) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _reachable(function: FunctionType) -> list[object]:
    """What a function can see by name: closure, defaults, and the globals it reads (functions only of the same file)."""
    parts: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # a cell that is not filled yet
            continue
    space = function.__globals__
    named = [space[name] for name in _global_names(function.__code__) if name in space]
    return parts + [part for part in named if not inspect.isfunction(part) or part.__globals__ is space]


@lru_cache(maxsize=256)
def _global_names(code: CodeType) -> frozenset[str]:
    """The globals that code reads, functions and comprehensions inside it included; attributes are not among them."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return frozenset(names).union(*(_global_names(part) for part in code.co_consts if isinstance(part, CodeType)))


SMALL = 1 << 16
"""Buffers with so many entries are copied and compared together; larger ones one by one."""

KEPT_BYTES = 256 << 20
"""Copies of larger buffers, in all: masks and caches fit, the weights of quantised networks, which are buffers too, do not."""


def check_eval_mode(modules: Sequence[nn.Module]) -> None:
    """Refuse train mode where it changes the answer or the model."""
    for root in modules:
        for name, module in root.named_modules():
            reason = _train_mode_reason(module) if in_train_mode(module) else ""
            if reason:
                where = f"its submodule {name!r}" if name else "it"
                raise TrainModeError(
                    f"the model is in train mode and {where} is a {_kind(module)}, which {reason}. "
                    "Expected a model in eval mode: call model.eval() first (and model.train() afterwards if you need it)."
                )


def in_train_mode(module: nn.Module) -> bool:
    """Whether a module is in train mode; what ``torch.jit.freeze`` gives has no modes any more."""
    return bool(getattr(module, "training", False))


def without_numbers(model: Callable[..., Any]) -> str:
    """The name of a parameter or buffer on the meta device, which holds no numbers; empty where there is none."""
    named = (pair for root in modules_of(model) for pair in (*root.named_parameters(), *root.named_buffers()))
    return next((name for name, tensor in named if tensor.is_meta), "")


def _kind(module: nn.Module) -> str:
    """The name of a module's class, also after ``torch.jit.script``."""
    return str(getattr(module, "original_name", type(module).__name__))


def _train_mode_reason(module: nn.Module) -> str:
    kind = _kind(module)
    scripted_norm = isinstance(module, torch.jit.ScriptModule) and "BatchNorm" in kind
    if isinstance(module, nn.modules.batchnorm._BatchNorm) or scripted_norm:
        return "mixes the rows of a batch and changes its running statistics"
    # Rates go by many names: p, dropout, drop_prob, attention_dropout.
    rates = [rate for name, rate in vars(module).items() if "drop" in name.lower() and type(rate) is float]
    if "Drop" in kind:
        rate = getattr(module, "p", None)
        rates += [float(rate)] if isinstance(rate, (int, float)) else []
        rates = rates or [1.0]  # not under any name that we know
    return "answers differently each time" if isinstance(module, nn.RReLU) or any(rates) else ""


@contextmanager
def undisturbed(model: Callable[..., Any], *, differentiable: bool = False) -> Iterator[None]:
    """Run a model inside; afterwards it is as it was.

    Inside, gradients are on, parameters do not ask for them (unless ``differentiable``), float32 on a GPU is float32,
    attention without gradients is computed as with them, and recurrent networks may be differentiated in eval mode.
    Afterwards parameters' ``requires_grad``, buffers, torch's random state and switches are as before, whatever happened.

    Another thread that runs the same modules inside such a context waits until this one is through: what is switched,
    replaced and put back belongs to the modules, not to the thread.
    """
    roots = modules_of(model)
    with ExitStack() as stack:
        for root in sorted(roots, key=id):  # in the same order by everybody, so that no two wait for each other
            stack.enter_context(_lock_of(root))
        stack.enter_context(_put_back(roots, differentiable=differentiable))
        yield


_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


def _lock_of(module: nn.Module) -> threading.RLock:
    """The lock of a module, the same each time; one that nobody shares for modules that cannot be referred to weakly."""
    try:
        return _LOCKS.setdefault(module, threading.RLock())
    except TypeError:
        return threading.RLock()


@contextmanager
def _put_back(roots: Sequence[nn.Module], *, differentiable: bool) -> Iterator[None]:
    """What :func:`undisturbed` does, for one thread."""
    modules = all_modules(roots)
    if any(map(in_train_mode, modules)):
        check_eval_mode(roots)
    every = {id(p): p for m in modules for _, p in m._parameters.items() if p is not None}
    parameters = {key: parameter for key, parameter in every.items() if parameter.requires_grad}
    if any(parameter.is_inference() for parameter in parameters.values()):
        raise ModelError(
            "the model was built inside torch.inference_mode(), and its parameters cannot take part in a gradient. Expected "
            "ordinary parameters: build or load the model outside, or explain copy.deepcopy(model)."
        )
    buffers, watched = _kept_buffers(modules)
    cuda = {parameter.device for parameter in every.values() if parameter.is_cuda}
    if torch.cuda.is_initialized():  # also where no module can be seen
        cuda.add(torch.device("cuda", torch.cuda.current_device()))
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(cuda)))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_SAME_ATTENTION)
        if cuda:
            recurrent = any(isinstance(module, nn.RNNBase) for module in modules)
            stack.enter_context(cuda_in_float32(recurrent=recurrent))
        try:
            if not differentiable:
                for parameter in parameters.values():
                    parameter.requires_grad_(False)
            yield
        finally:
            for parameter in parameters.values():
                parameter.requires_grad_(True)
            for kept in buffers:
                kept.put_back()
            for module, name, buffer, _ in watched:
                _bind(module, name, buffer)
    written = [f"{name!r} ({buffer.numel()} entries)" for _, name, buffer, version in watched if buffer._version != version]
    if written:
        warn(
            f"the model writes to its buffer(s) {', '.join(written)}, too large to be put back ({KEPT_BYTES >> 20} MiB are "
            "kept): they are not as they were. Expected a model that leaves its buffers alone in eval mode: explain "
            "copy.deepcopy(model), or do not write there.",
            InPlaceWarning,
        )


class SameAttention:
    """A context in which attention is computed as it is with gradients, also without.

    PyTorch has kernels for whole encoder layers that it takes only where no gradient is asked for. They round differently, and
    on a GPU their GELU is an approximation: 1e-4 off in float64, which would look like rows that influence each other. The
    switch is the process's, so that the first thread to enter turns it and the last one to leave turns it back.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                torch.backends.mha.set_fastpath_enabled(self._before)


_SAME_ATTENTION = SameAttention()


@contextmanager
def cuda_in_float32(*, recurrent: bool) -> Iterator[None]:
    """No TF32, which moves attributions of image networks by per cent; and recurrent networks that can be differentiated."""
    cudnn = torch.backends.cudnn
    # cuDNN refuses the backward of a recurrent network in eval mode; PyTorch's own kernels do not.
    options = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic, "allow_tf32": False}
    precision = torch.get_float32_matmul_precision()
    with cudnn.flags(enabled=cudnn.enabled and not recurrent, **options):
        try:
            if precision != "highest":
                torch.set_float32_matmul_precision("highest")
            yield
        finally:
            if precision != "highest":
                torch.set_float32_matmul_precision(precision)


@dataclass(frozen=True)
class BufferSnapshot:
    """Buffers of one kind: each with its module and name, and what all of them held, one after the other.

    Copied and compared together: a GPU takes as long for one small buffer as for all of them.
    """

    places: list[tuple[nn.Module, str, Tensor]]
    before: Tensor

    @staticmethod
    def of(places: list[tuple[nn.Module, str, Tensor]]) -> BufferSnapshot:
        """Keep what these hold now."""
        found = _together(places)
        return BufferSnapshot(places, found.clone() if len(places) == 1 else found)

    @torch.no_grad()
    def put_back(self) -> None:
        """Write back what has changed, and only that: to write to a buffer would invalidate graphs that the user holds."""
        if not torch.equal(_together(self.places), self.before):
            parts = self.before.split([buffer.numel() for _, _, buffer in self.places])
            for (_, _, buffer), part in zip(self.places, parts, strict=True):
                if not torch.equal(buffer.flatten(), part):
                    buffer.copy_(part.view_as(buffer))
        for module, name, buffer in self.places:
            _bind(module, name, buffer)


def _bind(module: nn.Module, name: str, buffer: Tensor) -> None:
    """Give a module its own buffer again, where it has put another one in its place."""
    if not isinstance(module, torch.jit.ScriptModule):
        module._buffers[name] = buffer


def _together(places: list[tuple[nn.Module, str, Tensor]]) -> Tensor:
    parts = [buffer.detach().flatten() for _, _, buffer in places]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _kept_buffers(modules: Sequence[nn.Module]) -> tuple[list[BufferSnapshot], list[tuple[nn.Module, str, Tensor, int]]]:
    """Buffers that a forward pass might write to.

    Returns:
        Copies to put back, small buffers of one kind together; and the buffers that are too large for that, each with its
        module, its name and its version, by which a write shows.
    """
    kinds: dict[object, list[tuple[nn.Module, str, Tensor]]] = {}
    large: list[tuple[nn.Module, str, Tensor]] = []
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is None or buffer.is_meta or buffer.is_inference() or buffer.layout != torch.strided:
                continue
            if buffer.numel() <= SMALL:
                kinds.setdefault((buffer.device, buffer.dtype), []).append((module, name, buffer))
            else:
                large.append((module, name, buffer))
    large.sort(key=lambda place: place[2].nbytes)
    fits = sum(total <= KEPT_BYTES for total in accumulate(buffer.nbytes for _, _, buffer in large))
    kept = [BufferSnapshot.of(places) for places in (*kinds.values(), *([place] for place in large[:fits]))]
    return kept, [(module, name, buffer, buffer._version) for module, name, buffer in large[fits:]]
