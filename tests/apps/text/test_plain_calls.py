"""F(x) of every certificate is what the model itself says of the text, called plainly, with its image where it has one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

pytest.importorskip("transformers")

import transformers as hf

import integrand as ig
from integrand import text
from integrand.errors import ModelError, OptionError

from .tiny import NAMES, SMALL, answerer, classifier, seer, wordpiece, writer

pytestmark = pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")  # random weights have any score there

WORDS = ["The film was not bad at all.", "Good morning"]
SEERS = ("llava", "gemma3", "idefics3", "qwen2-vl")
ROUGH: dict[str, Any] = {"tol": 0.05, "baseline": "mean"}


def plain(model: Any, tokenizer: Any, *words: str) -> Any:
    """The model's own output for one text, or one pair."""
    with torch.no_grad():
        return model(**tokenizer(*words, return_tensors="pt"))


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "gpt2", "bart"])
def test_classes(kind: str) -> None:
    model, tokenizer = classifier(kind)
    logits = torch.cat([plain(model, tokenizer, words).logits for words in WORDS])
    each = {
        "probability": logits.softmax(1)[:, 2],
        "logit": logits[:, 2],
        "log-probability": logits.log_softmax(1)[:, 2],
    }
    for score, expected in each.items():
        found = text.explain(model, tokenizer, WORDS, target=2, score=score, **ROUGH)  # type: ignore[call-overload]
        assert [one.certificate.score for one in found] == pytest.approx(expected.tolist(), rel=1e-6)
    found = text.explain(model, tokenizer, WORDS, target=2, against=0, **ROUGH)
    assert [one.certificate.score for one in found] == pytest.approx((logits[:, 2] - logits[:, 0]).tolist(), rel=1e-6)


@pytest.mark.parametrize("outputs", ["regression", "multi_label_classification"])
def test_outputs_that_exclude_nothing(outputs: str) -> None:
    torch.manual_seed(1)
    labels = {"num_labels": 1} if outputs == "regression" else {"num_labels": 3, "id2label": NAMES}
    own: dict[str, Any] = {"vocab_size": len(wordpiece()), "initializer_range": 0.3, "problem_type": outputs, **SMALL, **labels}
    model = hf.BertForSequenceClassification(hf.BertConfig(**own)).double().eval()
    logits = plain(model, wordpiece(), WORDS[0]).logits[0, 0]
    found = text.explain(model, wordpiece(), WORDS[0], target=0, **ROUGH)
    expected = logits if outputs == "regression" else logits.sigmoid()
    assert found.certificate.score == pytest.approx(float(expected), rel=1e-6)


def test_answers() -> None:
    model, tokenizer = answerer()
    pair = ("where is the capital ?", "the capital of france is paris")
    output, ids = plain(model, tokenizer, *pair), tokenizer(*pair)["input_ids"]
    at = len(ids) - 1 - ids[::-1].index(tokenizer.convert_tokens_to_ids("the"))
    ends = [logits[0].softmax(0)[at] for logits in (output.start_logits, output.end_logits)]
    expected = {"start": ends[0], "end": ends[1], "span": ends[0] * ends[1]}
    for part, score in expected.items():
        found = text.explain(model, tokenizer, pair[0], context=pair[1], target="the", part=part, **ROUGH)  # type: ignore[call-overload]
        assert found.certificate.score == pytest.approx(float(score), rel=1e-6)


def test_similarities() -> None:
    model, tokenizer = classifier("bert")[0].bert, wordpiece()
    vectors = [plain(model, tokenizer, words).last_hidden_state.mean(1) for words in WORDS]
    expected = float(functional.cosine_similarity(*vectors))
    found = text.similarity(model, tokenizer, *WORDS, **ROUGH)
    assert [one.certificate.score for one in found] == pytest.approx([expected, expected], rel=1e-6)


def test_comparisons_and_inquiries() -> None:
    models = {kind: classifier(kind) for kind in ("bert", "roberta")}
    found = text.compare(WORDS[0], models, target=1, tol=0.05)
    for kind, (model, tokenizer) in models.items():
        logits = plain(model, tokenizer, WORDS[0]).logits[0]
        assert found.answers[kind][0].score == pytest.approx(float(logits.softmax(0)[1]), rel=1e-6)
        asked = text.inquiry(model, tokenizer, WORDS[0], target=1)
        result = ig.integrated_gradients(asked.model, asked.x, asked.baseline, tol=0.05, **asked.call)
        assert result.certificate[0].score == pytest.approx(float(logits[1]), rel=1e-6)


