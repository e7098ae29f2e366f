"""Photos with several things in them: why a detector drew a box, or a segmenter a mask.

    network = scenes.load("fastestdet:weights.pth")
    found = scenes.explain("street.jpg", network, box=0)
    print(found)                                      # car (91%) in the box ...: the box accounts for ...
    found.save("box.html")

Any detector or segmenter of yours can be explained too: :func:`scene_network`. What it explains are values of
:mod:`integrand.targets`, which work without photos and pages as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .model import SceneNetwork, load, scene_network
    from .result import ExplainedScene, SceneAim, check, explain, explain_scenes
    from .scene_names import CITYSCAPES, COCO
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "CITYSCAPES": "scene_names",
            "COCO": "scene_names",
            "ExplainedScene": "result",
            "SceneAim": "result",
            "SceneNetwork": "model",
            "check": "result",
            "explain": "result",
            "explain_scenes": "result",
            "load": "model",
            "scene_network": "model",
        },
    )

__all__ = [
    "CITYSCAPES",
    "COCO",
    "ExplainedScene",
    "SceneAim",
    "SceneNetwork",
    "check",
    "explain",
    "explain_scenes",
    "load",
    "scene_network",
]
