"""Llama-size language models in bfloat16: integrand beside Captum's LayerIntegratedGradients and inseq with their 50 steps.

python -m benchmarks.language_models --device cuda --out out/bench/language.json --minutes 8
python -m benchmarks.language_models --device cuda --out out/bench/language.json --only 8b    # goes on where it was stopped
python -m benchmarks.language_models --table out/bench/language.json                          # what was measured, as a table
python -m benchmarks.language_models --tiny                                                   # two layers, to see that it works
python -m benchmarks.language_models --peers FOLDER                                           # where captum and inseq lie

Weights are random (the sizes are those of Llama-3.2-1B and Llama-3.1-8B); the logit of every output that the model itself
writes is explained, from a text in which every token is the unknown one. GB are what torch allocates above the model, at the
most. The error is measured on the 1B model, for the first and the last output, against Gauss-Legendre in float32 with the same
weights. Peers get as many rows at a time as make 4,096 tokens; what would take them longer than 15 seconds is timed with fewer
outputs or steps and scaled, which is marked. Cells come in the order of their importance; what does not fit into --minutes is
left out, and is run by the same command given again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import language_model_cases as cases
from .language_model_cases import LanguageCase, off

TOKENS, OUTPUTS, TOLERANCES = (512, 2048, 8192), (1, 16), (0.05, 0.01)
STEPS = 50
PATIENCE = 15.0
"""Seconds from which on a peer is timed with less and scaled."""

PEER_TOKENS = 4096
"""Tokens that peers run at a time."""

NODES = {512: (48, 80), 2048: (40, 72), 8192: (6, 12)}
"""Of the reference: for its doubt, and for itself."""

GUESSED = 45
"""Nodes that integrand is expected to take, to tell whether a cell fits into the time that is left."""

LIMIT = 8_000_000_000
"""Bytes of the row with ``memory=``."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        model: its size.
        tokens: of the prompt.
        outputs: explained ones.
        who: integrand, captum, inseq, or reference.
        tol: for integrand.
        memory: bytes, for integrand; None for no limit.
    """

    model: str
    tokens: int
    outputs: int
    who: str
    tol: float | None = None
    memory: int | None = None

    @property
    def name(self) -> str:
        """Its key among the results."""
        how = "" if self.tol is None else f" {self.tol:.0%}"
        return f"{self.model} {self.tokens} {self.outputs} {self.who}{how}{f' {self.memory / 1e9:g} GB' if self.memory else ''}"


def planned(models: list[str], tokens: tuple[int, ...]) -> Iterator[Cell]:
    """All cells of the table, the most important first."""
    first, usual, long = tokens
    yield from (Cell("1b", count, 16, "reference") for count in (first, usual) if "1b" in models)
    for outputs, lengths in ((1, tokens), (16, (first, usual)), (16, (long,))):
        for model in models:
            for count in lengths:
                yield from (Cell(model, count, outputs, "integrand", tol) for tol in TOLERANCES)
                yield from (Cell(model, count, outputs, who) for who in ("captum", "inseq"))
                if model == "8b" and count == usual and outputs == 1:
                    yield Cell(model, count, 1, "integrand", 0.05, LIMIT)
        if outputs == 1 and "1b" in models:
            yield Cell("1b", long, 16, "reference")


Attributions = dict[int, np.ndarray]
"""By the number of the output, (T,) each."""


def kept(values: Attributions) -> dict[str, list[float]]:
    """What is written of attributions: the first and the last output, whose errors are measured."""
    return {str(i): [float(f"{one:.5e}") for one in row] for i, row in values.items() if i in (0, max(OUTPUTS) - 1)}


def run_integrand(one: LanguageCase, cell: Cell) -> tuple[Attributions, Row]:
    """Attributions, and what the certificates say."""
    from integrand import text

    given = {} if cell.memory is None else {"memory": cell.memory}
    found = text.generated(
        one.model,
        one.tokenizer,
        one.text,
        continuation=one.out[: cell.outputs],
        score="logit",
        baseline=cases.FILL,
        tol=cell.tol or 0.01,
        **given,
    )
    said = found.certificate
    told: Row = {"claimed": max(one.error for one in said), "gradients": said.gradients, "forwards": said.forwards}
    told |= {"status": sorted({one.status.value for one in said}), "precision": said[0].precision, "note": said[0].note}
    return dict(enumerate(found.values)), told


def run_peer(one: LanguageCase, cell: Cell, seconds: float) -> tuple[Attributions, Row]:
    """Attributions of the outputs that were run, none where too few steps were taken; and by what the time is scaled."""
    rows = max(1, PEER_TOKENS // cell.tokens)
    some = checked(cell) if cell.outputs * STEPS * seconds > PATIENCE else list(range(cell.outputs))
    if cell.who == "inseq":  # it explains the first ones, one after the other
        some = list(range(len(some)))
    steps = STEPS if len(some) * STEPS * seconds <= 2 * PATIENCE else max(4, int(PATIENCE / seconds / len(some)))
    if cell.who == "captum":
        values = {output: cases.run_captum(one, output, steps, min(rows, steps))[0] for output in some}
    else:
        values = dict(enumerate(cases.run_inseq(one, len(some), steps, min(rows, steps))))
    told = {"gradients": STEPS * cell.outputs, "scaled": cell.outputs * STEPS / (len(some) * steps)}
    return (values if steps == STEPS else {}), told


def checked(cell: Cell) -> list[int]:
    """The outputs whose error is measured: the first and the last."""
    return sorted({0, cell.outputs - 1})


class Bench:
    """Runs cells, and writes what came of each at once.

    Args:
        out: the file of results; what it has already is not run again.
        device: where.
        tiny: small models, whose figures mean nothing.
        minutes: after which no cell is begun.
    """

    def __init__(self, out: Path, device: str, *, tiny: bool, minutes: float) -> None:
        self.out, self.device, self.tiny = out, device, tiny
        self.until = time.monotonic() + 60 * minutes
        self.rows: Row = json.loads(out.read_text()) if out.exists() else {}
        self.models: dict[str, Any] = {}
        self.cases: dict[tuple[str, int], LanguageCase] = {}
        self.seconds: dict[tuple[str, int], float] = {}
        self.nodes: dict[float, float] = {}

    def note(self, name: str, row: Row) -> None:
        """Write a result."""
        self.rows[name] = row
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.rows, indent=1))
        print(f"{name:32} {shown(row | error_of(name, self.rows))}", flush=True)

    def prepare(self, cell: Cell) -> LanguageCase:
        """The model and the text of a cell, warmed up: seconds of one gradient are measured on the way."""
        if cell.model not in self.models:
            self.models[cell.model] = cases.llama("tiny" if self.tiny else cell.model, self.device).requires_grad_(False)
        model, key = self.models[cell.model], (cell.model, cell.tokens)
        if key not in self.cases:
            one = cases.case(model, cases.word_tokenizer(model.config.vocab_size), cell.tokens, max(OUTPUTS))
            for _ in range(2):  # the first one sets things up
                start = self.now()
                (found,) = cases.gradients(model, model.get_input_embeddings()(one.before(0)), cell.tokens, [(0, one.out[0])])
                if not bool(found.isfinite().all()):
                    raise SystemExit(f"gradients of the {cell.model} model are not finite in bfloat16")
                self.seconds[key] = self.now() - start
            self.cases[key] = one
            print(f"{cell.model} {cell.tokens}: a gradient takes {self.seconds[key]:.3f} s", flush=True)
        return self.cases[key]

    def expected(self, cell: Cell) -> float:
        """Seconds that a cell is expected to take."""
        each = self.seconds[cell.model, cell.tokens]
        if cell.who == "reference":  # float32 takes some ten times as long, with two outputs at each node
            return 0.0 if self.tiny else 10 * each * sum(NODES[cell.tokens]) * 5 / 3
        if cell.tol is None:
            return min(STEPS * cell.outputs * each, 2 * PATIENCE)
        return self.nodes.get(cell.tol, GUESSED) * each * (1 + 2 * cell.outputs) / 3  # a backward pass is two thirds of it

    def now(self) -> float:
        """Seconds, after all that the device was asked for."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def release(self) -> None:
        """Give memory back, and count its peak from now on."""
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def held(self, peak: bool) -> float:
        """GB that torch has allocated, now or at the most; 0 on a CPU."""
        if self.device != "cuda":
            return 0.0
        return (torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()) / 1e9

    def run(self, cell: Cell) -> None:
        """Run a cell, unless it is there already or there is no time left."""
        known = self.rows.get(cell.name, {})
        if known and "left out" not in known:
            return
        if time.monotonic() > self.until:
            self.note(cell.name, {"left out": "no time left"})
            return
        try:
            one = self.prepare(cell)
            wants = self.expected(cell)
            if time.monotonic() + wants > self.until:
                self.note(cell.name, {"left out": f"would take about {wants:.0f} s"})
                return
            self.note(cell.name, self.referred(one, cell) if cell.who == "reference" else self.measured(one, cell))
        except Exception as error:  # a failure is a result, and the next cell may work
            self.note(cell.name, {"failed": f"{type(error).__name__}: {error}"[:600]})

    def referred(self, one: LanguageCase, cell: Cell) -> Row:
        """The reference: kept in the file, since errors are measured against it later."""
        start = self.now()
        nodes = NODES.get(cell.tokens, (16, 32))
        values, doubt = cases.reference(one, checked(cell), nodes)
        row = {"seconds": self.now() - start, "nodes": nodes[1], "doubt": doubt}
        return row | {"values": kept(dict(zip(checked(cell), values, strict=True)))}

    def measured(self, one: LanguageCase, cell: Cell) -> Row:
        """Seconds, memory, and errors as claimed and as measured."""
        self.release()
        before, start = self.held(peak=False), self.now()
        if cell.who == "integrand":
            values, told = run_integrand(one, cell)
            self.nodes[cell.tol or 0.01] = told["gradients"] / cell.outputs
        else:
            values, told = run_peer(one, cell, self.seconds[cell.model, cell.tokens])
        taken = self.now() - start
        row: Row = {"seconds": taken * told.get("scaled", 1.0), "gb": self.held(peak=True) - before, **told}
        return row | ({"values": kept(values)} if cell.model == "1b" else {})


