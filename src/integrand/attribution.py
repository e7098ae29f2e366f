"""The result: values, and the certificate that says how far they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .certificate import Certificate, CurveCertificate, ExampleCertificate, Promise, Status, promised
from .errors import InputError, OptionError
from .profile import Profile
from .sum_errors import ErrorDraws, Grouping, Sums, errors_of
from .trees import Leaves, Tensors, add_columns, flat, flatten, matched

__all__ = ["Attribution", "Certificate", "CurveCertificate", "ExampleCertificate", "Promise", "Status", "promised"]

MOST_GROUPS = 1 << 20
"""Labels below this may have gaps, as the numbers of words have; larger ones need as many features."""


@dataclass(frozen=True, slots=True, repr=False)
class Attribution:
    """Attributions of a score to features, with their certificate.

    Attributes:
        values: the attributions, in the structure, shape and dtype of what was explained (or, with ``groups=``, one
            number per group and example).
        certificate: how far they can be trusted, example by example.
        batched: whether the first dimension of the values counts examples.
        meta: how the result was made (method, rule, versions), all strings.
        extras: what else a method found, by name: ``standard_error`` in the structure of the values for sampled methods,
            ``fit`` per example for surrogates.
        profile: the score and the attribution mass along the path, where there was one.
        draws: what errors of the values may look like, for the errors of sums; None where nothing was integrated.
    """

    values: Tensors
    certificate: Certificate
    batched: bool = True
    meta: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Tensors] = field(default_factory=dict)
    profile: Profile | None = None
    draws: ErrorDraws | None = None

    def sum(self, dim: int | Sequence[int] | None = None, *, groups: object = None) -> Tensors | Tensor:
        """Add attributions up; since they are complete, sums mean something.

        Args:
            dim: dimensions to sum over, as in ``torch.sum`` (for an image, ``dim=1`` adds up the channels). Without
                it, one total per example over all features and inputs.
            groups: integer labels of the features, in the structure of one example's values; label g's sum comes out
                in column g of an (examples, groups) tensor. Features labelled -1 are left out.
        """
        tree, leaves = flatten(self.values, what="values")
        if dim is not None and groups is not None:
            raise OptionError("got both dim= and groups=; expected one of them")
        if groups is not None:
            return group_sums(leaves, matched(groups, tree, what="groups", like="the values"), batched=self.batched)
        if dim is not None:
            return tree.build([leaf.sum(dim if isinstance(dim, int) else tuple(dim)) for leaf in leaves])
        rows = [leaf if self.batched else leaf[None] for leaf in leaves]
        total = flat(rows).double().sum(1)
        return total if self.batched else total[0]

    def sums(self, groups: object = None, *, weights: Tensor | None = None) -> Sums:
        """Add attributions up by group, with the error of each sum.

        The certificate's error is that of all features together. In a sum part of it cancels, but so do the attributions
        themselves: a sum near zero may be off by more than it is. Where nothing was integrated (other methods, files of
        earlier versions), errors are not known.

        >>> import torch, integrand as ig
        >>> result = ig.integrated_gradients(lambda x: (x**2).sum(1), torch.tensor([[1.0, 2.0, 3.0]]))
        >>> sums = result.sums(torch.tensor([0, 0, 1]))
        >>> sums.values.round(decimals=3), bool((sums.errors < 1e-3).all())
        (tensor([[5., 9.]], dtype=torch.float64), True)

        Args:
            groups: integer labels of the features, in the structure of one example's values or in a shape that broadcasts to
                it; -1 leaves a feature out.
            weights: instead of labels, how much of each value goes to each sum, for values that are one tensor: (sums, ...)
                with the shape of one example's values, or (examples, sums, ...) where each example has weights of its own. A
                pair of atoms may give half of itself to either.
        """
        if (groups is None) == (weights is None):
            raise OptionError("got both groups and weights=, or neither; expected one of them")
        tree, leaves = flatten(self.values, what="values")
        rows = [(leaf if self.batched else leaf[None]).detach().cpu() for leaf in leaves]
        terms = flat([leaf.double() for leaf in rows])
        if weights is None:
            columns, count = columns_of(matched(groups, tree, what="groups", like="the values"), rows)
            grouping = Grouping(max(count, int(columns.max()) + 1), columns)
        else:
            grouping = _weighing(weights, rows)
            count = grouping.count
        values, errors = grouping.add(terms), torch.full((len(terms), grouping.count), torch.nan).double()
        if self.draws is not None:
            masses = grouping.add(terms.abs(), power=1)
            rounding = max(torch.finfo(leaf.dtype).eps for leaf in rows)
            errors = errors_of(self.draws, self.certificate.examples, masses, grouping, rounding)
        found = (part[:, :count] if self.batched else part[0, :count] for part in (values, errors))
        return Sums(*found)

    def numpy(self) -> Any:
        """The values as numpy arrays, in the same structure."""
        tree, leaves = flatten(self.values, what="values")
        arrays: list[Any] = [_array(leaf) for leaf in leaves]
        return tree.build(arrays)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """``numpy.asarray(result)``, for results with a single tensor; shares memory unless it has to convert."""
        tree, leaves = flatten(self.values, what="values")
        if tree.kind != "tensor":
            raise InputError(f"the values are a {tree.kind} of {len(leaves)} tensors; use result.numpy() to keep the structure")
        array = _array(leaves[0])
        wanted = array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and (wanted != array.dtype or leaves[0].data_ptr() != array.ctypes.data):
            raise ValueError("the values cannot become this array without a copy; use numpy.asarray(result)")
        return array.astype(wanted, copy=bool(copy))

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write the result: ``.safetensors`` keeps the numbers, ``.html`` is a report, ``.png`` a picture.

        Args:
            path: where to; the ending decides what is written.
            **options: for pictures and reports, what :mod:`integrand.render` takes (``image=``, ``title=``, ...).
        """
        from .attribution_files import save

        return save(self, FilePath(path), **options)

    @staticmethod
    def load(path: str | PathLike[str]) -> Attribution:
        """Read a result that ``save`` wrote as ``.safetensors``.

        Nothing in the file is executed, and all of it is checked before a result is made of it.

        Raises:
            FileError: it is no such file, was changed, or comes from a newer version; the message says which and where.
        """
        from .attribution_files import load

        return load(FilePath(path))

    def show(self, **options: Any) -> Any:
        """Draw the result with matplotlib, show it, and return the figure. Options as in :func:`integrand.render.figure`.

        A notebook shows the figure; a script opens a window, or, without a display, saves ``integrand-attribution.png`` in the
        current folder and prints that.
        """
        from .render import show

        return show(self, **options)

    @property
    def sentence(self) -> str:
        """What was found, in one line: the score, what mattered most, and how good the numbers are."""
        from .render import attribution_sentence

        return attribution_sentence(self)

    def __repr__(self) -> str:
        from .render import attribution_lines

        return attribution_lines(self)

    def __str__(self) -> str:
        return f"{self!r}\n{self.certificate}"

    def _repr_html_(self) -> str:
        from .render import attribution_view
        from .render.certificate_text import certificate_table

        return attribution_view(self, certificate_table(self.certificate))


