"""Question answering: start, end and span of an answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from integrand import text
from integrand.errors import OptionError, TargetError

from .tiny import answerer, by_hand

QUESTION, CONTEXT = "Where is the capital?", "The capital is good, not bad."
ANSWER = "good, not"


@pytest.mark.parametrize(
    ("part", "score"),
    [("start", "logit"), ("end", "probability"), ("span", "logit"), ("span", "probability"), ("span", "log-probability")],
)
def test_equals_the_loop(part, score):
    model, tokenizer = answerer()
    one = text.explain(model, tokenizer, QUESTION, context=CONTEXT, target=ANSWER, part=part, score=score, tol=1e-5)
    found = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    names = tokenizer.convert_ids_to_tokens(found["input_ids"][0].tolist())
    first, last = names.index("good"), names.index("not")
    end = model.get_input_embeddings()(found["input_ids"]).detach()
    begin = torch.where(torch.isin(found["input_ids"], torch.tensor([2, 3]))[..., None], end, 0)

    def run(points):
        out = model(inputs_embeds=points[0], token_type_ids=found["token_type_ids"].expand(len(points[0]), -1))
        scaled = {"logit": lambda x: x, "probability": lambda x: x.softmax(1), "log-probability": lambda x: x.log_softmax(1)}
        a, b = scaled[score](out.start_logits)[:, first], scaled[score](out.end_logits)[:, last]
        return {"start": a, "end": b, "span": a * b if score == "probability" else a + b}[part]

    expected = by_hand(run, [end], [begin])[0].numpy()
    assert np.abs(one.values - expected).sum() <= 2e-5 * np.abs(expected).sum()
    assert one.label == ANSWER
    assert one.certificate.target == f"{part} of {ANSWER!r} ({score})"


def test_padded_batches_equal_single_questions():
    model, tokenizer = answerer()
    questions, contexts = [QUESTION, "Good?"], [CONTEXT, "The film was bad."]
    batch = text.explain(model, tokenizer, questions, context=contexts, tol=1e-5)
    for i, one in enumerate(batch):
        alone = text.explain(model, tokenizer, questions[i], context=contexts[i], tol=1e-5)
        np.testing.assert_allclose(alone.values, one.values, atol=3e-5 * np.abs(one.values).sum())
        assert (one.label, one.probability) == (alone.label, pytest.approx(alone.probability))


def test_the_best_answer_lies_in_the_context():
    model, tokenizer = answerer()
    one = text.explain(model, tokenizer, QUESTION, context=CONTEXT)
    assert one.label in CONTEXT
    with torch.no_grad():
        out = model(**tokenizer(QUESTION, CONTEXT, return_tensors="pt"))
    inside = [i for i, part in enumerate(one.parts) if part == 1]
    sums = [(out.start_logits[0, a] + out.end_logits[0, b], a, b) for a in inside for b in inside if a <= b]
    _, a, b = max(sums)
    assert one.probability == pytest.approx(float(out.start_logits[0].softmax(0)[a] * out.end_logits[0].softmax(0)[b]))
    assert one.certificate.score == pytest.approx(one.probability)


def test_mistakes():
    model, tokenizer = answerer()
    with pytest.raises(OptionError, match="got part='middle'; expected one of 'start', 'end', 'span'"):
        text.explain(model, tokenizer, QUESTION, context=CONTEXT, part="middle")
    with pytest.raises(TargetError, match="got the answer 'Rome', which is not in the context"):
        text.explain(model, tokenizer, QUESTION, context=CONTEXT, target="Rome")
    with pytest.raises(OptionError, match="got against= for a model that answers questions"):
        text.explain(model, tokenizer, QUESTION, context=CONTEXT, against=1)
