"""Attributions of letters, and hypothetical ones, against closed forms and a plain Gauss-Legendre sum over the same network."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand.apps.sequences.alphabets import Alphabet
from integrand.apps.sequences.seqlets import strong_stretches
from integrand.errors import ConvergenceWarning, FileError, InputError, OptionError, OutputError, TargetError
from integrand.sequences import SequenceAttribution, dinucleotide_shuffle, explain

Network = Callable[[Tensor], Tensor]
DNA = Alphabet.of("DNA")


def drawn(length: int, letters: str = "ACGT", seed: int = 0) -> str:
    return "".join(np.random.default_rng(seed).choice(list(letters), length))


def scan(letters: int, length: int, seed: int = 0) -> Tensor:
    """Weights of a matrix that is slid over a sequence, added up: a score for each letter at each place."""
    return torch.randn(letters, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(weights: Tensor) -> Network:
    return lambda x: (x.double() * weights).sum((1, 2))


class Smooth(nn.Module):
    """A small network with two convolutions, in double precision."""

    def __init__(self, letters: int = 4, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Conv1d(letters, 8, 5, padding=2), nn.GELU(), nn.Conv1d(8, 6, 5, padding=2), nn.Tanh())
        self.head = nn.Linear(6, 3)
        self.double().eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(2 * self.body(3 * x).sum(2))
        return out


def by_gauss_legendre(network: nn.Module, x: Tensor, starts: Tensor, target: int, nodes: int = 200) -> tuple[Tensor, Tensor]:
    """Attributions (L,) and hypothetical ones (letters, L), by their definitions, averaged over starts (N, letters, L)."""
    at, weights = np.polynomial.legendre.leggauss(nodes)
    values, others = torch.zeros(x.shape[1]).double(), torch.zeros_like(x)
    for start in starts:
        t = torch.tensor((at + 1) / 2)[:, None, None]
        points = (start + t * (x - start)).requires_grad_()
        (slopes,) = torch.autograd.grad(network(points)[:, target].sum(), points)
        mean = (torch.tensor(weights / 2)[:, None, None] * slopes).sum(0)
        values += (mean * (x - start)).sum(0) / len(starts)
        for c in range(len(x)):
            there = torch.zeros_like(x)
            there[c] = 1
            others[c] += (mean * (there - start)).sum(0) / len(starts)
    return values, others


def encoded(sequence: str, alphabet: Alphabet = DNA) -> Tensor:
    return torch.tensor(alphabet.encoded(sequence))


# ---- closed forms -----------------------------------------------------------------------------------------------------------


def test_a_linear_scan_with_shuffles() -> None:
    sequence, weights = drawn(40), scan(4, 40)
    found = explain(linear(weights), sequence, shuffles=7, seed=5)
    shuffles = torch.stack([encoded(one) for one in dinucleotide_shuffle(sequence, 7, seed=5)])
    each = (weights * (encoded(sequence) - shuffles)).sum(1).numpy()  # weight times (x - x'), for each shuffle
    np.testing.assert_allclose(found.each, each, atol=1e-5)
    np.testing.assert_allclose(found.values, each.mean(0), atol=1e-5)
    assert found.spread is not None
    assert found.hypothetical is not None
    np.testing.assert_allclose(found.spread, each.std(0, ddof=1) / np.sqrt(7), atol=1e-5)
    there = (weights * shuffles).sum(1).mean(0)
    np.testing.assert_allclose(found.hypothetical, (weights - there).numpy(), atol=1e-5)
    assert found.certificate.converged
    assert len(found.certificate.curves) == 7
    assert np.all(found.errors < 1e-4)
    assert found.off_simplex is None


def test_the_shuffles_are_as_many_and_as_seeded_as_asked_for() -> None:
    sequence, weights = drawn(30), scan(4, 30)
    one, same, other = (explain(linear(weights), sequence, shuffles=3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.values, same.values)
    assert np.abs(one.values - other.values).max() > 1e-3
    assert one.baseline == "3 dinucleotide shuffles (seed 1)"


def test_uniform_background_and_another_sequence() -> None:
    sequence, weights = drawn(12), scan(4, 12)
    x = encoded(sequence)
    even = explain(linear(weights), sequence, baseline="uniform")
    np.testing.assert_allclose(even.values, (weights * (x - 0.25)).sum(0).numpy(), atol=1e-5)
    rates = [0.3, 0.2, 0.2, 0.3]
    own = explain(linear(weights), sequence, baseline="uniform", background=rates)
    np.testing.assert_allclose(own.values, (weights * (x - torch.tensor(rates).double()[:, None])).sum(0).numpy(), atol=1e-5)
    other = drawn(12, seed=9)
    against = explain(linear(weights), sequence, baseline=other)
    np.testing.assert_allclose(against.values, (weights * (x - encoded(other))).sum(0).numpy(), atol=1e-5)
    both = explain(linear(weights), sequence, baseline=[other, sequence[::-1]])
    np.testing.assert_allclose(both.each[0], against.values, atol=1e-5)
    assert even.spread is None
    assert both.spread is not None
    tensor = explain(linear(weights), sequence, baseline=encoded(other).float())
    np.testing.assert_allclose(tensor.values, against.values, atol=1e-6)


def test_zeros_with_and_without_the_correction() -> None:
    sequence, weights = drawn(12), scan(4, 12)
    x = encoded(sequence)
    raw = explain(linear(weights), sequence, baseline="zero", correct=False)
    np.testing.assert_allclose(raw.values, (weights * x).sum(0).numpy(), atol=1e-5)
    assert raw.hypothetical is not None
    np.testing.assert_allclose(raw.hypothetical, weights.numpy(), atol=1e-5)
    corrected = explain(linear(weights), sequence, baseline="zero")
    free = weights - weights.mean(0)
    np.testing.assert_allclose(corrected.values, (free * x).sum(0).numpy(), atol=1e-5)
    assert corrected.hypothetical is not None
    assert corrected.off_simplex is not None
    np.testing.assert_allclose(corrected.hypothetical, free.numpy(), atol=1e-5)
    assert corrected.off_simplex[0] == pytest.approx(float(weights.mean(0).sum()), abs=1e-5)
    assert "leaving the simplex" in corrected.notes[0]
    assert "correct=False" in corrected.notes[0]


def test_where_contributions_cancel_the_sentence_has_no_because() -> None:
    """A score of the letters' numbers is that of all shuffles: what letters add up to is nothing."""
    weights = torch.tensor([3.0, 0, 0, -3]).double()[:, None].expand(4, 30)
    found = explain(linear(weights), "AAAAACGCGCTTTTTGCGCATATCACGTGT", shuffles=5, seed=1)
    assert found.certificate.score == pytest.approx(found.certificate.baseline_score, abs=1e-5)
    up, down = (max((one for one in found.seqlets if one.value * way > 0), key=lambda one: abs(one.value)) for way in (1, -1))
    assert f": {up} raises it most, {down} lowers it most;" in found.sentence
    assert "because" not in found.sentence


