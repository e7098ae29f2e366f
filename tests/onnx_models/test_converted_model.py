"""Networks from ONNX files: the same values as the originals, and nothing wrong that would not be found."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import integrand as ig
from integrand import errors

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
if not all(importlib.util.find_spec(name) for name in ("onnx2torch", "onnx2pytorch")):  # to import them needs torchvision
    pytest.skip("pip install --no-deps onnx2pytorch onnx2torch", allow_module_level=True)

import onnx

from integrand.onnx_models import conversion, converters

from .builders import cnn, made, node, words


@pytest.mark.parametrize("converter", ["onnx2pytorch", "onnx2torch"])
def test_values_are_those_of_the_original(converter: str) -> None:
    model, net = cnn()
    found = ig.from_onnx(model.SerializeToString(), converter=converter)
    about = found.provenance
    assert about.converter.startswith(converter)
    assert about.difference is not None
    assert about.difference < 1e-5
    assert about.gradient is not None
    assert about.gradient < 0.02
    assert about.rows is None
    assert "x (n, 3, 8, 8) float32" in repr(found)
    assert "onnxruntime" in repr(found)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    ours, theirs = (ig.integrated_gradients(m, x, target=[1, 3], tol=1e-4).values for m in (found, net))
    assert float((ours - theirs).abs().sum() / theirs.abs().sum()) < 1e-3


def test_words_through_a_layer() -> None:
    model, net = words()
    found = ig.from_onnx(model, converter="onnx2torch")
    assert "no input has a gradient" in str(found.provenance)
    ids = torch.randint(0, 40, (2, 11), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found(ids), net(ids))
    ours = ig.integrated_gradients(found, ids, target=0, layer="network.words", tol=1e-4)
    theirs = ig.integrated_gradients(net, ids, target=0, layer="words", tol=1e-4)
    assert float((ours.values - theirs.values).abs().sum() / theirs.values.abs().sum()) < 1e-3


def test_methods_that_trace_the_model() -> None:
    model, net = cnn()
    found = ig.from_onnx(model)
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    for method in (ig.methods.DeepLift(), ig.methods.LRP()):
        ours, theirs = (method(m, x, target=1).values for m in (found, net))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_it_stays_a_network_for_inference() -> None:
    found = ig.from_onnx(cnn()[0])
    found.train()
    assert not any(module.training for module in found.modules())
    assert not any(parameter.requires_grad for parameter in found.parameters())
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(copy.deepcopy(found)(x), found(x=x), rtol=0, atol=0)


class Off(nn.Module):
    """A conversion that went wrong: in its outputs, in its gradient, or in a part of that."""

    def __init__(self, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network, kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "output":
            return 1.001 * self.network(x)
        if self.kind == "detached":
            return self.network(x.detach())
        mask = torch.zeros_like(x)
        mask[..., 1:] = 1  # a column of the picture loses its gradient
        return self.network(mask * x + ((1 - mask) * x).detach())


def plant(monkeypatch: pytest.MonkeyPatch, kind: str, *names: str) -> None:
    real = converters.convert
    monkeypatch.setattr(
        conversion, "convert", lambda name, model: Off(real(name, model), kind) if name in names else real(name, model)
    )


@pytest.mark.parametrize("kind", ["output", "detached", "partly"])
def test_a_wrong_conversion_is_not_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, kind, "onnx2pytorch")
    assert ig.from_onnx(cnn()[0]).provenance.converter.startswith("onnx2torch")


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("output", errors.ModelError, "onnx2pytorch.*another network: its output is 1.0e-03.*onnx2torch.*1.0e-03"),
        ("detached", errors.GradientError, "no gradient reaches the input 'x'"),
        ("partly", errors.GradientError, "in float64 it is .* off a finite difference"),
    ],
)
def test_two_wrong_conversions_are_an_error(
    kind: str, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, kind, "onnx2pytorch", "onnx2torch")
    with pytest.raises(error, match=said):
        ig.from_onnx(cnn()[0])
    if kind == "output":
        assert ig.from_onnx(cnn()[0], tolerance=0.01).provenance.tolerance == 0.01
    else:
        assert ig.from_onnx(cnn()[0], check="outputs").provenance.gradient is None


def test_a_single_row_through_a_batch_norm_and_a_transpose() -> None:
    """What torch's own batch normalisation gets wrong on some CPUs; the gradient has a closed form."""
    norm = nn.BatchNorm2d(8).eval().requires_grad_(False)
    norm.running_var = torch.rand(8, generator=torch.Generator().manual_seed(0)) + 0.5
    net = converters.with_plain_norms(nn.Sequential(norm))
    x = torch.randn(1, 8, 4, 5, requires_grad=True)
    weights = torch.randn(1, 20, 8)
    (found,) = torch.autograd.grad((net(x).flatten(2).transpose(1, 2) * weights).sum(), x)
    expected = weights.transpose(1, 2).reshape(1, 8, 4, 5) / (norm.running_var + norm.eps).sqrt()[None, :, None, None]
    torch.testing.assert_close(found, expected)


