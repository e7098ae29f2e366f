"""What comes back: sums kept by words, phrases and sentences; pages, pictures, numbers."""

from __future__ import annotations

import html
import json
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("transformers")

from integrand import text
from integrand.errors import ConvergenceWarning, OptionError

from .tiny import bytes_bpe, classifier, wordpiece, writer

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")

STORY = "Good morning! The film, truly unbelievable, was not bad. Walking and talking."


def explained(kind="bert", words=STORY, **options):
    model, tokenizer = classifier(kind)
    return text.explain(model, tokenizer, words, target=2, tol=0.05, **options)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_sums_are_kept(kind):
    one = explained(kind, "Good morning, unbelievable film! Not bad.")
    for joined in (one.words(), one.phrases(), one.sentences(), one.words().sentences()):
        assert joined.values.sum() == pytest.approx(one.values.sum(), rel=1e-12)
        assert joined.certificate is one.certificate
        assert len(joined.special) == len(joined.tokens) == len(joined.parts)
    marks = ("[CLS]", "[SEP]") if kind == "bert" else ()
    inner = [token for token in one.words().tokens if token not in marks]
    assert inner == ["Good", "morning", ",", "unbelievable", "film", "!", "Not", "bad", "."]
    assert [t for t in one.phrases().tokens if t not in marks] == ["Good morning,", "unbelievable film!", "Not bad."]
    assert [t for t in one.sentences().tokens if t not in marks] == ["Good morning, unbelievable film!", "Not bad."]


def test_each_word_has_the_sum_of_its_pieces():
    one = explained()
    words = one.words()
    pieces = [
        i for i, (a, b) in enumerate(one.line.spans) if STORY[a:b] and STORY.find("unbelievable") <= a < STORY.find(", was")
    ]
    assert len(pieces) > 2
    assert words.values[words.tokens.index("unbelievable")] == pytest.approx(one.values[pieces].sum(), rel=1e-12)


def test_each_token_has_an_error_of_its_own():
    """They cover what the tokens are off by; those of a word add up."""
    rough, fine = explained(), text.explain(*classifier("bert"), STORY, target=2, tol=1e-4)
    errors = np.array(rough.line.errors)
    assert np.all(np.abs(rough.values - fine.values) <= errors + 1e-6)
    assert errors.max() < rough.certificate.error * rough.certificate.magnitude * 1.001
    assert sum(rough.words().line.errors) == pytest.approx(errors.sum())
    assert all("error" in token for token in rough.line.numbers()["tokens"])


def test_what_is_written_has_errors_too_and_where_nothing_is_known_there_are_none():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, "The film was", continuation=" not bad", tol=0.05)
    assert found.errors.shape == found.values.shape
    assert np.all(found.errors[found.values != 0] > 0)
    assert found[1].line.errors == found.errors[1, : found.reach[1]].tolist()
    with pytest.warns(ConvergenceWarning, match="too few steps"):
        assert explained(words="The film", steps=1, rule="left").line.errors is None


def test_own_groups():
    one = explained(words="The film was not bad.")
    halves = one.joined([i // 4 for i in range(len(one.tokens))])
    assert halves.values == pytest.approx([one.values[i : i + 4].sum() for i in range(0, len(one.tokens), 4)])


def test_sentences_do_not_mix_question_and_context():
    one = explained(words="The film", context="was good").sentences()
    assert one.tokens == ("[CLS]", "The film", "[SEP]", "was good", "[SEP]")


def test_the_running_sum_ends_at_the_score():
    one = explained()
    assert one.line.running[0] == one.certificate.baseline_score
    assert one.line.running[-1] == pytest.approx(one.certificate.score, abs=0.05 * one.certificate.magnitude)


class Strict(HTMLParser):
    """Collects what a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = ""

    def handle_data(self, data: str) -> None:
        self.seen += data


def test_pages_pictures_and_numbers(tmp_path):
    found = explained(words=["Good & <b>bad</b>!", "The film."])
    assert found.save(tmp_path / "a.html", title="Two") == tmp_path / "a.html"
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<b>bad" not in page
    parser = Strict()
    parser.feed(page)
    for words in ("Good & <b>bad</b>!", "POSITIVE", "zero embeddings, markers kept", "BertForSequenceClassification"):
        assert words in parser.seen
    found[0].save(tmp_path / "a.json")
    numbers = json.loads((tmp_path / "a.json").read_text())[0]
    assert [row["value"] for row in numbers["tokens"]] == pytest.approx(found[0].values.tolist())
    pytest.importorskip("matplotlib")
    assert found.words().save(tmp_path / "a.png", running=True).stat().st_size > 1000
    assert found.figure().axes
    assert "POSITIVE" in found.terminal(colour=False)
    assert "POSITIVE" in found._small_html_()
    for one in (found, found[0]):
        assert one._repr_html_().startswith("<iframe")
        assert html.unescape(one._repr_html_()).count(one.html()) == 1
    assert str(found).count("gradients") == 2


def test_generated_pages(tmp_path):
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, "The film", continuation=" is not bad", tol=0.05)
    found.save(tmp_path / "a.html")
    parser = Strict()
    parser.feed((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert "GPT2LMHeadModel" in parser.seen
    head, columns, *rows = found.words().terminal(colour=False, width=200).splitlines()
    assert head == "The film → is not bad"
    assert columns.split() == ["The", "film", "so", "far", "baseline", "score"]
    assert [row.split()[0] for row in rows] == ["is", "not", "bad", "numbers"]
    assert rows[-1] == "numbers in units of 0.001"  # a small model's probabilities
    found.save(tmp_path / "a.json")
    rows = json.loads((tmp_path / "a.json").read_text())
    assert [row["sum"] for row in rows] == pytest.approx(found.values.sum(1).tolist())


class Slow:
    """A tokenizer that does not say where tokens stand."""

    def __init__(self, fast):
        self._fast = fast

    is_fast = False

    def __getattr__(self, name):
        return getattr(self._fast, name)

    def __len__(self):
        return len(self._fast)

    def __call__(self, *args, **options):
        assert "return_offsets_mapping" not in options
        return dict(self._fast(*args, **options))


def test_tokenizers_without_offsets():
    model, tokenizer = classifier("bert")
    fast = text.explain(model, tokenizer, STORY, target=2, tol=0.05)
    slow = text.explain(model, Slow(tokenizer), STORY, target=2, tol=0.05)
    np.testing.assert_array_equal(slow.values, fast.values)
    assert slow.line.spans is None
    assert slow.words().tokens == tuple(word.lower() if word[0] != "[" else word for word in fast.words().tokens)
    assert slow.words().values == pytest.approx(fast.words().values)
    with pytest.raises(OptionError, match=r"which sentences\(\) needs; expected a fast tokenizer"):
        slow.sentences()


def test_unknown_and_masked_words_are_words():
    model, tokenizer = classifier("bert")
    one = text.explain(model, tokenizer, "The [MASK] is 77.", target=2, tol=0.05)
    assert one.values[one.tokens.index("[MASK]")] != 0
    assert one.values[one.tokens.index("77")] != 0
    assert tokenizer.unk_token_id == wordpiece().unk_token_id


def test_markers_that_were_typed_are_kept():
    model, _ = classifier("roberta")
    one = text.explain(model, bytes_bpe("roberta"), "bad</s> film", target=2, tol=0.05)
    assert one.tokens.count("</s>") == 2
    assert not one.values[list(one.special)].any()
    assert sum(one.special) == 3
