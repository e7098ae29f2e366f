"""A progress bar for what takes longer than two seconds, and a callback for programs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import OptionError, quiet


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    Attributes:
        examples: examples in all.
        finished: examples that are done.
        gradients: gradient evaluations so far.
        expected: gradient evaluations expected in all, as far as can be told; grows and shrinks as estimates do.
        error: the largest relative error of the examples of the last round, as estimated at that moment: to watch it fall, not
            to rely on, which is what the certificate is for. NaN where nothing is estimated on the way.
    """

    examples: int
    finished: int
    gradients: int
    expected: int
    error: float = math.nan


ProgressOption = bool | Callable[[Progress], None] | None


DELAY = 2.0
"""The seconds after which a bar is shown."""


class Reporter:
    """Tells a callback, or draws a bar with the time left, on a terminal or in a notebook, once two seconds have passed."""

    def __init__(self, option: ProgressOption) -> None:
        if not (option is None or isinstance(option, bool) or callable(option)):
            raise OptionError(
                f"got progress={option!r}; expected True or False for a bar, None for one on a terminal or in a notebook only, "
                "or a function of integrand.Progress."
            )
        self._callback = option if callable(option) else None
        self._shown = option is True or (option is None and (sys.stderr.isatty() or in_notebook()))
        self._start = time.time()
        self._bar: Any = None

    def tell(self, progress: Progress) -> None:
        """Report where the run stands."""
        if self._callback is not None:
            self._callback(progress)
        if not self._shown:
            return
        total = max(progress.expected, progress.gradients)
        if self._bar is None:
            self._bar = self._made(total)
            self._shown = self._bar is not None
            if self._bar is None:
                return
        self._bar.total = total
        if getattr(self._bar, "container", None) is not None:  # a widget has a total of its own
            self._bar.container.children[1].max = total
        self._bar.set_postfix_str(f"{progress.finished}/{progress.examples} examples", refresh=False)
        self._bar.update(progress.gradients - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()

    def _made(self, total: int) -> Any:
        """The bar, made when its total is known: a widget that begins without one never shows how much is left."""
        try:
            with quiet():  # in a notebook without ipywidgets, where tqdm warns and draws with letters
                from tqdm.auto import tqdm
        except ImportError:
            return None  # the bar is a nicety: without tqdm there is none
        wait = max(0.0, DELAY - (time.time() - self._start))
        bar: Any = tqdm(total=total, unit="grad", desc="integrating", delay=wait, leave=False, dynamic_ncols=True)
        bar.start_t = self._start  # the first round counts for the time left too
        return bar


def in_notebook() -> bool:
    """Whether this runs in a notebook, which shows bars although its standard error is no terminal."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if ask is None else ask()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
