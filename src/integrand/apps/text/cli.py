"""``integrand text``: which words made a Hugging Face model say, answer or write what it does."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import FileError, InputError, IntegrandError, MissingExtraError, ModelError, OptionError
from ...files import reading
from ...words import shown
from ..command_line import (
    EXPERTS,
    NETWORK,
    OUTPUT,
    WHAT,
    Colour,
    Device,
    Force,
    Json,
    Most,
    RetryFailed,
    ScoreName,
    Screen,
    Tol,
    Trust,
    Verbose,
    check_name,
    coloured,
    echo,
    figures,
    headline_of,
    noted,
    print_line,
    print_shown,
    say,
    typed,
    working,
)
from .text_options import Again, Column, File, Keep, TextOutput

if TYPE_CHECKING:
    from .result import Explained, Explanations, Generated

    Found = Explained | Explanations | Generated

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json")
COMPARED = (*ENDINGS, ".csv")
"""What the file of a comparison of models may end in."""

STRONGEST = 5
"""How many of the words that models differ in most are printed."""

LARGEST_SHARD = 64 << 30
"""The most bytes of one file of weights in a model's folder, and of the tensors in it; large models have several files."""

LARGEST_JSON = 256 << 20
"""The most bytes of one .json file in a model's folder; the largest are vocabularies."""

LARGEST_CONFIG = 16 << 20
"""The most bytes of a model's config.json."""

MOST_OF_A_KIND = {"layers": 10_000, "n_layer": 10_000, "blocks": 10_000, "experts": 10_000, "num_labels": 1_000_000}
"""The most parts of a kind that a model's config.json may ask for, by what the name of the setting ends in."""

WRITING = ("continuation", "max_new_tokens", "span")


class Task(enum.StrEnum):
    """The task of a Hugging Face model."""

    classify = "classify"
    answer = "answer"
    generate = "generate"
    similar = "similar"


class Baseline(enum.StrEnum):
    """The baseline: what stands in for the embedding of a word."""

    zero = "zero"
    pad = "pad"
    mask = "mask"
    eos = "eos"
    mean = "mean"


class PartName(enum.StrEnum):
    """The part of an extracted answer that is explained: its start, its end, or both."""

    start = "start"
    end = "end"
    span = "span"


class Pooling(enum.StrEnum):
    """How the vectors of a sentence's tokens are pooled into one."""

    mean = "mean"
    first = "first"
    last = "last"
    max = "max"


class Precision(enum.StrEnum):
    """The data type that the model computes in."""

    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"
    float16 = "float16"


IGNORED = {
    Task.classify: ("part", "pooling", *WRITING),
    Task.answer: ("against", "pooling", *WRITING),
    Task.generate: ("context", "target", "part", "pooling"),
    Task.similar: ("context", "target", "against", "part", "score", *WRITING),
}
"""The options that have no meaning for each task, and are refused."""


