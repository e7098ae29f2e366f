"""Ctrl-C after substructure searches: RDKit puts a handler of its own in place of Python's, and leaves it there."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ONE_AT_A_TIME = threading.RLock()
"""While one thread searches, another would take RDKit's handler for the one that was there before, and put that back."""


@contextmanager
def ctrl_c_kept() -> Iterator[None]:
    """Put back what Ctrl-C did before the block: put it around every call of RDKit that searches for substructures.

    RDKit (``GetSubstructMatches`` and its kin) sets a handler of the operating system's kind, beneath Python's: after that,
    Ctrl-C no longer raises KeyboardInterrupt, in scripts and in notebooks. ``signal.signal`` could put Python's back in the
    main thread only; this works in all, one after the other. A Ctrl-C in the block is kept for its end where the system can do
    that and gives it to no other thread.
    """
    with _ONE_AT_A_TIME:
        before = _handler()
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
        try:
            yield
        finally:
            if before is not None:
                _setter()(signal.SIGINT, before)
            if held is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _handler() -> int | None:
    """The address of what the operating system calls on Ctrl-C; None where Python does not say."""
    python = getattr(ctypes, "pythonapi", None)
    if not hasattr(python, "PyOS_getsig"):
        return None
    ask: Any = python.PyOS_getsig  # type: ignore[union-attr]
    ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_int]  # 0, the system's own, is an answer too
    found: int | None = ask(signal.SIGINT)
    return found


def _setter() -> Any:
    put: Any = ctypes.pythonapi.PyOS_setsig
    put.restype, put.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    return put
