"""Tracing a model: following it at the input, operation by operation, with large operations taken apart into simple ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..backends.torch_function import TorchFunction
from ..errors import IntegrandError, ModelError, quiet
from ..functions.layer import uncompiled
from ..functions.model_state import PROCESS, modules_of
from ..memory import out_of_memory
from ..trees import Leaves
from .program import Operation, Program, Ref

NOT_TRACEABLE = (
    "the operations of the model cannot be followed ({}). Expected a model whose Python code does not branch on, or convert to "
    "numbers, what it computes from x (.item(), float(t), if t > 0, numpy). Methods that need only gradients or scores take "
    "any model."
)

aten = torch.ops.aten

DECOMPOSED_BY_TORCH = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional "
    "_batch_norm_no_update cudnn_batch_norm miopen_batch_norm addcmul addcdiv glu addr"
).split()
"""Operations that torch itself takes apart into operations that have gradients."""


def trace(function: TorchFunction, rows: Tensor, *, open_rows: bool = False, check: bool = True) -> Program:
    """The program that computes the scores of some examples at the input.

    Args:
        function: the function that is explained.
        rows: the numbers of the examples.
        open_rows: make the numbers of the examples one more input of the program, the last, so that it serves any examples
            of the same count.
        check: whether to compare the program's scores with the model's; leave it out where this is done elsewhere.

    Raises:
        ModelError: the model cannot be traced, or its operations give other scores than the model itself.
    """
    leaves = tuple(leaf.index_select(0, rows) for leaf in function.inputs)
    count = len(leaves)
    if open_rows:
        leaves = (*leaves, rows)

    def scores(*points: Tensor) -> Tensor:
        return function.scores(points[:count], points[-1] if open_rows else rows)

    names = _parameter_names(function.call.model)
    program = _in_plain_kernels(lambda: _traced(scores, leaves, names))
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
    """Refuse a program, traced at the input, that gives other scores than the model elsewhere.

    It does where the model takes another branch there, or turned values into constants behind the tracer's back.
    """
    with torch.no_grad():
        expected = function.scores(leaves, rows)
    if not expected.isfinite().all():
        return  # not a matter of tracing; methods that need this score say so
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


def record(scores: Callable[..., Tensor], points: Leaves, names: Mapping[int, str]) -> tuple[list[Operation], Ref | None]:
    """Run ``scores`` at ``points`` and record the operations that depend on them.

    Args:
        scores: the function to run.
        points: the arguments of the function.
        names: from a parameter's memory address to the name of its module.

    Returns:
        The operations, and where the result is; None where it does not depend on the points.
    """
    watch = _Recorder(points, names)
    with watch:
        out = scores(*points)
    return watch.operations, watch.ref(out)


@cache
def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """For each operation that is taken apart, the function of simpler operations that replaces it."""
    packets = [getattr(aten, name) for name in DECOMPOSED_BY_TORCH if hasattr(aten, name)]
    out: dict[Any, Callable[..., Any]] = dict(torch._decomp.get_decompositions(packets))
    out[aten.native_layer_norm.default] = _layer_norm
    out[aten.native_group_norm.default] = _group_norm
    out[aten.var.correction] = lambda x, dim=None, **options: _var_mean(x, dim, **options)[0]
    out[aten.var_mean.correction] = _var_mean
    out[aten.std.correction] = lambda x, dim=None, **options: _var_mean(x, dim, **options)[0].sqrt()
    out[aten.std_mean.correction] = lambda x, dim=None, **options: _std_mean(x, dim, **options)
    out[aten.linalg_vector_norm.default] = _vector_norm
    out[aten.addmm.default] = out[aten.baddbmm.default] = out[aten.addmv.default] = _product_and_sum
    out[aten.copy.default] = copied
    out[aten.lerp.Scalar] = out[aten.lerp.Tensor] = lambda x, end, weight: x + weight * (end - x)
    out[aten._thnn_fused_lstm_cell.default] = lstm_cell  # on a GPU
    out[aten._thnn_fused_gru_cell.default] = _gru_cell
    out[aten.rrelu_with_noise.default] = _rrelu
    # Beyond 50, and not torch's 20, softplus is linear to the last digit.
    out[aten.log_sigmoid_forward.default] = lambda x: (-torch.nn.functional.softplus(-x, 1, 50), torch.zeros(0, dtype=x.dtype))
    out |= _constants()
    if hasattr(aten, "_fused_rms_norm"):
        out[aten._fused_rms_norm.default] = _rms_norm
    return out


def copied(x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """The value of ``x`` after ``source`` was copied into it."""
    return source.to(x.dtype).expand(x.shape)


def _close(found: Tensor, expected: Tensor, function: TorchFunction, rows: Tensor) -> bool:
    size = max(1.0, float(function.scale[rows.tolist()].max()), float(expected.abs().max()))
    slack = 10 * torch.finfo(expected.dtype).eps ** 0.5 * size  # fused kernels round differently; mistakes are larger
    return found.shape == expected.shape and bool(((found - expected).abs() <= slack).all())


def _traced(scores: Callable[..., Tensor], leaves: Leaves, names: dict[int, str]) -> Program:
    """The program of the operations that the score depends on.

    Args:
        scores: from tensors to scores.
        leaves: the tensors to trace at.
        names: from a parameter's memory address to the name of its module.
    """
    points = tuple(leaf.detach().clone() for leaf in leaves)
    with torch.no_grad(), uncompiled(), quiet():  # torch warns about its own internals
        try:
            try:
                operations, result = record(torch.func.functionalize(scores), points, names)
            except RuntimeError as error:  # a model that writes to a tensor outside cannot be functionalised
                if out_of_memory(error) or isinstance(error, IntegrandError):
                    raise
                points = tuple(leaf.detach().clone() for leaf in leaves)
                operations, result = record(scores, points, names)
        except Exception as error:
            if out_of_memory(error) or isinstance(error, IntegrandError):
                raise
            scores(*points)  # a model that fails on its own raises its own error here
            raise ModelError(NOT_TRACEABLE.format(f"{type(error).__name__}: {str(error).splitlines()[0]}")) from error
    if result is None:
        raise ModelError(
            "the score does not depend on what is explained: following the model's operations from x never reaches it. "
            "Check the target, and look for .numpy(), torch.tensor(...), .item() or buffers that it writes to in the model."
        )
    return Program(len(leaves), _reaching_result(operations, result.index), result.index)


FUSED = {"_scaled_dot_product": "attention", "_native_multi_head": "attention", "mkldnn_rnn": "onednn"}
"""How the names of kernels begin that do at once what a switch of the process takes apart into plain operations."""


def _in_plain_kernels(traced: Callable[[], Program]) -> Program:
    """A program of plain operations; switches, which hold for all threads, are turned only where the model needs it."""
    switches: dict[str, Hashable] = {"fast path": "off"}
    while True:
        try:
            with PROCESS.claimed(switches=switches):
                program = traced()
            fused = {switch for one in program.operations for name, switch in FUSED.items() if one.name.startswith(name)}
            if fused <= switches.keys():
                return program
        except ModelError:
            fused = {"attention"}  # a fused kernel may be what cannot be followed
            if fused <= switches.keys():
                raise
        switches |= dict.fromkeys(fused, "plain")


def _parameter_names(model: Callable[..., Any]) -> dict[int, str]:
    """From the memory address of each parameter to the dotted name of the submodule that holds it."""
    names: dict[int, str] = {}
    for root in modules_of(model):
        for module_name, module in root.named_modules():
            for parameter in module.parameters(recurse=False):
                if not isinstance(parameter, torch.nn.UninitializedParameter):
                    names.setdefault(parameter.untyped_storage().data_ptr(), module_name)
    return names


def _reaching_result(operations: list[Operation], result: int) -> list[Operation]:
    wanted, kept = {result}, []
    for operation in reversed(operations):
        if operation.out in wanted:
            wanted.update(operation.refs)
            kept.append(operation)
    return kept[::-1]


class _Recorder(TorchDispatchMode):
    """Records every operation below modules, functionals and autograd; what does not depend on the points just runs."""

    def __init__(self, points: Leaves, names: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs, self.names = len(points), names
        self.operations: list[Operation] = []
        self.places: dict[int, Ref] = {}
        self.kept: list[Tensor] = []  # so that no id is used again
        for i, point in enumerate(points):
            self._place(point, Ref(i))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled in here, so torch need not import its compiler, which takes seconds the first time."""
        return False

    def ref(self, value: Any) -> Ref | None:
        """The reference to a value, if it is a tensor that depends on the points."""
        return self.places.get(id(value)) if isinstance(value, Tensor) else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        if all(self.ref(leaf) is None for leaf in pytree.tree_leaves((args, options))):
            return func(*args, **options)
        with self:
            apart = decomposition_table().get(func, func.decompose)(*args, **options)
        if apart is not NotImplemented:
            return apart
        if torch.Tag.data_dependent_output in func.tags:
            raise ModelError(NOT_TRACEABLE.format(f"{func} makes a number of a tensor that depends on x"))
        writes = func._schema.is_mutable  # a constant that it writes into is recorded as it was before

        def known_as(leaf: Any) -> Any:
            return self.ref(leaf) or (leaf.clone() if writes and isinstance(leaf, Tensor) else leaf)

        known = pytree.tree_map(known_as, (tuple(args), options))
        out = func(*args, **options)
        self._record_call(func, known[0], known[1], out)
        return out

    def _record_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        function, name = _functional(func)
        place = self._record(name, function, args, kwargs)
        if isinstance(out, Tensor):
            self._place(out, place)
        elif isinstance(out, (tuple, list)):
            for slot, part in enumerate(out):
                if isinstance(part, Tensor):
                    self._place(part, self._record("getitem", operator.getitem, (place, slot), {}))

    def _record(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        tensors = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.numel())
        modules = (self.names.get(tensor.untyped_storage().data_ptr(), "") for tensor in tensors)
        place = Ref(self.inputs + len(self.operations))
        self.operations.append(Operation(place.index, name, function, args, kwargs, next(filter(None, modules), "")))
        return place

    def _place(self, tensor: Tensor, place: Ref) -> None:
        self.kept.append(tensor)
        self.places[id(tensor)] = place