def text(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts; a question; a prompt; or two sentences.", show_default=False),
    ] = None,
    *,
    model: Annotated[
        list[str],
        typer.Option(
            help="The name of a model, or the path of its folder: ./folder. Twice, to compare two classifiers.",
            rich_help_panel=NETWORK,
            metavar="NAME",
        ),
    ],
    file: File = None,
    column: Column = None,
    task: Annotated[
        Task | None, typer.Option(help="Default: by the model's own head.", show_default=False, rich_help_panel=WHAT)
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Where the answer is, or the second text of a pair.", rich_help_panel=WHAT)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The class, or the answer. Default: what the model says.", rich_help_panel=WHAT)
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Explain the difference to this class (or token).", rich_help_panel=WHAT)
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="Compare with this text, word by word: only what differs is explained.", metavar="TEXT", rich_help_panel=WHAT
        ),
    ] = None,
    part: Annotated[PartName, typer.Option(help="Of an answer.", rich_help_panel=WHAT)] = PartName.span,
    continuation: Annotated[
        str | None, typer.Option(help="What follows the prompt. Default: what the model writes.", rich_help_panel=WHAT)
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="How much it may write.", rich_help_panel=WHAT)] = 20,
    span: Annotated[
        str | None, typer.Option(help="Explain only these words of what was written.", rich_help_panel=WHAT)
    ] = None,
    score: Annotated[
        ScoreName | None, typer.Option(help="Default: probability.", show_default=False, rich_help_panel=WHAT)
    ] = None,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    pieces: Annotated[
        bool, typer.Option("--pieces", help="Show word pieces instead of words.", rich_help_panel=OUTPUT)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json); without an ending, a folder for a table.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    colour: Colour = True,
    again: Again = False,
    retry_failed: RetryFailed = False,
    keep: Keep = False,
    force: Force = False,
    trust: Trust = False,
    device: Device = None,
    dtype: Annotated[
        Precision | None, typer.Option(help="Default: as it was saved.", show_default=False, rich_help_panel=NETWORK)
    ] = None,
    pooling: Annotated[Pooling, typer.Option(help="For two sentences.", rich_help_panel=EXPERTS)] = Pooling.mean,
    baseline: Annotated[
        Baseline, typer.Option(help="What stands for 'no word'; markers are kept.", rich_help_panel=EXPERTS)
    ] = Baseline.zero,
) -> None:
    """Which words made a model say what it says? For any Hugging Face model that classifies, answers, writes or compares.

    Of a file of texts what is done is kept beside the output, and the same command goes on where it was stopped.
    """
    for each in model:
        check_name("--model", each, "the name of a model, or the path of its folder, such as ./folder")
    table = {"again": again, "keep": keep, "retry_failed": retry_failed}
    asked = TextOutput.checked(out, ENDINGS if len(model) == 1 else COMPARED, force=force, **table)
    words = words or []
    if like is not None and baseline is not Baseline.zero:
        raise typer.BadParameter("got both --like and --baseline; expected one of them", param_hint="--like")
    _check_source(words, file, column, model, asked)
    _check_given(ctx, task)
    numbers = None if dtype is None else dtype.value
    how: dict[str, Any] = {"baseline": baseline.value if like is None else like, "tol": tol, "max_evaluations": max_evaluations}
    how |= {} if score is None else {"score": score.value}
    picked = {"context": context, "target": target, "against": against, "part": part.value, "pooling": pooling.value}
    written: dict[str, Any] = {"continuation": continuation, "max_new_tokens": max_new_tokens, "span": span}
    if len(model) > 1:
        _check_compared(ctx, words, model, task)
        wanted = TextPairRequest(words[0], model, out, as_json=as_json, verbose=verbose)
        wanted.run(how | {"target": target}, device=device, dtype=numbers, trust=trust)
        return
    [name] = model
    with working() as screen:
        with screen.loading():
            network, tokenizer, does = load(name, task, device=device, dtype=numbers, trust=trust)
        _check_given(ctx, does)
        options = {key: value for key, value in (picked | written | how).items() if key not in IGNORED[does]}
        shown_as = TextView(pieces=pieces, as_json=as_json, colour=colour, verbose=verbose)
        if file is not None or asked.folder or (len(words) > 1 and does in (Task.classify, Task.answer)):
            loaded = LoadedModel(name, network, tokenizer, does, options)
            _many(loaded, words, file, column, asked, screen, shown_as)
            return
        bar = screen.batch(1)
        bar.begin("explaining")
        with noted() as notes:
            found = _explained(does, network, tokenizer, words, options | {"progress": bar.tell})
        found = found if pieces else found.words()
        if out is not None:
            with screen.doing("writing"):
                shown_as.save(found, out)
    for line in shown_as.json_lines(found):
        typer.echo(line)
    if not as_json:
        shown_as.show(found)
    say(notes)
    if out is not None:
        print_line(f"wrote {out}", err=True)


