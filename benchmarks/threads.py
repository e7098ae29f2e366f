"""An attack from many threads: everything at once on the same model, beside threads that draw, infer and warn.

python -m benchmarks.threads                    # some minutes on two cores
python -m benchmarks.threads --rounds 1         # half a minute

Each scenario runs its kinds of calls from several threads, over and over, and holds every result against the bits that the
same call gave alone. Beside them run threads that only draw random numbers, and one that only runs the model. Counted are
exceptions, other bits, draws that come twice, and what is not as before at the end: the model, switches of the process, its
random state, its warning filters. Exits with 1 where any of these is not zero.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import random
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which torch loads when it needs it, with warning filters of its own
from torch import Tensor, nn

import integrand as ig
from integrand.analysis.diagnosis_result import Diagnosis
from integrand.comparison import compare
from integrand.compat import captum
from integrand.interactions import integrated_hessians
from integrand.methods import BY_NAME, BlurIG

Call = Callable[[], Any]

LONGEST = 600
"""Seconds after which threads are taken to wait for each other."""


class Network(nn.Module):
    """Six features in, three classes out: a trunk and a head, with ReLU, so that every method has its rules."""

    def __init__(self, trunk: nn.Module | None = None, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.trunk = trunk or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
            self.head = nn.Linear(16, 3)
        self.register_buffer("scale", torch.tensor(1.5))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.scale * self.trunk(x))


class Attentive(nn.Module):
    """One transformer layer: PyTorch has switches for how it is computed."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(2)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


