"""Recordings of a chunk's work on a GPU (CUDA graphs), replayed for other inputs of the same model.

A forward and backward pass of a few rows takes a GPU less time than it takes Python to ask for it, operation by operation. A
recording is asked for at once. It is made of chunks of a size that came up before and kept the GPU waiting, stays with the
model (:mod:`._remember`), and is used for as long as nothing about the model has changed that can be seen; what cannot be seen
shows in F(x), which every run finds without a recording first.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..functions.call import ModelCall
from ..functions.model_notes import known, known_of
from ..functions.model_state import all_modules, modules_of
from ..functions.target import Scorer
from ..trees import Leaves
from .torch_function import TorchFunction

SIZES = (4, 10, 18, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Rows of a recording; smaller chunks are filled up. A path starts with 17 nodes and a witness."""

USES = 2
"""Chunks of a size that ran without a recording before one is made of it: it takes as long as several."""

WAITS = 0.7
"""The share of a chunk's time that asking for it takes, from which on a recording is worth it; below, the GPU is busy."""

BYTES, SHARE = 2 << 30, 32
"""What the activations of a recording may take at the most, and which part of the GPU's memory: they are kept."""

MOST = 32
"""Recordings of a model; the oldest make room for a new one, also where what they hold of their own comes to :data:`BYTES`."""

ONE_AT_A_TIME = threading.RLock()
"""Recordings have one place for what they get and give, whoever asks; they run in one stream only."""

Run = Callable[[TorchFunction, Leaves, Tensor], tuple[Tensor, Leaves]]


def size_for(rows: int) -> int | None:
    """The smallest recording that has room for so many rows."""
    return next((size for size in SIZES if size >= rows), None)


def fit(function: TorchFunction) -> bool:
    """Whether recordings can stand for a function: batches on a GPU, nothing of the user's own between model and score."""
    if function.inputs[0].device.type != "cuda" or not function.batched or function.layered:
        return False
    call, scorer = function.run, function.scorer
    if type(call) is not ModelCall or call.copies or scorer.function is not None or scorer.read is not None:
        return False
    return not torch.is_autocast_enabled("cuda") and not torch.is_anomaly_enabled()


def _in_main_stream(device: torch.device) -> bool:
    """Whether work is asked for in the stream that all threads share, where it is done in the order that it is asked for."""
    return not torch.cuda.is_available() or torch.cuda.current_stream(device) == torch.cuda.default_stream(device)


@dataclass(frozen=True)
class CapturedGraph:
    """One chunk's work. It does not hold the model, which it is kept with: neither would ever go.

    Attributes:
        graph: what to replay.
        given: what a call gives besides points, arguments and targets, whose values are replaced before a replay.
        leaves: the points, (rows, ...).
        rows: which examples they belong to, (rows,).
        scores: what comes out, (rows,).
        gradients: likewise, (rows, ...).
    """

    graph: torch.cuda.CUDAGraph
    given: tuple[Tensor, ...]
    leaves: Leaves
    rows: Tensor
    scores: Tensor
    gradients: Leaves

    @staticmethod
    def make(function: TorchFunction, leaves: Leaves, rows: Tensor, size: int, run: Run, pool: Any) -> CapturedGraph:
        """Record a run of so many rows, in memory that it shares with other recordings: they never run at once."""
        own = _own(function)
        points = tuple(leaf.new_zeros(size, *leaf.shape[1:]) for leaf in leaves)
        labels = rows.new_zeros(size)
        _fill(points, labels, leaves, rows)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            with _no_waiting():
                run(own, tuple(leaf.detach() for leaf in points), labels)  # whatever is set up at first use
            torch.cuda.synchronize()
            # As torch.cuda.graph does, which also gives back all memory that torch keeps, and takes long to get it again.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                scores, gradients = run(own, tuple(leaf.detach() for leaf in points), labels)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(side)
        return CapturedGraph(graph, tuple(_tensors(own)), points, labels, scores, gradients)

    def replay(self, function: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """The same with other values."""
        count = len(rows)
        with ONE_AT_A_TIME:
            for mine, yours in zip(self.given, _tensors(function), strict=True):
                mine.copy_(yours)
            _fill(self.leaves, self.rows, leaves, rows)
            self.graph.replay()
            return self.scores[:count].clone(), tuple(part[:count].clone() for part in self.gradients)


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Refuse what waits for the GPU before a capture that would fail of it, which torch does not recover from."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that not everything is found
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _fill(points: Leaves, labels: Tensor, leaves: Leaves, rows: Tensor) -> None:
    """Write rows to the front, and the first of them behind."""
    count = len(rows)
    for mine, yours in zip((*points, labels), (*leaves, rows), strict=True):
        mine[:count] = yours.detach()
        mine[count:] = yours[:1].detach()


def _own(function: TorchFunction) -> TorchFunction:
    """The function with copies of everything that a call gives: arguments and targets, on the model's device."""
    call, device = function.run, function.inputs[0].device
    assert isinstance(call, ModelCall)
    args, kwargs = pytree.tree_map_only(Tensor, lambda value: value.detach().clone(), (call.args, dict(call.kwargs)))
    index = tuple(column.to(device, copy=True) for column in function.scorer.index)
    return replace(function, run=replace(call, args=args, kwargs=kwargs), scorer=_Fixed(function.scorer, index))


class _Fixed(Scorer):
    """A scorer whose targets are tensors throughout: which entry is picked is not part of the recording."""

    def __init__(self, scorer: Scorer, index: tuple[Tensor, ...]) -> None:
        super().__init__(scorer.examples, scorer.batched, scorer.score, index, None, scorer.words)

    same = None


def _tensors(function: TorchFunction) -> Iterator[Tensor]:
    """All tensors that a call gives, but the points."""
    call = function.run
    assert isinstance(call, ModelCall)
    yield from (leaf for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, Tensor))
    yield from function.scorer.index


