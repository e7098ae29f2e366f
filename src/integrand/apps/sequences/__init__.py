"""DNA, RNA and proteins: which letters of a sequence made a network say what it says.

    found = sequences.explain(network, "ACGT...", alphabet="DNA")      # a network on one-hot sequences, (N, 4, L)
    print(found)                                    # TGACTCA at 31-37 (+4.1 ± 0.02) ...
    found.values, found.errors                      # what each letter contributes, and the error of the integration
    found.hypothetical                              # (4, L): what other letters would contribute in its place
    found.save("logo.html")                         # the logo as a page

By default the sequence is compared with twenty shuffles that keep its dinucleotides. ``sequences.load()`` is a small network
that finds AP-1 sites with GATA1 sites close by, whose model card is ``motifs.md`` in the distribution ``integrand-models``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .alphabets import Alphabet
    from .model import SequenceModel, explain, load, of_module
    from .result import SequenceAttribution
    from .sequence_files import FastaRecord, read_fasta
    from .shuffles import dinucleotide_shuffle
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "Alphabet": "alphabets",
            "FastaRecord": "sequence_files",
            "SequenceAttribution": "result",
            "SequenceModel": "model",
            "dinucleotide_shuffle": "shuffles",
            "explain": "model",
            "load": "model",
            "of_module": "model",
            "read_fasta": "sequence_files",
        },
    )

__all__ = [
    "Alphabet",
    "FastaRecord",
    "SequenceAttribution",
    "SequenceModel",
    "dinucleotide_shuffle",
    "explain",
    "load",
    "of_module",
    "read_fasta",
]
