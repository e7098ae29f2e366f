"""Every room with its real network: what it says, shows and hands out, and that its code gives the same."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from integrand.apps import networks, tables
from integrand.apps.photos import read_data
from integrand.apps.tables.data_frames import rows_of_table
from integrand.serving.jobs import Job, Refused, Stopped
from integrand.serving.language_rooms import HuggingFaceModel, WordRoom
from integrand.serving.picture_rooms import EyeRoom, stem_of
from integrand.serving.room import Asked, ModelShelf, RoomJob, RoomResult, Store
from integrand.serving.room_files import RoomFiles
from tests.apps.text.tiny import classifier

ROOT = Path(__file__).resolve().parents[2]
CAT = (ROOT / "examples" / "cat.jpg").read_bytes()


def uploads(data=CAT, name="cat.jpg"):
    found = Store(size=lambda one: len(one[0]), most_bytes=1 << 30, seconds=60)
    return found, found.add((data, name))


def results():
    return Store(size=lambda one: 1, most_bytes=1 << 20, seconds=60)


def worked(room, action="explain", *, photo=None, seconds=60.0, **values):
    """The events of a request, and the last result."""
    kept, key = uploads(*(photo or ()))
    if any(field.kind == "photo" for field in room.fields) and "photo" not in values:
        values["photo"] = key
    asked, shown = room.checked(values, kept), results()
    job = Job(None, seconds=seconds, keep=shown.add)
    job.run(lambda task, job: getattr(room, action)(asked, RoomJob(job)))
    said = [json.loads(line) for line in job._lines]
    ids = [one["id"] for one in said if one["event"] == "result"]
    return said, shown.get(ids[-1]) if ids else None


def failure(said):
    [one] = [one for one in said if one["event"] == "failed"]
    return one["message"]


def ran(found: RoomResult, folder, monkeypatch, **names):
    """What the code of a result leaves in its variables, given some."""
    (folder / "cat.jpg").write_bytes(CAT)
    monkeypatch.chdir(folder)
    exec(compile(found.code, "code.py", "exec"), names)
    return names


@pytest.fixture(scope="module")
def explained(small):
    """A photo explained to 1% by a small network: its events, and the last result."""
    return worked(small, tol="1%")


class TestPhoto:
    def test_the_answer_comes_first_then_a_coarse_result_then_the_exact_one(self, explained):
        said, _ = explained
        kinds = [one["event"] for one in said]
        assert kinds[0] == "answers"
        assert [one["final"] for one in said if one["event"] == "result"] == [False, True]
        first, last = (one["trust"]["says"] for one in said if one["event"] == "result")
        assert "20% was asked for" in first
        assert "1% was asked for" in last or "exact" in last

    def test_the_answers_are_those_of_the_network(self, rooms):
        said, _ = worked(rooms["photo"], tol="20%")
        network = networks.load()
        with torch.no_grad():
            chances = network.module(network.preprocess(read_data(CAT, "cat.jpg").pixels)).softmax(1)[0]
        best = chances.argsort(descending=True)[:5].tolist()
        assert [one["label"] for one in said[0]["choices"]] == [network.label(k) for k in best]
        assert [one["probability"] for one in said[0]["choices"]] == pytest.approx(chances[best].tolist(), rel=1e-4)
        assert said[0]["chosen"] == network.label(best[0])
        errors = [one["error"] for one in said if one["event"] == "progress" and one["error"] is not None]
        assert errors  # told while it falls
        assert errors[-1] < 0.2

    @pytest.mark.filterwarnings("ignore::integrand.errors.BaselineWarning")  # of a network that was never trained
    def test_page_picture_numbers_and_code(self, explained, small, tmp_path, monkeypatch):
        _, found = explained
        assert found.page.startswith("<!doctype html>")
        assert found.picture()[:8] == b"\x89PNG\r\n\x1a\n"
        numbers = json.loads(json.dumps(found.numbers()))
        again = ran(found, tmp_path, monkeypatch, network=small.networks["mine"])["result"]
        assert again.numbers()["regions"] == numbers["regions"]
        assert again.numbers()["certificate"] == numbers["certificate"]
        assert found.stem == "cat"

    def test_what_is_wrong_is_said_in_the_users_words(self, rooms):
        room = rooms["photo"]
        assert "Did you mean" in (text := failure(worked(room, target="tabbby")[0])) or "tabby" in text
        assert "not a photo" in failure(worked(room, photo=(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.svg"))[0])
        assert "empty" in failure(worked(room, photo=(b"", "a.jpg"))[0])
        assert "a.jpg" in failure(worked(room, photo=(b"\x00\x01nonsense", "a.jpg"))[0])
        said = failure(worked(room, photo=(CAT[: len(CAT) // 2], "half.jpg"))[0])
        assert said.startswith("half.jpg")

    def test_who_leaves_stops_the_integration(self, rooms):
        kept, key = uploads()
        asked = rooms["photo"].checked({"photo": key, "tol": "0.1%"}, kept)
        job = Job(None, keep=results().add)
        job.begun = time.monotonic()
        job.stop()
        with pytest.raises(Stopped):
            rooms["photo"].explain(asked, RoomJob(job))

    def test_example_photos_are_photos(self, rooms):
        for name in ("photo", "eye"):
            for one in rooms[name].examples:
                data, _ = rooms[name].example_photo(one["photo"])
                assert data[:3] == b"\xff\xd8\xff"
        with pytest.raises(Refused, match="no example"):
            rooms["photo"].example_photo("../../etc/passwd")


class TestSmallNetwork:
    """What does not hang on which network it is, with one that takes no time."""

    def test_the_classes_are_those_that_were_given(self, small):
        said, found = worked(small, tol="1%")
        assert {one["label"] for one in said[0]["choices"]} == {"red", "green", "blue"}
        assert any("preprocessing is assumed" in note for note in found.numbers()["notes"])
        assert not small.examples

    def test_another_class_against_a_third(self, small):
        said, found = worked(small, target="green", rival="blue", baseline="white", tol="1%")
        assert said[0]["chosen"] == "green"
        assert found.numbers()["explained"]["label"] == "green"
        assert found.numbers()["rival"]["answer"]["label"] == "blue"
        assert found.numbers()["baseline"] == "white"
        assert "target='green', baseline='white', rival='blue', tol=0.01" in found.code

    def test_methods_and_baselines(self, small):
        _, found = worked(small, "methods", target="green")
        assert {"integrated gradients", "lrp"} <= {name.partition(" (")[0] for name in found.numbers()["methods"]}
        assert "<img" in found.page
        _, found = worked(small, "baselines", target="green")
        assert [row["name"] for row in found.numbers()["rows"]][:2] == ["black", "white"]

    def test_when_the_time_ends_the_coarse_result_stays(self, small, monkeypatch):
        finals = []

        def shown(self, found, *, final=True):
            finals.append(final)
            self.job.begun = -1e9  # from now on the job is late

        monkeypatch.setattr(RoomJob, "show", shown)
        said, _ = worked(small, tol="0.1%")
        assert finals == [False]
        [kept] = [one for one in said if one["event"] == "kept"]
        assert "coarse" in kept["message"]
        assert said[-1]["event"] == "done"

    def test_an_eye_is_graded_and_the_notice_stands_on_the_page(self, rooms):
        grader = rooms["eye"].graders["grader"]
        module = torch.nn.Sequential(torch.nn.AvgPool2d(32), torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5)).eval()
        room = EyeRoom(shown={})
        room.graders = ModelShelf({"grader": lambda: replace(grader, network=replace(grader.network, module=module))})
        eye = (ROOT / "examples" / "eye.jpg").read_bytes()
        said, found = worked(room, photo=(eye, "eye.jpg"), tol="20%", target="referable")
        assert re.match(r"Grade \d of 4|Between grades", said[0]["said"])
        assert len(said[0]["choices"]) == 5
        assert sum(one["probability"] for one in said[0]["choices"]) == pytest.approx(1)
        assert room.notice in found.page
        assert "Not a medical device" in room.notice
        assert "grader.examine('eye.jpg', target='referable', baseline='blurred', tol=0.2)" in found.code
        inquiry, _, _ = room._inquiry(Asked({"baseline": "black"}, (eye, "eye.jpg")))
        assert list(inquiry.candidates) == ["black", "retina", "blurred", "average"]


class TestWords:
    def test_explained(self, rooms, tmp_path, monkeypatch):
        said, found = worked(rooms["words"], text="how many medals did Norway win?")
        assert said[0]["choices"][0]["label"] == "number"
        assert [one["final"] for one in said if one["event"] == "result"] == [True]
        again = ran(found, tmp_path, monkeypatch)["result"]
        words = found.numbers()
        assert again.values == pytest.approx([one["value"] for one in words["tokens"]])

    def test_another_class_and_network(self, rooms):
        said, found = worked(rooms["words"], text="Who wrote Emma?", target="Location", model="trec")
        assert said[0]["chosen"] == "location"
        assert found.title == "location"

    def test_methods_and_baselines(self, rooms, tmp_path, monkeypatch):
        text = "how many medals did Norway win?"
        _, found = worked(rooms["words"], "methods", text=text, tol="5%")
        assert {"integrated gradients", "deeplift", "lrp"} <= {name.partition(" (")[0] for name in found.numbers()["methods"]}
        assert "medals" in found.page
        again = ran(found, tmp_path, monkeypatch)["asked"].compare_methods(tol=0.05).to_dict()
        assert "compare_methods(tol=0.05)" in found.code
        said, there = (one["methods"]["integrated gradients"] for one in (again, found.numbers()))
        assert {k: v for k, v in said.items() if k != "seconds"} == {k: v for k, v in there.items() if k != "seconds"}
        _, found = worked(rooms["words"], "baselines", text=text)
        assert [row["name"] for row in found.numbers()["rows"]] == ["zero", "mean word", "unknown word"]
        names = ran(found, tmp_path, monkeypatch)
        assert names["asked"].label == "number"

    @pytest.mark.parametrize(("text", "said"), [("   ", "nothing here yet"), ("x" * 2001, "up to 2,000")])
    def test_too_little_and_too_much(self, rooms, text, said):
        with pytest.raises(Refused, match=said):
            worked(rooms["words"], text=text)

    def test_hostile_texts_stay_texts(self, rooms):
        text = "<script>alert(1)</script> how many </textarea> \"quotes\" '''?"
        _, found = worked(rooms["words"], text=text)
        assert "<script>alert" not in found.page
        compile(found.code, "code.py", "exec")
        assert repr(text) in found.code

    def test_a_model_of_hugging_face(self):
        model, tokenizer = classifier("bert")
        room = WordRoom({"mine": lambda: HuggingFaceModel(model, tokenizer, ("# loads it",))}, own=True)
        text = "a good film"
        said, found = worked(room, text=text)
        with torch.no_grad():
            chances = model(**tokenizer(text, return_tensors="pt")).logits.softmax(1)[0]
        assert said[0]["choices"][0]["probability"] == pytest.approx(float(chances.max()), rel=1e-5)
        assert found.code.startswith("# loads it")
        _, found = worked(room, "methods", text=text)
        assert "integrated gradients" in " ".join(found.numbers()["methods"])
        _, found = worked(room, "baselines", text=text)
        assert "zero" in [row["name"] for row in found.numbers()["rows"]]


class TestTranslation:
    def test_explained(self, rooms):
        said, found = worked(rooms["translation"], text="good morning")
        assert said[0]["said"].startswith("Guten Morgen")
        assert [one["text"] for one in found.numbers()["outputs"]][:2] == ["Guten", "Morgen"]

    def test_methods_and_baselines_of_one_piece(self, rooms):
        _, found = worked(rooms["translation"], "methods", text="good morning", output="2", tol="5%")
        assert len(found.numbers()["methods"]) == 3
        _, found = worked(rooms["translation"], "baselines", text="good morning", output="2")
        assert "output=1" in found.code
        for wrong in ("0", "x", "99"):
            said, _ = worked(rooms["translation"], "baselines", text="good morning", output=wrong)
            assert re.search("from 1 on|from 0 on", failure(said))


class TestMolecule:
    def test_explained(self, rooms, tmp_path, monkeypatch):
        said, found = worked(rooms["molecule"], smiles="CC(=O)Oc1ccccc1C(=O)O")
        assert said[-2]["trust"]["grade"] == "good"
        again = ran(found, tmp_path, monkeypatch)["result"]
        assert again.to_dict() == found.numbers()
        assert found.picture()[:4] == b"\x89PNG"

    def test_what_is_no_molecule_is_said_with_the_place(self, rooms):
        said, _ = worked(rooms["molecule"], smiles="CC(=O)Oc1ccccc1C(=O")
        assert "CC(=O)Oc1ccccc1C(=O" in failure(said)
        said, _ = worked(rooms["molecule"], smiles="CN(C)(C)(C)C")
        assert "N" in failure(said)

    def test_methods_and_baselines(self, rooms):
        _, found = worked(rooms["molecule"], "methods", smiles="CCO")
        assert "integrated gradients" in found.numbers()["methods"]
        assert "C0–C1" in found.page
        _, found = worked(rooms["molecule"], "baselines", smiles="C")
        assert [row["name"] for row in found.numbers()["rows"]] == ["zero", "mean atom"]


class TestTable:
    def test_explained(self, rooms, tmp_path, monkeypatch):
        said, found = worked(rooms["table"], table="diabetes", row="3")
        trained = tables.load("diabetes")
        x = tables.TableExplainer.of(trained.module, trained.frame, columns=trained.columns)._entry.tensors(
            rows_of_table(trained.frame.loc[[3]])
        )[0]
        [answer] = [one["said"] for one in said if one["event"] == "answers"]
        assert answer == f"disease progression {float(trained.module(x)):.3g}"
        [row] = found.numbers()["rows"]
        added = row["baseline_score"] + sum(one["value"] for one in row["columns"])
        assert added == pytest.approx(float(trained.module(x)), rel=1e-4)
        assert [one["cell"] for one in row["columns"]] == trained.frame.loc[3].tolist()
        again = ran(found, tmp_path, monkeypatch)["result"]
        assert again.numbers() == found.numbers()
        assert found.picture()[:4] == b"\x89PNG"
        assert "not for decisions about people" in found.page
        assert rooms["table"].notice

    def test_a_changed_row_is_that_row_with_these_cells(self, rooms, tmp_path, monkeypatch):
        said, found = worked(rooms["table"], table="diabetes", row="3", changes="BMI = 35; sex=2,")
        trained = tables.load("diabetes")
        other = trained.frame.copy()
        other.loc[3, ["bmi", "sex"]] = [35.0, 2.0]
        # The baseline stays that of the table as it is.
        expected = tables.explain(
            trained.module, other, tables.mean(trained.frame), columns=trained.columns, rows=[3], classes=[trained.output]
        )
        [row] = found.numbers()["rows"]
        assert [one["value"] for one in row["columns"]] == pytest.approx(expected.values[0].tolist(), rel=1e-6)
        assert {one["name"]: one["cell"] for one in row["columns"]}["bmi"] == 35
        assert found.title.startswith("Row 3, changed: disease progression")
        assert said[-1]["notes"] == []
        assert ran(found, tmp_path, monkeypatch)["result"].numbers() == found.numbers()

    def test_rather_than_another_row_and_from_a_sample(self, rooms, tmp_path, monkeypatch):
        _, found = worked(rooms["table"], table="diabetes", row="3", rival="5")
        trained = tables.load("diabetes")
        [row] = found.numbers()["rows"]
        assert row["baseline_score"] == pytest.approx(float(trained.explain(rows=5).scores[0]), rel=1e-6)
        assert ran(found, tmp_path, monkeypatch)["result"].numbers() == found.numbers()
        _, found = worked(rooms["table"], table="diabetes", row="3", baseline="100 rows drawn at random")
        assert found.numbers()["baseline"] == "100 rows drawn from 442"
        assert ran(found, tmp_path, monkeypatch)["result"].numbers() == found.numbers()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"row": "442"}, "from 0 to 441"),
            ({"row": "-1"}, "from 0 to 441"),
            ({"row": "²"}, "from 0 to 441"),
            ({"rival": "x"}, "Rather than row: got 'x'"),
            ({"rival": "3"}, "the row itself"),
            ({"changes": "bmi"}, "such as bmi = 35"),
            ({"changes": "bmi = 31,5"}, "got '5'"),
            ({"changes": "bmj = 3"}, "Did you mean bmi"),
            ({"changes": "<b> = 3"}, "It has age, sex"),
            ({"changes": "sex = 3"}, "expected 1 or 2"),
            ({"changes": "bmi = nan"}, "expected a number"),
            ({"changes": "bmi = 1e40"}, "expected a number"),
            ({"changes": "bmi = 3, BMI = 4"}, "comes twice"),
        ],
    )
    def test_what_cannot_be_done_is_said(self, rooms, given, said):
        told, _ = worked(rooms["table"], **{"table": "diabetes", "row": "3", **given})
        assert said in failure(told)

    def test_what_the_network_never_saw_is_said(self, rooms):
        said, _ = worked(rooms["table"], table="diabetes", row="3", changes="bmi = 900")
        [note] = said[-1]["notes"]
        assert "bmi goes from 18 to 42.2" in note

    def test_methods_and_baselines(self, rooms, tmp_path, monkeypatch):
        _, found = worked(rooms["table"], "methods", row="86")
        assert {"integrated gradients", "gradient"} <= set(found.numbers()["methods"])
        assert "worst texture" in found.page
        [ours] = tables.load().explain(rows=86).values
        asked = ran(found, tmp_path, monkeypatch)["asked"]
        again = asked.compare_methods(methods=["integrated-gradients"]).attributions["integrated gradients"]
        assert np.asarray(again.values[0]) == pytest.approx(ours, rel=0.02, abs=1e-3)
        _, found = worked(rooms["table"], "baselines", row="86")
        rows = found.numbers()["rows"]
        assert [row["name"] for row in rows] == ["the column means", "the column medians", "20 rows"]
        compile(found.code, "code.py", "exec")


@pytest.mark.parametrize("given", [[], "x", None, {"tol": 3}, {"tol": "1 %"}, {"nonsense": "x"}, {"model": "os.system"}])
def test_settings_that_no_form_has_are_refused(rooms, given):
    whole = {"text": "how many?", **given} if isinstance(given, dict) else given
    with pytest.raises(Refused):
        rooms["words"].checked(whole, uploads()[0])


def test_a_model_is_loaded_once_however_many_ask():
    from concurrent.futures import ThreadPoolExecutor

    loaded = []

    def load():
        time.sleep(0.05)
        loaded.append(1)
        return object()

    shelf = ModelShelf({"one": load})
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: id(shelf["one"]), range(16)))
    assert len(found) == 1
    assert loaded == [1]


def test_a_result_does_not_hold_the_whole_photo(small):
    """A photo of 12 million pixels, black: a few bytes to send, 36 MB decoded."""
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (4000, 3000)).save(file, "PNG")
    _, found = worked(small, photo=(file.getvalue(), "large.png"), tol="20%")
    held = found.numbers.__self__
    assert held.photo.pixels.nbytes < 1_000_000
    assert RoomFiles.of(found).size > sum(part.numel() * 4 for part in (held.x, held.result.values, held.gradient.values))


class TestStore:
    def test_what_nobody_asks_for_goes_by_itself(self):
        kept = Store(size=len, most_bytes=1 << 20, seconds=0.02)
        kept.add("a")
        time.sleep(0.05)
        assert len(kept) == 1
        kept.sweep()
        assert len(kept) == 0

    def test_empty_things_count_too(self):
        kept = Store(size=len, most_bytes=100 * Store.EACH, seconds=60)
        for _ in range(300):
            kept.add("")
        assert len(kept) == 100

    def test_what_is_not_asked_for_is_forgotten_first(self):
        kept = Store(size=len, most_bytes=10 + 2 * Store.EACH, seconds=60)
        first, second = kept.add("aaaa"), kept.add("bbbb")
        assert kept.get(first) == "aaaa"
        third = kept.add("cccc")
        assert [kept.get(key) for key in (first, second, third)] == ["aaaa", None, "cccc"]

    def test_time_passes(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr("integrand.serving.room.time.monotonic", lambda: now[0])
        kept = Store(size=len, most_bytes=10_000, seconds=60)
        key = kept.add("a")
        now[0] = 59.0
        assert kept.get(key) == "a"
        now[0] = 118.0
        assert kept.get(key) == "a"
        now[0] = 179.0
        assert kept.get(key) is None

    def test_keys_cannot_be_guessed(self):
        kept = Store(size=len, most_bytes=1 << 20, seconds=60)
        keys = {kept.add("x") for _ in range(100)}
        assert len(keys) == 100
        assert min(map(len, keys)) >= 20


@pytest.mark.parametrize(
    ("name", "stem"), [("a b.JPG", "a-b"), ("../../x.png", "x"), ("…", "photo"), ("Ä ü.jpg", "Ä-ü"), ("C:\\x\\y.jpg", "y")]
)
def test_names_of_files(name, stem):
    assert stem_of(name) == stem


def test_a_result_without_a_certificate_says_nothing_of_trust():
    blank = RoomResult("", "", "", None, bytes, dict, "")
    assert blank.trust is None
    assert replace(blank, title="x").title == "x"


def test_inquiries_ask_what_the_applications_ask(rooms):
    """The sums of integrated gradients over an inquiry are those of the application, on the same scale."""
    model = rooms["words"].models["wtq"].classifier
    text = "how many medals did Norway win?"
    asked = model.inquiry(text)
    found = asked.compare_methods(methods=["integrated-gradients"])
    [one] = model.explain([text], score="logit")
    assert np.asarray(found.attributions["integrated gradients"].values[0]) == pytest.approx(one.values, rel=0.02, abs=1e-3)
