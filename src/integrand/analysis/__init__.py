"""Analyses built on attributions: methods compared, baselines diagnosed, interactions between features.

Results here draw themselves.
:func:`compare` sets methods side by side, :func:`compare_models` models, :func:`diagnose` says whether a baseline is neutral,
:func:`integrated_hessians` finds which features act together.
"""

from .baseline_diagnosis import diagnose
from .comparison_result import Comparison, Cost
from .diagnosis_result import Diagnosis
from .hessians import integrated_hessians
from .interaction_result import InteractionCertificate, Interactions, Pair
from .method_comparison import DEFAULTS, Settings, compare
from .model_comparison import ModelAgreement, ModelAnswer, ModelComparison, ModelDifference, compare_models

__all__ = [
    "DEFAULTS",
    "Comparison",
    "Cost",
    "Diagnosis",
    "InteractionCertificate",
    "Interactions",
    "ModelAgreement",
    "ModelAnswer",
    "ModelComparison",
    "ModelDifference",
    "Pair",
    "Settings",
    "compare",
    "compare_models",
    "diagnose",
    "integrated_hessians",
]
