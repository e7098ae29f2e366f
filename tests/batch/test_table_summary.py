"""A table in numbers, next to the same numbers by pandas; and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integrand.batch import ExplainedTable, Row, table_export, table_summary
from integrand.batch.table_summary import QuantileSearch, ReasonCounter, TableSummary
from integrand.errors import OptionError
from integrand.render.table_data import FAR, REASONS
from tests.batch.tables import asked_questions, made, molecule_rows, photo_rows
from tests.conftest import DATA

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> ExplainedTable:
    """Real questions, explained."""
    known = DATA / "questions" / "trec" / "TREC.test.all"
    return asked_questions(known if known.exists() else None, tmp_path_factory.mktemp("questions")).table


@pytest.fixture(scope="module")
def said(questions: ExplainedTable) -> TableSummary:
    return questions.summary(label="class")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ExplainedTable:
    folder = tmp_path_factory.mktemp("gallery")
    (folder / "pages").mkdir()
    (folder / "pages" / "40.html").write_text("a page")
    made(folder / "table", photo_rows(), title="Photos")
    return ExplainedTable.open(folder)


@pytest.fixture(scope="module")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> ExplainedTable:
    return made(tmp_path_factory.mktemp("molecules"), molecule_rows())


def words_of(table: ExplainedTable, names: str = "features", values: str = "attributions") -> Any:
    """One row for each word of each input, by pandas: what comes twice is added up."""
    frame = table.pandas().dropna(subset=[names])
    long = frame[["key", "prediction", names, values]].explode([names, values])
    long[values] = long[values].astype(float)
    return long.groupby(["key", "prediction", names], as_index=False)[values].sum()


def test_counts_are_those_of_pandas(questions: ExplainedTable, said: TableSummary) -> None:
    frame = pd.read_parquet(questions.folder)
    counted = frame["status"].value_counts().to_dict()
    assert dict(said.statuses) == counted
    assert said.total == len(frame) == len(questions)
    assert said.failed == counted["failed"] > 0
    own = frame[frame["status"] != "failed"].groupby("prediction")["probability"].agg(["count", "mean"])
    assert {one.name: one.inputs for one in said.classes} == own["count"].to_dict()
    assert {one.name: one.probability for one in said.classes} == pytest.approx(own["mean"].to_dict(), rel=1e-12)
    assert said.evaluations == frame["evaluations"].sum()


def test_words_are_those_of_pandas(questions: ExplainedTable, said: TableSummary) -> None:
    long = words_of(questions)
    grouped = long.groupby("features")["attributions"]
    expected = pd.DataFrame(
        {"inputs": grouped.count(), "total": grouped.sum(), "size": grouped.apply(lambda one: one.abs().sum())}
    )
    assert said.distinct_features == len(expected)
    for one in said.features:
        row = expected.loc[one.name]
        assert one.inputs == row["inputs"]
        assert (one.total, one.size) == (pytest.approx(row["total"], abs=1e-9), pytest.approx(row["size"], abs=1e-9))
        assert one.mean == one.total / one.inputs
    largest = expected.sort_values("size", ascending=False)["size"].to_list()
    assert [one.size for one in said.features] == pytest.approx(largest[: len(said.features)], abs=1e-9)
    for kind in said.classes:
        own = long[long["prediction"] == kind.name].groupby("features")["attributions"].sum()
        assert {one.name: one.total for one in kind.features} == pytest.approx(
            {one.name: own[one.name] for one in kind.features}, abs=1e-9
        )


def test_right_and_wrong_are_those_of_pandas(questions: ExplainedTable, said: TableSummary) -> None:
    frame = questions.pandas()
    frame = frame[frame["status"] != "failed"]
    truth = said.truth
    assert truth is not None
    assert (truth.compared, truth.right) == (len(frame), int((frame["class"] == frame["prediction"]).sum()))
    assert dict(truth.confusion) == frame.groupby(["class", "prediction"]).size().to_dict()
    long = words_of(questions)
    wrong = set(frame[frame["class"] != frame["prediction"]]["key"])
    assert bool(truth.features) == bool(wrong)
    for one in truth.features:
        own = long[long["features"] == one.wrong.name]
        for tally, kept in ((one.wrong, own["key"].isin(wrong)), (one.right, ~own["key"].isin(wrong))):
            assert tally.inputs == int(kept.sum())
            assert tally.total == pytest.approx(own[kept]["attributions"].sum(), abs=1e-9)


def test_quantiles_are_values_that_occur(questions: ExplainedTable, said: TableSummary) -> None:
    frame = questions.pandas()
    frame = frame[frame["status"] != "failed"]
    figures = {
        "error / tolerance": frame["error"] / frame["tol"],
        "evaluations": frame["evaluations"].astype(float),
        "probability": frame["probability"],
        "score": frame["score"],
        "change of the score": (frame["score"] - frame["baseline_score"]).abs(),
        "magnitude": frame["magnitude"],
    }
    for name, values in figures.items():
        one = said.distributions[name]
        known = values.dropna().to_numpy()
        expected = np.quantile(known, table_summary.SHARES, method="lower")
        assert list(one.quantiles) == expected.tolist(), name
        assert (one.low, one.high, one.count) == (known.min(), known.max(), len(known))
        assert sum(one.counts) == one.count
        inner = np.histogram(known, one.edges)[0]
        assert list(one.counts[1:-1]) == inner[1:-1].tolist(), name  # the outermost hold what is beyond them too


def test_quantiles_of_all_kinds_of_numbers() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 1e3, 999), [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308], np.full(50, 3.25)])
    search = QuantileSearch((0.0, 0.05, 0.5, 0.95, 1.0))
    for _ in range(QuantileSearch.STEPS):
        for some in np.array_split(np.concatenate([values, [math.nan]]), 7):
            search.feed(some)
        search.step()
    assert list(search.quantiles()) == np.quantile(values, search.shares, method="lower").tolist()
    assert search.count == len(values)


def test_maps_are_averages(photos: ExplainedTable) -> None:
    found = photos.summary(label="label")
    rows = [row for row in photo_rows() if row.ok]
    assert found.mapped == len(rows)
    assert found.mean_map is not None
    np.testing.assert_allclose(found.mean_map, np.mean([row.attributions.astype(float) for row in rows], 0), atol=1e-12)
    for one in found.classes:
        own = [row.attributions.astype(float) for row in rows if row.prediction == one.name]
        assert one.inputs == len(own)
        np.testing.assert_allclose(one.mean_map, np.mean(own, 0), atol=1e-12)
    wrong = [row.attributions.astype(float) for row in rows if row.prediction != row.columns["label"]]
    assert found.truth is not None
    assert found.truth.compared - found.truth.right == len(wrong) > 0
    np.testing.assert_allclose(found.truth.mean_map, np.mean(wrong, 0), atol=1e-12)
    assert found.features == ()


def test_groups_and_elements(molecules: ExplainedTable) -> None:
    found = molecules.summary()
    expected = words_of(molecules, "groups", "group_sums").groupby("groups")["group_sums"].agg(["count", "sum"])
    assert {one.name: (one.inputs, pytest.approx(one.total)) for one in found.groups} == {
        name: (int(row["count"]), row["sum"]) for name, row in expected.iterrows()
    }
    assert found.groups[0].name == "nitro group"
    assert "group that mattered most in all: nitro group" in found.sentence
    # Atoms have other numbers in every molecule: what recurs is the element.
    assert found.part == "element"
    assert {one.name for one in found.features} == {"C", "N", "O", "Cl"}
    long = words_of(molecules)
    long["element"] = long["features"].str.replace(r"\d", "", regex=True)
    sums = long.groupby("element")["attributions"].sum()
    assert {one.name: one.total for one in found.features} == pytest.approx(sums.to_dict())
    assert [(one.text, one.inputs) for one in found.notes] == [("has the element Si, which the network never saw", 3)]


def test_numbers_in_labels_are_compared_with_those_in_predictions(tmp_path: Path) -> None:
    rows = [
        Row(str(i), f"grade {i % 4}", status="exact", columns={"level": float(i % 3) if i else math.nan}) for i in range(24)
    ]
    truth = made(tmp_path, rows).summary(label="level").truth
    assert truth is not None
    assert truth.by == "by the number in the prediction"
    assert (truth.compared, truth.right) == (23, sum(i % 3 == i % 4 for i in range(1, 24)))


def test_labels_of_0_and_1_are_no_and_yes(molecules: ExplainedTable) -> None:
    truth = molecules.summary(label="measured").truth
    frame = molecules.pandas()
    assert truth is not None
    assert truth.by == "with 1 for 'active' and 0 for 'not active'"
    assert truth.right == int(((frame["prediction"] == "active") == (frame["measured"] == 1)).sum())
    assert set(truth.confusion) <= {(one, other) for one in ("active", "not active") for other in ("active", "not active")}


def test_labels_that_are_no_predictions_are_refused(photos: ExplainedTable, tmp_path: Path) -> None:
    rows = [Row(str(i), f"colour {'abc'[i % 3]}", status="exact", columns={"seen": "red"}) for i in range(9)]
    with pytest.raises(OptionError, match=r"none of whose values \(red\) is a prediction .*colour a.*expected the same words"):
        made(tmp_path, rows).summary(label="seen")
    with pytest.raises(OptionError, match=r"got the label column 'truth'; expected one that was carried .*'label'"):
        photos.summary(label="truth")


def test_what_is_far_from_the_rest_is_listed(photos: ExplainedTable) -> None:
    found = photos.summary(label="label")
    kinds = {kind: [one for one in found.listed if any(why == kind for why, _ in one.why)] for kind in REASONS}
    far = max(kinds["far from the rest"], key=lambda one: max(one.figures.values()))
    assert far.key == "photos/40.jpg"
    assert dict(far.why)["far from the rest"].startswith("score ")
    assert max(far.figures.values()) > 100
    assert all(max(one.figures.values()) >= FAR for one in kinds["far from the rest"])
    assert {one.key for one in found.listed if one.figures} == {one.key for one in kinds["far from the rest"]}
    rows = [row for row in photo_rows() if row.ok]
    ratio = {row.key: row.error for row in rows if row.error is not None}
    worst = sorted(ratio, key=lambda key: -ratio[key])
    assert [one.key for one in found.worst] == worst[: table_summary.LISTED]
    assert {one.key for one in kinds["largest error"]} == {one.key for one in found.worst}
    assert not found.listed[0].badness[0] or found.listed[0].key == worst[0]
    chance = {row.key: row.probability or 0.0 for row in rows}
    least = sorted(chance, key=lambda key: chance[key])[: table_summary.LEAST_PROBABLE]
    assert {one.key for one in kinds["least probable"]} == set(least)
    assert {one.key for one in kinds["failed"]} == {row.key for row in photo_rows() if not row.ok}
    assert {one.key for one in kinds["not as labelled"]} == {row.key for row in rows if row.prediction != row.columns["label"]}
    assert len({one.key for one in found.listed}) == len(found.listed)


def test_an_input_that_is_only_a_number_says_what_it_is(said: TableSummary, photos: ExplainedTable) -> None:
    one = next(one for one in said.listed if one.failure is None)
    assert one.name == f"{one.key}: {one.columns['question']}"
    assert photos.summary().listed[0].name.startswith("photos/")


def test_a_text_that_did_not_come_along_is_told_by_its_words(tmp_path: Path) -> None:
    row = Row(key="17", status="converged", prediction="person", features=("Who", "was", "he", "?"), attributions=np.ones(4))
    texts = made(tmp_path / "texts", [row], parts=1, command="questions").summary().listed[0]
    columns = made(tmp_path / "columns", [row], parts=1).summary().listed[0]
    assert (texts.name, columns.name) == ("17: Who was he ?", "17")


def test_pages_do_not_tell_where_the_inputs_lie(tmp_path: Path) -> None:
    keys = ("/home/ann/eyes/left/1.jpg", "/home/ann/eyes/2.jpg")
    rows = [Row(key=key, status="converged", prediction="grade 1", attributions=np.ones((4, 4))) for key in keys]
    found = made(tmp_path / "table", rows, parts=1).summary()
    assert sorted(one.name for one in found.listed) == ["2.jpg", "left/1.jpg"]
    found.save(tmp_path / "page.html")
    assert "/home/ann" not in (tmp_path / "page.html").read_text()


def test_failures_that_say_the_same_are_counted_together(photos: ExplainedTable) -> None:
    found = photos.summary()
    assert [(one.text[:14], one.inputs) for one in found.failures] == [("photos/11.jpg ", 3)]
    counter = ReasonCounter()
    for i in range(3 * table_summary.MOST_REASONS):
        counter.add("reason " + "x" * (i % 400) + "y" * (i // 400), "")
    counter.add("/" * 1_000_000, "a")  # a long message takes no longer
    assert len(counter._first) == table_summary.MOST_REASONS + 1


def test_a_page_of_its_own_is_linked_only_from_inside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out" / "pages").mkdir(parents=True)
    for name in ("elsewhere.html", "out/pages/a cat.html", "out/javascript:alert(1).html"):
        (tmp_path / name).write_text("x")
    told = ["pages/a cat.html", "../elsewhere.html", "https://example.org/a.html", str(tmp_path / "elsewhere.html")]
    details = [*({"page": one} for one in told), {"page": 3}, [], {"link": "pages/none.html"}]
    rows = [Row(str(i), status="exact", details=json.dumps(one)) for i, one in enumerate(details)]
    rows += [
        Row("column", status="exact", details="{", columns={"page": "pages/a cat.html"}),
        Row("odd", status="exact", details="{"),
        Row("script", details='{"page": "javascript:alert(1).html"}', status="exact"),
    ]
    table = made(tmp_path / "out" / "table", rows)
    found = ExplainedTable.open(tmp_path / "out").summary()
    links = {one.key: one.link for one in found.listed}
    assert links.pop("0") == links.pop("column") == "pages/a%20cat.html"
    assert links.pop("script") == "javascript%3Aalert%281%29.html"  # a file of that name, and no address
    assert set(links.values()) == {""}
    assert 'href="../out/pages/a%20cat.html"' in found.page(beside=tmp_path / "elsewhere")
    assert table.folder != found.folder


def test_many_names_take_more_passes_and_give_the_same(questions: ExplainedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = questions.summary(label="class")
    monkeypatch.setattr(table_summary, "MOST_NAMES", 20)
    monkeypatch.setattr(table_summary, "NAMED", 7)
    monkeypatch.setattr(table_summary, "NAMED_OF_CLASS", 5)
    found = questions.summary(label="class")
    assert found.features == whole.features[:7]
    assert found.strongest == whole.strongest[:7]
    assert found.distinct_features == whole.distinct_features
    assert [one.features for one in found.classes] == [one.features[:5] for one in whole.classes]
    assert found.truth is not None
    assert whole.truth is not None
    assert found.truth.features == whole.truth.features[:5]


def test_parts_and_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = photo_rows()
    one = made(tmp_path / "one", rows, parts=1).summary().numbers()
    monkeypatch.setattr(table_summary, "ROWS", 7)
    several = made(tmp_path / "several", rows, parts=5).summary().numbers()
    for found in (one, several):
        maps = [found.pop("mean_map"), *(kind.pop("mean_map") for kind in found["classes"])]
        found["maps"] = np.round(maps, 9).tolist()  # sums in another order
        found["title"] = ""
        for kind in found["classes"]:
            kind["probability"] = round(kind["probability"], 9)
    assert one == several


def test_features_without_names_are_told_by_their_places(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(20, 3))
    found = made(tmp_path, [Row(str(i), status="exact", attributions=row) for i, row in enumerate(values)]).summary()
    assert {one.name: one.total for one in found.features} == pytest.approx(
        {f"input [{i}]": values[:, i].sum() for i in range(3)}
    )
    assert all(one.inputs == 20 for one in found.features)
    assert len(found.listed[0].features) == 3


def test_predictions_that_are_no_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(str(i), f"Satz {i}", status="exact") for i in range(30)]
    table = made(tmp_path, rows)
    found = table.summary()
    assert (found.classes, found.predictions) == ((), 30)
    assert "30 different predictions" in found.page()
    monkeypatch.setattr(table_summary, "MOST_CLASSES", 10)
    assert (table.summary().classes, table.summary().predictions) == ((), None)


@pytest.mark.parametrize("rows", [[], [Row.failed("a", "no photo")], [Row("a", status="not complete", tol=0.01)]], ids=len)
def test_small_and_odd_tables(rows: list[Row], tmp_path: Path) -> None:
    found = made(tmp_path, rows).summary()
    assert found.total == len(rows)
    assert found.page().count("<main>") == 1
    json.dumps(found.numbers(), allow_nan=False)
    assert found.sentence in str(found)
    assert repr(found) == found.sentence


def test_tables_of_eyes_say_that_they_are_no_diagnosis(tmp_path: Path) -> None:
    from integrand.apps.retina.result import NOTICE

    rows = [Row("eye.png", "grade 2", status="exact", columns={"looks_like_a_retina": True})]
    found = made(tmp_path, rows).summary()
    assert found.heed == (NOTICE,)
    assert f'<p class="heed">{NOTICE}</p>' in found.page()


def test_it_saves_itself(molecules: ExplainedTable, photos: ExplainedTable, tmp_path: Path) -> None:
    found = molecules.summary()
    assert found.save() == molecules.folder / "_summary.html"
    assert found.save().read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(pd.read_parquet(molecules.folder)) == len(molecules)  # readers of the folder pass it by
    assert photos.summary().place == photos.folder.parent / "summary.html"
    numbers = json.loads(found.save(tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["sentence"] == found.sentence
    assert numbers["groups"][0]["mean"] == pytest.approx(found.groups[0].mean)
    with pytest.raises(OptionError, match=r"ends in \.html or \.json"):
        found.save(tmp_path / "numbers.txt")


# ---- as CSV ------------------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, str]]:
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(raw.decode("utf-8-sig").splitlines(keepends=True)))


def test_csv_has_a_line_for_each_input(questions: ExplainedTable, tmp_path: Path) -> None:
    assert questions.csv(tmp_path / "a.csv") == len(questions)
    frame = questions.pandas()
    found = pd.read_csv(tmp_path / "a.csv", keep_default_na=True)
    assert list(found.columns)[:4] == ["key", "prediction", "probability", "target"]
    assert list(found["score"].dropna()) == list(frame["score"].dropna())  # to the last digit
    assert list(found["question"].dropna()) == [text for text in frame["question"] if text]
    first = next(row for row in questions.rows() if row.ok and row.features is not None)
    own = next(line for line in lines_of(tmp_path / "a.csv") if line["key"] == first.key)
    assert first.features is not None
    assert own["features"].split("; ")[0].lstrip("'") == f"{first.features[0]}: {first.attributions[0]:+.4g}"


def test_long_csv_has_a_line_for_each_feature(molecules: ExplainedTable, tmp_path: Path) -> None:
    rows = list(molecules.rows())
    count = sum(len(row.features or ()) + len(row.groups or ()) for row in rows)
    assert molecules.csv(tmp_path / "a.csv", long=True) == count
    found = pd.read_csv(tmp_path / "a.csv")
    sums = found[found["kind"] == "group"].groupby("part")["contribution"].sum()
    assert sums.to_dict() == pytest.approx({one.name: one.total for one in molecules.summary().groups})
    failed = made(tmp_path / "one", [Row.failed("a", "no"), Row("b", status="exact", attributions=np.eye(2))])
    assert failed.csv(tmp_path / "b.csv", long=True, columns=["key", "failure"]) == 5
    lines = lines_of(tmp_path / "b.csv")
    assert [line["part"] for line in lines] == ["", "[0, 0]", "[0, 1]", "[1, 0]", "[1, 1]"]


HOSTILE = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", " =1", "\t=1", "＝1", "\r\n=1")


@pytest.mark.parametrize("long", [False, True])
def test_formulas_are_defused(long: bool, tmp_path: Path) -> None:
    rows = [
        Row(
            f"{text}{i}" if text[0] != "-" else f"-x{i}",
            text,
            target=text,
            status="exact",
            sentence=text,
            notes=(text,),
            features=(text, "plain"),
            attributions=np.array([-1.5, 2.0]),
            groups=(text,),
            group_sums=(0.5,),
            columns={text: text, "size": -3},
        )
        for i, text in enumerate(HOSTILE)
    ]
    rows.append(Row.failed("zuletzt: Größe", "=HYPERLINK()"))
    made(tmp_path / "table", rows).csv(tmp_path / "a.csv", long=long)
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file))
    for line in lines:
        for cell in line:
            begins = cell.lstrip().startswith(tuple("=+-@＝＋－＠"))
            try:
                float(cell or "0")
            except ValueError:
                assert not begins, cell
    size = lines[0].index("size")
    assert {line[size] for line in lines[1:]} == {"-3", ""}  # numbers stay numbers
    assert any("Größe" in line[0] for line in lines)


def test_cells_fit_into_a_spreadsheet(tmp_path: Path) -> None:
    many = tuple(f"word{i}" for i in range(9000))
    row = Row("k", "x" * 50_000, status="exact", features=many, attributions=np.ones(9000))
    made(tmp_path / "table", [row], parts=1).csv(tmp_path / "a.csv", columns=["prediction", "features"])
    (line,) = lines_of(tmp_path / "a.csv")
    assert max(map(len, line.values())) < 32_767
    kept = line["features"].split("; ")
    assert kept[-1] == f"… and {9000 - len(kept) + 1} more"


def test_columns_that_are_not_there(molecules: ExplainedTable, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="got the columns 'sore'; expected some of key, prediction"):
        molecules.csv(tmp_path / "a.csv", columns=["key", "sore"])
    assert not (tmp_path / "a.csv").exists()


def test_our_columns_give_way_to_those_of_the_input(tmp_path: Path) -> None:
    table = made(tmp_path / "t", [Row("a", status="exact", attributions=np.ones(1), columns={"part": "p"})])
    table.csv(tmp_path / "a.csv", long=True)
    (line,) = lines_of(tmp_path / "a.csv")
    assert (line["part"], line["integrand_part"]) == ("p", "[0]")


def test_fields_are_those_of_rows() -> None:
    """A column that the summary or the export reads is one that tables have."""
    known = {one.name for one in dataclasses.fields(Row)}
    assert {*table_export.READ, *table_export.READ_LONG} <= known


def test_what_a_stopped_retry_has_left_is_counted_once(tmp_path: Path) -> None:
    """A failure that was tried again, and the success beside it: the next run would leave the success alone."""
    failed, ok = Row.failed("a", "no"), Row("a", prediction="yes", status="converged")
    table = made(tmp_path / "t", [failed, Row("b", prediction="no", status="converged"), ok], parts=3)
    assert len(table.parts) == 3
    found = table.summary()
    assert (found.total, found.failed) == (2, 0)
    table.csv(tmp_path / "t.csv")
    assert [line.split(",")[0] for line in (tmp_path / "t.csv").read_text("utf-8-sig").splitlines()] == ["key", "b", "a"]