def group_sums(leaves: Leaves, labels: Leaves, *, batched: bool) -> Tensor:
    """Sums of the features with each label, (examples, groups), or (groups,) without a batch dimension."""
    rows = [leaf if batched else leaf[None] for leaf in leaves]
    columns, count = columns_of(labels, rows)
    terms = flat([leaf.to(torch.promote_types(rows[0].dtype, torch.float32)) for leaf in rows])
    out = add_columns(terms, columns, max(count, int(columns.max()) + 1))
    out = out[:, :count].to(rows[0].dtype)
    return out if batched else out[0]


def _weighing(weights: Tensor, rows: Sequence[Tensor]) -> Grouping:
    """How much of each feature goes to each sum, for values that are one tensor."""
    one, shape = rows[0].shape[1:], tuple(weights.shape)
    fits = shape[1:] == tuple(one) or shape[:1] + shape[2:] == (len(rows[0]), *one)
    if len(rows) != 1 or not fits:
        raise InputError(
            f"weights has shape {shape} for {len(rows)} tensor(s) of values of shape {tuple(one)} in an example; expected one "
            "tensor, and weights of its shape after the number of sums, and before that of the examples if each has its own."
        )
    wide = weights.detach().cpu().double()
    wide = wide.reshape(1, shape[0], -1) if shape[1:] == tuple(one) else wide.flatten(2)
    return Grouping(wide.shape[1], weights=wide)


def columns_of(labels: Leaves, rows: Sequence[Tensor]) -> tuple[Tensor, int]:
    """The column of every feature, (features,), and how many groups there are; what belongs to none comes after them.

    Args:
        labels: integers in the structure of one example; -1 leaves out.
        rows: the features, (examples, ...) each.
    """
    for leaf, label in zip(rows, labels, strict=True):
        if label.dtype.is_floating_point or label.dtype.is_complex or label.dtype == torch.bool:
            raise InputError(f"groups has dtype {label.dtype}; expected integers, -1 for features to leave out")
        if label.shape != leaf.shape[1:]:
            try:
                label.expand(leaf.shape[1:])
            except RuntimeError:
                raise InputError(
                    f"groups has shape {tuple(label.shape)}; expected {tuple(leaf.shape[1:])}, the shape of one example, "
                    "or one that broadcasts to it"
                ) from None
    _check_labels(labels, sum(leaf.shape[1:].numel() for leaf in rows))
    count = max(int(label.max()) for label in labels) + 1
    if count < 1:
        raise InputError("groups labels no feature (all labels are -1); expected labels 0, 1, ...")
    index = [
        label.expand(leaf.shape[1:]).flatten().to(leaf.device, torch.long) for leaf, label in zip(rows, labels, strict=True)
    ]
    columns = torch.cat(index)
    return torch.where(columns < 0, count, columns), count


def _check_labels(labels: Leaves, features: int) -> None:
    """Refuse labels below -1, and labels so large that the result, one number for each from 0 on, would be mostly empty."""
    least, most = min(int(label.min()) for label in labels), max(int(label.max()) for label in labels)
    if least < -1:
        raise InputError(f"groups holds the label {least}; expected labels 0, 1, ..., and -1 for features to leave out.")
    if most >= max(features, MOST_GROUPS):
        again = "torch.unique(groups, return_inverse=True)[1]" + (" - 1, which keeps -1" if least < 0 else "")
        raise InputError(
            f"groups holds the label {most} for {features} features; expected labels 0, 1, ..., one for each group: the result "
            f"has a number for each of them up to the largest. Number the groups from 0 on, for one tensor with {again}."
        )


def _array(leaf: Tensor) -> np.ndarray[Any, Any]:
    leaf = leaf.detach().cpu()
    array: np.ndarray[Any, Any] = (leaf.float() if leaf.dtype in (torch.bfloat16, torch.float16) else leaf).numpy()
    return array
