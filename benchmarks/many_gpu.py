"""Photos and questions a second on one GPU, with so many explained together; prints JSON.

python -m benchmarks.many_gpu --pack FOLDER       # where the data and weights are: what the GPU's machine needs of them, 11 MB
python -m benchmarks.many_gpu --packed FOLDER     # there; about five minutes
python -m benchmarks.many_gpu                     # there, without: random weights (timm), made-up photos

``explain_many`` is what is timed, its table included; without pyarrow, what it does but for the table, and the JSON says so.
Photos are pixels in memory: reading and decoding them is timed apart, on one core. ResNet-50 has random weights.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import integrand as ig
from integrand.batch.inputs import KeyedInput
from integrand.batch.many import CallableTask, explain_window, window_size, windows
from integrand.version import version_of

from .many import PhotoExplainer, QuestionExplainer, efficientnet, photo_pixels, trec_questions

TOGETHER = (1, 8, 32, 64)
"""Photos that are explained in one call."""

SECONDS = 14.0
"""How long each case runs; the last window of inputs is completed."""

WARM_UP = 30.0
"""The most seconds of 64 inputs before a case is timed: a GPU loads kernels for every size of chunk that is new to it."""

PHOTOS = 400
"""Different photos; they come again where the time allows for more."""


def pack(folder: Path) -> None:
    """Copy photos, questions, EfficientNet-Lite0 and its weights, rounded to float16, into a folder."""
    import efficientnet_lite_pytorch
    from PIL import Image
    from safetensors.torch import save_file

    code = Path(efficientnet_lite_pytorch.__file__).parent
    shutil.copytree(code, folder / code.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    state = {name: value.half() if value.is_floating_point() else value for name, value in efficientnet().state_dict().items()}
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "efficientnet-lite0.safetensors")
    (folder / "photos").mkdir(exist_ok=True)
    for name, pixels in photo_pixels(46).items():
        Image.fromarray(pixels).save(folder / "photos" / f"{name}.jpg", quality=92)
    (folder / "questions.json").write_text(json.dumps(trec_questions(5952)))


def lite0(packed: Path | None) -> tuple[nn.Module, str]:
    """EfficientNet-Lite0, and where its weights are from."""
    if packed is not None:
        sys.path.insert(0, str(packed))
        return efficientnet(
            str(packed / "efficientnet-lite0.safetensors")
        ), "ImageNet weights, rounded to float16, run in float32"
    import timm

    torch.manual_seed(0)
    return timm.create_model("tf_efficientnet_lite0", pretrained=False), "random weights (timm's tf_efficientnet_lite0)"


def resnet50() -> tuple[nn.Module, str]:
    """ResNet-50 of torchvision, and where its weights are from."""
    from torchvision.models import resnet50 as build

    torch.manual_seed(0)
    return build(weights=None), "random weights"


def photos_of(packed: Path | None) -> tuple[list[Any], str]:
    """The photos, and what they are."""
    if packed is not None:
        return list(photo_pixels(PHOTOS, packed / "photos").values()), f"{PHOTOS} photos, mirrored and cropped from 46"
    made = np.random.default_rng(0)
    coarse = made.integers(0, 256, (64, 14, 14, 3), np.uint8)
    return [np.kron(one, np.ones((16, 16, 1), np.uint8)) for one in coarse], "64 made-up photos of random squares"


def questions_of(packed: Path | None, explain: QuestionExplainer) -> tuple[list[str], str]:
    """The questions, and what they are."""
    if packed is not None:
        return list(json.loads((packed / "questions.json").read_text()).values()), "5,952 questions of TREC-6"
    made = np.random.default_rng(0)
    words = np.array([word for word in explain.classifier.vocabulary.words if word.isalpha()])
    lengths = made.integers(4, 20, 5952)
    return [" ".join(made.choice(words, n)) for n in lengths], "5,952 rows of 4 to 19 words at random"


class Utilisation:
    """What nvidia-smi says of the GPU, five times a second: the share of time in which a kernel ran, and watts."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._process: subprocess.Popen[str] | None = None
        try:
            query = ["nvidia-smi", "--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits", "-lms", "200"]
            self._process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                share, watts = (float(part) for part in line.split(",")[:2])
            except ValueError:
                continue
            self._samples.append((share, watts))

    @contextmanager
    def during(self, into: dict[str, Any]) -> Iterator[None]:
        """Put the means over a block into a dict."""
        start = len(self._samples)
        yield
        if mine := self._samples[start:]:
            into |= {"utilisation": round(float(np.mean([s for s, _ in mine])), 1)}
            into |= {"watts": round(float(np.mean([w for _, w in mine])))}

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()


