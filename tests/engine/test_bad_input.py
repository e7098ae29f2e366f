"""What cannot be explained is refused in words: what was got, what was expected, what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import integrated_gradients
from integrand.errors import InputError, ModelError, NonFiniteError, OptionError, TargetError, ZeroAttributionWarning
from tests.by_hand import X, net, squares

# NaN and inf


def test_nan_in_the_input():
    x = X.clone()
    x[1, 2] = float("nan")
    with pytest.raises(InputError, match=r"x holds nan at index \(1, 2\) \(1 such values\); expected finite numbers"):
        integrated_gradients(squares, x)


def test_inf_in_one_of_several_inputs():
    with pytest.raises(InputError, match=r"x\['b'\] holds inf at index \(0, 1\)"):
        integrated_gradients(
            lambda a, b: squares(a) + squares(b), {"a": X, "b": X.index_fill(1, torch.tensor(1), float("inf"))}
        )


def test_nan_in_the_baseline():
    with pytest.raises(InputError, match=r"baseline holds nan at index \(2,\)"):
        integrated_gradients(squares, X, torch.tensor([0.0, 0.0, float("nan")]))


def test_baseline_nan_as_a_number():
    with pytest.raises(InputError, match="got baseline=nan; expected a finite number"):
        integrated_gradients(squares, X, float("nan"))


def test_nan_score_at_the_input():
    with pytest.raises(NonFiniteError, match=r"the score is nan at the input \(example 1\); expected a finite number"):
        integrated_gradients(lambda x: x.sum(1).log(), torch.tensor([[1.0], [-1.0]]))


def test_infinite_score_on_the_path():
    with pytest.raises(NonFiniteError, match=r"the score is -inf at example 0, t = 0 of the path"):
        integrated_gradients(lambda x: x.sum(1).log(), X[:1].abs())


def test_infinite_gradient():
    with pytest.raises(NonFiniteError, match=r"the gradient is inf at feature \(0,\) of x, example 0, t = 1 of the path"):
        integrated_gradients(lambda x: x.sqrt().sum(1), torch.zeros(1, 3), X[:1].abs())


def test_infinite_gradient_in_one_of_several_inputs():
    with pytest.raises(NonFiniteError, match=r"the gradient is inf at feature \(1,\) of x\[1\], example 0"):
        integrated_gradients(lambda a, b: squares(a) + b[:, 1].sqrt(), (X[:1], X[:1].abs()), steps=50, rule="trapezoid")


def test_nan_gradient_with_a_finite_score():
    with pytest.raises(NonFiniteError, match=r"the gradient is nan at feature \(0,\) of x"):
        integrated_gradients(
            lambda x: torch.where(x > 0, x, 0 * x).norm(dim=1) + torch.where(x > 9, x.sqrt(), x).sum(1), -X.abs()
        )


def test_infinite_layer_value():
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return self.mask(x.masked_fill(x < 0, -float("inf"))).softmax(1)

    with pytest.raises(NonFiniteError, match=r"the layer's output holds -inf at index \(0, 1\)"):
        integrated_gradients(Masked(), X, target=0, layer="mask")


def test_other_outputs_may_be_infinite():
    def masked(x: Tensor) -> Tensor:
        return torch.stack([(x**2).sum(1), torch.full((len(x),), -float("inf"))], 1)

    result = integrated_gradients(masked, X, target=0)
    torch.testing.assert_close(result.values, X**2)
    assert result.certificate.converged


# Whole numbers


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.bool])
def test_integer_input(dtype):
    with pytest.raises(InputError, match=rf"x has dtype {dtype}; expected floating point.*x\.float\(\).*embedding with layer="):
        integrated_gradients(squares, X.to(dtype))


def test_integer_input_among_others_is_named():
    with pytest.raises(InputError, match=r"x\[1\] has dtype torch.int64.*x\[1\]\.float\(\).*through kwargs="):
        integrated_gradients(lambda a, b: squares(a), (X, X.long()))


def test_complex_input():
    with pytest.raises(InputError, match=r"x has dtype torch.complex64.*torch\.view_as_real\(x\)"):
        integrated_gradients(squares, X.to(torch.complex64))


def test_numpy_input():
    with pytest.raises(InputError, match=r"x is a numpy.ndarray; expected a torch tensor.*torch\.from_numpy\(x\)\.float\(\)"):
        integrated_gradients(squares, X.numpy())


def test_something_else_inside_the_input():
    with pytest.raises(InputError, match=r"x\[1\] is a int; expected a torch tensor. Pass what is not explained through args="):
        integrated_gradients(squares, (X, 3))


def test_tensors_with_different_numbers_of_examples():
    with pytest.raises(InputError, match=r"shapes \[\(2, 3\), \(1, 3\)\]; expected the same number of examples"):
        integrated_gradients(lambda a, b: squares(a + b), (X, X[:1]))


def test_sparse_input():
    with pytest.raises(InputError, match=r"x has layout torch\.sparse_coo; expected a dense tensor"):
        integrated_gradients(squares, X.to_sparse())


def test_input_without_numbers():
    with pytest.raises(InputError, match="x is on the meta device, which holds no numbers"):
        integrated_gradients(squares, X.to("meta"))


# Empty


def test_empty_batch():
    with pytest.raises(InputError, match=r"x is empty \(shape \(0, 3\)\); expected at least one example and one feature"):
        integrated_gradients(squares, X[:0])


def test_no_features():
    with pytest.raises(InputError, match=r"x is empty \(shape \(2, 0\)\)"):
        integrated_gradients(squares, X[:, :0])


def test_no_tensors():
    with pytest.raises(InputError, match=r"x is empty \(\(\)\); expected at least one tensor"):
        integrated_gradients(squares, ())


# Baselines


@pytest.mark.parametrize("shape", [(2, 4), (4,), (3, 3), (1, 1, 2, 3), (2, 3, 1)])
def test_baseline_of_another_shape(shape):
    text = rf"baseline has shape {shape}; expected (2, 3), that of x, or (3,) for one shared by all examples"
    with pytest.raises(InputError, match=text.replace("(", r"\(").replace(")", r"\)")):
        integrated_gradients(squares, X, torch.zeros(shape))


def test_baseline_of_another_shape_without_batch():
    with pytest.raises(InputError, match=r"baseline has shape \(4,\); expected \(3,\), that of x\. Several baselines"):
        integrated_gradients(lambda x: (x**2).sum(), X[0], torch.zeros(4))


def test_baseline_of_another_dtype():
    with pytest.raises(InputError, match=r"baseline has dtype torch.float64; expected torch.float32.*\.to\(torch.float32\)"):
        integrated_gradients(squares, X, torch.zeros(2, 3, dtype=torch.float64))


def test_baseline_on_another_device():
    with pytest.raises(InputError, match=r"baseline is on meta; expected cpu, the device of x\. Move it with \.to\('cpu'\)"):
        integrated_gradients(squares, X, torch.zeros(2, 3, device="meta"))


def test_baseline_of_another_structure():
    with pytest.raises(InputError, match=r"baseline is a dict of 1 tensor\(s\) \('a'\); expected a dict of 2 .*'a', 'b'"):
        integrated_gradients(lambda a, b: squares(a * b), {"a": X, "b": X}, {"a": X})
    with pytest.raises(InputError, match=r"baseline is a tuple of 2 tensor\(s\); expected one tensor, the structure of x"):
        integrated_gradients(squares, X, (X, X))


def test_stacks_of_different_lengths():
    with pytest.raises(InputError, match=r"hold \[2, 3\] baselines each; expected the same number"):
        integrated_gradients(lambda a, b: squares(a * b), (X, X), (torch.zeros(2, 2, 3), torch.zeros(3, 2, 3)))


def test_empty_list_of_baselines():
    with pytest.raises(InputError, match="got an empty list of baselines"):
        integrated_gradients(squares, X, [])


def test_baseline_for_token_ids_of_another_length_or_dtype():
    model = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2))
    ids = torch.tensor([[1, 2, 3]])
    with pytest.raises(InputError, match=r"baseline has shape \(1, 2\); expected \(1, 3\), that of the model's input"):
        integrated_gradients(model, ids, torch.tensor([[0, 0]]), target=0, layer="0")
    with pytest.raises(InputError, match=r"baseline has dtype torch.int32; expected torch.int64, that of the model's input"):
        integrated_gradients(model, ids, torch.zeros(1, 3, dtype=torch.int32), target=0, layer="0")


def test_baseline_equal_to_the_input():
    with pytest.warns(ZeroAttributionWarning, match=r"the input equals the baseline for example\(s\) \[1\]") as caught:
        result = integrated_gradients(squares, X, torch.stack([torch.zeros(3), X[1]]))
    assert len(caught) == 1
    torch.testing.assert_close(result.values, torch.stack([X[0] ** 2, torch.zeros(3)]))


def test_all_baselines_equal_to_their_inputs_warn_once():
    with pytest.warns(ZeroAttributionWarning, match=r"the input equals the baseline for example\(s\) \[0, 1\]") as caught:
        result = integrated_gradients(squares, X, X)
    assert len(caught) == 1
    assert not result.values.any()
    assert result.certificate.converged


def test_one_of_several_inputs_may_stay_as_it_is():
    a, b = integrated_gradients(lambda a, b: (a * b).sum(1), (X, X), (torch.zeros_like(X), X)).values
    torch.testing.assert_close(a, X**2)
    assert not b.any()


# Targets


def test_missing_target():
    with pytest.raises(TargetError, match=r"no target was given and the output has shape \(3, 3\).*target=\(i, j\)"):
        integrated_gradients(lambda x: x[:, :, None] * x[:, None], X)


@pytest.mark.parametrize("target", [4, -1, [0, 4], np.int64(7), torch.tensor(4)])
def test_target_out_of_range(target):
    with pytest.raises(TargetError, match=r"out of range; expected 0 to 3 for an output of shape \(4,\)"):
        integrated_gradients(net(), X, target=target)


@pytest.mark.parametrize("target", [1.5, "cat", True, torch.tensor([0.0, 1.0]), [None, 1]])
def test_target_of_the_wrong_type(target):
    with pytest.raises(TargetError, match=r"of type (float|str|bool|NoneType); expected an int, one int per example"):
        integrated_gradients(net(), X, target=target)


def test_wrong_number_of_targets():
    with pytest.raises(TargetError, match="got 3 targets for 2 examples; expected one for all or one per example"):
        integrated_gradients(net(), X, target=[0, 1, 2])


def test_tuple_where_a_list_is_meant():
    with pytest.raises(TargetError, match=r"got target \(0, 1\) with 2 indices; expected 1 .*differ by example go into a list"):
        integrated_gradients(net(), X, target=(0, 1))


def test_target_of_a_scalar_output():
    with pytest.raises(TargetError, match="a scalar output needs no target"):
        integrated_gradients(squares, X, target=1)


@pytest.mark.parametrize(
    ("function", "got"),
    [(lambda out: 1.0, "a float"), (lambda out: out, r"shape \(2, 4\)"), (lambda out: out[:1, 0], r"shape \(1,\)")],
)
def test_target_function_of_the_wrong_kind(function, got):
    with pytest.raises(TargetError, match=rf"the target function returned {got}; expected .*2 numbers, one per example"):
        integrated_gradients(net(), X, target=function)


def test_target_function_that_knows_its_own_batch_only():
    labels = torch.tensor([0, 1])
    with pytest.raises(IndexError) as caught:
        integrated_gradients(net(), X, target=lambda out: out[torch.arange(len(out)), labels])
    assert "targets that differ by example go into target=[...]" in caught.value.__notes__[-1]


def test_score_of_a_target_function():
    with pytest.raises(OptionError, match="got score='probability' with a target function; apply softmax inside"):
        integrated_gradients(net(), X, target=lambda out: out[:, 0], score="probability")


# Options


@pytest.mark.parametrize("tol", [0, -0.1, float("nan"), float("inf"), "1%", True, None])
def test_tolerance_that_makes_no_sense(tol):
    with pytest.raises(OptionError, match=r"got tol=.*; expected a positive number, the relative error to reach"):
        integrated_gradients(squares, X, tol=tol)


@pytest.mark.parametrize("name", ["steps", "max_evaluations", "memory", "chunk", "draws"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "9"])
def test_budget_that_makes_no_sense(name, value):
    with pytest.raises(OptionError, match=f"got {name}=.*; expected a whole number from 1 on"):
        integrated_gradients(squares, X, **{name: value})


def test_budget_too_small_for_a_tolerance():
    with pytest.raises(OptionError, match=r"got max_evaluations=16; expected at least 17 .*or use steps="):
        integrated_gradients(squares, X, max_evaluations=16)


def test_rules():
    with pytest.raises(OptionError, match="got rule='euler'; expected one of 'right', 'left'"):
        integrated_gradients(squares, X, steps=5, rule="euler")
    with pytest.raises(OptionError, match="got rule='right' without steps="):
        integrated_gradients(squares, X, rule="right")


def test_unknown_score():
    with pytest.raises(OptionError, match="got score='softmax'; expected one of 'logit', 'probability', 'log-probability'"):
        integrated_gradients(net(), X, target=0, score="softmax")


def test_mask_and_groups():
    with pytest.raises(OptionError, match="got both mask= and groups="):
        integrated_gradients(squares, X, mask=torch.ones(3), groups=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match=r"mask has shape \(2,\); expected \(3,\), the shape of one example"):
        integrated_gradients(squares, X, mask=torch.ones(2))
    with pytest.raises(InputError, match=r"groups has shape \(2,\); expected \(3,\), the shape of one example"):
        integrated_gradients(squares, X, groups=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match=r"groups has dtype torch.float32; expected integers"):
        integrated_gradients(squares, X, groups=torch.zeros(3))


@pytest.mark.parametrize(
    ("layer", "text"), [("3", "does not have; expected the name of a submodule, for example '0'"), ([], "got layer=")]
)
def test_layer_that_does_not_exist(layer, text):
    with pytest.raises(OptionError, match=text):
        integrated_gradients(net(), X, target=0, layer=layer)


def test_layer_name_that_two_modules_have():
    first, second = net(), net()
    with pytest.raises(OptionError, match=r"got layer='0', which 2 modules of the model have.*Pass the module itself"):
        integrated_gradients(lambda x: first(x) + second(x), X, target=0, layer="0")


def test_layer_side():
    with pytest.raises(OptionError, match="got layer_side='in'; expected 'output'"):
        integrated_gradients(net(), X, target=0, layer="0", layer_side="in")


def test_layer_that_does_not_run():
    with pytest.raises(ModelError, match=r"the layer \(Linear\) was not run"):
        integrated_gradients(net(), X, target=0, layer=nn.Linear(1, 1))


def test_path_that_is_not_one():
    with pytest.raises(InputError, match=r"got a Tensor as path; expected one of integrand\.paths"):
        ig.path_attribution(squares, X)


def test_path_without_length():
    """Whatever the path is made of: the input equals the baseline."""
    for path in (ig.Polyline([X, X]), ig.Straight(X, X), ig.Polyline([X, X, X])):
        with pytest.warns(ZeroAttributionWarning, match=r"the input equals the baseline for example\(s\) \[0, 1\]") as caught:
            result = ig.path_attribution(squares, path)
        assert len(caught) == 1
        assert not result.values.any()
    moved = torch.stack([torch.zeros(3), X[1]])
    with pytest.warns(ZeroAttributionWarning, match=r"for example\(s\) \[1\]"):
        ig.path_attribution(squares, ig.Polyline([moved, X]))


def test_path_that_comes_back_is_no_path_without_length():
    result = ig.path_attribution(lambda x: x[:, 0] * x[:, 1], ig.Polyline([X, X + torch.tensor([1.0, 0, 0]), X + 1, X]))
    torch.testing.assert_close(result.sum(), torch.zeros(2, dtype=torch.float64), atol=1e-5, rtol=0)


# What is no number, no mask, no group, no model


@pytest.mark.parametrize("tol", [np.float32(0.01), np.float64(0.01), np.float16(0.01)])
def test_tolerance_of_another_type(tol):
    result = integrated_gradients(squares, X, tol=tol)
    torch.testing.assert_close(result.values, X**2)
    assert type(result.certificate[0].tol) is float


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, float("nan")])
def test_mask_that_is_neither_true_nor_false(value):
    with pytest.raises(InputError, match=rf"mask holds {value}; expected True \(or 1\).*mask > 0\.5"):
        integrated_gradients(squares, X, mask=torch.tensor([0.0, 1.0, value]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64, torch.uint8])
def test_mask_of_any_dtype(dtype):
    mask = torch.tensor([1, 0, 1])
    torch.testing.assert_close(integrated_gradients(squares, X, mask=mask.to(dtype)).values, X**2 * mask)


def test_labels_below_minus_one():
    with pytest.raises(InputError, match=r"groups holds the label -2; expected labels 0, 1, \.\.\., and -1"):
        integrated_gradients(squares, X, groups=torch.tensor([0, 1, -2]))


@pytest.mark.parametrize(("labels", "last"), [([0, 7, 10**12], [1, 2]), ([7, -1, 10**12], [0, 1])])
def test_labels_that_are_no_numbers_of_groups(labels, last):
    """The remedy works: the groups numbered as the message says."""
    groups = torch.tensor(labels)
    for use in (
        lambda: integrated_gradients(squares, X, groups=groups),
        lambda: integrated_gradients(squares, X).sum(groups=groups),
    ):
        with pytest.raises(InputError, match=r"the label 1000000000000 for 3 features.*torch\.unique\(groups") as caught:
            use()
    again = torch.unique(groups, return_inverse=True)[1] - int(" - 1" in str(caught.value))
    values = integrated_gradients(squares, X, groups=again).values
    torch.testing.assert_close(values[:, last], X[:, [-2 if labels[1] > 0 else 0, 2]] ** 2)


def test_labels_with_gaps():
    values = integrated_gradients(squares, X, groups=torch.tensor([500, 3, 500])).values
    assert values.shape == (2, 501)
    torch.testing.assert_close(values[:, [3, 500]], torch.stack([X[:, 1] ** 2, X[:, 0] ** 2 + X[:, 2] ** 2], 1))
    assert int(values.count_nonzero()) == 4


@pytest.mark.parametrize("batched", ["yes", 1, 2.0, torch.ones(2)])
def test_batched_that_is_no_answer(batched):
    with pytest.raises(OptionError, match=r"got batched=.*; expected True where the first dimension"):
        integrated_gradients(squares, X, batched=batched)


def test_batched_as_numpy_has_it():
    values = integrated_gradients(lambda x: (x**2).sum(), X, batched=np.bool_(False)).values
    torch.testing.assert_close(values, X**2)


@pytest.mark.parametrize("method", [integrated_gradients, ig.methods.GradientTimesInput()])
@pytest.mark.parametrize("progress", [3, "yes", 0.5])
def test_progress_that_nobody_can_tell(method, progress):
    with pytest.raises(OptionError, match=r"got progress=.*; expected True or False for a bar"):
        method(squares, X, progress=progress)


def test_arguments_that_would_be_taken_apart():
    def model(x: Tensor, *more: Tensor) -> Tensor:
        return squares(x) * len(more)

    with pytest.raises(OptionError, match=r"got args=a Tensor of shape \(2, 3\); expected a tuple.*args=\(value,\)"):
        integrated_gradients(model, X, args=torch.ones(2, 3))
    torch.testing.assert_close(integrated_gradients(model, X, args=(torch.ones(2, 3),)).values, X**2)
    with pytest.raises(OptionError, match=r"got args='ab'; expected a tuple"):
        integrated_gradients(model, X, args="ab")
    with pytest.raises(OptionError, match=r"got kwargs=\[1, 2\]; expected a dict"):
        integrated_gradients(model, X, kwargs=[1, 2])


@pytest.mark.parametrize(("model", "text"), [(None, "got None as"), (3, "got a int as"), ({"w": X}, "load_state_dict")])
def test_what_is_no_model(model, text):
    with pytest.raises(ModelError, match=text):
        integrated_gradients(model, X)


def test_model_without_numbers():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, device="meta"))
    with pytest.raises(ModelError, match=r"the model's '1\.weight' is on the meta device, which holds no numbers.*to_empty"):
        integrated_gradients(model, X)
    model = nn.Linear(3, 1, device="meta")
    with pytest.raises(ModelError, match="the model's output is on the meta device"):
        integrated_gradients(lambda x: model(x.to("meta")), X)
    weight = {"weight": torch.tensor([[1.0, 2.0, 3.0]]), "bias": torch.zeros(1)}
    model = model.to_empty(device="cpu")
    model.load_state_dict(weight)
    torch.testing.assert_close(integrated_gradients(model, X).values, X * weight["weight"])
