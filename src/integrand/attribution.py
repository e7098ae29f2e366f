"""The result: values, and the certificate that says how far they can be trusted."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._profile import Profile
from ._trees import Leaves, Tensors, flat, flatten, matched
from .errors import InputError, OptionError


class Status(enum.Enum):
    """How an integration ended."""

    CONVERGED = "converged"
    """The error estimate is within the tolerance."""
    BUDGET = "budget spent"
    """The evaluation (or memory, or fixed step) budget ended first."""
    NOISE = "noise floor"
    """The gradients are not precise enough for this tolerance."""
    JUMP = "not complete"
    """The score jumps: no integral of its gradient can sum to its change."""
    EXACT = "exact"
    """Nothing was estimated: the values are what the method defines, to rounding."""


AXIOMS = ("completeness", "sensitivity-a", "sensitivity-b", "implementation-invariance", "linearity", "symmetry")
"""The paper's axioms, by the names that :mod:`integrand.axioms` uses."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a method says about one axiom of the paper.

    Attributes:
        axiom: one of :data:`AXIOMS`.
        kept: whether the method keeps it on every model.
        why: the reason in a few words.
    """

    axiom: str
    kept: bool
    why: str = ""


def promised(**broken: str) -> tuple[Promise, ...]:
    """The promises of a method that keeps every axiom but those named, with the reason for each.

    >>> [promise.axiom for promise in promised(sensitivity_a="saturation") if not promise.kept]
    ['sensitivity-a']
    """
    reasons = {name.replace("_", "-"): why for name, why in broken.items()}
    assert reasons.keys() <= set(AXIOMS), reasons
    return tuple(Promise(axiom, axiom not in reasons, reasons.get(axiom, "")) for axiom in AXIOMS)


@dataclass(frozen=True, slots=True)
class CurveCertificate:
    """What is known of one curve of an example: one baseline of several, one piece of a polyline.

    Attributes:
        weight: its share in the sum (1/n for one of n baselines, 1 for a piece of a polyline).
        start_score: F at its start.
        end_score: F at its end.
        residual: sum of its attributions minus (end_score - start_score).
        error: estimated relative L1 error of its own attributions.
        gradients: gradient evaluations spent on it.
    """

    weight: float
    start_score: float
    end_score: float
    residual: float
    error: float
    gradients: int


@dataclass(frozen=True, slots=True)
class ExampleCertificate:
    """What is known of one example's attribution.

    Attributes:
        score: F(x), the explained score at the input.
        baseline_score: F(x'), at the baseline (the mean over several).
        residual: what the sum misses, sum(values) - (F(x) - F(x')). Zero is necessary for accuracy, not sufficient.
        magnitude: sum|a| over the features, the scale of the error; on image networks far above |F(x) - F(x')|.
        error: estimated relative L1 error over the features, sum|a - a*| / sum|a*|. NaN where too few nodes were
            used to tell. Where nothing was integrated or sampled, what rounding does, as far as it was measured.
        tol: the tolerance that was asked for, in the same unit.
        gradients: gradient evaluations (one forward and one backward each) spent on this example.
        forwards: forward evaluations without a backward.
        status: how the integration ended.
        rule: the quadrature rule of the values.
        precision: what the model computed in.
        moved: by how much that may still move the values where it is less than what model and input are in: measured at nodes
            that were evaluated in both, relative like the error, and counted into it. Their mean difference is made up for.
        target: the explained output, in words.
        needed: gradient evaluations that the tolerance is expected to take, where the budget was spent.
        jump_at: where on the path (0 to 1) the score jumps, for ``Status.JUMP``.
        jump_size: by how much.
        curves: one certificate each for several baselines or pieces of a path.
        knob: what to raise where the budget was spent.
        note: what else the method has to say of this example.
    """

    score: float
    baseline_score: float
    residual: float
    magnitude: float
    error: float
    tol: float
    gradients: int
    forwards: int
    status: Status
    rule: str
    precision: str
    target: str
    needed: int | None = None
    jump_at: float | None = None
    jump_size: float | None = None
    curves: tuple[CurveCertificate, ...] = ()
    knob: str = "raise max_evaluations, steps or memory"
    note: str = ""
    moved: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether the estimate is within the tolerance, or there was nothing to estimate."""
        return self.status in (Status.CONVERGED, Status.EXACT)

    @property
    def remedy(self) -> str:
        """What to do about the status, in words ('' when there is nothing to do)."""
        if self.converged:
            return ""
        if self.status is Status.NOISE:
            wider = "a model and input in " + ("float32" if self.precision in ("bfloat16", "float16") else "float64")
            return (
                f"gradients in {self.precision} are not precise enough for a tolerance of {percent(self.tol)}; "
                f"use {'precision=' + repr('float32') if self.moved else wider} or a tolerance above {percent(self.error)}"
            )
        if self.status is Status.JUMP:
            return (
                f"the score jumps by {number(self.jump_size)} at t = {number(self.jump_at, 8)} of the path, where it has no "
                "gradient (rounding, argmax, a hard threshold), so attributions cannot sum to its change; "
                "explain a score before the threshold"
            )
        if math.isnan(self.error):
            return "too few steps to estimate the error; use more steps, or steps=None to integrate to a tolerance"
        wanted = "" if self.needed is None else f" (about {self.needed} evaluations)"
        return (
            f"the error is estimated at {percent(self.error)}, not within {percent(self.tol)}; {self.knob}{wanted}, or ask for "
            "a larger tol"
        )

    def __str__(self) -> str:
        exact = self.status is Status.EXACT
        accuracy = "" if exact else f"error {percent(self.error)} (tol {percent(self.tol)})  "
        if exact and self.error > 1e-5:
            accuracy = f"rounding {percent(self.error)}  "
        spent = f"{self.gradients} gradients" if self.gradients else f"{self.forwards} forwards"
        line = (
            f"F(x) {number(self.score)}  F(x') {number(self.baseline_score)}  "
            f"sum misses {self.residual:+.1e} of |a| {number(self.magnitude, 3)}  "
            f"{accuracy}{spent}  {self.status.value}"
        )
        if self.moved:
            line += f"  in {self.precision}, within {percent(self.moved)} of float32"
        if self.note:
            line += f"  {self.note}"
        if self.remedy:
            line += f": {self.remedy}"
        return line


@dataclass(frozen=True, slots=True)
class Certificate:
    """One :class:`ExampleCertificate` per example, with a summary over them.

    Index or iterate it; for a single example its attributes are at hand as ``certificate.only``.

    Attributes:
        examples: what is known of each example.
        promises: which of the paper's axioms the method keeps on every model, and which it does not.
    """

    examples: tuple[ExampleCertificate, ...]
    promises: tuple[Promise, ...] = ()

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> ExampleCertificate:
        return self.examples[index]

    def __iter__(self) -> Iterator[ExampleCertificate]:
        return iter(self.examples)

    @property
    def only(self) -> ExampleCertificate:
        """The certificate of the single example; an error where there are several."""
        if len(self.examples) != 1:
            raise OptionError(f"there are {len(self.examples)} examples; use certificate[i] for one of them")
        return self.examples[0]

    @property
    def converged(self) -> bool:
        """Whether every example met its tolerance."""
        return all(example.converged for example in self.examples)

    @property
    def error(self) -> float:
        """The largest error estimate (NaN if any is unknown)."""
        return float(np.max([example.error for example in self.examples]))

    @property
    def gradients(self) -> int:
        """Gradient evaluations over all examples."""
        return sum(example.gradients for example in self.examples)

    @property
    def forwards(self) -> int:
        """Forward-only evaluations over all examples."""
        return sum(example.forwards for example in self.examples)

    @property
    def broken(self) -> tuple[str, ...]:
        """The axioms that the method does not promise to keep."""
        return tuple(promise.axiom for promise in self.promises if not promise.kept)

    def __str__(self) -> str:
        if len(self.examples) == 1:
            lines = [str(self.examples[0])]
        else:
            width = len(str(len(self.examples) - 1))
            lines = [f"[{i:>{width}}] {example}" for i, example in enumerate(self.examples)]
        if self.broken:
            lines.append(f"no promise of {', '.join(self.broken)}")
        return "\n".join(lines)


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
    """

    values: Tensors
    certificate: Certificate
    batched: bool = True
    meta: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Tensors] = field(default_factory=dict)
    profile: Profile | None = None

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
        from ._files import save

        return save(self, FilePath(path), **options)

    @staticmethod
    def load(path: str | PathLike[str]) -> Attribution:
        """Read a result that ``save`` wrote as ``.safetensors``. Nothing in the file is executed."""
        from ._files import load

        return load(FilePath(path))

    def show(self, **options: Any) -> Any:
        """Draw the result with matplotlib and return the figure. Options as in :func:`integrand.render.figure`."""
        from .render import figure

        return figure(self, **options)

    def __repr__(self) -> str:
        return str(self.certificate)

    def _repr_html_(self) -> str:
        from .render import certificate_table

        return certificate_table(self.certificate)


def group_sums(leaves: Leaves, labels: Leaves, *, batched: bool) -> Tensor:
    """Sums of the features with each label, (examples, groups), or (groups,) without a batch dimension."""
    rows = [leaf if batched else leaf[None] for leaf in leaves]
    columns, count = columns_of(labels, rows)
    terms = flat([leaf.to(torch.promote_types(rows[0].dtype, torch.float32)) for leaf in rows])
    out = terms.new_zeros(len(terms), max(count, int(columns.max()) + 1)).index_add(1, columns, terms)
    out = out[:, :count].to(rows[0].dtype)
    return out if batched else out[0]


def columns_of(labels: Leaves, rows: Sequence[Tensor]) -> tuple[Tensor, int]:
    """The column of every feature, (features,), and how many groups there are; what belongs to none comes after them.

    Args:
        labels: integers in the structure of one example; negative ones leave out.
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
    count = max(int(label.max()) for label in labels) + 1
    if count < 1:
        raise InputError("groups labels no feature (all labels are negative); expected labels 0, 1, ...")
    index = [
        label.expand(leaf.shape[1:]).flatten().to(leaf.device, torch.long) for leaf, label in zip(rows, labels, strict=True)
    ]
    columns = torch.cat(index)
    return torch.where(columns < 0, count, columns), count


def _array(leaf: Tensor) -> np.ndarray[Any, Any]:
    leaf = leaf.detach().cpu()
    array: np.ndarray[Any, Any] = (leaf.float() if leaf.dtype in (torch.bfloat16, torch.float16) else leaf).numpy()
    return array


def number(value: float | None, digits: int = 4) -> str:
    """A number for people."""
    return "?" if value is None else f"{value:.{digits}g}"


def percent(value: float) -> str:
    """A share as a percentage of any size, for people.

    >>> percent(0.0124), percent(0.114), percent(0.999), percent(1.0), percent(13.08)
    ('1.2%', '11%', '99.9%', '100%', '1308%')
    """
    if math.isnan(value):
        return "unknown"
    if 0.995 <= abs(value) < 1:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.2g}%" if abs(value) < 0.095 else f"{100 * value:.0f}%"
