"""Saved results, changed at random and loaded again: what is not a result is refused, what loads can be used.

python -m benchmarks.fuzz_results                     # 10,000 files; some minutes on one core
python -m benchmarks.fuzz_results --count 500 --seed 7

Bytes are changed, and on their way back into a well-formed file values of the header (by others of their type or of another,
by hostile texts), names of its fields, nesting, and the types and shapes of tensors. Of each file one of two things is
expected: a FileError when it is loaded, or a result that prints, draws, adds up and saves itself like any other, on a page
without an element or attribute that is not ours. Anything else is counted, and one of it is enough to exit with 1.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import integrand as ig
from integrand.errors import FileError
from integrand.render import certificate_table, figure, image, report
from integrand.render.image.photo_page import ImagePage, image_page, path_plot

MARK = "fuzzmark"
"""The name of the element and of the attribute that hostile texts try to bring into a page."""

HOSTILE = (
    f"<{MARK}>",
    f'"><{MARK} {MARK}=1>',
    f"' {MARK}='1",
    f"</script><{MARK}>",
    f"</title></style>--><{MARK}>",
    f"<meta http-equiv=refresh content='0;url=//{MARK}'>",
    "$\\frac{1$ $x_{",
    "\x1b[2J\x00\u202e",
    "\ud800",
    "",
)
ODD = (None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf, [], {}, [0], {"a": 1})
KINDS = (
    *("batch", "single", "tuple", "dict", "curves", "unfinished", "jump", "groups"),
    *("extras", "exact", "fit", "polyline", "image"),
)
OBSERVED = ("loaded", "refused", "unclean at load", "breaks later", "injects")


@dataclass
class Opened:
    """A safetensors file taken apart: our JSON, what is known of its tensors, and their bytes."""

    header: Any
    tensors: dict[str, Any]
    data: bytes

    @classmethod
    def of(cls, raw: bytes) -> Opened:
        length = struct.unpack("<Q", raw[:8])[0]
        tensors = json.loads(raw[8 : 8 + length])
        return cls(json.loads(tensors.pop("__metadata__")["integrand"]), tensors, raw[8 + length :])

    def written(self, text: str | None = None) -> bytes:
        about = {"__metadata__": {"integrand": json.dumps(self.header) if text is None else text}, **self.tensors}
        head = json.dumps(about).encode()
        return struct.pack("<Q", len(head)) + head + self.data


@cache
def results() -> dict[str, ig.Attribution]:
    """One result of every kind that is saved, by :data:`KINDS`."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    x, photo = torch.randn(3, 6), torch.rand(1, 3, 6, 6)

    def two(a: Tensor, b: Tensor) -> Tensor:
        return torch.sin(a).sum((1, 2)) + (b**3).sum(1)

    pair = (torch.randn(2, 2, 3), torch.randn(2, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "batch": ig.integrated_gradients(net, x, target=1),
            "single": ig.integrated_gradients(lambda z: torch.tanh(z).sum(), x[0], batched=False),
            "tuple": ig.integrated_gradients(two, pair),
            "dict": ig.integrated_gradients(two, {"a": pair[0], "b": pair[1]}),
            "curves": ig.integrated_gradients(net, x[:2], [0 * x[:2], x[:2] + 1], target=0),
            "unfinished": ig.integrated_gradients(lambda z: (z**4).sum(1), x[:1].bfloat16(), steps=1),
            "jump": ig.integrated_gradients(lambda z: z.sum(1) + (z[:, 0] > 0.1).float(), x.abs() + 1),
            "groups": ig.integrated_gradients(net, x, target=2, groups=torch.tensor([0, 0, 1, 1, 2, 2])),
            "extras": ig.methods.ExpectedGradients(samples=64)(net, x[:2], torch.randn(4, 2, 6), target=0),
            "exact": ig.methods.Gradient()(lambda z: z.log().sum(1), x.abs() + 1),  # nothing is known at the baseline
            "fit": ig.methods.Lime(samples=64)(lambda z: torch.tanh(z).sum(-1), x[0], batched=False),
            "polyline": ig.path_attribution(net, ig.Polyline([0 * x[:1], x[:1] - 1, x[:1]]), target=0),
            "image": ig.integrated_gradients(lambda z: (z**2).sum((1, 2, 3)), photo),
        }


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """A file with one to three changes of one kind."""
    change = rng.choice(CHANGES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        try:
            raw = change(rng, raw)
        except (ValueError, struct.error, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError):
            return raw  # an earlier change has left nothing to take apart
    return raw


def _bytes(rng: random.Random, raw: bytes) -> bytes:
    at, kind = rng.randrange(len(raw)), rng.randrange(4)
    if kind == 0:
        return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
    if kind == 1:
        return raw[:at] + raw[at + rng.randrange(1, 9) :]
    if kind == 2:
        return raw[:at] + rng.randbytes(rng.randrange(1, 9)) + raw[at:]
    return raw[:at]


def _value(rng: random.Random, raw: bytes) -> bytes:
    """One value of the header, wherever it is, becomes another one."""
    file = Opened.of(raw)
    whole = {"": file.header}
    holder, key = rng.choice(list(_places(whole)))
    old = holder[key]
    new = rng.choice((rng.choice(HOSTILE), rng.choice(ODD), old))
    if new is old and isinstance(old, float) and math.isfinite(old):
        new = old * rng.choice((-1, 0, 1e6, 1e300))
    elif new is old and isinstance(old, int):
        new = old + rng.choice((-1, 1, 10))
    elif new is old and isinstance(old, list):
        new = rng.choice((old * 2, old[:-1], [old]))
    elif new is old and isinstance(old, str):
        new = rng.choice((old + rng.choice(HOSTILE), old * 1000))
    holder[key] = new
    return file.written(json.dumps(whole[""]))


def _hostile(rng: random.Random, raw: bytes) -> bytes:
    """Every text of the header becomes hostile, and perhaps one number."""
    file = Opened.of(raw)
    evil = rng.choice(HOSTILE)
    for holder, key in list(_places({"": file.header})):
        if isinstance(holder[key], str) and key in ("rule", "precision", "target", "note", "knob", "why", "method"):
            holder[key] = evil
    file.header["meta"] = {**file.header["meta"], evil: evil}
    return file.written()


def _names(rng: random.Random, raw: bytes) -> bytes:
    """A field or tensor is renamed, left out, added or there twice."""
    file = Opened.of(raw)
    objects = [one for one in _objects(file.header) if one] + [file.tensors]
    holder = rng.choice(objects)
    key, kind = rng.choice(list(holder)), rng.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[rng.choice((key + "x", rng.choice(HOSTILE)))] = holder.pop(key)
    elif kind == 2:
        holder[rng.choice(("new", rng.choice(HOSTILE), "__class__"))] = rng.choice(ODD)
    else:
        text = json.dumps(file.header)
        name = json.dumps(key) + ": "
        return file.written(text.replace(name, name + "1, " + name, 1))
    return file.written()


def _nesting(rng: random.Random, raw: bytes) -> bytes:
    file = Opened.of(raw)
    holder, key = rng.choice(list(_places(file.header)))
    depth = rng.choice((1, 50, 100_000))
    text = json.dumps(holder[key])
    holder[key] = "@"
    return file.written(json.dumps(file.header).replace('"@"', "[" * depth + text + "]" * depth, 1))


def _tensors(rng: random.Random, raw: bytes) -> bytes:
    """The type, shape or place of a tensor changes, often so that its bytes are still as many."""
    file = Opened.of(raw)
    one = file.tensors[rng.choice(list(file.tensors))]
    kind = rng.randrange(5)
    if kind == 0:
        one["dtype"] = rng.choice(("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "NOPE", 3))
    elif kind == 1:
        one["shape"] = rng.choice(([], [1], [0], [2**62], one["shape"][::-1], [*one["shape"], 1], [math.prod(one["shape"])]))
    elif kind == 2:
        one["data_offsets"] = [rng.randrange(-4, 400), rng.randrange(-4, 400)]
    elif kind == 3:
        size = (one["data_offsets"][1] - one["data_offsets"][0]) // 4
        one |= {"dtype": rng.choice(("F32", "I32")), "shape": [size]}
    else:
        start, stop = one["data_offsets"]
        at = rng.randrange(start, stop)
        value = rng.choice((b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff" * 4, rng.randbytes(4)))
        file.data = file.data[:at] + value + file.data[at + 4 :] if at + 4 <= stop else file.data
    return file.written()


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_bytes, _value, _value, _hostile, _names, _nesting, _tensors)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items):
        yield value, key
        yield from _places(part)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


class Marks(HTMLParser):
    """Counts what a page has of hostile texts beyond text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        refresh = any(name == "http-equiv" and (value or "").lower() == "refresh" for name, value in attrs)
        self.found += tag == MARK or refresh or any(name == MARK for name, _ in attrs)


def used(result: ig.Attribution, folder: Path, *, pictures: bool) -> int:
    """Use a result in every way; how many of its pages have something that is not ours."""
    said = [str(result), repr(result), str(result.certificate)]
    if any((sign < " " and sign != "\n") or "\x7f" <= sign < "\xa0" or "\ud800" <= sign < "\ue000" for sign in "".join(said)):
        raise ValueError("control characters are printed")
    pages = [
        report(result),
        certificate_table(result.certificate),
        result._repr_html_(),
        report(result, title="t", command="c"),
    ]
    result.sum()
    result.numpy()
    certificate = result.certificate
    _ = (certificate.converged, certificate.error, certificate.gradients, certificate.broken, len(certificate))
    _ = [(one.remedy, one.converged) for one in certificate]
    if result.profile is not None:
        result.profile.reached(0.5)
        if len(certificate) == 1:
            pages.append(path_plot(result))
    if isinstance(result.values, Tensor) and result.values.ndim == 4 and len(certificate) == 1:
        photo = torch.zeros(*result.values.shape[2:], 3, dtype=torch.uint8).numpy()
        pages.append(image_page(ImagePage("label", photo, result)))
    again = ig.Attribution.load(result.save(folder / "again.safetensors"))
    if repr(again) != repr(result) or again.meta != result.meta:
        raise ValueError("another result comes back")
    result.save(folder / "again.html")
    if pictures:
        import matplotlib.pyplot as plt

        drawn = [figure(result)]
        if result.profile is not None and isinstance(result.values, Tensor) and result.values.ndim == 4:
            drawn.append(image.path(result))
        for one in drawn:
            one.canvas.draw()
            plt.close(one)
    return sum(Marks(page).found for page in pages)


def fuzzed(count: int, seed: int, *, pictures: int = 1, tell: Callable[[str], object] = print) -> collections.Counter[str]:
    """How many of so many changed files did what.

    Args:
        count: how many files are made.
        seed: of the random changes.
        pictures: every how many results that load are drawn with matplotlib.
        tell: gets what goes wrong, in words.
    """
    rng, found = random.Random(seed), collections.Counter(dict.fromkeys(OBSERVED, 0))
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that are not finite
        folder = Path(name)
        originals = {kind: result.save(folder / f"{kind}.safetensors").read_bytes() for kind, result in results().items()}
        path = folder / "changed.safetensors"
        for i in range(count):
            kind = rng.choice(list(originals))
            path.write_bytes(mutated(rng, originals[kind]))
            try:
                result = ig.Attribution.load(path)
            except FileError:
                found["refused"] += 1
                continue
            except Exception:
                found["unclean at load"] += 1
                tell(f"no. {i} ({kind}) at load: {traceback.format_exc(limit=-2)}")
                continue
            found["loaded"] += 1
            try:
                marks = used(result, folder, pictures=found["loaded"] % pictures == 0)
            except Exception:
                found["breaks later"] += 1
                tell(f"no. {i} ({kind}) later: {traceback.format_exc(limit=-4)}")
                continue
            if marks:
                found["injects"] += 1
                tell(f"no. {i} ({kind}) brings {marks} elements or attributes into a page")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many files")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes")
    parser.add_argument("--pictures", type=int, default=1, help="draw every so many results that load")
    asked = parser.parse_args()
    import matplotlib as mpl

    mpl.use("agg")
    found = fuzzed(asked.count, asked.seed, pictures=asked.pictures)
    print(f"{asked.count} files: " + ", ".join(f"{found[name]} {name}" for name in OBSERVED))
    return int(any(found[name] for name in OBSERVED[2:]))


if __name__ == "__main__":
    sys.exit(main())
