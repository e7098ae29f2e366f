"""How often the applications say that a network never saw something like its input: where it did, and where it did not.

python -m benchmarks.unfamiliar --data ../shared/data

Questions: the test files of WikiTableQuestions and TREC, which the networks were made for, and German questions of Tatoeba.
Molecules: some of BBBP and Tox21, drugs and chemicals, for the networks that were trained on PCBA-588342;
``training/molecule_range.py`` tries the test molecules of that assay itself.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

from integrand.apps.molecules.molgraph import parse
from integrand.apps.molecules.training_range import PCBA_588342
from integrand.apps.questions.model import Classifier, load
from integrand.apps.questions.question_files import read
from integrand.errors import InputError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder of the data sets")
    options = parser.parse_args()
    folder = options.data / "questions"
    german = german_questions(options.data / "translation" / "tatoeba50k" / "deu.txt")
    for name, files in {
        "wtq": [folder / "wtq" / f"pristine-{which}-tables.tsv" for which in ("unseen", "seen")],
        "trec": [folder / "trec" / "TREC.test.all"],
    }.items():
        classifier = load(name, "cpu")
        asked = [question for file in files for question in read(file).questions]
        told(f"{name}: its own test questions", noted_questions(classifier, asked), len(asked))
        told(f"{name}: German questions", noted_questions(classifier, german), len(german))
    for file in ("bbbp", "tox21"):
        with gzip.open(options.data / "molecules" / f"{file}.csv.gz", "rt") as lines:
            smiles = [row["smiles"] for row in csv.DictReader(lines)]
        noted, count = noted_molecules(smiles)
        told(f"weave: {file}", noted, count)


def german_questions(path: Path) -> list[str]:
    """The German sides of Tatoeba's pairs that are questions of at least three words."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return sorted({row[1] for row in rows if row[1].endswith("?") and len(row[1].split()) > 2})


def noted_questions(classifier: Classifier, asked: Sequence[str]) -> int:
    return sum(bool(classifier.notes(question)) for question in asked)


def noted_molecules(smiles: Sequence[str]) -> tuple[int, int]:
    """How many molecules get a note, and how many can be read."""
    found = []
    for text in smiles:
        try:
            found.append(bool(PCBA_588342.notes(parse(text))))
        except InputError:
            continue
    return sum(found), len(found)


def told(what: str, noted: int, count: int) -> None:
    print(f"{what:32}{noted:7,} of {count:7,} get a note  {noted / count:7.2%}")


if __name__ == "__main__":
    main()
