"""Certificates in words: for a page, for a notebook and for the line under a picture."""

from __future__ import annotations

import math
from typing import Literal

from ..certificate import Certificate, ExampleCertificate, Status, estimated, precision_words
from ..words import number, percent
from .escaping import escape

MEANING = {
    Status.CONVERGED: "The error estimate is within the tolerance that was asked for.",
    Status.BUDGET: "The budget ended before the error estimate was within the tolerance.",
    Status.NOISE: "The gradients are not precise enough to tell more.",
    Status.UNKNOWN: "Rounding is larger than the values: nothing is known of them.",
    Status.JUMP: "The score changes where no gradient flows, so the attributions cannot add up to its change.",
    Status.EXACT: "Nothing was estimated: the values are what the method defines, to rounding.",
}

_ROWS_SHOWN = 100

CANCELS = 20.0
"""Where the magnitudes exceed the change of the score by this factor, the page explains why."""

LEAST_SAID = 1e-4
"""The smallest error that a sentence names."""

MISSES, UNUSABLE = 0.1, 0.33
"""The shares of the change that the sum may miss before a reader is told, and before it is called unusable."""


def facts(example: ExampleCertificate) -> list[tuple[str, str, str]]:
    """The certificate of one example as rows of (name, value, meaning in one line)."""
    change = example.score - example.baseline_score
    rows = [
        ("Score at the input", number(example.score), f"F(x): {example.target}, for what is explained."),
        ("Score at the baseline", number(example.baseline_score), "F(x′): the same output where the path begins."),
        (
            "Attributions add up to",
            number(change + example.residual),
            f"They should add up to F(x) − F(x′) = {number(change)}.",
        ),
        ("Without signs", number(example.magnitude), "Their magnitudes added up; the difference is what cancels."),
        ("The sum misses", f"{example.residual:+.1e}", "Near zero is necessary for accuracy, but not sufficient."),
        *_accuracy(example),
        (
            "Gradients evaluated",
            str(example.gradients),
            f"Each a forward and a backward pass. Forward passes besides: {example.forwards}.",
        ),
        ("Rule", example.rule, "How the values came about."),
        ("Precision", _precision(example), "What the model computed in."),
    ]
    if example.note:
        rows.append(("Note", example.note, "What else the method has to say."))
    if example.curves:
        rows.append(("Curves", str(len(example.curves)), "Baselines, or pieces of the path, that were added up."))
    return rows


def promises(certificate: Certificate) -> str:
    """Which of the paper's axioms the method promises, in a sentence; '' where the certificate says nothing of it."""
    if not certificate.promises:
        return ""
    kept = [promise.axiom for promise in certificate.promises if promise.kept]
    broken = [f"{promise.axiom} ({promise.why})" for promise in certificate.promises if not promise.kept]
    said = f"The method promises {', '.join(kept)}." if kept else "The method promises none of the paper's axioms."
    return said + (f" It does not promise {', '.join(broken)}." if broken else "")


def sentence(example: ExampleCertificate) -> str:
    """The change of the score and the sum of the attributions, in a sentence."""
    change = example.score - example.baseline_score
    return (
        f"From baseline to input the score goes from {number(example.baseline_score, 3)} to {number(example.score, 3)}, "
        f"a change of {number(change, 3)}. The attributions add up to {number(change + example.residual, 3)}."
    )


def cancelling(example: ExampleCertificate) -> str:
    """Why attributions of 400 can explain a score of 0.4, as a piece of HTML; '' where nothing much cancels.

    On networks for images the magnitudes were measured at 39 to 2,900 times the change of the score. The error is a share of
    the magnitudes, so that their sum may miss several per cent of the change; a reader who does not know that takes one
    of the two numbers for a mistake.
    """
    change, magnitude = example.score - example.baseline_score, example.magnitude
    if not math.isfinite(magnitude) or magnitude <= CANCELS * abs(change):
        return ""
    times = f", {magnitude / abs(change):,.0f} times as much" if change else ""
    said = [
        f"The score changes by {number(change, 3)}, but the attributions, added up without their signs, come to "
        f"{amount(magnitude)}{times}. Both are right. Many pixels raise the score and about as many lower it, and nearly "
        "all of that cancels: like an account with a large turnover whose balance hardly moves. On networks for images this is "
        "usual."
    ]
    if example.status is not Status.EXACT and math.isfinite(example.error):
        said.append(
            f"Accuracy is measured against the turnover: the errors of all attributions together are estimated at "
            f"{percent(example.error)} of {amount(magnitude)}. They have signs too and mostly cancel in a sum; what is left "
            f"in the sum of all is {example.residual:+.2g}{_of_change(example)}."
        )
        said.append(
            "So the pictures, which show where the strong attributions are, are as accurate as the estimate says. A sum over "
            "all pixels or a large region is a small difference of large numbers: read it with an uncertainty of about what "
            "the whole sum misses. A smaller tolerance makes it sharper."
        )
    body = "".join(f"<p>{escape(text)}</p>" for text in said)
    return f'<div class="aside"><h3>Why the attributions are so much larger than the score</h3>\n{body}</div>\n'


