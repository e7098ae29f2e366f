"""Two models, or more, on one input: what each says, what speaks for it, and how the two differ, in the same units."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ..api import integrated_gradients
from ..arrays import Floats
from ..attribution import Attribution
from ..backends.torch_function import build
from ..baselines.resolve import Baseline
from ..errors import IntegrandError, MissingExtraError, ModelError, OptionError, TargetError
from ..evaluation.progress import ProgressOption
from ..files import write, write_text
from ..functions.model_state import undisturbed
from ..functions.probabilities import adds_up_to_one, squashed
from ..functions.target import Score, Target, main_tensor
from ..memory import out_of_memory
from ..render.notebook import largest_ninth
from ..render.scene import FeatureNames, arrays_of
from ..trees import Tensors, flat, flatten
from ..version import version_of
from ..words import cell, cells, finite, first_line, number, percent, short_repr, shortened, shown
from .comparison_result import rank_correlations
from .method_comparison import check_shape, same_draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = ("probability", "logit", "log-probability", "output")
"""The units of scores that are no quantities; they are not written behind every number."""

NAMED = 24
"""Characters of a name that a sentence has room for."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What one model says of one example.

    Attributes:
        label: its answer: the name of its largest output, or what the only output is called.
        value: that output, on the scale that is compared: a probability from 0 to 1, a logit, or the output as it is.
        score: F(x), the explained output on the same scale.
        explained: the explained output in words.
        likely: the most likely answers with their values, surest first; empty where there is one output only.
    """

    label: str
    value: float
    score: float
    explained: str
    likely: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ModelAgreement:
    """How alike the attributions of two models are, example by example.

    Attributes:
        rank_correlation: Spearman's rank correlation over the features, (examples,); NaN where all of a model's are equal.
        same_sign: of the features that matter to either, the share that both count to the same side, (examples,).
        cosine: the cosine between the two, (examples,): 1 for the same pattern whatever its size, -1 for its opposite.
    """

    rank_correlation: Floats
    same_sign: Floats
    cosine: Floats

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModelDifference:
    """The attributions of one model minus those of another, with the error of that.

    Attributes:
        first: the name of the one.
        second: the name of the other, which is subtracted.
        values: the difference, in the structure of what was compared.
        size: sum|d| over the features, (examples,).
        error: by how much the difference may be off, in the unit of the score and summed over the features, (examples,): the
            errors of the two models' attributions added up.
        agreement: how alike the two are.
        errors: by how much the difference in each feature may be off, (examples, features): the errors of the two models
            there added up. None where they are not known one by one.
    """

    first: str
    second: str
    values: Tensors
    size: Floats
    error: Floats
    agreement: ModelAgreement
    errors: Floats | None = None

    @property
    def relative_error(self) -> Floats:
        """The error as a share of the difference, (examples,); infinite where there is no difference but an error."""
        out: Floats = np.divide(self.error, self.size, out=np.where(self.error > 0, np.inf, 0.0), where=self.size > 0)
        return out

    @property
    def trust(self) -> str:
        """How good the numbers of the difference are, in words, over all examples."""
        worst = float(np.max(self.relative_error))
        if math.isnan(worst):
            return "how good the difference is, is not known"
        if worst == 0:
            return "difference exact"
        if worst >= 1:
            return "difference no larger than its error"
        return f"difference good to {percent(worst) if worst >= 1e-4 else 'better than 0.01%'}"

    def __repr__(self) -> str:
        alike = self.agreement.rank_correlation
        return (
            f"ModelDifference({brief(self.first)} − {brief(self.second)}: sum|d| {number(float(self.size.mean()), 3)}, rank "
            f"correlation {number(float(np.nanmean(alike)) if not np.isnan(alike).all() else math.nan, 2)}, {self.trust})"
        )


@dataclass(frozen=True, repr=False, eq=False)
class ModelComparison:
    """Several models on one input, by name and in the order in which they were given.

    Attributes:
        results: the attributions of each model, with their certificate.
        answers: what each model says, one answer per example.
        unit: what all attributions are in units of: ``probability``, ``logit``, ``log-probability``, ``output``, or the units
            of a quantity, such as ``log-mol/L``.
        aligned: the attributions of each model on the features that they share, where that is not ``results`` itself: two
            networks may see other parts of a photo, at other sizes.
        features: names of the features, if they are known.
        image: the photo, (H, W, 3), if there is one.
        meta: how the comparison was made, all strings.
        segments: the region of each pixel of the photo, (H, W), where the features are regions; -1 where none was compared.
        molecule: RDKit's molecule, where the first features are its atoms.
        errors: by how much each of the compared attributions of each model may be off, (examples, features), if that is known.
        notes: what a reader must not miss, such as an element that a network never saw.
    """

    results: Mapping[str, Attribution]
    answers: Mapping[str, tuple[ModelAnswer, ...]]
    unit: str
    aligned: Mapping[str, Tensors] | None = None
    features: Sequence[str] | None = None
    image: Any = None
    meta: Mapping[str, str] = field(default_factory=dict)
    segments: Any = None
    molecule: Any = None
    errors: Mapping[str, Floats] | None = None
    notes: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models."""
        return tuple(self.results)

    @property
    def examples(self) -> int:
        """How many inputs were explained."""
        return len(next(iter(self.results.values())).certificate)

    @property
    def batched(self) -> bool:
        """Whether the first dimension of the values counts examples."""
        return next(iter(self.results.values())).batched

    @property
    def values(self) -> Mapping[str, Tensors]:
        """The attributions of each model on the features that are compared."""
        return {name: one.values for name, one in self.results.items()} if self.aligned is None else self.aligned

    @property
    def converged(self) -> bool:
        """Whether the attributions of every model are as accurate as was asked for."""
        return all(one.certificate.converged for one in self.results.values())

    @cached_property
    def differences(self) -> tuple[ModelDifference, ...]:
        """The first model minus each of the others."""
        first, *others = self.names
        return tuple(self._difference(first, other) for other in others)

    @property
    def difference(self) -> Tensors:
        """The attributions of the first model minus those of the second, in their structure; for more, see ``differences``."""
        return self._only.values

    @property
    def agreement(self) -> ModelAgreement:
        """How alike the two models' attributions are; for more than two models, see ``differences``."""
        return self._only.agreement

    @property
    def _only(self) -> ModelDifference:
        if len(self.differences) != 1:
            pairs = ", ".join(f"differences[{i}] is with {brief(d.second)!r}" for i, d in enumerate(self.differences))
            raise OptionError(f"there are {len(self.names)} models, so more than one difference: {pairs}.")
        return self.differences[0]

    def _rows(self, name: str) -> Tensor:
        """The compared attributions of a model, (examples, features), float64."""
        leaves = flatten(self.values[name], what="values")[1]
        return flat([leaf if self.batched else leaf[None] for leaf in leaves]).detach().double().cpu()

    def _difference(self, first: str, second: str) -> ModelDifference:
        tree, leaves = flatten(self.values[first], what="values")
        others = flatten(self.values[second], what="values")[1]
        wide = [torch.promote_types(leaf.dtype, torch.float32) for leaf in leaves]
        apart = [a.detach().to(w) - b.detach().to(a.device, w) for a, b, w in zip(leaves, others, wide, strict=True)]
        one, two = self._rows(first).numpy(), self._rows(second).numpy()
        size = np.abs(one - two).sum(1)
        error = sum(
            np.array([0.0 if ex.error == 0 else ex.error * ex.magnitude for ex in self.results[name].certificate])
            for name in (first, second)
        )
        errors = None if self.errors is None else self.errors[first] + self.errors[second]
        alike = _agreement(one, two)
        return ModelDifference(first, second, tree.build(apart), size, np.asarray(error, float), alike, errors)

    @property
    def sentence(self) -> str:
        """What the models say, how alike their reasons are, and how good the numbers are, in one line."""
        return shown(f"{self._said()}, {self._alike()}; {self._trust()}.")

    def _said(self) -> str:
        if self.examples > 1:
            same = sum(len({self.answers[name][i].label for name in self.names}) == 1 for i in range(self.examples))
            models = f"{len(self.names)} models" if len(self.names) > 2 else " and ".join(map(brief, self.names))
            alone = not self.answers[self.names[0]][0].likely
            return f"{models} on {self.examples} inputs" + ("" if alone else f": the same answer for {same} of them")
        answers = {name: self.answers[name][0] for name in self.names}
        first = next(iter(answers.values()))
        each = ", ".join(f"{brief(name)} {self._amount(one.value)}" for name, one in answers.items())
        if not first.likely:
            return each
        if len({one.label for one in answers.values()}) == 1:
            said = f"{'Both' if len(answers) == 2 else 'All'} say {brief(first.label, 48)} ({each})"
        else:
            room = 48 if len(answers) == 2 else NAMED
            said = ", ".join(
                f"{brief(name)} says {brief(one.label, room)} ({self._amount(one.value)})" for name, one in answers.items()
            )
        if any(one.explained != one.label for one in answers.values()):
            scores = ", ".join(f"{brief(name)} {self._amount(one.score)}" for name, one in answers.items())
            said += f"; compared for {brief(first.explained, 48)} ({scores})"
        return said

    def _alike(self) -> str:
        found = min(self.differences, key=lambda one: _mean(one.agreement.cosine))
        alike = _mean(found.agreement.cosine)
        if not np.any(found.size):
            return "for the same reasons"
        how = "opposite" if alike < -0.3 else "mostly different" if alike < 0.4 else "partly the same"
        how = "much the same" if alike >= 0.8 else how
        whose = f" (least alike: {brief(found.first)} and {brief(found.second)})" if len(self.differences) > 1 else ""
        return f"for {how} reasons{whose}{self._most(found)}"

    def _most(self, found: ModelDifference) -> str:
        """What two models differ most in, where features have names or places of their own and there is one example."""
        if self.examples > 1:
            return ""
        if self.features is None:
            place = _place(arrays_of(found.values, self.batched)[1])
            return f": they differ most in the {place} of the picture" if place else ""
        names, row = self._named(found.values)
        k = int(np.argmax(np.abs(np.nan_to_num(row))))
        more = found.first if row[k] > 0 else found.second
        return f": most of all, {brief(names[k], 32)} counts more for {brief(more)} (by {abs(row[k]):.2g})" if row[k] else ""

    def _trust(self) -> str:
        missed = [brief(name) for name, one in self.results.items() if not one.certificate.converged]
        worst = max(self.differences, key=lambda one: float(np.max(np.nan_to_num(one.relative_error, nan=np.inf))))
        if missed:
            return f"{worst.trust}; tolerance NOT met for {', '.join(missed)}"
        return worst.trust

    def _amount(self, value: float) -> str:
        if self.unit == "probability":
            return percent(value)
        return number(value, 3) + ("" if self.unit in SCALES else f" {self.unit}")

    def _named(self, values: Tensors, example: int = 0) -> tuple[FeatureNames, Floats]:
        """The names of the compared features, and one example's numbers in their order."""
        leaves, arrays = arrays_of(values, self.batched)
        names = FeatureNames(leaves, tuple(array.shape[1:] for array in arrays), self.features)
        return names, np.asarray(names.row(arrays, example), float)

    def table(self) -> list[dict[str, Any]]:
        """One row per example and feature: each model's attribution, the first minus each of the others, and known errors."""
        rows = []
        columns: dict[str, Tensors] = dict(self.values)
        columns |= {f"{one.first} − {one.second}": one.values for one in self.differences}
        errors = {f"error of {name}": found for name, found in (self.errors or {}).items()}
        errors |= {f"error of {one.first} − {one.second}": one.errors for one in self.differences if one.errors is not None}
        for i in range(self.examples):
            found = {name: self._named(values, i) for name, values in columns.items()}
            names = next(iter(found.values()))[0]
            for k in range(len(next(iter(found.values()))[1])):
                row: dict[str, Any] = {"example": i, "feature": names[k]} if self.examples > 1 else {"feature": names[k]}
                row |= {name: float(numbers[k]) for name, (_, numbers) in found.items()}
                rows.append(row | {name: float(known[i, k]) for name, known in errors.items()})
        return rows

    def numbers(self) -> dict[str, Any]:
        """The comparison as plain lists and dicts for JSON; NaN and infinity become None.

        The attributions themselves are in it where features have names (atoms, words, regions); ``values`` always has them.
        """
        found = {
            "sentence": self.sentence,
            "unit": self.unit,
            "models": {name: self._model_numbers(name) for name in self.names},
            "differences": [
                {
                    "first": one.first,
                    "second": one.second,
                    "size": one.size,
                    "error": one.error,
                    "relative_error": one.relative_error,
                    "rank_correlation": one.agreement.rank_correlation,
                    "same_sign": one.agreement.same_sign,
                    "cosine": one.agreement.cosine,
                }
                for one in self.differences
            ],
            "meta": dict(self.meta),
        }
        if self.features is not None:
            found |= {"features": self.table(), "notes": list(self.notes)}
        out: dict[str, Any] = finite(found)
        return out

    def _model_numbers(self, name: str) -> dict[str, Any]:
        certificate = self.results[name].certificate
        return {
            "answers": [
                {
                    "label": one.label,
                    "value": one.value,
                    "explained": one.explained,
                    "score": one.score,
                    "likely": [{"label": label, "value": value} for label, value in one.likely],
                }
                for one in self.answers[name]
            ],
            "baseline_score": [one.baseline_score for one in certificate],
            "magnitude": [one.magnitude for one in certificate],
            "error": [one.error for one in certificate],
            "tol": [one.tol for one in certificate],
            "gradients": [one.gradients for one in certificate],
            "status": [one.status.value for one in certificate],
        }

    def __repr__(self) -> str:
        return brief(self.sentence, 480)

    def __str__(self) -> str:
        lines = [self.sentence]
        for name, one in self.results.items():
            worst = f"error {percent(one.certificate.error)}" if one.certificate.error else "exact"
            lines.append(f"  {brief(name)}: {worst}, {one.certificate.gradients} gradients")
        for apart in self.differences:
            found = apart.agreement
            lines.append(
                f"  {brief(apart.first)} − {brief(apart.second)}: rank correlation {_mean(found.rank_correlation):.2f}, same "
                f"sign {percent(_mean(found.same_sign))}, cosine {_mean(found.cosine):.2f}; {apart.trust}"
            )
        lines += [f"  {note}" for note in self.notes]
        return shown("\n".join(lines), lines=True)

    def _repr_html_(self) -> str:
        from .model_comparison_page import glance

        return glance(self)

    def figure(self, *, title: str | None = None, share: float = 0.7, top: int = 12, most: int = 4) -> Figure:
        """Draw the models and their difference side by side, on one scale of colours or bars.

        Args:
            title: a heading; by default the sentence.
            share: the share of the attribution mass beyond which colours are clipped.
            top: how many features get a bar.
            most: how many examples are drawn.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from .model_comparison_page import compose

        try:
            from .model_comparison_figure import draw
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing a comparison") from None
        return draw(self, compose(self, share=share, top=top, most=most), title)

    def show(self, **options: Any) -> Figure:
        """Draw the comparison and let people see it: in a window, or as a file where there is no display.

        Args:
            **options: as in :meth:`figure`.
        """
        drawn = self.figure(**options)
        from ..render.figures import present

        return present(drawn, "integrand-models")

    def page(
        self, *, title: str | None = None, share: float = 0.7, top: int = 12, most: int = 4, command: str | None = None
    ) -> str:
        """The comparison as one self-contained HTML page, which loads nothing and runs no script.

        Args:
            title: the heading.
            share: the share of the attribution mass beyond which colours are clipped.
            top: how many features get a bar.
            most: how many examples are drawn.
            command: the command that makes the page again, to be shown in it.
        """
        from .model_comparison_page import compose, page

        return page(self, compose(self, share=share, top=top, most=most), title, command)

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write a page (``.html``), a picture (``.png``, ``.svg``, ``.pdf``), ``.json`` numbers or a ``.csv`` table.

        Args:
            path: where to; the ending decides.
            **options: for pictures and pages, what :meth:`figure` and :meth:`page` take.
        """
        where = FilePath(path)
        if where.suffix.lower() != ".csv":
            return write(where, options, picture=self.figure, numbers=self.numbers, report=self.page)
        if options:
            raise OptionError(f"got options {sorted(options)} for a .csv file; they are for pictures and pages.")
        rows = [cells({cell(name): value for name, value in row.items()}) for row in self.table()]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(where, text.getvalue())
        return where


