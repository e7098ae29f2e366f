"""The path through scale space: from a blurred image to the image itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..certificate import Promise, promised
from ..errors import InputError, OptionError
from ..trees import Leaves, Tensors, Tree, flatten
from ..words import short_repr
from .base import Piece, batch_of, wide

SHARE = 50 / 224
"""The default standard deviation over the shorter side: what the paper uses for photos of 224 pixels."""

FINE = 0.5
"""In pixels: up to about this scale equal times are equal steps in scale, beyond it equal factors."""


@dataclass(frozen=True, eq=False)
class Blur:
    """From x blurred by a Gaussian to x, sharper and sharper: blur-integrated gradients (Xu et al., 2020).

    The start keeps the light and loses the detail: attributions say which detail, at which scale, the score comes from. There
    is no baseline to choose, and what a blurred image shows already counts for nothing.

    Blurring is diffusion on the pixel grid with walls at the border: the mean is kept and nothing gets lighter or darker
    than it was. Point and velocity are exact at every t (in the frequency domain), and the path ends at x to the last bit.

    >>> x = torch.tensor([[[0.0, 0.0], [0.0, 4.0]]])
    >>> Blur(x, sigma=100.0).start()
    tensor([[[1., 1.],
             [1., 1.]]])

    Attributes:
        x: where it ends.
        sigma: the standard deviation at the start, in pixels; if not given, 50/224 of the shorter of the blurred sides.
        dims: the dimensions to blur along, counted from the last; (-1,) for a series.
    """

    promises: ClassVar[tuple[Promise, ...]] = promised(symmetry="pixels are blurred with their neighbours, by where they are")
    x: Tensors
    sigma: float | None = None
    dims: Sequence[int] = (-2, -1)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_blur(self.sigma, self.dims)
        self._check(*flatten(self.x, what="x"), batched=False)

    def _check(self, tree: Tree, leaves: Leaves, *, batched: bool) -> None:
        """Every tensor has the dimensions, besides that of the batch."""
        for name, leaf in zip(tree.names, leaves, strict=True):
            if leaf.ndim - batched < -min(self.dims):
                what = "for each example" if batched else "in all"
                raise InputError(
                    f"x{name} has shape {tuple(leaf.shape[1:] if batched else leaf.shape)} {what}; expected at least "
                    f"{-min(self.dims)} dimension(s) to blur along dims={tuple(self.dims)}. Use dims=(-1,) for a series, or "
                    "another path for features without an order."
                )

    def end(self) -> Tensors:
        """The image."""
        return self.x

    def start(self) -> Tensors:
        """The blurred image that x is compared with."""
        tree, _ = flatten(self.x, what="x")
        piece = self.pieces(batched=False)[0]
        leaves = piece.points_at(torch.zeros(1), torch.zeros(1, dtype=torch.long))
        return tree.build([leaf[0] for leaf in leaves])

    def pieces(self, *, batched: bool) -> Sequence[Piece]:
        """One piece."""
        tree, leaves = flatten(self.x, what="x")
        self._check(tree, leaves, batched=batched)
        spaces = [_Space(leaf.detach(), tuple(self.dims), self.sigma) for leaf in batch_of(leaves, batched)]

        def at(t: Tensor, rows: Tensor) -> tuple[Leaves, Leaves]:
            return tuple(s.points(t, rows) for s in spaces), tuple(s.velocities(t, rows) for s in spaces)

        def points(t: Tensor, rows: Tensor | None) -> Leaves:
            if rows is None:
                examples = spaces[0].leaf.shape[0]
                rows = torch.arange(examples, device=t.device).repeat(len(t))
                t = t.repeat_interleave(examples)
            return tuple(s.points(t, rows) for s in spaces)

        return [Piece(1.0, at, points, made_of=tuple(space.leaf for space in spaces))]


def check_blur(sigma: float | None, dims: Sequence[int]) -> None:
    """Numbers that make sense, or an error."""
    wrong = not dims or len(set(dims)) < len(dims)
    if wrong or any(isinstance(d, bool) or not isinstance(d, int) or d >= 0 for d in dims):
        raise OptionError(
            f"got dims={tuple(dims)}; expected dimensions counted from the last, each once, such as (-2, -1) for images of "
            "shape (..., height, width)."
        )
    if sigma is not None and (isinstance(sigma, bool) or not isinstance(sigma, (int, float)) or not 0 < sigma < math.inf):
        raise OptionError(f"got sigma={sigma!r}; expected a positive number, the standard deviation in pixels.")


class _Space:
    """One tensor's scale space: its spectrum, kept, and how fast diffusion takes every frequency away.

    Diffusion with walls is that of the mirrored image on a ring. Of a wave with frequency w it leaves
    exp(-sigma^2 (1 - cos w)), which is a positive kernel of variance sigma^2 for every sigma.
    """

    def __init__(self, leaf: Tensor, dims: tuple[int, ...], sigma: float | None) -> None:
        self.leaf, self.dims = leaf, dims
        self.own = leaf.to(wide(leaf))  # half precision has no Fourier transform; only points are rounded to it
        self.sides = [leaf.shape[d] for d in dims]
        self.sigma = SHARE * min(self.sides) if sigma is None else float(sigma)
        corner = self.own
        for d in dims:
            corner = corner.narrow(d, 0, 1)
        mirrored = self.own - corner  # blurring moves no light: without it an even image has no spectrum, to the last bit
        for d in dims:
            mirrored = torch.cat([mirrored, mirrored.flip(d)], d)
        self.spectrum = torch.fft.rfftn(mirrored, dim=dims)
        self.rate = torch.zeros((), dtype=self.own.dtype, device=leaf.device)
        for d, side in zip(dims, self.sides, strict=True):
            wave = torch.arange(self.spectrum.shape[d], dtype=torch.float64) * (math.pi / (2 * side))
            rate = (2 * wave.sin() ** 2).to(self.own)
            self.rate = self.rate + rate.reshape(-1, *[1] * (-d - 1))

    def variance(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """sigma^2 and its derivative at times (N,), shaped to go with the spectrum."""
        growth = math.log1p(self.sigma / FINE)
        power = torch.exp(growth * (1 - t.to(self.own.dtype))).reshape(-1, *[1] * (self.leaf.ndim - 1))
        scale = FINE * (power - 1)
        return scale**2, -2 * scale * FINE * growth * power

    def points(self, t: Tensor, rows: Tensor) -> Tensor:
        """The image less what is blurred away, (N, ...): nothing at all at t = 1."""
        variance, _ = self.variance(t)
        return (self.own.index_select(0, rows) + self._image(torch.expm1(-variance * self.rate), rows)).to(self.leaf.dtype)

    def velocities(self, t: Tensor, rows: Tensor) -> Tensor:
        """How fast it comes back, (N, ...)."""
        variance, change = self.variance(t)
        return self._image(-change * self.rate * torch.exp(-variance * self.rate), rows)

    def _image(self, factor: Tensor, rows: Tensor) -> Tensor:
        sizes = [2 * side for side in self.sides]
        whole: Tensor = torch.fft.irfftn(self.spectrum.index_select(0, rows) * factor, s=sizes, dim=self.dims)
        for d, side in zip(self.dims, self.sides, strict=True):
            whole = whole.narrow(d, 0, side)
        return whole