def test_proteins_have_twenty_letters() -> None:
    alphabet = Alphabet.of("protein")
    sequence, weights = drawn(25, alphabet.letters), scan(20, 25)
    found = explain(linear(weights), sequence, alphabet="protein", baseline="uniform")
    np.testing.assert_allclose(found.values, (weights * (encoded(sequence, alphabet) - 0.05)).sum(0).numpy(), atol=1e-5)
    assert found.hypothetical is not None
    np.testing.assert_allclose(found.hypothetical, (weights - weights.mean(0)).numpy(), atol=1e-5)
    shuffled = explain(linear(weights), sequence, alphabet="protein", shuffles=4)
    assert shuffled.baseline == "4 dipeptide shuffles (seed 0)"
    starts = torch.stack([encoded(one, alphabet) for one in dinucleotide_shuffle(sequence, 4)])
    np.testing.assert_allclose(
        shuffled.values, (weights * (encoded(sequence, alphabet) - starts)).sum(1).mean(0).numpy(), atol=1e-5
    )


def test_a_pair_of_letters_shares_what_neither_does_alone() -> None:
    """F = x1 x2 at two letters: along the straight line from zeros each gets half, and nothing else anything."""

    def both(x: Tensor) -> Tensor:
        return 3 * x[:, 0, 2] * x[:, 3, 5]

    found = explain(both, "CCACCTCC", baseline="zero", correct=False, hypothetical=False, tol=1e-4)
    np.testing.assert_allclose(found.values, [0, 0, 1.5, 0, 0, 1.5, 0, 0], atol=1e-4)
    assert found.hypothetical is None


