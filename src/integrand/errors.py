"""Everything that integrand raises or warns with.

The tree::

    IntegrandError
    ├── OptionError        a keyword that makes no sense (tol, steps, budgets, unknown names)   [ValueError]
    ├── InputError         input, baseline, path, mask: shape, dtype, device, NaN, empty         [ValueError]
    ├── TargetError        a target that the output does not have                               [ValueError]
    ├── ModelError         the model cannot be explained as it stands                           [RuntimeError]
    │   ├── TrainModeError     train mode with dropout or batch-norm
    │   ├── OutputError        an output without one score per example
    │   ├── GradientError      no gradient from output to input
    │   ├── NonFiniteError     NaN or inf in a score or gradient, with its place
    │   ├── RandomnessError    two identical calls give different scores
    │   ├── RowsError          rows of a batch influence each other
    │   └── OperationError     a method has no rule for an operation of the model
    ├── MemoryLimitError   a single row does not fit                                            [MemoryError]
    ├── FileError          a file that cannot be read or written, or is not what it should be      [ValueError]
    ├── TrustError         a model that brings code of its own, without trust= or --trust        [RuntimeError]
    └── MissingExtraError  an optional dependency is not installed                              [ImportError]

    IntegrandWarning (UserWarning)
    ├── ConvergenceWarning     the tolerance was not met; the certificate says why and what to do
    ├── ZeroAttributionWarning the score does not depend on an input, or the input equals the baseline
    ├── BaselineWarning        the baseline has the explained class already, or most of the change is right there
    ├── ScoreWarning           outputs that seem to be probabilities already were passed through softmax or sigmoid
    ├── InPlaceWarning         the model writes into its input (a copy was explained), or into a buffer too large to be put back
    └── MemoryBackoffWarning   out of memory: chunks were made smaller and the run went on

Messages say what was got, what was expected, and what to do.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class IntegrandError(Exception):
    """Base of every error raised on purpose by this package."""


class OptionError(IntegrandError, ValueError):
    """A keyword argument that makes no sense."""


class InputError(IntegrandError, ValueError):
    """An input, baseline, path or mask that cannot be explained."""


class TargetError(IntegrandError, ValueError):
    """A target that the model's output does not have."""


class ModelError(IntegrandError, RuntimeError):
    """A model that cannot be explained as it stands."""


class TrainModeError(ModelError):
    """The model is in train mode and would answer differently each time or change its statistics."""


class OutputError(ModelError):
    """The model's output does not give one score per example."""


class GradientError(ModelError):
    """There is no gradient from the output to the input."""


class NonFiniteError(ModelError):
    """A score or a gradient is NaN or infinite."""


class RandomnessError(ModelError):
    """Two identical calls of the model give different scores."""


class RowsError(ModelError):
    """The score of one row of a batch depends on other rows."""


class OperationError(ModelError):
    """A method has no rule for an operation of the model."""


class MemoryLimitError(IntegrandError, MemoryError):
    """Even one row at a time does not fit into memory."""


class FileError(IntegrandError, ValueError):
    """A file that cannot be read or written, is not what it should be, or is from a newer version."""


class TrustError(IntegrandError, RuntimeError):
    """A model that brings code of its own, which nobody said to trust; nothing of it was run."""


class MissingExtraError(IntegrandError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: what is missing.
        extra: the one extra of this package that brings all that the purpose needs.
        purpose: what it is needed for, in words that can begin a sentence.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'integrand[{extra}]'"
        )


class IntegrandWarning(UserWarning):
    """Base of every warning of this package."""


class ConvergenceWarning(IntegrandWarning):
    """The tolerance was not met; the values are the best that was reached."""


class ZeroAttributionWarning(IntegrandWarning):
    """The attribution of an input is exactly zero."""


class BaselineWarning(IntegrandWarning):
    """The explained class is there at the baseline already, or most of the change is at the very start of the path."""


class ScoreWarning(IntegrandWarning):
    """Outputs that seem to be probabilities already were passed through softmax or sigmoid."""


