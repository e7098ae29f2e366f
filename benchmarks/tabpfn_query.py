"""TabPFN v1 (a transformer with real weights) on breast cancer: which columns of a query row made it say what it says.

    tar xzf tabpfn-0.1.tar.gz           # the source distribution of tabpfn 0.1: 96 MB, Apache-2.0; the weights are in it
    PYTHONPATH=tabpfn-0.1 python -m benchmarks.tabpfn_query --row 86 --check      # --rows 50 for many

TabPFN is not trained on a table: it reads rows with their labels as context, and says of a query row which class it has. Here
the context stays fixed and the query row is explained. Rows of the context look at each other and never at the query, so that
what each layer makes of them is computed once; only the query runs along the path. Inside of what is explained: scaling by the
context's mean and deviation, the soft clipping of outliers, the scaling by the number of features, the transformer, and the
temperature. Not inside: the package's ensemble, which averages over shifted features and classes and over a power transform;
this is its member without any of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

WEIGHTS = "models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"
TEMPERATURE = 0.8


def weights_file():
    """Where the weights are, if the package's folder can be imported from; None otherwise."""
    found = importlib.util.find_spec("tabpfn")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return next((file for place in places if (file := Path(place) / WEIGHTS).exists()), None)


def read_weights(file):
    """The tensors and the settings of the checkpoint; nothing in it is executed."""
    state, _, config = torch.load(file, map_location="cpu", weights_only=True)
    return {name.removeprefix("module."): value for name, value in state.items()}, config


