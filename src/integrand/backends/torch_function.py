"""PyTorch: building the explained function from a model, one run of it at the input, and its gradients by autograd."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..arrays import Floats
from ..errors import (
    GradientError,
    InPlaceWarning,
    InputError,
    IntegrandError,
    ModelError,
    NonFiniteError,
    OptionError,
    OutputError,
    warn,
)
from ..functions.call import ModelCall, RunsRows, exported_rows
from ..functions.foreign import check_model
from ..functions.layer import Layers, LayerSide, capture, find_modules
from ..functions.model_state import RandomSources, undisturbed, without_numbers
from ..functions.probabilities import refuse_second_squash
from ..functions.randomness import refuse_random_draws, rounding_between_calls
from ..functions.target import Scorer, Target, first_tensor, main_tensor, make_scorer, settles
from ..memory import all_rows, joined, repeated
from ..trees import Leaves, Tensors, Tree, check_tensors, flatten

__all__ = ["TorchFunction", "build", "filled", "no_gradient", "undisturbed"]

T = TypeVar("T")

SAMPLED = 4096
"""Numbers of an output, at the most, by which outputs are compared."""


@dataclass(frozen=True)
class TorchFunction:
    """A score per row of the explained tensors, and its gradient.

    Attributes:
        run: from explained rows to the model's raw outputs.
        scorer: from raw outputs to scores.
        inputs: the explained tensors at the input, (examples, ...) each.
        tree: their structure.
        batched: whether the user's tensors have a batch dimension.
        at_input: the scores at the input.
        scale: the size of the model's outputs for each example, (examples,), for telling rounding from difference.
        call: the model's own call.
        layered: whether a layer is explained.
        alike: whether all examples are one row, expanded, and differ in their targets only.
        inside: what gradients were computed in between score and input, once there were any, and in how many operations
            each; autocast may be at work.
        kinks: whether gradients went through operations whose gradients may jump, once there were any; its first entry counts.
        normalises: whether gradients went through operations that divide by the size of what they see; likewise.
        forward: a context for forward passes, up to the scores.
        backward: a context for backward passes, which may be of another precision than forward passes.
    """

    run: RunsRows
    scorer: Scorer
    inputs: Leaves
    tree: Tree
    batched: bool
    at_input: Tensor
    scale: Floats
    call: ModelCall
    layered: bool = False
    alike: bool = False
    inside: Counter[torch.dtype] = field(default_factory=Counter, compare=False)
    kinks: list[bool] = field(default_factory=list, compare=False)
    normalises: list[bool] = field(default_factory=list, compare=False)
    forward: Callable[[], AbstractContextManager[object]] = nullcontext
    backward: Callable[[], AbstractContextManager[object]] = nullcontext

    def look_inside(self, scores: Tensor) -> None:
        """Take note of what the graph behind some scores is made of, the first time."""
        if not self.inside:
            self.inside.update(dtypes_inside(scores))
        if not self.kinks:
            self.kinks.append(any(map(kinked_node, nodes_behind([scores]))))
        if not self.normalises:
            self.normalises.append(any(map(normalising_node, nodes_behind([scores]))))

    @property
    def examples(self) -> int:
        """How many examples are explained."""
        return self.inputs[0].shape[0]

    def scores(self, leaves: Leaves, rows: Tensor) -> Tensor:
        """Scores of shape (N,) at points ``leaves`` of shape (N, ...), row i of example ``rows[i]``."""
        with self.forward():
            if self.alike and len(rows) > 1 and all(leaf.stride(0) == 0 for leaf in leaves):
                return self.scorer(repeated(self.run(tuple(leaf[:1] for leaf in leaves), rows[:1]), len(rows)), rows)
            return self.scorer(self.run(leaves, rows), rows)

    def outputs(self, leaves: Leaves, rows: Tensor) -> Tensor:
        """Outputs of the model at points, or evenly spread samples of them, (N, numbers); scores where they are no tensors."""
        with self.forward():
            outputs = self.run(leaves, rows)
            try:
                tensors = [main_tensor(raw) for raw in outputs]
            except OutputError:
                return self.scorer(outputs, rows)[:, None]
        numbers = (tensors[0] if self.scorer.batched else torch.stack(tensors)).reshape(len(rows), -1)
        return numbers[:, :: -(-numbers.shape[1] // SAMPLED)]

    @property
    def words(self) -> tuple[str, ...]:
        """Which output is explained for each example, in words."""
        return self.scorer.words

    @property
    def jumps(self) -> str:
        """Where the score can jump by what the target does, and what to explain instead; '' where it cannot."""
        return self.scorer.jumps

    def remark(self, example: int) -> str:
        """What the target met at the points of an example's path so far, in words; '' where nothing."""
        return self.scorer.remark(example)

    @property
    def targets_differ(self) -> bool:
        """Whether two examples may be scored differently for the same output."""
        return self.scorer.by_example

    def value_and_grad(
        self, leaves: Leaves, rows: Tensor, *, create_graph: bool = False, scale: float = 1.0
    ) -> tuple[Tensor, Leaves]:
        """Scores at points and their gradients; see :class:`~integrand.functions.function.Function`."""
        points = tuple(leaf.requires_grad_(True) if leaf.is_leaf else leaf for leaf in leaves)
        with in_plain_words():
            with self.forward():
                scores = self._scored(self.run(points, rows), rows)
                total = scores.sum() if scale == 1.0 else scale * scores.float().sum()
            with self.backward():
                gradients = torch.autograd.grad(total, points, create_graph=create_graph, allow_unused=True)
            found = filled(gradients, points)
        if scale != 1.0:
            found = tuple(gradient / scale for gradient in found)
        return (scores if create_graph else scores.detach()), found

    def value_and_grads(self, leaves: Leaves, rows: Tensor, asked: Tensor) -> list[tuple[Tensor, Leaves]]:
        """Scores and gradients of several targets from one forward pass, with a backward pass for each target.

        Args:
            leaves: the points, (N, ...) each.
            rows: an example that each of them is on the path of, (N,).
            asked: whose targets are asked for, (targets, N): examples that differ from ``rows`` in nothing else; -1 for none.

        Returns:
            For each target the scores, (N,), and their gradients; without meaning where none was asked for.
        """
        out = []
        points = tuple(leaf.requires_grad_(True) if leaf.is_leaf else leaf for leaf in leaves)
        with in_plain_words():
            with self.forward():
                outputs = self.run(points, rows)
            for number, examples in enumerate(asked, 1):
                with self.forward():
                    scores = self._scored(outputs, torch.where(examples < 0, rows, examples))
                # Rows with fewer targets than others are not differentiated again.
                seeds = (examples >= 0).to(scores.device, scores.dtype)
                with self.backward():
                    gradients = torch.autograd.grad(scores, points, seeds, retain_graph=number < len(asked), allow_unused=True)
                out.append((scores.detach(), filled(gradients, points)))
        return out

    def several_scores(self, leaves: Leaves, rows: Tensor, asked: Tensor) -> Tensor:
        """Scores of several targets from one forward pass, (targets, N); see :meth:`value_and_grads`."""
        with self.forward():
            outputs = self.run(leaves, rows)
            return torch.stack([self.scorer(outputs, torch.where(examples < 0, rows, examples)) for examples in asked])

    def _scored(self, outputs: list[Any], rows: Tensor) -> Tensor:
        """Scores that autograd can follow back to the points, or an error that says what cuts the graph."""
        scores = self.scorer(outputs, rows)
        if not scores.requires_grad:
            raise GradientError(no_gradient(outputs[0]))
        self.look_inside(scores)
        if scores.device.type == "cpu" and (len(rows) == 1 or not self.scorer.batched):
            mend_norms(scores)
        return scores


