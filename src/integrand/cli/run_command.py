"""``integrand run``: a job that a file describes, on this machine or on a Ray cluster."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..apps.command_line import (
    EXPERTS,
    FAILURES,
    NETWORK,
    OUTPUT,
    Debug,
    Force,
    RetryFailed,
    check_folder,
    end_with,
    one_line,
    print_line,
    say_failures,
    stoppable,
    typed,
    working,
)
from ..errors import FileError, MissingExtraError, OptionError
from ..files import read_bytes
from ..schema import Among, Sized, Within, fitted, said
from ..words import first_line, shown

if TYPE_CHECKING:
    from ..batch.many import BatchWatcher, ManyExplained

LARGEST_JOB = 1 << 20
"""The most bytes of a job file; one that says everything has less than two thousand."""

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer at its address."""

KEPT = ("auto", "values", "lists", "files", "none")
"""How attributions are kept; as in :func:`integrand.explain_many`."""


@dataclass(frozen=True)
class RayPart:
    """The part ``ray`` of a job: how it runs on a cluster.

    Attributes:
        address: of the cluster, for ``--ray job``.
        actors: how many models work at a time; or the least and the most.
        num_cpus: CPUs of each, which are its threads too.
        num_gpus: GPUs of each.
    """

    address: str = "auto"
    actors: Annotated[tuple[Annotated[int, Within(1, 100_000)], ...], Sized(1, 2)] = (1,)
    num_cpus: Annotated[float, Within(0, 1e6, known=True)] = 1.0
    num_gpus: Annotated[float, Within(0, 1e6, known=True)] = 0.0


@dataclass(frozen=True)
class JobFile:
    """What a job file says, beside what explains the inputs.

    Attributes:
        source: a folder, or a .parquet, .csv, .tsv or .jsonl file.
        out: the folder of the table.
        key: the column that tells inputs apart.
        column: the column that is explained.
        carry: further columns that are copied into the table, with their names there; a file may list them as they are.
        together: inputs that are explained in one call.
        attributions: how attributions are kept.
        title: what the job is about.
        ray: how it runs on a cluster.
    """

    source: str
    out: str
    key: str | None = None
    column: str | None = None
    carry: dict[str, str] = field(default_factory=dict)
    together: Annotated[int, Within(1, 1_000_000)] | None = None
    attributions: Annotated[str, Among(KEPT)] = "auto"
    title: str = ""
    ray: RayPart = RayPart()


@dataclass(frozen=True)
class JobApplication:
    """An application that a job may name.

    Attributes:
        load: what loads its network, as ``module:function``, relative to the package.
        explain: what explains a list of inputs: a method of the network, or ``module:function`` that takes it as ``network``.
    """

    load: str
    explain: str


APPLICATIONS: Mapping[str, JobApplication] = {
    "image": JobApplication("apps.networks:load", "apps.images:explain_photos"),
    "retina": JobApplication("apps.retina:load", "examine_photos"),
    "questions": JobApplication("apps.questions:load", "explain"),
    "translate": JobApplication("apps.translation:load", "explain"),
    "molecule": JobApplication("apps.molecules:load", "explain"),
}
"""The applications by the names of their commands."""


@dataclass(frozen=True)
class JobExplain:
    """Makes what explains the inputs of a job; on a cluster, once in each actor.

    Attributes:
        application: the name of one; empty where a function is named.
        function: ``package.module:function``; empty where an application is named.
        options: of the application or the function.
        trust: whether a function may be imported.
    """

    application: str
    function: str
    options: Mapping[str, Any]
    trust: bool = False

    def __call__(self) -> Callable[[list[Any]], Any]:
        """What explains a list of inputs."""
        return self._named() if self.application else self._own()

    def _named(self) -> Callable[[list[Any]], Any]:
        """The application, with its options; those of its network are told apart by their names."""
        chosen = APPLICATIONS[self.application]
        load = _found(chosen.load)
        loading = {"model" if name == "name" else name for name in inspect.signature(load).parameters}
        given = {("name" if name == "model" else name): self.options[name] for name in loading & self.options.keys()}
        if "trust" in loading:
            given["trust"] = self.trust
        network = load(**given)
        bound = {name: value for name, value in self.options.items() if name not in loading}
        if ":" in chosen.explain:
            explain = _found(chosen.explain)
            bound["network"] = network
        else:
            explain = getattr(network, chosen.explain)
        known = _keywords(explain) - {"progress"}
        for name in bound.keys() - known - {"network"}:
            every = ", ".join(sorted((known | loading) - {"network", "trust"}))
            raise OptionError(f"the job: explain.{shown(name)} is no option of {self.application}; expected some of {every}.")
        return functools.partial(explain, **bound) if bound else explain

    def _own(self) -> Callable[[list[Any]], Any]:
        """A function of the user's; a network is explained by integrated gradients."""
        from torch import nn

        from ..batch import ModelExplainer
        from ..loading import load_model

        found = load_model(self.function, trust=self.trust, what="explain.function")
        if isinstance(found, nn.Module):
            return ModelExplainer(found, **self.options)
        return functools.partial(found, **self.options) if self.options else found


