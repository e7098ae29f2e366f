"""The answer does not depend on the execution: chunks, order, company, threads, memory, compiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import integrand as ig
from tests.networks import Case, distance, networks

SAME = 1e-10
"""Rounding in another order (a few 1e-16 of the largest term), with room for cancellation; far below any tolerance."""

several = settings(max_examples=15, deadline=None, derandomize=True, database=None)
WAYS = {"to a tolerance": {"tol": 1e-3}, "fixed": {"steps": 12, "tol": 1e9}}


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> dict[str, float]:
    return WAYS[request.param]


def explain(case: Case, **options: object) -> ig.Attribution:
    return ig.integrated_gradients(case.model, case.x, case.baseline, **options)  # type: ignore[arg-type]


def same(a: ig.Attribution, b: ig.Attribution) -> None:
    assert distance(a.values, b.values) <= SAME
    assert [c.gradients for c in a.certificate] == [c.gradients for c in b.certificate]
    assert [c.error for c in a.certificate] == pytest.approx([c.error for c in b.certificate], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@given(case=networks(examples=4), chunk=st.sampled_from([1, 2, 3, 7, 64, 5000]))
@several
def test_chunk_size(options: dict[str, float], case: Case, chunk: int) -> None:
    same(explain(case, chunk=chunk, **options), explain(case, **options))


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@given(case=networks(examples=5), order=st.permutations(range(5)))
@several
def test_batch_order(options: dict[str, float], case: Case, order: list[int]) -> None:
    shuffled = Case(case.model, case.x[order], case.baseline[order], case.activation, case.generator)
    found, expected = explain(shuffled, **options), explain(case, **options)
    assert distance(found.values, expected.values[order]) <= SAME
    assert [c.gradients for c in found.certificate] == [expected.certificate[i].gradients for i in order]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@given(case=networks(examples=5), count=st.integers(1, 4))
@several
def test_company_in_the_batch(options: dict[str, float], case: Case, count: int) -> None:
    """Alone, or with any others: an example's values, cost and estimate are its own."""
    some, all_of_them = explain(case.rows(count), **options), explain(case, **options)
    assert distance(some.values, all_of_them.values[:count]) <= SAME
    for one, other in zip(some.certificate, all_of_them.certificate, strict=False):
        assert one.gradients == other.gradients
        assert one.error == pytest.approx(other.error, rel=1e-6, abs=1e-12)
        assert one.status == other.status


@given(case=networks(examples=3))
@settings(several, max_examples=5)
def test_thread_count(case: Case) -> None:
    expected = explain(case, tol=1e-3)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        same(explain(case, tol=1e-3), expected)
    finally:
        torch.set_num_threads(threads)


@given(case=networks(examples=4, relu=True), memory=st.sampled_from([1, 1000, 5000, 20_000, 100_000]))
@settings(several, max_examples=12)
def test_memory_budget(case: Case, memory: int) -> None:
    """With too little memory to keep gradients, panels let go of their nodes and evaluate them again: same values."""
    tight, ample = explain(case, tol=1e-3, memory=memory), explain(case, tol=1e-3)
    assert tight.certificate.converged
    if not any("Romberg" in c.rule for c in ample.certificate):
        assert distance(tight.values, ample.values) <= SAME


@given(case=networks(examples=4), memory=st.sampled_from([1, 5000, 20_000]))
@settings(several, max_examples=12)
def test_memory_budget_of_smooth_networks(case: Case, memory: int) -> None:
    """Romberg's rule needs all nodes at once: without room for them another rule keeps the tolerance."""
    tight, ample = explain(case, tol=1e-3, memory=memory), explain(case, tol=1e-3)
    assert tight.certificate.converged
    assert distance(tight.values, ample.values) <= 2e-3


@given(case=networks(examples=2))
@settings(several, max_examples=3)
def test_compiled(case: Case) -> None:
    """The tracer alone, without code generation: what changes is how the model is called."""
    expected = explain(case, tol=1e-3)
    torch.compiler.reset()
    model = torch.compile(case.model, backend="eager", dynamic=True)
    found = ig.integrated_gradients(model, case.x, case.baseline, tol=1e-3)
    same(found, expected)


def test_float32_is_the_same_to_its_own_rounding(way: dict[str, float]) -> None:
    """Chunks of another size round another way; which panels are halved must not hang on that."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    model = torch.nn.Sequential(*layers)
    x = torch.randn(6, 64)
    expected = ig.integrated_gradients(model, x, **way)
    for chunk in (1, 5, 17, 300):
        found = ig.integrated_gradients(model, x, chunk=chunk, **way)
        # Gradients in float32 differ by some 1e-7 between batch sizes.
        assert distance(found.values, expected.values) <= 1e-5


def test_several_inputs_are_one_vector(way: dict[str, float]) -> None:
    """A tuple or a dict of tensors is the same function as their concatenation."""
    torch.manual_seed(1)
    first, second = torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    weights = torch.randn(9, dtype=torch.float64)

    def joined(x: Tensor) -> Tensor:
        return torch.tanh(x @ weights) + x[:, 0] * x[:, -1]

    def apart(a: Tensor, b: Tensor) -> Tensor:
        return joined(torch.cat([a.flatten(1), b], 1))

    whole = ig.integrated_gradients(joined, torch.cat([first.flatten(1), second], 1), **way)
    pair = ig.integrated_gradients(apart, (first, second), **way)
    named = ig.integrated_gradients(apart, {"a": first, "b": second}, **way)
    for parts in (pair.values, tuple(named.values.values())):
        assert [part.shape for part in parts] == [first.shape, second.shape]
        assert distance(torch.cat([parts[0].flatten(1), parts[1]], 1), whole.values) <= SAME


def test_a_model_without_a_batch_dimension_is_the_same(way: dict[str, float]) -> None:
    def one(x: Tensor) -> Tensor:
        return torch.sin(x[0]) * torch.exp(x[1]) + x.sum()

    batch: Callable[[Tensor], Tensor] = torch.vmap(one)
    x = torch.tensor([0.7, -1.2, 2.0], dtype=torch.float64)
    alone = ig.integrated_gradients(one, x, batched=False, **way)
    assert alone.values.shape == x.shape
    assert distance(alone.values[None], ig.integrated_gradients(batch, x[None], **way).values) <= SAME