class InPlaceWarning(IntegrandWarning):
    """The model writes into its input, or into a buffer that is too large to be put back."""


class MemoryBackoffWarning(IntegrandWarning):
    """A chunk did not fit into memory and was made smaller."""


wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)
"""The words of warnings: an interface with names of its own for options puts them in here."""


heeded: ContextVar[Callable[[str, type[Warning]], bool]] = ContextVar("heeded", default=lambda message, category: True)
"""Whether to give a warning of this package at all: what collects several results may say some things once."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called into this package, however deep the warning arises."""
    if not heeded.get()(message, category) or _collect(wording.get()(message), category):
        return
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(wording.get()(message), category, stacklevel=level)


class Hush:
    """A filter for warnings of some category that holds in threads that asked for it, and in no other.

    Args:
        category: the warnings that are not shown.
    """

    pattern = "(?!)"
    """The regular expression that replaces this filter where filters are copied, as scikit-learn's ``Parallel`` copies them. It
    matches nothing: a copy applies to every thread, and may stay, so it must silence no warning."""

    def __init__(self, category: type[Warning]) -> None:
        self.entry = ("ignore", self, category, None, 0)  # as in warnings.filters, where this stands for a regular expression
        self.threads: Counter[int] = Counter()

    def match(self, _: str) -> bool:
        """Whether the thread that warns asked for silence, whatever it says."""
        return self.threads[threading.get_ident()] > 0


_HUSHED: dict[type[Warning], Hush] = {}
_FILTERS = threading.Lock()


@contextmanager
def quiet(*categories: type[Warning]) -> Iterator[None]:
    """A context in which this thread does not show warnings of these categories, or any warnings if none are named.

    ``warnings.catch_warnings`` puts back the filters of the process as it found them, which loses what other threads did to
    them meanwhile, and for good what two threads do in turns.
    """
    me, wanted = threading.get_ident(), categories or (Warning,)
    with _FILTERS:
        hushed = [_HUSHED.setdefault(category, Hush(category)) for category in wanted]
        for one in hushed:
            one.threads[me] += 1
            _remove(one.entry)
            warnings.filters.insert(0, one.entry)  # type: ignore[attr-defined]  # before those that came later
    try:
        yield
    finally:
        with _FILTERS:
            for one in hushed:
                one.threads[me] -= 1
                one.threads += Counter()  # forgets those with nothing left
                if not one.threads:
                    _remove(one.entry)


_PAGES: dict[int, list[str]] = {}
_SILENCE = Hush(Warning)


@contextmanager
def collected() -> Iterator[list[str]]:
    """A context in which this thread shows no warnings; gives a list to which those of this package are added, each once.

    What :func:`quiet` silences inside the context is not added.
    """
    me, page = threading.get_ident(), list[str]()
    with _FILTERS:
        before = _PAGES.get(me)
        _PAGES[me] = page
        _SILENCE.threads[me] += 1
        _remove(_SILENCE.entry)
        warnings.filters.insert(0, _SILENCE.entry)  # type: ignore[attr-defined]
    try:
        yield page
    finally:
        with _FILTERS:
            if before is None:
                del _PAGES[me]
            else:
                _PAGES[me] = before
            _SILENCE.threads[me] -= 1
            _SILENCE.threads += Counter()
            if not _SILENCE.threads:
                _remove(_SILENCE.entry)


def _collect(message: str, category: type[Warning]) -> bool:
    """Add a warning to what this thread collects, unless it is silenced; whether this thread collects at all."""
    page = _PAGES.get(threading.get_ident())
    if page is not None and not any(issubclass(category, kind) and one.match("") for kind, one in _HUSHED.items()):
        page += [] if message in page else [message]
    return page is not None


def _remove(entry: tuple[object, ...]) -> None:
    """Take an entry out of the filters, if it is there."""
    if entry in warnings.filters:
        warnings.filters.remove(entry)  # type: ignore[attr-defined]
