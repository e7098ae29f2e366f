"""CUDA graphs of a chunk's forward and backward pass, replayed for other inputs of the same model.

A forward and backward pass of a few rows takes a GPU less time than it takes Python to launch it, operation by operation; a
graph is launched at once. Graphs are captured for chunk sizes that came up before and kept the GPU waiting, stay with the model
(:mod:`integrand.functions.model_notes`), and are used for as long as nothing about the model has changed that can be seen; what
cannot be seen shows in F(x), which every run computes without a graph first.

Rows are padded to the size of a graph whether one is replayed or not, so that the same call gives the same bits before and
after a graph is captured. ``python -m benchmarks.cuda_graphs`` shows what graphs bring.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import quiet
from ..functions.call import ModelCall
from ..functions.model_notes import notes_of
from ..functions.model_state import PROCESS, all_modules, in_train_mode, modules_of
from ..functions.target import Scorer
from ..trees import Leaves
from .precision import PrecisionMode
from .torch_function import TorchFunction

SIZES = (4, 7, 10, 13, 19, 24, 33, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Rows of a graph; smaller chunks are padded. A path starts with 5, 9 or 17 nodes, mostly with two off the grid, or with 33."""

USES = 2
"""Chunks of a size that run without a graph before one is captured: capturing takes as long as several."""

WAITS = 0.7
"""The share of a chunk's time that launching it takes, from which on a graph is worth it; below, the GPU is busy anyway."""

BYTES, SHARE = 2 << 30, 32
"""What the activations of a graph may take at the most, and which part of the GPU's memory: they are kept."""

MOST = 32
"""Graphs of a model; the oldest make room for a new one, also where what they hold of their own comes to :data:`BYTES`."""

ONE_AT_A_TIME = threading.RLock()
"""A graph has one place for what it gets and gives, whoever asks; graphs run in one stream only."""


def size_for(rows: int) -> int | None:
    """The smallest size of a graph that has room for so many rows; None where there is none."""
    return next((size for size in SIZES if size >= rows), None)


def capturable(function: TorchFunction) -> bool:
    """Whether graphs can stand for a function: batches on a GPU, nothing of the user's own between model and score."""
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
    """One chunk's work. It does not hold the model, which it is kept with: neither would ever be freed.

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
    def capture(
        function: TorchFunction, mode: PrecisionMode, leaves: Leaves, rows: Tensor, size: int, pool: Any
    ) -> CapturedGraph:
        """Capture a run of ``size`` rows, in memory that it shares with other graphs: no two run at once."""
        own = _with_own_tensors(function)
        points = tuple(leaf.new_zeros(size, *leaf.shape[1:]) for leaf in leaves)
        labels = rows.new_zeros(size)
        _fill(points, labels, leaves, rows)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            with PROCESS.claimed(switches={"waiting for a GPU": "refused"}):  # it would break the capture, for good
                _eager(own, mode, tuple(leaf.detach() for leaf in points), labels)  # whatever is set up at first use
            torch.cuda.synchronize()
            # As torch.cuda.graph does, which also gives back all memory that torch keeps, and takes long to get it again.
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                scores, gradients = _eager(own, mode, tuple(leaf.detach() for leaf in points), labels)
            except BaseException:
                with quiet(UserWarning):  # of an empty graph, where memory ran out before anything was captured
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(side)
        return CapturedGraph(graph, tuple(_tensors(own)), points, labels, scores, gradients)

    def replay(self, function: TorchFunction, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:  # needs a GPU
        """Scores and gradients at other points, for a call with other arguments and targets of the same shapes."""
        count = len(rows)
        with ONE_AT_A_TIME:
            for mine, yours in zip(self.given, _tensors(function), strict=True):
                mine.copy_(yours, non_blocking=True)  # targets of the host: a GPU that is busy is not waited for
            _fill(self.leaves, self.rows, leaves, rows)
            self.graph.replay()
            return self.scores[:count].clone(), tuple(part[:count].clone() for part in self.gradients)


def _eager(function: TorchFunction, mode: PrecisionMode, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
    """Scores and gradients without a graph, in a precision mode."""
    return mode.value_and_grad(function, leaves, rows) if mode.low else function.value_and_grad(leaves, rows)


def _fill(points: Leaves, labels: Tensor, leaves: Leaves, rows: Tensor) -> None:
    """Write rows to the front, and the first of them behind."""
    count = len(rows)
    for mine, yours in zip((*points, labels), (*leaves, rows), strict=True):
        mine[:count] = yours.detach()
        mine[count:] = yours[:1].detach()


def _with_own_tensors(function: TorchFunction) -> TorchFunction:
    """The function with copies of everything that a call gives: arguments and targets, on the model's device."""
    call, device = function.run, function.inputs[0].device
    assert isinstance(call, ModelCall)
    args, kwargs = pytree.tree_map_only(Tensor, lambda value: value.detach().clone(), (call.args, dict(call.kwargs)))
    index = tuple(column.to(device, copy=True) for column in function.scorer.index)
    return replace(function, run=replace(call, args=args, kwargs=kwargs), scorer=TensorScorer(function.scorer, index))


