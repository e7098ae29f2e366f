"""Language models: every generated token attributed to the prompt and to what was generated before it.

The text is given to the model as it came out (teacher forcing), so that nothing is generated again: row i of a batch has the
text up to output i and the score of that output. What comes later cannot matter, and is cut off block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...certificate import Certificate, ExampleCertificate
from ...errors import InputError, ModelError, OptionError
from ...functions.layer import of_this_thread
from ...functions.target import ReadOut, Score
from ...memory import out_of_memory
from .encoding import SEPARATOR, Encoded, Pieces, check_length, check_texts, decoded, encode, marker_ids, trimmed
from .model_inputs import OWN, ModelInputs, model_inputs, naming_inputs
from .result import Generated
from .text_baselines import Fill, Looked, baseline_words
from .text_run import Known, TextRun, Values, fixed_of, integrate, look, picked, slots_of

BLOCK = 16
"""The number of outputs that are explained in one batch, on the text up to the last of them."""

SOME = 32
"""The number of tokens used to check whether a model looks ahead."""


def attribute(
    model: nn.Module,
    tokenizer: Any,
    written: Written,
    chosen: range,
    *,
    score: Score,
    against: str | int | None,
    baseline: Fill | list[Fill],
    tol: float,
    options: dict[str, Any],
) -> Generated:
    """Attribute generated tokens to everything before them; see :func:`integrand.text.generated`.

    Args:
        model: the language model.
        tokenizer: its tokenizer.
        written: prompt and output.
        chosen: which outputs.
        score: the scale.
        against: a token to compare each output with.
        baseline: the baseline.
        tol: the tolerance.
        options: further options of the engine.
    """
    inputs, found_out = inputs_of(tokenizer, written, chosen[-1]), outputs(tokenizer, written)
    names = [piece for piece, _ in found_out]
    values, errors = np.zeros((2, len(chosen), len(inputs.ids)))
    examples: list[ExampleCertificate] = []
    chances: list[float] = []
    other = None if against is None else _one_token(tokenizer, against)
    for first in range(0, len(chosen), BLOCK):
        block = chosen[first : first + BLOCK]
        found, off, certificate, sure = _block(model, tokenizer, written, block, names, score, other, baseline, tol, options)
        for whole, part in ((values, found), (errors, off)):
            whole[first : first + len(block), : part.shape[1]] = part
        examples += certificate.examples
        chances += sure
    meta = {"model": type(model).__name__, "baseline": baseline_words(baseline), "score": score}
    meta |= {"same at the baseline": ", ".join(written.inputs.names)} if written.inputs.names else {}
    reach = tuple(written.source + i for i in chosen)
    shown, together = tuple(names[i] for i in chosen), Certificate(tuple(examples), certificate.promises)
    spelled = tuple("" if i and found_out[i][1] == found_out[i - 1][1] else names[i] for i in chosen)
    rather = None if other is None else tokenizer.decode([other]).strip() or repr(tokenizer.decode([other]))
    prompt = written.encoded.ids.shape[1]
    return Generated(inputs, shown, spelled, values, reach, prompt, tuple(chances), together, meta, rather, errors=errors)


@dataclass(frozen=True)
class Written:
    """A prompt and the tokens that follow it.

    Attributes:
        encoded: the user's text, a batch of one.
        out: the ids that were written.
        start: what the decoder of an encoder-decoder starts from; None for a language model.
        inputs: what else the model is given, such as an image.
    """

    encoded: Encoded
    out: tuple[int, ...]
    start: int | None
    inputs: ModelInputs = field(default_factory=ModelInputs)

    @property
    def source(self) -> int:
        """The number of input tokens before the first output."""
        return self.encoded.ids.shape[1] + (self.start is not None)

    def ids(self, outputs: int) -> dict[str, Tensor]:
        """The model's inputs for the first ``outputs`` outputs; the last of these is not among the inputs."""
        text = self.encoded.ids
        more = torch.tensor([self.out[: outputs - 1]], dtype=text.dtype, device=text.device).reshape(1, -1)
        if self.start is None:
            return {"input_ids": torch.cat([text, more], 1)}
        return {"input_ids": text, "decoder_input_ids": torch.cat([text.new_full((1, 1), self.start), more], 1)}


