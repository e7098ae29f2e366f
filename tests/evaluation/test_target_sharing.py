"""Targets of one input share forward passes: fewer rows through the model, and nothing else is different."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.backends.torch_function import build
from integrand.errors import MemoryBackoffWarning, NonFiniteError, RowsError
from integrand.evaluation.target_sharing import _gathered, _same_rows
from integrand.functions.target import ReadOut
from integrand.paths import Average, Blur, Curve, Guided, Polyline, Straight

K = 5
TARGETS = [3, 0, 1, 2, 4]
WAYS: dict[str, dict[str, Any]] = {"to a tolerance": {"tol": 1e-3}, "fixed": {"steps": 12, "tol": 1e9}}

way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


class Attentive(nn.Module):
    """One transformer layer over tokens of 4 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(4, K)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 12) to (N, K)."""
        return self.head(self.layer(x.unflatten(1, (3, 4))).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, K)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 12) to (N, K)."""
        return self.head(self.lstm(x.unflatten(1, (3, 4)))[0][:, -1])


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, K))


def kinked() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, K))


def convolutional() -> nn.Module:
    shape = nn.Unflatten(1, (1, 3, 4))
    return nn.Sequential(shape, nn.Conv2d(1, 4, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(48, K))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dense": dense,
    "kinked": kinked,
    "convolutional": convolutional,
    "transformer": Attentive,
    "lstm": Recurrent,
}


