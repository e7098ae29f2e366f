"""Pictures of molecules: atoms and bonds in red and blue by their attributions, other pairs of atoms as arcs.

one = Molecule(mol, atoms, pairs, title="aspirin", label="active", score=0.94, baseline_score=0.01)
svg(one), png(one)          # the drawn molecule with its legend
matrix(one)                 # atom by atom, as figure 7 of the paper shows it
page([one, two])            # one self-contained HTML page: the molecule and a bar chart of its atoms, linked
save(one, "aspirin.svg")    # or .png, .pdf, .html, .json
"""

from .molecule_data import Molecule
from .molecule_page import Account
from .molecule_pictures import figure, matrix, page, png, save, svg

__all__ = ["Account", "Molecule", "figure", "matrix", "page", "png", "save", "svg"]
