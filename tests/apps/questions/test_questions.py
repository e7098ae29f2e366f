"""Questions: answer types against the official ones, the network against a plain reference, words that tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import integrand as ig
from integrand.apps import questions
from integrand.apps.questions.model import PAD, SPECIAL, UNKNOWN, TextCNN, Vocabulary, words_of
from integrand.apps.questions.question_files import OFFICIAL, answer_type, parsed, read
from integrand.errors import FileError, InputError, OptionError, TargetError
from integrand.loading import shipped
from integrand.render.escaping import escape
from integrand.render.text import page

Data = Callable[[str], Path]

ASKED = [
    "how many townships have a population above 50?",
    "did charles oakley play more minutes than robert parish?",
    "when did ed sheeran get his first number one of the year?",
    "who?",
]


@pytest.fixture(scope="module")
def wtq() -> questions.Classifier:
    return questions.load("wtq", device="cpu")


@pytest.fixture(scope="module")
def trec() -> questions.Classifier:
    return questions.load("trec", device="cpu")


def column(path: Path, name: str) -> list[str]:
    head, *rows = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    at = head.split("\t").index(name)
    return [row.split("\t")[at] for row in rows]


@pytest.mark.parametrize("name", ["pristine-seen-tables", "pristine-unseen-tables"])
def test_derived_types_are_the_official_ones(data: Data, name: str) -> None:
    path = data(f"questions/wtq/{name}.tagged")
    derived = [OFFICIAL[answer_type(answer)] for answer in column(path, "targetValue")]
    assert np.mean([a == b for a, b in zip(derived, column(path, "targetCanonType"), strict=True)]) >= 0.995


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("17 years", "number"),
        ("1st", "number"),
        ("$26,000", "number"),
        ("4.0 million", "number"),
        ("1999|2003", "year"),
        ("1999|3", "number"),
        ("2012 Olympics", "text"),
        ("2-1", "text"),
        ("12/18/2012", "date"),
        ("18 Jan 2005", "date"),
        ("No", "yes-no"),
        ("Netherlands|4", "mixed"),
        ("", "text"),
    ],
)
def test_answer_types(answer: str, kind: str) -> None:
    assert answer_type(answer) == kind


def test_accuracy_on_unseen_tables(data: Data, wtq: questions.Classifier) -> None:
    path = data("questions/wtq/pristine-unseen-tables.tagged")
    said = [OFFICIAL[one.label] for one in wtq.predict(column(path, "utterance"))]
    assert np.mean([a == b for a, b in zip(said, column(path, "targetCanonType"), strict=True)]) >= 0.94


def test_accuracy_on_trec(data: Data, trec: questions.Classifier) -> None:
    asked = read(data("questions/trec/TREC.test.all"))
    assert len(asked.questions) == 500
    said = [one.label for one in trec.predict(asked.questions)]
    assert np.mean([a == b for a, b in zip(said, asked.labels or (), strict=True)]) >= 0.91


@pytest.mark.parametrize("name", ["wtq", "trec"])
def test_weights_are_small_and_have_a_card(name: str) -> None:
    assert shipped(f"questions-{name}.safetensors", "this test").stat().st_size < 4e6
    assert f"questions-{name}.safetensors" in shipped("questions.md", "this test").read_text(encoding="utf-8")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_words_hold_every_character_once(text: str) -> None:
    covered = [0] * len(text)
    for word in words_of(text):
        assert word.text == text[word.start : word.end]
        for i in range(word.start, word.end):
            covered[i] += 1
    assert covered == [0 if sign.isspace() else 1 for sign in text]


def test_signs_of_several_characters_stay_whole() -> None:
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
    assert [word.text for word in words_of(f"who is {family}?")] == ["who", "is", family, "?"]
    assert [word.text for word in words_of("cafe\u0301 nai\u0308ve")] == ["cafe\u0301", "nai\u0308ve"]


def test_rows_of_the_vocabulary() -> None:
    known = Vocabulary((*SPECIAL, "how", "2004"))
    assert [known.row(word) for word in ("HOW", "zyx", "2004", "1999", "12,5", "<pad>")] == [4, UNKNOWN, 5, 2, 3, UNKNOWN]
    assert known.ids([words_of("how how"), words_of("how")]).tolist() == [[4, 4], [4, PAD]]


def by_hand(net: TextCNN, ids: list[int]) -> np.ndarray:
    """Kim's network in loops, in float64, without any padding of a batch."""
    table = net.embedding.weight.double().numpy()
    found = []
    for convolution in net.head.convolutions:
        weight, bias = convolution.weight.double().numpy(), convolution.bias.double().numpy()
        width, dim = weight.shape[2], weight.shape[1]
        nothing = np.zeros((width - 1, dim))
        signal = np.concatenate([nothing, table[ids], nothing])
        windows = [signal[k : k + width].T for k in range(len(signal) - width + 1)]
        found += [
            max(max(0.0, float((kernel * one).sum() + b)) for one in windows) for kernel, b in zip(weight, bias, strict=True)
        ]
    linear = net.head.linear
    return linear.weight.double().numpy() @ np.array(found) + linear.bias.double().numpy()


