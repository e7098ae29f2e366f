"""Rules: counted by hand on made-up attributions, and found again on real questions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from integrand import ExampleCertificate, Status
from integrand.apps import questions
from integrand.apps.questions import WordAttribution, rules
from integrand.apps.questions.question_files import read
from integrand.errors import InputError, OptionError
from integrand.render.glance import glance_script
from tests.browser import DESKTOP, PHONE, on_first_screen, saved, serious

CERTIFICATE = ExampleCertificate(
    score=0.9,
    baseline_score=0.2,
    residual=0.0,
    magnitude=0.7,
    error=0.01,
    tol=0.05,
    gradients=17,
    forwards=2,
    status=Status.CONVERGED,
    rule="by hand",
    precision="float64",
    target="made up",
)


class Scripted:
    """Says what it is told: the class and the value of each word, by word."""

    classes = ("number", "yes-no")

    def __init__(self, values: dict[str, float], label: Callable[[list[str]], str], seen: dict[str, int] | None = None) -> None:
        self.values, self.label, self.seen = values, label, seen or {}

    def explain(self, texts: Sequence[str], *, tol: float, **options: Any) -> list[WordAttribution]:
        out = []
        for text in texts:
            words = text.split(" ")
            values = tuple(self.values.get(word.lower(), 0.0) for word in words)
            label = self.label([word.lower() for word in words])
            out.append(WordAttribution(text, tuple(words), ((0, 0),) * len(words), values, label, 0.9, CERTIFICATE))
        return out

    def times_seen(self, word: str) -> int:
        return self.seen.get(word, 100)


VALUES = {"how": 0.3, "many": 0.3, "total": 0.25, "number": 0.35, "did": 0.6, "charles": 0.4, "are": 0.05}


def by_words(words: list[str]) -> str:
    return "yes-no" if words[0] in ("did", "charles") else "number"


ASKED = [
    *[f"how many {thing} are there" for thing in ("men", "cats", "wins", "seas", "ships", "maps")],
    *[f"what is the total number of {thing}" for thing in ("men", "cats", "wins", "seas", "ships")],
    *[f"did {name} win" for name in ("Charles", "anna", "bob", "carl", "dora", "Charles")],
    "name the total number",
]


def test_counts_by_hand() -> None:
    truth = ["number"] * 10 + ["yes-no"] * 7 + ["number"]
    found = rules(Scripted(VALUES, by_words), ASKED, truth, least=5)
    known = {(rule.label, rule.phrase): rule for rule in found}
    many = known["number", "how many"]
    assert (many.support, many.holding, many.precision, many.opens) == (6, 6, 1.0, False)
    assert many.attribution == pytest.approx(0.6)
    total = known["number", "total number"]
    assert (total.kind, total.support, total.holding) == ("new", 6, 6)
    assert total.precision == pytest.approx(5 / 6)  # the eleventh question is labelled yes-no
    assert many.kind == "usual"
    did = known["yes-no", "did"]
    assert (did.kind, did.support, did.precision) == ("usual", 6, 1.0)
    assert ("number", "how") not in known  # "how many" has all of its support
    assert ("number", "are") not in known  # weak
    assert found.accuracy == pytest.approx(17 / 18)
    assert (found.questions, found.converged, found.error) == (18, 1.0, 0.01)


def test_a_name_is_suspicious() -> None:
    known = {r.phrase: r for r in rules(Scripted(VALUES, by_words), ASKED, least=3, most=50).of("yes-no")}
    assert known["did"].kind == "usual"
    charles = rules(Scripted({"charles": 0.7}, by_words), ASKED, least=5).of("yes-no", "suspicious")
    assert [(rule.phrase, rule.why) for rule in charles] == [("charles", "a name")]  # by its capital inside a sentence
    lower = [text.lower() for text in ASKED]
    unseen = rules(Scripted({"charles": 0.7}, by_words, {"charles": 0}), lower, least=5).of("yes-no", "suspicious")
    assert [(rule.phrase, rule.why) for rule in unseen] == [("charles", "rare, with a word that never came in training")]
    assert not rules(Scripted({"charles": 0.7}, by_words), lower, least=5).of("yes-no")  # rare, not a name: nothing


def test_an_imprecise_rule_is_suspicious() -> None:
    """Six questions hold "many"; the network calls all of them number."""
    for wrong, word in ((4, "most questions that hold it, 67%"), (2, "it is wrong in 33%"), (1, "")):
        truth = ["yes-no"] * wrong + ["number"] * (18 - wrong)
        (rule,) = rules(Scripted({"many": 0.5}, by_words), ASKED, truth, least=5).of("number")
        assert (rule.phrase, rule.kind) == ("many", "suspicious" if word else "new")
        assert rule.precision == rule.right == pytest.approx(1 - wrong / 6)
        assert word in rule.why


def test_an_opening_is_counted_as_one() -> None:
    """Six questions open with "did", and only those count; three hold it later."""
    asked = [*ASKED, *["what did they win"] * 3]
    truth = [by_words(text.lower().split()) for text in asked]
    (rule,) = (r for r in rules(Scripted({"did": 0.5}, by_words), asked, truth).of("yes-no") if r.phrase == "did")
    assert (rule.opens, rule.kind, rule.support, rule.holding, rule.precision) == (True, "usual", 6, 6, 1.0)


def test_longest_and_most() -> None:
    values = dict.fromkeys("abcd", 0.25)
    asked = ["a b c d"] * 5
    (rule,) = rules(Scripted(values, lambda _: "number"), asked, longest=4)
    assert rule.phrase == "a b c d"
    found = rules(Scripted(values, lambda _: "number"), asked, longest=2, most=2)
    assert {r.phrase for r in found} < {"a b", "b c", "c d"}
    assert len(found) == 2


def test_table_json_and_page(tmp_path: Path) -> None:
    evil = "<script>x</script>"
    asked = [f"{evil} many"] * 5
    found = rules(Scripted({evil: 0.5, "many": 0.3}, lambda _: "number"), asked)
    assert [rule.phrase for rule in found] == [f"{evil} many"]
    page = found.page(title=evil, command=evil)
    assert "<script" not in page.replace(f"<script>{glance_script()}</script>", "")
    assert page.count("&lt;script&gt;") >= 4
    assert found.sentence in unescape(page)
    (rule,) = found
    assert rule.sentence.endswith("asks for a number: fires for 5 questions, right in 100%.")
    assert repr(found) == found.sentence
    assert "<script" not in found._repr_html_()
    saved = json.loads(found.save(tmp_path / "r.json").read_text())
    assert saved["rules"][0]["support"] == 5
    assert saved["accuracy"] is None
    assert found.save(tmp_path / "r.html", command="integrand rules").read_text().startswith("<!doctype html>")
    assert "asks for a number: new" in found.save(tmp_path / "r.txt").read_text()
    with pytest.raises(OptionError, match=r"expected \.html, \.json or \.txt"):
        found.save(tmp_path / "r.png")


@pytest.fixture(scope="module")
def shown() -> str:
    """The page of a usual rule, two new ones and a suspicious one."""
    values = {"how": 0.3, "many": 0.4, "total": 0.3, "difference": 0.3, "zyx": 0.6}
    asked = [*["how many won"] * 6, *["the total of it"] * 6, *["the difference here"] * 6, "did zyx win"]
    return rules(Scripted(values, by_words), asked).page(command="integrand rules")


def test_rules_at_a_glance(browser, shown: str) -> None:
    for size in (DESKTOP, PHONE):
        with browser.open(shown, size=size) as page:
            assert all(on_first_screen(page, part) for part in ("h1", ".says", ".badge", ".kinds", ".tools", ".card h2"))
            assert "F(x" not in page.locator("main").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rules_are_filtered_and_saved(browser, shown: str) -> None:
    with browser.open(shown) as page:
        names = page.locator(".card:not([hidden]) h2")
        total = names.count()
        page.locator("[data-filter=kind]").select_option("usual")
        assert names.all_inner_texts() == ["how many"]
        assert "Fires for 6 questions, right in 100%." in page.locator(".card:not([hidden])").inner_text()
        table = saved(page, "[data-export=csv]")[1].decode("utf-8-sig")
        for summary in page.locator("summary").all():
            summary.click()
        assert serious(page) == []
    rows = list(csv.reader(io.StringIO(table)))
    assert len(rows) == 1 + total
    assert "asks for" in rows[0]


def test_too_few_questions_for_a_rule() -> None:
    said = str(rules(Scripted(VALUES, by_words), ASKED[:1]))
    assert said.startswith("1 question. ")
    assert "No phrase is supported by enough questions" in said


def test_bad_input() -> None:
    with pytest.raises(InputError, match="1 labels for 18"):
        rules(Scripted(VALUES, by_words), ASKED, ["number"])
    with pytest.raises(InputError, match="no question"):
        rules(Scripted(VALUES, by_words), [])


def test_real_rules(data: Callable[[str], Path]) -> None:
    everything = read(data("questions/wtq/pristine-unseen-tables.tsv"))
    pairs = list(zip(everything.questions, everything.labels or (), strict=True))
    pairs = pairs[:700] + [pair for pair in pairs[700:] if pair[1] == "yes-no"]
    asked, labels = [text for text, _ in pairs], [label for _, label in pairs]
    told: list[tuple[int, int]] = []
    found = rules(questions.load("wtq", device="cpu"), asked, labels, progress=lambda *step: told.append(step))
    assert told[-1] == (len(asked), len(asked))
    assert found.converged == 1.0
    many = next(rule for rule in found.of("number", "usual") if rule.phrase == "how many")
    assert many.precision >= 0.97
    held = [text for text in asked if "how many" in text.lower()]
    assert 0.8 * len(held) <= many.support <= many.holding <= len(held)
    assert any(rule.phrase.startswith("who") for rule in found.of("text", "usual"))
    assert any("year" in rule.phrase for rule in found.of("year"))
    assert any("total number" in rule.phrase for rule in found.of("number", "new"))
    assert found.of("yes-no", "usual")


def test_questions_that_the_network_cannot_read_are_listed_apart(tmp_path: Path) -> None:
    strange = ["Wer hat das Rennen gewonnen?", "<b>東京</b>の人口は何人ですか"]
    classifier = questions.load("wtq", device="cpu")
    usual = [f"how many {thing} did he win?" for thing in ("games", "races", "medals", "titles", "points")]
    found = rules(classifier, [*usual, *strange], ["number"] * 5 + ["text"] * 2)
    assert found.questions == 5
    assert found.apart == tuple(strange)
    assert found.rules == rules(classifier, usual, ["number"] * 5).rules
    assert found.numbers()["apart"] == strange
    assert "Not counted, since the network never saw most of their words" in str(found)
    assert strange[0] in str(found)
    assert "&lt;b&gt;東京" in found.page()
    with pytest.raises(InputError, match="got no question that the network can read, such as 'Wer hat"):
        rules(classifier, strange)
