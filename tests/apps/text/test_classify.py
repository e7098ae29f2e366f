"""Classifiers: against a plain loop over embeddings, one text at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import transformers

from integrand import text
from integrand.errors import BaselineWarning, ConvergenceWarning

from .tiny import SENTENCES, SMALL, by_hand, bytes_bpe, classifier

# Models with random weights say at the baseline what they say everywhere.
pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")

KINDS = ("bert", "roberta", "distilbert", "gpt2")
TEXTS = ["The film was not bad.", "Unbelievable: walking and talking!", "Good."]


def reference(model, tokenizer, sentence, start, score):
    """By hand; ``start`` gives the baseline of a word, markers stay."""
    found = tokenizer(sentence, return_tensors="pt", return_special_tokens_mask=True)
    end = model.get_input_embeddings()(found["input_ids"]).detach()
    words = ~found["special_tokens_mask"].bool()[..., None]
    begin = torch.where(words, start.to(end), end)
    return by_hand(lambda points: score(model(inputs_embeds=points[0]).logits), [end], [begin])[0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_loop_and_batches_equal_single_texts(kind):
    model, tokenizer = classifier(kind)
    tol = 1e-4 if kind == "distilbert" else 1e-5  # its ReLU has kinks, between which the loop's nodes do not look
    within = 10 * tol if kind == "distilbert" else 2 * tol
    batch = text.explain(model, tokenizer, TEXTS, target="positive", tol=tol)
    for sentence, one in zip(TEXTS, batch, strict=True):
        expected = reference(model, tokenizer, sentence, torch.zeros(16), lambda logits: logits.softmax(1)[:, 2])
        assert np.abs(one.values - expected).sum() <= within * np.abs(expected).sum()
        alone = text.explain(model, tokenizer, sentence, target=2, tol=tol)
        assert alone.tokens == one.tokens
        np.testing.assert_allclose(alone.values, one.values, atol=within * np.abs(expected).sum())
        assert one.certificate.converged
        rise = one.certificate.score - one.certificate.baseline_score
        assert one.values.sum() == pytest.approx(rise, abs=within * np.abs(expected).sum())
        with torch.no_grad():
            logits = model(**_inputs(tokenizer, sentence)).logits[0]
        assert one.certificate.score == pytest.approx(float(logits.softmax(0)[2]), rel=1e-9)
        assert (one.label, one.probability) == ("POSITIVE", pytest.approx(float(logits.softmax(0)[2])))


def _inputs(tokenizer, sentence, model=None):
    found = tokenizer(sentence, return_tensors="pt")
    names = ("input_ids",) if type(model).__name__.startswith("FNet") else ("input_ids", "attention_mask")
    return {name: found[name] for name in names}


def test_many_texts_come_back_in_their_order(monkeypatch):
    model, tokenizer = classifier("bert")
    texts, targets = [*SENTENCES, *TEXTS], [i % 3 for i in range(9)]
    whole = text.explain(model, tokenizer, texts, target=targets, tol=1e-4)
    monkeypatch.setattr("integrand.apps.text.text_tasks.BLOCK", 2)
    parts = text.explain(model, tokenizer, texts, target=targets, tol=1e-4)
    for sentence, a, b in zip(texts, whole, parts, strict=True):
        assert a.line.text == b.line.text == sentence
        assert a.label == b.label
        np.testing.assert_allclose(a.values, b.values, atol=2e-4 * np.abs(a.values).sum())


def test_padding_and_markers_get_exactly_zero():
    model, tokenizer = classifier("bert")
    for baseline in ("zero", "pad", "mask", "mean"):
        for one in text.explain(model, tokenizer, TEXTS, baseline=baseline):
            assert [one.tokens[0], one.tokens[-1]] == ["[CLS]", "[SEP]"]
            assert one.special[0]
            assert one.special[-1]
            assert not one.values[list(one.special)].any()
            assert one.values[~np.array(one.special)].all()
    assert "[PAD]" not in one.tokens


@pytest.mark.parametrize("baseline", ["pad", "mask", "mean", 7, "vector"])
def test_baselines(baseline):
    model, tokenizer = classifier("roberta")
    table = model.get_input_embeddings().weight.detach()
    start = {"pad": table[1], "mask": table[4], "mean": table.mean(0), 7: table[7], "vector": table[9] / 2}[baseline]
    given = start if baseline == "vector" else baseline
    one = text.explain(model, tokenizer, TEXTS[0], target=0, score="logit", baseline=given, tol=1e-5)
    # The positions stay those of the text, also where its words are replaced by padding.
    expected = reference(model, tokenizer, TEXTS[0], start, lambda logits: logits[:, 0])
    assert np.abs(one.values - expected).sum() <= 2e-5 * np.abs(expected).sum()


def test_several_baselines_average():
    model, tokenizer = classifier("bert")
    both = text.explain(model, tokenizer, TEXTS[0], target=0, baseline=["zero", "mask"], tol=1e-4).values
    each = [text.explain(model, tokenizer, TEXTS[0], target=0, baseline=name, tol=1e-4).values for name in ("zero", "mask")]
    np.testing.assert_allclose(both, np.mean(each, 0), atol=1e-3 * np.abs(both).sum())


def test_a_decoder_that_reads_the_text_again():
    """BART feeds its decoder the text, one place later: what a word adds there counts too. It also scales embeddings."""
    model, tokenizer = classifier("bart")
    one = text.explain(model, tokenizer, TEXTS[0], target=1, score="logit", tol=1e-5)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    shifted = torch.cat([torch.tensor([[2]]), ids[:, :-1]], 1)
    encoder, decoder = model.get_encoder().embed_tokens, model.get_decoder().embed_tokens
    ends = [encoder(ids).detach(), decoder(shifted).detach()]
    assert torch.equal(ends[0], model.model.shared.weight.detach()[ids] * 4)
    starts = [
        torch.where(torch.isin(i, torch.tensor([0, 2]))[..., None], e, 0) for i, e in zip((ids, shifted), ends, strict=True)
    ]

    def score(points):
        hidden = model.model(inputs_embeds=points[0], decoder_inputs_embeds=points[1])[0]
        return model.classification_head(hidden[:, -1])[:, 1]

    first, second = (part.numpy() for part in by_hand(score, ends, starts))
    expected = first + np.append(second[1:], 0)
    assert np.abs(one.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    batch = text.explain(model, tokenizer, TEXTS, target=1, score="logit", tol=1e-5)
    np.testing.assert_allclose(batch[0].values, one.values, atol=2e-5 * np.abs(expected).sum())


ODD = {
    "XLNet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},  # looks words up with the tokens in front
    "Longformer": {"attention_window": 4, **SMALL},  # pads once more, on its own
    "FNet": SMALL,  # takes no mask
}


@pytest.mark.parametrize("kind", ODD)
def test_models_with_ways_of_their_own(kind):
    torch.manual_seed(0)
    marks = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(vocab_size=320, num_labels=3, initializer_range=0.3, **marks, **ODD[kind])
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).double().eval()
    tokenizer = bytes_bpe("roberta")
    if kind == "XLNet":  # it reads its last place
        tokenizer.padding_side = "left"
    batch = text.explain(model, tokenizer, TEXTS, target=[0, 1, 2], score="logit", tol=1e-3)
    for i, (sentence, one) in enumerate(zip(TEXTS, batch, strict=True)):
        with torch.no_grad():
            logits = model(**_inputs(tokenizer, sentence, model)).logits[0]
        assert one.certificate.score == pytest.approx(float(logits[i]), rel=1e-6)  # Longformer has a softmax in float32
        rise = one.certificate.score - one.certificate.baseline_score
        assert one.values.sum() == pytest.approx(rise, abs=1e-3 * one.certificate.magnitude)
        alone = text.explain(model, tokenizer, sentence, target=i, score="logit", tol=1e-3)
        np.testing.assert_allclose(alone.values, one.values, atol=2e-3 * one.certificate.magnitude)


def test_one_class_against_another():
    model, tokenizer = classifier("bert")
    difference = text.explain(model, tokenizer, TEXTS[0], target="POSITIVE", against="negative", tol=1e-5)
    expected = reference(model, tokenizer, TEXTS[0], torch.zeros(16), lambda logits: logits[:, 2] - logits[:, 0])
    assert np.abs(difference.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    assert difference.label == "POSITIVE against NEGATIVE"
    own = text.explain(model, tokenizer, TEXTS[0], target=lambda out: out.logits[:, 2] - out.logits[:, 0], tol=1e-5)
    np.testing.assert_allclose(own.values, difference.values, rtol=1e-9)
    chances = text.explain(model, tokenizer, TEXTS[0], target=2, against=0, score="probability", tol=1e-5)
    expected = reference(
        model, tokenizer, TEXTS[0], torch.zeros(16), lambda logits: logits.softmax(1)[:, 2] - logits.softmax(1)[:, 0]
    )
    assert np.abs(chances.values - expected).sum() <= 2e-5 * np.abs(expected).sum()


def test_classes_that_do_not_exclude_each_other_and_a_regression():
    model, tokenizer = classifier("bert")
    model.config.problem_type = "multi_label_classification"
    one = text.explain(model, tokenizer, TEXTS, target=[0, 1, 2], tol=1e-5)[1]
    expected = reference(model, tokenizer, TEXTS[1], torch.zeros(16), lambda logits: logits[:, 1].sigmoid())
    assert np.abs(one.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    model.config.problem_type = None
    model.classifier = torch.nn.Linear(16, 1).double()
    model.num_labels = model.config.num_labels = 1
    number = text.explain(model, tokenizer, TEXTS[0], tol=1e-5)
    expected = reference(model, tokenizer, TEXTS[0], torch.zeros(16), lambda logits: logits[:, 0])
    assert np.abs(number.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    assert number.probability is None


def test_pairs_with_token_types():
    model, tokenizer = classifier("bert")
    one = text.explain(model, tokenizer, "Is it bad?", context="The film was good.", target=0, tol=1e-5)
    found = tokenizer("Is it bad?", "The film was good.", return_tensors="pt")
    assert found["token_type_ids"].any()
    end = model.get_input_embeddings()(found["input_ids"]).detach()
    begin = torch.where(torch.isin(found["input_ids"], torch.tensor([2, 3]))[..., None], end, 0)
    types = found["token_type_ids"]
    run = lambda points: model(inputs_embeds=points[0], token_type_ids=types.expand(len(points[0]), -1)).logits.softmax(1)[:, 0]  # noqa: E731
    expected = by_hand(run, [end], [begin])[0].numpy()
    assert np.abs(one.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    assert one.of_part(0) + one.of_part(1) == pytest.approx(one.values.sum())
    assert one.line.text == "Is it bad?\nThe film was good."


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_a_padded_batch_is_that_of_float32(dtype):
    """In half precision it could not be had to 1%: the same weights are computed with in float32, without being copied."""
    model, tokenizer = classifier("bert")
    texts = [*TEXTS, *SENTENCES[:2]]
    half = text.explain(model.to(dtype), tokenizer, texts, target=2, score="logit")
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    for sentence, one in zip(texts, half, strict=True):
        single = text.explain(model.to(dtype).float(), tokenizer, sentence, target=2, score="logit", tol=1e-4)
        assert np.abs(one.values - single.values).sum() / np.abs(single.values).sum() <= one.certificate.error
        assert one.certificate.converged
        assert one.certificate.precision == f"float32 with {str(dtype).removeprefix('torch.')} weights"


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_a_padded_batch_is_within_its_noise(dtype, monkeypatch):
    """Where a model cannot be run as in float32."""
    monkeypatch.setattr("integrand.backends.full_precision.in_full_precision", lambda function: None)
    model, tokenizer = classifier("bert")
    texts = [*TEXTS, *SENTENCES[:2]]
    half = text.explain(model.to(dtype), tokenizer, texts, target=2, score="logit")
    own = text.explain(model, tokenizer, texts, target=2, score="logit", steps=512, rule="midpoint")
    for sentence, one, many in zip(texts, half, own, strict=True):
        # The claim is about the function as computed: the mean over so many nodes is that, but for a little noise.
        assert np.abs(one.values - many.values).sum() / np.abs(many.values).sum() <= one.certificate.error
        # What half precision does to the function beyond that is not claimed, and of the same size. The same, rounded weights:
        single = text.explain(model.to(dtype).float(), tokenizer, sentence, target=2, score="logit", tol=1e-3)
        off = np.abs(one.values - single.values).sum() / np.abs(single.values).sum()
        assert off <= 2 * one.certificate.error + single.certificate.error
        model.to(dtype)
        assert one.certificate.precision == str(dtype).removeprefix("torch.")
        if not one.certificate.converged:
            assert "not precise enough" in one.certificate.remedy


def test_noise_is_said_once(monkeypatch):
    """How large the noise is, a tenth or so, depends on the machine."""
    monkeypatch.setattr("integrand.backends.full_precision.in_full_precision", lambda function: None)
    model, tokenizer = classifier("bert")
    with pytest.warns(ConvergenceWarning, match="bfloat16") as said:
        one = text.explain(model.bfloat16(), tokenizer, SENTENCES[0], target=2, tol=1e-4)
    assert [(each.category, each.filename) for each in said] == [(ConvergenceWarning, __file__)]
    assert not one.certificate.error < 1e-4  # NaN where it is above 30%


def test_the_model_comes_back_as_it_was():
    model, tokenizer = classifier("gpt2")
    side = tokenizer.padding_side = "left"
    before = {name: value.clone() for name, value in model.state_dict().items()}
    text.explain(model, tokenizer, TEXTS, target=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert tokenizer.padding_side == side


def test_the_users_side_of_padding_does_not_matter():
    model, tokenizer = classifier("gpt2")
    right = text.explain(model, tokenizer, TEXTS, target=0, tol=1e-4)
    tokenizer.padding_side = "left"
    left = text.explain(model, tokenizer, TEXTS, target=0, tol=1e-4)
    for a, b in zip(right, left, strict=True):
        np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.filterwarnings("error::integrand.errors.BaselineWarning")
def test_a_baseline_of_the_same_class_is_said():
    model, tokenizer = classifier("bert")
    with torch.no_grad():
        model.classifier.weight.mul_(0.01)
        model.classifier.bias.copy_(torch.tensor([5.0, 0, 0]))
    with pytest.warns(BaselineWarning, match="has the explained class already"):
        text.explain(model, tokenizer, TEXTS[0])
