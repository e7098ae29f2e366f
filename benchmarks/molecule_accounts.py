"""Where the scores of an assay's actives come from: atoms, bonded pairs, other pairs, functional groups.

    python -m benchmarks.molecule_accounts --data FOLDER                 # 1000 actives of PCBA-588342: quantiles, groups
    python -m benchmarks.molecule_accounts --data FOLDER --out accounts.json --picture accounts.png
    python -m benchmarks.molecule_accounts --data FOLDER --degenerate --count 200    # atoms that a network cannot tell apart

The paper's molecule had 46% of its score from bonded pairs and -3% from the rest. The folder holds ``pcba_588342.csv.gz``, or
another table of SMILES and labels named by ``--file``. Shares are of F(x) - F(x'), from the molecule with all features zero;
molecules whose score hardly changes next to what cancels in it have no shares, and are counted.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from integrand.apps import molecules
from integrand.apps.molecules.accounting import FLAT
from integrand.apps.molecules.weave import NAMES
from integrand.errors import IntegrandError

KINDS = ("atoms", "bonded pairs", "other pairs")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SURE = 0.5
"""The probability from which on the network calls a molecule active."""

PAPER = {"bonded pairs": 0.46, "other pairs": -0.03}
"""Of the paper's molecule."""


def actives(path: Path, count: int) -> list[str]:
    """As many of the active molecules, drawn at random but the same each time; those that RDKit reads."""
    from integrand.apps.molecules.molgraph import parse

    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8")
    found = [smiles for smiles, label, *_ in list(csv.reader(text.splitlines()))[1:] if label and float(label) == 1]
    chosen: list[str] = []
    for i in np.random.default_rng(0).permutation(len(found)).tolist():
        if len(chosen) == count:
            break
        try:
            parse(found[i])
        except IntegrandError:
            continue
        chosen.append(found[i])
    return chosen


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and quantiles."""
    cuts = np.quantile(values, QUANTILES).tolist()
    return {"mean": float(np.mean(values))} | {f"{q:.0%}": cut for q, cut in zip(QUANTILES, cuts, strict=True)}


def summed_up(results: Sequence[molecules.MoleculeAttribution]) -> dict[str, Any]:
    """The distribution of the shares, and of what they are shares of."""
    accounts = [molecules.account(one) for one in results]
    shares = {kind: [one.part("kind", kind).share for one in accounts] for kind in KINDS}
    steady = [one.share_error for one in accounts if one.share_error is not None]
    return {
        "molecules": len(results),
        "with shares": len(steady),
        "converged": sum(one.certificate.converged for one in results),
        "largest error": max(one.certificate.error for one in results),
        "gradients": spread([one.certificate.gradients for one in results]),
        "score": spread([one.score for one in results]),
        "baseline score": spread([one.baseline_score for one in results]),
        "share error": spread(steady) if steady else None,
        "shares": {kind: spread(known) for kind, row in shares.items() if (known := _known(row))},
        "values": {kind: spread([one.part("kind", kind).value for one in accounts]) for kind in KINDS},
        "raw": {kind: _known(row) for kind, row in shares.items()},
    }


def _known(shares: Sequence[float | None]) -> list[float]:
    return [share for share in shares if share is not None]


def table(found: dict[str, Any], *, percent: bool) -> str:
    """Rows of quantiles."""
    form = "{:>8.0%}" if percent else "{:>+8.3f}"
    heads = "".join(f"{name:>8}" for name in next(iter(found.values())))
    rows = [f"  {kind:<14}{''.join(form.format(value) for value in row.values())}" for kind, row in found.items()]
    return "\n".join([f"  {'':<14}{heads}", *rows])


def told(found: dict[str, Any]) -> str:
    """What they add, and the shares of those that have any."""
    scales = {name: found[name] for name in ("score", "baseline score")} | found["values"]
    lines = [table(scales, percent=False)]
    missing = found["molecules"] - found["with shares"]
    flat = f"{missing} change by less than {FLAT:.0%} of what cancels in it"
    lines.append(f"  shares of F(x) - F(x') for {found['with shares']}; {flat}")
    if found["shares"]:
        lines += [table(found["shares"], percent=True)]
        lines += [f"  good to {found['share error']['50%']:.1%} in the median, by the certificates"]
    return "\n".join(lines)


def explain(model: molecules.MoleculeModel, options: argparse.Namespace) -> None:
    """Account for the actives, print, and write."""
    smiles = actives(options.data / options.file, options.count)
    results = model.explain(smiles, score=options.score, tol=options.tol, progress=_said)
    sure = [one for one, row in zip(results, model.predict(smiles), strict=True) if row[0] >= SURE]
    found = {"all": summed_up(results)} | ({"called active": summed_up(sure)} if sure else {})
    print(f"{model.name}, {options.score}: {found['all']['converged']} of {len(results)} actives within {options.tol:.0%}")
    for name, part in found.items():
        print(f"\n{name}: {part['molecules']} molecules\n{told(part)}")
    groups = molecules.substructures(results, least=max(5, len(results) // 50))
    print(f"\n{groups}")
    if options.out is not None:
        known = {"model": model.name, "score": options.score, "tol": options.tol} | found | {"groups": groups.to_dict()}
        options.out.write_text(json.dumps(known, indent=1), encoding="utf-8")
    if options.picture is not None:
        draw(found["all"]["raw"], options.picture, f"{found['all']['with shares']} actives of PCBA-588342, {model.name}")


def _said(done: int, of: int) -> None:
    print(f"{done} of {of}", file=sys.stderr, flush=True)


def draw(shares: dict[str, list[float]], path: Path, title: str) -> None:
    """The shares as histograms below each other, with their medians and the paper's molecule."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), layout="constrained", dpi=150)
    axes = figure.subplots(len(shares), sharex=True)
    bins = np.linspace(-2, 3, 101)
    for axis, (kind, values) in zip(axes, shares.items(), strict=True):
        axis.hist(np.clip(values, bins[0], bins[-1]), bins, color="#2166ac", alpha=0.75)
        axis.axvline(float(np.median(values)), color="black", lw=1.2, label=f"median {np.median(values):.0%}")
        if kind in PAPER:
            axis.axvline(PAPER[kind], color="#b2182b", lw=1.2, ls="--", label=f"the paper's molecule {PAPER[kind]:.0%}")
        axis.set_ylabel(kind)
        axis.legend(frameon=False, fontsize=8, loc="upper right")
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes[0].set_title(title, fontsize=10, loc="left")
    axes[-1].set_xlabel("share of F(x) - F(x'); what is beyond is counted in the outermost bins")
    figure.savefig(path)


