"""What goes in at the front door: models, structures, batches, further arguments, precisions, masks."""

from __future__ import annotations

import functools
import math
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from integrand import integrated_gradients
from integrand.errors import ConvergenceWarning, GradientError, InputError, OptionError, RowsError
from tests.by_hand import X, line_integral, net, squares

EXACT = {"tol": 1e-7}
"""For comparison with references in float64."""


def close(values: Tensor, expected: Tensor, rtol: float = 1e-6) -> None:
    torch.testing.assert_close(values.double(), expected.double(), rtol=rtol, atol=rtol)


# Models


class Callable:
    def __call__(self, x: Tensor) -> Tensor:
        return squares(x)


class Module(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return squares(x)


@pytest.mark.parametrize("model", [squares, Callable(), Module(), Module().forward, torch.compile(squares, backend="eager")])
def test_any_callable(model):
    close(integrated_gradients(model, X).values, X**2)


def test_module_against_a_loop_by_hand():
    model, x, baseline = net().double(), X.double(), torch.tensor([0.5, -1.0, 0.0]).double()
    result = integrated_gradients(model, x, baseline, target=2, **EXACT)
    for row, values in zip(x, result.values, strict=True):
        close(values, line_integral(lambda v: model(v)[2], [row], [baseline])[0])


def test_compiled_module():
    model = net()
    compiled = torch.compile(model, backend="eager")
    for options in ({}, {"steps": 20}, {"layer": "0"}, {"layer": "0", "layer_side": "input"}, {"layer": model[2]}):
        expected = integrated_gradients(model, X, target=1, **options)
        close(integrated_gradients(compiled, X, target=1, **options).values, expected.values)
        hidden = integrated_gradients(lambda x: compiled(x), X, target=1, **options)
        close(hidden.values, expected.values)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_scripted_and_traced_modules():
    model = net()
    expected = integrated_gradients(model, X, target=1).values
    close(integrated_gradients(torch.jit.script(model), X, target=1).values, expected)
    close(integrated_gradients(torch.jit.trace(model, X), X, target=1).values, expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("frozen", [torch.jit.freeze, torch.jit.optimize_for_inference])
@pytest.mark.parametrize("made", [torch.jit.script, lambda model: torch.jit.trace(model, X)])
def test_frozen_modules(frozen, made):
    model = net().eval()
    expected = integrated_gradients(model, X, target=1).values
    close(integrated_gradients(frozen(made(model)), X, target=1).values, expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_convolutions_optimised_for_inference_have_no_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)).eval()
    x = torch.ones(1, 1, 4, 4)
    with pytest.raises(GradientError, match=r"torch\.jit\.optimize_for_inference"):
        integrated_gradients(torch.jit.optimize_for_inference(torch.jit.script(model)), x, target=1)
    close(
        integrated_gradients(torch.jit.freeze(torch.jit.script(model)), x, target=1).values,
        integrated_gradients(model, x, target=1).values,
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_layer_inside_a_scripted_module():
    """Refused, with a remedy that works: a layer outside, or the module as it was written."""
    first, last = net(), nn.Linear(4, 1)
    inner = torch.jit.script(first)
    for model, layer in ((inner, "0"), (nn.Sequential(inner, last), "0"), (nn.Sequential(inner, last), inner)):
        with pytest.raises(OptionError, match=r"compiled by torch\.jit.*from before torch\.jit\.script"):
            integrated_gradients(model, X, target=0, layer=layer)
    expected = integrated_gradients(nn.Sequential(first, last), X, layer="0").values
    close(integrated_gradients(nn.Sequential(inner, last), X, layer="1", layer_side="input").values, expected)


# Structures


def products(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1)


def test_tuple_of_tensors():
    a, b = integrated_gradients(products, (X, X + 1)).values
    close(a, X * (X + 1) / 2)  # of a product, each factor gets half
    close(b, X * (X + 1) / 2)


def test_list_of_tensors_is_a_tuple():
    values = integrated_gradients(products, [X, X + 1], [X * 0, X * 0]).values
    assert isinstance(values, tuple)
    close(values[0], X * (X + 1) / 2)


def test_dict_reaches_the_model_as_keywords():
    def model(scale: float, *, a: Tensor, b: Tensor, power: int) -> Tensor:
        return scale * (a * b**power).sum(1)

    result = integrated_gradients(model, {"b": X, "a": X + 1}, args=(2.0,), kwargs={"power": 2})
    assert list(result.values) == ["b", "a"]
    close(result.values["a"], 2 * (X + 1) * X**2 / 3)
    close(result.values["b"], 4 * (X + 1) * X**2 / 3)


def test_baseline_dict_in_any_order_and_with_numbers():
    x = {"a": X, "b": X}
    values = integrated_gradients(lambda a, b: (a * b).sum(1), x, {"b": 1.0, "a": torch.zeros(3)}).values
    close(values["a"], X * (X + 1) / 2)  # the mean of b along the path is (b + 1) / 2
    close(values["b"], (X - 1) * X / 2)


def test_tensors_of_different_shapes_and_devices_are_rows_of_one_example():
    image, number = torch.arange(24.0).reshape(2, 3, 4), torch.tensor([2.0, 3.0])
    a, b = integrated_gradients(lambda i, n: i.sum((1, 2)) * n, (image, number)).values
    close(a, image * number[:, None, None] / 2)
    close(b, image.sum((1, 2)) * number / 2)


# Outputs

Output = namedtuple("Output", ["scores", "other"])

OUTPUTS = {
    "(N,)": lambda s: s,
    "(N, 1)": lambda s: s[:, None],
    "(N, 1, 1)": lambda s: s[:, None, None],
    "tuple": lambda s: (s, s * 0),
    "list": lambda s: [s],
    "named tuple": lambda s: Output(s, None),
    "dict with logits": lambda s: {"loss": s.sum(), "logits": s},
    "dict of one": lambda s: {"out": s},
    "tuple of dict": lambda s: ({"out": s},),
}


@pytest.mark.parametrize("wrap", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_outputs(wrap):
    result = integrated_gradients(lambda x: wrap(squares(x)), X)
    close(result.values, X**2)
    assert [example.score for example in result.certificate] == pytest.approx((X**2).sum(1).tolist())


def test_output_that_only_a_target_can_choose():
    result = integrated_gradients(lambda x: {"a": x, "b": x**2}, X, target=lambda out: out["b"].sum(1))
    close(result.values, X**2)


# With and without a batch dimension


def test_vector_to_scalar():
    result = integrated_gradients(lambda x: (x**2).sum(), X[0])
    assert result.values.shape == (3,)
    assert not result.batched
    close(result.values, X[0] ** 2)


def test_vector_to_vector():
    model = net().double()
    x = X[0].double()
    result = integrated_gradients(model, x, target=3, **EXACT)
    close(result.values, line_integral(lambda v: model(v)[3], [x], [x * 0])[0])


def test_vector_to_vector_of_the_same_length():
    layer = nn.Linear(3, 3)
    result = integrated_gradients(layer, X[0], target=1)
    assert not result.batched
    close(result.values, X[0] * layer.weight.detach()[1])


def test_softmax_of_a_vector():
    x = X[0].double()
    result = integrated_gradients(lambda v: v.softmax(0), x, **EXACT)
    close(result.values, line_integral(lambda v: v.softmax(0)[2], [x], [x * 0])[0])


def test_batch_of_numbers():
    result = integrated_gradients(lambda x: x**3, X[0])
    assert result.batched
    assert len(result.certificate) == 3
    close(result.values, X[0] ** 3)


def test_number_to_number():
    result = integrated_gradients(lambda x: x**3, torch.tensor(2.0))
    assert result.values.shape == ()
    close(result.values, torch.tensor(8.0))


def test_whole_of_x_as_one_object():
    """A graph: rows are nodes, and they influence each other."""
    result = integrated_gradients(lambda x: (x.mean(0) ** 2).sum(), X)
    close(result.values, X * X.mean(0) / 2)
    assert len(result.certificate) == 1


def test_one_object_with_several_outputs():
    result = integrated_gradients(lambda x: x.mean(0) ** 2, X, target=1, batched=False)
    close(result.values, X * X.mean(0) / 2 * torch.tensor([0.0, 1.0, 0.0]))


def test_one_example_without_batch_in_several_tensors():
    a, b = integrated_gradients(lambda a, b: a.sum() * b.sum(), (X[0], torch.ones(2, 2))).values
    close(a, X[0] * 4 / 2)
    close(b, torch.full((2, 2), X[0].sum().item() / 2))


# Further arguments


def weigh(x: Tensor, weight: Tensor) -> Tensor:
    return (x**2 * weight).sum(1)


WEIGHTS = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0]])