class Counted:
    """A model that counts the rows that it is run on; the first run, of the user's own batch, is left out."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.calls: list[int] = []
        self.scored = 0

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(len(x))
        self.scored += 0 if torch.is_grad_enabled() else len(x)
        return self.model(x, *args, **kwargs)

    @property
    def rows(self) -> int:
        return sum(self.calls[1:])

    @property
    def differentiated(self) -> int:
        """Without those where only scores are looked at, each on its own."""
        return sum(self.calls) - self.scored


def network(name: str = "dense", dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return MODELS[name]().to(dtype).eval()


def point(dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return 2 * torch.randn(1, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def alone(model: Any, x: Tensor, baseline: Any = None, **options: Any) -> Iterator[ig.Attribution]:
    """Each target in a run of its own, where nothing can be shared."""
    for row, target in enumerate(TARGETS[: len(x)]):
        start = baseline[row : row + 1] if isinstance(baseline, Tensor) and baseline.ndim == 2 else baseline
        yield ig.integrated_gradients(model, x[row : row + 1], start, target=target, **options)


def same(shared: ig.Attribution, ones: list[ig.Attribution], *, slack: float = 1e-10) -> None:
    """The values of runs on their own, at the same cost and with the same estimates."""
    expected = torch.cat([one.values for one in ones])
    size = expected.abs().sum(1, keepdim=True)
    assert float(((shared.values - expected).abs() / size).max()) <= slack
    for one, other in zip(shared.certificate, ones, strict=True):
        assert one.gradients == other.certificate[0].gradients
        assert one.status == other.certificate[0].status
        assert one.score == pytest.approx(other.certificate[0].score, rel=1e-6)
        assert one.error == pytest.approx(other.certificate[0].error, rel=1e-4, abs=1e-10)


# ---- what is shared ----------------------------------------------------------------------------------------------------------


@way
@pytest.mark.parametrize("name", MODELS)
def test_targets_share_forward_passes(name: str, options: dict[str, Any]) -> None:
    model, x = Counted(network(name)), point()
    shared = ig.integrated_gradients(model, x.expand(K, -1), target=TARGETS, **options)
    ones = list(alone(network(name), x.expand(K, -1), **options))
    same(shared, ones)
    most = max(one.certificate[0].gradients for one in ones)
    every = sum(one.certificate[0].gradients for one in ones)
    if "steps" in options:
        assert model.rows == 12 + 2, "and the two ends"
    elif name == "kinked":
        assert 9 <= model.rows < 0.75 * every, "panels are halved where each has its kinks: only the first waves are common"
    else:
        assert most <= model.differentiated + 8 <= 1.5 * most + 16


def test_rows_need_not_be_one_in_memory() -> None:
    """Equal rows are found whether they were expanded, repeated or put together by chance."""
    x = point()
    for rows in (x.expand(K, -1), x.repeat(K, 1), torch.stack([x[0].clone() for _ in range(K)])):
        model = Counted(network())
        ig.integrated_gradients(model, rows, torch.zeros(K, 12, dtype=torch.float64), target=TARGETS, steps=10, tol=1e9)
        assert model.rows == 10 + 2


@way
@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize("score", ["probability", "log-probability"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_and_precisions(score: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    model, x = network("transformer", dtype), point(dtype, seed=3).repeat(K, 1)
    shared = ig.integrated_gradients(model, x, target=TARGETS, score=score, **options)  # type: ignore[arg-type]
    ones = list(alone(model, x, score=score, **options))
    assert shared.values.dtype == dtype
    expected = torch.cat([one.values for one in ones])
    size = expected.abs().sum(1, keepdim=True)
    assert float(((shared.values - expected).abs() / size).max()) <= (1e-4 if dtype == torch.float32 else 1e-10)


@way
def test_batches_of_several_inputs(options: dict[str, Any]) -> None:
    """Inputs A B A C A: three of the five share, and each gets its own target."""
    model = Counted(network())
    x = torch.cat([point(seed=seed) for seed in (0, 1, 0, 2, 0)])
    shared = ig.integrated_gradients(model, x, target=TARGETS, **options)
    same(shared, list(alone(network(), x, **options)))
    counts = [one.gradients for one in shared.certificate]
    if "steps" in options:
        assert model.rows == 3 * 12 + 3 * 2
    else:
        assert model.differentiated <= counts[1] + counts[3] + max(counts[0], counts[2], counts[4]) + 8


@way
def test_the_same_target_twice(options: dict[str, Any]) -> None:
    x = point()
    shared = ig.integrated_gradients(network(), x.expand(3, -1), target=[2, 2, 1], **options)
    torch.testing.assert_close(shared.values[0], shared.values[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(shared.values[2:], ig.integrated_gradients(network(), x, target=1, **options).values)


@way
@pytest.mark.parametrize("chunk", [1, 2, 3, 64])
def test_chunks_count_rows_of_the_model(chunk: int, options: dict[str, Any]) -> None:
    model, x = Counted(network("lstm")), point().expand(K, -1)
    same(ig.integrated_gradients(model, x, target=TARGETS, chunk=chunk, **options), list(alone(network("lstm"), x, **options)))
    assert max(model.calls[1:]) <= chunk


@way
def test_little_memory_for_gradients(options: dict[str, Any]) -> None:
    """Where the gradients of all targets do not fit beside each other, fewer share; the values stay."""
    x = point().expand(K, -1)
    ones = list(alone(network(), x, **options))
    rows = []
    for memory in (1, 12 * 8 * 12 * 3, 10**6):  # room for one gradient, for three, for all
        model = Counted(network())
        found = ig.integrated_gradients(model, x, target=TARGETS, memory=memory, **options)
        torch.testing.assert_close(found.values, torch.cat([one.values for one in ones]), rtol=1e-10, atol=1e-12)
        rows.append(model.rows)
    # To a tolerance, memory for kept gradients lets one example run after the other at first.
    assert rows[0] >= rows[1] > rows[2]
    assert rows[0] > rows[1] or "steps" not in options


@way
def test_groups_and_mask(options: dict[str, Any]) -> None:
    x, groups = point().expand(K, -1), torch.arange(12) // 4 - 1
    for more in ({"groups": groups}, {"mask": groups >= 0}):
        model = Counted(network())
        shared = ig.integrated_gradients(model, x, target=TARGETS, **more, **options)  # type: ignore[arg-type]
        same(shared, list(alone(network(), x, **more, **options)))
        assert model.differentiated < 0.5 * sum(one.gradients for one in shared.certificate)


@way
def test_a_layer(options: dict[str, Any]) -> None:
    """Ids in, embeddings explained; the model is run on the ids of the rows that are left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, K)).double().eval()
    seen: list[int] = []
    model[2].register_forward_pre_hook(lambda _, args: seen.append(len(args[0]) if torch.is_grad_enabled() else 0))
    ids = torch.tensor([[1, 5, 3]])
    shared = ig.integrated_gradients(model, ids.expand(K, -1), target=TARGETS, layer="0", **options)
    assert sum(seen) < 3 * K + 4 * 12
    ones = [ig.integrated_gradients(model, ids, target=target, layer="0", **options) for target in TARGETS]
    torch.testing.assert_close(shared.values, torch.cat([one.values for one in ones]), rtol=1e-10, atol=1e-12)


