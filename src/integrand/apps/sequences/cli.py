"""``integrand sequence``: which letters of DNA, RNA or a protein made a network say what it says."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError, OptionError
from ..command_line import (
    NETWORK,
    OUTPUT,
    PICTURES,
    WHAT,
    BatchBar,
    Debug,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Tol,
    Trust,
    Verbose,
    figures,
    headline_of,
    one_line,
    only_model,
    print_line,
    print_shown,
    typed,
    working,
)
from ..text.text_options import Again, Keep, TextOutput

if TYPE_CHECKING:
    from ..text.text_batch import TextInput, TextTask
    from .model import SequenceModel
    from .result import SequenceAttribution

ENDINGS = (".html", *PICTURES, ".json", ".bedgraph")


class SequenceLayout(enum.StrEnum):
    """What a network on sequences takes."""

    letters_positions = "letters-positions"
    positions_letters = "positions-letters"


def sequence(
    sequence: Annotated[
        list[str], typer.Argument(metavar="SEQUENCE", help="Letters; or a FASTA file (.fa, .fasta, .fna, .faa, also .gz).")
    ],
    target: Annotated[
        str | None, typer.Option(help="The output to explain, by number or name. Default: the highest.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName, typer.Option(help="The scale on which it is explained.", rich_help_panel=WHAT)
    ] = ScoreName.logit,
    baseline: Annotated[
        str,
        typer.Option(
            help="What it is compared with: shuffled (same dinucleotides), uniform, zero, or another sequence.",
            rich_help_panel=WHAT,
        ),
    ] = "shuffled",
    shuffles: Annotated[int, typer.Option(min=1, max=1000, help="How many shuffles are averaged.", rich_help_panel=WHAT)] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the shuffles.", rich_help_panel=WHAT)] = 0,
    hypothetical: Annotated[
        bool, typer.Option(help="Also what every other letter would contribute in each place.", rich_help_panel=WHAT)
    ] = True,
    correct: Annotated[
        bool, typer.Option(help="Leave out what one-hot encoding leaves free (with --baseline zero).", rich_help_panel=WHAT)
    ] = True,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json, .bedgraph); without an ending, a folder for a "
            "table.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    again: Again = False,
    retry_failed: RetryFailed = False,
    keep: Keep = False,
    force: Force = False,
    model: Annotated[
        list[str],
        typer.Option(help="motifs, or your own: package.module:function, with --trust.", rich_help_panel=NETWORK),
    ] = ["motifs"],  # noqa: B006  # typer copies it
    alphabet: Annotated[
        str | None,
        typer.Option(help="Of your own network: DNA (the default), RNA, protein, or its letters.", rich_help_panel=NETWORK),
    ] = None,
    layout: Annotated[
        SequenceLayout | None,
        typer.Option(help="Of your own network: (N, letters, L), the default, or (N, L, letters).", rich_help_panel=NETWORK),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Of your own network: names of its outputs, with commas.", rich_help_panel=NETWORK)
    ] = None,
    trust: Trust = False,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Which letters of DNA, RNA or a protein made a network say what it says?

    Of a FASTA file what is done is kept beside the output, and the same command goes on where it was stopped.
    """
    given = {"force": force, "again": again, "keep": keep, "retry_failed": retry_failed}
    asked = TextOutput.checked(out, ENDINGS, **given)
    name = only_model(model, "the name of a network: motifs, or package.module:function")
    how: dict[str, Any] = {"target": target, "score": score.value, "baseline": baseline, "shuffles": shuffles, "seed": seed}
    how |= {"hypothetical": hypothetical, "correct": correct, "tol": tol, "max_evaluations": max_evaluations}
    with working() as screen:
        source = _asked(sequence)
        with screen.loading(), one_line(f"--model {name}", debug=debug):
            network = _network(name, {"alphabet": alphabet, "layout": layout, "classes": classes}, trust=trust, device=device)
        from ..text.text_batch import TextJob, run_texts, run_typed
        from .result import SequenceAttribution

        many = source.file or asked.folder
        bar = screen.batch(source.total if many else 1, "sequences" if many else "")
        job = TextJob(
            *_task(network, how, bar, debug=debug),
            what="sequences",
            unpack=SequenceAttribution.of_details,
            show=functools.partial(_show, verbose=verbose),
            write=functools.partial(_write, network=network.name),
            title="What the network sees in the sequences",
            as_json=as_json,
        )
        if many:
            run_texts(job, source.inputs(), source.total, asked, screen, bar)
        else:
            bar.begin(f"{source.total} sequence{'s' if source.total > 1 else ''}", source.total)
            run_typed(job, list(source.inputs()), asked, screen)


