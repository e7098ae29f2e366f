"""Lower precision, with proof: what it moves is measured, counted into the error, and never taken on trust."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.backends.precision import PrecisionMode
from integrand.backends.torch_function import TorchFunction, build
from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, OptionError
from integrand.evaluation import precision_choice
from integrand.evaluation.chunks import Chunks
from integrand.evaluation.evaluator import Evaluator, PendingTransfer
from integrand.evaluation.runner import Runner
from integrand.integration.adaptive import GradientIntegral
from integrand.integration.error import ClaimTest
from integrand.paths.base import Nodes

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds


def network(seed: int = 0, width: int = 96, act: type[nn.Module] = nn.GELU) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(48, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 3)]
    return nn.Sequential(*layers).eval()


def inputs(count: int = 5) -> Tensor:
    return 2 * torch.randn(count, 48, generator=torch.Generator().manual_seed(1))


def errors(result: ig.Attribution, model: nn.Module, x: Tensor) -> Tensor:
    """Relative L1 errors against float64 to 1e-6."""
    model.double()
    try:
        exact = ig.integrated_gradients(model, x.double(), target=1, tol=1e-6, precision="float32").values
    finally:
        model.float()
    assert isinstance(exact, Tensor)
    assert isinstance(result.values, Tensor)
    return (result.values.double() - exact).abs().sum(1) / exact.abs().sum(1)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("act", [nn.GELU, nn.ReLU])
@pytest.mark.parametrize("tol", [0.1, 0.02, 0.002])
def test_the_claim_holds_whatever_the_precision(precision: str, act: type[nn.Module], tol: float) -> None:
    model, x = network(act=act), inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = ig.integrated_gradients(model, x, target=1, tol=tol, precision=precision)  # type: ignore[arg-type]
    for one, error in zip(result.certificate, errors(result, model, x).tolist(), strict=True):
        assert error <= one.error
        assert one.precision == precision
        assert 0 < one.moved < one.error
        assert one.converged == (one.error <= tol)


def test_what_a_precision_moves_is_measured() -> None:
    """Bfloat16 has 8 bits, float16 has 11: eight times as coarse."""
    moved = {}
    for precision in ("bfloat16", "float16"):
        result = ig.integrated_gradients(network(), inputs(), target=1, tol=0.2, precision=precision)  # type: ignore[arg-type]
        moved[precision] = np.mean([one.moved for one in result.certificate])
    assert 3 < moved["bfloat16"] / moved["float16"] < 24


def test_a_precision_that_is_too_coarse_is_named_with_its_remedy() -> None:
    with pytest.warns(ConvergenceWarning, match="noise floor"):
        result = ig.integrated_gradients(network(), inputs(1), target=1, tol=1e-4, precision="bfloat16")
    one = result.certificate.only
    assert one.status is Status.NOISE
    assert "precision='float32'" in one.remedy
    assert "in bfloat16, within" in str(one)


def test_fixed_rules_count_it_too() -> None:
    model, x = network(), inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = ig.integrated_gradients(model, x, target=1, steps=30, precision="bfloat16")
    for one, error in zip(result.certificate, errors(result, model, x).tolist(), strict=True):
        assert error <= one.error
        assert one.moved > 1e-3


def test_a_cpu_stays_in_float32_unless_asked() -> None:
    plain, asked = (ig.integrated_gradients(network(), inputs(), target=1, **o) for o in ({}, {"precision": "float32"}))  # type: ignore[arg-type]
    assert torch.equal(plain.values, asked.values)  # type: ignore[arg-type]
    assert plain.certificate[0].precision == "float32"
    assert plain.certificate[0].moved == 0.0


class Tempting:
    """As if on a GPU: lower precisions are tried without being asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] = ("bfloat16",)) -> None:
        monkeypatch.setattr(precision_choice, "_worth_trying", lambda *_: names)
        create = GradientIntegral.__init__

        def tempted(self: GradientIntegral, evaluator: Evaluator, tol: float, *args: Any, asked: bool, **options: Any) -> None:
            if not asked:
                precision_choice.choose_precision(evaluator, "auto", tol)
            create(self, evaluator, tol, *args, asked=asked, **options)

        monkeypatch.setattr(GradientIntegral, "__init__", tempted)


