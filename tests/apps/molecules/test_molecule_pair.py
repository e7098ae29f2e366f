"""Networks compared on one molecule: differences in closed form, units that must agree, and two real networks."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from typer.testing import CliRunner, Result

from integrand.analysis.model_comparison import ModelComparison
from integrand.apps import molecules
from integrand.apps.molecules import GraphModel, MoleculeAttribution
from integrand.apps.molecules.molgraph import ATOM_FEATURES, PAIR_FEATURES
from integrand.cli.app import app
from integrand.errors import OptionError
from tests.browser import PHONE, on_first_screen, saved, serious

OXYGEN = ATOM_FEATURES["simple"].index("atom O")
BOND = PAIR_FEATURES["simple"].index("distance <= 1")
DRUG = "COc1ccc(C(=O)Nc2nc3cc4c(cc3s2)OCCO4)c(OC)c1"


def counting(oxygen: float, bond: float, **options: Any) -> GraphModel:
    """So much for each oxygen, and so much for each bond."""

    def network(atoms: Tensor, pairs: Tensor, ends: Tensor, there: Tensor, near: Tensor) -> Tensor:
        return (oxygen * atoms[:, :, OXYGEN].sum(1) + bond * pairs[:, :, BOND].sum(1))[:, None]

    given: dict[str, Any] = {"features": "simple", "outputs": ("oxygens",), "logits": False} | options
    return GraphModel(network, **given)


@pytest.fixture(scope="module")
def weaves() -> ModelComparison:
    return molecules.compare(DRUG, {name: molecules.load(name, "cpu") for name in ("weave-w2n2", "weave-w1n2")})


def invoked(*words: str) -> Result:
    return CliRunner().invoke(app, ["molecule", *words])


def test_linear_networks_differ_by_their_atoms_with_half_of_the_bonds() -> None:
    found = molecules.compare("CCO", {"one": counting(2.0, 0.5), "two": counting(3.0, -0.5)})
    np.testing.assert_allclose(found.difference, [[0.5, 1.0, -1 + 0.5]], atol=1e-6)
    assert found.unit == "output"
    assert found.converged
    assert [row["feature"].split()[0] for row in found.table()] == ["C0", "C1", "O2"]


def test_each_atom_has_the_errors_of_both_networks_added_up(weaves: ModelComparison) -> None:
    alone = {name: molecules.load(name, "cpu").explain([DRUG])[0] for name in weaves.names}
    apart = weaves.differences[0]
    assert apart.errors is not None
    np.testing.assert_allclose(apart.errors[0], np.sum([one.atom_errors for one in alone.values()], axis=0))
    for name, one in alone.items():
        np.testing.assert_allclose(weaves.values[name], one.per_atom[None])  # type: ignore[arg-type]
    # Half of each pair to either atom: errors of atoms and pairs, without signs, add up to at least those of the atoms.
    assert apart.error[0] == pytest.approx(sum(one.sum_error or math.nan for one in alone.values()))
    assert weaves.unit == "probability"
    assert weaves.sentence.startswith("Both say active (weave-w2n2 85%, weave-w1n2 94%), for partly the same reasons: most")


def test_scores_in_other_units_are_refused_with_a_remedy() -> None:
    chance = counting(2.0, 0.5, logits=True)
    with pytest.raises(OptionError, match=r"a probability \(oxygens\).*units that are not known.*score='logit'"):
        molecules.compare("CCO", {"one": chance, "two": counting(3.0, 0.5)})
    found = molecules.compare("CCO", {"one": chance, "two": counting(3.0, 0.5)}, score="logit")
    np.testing.assert_allclose(found.difference, [[0, 0, -1.0]], atol=1e-6)
    with pytest.raises(OptionError, match="same units"):
        molecules.compare("CCO", {"one": counting(2.0, 0.5), "two": counting(3.0, 0.5, outputs=("grams",))})
    with pytest.raises(OptionError, match="two or more"):
        molecules.compare("CCO", {"one": chance})
    with pytest.raises(OptionError, match="one for each network"):
        molecules.compare("CCO", {"one": chance, "two": chance}, target={"one": 0})


def test_quantities_are_compared_in_their_units_only() -> None:
    """Results as ADMET-AI's endpoints give them: a quantity with its units."""

    class Quantity:
        name = source = "here"
        outputs = ("Solubility",)

        def __init__(self, units: str) -> None:
            self.units = units

        def predict(self, given: Any) -> Any:
            raise NotImplementedError

        def explain(self, given: Any, **how: Any) -> list[MoleculeAttribution]:
            how.pop("score")
            return [replace(one, units=self.units) for one in counting(2.0, 0.5).explain(given, **how)]

    with pytest.raises(OptionError, match=r"oxygens in log-mol/L.*oxygens in hr;.*two quantities in the same units"):
        molecules.compare("CCO", {"one": Quantity("log-mol/L"), "two": Quantity("hr")})
    found = molecules.compare("CCO", {"one": Quantity("hr"), "two": Quantity("hr")})
    assert found.sentence.startswith("one 3 hr, two 3 hr, for the same reasons; ")


