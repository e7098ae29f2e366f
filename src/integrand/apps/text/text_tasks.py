"""What can be asked of a Hugging Face model: why this class or answer, why these words, why these two are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from torch.nn import functional

from ...errors import ModelError, OptionError, TargetError
from ...functions.target import Score
from ...render.notebook import ResultList
from .encoding import check_model, check_options, check_texts, encode, listed, parameters_of
from .generation import attribute, chosen_of, outputs, write
from .heads import ClassLabels, ClassTarget, Cosine, Part, Pooled, Pooling, answers, asked_class, classes
from .result import Explained, Explanations, Generated
from .text_baselines import BASELINES, Fill, baseline_of, resolved
from .text_run import (
    TextQuestion,
    TextRun,
    device_of,
    first_look,
    fixed_of,
    question_of,
    rows_of,
)

if TYPE_CHECKING:
    from ...analysis.inquiry import Inquiry

Baseline = Fill | Sequence[Fill]

BLOCK = 32
"""The number of texts that are padded to one length and explained in one batch."""


@overload
def explain(
    model: Any,
    tokenizer: Any,
    text: str,
    *,
    context: str | None = None,
    target: ClassTarget = None,
    against: int | str | None = None,
    part: Part = "span",
    score: Score | None = None,
    baseline: Baseline = "zero",
    tol: float = 0.01,
    **options: Any,
) -> Explained: ...
@overload
def explain(
    model: Any,
    tokenizer: Any,
    text: Sequence[str],
    *,
    context: Sequence[str] | str | None = None,
    target: ClassTarget = None,
    against: int | str | None = None,
    part: Part = "span",
    score: Score | None = None,
    baseline: Baseline = "zero",
    tol: float = 0.01,
    **options: Any,
) -> Explanations: ...
def explain(
    model: Any,
    tokenizer: Any,
    text: str | Sequence[str],
    *,
    context: str | Sequence[str] | None = None,
    target: ClassTarget = None,
    against: int | str | None = None,
    part: Part = "span",
    score: Score | None = None,
    baseline: Baseline = "zero",
    tol: float = 0.01,
    **options: Any,
) -> Explained | Explanations:
    """Find which words made a sequence classifier, or a question-answering model, say what it says.

    Args:
        model: a Hugging Face model in eval mode with a classification or question-answering head, in any precision, on any
            device.
        tokenizer: its tokenizer.
        text: one text, or several, which are padded and explained side by side.
        context: the second text of each pair: where the answer to a question is, or a hypothesis to a premise.
        target: the class, by number or by name as in ``config.id2label``, one for all texts or one for each; or a function
            from the model's output to one score per text. None means the top class. For questions, the answer as it
            stands in the context; None means the best one.
        against: explain the difference to this class instead: what speaks for the target rather than for it.
        part: for questions, whether the answer's start, its end or both are explained.
        score: ``probability`` by default (``logit`` for regressions and differences), or ``log-probability``. Of an
            answer's both ends, probabilities are multiplied and the others added.
        baseline: what words are replaced with where the path starts: another text (``"The capital of Italy is"``), laid beside
            this one token by token, so that only what differs gets an attribution; ``zero``, ``pad``, ``mask``, ``eos``,
            ``mean`` (of the whole vocabulary), a token id, an embedding of shape (D,), a function from embeddings (N, T, D)
            and ids (N, T) to embeddings; or a list of these, over which the result is averaged. Markers and padding are kept.
        tol: the relative error of the tokens' attributions to integrate to, for each text.
        **options: ``steps``, ``rule``, ``max_evaluations``, ``memory``, ``chunk``, ``precision``, ``progress``, as in
            :func:`integrand.integrated_gradients`.

    Returns:
        One explained text, or several.
    """
    check_model(model)
    check_options(options)
    texts = listed(text)
    pairs = [context] * len(texts) if isinstance(context, str) else None if context is None else listed(context, "context")
    # Without a mask, padding would mix with the words: such models get one text at a time.
    most = BLOCK if "attention_mask" in parameters_of(model) else 1
    if len(texts) > most:
        same: dict[str, Any] = {"against": against, "part": part, "score": score, "baseline": baseline, "tol": tol, **options}
        return _in_blocks(model, tokenizer, texts, pairs, target, most, same)
    encoded = encode(model, tokenizer, texts, pairs, device=device_of(model))
    slots, output = first_look(model, encoded)
    found = rows_of(output, len(texts))
    start = resolved(baseline, model, tokenizer, encoded.pieces)
    ask = TextQuestion(model, tokenizer, encoded, slots, start, tol, options)
    if "start_logits" in found and "end_logits" in found:
        if against is not None:
            raise OptionError("got against= for a model that answers questions; expected target= and part= only.")
        each = answers(ask, found, target=target, part=part, score=score)
    else:
        logits = found.get("logits", found.get("0"))
        if logits is None or logits.ndim != 2:
            shape = "nothing called logits" if logits is None else f"logits of shape {tuple(logits.shape)}"
            raise ModelError(
                f"{type(model).__name__} gives {shape}; expected one row of classes per text, or the start and end of an "
                "answer. For language models use text.generated, for encoders text.similarity."
            )
        if part != "span":
            raise OptionError(f"got part={part!r} for a model that gives no answers; expected it for question answering only.")
        each = classes(ask, logits, target=target, against=against, score=score)
    return each[0] if isinstance(text, str) else Explanations(each)


def inquiry(model: Any, tokenizer: Any, text: str, *, target: int | str | None = None) -> Inquiry:
    """What is asked of a classifier about a text, for other methods and baselines: the logit of a class, token by token.

    Args:
        model: a sequence classifier of Hugging Face in eval mode.
        tokenizer: its tokenizer.
        text: the text.
        target: the class, by number or name; None for the top one.
    """
    from ...analysis.inquiry import Inquiry

    check_model(model)
    encoded = encode(model, tokenizer, [text], None, device=device_of(model))
    slots, output = first_look(model, encoded)
    logits = rows_of(output, 1).get("logits")
    if logits is None or logits.ndim != 2:
        raise ModelError(f"{type(model).__name__} gives no classes; expected a sequence classifier.")
    asked = asked_class(model, logits, target, None, "logit")
    given = question_of(TextRun(model, asked.pick, fixed_of(model)), slots, given=encoded.given, rows=asked.rows)
    starts: dict[str, Any] = {}
    for name in BASELINES:
        try:
            starts[name] = baseline_of(slots, name, tokenizer)
        except OptionError:
            continue  # the tokenizer has no such token
    return Inquiry(
        given.pop("model"),
        {"input_ids": encoded.ids},
        starts["zero"],
        given | {"target": asked.goal},
        asked.labels[0],
        features=encoded.pieces[0].texts,
        candidates=starts,
        classes=lambda index: ClassLabels.of(model, logits.shape[1]).names[index],
    )


def _in_blocks(
    model: Any, tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, target: Any, most: int, how: dict[str, Any]
) -> Explanations:
    """Explain texts in batches of similar length; the results come in the order of the texts."""
    check_texts(texts, pairs)
    aims = list(target) if isinstance(target, list | tuple) else [target] * len(texts)
    if len(aims) != len(texts):
        raise TargetError(f"got {len(aims)} targets for {len(texts)} texts; expected one for all or one for each.")
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]) + len(pairs[i] if pairs else ""))
    found: dict[int, Explained] = {}
    for start in range(0, len(order), most):
        block = order[start : start + most]
        contexts = None if pairs is None else [pairs[i] for i in block]
        aim = target if target is None or callable(target) else [aims[i] for i in block]
        each = explain(model, tokenizer, [texts[i] for i in block], context=contexts, target=aim, **how)
        found |= dict(zip(block, each, strict=True))
    return Explanations(tuple(found[i] for i in range(len(texts))))


@overload
def generated(
    model: Any,
    tokenizer: Any,
    prompt: str,
    *,
    continuation: str | Sequence[int] | None = None,
    max_new_tokens: int = 20,
    span: tuple[int, int] | str | None = None,
    against: str | int | None = None,
    score: Score = "probability",
    baseline: Baseline = "zero",
    tol: float = 0.01,
    generate: dict[str, Any] | None = None,
    **options: Any,
) -> Generated: ...
@overload
def generated(
    model: Any,
    tokenizer: Any,
    prompt: Sequence[str],
    *,
    continuation: str | Sequence[int] | None = None,
    max_new_tokens: int = 20,
    span: tuple[int, int] | str | None = None,
    against: str | int | None = None,
    score: Score = "probability",
    baseline: Baseline = "zero",
    tol: float = 0.01,
    generate: dict[str, Any] | None = None,
    **options: Any,
) -> list[Generated]: ...
def generated(
    model: Any,
    tokenizer: Any,
    prompt: str | Sequence[str],
    *,
    continuation: str | Sequence[int] | None = None,
    max_new_tokens: int = 20,
    span: tuple[int, int] | str | None = None,
    against: str | int | None = None,
    score: Score = "probability",
    baseline: Baseline = "zero",
    tol: float = 0.01,
    generate: dict[str, Any] | None = None,
    **options: Any,
) -> Generated | list[Generated]:
    """Find which words of the prompt, and of the text generated so far, made a model write each token.

    Args:
        model: a Hugging Face causal language model, or an encoder-decoder, in eval mode.
        tokenizer: its tokenizer.
        prompt: the text to go on from (for an encoder-decoder, the encoder's text); or several, one after the other.
        continuation: what follows, as text or as token ids; the model writes it if not given, always the most likely token
            unless ``generate`` says otherwise.
        max_new_tokens: how many tokens it may write.
        span: explain only these outputs: (first, end) by number, or words of the output. All by default.
        against: a token (' bad', or its id): explain why each output came rather than this one.
        score: the scale of each output's score.
        baseline: as in :func:`explain`.
        tol: the relative error of each output's attributions to integrate to.
        generate: further options of ``model.generate``. Inputs of the model besides the text, such as ``pixel_values``, go
            into every forward pass; they are the same at the baseline and get no attribution.
        **options: as in :func:`explain`.

    Returns:
        A matrix of outputs by inputs, each row with its certificate; a list of them for several prompts.
    """
    if not isinstance(prompt, str):
        same: dict[str, Any] = {"max_new_tokens": max_new_tokens, "span": span, "against": against, "score": score}
        same |= {"continuation": continuation, "baseline": baseline, "tol": tol, "generate": generate, **options}
        return ResultList(generated(model, tokenizer, one, **same) for one in listed(prompt, "prompt"))
    check_model(model)
    check_options(options)
    if not callable(getattr(model, "generate", None)) or model.get_output_embeddings() is None:
        raise ModelError(
            f"got a {type(model).__name__}, which does not write; expected a language model. Load it with AutoModelForCausalLM "
            "or AutoModelForSeq2SeqLM; explain classifiers with text.explain."
        )
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise OptionError(f"got max_new_tokens={max_new_tokens!r}; expected a whole number from 1 on.")
    written = write(model, tokenizer, prompt, continuation, max_new_tokens, device_of(model), dict(generate or {}))
    chosen = chosen_of(span, outputs(tokenizer, written))
    start = resolved(baseline, model, tokenizer, written.encoded.pieces)
    how: dict[str, Any] = {"score": score, "against": against, "baseline": start, "tol": tol, "options": options}
    return attribute(model, tokenizer, written, chosen, **how)


def similarity(
    model: Any,
    tokenizer: Any,
    first: str,
    second: str,
    *,
    pooling: Pooling = "mean",
    baseline: Baseline = "zero",
    tol: float = 0.01,
    **options: Any,
) -> Explanations:
    """Find which words of two sentences make them similar, by the cosine of the sentences' vectors.

    Each sentence is explained while the other stays as it is, since two baselines are as similar as can be: the words of the
    first add up to cos(first, second) - cos(its baseline, second), and the other way round.

    Args:
        model: an encoder in eval mode (``AutoModel``).
        tokenizer: its tokenizer.
        first: a sentence.
        second: another one.
        pooling: how a sentence's vector is made of its tokens': their ``mean``, the ``first`` one ([CLS]), the ``last`` one,
            the ``max``, or a function of the model's output and the mask.
        baseline: as in :func:`explain`.
        tol: the relative error to integrate to.
        **options: as in :func:`explain`.

    Returns:
        The two sentences.
    """
    check_model(model)
    check_options(options)
    pooled = Pooled(pooling)
    encoded = encode(model, tokenizer, [first, second], device=device_of(model))
    slots, output = first_look(model, encoded)
    vectors = pooled(output, encoded.mask).detach()
    label = f"similarity {float(functional.cosine_similarity(vectors[0], vectors[1], dim=0)):.2f}"
    start = resolved(baseline, model, tokenizer, encoded.pieces)
    both = TextQuestion(model, tokenizer, encoded, slots, start, tol, options).explained(
        Cosine(pooled),
        rows={"mask": encoded.mask, "other": vectors.flip(0)},
        labels=[label, label],
        words=[f"similarity to {other!r} (cosine)" for other in (second, first)],
        meta={"pooling": str(pooling), "score": "cosine"},
    )
    return Explanations(both)