def error_of(name: str, rows: Row) -> Row:
    """The relative L1 error of the worst output that is known in float32, if any; files without values say it themselves."""
    if "error" in rows[name]:
        return {}
    model, tokens, *_ = name.split()
    true = rows.get(Cell(model, int(tokens), 16, "reference").name, {}).get("values", {})
    found = {i: values for i, values in rows[name].get("values", {}).items() if i in true}
    errors = [off(np.array([values]), np.array([true[i]])) for i, values in found.items()]
    return {"error": max(errors)} if errors else {}


def shown(row: Row) -> str:
    """A result in a line."""
    if "failed" in row or "left out" in row:
        return row.get("failed") or f"left out: {row['left out']}"
    if "doubt" in row:
        return f"{row['seconds']:8.2f} s   {row['nodes']} nodes, doubt {row['doubt']:.3%}"
    words = [f"{row['seconds']:8.2f} s", f"{row['gb']:6.2f} GB", f"{row['gradients']:5d} gradients"]
    words += [f"claimed {row['claimed']:.2%}"] if "claimed" in row else []
    words += [f"error {row['error']:.2%}"] if "error" in row else []
    words += [", ".join(row["status"]), row["precision"], row["note"]] if "status" in row else []
    words += [f"time scaled by {row['scaled']:.1f}"] if row.get("scaled", 1.0) != 1.0 else []
    return "   ".join(words)