# ---- rows ------------------------------------------------------------------------------------------------------------------


def one_row(shape: list[int], *, first: str = "Relu") -> onnx.ModelProto:
    """For one row: (1, 6), a reshape to a constant shape, and a product with a matrix."""
    tensors = {"shape": np.array(shape), "w": np.random.default_rng(0).normal(size=(shape[-1] if shape[-1] > 0 else 6, 2))}
    tensors["w"] = tensors["w"].astype(np.float32)
    nodes = [node(first, ["x"], ["r"]), node("Reshape", ["r", "shape"], ["s"]), node("MatMul", ["s", "w"], ["y"])]
    return made(nodes, {"x": ("float32", (1, 6))}, {"y": ("float32", (1, 2))}, tensors)


@pytest.mark.parametrize("shape", [[1, 6], [1, -1]])
def test_a_network_for_one_row_takes_any_number(shape: list[int]) -> None:
    found = ig.from_onnx(one_row(shape))
    assert found.provenance.rows is None
    assert "takes any number (compared with three)" in str(found.provenance)
    x = torch.randn(4, 6)
    torch.testing.assert_close(found(x), torch.cat([found(row[None]) for row in x]))


def test_a_network_that_takes_one_row_runs_one_at_a_time() -> None:
    """The mean over all rows is that of a single one in the file, whatever converters make of it."""
    tensors = {"w": np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)}
    nodes = [
        node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        node("Sub", ["x", "m"], ["d"]),
        node("Add", ["d", "x"], ["e"]),
    ]
    model = made([*nodes, node("MatMul", ["e", "w"], ["y"])], {"x": ("float32", (1, 6))}, {"y": ("float32", (1, 2))}, tensors)
    found = ig.from_onnx(model)
    assert found.provenance.rows == 1
    x = torch.randn(3, 6)
    torch.testing.assert_close(found(x), x @ torch.from_numpy(tensors["w"]))
    values = ig.integrated_gradients(found, x, target=1).values
    torch.testing.assert_close(values, x * torch.from_numpy(tensors["w"])[:, 1])


def test_a_first_side_that_is_no_batch_is_said() -> None:
    nodes = [node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), node("Sub", ["x", "m"], ["y"])]
    found = ig.from_onnx(made(nodes, {"x": ("float32", ("t", 3))}, {"y": ("float32", ("t", 3))}, {}))
    assert "rows depend on each other" in str(found.provenance)


# ---- inputs and outputs ----------------------------------------------------------------------------------------------------


def branches() -> onnx.ModelProto:
    """Two inputs, one of them a setting that chooses a branch; two outputs, one of them a label."""
    yes = onnx.helper.make_graph(
        [node("Mul", ["x", "two"], ["a"])], "yes", [], [onnx.helper.make_tensor_value_info("a", 1, None)]
    )
    no = onnx.helper.make_graph([node("Exp", ["x"], ["b"])], "no", [], [onnx.helper.make_tensor_value_info("b", 1, None)])
    nodes = [
        node("Equal", ["rate", "wanted"], ["is"]),
        node("If", ["is"], ["y"], then_branch=yes, else_branch=no),
        node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
    ]
    inputs = {"x": ("float32", ("n", 4)), "rate": ("int64", ())}
    outputs = {"label": ("int64", ("n",)), "y": ("float32", ("n", 4))}
    return made(nodes, inputs, outputs, {"two": np.float32(2), "wanted": np.int64(16000)})


