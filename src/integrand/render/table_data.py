"""What a summary of many inputs says, as plain data: counts, what mattered, distributions, and inputs worth a look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words import number, percent, shortened
from .image.pixels import Array

FAR = 5.0
"""How many usual spreads from the median a figure is called far from the rest."""

WORST, FAR_OFF, UNSURE, MISTAKEN, BROKEN, SOME = (
    "largest error",
    "far from the rest",
    "least probable",
    "not as labelled",
    "failed",
    "one of many",
)
REASONS = (WORST, FAR_OFF, UNSURE, MISTAKEN, BROKEN, SOME)
"""Why inputs are listed."""

GOOD = ("converged", "exact")
"""Statuses of inputs whose numbers are as exact as was asked for."""


@dataclass(frozen=True)
class NameTally:
    """What a feature, a word or a group contributed over all inputs that have it.

    Attributes:
        name: what it is called.
        inputs: how many inputs have it.
        total: the sum of its contributions over them, with their signs; where it comes twice in an input, both are added up.
        size: the sum of the sizes of these contributions.
        positive: the inputs in which it speaks for what is explained.
    """

    name: str
    inputs: int
    total: float
    size: float
    positive: int

    @property
    def mean(self) -> float:
        """Its contribution to an input that has it, on average."""
        return self.total / self.inputs if self.inputs else math.nan


@dataclass(frozen=True)
class ClassTally:
    """What is known of all inputs with the same prediction.

    Attributes:
        name: the prediction.
        inputs: how many have it.
        probability: the probability that the model gave it, on average; None if it gave none.
        features: what mattered most in them.
        groups: the larger parts that mattered most.
        mean_map: their attributions on average, where all are maps of the same size.
    """

    name: str
    inputs: int
    probability: float | None = None
    features: tuple[NameTally, ...] = ()
    groups: tuple[NameTally, ...] = ()
    mean_map: Array | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Distribution:
    """How a figure is spread over the inputs. All but the bars is exact: quantiles are values that occur.

    Attributes:
        name: what it is called, such as ``evaluations``.
        label: what it is, for the axis of a plot.
        count: the inputs that have it.
        low: the smallest value.
        quantiles: the values below which lie 5, 25, 50, 75 and 95% of the inputs.
        high: the largest value.
        log: whether it is drawn, and distances are measured, on a logarithmic scale.
        edges: where the bars of the plot begin and end.
        counts: the inputs in each bar; the first and the last one hold what is beyond them too.
    """

    name: str
    label: str
    count: int
    low: float
    quantiles: tuple[float, float, float, float, float]
    high: float
    log: bool = False
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def median(self) -> float:
        """Half of the inputs have less."""
        return self.quantiles[2]

    def scaled(self, value: float) -> float:
        """A value on the scale on which distances are measured."""
        return math.log10(value) if self.log else value

    @property
    def spread(self) -> float:
        """The usual distance from the median: that of a normal distribution with the same quantiles, the larger of two."""
        least, lower, _, upper, most = map(self.scaled, self.quantiles)
        return max((upper - lower) / 1.349, (most - least) / 3.29)

    @property
    def usual(self) -> str:
        """Between which values nine of ten inputs lie."""
        return f"{number(self.quantiles[0], 3)} to {number(self.quantiles[4], 3)}"


@dataclass(frozen=True)
class ListedInput:
    """One input that is worth a look; the fields of its row, and why it is listed.

    Attributes:
        key: what tells it from all others.
        why: why it is listed: a heading of the lists, and what is particular about this input.
        figures: how far it is from the rest in each figure that it is far in, by the name of the figure.
        prediction: what the model said.
        probability: the probability that the model gave it.
        target: what was explained.
        label: what is true, if that is known.
        score: F(x).
        baseline_score: F(x').
        error: the estimated relative error.
        tol: the tolerance that was asked for.
        residual: what the sum of the attributions misses.
        magnitude: the sum of the sizes of the attributions.
        status: how the integration ended, or ``failed``.
        evaluations: gradient evaluations.
        sentence: the answer in one line.
        notes: what a reader must not miss.
        failure: why it could not be explained.
        features: its strongest named features with their contributions, the strongest first.
        groups: its strongest groups.
        values: its attributions, where they are a map.
        columns: what it brought along.
        link: its own page, relative to the place of the summary; '' if there is none.
        about: what the input is, where its key is only a number: the question, the SMILES.
        under: the folder that all inputs lie in, where keys are paths; left out of the name.
    """

    key: str
    why: tuple[tuple[str, str], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    prediction: str | None = None
    probability: float | None = None
    target: str | None = None
    label: str | None = None
    score: float | None = None
    baseline_score: float | None = None
    error: float | None = None
    tol: float | None = None
    residual: float | None = None
    magnitude: float | None = None
    status: str = "failed"
    evaluations: int = 0
    sentence: str | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None
    features: tuple[tuple[str, float], ...] = ()
    groups: tuple[tuple[str, float], ...] = ()
    values: Array | None = field(default=None, compare=False)
    columns: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    about: str = ""
    under: str = ""

    @property
    def name(self) -> str:
        """What to call it: its key, and what it is where the key says nothing."""
        return f"{self.key}: {self.about}" if self.about else self.key.removeprefix(self.under)

    def listed_as(self, reason: str) -> bool:
        """Whether it is listed for a reason, whatever the others are."""
        return any(why == reason for why, _ in self.why)

    @property
    def badness(self) -> tuple[bool, float]:
        """The larger, the less exact its numbers: first whether they miss the tolerance, then by how much."""
        off = math.inf if self.error is None else self.error / self.tol if self.tol else self.error
        return self.status not in GOOD, off if self.status != "exact" else 0.0


@dataclass(frozen=True)
class ReasonCount:
    """Messages that say the same of different inputs.

    Attributes:
        text: the first of them.
        inputs: how many there are.
    """

    text: str
    inputs: int


@dataclass(frozen=True)
class MistakeTally:
    """What a feature contributed to predictions that are wrong, next to those that are right.

    Attributes:
        wrong: over the inputs whose prediction is wrong.
        right: over the others.
    """

    wrong: NameTally
    right: NameTally


@dataclass(frozen=True)
class TruthCheck:
    """Predictions next to what is true.

    Attributes:
        column: the column that says what is true.
        compared: the inputs that have both.
        right: those of them whose prediction is the label.
        by: how they were compared, in words.
        confusion: how many inputs there are by label and prediction.
        features: what mattered most in the mistakes.
        mean_map: the attributions of the mistakes on average, where all are maps of the same size.
    """

    column: str
    compared: int
    right: int
    by: str = ""
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)
    features: tuple[MistakeTally, ...] = ()
    mean_map: Array | None = field(default=None, compare=False)

    @property
    def accuracy(self) -> float:
        """The share of predictions that are right."""
        return self.right / self.compared if self.compared else math.nan


@dataclass(frozen=True)
class TableFigures:
    """Everything that the page over a data set shows.

    Attributes:
        title: what the run is about.
        total: inputs in the table.
        statuses: how many ended in each way, ``failed`` among them; the most frequent first.
        classes: the predictions, the most frequent first; none where nearly every input has one of its own.
        predictions: how many different predictions there are; None if they were too many to count.
        features: what mattered most over all inputs.
        distinct_features: how many different features there are.
        groups: the larger parts that mattered most.
        distinct_groups: how many different groups there are.
        strongest: of features that at least ``least_inputs`` inputs have, those with the largest mean, without signs.
        strongest_groups: the same of groups.
        least_inputs: see ``strongest``.
        part: what one feature is called: ``word``, ``atom``, ``feature``.
        mean_map: the attributions on average, where all are maps of the same size.
        mapped: how many inputs the average is over.
        distributions: how figures are spread, by their names.
        failures: why inputs could not be explained, the most frequent reason first.
        notes: what was noted of inputs, the most frequent first.
        truth: predictions next to what is true, if that is known.
        listed: inputs worth a look.
        evaluations: gradient evaluations of all inputs together.
        heed: what a reader must not miss.
        meta: how the table was made.
    """

    title: str
    total: int
    statuses: Mapping[str, int]
    classes: tuple[ClassTally, ...] = ()
    predictions: int | None = 0
    features: tuple[NameTally, ...] = ()
    distinct_features: int = 0
    groups: tuple[NameTally, ...] = ()
    distinct_groups: int = 0
    strongest: tuple[NameTally, ...] = ()
    strongest_groups: tuple[NameTally, ...] = ()
    least_inputs: int = 1
    part: str = "feature"
    mean_map: Array | None = field(default=None, compare=False)
    mapped: int = 0
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    failures: tuple[ReasonCount, ...] = ()
    notes: tuple[ReasonCount, ...] = ()
    truth: TruthCheck | None = None
    listed: tuple[ListedInput, ...] = ()
    evaluations: int = 0
    heed: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Inputs that could not be explained."""
        return self.statuses.get("failed", 0)

    @property
    def explained(self) -> int:
        """Inputs that have a result."""
        return self.total - self.failed

    @property
    def missed(self) -> int:
        """Inputs whose numbers are not as exact as was asked for."""
        return sum(count for status, count in self.statuses.items() if status not in (*GOOD, "failed"))

    @property
    def worst(self) -> tuple[ListedInput, ...]:
        """Those listed inputs whose errors are the largest, the largest first."""
        return tuple(sorted((one for one in self.listed if one.listed_as(WORST)), key=lambda one: one.badness, reverse=True))

    @property
    def sentence(self) -> str:
        """What there is to know first, in one line."""
        if not self.total:
            return "The table has no inputs yet."
        parts = [f"{self.explained:,} of {self.total:,} inputs explained"]
        if self.explained:
            parts.append(f"{self.missed:,} not as exactly as asked for" if self.missed else "all as exactly as asked for")
        if self.classes and (self.classes[0].inputs > 1 or len(self.classes) == 1):
            first = self.classes[0]
            share = f"{first.inputs:,}, {percent(first.inputs / max(1, self.explained))}"
            parts.append(f"said most often: {shortened(first.name, 60)} ({share})")
        if self.truth is not None and self.truth.compared:
            parts.append(f"{percent(self.truth.accuracy)} as labelled")
        for one in (self.groups or self.features)[:1]:
            what = "group" if self.groups else self.part
            mattered = f"{shortened(one.name, 40)} (in {one.inputs:,} inputs, {signed(one.mean)} on average)"
            parts.append(f"{what} that mattered most in all: {mattered}")
        return "; ".join(parts) + "."


def signed(value: float) -> str:
    """A contribution for people.

    >>> signed(0.1234), signed(-2.0), signed(0.0)
    ('+0.123', '−2', '0')
    """
    return "0" if value == 0 else f"{value:+.3g}".replace("-", "−") if math.isfinite(value) else "unknown"