def compare_models(
    models: Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]],
    x: Tensors,
    baseline: Baseline = None,
    *,
    target: Target | Mapping[str, Target] = None,
    score: Score = "logit",
    tol: float = 0.01,
    classes: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    image: Any = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    groups: Tensors | None = None,
    draws: int = 20,
    max_evaluations: int = 4000,
    memory: int | None = None,
    chunk: int | None = None,
    progress: ProgressOption = None,
) -> ModelComparison:
    """Explain one output of several models at the same input, and how their reasons differ.

    Every model is explained by integrated gradients to the same tolerance, for the same output, baseline and scale, so that
    the numbers of one can be subtracted from those of the other. The error of the difference is that of both, added up.

    >>> def one(x):
    ...     return 2 * x[:, 0] + x[:, 1]
    >>> def two(x):
    ...     return x[:, 0] - x[:, 1]
    >>> found = compare_models({"one": one, "two": two}, torch.tensor([[3.0, 4.0]]))
    >>> found.difference
    tensor([[3., 8.]])

    Args:
        models: the models by name, or a list of them: at least two, each an ``nn.Module`` in eval mode or a callable of tensors
            that takes this x. Networks with a preprocessing of their own are compared on a photo by
            ``integrand.apps.images.compare``.
        x: the input, as in :func:`integrand.integrated_gradients`.
        baseline: where the path starts; zero if not given. What is drawn at random is drawn once for all models.
        target: the output to explain in all of them, or a mapping from the models' names to outputs that mean the same. None
            means the only output, else the top class of the first model.
        score: ``logit``, ``probability`` or ``log-probability``. Of models that give probabilities themselves,
            ``probability`` takes them as they are.
        tol: the relative error to integrate each model to.
        classes: the names of the outputs, where they have any.
        features: the names of the features, one per feature, or one per entry of the first dimension.
        image: the photo to draw on, as in :func:`integrand.render.figure`.
        args: further positional arguments of the models.
        kwargs: further keyword arguments of the models.
        batched: whether the first dimension of x counts examples; found out if not given.
        groups: labels in the structure of one example; the comparison is then between sums of groups.
        draws: how many baselines to draw from a function.
        max_evaluations: gradient evaluations that an example may take in each model.
        memory: bytes that a run may hold.
        chunk: rows to run at a time.
        progress: a bar or a callback, told about each model in turn.

    Returns:
        The comparison: ``results``, ``answers``, ``difference``, ``agreement``, ``sentence``; it draws and saves itself.
    """
    named = _named_models(models)
    targets = _targets(target, named)
    baseline = same_draws(baseline, draws)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs, "batched": batched}
    looks = _looked_at(named, x, targets, call)
    _check_alike(looks, score, told=isinstance(target, Mapping))
    scores = {name: "logit" if look.probabilities and score == "probability" else score for name, look in looks.items()}
    options: dict[str, Any] = {"tol": tol, "groups": groups, "max_evaluations": max_evaluations, "memory": memory}
    options |= {"chunk": chunk, "progress": progress, **call}
    results: dict[str, Attribution] = {}
    for name, model in named.items():
        try:
            found = integrated_gradients(model, x, baseline, target=looks[name].target, score=scores[name], **options)
        except IntegrandError as error:
            error.add_note(f"(This is about the model {name!r}.)")
            raise
        check_shape(found, results)
        results[name] = found
    alone = all(look.outputs is not None and not look.outputs[0].numel() > 1 for look in looks.values())
    unit = score if score != "logit" else "probability" if _all_probabilities(looks) else "output" if alone else "logit"
    answers = {name: _answers(looks[name], results[name], scores[name], classes) for name in named}
    meta = {"integrand": version_of(), "torch": torch.__version__, "method": "integrated gradients", "tolerance": percent(tol)}
    return ModelComparison(results, answers, unit, features=features, image=image, meta=meta)


