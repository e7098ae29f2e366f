"""Run the command line as ``python -m integrand.cli``.

No package is imported from the current folder, as with ``integrand``; but before this runs, Python itself has looked there for
its own modules. ``python -P -m`` does not.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

with suppress(OSError):  # the current folder may have been deleted
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]  # where python -m looks first: a file transformers.py there would be run

from . import main

if __name__ == "__main__":
    main()
