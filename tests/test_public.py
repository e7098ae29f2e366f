"""What is exported, what importing costs, and the tree of exceptions."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import integrand
from integrand import errors

NAMES = {
    "Attribution",
    "Average",
    "Certificate",
    "Curve",
    "CurveCertificate",
    "ExampleCertificate",
    "Polyline",
    "Profile",
    "Progress",
    "Promise",
    "Rule",
    "Status",
    "Straight",
    "analysis",
    "axioms",
    "baselines",
    "batch",
    "compare",
    "compare_models",
    "errors",
    "explain_many",
    "integrated_gradients",
    "integrated_hessians",
    "methods",
    "path_attribution",
    "paths",
    "quadrature",
    "sequences",
    "serve",
    "text",
}
"""Adding a name here is a decision; taking one away breaks users."""

OPTIONAL = [
    "matplotlib",
    "PIL",
    "tqdm",
    "safetensors",
    "transformers",
    "captum",
    "sklearn",
    "scipy",
    "skimage",
    "jax",
    "hypothesis",
    "typer",
    "shap",
    "rdkit",
    "chemprop",
    "admet_ai",
    "pyarrow",
    "pandas",
    "ray",
    "yaml",
    "anywidget",
    "ipywidgets",
    "IPython",
]


def test_the_exported_names() -> None:
    assert set(integrand.__all__) == NAMES
    assert len(integrand.__all__) == len(NAMES)
    for name in NAMES:
        assert getattr(integrand, name) is not None


def test_exported_things_are_documented() -> None:
    for name in NAMES:
        assert inspect.getdoc(getattr(integrand, name)), name


@pytest.fixture(scope="module")
def fresh() -> dict[str, list[str]]:
    """What a process of its own says at each step: optional packages loaded, parts of the package loaded, names listed."""
    said = {
        "optional": f"[name for name in {OPTIONAL} if name in sys.modules]",
        "rooms": "[name for name in sys.modules if name.startswith('integrand.')]",
        "listed": "[name for name in dir(integrand) if not name.startswith('__')]",
    }
    steps = [
        ("optional before", "import sys, torch, numpy"),
        ("rooms imported", "import integrand"),
        ("listed imported", ""),
        ("optional imported", "integrand.analysis"),
        ("optional run", "integrand.integrated_gradients(lambda x: x.sum(1), torch.ones(1, 2))"),
        ("listed loaded", "import integrand.render, integrand.compat.captum; integrand.methods"),
    ]
    script = "\n".join(f"{code}\nprint(*{said[name.split()[0]]})" for name, code in steps)
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return {name: line.split() for (name, _), line in zip(steps, done.stdout.splitlines(), strict=True)}


def test_importing_and_running_loads_nothing_optional(fresh: dict[str, list[str]]) -> None:
    """Torch may load some of these itself: what counts is what is there beyond torch."""
    assert fresh["optional before"] == fresh["optional imported"] == fresh["optional run"]


def test_what_is_listed_is_what_is_exported(fresh: dict[str, list[str]]) -> None:
    """Whatever has been imported: in a process of its own, and where much of the package is loaded."""
    for names in (fresh["listed imported"], fresh["listed loaded"], [n for n in dir(integrand) if not n.startswith("__")]):
        assert names == sorted(NAMES)


def test_what_is_not_exported_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'integrated_gradient'"):
        integrand.integrated_gradient  # noqa: B018


def test_rooms_are_loaded_when_they_are_used(fresh: dict[str, list[str]]) -> None:
    assert fresh["rooms imported"] == []


# ---- exceptions ------------------------------------------------------------------------------------------------------------

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+(?:Error|Warning))(?: \((?P<parent>\w+)\))?(?P<rest>.*)$")


def drawn() -> dict[str, tuple[str, str | None]]:
    """The tree in the docstring: each name with its parent and, in brackets at the line's end, its builtin."""
    out: dict[str, tuple[str, str | None]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        depth = len(match["indent"]) // 4
        builtin = re.search(r"\[(\w+)\]\s*$", match["rest"])
        parent = above[depth - 1] if depth else (match["parent"] or "Exception")
        above = [*above[:depth], match["name"]]
        out[match["name"]] = (parent, builtin[1] if builtin else None)
    return out


def defined() -> dict[str, type[BaseException]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__
    }


def test_the_drawn_tree_has_every_class() -> None:
    assert set(drawn()) == set(defined())


@pytest.mark.parametrize("name", defined())
def test_the_drawn_tree_is_the_real_one(name: str) -> None:
    parent, builtin = drawn()[name]
    bases = [base.__name__ for base in defined()[name].__bases__]
    assert bases == [parent, *([builtin] if builtin else [])]


def test_every_error_and_warning_can_be_caught_by_its_root() -> None:
    for kind in defined().values():
        assert issubclass(kind, errors.IntegrandWarning if issubclass(kind, Warning) else errors.IntegrandError)
        assert inspect.getdoc(kind)


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = errors.MissingExtraError("safetensors", "files", "saving an attribution")
    assert str(error) == (
        "saving an attribution needs the package 'safetensors', which is not installed. "
        "Install it with: pip install 'integrand[files]'"
    )
    assert isinstance(error, ImportError)
