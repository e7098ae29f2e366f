"""How good are the grades of the retinopathy grader, and those that it calls uncertain? DeepDRiD's photos, graded by experts.

    python -m benchmarks.grades --data DeepDRiD                # the validation and the test split; three minutes on one core
    python -m benchmarks.grades --data DeepDRiD --split test
    python -m benchmarks.grades --data DeepDRiD --enlarged     # 50 photos, found and framed anew

The folder holds ``labels.csv`` and ``images/NAME.jpg``. The grader has learned from the validation photos; what holds for new
ones shows on the test split.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from integrand.apps import retina
from integrand.apps.retina import Grade, Grader

SPLITS = ("val", "test")


def kappa(truth: Sequence[int], said: Sequence[int]) -> float:
    """Cohen's kappa with quadratic weights: 1 for grades that all agree, 0 for what chance would give."""
    table = np.zeros((5, 5))
    np.add.at(table, (list(truth), list(said)), 1)
    weights = np.subtract.outer(np.arange(5), np.arange(5)) ** 2
    chance = np.outer(table.sum(1), table.sum(0)) / table.sum()
    return 1 - float((weights * table).sum() / (weights * chance).sum())


def auc(sick: Sequence[float], well: Sequence[float]) -> float:
    """The share of pairs in which the sick one has the higher probability; ties count half."""
    apart = np.subtract.outer(np.array(sick), np.array(well))
    return float(((apart > 0) + 0.5 * (apart == 0)).mean())


def row(name: str, grades: Sequence[Grade], truth: Sequence[int]) -> str:
    """A line of the table: how many there are, and how often they are right, within one, and within the stated range."""
    if not grades:
        return f"| {name} | 0 | | | | |"
    off = np.array([abs(one.grade - level) for one, level in zip(grades, truth, strict=True)])
    held = [one.between[0] <= level <= one.between[1] for one, level in zip(grades, truth, strict=True)]
    longest = [one.grade == int(np.argmax(one.probabilities)) for one in grades]
    cells = [f"{np.mean(part):.0%}" for part in (off == 0, off <= 1, held, longest)]
    return f"| {name} | {len(grades)} | {' | '.join(cells)} |"


def report(grader: Grader, folder: Path, split: str) -> str:
    """Grade the photos of a split, and say how good the grades are, those called uncertain and the others."""
    with open(folder / "labels.csv", encoding="utf-8") as file:
        known = [(line["image_id"], int(line["dr_level"])) for line in csv.DictReader(file) if line["split"] == split]
    grades, truth = [grader.grade(folder / "images" / f"{name}.jpg") for name, _ in known], [level for _, level in known]
    found = list(zip(grades, truth, strict=True))
    sick, well = ([one.at_least[1] for one, level in found if (level >= 2) == referable] for referable in (True, False))
    agreed = kappa(truth, [one.grade for one in grades])
    measures = f"quadratic kappa {agreed:.3f}, AUC of the probability of referable {auc(sick, well):.3f}"
    lines = [
        f"{split}: {measures}",
        "",
        "| | photos | right | within one | within the range | likeliest |",
        "|---|---|---|---|---|---|",
    ]
    for name, chosen in (("all", (True, False)), ("uncertain", (True,)), ("not uncertain", (False,))):
        part = [pair for pair in found if pair[0].uncertain in chosen]
        lines.append(row(name, [one for one, _ in part], [level for _, level in part]))
    return "\n".join(lines)


def enlarged(grader: Grader, folder: Path, count: int = 50) -> str:
    """Grade photos as they are, and enlarged twofold in a wide black margin, so that they are found and framed anew."""
    with open(folder / "labels.csv", encoding="utf-8") as file:
        names = [line["image_id"] for line in csv.DictReader(file) if line["split"] == "test"][:: 400 // count][:count]
    moves, changed, turned = [], 0, 0
    for name in names:
        photo = Image.open(folder / "images" / f"{name}.jpg").convert("RGB")
        wide = Image.new("RGB", (1600, 1100))
        wide.paste(photo.resize((1024, 1024), Image.Resampling.BICUBIC), (300, 38))
        one, two = (grader.grade(np.asarray(picture)) for picture in (photo, wide))
        moves.append(abs(one.at_least[1] - two.at_least[1]))
        changed, turned = changed + (one.grade != two.grade), turned + (one.referable != two.referable)
    spread = f"by {np.mean(moves):.3f} on average, {max(moves):.2f} at most"
    return f"enlarged, {len(names)} photos: P(referable) moves {spread}; {changed} grades and {turned} verdicts change"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with labels.csv and images/")
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--device", help="such as cuda; found out if not given")
    parser.add_argument("--enlarged", action="store_true", help="how far grades move when photos are framed anew instead")
    options = parser.parse_args()
    grader = retina.load(options.device)
    if options.enlarged:
        print(enlarged(grader, options.data))
        return
    print("\n\n".join(report(grader, options.data, split) for split in options.split))


if __name__ == "__main__":
    main()
