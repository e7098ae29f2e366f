"""The comparison on a language model: its integral, its measures, its pairs of prompts and its tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("captum")

from benchmarks.llm_truth import __main__ as program
from benchmarks.llm_truth.decisive import FAMILIES, chosen
from benchmarks.llm_truth.gauss_kronrod import INNER, NODES, WEIGHTS, integral
from benchmarks.llm_truth.measures import rank_correlation, rank_of, relative_error, same_top, share_of
from benchmarks.llm_truth.references import References
from benchmarks.llm_truth.store import Results
from benchmarks.llm_truth.tables import claim_table, meaning_table, truth_tables


@pytest.mark.parametrize(("weights", "degree"), [(WEIGHTS, 22), (INNER, 13)])
def test_the_rules_are_exact_for_polynomials(weights: np.ndarray, degree: int) -> None:
    for power in range(degree + 1):
        assert weights @ NODES**power == pytest.approx((1 + (-1) ** power) / (power + 1), abs=1e-13)


def test_an_integral_with_cliffs_is_found_within_its_doubt() -> None:
    """Two rows of three features each; cliffs a thousandth wide, which the first panels hardly see."""
    places, width = np.array([0.123, 0.5, 0.871]), 1e-3

    def terms(times: np.ndarray) -> np.ndarray:
        bumps = np.exp(-(((times[:, None] - places) / width) ** 2)) / (width * np.sqrt(np.pi))
        return np.stack([bumps, 2 * bumps + times[:, None]], 1)

    dense = integral(terms, panels=25, tol=1e-4, max_nodes=5000)
    exact = np.array([[1.0, 1.0, 1.0], [2.5, 2.5, 2.5]])
    for row in range(2):
        assert relative_error(dense.values[row], exact[row]) <= dense.doubt[row] <= 1e-4


def test_measures() -> None:
    first, second = np.array([3.0, -1.0, 2.0]), np.array([1.0, -4.0, 2.0])
    assert relative_error(first, second) == pytest.approx(5 / 7)
    assert rank_correlation(first, first) == pytest.approx(1.0)
    assert rank_correlation(first, -first) == pytest.approx(-1.0)
    assert same_top(first, second) is False
    assert rank_of([1], first) == 3
    assert rank_of([1, 2], first) == 2
    assert rank_of([0], np.array([np.nan, 1.0, 2.0])) == 3
    assert share_of([0, 1], first) == pytest.approx(4 / 6)


def test_pairs_of_prompts_differ_in_the_decisive_word() -> None:
    pairs = chosen(lambda prompt: True, 40)
    assert Counter(family for family, _ in pairs) == dict.fromkeys(FAMILIES, 10)
    for _, prompt in pairs:
        words, others = prompt.text.split(), prompt.like.split()
        (different,) = [word for word, other in zip(words, others, strict=True) if word != other]
        assert different.strip(".,") == prompt.decisive
        assert prompt.answer != prompt.rather_than
    assert pairs == chosen(lambda prompt: True, 40)


def test_results_are_kept(tmp_path: Path) -> None:
    file, calls = tmp_path / "results.json", []

    def measure() -> dict[str, float]:
        calls.append(1)
        return {"features": 0.123456}

    assert Results(file).measured("truth", "a", measure) == {"features": 0.1235}
    assert Results(file).measured("truth", "a", measure) == {"features": 0.1235}
    assert len(calls) == 1
    Results(file, again=True).measured("truth", "a", measure)
    assert len(calls) == 2


def test_references_come_back_within_their_doubt(tmp_path: Path) -> None:
    from benchmarks.llm_truth.gauss_kronrod import Reference

    class Named:
        name = "a question"

    values = np.random.default_rng(0).normal(size=(1, 1000)) * 37
    References(tmp_path / "r.npz").add([Named()], Reference(values, np.array([1e-3]), 100))
    stored = References(tmp_path / "r.npz").stored("a question")
    assert relative_error(stored.values, values) <= stored.doubt[0] <= 2e-3


def test_tables_of_what_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    """The stored results print, and every claim in them has its reference."""
    program.main(["--table"])
    shown = capsys.readouterr().out
    assert "integrand, 5%" in shown
    assert "Captum LLMGradientAttribution" in shown
    claims = json.loads(program.STORED.read_text(encoding="utf-8"))["claims"]
    assert {row["question"] for row in claims.values()} <= set(References().arrays) | {
        row["question"] for row in claims.values() if row["question"].startswith("stories260K")
    }


def test_tables_of_few_rows() -> None:
    row = {"model": "m", "start": "s", "score": "x", "who": "w", "gradients": 5, "seconds": 1.0, "same top": False}
    lines = list(truth_tables([row | {"features": 0.5, "tokens": 1.25, "ranks": 0.1}, row | {"ranks": -0.4}]))
    assert lines[-1] == "| w | 2 | 5 | 1.0 | 50% (50%) | 125% (125%) | -0.15 (-0.40) | 2 of 2 |"
    claim = {"call": "c", "start": "s", "score": "x", "tol": 0.05, "converged": True, "claimed": 0.04, "question": "q"}
    claim |= {"doubt": 0.001, "gradients": 100, "token ratio": 1.5}
    text = "\n".join(claim_table([claim | {"measured": 0.06}, claim | {"measured": 0.01}]))
    assert "beyond their tolerance: 1 of 2" in text
    good = {"family": "capitals", "who": "w", "rank": 1, "share": 0.5, "first": 0.2, "seconds": 1.0}
    lines = list(meaning_table([good, good | {"rank": 3}, {"family": "capitals", "who": "z", "failed": "E"}], ["capitals"]))
    assert lines[2].startswith("| w | 2 | 50% | 50% | 50% | 50% | 20% |")
    assert "failed: E" in lines[3]
