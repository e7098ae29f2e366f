"""Without the distribution ``integrand-models``: every command that needs a file of it says what to install."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import integrand_models
import pytest

from integrand.apps.images.class_names import imagenet
from integrand.cli import EXTRAS, main
from integrand.errors import FileError, MissingExtraError
from integrand.loading import shipped

REMEDY = "needs the package 'integrand-models', which is not installed. Install it with: pip install 'integrand[%s]'"


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "integrand_models", None)  # importing it fails as where it is not installed
    imagenet.cache_clear()
    yield
    imagenet.cache_clear()


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (64, 64), (200, 90, 40)).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_a_file_is_where_the_distribution_has_it() -> None:
    assert shipped("retina.md", "this test") == integrand_models.path("retina.md")
    assert all(integrand_models.path(name).is_file() for name in integrand_models.names())


def test_an_unknown_file_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"no file 'retina\.pt'; expected one of .*retina\.safetensors"):
        integrand_models.path("retina.pt")
    with pytest.raises(FileError, match=r"grading needs retina\.pt, which the installed integrand-models does not have"):
        shipped("retina.pt", "grading")


@pytest.mark.usefixtures("uninstalled")
def test_the_error_names_purpose_package_and_extra() -> None:
    with pytest.raises(MissingExtraError) as error:
        shipped("retina.safetensors", "grading a retina")
    assert str(error.value) == f"grading a retina {REMEDY % 'models'}"


@pytest.mark.usefixtures("uninstalled")
@pytest.mark.parametrize(
    ("command", "purpose", "extra"),
    [
        (["retina", "PHOTO"], "grading a retina", "images"),
        (["questions", "how many people live there?"], "classifying questions", "models"),
        (["questions", "who is it?", "--model", "trec"], "classifying questions", "models"),
        (["rules", "QUESTIONS"], "classifying questions", "models"),
        (["translate", "Good morning."], "translating", "models"),
        (["molecule", "CCO"], "loading a Weave network", "molecules"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_say_what_to_install(
    command: list[str],
    purpose: str,
    extra: str,
    photo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions = photo.with_name("questions.txt")
    questions.write_text("how many people live there?\n", encoding="utf-8")
    given = {"PHOTO": str(photo), "QUESTIONS": str(questions)}
    monkeypatch.setattr(sys, "argv", ["integrand", *(given.get(word, word) for word in command)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.strip() == f"integrand: {purpose} {REMEDY % extra}"
    assert EXTRAS[command[0]] == extra


@pytest.mark.usefixtures("uninstalled")
def test_an_image_network_works_by_class_number_and_says_why() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    from integrand.apps import networks

    network = networks.load("efficientnet-lite0")
    assert network.classes is None
    assert network.label(281) == "class 281"
    assert network.find("281") == 281
    assert any(note.startswith(f"naming ImageNet's classes {REMEDY % 'images'}") for note in network.notes)
    named = networks.load("efficientnet-lite0", classes=[f"kind {i}" for i in range(1000)])
    assert named.label(281) == "kind 281"
    assert not any("integrand-models" in note for note in named.notes)


@pytest.mark.usefixtures("uninstalled")
def test_class_names_themselves_are_an_error() -> None:
    with pytest.raises(MissingExtraError, match=r"naming ImageNet's classes needs the package 'integrand-models'"):
        imagenet()
