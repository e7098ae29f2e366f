"""Captum's ``DataLoaderAttribution``: feature ablation of a number that is computed from all batches of a data loader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, OptionError
from ...evaluation.progress import Progress
from ...functions.model_state import undisturbed
from .attribution_class import AttributionClass
from .captum_errors import CaptumOptionError
from .perturbation_call import AttributionBar, labels_of
from .perturbation_classes import CaptumFeatureAblation, Mask

EXPLAINED, GIVEN, UNSEEN = range(3)
"""Roles of the parts of a batch: explained, given to the model as they are, or kept from it (labels, for ``reduce``)."""

Reduce = Callable[[Any, Any, tuple[Any, ...]], Any]
"""From what is accumulated (None at first), the output for a batch and the parts of the batch to what is accumulated."""


class CaptumDataLoaderAttribution(AttributionClass, name="DataLoaderAttribution"):
    """Losses of a number computed from a whole data set, such as an accuracy, when a feature is set to its baseline.

    Args:
        attr_method: a ``FeatureAblation`` of this package or of Captum.
    """

    def __init__(self, attr_method: Any) -> None:
        theirs = getattr(sys.modules.get("captum.attr"), "FeatureAblation", CaptumFeatureAblation)
        if type(attr_method) not in (CaptumFeatureAblation, theirs):
            kind = type(attr_method).__name__
            raise CaptumOptionError(f"got {kind} as attr_method; expected FeatureAblation(model), as in Captum.")
        super().__init__(attr_method.forward_func)
        self.attr_method = attr_method

    def attribute(
        self,
        dataloader: Iterable[Any],
        input_roles: Sequence[int] | None = None,
        baselines: Any = None,
        feature_mask: Mask = None,
        reduce: Reduce | None = None,
        to_metric: Callable[[Any], Tensor] | None = None,
        perturbations_per_pass: int = 1,
        show_progress: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Attribute the number to the features.

        Args:
            dataloader: gives batches, each a tensor or a list or tuple of parts; it is passed through once for the first
                batch, once for all features and once for every ``perturbations_per_pass`` features.
            input_roles: the role of each part of a batch: 0 for explained, 1 for given to the model as it is, 2 for kept
                from the model. All parts are explained if not given.
            baselines: what features are set to: a number or a tensor with one row, or a tuple with one for each explained part;
                zero if not given.
            feature_mask: the feature, from 0 on, of each number of a row: a tensor with one row, or a tuple with one for each
                explained part. Each number of a row is a feature if not given.
            reduce: what to accumulate over the batches; if not given, outputs are put one after the other.
            to_metric: from what has been accumulated to the tensor that is explained; if not given, that is it.
            perturbations_per_pass: how many features to ablate in one pass through the data loader.
            show_progress: show a progress bar.
            return_input_shape: give a tensor for each explained part, (outputs, ...), where each number has the loss of its
                feature. Otherwise give one tensor, (outputs, features).

        Returns:
            What each output of the metric loses without each feature.
        """
        per_pass = perturbations_per_pass
        if isinstance(per_pass, bool) or not isinstance(per_pass, int) or per_pass < 1:
            raise OptionError(f"got perturbations_per_pass={per_pass!r}; expected a whole number from 1 on.")
        batch = next(iter(dataloader))
        parts = _parts(batch)
        roles = _roles(input_roles, len(parts))
        explained = tuple(part for part, role in zip(parts, roles, strict=True) if role == EXPLAINED)
        if not all(isinstance(part, Tensor) for part in explained):
            kinds = [type(part).__name__ for part in explained]
            raise InputError(f"the explained parts of a batch are {kinds}; expected tensors. Give others the role 1 or 2.")
        labels = _one_row(labels_of(feature_mask, explained), "feature_mask")
        starts = _starts(baselines, len(explained))
        features = sorted({int(label) for mask in labels for label in mask.unique()})
        bar = AttributionBar(self.get_name()) if show_progress else None

        def metrics(ablated: Sequence[int | None]) -> list[Tensor]:
            """The metric without each of some features, from one pass; None stands for no feature."""
            totals: list[Any] = [None] * len(ablated)
            for batch in dataloader:
                for i, feature in enumerate(ablated):
                    perturbed = _without(feature, _parts(batch), roles, labels, starts)
                    output = self.forward_func(*(part for part, role in zip(perturbed, roles, strict=True) if role != UNSEEN))
                    totals[i] = (reduce or _concatenated)(totals[i], output, perturbed)
            return [_metric(total if to_metric is None else to_metric(total)) for total in totals]

        with undisturbed(self.forward_func), torch.no_grad():
            [whole] = metrics([None])
            losses = whole.new_zeros(whole.numel(), max(features) + 1)
            for first in range(0, len(features), per_pass):
                ablated = features[first : first + per_pass]
                for feature, without in zip(ablated, metrics(ablated), strict=True):
                    losses[:, feature] = (whole - without).reshape(-1)
                if bar is not None:
                    bar(Progress(1, 0, first + len(ablated), len(features)))
        if not return_input_shape:
            return losses
        shaped = tuple(losses[:, mask[0].to(losses.device)] for mask in labels)
        return shaped if isinstance(batch, (list, tuple)) else shaped[0]


def _parts(batch: Any) -> tuple[Any, ...]:
    return tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)


def _roles(roles: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """The role of each part of a batch."""
    whole = (EXPLAINED,) * count if roles is None else tuple(roles)
    if len(whole) != count or not set(whole) <= {EXPLAINED, GIVEN, UNSEEN} or EXPLAINED not in whole:
        raise OptionError(
            f"got input_roles={roles!r} for batches of {count} parts; expected for each part 0 (explained), 1 (given to the "
            "model) or 2 (kept from the model), and at least one 0."
        )
    return whole


def _starts(baselines: Any, count: int) -> tuple[Any, ...]:
    """A baseline for each explained part."""
    if isinstance(baselines, (tuple, Tensor)):
        starts = baselines if isinstance(baselines, tuple) else (baselines,)
    else:
        starts = (baselines or 0,) * count
    if len(starts) != count:
        raise InputError(f"got {len(starts)} baselines for {count} explained parts of a batch; expected one for each.")
    return _one_row(starts, "baselines")


def _one_row(values: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Refuse tensors with several rows, since batches may have any number of them."""
    for i, value in enumerate(values):
        if isinstance(value, Tensor) and (value.ndim == 0 or value.shape[0] != 1):
            raise InputError(
                f"{name}[{i}] has shape {tuple(value.shape)}; expected one row, (1, ...), which every row of a batch shares."
            )
    return values


def _without(
    feature: int | None, parts: tuple[Any, ...], roles: tuple[int, ...], labels: tuple[Tensor, ...], starts: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The parts of a batch with a feature at its baseline."""
    if feature is None:
        return parts
    explained = iter(zip(labels, starts, strict=True))
    perturbed = []
    for part, role in zip(parts, roles, strict=True):
        if role == EXPLAINED:
            mask, start = next(explained)
            at_baseline = (mask == feature).to(part.device)
            # A whole number may have a baseline between two of them, as in Captum.
            part = torch.where(at_baseline, start, part) if at_baseline.any() else part
        perturbed.append(part)
    return tuple(perturbed)


def _concatenated(total: Tensor | None, output: Tensor, _: tuple[Any, ...]) -> Tensor:
    return output if total is None else torch.cat([total, output])


def _metric(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise OptionError(
            f"got a {type(value).__name__} to explain; expected a tensor from to_metric, or from reduce where there is no "
            "to_metric."
        )
    return value


DataLoaderAttribution = CaptumDataLoaderAttribution
