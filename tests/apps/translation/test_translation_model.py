"""The translator: what it says, and that teacher forcing, batches and search agree with doing it by hand."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch import Tensor

from integrand.apps.translation.seq2seq import END, START, WEIGHTS, Seq2Seq, load, load_pieces, search
from integrand.errors import FileError
from integrand.loading import shipped

GREETINGS = {f"Guten Morgen{comma} {mine}Damen und Herren" for comma in (",", "", "!") for mine in ("meine ", "Meine ")}
SAID = {
    "I love my dog.": {"Ich liebe meinen Hund."},
    "i love my dog": {"Ich liebe meinen Hund."},
    "Where is the train station?": {"Wo ist der Bahnhof?"},
    "where is the train station": {"Wo ist der Bahnhof?"},
    "My sister has two cats.": {"Meine Schwester hat zwei Katzen."},
    "The book is on the table.": {f"Das Buch {is_} auf dem Tisch." for is_ in ("ist", "liegt", "steht")},
    "The weather is nice today and the children play in the garden.": {
        "Das Wetter ist heute schön und die Kinder spielen im Garten.",
        "Das Wetter ist schön heute und die Kinder spielen im Garten.",
        "Heute ist das Wetter schön und die Kinder spielen im Garten.",
    },
}


@pytest.fixture(scope="module")
def translator():
    pytest.importorskip("safetensors")
    pytest.importorskip("tokenizers")
    return load(), load_pieces()


@pytest.fixture
def tiny() -> Seq2Seq:
    torch.manual_seed(1)
    model = Seq2Seq(vocabulary=7, embedding=6, hidden=8).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    return torch.tensor([row + [0] * (int(lengths.max()) - len(row)) for row in rows]), lengths


def say(translator, texts, **options) -> list[str]:
    model, pieces = translator
    return [pieces.decode(row) for row in search(model, *padded([pieces.encode(text).ids for text in texts]), **options)]


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("text", ["good morning ladies and gentlemen", "Good morning, ladies and gentlemen!"])
def test_the_greeting_of_the_paper_is_correct_german(translator, text, beam):
    [said] = say(translator, [text], beam=beam)
    assert re.sub(r"[.!]$", "", said) in GREETINGS


def test_everyday_sentences_with_and_without_capitals_and_punctuation(translator):
    wrong = {text: said for text, said in zip(SAID, say(translator, list(SAID)), strict=True) if said not in SAID[text]}
    assert not wrong


def test_a_sentence_is_translated_alike_alone_in_a_batch_and_again(translator):
    texts = list(SAID)
    together = say(translator, texts)
    assert together == [say(translator, [text])[0] for text in texts]
    assert together == say(translator, texts)


def test_teacher_forcing_gives_the_probability_that_decoding_step_by_step_gives(translator):
    model, pieces = translator
    source = torch.tensor([pieces.encode("good morning ladies and gentlemen").ids])
    [said] = search(model, source, beam=1)
    target = torch.tensor([[START, *said, END]])
    with torch.no_grad():
        forced = model(source, target[:, :-1]).log_softmax(-1).gather(2, target[:, 1:, None])[0, :, 0]
        memory, state, steps = model.encode(source), None, []
        for before, after in itertools.pairwise(target[0].tolist()):
            logits, state, _ = model.decode(memory, torch.tensor([[before]]), state)
            assert int(logits.argmax()) == after  # it is what greedy search takes
            steps.append(logits[0, 0].log_softmax(-1)[after])
    torch.testing.assert_close(forced, torch.stack(steps), rtol=0, atol=1e-5)


def test_the_weights_are_small_and_half_precision(translator):
    from safetensors.torch import load_file

    weights = shipped(WEIGHTS, "this test")
    assert weights.stat().st_size < 20e6
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.float16}
    assert translator[1].get_vocab_size() == translator[0].pieces.num_embeddings


def test_numbers_and_vectors_are_the_same_input_and_gradients_reach_every_piece(tiny):
    source, prefix = torch.tensor([[START, 4, 5, 6, END]]), torch.tensor([[START, 6, 4]])
    x, y = (tiny.embed(ids).detach().requires_grad_() for ids in (source, prefix))
    out = tiny(x, y)
    torch.testing.assert_close(out, tiny(source, prefix))
    assert out.shape == (1, 3, 7)
    by_x, by_y = torch.autograd.grad(out[0, -1, 4], (x, y))
    assert (by_x.abs().sum(-1) > 0).all()
    assert (by_y.abs().sum(-1) > 0).all()


def test_an_output_does_not_see_what_follows_it(tiny):
    source = torch.tensor([[START, 4, END]] * 2)
    a, b = tiny(source, torch.tensor([[START, 4, 5], [START, 4, 6]]))
    torch.testing.assert_close(a[:2], b[:2])
    assert not torch.allclose(a[2], b[2])


def test_one_position_of_each_row_is_what_all_positions_give_there(tiny):
    memory = tiny.encode(torch.tensor([[START, 4, 5, END], [START, 6, 4, END]]))
    prefix, places = torch.tensor([[START, 6, 4], [START, 5, 5]]), torch.tensor([2, 0])
    alone, weights = tiny.answer(memory, tiny.follow(memory, prefix)[0][torch.arange(2), places][:, None])
    whole, _, looked = tiny.decode(memory, prefix)
    torch.testing.assert_close(alone[:, 0], whole[torch.arange(2), places])
    torch.testing.assert_close(weights[:, 0], looked[torch.arange(2), places])


def test_padding_changes_nothing(tiny):
    rows, prefix = [[START, 4, 5, 6, END], [START, 6, END]], torch.tensor([[START, 4], [START, 5]])
    source, lengths = padded(rows)
    together = tiny(source, prefix, lengths)
    for i, row in enumerate(rows):
        torch.testing.assert_close(together[i : i + 1], tiny(torch.tensor([row]), prefix[i : i + 1]))


def test_attention_weights_are_shares_of_the_source_without_padding(tiny):
    source, lengths = padded([[START, 4, 5, 6, END], [START, 6, END]])
    _, _, weights = tiny.decode(tiny.encode(source, lengths), torch.tensor([[START, 4], [START, 5]]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, dtype=torch.float64))
    assert (weights[1, :, 3:] == 0).all()


def test_a_wide_beam_finds_the_best_of_all_targets(tiny):
    source, limit = torch.tensor([[START, 4, 6, 5, END], [START, 5, 5, 4, END]]), 4
    found = search(tiny, source, beam=100, limit=limit)
    inner = [list(row) for n in range(limit) for row in itertools.product((4, 5, 6), repeat=n)]
    for i, said in enumerate(found):

        def mean(row: list[int], i: int = i) -> float:
            target = torch.tensor([[START, *row, END]])
            score = tiny(source[i : i + 1], target[:, :-1]).log_softmax(-1).gather(2, target[:, 1:, None])
            return float(score.detach().mean())

        assert said == max(inner, key=mean)


def test_other_weights_are_refused(tmp_path):
    pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="other weights than the translator's"):
        load(tmp_path / "other.safetensors")
