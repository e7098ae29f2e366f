"""Both wheels, built and opened: what is inside, how large they are, and that their licences are true.

Builds with hatchling in this environment and needs no network.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "distributions" / "integrand-models"
CORE_LIMIT = 2_000_000
"""Bytes of the core wheel: code of twelve applications, and no weights."""

WEIGHTS = {
    "imagenet.txt",
    "motifs.safetensors",
    "karate.json",
    "karate.safetensors",
    "openchemlib.js",
    "questions-trec.safetensors",
    "questions-wtq.safetensors",
    "retina.safetensors",
    "table-breast-cancer.safetensors",
    "table-diabetes.safetensors",
    "series-airline.safetensors",
    "series-gunpoint.safetensors",
    "series-motions.safetensors",
    "translation.json",
    "translation.safetensors",
    "weave-w1n2-simple.safetensors",
    "weave-w1n2.safetensors",
    "weave-w2n2-simple.safetensors",
    "weave-w2n2.safetensors",
}
CARDS = {f"{name}.md" for name in "karate molecules motifs questions retina series tables translation".split()}
SAYS = {
    "Apache-2.0": "Apache License\n                           Version 2.0, January 2004",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "CC-BY-2.0": "Creative Commons Attribution 2.0\n",
    "CC-BY-4.0": "Attribution 4.0 International\n",
    "CC-BY-SA-4.0": "Attribution-ShareAlike 4.0 International\n",
    "LicenseRef-WordNet": "WordNet 3.0 Copyright 2006 by Princeton University.",
    "MIT": "Permission is hereby granted, free of charge,",
    "PDDL-1.0": "Open Data Commons Public Domain Dedication & License",
}
"""A line that the text of each licence must have."""


@dataclass(frozen=True)
class Wheel:
    """A built wheel, read into memory.

    Attributes:
        size: of the file, in bytes.
        files: contents by name, those of ``.dist-info`` left out.
        licences: contents of ``.dist-info/licenses`` by name.
        metadata: ``METADATA``.
    """

    size: int
    files: dict[str, bytes]
    licences: dict[str, str]
    metadata: Message

    @property
    def identifiers(self) -> set[str]:
        """The licences in its SPDX expression, which joins them with AND alone."""
        return set(self.metadata["License-Expression"].split(" AND "))


def run(target: str, project: Path, folder: Path) -> Path:
    """Build a wheel or an sdist into an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.iterdir()
    return path


