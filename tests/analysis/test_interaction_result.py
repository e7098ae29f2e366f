"""What the result says of itself, and its picture."""

from __future__ import annotations

import copy
import dataclasses
import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from integrand import Status
from integrand.errors import InputError, MissingExtraError, OptionError
from integrand.interactions import InteractionCertificate, Interactions, Pair, integrated_hessians


def product(x):
    return x[:, 0] * x[:, 1] - 3 * x[:, 1] * x[:, 2] + x[:, 3] ** 2


@pytest.fixture(scope="module")
def result() -> Interactions:
    return integrated_hessians(product, torch.tensor([[2.0, 3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))


def test_pairs(result):
    assert result.pairs(2) == [Pair(1, 2, -2.25), Pair(0, 1, 1.5)]
    assert result.pairs(10) == result.pairs(2)  # entries of exactly zero are no interactions
    assert [pair.value for pair in result.pairs(example=1)] == pytest.approx([-0.75, 0.25])
    rows = integrated_hessians(product, torch.tensor([[2.0, 3.0, 1.0, 1.0]]), features=[2, 1])
    assert rows.pairs() == [Pair(2, 1, -2.25), Pair(1, 0, 1.5)]
    groups = integrated_hessians(product, torch.tensor([[2.0, 3.0, 1.0, 1.0]]), groups=torch.tensor([1, 0, 1, -1]))
    assert groups.pairs() == [Pair(0, 1, -0.75)]
    for options in ({"k": 0}, {"k": 1.5}, {"example": 2}, {"example": -1}):
        with pytest.raises(OptionError, match="expected"):
            result.pairs(**options)


def test_numpy(result):
    assert isinstance(result.numpy(), np.ndarray)
    assert result.numpy().shape == (2, 4, 4)
    named = integrated_hessians(lambda a, b: a.prod(1) * b, {"a": torch.ones(1, 2), "b": torch.ones(1)})
    assert {name: array.shape for name, array in named.numpy().items()} == {"a": (1, 3, 2), "b": (1, 3)}


def test_what_it_says(result):
    first, second = str(result).splitlines()
    assert first.startswith("[0] F(x) -2  F(x') 0  rows miss ")
    assert "of |G| 13  error" in first
    assert first.endswith("17 gradients, 60 products  converged")
    assert second.startswith("[1] ")
    assert result.converged
    assert result.error == max(one.error for one in result.certificate) < 1e-5
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.values = None
    alone = integrated_hessians(product, torch.ones(1, 4))
    assert str(alone).startswith("F(x) ")


def certificate(**changes) -> InteractionCertificate:
    base = {"score": 1.0, "baseline_score": 0.0, "model_score": 1.0, "row_gap": 0.1, "asymmetry": 0.0, "magnitude": 2.0}
    base |= {"error": 0.05, "tol": 0.01, "gradients": 17, "products": 30, "forwards": 3, "status": Status.BUDGET}
    base |= {"rule": "Gauss-Kronrod", "precision": "float32", "target": "the output"}
    return InteractionCertificate(**(base | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": Status.CONVERGED}, ""),
        ({}, "raise max_evaluations"),
        ({"rule": "kinks", "kinks": 9}, "9 kinks of a piecewise linear score were found"),
        ({"status": Status.NOISE}, "use a model and input in float64 or a tolerance above 5%"),
        ({"status": Status.JUMP}, "pass smooth=, such as 100"),
        ({"status": Status.JUMP, "smooth": 5.0}, "what smooth= does not replace"),
    ],
)
def test_every_status_has_a_remedy(changes, words):
    one = certificate(**changes)
    assert words in one.remedy
    assert bool(one.remedy) is not one.converged
    assert one.remedy in str(one)


def test_a_wrong_second_derivative_shows_as_asymmetry():
    class Lopsided(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x[:, 0] * x[:, 1]

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient[:, None] * torch.stack([x[:, 1], x[:, 0].detach()], 1)

    with pytest.warns(UserWarning, match="not complete"):
        found = integrated_hessians(Lopsided.apply, torch.tensor([[1.0, 2.0]]))
    assert found.certificate[0].asymmetry > 0.1


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    found = integrated_hessians(net, torch.randn(2, 6))
    names = ["age", "height", "weight", "$", "a name that is far too long", "f"]
    figure = found.figure(example=1, names=names, title="A title")
    figure.savefig(tmp_path / "matrix.png")
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "A title"
    assert "converged" in texts[2]
    assert len(figure.axes[0].texts) == 36
    assert figure.axes[0].get_yticklabels()[0].get_text() == "age"
    assert integrated_hessians(lambda x: x.sum(1), torch.ones(1, 30), tol=0.1).figure().axes[0].texts.__len__() == 0
    with pytest.raises(OptionError, match="2 names for 6 rows"):
        found.figure(names=["a", "b"])


def test_without_matplotlib(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith(("matplotlib.", "integrand.analysis.interaction_figure"))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"integrand\[pictures\]"):
        result.figure()


def test_saving(result, tmp_path):
    read = json.loads(result.save(tmp_path / "found.json").read_text(encoding="utf-8"))
    assert read == result.to_dict()
    assert read["values"] == result.values.tolist()
    assert read["attributions"] == result.attributions.tolist()
    assert read["rows"] == [0, 1, 2, 3]
    assert read["certificate"][1]["status"] == "converged"
    assert read["certificate"][0]["error"] == result.certificate[0].error
    named = integrated_hessians(lambda a, b: a.prod(1) * b, {"a": torch.ones(1, 2), "b": torch.ones(1)})
    assert json.loads(named.save(tmp_path / "named.json").read_text(encoding="utf-8"))["rows"] == [["a", 0], ["a", 1], ["b"]]
    both = integrated_hessians(lambda a, b: a.prod(1) * b, (torch.ones(1, 2), torch.ones(1)))
    assert len(both.to_dict()["values"]) == 2
    groups = integrated_hessians(product, torch.ones(1, 4), groups=torch.tensor([1, 0, 1, -1]))
    assert groups.to_dict()["outside"] == groups.outside.tolist()
    with pytest.raises(OptionError, match=r"got the ending '.html'; expected .png, .svg, .pdf or .json"):
        result.save(tmp_path / "found.html")
    with pytest.raises(OptionError, match="they are for pictures"):
        result.save(tmp_path / "found.json", title="no")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_saving_a_picture(result, tmp_path, ending):
    pytest.importorskip("matplotlib")
    path = result.save(tmp_path / f"found.{ending}", example=1, title="A title")
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    x = torch.ones(1, 4)
    words = f"in {str(dtype)[6:]}; expected float32 or float64: .* noise. Use model.float"
    with pytest.raises(InputError, match=words):
        integrated_hessians(copy.deepcopy(net).to(dtype), x.to(dtype))
    with pytest.raises(InputError, match=words):
        integrated_hessians(product, x.to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="bfloat16"):
        integrated_hessians(net, x)
    inside = copy.deepcopy(net).to(dtype)
    with pytest.raises(InputError, match=words):
        integrated_hessians(lambda x: inside(x.to(dtype)), x)
    assert integrated_hessians(net, x).converged