@dataclass(frozen=True)
class _FirstLook:
    """What one run of a model at the input shows: its outputs (None for a target function) and the target to explain."""

    outputs: Tensor | None
    target: Any
    probabilities: bool


def _named_models(models: object) -> dict[str, Callable[..., Any]]:
    """The models by name, each name once."""
    several = isinstance(models, (Mapping, list, tuple))
    count = len(models) if isinstance(models, (Mapping, list, tuple)) else 0
    if not several or count < 2:
        got = f"{count} model(s)" if several else f"a {type(models).__name__}"
        raise OptionError(f"got {got} to compare; expected two or more: {{'one': model, 'other': model}}, or a list of them.")
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    names: list[str] = []
    for model in cast("Sequence[Any]", models):
        name = getattr(model, "__name__", type(model).__name__)
        copies = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{copies + 1}" if copies else name)
    return dict(zip(names, cast("Sequence[Any]", models), strict=True))


def _targets(target: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(target, Mapping):
        return dict.fromkeys(named, target)
    if set(target) != set(named):
        raise OptionError(f"got targets for {sorted(map(str, target))}; expected one for each model: {sorted(named)}.")
    return dict(target)


def _looked_at(
    named: Mapping[str, Any], x: Tensors, targets: Mapping[str, Any], call: Mapping[str, Any]
) -> dict[str, _FirstLook]:
    """Run each model once at the input; without a target, the top class of the first is the target of all."""
    looks: dict[str, _FirstLook] = {}
    first: Any = None
    for name, model in named.items():
        try:
            looks[name] = _look(model, x, targets[name] if first is None else first, call)
        except TargetError as error:
            if not looks or first is None:
                raise
            other = next(iter(looks))
            raise OptionError(
                f"the model {name!r} has no output like the one explained in {other!r}: {error} Expected models with the same "
                f"outputs. Say which output of each to compare: {_which(other, name)}, with their numbers."
            ) from error
        except IntegrandError as error:
            error.add_note(f"(This is about the model {name!r}.)")
            raise
        except Exception as error:
            if out_of_memory(error) or not looks:
                raise
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in flatten(x)[1])
            raise ModelError(
                f"the model {name!r} does not take this x, of shape {shapes}, which {next(iter(looks))!r} takes: "
                f"{first_line(error)}. Expected models of the same input. Wrap it so that it takes x and makes its own input "
                "of it, for example lambda x: model(torch.nn.functional.interpolate(x, size=(299, 299))); for photos, "
                "integrand.apps.images.compare gives each network its own preprocessing."
            ) from error
        if first is None and targets[name] is None:
            first = looks[name].target
    return looks


