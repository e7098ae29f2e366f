"""Rows a second over many inputs: a plain loop, the best loop written by hand, ``explain_many``, and Ray.

python -m benchmarks.many                                  # 10,000 questions and 400 photos, three rounds: hours on a CPU
python -m benchmarks.many --questions 2000 --photos 48     # less of both
python -m benchmarks.many --quick                          # 512 questions, 8 photos, one round: whether it runs
python -m benchmarks.many --ray                            # with one and two actors of Ray beside the others
python -m benchmarks.many --only memory core bytes         # some parts; the figures of the others stay as they were
python -m benchmarks.many --paper                          # what ten million photos on 64 GPUs take, from what was measured

Everybody explains the same inputs to the same tolerance with the same network, in a thread of its own, and batch by batch in
turns. What is compared are seconds of the processor, so that the figures also mean something on a machine that has other things
to do. Ray's processes explain on their own; what is told is what they, and all of Ray, take beside explaining. Figures go to
``many.json`` beside this file.

Questions are those of TREC-6, photos those of a folder and of scikit-image. Where there are fewer than asked for, questions
come again under other keys, and photos mirrored and cropped.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import io
import json
import os
import platform
import pstats
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import integrand as ig
from integrand.apps import questions
from integrand.apps.questions.model import words_of
from integrand.batch.rows import Row
from integrand.certificate import ExampleCertificate

from .child import peak_above, spawned

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where the questions and the photos are, beside the repository."""

RESULTS = Path(__file__).with_name("many.json")
"""What was measured, for ``--paper``."""

GRID = 16
"""A photo's attributions are kept as sums over a grid of so many cells each way, as ``integrand image`` keeps them."""

ON_GPU = Path(__file__).with_name("many_gpu.json")
"""What ``benchmarks.many_gpu`` printed on the machine with the GPU."""


# ---- what is explained -------------------------------------------------------------------------------------------------------


def trec_questions(count: int, folder: Path = DATA / "questions" / "trec") -> dict[str, str]:
    """So many questions by their keys: those of TREC-6, again and again where it has fewer."""
    texts: list[str] = []
    for name in ("TREC.train.all", "TREC.test.all"):
        lines = (folder / name).read_text(encoding="latin-1").splitlines()
        texts += [text for line in lines if words_of(text := line.partition(" ")[2].strip())]
    return {f"{i:06d}": texts[i % len(texts)] for i in range(count)}


def photo_pixels(count: int, folder: Path = DATA / "photos") -> dict[str, np.ndarray[Any, Any]]:
    """So many photos by their keys, (224, 224, 3): those of a folder and of scikit-image, then mirrored and cropped ones."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("*.jpg"))}
    try:
        import skimage.data as known

        for name in ("astronaut", "chelsea", "coffee", "rocket"):
            found[name] = _central(getattr(known, name)())
    except ImportError:  # those of the folder will do
        pass
    whole = list(found.items())
    for i in range(len(found), count):
        name, pixels = whole[i % len(whole)]
        turn = i // len(whole)  # odd turns are mirrored, later ones cropped further from the edge
        inset = 4 * (turn // 2)
        cut = pixels[inset : 224 - inset, inset : 224 - inset]
        found[f"{name}-{turn}"] = _central(cut[:, ::-1] if turn % 2 else cut)
    return dict(list(found.items())[:count])


def _read(path: Path) -> np.ndarray[Any, Any]:
    from integrand.apps import photos

    return _central(photos.read(path).pixels)


def _central(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from PIL import Image

    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = np.ascontiguousarray(pixels[top : top + side, left : left + side])
    return np.asarray(Image.fromarray(square).resize((224, 224), Image.Resampling.BILINEAR))


class QuestionExplainer:
    """Explains questions with the network for TREC-6: one call of ``integrated_gradients`` for a batch of them.

    Attributes:
        together: questions in a batch.
        lookahead: batches that are formed of questions that are looked at together.
        tol: the tolerance.
    """

    def __init__(self, *, tol: float = 0.01, together: int = 256, device: str | None = None) -> None:
        self.tol, self.together = tol, together
        self.classifier = questions.load("trec", device)
        self.lookahead = self.classifier.lookahead

    @staticmethod
    def size(text: str) -> float:
        """The number of words."""
        return len(words_of(text))

    def found(self, texts: Sequence[str]) -> ig.Attribution:
        """The attributions of some questions."""
        return self.classifier.attribution(texts, tol=self.tol)

    def fields(self, texts: Sequence[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is kept of each: its certificate, and its words with their attributions."""
        found = self.found(texts)
        for text, certificate, values in zip(texts, found.certificate, found.numpy(), strict=True):
            words = [word.text for word in words_of(text)]
            yield certificate, {"features": tuple(words), "attributions": values[: len(words)]}

    def __call__(self, texts: list[str]) -> list[Row]:
        """One row for each question."""
        return [Row.of(certificate, **fields) for certificate, fields in self.fields(texts)]


