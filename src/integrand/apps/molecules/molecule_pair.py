"""Two networks, or more, on one molecule: what each atom adds in each of them, and in which atoms they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...analysis.model_comparison import ModelAnswer, ModelComparison
from ...arrays import Floats
from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import OptionError
from ...functions.target import Score
from ...words import percent
from .result import MoleculeAttribution, MoleculeModel

if TYPE_CHECKING:
    from rdkit.Chem import Mol


def compare(
    molecule: str | Mol,
    models: Mapping[str, MoleculeModel],
    *,
    target: str | int | Mapping[str, str | int] | None = None,
    score: Score | None = None,
    tol: float = 0.01,
    max_evaluations: int = 4000,
    memory: int | None = None,
) -> ModelComparison:
    """Explain the same molecule with several networks, and in which atoms their reasons differ.

    An atom counts with half of each of its pairs, so that the atoms of each network add up to the change of its score. The
    networks may read other features and other pairs; only their scores must be in the same units.

    Args:
        molecule: a SMILES, or a molecule of RDKit (whose hydrogens are taken off).
        models: two or more by name, from :func:`integrand.apps.molecules.load` or your own.
        target: the output to explain, where networks have several, or a mapping from their names to theirs.
        score: ``probability`` (the default where networks give any), ``log-probability`` or ``logit``.
        tol: the relative error over atoms and pairs to integrate each network to.
        max_evaluations: gradients that each network may take.
        memory: bytes that the run may hold.

    Returns:
        The comparison; ``values`` and ``difference`` are by atom, (1, atoms), and ``errors`` says how far each may be off.

    Raises:
        OptionError: there are fewer than two networks, or their scores are in other units.
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        raise OptionError(
            "expected two or more networks by name: {'w2n2': molecules.load('weave-w2n2'), 'w1n2': molecules.load("
            "'weave-w1n2')}."
        )
    if isinstance(target, Mapping) and set(target) != set(models):
        raise OptionError(f"got targets for {sorted(map(str, target))}; expected one for each network: {sorted(models)}.")
    options: dict[str, Any] = {"tol": tol, "max_evaluations": max_evaluations}
    if memory is not None:
        options["memory"] = memory
    found: dict[str, MoleculeAttribution] = {}
    for name, model in models.items():
        chosen = target[name] if isinstance(target, Mapping) else target
        [found[name]] = model.explain([molecule], target=chosen, score=score, **options)
        _check_alike(found)
    first = next(iter(found.values()))
    others = tuple(dict.fromkeys(part for one in found.values() for part in one.others))
    groups = {atom: group for group, places in first.groups.items() for place in places for atom in place}
    atoms = (f"{first.name(i)} ({groups[i]})" if i in groups else first.name(i) for i in range(len(first.atoms)))
    meta = {"molecule": first.smiles, "method": "integrated gradients", "tolerance": percent(tol)}
    meta |= {"baseline": "all features of atoms and bonds zero", "an atom": "with half of each of its pairs"}
    meta |= {name: f"{one.label}; {models[name].source}" for name, one in found.items()}
    return ModelComparison(
        {name: _by_atom(one, others) for name, one in found.items()},
        {name: (_answer(one),) for name, one in found.items()},
        _unit(first),
        features=(*atoms, *others),
        meta=meta,
        molecule=first.mol,
        errors={name: _errors(one, others) for name, one in found.items()},
        notes=_notes(found),
    )


def _check_alike(found: Mapping[str, MoleculeAttribution]) -> None:
    """Refuse scores that cannot be subtracted: on other scales, or in other units."""
    (first, one), (name, other) = next(iter(found.items())), list(found.items())[-1]
    if len(one.atoms) != len(other.atoms):
        raise OptionError(
            f"{first!r} reads {len(one.atoms)} atoms of the molecule and {name!r} {len(other.atoms)}; expected networks that "
            "read the same atoms, so that each can be compared with itself."
        )
    if (one.scale, _quantity(one)) == (other.scale, _quantity(other)):
        return
    remedy = (
        "Take two networks that give probabilities: those of Weave, or endpoints of ADMET-AI that are yes or no, such as "
        "admet:BBB_Martins; or two quantities in the same units, which no two of ADMET-AI have."
    )
    if {"probability", ""} == {one.scale, other.scale} and not (one.units or other.units):
        remedy = "If both give logits, pass score='logit', which explains both before the sigmoid. " + remedy
    raise OptionError(
        f"the score of {first!r} is {_described(one)} and that of {name!r} is {_described(other)}; a difference needs both in "
        f"the same units. {remedy}"
    )


def _quantity(one: MoleculeAttribution) -> str:
    """What a score that is no probability is measured in: its units, or, where they are not known, what it is called."""
    return "" if one.scale else one.units or f"of {one.label}"


def _described(one: MoleculeAttribution) -> str:
    if one.scale:
        return f"a {one.scale} ({one.subject})"
    return f"{one.subject} in {one.units or 'units that are not known'}"


def _unit(one: MoleculeAttribution) -> str:
    return one.scale or one.units or "output"


def _by_atom(one: MoleculeAttribution, others: tuple[str, ...]) -> Attribution:
    """The attributions of atoms with half of their pairs, then of what belongs to no atom, (1, atoms and others)."""
    row = [*one.per_atom.tolist(), *(one.others.get(part, 0.0) for part in others)]
    return Attribution(torch.tensor([row], dtype=torch.float64), Certificate((one.certificate,)), meta={"model": one.model})


def _errors(one: MoleculeAttribution, others: tuple[str, ...]) -> Floats:
    """How far each of these may be off, (1, atoms and others); NaN where that is not known."""
    known = [*one.atom_errors, *(one.sum_error if part in one.others else 0.0 for part in others)]
    return np.array([[math.nan if off is None else off for off in known]])


def _notes(found: Mapping[str, MoleculeAttribution]) -> tuple[str, ...]:
    """What a reader must not miss, each once, with the networks that it is about."""
    said = dict.fromkeys(note for one in found.values() for note in one.notes)
    return tuple(f"{', '.join(name for name, one in found.items() if note in one.notes)}: {note}" for note in said)


def _answer(one: MoleculeAttribution) -> ModelAnswer:
    """What a network says: 'active' with its probability, or 'not active' with that of not being it."""
    if one.scale != "probability":
        label = f"{one.subject} ({_unit(one)})"
        return ModelAnswer(label, one.score, one.score, label)
    yes = one.score >= 0.5
    word = one.subject.isalpha() and one.subject.islower()
    label = (one.subject if yes else f"not {one.subject}") if word else f"{one.subject} {'likely' if yes else 'unlikely'}"
    if word and not yes:
        return ModelAnswer(label, 1 - one.score, one.score, one.subject, ((label, 1 - one.score), (one.subject, one.score)))
    return ModelAnswer(label, one.score, one.score, label, ((label, one.score),))
