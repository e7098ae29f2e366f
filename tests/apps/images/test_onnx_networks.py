"""``--model net.onnx``: a network of pictures from an ONNX file, channels first or last."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from integrand.apps import images, networks
from integrand.cli.app import app
from integrand.errors import FileError, OptionError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
if not importlib.util.find_spec("onnx2pytorch"):
    pytest.skip("pip install --no-deps onnx2pytorch onnx2torch", allow_module_level=True)

from tests.onnx_models.builders import cnn, made, node


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def write(path: Path, *, last: bool = False) -> torch.nn.Module:
    """The small network, as a file."""
    model, net = cnn()
    if last:
        model.graph.node[0].input[0] = "first"
        model.graph.node.insert(0, node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]))
        sides = model.graph.input[0].type.tensor_type.shape.dim
        sides[1].dim_value, sides[2].dim_value, sides[3].dim_value = 8, 8, 3
    path.write_bytes(model.SerializeToString())
    return net


@pytest.mark.parametrize("last", [False, True])
def test_a_photo_by_a_network_of_a_file(last: bool, photo: Path, tmp_path: Path) -> None:
    net = write(tmp_path / "net.onnx", last=last)
    stated = {"mean": 127.0, "scale": 64.0, "classes": ["a", "b", "c", "d", "e"]}
    network = networks.load(tmp_path / "net.onnx", **stated)
    assert network.preprocess.size == (8, 8)
    assert "of onnxruntime" in " ".join(network.notes)
    assert ("colours last" in " ".join(network.notes)) == last
    preprocess = networks.Preprocess((8, 8), (127.0,) * 3, (64.0,) * 3)
    own = networks.network_of(net, preprocess=preprocess, classes=stated["classes"])
    ours, theirs = (images.explain(photo, one, tol=0.01).result.values for one in (network, own))
    assert float((ours - theirs).abs().sum() / theirs.abs().sum()) < 0.02
    with pytest.raises(OptionError, match="was exported for"):
        networks.load(tmp_path / "net.onnx", size=9)
    with pytest.raises(OptionError, match="has its own"):
        networks.load(tmp_path / "net.onnx", weights="w.pth")


def test_the_command(photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "net.onnx")
    words = ["image", "photo.png", "--model", "net.onnx", "--mean", "127", "--scale", "64", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "onnx2pytorch" in json.dumps(json.loads(done.stdout))
    (tmp_path / "net.onnx").write_bytes(b"no network")
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0


def test_networks_of_other_things_are_refused(tmp_path: Path) -> None:
    model = made([node("Relu", ["x"], ["y"])], {"x": ("float32", ("n", 3))}, {"y": ("float32", ("n", 3))}, {})
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="expected one picture"):
        networks.load(tmp_path / "net.onnx")
