"""The result for a molecule: the attribution of a network's output to each atom and each pair of atoms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ...certificate import ExampleCertificate
from ...errors import InputError, OptionError
from ...files import write_text
from ...functions.target import Score
from ...sum_errors import ErrorDraws, Grouping, errors_of
from ...words import number, percent, short_repr, shown

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from rdkit.Chem import Mol

    from ...batch.rows import Row
    from ...render.molecule.molecule_data import Molecule
    from .accounting import Account

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def folded_draws(draws: ErrorDraws | None, row: int, count: int, ends: Ints, columns: Ints) -> ErrorDraws | None:
    """Draws of the errors of one molecule's atoms, each with half of its pairs.

    Args:
        draws: those of all molecules of a batch, of the columns of atoms and pairs.
        row: the molecule.
        count: how many atoms it has; its atoms are the first columns.
        ends: its pairs, (pairs, 2).
        columns: the column of each pair, (pairs,).
    """
    if draws is None:
        return None
    mine = draws.draws[row].double()
    atoms, pairs = mine[:, :count].clone(), mine[:, torch.as_tensor(columns)] / 2
    for side in (0, 1):
        atoms.index_add_(1, torch.as_tensor(ends[:, side]), pairs)
    return ErrorDraws(atoms[None], draws.scale[row : row + 1])


def kept_draws(draws: ErrorDraws | None) -> list[Any] | None:
    """Draws of the errors of atoms as a list for JSON, and back by :func:`draws_of`."""
    if draws is None or not bool(torch.isfinite(draws.scale).all()):
        return None
    return [float(draws.scale[0]), *([round(value) for value in row] for row in draws.draws[0].tolist())]


def draws_of(entry: Any, count: int) -> ErrorDraws | None:
    """The draws of the errors of so many atoms from a list of JSON; every value is checked.

    Raises:
        TypeError: it is no such list.
    """
    if entry is None:
        return None
    scale, *rows = entry
    fits = rows and all(len(row) == count and all(type(value) is int for value in row) for row in rows)
    if type(scale) is not float or not math.isfinite(scale) or not fits:
        raise TypeError("got draws of something else; expected a scale and a list of whole numbers for each draw.")
    return ErrorDraws(torch.tensor([rows], dtype=torch.float64), torch.tensor([scale], dtype=torch.float64))


def spoken_answer(subject: str, score: float, scale: str, units: str = "") -> str:
    """A score in words for the beginning of a sentence.

    >>> spoken_answer("active", 0.854, "probability"), spoken_answer("active", 0.12, "probability")
    ('Active (85%)', 'Not active (active: 12%)')
    >>> spoken_answer("active", 2e-28, "probability")
    'Not active (active: under 0.01%)'
    >>> spoken_answer("Blood-Brain Barrier", 0.07, "probability"), spoken_answer("Solubility", -2.134, "", "log-mol/L")
    ('Blood-Brain Barrier unlikely (7%)', 'Solubility −2.13 log-mol/L')

    Args:
        subject: what the score is of.
        score: its value.
        scale: as in :class:`MoleculeAttribution`.
        units: those of a quantity.
    """
    if scale == "probability" and 0 <= score <= 1:
        yes, said = score >= 0.5, "under 0.01%" if score < 1e-4 else percent(score)
        if subject.isalpha() and subject.islower():
            return f"{subject.capitalize()} ({said})" if yes else f"Not {subject} ({subject}: {said})"
        return f"{spoken_class(subject, yes=yes)} ({said})"
    value = f"{score:.3g}".replace("-", "−") + (f" {units}" if units else "")
    return f"{subject[:1].upper()}{subject[1:]}{f' ({scale})' if scale else ''} {value}"


def spoken_class(subject: str, *, yes: bool) -> str:
    """A yes or no to what a network predicts, in a few words.

    >>> spoken_class("active", yes=False), spoken_class("Blood-Brain Barrier", yes=True)
    ('not active', 'Blood-Brain Barrier likely')
    """
    if subject.isalpha() and subject.islower():
        return subject if yes else f"not {subject}"
    return f"{subject} {'likely' if yes else 'unlikely'}"


class MoleculeModel(Protocol):
    """The interface of a model that explains molecules: :class:`~integrand.apps.molecules.GraphModel`, or your own."""

    @property
    def name(self) -> str:
        """The name of the model, for people."""
        ...

    @property
    def source(self) -> str:
        """Where the model's weights come from."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the model's outputs."""
        ...

    def predict(self, molecules: Sequence[str | Mol]) -> Floats:
        """The model's outputs for each molecule, (molecules, outputs): probabilities where it gives any."""
        ...

    def explain(
        self,
        molecules: Sequence[str | Mol],
        *,
        target: str | int | None = None,
        score: Score | None = None,
        tol: float = 0.01,
        **options: Any,
    ) -> list[MoleculeAttribution]:
        """Attribute one output to atoms and pairs of atoms, for each molecule."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class MoleculeAttribution:
    """Attributions of one output of a network to the features of a molecule's atoms and pairs of atoms.

    Attributes:
        smiles: the molecule as it was given.
        mol: RDKit's molecule; atoms are numbered as in it.
        label: the output that is explained, in words.
        atom_features: what each feature of each atom adds, (atoms, features); a single column where only sums were kept.
        ends: the pairs that the network sees, (pairs, 2): numbers of two atoms, each pair once.
        pair_features: what each feature of each of these adds, (pairs, features).
        certificate: how far the values can be trusted; its error is that of the single columns.
        others: what belongs to no atom and no pair, such as descriptors of the whole molecule, by name.
        atom_columns: names of the features of atoms; empty where only sums were kept.
        pair_columns: names of the features of pairs; empty where only sums were kept.
        model: what was explained, in words.
        scale: what the score is: ``probability``, ``log-probability``, ``logit``, or '' for a quantity as it stands.
        units: those of a quantity, where they are known.
        notes: what a reader must not miss, such as an element that the network never saw.
        draws: what the errors of :attr:`per_atom` may look like, for the errors of sums of atoms; None where not known.
        explained_by: the network, for :meth:`widget`; None in what was read from a table, copied or sent
            elsewhere, or is by another method than integrated gradients.
    """

    smiles: str
    mol: Mol
    label: str
    atom_features: Floats
    ends: Ints
    pair_features: Floats
    certificate: ExampleCertificate
    others: Mapping[str, float] = field(default_factory=dict)
    atom_columns: tuple[str, ...] = ()
    pair_columns: tuple[str, ...] = ()
    model: str = ""
    scale: str = ""
    units: str = ""
    notes: tuple[str, ...] = ()
    draws: ErrorDraws | None = None
    explained_by: MoleculeModel | None = field(default=None, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"explained_by": None}

    def __post_init__(self) -> None:
        atoms, ends, pairs = (np.asarray(value) for value in (self.atom_features, self.ends, self.pair_features))
        count = self.mol.GetNumAtoms()
        if atoms.ndim != 2 or len(atoms) != count:
            raise InputError(f"got atom_features of shape {atoms.shape}; expected ({count}, features), a row for each atom.")
        if ends.shape != (len(ends), 2) or pairs.ndim != 2 or len(pairs) != len(ends):
            raise InputError(
                f"got ends of shape {ends.shape} and pair_features of shape {pairs.shape}; expected (pairs, 2) and "
                "(pairs, features)."
            )
        low, high = np.sort(ends, 1).T
        if len(ends) and (low.min() < 0 or high.max() >= count or len(set(zip(low, high, strict=True))) < len(ends)):
            raise InputError(
                f"got ends with a pair that is there twice, or an atom beyond {count - 1}; expected each pair once."
            )
        if (low == high).any():
            raise InputError("got ends with a pair of an atom with itself; expected two different atoms.")
        object.__setattr__(self, "atom_features", atoms.astype(np.float64))
        object.__setattr__(self, "ends", ends.astype(np.int64))
        object.__setattr__(self, "pair_features", pairs.astype(np.float64))
        object.__setattr__(self, "others", {str(name): float(value) for name, value in self.others.items()})

    @cached_property
    def atoms(self) -> Floats:
        """The attribution of each atom's own features, (atoms,)."""
        return np.asarray(self.atom_features.sum(1))

    @cached_property
    def pair_values(self) -> Floats:
        """The attribution of each pair in :attr:`ends`, (pairs,)."""
        return np.asarray(self.pair_features.sum(1))

    @cached_property
    def pairs(self) -> Floats:
        """The attributions of pairs as a symmetric matrix with zero diagonal, (atoms, atoms)."""
        found = np.zeros((len(self.atoms), len(self.atoms)))
        i, j = self.ends.T
        found[i, j] = found[j, i] = self.pair_values
        return found

    @cached_property
    def bonds(self) -> Ints:
        """RDKit's index of the bond between each pair in :attr:`ends`, (pairs,); -1 for pairs without a bond."""
        found = (self.mol.GetBondBetweenAtoms(i, j) for i, j in self.ends.tolist())
        return np.array([-1 if bond is None else bond.GetIdx() for bond in found], np.int64)

    @cached_property
    def groups(self) -> dict[str, list[frozenset[int]]]:
        """The atoms of each group that chemists have a name for, every atom in exactly one; see :mod:`.chemical_groups`."""
        from .chemical_groups import chemical_groups

        return chemical_groups(self.mol)

    @cached_property
    def per_atom(self) -> Floats:
        """The attribution of each atom with half of each of its pairs, (atoms,).

        Together with the others these add up to the whole.
        """
        return np.asarray(self.atoms + self.pairs.sum(1) / 2)

    @property
    def score(self) -> float:
        """F(x): the explained output for the molecule."""
        return self.certificate.score

    @property
    def baseline_score(self) -> float:
        """F(x'): the explained output with all features zero."""
        return self.certificate.baseline_score

    @property
    def change(self) -> float:
        """F(x) - F(x'): what the attributions should add up to."""
        return self.score - self.baseline_score

    @cached_property
    def total(self) -> float:
        """The sum of all attributions."""
        return math.fsum([*self.atoms, *self.pair_values, *self.others.values()])

    @cached_property
    def magnitude(self) -> float:
        """The sum of the magnitudes of all attributions."""
        return math.fsum(map(abs, [*self.atoms, *self.pair_values, *self.others.values()]))

    @property
    def sum_error(self) -> float | None:
        """How far any sum of attributions may be off at most, in units of the score; None where not known.

        The certificate's error is that of all attributions added up without their signs, which no sum of some of them exceeds.
        """
        off = self.certificate.error * self.certificate.magnitude
        return off if math.isfinite(off) else None

    def sum_errors(self, groups: Iterable[Iterable[int]]) -> list[float | None]:
        """How far the sum of :attr:`per_atom` over each group of atoms may be off, in units of the score.

        By the draws of the integration, with which about 98 of 100 sums are within; without them, at most: :attr:`sum_error`.
        """
        rows, most = [sorted(atoms) for atoms in groups], self.sum_error
        if self.draws is None or most is None or not rows:
            return [most for _ in rows]
        inside = torch.zeros(len(rows), len(self.atoms), dtype=torch.float64)
        for k, row in enumerate(rows):
            inside[k, row] = 1.0
        # A group and the rest of the molecule, one row for each group.
        parts = torch.cat([inside, 1 - inside], 1)
        drawn = self.draws.draws.double().repeat(len(rows), 1, 2) * parts[:, None]
        own = torch.as_tensor(np.abs(self.per_atom))
        masses = torch.stack([inside @ own, (1 - inside) @ own], 1)
        halves = Grouping(2, torch.arange(2).repeat_interleave(len(self.atoms)))
        draws = ErrorDraws(drawn, self.draws.scale.repeat(len(rows)))
        found = errors_of(draws, [self.certificate] * len(rows), masses, halves, 0.0)[:, 0].tolist()
        return [min(off, most) if math.isfinite(off) else most for off in found]

    @cached_property
    def atom_errors(self) -> tuple[float | None, ...]:
        """How far each of :attr:`per_atom` may be off."""
        return tuple(self.sum_errors([i] for i in range(len(self.atoms))))

    @property
    def subject(self) -> str:
        """What the score is of, in words for a sentence: the label without a name for programs and without units."""
        return re.sub(r" \([\w-]+(, .*)?\)$", "", self.label)

    @property
    def answer(self) -> str:
        """What the network says, in a few words: ``Active (85%)``, ``Not active (active: 12%)``, ``Solubility −2.1``."""
        return spoken_answer(self.subject, self.score, self.scale, self.units)

    @property
    def sentence(self) -> str:
        """What the network says, which groups that comes from, and how sure the numbers are, in one line."""
        from .accounting import sentence_of

        return sentence_of(self)

    @property
    def origin(self) -> dict[str, str]:
        """The model, the output and the baseline, for the page's section on how it was made."""
        return {"model": self.model, "output": self.label, "baseline": "all features zero"}

    def name(self, atom: int) -> str:
        """The name of an atom for people: its element and number, such as ``N4``."""
        return f"{self.mol.GetAtomWithIdx(atom).GetSymbol()}{atom}"

    def account(self, *, smarts: Mapping[str, str] | None = None) -> Account:
        """Account for the score by atoms, bonds, elements, functional groups and rings; see :func:`account`."""
        from .accounting import account

        return account(self, smarts=smarts)

    def drawing(self, *, title: str = "") -> Molecule:
        """The molecule in the form that :mod:`integrand.render.molecule` draws."""
        from ...render.molecule.molecule_data import Molecule

        return Molecule(
            self.mol,
            self.atoms,
            self.pairs,
            others=tuple(self.others.items()),
            title=title or self.smiles,
            label=self.label,
            score=self.score,
            baseline_score=self.baseline_score,
            smiles=self.smiles,
            answer=self.answer,
            sentence=self.sentence,
            scale=self.scale,
            units=self.units,
            error=self.sum_error,
            errors=self.atom_errors,
            notes=self.notes,
        )

    def rows(self) -> list[dict[str, Any]]:
        """The attributions as a table: a row for each atom, bond, other pair of atoms, and each of the others.

        ``value`` is what it adds itself; for an atom, ``pairs`` is half of what its pairs add, and ``total`` both. The totals
        of the atoms and others add up to the whole, and so do the values of all rows. ``index`` is RDKit's number of the atom
        or bond; ``begin`` and ``end`` are the atoms of a pair.
        """
        from .molecule_files import rows

        return rows(self)

    def row(self) -> Row:
        """The result as a row of a table over many molecules; see :func:`integrand.explain_many`.

        Its features are the atoms, each with half of its pairs; its groups are those of :attr:`groups`.
        """
        from .molecule_row import row_of

        return row_of(self)

    @staticmethod
    def from_row(row: Row, molecule: str | Mol | None = None) -> MoleculeAttribution:
        """The result that a row of such a table was made of, to draw it or to account for it in other ways.

        Atoms and pairs then have a single feature, the sum over all.

        Args:
            row: of :meth:`integrand.batch.ExplainedTable.rows`.
            molecule: what was explained, with its coordinates if it had some. Default: the SMILES in the row.
        """
        from .molecule_row import result_of

        return result_of(row, molecule)

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary for JSON; numbers that are not finite become None.

        Single features are included only where they have names.
        """
        from .molecule_files import as_dict

        return as_dict(self)

    def page(self, *, command: str | None = None) -> str:
        """One self-contained HTML page: the molecule, its atoms, where the score comes from, and the certificate."""
        from ...render.molecule import page

        account = self.account()
        given: dict[str, Any] = {"certificates": [self.certificate], "accounts": [account.lines()]}
        return page(self.drawing(), notes=[" ".join([*self.notes, *account.notes])], meta=self.origin, command=command, **given)

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result by the suffix of the path: ``.html``, ``.svg``, ``.png``, ``.pdf``, ``.json`` or ``.csv``.

        Args:
            path: where to.
            **options: options of :meth:`page`, or of :func:`integrand.render.molecule.save`.
        """
        where = Path(path)
        ending = where.suffix.lower()
        if options and ending in (".json", ".csv"):
            raise OptionError(f"got options {sorted(options)} for a {ending} file; they are for pages and pictures.")
        if ending == ".html":
            write_text(where, self.page(**options))
        elif ending in (".svg", ".png", ".pdf"):
            from ...render.molecule import save

            save(self.drawing(), where, **options)
        elif ending == ".json":
            write_text(where, json.dumps(self.to_dict(), indent=1, allow_nan=False))
        elif ending == ".csv":
            from .molecule_files import write_csv

            write_csv([self], where)
        else:
            raise OptionError(f"got the ending {where.suffix!r}; expected .html, .svg, .png, .pdf, .json or .csv.")
        return where

    def __str__(self) -> str:
        bonded = self.bonds >= 0
        parts = [("atoms", self.atoms.sum()), ("bonds", self.pair_values[bonded].sum())]
        parts += [("other pairs", self.pair_values[~bonded].sum()), *((name, value) for name, value in self.others.items())]
        said = ", ".join(f"{name} {value:+.3g}" for name, value in parts)
        most = np.argsort(-np.abs(self.per_atom))[:5].tolist()
        strongest = ", ".join(f"{self.name(i)} {self.per_atom[i]:+.3g}" for i in most)
        heed = "".join(f"\n{note}" for note in self.notes)
        return f"{shown(self.smiles)}: {self.label} {number(self.score)}{heed}\n{said}; most: {strongest}\n{self.certificate}"

    __repr__ = short_repr

    def _small_html_(self) -> str:
        from ...render.molecule import svg
        from ...render.notebook import said_first

        return said_first(self, svg(self.drawing()), self.certificate)

    def _repr_html_(self) -> str:
        from ...render.notebook import notebook_view

        return notebook_view(self, self.page, self._small_html_)

    def widget(self) -> AnyWidget:
        """The page in a notebook, with controls to explain another output, by another method or to another tolerance.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from ..result_widgets import molecule_widget

        return molecule_widget(self)
