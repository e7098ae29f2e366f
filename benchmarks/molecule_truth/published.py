"""What was published for these tasks: Sanchez-Lengeling et al., Evaluating Attribution for Graph Neural Networks, NeurIPS 2020.

All figures are from ``notebooks/plot_evaluation_results.ipynb`` of github.com/google-research/graph-attribution, which prints
the paper's table 1 and the same for the other tasks: means over the networks of a search over hyperparameters, to two digits.
Its output leaves out two networks of logic 8; these are means of the same file that it reads, ``F3_hparams_summary.csv``.
Integrated gradients took 200 steps. Attributions are scored as here: Kendall's tau for Crippen's logP, for labels the AUROC of
the set of matches that fits best. The molecules are others, and atoms of Crippen's logP include hydrogens.
"""

from __future__ import annotations

NETWORKS = ("GCN", "MPNN", "GraphNets", "GAT")

PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "benzene": {
        "integrated gradients": (0.97, 0.89, 0.94, 0.95),
        "gradient x input": (0.72, 0.54, 0.54, 0.56),
        "CAM": (0.98, 0.96, 0.76, 0.99),
        "random map": (0.61,) * 4,
    },
    "logic7": {
        "integrated gradients": (0.77, 0.76, 0.76, 0.74),
        "gradient x input": (0.56, 0.55, 0.57, 0.56),
        "CAM": (0.74, 0.73, 0.45, 0.66),
        "random map": (0.42, 0.42, 0.42, 0.43),
    },
    "logic8": {
        "integrated gradients": (0.82, 0.78, 0.77, 0.68),
        "gradient x input": (0.56, 0.55, 0.59, 0.52),
        "CAM": (0.91, 0.97, 0.65, 0.84),
        "random map": (0.50,) * 4,
    },
    "logic10": {
        "integrated gradients": (0.69, 0.59, 0.72, 0.54),
        "gradient x input": (0.52, 0.53, 0.55, 0.41),
        "CAM": (0.75, 0.76, 0.60, 0.65),
        "random map": (0.50,) * 4,
    },
    "crippen": {
        "integrated gradients": (0.31, 0.24, 0.24, 0.27),
        "gradient x input": (0.12, 0.09, 0.13, 0.10),
        "CAM": (0.20, 0.37, 0.28, 0.23),
        "random map": (0.13,) * 4,
    },
}
"""Task, method, then a figure for each of :data:`NETWORKS`."""


def figures(task: str, method: str) -> str:
    """Such as ``0.97 / 0.89 / 0.94 / 0.95``, in the order of :data:`NETWORKS`; empty where nothing was published."""
    found = PUBLISHED.get(task, {}).get(method)
    return " / ".join(f"{one:.2f}" for one in found) if found else ""