def write(
    model: nn.Module,
    tokenizer: Any,
    prompt: str,
    continuation: str | Sequence[int] | None,
    max_new_tokens: int,
    device: torch.device,
    generate: dict[str, Any],
) -> Written:
    """Encode the prompt, and have the model continue it unless the continuation is given.

    Args:
        model: the language model.
        tokenizer: its tokenizer.
        prompt: the text.
        continuation: what follows, as text or as token ids; None to have the model write.
        max_new_tokens: how much of it.
        device: where ids go.
        generate: further options of the model's own ``generate``, and inputs of the model besides the prompt.
    """
    _check_generate(generate)
    encoded = encode(model, tokenizer, [prompt], device=device)
    config: Any = model.config
    both = bool(getattr(config, "is_encoder_decoder", False))
    encoded = encoded if both else _open(encoded, tokenizer)
    inputs = model_inputs(model, generate, encoded.ids, continued=not both)
    if not both:
        with naming_inputs(model, inputs):
            _check_causal(model, tokenizer, encoded.ids, inputs)
    start = _start(model, generate.get("decoder_start_token_id")) if both else None
    if continuation is not None:
        out = _continued(tokenizer, prompt, continuation, encoded, both)
    else:
        spare = {} if tokenizer.pad_token_id is not None else {"pad_token_id": tokenizer.eos_token_id}
        options = {"max_new_tokens": max_new_tokens, "do_sample": False, **spare, **generate, **inputs.tensors}
        check_length(model, tokenizer, encoded.ids.shape[1] + (0 if both else max_new_tokens - 1), "prompt and output")
        mask = {"attention_mask": torch.ones_like(encoded.ids)}
        with torch.no_grad(), naming_inputs(model, inputs):
            whole = model.generate(encoded.ids, **mask, **options)[0].tolist()  # type: ignore[operator]
        out = whole[1:] if both else whole[encoded.ids.shape[1] :]
    if not out:
        raise InputError("the model wrote nothing; expected at least one token. Raise max_new_tokens, or pass continuation=.")
    if not both:
        check_length(model, tokenizer, encoded.ids.shape[1] + len(out) - 1, "prompt and continuation")
    return Written(encoded, tuple(out), start, inputs)


def outputs(tokenizer: Any, written: Written) -> list[tuple[str, int]]:
    """The text of each output token; see :func:`decoded`."""
    return decoded(tokenizer, [] if written.start is not None else written.encoded.pieces[0].ids, written.out)


def inputs_of(tokenizer: Any, written: Written, last: int) -> Pieces:
    """All input tokens of the outputs up to ``last``, as one sequence."""
    one, marks = written.encoded.pieces[0], marker_ids(tokenizer)
    text, ids, names = one.text, list(one.ids), list(one.texts)
    special, spans = list(one.special), list(one.spans or ())
    if written.start is not None:
        ids.append(written.start)
        names.append(str(tokenizer.convert_ids_to_tokens([written.start])[0]))
        special.append(True)
        text += SEPARATOR
        spans.append((len(text), len(text)))
    before = 0
    for token, (piece, sign) in zip(written.out[:last], outputs(tokenizer, written), strict=False):
        mark, again = token in marks, sign == before
        here = len(text)
        text += "" if mark or again else piece
        ids.append(token)
        names.append(piece.strip() or piece or str(tokenizer.convert_ids_to_tokens([token])[0]))
        special.append(mark)
        spans.append((here, here) if mark else spans[-1] if again else trimmed(text, here, len(text)))
        before = sign
    parts = (*one.parts, *(-1 if mark else 1 for mark in special[len(one.ids) :]))
    known = None if one.spans is None else tuple(spans)
    return Pieces(tuple(names), known, text, tuple(special), parts, tuple(range(len(ids))), tuple(ids), one.notes)


def chosen_of(span: tuple[int, int] | str | None, found: Sequence[tuple[str, int]]) -> range:
    """The outputs to explain: all of them, a range by number, or those that a text names."""
    if span is None:
        return range(len(found))
    if isinstance(span, str):
        whole, places, before = "", [], 0
        for piece, sign in found:
            whole += "" if sign == before else piece
            places.append((len(whole) - len(piece), len(whole)))
            before = sign
        at = whole.find(span)
        if not span or at < 0:
            raise OptionError(f"got span={span!r}, which is not in the output {whole!r}; expected words of it.")
        inside = [i for i, (a, b) in enumerate(places) if b > at and a < at + len(span)]
        return range(inside[0], inside[-1] + 1)
    pair = isinstance(span, list | tuple) and len(span) == 2 and all(isinstance(end, int) for end in span)
    first, last = span if pair else (0, 0)
    if not 0 <= first < last <= len(found):
        raise OptionError(
            f"got span={span!r}; expected (first, end) with 0 <= first < end <= {len(found)}, the output's tokens."
        )
    return range(first, last)


