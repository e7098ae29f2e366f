"""The modules that a callable runs, and running them without leaving a trace.

After a call modes, ``requires_grad``, buffers, torch's random state and its switches are as they were before. Calls from
several threads that run the same modules, or need a switch of the process at different values, wait for each other.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import random
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, takewhile
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InPlaceWarning, ModelError, TrainModeError, quiet, warn

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
    return _modules_among(_within(model))


def _modules_among(values: Iterable[object]) -> list[nn.Module]:
    modules = [getattr(value, "_orig_mod", value) for value in values if isinstance(value, nn.Module)]
    return list({id(module): module for module in modules}.values())  # torch.compile wraps what it calls _orig_mod


def generators_of(model: Callable[..., Any]) -> list[Generator]:
    """The random generators that a callable or one of its modules holds, as far as can be seen.

    >>> own = np.random.default_rng(0)
    >>> generators_of(lambda x: x + own.random()) == [own]
    True
    """
    within = _within(model)
    held = [value for value in within if isinstance(value, GENERATORS)]
    # By their exact type, which is several times as fast: large models have tens of thousands of attributes.
    modules = all_modules(_modules_among(within))
    held += [value for module in modules for value in vars(module).values() if type(value) in GENERATORS]
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

    def state(self) -> tuple[list[Any], list[Any]]:
        """Their state, to be compared with that of before: of torch's own generators, and of all others."""
        current = [torch.device("cuda", torch.cuda.current_device())] if torch.cuda.is_initialized() else []
        states = [*_numpy_state(np.random.get_state()), random.getstate()]
        for generator in self._held:
            if isinstance(generator, torch.Generator):
                states.append(generator.get_state().numpy().tobytes())
            elif isinstance(generator, np.random.Generator):
                states.append(repr(generator.bit_generator.state))
            else:
                states += _numpy_state(generator.get_state()) if hasattr(generator, "get_state") else [generator.getstate()]
        return _torch_states(current), states


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


def _refuse_lazy(modules: Sequence[nn.Module]) -> None:
    """Refuse layers whose weights have no shape before they are run."""
    for root in modules:
        for name, module in root.named_modules():
            if any(nn.parameter.is_lazy(parameter) for _, parameter in module._parameters.items()):
                where = f"its submodule {name!r}" if name else "it"
                raise ModelError(
                    f"the model has not been run, and {where} is a {_kind(module)}, whose weights are made by the first run. "
                    "Expected a model with weights: run it once on x first, model(x), or load its state_dict."
                )


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

    Another thread that wants to run the same modules, or others with the same parameters or buffers, inside such a context
    waits until this one is through: what is switched, replaced and put back belongs to them, not to the thread.
    """
    roots = modules_of(model)
    modules = all_modules(roots)
    every = {id(p): p for m in modules for _, p in m._parameters.items() if p is not None}
    cuda = {parameter.device for parameter in every.values() if parameter.is_cuda}
    if torch.cuda.is_initialized():  # also where no module can be seen
        cuda.add(torch.device("cuda", torch.cuda.current_device()))
    buffers = [buffer for module in modules for _, buffer in module._buffers.items() if buffer is not None]
    with (
        PROCESS.claimed([*map(id, modules), *every, *map(id, buffers)], needed_switches(modules, cuda=bool(cuda))),
        keeping_random_state(cuda),
        torch.inference_mode(False),
        torch.enable_grad(),
        _put_back(roots, modules, every, differentiable),
    ):
        yield


def needed_switches(modules: Sequence[nn.Module], *, cuda: bool) -> dict[str, Hashable]:
    """The switches that matter to a call that does not turn them itself, and their values; None: as the user has them."""
    needed: dict[str, Hashable] = {"fast path": "off", "attention": None, "onednn": None, "compiler": None}
    if cuda:
        # cuDNN refuses the backward of a recurrent network in eval mode; PyTorch's own kernels do not.
        needed["cudnn"] = "off" if any(isinstance(module, nn.RNNBase) for module in modules) else None
        needed |= {"tf32": False, "capturing": None}
    return needed


@contextmanager
def _put_back(
    roots: Sequence[nn.Module], modules: Sequence[nn.Module], every: Mapping[int, nn.Parameter], differentiable: bool
) -> Iterator[None]:
    """Modules whose parameters do not ask for gradients inside, and which are as they were afterwards."""
    if any(map(nn.parameter.is_lazy, every.values())):
        _refuse_lazy(roots)
    if any(map(in_train_mode, modules)):
        check_eval_mode(roots)
    parameters = [parameter for parameter in every.values() if parameter.requires_grad]
    if any(parameter.is_inference() for parameter in parameters):
        raise ModelError(
            "the model was built inside torch.inference_mode(), and its parameters cannot take part in a gradient. Expected "
            "ordinary parameters: build or load the model outside, or explain copy.deepcopy(model)."
        )
    buffers, watched = _kept_buffers(modules)
    try:
        if not differentiable:
            for parameter in parameters:
                parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters:
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


_CALL = threading.local()


def only_thread() -> bool:
    """Whether no other thread could have drawn random numbers meanwhile."""
    return len(sys._current_frames()) == 1


def note_draws() -> None:
    """Take note that the call that this thread is in draws from torch's generators, whose state is then put back after it."""
    if hasattr(_CALL, "draws"):
        _CALL.draws = True


