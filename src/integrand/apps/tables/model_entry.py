"""Where a model is explained: at its numbers, and at the values of its embeddings, which are replaced along the path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...api import integrated_gradients
from ...attribution import Attribution
from ...errors import InputError, ModelError
from ...functions.layer import find_modules, visiting
from ...functions.model_state import modules_of
from ...words import first_line, shortened, shown
from .column_codes import ColumnCodes
from .data_frames import TableRows, listed

Takes = Literal["numbers, codes", "codes, numbers", "together"]
"""How a model with embeddings takes a row: numbers and rows of embeddings as two tensors in either order, or as one."""


@dataclass(frozen=True, eq=False)
class ModelEntry:
    """What a model is explained at: its numbers, and the values of its embeddings.

    Attributes:
        model: what is called.
        codes: the columns.
        layers: the modules whose values are explained; None where the model takes numbers only, which are explained themselves.
        takes: how the model takes numbers and rows of embeddings.
        device: of the model.
        dtype: of its numbers.
    """

    model: Callable[..., Any]
    codes: ColumnCodes
    layers: list[nn.Module] | None
    takes: Takes
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(model: Callable[..., Any], codes: ColumnCodes, takes: Takes, dtype: torch.dtype | None = None) -> ModelEntry:
        """Find the embeddings, and put a place before the model at which its numbers can be replaced."""
        weights = [weight for root in modules_of(model) for weight in root.parameters()]
        device = next((weight.device for weight in weights), torch.device("cpu"))
        own = (weight.dtype for weight in weights if weight.dtype.is_floating_point)
        dtype = dtype or next(own, torch.get_default_dtype())
        if not codes.embedded:
            return ModelEntry(model, codes, None, takes, device, dtype)
        layers = list(dict.fromkeys(layer for _, part in codes.embedded for layer in find_modules(model, part.layer)))
        entry = NumbersFirst(model, takes)
        return ModelEntry(entry, codes, [*([entry.numbers] if codes.plain else []), *layers], takes, device, dtype)

    def tensors(self, rows: TableRows) -> tuple[Tensor, ...]:
        """Rows as the model takes them: numbers (rows, D), and rows of embeddings (rows, E) where they are apart."""
        numbers, codes = self.codes.encode(rows)
        found = [torch.as_tensor(numbers).to(self.device, self.dtype)] if self.codes.plain else []
        if found and not found[0].isfinite().all():
            row, place = (int(one) for one in (~found[0].isfinite()).nonzero()[0])
            name = self.codes.names[self.codes.owners[place]]
            raise InputError(
                f"column {shown(name)!r} is {numbers[row, place]:.3g} in row {shortened(shown(str(rows.labels[row])), 60)}, as "
                f"the model gets it, which is too large for {str(self.dtype).removeprefix('torch.')}; expected numbers scaled "
                f"as in training: columns={{{name!r}: (mean, scale), ...}}. Or pass a model in float64 (model.double())."
            )
        return (*found, *([torch.as_tensor(codes).to(self.device)] if codes.shape[1] else []))

    def given(self, x: tuple[Tensor, ...]) -> Any:
        """These as the argument ``x`` of :func:`integrand.integrated_gradients`."""
        return x[0] if len(x) == 1 else x

    def values(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What is explained, at some rows: numbers, and the values of the embeddings in the order in which they are called."""
        if self.layers is None:
            return x
        found: list[Tensor] = []

        def visit(module: int, call: int, parts: list[Any]) -> list[Any]:
            found.extend(part.detach().clone() for part in parts if isinstance(part, Tensor) and part.dtype.is_floating_point)
            return parts

        with torch.no_grad(), visiting(self.layers, "output", visit):
            self.model(*x)
        return tuple(found)

    def outputs(self, rows: TableRows) -> int | None:
        """How many outputs the model has for a row; None if that cannot be told."""
        given = self.tensors(rows)
        try:
            with torch.no_grad():
                found = self.model(*given)
        except (RuntimeError, TypeError, IndexError) as error:
            shapes = " and ".join(f"{str(one.dtype).removeprefix('torch.')} {tuple(one.shape)}" for one in given)
            raise ModelError(
                f"the model does not take rows as columns= gives them, {shapes} for {len(rows)} rows of "
                f"{listed(self.codes.names)}: {first_line(error)}. Expected the columns that it was trained on, in their order "
                "(columns=), of its type (dtype=), and embeddings as takes= says."
            ) from error
        found = getattr(found, "logits", found)
        if not isinstance(found, Tensor) or found.shape[:1] != (len(rows),) or found.ndim > 2:
            return None
        return 1 if found.ndim == 1 else found.shape[1]

    def top(self, rows: TableRows) -> int:
        """The number of the highest output for the first row."""
        with torch.no_grad():
            found = self.model(*self.tensors(rows.take([0])))
        highest: Tensor = getattr(found, "logits", found)[0].argmax()
        return int(highest)

    def groups(self, x: tuple[Tensor, ...]) -> Any:
        """Which column each explained number belongs to, in the structure of what is explained of one row."""
        if self.layers is None:
            return torch.tensor(self.codes.owners, device=self.device)
        return self._layer_groups(tuple(leaf[:1] for leaf in x))

    def _layer_groups(self, x: tuple[Tensor, ...]) -> Any:
        calls: list[tuple[int, Tensor]] = []

        def visit(module: int, call: int, parts: list[Any]) -> list[Any]:
            calls.extend((module, part) for part in parts if isinstance(part, Tensor) and part.dtype.is_floating_point)
            return parts

        assert self.layers is not None
        with torch.no_grad(), visiting(self.layers, "output", visit):
            self.model(*x)
        mine: dict[int, list[int]] = {}
        names = self.codes.names
        for name, part in self.codes.embedded:
            [layer] = find_modules(self.model.model if isinstance(self.model, NumbersFirst) else self.model, part.layer)
            mine.setdefault(self.layers.index(layer), []).append(names.index(name))
        counts = {module: sum(one == module for one, _ in calls) for module, _ in calls}
        found, seen = [], dict.fromkeys(counts, 0)
        for module, value in calls:
            if module not in mine:
                found.append(torch.tensor(self.codes.owners, device=self.device))
                continue
            columns = mine[module]
            if counts[module] == len(columns):
                labels = torch.full(value.shape[1:], columns[seen[module]], device=self.device)
            elif counts[module] == 1 and value.ndim == 3 and value.shape[1] == len(columns):
                labels = torch.tensor(columns, device=self.device)[:, None].expand(value.shape[1:])
            else:
                raise ModelError(
                    f"an embedding is called {counts[module]} times, with values of shape {tuple(value.shape)}, for "
                    f"{len(columns)} columns ({', '.join(names[one] for one in columns)}); expected one call for each column, "
                    "or one for all with values (rows, columns, ...). Name the embedding of each column in tables.embedded."
                )
            seen[module] += 1
            found.append(labels)
        missing = [names[one] for module, columns in mine.items() if module not in counts for one in columns]
        if missing:
            raise ModelError(
                f"the embedding of {missing[0]!r} is not called by the model; expected the module that looks it up."
            )
        return found[0] if len(found) == 1 else tuple(found)

    def attribution(self, x: tuple[Tensor, ...], baseline: Any, how: Mapping[str, Any]) -> Attribution:
        """Integrated gradients, one number per column: (rows, columns)."""
        return integrated_gradients(
            self.model, self.given(x), baseline, groups=self.groups(x), layer=self.layers, batched=True, **how
        )


