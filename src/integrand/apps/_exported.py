"""Networks that come as a file: TorchScript, or a program of ``torch.export``."""

from __future__ import annotations

import logging
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FileError, ModelError

ENDINGS = (".pt2", ".pt", ".pth", ".ts", ".jit", ".torchscript")


class Exported(nn.Module):
    """An exported program as an ordinary module.

    A program that was exported with a fixed number of rows gets that many at a time, the last ones filled up with copies.

    Args:
        program: what ``torch.export.load(path).module()`` gives.
        rows: how many rows it takes; None for any number.
    """

    def __init__(self, program: nn.Module, rows: int | None) -> None:
        super().__init__()
        self.program = program
        self.rows = rows
        self.training = False

    def train(self, mode: bool = True) -> Exported:
        """The program stays as it was exported, and cannot be told otherwise."""
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Any:
        """(N, 3, H, W) to what the program gives for N rows."""
        if self.rows is None:
            return self.program(x)
        parts = []
        for part in x.split(self.rows):
            filled = torch.cat([part, part[-1:].expand(self.rows - len(part), *part.shape[1:])])
            output = self.program(filled)
            if not isinstance(output, Tensor):
                raise ModelError(
                    f"the program takes {self.rows} rows at a time and gives a {type(output).__name__}; expected a tensor. "
                    "Export it again with a dynamic first dimension."
                )
            parts.append(output[: len(part)])
        return torch.cat(parts)


@dataclass(frozen=True)
class File:
    """A network from a file.

    Attributes:
        module: in eval mode.
        kind: what it is, in words.
        size: (height, width), where the file fixes it.
        notes: what the user should know.
    """

    module: nn.Module
    kind: str
    size: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


def load_file(path: Path) -> File:
    """A network from a TorchScript or ``torch.export`` file; which of them, the contents decide."""
    if path.is_dir():
        raise FileError(f"{str(path)!r} is a folder; expected a TorchScript or torch.export file.")
    if not path.is_file():
        raise FileError(f"there is no file {str(path)!r}; expected a TorchScript or torch.export file. Check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()] + archive.namelist()
    except (zipfile.BadZipFile, OSError):
        raise FileError(
            f"{str(path)!r} is neither a TorchScript nor a torch.export file, or it is damaged. {_HOW_TO_EXPORT}"
        ) from None
    if any(name in names for name in ("archive_format", "serialized_exported_program.json")):
        return _program(path)
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return _script(path)
    raise FileError(
        f"{str(path)!r} holds weights, or a pickled model, but not a network that can be run as it is. Give the network as "
        f"package.module:function with weights={path.name!r}, or export it. {_HOW_TO_EXPORT}"
    )


_HOW_TO_EXPORT = (
    "To export: torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim('n')},)), path)."
)


def _program(path: Path) -> File:
    try:
        with _quiet(), path.open("rb") as file:  # as a stream, for other endings than .pt2
            program = torch.export.load(file)
            module = program.module()
    except Exception as error:
        raise FileError(
            f"{str(path)!r} cannot be loaded by torch {torch.__version__} ({_first_line(error)}). Export it again with it."
        ) from error
    names = program.graph_signature.user_inputs
    found = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(found) != 1 or not isinstance(found[0], Tensor) or found[0].ndim != 4:
        shapes = [tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__ for value in found]
        raise FileError(f"{str(path)!r} takes {shapes}; expected one picture, (N, 3, height, width).")
    rows, _, height, width = found[0].shape
    fixed = isinstance(rows, int)
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    note = (
        f"the file was exported for {rows} row{'s' if rows != 1 else ''} at a time and runs so; export it with a dynamic first "
        "dimension (dynamic_shapes) to run more at once"
    )
    return File(Exported(module, rows if fixed else None), "torch.export file", size, (note,) if fixed else ())


def _script(path: Path) -> File:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself; the file is the user's to renew
            module: nn.Module = torch.jit.load(str(path), map_location="cpu")
    except Exception as error:
        raise FileError(f"{str(path)!r} cannot be loaded by torch {torch.__version__} ({_first_line(error)}).") from error
    return File(module.eval(), "TorchScript file")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the traceback that torch logs where it cannot read a file."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.export.pt2_archive._package")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
