"""The lowest versions that pyproject.toml states: environments with them, and every command there with its output checked.

    python -m benchmarks.lowest [--only plain|most|all] [--folder FOLDER]

Three sets of extras, for one package may ask for a newer version of another than this one does: all of them; all but ADMET-AI
and text, whose packages do that; and the command line alone. torch is that of constraints.txt. uv resolves (``lowest-direct``:
what this package asks for at its lowest, what that asks for at its newest) and pip installs. Prints a line for each command;
ends with 1 if one has failed, did nothing, or wrote something else than it should. Nothing but Python is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "distributions" / "integrand-models"
CONVERTERS = ("onnx2torch",)
"""Installed without what they ask for, as the Makefile does."""

ELSEWHERE = ("torch", "torchaudio", "integrand", "integrand-models")
"""Packages that uv does not resolve: torch is that of constraints.txt, without torchaudio; ours are in the checkout."""

SECONDS = 600
"""A command that takes longer has failed."""

PORT = 7921

ENVIRONMENT = {**os.environ, "COLUMNS": "200", "OMP_WAIT_POLICY": "passive"}
"""Threads that wait do not spin, as in the Makefile."""

TINY = """
import torch
from tests.apps.text.tiny import classifier
model, tokenizer = classifier("bert")
model.save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
"""

CORE = """
import numpy, torch, integrand as ig
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).eval()
x = torch.ones(4, 3)
found = ig.integrated_gradients(model, x, target=1, tol=1e-3)
assert float(abs(found.values.sum(1) - (model(x) - model(0 * x))[:, 1]).max()) < 1e-2
curve = ig.path_attribution(model, ig.paths.Curve(lambda t: t * x), target=1)
assert torch.allclose(curve.values, found.values, atol=1e-2)
print("core", numpy.__version__, found.certificate[0].status.value)
"""

FILES = """
import torch, integrand as ig
model = torch.nn.Linear(3, 1).eval()
found = ig.integrated_gradients(model, torch.ones(2, 3))
found.save("a.safetensors")
assert torch.equal(ig.Attribution.load("a.safetensors").values, found.values)
many = ig.explain_many(torch.rand(9, 3), ig.batch.ModelExplainer(model), "rows")
assert many.explained == len(many.table.pandas()) == 9
print("files", many.sentence)
"""

ONNX = """
import onnx, torch, integrand as ig
from tests.onnx_models.builders import cnn
model = ig.from_onnx(cnn()[0].SerializeToString())
print("onnx", onnx.__version__, model(torch.ones(1, 3, 8, 8)).shape)
"""

NOTEBOOK = """
import torch, integrand as ig
found = ig.integrated_gradients(torch.nn.Linear(3, 1).eval(), torch.ones(1, 3))
assert "<" in found._repr_html_()
import anywidget, IPython
print("notebook", anywidget.__version__)
"""

JOB = """
source: questions.csv
key: id
column: question
carry: [label]
explain: {application: questions, model: trec, tol: 0.05}
out: answers
ray: {actors: 1}
"""


@dataclass(frozen=True)
class Smoke:
    """A command, and what shows that it has done its work.

    Attributes:
        words: after ``integrand``; after ``python -c`` if there is one word with line breaks.
        prints: what standard output or error holds.
        file: what it writes; empty for nothing.
        holds: what the file holds; the beginning of its bytes for pictures.
        code: the exit status.
    """

    words: Sequence[str]
    prints: str = ""
    file: str = ""
    holds: str = "</html>"
    code: int = 0


HELPS = ["image", "retina", "scene", "questions", "rules", "translate", "text", "audio", "molecule", "table", "sequence"]
HELPS += ["series", "graph", "summary", "export", "axioms", "serve", "run"]

AXIOMS = ["axioms", "--examples", "1", "--method", "integrated-gradients", "--axiom", "completeness"]

PLAIN = [
    Smoke(["--version"], "integrand "),
    Smoke(["--help"], "molecule"),
    *(Smoke([name, "--help"], "Usage") for name in HELPS),
    Smoke(["no-such-command"], "No such command", code=2),
    Smoke([CORE], "core"),
]

MOST = [
    *PLAIN,
    Smoke([FILES], "9 of 9 inputs explained"),
    Smoke([ONNX], "torch.Size([1, 5])"),
    Smoke([NOTEBOOK], "notebook"),
    Smoke(["image", "cat.jpg", "--out", "cat.html"], "cat", "cat.html"),
    Smoke(["image", "cat.jpg", "--out", "cat.png"], "cat", "cat.png", "\x89PNG"),
    Smoke(["retina", "eye.jpg", "--out", "eye.html"], "rade", "eye.html"),
    Smoke(["scene", "cat.jpg", "--model", "fastestdet:none.pth"], "none.pth", code=2),
    Smoke(["questions", "how many people live here?", "--out", "q.html"], "number", "q.html"),
    Smoke(["rules", "questions.txt", "--out", "rules.html"], "", "rules.html"),
    Smoke(["translate", "good morning", "--out", "t.html"], "uten", "t.html"),
    Smoke(["audio", "speech.flac", "--out", "speech.html"], "peech", "speech.html"),
    Smoke(["molecule", "CCO", "--out", "m.html"], "CCO", "m.html"),
    Smoke(["molecule", "CCO", "--out", "m.png"], "CCO", "m.png", "\x89PNG"),
    Smoke(["table", "breast-cancer", "--row", "86", "--out", "row.html"], "", "row.html"),
    Smoke(["sequence", "motifs.fasta", "--out", "motifs.html"], "", "motifs.html"),
    Smoke(["series", "motions", "--row", "35", "--out", "motion.html"], "", "motion.html"),
    Smoke(["graph", "karate", "--node", "9", "--out", "karate.html"], "", "karate.html"),
    Smoke(["run", "job.yaml"], "3 of 3 inputs explained", "answers/_manifest.json", "fingerprint"),
    Smoke(["summary", "answers", "--out", "summary.html"], "", "summary.html"),
    Smoke(["export", "answers", "--csv", "answers.csv"], "", "answers.csv", "key"),
    Smoke([*AXIOMS, "--out", "axioms.json"], "", "axioms.json", "axioms"),
]

ALL = [
    *MOST,
    Smoke([TINY]),
    Smoke(["text", "The film was not bad.", "--model", "./tiny", "--out", "text.html"], "", "text.html"),
    Smoke(["molecule", "CCO", "--model", "admet:BBB_Martins", "--out", "admet.json"], "", "admet.json", "certificate"),
    Smoke(["run", "job.yaml", "--ray", "local", "--out", "answers-ray"], "3 of 3", "answers-ray/_manifest.json", "fingerprint"),
]


def every_extra(but: Sequence[str]) -> list[str]:
    """The extras that users may want, but some."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return [name for name in extras if name not in {"all", "bench", "demo", "dev", *but}]


