"""From a function to its program."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..backends.torch_function import TorchFunction
from ..errors import IntegrandError, ModelError
from ..functions.layer import uncompiled
from ..functions.model_state import modules_of
from ..memory import out_of_memory
from ..trees import Leaves
from .decompositions import copied, table


def trace(function: TorchFunction, rows: Tensor, *, open_rows: bool = False, check: bool = True) -> Program:
    """The program that computes the scores of some examples at the input.

    Args:
        function: what is explained.
        rows: the examples.
        open_rows: take the rows as one more input, the last, so that the program serves any as many examples.
        check: see whether the program gives the scores that the model gives; leave it out where this is done elsewhere.

    Raises:
        ModelError: the model cannot be followed, or does something else when it is.
    """
    leaves = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
    count = len(leaves)
    if open_rows:
        leaves = (*leaves, rows)

    def scores(*points: Tensor) -> Tensor:
        return function.scores(points[:count], points[-1] if open_rows else rows)

    names = _parameter_names(function.call.model)
    with _plain_kernels():
        program = _program(scores, leaves, names)
    if any(step.name.startswith("mkldnn_rnn") for step in program.steps):  # a whole recurrent layer in one kernel
        with _plain_kernels(), _without_onednn():
            program = _program(scores, leaves, names)
    if not check:
        return program
    expected = function.at_input.index_select(0, rows.to(function.at_input.device))
    found = program.scores(program.run(leaves))
    if not _close(found, expected, function, rows):
        raise ModelError(
            f"the model gives {expected.tolist()[:3]} and its operations, followed one by one, give {found.tolist()[:3]}. "
            "Expected a model that does the same each time, without numpy, .tolist() or .item() on what it computes from x, "
            "and without writing into tensors of its own."
        )
    return program


def check_at(function: TorchFunction, program: Program, leaves: Leaves, rows: Tensor) -> None:
    """Whether a program that was followed at the input also tells the scores elsewhere.

    It does not where the model takes another way there, or turned numbers into constants behind the tracer's back.
    """
    with torch.no_grad():
        expected = function.scores(leaves, rows)
    if not expected.isfinite().all():
        return  # no affair of the operations; methods that need this score say so
    try:
        found: Any = program.scores(program.run(leaves))
    except (RuntimeError, IndexError) as error:
        if out_of_memory(error):
            raise
        found = None
    if found is None or not _close(found, expected, function, rows):
        told = "cannot be run" if found is None else f"give {found.tolist()[:3]}"
        raise ModelError(
            f"away from x the model gives {expected.tolist()[:3]}, and the operations that it does at x {told} there. "
            "Expected the same operations at every input: no branches on, and no numbers or numpy arrays made of, what is "
            "computed from x. Methods that need only gradients or scores take any model."
        )


def _close(found: Tensor, expected: Tensor, function: TorchFunction, rows: Tensor) -> bool:
    size = max(1.0, float(function.scale[rows.tolist()].max()), float(expected.abs().max()))
    slack = 10 * torch.finfo(expected.dtype).eps ** 0.5 * size  # fused kernels round otherwise; mistakes are larger
    return found.shape == expected.shape and bool(((found - expected).abs() <= slack).all())


def _program(scores: Callable[..., Tensor], leaves: Leaves, names: dict[int, str]) -> Program:
    """What the score depends on, as steps."""
    points = tuple(leaf.detach().clone() for leaf in leaves)
    with torch.no_grad(), uncompiled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        try:
            try:
                steps, result = follow(torch.func.functionalize(scores), points, names)
            except RuntimeError as error:  # what is written to a tensor outside cannot be functionalised
                if out_of_memory(error) or isinstance(error, IntegrandError):
                    raise
                points = tuple(leaf.detach().clone() for leaf in leaves)
                steps, result = follow(scores, points, names)
        except Exception as error:
            if out_of_memory(error) or isinstance(error, IntegrandError):
                raise
            scores(*points)  # where the model itself fails, with its own words
            raise ModelError(NOT_FOLLOWED.format(f"{type(error).__name__}: {str(error).splitlines()[0]}")) from error
    if result is None:
        raise ModelError(
            "the score does not depend on what is explained: following the model's operations from x never reaches it. "
            "Check the target, and look for .numpy(), torch.tensor(...), .item() or buffers that it writes to in the model."
        )
    return Program(len(leaves), _used(steps, result.index), result.index)


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Run attention as plain operations, not as one fused kernel."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with sdpa_kernel(SDPBackend.MATH):
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _without_onednn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # switching it off warns about Intel GPUs
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _parameter_names(model: Callable[..., Any]) -> dict[int, str]:
    """From a parameter's memory to the submodule that holds it."""
    names: dict[int, str] = {}
    for root in modules_of(model):
        for module_name, module in root.named_modules():
            for parameter in module.parameters(recurse=False):
                if not isinstance(parameter, torch.nn.UninitializedParameter):
                    names.setdefault(parameter.untyped_storage().data_ptr(), module_name)
    return names


