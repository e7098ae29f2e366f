"""Explaining what a submodule gives or gets, against loops by hand that rebuild the rest of the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from integrand import integrated_gradients
from integrand.errors import ModelError, ZeroAttributionWarning
from tests.by_hand import X, line_integral, net

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 1]])
PAD = torch.tensor([0, 0, 0, 0])
TOL = {"tol": 1e-7}


def same(values: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(values, expected.to(values.dtype), rtol=1e-6, atol=1e-8)


class Text(nn.Module):
    """Token ids to classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5)
        self.classes = nn.Linear(5, 3)
        self.double().eval()

    def rest(self, words: Tensor) -> Tensor:
        return self.classes(self.mix(words).tanh().mean(-2) * words.mean(-2))

    def forward(self, ids: Tensor) -> Tensor:
        return self.rest(self.words(ids))


BASELINES = {
    "zero": (None, lambda model: torch.zeros(4, 5)),
    "number": (0.25, lambda model: torch.full((4, 5), 0.25)),
    "shared ids": (PAD, lambda model: model.words(PAD)),
    "own ids": (PAD.expand(2, 4), lambda model: model.words(PAD)),
    "shared value": (torch.ones(4, 5).double(), lambda model: torch.ones(4, 5)),
    "own value": (torch.ones(2, 4, 5).double(), lambda model: torch.ones(4, 5)),
}


@pytest.mark.parametrize(("given", "meant"), BASELINES.values(), ids=BASELINES.keys())
@pytest.mark.parametrize("name", ["words", "module"])
def test_embedding(given, meant, name):
    model = Text()
    layer = model.words if name == "module" else name
    result = integrated_gradients(model, IDS, given, target=1, layer=layer, **TOL)
    assert result.values.shape == (2, 4, 5)
    with torch.no_grad():
        start, ends = meant(model).double(), model.words(IDS)
    for values, end, example in zip(result.values, ends, result.certificate, strict=True):
        same(values, line_integral(lambda w: model.rest(w)[1], [end], [start])[0])
        assert example.baseline_score == pytest.approx(float(model.rest(start)[1].detach()), rel=1e-9)


def test_several_baselines_of_ids():
    model = Text()
    starts = [PAD, torch.tensor([3, 3, 3, 3])]
    apart = [integrated_gradients(model, IDS, start, target=1, layer="words", **TOL).values for start in starts]
    together = integrated_gradients(model, IDS, starts, target=1, layer="words", **TOL)
    same(together.values, (apart[0] + apart[1]) / 2)
    stack = integrated_gradients(model, IDS, torch.stack(starts)[:, None], target=1, layer="words", **TOL)
    same(stack.values, together.values)


def test_embedding_without_batch():
    model = Text()
    result = integrated_gradients(model, IDS[0], PAD, target=1, layer="words", **TOL)
    assert result.values.shape == (4, 5)
    same(result.values, integrated_gradients(model, IDS, PAD, target=1, layer="words", **TOL).values[0])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_output_and_input_of_a_layer_in_the_middle(index):
    model, x = net().double(), X.double()
    before, after = model[: index + 1], model[index + 1 :]
    with torch.no_grad():
        ends, start = before(x), before(torch.zeros(3).double())
    given = integrated_gradients(model, x, torch.zeros(3).double(), target=1, layer=str(index), **TOL)
    for values, end in zip(given.values, ends, strict=True):
        same(values, line_integral(lambda h: after(h)[1], [end], [start])[0])
    if index < 2:  # what a layer gives is what the next one gets
        got = {"layer": str(index + 1), "layer_side": "input"}
        same(integrated_gradients(model, x, torch.zeros(3).double(), target=1, **got, **TOL).values, given.values)


def test_input_of_the_first_layer_is_x():
    model, x = net().double(), X.double()
    same(
        integrated_gradients(model, x, target=1, layer="0", layer_side="input", **TOL).values,
        integrated_gradients(model, x, target=1, **TOL).values,
    )


def test_baseline_that_fits_both_is_a_model_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    x = X.double()
    with torch.no_grad():
        start, ends = model[0](torch.zeros(3).double()), model[0](x)
    result = integrated_gradients(model, x, torch.zeros_like(x), layer="0", **TOL)
    for values, end in zip(result.values, ends, strict=True):
        same(values, line_integral(lambda h: model[1:](h).sum(), [end], [start])[0])


