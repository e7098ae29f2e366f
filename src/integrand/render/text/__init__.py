"""Pictures of texts: words in red, grey and blue by their attributions, and the running sum from F(x') to F(x).

line = Tokens(["how", "many", "?"], [0.5, 0.3, 0.0], label="number", score=0.99, baseline_score=0.19)
print(terminal([line]))              # colours for a terminal, numbers without them
figure([line], running=True)         # matplotlib
page([line], title="Questions")      # one self-contained HTML page
"""

from .text_pictures import figure, fragment, page, save, terminal
from .tokens import TextPiece as Piece
from .tokens import Tokens

__all__ = ["Piece", "Tokens", "figure", "fragment", "page", "save", "terminal"]
