"""Which atoms and bonds made a network say so of a molecule: section 6.5 of the paper.

    model = molecules.load("weave-w2n2")                    # or "admet:BBB_Martins"
    found = model.explain(["CC(=O)Oc1ccccc1C(=O)O"])[0]
    print(found)                                            # what atoms, bonds and other pairs add, and the certificate
    print(found.account(smarts={"ester": "C(=O)O[#6]"}))    # shares by kind, element, functional group, ring, pattern
    found.save("aspirin.html")                              # or .svg, .png, .json, .csv
    print(molecules.substructures(model.explain(many)))     # over a data set: which groups drive the class
    print(molecules.find_degenerate(model, many))           # atoms that the network cannot tell apart

A network of your own: :class:`GraphModel`, around any function of our graphs; or anything with the methods of
:class:`MoleculeModel`. The baseline is the molecule with all features zero.
"""

from __future__ import annotations

import torch

from ..errors import OptionError
from ._accounting import Account, Part, account
from ._degenerate import Alike, Degenerate, find_degenerate
from ._molecule_result import MoleculeAttribution, MoleculeModel
from ._molecule_table import write_csv
from ._substructures import Substructure, Substructures, substructures
from ._weave import NAMES, load_weave
from ._weave_model import GraphModel

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
    "find_degenerate",
    "load",
    "substructures",
    "write_csv",
]

SOURCE = "integrand's own, trained on PCBA-588342 (MoleculeNet, MIT) by training/weave.py"

ADMET = "admet:"


def load(name: str = "weave-w2n2", device: torch.device | str | None = None) -> MoleculeModel:
    """A network that tells something of molecules, on a device: by default a GPU where torch finds one.

    Args:
        name: ``weave-w2n2``, ``weave-w1n2``, or these with ``-simple``: whether a molecule is active in the assay PCBA-588342.
            ``admet:BBB_Martins``: an endpoint of ADMET-AI, by its name; needs the extra ``admet``.
        device: where to.
    """
    if not isinstance(name, str):
        raise OptionError(f"got a {type(name).__name__} as the model; expected its name, such as 'weave-w2n2'.")
    if name.startswith(ADMET):
        from ._admet import load_admet

        return load_admet(name.removeprefix(ADMET), device)
    for known in NAMES:
        if name == known:
            network = load_weave(known, device)
            return GraphModel(network, network.features, ("active",), name, SOURCE)
    raise OptionError(f"got the model {name!r}; expected one of {', '.join(NAMES)}, or {ADMET} and an endpoint of ADMET-AI.")