# ---- against a plain sum ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["shuffled", "uniform", "zero"])
def test_values_and_hypothetical_ones_are_within_their_errors_of_a_plain_sum(baseline: str) -> None:
    network, sequence = Smooth(), drawn(60, seed=4)
    x = encoded(sequence)
    starts = {
        "shuffled": lambda: torch.stack([encoded(one) for one in dinucleotide_shuffle(sequence, 3)]),
        "uniform": lambda: torch.full_like(x, 0.25)[None],
        "zero": lambda: torch.zeros_like(x)[None],
    }[baseline]()
    target = int(network(x[None]).argmax())
    values, others = by_gauss_legendre(network, x, starts, target)
    found = explain(network, sequence, baseline=baseline, shuffles=3, correct=False, tol=0.01)
    assert found.certificate.converged
    assert found.hypothetical is not None
    assert found.hypothetical_errors is not None
    scale = values.abs().sum()
    assert np.abs(found.values - values.numpy()).sum() < 0.02 * scale
    assert np.mean(np.abs(found.values - values.numpy()) <= found.errors) > 0.95
    assert np.mean(np.abs(found.hypothetical - others.numpy()) <= found.hypothetical_errors) > 0.95
    # Errors say something: they are far smaller than what they belong to.
    assert found.errors.sum() < 0.2 * scale
    assert found.hypothetical_errors.mean() < 0.2 * np.abs(found.hypothetical).max()
    parts = [found.stretch(start, start + 12) for start in range(0, 48, 3)]
    off = np.array([abs(part.value - float(values[part.start : part.end].sum())) / part.error for part in parts])
    assert (off <= 1).mean() > 0.8  # of windows that overlap, and so are off together
    assert off.max() < 2
    exact = explain(network, sequence, baseline=baseline, shuffles=3, correct=False, tol=1e-6)
    np.testing.assert_allclose(exact.values, values.numpy(), atol=2e-5 * float(scale))
    assert exact.hypothetical is not None
    np.testing.assert_allclose(exact.hypothetical, others.numpy(), atol=2e-5 * float(scale))


def test_everything_adds_up_to_the_change_of_the_score() -> None:
    network, sequence = Smooth(), drawn(50, seed=2)
    for baseline in ("shuffled", "uniform", "zero"):
        for correct in (True, False):
            found = explain(network, sequence, baseline=baseline, shuffles=4, correct=correct, tol=1e-3)
            one = found.certificate
            left = found.off_simplex[0] if found.off_simplex is not None and correct else 0.0
            assert found.values.sum() + left == pytest.approx(one.score - one.baseline_score, abs=2e-3 * one.magnitude)
            assert one.score == pytest.approx(float(network(encoded(sequence)[None]).max()), rel=1e-5)


def test_the_letter_that_is_there_has_its_own_value() -> None:
    network, sequence = Smooth(), drawn(40, seed=3)
    for baseline in ("shuffled", "uniform", "zero"):
        found = explain(network, sequence, baseline=baseline, shuffles=3)
        assert found.hypothetical is not None
        assert found.hypothetical_errors is not None
        rows = [DNA.letters.index(letter) for letter in sequence]
        np.testing.assert_allclose(found.hypothetical[rows, range(40)], found.values, atol=1e-12)
        np.testing.assert_allclose(found.hypothetical_errors[rows, range(40)], found.errors, atol=1e-12)


