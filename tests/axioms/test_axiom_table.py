"""The table: every cell with its evidence, as text, JSON and a page."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import ClassVar

import pytest
import torch

from integrand.axioms import AXIOMS, network, table
from integrand.axioms.axiom_table import METHODS
from integrand.certificate import Promise, promised
from integrand.errors import OptionError
from integrand.methods import Gradient, GradientTimesInput, IntegratedGradients, Method

pytestmark = pytest.mark.slow  # a fixture that the tests share takes seconds


@dataclass(frozen=True)
class Nasty(Method):
    """A method whose name is an attack and whose promises are false."""

    name: ClassVar[str] = "<script>alert('&')</script>"
    promises: ClassVar[tuple[Promise, ...]] = promised()

    def attribute(self, problem):
        return GradientTimesInput().attribute(problem)


class Balanced(HTMLParser):
    """Fails where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def searched():
    return table([Gradient(), Nasty()], axioms=["sensitivity-a", "linearity"], max_examples=40)


def test_text_has_a_row_for_each_method_and_a_sign_for_each_axiom(searched):
    lines = str(searched).splitlines()
    assert lines[0].split() == ["method", "sensitivity-a", "linearity"]
    assert lines[2].split()[:3] == ["Gradient()", "broken", "kept"]
    assert lines[3].split()[:3] == ["Nasty()", "REFUTED", "kept"]
    assert f"({searched['gradient', 'linearity'].tried})" in lines[2]
    assert any(line.strip().startswith("f = ") for line in lines)


def test_refuted_promises_stand_out(searched):
    assert [verdict.axiom for verdict in searched.refuted] == ["sensitivity-a"]
    page = searched.html()
    assert page.count('class="cell refuted"') == 1
    assert "1 promise refuted" in page


def test_json_holds_every_verdict(searched):
    whole = json.loads(searched.json())
    assert whole["axioms"] == ["sensitivity-a", "linearity"]
    assert [(v["settings"], v["axiom"], v["kept"]) for v in whole["verdicts"]] == [
        ("Gradient()", "sensitivity-a", False),
        ("Gradient()", "linearity", True),
        ("Nasty()", "sensitivity-a", False),
        ("Nasty()", "linearity", True),
    ]
    first = whole["verdicts"][0]["counterexample"]
    assert set(first["networks"]) == {"f"}
    assert network(first["networks"]["f"])(torch.tensor([first["x"]])).numel() == 1
    assert "import torch" in first["code"]


def test_the_page_is_well_formed_escaped_and_loads_nothing(searched):
    page = searched.html(title="<b>mine</b>", command="integrand axioms <x>")
    seen = Balanced(page).seen
    assert "<script" not in page
    assert "<b>mine" not in page
    assert "&lt;b&gt;mine&lt;/b&gt;" in page
    assert "integrand axioms &lt;x&gt;" in page
    assert not [a for _, a in seen if "src" in a or a.get("href", "#")[0] != "#"]
    ids = {a["id"] for _, a in seen if "id" in a}
    assert {a["href"][1:] for _, a in seen if "href" in a} == ids
    assert sum(tag == "svg" for tag, _ in seen) == 2  # the networks of the two counter-examples
    Balanced(searched._repr_html_())
    Balanced(searched["gradient", "sensitivity-a"]._repr_html_())


def test_a_model_of_ones_own(searched):
    seen = []
    found = table(
        [Gradient(), IntegratedGradients()],
        model=network("1 - relu(1 - x1) + x2"),
        x=torch.tensor([[2.0, 1.0]]),
        progress=seen.append,
    )
    assert found.where == "this model"
    assert found["gradient", "sensitivity-a"].kept is False
    assert [found["integrated gradients", axiom].kept for axiom in AXIOMS] == [True, True, None, True, True, True]
    assert [(step.done, step.cells) for step in seen if step.tried == 0] == [(i, 12) for i in range(12)]
    assert seen[0].method == "gradient"
    assert "on this model" in found.html().lower()


def test_mistakes_are_refused_with_words(searched):
    with pytest.raises(OptionError, match="no methods"):
        table([])
    with pytest.raises(OptionError, match=r"axioms=\['fairness'\]"):
        table(axioms=["fairness"])
    with pytest.raises(OptionError, match="only one of model and x"):
        table(model=network("x1"))
    with pytest.raises(OptionError, match=r"'Gradient\(\)'"):
        searched["other", "linearity"]


def test_all_methods_of_the_paper_are_in_it():
    assert {type(method).__name__ for method in METHODS} >= {
        "IntegratedGradients", "PathMethod", "Gradient", "GradientTimesInput", "DeepLift", "LRP", "Deconvnet", "GuidedBackprop",
        "Shapley", "Lime", "ExpectedGradients", "SmoothGrad",
    }  # fmt: skip
