"""One class of Captum's and ours of the same name, asked the same question; and that their signatures are the same."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from torch import Tensor

from integrand.compat import captum as compat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    reference = pytest.importorskip("captum.attr", reason="captum is not installed: there is nothing to compare with")
    models = pytest.importorskip("captum.testing.helpers.basic_models", reason="this captum has no helpers for tests")


def parameters(library, name, method):
    """The parameters of a method: names, defaults and kinds, in order."""
    found = inspect.signature(getattr(getattr(library, name), method)).parameters.values()
    return [(p.name, p.default, p.kind) for p in found if p.kind is not p.VAR_KEYWORD]


def asked(library, name, build, attribute, seed=None):
    """What a class gives: ``build`` and ``attribute`` are the arguments of its constructor and of its method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = getattr(library, name)(*build)
        if seed is not None:
            seeded(seed)
        return plain(explainer.attribute(*attribute[0], **attribute[1]))


def quiet(call, *args, **kwargs):
    """Without warnings, of few samples and the like."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **kwargs)


def seeded(seed):
    """Set the generators that Captum draws from."""
    import numpy as np

    torch.manual_seed(seed)
    np.random.seed(seed)


def same(name, build, *args, seed=None, rtol=1e-5, atol=1e-6, **kwargs):
    """Ask both, compare values, structure, shapes and dtypes; give back ours."""
    ours, theirs = (asked(library, name, build, (args, kwargs), seed) for library in (compat, reference))
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
    return ours


def plain(value):
    """Tensors without their graph, in the same structure."""
    return value.detach() if isinstance(value, Tensor) else type(value)(plain(part) for part in value)
