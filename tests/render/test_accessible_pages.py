"""Pages that nothing else opens in a browser: axe-core finds nothing serious on them, and none scrolls sideways on a phone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import Attribution, Certificate, CurveCertificate, Promise, Status
from integrand.apps import images, networks
from integrand.apps.images.preprocess import Preprocess
from integrand.apps.questions.trigger_rules import Rules, TriggerRule
from integrand.apps.retina import ExaminedEye, Grade
from integrand.axioms import check
from integrand.axioms import table as axiom_table
from integrand.axioms.axiom_table import PAGE_STYLE
from integrand.baselines import diagnose
from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients
from integrand.render import certificate_table, report
from integrand.render.html import document, wide_table
from tests.browser import PHONE, serious
from tests.render.conftest import certified

SIDE = 16
PHOTOS = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
COMMAND = f"integrand image photo.jpg --tol 0.001 --out page.html --{'very-' * 12}long-option"
NAMES = ["sepal length", "a feature with a name that goes on and on, longer than any phone is wide, and then some", "petal"]
WORST = certified(
    status=Status.BUDGET, error=0.2, curves=(CurveCertificate(0.5, 0.0, 1.0, 0.0, 0.01, 17),) * 2, moved=0.1, note="Mind this."
)


def seeing(x: Tensor) -> Tensor:
    """Three classes of a photo: how bright it is squared, how red, and the left half less the right one."""
    left, right = x.chunk(2, -1)
    return torch.stack([(x**2).mean((1, 2, 3)), x[:, 0].mean((1, 2)), (left - right).mean((1, 2, 3))], 1)


def counting(x: Tensor) -> Tensor:
    """Three classes of three features."""
    return torch.stack([(x**2).sum(1), 3 * x[:, 0] * x[:, 1], -x.sum(1)], 1)


FEATURES = torch.tensor([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]])
METHODS = {"integrated gradients": IntegratedGradients(), "a": Gradient(), "b": GradientTimesInput()}


def photo_report() -> str:
    promised = Certificate((certified(), WORST), (Promise("completeness", True, "by its definition"),))
    result = Attribution(PHOTOS - 0.5, promised, True, {"method": "integrated gradients", "baseline": "zero"})
    return report(result, image=PHOTOS, labels=["a cat", "a dog"], others={"gradient": PHOTOS - 0.4}, command=COMMAND)


def feature_report() -> str:
    result = ig.integrated_gradients(counting, FEATURES[:1], target=0)
    return report(result, features=NAMES, title="Flowers", command=COMMAND)


def photo_methods() -> str:
    return ig.compare(seeing, PHOTOS, target=0, methods=METHODS).report(
        image=PHOTOS, labels=["a cat", "a dog"], command=COMMAND
    )


def feature_methods() -> str:
    found = ig.compare(counting, FEATURES, target=0, methods=METHODS)
    return replace(found, failures={"LRP": "there is no rule for pow."}).report(features=NAMES, scale="common", command=COMMAND)


def photo_baselines() -> str:
    return diagnose(lambda x: 9 * seeing(x), PHOTOS[:1], draws=2).report(label="a cat", command=COMMAND)


def feature_baselines() -> str:
    return diagnose(counting, FEATURES[:1], draws=2).report(features=NAMES, command=COMMAND)


def photo_models() -> str:
    return ig.compare_models({"one": seeing, "two": lambda x: seeing(x) ** 2}, PHOTOS, target=0, image=PHOTOS).page(
        command=COMMAND
    )


def feature_models() -> str:
    models = {"one": counting, "a network with a longer name": lambda x: counting(x).tanh()}
    return ig.compare_models(models, FEATURES, target=0, features=NAMES).page(command=COMMAND)


def axioms() -> str:
    return axiom_table([Gradient()], axioms=["sensitivity-a", "linearity"], max_examples=20).html(command=COMMAND)


def pieces() -> str:
    """What notebooks show, which scroll by themselves: a verdict with its counter-example, interactions, a certificate."""
    shown = (
        check(Gradient(), "completeness", counting, FEATURES[:1], target=0)._repr_html_(),
        certificate_table(Certificate((certified(), WORST))),
        ig.integrated_hessians(counting, FEATURES[:1], target=1)._repr_html_(),
    )
    return document("Pieces", "".join(wide_table(one, f"Output {k}") for k, one in enumerate(shown)), style=PAGE_STYLE)


def rules() -> str:
    kinds = ("usual", "new", "suspicious")
    found = tuple(
        TriggerRule("how many", "a number", kind, "It is so.", 5, 6, 0.5, 0.5, 0.3, kind != "new", ("how many won ?",))
        for kind in kinds
    )
    return Rules(found, ("how many won ?",), 5, 0.5, 0.9, 0.01, {"how": 1.0}).page(command=COMMAND)


def eye() -> str:
    names = tuple("abcde")
    network = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(3 * 16, 5)).eval()
    shipped = networks.Network("small", network, Preprocess((SIDE, SIDE), (0.0,) * 3, (255.0,) * 3), names, "here", (), 5)
    photo = (255 * PHOTOS[0].permute(1, 2, 0).numpy()).astype(np.uint8)
    return ExaminedEye.of(images.explain(photo, shipped, rival=False), Grade.of([0.0, 2.0, 1.0, -1.0, -3.0])).page(
        command=COMMAND
    )


MAKERS: tuple[Callable[[], str], ...] = (
    photo_report,
    feature_report,
    photo_methods,
    feature_methods,
    photo_baselines,
    feature_baselines,
    photo_models,
    feature_models,
    axioms,
    pieces,
    rules,
    eye,
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_nothing_serious_and_nothing_sideways(browser, make: Callable[[], str]) -> None:
    with browser.open(make(), size=PHONE) as page:
        wide = lambda: page.evaluate("document.documentElement.scrollWidth")  # noqa: E731
        assert wide() <= PHONE[0]
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert wide() <= PHONE[0]
        assert serious(page) == []
        page.emulate_media(color_scheme="dark")
        assert serious(page, only=["color-contrast"]) == []
