"""The result of integrated Hessians: interactions between features, and what is known of their error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..certificate import Status
from ..errors import MissingExtraError, OptionError
from ..files import write
from ..trees import Tensors, flat, flatten
from ..words import finite, number, percent, short_repr
from .interaction_rows import Index, index_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class InteractionCertificate:
    """What is known of one example's interactions.

    Attributes:
        score: F(x), the explained score at the input; with ``smooth=`` that of the smooth model.
        baseline_score: F(x'), the explained score at the baseline (the mean over several).
        model_score: the score at the input as the model itself gives it; other than ``score`` only with ``smooth=``.
        row_gap: sum over rows of |sum of the row - its integrated gradient|. Zero is necessary for accuracy, not sufficient.
        asymmetry: sum over pairs of rows of |G_ij - G_ji|.
        magnitude: sum|G| over all returned numbers, the scale of the error.
        error: estimated relative L1 error over the returned numbers.
        tol: the tolerance that was asked for, in the same unit.
        gradients: gradient evaluations spent on this example.
        products: Hessian-vector products spent on this example.
        forwards: forward passes without a backward pass.
        status: how the integration ended.
        rule: ``Gauss-Kronrod``, or ``kinks`` for a piecewise linear score.
        precision: what the model computed in.
        target: the explained output, in words.
        smooth: the sharpness of the softplus that stood for relu.
        kinks: how many kinks were integrated over; None where the score was integrated as a smooth one.
    """

    score: float
    baseline_score: float
    model_score: float
    row_gap: float
    asymmetry: float
    magnitude: float
    error: float
    tol: float
    gradients: int
    products: int
    forwards: int
    status: Status
    rule: str
    precision: str
    target: str
    smooth: float | None = None
    kinks: int | None = None

    @property
    def converged(self) -> bool:
        """Whether the estimate is within the tolerance."""
        return self.status is Status.CONVERGED

    @property
    def remedy(self) -> str:
        """What to do about the status, in words ('' when there is nothing to do)."""
        if self.status is Status.CONVERGED:
            return ""
        if self.status is Status.UNKNOWN:
            return f"rounding in {self.precision} is larger than the values; use a model and input in float64"
        off = f"the error is estimated at {percent(self.error)}, not within {percent(self.tol)}"
        if self.status is Status.NOISE:
            return (
                f"second derivatives in {self.precision} are not precise enough for a tolerance of {percent(self.tol)}; "
                f"use a model and input in float64 or a tolerance above {percent(self.error)}"
            )
        if self.status is Status.JUMP:
            way = (
                "pass smooth=, such as 100"
                if self.smooth is None
                else "what smooth= does not replace is the model's own to smooth"
            )
            return (
                f"{off}: gradients change where second derivatives do not say so, at kinks (relu, max-pooling, abs), jumps, or "
                f"where a backward pass is not itself differentiable; {way}"
            )
        if self.rule == "kinks":
            return (
                f"{off}: {self.kinks} kinks of a piecewise linear score were found, and there are more; raise max_evaluations, "
                "ask for a larger tol, or pass smooth=, such as 100"
            )
        return (
            f"{off}; raise max_evaluations or memory, ask for a larger tol, or pass smooth= where there are kinks (a smaller "
            "one where it is given)"
        )

    def __str__(self) -> str:
        model = "" if self.smooth is None else f" (the model itself {number(self.model_score)})"
        kinks = "" if self.kinks is None else f"  {self.kinks} kink{'s' * (self.kinks != 1)}"
        line = (
            f"F(x) {number(self.score)}{model}  F(x') {number(self.baseline_score)}  "
            f"rows miss {self.row_gap:.1e} of |G| {number(self.magnitude, 3)}  "
            f"error {percent(self.error)} (tol {percent(self.tol)})  "
            f"{self.gradients} gradients, {self.products} products{kinks}  {self.status.value}"
        )
        return f"{line}: {self.remedy}" if self.remedy else line


@dataclass(frozen=True, slots=True)
class Pair:
    """Two features (or groups) and the entry of the matrix between them, which counts once for each of the two.

    Attributes:
        first: the feature, as in ``features=``, or the group's label.
        second: the other feature or group.
        value: the entry G_ij of the matrix of interactions.
    """

    first: Index
    second: Index
    value: float


@dataclass(frozen=True, slots=True, repr=False)
class Interactions:
    """Interactions between features, with what is known of their error.

    Attributes:
        values: rows against all features: in the structure of x, (examples, rows, ...) for each tensor of (examples, ...);
            with ``groups=`` (examples, groups, groups).
        attributions: the integrated gradient of each row, (examples, rows), from the same evaluations.
        certificate: one :class:`InteractionCertificate` per example.
        rows: the feature of each row, as in ``features=``, or the labels of the groups.
        places: the place of each row among all features; empty for groups.
        shapes: the shape of one example of each tensor of x.
        outside: with ``groups=``, each row against the features that are left out, (examples, rows).
        batched: whether the first dimension counts examples.
        meta: how the result was made, all strings.
    """

    values: Tensors
    attributions: Tensor
    certificate: tuple[InteractionCertificate, ...]
    rows: tuple[Index, ...]
    places: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    outside: Tensor | None = None
    batched: bool = True
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether there are examples, and every one met its tolerance."""
        return bool(self.certificate) and all(example.converged for example in self.certificate)

    @property
    def error(self) -> float:
        """The largest error estimate of all examples; NaN if there are none."""
        return max((example.error for example in self.certificate), default=math.nan)

    def matrix(self) -> Tensor:
        """The rows against each other alone, (examples, rows, rows): symmetric, and small enough to look at."""
        wide = self._flat()
        square = wide if not self.places else wide[:, :, torch.tensor(self.places, device=wide.device)]
        return square if self.batched else square[0]

    def pairs(self, k: int = 10, *, example: int = 0) -> list[Pair]:
        """The strongest interactions of an example, each pair once and no feature with itself.

        >>> from integrand.interactions import integrated_hessians
        >>> integrated_hessians(lambda x: x[:, 0] * x[:, 1] + x[:, 2], torch.tensor([[2.0, 3.0, 1.0]])).pairs(1)
        [Pair(first=0, second=1, value=1.5)]

        Args:
            k: how many pairs, at most.
            example: the number of the example.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise OptionError(f"got k={k!r}; expected a whole number from 1 on.")
        wide = self._flat_example(example)
        places = np.array(self.places) if self.places else np.arange(len(self.rows))
        strength = np.abs(wide)
        # Of two entries for the same pair, the one in the row that comes first stays.
        for row, place in enumerate(places):
            strength[row, places[: row + 1]] = -1.0
            strength[row, place] = -1.0
        order = np.argsort(-strength, axis=None, kind="stable")[:k]
        found = [tuple(map(int, np.unravel_index(i, wide.shape))) for i in order if strength.flat[i] > 0]
        return [Pair(self.rows[row], self._name(column), float(wide[row, column])) for row, column in found]

    def numpy(self) -> Any:
        """The values as numpy arrays, in the structure of :attr:`values`."""
        tree, leaves = flatten(self.values, what="values")
        arrays: list[Any] = [_array(leaf) for leaf in leaves]
        return tree.build(arrays)

    def show(self, *, example: int = 0, names: Sequence[str] | None = None, title: str | None = None) -> Figure:
        """Draw the interactions and let people see them: in a window, or as a file where there is no display.

        Args:
            example: the number of the example.
            names: names for the rows.
            title: a heading; by default what was explained.
        """
        drawn = self.figure(example=example, names=names, title=title)
        from ..render.figures import present

        return present(drawn, "integrand-interactions")

    def figure(self, *, example: int = 0, names: Sequence[str] | None = None, title: str | None = None) -> Figure:
        """Draw the rows against each other with matplotlib, with their integrated gradients beside them.

        Colours are scaled to the strongest interaction; what a feature has to itself may be beyond.

        Args:
            example: the number of the example.
            names: names for the rows.
            title: a heading; by default what was explained.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        try:
            from .interaction_figure import draw
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing interactions") from None
        self._flat_example(example)
        if names is not None and len(names) != len(self.rows):
            raise OptionError(f"got {len(names)} names for {len(self.rows)} rows; expected one each.")
        labels = [str(row) for row in self.rows] if names is None else list(names)
        square = self.matrix() if self.batched else self.matrix()[None]
        sums = self.attributions if self.batched else self.attributions[None]
        one = self.certificate[example]
        whole = len(self.rows) == self._flat().shape[2] and (self.outside is None or not self.outside.any())
        return draw(_array(square[example]), _array(sums[example]), labels, one, title=title, whole=whole)

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write ``.json``, the numbers; or a picture: ``.png``, ``.svg`` or ``.pdf`` with the options of :meth:`figure`."""
        return write(FilePath(path), options, picture=self.figure, numbers=self.to_dict)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain lists and dicts for JSON; what is NaN or infinite becomes None."""
        return plain_interactions(self)

    def _name(self, column: int) -> Index:
        if not self.places:
            return self.rows[column]
        tree, _ = flatten(self.values, what="values")
        return index_of(column, tree, self.shapes)

    def _flat(self) -> Tensor:
        """The values as one tensor, (examples, rows, columns), with all features as columns."""
        _, leaves = flatten(self.values, what="values")
        parts = [leaf if self.batched else leaf[None] for leaf in leaves]
        examples, rows = parts[0].shape[:2]
        return flat([part.flatten(0, 1) for part in parts]).reshape(examples, rows, -1)

    def _flat_example(self, example: int) -> np.ndarray[Any, Any]:
        count = len(self.certificate)
        if isinstance(example, bool) or not isinstance(example, int) or not 0 <= example < count:
            raise OptionError(f"got example={example!r}; expected 0 to {count - 1}.")
        return _array(self._flat()[example])

    @property
    def sentence(self) -> str:
        """The strongest pair of features, and how good the numbers are, in one line."""
        good = f"numbers good to {percent(self.error)}" if self.converged else f"NOT converged: error {percent(self.error)}"
        count = f"{len(self.certificate)} examples, " if len(self.certificate) != 1 else ""
        strongest = self.pairs(1) if self.certificate else []
        found = "".join(f"; strongest: {one.first} with {one.second} ({one.value:+.3g})" for one in strongest)
        return f"{count}interactions of {len(self.rows)} with {sum(map(math.prod, self.shapes)):,} features{found}; {good}"

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        from ..render.notebook import table, view

        if not self.certificate:
            return view(self.sentence)
        rows = [(str(one.first), str(one.second), f"{one.value:+.4g}") for one in self.pairs(8)]
        note = "of the first example" if len(self.certificate) > 1 else ""
        return view(self.sentence, table(("feature", "with", f"interaction {note}".rstrip()), rows, left=2))

    def __str__(self) -> str:
        if len(self.certificate) == 1:
            return str(self.certificate[0])
        width = len(str(len(self.certificate) - 1))
        return "\n".join(f"[{i:>{width}}] {example}" for i, example in enumerate(self.certificate))


def plain_interactions(result: Interactions) -> dict[str, Any]:
    """Interactions as lists, dicts, numbers and texts, for JSON."""
    values = result.numpy()
    found = {
        "values": list(values) if isinstance(values, tuple) else values,
        "attributions": result.attributions.detach().double().cpu().numpy(),
        "outside": None if result.outside is None else result.outside.detach().double().cpu().numpy(),
        "rows": [list(row) if isinstance(row, tuple) else row for row in result.rows],
        "batched": result.batched,
        "certificate": [_plain_certificate(dataclasses.asdict(one)) for one in result.certificate],
        "meta": dict(result.meta),
    }
    out: dict[str, Any] = finite(found)
    return out


def _array(leaf: Tensor) -> np.ndarray[Any, Any]:
    leaf = leaf.detach().cpu()
    array: np.ndarray[Any, Any] = (leaf.float() if leaf.dtype in (torch.bfloat16, torch.float16) else leaf).numpy()
    return array


def _plain_certificate(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Status) else _plain_number(value) for name, value in row.items()}


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
