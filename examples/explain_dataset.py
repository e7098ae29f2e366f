"""Explain thousands of molecules into a table, and ask it three questions: ``python examples/explain_dataset.py pcba.csv.gz``.

The file is a CSV with a column of SMILES and one of labels, 1 for active. That of the docs is PCBA-588342 of MoleculeNet (MIT):
``smiles`` and ``PCBA-588342`` of its file pcba.csv.gz. Of it, molecules are taken whose scaffolds the network has not seen in
training. The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import integrand as ig
from integrand.apps import molecules

GROUPS = """
SELECT name AS "group", count(*) AS molecules, round(avg(value), 3) AS "adds on average",
       round(100 * avg((value > 0)::INT))::INT || '%' AS "speaks for activity in", round(sum(value), 1) AS "adds in all"
FROM (SELECT unnest("groups") AS name, unnest(group_sums) AS value FROM '{table}/*.parquet')
GROUP BY name HAVING count(*) >= {least}
ORDER BY avg(value) DESC LIMIT 8
"""

MISTAKES = """
SELECT smiles, prediction AS said, round(100 * probability, 1) || '%' AS "sure to", "looked at"
FROM (SELECT *, row_number() OVER (PARTITION BY prediction ORDER BY probability DESC) AS rank,
             list_reverse(list_sort(list_transform(list_zip(group_sums, "groups"),
                 lambda part: {{'size': abs(part[1]), 'adds': part[1], 'name': part[2]}})))[1:3] AS "looked at"
      FROM '{table}/*.parquet'
      WHERE (prediction = 'active') != (label = 1))
WHERE rank <= 4 ORDER BY prediction, rank
"""

SIZES = """
SELECT CASE WHEN tens < 40 THEN tens || ' to ' || tens + 9 ELSE '40 and more' END AS atoms, count(*) AS molecules,
       round(100 * avg(error), 2) || '%' AS "mean error", round(100 * max(error), 2) || '%' AS "largest",
       round(avg(evaluations))::INT AS "gradients, mean", sum((error > tol)::INT) AS "above the tolerance"
FROM (SELECT *, least(len(features) // 10 * 10, 40) AS tens FROM '{table}/*.parquet' WHERE failure IS NULL)
GROUP BY tens ORDER BY tens
"""


def main() -> None:
    """Read the options, explain, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a CSV, also compressed (.gz), with SMILES and labels")
    parser.add_argument("--out", type=Path, default=Path("out/molecules"), help="folder of the table (default: out/molecules)")
    parser.add_argument("--count", type=int, default=5000, help="how many molecules (default: 5000)")
    parser.add_argument("--smiles", default="smiles", help="the column of SMILES")
    parser.add_argument("--label", default="PCBA-588342", help="the column that is 1 for active, 0 for not active")
    options = parser.parse_args()

    model = molecules.load("weave-w2n2")
    chosen = unseen(options.file, options.smiles, options.label, options.count)
    title = "PCBA-588342, scaffolds that the network has not seen"
    found = ig.explain_many(chosen, model.explain, options.out, key="smiles", column="smiles", carry=["label"], title=title)
    print(found)

    least = max(3, found.summary.explained // 100)
    ask("Which groups speak most for activity, over all molecules?", GROUPS, options.out, least=least)
    ask("Where is the network sure, and wrong, and what did it look at?", MISTAKES, options.out)
    ask("Are attributions of large molecules less exact?", SIZES, options.out)
    print(f"\nA page over all of them: integrand summary {options.out} --label label")


def unseen(file: Path, smiles: str, label: str, count: int) -> list[dict[str, Any]]:
    """Molecules from all over the file, each once, whose scaffolds were kept from training.

    These are a tenth of all, by a hash of the scaffold, as ``training/weave.py`` has it.
    """
    from rdkit import Chem
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    rows = list(read(file))
    step = max(1, len(rows) // (12 * count))
    found: dict[str, dict[str, Any]] = {}
    for row in rows[::step]:
        mol = Chem.MolFromSmiles(row[smiles])
        if mol is None or row[label] == "":
            continue
        scaffold = MurckoScaffoldSmiles(mol=mol, includeChirality=False)
        if int.from_bytes(hashlib.sha256(f"0:{scaffold}".encode()).digest()[:8], "big") >= 0.9 * 2**64:
            found.setdefault(row[smiles], {"smiles": row[smiles], "label": int(float(row[label]))})
        if len(found) == count:
            break
    return list(found.values())


def read(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV, compressed or not."""
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as text:
        yield from csv.DictReader(text)


def ask(question: str, query: str, table: Path, **values: Any) -> None:
    """Print a question and what DuckDB finds in the table."""
    import duckdb

    print(f"\n{question}")
    answer = duckdb.sql(query.format(table=table, **values))
    print("| " + " | ".join(answer.columns) + " |")
    print("|" + "---|" * len(answer.columns))
    for row in answer.fetchall():
        print("| " + " | ".join(map(said, row)) + " |")


def said(value: Any) -> str:
    """A cell in words: of a list, the parts with what each adds."""
    return ", ".join(f"{part['name']} {part['adds']:+.2f}" for part in value) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    main()