@contextmanager
def keeping_random_state(cuda: Iterable[torch.device]) -> Iterator[None]:
    """Put torch's random state back afterwards, on the CPU and on some GPUs, if it was this call that drew from it.

    Torch's generators belong to the process. Beside other threads, which may draw from them at any time, a state that has
    changed is left alone unless :func:`note_draws` was told that the call itself draws: whoever drew meanwhile would otherwise
    get the same numbers once more.
    """
    devices, outermost = list(cuda), not hasattr(_CALL, "draws")
    before = _torch_states(devices)
    if outermost:
        _CALL.draws = False
    try:
        yield
    finally:
        drew = _CALL.draws
        if outermost:
            del _CALL.draws
        if _torch_states(devices) != before and (drew or only_thread()):
            first, *others = (torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in before)
            torch.set_rng_state(first)
            for device, state in zip(devices, others, strict=True):
                torch.cuda.set_rng_state(state, device)


def _torch_states(devices: Sequence[torch.device]) -> list[bytes]:
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
    return [state.numpy().tobytes() for state in states]


@dataclass(frozen=True, eq=False)
class ThreadNeeds:
    """What a thread needs of the process while it runs a model.

    Attributes:
        parts: what no other thread may have at the same time: modules, parameters and buffers, by their ids.
        switches: the value of each switch that matters, by its name; None for the value that the user has given it.
    """

    parts: frozenset[Hashable] = frozenset()
    switches: Mapping[str, Hashable] = field(default_factory=dict)

    def joined(self, inner: ThreadNeeds) -> ThreadNeeds:
        """This and what is needed further in: switches keep the value that somebody further out has asked for by name."""
        turned = {name: value for name, value in inner.switches.items() if value is not None or name not in self.switches}
        return ThreadNeeds(self.parts | inner.parts, {**self.switches, **turned})

    def allows(self, other: ThreadNeeds) -> bool:
        """Whether another thread may have what it needs at the same time."""
        same = all(other.switches.get(name, value) == value for name, value in self.switches.items())
        return same and self.parts.isdisjoint(other.parts)


NOTHING = ThreadNeeds()