def build(
    model: Callable[..., Any],
    x: Tensors,
    *,
    target: Target = None,
    score: str = "logit",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    layer: Layers | None = None,
    layer_side: LayerSide = "output",
    batched: bool | None = None,
    what: str = "x",
) -> TorchFunction:
    """Run the model once at the input and settle everything that stays fixed along the path; ``what`` names x in messages."""
    _check_call(model, args, kwargs, batched)
    tree, leaves = flatten(x, what=what)
    if layer_side not in ("output", "input"):
        raise OptionError(f"got layer_side={layer_side!r}; expected 'output' (what the layer gives) or 'input' (what it gets).")
    check_tensors(tree, leaves, what="x", integers=layer is not None)
    leaves, others, named = pytree.tree_map_only(Tensor, _ordinary, (leaves, tuple(args), dict(kwargs or {})))
    leaves = tuple(leaf.detach() for leaf in leaves)
    sources = RandomSources(model)
    before = sources.state()
    alike = bool(batched) and _one_row(leaves, (others, named))
    step = None if batched is False else exported_rows(model, tree, leaves)
    first = ModelCall(model, tree, 1, True, others, named, step=step)
    probe = _probe(first, leaves, target, None if batched is None else bool(batched), once=alike)
    batched = probe.batched
    examples = leaves[0].shape[0] if batched else 1
    rows_of = leaves if batched else tuple(leaf[None] for leaf in leaves)
    call = replace(first, examples=examples, batched=batched, copies=probe.writes)
    if probe.writes:
        warn(
            "the model writes into its input in place; a copy is explained and x is left as it was. Expected a model that "
            "leaves its input alone: replace x.add_(...) and the like by x = x + ...",
            InPlaceWarning,
        )
    run: RunsRows = call
    own, outputs = rows_of, [probe.output]
    if layer is not None:
        run, rows_of, outputs = capture(call, rows_of, find_modules(model, layer), layer_side, alike=alike)
        tree = Tree("tensor") if len(rows_of) == 1 else Tree("tuple", (), len(rows_of))
    scorer = make_scorer(target, score, outputs, examples, batched=batched)
    at_input, scale = _score_at(scorer, outputs, examples)
    function = TorchFunction(run, scorer, rows_of, tree, batched, at_input, scale, call, layer is not None, alike)
    if sources.state() != before:
        refuse_random_draws(function, sources)
    if examples > 1 and call.split:
        _refuse_split_settings(function, tuple(leaf[-1:] for leaf in own))
    if scorer.score != "logit":
        refuse_second_squash(function, outputs)
    return function


