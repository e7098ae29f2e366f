"""Models that accelerate has placed: the ids go where the embedding is, also while its weights are elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import accelerate
import torch
import transformers

from integrand import text

from .tiny import classifier, writer

pytestmark = pytest.mark.filterwarnings("ignore")  # accelerate's own


def test_a_device_map(tmp_path):
    model, tokenizer = classifier("roberta")
    model = model.float()
    here = text.explain(model, tokenizer, ["The film was not bad.", "Good!"], target=2)
    model.save_pretrained(tmp_path)
    placed = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, device_map={"": "cpu"}).eval()
    for a, b in zip(here, text.explain(placed, tokenizer, ["The film was not bad.", "Good!"], target=2), strict=True):
        np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_weights_that_are_loaded_when_needed(kind, tmp_path):
    model, tokenizer = writer(kind)
    here = text.generated(model, tokenizer, "The film", continuation=" is bad", baseline="mean")
    away = accelerate.disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
    assert next(away.parameters()).is_meta
    there = text.generated(away, tokenizer, "The film", continuation=" is bad", baseline="mean")
    np.testing.assert_array_equal(here.values, there.values)