def amount(value: float) -> str:
    """A number written without powers of ten, for general readers.

    >>> amount(0.40391), amount(1808.6)
    ('0.404', '1,809')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else number(value, 3)


def trust(certificate: Certificate | ExampleCertificate) -> str:
    """How far numbers can be trusted, in a few words for the end of a sentence; several examples are counted."""
    examples = certificate.examples if isinstance(certificate, Certificate) else (certificate,)
    doubtful = [one for one in examples if not one.converged]
    if len(examples) > 1 and doubtful:
        return f"{len(doubtful)} of {len(examples)} not accurate enough"
    worst = doubtful[0] if doubtful else max(examples, key=lambda one: one.error if math.isfinite(one.error) else 0.0)
    if worst.status is Status.EXACT:
        return "numbers exact"
    off = f"error {_at_most(worst.error)}" if math.isfinite(worst.error) else "error not known"
    if worst.status is Status.JUMP:
        return f"numbers incomplete ({off})"
    if doubtful:
        return f"numbers not good to {percent(worst.tol)} ({off})"
    return f"numbers good to {_at_most(worst.error)}" + (", their sum is not" if any(map(sum_note, examples)) else "")


def plain_words(certificate: Certificate | ExampleCertificate) -> str:
    """What a certificate says, in a sentence or two for somebody who has never heard of integrals.

    Of several examples, the worst is spoken of.
    """
    examples = certificate.examples if isinstance(certificate, Certificate) else (certificate,)
    if not examples:
        return "Nothing was computed, so nothing can be said."
    doubtful = [one for one in examples if not one.converged]
    worst = max(doubtful or examples, key=lambda one: one.error if math.isfinite(one.error) else math.inf)
    which = f"For {len(doubtful)} of {len(examples)} parts: " if doubtful and len(examples) > 1 else ""
    help_ = f" {worst.remedy[:1].upper()}{worst.remedy[1:]}." if worst.remedy else ""
    about = "" if worst.error > 1 else "about "
    off = about + estimated(worst.error) if math.isfinite(worst.error) else "an unknown amount"
    if worst.status is Status.EXACT:
        return "These numbers are exact: nothing in them was approximated."
    if worst.status is Status.JUMP:
        return f"{which}Take these numbers with care: the score jumps somewhere, and nothing gets a share of the jump.{help_}"
    if doubtful:
        asked = percent(worst.tol)
        return f"{which}Do not rely on the details: these numbers may be off by {off}, where {asked} was asked for.{help_}"
    loose = " They are reliable one by one, but not what they add up to." if any(map(sum_note, examples)) else ""
    return (
        f"You can rely on these numbers: all their errors together are estimated at {_at_most(worst.error)} of the whole, and "
        f"{percent(worst.tol)} was asked for.{loose}"
    )


def _at_most(error: float) -> str:
    """An error for people, who have no use for 1.2e-05%.

    >>> _at_most(0.0093), _at_most(1.2e-7)
    ('0.93%', 'under 0.01%')
    """
    return percent(error) if error >= LEAST_SAID or error == 0 else f"under {percent(LEAST_SAID)}"


def grade(certificate: Certificate | ExampleCertificate) -> Literal["good", "mixed", "bad"]:
    """Whether numbers can be relied on: bad if any example failed, mixed if a sum misses much of the change, else good."""
    examples = certificate.examples if isinstance(certificate, Certificate) else (certificate,)
    if not all(one.converged for one in examples):
        return "bad"
    return "mixed" if any(map(sum_note, examples)) else "good"


def sum_note(example: ExampleCertificate) -> str:
    """A warning about the sum of the attributions, in a sentence or two; '' where the sum can be relied on.

    The error is a share of the magnitudes. Where nearly all of these cancel, each attribution may be accurate although
    what is left in the sum is as large as the change of the score.
    """
    change = example.score - example.baseline_score
    # What rounding leaves of a score that did not change is no miss.
    if not abs(example.residual) > max(MISSES * abs(change), 1e-6 * (example.magnitude or abs(example.score))):
        return ""
    usable = "is not usable for" if abs(example.residual) > UNUSABLE * abs(change) else "tells only roughly"
    misses = f"it misses {example.residual:+.2g}{_of_change(example)}"
    if example.status is Status.EXACT:
        return f"The attributions do not add up to the change of the score, nor does the method make them: {misses}."
    advice = "Compare single attributions or small regions with each other, or ask for a smaller tolerance."
    if not example.converged:
        return f"The sum {usable} the change of the score: {misses}. {advice}"
    return (
        f"The attributions are accurate one by one (their errors come to {percent(example.error)} of the magnitudes), but the "
        f"sum {usable} the change of the score: {misses}. {advice}"
    )


def caption(example: ExampleCertificate) -> str:
    """The certificate in one line, to go under a picture."""
    change = example.score - example.baseline_score
    return (
        f"F(x) − F(x′) = {number(change, 3)}, attributions add up to {number(change + example.residual, 3)}"
        f" (magnitudes: {number(example.magnitude, 3)})"
        + ("" if example.status is Status.EXACT else f"  ·  estimated error {percent(example.error)}")
        + ("" if example.status is Status.EXACT else f" (asked for {percent(example.tol)})")
        + (f"  ·  {example.gradients} gradients" if example.gradients else f"  ·  {example.forwards} forwards")
        + f"  ·  {example.status.value}"
        + (f"  ·  {example.note}" if example.note else "")
    )


def verdict(example: ExampleCertificate) -> str:
    """The status with its meaning and remedy as an HTML box: green, amber where the sum misses much, orange for failures."""
    advice = f" <strong>What to do:</strong> {escape(example.remedy)}." if example.remedy else ""
    return (
        f'<p class="verdict {grade(example)}"><span class="status">{escape(example.status.value)}</span> '
        f"{escape(_meaning(example))}{advice}</p>"
    )


def certificate_table(certificate: Certificate) -> str:
    """The certificate as an HTML fragment, for notebooks. Needs no optional package.

    Args:
        certificate: that of one example, shown with the meaning of each number, or of several, one line each.
    """
    if len(certificate) == 1:
        example = certificate[0]
        body = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:right;padding:0 1em">{escape(value)}</td>'
            f'<td style="text-align:left;opacity:.7">{escape(meaning)}</td></tr>'
            for name, value, meaning in facts(example)
        )
        said = f"<p>{escape(promises(certificate))}</p>" if certificate.broken else ""
        return f"<div>{_sentence(example)}<table>{body}</table>{said}</div>"
    titles = ("", "F(x)", "F(x′)", "sum misses", "error", "tolerance", "gradients", "status")
    head = "".join(f'<th style="text-align:right;padding:0 .6em">{title}</th>' for title in titles)
    body = "".join(_line(i, example) for i, example in enumerate(certificate.examples[:_ROWS_SHOWN]))
    more = len(certificate) - _ROWS_SHOWN
    note = f"<p>… and {more} more examples.</p>" if more > 0 else ""
    advice = "".join(f"<p>{_sentence(example)}</p>" for example in _different(certificate))
    advice += f"<p>{escape(promises(certificate))}</p>" if certificate.broken else ""
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}{advice}</div>"


def _precision(example: ExampleCertificate) -> str:
    return precision_words(example.precision) + (f", within {percent(example.moved)} of float32" if example.moved else "")


def _accuracy(example: ExampleCertificate) -> list[tuple[str, str, str]]:
    """The rows for the error and the tolerance; none where nothing was estimated."""
    if example.status is Status.EXACT:
        return []
    return [
        (
            "Estimated error",
            percent(example.error),
            "Errors of all features added up, as a share of all attributions added up (both without signs).",
        ),
        ("Tolerance", percent(example.tol), "The error that was asked for."),
    ]


def _of_change(example: ExampleCertificate) -> str:
    change = example.score - example.baseline_score
    return f", which is {percent(abs(example.residual / change))} of the change" if change else ""


def _meaning(example: ExampleCertificate) -> str:
    """What the status says of the result, with a warning where the sum cannot be relied on."""
    note = sum_note(example)
    if example.status is Status.CONVERGED and note:
        return note  # says both
    return f"{MEANING[example.status]} {note}".rstrip()


def _sentence(example: ExampleCertificate) -> str:
    remedy = example.remedy
    mark = "⚠" if not example.converged or sum_note(example) else "✓"
    advice = f" What to do: {escape(remedy)}." if remedy else ""
    return f"<strong>{mark} {escape(example.status.value)}.</strong> {escape(_meaning(example))}{advice}"


def _different(certificate: Certificate) -> list[ExampleCertificate]:
    """One example of each status that needs attention, apart for those whose sum can and cannot be relied on."""
    notable = (one for one in reversed(certificate.examples) if not one.converged or sum_note(one))
    found = {(example.status, not sum_note(example)): example for example in notable}
    return list(found.values())


def _line(i: int, example: ExampleCertificate) -> str:
    cells = (
        str(i),
        number(example.score),
        number(example.baseline_score),
        f"{example.residual:+.1e}",
        percent(example.error),
        percent(example.tol),
        str(example.gradients),
        example.status.value,
    )
    return "<tr>" + "".join(f'<td style="text-align:right;padding:0 .6em">{escape(cell)}</td>' for cell in cells) + "</tr>"