SETS: dict[str, tuple[Callable[[], list[str]], list[Smoke], bool]] = {
    "plain": (lambda: ["cli"], PLAIN, False),
    "most": (lambda: every_extra(["admet", "text", "ray"]), MOST, True),
    "all": (lambda: every_extra([]), ALL, True),
}
"""By name: the extras, what is tried, and whether the web app is."""


def main() -> int:
    """Build each environment and try all commands in it; 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lowest", description=__doc__)
    parser.add_argument("--only", choices=SETS, help="one of the sets")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "lowest", help="where the environments go")
    asked = parser.parse_args()
    failed = 0
    for name in [asked.only] if asked.only else SETS:
        extras, smokes, served = SETS[name]
        python = built(asked.folder / name, extras())
        results = list(tried(python, asked.folder / f"{name}-files", smokes, served))
        failed += sum(bool(why) for _, why in results)
        print(f"{name}: {sum(not why for _, why in results)} of {len(results)} commands do their work", flush=True)
    return int(bool(failed))


def built(folder: Path, extras: Sequence[str]) -> Path:
    """The Python of a new environment with the lowest versions of some extras."""
    if folder.exists():
        shutil.rmtree(folder)
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    run([*pip, "uv", next(line for line in constraints if line.startswith("torch=="))])
    left_out = folder / "elsewhere.txt"
    left_out.write_text("\n".join(ELSEWHERE), encoding="utf-8")
    lowest = folder / "lowest.txt"
    how = ["--resolution", "lowest-direct", "--excludes", str(left_out), "--python", str(python), "--quiet"]
    asked = [word for extra in extras for word in ("--extra", extra)]
    run([str(python), "-m", "uv", "pip", "compile", "pyproject.toml", *asked, *how, "-o", str(lowest)])
    run([*pip, "--no-deps", "-r", str(lowest)])  # pip, as torch may come from a place of its own
    run([*pip, "--no-deps", ".", *([str(MODELS), *CONVERTERS] if len(extras) > 1 else [])])
    return python


def run(words: Sequence[str]) -> None:
    """Run a step of the installation."""
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def tried(python: Path, folder: Path, smokes: Sequence[Smoke], served: bool) -> Iterator[tuple[str, str]]:
    """Each command, and what went wrong with it."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in ("cat.jpg", "eye.jpg", "speech.flac", "motifs.fasta"):
        shutil.copy(ROOT / "examples" / name, folder)
    questions = ["How many people live here?", "Who wrote it?", "Where is Rome?"]
    (folder / "questions.txt").write_text("\n".join(questions * 9) + "\n", encoding="utf-8")
    rows = [f"{i},{text},x" for i, text in enumerate(questions)]
    (folder / "questions.csv").write_text("\n".join(["id,question,label", *rows]) + "\n", encoding="utf-8")
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    for smoke in smokes:
        start = time.monotonic()
        name = f"Python: {smoke.prints or 'a model'}" if "\n" in smoke.words[0] else " ".join(smoke.words)
        why = problem(python, folder, smoke)
        report(name, why, start)
        yield name, why
    if served:
        start = time.monotonic()
        why = served_page(python, folder)
        report("serve", why, start)
        yield "serve", why


