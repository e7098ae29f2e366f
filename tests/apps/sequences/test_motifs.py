"""The network that is shipped, on sequences that it has not seen: attributions find the motifs that were planted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from integrand import sequences
from integrand.errors import OptionError
from integrand.sequences import FastaRecord, SequenceModel

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "motifs.fasta"


@pytest.fixture(scope="module")
def network() -> SequenceModel:
    return sequences.load("motifs", "cpu")


def sites(record: FastaRecord) -> list[tuple[str, int, int]]:
    return [(name, int(start) - 1, int(end)) for name, start, end in re.findall(r"([\w-]+)=(\d+)-(\d+)[+-]", record.about)]


def auroc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Pair by pair, as it is defined."""
    right, wrong = scores[truth][:, None], scores[~truth][None]
    return float((right > wrong).mean() + (right == wrong).mean() / 2)


def test_the_network_tells_bound_from_unbound(network: SequenceModel) -> None:
    records = list(sequences.read_fasta(EXAMPLES))
    truth = np.array([record.about.startswith("bound") for record in records])
    assert len(records) == 24
    assert truth.sum() == 12
    assert auroc(np.array([float(network.outputs(record.sequence)) for record in records]), truth) > 0.85


@pytest.mark.parametrize(("baseline", "least"), [("shuffled", 0.85), ("uniform", 0.8), ("zero", 0.85)])
def test_attributions_find_the_planted_motifs(network: SequenceModel, baseline: str, least: float) -> None:
    """The bounds are below what ``python -m benchmarks.motifs`` measures on 150 sequences, for these are six."""
    chosen = [
        record
        for record in sequences.read_fasta(EXAMPLES)
        if record.about.startswith("bound") and float(network.outputs(record.sequence)) > 0
    ][:6]
    found, chance, decoys, motifs = [], [], [], []
    for record in chosen:
        result = network.explain(record, baseline=baseline, shuffles=8, hypothetical=False, tol=0.05)
        truth = np.zeros(len(result), bool)
        for name, start, end in sites(record):
            (decoys if name == "CTCF" else motifs).append(abs(result.stretch(start, end).value))
            truth[start:end] |= name != "CTCF"
        found.append(auroc(result.values, truth))
        chance.append(auroc(result.values[::-1], truth))
    assert np.mean(found) > least
    assert np.mean(found) > np.mean(chance) + 0.2
    assert np.mean(decoys) < 0.3 * np.mean(motifs)  # CTCF sites mean nothing, and get next to nothing


def test_the_sentence_names_the_motif(network: SequenceModel) -> None:
    record = next(sequences.read_fasta(EXAMPLES))
    found = network.explain(record, shuffles=6, tol=0.05)
    assert (found.said, found.label) == ("bound", "bound")
    assert found.probability is not None
    assert found.probability > 0.9
    (ap1,) = [(start, end) for name, start, end in sites(record) if name == "AP-1"]
    best = found.seqlets[0]
    assert best.start < ap1[1]
    assert best.end > ap1[0]
    assert found.sentence.startswith(f"bound (99.6%), mostly because of {best.letters} at {best.start + 1}–{best.end} (+")
    assert "baselines ±" in found.sentence
    assert "good to" in found.sentence


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(OptionError, match="expected one of motifs"):
        sequences.load("enformer")
    with pytest.raises(OptionError, match="expected one that torch has here"):
        sequences.load("motifs", device="nowhere")
