"""The commands: one table that names them, and a group that imports a command only when it is run or asked for its help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ..errors import IntegrandError
from ..version import version_of


def _without_types(params: list[Any]) -> list[Any]:
    """The same options, of which those that take no value show none in the help: typer writes ``--version <bool>``."""
    for one in params:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return params


class PlainCommand(TyperCommand):
    """A command whose help shows values for options that take one, and for no others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, ``--help`` among them."""
        return _without_types(super().get_params(ctx))


@dataclass(frozen=True)
class CommandEntry:
    """One line of the table of commands.

    Attributes:
        name: what the user types.
        function: where the command is, as ``module:function``, relative to the package.
        help: what ``integrand --help`` says of it: the first paragraph of the function's docstring.
    """

    name: str
    function: str
    help: str

    def load(self) -> Any:
        """Import the command's module and build the command."""
        module, _, name = self.function.partition(":")
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(self.name, cls=PlainCommand)(getattr(import_module(f"..{module}", __package__), name))
        command = get_command(one)
        command.callback = _worded(command.callback, frozenset(name for one in command.params for name in one.opts))
        # Paragraphs that fit any width: typer keeps the line breaks of a docstring.
        command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
        return command


begun: list[bool] = []
"""Holds something once a command has begun."""


def _worded(function: Callable[..., Any] | None, options: frozenset[str]) -> Callable[..., Any]:
    """A command whose errors and notes give advice in terms of its own options, not of Python's keywords."""

    def run(*args: Any, **kwargs: Any) -> Any:
        from ..apps.command_line import has_options, in_options

        assert function is not None
        begun.append(True)
        token = has_options.set(options)
        try:
            return function(*args, **kwargs)
        except IntegrandError as error:
            error.args = (in_options(str(error)),)
            raise
        finally:
            has_options.reset(token)

    return run


COMMANDS = (
    CommandEntry("image", "apps.images.cli:image", "Which pixels of a photo made a network say what it says?"),
    CommandEntry(
        "retina",
        "apps.retina.cli:retina",
        "Grade diabetic retinopathy in fundus photos, 0 to 4, and show what speaks for it. Not a medical device.",
    ),
    CommandEntry(
        "scene",
        "apps.scenes.cli:scene",
        "Which pixels of a photo made a detector draw a box, or a segmenter a mask?",
    ),
    CommandEntry("questions", "apps.questions.cli:questions", "What does a question ask for, and which of its words told?"),
    CommandEntry(
        "rules",
        "apps.questions.cli:rules",
        "Which words and phrases trigger which class? Usual rules, new ones, and suspicious ones.",
    ),
    CommandEntry(
        "translate",
        "apps.translation.cli:translate",
        "Translate English to German. Which words contributed to each word of the translation?",
    ),
    CommandEntry(
        "text",
        "apps.text.cli:text",
        "Which words made a model say what it says? For any Hugging Face model that classifies, answers, writes or compares.",
    ),
    CommandEntry(
        "audio",
        "apps.audio.cli:audio",
        "Which moments of a recording made a model say what it says? A detector of speech, or a model of yours.",
    ),
    CommandEntry(
        "molecule", "apps.molecules.cli:molecule", "Which atoms and bonds made a network say what it says of a molecule?"
    ),
    CommandEntry("table", "apps.tables.cli:table", "Which columns of a table made a model say what it says of a row?"),
    CommandEntry(
        "sequence", "apps.sequences.cli:sequence", "Which letters of DNA, RNA or a protein made a network say what it says?"
    ),
    CommandEntry(
        "series",
        "apps.series.cli:series",
        "Which stretches of a signal made a model say what it says? Which past values made its forecast?",
    ),
    CommandEntry(
        "graph",
        "apps.graphs.cli:graph",
        "Which nodes and edges made a network say what it says of a graph, or of a node in it?",
    ),
    CommandEntry(
        "summary",
        "cli.table_commands:summary",
        "What did a model say of a whole data set, what mattered, and how exact is it? As a page.",
    ),
    CommandEntry(
        "export",
        "cli.table_commands:export",
        "Write what became of many inputs as CSV for spreadsheets, one line for each input.",
    ),
    CommandEntry(
        "axioms",
        "cli.axioms_command:axioms",
        "Which axioms of the paper does each method keep? With the evidence for every answer.",
    ),
    CommandEntry(
        "serve",
        "cli.serve_command:serve",
        "Open a web page on which to drop a photo, type a sentence, paste a molecule or pick a row of a table, and look.",
    ),
    CommandEntry(
        "run",
        "cli.run_command:run",
        "Explain many inputs as a file says, on this machine or on a Ray cluster; a run that was stopped goes on.",
    ),
)
"""All commands, in the order of ``integrand --help``. A new application is a package in ``apps`` and a line here."""


class LazyCommand(TyperCommand):
    """A command that knows its name and a line of help; everything else is imported when arguments are to be parsed."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, help=entry.help)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and let it parse its arguments; the group then runs the command of the context it gets."""
        return self._entry.load().make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """The group of all commands in :data:`COMMANDS`, none of which is imported yet."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for entry in COMMANDS:
            self.add_command(LazyCommand(entry))

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the group itself, ``--help`` among them."""
        return _without_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands in the order of the table."""
        return list(self.commands)


app = typer.Typer(
    name="integrand",
    cls=LazyGroup,
    help="Why a neural network said what it said, with numbers you can check.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"integrand {version_of()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Why a neural network said what it said, with numbers you can check."""
