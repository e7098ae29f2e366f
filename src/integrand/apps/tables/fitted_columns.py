"""Fitted transformers of scikit-learn read as columns: what they subtract and divide by, and which categories they know.

They are read, not called, so that every number of the model's input is known to belong to one column. What mixes columns (PCA,
polynomials) or bends them (quantiles, powers) is refused; it belongs into the model, where it has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InputError, OptionError
from .column_codes import Column, NumberColumn, OneHotColumn
from .data_frames import listed

Parts = list[tuple[str, Column]]


def fitted_parts(transformer: Any, names: Sequence[str]) -> Parts:
    """The columns that a fitted transformer gives to the model, in their order.

    Args:
        transformer: a scaler, an encoder, an imputer, a pipeline or a ColumnTransformer of scikit-learn.
        names: of the table's columns; those that the transformer was fitted on are taken where it knows them.
    """
    known = getattr(transformer, "feature_names_in_", None)
    if known is not None:
        names = [str(name) for name in known]
    return _through(transformer, [(name, NumberColumn()) for name in names])


def _through(step: Any, parts: Parts) -> Parts:
    """What a step makes of columns."""
    if step is None or isinstance(step, str):
        if step in (None, "passthrough"):
            return parts
        raise OptionError(f"got the step {step!r}; expected a transformer, or 'passthrough'.")
    kind = type(step).__name__
    if kind == "Pipeline":
        for _, one in step.steps:
            parts = _through(one, parts)
        return parts
    if kind == "ColumnTransformer":
        return _by_column(step, parts)
    rules = {
        "StandardScaler": _standard,
        "MinMaxScaler": _min_max,
        "MaxAbsScaler": _scaled_only,
        "RobustScaler": _robust,
        "OneHotEncoder": _one_hot,
        "OrdinalEncoder": _ordinal,
        "SimpleImputer": _imputed,
    }
    if kind not in rules:
        raise OptionError(
            f"got a {kind} in columns=; expected {', '.join(rules)}, a Pipeline or a ColumnTransformer of these, of which "
            "every number belongs to one column. Write what it does into the model, in torch."
        )
    _check_count(step, kind, parts)
    return rules[kind](step, parts)


def _by_column(step: Any, parts: Parts) -> Parts:
    if not hasattr(step, "transformers_"):
        raise InputError("got a ColumnTransformer that is not fitted; expected one after fit, as the model was trained with.")
    names = [name for name, _ in parts]
    found: Parts = []
    for _, one, columns in step.transformers_:
        if isinstance(one, str) and one == "drop":
            continue
        chosen = [columns] if isinstance(columns, (str, int)) else _places(columns, names)
        found += _through(one, [parts[place if isinstance(place, int) else names.index(str(place))] for place in chosen])
    return found


def _places(columns: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(columns, slice):
        return list(range(len(names)))[columns]
    listed_columns = list(columns)
    if listed_columns and all(isinstance(one, (bool, np.bool_)) for one in listed_columns):
        return [i for i, wanted in enumerate(listed_columns) if wanted]
    return [int(one) if isinstance(one, (int, np.integer)) else str(one) for one in listed_columns]


def _check_count(step: Any, kind: str, parts: Parts) -> None:
    count = getattr(step, "n_features_in_", None)
    if count is None:
        raise InputError(f"got a {kind} that is not fitted; expected one after fit, as the model was trained with.")
    if count != len(parts):
        raise InputError(
            f"got a {kind} that was fitted on {count} columns for {len(parts)}: {listed(name for name, _ in parts)}. Expected "
            "the columns that it was fitted on."
        )


def _rescaled(parts: Parts, means: Any, scales: Any) -> Parts:
    """Numbers of which a further mean is subtracted, and which are divided once more."""
    found: Parts = []
    for (name, part), mean, scale in zip(parts, means, scales, strict=True):
        if not isinstance(part, NumberColumn):
            raise OptionError(f"got a scaler for the categories of {name!r}; expected numbers. Scale before encoding.")
        found.append((name, NumberColumn(part.mean + part.scale * float(mean), part.scale * float(scale), part.missing)))
    return found


def _standard(step: Any, parts: Parts) -> Parts:
    count = len(parts)
    means = np.zeros(count) if step.mean_ is None else step.mean_
    return _rescaled(parts, means, np.ones(count) if step.scale_ is None else step.scale_)


def _min_max(step: Any, parts: Parts) -> Parts:
    if getattr(step, "clip", False):
        raise OptionError("got a MinMaxScaler with clip=True; expected one without: beyond its range it has no gradient.")
    return _rescaled(parts, -step.min_ / step.scale_, 1 / step.scale_)


def _scaled_only(step: Any, parts: Parts) -> Parts:
    return _rescaled(parts, np.zeros(len(parts)), step.scale_)


def _robust(step: Any, parts: Parts) -> Parts:
    count = len(parts)
    means = np.zeros(count) if step.center_ is None else step.center_
    return _rescaled(parts, means, np.ones(count) if step.scale_ is None else step.scale_)


def _one_hot(step: Any, parts: Parts) -> Parts:
    if any(one is not None for one in getattr(step, "infrequent_categories_", None) or ()):
        raise OptionError("got a OneHotEncoder that puts rare categories together; expected one number for each category.")
    dropped = [None] * len(parts) if step.drop_idx_ is None else list(step.drop_idx_)
    unknown = step.handle_unknown != "error"
    return [
        (name, OneHotColumn(_plain(known), None if gone is None else int(gone), unknown, _filled(part)))
        for (name, part), known, gone in zip(parts, step.categories_, dropped, strict=True)
    ]


def _ordinal(step: Any, parts: Parts) -> Parts:
    """Numbers of categories; the model takes them as they are, so that the way from one to another leads past those between."""
    raise OptionError(
        f"got an OrdinalEncoder for {listed(name for name, _ in parts)}; its numbers mean nothing by themselves. Expected "
        "tables.embedded(categories, layer) for categories that the model looks up in an embedding, with categories in the "
        "order of encoder.categories_, or tables.number() for what was a number to begin with."
    )


def _imputed(step: Any, parts: Parts) -> Parts:
    if getattr(step, "add_indicator", False):
        raise OptionError("got a SimpleImputer with add_indicator=True; expected one without.")
    found: Parts = []
    for (name, _), value in zip(parts, step.statistics_, strict=True):
        # What an imputer for texts fills in is kept for the encoder that follows.
        found.append((name, NumberColumn(missing=float(value)) if _is_number(value) else _Filled(value)))
    return found


class _Filled(NumberColumn):
    """A column of texts whose gaps are filled, on its way to an encoder."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        object.__setattr__(self, "text", value)


def _filled(part: Column) -> Any:
    return getattr(part, "text", None) if isinstance(part, _Filled) else getattr(part, "missing", None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _plain(values: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(values, dtype=object).tolist())