@pytest.mark.parametrize("chunk", [1, 3, None])
def test_one_entry_per_example_is_split_with_the_batch(chunk):
    close(integrated_gradients(weigh, X, args=(WEIGHTS,), chunk=chunk).values, X**2 * WEIGHTS)
    close(integrated_gradients(weigh, X, kwargs={"weight": WEIGHTS}, chunk=chunk).values, X**2 * WEIGHTS)


def test_other_arguments_are_passed_as_they_are():
    close(integrated_gradients(weigh, X, args=(WEIGHTS[0],)).values, X**2 * WEIGHTS[0])
    close(integrated_gradients(lambda x, *, power: (x**power).sum(1), X, kwargs={"power": 2}).values, X**2)
    close(integrated_gradients(lambda x, name: squares(x) * len(name), X, args=("ab",)).values, 2 * X**2)


def lengths(x: Tensor, lengths: list[int] | np.ndarray) -> Tensor:
    return torch.stack([(row[:length] ** 2).sum() for row, length in zip(x, lengths, strict=True)])


@pytest.mark.parametrize("given", [[1, 2], np.array([1, 2]), torch.tensor([1, 2])])
def test_lengths(given):
    close(integrated_gradients(lengths, X, args=(given,)).values, X**2 * torch.tensor([[1.0, 0, 0], [1, 1, 0]]))


