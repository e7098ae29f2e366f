"""Do attributions of the retinopathy grader fall on lesions? IDRiD's photos, with hard exudates marked by experts.

    python -m benchmarks.lesions --data IDRiD                          # the table; 15 minutes on one core, one on a GPU
    python -m benchmarks.lesions --data IDRiD --only gradients random  # a part of it
    python -m benchmarks.lesions --data IDRiD --net                    # plus and minus added up; 4 minutes on one core
    python -m benchmarks.lesions --data IDRiD --noise                  # the same with other last bits; a minute on one core
    python -m benchmarks.lesions --data IDRiD --picture lesions.jpg IDRiD_02 IDRiD_11

The folder holds ``images/NAME.jpg`` and ``masks/NAME_EX.jpg``. What is explained is the evidence for referable retinopathy.
Of each map the positive part counts, summed over colours, inside the disc of the retina:

    concentration = (share of it that lies in the lesions) / (share of the retina's area that the lesions take up)

1 is what a map gets that knows nothing. Lesions are widened by 3 pixels of 512: a step of the network's first layer is 2
pixels wide and looks at 3, so evidence for the rim of a lesion lies on both sides of it; 0 and 8 pixels are listed too.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from integrand.apps import retina
from integrand.apps.networks import Network
from integrand.apps.photos import read
from integrand.apps.retina.fundus import SIDE, find_disc, framed
from integrand.errors import ConvergenceWarning
from integrand.methods import Gradient, GuidedBackprop, SmoothGrad
from integrand.render.image.pixels import rgb
from integrand.render.image.views import SAFE

Map = NDArray[np.float64]
Mask = NDArray[np.bool_]

WIDER = (3, 0, 8)
"""Pixels by which lesions are widened; the first is the one that is meant."""

PARTS = ("integrated", "gradients", "smooth", "shuffled", "random")
TARGET = "referable"
CREDIT = "Photos and lesion outlines: IDRiD (Porwal et al., Data 2018, 3(3):25), CC BY 4.0; reduced, attributions added."


@dataclass(frozen=True, eq=False)
class Case:
    """A photo as the grader sees it, and where its lesions are: (512, 512)."""

    name: str
    eye: retina.Eye
    lesions: Mask


def cases(data: Path, names: Sequence[str] = ()) -> Iterator[Case]:
    """The photos of a folder, or those named."""
    for path in sorted((data / "images").glob("*.jpg")):
        if names and path.stem not in names:
            continue
        photo = read(path)
        marked = np.asarray(Image.open(data / "masks" / f"{path.stem}_EX.jpg").convert("RGB"))[..., :1] > 127
        white = np.repeat(marked * np.uint8(255), 3, axis=2)
        small = framed(white, find_disc(photo.pixels), SIDE)[0][..., 0]
        yield Case(path.stem, retina.see(photo), small > 25)  # a tenth of a pixel makes it a lesion: many are tiny


def widened(mask: Mask, by: int) -> Mask:
    """Every pixel within a distance of the mask."""
    if by == 0:
        return mask
    offsets = np.arange(-by, by + 1)
    round_ = torch.from_numpy((np.add.outer(offsets**2, offsets**2) <= by**2).astype(np.float32))
    near = nn.functional.conv2d(torch.from_numpy(mask.astype(np.float32))[None, None], round_[None, None], padding=by)
    return np.asarray(near[0, 0].numpy() > 0.5)


def concentration(values: Map, inside: Mask, lesions: Mask) -> dict[str, float]:
    """The share of the positive values that lies in the lesions, the lesions' share of the area, and their ratio."""
    positive, lesions = np.where(inside, np.clip(values, 0, None), 0), lesions & inside
    share = float(positive[lesions].sum() / positive.sum())
    area = float(lesions.sum() / inside.sum())
    return {"share": share, "area": area, "ratio": share / area}


def by_chance(successes: int, trials: int) -> float:
    """The sign test: the probability of so many successes or more if both outcomes were equally likely."""
    return sum(math.comb(trials, k) for k in range(successes, trials + 1)) / 2**trials


def maps_of(grader: retina.Grader, case: Case, only: Sequence[str], tol: float) -> dict[str, Map]:
    """The maps to compare, each (512, 512): summed over colours."""
    eye, module, x = case.eye, grader.network.module, grader.input(case.eye)
    target = grader.find(TARGET)
    starts = {name: grader.baseline(eye, name) for name in ("blurred", "black", "retina")}
    found: dict[str, Tensor] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of SmoothGrad, whose samples are bounded
        if "integrated" in only:
            for name in starts:
                found[f"integrated gradients, {name}"] = grader.explain(eye, target=target, baseline=name, tol=tol).values
            found["integrated gradients, average of the three"] = torch.stack(list(found.values())).mean(0)
        if "gradients" in only:
            slope, guided = Gradient()(module, x, target=target).values, GuidedBackprop()(module, x, target=target).values
            found["gradient x (image - blurred)"] = slope * (x - starts["blurred"])
            found["gradient x image"] = slope * (x - starts["black"])
            found["guided back-propagation x (image - blurred)"] = guided * (x - starts["blurred"])
        if "smooth" in only:
            slope = SmoothGrad(samples=50, tol=0.01)(module, x, target=target).values
            found["SmoothGrad (50 samples) x (image - blurred)"] = slope * (x - starts["blurred"])
        if "shuffled" in only:
            other = retina.Grader(_shuffled(grader))
            found["control: integrated gradients, weights shuffled"] = other.explain(
                eye, target=target, tol=tol, max_evaluations=400
            ).values
        if "random" in only:
            found["control: local contrast (image - blurred)"] = (x - starts["blurred"]).abs()
            found["control: brightness"] = x - starts["black"]
            found["control: random"] = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    return {name: values.detach()[0].double().sum(0).cpu().numpy() for name, values in found.items()}


