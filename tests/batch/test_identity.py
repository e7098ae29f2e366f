"""The fingerprint of what explains: another one wherever results may differ, the same one in every process; digests."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.batch import ModelExplainer
from integrand.batch.identity import described, digest_of_input, settings_of
from integrand.batch.table import fingerprint
from integrand.errors import OptionError

TOL = 0.01
LABELS = {f"label {i}" for i in range(5)}


class Kind(enum.Enum):
    """A choice."""

    ONE = 1
    TWO = 2


class Scaled(nn.Module):
    """A network with an option that is no weight."""

    def __init__(self, scale: float = 2.0, mean: float = 0.5) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.scale = scale
        self.register_buffer("mean", torch.full((3,), mean), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - self.mean) * self.scale


class Louder(Scaled):
    """Other code."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


@dataclasses.dataclass
class Options:
    """Options of an explainer."""

    tol: float = 0.1
    kind: Kind = Kind.ONE


class Explainer:
    """A callable object of a user's, with what such objects hold."""

    def __init__(self, *, tol: float = 0.1, options: Options | None = None, kind: Any = None) -> None:
        self._tol, self.options, self.kind = tol, options or Options(), kind
        self.lock, self.pattern, self.me, self._cache = threading.Lock(), re.compile("a+"), self, {}

    def __call__(self, items: list[Any]) -> list[Any]:
        return [helped(item) for item in items]

    def method(self, items: list[Any]) -> list[Any]:
        return [self._tol, *items]


def helped(x: Any) -> Any:
    return x if x in {"a", "b", "c", "d"} else TOL


def network(seed: int = 0, kind: type[Scaled] = Scaled, **options: float) -> Scaled:
    torch.manual_seed(seed)
    return kind(**options).eval()


def by_default(items: list[Any], tol: float = 0.1, *, rule: str = "a") -> list[Any]:
    return items


def by_default_of_another(items: list[Any], tol: float = 0.2, *, rule: str = "a") -> list[Any]:
    return items


by_default_of_another.__qualname__ = "by_default"


def closing_over(value: Any) -> Any:
    def explain(items: list[Any]) -> list[Any]:
        return [value, *items]

    return explain


def with_globals(**values: Any) -> Any:
    space: dict[str, Any] = {"__name__": "users_script", **values}
    exec("def inner(x):\n    return x * TOL\ndef explain(items):\n    return [inner(x) for x in items]\n", space)
    return space["explain"]


def compiled(text: str) -> Any:
    space: dict[str, Any] = {"__name__": "users_script"}
    exec(f"def explain(items):\n    return {text}\n", space)
    return space["explain"]


SCRIPT = """
import logging
import torch

LOG = logging.getLogger("users_script")
SCALE = {scale}


def helped(x):
    return x * {factor}


class Net(torch.nn.Module):
    MEAN = {mean}

    def __init__(self, act=torch.relu, options=None):
        super().__init__()
        self.act, self.options = act, options

    def forward(self, x):
        self.last = x
        return helped(self.act(x - self.MEAN[0])) * SCALE


class Explains:
    calls = 0

    def _prepared(self, x):
        return helped(x)

    def __call__(self, items):
        LOG.info("%d inputs", len(items))
        self.calls += 1
        return [dict(score=float(self._prepared(item))) for item in items]
"""


def script(scale: float = 1, factor: float = 1, mean: tuple[float, ...] = (0.0,)) -> SimpleNamespace:
    """A script of a user's, as it is after an edit."""
    space: dict[str, Any] = {"__name__": "users_script"}
    exec(SCRIPT.format(scale=scale, factor=factor, mean=mean), space)
    return SimpleNamespace(**space)


def scripted(act: Any = torch.relu, options: Any = None, **edited: Any) -> ModelExplainer:
    return ModelExplainer(script(**edited).Net(act, options).eval())


def encoder(**options: Any) -> ModelExplainer:
    torch.manual_seed(0)
    return ModelExplainer(nn.TransformerEncoderLayer(8, options.pop("heads", 2), 4, batch_first=True, **options).eval())


def in_packages(factor: float) -> Any:
    """A function that takes another from a module within a package of the user's."""
    package, inner = ModuleType("users_package"), ModuleType("users_package.inner")
    exec(f"def changed(x):\n    return x * {factor}\n", vars(inner))
    vars(package)["inner"] = inner
    space: dict[str, Any] = {"__name__": "users_script", "users_package": package}
    exec("def explain(items):\n    return [users_package.inner.changed(x) for x in items]\n", space)
    return space["explain"]


