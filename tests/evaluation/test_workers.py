"""Several workers: the answer of one, whatever runs where, and nothing left behind."""

from __future__ import annotations

import _thread
import contextvars
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.errors import MemoryBackoffWarning, MemoryLimitError, ModelError, NonFiniteError, OptionError
from integrand.evaluation.evaluator import ProfileRecorder
from tests.undisturbed import Model, everything

TWO = ["cpu", "cpu"]
BOTH = pytest.mark.parametrize("options", [{"steps": 40, "tol": 1e9}, {"tol": 1e-4}], ids=["fixed", "to a tolerance"])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread outlives a run, and a thread that starts later has as many cores as before."""
    threads, cores = set(threading.enumerate()), _cores_of_a_new_thread()
    yield
    assert set(threading.enumerate()) == threads
    assert _cores_of_a_new_thread() == cores


def _cores_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


PATIENCE = 60.0
"""Seconds after which a test fails that waits for something that does not come; otherwise nothing depends on time."""


class Meeting:
    """Each worker waits, the first time it comes by, until all the others have come: then every one of them has run."""

    def __init__(self, count: int = 2) -> None:
        self.barrier, self.came = threading.Barrier(count), set[str]()

    def __deepcopy__(self, memo: dict[int, Any]) -> Meeting:
        return self

    def __call__(self) -> None:
        name = threading.current_thread().name
        if name.startswith("integrand") and name not in self.came:
            self.came.add(name)
            self.barrier.wait(PATIENCE)


class Elsewhere:
    """``cpu:0``, which torch takes for another device than ``cpu`` until a tensor lies there: stands in for a second one."""

    devices = (torch.device("cpu"), torch.device("cpu", 0))


@pytest.fixture(params=["one device twice", "another device"])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two workers, the second with a copy of the model on the same device or, as far as the package can tell, on another."""
    if request.param == "another device":
        monkeypatch.setattr("integrand.evaluation.workers.devices_of", lambda devices: Elsewhere.devices if devices else ())
    return TWO


# ---- the same answer -------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, (hidden, cell) = self.lstm(x)
        return self.head(out.mean(1) + hidden[-1] * cell[-1])


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(3, 5)


def cnn() -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)]
    return nn.Sequential(*layers), torch.randn(2, 2, 8, 8)


def lstm() -> tuple[nn.Module, Tensor]:
    return Recurrent(), torch.randn(2, 7, 4)


