"""A real language model, everybody's explanations of it, and the truth.

    python -m benchmarks.llm_truth                    # prints the tables of what is stored, measures what is missing
    python -m benchmarks.llm_truth --table            # only prints
    python -m benchmarks.llm_truth --claims           # explains anew by integrand, to 5% and 1%: which claims are beyond?
    python -m benchmarks.llm_truth --claims --late    # only where a stored claim is beyond its tolerance
    python -m benchmarks.llm_truth --meaning --count 200 --long 40
    python -m benchmarks.llm_truth --python inseq=ENV/bin/python flashtrace=ENV/bin/python interpreto=ENV/bin/python

SmolLM2-135M-Instruct (tests/apps/text/smollm.py says how to install it) on twelve prompts, and stories260K from zero
embeddings. Each library answers its own question, at its defaults; integrand answers all of them. They are judged by a dense
integral that uses nothing of integrand and knows its own error (``gauss_kronrod.py``; ``references.npz``). Errors are relative
L1: sum|a - a*| / sum|a*|, over all numbers of the embeddings, and over the tokens' sums.

The meaning: pairs of prompts that differ in one word, which turns the model's preference around. Where does that word rank?

Libraries are run in the environments of ``--python``, each made by ``python -m venv ENV; ENV/bin/pip install LIBRARY`` with
the torch of ``constraints.txt``. What is stored is not measured again. A gradient of a prompt of five tokens takes 37 ms on an
idle core, from which follow about 20 minutes for errors, 20 for claims, 45 for 200 pairs of which 40 from made-up baselines,
and 16 for references, should they be made anew. The stored seconds are from two cores with a load of ten: not to be quoted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.apps.text.smollm import smollm

from .comparison import Comparison
from .decisive import FAMILIES
from .language import Language
from .libraries import Libraries
from .meaning import Meaning
from .prompts import PROMPTS
from .references import STORED as REFERENCES
from .references import References
from .store import STORED, Results
from .tables import claim_table, meaning_table, truth_tables


def show(results: Results) -> None:
    """Print all tables."""
    sections = {
        "Errors: median (worst)": truth_tables(results.part("truth").values()),
        "Claims": claim_table(list(results.part("claims").values())),
        "The decisive word": meaning_table(results.part("meaning").values(), list(FAMILIES)),
    }
    for title, lines in sections.items():
        print(f"\n## {title}\n")
        print("\n".join(lines), flush=True)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print what is stored, and measure nothing")
    parser.add_argument("--truth", action="store_true", help="only errors")
    parser.add_argument("--claims", action="store_true", help="only the claims of integrand, measured anew")
    parser.add_argument("--late", action="store_true", help="of the claims only those beyond their tolerance")
    parser.add_argument("--meaning", action="store_true", help="only where decisive words rank")
    parser.add_argument("--again", action="store_true", help="measure anew what is stored")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the prompts")
    parser.add_argument("--count", type=int, default=200, help="pairs of prompts with a decisive word")
    parser.add_argument("--long", type=int, default=40, help="of these, how many from made-up baselines: 40 s a prompt")
    parser.add_argument("--python", nargs="+", default=[], metavar="LIBRARY=PATH", help="interpreters of other libraries")
    parser.add_argument("--out", type=Path, default=STORED, help="the file of results")
    parser.add_argument("--references", type=Path, default=REFERENCES, help="the file of references")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print."""
    options = parsed(arguments)
    torch.set_num_threads(1)
    results = Results(options.out, again=options.again or options.claims)
    if not options.table:
        everything = not (options.truth or options.claims or options.meaning)
        libraries, language = Libraries(dict(entry.split("=", 1) for entry in options.python)), Language(*smollm())
        comparison = Comparison(language, PROMPTS[: options.prompts], results, References(options.references))
        if options.truth or everything:
            comparison.errors(libraries)
        if options.claims or everything:
            comparison.claims(late=options.late)
        if options.meaning or everything:
            Meaning(language, results, options.count).measure(libraries, options.long)
    show(results)


if __name__ == "__main__":
    main()