@dataclass(frozen=True)
class SequenceSource:
    """The sequences that were asked for.

    Attributes:
        inputs: begins a stream of them.
        total: how many they are.
        file: whether they are from a file.
    """

    inputs: Callable[[], Iterator[TextInput]]
    total: int
    file: bool


def _asked(given: Sequence[str]) -> SequenceSource:
    """The sequences that were typed, or those of the files that were named."""
    from .sequence_files import is_fasta, read_fasta

    files = [is_fasta(one) or Path(one).suffix != "" for one in given]
    if any(files) and len(given) > 1:
        raise OptionError(f"got {len(given)} arguments with a file among them; expected one FASTA file, or sequences only.")
    if not any(files):
        return SequenceSource(lambda: _typed(given), len(given), file=False)

    def inputs() -> Iterator[TextInput]:
        from ..text.text_batch import TextInput

        for number, record in enumerate(read_fasta(given[0]), 1):
            known = {"name": record.name, "description": record.about}
            yield TextInput(str(number), record.sequence, known, record.problem)

    return SequenceSource(inputs, sum(1 for _ in read_fasta(given[0])), file=True)


def _typed(given: Sequence[str]) -> Iterator[TextInput]:
    from ..text.text_batch import TextInput

    for number, text in enumerate(given, 1):
        yield TextInput(str(number), text, {"name": ""}, "" if text.strip() else "it has no letters")


def _network(name: str, about: dict[str, Any], *, trust: bool, device: str | None) -> SequenceModel:
    """The network that is named: ours, or one of the user's own."""
    from .model import SequenceModel, load, of_module

    known = {key: value for key, value in about.items() if value is not None}
    if ":" not in name:
        if known:
            told = ", ".join(f"--{key}" for key in known)
            raise OptionError(
                f"got {told}, which {name} brings itself; expected a network of your own (package.module:function)."
            )
        return load(name, device=device)
    from ...loading import load_model
    from ..command_line import default_device

    found: Any = load_model(name, trust=trust)
    if isinstance(found, SequenceModel):
        return found
    if hasattr(found, "to"):
        found = found.to(device or default_device())
    names = [one.strip() for one in known.pop("classes", "").split(",") if one.strip()]
    layout = known.pop("layout", SequenceLayout.letters_positions).value
    return of_module(found, classes=names, layout=layout, name=name, **known)


def _task(network: SequenceModel, how: dict[str, Any], bar: BatchBar, *, debug: bool) -> tuple[TextTask, dict[str, Any]]:
    """What explains sequences, and everything that a result depends on beside its sequence."""
    from ...batch.identity import settings_of
    from ..text.text_batch import TextTask
    from .sequence_files import FastaRecord

    explain: Callable[..., SequenceAttribution] = functools.partial(network.explain, **how)

    class SequenceTask(TextTask):
        """Sequences as inputs of the batch runner, with their names."""

        def explain(self, items: Sequence[TextInput]) -> Sequence[Any]:
            """The results of some sequences."""
            records = [FastaRecord(str(item.columns.get("name", "")), "", "".join(item.text.split())) for item in items]
            with one_line(f"--model {network.name}", debug=debug):  # whatever a user's own network raises
                return [explain(record, progress=bar.tell) for record in records]

    task = SequenceTask(lambda texts: [], size=lambda text: network.size("".join(text.split())))
    return task, settings_of(explain) | {"command": "sequence"}


def _show(one: SequenceAttribution, *, verbose: bool) -> None:
    from ...words import shown

    print_line(f"{shown(one.name)}: {headline_of(one)}" if one.name else headline_of(one))
    if verbose:
        print_shown("\n".join(f"  {line}" for line in str(one).splitlines()[1:-1]))
        print_shown(figures(one.certificate))


def _write(out: Path, found: list[SequenceAttribution], lead: str, *, network: str) -> None:
    """Write the first results as a page, a picture, or bedGraph."""
    from ...files import write_text
    from ...render import sequence as pictures

    ending = out.suffix.lower()
    if ending == ".bedgraph":
        parts = [found[0].bedgraph(), *("".join(one.bedgraph().splitlines(keepends=True)[2:]) for one in found[1:])]
        write_text(out, "".join(parts))
        return
    if ending in PICTURES and len(found) > 1:
        raise InputError(
            f"got {len(found)} sequences for one picture; expected one. Several go on a page: --out {out.stem}.html."
        )
    options: dict[str, Any] = {"command": typed(), "lead": lead} if ending == ".html" else {}
    if ending == ".html":
        options["meta"] = {"network": network, "baseline": found[0].baseline}
    elif ending in PICTURES:
        options["hypothetical"] = found[0].hypothetical is not None
    pictures.save([one.logo for one in found], out, **options)
