"""A language model from zero embeddings: where the change happens, and the errors of Captum, inseq and integrand.

    python -m benchmarks.zero_baseline                                          # three tables: four minutes on one core
    python -m benchmarks.zero_baseline --picture docs/pictures/zero-baseline.png
    python -m benchmarks.zero_baseline --inseq FOLDER      # rows of inseq: pip install --target FOLDER inseq==0.7.1

The model is stories260K, a Llama with ten RMSNorms in front of the last one. Each prompt is explained in float32, as users run
it, and compared in float64 with references that refine down to t = 1e-40: those of ``tests/honesty/stories_at_zero.npz``, or
computed here for the other baselines. Errors are relative, sum|a - a*| / sum|a*|, over all numbers of the embeddings.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import integrand as ig
from tests.apps.text.stories import stories
from tests.honesty.attacks import gradients, singular_reference
from tests.honesty.honest import relative_error
from tests.honesty.story_references import CASES, PROMPTS, STORED, NextToken, StoryCase

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "language-model"
"""Where ``stories260K.bin`` and ``tok512.bin`` are."""

STEPS = (50, 300)
TOLERANCES = (0.05, 0.01)

FIRST, ZERO, MEAN = "zeros but for the first token", "all zero", "mean embedding"
TEXT, UNKNOWN = "another text", "unknown token"
"""Starts of the path. The mean and the other text keep the first token; the unknown token replaces all, as in inseq."""

STARTS = (ZERO, FIRST, UNKNOWN, MEAN, TEXT)
SCORES = ("logit", "probability")

OTHER_TEXT = "Once upon a time there was a little boy who had a big red ball and a small blue car in his room."

TIMES = np.r_[0.0, np.geomspace(1e-18, 1.0, 400)]
"""Times on the path at which |g| is evaluated for the picture and the shares."""

BELOW = (1e-9, 1e-6, 1e-3, 1e-2, 1e-1)
"""The share of the change is printed up to these times."""


@dataclass(frozen=True)
class Measurement:
    """One explanation next to its reference.

    Attributes:
        gradients: evaluations spent.
        claimed: the error that the certificate states; NaN where there is no certificate.
        measured: the relative L1 error.
        missing: what the sum misses of F(x) - F(x'), as a share of it.
    """

    gradients: int
    claimed: float
    measured: float
    missing: float


class Story:
    """A prompt with its target and a start of its path.

    Args:
        network: the model in some precision.
        tokenizer: its tokenizer.
        case: the prompt, the token and the score.
        start: one of the starts above.
    """

    def __init__(self, network: NextToken, tokenizer: Any, case: StoryCase, start: str) -> None:
        self.network, self.tokenizer, self.case, self.start = network, tokenizer, case, start
        self.ids = tokenizer(case.prompt, return_tensors="pt").input_ids
        self.x = self._embedded(self.ids)
        self.baseline = self._baseline()
        self.token = int(network(self.x)[0].argsort(descending=True)[case.rank])

    def _embedded(self, ids: Tensor) -> Tensor:
        return self.network.model.get_input_embeddings()(ids).detach()  # type: ignore[no-any-return]

    def _baseline(self) -> Tensor:
        """The start of the path, (1, T, width)."""
        if self.start == UNKNOWN:
            return self._embedded(torch.full_like(self.ids, self.tokenizer.unk_token_id))
        if self.start == TEXT:
            return self._embedded(self.tokenizer(OTHER_TEXT, return_tensors="pt").input_ids[:, : self.ids.shape[1]])
        mean = self.network.model.get_input_embeddings().weight.mean(0)
        start = torch.zeros_like(self.x) + (mean if self.start == MEAN else 0.0)
        if self.start != ZERO:
            start[:, 0] = self.x[:, 0]
        return start

    def score(self, rows: Tensor) -> Tensor:
        """The explained score at embeddings, (N, T, width) to (N,)."""
        logits = self.network(rows)
        return (logits.softmax(1) if self.case.score == "probability" else logits)[:, self.token]

    def profile(self) -> np.ndarray:
        """|g|, the L1 norm of gradient times step, at ``TIMES``."""
        parts = torch.tensor(TIMES).split(64)
        return torch.cat([gradients(self.score, self.x, self.baseline, t).abs().sum(1) for t in parts]).numpy()

    def compared(self, values: Tensor, reference: np.ndarray, count: int, claimed: float = float("nan")) -> Measurement:
        """Attributions next to a reference."""
        flat = values.detach().double().numpy().ravel()
        with torch.no_grad():
            change = float(self.score(self.x) - self.score(self.baseline))
        return Measurement(count, claimed, relative_error(flat, reference), abs(float(flat.sum()) - change) / abs(change))


Explainer = Callable[[Story], tuple[Tensor, int, float]]
"""From a story to attributions, the gradients that they took and the claimed error."""


def integrand_to(tol: float) -> Explainer:
    """Explain by integrand, to a tolerance."""

    def explain(story: Story) -> tuple[Tensor, int, float]:
        result = ig.integrated_gradients(
            story.network, story.x, story.baseline, target=story.token, score=story.case.score, tol=tol
        )
        only = result.certificate.only
        return cast("Tensor", result.values), only.gradients, only.error

    return explain


def captum_with(steps: int) -> Explainer:
    """Explain by Captum, with its default rule."""
    from captum.attr import IntegratedGradients

    def explain(story: Story) -> tuple[Tensor, int, float]:
        values = IntegratedGradients(story.score).attribute(story.x, story.baseline, n_steps=steps)
        return values, steps, float("nan")

    return explain


def inseq_with(steps: int) -> Explainer:
    """Explain by inseq: the likeliest next token, from its own baseline, the unknown token in place of every token.

    It has no option for another baseline. For a start at zero, the embedding of the unknown token is set to zero, and the
    last layer keeps its weights.
    """
    import inseq

    def explain(story: Story) -> tuple[Tensor, int, float]:
        model, _ = stories(DATA)
        if story.start == ZERO:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
            model.get_input_embeddings().weight.data[story.tokenizer.unk_token_id] = 0
        attributing = inseq.load_model(model, "integrated_gradients", tokenizer=story.tokenizer)
        text = story.tokenizer.decode([*story.ids[0].tolist(), story.token], skip_special_tokens=True)
        options = {"attributed_fn": story.case.score, "n_steps": steps, "internal_batch_size": steps, "show_progress": False}
        result = attributing.attribute(story.case.prompt, text, **options).sequence_attributions[0]
        if [token.id for token in result.target] != [*story.ids[0].tolist(), story.token]:
            raise RuntimeError(f"inseq reads {text!r} as other tokens")
        return result.target_attributions[: story.ids.shape[1], 0], steps, float("nan")

    return explain


class Benchmark:
    """The model in both precisions, and references for every case.

    Args:
        prompts: those to explain.
        starts: where the paths start.
        scores: logits, probabilities or both.
    """

    def __init__(self, prompts: Sequence[str], starts: Sequence[str] = STARTS, scores: Sequence[str] = SCORES) -> None:
        self.starts, self.scores = starts, scores
        model, self.tokenizer = stories(DATA)
        self.single = NextToken(model.requires_grad_(False))
        self.double = NextToken(stories(DATA)[0].double().requires_grad_(False))
        self.cases = [case for case in CASES if case.prompt in prompts]
        self.stored = np.load(STORED)
        self.cache: dict[tuple[str, str], dict[str, list[Measurement]]] = {}

    def chosen(self, start: str, score: str) -> list[StoryCase]:
        """The cases of a start and a score. The stored ones of zeros but for the first token have two targets per prompt."""
        return [case for case in self.cases if case.score == score and case.first is (start == FIRST)]

    def story(self, case: StoryCase, start: str, *, double: bool = False) -> Story:
        """A case from a start."""
        return Story(self.double if double else self.single, self.tokenizer, case, start)

    def reference(self, case: StoryCase, start: str) -> np.ndarray:
        """The stored reference, or one that is computed now."""
        if start in (FIRST, ZERO):
            return np.asarray(self.stored[case.key], float)
        story = self.story(case, start, double=True)
        return singular_reference(story.score, story.x, story.baseline)

    def measurements(self, start: str, score: str) -> dict[str, list[Measurement]]:
        """Every explanation of the cases of a start and a score, by who made it."""
        key = start, score
        if key not in self.cache:
            self.cache[key] = {}
            for case in self.chosen(start, score):
                reference, story = self.reference(case, start), self.story(case, start)
                for who, explain in explainers().items():
                    if who.startswith("inseq") and start not in (ZERO, UNKNOWN):
                        continue  # it has no such baseline
                    values, count, claimed = explain(story)
                    self.cache[key].setdefault(who, []).append(story.compared(values, reference, count, claimed))
        return self.cache[key]

    def shares(self, start: str, score: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """|g| at ``TIMES`` for the likeliest token of each prompt, and the share of its integral below each time."""
        sizes = [self.story(case, start, double=True).profile() for case in self.chosen(start, score) if not case.rank]
        return sizes, [below(size) for size in sizes]


def below(size: np.ndarray) -> np.ndarray:
    """The share of the integral of |g| below each of ``TIMES``."""
    collected = np.r_[0.0, np.cumsum(np.diff(TIMES) * (size[1:] + size[:-1]) / 2)]
    return np.asarray(collected / collected[-1])


def shown(value: float) -> str:
    """A share in per cent with two digits; '' where there is none."""
    if np.isnan(value):
        return ""
    return f"{100 * value:,.0f}%" if value >= 0.0995 else f"{100 * value:.1f}%" if value >= 0.001 else "< 0.1%"


def middle(rows: Sequence[Measurement], name: str) -> float:
    """The median of a field."""
    return float(np.median([getattr(row, name) for row in rows]))


def explainers() -> dict[str, Explainer]:
    """Everybody who is installed, by name."""
    peers = {f"Captum, {steps} steps": captum_with(steps) for steps in STEPS}
    if importlib.util.find_spec("inseq") is not None:
        peers |= {f"inseq, {steps} steps": inseq_with(steps) for steps in STEPS}
    return peers | {f"integrand, {tol:.0%}": integrand_to(tol) for tol in TOLERANCES}


def share_table(benchmark: Benchmark) -> Iterator[str]:
    """Where on the path the change happens."""
    yield "| start | score | " + " | ".join(f"t < {time:g}" for time in BELOW) + " |"
    yield "|---" * (2 + len(BELOW)) + "|"
    for start in benchmark.starts:
        for score in benchmark.scores:
            rows = [np.interp(BELOW, TIMES, share) for share in benchmark.shares(start, score)[1]]
            cells = [f"{shown(np.median(part))} ({shown(min(part))} to {shown(max(part))})" for part in zip(*rows, strict=True)]
            cells = [cell if cell != "< 0.1% (< 0.1% to < 0.1%)" else "< 0.1%" for cell in cells]
            yield f"| {start} | {score} | " + " | ".join(cells) + " |"


def error_table(benchmark: Benchmark) -> Iterator[str]:
    """Gradients, claimed and measured errors, and what the sum misses."""
    yield "| start | score | cases | by | gradients | claimed | measured | worst | sum misses |"
    yield "|---" * 9 + "|"
    for start in [start for start in benchmark.starts if start not in (MEAN, TEXT)]:
        for score in benchmark.scores:
            for who, rows in benchmark.measurements(start, score).items():
                errors = (
                    middle(rows, "claimed"),
                    middle(rows, "measured"),
                    max(r.measured for r in rows),
                    middle(rows, "missing"),
                )
                cells = [start, score, len(rows), who, round(middle(rows, "gradients")), *map(shown, errors)]
                yield "| " + " | ".join(map(str, cells)) + " |"


def cost_table(benchmark: Benchmark) -> Iterator[str]:
    """What the other baselines cost, and whether fixed steps are enough there."""
    peers = [f"Captum, {steps} steps" for steps in STEPS]
    ours = [f"integrand, {tol:.0%}" for tol in TOLERANCES]
    yield (
        "| start | score | "
        + " | ".join([*(f"{who}: gradients" for who in ours), *(f"{who}: error" for who in ours + peers)])
        + " |"
    )
    yield "|---" * (2 + 2 * len(ours) + len(peers)) + "|"
    for start in benchmark.starts:
        for score in benchmark.scores:
            rows = benchmark.measurements(start, score)
            cells = [f"{middle(rows[who], 'gradients'):.0f}" for who in ours]
            cells += [
                f"{shown(middle(rows[who], 'measured'))} ({shown(max(r.measured for r in rows[who]))})" for who in ours + peers
            ]
            yield f"| {start} | {score} | " + " | ".join(cells) + " |"


def draw(benchmark: Benchmark, path: Path) -> None:
    """|g| and the share of its integral over the logarithm of t, prompt by prompt."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = {ZERO: "#c0392b", FIRST: "#0b5394", MEAN: "#7f7f7f"}
    for start, colour in [(start, colours[start]) for start in benchmark.starts if start in colours]:
        for number, (size, share) in enumerate(zip(*benchmark.shares(start, "logit"), strict=True)):
            style = {"color": colour, "lw": 2.0 if not number else 0.7, "alpha": 1.0 if not number else 0.45}
            left.loglog(TIMES[1:], size[1:], label=start if not number else None, **style)
            right.semilogx(TIMES[1:], share[1:], **style)
    for axis in (left, right):
        for steps in STEPS:
            first = (1 - np.polynomial.legendre.leggauss(steps)[0].max()) / 2
            axis.axvline(first, color="#333333", lw=0.8, ls=":")
        axis.set_xlim(1e-16, 1)
        axis.set_xticks([10.0**power for power in range(-16, 1, 4)])
        axis.set_xlabel("t, the position on the path (0: baseline, 1: input)")
        axis.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("|g|, in logits per unit of t")
    right.set_ylabel("share of the change below t")
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    note = {"rotation": 90, "fontsize": 8, "color": "#333333", "ha": "right", "va": "top"}
    for steps in STEPS:
        first = (1 - np.polynomial.legendre.leggauss(steps)[0].max()) / 2
        right.text(first, 1.0, f"first of {steps} steps ", **note)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and draw the picture if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many prompts to explain")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS, help="where the paths start")
    parser.add_argument("--scores", nargs="+", choices=SCORES, default=SCORES, help="what to explain")
    parser.add_argument("--picture", type=Path, help="a file for the picture")
    parser.add_argument("--inseq", help="the folder of inseq, where it is not installed")
    options = parser.parse_args(arguments)
    sys.path += [options.inseq] if options.inseq else []
    torch.set_num_threads(1)
    benchmark = Benchmark(PROMPTS[: options.prompts], options.starts, options.scores)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = {
            "Share of the change (the integral of |g|) below t, median and range over the prompts": share_table,
            "Relative L1 errors, medians over the cases": error_table,
            "Gradients, and errors: median (worst)": cost_table,
        }
        for title, table in tables.items():
            print(f"\n{title}\n")
            for line in table(benchmark):
                print(line, flush=True)
        if options.picture is not None:
            draw(benchmark, options.picture)


if __name__ == "__main__":
    main()