class SharedProcess:
    """What threads share: modules, and switches. Where two cannot both have what they need, one of them waits.

    A switch is turned when the first thread needs it turned, and turned back after the last. A thread that needs another value
    waits until nobody needs the present one. While it waits, it gives up its switches, but not its modules, since it runs
    nothing; all that it needs is then taken at once. So no two threads wait for each other, and no switch is ever at a value
    that a running thread does not expect.

    Args:
        switches: by their names, functions from a value to a context in which the switch has this value.
    """

    def __init__(self, switches: Mapping[str, Callable[[Any], AbstractContextManager[Any]]]) -> None:
        self._switches = switches
        self.reset()

    def reset(self) -> None:
        """Forget all threads, as after a fork, which none but the caller survives."""
        self._turn = threading.Condition()
        self._held: dict[int, list[ThreadNeeds]] = {}
        self._running: dict[int, ThreadNeeds] = {}
        self._waiting: list[ThreadNeeds] = []
        self._turned: dict[str, tuple[Hashable, AbstractContextManager[Any]]] = {}
        self._helper = threading.local()

    def help_another_thread(self) -> None:
        """Let the calling thread work for another one, which has what both need: it claims nothing from now on."""
        self._helper.helps = True

    @contextmanager
    def claimed(self, parts: Iterable[Hashable] = (), switches: Mapping[str, Hashable] | None = None) -> Iterator[None]:
        """Have some parts to oneself, and switches at some values, while in this context; waits until that is possible."""
        if getattr(self._helper, "helps", False):
            yield
            return
        claim, me = ThreadNeeds(frozenset(parts), switches or {}), threading.get_ident()
        try:
            with self._turn:
                self._change(me, [*self._held.get(me, ()), claim])
            yield
        finally:
            with self._turn:
                self._change(me, [one for one in self._held.get(me, ()) if one is not claim])

    def _change(self, me: int, claims: list[ThreadNeeds]) -> None:
        """Let a thread have these claims instead of those that it has; those of one that enters come last in the queue."""
        wanted, before = functools.reduce(ThreadNeeds.joined, claims) if claims else NOTHING, self._running.get(me)
        if not self._free(me, wanted, queues=before is None):
            if before is not None:
                self._settle(me, self._held[me], ThreadNeeds(before.parts))
            self._waiting.append(wanted)
            try:
                self._turn.wait_for(lambda: self._free(me, wanted, queues=before is None))
            except BaseException:
                if len(claims) < len(self._held.get(me, ())):  # an interrupt while leaving: that is done in any case
                    self._settle(me, claims, wanted)
                raise
            finally:
                self._waiting.remove(wanted)
        self._settle(me, claims, wanted)

    def _free(self, me: int, wanted: ThreadNeeds, *, queues: bool) -> bool:
        """Whether a thread can have what it wants: nobody has it otherwise and, if it queues, nobody has waited longer."""
        if any(not wanted.allows(other) for thread, other in self._running.items() if thread != me):
            return False
        return not queues or all(map(wanted.allows, takewhile(lambda other: other is not wanted, self._waiting)))

    def _settle(self, me: int, claims: list[ThreadNeeds], running: ThreadNeeds) -> None:
        """Note what a thread has, turn switches accordingly, and let the others look."""
        if claims:
            self._held[me], self._running[me] = claims, running
        else:
            self._held.pop(me, None)
            self._running.pop(me, None)
        needed = {n: v for one in self._running.values() for n, v in one.switches.items() if v is not None}
        for name in [name for name, (value, _) in self._turned.items() if needed.get(name) != value]:
            self._turned.pop(name)[1].__exit__(None, None, None)
        for name in needed.keys() - self._turned.keys():
            context = self._switches[name](needed[name])
            context.__enter__()
            self._turned[name] = needed[name], context
        if self._waiting:
            self._turn.notify_all()


@contextmanager
def _without_fast_path(_: object) -> Iterator[None]:
    """Attention computed as it is with gradients, also without.

    PyTorch has kernels for whole encoder layers that it takes only where no gradient is asked for. They round differently, and
    on a GPU their GELU is an approximation: 1e-4 off in float64, which would look like rows that influence each other.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _plain_attention(_: object) -> AbstractContextManager[Any]:
    """Attention as plain matrix products, which can be followed and differentiated twice, not as one fused kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    plain: AbstractContextManager[Any] = sdpa_kernel(SDPBackend.MATH)
    return plain


@contextmanager
def _without_onednn(_: object) -> Iterator[None]:
    """Recurrent layers as plain operations: oneDNN runs a whole one in one kernel."""
    # Not torch.backends.mkldnn.flags, which warns about Intel GPUs.
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def _without_cudnn(_: object) -> Iterator[None]:
    before, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


@contextmanager
def tf32(on: Hashable) -> Iterator[None]:
    """TF32 on a GPU on (True) or off: in forward passes it moves attributions of image networks by per cent."""
    on = on is True
    cudnn, precision, wanted = torch.backends.cudnn, torch.get_float32_matmul_precision(), "high" if on else "highest"
    before = cudnn.allow_tf32
    try:
        if before != on:
            cudnn.allow_tf32 = on
        if precision != wanted:
            torch.set_float32_matmul_precision(wanted)
        yield
    finally:
        if before != on:
            cudnn.allow_tf32 = before
        if precision != wanted:
            torch.set_float32_matmul_precision(precision)


@contextmanager
def _no_waiting(_: object) -> Iterator[None]:  # needs a GPU
    """Refuse what waits for the GPU."""
    before = torch.cuda.get_sync_debug_mode()
    with quiet():  # that not everything is found
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


PROCESS = SharedProcess(
    {
        "fast path": _without_fast_path,
        "attention": _plain_attention,
        "onednn": _without_onednn,
        "compiler": lambda _: torch.compiler.set_stance("force_eager"),
        "cudnn": _without_cudnn,
        "tf32": tf32,
        "waiting for a GPU": _no_waiting,
        "capturing": nullcontext,  # a CUDA graph
    }
)
"""The modules and switches of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.reset)


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