@dataclass(frozen=True)
class _NextToken:
    """The score of the token that follows a position."""

    model: nn.Module
    score: Score

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        logits = output.logits
        return self.of(_at(logits, rows["position"]) if logits.shape[1] > 1 else logits[:, 0], rows)

    def of(self, logits: Tensor, rows: dict[str, Tensor]) -> Tensor:
        """The score of each row's token from logits (N, vocabulary)."""
        own = picked(logits, rows["token"], self.score)
        return own - picked(logits, rows["other"], self.score) if "other" in rows else own


@dataclass(frozen=True)
class _Narrow(TextRun):
    """A language model that computes the vocabulary's logits, most of its memory, at one position per row only."""

    head: nn.Module | None = field(default=None, kw_only=True)

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Any:
        length = ids.get("decoder_input_ids", ids["input_ids"]).shape[1]

        @of_this_thread
        def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            hidden = args[0] if args else None
            if not isinstance(hidden, Tensor) or hidden.ndim != 3 or hidden.shape[1] != length:
                return None
            return (_at(hidden, rows["position"])[:, None], *args[1:])

        handle = None if self.head is None else self.head.register_forward_pre_hook(before)
        try:
            return super().__call__(given=given, rows=rows, **ids)
        finally:
            if handle is not None:
                handle.remove()


@dataclass(frozen=True)
class _Body(TextRun):
    """A language model up to its head: all outputs share its forward pass, and the head runs once per output."""

    head: nn.Module = field(kw_only=True)

    def __call__(self, *, given: dict[str, Tensor], rows: dict[str, Tensor], **ids: Tensor) -> Tensor:
        found: list[Tensor] = []

        @of_this_thread
        def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            found.append(args[0])
            return (args[0][:, :1], *args[1:])

        handle = self.head.register_forward_pre_hook(before)
        try:
            super().__call__(given=given, rows=rows, **ids)
        finally:
            handle.remove()
        return found[-1]

    def reads(self, following: _NextToken, rows: dict[str, Tensor]) -> ReadOut:
        """The scores of the outputs, as a function of the hidden states that the head is given."""

        def read(hidden: Tensor, examples: Tensor) -> Tensor:
            mine = {name: value[examples.to(value.device)] for name, value in rows.items()}
            return following.of(self.head(_at(hidden, mine["position"])[:, None])[:, 0], mine)

        return ReadOut(read)


def _at(values: Tensor, position: Tensor) -> Tensor:
    """Each row's value at its position, from (N, T, ...) to (N, ...)."""
    return values[torch.arange(len(values), device=values.device), position.to(values.device)]


@dataclass(frozen=True)
class _FirstRun:
    """What one run of the model on the text as it is shows.

    Attributes:
        calls: where it looks tokens up.
        logits: those that follow the positions of the outputs, (outputs, vocabulary).
        body: the model up to its head; None where its logits are not exactly what the head returns.
    """

    calls: tuple[Looked, ...]
    logits: Tensor
    body: _Body | None


def _first_run(
    model: nn.Module, ids: dict[str, Tensor], given: dict[str, Tensor], inputs: ModelInputs, positions: Tensor
) -> _FirstRun:
    """Run the model once, with logits at some positions only: those of a long text would take more memory than all the rest."""
    head, fixed = model.get_output_embeddings(), fixed_of(model) | inputs.constants  # type: ignore[operator]
    given = given | inputs.along(ids["input_ids"].shape[1])
    length = ids.get("decoder_input_ids", ids["input_ids"]).shape[1]
    found: list[Tensor] = []

    @of_this_thread
    def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(args) != 1 or not isinstance(args[0], Tensor) or args[0].ndim != 3 or args[0].shape[1] != length:
            return None
        found.append(args[0][:, positions.to(args[0].device)])
        return (found[-1],)

    handle = head.register_forward_pre_hook(before) if isinstance(head, nn.Module) else None
    try:
        calls, output = look(model, lambda: model(**ids, **given, **fixed))
    except (IndexError, TypeError, RuntimeError) as error:
        if not found or out_of_memory(error):  # else the model cannot do with fewer logits
            raise
        output = None
    finally:
        if handle is not None:
            handle.remove()
    if output is None or len(found) != 1 or output.logits.shape[1] != len(positions):
        calls, output = look(model, lambda: model(**ids, **given, **fixed))
        logits = output.logits
        if inputs.names and logits.shape[1] != length:
            raise ModelError(
                f"{type(model).__name__} gives logits at {logits.shape[1]} places for {length} tokens with "
                f"{', '.join(inputs.names)}; expected one for each token of the text, with placeholders for an image in it. "
                "Explain it with integrand.integrated_gradients(model, ids, layer=...)."
            )
        return _FirstRun(calls, logits[0, positions.to(logits.device)], None)
    logits = output.logits[0]
    with torch.no_grad():
        again = head(found[0])[0]
    slack = 16 * torch.finfo(logits.dtype).eps * float(logits.abs().max())
    same = again.shape == logits.shape and bool(((again - logits).abs() <= slack).all())
    body = _Body(model, lambda output, _: output, fixed, frozenset(inputs.tensors), head=head) if same else None
    return _FirstRun(calls, logits, body)


