"""Calls from several threads: the same bits as from one, and nothing of what other threads do is disturbed."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

import integrand as ig
from benchmarks.threads import attack, scenarios
from integrand.backends.precision import PrecisionMode
from integrand.errors import ConvergenceWarning, ZeroAttributionWarning, quiet
from integrand.functions.model_state import PROCESS, SharedProcess, needed_switches, only_thread, undisturbed
from integrand.functions.randomness import DrawsNoticed
from integrand.integration.adaptive import OneCore

SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
X = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))


QUICK = ("a model and its parts", "models that share")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in SCENARIOS])
@pytest.mark.filterwarnings("ignore")
def test_a_short_attack(name: str) -> None:
    """``python -m benchmarks.threads`` is the long one: more threads, several rounds, with and without bystanders."""
    counts = attack(SCENARIOS[name], threads=3, rounds=1)
    assert counts.clean, "\n".join(counts.lines())
    assert counts.draws > 0


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[None]:
    """Another thread that does something over and over."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def company() -> Iterator[None]:
    """Another thread that is there and does nothing."""
    with beside(lambda: time.sleep(1e-3)):
        assert not only_thread()
        yield


class Watched(nn.Module):
    """A small network that does something else in every forward pass, too."""

    def __init__(self, also: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.first, self.second, self.also = nn.Linear(6, 5), nn.Linear(5, 3), also
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.also()
        return self.second(torch.tanh(self.first(x)))


# Random states


def test_what_another_thread_draws_meanwhile_is_not_drawn_again() -> None:
    drawn: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        model = Watched(lambda: drawn.append(pool.submit(lambda: torch.rand(()).item()).result()))
        ig.integrated_gradients(model, X, target=0)
        drawn += torch.rand(len(drawn)).tolist()
    assert len(drawn) > 4
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), lambda: torch.manual_seed(3) and torch.rand(())], ids=["", "seeded"])
def test_what_the_model_draws_itself_is_put_back(draw: Callable[[], Any], company: None) -> None:
    model = Watched(draw)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    ig.integrated_gradients(model, X, target=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_drawn_baselines_are_the_same_in_the_same_call(company: None) -> None:
    model = Watched()
    found = [ig.integrated_gradients(model, X, lambda: torch.randn(6), target=0, draws=3).values for _ in range(2)]
    assert torch.equal(*found)
    both = [ig.comparison.compare(model, X, lambda: torch.randn(6), target=0, draws=3, methods=["deeplift"]) for _ in range(2)]
    assert torch.equal(*(one.attributions["deeplift"].values for one in both))


def test_numbers_that_other_threads_draw_do_not_make_a_model_random() -> None:
    """Neither is it refused, nor is it called over and over to find out."""
    calls: list[int] = []
    model = Watched(lambda: calls.append(1))

    ig.integrated_gradients(model, X, target=0, steps=8, tol=1e9)
    alone = len(calls)
    calls.clear()
    with beside(lambda: torch.rand(())):
        ig.integrated_gradients(model, X, target=0, steps=8, tol=1e9)
    assert len(calls) <= alone + 1


def test_a_random_model_is_refused_beside_other_threads(company: None) -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x).sum(1)

    class NoisyByNumpy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * np.random.rand()).sum(1)

    for model in (Noisy(), NoisyByNumpy()):
        with pytest.raises(ig.errors.RandomnessError):
            ig.integrated_gradients(model, X)


LSTM = nn.LSTM(6, 4, num_layers=2, dropout=0.5).eval()
OWN = torch.Generator()


@pytest.mark.parametrize(
    ("run", "draws"),
    [
        (lambda: torch.rand(2), True),
        (lambda: torch.empty(2).normal_(), True),
        (lambda: F.dropout(X), True),
        (lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5), True),
        (lambda: torch.rand(2, generator=OWN), False),
        (lambda: F.dropout(X, training=False), False),
        (lambda: F.scaled_dot_product_attention(X[None], X[None], X[None]), False),
        (lambda: LSTM(X[None]), False),
        (lambda: X + torch.ones(6), False),
    ],
    ids=["rand", "normal", "dropout", "attention, dropout", "own", "no dropout", "attention", "lstm", "ones"],
)
def test_draws_are_noticed(run: Callable[[], Any], draws: bool) -> None:
    before = torch.get_rng_state()
    with DrawsNoticed() as noticed:
        run()
    assert noticed.drawn == draws == (not torch.equal(before, torch.get_rng_state()))


# Modules


def test_hooks_leave_the_forward_passes_of_other_threads_alone() -> None:
    model = Watched()
    expected = ig.integrated_gradients(model, X, target=0, layer="first")
    with torch.no_grad():
        right = model(X)
    answers: list[bool] = []

    def infer() -> None:
        with torch.no_grad():
            answers.append(torch.equal(model(X), right))

    model.also = lambda: None
    with beside(infer):
        for _ in range(10):
            found = ig.integrated_gradients(model, X, target=0, layer="first")
            assert torch.equal(found.values, expected.values)
    assert all(answers)


