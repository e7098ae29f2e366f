"""The result: sums, arrays, lines to print, files."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import integrand as ig
from integrand.errors import ConvergenceWarning, FileError, InputError, OptionError

VALUES = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4) - 7


def certificate(count: int = 2, **fields: object) -> ig.Certificate:
    """One that was not computed, for what is done with it."""
    plain = {
        "score": 1.25,
        "baseline_score": -0.5,
        "residual": -1e-4,
        "magnitude": 4.0,
        "error": 0.004,
        "tol": 0.01,
        "gradients": 21,
        "forwards": 3,
        "status": ig.Status.CONVERGED,
        "rule": "adaptive Romberg",
        "precision": "float64",
        "target": "output [3] (logit)",
    }
    return ig.Certificate((ig.ExampleCertificate(**plain | fields),) * count)  # type: ignore[arg-type]


def attribution(values: object = VALUES, *, batched: bool = True, **fields: object) -> ig.Attribution:
    return ig.Attribution(values, certificate(2 if batched else 1, **fields), batched, {"method": "made up"})  # type: ignore[arg-type]


# ---- sums -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1, (1, 2), [0, 2]])
def test_sum_by_dimension(dim: int | tuple[int, ...]) -> None:
    expected = VALUES.numpy().sum(tuple(dim) if isinstance(dim, list) else dim)
    np.testing.assert_array_equal(attribution().sum(dim), expected)


def test_sum_without_a_dimension_is_one_total_per_example() -> None:
    assert attribution().sum().tolist() == VALUES.numpy().sum((1, 2)).tolist()
    pair = attribution((VALUES, 10 * VALUES[:, 0]))
    assert pair.sum().tolist() == (VALUES.sum((1, 2)) + 10 * VALUES[:, 0].sum(1)).tolist()
    assert attribution(VALUES[0], batched=False).sum().item() == VALUES[0].sum().item()
    assert attribution(torch.tensor([1.0, 2.0])).sum().tolist() == [1, 2]
    assert attribution(torch.tensor(3.0), batched=False).sum().item() == 3


def test_totals_are_taken_in_float64() -> None:
    """A tenth a million times over: float32 alone would be off in the fifth digit."""
    values = torch.full((1, 1_000_000), 0.1)
    assert float(ig.Attribution(values, certificate(1)).sum()) == pytest.approx(1e6 * float(np.float32(0.1)), rel=1e-12)


def test_sum_by_group() -> None:
    labels = torch.tensor([[0, 0, 1, -1], [2, 2, 2, 2], [1, 1, 0, -1]])
    found = attribution().sum(groups=labels)
    expected = np.zeros((2, 3))
    for (i, row, column), value in np.ndenumerate(VALUES.numpy()):
        if labels[row, column] >= 0:
            expected[i, labels[row, column]] += value
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(attribution(VALUES[1], batched=False).sum(groups=labels), expected[1])


def test_groups_broadcast_and_join_tensors() -> None:
    """Labels of shape (4,) count columns; a label may name features of several tensors."""
    np.testing.assert_array_equal(attribution().sum(groups=torch.arange(4)), VALUES.sum(1))
    other = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    joined = attribution({"a": VALUES, "b": other}).sum(groups={"a": torch.arange(4), "b": torch.tensor([3])})
    np.testing.assert_array_equal(joined, VALUES.sum(1) + torch.cat([torch.zeros(2, 3), other], 1))


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (torch.zeros(3, 4), "expected integers"),
        (torch.zeros(3, 4, dtype=torch.bool), "expected integers"),
        (torch.zeros(5, dtype=torch.long), r"groups has shape \(5,\); expected \(3, 4\)"),
        (torch.full((4,), -1), "labels no feature"),
        ((torch.zeros(4, dtype=torch.long),) * 2, r"groups is a tuple of 2 tensor\(s\); expected one tensor"),
        ([0, 1], r"groups\[0\] is a int; expected a torch tensor"),
    ],
)
def test_groups_that_make_no_sense(groups: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        attribution().sum(groups=groups)
    with pytest.raises(OptionError, match="both dim= and groups="):
        attribution().sum(1, groups=groups)


def test_groups_of_the_front_door_are_the_same_sums() -> None:
    x, labels = torch.randn(3, 6, dtype=torch.float64), torch.tensor([0, 1, 1, 2, 0, -1])
    plain = ig.integrated_gradients(lambda z: (z**3).sum(1), x)
    grouped = ig.integrated_gradients(lambda z: (z**3).sum(1), x, groups=labels)
    torch.testing.assert_close(grouped.values, plain.sum(groups=labels))


# ---- arrays ---------------------------------------------------------------------------------------------------------------


def test_numpy_keeps_the_structure() -> None:
    np.testing.assert_array_equal(attribution().numpy(), VALUES.numpy())
    one, two = attribution((VALUES, VALUES[:, 0])).numpy()
    assert one.shape == (2, 3, 4)
    assert two.shape == (2, 4)
    assert list(attribution({"a": VALUES, "b": VALUES}).numpy()) == ["a", "b"]


def test_numpy_asarray() -> None:
    result = attribution()
    array = np.asarray(result)
    assert array.dtype == np.float64
    assert np.shares_memory(array, VALUES.numpy())
    assert not np.shares_memory(np.array(result, copy=True), VALUES.numpy())
    assert np.asarray(result, dtype=np.float32).dtype == np.float32
    assert np.asarray(attribution(VALUES.bfloat16())).dtype == np.float32
    assert np.array(result, copy=False).shape == VALUES.shape
    with pytest.raises(ValueError, match="without a copy"):
        np.array(result, copy=False, dtype=np.float32)
    with pytest.raises(InputError, match=r"the values are a tuple of 2 tensors; use result.numpy\(\)"):
        np.asarray(attribution((VALUES, VALUES)))


def test_numpy_of_values_with_a_graph() -> None:
    values = VALUES.clone().requires_grad_(True)
    np.testing.assert_array_equal(attribution(values * 2).numpy(), 2 * VALUES.numpy())


# ---- certificates in words -------------------------------------------------------------------------------------------------


def test_one_line_per_example() -> None:
    assert len(repr(attribution()).splitlines()) == 1 + 2
    lines = str(certificate(12)).splitlines()
    assert [line[:5] for line in (lines[0], lines[11])] == ["[ 0] ", "[11] "]
    assert len(str(attribution(VALUES[0], batched=False)).splitlines()) == 2


def test_a_line_says_all_that_matters() -> None:
    line = str(certificate(1))
    for part in ("F(x) 1.25", "F(x') -0.5", "sum misses -1.0e-04", "error 0.4% (tol 1%)", "21 gradients", "converged"):
        assert part in line


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"status": ig.Status.BUDGET, "error": 0.2, "needed": 900}, ["budget spent", "20%", "about 900 evaluations"]),
        ({"status": ig.Status.BUDGET, "error": math.nan}, ["error unknown", "too few steps to estimate the error"]),
        ({"status": ig.Status.NOISE, "precision": "bfloat16"}, ["noise floor", "gradients in bfloat16", "in float32 or"]),
        ({"status": ig.Status.NOISE, "precision": "float32"}, ["noise floor", "gradients in float32", "in float64 or"]),
        (
            {"status": ig.Status.JUMP, "jump_at": 0.25, "jump_size": 2.0},
            ["not complete", "jumps by 2 at t = 0.25", "before the"],
        ),
    ],
)
def test_every_status_has_a_remedy(fields: dict[str, object], parts: list[str]) -> None:
    line = str(certificate(1, **fields))
    for part in parts:
        assert part in line
    assert certificate(1, **fields)[0].remedy in line
    assert not certificate(1, **fields).converged


def test_certificates_as_a_sequence() -> None:
    both = ig.Certificate((certificate(1)[0], certificate(1, error=0.5, status=ig.Status.BUDGET)[0]))
    assert len(both) == len(list(both)) == 2
    assert both[1].error == both.error == 0.5
    assert not both.converged
    assert both.gradients == 42
    assert both.forwards == 6
    assert math.isnan(ig.Certificate((both[0], certificate(1, error=math.nan)[0])).error)
    assert certificate(1).only is not None
    with pytest.raises(OptionError, match="there are 2 examples"):
        _ = both.only


def test_results_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        attribution().values = VALUES  # type: ignore[misc]


# ---- files -----------------------------------------------------------------------------------------------------------------


def explained(kind: str) -> ig.Attribution:
    first, second = torch.randn(1, 2, 3), torch.randn(1, 4)

    def model(a: Tensor, b: Tensor | None = None) -> Tensor:
        return torch.sin(a).sum((1, 2)) + (0 if b is None else (b**3).sum(1))

    x = {"tensor": first, "tuple": (first, second), "dict": {"a": first, "b": second}}[kind]
    return ig.integrated_gradients(model, x)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict"])
def test_what_is_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    result = explained(kind)
    path = result.save(tmp_path / "result.safetensors")
    loaded = ig.Attribution.load(str(path))
    assert type(loaded.values) is type(result.values)
    torch.testing.assert_close(loaded.values, result.values, rtol=0, atol=0)
    assert loaded.certificate == result.certificate
    assert loaded.meta == result.meta
    assert loaded.batched == result.batched
    assert repr(loaded) == repr(result)


def test_what_did_not_converge_is_saved_too(tmp_path: Path) -> None:
    """NaN, statuses, curves and half precision survive."""
    x = torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16)
    with pytest.warns(ConvergenceWarning):
        result = ig.integrated_gradients(lambda z: (z**2).sum(1), x, [0.0 * x, 0.5 * x], steps=1)
    loaded = ig.Attribution.load(result.save(tmp_path / "r.safetensors"))
    assert loaded.values.dtype == torch.bfloat16
    assert math.isnan(loaded.certificate.only.error)
    assert loaded.certificate.only.status is ig.Status.BUDGET
    assert len(loaded.certificate.only.curves) == 2
    assert repr(loaded) == repr(result)


def test_values_with_a_graph_and_views_are_saved(tmp_path: Path) -> None:
    base = torch.arange(6.0, requires_grad=True)
    result = ig.Attribution((base[None, :2], base.reshape(2, 3).T[None]), certificate(1))
    loaded = ig.Attribution.load(result.save(tmp_path / "r.safetensors"))
    assert [value.tolist() for value in loaded.values] == [[[0, 1]], [[[0, 3], [1, 4], [2, 5]]]]


def rewritten(path: Path, **changes: object) -> Path:
    """A saved file with another header."""
    explained("tensor").save(path)
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()["integrand"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    header |= changes
    save_file(tensors, str(path), metadata={"integrand": json.dumps({k: v for k, v in header.items() if v is not None})})
    return path


@pytest.mark.parametrize("version", [3, 17])
def test_a_newer_format_is_refused(version: int, tmp_path: Path) -> None:
    path = rewritten(tmp_path / "new.safetensors", format=version, structure="nobody knows")
    with pytest.raises(FileError, match=f"has format {version}; this version reads up to 2. Update integrand"):
        ig.Attribution.load(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"layer.weight": torch.ones(3)}, str(path))
    with pytest.raises(FileError, match="a safetensors file but not an attribution"):
        ig.Attribution.load(path)
    save_file({"values.0": torch.ones(3)}, str(path), metadata={"integrand": "not json"})
    with pytest.raises(FileError, match="damaged header"):
        ig.Attribution.load(path)


@pytest.mark.parametrize(
    "change", [{"certificate": None}, {"structure": {}}, {"certificate": [{"curves": []}]}, {"format": None}]
)
def test_a_damaged_header_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = rewritten(tmp_path / "bad.safetensors", **change)
    with pytest.raises(FileError, match=r"[Ee]xpected a file written by Attribution\.save"):
        ig.Attribution.load(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.safetensors"
    path.write_text("not tensors at all")
    with pytest.raises(FileError, match="is not an attribution"):
        ig.Attribution.load(path)
    with pytest.raises(FileError, match=r"cannot be read \(No such file or directory\); expected an attribution"):
        ig.Attribution.load(tmp_path / "missing.safetensors")


def test_endings_decide(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"got the ending '.pkl'; expected .safetensors"):
        attribution().save(tmp_path / "r.pkl")
    with pytest.raises(OptionError, match=r"got options \['title'\] for a .safetensors file"):
        attribution().save(tmp_path / "r.safetensors", title="no")


def test_with_groups_the_tolerance_is_that_of_their_sums() -> None:
    """Sums cancel, so that an error that is small beside all features may be large beside the groups."""
    torch.manual_seed(0)
    layers = [nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)]
    net, x = nn.Sequential(*layers).double().eval(), torch.randn(30, 40, dtype=torch.float64)
    for labels in (torch.arange(40) // 10, torch.arange(40) // 10 - 1):
        found, truth = (ig.integrated_gradients(net, x, target=1, groups=labels, tol=tol) for tol in (0.05, 1e-4))
        assert found.certificate.converged
        off = (found.values - truth.values).abs().sum(1)
        claimed = torch.tensor([one.error * one.magnitude for one in found.certificate])
        assert bool((off <= 1.2 * claimed).all())
        assert float((off <= claimed).double().mean()) >= 0.95
        rest = truth.values.sum(1) if labels.min() == 0 else None
        if rest is not None:
            change = torch.tensor([one.score - one.baseline_score for one in truth.certificate], dtype=torch.float64)
            torch.testing.assert_close(rest, change, rtol=1e-3, atol=1e-4)