def _found(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"..{module}", __package__), name)
    return found


def _keywords(function: Callable[..., Any]) -> set[str]:
    """The names of the options that a function takes; with ``**options``, those of integrated gradients too."""
    from ..api import integrated_gradients

    parameters = inspect.signature(function).parameters.values()
    names = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        names |= _keywords(integrated_gradients)
    return names


def run(
    job: Annotated[Path, typer.Argument(help="The job, a YAML file.", metavar="JOB.yaml", show_default=False)],
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            help="Run on a Ray cluster: its address (host:6379), auto for that of this machine, local to start one here, job "
            "for the address in the job file.",
            metavar="ADDRESS",
            show_default=False,
            rich_help_panel=EXPERTS,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the table, instead of the job's.", rich_help_panel=OUTPUT, show_default=False),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Import and run the function that the job names, if you trust where it is from.",
            rich_help_panel=NETWORK,
        ),
    ] = False,
    retry_failed: RetryFailed = False,
    again: Annotated[bool, typer.Option("--again", help="Explain all inputs again.", rich_help_panel=OUTPUT)] = False,
    force: Force = False,
    quiet_run: Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=EXPERTS)] = False,
    debug: Debug = False,
) -> None:
    """Explain many inputs as a file says, on this machine or on a Ray cluster; a run that was stopped goes on.

    The table is the same wherever it runs, and may begin here and end there. Paths in the job start in the current folder.
    """
    what, explain = read_job(job, trust=trust)
    folder = Path(what.out) if out is None else out
    check_folder(folder.parent, f"{'out' if out is None else '--out'} {shown(str(folder))!r}", force=force)
    how: dict[str, Any] = {"key": what.key, "column": what.column, "carry": what.carry, "title": what.title}
    how |= {"attributions": what.attributions, "together": what.together, "retry_failed": retry_failed, "again": again}
    with stoppable(typed()), one_line(str(job), debug=debug), _bar(what.source, quiet_run) as bar:
        found = (
            _here(what, explain, folder, how | {"progress": bar})
            if ray is None
            else _on_ray(what, explain, folder, ray, how | {"progress": bar})
        )
    say_failures(found.summary, lambda item: str(item.key))
    print_line(found.sentence.replace("retry_failed=True", "--retry-failed"))
    for key in found.summary.clashes[:FAILURES]:
        print_line(f"left out, as another input has its key: {key}", err=True)
    end_with(found.summary)
    if found.summary.left_out:
        raise typer.Exit(1 if found.explained else 2)


def _here(what: JobFile, explain: JobExplain, folder: Path, how: dict[str, Any]) -> ManyExplained:
    from ..batch import explain_many

    return explain_many(_source(what.source), explain(), folder, **how)


def _on_ray(what: JobFile, explain: JobExplain, folder: Path, address: str, how: dict[str, Any]) -> ManyExplained:
    from ..batch.ray import explain_dataset

    part = what.ray
    actors = part.actors[0] if len(part.actors) == 1 else (part.actors[0], part.actors[1])
    with _connected(part.address if address == "job" else address):
        return explain_dataset(
            _source(what.source), explain, folder, actors=actors, num_cpus=part.num_cpus, num_gpus=part.num_gpus, **how
        )


def _source(text: str) -> Path:
    """The source of a job, under a path that holds on every machine."""
    return Path(text).absolute()