def _one_row(leaves: Leaves, further: Any) -> bool:
    """Whether all examples are one row that was expanded, so that the model need be run on it once."""
    count = leaves[0].shape[0] if leaves[0].ndim else 1

    def shared(value: Any) -> bool:
        if isinstance(value, Tensor):
            return not value.ndim or value.shape[0] != count or value.stride(0) == 0
        if isinstance(value, Mapping):
            return all(map(shared, value.values()))
        return value is None or isinstance(value, (str, bytes, bool, int, float))

    return (
        count > 1 and all(leaf.ndim and leaf.stride(0) == 0 for leaf in leaves) and all(map(shared, (*further[0], further[1])))
    )


def _check_call(model: Any, args: Any, kwargs: Any, batched: Any) -> None:
    """Refuse what is no model, and further arguments that would be taken apart in a way that nobody meant."""
    if not isinstance(model, torch.nn.Module):
        check_model(model)
    if not isinstance(args, (tuple, list)):
        raise OptionError(f"got args={_brief(args)}; expected a tuple of further arguments: args=(value,) for a single one.")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)):
        raise OptionError(f"got kwargs={_brief(kwargs)}; expected a dict from names to values: kwargs={{'name': value}}.")
    if batched is not None and not isinstance(batched, (bool, np.bool_)):
        raise OptionError(
            f"got batched={_brief(batched)}; expected True where the first dimension of x counts examples, False where x is "
            "one example, or None to have it found out."
        )


def _brief(value: Any) -> str:
    """A value in a message; of arrays, the shape alone."""
    return f"a {type(value).__name__} of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)


def _refuse_split_settings(function: TorchFunction, last: Leaves) -> None:
    """Refuse further arguments that look like one entry per example and are a setting for all rows, as far as a run can show.

    Args:
        function: what is explained, with at least two examples.
        last: the model's own input of the last example, (1, ...) each.
    """
    call, split = function.call, function.call.split
    rows = torch.tensor([function.examples - 1], device=last[0].device)

    def agrees(kept: Sequence[int | str]) -> bool:
        """Whether the last example scores alone as in the user's batch."""
        try:
            with torch.no_grad():
                alone = function.scorer(replace(call, kept=frozenset(kept))(last, rows), rows)
        except Exception:
            return False
        change = abs(float(alone[0]) - float(function.at_input[-1]))
        return change <= float(rounding_between_calls(function)[-1])

    if agrees(()):
        return
    cause = next((kept for kept in [*([one] for one in split), split] if agrees(kept)), None)
    if cause is None:
        return  # other rows have an influence of their own, which is found among the rows of a path
    raise OptionError(
        f"got {call.named(cause)} with {function.examples} entries for {function.examples} examples, and split it with the "
        "rows: but the model scores single rows as it scores all together only if it is kept whole. Expected one entry per "
        "example, or a setting that does not look like it: put it into the model with functools.partial, or pass numbers as a "
        "tuple."
    )