ONES = torch.ones(3)
DIFFERENT: list[tuple[str, Any, Any]] = [
    ("weights", ModelExplainer(network(0)), ModelExplainer(network(1))),
    ("weights in a closure", closing_over(network(0)), closing_over(network(1))),
    ("an option of the network", ModelExplainer(network()), ModelExplainer(network(scale=3.0))),
    ("a buffer that is not kept", ModelExplainer(network()), ModelExplainer(network(mean=0.25))),
    ("code of the network", ModelExplainer(network()), ModelExplainer(network(kind=Louder))),
    ("structure", ModelExplainer(nn.Sequential(nn.ReLU())), ModelExplainer(nn.Sequential(nn.GELU()))),
    ("baseline", ModelExplainer(network(), 0.0), ModelExplainer(network(), 1.0)),
    ("baseline tensor", ModelExplainer(network(), ONES), ModelExplainer(network(), ONES * 2)),
    ("target", ModelExplainer(network(), target=0), ModelExplainer(network(), target=1)),
    ("targets", ModelExplainer(network(), target=list(range(999))), ModelExplainer(network(), target=list(range(998, -1, -1)))),
    ("tol", ModelExplainer(network(), tol=0.1), ModelExplainer(network(), tol=0.2)),
    ("score", ModelExplainer(network(), score="logit"), ModelExplainer(network(), score="probability")),
    (
        "score function",
        ModelExplainer(network(), score=lambda out: out[:, 0]),
        ModelExplainer(network(), score=lambda out: out[:, 1]),
    ),
    ("features", ModelExplainer(network(), features="abc"), ModelExplainer(network(), features="abd")),
    ("method", ModelExplainer(network()), ModelExplainer(network(), method=ig.path_attribution)),
    ("a partial's option", functools.partial(by_default, tol=0.1), functools.partial(by_default, tol=0.2)),
    ("a partial's argument", functools.partial(by_default, 1), functools.partial(by_default, 2)),
    ("default arguments", by_default, by_default_of_another),
    ("closure", closing_over(1), closing_over(2)),
    ("closure: array", closing_over(np.ones(2)), closing_over(np.zeros(2))),
    ("closure: type", closing_over(torch.float32), closing_over(torch.float64)),
    ("closure: object", closing_over(SimpleNamespace(tol=1)), closing_over(SimpleNamespace(tol=2))),
    ("closure: large", closing_over(list(range(5000))), closing_over(list(range(1, 5001)))),
    ("closure: explainer", closing_over(ModelExplainer(network(), tol=1)), closing_over(ModelExplainer(network(), tol=2))),
    ("a global", with_globals(TOL=0.1), with_globals(TOL=0.2)),
    ("a cached function", functools.lru_cache(closing_over(1)), functools.lru_cache(closing_over(2))),
    ("code", compiled("items"), compiled("items[::-1]")),
    ("a constant", compiled("[1, *items]"), compiled("[2, *items]")),
    ("a called name", compiled("sorted(items)"), compiled("reversed(items)")),
    ("private option of an object", Explainer(tol=0.1), Explainer(tol=0.2)),
    ("of its method", Explainer(tol=0.1).method, Explainer(tol=0.2).method),
    ("another method", Explainer().method, Explainer().__call__),
    ("option within an object", Explainer(), Explainer(options=Options(tol=0.2))),
    ("a choice", Explainer(options=Options(kind=Kind.ONE)), Explainer(options=Options(kind=Kind.TWO))),
    ("a class", Explainer(kind=Scaled), Explainer(kind=Louder)),
    ("a constant that a network's code names", scripted(), scripted(scale=2)),
    ("a function that a network's code calls", scripted(), scripted(factor=2)),
    ("a list of a network's class", scripted(), scripted(mean=(1.0,))),
    ("a function that a network holds", scripted(), scripted(torch.tanh)),
    ("a dict that a network holds", scripted(options={"a": 1}), scripted(options={"a": 2})),
    ("an object that a network holds", scripted(options=Options()), scripted(options=Options(tol=0.2))),
    ("a function that another method calls", script().Explains(), script(factor=2).Explains()),
    ("a function in a module of a package", in_packages(1), in_packages(2)),
    ("heads of an attention", encoder(), encoder(heads=4)),
    ("the order of a layer's parts", encoder(), encoder(norm_first=True)),
    ("a layer's activation", encoder(), encoder(activation="gelu")),
    ("a path", Explainer(kind=Path("a")), Explainer(kind=Path("b"))),
]