def test_what_both_networks_never_saw_is_said_once() -> None:
    found = molecules.compare(
        "C[Si](C)(C)C", {"one": molecules.load("weave-w2n2", "cpu"), "<two>": molecules.load("weave-w1n2", "cpu")}
    )
    [note] = found.notes
    assert note.startswith("one, <two>: The network was not trained on molecules like this one")
    assert note in str(found)
    page = found.page()
    assert "<two>" not in page
    assert "one, &lt;two&gt;: The network was not trained" in page


def test_it_saves_itself(weaves: ModelComparison, tmp_path: Path) -> None:
    for ending in ("csv", "json", "png"):
        weaves.save(tmp_path / f"two.{ending}")
    with (tmp_path / "two.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 26
    assert {"weave-w2n2 − weave-w1n2", "error of weave-w2n2 − weave-w1n2"} < set(rows[0])
    kept = json.loads((tmp_path / "two.json").read_text())
    assert kept["sentence"] == weaves.sentence
    assert kept["features"][17]["feature"] == "S17 (benzothiazole)"
    assert (tmp_path / "two.png").read_bytes()[1:4] == b"PNG"
    assert weaves._repr_html_().count("<img") == 3


def test_both_networks_and_their_difference_are_on_the_first_screen(weaves: ModelComparison, browser: Any) -> None:
    page = weaves.page()
    with browser.open(page) as opened:
        boxes = [picture.bounding_box() for picture in opened.locator(".drawn figure").all()]
        assert len(boxes) == 3
        assert len({round(box["y"]) for box in boxes}) == 1
        assert on_first_screen(opened, ".badge")
        assert not serious(opened)
        opened.locator("details summary", has_text="atoms in numbers").click()
        name, table = saved(opened, "button[data-export=csv]")
        assert name == "atoms.csv"
        assert table.decode("utf-8-sig").startswith("feature,weave-w2n2,weave-w1n2,weave-w2n2 − weave-w1n2,error of")
    with browser.open(page, size=PHONE, dark=True) as opened:
        boxes = [picture.bounding_box() for picture in opened.locator(".drawn img").all()]
        assert all(box["y"] + box["height"] < PHONE[1] for box in boxes)
        assert not serious(opened)


def test_the_command_compares_two_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"one": counting(2.0, 0.5), "two": counting(3.0, 0.5)}
    monkeypatch.setattr(molecules, "load", lambda name, device: known[name])
    both = ("--model", "one", "--model", "two")
    monkeypatch.setattr(sys, "argv", ["integrand", "molecule", "CCO", *both, "--out", "two.html"])
    done = invoked("CCO", *both, "--out", "two.html")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("one 3, two 4, ")
    assert "difference -1" in done.output
    assert "wrote two.html" in done.output
    assert "integrand molecule CCO --model one" in (tmp_path / "two.html").read_text(encoding="utf-8")
    assert json.loads(invoked("CCO", *both, "--json").stdout)["features"][2]["one − two"] == pytest.approx(-1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("CCO", "CCN", "--model", "a", "--model", "b"), "2 networks for 2 molecules; expected one"),
        (("--file", "many.smi", "--model", "a", "--model", "b"), "2 networks for a file; expected one"),
        (("CCO", "--model", "a", "--model", "a"), "--model a twice"),
        (("CCO", "--numbers", "--model", "a", "--model", "b"), "Leave them out"),
        (("CCO", "--out", "a.sdf", "--model", "a", "--model", "b"), "expected a file that ends in .html"),
    ],
)
def test_what_two_networks_cannot_do_is_said_before_they_are_loaded(words: tuple[str, ...], said: str) -> None:
    found = invoked(*words)
    assert isinstance(found.exception, OptionError)
    assert said in str(found.exception)
