"""Train the two small networks on scikit-learn's tables: breast cancer and diabetes.

    python training/tables.py

Writes ``table-NAME.safetensors`` into integrand-models and prints what the networks are worth on the rows that they were not
trained on, beside linear models of scikit-learn on the same rows. Takes under a minute on one core. The card is ``tables.md``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score, roc_auc_score
from torch import nn

from integrand.apps.tables.column_codes import ColumnCodes, NumberColumn, OneHotColumn
from integrand.apps.tables.data_frames import rows_of_table
from integrand.apps.tables.trained_tables import TableNetwork, table_data

OUT = Path(__file__).parents[1] / "distributions" / "integrand-models" / "src" / "integrand_models"
HIDDEN = {"breast-cancer": 16, "diabetes": 16}
DECAY = {"breast-cancer": 0.1, "diabetes": 0.3}
EPOCHS = {"breast-cancer": 60, "diabetes": 60}
SMOOTHED = 0.1
ASKED = {
    "breast-cancer": {"output": "malignant", "score": "probability"},
    "diabetes": {"output": "disease progression", "score": "logit"},
}


def columns_of(frame: Any, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Each column as a number scaled by the training rows; sex, which is 1 or 2, as categories."""
    found: dict[str, Any] = {}
    for name in frame.columns:
        part = frame[name].to_numpy()[rows]
        found[name] = OneHotColumn((1.0, 2.0)) if name == "sex" else NumberColumn(float(part.mean()), float(part.std()))
    return found


def train(name: str) -> None:
    """Train one network, print what it is worth, and save it."""
    torch.manual_seed(0)
    frame, wanted = table_data(name)
    order = np.random.default_rng(0).permutation(len(frame))
    held = np.sort(order[: len(frame) // 4])
    rows = np.sort(order[len(frame) // 4 :])
    columns = columns_of(frame, rows)
    numbers, _ = ColumnCodes(tuple(columns.items())).encode(rows_of_table(frame))
    x, y = torch.as_tensor(numbers).float(), torch.tensor(wanted.to_numpy()).float()[:, None]
    shift, scale = (y[rows].mean(), y[rows].std()) if name == "diabetes" else (torch.zeros(()), torch.ones(()))
    network = TableNetwork(x.shape[1], HIDDEN[name])
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=DECAY[name])
    loss = nn.functional.mse_loss if name == "diabetes" else nn.functional.binary_cross_entropy_with_logits
    train_x, train_y = x[rows], (y[rows] - shift) / scale
    if name == "breast-cancer":  # labels that are not quite sure keep probabilities off 0 and 1, where gradients vanish
        train_y = train_y * (1 - SMOOTHED) + SMOOTHED / 2
    for _ in range(EPOCHS[name]):
        for batch in torch.randperm(len(rows)).split(32):
            optimizer.zero_grad()
            loss(network(train_x[batch]), train_y[batch]).backward()
            optimizer.step()
    last = network.layers[-1]
    with torch.no_grad():  # in the units of the table
        last.weight.mul_(scale)
        last.bias.mul_(scale).add_(shift)
        said = network(x)[:, 0].numpy()
    true = wanted.to_numpy()
    if name == "diabetes":
        other = RidgeCV(np.logspace(-2, 4, 25)).fit(numbers[rows], true[rows]).predict(numbers[held])
        fits = r2_score(true[held], said[held]), r2_score(true[held], other)
        print(f"{name}: R2 {fits[0]:.3f} on {len(held)} held-out rows; ridge {fits[1]:.3f}")
    else:
        model = LogisticRegression(max_iter=5000).fit(numbers[rows], true[rows])
        other = model.decision_function(numbers[held])
        accuracy = ((said[held] > 0) == true[held]).mean(), ((other > 0) == true[held]).mean()
        area = roc_auc_score(true[held], said[held]), roc_auc_score(true[held], other)
        print(f"{name}: accuracy {accuracy[0]:.3f}, ROC-AUC {area[0]:.4f} on {len(held)} held-out rows")
        print(f"  logistic regression: {accuracy[1]:.3f}, {area[1]:.4f}")
    kinds = [
        [key, {"categories": list(one.categories)} if isinstance(one, OneHotColumn) else [one.mean, one.scale]]
        for key, one in columns.items()
    ]
    settings = {"hidden": HIDDEN[name], "held_out": held.tolist(), **ASKED[name]}
    header = {"columns": json.dumps(kinds), "settings": json.dumps(settings)}
    file = OUT / f"table-{name}.safetensors"
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, file, header)
    print(f"wrote {file.name} ({file.stat().st_size / 1000:.1f} kB)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=list(HIDDEN), help="which; both unless given")
    for table in parser.parse_args().tables or HIDDEN:
        train(table)
