"""Explains networks on sequences: which letters made the output what it is, and what others would have done in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ...api import integrated_gradients
from ...arrays import Floats
from ...errors import InputError, OptionError, OutputError, TargetError
from ...functions.model_state import modules_of
from ...functions.target import Score
from ...loading import shipped
from ...render.notebook import ResultList
from ...schema import parsed
from ...tensor_files import read_safetensors
from ...words import first_line, short_repr, shortened, shown
from .alphabets import GAP, Alphabet, background_of
from .result import SequenceAttribution, combined
from .sequence_files import FastaRecord, is_fasta, read_fasta
from .shuffles import dinucleotide_shuffle
from .simplex import Layout, SimplexModel, SimplexPaths

BaselineName = Literal["shuffled", "zero", "uniform"]
SequenceBaseline = BaselineName | str | Tensor | Sequence[str]
"""What may be passed as baseline: a name, a sequence or several of the same length, or one-hot tensors in the layout."""

SOURCES = {
    "motifs": "integrand's own, trained on made sequences with motifs of JASPAR 2024 (CC BY 4.0) by training/train_motifs.py"
}

SHUFFLES = 20
"""Baselines that are averaged by default, as is usual in the field."""

OWN = frozenset(("x", "args", "kwargs", "batched", "groups", "layer", "mask", "create_graph"))
"""Options of :func:`integrand.integrated_gradients` that cannot be given for sequences, whose inputs are made here."""

MOST_BASELINES = 1000
"""The most baselines for one sequence: a thousand shuffles have a standard error of a thirtieth of their spread."""


@dataclass(frozen=True, eq=False)
class SequenceModel:
    """A network on one-hot sequences with what is known about it.

    Attributes:
        module: from (N, letters, L), or (N, L, letters), to scores, (N,) or (N, outputs).
        alphabet: the letters, in the order of the network's rows.
        layout: ``letters-positions`` for (N, letters, L), ``positions-letters`` for (N, L, letters).
        classes: names of the outputs. Two names for a single output are those of a negative and a positive logit.
        name: what it is called.
        source: where it is from.
        motifs: by name, the probabilities of the letters of motifs that it was trained to find, (width, letters); for the
            network that is shipped.
    """

    module: Callable[..., Any]
    alphabet: Alphabet
    layout: Layout = "letters-positions"
    classes: tuple[str, ...] = ()
    name: str = ""
    source: str = ""
    motifs: Mapping[str, Floats] = field(default_factory=dict, repr=False)

    __repr__ = short_repr

    together: ClassVar[int] = 1
    """Sequences that are explained in one call where there are many; see :func:`integrand.explain_many`."""

    @cached_property
    def _like(self) -> Tensor:
        """A tensor with the device and the precision of the weights."""
        tensors = (one for module in modules_of(self.module) for one in module.parameters())
        found = next((one for one in tensors if one.dtype.is_floating_point), None)
        return torch.zeros(()) if found is None else torch.zeros((), dtype=found.dtype, device=found.device)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that an answer depends on beside the sequence, for the fingerprint of a table."""
        about = {"alphabet": self.alphabet.letters, "layout": self.layout, "classes": self.classes}
        return {"model": self.name, "network": self.module} | about

    def size(self, sequence: str) -> float:
        """The number of letters; an error where there is one that the alphabet does not have."""
        return float(len(self.alphabet.spelled(sequence)))

    def outputs(self, sequence: str | Tensor) -> Tensor:
        """What the network gives for a sequence, (outputs,)."""
        _, columns = self._columns(sequence)
        with torch.no_grad():
            return self._outputs(columns)

    def _outputs(self, columns: Tensor) -> Tensor:
        """The outputs, (K,), at columns (letters, L)."""
        x = columns[None] if self.layout == "letters-positions" else columns.T[None].contiguous()
        try:
            found = self.module(x)
        except RuntimeError as error:
            raise InputError(
                f"the network does not take a tensor of shape {tuple(x.shape)} ({first_line(error)}); expected a sequence of "
                "the length that it was made for, and alphabet= and layout= as it was trained: letters-positions for (N, "
                "letters, L), positions-letters for (N, L, letters)."
            ) from error
        if not isinstance(found, Tensor) or found.ndim not in (1, 2) or len(found) != 1:
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise OutputError(
                f"the network gives {got} for one sequence; expected (1,) or (1, outputs). Wrap it in a function that gives "
                "one number, or one per output."
            )
        return found.reshape(-1)

    def explain(
        self,
        sequence: str | Tensor | FastaRecord,
        *,
        baseline: SequenceBaseline = "shuffled",
        shuffles: int = SHUFFLES,
        seed: int = 0,
        background: Sequence[float] | None = None,
        target: int | str | None = None,
        score: Score = "logit",
        hypothetical: bool = True,
        correct: bool = True,
        tol: float = 0.01,
        **options: Any,
    ) -> SequenceAttribution:
        """Find which letters of a sequence made the output what it is; see :func:`explain` for the options."""
        if taken := sorted(OWN & set(options)):
            raise OptionError(
                f"got {', '.join(taken)}, which a sequence decides itself; expected other options. What else the network takes "
                "goes into a function around it: lambda x: network(x, more)."
            )
        name, given = (sequence.name, sequence.sequence) if isinstance(sequence, FastaRecord) else ("", sequence)
        letters, columns = self._columns(given)
        answer = self._answer(columns, target)
        starts, told = self._baselines(baseline, letters, columns, shuffles, seed, background)
        paths = SimplexPaths.of(columns, starts, probed=hypothetical)
        named: dict[str, Any] = {"score": score, "tol": tol, "progress": False, "target": answer.column}
        asked = named | options | {"batched": True}
        model = SimplexModel(self.module, self.layout, paths)
        found = integrated_gradients(model, paths.ends, paths.starts, **asked)
        label = f"{answer.label} ({score})" if answer.label else found.certificate[0].target
        certificate = replace(combined(found.certificate.examples), target=label)
        return SequenceAttribution.of(
            found,
            paths,
            certificate,
            letters=letters,
            columns=columns.double().cpu().numpy(),
            alphabet=self.alphabet.letters,
            correct=correct,
            baseline=told,
            name=name,
            label=answer.label,
            said=answer.said,
            probability=answer.probability,
        )

    def _columns(self, sequence: str | Tensor) -> tuple[str, Tensor]:
        """The letters as they were given, and the columns (letters, L) on the network's device."""
        if isinstance(sequence, str):
            text = "".join(sequence.split())
            return text, torch.as_tensor(self.alphabet.encoded(text)).to(self._like)
        if not isinstance(sequence, (Tensor, np.ndarray)):
            raise InputError(
                f"got a {type(sequence).__name__} as a sequence; expected letters, or a one-hot tensor of shape "
                f"({len(self.alphabet)}, L)."
            )
        given = torch.as_tensor(sequence).detach()
        if given.ndim == 3 and len(given) == 1:
            given = given[0]
        if given.ndim != 2:
            raise InputError(
                f"got a one-hot sequence of shape {tuple(given.shape)}; expected one sequence, ({len(self.alphabet)}, L), or "
                f"(L, {len(self.alphabet)}) with layout='positions-letters'. integrand.sequences.explain takes several."
            )
        columns = given if self.layout == "letters-positions" else given.T
        return self.alphabet.decoded(columns.double().cpu().numpy()), columns.contiguous().to(self._like)

    def _baselines(
        self,
        baseline: SequenceBaseline,
        letters: str,
        columns: Tensor,
        shuffles: int,
        seed: int,
        background: Sequence[float] | None,
    ) -> tuple[Tensor, str]:
        """The columns of all baselines, (N, letters, L), and what they are in words."""
        if background is not None and baseline != "uniform":
            raise OptionError("got background=, which is for baseline='uniform'; expected one with the other.")
        if isinstance(baseline, str) and baseline in get_args(BaselineName):
            padding = columns.sum(0) == 0
            if baseline == "shuffled":
                return self._shuffled(letters, columns, shuffles, seed)
            level = background_of(background, len(self.alphabet)) if baseline == "uniform" else np.zeros(len(self.alphabet))
            start = torch.as_tensor(level).to(columns)[:, None].expand_as(columns)
            if bool(padding.all()):
                raise InputError("got a sequence of nothing but padding (zeros); expected letters.")
            told = "all zeros" if baseline == "zero" else "even shares" if background is None else "background frequencies"
            return torch.where(padding, torch.zeros_like(start), start)[None], told
        if isinstance(baseline, Tensor):
            return self._given(baseline, columns), "a tensor of one's own"
        several = [baseline] if isinstance(baseline, str) else list(baseline)
        if not several or len(several) > MOST_BASELINES:
            raise OptionError(f"got {len(several)} baselines; expected 1 to {MOST_BASELINES:,}.")
        made = []
        for one in several:
            text = "".join(one.split()) if isinstance(one, str) else one
            if not isinstance(text, str) or len(text) != columns.shape[1]:
                raise OptionError(
                    f"got baseline={shortened(shown(str(one)), 40)!r}; expected one of {', '.join(get_args(BaselineName))}, or "
                    f"a sequence of {columns.shape[1]} letters, as long as the one that is explained."
                )
            made.append(torch.as_tensor(self.alphabet.encoded(text)).to(columns))
        return torch.stack(made), "another sequence" if len(made) == 1 else f"{len(made)} other sequences"

    def _shuffled(self, letters: str, columns: Tensor, shuffles: int, seed: int) -> tuple[Tensor, str]:
        if not 1 <= shuffles <= MOST_BASELINES:
            raise OptionError(f"got shuffles={shuffles}; expected 1 to {MOST_BASELINES:,}.")
        spelled = self.alphabet.spelled(letters)
        unknown = "".join(sorted(set(spelled) - set(self.alphabet.letters) - {GAP}))
        # What is not known, and padding, stays where it is.
        made = dinucleotide_shuffle(spelled, shuffles, seed=seed, fixed=unknown + GAP)
        if all(one == spelled for one in made):
            raise InputError(
                f"no other sequence has the same {self._pairs}s, so that there is nothing to shuffle; expected a longer or "
                "more varied sequence, or baseline='uniform'."
            )
        starts = torch.stack([torch.as_tensor(self.alphabet.encoded(one)).to(columns) for one in made])
        for i, letter in enumerate(spelled):  # a user's tensor may have shares of its own there
            if letter in unknown:
                starts[:, :, i] = columns[:, i]
        return starts, f"{shuffles} {self._pairs} shuffle{'s' if shuffles > 1 else ''} (seed {seed})"

    @property
    def _pairs(self) -> str:
        """What neighbours are called, which shuffles keep."""
        return "dipeptide" if self.alphabet.name == "protein" else "dinucleotide"

    def _given(self, baseline: Tensor, columns: Tensor) -> Tensor:
        given = baseline.detach().to(columns)
        given = given[None] if given.ndim == 2 else given
        if self.layout == "positions-letters" and given.ndim == 3:
            given = given.transpose(1, 2)
        if given.ndim != 3 or given.shape[1:] != columns.shape or not 1 <= len(given) <= MOST_BASELINES:
            shape = tuple(columns.shape) if self.layout == "letters-positions" else tuple(columns.T.shape)
            raise InputError(
                f"got a baseline of shape {tuple(baseline.shape)}; expected {shape}, that of the sequence, or (number, "
                f"{shape[0]}, {shape[1]}) for several that are averaged."
            )
        return given.contiguous()

    def _answer(self, columns: Tensor, target: int | str | None) -> Answered:
        """What the network says, and which output is explained."""
        with torch.no_grad():
            outputs = self._outputs(columns).double().cpu()
        count, names = len(outputs), self.classes
        if names and len(names) != count and not (count == 1 and len(names) == 2):
            raise OptionError(
                f"got {len(names)} names in classes for {count} output{'s' * (count != 1)}; expected one for each, or two for "
                "a single logit: what it says below and above 0."
            )
        if count == 1:
            if target not in (None, 0, "0", *names[-1:]):
                known = f", {names[-1]!r}" if names else ""
                against = f" What speaks for {names[0]!r} has a minus sign." if len(names) == 2 and target == names[0] else ""
                raise TargetError(
                    f"got target={target!r}, but the network has a single output; expected 0{known}, or none.{against}"
                )
            if not names:
                return Answered(None, "")
            chance = float(torch.sigmoid(outputs[0]))
            said = f"{names[-1]}" if chance >= 0.5 or len(names) == 1 else names[0]
            return Answered(None, names[-1], said, chance if said == names[-1] else 1 - chance)
        index = self._index(target, count) if target is not None else int(outputs.argmax())
        if not names:
            return Answered(index, f"output {index}")
        chances = outputs.softmax(0)
        best = int(chances.argmax())
        return Answered(index, names[index], names[best], float(chances[best]))

    def _index(self, target: int | str, count: int) -> int:
        if isinstance(target, str) and target in self.classes:
            return self.classes.index(target)
        try:
            index = int(target)
        except ValueError:
            index = -1
        if not 0 <= index < count:
            names = f", or one of {', '.join(self.classes)}" if self.classes else ""
            raise TargetError(f"got target={target!r}; expected a number from 0 to {count - 1}{names}.")
        return index


