"""DNA, RNA and proteins: :mod:`integrand.apps.sequences` under a shorter name."""

from .apps.sequences import (
    Alphabet,
    FastaRecord,
    SequenceAttribution,
    SequenceModel,
    dinucleotide_shuffle,
    explain,
    load,
    of_module,
    read_fasta,
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
