"""Results asked again in a notebook: what can be chosen, and that the answer is what the application itself would say."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from integrand.apps import images, molecules, networks, questions
from integrand.apps.images.preprocess import Preprocess
from integrand.apps.questions.result import WordAttribution
from integrand.apps.result_widgets import LABELS, OF_EYES, OF_MOLECULES, OF_PHOTOS, OF_QUESTIONS, method_note
from integrand.apps.retina import ExaminedEye, Grade
from integrand.errors import InputError
from integrand.methods import BY_NAME, DeepLift, GradientTimesInput
from integrand.render import notebook

pytest.importorskip("anywidget", reason="needs anywidget: make test installs it")

SMILES = "CC(=O)Oc1ccccc1C(=O)O"


@cache
def photo() -> images.Explanation:
    torch.manual_seed(0)
    seeing = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 16, 12), nn.ReLU(), nn.Linear(12, 7)).eval()
    preprocess = Preprocess((32, 32), (0.0,) * 3, (255.0,) * 3)
    network = networks.Network("small", seeing, preprocess, tuple("abcdefg"), "here", (), 7)
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    return images.explain(pixels, network, tol=0.05, rival=True)


@cache
def question() -> WordAttribution:
    pytest.importorskip("integrand_models")
    return questions.load("wtq").explain(["how many people live in norway?"])[0]


@cache
def molecule() -> molecules.MoleculeAttribution:
    pytest.importorskip("rdkit")
    torch.manual_seed(0)
    first, last = nn.Linear(27, 8, bias=False), nn.Linear(8, 2)

    def network(atoms: Any, pairs: Any, ends: Any, there: Any, near: Any) -> Any:
        return last(torch.relu(first(atoms)).sum(1)) + 0.01 * pairs.sum((1, 2))[:, None]

    model = molecules.GraphModel(network, "full", ("active", "toxic"))
    return model.explain([SMILES], target="active")[0]


def offered(widget: Any) -> dict[str, list[str]]:
    return {one["name"]: [value for value, _ in one["options"]] for one in widget.controls}


# ---- what can be chosen ----------------------------------------------------------------------------------------------------


def test_every_method_that_is_offered_exists() -> None:
    names = {*OF_PHOTOS, *OF_EYES, *OF_QUESTIONS, *OF_MOLECULES}
    assert names == set(LABELS)
    assert names <= set(BY_NAME)


def test_the_surest_classes_the_methods_and_the_tolerances() -> None:
    found = photo()
    widget = found.widget()
    choices = offered(widget)
    assert choices["class"] == [str(one.index) for one in found.answers[:5]]
    assert choices["method"] == list(OF_PHOTOS)
    assert choices["tolerance"] == ["0.2", "0.05", "0.01", "0.001"]
    assert widget.choice == {"class": str(found.answer.index), "method": "integrated-gradients", "tolerance": "0.05"}
    assert widget.page == found.page()
    labels = dict(widget.controls[0]["options"])
    assert labels[str(found.answer.index)].startswith(f"{found.answer.label} (")


def test_a_class_and_a_tolerance_of_its_own_can_be_chosen_too() -> None:
    found = photo()
    last = found.answers[-1]
    widget = images.explain(found.photo, found.network, target=last.index, tol=0.3).widget()
    assert offered(widget)["class"][-1] == str(last.index) == widget.choice["class"]
    assert len(offered(widget)["class"]) == 6
    assert offered(widget)["tolerance"][0] == "0.3" == widget.choice["tolerance"]


def test_a_result_of_a_fixed_number_of_steps_can_be_asked_to_a_tolerance() -> None:
    classifier = question().explained_by
    assert classifier is not None
    [fixed] = classifier.explain([question().text], steps=300)
    widget = fixed.widget()
    widget.choice = {"tolerance": "0.05"}
    assert "good to" in widget.status


# ---- the answers are the application's own ---------------------------------------------------------------------------------


def test_another_class_of_a_photo() -> None:
    found = photo()
    widget = found.widget()
    other = found.answers[1]
    widget.choice = {"class": str(other.index)}
    assert widget.page == images.explain(found.photo, found.network, target=other.index, tol=0.05).page()


@pytest.mark.parametrize(("method", "path"), [("blur-ig", "blur"), ("guided-ig", "guided")])
def test_another_path_of_a_photo(method: str, path: Any) -> None:
    found = photo()
    widget = found.widget()
    widget.choice = {"method": method, "tolerance": "0.2"}
    again = images.explain(found.photo, found.network, path=path, tol=0.2)
    assert widget.title == again.sentence
    assert widget.page == again.page()
    assert again.widget().choice["method"] == method


def test_another_method_says_so_on_its_page() -> None:
    found = photo()
    widget = found.widget()
    widget.choice = {"method": "gradient-x-input"}
    assert "These are the numbers of gradient x input, and not of integrated gradients." in widget.page
    assert "does not promise that they add up" in widget.page
    assert "The numbers add up" in found.page()
    assert widget.status.startswith("Numbers exact.")
    by_hand = GradientTimesInput()(found.network.module, found.x, found.starts, target=found.answer.index, score=found.score)
    assert torch.equal(by_hand.values, found.gradient.values)  # type: ignore[arg-type]


def test_an_eye_keeps_its_grade_and_its_notice() -> None:
    network = replace(photo().network, classes=tuple("abcde"), module=lambda x: photo().network.module(x)[:, :5])
    eye = ExaminedEye.of(replace(photo(), network=network), Grade.of([0.0, 2.0, 1.0, -1.0, -3.0]))
    widget = eye.widget()
    assert offered(widget) | {"tolerance": []} == {"class": list("01234"), "method": list(OF_EYES), "tolerance": []}
    widget.choice = {"class": "0", "method": "deeplift"}
    assert "Not a medical device" in widget.page
    assert "These are the numbers of deeplift" in widget.page
    assert f"<h1>{eye.grade.headline}</h1>" in widget.page


def test_another_class_and_method_of_a_question() -> None:
    found = question()
    assert found.explained_by is not None
    widget = found.widget()
    assert offered(widget)["class"][0] == found.label
    widget.choice = {"class": "year", "tolerance": "0.05"}
    [again] = found.explained_by.explain([found.text], target="year", tol=0.05)
    assert widget.page == again.html()
    widget.choice = {"class": "number", "method": "lrp"}
    assert (widget.page, widget.state) == ("", "bad")
    assert "lrp has no rule for the operation '_softmax'" in widget.status
    widget.choice = {"method": "shapley"}
    assert "These are the numbers of shapley" in widget.page


def test_the_scale_of_a_question_stays() -> None:
    found = question()
    assert found.scale == "probability"
    assert found.explained_by is not None
    [logit] = found.explained_by.explain([found.text], score="logit")
    assert logit.scale == "logit"
    widget = logit.widget()
    widget.choice = {"method": "lrp"}  # which has rules for logits
    assert "These are the numbers of lrp" in widget.page
    assert "number (logit)" in widget.page


def test_another_output_and_method_of_a_molecule() -> None:
    found = molecule()
    assert found.explained_by is not None
    widget = found.widget()
    assert offered(widget) == {
        "class": ["active", "toxic"],
        "method": list(OF_MOLECULES),
        "tolerance": ["0.2", "0.05", "0.01", "0.001"],
    }
    widget.choice = {"class": "toxic", "tolerance": "0.05"}
    assert widget.page == found.explained_by.explain([found.mol], target="toxic", tol=0.05)[0].page()
    widget.choice = {"class": "active", "method": "deeplift"}
    assert "These are the numbers of deeplift" in widget.page
    by_method = found.explained_by.explain([SMILES], target="active", method=DeepLift())[0]
    assert by_method.total == pytest.approx(by_method.change, abs=1e-5)
    with pytest.raises(InputError, match="made with method="):
        by_method.widget()


def test_a_model_of_your_own_is_asked_by_integrated_gradients_alone() -> None:
    found = molecule()

    class Own:
        """What the protocol asks for, and no more."""

        name, source, outputs = "own", "here", ("active",)

        def predict(self, some: Any) -> Any:
            raise NotImplementedError

        def explain(self, some: Any, **options: Any) -> Any:
            return found.explained_by.explain(some, **options | {"target": "active"})  # type: ignore[union-attr]

    widget = replace(found, explained_by=Own()).widget()
    assert list(offered(widget)) == ["tolerance"]
    widget.choice = {"tolerance": "0.2"}
    assert widget.title.startswith(("Active", "Not active"))


# ---- what cannot be asked again --------------------------------------------------------------------------------------------


def test_results_from_elsewhere_say_what_to_do() -> None:
    read = WordAttribution.of_details(question().row().details)
    assert read == question()
    for one in (read, pickle.loads(pickle.dumps(question())), copy.copy(question()), copy.deepcopy(molecule())):
        assert one.explained_by is None
        with pytest.raises(InputError, match=r"does not hold the model that explained it.*Explain it again: .*widget\(\)"):
            one.widget()
    with pytest.raises(InputError, match=r"does not hold its baseline; .* Explain the photo again"):
        replace(photo(), starts=None).widget()
    assert "explained_by" not in repr(question())
    assert "explained_by" not in (question().row().details or "")
    assert "explained_by" not in molecule().to_dict()


def test_notes_on_methods_say_what_they_do_not_promise() -> None:
    assert method_note(GradientTimesInput()).endswith("they need not add up to the change of the score.")
    assert method_note(DeepLift()) == (
        "These are the numbers of deeplift, and not of integrated gradients. It does not promise sensitivity-b or "
        "implementation-invariance or symmetry."
    )


# ---- the static view -------------------------------------------------------------------------------------------------------


def test_a_page_that_is_too_large_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "LARGEST", 1000)
    shown = question()._repr_html_()
    assert shown.startswith(question()._small_html_())
    assert "The interactive page has" in shown
    assert "and a notebook takes in 1000 bytes; save(&quot;page.html&quot;) writes it to a file." in shown
    assert "<iframe" not in shown


def test_a_question_is_written_to_a_file(tmp_path: Path) -> None:
    assert question().save(tmp_path / "page.html").read_text(encoding="utf-8") == question().html()


def test_a_page_that_cannot_be_made_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Any) -> str:
        from integrand.errors import MissingExtraError

        raise MissingExtraError("scikit-image", "superpixels", "regions")

    monkeypatch.setattr(WordAttribution, "html", missing)
    shown = question()._repr_html_()
    assert shown.startswith(question()._small_html_())
    assert "pip install &#x27;integrand[superpixels]&#x27;" in shown
