"""Count what the training molecules of the Weave networks have, for ``integrand.apps.molecules.training_range``.

The command, which prints the constant PCBA_588342 and how many test molecules get a note with it::

    python training/molecule_range.py --data pcba_588342.csv.gz
"""

from __future__ import annotations

import argparse
from multiprocessing import Pool
from pathlib import Path

from _weave_data import PART, SIDES, read_assay, scaffold_of, side_of
from rdkit.Chem import Mol

from integrand.apps.molecules.molgraph import parse
from integrand.apps.molecules.training_range import TrainingRange
from integrand.errors import InputError


def main() -> None:
    """Read the assay, count over its training scaffolds, try its test scaffolds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the assay, a CSV of SMILES and labels, gzipped or not")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    smiles, _ = read_assay(options.data)
    with Pool(options.jobs) as pool:
        parts = pool.map(_read, [smiles[i : i + PART] for i in range(0, len(smiles), PART)], chunksize=1)
    by_side: dict[str, list[Mol]] = {side: [] for side in SIDES}
    for part in parts:
        for side, mol in part:
            by_side[SIDES[side]].append(mol)
    found = TrainingRange.of(by_side["train"])
    print(f"PCBA_588342 = {found}")
    for side in ("valid", "test"):
        noted = [mol for mol in by_side[side] if found.notes(mol)]
        print(f"{side}: {len(noted):,} of {len(by_side[side]):,} molecules get a note ({len(noted) / len(by_side[side]):.2%})")


def _read(smiles: list[str]) -> list[tuple[int, Mol]]:
    found = []
    for text in smiles:
        try:
            mol = parse(text)
        except InputError:
            continue
        found.append((side_of(scaffold_of(mol)), mol))
    return found


if __name__ == "__main__":
    main()