def test_a_setting_chooses_the_branch_and_an_output_is_kept() -> None:
    x = torch.randn(3, 4)
    for rate, expected in ((16000, 2 * x), (8000, x.exp())):
        found = ig.from_onnx(branches(), constants={"rate": rate}, output="y")
        assert [value.name for value in found.provenance.inputs] == ["x"]
        torch.testing.assert_close(found(x), expected)
    label, scores = ig.from_onnx(branches(), constants={"rate": 16000})(x)
    torch.testing.assert_close(scores, 2 * x)
    assert torch.equal(label, x.argmax(1))


def test_inputs_by_name_and_the_errors() -> None:
    tensors = {"w": np.eye(4, dtype=np.float32)}
    nodes = [node("MatMul", ["input.1", "w"], ["p"]), node("Mul", ["p", "gate"], ["y"])]
    inputs = {"input.1": ("float32", ("n", 4)), "gate": ("float32", ("n", 1))}
    found = ig.from_onnx(made(nodes, inputs, {"y": ("float32", ("n", 4))}, tensors))
    x, gate = torch.randn(3, 4), torch.randn(3, 1)
    torch.testing.assert_close(found(x, gate), x * gate)
    torch.testing.assert_close(found(**{"gate": gate, "input.1": x}), x * gate)
    torch.testing.assert_close(found(x, gate[:1]), x * gate[:1])  # one for all rows
    result = ig.integrated_gradients(found, x, kwargs={"gate": gate}, target=2)
    torch.testing.assert_close(result.values[:, 2], (x * gate)[:, 2])
    for call in (partial(found, x), partial(found, x, gate, x), partial(found, x, gate, other=x), partial(found, x, "gate")):
        with pytest.raises(errors.InputError, match=r"expected a tensor|the network takes input\.1 \(n, 4\) float32"):
            call()


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_inputs_of_another_shape_or_type_are_refused_and_the_remedy_helps(kind: str) -> None:
    tensors = {"w": np.eye(4, dtype=kind)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Tanh", ["p"], ["y"])]
    found = ig.from_onnx(made(nodes, {"x": (kind, ("n", 4))}, {"y": (kind, ("n", 4))}, tensors))
    x = torch.randn(2, 4, dtype=torch.float64)
    with pytest.raises(errors.InputError, match=f"got 'x' in float64; the network is in {kind}. Pass x.to") as caught:
        found(x)
    assert f"x.to(torch.{kind})" in str(caught.value)
    right = x.to(getattr(torch, kind))
    torch.testing.assert_close(found(right), right.tanh())
    with pytest.raises(errors.InputError, match=r"shape \(4,\); expected x \(n, 4\).*x\[None\]"):
        found(right[0])
    torch.testing.assert_close(found(right[0][None]), right[:1].tanh())
    with pytest.raises(errors.InputError, match=r"shape \(2, 3\); expected x \(n, 4\)"):
        found(right[:, :3])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"converter": "onnx2tf"}, "expected auto, onnx2pytorch or onnx2torch"),
        ({"output": "z"}, "has y. Expected one of these names"),
        ({"tolerance": 0.0}, "expected a number above 0"),
        ({"sample": {"z": torch.ones(1)}}, "expected inputs of the network: x"),
        ({"sample": "x"}, "expected a tensor or an array"),
        ({"sample": torch.ones(1, 4, 8, 8)}, "runs the network on none of the samples"),
        ({"constants": {"z": 1}}, "expected inputs of the network: x"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ig.from_onnx(cnn()[0], **options)  # type: ignore[arg-type]


# ---- what cannot be converted ----------------------------------------------------------------------------------------------


def test_what_neither_converts_is_named() -> None:
    nodes = [node("Det", ["x"], ["d"]), node("Unsqueeze", ["d", "axes"], ["u"]), node("Mul", ["u", "d"], ["y"])]
    model = made(nodes[:1], {"x": ("float32", ("n", 3, 3))}, {"d": ("float32", ("n",))}, {})
    found = ig.from_onnx(model)  # onnx2pytorch knows it
    assert found.provenance.converter.startswith("onnx2pytorch")
    with pytest.raises(errors.ModelError, match=r"onnx2torch \S+ has no rule for Det\. Expected a network that"):
        ig.from_onnx(model, converter="onnx2torch")


def test_an_operation_of_torchvision_is_said_when_it_runs() -> None:
    inputs = {"boxes": ("float32", (1, 6, 4)), "scores": ("float32", (1, 1, 6))}
    nodes = [node("NonMaxSuppression", [*inputs, "most"], ["y"])]
    model = made(nodes, inputs, {"y": ("int64", (None, 3))}, {"most": np.array([3])})
    code = "import torchvision"
    works = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    if works:
        pytest.skip("torchvision is installed and works")
    with pytest.raises(errors.ModelError, match="needs torchvision"):
        ig.from_onnx(model, sample=(torch.rand(1, 6, 4), torch.rand(1, 1, 6)))


def test_rounding_has_no_gradient() -> None:
    model = made([node("Round", ["x"], ["y"])], {"x": ("float32", ("n", 50))}, {"y": ("float32", ("n", 50))}, {})
    with pytest.raises(errors.GradientError, match=r"no gradient reaches the input 'x'.*operations without one: Round"):
        ig.from_onnx(model)


def test_random_and_training_networks_are_refused() -> None:
    random = made(
        [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])],
        {"x": ("float32", ("n", 3))},
        {"y": ("float32", ("n", 3))},
        {},
    )
    with pytest.raises(errors.ModelError, match=r"draws random numbers \(RandomNormalLike\)"):
        ig.from_onnx(random)
    drop = made(
        [node("Dropout", ["x", "ratio", "mode"], ["y"])],
        {"x": ("float32", ("n", 3))},
        {"y": ("float32", ("n", 3))},
        {"ratio": np.float32(0.5), "mode": np.bool_(True)},
    )
    with pytest.raises(errors.ModelError, match=r"exported in training mode \(Dropout\)"):
        ig.from_onnx(drop)