@contextmanager
def _bar(source: str, wanted_quiet: bool) -> Iterator[BatchWatcher]:
    """The bars of the run."""
    from ..batch.inputs import source_of

    with working(quiet=wanted_quiet) as screen:
        yield screen.batch(source_of(_source(source)).total, "inputs")


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """A connection to a Ray cluster, whose own messages are not shown."""
    from ..batch.ray import ray_package

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody unless the user wants it
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray = ray_package()
    _check_answers(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_cluster(address, error) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own handler aborts, and what waits would not be written
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address at which nobody listens: Ray would try it for an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> OptionError:
    return OptionError(
        f"got --ray {shown(address)}, where no cluster answers ({first_line(error)}). Start one with ray start --head, check "
        "the address, or use --ray local."
    )


# ---- the file ----------------------------------------------------------------------------------------------------------------


def read_job(path: Path, *, trust: bool = False) -> tuple[JobFile, JobExplain]:
    """Read a job file and check all that it says before anything is done.

    Args:
        path: the YAML file.
        trust: whether a function that it names may be imported.
    """
    name = shown(str(path))
    told = _parsed(read_bytes(path, what="a job", most=LARGEST_JOB), name)
    if not isinstance(told, dict):
        raise FileError(f"{name} holds {said(told)}; expected a job: source, explain, out. See integrand run --help.")
    _check_names(told, [*(one.name for one in fields(JobFile)), "explain"], name)
    for needed in ("source", "explain", "out"):
        if told.get(needed) is None:
            raise FileError(f"{name} has no {needed!r}; expected at least source, explain and out.")
    explain = _explain_part(told.pop("explain"), name, trust)
    if isinstance(part := told.get("ray"), dict):
        _check_names(part, [one.name for one in fields(RayPart)], f"{name}: ray")
        if isinstance(part.get("actors"), int):
            part["actors"] = [part["actors"]]
    elif "ray" in told and part is None:
        del told["ray"]
    if isinstance(told.get("carry"), str):
        raise FileError(f"{name}: carry is {said(told['carry'])}; expected a list of columns: [{told['carry']}].")
    if isinstance(told.get("carry"), list):
        told["carry"] = {column: column for column in fitted(tuple[str, ...], told["carry"], what=f"{name}: carry")}
    elif "carry" in told and told["carry"] is None:
        del told["carry"]
    what = fitted(JobFile, told, what=name)
    if len(what.ray.actors) == 2 and what.ray.actors[0] > what.ray.actors[1]:
        raise FileError(f"{name}: ray.actors is {list(what.ray.actors)}; expected the least and the most, in this order.")
    return what, explain


def _explain_part(told: object, name: str, trust: bool) -> JobExplain:
    """What explains: a name, or a name with options."""
    if isinstance(told, str):
        told = {"function" if ":" in told else "application": told}
    if not isinstance(told, dict):
        raise FileError(f"{name}: explain is {said(told)}; expected application: with its options, or function:.")
    options = {str(key): value for key, value in told.items()}
    named = {key: options.pop(key) for key in ("application", "function") if key in options}
    if len(named) != 1:
        raise FileError(
            f"{name}: explain has {'both' if named else 'neither'} application {'and' if named else 'nor'} function; expected "
            f"application: one of {', '.join(APPLICATIONS)}, or function: package.module:function."
        )
    ((kind, value),) = named.items()
    if not isinstance(value, str) or (kind == "application" and value not in APPLICATIONS):
        expected = f"one of {', '.join(APPLICATIONS)}" if kind == "application" else "package.module:function"
        raise FileError(f"{name}: explain.{kind} is {said(value)}; expected {expected}.")
    return JobExplain(value if kind == "application" else "", value if kind == "function" else "", options, trust)


def _check_names(told: Mapping[Any, Any], known: list[str], where: str) -> None:
    for name in told:
        if name not in known:
            raise FileError(f"{where} has {said(name)}, which nobody knows; expected some of {', '.join(known)}.")


def _parsed(raw: bytes, name: str) -> Any:
    """What a YAML file says: plain values only, and no name twice."""
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise MissingExtraError("pyyaml", "batch", "a job file") from None
    try:
        _check_once(yaml.compose(raw, yaml.SafeLoader), set())
        return yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise FileError(f"{name} is no YAML ({shown(why)[:200]}); expected a job: source, explain, out.") from None


def _check_once(node: Any, seen: set[int]) -> None:
    """Refuse a name that a mapping has twice, as YAML would take the last without a word, and copies of mappings (``<<``).

    What is named again counts once.
    """
    inside = getattr(node, "value", None)
    if not isinstance(inside, list) or id(node) in seen:
        return
    seen.add(id(node))
    pairs = [one for one in inside if isinstance(one, tuple)]
    if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in pairs):
        raise ValueError("it has a name << that copies another mapping; write out what it stands for")
    names = Counter(key.value for key, _ in pairs if isinstance(key.value, str))
    if (twice := next((name for name, count in names.items() if count > 1), None)) is not None:
        raise ValueError(f"the name {said(twice)} comes twice")
    for one in [value for _, value in pairs] or inside:
        _check_once(one, seen)