def made(kind: Callable[[], tuple[nn.Module, Tensor]]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = kind()
    return model.eval(), x


def same(found: ig.Attribution, expected: ig.Attribution, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(found.values, expected.values, rtol=rtol, atol=rtol * float(expected.values.abs().max()))
    for mine, other in zip(found.certificate, expected.certificate, strict=True):
        assert (mine.gradients, mine.forwards, mine.rule) == (other.gradients, other.forwards, other.rule)
        assert mine.status is other.status
    assert found.profile is not None
    assert expected.profile is not None
    assert found.profile.t.tolist() == expected.profile.t.tolist()


@BOTH
@pytest.mark.parametrize("kind", [mlp, cnn, lstm])
def test_the_answer_is_that_of_one_worker(
    kind: Callable[[], tuple[nn.Module, Tensor]], options: dict[str, Any], workers: list[str]
) -> None:
    model, x = made(kind)
    expected = ig.integrated_gradients(model, x, target=1, **options)
    for chunk in (None, 3):
        same(ig.integrated_gradients(model, x, target=1, chunk=chunk, devices=workers, **options), expected)


@BOTH
@pytest.mark.parametrize("layer", ["lstm", "head"])
@pytest.mark.parametrize("side", ["output", "input"])
def test_a_layer_is_explained_by_hooks_of_each_workers_own(
    layer: str, side: Any, options: dict[str, Any], workers: list[str]
) -> None:
    """As the hooks of two threads on one module would each see the other's calls; and also where dynamo is loaded."""
    import torch._dynamo

    model, x = made(lstm)
    expected = ig.integrated_gradients(model, x, target=1, layer=layer, layer_side=side, **options)
    found = ig.integrated_gradients(model, x, target=1, layer=layer, layer_side=side, chunk=2, devices=workers, **options)
    for mine, other in zip(_leaves(found.values), _leaves(expected.values), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    assert found.certificate[0].gradients == expected.certificate[0].gradients
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def _leaves(values: Any) -> list[Tensor]:
    return list(values) if isinstance(values, tuple) else [values]


@BOTH
def test_double_precision_agrees_to_its_rounding(options: dict[str, Any], workers: list[str]) -> None:
    model, x = made(cnn)
    model, x = model.double(), x.double()
    expected = ig.integrated_gradients(model, x, target=1, **options)
    same(ig.integrated_gradients(model, x, target=1, chunk=5, devices=workers, **options), expected, rtol=1e-11)


def test_workers_cast_as_the_caller_does(workers: list[str]) -> None:
    """In bfloat16 attributions are another 1% away: without autocast in the workers they would differ by as much."""
    model, x = made(mlp)
    seen: set[tuple[str, torch.dtype]] = set()
    model[0].register_forward_hook(lambda _, __, out: seen.add((threading.current_thread().name[:9], out.dtype)))  # type: ignore[operator]
    with torch.autocast("cpu", torch.bfloat16):
        expected = ig.integrated_gradients(model, x, target=1, steps=40, tol=1e9)
        found = ig.integrated_gradients(model, x, target=1, steps=40, tol=1e9, chunk=7, devices=workers)
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    assert {name for name, _ in seen} == {"MainThrea", "integrand"}
    assert found.certificate[0].precision == "bfloat16"
    torch.testing.assert_close(found.values, expected.values, rtol=1e-5, atol=1e-6)


@BOTH
def test_workers_run_in_the_precision_asked_for(options: dict[str, Any], workers: list[str]) -> None:
    model, x = made(mlp)
    options = options | {"tol": 3.0, "target": 1, "precision": "bfloat16", "chunk": 4}
    expected = ig.integrated_gradients(model, x, **options)
    found = ig.integrated_gradients(model, x, devices=workers, **options)
    assert {one.precision for one in found.certificate} == {"bfloat16"}
    assert [one.moved for one in found.certificate] == pytest.approx([one.moved for one in expected.certificate], rel=1e-3)
    same(found, expected, rtol=1e-3)


def test_what_half_precision_cannot_hold_is_evaluated_in_full(workers: list[str]) -> None:
    """Scores of 40,000 x (1 + x), from 1 to 0: beyond x = 0.87 no float16 holds them.

    The caller evaluates them in full while workers go on in float16: one of them starts a chunk just then.
    """
    runs: list[tuple[bool, torch.dtype, list[float]]] = []
    in_full, started, number = threading.Event(), threading.Event(), itertools.count(1)

    class Large(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            if x.requires_grad:
                worker = threading.current_thread() is not threading.main_thread()
                runs.append((worker, out.dtype, x.flatten().tolist()))
                if worker and next(number) == 4:  # of as many that are handed out at first
                    started.set()
                if worker and float(x.detach().max()) < 0.99:  # all but the first chunk
                    assert in_full.wait(PATIENCE)
                if not worker and float(x.detach().max()) > 0.99:
                    in_full.set()
                    assert started.wait(PATIENCE)
            return (out * (1 + x[:, :1].to(out.dtype))) * 40_000

    model = Large(1, 1, bias=False)
    nn.init.ones_(model.weight)
    found = ig.integrated_gradients(
        model, torch.zeros(1, 1), 1.0, steps=40, tol=0.1, chunk=2, precision="float16", devices=workers
    )
    torch.testing.assert_close(found.values, torch.tensor([[-80_000.0]]), rtol=2e-3, atol=0)
    assert {dtype for worker, dtype, _ in runs if worker} == {torch.float16}
    full = [x for _, dtype, many in runs if dtype == torch.float32 for x in many]
    low = [x for _, dtype, many in runs if dtype == torch.float16 for x in many]
    assert sum(x > 0.87 for x in full) == sum(x > 0.87 for x in low) > 3
    assert len(low) > 40


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_gradients_are_on_in_workers(around: Callable[[], Any], workers: list[str]) -> None:
    model, x = made(mlp)
    expected = ig.integrated_gradients(model, x, target=1)
    with around():
        same(ig.integrated_gradients(model, x, target=1, chunk=2, devices=workers), expected)


class Weighed(nn.Module):
    """What is not explained comes by position, by name, in a list, and per example."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)

    def forward(self, x: Tensor, weights: Tensor, *, shifts: list[Tensor], names: list[str]) -> Tensor:
        signs = torch.tensor([1.0 if name == "plus" else -1.0 for name in names], device=x.device)
        return (self.inner(x).tanh() * weights + shifts[0] * x.sum(1, keepdim=True) ** 2) * signs[:, None]


def test_arguments_of_each_example_reach_its_rows(workers: list[str]) -> None:
    torch.manual_seed(0)
    model, x = Weighed().eval(), torch.randn(3, 4)
    call: dict[str, Any] = {"args": (torch.randn(3, 6),), "target": [0, 3, 5]}
    call["kwargs"] = {"shifts": [torch.randn(3, 1)], "names": ["plus", "minus", "plus"]}
    same(ig.integrated_gradients(model, x, chunk=2, devices=workers, **call), ig.integrated_gradients(model, x, **call))


@pytest.mark.parametrize("target", [lambda out: out[:, 0] - out[:, 1], None])
def test_targets_and_scores(target: Any, workers: list[str]) -> None:
    model, x = made(mlp)
    score: Any = "logit" if target else "probability"
    expected = ig.integrated_gradients(model, x, target=target, score=score)
    same(ig.integrated_gradients(model, x, target=target, score=score, chunk=3, devices=workers), expected)


def test_a_model_without_a_batch_dimension(workers: list[str]) -> None:
    model, x = made(mlp)
    expected = ig.integrated_gradients(model, x[0], target=1, batched=False)
    same(ig.integrated_gradients(model, x[0], target=1, batched=False, chunk=3, devices=workers), expected)


def test_several_baselines_and_groups(workers: list[str]) -> None:
    model, x = made(mlp)
    starts, groups = torch.randn(4, 1, 5), torch.tensor([0, 0, 1, 1, -1])
    expected = ig.integrated_gradients(model, x, starts, target=1, groups=groups)
    same(ig.integrated_gradients(model, x, starts, target=1, groups=groups, chunk=3, devices=workers), expected)


def test_curves_and_laid_paths(workers: list[str]) -> None:
    """Velocities of curves come from forward-mode differentiation, which no two threads may do at a time."""
    model, x = made(mlp)
    powers = torch.arange(1.0, 6.0)
    curve = ig.paths.Curve(lambda t: x * t.float() ** powers)
    guided = ig.paths.Guided(x, torch.zeros_like(x), steps=2)
    for path in (curve, guided):
        expected = ig.path_attribution(model, path, target=1, tol=0.05, chunk=2)
        found = ig.path_attribution(model, path, target=1, tol=0.05, chunk=2, devices=workers)
        same(found, expected)
        assert found.meta["devices"].startswith("cpu, cpu")


def test_differentiable_values_belong_to_the_models_own_weights(workers: list[str]) -> None:
    model, x = made(mlp)

    def penalty(devices: list[str] | None) -> list[Tensor]:
        model.zero_grad()
        values = ig.integrated_gradients(model, x, target=1, create_graph=True, chunk=4, devices=devices).values
        values.square().sum().backward()
        return [p.grad.clone() if p.grad is not None else torch.zeros(()) for p in model.parameters()]

    for mine, other in zip(penalty(workers), penalty(None), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


# ---- who runs what -----------------------------------------------------------------------------------------------------------


class Watched(nn.Module):
    """Writes down who ran how many rows with gradients; every worker has its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.runs: list[tuple[str, int, int, int]] = []
        self.meeting = Meeting()

    def __deepcopy__(self, memo: dict[int, Any]) -> Watched:
        own = Watched()
        own.weight, own.runs, own.meeting = memo.get(id(self.weight), self.weight), self.runs, self.meeting
        return own

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            self.meeting()
            self.runs.append((threading.current_thread().name, len(x), torch.get_num_threads(), id(self)))
        return torch.sin(x * self.weight).sum(1)


def test_the_first_chunk_is_measured_alone_and_the_rest_is_split_evenly() -> None:
    model = Watched().eval()
    ig.integrated_gradients(model, torch.ones(1, 3), steps=28, tol=1e9, chunk=8, devices=TWO)
    first, *rest = model.runs
    assert first[:2] == ("MainThread", 8)
    assert [rows for _, rows, _, _ in rest] == [5, 5, 5, 5], "not 8, 8 and 4"
    assert {name for name, *_ in rest} == {"integrand_0", "integrand_1"}
    assert len({model for *_, model in rest}) == 2
    assert first[3] in {model for *_, model in rest}, "one of them is the user's own"


def test_the_inputs_of_a_batch_are_shared_too() -> None:
    model = Watched().eval()
    ig.integrated_gradients(model, torch.rand(6, 3), steps=4, tol=1e9, chunk=3, devices=TWO)
    assert {name for name, *_ in model.runs} == {"MainThread", "integrand_0", "integrand_1"}
    assert sum(rows for _, rows, _, _ in model.runs) == 24


def test_cpu_workers_split_the_cores() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        model = Watched().eval()
        ig.integrated_gradients(model, torch.ones(1, 3), steps=28, tol=1e9, chunk=4, devices=TWO)
        assert {cores for name, _, cores, _ in model.runs if name != "MainThread"} == {2}
        assert torch.get_num_threads() == 4
        assert _cores_of_a_new_thread() == 4
    finally:
        torch.set_num_threads(before)


def test_weights_are_not_copied_on_the_same_device() -> None:
    """What a forward pass writes to is each worker's own; weights are there once."""
    model, meeting = Model(), Meeting()
    pointers: dict[int, set[int]] = {}

    def look(module: nn.Module, *_: Any) -> None:
        pointers.setdefault(id(module), set()).update((module.weight.data_ptr(), id(module.weight)))  # type: ignore[operator, arg-type]
        meeting()

    model.outer.register_forward_hook(look)
    ig.integrated_gradients(model, torch.ones(2, 3), target=0, steps=20, tol=1e9, chunk=4, devices=TWO)
    assert len(pointers) == 2
    assert len({frozenset(found) for found in pointers.values()}) == 1


class Remembers(nn.Module):
    """Keeps a value on itself between two lines of its forward, as many models do; all workers are there at once."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.meeting = Meeting(workers)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x**3
        self.meeting()
        return self.kept.sum(1)


def test_a_model_that_keeps_values_on_itself_is_not_confused() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    found = ig.integrated_gradients(Remembers(4), x, steps=16, tol=1e9, chunk=2, devices=["cpu"] * 4)
    torch.testing.assert_close(found.values, x**3, rtol=1e-6, atol=1e-6)


class Contended:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self) -> None:
        self.lock, self.waited_for = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.waited_for.set()
            self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Interrupted:
    """A column of numbers; while the first one is written, somebody else comes."""

    def __init__(self, numbers: list[float], come: Callable[[], None]) -> None:
        self.numbers, self.come = numbers, come

    def __len__(self) -> int:
        return len(self.numbers)

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.come()
        return np.array(self.numbers)


def test_points_that_several_threads_write_down_are_all_there() -> None:
    """One writes while another is in the middle of it, and has to wait."""
    recorder, lock, others = ProfileRecorder(), Contended(), list[threading.Thread]()
    recorder._lock = lock  # type: ignore[assignment]

    def second() -> None:
        recorder.add(*[np.arange(40, 140) / 2.0] * 6)  # more than there is room for

    def come() -> None:
        if not others:
            others.append(threading.Thread(target=second))
            others[0].start()
            assert lock.waited_for.wait(PATIENCE)

    recorder.add(*[Interrupted([1.0, 2.0, 3.0], come)] * 6)  # type: ignore[list-item]
    others[0].join(PATIENCE)
    assert recorder._count == 103
    assert sorted(recorder._rows[5, :103]) == sorted([1.0, 2.0, 3.0, *(np.arange(40, 140) / 2.0)])


def test_context_variables_are_the_callers() -> None:
    power = contextvars.ContextVar("power", default=1)

    def model(x: Tensor) -> Tensor:
        return (x ** power.get()).sum(1)

    power.set(2)
    found = ig.integrated_gradients(model, torch.tensor([[3.0, 1.0]]), steps=8, chunk=1, tol=1e9, devices=TWO)
    torch.testing.assert_close(found.values, torch.tensor([[9.0, 1.0]]))


def test_a_device_of_its_own_gets_model_arguments_and_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the model is called with is moved, and what it computes with does not ask for gradients."""
    monkeypatch.setattr("integrand.evaluation.workers.devices_of", lambda _: Elsewhere.devices)
    moved: list[str] = []

    class Told(Weighed):
        def to(self, *args: Any, **kwargs: Any) -> Told:
            moved.append(str(args[0]))
            return super().to(*args, **kwargs)

        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            assert not any(parameter.requires_grad for parameter in self.parameters())
            return super().forward(*args, **kwargs)

    model, x = Told().eval(), torch.randn(2, 4)
    result = ig.integrated_gradients(
        model,
        x,
        args=(torch.ones(6),),
        kwargs={"shifts": [torch.zeros(1)], "names": ["plus", "plus"]},
        chunk=2,
        target=0,
        devices=TWO,
    )
    assert moved == ["cpu:0"]
    assert result.meta["devices"] == "cpu, cpu:0"
    assert all(parameter.requires_grad for parameter in model.parameters())


# ---- what goes wrong ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("after", range(2, 9, 2))
def test_an_error_in_a_worker_is_the_users_own(after: int, options: dict[str, Any]) -> None:
    model = Model()
    state = everything(model)
    model.fail_after = after
    with pytest.raises(ValueError, match="in the middle"):
        ig.integrated_gradients(model, torch.ones(2, 3), target=0, chunk=2, devices=TWO, **options)
    unlike = [key for key, value in everything(model).items() if not _equal(value, state[key])]
    assert not unlike


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(a[-1], Tensor):
        return a[0] == b[0] and torch.equal(a[1], b[1])
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def test_the_model_is_afterwards_as_it_was(workers: list[str]) -> None:
    model = Model()
    state = everything(model)
    ig.integrated_gradients(model, torch.ones(2, 3), target=0, chunk=2, devices=workers)
    assert not [key for key, value in everything(model).items() if not _equal(value, state[key])]


def test_what_is_not_finite_is_told_as_by_one_worker(workers: list[str]) -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x - 0.31).sum(1)

    with pytest.raises(NonFiniteError, match=r"the score is .* at example 0, t = "):
        ig.integrated_gradients(Root(), torch.ones(1, 2), chunk=2, devices=workers)


class Tight(nn.Module):
    """Room for so many rows; in all threads together where ``together``, and both are there at once."""

    def __init__(self, rows: int, error: BaseException, *, together: bool = False) -> None:
        super().__init__()
        self.rows, self.error, self.together = rows, error, together
        self.room, self.refused = [rows], list[int]()
        self.lock, self.meeting = threading.Lock(), Meeting()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tight:
        own = Tight(self.rows, self.error, together=self.together)
        own.room, own.refused, own.lock, own.meeting = self.room, self.refused, self.lock, self.meeting
        return own

    def forward(self, x: Tensor) -> Tensor:
        if not self.together:
            if len(x) > self.rows and x.requires_grad:
                raise self.error
            return torch.sin(2 * x).sum(1)
        if not x.requires_grad:
            return torch.sin(2 * x).sum(1)
        with self.lock:
            self.room[0] -= len(x)
            fits = self.room[0] >= 0
        try:
            self.meeting()
            if not fits:
                self.refused.append(len(x))
                raise self.error
            return torch.sin(2 * x).sum(1)
        finally:
            with self.lock:
                self.room[0] += len(x)


@BOTH
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()], ids=["cuda", "python"])
def test_chunks_that_do_not_fit_are_made_smaller(error: BaseException, options: dict[str, Any]) -> None:
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3)
    expected = ig.integrated_gradients(lambda z: torch.sin(2 * z).sum(1), x, **options)
    with pytest.warns(MemoryBackoffWarning, match="going on with") as told:
        found = ig.integrated_gradients(Tight(3, error), x, chunk=16, devices=TWO, **options)
    same(found, expected, rtol=1e-12)
    assert told[0].filename == __file__


