"""Checks where there are many numbers: methods explain blocks or groups of them, and stay affordable."""

import pytest
import torch
from torch import nn

from integrand.axioms import check
from integrand.methods import DeepLift, IntegratedGradients, Lime, PathMethod, Shapley

from .test_own_model import Shares, seeded


class Counted(nn.Module):
    """A small network for images that counts its rows."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AvgPool2d(5), nn.Flatten(), nn.Linear(4 * 36, 5))
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        return self.body(x)


def picture():
    return torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def quarters(rest=False):
    labels = (torch.arange(64) >= 32).long()
    labels = labels[:, None] * 2 + labels
    return torch.where(labels == 3, -1, labels).expand(3, 64, 64) if rest else labels.expand(3, 64, 64)


KEPT = ("completeness", "sensitivity-a", "implementation-invariance", "linearity", "symmetry")


@pytest.mark.parametrize("axiom", KEPT)
@pytest.mark.parametrize("method", [Shapley(), IntegratedGradients()], ids=lambda method: method.name)
def test_images_are_checked_by_their_blocks(method, axiom):
    model = seeded(Counted())
    verdict = check(method, axiom, model, picture(), target=2)
    assert verdict.kept, verdict
    assert verdict.tried > verdict.undecided
    assert model.rows < 40_000


def test_the_players_are_the_groups():
    model = seeded(Counted())
    verdict = check(Shapley(), "completeness", model, picture(), target=2, groups=quarters())
    assert verdict.kept
    assert model.rows < 300  # 16 coalitions, and what it takes to set up
    assert check(Lime(), "implementation-invariance", model, picture(), target=2, groups=quarters()).kept


@pytest.mark.parametrize("method", [Shapley(), IntegratedGradients(), DeepLift()], ids=lambda method: method.name)
def test_what_belongs_to_no_group_counts_for_completeness(method):
    model = seeded(Counted())
    assert check(method, "completeness", model, picture(), target=2, groups=quarters(rest=True)).kept
    assert check(method, "symmetry", model, picture(), target=2, groups=quarters(rest=True)).kept


def test_labels_may_leave_numbers_out():
    labels = torch.where(quarters() == 1, 5, quarters())
    verdict = check(Shares(), "sensitivity-b", lambda v: v[:, :, :32].mean((1, 2, 3)), picture(), groups=labels)
    assert verdict.kept is False
    assert verdict.tried == 2  # the lower quarters; groups 1 and 4 have no features
    assert len(verdict.counterexample.attributions[0][1]) == 6


def test_blocks_still_show_what_breaks():
    model = seeded(Counted())
    found = check(DeepLift(), "implementation-invariance", model, picture(), target=2)
    assert found.kept is False  # the pair is put on two features of different blocks
    assert "the paper's pair" in found.counterexample.statement
    assert len(found.counterexample.attributions[0][1]) == 16
    stairs = check(PathMethod(tol=1e-3), "symmetry", lambda v: v.mean((1, 2, 3)).square(), torch.rand(1, 1, 12, 12))
    assert stairs.kept is False