@pytest.mark.parametrize(("what", "one", "other"), DIFFERENT, ids=[what for what, _, _ in DIFFERENT])
def test_the_fingerprint_differs_with(what: str, one: Any, other: Any) -> None:
    assert fingerprint(settings_of(one)) == fingerprint(settings_of(one))
    assert fingerprint(settings_of(one)) != fingerprint(settings_of(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ModelExplainer(network(0)), ModelExplainer(network(0))),
        (ModelExplainer(network(), progress=True, memory=1 << 30), ModelExplainer(network(), progress=False)),
        (closing_over(network(0)), closing_over(network(0))),
        (Explainer(), Explainer()),
        (closing_over(object()), closing_over(object())),
        (closing_over({3, "x", None}), closing_over({None, "x", 3})),
    ],
)
def test_the_fingerprint_is_the_same_for_the_same(one: Any, other: Any) -> None:
    assert settings_of(one) == settings_of(other)


def test_to_explain_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    explain = ModelExplainer(network(), target=0)
    before = fingerprint(settings_of(explain))
    explain([ONES, ONES * 2])
    assert fingerprint(settings_of(explain)) == before


def test_what_is_counted_logged_or_kept_of_the_last_inputs_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next call in a notebook would be refused, and so would a script that imports one more module that logs."""
    users = script()
    explains, net = users.Explains(), users.Net().eval()
    before = settings_of(explains), settings_of(ModelExplainer(net))
    explains([1.0])
    net(ONES)
    monkeypatch.setattr(users.LOG, "level", 10)
    monkeypatch.setitem(users.LOG.manager.loggerDict, "another", users.LOG)
    assert (settings_of(explains), settings_of(ModelExplainer(net))) == before


CACHE: dict[str, Any] = {"kept": {}, "count": 0}
CALLS: list[int] = []
LOOKED_UP = {"a": 1}


class Counter:
    calls = 0


COUNTER = Counter()


def remembers(items: list[str]) -> list[int]:
    CALLS.append(len(items))
    COUNTER.calls += 1
    CACHE["count"] += len(items)
    CACHE["kept"][str(items)[:-1].strip("'")] = LOOKED_UP.get("a", 0)
    return [len(item) for item in items]


def test_a_cache_of_the_users_does_not_count_and_what_is_only_read_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next call in the same process would be refused."""
    before = settings_of(remembers)
    remembers(["one", "two"])
    assert CACHE["kept"]
    assert settings_of(remembers) == before
    monkeypatch.setitem(LOOKED_UP, "a", 2)
    assert settings_of(remembers) != before


def helper(items: Any) -> list[Any]:
    return list(items)


def helper_that_differs(items: Any) -> list[Any]:
    return [*items, 1]


def changes_what_others_give(items: list[str]) -> list[Any]:
    helper(items).append(1)
    helper(items)[0] = ONES.sort()
    return items


def test_what_gives_something_that_is_changed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings_of(changes_what_others_give)
    with monkeypatch.context() as now:
        now.setitem(globals(), "helper", helper_that_differs)
        assert settings_of(changes_what_others_give) != before
    monkeypatch.setitem(globals(), "ONES", ONES * 2)  # sorting a tensor leaves it as it is
    assert settings_of(changes_what_others_give) != before


def test_a_file_that_is_bound_counts_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    told = []
    for text in ("one", "one", "two"):
        file.write_text(text)
        told.append(settings_of(functools.partial(remembers, words=file)))
    assert told[0] == told[1] != told[2]


def every() -> str:
    """One fingerprint of everything above, and that no address is in it."""
    told = [settings_of(one) for _, *pair in DIFFERENT for one in pair]
    told += [settings_of(one) for one in (lambda items: [LABELS, Explainer], Explainer(), print)]
    text = json.dumps(told, sort_keys=True)
    assert "0x" not in text
    return fingerprint({"all": told})


