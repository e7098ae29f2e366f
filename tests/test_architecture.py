"""The map of the house is true: every module is on it, everything on it exists, and links in the docs lead somewhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from integrand.words import byte_size

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "integrand"
PAGE = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TRIVIAL = {"__init__.py"}
"""Files that need no line of their own: what a package offers is said in the line of its folder."""


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def code(page: Path) -> str:
    """What a page has in code, a line for each piece of it."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```.*?^```", text, flags=re.M | re.S) + re.findall(r"`([^`]+)`", prose(page)))


def tree() -> Iterator[Path]:
    """The files and folders in the tree of docs/architecture.md, which are told by how far they are indented."""
    block = PAGE.read_text(encoding="utf-8").split("\n```\n", 2)[1]
    folders: list[tuple[int, Path]] = []
    for line in filter(None, block.splitlines()):
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        while folders and folders[-1][0] >= indent:
            folders.pop()
        path = (folders[-1][1] if folders else ROOT) / name
        if name.endswith("/"):
            folders.append((indent, path))
        yield path


def test_every_module_is_in_the_tree() -> None:
    listed = set(tree())
    modules = sorted(file for file in SRC.rglob("*.py") if file.name not in TRIVIAL)
    assert [str(file.relative_to(ROOT)) for file in modules if file not in listed] == []


def test_everything_in_the_tree_exists_once() -> None:
    listed = list(tree())
    assert [str(path) for path in listed if not path.exists()] == []
    assert len(listed) == len(set(listed))


def test_lines_of_the_tree_say_something() -> None:
    block = PAGE.read_text(encoding="utf-8").split("\n```\n", 2)[1]
    bare = [line for line in block.splitlines()[1:] if line and len(line.split()) < 2]
    assert bare == []


def test_the_layers_are_those_of_the_linter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [layer.replace("integrand.", "").replace(" | ", ", ") for layer in settings["contracts"][0]["layers"]]
    assert "\n".join(["```", *layers, "```"]) in PAGE.read_text(encoding="utf-8")


def test_constants_are_where_the_page_says() -> None:
    for names, file in re.findall(r"^\| (`[A-Z][^|]*) \| `([\w/]+\.py)` \|", PAGE.read_text(encoding="utf-8"), flags=re.M):
        text = (SRC / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Z_]+)`", names):
            assert re.search(rf"^([A-Z_]+, )*{name}(, [A-Z_]+)* = ", text, flags=re.M), f"{name} in {file}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """In inline code, as paths from the root of the repository or of the package; NAME stands for any name."""
    named = re.findall(r"`(?:[a-z]+ )*([\w./-]+/[\w.-]+\.(?:py|md|toml|txt|json|npz))[` ]", prose(page))
    gone = [name for name in named if "NAME" not in name and not any((top / name).exists() for top in (ROOT, SRC))]
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page: Path) -> None:
    """``python -m benchmarks.photos`` and the like; ``make test`` and the like."""
    text = code(page)
    modules = re.findall(r"python -m ((?:benchmarks|tests)[\w.]*)", text)
    parts = [ROOT.joinpath(*module.rstrip(".").split(".")) for module in modules]
    assert [str(part) for part in parts if not part.is_dir() and not part.with_suffix(".py").exists()] == []
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert set(re.findall(r"^make ([a-z-]+)", text, flags=re.M)) - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = prose(page)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_lower_bounds_are_those_of_the_security_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| .*CVE-", SECURITY, flags=re.M)
    assert {name for name, _ in rows} >= {"torch", "pillow", "transformers"}
    for name, version in rows:
        assert {f"{name}>={version}", f"{name}[data]>={version}"} & set(needed)


def _spelt(value: float) -> set[str]:
    """How a page may write a limit."""
    return {
        f"{value:,}",
        f"{value:g}" if isinstance(value, float) else f"{value}",
        byte_size(int(value)),
        f"{value / 1e9:g} GB",
        f"{value / 1e6:g} MB",
        f"{value / 1e6:g} million",
    }


def test_limits_are_those_of_the_security_page() -> None:
    """A row without a file is about that of the row above it."""
    file = ""
    row = r"^\| [^|]*\| ([^|]+) \| ((?:`[A-Z_]+`(?:, )?)+)(?: in `([\w/]+\.py)`)? \|$"
    found = re.findall(row, SECURITY, flags=re.M)
    for said, names, place in found:
        file = place or file
        module = import_module(f"integrand.{file.removesuffix('.py').replace('/', '.')}")
        for name in re.findall(r"`([A-Z_]+)`", names):
            value = getattr(module, name)
            for one in value.values() if isinstance(value, dict) else (value,):
                assert any(re.search(rf"(?<![\d,.]){re.escape(text)}(?!\d|,\d)", said) for text in _spelt(one)), (
                    name,
                    file,
                    one,
                )
    assert len(found) > 10