def _look(model: Any, x: Tensors, target: Any, call: Mapping[str, Any]) -> _FirstLook:
    with undisturbed(model):
        function = build(model, x, target=target, **call)
        rows = torch.arange(function.examples, device=function.inputs[0].device)
        points = tuple(leaf.detach().clone().requires_grad_(leaf.is_floating_point()) for leaf in function.inputs)
        raw = function.run(points, rows)
        if function.scorer.function is not None or function.scorer.read is not None:
            return _FirstLook(None, target, False)
        found = [main_tensor(one) for one in raw]
        output = found[0] if function.batched else torch.stack(found)
        known = squashed(output) or adds_up_to_one(output.detach())
        index = [tuple(int(column[i]) for column in function.scorer.index) for i in range(function.examples)]
        settled: Any = index if function.scorer.index else None
        return _FirstLook(output.detach().double().cpu(), settled, known)


def _which(first: str, second: str) -> str:
    return f"target={{{first!r}: 0, {second!r}: 0}}"


def _all_probabilities(looks: Mapping[str, _FirstLook]) -> bool:
    return all(look.probabilities for look in looks.values())


def _check_alike(looks: Mapping[str, _FirstLook], score: str, *, told: bool) -> None:
    """Refuse outputs that cannot be subtracted: of other meanings, or on other scales."""
    known = {name: look.outputs for name, look in looks.items() if look.outputs is not None}
    first = next(iter(known), "")
    for name, outputs in known.items():
        here, there = tuple(known[first].shape[1:]), tuple(outputs.shape[1:])
        if here != there and not told:
            raise OptionError(
                f"the model {first!r} gives outputs of shape {here} per example and {name!r} of shape {there}; expected the "
                "same outputs, so that a number means the same class in both. Say which output of each to compare: "
                f"{_which(first, name)}, with their numbers."
            )
    if score == "logit" and known and len({looks[name].probabilities for name in known}) > 1:
        sure = [name for name in known if looks[name].probabilities]
        raise OptionError(
            f"{', '.join(map(repr, sure))} gives probabilities and the other model(s) do not; expected outputs in the same "
            "unit. Pass score='probability', which turns the others into probabilities too."
        )


