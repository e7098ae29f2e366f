"""Captum's own tests, run with the classes of integrand.compat.captum in place of Captum's.

git clone --branch v0.9.0 https://github.com/pytorch/captum DIR
python -m benchmarks.captum_suite --captum-source DIR                        # everything under DIR/tests
python -m benchmarks.captum_suite --captum-source DIR attr/test_targets.py   # some modules
python -m benchmarks.captum_suite --captum-source DIR --keep NoiseTunnel     # Captum's NoiseTunnel around our classes

Test modules get our classes wherever they import Captum's; inside Captum nothing is replaced. A test counts when it constructs
one of our classes and passes with Captum's own; what fails is listed with its reason. Needs captum, pytest and parameterized.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPORT, CLASSES = "CAPTUM_SUITE_REPORT", "CAPTUM_SUITE_CLASSES"
"""Where the plugin in the tests' process writes, and which classes it replaces."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captum-source", type=Path, required=True, metavar="DIR", help="a checkout of Captum, with its tests")
    parser.add_argument("--keep", nargs="*", default=[], metavar="CLASS", help="classes that stay Captum's")
    parser.add_argument("modules", nargs="*", default=["."], help="files or folders under DIR/tests")
    options = parser.parse_args()
    source = options.captum_source.resolve()
    if not (source / "tests").is_dir():
        parser.error(f"got {source}, which has no folder tests; expected a checkout of Captum. Clone the repository.")
    names = importlib.import_module("integrand.compat.captum").__all__
    theirs = run(source, options.modules, [])
    ours = run(source, options.modules, [name for name in names if name not in options.keep])
    print_table(ours, theirs)


def run(source: Path, modules: list[str], classes: list[str]) -> dict[str, Any]:
    """What became of each test, with these classes replaced: module, outcome, reason, our classes that it constructed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        here = os.pathsep.join([str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)])
        environment = {**os.environ, REPORT: str(report), CLASSES: " ".join(classes), "PYTHONPATH": here}
        command = [sys.executable, "-m", "pytest", "-q", "-p", Path(__file__).stem, "-p", "no:cacheprovider", "-W", "ignore"]
        command += [
            "--continue-on-collection-errors",
            "--rootdir",
            str(source),
            "-c",
            os.devnull,
            *(str(source / "tests" / module) for module in modules),
        ]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            sys.exit(f"pytest did not run:\n{done.stdout}\n{done.stderr}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def print_table(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """A line for each module, and the reasons of what fails."""
    counts: dict[str, Counter[str]] = {}
    failures = []
    for test, (outcome, reason, classes) in ours.items():
        if classes and theirs.get(test, ["missing"])[0] == "passed":
            module = test.partition("::")[0]
            counts.setdefault(module, Counter())[outcome] += 1
            if outcome != "passed":
                failures.append((test, reason))
    print(f"{'module':64} {'passed':>7} {'failed':>7}")
    for module, count in sorted(counts.items()):
        print(f"{module:64} {count['passed']:7} {count.total() - count['passed']:7}")
    passed = sum(count["passed"] for count in counts.values())
    total = sum(count.total() for count in counts.values())
    print(f"{'all':64} {passed:7} {total - passed:7}")
    print("\nclasses:", *(f"{name} {count}" for name, count in sorted(Counter(constructed(ours)).items())), sep="\n  ")
    failures += [(test, reason) for test, (outcome, reason, _) in ours.items() if outcome == "not imported"]
    for test, reason in failures:
        print(f"\n{test}\n    {reason}")


def constructed(results: dict[str, Any]) -> Iterator[str]:
    """The classes that each test constructed."""
    for _, _, classes in results.values():
        yield from classes


# The plugin, in the process that runs the tests

RESULTS: dict[str, list[Any]] = {}
CONSTRUCTED: set[str] = set()
REPLACED: list[tuple[Any, str, Any]] = []


def pytest_configure() -> None:
    """Put our classes where test modules import Captum's from, while they are being imported."""
    if REPORT not in os.environ:
        return
    warnings.simplefilter("ignore")
    library = importlib.import_module("captum.attr")
    for room in ("concept", "influence", "metrics", "robust"):  # what refers to Captum's classes inside Captum goes on doing so
        importlib.import_module(f"captum.{room}")
    for name in os.environ[CLASSES].split():
        theirs, mine = getattr(library, name), watched(name)
        for module in (library, sys.modules[theirs.__module__]):
            REPLACED.append((module, name, theirs))
            setattr(module, name, mine)


def watched(name: str) -> Any:
    """One of our classes, which is an instance of Captum's from now on and notes that it was constructed."""
    attribution_class = importlib.import_module("integrand.compat.captum.attribution_class")
    mine = getattr(importlib.import_module("integrand.compat.captum"), name)
    attribution_class.join_captum(mine)

    def construct(cls: Any, *_: Any, **__: Any) -> Any:
        CONSTRUCTED.add(cls.__name__)
        return object.__new__(cls)

    attribution_class.AttributionClass.__new__ = construct
    return mine


def pytest_collection_finish() -> None:
    """Captum is as it was when the tests run; their modules have our classes."""
    for module, name, theirs in REPLACED:
        setattr(module, name, theirs)


def pytest_runtest_setup() -> None:
    CONSTRUCTED.clear()


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        reason = ""
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else str(report.longrepr)
        RESULTS[report.nodeid] = [report.outcome, " ".join(reason.split())[:400], sorted(CONSTRUCTED)]


def pytest_collectreport(report: Any) -> None:
    if report.outcome == "failed":
        RESULTS[report.nodeid] = ["not imported", " ".join(str(report.longrepr).split())[-400:], []]


def pytest_sessionfinish() -> None:
    if REPORT in os.environ:
        Path(os.environ[REPORT]).write_text(json.dumps(RESULTS), encoding="utf-8")


if __name__ == "__main__":
    main()
