"""Progress: told to a callback, drawn on a terminal, silent elsewhere."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

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
    reporter.tell(ig.Progress(2, 1, 10, 30))
    assert (reporter._bar is not None) is shown
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


NOTEBOOK = """
import sys, types, warnings
warnings.simplefilter("error")
import tqdm.std
shell = types.SimpleNamespace(config=["IPKernelApp"], kernel=None)
sys.modules["IPython"] = fake = types.ModuleType("IPython")
fake.get_ipython = lambda: shell
sys.modules["ipywidgets"] = None
from integrand.evaluation import progress
progress.DELAY = 0.0
teller = progress.Reporter({option})
for done, total in ((10, 20), (20, 40), (40, 40)):
    teller.tell(progress.Progress(2, 0, done, total))
print(type(teller._bar).__module__, teller._bar.total, teller._bar.n, teller._bar.format_dict["elapsed"] >= 0)
teller.close()
"""


@pytest.mark.parametrize("option", ["True", "None"])
def test_a_notebook_without_widgets_has_a_bar_and_no_warning(option: str) -> None:
    done = subprocess.run([sys.executable, "-c", NOTEBOOK.format(option=option)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == ["40", "40", "True"]
    assert "integrating: " in done.stderr
    assert "<" in done.stderr  # elapsed<left


def test_the_total_of_a_widget_is_known_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Widget:
        def __init__(self, total: int, **_: object) -> None:
            self.total, self.n, self.start_t = total, 0, 0.0
            self.container = SimpleNamespace(children=[None, SimpleNamespace(max=total), None])
            made.append(self)

        def set_postfix_str(self, text: str, refresh: bool) -> None: ...

        def update(self, count: int) -> None:
            self.n += count

    made: list[Widget] = []
    monkeypatch.setattr("tqdm.auto.tqdm", Widget)
    teller = Reporter(True)
    assert not made  # a widget that begins without a total shows no time left
    for done, total in ((5, 10), (10, 30)):
        teller.tell(ig.Progress(1, 0, done, total))
        assert made[0].container.children[1].max == total  # type: ignore[union-attr]
    assert (len(made), made[0].n, made[0].total) == (1, 10, 30)
