"""Files of tensors: what honest ones hold, and what hostile ones cannot do."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import save_file

from benchmarks import fuzz_weights as fuzz
from integrand import tensor_files
from integrand.apps import networks
from integrand.apps.images.class_names import LIST_BYTES, read_classes
from integrand.apps.images.googlenet import BVLC, GoogLeNet, load_bvlc
from integrand.apps.molecules.weave import Weave, read_weave, write_weave
from integrand.apps.translation.seq2seq import Seq2Seq, load_pieces
from integrand.apps.translation.seq2seq import load as load_translator
from integrand.errors import FileError
from integrand.loading import read_state
from integrand.tensor_files import archive_names, check_weights, parsed, read_json, read_tensors, shapes_without_memory

KINDS = st.sampled_from(["<f4", ">f8", "<f2", "|b1", "|u1", "<i4", ">i8", "|i1", "<c8"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def read(path: Path) -> object:
    return read_tensors(path, what="weights")


# honest files


@settings(max_examples=60, deadline=None)
@given(st.lists(arrays.arrays(KINDS, SHAPES), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_arrays_are_read_as_numpy_reads_them(tmp_path_factory, found, packed, columns):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    named = {f"layer/{i}": np.asfortranarray(array) if columns else array for i, array in enumerate(found)}
    (np.savez_compressed if packed else np.savez)(path, **named)
    ours = read(path)
    with np.load(path) as theirs:
        assert list(ours) == theirs.files
        for name in theirs.files:
            np.testing.assert_array_equal(ours[name].numpy(), theirs[name])
            assert ours[name].numpy().dtype == theirs[name].dtype.newbyteorder("=")
    np.save(path.with_suffix(".npy"), found[0])
    np.testing.assert_array_equal(read(path.with_suffix(".npy")).numpy(), found[0])


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8]
TYPES += [torch.uint8, torch.bool, torch.complex64]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TYPES), SHAPES), max_size=5), st.booleans())
def test_state_dicts_are_read_as_torch_reads_them(tmp_path_factory, found, zipped):
    folder = tmp_path_factory.mktemp("state")
    state = OrderedDict((f"{i}.weight", torch.ones(shape).to(dtype)) for i, (dtype, shape) in enumerate(found))
    torch.save({"state_dict": state, "epoch": 3}, folder / "a.pth", _use_new_zipfile_serialization=zipped)
    save_file(state, folder / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        ours = read_state(folder / name)
        assert {key: (value.dtype, value.shape) for key, value in ours.items()} == {
            key: (value.dtype, value.shape) for key, value in state.items()
        }
        assert all(torch.equal(ours[key], state[key]) for key in state)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "value",
    [
        torch.arange(10)[2:5],
        torch.ones(1).expand(1000),
        torch.arange(6.0).reshape(2, 3).T,
        torch.nn.Parameter(torch.ones(2)),
        [torch.ones(2), {"a": (1, 2.5, None, True, "text", b"bytes", 2**40, -5)}],
        {1: {2, 3}, "size": torch.Size([1, 2]), "kind": torch.float16, "where": torch.device("cpu"), "number": 1j},
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
    ],
    ids=["view", "expanded", "transposed", "parameter", "list", "others", "state"],
)
def test_what_torch_saves_beside_plain_tensors(tmp_path, value, zipped):
    torch.save(value, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert str(read(tmp_path / "a.pt")) == str(value)


def test_a_storage_of_several_tensors_counts_once(tmp_path):
    whole = torch.arange(1000.0)
    torch.save({str(i): whole[i:] for i in range(100)}, tmp_path / "a.pth")
    assert len(read_state(tmp_path / "a.pth")) == 100


@settings(max_examples=30, deadline=None)
@given(st.lists(arrays.arrays("<f4", SHAPES), min_size=1, max_size=5), st.booleans())
def test_layers_of_caffe_are_read_as_they_were_written(tmp_path_factory, found, later):
    path = tmp_path_factory.mktemp("caffe") / "a.caffemodel"
    named = {f"inception/{i // 2}/{('weight', 'bias')[i % 2]}": array for i, array in enumerate(found)}
    data = fuzz.caffe_file(named, later=later)
    path.write_bytes(data + fuzz.caffe_field(100, fuzz.caffe_field(1, b"data")) * 2)  # layers without weights may share a name
    ours = read_state(path)
    assert list(ours) == list(named)
    for name, array in named.items():
        np.testing.assert_array_equal(
            ours[name].numpy(), array if later else array.reshape((1,) * (4 - array.ndim) + array.shape)
        )


# hostile files


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> tuple[dict[str, bytes], Path]:
    folder = tmp_path_factory.mktemp("hostile")
    return fuzz.seeds(folder, folder / "bait", quick=True), folder / "bait"


def test_hostile_files_are_refused_and_run_nothing(tmp_path, hostile):
    """Pickles that run code, claims without numbers, deep nesting; before, some took all memory."""
    files, bait = hostile
    honest = {"honest.pth", "older.pth", "honest.safetensors", "stored.npz", "packed.npz", "honest.npy", "names.txt"}
    honest |= {"honest.caffemodel", "later.caffemodel"}
    ends = {}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        ends[name] = fuzz.outcome(fuzz.reader_of(name), tmp_path / name)
    assert {name for name, end in ends.items() if end == fuzz.READ} == honest | {"weave.safetensors"}
    assert set(ends.values()) == {fuzz.READ, fuzz.CLEAN}
    assert not bait.exists()


def test_damaged_files_are_refused_and_run_nothing(tmp_path, hostile):
    """A short run of benchmarks.fuzz_weights, in this process."""
    files, bait = hostile
    chance = random.Random(1)
    small = [name for name, data in files.items() if len(data) < 1 << 20]
    for _ in range(250):
        name = chance.choice(small)
        change = fuzz.rezipped_mutation if files[name].startswith(b"PK") and chance.random() < 0.6 else fuzz.mutated
        (tmp_path / name).write_bytes(change(files[name], chance))
        assert fuzz.outcome(fuzz.reader_of(name), tmp_path / name) in (fuzz.READ, fuzz.CLEAN)
        assert not bait.exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits are set by what /proc says")
def test_the_fuzzer_finds_nothing():
    done = subprocess.run([sys.executable, "-m", "benchmarks.fuzz_weights", "--cases", "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "      0 executed" in done.stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("payload.pth", r"asks for \w+\.mkdir, which tensors do not need; nothing of it was run|not what torch.save writes"),
        ("zipped.pth", r"asks for \w+\.mkdir, which tensors do not need; nothing of it was run"),
        ("nested.pth", "a dict in it has a key that is neither a text nor a number"),
        ("set.pth", "a dict in it has a key that is neither a text nor a number"),
        ("counter.pth", "a dict in it has a key that is neither a text nor a number"),
        ("codec.pth", r"its pickle calls _codecs\.encode in a way that tensors do not need"),
        ("keys.pth", "its storages have no names"),
        ("wide.pth", r"would take 3\.64 TiB of memory"),
        ("outside.pth", "a tensor of shape .* reaches beyond its 432 bytes"),
        ("allocates.pth", r"asks for builtins\.bytearray"),
        ("objects.npz", "an array is not one of numbers; objects and records are not read"),
        ("claims0.npy", r"an array of shape \(1000000000000,\) needs 4,000,000,000,000 bytes, and 0 are there"),
        ("header0.safetensors", "cannot be read"),
        ("blob0.caffemodel", r"a blob of shape \(1000000000000,\) has 8 bytes of numbers"),
        ("blob4.caffemodel", "a blob has more than 64 dimensions"),
        ("twice.caffemodel", "two of its layers have the name 'a'"),
        ("nameless.caffemodel", "a layer with weights has no name"),
        ("name.caffemodel", "the name of a layer has 1,000,000 bytes; at most 1,000 are read"),
        ("group.caffemodel", "it is not what caffe writes"),
        ("endless.caffemodel", "a number has no end"),
        ("long.caffemodel", "a field reaches beyond its end"),
        ("fields.caffemodel", "it has more than 200,000 fields"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path, hostile, name, words):
    (tmp_path / name).write_bytes(hostile[0][name])
    with pytest.raises(FileError, match=words) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_tensors_bring_nothing_to_call(tmp_path, hostile):
    """The functions that a tensor's gradient would be given to are a dict in the pickle, empty in what state dicts save."""
    made = fuzz.tensor_pickle(108, (4,), (1,))
    for find, put in (
        (b")RtR", b")RK\0ctorch._utils\n_rebuild_tensor\nstR"),
        (b")RtR", b")Rq\x05tRh\x05K\0ctorch._utils\n_rebuild_tensor\ns0"),
    ):
        assert find in made
        (tmp_path / "a.pth").write_bytes(fuzz.rezipped(hostile[0]["honest.pth"], {"data.pkl": made.replace(find, put)}))
        with pytest.raises(FileError, match="gives a tensor something to call"):
            read(tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes(fuzz.rezipped(hostile[0]["honest.pth"], {"data.pkl": made}))
    assert read(tmp_path / "a.pth")["a"].shape == (4,)


def test_bombs_are_refused_by_their_table_of_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "ALWAYS_UNFOLDS", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(200_000, np.float32))
    assert read(tmp_path / "a.npz")["a"].shape == (200_000,)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 19, np.float32))
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # nothing is unpacked
    with pytest.raises(FileError, match=r"would take 2 MiB of memory, which is not what tensors do"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("limit", ["LARGEST_TENSORS", "DIRECTORY_BYTES", "PICKLE_BYTES", "PICKLE_STEPS", "HEADER_BYTES"])
def test_every_limit_holds(tmp_path, monkeypatch, limit):
    state = {"a": torch.ones(2), "b": torch.ones(3)}
    torch.save(state, tmp_path / "a.pth")
    torch.save(state, tmp_path / "older.pth", _use_new_zipfile_serialization=False)
    save_file(state, tmp_path / "a.safetensors")
    names = ["a.safetensors"] if limit == "HEADER_BYTES" else ["a.pth", "older.pth"]
    names = names[:1] if limit == "DIRECTORY_BYTES" else names
    for name in names:
        assert read_state(tmp_path / name)
    monkeypatch.setattr(tensor_files, limit, 20)
    for name in names:
        with pytest.raises(FileError, match="cannot be read"):
            read_state(tmp_path / name)


def changed(data: bytes, how: str) -> bytes:
    """An archive that one reader of zip files understands in another way than the next."""
    if how == "prefix":
        return data[:4] + bytes(100) + data
    if how == "comment":
        return data[:-2] + struct.pack("<H", 5) + b"hello"
    if how == "behind":
        return data + data[-22:]
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        twin = next(name for name in old.namelist() if name.endswith("data.pkl"))
        new.writestr(twin.replace("data", "DATA"), b"other")
    return file.getvalue()


@pytest.mark.parametrize("how", ["prefix", "comment", "behind", "case"])
def test_archives_that_can_be_read_in_two_ways_are_refused(tmp_path, how):
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes(changed((tmp_path / "a.pth").read_bytes(), how))
    with pytest.raises(FileError, match="cannot be read"):
        read_state(tmp_path / "a.pth")


@pytest.mark.slow
def test_archives_of_more_than_65535_entries(tmp_path):
    """They end in another way, as archives beyond 4 GiB do."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for number in range(66_000):
            archive.writestr(f"{number}.npy", b"")
    assert len(archive_names(tmp_path / "a.npz", what="arrays")) == 66_000
    data = (tmp_path / "a.npz").read_bytes()
    for place in (-98 + 48, -42 + 8):  # where the table of contents starts, and where its end stands
        changed = bytearray(data)
        changed[place] ^= 1
        (tmp_path / "a.npz").write_bytes(changed)
        with pytest.raises(FileError, match="table of contents is not where its end says"):
            archive_names(tmp_path / "a.npz", what="arrays")


def test_the_older_form_needs_all_its_numbers(tmp_path):
    """torch takes memory for what a storage claims, and leaves in it what was there, if its numbers are not in the file."""
    torch.save({"a": torch.ones(100)}, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    data = (tmp_path / "a.pth").read_bytes()
    fewer = data.replace(struct.pack("<q", 100), struct.pack("<q", 99))
    for other in (data[:-1], data[:-400], data.replace(b"Kd", b"Ke"), fewer):
        assert other != data
        (tmp_path / "a.pth").write_bytes(other)
        with pytest.raises(FileError):
            read_state(tmp_path / "a.pth")


# what is no ordinary file


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("ending", [".pth", ".npz", ".npy", ".safetensors", ".txt", ".json"])
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_pipes_devices_and_folders_are_refused_at_once(tmp_path, ending, kind):
    """Before, a pipe made the reader wait forever, and /dev/zero filled the memory."""
    path = tmp_path / f"a{ending}"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    readers = {".txt": [read_classes], ".json": [load_pieces, lambda file: read_json(file, what="settings", most=100)]}
    others = [read, lambda file: check_weights(file, what="weights"), lambda file: archive_names(file, what="a program")]
    others += [read_weave] if ending == ".safetensors" else []
    others += [read_state] if ending != ".npy" else []
    for reader in readers.get(ending, others):
        with pytest.raises(FileError, match=f"is {kind}; expected"):
            reader(path)


def test_class_lists_are_bounded(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"name\n" * (LIST_BYTES // 5 + 1))
    with pytest.raises(FileError, match="at most 8 MiB"):
        read_classes(tmp_path / "a.txt")


# JSON


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "", "9" * 5000, b"\xff"])
def test_json_that_cannot_be_read_is_a_file_error(text):
    with pytest.raises(FileError, match=r"settings is not what it should be: "):
        parsed(text, what="settings")


def test_a_networks_settings_are_held_against_its_weights(tmp_path):
    """Settings can ask for any size; before, memory was taken for it, or the error was torch's."""
    net = Weave("simple", 1, hidden=4, depth=4, dense=(4,))
    changes = [
        {"hidden": 10**9},
        {"modules": 10**9},
        {"modules": "two"},
        {"dense": 3},
        {"hidden": 5},
        {"what": 1},
        {"tasks": -1},
    ]
    for change in changes:
        net.settings = Weave("simple", 1, hidden=4, depth=4, dense=(4,)).settings | change
        write_weave(net, tmp_path / "a.safetensors")
        with pytest.raises(FileError, match="holds no Weave network"):
            read_weave(tmp_path / "a.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"settings": json.dumps([1])})
    with pytest.raises(FileError, match="holds no Weave network"):
        read_weave(tmp_path / "a.safetensors")


# networks whose sizes are read off their weights


def test_a_translator_is_held_against_its_weights(tmp_path):
    """Rows of a matrix without columns cost nothing in a file; before, memory was taken for them, or the error was torch's."""
    state = Seq2Seq(vocabulary=8, embedding=4, hidden=4).state_dict()
    save_file(state, tmp_path / "a.safetensors")
    assert load_translator(tmp_path / "a.safetensors").state_dict().keys() == state.keys()
    hostile = [{"look.project.weight": torch.zeros(10**6, 0)}, {"pieces.weight": torch.zeros(3)}, {"bias": torch.zeros(9)}]
    for change in [*hostile, {"look.project.weight": torch.zeros(())}]:
        save_file(state | change, tmp_path / "a.safetensors")
        with pytest.raises(FileError, match="holds other weights than the translator's"):
            load_translator(tmp_path / "a.safetensors")


def test_an_image_network_is_held_against_its_weights(tmp_path):
    """As many classes as the last matrix has rows, which cost nothing if it has no columns."""
    save_file({"a.weight": torch.zeros(10**7, 0)}, tmp_path / "a.safetensors")
    with pytest.raises(FileError, match=r"a classifier with 10,000,000 classes; expected from 1 to 100,000"):
        networks.load("efficientnet-lite0", weights=tmp_path / "a.safetensors")


def test_googlenet_is_held_against_its_weights(tmp_path):
    """As many classes as biases; before, a matrix was made for as many, and a bias that is one number raised torch's error."""
    shapes = shapes_without_memory(lambda: GoogLeNet(BVLC))
    places = {
        "conv1": "conv1/7x7_s2",
        "conv2_reduce": "conv2/3x3_reduce",
        "conv2": "conv2/3x3",
        "classifier": "loss3/classifier",
    }
    parts = {
        "one": "1x1",
        "three_reduce": "3x3_reduce",
        "three": "3x3",
        "five_reduce": "5x5_reduce",
        "five": "5x5",
        "pool": "pool_proj",
    }
    arrays = {}
    for name, shape in shapes.items():
        place, _, end = name.rpartition(".")
        block, _, part = place.partition(".")
        arrays[f"{places[place] if place in places else f'{block}/{parts[part]}'}/{end}"] = np.zeros(shape, np.float16)
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    assert networks.load("googlenet", weights=tmp_path / "a.npz").outputs == 1000
    hostile = [{"loss3/classifier/bias": np.zeros(10**7, np.float16)}, {"conv1/7x7_s2/bias": np.float16(0)}]
    for change in [*hostile, {"loss3/classifier/weight": np.float16(0)}]:
        np.savez_compressed(tmp_path / "a.npz", **arrays | change)
        with pytest.raises(FileError, match="BVLC's GoogLeNet has"):
            load_bvlc(tmp_path / "a.npz")