def _used(steps: list[Operation], result: int) -> list[Operation]:
    wanted, kept = {result}, []
    for step in reversed(steps):
        if step.out in wanted:
            wanted.update(step.refs)
            kept.append(step)
    return kept[::-1]


NOT_FOLLOWED = (
    "the operations of the model cannot be followed ({}). Expected a model whose Python code does not branch on, or convert to "
    "numbers, what it computes from x (.item(), float(t), if t > 0, numpy). Methods that need only gradients or scores take "
    "any model."
)


def follow(scores: Callable[..., Tensor], points: Leaves, names: Mapping[int, str]) -> tuple[list[Operation], Ref | None]:
    """Run ``scores`` at ``points``: the steps that depend on them, and where the result is (None where it does not).

    Args:
        scores: the function.
        points: its arguments.
        names: from a parameter's memory to the name of its module.
    """
    watch = _Watch(points, names)
    with watch:
        out = scores(*points)
    return watch.steps, watch.ref(out)


class _Watch(TorchDispatchMode):
    """Sees every operation below modules, functionals and autograd; what does not depend on the points just runs."""

    def __init__(self, points: Leaves, names: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs, self.names = len(points), names
        self.steps: list[Operation] = []
        self.places: dict[int, Ref] = {}
        self.kept: list[Tensor] = []  # so that no id is used again
        for i, point in enumerate(points):
            self._place(point, Ref(i))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here: so torch need not import its compiler, which takes seconds the first time."""
        return False

    def ref(self, value: Any) -> Ref | None:
        """Where a tensor comes from, if it depends on the points."""
        return self.places.get(id(value)) if isinstance(value, Tensor) else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        if all(self.ref(leaf) is None for leaf in pytree.tree_leaves((args, options))):
            return func(*args, **options)
        with self:
            apart = table().get(func, func.decompose)(*args, **options)
        if apart is not NotImplemented:
            return apart
        if torch.Tag.data_dependent_output in func.tags:
            raise ModelError(NOT_FOLLOWED.format(f"{func} makes a number of a tensor that depends on x"))
        writes = func._schema.is_mutable  # into a constant, perhaps, which is kept as it was before

        def known_as(leaf: Any) -> Any:
            return self.ref(leaf) or (leaf.clone() if writes and isinstance(leaf, Tensor) else leaf)

        known = pytree.tree_map(known_as, (tuple(args), options))
        out = func(*args, **options)
        self._write(func, known[0], known[1], out)
        return out

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        function, name = _functional(func)
        place = self._step(name, function, args, kwargs)
        if isinstance(out, Tensor):
            self._place(out, place)
        elif isinstance(out, (tuple, list)):
            for slot, part in enumerate(out):
                if isinstance(part, Tensor):
                    self._place(part, self._step("getitem", operator.getitem, (place, slot), {}))

    def _step(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        tensors = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.numel())
        modules = (self.names.get(tensor.untyped_storage().data_ptr(), "") for tensor in tensors)
        place = Ref(self.inputs + len(self.steps))
        self.steps.append(Operation(place.index, name, function, args, kwargs, next(filter(None, modules), "")))
        return place

    def _place(self, tensor: Tensor, place: Ref) -> None:
        self.kept.append(tensor)
        self.places[id(tensor)] = place


def _functional(func: Any) -> tuple[Callable[..., Any], str]:
    """An operation and its name; one that writes in place is replaced by the one that does not."""
    name: str = func.overloadpacket.__name__
    if name in ("copy_", "copy"):
        return copied, "copy"
    if name.endswith("_") and not name.startswith("__") and hasattr(torch.ops.aten, name[:-1]):
        return getattr(torch.ops.aten, name[:-1]), name[:-1]
    return func, name


Values = list[Any]
"""What the inputs and every step gave: a tensor, or a tuple of them for steps with several outputs."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a step's argument comes from: an index into :data:`Values`."""

    index: int


@dataclass(frozen=True)
class Operation:
    """One operation that depends on the input.

    Attributes:
        out: where its result goes in :data:`Values`.
        name: the operation, such as ``relu`` or ``convolution``.
        function: what runs it.
        args: its arguments; a :class:`Ref` stands for what depends on the input, everything else is a constant.
        kwargs: likewise.
        module: the submodule whose parameter it uses, by its dotted name; '' where there is none.
    """

    out: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: str = ""

    @property
    def refs(self) -> list[int]:
        """The arguments that depend on the input, each once, in order."""
        found = [leaf.index for leaf in pytree.tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Ref)]
        return list(dict.fromkeys(found))

    @property
    def picks(self) -> bool:
        """Whether it only picks one output of another step."""
        return self.function is operator.getitem

    def __call__(self, values: Values | Mapping[int, Any]) -> Any:
        """Run it on the given values; several outputs come as a tuple."""
        args, kwargs = pytree.tree_map_only(Ref, lambda ref: values[ref.index], (self.args, dict(self.kwargs)))
        out = self.function(*args, **kwargs)
        return tuple(out) if isinstance(out, (list, tuple)) else out

    def places(self, index: int) -> list[int]:
        """The positional arguments that are this value."""
        return [i for i, arg in enumerate(self.args) if isinstance(arg, Ref) and arg.index == index]