def test_an_operation_that_nobody_knows() -> None:
    model, _ = cnn()
    model.graph.node[2].domain, model.graph.node[2].op_type = "com.example", "Swishy"
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    with pytest.raises(errors.ModelError, match=r"onnxruntime cannot load the network .*Swishy"):
        ig.from_onnx(model)
    with pytest.raises(errors.ModelError, match=r"operations beyond ONNX's own: com.example:Swishy"):
        ig.from_onnx(model, check=False)


# ---- the converters --------------------------------------------------------------------------------------------------------


def test_torchvision_is_neither_needed_nor_replaced() -> None:
    script = """
import sys
before = set(sys.meta_path)
from integrand.onnx_models.converters import converter_package
for name in ("onnx2pytorch", "onnx2torch"):
    converter_package(name)
assert not [name for name in sys.modules if name.partition(".")[0] == "torchvision"]
assert set(sys.meta_path) == before
import onnx2torch, onnx2torch.node_converters.nms as nms
try:
    nms.torchvision.ops.nms(1, 2)
except Exception as error:
    print(type(error).__name__)
try:
    import torchvision
    print("works", torchvision.__file__)
except Exception as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = done.stdout.split()
    assert said[0] == "ModelError" or said[1] == "works"


def test_threads_may_convert_at_once() -> None:
    data, found = cnn()[0].SerializeToString(), []
    threads = [threading.Thread(target=lambda: found.append(ig.from_onnx(data, check=False))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x = torch.randn(1, 3, 8, 8)
    assert len({model(x).detach().numpy().tobytes() for model in found}) == 1
    assert len(found) == 4


def test_missing_converters_are_said_with_the_line_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converters, "_there", lambda name: False)
    with pytest.raises(errors.MissingExtraError, match="pip install --no-deps onnx2pytorch onnx2torch"):
        ig.from_onnx(cnn()[0])
