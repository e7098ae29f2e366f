"""The command line as a whole: what it loads, what it lists, and that every command is where the table says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from integrand.cli import main
from integrand.cli.app import COMMANDS, CommandEntry, app

COUNT = """
import sys
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


def test_a_command_that_is_not_there() -> None:
    done = CliRunner().invoke(app, ["imag"])
    assert done.exit_code == 2
    assert "No such command" in done.output
    assert "image" in done.output


def test_without_a_command_the_help_is_shown() -> None:
    assert "molecule" in CliRunner().invoke(app, []).output


@pytest.mark.parametrize(
    ("missing", "code"), [("typer", "pip install 'integrand[cli]'"), ("a_package_of_the_users_model", "traceback")]
)
def test_a_missing_package_is_reported_only_if_it_is_one_of_ours(
    missing: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
