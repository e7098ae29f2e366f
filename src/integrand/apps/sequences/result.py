"""What letters contribute to a network's output, with the errors of the integration and the spread over baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats
from ...attribution import Attribution
from ...batch.rows import Row
from ...certificate import CurveCertificate, ExampleCertificate, Status
from ...errors import InputError, OptionError
from ...files import write, write_text
from ...render import sequence as pictures
from ...render.notebook import LOW, notebook_view, said_first
from ...render.sequence.logo_data import Logo, Seqlet
from ...version import generator
from ...words import finite, plus_minus, short_repr, shown
from ..text.stored_text import checked, packed, unpacked
from .seqlets import strong_stretches
from .sequence_files import place_of
from .simplex import SimplexPaths


def combined(examples: Sequence[ExampleCertificate]) -> ExampleCertificate:
    """One certificate for the mean over several baselines, each integrated on its own.

    Errors and magnitudes are means: the L1 error of a mean is at most the mean of the errors. So the error is relative to the
    mean of the magnitudes, and what cancels between baselines does not make it larger.

    Args:
        examples: one certificate for each baseline.
    """
    if len(examples) == 1:
        return examples[0]
    size = float(np.mean([one.magnitude for one in examples]))
    off = float(np.mean([one.error * one.magnitude for one in examples]))
    error = off / size if size > 0 else 0.0 if off == 0 else math.inf
    final = (Status.JUMP, Status.NOISE, Status.UNKNOWN)
    worst = next((one for one in examples if one.status in final), None)
    worst = worst or next((one for one in examples if not one.converged), examples[0])
    met = not math.isnan(error) and error <= worst.tol and worst.status not in final
    status = Status.CONVERGED if met else worst.status
    if all(one.status is Status.EXACT for one in examples):
        status = Status.EXACT
    known = [one.visible for one in examples if one.visible is not None]
    return replace(
        worst,
        score=examples[0].score,
        baseline_score=float(np.mean([one.baseline_score for one in examples])),
        residual=float(np.mean([one.residual for one in examples])),
        magnitude=size,
        error=error,
        moved=float(np.mean([one.moved for one in examples])),
        gradients=sum(one.gradients for one in examples),
        forwards=sum(one.forwards for one in examples),
        status=status,
        needed=None if met else worst.needed,
        visible=float(np.mean(known)) if known else None,
        curves=tuple(
            CurveCertificate(1 / len(examples), one.baseline_score, one.score, one.residual, one.error, one.gradients)
            for one in examples
        ),
    )


@dataclass(frozen=True, repr=False, eq=False)
class SequenceAttribution:
    """The attribution of a network's output to the letters of a sequence.

    Attributes:
        letters: the sequence as it was given.
        alphabet: the letters in the order of the network's rows.
        values: what the letter at each position contributes, (L,): the mean over the baselines.
        errors: by how much the integration may be off in each, (L,).
        spread: the standard error of the mean over the baselines, (L,): what another draw of shuffles would change. None for a
            single baseline.
        hypothetical: what each letter would contribute if it stood there, (letters of the alphabet, L); at the letter that is
            there it is the value. None if that was not asked for.
        hypothetical_errors: by how much the integration may be off in each.
        each: the values for each baseline, (N, L).
        certificate: how far the numbers can be trusted; the error is relative to the mean of the baselines' magnitudes.
        seqlets: stretches in which the values are high, the strongest first; see :mod:`integrand.apps.sequences.seqlets`.
        baseline: what the sequence is compared with, in words.
        off_simplex: where the baseline's columns do not add up to 1 (all zeros): what leaving the simplex changed of the score,
            and its error. With ``correct=True`` no letter has a share in it.
        name: of the sequence.
        label: the output that is explained.
        said: what the network says; empty where its outputs have no names.
        probability: how probable that is to the network.
        notes: what a reader must not miss.
        attribution: the integrals as the engine gave them: of letters, of probes, of what leaves the simplex, each (N, letters,
            L); see :mod:`integrand.apps.sequences.simplex`. None in what was read from a table.
    """

    letters: str
    alphabet: str
    values: Floats
    errors: Floats
    spread: Floats | None
    hypothetical: Floats | None
    hypothetical_errors: Floats | None
    each: Floats
    certificate: ExampleCertificate
    seqlets: tuple[Seqlet, ...] = ()
    baseline: str = ""
    off_simplex: tuple[float, float] | None = None
    name: str = ""
    label: str = ""
    said: str = ""
    probability: float | None = None
    notes: tuple[str, ...] = ()
    correct: bool = True
    attribution: Attribution | None = field(default=None, kw_only=True)

    @staticmethod
    def of(
        found: Attribution,
        paths: SimplexPaths,
        certificate: ExampleCertificate,
        *,
        letters: str,
        columns: Floats,
        alphabet: str,
        correct: bool,
        **known: Any,
    ) -> SequenceAttribution:
        """Build the result from the integrals of :class:`~integrand.apps.sequences.simplex.SimplexModel`.

        Args:
            found: the integrals, one row per baseline.
            paths: what they were taken along.
            certificate: that of the mean over baselines.
            letters: the sequence.
            columns: its one-hot columns, (letters of the alphabet, L).
            alphabet: its letters.
            correct: whether what leaves the simplex is left out of the values.
            **known: further attributes.
        """
        length = len(letters)
        positions = torch.arange(length).expand(len(alphabet), length)
        sums = found.sums(_parts(paths, a=positions, w=None if correct else positions))
        each, errors = sums.values.numpy(), sums.errors.numpy().mean(0)
        values = each.mean(0)
        off = None
        if paths.leaves:
            gone = found.sums(_parts(paths, w=torch.zeros_like(positions)))
            off = (float(gone.values.mean()), float(gone.errors.mean()))
        others, others_off = _hypothetical(found, paths, columns, values, errors) if paths.probed else (None, None)
        made = SequenceAttribution(
            letters,
            alphabet,
            values,
            errors,
            each.std(0, ddof=1) / math.sqrt(len(each)) if len(each) > 1 else None,
            others,
            others_off,
            each,
            certificate,
            off_simplex=off,
            notes=_notes(off, correct),
            correct=correct,
            attribution=found,
            **known,
        )
        return replace(made, seqlets=tuple(made.stretch(*one) for one in strong_stretches(values)))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"attribution": None}

    def __len__(self) -> int:
        return len(self.letters)

    def stretch(self, start: int, end: int) -> Seqlet:
        """What the letters from ``start`` up to, not including, ``end`` add up to, counted from 0 as Python does.

        The error is that of the sum, in which errors partly cancel; in a result that was read from a table, the sum of the
        errors of its letters.

        Raises:
            OptionError: there is no such stretch.
        """
        if not 0 <= start < end <= len(self):
            raise OptionError(
                f"got the stretch {start} to {end} of {len(self)} letters; expected 0 <= start < end <= {len(self)}."
            )
        error = float(self.errors[start:end].sum())
        if self.attribution is not None:
            inside = torch.full((len(self.alphabet), len(self)), -1)
            inside[:, start:end] = 0
            shape = tuple(torch.full_like(inside, -1) for _ in self._leaves)
            shape = (inside, *shape[1:])
            if self.off_simplex is not None and not self.correct:
                shape = (*shape[:-1], inside)
            error = float(self.attribution.sums(shape).errors.mean())
        sums = self.each[:, start:end].sum(1)
        spread = float(sums.std(ddof=1) / math.sqrt(len(sums))) if len(sums) > 1 else math.nan
        return Seqlet(start, end, self.letters[start:end], float(self.values[start:end].sum()), error, spread)

    @property
    def _leaves(self) -> tuple[Tensor, ...]:
        assert self.attribution is not None
        return self.attribution.values  # type: ignore[return-value]

    @property
    def logo(self) -> Logo:
        """What :mod:`integrand.render.sequence` draws."""
        return Logo(
            self.letters,
            self.alphabet,
            self.values,
            self.errors,
            self.spread,
            self.hypothetical,
            self.hypothetical_errors,
            self.seqlets,
            self.certificate,
            self.label,
            self.said,
            self.probability,
            self.baseline,
            self.name,
            self.notes,
        )

    @property
    def sentence(self) -> str:
        """What the network says, because of which letters, and how sure the numbers are, in one line."""
        return self.logo.sentence

    def html(self, **options: Any) -> str:
        """One self-contained HTML page; options as in :func:`integrand.render.sequence.page`."""
        return pictures.page(self.logo, **options)

    def figure(self, **options: Any) -> Any:
        """The logo drawn with matplotlib; options as in :func:`integrand.render.sequence.figure`."""
        return pictures.figure(self.logo, **options)

    def numbers(self) -> dict[str, Any]:
        """Everything as a dictionary for JSON; positions count from 1, and stretches include their last letter."""
        one = self.certificate
        head: dict[str, Any] = {"name": self.name, "sentence": self.sentence, "sequence": self.letters}
        head |= {"alphabet": self.alphabet, "label": self.label, "said": self.said, "probability": self.probability}
        head |= {"baseline": self.baseline, "score": one.score, "baseline_score": one.baseline_score}
        head |= {"error": one.error, "tol": one.tol, "status": one.status.value, "gradients": one.gradients}
        head |= {"values": self.values, "errors": self.errors, "standard_errors_over_baselines": self.spread}
        head |= {"hypothetical": self.hypothetical, "hypothetical_errors": self.hypothetical_errors}
        head["off_simplex"] = self.off_simplex
        head["seqlets"] = [
            {"start": s.start + 1, "end": s.end, "letters": s.letters, "value": s.value, "error": s.error, "spread": s.spread}
            for s in self.seqlets
        ]
        return {key: finite(value) if key != "seqlets" else [finite(s) for s in value] for key, value in head.items()}

    def csv(self) -> str:
        """A line for each position: number (from 1), letter, value, error, standard error over baselines, hypothetical ones."""
        names = ["position", "letter", "value", "error", "standard_error_over_baselines"]
        more = [] if self.hypothetical is None else [f"hypothetical_{letter}" for letter in self.alphabet]
        lines = [",".join([*names, *more])]
        for i, letter in enumerate(self.letters):
            spread = "" if self.spread is None else repr(float(self.spread[i]))
            rest = [] if self.hypothetical is None else [repr(float(v)) for v in self.hypothetical[:, i]]
            cells = [str(i + 1), letter, repr(float(self.values[i])), repr(float(self.errors[i])), spread, *rest]
            lines.append(",".join(cells))
        return "\n".join(lines) + "\n"

    def bedgraph(self, chromosome: str | None = None, start: int | None = None) -> str:
        """The values as bedGraph for a genome browser.

        Args:
            chromosome: where the sequence is from; by default as its name tells it (``chr1:1000-1200``), or the name itself.
            start: where it begins there, counted from 0.
        """
        place = place_of(self.name, len(self)) or (self.name.split(" ")[0] or "sequence", 0)
        where, first = chromosome or shown(place[0]), place[1] if start is None else start
        lines = [f"# {generator()}", f'track type=bedGraph name="attributions" description="{shown(self.label) or "output"}"']
        lines += [f"{where}\t{first + i}\t{first + i + 1}\t{float(v):.6g}" for i, v in enumerate(self.values)]
        return "\n".join(lines) + "\n"

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result in the format its suffix names: ``.html``, ``.json``, ``.csv``, ``.bedgraph``, or a picture."""
        where = Path(path)
        text = {".csv": self.csv, ".bedgraph": self.bedgraph}.get(where.suffix.lower())
        if text is not None:
            write_text(where, text(**options))
            return where
        return write(where, options, picture=self.figure, numbers=self.numbers, report=self.html)

    def row(self) -> Row:
        """The result as a row of a table of many sequences; the column ``details`` holds what :meth:`of_details` needs."""
        stretches: dict[str, float] = {}
        for one in self.seqlets:  # by their letters, so that a summary of many sequences finds what comes again
            name = one.letters.upper()
            stretches[name] = stretches.get(name, 0.0) + one.value
        return Row.of(
            self.certificate,
            prediction=self.said or None,
            probability=self.probability,
            target=self.label or "the output",
            sentence=self.sentence,
            notes=self.notes,
            features=tuple(f"{i}:{letter}" for i, letter in enumerate(self.letters, 1)),
            attributions=self.values,
            attribution_errors=tuple(self.errors.tolist()) if np.isfinite(self.errors).all() else None,
            groups=tuple(stretches),
            group_sums=tuple(stretches.values()),
            details=packed(StoredSequence.of(self)),
        )

    @staticmethod
    def of_details(details: str | None) -> SequenceAttribution:
        """The result whose row has this in its column ``details``; every value is checked.

        Raises:
            FileError: it is not what :meth:`row` writes.
        """
        found: SequenceAttribution = checked(unpacked(StoredSequence, details))
        return found

    def __str__(self) -> str:
        head = [self.sentence, f"  compared with {self.baseline}"] if self.baseline else [self.sentence]
        rows = [f"  {one}" for one in self.seqlets]
        if self.off_simplex is not None:
            rows.append(f"  leaving the simplex: {plus_minus(*self.off_simplex)}")
        return "\n".join([*head, *rows, f"  {self.certificate}"])

    __repr__ = short_repr

    def _small_html_(self) -> str:
        return said_first(self, pictures.fragment(self.logo))

    def _repr_html_(self) -> str:
        return notebook_view(self, self.html, self._small_html_, height=LOW)


