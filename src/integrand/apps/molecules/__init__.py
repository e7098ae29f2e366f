"""Explanations of networks on molecules: which atoms and bonds made a network say so (section 6.5 of the paper).

    model = molecules.load("weave-w2n2")                    # or "admet:BBB_Martins"
    found = model.explain(["CC(=O)Oc1ccccc1C(=O)O"])[0]
    print(found)                                            # what atoms, bonds and other pairs add, and the certificate
    print(found.account(smarts={"ester": "C(=O)O[#6]"}))    # shares by kind, element, functional group, ring, pattern
    found.save("aspirin.html")                              # or .svg, .png, .json, .csv
    print(molecules.substructures(model.explain(many)))     # over a data set: which groups drive the class
    print(molecules.find_degenerate(model, many))           # atoms that the network cannot tell apart
    molecules.compare("CCO", {"one": model, "two": other})  # two networks on one molecule, and the atoms they differ in

A network of your own: :class:`GraphModel`, around any function of our graphs; or anything with the methods of
:class:`MoleculeModel`. The baseline is the molecule with all features zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .accounting import Account, Substructure, Substructures, account, substructures
    from .accounting import AccountPart as Part
    from .degenerate import Alike, Degenerate, find_degenerate
    from .model import GraphModel, load
    from .molecule_files import write_csv
    from .molecule_pair import compare
    from .result import MoleculeAttribution, MoleculeModel
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "Account": "accounting",
            "Alike": "degenerate",
            "Degenerate": "degenerate",
            "GraphModel": "model",
            "MoleculeAttribution": "result",
            "MoleculeModel": "result",
            "Part": "accounting:AccountPart",
            "Substructure": "accounting",
            "Substructures": "accounting",
            "account": "accounting",
            "compare": "molecule_pair",
            "find_degenerate": "degenerate",
            "load": "model",
            "substructures": "accounting",
            "write_csv": "molecule_files",
        },
    )

__all__ = [
    "Account",
    "Alike",
    "Degenerate",
    "GraphModel",
    "MoleculeAttribution",
    "MoleculeModel",
    "Part",
    "Substructure",
    "Substructures",
    "account",
    "compare",
    "find_degenerate",
    "load",
    "substructures",
    "write_csv",
]