@way
def test_tuples_and_indices_of_two_dimensions(options: dict[str, Any]) -> None:
    weight = torch.randn(3, 4, 6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).sum(2)
    graded: list[int] = []

    def model(a: Tensor, b: Tensor) -> Tensor:
        graded.append(len(a) if torch.is_grad_enabled() else 0)
        return torch.einsum("pcf,nf->npc", weight, torch.sin(a * b))

    a, b = point().expand(3, -1), point(seed=1).expand(3, -1)
    targets = [(0, 1), (2, 3), (0, 0)]
    found = ig.integrated_gradients(model, (a, b), target=targets, score="probability", **options)  # type: ignore[arg-type]
    assert sum(graded) < 0.7 * sum(one.gradients for one in found.certificate)
    for row, target in enumerate(targets):
        own = ig.integrated_gradients(model, (a[:1], b[:1]), target=target, score="probability", **options)
        for mine, its in zip(found.values, own.values, strict=True):
            torch.testing.assert_close(mine[row : row + 1], its, rtol=1e-9, atol=1e-12)


PATHS: dict[str, Callable[[Tensor], Any]] = {
    "straight": lambda x: Straight(torch.ones_like(x), x),
    "polyline": lambda x: Polyline([torch.zeros_like(x), x.flip(1), x]),
    "average": lambda x: Average([Straight(torch.zeros_like(x), x), Polyline([x * 0, x.abs(), x])]),
    "blur": lambda x: Blur(x, sigma=2.0, dims=(-1,)),
}


@way
@pytest.mark.parametrize("name", PATHS)
def test_paths(name: str, options: dict[str, Any]) -> None:
    model, x = Counted(network()), point()
    shared = ig.path_attribution(model, PATHS[name](x.repeat(K, 1)), target=TARGETS, **options)
    ones = [ig.path_attribution(network(), PATHS[name](x), target=target, **options) for target in TARGETS]
    same(shared, ones)
    assert model.differentiated < 0.6 * sum(one.certificate[0].gradients for one in ones)


@way
def test_several_baselines(options: dict[str, Any]) -> None:
    model, x = Counted(network()), point()
    starts = [0.0, torch.ones(12, dtype=torch.float64)]
    shared = ig.integrated_gradients(model, x.expand(K, -1), starts, target=TARGETS, **options)  # type: ignore[arg-type]
    same(shared, list(alone(network(), x.expand(K, -1), starts, **options)))
    assert model.differentiated < 0.6 * sum(one.gradients for one in shared.certificate)


@way
def test_what_each_example_reads_of_the_output(options: dict[str, Any]) -> None:
    """Positions by example as a target, where an argument of the model would keep them apart."""
    body, head = network("lstm").lstm, network("lstm").head  # type: ignore[attr-defined]
    model = Counted(lambda x: body(x.unflatten(1, (3, 4)))[0])
    x, places = point().expand(3, -1), torch.tensor([2, 0, 1])

    def read(states: Tensor, examples: Tensor) -> Tensor:
        return head(states[torch.arange(len(states)), places[examples]])

    target: Any = ReadOut(read, [1, 4, 0])
    found = ig.integrated_gradients(model, x, target=target, score="probability", **options)
    assert model.differentiated < 0.5 * sum(one.gradients for one in found.certificate)
    for row, (place, index) in enumerate(zip(places.tolist(), [1, 4, 0], strict=True)):
        one = lambda z, place=place: head(body(z.unflatten(1, (3, 4)))[0][:, place])  # noqa: E731
        own = ig.integrated_gradients(one, x[:1], target=index, score="probability", **options)
        torch.testing.assert_close(found.values[row : row + 1], own.values, rtol=1e-9, atol=1e-12)


# ---- what is not -------------------------------------------------------------------------------------------------------------


def unshared(model: Counted, found: ig.Attribution, *, ends: int = 0) -> None:
    assert model.differentiated == sum(one.gradients for one in found.certificate)
    scored = sum(one.forwards - 1 for one in found.certificate)  # the first is left out
    assert model.rows - model.differentiated - scored in (0, 1)  # one row on its own, where arguments are split by example
    assert model.rows >= model.differentiated + ends


def test_arguments_that_differ_keep_examples_apart() -> None:
    x, scale = point().expand(K, -1), torch.linspace(1, 2, K, dtype=torch.float64)
    net = network()
    model = Counted(lambda x, s: net(x * s[:, None]))
    found = ig.integrated_gradients(model, x, target=TARGETS, args=(scale,), tol=1e-3)
    unshared(model, found, ends=1)  # one row to see that the scale is one per example
    same(
        found,
        [
            ig.integrated_gradients(lambda z, s=s: net(z * s), x[:1], target=t, tol=1e-3)
            for s, t in zip(scale, TARGETS, strict=True)
        ],
    )
    for equal in (torch.ones(K, dtype=torch.float64), torch.full((K,), 2.0, dtype=torch.float64)):
        model = Counted(lambda x, s: net(x * s[:, None]))
        found = ig.integrated_gradients(model, x, target=TARGETS, kwargs={"s": equal}, tol=1e-3)
        assert model.differentiated < 0.5 * sum(one.gradients for one in found.certificate)


