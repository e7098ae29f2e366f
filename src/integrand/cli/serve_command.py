"""``integrand serve``: the web app."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..apps.command_line import LIMITS, NETWORK, WHAT, WHERE, Debug, Device, Trust, one_line, print_line, working
from ..errors import OptionError
from ..files import read_bytes

PASSWORD = "INTEGRAND_PASSWORD"
"""The environment variable that holds the password."""

LONGEST_PASSWORD = 4096


def serve(
    room: Annotated[
        list[str] | None,
        typer.Option(
            help="photo, eye, words, translation, molecule or table; several times for several. Default: all.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A further model, several times for several: as integrand image, text and molecule take them; with --trust "
            "package.module:function. Its room is opened with it.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="What --model takes: image, text or molecule. Default: found out.", metavar="KIND", rich_help_panel=NETWORK
        ),
    ] = None,
    trust: Trust = False,
    device: Device = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at. Default: this machine only.", rich_help_panel=WHERE)
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: 7860, or the next free one.", rich_help_panel=WHERE)
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="The path under which a reverse proxy shows it: /why.", metavar="PATH", rich_help_panel=WHERE)
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name that a reverse proxy passes on, several times for several.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=WHERE,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help=f"The password: the first line of a file. Or set {PASSWORD}.", rich_help_panel=WHERE, metavar="FILE"),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.", rich_help_panel=WHERE)] = True,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for one request.", rich_help_panel=LIMITS)] = 120.0,
    megabytes: Annotated[float, typer.Option(min=0.001, help="Megabytes of a photo.", rich_help_panel=LIMITS)] = 32.0,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait.", rich_help_panel=LIMITS)] = 32,
    workers: Annotated[
        int, typer.Option(min=1, help="Requests that run at a time, one of them only quick ones.", rich_help_panel=LIMITS)
    ] = 2,
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate/--no-isolate",
            help="Compute in processes that can crash or be killed alone. On Linux, for models that are not on a GPU.",
            rich_help_panel=LIMITS,
        ),
    ] = True,
    debug: Debug = False,
) -> None:
    """Open a web page on which to drop a photo, type a sentence, paste a molecule or pick a row of a table, and look.

    Everything stays on this machine: nothing is loaded from or sent to anywhere, and nothing that users upload is written to
    disk. Ctrl-C ends it.
    """
    known = _password(password_file)
    with working() as screen, screen.loading():
        import webbrowser

        from ..serving.server import KINDS, Kind, known_rooms, serve_rooms

        takes: Kind | None = next((one for one in KINDS if one == kind), None)
        if kind is not None and takes is None:
            raise OptionError(f"got --kind {kind!r}; expected one of {', '.join(KINDS)}.")
        with one_line("integrand serve", debug=debug):
            rooms = known_rooms(room, models=model or (), kind=takes, trust=trust, device=device)
            here = serve_rooms(
                rooms,
                host=host,
                port=port,
                prefix=prefix,
                password=known,
                allow_hosts=allow_host or (),
                seconds=seconds,
                megabytes=megabytes,
                queue=queue,
                workers=workers,
                isolate=isolate,
            )
    print_line(f"{', '.join(one.title for one in rooms)}: {here.url}  (Ctrl-C ends it)")
    if here.app.hosts is None and known is None:
        print_line("Everybody who reaches this machine can use it: there is no password (--password-file).", err=True)
    if open_browser:
        webbrowser.open(here.url)
    here.run()


def _password(file: Path | None) -> str | None:
    """The password from a file or the environment; never from the command line, which others can read."""
    if file is None:
        known = os.environ.get(PASSWORD)
        if known is not None and not known.strip():
            raise OptionError(f"{PASSWORD} is set, but empty; expected a password. Unset it to have none.")
        return known
    lines = read_bytes(file, what="a password", most=LONGEST_PASSWORD).decode("utf-8-sig", "replace").splitlines()
    if not lines or not lines[0].strip():
        raise OptionError(f"--password-file {file} is empty; expected the password in its first line.")
    return lines[0].strip()