def _shuffled(grader: retina.Grader) -> Network:
    """The network with the numbers in each of its weight matrices in another order: it has learned nothing."""
    module, order = copy.deepcopy(grader.network.module), torch.Generator().manual_seed(0)
    assert isinstance(module, nn.Module)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim > 1:
                weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=order)].reshape(weight.shape))
    return replace(grader.network, module=module)


def run(data: Path, *, only: Sequence[str] = PARTS, tol: float = 0.05, device: str | None = None) -> list[dict[str, Any]]:
    """One row per photo, map and widening."""
    grader, rows = retina.load(device), []
    for case in cases(data):
        grade = grader.grade(case.eye)
        for name, values in maps_of(grader, case, only, tol).items():
            for by in WIDER:
                place = {"photo": case.name, "grade": grade.grade, "referable": grade.at_least[1], "map": name, "wider": by}
                rows.append(place | concentration(values, case.eye.inside, widened(case.lesions, by)))
        print(f"{case.name}: grade {grade.grade}, referable {grade.at_least[1]:.0%}", flush=True)
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Over the photos: median and mean concentration, and in how many of them it is above 1."""
    names = list(dict.fromkeys(row["map"] for row in rows))

    def ratios(name: str, by: int) -> list[float]:
        return [row["ratio"] for row in rows if row["map"] == name and row["wider"] == by]

    lines = ["| map | median | mean | above 1 | p | median, not widened | median, by 8 |", "|---|---|---|---|---|---|---|"]
    for name in names:
        main = ratios(name, WIDER[0])
        above = sum(ratio > 1 for ratio in main)
        cells = [f"{np.median(main):.2f}", f"{np.mean(main):.2f}", f"{above} of {len(main)}"]
        cells += [f"{by_chance(above, len(main)):.2g}", *(f"{np.median(ratios(name, by)):.2f}" for by in WIDER[1:])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def photo_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Photo by photo: the lesions' share of the retina, and each map's share in them with its concentration."""
    lines = [f"| photo | grade | referable | area | {' | '.join(names)} |", "|" + "---|" * (4 + len(names))]
    main = [row for row in rows if row["wider"] == WIDER[0]]
    for photo in dict.fromkeys(row["photo"] for row in main):
        mine = {row["map"]: row for row in main if row["photo"] == photo}
        first = next(iter(mine.values()))
        cells = [f"{mine[name]['share']:.1%} ({mine[name]['ratio']:.2f})" for name in names]
        lines.append(f"| {photo} | {first['grade']} | {first['referable']:.0%} | {first['area']:.1%} | {' | '.join(cells)} |")
    return "\n".join(lines)


