"""What every test shares: one thread per process, the data that is not shipped, and which tests are slow."""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.browser import browser  # noqa: F401 - a fixture

# Until all tests are collected: what is imported stays, and looking through it for garbage takes a quarter of that time.
gc.disable()

# Before any test: two processes of two threads each on two cores are slower than two of one.
torch.set_num_threads(1)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Public data for tests against real models, which is not shipped: a folder next to the clone."""

HERE = Path(__file__).resolve().parent
DURATIONS = HERE / "durations.json"
"""Seconds of the slower tests, as ``make durations`` measured them."""

SLOW = 0.1
"""Seconds from which on ``make quick`` leaves a test out; what is not in the file counts as quick."""

LONG = 10.0
"""Seconds from which on a test, with its file, comes before the others: begun last, it runs alone when all else is done."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws without a seed does not hang on the tests that ran before it in the same process.

    Not by ``torch.manual_seed``: for devices that are not in use it notes down the whole stack of calls, three times a test.
    """
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Handlers of signals as a terminal gives them, here and in processes that are started meanwhile.

    nohup, and a shell that runs the tests in the background, have some ignored; RDKit leaves a handler of its own for Ctrl-C.
    """
    usual = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
    numbers = {getattr(signal, name): handler for name, handler in usual.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, handler) for number, handler in numbers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """``data("googlenet/synset_words.txt")``: the path of shared data, or a skip that says what is missing."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"needs shared data: {name} is not in {DATA}")
        return path

    return find


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write what tests take to {DURATIONS.name}")
    parser.addoption("--brief", action="store_true", help="fewer cases where real networks repeat one property; make test does")
    parser.addoption("--sparse-coverage", action="store_true", help="run slow and repeated tests, but not under the tracer")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):  # not in a worker of xdist
        config.pluginmanager.register(RecordDurations())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
    if hasattr(config, "workerinput"):  # in a worker of xdist
        long = {_file(name) for name, seconds in known.items() if seconds >= LONG}
        items.sort(key=lambda item: _file(item.nodeid) not in long)
    for item in items:
        if known.get(item.nodeid, 0.0) >= SLOW:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--sparse-coverage"):
        config.pluginmanager.register(SparseCoverage(items))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: garbage collections, half a second each, need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


class SparseCoverage:
    """Has the coverage tracer see the quick tests, and of each the first and last parameters.

    The tracer doubles the time of a test, and the parameters between seldom reach another line. All tests run all the same, so
    the share that is measured is a lower bound of what they cover.
    """

    def __init__(self, items: list[pytest.Item]) -> None:
        repeated: dict[str, list[str]] = {}
        for item in items:
            if item.get_closest_marker("slow") is None:
                repeated.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
        self.traced = {name for names in repeated.values() for name in (names[0], names[-1])}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Take the tracer off for the fixtures and the call of a test that it is not to see."""
        tracer = sys.gettrace()
        if item.nodeid not in self.traced:
            sys.settrace(None)
        try:
            return (yield)
        finally:
            sys.settrace(tracer)


class RecordDurations:
    """Adds up set-up, call and tear-down of each test, and writes those that take longer than a blink.

    What is known of files that were not run this time is kept.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        known: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
        files = {_file(name) for name in self.seconds}
        kept = {
            name: seconds
            for name, seconds in known.items()
            if _file(name) not in files and (HERE.parent / _file(name)).exists()
        }
        rows = kept | {name: round(seconds, 2) for name, seconds in self.seconds.items() if seconds >= SLOW / 2}
        DURATIONS.write_text(json.dumps(dict(sorted(rows.items())), indent=0) + "\n", encoding="utf-8")


def _file(name: str) -> str:
    """The file of a test, by its name."""
    return name.partition("::")[0]
