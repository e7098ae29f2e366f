"""Train the Weave networks of ``integrand.apps`` on PCBA-588342, beside a random forest on the same split by scaffolds.

The commands::

    python training/weave.py prepare --data pcba_588342.csv.gz --pack pcba.npz   # features, once
    python training/weave.py train --pack pcba.npz --out weights                 # all four networks, on a GPU
    python training/weave.py forest --pack pcba.npz                              # the fingerprint forest

To train a small network on labels of your own, :func:`fit`, whose signature is::

    fit(graphs, labels, *, task="classification" | "regression", seed=0, device="cpu", valid=None, **settings) -> Weave

    net = fit(graphs, labels, task="regression", seed=0, modules=2, epochs=30)
    net(*collate(graphs).tensors)   # logits, or values in the labels' own unit, (B, 1)
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _weave_data import SIDES, Packed, load, prepare
from _weave_fit import Settings, average_precision, fit, predict, roc_auc, train
from torch import Tensor

from integrand.apps.molecules.molgraph import Features
from integrand.apps.molecules.weave import NAMES, Weave, WeaveName, read_weave, write_weave

__all__ = ["Settings", "average_precision", "fit", "predict", "roc_auc", "train"]

TRIED: tuple[dict[str, Any], ...] = ({}, {"moving": 1.0}, {"moving": 1.0, "balance": 0.0, "decay": 0.1})
"""Changes of the settings that are compared on the validation scaffolds."""


@cache
def _assay(path: Path, features: Features, device: str) -> tuple[Packed, Tensor, Tensor]:
    packed, labels, sides = load(path)
    return packed.only(features).to(device), labels[:, None], sides


def run(name: WeaveName, change: dict[str, Any], pack: Path, out: Path, device: str) -> dict[str, Any]:
    """Train one of the four networks, save it as it is shipped, and measure what was saved."""
    torch.set_float32_matmul_precision("high")
    start = time.time()
    features: Features = "simple" if name.endswith("simple") else "full"
    data, labels, sides = _assay(pack, features, device)
    parts = {side: torch.nonzero(sides == i)[:, 0] for i, side in enumerate(SIDES)}
    truth = labels[:, 0].numpy()
    settings = replace(Settings(modules=1 if "w1" in name else 2), **change)
    history: list[float] = []

    def judge(net: Weave) -> float:
        history.append(roc_auc(predict(net, data, parts["valid"])[:, 0], truth[parts["valid"]]))
        return history[-1]

    net = train(data, labels, parts["train"], features, settings, judge)
    trained = time.time() - start
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.{TRIED.index(change)}.safetensors"
    write_weave(net, path, training=json.dumps(asdict(settings)))
    net = read_weave(path).to(device)
    found: dict[str, Any] = {"name": name, "change": change, "seconds": round(trained, 1), "history": history}
    for side in ("valid", "test"):
        score = predict(net, data, parts[side])[:, 0]
        known = truth[parts[side]]
        found[side] = {
            "roc": roc_auc(score, known),
            "ap": average_precision(score, known),
            "mean": float(_sigmoid(score).mean()),
        }
    return found | {"nothing": _nothing_said(net, data, parts["test"]), "settings": asdict(settings)}


def _nothing_said(net: Weave, data: Packed, rows: Tensor) -> dict[str, float]:
    """Probabilities of the molecules of zeros: the shapes of test molecules without their features."""
    empty = replace(data, atoms=data.atoms * 0, pairs=data.pairs * 0)
    said = _sigmoid(predict(net, empty, rows)[:, 0])
    return {key: float(value) for key, value in (("mean", said.mean()), ("least", said.min()), ("most", said.max()))}


def _sigmoid(logit: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logit))


def train_all(pack: Path, out: Path, device: str, jobs: int, tried: int) -> None:
    """All networks with the first few changes of :data:`TRIED`; the best of each by validation is kept."""
    work = [(name, change, pack, out / "tried", device) for change in TRIED[:tried] for name in NAMES]
    found: list[dict[str, Any]] = []
    with torch.multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for result in pool.imap_unordered(_run, work):
            found.append(result)
            print(json.dumps({key: value for key, value in result.items() if key != "history"}), flush=True)
            _keep_best(found, out)


def _run(job: tuple[WeaveName, dict[str, Any], Path, Path, str]) -> dict[str, Any]:
    return run(*job)


def _keep_best(found: list[dict[str, Any]], out: Path) -> None:
    (out / "weave.json").write_text(json.dumps(found, indent=1))
    for name in {result["name"] for result in found}:
        best = max((result for result in found if result["name"] == name), key=lambda result: result["valid"]["roc"])
        source = out / "tried" / f"{name}.{TRIED.index(best['change'])}.safetensors"
        (out / f"{name}.safetensors").write_bytes(source.read_bytes())


def forest(pack: Path, trees: int, jobs: int) -> None:
    """A random forest on Morgan fingerprints (radius 2, 2048 bits) of the same molecules and split."""
    from sklearn.ensemble import RandomForestClassifier

    with np.load(pack.with_name(f"{pack.stem}-morgan.npz")) as file:
        bits, label, side = np.unpackbits(file["bits"], axis=1), file["label"], file["side"]
    start = time.time()
    options: dict[str, Any] = {"max_features": "sqrt", "min_samples_leaf": 2, "class_weight": "balanced_subsample"}
    model = RandomForestClassifier(trees, n_jobs=jobs, random_state=0, max_samples=0.3, **options)
    model.fit(bits[side == 0], label[side == 0])
    found: dict[str, Any] = {"trees": trees, "seconds": round(time.time() - start)}
    for i, name in list(enumerate(SIDES))[1:]:
        score = model.predict_proba(bits[side == i])[:, 1]
        found[name] = {"roc": roc_auc(score, label[side == i]), "ap": average_precision(score, label[side == i])}
    print(json.dumps(found))


def main() -> None:
    """Prepare, train or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "train", "forest"))
    parser.add_argument("--data", type=Path, help="prepare: the assay, a CSV of SMILES and labels, gzipped or not")
    parser.add_argument("--pack", type=Path, required=True, help="the file of features")
    parser.add_argument("--out", type=Path, default=Path("out/weave"), help="train: where the weights go")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--tried", type=int, default=len(TRIED), help="train: how many settings are compared")
    parser.add_argument("--trees", type=int, default=200, help="forest: how many")
    parser.add_argument("--limit", type=int, help="prepare: a random part of the assay, to try the script")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.data, options.pack, options.jobs, options.limit)
    elif options.what == "train":
        train_all(options.pack, options.out, options.device, options.jobs, options.tried)
    else:
        forest(options.pack, options.trees, options.jobs)


if __name__ == "__main__":
    main()
