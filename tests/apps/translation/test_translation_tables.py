"""Many translations: rows that add up, drawn again from a table, into folders and pages that resume."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import integrand as ig
from integrand.apps import translation
from integrand.apps.text.text_batch import TextInput, TextTask
from integrand.apps.translation import Alignment, Translator
from integrand.apps.translation.seq2seq import Seq2Seq
from integrand.batch import ExplainedTable
from integrand.cli.app import app
from integrand.errors import FileError, OptionError

tokenizers = pytest.importorskip("tokenizers")

Run = Callable[..., Result]

PIECES = ("▁thank", "▁you", "▁,", "▁grand", "mother", "▁good", "▁night", "▁danke", "▁Groß", "mutter", "▁")
SAID = [4 + PIECES.index(piece) for piece in ("▁danke", "▁Groß", "mutter")]
"""What the translator always says: its network has random weights."""


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(1)
    names = [("<pad>", 0.0), ("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *((piece, -1.0) for piece in PIECES)]
    pieces = tokenizers.Tokenizer(tokenizers.models.Unigram(names, unk_id=1))
    pieces.add_special_tokens(["<pad>", "<unk>", "<s>", "</s>"])
    pieces.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    pieces.decoder = tokenizers.decoders.Metaspace()
    marks = [("<s>", 2), ("</s>", 3)]
    pieces.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>", special_tokens=marks)
    network = Seq2Seq(vocabulary=len(names), embedding=6, hidden=8).double().eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.normal_(std=0.7)
    return Translator(network, pieces)


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Translator, "_search", lambda self, ids, beam: SAID)


@pytest.fixture(scope="module")
def thanks(translator: Translator) -> Alignment:
    return translator.explain("thank you , grandmother", "danke Großmutter", tol=0.05, words=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, translator: Translator) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(translation, "load", lambda device=None: translator)

    def invoke(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["integrand", *words])
        return CliRunner().invoke(app, [*words, "--tol", "0.1"])

    return invoke


def test_the_row_adds_up_over_the_words_of_the_translation(thanks: Alignment) -> None:
    row = thanks.row()
    assert row.features == ("thank", "you", ",", "grandmother")
    np.testing.assert_allclose(row.attributions, thanks.from_source.sum(0), rtol=0, atol=1e-12)
    assert row.groups == ("the text", "the translation so far")
    assert row.group_sums == pytest.approx((thanks.from_source.sum(), thanks.from_prefix.sum()))
    assert row.score == pytest.approx(sum(one.score for one in thanks.certificate))
    change = row.score - row.baseline_score  # type: ignore[operator]
    assert sum(row.group_sums) == pytest.approx(change + row.residual, abs=1e-6)  # type: ignore[arg-type, operator]
    assert row.prediction == "danke Großmutter"
    assert row.probability == pytest.approx(np.prod(thanks.probabilities))
    assert row.error == max(one.error for one in thanks.certificate)
    assert row.status == "converged"
    assert row.evaluations == sum(one.gradients for one in thanks.certificate)


def test_pieces_give_a_row_by_words_too(translator: Translator) -> None:
    pieces = translator.explain("grandmother", "Großmutter", tol=0.1)
    assert pieces.source == ("grand", "mother")
    row = pieces.row()
    assert row.features == ("grandmother",)
    assert row.attributions[0] == pytest.approx(pieces.from_source.sum())


def test_a_translation_is_drawn_again_from_its_row(thanks: Alignment) -> None:
    details = thanks.row().details
    again = Alignment.of_details(details)
    assert again.numbers() == thanks.numbers()
    assert again.html() == thanks.html()
    assert again.row().details == details


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"values": [[1.0]]}, "contradicts itself: got .* of outputs and what is known of each"),
        ({"reach": [900, 1, 1, 1]}, "reaches beyond the|of outputs and what is known"),
        ({"kind": "generated"}, "holds a result of the kind generated; expected a translation"),
        ({"kind": "text"}, "expected one of 'generated', 'translation'"),
        ({"prompt": -1}, "prompt is -1; expected a whole number from 0"),
    ],
)
def test_details_from_elsewhere_are_checked(thanks: Alignment, changed: dict[str, Any], message: str) -> None:
    details = json.dumps(json.loads(thanks.row().details or "") | changed)
    with pytest.raises(FileError, match=message):
        Alignment.of_details(details)


def test_explain_many_takes_a_translator(translator: Translator, tmp_path: Path) -> None:
    explain = functools.partial(translator.explain, words=True, tol=0.1)
    found = ig.explain_many(["thank you", " ", "good night"], explain, tmp_path / "out")
    table = found.table.arrow(["key", "failure", "features"]).to_pylist()
    assert [row["features"] for row in table] == [["thank", "you"], None, ["good", "night"]]
    assert "is empty" in table[1]["failure"]
    with pytest.raises(OptionError, match="got target= for several texts"):
        translator.explain(["thank you"], "danke")  # type: ignore[call-overload]


def test_a_file_goes_on_after_a_stop_and_past_bad_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"id,english,score\na,thank you,1\nb,,2\nc,{'x' * 2001},3\nd,good night,4\n")
    given = ("translate", "--file", "t.csv", "--column", "english", "--out")
    found = run(*given, "whole")
    assert found.exit_code == 1
    assert "not explained: text 2: it is empty" in found.stderr
    assert "not explained: text 3: it has 2,001 characters; expected at most 2,000" in found.stderr
    asked: list[str] = []
    explain = TextTask.explain

    def cut(self: TextTask, items: Sequence[TextInput]) -> Any:
        if asked:
            raise KeyboardInterrupt
        asked.append(items[0].text)
        return explain(self, items)

    with monkeypatch.context() as patch:
        patch.setattr(TextTask, "explain", cut)
        assert run(*given, "cut").exit_code == 130
        asked.clear()
        assert run(*given, "cut").exit_code == 1
    assert asked == ["good night"]
    tables = [ExplainedTable.open(tmp_path / name).arrow().to_pylist() for name in ("whole", "cut")]
    assert tables[0] == tables[1]
    assert [(row["id"], row["input_score"], row["prediction"]) for row in tables[0]] == [
        ("a", "1", "danke Großmutter"),
        ("b", "2", None),
        ("c", "3", None),
        ("d", "4", "danke Großmutter"),
    ]


def test_pages_and_numbers_of_several(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("thank you\n\ngood night\n")
    found = run("translate", "--file", "t.txt", "--out", "t.html", "--keep")
    assert found.exit_code == 0, found.output
    page = (tmp_path / "t.html").read_text()
    assert "danke Großmutter" in page
    assert "(the translation so far)" in page
    found = run("translate", "--file", "t.txt", "--out", "t.json")
    assert "(2 done before)" in found.stderr
    made = json.loads((tmp_path / "t.json").read_text())
    assert [one["text"] for one in made] == ["thank you", "good night"]
    assert {one["translation"] for one in made} == {"danke Großmutter"}
    assert not (tmp_path / "t.table").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "got nothing to translate"),
        (("thank you", "--file", "t.txt"), "got a text and --file"),
        (("--file", "t.txt", "--target", "danke"), "got --target with --file"),
        (("thank you", "--column", "a"), "without a table"),
        (("--file", "t.txt", "--column", "a"), "which has no columns"),
        (("--file", "t.csv"), "with the columns id, english; expected --column"),
        (("--file", "t.csv", "--column", "text"), "expected one of: id, english"),
        (("--file", "empty.txt"), "empty.txt holds no text"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "t.txt").write_text("thank you\n")
    (tmp_path / "t.csv").write_text("id,english\na,thank you\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    raised = run("translate", *words).exception
    assert isinstance(raised, OptionError | FileError)
    assert message in str(raised)
