"""Public names of a package that are loaded when they are first used (PEP 562): importing the package costs next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loaded_on_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package whose names live in its modules.

    Type checkers are shown plain imports instead::

        if TYPE_CHECKING:
            from .result import Answer
        else:
            __getattr__, __dir__ = loaded_on_use(__name__, {"Answer": "result"})

    Args:
        package: its ``__name__``.
        homes: by public name, the module that has it: ``result``, or ``result:PhotoCase`` where it is called otherwise there.

    Returns:
        The two functions.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, called = homes[name].partition(":")
        found = getattr(import_module(f"{package}.{module}"), called or name)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*homes, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return load, listed
