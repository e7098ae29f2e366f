"""Run the command line as ``python -m integrand.cli``."""

from __future__ import annotations

from . import main

if __name__ == "__main__":
    main()