def _functional(func: Any) -> tuple[Callable[..., Any], str]:
    """An operation and its name; one that writes in place is replaced by its counterpart that does not."""
    name: str = func.overloadpacket.__name__
    if name in ("copy_", "copy"):
        return copied, "copy"
    if name.endswith("_") and not name.startswith("__") and hasattr(torch.ops.aten, name[:-1]):
        return getattr(torch.ops.aten, name[:-1]), name[:-1]
    return func, name


def _constants() -> dict[Any, Callable[..., Any]]:
    """Replacements for operations that use only the shape and type of a tensor, not its values: constants."""

    def filled(value: float) -> Callable[..., Tensor]:
        return lambda x, **options: torch.full(x.shape, value, **_typed(x, options))

    def sized(value: float) -> Callable[..., Tensor]:
        return lambda x, size, **options: torch.full(size, value, **_typed(x, options))

    return {
        aten.zeros_like.default: filled(0),
        aten.zero.default: filled(0),
        aten.empty_like.default: filled(0),
        aten.ones_like.default: filled(1),
        aten.full_like.default: lambda x, value, **options: torch.full(x.shape, value, **_typed(x, options)),
        aten.fill.Scalar: lambda x, value: torch.full(x.shape, value, **_typed(x, {})),
        aten.fill.Tensor: copied,
        aten.new_zeros.default: sized(0),
        aten.new_empty.default: sized(0),
        aten.new_ones.default: sized(1),
        aten.new_full.default: lambda x, size, value, **options: torch.full(size, value, **_typed(x, options)),
    }


