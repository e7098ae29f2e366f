"""Boxes and masks of Hugging Face models, tiny ones of the real architectures with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import targets

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")  # random weights have biases of zero


class OfPixels(nn.Module):
    """A model that takes pictures as its first argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.model(pixel_values=x)


@pytest.fixture(scope="module")
def yolos() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.YolosConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=[32, 32],
        patch_size=16,
        num_detection_tokens=5,
        num_labels=3,
    )
    return OfPixels(transformers.YolosForObjectDetection(config)).eval().double()


@pytest.fixture(scope="module")
def segformer() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=4,
    )
    return OfPixels(transformers.SegformerForSemanticSegmentation(config)).eval().double()


PHOTO = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("what", ["score", "logit", "width"])
def test_a_query_of_a_detector(yolos: nn.Module, what: Any) -> None:
    out = yolos(PHOTO)
    scores = out.logits.softmax(-1)[0, :, :-1]  # the last class is "no object"
    query, label = divmod(int(scores.argmax()), scores.shape[1])
    by_hand = {
        "score": lambda o: o.logits.softmax(-1)[:, query, label],
        "logit": lambda o: o.logits[:, query, label],
        "width": lambda o: o.pred_boxes[:, query, 2],
    }[what]
    found = ig.integrated_gradients(yolos, PHOTO, target=targets.box(0, what, least=0.0))
    expected = ig.integrated_gradients(yolos, PHOTO, target=by_hand)
    assert found.certificate.converged
    torch.testing.assert_close(found.values, expected.values, rtol=1e-3, atol=1e-6)
    assert f"class {label} in the box 0." in found.certificate.only.target


def test_queries_of_detectors_that_end_in_sigmoids() -> None:
    class DeformableDetrObjectDetectionOutput(dict[str, Tensor]):
        """Has the name that Hugging Face's output has, and two queries."""

    logits, boxes = torch.tensor([[[2.0, -1.0], [0.0, 1.0]]]), torch.tensor([[[0.5, 0.5, 0.2, 0.4], [0.2, 0.2, 0.2, 0.2]]])
    found = targets.detections(DeformableDetrObjectDetectionOutput(logits=logits, pred_boxes=boxes))[0]
    assert [one.score for one in found] == pytest.approx([0.880797, 0.731059], abs=1e-5)
    assert found[0].box == pytest.approx((0.4, 0.3, 0.6, 0.7))


def test_the_mask_of_a_segmenter(segformer: nn.Module) -> None:
    said = segformer(PHOTO).logits.argmax(1)
    label = int(said.flatten().mode().values)
    found = ig.integrated_gradients(segformer, PHOTO, target=targets.mask(label))
    expected = ig.integrated_gradients(
        segformer, PHOTO, target=lambda out: (out.logits[:, label] * (said == label)).flatten(1).sum(1)
    )
    assert found.certificate.converged
    torch.testing.assert_close(found.values, expected.values, rtol=1e-3, atol=1e-6)


def test_the_similarity_of_embeddings_by_their_name() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 3)

    def model(x: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": x[:, None], "pooler_output": net(x)}

    x, other = torch.rand(1, 4), torch.rand(3)
    found = ig.integrated_gradients(model, x, torch.ones(1, 4), target=targets.similarity(other))
    by_hand = ig.integrated_gradients(
        model, x, torch.ones(1, 4), target=lambda out: torch.cosine_similarity(out["pooler_output"], other[None])
    )
    torch.testing.assert_close(found.values, by_hand.values)
