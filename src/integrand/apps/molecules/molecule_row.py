"""A molecule's result as a row of the table over many molecules, and the result again from such a row."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...attribution_files import example_of
from ...batch.rows import Row
from ...errors import InputError
from ...schema import stored
from ...words import first_line, shortened, shown
from .accounting import account_groups, sentence_of
from .molgraph import parse, read
from .result import MoleculeAttribution, draws_of, kept_draws, spoken_class

if TYPE_CHECKING:
    from rdkit.Chem import Mol

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What goes wrong where a row is not as it was written; the errors of the package for bad values are among them."""


def row_of(result: MoleculeAttribution) -> Row:
    """A result as a row: the class or number that the network gives, atoms with their errors, and what the groups add.

    Every atom counts with half of each of its pairs, and is in one group, so that both lists add up to the change of the score,
    but for what the integration misses.

    Args:
        result: of ``explain``.
    """
    groups = account_groups(result)
    likely = _probability(result)
    said = f"{result.score:.6g}" if likely is None else spoken_class(result.subject, yes=likely >= 0.5)
    atoms = range(len(result.per_atom))
    errors: list[float | None] = [*result.atom_errors, *(result.sum_error for _ in result.others)]
    return Row.of(
        result.certificate,
        prediction=said,
        probability=None if likely is None else max(likely, 1 - likely),
        target=result.label,
        sentence=sentence_of(result, groups),
        notes=result.notes,
        features=(*map(result.name, atoms), *result.others),
        attributions=np.array([*result.per_atom, *result.others.values()], np.float64),
        attribution_errors=None if None in errors else tuple(errors),
        groups=(*(part.name for part in groups), *result.others),
        group_sums=(*(part.value for part in groups), *result.others.values()),
        details=json.dumps(_packed(result), separators=(",", ":")),
        columns={"smiles": result.smiles},
    )


def _probability(result: MoleculeAttribution) -> float | None:
    """The probability of the output that is explained, whatever the scale; None for a quantity."""
    score = result.score
    if result.scale == "probability":
        return score if 0 <= score <= 1 else None
    if result.scale == "log-probability":
        return math.exp(score) if score <= 0 else None
    if result.scale == "logit":
        return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
    return None


def result_of(row: Row, molecule: str | Mol | None = None) -> MoleculeAttribution:
    """The result that a row was made of, with the sums over the features of each atom and pair; every value is checked.

    Args:
        row: of the table.
        molecule: what was explained, with its coordinates if it had some. Default: the SMILES in the row.

    Raises:
        InputError: the row is not one of a molecule that was explained, or not as it was written.
    """
    if not row.ok or row.details is None:
        raise InputError(f"got the row of {_named(row)}, which has no result; expected that of a molecule that was explained.")
    try:
        kept = json.loads(row.details)
        smiles, mol = _ordered(kept["smiles"], kept["order"]) if molecule is None else read(molecule)
        return _unpacked(kept, smiles, mol)
    except DAMAGED as error:
        raise InputError(
            f"got the row of {_named(row)}, which makes no sense ({first_line(error)}); expected it as it was written. Explain "
            "the molecule again."
        ) from None


def _named(row: Row) -> str:
    return repr(shortened(shown(row.key), 80))


def _packed(result: MoleculeAttribution) -> dict[str, Any]:
    """What a row keeps so that the result can be drawn again."""
    return {
        "smiles": result.smiles,
        "order": _order(result),
        "label": result.label,
        "model": result.model,
        "scale": result.scale,
        "units": result.units,
        "notes": list(result.notes),
        "atoms": result.atoms.tolist(),
        "ends": result.ends.tolist(),
        "pairs": result.pair_values.tolist(),
        "others": dict(result.others),
        "draws": kept_draws(result.draws),
        "certificate": stored(result.certificate),
    }


def _unpacked(kept: Mapping[str, Any], smiles: str, mol: Mol) -> MoleculeAttribution:
    texts = [kept[key] for key in ("label", "model", "scale", "units")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"got {texts!r} as label, model, scale and units; expected texts.")
    if not isinstance(kept["notes"], list) or not all(isinstance(note, str) for note in kept["notes"]):
        raise TypeError(f"got {kept['notes']!r} as notes; expected texts.")
    ends = [end for pair in kept["ends"] for end in pair]
    if not all(type(end) is int for end in ends):
        raise TypeError("got pairs of something else; expected pairs of numbers of atoms.")
    return MoleculeAttribution(
        smiles,
        mol,
        kept["label"],
        np.array(_numbers(kept["atoms"])).reshape(-1, 1),
        np.array(ends, np.int64).reshape(-1, 2),
        np.array(_numbers(kept["pairs"])).reshape(-1, 1),
        example_of(kept["certificate"]),
        others=dict(zip(kept["others"], _numbers(list(kept["others"].values())), strict=True)),
        model=kept["model"],
        scale=kept["scale"],
        units=kept["units"],
        notes=tuple(kept["notes"]),
        draws=draws_of(kept["draws"], mol.GetNumAtoms()),
    )


def _numbers(values: Any) -> list[float]:
    """The numbers of a list that was read from JSON; an error if there is anything else in it, or something infinite."""
    if not isinstance(values, list) or not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        raise TypeError("got a list with something else than numbers.")
    return [float(value) for value in values]


def _order(result: MoleculeAttribution) -> list[int] | None:
    """Which atom each one of the SMILES is; None if they are in the same order, as where the molecule was given as SMILES.

    Empty if the SMILES is not that of the molecule: it is then needed to read the row.
    """
    try:
        written = parse(result.smiles)
    except InputError:
        return []
    if _drawn(written) == _drawn(result.mol):
        return None
    from rdkit import Chem

    own = Chem.Mol(result.mol)
    if Chem.MolToSmiles(own) != result.smiles:
        return []
    return list(own.GetPropsAsDict(includePrivate=True, includeComputed=True)["_smilesAtomOutputOrder"])


def _drawn(mol: Mol) -> tuple[list[int], list[tuple[int, int]]]:
    """The elements of a molecule's atoms and the ends of its bonds, by the numbers of the atoms."""
    bonds = sorted(tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in mol.GetBonds())
    return [atom.GetAtomicNum() for atom in mol.GetAtoms()], bonds  # type: ignore[return-value]


def _ordered(smiles: str, order: Sequence[int] | None) -> tuple[str, Mol]:
    """A molecule from its SMILES, with its atoms in the order that they had."""
    mol = parse(smiles)
    if order is None:
        return smiles, mol
    from rdkit import Chem

    if not isinstance(order, list) or sorted(order) != list(range(mol.GetNumAtoms())):
        raise TypeError("the order of its atoms is not known; give the molecule, too")
    return smiles, Chem.RenumberAtoms(mol, [order.index(i) for i in range(len(order))])
