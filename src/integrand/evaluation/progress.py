"""A progress bar for what takes longer than two seconds, and a callback for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import OptionError


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    Attributes:
        examples: examples in all.
        finished: examples that are done.
        gradients: gradient evaluations so far.
        expected: gradient evaluations expected in all, as far as can be told; grows and shrinks as estimates do.
    """

    examples: int
    finished: int
    gradients: int
    expected: int


ProgressOption = bool | Callable[[Progress], None] | None


class Reporter:
    """Tells a callback, or draws a tqdm bar on a terminal once two seconds have passed."""

    def __init__(self, option: ProgressOption) -> None:
        if not (option is None or isinstance(option, bool) or callable(option)):
            raise OptionError(
                f"got progress={option!r}; expected True or False for a bar, None for one on a terminal only, or a function of "
                "integrand.Progress."
            )
        self._callback = option if callable(option) else None
        self._bar = None
        shown = option is True or (option is None and sys.stderr.isatty())
        if shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return  # the bar is a nicety: without tqdm there is none
            self._bar = tqdm(total=None, unit="grad", desc="integrating", delay=2, leave=False, dynamic_ncols=True)

    def tell(self, progress: Progress) -> None:
        """Report where the run stands."""
        if self._callback is not None:
            self._callback(progress)
        if self._bar is not None:
            self._bar.total = max(progress.expected, progress.gradients)
            self._bar.set_postfix_str(f"{progress.finished}/{progress.examples} examples", refresh=False)
            self._bar.update(progress.gradients - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