class NumbersFirst(nn.Module):
    """A model behind a module that its numbers pass through, so that they can be replaced as the values of embeddings are."""

    def __init__(self, model: Callable[..., Any], takes: Takes) -> None:
        super().__init__()
        self.numbers, self.model, self.takes = nn.Identity(), model, takes
        self.training = bool(getattr(model, "training", False))
        self.numbers.training = False

    def forward(self, *x: Tensor) -> Any:
        """The model's output for numbers and rows of embeddings, or either."""
        first, *rest = x
        if not first.dtype.is_floating_point:
            return self.model(first)
        passed = self.numbers(first)
        return self.model(*rest, passed) if self.takes == "codes, numbers" else self.model(passed, *rest)


def torch_model(model: Any) -> tuple[Callable[..., Any], Any, bool]:
    """The torch model inside of what was given, the steps before it, and whether its framework runs it in eval mode itself.

    Args:
        model: a torch model, a fitted skorch net, or a pipeline of scikit-learn that ends in one.
    """
    if type(model).__name__ == "Pipeline" and hasattr(model, "steps"):
        module, _, evaluate = torch_model(model.steps[-1][1])
        return module, (model[:-1] if len(model.steps) > 1 else None), evaluate
    if hasattr(model, "module_") and hasattr(model, "initialized_"):
        return model.module_, None, True
    if (
        hasattr(model, "initialize")
        and hasattr(model, "criterion")
        and hasattr(model, "module")
        and not isinstance(model, nn.Module)
    ):
        raise ModelError(
            f"got a {type(model).__name__} of skorch that is not fitted; expected one after fit, or after initialize and "
            "load_params."
        )
    return model, None, False
