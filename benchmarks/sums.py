"""Do sums hold what they claim? Regions of photos, words of questions, atoms of molecules, parts of digits.

python -m benchmarks.sums                            # digits, words, atoms: some minutes on one core
python -m benchmarks.sums --only photos eyes --references FOLDER    # an hour for the references, once; then some minutes

A claim holds if the sum is off by no more than its error. The columns say how often, and by how much the worst one is off, over
its claim; then what is claimed over what is true, and over the sum itself, in the median; and what sums are off by, over
themselves, in the median and at the 90th percentile.
"""

from __future__ import annotations

import argparse
import gzip
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import integrand as ig
from integrand.superpixels import slic
from tests.honesty.networks import BLACK, efficientnet, noise_image, photo, trained
from tests.honesty.references import FOLDER, digit_batches

REFERENCE = 0.002
"""The tolerance of photos' references; an image network takes 900 to 1,200 gradients to it."""
FINE = 1e-4
"""That of small networks' references, in float64."""
REGIONS, OTHER_PHOTOS, QUESTIONS, MOLECULES = 40, 4, 40, 6
EYES = ("123_l1", "276_l2")
DIGITS = {"rows": torch.arange(64) // 8, "blocks": torch.arange(64) // 16 * 4 + torch.arange(64) % 8 // 2}


@dataclass(frozen=True)
class Judged:
    """Sums of one result, what they claim, and what they are off by, (sums,) each."""

    values: np.ndarray[Any, Any]
    claimed: np.ndarray[Any, Any]
    off: np.ndarray[Any, Any]

    @staticmethod
    def of(result: ig.Attribution, labels: Any, reference: Tensor) -> Judged:
        """Compare the sums of a result with those of reference values."""
        found = result.sums(labels)
        exact = ig.Attribution(reference.double(), result.certificate, result.batched).sums(labels)
        columns = [part.numpy().ravel() for part in (found.values, found.errors, (found.values - exact.values).abs())]
        there = columns[2] + columns[1] != 0  # not what is padding
        return Judged(*(column[there] for column in columns))


def row(name: str, tol: str, found: list[Judged]) -> str:
    """One line of the table."""
    values, claimed, off = (np.concatenate([getattr(one, part) for one in found]) for part in ("values", "claimed", "off"))
    ratio, size = off / np.maximum(claimed, 1e-300), np.maximum(np.abs(values), 1e-300)
    middle, most = np.quantile(off / size, [0.5, 0.9])
    usual = f"{np.median(claimed / np.maximum(off, 1e-300)):.1f} | {np.median(claimed / size):.1%} | {middle:.1%}, {most:.1%}"
    return f"| {name} | {tol} | {len(ratio)} | {np.mean(ratio <= 1):.1%} | {ratio.max():.2f} | {usual} |"


def digits() -> Iterator[str]:
    """Four small networks, 25 digits each, two scores, two baselines, by rows of pixels and by blocks; fixed rules too."""
    references = np.load(FOLDER / "digits.npz")
    kinds: list[tuple[str, dict[str, Any], torch.dtype]] = [
        ("5%", {"tol": 0.05}, torch.float32),
        ("1%", {"tol": 0.01}, torch.float32),
        ("0.1%", {"tol": 0.001}, torch.float64),
        ("50 steps", {"steps": 50}, torch.float32),
        ("50 trapezoids", {"steps": 50, "rule": "trapezoid"}, torch.float32),
    ]
    for tol, options, dtype in kinds:
        found: dict[str, list[Judged]] = {}
        for batch in digit_batches(dtype):
            result = ig.integrated_gradients(
                trained(batch.network, dtype), batch.x, batch.baseline, score=batch.score, **options
            )
            exact = torch.as_tensor(references[batch.name])
            # What is integrated without quadrature error is better than the reference.
            if any(one.rule == "linear regions" for one in result.certificate):
                keep = [i for i, one in enumerate(result.certificate) if one.rule != "linear regions"]
                if not keep:
                    continue
                result, exact = chosen(result, keep), exact[keep]
            found.setdefault(batch.network, []).extend(Judged.of(result, labels, exact) for labels in DIGITS.values())
        for network, judged in found.items():
            yield row(f"digits, {network}", tol, judged)


def chosen(result: ig.Attribution, keep: list[int]) -> ig.Attribution:
    """Some examples of a result."""
    from integrand.sum_errors import ErrorDraws

    assert result.draws is not None
    draws = ErrorDraws(result.draws.draws[keep], result.draws.scale[keep])
    certificate = ig.Certificate(tuple(result.certificate[i] for i in keep))
    return ig.Attribution(torch.as_tensor(result.numpy()[keep]), certificate, True, draws=draws)


def exact_digits() -> Iterator[str]:
    """Linear regions in float32, whose only error is rounding, against the same in float64."""
    found = []
    for batch in digit_batches(torch.float32):
        if batch.network == "relu" and batch.score == "logit":
            model, wide = trained("relu"), trained("relu", torch.float64)
            result = ig.integrated_gradients(model, batch.x, batch.baseline, tol=1e-3)
            exact = ig.integrated_gradients(wide, batch.x.double(), batch.baseline.double(), tol=1e-6)
            pairs = enumerate(zip(result.certificate, exact.certificate, strict=True))
            keep = [i for i, (a, b) in pairs if a.rule == b.rule == "linear regions"]
            values = torch.as_tensor(exact.numpy()[keep])
            found += [Judged.of(chosen(result, keep), labels, values) for labels in DIGITS.values()]
    yield row("digits, linear regions in float32", "0.1%", found)


def words(data: Path) -> Iterator[str]:
    """Words of questions: the network's words as groups of its embedding, whose errors are those of single values."""
    from integrand.apps.questions import model as questions

    network, wide = questions.load("wtq", device="cpu"), questions.load("wtq", device="cpu")
    wide.module.double()
    texts = [line.split("\t")[1] for line in (data / "questions/wtq/pristine-unseen-tables.tsv").read_text().splitlines()[1:]]
    asked = texts[:: len(texts) // QUESTIONS][:QUESTIONS]
    exact = wide.attribution(asked, tol=FINE)
    for tol in (0.05, 0.01):
        result = network.attribution(asked, tol=tol)
        yield row(
            "questions, words",
            f"{tol:.0%}",
            [Judged.of(result, torch.arange(result.numpy().shape[1]), torch.as_tensor(exact.numpy()))],
        )


def atoms(data: Path) -> Iterator[str]:
    """Atoms and pairs of molecules, from the features of a Weave network."""
    from integrand.apps.molecules.model import load
    from integrand.apps.molecules.molgraph import collate, graph, parse

    with gzip.open(data / "molecules/pcba_588342.csv.gz", "rt") as file:
        lines = file.read().splitlines()
    column = lines[0].split(",").index("smiles")
    smiles = [line.split(",")[column] for line in lines[1 :: len(lines) // MOLECULES]][:MOLECULES]
    network: Any = load("weave-w2n2", device="cpu").network
    found: dict[float, list[Judged]] = {0.05: [], 0.01: []}
    for text in smiles:
        atoms, pairs, *rest = collate([graph(parse(text))]).tensors
        labels = (torch.arange(atoms.shape[1])[:, None], torch.arange(pairs.shape[1])[:, None] * 0 + atoms.shape[1])
        wide = [one.double() if one.is_floating_point() else one for one in (atoms, pairs, *rest)]
        network.double()
        exact = ig.integrated_gradients(network, tuple(wide[:2]), args=wide[2:], batched=True, tol=FINE).sums(labels)
        network.float()
        for tol, judged in found.items():
            sums = ig.integrated_gradients(network, (atoms, pairs), args=rest, batched=True, tol=tol).sums(labels)
            off = (sums.values - exact.values).abs()
            judged.append(Judged(*(part.numpy().ravel() for part in (sums.values, sums.errors, off))))
    for tol, judged in found.items():
        yield row("Weave, atoms", f"{tol:.0%}", judged)


def photos(data: Path, references: Path) -> Iterator[str]:
    """Superpixels of scikit-image's photos and of some of the paper's, on EfficientNet-Lite0."""
    from PIL import Image

    cases: list[tuple[str, Tensor, Tensor, str]] = []
    for i, name in enumerate(("chelsea", "astronaut", "coffee", "rocket")):
        x = photo(name)
        start = noise_image(i) if name == "coffee" else torch.full_like(x, BLACK)
        cases.append((name, x, start, "logit" if i % 2 else "probability"))
    for i, file in enumerate(sorted((data / "photos").glob("*.jpg"))[3::9][:OTHER_PHOTOS]):
        pixels = np.asarray(Image.open(file).convert("RGB")).astype(np.float32)
        x = torch.tensor((pixels - 127) / 128).permute(2, 0, 1)[None].contiguous()
        cases.append((file.stem[:6], x, torch.full_like(x, BLACK), "probability" if i % 2 else "logit"))
    yield from regions("EfficientNet-Lite0, superpixels", efficientnet(), cases, references, (0.05, 0.01))


def eyes(data: Path, references: Path) -> Iterator[str]:
    """Superpixels of fundus photos, on the retina grader from its blurred baseline."""
    from integrand.apps.retina.model import load

    grader = load("cpu")
    cases = []
    for name in EYES:
        eye = grader.see(data / f"retina/deepdrid/images/{name}.jpg")
        cases.append((name, grader.input(eye), grader.baseline(eye), "logit"))
    yield from regions("retina grader, superpixels", grader.network.module, cases, references, (0.05,))


def regions(
    title: str, model: Any, cases: list[tuple[str, Tensor, Tensor, str]], references: Path, tolerances: tuple[float, ...]
) -> Iterator[str]:
    """The sums over superpixels at each tolerance, against references that are kept in a folder."""
    references.mkdir(parents=True, exist_ok=True)
    for tol in tolerances:
        found = []
        for name, x, start, score in cases:
            file = references / f"{name}.npy"
            options: dict[str, Any] = {"score": score, "max_evaluations": 20000}
            with torch.no_grad():
                options["target"] = int(model(x).argmax())
            if not file.exists():
                goal = REFERENCE if x.shape[-1] <= 224 else 5 * REFERENCE
                np.save(file, ig.integrated_gradients(model, x, start, tol=goal, **options).numpy())
            result = ig.integrated_gradients(model, x, start, tol=tol, **options)
            found.append(Judged.of(result, slic(x[0], REGIONS), torch.as_tensor(np.load(file))))
            print(f"  {name}: {row('', f'{tol:.0%}', found[-1:])}", flush=True)
        yield row(title, f"{tol:.0%}", found)


def main() -> None:
    """Run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where questions, molecules and photos are")
    parser.add_argument("--references", type=Path, default=Path("out/sums"), help="where references of photos are kept")
    parts: dict[str, Callable[[Path, Path], Iterator[str]]] = {
        "digits": lambda *_: digits(),
        "exact": lambda *_: exact_digits(),
        "words": lambda data, _: words(data),
        "atoms": lambda data, _: atoms(data),
        "photos": photos,
        "eyes": eyes,
    }
    parser.add_argument("--only", nargs="*", choices=[*parts], default=["digits", "exact", "words", "atoms"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| sums | to | how many | hold | worst, over its claim | claimed over true | over the sum | off, over the sum |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.only:
        for line in parts[name](options.data, options.references):
            print(line, flush=True)


if __name__ == "__main__":
    main()