class PhotoExplainer:
    """Explains photos with a network: one call of ``integrated_gradients`` for a batch of them, then sums over a grid.

    Attributes:
        together: photos in a batch.
        tol: the tolerance.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mean: float = 127.0,
        scale: float = 128.0,
        score: str = "probability",
        tol: float = 0.05,
        together: int = 8,
    ) -> None:
        self.module, self.mean, self.scale, self.score = module, mean, scale, score
        self.tol, self.together = tol, together

    def found(self, photos: Sequence[np.ndarray[Any, Any]]) -> ig.Attribution:
        """The attributions of some photos, from black."""
        device = next(self.module.parameters()).device
        pixels = torch.from_numpy(np.stack(photos)).to(device)
        x = (pixels.permute(0, 3, 1, 2).float() - self.mean) / self.scale
        named: Any = {"score": self.score}
        return ig.integrated_gradients(self.module, x, -self.mean / self.scale, tol=self.tol, progress=False, **named)

    def fields(self, photos: Sequence[np.ndarray[Any, Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is kept of each: its certificate, and its attributions summed over a grid."""
        found = self.found(photos)
        values: Any = found.values
        count, _, height, width = values.shape
        cells = values.sum(1).reshape(count, GRID, height // GRID, GRID, width // GRID).sum((2, 4)).cpu().numpy()
        for certificate, grid in zip(found.certificate, cells, strict=True):
            yield certificate, {"attributions": grid}

    def __call__(self, photos: list[np.ndarray[Any, Any]]) -> list[Row]:
        """One row for each photo."""
        return [Row.of(certificate, **fields) for certificate, fields in self.fields(photos)]


def efficientnet(weights: str | None = None) -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights."""
    from integrand.apps import networks

    module = networks.load("efficientnet-lite0", weights=weights).module
    assert isinstance(module, nn.Module)
    return module


# ---- who explains it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Inputs and what explains them.

    Attributes:
        name: what the inputs are.
        inputs: by their keys.
        explain: what explains a batch.
        make: makes what explains, in an actor of Ray.
        plain: how many of the inputs the plain loop gets: its rate is the same for all.
    """

    name: str
    inputs: Mapping[str, Any]
    explain: Any
    make: Callable[[], Any]
    plain: int


def columns_of(certificate: ExampleCertificate) -> dict[str, Any]:
    """What somebody keeps of a certificate who writes the loop by hand."""
    return {
        "target": certificate.target,
        "score": certificate.score,
        "baseline_score": certificate.baseline_score,
        "error": certificate.error,
        "status": certificate.status.value,
        "evaluations": certificate.gradients,
    }


def written(rows: list[dict[str, Any]], folder: Path) -> None:
    """All rows as one file."""
    import pyarrow as pa
    from pyarrow import parquet

    flat = [{**row, "attributions": np.asarray(row["attributions"]).reshape(-1)} for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(flat), folder / "all.parquet", compression="zstd")


def plain_loop(contest: Contest, folder: Path) -> int:
    """One call of ``integrated_gradients`` for each input."""
    rows = []
    for key, item in list(contest.inputs.items())[: contest.plain]:
        for certificate, fields in contest.explain.fields([item]):
            rows.append({"key": key, **columns_of(certificate), **fields})
    written(rows, folder)
    return len(rows)


def by_hand(contest: Contest, folder: Path) -> int:
    """One call for each batch of inputs of about the same size; rows in a list, written at the end."""
    size = getattr(contest.explain, "size", None)
    order = list(contest.inputs)
    if size is not None:
        order.sort(key=lambda key: size(contest.inputs[key]))
    rows = []
    for at in range(0, len(order), contest.explain.together):
        keys = order[at : at + contest.explain.together]
        fields = contest.explain.fields([contest.inputs[key] for key in keys])
        for key, (certificate, more) in zip(keys, fields, strict=True):
            rows.append({"key": key, **columns_of(certificate), **more})
    written(rows, folder)
    return len(rows)


def with_many(contest: Contest, folder: Path) -> int:
    """``explain_many``."""
    return ig.explain_many(contest.inputs, contest.explain, folder, progress=False).summary.explained


class Turns:
    """Lets several threads explain in turns, whoever has done the least of its share, so that all see the same machine."""

    def __init__(self, shares: Mapping[str, int]) -> None:
        self._shares, self._done = shares, dict.fromkeys(shares, 0)
        self._changed, self._busy = threading.Condition(), False

    def _is_next(self, name: str) -> bool:
        return not self._busy and self._done[name] / self._shares[name] <= min(
            done / self._shares[other] for other, done in self._done.items()
        )

    @contextmanager
    def turn(self, name: str, count: int) -> Iterator[None]:
        """Wait until it is this one's turn to explain so many inputs."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_next(name))
            self._busy = True
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._done[name] += count
                self._changed.notify_all()

    def leave(self, name: str) -> None:
        """This one is done, or has failed."""
        with self._changed:
            self._done[name] = 1 << 62
            self._changed.notify_all()


class InTurns:
    """Explains when it is its turn, and notes the seconds of the processor that it takes."""

    def __init__(self, explain: Any, turns: Turns, name: str) -> None:
        self._explain, self._turns, self._name = explain, turns, name
        self.together, self.tol, self.seconds = explain.together, explain.tol, 0.0
        if hasattr(explain, "size"):
            self.size, self.lookahead = explain.size, explain.lookahead

    @property
    def settings(self) -> Mapping[str, Any]:
        """For the fingerprint."""
        return {"benchmark": self._name}

    def fields(self, items: Sequence[Any]) -> Sequence[Any]:
        """As the explainer has it."""
        with self._turns.turn(self._name, len(items)):
            start = time.thread_time()
            found = list(self._explain.fields(items))
            self.seconds += time.thread_time() - start
        return found

    def __call__(self, items: list[Any]) -> list[Row]:
        """One row for each."""
        return [Row.of(certificate, **fields) for certificate, fields in self.fields(items)]


def contested(contest: Contest, rounds: int, ray: bool) -> dict[str, Any]:
    """Everybody in turns, batch by batch; some rounds."""
    runs = {"plain loop": plain_loop, "by hand": by_hand, "explain_many": with_many}
    contest.explain(list(contest.inputs.values())[: contest.explain.together])  # warms up
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, cost in _one_round(contest, runs).items():
            found[name].append(cost)
    summed = {name: _summed(mine, found["by hand"]) for name, mine in found.items()}
    _told(contest, summed)
    result = {"inputs": len(contest.inputs), "together": contest.explain.together, "tol": contest.explain.tol, "who": summed}
    return result | ({"ray": with_actors(contest)} if ray else {})


def _one_round(contest: Contest, runs: Mapping[str, Callable[[Contest, Path], int]]) -> dict[str, dict[str, float]]:
    counts = {name: contest.plain if name == "plain loop" else len(contest.inputs) for name in runs}
    turns, costs, failed = Turns(counts), {}, []

    def one(name: str, folder: Path) -> None:
        mine = replace(contest, explain=InTurns(contest.explain, turns, name))
        start = time.thread_time()
        try:
            rows = runs[name](mine, folder / name.replace(" ", "-"))
            costs[name] = {"rows": rows, "seconds": time.thread_time() - start, "explaining": mine.explain.seconds}
        except Exception as error:
            failed.append(error)
        finally:
            turns.leave(name)

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=one, args=(name, Path(folder))) for name in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    for name, cost in costs.items():
        print(f"  {name:14} {cost['rows']:6d} rows  {cost['seconds']:8.1f} s of the processor", flush=True)
    return costs


def _summed(mine: Sequence[Mapping[str, float]], hand: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    each = [one["seconds"] / one["rows"] for one in mine]
    over = [own / (one["seconds"] / one["rows"]) - 1 for own, one in zip(each, hand, strict=True)]
    return {
        "rows": mine[0]["rows"],
        "rows_per_second": 1 / statistics.median(each),
        "overhead": [statistics.median(over), min(over), max(over)],
        "beside_explaining": statistics.median(one["seconds"] / one["explaining"] - 1 for one in mine),
        "rounds": len(mine),
    }


def _told(contest: Contest, found: Mapping[str, Any]) -> None:
    print(f"{len(contest.inputs)} {contest.name}, {contest.explain.together} together, tol {contest.explain.tol:g}")
    print("| | rows a second of a core | over the loop by hand (range) | beside explaining |")
    print("|---|---|---|---|")
    for name, one in found.items():
        over = "{:+.1%} ({:+.1%} to {:+.1%})".format(*one["overhead"])
        print(f"| {name} | {one['rows_per_second']:.1f} | {over} | {one['beside_explaining']:.1%} |")


def calls() -> dict[str, float]:
    """What a batch of questions costs: for the call, for each question, and for each word that it is padded to."""
    explain = QuestionExplainer()
    by_length: dict[int, list[str]] = {}
    for text in trec_questions(5_952).values():
        by_length.setdefault(len(words_of(text)), []).append(text)
    explain.found(by_length[8][:16])  # warms up
    terms, seconds = [], []
    for count, length in [(n, words) for _ in range(3) for n in (8, 32, 96) for words in (8, 16, 32)]:
        texts = [*by_length[8][: count - 1], by_length[length][0]]  # the last one pads all others
        start = time.thread_time()
        explain.found(texts)
        seconds.append(time.thread_time() - start)
        terms.append([1, count, count * length])
    weights = 1 / np.array(seconds)
    call, question, word = np.linalg.lstsq(np.array(terms) * weights[:, None], np.ones(len(terms)), rcond=None)[0]
    print(f"  {1e3 * call:.0f} ms for a call, {1e3 * question:.2f} for a question, {1e3 * word:.3f} for a word")
    return {"call": float(call), "question": float(question), "word": float(word)}


# ---- Ray ---------------------------------------------------------------------------------------------------------------------


class Metered:
    """Explains, and notes in a file what seconds of the processor it takes: actors of Ray are processes of their own."""

    def __init__(self, make: Callable[[], Any], folder: str) -> None:
        self._explain, self._file = make(), Path(folder) / f"{os.getpid()}.txt"
        self.together, self.size = self._explain.together, getattr(self._explain, "size", None)
        self.lookahead = getattr(self._explain, "lookahead", None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """For the fingerprint."""
        return {"benchmark": "ray"}

    def __call__(self, items: list[Any]) -> list[Row]:
        """One row for each."""
        start, wall = time.thread_time(), time.time()
        rows: list[Row] = self._explain(items)
        with self._file.open("a") as file:
            file.write(f"{time.thread_time() - start} {wall} {time.time()} {time.process_time()}\n")
        return rows


def with_actors(contest: Contest) -> dict[str, Any]:
    """What Ray costs beside explaining: seconds of the processor of all processes, for a few windows and for all inputs.

    What a few cost is mostly what starting costs: Ray itself, and in each actor torch and the model. The difference is what
    Ray costs for a row.
    """
    from integrand.batch.ray import explain_dataset

    _connect()
    few = dict(list(contest.inputs.items())[: 2 * contest.explain.together])
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:  # the first run also starts Ray's own processes
        explain_dataset(few, functools.partial(Metered, contest.make, folder), Path(folder) / "table", progress=False)
    for actors in (1, 2):
        costs = []
        for inputs in (few, contest.inputs):
            with tempfile.TemporaryDirectory() as folder:
                make = functools.partial(Metered, contest.make, folder)
                start, own, others = time.perf_counter(), time.process_time(), of_others()
                explain_dataset(inputs, make, Path(folder) / "table", actors=actors, progress=False)
                wall, own = time.perf_counter() - start, time.process_time() - own
                ray_itself = sum(max(0.0, used - others.get(pid, 0.0)) for pid, used in of_others().items())
                files = {
                    int(file.stem): [line.split() for line in file.read_text().splitlines()]
                    for file in Path(folder).glob("*.txt")
                }
            lines = [line for each in files.values() for line in each]
            ends = sum(float(each[-1][3]) for each in files.values())  # of the actors, which are no more
            used = own + ray_itself + ends
            explaining = sum(float(line[0]) for line in lines)
            span = max(float(line[2]) for line in lines) - min(float(line[1]) for line in lines)
            costs.append({"rows": len(inputs), "wall": wall, "seconds": used, "explaining": explaining, "span": span})
            print(
                f"  Ray, {actors} actor(s): {len(inputs)} rows, {wall:.1f} s; {used:.1f} s of all processors, {explaining:.1f} "
                f"explaining, within {span:.1f} s",
                flush=True,
            )
        small, large = costs
        fixed = small["seconds"] - small["explaining"]
        more = (large["seconds"] - large["explaining"] - fixed) / (large["explaining"] - small["explaining"])
        found[str(actors)] = {"runs": costs, "start": fixed, "overhead": more}
        print(f"  Ray, {actors} actor(s): {fixed:.1f} s to start, then {more:+.1%} over explaining", flush=True)
    return found


def _connect() -> None:
    import ray

    if not ray.is_initialized():
        quiet: Any = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
        ray.init("local", num_cpus=2, object_store_memory=200 << 20, **quiet)


def of_others() -> dict[int, float]:
    """Seconds of the processor that those processes of Ray have used that outlive a run: by their number."""
    import psutil

    found = {}
    for one in psutil.Process().children(recursive=True):
        try:
            used, name = one.cpu_times(), " ".join(one.cmdline())
        except psutil.Error:  # it has ended meanwhile
            continue
        if "MapWorker" not in name:  # an actor, which says itself what it used
            found[one.pid] = used.user + used.system
    return found


# ---- memory ------------------------------------------------------------------------------------------------------------------


def memory(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Peak memory of runs over so many questions from a file, each in a process of its own."""
    rows = []
    for count in counts:
        row = {"inputs": count} | spawned("benchmarks.many", "--child", str(count))
        rows.append(row)
        print(f"  {count:6d} questions: {row.get('peak_mb', float('nan')):7.1f} MB above the loaded model", flush=True)
    return rows


def memory_child(count: int) -> None:
    """In the child: explain questions from a file, print the peak."""
    torch.set_num_threads(1)
    explain = QuestionExplainer()
    asked = trec_questions(count)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        file.write_text("".join(json.dumps({"key": key, "text": text}) + "\n" for key, text in asked.items()))
        longest = sorted(asked.values(), key=explain.size)[-explain.together :]
        del asked
        explain(longest)  # the largest batch of all, so that what grows is the number of inputs
        run = lambda: ig.explain_many(file, explain, Path(folder) / "table", key="key", column="text", progress=False)  # noqa: E731
        print(json.dumps({"peak_mb": peak_above(run) / 1e6}))


# ---- the core alone ----------------------------------------------------------------------------------------------------------


class FreeExplainer:
    """Explains nothing: gives rows that were made before, so that what is left is the cost of the table.

    Attributes:
        together: inputs in a batch.
    """

    together = 64
    settings: Mapping[str, Any] = {"free": True}

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows, self._at = rows, 0

    def __call__(self, items: list[Any]) -> list[Row]:
        """A row for each input, with other numbers each time, which do not compress any better than true ones."""
        self._at += len(items)
        rows = [self._rows[(self._at + i) % len(self._rows)] for i in range(len(items))]
        return [replace(row, attributions=row.attributions * np.float32(1 + 1e-7 * self._at)) for row in rows]


def photo_rows(count: int = 4096) -> list[Row]:
    """Rows as photos have them: what a certificate says, a sentence, and sums over a grid, which differ from row to row."""

    def bowl(x: torch.Tensor) -> torch.Tensor:
        return (x**2).flatten(1).sum(1)

    made = np.random.default_rng(0)
    x = torch.from_numpy(made.normal(size=(count, GRID)).astype(np.float32))
    grids = made.standard_t(3, size=(count, GRID, GRID)).astype(np.float32) / 1000
    certificates = ig.integrated_gradients(bowl, x, progress=False).certificate
    classes = ["tabby, tabby cat", "espresso", "missile", "academic gown, academic robe, judge's robe"]
    rows = []
    for i, certificate in enumerate(certificates):
        said = {"prediction": classes[i % 4], "probability": float(made.uniform()), "target": classes[i % 4]}
        sentence = f"{classes[i % 4]} ({i % 100}%): half of it from {i % 37}% of the photo, in the middle."
        rows.append(Row.of(certificate, sentence=sentence, attributions=grids[i], **said))
    return rows


def photo_key(number: int) -> str:
    """A key as photos have it."""
    return f"photos/{number:09d}.jpg"


def core(counts: Sequence[int] = (5_000, 20_000, 100_000)) -> dict[str, Any]:
    """What the table costs for each row, and where that goes; what a key takes in memory; how long reading keys again takes."""
    from integrand.batch.table import ExplainedTable, KeyIndex, TableStore

    explain = FreeExplainer(photo_rows())
    found: dict[str, Any] = {"rows": []}
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "table"
            start = time.process_time()
            ig.explain_many(range(count), explain, place, key=photo_key, progress=False)
            fresh = time.process_time() - start
            start = time.process_time()
            ig.explain_many(range(count), explain, place, key=photo_key, progress=False)
            again = time.process_time() - start
            table = ExplainedTable.open(place)
            start = time.process_time()
            with TableStore.opened(place, table.manifest):
                opening = time.process_time() - start
            size = sum(path.stat().st_size for path in table.parts)
            row = {
                "inputs": count,
                "microseconds_each": 1e6 * fresh / count,
                "microseconds_each_resumed": 1e6 * again / count,
                "microseconds_each_opened": 1e6 * opening / count,
                "bytes_each": size / count,
                "parts": len(table.parts),
            }
        found["rows"].append(row)
        print(
            f"  {count:7d} rows: {row['microseconds_each']:.0f} us each, {row['microseconds_each_resumed']:.0f} us if done, "
            f"{row['microseconds_each_opened']:.1f} us on opening; {row['bytes_each']:.0f} bytes each, {row['parts']} parts",
            flush=True,
        )

    def index() -> None:
        keep.extend([KeyIndex()])
        for i in range(1_000_000):
            keep[0].add(photo_key(i), 1, i, ok=True, digest="0123456789abcdef")

    keep: list[Any] = []
    found["bytes_per_key"] = peak_above(index) / 1_000_000
    print(f"  an index of 1,000,000 keys: {found['bytes_per_key']:.0f} bytes each at its peak")
    found["where"] = where(explain)
    return found


def where(explain: FreeExplainer, count: int = 20_000) -> list[tuple[str, float]]:
    """The functions that the table spends its time in, with their own share of it."""
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        profile.enable()
        ig.explain_many(range(count), explain, Path(folder) / "table", key=photo_key, progress=False)
        profile.disable()
    stats = pstats.Stats(profile, stream=io.StringIO())
    table: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    total = sum(row[2] for row in table.values())
    names = sorted(((row[2] / total, key) for key, row in table.items()), reverse=True)[:12]
    rows = [(f"{Path(file).name}:{line} {name}", share) for share, (file, line, name) in names]
    print(f"  of {1e6 * total / count:.0f} us for a row under the profiler:")
    for name, share in rows:
        print(f"    {share:6.1%}  {name}")
    return rows


# ---- bytes a row -------------------------------------------------------------------------------------------------------------


def bytes_of_rows(count: int = 4) -> dict[str, float]:
    """Bytes that a photo takes whose attributions are kept for all pixels: in a file beside the table, or in the table."""
    from integrand.batch import ModelExplainer

    pixels = np.stack(list(photo_pixels(count).values()))
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128
    explain = ModelExplainer(efficientnet(), -127 / 128, score="probability", tol=0.2, together=1)
    keeping: tuple[Any, ...] = ("files", "values")
    found = {}
    for keep in keeping:
        with tempfile.TemporaryDirectory() as folder:
            ig.explain_many(x, explain, folder, attributions=keep, progress=False)
            found[keep] = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / count
        print(f"  {keep:7} {found[keep]:12,.0f} bytes a photo", flush=True)
    return found


# ---- on paper ----------------------------------------------------------------------------------------------------------------

PHOTOS, GPUS = 10_000_000, 64
"""What is computed on paper."""

JPEG = 110_000
"""Bytes of a photo as ImageNet has them, on average."""

PUTS, LISTED = 3_500, 1_000
"""Of an object store such as S3: writes a second that it takes under one prefix, and names that one request lists."""


def paper() -> dict[str, float]:
    """What ten million photos on 64 GPUs take, line by line, from what was measured."""
    known, gpu = json.loads(RESULTS.read_text()), json.loads(ON_GPU.read_text())
    network = gpu["cases"]["EfficientNet-Lite0"]
    best = max((row for row in network["rows"] if "per_second" in row), key=lambda row: row["per_second"])
    table, full = known["core"]["rows"][-1], known["bytes"]
    rate, each = best["per_second"], table["bytes_each"]
    rows = GPUS * rate
    hours = PHOTOS / rows / 3600
    decoded = gpu["decoding_one_core"]["500x375"]["per_second"]
    parts = hours * 3600 / 5
    found: dict[str, float] = {}

    def line(name: str, value: float, said: str, sum_: str) -> None:
        found[name] = value
        print(f"| {name} | {said} | {sum_} |")

    print(f"{network['about']}; tol {gpu['tol']:g}; {best['together']} photos together; {gpu['machine']['gpu']}")
    print("| | | from |")
    print("|---|---|---|")
    line("photos a second", rows, f"{rows:,.0f}", f"{GPUS} x {rate:.1f} a GPU, measured")
    line("hours", hours, f"{hours:.1f} h", f"{PHOTOS:,} / {rows:,.0f} / 3600")
    line("GPU hours", hours * GPUS, f"{hours * GPUS:,.0f}", f"{hours:.2f} h x {GPUS}")
    line("photos read", rows * JPEG, f"{rows * JPEG / 1e6:,.0f} MB/s", f"{rows:,.0f} x {JPEG / 1000:.0f} kB")
    cores = rows / decoded
    line("cores that decode", cores, f"{cores:.0f}, {cores / GPUS:.2f} a GPU", f"{rows:,.0f} / {decoded:.0f} a core, measured")
    line("table, sums over a grid", PHOTOS * each, f"{PHOTOS * each / 1e9:.1f} GB", f"{PHOTOS:,} x {each:,.0f} bytes, measured")
    whole = PHOTOS * full["files"]
    line(
        "all attributions, in files", whole, f"{whole / 1e12:.1f} TB", f"{PHOTOS:,} x {full['files'] / 1000:,.0f} kB, measured"
    )
    line("files written a second", rows, f"{rows:,.0f} of {PUTS:,}", "one a photo; what a prefix of an object store takes")
    line("listing the files", PHOTOS / LISTED, f"{PHOTOS / LISTED:,.0f} requests", f"{PHOTOS:,} / {LISTED:,}")
    line("parts before they are merged", parts, f"{parts:,.0f}", f"{hours * 3600:,.0f} s / 5 s")
    merged = PHOTOS * table["parts"] / table["inputs"]
    line("parts at the end", merged, f"{merged:,.0f}", f"{table['inputs']:,} rows had {table['parts']}, measured")
    load, most = rows * table["microseconds_each"] / 1e6, 1e6 / table["microseconds_each"] / rate
    line("driver: processor", load, f"{load:.0%} of a core", f"{rows:,.0f} x {table['microseconds_each']:.0f} us, measured")
    line("GPUs that fill that core", most, f"{most:,.0f}", f"1 s / {table['microseconds_each']:.0f} us / {rate:.1f}")
    flight = 2 * best["together"] * 3 * 224 * 224
    line(
        "object store, pixels",
        flight,
        f"{flight / 1e6:.0f} MB a GPU",
        f"2 windows x {best['together']} photos x 150,528 bytes",
    )
    keys = 2 * PHOTOS * known["core"]["bytes_per_key"]
    line("driver: keys in memory", keys, f"{keys / 1e9:.1f} GB", f"2 x {PHOTOS:,} x {known['core']['bytes_per_key']:.0f} bytes")
    opened = PHOTOS * table["microseconds_each_opened"] / 1e6
    line(
        "driver: opening again", opened, f"{opened:.0f} s", f"{PHOTOS:,} x {table['microseconds_each_opened']:.0f} us, measured"
    )
    return found


# ---- the command -------------------------------------------------------------------------------------------------------------

PARTS = ("questions", "photos", "calls", "memory", "core", "bytes")


def question_contest(count: int, together: int) -> Contest:
    """Questions, with Kim's network."""
    make = functools.partial(QuestionExplainer, together=together)
    return Contest("questions of TREC-6", trec_questions(count), make(), make, max(1, count // 20))


def photo_contest(count: int, together: int) -> Contest:
    """Photos, with EfficientNet-Lite0."""
    make = functools.partial(efficientnet_explainer, together)
    return Contest("photos", photo_pixels(count), make(), make, max(1, count // 6))


def efficientnet_explainer(together: int) -> PhotoExplainer:
    """EfficientNet-Lite0 as something that explains photos."""
    return PhotoExplainer(efficientnet(), together=together)


def main() -> None:
    """Read the options, run the parts, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=10_000, help="how many questions (default: 10000)")
    parser.add_argument("--photos", type=int, default=400, help="how many photos (default: 400)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of everybody (default: 3)")
    parser.add_argument("--ray", action="store_true", help="Ray with one and two actors beside the others")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="some parts")
    parser.add_argument("--quick", action="store_true", help="so little that it shows no more than that everything runs")
    parser.add_argument("--paper", action="store_true", help="print what ten million photos take, and stop")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        memory_child(options.child)
        return
    if options.paper:
        paper()
        return
    torch.set_num_threads(1)
    counts, sizes = (1_000, 5_000, 10_000), (5_000, 20_000, 100_000)
    if options.quick:
        options.questions, options.photos, options.rounds, counts, sizes = 512, 8, 1, (256, 512), (500, 2_000)
    parts: dict[str, Callable[[], Any]] = {
        "questions": lambda: contested(question_contest(options.questions, 256), options.rounds, options.ray),
        "photos": lambda: contested(photo_contest(options.photos, 8), options.rounds, options.ray),
        "calls": calls,
        "memory": lambda: memory(counts),
        "core": lambda: core(sizes),
        "bytes": bytes_of_rows,
    }
    for name in options.only or PARTS:
        print(f"\n## {name}", flush=True)
        measured = parts[name]()
        if not options.quick:
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            machine = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count()}
            RESULTS.write_text(json.dumps(known | {name: measured, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
