"""Saving and loading: safetensors for the numbers, JSON in its header for the rest. Nothing is ever executed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch

from .attribution import Attribution
from .certificate import Certificate, CurveCertificate, ExampleCertificate, Promise, Status
from .errors import FileError, MissingExtraError, OptionError
from .profile import Profile
from .trees import Tensors, Tree, flatten

FORMAT = 1
"""Version of the file format; a file with a larger number is refused."""

_KEY = "integrand"
_PROFILE = [f"profile.{part.name}" for part in dataclasses.fields(Profile)]


def save(result: Attribution, path: Path, **options: Any) -> Path:
    """Write a result; the ending of the path decides how. See :meth:`Attribution.save`."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        from .render import report

        path.write_text(report(result, **options), encoding="utf-8")
    elif suffix in {".png", ".svg", ".pdf"}:
        from .render import figure

        figure(result, **options).savefig(path, bbox_inches="tight")
    elif suffix == ".safetensors":
        if options:
            raise OptionError(f"got options {sorted(options)} for a .safetensors file; they are for .html and .png")
        _write(result, path)
    else:
        raise OptionError(f"got the ending {suffix!r}; expected .safetensors for the numbers, .html, .png, .svg or .pdf")
    return path


def _write(result: Attribution, path: Path) -> None:
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise MissingExtraError("safetensors", "files", "saving an attribution") from None
    tree, leaves = flatten(result.values, what="values")
    header = {
        "format": FORMAT,
        "structure": _shape(tree),
        "batched": result.batched,
        "meta": result.meta,
        "certificate": [dataclasses.asdict(example) | {"status": example.status.name} for example in result.certificate],
        "promises": [dataclasses.asdict(promise) for promise in result.certificate.promises],
        "extras": {name: _shape(flatten(extra, what=name)[0]) for name, extra in result.extras.items()},
    }
    tensors = {f"values.{i}": leaf.detach().cpu().contiguous() for i, leaf in enumerate(leaves)}
    for name, extra in result.extras.items():
        for i, leaf in enumerate(flatten(extra, what=name)[1]):
            tensors[f"extras.{name}.{i}"] = leaf.detach().cpu().contiguous()
    if result.profile is not None:
        columns = (getattr(result.profile, part.name) for part in dataclasses.fields(Profile))
        tensors |= {name: torch.from_numpy(column) for name, column in zip(_PROFILE, columns, strict=True)}
    save_file(tensors, str(path), metadata={_KEY: json.dumps(header)})


def load(path: Path) -> Attribution:
    """Read what :func:`save` wrote as ``.safetensors``."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtraError("safetensors", "files", "loading an attribution") from None
    try:
        with safe_open(str(path), framework="pt") as file:
            header = _header(path, file.metadata() or {})
            examples = tuple(example_of(row) for row in header["certificate"])
            promises = tuple(Promise(**row) for row in header.get("promises", []))
            extras = {name: _tensors(file, f"extras.{name}", shape) for name, shape in header.get("extras", {}).items()}
            values = _tensors(file, "values", header["structure"])
            held = set(file.keys())
            profile = Profile(*(file.get_tensor(name).numpy() for name in _PROFILE)) if held.issuperset(_PROFILE) else None
            return Attribution(values, Certificate(examples, promises), header["batched"], header["meta"], extras, profile)
    except (SafetensorError, KeyError, TypeError) as error:
        raise FileError(f"{path} is not an attribution: {error}. Expected a file written by Attribution.save.") from error


def _shape(tree: Tree) -> dict[str, Any]:
    return {"kind": tree.kind, "keys": list(tree.keys), "size": tree.size}


def _tensors(file: Any, name: str, shape: dict[str, Any]) -> Tensors:
    tree = Tree(shape["kind"], tuple(shape["keys"]), shape["size"])
    return tree.build([file.get_tensor(f"{name}.{i}") for i in range(tree.size)])


def _header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """What the file says about itself; the version is looked at before anything else is trusted."""
    if _KEY not in metadata:
        raise FileError(f"{path} is a safetensors file but not an attribution; expected one written by Attribution.save.")
    try:
        header: dict[str, Any] = json.loads(metadata[_KEY])
        version = int(header["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path} has a damaged header ({error}); expected a file written by Attribution.save.") from error
    if version > FORMAT:
        raise FileError(f"{path} has format {version}; this version reads up to {FORMAT}. Update integrand to read it.")
    return header


def example_of(row: dict[str, Any]) -> ExampleCertificate:
    """A certificate from its fields, with the name of its status, as JSON holds them."""
    curves = tuple(CurveCertificate(**curve) for curve in row.pop("curves"))
    return ExampleCertificate(**row | {"status": Status[row["status"]], "curves": curves})
