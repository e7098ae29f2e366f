"""Activations that are recomputed block by block: the same values from less memory, and the model as it was."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import integrand as ig
from integrand.backends import checkpointing, full_precision
from integrand.backends.checkpointing import NOTE, CheckpointedRun, blocks_of, checkpointed, saved_bytes
from integrand.backends.torch_function import TorchFunction, build, undisturbed
from integrand.errors import MemoryBackoffWarning, MemoryLimitError
from integrand.evaluation.evaluator import Evaluator
from integrand.evaluation.runner import Runner

WIDE, BLOCKS = 16, 6


class Block(nn.Module):
    """Attention and a network for each token, with what goes in added to what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDE, 2, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(WIDE, 64), nn.GELU(), nn.Linear(64, WIDE))

    def forward(self, x: Tensor, *, cache: Any = None) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.inner(x)


class Stack(nn.Module):
    """Words, blocks, and some outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, WIDE)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(WIDE, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.deep(self.words(ids))

    def deep(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x.mean(1))
        return out


def stack() -> Stack:
    torch.manual_seed(0)
    return Stack().double().eval()


def words(count: int = 1) -> Tensor:
    return torch.arange(12)[None].repeat(count, 1)


class Saved:
    """The most that autograd holds at a time, in bytes, as far as what was saved in a forward pass goes."""

    def __init__(self) -> None:
        self.most = 0

    def __enter__(self) -> Saved:
        held: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if not isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter):
                held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                self.most = max(self.most, sum(held.values()))
            return tensor

        self._hooks = saved_tensors_hooks(pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.__exit__()  # type: ignore[no-untyped-call]


def test_blocks_are_found_where_modules_repeat():
    model = stack()
    assert blocks_of(model) == tuple(model.blocks)
    assert blocks_of(lambda ids: model(ids).sigmoid()) == tuple(model.blocks)
    assert blocks_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == ()  # nothing inside that could be recomputed
    assert blocks_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == ()
    both = nn.ModuleDict({"encoder": stack(), "decoder": stack()})
    assert len(blocks_of(both)) == 2 * BLOCKS


def test_gradients_are_the_same_and_less_is_saved():
    model = stack().requires_grad_(False)
    x = model.words(words()).detach()
    found, held = [], []
    for blocks in ((), tuple(model.blocks)):
        point = x.clone().requires_grad_()
        with Saved() as saved, checkpointed(blocks):
            out = model.deep(point)[0]
        # Several backward passes from one forward pass, as several targets take them.
        found.append([torch.autograd.grad(out[i], point, retain_graph=i < 4)[0] for i in range(5)])
        held.append(saved.most)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert held[1] < 0.2 * held[0]
    assert not any("forward" in block.__dict__ for block in model.blocks)


def test_bytes_are_counted_without_being_held():
    model = stack().requires_grad_(False)
    x = model.words(words()).detach()
    with Saved() as plain:
        kept = model.deep(x.clone().requires_grad_())
    with Saved() as light, checkpointed(model.blocks):
        kept = model.deep(x.clone().requires_grad_())
    with Saved() as one:
        kept = model.blocks[0](x.clone().requires_grad_())
    found = saved_bytes(lambda: model.deep(x.clone().requires_grad_()), model.blocks)
    assert found.plain == plain.most
    assert found.light == pytest.approx(light.most + one.most, rel=0.1)
    assert kept is not None


@pytest.mark.parametrize("options", [{"tol": 1e-4}, {"steps": 7, "tol": 1e9}], ids=["adaptive", "fixed"])
def test_a_row_that_does_not_fit_is_recomputed(options):
    """Several outputs of one text, which share forward passes; a few kilobytes are far below what a row saves."""
    model, ids = stack(), words(3)
    given: dict[str, Any] = {"layer": "words", "target": [0, 2, 4], **options}
    plain = ig.integrated_gradients(model, ids, **given)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    runs: list[int] = []
    handle = model.blocks[0].inner.register_forward_hook(lambda _, __, out: runs.append(len(out) * torch.is_grad_enabled()))
    light = ig.integrated_gradients(model, ids, memory=60_000, **given)
    handle.remove()
    torch.testing.assert_close(light.values, plain.values, rtol=1e-9, atol=1e-12)
    assert all(one.note == NOTE for one in light.certificate)
    assert not any(one.note for one in plain.certificate)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert not any("forward" in block.__dict__ for block in model.blocks)
    assert all(parameter.requires_grad for parameter in model.parameters())
    # One forward pass for each point, and one more for each target of it.
    assert sum(runs) <= 1 + 2 * sum(one.gradients for one in light.certificate)


def test_memory_that_has_room_changes_nothing():
    model, ids = stack(), words()
    plain = ig.integrated_gradients(model, ids, layer="words", target=1, tol=1e-4)
    roomy = ig.integrated_gradients(model, ids, layer="words", target=1, tol=1e-4, memory=1 << 30)
    torch.testing.assert_close(roomy.values, plain.values, rtol=1e-9, atol=1e-12)
    assert not roomy.certificate.only.note


def test_the_same_call_gives_the_same_bits():
    model, ids = stack(), words()
    first, second = (ig.integrated_gradients(model, ids, layer="words", target=1, memory=40_000) for _ in range(2))
    assert torch.equal(first.values, second.values)  # type: ignore[arg-type]
    assert first.certificate == second.certificate


@pytest.mark.parametrize("layer", ["blocks.2", "blocks.2.inner", "blocks.2.inner.0"])
def test_a_layer_inside_of_a_block(layer):
    """The block that holds the explained layer is not recomputed: its value is replaced in the forward pass only."""
    model, ids = stack(), words()
    plain = ig.integrated_gradients(model, ids, layer=layer, target=1, tol=1e-3)
    light = ig.integrated_gradients(model, ids, layer=layer, target=1, tol=1e-3, memory=30_000)
    torch.testing.assert_close(light.values, plain.values, rtol=1e-9, atol=1e-12)
    assert light.certificate.only.note == NOTE


def exhausted(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A device on which autograd cannot hold more than so many bytes."""
    plain = Runner.__call__

    def limited(self: Runner, leaves: Any, rows: Tensor) -> Any:
        with Saved() as saved:
            found = plain(self, leaves, rows)
        if saved.most > most:
            raise torch.OutOfMemoryError(f"{saved.most} bytes")
        return found

    monkeypatch.setattr(Runner, "__call__", limited)


