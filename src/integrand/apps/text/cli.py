"""``integrand text``: which words made a Hugging Face model say, answer or write what it does."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import FileError, IntegrandError, MissingExtraError, ModelError, OptionError
from ...files import reading
from ...loading import check_trusted
from ...tensor_files import check_weights, read_json
from ...words import shown
from ..command_line import ScoreName, check_out, coloured, noted, print_line, typed
from . import explain, generated, similarity
from .result import Explained, Explanations, Generated

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json")
Found = Explained | Explanations | Generated


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
    words: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts; a question; a prompt; or two sentences.")],
    model: Annotated[str, typer.Option(help="The name of a model, or the path of its folder: ./folder.")],
    trust: Annotated[bool, typer.Option("--trust", help="Run the code that --model brings along, if it does.")] = False,
    task: Annotated[Task | None, typer.Option(help="Default: by the model's own head.", show_default=False)] = None,
    context: Annotated[str | None, typer.Option(help="Where the answer is, or the second text of a pair.")] = None,
    target: Annotated[str | None, typer.Option(help="The class, or the answer. Default: what the model says.")] = None,
    against: Annotated[str | None, typer.Option(help="Explain the difference to this class (or token).")] = None,
    part: Annotated[PartName, typer.Option(help="Of an answer.")] = PartName.span,
    continuation: Annotated[str | None, typer.Option(help="What follows the prompt. Default: what the model writes.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="How much it may write.")] = 20,
    span: Annotated[str | None, typer.Option(help="Explain only these words of what was written.")] = None,
    pooling: Annotated[Pooling, typer.Option(help="For two sentences.")] = Pooling.mean,
    score: Annotated[ScoreName | None, typer.Option(help="Default: probability.", show_default=False)] = None,
    baseline: Annotated[Baseline, typer.Option(help="What stands for 'no word'; markers are kept.")] = Baseline.zero,
    tol: Annotated[float, typer.Option(help="The relative error to integrate to.")] = 0.01,
    pieces: Annotated[bool, typer.Option("--pieces", help="Show word pieces instead of words.")] = False,
    out: Annotated[Path | None, typer.Option(help="A page (.html), a picture (.png, .svg, .pdf) or numbers (.json).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    colour: Annotated[bool, typer.Option("--color/--no-color", help="Colours on a terminal.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: cuda where there is one.")] = None,
    dtype: Annotated[Precision | None, typer.Option(help="Default: as it was saved.", show_default=False)] = None,
) -> None:
    """Which words made a model say what it says? For any Hugging Face model that classifies, answers, writes or compares."""
    check_out(out, ENDINGS)
    _check_given(ctx, task)
    numbers = None if dtype is None else dtype.value
    network, tokenizer, does = load(model, task, device=device, dtype=numbers, trust=trust)
    _check_given(ctx, does)
    how: dict[str, Any] = {"baseline": baseline.value, "tol": tol}
    scale: dict[str, Any] = {} if score is None else {"score": score.value}
    found: Found
    with noted() as notes:
        if does is Task.similar:
            if len(words) != 2:
                raise OptionError(f"got {len(words)} text(s) for --task similar; expected two sentences.")
            found = similarity(network, tokenizer, words[0], words[1], pooling=pooling.value, **how)
        elif does is Task.generate:
            written: dict[str, Any] = {"continuation": continuation, "max_new_tokens": max_new_tokens, "span": span}
            found = generated(network, tokenizer, _one(words), against=against, **written, **how, **scale)
        elif does is Task.answer:
            if context is None:
                raise OptionError("got no --context; expected the text that holds the answer.")
            found = explain(network, tokenizer, words, context=context, target=target, part=part.value, **how, **scale)
        else:
            found = explain(network, tokenizer, words, context=context, target=target, against=against, **how, **scale)
    _tell(found if pieces else found.words(), out, as_json=as_json, colour=colour)
    for note in notes:
        print_line(f"note: {note}", err=True)


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


def _tell(found: Found, out: Path | None, *, as_json: bool, colour: bool) -> None:
    if out is not None:
        page = {"title": "Which words made it so", "command": typed()}
        found.save(out, **(page if out.suffix.lower() == ".html" else {}))
    lines = [found.line] if isinstance(found, Explained) else found.lines
    if as_json:
        typer.echo(json.dumps([line.numbers() for line in lines], allow_nan=False))
    else:
        more: dict[str, Any] = {} if isinstance(found, Generated) else {"detail": True}
        typer.echo(found.terminal(colour=coloured(colour), **more), color=True)
    if out is not None:
        print_line(f"wrote {out}", err=True)