def test_without_hypothetical_ones_the_values_are_the_same() -> None:
    network, sequence = Smooth(), drawn(40, seed=3)
    with_them, without = (explain(network, sequence, shuffles=3, hypothetical=wanted, tol=1e-4) for wanted in (True, False))
    np.testing.assert_allclose(with_them.values, without.values, atol=3e-4 * with_them.certificate.magnitude)
    assert without.hypothetical is None
    assert without.hypothetical_errors is None


# ---- what one-hot encoding leaves free ---------------------------------------------------------------------------------------


class Extended(nn.Module):
    """The same network on all sequences, and another one off the simplex."""

    def __init__(self, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network, kind
        self.slopes = torch.linspace(-2, 3, 50).double()

    def forward(self, x: Tensor) -> Tensor:
        sums, out = x.sum(1), self.network(x)
        if self.kind == "added":  # a function of the columns' sums that is 0 where they are 1
            return out + ((sums - 1) * self.slopes).sum(1, keepdim=True) + ((sums - 1) ** 2 * sums).sum(1, keepdim=True)
        return out * (1 + ((sums - 1) * self.slopes).sum(1, keepdim=True))


@pytest.mark.parametrize("kind", ["added", "multiplied"])
@pytest.mark.parametrize("baseline", ["shuffled", "uniform"])
def test_baselines_on_the_simplex_see_nothing_of_what_is_off_it(kind: str, baseline: str) -> None:
    network, sequence = Smooth(), drawn(50, seed=6)
    for correct in (True, False):
        how = {"baseline": baseline, "shuffles": 2, "correct": correct, "target": 1, "tol": 1e-5}
        plain, other = explain(network, sequence, **how), explain(Extended(network, kind), sequence, **how)
        size = plain.certificate.magnitude
        np.testing.assert_allclose(other.values, plain.values, atol=1e-4 * size)
        np.testing.assert_allclose(other.hypothetical, plain.hypothetical, atol=1e-4 * size)


def test_zeros_see_it_unless_corrected() -> None:
    network, sequence = Smooth(), drawn(50, seed=6)
    extended = Extended(network, "added")
    how = {"baseline": "zero", "target": 1, "tol": 1e-5}
    plain, other = (explain(one, sequence, **how) for one in (network, extended))
    size = float(np.abs(plain.values).sum())
    np.testing.assert_allclose(other.values, plain.values, atol=1e-3 * size)
    np.testing.assert_allclose(other.hypothetical, plain.hypothetical, atol=1e-3 * size)
    raw, raw_other = (explain(one, sequence, correct=False, **how) for one in (network, extended))
    assert np.abs(raw_other.values - raw.values).sum() > 0.5 * np.abs(raw.values).sum()
    assert np.abs(raw_other.hypothetical - raw.hypothetical).sum() > 0.5 * np.abs(raw.hypothetical).sum()
    # So does gradient x input, which begins at zeros without saying so.
    x = encoded(sequence)[None].requires_grad_()
    slopes = [torch.autograd.grad(one(x)[0, 1], x)[0] for one in (network, extended)]
    assert float(((slopes[1] - slopes[0]) * x.detach()).abs().sum()) > 1


# ---- what sequences may be ---------------------------------------------------------------------------------------------------


def test_letters_that_stand_for_several_masked_ones_and_padding() -> None:
    weights = scan(4, 10)
    found = explain(linear(weights), "acgNtR--TA", baseline="uniform")
    x = encoded("ACGNTR--TA")
    assert x[:, 3].tolist() == [0.25] * 4
    assert x[:, 5].tolist() == [0.5, 0, 0.5, 0]
    assert not x[:, 6:8].any()
    start = torch.where(x.sum(0) == 0, 0.0, 0.25)
    np.testing.assert_allclose(found.values, (weights * (x - start)).sum(0).numpy(), atol=1e-5)
    assert found.letters == "acgNtR--TA"
    assert found.hypothetical is not None
    assert found.values[6] == found.values[7] == 0
    mixed = (x * torch.tensor(found.hypothetical)).sum(0).numpy()  # a mixture gets the mixture of what its letters would
    np.testing.assert_allclose(mixed[:6], found.values[:6], atol=1e-6)


def test_what_is_not_known_stays_in_shuffles() -> None:
    weights, sequence = scan(4, 44), drawn(20) + "NN--" + drawn(20, seed=1)
    found = explain(linear(weights), sequence, shuffles=5)
    np.testing.assert_array_equal(found.values[20:24], 0)


def test_rna_reads_t_as_u_and_dna_u_as_t() -> None:
    weights = scan(4, 4)
    rna = [explain(linear(weights), text, alphabet="RNA", baseline="uniform").values for text in ("ACGU", "acgt")]
    np.testing.assert_array_equal(*rna)
    np.testing.assert_array_equal(rna[0], explain(linear(weights), "ACGU", baseline="uniform").values)


def test_layouts_and_tensors_give_the_same() -> None:
    network, sequence = Smooth(), drawn(30, seed=8)
    x = encoded(sequence)
    plain = explain(network, sequence, shuffles=2)
    turned = explain(lambda x: network(x.transpose(1, 2)), sequence, shuffles=2, layout="positions-letters", target=0)
    again = explain(network, sequence, shuffles=2, target=0)
    np.testing.assert_allclose(turned.values, again.values, atol=1e-3 * again.certificate.magnitude)
    np.testing.assert_array_equal(explain(network, x, shuffles=2).values, plain.values)
    for tensor in (x[None].float(), torch.stack([x, x]), torch.stack([x, x]).numpy()):  # (N, 4, L): as many results
        results = explain(network, tensor, shuffles=2)
        assert len(results) == len(tensor)
        for one in results:
            np.testing.assert_array_equal(one.values, plain.values)
    own = explain(network, sequence.translate(str.maketrans("ACGT", "TGCA")), alphabet="TGCA", baseline="uniform")
    np.testing.assert_allclose(own.values, explain(network, sequence, baseline="uniform").values, atol=1e-6)
    several = explain(network, [sequence, x], shuffles=2)
    assert len(several) == 2
    assert repr(several).startswith("2 results")


def test_names_of_outputs_and_targets() -> None:
    network, sequence = Smooth(), drawn(30)
    outputs = network(encoded(sequence)[None])[0]
    best = int(outputs.argmax())
    named = explain(network, sequence, classes=["a", "b", "c"], baseline="uniform")
    assert named.said == named.label == "abc"[best]
    assert named.probability == pytest.approx(float(outputs.softmax(0)[best]))
    other = explain(network, sequence, classes=["a", "b", "c"], target="abc"[best - 1], baseline="uniform")
    assert other.label == "abc"[best - 1]
    assert other.said == "abc"[best]
    assert f"speaks for {other.label}" not in named.sentence
    assert other.certificate.score == pytest.approx(float(outputs[best - 1]), rel=1e-5)
    single = explain(lambda x: network(x)[:, :1], sequence, classes=["no", "yes"], baseline="uniform")
    assert single.label == "yes"
    with pytest.raises(TargetError, match=r"expected 0, 'yes', or none\. What speaks for 'no' has a minus sign"):
        explain(lambda x: network(x)[:, :1], sequence, classes=["no", "yes"], target="no")
    assert single.said == ("yes" if outputs[0] > 0 else "no")
    # Outputs near each other, so that the baseline does not have the class already.
    chance = explain(lambda x: network(x) / 20, sequence, target=best, score="probability", baseline="uniform")
    assert chance.certificate.score == pytest.approx(float((outputs / 20).softmax(0)[best]), rel=1e-5)


# ---- errors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "how", "error", "said"),
    [
        ("ACGZ", {}, InputError, r"got 'Z' at position 4 .* expected letters of DNA"),
        ("MKVLAAGIVGAL", {}, InputError, r"It could be protein, for which"),
        ("", {}, InputError, r"empty sequence"),
        (3.5, {}, InputError, r"got a float as a sequence"),
        (None, {}, InputError, r"got a NoneType as a sequence"),
        ([], {}, InputError, r"got an empty list as a sequence"),
        ([None], {}, InputError, r"got a NoneType as a sequence; expected letters, or a one-hot tensor"),
        (torch.tensor([0, 1, 2, 3]), {}, InputError, r"shape \(4,\); expected one sequence, \(4, L\)"),
        ("ACGT.ACGT", {}, InputError, r"Take such letters out, or write N for them"),
        ("MKVL*", {"alphabet": "protein"}, InputError, r"A stop \(\*\) is no letter: take it off"),
        ("MKUL", {"alphabet": "protein"}, InputError, r"Take such letters out, or write X for them"),
        ("AD1R", {"alphabet": "AD"}, InputError, r"Take such letters out\.$"),
        ("ACGTAC", {"args": (torch.zeros(1),)}, OptionError, r"got args, which a sequence decides itself"),
        ("ACGTAC", {"batched": False, "groups": None}, OptionError, r"got batched, groups, which"),
        ("AAAAAAA", {}, InputError, r"nothing to shuffle; expected .*, or baseline='uniform'"),
        ("------", {"baseline": "zero"}, InputError, r"nothing but padding"),
        ("ACGTAC", {"baseline": "ACG"}, OptionError, r"expected one of shuffled, zero, uniform, or a sequence of 6 letters"),
        ("ACGTAC", {"baseline": []}, OptionError, r"got 0 baselines"),
        ("ACGTAC", {"baseline": torch.zeros(4, 5)}, InputError, r"shape \(4, 5\); expected \(4, 6\)"),
        ("ACGTAC", {"shuffles": 0}, OptionError, r"got shuffles=0; expected 1 to 1,000"),
        ("ACGTAC", {"background": [0.5] * 4}, OptionError, r"which is for baseline='uniform'"),
        ("ACGTAC", {"background": [0.5] * 4, "baseline": "uniform"}, OptionError, r"4 frequencies that add up to 1"),
        ("ACGTAC", {"alphabet": "ACGTA"}, OptionError, r"expected DNA, RNA, protein, or the letters"),
        ("ACGTAC", {"layout": "rows"}, OptionError, r"got layout='rows'"),
        ("ACGTAC", {"target": 3}, TargetError, r"a number from 0 to 2"),
        ("ACGTAC", {"target": "none"}, TargetError, r"got target='none'"),
        ("ACGTAC", {"classes": ["a", "b"]}, OptionError, r"2 names in classes for 3 outputs"),
        (torch.zeros(5, 6), {}, InputError, r"shape \(5, 6\); expected 4 letters by L positions"),
        (torch.ones(4, 6), {}, InputError, r"adds up to 4 at position 1; expected 1, or 0 for padding"),
        (torch.zeros(2, 2, 4, 6), {}, InputError, r"expected one sequence, \(4, L\)"),
    ],
)
def test_what_cannot_be_explained(sequence: object, how: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        explain(Smooth(), sequence, **how)  # type: ignore[arg-type]


def test_networks_that_do_not_fit() -> None:
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(4 * 20, 1)).eval()
    with pytest.raises(InputError, match=r"does not take a tensor of shape \(1, 4, 10\).*layout="):
        explain(fixed, "ACGTACGTAC")
    with pytest.raises(OutputError, match=r"gives shape \(1, 4, 10\) for one sequence"):
        explain(lambda x: x, "ACGTACGTAC")
    with pytest.raises(InputError, match="got a int as a model"):
        explain(3, "ACGT")  # type: ignore[arg-type]