def says(model: Any, prefix: list[int], **given: Any) -> torch.Tensor:
    """The probabilities of the token that follows."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([prefix]), **given).logits[0, -1].softmax(0)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma"])
def test_generated_tokens(kind: str) -> None:
    model, tokenizer = writer(kind)
    found = text.generated(model, tokenizer, "The capital", max_new_tokens=3, **ROUGH)
    for row, reach in enumerate(found.reach):
        prefix = list(found.inputs.ids[:reach])
        assert found.certificate[row].score == pytest.approx(float(says(model, prefix).max()), rel=1e-6)


def test_the_first_token_of_a_decoder() -> None:
    model, tokenizer = writer("t5")
    for options, start in (({}, 1), ({"decoder_start_token_id": 7}, 7)):
        found = text.generated(model, tokenizer, "The capital", max_new_tokens=1, generate=options, **ROUGH)
        decoder = {"decoder_input_ids": torch.tensor([[start]])}
        expected = says(model, tokenizer("The capital")["input_ids"], **decoder).max()
        assert found.certificate[0].score == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("score", ["probability", "logit"])
@pytest.mark.parametrize("kind", SEERS)
def test_generated_tokens_of_a_model_that_sees(kind: str, score: Any) -> None:
    model, tokenizer, prompt, given = seer(kind)
    ids = tokenizer(prompt)["input_ids"]
    found = text.generated(model, tokenizer, prompt, continuation=[70, 71, 72], score=score, generate=given, **ROUGH)
    assert found.meta["same at the baseline"] == ", ".join(given)
    for row, token in enumerate([70, 71, 72]):
        prefix = [*ids, 70, 71, 72][: len(ids) + row]
        grown = {name: functional.pad(value, (0, row)) if "type" in name else value for name, value in given.items()}
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prefix]), **grown).logits[0, -1]
            blind = model(input_ids=torch.tensor([prefix])).logits[0, -1]
        expected, without = (float((one.softmax(0) if score == "probability" else one)[token]) for one in (logits, blind))
        assert found.certificate[row].score == pytest.approx(expected, rel=1e-6)
        assert expected != pytest.approx(without, rel=1e-2)


def test_a_model_that_sees_writes_what_is_explained() -> None:
    model, tokenizer, prompt, given = seer("llava")
    found = text.generated(model, tokenizer, prompt, max_new_tokens=2, generate=given | {"use_cache": False}, **ROUGH)
    for row, reach in enumerate(found.reach):
        best = says(model, list(found.inputs.ids[:reach]), **given).max()
        assert [found.certificate[row].score, found.probabilities[row]] == pytest.approx(2 * [float(best)], rel=1e-6)


def test_a_head_that_is_not_the_last_step_of_a_model_that_sees() -> None:
    """Each output then runs the whole model, image and all."""
    model, tokenizer, prompt, given = seer("llava")
    forward = model.forward

    def doubled(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = 2 * output.logits
        return output

    model.forward = doubled
    found = text.generated(model, tokenizer, prompt, continuation=[70, 71], generate=given, **ROUGH)
    expected = says(model, tokenizer(prompt)["input_ids"], **given)[70]
    assert found.certificate[0].score == pytest.approx(float(expected), rel=1e-6)


def test_two_images_in_half_precision() -> None:
    model, tokenizer, prompt, given = seer("llava")
    pixels = torch.cat([given["pixel_values"], 1 - given["pixel_values"]]).bfloat16()
    prompt = prompt + prompt
    seen = {"pixel_values": pixels}
    found = text.generated(model.bfloat16(), tokenizer, prompt, continuation=[70, 71], generate=seen, **ROUGH)
    expected = says(model.double(), tokenizer(prompt)["input_ids"], pixel_values=pixels.double())[70]
    assert found.certificate[0].score == pytest.approx(float(expected), rel=0.05)


def test_inputs_that_miss_others_are_named() -> None:
    model, tokenizer, prompt, given = seer("qwen2-vl")
    for name, lacks in (("pixel_values", "image_grid_thw"), ("image_grid_thw", "mm_token_type_ids")):
        with pytest.raises(ModelError, match=rf"fails on the prompt with {name} in generate=.*It also takes .*{lacks}"):
            text.generated(model, tokenizer, prompt, continuation=[70], generate={name: given[name]})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("position_ids", torch.arange(9)[None], "follows from the text"),
        ("image_sizes", [(16, 16)], "as a list; expected a tensor.*return_tensors='pt'"),
        ("boxes", torch.zeros(1, 9, dtype=torch.long), "a number for each of the prompt's 9 tokens.*Leave it out"),
    ],
)
def test_inputs_that_cannot_go_into_every_pass(name: str, value: Any, says: str) -> None:
    model, tokenizer, _, given = seer("llava")
    prompt = "ab" + 4 * "<image>" + "abc"
    with pytest.raises(OptionError, match=rf"got '{name}' in generate=.*{says}"):
        text.generated(model, tokenizer, prompt, continuation=[70], generate=given | {name: value})


def test_names_that_no_model_takes() -> None:
    model, tokenizer = writer("gpt2")
    model.forward = lambda input_ids=None, use_cache=None, return_dict=None: None
    with pytest.raises(OptionError, match=r"got 'top_kk' in generate=, .* Look for a typo"):
        text.generated(model, tokenizer, "The capital", continuation=" is", generate={"top_kk": 3})


def test_a_model_that_puts_the_image_before_the_text() -> None:
    """Its logits are at other places than the text's tokens."""
    torch.manual_seed(0)
    sight: dict[str, Any] = {"image_size": 16, "patch_size": 8, **SMALL}
    config = hf.GitConfig(vision_config=sight, vocab_size=len(wordpiece()), max_position_embeddings=64, **SMALL)
    model = hf.GitForCausalLM(config).eval()
    with pytest.raises(ModelError, match=r"GitForCausalLM gives logits at \d+ places for \d+ tokens with pixel_values"):
        text.generated(model, wordpiece(), "the film", continuation="bad", generate={"pixel_values": torch.randn(1, 3, 16, 16)})
