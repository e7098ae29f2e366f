"""Language models and encoder-decoders: every output token attributed to what comes before it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import transformers as hf

from integrand import text
from integrand.apps.text import generation as _generate
from integrand.errors import InputError, OptionError

from .tiny import SMALL, by_hand, bytes_bpe, writer

PROMPT, GOES_ON = "The capital of", " is not bad and"
SCALES = {"logit": lambda x: x, "probability": lambda x: x.softmax(-1), "log-probability": lambda x: x.log_softmax(-1)}


def reference(model, ids, position, token, score):
    """By hand, from zero embeddings, for a language model whose embedding may scale."""
    end = model.get_input_embeddings()(ids).detach()
    run = lambda points: SCALES[score](model(inputs_embeds=points[0]).logits[:, position])[:, token]  # noqa: E731
    return by_hand(run, [end], [torch.zeros_like(end)])[0].numpy()


@pytest.mark.parametrize(("kind", "score"), [("gpt2", "probability"), ("llama", "logit"), ("gemma", "log-probability")])
def test_rows_equal_the_loop(kind, score):
    model, tokenizer = writer(kind)
    found = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, score=score, tol=1e-5)
    prompt, whole = (tokenizer(words, return_tensors="pt")["input_ids"] for words in (PROMPT, PROMPT + GOES_ON))
    count = whole.shape[1] - prompt.shape[1]
    assert found.values.shape == (count, whole.shape[1] - 1)
    assert found.prompt == prompt.shape[1]
    for i in range(count):
        position = prompt.shape[1] + i - 1
        expected = reference(model, whole[:, :-1], position, int(whole[0, position + 1]), score)
        assert np.abs(found.values[i] - expected).sum() <= 2e-5 * np.abs(expected).sum()
        assert not found.values[i, position + 1 :].any()
        rise = found.certificate[i].score - found.certificate[i].baseline_score
        assert found.values[i].sum() == pytest.approx(rise, abs=2e-5 * np.abs(expected).sum())
        assert found[i].values == pytest.approx(found.values[i, : position + 1])
    np.testing.assert_allclose(found.shares().sum(1), found.values.sum(1), atol=1e-12)


@pytest.mark.parametrize("kind", ["gpt2", "gemma"])
def test_outputs_share_forward_passes(kind):
    """One row of the model's body for each point on the path, however many outputs there are."""
    model, tokenizer = writer(kind)
    rows: list[int] = []
    handle = model.base_model.register_forward_hook(
        lambda _, __, output: rows.append(len(output[0]) if torch.is_grad_enabled() else 0)
    )
    try:
        found = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, tol=0.05)
    finally:
        handle.remove()
    gradients = [one.gradients for one in found.certificate]
    assert len(gradients) > 3
    assert sum(rows) < 0.6 * sum(gradients)


def test_a_head_that_is_not_the_last_step():
    """Where the model does something to its logits after the head, each output runs the whole model."""
    model, tokenizer = writer("gpt2")
    plain, scale = model.forward, 0.5

    def forward(*args, **kwargs):
        output = plain(*args, **kwargs)
        output.logits = output.logits * scale
        return output

    expected = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, score="logit", tol=1e-4)
    model.forward = forward
    found = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, score="logit", tol=1e-4)
    del model.forward
    np.testing.assert_allclose(found.values, scale * expected.values, atol=1e-3 * np.abs(expected.values).max())


def test_what_the_model_writes_itself(monkeypatch):
    monkeypatch.setattr(_generate, "BLOCK", 2)  # five outputs in three parts
    model, tokenizer = writer("llama")
    found = text.generated(model, tokenizer, PROMPT, max_new_tokens=5, tol=1e-4, generate={"min_new_tokens": 5})
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        for i in range(5):  # greedy, without model.generate
            logits = model(ids).logits[0, -1].clone()
            assert found.certificate[i].score == pytest.approx(float(logits.softmax(0).max()), rel=1e-6)
            assert found.probabilities[i] == pytest.approx(float(logits.softmax(0).max()), rel=1e-6)
            ids = torch.cat([ids, logits.argmax()[None, None]], 1)
    assert found.inputs.ids == tuple(ids[0, :-1].tolist())
    some = text.generated(model, tokenizer, PROMPT, max_new_tokens=5, tol=1e-4, generate={"min_new_tokens": 5}, span=(2, 4))
    np.testing.assert_allclose(some.values, found.values[2:4, : some.values.shape[1]], atol=2e-4 * np.abs(found.values).max())


def test_words_of_the_output():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, PROMPT, continuation=GOES_ON, span="not bad")
    assert found.outputs == (" not", " bad")
    assert found[0].label == "not"
    assert found[1].tokens[-2:] == ("is", "not")
    assert "".join(found[1].line.text) == "The capital of is not"


