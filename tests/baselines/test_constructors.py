"""Baselines made from the input: their values, and that the front door takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from integrand import baselines, integrated_gradients
from integrand.errors import InputError, OptionError

IMAGE = torch.linspace(-1, 2, 3 * 6 * 8).reshape(3, 6, 8)
BATCH = torch.stack([IMAGE, IMAGE.flip(1), IMAGE**2])
LOW, HIGH = (-2.0, -1.5, -1.0), (2.0, 2.5, 3.0)

MAKERS: dict[str, Callable[[Tensor], Any]] = {
    "black": lambda x: baselines.black(x, LOW),
    "white": lambda x: baselines.white(x, torch.tensor(HIGH)[:, None, None]),
    "mean": baselines.mean,
    "mean of data": lambda x: baselines.mean(x, of=BATCH),
    "blurred": lambda x: baselines.blurred(x, 1.5),
    "uniform": lambda x: baselines.uniform(x, LOW, HIGH, draws=3),
    "gaussian": lambda x: baselines.gaussian(x, 0.5, draws=3),
    "drawn": lambda x: baselines.drawn(BATCH, 3, like=x),
    "mean over time": lambda x: baselines.time_mean(x),
    "black and white": lambda x: [baselines.black(x), baselines.white(x)],
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_front_door_takes_them(name: str, batched: bool, dtype: torch.dtype) -> None:
    """Attributions of a sum of squares are x**2 - x'**2, on average over the baselines."""
    x = (BATCH if batched else IMAGE).to(dtype)
    baseline = MAKERS[name](x)
    result = integrated_gradients(lambda v: (v**2).sum((-3, -2, -1)), x, baseline, batched=batched)
    several = name in ("uniform", "gaussian", "drawn", "black and white")
    starts = list(baseline) if several else [baseline]
    assert all(start.dtype == dtype for start in starts)
    expected = torch.stack([(x**2 - start**2).expand(x.shape) for start in starts]).mean(0)
    torch.testing.assert_close(result.values, expected, rtol=1e-4, atol=1e-4)


def test_black_and_white_have_a_value_per_channel() -> None:
    for x in (IMAGE, BATCH):
        assert torch.equal(baselines.black(x), torch.zeros_like(x))
        assert torch.equal(baselines.white(x), torch.ones_like(x))
        for given in (LOW, torch.tensor(LOW), torch.tensor(LOW)[:, None, None], np.array(LOW)):
            found = baselines.black(x, given)
            assert found.shape == x.shape
            assert torch.equal(found.amin((-2, -1)), torch.tensor(LOW).expand(x.shape[:-2]))
            assert torch.equal(found.amax((-2, -1)), torch.tensor(LOW).expand(x.shape[:-2]))


def test_other_structures_are_filled_leaf_by_leaf() -> None:
    x = {"a": torch.ones(2, 3), "b": torch.ones(2, 4, dtype=torch.float64)}
    found = baselines.black(x, -1)
    assert set(found) == {"a", "b"}
    assert torch.equal(found["b"], -torch.ones(2, 4, dtype=torch.float64))
    noise = baselines.gaussian(x, draws=4, around={"b": torch.full((2, 4), 9.0), "a": torch.zeros(2, 3)})
    assert noise["a"].shape == (4, 2, 3)
    assert noise["b"].mean() > 5
    result = integrated_gradients(
        lambda a, b: (a**2).sum(1) + (b**2).sum(1), {**x, "b": x["b"].float()}, baselines.black({**x, "b": x["b"].float()}, 0.5)
    )
    torch.testing.assert_close(result.values["a"], torch.full((2, 3), 0.75))


def test_the_mean_colour_is_that_of_each_image() -> None:
    found = baselines.mean(BATCH)
    for i in range(3):
        for c in range(3):
            torch.testing.assert_close(found[i, c], torch.full((6, 8), float(BATCH[i, c].mean())))
    torch.testing.assert_close(baselines.mean(IMAGE), found[0])


