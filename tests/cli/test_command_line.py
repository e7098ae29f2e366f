"""What the commands share: nothing heavy before work begins, advice in options, files that may be replaced, bars, Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from integrand import files
from integrand.apps import command_line
from integrand.apps.command_line import BatchBar, check_out, has_options, headline_of, in_options, noted, working
from integrand.apps.images import BASELINES
from integrand.apps.images.cli import BASELINE_NAMES, VIEW_NAMES
from integrand.batch import ExplainedTable
from integrand.cli.app import COMMANDS, CommandEntry, app
from integrand.errors import ConvergenceWarning, IntegrandWarning, OptionError, quiet, warn
from integrand.evaluation.progress import Progress
from integrand.render.image.views import VIEWS

ASK = """
import sys
from integrand.cli import main
ends = []
for words in {words!r}:
    sys.argv = ["integrand", *words]
    try:
        main()
    except SystemExit as end:
        ends.append(end.code or 0)
print("ends", ends, "loaded", [name for name in {heavy!r} if name in sys.modules])
"""
HEAVY = ("torch", "numpy", "PIL", "matplotlib", "rdkit", "transformers", "rich.progress")


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    words = [["--version"], ["--help"], *([entry.name, "--help"] for entry in COMMANDS)]
    wrong = [[entry.name, "--no-such-option"] for entry in COMMANDS]
    wrong += [
        ["image"],
        ["image", "a.png", "--size", "big"],
        ["image", "a.png", "--view", "loud"],
        ["text", "a", "--model", ""],
    ]
    wrong += [
        ["translate", "a", "--out", "a.docx"],
        ["molecule", "C", "--out", "no/such/folder/a.csv"],
        ["rules", "nosuch.txt"],
    ]
    code = ASK.format(words=words + wrong, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"ends {[0] * len(words) + [2] * len(wrong)} loaded []", done.stderr


def test_the_names_in_the_help_are_those_there_are() -> None:
    assert tuple(VIEWS) == VIEW_NAMES
    assert BASELINES == BASELINE_NAMES


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_option_is_in_one_of_the_panels(entry: CommandEntry) -> None:
    known = {command_line.WHAT, command_line.ACCURACY, command_line.OUTPUT, command_line.NETWORK, command_line.EXPERTS}
    known |= {command_line.WHERE, command_line.LIMITS}
    options = [one for one in entry.load().params if one.param_type_name == "option" and one.name != "help"]
    assert {one.rich_help_panel for one in options} <= known
    if entry.name != "serve":  # which writes nothing
        assert {"--force"} <= {name for one in options for name in one.opts}


@pytest.mark.parametrize(("name", "words"), [("image", ["a.png"]), ("text", ["a"]), ("molecule", ["C"])])
def test_an_empty_name_of_a_model(name: str, words: list[str]) -> None:
    found = CliRunner().invoke(app, [name, *words, "--model", ""])
    assert isinstance(found.exception, OptionError)
    assert "got --model '', which is empty; expected the name of a" in str(found.exception)


@pytest.mark.parametrize(("name", "words"), [("questions", ["who?"]), ("rules", ["a.txt"])])
def test_a_second_model_is_refused_where_nothing_is_compared(name: str, words: list[str]) -> None:
    found = CliRunner().invoke(app, [name, *words, "--model", "wtq", "--model", "trec"])
    assert isinstance(found.exception, OptionError)
    assert "got --model 2 times (wtq, trec); expected one" in str(found.exception)
    assert "different classes" in str(found.exception)


# ---- advice -----------------------------------------------------------------------------------------------------------------

MISSED = "the error is estimated at 12%, not within 1%; raise max_evaluations, steps or memory (about 5213 evaluations), or "
MISSED += "ask for a larger tol"
ADVISED = "the error is estimated at 12%, not within 1%; allow more work with --max-evaluations 5300 or ask for less with "
ADVISED += "--tol 0.13"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MISSED, ADVISED),
        (
            f"the tolerance was not met for 1 of 1 example(s); example 0: budget spent: {MISSED}.",
            f"not as exact as asked for: {ADVISED}.",
        ),
        (
            "the tolerance was not met for 2 of 3 example(s); example 1: noise floor: x",
            "not as exact as asked for in 2 of 3 (first: number 2): x",
        ),
        (
            "gradients in float32 are not precise enough for a tolerance of 1%; use a model and input in float64 or a "
            "tolerance above 3.1%",
            "gradients in float32 are not precise enough for a tolerance of 1%; compute with --dtype float64 or ask "
            "for less with --tol 0.033",
        ),
        ("text 0: the tokenizer does not know 3 of 4 words", "text 1: the tokenizer does not know 3 of 4 words"),
        ("got tol=-1.0; expected", "got --tol -1.0; expected"),
        ("nothing to translate here", "nothing to translate here"),
    ],
)
def test_advice_names_the_options_of_the_command(text: str, said: str) -> None:
    assert worded_in("text", text) == said


def test_advice_names_no_option_that_the_command_has_not() -> None:
    said = worded_in("axioms", MISSED)
    assert "--tol" not in said
    assert "max_evaluations" not in said
    assert "--dtype" not in worded_in("image", "use a model and input in float64 or a tolerance above 3.1%")


def worded_in(name: str, text: str) -> str:
    """A message as the command of that name words it."""
    command = next(entry for entry in COMMANDS if entry.name == name).load()
    token = has_options.set(frozenset(option for one in command.params for option in one.opts))
    try:
        return in_options(text)
    finally:
        has_options.reset(token)


def test_warnings_become_notes_each_once_and_others_are_hidden() -> None:
    import warnings

    with noted() as notes:
        warn("text 0: odd", IntegrandWarning)
        warn("text 0: odd", IntegrandWarning)
        warnings.warn("of another package", DeprecationWarning, stacklevel=1)
        with quiet(ConvergenceWarning):
            warn("said elsewhere", ConvergenceWarning)
    assert notes == ["text 1: odd"]
    with pytest.warns(IntegrandWarning, match="after"):
        warn("after", IntegrandWarning)


def test_the_first_line_is_the_sentence_where_there_is_one() -> None:
    class Said:
        sentence = "cat (39%): because of its ears; numbers good to 0.9%."

    assert headline_of(Said()) == Said.sentence
    assert headline_of("one\ntwo") == "one"


# ---- files ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("a.html", b'<!doctype html>\n<meta name="generator" content="integrand 0.9">'),
        ("a.txt", b"rules\n\n# integrand 0.9: integrand rules\n"),
        ("a.json", b'[{"label": "x", "baseline_score": 0.1}]'),
        ("a.csv", b"id,score,integrand_score,baseline_score,status,smiles\n"),
        ("a.sdf", b"\n> <attribution_of_bonds>  (1) \n0.5\n"),
        ("a.svg", files.marked("<svg></svg>")),
    ],
)
def test_only_what_is_ours_is_replaced(tmp_path: Path, name: str, ours: bytes) -> None:
    out, endings = tmp_path / name, (Path(name).suffix,)
    check_out(out, endings)
    out.write_bytes(ours)
    check_out(out, endings)
    out.write_bytes(b"score,status\nthe thesis of integrand's user\n")
    (tmp_path / "folder.html").mkdir()
    for force in (False, True):
        with pytest.raises(OptionError, match=r"is no ordinary file"):  # before the work begins, not after it
            check_out(tmp_path / "folder.html", (".html",), force=force)
    with pytest.raises(OptionError, match=r"is there already and was not written by integrand; expected a new name\. --force"):
        check_out(out, endings)
    check_out(out, endings, force=True)


def test_a_typing_error_makes_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "reslts" / "deep" / "a.html"
    with pytest.raises(OptionError, match=f"there is no folder '{re.escape(str(out.parent))}'.*nearest is "
                       f"'{re.escape(str(tmp_path))}'"):  # fmt: skip
        check_out(out, (".html",))
    assert not (tmp_path / "reslts").exists()
    check_out(out, (".html",), force=True)
    assert out.parent.is_dir()


# ---- bars -------------------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_what_is_done_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    with working() as screen:
        with screen.loading():
            pass
        bar = screen.batch(3, "photos")
        bar.begin("cat\x1b[2J.png")
        for done, expected in ((10, 100), (50, 200), (60, 120), (60, 300)):
            bar.tell(Progress(1, 0, done, expected))
        bar.advance(1)
        (inputs, work) = bar._bar.tasks  # type: ignore[union-attr]
        assert (inputs.description, inputs.completed, inputs.total) == ("1 of 3 photos", 1, 3)
        assert work.completed == pytest.approx(0.5)  # the total moves, the share does not go back
        bar.begin("dog.png", 2)
        for done, total in ((10, 20), (20, 20), (5, 20)):
            bar.tell(Progress(1, 0, done, total))
        assert work.completed == pytest.approx(0.625)  # the first of two integrals, and a quarter of the second
        command_line.print_line("cat.png: a cat")
    text = said.getvalue()
    assert "loading the network" in text
    assert r"cat\x1b[2J.png" in text


def test_inputs_of_an_earlier_run_count_neither_for_the_rate_nor_for_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock = [1000.0]
    monkeypatch.setattr(command_line.time, "monotonic", lambda: clock[0])
    with working() as screen:
        bar = screen.batch(14, "photos")
        bar._bar.get_time = lambda: clock[0]  # type: ignore[union-attr]
        bar.advance(5)
        bar.advance(1, 1)
        bar.begin("7.jpg")
        inputs = bar._bar.tasks[0]  # type: ignore[union-attr]
        assert (inputs.completed, inputs.time_remaining, inputs.fields["left"]) == (6, None, "left, 1 failed")
        for _ in range(2):  # a photo takes longer than what rich looks back on
            clock[0] += 40.0
            bar.advance(1)
        assert inputs.fields["left"] == "left, 1.5 a minute, 1 failed"
        assert inputs.time_remaining == 6 * 40


def test_a_bar_on_a_narrow_terminal_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    with working() as screen:
        bar = screen.batch(10_000, "molecules")
        bar.begin("C[C@H]1O[C@@H](O[C@@H]2C[C@@H]3O[C@](O)(C[C@H](O)[C@H]3C(O)=O)C[C@@H](O)C[C@H]4O")
        bar.advance(9_998, 1_234)
        bar._bar.refresh()  # type: ignore[union-attr]
        assert "…" not in said.getvalue()
        assert ", 1234 failed" in said.getvalue()


def test_a_bar_over_inputs_whose_number_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with working() as screen:
        bar = screen.batch(None, "inputs")
        bar.begin("line 1")
        bar.advance(5, 1)
        inputs = bar._bar.tasks[0]  # type: ignore[union-attr]
        assert (inputs.description, inputs.visible, inputs.total) == ("5 inputs", True, None)
        assert re.fullmatch(r"\d+(\.\d)? a (second|minute), 1 failed", inputs.fields["left"])


def test_answers_go_to_standard_output_and_nothing_is_drawn_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with working() as screen, screen.loading():
        bar = screen.batch(2, "photos")
        bar.begin("a")
        bar.advance(1)
        bar.tell(Progress(1, 0, 1, 2))
        command_line.print_line("a: a cat")
    assert capsys.readouterr() == ("a: a cat\n", "")
    assert BatchBar(None, 1)._bar is None


def test_a_bar_on_the_terminal_leaves_standard_output_to_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with working():
        command_line.print_line("a: a cat")
        typer.echo('{"a": 1}')
    assert capsys.readouterr().out == 'a: a cat\n{"a": 1}\n'


# ---- Ctrl-C -----------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
def test_ctrl_c_stops_a_molecule_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    """RDKit puts a handler of its own in place of Python's when it searches for substructures, and leaves it there."""
    pytest.importorskip("rdkit")
    (tmp_path / "many.smi").write_text("".join(f"{'C' * (1 + i % 40)}{'O' * (1 + i // 40)} m{i}\n" for i in range(4000)))
    words = [sys.executable, "-m", "integrand.cli", "molecule", "--file", "many.smi", "--out", "a.csv"]
    words += ["--model", "weave-w1n2", "--smarts", "alcohol=CO", "--device", "cpu"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()  # the first answers are there: RDKit was asked
        assert first.startswith("m0: "), process.communicate()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "stopped; the same command goes on where it was" in err
    kept = list(ExplainedTable.open(tmp_path / "a.table").rows())
    assert len(kept) >= 64
    assert kept[0].columns["smiles"] == "CO"


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_ctrl_c_works_after_a_substructure_search(where: str) -> None:
    import threading

    chem = pytest.importorskip("rdkit.Chem")
    from integrand.apps.molecules.accounting import compiled, matches

    def search() -> None:
        assert matches(chem.MolFromSmiles("CCO"), compiled({"alcohol": "CO"})) == {"alcohol": [frozenset({1, 2})]}

    if where == "main thread":
        search()
    else:
        (thread := threading.Thread(target=search)).start()
        thread.join()
    with pytest.raises(KeyboardInterrupt):
        stop()


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
def test_searches_in_two_threads_do_not_take_each_other_for_what_was_there_before() -> None:
    import threading

    chem = pytest.importorskip("rdkit.Chem")
    from integrand.apps.molecules.rdkit_signals import _handler, ctrl_c_kept

    before, inside, go_on = _handler(), threading.Event(), threading.Event()

    def first() -> None:
        with ctrl_c_kept():
            chem.MolFromSmiles("CCO").GetSubstructMatches(chem.MolFromSmarts("CO"))
            inside.set()
            go_on.wait(10)

    def second() -> None:
        inside.wait(10)
        threading.Timer(0.05, go_on.set).start()
        with ctrl_c_kept():
            go_on.wait(10)
            one.join(0.2)

    one, two = threading.Thread(target=first), threading.Thread(target=second)
    for thread in (one, two):
        thread.start()
    for thread in (one, two):
        thread.join()
    assert _handler() == before


def stop() -> None:
    """Ctrl-C for this process, and a while for it to arrive."""
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(200):
        time.sleep(0.01)
