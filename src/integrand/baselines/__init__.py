"""Where paths start. What the front door accepts as a baseline is settled here into rows in the space that is explained."""

from ._settle import Baseline, settle_baselines

__all__ = ["Baseline", "settle_baselines"]