# ---- results -----------------------------------------------------------------------------------------------------------------


def test_a_tolerance_that_is_not_met_is_said() -> None:
    with pytest.warns(ConvergenceWarning):
        found = explain(Smooth(), drawn(40), shuffles=2, tol=1e-9, max_evaluations=20)
    assert not found.certificate.converged
    assert found.certificate.remedy
    assert "not good to" in found.sentence


def test_errors_of_the_mean_and_of_each_baseline() -> None:
    found = explain(Smooth(), drawn(40), shuffles=5, tol=0.02)
    one = found.certificate
    assert one.converged
    assert one.error <= 0.02
    assert len(one.curves) == 5
    assert one.baseline_score == pytest.approx(np.mean([curve.start_score for curve in one.curves]))
    assert one.gradients == sum(curve.gradients for curve in one.curves)
    assert all(curve.error <= 0.02 for curve in one.curves)
    # What other shuffles would change is another thing than what the integration misses, and here far larger.
    assert found.spread is not None
    assert found.spread.max() > 3 * found.errors.max()


def test_a_result_goes_into_a_table_and_back() -> None:
    found = explain(Smooth(), drawn(40), shuffles=3, classes=["a", "b", "c"], baseline="zero")
    row = found.row()
    assert row.features is not None
    assert row.features[4] == f"5:{found.letters[4]}"
    again = SequenceAttribution.of_details(row.details)
    for name in ("values", "errors", "hypothetical", "hypothetical_errors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.certificate == found.certificate
    assert again.sentence == found.sentence
    assert again.notes == found.notes
    assert found.seqlets
    assert repr(again.seqlets) == repr(found.seqlets)  # a spread that is not known is NaN, which is not equal to itself
    assert again.stretch(3, 9).error >= found.stretch(3, 9).error * 0.99  # the sum of the letters' errors: a bound
    assert pickle.loads(pickle.dumps(found)).attribution is None
    with pytest.raises(FileError, match="details"):
        SequenceAttribution.of_details((row.details or "").replace('"kind":"sequence"', '"kind":"text"'))
    with pytest.raises(FileError, match="contradicts itself"):
        SequenceAttribution.of_details((row.details or "").replace('"letters":"', '"letters":"A', 1))


def test_stretches_and_what_is_written(tmp_path: object) -> None:
    weights = torch.zeros(4, 30).double()
    weights[0, 10:14] = 2.0
    found = explain(linear(weights), "C" * 10 + "AAAA" + "C" * 16, baseline="uniform")
    (best,) = found.seqlets
    assert (best.start, best.end, best.letters, best.place) == (10, 14, "AAAA", "11–14")
    assert best.value == pytest.approx(6.0, abs=1e-4)
    assert found.stretch(10, 14) == best
    with pytest.raises(OptionError, match="got the stretch 5 to 5 of 30 letters"):
        found.stretch(5, 5)
    lines = found.csv().splitlines()
    assert lines[0].startswith("position,letter,value,error,")
    assert lines[11].startswith("11,A,1.5")
    graph = replace(found, name="chr2:1000-1030").bedgraph().splitlines()
    assert graph[2 + 10].split("\t") == ["chr2", "1010", "1011", "1.5"]
    assert replace(found, name="peak").bedgraph().splitlines()[2].startswith("peak\t0\t1\t")
    numbers = found.numbers()
    assert numbers["seqlets"][0]["start"] == 11
    assert len(numbers["values"]) == 30


def test_seqlets_by_their_rule() -> None:
    assert strong_stretches(np.zeros(5)) == []
    values = np.array([0.0, 1, 1, 0, 0, 1, 0, 0, 0, 0.15, 0, -1, -1, -1, 0])
    assert strong_stretches(values) == [(1, 6), (11, 14)]  # two letters between are none too many; three are
    assert strong_stretches(values, apart=2) == [(11, 14)]
    assert strong_stretches(values, most=1) == [(1, 6)]
    # A strong letter of the other sign ends a stretch: none has a sum of cores that speak for and against.
    assert strong_stretches(np.array([1, 0.5, 0.5, -1, -1, -1, 1, 0, 0.9])) == [(3, 6), (0, 3), (6, 9)]
    assert ig.sequences.explain is explain