@dataclass(frozen=True)
class Program:
    """The steps from some inputs to one score per row, for a fixed number of rows.

    Attributes:
        inputs: how many explained tensors there are; they are the first values.
        steps: what is done to them, in order; only what the score depends on.
        result: the index of the scores.
    """

    inputs: int
    steps: Sequence[Operation]
    result: int

    @property
    def size(self) -> int:
        """How many values there are."""
        return max([self.inputs - 1, *(step.out for step in self.steps)]) + 1

    def run(self, leaves: Leaves) -> Values:
        """All values at some inputs, without gradients."""
        values: Values = [*leaves, *[None] * (self.size - len(leaves))]
        with torch.no_grad():
            for step in self.steps:
                values[step.out] = step(values)
        return values

    def scores(self, values: Values) -> Tensor:
        """The scores among the values."""
        scores: Tensor = values[self.result]
        return scores


def bound(program: Program, index: int, value: Tensor) -> Program:
    """The program with the input ``index`` set to ``value``: what depends on nothing else becomes a constant."""
    known: dict[int, Any] = {index: value}
    steps: list[Operation] = []
    for step in program.steps:
        refs = step.refs
        there = [i in known for i in refs]
        if all(there):
            known[step.out] = step(known)
        elif any(there):
            parts = pytree.tree_map_only(Ref, lambda ref: known.get(ref.index, ref), (step.args, dict(step.kwargs)))
            steps.append(replace(step, args=parts[0], kwargs=parts[1]))
        else:
            steps.append(step)
    return Program(program.inputs, steps, program.result)