def test_one_token_rather_than_another():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, PROMPT, continuation=" bad", against=" film", score="logit", tol=1e-5)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    bad, film = (tokenizer(word)["input_ids"][0] for word in (" bad", " film"))
    end = model.get_input_embeddings()(ids).detach()

    def run(points):
        logits = model(inputs_embeds=points[0]).logits[:, -1]
        return logits[:, bad] - logits[:, film]

    expected = by_hand(run, [end], [torch.zeros_like(end)])[0].numpy()
    assert np.abs(found.values[0] - expected).sum() <= 2e-5 * np.abs(expected).sum()
    with pytest.raises(OptionError, match=r"got against='terrible', which is \d+ tokens; expected one token"):
        text.generated(model, tokenizer, PROMPT, continuation=" bad", against="terrible")


def test_rows_say_what_they_are_compared_with():
    found = text.generated(*writer("gpt2"), PROMPT, continuation=" capital", against=" bad")
    assert [line.label for line in found.lines] == ["capital against bad"]
    assert found.words()[0].label == "capital against bad"
    assert found.title == f"{PROMPT} → capital (against bad)"  # over the heatmap, whose scores are differences
    assert found.lines[0].probability is None  # of neither: the score is a difference
    assert "against" not in text.generated(*writer("gpt2"), PROMPT, continuation=" capital")[0].label


def test_zero_embeddings_and_norms_without_a_marker():
    torch.manual_seed(3)
    own = {"num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "initializer_range": 0.3}
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=320, **own, **SMALL)).eval()
    given: dict[str, Any] = {"continuation": " is not"}
    found = text.generated(model, bytes_bpe("gpt2"), PROMPT, **given)
    assert found.certificate.converged
    exact = text.generated(model.double(), bytes_bpe("gpt2"), PROMPT, tol=1e-4, **given)
    assert exact.certificate.converged
    assert np.abs(found.values - exact.values).sum() <= 0.01 * np.abs(exact.values).sum()


def test_encoder_and_decoder_prefix():
    model, tokenizer = writer("t5")
    found = text.generated(model, tokenizer, "The film", continuation="not bad", tol=1e-5)
    source = tokenizer("The film", return_tensors="pt")["input_ids"]
    out = tokenizer("not bad")["input_ids"]
    assert found.values.shape == (len(out), source.shape[1] + len(out))
    prefix = torch.tensor([[1, *out[:-1]]])
    ends = [model.get_input_embeddings()(ids).detach() for ids in (source, prefix)]
    kept = [torch.isin(ids, torch.tensor([1, 2]))[..., None] for ids in (source, prefix)]
    starts = [torch.where(keep, end, 0) for keep, end in zip(kept, ends, strict=True)]
    for i in (0, 1, len(out) - 1):
        run = lambda points, i=i: (  # noqa: E731
            model(inputs_embeds=points[0], decoder_inputs_embeds=points[1]).logits[:, i].softmax(1)[:, out[i]]
        )
        expected = torch.cat(by_hand(run, ends, starts)).numpy()
        assert np.abs(found.values[i] - expected).sum() <= 3e-5 * np.abs(expected).sum()
        assert not found.values[i, source.shape[1] + 1 + i :].any()
    assert not found.values[:, list(found.inputs.special)].any()
    assert found.values[-1, source.shape[1] + 1 :].all()  # the prefix counts
    own = text.generated(model, tokenizer, "The film", max_new_tokens=3)
    assert 1 <= len(own) <= 3


def test_outputs_are_joined_to_words_too():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, PROMPT, continuation=" not un日本", tol=0.05)
    assert found.outputs == (" not", " ", "u", "n", *["日"] * 3, *["本"] * 3)
    assert "".join(found.spelled) == " not un日本"
    words = found.words()
    assert [name.strip() for name in words.outputs] == ["not", "un日本"]
    np.testing.assert_allclose(words.values.sum(1), [found.values[0].sum(), found.values[1:].sum()], atol=1e-12)
    both = words.certificate[1]
    assert both.score == pytest.approx(sum(one.score for one in found.certificate.examples[1:]))
    assert words.probabilities[1] == pytest.approx(np.prod(found.probabilities[1:]))
    assert words[1].tokens[-1].startswith("un")  # its own column: what the later pieces owe to the first
    assert np.abs(words.values[1].sum() - (both.score - both.baseline_score)) <= both.error * both.magnitude
    begun = text.generated(model, tokenizer, PROMPT, continuation=" not un日本", tol=0.05, span=(3, 10)).words()
    assert begun.tokens[-2].strip() == "u"  # a word that was begun before what is explained stays apart
    assert len(begun) == 1