@dataclass(frozen=True)
class LoadedModel:
    """A model that was loaded, and what it is asked.

    Attributes:
        name: as ``--model`` names it.
        network: the model.
        tokenizer: its tokenizer.
        task: what it does.
        options: those that mean something for the task.
    """

    name: str
    network: Any
    tokenizer: Any
    task: Task
    options: dict[str, Any]

    @property
    def together(self) -> int:
        """Texts that are explained in one call."""
        from .encoding import parameters_of
        from .text_tasks import BLOCK

        alone = self.task is Task.generate or "attention_mask" not in parameters_of(self.network)
        return 1 if alone else BLOCK

    def explain(self, texts: list[str], **more: Any) -> list[Any]:
        """The results of some texts, one for each."""
        if self.task is Task.generate:
            return [_explained(self.task, self.network, self.tokenizer, [one], self.options | more) for one in texts]
        found = _explained(self.task, self.network, self.tokenizer, texts, self.options | more)
        return list(found)  # type: ignore[arg-type]  # several texts, several results

    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on beside its text."""
        from ...batch.identity import described, settings_of

        words = json.dumps(self.tokenizer.get_vocab(), sort_keys=True).encode()
        told = {"task": self.task.value, "network": described(self.network), "vocabulary": described(words)}
        made = {name: value for name, value in settings_of(None).items() if name in ("integrand", "torch")}
        return made | told | {"options": self.options, "command": "text", "together": self.together}

    def length(self, text: str) -> float:
        """How long a text is; an error if there is nothing in it."""
        if not text.strip():
            raise InputError("it is empty; expected at least one word to explain")
        return float(len(text))


@dataclass(frozen=True)
class TextView:
    """How results are printed and written.

    Attributes:
        pieces: by word pieces instead of words.
        as_json: print JSON.
        colour: print colours on a terminal.
        verbose: print all figures.
    """

    pieces: bool
    as_json: bool
    colour: bool
    verbose: bool

    def of_details(self, details: str | None) -> Found:
        """The result of a row of a table."""
        from .stored_text import result_of

        found = result_of(details)
        return found if self.pieces else found.words()

    def show(self, found: Found) -> None:
        """Print a line for people and the coloured words."""
        from .result import Explanations, Generated

        for part in found.texts if isinstance(found, Explanations) else (found,):
            if getattr(part, "sentence", ""):
                print_line(headline_of(part))
            more: dict[str, Any] = {} if isinstance(part, Generated) else {"detail": self.verbose}
            echo(part.terminal(colour=coloured(self.colour), **more))
            if self.verbose:
                certificates = part.certificate if isinstance(part, Generated) else [part.certificate]
                print_shown("\n".join(figures(one) for one in certificates))

    def numbers(self, found: Found) -> list[dict[str, Any]]:
        """The lines of a result as JSON values."""
        from .result import Explained

        lines = [found.line] if isinstance(found, Explained) else found.lines
        parts: list[Any] = [found] * len(lines) if not hasattr(found, "texts") else list(found.texts)
        return [{"sentence": headline_of(part)} | line.numbers() for part, line in zip(parts, lines, strict=True)]

    def json_lines(self, found: Found) -> list[str]:
        """What is printed of a result as JSON; nothing if that is not asked for."""
        return [json.dumps(self.numbers(found), allow_nan=False)] if self.as_json else []

    def save(self, found: Found, out: Path, lead: str = "") -> None:
        """Write a result to a file."""
        from .result import Explanations

        page = {"command": typed()} | ({"title": "Which words made it so"} if isinstance(found, Explanations) else {})
        page |= {"lead": lead} if lead else {}
        found.save(out, **(page if out.suffix.lower() == ".html" else {}))

    def save_many(self, found: list[Any], out: Path, lead: str) -> None:
        """Write results to a page or a picture; generated texts as their prompts, with what is added up over the outputs."""
        from ...render import text as pictures
        from .result import Explained, Explanations

        if all(isinstance(one, Explained) for one in found):
            self.save(Explanations(tuple(found)), out, lead)
        elif len(found) == 1:
            self.save(found[0], out)
        else:
            page = {"title": "Which words made it so", "lead": lead, "meta": found[0].meta, "command": typed()}
            pictures.save([one.line for one in found], out, **(page if out.suffix.lower() == ".html" else {}))


def _check_source(words: list[str], file: Path | None, column: str | None, models: list[str], asked: TextOutput) -> None:
    """Refuse texts that are both typed and in a file, or neither."""
    if bool(words) == (file is not None):
        given = "a text and --file" if words else "no text"
        raise OptionError(f"got {given}; expected texts in quotes, or a file of them: --file texts.txt.")
    if column is not None and file is None:
        raise OptionError(f"got --column {column!r} without a table; expected --file with it.")
    if len(models) > 1 and (file is not None or asked.folder):
        what = "--file" if file is not None else "a folder for a table"
        raise OptionError(f"got {what} with {len(models)} models; they are compared on one text. Name one model.")


def _many(
    model: LoadedModel,
    words: list[str],
    file: Path | None,
    column: str | None,
    asked: TextOutput,
    screen: Screen,
    view: TextView,
) -> None:
    """Explain several texts that were typed, or those of a file."""
    from .text_batch import TextJob, TextTask, counted, run_texts, run_typed, text_input, texts_of

    if model.task is Task.similar:
        given = "--file" if file is not None else "a folder for a table"
        raise OptionError(f"got {given} for --task similar; expected two sentences in quotes, and a file with an ending.")
    many = file is not None or asked.folder
    if file is None:
        inputs, total = iter([text_input(i, one, {"text": one}) for i, one in enumerate(words, 1)]), len(words)
    else:
        with screen.doing("looking at the texts"):
            total, inputs = counted(texts_of(file, column), file), texts_of(file, column)
    bar = screen.batch(total if many else 1, "texts" if many else "")

    def save(out: Path, found: list[Any], lead: str) -> None:
        view.save_many(found, out, lead)

    job = TextJob(
        TextTask(lambda texts: model.explain(texts, progress=bar.tell), size=model.length, together=model.together),
        model.settings() if many else {},
        what="texts",
        unpack=view.of_details,
        show=view.show,
        numbers=view.numbers,
        write=save,
        title=f"Which words made {Path(model.name).name} say it",
        as_json=view.as_json,
    )
    if many:
        run_texts(job, inputs, total, asked, screen, bar)
        return
    bar.begin("explaining")
    run_typed(job, list(inputs), asked, screen, joined=lambda one: one if view.pieces else one.words())


@dataclass(frozen=True)
class TextPairRequest:
    """One text that several classifiers are compared on, and what is to come of it.

    Attributes:
        text: the text.
        names: the models, as ``--model`` names them.
        out: the file to write, if any.
        as_json: print JSON.
        verbose: print all figures.
    """

    text: str
    names: Sequence[str]
    out: Path | None
    as_json: bool
    verbose: bool

    @property
    def short(self) -> list[str]:
        """The models by the last part of their names or folders, where these differ."""
        ends = [Path(name).name or name for name in self.names]
        return ends if len(set(ends)) == len(ends) else list(self.names)

    def run(self, how: dict[str, Any], **places: Any) -> None:
        """Explain the text with each model, write what was asked for, and print what they differ in."""
        with working() as screen:
            with screen.loading():
                from . import compare

                pairs = [load(name, Task.classify, **places)[:2] for name in self.names]
            bar = screen.batch(1)
            bar.begin(f"explaining with {len(pairs)} models", len(pairs))
            with noted() as notes:
                found = compare(self.text, dict(zip(self.short, pairs, strict=True)), progress=bar.tell, **how)
            if self.out is not None:
                with screen.doing("writing"):
                    found.save(self.out, **({"command": typed()} if self.out.suffix.lower() == ".html" else {}))
        if self.as_json:
            typer.echo(json.dumps(found.numbers(), allow_nan=False))
        else:
            print_line(headline_of(found))
            last = f"{found.differences[0].first} − {found.differences[0].second}"
            for row in sorted(found.table(), key=lambda row: -abs(row[last]))[:STRONGEST]:
                each = ", ".join(f"{name} {row[name]:+.3g}" for name in found.names)
                print_line(f"  {row['feature']}: {each}; difference {row[last]:+.3g}")
            for name, result in found.results.items() if self.verbose else ():
                print_shown(f"{name}\n{figures(result.certificate.only)}")
        say([*found.notes, *notes])
        if self.out is not None:
            print_line(f"wrote {self.out}", err=True)


def _check_compared(ctx: typer.Context, words: list[str], names: list[str], task: Task | None) -> None:
    """Refuse what a comparison of models cannot do, before any is loaded."""
    if len(set(names)) < len(names):
        raise OptionError(f"got --model {shown(names[0])} more than once; expected models that differ.")
    if len(words) != 1:
        raise OptionError(f"got {len(names)} models for {len(words)} texts; expected one text to compare them on, in quotes.")
    if task not in (None, Task.classify):
        raise OptionError(f"got --task {task.value} with {len(names)} models; only classifiers are compared. Name one model.")
    for option in (*IGNORED[Task.classify], "context", "against", "pieces"):
        source = ctx.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise OptionError(f"got --{option.replace('_', '-')} with {len(names)} models; it is for one. Leave it out.")


def _explained(task: Task, network: Any, tokenizer: Any, words: list[str], options: dict[str, Any]) -> Found:
    """Ask the model what the task is about, with the options that mean something for it."""
    from . import explain, generated, similarity

    if task is Task.similar:
        if len(words) != 2:
            raise OptionError(f"got {len(words)} text(s) for --task similar; expected two sentences.")
        return similarity(network, tokenizer, words[0], words[1], **options)
    if task is Task.generate:
        written: Generated = generated(network, tokenizer, _one(words), **options)
        return written
    if task is Task.answer and options["context"] is None:
        raise OptionError("got no --context; expected the text that holds the answer.")
    found: Explanations = explain(network, tokenizer, words, **options)
    return found


def load(
    name: str, task: Task | None, *, device: str | None = None, dtype: str | None = None, trust: bool = False
) -> tuple[Any, Any, Task]:
    """Load a model, in eval mode, and its tokenizer; also gives the task, by the model's own head if none is named.

    Args:
        name: that of a model on the hub (``gpt2``, ``org/name``), or the path of a folder: ``./folder``, ``../folder``,
            ``/folder``. A name is never a folder.
        task: what the model is to do.
        device: where to put it.
        dtype: what it computes in.
        trust: whether code that the model brings along may run; without it, that is a TrustError, and nobody is asked.
    """
    import torch

    from ...loading import check_trusted

    _check_place(name)
    try:
        hf: Any = import_module("transformers")
    except ImportError:
        raise MissingExtraError("transformers", "text", "explaining Hugging Face models") from None
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    try:
        config = hf.AutoConfig.from_pretrained(name, trust_remote_code=trust)
        _check_config(name, config, trust=trust)
        tokenizer = hf.AutoTokenizer.from_pretrained(name, trust_remote_code=trust)
        does = task or _task(getattr(config, "architectures", None) or [])
        writes = "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
        heads = {Task.classify: "AutoModelForSequenceClassification", Task.answer: "AutoModelForQuestionAnswering"}
        maker = getattr(hf, heads.get(does, writes if does is Task.generate else "AutoModel"))
        network, info = maker.from_pretrained(name, output_loading_info=True, trust_remote_code=trust, weights_only=True)
    except IntegrandError:
        raise
    except Exception as error:  # broken files raise what their readers please
        if "trust_remote_code" in str(error):
            check_trusted(trust, f"--model {shown(name)} brings Python code of its own, which transformers would run")
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise FileError(f"--model {name!r} cannot be loaded ({said[0]}); expected the name or folder of a model.") from error
    _check_complete(name, network, info["missing_keys"], does)
    _check_vocabulary(name, tokenizer, config)
    if dtype is not None:
        network = network.to(getattr(torch, dtype))
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        network = network.to(place)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(
            f"got --device {place!r}, which cannot be used ({error}); expected cpu, or a device there is."
        ) from None
    return network.eval(), tokenizer, does


def _check_place(name: str) -> None:
    """Tell names and folders apart before transformers does, and refuse a folder with files that cannot be read within bounds.

    transformers takes a folder of the current folder for any name that it has, and would run what is in it.
    """
    if not (os.path.isabs(name) or name.replace(os.altsep or os.sep, os.sep).split(os.sep)[0] in (".", "..")):
        if os.path.lexists(name):
            raise OptionError(
                f"got --model {shown(name)!r}, a name, and the current folder has something that is called so; expected its "
                f"path, ./{shown(name)}, if that is meant. For the model of that name, run this in another folder."
            )
        return
    from ...tensor_files import check_weights

    folder = Path(name)
    if (folder / "config.json").exists():
        _check_description(folder / "config.json")
    if not folder.is_dir():
        raise FileError(f"--model {shown(name)!r} cannot be loaded (there is no such folder); expected the folder of a model.")
    for file in sorted(folder.iterdir()):
        if file.is_dir():
            continue
        if file.suffix in (".bin", ".safetensors"):
            if file.name not in ("training_args.bin", "optimizer.bin", "scheduler.bin"):  # of training; not read
                check_weights(file, what="--model", most=LARGEST_SHARD)
        else:
            with reading(file, what="a file of a model") as opened:
                size = os.fstat(opened.fileno()).st_size
            if file.suffix == ".json" and size > LARGEST_JSON:
                raise FileError(f"{shown(str(file))} has {size:,} bytes; expected at most {LARGEST_JSON:,} in a .json file.")


def _check_description(file: Path) -> None:
    """Refuse settings that ask for more parts than any model has: transformers makes them all, before it reads weights."""
    from ...tensor_files import read_json

    left = [read_json(file, what="the settings of a model", most=LARGEST_CONFIG)]
    while left:
        found = left.pop()
        left += found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        for key, value in found.items() if isinstance(found, dict) else ():
            most = next((count for part, count in MOST_OF_A_KIND.items() if key.endswith(part)), None)
            if most is not None and isinstance(value, int) and value > most:
                raise FileError(f"{shown(str(file))} asks for {value:,} as {shown(key)!r}; expected at most {most:,}.")


def _check_config(name: str, config: Any, *, trust: bool) -> None:
    """Refuse a model that names somebody's kernels to be fetched and run."""
    from ...loading import check_trusted

    kernels = getattr(config, "_attn_implementation", None)
    if any(
        "/" in kernel for kernel in (kernels.values() if isinstance(kernels, dict) else [kernels]) if isinstance(kernel, str)
    ):
        check_trusted(trust, f"--model {shown(name)} asks for kernels of {shown(str(kernels))}, which transformers would run")


