"""What is known about a result: how the integration ended, how far off it is, and which axioms the method keeps."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from .errors import OptionError
from .schema import Among, Within
from .words import number, percent, shown

Count = Annotated[int, Within(0, 2**63 - 1)]
"""A number of evaluations."""

Amount = Annotated[float, Within(0)]
"""A number without a sign; NaN where it is not known."""


class Status(enum.Enum):
    """How an integration ended."""

    CONVERGED = "converged"
    """The error estimate is within the tolerance."""
    BUDGET = "budget spent"
    """The evaluation (or memory, or fixed step) budget ended first."""
    NOISE = "noise floor"
    """The gradients are not precise enough for this tolerance."""
    UNKNOWN = "unknown"
    """Rounding leaves so much that no error can be stated: nothing is known of the values."""
    JUMP = "not complete"
    """The score changes where no gradient flows: no integral of its gradient can sum to its change."""
    EXACT = "exact"
    """Nothing was estimated: the values are what the method defines, to rounding."""


MAX_KNOWN_ERROR = 0.3
"""The largest relative error that is knowledge: beyond it an estimate is relative to values that are mostly error."""


def final_status(status: Status, error: float) -> tuple[Status, float]:
    """Return the status and the error to state: beyond 30% nothing has converged, and rounding leaves an unknown error.

    >>> final_status(Status.NOISE, 0.02), final_status(Status.NOISE, 3e21), final_status(Status.CONVERGED, 0.4)
    ((<Status.NOISE: 'noise floor'>, 0.02), (<Status.UNKNOWN: 'unknown'>, nan), (<Status.BUDGET: 'budget spent'>, 0.4))
    """
    if error <= MAX_KNOWN_ERROR or status not in (Status.NOISE, Status.CONVERGED):
        return status, error
    return (Status.UNKNOWN, math.nan) if status is Status.NOISE else (Status.BUDGET, error)


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

    axiom: Annotated[str, Among(AXIOMS)]
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

    weight: Annotated[float, Within(known=True)]
    start_score: float
    end_score: float
    residual: float
    error: Amount
    gradients: Count


@dataclass(frozen=True, slots=True)
class ExampleCertificate:
    """What is known of one example's attribution.

    Attributes:
        score: F(x), the explained score at the input.
        baseline_score: F(x'), at the baseline (the mean over several).
        residual: what the sum misses, sum(values) - (F(x) - F(x')). Zero is necessary for accuracy, not sufficient.
        magnitude: sum|a| over the features, the scale of the error; on image networks far above |F(x) - F(x')|.
        error: estimated relative L1 error over the features, sum|a - a*| / sum|a*|. NaN where it is not known: too few nodes
            were used to tell, or rounding is larger than the values. Where nothing was integrated or sampled, what rounding
            does, as far as it was measured.
        tol: the tolerance that was asked for, in the same unit.
        gradients: gradient evaluations (one forward and one backward each) spent on this example.
        forwards: forward evaluations without a backward.
        status: how the integration ended.
        rule: the quadrature rule of the values.
        precision: what the model computed in.
        moved: by how much that may still move the values where it is less than what model and input are in: measured at nodes
            that were evaluated in both, relative like the error, and counted into it. Their mean difference is made up for.
        visible: how much of sum|a| the score can see, that moves up and down along the path, from 0 to 1: what cancels in the
            score, the sum of the attributions cannot tell, and gradients have to. None where nothing was integrated.
        target: the explained output, in words.
        needed: gradient evaluations that the tolerance is expected to take, where the budget was spent.
        unseen: for ``Status.JUMP``, how the score changes where no gradient flows: ``"jump"`` at one place (a threshold),
            ``"steps"`` at many (quantisation) or ``"throughout"`` (part of the model or the path is cut from autograd). For
            ``Status.NOISE`` and ``Status.UNKNOWN``, ``"rounding"`` where the model rounds inside, to far fewer digits than its
            precision has.
        jump_at: where on the path (0 to 1) the largest jump or step is that was found.
        jump_size: by how much the score changes there.
        curves: one certificate each for several baselines or pieces of a path.
        knob: what to raise where the budget was spent.
        note: what else the method has to say of this example.
        jumps: where the score can jump by what the target does, and what to explain instead, as the end of a sentence; '' for
            targets that cannot, such as an entry of the output.
    """

    score: float
    baseline_score: float
    residual: float
    magnitude: Amount
    error: Amount
    tol: Amount
    gradients: Count
    forwards: Count
    status: Status
    rule: str
    precision: str
    target: str
    needed: Annotated[int, Within(0)] | None = None
    jump_at: Annotated[float, Within(0, 1)] | None = None
    jump_size: float | None = None
    curves: tuple[CurveCertificate, ...] = ()
    knob: str = "raise max_evaluations, steps or memory"
    note: str = ""
    moved: Amount = 0.0
    visible: Annotated[float, Within(0, 1)] | None = None
    unseen: Literal["", "jump", "steps", "throughout", "rounding"] = ""
    jumps: str = ""

    @property
    def converged(self) -> bool:
        """Whether the estimate is within the tolerance, or there was nothing to estimate."""
        return self.status in (Status.CONVERGED, Status.EXACT)

    @property
    def remedy(self) -> str:
        """What to do about the status, in words ('' when there is nothing to do)."""
        if self.converged:
            return ""
        if self.status in (Status.NOISE, Status.UNKNOWN) and self.unseen == "rounding":
            above = f", or ask for a tolerance above {percent(self.error)}" if self.status is Status.NOISE else ""
            return (
                f"the score moves in steps of up to {number(self.jump_size)} about its slope: something inside the model "
                f"rounds (quantisation, a cast to fewer digits); take that out{above}"
            )
        if self.status is Status.UNKNOWN:
            finer = "" if self.precision == "float64" else "use a model and input in float64, "
            return (
                f"rounding in {precision_words(self.precision)} leaves an error above {percent(MAX_KNOWN_ERROR)}; {finer}"
                "explain the score before it is saturated (a logit rather than its probability), or start from another baseline"
            )
        if self.status is Status.NOISE and self.precision == "float64":
            return (
                f"rounding in float64 leaves an error of {percent(self.error)}, not within {percent(self.tol)}: the score is "
                "saturated, or large numbers cancel in it; explain the score before that (a logit rather than its "
                f"probability), or ask for a tolerance above {percent(self.error)}"
            )
        if self.status is Status.NOISE:
            wider = "a model and input in " + ("float32" if self.precision in ("bfloat16", "float16") else "float64")
            use = "precision='float32'" if self.moved else wider
            return (
                f"gradients in {precision_words(self.precision)} are not precise enough for a tolerance of "
                f"{percent(self.tol)}; use {use} or a tolerance above {percent(self.error)}"
            )
        if self.status is Status.JUMP:
            return self._unseen_change()
        if math.isnan(self.error):
            return "too few steps to estimate the error; use more, or None to integrate to a tolerance"
        wanted = "" if self.needed is None else f" (about {self.needed} evaluations)"
        return (
            f"the error is estimated at {estimated(self.error)}, not within {percent(self.tol)}; {self.knob}{wanted}"
            f"{', or ask for a larger tol' if self.error <= MAX_KNOWN_ERROR else ''}"
        )

    def _unseen_change(self) -> str:
        """What to do where the score changes without a gradient, in words."""
        if self.unseen == "throughout":
            return (
                f"{number(-self.residual)} of the change of the score comes from where no gradient flows, all along the path, "
                "so attributions cannot sum to it: part of the model or of the path is cut from autograd (.detach(), .data, "
                "torch.no_grad(), .item(), numpy), or a backward pass or a velocity is not the derivative; take that out"
            )
        if self.unseen == "steps":
            return (
                f"{number(-self.residual)} of the change of the score comes in small steps that have no gradient (one of "
                f"{number(self.jump_size)} at t = {number(self.jump_at, 8)} of the path), so attributions cannot sum to it; "
                "explain the model before it is quantised or rounded"
            )
        size = self.jump_size or 0.0
        elsewhere = " and elsewhere" if abs(self.residual + size) > 0.01 * abs(size) + self.tol * self.magnitude else ""
        cause, _, remedy = self.jumps.partition("; ")
        return (
            f"the score jumps by {number(size)} at t = {number(self.jump_at, 8)} of the path{elsewhere}, where it has no "
            f"gradient ({cause or 'rounding, argmax, a hard threshold'}), so attributions cannot sum to its change; "
            f"{remedy or 'explain a score before the threshold'}"
        )

    def __str__(self) -> str:
        exact = self.status is Status.EXACT
        accuracy = "" if exact else f"error {estimated(self.error)} (tol {percent(self.tol)})  "
        if exact and self.error > 1e-5:
            accuracy = f"rounding {percent(self.error)}  "
        spent = f"{self.gradients} gradients" if self.gradients else f"{self.forwards} forwards"
        line = (
            f"F(x) {number(self.score)}  F(x') {number(self.baseline_score)}  "
            f"sum misses {self.residual:+.1e} of |a| {number(self.magnitude, 3)}  "
            f"{accuracy}{spent}  {self.status.value}"
        )
        if self.moved:
            line += f"  in {precision_words(self.precision)}, within {percent(self.moved)} of float32"
        if self.note:
            line += f"  {self.note}"
        if self.remedy:
            line += f": {self.remedy}"
        return shown(line)  # notes and names may come from a file


def estimated(error: float) -> str:
    """An error estimate as a reader says it: one above 100% is only that.

    >>> estimated(0.012), estimated(3e21), estimated(math.nan)
    ('1.2%', 'above 100%', 'unknown')
    """
    return "above 100%" if error > 1 else percent(error)


def precision_words(precision: str) -> str:
    """What a model computed in, as a reader says it.

    >>> precision_words("tf32-backward")
    'float32 with TF32 backward passes'
    """
    return "float32 with TF32 backward passes" if precision == "tf32-backward" else precision


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
        """Whether every example met its tolerance; False where there is no example, for then nothing was."""
        return bool(self.examples) and all(example.converged for example in self.examples)

    @property
    def error(self) -> float:
        """The largest error estimate (NaN if any is unknown, or if there is no example)."""
        errors = [example.error for example in self.examples]
        return math.nan if any(map(math.isnan, errors)) else float(max(errors, default=math.nan))

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

    def __repr__(self) -> str:
        missed = sum(not example.converged for example in self.examples)
        said = f"{missed} NOT converged" if missed else "all converged"
        return f"Certificate({len(self.examples)} example(s), {said}, error at most {estimated(self.error)})"

    def __str__(self) -> str:
        if not self.examples:
            lines = ["no examples: nothing is known"]
        elif len(self.examples) == 1:
            lines = [str(self.examples[0])]
        else:
            width = len(str(len(self.examples) - 1))
            lines = [f"[{i:>{width}}] {example}" for i, example in enumerate(self.examples)]
        if self.broken:
            lines.append(f"no promise of {shown(', '.join(self.broken))}")
        return "\n".join(lines)