def test_layers_that_are_run_again_in_the_backward_pass() -> None:
    """By autograd, in threads of its own on a GPU; here in the same one."""

    class Checkpointed(Watched):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(checkpoint(lambda y: torch.tanh(self.first(y)), x, use_reentrant=False))

    model, plain = Checkpointed(), Watched()
    plain.load_state_dict(model.state_dict())
    values = [ig.integrated_gradients(one, X, target=0, layer="second", layer_side="input").values for one in (model, plain)]
    torch.testing.assert_close(*values)


def other_model(kind: str, model: Watched) -> nn.Module:
    """A model that has something in common with another one."""
    if kind == "part":
        return model.first
    if kind == "wrapper":
        return nn.Sequential(model)
    other = Watched()
    if kind == "submodule":
        other.first = model.first
    elif kind == "parameter":
        other.first.bias = model.first.bias
    return other


@pytest.mark.parametrize("kind", ["part", "wrapper", "submodule", "parameter", "nothing"])
def test_models_with_something_in_common_wait_for_each_other(kind: str) -> None:
    model = Watched()
    other, entered = other_model(kind, model), threading.Event()

    def run() -> None:
        with undisturbed(other):
            entered.set()

    with undisturbed(model):
        thread = threading.Thread(target=run)
        thread.start()
        assert entered.wait(0.2 if kind != "nothing" else 20) == (kind == "nothing")
    thread.join(20)
    assert entered.is_set()


# Switches


class Switch:
    """A switch of the process that notes every value that it had."""

    def __init__(self) -> None:
        self.value, self.seen = "user's", ["user's"]

    def _set(self, value: str) -> None:
        self.value = value
        self.seen.append(value)

    @contextmanager
    def __call__(self, value: str) -> Iterator[None]:
        before = self.value
        self._set(value)
        yield
        self._set(before)


def test_the_first_thread_turns_a_switch_and_the_last_one_turns_it_back() -> None:
    switch = Switch()
    process, both = SharedProcess({"switch": switch}), threading.Barrier(3)

    def run() -> None:
        with process.claimed(switches={"switch": "on"}):
            both.wait(20)
            assert switch.value == "on"
            both.wait(20)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(run) for _ in range(3)]:
            future.result()
    assert switch.seen == ["user's", "on", "user's"]


