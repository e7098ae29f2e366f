"""Alignments: against loops by hand, complete, the paper's example, and what pictures and the command line say."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from torch import nn

from integrand.apps import translation
from integrand.apps.translation import Alignment, Translator
from integrand.apps.translation.model import _NextPiece
from integrand.apps.translation.seq2seq import END, START, Seq2Seq
from integrand.errors import InputError, IntegrandWarning, MissingExtraError, OptionError
from integrand.functions.model_state import modules_of
from integrand.render.glance import glance_script

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds

GREETING = "good morning ladies and gentlemen"


@pytest.fixture(scope="module")
def translator() -> Translator:
    pytest.importorskip("safetensors")
    pytest.importorskip("tokenizers")
    return translation.load("cpu")


@pytest.fixture(scope="module")
def greeting(translator) -> Alignment:
    return translator.explain(GREETING, chunk=128)


@pytest.fixture(scope="module")
def short(translator) -> Alignment:
    return translator.explain("I <b>love</b> & dogs", "Ich liebe <i>Hunde</i>", tol=0.5)


@pytest.fixture
def tiny() -> Translator:
    torch.manual_seed(1)
    network = Seq2Seq(vocabulary=9, embedding=6, hidden=8).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.7)
    return Translator(network, None)


def midpoints(network: Seq2Seq, source: list[int], said: list[int], points: int) -> tuple[torch.Tensor, ...]:
    """Where the straight line is at the midpoints, for text and translation, (points, length, embedding), and how it moves."""
    x, y = (network.embed(torch.tensor([ids])).detach() for ids in (source, [START, *said]))
    a, b = x.clone(), y.clone()
    a[:, 1:-1] = 0
    b[:, 1:] = 0
    t = ((torch.arange(points, dtype=x.dtype) + 0.5) / points)[:, None, None]
    u, v = ((c + t * (d - c)).requires_grad_() for c, d in ((a, x), (b, y)))
    return u, v, x - a, y - b


def by_hand(network: Seq2Seq, source: list[int], said: list[int], points: int) -> np.ndarray:
    """The mean over midpoints, one output after the other by plain autograd: (outputs, source and prefix)."""
    u, v, moved, written = midpoints(network, source, said, points)
    chances = network(u, v).softmax(-1)
    rows = []
    for i, piece in enumerate([*said, END]):
        du, dv = torch.autograd.grad(chances[:, i, piece].sum(), (u, v), retain_graph=True)
        rows.append(torch.cat([(du.mean(0) * moved[0]).sum(-1), (dv.mean(0) * written[0]).sum(-1)]))
    return torch.stack(rows).detach().numpy()


def share_of(alignment: Alignment, output: str, source: str) -> tuple[float, str]:
    """The share of a source word in what speaks for an output, and the word with the largest share."""
    shares = alignment.shares()[alignment.outputs.index(output)]
    return float(shares[alignment.source.index(source)]), alignment.source[int(shares.argmax())]


def test_und_is_mostly_from_and_and_Morgen_mostly_from_morning(greeting):
    words = greeting.words()
    for output, source in (("und", "and"), ("Morgen", "morning")):
        share, largest = share_of(words, output, source)
        assert largest == source
        assert share > 0.5
    assert share_of(words, "Damen", "ladies")[1] == "ladies"
    assert share_of(words, "Herren", "gentlemen")[1] == "gentlemen"


def test_every_row_adds_up_to_its_score(greeting, translator):
    ids = translator.pieces.encode(GREETING).ids
    said = translator.pieces.encode("Guten Morgen, meine").ids[1:-1]
    with torch.no_grad():
        full, empty = (translator.network.embed(torch.tensor([row])) for row in (ids, [START, *said[:-1]]))
        chances = translator.network(full, empty)[0].softmax(-1)
        full[:, 1:-1], empty[:, 1:] = 0, 0
        nothing = translator.network(full, empty)[0].softmax(-1)
    totals = greeting.from_source.sum(1) + greeting.from_prefix.sum(1)
    assert "".join(greeting.outputs[: len(said)]) == "GutenMorgen,meine"
    for i, piece in enumerate(said):
        assert greeting.certificate[i].score == pytest.approx(float(chances[i, piece]), abs=1e-5)
        assert greeting.probabilities[i] == pytest.approx(float(chances[i, piece]), abs=1e-5)
        assert totals[i] == pytest.approx(float(chances[i, piece] - nothing[i, piece]), abs=0.02)
    assert greeting.certificate.converged
    for total, one in zip(totals, greeting.certificate, strict=True):
        assert abs(total - (one.score - one.baseline_score)) <= one.tol * one.magnitude
        assert one.error <= 0.02


def test_a_real_sentence_against_a_loop_of_midpoints_in_float64(translator):
    exact = replace(translator, network=translation.load("cpu").network.double())
    ids = exact.pieces.encode("Thank you.").ids
    said = exact.pieces.encode("Danke.").ids[1:-1]
    result = exact.attribution(ids, said, tol=0.01)
    wanted = by_hand(exact.network, ids, said, 80)
    assert result.certificate.converged
    miss = np.abs(result.numpy() - wanted).sum(1) / np.abs(wanted).sum(1)
    assert miss.max() < 0.01


def test_a_small_network_against_many_midpoints_to_many_digits(tiny):
    source, said = [START, 5, 6, 7, 5, END], [8, 4, 4, 7]
    result = tiny.attribution(source, said, tol=1e-5)
    np.testing.assert_allclose(result.numpy(), by_hand(tiny.network, source, said, 250), rtol=0, atol=5e-5)


def test_what_comes_later_and_markers_get_exactly_nothing(tiny):
    source, said = [START, 5, 6, 7, END], [8, 4, 7]
    values = tiny.attribution(source, said).numpy()
    for i in range(4):
        assert not values[i, 6 + i :].any()
        assert values[i, 6 : 6 + i].all()  # but what came before counts
    assert not values[:, [0, 4, 5]].any()
    assert values[:, 1:4].all()


def test_rows_do_not_depend_on_each_other_on_what_follows_or_on_chunks(tiny):
    source, said = [START, 5, 6, 7, END], [8, 4, 7, 5]
    whole = tiny.attribution(source, said, tol=1e-4).numpy()
    np.testing.assert_allclose(whole, tiny.attribution(source, said, tol=1e-4, chunk=1).numpy(), rtol=0, atol=1e-12)
    cut = tiny.attribution(source, said[:2], tol=1e-4).numpy()
    np.testing.assert_allclose(whole[:2, :8], cut[:2], rtol=0, atol=1e-12)


def test_words_keep_the_sums_and_the_certificate_is_that_of_the_sum(translator):
    pieces = translator.explain("Grandmother sees a butterfly", "Großmutter sieht einen Schmetterling", tol=0.1)
    words = pieces.words()
    assert words.source == ("Grandmother", "sees", "a", "butterfly")
    assert words.outputs[:-1] == ("Großmutter", "sieht", "einen", "Schmetterling")
    assert words.matrix.values.sum() == pytest.approx(pieces.matrix.values.sum())
    n, butterfly = pieces.outputs.index("sieht"), slice(pieces.source.index("a") + 1, None)
    assert n > 1  # pieces of "Großmutter"
    assert len(pieces.source[butterfly]) > 1
    assert words.from_source[0, 3] == pytest.approx(pieces.from_source[:n, butterfly].sum())
    assert words.from_prefix[0, 0] == pytest.approx(pieces.from_prefix[:n, :n].sum())
    assert words.probabilities[0] == pytest.approx(np.prod(pieces.probabilities[:n]))
    first = words.certificate[0]
    assert first.score == pytest.approx(sum(pieces.probabilities[:n]), abs=1e-5)
    assert first.residual == pytest.approx(words.matrix.values[0].sum() - first.score + first.baseline_score, abs=1e-5)
    assert first.gradients == sum(one.gradients for one in pieces.certificate.examples[:n])
    assert words.certificate.gradients == pieces.certificate.gradients
    again = words.words()
    assert again.outputs == words.outputs
    np.testing.assert_allclose(again.matrix.values, words.matrix.values)


def test_the_probability_of_a_word_is_the_product_of_its_pieces(tiny):
    """Before, a word of three pieces had the sum of their probabilities, up to 3."""
    source, said, runs = [START, 5, 6, 7, END], [8, 4, 7], [range(2), range(2, 3), range(3, 4)]
    starts = [0, 1, 3, 4, 5, 6, 8]  # the text's first two pieces are a word, and so are those of the translation
    found = tiny.attribution(source, said, tol=1e-4, runs=runs, starts=starts)
    u, v, moved, written = midpoints(tiny.network, source, said, 200)
    chances = tiny.network(u, v).softmax(-1)[:, range(4), [*said, END]]
    total = np.zeros((3, 9))
    for i, run in enumerate(runs):
        du, dv = torch.autograd.grad(chances[:, list(run)].prod(1).sum(), (u, v), retain_graph=True)
        total[i] = np.concatenate([(d.mean(0) * by[0]).sum(-1) for d, by in ((du, moved), (dv, written))])
    np.testing.assert_allclose(found.numpy(), np.add.reduceat(total, starts, axis=1), rtol=0, atol=1e-4)
    x, y = (torch.tensor([ids]) for ids in (source, [START, *said]))
    exact = tiny.network(x, y)[0].softmax(-1)[range(4), [*said, END]].detach()
    scores = [float(exact[list(run)].prod()) for run in runs]
    assert [one.score for one in found.certificate] == pytest.approx(scores)


@pytest.mark.parametrize("score", ["probability", "log-probability", "logit"])
def test_words_of_a_real_translation(translator, score):
    found = translator.explain("Grandmother sees", "Großmutter sieht", words=True, score=score, tol=0.1)
    assert found.outputs == ("Großmutter", "sieht", "</s>")
    assert found.source == ("Grandmother", "sees")
    scores = [one.score for one in found.certificate]
    if score == "probability":
        assert scores == pytest.approx(found.probabilities, abs=1e-5)
        assert max(scores) <= 1
        assert "probability " in found.grid.named[0]
        assert "'Großmutter' comes from 'Grandmother'" in found.sentence
    elif score == "log-probability":
        assert scores == pytest.approx(np.log(found.probabilities), abs=1e-4)
    else:
        assert re.fullmatch(r"the logits of its \d pieces add up to .*", found.grid.named[0])
    for row, one in zip(found.matrix.values, found.certificate, strict=True):
        assert abs(row.sum() - one.score + one.baseline_score) <= one.tol * one.magnitude
    assert repr(found) == found.sentence
    assert found.words().outputs == found.outputs


def test_a_sum_of_probabilities_is_called_a_sum(translator):
    words = translator.explain("Grandmother", "Großmutter", tol=0.1).words()
    assert re.fullmatch(r"the probabilities of its \d pieces add up to [12]\.\d\d", words.grid.named[0])
    assert re.search(r"sum of the probabilities of \d pieces", words.certificate[0].target)
    assert words.lines[0].note.startswith("The probabilities of its ")


def test_shares_are_of_what_speaks_for_an_output(greeting):
    shares = greeting.shares()
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (shares[greeting.from_source < 0] == 0).all()


def test_each_output_has_its_running_sum_from_nothing_to_the_score(greeting):
    for line, one in zip(greeting.words().lines, greeting.words().certificate, strict=True):
        assert line.running[0] == one.baseline_score
        assert line.missed == pytest.approx(one.residual, abs=1e-5)


def test_a_translation_of_ones_own_is_explained_as_it_is(short):
    assert short.text == "I <b>love</b> & dogs"
    assert "".join(short.words().outputs[:2]) == "Ichliebe"
    assert short.matrix.values.shape == (len(short.outputs), len(short.source) + len(short.prefix) + 3)
    assert len(short.prefix) == len(short.outputs) - 1
    assert "</s>" not in short.outputs[:-1]


def test_a_marker_that_is_typed_is_text(translator):
    assert translator.pieces.encode("a </s> b").ids.count(END) == 1


class Reader(HTMLParser):
    """The elements of a page and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def test_the_page_is_escaped_and_loads_nothing(short, tmp_path):
    page = short.words().save(tmp_path / "a.html", command="integrand translate '<script>'").read_text(encoding="utf-8")
    read = Reader(page)
    assert not read.tags & {"img", "link", "iframe"}
    assert re.findall(r"<script>(.*?)</script>", page, re.DOTALL) == [glance_script()]
    assert "I <b>love</b> & dogs" in read.text
    assert "integrand translate '<script>'" in read.text
    assert not re.search(r"\s(src|href)\s*=", re.sub("<script>.*?</script>", "", page, flags=re.DOTALL))
    assert "<b>love" not in page
    assert "<i>Hunde" not in page
    for shown in (short._small_html_(), short._repr_html_()):
        assert "<b>love" not in shown
    assert html.unescape(short._repr_html_()).count(short.html()) == 1