def test_what_keeps_the_tolerance_is_taken_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    Tempting(monkeypatch, ("float16", "bfloat16"))
    model, x = network(), inputs()
    loose = ig.integrated_gradients(model, x, target=1, tol=0.05)
    assert {one.precision for one in loose.certificate} == {"float16"}
    assert loose.certificate.converged
    assert (errors(loose, model, x) <= 0.05).all()
    tight = ig.integrated_gradients(model, x, target=1, tol=1e-3)
    assert {one.precision for one in tight.certificate} == {"float32"}
    assert tight.certificate.converged
    assert all(one.moved == 0 for one in tight.certificate)


@pytest.mark.parametrize(("tol", "precision"), [(0.05, "float16"), (1e-3, "float32")])
def test_the_choice_is_the_same_each_time(tol: float, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered of a call, nor of others between: it takes the same mode and gives the same bits."""
    Tempting(monkeypatch, ("float16",))
    model, x = network(), inputs()
    first = ig.integrated_gradients(model, x, target=1, tol=tol)
    assert {one.precision for one in first.certificate} == {precision}
    for other in (0.2, 2e-3, 0.02):
        ig.integrated_gradients(model, inputs(2), target=2, tol=other)
        again = ig.integrated_gradients(model, x, target=1, tol=tol)
        assert torch.equal(again.values, first.values)  # type: ignore[arg-type]
        assert again.certificate == first.certificate


@pytest.mark.parametrize(("count", "checked", "forwards"), [(2, 2 * 2 + 1, 0), (5, 2, 1)])
def test_what_the_check_takes(count: int, checked: int, forwards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node of each path in both precisions; of few paths two, and the start in full, which saves a forward pass there."""
    Tempting(monkeypatch, ("float16",))
    monkeypatch.setattr(ClaimTest, "cancelling", lambda *_: False)  # one of the two may be looked at more closely
    model, x = network(), inputs(count)
    result = ig.integrated_gradients(model, x, target=1, tol=0.05)
    plain = ig.integrated_gradients(model, x, target=1, tol=0.05, precision="float32")
    assert isinstance(result.values, Tensor)
    for low, full, values in zip(result.certificate, plain.certificate, result.values, strict=True):
        assert (low.precision, full.precision) == ("float16", "float32")
        assert low.gradients == full.gradients + checked
        assert low.forwards == full.forwards + forwards
        assert low.baseline_score == pytest.approx(full.baseline_score, rel=1e-5)
        assert low.score == pytest.approx(full.score, rel=1e-5)
        assert low.residual == pytest.approx(float(values.double().sum()) - (low.score - low.baseline_score), abs=1e-6)
        assert 0 < low.moved < 0.01


def test_rows_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk may hold the start of the path alone, which is evaluated in full only."""
    Tempting(monkeypatch, ("float16",))
    model, x = network(), inputs(2)
    single = ig.integrated_gradients(model, x, target=1, tol=0.05, chunk=1)
    assert {one.precision for one in single.certificate} == {"float16"}
    assert (errors(single, model, x) <= 0.05).all()


def test_where_one_node_does_not_do_two_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tolerance between what they differ by and what they vary by."""
    Tempting(monkeypatch, ("float16",))
    model, x = network(), inputs()
    result = ig.integrated_gradients(model, x, target=1, tol=0.05)
    closer = float(np.mean([one.moved for one in result.certificate])) / precision_choice.SHARE
    corrected = ig.integrated_gradients(model, x, target=1, tol=closer)
    assert {one.precision for one in corrected.certificate} == {"float16"}
    assert (errors(corrected, model, x) <= closer).all()
    assert max(one.moved for one in corrected.certificate) < min(one.moved for one in result.certificate)


class Chain(nn.Module):
    """Flat, or nearly so, until past the middle of the path, then steep; what float16 rounds are large numbers that cancel."""

    def __init__(self, seed: int, beside: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        along, self.large = torch.randn(64, generator=generator), torch.randn(32, generator=generator)
        along = along / along.norm()
        first = torch.randn(64, 32, generator=generator) / 32**0.5 + 100 * along[:, None] * self.large
        second = torch.randn(16, 64, generator=generator) / 8
        self.first, self.second = nn.Parameter(first), nn.Parameter(second - (second @ along)[:, None] * along)
        self.beside = beside

    def inner(self, x: Tensor) -> Tensor:
        return nn.functional.linear(nn.functional.linear(x, self.first), self.second)

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) - 1).relu().square().sum(1) + self.beside * x.sum(1)

    def rounding(self, x: Tensor) -> Tensor:
        """What float32 moves gradients by, times x and in L1, on average along each path: (N,)."""
        double, off = copy.deepcopy(self).double(), []
        for t in torch.linspace(0, 1, 65)[1:]:
            points = [(t * x).requires_grad_(), (t * x).double().requires_grad_()]
            both = [torch.autograd.grad(one(at).sum(), at)[0].double() for one, at in zip((self, double), points, strict=True)]
            off.append(((both[0] - both[1]) * x).abs().sum(1))
        return torch.stack(off).mean(0)

    def inputs(self, count: int) -> Tensor:
        x = torch.randn(count, 32, generator=torch.Generator().manual_seed(1))
        x = x - (x @ self.large)[:, None] * self.large / self.large.square().sum()
        return (x * (1.6 / self.inner(x).amax(1, keepdim=True))).detach()