def test_running_out_together_is_not_running_out_alone() -> None:
    """Two workers at a time do not fit, whatever the chunk; one row alone does, so the run goes on."""
    x = torch.linspace(-1, 2, 3, dtype=torch.float64)[None]
    expected = ig.integrated_gradients(lambda z: torch.sin(2 * z).sum(1), x, steps=12, tol=1e9)
    model = Tight(1, torch.OutOfMemoryError("out"), together=True)
    same(ig.integrated_gradients(model, x, steps=12, tol=1e9, chunk=1, devices=TWO), expected, rtol=1e-12)
    assert model.refused
    with pytest.raises(MemoryLimitError, match="a single row"):
        ig.integrated_gradients(Tight(0, torch.OutOfMemoryError("out")), x, chunk=1, devices=TWO)


def test_running_out_after_the_first_chunk() -> None:
    """The first chunk fits, those of the workers do not: each is tried again, and told once."""
    calls = 0

    def model(x: Tensor) -> Tensor:
        nonlocal calls
        if threading.current_thread().name.startswith("integrand") and len(x) > 2:
            calls += 1
            raise torch.OutOfMemoryError("out")
        return torch.sin(2 * x).sum(1)

    x = torch.linspace(-1, 2, 3, dtype=torch.float64)[None]
    expected = ig.integrated_gradients(lambda z: torch.sin(2 * z).sum(1), x, steps=40, tol=1e9)
    with pytest.warns(MemoryBackoffWarning, match="going on with 2") as told:
        found = ig.integrated_gradients(model, x, steps=40, tol=1e9, chunk=4, devices=TWO)
    same(found, expected, rtol=1e-12)
    assert calls > 2
    assert len(told) == 1