def _parts(
    paths: SimplexPaths, *, a: Tensor | None = None, u: Tensor | None = None, w: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Labels for sums over some of the parts of the integrals; the others are left out."""
    out = torch.full(paths.ends[0].shape[1:], -1)
    parts = [out if a is None else a]
    parts += [out if u is None else u] if paths.probed else []
    parts += [out if w is None else w] if paths.leaves else []
    return tuple(parts)


def _hypothetical(
    found: Attribution, paths: SimplexPaths, columns: Floats, values: Floats, errors: Floats
) -> tuple[Floats, Floats]:
    """What each letter would get at each position, and its error, (letters of the alphabet, L) each.

    It is the value of the position plus C(G)_c minus that of what is there. The error is at most the sum of the three errors.
    """
    shape = columns.shape
    own = torch.arange(columns.size).reshape(shape)
    sums = found.sums(_parts(paths, u=own))
    slopes, off = (part.numpy().mean(0).reshape(shape) / paths.reach for part in (sums.values, sums.errors))
    there = (columns * slopes).sum(0)
    weights = np.abs(np.eye(len(columns))[:, :, None] - columns[None])
    return values + slopes - there, errors + (weights * off[None]).sum(1)


def _notes(off: tuple[float, float] | None, correct: bool) -> tuple[str, ...]:
    if off is None:
        return ()
    if correct:
        said = "of the score's change comes from leaving the simplex, where no sequence is, and is given to no letter"
        return (f"{plus_minus(*off)} {said} (correct=False shares it out).",)
    said = "that come from leaving the simplex, where no sequence is: a network's slope there is arbitrary"
    return (f"The values hold {plus_minus(*off)} {said} (correct=True leaves them out).",)


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """A :class:`SequenceAttribution` as JSON holds it, in a row of a table."""

    kind: Literal["sequence"]
    letters: str
    alphabet: str
    values: tuple[float, ...]
    errors: tuple[float, ...]
    spread: tuple[float, ...] | None
    hypothetical: tuple[tuple[float, ...], ...] | None
    hypothetical_errors: tuple[tuple[float, ...], ...] | None
    certificate: ExampleCertificate
    seqlets: tuple[Seqlet, ...]
    baseline: str
    off_simplex: tuple[float, ...] | None
    name: str
    label: str
    said: str
    probability: float | None
    notes: tuple[str, ...]
    correct: bool

    __repr__ = short_repr

    @staticmethod
    def of(found: SequenceAttribution) -> StoredSequence:
        """A result as it is kept, without the values for each baseline."""

        def plain(values: Floats | None) -> Any:
            return None if values is None else values.tolist()

        return StoredSequence(
            "sequence",
            found.letters,
            found.alphabet,
            plain(found.values),
            plain(found.errors),
            plain(found.spread),
            plain(found.hypothetical),
            plain(found.hypothetical_errors),
            found.certificate,
            found.seqlets,
            found.baseline,
            found.off_simplex,
            found.name,
            found.label,
            found.said,
            found.probability,
            found.notes,
            found.correct,
        )

    def found(self) -> SequenceAttribution:
        """The same result; an error if its parts contradict each other."""
        if any(self.letters[one.start : one.end] != one.letters for one in self.seqlets):
            raise InputError("a seqlet is not where it should be in the sequence")
        values = np.array(self.values, np.float64)
        made = SequenceAttribution(
            self.letters,
            self.alphabet,
            values,
            np.array(self.errors, np.float64),
            None if self.spread is None else np.array(self.spread, np.float64),
            None if self.hypothetical is None else np.array(self.hypothetical, np.float64),
            None if self.hypothetical_errors is None else np.array(self.hypothetical_errors, np.float64),
            values[None],
            self.certificate,
            self.seqlets,
            self.baseline,
            None if self.off_simplex is None else (self.off_simplex[0], self.off_simplex[-1]),
            self.name,
            self.label,
            self.said,
            self.probability,
            self.notes,
            self.correct,
        )
        _ = made.logo  # which counts them
        return made