def _block(
    model: nn.Module,
    tokenizer: Any,
    written: Written,
    block: range,
    names: Sequence[str],
    score: Score,
    other: int | None,
    baseline: Fill | list[Fill],
    tol: float,
    options: dict[str, Any],
) -> tuple[Values, Values, Certificate, list[float]]:
    """Explain some outputs in one batch: values and errors (outputs, inputs up to the last), certificates, probabilities."""
    ids = written.ids(block[-1] + 1)
    decoder = "decoder_input_ids" in ids
    given = dict(written.encoded.given) if decoder else {}
    start = 0 if decoder else written.source - 1
    positions = torch.tensor([start + i for i in block])
    inputs = written.inputs
    with naming_inputs(model, inputs):
        first = _first_run(model, ids, given, inputs, positions)
    slots = slots_of(first.calls, _known(tokenizer, written, ids))
    rows = {"position": positions, "token": torch.tensor([written.out[i] for i in block])}
    sure = picked(first.logits.double(), rows["token"], "probability").tolist()
    if other is not None:
        rows["other"] = torch.full_like(positions, other)
    count, following = len(block), _NextToken(model, score)
    body = first.body
    fixed, joined = fixed_of(model) | inputs.constants, frozenset(inputs.tensors)
    narrow = _Narrow(model, following, fixed, joined, head=model.get_output_embeddings())  # type: ignore[operator]
    versus = "" if other is None else f" against {tokenizer.decode([other])!r}"
    values, errors, certificate = integrate(
        body or narrow,
        {name: value.expand(count, -1) for name, value in ids.items()},
        slots,
        given={name: value.expand(count, -1) for name, value in given.items()}
        | inputs.by_row(ids["input_ids"].shape[1], count),
        rows={} if body else rows,
        fill=baseline,
        tokenizer=tokenizer,
        tol=tol,
        target=None if body is None else body.reads(following, rows),
        words=[f"{names[i]!r}{versus} ({score})" for i in block],
        options=options,
    )
    return values, errors, certificate, sure


def _known(tokenizer: Any, written: Written, ids: dict[str, Tensor]) -> list[Known]:
    """The token ids that the model is given, the mask of those kept in the baseline, and their first column in the result."""
    marks = torch.tensor(sorted(marker_ids(tokenizer)), device=ids["input_ids"].device)
    own = written.encoded.kept
    if "decoder_input_ids" not in ids:
        whole = ids["input_ids"]
        return [(whole, torch.cat([own, torch.isin(whole[:, own.shape[1] :], marks)], 1), 0)]
    prefix = ids["decoder_input_ids"]
    kept = torch.isin(prefix, marks)
    kept[:, 0] = True
    return [(ids["input_ids"], own, 0), (prefix, kept, own.shape[1])]


def _one_token(tokenizer: Any, word: str | int) -> int:
    if isinstance(word, int):
        return word
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise OptionError(
            f"got against={word!r}, which is {len(ids)} tokens; expected one token (many tokenizers want the blank before a "
            "word: ' bad'), or its id."
        )
    return int(ids[0])


def _check_generate(options: dict[str, Any]) -> None:
    """Refuse options of ``generate`` that would return several texts or an output of another form."""
    if options.get("num_return_sequences", 1) != 1:
        raise OptionError(
            f"got generate={{'num_return_sequences': {options['num_return_sequences']!r}}}; expected one text to explain. "
            "Write the others with model.generate, and pass each as continuation=."
        )
    for name in options:
        if name in ("max_new_tokens", *OWN) or (name.startswith("decoder_") and name != "decoder_start_token_id"):
            remedy = "Pass max_new_tokens= itself." if name == "max_new_tokens" else "It follows from the text: leave it out."
            raise OptionError(
                f"got {name!r} in generate=; expected options of model.generate, or inputs such as pixel_values. {remedy}"
            )


