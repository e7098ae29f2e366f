"""The command line as a whole: what it loads, what it lists, and that every command is where the table says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from integrand.cli import EXTRAS, main
from integrand.cli.app import COMMANDS, CommandEntry, app

COUNT = """
import sys
from pathlib import Path
{code}
loaded = [name for name in sys.modules if name.partition(".")[0] == "integrand"]
print("loaded", len(loaded), "torch" in sys.modules)
"""
RUN = """
from integrand.cli import main
sys.argv = ["integrand", {word!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("code", "most"),
    [(RUN.format(word="--version"), 30), (RUN.format(word="--help"), 30), ("import integrand", 70)],
    ids=["version", "help", "import"],
)
def test_little_is_loaded_before_it_is_needed(code: str, most: int) -> None:
    said, count, torch = python(COUNT.format(code=code)).splitlines()[-1].split()
    assert said == "loaded"
    assert int(count) < most
    assert torch == "False"


def test_the_version_is_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "integrand.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("integrand ")


def test_help_lists_all_commands_in_order() -> None:
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    places = [listed.index(f" {entry.name} ") for entry in COMMANDS]
    assert places == sorted(places)
    for entry in COMMANDS:
        assert entry.help.split(".")[0].split("?")[0][:30] in listed


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_a_command_is_what_the_table_says(entry: CommandEntry) -> None:
    command = entry.load()
    assert command.name == entry.name
    assert " ".join(command.help.partition("\n\n")[0].split()) == entry.help
    helped = CliRunner().invoke(app, [entry.name, "--help"])
    assert helped.exit_code == 0, helped.output
    assert f"integrand {entry.name} " in helped.output
    assert "<bool>" not in helped.output  # options without a value show none


def test_a_tolerance_is_a_share_and_no_percentage() -> None:
    done = CliRunner().invoke(app, ["image", "cat.jpg", "--tol", "5"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert done.exit_code == 2
    assert "got 5, which is 500%; expected a share: 0.05 for 5%" in done.output


def test_a_command_that_is_not_there() -> None:
    done = CliRunner().invoke(app, ["imag"])
    assert done.exit_code == 2
    assert "No such command" in done.output
    assert "image" in done.output


def test_without_a_command_the_help_is_shown() -> None:
    assert "molecule" in CliRunner().invoke(app, []).output


@pytest.mark.parametrize(
    ("missing", "typed", "code"),
    [
        ("typer", "--help", "pip install 'integrand[cli]'"),
        ("typer", "image", "pip install 'integrand[images]'"),
        ("rich", "translate", "pip install 'integrand[models]'"),
        ("a_package_of_the_users_model", "image", "traceback"),
    ],
)
def test_a_missing_package_is_reported_only_if_it_is_one_of_ours(
    missing: str, typed: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["integrand", typed])

    def fail() -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("integrand.cli.app.app", fail)
    if code == "traceback":
        with pytest.raises(ModuleNotFoundError, match=missing):
            main()
    else:
        with pytest.raises(SystemExit) as ended:
            main()
        assert code in str(ended.value.code)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are text there")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_never_reach_a_terminal_raw(tmp_path: Path, encoding: str) -> None:
    """A name that a terminal would obey, or cannot print, is shown, and ends no command."""
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9\x1b[2J\x07\xe2\x80\xaegpj\nline.jpg")
    with open(name, "wb") as file:
        file.write(b"no file of molecules")
    words = [sys.executable, "-m", "integrand.cli", "molecule", "--file", name]
    done = subprocess.run(words, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}, check=False)
    said = (done.stdout + done.stderr).decode(encoding)
    assert done.returncode == 2, said
    assert said.startswith(r"integrand: got caf\xe9\x1b[2J\x07\u202egpj\x0aline.jpg; expected a file that ends in")
    assert said.count("\n") == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", said)


def test_what_a_stream_cannot_encode_is_escaped() -> None:
    code = "import sys\nfrom integrand.cli import main\nsys.argv = ['integrand', '--version']\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('\\u2192', '\\udce9')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == b"\\u2192 \\udce9"


def test_what_is_printed_may_have_lines_but_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    from integrand.apps.command_line import print_shown, say, say_failures
    from integrand.batch import BatchSummary

    print_shown("one\ntwo\x1b[2J\udce9")
    say(["a note\x9b2J"])
    summary: BatchSummary[str] = BatchSummary()
    summary.failed = 1
    summary.reasons.append(("cat\x1b[2J\n.jpg", "why"))
    say_failures(summary, str)
    found = capsys.readouterr()
    assert found.out == "one\ntwo\\x1b[2J\\xe9\n"
    assert found.err == "note: a note\\x9b2J\nnot explained: cat\\x1b[2J\\x0a.jpg: why\n"


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [
        (["image", "a --again.jpg", "--again", "--out", "x --again/y"], ["image", "a --again.jpg", "--out", "x --again/y"]),
        (["image", "--again", "--", "--again"], ["image", "--", "--again"]),
        (["image", "a --again.jpg"], None),
        (["image", "--", "--again"], None),
        (["image", "it's.jpg", "--again"], ["image", "it's.jpg"]),
    ],
)
def test_the_command_that_goes_on_has_all_names_of_files(
    words: list[str], goes_on: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    from integrand.apps.command_line import stoppable

    with pytest.raises(typer.Exit), stoppable(shlex.join(["integrand", *words])):
        raise KeyboardInterrupt
    how, _, command = capsys.readouterr().err.partition(": ")
    assert shlex.split(command) == ["integrand", *(words if goes_on is None else goes_on)]
    assert ("without --again" in how) == (goes_on is not None)


def test_names_stay_on_one_line_and_are_escaped_once(capsys: pytest.CaptureFixture[str]) -> None:
    from integrand.apps.command_line import print_line, say, stoppable

    print_line("wrote a\nb\tc\x1b[2J")
    say(["two\nlines"])
    with pytest.raises(typer.Exit), stoppable("integrand image 'a\nb'"):
        raise KeyboardInterrupt
    found = capsys.readouterr()
    assert found.out == "wrote a\\x0ab\\x09c\\x1b[2J\n"
    assert found.err == ("note: two\\x0alines\nstopped; the same command goes on where it was: integrand image 'a\\x0ab'\n")


NEEDED = {
    "image": "integrand-models safetensors pillow matplotlib scikit-image efficientnet_lite_pytorch tqdm",
    "retina": "integrand-models safetensors pillow matplotlib tqdm",
    "scene": "pillow matplotlib scikit-image tqdm",
    "questions": "integrand-models safetensors tqdm",
    "rules": "integrand-models safetensors tqdm",
    "translate": "integrand-models safetensors tokenizers tqdm",
    "text": "transformers tokenizers safetensors tqdm",
    "audio": "silero-vad soundfile matplotlib pyarrow tqdm",
    "molecule": "integrand-models safetensors rdkit matplotlib tqdm",
    "sequence": "integrand-models safetensors matplotlib pyarrow tqdm",
    "table": "integrand-models scikit-learn pandas matplotlib safetensors pyarrow tqdm",
    "series": "integrand-models safetensors pyarrow matplotlib",
    "graph": "integrand-models safetensors torch_geometric matplotlib tqdm",
    "run": "pyarrow pyyaml",
    "serve": "integrand-models safetensors tokenizers rdkit matplotlib pillow scikit-image starlette uvicorn",
    "summary": "pyarrow",
    "export": "pyarrow",
    "axioms": "hypothesis",
}
"""The packages that each command imports beside torch and numpy."""


def test_one_extra_brings_all_that_a_command_needs() -> None:
    """Before, translate named text and then models, retina models and then images, and each of them cli."""
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found = set()
        for need in extras[extra]:
            name, bracket, inner = need.partition("[")
            if name == "integrand" and bracket:
                found |= set().union(*map(packages, inner.rstrip("]").split(",")))
            else:
                found.add(re.split(r"[<>=]", need)[0])
        return found

    assert {entry.name for entry in COMMANDS} == set(EXTRAS) == set(NEEDED)
    for command, needed in NEEDED.items():
        assert {"typer", "rich", *needed.split()} <= packages(EXTRAS[command]), command
        assert packages(EXTRAS[command]) <= packages("all")
    assert {"admet-ai", "chemprop"} <= packages("all")
    assert not {"pytest", "captum", "playwright"} & packages("all")
    assert {"playwright", "axe-core-python"} <= packages("dev")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["questions", "--help"]])
def test_output_that_cannot_be_written_is_one_line_and_no_success(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "integrand.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("words", [["questions", "How far?"], ["molecule", "CCO"], ["export", "table", "--csv"]])
def test_an_output_that_cannot_be_is_refused_before_the_work(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("integrand.apps.command_line.Screen.loading", pytest.fail)
    name = "n" * 300 + ".html"
    last = [name] if words[-1] == "--csv" else ["--out", name]
    monkeypatch.setattr(sys, "argv", ["integrand", *words, *last])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("integrand: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code"), [(["questions", "How far?"], 1), (["--version"], 0), (["run", "--help"], 0), ([], 0)]
)
def test_an_exit_without_work_is_no_success(words: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """typer 0.12 with a newer click took every command for --version: it printed that and ended with 0."""

    def nothing() -> None:
        sys.exit(0)

    monkeypatch.setattr("integrand.cli.app.app", nothing)
    monkeypatch.setattr("integrand.cli.app.begun", [])
    monkeypatch.setattr(sys, "argv", ["integrand", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert bool(end.value.code) == bool(code)
    if code:
        assert "no command was run" in str(end.value.code)