def test_the_mean_of_a_training_set() -> None:
    other = [torch.full((3, 2, 2), 1.0), torch.full((3, 9, 5), 4.0)]  # of any size
    assert torch.equal(baselines.mean(BATCH, of=other), torch.full_like(BATCH, 2.5))
    pairs = TensorDataset(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0, 1]))
    assert torch.equal(baselines.mean(torch.zeros(5, 2), of=pairs), torch.tensor([2.0, 4.0]).expand(5, 2))


@pytest.mark.parametrize("sigma", [0.7, 3.0, 40.0])
def test_the_blur_is_that_of_scipy(sigma: float) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x = torch.rand(2, 3, 17, 23, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="reflect", truncate=4.0)
    np.testing.assert_allclose(baselines.blurred(x, sigma).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(baselines.blurred(x[0], sigma).numpy(), expected[0], atol=1e-12)


def test_a_blur_keeps_constants_and_the_sum() -> None:
    flat = torch.full((1, 3, 10, 30), 0.25)
    torch.testing.assert_close(baselines.blurred(flat), flat)
    torch.testing.assert_close(baselines.blurred(BATCH).sum((-2, -1)), BATCH.sum((-2, -1)))
    torch.testing.assert_close(baselines.blurred(BATCH), baselines.blurred(BATCH, 0.8))  # a tenth of 8 pixels


def test_noise_repeats_with_its_seed_and_leaves_torch_alone() -> None:
    state = torch.get_rng_state()
    for make in (baselines.uniform, baselines.gaussian):
        assert torch.equal(make(IMAGE, seed=3), make(IMAGE, seed=3))
        assert not torch.equal(make(IMAGE, seed=3), make(IMAGE, seed=4))
        assert torch.equal(make(IMAGE.double(), seed=3).float(), make(IMAGE, seed=3))
        first, second = make(IMAGE, draws=2)
        assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_examples_of_a_batch_share_their_noise() -> None:
    """So that an example's answer does not depend on its neighbours."""
    for make in (baselines.uniform, baselines.gaussian):
        alone, together = make(BATCH[:1]), make(BATCH)
        assert alone.shape == (10, 1, 3, 6, 8)
        assert together.shape == (10, 3, 3, 6, 8)
        assert torch.equal(together, alone.expand(together.shape))
    rows = baselines.uniform(torch.zeros(2, 3), batched=False)
    assert not torch.equal(rows[:, 0], rows[:, 1])


def test_noise_has_the_moments_asked_for() -> None:
    x = torch.zeros(3, 40, 40)
    flat = baselines.uniform(x, LOW, HIGH, draws=20).transpose(0, 1).flatten(1)
    for c in range(3):
        assert LOW[c] <= float(flat[c].min()) <= LOW[c] + 0.01
        assert HIGH[c] - 0.01 <= float(flat[c].max()) <= HIGH[c]
        assert float(flat[c].std()) == pytest.approx((HIGH[c] - LOW[c]) / 12**0.5, rel=0.02)
    noise = baselines.gaussian(x, (0.1, 1.0, 2.0), around=5.0, draws=20).transpose(0, 1).flatten(1)
    np.testing.assert_allclose(noise.mean(1), 5.0, atol=0.05)
    np.testing.assert_allclose(noise.std(1), (0.1, 1.0, 2.0), rtol=0.02)
    cut = baselines.gaussian(x, 3.0, low=-1.0, high=0.5)
    assert (float(cut.min()), float(cut.max())) == (-1.0, 0.5)
    around = baselines.gaussian(BATCH, 1e-6, around=BATCH, draws=2)
    torch.testing.assert_close(around, BATCH.expand(2, *BATCH.shape), atol=1e-4, rtol=0)


def test_draws_come_from_the_data_without_repetition() -> None:
    data = torch.arange(50.0).reshape(10, 5)
    found = baselines.drawn(data, 10, seed=1)
    assert sorted(float(row[0]) for row in found) == [5.0 * i for i in range(10)]
    assert all(any(torch.equal(row, one) for one in data) for row in found)
    labels = torch.arange(10)
    pairs = [(row, label) for row, label in zip(data, labels, strict=True)]
    for source in (TensorDataset(data, labels), pairs, list(data), data):
        again = baselines.drawn(source, 4, seed=1)
        assert all(torch.equal(a, b) for a, b in zip(again, found[:4], strict=True))
    assert baselines.drawn(data, 2, like=torch.zeros(3, 5, dtype=torch.float64))[0].dtype == torch.float64
    two = [((torch.zeros(2), torch.ones(3)), 0), ((torch.ones(2), torch.ones(3)), 1)]
    drawn = baselines.drawn(two, 2, like=(torch.zeros(4, 2), torch.zeros(4, 3)))
    assert all(isinstance(one, tuple) and len(one) == 2 for one in drawn)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: baselines.black(torch.ones(2, 3, dtype=torch.long)), InputError, "dtype torch.int64; expected floating"),
        (
            lambda: baselines.black(IMAGE, (1.0, 2.0)),
            InputError,
            r"shape \(2, 1, 1\), which does not fit x of shape \(3, 6, 8\)",
        ),
        (lambda: baselines.black(IMAGE, "black"), OptionError, "expected a number"),
        (lambda: baselines.white(IMAGE, float("nan")), OptionError, "finite"),
        (lambda: baselines.mean(torch.ones(2, 3)), InputError, "pass of="),
        (lambda: baselines.mean(torch.ones(2, 3), of=[torch.ones(3), torch.ones(4)]), InputError, "differ in shape"),
        (lambda: baselines.mean(torch.ones(2, 3), of=[{"a": torch.ones(3)}]), InputError, "the structure of x"),
        (lambda: baselines.blurred(torch.ones(2, 3)), InputError, "to blur; expected images"),
        (lambda: baselines.blurred(IMAGE, 0.0), OptionError, "sigma=0.0"),
        (lambda: baselines.uniform(IMAGE, 1.0, 0.0), OptionError, "above high"),
        (lambda: baselines.uniform(IMAGE, draws=0), OptionError, "draws=0"),
        (lambda: baselines.drawn(torch.ones(3, 2), 4), OptionError, "draws=4 from 3 examples"),
        (lambda: baselines.drawn(iter([1]), 1), InputError, "list_iterator as data"),  # type: ignore[arg-type]
        (lambda: baselines.drawn([], 1), InputError, "no examples"),
        (lambda: baselines.drawn([1, 2], 1), InputError, "expected a torch tensor"),
        (lambda: baselines.drawn([torch.ones(2), torch.ones(3)], 2), InputError, "expected the same"),
        (lambda: baselines.drawn(torch.ones(3, 2), 1, like=torch.ones(3, 4)), InputError, r"expected \(4,\) for a batch x"),
        (lambda: baselines.drawn(torch.ones(3, 2), 1, like=(torch.ones(3, 2),)), InputError, "the structure of x"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_the_mean_over_time_and_the_trend_are_those_of_each_channel() -> None:
    x = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times = torch.tensor([0.0, 1.0, 2.0, 4.0, 7.0, 8.0, 9.5, 20.0, 21.0])
    torch.testing.assert_close(baselines.time_mean(x), x.mean(1, keepdim=True).expand(x.shape))
    torch.testing.assert_close(baselines.time_mean(x.mT, dim=-1), x.mean(1, keepdim=True).expand(x.shape).mT)
    made = baselines.trend(x, times=times)
    design = torch.stack([torch.ones(9), times], 1).double()
    for one, line in zip(x, made, strict=True):
        torch.testing.assert_close(line, design @ torch.linalg.lstsq(design, one).solution)
    torch.testing.assert_close(baselines.trend(x[0, :, 0], dim=-1), baselines.trend(x[0, :, :1])[:, 0])
    straight = 3 + 2 * times[:, None].double()
    torch.testing.assert_close(baselines.trend(straight, times=times), straight)
    single = torch.tensor([[5.0, 6.0]])
    torch.testing.assert_close(baselines.trend(single), single)


def test_series_that_are_none() -> None:
    with pytest.raises(InputError, match="pass dim=-1"):
        baselines.trend(torch.ones(4))
    with pytest.raises(InputError, match=r"got \(3,\) times for 4 values"):
        baselines.trend(torch.ones(4, 2), times=[0.0, 1.0, 2.0])
