"""Errors that are this package's and Captum's at once, in Captum's words.

Captum raises AssertionError for arguments that make no sense. Code that catches it goes on working: what is raised here is an
:class:`~integrand.errors.IntegrandError` and an AssertionError.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ...errors import InputError, IntegrandError, OptionError, TargetError, wording


class CaptumOptionError(OptionError, AssertionError):
    """An option that makes no sense."""


class CaptumInputError(InputError, AssertionError):
    """Inputs, baselines or masks that cannot be explained."""


class CaptumTargetError(TargetError, AssertionError, IndexError):
    """A target that the model's output does not have; Captum raises an IndexError where an index is out of range."""


KNOB = "raise n_steps, or pass n_steps=None to integrate to the tolerance"
"""What to do where n_steps were too few."""

WORDS = (
    # whole pieces of advice first: where there is no such option here, another remedy
    (r"raise max_evaluations, steps or memory", KNOB),
    (r"raise (?:orderings|samples)\b", "raise n_samples"),
    (r"or ask for a larger tol\b", "or accept more with attribute_with_certificate(..., tol=...)"),
    (r"(?<=error; )use more, or None", "raise n_steps, or pass None"),
    (r"use precision='float32'", "use a model and input in float64"),
    (r"with layer=; pass masks and lengths through kwargs=", "with a Layer class; pass the rest as additional_forward_args"),
    (r"through args= or kwargs=", "through additional_forward_args"),
    (r"; if x is one example, pass batched=False", "; if inputs is one example, pass inputs[None]"),
    (r", or pass batched=False if the whole of x is one object, such as a graph", ""),
    (r"If x is one example without a batch dimension, pass batched=False; what must", "What must"),
    (r"If x is one example [^.]*batched=False; if [^.]*\.", "Wrap the model so that it gives one score for each row."),
    (r"pass batched=False if x is one example without a batch dimension", "wrap the model so that it gives a row per example"),
    (r"; a log-probability may need score='probability'", "; where the score is a log-probability, explain the probability"),
    (r"explain them with score='logit', before the softmax", "explain the model without its softmax"),
    (r"or side with layer_side=", "or the other side with attribute_to_layer_input"),
    # then names
    (r"\bchunk=", "internal_batch_size="),
    (r"\bargs\[", "additional_forward_args["),
    (r"(?<=got )samples=", "n_samples="),
    (r"\bbaseline(?= (?:holds|has|is)\b|=|\[)", "baselines"),
    (r"(?<!F\()(?<![\w.'\"])x(?![\w'\"(])", "inputs"),
)
"""This package's words in messages, and Captum's, in the order in which they are replaced."""


def captums_words(text: str) -> str:
    """A message with the names of Captum's options.

    Args:
        text: the message in this package's words.
    """
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return text


@contextmanager
def in_captums_words() -> Iterator[None]:
    """Raise errors as Captum's callers expect them, and word errors and warnings in its terms."""
    token = wording.set(captums_words)
    try:
        yield
    except (OptionError, InputError, TargetError) as error:
        if isinstance(error, AssertionError):
            raise
        twins = {OptionError: CaptumOptionError, InputError: CaptumInputError, TargetError: CaptumTargetError}
        [twin] = [twins[kind] for kind in twins if isinstance(error, kind)]
        raise twin(captums_words(str(error))) from error
    except Exception as error:
        if isinstance(error, IntegrandError):
            error.args = (captums_words(str(error)),)
        notes = getattr(error, "__notes__", [])
        notes[:] = [captums_words(note) if note.startswith("integrand") else note for note in notes]
        raise
    finally:
        wording.reset(token)


def worded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose errors are Captum's too, also when it is called by its ``__wrapped__``, as Captum does.

    Args:
        method: as it is written.
    """

    @wraps(method)
    def inner(*args: Any, **kwargs: Any) -> Any:
        with in_captums_words():
            return method(*args, **kwargs)

    inner.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]  # which getfullargspec() looks at

    @wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return outer
