"""Messages say what was got, what was expected, and what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")

import transformers as hf

from integrand import text
from integrand.errors import InputError, IntegrandWarning, ModelError, OptionError, TargetError, TrainModeError

from .tiny import SMALL, bytes_bpe, classifier, wordpiece, writer

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")


@pytest.fixture(scope="module")
def bert():
    return classifier("bert")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", r"text 0 is empty \(''\); expected at least one word"),
        (["good", " \n"], r"text 1 is empty"),
        ([], "got no texts"),
        (None, "got a NoneType as text; expected a string, or a list of them"),
        (3, "got a int as text; expected a string"),
        (b"good", "got a bytes as text; expected a string"),
        (["good", 3], "text 1 is a int; expected a string"),
        ("bad " * 80, r"the text has 82 tokens; expected at most 64, the positions that the model has. Shorten it"),
        ("[SEP]", "has no tokens but markers"),
    ],
)
def test_texts(bert, words, message):
    with pytest.raises(InputError, match=message):
        text.explain(*bert, words)


def test_tokenizers(bert):
    for call in (text.explain, text.generated):
        model = bert[0] if call is text.explain else writer("gpt2")[0]
        with pytest.raises(InputError, match=r"got 'bert-base' as tokenizer; expected a Hugging Face one: AutoTokenizer"):
            call(model, "bert-base", "good")
    with pytest.raises(InputError, match="got a NoneType as tokenizer"):
        text.explain(bert[0], None, "good")


def test_words_that_the_tokenizer_does_not_know(bert):
    with pytest.warns(IntegrandWarning, match=r"text 1: the tokenizer does not know 2 of 3 words, .* as \[UNK\]"):
        found = text.explain(*bert, ["not good", "\u043d\u0435 \u0442\u0430\u043a bad"], tol=0.1)
    assert [len(one.line.notes) for one in found] == [0, 1]
    assert found[1].line.notes[0] == "The model does not know “\u043d\u0435”, “\u0442\u0430\u043a”: it reads [UNK] there."
    assert found[1].words().line.notes == found[1].line.notes
    assert text.explain(*bert, "bad <<<>>>", tol=0.1).line.notes == ()  # signs are no words
    emoji = text.explain(*bert, "good 🎉", tol=0.1)
    assert emoji.line.notes == ("The model does not know “🎉”: it reads [UNK] there.",)
    assert emoji.line.notes[0] in str(emoji)
    with pytest.warns(IntegrandWarning, match="does not know 1 of 1 words"):
        lost = text.explain(*bert, "\u043d\u0435", tol=0.1)
    assert "knows none of these words" in lost.line.notes[0]


def test_models_that_look_ahead():
    torch.manual_seed(0)
    config = hf.BertConfig(vocab_size=len(wordpiece()), max_position_embeddings=64, initializer_range=0.3, **SMALL)
    model = hf.BertLMHeadModel(config).eval()
    for prompt in ("The film", "good"):
        with pytest.raises(ModelError, match=r"BertLMHeadModel looks ahead.*expected a causal language model.*is_decoder=True"):
            text.generated(model, wordpiece(), prompt, max_new_tokens=2)
    config.is_decoder = True
    causal = hf.BertLMHeadModel(config).eval()
    assert text.generated(causal, wordpiece(), "The film", continuation="bad", tol=0.05).certificate.converged


def test_positions_behind_the_padding():
    with pytest.raises(InputError, match=r"has 65 tokens; expected at most 64"):  # 66 positions, two of them never used
        text.explain(*classifier("roberta"), " bad" * 63)
    assert text.explain(*classifier("roberta"), " bad" * 62, tol=0.1).certificate.converged


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "POSITVE",
            r"got target 'POSITVE', which the model does not have; expected one of 'NEGATIVE'.*Did you mean 'POSITIVE'",
        ),
        (3, "got target 3, out of range; expected 0 to 2"),
        (True, "got target True of type bool"),
        ([0, 1], "got 2 targets for 1 texts; expected one for all or one for each"),
        (1.5, "got target 1.5 of type float; expected a class by number or name"),
    ],
)
def test_targets(bert, target, message):
    with pytest.raises(TargetError, match=message):
        text.explain(*bert, "good", target=target)


def test_against(bert):
    with pytest.raises(TargetError, match="got against='negative', which is the explained class itself"):
        text.explain(*bert, "good", target=0, against="negative")
    with pytest.raises(OptionError, match="with a target function"):
        text.explain(*bert, "good", target=lambda out: out.logits[:, 0], against=1)


def test_baselines(bert):
    with pytest.raises(
        OptionError,
        match=r"got baseline='blank', 5 tokens that share nothing.*expected one of 'zero', 'pad', 'mask', 'eos', 'mean'",
    ):
        text.explain(*bert, "good", baseline="blank")
    with pytest.raises(OptionError, match="got baseline=1000; expected a token id from 0 to"):
        text.explain(*bert, "good", baseline=1000)
    with pytest.raises(InputError, match=r"got a baseline of shape \(3,\); expected \(16,\)"):
        text.explain(*bert, "good", baseline=torch.zeros(3))
    with pytest.raises(OptionError, match=r"got baseline='mask' and a tokenizer without a mask token.*Use baseline='zero'"):
        text.generated(*writer("gpt2"), "good", continuation=" bad", baseline="mask")


@pytest.mark.parametrize("baseline", [None, 3.5, ["zero", None]])
def test_what_is_no_baseline(bert, baseline):
    with pytest.raises(OptionError, match=r"got baseline=(None|3\.5); expected one of 'zero'"):
        text.explain(*bert, "good film", baseline=baseline)


def test_parts_are_of_answers(bert):
    with pytest.raises(OptionError, match="got part='start' for a model that gives no answers"):
        text.explain(*bert, "good film", part="start")


@pytest.mark.parametrize("span", [3, (1,), ("a", "b")])
def test_what_is_no_span(span):
    with pytest.raises(OptionError, match=r"got span=.*; expected \(first, end\)"):
        text.generated(*writer("gpt2"), "The capital", max_new_tokens=2, span=span)


def test_no_padding_token():
    model, _ = classifier("gpt2")
    tokenizer = bytes_bpe("gpt2")
    with pytest.raises(InputError, match=r"tokenizer without a padding token.*Set tokenizer.pad_token = tokenizer.eos_token"):
        text.explain(model, tokenizer, ["good", "bad"])
    assert text.explain(model, tokenizer, "good", tol=0.05).certificate.converged
    model.config.pad_token_id = None
    with pytest.raises(ModelError, match=r"the model takes no batches.*set model.config.pad_token_id"):
        text.explain(model, tokenizer, "good")


def test_models(bert):
    model, tokenizer = classifier("bert")
    with pytest.raises(TrainModeError, match=r"train mode; expected eval mode.*model.eval\(\)"):
        text.explain(model.train(), tokenizer, "good")
    with pytest.raises(ModelError, match="got a Linear as model; expected a Hugging Face model"):
        text.explain(torch.nn.Linear(2, 2), tokenizer, "good")
    with pytest.raises(ModelError, match=r"GPT2LMHeadModel gives logits of shape .*use text.generated"):
        text.explain(*writer("gpt2"), "good")
    with pytest.raises(ModelError, match="got a BertForSequenceClassification, which does not write"):
        text.generated(*bert, "good")
    with pytest.raises(OptionError, match="got colour=; expected one of the named options, or steps"):
        text.explain(*bert, "good", colour="red")
    with pytest.raises(OptionError, match="got pooling='middle'; expected one of 'mean'"):
        text.similarity(model.eval().bert, tokenizer, "good", "bad", pooling="middle")


def test_importing_it_imports_no_transformers():
    code = (
        "import sys; from integrand import text; assert 'transformers' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