@pytest.mark.parametrize("beside", [0.0, 0.01])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_check_where_the_gradient_is_small_proves_nothing(
    seed: int, count: int, beside: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tempting(monkeypatch, ("float16",))
    model = Chain(seed, beside).eval()
    x = model.inputs(count)
    result = ig.integrated_gradients(model, x, tol=0.01)
    rounding = model.rounding(x)  # is not looked for at this tolerance, and is not on the certificate
    assert (rounding <= 1e-3 * result.values.double().abs().sum(1)).all()  # type: ignore[union-attr]
    exact = ig.integrated_gradients(model.double(), x.double(), tol=1e-6, precision="float32")
    assert isinstance(result.values, Tensor)
    assert isinstance(exact.values, Tensor)
    for values, true, one, rounds in zip(result.values.double(), exact.values, result.certificate, rounding, strict=True):
        assert (values - true).abs().sum() <= one.error * true.abs().sum() + rounds
        assert one.status in (Status.CONVERGED, Status.EXACT)


def test_a_precision_that_does_not_converge_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float16 rounds F to steps that look like jumps; float32 does without."""
    Tempting(monkeypatch, ("float16",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    monkeypatch.setattr(precision_choice, "SHARE", 1e9)
    result = ig.integrated_gradients(model, inputs(1), tol=1e-3, max_evaluations=400)
    plain = ig.integrated_gradients(model, inputs(1), tol=1e-3, max_evaluations=400, precision="float32")
    assert result.certificate.converged
    assert result.certificate[0].precision == "float32"
    torch.testing.assert_close(result.values, plain.values)


def test_one_that_turns_out_too_coarse_is_dropped_and_all_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check nodes say that bfloat16 moves next to nothing; what cancels along the path says otherwise."""
    Tempting(monkeypatch)
    model, x = network(), inputs()
    monkeypatch.setattr(precision_choice, "SHARE", 1e9)
    result = ig.integrated_gradients(model, x, target=1, tol=2e-3)
    assert result.certificate.converged
    assert {one.precision for one in result.certificate} == {"float32"}
    assert (errors(result, model, x) <= 2e-3).all()
    profile = result.profile
    assert profile is not None
    plain = ig.integrated_gradients(model, x, target=1, tol=2e-3, precision="float32")
    assert plain.profile is not None
    assert len(profile) == len(plain.profile)  # nothing of the first attempt is left in it
    assert torch.equal(result.values, plain.values)  # type: ignore[arg-type]
    assert result.certificate.gradients > plain.certificate.gradients


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("options", [{"tol": 0.05}, {"steps": 64, "rule": "trapezoid"}])
def test_numbers_that_overflow_are_evaluated_in_full(
    asynchronous: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float16 ends at 65504: the far end of the path is beyond it, where no node was checked; on a GPU a chunk later."""
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: asynchronous))

    def score(x: Tensor) -> Tensor:
        wide = torch.nn.functional.linear(x, torch.full((1, 48), 1.0))
        return (wide * wide).squeeze(1)

    x = torch.full((1, 48), 1400.0)
    result = ig.integrated_gradients(score, x, precision="float16", chunk=5, **options)
    assert result.certificate.converged or "steps" in options
    assert isinstance(result.values, Tensor)
    torch.testing.assert_close(result.values.sum(), torch.tensor(48.0 * 48 * 1400**2), rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "tf32"}, "CUDA"),
        ({"precision": "float8"}, "expected one of"),
        ({"precision": "bfloat16", "create_graph": True}, "create_graph"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ig.integrated_gradients(network(), inputs(), target=1, **options)  # type: ignore[arg-type]


def test_lower_than_float32_starts_from_float32() -> None:
    with pytest.raises(OptionError, match="float64"):
        ig.integrated_gradients(network().double(), inputs().double(), target=1, precision="bfloat16")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(OptionError, match="bfloat16"):
        ig.integrated_gradients(network(), inputs(), target=1, precision="float16")


def test_a_scale_changes_nothing_in_float32() -> None:
    seen: list[tuple[Tensor, ...]] = []
    real: Callable[..., tuple[Tensor, tuple[Tensor, ...]]] = TorchFunction.value_and_grad

    def both(self: TorchFunction, leaves: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        points = tuple(leaf.detach().clone() for leaf in leaves)
        seen.append((real(self, leaves, rows)[1][0], real(self, points, rows, scale=2.0**20)[1][0]))
        return real(self, leaves, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchFunction, "value_and_grad", both)
        ig.integrated_gradients(network(), inputs(), target=1)
    assert seen
    for plain, scaled in seen:
        assert torch.equal(plain, scaled)  # a power of two


def test_modes_put_switches_back() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with PrecisionMode("tf32").switched():
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_what_is_the_same_all_along_the_path_is_made_up_for() -> None:
    """A linear model: rounded weights are off by the same everywhere, nothing varies, and the correction is all there is."""
    torch.manual_seed(0)
    model = nn.Linear(50, 1).eval()
    x = torch.randn(2, 50)
    exact = (model.weight * x).detach()
    result = ig.integrated_gradients(model, x, tol=1e-3, precision="bfloat16")
    assert isinstance(result.values, Tensor)
    for one, error in zip(
        result.certificate, ((result.values - exact).abs().sum(1) / exact.abs().sum(1)).tolist(), strict=True
    ):
        assert one.precision == "bfloat16"
        assert error <= max(one.error, 1e-6)


def test_an_overflow_at_a_checked_node_leaves_numbers() -> None:
    def score(x: Tensor) -> Tensor:
        wide = torch.nn.functional.linear(x, torch.full((1, 48), 1.0))
        return (wide * wide).squeeze(1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = ig.integrated_gradients(score, torch.full((1, 48), 5000.0), tol=0.05, precision="float16")
    assert isinstance(result.values, Tensor)
    assert result.values.isfinite().all()
    torch.testing.assert_close(result.values.sum(), torch.tensor(48.0 * 48 * 5000**2), rtol=0.05, atol=0)


# ---- float32 forward, TF32 backward -----------------------------------------------------------------------------------------


def coarse_backward(monkeypatch: pytest.MonkeyPatch, share: float, own: float) -> None:
    """As if on a GPU: backward passes are off by a share that all nodes have in common, and by one of each node's own."""
    applied = PrecisionMode.applied

    def rounded(self: PrecisionMode, function: TorchFunction) -> TorchFunction:
        found = applied(self, function)
        if self.name != "tf32-backward":
            return found
        value_and_grad = TorchFunction.value_and_grad

        class Coarse(TorchFunction):
            def value_and_grad(self, leaves: Any, rows: Tensor, **options: Any) -> Any:
                scores, (gradient,) = value_and_grad(self, leaves, rows, **options)
                shared = torch.randn(gradient.shape[1], generator=torch.Generator().manual_seed(7))
                seeds = [int(1e6 * float(point.double().abs().sum())) for point in leaves[0].detach()]
                each = torch.stack([torch.randn(gradient.shape[1], generator=torch.Generator().manual_seed(s)) for s in seeds])
                return scores, (gradient * (1 + share * shared + own * each),)

        return Coarse(**{name: getattr(found, name) for name in found.__dataclass_fields__})

    monkeypatch.setattr(PrecisionMode, "applied", rounded)


def broad_network() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layers = [nn.Linear(600, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 3)]
    return nn.Sequential(*layers).eval(), torch.randn(3, 600, generator=torch.Generator().manual_seed(1))


def test_scores_of_tf32_backward_passes_are_those_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU there is no TF32: nothing moves, and two nodes of each path are evaluated once more to find that out."""
    Tempting(monkeypatch, ("tf32-backward",))
    model, x = broad_network()
    plain = ig.integrated_gradients(model, x, target=1, tol=0.02, precision="float32")
    result = ig.integrated_gradients(model, x, target=1, tol=0.02)
    assert isinstance(result.values, Tensor)
    for low, full in zip(result.certificate, plain.certificate, strict=True):
        assert (low.precision, low.moved, low.score, low.error) == ("tf32-backward", 0.0, full.score, full.error)
        assert low.gradients == full.gradients + 2
    assert torch.equal(result.values, plain.values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "own"), [(0.0, 1e-3), (3e-4, 1e-3), (3e-4, 0.0)])
def test_what_tf32_backward_passes_move_is_measured(share: float, own: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of single nodes average out, and are not counted as if they did not."""
    Tempting(monkeypatch, ("tf32-backward",))
    coarse_backward(monkeypatch, share, own)
    model, x = broad_network()
    result = ig.integrated_gradients(model, x, target=1, tol=0.02)
    again = ig.integrated_gradients(model, x, target=1, tol=0.02)
    assert torch.equal(result.values, again.values)  # type: ignore[arg-type]
    true = (2 / np.pi) ** 0.5 * np.hypot(share, own / 17**0.5)  # of the size of gradients, which cancel a little along the path
    for one, error in zip(result.certificate, errors(result, model, x).tolist(), strict=True):
        assert one.precision == "tf32-backward"
        assert one.converged
        assert error <= one.error
        assert true <= one.moved <= 5 * true


def test_tf32_backward_passes_that_are_too_coarse_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    Tempting(monkeypatch, ("tf32-backward",))
    coarse_backward(monkeypatch, 0.02, 0.0)
    model, x = broad_network()
    plain = ig.integrated_gradients(model, x, target=1, tol=0.02, precision="float32")
    result = ig.integrated_gradients(model, x, target=1, tol=0.02)
    assert {(one.precision, one.moved) for one in result.certificate} == {("float32", 0.0)}
    assert torch.equal(result.values, plain.values)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [3e-4, 0.02])
def test_what_is_compared_is_asked_for_before_anything_is_waited_for(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is asked for the nodes in float32 while it is busy with the first round; nothing else changes, to the bit."""
    Tempting(monkeypatch, ("tf32-backward",))
    coarse_backward(monkeypatch, share, 1e-3)
    model, x = broad_network()
    before = ig.integrated_gradients(model, x, target=1, tol=0.02, chunk=16)
    events: list[str] = []
    asks, waits = Runner.__call__, PendingTransfer.numpy

    def ask(self: Runner, leaves: Any, rows: Tensor) -> Any:
        events.append(f"{self.mode.name} {len(rows)}")
        return asks(self, leaves, rows)

    def wait(self: PendingTransfer) -> Any:
        events.append("wait")
        return waits(self)

    monkeypatch.setattr(Runner, "__call__", ask)
    monkeypatch.setattr(PendingTransfer, "numpy", wait)
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: True))
    ahead = ig.integrated_gradients(model, x, target=1, tol=0.02, chunk=16)
    assert torch.equal(ahead.values, before.values)  # type: ignore[arg-type]
    assert ahead.certificate == before.certificate
    first = events.index("float32 6")  # two nodes of each of three paths
    low = [event for event in events[:first] if event != "wait"]
    assert {event.split()[0] for event in low} == {"tf32-backward"}
    assert events[:first].count("wait") == len(low) - 1, "all chunks were asked for, and the last one was not waited for"


def test_nodes_that_nobody_asked_for_ahead_are_evaluated_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluator, "asynchronous", property(lambda self: True))
    model, x = broad_network()
    function = build(model, x, target=1)
    pieces = ig.Straight(torch.zeros_like(x), x).pieces(batched=True)
    evaluator = Evaluator(function, pieces, Chunks.start(x.device, rows=8, memory=None))
    some, others = (Nodes(np.array([t]), np.array([1]), np.array([0])) for t in (0.25, 0.75))
    evaluator.soon(some)
    list(evaluator.gradients_at(others))
    (found,) = evaluator.full_gradients_at(others)
    (expected,) = evaluator.gradients_at(others)
    assert torch.equal(found.terms, expected.terms)
    assert evaluator.gradients.tolist() == [0, 3, 0]