def _ordinary(tensor: Tensor) -> Tensor:
    """Tensors made in inference mode cannot be saved for a backward pass; copies made outside can."""
    return tensor.clone() if tensor.is_inference() else tensor


def _score_at(scorer: Scorer, outputs: list[Any], examples: int) -> tuple[Tensor, Floats]:
    """The scores at the input, and how large the numbers are that they are made of."""
    every = torch.arange(examples)
    scores = scorer(outputs, every).detach()
    size = scores.abs()
    if scorer.score == "logit" and scorer.function is None:
        tensor = main_tensor(scorer.seen(outputs, every)[0]).detach()
        rows = tensor.reshape(examples, -1).abs()
        # Other outputs may be -inf on purpose: classes that are masked out.
        size = torch.maximum(size, torch.where(rows.isfinite(), rows, 0).amax(1))
    found, sizes = torch.stack([scores.double(), size.double()]).cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise NonFiniteError(
            f"the score is {found[bad[0]]} at the input (example {bad[0]}); expected a finite number. "
            "Look for overflow, log of 0 or division by 0 in the model; a log-probability may need score='probability'."
        )
    return scores, sizes


@dataclass(frozen=True)
class _Probe:
    """What one run at the input shows: the raw output, whether x has a batch dimension, whether the model writes to x."""

    output: Any
    batched: bool
    writes: bool


def _probe(call: ModelCall, leaves: Leaves, target: Target, batched: bool | None, *, once: bool) -> _Probe:
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    alike = None not in lengths and len(lengths) == 1
    if batched and not alike:
        raise InputError(_different_lengths(leaves))
    split = replace(call, examples=leaves[0].shape[0] if alike and batched is not False else 1)

    def run(rows: Tensor) -> tuple[int, Any, bool]:
        if len(rows) == split.examples and split.step is None:
            return len(rows), *_watched(call.whole, leaves)
        part = tuple(leaf.index_select(0, rows) for leaf in leaves)
        return len(rows), *_watched(lambda own: split(own, rows)[0], part)

    # A program that was exported or traced for one row refuses several; others' errors are the user's to see.
    rows = 1 if once else split.examples
    fixed = isinstance(call.model, (torch.fx.GraphModule, torch.jit.ScriptModule)) and batched is not False and alike
    try:
        found = _with_numbers(lambda: all_rows(run, rows, leaves[0].device, whole=not fixed), call.model)
    except Exception as error:
        from ..functions.model_failures import input_error

        remedy = input_error(call.model, call.whole, leaves, error)
        if remedy is None:
            raise
        raise remedy from error
    output = joined([raw for _, raw, _ in found], [count for count, _, _ in found])
    output = repeated(output, split.examples) if once else output
    if batched is None:
        batched = len(found) > 1 or _has_batch(call, output, leaves, target, alike=alike)
        if batched and not alike:
            raise InputError(_different_lengths(leaves))
    return _Probe(output, batched, any(writes for _, _, writes in found))


def _with_numbers(run: Callable[[], T], model: Callable[..., Any]) -> T:
    """What ``run`` gives; where it fails and the model has no numbers, an error that says so."""
    try:
        return run()
    except Exception as error:
        name = without_numbers(model)
        if not name or isinstance(error, IntegrandError):
            raise
        raise ModelError(
            f"the model's {name!r} is on the meta device, which holds no numbers, and the model does not run: {error}. "
            "Expected a model with its weights: model.to_empty(device='cpu'), then load_state_dict(...), or build it elsewhere."
        ) from error


def _watched(run: Callable[[Leaves], Any], leaves: Leaves) -> tuple[Any, bool]:
    """The output for a copy of x, and whether the model wrote to it."""
    own = tuple(leaf.detach().clone() for leaf in leaves)
    before = [leaf._version for leaf in own]
    with torch.no_grad():
        raw = run(own)
    writes = [leaf._version for leaf in own] != before
    # Writing through .data or numpy does not count as a version.
    return raw, writes or any(not torch.equal(a, b) for a, b in zip(own, leaves, strict=True))


def _different_lengths(leaves: Leaves) -> str:
    return (
        f"the tensors of x have shapes {[tuple(leaf.shape) for leaf in leaves]}; expected the same number of examples in the "
        "first dimension of each. Pass what has no batch dimension through args= or kwargs=; if x is one example, pass "
        "batched=False."
    )