def degenerate(options: argparse.Namespace) -> None:
    """How many atoms each of the four networks cannot tell apart."""
    smiles = actives(options.data / options.file, options.count)
    print(f"{len(smiles)} actives: atoms with identical attributions in different neighbourhoods (radius 2, float64)")
    for name in NAMES:
        found = molecules.find_degenerate(molecules.load(name), smiles, score=options.score, tol=options.tol)
        share = f"{found.affected_atoms} of {found.atoms} atoms ({found.affected_atoms / found.atoms:.1%})"
        print(f"  {name:<18} {found.affected_molecules:>5} molecules, {share}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the assay")
    parser.add_argument("--file", default="pcba_588342.csv.gz", help="the table in it: SMILES and label")
    parser.add_argument("--model", default="weave-w2n2")
    parser.add_argument("--count", type=int, default=1000, help="how many actives")
    parser.add_argument("--score", default="probability", choices=("probability", "logit", "log-probability"))
    parser.add_argument("--tol", type=float, default=0.05, help="the relative error to integrate to")
    parser.add_argument("--out", type=Path, help="a .json file")
    parser.add_argument("--picture", type=Path, help="a .png file")
    parser.add_argument("--degenerate", action="store_true", help="instead: atoms that the networks cannot tell apart")
    options = parser.parse_args()
    degenerate(options) if options.degenerate else explain(molecules.load(options.model), options)


if __name__ == "__main__":
    main()