def net(data: Path, *, tol: float = 0.1, device: str | None = None) -> str:
    """What exudates and the rest of the photo add to the logit in sum, integrated until these two sums are within ``tol``."""
    grader = retina.load(device)
    lines = ["| photo | blurred | photo | exudates | rest | within |", "|---|---|---|---|---|---|"]
    for case in cases(data):
        labels = torch.from_numpy(widened(case.lesions, WIDER[0]).astype(np.int64)).expand(3, -1, -1)
        result = grader.explain(case.eye, target=TARGET, groups=labels.to(grader.network.device), tol=tol, max_evaluations=400)
        only, (rest, exudates) = result.certificate.only, result.values[0].tolist()
        cells = [f"{value:+.2f}" for value in (only.baseline_score, only.score, exudates, rest)]
        lines.append(f"| {case.name} | {' | '.join(cells)} | {only.error * only.magnitude:.2f} ({only.status.value}) |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def noise(data: Path, *, draws: int = 3, device: str | None = None) -> str:
    """How far disc and logit move when every byte of a photo is off by -1, 0 or 1, as readers of JPEG differ in some bytes."""
    grader = retina.load(device)
    lines = ["| photo | logit | of the stated probability | disc moves by | logit moves by |", "|---|---|---|---|---|"]
    for path in sorted((data / "images").glob("*.jpg")):
        pixels, discs, logits, stated = read(path).pixels, [], [], 0.0
        for seed in range(draws + 1):
            steps = np.random.default_rng(seed).integers(-1, 2, pixels.shape, dtype=np.int8) if seed else np.int8(0)
            other = np.clip(pixels.astype(np.int16) + steps, 0, 255).astype(np.uint8)
            disc = find_disc(other)
            discs.append((disc.x, disc.y, disc.radius))
            grade = grader.grade(retina.see(other))
            logits.append(grade.logits[1])
            stated = stated if seed else math.log(grade.at_least[1] / (1 - grade.at_least[1]))
        moves = [float(np.abs(np.subtract(part[1:], part[0])).max()) for part in (discs, logits)]
        said = f"{logits[0]:+.2f} | {stated:+.2f}"
        lines.append(f"| {path.stem} | {said} | {moves[0]:.2f} px of {max(pixels.shape)} | {moves[1]:.2f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def picture(data: Path, names: Sequence[str], out: Path, *, tol: float = 0.05, device: str | None = None) -> None:
    """The photos with their lesions outlined, and what speaks for (red) and against (blue) referable retinopathy."""
    import matplotlib.pyplot as plt

    grader, chosen = retina.load(device), list(cases(data, names))
    figure, axes = plt.subplots(len(chosen), 4, figsize=(12, 3.35 * len(chosen)), squeeze=False, layout="constrained")
    for row, case in zip(axes, chosen, strict=True):
        maps = maps_of(grader, case, ("integrated", "gradients"), tol)
        values = maps["integrated gradients, blurred"]
        shown = {
            "integrated gradients": values,
            "the same, summed over 8 x 8 pixels": _summed(values, 8),
            "gradient x (image - blurred)": maps["gradient x (image - blurred)"],
        }
        grade = grader.grade(case.eye)
        row[0].imshow(case.eye.photo.pixels)
        row[0].set_title(f"{case.name}: grade {grade.grade}\nreferable {grade.at_least[1]:.0%}", fontsize=9)
        for axis, (name, one) in zip(row[1:], shown.items(), strict=True):
            found = concentration(one, case.eye.inside, widened(case.lesions, WIDER[0]))
            axis.imshow(_painted(one, case.eye))
            words = f"{found['share']:.0%} in {found['area']:.0%} of the area: {found['ratio']:.1f}x"
            axis.set_title(f"{name}\n{words}", fontsize=9)
        for axis in row:
            axis.contour(widened(case.lesions, WIDER[0]), levels=[0.5], colors="#00d5ff", linewidths=0.5)
            axis.set_axis_off()
    figure.supxlabel(CREDIT, fontsize=6)
    figure.savefig(out, dpi=110, pil_kwargs={"quality": 82} if out.suffix in (".jpg", ".jpeg") else None)
    plt.close(figure)


def _summed(values: Map, side: int) -> Map:
    """Sums over squares, which attributions allow, spread out over their pixels again."""
    n = len(values) // side
    return np.kron(values.reshape(n, side, n, side).sum(axis=(1, 3)), np.ones((side, side)))


def _painted(values: Map, eye: retina.Eye) -> Map:
    """Positive red and negative blue over the dimmed grey photo; full colour from where 60% of the mass lies above."""
    size = np.sort(np.abs(values[eye.inside]))[::-1]
    limit = size[np.searchsorted(np.cumsum(size), 0.6 * size.sum())]
    strength = np.clip(np.abs(values) / limit, 0, 1)[..., None] * eye.inside[..., None]
    grey = np.repeat(eye.photo.pixels.mean(axis=2, keepdims=True) / 255, 3, axis=2)
    negative, positive = (rgb(colour) for colour in SAFE)
    colour = np.where(values[..., None] > 0, positive, negative)
    return np.asarray(grey * (1 - strength) + colour * strength)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with images/ and masks/")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="maps to make")
    parser.add_argument("--tol", type=float, default=0.05, help="of integrated gradients")
    parser.add_argument("--device", help="such as cuda; found out if not given")
    parser.add_argument("--out", type=Path, default=Path("out/lesions.json"), help="the numbers, as JSON")
    parser.add_argument("--picture", nargs="+", metavar=("FILE", "NAME"), help="draw these photos instead")
    parser.add_argument("--net", action="store_true", help="sum up exudates and the rest instead")
    parser.add_argument("--noise", action="store_true", help="how far other last bits move disc and logit instead")
    options = parser.parse_args()
    if options.noise:
        print(f"\n{noise(options.data, device=options.device)}")
        return
    if options.net:
        print(f"\n{net(options.data, device=options.device)}")
        return
    if options.picture:
        picture(options.data, options.picture[1:], Path(options.picture[0]), tol=options.tol, device=options.device)
        return
    rows = run(options.data, only=options.only, tol=options.tol, device=options.device)
    listed = ("integrated gradients, blurred", "integrated gradients, black", "gradient x image", "control: random")
    made = {row["map"] for row in rows}
    print(f"\n{table(rows)}\n\n{photo_table(rows, [name for name in listed if name in made])}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1))
    print(f"\nJSON: {options.out}")


if __name__ == "__main__":
    main()