def report(name: str, why: str, start: float) -> None:
    """Print how a command went."""
    print(f"  {'FAILED' if why else 'ok':6} {time.monotonic() - start:4.0f} s  {name}{f': {why}' if why else ''}", flush=True)


def problem(python: Path, folder: Path, smoke: Smoke) -> str:
    """What a command did wrong; empty if it did its work."""
    code = "\n" in smoke.words[0]
    words = [str(python), "-c", smoke.words[0]] if code else [str(python), "-m", "integrand.cli", *smoke.words]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT) if code else ""}
    try:
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"took over {SECONDS} s"
    said = done.stdout + done.stderr
    last = said.strip().splitlines()[-1:] or [""]
    if done.returncode != smoke.code:
        return f"exit status {done.returncode}: {last[0][:300]}"
    if smoke.prints not in said or "Traceback" in said:
        return f"does not say {smoke.prints!r}: {last[0][:300]}"
    if smoke.file and not (folder / smoke.file).is_file():
        return f"exit status {done.returncode}, and did not write {smoke.file}"
    if smoke.file and smoke.holds.encode("latin-1") not in (folder / smoke.file).read_bytes():
        return f"{smoke.file} does not hold {smoke.holds!r}"
    return ""


def served_page(python: Path, folder: Path) -> str:
    """What the web app does wrong; empty if its page comes and Ctrl-C ends it."""
    words = [str(python), "-m", "integrand.cli", "serve", "--port", str(PORT), "--no-open", "--room", "words"]
    server = subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    page = ""
    try:
        for _ in range(120):
            if server.poll() is not None or page:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=5) as answer:
                    page = answer.read().decode()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        server.send_signal(signal.SIGINT)
        said, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    return "" if "</html>" in page else f"no page: {said[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
