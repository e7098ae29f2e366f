"""The room for molecules: written as SMILES or drawn, and networks that say what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..apps.molecules.molgraph import LONGEST
from ..apps.molecules.result import MoleculeAttribution, MoleculeModel
from ..render import molecule as pictures
from .room import (
    Asked,
    FormField,
    ModelShelf,
    Room,
    RoomJob,
    RoomResult,
    code_of,
    compared,
    diagnosed,
    imports_of,
    tolerance_field,
)

if TYPE_CHECKING:
    from ..analysis.inquiry import Inquiry

EXAMPLES = (
    ("an active molecule", "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1"),
    ("caffeine", "Cn1cnc2c1c(=O)n(C)c(=O)n2C"),
    ("aspirin", "CC(=O)Oc1ccccc1C(=O)O"),
)


def _png(attribution: MoleculeAttribution) -> bytes:
    return pictures.png(attribution.drawing())


class MoleculeRoom(Room):
    """A molecule, and networks that say what it does."""

    name = "molecule"
    title = "Molecule"
    lead = "Paste a SMILES or draw a molecule. You see what the network makes of it, and because of which atoms and groups."

    def __init__(self, models: Mapping[str, Callable[[], MoleculeModel]], *, code: Mapping[str, str]) -> None:
        self.models = ModelShelf(models)
        self.code = code
        names = self.models.names
        self.fields = (
            FormField("smiles", "SMILES", "molecule", most=min(LONGEST, 1000), needed=True),
            FormField("model", "Network", "choice", names[0], names),
            tolerance_field("1%"),
        )
        self.examples = tuple({"title": title, "smiles": smiles} for title, smiles in EXAMPLES)

    def warm(self) -> None:
        """Load the networks, and RDKit."""
        self.models.load()
        with suppress(ImportError):
            import_module("rdkit.Chem.Draw")

    def explain(self, asked: Asked, job: RoomJob) -> None:
        """Say what the network makes of the molecule, and explain it."""
        model: Any = self.models[asked["model"]]
        found: MoleculeAttribution
        [found] = model.explain([asked["smiles"]], tol=asked.tol, tell=job.tell)
        job.answers(found.answer)
        line = f"[result] = model.explain([{asked['smiles']!r}], tol={asked.tol!r})"
        job.show(
            RoomResult(
                found.answer,
                found.sentence,
                found.page(),
                found.certificate,
                partial(_png, found),
                found.to_dict,
                code_of(*self._setup(asked), line, "print(result)"),
                "molecule",
            )
        )

    def methods(self, asked: Asked, job: RoomJob) -> None:
        """Set methods side by side on the molecule."""
        inquiry, line = self._inquiry(asked)
        found = inquiry.compare_methods(tol=asked.tol, progress=job.tell)
        code = code_of(*self._setup(asked), line, f"print(asked.compare_methods(tol={asked.tol!r}))")
        job.show(compared(found, code, "molecule", **inquiry.view, labels=inquiry.label))

    def baselines(self, asked: Asked, job: RoomJob) -> None:
        """Set baselines side by side on the molecule."""
        inquiry, line = self._inquiry(asked)
        found = inquiry.diagnose(tol=asked.tol, progress=job.tell)
        code = code_of(*self._setup(asked), line, f"print(asked.diagnose(tol={asked.tol!r}))")
        job.show(diagnosed(found, code, "molecule", **inquiry.view, label=inquiry.label))

    def _setup(self, asked: Asked) -> tuple[str, ...]:
        code = self.code[asked["model"]]
        return (*imports_of(code, "from integrand.apps import molecules"), f"model = {code}")

    def _inquiry(self, asked: Asked) -> tuple[Inquiry, str]:
        model: Any = self.models[asked["model"]]
        inquiry: Inquiry = model.inquiry(asked["smiles"])
        return inquiry, f"asked = model.inquiry({asked['smiles']!r})"
