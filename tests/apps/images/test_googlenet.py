"""GoogLeNet: against torchvision's own answers, and on real photos with its real weights."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import skimage.data
import torch
from safetensors.torch import save_file

import integrand as ig
from benchmarks.fuzz_weights import caffe_file
from integrand.apps import networks, photos
from integrand.apps.images.googlenet import BVLC, TORCHVISION, GoogLeNet, load_bvlc, load_torchvision
from integrand.errors import FileError
from tests.apps.images.filled import picture, state, stored

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

WEIGHTS = "googlenet/bvlc_googlenet_imagenet_f16.npz"


@functools.cache
def theirs():
    shapes, _ = stored()
    return state(shapes)


@pytest.mark.parametrize("transform", [True, False])
@pytest.mark.parametrize("size", ["224", "odd"])
def test_the_logits_are_torchvisions(size, transform):
    _, logits = stored()
    with torch.no_grad():
        ours = load_torchvision(theirs(), transform_input=transform)(picture(size))
    wanted = logits[f"{size} {transform}"]
    assert (ours - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    assert not torch.equal(logits["224 True"], logits["224 False"])


def test_a_state_dict_without_training_heads_and_from_a_file(tmp_path):
    bare = {name: value for name, value in theirs().items() if not name.startswith("aux")}
    torch.save({"state_dict": {f"module.{name}": value for name, value in bare.items()}}, tmp_path / "net.pth")
    save_file(bare, tmp_path / "net.safetensors")
    x = picture("odd")
    with torch.no_grad():
        whole = load_torchvision(theirs())(x)
        assert torch.equal(load_torchvision(bare)(x), whole)
        for name in ("net.pth", "net.safetensors"):
            network = load_torchvision(tmp_path / name)
            assert torch.equal(network(x), whole)
            assert not network.training


def test_files_that_are_incomplete_or_anothers(tmp_path):
    state = dict(theirs())
    del state["inception4c.branch2.1.bn.running_var"]
    with pytest.raises(FileError, match=r"no 'inception4c\.branch2\.1\.bn\.running_var' among its \d+ arrays"):
        load_torchvision(state)
    state = theirs() | {"fc.weight": torch.zeros(1000, 7)}
    with pytest.raises(FileError, match=r"fc\.weight has shape \(1000, 7\); torchvision's googlenet has \(1000, 1024\)"):
        load_torchvision(state)
    state = theirs() | {"fc.bias": torch.full((1000,), float("nan"))}
    with pytest.raises(FileError, match=r"fc\.bias holds NaN"):
        load_torchvision(state)
    np.savez(tmp_path / "bad.npz", a=np.zeros(3))
    with pytest.raises(FileError, match=r"no 'conv1/7x7_s2/weight' and 115 more among its 1 arrays; expected .*BVLC"):
        load_bvlc(tmp_path / "bad.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(FileError, match="cannot be read"):
        load_bvlc(tmp_path / "text.npz")
    with pytest.raises(FileError, match="there is no file"):
        load_bvlc(tmp_path / "none.npz")
    with pytest.raises(FileError, match=r"ends in \.npz.*\.caffemodel"):
        load_bvlc(tmp_path / "weights.prototxt")


def test_the_number_of_classes_is_the_files():
    small = theirs() | {"fc.weight": theirs()["fc.weight"][:7], "fc.bias": theirs()["fc.bias"][:7]}
    with torch.no_grad():
        seven, all_of_them = load_torchvision(small)(picture("odd")), load_torchvision(theirs())(picture("odd"))
    torch.testing.assert_close(seven, all_of_them[:, :7], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("variant", [BVLC, TORCHVISION], ids=["BVLC", "torchvision"])
def test_sizes_are_those_of_the_paper(variant):
    network = GoogLeNet(variant).eval()
    sizes = {}
    for name in ("conv1", "conv2", "inception_3a", "inception_4a", "inception_5b"):
        network.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: sizes.update({name: tuple(out.shape[1:])})
        )
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 224, 224)).shape == (1, 1000)
    assert sizes == {
        "conv1": (64, 112, 112),
        "conv2": (192, 56, 56),
        "inception_3a": (256, 28, 28),
        "inception_4a": (512, 14, 14),
        "inception_5b": (1024, 7, 7),
    }


@pytest.fixture(scope="module")
def real(data):
    return networks.load("googlenet", weights=data(WEIGHTS))


@pytest.fixture(scope="module")
def seen(real, data):
    """Photos and what the network says of them."""
    files = photos.photos([data("photos")])
    x = torch.cat([real.preprocess(photos.read(file)) for file in files])
    with torch.no_grad():
        rows = torch.cat([real.module(one[None]).softmax(1) for one in x])
    return {file.stem: row for file, row in zip(files, rows, strict=True)}, x


def test_photos_get_sensible_labels(real, seen):
    said, _ = seen
    assert len(said) == 42
    assert np.median([float(row.max()) for row in said.values()]) > 0.95
    labels = {name[:4]: real.label(int(row.argmax())) for name, row in said.items()}
    # what is to be seen in them
    assert labels["2587"] == "starfish"
    assert labels["700a"] == "school bus"
    assert labels["7f59"] == "traffic light"
    assert labels["ba10"] == "snow leopard"
    assert labels["cc61"] == "Granny Smith"
    assert labels["d19e"] == "French bulldog"


def test_coffee_is_espresso(real):
    with torch.no_grad():
        said = real.module(real.preprocess(skimage.data.coffee())).softmax(1)[0]
    assert real.label(int(said.argmax())) == "espresso"
    assert float(said.max()) == pytest.approx(0.93, abs=0.02)


@pytest.mark.parametrize("later", [False, True], ids=["2014", "later"])
def test_a_caffemodel_is_the_same_network(real, data, tmp_path, monkeypatch, later):
    """The file that BVLC published has this format; before, only an .npz that nobody publishes was read."""
    path = tmp_path / "bvlc_googlenet.caffemodel"
    path.write_bytes(caffe_file(dict(np.load(data(WEIGHTS))), later=later))
    monkeypatch.setenv("INTEGRAND_GOOGLENET", str(path))
    same = networks.load("googlenet")
    assert {name: value.shape for name, value in same.module.state_dict().items()} == {
        name: value.shape for name, value in real.module.state_dict().items()
    }
    x = real.preprocess(skimage.data.coffee())
    with torch.no_grad():
        assert torch.equal(same.module(x), real.module(x))
    assert (same.preprocess, same.classes) == (real.preprocess, real.classes)


def test_half_precision_weights_run_in_float32(real):
    assert {parameter.dtype for parameter in real.module.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in real.module.parameters()) == 6_998_552
    assert not real.module.training
    assert real.classes is networks.imagenet()


def test_every_attribution_is_complete_within_its_tolerance(real, seen, pytestconfig):
    said, x = seen
    tol = 0.05
    # A butterfly, a reel, an apiary: sure and less sure; benchmarks/googlenet_photos.py does all 42.
    for i in (4, 37) if pytestconfig.getoption("--brief") else (4, 8, 37):
        one, black = x[i : i + 1], real.preprocess.low.expand(1, 3, 224, 224)
        target = int(said[sorted(said)[i]].argmax())
        result = ig.integrated_gradients(real.module, one, black, target=target, score="probability", tol=tol)
        known = result.certificate.only
        assert known.converged
        assert known.error <= tol
        with torch.no_grad():
            at_black, at_photo = real.module(torch.cat([black, one])).double().softmax(1)[:, target]
        total, magnitude = float(result.values.double().sum()), float(result.values.double().abs().sum())
        misses = total - float(at_photo - at_black)
        assert abs(misses) <= tol * magnitude
        assert known.residual == pytest.approx(misses, abs=1e-5 * magnitude)
        assert known.magnitude == pytest.approx(magnitude, rel=1e-5)


def test_other_methods_explain_it_too(real, seen):
    _, x = seen
    half = x[6:7, :, ::2, ::2]
    black = real.preprocess.low.expand_as(half)
    result = ig.methods.DeepLift()(real.module, half, black, target=327)
    known = result.certificate.only
    assert float(result.values.double().sum()) == pytest.approx(known.score - known.baseline_score, rel=1e-3)