def test_in_place_after_the_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1)).double()
    x = X.double()
    result = integrated_gradients(model, x, layer="0", tol=1e-4)
    exact = model[0](x).detach().relu() * model[2].weight.detach()[0]  # from zero, each unit is on or off all the way
    torch.testing.assert_close(result.values, exact, rtol=1e-4, atol=1e-6)


# Modules that run more than once


class Siamese(nn.Module):
    """One embedding for question and text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.words = nn.Embedding(7, 5)
        self.double()

    def rest(self, question: Tensor, text: Tensor) -> Tensor:
        return (question.mean(-2).tanh() * text.mean(-2)).sum(-1) + text.mean((-1, -2)) ** 2

    def forward(self, question: Tensor, text: Tensor) -> Tensor:
        return self.rest(self.words(question), self.words(text))


def test_module_that_runs_on_two_inputs():
    model = Siamese()
    text = torch.tensor([[1, 1, 2], [3, 4, 6]])
    result = integrated_gradients(model, (IDS, text), (PAD, PAD[:3]), layer="words", **TOL)
    with torch.no_grad():
        ends, start = (model.words(IDS), model.words(text)), (model.words(PAD), model.words(PAD[:3]))
    for i in range(2):
        expected = line_integral(model.rest, [end[i] for end in ends], start)
        for values, exact in zip(result.values, expected, strict=True):
            same(values[i], exact)
        total = sum(float(values[i].sum()) for values in result.values)
        assert total == pytest.approx(result.certificate[i].score - result.certificate[i].baseline_score, rel=1e-6)


class Steps(nn.Module):
    """A shared cell on each position; all its outputs are used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.Linear(2, 3)
        self.double()

    def rest(self, *hidden: Tensor) -> Tensor:
        return torch.stack([h.tanh() * (i + 1) for i, h in enumerate(hidden)]).prod(0).sum(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(*(self.cell(x[:, i]) for i in range(x.shape[1])))


def test_module_that_runs_on_every_position():
    model = Steps()
    torch.manual_seed(0)
    x = torch.randn(2, 3, 2).double()
    result = integrated_gradients(model, x, layer="cell", **TOL)
    assert len(result.values) == 3
    for i in range(2):
        ends = [model.cell(x[i, k]).detach() for k in range(3)]
        for values, exact in zip(result.values, line_integral(model.rest, ends, [0 * end for end in ends]), strict=True):
            same(values[i], exact)


def test_module_that_runs_on_its_own_output():
    """The last value alone decides; the first one is overwritten by what follows from it, and the warning says so."""
    torch.manual_seed(0)
    cell = nn.Linear(3, 3).double()
    x = X.double()
    with pytest.warns(ZeroAttributionWarning, match=r"the layer's value\[0\] is exactly zero.*only the last counts"):
        first, last = integrated_gradients(lambda x: cell(cell(x).tanh()).tanh().sum(1), x, layer=cell, **TOL).values
    assert not first.any()
    for values, end in zip(last, cell(cell(x).tanh()).detach(), strict=True):
        same(values, line_integral(lambda h: h.tanh().sum(), [end], [0 * end])[0])


def test_skip_connection_around_a_module_that_runs_twice():
    torch.manual_seed(0)
    cell = nn.Linear(3, 3).double()
    x = X.double()

    def rest(first: Tensor, last: Tensor) -> Tensor:
        return (first * last.tanh()).sum(-1)

    def model(x: Tensor) -> Tensor:
        first = cell(x)
        return rest(first, cell(first.tanh()))

    result = integrated_gradients(model, x, layer=cell, **TOL)
    with torch.no_grad():
        firsts = cell(x)
        lasts = cell(firsts.tanh())
    for i in range(2):
        expected = line_integral(rest, [firsts[i], lasts[i]], [0 * firsts[i], 0 * lasts[i]])
        for values, exact in zip(result.values, expected, strict=True):
            same(values[i], exact)


def test_several_layers_in_the_order_of_their_calls():
    torch.manual_seed(0)
    a, b = nn.Linear(3, 2).double(), nn.Linear(3, 4).double()
    x = X.double()

    def rest(left: Tensor, right: Tensor) -> Tensor:
        return left.tanh().sum(-1) * right.sum(-1)

    result = integrated_gradients(lambda x: rest(a(x), b(x)), x, layer=[b, a, b], **TOL)
    for i in range(2):
        ends = [a(x[i]).detach(), b(x[i]).detach()]
        for values, exact in zip(result.values, line_integral(rest, ends, [0 * end for end in ends]), strict=True):
            same(values[i], exact)


def test_different_numbers_of_calls():
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.cell = nn.Linear(3, 3), nn.Linear(3, 3)
            nn.init.ones_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

        def forward(self, x: Tensor) -> Tensor:
            x = self.gate(x)
            for _ in range(1 + int(x.abs().max() > 0.5)):
                x = self.cell(x)
            return x.sum(1)

    for layer in ("cell", ["gate", "cell"]):
        with pytest.raises(ModelError, match=r"the layer \(Linear\) is called a different number of times"):
            integrated_gradients(Loop(), torch.ones(1, 3), torch.zeros(1, 3), layer=layer)


# Structures and batch dimensions inside the model


class Recurrent(nn.Module):
    """Uses the outputs and the last state, which have the batch in different dimensions."""

    def __init__(self, batch_first: bool, layers: int) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.batch_first = batch_first
        self.lstm = nn.LSTM(2, 3, layers, batch_first=batch_first)
        self.double().eval()

    def rest(self, out: Tensor, state: Tensor, cell: Tensor) -> Tensor:
        """On tensors with the batch in front."""
        return out.tanh().sum((1, 2)) * state[:, -1].sum(1) + cell.sum((1, 2)) ** 2

    def forward(self, x: Tensor) -> Tensor:
        out, (state, cell) = self.lstm(x if self.batch_first else x.transpose(0, 1))
        return self.rest(out if self.batch_first else out.transpose(0, 1), state.transpose(0, 1), cell.transpose(0, 1))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("examples", [1, 2, 3])
def test_recurrent_layer(batch_first, layers, examples):
    model = Recurrent(batch_first, layers)
    x = torch.randn(examples, 2, 2).double()
    values = integrated_gradients(model, x, layer="lstm", **TOL).values
    assert [tuple(v.shape) for v in values] == [(examples, 2, 3), (examples, layers, 3), (examples, layers, 3)]
    with torch.no_grad():
        out, (state, cell) = model.lstm(x if batch_first else x.transpose(0, 1))
    ends = out if batch_first else out.transpose(0, 1), state.transpose(0, 1), cell.transpose(0, 1)
    for i in range(examples):
        mine = [end[i : i + 1] for end in ends]
        expected = line_integral(lambda *v: model.rest(*v).sum(), mine, [0 * end for end in mine])
        for value, exact in zip(values, expected, strict=True):
            same(value[i : i + 1], exact)


def test_layer_with_keywords_and_a_dict():
    class Inner(nn.Module):
        def forward(self, a: Tensor, *, b: Tensor, flag: bool) -> dict[str, object]:
            return {"sum": a + b, "product": a * b, "count": 3, "ids": torch.arange(3)}

    inner = Inner()

    def model(x: Tensor) -> Tensor:
        out = inner(x, b=x**2, flag=True)
        return (out["sum"] * out["product"]).sum(1)

    x = X.double()
    given = integrated_gradients(model, x, layer=inner, **TOL).values
    got = integrated_gradients(model, x, layer=inner, layer_side="input", **TOL).values
    for i in range(2):
        a, b = x[i], x[i] ** 2
        out = line_integral(lambda s, p: (s * p).sum(), [a + b, a * b], [0 * a, 0 * a])
        into = line_integral(lambda a, b: ((a + b) * (a * b)).sum(), [a, b], [0 * a, 0 * b])
        for values, exact in zip((*given, *got), (*out, *into), strict=True):
            same(values[i], exact)


def test_layer_that_mixes_the_examples():
    pool = nn.Flatten(0)
    with pytest.raises(ModelError, match=r"the layer's output has shape \(6,\); expected 2 rows, one per example"):
        integrated_gradients(lambda x: pool(x).reshape(x.shape).sum(1), X, layer=pool)


def test_further_arguments_with_a_layer():
    model = Text()
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]).double()[..., None]

    def masked(ids: Tensor, mask: Tensor) -> Tensor:
        return model.rest(model.words(ids) * mask)

    result = integrated_gradients(masked, IDS, target=0, layer="words", kwargs={"mask": mask}, **TOL)
    for i, end in enumerate(model.words(IDS).detach()):
        same(result.values[i], line_integral(lambda w, i=i: model.rest(w * mask[i])[0], [end], [0 * end])[0])