@dataclass(frozen=True)
class Answered:
    """What a network says of a sequence.

    Attributes:
        column: the output that is explained; None for the only one.
        label: its name.
        said: the name of what the network says; empty where outputs have no names.
        probability: how probable that is to the network; None where that is not known.
    """

    column: int | None
    label: str
    said: str = ""
    probability: float | None = None


def explain(
    model: Callable[..., Any] | SequenceModel,
    sequence: str | PathLike[str] | Tensor | FastaRecord | Sequence[Any],
    *,
    alphabet: Alphabet | str = "DNA",
    layout: Layout = "letters-positions",
    baseline: SequenceBaseline = "shuffled",
    shuffles: int = SHUFFLES,
    seed: int = 0,
    background: Sequence[float] | None = None,
    target: int | str | None = None,
    score: Score = "logit",
    classes: Sequence[str] = (),
    hypothetical: bool = True,
    correct: bool = True,
    tol: float = 0.01,
    **options: Any,
) -> Any:
    """Find which letters of a sequence made a network's output what it is.

    >>> import torch, integrand as ig
    >>> weights = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 4.0]])       # a score for each letter at each place
    >>> found = ig.sequences.explain(lambda x: (x * weights).sum((1, 2)), "AT", baseline="uniform")
    >>> found.values.round(2)                                        # 1 - 1/4, and 4 - 6/4
    array([0.75, 2.5 ])

    Args:
        model: takes one-hot sequences, and gives (N,) or (N, outputs); or what :func:`load` gives, which knows its alphabet,
            layout and classes.
        sequence: letters; small (masked) ones count like others, those that stand for several (N, R, X ...) have even shares,
            ``-`` is padding. Or a one-hot tensor in the layout, one of several (N, letters, L), the name of a FASTA file, or a
            list of any of these.
        alphabet: ``DNA`` (ACGT), ``RNA`` (ACGU), ``protein`` (ACDEFGHIKLMNPQRSTVWY), or the letters in the order of the
            network's rows.
        layout: ``letters-positions`` if the network takes (N, letters, L), ``positions-letters`` for (N, L, letters).
        baseline: ``shuffled`` averages over sequences with the same dinucleotides, each with its own integral; ``uniform``
            has even shares of all letters, or ``background``; ``zero`` has nothing anywhere, which is no sequence. Or another
            sequence, several, or a tensor in the layout.
        shuffles: how many.
        seed: of the shuffles.
        background: for ``uniform``, the frequency of each letter.
        target: the output to explain, by number or name; None for the only one, or the highest.
        score: ``logit`` for outputs as they are, ``probability`` or ``log-probability``.
        classes: names of the outputs; two names for a single output are what it says below and above 0.
        hypothetical: also find what every other letter would get in the place of each.
        correct: leave out what one-hot encoding leaves free. Changes nothing where the baseline's columns add up to 1.
        tol: the relative error over letters and positions (and hypothetical contributions) to integrate to, for each baseline.
        **options: further ones of :func:`integrand.integrated_gradients`.

    Returns:
        A :class:`SequenceAttribution`; a list of them for a list, a tensor of several, or a FASTA file.
    """
    bound = model if isinstance(model, SequenceModel) else of_module(model, alphabet=alphabet, layout=layout, classes=classes)
    how: dict[str, Any] = {"baseline": baseline, "shuffles": shuffles, "seed": seed, "background": background}
    how |= {"target": target, "score": score, "hypothetical": hypothetical, "correct": correct, "tol": tol} | options
    if isinstance(sequence, PathLike) or (isinstance(sequence, str) and is_fasta(sequence)):
        return ResultList(bound.explain(_good(record), **how) for record in read_fasta(sequence))
    if isinstance(sequence, (Tensor, np.ndarray)) and sequence.ndim == 3:
        sequence = list(sequence)
    if isinstance(sequence, (str, Tensor, FastaRecord, np.ndarray)):
        return bound.explain(sequence, **how)
    if not isinstance(sequence, Sequence) or not sequence:
        empty = "n empty" if isinstance(sequence, Sequence) else ""
        raise InputError(
            f"got a{empty} {type(sequence).__name__} as a sequence; expected letters, a one-hot tensor, or a list of them."
        )
    return ResultList(bound.explain(one, **how) for one in sequence)