def test_one_row_that_runs_out_of_memory(monkeypatch):
    model, ids = stack(), words()
    plain = ig.integrated_gradients(model, ids, layer="words", target=1)
    exhausted(monkeypatch, 50_000)
    with pytest.warns(MemoryBackoffWarning) as said:
        light = ig.integrated_gradients(model, ids, layer="words", target=1)
    assert "going on with activations recomputed block by block" in str(said[-1].message)
    torch.testing.assert_close(light.values, plain.values, rtol=1e-9, atol=1e-12)
    assert light.certificate.only.note == NOTE


@pytest.mark.parametrize("tol", [0.02, 1e-4])
def test_one_row_that_runs_out_of_memory_as_in_float32(tol, monkeypatch):
    """A half-precision model fits; computed as in float32, to measure its rounding or for all of it, it does not."""
    model, ids = stack().bfloat16(), words()
    plain = ig.integrated_gradients(model, ids, layer="words", target=1, tol=tol, chunk=1)
    exhausted(monkeypatch, 40_000)
    with pytest.warns(MemoryBackoffWarning, match="recomputed block by block"):
        light = ig.integrated_gradients(model, ids, layer="words", target=1, tol=tol, chunk=1)
    assert light.certificate.only.precision == plain.certificate.only.precision
    assert ("float32" in light.certificate.only.precision) == (light.certificate.only.note == NOTE) == (tol < 0.01)
    torch.testing.assert_close(light.values, plain.values, rtol=1e-4, atol=1e-6)