def test_lists_of_arguments_are_compared_entry_by_entry() -> None:
    x, net = point().expand(4, -1), network()

    def model(x: Tensor, names: list[str]) -> Tensor:
        calls.append(len(x))
        return net(x * torch.tensor([[len(name)] for name in names]))

    rows = {}
    for names in (["a", "b", "c", "d"], ["a", "a", "bb", "bb"], ["b"] * 4):
        calls: list[int] = []
        ig.integrated_gradients(model, x, target=[0, 1, 2, 3], args=(names,), steps=10, tol=1e9)
        ends = 2 * len(set(names))
        rows["".join(names)] = sum(calls[1:]) - ends - 1  # and a row to see that the names are one per example
    assert rows == {"abcd": 40, "aabbbb": 20, "bbbb": 10}


def test_baselines_that_differ_keep_examples_apart() -> None:
    x = point().expand(K, -1)
    baseline = torch.linspace(-1, 1, K, dtype=torch.float64)[:, None].expand(-1, 12).clone()
    model = Counted(network())
    found = ig.integrated_gradients(model, x, baseline, target=TARGETS, tol=1e-3)
    unshared(model, found)
    same(found, list(alone(network(), x, baseline, tol=1e-3)))
    baseline[3] = baseline[1]
    model = Counted(network())
    ig.integrated_gradients(model, x, baseline, target=TARGETS, steps=10, tol=1e9)
    assert model.rows == 4 * 10 + 4 * 2