@pytest.mark.slow
def test_the_fingerprint_is_the_same_in_every_process() -> None:
    code = "import sys; sys.path[:0] = ['tests/batch']; import test_identity; print(test_identity.every())"
    root = Path(__file__).parents[2]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=root, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "2")
    ]
    found = {run.communicate()[0] for run in runs}
    assert len(found) == 1
    assert len(found.pop()) == 65


def test_what_holds_itself_and_what_is_large_is_told_in_few_words() -> None:
    loop: list[Any] = [1]
    loop += [loop] * 50
    assert len(json.dumps(settings_of(closing_over(loop)))) < 1_000_000
    large = settings_of(closing_over({"data": list(range(100_000)), "rows": {str(i): i for i in range(100_000)}}))
    assert len(json.dumps(large)) < 2000


def test_a_network_whose_parts_hold_it_is_described() -> None:
    inner, outer = scripted().model, scripted().model
    outer.inner, inner.options = inner, [outer, nn.Linear(2, 2)]
    assert settings_of(ModelExplainer(outer)) == settings_of(ModelExplainer(outer))
    before = settings_of(ModelExplainer(outer))
    with torch.no_grad():
        inner.options[1].weight += 1  # in a list: no part of the network's own weights
    assert settings_of(ModelExplainer(outer)) != before


def test_weights_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    whole = nn.Module.state_dict
    monkeypatch.setattr(nn.Module, "state_dict", lambda self, *a, **k: (calls.append(1), whole(self, *a, **k))[1])
    net = nn.ReLU()
    settings_of(lambda items: [net(item) for item in items] and net)
    settings_of(ModelExplainer(lambda x: net(x)))
    assert len(calls) == 2


def test_values_are_described_as_json() -> None:
    assert described({"a": (1, None, "x"), 3: {2.5}}) == {"a": [1, None, "x"], "3": [2.5]}
    assert described(Kind.ONE) == "Kind.ONE"
    assert described(Path("a") / "b") == str(Path("a/b"))
    assert described(re) == {"module": "re"}


# ---- inputs ------------------------------------------------------------------------------------------------------------------

INPUTS: list[Any] = [
    *(None, True, 1, 1.0, "1", b"1", 2, "", [], {}, [1], (1,), ["1"], [[1], [2]], [[1, 2]], {"a": 1}, {"a": 2}, {"b": 1}),
    *(torch.ones(2), torch.ones(2, 1), torch.ones(2).double(), torch.zeros(2), torch.ones(2).bfloat16(), torch.ones(1)),
    *(np.ones(2), np.ones(2, np.float32), np.float64(1), {"x": torch.ones(2)}, {"x": torch.zeros(2)}, [torch.ones(2), 1]),
    *(
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1),
        decimal.Decimal(1),
        {1},
        {1, 2},
        range(3),
        [{}, {}],
        [{"a": 1}, {}],
    ),
]


def test_inputs_are_told_apart() -> None:
    digests = [digest_of_input(item) for item in INPUTS]
    assert all(len(digest) == 16 for digest in digests)
    assert len(set(digests)) == len(INPUTS)
    assert digests == [digest_of_input(item) for item in INPUTS]


def test_a_file_counts_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "photo"
    assert digest_of_input(file) == ""
    file.write_bytes(b"one")
    first = digest_of_input(file)
    file.write_bytes(b"two")
    assert digest_of_input(file) != first
    file.rename(tmp_path / "moved")
    (tmp_path / "moved").write_bytes(b"one")
    assert digest_of_input(tmp_path / "moved") == first


def test_of_what_nothing_can_be_told_the_digest_is_empty() -> None:
    assert digest_of_input(object()) == digest_of_input([object()]) == digest_of_input(np.array([object()])) == ""


def test_a_large_value_that_is_closed_over_counts_by_a_digest(tmp_path: Path) -> None:
    """100 MB went into the manifest, which could not be read again, after all the work."""
    book, other = "x" * 1_000_000, "y" * 1_000_000
    told = [json.dumps(settings_of(functools.partial(print, text, end={"raw": text.encode()}))) for text in (book, other)]
    assert told[0] != told[1]
    assert max(map(len, told)) < 2000


def test_settings_that_are_too_large_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrand.batch.table.LARGEST_MANIFEST", 5000)
    with pytest.raises(OptionError, match="got settings of"):
        ig.explain_many(["a"], pytest.fail, tmp_path / "t", settings={f"s{i}": "x" * 90 for i in range(99)})