def _signature(function: TorchFunction, way: object, size: int) -> Any:
    """What must be the same for a recording to be used again; None where that cannot be said."""
    call = function.run
    assert isinstance(call, ModelCall)
    others, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    kinds = tuple((tuple(o.shape), o.dtype, o.device) if isinstance(o, Tensor) else o for o in others)
    shapes = tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device) for leaf in function.inputs)
    cudnn, scorer = torch.backends.cudnn, function.scorer
    switches = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled())
    key = (way, size, function.examples, function.tree, shapes, kinds, repr(spec), len(scorer.index), scorer.score, switches)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _fingerprint(model: Callable[..., Any]) -> tuple[object, ...] | None:
    """Where the model's numbers are; None where hooks may do anything."""
    modules = all_modules(modules_of(model))
    if any(map(_hooked, modules)):
        return None
    tensors = [t for m in modules for group in (m._parameters, m._buffers) for _, t in group.items() if t is not None]
    out = (*((id(m), m.training) for m in modules), *((id(t), t.data_ptr()) for t in tensors))
    return out or None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _hooked(module: nn.Module) -> bool:
    return any(getattr(module, name, None) for name in _HOOKS)


class CapturedGraphs:
    """The recordings of a model, as far as one run may use them.

    Args:
        function: what is explained.
        run: runs a function without a recording.
        allowed: whether to use any.
    """

    def __init__(self, function: TorchFunction, run: Run, *, allowed: bool = True) -> None:
        self.function, self.run = function, run
        self.used = False
        self._candidate: Any = None
        self._notes: dict[Any, Any] | None = None
        if allowed and fit(function) and _in_main_stream(function.inputs[0].device):
            marks, notes = _fingerprint(function.call.model), known(function.call.model)
            if marks is not None:
                if notes.get("marks") != marks:
                    notes["marks"], notes["recordings"], notes["uses"] = marks, {}, {}
                self._notes = notes

    def find(self, way: object, leaves: Leaves, rows: Tensor) -> CapturedGraph | None:
        """A recording for these rows, made now if their size has come up often enough; None to run without."""
        self._candidate = None
        size = None if self._notes is None else size_for(len(rows))
        key = None if size is None else _signature(self.function, way, size)
        if self._notes is None or size is None or key is None:
            return None
        if key not in self._notes["recordings"]:
            uses = self._notes["uses"][key] = self._notes["uses"].get(key, 0) + 1
            if uses <= USES:
                self._candidate = key
                return None
            if not self._small(size):
                return None
            with ONE_AT_A_TIME:
                self._make_room(size)
                self._notes["recordings"][key] = self._made(leaves, rows, size)
        found: CapturedGraph | None = self._notes["recordings"].get(key)
        self.used |= found is not None
        return found

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run rows that :meth:`find` had no recording for, and see whether one would be of use."""
        if self._notes is None or self._candidate is None:
            yield
            return
        device = self.function.inputs[0].device
        torch.cuda.synchronize(device)  # what was asked for before is not waited for
        start = time.perf_counter()
        yield
        asked = time.perf_counter() - start
        torch.cuda.synchronize(device)
        if asked < WAITS * (time.perf_counter() - start):
            self._notes["recordings"][self._candidate] = None

    def forget(self) -> None:
        """Do without: what was recorded is not what the model does."""
        if self._notes is not None:
            self._notes["recordings"].clear()
        self._notes, self.used = None, False

    def _small(self, size: int) -> bool:
        total = torch.cuda.get_device_properties(self.function.inputs[0].device).total_memory
        saved = known_of(self.function).get("bytes", BYTES) + 2 * self._row()
        return bool(size * saved <= min(BYTES, total // SHARE))

    def _row(self) -> int:
        return sum(leaf[0].nbytes for leaf in self.function.inputs)

    def _make_room(self, size: int) -> None:
        """Forget the oldest recordings where there are many; and give back memory where there is little: capturing cannot."""
        assert self._notes is not None
        recordings = self._notes["recordings"]
        kept = [key for key, one in list(recordings.items()) if one is not None]
        # The points and the gradients of each are its own; activations are shared.
        fits = min(MOST, BYTES // max(1, 2 * max([size, *(key[1] for key in kept)]) * self._row()))
        for key in kept[: max(0, len(kept) - fits + 1)]:
            recordings.pop(key, None)
        device = self.function.inputs[0].device
        if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < 2 * BYTES:
            torch.cuda.empty_cache()

    def _made(self, leaves: Leaves, rows: Tensor, size: int) -> CapturedGraph | None:
        assert self._notes is not None
        others = [one.graph.pool() for one in list(self._notes["recordings"].values()) if one is not None]
        try:
            with torch.cuda.device(rows.device):
                return CapturedGraph.make(self.function, leaves, rows, size, self.run, others[0] if others else None)
        except (RuntimeError, AssertionError):  # the model waits for the GPU, or does what a recording cannot hold
            torch.cuda.synchronize()
            return None