def _has_batch(call: ModelCall, raw: Any, leaves: Leaves, target: Target, *, alike: bool) -> bool:
    """Whether the first dimension of x counts examples, by what came out."""

    def picked(raw: Any) -> Any:
        if settles(target):
            return first_tensor(raw)  # which knows the family of the output, and says what is wrong with it, later
        return target(raw) if callable(target) and not isinstance(target, Tensor) else main_tensor(raw)

    tensor = picked(raw)
    if not isinstance(tensor, Tensor):
        return True  # refused later, with a message
    if tensor.ndim == 0 or any(leaf.ndim == 0 for leaf in leaves):
        return False
    if leaves[0].ndim > 1 or tensor.ndim > 1:
        return True
    if tensor.shape[0] != leaves[0].shape[0] or not alike:
        return False  # a vector in and a vector of another length out: one example with several outputs
    # As many numbers out as in: one per example, or one example with as many outputs. A row more tells.
    rows = torch.arange(tensor.shape[0] + 1, device=leaves[0].device) % tensor.shape[0]
    points = tuple(leaf.index_select(0, rows) for leaf in leaves)
    try:
        with torch.no_grad():
            more = picked(replace(call, examples=tensor.shape[0])(points, rows)[0])
    except Exception:
        return False
    return bool(more.shape == rows.shape and torch.allclose(more[:-1], tensor, equal_nan=True))


def dtypes_inside(scores: Tensor) -> Counter[torch.dtype]:
    """The floating point types that autograd goes through on its way back from scores, with the number of operations in each.

    >>> x = torch.ones(2, requires_grad=True)
    >>> dtypes_inside((x.bfloat16() * 2).float().sum())[torch.bfloat16]
    2
    """
    found = Counter([scores.dtype])
    for node in nodes_behind([scores]):
        found.update(one.dtype for one in getattr(node, "_input_metadata", ()) if isinstance(one.dtype, torch.dtype))
    return Counter({dtype: count for dtype, count in found.items() if dtype.is_floating_point})


SMOOTH = frozenset(
    # arithmetic and functions of single numbers
    "add sub rsub neg mul div reciprocal pow sqrt rsqrt exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh sigmoid "
    "atan asinh erf erfc gelu silu mish softplus log_sigmoid_forward glu lerp addcmul addcdiv logaddexp square "
    # products and layers
    "mm bmm mv dot addmm addmv baddbmm addbmm linear mkldnn_linear matmul convolution mkldnn_convolution conv_tbc embedding "
    "native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm fused_rms_norm avg_pool2d avg_pool3d "
    "adaptive_avg_pool2d adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d native_dropout thnn_fused_lstm_cell "
    "thnn_fused_gru_cell mkldnn_rnn_layer cudnn_rnn softmax safe_softmax masked_softmax log_softmax logsumexp "
    "scaled_dot_product_flash_attention scaled_dot_product_flash_attention_for_cpu scaled_dot_product_efficient_attention "
    "scaled_dot_product_cudnn_attention scaled_dot_product_fused_attention_overrideable "
    # sums and moments
    "sum mean var std var_mean std_mean prod cumsum trace linalg_vector_norm "
    # numbers moved about
    "view unsafe_view reshape_alias expand permute transpose t squeeze unsqueeze select slice split split_with_sizes "
    "unsafe_split unbind stack cat clone to_copy alias as_strided repeat unfold flip roll narrow_copy index index_select "
    "gather diagonal constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril triu "
    "masked_fill pixel_shuffle upsample_nearest1d upsample_nearest2d upsample_linear1d upsample_bilinear2d upsample_bicubic2d "
    "im2col col2im".split()
)
"""Operations of torch whose gradients do not jump."""

_PASSED_ON = re.compile(r"(torch::autograd::)?(AccumulateGrad|CopySlices|CopyBackwards)|SplitProductBackward")
_OWN = re.compile(r"(\w+)Backward\d+")

TINY = 1e-4
"""Lower bounds up to this keep a division from failing, as that of ``functional.normalize`` does; they are no kinks."""


def known_node(node: Any) -> bool:
    """Whether a node of autograd's graph is an operation of torch, or one of ours: what others compute inside is not known."""
    return bool(_OWN.fullmatch(node.name()) or _PASSED_ON.fullmatch(node.name()))