def inputs(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def numbers(result: Any) -> list[Tensor]:
    """What must be the same in every run of a call."""
    if isinstance(result, ig.Attribution):
        errors = [[one.error, one.residual, float(one.gradients)] for one in result.certificate]
        return [torch.as_tensor(result.values).detach(), torch.tensor(errors, dtype=torch.float64)]
    if isinstance(result, Diagnosis):
        return [torch.as_tensor(row.attribution.values) for row in result.rows]
    if isinstance(result, (tuple, list)):
        return [part for one in result for part in numbers(one)]
    return [torch.as_tensor(result.values if hasattr(result, "certificate") else result).detach()]


def usual(model: nn.Module, x: Tensor) -> dict[str, Call]:
    """Plain calls, layers, neurons and curves on one model."""

    def curve() -> Any:
        return ig.path_attribution(model, ig.paths.Curve(lambda t: x * t**1.5), target=1, tol=0.1)

    trunk = model.trunk
    return {
        "plain": lambda: ig.integrated_gradients(model, x, target=1, tol=0.05),
        "fixed": lambda: ig.integrated_gradients(model, x, target=1, steps=12, tol=1e9),
        "create_graph": lambda: ig.integrated_gradients(model, x, target=1, steps=12, tol=1e9, create_graph=True),
        "layer": lambda: ig.integrated_gradients(model, x, target=1, tol=0.05, layer="trunk.2"),
        "layer input": lambda: ig.integrated_gradients(model, x, target=1, tol=0.05, layer="head", layer_side="input"),
        "curve": curve,
        "neuron": lambda: captum.NeuronIntegratedGradients(model, trunk).attribute(x, neuron_selector=3),
        "neuron conductance": lambda: captum.NeuronConductance(model, trunk).attribute(x, neuron_selector=3, target=1),
        "layer conductance": lambda: captum.LayerConductance(model, trunk).attribute(x, target=1),
        "a function": lambda: ig.integrated_gradients(lambda y: model(y).softmax(1)[:, 1], x, tol=0.05),
    }


def conductance(model: nn.Module) -> Tensor:
    return captum.LayerConductance(model, model.trunk).attribute(inputs(2, 6), target=1)


def methods(model: nn.Module, x: Tensor) -> dict[str, Call]:
    """Every method, diagnosed baselines, and interactions."""
    every = BY_NAME | {"blur-ig": BlurIG(dims=(-1,))}
    named = {name: lambda method=method: method(model, x, target=1) for name, method in every.items()}
    return named | {
        "diagnose": lambda: ig.baselines.diagnose(model, x[:1], target=1),
        "hessians": lambda: integrated_hessians(model, x[:1], target=1, tol=0.1),
    }


@dataclass
class Scenario:
    """Calls that run at the same time, the models that they may not change, and a model that others run meanwhile."""

    name: str
    calls: dict[str, Call]
    models: list[nn.Module]
    forward: tuple[nn.Module, Tensor] | None = None


def scenarios() -> list[Scenario]:
    model, x = Network(), inputs(2, 6)
    out = [
        Scenario("one model", usual(model, x), [model], (model, x)),
        Scenario("every method", methods(model, x), [model], (model, x)),
    ]
    other, hidden = Network(seed=4), inputs(2, 16, seed=5)
    parts = {
        "model": lambda: ig.integrated_gradients(other, x, target=1, tol=0.05),
        "model, layer": lambda: ig.integrated_gradients(other, x, target=1, tol=0.05, layer="head", layer_side="input"),
        "graph": lambda: ig.integrated_gradients(other, x, target=1, steps=8, tol=1e9, create_graph=True),
        "trunk": lambda: ig.integrated_gradients(other.trunk, x, target=3, tol=0.05),
        "trunk, layer": lambda: ig.integrated_gradients(other.trunk, x, target=3, tol=0.05, layer="1"),
        "head": lambda: ig.integrated_gradients(other.head, hidden, target=1, tol=0.05),
    }
    out.append(Scenario("a model and its parts", parts, [other], (other, x)))
    trunk = Network(seed=6).trunk
    first, second, tied = Network(trunk, 7), Network(trunk, 8), Network(seed=9)
    tied.head.weight = first.head.weight
    shared = {
        f"{name}{', layer' if layer else ''}{', graph' if graph else ''}": (
            lambda one=one, layer=layer, graph=graph: ig.integrated_gradients(
                one, x, target=1, tol=0.05, layer="trunk" if layer else None, create_graph=graph
            )
        )
        for name, one in (("first", first), ("second", second), ("tied", tied))
        for layer, graph in ((False, False), (True, False), (False, True))
    }
    out.append(Scenario("models that share", shared, [first, second, tied], (second, x)))
    attentive, words, template = Attentive(), inputs(2, 5, 8, seed=3), Network(seed=4)

    def own() -> nn.Module:
        """A model that no other thread knows."""
        return copy.deepcopy(template)

    alone = {
        "plain": lambda: ig.integrated_gradients(own(), x, target=1, tol=0.05),
        "curve": lambda: ig.path_attribution(own(), ig.paths.Curve(lambda t: x * t**1.5), target=1, tol=0.1),
        "curve, fixed": lambda: ig.path_attribution(own(), ig.paths.Curve(lambda t: x * t**1.5), target=1, steps=8, tol=1e9),
        "layer conductance": lambda: conductance(own()),
        "attention": lambda: ig.integrated_gradients(attentive, words, target=1, tol=0.05),
        "attention, layer": lambda: ig.integrated_gradients(copy.deepcopy(attentive), words, target=1, layer="layer.norm1"),
        "attention, lrp": lambda: BY_NAME["lrp"](copy.deepcopy(attentive), words, target=1),
        "deeplift": lambda: BY_NAME["deeplift"](own(), x, target=1),
        "smoothgrad": lambda: BY_NAME["smoothgrad"](own(), x, target=1),
        "diagnose": lambda: ig.baselines.diagnose(own(), x[:1], target=1),
        "compare": lambda: list(compare(own(), x[:1], target=1).attributions.values()),
        "hessians": lambda: integrated_hessians(own(), x[:1], target=1, tol=0.1),
    }
    out.append(Scenario("a model for each call", alone, [attentive, template]))
    plain, inner = Network(seed=3), Network(seed=2)

    @cache
    def compiled() -> Any:
        """Compiled when it is first run: from then on other calls have to do with the compiler, too."""
        return torch.compile(inner, backend="eager")

    mixed = {
        "compiled": lambda: ig.integrated_gradients(compiled(), x, target=1, tol=0.05),
        "compiled, layer": lambda: ig.integrated_gradients(compiled(), x, target=1, tol=0.05, layer="trunk.2"),
        "plain": lambda: ig.integrated_gradients(plain, x, target=1, tol=0.05),
        "layer": lambda: ig.integrated_gradients(plain, x, target=1, tol=0.05, layer="trunk.2"),
        "lrp": lambda: BY_NAME["lrp"](plain, x, target=1),
        "layer conductance": lambda: conductance(plain),
    }
    out.append(Scenario("a compiled model", mixed, [plain, inner], (plain, x)))
    return out


@dataclass
class Bystander:
    """A thread that draws, or runs the model, until it is told to stop."""

    work: Callable[[], Any]
    every: float = 0.0
    found: list[Any] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    def start(self, stop: threading.Event) -> threading.Thread:
        def run() -> None:
            while not stop.is_set():
                try:
                    self.found.append(self.work())
                except Exception as error:
                    self.failed[f"{type(error).__name__}: {str(error)[:80]}"] += 1
                time.sleep(self.every)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


def drawers() -> dict[str, Bystander]:
    """Threads that draw numbers of 62 bits or so: none should ever come twice."""
    return {
        "torch": Bystander(lambda: int(torch.randint(1 << 62, ())), 1e-4),
        "numpy": Bystander(lambda: int(np.random.randint(1 << 62, dtype=np.int64)), 1e-3),
        "python": Bystander(lambda: random.getrandbits(62), 1e-3),
    }


def process_state() -> dict[str, Any]:
    """Switches of the process, and whatever else no call should leave changed."""
    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    return {
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "attention kernels": (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        "oneDNN": torch._C._get_mkldnn_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "compiler": getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "warning filters": list(warnings.filters),
        "warnings shown by": warnings.showwarning,
    }


def random_states() -> list[bytes]:
    return [torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes(), repr(random.getstate()).encode()]


def model_state(model: nn.Module) -> dict[str, Any]:
    """All that no call may change in a model, as plain values."""
    state: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        state[name] = (parameter.detach().cpu().numpy().tobytes(), parameter.requires_grad, parameter.grad is None)
    for name, buffer in model.named_buffers():
        state[name] = (id(buffer), buffer.cpu().numpy().tobytes())
    for name, module in model.named_modules():
        state["hooks of " + name] = (len(module._forward_hooks), len(module._forward_pre_hooks), module.training)
    return state


@dataclass
class Counts:
    """What an attack found."""

    calls: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    draws: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    forwards: int = 0
    changed: list[str] = field(default_factory=list)
    stuck: int = 0

    @property
    def clean(self) -> bool:
        return not (self.failed or self.wrong or self.repeated or self.changed or self.stuck)

    def lines(self) -> list[str]:
        out = [
            f"{self.calls} calls: {self.failed.total()} failed, {self.wrong.total()} with other bits (by up to "
            f"{self.worst:.1g}); "
            f"{self.draws} draws: {self.repeated.total()} repeated; {self.forwards} forward passes; "
            f"left changed: {', '.join(self.changed) or 'nothing'}; stuck: {self.stuck}"
        ]
        for what, found in (("failed", self.failed), ("other bits", self.wrong), ("repeated draws", self.repeated)):
            out += [f"    {what}: {count} x {name}" for name, count in found.most_common(8)]
        return out


def difference(found: list[Tensor], expected: list[Tensor]) -> float | None:
    """None where all bits are the same, else by how much they differ, relative to the size of the largest."""
    if len(found) == len(expected) and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
        return None
    if [one.shape for one in found] != [one.shape for one in expected]:
        return float("inf")
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


def attack(
    scenario: Scenario, *, threads: int = 6, rounds: int = 3, bystanders: bool = True, longest: float = LONGEST
) -> Counts:
    """Run a scenario's calls from several threads and count what goes wrong."""
    counts, lock = Counts(), threading.Lock()
    expected = {name: numbers(call()) for name, call in scenario.calls.items()}
    for name, call in scenario.calls.items():
        assert difference(numbers(call()), expected[name]) is None, f"{name} has no fixed bits in one thread"
    process, models, states = process_state(), [model_state(model) for model in scenario.models], random_states()
    stop, gate = threading.Event(), threading.Barrier(threads)
    beside = drawers() if bystanders else {}
    runs: Bystander | None = None
    if bystanders and scenario.forward is not None:
        model, x = scenario.forward
        with torch.no_grad():
            right = model(x)
        runs = Bystander(lambda: torch.equal(_forward(model, x), right), 1e-3)

    def work(number: int) -> None:
        names = list(scenario.calls) * rounds
        random.Random(number).shuffle(names)
        gate.wait()
        for name in names:
            try:
                found: Any = numbers(scenario.calls[name]())
            except Exception as error:
                with lock:
                    counts.failed[f"{name}: {type(error).__name__}: {str(error)[:90]}"] += 1
                continue
            change = difference(found, expected[name])
            if change is not None:
                with lock:
                    counts.wrong[name] += 1
                    counts.worst = max(counts.worst, change)

    helpers = [one.start(stop) for one in [*beside.values(), *([runs] if runs else [])]]
    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    end = time.monotonic() + longest
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    counts.stuck = sum(worker.is_alive() for worker in workers)
    if counts.stuck:
        faulthandler.dump_traceback(all_threads=True)
    stop.set()
    for helper in helpers:
        helper.join(10)
    counts.calls = threads * rounds * len(scenario.calls)
    for name, one in beside.items():
        counts.draws += len(one.found)
        twice = len(one.found) - len(set(one.found))
        counts.repeated.update({name: twice} if twice else {})
    if runs is not None:
        counts.forwards = len(runs.found)
        counts.failed.update({f"forward pass beside: {words}": count for words, count in runs.failed.items()})
        other = runs.found.count(False)
        counts.wrong.update({"forward pass beside": other} if other else {})
    counts.changed = [name for name, value in process_state().items() if process[name] != value]
    for before, model in zip(models, scenario.models, strict=True):
        after = model_state(model)
        counts.changed += [name for name in before if before[name] != after[name]]
    if not bystanders and random_states() != states:
        counts.changed.append("random state")
    return counts


def _forward(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", help="the name of one scenario")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", ig.errors.IntegrandWarning)
    torch.set_num_threads(1)
    failed = False
    for scenario in scenarios():
        if chosen.only in (None, scenario.name):
            for beside in (True, False):
                counts = attack(scenario, threads=chosen.threads, rounds=chosen.rounds, bystanders=beside)
                print(f"{scenario.name}{', beside others' if beside else ''}: " + "\n".join(counts.lines()), flush=True)
                failed |= not counts.clean
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