def test_a_translation_is_asked_again_to_another_tolerance(short, translator):
    pytest.importorskip("anywidget", reason="needs anywidget: make test installs it")
    widget = short.words().widget()
    [control] = widget.controls
    assert [value for value, _ in control["options"]] == ["0.5", "0.2", "0.05", "0.01", "0.001"]
    widget.choice = {"tolerance": "0.2"}
    again = translator.explain(short.text, "Ich liebe <i>Hunde</i>", tol=0.2).words()  # as it was given, not as it is spelt
    assert widget.title == again.sentence
    assert widget.page == again.html()
    with pytest.raises(InputError, match=r"does not hold the model .* Explain it again"):
        Alignment.of_details(short.row().details).widget()


def test_pictures_numbers_and_tables(short, tmp_path):
    pytest.importorskip("matplotlib")
    words = short.words()
    assert words.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(words.save(tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [one["text"] for one in told["outputs"]] == list(words.outputs)
    for i, one in enumerate(told["outputs"]):
        cells = [part["value"] for name in ("from_text", "from_translation") for part in one[name]]
        assert sum(cells) == pytest.approx(words.matrix.values[i].sum())
        assert one["sum"] == pytest.approx(sum(cells))
    assert words.figure().axes
    with pytest.raises(OptionError, match="ending"):
        words.save(tmp_path / "a.docx")


def test_the_table_fits_the_terminal_and_goes_on_below(short):
    plain = short.terminal(colour=False, width=60)
    _, *table = plain.splitlines()
    assert max(map(len, table)) <= 60
    assert "" in table
    assert "\x1b" not in plain
    assert "\x1b[48;2;" in short.terminal(width=60)
    assert str(short).startswith(f"{short.sentence}\n{plain.splitlines()[0]}")


@pytest.mark.parametrize("bad", ["", "  \n"])
def test_an_empty_text_is_refused(translator, bad):
    for call in (translator.translate, translator.explain, lambda text: translator.explain("good morning", text)):
        with pytest.raises(InputError, match="empty"):
            call(bad)


@pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")
def test_signs_that_the_vocabulary_lacks_are_named(translator):
    with pytest.warns(IntegrandWarning, match=r"does not know '日' in the text, which becomes <unk>"):
        translator.explain("good 日", "gut", tol=0.5)
    with pytest.warns(IntegrandWarning, match=r"does not know '本' in the translation"):
        translator.explain("good", "gut 本", tol=0.5)


def test_bad_options_are_refused(translator):
    with pytest.raises(InputError, match="expected a string"):
        translator.translate(3)
    with pytest.raises(OptionError, match="beam"):
        translator.translate("hello", beam=0)
    with pytest.raises(OptionError, match="baseline"):
        translator.explain("hello", baseline=0)
    with pytest.raises(OptionError, match="device"):
        translation.load("nowhere")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"safetensors.*integrand\[models\]"):
        translation.load()


def test_the_engine_sees_the_recurrent_layers_which_cudnn_must_not_run(tiny):
    [seen] = modules_of(_NextPiece(tiny.network))
    assert seen is tiny.network
    assert any(isinstance(module, nn.RNNBase) for module in seen.modules())


def test_the_command(translator, monkeypatch, tmp_path):
    typer = pytest.importorskip("typer")
    from typer.testing import CliRunner

    from integrand.apps.translation.cli import translate

    monkeypatch.setattr(translation, "load", lambda device=None: translator)
    app = typer.Typer()
    app.command()(translate)
    run = CliRunner().invoke
    page = tmp_path / "new" / "a.html"
    found = run(app, ["thanks", "--target", "danke", "--tol", "0.1", "--out", str(page), "--force"])
    assert found.exit_code == 0, found.output
    assert "thanks → danke" in found.output
    assert page.is_file()
    told = run(app, ["thanks", "--target", "danke", "--tol", "0.1", "--pieces", "--json"])
    assert json.loads(told.stdout)["translation"] == "danke"
    assert isinstance(run(app, [" "]).exception, InputError)
    assert isinstance(run(app, ["thanks", "--out", "a.docx"]).exception, OptionError)