def test_a_try_as_in_float32_that_runs_out_of_memory(monkeypatch):
    """Where there is not even room to find out whether the model can be computed so, it is tried with blocks recomputed."""
    model, ids = stack().bfloat16(), words()
    plain = ig.integrated_gradients(model, ids, layer="words", target=1, tol=1e-4)
    tried = full_precision.in_full_precision

    def limited(function: TorchFunction) -> TorchFunction | None:
        if not isinstance(function.run, CheckpointedRun):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return tried(function)

    monkeypatch.setattr(full_precision, "in_full_precision", limited)
    with pytest.warns(MemoryBackoffWarning, match="recomputed block by block"):
        light = ig.integrated_gradients(model, ids, layer="words", target=1, tol=1e-4)
    assert light.certificate.only.precision == "float32 with bfloat16 weights"
    assert light.certificate.only.note == NOTE
    torch.testing.assert_close(light.values, plain.values, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(checkpointing, "blocks_of", lambda model: ())
    other = ig.integrated_gradients(stack().bfloat16(), ids, layer="words", target=1, tol=0.1)
    assert other.certificate.only.precision == "bfloat16", "without blocks it is what it can be"


def test_a_try_as_in_float32_holds_one_graph_at_a_time():
    model = stack().bfloat16()
    x = model.words(words()).detach()
    with undisturbed(model):
        function = build(model.deep, x, target=1)
        with Saved() as saved:
            wide = full_precision.in_full_precision(function)
        assert wide is not None
        with Saved() as once:
            wide.value_and_grad(tuple(leaf.clone() for leaf in wide.inputs), torch.zeros(1, dtype=torch.long))
    assert saved.most <= 1.1 * once.most


@pytest.mark.filterwarnings("ignore::integrand.errors.MemoryBackoffWarning")
def test_what_does_not_fit_even_so(monkeypatch):
    exhausted(monkeypatch, 100)
    with pytest.raises(MemoryLimitError, match=r"single row .*recomputed block by block; use a smaller input .*device_map"):
        ig.integrated_gradients(stack(), words(), layer="words", target=1)
    with pytest.raises(MemoryLimitError, match=r"nn\.ModuleList"):
        ig.integrated_gradients(lambda x: x.sin().sum(1), torch.ones(1, 200))


def test_other_threads_save_as_ever():
    """A block's forward function is everybody's: what another thread runs through it meanwhile is not checkpointed."""
    model = stack().requires_grad_(False)
    x = model.words(words()).detach()
    seen: list[int] = []

    def bystander() -> None:
        with Saved() as saved:
            model.deep(x.clone().requires_grad_())
        seen.append(saved.most)

    with checkpointed(model.blocks):
        for _ in range(2):
            other = threading.Thread(target=bystander)
            other.start()
            other.join()
            with Saved() as mine:
                model.deep(x.clone().requires_grad_())
    assert min(seen) > 5 * mine.most


class Cache:
    """Keys and values of earlier tokens, as language models keep them."""

    def __init__(self, length: int) -> None:
        self.length = length

    def get_seq_length(self) -> int:
        """How many tokens it holds."""
        return self.length


@pytest.mark.parametrize(("length", "saves"), [(0, False), (3, True)])
def test_caches(monkeypatch, length, saves):
    """An empty cache is left out, so that a block which runs twice does not fill it; one that is not stops the recomputing."""
    monkeypatch.setattr(checkpointing, "CACHES", ("cache",))
    block, given = Block().eval(), []
    plain = block.forward
    block.forward = lambda x, *, cache=None: given.append(cache) or plain(x)  # type: ignore
    x, cache = torch.randn(1, 3, WIDE, requires_grad=True), Cache(length)
    with Saved() as saved, checkpointed([block]):
        block(x, cache=cache)
    assert given == [cache if saves else None]
    assert (saved.most > 4 * x.nbytes) == saves


def test_what_is_differentiated_further_is_held():
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 3)) for _ in range(9))
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(*blocks))
    given: dict[str, Any] = {"target": 1, "steps": 3, "tol": 1e9, "create_graph": True}
    plain, light = (
        ig.integrated_gradients(model.double().eval(), torch.ones(1, 3, dtype=torch.float64), memory=memory, **given)
        for memory in (None, 3000)
    )
    assert light.certificate.only.note == NOTE
    grads = [torch.autograd.grad(one.values.square().sum(), model[0].weight)[0] for one in (plain, light)]  # type: ignore
    torch.testing.assert_close(*grads)


def test_models_that_differentiate_something_themselves(monkeypatch):
    """What is counted without being held cannot be differentiated: the bytes are then measured on the first chunk."""

    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3)))

        def forward(self, x: Tensor) -> Tensor:
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(self.blocks(x).sum(), x, create_graph=True)
            return slope.sum(1)

    torch.manual_seed(0)
    model, x = Force().double().eval(), torch.ones(1, 3, dtype=torch.float64)
    counted: list[dict[str, int]] = []
    plain = Evaluator._counted
    monkeypatch.setattr(Evaluator, "_counted", lambda *given: counted.append(plain(*given)) or counted[-1])
    found = ig.integrated_gradients(lambda x: model(x.requires_grad_()), x, memory=1 << 20)
    assert counted == [{}]
    assert found.certificate.converged