def _answers(look: _FirstLook, result: Attribution, score: str, classes: Sequence[str] | None) -> tuple[ModelAnswer, ...]:
    """What a model says of each example, on the scale that is compared."""
    out = []
    for i, example in enumerate(result.certificate):
        rows = None if look.outputs is None else look.outputs[i]
        if rows is None or rows.ndim != 1 or rows.numel() == 1:
            out.append(ModelAnswer(example.target, example.score, example.score, example.target))
            continue
        values = rows.softmax(0) if score == "probability" else rows.log_softmax(0) if score == "log-probability" else rows
        if classes is not None and len(classes) != len(values):
            raise OptionError(f"got {len(classes)} names in classes=; expected {len(values)}, one for each output.")
        names = [f"class {k}" for k in range(len(values))] if classes is None else [str(name) for name in classes]
        order = values.argsort(descending=True, stable=True).tolist()
        likely = tuple((names[k], float(values[k])) for k in order[:5])
        out.append(ModelAnswer(names[order[0]], likely[0][1], example.score, names[look.target[i][0]], likely))
    return tuple(out)


def _agreement(one: Floats, two: Floats) -> ModelAgreement:
    """How alike two sets of rows are, (examples, features) each."""
    ranked = np.array([rank_correlations(np.stack(pair))[0, 1] for pair in zip(one, two, strict=True)])
    counted = (one != 0) | (two != 0)
    same = (np.sign(one) == np.sign(two)) & counted
    count = counted.sum(1)
    signs = np.divide(same.sum(1), count, out=np.full(len(one), np.nan), where=count > 0)
    lengths = np.sqrt((one**2).sum(1)) * np.sqrt((two**2).sum(1))
    cosine = np.divide((one * two).sum(1), lengths, out=np.full(len(one), np.nan), where=lengths > 0)
    return ModelAgreement(ranked, signs, np.clip(cosine, -1, 1))


def _place(arrays: Sequence[Floats]) -> str:
    """The ninth of a picture with the largest sum of magnitudes, in words; '' for what is no picture, (1, C, H, W)."""
    if len(arrays) != 1 or arrays[0].ndim != 4 or min(arrays[0].shape[2:]) < 3:
        return ""
    return largest_ninth(np.abs(arrays[0][0].sum(0)))


def _mean(values: Floats) -> float:
    """The mean of what is known; infinite where nothing is, so that it counts as the least remarkable."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.inf


def brief(text: str, most: int = NAMED) -> str:
    """A text from outside in a sentence: one line, cut to so many characters.

    >>> brief("a long name of a network that goes on"), brief("lite0")
    ('a long name of a networ…', 'lite0')
    """
    return shortened(shown(text), most)
