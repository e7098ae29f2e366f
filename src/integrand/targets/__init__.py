"""Targets that know what a family of models gives: boxes, masks, embeddings, classes against each other, spans of tokens.

Each is a small value for ``target=`` of every method here. It looks at the output at the input once, decides there what it is
about (which candidate made the box, which pixels are the mask, which class comes second), and holds that fixed along the path;
the certificate says it in words. Called with an output, it gives its scores there.

>>> import torch, integrand as ig
>>> logits = torch.nn.Linear(3, 4)
>>> result = ig.integrated_gradients(logits, torch.ones(1, 3), target=ig.targets.against(1, 2))
>>> result.certificate.only.target
'class 1 against class 2'
"""

from __future__ import annotations

from .box_target import LEAST, BoxTarget, box, detections
from .found_boxes import Candidates, Detection
from .mask_target import MaskTarget, mask
from .score_targets import AgainstTarget, SimilarityTarget, SpanTarget, against, similarity, span

__all__ = [
    "LEAST",
    "AgainstTarget",
    "BoxTarget",
    "Candidates",
    "Detection",
    "MaskTarget",
    "SimilarityTarget",
    "SpanTarget",
    "against",
    "box",
    "detections",
    "mask",
    "similarity",
    "span",
]
