"""A Hugging Face model: token ids and masks by keyword, a ModelOutput back, embeddings explained."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from integrand import integrated_gradients
from integrand.errors import InputError
from tests.by_hand import line_integral

transformers = pytest.importorskip("transformers")

IDS = torch.tensor([[2, 7, 11, 5, 3], [2, 9, 4, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
PAD = torch.tensor([[2, 0, 0, 0, 3], [2, 0, 0, 3, 0]])
WORDS = "bert.embeddings.word_embeddings"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=12,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
        num_labels=3,
        initializer_range=0.5,
    )
    return transformers.BertForSequenceClassification(config).double().eval()


def by_hand(model, start: Tensor, score) -> Tensor:
    """The same through the model's own door for embeddings, one example at a time."""
    words = model.get_input_embeddings()(IDS).detach()
    rows = []
    for end, begin, mask in zip(words, start, MASK, strict=True):
        run = lambda w, mask=mask: score(model(inputs_embeds=w[None], attention_mask=mask[None]).logits[0])  # noqa: E731
        rows.append(line_integral(run, [end], [begin], nodes=64)[0])
    return torch.stack(rows)


def test_word_embeddings_from_pad_tokens(model):
    x, baseline = {"input_ids": IDS, "attention_mask": MASK}, {"attention_mask": MASK, "input_ids": PAD}
    result = integrated_gradients(model, x, baseline, target=2, layer=WORDS, tol=1e-6)
    start = model.get_input_embeddings()(PAD).detach()
    torch.testing.assert_close(result.values, by_hand(model, start, lambda out: out[2]), rtol=1e-5, atol=1e-7)
    logits = model(**x).logits[:, 2].tolist()
    assert [example.score for example in result.certificate] == pytest.approx(logits, rel=1e-9)


def test_mask_as_a_further_argument_and_a_probability(model):
    result = integrated_gradients(
        model, IDS, target=[0, 1], score="probability", layer=WORDS, kwargs={"attention_mask": MASK}, tol=1e-6
    )
    words = model.get_input_embeddings()(IDS).detach()
    for i, target in enumerate([0, 1]):
        expected = by_hand(model, torch.zeros_like(words), lambda out, target=target: out.softmax(0)[target])
        torch.testing.assert_close(result.values[i], expected[i], rtol=1e-5, atol=1e-8)


def test_top_class_of_a_tokenizers_output(model):
    batch = transformers.BatchEncoding({"input_ids": IDS, "attention_mask": MASK})
    result = integrated_gradients(model, batch, layer=WORDS, tol=1e-6)
    top = model(**batch).logits.argmax(1)
    for i, target in enumerate(top.tolist()):
        expected = by_hand(model, torch.zeros(2, 5, 16).double(), lambda out, target=target: out[target])
        torch.testing.assert_close(result.values[i], expected[i], rtol=1e-5, atol=1e-7)
        assert result.certificate[i].target == f"output [{target}] (logit)"


def test_embeddings_as_the_input(model):
    words = model.get_input_embeddings()(IDS).detach()
    direct = integrated_gradients(model, {"inputs_embeds": words}, target=2, kwargs={"attention_mask": MASK}, tol=1e-6)
    layer = integrated_gradients(model, {"input_ids": IDS}, target=2, kwargs={"attention_mask": MASK}, layer=WORDS, tol=1e-6)
    torch.testing.assert_close(direct.values["inputs_embeds"], layer.values, rtol=1e-5, atol=1e-7)


def test_ids_without_a_layer(model):
    with pytest.raises(InputError, match=r"x\['input_ids'\] has dtype torch\.int64.*name the embedding with layer="):
        integrated_gradients(model, {"input_ids": IDS}, target=0)