def test_a_heatmap_of_outputs_by_inputs(tmp_path):
    model, tokenizer = writer("t5")
    found = text.generated(model, tokenizer, "The film", continuation="not bad", tol=0.05).words()
    grid = found.grid()
    assert [block.columns for block in grid.blocks] == [("The", "film"), ("not", "bad")]
    assert grid.blocks[1].there.tolist() == [[True, False], [True, False], [True, True]]  # "not" has three pieces
    rows = sum(block.values.sum(1) for block in grid.blocks)  # markers, which are left out, add exactly nothing
    np.testing.assert_allclose(rows, found.values.sum(1), atol=1e-12)
    page = found.save(tmp_path / "a.html", command="integrand text '<b>'").read_text(encoding="utf-8")
    assert "the output so far" in page
    assert "<b>" not in page.replace("<b>[", "")
    pytest.importorskip("matplotlib")
    assert found.save(tmp_path / "a.png").stat().st_size > 1000
    assert found.figure(title="x").axes


@pytest.mark.parametrize(
    "options", [{"num_return_sequences": 3, "do_sample": True}, {"return_dict_in_generate": True}, {"max_new_tokens": 3}]
)
def test_options_that_would_be_lost(options):
    with pytest.raises(OptionError, match=r"got .*generate.*; expected"):
        text.generated(*writer("gpt2"), PROMPT, generate=options)


def test_words_keep_the_sums():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, "Good morning, ladies", continuation=GOES_ON, span=(1, 3))
    words = found.words()
    assert words.tokens[:4] == ("Good", "morning", ",", "ladies")
    np.testing.assert_allclose(words.values.sum(1), found.values.sum(1), atol=1e-12)
    np.testing.assert_allclose(words.shares(), found.shares(), atol=1e-12)
    assert words[0].values.sum() == pytest.approx(found[0].values.sum())
    assert words[1].tokens[-1] == "not"


def test_signs_of_several_tokens_are_shown_whole():
    model, tokenizer = writer("gpt2")
    found = text.generated(model, tokenizer, "bad", continuation=" \U0001f600 film", span=" film", tol=0.05)
    assert found[0].line.text == "bad \U0001f600"
    assert [piece.shown for piece in found[0].line.pieces][-1] == "\U0001f600"
    assert sum(piece.value for piece in found[0].line.pieces) == pytest.approx(found.values[0].sum())


def test_only_one_position_meets_the_vocabulary():
    model, tokenizer = writer("gpt2")
    seen = []
    handle = model.lm_head.register_forward_hook(lambda module, args, out: seen.append(out.shape[1]))
    text.generated(model, tokenizer, PROMPT, continuation=GOES_ON)
    handle.remove()
    assert seen.count(1) > len(seen) / 2


def test_other_threads_may_run_the_model_meanwhile():
    """Hooks on the embeddings and the head belong to the thread that explains: a bystander gets its own outputs."""
    model, tokenizer = writer("gpt2")
    ids = torch.tensor([tokenizer("The capital of France is Paris").input_ids])
    with torch.no_grad():
        alone = model(ids).logits
    over, seen, wrong = threading.Event(), [], []

    def bystander() -> None:
        while not over.is_set():
            with torch.no_grad():
                seen.append(1)
                wrong.extend([] if torch.equal(model(ids).logits, alone) else [1])

    other = threading.Thread(target=bystander)
    other.start()
    try:
        found = [text.generated(model, tokenizer, "The capital of", continuation=" France is", tol=0.1) for _ in range(3)]
    finally:
        over.set()
        other.join()
    again = text.generated(model, tokenizer, "The capital of", continuation=" France is", tol=0.1)
    assert seen
    assert not wrong
    assert all(np.array_equal(one.values, again.values) for one in found)


@pytest.mark.filterwarnings("ignore::integrand.errors.ConvergenceWarning")
def test_half_precision_is_within_its_noise():
    model, tokenizer = writer("gpt2")
    half = text.generated(model.bfloat16(), tokenizer, PROMPT, continuation=GOES_ON, score="logit")
    full = text.generated(model.bfloat16().float(), tokenizer, PROMPT, continuation=GOES_ON, score="logit", tol=1e-3)
    off = np.abs(half.values - full.values).sum(1) / np.abs(full.values).sum(1)
    assert all(off <= [one.error + 1e-3 for one in half.certificate])


def test_mistakes():
    model, tokenizer = writer("gpt2")
    with pytest.raises(OptionError, match=r"got span=\(3, 9\); expected \(first, end\)"):
        text.generated(model, tokenizer, PROMPT, continuation=" is", span=(3, 9))
    with pytest.raises(OptionError, match="got span='Rome', which is not in the output ' is'"):
        text.generated(model, tokenizer, PROMPT, continuation=" is", span="Rome")
    with pytest.raises(InputError, match=r"prompt and output has \d+ tokens; expected at most 64"):
        text.generated(model, tokenizer, PROMPT, max_new_tokens=100)
    with pytest.raises(OptionError, match="got max_new_tokens=0"):
        text.generated(model, tokenizer, PROMPT, max_new_tokens=0)