def of_module(
    module: Callable[..., Any],
    *,
    alphabet: Alphabet | str = "DNA",
    layout: Layout = "letters-positions",
    classes: Sequence[str] = (),
    name: str = "",
) -> SequenceModel:
    """A network of one's own with its alphabet, layout and names of outputs; see :func:`explain`."""
    if layout not in get_args(Layout):
        raise OptionError(f"got layout={layout!r}; expected letters-positions for (N, letters, L), or positions-letters.")
    if not callable(module):
        raise InputError(f"got a {type(module).__name__} as a model; expected a network, or a function of tensors.")
    return SequenceModel(module, Alphabet.of(alphabet), layout, tuple(classes), name or type(module).__name__)


def load(name: str = "motifs", device: torch.device | str | None = None) -> SequenceModel:
    """Load a network that is shipped, onto a device, by default a GPU where torch finds one.

    Args:
        name: ``motifs``: whether 200 letters of DNA hold an AP-1 site with a GATA1 site 4 to 20 letters away.
        device: where to.
    """
    if name not in SOURCES:
        raise OptionError(f"got the model {name!r}; expected one of {', '.join(SOURCES)}.")
    from .motif_network import MotifNetwork

    path = shipped(f"{name}.safetensors", "finding motifs", extra="sequences")
    weights, header = read_safetensors(path, what="a network on sequences")
    module = MotifNetwork()
    module.load_state_dict(weights)
    classes, motifs = (parsed(header.get(key, ""), what=path.name) for key in ("classes", "motifs"))
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        frozen = module.eval().requires_grad_(False).to(torch.device(place))
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # what torch says to a device that it has not
        raise OptionError(
            f"got device {str(device)!r} ({first_line(error)}); expected one that torch has here, such as cpu or cuda."
        ) from error
    known = {motif: np.array(one) / np.array(one).sum(1, keepdims=True) for motif, one in motifs.items()}
    return SequenceModel(frozen, Alphabet.of("DNA"), "letters-positions", tuple(classes), name, SOURCES[name], known)


def _good(record: FastaRecord) -> FastaRecord:
    if record.problem:
        raise InputError(f"the sequence {shown(record.name)[:60]!r} cannot be explained: {record.problem}.")
    return record
