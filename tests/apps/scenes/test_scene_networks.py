"""The detector and the segmenter with their published weights: what they say of real photos, and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import integrand as ig
from integrand import targets
from integrand.apps import scenes
from integrand.apps.scenes.espnet import ESPNet
from integrand.apps.scenes.fastestdet import FastestDet
from integrand.errors import FileError, OptionError, TargetError

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
VISION = DATA / "vision"
photos = pytest.importorskip("skimage.data", reason="needs the photos of scikit-image")
published = pytest.mark.skipif(not VISION.is_dir(), reason="needs the published weights in ../shared/data/vision")


@pytest.fixture(scope="module")
def detector() -> scenes.SceneNetwork:
    return scenes.load(f"fastestdet:{VISION / 'fastestdet_coco.pth'}")


@pytest.fixture(scope="module")
def segmenter() -> scenes.SceneNetwork:
    return scenes.load(f"espnet:{VISION / 'espnet_cityscapes.pth'}", size=256)


@published
def test_the_published_weights_fit_all_of_both_networks() -> None:
    for network, file in ((FastestDet(), "fastestdet_coco.pth"), (ESPNet(), "espnet_cityscapes.pth")):
        state = torch.load(VISION / file, map_location="cpu", weights_only=True)
        own = {key: value.shape for key, value in network.state_dict().items() if "num_batches" not in key}
        assert own == {key: value.shape for key, value in state.items() if "num_batches" not in key}


@published
@pytest.mark.parametrize(
    ("name", "label", "middle"),
    [("chelsea", "cat", (0.45, 0.47)), ("astronaut", "person", (0.37, 0.52)), ("coffee", "cup", (0.49, 0.31))],
)
def test_the_detector_finds_what_is_there(
    detector: scenes.SceneNetwork, name: str, label: str, middle: tuple[float, float]
) -> None:
    pixels = getattr(photos, name)()
    with torch.no_grad():
        one = detector.detections(detector.module(detector.preprocess(pixels)))[0]
    assert detector.label(one.label) == label
    assert one.score > 0.8
    left, top, right, bottom = (side / 352 for side in one.box)
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx(middle, abs=0.05)


@published
@pytest.mark.skipif(not (DATA / "photos").is_dir(), reason="needs the photos in ../shared/data/photos")
def test_the_segmenter_sees_lights_trees_and_sky_at_a_crossing(segmenter: scenes.SceneNetwork) -> None:
    from PIL import Image

    pixels = np.asarray(Image.open(DATA / "photos" / "7f59ece15328c57d.jpg").convert("RGB"))
    with torch.no_grad():
        maps = segmenter.maps(segmenter.module(segmenter.preprocess(pixels)))
    said = [segmenter.label(int(k)) for k in maps[:, [30, 200, 127], [128, 180, 85]].argmax(0)]
    assert said == ["sky", "vegetation", "traffic light"]


@published
def test_a_box_is_explained_inside_and_outside(detector: scenes.SceneNetwork) -> None:
    found = scenes.explain(photos.coffee(), detector, box="cup", tol=0.3)
    one = found.result.certificate.only
    assert one.converged
    assert one.target.startswith("score of cup in the box 99,14-")
    assert one.score == pytest.approx(found.scene.sure, rel=1e-4)
    # Both sums together are all there is.
    (inside, _), (outside, _) = found.sums
    assert inside + outside == pytest.approx(float(found.result.values.sum()), abs=1e-3)
    by_hand = found.result.values[0].sum(0)[torch.as_tensor(found.scene.inside)].sum()
    assert inside == pytest.approx(float(by_hand), abs=1e-3)
    # The candidate is followed: the same numbers as for its cell, picked by hand.
    cell = detector.detections(detector.module(found.x))[0].candidate
    again = ig.integrated_gradients(detector.module, found.x, found.starts, target=lambda out: out.scores[:, cell, 41], tol=0.3)
    torch.testing.assert_close(found.result.values, again.values)
    assert "cup (81%) in the box 168,16-416,234: the box, 23% of the picture, accounts for +" in found.sentence
    assert found.beside[0].startswith("found: 0: cup (81%), 1: cup (68%)")
    numbers = found.numbers()["scene"]
    assert numbers["inside"]["sum"] == pytest.approx(inside)
    assert 0.4 < numbers["share_of_evidence_inside"]["share"] < 0.8


@published
def test_matching_a_real_detection_is_said_to_jump(detector: scenes.SceneNetwork) -> None:
    x = detector.preprocess(photos.chelsea())
    found = ig.integrated_gradients(detector.module, x, target=targets.box(0, follow="overlap"), tol=0.5)
    assert "the detection is not there (threshold, non-maximum suppression)" in found.certificate.only.note
    assert not ig.integrated_gradients(detector.module, x, target=targets.box(0), tol=0.5).certificate.only.note


@published
def test_a_mask_and_a_region_are_means_over_their_pixels(segmenter: scenes.SceneNetwork) -> None:
    pixels = photos.stereo_motorcycle()[0]
    found = scenes.explain(pixels, segmenter, tol=0.5)  # the largest part
    with torch.no_grad():
        maps = segmenter.maps(segmenter.module(found.x))
    label = int(maps.argmax(0).flatten().mode().values)
    part = maps.argmax(0) == label
    assert found.x.shape == (1, 3, 176, 256)  # the shape of the photo, in steps of 8
    assert np.array_equal(found.scene.inside, part.numpy())
    assert found.result.certificate.only.score == pytest.approx(float(maps[label][part].mean()), rel=1e-4)
    assert found.sentence.startswith(
        f"{segmenter.label(label)}: its mask, {100 * float(part.double().mean()):.0f}% of the picture, "
    )
    region = scenes.explain(pixels, segmenter, mask="road", region=(0, 0, 741, 250), what="probability", tol=0.5)
    assert region.scene.inside[:88].all()
    assert not region.scene.inside[88:].any()
    assert region.result.certificate.only.score == pytest.approx(float(maps.softmax(0)[0, :88].mean()), rel=1e-3)


@published
def test_what_does_not_fit_a_network_is_refused(detector: scenes.SceneNetwork, segmenter: scenes.SceneNetwork) -> None:
    photo = photos.coffee()
    for network, asked, said in (
        (detector, {"box": 9}, "it finds 0: cup (0.81); 1: cup"),
        (detector, {"box": "zebra"}, "does not find"),
        (detector, {"box": "unicorn"}, "no class is called 'unicorn'"),
        (detector, {"mask": "road"}, "finds boxes"),
        (detector, {"what": "probability"}, "expected one of score"),
        (segmenter, {"box": 0}, "gives masks"),
        (segmenter, {"mask": "motorcycle"}, "sees no motorcycle"),
        (segmenter, {"mask": "road", "region": (0, 0, 10_000, 5)}, "600 x 400 pixels"),
        (segmenter, {"mask": "road", "region": (0, 0, 5)}, "left, top, right, bottom"),
    ):
        with pytest.raises((TargetError, OptionError)) as error:
            scenes.explain(photo, network, **asked)  # type: ignore[arg-type]
        assert said in str(error.value)
    with pytest.raises(TargetError, match="finds no object"):
        scenes.explain(np.zeros((64, 64, 3), np.uint8), detector)


def test_names_that_are_no_network_of_scenes(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    for name, kind, said in (
        ("fastestdet", OptionError, "without its weights"),
        ("resnet50", OptionError, "integrand image"),
        ("net.onnx", OptionError, r"scene_network\(integrand\.from_onnx\(path\)\)"),
        ("my.module:make", ig.errors.TrustError, "--trust"),
        (f"espnet:{tmp_path / 'other.safetensors'}", FileError, "expected the state dict of espnet"),
        (f"espnet:{tmp_path / 'none.pth'}", FileError, "there is no file"),
    ):
        with pytest.raises(kind, match=said):
            scenes.load(name)


@published
def test_sizes_that_a_network_does_not_take() -> None:
    with pytest.raises(OptionError, match="352"):
        scenes.load(f"fastestdet:{VISION / 'fastestdet_coco.pth'}", size=416)
    with pytest.raises(OptionError, match="multiples of 8"):
        scenes.load(f"espnet:{VISION / 'espnet_cityscapes.pth'}", size=(250, 500))
    with pytest.raises(OptionError, match="leave them out"):
        scenes.load(f"espnet:{VISION / 'espnet_cityscapes.pth'}", order="RGB")