class QueryRows(nn.Module):
    """From query rows (N, columns), in the units of the table, to logits (N, classes), with the context rows inside.

    Args:
        state: the tensors of the checkpoint.
        heads: of the attention.
        rows: the context, (T, columns).
        labels: its classes, (T,), counted from 0.
    """

    def __init__(self, state, heads, rows, labels, dtype=torch.float32):
        super().__init__()
        self.heads, self.classes = heads, int(labels.max()) + 1
        self.layers = 1 + max(int(name.split(".")[2]) for name in state if name.startswith("transformer_encoder.layers."))
        self.names = {name: name.replace(".", "__") for name in state}
        for name, value in state.items():
            self.register_buffer(self.names[name], value.to(dtype))
        rows = torch.tensor(np.asarray(rows), dtype=dtype)
        self.register_buffer("mean", rows.mean(0))
        self.register_buffer("deviation", rows.std(0) + 1e-6)
        low, high = limits(self._scaled(rows))
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        with torch.no_grad():
            labelled = self._linear("y_encoder", torch.tensor(np.asarray(labels), dtype=dtype)[:, None])
            context = self._linear("encoder", self.prepared(rows)) + labelled
            for i in range(self.layers):
                key, value = self._context(i, context)
                self.register_buffer(f"key_{i}", key)
                self.register_buffer(f"value_{i}", value)
                context = self._layer(i, context)

    def forward(self, x):
        query = self._linear("encoder", self.prepared(x))
        for i in range(self.layers):
            query = self._layer(i, query)
        hidden = nn.functional.gelu(self._linear("decoder.0", query))
        return self._linear("decoder.2", hidden)[:, : self.classes] / TEMPERATURE

    def prepared(self, x):
        """Rows as the transformer's encoder takes them: scaled, softly clipped, filled up with zeros."""
        scaled = self._scaled(x)
        scaled = torch.maximum(-torch.log(1 + scaled.abs()) + self.low, scaled)
        scaled = torch.minimum(torch.log(1 + scaled.abs()) + self.high, scaled)
        most = self._tensor("encoder.weight").shape[1]
        return nn.functional.pad(scaled * most / x.shape[1], (0, most - x.shape[1]))

    def _scaled(self, x):
        return ((x - self.mean) / self.deviation).clamp(-100, 100)

    def _tensor(self, name):
        return getattr(self, self.names[name])

    def _linear(self, name, x):
        return nn.functional.linear(x, self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias"))

    def _norm(self, name, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias"))

    def _context(self, i, context):
        at = f"transformer_encoder.layers.{i}.self_attn.in_proj"
        wide = context.shape[1]
        both = nn.functional.linear(context, self._tensor(f"{at}_weight")[wide:], self._tensor(f"{at}_bias")[wide:])
        key, value = both.split(wide, 1)
        return self._by_head(key), self._by_head(value)

    def _by_head(self, x):
        return x.unflatten(1, (self.heads, -1)).transpose(0, 1)

    def _layer(self, i, x):
        at = f"transformer_encoder.layers.{i}"
        wide = x.shape[1]
        weight, bias = self._tensor(f"{at}.self_attn.in_proj_weight"), self._tensor(f"{at}.self_attn.in_proj_bias")
        query = self._by_head(nn.functional.linear(x, weight[:wide], bias[:wide]))
        seen = nn.functional.scaled_dot_product_attention(query, getattr(self, f"key_{i}"), getattr(self, f"value_{i}"))
        x = self._norm(f"{at}.norm1", x + self._linear(f"{at}.self_attn.out_proj", seen.transpose(0, 1).flatten(1)))
        hidden = nn.functional.gelu(self._linear(f"{at}.linear1", x))
        return self._norm(f"{at}.norm2", x + self._linear(f"{at}.linear2", hidden))


def limits(rows, sigmas=4):
    """Between which values of scaled columns nothing is clipped, by the rows that are within four deviations."""
    mean, deviation = rows.mean(0), rows.std(0)
    kept = (rows - mean).abs() <= sigmas * deviation
    count = kept.sum(0)
    mean = (rows * kept).sum(0) / count
    deviation = (((rows - mean) ** 2 * kept).sum(0) / (count - 1)).sqrt()
    return mean - sigmas * deviation, mean + sigmas * deviation


@contextmanager
def older_names():
    """The package imports * from a module of torch that no longer exports all that it did then."""
    from typing import Optional

    place = torch.nn.modules.transformer
    before, own = place.__all__, {"Module": nn.Module, "MultiheadAttention": nn.MultiheadAttention, "Linear": nn.Linear}
    own |= {"Dropout": nn.Dropout, "LayerNorm": nn.LayerNorm, "ModuleList": nn.ModuleList, "Tensor": torch.Tensor}
    own |= {"torch": torch, "F": nn.functional, "Optional": Optional}
    missing = {name: value for name, value in own.items() if not hasattr(place, name)}
    for name, value in missing.items():
        setattr(place, name, value)
    place.__all__ = [*before, *own]
    try:
        yield
    finally:
        place.__all__ = before
        for name in missing:
            delattr(place, name)


def package_model(state, config):
    """The transformer as the package itself builds it, for comparison."""
    with older_names():
        from tabpfn import encoders, positional_encodings
        from tabpfn.transformer import TransformerModel

    wide = config["emsize"]
    model = TransformerModel(
        encoders.Linear(config["num_features"], wide, replace_nan_by_zero=True),
        config["max_num_classes"],
        wide,
        config["nhead"],
        wide * config["nhid_factor"],
        config["nlayers"],
        y_encoder=encoders.Linear(1, wide),
        pos_encoder=positional_encodings.NoPositionalEncoding(wide, 1),
        efficient_eval_masking=config["efficient_eval_masking"],
    )
    model.load_state_dict({name: value for name, value in state.items() if not name.startswith("criterion")})
    return model.eval()


def package_logits(model, network, rows, labels, queries):
    """What the package's transformer says of query rows, on the same prepared numbers."""
    with torch.no_grad():
        x = torch.cat([network.prepared(torch.tensor(part, dtype=torch.float32)) for part in (rows, queries)])[:, None]
        y = torch.tensor(labels, dtype=torch.float32)[:, None]
        out = model((None, x, y), single_eval_pos=len(rows))
    return out[:, 0, : network.classes] / TEMPERATURE


def main():
    from integrand import tables
    from integrand.apps.tables.trained_tables import load, table_data

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", type=int, default=86)
    parser.add_argument("--rows", type=int, default=0, help="explain so many held-out rows instead")
    parser.add_argument("--tol", type=float, default=0.01)
    parser.add_argument("--out", default="", help="a page or a picture")
    parser.add_argument("--check", action="store_true", help="compare with the package's own transformer")
    asked = parser.parse_args()
    file = weights_file()
    if file is None:
        raise SystemExit(
            "tabpfn's folder with its weights is not on PYTHONPATH; the first lines of this file say how to get it"
        )
    frame, wanted = table_data("breast-cancer")
    held = np.array(load("breast-cancer").held_out)
    context = np.setdiff1d(np.arange(len(frame)), held)
    state, config = read_weights(file)
    rows, labels = frame.to_numpy()[context], wanted.to_numpy()[context]
    begun = time.perf_counter()
    network = QueryRows(state, config["nhead"], rows, labels).eval()
    print(f"context of {len(context)} rows prepared in {time.perf_counter() - begun:.1f} s")
    with torch.no_grad():
        said = network(torch.tensor(frame.to_numpy()[held], dtype=torch.float32)).argmax(1).numpy()
    print(f"accuracy on {len(held)} held-out rows: {(said == wanted.to_numpy()[held]).mean():.3f}")
    if asked.check:
        queries = frame.to_numpy()[held]
        theirs = package_logits(package_model(state, config), network, rows, labels, queries)
        with torch.no_grad():
            ours = network(torch.tensor(queries, dtype=torch.float32))
        print(f"largest difference of logits from the package's transformer: {(ours - theirs).abs().max():.1e}")
    chosen = held[: asked.rows].tolist() if asked.rows else [asked.row]
    given = {"classes": ["benign", "malignant"], "score": "probability", "tol": asked.tol}
    begun = time.perf_counter()
    found = tables.explain(network, frame, tables.mean(frame.iloc[context]), rows=chosen, dtype=torch.float32, **given)
    print(f"{found.certificate.gradients} gradients in {time.perf_counter() - begun:.1f} s")
    print(found)
    print(found.certificate if len(found) == 1 else repr(found.certificate))
    if asked.out:
        print(f"wrote {found.save(asked.out)}")


if __name__ == "__main__":
    main()
