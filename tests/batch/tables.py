"""Tables of many inputs, made by hand as the applications make them, and by explaining real questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from integrand.batch import ExplainedTable, Manifest, ManyExplained, Row, TableStore, explain_many

ASKED = (
    ("location", "Where is the Orinoco River ?"),
    ("person", "Who was the first man to walk on the moon ?"),
    ("number", "How many people live in Chile ?"),
    ("number", "What year did the Titanic sink ?"),
    ("description", "What is an atom ?"),
    ("entity", "What color is a poison arrow frog ?"),
    ("abbreviation", "What does NASA stand for ?"),
    ("location", "What is the capital of Yugoslavia ?"),
)
"""Questions in TREC's style with what they ask for, for a clone without TREC itself."""


def made(folder: Path, rows: Sequence[Row], *, title: str = "", parts: int = 3, **settings: Any) -> ExplainedTable:
    """A table of these rows, in several parts."""
    manifest = Manifest(settings or {"tol": 0.01}, "auto", title)
    with TableStore.opened(folder, manifest) as store:
        for k in range(parts):
            store.put(rows[k * len(rows) // parts : (k + 1) * len(rows) // parts])
            store.flush()
    return ExplainedTable.open(folder)


def asked_questions(data: Path | None, folder: Path) -> ManyExplained:
    """Real questions explained with the classifier that is shipped; some of them empty, which fail."""
    from integrand.apps import questions
    from integrand.apps.questions.question_files import read

    pairs: list[tuple[str, str]] = list(ASKED)
    if data is not None:
        found = read(data)
        pairs = list(zip(found.labels or (), found.questions, strict=True))[:60]
    rows = [{"question": text if i % 25 else "", "class": label, "n": i} for i, (label, text) in enumerate(pairs)]
    model = questions.load("trec")

    def explain(items: list[dict[str, Any]]) -> list[Row]:
        return [
            Row.of(
                one.certificate,
                prediction=one.label,
                probability=one.probability,
                target=one.label,
                sentence=one.sentence,
                features=one.words,
                attributions=np.array(one.values, np.float32),
            )
            for one in model.explain([item["question"] for item in items])
        ]

    return explain_many(rows, explain, folder, key="n", carry=["class", "question"], title="TREC questions")


NAMES = ("tabby, tabby cat", "goldfish", "container ship")


def photo_rows(count: int = 90) -> list[Row]:
    """Photos as ``integrand image`` keeps them: sums over a grid of 16 by 16, the page in the details."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        name = NAMES[i % 3 if i % 7 else 0]
        values = rng.normal(0.1 * (i % 3), 1, (16, 16)).astype(np.float32)
        error = float(10 ** rng.normal(-2.4, 0.2))
        if i % 30 == 11:
            why = f"photos/{i}.jpg is no photo that can be read (cut after {i * 100} bytes); expected JPEG or PNG."
            rows.append(Row.failed(f"photos/{i}.jpg", why, columns={"label": name}))
            continue
        rows.append(
            Row(
                f"photos/{i}.jpg",
                name,
                float(rng.uniform(0.3, 1)),
                name,
                score=float(rng.normal()) + 500 * (i == 40),
                baseline_score=0.0,
                error=error,
                tol=0.01,
                residual=1e-3,
                magnitude=float(np.abs(values).sum()),
                status="converged" if error < 0.01 else "budget spent",
                evaluations=int(rng.choice([33, 65, 129])),
                sentence=f"It is a {name}.",
                attributions=values,
                details=json.dumps({"page": f"pages/{i}.html"}),
                columns={"label": NAMES[i % 3]},
            )
        )
    return rows


GROUPS = ("ester", "nitro group", "aromatic ring", "amine")


def molecule_rows(count: int = 60) -> list[Row]:
    """Molecules as ``integrand molecule`` keeps them: atoms that count from 1 in each, and functional groups."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(count):
        atoms = tuple(f"{rng.choice(['C', 'N', 'O', 'Cl'])}{k}" for k in range(1, int(rng.integers(4, 12))))
        groups = tuple(str(name) for name in rng.choice(GROUPS, 2, replace=False))
        values = rng.normal(0, 0.2, len(atoms))
        p = float(rng.uniform())
        rows.append(
            Row(
                f"mol{i}",
                "active" if p > 0.5 else "not active",
                max(p, 1 - p),
                "active",
                score=p,
                baseline_score=0.1,
                error=0.0,
                tol=0.01,
                residual=0.0,
                magnitude=float(np.abs(values).sum()),
                status="exact",
                evaluations=17,
                features=atoms,
                attributions=values,
                groups=groups,
                group_sums=tuple(rng.normal([1.0 if name == "nitro group" else -0.1 for name in groups], 0.1).tolist()),
                notes=("has the element Si, which the network never saw",) if i % 20 == 0 else (),
                columns={"measured": int(p > 0.4)},
            )
        )
    return rows