@pytest.mark.parametrize("target", [2, [2] * K, lambda out: out[:, 1]], ids=["one", "one in a list", "a function"])
def test_one_target_for_all_is_not_looked_at(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to share: not even the rows are compared."""
    monkeypatch.setattr("integrand.evaluation.target_sharing._same_rows", None)
    model = Counted(network())
    unshared(model, ig.integrated_gradients(model, point().expand(K, -1), target=target, tol=1e-3))


def test_paths_that_cannot_say_or_differ_are_not_shared() -> None:
    x = point().repeat(K, 1)
    model = Counted(network())
    unshared(model, ig.path_attribution(model, Curve(lambda t: t * x), target=TARGETS, tol=1e-2))
    guided = Guided(torch.zeros_like(x), x, steps=1, anchors=0)
    found = ig.path_attribution(network(), guided, target=TARGETS, tol=1e-2)
    for row, target in enumerate(TARGETS):
        own = ig.path_attribution(network(), Guided(x[:1] * 0, x[:1], steps=1, anchors=0), target=target, tol=1e-2)
        torch.testing.assert_close(found.values[row : row + 1], own.values)


def test_differentiable_results_stay_so() -> None:
    """Sampling shares, and the pass with the graph does not."""
    net, x = network(), point()

    def loss(rows: Tensor, target: Any) -> Tensor:
        result = ig.integrated_gradients(net, rows, target=target, create_graph=True, tol=1e-3)
        return (result.values**2).sum()

    found = torch.autograd.grad(loss(x.expand(3, -1), TARGETS[:3]), net[0].weight)[0]  # type: ignore[index]
    parts = [torch.autograd.grad(loss(x, target), net[0].weight)[0] for target in TARGETS[:3]]  # type: ignore[index]
    torch.testing.assert_close(found, torch.stack(parts).sum(0))


# ---- models that get in the way ----------------------------------------------------------------------------------------------


class Once(torch.autograd.Function):
    """Gives up what it saved on the way back, as compiled code does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = x.detach().clone()
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        if ctx.kept is None:
            raise RuntimeError("this backward can only be called once")
        kept, ctx.kept = ctx.kept, None
        return gradient * kept.cos()


@way
def test_models_that_go_back_once_only_are_run_row_by_row(options: dict[str, Any]) -> None:
    net, x = network(), point().expand(K, -1)
    found = ig.integrated_gradients(lambda z: net(Once.apply(z)), x, target=TARGETS, **options)
    same(found, list(alone(lambda z: net(z.sin()), x, **options)))


@way
def test_out_of_memory(options: dict[str, Any]) -> None:
    net, x = network(), point().expand(K, -1)

    def model(z: Tensor) -> Tensor:
        if len(z) > 5:
            raise torch.OutOfMemoryError("out of memory")
        return net(z)

    with pytest.warns(MemoryBackoffWarning, match="going on with"):
        found = ig.integrated_gradients(model, x, target=TARGETS, chunk=64, **options)
    same(found, list(alone(net, x, **options)))


@way
def test_a_gradient_that_is_not_finite_is_told_with_its_place(options: dict[str, Any]) -> None:
    """A square root that is not differentiable at 0.5; the score of the second output alone overflows."""
    x: Any = torch.ones(3, 4).double()
    more = {"rule": "midpoint", "steps": 3, "tol": 1e9} if "steps" in options else options

    def steep(x: Tensor) -> Tensor:
        return torch.stack([(x[:, 0] - 0.5).abs().sqrt(), x.sum(1)], 1)

    with pytest.raises(NonFiniteError, match=r"the gradient is nan at feature \(0,\) of x, example \d, t = 0.5 of the path"):
        ig.integrated_gradients(steep, x, target=[0, 0, 1], **more)

    def poles(x: Tensor) -> Tensor:
        return torch.stack([x.sum(1), x.sum(1) + 1 / (x[:, 0] - 0.5).detach()], 1)

    with pytest.raises(NonFiniteError, match=r"the score is inf at example 2, t = 0.5 of the path"):
        ig.integrated_gradients(poles, x, target=[0, 0, 1], **more)


@way
def test_rows_that_influence_each_other(options: dict[str, Any]) -> None:
    net = network()
    with pytest.raises(RowsError, match="rows influence each other"):
        ig.integrated_gradients(lambda z: net(z - z.mean(0) / 2), point().expand(K, -1), target=TARGETS, **options)


def test_tight_tolerances_measure_rounding_as_ever() -> None:
    model, x = network(dtype=torch.float32), point(torch.float32).expand(3, -1)
    found = ig.integrated_gradients(model, x, target=TARGETS[:3], tol=1e-5)
    ones = list(alone(model, x, tol=1e-5))
    assert [c.gradients for c in found.certificate] == [one.certificate[0].gradients for one in ones]


# ---- the parts ---------------------------------------------------------------------------------------------------------------


def test_equal_rows_are_found_in_all_tensors() -> None:
    a = torch.tensor([[1.0, 2], [2, 1], [1, 2], [1, 2], [0, 0]])
    b = torch.tensor([1, 1, 1, 2, 0])
    assert _same_rows([a], 5).tolist() == [0, 1, 0, 0, 4]
    assert _same_rows([a, b], 5).tolist() == [0, 1, 0, 3, 4]
    assert _same_rows([a[:1].expand(5, -1)], 5).tolist() == [0] * 5
    assert _same_rows([a[:1].expand(5, -1), b], 5).tolist() == [0, 0, 0, 3, 4]
    wide = torch.zeros(3, 10_000)
    wide[1, 9_999] = 1  # between the features that are looked at first
    assert _same_rows([wide], 3).tolist() == [0, 1, 0]


def test_nodes_are_gathered_by_point() -> None:
    """Every node with a twin comes once, beside its twins; blocks hold no more than there is room for."""
    from integrand.paths.base import Nodes

    generator = np.random.default_rng(0)
    rows, pieces = generator.integers(0, 12, 300), generator.integers(0, 2, 300)
    nodes = Nodes(generator.integers(0, 4, 300) / 4, rows, pieces)
    lead = np.array([0, 0, 0, 0, 4, 4, 4, 7, 8, 8, 8, 11])
    for room in (1, 2, 5, 1000):
        seen: list[int] = []
        for block in _gathered(nodes, lead, room):
            inside = [row[row >= 0] for row in block]
            assert sum(map(len, inside)) <= room
            assert all(2 * len(row) > block.shape[1] for row in inside)
            for row in inside:
                assert len({(nodes.t[i], lead[rows[i]], pieces[i]) for i in row}) == 1
            seen += [int(i) for row in inside for i in row]
        assert len(seen) == len(set(seen))
        assert bool(seen) == (room > 1)
        if room == 1000:
            assert len(seen) > 250


def test_several_ways_back_from_one_forward_pass() -> None:
    net, x = Counted(network()), point().repeat(3, 1)
    function = build(net, x, target=[0, 1, 2])
    net.calls.clear()
    points, rows = torch.cat([point(seed=7), point(seed=8)]), torch.tensor([0, 0])
    found = function.value_and_grads((points,), rows, torch.tensor([[0, 2], [1, -1]]))
    assert net.calls == [2]
    for number, row, target in ((0, 0, 0), (0, 1, 2), (1, 0, 1)):
        scores, (gradient,) = found[number]
        z = points[row : row + 1].detach().clone().requires_grad_(True)
        score = network()(z)[0, target]
        torch.testing.assert_close(scores[row], score.detach())
        torch.testing.assert_close(gradient[row], torch.autograd.grad(score, z)[0][0])
    assert not found[1][1][0][1].any()
