"""Classifiers compared on one text: words that both tokenizers share, sums that are kept, classes found by name."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from integrand import text
from integrand.analysis.model_comparison import ModelComparison
from integrand.apps.text.text_pair import shared_words
from integrand.cli.app import app
from integrand.errors import OptionError

from .tiny import classifier

SAID = "the film was not bad, not unbelievable to watch "


@pytest.fixture(scope="module")
def both() -> dict[str, tuple[Any, Any]]:
    return {"bert": classifier("bert"), "roberta": classifier("roberta")}


@pytest.fixture(scope="module")
def found(both: dict[str, tuple[Any, Any]]) -> ModelComparison:
    return text.compare(SAID, both)


def test_words_of_two_tokenizers_are_the_stretches_that_neither_crosses() -> None:
    assert shared_words([[(0, 3), (4, 7), (7, 9)], [(0, 0), (0, 3), (4, 8), (8, 9)]]) == [(0, 3), (4, 9)]
    assert shared_words([[(0, 2), (2, 4)], [(0, 4)], [(5, 6)]]) == [(0, 4), (5, 6)]


def test_words_add_up_to_what_each_model_has_by_itself(both: dict[str, tuple[Any, Any]], found: ModelComparison) -> None:
    words = [row["feature"] for row in found.table()]
    expected = ["'the'", "'film'", "'was'", "'not' (1)", "'bad'", "','", "'not' (2)", "'unbelievable'", "'to'", "'watch'"]
    assert words[:10] == expected
    for name, (model, tokenizer) in both.items():
        alone = text.explain(model, tokenizer, SAID, target=found.answers[name][0].explained)
        assert float(found.values[name].sum()) == pytest.approx(float(alone.values.sum()), abs=1e-12)  # type: ignore[union-attr]
        bad = [i for i, word in enumerate(alone.words().tokens) if word == "bad"]
        assert float(found.values[name][0, 4]) == pytest.approx(float(alone.words().values[bad].sum()))  # type: ignore[index]
    assert found.unit == "probability"
    assert found.answers["bert"][0].label == found.answers["roberta"][0].explained


def test_the_class_is_found_by_its_name(both: dict[str, tuple[Any, Any]]) -> None:
    model, tokenizer = classifier("roberta")
    model.config.id2label = {0: "good", 1: "so so", 2: "poor"}
    model.config.label2id = {"good": 0, "so so": 1, "poor": 2}
    pair = {"bert": both["bert"], "other": (model, tokenizer)}
    with pytest.raises(OptionError, match=r"has no class of that name.*target="):
        text.compare(SAID, pair)
    told = text.compare(SAID, pair, target={"bert": "NEUTRAL", "other": "so so"})
    assert told.answers["other"][0].explained == "so so"
    with pytest.raises(OptionError, match="two or more"):
        text.compare(SAID, {"bert": both["bert"]})
    with pytest.raises(OptionError, match="one text"):
        text.compare([SAID], both)  # type: ignore[arg-type]


def test_the_same_model_twice_does_not_differ(both: dict[str, tuple[Any, Any]]) -> None:
    same = text.compare(SAID, {"one": both["bert"], "two": both["bert"]}, score="logit")
    assert not torch.as_tensor(same.difference).any()
    assert "for the same reasons" in same.sentence
    assert "unbelievable" in same.page()


def test_the_command_compares_two_classifiers(
    both: dict[str, tuple[Any, Any]], found: ModelComparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, tokenizer) in both.items():
            model.save_pretrained(name)
            tokenizer.save_pretrained(name)

    def invoked(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["integrand", "text", *words])
        return CliRunner().invoke(app, ["text", *words, "--device", "cpu", "--model", "./bert", "--model", "./roberta"])

    done = invoked(SAID, "--out", "two.html")
    assert done.exit_code == 0, done.output
    assert found.sentence in done.output
    assert "difference " in done.output
    assert "'unbelievable'" in (tmp_path / "two.html").read_text(encoding="utf-8").replace("&#x27;", "'")
    assert len(json.loads(invoked(SAID, "--json").stdout)["features"]) >= 10
    for words, said in (
        (("a", "b"), "2 models for 2 texts"),
        (("a", "--task", "answer"), "only classifiers"),
        (("a", "--context", "b"), "got --context with 2 models"),
        (("a", "--model", "./bert"), "more than once"),
    ):
        failed = invoked(*words)
        assert isinstance(failed.exception, OptionError)
        assert said in str(failed.exception)