def _check_complete(name: str, network: Any, missing: Iterable[str], task: Task) -> None:
    """Refuse a model some of whose weights are not in its file, which transformers then initialises at random."""
    weights = dict(network.named_parameters(remove_duplicate=False))
    absent = {key for key in missing if key in weights}  # buffers are made anew
    there = {id(weight) for key, weight in weights.items() if key not in absent}
    lost = sorted(key for key in absent if id(weights[key]) not in there)  # tied ones are there under another name
    if task is Task.similar:
        lost = [key for key in lost if "pooler" not in key]  # which is not used
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise ModelError(
            f"--model {name!r} has no trained weights for --task {task.value} ({lost[0]}{more} missing in the file); "
            "expected a model that was trained for it. Choose another --task, or another model."
        )


def _check_vocabulary(name: str, tokenizer: Any, config: Any) -> None:
    """Refuse a tokenizer far smaller than the model's vocabulary: transformers makes one up if the folder has none."""
    size = getattr(config, "vocab_size", None)
    if isinstance(size, int) and 2 * len(tokenizer) < size:
        raise FileError(
            f"--model {name!r} has a tokenizer of {len(tokenizer):,} tokens for a vocabulary of {size:,}; expected the model's "
            "own. Put its tokenizer files into the folder: tokenizer.save_pretrained(folder)."
        )


def _check_given(ctx: typer.Context, task: Task | None) -> None:
    """Refuse options that the task would ignore."""
    for option in () if task is None else IGNORED[task]:
        source = ctx.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            flag = "--" + option.replace("_", "-")
            fits = ", ".join(other.value for other in Task if option not in IGNORED[other])
            raise OptionError(f"got {flag}, which means nothing for --task {task}; expected it for {fits} only. Leave it out.")


def _task(architectures: list[str]) -> Task:
    """The task of a model, from the name of its class."""
    name = architectures[0] if architectures else ""
    ends = {
        "ForSequenceClassification": Task.classify,
        "ForQuestionAnswering": Task.answer,
        "ForCausalLM": Task.generate,
        "LMHeadModel": Task.generate,
        "ForConditionalGeneration": Task.generate,
        "Model": Task.similar,
    }
    for end, task in ends.items():
        if name.endswith(end):
            return task
    known = ", ".join(repr(task.value) for task in Task)
    raise OptionError(f"the model says it is {name or 'nothing'!r}, which does not tell what it does; expected --task {known}.")


def _one(words: list[str]) -> str:
    if len(words) != 1:
        raise OptionError(f"got {len(words)} texts for --task generate; expected one prompt. Put it in quotes.")
    return words[0]