@pytest.mark.usefixtures("usual_signals")
def test_interrupts_end_all_workers() -> None:
    """Ctrl-C while workers run, while results are summed, and an exit from within a worker."""
    running = threading.Event()

    class Long(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if threading.current_thread().name.startswith("integrand") and not running.is_set():
                running.set()
                _thread.interrupt_main()
            return x.sum(1)

    with pytest.raises(KeyboardInterrupt):
        ig.integrated_gradients(Long(), torch.ones(1, 2), steps=500, chunk=1, tol=1e9, devices=TWO)
    assert running.is_set()

    def stop(progress: ig.Progress) -> None:
        if progress.gradients > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig.integrated_gradients(Long(), torch.ones(1, 2), steps=500, chunk=1, tol=1e9, devices=TWO, progress=stop)

    def leave(x: Tensor) -> Tensor:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit(3)
        return x.sum(1)

    with pytest.raises(SystemExit):
        ig.integrated_gradients(leave, torch.ones(1, 2), steps=50, chunk=1, tol=1e9, devices=TWO)


def test_progress_is_told_by_the_caller_and_reaches_the_end() -> None:
    model, x = made(mlp)
    told: list[tuple[bool, int]] = []

    def hear(progress: ig.Progress) -> None:
        told.append((threading.current_thread() is threading.main_thread(), progress.gradients))

    result = ig.integrated_gradients(model, x, target=1, steps=30, tol=1e9, chunk=4, devices=TWO, progress=hear)
    assert all(main for main, _ in told)
    counts = [count for _, count in told]
    assert counts == sorted(counts)
    assert counts[-1] == sum(one.gradients for one in result.certificate)


# ---- models and devices that do not do ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], "one entry per worker"),
        ("cpu", "expected a list"),
        (torch.device("cpu"), "expected a list"),
        ({"cpu"}, "expected a list"),
        ([0, 1], "got 0 in devices="),
        (["cpu", "meta"], "'meta' in devices="),
        (["cpu", "cuda:77"], "got 'cuda:77' in devices=, which cannot be used here"),
        (["cpu", "gpu"], "got 'gpu' in devices="),
    ],
)
def test_devices_that_are_not_there(devices: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ig.integrated_gradients(nn.Linear(2, 1), torch.ones(1, 2), devices=devices)


def test_the_device_of_x_must_be_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrand.evaluation.workers.devices_of", lambda _: Elsewhere.devices[1:] * 2)
    with pytest.raises(OptionError, match="x is on cpu; expected the device of x among them"):
        ig.integrated_gradients(nn.Linear(2, 1), torch.ones(1, 2), devices=TWO)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "cpu:0"])