def kinked_node(node: Any) -> bool:
    """Whether a node of autograd's graph may have a gradient that jumps; what is not known may.

    >>> x = torch.ones(2, requires_grad=True)
    >>> [kinked_node(y.grad_fn) for y in (x.relu(), x.exp(), x.softmax(0), x.clamp_min(0), x.clamp_min(1e-12))]
    [True, False, False, True, False]
    """
    if not known_node(node):
        return True
    own = _OWN.fullmatch(node.name())
    if own is None:
        return False
    word = re.sub(r"(?<!^)(?=[A-Z])", "_", own[1]).lower()
    if word == "clamp_min":
        return not 0 < node._saved_min <= TINY
    return word not in SMOOTH


NORMALISING = frozenset("native_layer_norm native_group_norm fused_rms_norm rsqrt reciprocal linalg_vector_norm norm".split())
"""Operations of torch that divide by the size of what they see, or are made to."""


def normalising_node(node: Any) -> bool:
    """Whether a node of autograd's graph may divide by the size of what it sees; what is not known may.

    >>> x = torch.ones(1, 2, requires_grad=True)
    >>> [normalising_node(y.grad_fn) for y in (x / 2, x / x.sum(), torch.layer_norm(x, (2,)), x.sum().rsqrt(), x**2, x**-0.5)]
    [False, True, True, True, False, True]
    """
    if not known_node(node):
        return True
    own = _OWN.fullmatch(node.name())
    word = re.sub(r"(?<!^)(?=[A-Z])", "_", own[1]).lower() if own else ""
    if word == "div":
        return all(before is not None for before, _ in node.next_functions)
    if word == "pow":
        exponent = getattr(node, "_saved_exponent", None)
        return isinstance(exponent, (int, float)) and exponent < 0
    return word in NORMALISING or (word == "native_batch_norm" and bool(node._saved_training))


def nodes_behind(tensors: Iterable[Tensor]) -> Iterator[Any]:
    """The nodes of the graph that autograd follows back from some tensors, each once."""
    left, seen = [tensor.grad_fn for tensor in tensors], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        left.extend(before for before, _ in node.next_functions)


def mend_norms(scores: Tensor) -> None:
    """Let batch normalisations of a single row get contiguous gradients: the strides of others torch may misread.

    torch 2.13 on a CPU gives a wrong gradient where that of the output comes through ``flatten(2)`` and ``transpose(1, 2)``, as
    between the convolutions and the attention of a network: strides of a single row look like those of channels last.
    """
    for node in nodes_behind([scores]):
        if node.name().startswith("NativeBatchNormBackward"):
            node.register_prehook(_contiguous)


def _contiguous(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return tuple(None if one is None else one.contiguous() for one in gradients)


def refuse_once_differentiable(gradients: Iterable[Tensor]) -> None:
    """Refuse operations that were marked as not twice differentiable, which autograd passes by in silence further back."""
    if any(node.name().endswith(("::Error", "NotImplemented")) for node in nodes_behind(gradients)):
        raise RuntimeError("it was marked with @once_differentiable")


def filled(gradients: Sequence[Tensor | None], points: Leaves) -> Leaves:
    """Zeros for what the score does not depend on."""
    return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(gradients, points, strict=True))


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Autograd's errors about values that were overwritten, in words that say what to do."""
    try:
        yield
    except RuntimeError as error:
        if any(words in str(error) for words in _IN_PLACE):
            raise GradientError(_overwritten(error)) from error
        raise


_IN_PLACE = ("modified by an inplace operation", "used in an in-place operation", "being modified inplace")
"""How autograd says that something was overwritten."""


def no_gradient(raw: Any) -> str:
    """The message for a score that does not depend on what is explained, by the model's raw output."""
    inference = any(isinstance(part, Tensor) and part.is_inference() for part in pytree.tree_leaves(raw))
    cause = "it was computed in inference mode" if inference else "something cuts the graph"
    return (
        f"the score has no gradient with respect to what is explained: {cause}. Expected a score that autograd can follow to "
        "x: look for .detach(), .data, torch.no_grad(), torch.inference_mode(), torch.jit.optimize_for_inference, numpy, "
        "argmax, round, quantised activations or an integer cast in the model, or a target that does not use x."
    )


def _overwritten(error: RuntimeError) -> str:
    return (
        "the model writes in place to a value that its own gradient needs, so it cannot be differentiated. Expected y = y * 2 "
        f"instead of y *= 2, y.mul_(2) or inplace=True; torch.autograd.set_detect_anomaly(True) finds the line. ({error})"
    )
