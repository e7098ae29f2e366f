# ruff: noqa: E402 - what is imported needs packages that may be missing
"""Files that are no networks, are damaged, or ask for what they must not have."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import integrand as ig
from integrand.errors import FileError, InputError, IntegrandError, ModelError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from integrand.onnx_models import onnx_files
from integrand.onnx_models.onnx_files import read_onnx

from .builders import cnn


def outside(model: onnx.ModelProto, location: str, **places: int) -> onnx.ModelProto:
    """The model with its first tensor in another file."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **places}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


def test_tensors_beside_the_file_are_read(tmp_path: Path) -> None:
    model, _ = cnn()
    raw = model.graph.initializer[0].raw_data
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "first.bin").write_bytes(b"\0" * 8 + raw)
    path = tmp_path / "net.onnx"
    path.write_bytes(outside(model, "weights/first.bin", offset=8, length=len(raw)).SerializeToString())
    found, name = read_onnx(path)
    assert name == str(path)
    assert found.graph.initializer[0].raw_data == raw
    with pytest.raises(FileError, match=r"Pass the path of the \.onnx file"):
        read_onnx(path.read_bytes())


@pytest.mark.parametrize(
    "location", ["../secret.bin", "a/../../secret.bin", "{folder}/secret.bin", "link.bin", "..\\secret.bin", ""]
)
def test_tensors_elsewhere_are_not_read(location: str, tmp_path: Path) -> None:
    model, _ = cnn()
    raw = model.graph.initializer[0].raw_data
    (tmp_path / "secret.bin").write_bytes(raw)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = folder / "net.onnx"
    path.write_bytes(outside(model, location.format(folder=tmp_path)).SerializeToString())
    with pytest.raises(FileError, match="Nothing outside of it is read"):
        read_onnx(path)


@pytest.mark.parametrize("places", [{"offset": -4}, {"offset": 1}, {"length": 7}, {"offset": 1 << 62}])
def test_places_in_other_files_that_are_not_there(places: dict[str, int], tmp_path: Path) -> None:
    model, _ = cnn()
    (tmp_path / "a.bin").write_bytes(model.graph.initializer[0].raw_data)
    path = tmp_path / "net.onnx"
    path.write_bytes(outside(model, "a.bin", **places).SerializeToString())
    with pytest.raises(FileError, match="does not have them there"):
        read_onnx(path)


def test_what_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello, this is a text and no network")
    (tmp_path / "empty.onnx").write_bytes(b"")
    model, _ = cnn()
    (tmp_path / "cut.onnx").write_bytes(model.SerializeToString()[:-40])
    (tmp_path / "zeros.onnx").write_bytes(b"\0" * 50)
    for name in ("text.onnx", "empty.onnx", "cut.onnx", "zeros.onnx"):
        with pytest.raises(FileError, match=r"cannot be read as an \.onnx file"):
            ig.from_onnx(tmp_path / name)
    with pytest.raises(FileError, match="there is no file"):
        ig.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(FileError, match="is a folder"):
        ig.from_onnx(tmp_path)
    with pytest.raises(InputError, match="expected the path"):
        ig.from_onnx(3)  # type: ignore[arg-type]


def test_claims_without_numbers() -> None:
    model, _ = cnn()
    model.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(FileError, match=r"together|needs"):
        read_onnx(model)
    model, _ = cnn()
    model.graph.initializer[0].dims[0] = -6
    with pytest.raises(FileError, match="a shape that cannot be"):
        read_onnx(model)


def test_files_that_unfold_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty operations take two bytes each, and some hundred in memory."""
    monkeypatch.setattr(onnx_files, "ONNX_FIELDS", 1000)
    graph = b"\x0a\x00" * 5000
    size = len(graph)
    with pytest.raises(FileError, match="more than 1,000 fields"):
        read_onnx(b"\x3a" + bytes([size & 0x7F | 0x80, size >> 7]) + graph)


def test_graphs_deep_in_one_another_are_not_followed() -> None:
    inner = b""
    for _ in range(200):  # graph { node { attribute { g ... } } }
        for field in (6, 5, 1):
            size, coded = len(inner), b""
            while size > 0x7F:
                coded, size = coded + bytes([size & 0x7F | 0x80]), size >> 7
            inner = bytes([field << 3 | 2]) + coded + bytes([size]) + inner
    size, coded = len(inner), b""
    while size > 0x7F:
        coded, size = coded + bytes([size & 0x7F | 0x80]), size >> 7
    with pytest.raises(FileError, match="deep in one another"):
        read_onnx(b"\x3a" + coded + bytes([size]) + inner)


def test_mutated_files_are_our_errors_or_networks() -> None:
    data = cnn()[0].SerializeToString()
    chance = random.Random(0)
    for _ in range(300):
        bad = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        with suppress(IntegrandError):
            model, _ = read_onnx(bytes(bad))
            assert sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer) < 1e6


def test_a_network_with_a_function_of_its_own_is_read(tmp_path: Path) -> None:
    """In a process of its own, where nobody has imported onnx.inliner: onnx itself does not."""
    helper = onnx.helper
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="own")], "net", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    (tmp_path / "own.onnx").write_bytes(model.SerializeToString())
    code = "import integrand as ig, sys, torch; print(ig.from_onnx(sys.argv[1])(torch.tensor([[-1.0, 0.0, 2.0]])).tolist())"
    command = [sys.executable, "-c", code, str(tmp_path / "own.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[[0.0, 0.0, 2.0]]", done.stderr


@pytest.mark.parametrize(("kind", "sides", "said"), [(1, [1, 10**12], "at most"), (66, [1, 3], "number 66")])
def test_inputs_of_few_bytes_that_cannot_be(kind: int, sides: list[int], said: str) -> None:
    """77 bytes asked for 4 TB; a type that nobody knows was a ValueError."""
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, 1, sides) for name in ("x", "y")]
    ends[0].type.tensor_type.elem_type = kind
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=said):
        ig.from_onnx(model.SerializeToString())