def table(rows: Row) -> str:
    """All results as a table in Markdown."""
    lines = ["| | seconds | GB | gradients | claimed | measured |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        if "seconds" not in row or "doubt" in row:
            continue
        row = row | error_of(name, rows)
        mark = " *" if row.get("scaled", 1.0) != 1.0 else ""
        claimed, error = (f"{row[key]:.2%}" if key in row else "" for key in ("claimed", "error"))
        lines.append(f"| {name} | {row['seconds']:.2f}{mark} | {row['gb']:.2f} | {row['gradients']:,} | {claimed} | {error} |")
    doubts = [f"{name}: {row['nodes']} nodes, {row['doubt']:.2%}" for name, row in rows.items() if "doubt" in row]
    return "\n".join([*lines, "", "Doubt of the references: " + "; ".join(doubts)])


def main(given: list[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench/language.json"), help="the file of results")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=("1b", "8b"), default=["1b", "8b"], help="models to run")
    parser.add_argument("--who", nargs="+", choices=("integrand", "captum", "inseq", "reference"), help="whom to run")
    parser.add_argument("--tokens", nargs="+", type=int, help="lengths of the prompt to run, of those in the table")
    parser.add_argument("--outputs", nargs="+", type=int, help="numbers of outputs to run, of those in the table")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no cell is begun")
    parser.add_argument("--peers", help="folder with captum and inseq, where they are not installed")
    parser.add_argument("--tiny", action="store_true", help="two layers and short texts, to see that it works; no figures")
    parser.add_argument("--table", type=Path, help="print a file of results as a table, and do nothing else")
    options = parser.parse_args(given)
    if options.table is not None:
        print(table(json.loads(options.table.read_text())))
        return
    if options.peers:
        sys.path.append(options.peers)
        cases.allow_missing_pictures()
    warnings.simplefilter("ignore")
    bench = Bench(options.out, options.device, tiny=options.tiny, minutes=options.minutes)
    for cell in planned(options.only, (12, 20, 40) if options.tiny else TOKENS):
        wanted = (options.who, cell.who), (options.tokens, cell.tokens), (options.outputs, cell.outputs)
        if all(some is None or one in some for some, one in wanted):
            bench.run(cell)
    print(table(bench.rows))


if __name__ == "__main__":
    main()