def test_a_single_worker_is_the_caller(device: str | torch.device) -> None:
    model = Watched().eval()
    result = ig.integrated_gradients(model, torch.ones(1, 3), chunk=2, devices=[device])
    assert {name for name, *_ in model.runs} == {"MainThread"}
    assert result.meta["devices"] == "cpu"
    assert "devices" not in ig.integrated_gradients(model, torch.ones(1, 3)).meta


def test_functions_that_hide_a_module_are_refused_and_those_that_show_it_are_not() -> None:
    model, x = made(mlp)
    expected = ig.integrated_gradients(model, x, target=1)
    for hidden in (lambda z: model(z), functools.partial(lambda z, scale: scale * model(z), scale=1.0)):
        with pytest.raises(ModelError, match=r"got a function that calls a module .Sequential.*nn.Module, a functools.partial"):
            ig.integrated_gradients(hidden, x, target=1, devices=TWO)
    for shown in (model.forward, functools.partial(model)):
        same(ig.integrated_gradients(shown, x, target=1, chunk=3, devices=TWO), expected)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_traced_and_compiled_models(workers: list[str]) -> None:
    model, x = made(mlp)
    expected = ig.integrated_gradients(model, x, target=1)
    for other in (torch.jit.trace(model, x), torch.compile(model, backend="eager")):
        same(ig.integrated_gradients(other, x, target=1, chunk=3, devices=workers), expected)