def test_network_is_kims() -> None:
    torch.manual_seed(0)
    net = TextCNN(30, dim=6, filters=5, widths=(1, 2, 3), classes=4).eval().requires_grad_(False)
    rows = [[4, 7, 9, 11, 3], [5, 6], [8]]
    padded = torch.tensor([row + [PAD] * (7 - len(row)) for row in rows])
    np.testing.assert_allclose(net(padded).numpy(), [by_hand(net, row) for row in rows], atol=1e-5)


def test_words_add_up_and_padding_gets_nothing(wtq: questions.Classifier) -> None:
    result = wtq.attribution(ASKED, tol=0.01)
    values, ids = result.numpy(), wtq.ids(ASKED)
    assert result.certificate.converged
    assert (values[ids.numpy() == PAD] == 0).all()
    with torch.no_grad():
        chances = wtq.module(ids).softmax(1)
        nothing = wtq.module.head(
            torch.zeros(1, 3, wtq.module.embedding.embedding_dim), torch.ones(1, 3, dtype=torch.bool)
        ).softmax(1)
    best = chances.argmax(1)
    change = (chances[range(len(ids)), best] - nothing[0, best]).numpy()
    magnitude = np.abs(values).sum(1)
    assert (np.abs(values.sum(1) - change) <= 0.01 * magnitude).all()
    residuals = [one.residual for one in result.certificate]
    np.testing.assert_allclose(values.sum(1) - change, residuals, atol=1e-5)


def test_values_are_those_of_a_fine_sum(wtq: questions.Classifier) -> None:
    """The paper's Riemann sum with very many steps, in float64, written out."""
    (one,) = wtq.explain(ASKED[:1], tol=0.01)
    head = questions.load("wtq", device="cpu").module.double()
    ids = wtq.ids(ASKED[:1])
    x = head.embedding(ids)
    t = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    total = torch.zeros_like(x)
    for part in t.split(500):
        points = (part[:, None, None] * x).requires_grad_()
        label = wtq.classes.index(one.label)
        score = head.head(points, torch.ones(len(part), x.shape[1], dtype=torch.bool)).softmax(1)[:, label].sum()
        total += torch.autograd.grad(score, points)[0].sum(0) / len(t)
    want = (total * x)[0].sum(1).numpy()
    assert np.abs(np.array(one.values) - want).sum() <= 0.015 * np.abs(want).sum()


def test_layer_gives_the_same(wtq: questions.Classifier) -> None:
    ids = wtq.ids(ASKED)
    options = {"target": [wtq.find(one.label) for one in wtq.predict(ASKED)], "score": "probability", "tol": 0.01}
    by_layer = ig.integrated_gradients(wtq.module, ids, layer="embedding", progress=False, **options)
    ours = wtq.attribution(ASKED, tol=0.01).numpy()
    assert (np.abs(by_layer.numpy().sum(2) - ours).sum(1) <= 0.03 * np.abs(ours).sum(1)).all()


def test_company_does_not_matter(wtq: questions.Classifier) -> None:
    together, alone = wtq.explain(ASKED), [wtq.explain(text)[0] for text in ASKED]
    for a, b in zip(together, alone, strict=True):
        assert (a.text, a.words, a.spans, a.label) == (b.text, b.words, b.spans, b.label)
        np.testing.assert_allclose(a.values, b.values, atol=0.02 * np.abs(b.values).sum())
    assert [one.text for one in together] == ASKED


@pytest.mark.parametrize("name", ["wtq", "trec"])
def test_baseline_says_nothing(name: str) -> None:
    found = questions.load(name, device="cpu").explain(ASKED, tol=0.1)
    shares = [one.certificate.baseline_score for one in found]
    classes = 5 if name == "wtq" else 6
    np.testing.assert_allclose(shares, 1 / classes, atol=0.1)


@pytest.mark.parametrize(
    ("question", "label", "words"),
    [
        ("how many townships have a population above 50?", "number", {"how", "many"}),
        ("what is the total number of points scored?", "number", {"total"}),
        ("what year was the last school established?", "year", {"year"}),
        ("did charles oakley play more minutes than robert parish?", "yes-no", {"did"}),
        ("who won the most medals?", "text", {"who"}),
    ],
)
def test_known_triggers(wtq: questions.Classifier, question: str, label: str, words: set[str]) -> None:
    (one,) = wtq.explain(question, tol=0.02)
    assert one.label == label
    order = sorted(range(len(one.words)), key=lambda i: -one.values[i])
    assert {one.words[i] for i in order[: len(words)]} == words


def test_target(wtq: questions.Classifier) -> None:
    for target in ("text", "Text", 4, "4"):
        assert wtq.find(target) == 4
    (one,) = wtq.explain(ASKED[0], target="text", tol=0.05)
    assert one.label == "text"
    assert one.probability < 0.1
    assert sum(one.values) < 0  # from one in five to nearly nothing
    with pytest.raises(TargetError, match="Did you mean 'number'"):
        wtq.find("numbr")
    with pytest.raises(TargetError, match="expected one of number"):
        wtq.find(5)
    with pytest.raises(TargetError, match="2 targets for 1 questions"):
        wtq.explain(ASKED[:1], target=["text", "date"])