def test_list_of_graphs():
    graphs = [[(0, 1)], [(0, 1), (1, 2)]]

    def model(x: Tensor, graphs: list[list[tuple[int, int]]]) -> Tensor:
        return torch.stack([sum(row[i] * row[j] for i, j in edges) for row, edges in zip(x, graphs, strict=True)])

    expected = torch.zeros_like(X)
    for row, edges in enumerate(graphs):
        for i, j in edges:
            expected[row, i] += X[row, i] * X[row, j] / 2
            expected[row, j] += X[row, i] * X[row, j] / 2
    close(integrated_gradients(model, X, args=(graphs,)).values, expected)


def test_one_graph_for_all():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])  # two rows, as many as there are examples: so it is bound to the model
    x = torch.cat([X, X[:1]])
    result = integrated_gradients(lambda x, e: (x[:, e[0]] * x[:, e[1]]).sum(1), x, args=(edges,))
    close(result.values, x * (x[:, [1, 2, 0]] + x[:, [2, 0, 1]]) / 2)


@pytest.mark.parametrize("examples", [1, 2, 5])
def test_tensors_inside_structures(examples):
    torch.manual_seed(0)
    x, scale, shift = torch.randn(3, examples, 3)
    expected = scale**2 * x**2 + 2 * scale * shift * x
    for state in ((scale, shift), [scale, shift], Output(scale, shift)):
        close(integrated_gradients(lambda x, s: squares(x * s[0] + s[1]), x, args=(state,)).values, expected, 1e-5)
    result = integrated_gradients(lambda x, *, s: squares(x * s["a"] + s["b"][0]), x, kwargs={"s": {"a": scale, "b": (shift,)}})
    close(result.values, expected, 1e-5)


@pytest.mark.parametrize("examples", [1, 2])
def test_tuples_of_numbers_are_settings(examples):
    x = torch.arange(1.0, 1 + 4 * examples).reshape(examples, 2, 2)
    result = integrated_gradients(
        lambda x, shape: squares(x.reshape(len(x), *shape)), x, args=((4,) if examples == 1 else (4, 1),)
    )
    close(result.values, x**2)


def table(x: Tensor, table: Tensor) -> Tensor:
    return (x @ table).sum(1)


def first(x: Tensor, std: list[float]) -> Tensor:
    return squares(x / std[0])


def both(x: Tensor, std: list[float]) -> Tensor:
    low, high = std
    return squares(x / low) + high


