"""A model as something that explains many inputs: stacks them, integrates them together, and names what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..api import integrated_gradients
from ..attribution import Attribution
from ..errors import InputError, OptionError
from ..functions.model_state import modules_of
from ..trees import flatten
from .many import TOGETHER
from .rows import Row, attribution_row

MOST_ERRORS = 512
"""With more named features, no error is kept of each."""


class ModelExplainer:
    """Explains batches of inputs with a model, for :func:`integrand.explain_many`.

    Inputs of the same shape are integrated in one call: they share the model's chunks, and each stops at the tolerance.

    Attributes:
        together: inputs that are explained in one call.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        baseline: Any = None,
        *,
        inputs: Callable[[list[Any]], Any] | None = None,
        target_of: Callable[[Any], Any] | None = None,
        features: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        method: Callable[..., Attribution] = integrated_gradients,
        together: int = TOGETHER,
        **options: Any,
    ) -> None:
        """Bind a model to the way in which it is explained.

        Args:
            model: an ``nn.Module`` in eval mode, or any callable of tensors.
            baseline: as in :func:`integrand.integrated_gradients`.
            inputs: turns a list of inputs into what the model takes, with one row for each. Default: tensors and arrays are
                stacked; of a pair (x, label), as data sets give it, x counts.
            target_of: the target of each input, such as its true label: ``lambda pair: pair[1]``. Default: ``target=`` for all.
            features: names of the features, in the order of the flattened input, such as the columns of a table.
            classes: names of the model's outputs.
            method: what attributes; anything with the signature of :func:`integrand.integrated_gradients`.
            together: inputs that are explained in one call.
            **options: further ones of the method: ``target``, ``score``, ``tol``, ``groups``, ...
        """
        self.model, self.baseline, self.together = model, baseline, together
        self._inputs, self._target_of, self._method = inputs, target_of, method
        self._features, self._classes = features, classes
        self._options = options
        if target_of is not None and "target" in options:
            raise OptionError("got both target= and target_of=; expected one of them.")

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that results depend on, for the fingerprint."""
        known = {"inputs": self._inputs, "target_of": self._target_of, "features": self._features, "classes": self._classes}
        plain = {name: value for name, value in known.items() if value is not None}
        options = {name: value for name, value in self._options.items() if name not in ("progress", "memory", "devices")}
        return {"model": self.model, "baseline": self.baseline, "method": self._method} | plain | options

    def __call__(self, items: list[Any]) -> list[Row]:
        """Explain some inputs; one row for each, in the same order."""
        if self._inputs is not None:
            return self._explain(self._inputs(items), items)
        tensors = [_tensor(item, self._dtype()) for item in items]
        groups: dict[Any, list[int]] = {}
        for i, one in enumerate(tensors):
            groups.setdefault(_shape(one), []).append(i)
        rows: dict[int, Row] = {}
        for chosen in groups.values():
            found = self._explain(_stacked([tensors[i] for i in chosen]), [items[i] for i in chosen])
            rows |= dict(zip(chosen, found, strict=True))
        return [rows[i] for i in range(len(items))]

    def _explain(self, x: Any, items: Sequence[Any]) -> list[Row]:
        x = _moved(x, self.model)
        options = dict(self._options)
        if self._target_of is not None:
            options["target"] = [self._target_of(item) for item in items]
        options.setdefault("progress", False)
        found = self._method(self.model, x, self.baseline, **options)
        if len(found.certificate) != len(items):
            raise InputError(
                f"got {len(found.certificate)} rows for {len(items)} inputs; expected inputs= to give one for each."
            )
        said = self._said(x, len(items))
        rows = [attribution_row(found, i, **said[i]) for i in range(len(items))]
        return rows if self._features is None else self._named(found, rows, self._features)

    def _named(self, found: Attribution, rows: list[Row], names: Sequence[str]) -> list[Row]:
        """Rows with the names of the features and, where they are not too many, the error of each."""
        shape = np.shape(rows[0].attributions)
        if (count := math.prod(shape)) != len(names):
            raise OptionError(f"got {len(names)} names for {count} features; expected one for each.")
        errors = found.sums(torch.arange(count).reshape(shape)).errors.tolist() if count <= MOST_ERRORS else None
        return [
            replace(
                row,
                features=tuple(names),
                attributions=np.asarray(row.attributions).reshape(-1),
                attribution_errors=None if errors is None else tuple(errors[i]),
            )
            for i, row in enumerate(rows)
        ]

    def _dtype(self) -> torch.dtype:
        """The type of number that the model computes with, for inputs that are no tensors."""
        weights = (weight.dtype for module in modules_of(self.model) for weight in module.parameters())
        return next((dtype for dtype in weights if dtype.is_floating_point), torch.float32)

    def _said(self, x: Any, count: int) -> list[dict[str, Any]]:
        """What the model says of each input: its top class, or its output if it has one."""
        try:
            with torch.no_grad():
                if isinstance(x, dict):
                    output = self.model(*self._options.get("args", ()), **x, **(self._options.get("kwargs") or {}))
                else:
                    given = x if isinstance(x, tuple) else (x,)
                    output = self.model(*given, *self._options.get("args", ()), **(self._options.get("kwargs") or {}))
            output = getattr(output, "logits", output)
        except Exception:  # a method may call the model in another way; what it says is a nicety
            return [{}] * count
        if not isinstance(output, Tensor) or output.shape[:1] != (count,) or output.ndim > 2:
            return [{}] * count
        if output.ndim == 1 or output.shape[1] == 1:
            return [{"prediction": f"{value:.6g}"} for value in output.reshape(-1).double().tolist()]
        best = output.argmax(1).tolist()
        return [{"prediction": self._classes[one] if self._classes and one < len(self._classes) else str(one)} for one in best]


def _tensor(item: Any, dtype: torch.dtype) -> Any:
    """The tensor, or the dict of tensors, of an input; numbers that are no tensor yet have the type of the model's."""
    if isinstance(item, (tuple, list)) and item and not isinstance(item[0], (int, float)):
        item = item[0]
    if isinstance(item, Mapping):
        return {name: _tensor(value, dtype) for name, value in item.items()}
    if isinstance(item, Tensor):
        return item
    try:
        found = torch.as_tensor(np.asarray(item))
    except (TypeError, ValueError):
        raise InputError(
            f"got a {type(item).__name__} as an input; expected a tensor, an array or numbers. Say with inputs= how a list of "
            "inputs becomes what the model takes."
        ) from None
    return found.to(dtype) if found.is_floating_point() else found


def _shape(one: Any) -> Any:
    return tuple((name, _shape(part)) for name, part in one.items()) if isinstance(one, dict) else (tuple(one.shape), one.dtype)


def _stacked(tensors: Sequence[Any]) -> Any:
    if isinstance(tensors[0], dict):
        return {name: torch.stack([one[name] for one in tensors]) for name in tensors[0]}
    return torch.stack(list(tensors))


def _moved(x: Any, model: Callable[..., Any]) -> Any:
    """What the model takes, on the device of the model."""
    weights = (weight for module in modules_of(model) for weight in module.parameters())
    device = next((weight.device for weight in weights), None)
    if device is None:
        return x
    tree, leaves = flatten(x, what="inputs")
    return tree.build([leaf.to(device) for leaf in leaves])