class TensorScorer(Scorer):
    """A scorer whose targets are tensors throughout: which entry is picked is not part of the graph."""

    def __init__(self, scorer: Scorer, index: tuple[Tensor, ...]) -> None:
        super().__init__(scorer.examples, scorer.batched, scorer.score, index, None, scorer.words)

    same = None


def _tensors(function: TorchFunction) -> Iterator[Tensor]:
    """All tensors that a call gives, but the points."""
    call = function.run
    assert isinstance(call, ModelCall)
    yield from (leaf for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, Tensor))
    yield from function.scorer.index


def _signature(function: TorchFunction, mode: PrecisionMode, size: int) -> Any:
    """What must be the same for a graph to be used again; None where that cannot be said."""
    call = function.run
    assert isinstance(call, ModelCall)
    others, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    kinds = tuple((tuple(o.shape), o.dtype, o.device) if isinstance(o, Tensor) else o for o in others)
    shapes = tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device) for leaf in function.inputs)
    cudnn, scorer = torch.backends.cudnn, function.scorer
    switches = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled())
    key = (mode, size, function.examples, function.tree, shapes, kinds, repr(spec), len(scorer.index), scorer.score, switches)
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
    out = (*((id(m), in_train_mode(m)) for m in modules), *((id(t), t.data_ptr()) for t in tensors))
    return out or None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _hooked(module: nn.Module) -> bool:
    return any(getattr(module, name, None) for name in _HOOKS)


def graphed_rows(function: TorchFunction) -> GraphedRows | None:
    """Runs rows with CUDA graphs; None where a function cannot be captured or the model cannot be watched for changes."""
    if not capturable(function) or not _in_main_stream(function.inputs[0].device):
        return None
    marks, notes = _fingerprint(function.call.model), notes_of(function.call.model)
    if marks is None:
        return None
    if notes.get("marks") != marks:
        notes["marks"], notes["graphs"], notes["uses"] = marks, {}, {}
    return GraphedRows(function, notes)