def channels(x: Tensor, mean: Tensor) -> Tensor:
    return squares(x - mean)


SETTINGS = {
    "matrix": (table, {"table": torch.eye(3)}),
    "first of a list": (first, {"std": [2.0, 4.0, 8.0]}),
    "list that is unpacked": (lambda x, std: both(x, std[:2]), {"std": [2.0, 4.0, 8.0]}),
    "array": (lambda x, std: squares(x / torch.as_tensor(std, dtype=x.dtype)), {"std": np.array([2.0, 4.0, 8.0])}),
    "one per channel": (channels, {"mean": torch.tensor([0.1, 0.2, 0.3])}),
}


@pytest.mark.parametrize("options", [{}, {"steps": 20}, {"chunk": 1}])
@pytest.mark.parametrize(("model", "setting"), SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_that_look_like_one_entry_per_example(model, setting, options):
    """As many entries as examples by coincidence: the model is not to blame, and what the message advises works."""
    x = torch.tensor([[1.0, -2.0, 3.0], [0.5, 1.5, -1.0], [2.0, 0.25, 1.0]])
    (name, value), zero = next(iter(setting.items())), torch.full((3,), 0.05)
    with pytest.raises(OptionError, match=rf"got kwargs\['{name}'\] with 3 entries for 3 examples, and split it.*partial"):
        integrated_gradients(model, x, zero, kwargs=setting, **options)
    whole = integrated_gradients(functools.partial(model, **setting), x, zero, **options).values
    expected = [integrated_gradients(model, row[None], zero, kwargs=setting, **options).values for row in x]
    close(whole, torch.cat(expected), 1e-2)
    if isinstance(value, list):
        close(integrated_gradients(model, x, zero, kwargs={name: tuple(value)}, **options).values, whole)


def test_the_one_setting_among_arguments_of_each_example():
    def model(x: Tensor, scale: Tensor, std: list[float]) -> Tensor:
        return squares(x * scale) / std[0] + std[1]

    with pytest.raises(OptionError, match=r"got kwargs\['std'\] with 2 entries"):
        integrated_gradients(model, X, args=(torch.tensor([[1.0], [2.0]]),), kwargs={"std": [2.0, 4.0]})
    with pytest.raises(OptionError, match=r"got args\[1\] with 2 entries"):
        integrated_gradients(model, X, args=(torch.tensor([[1.0], [2.0]]), [2.0, 4.0]))
    values = integrated_gradients(model, X, args=(torch.tensor([[1.0], [2.0]]), (2.0, 4.0))).values
    close(values, X**2 * torch.tensor([[0.5], [2.0]]))


def test_rows_that_influence_each_other_and_arguments_that_were_split():
    with pytest.raises(RowsError, match=r"rows influence.* With the rows, kwargs\['s'\] was split.*functools\.partial"):
        integrated_gradients(lambda x, s: squares(x - x.mean(0)) * s + x.sum(1), X, kwargs={"s": torch.tensor([1.0, 2.0])})


def test_errors_in_the_model_say_what_it_was_called_with():
    def model(x: Tensor, table: Tensor) -> Tensor:
        return (x @ table).sum(1) + torch.zeros(3)  # three rows, whatever comes

    with pytest.raises(RuntimeError) as caught:
        integrated_gradients(model, torch.ones(3, 3), args=(torch.eye(3),))
    assert "split args[0] with them" in caught.value.__notes__[0]
    assert "functools.partial" in caught.value.__notes__[0]


# Precision


def test_tensors_of_different_precision():
    a, b = X, X.double()
    for options in ({}, {"tol": 1e-5}, {"steps": 20}):
        values = integrated_gradients(lambda a, b: (a.sum(1) * b.sum(1).sin()).double(), (a, b), **options).values
        assert [v.dtype for v in values] == [torch.float32, torch.float64]
        for row in range(2):
            score = lambda a, b: a.sum() * b.sum().sin()  # noqa: E731
            expected = line_integral(score, [X[row].double()] * 2, [torch.zeros(3).double()] * 2)
            for value, exact in zip(values, expected, strict=True):
                close(value[row], exact, 1e-2 if not options else 1e-5)


def test_the_certificate_names_the_coarsest_precision():
    result = integrated_gradients(lambda a, b: squares(a) + squares(b), (X.double(), X))
    assert [example.precision for example in result.certificate] == ["float32", "float32"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{"tol": 0.1}, {"steps": 32, "tol": 0.1}])