def test_what_cannot_be_asked(wtq: questions.Classifier) -> None:
    with pytest.raises(InputError, match="has no word"):
        wtq.predict(["how many?", "  "])
    with pytest.raises(InputError, match="no question"):
        wtq.explain([])
    with pytest.raises(InputError, match="got a int"):
        wtq.predict([3])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="expected one of wtq, trec"):
        questions.load("squad")
    with pytest.raises(OptionError, match="got device 'abacus'"):
        questions.load("wtq", device="abacus")


def test_the_answer_in_the_readers_words(wtq: questions.Classifier) -> None:
    asked = ["how many townships have a population above 50?", "did charles oakley play more minutes than robert parish?"]
    found = wtq.explain(asked)
    assert found[0].sentence.startswith("It asks for a number (99%) because of 'how many'; numbers good to ")
    assert found[1].sentence.startswith("It asks for a yes or no (82%) because of ")
    for text, one, answer in zip(asked, found, wtq.predict(asked), strict=True):
        assert repr(one) == f"{text!r}: {one.sentence}"
        assert one.probabilities == answer.probabilities
        assert sum(share for _, share in one.tokens.choices) == pytest.approx(1)
        assert len(one.errors) == len(one.words)
        assert 0 < sum(one.errors) < 5 * one.certificate.tol * one.certificate.magnitude


def test_words_nobody_knows(wtq: questions.Classifier) -> None:
    (one,) = wtq.explain("how many \U0001f469\u200d\U0001f4bb שלום qzxv?", tol=0.05)
    assert one.words == ("how", "many", "\U0001f469\u200d\U0001f4bb", "שלום", "qzxv", "?")
    assert str(one).startswith("how(+")
    assert "<span" in one._small_html_()
    assert one._repr_html_().startswith("<iframe")


def test_files() -> None:
    assert parsed("3 Who was Galileo ?\n5 How far is it ?\n", "f").labels == ("person", "number")
    assert parsed("HUM:desc Who was Galileo ?\n", "f").labels == ("person",)
    plain = parsed("\n3 monkeys did what?\nwho?\n", "f")
    assert (plain.questions, plain.labels) == (("3 monkeys did what?", "who?"), None)
    table = parsed("id\tutterance\ttargetValue\nn\thow many?\t12\nm\twho?\tAda|12\n", "f")
    assert (table.questions, table.labels) == (("how many?", "who?"), ("number", "mixed"))
    assert table.labels_for(("number", "text")) == table.labels
    assert table.labels_for(("person",)) is None
    # What was read as one question each, heading and class included.
    table = parsed("question\tclass\nhow many?\tnumber\nwho won?\ttext\n", "f")
    assert (table.questions, table.labels) == (("how many?", "who won?"), ("number", "text"))
    assert parsed("Question\nhow many?\n", "f").questions == ("how many?",)
    assert parsed("how\tmany?\nwho?\n", "f").questions == ("how\tmany?", "who?")
    for text, message in (
        ("how many?\tnumber\nwho won?\ttext\n", "table of 2 columns without a heading"),
        ("", "no question"),
        ("utterance\tx\n", "no question"),
        ("utterance\tx\na\n", "line 2 has 1 columns"),
    ):
        with pytest.raises(FileError, match=message):
            parsed(text, "f")
    with pytest.raises(FileError, match="cannot be read"):
        read(Path("there-is-no-such-file"))


STRANGE = {
    "🤖🎉🎉": "knows none of these words: its answer means nothing",
    "東京の人口は何人ですか": "knows none of these words: its answer means nothing",
    "сколько людей живёт в Москве?": "knows none of these words: its answer means nothing",
    "???": "There is no word in this",
    "Wer hat das Rennen gewonnen?": "does not know “Wer”.*of 5 words: its answer may mean nothing",
    "how many 🎉 did he win?": "does not know “🎉”, and takes it for any unknown word",
    "largest u-boat casualty": "Not one of the usual words of a question",
}


@pytest.mark.parametrize("text", STRANGE)
def test_what_the_network_never_saw_is_said(wtq: questions.Classifier, text: str) -> None:
    """Before, all of these were answered "text 0.36, converged" without a word."""
    (found,) = wtq.explain(text)
    (note,) = found.notes
    assert re.search(STRANGE[text], note)
    assert note in str(found)
    assert (note.partition(":")[0] in found.sentence) == (":" in note)
    assert found.tokens.numbers()["notes"] == [note]
    assert escape(note) in page(found.tokens)


def test_usual_questions_get_no_note(wtq: questions.Classifier, trec: questions.Classifier, data: Data) -> None:
    """Names that it does not know are usual; python -m benchmarks.unfamiliar counts German questions too."""
    assert not any(one.notes for one in wtq.explain(ASKED))
    asked = read(data("questions/wtq/pristine-unseen-tables.tsv")).questions
    assert sum(bool(wtq.notes(question)) for question in asked) <= 0.001 * len(asked)
    assert not any(trec.notes(question) for question in read(data("questions/trec/TREC.test.all")).questions)
