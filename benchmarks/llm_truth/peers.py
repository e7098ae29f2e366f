"""Other libraries at their defaults, each in a process of its own: they pin transformers differently.

    python -m benchmarks.llm_truth.peers captum FOLDER prompts.json answers.json

The interpreter is that of the library's environment, and needs torch, transformers and the library only. Of each prompt it
writes the tokens' values, the features' where the library has them, the gradients that it took and the seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Peer = Callable[[str, str], tuple[Any, Any]]
"""From a prompt and the word that follows to values of tokens, (T,), and of features, (T, width), or None."""


def captum(model: Any, tokenizer: Any) -> Peer:
    """LLMGradientAttribution around LayerIntegratedGradients: log-probability, 50 Gauss-Legendre nodes, from token 0."""
    from captum.attr import LayerIntegratedGradients, LLMGradientAttribution, TextTokenInput

    method, last = LayerIntegratedGradients(model, model.get_input_embeddings()), []
    explainer = LLMGradientAttribution(method, tokenizer)
    inner = explainer.attr_method.attribute
    explainer.attr_method.attribute = lambda *args, **options: last.append(inner(*args, **options)) or last[-1]

    def explain(prompt: str, answer: str) -> tuple[Any, Any]:
        result = explainer.attribute(
            TextTokenInput(prompt, tokenizer), target=tokenizer(answer, return_tensors="pt").input_ids[0]
        )
        return result.token_attr[0], last[-1][0]

    return explain


def inseq(model: Any, tokenizer: Any) -> Peer:
    """Probability, 50 Gauss-Legendre nodes, from the unknown token, which is token 0 here."""
    import inseq as library

    wrapped = library.load_model(model, "integrated_gradients", tokenizer=tokenizer)

    def explain(prompt: str, answer: str) -> tuple[Any, Any]:
        result = wrapped.attribute(prompt, prompt + answer, show_progress=False).sequence_attributions[0]
        count = len(tokenizer(prompt).input_ids)
        if [token.id for token in result.target] != tokenizer(prompt + answer).input_ids:
            raise RuntimeError(f"inseq reads {prompt + answer!r} as other tokens")
        features = result.target_attributions[:count, 0]
        return features.sum(-1), features

    return explain


def interpreto(model: Any, tokenizer: Any) -> Peer:
    """Mean over ten embeddings, from about zero, of |gradient of the logit x embedding|: not an integral of the score."""
    from interpreto import Granularity, IntegratedGradients

    explainer = IntegratedGradients(model, tokenizer, granularity=Granularity.TOKEN)

    def explain(prompt: str, answer: str) -> tuple[Any, Any]:
        return explainer.explain(prompt, answer)[0].attributions[0, : len(tokenizer(prompt).input_ids)], None

    return explain


def flashtrace(model: Any, tokenizer: Any) -> Peer:
    """FlashTrace's own method: the flow of attention, one pass, values above zero."""
    from flashtrace import FlashTrace

    tracer = FlashTrace(model, tokenizer)

    def explain(prompt: str, answer: str) -> tuple[Any, Any]:
        return tracer.trace(prompt=prompt, target=answer).scores, None

    return explain


def flashtrace_gradients(model: Any, tokenizer: Any) -> Peer:
    """FlashTrace's integrated gradients: log-probability, 20 trapezoids as in its paper, from token 0."""
    from flashtrace.attribution import LLMGradientAttribtion

    def explain(prompt: str, answer: str) -> tuple[Any, Any]:
        options = {"steps": 20, "baseline": 0, "batch_size": 20, "target": answer}
        result = LLMGradientAttribtion(model, tokenizer).calculate_IG_per_generation(prompt, **options)
        return result.attribution_matrix[0, : len(tokenizer(prompt).input_ids)], None

    return explain


PEERS = {
    "captum": captum,
    "inseq": inseq,
    "interpreto": interpreto,
    "flashtrace": flashtrace,
    "flashtrace-gradients": flashtrace_gradients,
}
EAGER = ("flashtrace", "flashtrace-gradients")
"""They read attention matrices, which only the eager implementation has."""


class Gradients:
    """Rows that a model was run on with gradients."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        model.register_forward_pre_hook(self.add, with_kwargs=True)

    def add(self, module: Any, args: Sequence[Any], options: Row) -> None:
        """Count the rows of one run."""
        import torch

        if torch.is_grad_enabled():
            inputs = [value for value in (*args, options.get("input_ids"), options.get("inputs_embeds")) if value is not None]
            self.count += len(inputs[0])


def answers(name: str, folder: str, prompts: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """Values of a library for prompts and the words that follow them."""
    import torch
    import transformers as hf

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options = {"attn_implementation": "eager"} if name in EAGER else {}
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model(**tokenizer("warm", return_tensors="pt"))
    rows, peer = Gradients(model), PEERS[name](model, tokenizer)
    for prompt, answer in prompts:
        rows.count, start = 0, time.perf_counter()
        tokens, features = peer(prompt, answer)
        seconds = time.perf_counter() - start
        listed = [None if part is None else torch.as_tensor(part).detach().double().tolist() for part in (tokens, features)]
        yield {"tokens": listed[0], "features": listed[1], "gradients": rows.count, "seconds": seconds}


@contextmanager
def exchange(prompts: Sequence[tuple[str, str]]) -> Iterator[tuple[Path, Path]]:
    """Files for the prompts and the answers."""
    with tempfile.TemporaryDirectory() as folder:
        questions = Path(folder) / "prompts.json"
        questions.write_text(json.dumps(prompts))
        yield questions, Path(folder) / "answers.json"


def run(name: str, python: str, folder: Path, prompts: Sequence[tuple[str, str]]) -> list[Row] | str:
    """The answers of a library in its own interpreter, or why there are none."""
    with exchange(prompts) as (questions, results):
        command = [python, "-m", "benchmarks.llm_truth.peers", name, str(folder), str(questions), str(results)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            return (process.stderr.strip().splitlines() or [f"ended with {process.returncode}"])[-1]
        rows: list[Row] = json.loads(results.read_text())
        return rows


def main(name: str, folder: str, questions: str, results: str) -> None:
    """In the library's interpreter."""
    Path(results).write_text(json.dumps(list(answers(name, folder, json.loads(Path(questions).read_text())))))


if __name__ == "__main__":
    main(*sys.argv[1:])
