"""Captum's tests with our classes in them: what is replaced, what counts, and what is said of failures."""

from __future__ import annotations

import pytest

from benchmarks import captum_suite

pytest.importorskip("captum", reason="captum is not installed: there are no classes to replace")

TESTS = """
import torch
from captum.attr import NoiseTunnel
from captum.attr._core.integrated_gradients import IntegratedGradients

def test_of_ours():
    NoiseTunnel(IntegratedGradients(lambda x: x.sum(1))).attribute(torch.ones(1, 2), nt_samples=2)

def test_that_fails():
    assert IntegratedGradients(lambda x: x.sum(1)).__module__.startswith("captum"), "not Captum's"

def test_of_neither():
    assert IntegratedGradients.__name__ == "IntegratedGradients"

def test_inside_captum_nothing_is_replaced():
    from captum.attr import IntegratedGradients as inside
    assert inside.__module__.startswith("captum")
"""


def test_classes_are_replaced_where_tests_import_them(tmp_path, capsys):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS, encoding="utf-8")
    found = captum_suite.run(tmp_path, ["."], ["IntegratedGradients"])
    by_name = {test.rpartition("::")[2]: result for test, result in found.items()}
    assert by_name["test_of_ours"] == ["passed", "", ["IntegratedGradients"]]
    assert by_name["test_that_fails"][0] == "failed"
    assert by_name["test_of_neither"] == ["passed", "", []]
    assert by_name["test_inside_captum_nothing_is_replaced"][0] == "passed"
    captum_suite.print_table(found, {test: ["passed", "", []] for test in found})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["tests/test_some.py", "1", "1"]
    assert "not Captum's" in lines[-1]
