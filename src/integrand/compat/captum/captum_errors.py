"""Errors that are this package's and Captum's at once, in Captum's words.

Captum raises AssertionError for arguments that make no sense. Code that catches it goes on working: what is raised here is an
:class:`~integrand.errors.IntegrandError` and an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ...errors import InputError, OptionError, TargetError


class CaptumOptionError(OptionError, AssertionError):
    """An option that makes no sense."""


class CaptumInputError(InputError, AssertionError):
    """Inputs, baselines or masks that cannot be explained."""


class CaptumTargetError(TargetError, AssertionError):
    """A target that the model's output does not have."""


@contextmanager
def in_captums_words() -> Iterator[None]:
    """Raise errors about arguments as Captum's callers expect them."""
    try:
        yield
    except AssertionError:
        raise
    except OptionError as error:
        raise CaptumOptionError(str(error)) from error
    except InputError as error:
        raise CaptumInputError(str(error)) from error
    except TargetError as error:
        raise CaptumTargetError(str(error)) from error


def worded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose errors are Captum's too, also when it is called by its ``__wrapped__``, as Captum does.

    Args:
        method: as it is written.
    """

    @wraps(method)
    def inner(*args: Any, **kwargs: Any) -> Any:
        with in_captums_words():
            return method(*args, **kwargs)

    @wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return outer
