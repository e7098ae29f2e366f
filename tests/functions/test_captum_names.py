"""Names that people bring from Captum: what to write instead, and that it works."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import integrand as ig
from integrand.errors import IntegrandError, OptionError

torch.manual_seed(0)
NET, X = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval(), torch.randn(2, 6)

REMEDIES = {
    "n_steps": (50, "steps=50", {"steps": 50}),
    "baselines": (0.5, r"baseline=0\.5", {"baseline": 0.5}),
    "internal_batch_size": (4, "chunk=4", {"chunk": 4}),
    "return_convergence_delta": (True, r"result\.certificate\[0\]\.residual", {}),
    "method": ("gausslegendre", r"steps=\.\.\. and rule='gauss-legendre'", {"steps": 20, "rule": "gauss-legendre"}),
    "attribute_to_layer_input": (True, "layer_side='input', beside layer=", {"layer": "2", "layer_side": "input"}),
    "additional_forward_args": ((), r"args=\(\.\.\.\)", {"args": ()}),
    "feature_mask": (None, "groups=", {"groups": torch.tensor([0, 0, 0, 1, 1, 1])}),
    "show_progress": (False, "progress=False", {"progress": False}),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_an_option_of_captums_is_answered_with_ours(name):
    value, message, remedy = REMEDIES[name]
    with pytest.raises(OptionError, match=rf"got {name}=, an option of Captum's\. Write .*{message}.*") as caught:
        ig.integrated_gradients(NET, X, target=0, **{name: value})
    assert isinstance(caught.value, IntegrandError)
    assert "from integrand.compat.captum import IntegratedGradients" in str(caught.value)
    result = ig.integrated_gradients(NET, X, target=0, **{"tol": 0.5, **remedy})
    assert torch.isfinite(result.values).all()
    assert abs(result.certificate[0].residual) < 1


@pytest.mark.parametrize("method", ["riemann_right", "riemann_left", "riemann_middle", "riemann_trapezoid", "gausslegendre"])
def test_the_rule_of_that_name_is_the_one_that_captum_uses(method):
    from integrand.compat.captum.captum_call import METHODS

    with pytest.raises(OptionError, match=f"rule='{METHODS[method]}'"):
        ig.integrated_gradients(NET, X, target=0, method=method)


def test_several_options_are_all_named():
    with pytest.raises(
        OptionError, match=r"got n_steps=, baselines=, options of Captum's\. Write steps=7.* And write baseline="
    ):
        ig.integrated_gradients(NET, X, target=0, n_steps=7, baselines=X)


def test_other_names_are_refused_as_python_refuses_them():
    with pytest.raises(TypeError, match=r"integrated_gradients\(\) got an unexpected keyword argument 'nsteps'"):
        ig.integrated_gradients(NET, X, target=0, nsteps=3)


def test_the_signature_shows_the_options_that_there_are():
    kinds = [parameter.kind for parameter in inspect.signature(ig.integrated_gradients).parameters.values()]
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert "steps" in inspect.signature(ig.integrated_gradients).parameters


def test_captums_classes_are_named_where_they_are():
    with pytest.raises(
        AttributeError, match=r"Write integrand\.integrated_gradients\(model, x, baseline, target=\.\.\.\), or from"
    ):
        ig.IntegratedGradients  # noqa: B018
    for name in ("IntegratedGradients", "Saliency", "LayerConductance"):
        with pytest.raises(AttributeError, match=rf"from integrand\.compat\.captum import {name}$"):
            getattr(ig, name)
    for name in ("Nonsense", "_private"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'$"):
            getattr(ig, name)
    assert not hasattr(ig, "Saliency")
