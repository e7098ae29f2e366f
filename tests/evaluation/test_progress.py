"""Progress: told to a callback, drawn on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import integrand as ig
from integrand.evaluation.progress import Reporter

X = torch.linspace(-2, 3, 20, dtype=torch.float64).reshape(5, 4)


def model(x: Tensor) -> Tensor:
    return torch.relu(torch.sin(5 * x)).sum(1)


def told(**options: object) -> tuple[list[ig.Progress], ig.Attribution]:
    heard: list[ig.Progress] = []
    result = ig.integrated_gradients(model, X, progress=heard.append, **options)  # type: ignore[arg-type]
    return heard, result


WAYS = {
    "to a tolerance": {"tol": 1e-3},
    "with little memory": {"tol": 1e-2, "chunk": 3},
    "fixed": {"steps": 40, "tol": 1e9, "chunk": 7},
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_progress_goes_forward(options: dict[str, object]) -> None:
    heard, _ = told(**options)
    assert len(heard) > 1
    for one, two in pairwise(heard):
        assert two.gradients >= one.gradients
        assert two.finished >= one.finished
    for one in heard:
        assert one.examples == 5
        assert 0 <= one.finished <= 5
        assert one.expected >= one.gradients > 0


@pytest.mark.parametrize("options", [WAYS["to a tolerance"], WAYS["with little memory"]])
def test_progress_is_complete_at_the_end(options: dict[str, object]) -> None:
    heard, result = told(**options)
    assert heard[-1].finished == 5
    assert heard[-1].gradients == heard[-1].expected == result.certificate.gradients


def test_progress_of_a_fixed_rule_is_complete_at_the_end() -> None:
    heard, result = told(**WAYS["fixed"])
    assert heard[-1].gradients == heard[-1].expected == result.certificate.gradients == 200
    assert heard[-1].finished == 5


def test_a_failing_callback_is_the_users_own() -> None:
    def callback(progress: ig.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ig.integrated_gradients(model, X, progress=callback)


# ---- the bar -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "terminal", "shown"), [(None, False, False), (None, True, True), (False, True, False), (True, False, True)]
)
def test_when_there_is_a_bar(option: bool | None, terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    reporter = Reporter(option)
    assert (reporter._bar is not None) is shown
    reporter.tell(ig.Progress(2, 1, 10, 30))
    if reporter._bar is not None:
        assert reporter._bar.n == 10
        assert reporter._bar.total == 30
    reporter.close()


def test_nothing_is_printed_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    ig.integrated_gradients(model, X)
    assert capfd.readouterr() == ("", "")


def test_no_tqdm_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert ig.integrated_gradients(model, X, progress=True).certificate.converged


def test_a_quick_run_draws_nothing_even_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar waits for two seconds."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ig.integrated_gradients(model, X)
    assert capsys.readouterr().err.strip() == ""