def test_half_precision(dtype, options):
    model = net().to(dtype)
    x = X.to(dtype)
    result = integrated_gradients(model, x, target=0, **options)
    assert result.values.dtype == dtype
    exact = model.double()
    for row, values in zip(x.double(), result.values, strict=True):
        expected = line_integral(lambda v: exact(v)[0], [row], [row * 0])[0]
        assert (values.double() - expected).abs().sum() < 0.1 * expected.abs().sum()


def test_half_precision_says_that_it_cannot_do_better(monkeypatch):
    monkeypatch.setattr("integrand.backends.full_precision.in_full_precision", lambda function: None)
    with pytest.warns(ConvergenceWarning, match="gradients in bfloat16 are not precise enough for a tolerance of 0.1%"):
        integrated_gradients(net().bfloat16(), X.bfloat16(), target=0, tol=0.001)


def test_examples_of_very_different_size_do_not_disturb_each_other():
    x = torch.tensor([[1.0, 2.0, 0.5], [1e4, 2e4, 1e4]])
    model = lambda x: torch.where(x[:, 0] > 50, 1e3 * x.sum(1), torch.sin(3 * x).sum(1))  # noqa: E731
    small = integrated_gradients(model, x[:1])
    both = integrated_gradients(model, x)
    close(both.values[0], small.values[0])
    assert both.certificate[0].status == small.certificate[0].status


# Masks and groups


def test_mask_leaves_features_out_and_the_sum_says_so():
    result = integrated_gradients(squares, X, mask=torch.tensor([True, False, True]))
    close(result.values, X**2 * torch.tensor([1.0, 0.0, 1.0]))


def test_mask_broadcasts_and_follows_the_structure():
    x = {"a": torch.ones(2, 3, 4), "b": torch.ones(2, 2)}
    mask = {"b": torch.tensor([0, 1]), "a": torch.tensor([[1], [0], [1]])}
    values = integrated_gradients(lambda a, b: a.sum((1, 2)) + b.sum(1), x, mask=mask).values
    close(values["a"], torch.tensor([[1.0], [0.0], [1.0]]).expand(2, 3, 4))
    close(values["b"], torch.tensor([[0.0, 1.0]]).expand(2, 2))


def test_groups_add_up():
    result = integrated_gradients(squares, X, groups=torch.tensor([1, 0, 1]))
    close(result.values, torch.stack([X[:, 1] ** 2, X[:, 0] ** 2 + X[:, 2] ** 2], 1))


def test_groups_leave_out_minus_one_and_span_tensors():
    groups = {"b": torch.tensor([1, -1, 0]), "a": torch.tensor([0, 0, 1])}
    result = integrated_gradients(lambda a, b: squares(a) + 2 * squares(b), {"a": X, "b": X}, groups=groups)
    s = X**2
    close(result.values, torch.stack([s[:, 0] + s[:, 1] + 2 * s[:, 2], s[:, 2] + 2 * s[:, 0]], 1))


def test_groups_without_batch():
    result = integrated_gradients(lambda x: (x**2).sum(), X[0], groups=torch.tensor([0, 0, 1]))
    close(result.values, torch.tensor([5.0, 9.0]))


@pytest.mark.parametrize("name", ["mask", "groups"])
def test_masks_and_groups_in_another_structure(name):
    with pytest.raises(InputError, match=name):
        integrated_gradients(lambda a, b: products(a, b), {"a": X, "b": X}, **{name: {"a": torch.ones(3, dtype=torch.int64)}})


def test_math_of_the_references():
    """The loop by hand against a closed form: of exp(a + b) from 0, each gets its share of exp(s) - 1."""
    a, b = torch.tensor(1.0).double(), torch.tensor(2.0).double()
    values = line_integral(lambda a, b: (a + b).exp(), [a, b], [a * 0, b * 0])
    assert [float(v) for v in values] == pytest.approx([(math.exp(3) - 1) / 3, 2 * (math.exp(3) - 1) / 3], rel=1e-12)