def test_models_that_cannot_be_copied_or_moved_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1)

    with pytest.raises(ModelError, match=r"Locked.*cannot be copied for the worker on cpu: cannot pickle"):
        ig.integrated_gradients(Locked(), torch.ones(1, 2), devices=TWO)

    class Stays(nn.Linear):
        def to(self, *args: Any, **kwargs: Any) -> Stays:
            raise NotImplementedError("quantised")

    monkeypatch.setattr("integrand.evaluation.workers.devices_of", lambda _: Elsewhere.devices)
    with pytest.raises(ModelError, match=r"Stays.*cannot be moved to cpu:0: quantised"):
        ig.integrated_gradients(Stays(2, 1), torch.ones(1, 2), devices=TWO)


def test_an_error_on_another_device_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrand.evaluation.workers.devices_of", lambda _: Elsewhere.devices)

    class Fails(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if threading.current_thread() is not threading.main_thread() and not self.weight.requires_grad and self.copied:
                raise ValueError("only there")
            return super().forward(x)

        copied = False

        def __deepcopy__(self, memo: dict[int, Any]) -> Fails:
            own = Fails(2, 1)
            own.copied = True
            return own

    with pytest.raises(ValueError, match="only there") as caught:
        ig.integrated_gradients(Fails(2, 1), torch.ones(1, 2), steps=200, chunk=1, tol=1e9, devices=TWO)
    assert any("a copy of the model on cpu:0" in note for note in caught.value.__notes__)