@pytest.mark.parametrize("others", ["off", None])
def test_threads_that_need_other_values_take_turns(others: str | None) -> None:
    """Over and over, also where they change their mind further in; nobody ever sees a value that is not its own."""
    switch = Switch()
    process = SharedProcess({"switch": switch})

    def run(number: int) -> None:
        mine = "on" if number % 2 else others
        for _ in range(50):
            with process.claimed({number // 2}, {"switch": mine}):
                assert switch.value == (mine or "user's")
                with process.claimed(switches={"switch": "inner"}):
                    assert switch.value == "inner"
                    with process.claimed({number // 2}, {"switch": None}):
                        assert switch.value == "inner"
                assert switch.value == (mine or "user's")

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(run, number) for number in range(6)]:
            future.result(timeout=60)
    assert switch.value == "user's"


def test_who_waits_is_not_overtaken_for_ever() -> None:
    """Threads that keep a switch on between them, without a gap, let one through that needs it off."""
    process, stop, through = SharedProcess({"switch": Switch()}), threading.Event(), threading.Event()
    inside = threading.Semaphore(0)

    def keep() -> None:
        while not stop.is_set():
            with process.claimed(switches={"switch": "on"}):
                inside.release()
                inside.acquire(timeout=0.01)

    def need() -> None:
        with process.claimed(switches={"switch": "off"}):
            through.set()

    threads = [threading.Thread(target=keep) for _ in range(4)] + [threading.Thread(target=need)]
    for thread in threads:
        thread.start()
    assert through.wait(20)
    stop.set()
    for thread in threads:
        thread.join()


def test_a_switch_that_cannot_be_turned_is_given_up() -> None:
    @contextmanager
    def broken(value: str) -> Iterator[None]:
        raise RuntimeError(value)
        yield

    process = SharedProcess({"broken": broken, "switch": Switch()})
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on"), process.claimed({1}, {"broken": "on"}):
            pass
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: process.claimed({1}, {"switch": "on"}).__enter__()).result(timeout=20)


@pytest.mark.parametrize("on", [True, False])
def test_tf32_and_cudnn_come_back(on: bool) -> None:
    cudnn = torch.backends.cudnn

    def state() -> tuple[Any, ...]:
        return cudnn.enabled, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic, torch.get_float32_matmul_precision()

    before = state()
    with PROCESS.claimed(switches={"tf32": on, "cudnn": "off"}):
        assert state() == (False, on, *before[2:4], "high" if on else "highest")
    assert state() == before


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (nn.Linear(2, 2), nn.Linear(2, 2), False),
        (nn.LSTM(2, 2), nn.LSTM(2, 2), False),
        (nn.LSTM(2, 2), nn.Linear(2, 2), True),
        (nn.Linear(2, 2), nn.GRU(2, 2), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_recurrent_networks_on_a_gpu_wait_for_others(first: nn.Module, second: nn.Module, waits: bool) -> None:
    """They do without cuDNN, which the others have: with another kernel they would have other bits."""
    entered = threading.Event()

    def run() -> None:
        with PROCESS.claimed(switches=needed_switches([second], cuda=True)):
            entered.set()

    with PROCESS.claimed(switches=needed_switches([first], cuda=True)):
        assert torch.backends.cudnn.enabled != isinstance(first, nn.RNNBase)
        thread = threading.Thread(target=run)
        thread.start()
        assert entered.wait(0.2 if waits else 20) != waits
    thread.join(20)
    assert entered.is_set()
    assert torch.backends.cudnn.enabled


def test_tf32_in_one_thread_is_not_float32_in_another() -> None:
    """Two calls in float32, each of which runs something in TF32 now and then."""

    def run(_: int) -> None:
        for _ in range(20):
            with PROCESS.claimed(switches=needed_switches([], cuda=True)):
                assert not torch.backends.cudnn.allow_tf32
                assert torch.get_float32_matmul_precision() == "highest"
                with PrecisionMode("tf32").switched():
                    assert torch.backends.cudnn.allow_tf32
                    assert torch.get_float32_matmul_precision() == "high"
                assert not torch.backends.cudnn.allow_tf32
                assert torch.get_float32_matmul_precision() == "highest"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert torch.backends.cudnn.allow_tf32


# Warnings


def test_silence_is_for_one_thread() -> None:
    filters = list(warnings.filters)
    with ThreadPoolExecutor(1) as pool, quiet():
        warnings.warn("not shown", UserWarning, stacklevel=1)

        def another() -> None:
            with pytest.warns(UserWarning, match="shown"):
                warnings.warn("shown", UserWarning, stacklevel=1)

        pool.submit(another).result()
    with quiet(ConvergenceWarning), quiet(ConvergenceWarning, ZeroAttributionWarning):
        warnings.warn("not shown", ConvergenceWarning, stacklevel=1)
        with pytest.warns(UserWarning, match="shown"):
            warnings.warn("shown", UserWarning, stacklevel=1)
    assert warnings.filters == filters
    with pytest.warns(ConvergenceWarning, match="shown"):
        warnings.warn("shown", ConvergenceWarning, stacklevel=1)


def test_scikit_learn_copies_the_filters_of_a_silent_thread() -> None:
    """Its ``Parallel`` rebuilds every filter from ``.pattern``; a copy holds in all threads, so it silences none of them."""
    parallel = pytest.importorskip("sklearn.utils.parallel")

    def say(number: int) -> int:
        warnings.warn("shown", UserWarning, stacklevel=1)
        return number

    filters = list(warnings.filters)
    with quiet(ConvergenceWarning, UserWarning), pytest.warns(UserWarning, match="shown"):
        assert parallel.Parallel(n_jobs=1)(parallel.delayed(say)(number) for number in range(3)) == [0, 1, 2]
    assert warnings.filters == filters


# Cores


def cores_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_the_number_of_cores_after_calls_that_overlap() -> None:
    """A thread that starts while another one has asked for a single core goes back to what that one had."""
    before, entered, left = torch.get_num_threads(), threading.Event(), threading.Event()
    torch.set_num_threads(3)
    core = OneCore()

    def second() -> int:
        with core:
            entered.set()
            left.wait(20)
        return torch.get_num_threads()

    try:
        with ThreadPoolExecutor(1) as pool:
            with core:
                assert torch.get_num_threads() == 1
                later = pool.submit(second)
                assert entered.wait(20)
            left.set()
            assert later.result() == torch.get_num_threads() == cores_of_a_new_thread() == 3
    finally:
        torch.set_num_threads(before)


# Curves


def test_curves_in_threads_of_their_own() -> None:
    """Each with a model of its own, so that nobody waits: their velocities have nothing to do with each other."""
    models = [Watched() for _ in range(4)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())

    def explain(model: nn.Module) -> list[Tensor]:
        curve = ig.Curve(lambda t: X * t**1.5)
        return [torch.as_tensor(ig.path_attribution(model, curve, target=0, tol=0.05).values) for _ in range(4)]

    expected = explain(models[0])[0]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(explain, models):
            assert all(torch.equal(values, expected) for values in found)


class OnceOnly(torch.autograd.Function):
    """A cube that cannot be differentiated backward twice, but forward."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * gradients[0]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * tangents[0]


@torch.no_grad()
def cube(t: Tensor) -> Tensor:
    return t**3


@pytest.mark.parametrize("function", [OnceOnly.apply, cube], ids=["custom", "without gradients"])
def test_curves_that_can_only_be_differentiated_forward(function: Callable[[Tensor], Tensor]) -> None:
    """Without a backward pass there is nothing to differentiate: their velocity comes from the forward mode."""
    curve = ig.Curve(lambda t: X * function(t))

    def explain(_: int) -> Tensor:
        points, velocities = curve.pieces(batched=True)[0].at(torch.tensor([0.5, 1.0]), torch.tensor([0, 1]))
        torch.testing.assert_close(points[0], X * torch.tensor([[0.125], [1.0]]))
        return velocities[0]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(explain, range(40)):
            torch.testing.assert_close(found, X * torch.tensor([[0.75], [3.0]]))