def build(project: Path, folder: Path) -> Wheel:
    path = run("wheel", project, folder)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    info = {name: data for name, data in contents.items() if ".dist-info/" in name}
    (metadata,) = (data.decode() for name, data in info.items() if name.endswith(".dist-info/METADATA"))
    licences = {name.partition("/licenses/")[2]: data.decode() for name, data in info.items() if "/licenses/" in name}
    files = {name: data for name, data in contents.items() if name not in info}
    return Wheel(path.stat().st_size, files, licences, email.message_from_string(metadata))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    pytest.importorskip("hatchling")
    return build(ROOT, tmp_path_factory.mktemp("core"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    pytest.importorskip("hatchling")
    if not MODELS.is_dir():
        pytest.skip("distributions/integrand-models is in the repository only, not in the sdist of the core")
    return build(MODELS, tmp_path_factory.mktemp("models"))


def sources(package: Path) -> set[str]:
    """The files of a package's folder, as a wheel names them."""
    found = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in found}


def test_core_is_small_and_has_no_weights(core: Wheel) -> None:
    assert core.size < CORE_LIMIT
    data = {name for name in core.files if Path(name).suffix not in {".py", ".js", ".css", ".html", ".svg", ".typed"}}
    assert data == set()


def test_core_lacks_nothing_of_the_package(core: Wheel) -> None:
    assert set(core.files) == sources(ROOT / "src" / "integrand")
    scripts = {"render/image/paint.js", "render/image/viewer.js", "render/molecule/molecule.js"}
    assert {f"integrand/{name}" for name in {*scripts, "py.typed", "__init__.py"}} <= set(core.files)


def test_core_is_apache_and_nothing_else(core: Wheel) -> None:
    assert core.metadata["License-Expression"] == "Apache-2.0"
    assert set(core.licences) == {"LICENSE"}
    assert SAYS["Apache-2.0"] in core.licences["LICENSE"]
    foreign = re.compile(rb"all rights reserved|princeton university|creative commons corporation|general public license", re.I)
    assert [name for name, data in core.files.items() if foreign.search(data)] == []


def test_core_needs_torch_and_numpy_alone_and_names_the_models_in_extras(core: Wheel) -> None:
    required = core.metadata.get_all("Requires-Dist", [])
    always = {re.split(r"[<>=~! ]", need)[0] for need in required if "extra ==" not in need}
    assert always == {"torch", "numpy"}
    extras = {need.partition("; extra == ")[2].strip("'") for need in required if need.startswith("integrand-models")}
    assert {"models", "images", "molecules", "demo", "dev"} <= extras
    assert not {"", "cli", "text", "files", "pictures"} & extras


def test_extra_accepts_the_version_in_the_checkout(core: Wheel, models: Wheel) -> None:
    from packaging.requirements import Requirement

    required = map(Requirement, core.metadata.get_all("Requires-Dist", []))
    for need in (need for need in required if need.name == "integrand-models"):
        assert need.specifier.contains(models.metadata["Version"])
    assert models.metadata["Requires-Python"] == core.metadata["Requires-Python"]
    assert models.metadata.get_all("Requires-Dist", []) == []


def test_sdist_of_the_core_has_neither_weights_nor_photos(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    with tarfile.open(run("sdist", ROOT, tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "pyproject.toml", "src/integrand/__init__.py", "tests/conftest.py"} <= names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders <= {"src", "tests", "examples", "docs"}
    assert not {Path(name).name for name in names} & WEIGHTS
    assert not [name for name in names if name.startswith("docs/") and name.endswith((".jpg", ".png"))]


def test_models_has_all_weights_and_cards(models: Wheel) -> None:
    expected = {"__init__.py", "py.typed", *WEIGHTS, *CARDS}
    assert set(models.files) == {f"integrand_models/{name}" for name in expected}


def test_models_has_the_text_of_every_licence(models: Wheel) -> None:
    texts = {name.removeprefix("LICENSES/").removesuffix(".txt"): text for name, text in models.licences.items()}
    notice = texts.pop("NOTICE.md")
    assert set(texts) == models.identifiers == set(SAYS)
    for identifier, line in SAYS.items():
        assert line in texts[identifier]
    assert sorted(models.metadata.get_all("License-File", [])) == sorted(models.licences)
    weave = {name for name in WEIGHTS if name.startswith("weave-")}
    for name in (WEIGHTS - weave) | {"weave-*.safetensors"}:
        assert f"`{name}`" in notice


def test_models_notice_has_a_licence_of_the_expression_for_every_file(models: Wheel) -> None:
    headings = re.findall(r"^## (`.*): (\S+)$", models.licences["NOTICE.md"], re.MULTILINE)
    assert {licence for _, licence in headings} <= models.identifiers
    named = re.findall(r"`([^`]+)`", " ".join(files for files, _ in headings))
    assert len(named) == len(set(named))


def test_nothing_is_under_the_gpl(core: Wheel, models: Wheel) -> None:
    for wheel in (core, models):
        told = [str(wheel.metadata), *wheel.licences.values()]
        assert not any(re.search(r"\bGPL|general public license", text, re.IGNORECASE) for text in told)


def test_versions_are_those_of_the_projects(core: Wheel, models: Wheel) -> None:
    for wheel, project in ((core, ROOT), (models, MODELS)):
        with (project / "pyproject.toml").open("rb") as file:
            stated = tomllib.load(file)["project"]
        assert (wheel.metadata["Name"], wheel.metadata["Version"]) == (stated["name"], stated["version"])