def has_pyarrow() -> bool:
    """Whether tables can be written here."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def for_seconds(items: list[Any], seconds: float, at_least: int) -> Iterator[KeyedInput]:
    """Inputs under new keys until the time is over."""
    end = time.perf_counter() + seconds
    for i, item in enumerate(itertools.cycle(items)):
        if i >= at_least and i % at_least == 0 and time.perf_counter() > end:
            return
        yield KeyedInput(str(i), item)


def run_once(items: list[Any], explain: Callable[[list[Any]], Any], seconds: float, table: bool) -> list[Any]:
    """The rows of as many inputs as fit into the time."""
    task = CallableTask(explain, Path())
    window = window_size(task)
    stream = for_seconds(items, seconds, window)
    if table:
        with tempfile.TemporaryDirectory() as folder:
            source = ((one.key, one.item) for one in stream)
            found = ig.explain_many(
                source, Second(explain), Path(folder) / "table", key=lambda pair: pair[0], progress=False, settings={"bench": 1}
            )
            return list(found.table.rows())
    return [row for part in windows(task, stream) for row in explain_window(task, {one.key: one for one in part}).values()]


class Second:
    """Explains the second of each pair (key, input)."""

    def __init__(self, explain: Any) -> None:
        self.explain, self.together = explain, explain.together

    def size(self, pair: tuple[str, Any]) -> float:
        """As the explainer says it."""
        own = getattr(self.explain, "size", None)
        return 0.0 if own is None else float(own(pair[1]))

    def __call__(self, pairs: list[tuple[str, Any]]) -> Any:
        """One row for each."""
        return self.explain([item for _, item in pairs])


def measured(items: list[Any], explain: Any, watch: Utilisation, seconds: float, cuda: bool) -> dict[str, Any]:
    """Inputs a second, memory, utilisation and what the rows say."""
    table = has_pyarrow()
    start, calls = time.perf_counter(), 0
    while calls < 2 or (cuda and calls * explain.together < 64 and time.perf_counter() - start < WARM_UP):
        explain(items[calls * explain.together :][: explain.together])  # each may load kernels and capture graphs
        calls += 1
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    found: dict[str, Any] = {"together": explain.together}
    with watch.during(found):
        start, busy = time.perf_counter(), time.process_time()
        rows = run_once(items, explain, seconds, table)
        if cuda:
            torch.cuda.synchronize()
        took, busy = time.perf_counter() - start, time.process_time() - busy
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row.status] = statuses.get(row.status, 0) + 1
    gradients = sum(row.evaluations for row in rows)
    found |= {
        "inputs": len(rows),
        "seconds": round(took, 2),
        "per_second": round(len(rows) / took, 2),
        "gradients_each": round(gradients / len(rows), 1),
        "gradients_per_second": round(gradients / took, 1),
        "cpu_share": round(busy / took, 2),
        "statuses": statuses,
    }
    if cuda:
        found["gpu_gigabytes"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
        found["gpu_gigabytes_reserved"] = round(torch.cuda.max_memory_reserved() / 1e9, 2)
    return found


def decoding(photos: list[Any]) -> dict[str, Any]:
    """Photos a second that one core reads from JPEG and resizes: of 224 pixels, and of 500 x 375 as those of ImageNet."""
    try:
        from PIL import Image
    except ImportError:
        return {"failed": "no Pillow"}
    found = {}
    for name, size in (("224x224", (224, 224)), ("500x375", (500, 375))):
        raw = []
        for pixels in photos[:32]:
            with io.BytesIO() as file:
                Image.fromarray(pixels).resize(size).save(file, "JPEG", quality=90)
                raw.append(file.getvalue())
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < 1.5:
            for one in raw:
                np.asarray(Image.open(io.BytesIO(one)).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))
            done += len(raw)
        found[name] = {"per_second": round(done / (time.perf_counter() - start), 1), "bytes": round(np.mean([*map(len, raw)]))}
    return found


def machine(device: str) -> dict[str, Any]:
    """What this ran on."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {"gpu": gpu, "torch": torch.__version__, "python": platform.python_version(), "integrand": version_of()}


def main() -> None:
    """Read the options, run the cases, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write what another machine needs, and stop")
    parser.add_argument("--packed", type=Path, metavar="FOLDER", help="what --pack wrote")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each case (default: {SECONDS:g})")
    parser.add_argument("--together", type=int, nargs="*", default=TOGETHER, help="photos explained in one call")
    parser.add_argument("--tol", type=float, default=0.05, help="the tolerance for photos (default: 0.05)")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    if options.pack is not None:
        options.pack.mkdir(parents=True, exist_ok=True)
        pack(options.pack)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.perf_counter()
    photos, which_photos = photos_of(options.packed)
    found: dict[str, Any] = {
        "machine": machine(device),
        "pyarrow": has_pyarrow(),
        "tol": options.tol,
        "photos": which_photos,
        "cases": {},
        "decoding_one_core": decoding(photos),
    }
    watch = Utilisation()

    def case(name: str, about: str, items: list[Any], explain: Any, seconds: float) -> None:
        try:
            row = measured(items, explain, watch, seconds, device == "cuda")
        except Exception as error:  # the other cases still count
            row = {"together": explain.together, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
        found["cases"].setdefault(name, {"about": about, "rows": []})["rows"].append(row)
        print(name, json.dumps(row), file=sys.stderr, flush=True)

    try:
        for name, load, extra in (
            ("EfficientNet-Lite0", lambda: lite0(options.packed), {"score": "probability"}),
            ("ResNet-50", resnet50, {"mean": 114.75, "scale": 56.1, "score": "logit"}),
        ):
            try:
                module, about = load()
            except ImportError as error:
                found["cases"][name] = {"failed": str(error), "rows": []}
                continue
            on = module.eval().requires_grad_(False).to(device)
            for together in options.together:
                explain = PhotoExplainer(on, tol=options.tol, together=together, **extra)
                case(name, about, photos, explain, options.seconds)
            del on, module
        asked = QuestionExplainer(device=device)
        texts, which = questions_of(options.packed, asked)
        for together in (64, 256, 1024):
            asked.together = together
            case("questions", f"{which}; Kim's network, tol 1%", texts, asked, options.seconds / 2)
    finally:
        watch.stop()
    found["seconds"] = round(time.perf_counter() - started, 1)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