def _check_causal(model: nn.Module, tokenizer: Any, ids: Tensor, inputs: ModelInputs) -> None:
    """Refuse a model that looks ahead: another last token, or one more, must change nothing before it."""
    if inputs.names:  # the prompt stays whole: its placeholders belong to the other inputs
        longer = torch.cat([ids, ids.new_full((1, 1), tokenizer.eos_token_id or 0)], 1)
        places = torch.arange(max(0, ids.shape[1] - SOME), ids.shape[1])
        before = torch.stack([_first_run(model, {"input_ids": text}, {}, inputs, places).logits for text in (ids, longer)])
    else:
        some = (ids if ids.shape[1] > 1 else torch.cat([ids, ids], 1))[:, :SOME].repeat(2, 1)
        last = int(some[0, -1])
        some[1, -1] = last - 1 if last else 1
        with torch.no_grad():
            before = model(input_ids=some, **fixed_of(model)).logits[:, :-1]
    wide = before.to(torch.promote_types(before.dtype, torch.float32))
    allowed = torch.finfo(before.dtype).eps ** 0.5 * float(wide.abs().max())  # rounding; NaN is for the engine to report
    if float((wide[0] - wide[1]).abs().max()) > allowed:
        raise ModelError(
            f"{type(model).__name__} looks ahead: what it says at a place depends on later tokens, so that it does not write; "
            "expected a causal language model. Load it with is_decoder=True if it was trained so, or use another model."
        )


def _open(encoded: Encoded, tokenizer: Any) -> Encoded:
    """The encoded prompt without its end marker, so that it can be continued."""
    last = encoded.ids.shape[1] - 1
    ends = {getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "sep")}
    one = encoded.pieces[0]
    if not one.special[-1] or one.ids[-1] not in ends or last == 0:
        return encoded
    cut = replace(one, **{name: getattr(one, name)[:-1] for name in ("texts", "special", "parts", "columns", "ids")})
    cut = replace(cut, spans=None if one.spans is None else one.spans[:-1])
    given = {name: value[:, :last] for name, value in encoded.given.items()}
    return Encoded(encoded.ids[:, :last], given, encoded.kept[:, :last], (cut,))


def _start(model: nn.Module, requested: Any) -> int:
    """The token that the decoder starts from: the one that ``generate`` is given, else that of the model."""
    if isinstance(requested, int):
        return requested
    for source in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        for name in ("decoder_start_token_id", "bos_token_id"):
            found = getattr(source, name, None)
            if isinstance(found, int):
                return found
    raise ModelError(
        "the model does not say what its decoder starts from; expected config.decoder_start_token_id. Set it to the id of the "
        "start token (for T5 that of the padding)."
    )


def _continued(tokenizer: Any, prompt: str, continuation: str | Sequence[int], encoded: Encoded, both: bool) -> list[int]:
    """The token ids of a continuation, tokenized together with the prompt where that leaves the prompt's ids unchanged."""
    if not isinstance(continuation, str):
        return _checked_ids(tokenizer, continuation)
    check_texts([continuation], None)
    if both:
        return [int(i) for i in tokenizer(text_target=continuation)["input_ids"]]
    before = encoded.ids[0].tolist()
    whole = [int(i) for i in tokenizer(prompt + continuation)["input_ids"]]
    ends = {getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "sep")}
    if whole[-1] in ends and len(tokenizer(prompt)["input_ids"]) > len(before):
        whole = whole[:-1]
    if whole[: len(before)] == before and len(whole) > len(before):
        return whole[len(before) :]
    return [int(i) for i in tokenizer(continuation, add_special_tokens=False)["input_ids"]]


def _checked_ids(tokenizer: Any, ids: Any) -> list[int]:
    """A continuation that was given as token ids, such as a part of what ``model.generate`` returns, as a list."""
    found = ids.flatten().tolist() if isinstance(ids, Tensor | np.ndarray) else ids
    numbers = isinstance(found, Sequence) and all(isinstance(i, int) and not isinstance(i, bool) for i in found)
    if not numbers or not found or not all(0 <= i < len(tokenizer) for i in found):
        raise InputError(
            f"got continuation={found!r}; expected a text, or a list of token ids from 0 to {len(tokenizer) - 1}, at least one."
        )
    return [int(i) for i in found]
