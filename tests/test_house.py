"""House rules that a linter does not know: one name for one thing, nothing private shared, a short walk down to the model."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import integrand as ig

SRC = Path(ig.__file__).parent
FILES = sorted(SRC.rglob("*.py"))
SHARED_NAMES = {"__init__", "__main__", "model", "result", "page", "cli"}
"""Module names that packages may share: those of Python, and the parts that every application has."""


@cache
def parsed() -> list[tuple[Path, ast.Module]]:
    return [(file, ast.parse(file.read_text(encoding="utf-8"))) for file in FILES]


@cache
def statements() -> list[tuple[Path, ast.ClassDef | ast.ImportFrom]]:
    """All classes and imports from modules, wherever they stand."""
    kinds = (ast.ClassDef, ast.ImportFrom)
    return [(file, node) for file, tree in parsed() for node in ast.walk(tree) if isinstance(node, kinds)]


def test_no_two_modules_share_a_name() -> None:
    places = defaultdict(list)
    for file in FILES:
        if file.stem not in SHARED_NAMES:
            places[file.stem].append(str(file.relative_to(SRC)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for file, node in statements():
        if isinstance(node, ast.ClassDef):
            places[node.name.lstrip("_")].append(f"{file.relative_to(SRC)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_nothing_private_is_imported_from_another_module() -> None:
    shared = []
    for file, node in statements():
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("integrand")):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            shared += [f"{file.relative_to(SRC)}:{node.lineno} {name}" for name in names if name.startswith("_")]
    assert shared == []


def test_files_have_no_leading_underscore() -> None:
    assert [file.name for file in FILES if file.name.startswith("_") and file.stem not in SHARED_NAMES] == []


WRITES = {"write_text", "write_bytes", "savefig", "save_file", "save_model", "savez", "savez_compressed", "tofile", "to_csv"}
"""Methods and functions that write a file under the very name that they are given."""

SYSTEM = {"os.open", "os.replace", "os.rename", "os.remove", "os.unlink", "os.truncate", "os.link", "os.symlink", "os.mkfifo"}
SYSTEM |= {"os.mkdir", "os.makedirs", "torch.save", "np.save", "pickle.dump", "shutil.copy", "shutil.move", "shutil.copyfile"}

NO_FILE = {("render/figures.py", "savefig")}
"""What looks like writing a file and is none: a picture drawn into memory."""

SUSPECTS = WRITES | {"open", "mkdir"} | {name.rpartition(".")[2] for name in SYSTEM}
"""The last words of all these; other calls are not looked at."""

ELSEWHERE = {"files.py"}
"""The one module that writes files."""


def writes(tree: ast.AST, *, sheltered: bool = False) -> Iterator[tuple[int, str]]:
    """Calls that write files by themselves, but for those into the new file that ``replacing`` gives."""
    for node in ast.iter_child_nodes(tree):
        inside = sheltered
        if isinstance(node, ast.With):
            inside |= any(ast.unparse(item.context_expr).startswith("replacing(") for item in node.items)
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in SUSPECTS and not sheltered:
            called = ast.unparse(node.func)
            mode = [arg.value for arg in [*node.args, *(key.value for key in node.keywords)] if isinstance(arg, ast.Constant)]
            opened = name == "open" and any(
                isinstance(m, str) and m[:1] in tuple("rwxa") and set(m) & set("wxa+") for m in mode
            )
            method = isinstance(node.func, ast.Attribute) and not called.startswith("files.")
            if opened or called in SYSTEM or (name in WRITES and (method or name.startswith("save"))) or name == "mkdir":
                yield node.lineno, name
        yield from writes(node, sheltered=inside)


def test_every_file_is_written_by_one_module() -> None:
    found = [
        f"{place}:{line} {name}"
        for file, tree in parsed()
        for line, name in writes(tree)
        if (place := str(file.relative_to(SRC))) not in ELSEWHERE and (place, name) not in NO_FILE
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("path.write_text('x')", 1),
        ("open(path, 'w')", 1),
        ("path.open(mode='a+b')", 1),
        ("gzip.open(path, 'wt')", 1),
        ("figure.savefig(path)", 1),
        ("save_file(tensors, path)", 1),
        ("os.replace(a, b)", 1),
        ("with replacing(path) as part:\n    part.write_text('x')\n    part.open('w')", 0),
        ("with reading(path) as part:\n    part.write_text('x')", 1),
        ("open(path)\nopen(path, 'rb')\npath.open('rb')\nwrite_text(path, 'x')\nfiles.write_text(path, 'x')", 0),
        ("text.replace('a', 'w')\nImage.open(path)", 0),
    ],
)
def test_writing_is_recognised(code: str, count: int) -> None:
    assert len(list(writes(ast.parse(code)))) == count


class Walked(nn.Module):
    """Notes which functions of the package are on the stack when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
        self.stacks: list[list[str]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frame, stack = sys._getframe(), []
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(SRC):
                stack.append(f"{Path(frame.f_code.co_filename).relative_to(SRC)} {frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        self.stacks.append(stack)
        return self.net(x)


@pytest.mark.slow  # with the slow tests, which run without a tracer
def test_a_call_runs_few_files_and_few_frames() -> None:
    if sys.gettrace() is not None:  # asked here, and not when the file is read, which may be under a tracer that is off by now
        pytest.skip("a tracer (coverage, a debugger) is in the way of the profiler")
    torch.manual_seed(0)
    model, x = Walked().eval(), torch.randn(2, 6)
    ig.integrated_gradients(model, x)  # loads and caches what a first call loads and caches
    model.stacks.clear()
    files: set[str] = set()

    def note(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and Path(code.co_filename).is_relative_to(SRC):
            files.add(code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = ig.integrated_gradients(model, x)
    finally:
        sys.setprofile(before)
    assert result.certificate.converged
    assert len(files) <= 22, sorted(files)
    assert max(map(len, model.stacks)) <= 15, max(model.stacks, key=len)  # where a claim is looked at beside the path


def loaded(*command: str) -> set[str]:
    """The modules of the package, and torch, that a fresh interpreter has loaded after some code."""
    code = "\n".join(
        [*command, "import sys", "print(*(m for m in sys.modules if m.partition('.')[0] in ('integrand', 'torch')))"]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_next_to_nothing() -> None:
    found = loaded("import integrand")
    assert "torch" not in found
    assert len(found) < 70
