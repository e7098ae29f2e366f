"""Captum's ``NoiseTunnel``: attributions of noisy copies of the inputs, averaged, around any class with Captum's interface."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...errors import InputError, OptionError
from .attribution_class import AttributionClass, GradientClass
from .captum_call import Inputs

TYPES = ("smoothgrad", "smoothgrad_sq", "vargrad")
Baseline = float | Tensor


class AttributionMethod(Protocol):
    """What a noise tunnel needs of the object it is built around."""

    forward_func: Callable[..., Any]
    attribute: Callable[..., Any]

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether values are multiplied by the inputs."""

    def has_convergence_delta(self) -> bool:
        """Whether there is a delta to be returned."""


class CaptumNoiseTunnel(AttributionClass, name="NoiseTunnel"):
    """Smoothed attributions: the mean, mean square or variance over noisy copies of the inputs.

    Noise comes from torch's global generator, in Captum's order: the same seed gives Captum's numbers.

    Args:
        attribution_method: one of the classes here, or of Captum's.
    """

    def __init__(self, attribution_method: AttributionMethod) -> None:
        super().__init__(attribution_method.forward_func)
        self.attribution_method = attribution_method
        self.is_delta_supported = attribution_method.has_convergence_delta()
        library: Any = sys.modules.get("captum.attr")
        kinds = (GradientClass,) if library is None else (GradientClass, library.GradientAttribution)
        self.is_gradient_method = isinstance(attribution_method, kinds)

    @property
    def multiplies_by_inputs(self) -> bool:
        """As the method inside."""
        return self.attribution_method.multiplies_by_inputs

    def has_convergence_delta(self) -> bool:
        """As the method inside."""
        return self.is_delta_supported

    def attribute(
        self,
        inputs: Inputs,
        nt_type: str = "smoothgrad",
        nt_samples: int = 5,
        nt_samples_batch_size: int | None = None,
        stdevs: float | tuple[float, ...] = 1.0,
        draw_baseline_from_distrib: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Attributions of noisy inputs, summed up in float64.

        Args:
            inputs: a tensor, or a tuple of them, with one row per example.
            nt_type: ``smoothgrad``, the mean of the samples' attributions; ``smoothgrad_sq``, the mean of their squares;
                ``vargrad``, their variance.
            nt_samples: noisy copies of each example.
            nt_samples_batch_size: copies of each example to explain at a time; all of them if not given.
            stdevs: the noise's standard deviation, or one for each input.
            draw_baseline_from_distrib: take each copy's baseline from the rows of ``baselines`` by chance, instead of the
                example's own row.
            **kwargs: arguments of the ``attribute`` inside. ``target``, ``baselines``, ``additional_forward_args`` and
                ``feature_mask`` are repeated for the copies.

        Returns:
            What the method inside returns, with one row per example; with ``return_convergence_delta``, a pair of it and the
            deltas of all copies, (N * nt_samples,).
        """
        leaves = inputs if isinstance(inputs, tuple) else (inputs,)
        _check(leaves, nt_type, nt_samples, nt_samples_batch_size)
        noise, repeated = _stdevs(stdevs, len(leaves)), dict[int, dict[str, Any]]()
        delta = self.is_delta_supported and bool(kwargs.get("return_convergence_delta"))
        sums, deltas, spec, kinds = None, [], None, []
        for count in _batches(nt_samples, nt_samples_batch_size or nt_samples):
            if count not in repeated:
                repeated[count] = _repeated(kwargs, leaves, count, draw_baseline_from_distrib)
            noisy = tuple(self._noisy(leaf, stdev, count) for leaf, stdev in zip(leaves, noise, strict=True))
            found = self.attribution_method.attribute(noisy if isinstance(inputs, tuple) else noisy[0], **repeated[count])
            if delta:
                found, part = found
                deltas.append(part.detach())
            values, spec = pytree.tree_flatten(found)
            kinds = [value.dtype for value in values]
            moments = [_moments(value, count) for value in values]
            sums = moments if sums is None else [(a + c, b + d) for (a, b), (c, d) in zip(sums, moments, strict=True)]
        assert sums is not None
        assert spec is not None
        smooth = [_smoothed(*pair, nt_type, nt_samples).to(kind) for pair, kind in zip(sums, kinds, strict=True)]
        result = pytree.tree_unflatten(smooth, spec)
        return (result, torch.cat(deltas)) if delta else result

    def _noisy(self, leaf: Tensor, stdev: float, count: int) -> Tensor:
        """Copies of each row with noise, those of an example next to each other."""
        leaf = leaf.detach()
        scales = torch.tensor(stdev, device=leaf.device).repeat(leaf.shape[0] * count, *leaf.shape[1:])
        noisy = leaf.repeat_interleave(count, dim=0) + torch.normal(0, scales)
        return noisy.requires_grad_() if self.is_gradient_method else noisy


def _check(inputs: tuple[Tensor, ...], nt_type: str, nt_samples: int, batch: int | None) -> None:
    for leaf in inputs:
        if not isinstance(leaf, Tensor) or leaf.ndim == 0:
            raise InputError(f"got inputs of type {type(leaf).__name__}; expected tensors with one row per example.")
    if nt_type not in TYPES:
        raise OptionError(f"got nt_type={nt_type!r}; expected one of {', '.join(map(repr, TYPES))}.")
    for name, value in (("nt_samples", nt_samples), ("nt_samples_batch_size", batch)):
        if (value is not None or name == "nt_samples") and (not isinstance(value, int) or value < 1):
            raise OptionError(f"got {name}={value!r}; expected a whole number from 1 on.")


def _stdevs(stdevs: Any, inputs: int) -> tuple[float, ...]:
    """One standard deviation for each input."""
    found = stdevs if isinstance(stdevs, tuple) else (stdevs,) * inputs
    if len(found) != inputs:
        raise OptionError(f"got {len(found)} stdevs for {inputs} inputs; expected one for each, or one number.")
    for value in found:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise OptionError(f"got stdevs={stdevs!r}; expected a number from 0 on, or a tuple of them.")
    return tuple(map(float, found))


def _batches(samples: int, size: int) -> Iterator[int]:
    """Whole batches, and the rest."""
    yield from [min(size, samples)] * (samples // min(size, samples))
    if samples % min(size, samples):
        yield samples % min(size, samples)


def _repeated(kwargs: dict[str, Any], inputs: tuple[Tensor, ...], count: int, draw: bool) -> dict[str, Any]:
    """Arguments with rows for the copies of each example."""
    found = dict(kwargs)
    target, further, mask = (kwargs.get(name) for name in ("target", "additional_forward_args", "feature_mask"))
    if isinstance(target, list):
        found["target"] = [one for one in target for _ in range(count)]
    elif isinstance(target, Tensor) and target.numel() > 1:
        found["target"] = target.repeat_interleave(count, dim=0)
    if further is not None:
        args = further if isinstance(further, tuple) else (further,)
        found["additional_forward_args"] = tuple(
            arg.repeat_interleave(count, dim=0) if isinstance(arg, Tensor) and arg.ndim else arg for arg in args
        )
    if mask is not None:
        masks = tuple(
            one.repeat_interleave(count, dim=0) if one.shape[0] > 1 else one
            for one in (mask if isinstance(mask, tuple) else (mask,))
        )
        found["feature_mask"] = masks if isinstance(mask, tuple) else masks[0]
    if kwargs.get("baselines") is not None:
        found["baselines"] = _baselines(kwargs["baselines"], inputs, count, draw)
    return found


def _baselines(baselines: Any, inputs: tuple[Tensor, ...], count: int, draw: bool) -> Any:
    """Baselines for the copies: each example's own, or drawn from all rows by numpy's global generator, as in Captum."""
    given = baselines if isinstance(baselines, tuple) else (baselines,)
    if len(given) != len(inputs):
        raise InputError(f"got {len(given)} baselines for {len(inputs)} inputs; expected one for each.")
    found: list[Baseline] = []
    for baseline, leaf in zip(given, inputs, strict=True):
        if not isinstance(baseline, Tensor) or baseline.ndim == 0:
            found.append(baseline)
        elif draw:
            found.append(baseline[np.random.choice(baseline.shape[0], count * leaf.shape[0]).tolist()])
        else:
            own = baseline.shape[0] == leaf.shape[0] and baseline.shape[0] > 1
            found.append(baseline.repeat_interleave(count, dim=0) if own else baseline)
    return tuple(found) if isinstance(baselines, tuple) or len(found) > 1 else found[0]


def _moments(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sums over the copies of each example, of values and of their squares, in float64 (float32 where there is none)."""
    wide = values.detach().to(torch.float32 if values.device.type == "mps" else torch.float64)
    parts = wide.reshape(-1, count, *values.shape[1:])
    return parts.sum(1), (parts**2).sum(1)


def _smoothed(total: Tensor, squares: Tensor, nt_type: str, samples: int) -> Tensor:
    mean = total / samples
    if nt_type == "smoothgrad":
        return mean
    return squares / samples if nt_type == "smoothgrad_sq" else (squares / samples - mean**2).clamp(min=0)


# Captum's own name, so that one import line is all that changes.
NoiseTunnel = CaptumNoiseTunnel