class GraphedRows:
    """The CUDA graphs of a model, as far as one run may use them.

    Args:
        function: what is explained.
        notes: what is remembered of the model, the graphs among it.

    Attributes:
        used: whether a graph was replayed in this run.
        row_bytes: what autograd saves for a row; graphs are not captured before it is known.
    """

    def __init__(self, function: TorchFunction, notes: dict[Any, Any]) -> None:
        self.function, self.notes = function, notes
        self.used, self.row_bytes = False, 0
        self._forgotten = False

    def value_and_grad(self, mode: PrecisionMode, leaves: Leaves, rows: Tensor) -> tuple[Tensor, Leaves]:
        """Scores (N,) and gradients at points, padded to the size of a graph where one may be captured."""
        size = None if self._forgotten else size_for(len(rows))
        key = None if size is None or not self._small(size) else _signature(self.function, mode, size)
        if size is None or key is None:
            return _eager(self.function, mode, leaves, rows)
        graphs = self.notes["graphs"]
        if key not in graphs:
            uses = self.notes["uses"][key] = self.notes["uses"].get(key, 0) + 1
            if uses <= USES:
                with self._watching(key):
                    return self._padded(mode, leaves, rows, size)
            # No other call runs on a GPU meanwhile. What the mode needs is waited for first: who holds the lock waits for
            # nobody, since whoever waits for the lock keeps its switches.
            with mode.switched(), PROCESS.claimed(["capture"], {"capturing": "now"}), ONE_AT_A_TIME:
                self._make_room(size)
                graphs[key] = self._captured(mode, leaves, rows, size)
        graph: CapturedGraph | None = graphs.get(key)
        if graph is None:
            return self._padded(mode, leaves, rows, size)
        self.used = True
        return graph.replay(self.function, leaves, rows)

    def _padded(self, mode: PrecisionMode, leaves: Leaves, rows: Tensor, size: int) -> tuple[Tensor, Leaves]:
        """Scores and gradients without a graph, of as many rows as a graph would have: kernels depend on their number."""
        count = len(rows)
        points = tuple(leaf.new_empty(size, *leaf.shape[1:]) for leaf in leaves)
        labels = rows.new_empty(size)
        _fill(points, labels, leaves, rows)
        scores, gradients = _eager(self.function, mode, points, labels)
        return scores[:count], tuple(part[:count] for part in gradients)

    @contextmanager
    def _watching(self, key: Any) -> Iterator[None]:  # needs a GPU
        """Time a chunk, and take note where launching it takes little of that: then a graph would bring nothing."""
        device = self.function.inputs[0].device
        torch.cuda.synchronize(device)  # what was launched before is not counted
        start = time.perf_counter()
        yield
        launched = time.perf_counter() - start
        torch.cuda.synchronize(device)
        if launched < WAITS * (time.perf_counter() - start):
            self.notes["graphs"][key] = None

    def forget(self) -> None:
        """Do without graphs from now on: what was captured is not what the model does."""
        self.notes["graphs"].clear()
        self._forgotten, self.used = True, False

    def _small(self, size: int) -> bool:
        if not self.row_bytes:
            return False
        total = torch.cuda.get_device_properties(self.function.inputs[0].device).total_memory
        return bool(size * (self.row_bytes + 2 * self._point_bytes()) <= min(BYTES, total // SHARE))

    def _point_bytes(self) -> int:
        return sum(leaf[0].nbytes for leaf in self.function.inputs)

    def _make_room(self, size: int) -> None:
        """Forget the oldest graphs where there are many, and give back memory where there is little: capturing cannot."""
        graphs = self.notes["graphs"]
        kept = [key for key, one in list(graphs.items()) if one is not None]
        # The points and the gradients of each are its own; activations are shared.
        fits = min(MOST, BYTES // max(1, 2 * max([size, *(key[1] for key in kept)]) * self._point_bytes()))
        for key in kept[: max(0, len(kept) - fits + 1)]:
            graphs.pop(key, None)
        device = self.function.inputs[0].device
        if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < 2 * BYTES:
            torch.cuda.empty_cache()

    def _captured(self, mode: PrecisionMode, leaves: Leaves, rows: Tensor, size: int) -> CapturedGraph | None:
        others = [one.graph.pool() for one in list(self.notes["graphs"].values()) if one is not None]
        try:
            with torch.cuda.device(rows.device):
                return CapturedGraph.capture(self.function, mode, leaves, rows, size, others[0] if others else None)
        except (RuntimeError, AssertionError):  # the model waits for the GPU, or does what a graph cannot hold
            torch.cuda.synchronize()
            return None
