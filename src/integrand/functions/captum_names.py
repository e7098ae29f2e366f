"""Captum's names of options and the options to write instead. Imported where somebody has used one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import IntegrandError, OptionError

OPTIONS = {
    "forward_func": "the model as the first argument",
    "inputs": "the input as the second argument, x",
    "baselines": "baseline={value}",
    "additional_forward_args": "args=(...)",
    "n_steps": "steps={value}, or leave it out to integrate to tol=0.01",
    "method": "steps=... and rule={rule}",
    "internal_batch_size": "chunk={value}, or leave it out: rows run in chunks that fit into memory",
    "return_convergence_delta": (
        "result = integrand.integrated_gradients(...) and then result.certificate[0].residual, what the sum of the first "
        "example's values misses"
    ),
    "attribute_to_layer_input": "layer_side={side}, beside layer=",
    "feature_mask": "groups=..., integer labels in the structure of one example; values are then sums of groups",
    "show_progress": "progress={value}",
    "grad_kwargs": "create_graph=True, to differentiate the values",
}
"""Our code in place of each option of Captum's."""


def option_error(options: Mapping[str, Any]) -> IntegrandError | TypeError:
    """The error for options that :func:`integrand.integrated_gradients` does not have: what to write in place of Captum's.

    >>> print(str(option_error({"n_steps": 50})).partition(" Or keep")[0])
    got n_steps=, an option of Captum's. Write steps=50, or leave it out to integrate to tol=0.01.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        return TypeError(f"integrated_gradients() got an unexpected keyword argument {unknown[0]!r}")
    names = ", ".join(f"{name}=" for name in options)
    remedies = " And write ".join(_remedy(name, value) + "." for name, value in options.items())
    several = "an option" if len(options) == 1 else "options"
    return OptionError(
        f"got {names}, {several} of Captum's. Write {remedies} Or keep Captum's calls: from integrand.compat.captum import "
        "IntegratedGradients, then IntegratedGradients(model).attribute(...)."
    )


def _remedy(name: str, value: Any) -> str:
    """The code to write in place of one option, with its value where that is a number or a truth value."""
    text = repr(value) if value is None or isinstance(value, (bool, int, float)) else "..."
    rules = {"riemann_middle": "midpoint", "gausslegendre": "gauss-legendre"}
    rule = repr(rules.get(value, value.removeprefix("riemann_"))) if isinstance(value, str) else "..."
    side = "'input'" if value is True else "'output'"
    return OPTIONS[name].format(value=text, rule=rule, side=side)
