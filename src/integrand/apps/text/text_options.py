"""Options that the commands on words share where there are many texts, and where their tables are.

Nothing heavy is imported here: ``--help`` must not wait for torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...errors import OptionError
from ...words import shown
from ..command_line import OUTPUT, WHAT, check_folder, check_out

File = Annotated[
    Path | None,
    typer.Option(
        help="Many texts: one per line, or a table (.csv, .tsv, .jsonl, .parquet).", show_default=False, rich_help_panel=WHAT
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        help="The column of a table that has the texts. Default: by its heading.",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Explain again what is done already.", rich_help_panel=OUTPUT, show_default=False)
]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="Of a file: keep the table beside the output, NAME.table; another ending then takes no time.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class TextOutput:
    """Where the results of many texts go, and what is done with those of earlier runs.

    Attributes:
        out: a file, or the folder of a table; None to print only.
        folder: whether it is a folder.
        again: explain all texts again.
        keep: keep the table that is beside a file.
        retry_failed: explain texts again that an earlier run could not.
    """

    out: Path | None
    folder: bool
    again: bool = False
    keep: bool = False
    retry_failed: bool = False

    @staticmethod
    def checked(
        out: Path | None,
        endings: Sequence[str],
        *,
        force: bool = False,
        again: bool = False,
        keep: bool = False,
        retry_failed: bool = False,
    ) -> TextOutput:
        """The output that was asked for, checked before the work begins.

        Args:
            out: a file; or a folder, new or that of an earlier run, if its name has no ending or it is there.
            endings: what the name of a file may end in.
            force: replace whatever is there, and make the folders that are missing.
            again: explain all texts again.
            keep: keep the table that is beside a file.
            retry_failed: explain texts again that an earlier run could not.
        """
        folder = out is not None and (out.is_dir() or not out.suffix)
        if out is not None and not folder and out.suffix.lower() not in endings:
            raise OptionError(
                f"got --out {shown(str(out))!r}; expected a file that ends in {', '.join(endings)}, or a folder for a table: a "
                "name without an ending."
            )
        if out is not None and folder:
            _check_table(out, force=force)
        else:
            check_out(out, endings, force=force)
        return TextOutput(out, folder, again, keep, retry_failed)


def _check_table(out: Path, *, force: bool) -> None:
    """Refuse a folder that holds other things: a table in the middle of them would be a mess that nobody wants."""
    if out.exists() and not out.is_dir():
        raise OptionError(f"got --out {shown(str(out))!r}, a file without an ending; expected a new name, or a folder.")
    from ...batch.table import MANIFEST

    if not out.exists():
        check_folder(out.absolute().parent, f"--out {shown(str(out))!r}", force=force)
    elif not (out / MANIFEST).exists() and not force and any(not one.name.startswith(".") for one in out.iterdir()):
        raise OptionError(
            f"got --out {shown(str(out))!r}, a folder with other things in it; expected a new name, or that of an earlier "
            "run. --force writes the table there all the same."
        )
