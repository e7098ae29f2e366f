"""The result of a diagnosis: what was found about each candidate for the baseline, and which one to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ..arrays import Floats
from ..attribution import Attribution
from ..baselines.class_signal import HIGH_HEAD_START, NEAR_ZERO, OWN_SIGNAL
from ..baselines.path_start import EARLY
from ..certificate import ExampleCertificate
from ..errors import MissingExtraError
from ..files import write
from ..trees import Tensors
from ..words import finite, percent, share_of, short_repr
from .comparison_result import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class DiagnosisRow:
    """What was found about one candidate for the baseline.

    Attributes:
        name: the name of the candidate.
        baseline: the candidate itself, in the structure of one example; the first draw of several.
        draws: how many baselines it averages.
        score: F(x'), the explained score at the baseline, the mean over the draws.
        probability: the probability of the explained class at the baseline, whatever the score; NaN where it is not known.
        head_start: the share of the rise above chance that the baseline has already, ``(p(x') - chance) / (p(x) -
            chance)``. Where no probability is known, ``|F(x')| / |F(x)|``.
        top: the baseline's own top class; None where there are no classes.
        confidence: the probability of that class, the mean over the draws; NaN where there are no classes.
        entropy: the entropy of the classes as a share of the largest possible, averaged over the draws: 1 where all are
            alike.
        signal: how sure the model is of its answer there, of whatever class, as a share of how sure it is at x; certainty is
            measured by the entropy, from chance (0) to one certain class (1). 0 where there are no classes.
        early: the share of the change (the integral of the profile's ``mass``) that happens in the first hundredth of the path.
            It is large where the path starts at zero in front of a norm.
        agreement: the mean rank correlation of its attributions with those of the other candidates, over regions.
        attribution: the attribution from this baseline, with its certificate.
    """

    name: str
    baseline: Tensors
    draws: int
    score: float
    probability: float
    head_start: float
    top: int | None
    confidence: float
    entropy: float
    signal: float
    early: float
    agreement: float
    attribution: Attribution

    __repr__ = short_repr

    @property
    def certificate(self) -> ExampleCertificate:
        """The certificate of the attribution from this baseline."""
        return self.attribution.certificate[0]

    @property
    def share(self) -> float:
        """F(x') as a share of F(x); NaN where F(x) is 0."""
        return self.score / self.certificate.score if self.certificate.score else math.nan

    @property
    def near_zero(self) -> bool:
        """Whether the explained class is as good as absent at the baseline."""
        return self.head_start <= NEAR_ZERO

    @property
    def speaks(self) -> bool:
        """True if the baseline carries a signal of its own: the model is nearly as sure of its answer there as at x."""
        return self.signal > OWN_SIGNAL

    @property
    def sudden(self) -> bool:
        """True if more than a quarter of the change happens in the first hundredth of the path."""
        return self.early > EARLY

    @property
    def empty(self) -> bool:
        """Whether the attributions are all zero, as where the baseline equals the input."""
        return self.certificate.magnitude == 0

    @property
    def neutral(self) -> bool:
        """True if nothing speaks against it: near zero, no signal of its own, no sudden change at the start, not equal to x."""
        return self.near_zero and not self.speaks and not self.sudden and not self.empty

    @property
    def charge(self) -> float:
        """The largest of head start, signal and early change relative to its limit: at most 1 for a neutral baseline."""
        return math.inf if self.empty else max(self.head_start / NEAR_ZERO, self.signal / OWN_SIGNAL, self.early / EARLY)

    @property
    def verdict(self) -> str:
        """The verdict on the candidate in a few words."""
        if self.empty:
            return "explains nothing"
        score = "near zero" if self.near_zero else "score is high" if self.head_start > HIGH_HEAD_START else "some score"
        faults = "own signal" if self.speaks else "", "change at the very start" if self.sudden else ""
        return ", ".join(filter(None, ("neutral" if self.neutral else score, *faults)))


@dataclass(frozen=True, repr=False, eq=False)
class Diagnosis:
    """Candidates for the baseline of one input, what each does, and which to take.

    Attributes:
        rows: one per candidate, in the order in which they were asked about.
        recommended: the name of the candidate to take.
        advice: why, what depends on the choice, and what to do, in words.
        score: F(x), the explained score at the input.
        target: the explained output, in words.
        probability: the probability of the explained class at x; NaN where it is not known.
        chance: the probability of every class for a model that knows nothing; NaN where there are no classes.
        agreements: rank correlations between the attributions of every two candidates, (rows, rows); NaN where one is
            constant.
        x: the input.
        low: black in the space of x, for showing baselines.
        high: white in the space of x, for showing baselines.
        names: from the number of a class to its name.
        failures: the error message of each candidate that could not be used.
        meta: how the diagnosis was made, all strings.
    """

    rows: tuple[DiagnosisRow, ...]
    recommended: str
    advice: str
    score: float
    target: str
    probability: float
    chance: float
    agreements: Floats
    x: Tensors
    low: Any = 0.0
    high: Any = 1.0
    names: Callable[[int], str] = "class {}".format
    failures: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DiagnosisRow:
        """The row of a candidate, by its name."""
        return {row.name: row for row in self.rows}[name]

    @property
    def neutral(self) -> tuple[str, ...]:
        """The candidates that nothing speaks against."""
        return tuple(row.name for row in self.rows if row.neutral)

    def table(self) -> list[tuple[str, ...]]:
        """The diagnosis as texts: a row of titles, then one row per candidate."""
        titles = ("baseline", "F(x')", "p(x')", "head start", "own top class", "confidence", "own signal", "sum|a|")
        lines: list[tuple[str, ...]] = [(*titles, "agreement", "error", "gradients", "verdict")]
        for row in self.rows:
            name = f"{row.name} *" if row.name == self.recommended else row.name
            found = row.certificate
            lines.append(
                (
                    name if row.draws == 1 else f"{name} ({row.draws})",
                    f"{row.score:.3g}",
                    plain(row.probability, ".2g"),
                    share_of(row.head_start),
                    "-" if row.top is None else self.names(row.top),
                    plain(row.confidence, ".2g"),
                    "-" if row.top is None else share_of(row.signal),
                    f"{found.magnitude:.3g}",
                    plain(row.agreement, ".2f"),
                    percent(found.error) if found.converged else f"{percent(found.error)} ({found.status.value})",
                    str(found.gradients),
                    row.verdict,
                )
            )
        return lines

    def question(self) -> str:
        """What is explained, in words."""
        chance = "" if math.isnan(self.chance) else f", p(x) = {plain(self.probability, '.3g')}, chance {self.chance:.2g}"
        return f"{self.target}; F(x) = {self.score:.4g}{chance}"

    @property
    def sentence(self) -> str:
        """Which baseline to take, and why, in one line."""
        why = (self.advice.splitlines() or [""])[0]
        return f"Take {self.recommended} as the baseline for {self.target}: {why}"

    def __str__(self) -> str:
        lines = [self.question(), *aligned(self.table(), left=(0, 4, 11)), "* recommended", "", self.advice]
        return "\n".join(lines + [f"{name} could not be used: {message}" for name, message in self.failures.items()])

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        from .diagnosis_report import fragment

        return fragment(self)

    def figure(
        self,
        *,
        image: Any = None,
        pixels: Callable[[Any], Any] | None = None,
        label: str | None = None,
        features: Sequence[str] | None = None,
        title: str | None = None,
        signed: bool = False,
        share: float = 0.7,
        top: int = 12,
    ) -> Figure:
        """Draw the attributions from all candidates side by side, each next to its baseline, with what was found under it.

        Args:
            image: the photo, as in :func:`integrand.render.figure`. For images of 1 or 3 channels it is made from x by
                ``low`` and ``high`` if not given.
            pixels: from an input of the network, (C, H, W), to (H, W, 3) from 0 to 1, where ``low`` and ``high`` are not
                all there is to it (channels in another order, say).
            label: what was explained; by default the target's own words.
            features: names for the bars of inputs that are no images, as in :func:`integrand.render.figure`.
            title: a heading over everything.
            signed: heat maps instead of the photo's pixels lit by the strength of their attributions.
            share: the share of the attribution mass beyond which colours and brightness are clipped, map by map.
            top: how many features get a bar.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from .diagnosis_report import compose

        try:
            from .diagnosis_figure import draw
        except ImportError:
            raise MissingExtraError("matplotlib", "pictures", "drawing a diagnosis") from None
        return draw(self, compose(self, image, pixels, label, features, title, signed, share, top))

    def report(
        self,
        *,
        image: Any = None,
        pixels: Callable[[Any], Any] | None = None,
        label: str | None = None,
        features: Sequence[str] | None = None,
        title: str | None = None,
        signed: bool = False,
        share: float = 0.7,
        top: int = 12,
        command: str | None = None,
    ) -> str:
        """The diagnosis as one self-contained HTML page; options as in :meth:`figure`. Needs no optional package.

        Args:
            image: the photo.
            pixels: from an input of the network to something to look at.
            label: what was explained.
            features: names for bars.
            title: the heading.
            signed: heat maps.
            share: the share of the attribution mass beyond which colours are clipped.
            top: how many features get a bar.
            command: the command that makes the page again, to be shown in it.
        """
        from .diagnosis_report import compose, page

        return page(self, compose(self, image, pixels, label, features, title, signed, share, top), command)

    def save(self, path: str | PathLike[str], **options: Any) -> FilePath:
        """Write the diagnosis: ``.html`` is a report, ``.png``, ``.svg`` and ``.pdf`` a picture, ``.json`` the numbers.

        Args:
            path: where to; the ending decides what is written.
            **options: for pictures and reports, what :meth:`figure` and :meth:`report` take.
        """
        return write(FilePath(path), options, picture=self.figure, numbers=self.to_dict, report=self.report)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain lists and dicts for JSON; what is NaN or infinite becomes None."""
        rows = []
        for row in self.rows:
            names = ("name", "draws", "score", "share", "probability", "head_start", "top", "confidence", "entropy", "signal")
            found: dict[str, Any] = {name: getattr(row, name) for name in (*names, "early", "agreement", "neutral", "verdict")}
            found["top_name"] = None if row.top is None else self.names(row.top)
            one = row.certificate
            found |= {"magnitude": one.magnitude, "residual": one.residual, "error": one.error, "gradients": one.gradients}
            rows.append(found | {"status": one.status.value})
        whole = ("recommended", "advice", "score", "target", "probability", "chance", "agreements")
        out = {name: getattr(self, name) for name in whole}
        rest = {"rows": rows, "failures": dict(self.failures), "meta": dict(self.meta)}
        found_all: dict[str, Any] = finite(out | rest)
        return found_all


def plain(value: float, form: str) -> str:
    """A number as text in a given format; a dash where it is NaN."""
    return "-" if math.isnan(value) else format(value + 0.0, form)