def _typed(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": options.get("dtype") or x.dtype, "device": options.get("device") or x.device}


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    scale = (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    return _scaled(centred * scale, weight, bias), mean, scale


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, rest: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.reshape(n, groups, channels // groups * rest)
    out, mean, scale = _layer_norm(rows, rows.shape[-1:], None, None, eps)
    per_channel = [None if p is None else p.reshape(1, channels, *[1] * (x.ndim - 2)) for p in (weight, bias)]
    return _scaled(out.reshape(x.shape), *per_channel), mean.reshape(n, groups), scale.reshape(n, groups)


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    small = torch.finfo(x.dtype).eps if eps is None else eps
    scale = (x.square().mean(dims, keepdim=True) + small).rsqrt()
    return _scaled(x * scale, weight, None), scale


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(dim) if dim else list(range(x.ndim))
    count = 1
    for d in dims:
        count *= x.shape[d]
    mean = x.mean(dims, keepdim=True)
    total = (x - mean).square().sum(dims, keepdim=keepdim)
    return total / (count - (1 if correction is None else correction)), mean if keepdim else mean.squeeze(dims)


def _std_mean(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> tuple[Tensor, Tensor]:
    variance, mean = _var_mean(x, dim, **options)
    return variance.sqrt(), mean


def _product_and_sum(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """A matrix product plus a bias, taken apart where it has factors: rules know the plain form only."""
    return NotImplemented if beta == 1 and alpha == 1 else beta * bias + alpha * (a @ b)


def lstm_cell(
    own: Tensor, hidden: Tensor, cell: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of an LSTM from its two linear maps, as torch fuses it on a GPU: hidden state, cell state and gates."""
    gates = _scaled(own, None, bias) + _scaled(hidden, None, hidden_bias)
    enter, forget, new, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell, gates


def _gru_cell(
    own: Tensor, hidden: Tensor, state: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    parts = zip(_scaled(own, None, bias).chunk(3, 1), _scaled(hidden, None, hidden_bias).chunk(3, 1), strict=True)
    (reset, reset_too), (keep, keep_too), (new, held) = parts
    new = (new + (reset + reset_too).sigmoid() * held).tanh()
    return (state - new) * (keep + keep_too).sigmoid() + new, own


def _rrelu(x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any) -> Any:
    return NotImplemented if training else torch.nn.functional.leaky_relu(x, (lower + upper) / 2)


def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if order not in (1, 2) or dtype is not None:
        return NotImplemented
    dims = list(dim) if dim is not None else list(range(x.ndim))
    if order == 1:
        return x.abs().sum(dims, keepdim=keepdim)
    return x.square().sum(dims, keepdim=keepdim).sqrt()
